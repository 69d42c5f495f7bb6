//! Indexes folders incrementally: only changed files are read, only changed chunks embedded.
//!
//! ```text
//! walk ─▶ compare ─▶ read, parse, cut ─▶ commit ─▶ remove missing files ─▶ text index ─▶ vectors ─▶ vector index
//! ```
//!
//! Every commit leaves a searchable index, and every step compares with the index itself rather than with a record of
//! an earlier run. The next run therefore completes a run that was killed or cancelled at any point.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::{SinkExt, StreamExt};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::chunk::{CHUNKER_VERSION, ChunkOptions, chunk, embed_text};
use super::document::{Document, SkipReason};
use super::embed::{Downloading, EmbedError, Embedded, Embedder, Sent};
use super::extract::{Extractable, Include};
use super::index::{
    ChunkRow, ChunkTerms, DocumentRow, EmbedderRecord, Index, IndexError, IndexLocation, IndexWriter, KEPT_VERSIONS,
    Manifest, Replacement, TEXT_INDEX_VERSION, hash_of, paragraphs, text_index_number,
};
use super::links::FOLDER_NOTES;
use super::structure::Structure;
use super::walk::{FoundFile, Skipped, is_text_or, read_inside, walk};
use crate::base::id::{ChunkId, ContentHash, DocumentId};
use crate::base::language::Language;
use crate::base::line::with_causes;
use crate::base::money::dollars;

/// Chunks per commit. Small commits leave many fragments to compact; large ones delay the first searchable file.
const CHUNKS_PER_COMMIT: usize = 8_192;

/// Bytes of text per commit, which bounds the memory.
const BYTES_PER_COMMIT: usize = 16 * 1024 * 1024;

/// Files per blocking task, so that the cost of a task does not exceed that of reading small files.
const FILES_PER_TASK: usize = 16;

/// Vectors per commit, the most that a kill loses.
const VECTORS_PER_COMMIT: usize = 2_048;

/// Time after which finished vectors are committed, however few: with a large model, [`VECTORS_PER_COMMIT`] take many
/// minutes, which a kill would lose.
const COMMIT_AFTER: Duration = Duration::from_mins(1);

/// Vectors of repeated texts that are kept for the rest of a run, which bounds the memory.
const SHARED_VECTORS: usize = 8_192;

/// Vectors per commit if a server computes them. Vectors lost in a kill may have been paid for.
const VECTORS_PER_COMMIT_OF_SERVER: usize = 512;

/// Age from which a modification time is trusted. Some file systems have a resolution of two seconds, so a file may
/// change again within that time and keep its modification time.
const TRUSTED_AGE: Duration = Duration::from_secs(2);

/// A folder to index and the name of its collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionSource {
    pub name: String,
    /// Absolute path of its folder.
    pub root: PathBuf,
    /// Formats that are read besides Markdown and plain text. The index stores them.
    pub include: Include,
}

#[derive(Clone, Debug, Default)]
pub struct IngestOptions {
    pub sources: Vec<CollectionSource>,
    /// Collections to remove with all their documents.
    pub forget: Vec<String>,
    /// Whether to embed chunks. Text is searchable without vectors.
    pub embed: bool,
    /// Whether more than half of a collection may be removed.
    pub prune: bool,
    /// Whether to compare content even if size and modification time are unchanged.
    pub verify: bool,
    /// The parts of the index to rebuild.
    pub rebuild: Rebuild,
    /// Once triggered, embedding ends after the next commit of vectors, and the rest is left to the next run.
    pub pause: CancellationToken,
}

/// How much of an index is rebuilt. Readers use the old one until the new one is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebuild {
    /// Only changed files are read.
    #[default]
    No,
    /// Everything is read and split again; the vectors of unchanged chunks are kept.
    Text,
    /// Everything is read, split and embedded again, with another embedder.
    Embedder,
    /// Everything is read, split and embedded again, and the old index is not read.
    All,
}

/// Progress of [`ingest`]. A committed batch is searchable; `Embedded` counts all chunks so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestEvent {
    Downloading(Downloading),
    Opened { is_new: bool, rebuild: Rebuild },
    Compared { to_read: usize },
    Committed { files: usize, chunks: usize },
    IndexingText,
    EmbeddingStarted { chunks: usize, to_send: Option<ToSend> },
    Embedded { chunks: usize },
    PaidBeforeError { chunks: usize, cost_nanos: u64 },
    IndexingVectors,
}

/// Tokens to be embedded by a server, and their cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToSend {
    pub(crate) address: String,
    /// Upper bound on the tokens.
    pub(crate) tokens: u64,
    /// Upper bound on their cost in billionths of a dollar; `None` if the price is unknown.
    pub(crate) cost_nanos: Option<u64>,
}

/// A file with a problem, for the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedFile {
    pub(crate) collection: String,
    /// Path relative to the collection's root.
    pub(crate) path: String,
    /// The problem, as a lower-case fragment on one line.
    pub(crate) reason: String,
}

/// Result of [`ingest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IngestSummary {
    /// New files.
    pub added: usize,
    /// Files with new content.
    pub changed: usize,
    /// Files whose content was indexed under a path that no longer exists.
    pub renamed: usize,
    /// Files removed from the index.
    pub removed: usize,
    /// Files with unchanged content.
    pub unchanged: usize,
    /// Files left out of the index.
    pub skipped: Vec<SkippedFile>,
    /// Files indexed despite a problem, for example invalid front matter.
    pub warnings: Vec<SkippedFile>,
    pub chunks: usize,
    pub embedded: usize,
    /// Chunks still to be embedded.
    pub vectors_missing: usize,
    /// Chunks truncated to the model's input limit before embedding.
    #[serde(skip_serializing_if = "is_zero")]
    pub shortened: usize,
    /// Cost of embedding in US dollars, if a server embeds and its price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whether the run was cancelled; its commits are kept.
    pub interrupted: bool,
    pub seconds: f64,
}

