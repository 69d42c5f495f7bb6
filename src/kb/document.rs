//! Parses a Markdown file into a [`Document`]: text, front matter, hash.
//!
//! The text is kept byte for byte, so that offsets and line numbers are those of the file. No file can fail an ingest:
//! one that is not text yields a [`SkipReason`], invalid front matter a [`FrontMatterWarning`].

use std::ops::Range;

use jiff::civil::Date;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use serde_json::{Map, Value};

use crate::base::id::ContentHash;
use crate::base::language::Language;
use crate::base::line::beginning;
use crate::base::word::language_of_document;
use crate::kb::extract::{ExtractError, Extractable, extract};

/// Larger files are skipped: they are logs or dumps rather than documents, and a file is held in memory whole.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 4 * 1024 * 1024;

/// Larger front matter is stripped from the body but not parsed.
const MAX_FRONT_MATTER_BYTES: usize = 64 * 1024;

/// Maximum number of front matter nodes that are parsed.
const MAX_YAML_NODES: usize = 20_000;

/// Limits on each title, tag and alias, and on how many tags or aliases are kept.
const MAX_NAME_CHARS: usize = 200;
const MAX_NAMES: usize = 256;

/// Number of bytes at the beginning of a document from which its language is detected.
const READ_FOR_LANGUAGE: usize = 8 * 1024;

const BOM: char = '\u{feff}';

/// A parsed file of a collection.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Path relative to the collection's root, with `/` between components.
    pub(crate) path: String,
    /// The whole file as stored, including byte order mark, line endings and front matter. For an [`Extractable`]
    /// format, the text extracted from it.
    pub(crate) text: String,
    /// Byte range of [`Self::text`] after byte order mark and front matter.
    pub(crate) body: Range<usize>,
    /// Title from the front matter, else from [a heading](Self::title_heading), else the file name without its extension.
    pub(crate) title: String,
    /// Whether the title is in the file; otherwise it is the file name.
    has_own_title: bool,
    /// Alternative titles from the front matter.
    pub(crate) aliases: Vec<String>,
    /// Tags from the front matter, without `#`.
    pub(crate) tags: Vec<String>,
    /// Date from the first field of [`DATE_FIELDS`] that has one.
    pub(crate) date: Option<Date>,
    /// Language from the front matter.
    own_language: Option<&'static Language>,
    /// Hash of the bytes of the file.
    pub(crate) content_hash: ContentHash,
    /// Problems that do not keep the file out of the index.
    pub(crate) warnings: Vec<FrontMatterWarning>,
}

/// Why a file is left out of the index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SkipReason {
    #[error("{bytes} bytes, above the limit of {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("binary (NUL at byte {offset})")]
    Binary { offset: usize },
    #[error("UTF-16, not UTF-8")]
    Utf16,
    #[error("not UTF-8 at byte {offset}")]
    NotUtf8 { offset: usize },
    /// A symbolic link is broken or leads out of the indexed folder.
    #[error("link that does not lead to a file inside the folder")]
    LinkOutside,
    /// A socket, a device, or the like.
    #[error("not a regular file")]
    NotAFile,
    /// A folder has a file with patterns of paths to leave out that is a device or a pipe, or too large.
    #[error("its `{name}` is not a regular file of at most {limit} bytes")]
    IgnoreFile { name: String, limit: u64 },
    #[error("path is not UTF-8")]
    PathNotUtf8,
    #[error(transparent)]
    Extract(#[from] ExtractError),
    #[error("failed to read")]
    Unreadable { source: std::io::Error },
}

/// A problem with the front matter of a file, which is indexed regardless.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrontMatterWarning {
    /// The front matter is neither valid YAML nor valid TOML; title, tags, aliases and date may be missing.
    #[error("front matter is not valid: {0}")]
    Broken(String),
    /// The front matter exceeds [`MAX_FRONT_MATTER_BYTES`] and was not parsed.
    #[error("front matter of {bytes} bytes was not read")]
    Huge { bytes: usize },
    /// The file begins with front matter that has no closing line; it is indexed as text.
    #[error("front matter is not closed")]
    Unclosed,
}

