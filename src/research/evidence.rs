//! A Node becomes Evidence: quoted stretches of sources that bear on it, each checked against its source.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::Serialize;

use super::node::NodeId;
use super::question::Question;
use super::sentence::{Sentence, sentences};
use crate::base::id::{ContentHash, DocumentId};
use crate::base::word::WordSplitter;
use crate::kb::embed::{EmbedError, Embedder};
use crate::kb::search::Hit;

/// Quotes an answer is made of, at most.
const MAX_QUOTES: usize = 6;

/// Hits whose sentences are considered.
const MAX_HITS: usize = 10;

/// Sentences that are compared with the question by meaning.
const MAX_SENTENCES: usize = 96;

/// A sentence below this share of the best one's score is not part of the answer.
const KEPT_SHARE: f32 = 0.72;

/// Two sentences that share more of their words than this say the same.
const SAME_WORDS: f32 = 0.6;

/// What a passage's own place in the ranking counts for, beside the sentence itself.
const HIT_WEIGHT: f32 = 0.35;

/// Names a piece of evidence within its report, for example `e1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EvidenceId(String);

impl EvidenceId {
    /// Returns the id of the piece that comes as `number`, from 1.
    pub fn numbered(number: usize) -> Self {
        Self(format!("e{number}"))
    }
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who may see a text, and what is derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// From the open web.
    Public,
    /// From the knowledge base.
    Internal,
}

/// Where a quote stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Source {
    /// A file of the knowledge base.
    Kb {
        /// Its collection.
        collection: String,
        /// Its path, relative to the collection's root.
        path: String,
        /// Its title.
        title: String,
        /// Headings above the quote.
        heading_path: Vec<String>,
        /// First line of the quote in the file as stored, from 1.
        line_start: u32,
        /// Last line, inclusive.
        line_end: u32,
        /// Hash of the file as indexed.
        content_hash: ContentHash,
    },
}

/// A quote and where it is from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Its name.
    pub id: EvidenceId,
    /// The node it was found for.
    pub node: NodeId,
    /// Who may see it.
    pub label: Label,
    /// Whether code has found the quote, verbatim, in the file as indexed.
    pub checked: bool,
    /// Whether the file has changed or gone since it was indexed; the quote is then what the index has of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// The words of the source, verbatim.
    pub quote: String,
    /// How well it bears on the question, from 0 to 1.
    pub score: f32,
    /// Where it stands.
    pub source: Source,
    /// What the quote says without Markdown.
    #[serde(skip)]
    pub plain: String,
}

/// The file behind a quote, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFile {
    /// Its bytes are those that were indexed.
    AsIndexed(String),
    /// It has changed since; only the index still has what was indexed.
    Changed,
    /// It cannot be read any more.
    Gone,
}

impl Evidence {
    /// Checks the quote against the lines it is said to stand in, or against `passage`, the text the index keeps of a
    /// file that has changed since.
    pub fn check(&mut self, file: &SourceFile, passage: &str) {
        let Source::Kb { line_start, line_end, .. } = &self.source;
        self.stale = !matches!(file, SourceFile::AsIndexed(_));
        self.checked = !self.quote.trim().is_empty()
            && match file {
                SourceFile::AsIndexed(text) => lines(text, *line_start, *line_end).contains(&self.quote),
                SourceFile::Changed | SourceFile::Gone => passage.contains(&self.quote),
            };
    }
}

/// Returns lines `first..=last` of a text, counted from 1, with their line ends.
fn lines(text: &str, first: u32, last: u32) -> &str {
    let line_start = |line: u32| match line {
        0 | 1 => Some(0),
        line => text.match_indices('\n').nth(line as usize - 2).map(|(at, _)| at + 1),
    };
    let start = line_start(first).unwrap_or(text.len());
    let end = line_start(last.saturating_add(1)).unwrap_or(text.len());
    &text[start..end.max(start)]
}

/// A sentence of a hit, scored.
struct Candidate<'a> {
    hit: usize,
    place: &'a Hit,
    sentence: Sentence,
    words: HashSet<String>,
    score: f32,
}

/// Picks the sentences of `hits` that answer the question: most of its words, closest to its meaning, none twice.
///
/// They come in an order that can be read: documents by rank, and as they stand within each. Nothing is checked yet.
///
/// # Errors
///
/// Returns an error where the embedder fails; without one, words alone decide.
pub fn pick(
    node: &NodeId,
    question: &Question,
    hits: &[Hit],
    splitter: &WordSplitter,
    embedder: Option<&dyn Embedder>,
) -> Result<Vec<Evidence>, EmbedError> {
    let stems = splitter.key_stems(question.as_str());
    let mut candidates = candidates(hits, &stems, splitter);
    if let Some(embedder) = embedder {
        add_meaning(question, &mut candidates, embedder)?;
    }
    let mut picked = without_repeats(candidates);
    let document_rank = document_ranks(hits);
    picked.sort_by_key(|found| {
        (document_rank[&found.place.document_id], found.place.byte_start, found.sentence.range.start)
    });
    Ok(picked.iter().zip(1..).map(|(found, number)| found.evidence(node, number)).collect())
}

