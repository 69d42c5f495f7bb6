//! Measures how well a unit fits a question, by features that can be explained, and weighs them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::MAX_LINES;
use crate::base::word::count_words;
use crate::kb::embed::Matches;
use crate::research::unit::{Unit, UnitKind};

/// Consecutive sentences that are compared with the question as one.
const WINDOW: usize = 2;

/// Weight of a question word that occurs only in a unit's headings or title.
const ABOUT: f32 = 0.7;

/// Number of words above which a longer unit no longer scores higher.
const FULL_WORDS: f32 = 60.0;

/// Fullness below which the vector of a unit is mostly that of its headings.
const LEAST_FULL: f32 = 0.2;

/// Phrases of a sentence that points to a text instead of stating its content.
const POINTING: [&str; 24] = [
    "following topics", "following articles", "you can find", "can be found", "more information",
    "further information", "read more", "learn more", "more about", "please see", "see our ", "see the ", "this page",
    "handbook page", "refer to ", "see also", "listed there", "listed here", "listed in ", "described in ",
    "explained in ", "documented in ", "covered in ", " here.",
];

/// Phrases for doubt, and for asking a person. A sentence with both says whom to ask instead of stating the rule.
const IN_DOUBT: [&str; 7] = [
    "if you're unsure", "if you're uncertain", "if you're not sure", "if you are unsure", "if you are uncertain",
    "if you are not sure", " in doubt,",
];
const ASKING: [&str; 9] =
    ["ask ", "check with", "consult", "contact", "disclose", "email", "reach out", "speak to", "talk to"];

/// Headings above links to other texts.
const CONTENTS: [&str; 9] = [
    "additional resources", "contents", "further reading", "in this article", "in this section", "related articles",
    "related content", "related topics", "see also",
];

/// Share of the characters of a paragraph from which it is code without its fence, and these characters.
const LEAST_CODE: f32 = 0.06;
const CODE_SIGNS: &str = "{}[]<>\"=;\\$";

/// Openings of a sentence that only points.
const ONLY_POINTING: [&str; 9] = [
    "for more information",
    "for further information",
    "for information",
    "for details",
    "see ",
    "please see",
    "refer to ",
    "learn more",
    "read more",
];

/// The stems of a question with their weights: inverse document frequency over the units.
pub(super) type Weights = HashMap<String, f32>;

/// Number of [`Features::values`].
const COUNT: usize = 19;

/// A further unit is left out if its score is lower than the best by more than this: the best is then twice as likely to
/// answer (scores are log odds). By the features alone, 189 of 240 questions on ten folders then get their full answer,
/// and 60 of the 155 whose best unit has all of it get another beside it. With 1.2 it is 192 and 79, with 0.6 it is 183
/// and 46. Readers were misled by the others more often than helped.
pub(super) const MARGIN: f32 = 0.8;

/// Weights of the features: a softmax over the units of each question, as `just fit-units` fits them.
///
/// Fitted on 2026-11-25 to 108 questions on four folders (the Rust book, a company's handbook, manuals of PowerShell
/// and of Windows drivers) and 74 of `tests/answers`, with a strong ridge penalty. A unit counted by its share of the
/// answer, found by patterns. With one set left out and a [`MARGIN`] of 1.8, the units shown contain the full
/// answer to 149 of the 182. The 74 include the questions held out there; without these no weight moves by more than
/// 0.24. `open`, `links` and `opposes` are set by hand, since the sets have few of them. `similar` was added on
/// 2026-11-28 and measured on 147 questions of readers on 18 folders: with it, the first unit answers 103 of them,
/// without it 96. On 2026-11-29 `hit`, `section`, `suits`, `points` and `lacks` were moved towards what a fit to 182
/// questions of readers on 11 folders gives: the first unit answers 114 of them, before 110.
pub(super) const WEIGHTS: [f32; COUNT] =
    [2.0, 1.46, 1.6, 1.92, 2.0, 0.84, 2.4, 0.87, 1.0, 2.38, -0.8, -1.5, -0.65, -0.8, -1.5, -1.5, 0.79, -2.4, 4.0];

/// The same without an embedder for the question's language: 142 of the 182.
const WEIGHTS_BY_WORDS: [f32; COUNT] =
    [2.73, 2.27, 1.29, 0.0, 0.0, 0.0, 0.0, 0.93, 0.79, 2.38, -0.8, -1.55, -0.88, -0.8, -0.5, -0.8, 1.15, -2.4, 0.0];