impl SkipReason {
    /// Returns whether the file may be readable later, so that its text stays in the index.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::IgnoreFile { .. } => true,
            Self::Extract(error) => error.is_passing(),
            _ => false,
        }
    }
}

impl Document {
    /// Reads the bytes of the file at `path`, as [`Self::parse`] does if they are text. The text of an [`Extractable`]
    /// format is extracted first, by a child process, which blocks.
    ///
    /// # Errors
    ///
    /// Returns a [`SkipReason`] if the file has no text.
    pub(crate) fn read(path: &str, bytes: Vec<u8>) -> Result<Self, SkipReason> {
        let Some(format) = Extractable::of(path) else { return Self::parse(path, bytes) };
        let text = extract(format, &bytes)?.into_markdown();
        // The hash of the file, not of the text, so that a change is detected without extracting the text.
        Ok(Self { content_hash: ContentHash::of(&bytes), ..Self::parse(path, text.into_bytes())? })
    }

    /// Parses the text of the file at `path` (relative to the collection's root, `/` between components).
    ///
    /// # Errors
    ///
    /// Returns a [`SkipReason`] unless the bytes are UTF-8 text of at most [`MAX_DOCUMENT_BYTES`].
    pub(crate) fn parse(path: &str, bytes: Vec<u8>) -> Result<Self, SkipReason> {
        let content_hash = ContentHash::of(&bytes);
        let text = read_text(bytes)?;
        let mut document = Self {
            body: 0..text.len(),
            path: path.to_owned(),
            text,
            title: String::new(),
            has_own_title: false,
            aliases: Vec::new(),
            tags: Vec::new(),
            date: None,
            own_language: None,
            content_hash,
            warnings: Vec::new(),
        };
        document.body.start = if document.text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
        if !document.is_plain_text() {
            document.take_front_matter();
        }
        document.settle_title();
        Ok(document)
    }

    /// Returns whether the file is plain text (`.txt`), in which `#` and `|` are not markup.
    pub(crate) fn is_plain_text(&self) -> bool {
        extension(&self.path).is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
    }

    /// Returns the title, or `None` if it is the file name.
    ///
    /// Only this title is embedded, so that renaming a file changes no vector.
    pub(crate) fn own_title(&self) -> Option<&str> {
        self.has_own_title.then_some(self.title.as_str())
    }

