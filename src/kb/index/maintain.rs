//! Maintenance by the writer: building and extending indexes, compaction, and pruning of old versions.
//!
//! Rows that an index does not cover yet are found by a scan. Maintenance affects speed, not results, so a crash
//! between two steps costs only time. LanceDB's service maintains its indexes itself; here they are only requested.

use lancedb::table::{CompactionOptions, Duration, OptimizeAction, OptimizeOptions};

use super::indexes::{TEXT_INDEX, VECTOR_INDEX, build_text_index, build_vector_index};
use super::versions::oldest_kept;
use super::write::drop_unnamed_generations;
use super::{During, IndexError, IndexWriter, step};

/// Number of vectors from which a vector index pays off; comparing fewer one by one is as fast.
const MIN_INDEXED_VECTORS: usize = 5_000;

/// Number of index parts from which they are merged into one. Every search reads all parts.
const MAX_INDEX_PARTS: u32 = 4;

/// Target size of a fragment of the chunks table, in rows: smaller ones are merged. Each commit of vectors rewrites
/// the vectors of every fragment it touches, so large fragments would multiply the space used until old versions
/// are dropped.
const ROWS_PER_FRAGMENT: usize = 4_096;

/// Number of small fragments that are tolerated: compaction rewrites rows, which costs more than reading a few
/// fragments.
const MAX_SMALL_FRAGMENTS: usize = 16;

impl IndexWriter {
    /// Creates the text index if there is none. It has to exist before the first search, since unindexed rows are
    /// scanned with its tokenizer.
    pub(crate) async fn ensure_text_index(&self) -> Result<(), IndexError> {
        // The service may still be building the one requested first, and would start over.
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
            let embedded = self.index().embedded().await?;
            let vectors = chunks.count_rows(Some(embedded)).await.during("count vectors")?;
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

    /// Returns whether the service extends indexes, compacts tables and drops versions. It does so in the background,
    /// and rejects requests to do it.
    fn is_maintained(&self) -> bool {
        self.index().location().is_service()
    }

    async fn extend_index(&self, name: &str, parts: u32) -> Result<(), IndexError> {
        let action = "extend an index";
        step(action)?;
        // 0 adds a part and leaves the others unchanged.
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
                    // Bounds the memory, as small batches do: rows are read with their vectors.
                    num_threads: Some(1),
                    batch_size: Some(1_024),
                    ..Default::default()
                };
                table.optimize(OptimizeAction::Compact { options, remap_options: None }).await.during(action)?;
            }
        }
        Ok(())
    }

    /// Deletes versions that were superseded longer than [`KEPT_VERSIONS`](super::KEPT_VERSIONS) ago, and the
    /// generations that only such versions of the manifest name.
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

    use super::super::schema::PENDING;
    use super::*;
    use crate::base::id::{ChunkId, ContentHash, DocumentId};
    use crate::kb::index::{ChunkRow, DocumentRow, Filter, Index, IndexLocation, Manifest, Replacement};
    use crate::kb::structure::Structure;

    fn manifest(dimension: usize) -> Manifest {
        let mut manifest = crate::kb::index::manifest::tests::manifest();
        manifest.embedder.dimension = dimension;
        manifest
    }

    fn chunk(document_id: &DocumentId, number: u64, vector: Option<Vec<f32>>) -> ChunkRow {
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
            vector,
        }
    }

    /// Creates an index with a document of these chunks.
    async fn filled(location: &IndexLocation, dimension: usize, chunks: Vec<ChunkRow>) -> IndexWriter {
        let document = DocumentRow {
            id: chunks[0].document_id.clone(),
            collection: "kb".into(),
            path: "a.md".into(),
            title: "A".into(),
            size: 1,
            modified_ns: None,
            content_hash: ContentHash::of(b"a"),
            chunks: u32::try_from(chunks.len()).unwrap(),
        };
        let mut writer = IndexWriter::open(location, &manifest(dimension), &[]).await.unwrap();
        let (structure, languages) = (Structure::default(), BTreeSet::new());
        writer.replace(vec![Replacement { document, structure, chunks, languages }]).await.unwrap();
        writer
    }

    fn direction(random: &mut impl Rng, dimension: usize) -> Vec<f32> {
        let vector: Vec<f32> = (0..dimension).map(|_| random.random_range(-1.0..1.0)).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.into_iter().map(|x| x / length).collect()
    }

    /// Returns how many of the exact first fifty are found through the vector index, per thousand.
    async fn found_of_a_thousand(dimension: usize) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let location = IndexLocation::in_folder(folder.path());
        let mut random = StdRng::seed_from_u64(7);
        let document_id = DocumentId::new("kb", "a.md");
        let chunks: Vec<_> =
            (0..2_000).map(|number| chunk(&document_id, number, Some(direction(&mut random, dimension)))).collect();
        let writer = filled(&location, dimension, chunks).await;
        build_vector_index(&writer.index().chunks, dimension, 2_000).await.unwrap();
        drop(writer);

        let index = Index::open(&location).await.unwrap();
        assert_eq!(index.stats().await.unwrap().unindexed_vector_rows, Some(0));
        let mut found = 0;
        for _ in 0..20 {
            let (query, filter) = (direction(&mut random, dimension), Filter::default());
            let exact = index.vector_leg(&query, &filter, 50, true).await.unwrap();
            let indexed = index.vector_leg(&query, &filter, 50, false).await.unwrap();
            assert_eq!(exact.len(), 50);
            found += exact.iter().filter(|hit| indexed.iter().any(|other| other.chunk_id == hit.chunk_id)).count();
            let best = (indexed[0].score, exact[0].score);
            assert!((best.0 - best.1).abs() < 1e-5, "scores are not those of the vectors: {best:?}");
        }
        found
    }

    #[tokio::test]
    async fn vector_index_keeps_the_exact_first_fifty() {
        assert!(found_of_a_thousand(64).await >= 990);
    }

    #[tokio::test]
    async fn chunks_of_an_older_index_that_wait_are_found_without_their_column() {
        let folder = tempfile::tempdir().unwrap();
        let location = IndexLocation::in_folder(folder.path());
        let document_id = DocumentId::new("kb", "a.md");
        let vectors = [Some(vec![1.0; 8]), None, None];
        let mut chunks: Vec<_> =
            (0..).zip(vectors).map(|(number, vector)| chunk(&document_id, number, vector)).collect();
        chunks[2].embed_key = None;
        let writer = filled(&location, 8, chunks).await;
        let waiting = async |index: &Index| {
            let rows = index.missing_vectors(&Filter::default(), 10).await.unwrap();
            let texts: Vec<_> = rows.into_iter().map(|row| row.text).collect();
            (texts, index.count_missing(&Filter::default()).await.unwrap())
        };
        let expected = (vec!["passage 1".to_owned()], 1);
        assert_eq!(waiting(writer.index()).await, expected);
        writer.index().chunks.drop_columns(&[PENDING]).await.unwrap();
        drop(writer);
        assert_eq!(waiting(&Index::open(&location).await.unwrap()).await, expected);
    }

    #[tokio::test]
    async fn vectors_of_an_odd_dimension_are_indexed_too() {
        assert_eq!(found_of_a_thousand(12).await, 1_000);
    }
}
