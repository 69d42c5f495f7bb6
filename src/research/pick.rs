//! Picks the units of found documents that answer a question, without a model.
//!
//! A unit is scored by a few features that can be explained, such as the share of the question's words in it and how
//! well each of them matches its sentences and headings.

mod features;
mod wording;
mod definition;
mod subject;
mod value;
mod asked;
mod code_word;
mod negation;
mod permission;
mod remedy;
mod sought;
mod nearness;
mod candidate;
mod choice;
mod extent;
mod lacking;
mod overview;
mod shown;
#[cfg(test)]
mod fit;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use asked::AnswerKind;
use candidate::{FULL_LEAD, UnitCandidate, add_meaning, candidates, lines_in, units_in};
use choice::{best, says_all};
use extent::{GAP, ReadOn, add_announced, add_counterpart, add_series, cut_loose_end, join, read_on, shorten, widen};
use features::{Weights, is_for_doubts, share};
use nearness::names_subject;
use overview::{keep_best, overview};
use remedy::{Remedy, names_symptoms};
use shown::{Deciding, shown};
use sought::Sought;
use subject::overview_of;
use value::{Wanted, measures_length, names_length};

pub(super) use features::only_points;
pub(super) use lacking::lacks_value;

use super::evidence::{Evidence, EvidenceId};
use super::node::NodeId;
use super::question::Question;
use super::unit::{Unit, UnitKind};
use crate::base::id::DocumentId;
use crate::base::language::Language;
use crate::base::line::bulleted_item;
use crate::base::word::{WordSplitter, language_of};
use crate::kb::embed::{EmbedError, Embedder, Matches};
use crate::kb::search::UnitMatch;
use crate::source::{Passage, Place, ProperName};

/// Lines of all picked units together; the first may have more.
const MAX_LINES: usize = 30;

/// Maximum number of units shown if they may not answer.
const MAX_CLOSEST: usize = 2;

/// Share of the full lead from which a unit clearly leads those of other sections.
pub(super) const CLEAR_LEAD: f32 = 0.75;

/// Number of units whose features are logged.
const TRACED: usize = 10;

/// Number of sections from which the next best units are taken, and maximum score by which they are below the best. An
/// answer without others that near has strong support.
const NEXT_BEST: u8 = 5;
const NEAR_BEST: f32 = CLEAR_LEAD * FULL_LEAD;

/// Minimum length of the snippet of a longer unit, in bytes.
const SNIPPET: usize = 120;

/// Number of lines above which a paragraph is cut to the sentences around the answering one, and number of lines
/// kept.
const LONG_PARAGRAPH: usize = 20;
const PARAGRAPH_LINES: usize = 12;

/// Number of items or rows above which a list or table is cut to the relevant ones.
const MAX_PIECES: usize = 14;

/// Minimum rarity-weighted share of the question's words for a unit or a sentence to count as covering it.
const SAYS_MOST: f32 = 0.75;

/// Minimum question length in words; most words of a shorter one co-occur by chance.
const LEAST_WORDS: usize = 3;

/// First words of a yes-or-no question. Not "was", which is German for "what".
const OPEN_YES_OR_NO: [&str; 18] = [
    "am", "are", "can", "could", "did", "do", "does", "had", "has", "have", "is", "may", "must", "shall", "should",
    "were", "will", "would",
];

/// A document with hits.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentHits {
    /// The document, or the passage alone if the document has changed since.
    pub(crate) document: Passage,
    /// Byte ranges of the hits in it, each with its score.
    pub(crate) hits: Vec<(Range<usize>, f32)>,
}

