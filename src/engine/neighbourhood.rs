//! The context of a passage: its section, the outline of its document, and the notes linked with it.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::links::NoteName;
use super::passage::{Excerpt, Extent, Selector};
use super::{Engine, EngineError};
use crate::base::id::DocumentId;
use crate::base::line::{counted, shortened};
use crate::base::token::{CountTokens, Encoding, TokenCounter, lines_within};
use crate::kb::links::{LinkMap, LinkedNote};
use crate::kb::search::Hit;
use crate::kb::structure::Heading;

/// Maximum number of notes that a [`Neighbourhood`] names in each direction.
const MAX_NEIGHBOURS: usize = 8;

/// The context of a passage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Neighbourhood {
    /// The section of the passage. Left out if the passage is its section, or an earlier result has its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) section: Option<SectionText>,
    /// The headings of its document; empty if an earlier result is of the same document.
    pub(crate) outline: Vec<Heading>,
    /// The first notes that its document links to; empty as the outline is.
    pub(crate) links: Vec<NoteName>,
    /// The first notes that link to its document; empty as the outline is.
    pub(crate) backlinks: Vec<NoteName>,
    /// What was left out to keep the result short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<String>,
}

/// Text of a section.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SectionText {
    /// First line of the text, from 1.
    pub(crate) line_start: u32,
    /// Last line, inclusive.
    pub(crate) line_end: u32,
    /// Verbatim.
    pub(crate) text: String,
}

impl Engine {
    /// Returns the context of each hit, whole.
    pub(crate) async fn neighbourhoods(&self, hits: &[Hit]) -> Result<Vec<Neighbourhood>, EngineError> {
        let neighbours = self.neighbours().await?;
        let mut found = Vec::new();
        for hit in hits {
            let section = Some(self.section(hit).await?.into());
            found.push(Neighbourhood { section, ..neighbours.of(&hit.document_id) });
        }
        Ok(found)
    }

    /// Returns the context of each hit, limited to about `most` tokens in total. Lines and documents that an earlier
    /// hit has shown are not repeated. Of a section that is too long, the lines from the passage on are kept.
    pub(crate) async fn neighbourhoods_within(
        &self,
        hits: &[Hit],
        most: usize,
    ) -> Result<Vec<Neighbourhood>, EngineError> {
        let neighbours = self.neighbours().await?;
        let (mut left, mut shown, mut described) = (most, Vec::new(), HashSet::new());
        let mut found = Vec::new();
        for (at, hit) in hits.iter().enumerate() {
            // Room that a hit leaves unused goes to the following ones.
            let mut room = Room::new(left / (hits.len() - at));
            left -= room.left;
            let is_new = described.insert(&hit.document_id);
            let around = if is_new { neighbours.of(&hit.document_id) } else { Neighbourhood::default() };
            let is_shown = |(document, from, to): &(&DocumentId, u32, u32)| {
                *document == &hit.document_id && *from <= hit.line_start && hit.line_end <= *to
            };
            let (mut section, mut left_out) = (None, None);
            if !shown.iter().any(is_shown) {
                (section, left_out) = part_of(&self.section(hit).await?, (hit.line_start, hit.line_end), &mut room);
            }
            shown.extend(section.iter().map(|text| (&hit.document_id, text.line_start, text.line_end)));
            found.push(Neighbourhood { section, ..around.within(&mut room, left_out) });
            left += room.left;
        }
        Ok(found)
    }

    /// Returns the outline of a document and the notes that it is linked with, with at most about `most` tokens.
    pub(crate) async fn neighbourhood_within(
        &self,
        document: &DocumentId,
        most: usize,
    ) -> Result<Neighbourhood, EngineError> {
        Ok(self.neighbours().await?.of(document).within(&mut Room::new(most), None))
    }

    /// Reads outlines and links of the whole index, from which the context of any document is derived.
    pub(crate) async fn neighbours(&self) -> Result<Neighbours, EngineError> {
        Ok(Neighbours(self.link_map().await?))
    }

    /// Reads the section of a hit. By `get`, which reads the file while it is unchanged, and refuses what the audience
    /// may not see.
    async fn section(&self, hit: &Hit) -> Result<Excerpt, EngineError> {
        self.get(&Selector::Id(hit.id.to_string()), Extent::Section).await
    }
}

impl From<Excerpt> for SectionText {
    fn from(Excerpt { line_start, line_end, text, .. }: Excerpt) -> Self {
        Self { line_start, line_end, text }
    }
}

/// The outlines and links of an index.
pub(crate) struct Neighbours(Arc<LinkMap>);

impl Neighbours {
    /// Returns the outline of a document and the notes that it is linked with. Those are of its own collection, so they
    /// may be shown wherever the document may.
    pub(crate) fn of(&self, document: &DocumentId) -> Neighbourhood {
        let names = |notes: Vec<&LinkedNote>| notes.into_iter().take(MAX_NEIGHBOURS).map(NoteName::of).collect();
        let Self(map) = self;
        map.position(document).map_or_else(Neighbourhood::default, |at| Neighbourhood {
            outline: map.notes[at].structure.headings.clone(),
            links: names(map.linked(at)),
            backlinks: names(map.linking(at)),
            ..Neighbourhood::default()
        })
    }
}

