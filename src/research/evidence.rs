//! Evidence: quotes that bear on a node, each checked against its source, and the rule-based picker of quotes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::node::NodeId;
use super::question::Question;
use super::sentence::{Sentence, sentences, sentences_of_page};
use crate::base::word::WordSplitter;
use crate::kb::chunk::headings_above;
use crate::kb::document::Document;
use crate::kb::embed::{EmbedError, Embedder};
use crate::source::{Label, Passage, Place, SourceFile};

/// Most quotes picked for one node.
const MAX_QUOTES: usize = 6;

/// Best passages whose sentences are scored.
const MAX_PASSAGES: usize = 10;

/// Sentences that are embedded, best first by words. Bounds the embedding time of one node.
const MAX_SENTENCES: usize = 96;

/// A sentence scoring below this share of the best one is dropped.
const KEPT_SHARE: f32 = 0.72;

/// Two sentences that share more than this part of the shorter one's words count as duplicates.
const SAME_WORDS: f32 = 0.6;

/// Weight of the passage's search score in a sentence's score; the rest is the share of question words it contains.
const RANK_WEIGHT: f32 = 0.35;

/// Id of a quote within its run: its node and a number, for example `n2e1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EvidenceId {
    node: NodeId,
    number: u32,
}

/// The text is not an evidence id.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an evidence id (expected a node and a number, for example `n2e1`)")]
pub struct ParseEvidenceIdError(String);

impl EvidenceId {
    /// Returns the id of quote `number` of a node, counted from 1.
    pub(crate) fn new(node: NodeId, number: u32) -> Self {
        Self { node, number }
    }

    /// Returns the id `places` after this one, saturating at the largest.
    #[must_use]
    pub(crate) fn after(&self, places: usize) -> Self {
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        Self { node: self.node.clone(), number: self.number.saturating_add(places) }
    }

    /// Returns the node that found the quote.
    pub(crate) fn node(&self) -> &NodeId {
        &self.node
    }
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}e{}", self.node, self.number)
    }
}

impl FromStr for EvidenceId {
    type Err = ParseEvidenceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseEvidenceIdError(text.to_owned());
        let (node, number) = text.rsplit_once('e').ok_or_else(wrong)?;
        let node = node.parse().map_err(|_| wrong())?;
        let number = number.parse().ok().filter(|_| !number.starts_with(['0', '+'])).ok_or_else(wrong)?;
        Ok(Self { node, number })
    }
}

impl TryFrom<String> for EvidenceId {
    type Error = ParseEvidenceIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<EvidenceId> for String {
    fn from(id: EvidenceId) -> Self {
        id.to_string()
    }
}

/// A quote and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Cited in answers as `[n2e1]`.
    pub(crate) id: EvidenceId,
    /// The node that found it.
    pub(crate) node: NodeId,
    /// Whether the quote is private to the knowledge base.
    pub(crate) label: Label,
    /// Set by [`Self::check`] if the quote stands verbatim in its source. Only checked quotes may be cited.
    pub(crate) checked: bool,
    /// Whether the file was changed or removed after indexing. The quote is then the text kept in the index.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) stale: bool,
    /// Verbatim text of the source.
    pub(crate) quote: String,
    /// Relevance to the question, from 0 to 1.
    pub(crate) score: f32,
    /// File and lines, or URL.
    pub(crate) source: Place,
}

impl Evidence {
    /// Checks the quote against its source and sets [`Self::checked`] and [`Self::stale`].
    ///
    /// A quote of an unchanged file must stand in the lines it names. If the file changed after indexing, `passage`,
    /// the text kept in the index, is compared instead. The heading path of a checked quote is set to the headings
    /// above its first line: a passage may span several sections and carries the headings of its first one only.
    pub(crate) fn check(&mut self, file: &SourceFile, passage: &str) {
        self.stale = matches!(self.source, Place::Kb { .. }) && !matches!(file, SourceFile::AsIndexed(_));
        self.checked = !self.quote.trim().is_empty()
            && match (file, &self.source) {
                (SourceFile::AsIndexed(text), Place::Kb { line_start, line_end, .. }) => {
                    lines(text, *line_start, *line_end).contains(&self.quote)
                }
                (SourceFile::AsIndexed(text), Place::Web { .. }) => text.contains(&self.quote),
                (SourceFile::Changed | SourceFile::Gone, Place::Kb { .. }) => passage.contains(&self.quote),
                // A search engine's snippet may differ from the page, so without the page nothing is confirmed.
                (SourceFile::Changed | SourceFile::Gone, Place::Web { .. }) => false,
            };
        if let (true, SourceFile::AsIndexed(text), Place::Kb { path, line_start, heading_path, .. }) =
            (self.checked, file, &mut self.source)
            && let Ok(document) = Document::parse(path, text.clone().into_bytes())
        {
            *heading_path = headings_above(&document, *line_start);
        }
    }
}