impl IngestSummary {
    pub(crate) fn has_changes(&self) -> bool {
        let Self { added, changed, renamed, removed, chunks, embedded, .. } = self;
        added + changed + renamed + removed + chunks + embedded > 0
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("failed to embed chunks")]
    Embed(#[from] EmbedError),
    /// More than half of a collection would be removed, which usually means a wrong or unmounted folder.
    #[error("{gone} of {known} files of collection `{collection}` are no longer in `{root}`")]
    WouldRemove { collection: String, root: PathBuf, gone: usize, known: usize },
    #[error("collection `{collection}` was indexed from `{indexed}`, not from `{given}`")]
    OtherRoot { collection: String, indexed: PathBuf, given: PathBuf },
    #[error("index was made with {what} `{stored}`, not `{current}`")]
    Mismatch { what: &'static str, stored: String, current: String },
    #[error("folder `{root}` of collection `{collection}` is gone")]
    RootGone { collection: String, root: PathBuf },
    #[error("`{path}` is not a folder")]
    NotAFolder { path: PathBuf },
    /// A blocking task panicked.
    #[error("failed to read files")]
    Task(#[source] tokio::task::JoinError),
}

impl IngestError {
    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Index(error) => error.hint(),
            Self::Embed(error) => error.hint(),
            Self::WouldRemove { .. } => Some("if they were deleted on purpose, run `dr index --prune`".into()),
            Self::RootGone { .. } => Some("restore it, or remove the collection with `dr index --prune`".into()),
            Self::OtherRoot { .. } => Some("give this folder another name with `--collection`".into()),
            Self::Mismatch { .. } => Some("run `dr index --rebuild`; search continues meanwhile".into()),
            Self::NotAFolder { .. } => Some("give the folder that holds the files".into()),
            Self::Task(_) => None,
        }
    }
}

/// Callback for progress events, called from the task that runs [`ingest`].
pub type Listener<'a> = &'a (dyn Fn(IngestEvent) + Send + Sync);

/// Brings the index at `location` up to date with the folders in `options`.
///
/// Once `cancel` is triggered, the current batch is completed and committed, and the summary has `interrupted` set.
///
/// # Errors
///
/// Returns an error if the index or a root is unusable, or if more than half of a collection would be removed without
/// `prune`. A file that cannot be indexed is not an error: the summary lists it.
pub async fn ingest(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    choice: &str,
    options: &IngestOptions,
    listener: Listener<'_>,
    cancel: &CancellationToken,
) -> Result<IngestSummary, IngestError> {
    let started = Instant::now();
    let mut summary = IngestSummary::default();
    let writer = Box::pin(open_writer(location, embedder, choice, options, &mut summary)).await?;
    // Opened after the writer, whose lock keeps other runs from replacing it.
    let donor = match options.rebuild {
        // With another embedder it has no vector to reuse, but its documents show whether too many files are missing.
        Rebuild::Text | Rebuild::Embedder => Some(Index::open(location).await?),
        Rebuild::No | Rebuild::All => None,
    };
    let languages = BTreeMap::new();
    // In a server process, the embedder's count includes earlier operations.
    let sent_before = embedder.sent();
    let mut run = Run { writer, donor, languages, embedder, options, listener, cancel, summary };
    // Its future is large, and that of every caller contains it.
    let finished = Box::pin(run.finish(started, sent_before)).await;
    // The summary, which has the cost, is lost with an error.
    if let (Err(_), Some(cost_nanos @ 1..)) = (&finished, run.cost_since(sent_before)) {
        listener(IngestEvent::PaidBeforeError { chunks: run.summary.embedded, cost_nanos });
    }
    run.writer.close().await;
    finished.map(|()| run.summary)
}

async fn open_writer(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    choice: &str,
    options: &IngestOptions,
    summary: &mut IngestSummary,
) -> Result<IndexWriter, IngestError> {
    let wanted = manifest(embedder, choice);
    let named = options.sources.iter().map(|source| &source.name).chain(&options.forget);
    let named: Vec<_> = named.cloned().collect();
    let mut writer = match options.rebuild {
        Rebuild::No => IndexWriter::open(location, &wanted, &named).await?,
        Rebuild::Text | Rebuild::Embedder | Rebuild::All => {
            // Works even if the index is damaged, so that its folders need not be named again.
            let wanted = match Index::known(location).await? {
                Some(Manifest { collections, includes, .. }) => Manifest { collections, includes, ..wanted.clone() },
                None => wanted.clone(),
            };
            IndexWriter::rebuild(location, wanted, &named).await?
        }
    };
    match prepare(&mut writer, location, &wanted, options, summary).await {
        Ok(()) => Ok(writer),
        Err(error) => {
            writer.close().await;
            Err(error)
        }
    }
}

/// Forgets collections and names those to index in the manifest.
async fn prepare(
    writer: &mut IndexWriter,
    location: &IndexLocation,
    wanted: &Manifest,
    options: &IngestOptions,
    summary: &mut IngestSummary,
) -> Result<(), IngestError> {
    if options.rebuild == Rebuild::No {
        check_same(writer.index().manifest(), wanted)?;
    }
    // Before anything is removed: a folder may be refused.
    with_sources(location, writer.index().manifest().clone(), options)?;
    // Before the manifest: text of a collection that it does not name would stay searchable, without the rules of the
    // collection, such as `local_only`.
    for name in &options.forget {
        let rows = writer.index().documents(Some(name)).await?;
        let gone: Vec<_> = rows.into_iter().map(|row| row.id).collect();
        writer.remove(&gone).await?;
        summary.removed += gone.len();
    }
    change_manifest(writer, options.rebuild, |manifest| with_sources(location, manifest, options)).await?;
    // A rebuild keeps other writers away until it is complete.
    if options.rebuild == Rebuild::No {
        writer.begin().await;
    }
    Ok(())
}

/// Adds the collections to index and their formats to a manifest, and removes those to forget.
pub(super) fn with_sources(
    location: &IndexLocation,
    mut manifest: Manifest,
    options: &IngestOptions,
) -> Result<Manifest, IngestError> {
    manifest.collections.retain(|name, _| !options.forget.contains(name));
    manifest.includes.retain(|name, _| !options.forget.contains(name));
    for source in &options.sources {
        if source.include.is_empty() {
            manifest.includes.remove(&source.name);
        } else {
            manifest.includes.insert(source.name.clone(), source.include.clone());
        }
        let root = location.store_root(&source.root);
        match manifest.collections.get(&source.name) {
            Some(known) if *known != root => {
                return Err(IngestError::OtherRoot {
                    collection: source.name.clone(),
                    indexed: location.open_root(known),
                    given: source.root.clone(),
                });
            }
            Some(_) => {}
            None => {
                manifest.collections.insert(source.name.clone(), root);
            }
        }
    }
    Ok(manifest)
}

/// Changes the manifest: at once, or when the rebuilt index is published.
async fn change_manifest(
    writer: &mut IndexWriter,
    rebuild: Rebuild,
    change: impl Fn(Manifest) -> Result<Manifest, IngestError>,
) -> Result<(), IngestError> {
    match rebuild {
        Rebuild::No => writer.change_manifest(change).await,
        Rebuild::Text | Rebuild::Embedder | Rebuild::All => {
            let changed = change(writer.index().manifest().clone())?;
            writer.set_manifest(changed);
            Ok(())
        }
    }
}

pub(super) fn manifest(embedder: &Arc<dyn Embedder>, choice: &str) -> Manifest {
    let options = chunk_options(embedder.as_ref());
    Manifest {
        generation: 1,
        chunker: format!("{CHUNKER_VERSION}/{}/{}", options.target_tokens, options.max_tokens),
        text_index: TEXT_INDEX_VERSION.to_owned(),
        languages: BTreeMap::new(),
        embedder: EmbedderRecord {
            choice: choice.to_owned(),
            name: embedder.name().to_owned(),
            fingerprint: embedder.fingerprint().to_owned(),
            dimension: embedder.dimension(),
        },
        collections: BTreeMap::new(),
        includes: BTreeMap::new(),
    }
}

/// Returns the chunk lengths for an embedder: a target of seven eighths of its window, which leaves room for headings.
pub(crate) fn chunk_options(embedder: &dyn Embedder) -> ChunkOptions {
    let max_tokens = embedder.max_tokens();
    ChunkOptions { max_tokens, target_tokens: max_tokens * 7 / 8 }
}

pub(super) fn check_same(stored: &Manifest, wanted: &Manifest) -> Result<(), IngestError> {
    if stored.embedder.fingerprint != wanted.embedder.fingerprint {
        return Err(mismatch("embedder", &stored.embedder.name, &wanted.embedder.name));
    }
    if stored.chunker != wanted.chunker {
        return Err(mismatch("chunker", &stored.chunker, &wanted.chunker));
    }
    if stored.text_index != wanted.text_index {
        return Err(mismatch("text index", &stored.text_index, &wanted.text_index));
    }
    Ok(())
}

fn mismatch(what: &'static str, stored: &str, current: &str) -> IngestError {
    IngestError::Mismatch { what, stored: stored.to_owned(), current: current.to_owned() }
}

/// Returns whether no part of the index was written by a newer version.
fn is_earlier(stored: &Manifest) -> bool {
    let chunker = stored.chunker.split('/').next().and_then(|version| version.parse::<u32>().ok());
    let chunker = chunker.is_some_and(|version| version <= CHUNKER_VERSION);
    let text_index = text_index_number(&stored.text_index);
    chunker && text_index.is_some() && text_index <= text_index_number(TEXT_INDEX_VERSION)
}

/// Returns what a new version of `dr` has to rebuild in an index with vectors of the same embedder.
pub(crate) fn upgrade(stored: &Manifest, embedder: &Arc<dyn Embedder>) -> Rebuild {
    let wanted = manifest(embedder, &stored.embedder.choice);
    // An index of a later version is left alone: `check_same` refuses it.
    let is_current = stored.chunker == wanted.chunker && stored.text_index == wanted.text_index;
    let is_earlier = is_earlier(stored) && stored.embedder.fingerprint == wanted.embedder.fingerprint;
    if is_earlier && !is_current { Rebuild::Text } else { Rebuild::No }
}

struct Run<'a> {
    writer: IndexWriter,
    /// The index being rebuilt, whose vectors are kept.
    donor: Option<Index>,
    /// Documents read in each language that the manifest does not count yet, by code.
    languages: BTreeMap<&'static str, u32>,
    embedder: &'a Arc<dyn Embedder>,
    options: &'a IngestOptions,
    listener: Listener<'a>,
    cancel: &'a CancellationToken,
    summary: IngestSummary,
}

