//! The units of the documents found, with their features, best first.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::asked::{AnswerKind, asks_for_changes, asks_for_decision, names_decision};
use super::code_word::CodeWord;
use super::definition::opens_with;
use super::features::{Features, MARGIN, Weights, is_contents, is_of_links, only_points, opens_with_link, share};
use super::nearness::{Nearness, can_open};
use super::sought::{Sought, Value};
use super::value::{Wanted, names_limits};
use super::wording::has_word;
use super::{DocumentHits, MAX_LINES, MAX_PIECES, SAYS_MOST, is_of};
use crate::base::line::CodeFence;
use crate::base::word::WordSplitter;
use crate::kb::embed::{EmbedError, Embedder, Matches};
use crate::research::lead_in::ends_open;
use crate::research::question::Question;
use crate::research::sentence::Sentence;
use crate::research::unit::{Unit, UnitKind, items, units, units_of_page};
use crate::source::{Passage, Place, ProperName};

/// Openings of an example.
const EXAMPLES: [&str; 9] = [
    "For example", "For instance", "Suppose ", "Imagine ", "Consider ", "The following example", "An example of ",
    "Examples of ", "A typical ",
];

/// Score of a unit next to a hit, relative to that of the hit.
pub(super) const NEIGHBOUR: f32 = 0.85;

/// Number of hits from which a document with more than half of all hits is searched in its other sections as well: the
/// hits of a note on the subject crowd into a few of its sections.
const HITS_OF_SUBJECT: usize = 3;

/// Openings of the titles of notes that list changes. The subjects they mention are explained elsewhere.
const HISTORIES: [&str; 7] = [
    "document history", "revision history", "release history", "changelog", "change log", "release notes", "what's new",
];

/// Names that a document or a part of it has for itself, verbs with which it announces what it is about, and words for
/// its readers.
const DOCUMENTS: [&str; 9] =
    ["article", "chapter", "document", "guide", "page", "section", "topic", "tutorial", "walkthrough"];
const ANNOUNCING: [&str; 12] = [
    "covers", "describes", "discusses", "explains", "highlights", "introduces", "outlines", "presents", "provides",
    "shows", "summarizes", "walks",
];
const READERS: [&str; 6] = ["you", "you'll", "you’ll", "we", "we'll", "we’ll"];

/// Further verbs with which a document announces a list of its topics. In a paragraph they may state a fact.
const LISTING: [&str; 2] = ["contains", "includes"];

/// Maximum number of words of a topic in a list of what a document covers.
const MOST_OF_TOPIC: usize = 12;

/// Two units that share more than this fraction of the smaller one's words count as duplicates.
pub(super) const SAME_WORDS: f32 = 0.7;

/// Minimum share of the question's words in a unit of a note on limits for it to be the requested limit.
const LEAST_LIMITED: f32 = 0.5;

/// Where the opening of a document ends.
const SUBHEADING: &str = "\n## ";

/// Number of items or rows from which a unit is measured by the best of them if one thing is asked for.
const MANY_PIECES: usize = 4;

/// Number of words at the beginning of an item that may name what it is about.
const NAME_WORDS: usize = 3;

/// Number of units compared with the question token by token: the best by words and rank. Bounds the time per node.
pub(super) const MAX_COMPARED: usize = 16;

/// `MaxSim` of a word below which nothing in a text is near it. Of 32 firm answers to questions with "which" or "what", only
/// two have the noun after it below this, and the notes answer neither. Of five unknown words in questions for a value, two
/// are below it, one of them in a question that the notes do not answer.
const LEAST_NEAR: f32 = 0.38;

/// Number of sentences per unit compared token by token.
pub(super) const MAX_SENTENCES: usize = 48;

/// Lead over the units of other sections above which more is no better sign of an answer, in log odds.
pub(super) const FULL_LEAD: f32 = 2.0;

/// Maximum length of a unit together with the one it refers to, in bytes.
pub(super) const MAX_EXTENDED: usize = 1_500;

/// Openings of a paragraph that makes no sense without the one before it.
pub(super) const REFERRING: [&str; 24] = [
    "So, ", "So ", "This ", "That ", "These ", "Those ", "It ", "They ", "However", "But ", "Also", "Then ",
    "Therefore", "Instead", "For example", "In this case", "As a result", "Here ", "And ", "Otherwise", "Notice ",
    "On the other hand", "Once ", "where ",
];

/// Openings of a lead-in that makes no sense without the unit before it: "For example:" above a block of code. "These
/// are:" refers to what follows.
pub(super) const REFERRING_LEAD_INS: [&str; 5] =
    ["For example", "For instance", "In this case", "Instead", "Otherwise"];

/// Assumed width of a screen, in bytes.
const COLUMNS: usize = 90;

