//! Packs units into chunks of about equal length, none above the limit.

use std::ops::Range;

use super::unit::{ChunkUnit, Cut, cost, floor_boundary};
use super::{Chunk, ChunkOptions, embed_text, header};
use crate::base::token::CountTokens;
use crate::kb::document::Document;

/// Tokens kept free, because a tokenizer may count a text slightly higher than the sum of its parts.
const MARGIN_TOKENS: usize = 2;

/// Packs a document's groups of sections, one at a time.
pub(super) struct Packer<'a> {
    document: &'a Document,
    counter: &'a dyn CountTokens,
    options: &'a ChunkOptions,
    lines: LineNumbers<'a>,
    path: Vec<String>,
    chunks: Vec<Chunk>,
}

impl<'a> Packer<'a> {
    pub(super) fn new(document: &'a Document, counter: &'a dyn CountTokens, options: &'a ChunkOptions) -> Self {
        let lines = LineNumbers { text: &document.text, offset: 0, line: 1 };
        Self { document, counter, options, lines, path: Vec::new(), chunks: Vec::new() }
    }

    /// Begins a group and returns the limit and the target of its chunks, in tokens without the header.
    ///
    /// A heading path that takes more than half of the window is dropped.
    pub(super) fn enter(&mut self, path: &[String]) -> (usize, usize) {
        self.path = path.to_vec();
        let title = self.document.own_title();
        let mut header_tokens = self.counter.count(&header(title, &self.path));
        if header_tokens > self.options.max_tokens / 2 {
            self.path.clear();
            header_tokens = self.counter.count(&header(title, &self.path));
        }
        let left = |tokens: usize| tokens.saturating_sub(header_tokens + MARGIN_TOKENS).max(1);
        (left(self.options.max_tokens), left(self.options.target_tokens))
    }

    /// Packs the units of a group, the last of which ends at `end`.
    pub(super) fn pack(&mut self, mut units: Vec<ChunkUnit>, end: usize, target: usize) {
        let mut remaining: usize = units.iter().map(|unit| unit.cost).sum();
        let mut first = 0;
        while first < units.len() {
            let room = target.saturating_sub(self.context_cost(&units[first]));
            let next = best_cut(&units, first, remaining, room);
            let next = self.push_fitting(&mut units, first..next, end);
            // Dividing a unit changes the costs.
            remaining = remaining.saturating_sub(units[first..next].iter().map(|unit| unit.cost).sum());
            first = next;
        }
    }

    pub(super) fn finish(self) -> Vec<Chunk> {
        self.chunks
    }

    fn context_cost(&self, unit: &ChunkUnit) -> usize {
        unit.context.clone().map_or(0, |context| cost(self.counter, &self.document.text[context], usize::MAX))
    }

    /// Pushes a chunk of `units[range]`, or of as many of them as fit, and returns the index of the next unit.
    fn push_fitting(&mut self, units: &mut Vec<ChunkUnit>, range: Range<usize>, end: usize) -> usize {
        let first = range.start;
        let start = units[first].start;
        let mut next = range.end;
        loop {
            let end = units.get(next).map_or(end, |unit| unit.start);
            let Some(chunk) = self.chunk(start..end, units[first].context.clone()) else { return next };
            let middle = floor_boundary(&self.document.text, start, start.midpoint(end));
            let is_single = next == first + 1;
            // A single character cannot be divided, however many tokens it has.
            if chunk.tokens <= self.options.max_tokens || is_single && middle >= end {
                self.push(chunk);
                return next;
            }
            if is_single {
                // Reached only if the counter counts a text higher than the sum of its parts plus the margin.
                units[first].cost /= 2;
                units.insert(next, ChunkUnit { start: middle, cut: Cut::Character, ..units[first].clone() });
            } else {
                next -= 1;
            }
        }
    }

    /// Builds the chunk of a byte range, or returns `None` if the range is white space. Line numbers are set by `push`.
    fn chunk(&self, range: Range<usize>, context: Option<Range<usize>>) -> Option<Chunk> {
        let bytes = without_blank_lines(&self.document.text, range)?;
        let text = self.document.text[bytes.clone()].to_owned();
        let context = context.map(|context| self.document.text[context].trim_end().to_owned());
        let embedded = embed_text(self.document.own_title(), &self.path, context.as_deref(), &text);
        let tokens = self.counter.count(&embedded);
        Some(Chunk { heading_path: self.path.clone(), text, bytes, line_start: 0, line_end: 0, context, tokens })
    }

    fn push(&mut self, mut chunk: Chunk) {
        chunk.line_start = self.lines.of(chunk.bytes.start);
        chunk.line_end = self.lines.of(chunk.bytes.end);
        self.chunks.push(chunk);
    }
}

/// Returns the index of the unit before which a chunk that begins with `units[first]` ends.
///
/// The remaining units are spread evenly over the chunks they need, so that the last chunk is not a crumb, which would
/// rank too high: short texts match short queries. A better place to cut outweighs some unevenness, see [`harm`].
fn best_cut(units: &[ChunkUnit], first: usize, remaining: usize, target: usize) -> usize {
    if remaining <= target {
        return units.len();
    }
    let count = remaining.div_ceil(target.max(1)).max(1);
    let aim = remaining.div_ceil(count);
    let mut total = units[first].cost;
    let mut best = (usize::MAX, first + 1);
    for (next, unit) in units.iter().enumerate().skip(first + 1) {
        let unevenness = total.abs_diff(aim) * 100 / aim;
        best = best.min((unevenness + harm(unit.cut), next));
        total += unit.cost;
        if total > target {
            return best.1;
        }
    }
    units.len()
}

/// Returns the cost of a cut, as the percentage of unevenness that is equally bad.
fn harm(cut: Cut) -> usize {
    match cut {
        Cut::Section | Cut::Block => 0,
        Cut::Item => 10,
        Cut::NestedBlock | Cut::BlankLine => 20,
        Cut::Sentence => 25,
        Cut::Line => 30,
        Cut::Word => 60,
        Cut::Character => 80,
        // More than any unevenness, so that a heading ends a chunk only if there is no other place to cut.
        Cut::Heading => 300,
    }
}

/// Trims blank lines from both ends and white space from the end. Indentation of the first line stays.
fn without_blank_lines(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = text[range.clone()].trim_end();
    let blank = part.len() - part.trim_start().len();
    let start = part[..blank].rfind('\n').map_or(0, |newline| newline + 1);
    (!part.is_empty()).then_some(range.start + start..range.start + part.len())
}

/// Converts offsets to line numbers. Fast if the offsets are nearly in order.
struct LineNumbers<'a> {
    text: &'a str,
    offset: usize,
    line: u32,
}

impl LineNumbers<'_> {
    fn of(&mut self, offset: usize) -> u32 {
        let newlines = |range: Range<usize>| u32::try_from(self.text[range].matches('\n').count()).unwrap_or(u32::MAX);
        self.line = if offset >= self.offset {
            self.line.saturating_add(newlines(self.offset..offset))
        } else {
            self.line.saturating_sub(newlines(offset..self.offset))
        };
        self.offset = offset;
        self.line
    }
}