/// Returns lines `first..=last` of a text, counted from 1, including their line endings.
fn lines(text: &str, first: u32, last: u32) -> &str {
    let line_start = |line: u32| match line {
        0 | 1 => Some(0),
        line => text.match_indices('\n').nth(line as usize - 2).map(|(at, _)| at + 1),
    };
    let start = line_start(first).unwrap_or(text.len());
    let end = line_start(last.saturating_add(1)).unwrap_or(text.len());
    &text[start..end.max(start)]
}

/// A quote picked by the rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// The quote, not yet checked.
    pub(crate) evidence: Evidence,
    /// The quote without Markdown.
    pub(crate) plain: String,
    /// The passage it was picked from.
    pub(crate) passage: Passage,
}

/// A sentence with its score.
struct Candidate<'a> {
    rank: usize,
    passage: &'a Passage,
    sentence: Sentence,
    words: HashSet<String>,
    score: f32,
}

/// Picks the sentences of `passages` that best answer the question, without duplicates.
///
/// A sentence is scored by its share of the question's words, weighted by rarity. That alone picks the answering
/// sentence of a passage 84 times in 100 (`SQuAD` 2.0); similarity of embeddings, averaged in if there is an embedder,
/// adds a little.
///
/// The result is in reading order: documents by rank, sentences by position. Quotes are not yet checked.
///
/// # Errors
///
/// Returns an error if the embedder fails.
pub(crate) fn pick(
    node: &NodeId,
    question: &Question,
    passages: &[Passage],
    splitter: &WordSplitter,
    embedder: Option<&dyn Embedder>,
) -> Result<Vec<Picked>, EmbedError> {
    let stems = splitter.key_stems(question.as_str());
    let mut candidates = candidates(passages, &stems, splitter);
    if let Some(embedder) = embedder {
        add_meaning(question, &mut candidates, embedder)?;
    }
    let mut picked = without_repeats(candidates);
    let document_rank = document_ranks(passages);
    picked.sort_by_key(|found| {
        (document_rank[&document(&found.passage.place)], found.line(), found.sentence.range.start)
    });
    Ok(picked.into_iter().zip(1..).map(|(found, number)| found.picked(node, number)).collect())
}

fn candidates<'a>(passages: &'a [Passage], stems: &[String], splitter: &WordSplitter) -> Vec<Candidate<'a>> {
    let weights = rarity(passages, stems, splitter);
    let total: f32 = weights.values().sum::<f32>().max(f32::EPSILON);
    let mut candidates = Vec::new();
    for (rank, passage) in passages.iter().take(MAX_PASSAGES).enumerate() {
        // A word in the title or a heading counts half: it tells the topic, but every sentence below shares it.
        let about = words(&names(&passage.place).join(" "), splitter);
        let sentences = match passage.place {
            Place::Kb { .. } => sentences(&passage.text),
            Place::Web { .. } => sentences_of_page(&passage.text),
        };
        for sentence in sentences {
            let words = words(&sentence.plain, splitter);
            let part = |stem: &String, weight: f32| match () {
                () if words.contains(stem) => weight,
                () if about.contains(stem) => weight / 2.0,
                () => 0.0,
            };
            let coverage = weights.iter().map(|(stem, weight)| part(stem, *weight)).sum::<f32>() / total;
            let score = (1.0 - RANK_WEIGHT) * coverage + RANK_WEIGHT * passage.score;
            candidates.push(Candidate { rank, passage, sentence, words, score });
        }
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.order().cmp(&b.order())));
    candidates.truncate(MAX_SENTENCES);
    candidates
}

fn words(text: &str, splitter: &WordSplitter) -> HashSet<String> {
    splitter.words(text).into_iter().map(|word| word.stem).collect()
}

/// Returns the weight of each stem: inverse document frequency over the passages.
#[expect(clippy::cast_precision_loss, reason = "counts of passages are small")]
fn rarity(passages: &[Passage], stems: &[String], splitter: &WordSplitter) -> HashMap<String, f32> {
    let texts: Vec<_> = passages.iter().map(|passage| words(&passage.text, splitter)).collect();
    let weight = |stem: &String| {
        let having = texts.iter().filter(|text| text.contains(stem)).count();
        (1.0 + (texts.len() as f32 + 0.5) / (having as f32 + 0.5)).ln()
    };
    stems.iter().map(|stem| (stem.clone(), weight(stem))).collect()
}

