//! A [`Document`] becomes [`Chunk`]s: passages with a heading path and a byte range.
//!
//! ```text
//! document ──▶ leaves ──▶ sections ──▶ units ──▶ chunks
//!              outline    (here)       unit      packing
//! ```
//!
//! A chunk is a run of blocks under one heading path. Its text is a slice of the file, byte for byte; what is embedded
//! is that slice with the names of what lies around it in front, see [`embed_text`]. Together the chunks of a document
//! hold everything in its body but white space. Time and memory grow with the size of the file, not with its nesting.

mod outline;
mod packing;
mod unit;

use std::ops::Range;

use self::outline::LeafKind;
use self::packing::Packer;
use self::unit::{CostedLeaf, UnitCutter, cost};
use crate::base::token::CountTokens;
use crate::kb::document::Document;

/// Goes up with every change that makes other chunks of the same file.
pub const CHUNKER_VERSION: u32 = 1;

/// How long chunks are to be, in the embedder's own tokens.
#[derive(Debug, Clone, Copy)]
pub struct ChunkOptions {
    /// What the embedder takes, without the special tokens it adds; no embedded text is longer. At least
    /// [`Self::MIN_TOKENS`], or less is not promised.
    pub max_tokens: usize,
    /// What a chunk is filled to: 80–90 % of [`Self::max_tokens`].
    pub target_tokens: usize,
}

impl ChunkOptions {
    /// The smallest window that leaves room for text beside the longest header.
    pub const MIN_TOKENS: usize = 128;
}

/// A passage of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The headings above the passage, the outermost first.
    pub heading_path: Vec<String>,
    /// The passage, byte for byte as in the document's text.
    pub text: String,
    /// Where it is in the document's text.
    pub bytes: Range<usize>,
    /// The line of the file it begins on, counted from 1; lines end at `\n`.
    pub line_start: u32,
    /// The line of the file it ends on.
    pub line_end: u32,
    /// For a passage from inside a fence or table: the opening line, or the header and delimiter rows.
    pub context: Option<String>,
    /// Tokens of the embedded text.
    pub tokens: usize,
}

/// Cuts a document into chunks, in the order of the text.
pub fn chunk(document: &Document, counter: &dyn CountTokens, options: &ChunkOptions) -> Vec<Chunk> {
    let leaves = outline::leaves(document);
    let ends = leaves.iter().skip(1).map(|leaf| leaf.start).chain([document.body.end]);
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

/// Returns what is embedded for a passage: its title and headings, what it needs from above, and the passage.
///
/// The title is left out where the first heading says the same. A header of absurd length is cut, the outermost
/// headings first.
pub fn embed_text(title: Option<&str>, heading_path: &[String], context: Option<&str>, text: &str) -> String {
    let mut embedded = header(title, heading_path);
    if let Some(context) = context {
        embedded.push_str(context);
        embedded.push('\n');
    }
    embedded.push_str(text);
    embedded
}

/// What a header may weigh, and a single name in it; about sixty tokens of English, and never more than half.
const MAX_HEADER_WEIGHT: usize = 240;
const MAX_NAME_WEIGHT: usize = 120;

/// Returns `title › H1 › H2` and a line end, or nothing.
fn header(title: Option<&str>, heading_path: &[String]) -> String {
    let title = title.filter(|title| heading_path.first().is_none_or(|first| first != title));
    let title = title.map(|title| lightened(title, MAX_NAME_WEIGHT));
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

/// Weighs a name without a tokenizer, so that the embedded text is the same for every embedder.
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

/// Sections that are cut into chunks together.
struct Group<'a> {
    leaves: &'a [CostedLeaf<'a>],
    path: Vec<String>,
}

/// A section: a heading and what follows it up to the next one; headings without a text of their own go with the next.
struct Section {
    leaves: Range<usize>,
    path: Vec<String>,
    cost: usize,
}

/// Puts each section in a group of its own, but for those of a line or two.
fn groups<'a>(leaves: &'a [CostedLeaf<'a>], options: &ChunkOptions) -> impl Iterator<Item = Group<'a>> {
    let mut sections = Sections { leaves, at: 0, path: HeadingPath::default() }.peekable();
    let target = options.target_tokens;
    std::iter::from_fn(move || {
        let mut group = sections.next()?;
        let mut longest = group.cost;
        let depth = group.path.len();
        // What comes after the end of the parent section is about something else.
        let goes_along = |group: &Section, next: &Section| next.path.len() >= depth && goes_with(group, next, target);
        while let Some(next) = sections.next_if(|next| goes_along(&group, next)) {
            group.path = merged_path(&group, &next, longest);
            longest = longest.max(next.cost);
            group.leaves.end = next.leaves.end;
            group.cost += next.cost;
        }
        Some(Group { leaves: &leaves[group.leaves], path: group.path })
    })
}

/// Whether one of them is tiny and both fit in a chunk.
fn goes_with(group: &Section, next: &Section, target: usize) -> bool {
    let tiny = target / 8;
    // The header takes its share of the target.
    let fits = group.cost + next.cost <= target - target / 4;
    fits && (group.cost <= tiny || next.cost <= tiny)
}

/// Returns the heading path of the longest section if it is half of the whole, else what all have in common.
fn merged_path(group: &Section, next: &Section, longest: usize) -> Vec<String> {
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

/// Returns the headings above a line of a document, counted from 1; a heading stands above its own line.
///
/// A chunk of several small sections has one heading path for all of them; this is the one of a line.
pub fn headings_above(document: &Document, line: u32) -> Vec<String> {
    let before = (line as usize).saturating_sub(1);
    let line_ends = document.text.match_indices('\n').map(|(at, _)| at + 1);
    let line_start = std::iter::once(0).chain(line_ends).nth(before).unwrap_or(document.text.len());
    let mut above = HeadingPath::default();
    for leaf in outline::leaves(document).iter().take_while(|leaf| leaf.start <= line_start) {
        above.enter(&leaf.kind);
    }
    above.titles()
}

/// The headings above a place in a document, with their levels.
#[derive(Default)]
struct HeadingPath(Vec<(u8, String)>);

impl HeadingPath {
    /// Notes a heading; tells whether it was one.
    fn enter(&mut self, kind: &LeafKind) -> bool {
        let LeafKind::Heading { level, title } = kind else {
            return false;
        };
        self.0.retain(|(above, _)| above < level);
        if !title.is_empty() {
            self.0.push((*level, title.clone()));
        }
        true
    }

    fn titles(&self) -> Vec<String> {
        self.0.iter().map(|(_, title)| title.clone()).collect()
    }
}

/// Walks over the sections of a document.
struct Sections<'a> {
    leaves: &'a [CostedLeaf<'a>],
    at: usize,
    path: HeadingPath,
}

impl Iterator for Sections<'_> {
    type Item = Section;

    fn next(&mut self) -> Option<Section> {
        let start = self.at;
        while self.leaves.get(self.at).is_some_and(|leaf| self.path.enter(&leaf.leaf.kind)) {
            self.at += 1;
        }
        let is_heading = |leaf: &CostedLeaf<'_>| matches!(leaf.leaf.kind, LeafKind::Heading { .. });
        self.at += self.leaves[self.at..].iter().take_while(|leaf| !is_heading(leaf)).count();
        let leaves = start..self.at;
        (!leaves.is_empty()).then(|| Section {
            cost: self.leaves[leaves.clone()].iter().map(|leaf| leaf.cost).sum(),
            path: self.path.titles(),
            leaves,
        })
    }
}

#[cfg(test)]
mod tests;
