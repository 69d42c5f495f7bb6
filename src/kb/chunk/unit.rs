//! Units: what a chunk takes whole. A block that fits is one unit; one that does not is cut where it hurts least.

use std::ops::Range;

use super::outline::{Leaf, LeafKind};
use crate::base::token::CountTokens;

/// A text of so many bytes is as dear as one token, so that a chunk of white space or base64 has an end too.
const BYTES_PER_TOKEN: usize = 16;

/// What a cut in front of a unit goes through, the least harmful first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    Section,
    Block,
    Item,
    NestedBlock,
    BlankLine,
    Sentence,
    Line,
    Word,
    Character,
    /// The unit before is a heading, which should not stand alone.
    Heading,
}

/// Part of a document's text that is cut no further; it ends where the next one begins.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// Where it begins, in bytes of the document's text.
    pub(super) start: usize,
    /// Tokens, or a little more: units' costs add up to no less than the tokens of all of them.
    pub(super) cost: usize,
    /// What a cut in front of it goes through.
    pub(super) cut: Cut,
    /// What has to be repeated to read it when a chunk begins with it.
    pub(super) context: Option<Range<usize>>,
}

/// Returns what a text is charged: at least one, and no less than its tokens; but for a text that is above `limit` by
/// its length alone, tokens are not counted.
pub(super) fn cost(counter: &dyn CountTokens, text: &str, limit: usize) -> usize {
    let by_length = (text.len() / BYTES_PER_TOKEN).max(1);
    if by_length > limit { by_length } else { by_length.max(counter.count(text)) }
}

/// Cuts leaves into units of at most `limit` each.
pub(super) struct UnitCutter<'a> {
    pub(super) text: &'a str,
    pub(super) counter: &'a dyn CountTokens,
    pub(super) limit: usize,
}

/// A leaf with its end and cost.
pub(super) struct CostedLeaf<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) end: usize,
    pub(super) cost: usize,
}

impl UnitCutter<'_> {
    /// Cuts the leaves of one section, or of several that go together.
    pub(super) fn cut_section(&self, leaves: &[CostedLeaf<'_>]) -> Vec<Unit> {
        let mut units = Vec::new();
        let mut after_heading = false;
        for block in leaves.chunk_by(|_, next| next.leaf.depth > 0) {
            let heading = matches!(block[0].leaf.kind, LeafKind::Heading { .. });
            let cut = match (after_heading, heading) {
                (true, _) => Cut::Heading,
                (false, true) => Cut::Section,
                (false, false) => Cut::Block,
            };
            self.cut_block(block, 1, cut, &mut units);
            after_heading = heading;
        }
        units
    }

    fn cut_block(&self, leaves: &[CostedLeaf<'_>], depth: u8, cut: Cut, units: &mut Vec<Unit>) {
        let cost = leaves.iter().map(|leaf| leaf.cost).sum();
        if cost <= self.limit {
            units.push(Unit { start: leaves[0].leaf.start, cost, cut, context: None });
        } else if let [leaf] = leaves {
            self.cut_leaf(leaf, cut, units);
        } else {
            let next_cut = if depth == 1 { Cut::Item } else { Cut::NestedBlock };
            // Below the last depth every leaf is on its own.
            let same = |next: &CostedLeaf<'_>| next.leaf.depth > depth;
            for (index, part) in leaves.chunk_by(|_, next| same(next)).enumerate() {
                self.cut_block(part, depth + 1, if index == 0 { cut } else { next_cut }, units);
            }
        }
    }

    fn cut_leaf(&self, leaf: &CostedLeaf<'_>, cut: Cut, units: &mut Vec<Unit>) {
        let range = leaf.leaf.start..leaf.end;
        let (cuts, context): (&[Cut], _) = match &leaf.leaf.kind {
            LeafKind::Heading { .. } | LeafKind::Text => (&[Cut::Sentence, Cut::Line, Cut::Word], None),
            LeafKind::Lines { context } => (&[Cut::BlankLine, Cut::Line, Cut::Word], context.as_ref()),
            LeafKind::Table { context } => (&[Cut::Line, Cut::Word], context.as_ref()),
        };
        // A context too long to repeat is not repeated.
        let context = context
            .map(|context| (context.clone(), cost(self.counter, &self.text[context.clone()], self.limit)))
            .filter(|(_, cost)| *cost <= self.limit / 4);
        let limit = self.limit - context.as_ref().map_or(0, |(_, cost)| *cost);
        let first = units.len();
        UnitCutter { limit, ..*self }.cut_text(range, cut, cuts, units);
        for unit in units.iter_mut().skip(first + 1) {
            unit.context = context.as_ref().map(|(context, _)| context.clone()).filter(|it| it.end <= unit.start);
        }
    }

    fn cut_text(&self, range: Range<usize>, cut: Cut, cuts: &[Cut], units: &mut Vec<Unit>) {
        let text = &self.text[range.clone()];
        let cost = cost(self.counter, text, self.limit);
        if cost <= self.limit {
            units.push(Unit { start: range.start, cost, cut, context: None });
            return;
        }
        let Some((inner_cut, finer)) = cuts.split_first() else {
            self.cut_word(range, cut, units);
            return;
        };
        let mut start = range.start;
        let mut cut = cut;
        while start < range.end {
            let end = range.end.min(start + piece_len(&self.text[start..range.end], *inner_cut));
            self.cut_text(start..end, cut, finer, units);
            (start, cut) = (end, *inner_cut);
        }
    }

    /// Cuts between characters, as it must for a text without white space.
    fn cut_word(&self, range: Range<usize>, cut: Cut, units: &mut Vec<Unit>) {
        let longest = (self.limit * BYTES_PER_TOKEN).max(4);
        let (mut start, mut cut, mut length) = (range.start, cut, longest);
        while start < range.end {
            let mut end = floor_boundary(self.text, start, range.end.min(start + length));
            let mut price = cost(self.counter, &self.text[start..end], usize::MAX);
            while price > self.limit {
                let middle = floor_boundary(self.text, start, start.midpoint(end));
                if middle == end {
                    break;
                }
                end = middle;
                price = cost(self.counter, &self.text[start..end], usize::MAX);
            }
            units.push(Unit { start, cost: price, cut, context: None });
            // The next piece is probably as dense as this one.
            length = longest.min(if price * 2 > self.limit { end - start } else { 2 * (end - start) });
            (start, cut) = (end, Cut::Character);
        }
    }
}

/// Returns the last place up to `end` where no character or cluster is torn, but past `start`.
pub(super) fn floor_boundary(text: &str, start: usize, end: usize) -> usize {
    let end = text.floor_char_boundary(end);
    let whole = text[start..end].char_indices().rev().map(|(at, _)| start + at + 1);
    let mut candidate = end;
    for before in whole.take(32) {
        let previous = text.floor_char_boundary(before - 1);
        let joins = text[candidate..].starts_with(joins_previous) || text[previous..].starts_with('\u{200d}');
        if !joins {
            return if candidate > start { candidate } else { text.ceil_char_boundary(start + 1) };
        }
        candidate = previous;
    }
    if end > start { end } else { text.ceil_char_boundary(start + 1) }
}

/// Whether a character is drawn as part of the one before.
fn joins_previous(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f3fb}'..='\u{1f3ff}')
}