/// A unit that answers, or the answering parts of a long one.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// The sentence that answers, without Markdown.
    pub(crate) text: String,
    /// Whether that sentence clearly answers, and not another one of the unit.
    pub(crate) is_clear: bool,
    /// Consecutive quotes, not yet checked; one unless the unit was cut.
    pub(crate) quotes: Vec<Evidence>,
    /// Byte range of the picked part in the last quote; the rest is context.
    pub(crate) own: Range<usize>,
    /// The document they are from.
    pub(crate) document: Passage,
    /// Whether it has most words of a question that has several, is below a heading with all words of an overview's
    /// subject, or opens a note titled with the term being defined, starting with that term.
    pub(crate) says_most: bool,
    /// Whether the sentence that answers has most words of the question by itself.
    pub(crate) is_decisive: bool,
    /// Words of the question that it lacks and that nothing in it is near; `None` if no embedder has compared them one by
    /// one.
    pub(crate) far: Option<Vec<String>>,
    /// How well it matches, if an embedder has compared it with the question.
    pub(crate) matches: Option<UnitMatch>,
    /// Lead over the best unit of another section, from 0 to 1, if an embedder has compared them.
    pub(crate) lead: Option<f32>,
}

impl Picked {
    /// Returns the quotes with their places, without the text added for context.
    fn said(&self) -> impl Iterator<Item = (&Place, &str)> {
        let whole = self.quotes.len().saturating_sub(1);
        self.quotes.iter().enumerate().map(move |(at, Evidence { source, quote, .. })| {
            let own = if at < whole { 0..quote.len() } else { self.own.clone() };
            (source, quote.get(own).unwrap_or(quote))
        })
    }

    /// Returns the row that answers with the header of its table, which may name the currency; `None` outside a table.
    fn row(&self) -> Option<String> {
        let is_row = |line: &&str| line.trim_start().starts_with('|');
        let quotes = self.said().flat_map(|(_, quote)| quote.lines());
        let lines: Vec<_> = quotes.filter(|line| !line.trim().is_empty()).collect();
        let header = lines.iter().find(|line| is_row(line))?;
        lines.last().is_some_and(is_row).then(|| format!("{header}\n{}", self.text))
    }
}

/// The units picked for a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picks {
    /// Best first, or the sections of an overview in their order.
    pub(crate) units: Vec<Picked>,
    /// The next best units, for further reading. Each snippet begins with the best sentence.
    pub(crate) others: Vec<Passage>,
}

/// A unit selected for the answer.
struct Kept<'a> {
    /// The sentence that answers, without Markdown.
    text: String,
    is_clear: bool,
    candidate: UnitCandidate<'a>,
    /// Whether it is a list with an item for each of the things compared.
    has_item_of_each: bool,
    /// Its range before it was extended for context.
    picked: Range<usize>,
}

impl<'a> Kept<'a> {
    fn of(candidate: UnitCandidate<'a>, sought: &Sought<'_>, weights: &Weights) -> Self {
        let Deciding { text, is_clear } =
            Deciding::of(&candidate, &shown(&candidate, sought, weights), sought, weights);
        let picked = candidate.unit.range.clone();
        // A sentence that only uses a term does not define it.
        let is_clear = is_clear && (candidate.is_definition(sought) || !sought.only_uses_term(&text));
        let has_item_of_each = candidate.has_item_of_each(sought, weights);
        Self { text, is_clear, candidate, has_item_of_each, picked }
    }
}