impl Neighbourhood {
    /// Cuts outline and notes to the room that is left. `before` says how the section was cut.
    fn within(mut self, room: &mut Room, before: Option<String>) -> Self {
        for heading in &mut self.outline {
            heading.text = shortened(&heading.text);
        }
        // Notes first: they are few, and an outline can have any length.
        let notes = room.keep(&mut self.links) + room.keep(&mut self.backlinks);
        let headings = room.keep(&mut self.outline);
        let notes = (notes > 0).then(|| counted(notes, "linked note"));
        let headings = (headings > 0).then(|| counted(headings, "heading"));
        let left_out: Vec<_> = before.into_iter().chain(notes).chain(headings).collect();
        Self { left_out: (!left_out.is_empty()).then(|| left_out.join("; ")), ..self }
    }
}

/// Returns the lines of a section that fit into the room, and a note on the others. Some room is kept for the outline.
fn part_of(section: &Excerpt, passage: (u32, u32), room: &mut Room) -> (Option<SectionText>, Option<String>) {
    let most = room.left / 4 * 3;
    let whole = (section.line_start, section.line_end);
    let (mut from, mut kept) = (section.line_start, lines_within(&section.text, most));
    let last = |from: u32, kept: &str| from + u32::try_from(kept.lines().count()).unwrap_or(u32::MAX).saturating_sub(1);
    // The indexed text of a changed file has other lines than those of the passage.
    // Else the passage that was found, and for which the section is shown, would be cut off.
    if kept.len() < section.text.len() && last(from, kept) < passage.1 && !section.stale {
        from = passage.0.max(from);
        let before = section.text.split_inclusive('\n').take((from - section.line_start) as usize).map(str::len).sum();
        kept = lines_within(&section.text[before..], most);
    }
    room.left -= TokenCounter::of(Encoding::O200k).count(kept).min(room.left);
    let left_out = (kept.len() < section.text.len())
        .then(|| format!("the rest of the section, which is lines {}-{}", whole.0, whole.1));
    let line_end = if left_out.is_none() { whole.1 } else { last(from, kept).min(whole.1) };
    let text = SectionText { line_start: from, line_end, text: kept.to_owned() };
    ((!kept.is_empty()).then_some(text), left_out)
}

/// Tokens that a result may still have.
struct Room {
    left: usize,
}

impl Room {
    fn new(left: usize) -> Self {
        Self { left }
    }

    /// Cuts a list to those of its first elements that there is room for, and returns how many it loses.
    fn keep<T: Serialize>(&mut self, items: &mut Vec<T>) -> usize {
        let counter = TokenCounter::of(Encoding::O200k);
        let fits = items.iter().take_while(|item| {
            // As it is sent, with the names of its fields.
            let tokens = serde_json::to_string(item).map_or(usize::MAX, |json| counter.count(&json));
            let fits = tokens <= self.left;
            self.left -= if fits { tokens } else { 0 };
            fits
        });
        let kept = fits.count();
        let lost = items.len() - kept;
        items.truncate(kept);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(lines: u32, stale: bool) -> Excerpt {
        let text = (5..5 + lines).map(|line| format!("Line {line} of the list.\n")).collect();
        Excerpt { stale, ..Excerpt::sample(text, 4 + lines) }
    }

    fn cut(section: &Excerpt, passage: (u32, u32), most: usize) -> (u32, u32, String, Option<String>) {
        let (text, left_out) = part_of(section, passage, &mut Room::new(most));
        let SectionText { line_start, line_end, text } = text.unwrap();
        (line_start, line_end, text, left_out)
    }

    #[test]
    fn long_section_is_cut_to_lines_that_have_the_passage() {
        let (from, to, text, left_out) = cut(&section(10, false), (9, 9), 1_000);
        assert_eq!((from, to, text.lines().count(), left_out), (5, 14, 10, None));
        let said = || Some("the rest of the section, which is lines 5-904".to_owned());
        let (from, to, text, left_out) = cut(&section(900, false), (9, 9), 400);
        assert_eq!((from, text.starts_with("Line 5 "), left_out), (5, true, said()));
        assert!(text.ends_with(&format!("Line {to} of the list.\n")) && (10..100).contains(&to), "{to}");
        let (from, to, text, left_out) = cut(&section(900, false), (700, 701), 400);
        assert_eq!((from, text.starts_with("Line 700 "), left_out), (700, true, said()));
        assert!(text.ends_with(&format!("Line {to} of the list.\n")), "{to}: {text}");
        let (from, _, text, _) = cut(&section(900, true), (700, 701), 400);
        assert_eq!((from, text.starts_with("Line 5 ")), (5, true), "lines of a changed file are not those of the text");
    }

    #[test]
    fn outline_and_notes_have_no_more_tokens_than_there_is_room_for() {
        let heading = |line| Heading { line, level: 2, text: "A heading of some words".repeat(30) };
        let note = |number| NoteName {
            id: DocumentId::new("kb", &format!("{number}.md")),
            path: format!("{number}.md"),
            title: "T".into(),
        };
        let whole = Neighbourhood {
            outline: (1..=500).map(heading).collect(),
            links: (0..8).map(note).collect(),
            ..Neighbourhood::default()
        };
        let cut = whole.clone().within(&mut Room::new(2_000), Some("lines 1-9".into()));
        let tokens = TokenCounter::of(Encoding::O200k).count(&serde_json::to_string(&cut).unwrap());
        assert!(cut.links.len() == 8 && cut.outline.len() > 5 && tokens < 2_200, "{tokens}");
        let lost = 500 - cut.outline.len();
        assert_eq!(cut.left_out, Some(format!("lines 1-9; {lost} headings")));
        let none = whole.within(&mut Room::new(0), None);
        assert_eq!(none.left_out.as_deref(), Some("8 linked notes; 500 headings"));
    }
}
