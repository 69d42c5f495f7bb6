//! The structure of a document: its other names, its headings, and its links to notes as they are written.
//!
//! A link is stored without the note it leads to, because notes come and go while the linking file stays as it is:
//! [`super::links`] resolves links when they are read.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use pulldown_cmark::{Event, LinkType, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::chunk::headings;
use super::document::{Document, extension, markdown_events};
use super::extract::Extractable;

/// Maximum number of links and headings stored per document. Only generated files have more.
const MAX_LINKS: usize = 10_000;
const MAX_HEADINGS: usize = 2_000;

/// Longest target that is stored, in bytes; file systems do not allow longer paths.
const MAX_TARGET_BYTES: usize = 4_096;

/// Extensions of relative links that can lead to a note. Pages of a book are linked by their published names.
const NOTE_EXTENSIONS: [&str; 6] = ["md", "markdown", "mdx", "txt", "html", "htm"];

/// Extensions of attachments. A wikilink often leaves `.md` out, so any other end of a name belongs to the name.
const ATTACHMENT_EXTENSIONS: [&str; 26] = [
    "3gp", "avif", "base", "bmp", "canvas", "csv", "flac", "gif", "jpeg", "jpg", "json", "m4a", "mkv", "mov", "mp3",
    "mp4", "ogg", "ogv", "pdf", "png", "svg", "wav", "webm", "webp", "xlsx", "zip",
];

/// The aliases, headings and links of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Structure {
    /// Alternative titles from the front matter.
    pub(crate) aliases: Vec<String>,
    pub(crate) headings: Vec<Heading>,
    pub(crate) links: Vec<Link>,
}

/// A heading that begins a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Heading {
    /// From 1, in the file as stored.
    pub(crate) line: u32,
    /// 1 to 6.
    pub(crate) level: u8,
    /// The text without markup.
    pub(crate) text: String,
}

/// A link to a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// From 1, in the file as stored.
    pub(crate) line: u32,
    pub(crate) kind: LinkKind,
    /// The path or name of the note; of a path, the text with percent-encoding undone.
    pub(crate) target: String,
    /// The heading or block after `#`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fragment: Option<String>,
}

/// How a link is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LinkKind {
    /// `[text](../note.md)`, or by reference. Resolved as a path.
    Path,
    /// `[[Note]]`. Resolved as a name.
    Wikilink,
    /// `![[Note]]`. Resolved as a name.
    Embed,
}

impl Link {
    /// Returns the link as it is written, without the text shown for it.
    pub(crate) fn written(&self) -> String {
        let fragment = self.fragment.as_ref().map(|fragment| format!("#{fragment}")).unwrap_or_default();
        match self.kind {
            LinkKind::Path => format!("{}{fragment}", self.target),
            LinkKind::Wikilink => format!("[[{}{fragment}]]", self.target),
            LinkKind::Embed => format!("![[{}{fragment}]]", self.target),
        }
    }
}

impl Structure {
    /// Reads the structure of a document. Plain text has neither headings nor links.
    pub(crate) fn of(document: &Document) -> Self {
        let mut structure = Self { aliases: document.aliases.clone(), ..Self::default() };
        if document.is_plain_text() {
            return structure;
        }
        let mut line = LineCount::new(&document.text);
        let found = headings(document).filter(|(_, _, text)| !text.is_empty()).take(MAX_HEADINGS);
        structure.headings = found.map(|(start, level, text)| Heading { line: line.at(start), level, text }).collect();
        // `x[[i]]` in a paper is not a link.
        if Extractable::of(&document.path).is_some() {
            return structure;
        }
        // A new counter, since links start from the top again.
        let mut line = LineCount::new(&document.text);
        let links = markdown_events(&document.text[document.body.clone()]).filter_map(|(event, range)| {
            let (kind, target, fragment) = link(&event)?;
            Some(Link { line: line.at(document.body.start + range.start), kind, target, fragment })
        });
        structure.links = links.take(MAX_LINKS).collect();
        structure
    }
}