/// Measurements of a unit, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Features {
    /// Score of the hit that contains it, relative to the best. A neighbour of a hit counts a little less.
    hit: f32,
    /// Share of the question's words in it, weighted by rarity; words of its headings count less.
    words: f32,
    /// Share of the question's words in its section: a unit needs the units around it.
    pub(super) section: f32,
    /// `MaxSim` of the question in its headings and the best two sentences.
    meaning: f32,
    /// `MaxSim` of the question in all of it.
    whole: f32,
    /// `MaxSim` of the question in its headings.
    about: f32,
    /// `MaxSim` of the word of the question that matches it worst.
    least: f32,
    /// Length, up to [`FULL_WORDS`].
    fullness: f32,
    /// Whether it contains the requested kind of answer.
    suits: f32,
    /// How well it matches the requested form.
    form: f32,
    /// Whether it is a paragraph of a few words, or of one sentence that ends with a colon or is a question.
    open: f32,
    /// Whether it is a paragraph of a few words.
    short: f32,
    /// Whether it is code that no sentence explains or no fence encloses, or more than a screen of code.
    code: f32,
    /// Whether it is a list of links: a table of contents.
    links: f32,
    /// Share of its sentences that point elsewhere.
    points: f32,
    /// Share of the question's code words that neither it nor its headings have, counting only those that some unit
    /// has.
    pub(super) lacks: f32,
    /// Share of the question's words in the heading right above it, if that has no other words.
    pub(super) named: f32,
    /// Whether it is about the opposite of the question.
    pub(super) opposes: f32,
    /// Cosine similarity of the question to the whole unit with its headings; less for a unit of a few words.
    similar: f32,
}

impl Features {
    /// Measures a unit by its words, given their share in it, whether it has the requested kind of answer, how well it
    /// matches the requested form, and the score of its hit.
    #[expect(clippy::cast_precision_loss, reason = "a unit has a few hundred words")]
    pub(super) fn of(unit: &Unit, document: &str, words: f32, (suits, form): (bool, f32), hit: f32) -> Self {
        let text = &document[unit.range.clone()];
        let count = count_words(text);
        let (is_code, is_prose) = (unit.kind == UnitKind::Code, unit.kind == UnitKind::Paragraph);
        // Of several sentences, the first may answer, whatever the last announces.
        let leads_on = unit.sentences.len() < 2 && text.trim_end_matches(['*', '_']).ends_with([':', '?']);
        // "No." below a question is complete.
        let is_answer = unit.headings.last().is_some_and(|heading| heading.ends_with('?'));
        let is_open = is_prose && !is_answer && (leads_on || count < 6);
        let is_bare = unit.sentences.is_empty() || text.lines().count() > MAX_LINES;
        let pointing = unit.sentences.iter().filter(|sentence| points(&sentence.plain)).count();
        let flag = |is: bool| f32::from(u8::from(is));
        // "It must export the following functions:" is no table of contents.
        let head = text.get(..unit.head().len()).unwrap_or_default();
        let is_requested = form >= 1.0 && !head.trim().is_empty() && !points(head);
        let has_links = text.matches("](").count() * 4 > count || lists_links(text) || is_contents(unit, document);
        Self {
            hit,
            words,
            fullness: (count as f32 / FULL_WORDS).min(1.0),
            suits: flag(suits),
            form,
            open: flag(is_open),
            short: flag(is_prose && count < 12 && !is_open && !is_answer && form == 0.0),
            code: flag(is_code && is_bare || is_prose && reads_as_code(text)),
            links: flag(has_links && !is_requested),
            points: pointing as f32 / unit.sentences.len().max(1) as f32,
            ..Self::default()
        }
    }

    /// Adds how well the question matches the headings of a unit, which are the first part, and its sentences. `read` are
    /// the parts that are read together: all, or those of each piece of a long list.
    pub(super) fn add_meaning(&mut self, matches: &Matches, read: &[Vec<usize>]) {
        let least = |parts: &Vec<usize>| matches.by_word(parts.iter().copied()).into_iter().fold(1.0, f32::min);
        self.meaning = matches.best_window(WINDOW);
        self.whole = read.iter().map(|parts| matches.max_sim(parts.iter().copied())).fold(0.0, f32::max);
        self.about = matches.max_sim(0..1);
        self.similar = matches.similarity() * (self.fullness / LEAST_FULL).min(1.0);
        self.least = read.iter().map(least).fold(0.0, f32::max);
    }

    /// Returns whether it has the requested form.
    pub(super) fn has_form(&self) -> bool {
        self.form > 0.0
    }

    /// Returns the share of the question's words in the unit and its headings.
    pub(super) fn says(&self) -> f32 {
        self.words
    }

    /// Returns the score: the log odds against the other units, up to a constant.
    pub(super) fn score(&self) -> f32 {
        self.values().iter().zip(self.weights()).map(|((_, value), weight)| value * weight).sum()
    }

    /// Returns the score relative to that of a unit which has the whole question, from 0 to 1.
    pub(super) fn fit(&self) -> f32 {
        let most: f32 = self.weights().iter().map(|weight| weight.max(0.0)).sum();
        (self.score() / most).clamp(0.0, 1.0)
    }

