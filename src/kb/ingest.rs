//! Runs document to index over folders, touching only what changed.
//!
//! ```text
//! walk ─▶ compare ─▶ read, parse, cut ─▶ commit ─▶ remove what is gone ─▶ text index ─▶ vectors ─▶ vector index
//! ```
//!
//! Every commit leaves an index that can be searched, and every step looks at what is stored, not at what an earlier
//! run meant to do. So a run that is killed or cancelled anywhere is finished by the next one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::{SinkExt, StreamExt};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::chunk::{CHUNKER_VERSION, ChunkOptions, chunk, embed_text};
use super::document::{Document, SkipReason};
use super::embed::{EmbedError, Embedder};
use super::index::TEXT_INDEX_VERSION;
use super::index::{
    ChunkRow, DocumentRow, EmbedderRecord, IndexError, IndexLocation, IndexWriter, Manifest, Replacement,
};
use super::walk::{FoundFile, Skipped, read_inside, walk};
use crate::base::id::{ChunkId, ContentHash, DocumentId};

/// Chunks in one commit.
const CHUNKS_PER_COMMIT: usize = 8_192;

/// Bytes of text in one commit.
const BYTES_PER_COMMIT: usize = 16 * 1024 * 1024;

/// Files one blocking task reads.
const FILES_PER_TASK: usize = 16;

/// Chunks that get their vectors in one commit.
const VECTORS_PER_COMMIT: usize = 2_048;

/// Chunks embedded between two looks at whether the user wants to stop.
const CHUNKS_PER_EMBEDDING: usize = 128;

/// A file changed less than this before it was read may change again without a new modification time.
const TRUSTED_AGE: Duration = Duration::from_secs(2);

/// A folder to index, and the name it goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionSource {
    /// Name of the collection.
    pub name: String,
    /// Its folder, as an absolute path.
    pub root: PathBuf,
}

/// What a run of [`ingest`] is to do.
#[derive(Clone, Debug, Default)]
pub struct IngestOptions {
    /// The folders.
    pub sources: Vec<CollectionSource>,
    /// Collections to forget with all their documents.
    pub forget: Vec<String>,
    /// Whether vectors are made; text is searchable without.
    pub embed: bool,
    /// Whether more than half of what is known may be removed.
    pub prune: bool,
    /// Whether files are compared by content even where size and time are unchanged.
    pub verify: bool,
    /// Whether everything is read, cut and embedded again.
    pub rebuild: bool,
}

/// Something to show while [`ingest`] runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestEvent {
    /// The index is open for writing.
    Opened {
        /// Whether it was made just now.
        is_new: bool,
    },
    /// Folders were listed and compared.
    Compared {
        /// Files that have to be read.
        to_read: usize,
    },
    /// More files are searchable.
    Committed {
        /// Files done so far.
        files: usize,
        /// Chunks written so far.
        chunks: usize,
    },
    /// The text index is being brought up to date.
    IndexingText,
    /// There are chunks to embed.
    EmbeddingStarted {
        /// How many.
        chunks: usize,
    },
    /// More chunks have a vector.
    Embedded {
        /// Done so far.
        chunks: usize,
    },
    /// The vector index is being brought up to date.
    IndexingVectors,
}

/// A file that was left out, for the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedFile {
    /// Its collection.
    pub collection: String,
    /// Its path.
    pub path: String,
    /// Why, as a fragment.
    pub reason: String,
}

/// What a run of [`ingest`] did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IngestSummary {
    /// Files that are new.
    pub added: usize,
    /// Files with other content than before.
    pub changed: usize,
    /// Files found again under another path.
    pub renamed: usize,
    /// Files that are gone.
    pub removed: usize,
    /// Files that are as they were.
    pub unchanged: usize,
    /// Files left out.
    pub skipped: Vec<SkippedFile>,
    /// Files that were indexed with a reservation, for example broken front matter.
    pub warnings: Vec<SkippedFile>,
    /// Chunks written.
    pub chunks: usize,
    /// Vectors made.
    pub embedded: usize,
    /// Chunks that still wait for a vector.
    pub vectors_missing: usize,
    /// Whether the user stopped the run; what was done is kept.
    pub interrupted: bool,
    /// How long it took.
    pub seconds: f64,
}

