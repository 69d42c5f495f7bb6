//! Commits to an index, in an order that makes a crash between any two harmless.
//!
//! The chunks of a batch are committed before its documents. A crash in between leaves chunks without a document row;
//! the next run reads those files again and replaces the chunks.

use std::collections::{BTreeSet, HashSet};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::FutureExt;
use lancedb::Table;
use lancedb::table::AddDataMode;
use lancedb::table::merge::MergeInsertBuilder;

use super::indexes::build_text_index;
use super::lease::{Leases, WHOLE};
use super::manifest::MANIFEST_COPY;
use super::patch::{change, patch_columns, reader, replace_rows};
use super::query::of_documents;
use super::schema::{chunks_batch, chunks_schema, documents_batch, documents_schema, manifest_batch, vectors_batch};
use super::store::site;
use super::versions::kept_versions;
use super::{
    ChunkRow, DocumentRow, During, Filter, Index, IndexError, IndexLocation, MANIFEST_TABLE, Manifest, Tables,
    manifest_in, read_manifest, step,
};
use crate::base::folder::create_private;
use crate::base::id::{ChunkId, DocumentId};
use crate::base::lock::{FileLock, FileLockError};
use crate::kb::structure::Structure;

/// Lock file of an index without leases. Readers do not take it and never wait.
const WRITER_LOCK: &str = "writer.lock";

/// Maximum number of documents per condition. A longer list slows down the storage engine's planner.
const DOCUMENTS_PER_CONDITION: usize = 1_000;

/// Maximum number of documents per replacement in LanceDB's service, where the condition is part of the URL: 26 bytes
/// each, and servers refuse URLs above some 8,000 bytes.
const DOCUMENTS_PER_REQUEST: usize = 200;

/// Number of attempts to commit while writers of other collections commit, on an object store.
const ATTEMPTS: u64 = 10;

/// Milliseconds before another attempt, times the number of attempts; between one and two of them.
const PAUSE_MS: u64 = 200;

/// How long a writer waits for another one to create or open the index on an object store.
const PATIENCE: Duration = Duration::from_secs(30);

/// The only handle that writes an index, or its collections. Holds the writer lock, which keeps out the other processes
/// of this machine.
///
/// On an object store it holds the leases of its collections, and writers of other collections commit beside it: the
/// storage engine rejects a commit that conflicts with one of theirs, and it is then retried.
pub(crate) struct IndexWriter {
    index: Index,
    lock: WriteLock,
    /// Documents of these collections with chunks, whether or not they have a row in the documents table.
    chunked: HashSet<DocumentId>,
    /// Whether tables of an earlier generation are kept for its readers.
    pub(crate) has_old_generation: bool,
}

/// The new row of a document and all its chunks.
pub(crate) struct Replacement {
    pub(crate) document: DocumentRow,
    pub(crate) structure: Structure,
    /// All chunks; empty for a document without text.
    pub(crate) chunks: Vec<ChunkRow>,
    /// The codes of the languages that its paragraphs were stemmed by.
    pub(crate) languages: BTreeSet<&'static str>,
}

