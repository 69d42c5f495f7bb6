//! The two legs of a search, text and vector, and the filter that both apply before ranking.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use futures::TryStreamExt;
use lancedb::DistanceType;
use lancedb::index::scalar::{BooleanQuery, FtsQuery, FullTextSearchQuery, MatchQuery, Occur, PhraseQuery};
use lancedb::query::{ExecutableQuery, Query, QueryBase, Select};
use rustc_hash::FxBuildHasher;

use super::indexes::RERANKED;
use super::schema::{CHUNK_COLUMNS, Columns, PENDING, SEARCHED};
use super::terms::Terms;
use super::{ALL, ChunkRow, During, Index, IndexError, collect, read};
use crate::base::id::{ChunkId, DocumentId};

/// Condition for chunks that are still to be embedded, in an index without the column [`PENDING`].
const MISSING_VECTOR: &str = "vector IS NULL AND embed_key IS NOT NULL";

/// Returns the hash of an [`ChunkRow::embed_key`] by which repeated ones are told.
pub(crate) fn hash_of(key: &str) -> u64 {
    FxBuildHasher.hash_one(key)
}

const READ_WAITING: &str = "read the chunks that wait for a vector";

/// Weight of a word related to one of the query.
const RELATED: f32 = 0.3;

/// A word that is surely in more chunks than this is not counted but estimated: the storage engine sorts all that it
/// counts, which took 25 ms for a word that most of 116,000 chunks have.
const COUNTED: usize = 4_096;

/// Number of best chunks of a word that are scored to estimate how many have it.
const SCORED: usize = 64;

/// BM25 score of a frequent word in its best chunk, relative to its inverse document frequency. The limit is k1 + 1 =
/// 2.2; of 60 words of two large folders it was 1.99 to 2.11.
const BEST_SCORE: f32 = 2.06;

/// The same of a word that no chunk repeats, in a chunk of a third of the average length. Tells a frequent word from
/// one that is merely never repeated.
const SINGLE_SCORE: f32 = 1.4;

/// Search effort at which all partitions of the vector index are searched.
///
/// Skipping distant partitions loses near passages faster than it saves time: with half of them, 1 to 6 % of the
/// first 50 were missed on 18,000 passages of documentation, depending on the partition size.
const SEARCH_ALL: f64 = 1.0;

/// The chunks that a search may return. Applied before ranking, so that a narrow filter still fills the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these collections; all of them if empty.
    pub collections: Vec<String>,
    /// Only these documents; all of them if `None`.
    pub documents: Option<Vec<DocumentId>>,
    /// Only documents with all these tags.
    pub tags: Vec<String>,
    /// Only documents dated on or after this day, `YYYY-MM-DD`.
    pub since: Option<String>,
    /// Only documents dated on or before this day.
    pub until: Option<String>,
}

/// A chunk ranked by one leg.
#[derive(Clone, Debug, PartialEq)]
pub struct LegHit {
    /// Address of the row, valid in this snapshot of the index only.
    pub row_id: u64,
    /// Id of the chunk, which unlike the row is stable across snapshots.
    pub chunk_id: ChunkId,
    pub document_id: DocumentId,
    /// BM25 score or cosine similarity; larger is better.
    pub score: f32,
}

impl Filter {
    /// Returns the filter in the SQL of the storage engine, with every value quoted.
    pub(super) fn condition(&self) -> Option<String> {
        let mut terms = Vec::new();
        if !self.collections.is_empty() {
            let names: Vec<_> = self.collections.iter().map(|name| literal(name)).collect();
            terms.push(format!("collection IN ({})", names.join(", ")));
        }
        terms.extend(self.documents.as_deref().map(of_documents));
        terms.extend(self.tags.iter().map(|tag| format!("array_has(tags, {})", literal(tag))));
        terms.extend(self.since.iter().map(|day| format!("date >= {}", literal(day))));
        terms.extend(self.until.iter().map(|day| format!("date <= {}", literal(day))));
        (!terms.is_empty()).then(|| terms.join(" AND "))
    }

    fn apply<Q: QueryBase>(&self, query: Q) -> Q {
        match self.condition() {
            Some(condition) => query.only_if(condition),
            None => query,
        }
    }
}