/// How a folder differs from its index.
pub(super) struct Differences {
    collection: String,
    pub(super) to_read: Vec<ToRead>,
    /// Indexed documents whose file no longer exists.
    pub(super) gone: Vec<DocumentRow>,
    /// New paths with the content of a removed document, whose vectors are reused.
    pub(super) renamed: HashMap<String, DocumentId>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) unchanged: usize,
}

/// A file to read and its row in the index, if it has one.
#[derive(Clone)]
pub(super) struct ToRead {
    pub(super) file: FoundFile,
    pub(super) known: Option<DocumentRow>,
}

/// The result of reading a file.
pub(super) enum Read {
    /// The content is unchanged; the row has the new size and time.
    Same(DocumentRow),
    /// The file is new or its content has changed.
    New { replacement: Replacement, is_known: bool, warnings: Vec<String> },
    /// The file cannot be indexed.
    Skipped { path: String, reason: SkipReason, known: Option<DocumentId> },
}

impl Run<'_> {
    async fn finish(&mut self, started: Instant, sent_before: Sent) -> Result<(), IngestError> {
        for source in &self.options.sources {
            if self.cancel.is_cancelled() {
                break;
            }
            self.update_collection(source).await?;
        }
        // A batch rarely changes which of the known languages are frequent, so their counts are saved once.
        if !self.languages.is_empty() {
            self.save_languages().await?;
        }
        if !self.cancel.is_cancelled() {
            self.remove_strays().await?;
            self.writer.compact().await?;
            if self.has_written() {
                (self.listener)(IngestEvent::IndexingText);
            }
            self.writer.finish_text_index().await?;
        }
        // Before embedding, which takes longest: meanwhile the new tables serve text searches.
        if self.options.rebuild != Rebuild::No && !self.cancel.is_cancelled() {
            self.writer.publish().await?;
        }
        if self.options.embed {
            self.embed_missing().await?;
        }
        if !self.cancel.is_cancelled() {
            if !self.options.pause.is_cancelled() {
                self.writer.finish_vector_index().await?;
            }
            // An unchanged folder costs no more than its listing, so old versions wait for a run that writes.
            if self.has_written() || self.writer.has_old_generation {
                self.writer.prune().await?;
            }
        }
        self.summary.vectors_missing = self.writer.index().count_missing(&self.writer.own()).await?;
        let sent = self.embedder.sent();
        self.summary.shortened = sent.shortened.saturating_sub(sent_before.shortened);
        self.summary.cost_usd = self.cost_since(sent_before).map(dollars);
        self.summary.interrupted = self.cancel.is_cancelled();
        self.summary.seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns the cost of the vectors made since, in billionths of a dollar; `None` if the price is unknown.
    fn cost_since(&self, before: Sent) -> Option<u64> {
        self.embedder.sent().cost_nanos.map(|nanos| nanos.saturating_sub(before.cost_nanos.unwrap_or(0)))
    }

    /// Removes leftovers of killed runs: chunks without a document, and documents of collections that the manifest
    /// does not name (left by earlier versions killed while forgetting a collection).
    async fn remove_strays(&mut self) -> Result<(), IngestError> {
        let index = self.writer.index();
        let documents = index.documents(None).await?;
        // The collections of other writers may be newer than the manifest that this one read.
        let has_others = !self.writer.own().collections.is_empty();
        let is_named = |row: &DocumentRow| has_others || index.manifest().collections.contains_key(&row.collection);
        let (known, nameless): (Vec<_>, Vec<_>) = documents.into_iter().partition(is_named);
        let nameless: Vec<_> = nameless.into_iter().map(|row| row.id).collect();
        self.writer.remove(&nameless).await?;
        self.summary.removed += nameless.len();
        let known = known.into_iter().map(|row| row.id).collect();
        let strays = self.writer.strays(&known);
        Ok(self.writer.remove(&strays).await?)
    }

    fn has_written(&self) -> bool {
        let summary = &self.summary;
        summary.chunks + summary.embedded + summary.removed + summary.renamed > 0
    }

    async fn update_collection(&mut self, source: &CollectionSource) -> Result<(), IngestError> {
        let comparison = self.compare(source).await?;
        (self.listener)(IngestEvent::Compared { to_read: comparison.to_read.len() });
        // Removed after the commits, which take vectors of renamed files from the documents that are gone.
        let mut gone: Vec<_> = comparison.gone.iter().map(|row| row.id.clone()).collect();
        gone.extend(self.read_and_commit(source, &comparison).await?);
        // After a stop, renamed files that were not read still need the vectors of removed documents.
        if !self.cancel.is_cancelled() {
            self.writer.remove(&gone).await?;
            self.summary.removed += gone.len() - comparison.renamed.len();
        }
        Ok(())
    }

    async fn compare(&mut self, source: &CollectionSource) -> Result<Differences, IngestError> {
        let known = self.writer.index().documents(Some(&source.name)).await?;
        let mut found = differences(source, known, self.donor.as_ref(), self.options).await?;
        for Skipped { path, reason } in std::mem::take(&mut found.skipped) {
            self.skip(&source.name, path, &reason);
        }
        self.summary.unchanged += found.unchanged;
        Ok(found)
    }

    /// Reads the files of a comparison and commits them in batches. Returns indexed documents that can no longer be
    /// indexed and are to be removed.
    async fn read_and_commit(
        &mut self,
        source: &CollectionSource,
        comparison: &Differences,
    ) -> Result<Vec<DocumentId>, IngestError> {
        // Bounded, so that files are not read faster than they are committed.
        let (mut sender, mut receiver) = futures::channel::mpsc::channel::<Result<Vec<Read>, IngestError>>(4);
        let tasks = tasks(&comparison.to_read);
        let (embedder, cancel) = (Arc::clone(self.embedder), self.cancel.clone());
        let source = source.clone();
        let producer = async move {
            let threads = std::thread::available_parallelism().map_or(2, usize::from);
            let mut reads = futures::stream::iter(tasks)
                .map(|files| {
                    let (source, embedder) = (source.clone(), Arc::clone(&embedder));
                    tokio::task::spawn_blocking(move || {
                        files.into_iter().map(|file| read(&source, file, embedder.as_ref())).collect()
                    })
                })
                .buffered(threads);
            while let Some(read) = reads.next().await {
                // A closed channel means that a commit failed, which the consumer reports.
                if cancel.is_cancelled() || sender.send(read.map_err(IngestError::Task)).await.is_err() {
                    break;
                }
            }
        };
        let mut batch = Batch::new(comparison);
        let mut unindexable = Vec::new();
        let consumer = async {
            while let Some(reads) = receiver.next().await {
                for read in reads? {
                    unindexable.extend(self.take(&mut batch, read));
                }
                if batch.is_full() {
                    self.commit(&mut batch).await?;
                }
            }
            self.commit(&mut batch).await
        };
        let ((), committed) = futures::join!(producer, consumer);
        committed.map(|()| unindexable)
    }

    fn take(&mut self, batch: &mut Batch<'_>, read: Read) -> Option<DocumentId> {
        batch.files += 1;
        match read {
            Read::Same(row) => {
                self.summary.unchanged += 1;
                batch.touched.push(row);
                None
            }
            Read::New { replacement, is_known, warnings } => {
                let path = replacement.document.path.clone();
                if is_known {
                    self.summary.changed += 1;
                } else if batch.comparison.renamed.contains_key(&path) {
                    self.summary.renamed += 1;
                } else {
                    self.summary.added += 1;
                }
                let collection = &batch.comparison.collection;
                self.summary.warnings.extend(warnings.into_iter().map(|reason| SkippedFile {
                    collection: collection.clone(),
                    path: path.clone(),
                    reason,
                }));
                batch.push(replacement, is_known);
                None
            }
            Read::Skipped { path, reason, known } => {
                self.skip(&batch.comparison.collection, path, &reason);
                // A file that may be readable later keeps its text in the index.
                known.filter(|_| !reason.is_passing())
            }
        }
    }

    fn skip(&mut self, collection: &str, path: String, reason: &SkipReason) {
        let reason = with_causes(reason);
        self.summary.skipped.push(SkippedFile { collection: collection.to_owned(), path, reason });
    }

    async fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), IngestError> {
        let Batch { mut replacements, touched, donors, files, .. } =
            std::mem::replace(batch, Batch::new(batch.comparison));
        let vectors = self.vectors_of(&replacements, &donors).await?;
        self.count_languages(&replacements, &donors).await?;
        let mut chunks = 0;
        for row in replacements.iter_mut().flat_map(|replacement| &mut replacement.chunks) {
            chunks += 1;
            row.vector = row.embed_key.as_ref().and_then(|key| vectors.get(key).cloned());
        }
        if !replacements.is_empty() {
            self.writer.replace(replacements).await?;
            self.writer.ensure_text_index().await?;
        }
        self.writer.touch(touched).await?;
        self.summary.chunks += chunks;
        (self.listener)(IngestEvent::Committed { files, chunks });
        Ok(())
    }

    /// Returns the vectors that chunks of a batch may reuse, by key.
    async fn vectors_of(
        &self,
        replacements: &[Replacement],
        donors: &[DocumentId],
    ) -> Result<HashMap<String, Vec<f32>>, IngestError> {
        Ok(match &self.donor {
            Some(donor) => {
                let documents: Vec<_> = replacements.iter().map(|new| new.document.id.clone()).collect();
                donor.vectors_by_key(&documents).await?
            }
            None => self.writer.index().vectors_by_key(donors).await?,
        })
    }

    /// Counts the languages of the new documents of a batch. A new one is added to the manifest before the batch is
    /// committed, so that searches find its words.
    async fn count_languages(&mut self, batch: &[Replacement], known: &[DocumentId]) -> Result<(), IngestError> {
        let known: HashSet<_> = known.iter().collect();
        let languages = &self.writer.index().manifest().languages;
        for Replacement { document, languages: own, .. } in batch {
            for code in own.iter().filter(|code| !known.contains(&document.id) || !languages.contains_key(**code)) {
                *self.languages.entry(*code).or_default() += 1;
            }
        }
        let known = &self.writer.index().manifest().languages;
        if self.languages.keys().all(|code| known.contains_key(*code)) {
            return Ok(());
        }
        self.save_languages().await
    }

    /// Adds the counted languages to the manifest.
    async fn save_languages(&mut self) -> Result<(), IngestError> {
        let counts = std::mem::take(&mut self.languages);
        let add = |mut manifest: Manifest| {
            for (code, count) in &counts {
                let counted = manifest.languages.entry((*code).to_owned()).or_default();
                *counted = counted.saturating_add(*count);
            }
            Ok(manifest)
        };
        change_manifest(&mut self.writer, self.options.rebuild, add).await
    }

    async fn embed_missing(&mut self) -> Result<(), IngestError> {
        // A stopped run announces no cost, and reaches no limit.
        if self.cancel.is_cancelled() {
            return Ok(());
        }
        // Other writers embed their own chunks.
        let own = self.writer.own();
        let total = self.writer.index().count_missing(&own).await?;
        if total == 0 {
            return Ok(());
        }
        let to_send = match self.embedder.server() {
            Some(server) => {
                let waiting = self.writer.index().missing_tokens(&own).await?;
                let tokens = waiting.iter().map(|(_, tokens)| u64::from(*tokens)).sum();
                let tokens = self.embedder.tokens_of(tokens, waiting.len());
                let (address, cost_nanos) = (server.address.to_string(), server.cost_nanos(tokens));
                Some(ToSend { address, tokens, cost_nanos })
            }
            None => None,
        };
        let tokens = to_send.as_ref().map_or(0, |to_send| to_send.tokens);
        (self.listener)(IngestEvent::EmbeddingStarted { chunks: total, to_send });
        self.embedder.check_cost(tokens)?;
        let is_sent = self.embedder.server().is_some();
        let per_commit = if is_sent { VECTORS_PER_COMMIT_OF_SERVER } else { VECTORS_PER_COMMIT };
        let repeated = self.writer.index().repeated_keys(&own).await?;
        let mut shared = SharedVectors { repeated, known: HashMap::new() };
        let mut pruned = Instant::now();
        while !self.cancel.is_cancelled() {
            // A limited number at a time, which bounds the memory.
            let mut rows = self.writer.index().missing_vectors(&own, per_commit).await?;
            if rows.is_empty() {
                (self.listener)(IngestEvent::IndexingVectors);
                break;
            }
            let copies = shared.take_copies(&mut rows);
            let texts = rows.iter().filter_map(|row| Some((row.id.clone(), shared.key_of(row)?))).collect();
            let (mut vectors, error) = self.embed(rows).await?;
            shared.add_copies(&mut vectors, &texts, copies);
            // Before the error is returned: the vectors may have been paid for.
            if !vectors.is_empty() {
                self.writer.set_vectors(&vectors).await?;
            }
            self.summary.embedded += vectors.len();
            if let Some(error) = error {
                return Err(error.into());
            }
            // Embedding may take hours, and each commit leaves a version.
            if pruned.elapsed() >= KEPT_VERSIONS {
                self.writer.prune().await?;
                pruned = Instant::now();
            }
            // After some vectors, so that endless changes do not prevent embedding.
            if self.options.pause.is_cancelled() {
                break;
            }
        }
        Ok(())
    }

    /// Embeds `rows` in order of length until done, cancelled or failed, or for [`COMMIT_AFTER`]. Returns the vectors
    /// so far, and the error, if one occurred.
    async fn embed(&self, mut rows: Vec<ChunkRow>) -> Result<(Made, Option<EmbedError>), IngestError> {
        // Texts of similar length need little padding in a batch.
        rows.sort_by(|a, b| a.tokens.cmp(&b.tokens).then_with(|| a.id.cmp(&b.id)));
        let mut made = Vec::with_capacity(rows.len());
        let at_once = self.embedder.at_once().max(1);
        let started = Instant::now();
        while !rows.is_empty() && !self.cancel.is_cancelled() && started.elapsed() < COMMIT_AFTER {
            let part: Vec<_> = rows.drain(..rows.len().min(at_once)).collect();
            let (embedder, stop) = (Arc::clone(self.embedder), self.cancel.clone());
            let embedded = tokio::task::spawn_blocking(move || {
                let texts: Vec<_> = part.iter().map(text_to_embed).collect();
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                let Embedded { vectors, error } = embedder.embed_until(&texts, &stop);
                let with_ids = part.into_iter().zip(vectors).filter_map(|(row, vector)| Some((row.id, vector?)));
                (with_ids.collect::<Made>(), error)
            });
            let (vectors, error) = embedded.await.map_err(IngestError::Task)?;
            made.extend(vectors);
            if error.is_some() {
                return Ok((made, error));
            }
            (self.listener)(IngestEvent::Embedded { chunks: self.summary.embedded + made.len() });
        }
        Ok((made, None))
    }
}

