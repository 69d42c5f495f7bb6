//! Saved reports: writes a report as a note for a knowledge base, and reads the citations of a saved report, to check
//! them again and correct their places.
//!
//! A report as JSON has its citations under `evidence`, a note in its front matter under `sources`. Such a file may
//! have been edited, reformatted or forged, so it is untrusted: sizes are limited, and a corrected text is read back
//! before it is returned. A correction replaces lines and paths in place and leaves every other byte as it was.

use std::fmt::Write;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_saphyr::Spanned;

use super::figure;
use super::markdown::{self, code};
use crate::base::id::ContentHash;
use crate::base::line::{is_invisible, one_line, shortened};
use crate::kb::document::{yaml_front_matter, yaml_options};
use crate::research::evidence::Evidence;
use crate::research::report::{Report, SCHEMA_VERSION};
use crate::source::{Place, lines_of};

/// Largest saved report that is read, in bytes.
pub(crate) const MAX_SAVED_BYTES: u64 = 16_000_000;

/// Maximum number of citations in a saved report.
const MAX_CITATIONS: usize = 2_000;

/// Maximum number of nodes in the front matter of a note.
const MAX_YAML_NODES: usize = 50_000;

/// A quote and its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Citation {
    /// Id of the evidence within its report.
    pub(crate) id: String,
    /// Verbatim text of the source.
    pub(crate) quote: String,
    #[serde(rename = "source")]
    pub(crate) place: CitedPlace,
}

/// The source of a citation, as saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum CitedPlace {
    #[serde(rename = "kb")]
    File {
        collection: String,
        /// Relative to the collection's root.
        path: String,
        /// From 1.
        line_start: u32,
        /// Inclusive.
        line_end: u32,
        /// Hash of the file at the time of quoting.
        content_hash: ContentHash,
    },
    #[serde(rename = "web")]
    Page { url: String },
    /// A call of a tool of one of the user's own servers.
    #[serde(rename = "mcp")]
    Call { server: String, tool: String, arguments: String },
}

#[derive(Debug)]
pub(crate) struct SavedReport {
    pub(crate) run_id: Option<String>,
    /// `None` for a note of an earlier version, whose front matter has none.
    pub(crate) citations: Option<Vec<Citation>>,
    text: String,
    /// One for each citation.
    places: Vec<PlaceRanges>,
    is_note: bool,
}

/// Byte ranges of the fields of a citation that may be corrected.
#[derive(Clone, Debug, Default)]
struct PlaceRanges {
    path: Option<Range<usize>>,
    line_start: Option<Range<usize>>,
    line_end: Option<Range<usize>>,
}

/// A saved report cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("neither a report as JSON nor a note with front matter")]
    Unknown,
    #[error("not a report as JSON")]
    Json(#[source] serde_json::Error),
    #[error("not the front matter of a `dr` note: {0}")]
    FrontMatter(String),
    #[error("report has format {found}, and this `dr` knows {SCHEMA_VERSION}")]
    TooNew { found: u32 },
    #[error("report has {found} citations, more than {MAX_CITATIONS}")]
    TooMany { found: usize },
    #[error("citations could not be located in the text, so they cannot be updated")]
    Fixed,
}

/// The fields of a report as JSON that a check needs. `E` is [`Citation`] or [`JsonSource`].
#[derive(Deserialize)]
struct JsonReport<E> {
    schema_version: u32,
    run_id: Option<String>,
    evidence: Vec<E>,
}

#[derive(Deserialize)]
struct JsonSource<'a> {
    #[serde(borrow)]
    source: JsonPlace<'a>,
}

/// The fields of a citation that may be corrected, as written in the text.
#[derive(Deserialize)]
struct JsonPlace<'a> {
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    line_start: Option<&'a RawValue>,
    #[serde(borrow)]
    line_end: Option<&'a RawValue>,
}

/// The fields of the front matter of a note that a check needs.
#[derive(Deserialize)]
struct NoteFields {
    run_id: Option<String>,
    sources: Option<Vec<NoteSource>>,
}