/// Quotes a string for the SQL of the storage engine: quotes are doubled, and backslashes are ordinary characters.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Index {
    /// Returns up to `limit` chunks by BM25F over names, headings and text, best first. Words related to those of the
    /// query count less.
    pub(crate) async fn text_leg(
        &self,
        terms: &Terms,
        (words, related): (&str, &str),
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<LegHit>, IndexError> {
        let mut query = words_query(terms, words);
        if !related.is_empty() {
            let related = MatchQuery::new(related.to_owned()).with_column(Some(SEARCHED.to_owned()));
            let both = [query, related.with_boost(RELATED).into()].map(|query| (Occur::Should, query));
            query = BooleanQuery::new(both).into();
        }
        self.text_hits(query, filter, limit).await
    }

    /// Returns up to `limit` chunks that have a word with at most `errors` letters added, lost or changed.
    pub(crate) async fn similar_leg(
        &self,
        terms: &Terms,
        word: &str,
        errors: usize,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<LegHit>, IndexError> {
        let errors = u32::try_from(errors).unwrap_or(u32::MAX);
        // The storage engine neither stems nor lower-cases the word of a fuzzy query.
        let stem = terms.of_phrase(word).into_iter().next().unwrap_or_default();
        let query = MatchQuery::new(stem).with_column(Some(SEARCHED.to_owned()));
        // A correction has the first letter of the word.
        let query = query.with_fuzziness(Some(errors)).with_prefix_length(1);
        self.text_hits(FtsQuery::Match(query), filter, limit).await
    }

    /// Returns the documents of up to `limit` chunks that have a word, best first, with their names.
    pub(crate) async fn names_leg(
        &self,
        terms: &Terms,
        word: &str,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(DocumentId, Vec<String>)>, IndexError> {
        let action = "look up names";
        let query = filter.apply(self.by_text(words_query(terms, word)));
        let columns = ["document_id", "names", "_score"];
        read(action, query, &columns, limit, |columns| columns.names()).await
    }

    /// Returns the number of chunks that have a word with the stem of `word`, of `all` that pass the filter. A number above
    /// [`COUNTED`] may be an estimate.
    pub(crate) async fn count_with(
        &self,
        terms: &Terms,
        word: &str,
        filter: &Filter,
        all: usize,
    ) -> Result<usize, IndexError> {
        let stems = terms.of_phrase(word);
        // A filter changes the count but not the scores, and a phrase has the scores of its parts.
        let is_phrase = || stems.iter().any(|stem| stem.contains(char::is_whitespace));
        if all > COUNTED
            && *filter == Filter::default()
            && !is_phrase()
            && let Some(count) = self.count_by_scores(&stems, all).await?
        {
            return Ok(count);
        }
        match any(stems) {
            // All of them, since a search by text returns ten rows without a limit.
            Some(query) => Ok(self.scores(query, filter, ALL).await?.len()),
            None => Ok(0),
        }
    }

    /// Returns the number of chunks that have one of some stems, if their best chunks tell: those of a rare stem are all
    /// there are, and the best score of a frequent stem shows how many there are.
    async fn count_by_scores(&self, stems: &[String], all: usize) -> Result<Option<usize>, IndexError> {
        let (mut least, mut estimate) = (0, 0);
        for stem in stems {
            let scores = self.scores(only(stem.clone()), &Filter::default(), SCORED).await?;
            if scores.len() >= SCORED {
                let best = scores.into_iter().fold(0.0, f32::max);
                // The chunks of one stem are mostly those of the others as well.
                least = least.max(frequency(best / SINGLE_SCORE, all));
                estimate = estimate.max(frequency(best / BEST_SCORE, all));
            } else if stems.len() == 1 {
                return Ok(Some(scores.len()));
            }
        }
        Ok((least > COUNTED).then_some(estimate))
    }

    /// Returns the BM25 scores of up to `limit` chunks.
    async fn scores(&self, query: FtsQuery, filter: &Filter, limit: usize) -> Result<Vec<f32>, IndexError> {
        let query = filter.apply(self.by_text(query)).with_row_id();
        let action = "count the chunks that have a word";
        read(action, query, &["_score"], limit, |columns| Ok(columns.float("_score")?.values().to_vec())).await
    }

    fn by_text(&self, query: FtsQuery) -> Query {
        self.chunks.query().full_text_search(FullTextSearchQuery::new_query(query))
    }

    /// Returns up to `limit` chunks that contain the stems of `phrase` in sequence, best first.
    pub(crate) async fn phrase_leg(
        &self,
        terms: &Terms,
        phrase: &str,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<LegHit>, IndexError> {
        match any(terms.of_phrase(phrase)) {
            Some(query) => self.text_hits(query, filter, limit).await,
            None => Ok(Vec::new()),
        }
    }

    async fn text_hits(&self, query: FtsQuery, filter: &Filter, limit: usize) -> Result<Vec<LegHit>, IndexError> {
        let query = Self::leg(self.by_text(query), filter, limit, "_score");
        let stream = query.execute().await.during("search the text index")?;
        leg_hits(stream, "_score", |score| score).await
    }

    fn leg<Q: QueryBase>(query: Q, filter: &Filter, limit: usize, score: &str) -> Q {
        filter.apply(query).select(Select::columns(&["chunk_id", "document_id", score])).with_row_id().limit(limit)
    }

    /// Returns up to `limit` chunks by cosine similarity to `vector`, best first. With `exact`, every vector is compared
    /// instead of using the vector index.
    pub async fn vector_leg(
        &self,
        vector: &[f32],
        filter: &Filter,
        limit: usize,
        exact: bool,
    ) -> Result<Vec<LegHit>, IndexError> {
        let action = "search the vectors";
        let query: Query = self.chunks.query();
        let mut query = query.nearest_to(vector).during(action)?.distance_type(DistanceType::Cosine).column("vector");
        query = if exact {
            query.bypass_vector_index()
        } else {
            query.search_effort(SEARCH_ALL).during(action)?.refine_factor(RERANKED)
        };
        let query = Self::leg(query, filter, limit, "_distance");
        let stream = query.execute().await.during(action)?;
        leg_hits(stream, "_distance", |distance| 1.0 - distance).await
    }

    /// Reads the chunks at `row_ids`.
    pub(crate) async fn rows(&self, row_ids: &[u64]) -> Result<HashMap<u64, ChunkRow>, IndexError> {
        let action = "read the chunks that were found";
        if row_ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.chunks.take_row_ids(row_ids.to_vec()).select(Select::columns(&CHUNK_COLUMNS)).with_row_id();
        let stream = rows.execute().await.during(action)?;
        let rows = collect(stream, action, |columns| {
            Ok(columns.row_ids()?.values().iter().copied().zip(columns.chunks()?).collect())
        });
        Ok(rows.await?.into_iter().collect())
    }

    pub(crate) async fn has_vectors(&self) -> Result<bool, IndexError> {
        let query = self.chunks.query().only_if("vector IS NOT NULL");
        let counts =
            read("look for vectors", query, &["chunk_id"], 1, |columns| Ok(vec![columns.0.num_rows()])).await?;
        Ok(counts.iter().any(|count| *count > 0))
    }

    /// Returns the condition for chunks that are still to be embedded.
    pub(super) async fn pending(&self) -> Result<&'static str, IndexError> {
        let schema = self.chunks.schema().await.during(READ_WAITING)?;
        Ok(if schema.field_with_name(PENDING).is_ok() { PENDING } else { MISSING_VECTOR })
    }

    /// Reads up to `limit` chunks that are still to be embedded.
    pub(crate) async fn missing_vectors(&self, filter: &Filter, limit: usize) -> Result<Vec<ChunkRow>, IndexError> {
        let query = filter.apply(self.chunks.query()).only_if(self.pending().await?);
        read(READ_WAITING, query, &CHUNK_COLUMNS, limit, |columns| columns.chunks()).await
    }

    /// Returns the number of chunks that are still to be embedded.
    pub(crate) async fn count_missing(&self, filter: &Filter) -> Result<usize, IndexError> {
        let condition = [filter.condition(), Some(self.pending().await?.to_owned())].into_iter().flatten();
        let condition = condition.collect::<Vec<_>>().join(" AND ");
        self.chunks.count_rows(Some(condition)).await.during("count the chunks that wait for a vector")
    }

    /// Returns the document and the tokens of every chunk that is still to be embedded.
    pub(crate) async fn missing_tokens(&self, filter: &Filter) -> Result<Vec<(DocumentId, u32)>, IndexError> {
        let query = filter.apply(self.chunks.query()).only_if(self.pending().await?);
        read(READ_WAITING, query, &["document_id", "tokens"], ALL, |columns| {
            let (documents, tokens) = (columns.text("document_id")?, columns.tokens()?);
            let row = |row| Ok((super::schema::stored_id(documents.value(row))?, tokens.value(row)));
            (0..columns.0.num_rows()).map(row).collect()
        })
        .await
    }

    /// Returns the hash of each [`ChunkRow::embed_key`] of several chunks that are still to be embedded: a hash, since there
    /// is a key for each of them.
    pub(crate) async fn repeated_keys(&self, filter: &Filter) -> Result<HashSet<u64>, IndexError> {
        let query = filter.apply(self.chunks.query()).only_if(self.pending().await?);
        let keys = read(READ_WAITING, query, &["embed_key"], ALL, |columns| {
            Ok(columns.text("embed_key")?.iter().flatten().map(hash_of).collect())
        });
        let mut keys: Vec<u64> = keys.await?;
        keys.sort_unstable();
        Ok(keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect())
    }

    /// Returns the condition for chunks that have a vector. It does not read the vectors of an index with [`PENDING`].
    pub(super) async fn embedded(&self) -> Result<String, IndexError> {
        Ok(format!("embed_key IS NOT NULL AND NOT ({})", self.pending().await?))
    }

    async fn embedded_of(&self, documents: &[DocumentId]) -> Result<Query, IndexError> {
        Ok(self.chunks.query().only_if(format!("{} AND {}", self.embedded().await?, of_documents(documents))))
    }

    /// Returns [`ChunkRow::embed_key`] of the chunks of `documents` that have a vector.
    pub(crate) async fn embedded_keys(&self, documents: &[DocumentId]) -> Result<HashSet<String>, IndexError> {
        if documents.is_empty() {
            return Ok(HashSet::new());
        }
        let query = self.embedded_of(documents).await?;
        let keys = read("read which vectors can be reused", query, &["embed_key"], ALL, |columns| {
            Ok(columns.text("embed_key")?.iter().flatten().map(str::to_owned).collect())
        });
        Ok(keys.await?.into_iter().collect())
    }

    /// Returns the vectors of `documents` by [`ChunkRow::embed_key`], to reuse them for unchanged text.
    pub(crate) async fn vectors_by_key(
        &self,
        documents: &[DocumentId],
    ) -> Result<HashMap<String, Vec<f32>>, IndexError> {
        if documents.is_empty() {
            return Ok(HashMap::new());
        }
        let query = self.embedded_of(documents).await?;
        let pairs = read("read vectors to reuse", query, &["embed_key", "vector"], ALL, |columns| {
            let keys = columns.text("embed_key")?;
            (0..columns.0.num_rows()).map(|row| Ok((keys.value(row).to_owned(), columns.vector(row)?))).collect()
        })
        .await?;
        Ok(pairs.into_iter().filter_map(|(key, vector)| Some((key, vector?))).collect())
    }

    /// Returns the ids of all documents with chunks that pass a filter.
    pub(crate) async fn chunked_documents(&self, filter: &Filter) -> Result<HashSet<DocumentId>, IndexError> {
        let action = "read the documents of the chunks";
        let query = self.chunks.query().select(Select::columns(&["document_id"])).limit(ALL);
        let query = filter.apply(query);
        let mut stream = query.execute().await.during(action)?;
        let mut documents = HashSet::new();
        while let Some(batch) = stream.try_next().await.during(action)? {
            let column = Columns(&batch).text("document_id").during(action)?;
            let mut last = "";
            for id in column.iter().flatten() {
                // Chunks of a document are mostly consecutive.
                if id != last {
                    documents.extend(id.parse::<DocumentId>());
                    last = id;
                }
            }
        }
        Ok(documents)
    }
}

/// Returns the query for any of the words.
fn words_query(terms: &Terms, words: &str) -> FtsQuery {
    MatchQuery::new(terms.of_query(words)).with_column(Some(SEARCHED.to_owned())).into()
}

/// Returns the query for a stem, or for stems in sequence.
fn only(stems: String) -> FtsQuery {
    let column = Some(SEARCHED.to_owned());
    if stems.contains(char::is_whitespace) {
        PhraseQuery::new(stems).with_column(column).into()
    } else {
        MatchQuery::new(stems).with_column(column).into()
    }
}

/// Returns the query for a word or a phrase, stemmed by any language of the index; `None` if it has no words.
fn any(stems: Vec<String>) -> Option<FtsQuery> {
    let mut queries: Vec<_> = stems.into_iter().map(only).collect();
    match queries.len() {
        0 | 1 => queries.pop(),
        _ => Some(BooleanQuery::new(queries.into_iter().map(|query| (Occur::Should, query))).into()),
    }
}

/// Returns the number of chunks that have a word, from its inverse document frequency among `all`: the inverse of the
/// formula of BM25, ln(1 + (all − n + 0.5) / (n + 0.5)).
#[expect(clippy::cast_precision_loss, reason = "a folder has less than 16 million chunks")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is not negative, and a fraction of a chunk is none"
)]
fn frequency(rarity: f32, all: usize) -> usize {
    ((all as f32 + 1.0) / rarity.exp() - 0.5).max(0.0) as usize
}

