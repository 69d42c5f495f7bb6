//! Search: a query in, ranked [`Hit`]s out, from a text and a vector leg.
//!
//! ```text
//! typed ─▶ Query ─┬─▶ text leg ───┐
//!                 ├─▶ vector leg ─┼─▶ fusion ─▶ exact matches ─▶ room for other documents ─▶ hits, support
//!                 └─▶ phrase legs ┘
//! ```
//!
//! The legs run concurrently on one snapshot of the index. Each returns more candidates than requested, so that a
//! chunk ranked low by one leg can still be raised by the other.

pub(crate) mod query;

pub(crate) mod fusion;

mod distinct;

pub(crate) mod snippet;

mod signals;

mod named;

pub(crate) mod spelling;

pub(crate) mod support;

#[cfg(test)]
mod fit;

pub(crate) mod scope;

use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use globset::GlobSet;
use serde::{Deserialize, Serialize};

pub use named::ProperName;
pub(crate) use named::is_capitalised;
use query::Query;
pub use scope::Scope;
pub use snippet::Snippet;
pub use spelling::Unknown;
pub(crate) use support::UnitMatch;
pub use support::{Odds, Support};

use distinct::distinct;
pub(crate) use fusion::PerDocument;
use fusion::{Candidate, fuse};
pub(crate) use signals::Measured;
use signals::headings;

use super::embed::{EmbedError, Embedder, EmbeddingServer};
use super::index::{ChunkRow, Filter, Index, IndexError, LegHit};
use super::rerank::Rerank;
use crate::base::id::{ChunkId, ContentHash, DocumentId, from_word};
use crate::base::language::Language;
use crate::base::line::with_causes;
use crate::base::word::{WordSplitter, language_of, language_of_paragraph, runs};

/// Minimum number of candidates per leg.
const MIN_DEPTH: usize = 50;

/// Number of candidates per leg, as a multiple of the requested hits.
const DEPTH_FACTOR: usize = 5;

/// Candidates per quoted phrase or identifier. More than [`MIN_DEPTH`], because the index matches stems and many
/// candidates fail the exact comparison.
const EXACT_DEPTH: usize = 200;

/// Number of candidates read to find distinct ones, as a multiple of the requested hits.
const DISTINCT_OF: usize = 4;

/// Minimum weight of identifiers in the score of a query that has some.
const MIN_IDENTIFIER_WEIGHT: f32 = 0.3;

/// Number of hits per document before the scores of further ones are reduced. Three hid answers in long documents.
const DEFAULT_PER_DOCUMENT: PerDocument = PerDocument::First(5);

/// The legs of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// Text and vectors, fused.
    #[default]
    Hybrid,
    /// Text only.
    Lexical,
    /// Vectors only.
    Vector,
}

impl SearchMode {
    pub(crate) const NAMES: &'static [&'static str] = &["hybrid", "lexical", "vector"];

    /// Returns the name in settings and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::Lexical => "lexical",
            Self::Vector => "vector",
        }
    }
}

impl FromStr for SearchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_word(text).ok_or_else(|| format!("`{text}` is not a mode (hybrid, lexical or vector)"))
    }
}

/// Options of [`Searcher::search`].
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Legs to use.
    pub mode: SearchMode,
    /// Maximum number of hits.
    pub limit: usize,
    /// Limit on the hits of one document.
    pub per_document: PerDocument,
    /// Chunks that may be returned.
    pub filter: Filter,
    /// Only documents whose path matches one of these; all of them if `None`.
    pub paths: Option<GlobSet>,
    /// Whether passages that repeat a better one are left out.
    pub distinct: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            mode: SearchMode::Hybrid,
            limit: 10,
            per_document: DEFAULT_PER_DOCUMENT,
            filter: Filter::default(),
            paths: None,
            distinct: false,
        }
    }
}

/// A passage found by a search.
#[derive(Clone, Debug, Serialize)]
pub struct Hit {
    pub id: ChunkId,
    pub document_id: DocumentId,
    pub collection: String,
    /// Path relative to the collection's root.
    pub path: String,
    pub title: String,
    /// Headings above the passage, outermost first.
    pub heading_path: Vec<String>,
    /// First line in the file as stored, from 1.
    pub line_start: u32,
    /// Last line, inclusive.
    pub line_end: u32,
    /// The part of the passage with the most distinct words of the query.
    #[serde(serialize_with = "snippet_text")]
    pub snippet: Snippet,
    /// The whole passage, verbatim.
    pub text: String,
    /// From 0 to 1. Comparable within one search only.
    pub score: f32,
    /// Components of the score.
    pub explain: Explain,
    /// The user's sentence about the folder of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    /// Hash of the file that the passage was cut from.
    #[serde(skip)]
    pub content_hash: ContentHash,
    /// Date of the document, `YYYY-MM-DD`.
    #[serde(skip)]
    pub date: Option<String>,
    /// First byte in the file as stored.
    #[serde(skip)]
    pub byte_start: u64,
}

