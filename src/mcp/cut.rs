//! Limits the length of results: a model reads them, and its context is small and dear.

use crate::base::line::shortened;
use crate::base::token::{CountTokens, Encoding, TokenCounter};

/// Tokens of the longest text in a result. Clients warn from 10,000 on.
const MAX_TEXT_TOKENS: usize = 8_000;

/// The rest of a text that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Lines before it, at least one.
    pub(super) after: usize,
    /// Whether the last of those is cut too: alone, it is longer than a result may be.
    pub(super) is_line_cut: bool,
}

/// Cuts a text to the length of a result.
pub(super) fn cut(text: &str) -> (&str, Option<Rest>) {
    let kept = beginning(text, MAX_TEXT_TOKENS);
    let rest = Rest { after: kept.lines().count(), is_line_cut: !kept.ends_with('\n') };
    (kept, (kept.len() < text.len()).then_some(rest))
}

/// Returns the longest beginning of `text` that has at most `most` tokens and ends with a line. If not even its first
/// line fits, that is cut.
fn beginning(text: &str, most: usize) -> &str {
    // No token is shorter than a byte, so most texts need not be counted.
    if text.len() <= most {
        return text;
    }
    let counter = TokenCounter::of(Encoding::O200k);
    let (mut end, mut left) = (0, most);
    for line in text.split_inclusive('\n') {
        // Counting a line of megabytes takes long, and one of this length does not fit.
        let is_too_long = line.len() > most * LONGEST_TOKEN;
        let tokens = if is_too_long { usize::MAX } else { counter.count(line) };
        if tokens > left {
            break;
        }
        (end, left) = (end + line.len(), left - tokens);
    }
    // As many bytes as tokens are allowed, which are never more tokens.
    if end == 0 { &text[..text.floor_char_boundary(most)] } else { &text[..end] }
}

/// Returns a title with the headings below it, on one line.
pub(super) fn heading_line(title: &str, headings: &[String]) -> String {
    let headings = headings.iter().map(String::as_str).filter(|heading| *heading != title);
    shortened(&std::iter::once(title).chain(headings).collect::<Vec<_>>().join(" › "))
}

/// Bytes of the longest token of the encoding: 128 spaces.
const LONGEST_TOKEN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_fits_and_ends_with_a_line() {
        let text = "one two three\n".repeat(1_000);
        let cut = beginning(&text, 400);
        assert!(TokenCounter::of(Encoding::O200k).count(cut) <= 400);
        assert!(cut.len() > 1_000 && cut.ends_with("three\n"), "{}", cut.len());
        assert_eq!(beginning("short", 400), "short");
        assert_eq!(beginning(&text, 10_000), text, "it has more bytes than that, but fewer tokens");
    }

    #[test]
    fn endless_line_is_cut_between_letters() {
        let line = "é".repeat(5_000_000);
        let cut = beginning(&line, 401);
        assert_eq!(cut.len(), 400);
    }
}