/// A unit with its features.
pub(super) struct UnitCandidate<'a> {
    pub(super) reading: &'a DocumentHits,
    pub(super) rank: usize,
    pub(super) unit: Unit,
    /// The pieces to measure one by one, if the question asks for one thing; otherwise the unit is measured as a whole.
    one_by_one: Option<Vec<Range<usize>>>,
    /// Whether it has a value of the requested kind.
    has_value: bool,
    /// Score of the hit that contains it or is next to it, relative to the best hit.
    hit: f32,
    pub(super) words: HashSet<String>,
    /// Words of the question in its headings.
    pub(super) about: HashSet<String>,
    /// How well the words of the question match its headings, which are the first part, and its sentences.
    pub(super) matches: Option<Matches>,
    pub(super) features: Features,
    /// Lead over the best unit of another section, from 0 to 1, if an embedder has compared them.
    pub(super) lead: Option<f32>,
    /// How close it is to the subject of an overview or a definition, and whether it opens a note or section on it.
    pub(super) nearness: Nearness,
    pub(super) is_opening: bool,
    /// The first sentence that defines the requested term.
    pub(super) defining: Option<usize>,
}

impl UnitCandidate<'_> {
    pub(super) fn text(&self) -> &str {
        &self.reading.document.text[self.unit.range.clone()]
    }

    /// Returns what identifies its section: the rank of its document, and its number there.
    pub(super) fn section(&self) -> (usize, usize) {
        (self.rank, self.unit.section)
    }

    /// Returns whether its score is at most [`MARGIN`] below that of the best unit.
    pub(super) fn is_near(&self, best: &Self) -> bool {
        self.features.score() >= best.features.score() - MARGIN
    }

    /// Returns the title of its document and the headings above it. All of them: a unit below "Decision" is as much
    /// about the title as the paragraph directly below the title.
    pub(super) fn headings(&self) -> String {
        let title = self.reading.document.place.title();
        let mut names = vec![title];
        let own = self.unit.headings.iter().map(String::as_str);
        names.extend(own.filter(|heading| *heading != title));
        names.join(". ")
    }

    /// Returns the item or row that contains a sentence, given the text of the sentence.
    pub(super) fn item_of(&self, sentence: &str) -> Option<&Range<usize>> {
        let own = self.unit.sentences.iter().find(|own| own.plain == sentence)?;
        self.unit.pieces.iter().find(|piece| overlap(piece, &own.range))
    }

    /// Returns whether another unit is directly before or after this one.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.between(other).is_some_and(|between| between.trim().is_empty())
    }

    /// Returns the text between this unit and another one of its section. `None` for a unit shown in part.
    pub(super) fn between(&self, other: &Self) -> Option<&str> {
        let is_short = |own: &Self| own.unit.pieces.len() <= MAX_PIECES && lines_in(own.text()) <= MAX_LINES;
        let (a, b) = (&self.unit.range, &other.unit.range);
        let between = if a.start < b.start { a.end..b.start } else { b.end..a.start };
        let is_one = std::ptr::eq(self.reading, other.reading) && self.unit.section == other.unit.section;
        let text = self.reading.document.text.get(between).filter(|_| is_one);
        text.filter(|_| is_short(self) && is_short(other))
    }

    /// Returns whether it has a value of the requested kind, if one is requested.
    pub(super) fn has_wanted(&self, sought: &Sought<'_>) -> bool {
        sought.wanted.is_none() || self.has_value
    }

    /// Returns the sentences with exactly the requested value.
    fn exact<'s>(&'s self, sought: &'s Sought<'_>) -> impl Iterator<Item = &'s Sentence> {
        self.unit.sentences.iter().filter(move |own| sought.value_in(own) == Value::Exact)
    }

    /// Returns whether a sentence has exactly the requested value.
    pub(super) fn has_exact(&self, sought: &Sought<'_>) -> bool {
        self.exact(sought).next().is_some()
    }

    /// Returns the largest share of the question's words in a sentence with exactly the requested value; `None` if no
    /// sentence has that value.
    pub(super) fn exact_share(&self, sought: &Sought<'_>, weights: &Weights) -> Option<f32> {
        let says = |own: &Sentence| share(weights, &sought.words_in(&own.plain), &self.about);
        self.exact(sought).map(says).reduce(f32::max)
    }

    /// Returns whether it has the requested definition: in a sentence, or as the opening of a note on the term.
    pub(super) fn is_definition(&self, sought: &Sought<'_>) -> bool {
        sought.asked == AnswerKind::Definition
            && (self.defining.is_some() || (self.is_opening && self.features.has_form()))
    }

    /// Returns whether the heading above requested steps has all words of the question, of which there are several, and
    /// at most one other.
    pub(super) fn is_titled(&self, sought: &Sought<'_>, weights: &Weights) -> bool {
        let Some(heading) = self.unit.headings.last().filter(|_| sought.asked == AnswerKind::Steps) else {
            return false;
        };
        let (words, own) = (sought.words_in(heading), sought.splitter.key_stems(heading));
        let has_all = || weights.keys().all(|stem| words.contains(stem));
        self.features.has_form() && weights.len() > 1 && own.len() <= weights.len() + 1 && has_all()
    }

    /// Returns whether it is a list with an item for each of the things compared, which begins with the name of that
    /// thing. Words of the headings belong to all items.
    pub(super) fn has_item_of_each(&self, sought: &Sought<'_>, weights: &Weights) -> bool {
        if sought.asked != AnswerKind::Comparison || !matches!(self.unit.kind, UnitKind::List { .. }) {
            return false;
        }
        let text = &self.reading.document.text;
        let label = |piece: &Range<usize>| {
            let first = self.unit.sentences.iter().find(|own| overlap(piece, &own.range));
            let words = first.map_or(&text[piece.clone()], |own| &own.plain).split_whitespace();
            let mut label = sought.words_in(&words.take(NAME_WORDS).collect::<Vec<_>>().join(" "));
            label.retain(|stem| weights.contains_key(stem) && !self.about.contains(stem));
            label
        };
        let labels: Vec<_> = self.unit.pieces.iter().map(label).filter(|label| !label.is_empty()).collect();
        let has_all =
            || weights.keys().all(|stem| self.about.contains(stem) || labels.iter().any(|own| own.contains(stem)));
        labels.len() > 1 && has_all()
    }

    /// Returns the key words of the question that it lacks and that nothing in it is near; `None` if no embedder has
    /// compared them one by one.
    pub(super) fn far_words(&self, sought: &Sought<'_>) -> Option<Vec<String>> {
        let matches = self.matches.as_ref().filter(|matches| matches.tells_words_apart())?;
        let near = matches.by_word(0..matches.parts());
        let is_said = |stem: &String| self.words.contains(stem) || self.about.contains(stem);
        let is_lacking = |word: &str| {
            let stems = sought.splitter.key_stems(word);
            !stems.is_empty() && !stems.iter().any(is_said)
        };
        let words = sought.question.split_whitespace().zip(near);
        let far = words.filter(|(word, near)| *near < LEAST_NEAR && is_lacking(word));
        Some(far.map(|(word, _)| word.to_owned()).collect())
    }

    /// Sets the headings of a place in this unit. A document that was read whole has those of the first passage found
    /// in it.
    pub(super) fn name_headings(&self, place: &mut Place) {
        if let (Place::Kb { line_start: 1, .. }, Place::Kb { heading_path, .. }) = (&self.reading.document.place, place)
        {
            heading_path.clone_from(&self.unit.headings);
        }
    }
}