/// Picks the units that best answer the question, without duplicates. Quotes are numbered from 1. `names` are the
/// proper names in the question.
///
/// # Errors
///
/// Returns an error if the embedder fails.
pub(crate) fn pick(
    node: &NodeId,
    question: &Question,
    names: &[ProperName],
    readings: &[DocumentHits],
    splitter: &WordSplitter,
    embedder: Option<&dyn Embedder>,
) -> Result<Picks, EmbedError> {
    let sought = Sought::of(question.as_str(), splitter);
    let (mut candidates, weights) = candidates(readings, names, &sought);
    // Taken before the candidates are limited, since a step needs the steps around it.
    let steps: Vec<_> = if sought.asked == AnswerKind::Steps {
        candidates.iter().map(|candidate| (candidate.rank, candidate.unit.clone())).collect()
    } else {
        Vec::new()
    };
    let is_overview = sought.asked == AnswerKind::Overview;
    if is_overview {
        keep_best(&mut candidates);
    }
    // An embedder that does not read the language of the question would match its words with any.
    let language = || language_of(question.as_str()).unwrap_or_else(Language::english);
    if let Some(embedder) = embedder.filter(|embedder| embedder.reads().includes(language())) {
        add_meaning(&mut candidates, question, embedder)?;
    }
    tracing::trace!(asked = ?sought.asked, wanted = ?sought.wanted, ?weights, "question");
    for own in candidates.iter().take(TRACED) {
        let (place, score) = (own.reading.document.place.for_people(), own.features.score());
        tracing::trace!(%place, at = own.unit.range.start, score, values = %own.features, "unit");
    }
    let others = next_best(&candidates, &sought, &weights);
    let kept = if is_overview {
        overview(candidates, &sought, &weights)
    } else {
        answering(candidates, &steps, &sought, &weights)
    };
    let mut number = 0;
    let picked = kept.into_iter().map(|own| {
        let candidate = &own.candidate;
        let document = &candidate.reading.document;
        let shown = shown(candidate, &sought, &weights);
        let picked = shown.last().map_or(0..0, |last| within(last, &own.picked));
        let quote = |range| {
            number += 1;
            let mut quote = document.quote(range, EvidenceId::new(node.clone(), number), candidate.features.fit());
            candidate.name_headings(&mut quote.source);
            quote
        };
        let quotes = shown.into_iter().map(quote).collect();
        let says_most = match sought.asked {
            AnswerKind::Overview => weights.keys().all(|stem| candidate.about.contains(stem)),
            AnswerKind::Definition if candidate.is_definition(&sought) => true,
            _ => weights.len() >= LEAST_WORDS && candidate.features.says() >= SAYS_MOST,
        };
        let unit_match = |matches: &Matches| UnitMatch {
            whole: matches.max_sim(0..matches.parts()),
            headings: matches.max_sim(0..1),
        };
        let matches = candidate.matches.as_ref().map(unit_match);
        // A requested list answers by what announces it.
        let is_list =
            sought.asked == AnswerKind::List && candidate.features.has_form() && !candidate.unit.pieces.is_empty();
        let head = if is_list { &document.text[candidate.unit.head()] } else { "" };
        let item = candidate.item_of(&own.text).map_or("", |item| &document.text[item.clone()]);
        let words = sought.words_in(&format!("{} {head} {item}", own.text));
        let is_fact = weights.len() >= LEAST_WORDS || (weights.len() > 1 && (sought.asks_for_value() || is_list));
        let is_said = is_fact
            && !matches!(sought.asked, AnswerKind::Definition | AnswerKind::Overview)
            && share(&weights, &words, &HashSet::new()) >= SAYS_MOST;
        let is_decisive = is_said || candidate.is_titled(&sought, &weights) || own.has_item_of_each;
        let (is_clear, lead, far) = (own.is_clear, candidate.lead, candidate.far_words(&sought));
        Picked {
            text: own.text,
            is_clear,
            quotes,
            own: picked,
            document: document.clone(),
            says_most,
            is_decisive,
            far,
            matches,
            lead,
        }
    });
    let units: Vec<Picked> = picked.collect();
    let is_shown =
        |other: &Passage| units.iter().flat_map(|own| &own.quotes).any(|quote| quote.source.overlaps(&other.place));
    let others = others.into_iter().filter(|other| !is_shown(other)).collect();
    Ok(Picks { units, others })
}

