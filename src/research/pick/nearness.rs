//! How close a unit is to the subject of a question, judged by titles and headings.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::sought::Sought;
use crate::base::word::WordSplitter;
use crate::research::unit::{Unit, UnitKind};
use crate::source::Passage;

/// Minimum number of words of a paragraph that can open a note or section.
const OPENING_WORDS: usize = 10;

/// Words of a title that name no subject: "Working with Scans", "Introduction to Pumps", "Creating a Valve".
const NO_SUBJECT: [&str; 11] = [
    "about", "configuring", "creating", "guide", "introduction", "introducing", "managing", "overview",
    "understanding", "using", "working",
];

/// Their stems. Every heading of the documents found is compared with them.
static NO_SUBJECT_STEMS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let splitter = WordSplitter::default();
    NO_SUBJECT.iter().map(|word| splitter.stem(word)).collect()
});

/// Returns whether a title or heading names the subject: it has all of its words, and few others.
pub(super) fn names_subject(heading: &str, sought: &Sought<'_>) -> bool {
    let stems = &sought.stems;
    // "Scans in Mills" is about scans.
    let part = [" in ", " on ", " for "].iter().filter_map(|link| heading.split_once(link)).map(|(part, _)| part);
    // Beside another word, a single one often means something else: "Scan costs".
    let most = if stems.len() == 1 { 1 } else { 2 * stems.len() };
    let names = |heading: &str| {
        let mut words = sought.splitter.key_stems(heading);
        words.retain(|word| !NO_SUBJECT_STEMS.contains(word));
        stems.iter().all(|stem| words.contains(stem)) && words.len() <= most
    };
    !stems.is_empty() && part.chain([heading]).any(names)
}

/// How close a unit is to the subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Nearness {
    /// In a note whose title names it.
    Note,
    /// In a section whose heading names it, at this depth.
    Section(usize),
    #[default]
    Elsewhere,
}

impl Nearness {
    pub(super) fn of(document: &Passage, unit: &Unit, sought: &Sought<'_>) -> Self {
        if names_subject(document.place.title(), sought) {
            return Self::Note;
        }
        unit.headings.iter().position(|heading| names_subject(heading, sought)).map_or(Self::Elsewhere, Self::Section)
    }

    pub(super) fn is_on_subject(self) -> bool {
        self != Self::Elsewhere
    }
}

/// Returns whether a unit can open a note or section: a paragraph, or code with one above it.
pub(super) fn can_open(unit: &Unit, text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().count();
    let leads = || unit.sentences.first().filter(|first| first.range.start == unit.range.start);
    match unit.kind {
        UnitKind::Paragraph => words(&text[unit.range.clone()]) >= OPENING_WORDS,
        UnitKind::Code => leads().is_some_and(|first| words(&first.plain) >= OPENING_WORDS),
        UnitKind::List { .. } | UnitKind::Table | UnitKind::Callout => false,
    }
}