/// [`ingest`] could not go on.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),

    /// The embedder failed.
    #[error("failed to embed chunks")]
    Embed(#[from] EmbedError),

    /// Too much would go.
    #[error("{gone} of {known} files of collection `{collection}` are no longer in `{root}`")]
    WouldRemove {
        /// The collection.
        collection: String,
        /// Its folder.
        root: PathBuf,
        /// Files that are missing.
        gone: usize,
        /// Files the index knows.
        known: usize,
    },

    /// The name is taken by another folder.
    #[error("collection `{collection}` was indexed from `{indexed}`, not from `{given}`")]
    OtherRoot {
        /// The collection.
        collection: String,
        /// The folder it was indexed from.
        indexed: PathBuf,
        /// The folder given now.
        given: PathBuf,
    },

    /// The index was made by another embedder, chunker or tokenizer.
    #[error("index was made with {what} `{stored}`, not `{current}`")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What the index has.
        stored: String,
        /// What this run would use.
        current: String,
    },

    /// The folder of a collection is not there any more.
    #[error("folder `{root}` of collection `{collection}` is gone")]
    RootGone {
        /// The collection.
        collection: String,
        /// Its folder.
        root: PathBuf,
    },

    /// The folder cannot be listed.
    #[error("`{path}` is not a folder")]
    NotAFolder {
        /// What was given.
        path: PathBuf,
    },

    /// A blocking task died.
    #[error("failed to read files")]
    Task(#[source] tokio::task::JoinError),
}

impl IngestError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Index(error) => error.hint(),
            Self::Embed(error) => error.hint(),
            Self::WouldRemove { .. } => Some("if they are really gone, say so with `--prune`".into()),
            Self::RootGone { .. } => Some("put it back, or forget the collection with `dr index --prune`".into()),
            Self::OtherRoot { .. } => Some("give this folder another name with `--collection`".into()),
            Self::Mismatch { .. } => Some("run `dr index --rebuild` to make the index again".into()),
            Self::NotAFolder { .. } => Some("give the folder that holds the files".into()),
            Self::Task(_) => None,
        }
    }
}

/// Who is told what happens.
pub type Listener<'a> = &'a (dyn Fn(IngestEvent) + Send + Sync);

/// Brings the index at `location` up to date with the folders in `options`.
///
/// When `cancel` is triggered, the batch under way is finished and committed, and the summary says `interrupted`.
///
/// # Errors
///
/// Returns an error where the index or a root cannot be used, or where the run would remove more than half of a
/// collection without `prune`. A file that cannot be indexed is no error: it is named in the summary.
pub async fn ingest(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    choice: &str,
    options: &IngestOptions,
    listener: Listener<'_>,
    cancel: &CancellationToken,
) -> Result<IngestSummary, IngestError> {
    let started = Instant::now();
    let writer = open_writer(location, embedder, choice, options).await?;
    let mut run = Run { writer, embedder, options, listener, cancel, summary: IngestSummary::default() };
    run.finish(started).await?;
    Ok(run.summary)
}

async fn open_writer(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    choice: &str,
    options: &IngestOptions,
) -> Result<IndexWriter, IngestError> {
    let wanted = manifest(embedder, choice);
    let mut writer = IndexWriter::open(location, &wanted).await?;
    let stored = writer.index().manifest().clone();
    if options.rebuild {
        let collections = stored.collections.clone();
        writer = writer.rebuilt(Manifest { collections, ..wanted }).await?;
    } else {
        check_same(&stored, &wanted)?;
    }
    let mut named = writer.index().manifest().clone();
    named.collections.retain(|name, _| !options.forget.contains(name));
    for source in &options.sources {
        let root = location.store_root(&source.root);
        match named.collections.get(&source.name) {
            Some(known) if *known != root => {
                return Err(IngestError::OtherRoot {
                    collection: source.name.clone(),
                    indexed: location.open_root(known),
                    given: source.root.clone(),
                });
            }
            Some(_) => {}
            None => {
                named.collections.insert(source.name.clone(), root);
            }
        }
    }
    if named != *writer.index().manifest() && !options.rebuild {
        writer.save_manifest(named).await?;
    } else if options.rebuild {
        writer.name_collections(named.collections);
    }
    Ok(writer)
}

fn manifest(embedder: &Arc<dyn Embedder>, choice: &str) -> Manifest {
    let options = chunk_options(embedder.as_ref());
    Manifest {
        generation: 1,
        chunker: format!("{CHUNKER_VERSION}/{}/{}", options.target_tokens, options.max_tokens),
        text_index: TEXT_INDEX_VERSION.to_owned(),
        embedder: EmbedderRecord {
            choice: choice.to_owned(),
            name: embedder.name().to_owned(),
            fingerprint: embedder.fingerprint().to_owned(),
            dimension: embedder.dimension(),
        },
        collections: BTreeMap::new(),
    }
}

