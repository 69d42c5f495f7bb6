//! Splits blocks into units, which chunks contain whole. A block that fits the limit is one unit; a longer one is cut
//! at the least harmful places.

use std::ops::Range;

use super::outline::{Leaf, LeafKind};
use crate::base::token::CountTokens;

/// Bytes that count as at least one token, which bounds the bytes of chunks of white space and of base64.
const BYTES_PER_TOKEN: usize = 16;

/// The structure that a cut in front of a unit breaks, least harmful first.
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
    /// The unit before is a heading, which should not be the end of a chunk.
    Heading,
}

/// A part of a document's text that no chunk divides. It ends where the next unit begins.
#[derive(Debug, Clone)]
pub(super) struct ChunkUnit {
    /// Byte offset in the document's text.
    pub(super) start: usize,
    /// At least the number of tokens. The costs of adjacent units add up to no less than the tokens of their text.
    pub(super) cost: usize,
    /// The structure that a cut in front of this unit breaks.
    pub(super) cut: Cut,
    /// A fence's opening line or a table's header, repeated if a chunk begins with this unit.
    pub(super) context: Option<Range<usize>>,
}

/// Returns the cost of a text: its tokens or its share by length, whichever is more, and at least one.
///
/// A text whose length alone exceeds `limit` must be cut anyway, so its tokens are not counted.
pub(super) fn cost(counter: &dyn CountTokens, text: &str, limit: usize) -> usize {
    let by_length = (text.len() / BYTES_PER_TOKEN).max(1);
    if by_length > limit { by_length } else { by_length.max(counter.count(text)) }
}

/// Cuts leaves into units that cost at most `limit` each.
pub(super) struct UnitCutter<'a> {
    pub(super) text: &'a str,
    pub(super) counter: &'a dyn CountTokens,
    pub(super) limit: usize,
}

pub(super) struct CostedLeaf<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) end: usize,
    pub(super) cost: usize,
}

impl UnitCutter<'_> {
    /// Cuts the leaves of one group of sections.
    pub(super) fn cut_section(&self, leaves: &[CostedLeaf<'_>]) -> Vec<ChunkUnit> {
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

    fn cut_block(&self, leaves: &[CostedLeaf<'_>], depth: u8, cut: Cut, units: &mut Vec<ChunkUnit>) {
        let cost = leaves.iter().map(|leaf| leaf.cost).sum();
        if cost <= self.limit {
            units.push(ChunkUnit { start: leaves[0].leaf.start, cost, cut, context: None });
        } else if let [leaf] = leaves {
            self.cut_leaf(leaf, cut, units);
        } else {
            let next_cut = if depth == 1 { Cut::Item } else { Cut::NestedBlock };
            // At `MAX_DEPTH` every leaf becomes a separate part, which ends the recursion.
            let same = |next: &CostedLeaf<'_>| next.leaf.depth > depth;
            for (index, part) in leaves.chunk_by(|_, next| same(next)).enumerate() {
                self.cut_block(part, depth + 1, if index == 0 { cut } else { next_cut }, units);
            }
        }
    }

    fn cut_leaf(&self, leaf: &CostedLeaf<'_>, cut: Cut, units: &mut Vec<ChunkUnit>) {
        let range = leaf.leaf.start..leaf.end;
        let (cuts, context): (&[Cut], _) = match &leaf.leaf.kind {
            LeafKind::Heading { .. } | LeafKind::Text => (&[Cut::Sentence, Cut::Line, Cut::Word], None),
            LeafKind::Lines { context } => (&[Cut::BlankLine, Cut::Line, Cut::Word], context.as_ref()),
            LeafKind::Table { context } => (&[Cut::Line, Cut::Word], context.as_ref()),
        };
        // A context longer than a quarter of the limit is not repeated: little text would fit beside it.
        let context = context
            .map(|context| (context.clone(), cost(self.counter, &self.text[context.clone()], self.limit)))
            .filter(|(_, cost)| *cost <= self.limit / 4);
        let limit = self.limit - context.as_ref().map_or(0, |(_, cost)| *cost);
        let first = units.len();
        UnitCutter { limit, ..*self }.cut_text(range, cut, cuts, units);
        // The first unit has the context in its text, and a unit that begins within the context needs no copy of it.
        for unit in units.iter_mut().skip(first + 1) {
            unit.context = context.as_ref().map(|(context, _)| context.clone()).filter(|it| it.end <= unit.start);
        }
    }

    fn cut_text(&self, range: Range<usize>, cut: Cut, cuts: &[Cut], units: &mut Vec<ChunkUnit>) {
        let text = &self.text[range.clone()];
        let cost = cost(self.counter, text, self.limit);
        if cost <= self.limit {
            units.push(ChunkUnit { start: range.start, cost, cut, context: None });
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

    /// Cuts between characters, for text without white space.
    fn cut_word(&self, range: Range<usize>, cut: Cut, units: &mut Vec<ChunkUnit>) {
        // A character has up to four bytes.
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
            units.push(ChunkUnit { start, cost: price, cut, context: None });
            // The next piece is probably as dense, so its first guess is close and few pieces are counted twice.
            length = longest.min(if price * 2 > self.limit { end - start } else { 2 * (end - start) });
            (start, cut) = (end, Cut::Character);
        }
    }
}

/// Returns the last offset in `start..=end`, but past `start`, that divides neither a character nor a cluster of joined
/// characters.
pub(super) fn floor_boundary(text: &str, start: usize, end: usize) -> usize {
    let end = text.floor_char_boundary(end);
    let whole = text[start..end].char_indices().rev().map(|(at, _)| start + at + 1);
    let mut candidate = end;
    // Bounded, since a text may consist of joined characters alone.
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

/// Returns whether a character is rendered as part of the one before it.
fn joins_previous(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f3fb}'..='\u{1f3ff}')
}

/// Returns the length of the first piece of a text, including the white space after it.
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

/// Returns the length of the first sentence, including the white space after it.
fn sentence_len(text: &str) -> usize {
    let mut from = 0;
    while let Some(found) = text[from..].find(['.', '!', '?', '。', '！', '？', '…']) {
        let mark = from + found;
        let sign = text[mark..].chars().next().unwrap_or('.');
        let after = &text[mark + sign.len_utf8()..];
        let closed = after.trim_start_matches(['.', '!', '?', '"', '\'', ')', ']', '*', '_', '`', '”', '’', '»', '」']);
        let next = closed.trim_start();
        // Chinese and Japanese have no space after a sentence.
        let ends = matches!(sign, '。' | '！' | '？') || next.len() < closed.len() || next.is_empty();
        if ends && !(sign == '.' && is_abbreviation(&text[..mark])) {
            return text.len() - next.len();
        }
        from = text.len() - closed.len();
    }
    text.len()
}

/// Returns whether a full stop after `text` belongs to an abbreviation or initial.
fn is_abbreviation(text: &str) -> bool {
    const ABBREVIATIONS: [&str; 16] =
        ["e.g", "i.e", "vs", "cf", "etc", "mr", "mrs", "ms", "dr", "prof", "st", "fig", "figs", "no", "al", "approx"];
    // No known abbreviation is longer, and searching a long text again at each full stop would be slow.
    let tail = &text[text.floor_char_boundary(text.len().saturating_sub(16))..];
    let word = tail.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_alphanumeric);
    is_initial || ABBREVIATIONS.iter().any(|known| known.eq_ignore_ascii_case(word))
}
