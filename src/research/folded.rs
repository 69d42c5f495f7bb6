//! Locates a quote in a text that may have changed since it was quoted.
//!
//! A quote is found if its words occur as whole words. Line breaks and spaces may differ, because paragraphs are
//! rewrapped and a checkout may change line endings; everything else must match. A quote that ends in `10` is not
//! found in `100`, `10.5` or `10,000`.

const BOM: char = '\u{feff}';

/// Lines of a text, from 1, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// A text in which quotes are looked up: white space is folded, and the line of each position is known.
pub(crate) struct FoldedText {
    folded: String,
    /// Where each line begins in `folded`. Empty lines share their position with the next one.
    line_starts: Vec<usize>,
}

impl FoldedText {
    pub(crate) fn new(text: &str) -> Self {
        let mut folded = String::with_capacity(text.len());
        let mut line_starts = vec![0];
        for letter in text.chars() {
            push_folded(&mut folded, letter);
            if letter == '\n' {
                line_starts.push(folded.len());
            }
        }
        Self { folded, line_starts }
    }

    /// Returns the lines of a quote: within `cited` if it occurs there, else nearest to their first line. `None` if
    /// the text does not contain it.
    pub(crate) fn find(&self, quote: &str, cited: Lines) -> Option<Lines> {
        let mut wanted = String::with_capacity(quote.len());
        quote.chars().for_each(|letter| push_folded(&mut wanted, letter));
        let wanted = wanted.trim_end();
        if wanted.is_empty() {
            return None;
        }
        // Only the nearest match on either side is examined: a short quote may occur in every line.
        let text = &self.folded;
        let from = usize::try_from(cited.first.max(1) - 1).unwrap_or(usize::MAX);
        let from = self.line_starts.get(from).copied().unwrap_or(text.len());
        let is_found = |start: &usize| is_whole(text, *start, start + wanted.len());
        let after = text[from..].match_indices(wanted).map(|(at, _)| from + at).find(is_found);
        // Matches that begin before the cited line, wherever they end.
        let mut end = text.len().min(from + wanted.len() - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = text[..end].rmatch_indices(wanted).map(|(at, _)| at).find(is_found);
        let lines = |start: usize| Lines { first: self.line(start), last: self.line(start + wanted.len() - 1) };
        before.into_iter().chain(after).map(lines).min_by_key(|found| {
            let is_elsewhere = found.first < cited.first || cited.last < found.last;
            (is_elsewhere, found.first.abs_diff(cited.first))
        })
    }

    fn line(&self, at: usize) -> u32 {
        u32::try_from(self.line_starts.partition_point(|start| *start <= at)).unwrap_or(u32::MAX)
    }
}

/// Appends a character, or one space for a run of white space. Byte order marks are left out.
fn push_folded(folded: &mut String, letter: char) {
    if !letter.is_whitespace() {
        if letter != BOM {
            folded.push(letter);
        }
    } else if !folded.is_empty() && !folded.ends_with(' ') {
        folded.push(' ');
    }
}

/// Returns whether a range neither begins nor ends inside a word or a number.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    !is_inside_word(text, start) && !is_inside_word(text, end)
}

fn is_inside_word(text: &str, at: usize) -> bool {
    let (mut before, mut after) = (text[..at].chars().rev(), text[at..].chars());
    let (Some(left), Some(right)) = (before.next(), after.next()) else { return false };
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let is_point = |letter: char| matches!(letter, '.' | ',');
    (is_of_spaced_word(left) && is_of_spaced_word(right))
        || (is_digit(Some(left)) && is_point(right) && is_digit(after.next()))
        || (is_digit(Some(right)) && is_point(left) && is_digit(before.next()))
        || (is_digit(Some(right)) && matches!(left, '-' | '−'))
}

