//! The part of a passage that a prompt shows. Text that is already shown above is replaced by a reference to its
//! passage, since every later prompt of the worker would repeat it too.

use std::ops::Range;

use super::cut::{Count, cut};
use super::extract::has_text;

/// Minimum length, in bytes, of text that is replaced by a reference. A reference takes a line and interrupts the
/// text.
const MIN_NAMED_BYTES: usize = 160;

/// A passage as a prompt shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Abridged {
    pub(super) text: String,
    /// Byte of the passage up to which it is shown.
    pub(super) end: usize,
    /// Ids of the passages it refers to.
    pub(super) named: Vec<String>,
    /// Whether it has text besides references and headings.
    pub(super) has_new_text: bool,
}

/// A range of a text: either new, or already shown in the passage `named`.
#[derive(Debug, PartialEq, Eq)]
struct Segment<'a> {
    range: Range<usize>,
    named: Option<&'a str>,
}

impl Abridged {
    /// Returns about `max_tokens` of new text. `seen` holds the ids and texts that are already shown.
    pub(super) fn of(text: &str, seen: &[(String, &str)], max_tokens: u64, count: Count<'_>) -> Self {
        let parts = parts(text, seen);
        let whole = Self::up_to(text, &parts, u64::MAX, count);
        // A few more words cost less than another step to read them, and often contain the answer.
        if count(&whole.text) <= max_tokens + max_tokens / 3 {
            whole
        } else {
            Self::up_to(text, &parts, max_tokens, count)
        }
    }

    fn up_to(text: &str, parts: &[Segment<'_>], max_tokens: u64, count: Count<'_>) -> Self {
        let mut shown = Self { text: String::new(), end: 0, named: Vec::new(), has_new_text: false };
        for Segment { range, named } in parts {
            let piece = &text[range.clone()];
            if let Some(id) = named {
                shown.push(&format!("… ({id} above stands here)"));
                shown.named.push((*id).to_owned());
            } else {
                let start = cut(piece, max_tokens.saturating_sub(count(&shown.text)), count);
                shown.push(start);
                shown.has_new_text |= has_text(start);
                if start.len() < piece.trim_end().len() {
                    shown.end = range.start + start.len();
                    return shown;
                }
            }
            shown.end = range.end;
        }
        shown
    }

    fn push(&mut self, text: &str) {
        if self.text.is_empty() {
            self.text.push_str(text);
        } else {
            self.text.push('\n');
            self.text.push_str(text.trim_start_matches('\n'));
        }
    }
}

/// Divides a text into ranges already shown and new ranges, in order.
fn parts<'a>(text: &str, seen: &'a [(String, &str)]) -> Vec<Segment<'a>> {
    let found = seen.iter().filter_map(|(id, seen)| Some((shared(text, seen)?, id.as_str())));
    let mut found: Vec<_> = found.collect();
    // If several passages begin at the same byte, the longest comes first.
    found.sort_by_key(|(range, _)| (range.start, usize::MAX - range.end));
    let mut parts = Vec::new();
    let mut from = 0;
    let push_new = |parts: &mut Vec<Segment<'a>>, range: Range<usize>| {
        if !text[range.clone()].trim().is_empty() {
            parts.push(Segment { range, named: None });
        }
    };
    for (range, id) in found {
        let start = range.start.max(from);
        if range.end < start + MIN_NAMED_BYTES {
            continue;
        }
        push_new(&mut parts, from..start);
        parts.push(Segment { range: start..range.end, named: Some(id) });
        from = range.end;
    }
    push_new(&mut parts, from..text.len());
    parts
}

/// Longest text, in bytes, with which one passage may end and another begin.
const MAX_OVERLAP: usize = 16_000;

/// Returns the range of a text that is in `seen`, too: one contains the other, or one ends as the other begins.
fn shared(text: &str, seen: &str) -> Option<Range<usize>> {
    let (body, seen) = (text.trim(), seen.trim());
    let range = match body.find(seen) {
        Some(at) => at..at + seen.len(),
        None if seen.contains(body) => 0..body.len(),
        None => match (overlap(seen, body), overlap(body, seen)) {
            (first, last) if first >= last => 0..first,
            (_, last) => body.len() - last..body.len(),
        },
    };
    let lead = text.len() - text.trim_start().len();
    (range.len() >= MIN_NAMED_BYTES).then(|| lead + range.start..lead + range.end)
}

