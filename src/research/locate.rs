//! Locates the passage a model names and its quote there, so that the source's own bytes are cited.

use std::ops::Range;

use super::prompt::is_defused;
use super::sentence::{Sentence, every_sentence, every_sentence_of_page};
use crate::base::line::is_printable;
use crate::source::{Passage, Place};

/// Emphasis and quotation marks, which models drop, add and swap when they copy text.
const MARKS: [char; 16] = ['*', '_', '`', '~', '"', '\'', '“', '”', '„', '‘', '’', '‚', '«', '»', '‹', '›'];

/// Emphasis marks that come in pairs.
const EMPHASIS: [char; 4] = ['*', '_', '`', '~'];

/// Longest quote that is widened to its sentences, in bytes.
const MAX_WIDENED_BYTES: usize = 600;

/// Returns the first range of `passage` that matches `quote` word for word.
///
/// White space, emphasis, quotation marks and the targets of links may differ, nothing else: one changed digit makes a
/// different claim.
pub(super) fn locate(passage: &str, quote: &str) -> Option<Range<usize>> {
    let found = find(&said(passage, &[]), &said(quote, &[]));
    let (range, links) = match found {
        Some(range) => (range, Vec::new()),
        None => {
            // Models copy the text of a link and omit its target.
            let links = links(passage);
            let quote_links = self::links(quote);
            (find(&said(passage, &links), &said(quote, &quote_links))?, links)
        }
    };
    // Half of a link would break the Markdown of the report, so a quote that touches one contains it.
    let cut = |link: &&MarkdownLink| link.whole.start < range.end && range.start < link.whole.end;
    let start = links.iter().filter(cut).map(|link| link.whole.start).min().unwrap_or(range.start);
    let end = links.iter().filter(cut).map(|link| link.whole.end).max().unwrap_or(range.end);
    Some(with_emphasis(passage, start.min(range.start)..end.max(range.end)))
}

/// Widens a range to the sentences it begins and ends in, unless they are long: half a sentence may say the opposite.
pub(super) fn whole_sentences(passage: &Passage, range: Range<usize>) -> Range<usize> {
    let sentences = sentences_at(&passage.place, &passage.text);
    if let Some(row) = row_around(&passage.text, &range) {
        return row;
    }
    let around = |at: usize| sentences.iter().find(|sentence| sentence.range.contains(&at)).map(|found| &found.range);
    let start = around(range.start).map_or(range.start, |sentence| sentence.start.min(range.start));
    let end = around(range.end.saturating_sub(1)).map_or(range.end, |sentence| sentence.end.max(range.end));
    if end - start <= MAX_WIDENED_BYTES.max(range.len()) { start..end } else { range }
}

/// Returns all sentences of a text from a place: files are Markdown, and pages are not.
pub(super) fn sentences_at(place: &Place, text: &str) -> Vec<Sentence> {
    match place {
        Place::Kb { .. } => every_sentence(text),
        Place::Web { .. } | Place::Mcp { .. } => every_sentence_of_page(text),
    }
}

/// Returns the row of a Markdown table that contains a range. A passage may begin below the header of a table, and its
/// rows then read as one sentence.
fn row_around(text: &str, range: &Range<usize>) -> Option<Range<usize>> {
    let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let row = text[start..end].trim();
    let is_row = row.starts_with('|') && row.ends_with('|') && range.end <= end && row.len() <= MAX_WIDENED_BYTES;
    let start = end - text[start..end].trim_start().len();
    is_row.then(|| start..start + row.len())
}

fn find(letters: &[(usize, char)], wanted: &[(usize, char)]) -> Option<Range<usize>> {
    if wanted.is_empty() || letters.len() < wanted.len() {
        return None;
    }
    let is_here = |at: &usize| letters[*at..].iter().zip(wanted).all(|((_, letter), (_, wanted))| letter == wanted);
    let at = (0..=letters.len() - wanted.len()).find(is_here)?;
    let (last, letter) = letters[at + wanted.len() - 1];
    Some(letters[at].0..last + letter.len_utf8())
}

