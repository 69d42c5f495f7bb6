//! Picks the units of found documents that answer a question, without a model.
//!
//! A unit is scored by a few features that can be explained, such as the share of the question's words in it and how
//! well each of them matches its sentences and headings.

mod asked;

mod code_word;

mod features;

#[cfg(test)]
mod fit;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use asked::{AnswerKind, Remedy, Wanted, counted, counts, names_remedy, overview_of};
use code_word::CodeWord;
use features::{Features, Weights, points, share};

use super::evidence::{Evidence, EvidenceId};
use super::node::NodeId;
use super::question::Question;
use super::sentence::Sentence;
use super::unit::{Unit, UnitKind, ends_open, items, units, units_of_page};
use crate::base::id::DocumentId;
use crate::base::language::Language;
use crate::base::word::{WordSplitter, language_of};
use crate::kb::embed::{EmbedError, Embedder, Matches};
use crate::kb::search::UnitMatch;
use crate::source::{DocumentName, Passage, Place};

/// Most texts picked for one question. Consecutive units are one text.
const MAX_TEXTS: usize = 3;

/// Lines of all picked units together; the first may have more.
const MAX_LINES: usize = 30;

/// The same of an overview, which has one text of each section, and lines of a paragraph in it.
const OVERVIEW_TEXTS: usize = 10;
const OVERVIEW_LINES: usize = 64;
const OVERVIEW_PARAGRAPH: usize = 6;

/// As [`MARGIN`], for the sections of an overview, each of which is about something else.
const OVERVIEW_MARGIN: f32 = 3.0;

/// Lines of a paragraph above which it is cut to the sentences around the one that answers, and lines that are kept.
const LONG_PARAGRAPH: usize = 20;
const PARAGRAPH_LINES: usize = 12;

/// Lines of a section that is shown whole where its steps are asked for.
const SHORT_SECTION: usize = 12;

/// Lines of a procedure, which is read as a whole.
const MAX_STEP_LINES: usize = 32;

/// Share of the question's words, by rarity, from which a unit says most of what is asked.
const SAYS_MOST: f32 = 0.75;

/// Fewest words of a question most of which are not found together by chance.
const LEAST_WORDS: usize = 3;

/// A further unit is left out if its score is lower than the best by more than this: the best is then three times as
/// likely to answer (scores are log odds). With it 74 of 108 questions on four folders get all of their answer; with
/// 1.8 it is 78, in an eighth more words, and on the small folders of `tests/answers` a fifth instead of a seventh of
/// what is shown is beside the point.
const MARGIN: f32 = 1.2;

/// Words that open a question that is answered by yes or no. Not "was", which is "what" in German.
const OPEN_YES_OR_NO: [&str; 17] = [
    "are", "can", "could", "did", "do", "does", "had", "has", "have", "is", "may", "must", "shall", "should", "were",
    "will", "would",
];

/// Score of a unit beside a hit, relative to that of the hit.
const NEIGHBOUR: f32 = 0.85;

/// Units that are compared with the question by their tokens, best first by words and rank. Bounds the time of one
/// node.
const MAX_COMPARED: usize = 16;

/// Sentences of one unit that are compared by their tokens.
const MAX_SENTENCES: usize = 48;

/// Items or rows above which a list or table is cut to those that bear on the question.
const MAX_PIECES: usize = 14;

/// Two units that share more than this part of the smaller one's words count as duplicates.
const SAME_WORDS: f32 = 0.7;

/// Lines up to which the best unit is read on below its heading, and after one about a failure: messages are long, and
/// what to do about them comes last. With 16 lines 105 of 130 questions on five folders get all of their answer, in a
/// twentieth more words; 99 do without.
const READ_ON_TO: usize = 16;
const READ_ON_AFTER_FAILURE_TO: usize = 38;

/// Longest unit with the one it refers to, in bytes.
const MAX_EXTENDED: usize = 1_500;

/// Openings of a paragraph that is not understood without the one before it.
const REFERRING: [&str; 23] = [
    "So, ",
    "So ",
    "This ",
    "That ",
    "These ",
    "Those ",
    "It ",
    "They ",
    "However",
    "But ",
    "Also",
    "Then ",
    "Therefore",
    "Instead",
    "For example",
    "In this case",
    "As a result",
    "Here ",
    "And ",
    "Otherwise",
    "Notice ",
    "On the other hand",
    "Once ",
];

/// Openings of a lead-in that is not understood without the unit before it: "For example:" above a block of code. "These
/// are:" refers to what follows.
const REFERRING_LEAD_INS: [&str; 5] = ["For example", "For instance", "In this case", "Instead", "Otherwise"];

/// Openings of a later step of a procedure.
const CONTINUING: [&str; 16] = [
    "Then",
    "Next",
    "Now ",
    "Once ",
    "After",
    "Finally",
    "Lastly",
    "In another ",
    "By adding ",
    "By passing ",
    "When done",
    "When you are done",
    "You can then ",
    "You can also ",
    "To undo ",
    "Also",
];

/// A document with hits.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentHits {
    /// The document, or the passage alone if the document has changed since.
    pub(crate) document: Passage,
    /// Byte ranges of the hits in it, each with its score.
    pub(crate) hits: Vec<(Range<usize>, f32)>,
}

/// A unit that answers, or the parts of a long one that do.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// The sentence that answers, without Markdown.
    pub(crate) text: String,
    /// Consecutive quotes, not yet checked; one unless the unit was cut.
    pub(crate) quotes: Vec<Evidence>,
    /// Length of the last quote without what is read on after it, in bytes.
    pub(crate) own: usize,
    /// The document they are from.
    pub(crate) document: Passage,
    /// Whether it has most words of a question that has several.
    pub(crate) says_most: bool,
    /// How well it matches, if an embedder has compared it with the question.
    pub(crate) matches: Option<UnitMatch>,
}

impl Picked {
    /// Returns the quotes with their places, without what is read on after them.
    fn said(&self) -> impl Iterator<Item = (&Place, &str)> {
        let whole = self.quotes.len().saturating_sub(1);
        self.quotes.iter().enumerate().map(move |(at, Evidence { source, quote, .. })| {
            let own = if at < whole { quote.len() } else { self.own.min(quote.len()) };
            (source, &quote[..own])
        })
    }
}

/// Whether a sentence has the value that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Value {
    No,
    /// A value of that kind.
    Any,
    /// A number right before what is counted.
    Counted,
}

/// What a question asks for, worked out once for all units and sentences.
struct Sought {
    asked: AnswerKind,
    wanted: Option<Wanted>,
    /// The stem of the noun after "how many".
    counted: Option<String>,
    code_words: Vec<CodeWord>,
}

impl Sought {
    fn of(question: &str, splitter: &WordSplitter) -> Self {
        let counted = counted(question).map(|noun| splitter.stem(&noun));
        let code_words = CodeWord::all(question, splitter);
        Self { asked: AnswerKind::of(question), wanted: Wanted::of(question), counted, code_words }
    }

    fn value_in(&self, sentence: &Sentence, splitter: &WordSplitter) -> Value {
        match (self.wanted, &self.counted) {
            (Some(wanted), _) if !wanted.is_in(&sentence.plain) => Value::No,
            (Some(_), Some(noun)) if counts(&sentence.plain, noun, splitter) => Value::Counted,
            (Some(_), _) => Value::Any,
            (None, _) => Value::No,
        }
    }
}

/// A unit with its features.
struct UnitCandidate<'a> {
    reading: &'a DocumentHits,
    rank: usize,
    unit: Unit,
    /// Score of the hit it stands in or beside, relative to the best hit.
    hit: f32,
    words: HashSet<String>,
    /// Words of the question in its headings.
    about: HashSet<String>,
    /// How well the words of the question match its headings, which are the first part, and its sentences.
    matches: Option<Matches>,
    features: Features,
}