/// Returns how documents are cut for an embedder: seven eighths of its window, so that headings find room.
pub fn chunk_options(embedder: &dyn Embedder) -> ChunkOptions {
    let max_tokens = embedder.max_tokens();
    ChunkOptions { max_tokens, target_tokens: max_tokens * 7 / 8 }
}

fn check_same(stored: &Manifest, wanted: &Manifest) -> Result<(), IngestError> {
    let mismatch = |what, stored: &str, current: &str| {
        Err(IngestError::Mismatch { what, stored: stored.to_owned(), current: current.to_owned() })
    };
    if stored.embedder.fingerprint != wanted.embedder.fingerprint {
        return mismatch("embedder", &stored.embedder.name, &wanted.embedder.name);
    }
    if stored.chunker != wanted.chunker {
        return mismatch("chunker", &stored.chunker, &wanted.chunker);
    }
    if stored.text_index != wanted.text_index {
        return mismatch("text index", &stored.text_index, &wanted.text_index);
    }
    Ok(())
}

/// One run, as far as it has come.
struct Run<'a> {
    writer: IndexWriter,
    embedder: &'a Arc<dyn Embedder>,
    options: &'a IngestOptions,
    listener: Listener<'a>,
    cancel: &'a CancellationToken,
    summary: IngestSummary,
}

/// What comparing a folder with the index found.
struct Comparison {
    collection: String,
    to_read: Vec<ToRead>,
    /// Known documents without a file.
    gone: Vec<DocumentRow>,
    /// For a new path with the content of a gone document: that document, whose vectors are reused.
    renamed: HashMap<String, DocumentId>,
}

/// A file to read, and what the index knows of it.
#[derive(Clone)]
struct ToRead {
    file: FoundFile,
    known: Option<DocumentRow>,
}

/// What reading a file came to.
enum Read {
    /// The content is the known one; only size or time had to be looked at.
    Same(DocumentRow),
    /// New or other content.
    New { replacement: Replacement, is_known: bool, warnings: Vec<String> },
    /// Not to be indexed.
    Skipped { path: String, reason: SkipReason, known: Option<DocumentId> },
}