/// Returns the characters to compare, each with its byte offset: white space collapsed, marks and the hidden parts of
/// links removed. Characters that a prompt does not show are removed too: see [`super::prompt::data`].
fn said(text: &str, links: &[MarkdownLink]) -> Vec<(usize, char)> {
    let mut hidden = links.iter().flat_map(|link| &link.hidden).peekable();
    let mut said: Vec<(usize, char)> = Vec::new();
    for (at, letter) in text.char_indices() {
        while hidden.next_if(|range| range.end <= at).is_some() {}
        if hidden.peek().is_some_and(|range| range.contains(&at)) || MARKS.contains(&letter) {
            continue;
        }
        if !is_printable(letter) || is_defused(letter, &text[at + letter.len_utf8()..]) {
            continue;
        }
        if !letter.is_whitespace() {
            said.push((at, letter));
        } else if said.last().is_some_and(|(_, last)| *last != ' ') {
            said.push((at, ' '));
        }
    }
    if said.last().is_some_and(|(_, last)| *last == ' ') {
        said.pop();
    }
    said
}

struct MarkdownLink {
    whole: Range<usize>,
    /// The parts hidden from a reader: brackets and target, in order.
    hidden: [Range<usize>; 2],
}

/// Returns the links of a text in order: `[text](target)`, `[text][label]`, `[[target]]` and `[[target|text]]`. A
/// link never spans lines.
fn links(text: &str) -> Vec<MarkdownLink> {
    let mut links = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find('[').map(|at| from + at) {
        let line = text[open..].lines().next().unwrap_or_default();
        match link(line) {
            Some((head, tail)) => {
                let start = if text[..open].ends_with('!') { open - 1 } else { open };
                let hidden = [start..open + head, open + tail.start..open + tail.end];
                from = open + tail.end;
                links.push(MarkdownLink { whole: start..from, hidden });
            }
            None => from = open + 1,
        }
    }
    links
}

/// Returns the length of the hidden head of a link that begins a line, and the range of its hidden tail.
fn link(line: &str) -> Option<(usize, Range<usize>)> {
    if let Some(inner) = line.strip_prefix("[[") {
        let close = inner.find("]]")?;
        let head = inner[..close].find('|').map_or(0, |bar| bar + 1);
        return Some((2 + head, 2 + close..2 + close + 2));
    }
    let close = line.find(']').filter(|close| !line[1..*close].contains('['))?;
    let (ends, rest) = match line.as_bytes().get(close + 1)? {
        b'(' => (')', &line[close + 2..]),
        b'[' => (']', &line[close + 2..]),
        _ => return None,
    };
    // The target of a link may contain brackets, as in `…/Rust_(language)`.
    let mut depth = 0;
    let end = rest.char_indices().find(|(_, letter)| match letter {
        '(' if ends == ')' => {
            depth += 1;
            false
        }
        letter if *letter == ends && depth == 0 => true,
        ')' if ends == ')' => {
            depth -= 1;
            false
        }
        _ => false,
    });
    end.map(|(end, _)| (1, close..close + 3 + end))
}

/// Widens a range over adjacent emphasis marks if that balances them; a quote with an odd `**` would garble the report.
fn with_emphasis(passage: &str, range: Range<usize>) -> Range<usize> {
    let before = passage[..range.start].trim_end_matches(EMPHASIS).len();
    let after = passage.len() - passage[range.end..].trim_start_matches(EMPHASIS).len();
    let is_whole = |range: &Range<usize>| {
        let count = |mark: char| passage[range.clone()].matches(mark).count();
        EMPHASIS.iter().all(|mark| count(*mark).is_multiple_of(2))
            && passage[range.clone()].matches("**").count().is_multiple_of(2)
    };
    [range.clone(), before..range.end, range.start..after, before..after].into_iter().find(is_whole).unwrap_or(range)
}