/// Returns kind, target and fragment of a link that begins with an event, if it can lead to another note.
fn link(event: &Event<'_>) -> Option<(LinkKind, String, Option<String>)> {
    let (kind, address) = match event {
        Event::Start(Tag::Link { link_type: LinkType::WikiLink { .. }, dest_url, .. }) => {
            (LinkKind::Wikilink, dest_url)
        }
        Event::Start(Tag::Image { link_type: LinkType::WikiLink { .. }, dest_url, .. }) => (LinkKind::Embed, dest_url),
        Event::Start(Tag::Link { link_type: LinkType::Email, .. }) => return None,
        Event::Start(Tag::Link { dest_url, .. }) => (LinkKind::Path, dest_url),
        _ => return None,
    };
    if address.len() > MAX_TARGET_BYTES {
        return None;
    }
    let (target, fragment) = match address.split_once('#') {
        Some((target, fragment)) => (target, Some(fragment)),
        None => (&**address, None),
    };
    let (target, fragment) = match kind {
        LinkKind::Path => (path(target)?, fragment.map(decoded)),
        // In a table, the bar before the shown text is escaped.
        LinkKind::Wikilink | LinkKind::Embed => {
            (name(target.trim_end_matches('\\'))?, fragment.map(|fragment| fragment.trim_end_matches('\\').to_owned()))
        }
    };
    Some((kind, target, fragment.filter(|fragment| !fragment.is_empty())))
}

/// Returns the path of a link, unless it is an address, a template, an attachment or a place in the same document.
fn path(target: &str) -> Option<String> {
    let target = target.split('?').next().unwrap_or_default();
    let is_template = target.contains("{{") || target.contains("{%");
    if target.is_empty() || target.starts_with("//") || has_scheme(target) || is_template {
        return None;
    }
    // Last, so that an encoded `#` or `?` stays part of the path.
    let target = decoded(target);
    let is_note = match extension(&target) {
        // `release-1.2` has no extension.
        Some(extension) if extension.bytes().any(|byte| byte.is_ascii_alphabetic()) => {
            is_any(extension, &NOTE_EXTENSIONS)
        }
        _ => true,
    };
    is_note.then_some(target)
}

/// Returns the name in a wikilink, unless it is an attachment or a place in the same document.
fn name(target: &str) -> Option<String> {
    let target = target.trim();
    let is_attachment = extension(target).is_some_and(|extension| is_any(extension, &ATTACHMENT_EXTENSIONS));
    // A name may still be an address: `[[https://example.org]]`.
    (!target.is_empty() && !is_attachment && !target.contains("://")).then(|| target.to_owned())
}

/// Returns whether an address begins with a scheme, such as `https:` or `mailto:`.
fn has_scheme(address: &str) -> bool {
    let Some((scheme, _)) = address.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn is_any(extension: &str, known: &[&str]) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Cow::into_owned)
}

/// Counts lines up to offsets that arrive in order. Visits each byte once.
struct LineCount<'a> {
    text: &'a str,
    seen: usize,
    line: u32,
}