pub(super) fn candidates<'a>(
    readings: &'a [DocumentHits],
    names: &[ProperName],
    sought: &Sought<'_>,
) -> (Vec<UnitCandidate<'a>>, Weights) {
    let Sought { asked, splitter, stems, .. } = sought;
    let (mut candidates, mut unhit) = (Vec::new(), Vec::new());
    // Never zero, since scores are divided by it.
    let best = readings.iter().flat_map(|reading| &reading.hits).map(|hit| hit.1).fold(f32::EPSILON, f32::max);
    let least = readings.iter().flat_map(|reading| &reading.hits).map(|hit| hit.1).fold(best, f32::min);
    let all_hits: usize = readings.iter().map(|reading| reading.hits.len()).sum();
    for (rank, reading) in readings.iter().enumerate() {
        let text = &reading.document.text;
        let is_on_subject = reading.hits.len() >= HITS_OF_SUBJECT && reading.hits.len() * 2 > all_hits;
        let is_searched = is_on_subject && !matches!(asked, AnswerKind::Overview | AnswerKind::Definition);
        let found = units_in(&reading.document);
        let (mut opened, mut last_section) = (HashSet::new(), None);
        let sections: HashMap<usize, f32> = sections_hit(&found, &reading.hits);
        for unit in with_what_they_refer_to(text, found) {
            // For an overview, the whole note or section; for a definition, its opening. Not only the sections found.
            let nearness = match asked {
                AnswerKind::Overview | AnswerKind::Definition => Nearness::of(&reading.document, &unit, sought),
                _ => Nearness::default(),
            };
            let is_opening = nearness.is_on_subject() && can_open(&unit, text) && opened.insert(nearness);
            let example = unit.sentences.iter().position(|own| opens_example(&own.plain));
            // What an example says of a thing does not define it.
            let defining = sought.defining(&unit, text).filter(|at| example.is_none_or(|first| *at < first));
            // The text of an entry rarely repeats its term.
            let is_first = last_section != Some(unit.section);
            last_section = Some(unit.section);
            let is_entry = |heading: &String| sought.is_entry(heading, reading.document.place.title());
            let is_entry = is_first && unit.headings.last().is_some_and(is_entry) && !unit.sentences.is_empty();
            let defining = defining.or(is_entry.then_some(0));
            let wanted = match asked {
                // It defines the subject, whatever its rank in the search.
                AnswerKind::Definition => is_opening.then_some(best).or(defining.map(|_| least)),
                _ => nearness.is_on_subject().then_some(least),
            };
            let of_section = sections.get(&unit.section).copied().into_iter().chain(wanted).reduce(f32::max);
            let is_unhit = of_section.is_none();
            let Some(of_section) = of_section.or(is_searched.then_some(least * NEIGHBOUR)) else { continue };
            let is_hit = |(range, _): &&(Range<usize>, f32)| overlap(range, &unit.range);
            let hit = reading.hits.iter().filter(is_hit).map(|hit| hit.1).fold(of_section * NEIGHBOUR, f32::max) / best;
            let words = sought.words_in(&plain(&unit, text));
            let own = UnitCandidate {
                reading,
                rank,
                one_by_one: read_one_by_one(&unit, text, sought),
                unit,
                has_value: false,
                hit,
                words,
                about: HashSet::new(),
                matches: None,
                features: Features::default(),
                lead: None,
                nearness,
                is_opening,
                defining,
            };
            if is_unhit { unhit.push(own) } else { candidates.push(own) }
        }
    }
    // By the sections found: in a whole note on the subject, other words are rare.
    let weights = rarity(&candidates, stems);
    candidates.extend(unhit);
    let mut sections: HashMap<(usize, usize), HashSet<String>> = HashMap::new();
    for candidate in &mut candidates {
        candidate.about = sought.words_in(&candidate.headings());
        candidate.about.retain(|stem| weights.contains_key(stem));
        let section = sections.entry(candidate.section()).or_default();
        section.extend(candidate.words.union(&candidate.about).cloned());
    }
    let section_share = |words: HashSet<String>| share(&weights, &words, &HashSet::new());
    let sections: HashMap<_, f32> = sections.into_iter().map(|(at, words)| (at, section_share(words))).collect();
    for candidate in &mut candidates {
        measure(candidate, sought, &weights);
        candidate.features.section = sections[&candidate.section()];
    }
    keep_named(&mut candidates, readings, names, splitter);
    leave_out_histories(&mut candidates, sought);
    leave_out_announcements(&mut candidates, sought);
    leave_out_steps(&mut candidates, sought);
    leave_out_contents(&mut candidates, sought, &weights);
    mark_lacking(&mut candidates, &sought.code_words, splitter);
    sort(&mut candidates);
    (candidates, weights)
}

