//! Locates a model's quote in the passage it names, so that the source's own bytes are cited.

use std::ops::Range;

/// Emphasis and quotation marks, which models drop, add and swap when they copy text.
const MARKS: [char; 16] = ['*', '_', '`', '~', '"', '\'', '“', '”', '„', '‘', '’', '‚', '«', '»', '‹', '›'];

/// Emphasis marks that come in pairs.
const EMPHASIS: [char; 4] = ['*', '_', '`', '~'];

/// Returns the first range of `passage` that matches `quote` word for word.
///
/// White space, emphasis and quotation marks may differ, nothing else: one changed digit makes a different claim.
pub(super) fn locate(passage: &str, quote: &str) -> Option<Range<usize>> {
    let wanted: Vec<char> = said(quote).into_iter().map(|(_, letter)| letter).collect();
    let letters = said(passage);
    if wanted.is_empty() || letters.len() < wanted.len() {
        return None;
    }
    let starts = 0..=letters.len() - wanted.len();
    let is_here = |at: &usize| letters[*at..].iter().zip(&wanted).all(|((_, letter), wanted)| letter == wanted);
    let at = starts.into_iter().find(is_here)?;
    let (last, letter) = letters[at + wanted.len() - 1];
    Some(with_emphasis(passage, letters[at].0..last + letter.len_utf8()))
}

/// Returns the characters to compare, each with its byte offset: white space collapsed, marks removed.
fn said(text: &str) -> Vec<(usize, char)> {
    let mut said: Vec<(usize, char)> = Vec::new();
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() {
            if said.last().is_some_and(|(_, last)| *last != ' ') {
                said.push((at, ' '));
            }
        } else if !MARKS.contains(&letter) {
            said.push((at, letter));
        }
    }
    if said.last().is_some_and(|(_, last)| *last == ' ') {
        said.pop();
    }
    said
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

#[cfg(test)]
mod tests {
    use super::*;
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