/// A citation in the front matter: a page if it has `url`, a call if it has `server`, otherwise a file.
#[derive(Deserialize)]
struct NoteSource {
    id: String,
    quote: String,
    collection: Option<String>,
    path: Option<Spanned<String>>,
    line_start: Option<Spanned<u32>>,
    line_end: Option<Spanned<u32>>,
    content_hash: Option<String>,
    url: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    arguments: Option<String>,
}

/// A text that replaces a range.
type Edit = (Range<usize>, String);

impl CitedPlace {
    /// Returns the place for people: `path:from-to`, the address of a page, or a call, on one line.
    pub(crate) fn for_people(&self) -> String {
        one_line(&match self {
            Self::File { path, line_start, line_end, .. } => lines_of(path, *line_start, *line_end),
            Self::Page { url } => url.clone(),
            Self::Call { server, tool, arguments } => format!("mcp:{server}/{tool} {}", shortened(arguments)),
        })
    }
}

impl From<&Evidence> for Citation {
    fn from(evidence: &Evidence) -> Self {
        let place = match evidence.source.clone() {
            Place::Kb { collection, path, line_start, line_end, content_hash, .. } => {
                CitedPlace::File { collection, path, line_start, line_end, content_hash }
            }
            Place::Web { url, .. } => CitedPlace::Page { url },
            Place::Mcp { server, tool, arguments, .. } => CitedPlace::Call { server, tool, arguments },
        };
        Self { id: evidence.id.to_string(), quote: evidence.quote.clone(), place }
    }
}

/// Returns the report as Markdown with front matter, for saving it in a knowledge base. The front matter has the data
/// for a later check of the citations.
pub(crate) fn note(report: &Report) -> String {
    let question = yaml_string(&one_line(report.question.as_str()));
    let mut text = format!("---\ntitle: {question}\nquestion: {question}\n");
    if let Some(run) = &report.run_id {
        let _ = writeln!(text, "run_id: {}", yaml_string(run));
    }
    let _ = writeln!(text, "stop_reason: {}", report.stop_reason);
    let _ = writeln!(text, "confidence: {:.2}", report.confidence);
    let _ = writeln!(text, "cost: {}", yaml_string(&figure::cost(report.usage.total.cost_usd)));
    text.push_str("tags: [dr-report]\n");
    text.push_str(&sources(report));
    text.push_str("---\n\n");
    text + &markdown::report(report)
}

/// Returns the citations of a report as a field of front matter, each on one line.
fn sources(report: &Report) -> String {
    if report.evidence.is_empty() {
        return "sources: []\n".to_owned();
    }
    let mut text = String::from("sources:\n");
    for Citation { id, quote, place } in report.evidence.iter().map(Citation::from) {
        let mut fields = vec![("id", yaml_string(&id)), ("quote", yaml_string(&quote))];
        match place {
            CitedPlace::File { collection, path, line_start, line_end, content_hash } => fields.extend([
                ("collection", yaml_string(&collection)),
                ("path", yaml_string(&path)),
                ("line_start", line_start.to_string()),
                ("line_end", line_end.to_string()),
                ("content_hash", yaml_string(content_hash.as_str())),
            ]),
            CitedPlace::Page { url } => fields.push(("url", yaml_string(&url))),
            CitedPlace::Call { server, tool, arguments } => fields.extend([
                ("server", yaml_string(&server)),
                ("tool", yaml_string(&tool)),
                ("arguments", yaml_string(&arguments)),
            ]),
        }
        let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        text.push_str(&format!("- {{{}}}\n", fields.join(", ")));
    }
    text
}

/// Returns a text as a quoted YAML string on one line, which reads back as the same text.
fn yaml_string(text: &str) -> String {
    // A JSON string is also a YAML string.
    let mut string = String::new();
    for letter in serde_json::Value::from(text).to_string().chars() {
        match u32::from(letter) {
            // Breaks a line in YAML.
            code @ (0x2028 | 0x2029) => string.push_str(&format!("\\u{code:04x}")),
            _ if !letter.is_control() && !is_invisible(letter) => string.push(letter),
            code @ ..=0xFFFF => string.push_str(&format!("\\u{code:04x}")),
            code => string.push_str(&format!("\\U{code:08x}")),
        }
    }
    string
}

