//! Commits: what changes an index, each one whole or not at all, and the order that makes a crash harmless.
//!
//! The chunks of a batch are committed before its documents. A crash between the two leaves chunks whose document is
//! not known; the next run reads those files again and replaces the same rows.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchIterator};
use lance::Dataset;
use lance::dataset::{MergeInsertBuilder, MergeInsertWriteMode, WhenMatched, WhenNotMatched};
use lancedb::Connection;
use lancedb::table::AddDataMode;

use super::indexes::build_text_index;
use super::query::of_documents;
use super::schema::{chunks_batch, chunks_schema, documents_batch, documents_schema, manifest_batch, vectors_batch};
use super::{
    ChunkRow, DocumentRow, During, Index, IndexError, IndexLocation, MANIFEST_TABLE, Manifest, WriterLock, connect,
    read_manifest, step,
};
use crate::base::id::{ChunkId, DocumentId};

/// Documents named in one condition; a longer list makes the storage engine's planner slow.
const DOCUMENTS_PER_DELETE: usize = 1_000;

/// The one handle that changes an index; holds the writer lock of a local one.
///
/// On object stores there is no lock: the storage engine's conditional commits decide between two writers, and the
/// loser gets an error.
pub struct IndexWriter {
    index: Index,
    /// Documents that have chunks although the documents table may not know them.
    chunked: HashSet<DocumentId>,
    _lock: Option<WriterLock>,
}

/// What a document becomes: its row and all its chunks.
pub struct Replacement {
    /// The document as it is now.
    pub document: DocumentRow,
    /// Its passages, none when there is nothing in it.
    pub chunks: Vec<ChunkRow>,
}

impl IndexWriter {
    /// Opens the index for writing, or makes an empty one as `fresh` says.
    ///
    /// What a killed writer left half made is removed.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Lock`] while another process writes.
    pub async fn open(location: &IndexLocation, fresh: &Manifest) -> Result<Self, IndexError> {
        let lock = take_lock(location)?;
        let connection = connect(location).await?;
        match read_manifest(location, &connection).await? {
            Some(manifest) => {
                drop_other_generations(&connection, Some(&manifest)).await?;
                Self::over(Index::open_tables(location, connection, manifest).await?, lock).await
            }
            None => {
                drop_other_generations(&connection, None).await?;
                create_generation(&connection, fresh).await?;
                let writer = Self::over(Index::open_tables(location, connection, fresh.clone()).await?, lock).await?;
                // The manifest comes last, because a reader takes what has one for an index that can be searched.
                build_text_index(&writer.index.chunks).await?;
                writer.create_manifest().await?;
                Ok(writer)
            }
        }
    }

    async fn create_manifest(&self) -> Result<(), IndexError> {
        let action = "write the index manifest";
        step(action)?;
        let batch = manifest_batch(&self.index.manifest.entries()).during(action)?;
        self.index.connection.create_table(MANIFEST_TABLE, batch).execute().await.during(action)?;
        Ok(())
    }

    async fn over(index: Index, lock: Option<WriterLock>) -> Result<Self, IndexError> {
        let chunked = index.chunked_documents().await?;
        Ok(Self { index, chunked, _lock: lock })
    }

    /// Starts an empty generation beside the current one, which readers keep until [`Self::publish`].
    pub async fn rebuilt(self, manifest: Manifest) -> Result<Self, IndexError> {
        let Self { index, _lock: lock, .. } = self;
        let manifest = Manifest { generation: index.manifest.generation + 1, ..manifest };
        create_generation(&index.connection, &manifest).await?;
        let Index { location, connection, .. } = index;
        let index = Index::open_tables(&location, connection, manifest).await?;
        Self::over(index, lock).await
    }

    /// Makes this writer's generation the one readers open, and removes the one before.
    pub async fn publish(&mut self) -> Result<(), IndexError> {
        self.save_manifest(self.index.manifest.clone()).await?;
        drop_other_generations(&self.index.connection, Some(&self.index.manifest)).await
    }