impl UnitCandidate<'_> {
    fn text(&self) -> &str {
        &self.reading.document.text[self.unit.range.clone()]
    }

    /// Returns the title of its document and the headings above it. All of them: a unit below "Decision" is about what
    /// the title names as much as the paragraph right below the title.
    fn headings(&self) -> String {
        let title = self.reading.document.place.title();
        let mut names = vec![title];
        let own = self.unit.headings.iter().map(String::as_str);
        names.extend(own.filter(|heading| *heading != title));
        names.join(". ")
    }

    /// Returns whether another unit stands right before or after this one. One that is shown in part does not count.
    fn touches(&self, other: &Self) -> bool {
        let is_short = |own: &Self| own.unit.pieces.len() <= MAX_PIECES && lines_in(own.text()) <= MAX_LINES;
        let (a, b) = (&self.unit.range, &other.unit.range);
        let between = if a.start < b.start { a.end..b.start } else { b.end..a.start };
        let is_blank = |text: &str| text.trim().is_empty();
        std::ptr::eq(self.reading, other.reading)
            && self.unit.section == other.unit.section
            && is_short(self)
            && is_short(other)
            && self.reading.document.text.get(between).is_some_and(is_blank)
    }

    /// Sets the headings of a place in this unit. A document that was read whole has those of the first passage found
    /// in it.
    fn name_headings(&self, place: &mut Place) {
        if let (Place::Kb { line_start: 1, .. }, Place::Kb { heading_path, .. }) = (&self.reading.document.place, place)
        {
            heading_path.clone_from(&self.unit.headings);
        }
    }
}

/// Picks the units that best answer the question, best first, without duplicates. Quotes are numbered from 1. `names`
/// are the documents that it names.
///
/// # Errors
///
/// Returns an error if the embedder fails.
pub(crate) fn pick(
    node: &NodeId,
    question: &Question,
    names: &[DocumentName],
    readings: &[DocumentHits],
    splitter: &WordSplitter,
    embedder: Option<&dyn Embedder>,
) -> Result<Vec<Picked>, EmbedError> {
    let sought = Sought::of(question.as_str(), splitter);
    let (mut candidates, weights) = candidates(readings, question.as_str(), names, &sought, splitter);
    // Taken before the candidates are limited, since a step is read with those around it.
    let steps: Vec<_> = if sought.asked == AnswerKind::Steps {
        candidates.iter().map(|candidate| (candidate.rank, candidate.unit.clone())).collect()
    } else {
        Vec::new()
    };
    let is_overview = sought.asked == AnswerKind::Overview;
    let headings = if is_overview { headings(&candidates) } else { HashMap::new() };
    if is_overview {
        keep_one_of_each_section(&mut candidates);
    }
    // An embedder that does not read the language of the question would match its words with any.
    let is_english = || language_of(question.as_str()).is_none_or(Language::is_english);
    if let Some(embedder) = embedder.filter(|embedder| !embedder.is_english() || is_english()) {
        add_meaning(&mut candidates, question, embedder)?;
    }
    let margin = margin(&candidates, &sought, &weights, splitter);
    let best = if is_overview { overview(candidates) } else { best(candidates, margin) }.into_iter();
    let mut kept: Vec<_> = best
        .map(|mut candidate| {
            if is_overview {
                shorten(&mut candidate, OVERVIEW_PARAGRAPH, OVERVIEW_PARAGRAPH, None);
            }
            let shown = shown(&candidate, &sought, &weights, splitter);
            let text = deciding(&candidate, &shown, &sought, &weights, splitter);
            // A step is read with those around it.
            if sought.asked != AnswerKind::Steps {
                shorten(&mut candidate, LONG_PARAGRAPH, PARAGRAPH_LINES, Some(&text));
            }
            (text, candidate)
        })
        .collect();
    if sought.asked == AnswerKind::Steps {
        widen(&mut kept, &steps);
    }
    join(&mut kept);
    let is_said = margin < MARGIN;
    let mut read_on = match Remedy::of(question.as_str()) {
        Some(remedy) if remedy == Remedy::OfMessage || !is_said => read_on(&mut kept, true),
        None if !is_said && !is_overview && sought.asked != AnswerKind::Steps => read_on(&mut kept, false),
        Some(_) | None => 0,
    };
    for (_, candidate) in &mut kept {
        cut_loose_end(candidate);
        if !is_overview {
            name_subject(candidate, &weights, splitter);
        }
    }
    let mut picked = Vec::new();
    let mut number = 0;
    for (text, candidate) in kept {
        let document = &candidate.reading.document;
        let mut quotes = Vec::new();
        let mut own = 0;
        let heading = headings.get(&(candidate.rank, candidate.unit.section)).cloned();
        let shown = shown(&candidate, &sought, &weights, splitter);
        for range in below_heading(heading, shown, &document.text) {
            number += 1;
            own = range.len();
            let mut quote = document.quote(range, EvidenceId::new(node.clone(), number), candidate.features.fit());
            candidate.name_headings(&mut quote.source);
            quotes.push(quote);
        }
        let says_most = weights.len() >= LEAST_WORDS && candidate.features.says() >= SAYS_MOST;
        let matches = candidate.matches.as_ref().map(|_| candidate.features.unit_match());
        // Only the first is read on.
        let own = own.saturating_sub(std::mem::take(&mut read_on));
        picked.push(Picked { text, quotes, own, document: document.clone(), says_most, matches });
    }
    Ok(picked)
}

/// Returns whether no unit has the value that a question asks for, as in "which version" or "what day", or a code word
/// that it names, or a document. The units are then about the subject but do not answer.
pub(super) fn lacks_value(question: &Question, names: &[DocumentName], picked: &[Picked]) -> bool {
    // What is read on was not picked for the question.
    let said = || picked.iter().flat_map(Picked::said);
    let wanted = Wanted::of(question.as_str());
    let splitter = WordSplitter::default();
    let has_word = |word: &CodeWord| {
        said().any(|(source, quote)| {
            let text = unescaped(&format!("{} {} {quote}", source.for_people(), source.names()));
            word.is_in(&text, &splitter.stems(&text))
        })
    };
    let mentions = |name: &DocumentName| {
        said().any(|(source, _)| is_of(source, name)) || has_word(&CodeWord::of_name(&name.word, &splitter))
    };
    wanted.is_some_and(|wanted| !said().any(|(_, quote)| wanted.is_in(quote)))
        || CodeWord::all(question.as_str(), &splitter).iter().any(|word| word.has_sign && !has_word(word))
        || (!names.is_empty() && !names.iter().any(mentions))
}

/// Returns whether a place is in a document that is called so.
fn is_of(place: &Place, name: &DocumentName) -> bool {
    match place {
        Place::Kb { collection, path, .. } => name.documents.contains(&DocumentId::new(collection, path)),
        Place::Web { .. } | Place::Mcp { .. } => false,
    }
}

/// Returns what is searched for to answer a question: the subject of an overview, or all of it.
pub(crate) fn searched(question: &Question) -> &str {
    overview_of(question.as_str()).unwrap_or(question.as_str())
}

/// Returns whether a question can be answered by yes or no. "Can you explain …" cannot.
pub(super) fn asks_whether(question: &Question) -> bool {
    let lower = question.as_str().to_lowercase();
    let mut words = lower.split_whitespace();
    words.next().is_some_and(|first| OPEN_YES_OR_NO.contains(&first)) && words.next() != Some("you")
}