/// Measures a unit by its words and its form.
fn measure(candidate: &mut UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) {
    let Sought { asked, splitter, .. } = sought;
    let words = said(candidate, sought, weights);
    let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
    let own = candidate.text();
    let is_spelled_out = sought.spells_out(own);
    let value = sought.wanted.map(|wanted| says_value(candidate, wanted, sought, weights));
    let suits = value.unwrap_or_else(|| asked.suits(unit, text, weights, splitter)) || is_spelled_out;
    let opposes = opposes(candidate, sought, weights) || sought.is_optional(unit);
    // Some item of a long list always gives a reason for something, so an item must have most words of the question.
    let is_told = matches!(unit.kind, UnitKind::Paragraph | UnitKind::Callout);
    let says_most = |own: &Sentence| {
        matches!(unit.kind, UnitKind::List { .. })
            && share(weights, &sought.words_in(&own.plain), &HashSet::new()) >= SAYS_MOST
    };
    let is_stated = || {
        let said = &unit.sentences;
        let is_stated = |at| sought.is_stated_by(said, at, &candidate.about, weights);
        (0..said.len()).any(|at| is_stated(at) && (is_told || says_most(&said[at])))
    };
    let suits = (suits || (sought.wanted.is_none() && !opposes && is_stated())) && !opens_example(own);
    let opens = candidate.is_opening && *asked == AnswerKind::Definition && opens_with(own, weights, splitter);
    let is_defined = opens || candidate.defining.is_some();
    let says_no = (0..unit.sentences.len()).any(|at| sought.says_no(&unit.sentences, at, &candidate.about, weights));
    let is_limit = suits
        && words >= LEAST_LIMITED
        && sought.asks_for_limit()
        && (names_limits(candidate.reading.document.place.title())
            || unit.headings.last().is_some_and(|heading| names_limits(heading)));
    let is_decision =
        asks_for_decision(sought.question) && unit.headings.last().is_some_and(|heading| names_decision(heading));
    let form = match () {
        () if opposes || sought.is_of_other_task(unit, weights) => 0.0,
        () if is_spelled_out || is_defined || says_no || is_limit || is_decision => 1.0,
        () => asked.form(unit, text, &sought.listed, weights, splitter, &|text| sought.words_in(text)),
    };
    candidate.features = Features::of(unit, text, words, (suits, form), candidate.hit);
    candidate.has_value = value == Some(true);
    candidate.features.named = named(candidate, weights, splitter);
    candidate.features.opposes = f32::from(u8::from(opposes));
}

pub(super) fn units_in(document: &Passage) -> Vec<Unit> {
    match document.place {
        Place::Kb { .. } => units(&document.text),
        Place::Web { .. } | Place::Mcp { .. } => units_of_page(&document.text),
    }
}

/// Returns the share of the question's words in the heading right above a unit, or in the title if it has none; 0 if
/// that has other words too, or is a single word, as the heading of a chapter often is. "Load balancer state" is the
/// heading above the states; "Pre-built container for X" is not the heading that explains X.
pub(super) fn named(candidate: &UnitCandidate<'_>, weights: &Weights, splitter: &WordSplitter) -> f32 {
    let title = candidate.reading.document.place.title();
    let heading = splitter.key_stems(candidate.unit.headings.last().map_or(title, String::as_str));
    let is_asked = heading.len() > 1 && heading.iter().all(|stem| weights.contains_key(stem));
    if is_asked { share(weights, &heading.into_iter().collect(), &HashSet::new()) } else { 0.0 }
}

