//! Cuts a [`Snippet`] out of a chunk: the part with the most distinct words of the query, with their positions.

use std::ops::Range;

use serde::Serialize;

use crate::base::line::{bulleted_item, is_directive, is_invisible};
use crate::base::readable::{self, after_task_box};
use crate::base::word::{Word, WordSplitter};

/// Approximate length of a snippet in bytes, three lines of a terminal.
const SNIPPET_BYTES: usize = 240;

/// Part of a chunk on one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The text with single spaces, and `…` at an end that was cut.
    pub(crate) text: String,
    /// Byte ranges of the query's words in the text.
    pub(crate) marks: Vec<Range<usize>>,
}

impl Snippet {
    /// Returns the text in parts, each with whether it is a word of the query.
    pub(crate) fn parts(&self) -> Vec<(&str, bool)> {
        let (mut parts, mut at) = (Vec::new(), 0);
        for mark in &self.marks {
            parts.extend([(&self.text[at..mark.start], false), (&self.text[mark.clone()], true)]);
            at = mark.end;
        }
        parts.push((&self.text[at..], false));
        parts.retain(|(text, _)| !text.is_empty());
        parts
    }

    /// Cuts the part of `text` with the most distinct `stems`.
    pub(crate) fn cut(text: &str, stems: &[String], splitter: &WordSplitter) -> Self {
        let text = &readable(text);
        let words = splitter.words(text);
        let matches: Vec<&Word> = words.iter().filter(|word| stems.contains(&word.stem)).collect();
        let window = window(text, &matches);
        let mut snippet = Self { text: String::new(), marks: Vec::new() };
        if !text[..window.start].trim().is_empty() {
            snippet.text.push('…');
        }
        let mut at = window.start;
        for word in matches.iter().filter(|word| window.start <= word.range.start && word.range.end <= window.end) {
            snippet.push(&text[at..word.range.start]);
            let start = snippet.text.len();
            snippet.push(&text[word.range.clone()]);
            snippet.marks.push(start..snippet.text.len());
            at = word.range.end;
        }
        snippet.push(&text[at..window.end]);
        snippet.text.truncate(snippet.text.trim_end().len());
        if !text[window.end..].trim().is_empty() {
            snippet.text.push('…');
        }
        snippet
    }

    /// Appends text, collapsing each run of white space and control characters into one space.
    fn push(&mut self, text: &str) {
        for letter in text.chars() {
            if letter.is_whitespace() || letter.is_control() {
                if !self.text.is_empty() && !self.text.ends_with([' ', '…']) {
                    self.text.push(' ');
                }
            } else if !is_invisible(letter) {
                self.text.push(letter);
            }
        }
    }
}