fn candidates<'a>(
    readings: &'a [DocumentHits],
    question: &str,
    names: &[DocumentName],
    sought: &Sought,
    splitter: &WordSplitter,
) -> (Vec<UnitCandidate<'a>>, Weights) {
    let asked = sought.asked;
    let mut stems = splitter.subject_stems(overview_of(question).unwrap_or(question));
    stems.extend(symbols(question));
    let mut candidates = Vec::new();
    // Never zero, since scores are divided by it.
    let best = readings.iter().flat_map(|reading| &reading.hits).map(|hit| hit.1).fold(f32::EPSILON, f32::max);
    for (rank, reading) in readings.iter().enumerate() {
        let text = &reading.document.text;
        let found = units_in(&reading.document);
        let sections: HashMap<usize, f32> = sections_hit(&found, &reading.hits);
        for unit in with_what_they_refer_to(text, found) {
            let Some(of_section) = sections.get(&unit.section) else { continue };
            let is_hit = |(range, _): &&(Range<usize>, f32)| overlap(range, &unit.range);
            let hit = reading.hits.iter().filter(is_hit).map(|hit| hit.1).fold(of_section * NEIGHBOUR, f32::max) / best;
            let words = words_in(&text[unit.range.clone()], &stems, splitter);
            candidates.push(UnitCandidate {
                reading,
                rank,
                unit,
                hit,
                words,
                about: HashSet::new(),
                matches: None,
                features: Features::default(),
            });
        }
    }
    let weights = rarity(&candidates, &stems);
    let mut sections: HashMap<(usize, usize), HashSet<String>> = HashMap::new();
    for candidate in &mut candidates {
        candidate.about = splitter.stems(&candidate.headings());
        candidate.about.retain(|stem| weights.contains_key(stem));
        let section = sections.entry((candidate.rank, candidate.unit.section)).or_default();
        section.extend(candidate.words.union(&candidate.about).cloned());
    }
    let section_share = |words: HashSet<String>| share(&weights, &words, &HashSet::new());
    let sections: HashMap<_, f32> = sections.into_iter().map(|(at, words)| (at, section_share(words))).collect();
    for candidate in &mut candidates {
        let words = share(&weights, &candidate.words, &candidate.about);
        let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
        let suits = (asked.suits(unit, text, &weights, splitter), asked.has_form(unit, text, &weights, splitter));
        candidate.features = Features::of(&candidate.unit, candidate.text(), words, suits, candidate.hit);
        candidate.features.named = named(candidate, &weights, splitter);
        candidate.features.section = sections[&(candidate.rank, candidate.unit.section)];
    }
    keep_named(&mut candidates, names, splitter);
    mark_lacking(&mut candidates, &sought.code_words, splitter);
    sort(&mut candidates);
    (candidates, weights)
}

fn units_in(document: &Passage) -> Vec<Unit> {
    match document.place {
        Place::Kb { .. } => units(&document.text),
        Place::Web { .. } | Place::Mcp { .. } => units_of_page(&document.text),
    }
}

/// Returns the share of the question's words in the heading right above a unit, or in the title if it has none; 0 if
/// that has other words too, or is a single word, as of a chapter. "Load balancer state" is where its states are
/// listed, "Pre-built container for X" is not where X is explained.
fn named(candidate: &UnitCandidate<'_>, weights: &Weights, splitter: &WordSplitter) -> f32 {
    let title = candidate.reading.document.place.title();
    let heading = splitter.key_stems(candidate.unit.headings.last().map_or(title, String::as_str));
    let is_asked = heading.len() > 1 && heading.iter().all(|stem| weights.contains_key(stem));
    if is_asked { share(weights, &heading.into_iter().collect(), &HashSet::new()) } else { 0.0 }
}

/// Returns a text in lower case without the backslashes of Markdown.
fn unescaped(text: &str) -> String {
    text.replace('\\', "").to_lowercase()
}

/// Drops the units that mention no document named in the question, if others do. They are about something else, however
/// well their other words match.
fn keep_named(candidates: &mut Vec<UnitCandidate<'_>>, names: &[DocumentName], splitter: &WordSplitter) {
    let words: Vec<_> = names.iter().map(|name| CodeWord::of_name(&name.word, splitter)).collect();
    let mentions = |candidate: &UnitCandidate<'_>| {
        names.iter().any(|name| is_of(&candidate.reading.document.place, name))
            || has(candidate, &words, splitter).contains(&true)
    };
    if candidates.iter().any(mentions) {
        candidates.retain(mentions);
    }
}

/// Returns which code words a unit has, in its text, its headings or its path.
fn has(candidate: &UnitCandidate<'_>, code_words: &[CodeWord], splitter: &WordSplitter) -> Vec<bool> {
    let around = format!("{} {}", candidate.headings(), candidate.reading.document.place.for_people());
    let text = unescaped(&format!("{around} {}", candidate.text()));
    let mut words = splitter.stems(&around);
    words.extend(candidate.words.iter().cloned());
    code_words.iter().map(|word| word.is_in(&text, &words)).collect()
}

/// Sets which share of the code words of the question each unit lacks, of those that some unit has.
#[expect(clippy::cast_precision_loss, reason = "a question has few words")]
fn mark_lacking(candidates: &mut [UnitCandidate<'_>], code_words: &[CodeWord], splitter: &WordSplitter) {
    if code_words.is_empty() {
        return;
    }
    let found: Vec<_> = candidates.iter().map(|candidate| has(candidate, code_words, splitter)).collect();
    let is_known = |at: usize| found.iter().any(|has| has[at]);
    let known: Vec<_> = (0..code_words.len()).filter(|at| is_known(*at)).collect();
    for (candidate, has) in candidates.iter_mut().zip(&found) {
        let missing = known.iter().filter(|at| !has[**at]).count();
        candidate.features.lacks = missing as f32 / known.len().max(1) as f32;
    }
}

/// Returns the operators and other symbols of a question, such as `..=`.
fn symbols(question: &str) -> Vec<String> {
    let is_sign = |word: &&str| {
        // A dash or an ellipsis is punctuation of the sentence.
        word.len() > 1
            && word.chars().all(|letter| letter.is_ascii_punctuation())
            && !word.trim_matches(['-', '.']).is_empty()
    };
    let words = question.split_whitespace().map(|word| word.trim_matches(['`', '"', '\'', ',', '?', ';', '(', ')']));
    words.filter(is_sign).map(str::to_owned).collect()
}

/// Returns the stems of a text, and those of the words that are symbols and stand in it.
fn words_in<'a>(text: &str, words: impl IntoIterator<Item = &'a String>, splitter: &WordSplitter) -> HashSet<String> {
    let joins = |letter: Option<char>| letter.is_some_and(|letter| "=<>!&|+-*/%^~.:?@#$".contains(letter));
    let is_whole = |at: usize, sign: &str| {
        // The `..` of `..=` is another operator.
        !joins(text[..at].chars().next_back()) && !joins(text[at + sign.len()..].chars().next())
    };
    let is_found = |word: &&String| {
        !word.contains(char::is_alphanumeric) && text.match_indices(word.as_str()).any(|(at, sign)| is_whole(at, sign))
    };
    let mut found = splitter.stems(text);
    found.extend(words.into_iter().filter(is_found).cloned());
    found
}

/// Extends units that refer to the one before them ("So, what is the difference?") to that unit, and the
/// paragraph after code that is included from another file: such code is no unit, and the paragraph that introduces it
/// would lead nowhere.
fn with_what_they_refer_to(text: &str, units: Vec<Unit>) -> Vec<Unit> {
    let mut extended: Vec<Unit> = Vec::with_capacity(units.len());
    for mut unit in units {
        let before = extended.last().filter(|before| before.section == unit.section);
        let own = &text[unit.range.clone()];
        let is_open = |before: &Unit| {
            let between = text.get(before.range.end..unit.range.start).unwrap_or_default();
            ends_open(&text[before.range.clone()]) && !between.trim().is_empty()
        };
        let is_paragraph = unit.kind == UnitKind::Paragraph;
        let openings = if is_paragraph { &REFERRING[..] } else { &REFERRING_LEAD_INS[..] };
        let refers =
            is_paragraph && before.is_some_and(is_open) || openings.iter().any(|opening| own.starts_with(opening));
        if let Some(before) = before.filter(|before| refers && unit.range.end - before.range.start <= MAX_EXTENDED) {
            unit.range.start = before.range.start;
            unit.heading = before.heading;
            unit.sentences = before.sentences.iter().cloned().chain(std::mem::take(&mut unit.sentences)).collect();
        }
        extended.push(unit);
    }
    extended
}