fn candidates<'a>(hits: &'a [Hit], stems: &[String], splitter: &WordSplitter) -> Vec<Candidate<'a>> {
    let weights = rarity(hits, stems, splitter);
    let total: f32 = weights.values().sum::<f32>().max(f32::EPSILON);
    let mut candidates = Vec::new();
    for (rank, hit) in hits.iter().take(MAX_HITS).enumerate() {
        // The headings say what a sentence is about as much as its own words do, but they are shared by many.
        let about = words(&format!("{} {}", hit.title, hit.heading_path.join(" ")), splitter);
        for sentence in sentences(&hit.text) {
            let words = words(&sentence.plain, splitter);
            let part = |stem: &String, weight: f32| match () {
                () if words.contains(stem) => weight,
                () if about.contains(stem) => weight / 2.0,
                () => 0.0,
            };
            let coverage = weights.iter().map(|(stem, weight)| part(stem, *weight)).sum::<f32>() / total;
            let score = (1.0 - HIT_WEIGHT) * coverage + HIT_WEIGHT * hit.score;
            candidates.push(Candidate { hit: rank, place: hit, sentence, words, score });
        }
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.order().cmp(&b.order())));
    candidates.truncate(MAX_SENTENCES);
    candidates
}

fn words(text: &str, splitter: &WordSplitter) -> HashSet<String> {
    splitter.words(text).into_iter().map(|word| word.stem).collect()
}

/// Returns what each stem is worth: the fewer hits have it, the more it tells them apart.
#[expect(clippy::cast_precision_loss, reason = "counts of hits are small")]
fn rarity(hits: &[Hit], stems: &[String], splitter: &WordSplitter) -> HashMap<String, f32> {
    let texts: Vec<_> = hits.iter().map(|hit| words(&hit.text, splitter)).collect();
    let weight = |stem: &String| {
        let having = texts.iter().filter(|text| text.contains(stem)).count();
        (1.0 + (texts.len() as f32 + 0.5) / (having as f32 + 0.5)).ln()
    };
    stems.iter().map(|stem| (stem.clone(), weight(stem))).collect()
}

/// Blends how close each sentence is to the question by meaning into its score.
fn add_meaning(
    question: &Question,
    candidates: &mut [Candidate<'_>],
    embedder: &dyn Embedder,
) -> Result<(), EmbedError> {
    let wanted = embedder.embed_query(question.as_str())?;
    let texts: Vec<_> = candidates
        .iter()
        .map(|found| {
            format!("{}: {}", found.place.heading_path.last().unwrap_or(&found.place.title), found.sentence.plain)
        })
        .collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    for (found, vector) in candidates.iter_mut().zip(embedder.embed_passages(&texts)?) {
        let similarity: f32 = wanted.iter().zip(&vector).map(|(a, b)| a * b).sum();
        found.score = f32::midpoint(found.score, similarity.max(0.0));
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.order().cmp(&b.order())));
    Ok(())
}

/// Keeps the best sentences, none that says what a better one said.
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

/// Returns the share of the smaller set that the two have in common.
#[expect(clippy::cast_precision_loss, reason = "sentences are short")]
fn overlap(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let smaller = a.len().min(b.len()).max(1);
    a.intersection(b).count() as f32 / smaller as f32
}

fn document_ranks(hits: &[Hit]) -> HashMap<DocumentId, usize> {
    let mut ranks = HashMap::new();
    for (rank, hit) in hits.iter().enumerate() {
        ranks.entry(hit.document_id.clone()).or_insert(rank);
    }
    ranks
}

impl Candidate<'_> {
    fn order(&self) -> (usize, usize) {
        (self.hit, self.sentence.range.start)
    }

    fn evidence(&self, node: &NodeId, number: usize) -> Evidence {
        let line_of = |at: usize| self.place.line_start + count_lines(&self.place.text[..at]);
        let quote = self.place.text[self.sentence.range.clone()].trim_end();
        Evidence {
            id: EvidenceId::numbered(number),
            node: node.clone(),
            label: Label::Internal,
            checked: false,
            stale: false,
            quote: quote.to_owned(),
            score: self.score.clamp(0.0, 1.0),
            source: Source::Kb {
                collection: self.place.collection.clone(),
                path: self.place.path.clone(),
                title: self.place.title.clone(),
                heading_path: self.place.heading_path.clone(),
                line_start: line_of(self.sentence.range.start),
                line_end: line_of(self.sentence.range.start + quote.len()),
                content_hash: self.place.content_hash.clone(),
            },
            plain: self.sentence.plain.clone(),
        }
    }
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}
