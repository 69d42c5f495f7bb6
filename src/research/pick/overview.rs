//! Picks the units of an overview: the best of each section on its subject, first those of a note that is about it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::Kept;
use super::candidate::{UnitCandidate, lines_of};
use super::choice::{SAME_WORDS, common};
use super::extent::{cut_loose_end, shorten};
use super::features::Weights;
use super::sought::Sought;
use crate::research::unit::{Unit, UnitKind};

/// Texts of an overview, and those of notes that are about its subject.
const MAX_TEXTS: usize = 10;
const MAX_OWN_TEXTS: usize = 6;

/// Lines of an overview, and of a paragraph in it.
const MAX_LINES: usize = 64;
const PARAGRAPH_LINES: usize = 6;

/// A further unit is left out if its score is lower than the best by more than this. Each is about something else.
const MARGIN: f32 = 3.0;

/// Words of a paragraph that can open an overview.
const OPENING_WORDS: usize = 10;

/// Returns whether a unit stands in a note about the subject: its title has all words of it and no others.
pub(super) fn is_about(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, subject: &Weights) -> bool {
    let title = sought.splitter.key_stems(candidate.reading.document.place.title());
    title.iter().all(|stem| subject.contains_key(stem)) && subject.keys().all(|stem| title.contains(stem))
}

/// Keeps of each section the best unit, given the best first. The section that opens a note about the subject keeps its
/// first paragraph.
pub(super) fn keep_one_of_each_section(
    candidates: &mut Vec<UnitCandidate<'_>>,
    sought: &Sought<'_>,
    subject: &Weights,
) {
    let mut openings: HashMap<usize, &Unit> = HashMap::new();
    for own in candidates.iter().filter(|own| is_about(own, sought, subject)) {
        if own.unit.kind == UnitKind::Paragraph && own.text().split_whitespace().count() >= OPENING_WORDS {
            let first = openings.entry(own.rank).or_insert(&own.unit);
            if own.unit.range.start < first.range.start {
                *first = &own.unit;
            }
        }
    }
    let openings: HashMap<_, _> =
        openings.into_iter().map(|(rank, unit)| ((rank, unit.section), unit.range.start)).collect();
    let mut sections = HashSet::new();
    candidates.retain(|own| {
        let section = (own.rank, own.unit.section);
        openings.get(&section).is_none_or(|start| own.unit.range.start == *start) && sections.insert(section)
    });
}

/// Returns the units of an overview, as far as they fit on two screens: those that name its subject, or whose headings
/// do. The document with the best is first, each in its own order. `all` are the units of the sections found, each with
/// the rank of its document.
pub(super) fn overview<'a>(
    mut candidates: Vec<UnitCandidate<'a>>,
    all: &[(usize, Unit)],
    sought: &Sought<'_>,
    subject: &Weights,
) -> Vec<Kept<'a>> {
    let is_about = |candidate: &UnitCandidate<'_>| is_about(candidate, sought, subject);
    let names = |candidate: &UnitCandidate<'_>| candidate.features.says() > 0.0;
    let has_name = candidates.iter().any(names);
    let least = candidates.first().map_or(0.0, |best| best.features.score() - MARGIN);
    candidates.retain(|own| is_about(own) || own.features.score() >= least && (!has_name || names(own)));
    candidates.sort_by_key(|own| !is_about(own));
    let mut kept: Vec<UnitCandidate<'_>> = Vec::new();
    let (mut lines, mut of_note) = (0, 0);
    for candidate in candidates {
        let is_same = |known: &UnitCandidate<'_>| common(&known.words, &candidate.words) > SAME_WORDS;
        let (own, is_of_note) = (lines_of(&candidate, PARAGRAPH_LINES) + 1, is_about(&candidate));
        let fits = kept.is_empty() || lines + own <= MAX_LINES;
        if fits && kept.len() < MAX_TEXTS && (!is_of_note || of_note < MAX_OWN_TEXTS) && !kept.iter().any(is_same) {
            lines += own;
            of_note += usize::from(is_of_note);
            kept.push(candidate);
        }
    }
    let ranks: Vec<_> = kept.iter().map(|own| own.rank).collect();
    let place = |rank| ranks.iter().position(|own| *own == rank);
    kept.sort_by_key(|own| (place(own.rank), own.unit.range.start));
    let shown = kept.into_iter().map(|mut candidate| {
        shorten(&mut candidate, PARAGRAPH_LINES, PARAGRAPH_LINES, None);
        cut_loose_end(&mut candidate);
        let heading = heading(&candidate, all);
        Kept { heading, ..Kept::of(candidate, sought, subject) }
    });
    shown.collect()
}

/// Returns the line of the heading above a unit, if the unit does not begin with it.
fn heading(candidate: &UnitCandidate<'_>, all: &[(usize, Unit)]) -> Option<Range<usize>> {
    let is_of_section =
        |(rank, unit): &&(usize, Unit)| *rank == candidate.rank && unit.section == candidate.unit.section;
    let start = all.iter().filter(is_of_section).find_map(|(_, unit)| unit.heading)?;
    let line = candidate.reading.document.text[start..].lines().next()?.trim_end();
    (start < candidate.unit.range.start).then_some(start..start + line.len())
}