/// Returns the sections with hits, with the best score in each.
fn sections_hit(units: &[Unit], hits: &[(Range<usize>, f32)]) -> HashMap<usize, f32> {
    let mut sections = HashMap::new();
    for (range, score) in hits {
        for unit in units.iter().filter(|unit| overlap(range, &unit.range)) {
            let best = sections.entry(unit.section).or_insert(*score);
            *best = best.max(*score);
        }
    }
    sections
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Returns the weight of each stem: inverse document frequency over the units.
#[expect(clippy::cast_precision_loss, reason = "counts of units are small")]
fn rarity(candidates: &[UnitCandidate<'_>], stems: &[String]) -> Weights {
    let weight = |stem: &String| {
        let having = candidates.iter().filter(|candidate| candidate.words.contains(stem)).count();
        // One is added, so that a word that all units have still counts.
        (1.0 + (candidates.len() as f32 + 0.5) / (having as f32 + 0.5)).ln()
    };
    stems.iter().map(|stem| (stem.clone(), weight(stem))).collect()
}

fn sort(candidates: &mut [UnitCandidate<'_>]) {
    let place = |candidate: &UnitCandidate<'_>| (candidate.rank, candidate.unit.range.start);
    let score = |candidate: &UnitCandidate<'_>| candidate.features.score();
    candidates.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| place(a).cmp(&place(b))));
}

/// Adds how well the question matches the best window of each unit, and sorts again. Units beyond [`MAX_COMPARED`] are
/// dropped.
fn add_meaning(
    candidates: &mut Vec<UnitCandidate<'_>>,
    question: &Question,
    embedder: &dyn Embedder,
) -> Result<(), EmbedError> {
    candidates.truncate(MAX_COMPARED);
    let words: Vec<_> = question.as_str().split_whitespace().collect();
    let headings: Vec<_> = candidates.iter().map(UnitCandidate::headings).collect();
    let texts: Vec<_> = headings.iter().zip(&*candidates).map(|(headings, own)| parts(headings, own)).collect();
    let found = embedder.compare(&words, &texts)?;
    for (candidate, matches) in candidates.iter_mut().zip(found) {
        candidate.features.add_meaning(&matches);
        candidate.matches = Some(matches);
    }
    sort(candidates);
    Ok(())
}

/// Returns the headings of a unit as one part, and its sentences; the whole unit if it has none.
fn parts<'a>(headings: &'a str, candidate: &'a UnitCandidate<'_>) -> Vec<&'a str> {
    let whole = candidate.text();
    let sentences = compared(&candidate.unit).iter().map(|sentence| sentence.plain.as_str());
    let is_empty = candidate.unit.sentences.is_empty();
    std::iter::once(headings).chain(sentences).chain(is_empty.then_some(whole)).collect()
}

/// Returns the sentences of a unit to compare token by token.
fn compared(unit: &Unit) -> &[Sentence] {
    &unit.sentences[..unit.sentences.len().min(MAX_SENTENCES)]
}

/// Returns whether one sentence of a unit has every word of a question that one sentence may answer. A single word may
/// stand in any sentence.
fn says_all(candidate: &UnitCandidate<'_>, asked: AnswerKind, weights: &Weights, splitter: &WordSplitter) -> bool {
    let is_one = !matches!(asked, AnswerKind::List | AnswerKind::Steps | AnswerKind::Comparison);
    let has_all = |sentence: &Sentence| {
        let words = splitter.stems(&sentence.plain);
        !points(sentence) && weights.keys().all(|stem| words.contains(stem))
    };
    is_one && weights.len() > 1 && candidate.unit.sentences.iter().any(has_all)
}