impl Run<'_> {
    async fn finish(&mut self, started: Instant) -> Result<(), IngestError> {
        for source in &self.options.sources {
            if self.cancel.is_cancelled() {
                break;
            }
            self.update_collection(source).await?;
        }
        for name in &self.options.forget {
            let gone: Vec<_> = self.writer.index().documents(Some(name)).await?.into_iter().map(|row| row.id).collect();
            self.writer.remove(&gone).await?;
            self.summary.removed += gone.len();
        }
        if !self.cancel.is_cancelled() {
            let known = self.writer.index().documents(None).await?.into_iter().map(|row| row.id).collect();
            let strays = self.writer.strays(&known);
            self.writer.remove(&strays).await?;
            self.writer.compact().await?;
            if self.has_written() {
                (self.listener)(IngestEvent::IndexingText);
            }
            self.writer.finish_text_index().await?;
        }
        if self.options.rebuild && !self.cancel.is_cancelled() {
            self.writer.publish().await?;
        }
        if self.options.embed {
            self.embed_missing().await?;
        }
        if !self.cancel.is_cancelled() {
            self.writer.finish_vector_index().await?;
            if self.has_written() {
                self.writer.prune().await?;
            }
        }
        self.summary.vectors_missing = self.writer.index().stats().await?.vectors_missing;
        self.summary.interrupted = self.cancel.is_cancelled();
        self.summary.seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    fn has_written(&self) -> bool {
        let summary = &self.summary;
        summary.chunks + summary.embedded + summary.removed + summary.renamed > 0
    }

    async fn update_collection(&mut self, source: &CollectionSource) -> Result<(), IngestError> {
        let comparison = self.compare(source).await?;
        (self.listener)(IngestEvent::Compared { to_read: comparison.to_read.len() });
        let mut gone: Vec<_> = comparison.gone.iter().map(|row| row.id.clone()).collect();
        gone.extend(self.read_and_commit(source, &comparison).await?);
        if !self.cancel.is_cancelled() {
            self.writer.remove(&gone).await?;
            self.summary.removed += gone.len() - comparison.renamed.len();
        }
        Ok(())
    }

    async fn compare(&mut self, source: &CollectionSource) -> Result<Comparison, IngestError> {
        let known = self.writer.index().documents(Some(&source.name)).await?;
        let root = source.root.clone();
        let listing = tokio::task::spawn_blocking(move || walk(&root)).await.map_err(IngestError::Task)?;
        let mut known: HashMap<String, DocumentRow> = known.into_iter().map(|row| (row.path.clone(), row)).collect();
        let known_count = known.len();
        for Skipped { path, reason } in listing.skipped {
            if matches!(reason, SkipReason::Unreadable { .. }) {
                known.remove(&path);
            }
            self.skip(&source.name, path, &reason);
        }
        let mut to_read = Vec::new();
        for file in listing.files {
            let row = known.remove(&file.path);
            let is_same =
                row.as_ref().is_some_and(|row| row.size == file.size && row.modified_ns == Some(file.modified_ns));
            if is_same && !self.options.verify {
                self.summary.unchanged += 1;
            } else {
                to_read.push(ToRead { file, known: row });
            }
        }
        let mut gone: Vec<_> = known.into_values().collect();
        gone.sort_by(|a, b| a.path.cmp(&b.path));
        let renamed = find_renamed(&source.root, &to_read, &gone).await?;
        let lost = gone.len() - renamed.len();
        if lost * 2 > known_count && !self.options.prune {
            return Err(IngestError::WouldRemove {
                collection: source.name.clone(),
                root: source.root.clone(),
                gone: lost,
                known: known_count,
            });
        }
        Ok(Comparison { collection: source.name.clone(), to_read, gone, renamed })
    }

    /// Reads the files of a comparison and commits them in batches; returns known documents that turned out not to
    /// be indexable any more.
    async fn read_and_commit(
        &mut self,
        source: &CollectionSource,
        comparison: &Comparison,
    ) -> Result<Vec<DocumentId>, IngestError> {
        let (mut sender, mut receiver) = futures::channel::mpsc::channel::<Result<Vec<Read>, IngestError>>(4);
        let tasks: Vec<_> = comparison.to_read.chunks(FILES_PER_TASK).map(<[_]>::to_vec).collect();
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
                known.filter(|_| !matches!(reason, SkipReason::Unreadable { .. }))
            }
        }
    }

    fn skip(&mut self, collection: &str, path: String, reason: &SkipReason) {
        let reason = describe(reason);
        self.summary.skipped.push(SkippedFile { collection: collection.to_owned(), path, reason });
    }

    async fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), IngestError> {
        let Batch { mut replacements, touched, donors, files, .. } =
            std::mem::replace(batch, Batch::new(batch.comparison));
        let vectors = self.writer.index().vectors_by_key(&donors).await?;
        let mut chunks = 0;
        for row in replacements.iter_mut().flat_map(|replacement| &mut replacement.chunks) {
            chunks += 1;
            row.vector = row.embed_key.as_ref().and_then(|key| vectors.get(key).cloned());
        }
        if !replacements.is_empty() {
            self.writer.replace(replacements).await?;
            self.writer.ensure_text_index().await?;
        }
        self.writer.put_documents(&touched).await?;
        self.summary.chunks += chunks;
        (self.listener)(IngestEvent::Committed { files, chunks });
        Ok(())
    }

    async fn embed_missing(&mut self) -> Result<(), IngestError> {
        let total = self.writer.index().stats().await?.vectors_missing;
        if total == 0 {
            return Ok(());
        }
        (self.listener)(IngestEvent::EmbeddingStarted { chunks: total });
        while !self.cancel.is_cancelled() {
            let rows = self.writer.index().missing_vectors(VECTORS_PER_COMMIT).await?;
            if rows.is_empty() {
                (self.listener)(IngestEvent::IndexingVectors);
                break;
            }
            let vectors = self.embed(rows).await?;
            self.writer.set_vectors(&vectors).await?;
            self.summary.embedded += vectors.len();
        }
        Ok(())
    }

    /// Embeds as many of `rows` as there is time for before the run is cancelled; texts of like length together.
    async fn embed(&self, mut rows: Vec<ChunkRow>) -> Result<Vec<(ChunkId, Vec<f32>)>, IngestError> {
        rows.sort_by(|a, b| a.tokens.cmp(&b.tokens).then_with(|| a.id.cmp(&b.id)));
        let mut vectors = Vec::with_capacity(rows.len());
        while !rows.is_empty() && !self.cancel.is_cancelled() {
            let part: Vec<_> = rows.drain(..rows.len().min(CHUNKS_PER_EMBEDDING)).collect();
            let embedder = Arc::clone(self.embedder);
            let embedded = tokio::task::spawn_blocking(move || {
                let texts: Vec<_> = part.iter().map(text_to_embed).collect();
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                let vectors = embedder.embed_passages(&texts)?;
                Ok::<_, EmbedError>(part.into_iter().map(|row| row.id).zip(vectors).collect::<Vec<_>>())
            });
            vectors.extend(embedded.await.map_err(IngestError::Task)??);
            (self.listener)(IngestEvent::Embedded { chunks: self.summary.embedded + vectors.len() });
        }
        Ok(vectors)
    }
}