impl<'a> LineCount<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, seen: 0, line: 1 }
    }

    /// Returns the line of a byte, from 1.
    fn at(&mut self, offset: usize) -> u32 {
        if let Some(unseen) = self.text.get(self.seen..offset) {
            let lines = unseen.matches('\n').count();
            self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
            self.seen = offset;
        }
        self.line
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(text: &str) -> Structure {
        Structure::of(&Document::parse("notes/file.md", text.as_bytes().to_vec()).unwrap())
    }

    /// Returns the links of a text as `line kind target#fragment`.
    fn links(text: &str) -> Vec<String> {
        let shown = |link: &Link| {
            let fragment = link.fragment.as_ref().map(|fragment| format!("#{fragment}")).unwrap_or_default();
            format!("{} {:?} {}{fragment}", link.line, link.kind, link.target)
        };
        structure(text).links.iter().map(shown).collect()
    }

    #[test]
    fn each_kind_of_link_is_read_with_its_line() {
        let text = "---\ntitle: x\n---\n# Links\n\nSee [one](../a%20b.md#the-end), [two][ref] and [three].\n\n\
            - [[Note]] and [[folder/Note|shown]]\n- [[Note#A heading|shown]]\n- ![[Embedded]]\n\n\
            [ref]: ./by-reference.md \"title\"\n[three]: short\n";
        assert_eq!(
            links(text),
            [
                "6 Path ../a b.md#the-end",
                "6 Path ./by-reference.md",
                "6 Path short",
                "8 Wikilink Note",
                "8 Wikilink folder/Note",
                "9 Wikilink Note#A heading",
                "10 Embed Embedded",
            ]
        );
    }

    #[test]
    fn what_leads_to_no_note_is_left_out() {
        for text in [
            "[a](https://example.org/a.md) <https://example.org> [m](mailto:a@b.c) <a@b.c> [t](tel:+1)",
            "[a](//example.org/a.md) [[https://example.org]]",
            "![a](a.png) ![a](a.md) ![[a.png]] ![[a.PDF|300]] [[a.mp4]]",
            "[a](a.png) [a](../src/main.rs) [a](data.csv#row=3)",
            "[a](#section) [[#Section]] [a]() [[ ]]",
            "[a]({{site.url}}/a.md) [no reference] [no][reference]",
        ] {
            assert_eq!(links(text), [""; 0], "{text}");
        }
        assert_eq!(Structure::of(&Document::parse("a.txt", b"# A\n[[b]]".to_vec()).unwrap()), Structure::default());
        let paper = Structure::of(&Document::parse("a.pdf", b"## Page 1\n\nx[[b]]".to_vec()).unwrap());
        assert_eq!((paper.headings.len(), paper.links.len()), (1, 0));
    }

    #[test]
    fn code_has_no_links() {
        let text = "`[a](a.md)` ``[[b]]``\n\n```md\n[c](c.md) [[d]]\n```\n\n    [e](e.md)\n\n<!-- [f](f.md) -->\n\\[g](g.md)\n";
        assert_eq!(links(text), [""; 0]);
    }

    #[test]
    fn brackets_inside_a_link_belong_to_its_text() {
        assert_eq!(links("[a [b] `]` c](a(1).md)"), ["1 Path a(1).md"]);
        assert_eq!(links("[![badge](b.svg)](a.md)"), ["1 Path a.md"]);
        assert_eq!(links("[[a]](b.md)")[..1], ["1 Wikilink a"]);
    }

    #[test]
    fn link_in_a_table_ends_at_its_escaped_bar() {
        assert_eq!(
            links("| a | b |\n|---|---|\n| [[Note\\|shown]] | [x](y.md) |\n"),
            ["3 Wikilink Note", "3 Path y.md"]
        );
    }

    #[test]
    fn dot_in_a_name_is_no_extension() {
        assert_eq!(links("[a](release-1.2) [[Node.js]] [[v1.2]] [a](A.MD)").len(), 4);
    }

    #[test]
    fn query_is_no_part_of_a_path() {
        assert_eq!(links("[a](a.md?plain=1#L3) [b](b%3F.md)"), ["1 Path a.md#L3", "1 Path b?.md"]);
    }

    #[test]
    fn headings_have_their_level_and_line() {
        let found =
            structure("\u{feff}---\r\na: b\r\n---\r\n# A *fine* one\r\n\r\n> # quoted\r\n\r\nSecond\r\n---\r\n#\r\n");
        let shown: Vec<_> =
            found.headings.iter().map(|heading| (heading.line, heading.level, heading.text.as_str())).collect();
        assert_eq!(shown, [(4, 1, "A fine one"), (8, 2, "Second")]);
    }

    #[test]
    fn structure_survives_its_own_storage() {
        let found = structure("---\naliases: [A, B]\n---\n# One\n\n[[x#y]] [z](z.md)\n");
        assert_eq!(found.aliases, ["A", "B"]);
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Structure>(&json).unwrap(), found);
    }

    #[test]
    fn endless_links_are_cut_off() {
        assert_eq!(structure(&"[[a]] ".repeat(MAX_LINKS + 1)).links.len(), MAX_LINKS);
        assert_eq!(structure(&format!("[a]({})", "a".repeat(5_000))).links.len(), 0);
    }

    proptest! {
        #[test]
        fn any_markdown_has_links_on_its_own_lines(
            parts in prop::collection::vec(
                "\\[|\\]|\\(|\\)|!|\\||#|`|```\n|\\\\|\n|\r\n|\\[\\[|\\]\\]|<|>|%[0-9a-f%]{0,2}|/|\\.\\.|\\.md|:|\\?|- |> |é|[a-z ]{1,3}",
                0..60,
            ),
        ) {
            let text = parts.concat();
            let lines = text.split('\n').count();
            for link in structure(&text).links {
                prop_assert!((1..=lines).contains(&(link.line as usize)));
                prop_assert!(!link.target.is_empty());
                let line = text.split('\n').nth(link.line as usize - 1).unwrap();
                prop_assert!(line.contains(['[', '<']), "{text:?} {link:?}");
            }
        }
    }
}