/// Vectors with the ids of their chunks.
type Made = Vec<(ChunkId, Vec<f32>)>;

/// Vectors of texts that several chunks have, so that each is computed, and paid for, once in a run.
struct SharedVectors {
    /// The hash of the [`ChunkRow::embed_key`] of each such text.
    repeated: HashSet<u64>,
    known: HashMap<String, Vec<f32>>,
}

impl SharedVectors {
    /// Returns the text of a chunk, by its key, if others have it.
    fn key_of(&self, row: &ChunkRow) -> Option<String> {
        row.embed_key.clone().filter(|key| self.repeated.contains(&hash_of(key)))
    }

    /// Removes and returns the chunks that have the same text as an earlier one of this or another batch.
    fn take_copies(&self, rows: &mut Vec<ChunkRow>) -> Vec<(ChunkId, String)> {
        let (mut copies, mut seen) = (Vec::new(), HashSet::new());
        rows.retain(|row| {
            let Some(key) = self.key_of(row) else { return true };
            let is_first = !self.known.contains_key(&key) && seen.insert(key.clone());
            if !is_first {
                copies.push((row.id.clone(), key));
            }
            is_first
        });
        copies
    }

    /// Adds the vectors of the copies to those that were made, given the texts of the latter. A copy whose text was not
    /// embedded in time waits for the next batch.
    fn add_copies(&mut self, made: &mut Made, texts: &HashMap<ChunkId, String>, copies: Vec<(ChunkId, String)>) {
        let fresh: HashMap<&String, &Vec<f32>> =
            made.iter().filter_map(|(id, vector)| Some((texts.get(id)?, vector))).collect();
        let vector = |key: &String| fresh.get(key).copied().or_else(|| self.known.get(key)).cloned();
        let copied: Vec<_> = copies.into_iter().filter_map(|(id, key)| Some((id, vector(&key)?))).collect();
        let room = SHARED_VECTORS.saturating_sub(self.known.len());
        self.known.extend(fresh.into_iter().take(room).map(|(key, vector)| (key.clone(), vector.clone())));
        made.extend(copied);
    }
}