/// Returns whether a unit is about the opposite of the question, judged by its first sentence and the heading right
/// above it: later ones may say how to undo a task.
fn opposes(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) -> bool {
    let title = candidate.reading.document.place.title();
    let heading = candidate.unit.headings.last().map_or(title, String::as_str);
    let first = candidate.unit.sentences.first().map_or(candidate.text(), |own| own.plain.as_str());
    sought.is_opposed_by(&format!("{heading} {first}"), &candidate.unit, weights)
}

pub(super) fn opens_example(text: &str) -> bool {
    EXAMPLES.iter().any(|opening| text.starts_with(opening))
}

/// Returns a text in lower case without the backslashes of Markdown.
pub(super) fn unescaped(text: &str) -> String {
    text.replace('\\', "").to_lowercase()
}

/// Drops the units that mention no document named in the question, if others do. They are about something else, however
/// well their other words match. If the question has other names only, a unit stays if its document opens with one.
fn keep_named(
    candidates: &mut Vec<UnitCandidate<'_>>,
    readings: &[DocumentHits],
    names: &[ProperName],
    splitter: &WordSplitter,
) {
    if names.is_empty() {
        return;
    }
    let words: Vec<_> = names.iter().map(|name| CodeWord::of_name(&name.word, splitter)).collect();
    let opens_with_name = |reading: &DocumentHits| {
        let text = &reading.document.text;
        let opening = unescaped(&text[..text.find(SUBHEADING).unwrap_or(text.len())]);
        let stems = splitter.stems(&opening);
        words.iter().any(|word| word.is_in(&opening, &stems))
    };
    let names_document = names.iter().any(|name| !name.documents.is_empty());
    let opened: Vec<_> = readings.iter().map(|reading| !names_document && opens_with_name(reading)).collect();
    let mentions = |own: &UnitCandidate<'_>| {
        opened[own.rank]
            || names.iter().any(|name| is_of(&own.reading.document.place, name))
            || has(own, &words, splitter).contains(&true)
    };
    if candidates.iter().any(mentions) {
        candidates.retain(mentions);
    }
}

/// Drops the units of notes that list changes, and tables of changes, if another unit has as many words of the question,
/// unless that asks for changes.
fn leave_out_histories(candidates: &mut Vec<UnitCandidate<'_>>, sought: &Sought<'_>) {
    let is_history = |own: &UnitCandidate<'_>| {
        let title = own.reading.document.place.title().to_lowercase().replace('’', "'");
        let text = &own.reading.document.text;
        let is_of_changes = || {
            let header = text[own.unit.head()].to_lowercase();
            has_word(&header, "version|release|date") && has_word(&header, "change|changes")
        };
        HISTORIES.iter().any(|opening| title.starts_with(opening))
            || (own.unit.kind == UnitKind::Table && is_of_changes())
    };
    let others = candidates.iter().filter(|own| !is_history(own)).map(|own| own.features.says());
    let most = others.fold(0.0, f32::max);
    if !asks_for_changes(sought.question) {
        candidates.retain(|own| own.features.says() > most || !is_history(own));
    }
}

/// Drops the paragraphs that only announce what their document is about, if there are others, with the list of its
/// topics, and for comparisons and definitions the code that is announced that way. They repeat the words of the title,
/// and with them those of the question, but answer nothing. Nor does a question that only points to its answer.
fn leave_out_announcements(candidates: &mut Vec<UnitCandidate<'_>>, sought: &Sought<'_>) {
    let is_announcement = |own: &UnitCandidate<'_>| {
        let Unit { kind, sentences, .. } = &own.unit;
        // Code is announced as well: "This section shows an example."
        let is_told =
            *kind == UnitKind::Code && matches!(sought.asked, AnswerKind::Comparison | AnswerKind::Definition);
        let announces = |own: &Sentence| announces(&own.plain, &[]);
        let is_text = *kind == UnitKind::Paragraph || is_told;
        let asks = |own: &Sentence| own.plain.ends_with('?');
        let points = |own: &Sentence| only_points(&own.plain);
        let is_asked = || sentences.iter().any(asks) && sentences.iter().any(points);
        (is_text
            && (sentences.iter().any(announces) || is_asked())
            && sentences.iter().all(|own| announces(own) || asks(own) || points(own)))
            || lists_topics(&own.unit, sought)
    };
    if sought.asked != AnswerKind::Overview && !candidates.iter().all(is_announcement) {
        candidates.retain(|own| !is_announcement(own));
    }
}