/// Returns the index of the passage that an id names: `p1` is the first.
pub(super) fn shown_at(id: &str) -> Option<usize> {
    id.trim().trim_matches(['[', ']']).strip_prefix('p')?.parse::<usize>().ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::prompt::data;
    use crate::research::scripted::ScriptedSource;
    use proptest::prelude::*;

    fn found<'a>(passage: &'a str, quote: &str) -> Option<&'a str> {
        locate(passage, quote).map(|range| &passage[range])
    }

    #[test]
    fn quote_is_found_whatever_marks_and_white_space_the_model_changed() {
        let passage = "Before. **Money** has a \"hard\nlimit\", says `dr`. After.";
        assert_eq!(
            found(passage, "Money has a “hard limit”, says dr."),
            Some("**Money** has a \"hard\nlimit\", says `dr`.")
        );
        assert_eq!(found(passage, "has a hard   limit"), Some("has a \"hard\nlimit"));
        assert_eq!(found(passage, " After. "), Some("After."));
    }

    #[test]
    fn quote_of_a_passage_as_a_prompt_shows_it_is_found_in_the_bytes_of_the_source() {
        let passage =
            "\u{feff}It \u{1b}[31mfailed\u{1b}[0m in soft\u{ad}ware\0 at <\u{200b}data id=\"1\"> and a\rb.\r\nEnd.";
        let shown = data("p1", passage);
        let (_, rest) = shown.split_once('\n').unwrap();
        assert_eq!(found(passage, rest.strip_suffix("\n</data>").unwrap()), Some(&passage[3..]));
        assert_eq!(found(passage, "software at ‹data id"), Some("soft\u{ad}ware\0 at <\u{200b}data id"));
        assert_eq!(found("1 < 2", "1 2"), None, "other brackets are text");
    }

    #[test]
    fn quote_with_another_word_letter_or_a_gap_is_not_found() {
        let passage = "The limit is 12 MiB for each file.";
        for quote in [
            "The limit is 13 MiB",
            "the limit",
            "The limit … each file",
            "",
            " \"* ",
            "The limit is 12 MiB for each file. And",
        ] {
            assert_eq!(found(passage, quote), None, "{quote}");
        }
    }

    #[test]
    fn quote_of_what_a_reader_sees_of_links_is_found_in_the_bytes_of_the_source() {
        let passage = "Read [the *plan*](https://example.org/a_(b)) and [[ops/backup|the backup note]], or [x][1]. ![Logo](l.png)";
        for (quote, wanted) in [
            (
                "Read the plan and the backup note",
                "Read [the *plan*](https://example.org/a_(b)) and [[ops/backup|the backup note]]",
            ),
            ("the backup note, or x.", "[[ops/backup|the backup note]], or [x][1]."),
            ("plan and the", "[the *plan*](https://example.org/a_(b)) and [[ops/backup|the backup note]]"),
            ("and [[ops/backup|the", "and [[ops/backup|the"),
        ] {
            assert_eq!(found(passage, quote), Some(wanted), "{quote}");
        }
        assert_eq!(found(passage, "Read the plans"), None);
        assert_eq!(found("a [b] (c) [d", "a b"), None, "brackets that are no link are text");
    }

    #[test]
    fn quote_is_widened_to_its_sentences_unless_they_are_long() {
        let passage = |text: &str| ScriptedSource::of(&[]).passage("a.md", "a.md#0", text, 1, 1);
        let widened = |text: &str, quote: &str| {
            let passage = passage(text);
            let range = locate(text, quote).unwrap();
            text[whole_sentences(&passage, range)].to_owned()
        };
        let text = "It opens at six. It is **not** true that it\nleaks. It closes.";
        assert_eq!(widened(text, "true that it leaks"), "It is **not** true that it\nleaks.");
        assert_eq!(widened(text, "at six. It is not"), "It opens at six. It is **not** true that it\nleaks.");
        assert_eq!(widened("| a | b c d |\n|---|---|\n| 1 | 2 3 4 |", "2 3"), "| 1 | 2 3 4 |");
        assert_eq!(widened("| 1 | 2 3 4 |\n| 5 | 6 7 8 |", "6 7"), "| 5 | 6 7 8 |", "the header is in another chunk");
        let long = format!("It {} ends here.", "goes on and ".repeat(60));
        assert_eq!(widened(&long, "ends here."), "ends here.");
    }

    proptest! {
        #[test]
        fn any_text_with_brackets_is_found_in_itself(passage in r"([a-c*\[\]()|! \n]|é){1,60}", quote in r"[a-c\[\]()| ]{1,10}") {
            let plain = |text: &str| text.chars().filter(|letter| letter.is_alphabetic()).collect::<String>();
            let whole = locate(&passage, &passage).map(|range| plain(&passage[range]));
            prop_assert!(whole.is_none_or(|whole| whole == plain(&passage)));
            if let Some(range) = locate(&passage, &quote) {
                prop_assert!(passage.get(range).is_some());
            }
        }
    }

    proptest! {
        #[test]
        fn any_range_of_a_passage_is_found_with_the_same_words(passage in "([a-z*_\" \n.]|é){1,60}", from in 0usize..60, len in 1usize..30) {
            let letters: Vec<char> = passage.chars().collect();
            let from = from.min(letters.len());
            let quote: String = letters[from..(from + len).min(letters.len())].iter().collect();
            let plain = |text: &str| text.chars().filter(|letter| !letter.is_whitespace() && !MARKS.contains(letter)).collect::<String>();
            match locate(&passage, &quote) {
                Some(range) => prop_assert_eq!(plain(&passage[range]), plain(&quote)),
                None => prop_assert!(plain(&quote).is_empty()),
            }
        }
    }
}