/// Returns the length of the longest end of `before` that `after` begins with, if it is worth a reference.
fn overlap(before: &str, after: &str) -> usize {
    let Some(end) = (MIN_NAMED_BYTES..after.len()).find(|at| after.is_char_boundary(*at)) else { return 0 };
    // In the last part only, since the time grows with the square of it in a text that repeats itself.
    let from = before.len().saturating_sub(MAX_OVERLAP);
    let before = &before[(from..before.len()).find(|at| before.is_char_boundary(*at)).unwrap_or(from)..];
    let tails = before.match_indices(&after[..end]).map(|(at, _)| &before[at..]);
    tails.filter(|tail| after.starts_with(*tail)).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    fn paragraph(word: &str) -> String {
        format!("{}.", vec![word; 40].join(" "))
    }

    #[test]
    fn text_that_stands_above_is_named_and_the_limit_counts_what_is_shown() {
        let (one, two, three) = (paragraph("alpha"), paragraph("beta"), paragraph("gamma"));
        let text = format!("Lead.\n\n{one}\n\n{two}\n\n{three}\n");
        let seen = [("p1".to_owned(), one.as_str()), ("p2".to_owned(), &three[..]), ("p9".to_owned(), "Lead.")];
        let shown = Abridged::of(&text, &seen, 60, &words);
        let expected = format!("Lead.\n… (p1 above stands here)\n{two}\n… (p2 above stands here)");
        assert_eq!((shown.text, shown.end), (expected, text.trim_end().len()));
        assert_eq!((shown.named, shown.has_new_text), (vec!["p1".to_owned(), "p2".to_owned()], true));
        let under_a_heading = Abridged::of(&format!("## Lead\n\n{one}"), &seen, 60, &words);
        assert!(!under_a_heading.has_new_text && under_a_heading.named == ["p1"], "{under_a_heading:?}");
        let shown = Abridged::of(&text, &[], 50, &words);
        assert_eq!((shown.text, shown.end), (format!("Lead.\n\n{one}"), 7 + one.len()));
        assert_eq!(shown.named, Vec::<String>::new());
    }

    #[test]
    fn passages_that_overlap_are_named_once_for_each_text() {
        let (one, two) = (paragraph("alpha"), paragraph("beta"));
        let text = format!("{one}\n\n{two}");
        let seen = [("p1".to_owned(), one.as_str()), ("p2".to_owned(), &text[..]), ("p3".to_owned(), &two[..])];
        assert_eq!(Abridged::of(&text, &seen, 60, &words).text, "… (p2 above stands here)");
        let seen = [("p1".to_owned(), &text[..one.len() + 100]), ("p3".to_owned(), &two[..])];
        assert_eq!(Abridged::of(&text, &seen, 60, &words).named, ["p1"], "what is left of `p3` is too short to name");
    }

    #[test]
    fn text_inside_a_passage_above_or_continuing_it_is_named() {
        let all = ["alpha", "beta", "gamma"].map(paragraph).join("\n\n");
        let (beta, gamma) = (all.find("beta").unwrap(), all.find("gamma").unwrap());
        let shown = |text: &str, seen: &str| Abridged::of(text, &[("p1".to_owned(), seen)], 300, &words).text;
        assert_eq!(shown(&all[beta..gamma], &all), "… (p1 above stands here)");
        assert_eq!(
            shown(&format!("\n{}", &all[beta..]), &all[..gamma]),
            format!("… (p1 above stands here)\n{}", &all[gamma..])
        );
        assert_eq!(shown(&all[..gamma], &all[beta..]), format!("{}\n… (p1 above stands here)", all[..beta].trim_end()));
        let other = format!("{}{}", &all[beta..gamma - 20], paragraph("delta"));
        assert_eq!(shown(&all[beta..], &other), &all[beta..], "the passage above goes on otherwise");
    }

    proptest! {
        #[test]
        fn every_word_is_shown_or_named_or_after_the_end(
            starts in [0usize..100, 0usize..100], length in 0usize..60, most in 0u64..300,
        ) {
            let all: Vec<_> = (100..220).map(|number| format!("word{number}")).collect();
            let text = all.join(" ");
            let seen = starts.map(|start| all[start..(start + length).min(all.len())].join(" "));
            let named: Vec<_> = seen.iter().map(|seen| ("p1".to_owned(), seen.as_str())).collect();
            let shown = Abridged::of(&text, &named, most, &words);
            for word in text[..shown.end].split_whitespace() {
                prop_assert!(shown.text.contains(word) || seen.iter().any(|seen| seen.contains(word)), "{:?}", shown);
            }
            prop_assert!(shown.end == text.len() || count_new(&shown) <= most);
        }
    }

    /// Counts the words outside references.
    fn count_new(shown: &Abridged) -> u64 {
        words(&shown.text.replace("… (p1 above stands here)", ""))
    }
}