    /// Returns the language in the front matter (`lang: de`), else the detected language of the text, else English.
    pub(crate) fn language(&self) -> &'static Language {
        let read = || beginning(&self.text[self.body.clone()], READ_FOR_LANGUAGE);
        self.own_language.or_else(|| language_of_document(read())).unwrap_or_else(Language::english)
    }

    fn take_front_matter(&mut self) {
        let text = &self.text[self.body.clone()];
        let Some(fence) = Fence::opening(text) else { return };
        let Some((content, end)) = fence.enclosed(text) else {
            // A text may begin with a horizontal rule.
            if looks_like_keys(text.lines().nth(1).unwrap_or_default()) {
                self.warnings.push(FrontMatterWarning::Unclosed);
            }
            return;
        };
        let content = &text[content];
        if content.len() > MAX_FRONT_MATTER_BYTES {
            self.warnings.push(FrontMatterWarning::Huge { bytes: content.len() });
            self.body.start += end;
            return;
        }
        match fence.read(content) {
            Ok(fields) => self.take_fields(&fields),
            // Prose between two horizontal rules, which stays in the body.
            Err(_) if !content.lines().any(looks_like_keys) => return,
            Err(reason) => {
                let title = salvaged_title(content);
                self.warnings.push(FrontMatterWarning::Broken(reason));
                self.take_fields(&title);
            }
        }
        self.body.start += end;
    }

    fn take_fields(&mut self, fields: &Map<String, Value>) {
        let find = |names: &[&str]| {
            names.iter().find_map(|name| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
        };
        if let Some(title) = find(&["title"]).and_then(|(_, value)| scalar(value)) {
            self.title = shorten(&title);
            self.has_own_title = true;
        }
        self.aliases = find(&["aliases", "alias"]).map(|(_, value)| names(value, &[','])).unwrap_or_default();
        self.tags = find(&["tags", "tag", "keywords"])
            // A keyword may consist of several words; a tag has no spaces.
            .map(|(key, value)| names(value, if key.eq_ignore_ascii_case("keywords") { &[','] } else { &[',', ' '] }))
            .unwrap_or_default();
        for tag in &mut self.tags {
            *tag = tag.trim_start_matches('#').to_owned();
        }
        self.tags.retain(|tag| !tag.is_empty());
        self.own_language = find(&["lang"]).and_then(|(_, value)| Language::with_code(&scalar(value)?));
        self.date = DATE_FIELDS.iter().find_map(|name| date(&scalar(find(&[name])?.1)?));
    }

    fn settle_title(&mut self) {
        if !self.title.is_empty() {
            return;
        }
        if let Some(heading) = self.title_heading() {
            self.title = heading;
            self.has_own_title = true;
            return;
        }
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let stem = extension(name).map_or(name, |extension| &name[..name.len() - extension.len() - 1]);
        stem.clone_into(&mut self.title);
        self.has_own_title = false;
    }

    /// Returns the heading that titles the document: the only one of level 1, or the first of several if it opens the
    /// text and names no release. "Summary" below authors and date, and "2.1.0" in a log of changes, name sections like a
    /// lower heading. Headings in quotes, lists and footnotes do not count.
    fn title_heading(&self) -> Option<String> {
        if self.is_plain_text() {
            return None;
        }
        let mut text = HeadingText::default();
        let mut first: Option<String> = None;
        // Links, such as those to other languages, and badges may stand above the title.
        let (mut inside, mut linked, mut has_text) = (false, 0_usize, false);
        // Open elements. A heading inside one, such as a quote, is not the document's.
        let mut depth = 0_usize;
        for (event, _) in markdown_events(&self.text[self.body.clone()]) {
            if inside {
                text.take(&event);
            }
            match event {
                Event::Start(Tag::Heading { level: HeadingLevel::H1, .. }) if depth == 0 => {
                    text = HeadingText::default();
                    inside = true;
                    depth += 1;
                }
                Event::End(TagEnd::Heading(HeadingLevel::H1)) if inside => {
                    inside = false;
                    depth -= 1;
                    let heading = shorten(text.as_str());
                    if heading.is_empty() {
                        continue;
                    }
                    if first.is_some() {
                        return None;
                    }
                    if !has_text && !names_release(&heading) {
                        return Some(heading);
                    }
                    first = Some(heading);
                }
                Event::Start(tag) => {
                    linked += usize::from(matches!(tag, Tag::Link { .. } | Tag::Image { .. }));
                    depth += 1;
                }
                Event::End(tag) => {
                    linked -= usize::from(matches!(tag, TagEnd::Link | TagEnd::Image));
                    depth -= 1;
                }
                Event::Text(part) => has_text |= !inside && linked == 0 && part.contains(char::is_alphanumeric),
                _ => {}
            }
        }
        first
    }
}

/// Returns whether a heading names a release, as in a log of changes: "v2.1.0", "Release 7", "Unreleased".
fn names_release(heading: &str) -> bool {
    let first =
        heading.split_whitespace().next().unwrap_or_default().trim_matches(['[', ']', '(', ')', ':']).to_lowercase();
    let number = first.strip_prefix('v').unwrap_or(&first);
    let is_number = number.starts_with(|digit: char| digit.is_ascii_digit()) && number.contains(['.', '-']);
    is_number || ["release", "unreleased", "version"].contains(&first.as_str())
}