fn snippet_text<S: serde::Serializer>(snippet: &Snippet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&snippet.text)
}

/// Components of a hit's score. The fields of a leg that did not find the chunk are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Explain {
    /// Rank by text, from 1.
    pub(crate) lexical_rank: Option<usize>,
    pub(crate) lexical_score: Option<f32>,
    /// Rank by vector, from 1.
    pub(crate) vector_rank: Option<usize>,
    pub(crate) vector_similarity: Option<f32>,
    /// Relevance as judged by the reranker, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) relevance: Option<f32>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Hits {
    /// Hits, best first.
    pub hits: Vec<Hit>,
    /// The reason why a hybrid search ran without its vector leg; `None` if it ran with both.
    pub without_vectors: Option<VectorsUnusable>,
    /// Why the hits were not reranked although a reranker is configured.
    pub(crate) not_reranked: Option<String>,
}

/// The result of a search, judged.
#[derive(Clone, Debug)]
pub(crate) struct JudgedHits {
    /// Best first.
    pub(crate) found: Hits,
    /// How well the hits support an answer.
    pub(crate) support: Support,
    /// The log odds of an answer, to be judged together with the picked unit.
    pub(crate) odds: Option<Odds>,
    /// Words of the query that the folder does not have.
    pub(crate) unknown: Vec<Unknown>,
    /// Words of the query that name documents; not determined if only hits are wanted.
    pub(crate) names: Vec<ProperName>,
    /// Whether hits about a document that the query names are not about the query.
    pub(crate) is_of_others: bool,
    /// The query with misspelt words replaced, if it was searched instead.
    pub(crate) corrected: Option<String>,
    /// The language of the query, if it could be detected.
    asked: Option<&'static Language>,
}

impl JudgedHits {
    /// Returns notes on the query for the user, given how well the hits support an answer: words that the folder does
    /// not have, and another language.
    pub(crate) fn said(&self, support: Support) -> Vec<String> {
        let mut said = spelling::said(&self.unknown, support == Support::Strong);
        if let Some(asked) = self.asked.filter(|_| support != Support::Strong)
            && let Some(notes) = language_of_texts(self.found.hits.iter().map(|hit| hit.text.as_str()), asked)
        {
            let (asked, notes) = (asked.name, notes.name);
            said.push(format!("the question seems to be in {asked}, and what was found in {notes}"));
        }
        said
    }
}

/// Number of hits from whose texts the language of a folder is detected.
const READ_FOR_LANGUAGE: usize = 3;

/// Returns the language of the texts of hits if it differs from `asked`, all texts with a known language agree on it,
/// and together they have enough of its words. A table alone may have two words of any language: "for" and "OS" are
/// Danish.
fn language_of_texts<'a>(texts: impl Iterator<Item = &'a str>, asked: &'static Language) -> Option<&'static Language> {
    let texts: Vec<_> = texts.take(READ_FOR_LANGUAGE).collect();
    let mut known = texts.iter().filter_map(|text| language_of(text));
    let first = known.next().filter(|first| first.code != asked.code)?;
    let joined = texts.join("\n");
    // In scripts without spaces, many function words are a single letter, which does not count in a paragraph.
    let is_clear =
        || first.script != asked.script || language_of_paragraph(&joined, &runs(&joined), asked).code != asked.code;
    (known.all(|other| other.code == first.code) && is_clear()).then_some(first)
}

/// Why vectors cannot be searched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VectorsUnusable {
    /// The vectors were computed by another embedder.
    #[error("index has vectors of `{stored}`, not of `{current}`")]
    OtherEmbedder {
        /// The embedder of the index.
        stored: String,
        /// The embedder configured now.
        current: String,
    },
    /// No chunk is embedded yet.
    #[error("index has no vectors yet")]
    NoneYet,
    /// The embedder of the index could not be loaded.
    #[error("embedder of the index is not available: {0}")]
    NoEmbedder(String),
    /// The embedder of the index may not be used.
    #[error("skipped the index's embedder: {0}")]
    Withheld(String),
    /// The embedding server returned no vector for the query.
    #[error("query was not embedded: {0}")]
    NoAnswer(String),
}