/// Returns the condition that selects the chunks of `documents`.
pub(super) fn of_documents(documents: &[DocumentId]) -> String {
    if documents.is_empty() {
        // `IN ()` is a syntax error.
        return "false".to_owned();
    }
    let ids: Vec<_> = documents.iter().map(|id| format!("'{id}'")).collect();
    format!("document_id IN ({})", ids.join(", "))
}

async fn leg_hits(
    stream: lancedb::arrow::SendableRecordBatchStream,
    column: &str,
    score: impl Fn(f32) -> f32,
) -> Result<Vec<LegHit>, IndexError> {
    let mut hits = collect(stream, "read what was found", |columns| {
        let (chunks, documents) = (columns.text("chunk_id")?, columns.text("document_id")?);
        let (scores, row_ids) = (columns.float(column)?, columns.row_ids()?);
        (0..columns.0.num_rows())
            .map(|row| {
                Ok(LegHit {
                    row_id: row_ids.value(row),
                    chunk_id: super::schema::stored_id(chunks.value(row))?,
                    document_id: super::schema::stored_id(documents.value(row))?,
                    score: score(scores.value(row)),
                })
            })
            .collect()
    })
    .await?;
    // Equal scores come back in storage order, which may change when the index is rebuilt.
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.chunk_id.cmp(&b.chunk_id)));
    Ok(hits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_is_the_inverse_of_the_formula_for_rarity() {
        for (count, all) in [(1_u16, 60_000_u16), (5_000, 60_000), (40_000, 60_000), (200, 200)] {
            let (n, rest) = (f32::from(count), f32::from(all - count));
            let rarity = (1.0 + (rest + 0.5) / (n + 0.5)).ln();
            assert!(frequency(rarity, usize::from(all)).abs_diff(usize::from(count)) <= 1, "{count} of {all}");
        }
    }

    #[test]
    fn filter_quotes_every_value() {
        let filter = Filter {
            collections: vec!["it's".into()],
            documents: Some(vec!["0123456789abcdef".parse().unwrap()]),
            tags: vec!["x' OR '1'='1".into()],
            since: Some("2026-01-01".into()),
            until: Some("2026-02-01".into()),
        };
        assert_eq!(
            filter.condition().unwrap(),
            r"collection IN ('it''s') AND document_id IN ('0123456789abcdef') AND array_has(tags, 'x'' OR ''1''=''1') AND date >= '2026-01-01' AND date <= '2026-02-01'"
        );
        assert_eq!(Filter::default().condition(), None);
    }
}
