//! Maintenance by the writer: when the indexes are built or extended, compaction, and pruning of old versions.
//!
//! Rows that an index does not cover yet are found by a scan. Maintenance affects speed, not results, so a crash
//! between two steps costs time only. LanceDB's service does its own, so here an index is only asked for.

use std::time::{SystemTime, UNIX_EPOCH};

use lancedb::table::{CompactionOptions, Duration, OptimizeAction, OptimizeOptions, Version};

use super::indexes::{TEXT_INDEX, VECTOR_INDEX, build_text_index, build_vector_index};
use super::write::drop_unnamed_generations;
use super::{During, IndexError, IndexWriter, step};

/// Vectors from which a vector index pays; comparing fewer one by one is as fast.
const MIN_INDEXED_VECTORS: usize = 5_000;

/// Parts of an index from which they are merged into one. Every search reads all parts.
const MAX_INDEX_PARTS: u32 = 4;

/// Target size of a fragment of the chunks table, in rows: smaller ones are merged. Each commit of vectors writes the
/// vectors of every fragment it touches anew, so large fragments would multiply the space that is used until old versions
/// are dropped.
const ROWS_PER_FRAGMENT: usize = 4_096;

/// Number of small fragments that are tolerated: compaction rewrites rows, which costs more than reading a few
/// fragments.
const MAX_SMALL_FRAGMENTS: usize = 16;

/// How long superseded versions, and a generation before a rebuild, are kept for readers that have them open.
pub(crate) const KEPT_VERSIONS: std::time::Duration = std::time::Duration::from_mins(10);

impl IndexWriter {
    /// Creates the text index if there is none. It has to exist before the first search, since unindexed rows are
    /// scanned with its tokenizer.
    pub(crate) async fn ensure_text_index(&self) -> Result<(), IndexError> {
        // The service may still be building the one that was asked for first, and would start over.
        if self.is_maintained() {
            return Ok(());
        }
        let ensure = || async {
            match self.index_parts(TEXT_INDEX).await? {
                Some(_) => Ok(()),
                None => build_text_index(&self.index().chunks).await,
            }
        };
        self.commit("build the text index", ensure).await
    }

    /// Brings the text index up to date with the chunks. Rebuilds it if at least half of the rows are new.
    pub(crate) async fn finish_text_index(&self) -> Result<(), IndexError> {
        let finish = || async {
            match self.index_parts(TEXT_INDEX).await? {
                Some(parts) if parts.unindexed == 0 || self.is_maintained() => Ok(()),
                Some(parts) if parts.unindexed < parts.indexed => self.extend_index(TEXT_INDEX, parts.count).await,
                _ => build_text_index(&self.index().chunks).await,
            }
        };
        self.commit("build the text index", finish).await
    }

    /// Brings the vector index up to date, or creates it once there are [`MIN_INDEXED_VECTORS`]. Rebuilds it if at
    /// least a fifth of the vectors are new, because the partitions were trained on the old ones.
    pub(crate) async fn finish_vector_index(&self) -> Result<(), IndexError> {
        let finish = || async {
            let chunks = &self.index().chunks;
            let vectors = chunks.count_rows(Some("vector IS NOT NULL".into())).await.during("count vectors")?;
            match self.index_parts(VECTOR_INDEX).await? {
                None if vectors < MIN_INDEXED_VECTORS => Ok(()),
                Some(parts) if parts.unindexed == 0 || self.is_maintained() => Ok(()),
                Some(parts) if parts.unindexed * 4 < parts.indexed => {
                    self.extend_index(VECTOR_INDEX, parts.count).await
                }
                _ => build_vector_index(chunks, self.dimension(), vectors).await,
            }
        };
        self.commit("build the vector index", finish).await
    }

    /// Returns whether the service extends indexes, compacts tables and drops versions. It does so in the background, and
    /// refuses to be told when.
    fn is_maintained(&self) -> bool {
        self.index().location().is_service()
    }

    async fn extend_index(&self, name: &str, parts: u32) -> Result<(), IndexError> {
        let action = "extend an index";
        step(action)?;
        // 0 puts a part beside the others, and leaves those as they are.
        let merged = if parts >= MAX_INDEX_PARTS { parts as usize } else { 0 };
        let options = OptimizeOptions::merge(merged).index_names(vec![name.to_owned()]);
        self.index().chunks.optimize(OptimizeAction::Index(options)).await.during(action)?;
        Ok(())
    }