impl VectorsUnusable {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::OtherEmbedder { .. } => "run `dr index --rebuild`, or search with `--mode lexical`".into(),
            Self::NoneYet => "run `dr index` without `--no-embed`".into(),
            Self::Withheld(_) => "search with `--mode lexical` for the same hits without this note".into(),
            Self::NoAnswer(_) => "try again when the server answers, or search with `--mode lexical`".into(),
            Self::NoEmbedder(_) => "run `dr doctor` to see what is missing, or search with `--mode lexical`".into(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The query could not be embedded.
    #[error("failed to embed the query")]
    Embed(#[from] EmbedError),
    /// A search by vectors only is not possible.
    #[error(transparent)]
    Vectors(VectorsUnusable),
    /// A blocking task panicked.
    #[error("failed to embed the query")]
    Task(#[from] tokio::task::JoinError),
}

impl SearchError {
    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Index(error) => error.hint(),
            Self::Embed(error) => error.hint(),
            Self::Vectors(reason) => Some(reason.hint()),
            Self::Task(_) => None,
        }
    }
}

/// Searches one snapshot of an index.
#[derive(Clone)]
pub struct Searcher {
    index: Index,
    embedder: Result<Arc<dyn Embedder>, VectorsUnusable>,
    /// The embedder for texts that are not compared with vectors of the index.
    companion: Result<Arc<dyn Embedder>, VectorsUnusable>,
    pub(crate) splitter: WordSplitter,
    pub(crate) rerank: Rerank,
}

impl Searcher {
    /// Returns a searcher. If the embedder's fingerprint differs from that of the index, only the text leg is used.
    pub fn new(index: Index, embedder: Result<Arc<dyn Embedder>, VectorsUnusable>) -> Self {
        let stored = &index.manifest().embedder;
        let embedder = embedder.and_then(|embedder| {
            if embedder.fingerprint() == stored.fingerprint {
                return Ok(embedder);
            }
            let current = embedder.name().to_owned();
            Err(VectorsUnusable::OtherEmbedder { stored: stored.name.clone(), current })
        });
        let splitter = WordSplitter::of(index.main_language());
        let companion = embedder.as_ref().map(|embedder| embedder.companion().unwrap_or_else(|| Arc::clone(embedder)));
        let companion = companion.map_err(Clone::clone);
        Self { index, embedder, companion, splitter, rerank: Rerank::Off }
    }

    /// Searches only text, for a reason.
    #[must_use]
    pub(crate) fn without_vectors(self, reason: VectorsUnusable) -> Self {
        // The companion stays, because it runs on this machine.
        Self { embedder: Err(reason), ..self }
    }

    /// Limits the total cost of embedding queries, in billionths of a dollar. Once it is spent, vectors are not
    /// searched.
    #[must_use]
    pub(crate) fn within(self, limit_nanos: u64) -> Self {
        let limited = self.embedder.as_ref().ok().and_then(|embedder| embedder.within(Some(limit_nanos)));
        Self { embedder: limited.map_or(self.embedder, Ok), ..self }
    }

