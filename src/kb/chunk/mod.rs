//! Splits a [`Document`] into [`Chunk`]s: passages with a heading path and a byte range.
//!
//! ```text
//! document ──▶ leaves ──▶ sections ──▶ units ──▶ chunks
//!              outline    (here)       unit      packing
//! ```
//!
//! A chunk is a run of blocks under one heading path. Its text is a slice of the file, byte for byte. The embedded text
//! is that slice preceded by title and headings, see [`embed_text`]. Together the chunks of a document cover its whole
//! body except white space. They do not overlap, since overlap found no more answers (`kb/decisions/chunking.md`). Time
//! and memory are linear in the size of the file, however deeply its blocks nest.

mod outline;
mod unit;
mod packing;

use std::ops::Range;

use self::outline::LeafKind;
use self::packing::Packer;
use self::unit::{CostedLeaf, UnitCutter, cost};
use crate::base::token::CountTokens;
use crate::kb::document::Document;

/// Part of the index manifest. Increase it with every change that yields different chunks, titles or another
/// [`Structure`](super::structure::Structure) for the same file, so that existing indexes are rebuilt.
pub(crate) const CHUNKER_VERSION: u32 = 5;

/// Length of chunks, in tokens of the embedder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkOptions {
    /// Hard limit of an embedded text, header included: the embedder's window without the special tokens it adds. The
    /// limit holds from 128 on, the smallest window with room for text beside a header of maximum length.
    pub(crate) max_tokens: usize,
    /// Length that chunks are filled to: 80–90 % of [`Self::max_tokens`].
    pub(crate) target_tokens: usize,
}

/// A passage of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Headings above the passage, outermost first.
    pub(crate) heading_path: Vec<String>,
    /// The passage, byte for byte as in the document's text.
    pub(crate) text: String,
    /// Byte range in the document's text.
    pub(crate) bytes: Range<usize>,
    /// First line, counted from 1; lines end at `\n`.
    pub(crate) line_start: u32,
    /// Last line, inclusive.
    pub(crate) line_end: u32,
    /// For a passage from inside a fence or table: the opening line, or the header and delimiter rows.
    pub(crate) context: Option<String>,
    /// Tokens of the embedded text.
    pub(crate) tokens: usize,
}

/// Returns the headings of sections, in order: where one begins in the document's text, its level and its text.
pub(crate) fn headings(document: &Document) -> impl Iterator<Item = (usize, u8, String)> {
    outline::leaves(document).into_iter().filter_map(|leaf| match leaf.kind {
        LeafKind::Heading { level, title } => {
            // A leaf begins with the blank lines before it.
            let leaf = &document.text[leaf.start..];
            Some((document.text.len() - leaf.trim_start().len(), level, title))
        }
        LeafKind::Text | LeafKind::Lines { .. } | LeafKind::Table { .. } => None,
    })
}

/// Splits a document into chunks, in the order of the text.
pub(crate) fn chunk(document: &Document, counter: &dyn CountTokens, options: &ChunkOptions) -> Vec<Chunk> {
    let leaves = outline::leaves(document);
    let ends = leaves.iter().skip(1).map(|leaf| leaf.start).chain([document.body.end]);
    // Counted once: costs of sections and of units are sums of these.
    let leaves: Vec<_> = leaves
        .iter()
        .zip(ends)
        .map(|(leaf, end)| CostedLeaf {
            leaf,
            end,
            cost: cost(counter, &document.text[leaf.start..end], options.max_tokens),
        })
        .collect();
    let mut packer = Packer::new(document, counter, options);
    for group in groups(&leaves, options) {
        let (limit, target) = packer.enter(&group.path);
        let cutter = UnitCutter { text: &document.text, counter, limit };
        let last = &group.leaves[group.leaves.len() - 1];
        packer.pack(cutter.cut_section(group.leaves), last.end, target);
    }
    packer.finish()
}

/// Returns the text to embed for a passage: title and headings on one line, the context, and the passage.
///
/// The title is left out if it equals the first heading. A header that is too long loses its outermost headings first.
pub(crate) fn embed_text(title: Option<&str>, heading_path: &[String], context: Option<&str>, text: &str) -> String {
    let mut embedded = header(title, heading_path);
    if let Some(context) = context {
        embedded.push_str(context);
        embedded.push('\n');
    }
    embedded.push_str(text);
    embedded
}

/// Limits on the weight of a header and of a single name in it: about sixty English tokens, a quarter of the built-in
/// embedder's window.
const MAX_HEADER_WEIGHT: usize = 240;
const MAX_NAME_WEIGHT: usize = 120;

/// Returns `title › H1 › H2` and a line feed, or an empty string.
fn header(title: Option<&str>, heading_path: &[String]) -> String {
    let title = title.filter(|title| heading_path.first().is_none_or(|first| first != title));
    let title = title.map(|title| lightened(title, MAX_NAME_WEIGHT));
    // Never below zero: the title has at most half of the header.
    let mut left = MAX_HEADER_WEIGHT - title.map_or(0, weight);
    let mut names = Vec::new();
    for heading in heading_path.iter().rev() {
        let name = lightened(heading, left.min(MAX_NAME_WEIGHT));
        left -= weight(name);
        if name.is_empty() {
            break;
        }
        names.push(name);
    }
    names.extend(title);
    names.reverse();
    if names.is_empty() { String::new() } else { names.join(" › ") + "\n" }
}