    /// Compacts tables with many small fragments or with more than a tenth of their rows deleted.
    pub(crate) async fn compact(&self) -> Result<(), IndexError> {
        self.commit("compact the index", || self.compact_once()).await
    }

    async fn compact_once(&self) -> Result<(), IndexError> {
        let action = "compact the index";
        if self.is_maintained() {
            return Ok(());
        }
        for table in [&self.index().chunks, &self.index().documents] {
            let stats = table.stats().await.during(action)?;
            let small = stats.fragment_stats.num_small_fragments > MAX_SMALL_FRAGMENTS;
            let holes = stats.num_deleted_rows.is_some_and(|deleted| deleted * 10 > stats.num_rows);
            if small || holes {
                step(action)?;
                let options = CompactionOptions {
                    target_rows_per_fragment: ROWS_PER_FRAGMENT,
                    // Bounds the memory, as the small batches do: rows are read with their vectors.
                    num_threads: Some(1),
                    batch_size: Some(1_024),
                    ..Default::default()
                };
                table.optimize(OptimizeAction::Compact { options, remap_options: None }).await.during(action)?;
            }
        }
        Ok(())
    }

    /// Deletes versions that were superseded longer than [`KEPT_VERSIONS`] ago, and the generations that only such
    /// versions of the manifest name.
    pub(crate) async fn prune(&self) -> Result<(), IndexError> {
        self.commit("drop old versions of the index", || self.prune_once()).await
    }

    async fn prune_once(&self) -> Result<(), IndexError> {
        if !self.is_maintained() {
            self.prune_versions().await?;
        }
        let index = self.index();
        drop_unnamed_generations(index.location(), &index.tables, Some(index.manifest())).await.map(drop)
    }

    async fn prune_versions(&self) -> Result<(), IndexError> {
        let action = "drop old versions of the index";
        step(action)?;
        let manifest = self.index().tables.open(super::MANIFEST_TABLE).execute().await.during(action)?;
        for table in [&self.index().chunks, &self.index().documents, &manifest] {
            let versions = table.list_versions().await.during(action)?;
            let (oldest_ms, now_ms) = oldest_kept(&versions);
            let prune = OptimizeAction::Prune {
                // A second more, since the engine subtracts the age from a later time.
                older_than: Some(Duration::milliseconds(now_ms - oldest_ms + 1_000)),
                // Unverified files may belong to a transaction in flight. The writer lock excludes one; on an object
                // store, other writers commit beside this one.
                delete_unverified: Some(self.index().location().folder().is_some()),
                error_if_tagged_old_versions: Some(false),
            };
            table.optimize(prune).await.during(action)?;
        }
        Ok(())
    }

    async fn index_parts(&self, name: &str) -> Result<Option<IndexParts>, IndexError> {
        let stats = self.index().chunks.index_stats(name).await.during("read index statistics")?;
        Ok(stats.map(|stats| IndexParts {
            indexed: stats.num_indexed_rows,
            unindexed: stats.num_unindexed_rows,
            count: stats.num_indices.unwrap_or(1),
        }))
    }
}

/// Returns the numbers of the versions of a table that readers may have open.
pub(super) fn kept_versions(versions: &[Version]) -> Vec<u64> {
    let (oldest_ms, _) = oldest_kept(versions);
    let is_kept = |version: &&Version| version.timestamp.timestamp_millis() >= oldest_ms;
    versions.iter().filter(is_kept).map(|version| version.version).collect()
}

/// Returns the time of the oldest version of a table to keep, and the present, in milliseconds.
fn oldest_kept(versions: &[Version]) -> (i64, i64) {
    let made_ms: Vec<_> = versions.iter().map(|version| version.timestamp.timestamp_millis()).collect();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    (oldest_kept_ms(&made_ms, now_ms), now_ms)
}

/// Returns the time of the oldest version to keep: the one that was the latest [`KEPT_VERSIONS`] ago. By its own
/// time alone, a version of yesterday would be deleted a moment after it was superseded.
fn oldest_kept_ms(made_ms: &[i64], now_ms: i64) -> i64 {
    let kept_ms = i64::try_from(KEPT_VERSIONS.as_millis()).unwrap_or(i64::MAX);
    let limit = now_ms.saturating_sub(kept_ms);
    made_ms.iter().copied().filter(|made| *made <= limit).max().unwrap_or(limit)
}