/// Returns the best unit of each of the best sections as a passage. Its snippet begins with the sentence that answers.
fn next_best(candidates: &[UnitCandidate<'_>], sought: &Sought<'_>, weights: &Weights) -> Vec<Passage> {
    let hits = candidates.iter().flat_map(|own| &own.reading.hits);
    let best = hits.map(|(_, score)| *score).fold(0.0, f32::max);
    let mut sections = HashSet::new();
    let least = candidates.first().map_or(0.0, |first| first.features.score() - NEAR_BEST);
    let near = candidates.iter().take_while(|own| own.features.score() >= least);
    let firsts = near.filter(|own| sections.insert(own.section()));
    let passage = |(own, number): (&UnitCandidate<'_>, u8)| {
        let document = &own.reading.document;
        let said = Deciding::of(own, std::slice::from_ref(&own.unit.range), sought, weights).text;
        let sentences = &own.unit.sentences;
        let first = sentences.iter().position(|sentence| said.starts_with(&sentence.plain)).unwrap_or_default();
        let start = sentences.get(first).map_or(own.unit.range.start, |sentence| sentence.range.start);
        let mut ends = sentences.iter().skip(first).map(|sentence| sentence.range.end);
        let end = ends.find(|end| end - start >= SNIPPET).unwrap_or(own.unit.range.end);
        // The source of a row would show its bars.
        let row = sentences.get(first).filter(|_| own.unit.kind == UnitKind::Table).map(|row| row.plain.clone());
        let snippet = row.unwrap_or_else(|| prose(&document.text[start..end]));
        let mut place = document.place_of(own.unit.range.clone());
        own.name_headings(&mut place);
        // Listed in this order, before the hits of the search.
        let score = best * (1.1 - f32::from(number) / 100.0);
        let id = format!("{}:{}", document.id, own.unit.range.start);
        Passage { id, place, label: document.label, snippet, text: String::new(), score }
    };
    firsts.zip(0..NEXT_BEST).map(passage).collect()
}

/// Returns a text up to its first block of code, without the marks of a quotation and with one mark for all items.
fn prose(text: &str) -> String {
    let is_text = |line: &&str| !line.starts_with("```") && !line.starts_with("~~~");
    let lines = text.lines().map(|line| line.trim_start_matches(['>', ' '])).take_while(is_text);
    let marked = lines.map(|line| match bulleted_item(line) {
        Some(item) => format!("• {item}"),
        None => line.to_owned(),
    });
    marked.collect::<Vec<_>>().join("\n")
}

/// Returns the units that answer, each with its context, best first. `steps` are the units of the sections
/// found, each with the rank of its document, if the question asks for steps.
fn answering<'a>(
    mut candidates: Vec<UnitCandidate<'a>>,
    steps: &[(usize, Unit)],
    sought: &Sought<'_>,
    weights: &Weights,
) -> Vec<Kept<'a>> {
    put_better_first(&mut candidates, sought, weights);
    let is_said = says_all(&candidates, sought, weights);
    let is_step = candidates.first().is_some_and(|best| best.unit.kind != UnitKind::Paragraph);
    let is_complete = candidates.first().is_some_and(|best| is_complete(best, is_said, sought));
    // Beside the requested list, another must be about as good.
    let is_listed = is_complete && sought.asked == AnswerKind::List;
    let mut best = best(candidates, is_said || is_listed);
    // Below the best, a unit without the requested value is irrelevant if another unit has it.
    if best.iter().any(|own| own.has_wanted(sought)) {
        let mut is_first = true;
        best.retain(|own| std::mem::take(&mut is_first) || own.has_wanted(sought));
    }
    // Beside a definition, text about the term is irrelevant.
    if best.first().is_some_and(|own| own.is_definition(sought)) {
        best.retain(|own| own.is_definition(sought));
    }
    // Among units with similar scores, one with a measured length comes first, then one with "a few hours".
    if sought.asked == AnswerKind::Length {
        best.sort_by_key(|own| (!measures_length(own.text()), !names_length(own.text())));
    }
    let mut kept: Vec<_> = best.into_iter().map(|candidate| Kept::of(candidate, sought, weights)).collect();
    // A step needs the steps around it.
    let asks_for_steps = sought.asked == AnswerKind::Steps;
    if asks_for_steps {
        widen(&mut kept, steps, sought);
    } else {
        for own in &mut kept {
            shorten(&mut own.candidate, LONG_PARAGRAPH, PARAGRAPH_LINES, Some(&own.text));
        }
    }
    // The text between two steps may belong to another task.
    join(&mut kept, if asks_for_steps { 0 } else { GAP });
    if asks_for_steps {
        in_order_of_steps(&mut kept);
    }
    for own in &mut kept {
        own.picked = own.candidate.unit.range.clone();
    }
    // A list that is shown in part would be shown whole.
    let is_cut =
        kept.first().is_some_and(|own| shown(&own.candidate, sought, weights) != [own.candidate.unit.range.clone()]);
    let is_symptom = |own: &Kept<'_>| own.candidate.unit.headings.last().is_some_and(|heading| names_symptoms(heading));
    match Remedy::of(sought.question) {
        _ if is_cut => {}
        // The question repeats the symptoms.
        _ if sought.asks_why && kept.first().is_some_and(is_symptom) => read_on(&mut kept, sought, ReadOn::ToRemedy),
        _ if !asks_for_steps && add_counterpart(&mut kept, sought) => {}
        _ if add_series(&mut kept, sought) => {}
        Some(remedy) if remedy == Remedy::OfMessage || !is_said => read_on(&mut kept, sought, ReadOn::ToRemedy),
        // The rest of a section on a task may be about another case.
        None if is_complete || (asks_for_steps && is_step) => {}
        None if is_said => read_on(&mut kept, sought, ReadOn::After),
        None => read_on(&mut kept, sought, ReadOn::Around),
        Some(_) => {}
    }
    for own in &mut kept {
        add_announced(&mut own.candidate);
        cut_loose_end(&mut own.candidate);
    }
    kept
}