/// What is written in one commit.
struct Batch<'a> {
    comparison: &'a Comparison,
    replacements: Vec<Replacement>,
    touched: Vec<DocumentRow>,
    /// Documents whose vectors the new chunks may reuse.
    donors: Vec<DocumentId>,
    files: usize,
    chunks: usize,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn new(comparison: &'a Comparison) -> Self {
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

/// Finds new files with the content of gone documents. Only files of equal size are read for that.
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

fn read(source: &CollectionSource, file: ToRead, embedder: &dyn Embedder) -> Read {
    let ToRead { file, known } = file;
    let known_id = known.as_ref().map(|row| row.id.clone());
    let skipped = |reason| Read::Skipped { path: file.path.clone(), reason, known: known_id.clone() };
    let read_at = SystemTime::now();
    let bytes = match read_inside(&source.root, &file.path) {
        Ok(bytes) => bytes,
        Err(error) => return skipped(SkipReason::Unreadable { source: error }),
    };
    let (size, modified_ns) = (bytes.len() as u64, trusted_time(file.modified_ns, read_at));
    if let Some(row) = known.as_ref().filter(|row| row.content_hash == ContentHash::of(&bytes)) {
        return Read::Same(DocumentRow { size, modified_ns, ..row.clone() });
    }
    let document = match Document::parse(&file.path, bytes) {
        Ok(document) => document,
        Err(reason) => return skipped(reason),
    };
    let chunks = chunk_rows(&source.name, &document, embedder);
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
    Read::New { replacement: Replacement { document: row, chunks }, is_known: known.is_some(), warnings }
}

/// Returns the modification time, unless the file could still change without getting a new one.
fn trusted_time(modified_ns: i64, read_at: SystemTime) -> Option<i64> {
    let age_limit = read_at.checked_sub(TRUSTED_AGE)?.duration_since(UNIX_EPOCH).ok()?;
    (i128::from(modified_ns) < i128::try_from(age_limit.as_nanos()).ok()?).then_some(modified_ns)
}

fn chunk_rows(collection: &str, document: &Document, embedder: &dyn Embedder) -> Vec<ChunkRow> {
    let id = DocumentId::new(collection, &document.path);
    let names = names(document);
    let date = document.date.map(|date| date.to_string());
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let cut = chunk(document, embedder.tokens(), &chunk_options(embedder));
    let rows = cut.into_iter().map(|chunk| {
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
            vector: None,
        };
        row.embed_key = embed_key(embedder, &row);
        row
    });
    rows.collect()
}

/// Returns what people call the document: its title, its aliases, its file name; each once.
fn names(document: &Document) -> Vec<String> {
    let mut names = vec![document.title.clone()];
    for name in document.aliases.iter().map(String::as_str).chain([file_stem(&document.path)]) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn file_stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(path)
}

/// Returns the text that stands for a chunk in the vector space.
///
/// A title that is only the file's name is left out, so that a renamed file keeps its vectors.
fn text_to_embed(row: &ChunkRow) -> String {
    let title = Some(row.title()).filter(|title| *title != file_stem(&row.path));
    embed_text(title, &row.heading_path, row.context.as_deref(), &row.text)
}

/// Returns the key a vector can be found by again, or nothing for a chunk without words.
fn embed_key(embedder: &dyn Embedder, row: &ChunkRow) -> Option<String> {
    if !row.text.chars().any(char::is_alphanumeric) {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(embedder.fingerprint().as_bytes()).update(b"\n").update(text_to_embed(row).as_bytes());
    Some(hasher.finalize().to_hex()[..32].to_owned())
}

/// Returns a reason with its cause, on one line.
fn describe(reason: &SkipReason) -> String {
    match std::error::Error::source(reason) {
        Some(source) => format!("{reason}: {source}"),
        None => reason.to_string(),
    }
}

#[cfg(test)]
#[path = "ingest_tests.rs"]
mod tests;
