//! Limits the length of results: a model reads them, and its context is small and expensive.

use serde::Serialize;

use crate::base::line::{below_title, shortened};
use crate::base::token::{CountTokens, Encoding, TokenCounter, lines_within};

/// Maximum number of tokens of a text in a result. Clients warn from 10,000 on.
pub(super) const MAX_TEXT_TOKENS: usize = 8_000;

/// The rest of a text that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Number of lines before it, at least one.
    pub(super) after: usize,
    /// Whether the last of those is cut too, because it alone exceeds the length of a result.
    pub(super) is_line_cut: bool,
}

/// Cuts a text to the length of a result.
pub(super) fn cut(text: &str) -> (&str, Option<Rest>) {
    let kept = lines_within(text, MAX_TEXT_TOKENS);
    let rest = Rest { after: kept.lines().count(), is_line_cut: !kept.ends_with('\n') };
    (kept, (kept.len() < text.len()).then_some(rest))
}

/// A part of one or several lists that fits a result.
pub(super) struct Page {
    /// Number of elements still to skip before the page.
    before: usize,
    /// Number of tokens left.
    room: usize,
    /// Number of elements up to the end of the page.
    pub(super) end: usize,
    /// Number of elements after it.
    pub(super) left_out: usize,
}

impl Page {
    /// Returns a page that begins after `before` elements of the lists.
    pub(super) fn after(before: usize) -> Self {
        Self { before, room: MAX_TEXT_TOKENS, end: before, left_out: 0 }
    }

    /// Cuts the next list to its elements on the page.
    pub(super) fn keep<T: Serialize>(&mut self, items: &mut Vec<T>) {
        let skipped = self.before.min(items.len());
        self.before -= skipped;
        items.drain(..skipped);
        let counter = TokenCounter::of(Encoding::O200k);
        let fits = items.iter().take_while(|item| {
            // In the form in which it is sent, with the names of its fields.
            let tokens = serde_json::to_string(item).map_or(usize::MAX, |json| counter.count(&json));
            // A page has at least one element, or the next would be the same. Nothing follows one that did not fit.
            let fits = tokens <= self.room || self.room == MAX_TEXT_TOKENS;
            self.room = if fits { self.room.saturating_sub(tokens) } else { 0 };
            fits
        });
        let kept = fits.count();
        self.end += kept;
        self.left_out += items.len() - kept;
        items.truncate(kept);
    }
}

/// Returns a title with the headings below it, on one line.
pub(super) fn heading_line(title: &str, headings: &[String]) -> String {
    shortened(&std::iter::once(title).chain(below_title(title, headings)).collect::<Vec<_>>().join(" › "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_two_lists_have_each_element_once() {
        let lists = [(0..900).collect::<Vec<u32>>(), (900..9_000).collect()];
        let (mut from, mut read, mut pages) = (0, Vec::new(), 0);
        loop {
            let mut page = Page::after(from);
            for mut list in lists.clone() {
                page.keep(&mut list);
                read.extend(list);
            }
            (from, pages) = (page.end, pages + 1);
            if page.left_out == 0 {
                break;
            }
            assert_eq!(read.len() + page.left_out, 9_000);
        }
        assert_eq!(read, (0..9_000).collect::<Vec<_>>());
        assert!(pages > 1);
    }
}