/// Averages each score with the cosine similarity of sentence and question, and sorts again.
fn add_meaning(
    question: &Question,
    candidates: &mut [Candidate<'_>],
    embedder: &dyn Embedder,
) -> Result<(), EmbedError> {
    let wanted = embedder.embed_query(question.as_str())?;
    let texts: Vec<_> = candidates
        .iter()
        .map(|found| format!("{}: {}", names(&found.passage.place).last().unwrap_or(&""), found.sentence.plain))
        .collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    for (found, vector) in candidates.iter_mut().zip(embedder.embed_passages(&texts)?) {
        let similarity: f32 = wanted.iter().zip(&vector).map(|(a, b)| a * b).sum();
        found.score = f32::midpoint(found.score, similarity.max(0.0));
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.order().cmp(&b.order())));
    Ok(())
}

/// Keeps the best sentences, dropping those that repeat a better one.
fn without_repeats(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let least = candidates.first().map_or(0.0, |best| best.score * KEPT_SHARE);
    let mut kept: Vec<Candidate<'_>> = Vec::new();
    for candidate in candidates {
        if kept.len() == MAX_QUOTES || candidate.score < least {
            break;
        }
        if candidate.score > 0.0 && !kept.iter().any(|better| overlap(&better.words, &candidate.words) > SAME_WORDS) {
            kept.push(candidate);
        }
    }
    kept
}

/// Returns the size of the intersection relative to the smaller set.
#[expect(clippy::cast_precision_loss, reason = "sentences are short")]
fn overlap(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let smaller = a.len().min(b.len()).max(1);
    a.intersection(b).count() as f32 / smaller as f32
}

/// Returns the document's title followed by the headings above the passage.
fn names(place: &Place) -> Vec<&str> {
    std::iter::once(place.title()).chain(place.heading_path().iter().map(String::as_str)).collect()
}

/// Returns a key that identifies the document.
fn document(place: &Place) -> (&str, &str) {
    match place {
        Place::Kb { collection, path, .. } => (collection, path),
        Place::Web { url, .. } => ("", url),
    }
}

fn document_ranks(passages: &[Passage]) -> HashMap<(&str, &str), usize> {
    let mut ranks = HashMap::new();
    for (rank, passage) in passages.iter().enumerate() {
        ranks.entry(document(&passage.place)).or_insert(rank);
    }
    ranks
}

impl Passage {
    /// Returns a range of this passage as evidence with its line numbers, not yet checked.
    pub(crate) fn quote(&self, range: std::ops::Range<usize>, id: EvidenceId, score: f32) -> Evidence {
        let quote = self.text[range.clone()].trim_end();
        let mut source = self.place.clone();
        if let Place::Kb { line_start, line_end, .. } = &mut source {
            let first = *line_start;
            *line_start = first + count_lines(&self.text[..range.start]);
            *line_end = first + count_lines(&self.text[..range.start + quote.len()]);
        }
        Evidence {
            node: id.node().clone(),
            id,
            label: self.label,
            checked: false,
            stale: false,
            quote: quote.to_owned(),
            score: score.clamp(0.0, 1.0),
            source,
        }
    }
}

impl Candidate<'_> {
    fn order(&self) -> (usize, usize) {
        (self.rank, self.sentence.range.start)
    }

    fn line(&self) -> u32 {
        match &self.passage.place {
            Place::Kb { line_start, .. } => *line_start,
            Place::Web { .. } => 0,
        }
    }

    fn picked(self, node: &NodeId, number: u32) -> Picked {
        let id = EvidenceId::new(node.clone(), number);
        Picked {
            evidence: self.passage.quote(self.sentence.range, id, self.score),
            plain: self.sentence.plain,
            passage: self.passage.clone(),
        }
    }
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_id_parses_back_and_invalid_ids_are_refused() {
        let id = EvidenceId::new(NodeId::numbered(12), 3);
        assert_eq!(id.to_string(), "n12e3");
        assert_eq!("n12e3".parse::<EvidenceId>().unwrap(), id);
        for text in ["", "e1", "n1", "n1e0", "n01e1", "n1e+1", "n1e1e1", "1e1"] {
            assert!(text.parse::<EvidenceId>().is_err(), "{text}");
        }
    }

    #[test]
    fn quote_of_a_web_page_is_checked_against_the_fetched_page_only() {
        let passage = Passage {
            id: "https://example.org/".into(),
            place: Place::Web {
                url: "https://example.org/".into(),
                title: "A page".into(),
                fetched_at: None,
                content_hash: None,
            },
            label: Label::Public,
            text: "Valves open at six.".into(),
            snippet: "Valves open at six.".into(),
            score: 1.0,
        };
        let mut evidence = passage.quote(0..19, EvidenceId::new(NodeId::numbered(1), 1), 1.0);
        evidence.check(&SourceFile::Gone, &passage.text);
        assert!(!evidence.checked && !evidence.stale, "a snippet confirms nothing");
        evidence.check(&SourceFile::AsIndexed("Beds\n\nValves open at six.".into()), &passage.text);
        assert!(evidence.checked);
        evidence.check(&SourceFile::AsIndexed("Valves open at seven.".into()), &passage.text);
        assert!(!evidence.checked);
    }
}