/// The contents of one commit.
struct Batch<'a> {
    comparison: &'a Differences,
    replacements: Vec<Replacement>,
    touched: Vec<DocumentRow>,
    /// Documents whose vectors may be reused for unchanged chunks.
    donors: Vec<DocumentId>,
    files: usize,
    chunks: usize,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn new(comparison: &'a Differences) -> Self {
        Self {
            comparison,
            replacements: Vec::new(),
            touched: Vec::new(),
            donors: Vec::new(),
            files: 0,
            chunks: 0,
            bytes: 0,
        }
    }

    fn push(&mut self, replacement: Replacement, is_known: bool) {
        self.chunks += replacement.chunks.len();
        self.bytes += replacement.chunks.iter().map(|chunk| chunk.text.len()).sum::<usize>();
        if is_known {
            self.donors.push(replacement.document.id.clone());
        }
        self.donors.extend(self.comparison.renamed.get(&replacement.document.path).cloned());
        self.replacements.push(replacement);
    }

    fn is_full(&self) -> bool {
        self.chunks >= CHUNKS_PER_COMMIT || self.bytes >= BYTES_PER_COMMIT
    }
}

/// Divides files into blocking tasks. A file that is read by a child process is a separate task.
pub(super) fn tasks(files: &[ToRead]) -> Vec<Vec<ToRead>> {
    let is_own = |file: &ToRead| Extractable::of(&file.file.path).is_some();
    let (own, quick): (Vec<_>, Vec<_>) = files.iter().cloned().partition(is_own);
    let own = own.into_iter().map(|file| vec![file]);
    own.chain(quick.chunks(FILES_PER_TASK).map(<[_]>::to_vec)).collect()
}

