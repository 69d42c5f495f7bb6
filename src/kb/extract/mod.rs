//! Reads the text of PDF and HTML files, in a child process that can do nothing else.
//!
//! ```text
//! bytes ─▶ child (`dr extract-document`, under limits) ─▶ Extracted ─▶ Markdown ─▶ Document
//!            pdf: glyphs ─▶ lines ─▶ pages
//! ```
//!
//! Parsers of these formats are vulnerable to hostile files: 5 KB can make one allocate gigabytes. If a child exceeds
//! its memory or time, or crashes, its file is skipped and indexing continues. Its reply is text of a limited size.
//!
//! The text is Markdown: the title as heading of level 1 and, for a PDF, a heading `Page 7` above the text of each
//! page. This gives chunks, sections and quotes their page without any code for pages. The text is a function of the
//! bytes of the file and of [`CHUNKER_VERSION`](super::chunk::CHUNKER_VERSION), which must be increased when that
//! function changes.

mod child;
mod limits;
mod pages;
mod pdf;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use child::{Child, ChildLimits, ChildTask, LimitToBreak};
pub(crate) use child::{ChildAnswer, answers};
pub(crate) use limits::{Limited, confine};
pub(crate) use pages::page_of_heading;
pub(crate) use pdf::read as read_pdf;

use crate::base::id::as_word;
use crate::base::line::one_line;

/// A format whose text is extracted by a child. Such files are indexed only if their collection includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extractable {
    Pdf,
    /// `.html`, `.htm`, `.xhtml`
    Html,
}

/// The text is not the name of a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format (expected `pdf`, `html`, or `none`)")]
pub struct ParseIncludeError(String);

as_word!(Extractable);

impl Extractable {
    const ALL: [Self; 2] = [Self::Pdf, Self::Html];

    /// Returns the format of a file by the extension of its name.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let extension = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "pdf" => Some(Self::Pdf),
            "html" | "htm" | "xhtml" => Some(Self::Html),
            _ => None,
        }
    }

    /// Returns the size of the largest file that is read, in bytes.
    pub(crate) fn max_bytes(self) -> u64 {
        match self {
            // Most of a large paper is figures, which are not read.
            Self::Pdf => 64 * 1024 * 1024,
            Self::Html => 16 * 1024 * 1024,
        }
    }
}

impl FromStr for Extractable {
    type Err = ParseIncludeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let format = Self::ALL.into_iter().find(|format| text.eq_ignore_ascii_case(&format.to_string()));
        format.ok_or_else(|| ParseIncludeError(text.to_owned()))
    }
}

/// The formats that a collection includes besides Markdown and plain text. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Include(BTreeSet<Extractable>);

impl Include {
    pub(crate) fn all() -> Self {
        Self(Extractable::ALL.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, format: Extractable) -> bool {
        self.0.contains(&format)
    }

    /// Returns the union of both.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }
}

impl FromStr for Include {
    type Err = ParseIncludeError;

    /// Parses names separated by commas, or `none`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().eq_ignore_ascii_case("none") {
            return Ok(Self::default());
        }
        text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Include {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.0.iter().map(Extractable::to_string).collect::<Vec<_>>().join(","))
    }
}

/// The text of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extracted {
    /// Title on one line; empty if the file has none.
    pub title: String,
    /// Day of publication, `YYYY-MM-DD`.
    pub published: Option<String>,
    /// Markdown. Lines end at `\n` and have no white space at their end.
    pub text: String,
}

impl Extracted {
    /// Returns the text below its title.
    pub(crate) fn into_markdown(self) -> String {
        let title = one_line(&self.title);
        let has_heading = self.text.lines().find(|line| line.starts_with("# ")).is_some_and(|line| line[2..] == title);
        let text = if title.is_empty() || has_heading { self.text } else { format!("# {title}\n\n{}", self.text) };
        let text = canonical(text.trim_start_matches('\u{feff}'));
        // A page may begin with such a line, which would be read as front matter.
        if text.starts_with("---") || text.starts_with("+++") { format!("\\{text}") } else { text }
    }
}

/// Removes white space at ends of lines, repeated blank lines, and other white space than spaces. The content of a
/// gap between two chunks then follows from its length and the line numbers, which [`as_extracted`] relies on.
fn canonical(text: &str) -> String {
    let (mut canonical, mut blank) = (String::with_capacity(text.len()), true);
    for line in text.lines().map(str::trim_end) {
        if !(line.is_empty() && blank) {
            canonical.extend(line.chars().map(|letter| if letter.is_whitespace() { ' ' } else { letter }));
            canonical.push('\n');
        }
        blank = line.is_empty();
    }
    canonical.truncate(canonical.trim_end().len());
    canonical.push('\n');
    canonical
}

/// A part of a text: its bytes, lines and content.
pub(crate) struct Part<'a> {
    pub(crate) byte_start: u64,
    /// From 1.
    pub(crate) line_start: u32,
    pub(crate) line_end: u32,
    pub(crate) text: &'a str,
}