/// Drops numbered lists if a question asks for a definition, since how a thing is used does not say what it is. A list
/// below a heading that names the term stays: it may be the steps of a process.
fn leave_out_steps(candidates: &mut Vec<UnitCandidate<'_>>, sought: &Sought<'_>) {
    let is_about_use = |own: &UnitCandidate<'_>| {
        let mut headings = own.unit.headings.iter().map(String::as_str).chain([own.reading.document.place.title()]);
        own.unit.kind == UnitKind::List { is_ordered: true }
            && own.defining.is_none()
            && (!own.nearness.is_on_subject() || headings.any(is_task))
    };
    if sought.asked == AnswerKind::Definition && !candidates.iter().all(is_about_use) {
        candidates.retain(|own| !is_about_use(own));
    }
}

/// Returns whether a heading names a task: "How to send a letter".
fn is_task(heading: &str) -> bool {
    heading.get(..7).is_some_and(|opening| opening.eq_ignore_ascii_case("how to "))
}

/// Drops the tables and lists of links whose best row repeats a unit of the note that it links to. Requested lists stay.
fn leave_out_contents(candidates: &mut Vec<UnitCandidate<'_>>, sought: &Sought<'_>, weights: &Weights) {
    if sought.asked == AnswerKind::List {
        return;
    }
    let repeats = |own: &UnitCandidate<'_>| {
        let (text, unit) = (&own.reading.document.text, &own.unit);
        if !is_of_links(unit, text) {
            return false;
        }
        let rows = unit.pieces.iter().filter(|piece| opens_with_link(&text[(*piece).clone()]));
        let says = |row: &&Range<usize>| share(weights, &sought.words_in(&text[(*row).clone()]), &HashSet::new());
        let Some(row) = rows.max_by(|a, b| says(a).total_cmp(&says(b))) else { return false };
        let said = unit.sentences.iter().filter(|own| overlap(row, &own.range));
        let words = sought.splitter.stems(&said.map(|own| own.plain.as_str()).collect::<Vec<_>>().join(" "));
        candidates.iter().filter(|other| !std::ptr::eq(other.reading, own.reading)).any(|other| {
            let has = |word: &String| other.words.contains(word) || other.about.contains(word);
            links_to(&text[row.clone()], &other.reading.document.place)
                && words.iter().filter(|word| has(word)).count() * 10 >= words.len() * 9
        })
    };
    let contents: Vec<_> = candidates.iter().map(repeats).collect();
    let mut contents = contents.into_iter();
    candidates.retain(|_| contents.next() != Some(true));
}

/// Returns whether a text has a link to the file of a place, by its name.
fn links_to(text: &str, place: &Place) -> bool {
    let Place::Kb { path, .. } = place else { return false };
    let file = path.rsplit('/').next().unwrap_or(path);
    let opens = |at: usize| text[..at].ends_with(['(', '/', '"', '\'', '<']);
    text.match_indices(file).any(|(at, _)| opens(at))
}

/// Returns whether a unit is a list of the topics of a document: "This article also covers:" above a few words each.
/// "This section describes the following modes:" announces the modes that a question asks for.
fn lists_topics(unit: &Unit, sought: &Sought<'_>) -> bool {
    let is_asked = |said: &str| sought.listed.last().is_some_and(|noun| sought.splitter.stems(said).contains(noun));
    let is_announced = |said: &str| said.ends_with(':') && announces(said, &LISTING) && !is_asked(said);
    let is_short = |own: &Sentence| own.plain.split_whitespace().count() <= MOST_OF_TOPIC;
    let head = unit.head();
    let mut topics = unit.sentences.iter().filter(|own| own.range.start >= head.end);
    matches!(unit.kind, UnitKind::List { .. })
        && unit.lead_in().is_some_and(|lead_in| is_announced(&lead_in.plain))
        && topics.all(is_short)
}

/// Returns whether a sentence says what a document is about: "This topic describes how to …". `verbs` count in addition
/// to [`ANNOUNCING`].
fn announces(sentence: &str, verbs: &[&str]) -> bool {
    let sentence = sentence.to_lowercase();
    let words = sentence.split_whitespace().map(|word| word.trim_matches([',', ':'])).filter(|word| *word != "also");
    let words: Vec<_> = words.take(4).collect();
    match words[..] {
        ["this", document, verb, ..] => {
            DOCUMENTS.contains(&document) && (ANNOUNCING.contains(&verb) || verbs.contains(&verb))
        }
        ["in", "this", document, reader] => DOCUMENTS.contains(&document) && READERS.contains(&reader),
        _ => false,
    }
}

/// Returns which code words a unit has, in its text, its headings or its path.
pub(super) fn has(candidate: &UnitCandidate<'_>, code_words: &[CodeWord], splitter: &WordSplitter) -> Vec<bool> {
    let around = format!("{} {}", candidate.headings(), candidate.reading.document.place.for_people());
    let text = unescaped(&format!("{around} {}", candidate.text()));
    let mut words = splitter.stems(&around);
    words.extend(candidate.words.iter().cloned());
    code_words.iter().map(|word| word.is_in(&text, &words)).collect()
}