/// Returns by how much the score of a further unit may be lower than the best. The best is mostly enough if it says
/// all that is asked or has the number that is asked for.
fn margin(candidates: &[UnitCandidate<'_>], sought: &Sought, weights: &Weights, splitter: &WordSplitter) -> f32 {
    let Some(best) = candidates.first() else { return 0.0 };
    let has_value = || best.unit.sentences.iter().any(|own| sought.value_in(own, splitter) == Value::Counted);
    match () {
        () if says_all(best, sought.asked, weights, splitter) || has_value() => MARGIN / 6.0,
        () => MARGIN,
    }
}

/// Keeps the best units, dropping those that repeat a better one or do not fit on the screen.
fn best(candidates: Vec<UnitCandidate<'_>>, margin: f32) -> Vec<UnitCandidate<'_>> {
    let least = candidates.first().map_or(0.0, |best| best.features.score() - margin);
    let mut kept: Vec<UnitCandidate<'_>> = Vec::new();
    let (mut lines, mut texts) = (0, 0);
    for candidate in candidates {
        if candidate.features.score() < least {
            break;
        }
        let continues = kept.iter().any(|better| better.touches(&candidate));
        if texts == MAX_TEXTS && !continues {
            continue;
        }
        let is_same = |better: &UnitCandidate<'_>| {
            let is_one =
                std::ptr::eq(better.reading, candidate.reading) && overlap(&better.unit.range, &candidate.unit.range);
            // The same list below two headings of a document says it of two things.
            let is_about_same =
                !std::ptr::eq(better.reading, candidate.reading) || candidate.about.is_subset(&better.about);
            is_one || (is_about_same && common(&better.words, &candidate.words) > SAME_WORDS)
        };
        let own = lines_of(&candidate, LONG_PARAGRAPH);
        // Skipped, not ended: a later unit may be short enough.
        if kept.iter().any(is_same) || (!kept.is_empty() && lines + own > MAX_LINES) {
            continue;
        }
        lines += own;
        texts += usize::from(!continues);
        kept.push(candidate);
    }
    kept
}

/// Cuts a paragraph of more than `long` lines to at most `most`: the sentences around the one that answers, or its first.
fn shorten(candidate: &mut UnitCandidate<'_>, long: usize, most: usize, answer: Option<&str>) {
    let Unit { kind: UnitKind::Paragraph, sentences, range, .. } = &candidate.unit else { return };
    let text = &candidate.reading.document.text;
    if lines_in(&text[range.clone()]) <= long || sentences.len() < 2 {
        return;
    }
    let at = answer.and_then(|answer| sentences.iter().position(|own| own.plain == answer)).unwrap_or(0);
    let (mut first, mut last) = (at, at);
    let fits =
        |first: usize, last: usize| lines_in(&text[sentences[first].range.start..sentences[last].range.end]) <= most;
    loop {
        let (after, before) = (last + 1, first.checked_sub(1));
        let goes_on = after < sentences.len() && fits(first, after);
        last += usize::from(goes_on);
        let before = before.filter(|before| fits(*before, last));
        first = before.unwrap_or(first);
        if !goes_on && before.is_none() {
            break;
        }
    }
    let kept = sentences[first..=last].to_vec();
    candidate.unit.range = kept[0].range.start..kept[kept.len() - 1].range.end;
    candidate.unit.sentences = kept;
    // What stands between the heading and the sentences is left out.
    candidate.unit.heading = candidate.unit.heading.filter(|_| first == 0);
}

/// Returns the lines of headings above the units, by the rank of the document and the section.
fn headings(candidates: &[UnitCandidate<'_>]) -> HashMap<(usize, usize), Range<usize>> {
    let heading = |candidate: &UnitCandidate<'_>| {
        let (start, text) = (candidate.unit.heading?, &candidate.reading.document.text);
        let end = start + text[start..].lines().next()?.trim_end().len();
        Some(((candidate.rank, candidate.unit.section), start..end))
    };
    candidates.iter().filter_map(heading).collect()
}

/// Puts a heading before the ranges that are shown below it.
fn below_heading(heading: Option<Range<usize>>, mut shown: Vec<Range<usize>>, text: &str) -> Vec<Range<usize>> {
    let (Some(heading), Some(first)) = (heading, shown.first_mut()) else { return shown };
    if first.start <= heading.start {
        return shown;
    }
    if text[heading.end..first.start].trim().is_empty() {
        first.start = heading.start;
    } else {
        shown.insert(0, heading);
    }
    shown
}

/// Keeps the best unit of each section, given the best first.
fn keep_one_of_each_section(candidates: &mut Vec<UnitCandidate<'_>>) {
    let mut sections = HashSet::new();
    candidates.retain(|candidate| sections.insert((candidate.rank, candidate.unit.section)));
}

/// Keeps the units of an overview, best first: those that name its subject, or whose headings do, as far as they fit on
/// two screens.
fn overview(candidates: Vec<UnitCandidate<'_>>) -> Vec<UnitCandidate<'_>> {
    let names = |candidate: &UnitCandidate<'_>| candidate.features.says() > 0.0;
    let has_name = candidates.iter().any(names);
    let least = candidates.first().map_or(0.0, |best| best.features.score() - OVERVIEW_MARGIN);
    let mut kept: Vec<UnitCandidate<'_>> = Vec::new();
    let mut lines = 0;
    for candidate in candidates {
        let is_same = |known: &UnitCandidate<'_>| common(&known.words, &candidate.words) > SAME_WORDS;
        let own = lines_of(&candidate, OVERVIEW_PARAGRAPH) + 1;
        let fits = kept.is_empty() || lines + own <= OVERVIEW_LINES;
        if candidate.features.score() < least || kept.len() == OVERVIEW_TEXTS {
            break;
        }
        if fits && (!has_name || names(&candidate)) && !kept.iter().any(is_same) {
            lines += own;
            kept.push(candidate);
        }
    }
    kept
}

/// Joins units that follow each other in a document, which are read as one text. The sentence of the better one stays.
fn join(kept: &mut Vec<(String, UnitCandidate<'_>)>) {
    let mut at = 0;
    while at < kept.len() {
        let touches = |next: &usize| kept[at].1.touches(&kept[*next].1);
        let Some(next) = (at + 1..kept.len()).find(touches) else {
            at += 1;
            continue;
        };
        let joined = kept.remove(next).1.unit;
        let unit = &mut kept[at].1.unit;
        if joined.range.start < unit.range.start {
            unit.heading = joined.heading;
        } else {
            // Those at the end, which may be cut off.
            unit.sentences = joined.sentences;
        }
        unit.range = unit.range.start.min(joined.range.start)..unit.range.end.max(joined.range.end);
        unit.pieces.clear();
    }
}

/// Cuts off the last sentence of a text if it only leads to what is not shown: "You will get an error like this:"
fn cut_loose_end(candidate: &mut UnitCandidate<'_>) {
    let leads_on = candidate.unit.kind == UnitKind::Paragraph && ends_open(candidate.text());
    let Unit { sentences, range, .. } = &mut candidate.unit;
    if let [.., said, last] = &sentences[..]
        && leads_on
        && last.range.end >= range.end
    {
        range.end = said.range.end;
    }
}

/// Widens a unit that says little by itself to its heading, if that has words of the question which the unit lacks:
/// "Not at this time." answers the question above it. "Yes" and "no" always answer that one and not the reader's.
fn name_subject(candidate: &mut UnitCandidate<'_>, weights: &Weights, splitter: &WordSplitter) {
    let opening = candidate.text().split(|letter: char| !letter.is_alphanumeric()).next();
    let says_yes = matches!(opening, Some("Yes" | "No"));
    let is_bare = match candidate.unit.kind {
        UnitKind::Paragraph => lines_in(candidate.text()) < 2,
        UnitKind::List { .. } => candidate.text().starts_with(['-', '*', '+', '1']),
        UnitKind::Table => candidate.text().starts_with('|'),
        UnitKind::Code => candidate.unit.sentences.is_empty(),
        UnitKind::Callout => false,
    };
    let heading = candidate.unit.headings.last().map(|heading| splitter.stems(heading)).unwrap_or_default();
    let adds = heading.iter().any(|stem| weights.contains_key(stem) && !candidate.words.contains(stem));
    if let Some(start) = candidate.unit.heading.filter(|_| says_yes || is_bare && adds) {
        candidate.unit.range.start = start;
    }
}

/// Widens units to the procedure they are part of, and drops those that are then shown already. `units` are those of
/// the sections found, each with the rank of its document.
fn widen(kept: &mut Vec<(String, UnitCandidate<'_>)>, units: &[(usize, Unit)]) {
    let mut shown: Vec<(usize, Range<usize>)> = Vec::new();
    let (mut lines, mut is_whole) = (0, false);
    kept.retain_mut(|(_, candidate)| {
        let section =
            units.iter().filter(|(rank, unit)| *rank == candidate.rank && unit.section == candidate.unit.section);
        let section: Vec<_> = section.map(|(_, unit)| unit).collect();
        let text = &candidate.reading.document.text;
        let is_shown =
            |(rank, range): &(usize, Range<usize>)| *rank == candidate.rank && overlap(range, &candidate.unit.range);
        // The procedure that was found best is the answer.
        if is_whole || shown.iter().any(is_shown) {
            return false;
        }
        let wide = procedure(candidate, section);
        let own = lines_in(&text[wide.clone()]);
        if wide != candidate.unit.range && (shown.is_empty() || lines + own <= MAX_LINES) {
            candidate.unit.pieces.clear();
            candidate.unit.range = wide;
            is_whole = shown.is_empty();
        }
        lines += lines_in(candidate.text());
        shown.push((candidate.rank, candidate.unit.range.clone()));
        true
    });
}

/// Widens the best unit to what follows it below its heading, also below the next heading if that names a remedy and one
/// is asked for, and drops the others if they no longer fit on the screen. Who reports a failure knows the message; what
/// to do about it stands after it. Returns the bytes that are read on.
fn read_on(kept: &mut Vec<(String, UnitCandidate<'_>)>, to_remedy: bool) -> usize {
    // A list that is shown in part would be shown whole.
    let is_whole = |candidate: &UnitCandidate<'_>| candidate.unit.pieces.len() <= MAX_PIECES;
    let Some((_, best)) = kept.first_mut().filter(|(_, best)| is_whole(best)) else { return 0 };
    let (text, Range { start, end }) = (&best.reading.document.text, best.unit.range.clone());
    let most = if to_remedy { READ_ON_AFTER_FAILURE_TO } else { READ_ON_TO };
    let mut last = best.unit.clone();
    for next in units_in(&best.reading.document).into_iter().filter(|unit| unit.range.start >= end) {
        // Below one more heading, not below a third.
        let names_remedy = || next.headings.last().is_some_and(|heading| names_remedy(heading));
        let is_remedy = || to_remedy && last.section == best.unit.section && names_remedy();
        let mut between = text.get(last.range.end..next.range.start).unwrap_or_default().lines();
        let is_joined = between.all(|line| line.trim().is_empty() || line.starts_with('#'));
        // Blank lines count: they are shown.
        let lines: usize = text[start..next.range.end].lines().map(rows).sum();
        if !is_joined || lines > most || (next.section != last.section && !is_remedy()) {
            break;
        }
        last = next;
    }
    // What only leads to a text that is not shown is left out.
    if last.range.end == end || (last.kind == UnitKind::Paragraph && ends_open(&text[last.range.clone()])) {
        return 0;
    }
    best.unit.range.end = last.range.end;
    best.unit.pieces.clear();
    let (reading, whole) = (best.reading, best.unit.range.clone());
    let mut lines = 0;
    kept.retain(|(_, candidate)| {
        let is_best = candidate.unit.range == whole;
        let is_shown = std::ptr::eq(reading, candidate.reading) && overlap(&whole, &candidate.unit.range);
        let own = if is_best { lines_in(candidate.text()) } else { lines_of(candidate, LONG_PARAGRAPH) };
        let is_kept = is_best || (!is_shown && lines + own <= MAX_LINES);
        lines += if is_kept { own } else { 0 };
        is_kept
    });
    whole.end - end
}

/// Returns the range of the procedure that a unit is part of: its whole section if that fits, otherwise the steps
/// before it if it continues them, and those after it. A section may have the same for two cases, so of a unit that
/// says most of what is asked only what completes it is added.
fn procedure(candidate: &UnitCandidate<'_>, mut section: Vec<&Unit>) -> Range<usize> {
    section.sort_by_key(|unit| (unit.range.start, unit.range.end));
    let (own, text) = (&candidate.unit.range, candidate.reading.document.text.as_str());
    let continues = |at: usize| CONTINUING.iter().any(|opening| text[at..].starts_with(opening));
    let is_step = |unit: &Unit| matches!(unit.kind, UnitKind::Code | UnitKind::List { is_ordered: true });
    let lines = |range: &Range<usize>| lines_in(&text[range.clone()]);
    let whole = section.first().map_or(own.start, |unit| unit.range.start.min(own.start))
        ..section.iter().map(|unit| unit.range.end).fold(own.end, usize::max);
    let most = if section.iter().filter(|unit| is_step(unit)).count() > 1 { MAX_STEP_LINES } else { SHORT_SECTION };
    if candidate.features.says() < SAYS_MOST && lines(&whole) <= most {
        return whole;
    }
    let mut range = own.clone();
    if continues(range.start) {
        for before in section.iter().rev().filter(|unit| unit.range.start < own.start) {
            let wider = before.range.start.min(range.start)..range.end;
            if lines(&wider) > MAX_STEP_LINES {
                break;
            }
            range = wider;
        }
    }
    let mut is_after_step = is_step(&candidate.unit);
    for after in section.iter().filter(|unit| unit.range.end > own.end) {
        let is_next = continues(after.range.start) || (is_step(after) && !is_after_step);
        let wider = range.start..after.range.end;
        if !is_next || lines(&wider) > MAX_STEP_LINES {
            break;
        }
        is_after_step = is_step(after);
        range = wider;
    }
    range
}

/// Estimates the lines of a text on a screen.
fn lines_in(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).map(rows).sum()
}

/// Estimates the rows of a line on a screen.
fn rows(line: &str) -> usize {
    line.len() / 90 + 1
}

/// Estimates the lines of a unit on a screen, with a paragraph of at most this many.
fn lines_of(candidate: &UnitCandidate<'_>, paragraph: usize) -> usize {
    let text = candidate.text();
    match candidate.unit.kind {
        UnitKind::Paragraph => (text.len() / 90 + 1).min(paragraph) + 1,
        UnitKind::Callout => text.len() / 90 + 2,
        UnitKind::List { .. } => lines_in(text).min(MAX_LINES) + 2,
        UnitKind::Table => candidate.unit.pieces.len().min(MAX_PIECES) + 3,
        UnitKind::Code => text.lines().count() + 1,
    }
}

/// Returns the size of the intersection relative to the smaller set.
#[expect(clippy::cast_precision_loss, reason = "units are short")]
fn common(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let smaller = a.len().min(b.len()).max(1);
    a.intersection(b).count() as f32 / smaller as f32
}

/// Returns the sentence of a unit that answers best, of those in the ranges `shown`, without Markdown.
///
/// A list that is asked for answers as a whole: the sentence that leads into it does not prefer one of its items.
fn deciding(
    candidate: &UnitCandidate<'_>,
    shown: &[Range<usize>],
    sought: &Sought,
    weights: &Weights,
    splitter: &WordSplitter,
) -> String {
    let is_list = matches!(candidate.unit.kind, UnitKind::List { .. });
    let head = candidate.unit.head();
    if is_list
        && sought.asked == AnswerKind::List
        && let Some(lead) = candidate.unit.sentences.iter().rfind(|sentence| sentence.range.end <= head.end)
    {
        return lead.plain.clone();
    }
    let is_text = |line: &&str| line.contains(char::is_alphanumeric) && !line.starts_with(['`', '~']);
    // Headings are left out: all sentences of a unit share them.
    let none = HashSet::new();
    let score = |(part, sentence): (usize, &Sentence)| {
        let found = candidate.matches.as_ref().map_or(0.0, |matches| matches.max_sim(part..=part));
        share(weights, &splitter.stems(&sentence.plain), &none) + found
    };
    let is_open = |sentence: &Sentence| sentence.plain.ends_with([':', '?']);
    let is_said = |sentence: &Sentence| !is_open(sentence) && !points(sentence);
    // "There are forty of them" answers "how many", though its neighbours have more words of the question.
    let value = |sentence: &Sentence| sought.value_in(sentence, splitter);
    // A row says nothing of what another row is about.
    let has_rows = candidate.unit.kind == UnitKind::Table && !sought.code_words.is_empty();
    let is_row_of = |sentence: &Sentence| {
        let (text, words) = (sentence.plain.to_lowercase(), splitter.stems(&sentence.plain));
        sought.code_words.iter().any(|word| word.is_in(&text, &words))
    };
    let scored =
        // Part 0 of the matches is the headings.
        (1..).zip(&candidate.unit.sentences).filter(|(_, own)| shown.iter().any(|range| overlap(range, &own.range)));
    let scored = scored.map(|own| ((is_said(own.1), has_rows && is_row_of(own.1), value(own.1), score(own)), own.1));
    // Of equals the first.
    let best = scored.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or_else(
        || candidate.text().lines().map(str::trim).find(is_text).unwrap_or_default().to_owned(),
        |(_, sentence)| sentence.plain.clone(),
    )
}

/// Returns the ranges of a unit that are shown: all of it, or the head of a long list or table and the pieces that bear
/// on the question.
fn shown(
    candidate: &UnitCandidate<'_>,
    sought: &Sought,
    weights: &Weights,
    splitter: &WordSplitter,
) -> Vec<Range<usize>> {
    let asked = sought.asked;
    let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
    let is_list = matches!(unit.kind, UnitKind::List { .. }) && !unit.pieces.is_empty();
    let is_nested =
        is_list && !matches!(asked, AnswerKind::List | AnswerKind::Steps) && lines_in(candidate.text()) > MAX_LINES;
    if unit.pieces.len() <= MAX_PIECES && !is_nested {
        return vec![unit.range.clone()];
    }
    let pieces =
        if is_nested { items(text, unit) } else { unit.pieces.iter().map(|piece| (None, piece.clone())).collect() };
    let none = HashSet::new();
    // Part 0 of the matches is the headings.
    let meant = |piece: &Range<usize>| {
        let own = (1..).zip(&unit.sentences).filter(|(_, sentence)| overlap(&sentence.range, piece));
        let matches = candidate.matches.as_ref().filter(|_| is_nested);
        matches.map_or(0.0, |matches| own.map(|(part, _)| matches.max_sim(part..=part)).fold(0.0, f32::max))
    };
    // What only leads into its own items is shown with them.
    let leads_on = |piece: &Range<usize>| is_nested && text[piece.clone()].trim_end().ends_with(':');
    let bears = |piece: &Range<usize>| {
        if leads_on(piece) {
            return 0.0;
        }
        let own = &text[piece.clone()];
        let words = words_in(own, weights.keys(), splitter);
        let unescaped = unescaped(own);
        // The row of `db.t2.small` and not those of its family.
        let named = sought.code_words.iter().any(|word| word.is_in(&unescaped, &words));
        share(weights, &words, &none) + meant(piece) + f32::from(u8::from(named))
    };
    let mut best: Vec<_> = pieces.iter().enumerate().map(|(at, (_, piece))| (bears(piece), at)).collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    // `MaxSim` of any two texts has much in common.
    let part = if is_nested { 0.85 } else { 0.6 };
    let least = best.first().map_or(0.0, |(score, _)| score * part);
    let mut kept: Vec<usize> =
        best.into_iter().filter(|(score, _)| *score >= least).take(MAX_PIECES).map(|(_, at)| at).collect();
    // An item is read below the ones it is nested in.
    let mut at = 0;
    while let Some(own) = kept.get(at) {
        kept.extend(pieces[*own].0);
        at += 1;
    }
    kept.sort_unstable();
    kept.dedup();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let head = unit.head();
    ranges.extend((!text[head.clone()].trim().is_empty()).then_some(head));
    for piece in kept.into_iter().map(|at| &pieces[at].1) {
        match ranges.last_mut() {
            Some(last) if text[last.end..piece.start].trim().is_empty() => last.end = piece.end,
            _ => ranges.push(piece.clone()),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ContentHash;
    use crate::source::Label;

    fn picked(document: &str, question: &str) -> Vec<Picked> {
        picked_with(document, question, &[])
    }

    fn picked_with(document: &str, question: &str, names: &[DocumentName]) -> Vec<Picked> {
        let place = Place::Kb {
            collection: "kb".into(),
            path: "a.md".into(),
            title: "Beds".into(),
            heading_path: Vec::new(),
            line_start: 1,
            line_end: 1,
            content_hash: ContentHash::of(document.as_bytes()),
            date: None,
        };
        let text = document.to_owned();
        let passage =
            Passage { id: "c".into(), place, label: Label::Internal, snippet: String::new(), text, score: 1.0 };
        let reading = DocumentHits { hits: vec![(0..document.len(), 1.0)], document: passage };
        let question = question.parse().unwrap();
        pick(&NodeId::numbered(1), &question, names, &[reading], &WordSplitter::default(), None).unwrap()
    }

    fn quotes(found: &Picked) -> Vec<&str> {
        found.quotes.iter().map(|quote| quote.quote.as_str()).collect()
    }

    #[test]
    fn long_table_is_cut_to_its_header_and_the_rows_that_bear_on_the_question() {
        let rows: Vec<_> = (1..40).map(|bed| format!("| bed {bed} | holds plant{bed} |\n")).collect();
        let table = format!("# Beds\n\n| bed | plants |\n|---|---|\n{}", rows.concat());
        let found = picked(&table, "Where is plant17?");
        assert_eq!(quotes(&found[0]), ["| bed | plants |\n|---|---|", "| bed 17 | holds plant17 |"]);
    }

    #[test]
    fn row_of_the_code_word_is_shown_without_the_others_of_its_family() {
        let family = |name: &str| -> String {
            let row = |size: &str| format!("| db\\.{name}\\.{size} | 1 | memory of {name} {size} |\n");
            ["micro", "small", "medium", "large", "xlarge"].map(row).concat()
        };
        let rows = ["m1", "t2", "t3", "r5"].map(family).concat();
        let table = format!("# Classes\n\n| class | vCPU | memory |\n|---|---|---|\n{rows}");
        let found = picked(&table, "How much memory has a db.t2.small instance of this small class?");
        let row = "| db\\.t2\\.small | 1 | memory of t2 small |";
        assert_eq!(quotes(&found[0]), ["| class | vCPU | memory |\n|---|---|---|", row]);
        assert!(found[0].text.contains("t2.small"), "{}", found[0].text);
    }

    #[test]
    fn row_of_the_release_that_is_asked_about_decides_though_another_has_the_value() {
        let table =
            "# Support\n\n| release | end of support |\n|---|---|\n| Pump 7.7 | |\n| Pump 7.6 | 14 November 2028 |\n";
        let found = picked(table, "On what date does support of Pump 7.7 end?");
        assert!(found[0].text.contains("7.7"), "{}", found[0].text);
    }

    #[test]
    fn overview_has_the_opening_of_each_section_below_its_heading() {
        let about = |words: &str| format!("They say that {words} of the mill is old. ").repeat(30);
        let document = format!(
            "# Mill\n\n## Stones\n\n{}\n\nAnother word on the mill stones.\n\n## Wheel\n\n{}\n",
            about("granite from far away"),
            about("oak with iron nails")
        );
        let found = picked(&document, "Give me an overview of the mill.");
        let quotes: Vec<_> = found.iter().map(|found| quotes(found)[0]).collect();
        assert!(quotes[0].starts_with("## Stones\n\nThey say that granite"), "{quotes:?}");
        assert!(quotes[1].starts_with("## Wheel\n\nThey say that oak") && quotes.len() == 2, "{quotes:?}");
        assert!(quotes.iter().all(|quote| quote.len() < 600), "{quotes:?}");
    }

    #[test]
    fn paragraph_longer_than_a_screen_is_cut_to_the_sentences_around_the_answer() {
        let filler =
            |word: &str| format!("The {word} of the village is old and much loved by all who live in it. ").repeat(20);
        let document = format!("# Mill\n\n{}The mill grinds oats on Friday. {}\n", filler("church"), filler("school"));
        let found = picked(&document, "When does the mill grind oats?");
        let quote = quotes(&found[0])[0];
        assert!(quote.contains("oats on Friday. The school") && quote.contains("church"), "{quote}");
        assert!(quote.len() < 13 * 90, "{quote}");
    }

    #[test]
    fn units_that_mention_no_document_that_the_question_names_are_left_out_if_others_do() {
        let document =
            "# Pumps\n\nThe price of a garden pump is 40 euros in spring.\n\n## Zeus\n\nIt costs 90 euros.\n";
        let question = "What is the price of the Zeus garden pump in spring?";
        let name = |word: &str, path: &str| {
            let documents = [DocumentId::new("kb", path)].into();
            [DocumentName { word: word.to_owned(), documents }]
        };
        let texts = |names: &[DocumentName]| -> Vec<_> {
            picked_with(document, question, names).into_iter().map(|picked| picked.text).collect()
        };
        assert!(texts(&[])[0].starts_with("The price"));
        assert_eq!(texts(&name("Zeus", "zeus.md")), ["It costs 90 euros."]);
        assert!(texts(&name("Hera", "hera.md"))[0].starts_with("The price"));
        let lacks = |names: &[DocumentName]| {
            lacks_value(&question.parse().unwrap(), names, &picked_with(document, question, &[]))
        };
        assert!(lacks(&name("Hera", "hera.md")) && !lacks(&name("Pumps", "p.md")), "no unit mentions Hera");
        assert!(!lacks(&name("Hera", "a.md")), "an alias stands in no unit");
    }

    #[test]
    fn section_whose_heading_is_what_is_asked_comes_before_one_that_names_more() {
        let document = "# Pumps\n\n## Pump state of other makers\n\nThe pump has a state which other makers name \
                        differently, since each of them has names of its own.\n\n## Pump state\n\nThe pump tells its \
                        state by a lamp which is lit or not.\n";
        let found = picked(document, "What is the pump state?");
        assert!(found[0].text.starts_with("The pump tells"), "{}", found[0].text);
    }

    #[test]
    fn yes_is_shown_with_the_question_that_it_answers() {
        let document = "# Valves\n\n## Can I open a valve by hand?\n\nYes. A valve that is opened by hand is closed by \
                        the timer, which runs for an hour and then closes all valves that are open.\n";
        let found = picked(document, "Is a valve closed by the timer?");
        assert!(quotes(&found[0])[0].starts_with("## Can I open a valve by hand?"), "{:?}", quotes(&found[0]));
    }

    #[test]
    fn limit_in_the_next_sentence_and_list_after_a_lead_in_are_shown() {
        let document = "# Uploads\n\nThe size of an upload depends on your plan. It is 5 MB in the free plan and 200 MB in \
                        others.\n\nThese formats are accepted:\n\n- png\n- jpg\n";
        let found = picked(document, "How large may an upload be?");
        assert!(quotes(&found[0])[0].contains("200 MB in others."));
        let found = picked(document, "Which formats are accepted?");
        assert_eq!(quotes(&found[0]), ["These formats are accepted:\n\n- png\n- jpg"]);
    }

    #[test]
    fn sentence_that_leads_to_what_is_not_shown_is_cut_off() {
        let document = "# Valve\n\nThe valve of the pump opens to the left. Its handle is red, and turning it the other way \
                        breaks it. You will then see an error like this:\n\n```console\n{{#include ../out.txt}}\n```\n";
        let found = picked(document, "How does the valve of the pump open?");
        assert!(quotes(&found[0])[0].ends_with("breaks it."), "{found:#?}");
    }

    #[test]
    fn paragraph_before_code_from_another_file_is_shown_with_the_one_after() {
        let document = "# Tests\n\nPass the name of a test to run only that one:\n\n```console\n{{#include ../out.txt}}\n```\n\n\
                        Only the test named `one` ran, as the last line says.\n";
        let found = picked(document, "How do I run only one test?");
        assert!(quotes(&found[0])[0].starts_with("Pass the name") && quotes(&found[0])[0].ends_with("says."));
    }

    #[test]
    fn paragraph_that_refers_to_the_one_before_is_shown_with_it() {
        let document = "# Valves\n\nA valve of brass lasts.\n\nSo, what closes a brass valve? The night rule does.\n";
        let found = picked(document, "What closes a brass valve at night?");
        assert!(found[0].quotes[0].quote.starts_with("A valve of brass lasts."));
    }

    #[test]
    fn example_is_shown_with_the_paragraph_that_it_is_an_example_of() {
        let document = "# Valves\n\nThe valve stays open for one night with the flag of the pump.\n\nFor \
                        example:\n\n```sh\npump --open valve --night\n```\n";
        let found = picked(document, "How do I keep the pump valve open for a night?");
        let quote = quotes(&found[0])[0];
        assert!(quote.starts_with("The valve stays open") && quote.ends_with("--night\n```"), "{quote}");
    }

    #[test]
    fn question_for_a_value_is_not_answered_by_units_without_one() {
        let lacks =
            |document: &str, question: &str| lacks_value(&question.parse().unwrap(), &[], &picked(document, question));
        let document = "# Valves\n\nBrass valves arrived in a later version of the garden.\n";
        assert!(lacks(document, "Which version introduced brass valves?"));
        assert!(!lacks(document, "Why did the garden introduce brass valves?"));
        assert!(lacks("The garden has twelve brass valves in this version.", "Which version introduced brass valves?"));
        for value in ["In version 1.4 the garden got brass valves.", "Brass valves are in the garden since Pump 7."] {
            assert!(!lacks(value, "Which version introduced brass valves?"), "{value}");
        }
        let document = "# Tyres\n\nThe winter tyres are in the cellar since 2 October.\n";
        assert!(lacks(document, "What did the winter tyres cost?"));
        for amount in ["The winter tyres were 480 €.", "Cost of the winter tyres: 480.", "The winter tyres were free."]
        {
            assert!(!lacks(amount, "What did the winter tyres cost?"), "{amount}");
        }
        let document = "# Meet\n\nThe meet of the valve makers had 40 guests.\n\nThe opener at the meet was 295 lbs.\n";
        assert!(lacks(document, "On which day is the meet of the valve makers?"));
        for day in ["2 May", "a Tuesday", "2025-05-02"] {
            assert!(!lacks(&format!("The meet is on {day}.\n"), "On which day is the meet?"), "{day}");
        }
    }

    #[test]
    fn sentence_with_the_value_that_is_asked_for_decides_and_of_a_list_that_is_asked_for_its_lead_in() {
        let document =
            "# Valves\n\nValves of a garden are counted by the gardener every spring. There are forty of them.\n";
        assert_eq!(picked(document, "How many valves are in the garden?")[0].text, "There are forty of them.");
        let document = "# Valves\n\nThe garden has these valves:\n\n- a brass valve in the garden\n- a steel valve\n";
        assert_eq!(picked(document, "Which valves are in the garden?")[0].text, "The garden has these valves:");
    }

    #[test]
    fn unit_whose_sentence_has_all_that_is_asked_is_the_answer_without_poorer_ones_unless_several_things_are_asked_for()
    {
        let document = "# Brass\n\nThe garden closes its brass valves at night because of frost that comes in March.\n\nAt dusk \
                        the garden closes its brass valves, says the watchman, who walks round with a lamp and a dog.\n";
        let shown = |question: &str| quotes(&picked(document, question)[0])[0].contains("says the watchman");
        assert!(!shown("Why does the garden close its brass valves at night?"));
        assert!(shown("Which brass valves close at night in the garden?"));
    }

    #[test]
    fn units_that_follow_each_other_are_one_text_and_count_once() {
        let document = "# Garden\n\n## Gate\n\nThe gate of the garden has a lock of brass.\n\nBoth garden gates are \
                        closed at night by the watchman.\n\n## Oak\n\nOak is good for every gate beside the garden \
                        pond.\n\n## Mill\n\nThe smith made gates for the mill and its garden.\n";
        let found = picked(document, "Which gates are in the garden?");
        let joined = "lock of brass.\n\nBoth garden gates are closed";
        assert!(found.iter().any(|found| quotes(found)[0].contains(joined)), "{found:#?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn step_is_shown_with_those_around_it_and_not_with_those_for_another_case() {
        let filler =
            "The pump of the garden was built long ago by a smith of the village, who is remembered. ".repeat(12);
        let document = format!(
            "# Pump\n\n{filler}\n\nOpen the valve that feeds the pump from the tank of the garden:\n\n```sh\nopen\n```\n\n\
             By adding `--undo`, close it:\n\n```sh\nopen --undo\n```\n\nThe smith is dead.\n"
        );
        let found = picked(&document, "How do I open the valve that feeds the pump?");
        let quote = quotes(&found[0])[0];
        assert!(quote.starts_with("Open the valve") && quote.ends_with("open --undo\n```"), "{quote}");
        let document =
            "# Install the pump\n\nOn Debian:\n\n```sh\napt install pump\n```\n\nOn macOS:\n\n```sh\nbrew\n```\n";
        let found = picked(document, "How do I install the pump on Debian?");
        assert_eq!(quotes(&found[0]), ["On Debian:\n\n```sh\napt install pump\n```"]);
        let document = "# Redis\n\nIt is not open to the world.\n\nMake a tunnel:\n\n```sh\nssh\n```\n\nIn another terminal, reach \
                        the store:\n\n```sh\nredis-cli\n```\n";
        let found = picked(document, "How can I reach the store from my machine?");
        assert!(quotes(&found[0])[0].starts_with("It is not open") && found.len() == 1, "{found:#?}");
    }

    #[test]
    fn text_is_read_on_below_its_heading_unless_one_sentence_says_all_that_is_asked() {
        let document = "# Garden\n\n## Gate\n\nThe gate of the garden is shared with the mill by a list of names.\n\nWho \
                        is not on it asks the watchman.\n\n## Oak\n\nOak lasts.\n";
        let quote = |question: &str| quotes(&picked(document, question)[0])[0].to_owned();
        let read_on = quote("How is the garden gate shared with strangers?");
        assert!(read_on.ends_with("asks the watchman."), "{read_on}");
        let alone = quote("Is the gate shared with the mill?");
        assert!(alone.ends_with("list of names."), "{alone}");
    }

    #[test]
    fn question_about_a_failure_is_answered_by_the_message_and_what_follows_it() {
        let document = "# Pump\n\n## Messages\n\n### Dry\n\nThe pump stops with this error:\n\n```text\nerror: the tank is \
                        dry\n```\n\n### What to do\n\nFill the tank.\n\n## Colours\n\nIt is red.\n";
        for question in ["error: the tank is dry", "The pump fails with \"the tank is dry\". How do I fix it?"] {
            let found = picked(document, question);
            assert!(quotes(&found[0])[0].ends_with("### What to do\n\nFill the tank."), "{found:#?}");
        }
        let found = picked(document, "Which error says that the tank is dry?");
        assert!(quotes(&found[0])[0].ends_with("dry\n```"), "who asks for the message gets it: {found:#?}");
    }

    #[test]
    fn unit_that_says_little_by_itself_is_shown_below_its_heading() {
        let document = "# Pension\n\n## Does the company match my pension?\n\n- Not yet.\n\n## Fees\n\n- None.\n";
        let found = picked(document, "Does the company match what I pay into my pension?");
        assert_eq!(quotes(&found[0]), ["## Does the company match my pension?\n\n- Not yet."]);
    }

    #[test]
    fn long_nested_list_is_cut_to_the_items_that_bear_on_the_question_below_those_they_are_nested_in() {
        let other =
            "Water the beds in the evening and close the gate behind you, so that no goat comes in. ".repeat(15);
        let document = format!(
            "# Rules\n\nThe rules:\n\n- Beds:\n    - {other}\n- Leave:\n    - {other}\n    - A long holiday needs permission.\n"
        );
        let found = picked(&document, "Do I need permission for a holiday?");
        assert_eq!(quotes(&found[0]), ["The rules:", "- Leave:", "    - A long holiday needs permission."]);
    }

    #[test]
    fn row_of_a_symbol_is_found_by_it() {
        let row = |sign: &str| format!("| `{sign}` | `a {sign} b` |\n");
        let signs = ["!", "!=", "%", "%=", "&", "&&", "*", "*=", "+", "+=", "-", "-=", "..", "..=", "/", "/="];
        let table = format!("# Operators\n\n| operator | use |\n|---|---|\n{}", signs.map(row).concat());
        let found = picked(&table, "What does the ..= operator mean?");
        assert_eq!(quotes(&found[0]), ["| operator | use |\n|---|---|", "| `..=` | `a ..= b` |"]);
    }

    #[test]
    fn first_sentence_answers_though_the_last_leads_on_to_something() {
        let document = "# Buddies\n\nA guild has a hall, a bell and a buddy for each that is new in it, says the book.\n\n\
                        The manager selects the buddy of a new member. These points are considered:\n";
        let found = picked(document, "Who selects the buddy of a member?");
        assert!(quotes(&found[0])[0].starts_with("The manager"), "{found:#?}");
    }

    #[test]
    fn unit_that_points_elsewhere_comes_after_one_that_says() {
        let document = "# Expenses\n\nYou can find information on how to submit an expense here.\n\n\
                        Submit an expense with its receipt in the portal by the end of the month.\n";
        let found = picked(document, "How do I submit an expense?");
        assert!(found[0].quotes[0].quote.starts_with("Submit an expense"), "{found:#?}");
    }
}