/// Returns the length of the first piece of a text, with the white space after it.
fn piece_len(text: &str, cut: Cut) -> usize {
    match cut {
        Cut::Sentence => sentence_len(text),
        Cut::BlankLine => paragraph_len(text),
        Cut::Line => text.find('\n').map_or(text.len(), |newline| newline + 1),
        _ => {
            let word = text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len());
            let space = text[word..].find(char::is_whitespace).map_or(text.len(), |space| word + space);
            space + text[space..].find(|c: char| !c.is_whitespace()).unwrap_or(text.len() - space)
        }
    }
}

fn paragraph_len(text: &str) -> usize {
    let mut end = 0;
    let mut after_blank = false;
    for line in text.split_inclusive('\n') {
        let is_blank = line.trim().is_empty();
        if after_blank && !is_blank {
            return end;
        }
        after_blank = is_blank && end > 0;
        end += line.len();
    }
    end
}

/// Returns the length of the first sentence, with the white space after it.
fn sentence_len(text: &str) -> usize {
    let mut from = 0;
    while let Some(found) = text[from..].find(['.', '!', '?', '。', '！', '？', '…']) {
        let mark = from + found;
        let sign = text[mark..].chars().next().unwrap_or('.');
        let after = &text[mark + sign.len_utf8()..];
        let closed = after.trim_start_matches(['.', '!', '?', '"', '\'', ')', ']', '*', '_', '`', '”', '’', '»', '」']);
        let next = closed.trim_start();
        let ends = matches!(sign, '。' | '！' | '？') || next.len() < closed.len() || next.is_empty();
        if ends && !(sign == '.' && is_abbreviation(&text[..mark])) {
            return text.len() - next.len();
        }
        from = text.len() - closed.len();
    }
    text.len()
}

/// Whether a full stop after `text` ends a word, not a sentence.
fn is_abbreviation(text: &str) -> bool {
    const ABBREVIATIONS: [&str; 16] =
        ["e.g", "i.e", "vs", "cf", "etc", "mr", "mrs", "ms", "dr", "prof", "st", "fig", "figs", "no", "al", "approx"];
    let tail = &text[text.floor_char_boundary(text.len().saturating_sub(16))..];
    let word = tail.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_alphanumeric);
    is_initial || ABBREVIATIONS.iter().any(|known| known.eq_ignore_ascii_case(word))
}