/// Sets the share of the question's code words that each unit lacks, counting only those that some unit has.
#[expect(clippy::cast_precision_loss, reason = "a question has few words")]
pub(super) fn mark_lacking(candidates: &mut [UnitCandidate<'_>], code_words: &[CodeWord], splitter: &WordSplitter) {
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

/// Extends units that refer to the one before them ("So, what is the difference?") by that unit. Does the same for
/// the paragraph after code that is included from another file: such code is not a unit, and the paragraph that
/// introduces it would lead nowhere.
pub(super) fn with_what_they_refer_to(text: &str, units: Vec<Unit>) -> Vec<Unit> {
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
            unit.sentences = before.sentences.iter().cloned().chain(std::mem::take(&mut unit.sentences)).collect();
        }
        extended.push(unit);
    }
    extended
}

/// Returns the sections with hits, with the best score in each.
pub(super) fn sections_hit(units: &[Unit], hits: &[(Range<usize>, f32)]) -> HashMap<usize, f32> {
    let mut sections = HashMap::new();
    for (range, score) in hits {
        for unit in units.iter().filter(|unit| overlap(range, &unit.range)) {
            let best = sections.entry(unit.section).or_insert(*score);
            *best = best.max(*score);
        }
    }
    sections
}

pub(super) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Returns the weight of each stem: inverse document frequency over the units.
#[expect(clippy::cast_precision_loss, reason = "counts of units are small")]
pub(super) fn rarity(candidates: &[UnitCandidate<'_>], stems: &[String]) -> Weights {
    let weight = |stem: &String| {
        let having = candidates.iter().filter(|candidate| candidate.words.contains(stem)).count();
        // One is added, so that a word in every unit still counts.
        (1.0 + (candidates.len() as f32 + 0.5) / (having as f32 + 0.5)).ln()
    };
    stems.iter().map(|stem| (stem.clone(), weight(stem))).collect()
}

pub(super) fn sort(candidates: &mut [UnitCandidate<'_>]) {
    let place = |candidate: &UnitCandidate<'_>| (candidate.rank, candidate.unit.range.start);
    let score = |candidate: &UnitCandidate<'_>| candidate.features.score();
    candidates.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| place(a).cmp(&place(b))));
}

/// Adds how well the question matches the best window of each unit, and sorts again. Units beyond [`MAX_COMPARED`] are
/// dropped.
pub(super) fn add_meaning(
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
        candidate.features.add_meaning(&matches, &read_together(candidate, matches.parts()));
        candidate.matches = Some(matches);
    }
    sort(candidates);
    let leads: Vec<_> = (0..candidates.len()).map(|at| lead(at, candidates)).collect();
    candidates.iter_mut().zip(leads).for_each(|(candidate, lead)| candidate.lead = Some(lead));
    Ok(())
}

/// Returns the lead of a unit over the best one of another section, as a share of [`FULL_LEAD`]. A unit that says little
/// besides does not compete. The other way round, the few words of a short unit occur in many.
#[expect(clippy::cast_precision_loss, reason = "units are short")]
pub(super) fn lead(at: usize, candidates: &[UnitCandidate<'_>]) -> f32 {
    let own = &candidates[at];
    let repeated = |other: &UnitCandidate<'_>| {
        own.words.intersection(&other.words).count() as f32 / other.words.len().max(1) as f32
    };
    let competes = |other: &&UnitCandidate<'_>| own.section() != other.section() && repeated(other) <= SAME_WORDS;
    let lead = |other: &UnitCandidate<'_>| (own.features.score() - other.features.score()) / FULL_LEAD;
    candidates.iter().find(competes).map_or(1.0, |other| lead(other).clamp(0.0, 1.0))
}

/// Returns the size of the intersection relative to the smaller set.
#[expect(clippy::cast_precision_loss, reason = "units are short")]
pub(super) fn common(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let smaller = a.len().min(b.len()).max(1);
    a.intersection(b).count() as f32 / smaller as f32
}

/// Returns the headings of a unit as one part, and its sentences; the whole unit if it has none.
pub(super) fn parts<'a>(headings: &'a str, candidate: &'a UnitCandidate<'_>) -> Vec<&'a str> {
    let whole = candidate.text();
    let sentences = compared(&candidate.unit).iter().map(|sentence| sentence.plain.as_str());
    let is_empty = candidate.unit.sentences.is_empty();
    std::iter::once(headings).chain(sentences).chain(is_empty.then_some(whole)).collect()
}

/// Returns the sentences of a unit, without the targets of links, and the header of a table; code as it is written.
fn plain<'a>(unit: &Unit, text: &'a str) -> Cow<'a, str> {
    if unit.sentences.is_empty() || unit.kind == UnitKind::Code {
        return text[unit.range.clone()].into();
    }
    let head = if unit.kind == UnitKind::Table { &text[unit.head()] } else { "" };
    let said = unit.sentences.iter().map(|own| own.plain.as_str());
    std::iter::once(head).chain(said).collect::<Vec<_>>().join("\n").into()
}