/// Compares a folder with its indexed documents.
///
/// # Errors
///
/// Returns [`IngestError::WouldRemove`] if more than half of them would be removed unintentionally, including from
/// the index `donor` being rebuilt.
pub(super) async fn differences(
    source: &CollectionSource,
    known: Vec<DocumentRow>,
    donor: Option<&Index>,
    options: &IngestOptions,
) -> Result<Differences, IngestError> {
    let (root, include) = (source.root.clone(), source.include.clone());
    let listing = tokio::task::spawn_blocking(move || walk(&root, &include)).await.map_err(IngestError::Task)?;
    let mut known: HashMap<String, DocumentRow> = known.into_iter().map(|row| (row.path.clone(), row)).collect();
    let known_count = known.len();
    // Unreadable, not removed: their text stays in the index until they can be read. A rebuilt index, which has no
    // documents yet, lacks it until then.
    let passing = listing.skipped.iter().filter(|skipped| skipped.reason.is_passing());
    let unread = passing.map(|skipped| Path::new(&skipped.path)).collect();
    known.retain(|path, _| !is_unread(path, &unread));
    let (mut to_read, mut unchanged) = (Vec::new(), 0);
    for file in listing.files {
        let row = known.remove(&file.path);
        let is_same =
            row.as_ref().is_some_and(|row| row.size == file.size && row.modified_ns == Some(file.modified_ns));
        if is_same && !options.verify {
            unchanged += 1;
        } else {
            to_read.push(ToRead { file, known: row });
        }
    }
    let mut gone: Vec<_> = known.into_values().collect();
    // The map has no order, and equal files are paired in order.
    gone.sort_by(|a, b| a.path.cmp(&b.path));
    let renamed = find_renamed(&source.root, &to_read, &gone).await?;
    // Files of a format that the collection no longer includes are removed on purpose.
    let is_lost = |row: &&DocumentRow| is_text_or(Path::new(&row.path), &source.include);
    let lost = gone.iter().filter(is_lost).count().saturating_sub(renamed.len());
    let would_remove = |gone, known| IngestError::WouldRemove {
        collection: source.name.clone(),
        root: source.root.clone(),
        gone,
        known,
    };
    // New tables have no documents yet, so the guard compares with the old ones.
    if let Some(donor) = donor.filter(|_| !options.prune) {
        let known = donor.documents(Some(&source.name)).await?;
        let found: HashSet<&str> = to_read.iter().map(|file| file.file.path.as_str()).collect();
        let gone = known.iter().filter(is_lost).filter(|row| !found.contains(row.path.as_str())).count();
        if gone * 2 > known.len() {
            return Err(would_remove(gone, known.len()));
        }
    }
    if lost * 2 > known_count && !options.prune {
        return Err(would_remove(lost, known_count));
    }
    Ok(Differences { collection: source.name.clone(), to_read, gone, renamed, skipped: listing.skipped, unchanged })
}