impl IndexWriter {
    /// Opens `collections` of the index for writing, or creates an empty index with the manifest `fresh`.
    ///
    /// Drops tables that a killed writer left incomplete. On an object store, no other writer opens the index until
    /// [`Self::begin`] or [`Self::close`].
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Busy`] while another process is writing, and [`IndexError::CollectionBusy`] while one is
    /// writing one of the collections on an object store.
    pub(crate) async fn open(
        location: &IndexLocation,
        fresh: &Manifest,
        collections: &[String],
    ) -> Result<Self, IndexError> {
        let lock = WriteLock::take(location, collections).await?;
        let tables = Tables::connect(location).await?;
        match read_manifest(location, &tables).await? {
            Some(manifest) => {
                let has_old_generation = drop_unnamed_generations(location, &tables, Some(&manifest)).await?;
                let writer = Self::over(Index::open_tables(location, tables, manifest).await?, lock).await?;
                let writer = Self { has_old_generation, ..writer };
                // A writer killed after its last commit has left an older copy.
                writer.copy_manifest()?;
                Ok(writer)
            }
            None => {
                drop_unnamed_generations(location, &tables, None).await?;
                create_generation(&tables, fresh).await?;
                let writer = Self::over(Index::open_tables(location, tables, fresh.clone()).await?, lock).await?;
                // The manifest comes last: readers consider an index with a manifest complete.
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
        self.index.tables.create_table(MANIFEST_TABLE, batch).execute().await.during(action)?;
        self.copy_manifest()
    }

    fn copy_manifest(&self) -> Result<(), IndexError> {
        let Some(folder) = self.index.location.folder() else { return Ok(()) };
        let failed = |source| IndexError::Copy { path: folder.join(MANIFEST_COPY), source };
        self.index.manifest.write_copy(folder).map_err(failed)
    }

    async fn over(index: Index, lock: WriteLock) -> Result<Self, IndexError> {
        let chunked = index.chunked_documents(&lock.own()).await?;
        Ok(Self { index, lock, chunked, has_old_generation: false })
    }

    /// Lets writers of other collections open the index, once the manifest names the collections of this one.
    pub(crate) async fn begin(&mut self) {
        if let WriteLock::Shared { whole, .. } = &mut self.lock
            && let Some(whole) = whole.take()
        {
            whole.release().await;
        }
    }

    /// Releases the collections for other writers.
    pub(crate) async fn close(mut self) {
        self.begin().await;
        if let WriteLock::Shared { leases, .. } = self.lock {
            leases.release().await;
        }
    }

    /// Returns a filter for the collections being written: all of them, except on an object store.
    pub(crate) fn own(&self) -> Filter {
        self.lock.own()
    }

    /// Commits. On an object store, the commit applies to the latest version of the tables, and is retried on a later
    /// one if another writer was first.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Contended`] if other writers committed first [`ATTEMPTS`] times in a row, and
    /// [`IndexError::LeaseLost`] if another writer may write the same collections.
    pub(super) async fn commit<T, F>(&self, action: &'static str, work: impl Fn() -> F) -> Result<T, IndexError>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        let WriteLock::Shared { leases, whole, .. } = &self.lock else { return work().await };
        let latest = || async {
            leases.check().await?;
            if let Some(whole) = whole {
                whole.check().await?;
            }
            self.index.refresh().await?;
            Ok(work().await)
        };
        self.retried(action, latest).await
    }

    /// Commits, and retries while another writer's commit conflicts. The outer error of `commit` ends this at once.
    async fn retried<T, E, F>(&self, action: &'static str, commit: impl Fn() -> F) -> Result<T, E>
    where
        E: From<IndexError>,
        F: Future<Output = Result<Result<T, IndexError>, E>>,
    {
        let mut attempts = 1;
        loop {
            match commit().await? {
                // Without a shared lock no other writer is expected, so a conflict is an error like any other.
                Err(IndexError::Storage { source, .. }) if self.lock.is_shared() && is_conflict(&source) => {
                    tracing::debug!(action, attempts, %source, "another writer committed first");
                    if attempts == ATTEMPTS {
                        return Err(IndexError::Contended { action, attempts, source }.into());
                    }
                    pause(attempts).await;
                    attempts += 1;
                }
                done => return done.map_err(E::from),
            }
        }
    }

    /// Starts an empty generation beside the current one, which readers use until [`Self::publish`].
    ///
    /// Reads only the names of the current generation's tables, so that damage in it does not matter.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Busy`] while another process is writing.
    pub(crate) async fn rebuild(
        location: &IndexLocation,
        manifest: Manifest,
        collections: &[String],
    ) -> Result<Self, IndexError> {
        // All of them, since commits of another writer to the current generation would be lost.
        let known = manifest.collections.keys().chain(collections).cloned().collect::<Vec<_>>();
        let lock = WriteLock::take(location, &known).await?;
        let tables = Tables::connect(location).await?;
        let names = tables.table_names().execute().await.during("list the tables of the index")?;
        // Above all existing tables, since a killed rebuild leaves the tables of its generation behind.
        let last = names.iter().filter_map(|name| generation_of(name)).max().unwrap_or(0);
        let manifest = Manifest { generation: last.saturating_add(1), ..manifest };
        create_generation(&tables, &manifest).await?;
        Self::over(Index::open_tables(location, tables, manifest).await?, lock).await
    }

    /// Makes this writer's generation the current one. Others are kept for their readers as long as superseded
    /// versions.
    pub(crate) async fn publish(&mut self) -> Result<(), IndexError> {
        let manifest = self.index.manifest.clone();
        let location = self.index.location.clone();
        if attempt(&location, self.save_manifest(manifest)).await? == Done::Damaged {
            self.replace_manifest().await?;
        }
        // Damage in an earlier version of the manifest shows only when the versions are listed.
        if attempt(&location, self.prune()).await? == Done::Damaged {
            self.replace_manifest().await?;
            drop_unnamed_generations(&location, &self.index.tables, Some(&self.index.manifest)).await?;
        }
        Ok(())
    }

    async fn replace_manifest(&self) -> Result<(), IndexError> {
        let action = "write the index manifest";
        step(action)?;
        match self.index.tables.drop_table(MANIFEST_TABLE, &[]).await {
            Err(lancedb::Error::TableNotFound { .. }) => {}
            dropped => dropped.during(action)?,
        }
        self.create_manifest().await
    }

    /// Returns the index including this writer's commits.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Replaces the manifest in one commit.
    pub(crate) async fn save_manifest(&mut self, manifest: Manifest) -> Result<(), IndexError> {
        let action = "write the index manifest";
        let table = self.index.tables.open(MANIFEST_TABLE).execute().await.during(action)?;
        overwrite_manifest(&table, &manifest).await?;
        self.index.manifest = manifest;
        self.copy_manifest()
    }

    /// Changes the stored manifest in one commit; does nothing if `change` returns it unchanged.
    ///
    /// The change is made to the latest version, to which a writer of another collection may have added. The storage
    /// engine rejects an overwrite of a version that is not the latest, and the change is then retried.
    pub(crate) async fn change_manifest<E: From<IndexError>>(
        &mut self,
        change: impl Fn(Manifest) -> Result<Manifest, E>,
    ) -> Result<(), E> {
        let action = "write the index manifest";
        let latest = || async {
            if let WriteLock::Shared { leases, .. } = &self.lock {
                leases.check().await?;
            }
            let table = self.index.tables.open(MANIFEST_TABLE).execute().await.during(action)?;
            let location = || self.index.location.to_string();
            let stored = manifest_in(&table).await?;
            let stored = stored.map_err(|source| IndexError::Manifest { location: location(), source })?;
            // Another writer has published a rebuild: a commit to this generation would be lost.
            if stored.generation != self.index.manifest.generation {
                return Err(IndexError::Superseded.into());
            }
            let changed = change(stored.clone())?;
            let saved = if changed == stored { Ok(()) } else { overwrite_manifest(&table, &changed).await };
            Ok::<_, E>(saved.map(|()| changed))
        };
        self.index.manifest = self.retried(action, latest).await?;
        Ok(self.copy_manifest()?)
    }

    /// Changes the manifest of a generation that is not published yet, without a commit.
    pub(crate) fn set_manifest(&mut self, manifest: Manifest) {
        self.index.manifest = manifest;
    }

    /// Replaces the rows and all chunks of some documents.
    ///
    /// The chunks of a document change in one commit, so a reader never sees it half replaced.
    pub(crate) async fn replace(&mut self, mut batch: Vec<Replacement>) -> Result<(), IndexError> {
        let at_once = if self.index.location.is_service() { DOCUMENTS_PER_REQUEST } else { usize::MAX };
        while !batch.is_empty() {
            let rest = batch.split_off(at_once.min(batch.len()));
            self.replace_at_once(std::mem::replace(&mut batch, rest)).await?;
        }
        Ok(())
    }

    async fn replace_at_once(&mut self, batch: Vec<Replacement>) -> Result<(), IndexError> {
        // The client of the service repeats a request whose answer was lost. Repeating an append would duplicate
        // rows, while repeating a merge by key changes nothing.
        let is_repeated = self.index.location.is_service();
        let (mut documents, mut fresh, mut stale, mut stale_ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Replacement { document, structure, chunks, .. } in batch {
            let is_stale = self.chunked.contains(&document.id);
            if !is_stale && !chunks.is_empty() {
                // From now on the document has rows, which a second replacement in this run deletes.
                self.chunked.insert(document.id.clone());
            }
            if is_stale || is_repeated {
                stale_ids.push(document.id.clone());
                stale.extend(chunks);
            } else {
                fresh.extend(chunks);
            }
            documents.push((document, structure));
        }
        // Appending does not read the stored rows.
        if stale_ids.is_empty() {
            self.add_chunks(&fresh).await?;
        } else {
            // One commit for all.
            stale.extend(fresh);
            self.replace_chunks(&stale, &stale_ids).await?;
        }
        self.put_documents(&documents).await
    }

    async fn add_chunks(&self, rows: &[ChunkRow]) -> Result<(), IndexError> {
        let action = "add chunks";
        if rows.is_empty() {
            return Ok(());
        }
        let batch = chunks_batch(rows, self.dimension()).during(action)?;
        let add = || async {
            step(action)?;
            self.index.chunks.add(batch.clone()).execute().await.during(action)
        };
        self.commit(action, add).await.map(drop)
    }

    /// Replaces all chunks of `documents` by `rows`, in one commit.
    async fn replace_chunks(&self, rows: &[ChunkRow], documents: &[DocumentId]) -> Result<(), IndexError> {
        let action = "replace chunks";
        let (table, batch) = (&self.index.chunks, chunks_batch(rows, self.dimension()).during(action)?);
        let merge = |condition: &str| {
            let mut merge = table.merge_insert(&["chunk_id"]);
            merge.when_not_matched_by_source_delete(Some(condition.to_owned()));
            merge
        };
        self.replace_rows(action, table, documents, batch, merge).await
    }

    /// Replaces all rows of `documents` in a table by those of `batch`, in one commit, so that a reader never sees half
    /// of a replacement. `merge` is for LanceDB's service, given the condition for the rows of the documents.
    async fn replace_rows(
        &self,
        action: &'static str,
        table: &Table,
        documents: &[DocumentId],
        batch: RecordBatch,
        merge: impl Fn(&str) -> MergeInsertBuilder,
    ) -> Result<(), IndexError> {
        let condition = of_documents(documents);
        let replace = || async {
            step(action)?;
            let replace = |dataset| replace_rows(dataset, &condition, batch.clone());
            if let Some(added) = change(table, replace).await.during(action)? {
                return Ok(added);
            }
            // The service's client repeats a request whose answer was lost, and only a merge by key can be repeated.
            let mut merge = merge(&condition);
            merge.when_matched_update_all(None).when_not_matched_insert_all();
            let merged = merge.execute(reader(batch.clone())).await.during(action)?;
            Ok(merged.num_inserted_rows + merged.num_updated_rows)
        };
        let replaced = self.commit(action, replace).await?;
        expect_rows(batch.num_rows(), replaced)
    }

    /// Updates rows of documents whose content is unchanged.
    pub(crate) async fn touch(&self, rows: Vec<DocumentRow>) -> Result<(), IndexError> {
        // Rows are written whole, so the structure stored with them has to be read first.
        let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
        // A longer condition would slow down the planner, so all of them are read.
        let only = (ids.len() <= DOCUMENTS_PER_CONDITION).then_some(&ids[..]);
        let mut known = if ids.is_empty() { None } else { self.index.structures(only).await? }.unwrap_or_default();
        let with_structure = |row: DocumentRow| {
            let structure = known.remove(&row.id).unwrap_or_default();
            (row, structure)
        };
        let rows: Vec<_> = rows.into_iter().map(with_structure).collect();
        self.put_documents(&rows).await
    }

    /// Inserts or updates rows of the documents table without touching the chunks.
    async fn put_documents(&self, rows: &[(DocumentRow, Structure)]) -> Result<(), IndexError> {
        let action = "write documents";
        let table = &self.index.documents;
        // Rows are independent of each other, so they need not be committed together.
        for rows in rows.chunks(DOCUMENTS_PER_CONDITION) {
            let ids: Vec<_> = rows.iter().map(|(row, _)| row.id.clone()).collect();
            let batch = documents_batch(rows).during(action)?;
            self.replace_rows(action, table, &ids, batch, |_| table.merge_insert(&["document_id"])).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove(&mut self, documents: &[DocumentId]) -> Result<(), IndexError> {
        let action = "remove documents";
        for part in documents.chunks(DOCUMENTS_PER_CONDITION) {
            let condition = of_documents(part);
            // Chunks first: if only the document is left, the next run finds again that its file is gone.
            for table in [&self.index.chunks, &self.index.documents] {
                let delete = || async {
                    step(action)?;
                    table.delete(condition.as_str()).await.during(action)
                };
                self.commit(action, delete).await?;
            }
            for id in part {
                self.chunked.remove(id);
            }
        }
        Ok(())
    }

    /// Returns the documents that have chunks but are not in `known`, left behind by a killed writer.
    pub(crate) fn strays(&self, known: &HashSet<DocumentId>) -> Vec<DocumentId> {
        let mut strays: Vec<_> = self.chunked.difference(known).cloned().collect();
        strays.sort();
        strays
    }

    /// Sets the vectors of chunks. No other column changes, so that the rows stay in the text index.
    pub(crate) async fn set_vectors(&self, vectors: &[(ChunkId, Vec<f32>)]) -> Result<(), IndexError> {
        let action = "add vectors";
        if vectors.is_empty() {
            return Ok(());
        }
        let batch = vectors_batch(vectors, self.dimension()).during(action)?;
        let update = || async {
            step(action)?;
            let chunks = &self.index.chunks;
            if let Some(updated) =
                change(chunks, |dataset| patch_columns(dataset, batch.clone())).await.during(action)?
            {
                return Ok(updated);
            }
            // How the merge of LanceDB's service changes the rows is up to the service.
            let mut merge = chunks.merge_insert(&["chunk_id"]);
            merge.when_matched_update_all(None);
            Ok(merge.execute(reader(batch.clone())).await.during(action)?.num_updated_rows)
        };
        let updated = self.commit(action, update).await?;
        expect_rows(vectors.len(), updated)
    }

    pub(super) fn dimension(&self) -> usize {
        self.index.manifest.embedder.dimension
    }
}

/// Takes the writer lock of the index in `folder` without waiting.
///
/// # Errors
///
/// Returns [`IndexError::Busy`] with the process id and start time of the holder.
pub fn lock_writer(folder: &Path) -> Result<FileLock, IndexError> {
    FileLock::take(&folder.join(WRITER_LOCK)).map_err(|error| match error {
        FileLockError::Held { holder, .. } => IndexError::Busy { holder },
        error @ FileLockError::File { .. } => IndexError::Lock(error),
    })
}

/// Returns the process that writes the index in `folder`, or `None` if its lock is free.
pub(crate) fn writer(folder: &Path) -> Option<String> {
    FileLock::holder(&folder.join(WRITER_LOCK))
}

/// The lock that excludes other writers.
enum WriteLock {
    /// Excludes them from the whole index. The lock file is that of a local index, or this machine's for LanceDB's
    /// service.
    Alone { _lock: Option<FileLock> },
    /// Excludes them from some collections of an index on an object store.
    Shared {
        collections: Vec<String>,
        leases: Leases,
        /// The lease on creating or rebuilding the index, until that is done.
        whole: Option<Leases>,
    },
}

impl WriteLock {
    async fn take(location: &IndexLocation, collections: &[String]) -> Result<Self, IndexError> {
        let Some(site) = site(location).await? else { return Ok(Self::Alone { _lock: take_lock(location)? }) };
        // Before the leases of the collections: opening drops tables that no manifest names, and those may be of an
        // index that another writer is creating.
        let whole = Leases::wait(&site, WHOLE, PATIENCE).await?;
        match Leases::take(&site, collections).await {
            Ok(leases) => Ok(Self::Shared { collections: collections.to_vec(), leases, whole: Some(whole) }),
            Err(error) => {
                whole.release().await;
                Err(error)
            }
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Returns a filter for the held collections.
    fn own(&self) -> Filter {
        let collections = match self {
            Self::Alone { .. } => Vec::new(),
            Self::Shared { collections, .. } => collections.clone(),
        };
        Filter { collections, ..Filter::default() }
    }
}

/// Returns whether a commit was rejected because of one of another writer.
fn is_conflict(error: &lancedb::Error) -> bool {
    let lancedb::Error::Lance { source } = error else { return false };
    matches!(
        source,
        lance::Error::CommitConflict { .. }
            | lance::Error::RetryableCommitConflict { .. }
            | lance::Error::IncompatibleTransaction { .. }
            | lance::Error::TooMuchWriteContention { .. }
    )
}

/// Waits before another attempt, for a time that differs between writers.
async fn pause(attempts: u64) {
    let longest = PAUSE_MS * attempts;
    tokio::time::sleep(Duration::from_millis(longest + rand::random::<u64>() % longest)).await;
}

async fn overwrite_manifest(table: &Table, manifest: &Manifest) -> Result<(), IndexError> {
    let action = "write the index manifest";
    step(action)?;
    let batch = manifest_batch(&manifest.entries()).during(action)?;
    table.add(batch).mode(AddDataMode::Overwrite).execute().await.during(action).map(drop)
}

fn take_lock(location: &IndexLocation) -> Result<Option<FileLock>, IndexError> {
    let Some(folder) = location.lock_folder() else { return Ok(None) };
    create_private(folder).map_err(|source| IndexError::Folder { path: folder.to_path_buf(), source })?;
    lock_writer(folder).map(Some)
}

/// The outcome of work on the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Yes,
    Damaged,
}

/// Runs work on the manifest and distinguishes damage from other errors. Damage can make the storage engine panic: a
/// flipped bit in the footer of a manifest is an offset outside of the file.
async fn attempt(
    location: &IndexLocation,
    work: impl Future<Output = Result<(), IndexError>>,
) -> Result<Done, IndexError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Err(_) => Ok(Done::Damaged),
        Ok(Err(error)) if error.is_damage(location) => Ok(Done::Damaged),
        Ok(done) => done.map(|()| Done::Yes),
    }
}

// Merges of LanceDB have been reported to change no row without an error.
fn expect_rows(wanted: usize, changed: u64) -> Result<(), IndexError> {
    if changed == wanted as u64 { Ok(()) } else { Err(IndexError::Lost { wanted, changed }) }
}

async fn create_generation(tables: &Tables, manifest: &Manifest) -> Result<(), IndexError> {
    let action = "create the tables of the index";
    let chunks = chunks_schema(manifest.embedder.dimension);
    step(action)?;
    tables.create_empty_table(manifest.chunks_table(), chunks).execute().await.during(action)?;
    let documents = documents_schema();
    step(action)?;
    tables.create_empty_table(manifest.documents_table(), documents).execute().await.during(action)?;
    Ok(())
}

/// Returns the generation that a table belongs to, or `None` for other tables.
fn generation_of(table: &str) -> Option<u32> {
    table.strip_prefix("chunks_").or_else(|| table.strip_prefix("documents_"))?.parse().ok()
}

/// Drops the tables of generations that no version of the manifest names: those of a killed rebuild, and those
/// superseded longer ago than versions are kept. Without a manifest, drops all tables. Returns whether
/// an earlier generation is left.
pub(super) async fn drop_unnamed_generations(
    location: &IndexLocation,
    tables: &Tables,
    current: Option<&Manifest>,
) -> Result<bool, IndexError> {
    let action = "remove old tables of the index";
    let names = tables.table_names().execute().await.during(action)?;
    let mut named: Vec<u32> = current.iter().map(|manifest| manifest.generation).collect();
    let is_other = |name: &String| generation_of(name).is_some_and(|number| !named.contains(&number));
    if current.is_some() && names.iter().any(is_other) {
        // Damage can make the storage engine panic. Generations named by such a version are no longer opened.
        match AssertUnwindSafe(named_generations(tables)).catch_unwind().await {
            Ok(Ok(earlier)) => named.extend(earlier),
            // Not damage: a generation in use may be unknown.
            Ok(Err(error)) if !error.is_damage(location) => return Err(error),
            Ok(Err(_)) | Err(_) => {}
        }
    }
    let mut has_old_generation = false;
    for name in names {
        let is_dropped = match generation_of(&name) {
            Some(number) => !named.contains(&number),
            None => name == MANIFEST_TABLE && current.is_none(),
        };
        if is_dropped {
            step(action)?;
            tables.drop_table(&name, &[]).await.during(action)?;
        } else {
            has_old_generation |=
                current.is_some_and(|current| generation_of(&name).is_some_and(|number| number != current.generation));
        }
    }
    Ok(has_old_generation)
}

/// Returns the generations that the versions of the manifest name.
async fn named_generations(tables: &Tables) -> Result<Vec<u32>, IndexError> {
    let action = "read earlier versions of the index manifest";
    let table = tables.open(MANIFEST_TABLE).execute().await.during(action)?;
    let mut named = Vec::new();
    // Older ones are pruned, except in the service, which decides itself when.
    for version in kept_versions(&table.list_versions().await.during(action)?) {
        table.checkout(version).await.during(action)?;
        named.extend(manifest_in(&table).await?.ok().map(|manifest| manifest.generation));
    }
    Ok(named)
}