impl SavedReport {
    /// Reads a report as JSON or a note.
    ///
    /// # Errors
    ///
    /// Returns an error for any other text, and for a report with too many citations.
    pub(crate) fn read(text: String) -> Result<Self, SavedError> {
        let (run_id, found, is_note) = if let Some(yaml) = yaml_front_matter(&text) {
            let (run_id, found) = read_note(&text, yaml)?;
            // A note that `dr` did not write.
            if run_id.is_none() && found.is_none() {
                return Err(SavedError::Unknown);
            }
            (run_id, found, true)
        } else if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
            let (run_id, found) = read_json(&text)?;
            (run_id, Some(found), false)
        } else {
            return Err(SavedError::Unknown);
        };
        let (citations, places): (Option<Vec<_>>, Option<Vec<_>>) =
            found.map(|found| found.into_iter().unzip()).unzip();
        match citations.as_ref().map_or(0, Vec::len) {
            found if found > MAX_CITATIONS => Err(SavedError::TooMany { found }),
            _ => Ok(Self { run_id, citations, text, places: places.unwrap_or_default(), is_note }),
        }
    }

    /// Returns the text with the places of `corrected`, which are its citations, some with another path or other lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the corrected text would not read back as `corrected`.
    pub(crate) fn corrected(&self, corrected: &[Citation]) -> Result<String, SavedError> {
        let known = self.citations.as_deref().unwrap_or_default();
        let pairs: Vec<_> = known.iter().zip(corrected).collect();
        let edits = pairs.iter().zip(&self.places).map(|((old, new), place)| edits_of(old, new, place));
        let mut edits = edits.collect::<Option<Vec<_>>>().ok_or(SavedError::Fixed)?.concat();
        if self.is_note {
            edits.extend(self.body_edits(&pairs));
        }
        // The loop below copies the text from its beginning, and printed places are found in another order.
        edits.sort_by_key(|(range, _)| range.start);
        let (mut text, mut from) = (String::with_capacity(self.text.len()), 0);
        for (range, new) in edits {
            text.push_str(self.text.get(from..range.start).ok_or(SavedError::Fixed)?);
            text.push_str(&new);
            from = range.end;
        }
        text.push_str(self.text.get(from..).ok_or(SavedError::Fixed)?);
        match Self::read(text) {
            Ok(read) if read.citations.as_deref() == Some(corrected) => Ok(read.text),
            _ => Err(SavedError::Fixed),
        }
    }

    /// Returns edits of the places that a note prints below `Sources`. Ambiguous places are left unchanged.
    fn body_edits(&self, pairs: &[(&Citation, &Citation)]) -> Vec<Edit> {
        let sources = self.printed_sources();
        let printed = |within: &Range<usize>, from: &str| -> Vec<_> {
            let found = self.text[within.clone()].match_indices(from);
            found.map(|(at, _)| within.start + at..within.start + at + from.len()).collect()
        };
        let mut edits: Vec<Edit> = Vec::new();
        let mut done: Vec<(usize, String)> = Vec::new();
        let mut replace = |within: &Range<usize>, from: String, to: Vec<String>| {
            if done.contains(&(within.start, from.clone())) || to.iter().all(|to| *to == from) {
                return;
            }
            let places = printed(within, &from);
            // Printed as often as cited, and therefore in the same order.
            if places.len() == to.len() {
                edits.extend(places.into_iter().zip(to));
            // Printed more or less often, but all have the same target.
            } else if to.iter().all(|other| *other == to[0]) {
                edits.extend(places.into_iter().map(|place| (place, to[0].clone())));
            }
            done.push((within.start, from));
        };
        for (old, _) in pairs {
            let CitedPlace::File { collection, path, line_start, line_end, .. } = &old.place else { continue };
            let same = pairs.iter().filter(|(other, _)| other.place.for_people() == old.place.for_people());
            let places = same.map(|(_, new)| code(&new.place.for_people())).collect();
            replace(&sources, code(&old.place.for_people()), places);
            let (mut paths, mut positions) = (Vec::new(), Vec::new());
            for (other, new) in pairs {
                let CitedPlace::File { collection: of, path: at, line_start: first, line_end: last, .. } = &other.place
                else {
                    continue;
                };
                let CitedPlace::File { path: new, line_start: from, line_end: to, .. } = &new.place else { continue };
                if of == collection && at == path {
                    paths.push(code(new));
                    if (first, last) == (line_start, line_end) {
                        positions.push(code(&lines_of("", *from, *to)));
                    }
                }
            }
            // Quotes that are now in different files cannot stand below one path.
            if let [source] = &self.printed_with(&sources, &code(path))[..]
                && paths.iter().all(|other| *other == paths[0])
            {
                replace(source, code(&lines_of("", *line_start, *line_end)), positions);
            }
            replace(&sources, code(path), paths);
        }
        edits
    }

    /// Returns the sources of a range that contain a text, each with the indented lines below it.
    fn printed_with(&self, within: &Range<usize>, text: &str) -> Vec<Range<usize>> {
        let mut sources: Vec<Range<usize>> = Vec::new();
        let mut at = within.start;
        for line in self.text[within.clone()].split_inclusive('\n') {
            let own = at..at + line.len();
            at = own.end;
            let goes_on = line.starts_with([' ', '\t']) || line.trim().is_empty();
            match sources.last_mut().filter(|_| goes_on) {
                Some(source) => source.end = own.end,
                None => sources.push(own),
            }
        }
        sources.retain(|source| self.text[source.clone()].contains(text));
        sources
    }

    /// Returns the range of the last section `Sources` of a note.
    fn printed_sources(&self) -> Range<usize> {
        let end = self.text.len();
        let mut at = 0;
        let mut range = end..end;
        for line in self.text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            // The last one: a section of the answer may have the same title.
            if line.trim_end() == "## Sources" {
                range = at..end;
            } else if range.end == end && range.start <= start && (line.starts_with("## ") || line.trim_end() == "---")
            {
                range.end = start;
            }
        }
        range
    }
}