/// Estimates the length of a name without a tokenizer, so that the embedded text is the same for every embedder.
fn weight(name: &str) -> usize {
    name.chars().map(char_weight).sum()
}

fn char_weight(character: char) -> usize {
    match character {
        _ if character.is_ascii_alphanumeric() || character == ' ' => 1,
        _ if character.is_ascii() => 2,
        _ => 2 * character.len_utf8(),
    }
}

fn lightened(name: &str, max_weight: usize) -> &str {
    let mut left = max_weight;
    let end = name.char_indices().find(|(_, character)| match left.checked_sub(char_weight(*character)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    end.map_or(name, |(end, _)| name[..end].trim_end())
}

/// Adjacent sections that are packed into chunks together.
struct SectionGroup<'a> {
    leaves: &'a [CostedLeaf<'a>],
    path: Vec<String>,
}

/// A heading and the text up to the next heading. A heading without text belongs to the section after it.
struct HeadingSpan {
    leaves: Range<usize>,
    path: Vec<String>,
    cost: usize,
}

/// Groups sections: one per group, except that tiny sections join a neighbour. A chunk of one line is a poor hit.
fn groups<'a>(leaves: &'a [CostedLeaf<'a>], options: &ChunkOptions) -> impl Iterator<Item = SectionGroup<'a>> {
    let mut sections = HeadingSpans { leaves, at: 0, path: HeadingPath::default() }.peekable();
    let target = options.target_tokens;
    std::iter::from_fn(move || {
        let mut group = sections.next()?;
        let mut longest = group.cost;
        let depth = group.path.len();
        // A shallower heading ends the parent section and starts another subject.
        let goes_along =
            |group: &HeadingSpan, next: &HeadingSpan| next.path.len() >= depth && goes_with(group, next, target);
        while let Some(next) = sections.next_if(|next| goes_along(&group, next)) {
            group.path = merged_path(&group, &next, longest);
            longest = longest.max(next.cost);
            group.leaves.end = next.leaves.end;
            group.cost += next.cost;
        }
        Some(SectionGroup { leaves: &leaves[group.leaves], path: group.path })
    })
}

/// Returns whether either section is tiny and both fit into one chunk.
fn goes_with(group: &HeadingSpan, next: &HeadingSpan, target: usize) -> bool {
    let tiny = target / 8;
    // A quarter of the target is reserved for the header.
    let fits = group.cost + next.cost <= target - target / 4;
    fits && (group.cost <= tiny || next.cost <= tiny)
}

/// Returns the heading path of the longest section if it makes up half of the group, else the common prefix of all.
fn merged_path(group: &HeadingSpan, next: &HeadingSpan, longest: usize) -> Vec<String> {
    let whole = group.cost + next.cost;
    if next.cost * 2 >= whole {
        return next.path.clone();
    }
    if longest * 2 >= whole {
        return group.path.clone();
    }
    let common = group.path.iter().zip(&next.path).take_while(|(one, other)| one == other).count();
    group.path[..common].to_vec()
}

/// Returns the headings above a line, counted from 1; a heading is above its own line.
///
/// More precise than [`Chunk::heading_path`], of which a chunk of several small sections has only one.
pub(crate) fn headings_above(document: &Document, line: u32) -> Vec<String> {
    let before = (line as usize).saturating_sub(1);
    let line_ends = document.text.match_indices('\n').map(|(at, _)| at + 1);
    let line_start = std::iter::once(0).chain(line_ends).nth(before).unwrap_or(document.text.len());
    let mut above = HeadingPath::default();
    for leaf in outline::leaves(document).iter().take_while(|leaf| leaf.start <= line_start) {
        above.enter(&leaf.kind);
    }
    above.titles()
}

/// The headings above a position in a document, with their levels.
#[derive(Default)]
struct HeadingPath(Vec<(u8, String)>);

impl HeadingPath {
    /// Enters a heading. Returns false, and changes nothing, for any other kind of leaf.
    fn enter(&mut self, kind: &LeafKind) -> bool {
        let LeafKind::Heading { level, title } = kind else {
            return false;
        };
        self.0.retain(|(above, _)| above < level);
        // A heading without text ends a section like any other, but names none.
        if !title.is_empty() {
            self.0.push((*level, title.clone()));
        }
        true
    }

    fn titles(&self) -> Vec<String> {
        self.0.iter().map(|(_, title)| title.clone()).collect()
    }
}

/// Iterator over the sections of a document.
struct HeadingSpans<'a> {
    leaves: &'a [CostedLeaf<'a>],
    at: usize,
    path: HeadingPath,
}

impl Iterator for HeadingSpans<'_> {
    type Item = HeadingSpan;

    fn next(&mut self) -> Option<HeadingSpan> {
        let start = self.at;
        while self.leaves.get(self.at).is_some_and(|leaf| self.path.enter(&leaf.leaf.kind)) {
            self.at += 1;
        }
        let is_heading = |leaf: &CostedLeaf<'_>| matches!(leaf.leaf.kind, LeafKind::Heading { .. });
        self.at += self.leaves[self.at..].iter().take_while(|leaf| !is_heading(leaf)).count();
        let leaves = start..self.at;
        (!leaves.is_empty()).then(|| HeadingSpan {
            cost: self.leaves[leaves.clone()].iter().map(|leaf| leaf.cost).sum(),
            path: self.path.titles(),
            leaves,
        })
    }
}

#[cfg(test)]
mod tests;