/// Reassembles a text from its chunks, in order. Chunks omit only white space.
pub(crate) fn as_extracted<'a>(parts: impl Iterator<Item = Part<'a>>) -> String {
    let (mut text, mut line) = (String::new(), 1);
    for part in parts {
        let gap = usize::try_from(part.byte_start).unwrap_or(usize::MAX).saturating_sub(text.len());
        // A gap is small: indexes are not hostile, but they can be damaged.
        let feeds = (part.line_start.saturating_sub(line) as usize).min(gap);
        text.extend(std::iter::repeat_n('\n', feeds));
        text.extend(std::iter::repeat_n(' ', (gap - feeds).min(1 << 16)));
        text.push_str(part.text);
        line = part.line_end;
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Returns the page that a line of the text of a PDF is on.
pub(crate) fn page_at(text: &str, line: u32) -> Option<u32> {
    let headings = text.lines().take(line as usize).filter_map(page_of_line);
    headings.last()
}

/// Returns the first and last line of a page in the text of a PDF.
pub(crate) fn lines_of_page(text: &str, page: u32) -> Option<(u32, u32)> {
    let mut headings = text.lines().zip(1..).filter_map(|(line, number)| Some((page_of_line(line)?, number)));
    let (_, first) = headings.by_ref().find(|(found, _)| *found == page)?;
    let end = headings.next().map_or_else(|| text.lines().count(), |(_, next): (u32, u32)| next as usize - 1);
    let blank = text.lines().take(end).collect::<Vec<_>>().into_iter().rev().take_while(|line| line.is_empty()).count();
    Some((first, u32::try_from(end - blank).unwrap_or(u32::MAX)))
}

fn page_of_line(line: &str) -> Option<u32> {
    page_of_heading(line.strip_prefix("## ")?)
}

/// The reason why a file has no text, as its parser states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("encrypted with a password")]
    Encrypted,
    #[error("no text on its pages, which are probably scanned (pages: {pages})")]
    Scanned { pages: usize },
    #[error("text cannot be extracted: its fonts have no character map")]
    Unmapped,
    #[error("no text")]
    Empty,
    #[error("damaged or not of this format")]
    Damaged,
    #[error("text is longer than {limit} bytes")]
    TooLong { limit: usize },
}

/// The text of a file could not be extracted.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    #[error(transparent)]
    Refused(Refusal),
    #[error("reading it needs more than {mebibytes} MB of memory")]
    Memory { mebibytes: u64 },
    #[error("reading it takes more than {seconds} s")]
    TooSlow { seconds: u64 },
    #[error("its text is longer than {bytes} bytes")]
    Flood { bytes: u64 },
    #[error("its parser crashed ({how})")]
    Crashed { how: String },
    #[error("failed to start the process that reads it")]
    Start(#[source] std::io::Error),
}

impl ExtractError {
    /// Returns whether another attempt may succeed with the same file.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            // The machine may have been busy.
            Self::TooSlow { .. } | Self::Start(_) => true,
            Self::Refused(_) | Self::Memory { .. } | Self::Flood { .. } | Self::Crashed { .. } => false,
        }
    }
}

/// Extracts the text of a file in a child process. Blocks; at most one child per hardware thread runs at a time.
///
/// # Errors
///
/// Returns the reason why no text could be extracted.
pub(crate) fn extract(format: Extractable, bytes: &[u8]) -> Result<Extracted, ExtractError> {
    Child::of_this_program().map_err(ExtractError::Start)?.run(ChildTask::Read(format), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named_as_they_are_parsed() {
        for text in ["pdf", "html", "pdf,html", "none"] {
            assert_eq!(text.parse::<Include>().unwrap().to_string(), text);
        }
        assert_eq!("HTML, pdf".parse::<Include>().unwrap(), Include::all());
        let error = "pdf,docx".parse::<Include>().unwrap_err();
        assert_eq!(error.to_string(), "`docx` is not a format (expected `pdf`, `html`, or `none`)");
        assert_eq!(Extractable::of("a/b.PDF"), Some(Extractable::Pdf));
        assert_eq!((Extractable::of("pdf"), Extractable::of("a.md")), (None, None));
    }

    #[test]
    fn pages_are_found_by_their_headings() {
        let text = "# A\n\n## Page 1\n\nOne.\n\n## Page 3\n\nThree.\n";
        let pages: Vec<_> = (1..=9).map(|line| page_at(text, line).unwrap_or(0)).collect();
        assert_eq!(pages, [0, 0, 1, 1, 1, 1, 3, 3, 3]);
        assert_eq!([1, 2, 3].map(|page| lines_of_page(text, page)), [Some((3, 5)), None, Some((7, 9))]);
    }

    #[test]
    fn title_is_the_first_heading_once() {
        let of = |title: &str, text: &str| Extracted { title: title.into(), text: text.into(), ..Extracted::default() };
        assert_eq!(of("A", "B  \n\n\n\nC").into_markdown(), "# A\n\nB\n\nC\n");
        assert_eq!(of("A", "# A\nB").into_markdown(), "# A\nB\n");
        assert_eq!(of("", "\n\nB\n").into_markdown(), "B\n");
        assert_eq!(of("", "\u{feff}---\ntags: x\n---\nB").into_markdown(), "\\---\ntags: x\n---\nB\n");
    }
}