/// How many rows of the table an index covers, and in how many parts.
struct IndexParts {
    indexed: usize,
    unindexed: usize,
    count: u32,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, RngExt, SeedableRng};

    use super::*;
    use crate::base::id::{ChunkId, ContentHash, DocumentId};
    use crate::kb::index::{ChunkRow, DocumentRow, Filter, Index, IndexLocation, Manifest, Replacement};
    use crate::kb::structure::Structure;

    fn manifest(dimension: usize) -> Manifest {
        let mut manifest = crate::kb::index::manifest::tests::manifest();
        manifest.embedder.dimension = dimension;
        manifest
    }

    fn chunk(document_id: &DocumentId, number: u64, vector: Vec<f32>) -> ChunkRow {
        let text = format!("passage {number}");
        ChunkRow {
            id: ChunkId::new(document_id, "", &text, 0),
            document_id: document_id.clone(),
            collection: "kb".into(),
            path: "a.md".into(),
            names: vec!["A".into()],
            heading_path: Vec::new(),
            context: None,
            text,
            tags: Vec::new(),
            date: None,
            line_start: 1,
            line_end: 1,
            byte_start: number,
            byte_end: number + 1,
            tokens: 2,
            content_hash: ContentHash::of(b"a"),
            embed_key: Some(number.to_string()),
            searched: String::new(),
            vector: Some(vector),
        }
    }

    fn direction(random: &mut impl Rng, dimension: usize) -> Vec<f32> {
        let vector: Vec<f32> = (0..dimension).map(|_| random.random_range(-1.0..1.0)).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.into_iter().map(|x| x / length).collect()
    }

    /// Returns how many of the exact first fifty are found through the vector index, out of a thousand.
    async fn found_of_a_thousand(dimension: usize) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let location = IndexLocation::in_folder(folder.path());
        let mut random = StdRng::seed_from_u64(7);
        let document_id = DocumentId::new("kb", "a.md");
        let chunks: Vec<_> =
            (0..2_000).map(|number| chunk(&document_id, number, direction(&mut random, dimension))).collect();
        let document = DocumentRow {
            id: document_id,
            collection: "kb".into(),
            path: "a.md".into(),
            title: "A".into(),
            size: 1,
            modified_ns: None,
            content_hash: ContentHash::of(b"a"),
            chunks: 2_000,
        };
        let mut writer = IndexWriter::open(&location, &manifest(dimension), &[]).await.unwrap();
        writer
            .replace(vec![Replacement {
                document,
                structure: Structure::default(),
                chunks,
                languages: BTreeSet::new(),
            }])
            .await
            .unwrap();
        build_vector_index(&writer.index().chunks, dimension, 2_000).await.unwrap();
        drop(writer);

        let index = Index::open(&location).await.unwrap();
        assert_eq!(index.stats().await.unwrap().unindexed_vector_rows, Some(0));
        let mut found = 0;
        for _ in 0..20 {
            let (query, filter) = (direction(&mut random, dimension), Filter::default());
            let exact = index.exact_vector_leg(&query, &filter, 50).await.unwrap();
            let indexed = index.vector_leg(&query, &filter, 50).await.unwrap();
            assert_eq!(exact.len(), 50);
            found += exact.iter().filter(|hit| indexed.iter().any(|other| other.chunk_id == hit.chunk_id)).count();
            let best = (indexed[0].score, exact[0].score);
            assert!((best.0 - best.1).abs() < 1e-5, "scores are not those of the vectors: {best:?}");
        }
        found
    }

    #[test]
    fn version_is_kept_until_it_was_superseded_for_ten_minutes() {
        let minutes = |minutes: i64| minutes * 60_000;
        let made = [0, 5, 50, 58].map(minutes);
        for (now, oldest) in [(14, 0), (15, 5), (59, 5), (60, 50), (67, 50), (68, 58), (999, 58)] {
            assert_eq!(oldest_kept_ms(&made, minutes(now)), minutes(oldest), "after {now} minutes");
        }
        assert_eq!(oldest_kept_ms(&made[2..], minutes(55)), minutes(45), "all are younger");
    }

    #[tokio::test]
    async fn vector_index_keeps_the_exact_first_fifty() {
        assert!(found_of_a_thousand(64).await >= 990);
    }

    #[tokio::test]
    async fn vectors_of_an_odd_dimension_are_indexed_too() {
        assert_eq!(found_of_a_thousand(12).await, 1_000);
    }
}