/// Front matter fields that hold a date, in order of precedence. Modification takes precedence over creation.
const DATE_FIELDS: [&str; 11] = [
    "date", "updated", "last_modified", "last_modified_at", "lastmod", "last_updated", "modified", "ms.date",
    "created", "published", "pubdate",
];

fn read_text(bytes: Vec<u8>) -> Result<String, SkipReason> {
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(SkipReason::TooLarge { bytes: bytes.len() as u64, limit: MAX_DOCUMENT_BYTES });
    }
    // Before the check for NUL bytes: UTF-16 text is full of them, but is not binary.
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(SkipReason::Utf16);
    }
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        return Err(SkipReason::Binary { offset });
    }
    String::from_utf8(bytes).map_err(|error| SkipReason::NotUtf8 { offset: error.utf8_error().valid_up_to() })
}

/// The delimiter of front matter.
#[derive(Clone, Copy)]
enum Fence {
    Yaml,
    Toml,
}

impl Fence {
    fn opening(text: &str) -> Option<Self> {
        match text.split('\n').next()?.trim_end() {
            "---" => Some(Self::Yaml),
            "+++" => Some(Self::Toml),
            _ => None,
        }
    }

    /// Returns the range between the fences and the end of the closing line.
    fn enclosed(self, text: &str) -> Option<(Range<usize>, usize)> {
        let mut lines = text.split_inclusive('\n');
        let start = lines.next()?.len();
        let mut end = start;
        for line in lines {
            let closes = match line.trim_end() {
                "---" | "..." => matches!(self, Self::Yaml),
                "+++" => matches!(self, Self::Toml),
                _ => false,
            };
            if closes {
                return Some((start..end, end + line.len()));
            }
            end += line.len();
        }
        None
    }

    /// Parses the fields; the error is one line.
    fn read(self, content: &str) -> Result<Map<String, Value>, String> {
        let fields = match self {
            // Empty YAML is null, not a map.
            Self::Yaml if content.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) => Ok(Map::new()),
            Self::Yaml => serde_saphyr::from_str_with_options(content, yaml_options(MAX_YAML_NODES))
                .map_err(|error| yaml_reason(&error.to_string())),
            Self::Toml => toml::from_str::<toml::Table>(content)
                .map(|table| table.into_iter().map(|(key, value)| (key, from_toml(value))).collect())
                .map_err(|error| error.message().to_owned()),
        };
        fields.map_err(|reason| reason.lines().next().unwrap_or_default().to_owned())
    }
}

/// Returns the first line of a parser error. Its line number counts from the start of the front matter, so `line`
/// becomes `its line`.
fn yaml_reason(complaint: &str) -> String {
    let line = complaint.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").replacen("line ", "its line ", 1)
}

/// Returns the range of YAML front matter between its fences, if a text begins with one.
pub(crate) fn yaml_front_matter(text: &str) -> Option<Range<usize>> {
    let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let fence = Fence::opening(&text[start..]).filter(|fence| matches!(fence, Fence::Yaml))?;
    let (fields, _) = fence.enclosed(&text[start..])?;
    Some(start + fields.start..start + fields.end)
}

/// Options that accept repeated keys but limit nesting and expansion: aliases can make a small file
/// expand to gigabytes.
pub(crate) fn yaml_options(max_nodes: usize) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: max_nodes,
            max_aliases: 200,
            max_anchors: 200,
            max_depth: 32,
            max_nodes: max_nodes,
            max_recorded_anchor_events: 20_000,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
    }
}

fn from_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Array(values) => Value::Array(values.into_iter().map(from_toml).collect()),
        toml::Value::Table(_) => Value::Null,
        // TOML has a type for dates.
        other => Value::String(other.to_string()),
    }
}