/// Finds a unit that answers better than the first, which has the best score.
type FindBetter = fn(&[UnitCandidate<'_>], &Sought<'_>, &Weights) -> Option<usize>;

/// Moves the units to the front that answer better than those with the best score.
fn put_better_first(candidates: &mut [UnitCandidate<'_>], sought: &Sought<'_>, weights: &Weights) {
    let all: [FindBetter; 3] = [with_value, with_exact_value, with_rule];
    for find in all {
        if let Some(at) = find(candidates, sought, weights) {
            candidates[..=at].rotate_right(1);
        }
    }
}

/// If the best unit lacks the requested value, finds the first one that has it and matches almost as well.
fn with_value(candidates: &[UnitCandidate<'_>], sought: &Sought<'_>, _: &Weights) -> Option<usize> {
    let best = candidates.first().filter(|best| !best.has_wanted(sought))?;
    let says = best.features.says() * SAYS_MOST;
    let is_other = |own: &UnitCandidate<'_>| own.has_wanted(sought) && own.features.says() >= says;
    candidates.iter().take_while(|own| own.is_near(best)).position(is_other)
}

/// If the best unit lacks the exact value, finds one that has it: a unit of its section or, for a day that recurs, any
/// that matches almost as well. If its sentence with the value lacks words of the question, finds a unit that matches
/// almost as well and has more of them in such a sentence.
fn with_exact_value(candidates: &[UnitCandidate<'_>], sought: &Sought<'_>, weights: &Weights) -> Option<usize> {
    let best = candidates.first()?;
    let says = best.exact_share(sought, weights);
    candidates.iter().position(|own| {
        let is_near = || own.is_near(best);
        match says {
            Some(says) => says < SAYS_MOST && is_near() && own.exact_share(sought, weights) > Some(says),
            None => (own.section() == best.section() || (sought.recurs && is_near())) && own.has_exact(sought),
        }
    })
}

/// If the best unit only says whom to ask in doubt, finds the next one of its section, which has the rule.
fn with_rule(candidates: &[UnitCandidate<'_>], sought: &Sought<'_>, _: &Weights) -> Option<usize> {
    let lacks_rule = |best: &&UnitCandidate<'_>| {
        sought.asks_whether && best.unit.sentences.first().is_some_and(|first| is_for_doubts(&first.plain))
    };
    let best = candidates.first().filter(lacks_rule)?;
    (1..candidates.len()).find(|at| candidates[*at].section() == best.section())
}

/// Returns whether the best unit needs no text around it: it has the exact value, a sentence that answers yes or no, or
/// the requested list.
fn is_complete(best: &UnitCandidate<'_>, is_said: bool, sought: &Sought<'_>) -> bool {
    let is_list = matches!(best.unit.kind, UnitKind::List { .. } | UnitKind::Table);
    best.has_exact(sought)
        || (is_said && sought.asks_whether)
        || (sought.asked == AnswerKind::List && is_list && best.features.has_form())
}

/// Returns the part of a range that is in `part`, relative to its start.
fn within(range: &Range<usize>, part: &Range<usize>) -> Range<usize> {
    let at = |byte: usize| byte.clamp(range.start, range.end) - range.start;
    at(part.start)..at(part.end)
}

/// Puts the units of each section in its order, in which steps are followed. The best section stays first.
fn in_order_of_steps(kept: &mut [Kept<'_>]) {
    let section = |own: &Kept<'_>| own.candidate.section();
    let sections: Vec<_> = kept.iter().map(section).collect();
    kept.sort_by_key(|own| (sections.iter().position(|other| *other == section(own)), own.candidate.unit.range.start));
}

/// Returns whether a place is in a document with this name.
fn is_of(place: &Place, name: &ProperName) -> bool {
    match place {
        Place::Kb { collection, path, .. } => name.documents.contains(&DocumentId::new(collection, path)),
        Place::Web { .. } | Place::Mcp { .. } => false,
    }
}

/// Returns the units to show if they may not answer: at most [`MAX_CLOSEST`], or the first alone if it fills a screen.
pub(super) fn closest(mut picked: Vec<Picked>) -> Vec<Picked> {
    let lines = |own: &Picked| own.said().map(|(_, quote)| lines_in(quote)).sum::<usize>();
    let is_long = picked.first().is_some_and(|own| lines(own) > MAX_LINES);
    picked.truncate(if is_long { 1 } else { MAX_CLOSEST });
    picked
}

/// Returns the search query for a question: the subject of an overview, otherwise the whole question.
pub(crate) fn searched(question: &Question) -> &str {
    overview_of(question.as_str()).unwrap_or(question.as_str())
}

/// Returns whether a question asks what something is.
pub(super) fn is_definition(question: &Question) -> bool {
    let asks_who = question.as_str().trim_start().to_lowercase().starts_with("who");
    AnswerKind::of(question.as_str()) == AnswerKind::Definition && Wanted::of(question.as_str()).is_none() && !asks_who
}

/// Returns which passages are about the term that a question asks to define: in a note with little more than its name
/// as the title, or with a sentence that defines it.
pub(super) fn on_term<'a>(question: &Question, passages: &[&'a Passage]) -> Vec<&'a Passage> {
    let splitter = WordSplitter::default();
    let sought = Sought::of(question.as_str(), &splitter);
    let defines = |own: &Passage| units_in(own).iter().any(|unit| sought.defining(unit, &own.text).is_some());
    let is_on = |own: &&&Passage| names_subject(own.place.title(), &sought) || defines(own);
    passages.iter().filter(is_on).copied().collect()
}

/// Returns whether a question asks for an overview.
pub(super) fn is_overview(question: &Question) -> bool {
    overview_of(question.as_str()).is_some()
}

/// Returns whether a question asks for a number, a date or the like.
pub(super) fn asks_for_value(question: &Question) -> bool {
    Sought::of(question.as_str(), &WordSplitter::default()).asks_for_value()
}

/// Returns whether a question can be answered by yes or no. "Can you explain …" cannot.
pub(super) fn asks_whether(question: &str) -> bool {
    let lower = question.to_lowercase();
    let mut words = lower.split_whitespace();
    words.next().is_some_and(|first| OPEN_YES_OR_NO.contains(&first)) && words.next() != Some("you")
}