/// Returns whether a file or one of its folders could not be read. The path of the root is empty.
fn is_unread(path: &str, unread: &HashSet<&Path>) -> bool {
    !unread.is_empty() && Path::new(path).ancestors().any(|above| unread.contains(above))
}

/// Finds new files with the content of removed documents. Reads only files with the size of a removed document.
async fn find_renamed(
    root: &Path,
    to_read: &[ToRead],
    gone: &[DocumentRow],
) -> Result<HashMap<String, DocumentId>, IngestError> {
    let sizes: HashSet<u64> = gone.iter().map(|row| row.size).collect();
    let is_new = |file: &&ToRead| file.known.is_none() && sizes.contains(&file.file.size);
    let candidates: Vec<String> = to_read.iter().filter(is_new).map(|file| file.file.path.clone()).collect();
    if candidates.is_empty() {
        return Ok(HashMap::new());
    }
    let mut by_hash: HashMap<&ContentHash, Vec<&DocumentId>> = HashMap::new();
    // From the last to the first, because `pop` takes the last one added.
    for row in gone.iter().rev() {
        by_hash.entry(&row.content_hash).or_default().push(&row.id);
    }
    let root = root.to_path_buf();
    let hashed = tokio::task::spawn_blocking(move || {
        let hash = |path: String| Some((ContentHash::of(&read_inside(&root, &path).ok()?), path));
        candidates.into_iter().filter_map(hash).collect::<Vec<_>>()
    });
    let hashed = hashed.await.map_err(IngestError::Task)?;
    let pair = |(hash, path)| Some((path, by_hash.get_mut(&hash)?.pop()?.clone()));
    Ok(hashed.into_iter().filter_map(pair).collect())
}