/// Returns whether a line looks like `key: value`, to tell front matter from prose between two horizontal rules.
fn looks_like_keys(line: &str) -> bool {
    let key = line.split([':', '=']).next().unwrap_or_default();
    key.len() < line.len()
        && key.starts_with(|first: char| first.is_alphabetic() || first == '"')
        && key.trim_end().chars().all(|c| c.is_alphanumeric() || "\"_-. ".contains(c))
        && key.split_whitespace().count() <= 2
}

/// Finds the title in invalid front matter. The usual cause is an unquoted title with a colon. Template placeholders
/// are not titles.
fn salvaged_title(content: &str) -> Map<String, Value> {
    let title = content.lines().find_map(|line| {
        let (key, value) = line.split_once([':', '='])?;
        let value = value.trim().trim_matches(['"', '\'']);
        let is_title = key.trim_end().eq_ignore_ascii_case("title");
        (is_title && !value.is_empty() && !value.contains("{{") && !value.contains("{%")).then(|| value.to_owned())
    });
    title.map(|title| ("title".to_owned(), Value::String(title))).into_iter().collect()
}

fn scalar(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Array(values) if values.len() == 1 => return values[0].as_str().and_then(|_| scalar(&values[0])),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// Returns the names in a list, or in a string split at `separators`.
fn names(value: &Value, separators: &[char]) -> Vec<String> {
    let names: Vec<String> = match value {
        Value::Array(values) => values.iter().filter_map(scalar).take(MAX_NAMES).collect(),
        other => scalar(other).iter().flat_map(|text| text.split(separators)).map(str::to_owned).collect(),
    };
    names.iter().map(|name| shorten(name)).filter(|name| !name.is_empty()).take(MAX_NAMES).collect()
}

/// Parses `2026-02-03` with or without a time after it, `2026/02/03`, and `02/03/2026`, which is read as
/// month/day/year.
fn date(text: &str) -> Option<Date> {
    let parts: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).take(3).collect();
    let [first, second, third] = parts[..] else { return None };
    let (year, month, day) = if first.len() == 4 { (first, second, third) } else { (third, first, second) };
    if year.len() != 4 || month.len() > 2 || day.len() > 2 {
        return None;
    }
    Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()
}

/// Returns the name on one line, cut to [`MAX_NAME_CHARS`].
fn shorten(name: &str) -> String {
    one_line(name, MAX_NAME_CHARS)
}

/// Returns the part of a file name after its last dot.
pub(super) fn extension(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    // A name such as `.github` has no extension.
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension)
}

/// Parses Markdown into events with their byte ranges.
pub(super) fn markdown_events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_WIKILINKS;
    Parser::new_ext(text, options).into_offset_iter()
}

/// The visible text of a heading. The names of its images, such as badges, count only if it has no other text.
#[derive(Default)]
pub(crate) struct HeadingText {
    text: String,
    images: String,
    is_image: bool,
}

impl HeadingText {
    /// Takes an event inside the heading.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        let text = if self.is_image { &mut self.images } else { &mut self.text };
        match event {
            Event::Text(part) | Event::Code(part) => text.push_str(part),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            Event::Start(Tag::Image { .. }) => self.is_image = true,
            Event::End(TagEnd::Image) => self.is_image = false,
            _ => {}
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        if self.text.trim().is_empty() { &self.images } else { &self.text }
    }
}