/// Returns whether `letter` belongs to a script that separates words with spaces. In others, a quote may end anywhere.
fn is_of_spaced_word(letter: char) -> bool {
    // Thai and Lao, Burmese, Khmer, then Han, kana and their neighbours. Hangul, from U+AC00, is written with spaces.
    let is_unspaced = matches!(u32::from(letter), 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x2E80..=0xABFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF);
    (letter.is_alphanumeric() || letter == '_') && !is_unspaced
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str, quote: &str, first: u32, last: u32) -> Option<(u32, u32)> {
        FoldedText::new(text).find(quote, Lines { first, last }).map(|lines| (lines.first, lines.last))
    }

    #[test]
    fn quote_is_found_where_it_is_cited_else_nearest_to_that() {
        let text = "# A\n\nOne two.\nThree.\n\nOne two.\n";
        for (quote, cited, lines) in [
            ("One two.", (3, 3), Some((3, 3))),
            ("One two.", (6, 6), Some((6, 6))),
            ("One two.", (2, 4), Some((3, 3))),
            ("One two.", (5, 5), Some((6, 6))),
            ("One two.\nThree.", (3, 4), Some((3, 4))),
            ("One two. Three.", (3, 4), Some((3, 4))),
            ("Three.\n\nOne two.", (1, 1), Some((4, 6))),
            ("# A", (9, 9), Some((1, 1))),
            ("Three. One", (4, 6), Some((4, 6))),
            ("Two one.", (3, 3), None),
            ("one two.", (3, 3), None),
            ("", (3, 3), None),
            (" \n", (3, 3), None),
        ] {
            assert_eq!(found(text, quote, cited.0, cited.1), lines, "{quote:?} at {cited:?}");
        }
    }

    #[test]
    fn quote_does_not_stand_inside_a_longer_word_or_number() {
        for (text, quote, is_there) in [
            ("The limit is 10 MB.", "The limit is 10", true),
            ("The limit is 100 MB.", "The limit is 10", false),
            ("The limit is 10.5 MB.", "The limit is 10", false),
            ("The limit is 10,000.", "The limit is 10", false),
            ("The limit is 10.", "The limit is 10", true),
            ("It is -5 degrees.", "5 degrees", false),
            ("It is 2.5 degrees.", "5 degrees", false),
            ("Use `drop_all`.", "Use `drop", false),
            ("unlocked doors", "locked doors", false),
            ("会議室は三階にある。", "会議室", true),
            ("a\u{a0}b", "a b", true),
        ] {
            assert_eq!(found(text, quote, 1, 1).is_some(), is_there, "{quote:?} in {text:?}");
        }
    }

    #[test]
    fn byte_order_mark_and_line_endings_change_no_place() {
        let quote = "Two\nthree.";
        for text in ["One.\nTwo\nthree.\n", "\u{feff}One.\r\nTwo\r\nthree.\r\n", "One.\nTwo  \n  three."] {
            assert_eq!(found(text, quote, 2, 3), Some((2, 3)), "{text:?}");
            assert_eq!(found(text, "Two\r\nthree.", 2, 3), Some((2, 3)), "{text:?}");
        }
        assert_eq!(found("\u{feff}One.", "One.", 1, 1), Some((1, 1)));
    }

    proptest! {
        #[test]
        fn lines_above_move_a_quote_by_their_number_and_a_changed_word_removes_it(
            words in prop::collection::vec("[a-z]{1,6}", 1..12), above in 0u32..40, breaks in any::<u16>(), changed in 0usize..12,
        ) {
            // Each word occurs only in the quote, so there is a single match.
            let words: Vec<_> = words.iter().enumerate().map(|(at, word)| format!("{word}{at}")).collect();
            let joined: String = words
                .iter()
                .enumerate()
                .map(|(at, word)| format!("{word}{}", if breaks >> at & 1 == 1 { "\n" } else { " " }))
                .collect();
            let quote = joined.trim_end();
            let height = u32::try_from(quote.matches('\n').count()).unwrap();
            let text = format!("{}{quote} END\n", "Filler.\n".repeat(above as usize));
            let cited = Lines { first: 1, last: 1 + height };
            let moved = Lines { first: 1 + above, last: 1 + above + height };
            prop_assert_eq!(FoldedText::new(&text).find(quote, cited), Some(moved));
            let crlf = text.replace('\n', "\r\n");
            prop_assert_eq!(FoldedText::new(&crlf).find(quote, cited), Some(moved));
            let mut other = words.clone();
            let at = changed % other.len();
            other[at].push('X');
            prop_assert_eq!(FoldedText::new(&text).find(&other.join(" "), cited), None);
            prop_assert_eq!(FoldedText::new(&other.join(" ")).find(quote, cited), None);
        }
    }
}