    fn weights(&self) -> &'static [f32; COUNT] {
        // Zero unless [`Self::add_meaning`] has compared the unit with an embedder.
        if self.whole > 0.0 { &WEIGHTS } else { &WEIGHTS_BY_WORDS }
    }

    /// Returns the features with their names, in the order of the weights.
    pub(super) fn values(&self) -> [(&'static str, f32); COUNT] {
        [
            ("hit", self.hit),
            ("words", self.words),
            ("section", self.section),
            ("meaning", self.meaning),
            ("whole", self.whole),
            ("about", self.about),
            ("least", self.least),
            ("fullness", self.fullness),
            ("suits", self.suits),
            ("form", self.form),
            ("open", self.open),
            ("short", self.short),
            ("code", self.code),
            ("links", self.links),
            ("points", self.points),
            ("lacks", self.lacks),
            ("named", self.named),
            ("opposes", self.opposes),
            ("similar", self.similar),
        ]
    }
}

/// Writes the features that are not zero.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = self.values().into_iter().filter(|(_, value)| *value != 0.0);
        values.try_for_each(|(name, value)| write!(f, "{name}={value:.2} "))
    }
}

/// Returns the share of the words of the question that a text has. A word that only `about` has, its headings and
/// title, counts [`ABOUT`] times.
pub(super) fn share(weights: &Weights, words: &HashSet<String>, about: &HashSet<String>) -> f32 {
    let total: f32 = weights.values().sum::<f32>().max(f32::EPSILON);
    let part = |(stem, weight): (&String, &f32)| match () {
        () if words.contains(stem) => *weight,
        () if about.contains(stem) => weight * ABOUT,
        () => 0.0,
    };
    weights.iter().map(part).sum::<f32>() / total
}

/// Returns whether a paragraph is code without its fence, as in texts copied from a web page.
#[expect(clippy::cast_precision_loss, reason = "a paragraph is short")]
fn reads_as_code(text: &str) -> bool {
    // Links and code spans have such signs as well, and prose has quotation marks.
    let is_prose = text.contains("](") || text.contains('`') || !text.contains(['{', '=']);
    !is_prose && text.matches(|letter| CODE_SIGNS.contains(letter)).count() as f32 >= LEAST_CODE * text.len() as f32
}

/// Returns whether each item of a list is a link and nothing else.
pub(super) fn lists_links(text: &str) -> bool {
    let items = text.lines().filter_map(|line| line.trim_start().strip_prefix(['-', '*', '+']));
    let items: Vec<_> = items.map(str::trim).filter(|item| !item.starts_with('*')).collect();
    let is_link = |item: &&str| {
        let target = item.strip_prefix('[').and_then(|link| link.split_once("](")).map(|(_, target)| target);
        target.is_some_and(|target| target.ends_with(')') && !target.contains(' '))
    };
    items.len() > 1 && items.iter().all(is_link)
}

/// Returns whether a unit is a table of contents: below a heading for links, most of its items or rows begin with one.
pub(super) fn is_contents(unit: &Unit, document: &str) -> bool {
    let is_heading = |heading: &String| CONTENTS.contains(&heading.to_lowercase().as_str());
    unit.headings.last().is_some_and(is_heading) && is_of_links(unit, document)
}

/// Returns whether most items or rows of a unit begin with a link.
pub(super) fn is_of_links(unit: &Unit, document: &str) -> bool {
    let links = unit.pieces.iter().filter(|piece| opens_with_link(&document[(*piece).clone()])).count();
    links * 2 > unit.pieces.len()
}

/// Returns whether an item or a row begins with a link.
pub(super) fn opens_with_link(piece: &str) -> bool {
    let cell = piece.trim_start_matches(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '[' | '<'));
    let cell = ["<tr", "<td", "<p", "<b", "<strong"].iter().fold(cell, |cell, tag| match cell.strip_prefix(tag) {
        Some(rest) => rest.split_once('>').map_or(rest, |(_, rest)| rest.trim_start()),
        None => cell,
    });
    cell.starts_with('[') || cell.starts_with("<a ")
}

/// Returns whether each item of a list is a link to a heading of the same text: a table of contents.
pub(super) fn lists_anchors(text: &str) -> bool {
    let mut items = text.lines().filter(|line| line.trim_start().starts_with(['-', '*', '+']));
    lists_links(text) && items.all(|item| item.contains("](#"))
}

/// Returns whether a sentence only points to a text.
pub(in crate::research) fn only_points(sentence: &str) -> bool {
    let said = sentence.to_lowercase();
    ONLY_POINTING.iter().any(|opening| said.starts_with(opening))
}

/// Returns whether a sentence points to a text instead of stating its content.
pub(super) fn points(sentence: &str) -> bool {
    let said = sentence.to_lowercase();
    POINTING.iter().any(|mark| said.contains(mark)) || is_for_doubts(sentence)
}

/// Returns whether a sentence says whom to ask in doubt.
pub(super) fn is_for_doubts(sentence: &str) -> bool {
    let said = sentence.to_lowercase().replace('’', "'");
    IN_DOUBT.iter().any(|phrase| said.contains(phrase)) && ASKING.iter().any(|phrase| said.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_a_fence_is_told_by_its_signs() {
        assert!(reads_as_code("lamp = { \"oil\": [1, 2] }; lamp[0] = \"red\";"));
        assert!(!reads_as_code("It burns \"oil\" (see below); <10 hours.") && !reads_as_code("[a](b) `{}` {c} [d]"));
    }
}