/// Returns the edits that make the place of `old` that of `new`; `None` if a field to change is not in the text.
fn edits_of(old: &Citation, new: &Citation, place: &PlaceRanges) -> Option<Vec<Edit>> {
    let (
        CitedPlace::File { path, line_start, line_end, .. },
        CitedPlace::File { path: new_path, line_start: new_start, line_end: new_end, .. },
    ) = (&old.place, &new.place)
    else {
        return Some(Vec::new());
    };
    let changed = [
        // In JSON too. A string that is valid only in YAML (`\U`) does not read back, and is refused.
        (&place.path, path != new_path, yaml_string(new_path)),
        (&place.line_start, line_start != new_start, new_start.to_string()),
        (&place.line_end, line_end != new_end, new_end.to_string()),
    ];
    let changed = changed.into_iter().filter(|(_, is_changed, _)| *is_changed);
    changed.map(|(range, _, value)| Some((range.clone()?, value))).collect()
}

/// Citations, each with the byte ranges that a correction replaces.
type LocatedCitations = Vec<(Citation, PlaceRanges)>;

fn read_json(text: &str) -> Result<(Option<String>, LocatedCitations), SavedError> {
    // An editor may have put a byte order mark in front.
    let json = text.trim_start_matches('\u{feff}');
    let report: JsonReport<Citation> = serde_json::from_str(json).map_err(SavedError::Json)?;
    if report.schema_version > SCHEMA_VERSION {
        return Err(SavedError::TooNew { found: report.schema_version });
    }
    // Parsed again: the fields of [`CitedPlace`] are copied until its tag is known, so they cannot be borrowed.
    let sources: JsonReport<JsonSource<'_>> = serde_json::from_str(json).map_err(SavedError::Json)?;
    let range = |value: Option<&RawValue>| {
        let value = value?.get();
        let start = value.as_ptr().addr() - text.as_ptr().addr();
        Some(start..start + value.len())
    };
    let places = sources.evidence.into_iter().map(|JsonSource { source: JsonPlace { path, line_start, line_end } }| {
        PlaceRanges { path: range(path), line_start: range(line_start), line_end: range(line_end) }
    });
    Ok((report.run_id, report.evidence.into_iter().zip(places).collect()))
}