pub(super) fn read(source: &CollectionSource, file: ToRead, embedder: &dyn Embedder) -> Read {
    let ToRead { file, known } = file;
    let known_id = known.as_ref().map(|row| row.id.clone());
    let skipped = |reason| Read::Skipped { path: file.path.clone(), reason, known: known_id.clone() };
    // Before the file is read, since it may change meanwhile.
    let read_at = SystemTime::now();
    let bytes = match read_inside(&source.root, &file.path) {
        Ok(bytes) => bytes,
        Err(error) => return skipped(SkipReason::Unreadable { source: error }),
    };
    let (size, modified_ns) = (bytes.len() as u64, trusted_time(file.modified_ns, read_at));
    if let Some(row) = known.as_ref().filter(|row| row.content_hash == ContentHash::of(&bytes)) {
        return Read::Same(DocumentRow { size, modified_ns, ..row.clone() });
    }
    let document = match Document::read(&file.path, bytes) {
        Ok(document) => document,
        Err(reason) => return skipped(reason),
    };
    let language = document.language();
    let mut languages = BTreeSet::from([language.code]);
    let chunks = chunk_rows(&source.name, &document, language, embedder, &mut languages);
    let row = DocumentRow {
        id: DocumentId::new(&source.name, &document.path),
        collection: source.name.clone(),
        path: document.path.clone(),
        title: document.title.clone(),
        size,
        modified_ns,
        content_hash: document.content_hash.clone(),
        chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
    };
    let warnings = document.warnings.iter().map(ToString::to_string).collect();
    let structure = Structure::of(&document);
    let replacement = Replacement { document: row, structure, chunks, languages };
    Read::New { replacement, is_known: known.is_some(), warnings }
}

/// Returns the modification time, or `None` if it is younger than [`TRUSTED_AGE`].
fn trusted_time(modified_ns: i64, read_at: SystemTime) -> Option<i64> {
    let age_limit = read_at.checked_sub(TRUSTED_AGE)?.duration_since(UNIX_EPOCH).ok()?;
    (i128::from(modified_ns) < i128::try_from(age_limit.as_nanos()).ok()?).then_some(modified_ns)
}

/// Cuts a document in a language into chunks. Adds the languages of their paragraphs to `languages`.
fn chunk_rows(
    collection: &str,
    document: &Document,
    language: &'static Language,
    embedder: &dyn Embedder,
    languages: &mut BTreeSet<&'static str>,
) -> Vec<ChunkRow> {
    let id = DocumentId::new(collection, &document.path);
    let names = names(document);
    let date = document.date.map(|date| date.to_string());
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let mut terms = ChunkTerms::of(language);
    let cut = chunk(document, embedder.tokens(), &chunk_options(embedder));
    let rows = cut.into_iter().map(|chunk| {
        // Otherwise a repeated passage of a section would have the id of the first one.
        let ordinal = seen.entry((chunk.heading_path.join("\n"), chunk.text.clone())).or_default();
        let chunk_id = ChunkId::new(&id, &chunk.heading_path.join("\n"), &chunk.text, *ordinal);
        *ordinal += 1;
        let mut row = ChunkRow {
            id: chunk_id,
            document_id: id.clone(),
            collection: collection.to_owned(),
            path: document.path.clone(),
            names: names.clone(),
            heading_path: chunk.heading_path,
            context: chunk.context,
            text: chunk.text,
            tags: document.tags.clone(),
            date: date.clone(),
            line_start: chunk.line_start,
            line_end: chunk.line_end,
            byte_start: chunk.bytes.start as u64,
            byte_end: chunk.bytes.end as u64,
            tokens: u32::try_from(chunk.tokens).unwrap_or(u32::MAX),
            content_hash: document.content_hash.clone(),
            embed_key: None,
            searched: String::new(),
            vector: None,
        };
        let paragraphs = paragraphs(&row.text, language);
        languages.extend(paragraphs.iter().map(|own| own.language.code));
        let longest = paragraphs.iter().max_by_key(|own| own.text.len());
        row.embed_key = embed_key(embedder, &row, longest.map_or(language, |own| own.language));
        row.searched = terms.of_chunk(&row, &paragraphs);
        row
    });
    rows.collect()
}

/// Returns title, aliases, and the name of the file or the folder it describes, without duplicates.
fn names(document: &Document) -> Vec<String> {
    let mut names = vec![document.title.clone()];
    for name in document.aliases.iter().map(String::as_str).chain(file_names(&document.path)) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns the name of a file without its extension, or that of its folder if the file introduces it. A log of changes
/// has both.
fn file_names(path: &str) -> impl Iterator<Item = &str> {
    let folder = Path::new(path).parent().and_then(Path::file_name).and_then(OsStr::to_str);
    let stem = file_stem(path);
    let is_one_of = |names: &[&str]| names.iter().any(|own| own.eq_ignore_ascii_case(stem));
    let introduces = is_one_of(&FOLDER_NOTES);
    let folder = folder.filter(|_| introduces || is_one_of(&["changelog", "changes", "history", "releases"]));
    let own = (folder.is_none() || !introduces).then_some(stem);
    folder.into_iter().chain(own)
}

fn file_stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(OsStr::to_str).unwrap_or(path)
}

/// Returns the text of a chunk as embedded.
///
/// A title that is only the file name is left out, so that a renamed file keeps its vectors.
pub(super) fn text_to_embed(row: &ChunkRow) -> String {
    let title = Some(row.title()).filter(|title| *title != file_stem(&row.path));
    embed_text(title, &row.heading_path, row.context.as_deref(), &row.text)
}

/// Minimum readability of a chunk for it to be embedded. Texts that an embedder cannot read have similar vectors, see
/// `kb/decisions/languages.md`.
const LEAST_READ: f32 = 0.1;

/// Returns the key under which a vector is reused, or `None` for a chunk without readable words, which
/// is not embedded.
fn embed_key(embedder: &dyn Embedder, row: &ChunkRow, language: &Language) -> Option<String> {
    let has_words = row.text.chars().any(char::is_alphanumeric);
    if !has_words || embedder.reads().share(&row.text, language) < LEAST_READ {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    // With the fingerprint, since a vector of another embedder must not be reused.
    hasher.update(embedder.fingerprint().as_bytes()).update(b"\n").update(text_to_embed(row).as_bytes());
    Some(hasher.finalize().to_hex()[..32].to_owned())
}

#[cfg(test)]
#[path = "ingest_tests.rs"]
pub(crate) mod tests;