/// Removes markup that readers of a passage do not see: also heading and quote markers, fences, table delimiters, and
/// definitions of links. Headings are shown beside a passage, so they are left out unless it has nothing else.
fn readable(text: &str) -> String {
    let is_fence = |line: &str| line.starts_with("```") || line.starts_with("~~~");
    let is_rule = |line: &str| !line.is_empty() && line.chars().all(|letter| "|-: =*_".contains(letter));
    let is_definition = |line: &str| line.starts_with('[') && line.contains("]: ");
    let text = readable::readable(text);
    let is_seen =
        |line: &&str| !is_fence(line) && !is_rule(line) && !is_definition(line) && !is_directive(line.trim_end());
    let lines: Vec<_> = text.lines().map(|line| line.trim_start_matches([' ', '\t', '>'])).filter(is_seen).collect();
    let is_heading = |line: &str| line.starts_with('#');
    let is_bare = lines.iter().all(|line| is_heading(line) || line.is_empty());
    let lines = lines.into_iter().filter(|line| is_bare || !is_heading(line)).map(|line| {
        // The number of an item is of little use here: some authors number all of them 1.
        let unnumbered = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let number = if unnumbered.len() < line.len() { unnumbered.strip_prefix(". ") } else { None };
        let item = bulleted_item(line).or(number);
        match (line.strip_prefix('|'), item) {
            (Some(row), _) => row.trim_end().trim_end_matches('|').replace('|', "–"),
            (None, Some(item)) => format!("• {}", after_task_box(item).unwrap_or(item)),
            (None, None) => line.trim_start_matches(['#', ' ']).to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the range with the most distinct query words, widened to whole words.
fn window(text: &str, matches: &[&Word]) -> Range<usize> {
    let mut best = (0, 0);
    let mut end = 0;
    for start in 0..matches.len() {
        end = end.max(start);
        let from = matches[start].range.start;
        while end < matches.len() && matches[end].range.end - from <= SNIPPET_BYTES {
            end += 1;
        }
        let mut stems: Vec<_> = matches[start..end].iter().map(|word| &word.stem).collect();
        stems.sort_unstable();
        stems.dedup();
        if stems.len() > best.0 {
            best = (stems.len(), from);
        }
    }
    // Some text before the first match gives it context.
    let from = if text.len() <= SNIPPET_BYTES { 0 } else { best.1.saturating_sub(SNIPPET_BYTES / 6) };
    let start = word_boundary(text, from.min(best.1), best.1);
    let end = text.floor_char_boundary((start + SNIPPET_BYTES).min(text.len()));
    let end = if end == text.len() {
        end
    } else {
        text[..end].rfind(char::is_whitespace).filter(|at| *at > start).unwrap_or(end)
    };
    start..end
}

/// Returns the start of the first whole word at or after `from`, at most `limit`.
fn word_boundary(text: &str, from: usize, limit: usize) -> usize {
    if from == 0 {
        return 0;
    }
    let from = text.ceil_char_boundary(from);
    if from >= limit {
        return limit;
    }
    let space = text[from..limit].char_indices().find(|(_, letter)| letter.is_whitespace());
    space.map_or(limit, |(at, letter)| from + at + letter.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str, query: &str) -> Snippet {
        let splitter = WordSplitter::default();
        Snippet::cut(text, &splitter.key_stems(query), &splitter)
    }

    #[test]
    fn items_of_a_list_have_the_same_mark_and_no_number() {
        assert_eq!(cut("1. Open it.\n1. Close it.\n- Wait.", "open").text, "• Open it. • Close it. • Wait.");
    }

    #[test]
    fn snippet_marks_the_words_as_they_stand() {
        let snippet = cut("Budgets are\n\n  reserved before a call.", "budget reserve");
        assert_eq!(snippet.text, "Budgets are reserved before a call.");
        let marked: Vec<_> = snippet.marks.iter().map(|mark| &snippet.text[mark.clone()]).collect();
        assert_eq!(marked, ["Budgets", "reserved"]);
    }

    #[test]
    fn snippet_is_read_without_the_marks_that_shape_a_passage() {
        let snippet = cut(
            "## Parts\n\n| part | use |\n|---|---|\n| probe | [moisture](a.md) |\n\n> ```sh\n> dr index\n> {{#include a.rs}}\n> \
             ```\n<Listing number=\"4\">\n\n- [ ] a probe\n\n[probe]: https://a.b\n",
            "probe",
        );
        assert_eq!(snippet.text, "part – use probe – moisture dr index • a probe");
        assert_eq!(cut("## Parts of it\n", "parts").text, "Parts of it", "it has nothing else");
    }

    #[test]
    fn snippet_is_cut_from_where_the_words_are() {
        let text = format!("{} the writer lock is held {}", "filler word ".repeat(60), "more filler ".repeat(60));
        let snippet = cut(&text, "writer lock");
        assert!(snippet.text.starts_with('…') && snippet.text.ends_with('…'), "{}", snippet.text);
        assert!(snippet.text.contains("writer lock is held"), "{}", snippet.text);
        assert!(snippet.text.len() < SNIPPET_BYTES + 10);
    }

    proptest! {
        #[test]
        fn snippet_of_any_text_is_one_line_with_marks_on_letters(text in ".{0,600}", query in "\\PC{0,20}") {
            let snippet = cut(&text, &query);
            prop_assert!(!snippet.text.contains('\n'));
            for mark in &snippet.marks {
                prop_assert!(snippet.text.get(mark.clone()).is_some_and(|marked| !marked.is_empty()));
            }
        }
    }
}