    /// Reranks the first hits of every search.
    #[must_use]
    pub(crate) fn with_rerank(self, rerank: Rerank) -> Self {
        Self { rerank, ..self }
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns whether only text is searched because the embedder may not be used.
    pub(crate) fn withholds_vectors(&self) -> bool {
        matches!(self.embedder, Err(VectorsUnusable::Withheld(_)))
    }

    /// Returns whether the limit on the cost of embedding has room for `tokens` tokens.
    pub(crate) fn can_pay_for(&self, tokens: u64) -> bool {
        self.embedder.as_ref().is_ok_and(|embedder| embedder.check_cost(tokens).is_ok())
    }

    /// Returns the server that embeds the queries, if one does.
    pub(crate) fn server(&self) -> Option<&EmbeddingServer> {
        self.embedder.as_ref().ok()?.server()
    }

    /// Returns the embedder for texts that are not compared with vectors of the index, if the fingerprint of the
    /// embedder is that of the index. It is on this machine.
    pub(crate) fn companion(&self) -> Option<&Arc<dyn Embedder>> {
        self.companion.as_ref().ok()
    }

    /// Returns the embedder for texts that are not compared with vectors of the index.
    ///
    /// # Errors
    ///
    /// Returns [`SearchError::Vectors`] if it cannot be loaded, or the fingerprint of the embedder is not that of the
    /// index.
    pub(crate) fn needed_companion(&self) -> Result<&Arc<dyn Embedder>, SearchError> {
        self.companion.as_ref().map_err(|reason| SearchError::Vectors(reason.clone()))
    }

    /// Searches for a query as the user typed it.
    ///
    /// # Errors
    ///
    /// Returns [`SearchError::Vectors`] if the mode is [`SearchMode::Vector`] and vectors are unusable. A hybrid search
    /// uses the text leg alone in that case and sets [`Hits::without_vectors`].
    pub async fn search(&self, typed: &str, options: &SearchOptions) -> Result<Hits, SearchError> {
        self.find(&self.query(typed), options).await
    }

    fn query(&self, typed: &str) -> Query {
        Query::parse(typed, |asked| self.index.language_for(asked))
    }

    async fn find(&self, query: &Query, options: &SearchOptions) -> Result<Hits, SearchError> {
        let wanted = options.limit;
        let mut options = self.with_documents(options).await?;
        if let Rerank::By(reranker) = &self.rerank {
            // The reranker may raise a hit that is below the requested number.
            options.limit = wanted.max(reranker.candidates);
        }
        let options = &options;
        let depth = MIN_DEPTH.max(DEPTH_FACTOR.saturating_mul(options.limit));
        let (text, vector, exact) = futures::join!(
            self.text_leg(query, options, depth),
            self.vector_leg(query, options, depth),
            self.exact_legs(query, options),
        );
        let (vector, without_vectors) = vector?;
        let candidates = with_exact(fuse(&text?, &vector, self.read_of(query)), exact?);
        let (rows, candidates) = self.select(query, candidates, options).await?;
        let stems = self.splitter.key_stems(&query.text);
        let hits: Vec<_> =
            rows.into_iter().zip(&candidates).map(|(row, candidate)| self.hit(row, candidate, &stems)).collect();
        let (mut hits, not_reranked) = self.reranked(&query.text, hits).await;
        // Only now, since the reranker was given more hits than requested.
        hits.truncate(wanted);
        Ok(Hits { hits, without_vectors, not_reranked })
    }

    /// Orders the first hits by relevance, or returns them unchanged with the reason.
    async fn reranked(&self, query: &str, mut hits: Vec<Hit>) -> (Vec<Hit>, Option<String>) {
        let reranker = match &self.rerank {
            Rerank::Off => return (hits, None),
            Rerank::Withheld(why) => return (hits, Some(why.clone())),
            Rerank::By(reranker) => reranker,
        };
        let candidates = reranker.candidates.min(hits.len());
        if candidates == 0 {
            return (hits, None);
        }
        let texts: Vec<_> =
            hits.iter().take(candidates).map(|hit| format!("{}\n{}", headings(hit), hit.text)).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let scores = match reranker.scores(query, &texts).await {
            Ok(scores) => scores,
            Err(error) => return (hits, Some(format!("{reranker} was not used: {error}"))),
        };
        let (first, rest) = hits.split_at_mut(candidates);
        for (hit, score) in first.iter_mut().zip(scores) {
            (hit.score, hit.explain.relevance) = (score, Some(score));
        }
        // Stable, so that passages of equal relevance keep the order of the search.
        first.sort_by(|a, b| b.score.total_cmp(&a.score));
        // The other hits stay below.
        let lowest = first[candidates - 1].score;
        for hit in rest {
            hit.score *= lowest;
        }
        (hits, None)
    }

    /// Searches, corrects misspelt words unless a phrase is quoted, and judges the hits by at most the signals
    /// `most`.
    ///
    /// # Errors
    ///
    /// As [`Self::search`].
    pub(crate) async fn search_and_judge(
        &self,
        typed: &str,
        options: &SearchOptions,
        most: Measured,
    ) -> Result<JudgedHits, SearchError> {
        let query = self.query(typed);
        // Once, as words are counted under the same filter as the hits are found.
        let options = &self.with_documents(options).await?;
        let mut judged = self.find_and_judge(&query, options, most).await?;
        // A quoted phrase is meant literally.
        if query.phrases.is_empty() {
            self.spell(&mut judged.unknown, &judged.found.hits, &options.filter).await?;
        }
        let Some(corrected) = spelling::corrected(typed, &judged.unknown, &self.splitter) else { return Ok(judged) };
        let again = self.find_and_judge(&self.query(&corrected), options, most).await?;
        // The words and the language are those of the query as it was typed.
        let JudgedHits { unknown, asked, .. } = judged;
        Ok(JudgedHits { unknown, asked, corrected: Some(corrected), ..again })
    }

    /// Resolves the path globs of the options to documents of the index.
    async fn with_documents(&self, options: &SearchOptions) -> Result<SearchOptions, IndexError> {
        let mut options = options.clone();
        // The storage engine has no globs.
        if let Some(globs) = options.paths.take() {
            let documents = self.index.documents(None).await?.into_iter();
            options.filter.documents =
                Some(documents.filter(|row| globs.is_match(&row.path)).map(|row| row.id).collect());
        }
        Ok(options)
    }

    /// Returns how well the embedder reads a query, from 0 to 1.
    fn read_of(&self, query: &Query) -> f32 {
        let language = self.index.language_for(query.language);
        self.embedder.as_ref().map_or(1.0, |embedder| embedder.reads().share(&query.text, language))
    }

    async fn text_leg(&self, query: &Query, options: &SearchOptions, depth: usize) -> Result<Vec<LegHit>, IndexError> {
        if options.mode == SearchMode::Vector || !query.words.chars().any(char::is_alphanumeric) {
            return Ok(Vec::new());
        }
        let terms = self.index.terms(query.language);
        let related = Vec::from_iter(query.related.others()).join(" ");
        self.index.text_leg(&terms, (&query.words, &related), &options.filter, depth).await
    }

    async fn vector_leg(
        &self,
        query: &Query,
        options: &SearchOptions,
        depth: usize,
    ) -> Result<(Vec<LegHit>, Option<VectorsUnusable>), SearchError> {
        let is_readable = options.mode == SearchMode::Vector || self.read_of(query) > 0.0;
        let has_words = query.text.chars().any(char::is_alphanumeric);
        if options.mode == SearchMode::Lexical || !has_words || !is_readable {
            return Ok((Vec::new(), None));
        }
        let unusable = |reason| match options.mode {
            SearchMode::Vector => Err(SearchError::Vectors(reason)),
            _ => Ok((Vec::new(), Some(reason))),
        };
        let embedder = match &self.embedder {
            Ok(embedder) => Arc::clone(embedder),
            Err(reason) => return unusable(reason.clone()),
        };
        let (text, is_asked) = (query.text.clone(), embedder.server().is_some());
        let vector = match tokio::task::spawn_blocking(move || embedder.embed_query(&text)).await? {
            Ok(vector) => vector,
            // A server may be down for a while; the text index is not affected.
            Err(error) if is_asked => return unusable(VectorsUnusable::NoAnswer(with_causes(&error))),
            Err(error) => return Err(error.into()),
        };
        let hits = self.index.vector_leg(&vector, &options.filter, depth, false).await?;
        // An empty result alone does not tell, because a filter may leave nothing.
        if hits.is_empty() && !self.index.has_vectors().await? {
            return unusable(VectorsUnusable::NoneYet);
        }
        Ok((hits, None))
    }

    /// Finds candidates for quoted phrases and identifiers. The index matches stems, so [`Self::select`] compares the
    /// text.
    async fn exact_legs(&self, query: &Query, options: &SearchOptions) -> Result<Vec<LegHit>, IndexError> {
        let phrases = query.phrases.iter().chain(&query.identifiers);
        let terms = self.index.terms(query.language);
        let legs = phrases.map(|phrase| self.index.phrase_leg(&terms, phrase, &options.filter, EXACT_DEPTH));
        let legs = futures::future::try_join_all(legs).await?;
        let mut seen = HashSet::new();
        Ok(legs.into_iter().flatten().filter(|hit| seen.insert(hit.chunk_id.clone())).collect())
    }

    /// Selects the hits: verifies exact matches against the text and applies the limit per document.
    async fn select(
        &self,
        query: &Query,
        mut candidates: Vec<Candidate>,
        options: &SearchOptions,
    ) -> Result<(Vec<ChunkRow>, Vec<Candidate>), IndexError> {
        let is_exact = !query.phrases.is_empty() || !query.identifiers.is_empty();
        let mut rows: HashMap<u64, ChunkRow> = HashMap::new();
        if is_exact {
            rows = self.read_rows(&candidates).await?;
            candidates.retain(|candidate| {
                rows.get(&candidate.hit.row_id).is_some_and(|row| query.has_phrases(&searched_text(row)))
            });
            let weight = query.identifier_share.max(MIN_IDENTIFIER_WEIGHT);
            for candidate in candidates.iter_mut().filter(|_| !query.identifiers.is_empty()) {
                let found =
                    rows.get(&candidate.hit.row_id).map_or(0.0, |row| query.identifiers_in(&searched_text(row)));
                candidate.score = (1.0 - weight) * candidate.score + weight * found;
            }
            // The query has nothing but identifiers and a chunk has all of them: chunks without any are noise.
            if query.identifier_share >= 1.0 && candidates.iter().any(|candidate| candidate.score >= weight) {
                candidates.retain(|candidate| candidate.score > 0.0);
            }
            fusion::sort(&mut candidates);
        }
        fusion::spread(&mut candidates, options.per_document);
        // Repetitions are dropped below, so more candidates than requested are read.
        candidates.truncate(if options.distinct { options.limit.saturating_mul(DISTINCT_OF) } else { options.limit });
        // Nothing is compared with the text, so only the selected chunks are read.
        if !is_exact {
            rows = self.read_rows(&candidates).await?;
        }
        // The caller pairs rows and candidates by position.
        candidates.retain(|candidate| rows.contains_key(&candidate.hit.row_id));
        if options.distinct {
            let found: Vec<_> = candidates.iter().map(|candidate| &rows[&candidate.hit.row_id]).collect();
            let mut is_kept = distinct(&found, &self.splitter.key_stems(&query.text), &self.splitter).into_iter();
            candidates.retain(|_| is_kept.next().unwrap_or(false));
            candidates.truncate(options.limit);
        }
        let picked = candidates.iter().filter_map(|candidate| rows.remove(&candidate.hit.row_id)).collect();
        Ok((picked, candidates))
    }

    async fn read_rows(&self, candidates: &[Candidate]) -> Result<HashMap<u64, ChunkRow>, IndexError> {
        let row_ids: Vec<_> = candidates.iter().map(|candidate| candidate.hit.row_id).collect();
        self.index.rows(&row_ids).await
    }

    fn hit(&self, row: ChunkRow, candidate: &Candidate, stems: &[String]) -> Hit {
        Hit {
            snippet: Snippet::cut(&row.text, stems, &self.splitter),
            title: row.title().to_owned(),
            id: row.id,
            document_id: row.document_id,
            collection: row.collection,
            path: row.path,
            heading_path: row.heading_path,
            line_start: row.line_start,
            line_end: row.line_end,
            text: row.text,
            score: candidate.score,
            explain: Explain {
                lexical_rank: candidate.text.map(|place| place.rank),
                lexical_score: candidate.text.map(|place| place.score),
                vector_rank: candidate.vector.map(|place| place.rank),
                vector_similarity: candidate.vector.map(|place| place.score),
                relevance: None,
            },
            about: None,
            content_hash: row.content_hash,
            date: row.date,
            byte_start: row.byte_start,
        }
    }
}

/// Appends candidates that only an exact leg found, with a score of 0.
fn with_exact(mut candidates: Vec<Candidate>, exact: Vec<LegHit>) -> Vec<Candidate> {
    let known: HashSet<_> = candidates.iter().map(|candidate| candidate.hit.chunk_id.clone()).collect();
    let new = exact.into_iter().filter(|hit| !known.contains(&hit.chunk_id));
    candidates.extend(new.map(|hit| Candidate { hit, text: None, vector: None, score: 0.0 }));
    candidates
}

/// Returns the text of a chunk that the text leg searches, without the repetitions for weight.
fn searched_text(row: &ChunkRow) -> String {
    format!("{}\n{}\n{}", row.names.join("\n"), row.heading_path.join("\n"), row.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_of_notes_is_not_told_by_two_words_of_a_table() {
        let told = |texts: &[&str]| language_of_texts(texts.iter().copied(), Language::english()).map(|own| own.name);
        let table = "| Package | OS | Size |\n|---|---|---|\n| for Linux | arm | 25 |";
        assert!(!language_of(table).unwrap().is_english());
        assert_eq!(told(&[table, "| Size | 25 |"]), None);
        assert_eq!(told(&[table, table]), None, "two tables have the same words");
        let german = "Der Garten wird von uns mit dem Wasser aus der Tonne gegossen, und das ist nicht teuer.";
        assert_eq!(told(&[german]), Some("German"));
        assert_eq!(told(&[german, "The garden is watered by us with the water of the butt."]), None);
        assert_eq!(told(&["резервная копия"]), Some("Russian"));
    }
}
