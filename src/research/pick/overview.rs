//! Picks the units of an overview: the best of each section on its subject, starting with a note about it.

use std::collections::{HashMap, HashSet};

use super::Kept;
use super::candidate::{SAME_WORDS, UnitCandidate, common, lines_of};
use super::extent::{cut_loose_end, shorten};
use super::features::{Weights, lists_links};
use super::nearness::Nearness;
use super::sought::Sought;

/// Maximum number of texts in an overview, and of those from notes about its subject.
const OVERVIEW_TEXTS: usize = 10;
const MAX_OWN_TEXTS: usize = 6;

/// Maximum number of lines of an overview, and of a paragraph in it.
const OVERVIEW_LINES: usize = 64;
const PARAGRAPH_LINES: usize = 6;

/// A further unit is left out if its score is lower than the best by more than this. Each is about something else.
const OVERVIEW_MARGIN: f32 = 3.0;

/// Maximum number of texts of a section beside its opening.
const OPENING_TEXTS: usize = 2;

/// Keeps the best unit of each section, and more of a section that opens with the subject. Takes the units best
/// first, and puts openings first.
pub(super) fn keep_best(candidates: &mut Vec<UnitCandidate<'_>>) {
    let opened: HashSet<_> = candidates.iter().filter(|own| own.is_opening).map(UnitCandidate::section).collect();
    let mut kept: HashMap<_, usize> = HashMap::new();
    candidates.retain(|own| {
        let count = kept.entry(own.section()).or_default();
        let most = if opened.contains(&own.section()) { OPENING_TEXTS } else { 1 };
        let is_kept = own.is_opening || *count < most;
        *count += usize::from(is_kept && !own.is_opening);
        is_kept
    });
    candidates.sort_by_key(|own| !own.is_opening);
}

/// Returns the units of an overview, as far as they fit on two screens: those that name its subject, or whose headings
/// do. The document with the best unit comes first; units keep the order of their document.
pub(super) fn overview<'a>(
    mut candidates: Vec<UnitCandidate<'a>>,
    sought: &Sought<'_>,
    subject: &Weights,
) -> Vec<Kept<'a>> {
    let names = |candidate: &UnitCandidate<'_>| candidate.features.says() > 0.0;
    let has_name = candidates.iter().any(names);
    let least = candidates.first().map_or(0.0, |best| best.features.score() - OVERVIEW_MARGIN);
    // A sentence that leads into links, which are not shown, says nothing.
    let is_stub = |own: &UnitCandidate<'_>| {
        own.unit.sentences.len() == 1 && own.text().starts_with("The following ") || lists_links(own.text())
    };
    candidates.retain(|own| {
        let is_near = own.features.score() >= least && (!has_name || names(own));
        (own.nearness.is_on_subject() || is_near) && !is_stub(own)
    });
    // A stable sort: of two units at the same distance, the better one stays first.
    candidates.sort_by_key(|own| match (own.nearness, own.is_opening) {
        (Nearness::Note, true) => 0,
        (Nearness::Note, false) => 1,
        (Nearness::Section(_), true) => 2,
        (Nearness::Section(_), false) | (Nearness::Elsewhere, _) => 3,
    });
    let mut kept: Vec<UnitCandidate<'_>> = Vec::new();
    let (mut lines, mut of_note) = (0, 0);
    for candidate in candidates {
        let is_same = |known: &UnitCandidate<'_>| common(&known.words, &candidate.words) > SAME_WORDS;
        let (own, is_of_note) = (lines_of(&candidate, PARAGRAPH_LINES) + 1, candidate.nearness == Nearness::Note);
        let fits = kept.is_empty() || lines + own <= OVERVIEW_LINES;
        if fits && kept.len() < OVERVIEW_TEXTS && (!is_of_note || of_note < MAX_OWN_TEXTS) && !kept.iter().any(is_same)
        {
            lines += own;
            of_note += usize::from(is_of_note);
            kept.push(candidate);
        }
    }
    let ranks: Vec<_> = kept.iter().map(|own| own.rank).collect();
    let place = |rank| ranks.iter().position(|own| *own == rank);
    // The section on the subject comes before the rest of its document.
    kept.sort_by_key(|own| (place(own.rank), own.nearness, own.unit.range.start));
    let shown = kept.into_iter().map(|mut candidate| {
        shorten(&mut candidate, PARAGRAPH_LINES, PARAGRAPH_LINES, None);
        cut_loose_end(&mut candidate);
        Kept::of(candidate, sought, subject)
    });
    shown.collect()
}