/// Collapses white space and cuts the text to `max_chars` characters, the last of which is then `…`.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    let mut left = max_chars;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        // With `take`, so that a word of megabytes is not counted to its end.
        if word.chars().take(left).count() < left {
            line.push_str(word);
            left -= word.chars().count() + 1;
        } else {
            line.extend(word.chars().take(left.saturating_sub(1)));
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse("notes/some-file.md", text.as_bytes().to_vec()).unwrap()
    }

    fn body(document: &Document) -> &str {
        &document.text[document.body.clone()]
    }

    #[test]
    fn yaml_front_matter_becomes_title_tags_aliases_and_date() {
        let document = parse(
            "---\ntitle: A guide\ntags: [one, '#two']\naliases:\n  - Guide\n  - 42\ndate: 2026-02-03T10:00:00Z\n---\n# Heading\n",
        );
        assert_eq!(document.own_title(), Some("A guide"));
        assert_eq!(
            (document.tags, document.aliases),
            (vec!["one".into(), "two".into()], vec!["Guide".into(), "42".into()])
        );
        assert_eq!(document.date, Some(jiff::civil::date(2026, 2, 3)));
        assert_eq!(&document.text[document.body], "# Heading\n");
    }

    #[test]
    fn toml_front_matter_is_read_too() {
        let document = parse("+++\ntitle = \"A guide\"\ndate = 2026-02-03\ntags = [\"x\"]\n+++\nText");
        assert_eq!(
            (document.title.as_str(), document.tags.as_slice(), body(&document)),
            ("A guide", &["x".into()][..], "Text")
        );
        assert_eq!(document.date, Some(jiff::civil::date(2026, 2, 3)));
    }

    #[test]
    fn body_begins_after_byte_order_mark_and_front_matter_with_windows_line_ends() {
        let document = parse("\u{feff}---\r\nTitle: 7\r\ntags: 'a, #b c'\r\n...\r\nText\r\n");
        assert_eq!((document.title.as_str(), body(&document)), ("7", "Text\r\n"));
        assert_eq!(document.tags, ["a", "b", "c"]);
        assert_eq!(body(&parse("\u{feff}Text")), "Text");
    }

    #[test]
    fn broken_front_matter_is_a_warning_and_its_title_is_kept() {
        let document = parse("---\ntitle: \"Rust: the book\ntags: [a\n---\nText");
        assert!(matches!(document.warnings[..], [FrontMatterWarning::Broken(_)]));
        assert_eq!((document.title.as_str(), body(&document)), ("Rust: the book", "Text"));

        let templated = parse("---\ntitle: {{ page.title }}\n---\nText");
        assert_eq!((templated.own_title(), body(&templated)), (None, "Text"));
        assert_eq!(templated.warnings.len(), 1);
    }

    #[test]
    fn front_matter_without_closing_line_is_text() {
        let document = parse("---\ntitle: x\n\nText");
        assert_eq!((document.warnings.as_slice(), document.body), (&[FrontMatterWarning::Unclosed][..], 0..18));
    }

    #[test]
    fn prose_between_two_rules_is_text() {
        let document = parse("---\nOnce upon a time there was a rule.\n---\nText");
        assert_eq!((document.warnings.len(), document.body.start), (0, 0));
    }

    #[test]
    fn repeated_key_counts_with_its_last_value() {
        assert_eq!(parse("---\ntitle: a\ntitle: b\n---\n").title, "b");
    }

    #[test]
    fn alias_bomb_is_a_warning() {
        let mut text = String::from("---\na: &a [x,x,x,x,x,x,x,x,x]\n");
        for (name, before) in ('b'..'j').zip('a'..) {
            let aliases = vec![format!("*{before}"); 9].join(",");
            text += &format!("{name}: &{name} [{aliases}]\n");
        }
        assert!(matches!(parse(&(text + "---\nText")).warnings[..], [FrontMatterWarning::Broken(_)]));
    }

    #[test]
    fn huge_front_matter_is_cut_off_unread() {
        let document = parse(&format!("---\n{}---\nText", "a: b\n".repeat(20_000)));
        assert_eq!(document.warnings, [FrontMatterWarning::Huge { bytes: 100_000 }]);
        assert_eq!(body(&document), "Text");
    }

    #[test]
    fn title_is_the_heading_of_level_one_that_titles_the_text() {
        let document = parse("## Before\n\n```\n# not this\n```\n\nA *fine* `title` & more\n===\n");
        assert_eq!(document.own_title(), Some("A fine title & more"));
        for (text, title) in [
            ("> # A quote\n\n# Own\n", Some("Own")),
            ("- # An item\n\nText[^1]\n\n[^1]:\n    # A note\n", None),
            ("- item\n\n# After *a* list\n", Some("After a list")),
            ("# Pump [![build](b.svg)](c) ![logo](l.png)\n", Some("Pump")),
            ("# ![Pump](p.png)\n", Some("Pump")),
            ("[![build](b.svg)](c)\n\n# Pump\n\n# Parts\n", Some("Pump")),
            ("- Proposed by: Ada\n\n# Summary\n\n# Motivation\n", None),
            ("[German](de.md) | [Greek](el.md)\n\n# Pump\n\n# Parts\n", Some("Pump")),
            ("# Unreleased\n\n# v2.1.0\n", None),
            ("# Moving to Pump 2.1\n\n# Parts\n", Some("Moving to Pump 2.1")),
            ("# Pump 2.1\n\n## Parts\n", Some("Pump 2.1")),
        ] {
            assert_eq!(parse(text).own_title(), title, "{text}");
        }
    }

    #[test]
    fn note_without_a_heading_of_level_one_is_titled_by_front_matter_then_by_its_file() {
        let body = "Text\n\n## First\n\n### Second\n";
        let document = parse(body);
        assert_eq!((document.title.as_str(), document.own_title()), ("some-file", None));
        let named = parse(&format!("---\ntitle: Boiler\n---\n{body}"));
        assert_eq!(named.own_title(), Some("Boiler"));
    }

    #[test]
    fn file_name_stands_in_for_a_title_and_is_not_the_documents_own() {
        let document = parse("Text");
        assert_eq!((document.title.as_str(), document.own_title()), ("some-file", None));
        let hidden = Document::parse(".notes", b"x".to_vec()).unwrap();
        assert_eq!(hidden.title, ".notes");
    }

    #[test]
    fn plain_text_has_neither_front_matter_nor_headings() {
        let document = Document::parse("a.TXT", b"---\ntitle: x\n---\n# y".to_vec()).unwrap();
        assert_eq!((document.title.as_str(), document.body.start), ("a", 0));
    }

    #[test]
    fn dates_are_read_as_people_write_them() {
        for text in ["2026-02-03", "2026/2/3", "2026-02-03 10:11:12", "02/03/2026"] {
            assert_eq!(date(text), Some(jiff::civil::date(2026, 2, 3)), "{text}");
        }
        for text in ["", "soon", "2026", "2026-02-30", "3rd of May 2026"] {
            assert_eq!(date(text), None, "{text}");
        }
        let document = parse("---\ndate: soon\nms.date: 02/03/2026\n---\n");
        assert_eq!(document.date, Some(jiff::civil::date(2026, 2, 3)));
    }

    #[test]
    fn bytes_that_are_no_text_say_why() {
        let reason = |bytes: &[u8]| Document::parse("a.md", bytes.to_vec()).unwrap_err().to_string();
        assert_eq!(reason(b"a\0b"), "binary (NUL at byte 1)");
        assert_eq!(reason(b"caf\xe9!"), "not UTF-8 at byte 3");
        assert_eq!(reason(b"\xff\xfeh\0"), "UTF-16, not UTF-8");
        assert_eq!(reason(&vec![b'a'; 5_000_000]), "5000000 bytes, above the limit of 4194304");
    }

    proptest! {
        #[test]
        fn any_front_matter_leaves_a_body_inside_the_text(
            content in "([a-z.]{1,5}[:=]? ?[-\\[{&*a!|>'\"#%@`\\t ]{0,4}[a-z0-9é]{0,5}[\\]}'\":,]?\r?\n){0,8}",
            fence in "---|\\+\\+\\+",
        ) {
            let document = parse(&format!("{fence}\n{content}{fence}\nText"));
            prop_assert!(body(&document).ends_with("Text"));
            prop_assert!(!document.title.is_empty());
        }
    }
}