    /// Returns the index as this writer has left it.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Replaces what the index says of itself, in one commit.
    pub async fn save_manifest(&mut self, manifest: Manifest) -> Result<(), IndexError> {
        let action = "write the index manifest";
        step(action)?;
        let batch = manifest_batch(&manifest.entries()).during(action)?;
        let table = self.index.connection.open_table(MANIFEST_TABLE).execute().await.during(action)?;
        table.add(batch).mode(AddDataMode::Overwrite).execute().await.during(action)?;
        self.index.manifest = manifest;
        Ok(())
    }

    /// Names the collections of a generation that is not published yet.
    pub fn name_collections(&mut self, collections: std::collections::BTreeMap<String, String>) {
        self.index.manifest.collections = collections;
    }

    /// Replaces all chunks of some documents, and the documents' rows.
    ///
    /// The chunks change in one commit, so a reader sees each document as it was or as it is.
    pub async fn replace(&mut self, batch: Vec<Replacement>) -> Result<(), IndexError> {
        let (mut documents, mut fresh, mut stale, mut stale_ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Replacement { document, chunks } in batch {
            if self.chunked.contains(&document.id) {
                stale_ids.push(document.id.clone());
                stale.extend(chunks);
            } else {
                if !chunks.is_empty() {
                    self.chunked.insert(document.id.clone());
                }
                fresh.extend(chunks);
            }
            documents.push(document);
        }
        if stale_ids.is_empty() {
            self.add_chunks(&fresh).await?;
        } else {
            stale.extend(fresh);
            self.merge_chunks(&stale, &stale_ids).await?;
        }
        self.put_documents(&documents).await
    }

    async fn add_chunks(&self, rows: &[ChunkRow]) -> Result<(), IndexError> {
        let action = "add chunks";
        if rows.is_empty() {
            return Ok(());
        }
        step(action)?;
        let batch = chunks_batch(rows, self.dimension()).during(action)?;
        self.index.chunks.add(batch).execute().await.during(action)?;
        Ok(())
    }

    /// Adds or updates `rows` and deletes every other chunk of `documents`, in one commit.
    async fn merge_chunks(&self, rows: &[ChunkRow], documents: &[DocumentId]) -> Result<(), IndexError> {
        let action = "replace chunks";
        step(action)?;
        let batch = chunks_batch(rows, self.dimension()).during(action)?;
        let mut merge = self.index.chunks.merge_insert(&["chunk_id"]);
        merge
            .when_matched_update_all(None)
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(Some(of_documents(documents)));
        let result = merge.execute(reader(batch)).await.during(action)?;
        expect_rows(rows.len(), result.num_inserted_rows + result.num_updated_rows)
    }

    /// Adds or updates rows of the documents table, without touching chunks.
    pub async fn put_documents(&self, rows: &[DocumentRow]) -> Result<(), IndexError> {
        let action = "write documents";
        if rows.is_empty() {
            return Ok(());
        }
        step(action)?;
        let batch = documents_batch(rows).during(action)?;
        let mut merge = self.index.documents.merge_insert(&["document_id"]);
        merge.when_matched_update_all(None).when_not_matched_insert_all();
        let result = merge.execute(reader(batch)).await.during(action)?;
        expect_rows(rows.len(), result.num_inserted_rows + result.num_updated_rows)
    }

    /// Forgets documents and their chunks.
    pub async fn remove(&mut self, documents: &[DocumentId]) -> Result<(), IndexError> {
        let action = "remove documents";
        for part in documents.chunks(DOCUMENTS_PER_DELETE) {
            let condition = of_documents(part);
            step(action)?;
            self.index.chunks.delete(condition.as_str()).await.during(action)?;
            step(action)?;
            self.index.documents.delete(condition.as_str()).await.during(action)?;
            for id in part {
                self.chunked.remove(id);
            }
        }
        Ok(())
    }

    /// Returns documents that have chunks but are not in `known`: left by a writer that was killed.
    pub fn strays(&self, known: &HashSet<DocumentId>) -> Vec<DocumentId> {
        let mut strays: Vec<_> = self.chunked.difference(known).cloned().collect();
        strays.sort();
        strays
    }

    /// Gives chunks their vectors; nothing else of the rows changes, so they stay in the text index.
    pub async fn set_vectors(&self, vectors: &[(ChunkId, Vec<f32>)]) -> Result<(), IndexError> {
        let action = "add vectors";
        if vectors.is_empty() {
            return Ok(());
        }
        step(action)?;
        let batch = vectors_batch(vectors, self.dimension()).during(action)?;
        let updated = match self.index.chunks.dataset() {
            // LanceDB's own merge writes whole rows anew, which takes them out of the text index; Lance can patch.
            Some(dataset) => {
                let patched = patch_columns(dataset.get().await.during(action)?, batch);
                let (patched, updated) = patched.await.map_err(lancedb::Error::from).during(action)?;
                dataset.update(Arc::unwrap_or_clone(patched));
                updated
            }
            None => {
                let mut merge = self.index.chunks.merge_insert(&["chunk_id"]);
                merge.when_matched_update_all(None);
                merge.execute(reader(batch)).await.during(action)?.num_updated_rows
            }
        };
        expect_rows(vectors.len(), updated)
    }

    pub(super) fn dimension(&self) -> usize {
        self.index.manifest.embedder.dimension
    }
}

fn take_lock(location: &IndexLocation) -> Result<Option<WriterLock>, IndexError> {
    let Some(folder) = location.folder() else { return Ok(None) };
    std::fs::create_dir_all(folder).map_err(|source| IndexError::Folder { path: folder.to_path_buf(), source })?;
    Ok(Some(WriterLock::take(folder)?))
}

fn reader(batch: RecordBatch) -> Box<dyn arrow::array::RecordBatchReader + Send> {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

/// Replaces the columns of `batch` in the rows it names by `chunk_id`; returns how many rows that were.
async fn patch_columns(dataset: Arc<Dataset>, batch: RecordBatch) -> Result<(Arc<Dataset>, u64), lance::Error> {
    let mut merge = MergeInsertBuilder::try_new(dataset, vec!["chunk_id".to_owned()])?;
    merge
        .when_matched(WhenMatched::UpdateAll)
        .when_not_matched(WhenNotMatched::DoNothing)
        .write_mode(MergeInsertWriteMode::RewriteColumns);
    let (dataset, stats) = merge.try_build()?.execute_reader(reader(batch)).await?;
    Ok((dataset, stats.num_updated_rows))
}

fn expect_rows(wanted: usize, changed: u64) -> Result<(), IndexError> {
    if changed == wanted as u64 { Ok(()) } else { Err(IndexError::Lost { wanted, changed }) }
}

async fn create_generation(connection: &Connection, manifest: &Manifest) -> Result<(), IndexError> {
    let action = "create the tables of the index";
    let chunks = chunks_schema(manifest.embedder.dimension);
    step(action)?;
    connection.create_empty_table(manifest.chunks_table(), chunks).execute().await.during(action)?;
    let documents = documents_schema();
    step(action)?;
    connection.create_empty_table(manifest.documents_table(), documents).execute().await.during(action)?;
    Ok(())
}

/// Removes tables that are not of the current generation: of an index before `--rebuild`, or half made.
async fn drop_other_generations(connection: &Connection, current: Option<&Manifest>) -> Result<(), IndexError> {
    let action = "remove old tables of the index";
    let kept = current.map(|manifest| [manifest.chunks_table(), manifest.documents_table(), MANIFEST_TABLE.to_owned()]);
    for name in connection.table_names().execute().await.during(action)? {
        let is_ours = name == MANIFEST_TABLE || name.starts_with("chunks_") || name.starts_with("documents_");
        if is_ours && !kept.iter().flatten().any(|kept| *kept == name) {
            step(action)?;
            connection.drop_table(&name, &[]).await.during(action)?;
        }
    }
    Ok(())
}