/// Returns the pieces of a unit if a question asks for one of them, or if it is a table of contents: of a long list its
/// items at any depth. The words of the question that are spread over such pieces say nothing.
fn read_one_by_one(unit: &Unit, text: &str, sought: &Sought<'_>) -> Option<Vec<Range<usize>>> {
    let is_list = matches!(unit.kind, UnitKind::List { .. });
    let is_long = is_list && lines_in(&text[unit.range.clone()]) > MAX_LINES;
    let is_asked = match sought.asked {
        AnswerKind::Overview => false,
        // Steps are numbered, so any other list is searched for the item that says how.
        AnswerKind::Steps => is_long && unit.kind == UnitKind::List { is_ordered: false },
        AnswerKind::List => is_contents(unit, text),
        _ => sought.asks_for_one(),
    };
    let items = || items(text, unit).into_iter().map(|(_, item)| item).collect();
    let pieces = || if is_long { items() } else { unit.pieces.clone() };
    is_asked.then(pieces).filter(|pieces| pieces.len() >= MANY_PIECES)
}

/// Returns the parts of a unit that are read together, given their number; the first are the headings: all of them, or
/// those of each piece with its lead-in.
fn read_together(candidate: &UnitCandidate<'_>, parts: usize) -> Vec<Vec<usize>> {
    let Some(pieces) = &candidate.one_by_one else { return vec![(0..parts).collect()] };
    let head = candidate.unit.head();
    let sentences: Vec<_> = (1..parts).zip(&candidate.unit.sentences).collect();
    let of = |piece: &Range<usize>| {
        let is_of = |own: &Sentence| overlap(&head, &own.range) || overlap(piece, &own.range);
        let own = sentences.iter().filter(|(_, own)| is_of(own)).map(|(part, _)| *part);
        std::iter::once(0).chain(own).collect()
    };
    pieces.iter().map(of).collect()
}

/// Returns the share of the question's words in a unit, or in the best of its pieces with its lead-in.
fn said(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) -> f32 {
    let Some(pieces) = &candidate.one_by_one else { return share(weights, &candidate.words, &candidate.about) };
    let text = &candidate.reading.document.text;
    let head = &text[candidate.unit.head()];
    let of = |piece: &Range<usize>| {
        share(weights, &sought.words_in(&format!("{head}\n{}", &text[piece.clone()])), &candidate.about)
    };
    pieces.iter().map(of).fold(0.0, f32::max)
}

/// Returns whether a unit has a value of the requested kind. In a list that is measured piece by piece, it must be in
/// the lead-in, or in a piece with at least half as many words of the question as the best one.
fn says_value(candidate: &UnitCandidate<'_>, wanted: Wanted, sought: &Sought<'_>, weights: &Weights) -> bool {
    let is_list = matches!(candidate.unit.kind, UnitKind::List { .. });
    let Some(pieces) = candidate.one_by_one.as_ref().filter(|_| is_list) else { return wanted.is_in(candidate.text()) };
    let text = &candidate.reading.document.text;
    if wanted.is_in(&text[candidate.unit.head()]) {
        return true;
    }
    let said = |piece: &Range<usize>| share(weights, &sought.words_in(&text[piece.clone()]), &HashSet::new());
    let shares: Vec<_> = pieces.iter().map(said).collect();
    let most = shares.iter().copied().fold(0.0, f32::max);
    let mut near = pieces.iter().zip(&shares).filter(|(_, share)| **share * 2.0 >= most);
    near.any(|(piece, _)| wanted.is_in(&text[piece.clone()]))
}

/// Returns the sentences of a unit to compare token by token.
pub(super) fn compared(unit: &Unit) -> &[Sentence] {
    &unit.sentences[..unit.sentences.len().min(MAX_SENTENCES)]
}

/// Estimates the lines of a unit on a screen, with a paragraph of at most this many.
pub(super) fn lines_of(candidate: &UnitCandidate<'_>, paragraph: usize) -> usize {
    let text = candidate.text();
    match candidate.unit.kind {
        UnitKind::Paragraph => (text.len() / COLUMNS + 1).min(paragraph) + 1,
        UnitKind::Callout => text.len() / COLUMNS + 2,
        UnitKind::List { .. } => lines_in(text).min(MAX_LINES) + 2,
        UnitKind::Table => candidate.unit.pieces.len().min(MAX_PIECES) + 3,
        UnitKind::Code => text.lines().count() + 1,
    }
}

/// Estimates the lines of a text on a screen.
pub(super) fn lines_in(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).map(rows).sum()
}

/// Estimates the lines of Markdown on a screen, with the blank ones. The lines of a paragraph are joined.
pub(super) fn screen_lines(text: &str) -> usize {
    let starts_item = |line: &str| line.trim_start().starts_with(['-', '*', '+', '|']);
    let (mut lines, mut open, mut fence) = (0, 0_usize, CodeFence::default());
    for line in text.lines() {
        let is_blank = line.trim().is_empty();
        if fence.takes(line)
            || is_blank
            || starts_item(line)
            || line.starts_with(|letter: char| letter.is_ascii_digit())
        {
            lines += open.div_ceil(COLUMNS) + usize::from(is_blank);
            open = 0;
        }
        open += line.len() + usize::from(!line.is_empty());
    }
    lines + open.div_ceil(COLUMNS)
}

/// Estimates the rows of a line on a screen.
fn rows(line: &str) -> usize {
    line.len() / COLUMNS + 1
}
