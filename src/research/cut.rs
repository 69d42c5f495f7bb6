//! Truncates text to a number of tokens, at sentence boundaries where possible.

use super::evidence::EvidenceId;
use super::sentence::{is_end, is_wide_end};

/// A model's token counter.
pub(crate) type Count<'a> = &'a dyn Fn(&str) -> u64;

/// Estimates tokens without a model's counter: slightly more than any tokenizer counts for prose.
pub(crate) fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(3)
}

/// Returns the longest prefix of `text` with at most `max_tokens`.
///
/// The prefix ends at a sentence or line; if not even the first one fits, between words; if not even one word fits,
/// between characters.
pub(crate) fn cut<'a>(text: &'a str, max_tokens: u64, count: Count<'_>) -> &'a str {
    let text = text.trim_end();
    if count(text) <= max_tokens {
        return text;
    }
    let word_ends = || text.char_indices().filter(|(_, letter)| letter.is_whitespace()).map(|(at, _)| at).collect();
    let letter_ends = || text.char_indices().map(|(at, _)| at).collect();
    let by: [&dyn Fn() -> Vec<usize>; 3] = [&|| ends(text), &word_ends, &letter_ends];
    let end = by.iter().find_map(|ends| longest(text, &ends(), max_tokens, count)).unwrap_or(0);
    text[..end].trim_end()
}

/// Returns the last of the ascending `ends` at which the text still has at most `max_tokens`, or `None` if only 0 would
/// do.
fn longest(text: &str, ends: &[usize], max_tokens: u64, count: Count<'_>) -> Option<usize> {
    let fits = |end: &usize| count(text[..*end].trim_end()) <= max_tokens;
    let mut fitting = ends.partition_point(fits);
    // Token counts are not monotonic: one more character may merge two tokens into one. The binary search can therefore
    // overshoot slightly, so its result is verified.
    while fitting > 0 && !fits(&ends[fitting - 1]) {
        fitting -= 1;
    }
    ends[..fitting].last().copied().filter(|end| *end > 0)
}

/// Returns the trimmed sentences and lines of a text. Citations belong to the sentence they follow.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    let mut start = 0;
    let mut pieces = Vec::new();
    for end in ends(text) {
        pieces.push(text[start..end].trim());
        start = end;
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Returns the byte offsets at which sentences and lines end, ascending; the last is the length of the text.
fn ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    for (at, letter) in text.char_indices() {
        let (before, after) = text.split_at(at + letter.len_utf8());
        let ends_before_space = || {
            is_end(letter)
                && after.starts_with(char::is_whitespace)
                && !is_abbreviated(before)
                && !is_macro(before, after)
        };
        if letter == '\n' {
            ends.push(before.len());
        } else if is_wide_end(letter) || ends_before_space() {
            ends.push(before.len() + citations(after));
        }
    }
    ends.push(text.len());
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Returns whether the final dot belongs to an initial or a one-letter abbreviation: `J.`, `e.g.`.
fn is_abbreviated(before: &str) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let last = word.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    word.ends_with('.') && last.chars().count() == 1 && last.chars().all(char::is_alphabetic)
}

/// Returns whether an exclamation mark belongs to a name in the middle of a sentence: `join! awaits`.
fn is_macro(before: &str, after: &str) -> bool {
    before.ends_with('!') && after.trim_start_matches(' ').starts_with(char::is_lowercase)
}

/// Returns the length of the citations at the start of a text, such as `" [n2e1] [n3e1, n3e2]"`.
fn citations(text: &str) -> usize {
    let mut end = 0;
    while let Some(inner) = text[end..].trim_start_matches([' ', '\t']).strip_prefix('[') {
        let Some((ids, rest)) = inner.split_once(']') else { break };
        if !ids.split([',', ';']).all(|id| id.trim().parse::<EvidenceId>().is_ok()) {
            break;
        }
        end = text.len() - rest.len();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    #[test]
    fn text_is_cut_where_a_sentence_ends_and_keeps_its_citation() {
        let text = "The first claim. [n1e1] The second, e.g. this one, too. [n2e1, n2e2] The third";
        assert_eq!(cut(text, 5, &words), "The first claim. [n1e1]");
        assert_eq!(cut(text, 13, &words), "The first claim. [n1e1] The second, e.g. this one, too. [n2e1, n2e2]");
        assert_eq!(cut(text, 100, &words), text);
        assert_eq!(pieces(text).len(), 3);
        assert_eq!(pieces("The macro join! awaits all. Stop! Now").len(), 3);
    }

    #[test]
    fn text_without_sentences_is_cut_between_words_then_between_letters() {
        assert_eq!(cut("one two three", 2, &words), "one two");
        assert_eq!(cut("abcdef", 3, &|text| text.len() as u64), "abc");
        assert_eq!(cut("abc", 0, &|text| text.len() as u64), "");
    }

    proptest! {
        #[test]
        fn cut_text_never_has_more_tokens_than_it_may(text in "([a-z .!?\n\\[\\]]|é|。|\\PC){0,300}", most in 0u64..40) {
            let count = |text: &str| text.chars().count().div_ceil(3) as u64;
            let short = cut(&text, most, &count);
            prop_assert!(count(short) <= most);
            prop_assert!(text.starts_with(short));
        }

        #[test]
        fn pieces_hold_every_word_of_the_text(text in "([a-z .!?\n\\[\\]]|é|。){0,300}") {
            let all: String = text.split_whitespace().collect();
            let pieces: String = pieces(&text).concat().split_whitespace().collect();
            prop_assert_eq!(all, pieces);
        }
    }
}