fn read_note(text: &str, yaml: Range<usize>) -> Result<(Option<String>, Option<LocatedCitations>), SavedError> {
    let front = &text[yaml.clone()];
    let fields: NoteFields = serde_saphyr::from_str_with_options(front, yaml_options(MAX_YAML_NODES))
        .map_err(|error| SavedError::FrontMatter(one_line(error.to_string().lines().next().unwrap_or_default())))?;
    let citation = |source: NoteSource| {
        let (id, quote) = (source.id, source.quote);
        let missing = |field: &str| SavedError::FrontMatter(format!("`{}` has no `{field}`", one_line(&id)));
        if let Some(url) = source.url {
            return Ok((Citation { id, quote, place: CitedPlace::Page { url } }, PlaceRanges::default()));
        }
        if let (Some(server), Some(tool), Some(arguments)) = (source.server, source.tool, source.arguments) {
            let place = CitedPlace::Call { server, tool, arguments };
            return Ok((Citation { id, quote, place }, PlaceRanges::default()));
        }
        let path = source.path.ok_or_else(|| missing("path"))?;
        let line_start = source.line_start.ok_or_else(|| missing("line_start"))?;
        let line_end = source.line_end.ok_or_else(|| missing("line_end"))?;
        let place = PlaceRanges {
            path: range_of(&path, yaml.start),
            line_start: range_of(&line_start, yaml.start),
            line_end: range_of(&line_end, yaml.start),
        };
        let cited = CitedPlace::File {
            collection: source.collection.ok_or_else(|| missing("collection"))?,
            path: path.value,
            line_start: line_start.value,
            line_end: line_end.value,
            content_hash: ContentHash::from_stored(source.content_hash.ok_or_else(|| missing("content_hash"))?),
        };
        Ok((Citation { id, quote, place: cited }, place))
    };
    let sources = fields.sources.map(|sources| sources.into_iter().map(citation).collect::<Result<_, _>>());
    Ok((fields.run_id, sources.transpose()?))
}

/// Returns the position of a value in a text whose front matter begins at `from`.
fn range_of<T>(value: &Spanned<T>, from: usize) -> Option<Range<usize>> {
    let span = value.defined.span();
    let start = from + usize::try_from(span.byte_offset()?).ok()?;
    Some(start..start + usize::try_from(span.byte_len()?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::{ReportFormat, report, sample};
    use super::*;

    fn note() -> String {
        report(&sample::run(), ReportFormat::Note).unwrap()
    }

    fn json() -> String {
        report(&sample::run(), ReportFormat::Json).unwrap()
    }

    fn read(text: &str) -> SavedReport {
        SavedReport::read(text.to_owned()).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Moves every file by many lines, and one of them into a folder.
    fn moved(citations: &[Citation]) -> Vec<Citation> {
        let mut citations = citations.to_vec();
        for citation in &mut citations {
            if let CitedPlace::File { path, line_start, line_end, .. } = &mut citation.place {
                (*line_start, *line_end) = (line_start.saturating_add(70_000), line_end.saturating_add(70_000));
                if path == "battery.md" {
                    *path = "power \"cells\"/battery.md".into();
                }
            }
        }
        citations
    }

    #[test]
    fn note_and_json_have_the_same_citations() {
        let mut run = sample::run();
        run.evidence[0].quote = "a\u{1b}[31m \u{2028}\u{e0041}\u{202e}é\t\"'\\ # : {x}\r\nb".into();
        let expected: Vec<_> = run.evidence.iter().map(Citation::from).collect();
        for format in [ReportFormat::Note, ReportFormat::Json] {
            let saved = read(&report(&run, format).unwrap());
            assert_eq!(saved.citations.as_deref(), Some(&expected[..]), "{format}");
            assert_eq!(saved.run_id.as_deref(), Some("4f1c09a2b7de5533"));
        }
        let front = report(&run, ReportFormat::Note).unwrap();
        assert!(!front.contains(['\u{1b}', '\u{202e}', '\u{2028}']), "{front:?}");
        run.evidence.clear();
        assert_eq!(read(&report(&run, ReportFormat::Note).unwrap()).citations, Some(Vec::new()));
    }

    #[test]
    fn corrected_places_replace_the_old_ones_and_nothing_else_changes() {
        for (text, is_note) in [
            (json(), false),
            (serde_json::from_str::<serde_json::Value>(&json()).unwrap().to_string(), false),
            (json().replace('\n', "\r\n"), false),
            (format!("\u{feff}{}", json().replace("\"path\"", "\"p\\u0061th\"")), false),
            (note(), true),
            (note().replace('\n', "\r\n"), true),
            (format!("\u{feff}{}", note()), true),
        ] {
            let saved = read(&text);
            let wanted = moved(saved.citations.as_deref().unwrap());
            let corrected = saved.corrected(&wanted).unwrap();
            assert_eq!(read(&corrected).citations.as_deref(), Some(&wanted[..]));
            let [lines, other] = [text.lines(), corrected.lines()].map(Iterator::collect::<Vec<_>>);
            assert_eq!(lines.len(), other.len());
            for (line, other) in lines.iter().zip(other) {
                let undone = other.replace("70011", "11").replace("70012", "12");
                let undone = undone.replace(r#""power \"cells\"/battery.md""#, r#""battery.md""#);
                assert_eq!(**line, undone.replace("`power \"cells\"/battery.md", "`battery.md"));
            }
            assert_eq!(corrected.contains("1. `power \"cells\"/battery.md:70011-70012` — "), is_note, "{corrected}");
            assert_eq!(saved.corrected(saved.citations.as_deref().unwrap()).unwrap(), text, "without a move");
        }
    }

    #[test]
    fn front_matter_that_was_formatted_is_read_and_corrected_too() {
        let text = "---\nsources:\n  - id: n1e1\n    quote: >-\n      It is\n      so.\n    collection: kb\n    path: a.md\n    line_start: 3\n    \
                    line_end:   4 # was 2\n    content_hash: ab\n---\n# Q\n\n## Sources\n\n1. `a.md:3-4` — A\n2. `a.md:3-4` — A\n";
        let saved = read(text);
        let citations = saved.citations.as_deref().unwrap();
        assert_eq!(citations[0].quote, "It is so.");
        let mut wanted = citations.to_vec();
        wanted[0].place = CitedPlace::File {
            collection: "kb".into(),
            path: "b/a.md".into(),
            line_start: 13,
            line_end: 14,
            content_hash: ContentHash::from_stored("ab"),
        };
        let expected = text
            .replace("path: a.md", "path: \"b/a.md\"")
            .replace("line_start: 3", "line_start: 13")
            .replace("  4 #", "  14 #")
            .replace("`a.md:3-4`", "`b/a.md:13-14`");
        assert_eq!(saved.corrected(&wanted).unwrap(), expected);
    }

    #[test]
    fn quotes_of_the_same_lines_that_part_are_corrected_one_by_one() {
        let mut run = sample::run();
        let mut twin = run.evidence[0].clone();
        twin.id = "n2e9".parse().unwrap();
        twin.quote = "It is new.".into();
        run.evidence.insert(1, twin);
        let saved = read(&report(&run, ReportFormat::Note).unwrap());
        let mut wanted = saved.citations.clone().unwrap();
        let CitedPlace::File { line_start, line_end, .. } = &mut wanted[1].place else { panic!() };
        (*line_start, *line_end) = (40, 40);
        let corrected = saved.corrected(&wanted).unwrap();
        assert!(
            corrected.contains("`battery.md` — Batteries\n   - a `:11-12` “") && corrected.contains("   - b `:40` “"),
            "{corrected}"
        );
        for citation in &mut wanted[..2] {
            let CitedPlace::File { path, .. } = &mut citation.place else { panic!() };
            *path = "power/battery.md".into();
        }
        let corrected = saved.corrected(&wanted).unwrap();
        assert!(corrected.contains("1. `power/battery.md` — Batteries\n   - a `:11-12` “"), "{corrected}");
        assert!(corrected.contains("   - b `:40` “"), "{corrected}");
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        let error = |text: &str| SavedReport::read(text.to_owned()).unwrap_err().to_string();
        assert_eq!(error("# A page\n"), "neither a report as JSON nor a note with front matter");
        assert_eq!(error("---\ntitle: A page\n---\n"), "neither a report as JSON nor a note with front matter");
        assert_eq!(error(""), "neither a report as JSON nor a note with front matter");
        assert_eq!(error("{}"), "not a report as JSON");
        assert_eq!(error(r#"{"schema_version": 7, "evidence": []}"#), "report has format 7, and this `dr` knows 1");
        let cited = r#"{"id":"a","quote":"b","source":{"kind":"web","url":"c"}}"#;
        let many = format!(r#"{{"schema_version":1,"evidence":[{}]}}"#, vec![cited; 2_001].join(","));
        assert_eq!(error(&many), "report has 2001 citations, more than 2000");
        let twice = cited.replace("\"quote\"", "\"quote\":\"x\",\"quote\"");
        assert_eq!(error(&format!(r#"{{"schema_version":1,"evidence":[{twice}]}}"#)), "not a report as JSON");
        assert!(
            error("---\nsources: [https://example.org]\n---\n").starts_with("not the front matter of a `dr` note: ")
        );
        let partly = "---\nsources:\n- {id: a, quote: b, collection: kb, path: c, line_start: 1, line_end: 2}\n---\n";
        assert_eq!(error(partly), "not the front matter of a `dr` note: `a` has no `content_hash`");
        let bomb = format!("---\na: &a [x,x]\nb: [{}]\n---\n", vec!["*a"; 100_000].join(","));
        assert!(error(&bomb).starts_with("not the front matter of a `dr` note: "), "{}", error(&bomb));
        assert_eq!(read("---\ntitle: x\nrun_id: 4f1c09a2b7de5533\n---\n").citations, None);
    }

    #[test]
    fn note_goes_back_into_a_knowledge_base_as_a_tagged_document() {
        let mut run = sample::run();
        run.question = "Why \"this\": a 'test' --- # or {not}?".parse().unwrap();
        let text = super::note(&run);
        let (_, rest) = text.split_once("---\n").unwrap();
        let (front, body) = rest.split_once("---\n\n").unwrap();
        let mut front: serde_json::Value = serde_saphyr::from_str(front).unwrap();
        assert_eq!(front.as_object_mut().unwrap().remove("sources").unwrap().as_array().unwrap().len(), 4);
        let expected = serde_json::json!({
            "title": run.question.as_str(),
            "question": run.question.as_str(),
            "run_id": "4f1c09a2b7de5533",
            "stop_reason": "budget_exceeded",
            "confidence": 0.62,
            "cost": "unknown",
            "tags": ["dr-report"],
        });
        assert_eq!(front, expected);
        assert_eq!(body, markdown::report(&run));
    }

    #[test]
    fn fuzzed_reports_are_read_and_corrected_or_refused() {
        crate::fuzz::fuzz("saved", &[note().into_bytes(), json().into_bytes()], |bytes| {
            let Ok(saved) = SavedReport::read(String::from_utf8_lossy(bytes).into_owned()) else { return };
            let wanted = moved(saved.citations.as_deref().unwrap_or_default());
            if let Ok(corrected) = saved.corrected(&wanted) {
                assert_eq!(read(&corrected).citations.unwrap_or_default(), wanted);
            }
        });
    }
}
