//! The research memory: quotes and summaries of runs, as vectors with tags. A run searches its own entries when an
//! answer is written, and those of all runs are searched by `dr recall`.
//!
//! Quotes and branch summaries are entries; a summary leads to the quotes of its node. Each is tagged with its run, node,
//! kind, source, place, label and confidence. A [`RecallQuery`] filters by run, node, kind and source, and ranks by
//! similarity to a text, such as the question, an aspect or the title of a section. Everything else about an entry is
//! read from the journal, by its id: the other tags and the text make a row readable to other programs.
//!
//! There is one LanceDB table per embedder beside the journal. It can be rebuilt from the journal at any time, so nothing
//! depends on it being complete. Adding entries of a run again replaces them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{
    Array, ArrayRef, FixedSizeListBuilder, Float32Array, Float32Builder, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::TryStreamExt;
use lancedb::query::{ExecutableQuery, QueryBase, Select};
use lancedb::table::{CompactionOptions, Duration, OptimizeAction};
use lancedb::{Connection, DistanceType, Table};
use serde::Serialize;

use crate::base::bounded::caught;
use crate::base::file::unless_missing;
use crate::base::id::{ContentHash, RunId, as_word};
use crate::base::lock::{FileLock, FileLockError};
use crate::kb::embed::{EmbedError, Embedder};
use crate::research::branch::Branch;
use crate::research::evidence::Evidence;
use crate::research::node::NodeId;
use crate::source::{Label, Place};

/// Folder of the table in `.dr`.
const FOLDER: &str = "memory";

/// Small fragments of the table that are tolerated before a compaction.
const MAX_SMALL_FRAGMENTS: usize = 32;

/// How long old versions of the table are kept for processes that may still read them, in hours.
const KEPT_VERSIONS_HOURS: i64 = 1;

/// Lock file beside the memory. Runs share it while they read or write; it is taken alone to delete files that a write in
/// progress may need.
const LOCK: &str = "memory.lock";

/// How long the lock is waited for. Reading and writing take moments.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The memory of all runs, for one embedder.
#[derive(Clone)]
pub struct Recall {
    table: Table,
    /// The file of [`LOCK`].
    lock: PathBuf,
    embedder: Arc<dyn Embedder>,
    failures: Arc<Failures>,
}

/// Reports the first failure of a memory.
struct Failures {
    was_told: AtomicBool,
    tell: OnFailure,
}

/// Receives the error after which a run goes on without its memory.
pub(crate) type OnFailure = Arc<dyn Fn(&RecallError) + Send + Sync>;

impl Failures {
    fn note<T>(&self, result: Result<T, RecallError>) -> Result<T, RecallError> {
        result.inspect_err(|error| {
            // Once: every round uses the memory, and would report the same.
            if !self.was_told.swap(true, Ordering::Relaxed) {
                (self.tell)(error);
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryKind {
    /// A quote, with the findings that cite it.
    Quote,
    Summary,
}

as_word!(EntryKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntrySource {
    /// The knowledge base.
    Kb,
    Web,
    /// A tool of one of the user's own servers.
    Mcp,
}

as_word!(EntrySource);

/// A quote or a summary of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The id of the quote, or of the node whose summary it is.
    pub(crate) id: String,
    pub(crate) node: NodeId,
    pub(crate) kind: EntryKind,
    pub(crate) source: EntrySource,
    /// The path and lines, or the address; empty for a summary.
    pub(crate) place: String,
    /// The label of the quote; of a summary, the strictest of its quotes.
    pub(crate) label: Label,
    /// From 0 to 1.
    pub(crate) confidence: f32,
    pub(crate) text: String,
}

/// A search of the entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecallQuery<'a> {
    /// Only entries of this run; of all if it is `None`.
    pub(crate) run: Option<&'a RunId>,
    pub(crate) text: &'a str,
    pub(crate) kind: EntryKind,
    /// Only entries from this source; from any source if it is `None`.
    pub(crate) source: Option<EntrySource>,
    /// Only entries of these nodes. If empty, of all.
    pub(crate) nodes: &'a [NodeId],
    /// Maximum number of entries to return.
    pub(crate) limit: usize,
}

impl<'a> RecallQuery<'a> {
    /// Searches the quotes of all runs for `text`.
    pub(crate) fn of(text: &'a str, limit: usize) -> Self {
        Self { run: None, text, kind: EntryKind::Quote, source: None, nodes: &[], limit }
    }

    /// Returns the filter as SQL. Only words of enums and ids of runs and nodes enter it, so nothing needs escaping.
    fn filter(&self) -> String {
        let run = self.run.map(|run| format!("run = '{run}'"));
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("'{node}'")).collect();
        let nodes = (!nodes.is_empty()).then(|| format!("node IN ({})", nodes.join(", ")));
        let kind = format!("kind = '{}'", self.kind);
        let source = self.source.map(|source| format!("source = '{source}'"));
        run.into_iter().chain(nodes).chain(source).chain([kind]).collect::<Vec<_>>().join(" AND ")
    }
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recalled {
    pub(crate) run: RunId,
    /// See [`Entry::id`].
    pub(crate) id: String,
    /// Cosine of the entry and the text of the query.
    pub(crate) similarity: f32,
}

/// The memory could not be read or written. A run goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    #[error("failed to {action} the research memory")]
    Table { action: &'static str, source: Box<lancedb::Error> },
    #[error("failed to read the research memory")]
    Batch(#[from] ArrowError),
    #[error("research memory has an unknown tag")]
    Tag(#[from] serde_json::Error),
    /// A damaged file made the storage engine panic.
    #[error("research memory is damaged: {0}")]
    Damaged(String),
    #[error("failed to embed for the research memory")]
    Embed(#[from] EmbedError),
    #[error("failed to lock the research memory")]
    Lock(#[from] FileLockError),
    #[error("failed to embed for the research memory")]
    Task(#[from] tokio::task::JoinError),
}

impl RecallError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Embed(error) => error.hint(),
            Self::Lock(FileLockError::Held { .. }) => Some("try again".into()),
            Self::Lock(FileLockError::File { .. }) | Self::Task(_) => None,
            Self::Table { .. } | Self::Batch(_) | Self::Tag(_) | Self::Damaged(_) => {
                Some("run `dr doctor --repair`, which removes it; later runs fill it again".into())
            }
        }
    }
}

/// Runs an operation of the memory. Its failures, panics of the storage engine included, must not look like those of the
/// index, which is in tables of the same kind.
async fn steady<T>(work: impl Future<Output = Result<T, RecallError>>) -> Result<T, RecallError> {
    caught(Box::pin(work)).await.unwrap_or_else(|panic| Err(RecallError::Damaged(panic)))
}

impl Recall {
    /// Opens the memory beside the journal in `folder`, or creates it. `on_failure` is called at most once, with the
    /// first error of this or a later operation.
    pub(crate) async fn open(folder: &Path, embedder: Arc<dyn Embedder>, on_failure: OnFailure) -> Option<Self> {
        let failures = Arc::new(Failures { was_told: AtomicBool::new(false), tell: on_failure });
        let table = failures.note(steady(Self::table(folder, &embedder)).await).ok()?;
        Some(Self { table, lock: folder.join(LOCK), embedder, failures })
    }

    /// Opens the memory beside the journal in `folder` for reading. Returns `None` if there is none for this embedder.
    pub(crate) async fn known(folder: &Path, embedder: Arc<dyn Embedder>) -> Result<Option<Self>, RecallError> {
        // Connecting would create the folder.
        if Self::folder(folder).symlink_metadata().is_err() {
            return Ok(None);
        }
        let opened = steady(async {
            let connection = connect(folder).await?;
            match connection.open_table(name(&embedder)).execute().await {
                Err(lancedb::Error::TableNotFound { .. }) => Ok(None),
                opened => opened.map(Some).map_err(during("open")),
            }
        });
        // Errors are returned to the caller, who does not go on without the memory.
        let failures = Arc::new(Failures { was_told: AtomicBool::new(false), tell: Arc::new(|_| ()) });
        Ok(opened.await?.map(|table| Self { table, lock: folder.join(LOCK), embedder, failures }))
    }

    async fn table(folder: &Path, embedder: &Arc<dyn Embedder>) -> Result<Table, RecallError> {
        let (connection, name) = (connect(folder).await?, name(embedder));
        match connection.open_table(&name).execute().await {
            Err(lancedb::Error::TableNotFound { .. }) => {
                match connection.create_empty_table(&name, schema(embedder.dimension())).execute().await {
                    // Another run of the project has made it since.
                    Err(lancedb::Error::TableAlreadyExists { .. }) => {
                        connection.open_table(&name).execute().await.map_err(during("open"))
                    }
                    made => made.map_err(during("make")),
                }
            }
            opened => opened.map_err(during("open")),
        }
    }

    /// Adds entries of a run, replacing those with the same ids.
    pub(crate) async fn add(&self, run: &RunId, entries: Vec<Entry>) -> Result<(), RecallError> {
        self.failures.note(steady(self.put(run, entries)).await)
    }

    async fn put(&self, run: &RunId, entries: Vec<Entry>) -> Result<(), RecallError> {
        if entries.is_empty() {
            return Ok(());
        }
        // Embedded before the lock is taken, for which the removal of a run waits.
        let (embedder, run) = (Arc::clone(&self.embedder), run.clone());
        let batch = tokio::task::spawn_blocking(move || {
            let texts: Vec<_> = entries.iter().map(|entry| entry.text.as_str()).collect();
            let vectors = embedder.embed_passages(&texts)?;
            Ok::<_, RecallError>(batch(&run, &entries, &vectors, embedder.dimension())?)
        });
        let batch = batch.await??;
        let _lock = self.share().await?;
        let schema = batch.schema();
        // Not appended: a run that is killed before its round ends adds the same entries again when it is resumed.
        let mut merge = self.table.merge_insert(&["key"]);
        merge.when_matched_update_all(None).when_not_matched_insert_all();
        let reader = Box::new(RecordBatchIterator::new([Ok(batch)], schema));
        merge.execute(reader).await.map_err(during("write"))?;
        self.tidy().await
    }

    /// Waits until no process deletes files of the memory, and keeps others from it.
    async fn share(&self) -> Result<FileLock, RecallError> {
        locked(self.lock.clone(), FileLock::share).await
    }

    /// Compacts the small fragments that each round of each run leaves. If another run writes at the same time this may
    /// fail, and the next round tries again.
    async fn tidy(&self) -> Result<(), RecallError> {
        let stats = self.table.stats().await.map_err(during("measure"))?;
        if stats.fragment_stats.num_small_fragments > MAX_SMALL_FRAGMENTS {
            let compact = OptimizeAction::Compact { options: CompactionOptions::default(), remap_options: None };
            let _ = self.table.optimize(compact).await;
            let prune = OptimizeAction::Prune {
                older_than: Some(Duration::hours(KEPT_VERSIONS_HOURS)),
                delete_unverified: None,
                error_if_tagged_old_versions: Some(false),
            };
            let _ = self.table.optimize(prune).await;
        }
        Ok(())
    }

    /// Returns the entries that match a query, most similar first.
    ///
    /// Compares every vector instead of using a vector index, so that the same entries give the same answer.
    pub(crate) async fn search(&self, query: &RecallQuery<'_>) -> Result<Vec<Recalled>, RecallError> {
        self.failures.note(steady(self.nearest(query)).await)
    }

    async fn nearest(&self, query: &RecallQuery<'_>) -> Result<Vec<Recalled>, RecallError> {
        let (embedder, text) = (Arc::clone(&self.embedder), query.text.to_owned());
        let vector = tokio::task::spawn_blocking(move || embedder.embed_query(&text)).await??;
        // Without it if the folder is read-only, where nothing is deleted, or if another process keeps it for too long.
        let _lock = self.share().await.ok();
        let nearest = self.table.query().nearest_to(vector).map_err(during("search"))?;
        let nearest = nearest.distance_type(DistanceType::Cosine).bypass_vector_index().only_if(query.filter());
        let columns = Select::columns(&["run", "id", "_distance"]);
        let found = nearest.select(columns).limit(query.limit).execute().await.map_err(during("search"))?;
        let batches: Vec<RecordBatch> = found.try_collect().await.map_err(during("search"))?;
        let mut found: Vec<Recalled> = batches.iter().map(recalled).collect::<Result<Vec<_>, _>>()?.concat();
        let key = |found: &Recalled| (found.run.clone(), found.id.clone());
        // Ties by key, so that the same entries are in the same order for a resumed run.
        found.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then_with(|| key(a).cmp(&key(b))));
        Ok(found)
    }

    pub(crate) fn folder(runs: &Path) -> PathBuf {
        runs.join(FOLDER)
    }

    /// Removes the memory of all runs.
    pub(crate) fn discard(runs: &Path) -> std::io::Result<()> {
        let folder = Self::folder(runs);
        // A damaged memory may even be a file in place of the folder.
        unless_missing(if folder.is_dir() { std::fs::remove_dir_all(folder) } else { std::fs::remove_file(folder) })
    }

    /// Removes the entries of a run from the tables of all embedders, and the files that hold them.
    ///
    /// # Errors
    ///
    /// Returns [`RecallError::Lock`] if others use the memory all the time; nothing is removed then.
    pub(crate) async fn forget(runs: &Path, run: &RunId) -> Result<(), RecallError> {
        steady(Self::remove(runs, run)).await
    }

    async fn remove(runs: &Path, run: &RunId) -> Result<(), RecallError> {
        if Self::folder(runs).symlink_metadata().is_err() {
            return Ok(());
        }
        let _lock = locked(runs.join(LOCK), FileLock::take).await?;
        for table in tables(runs).await? {
            table.delete(&format!("run = '{run}'")).await.map_err(during("write"))?;
            // A deleted row stays in its file until the file is rewritten and the versions that refer to it are gone.
            let options = CompactionOptions {
                materialize_deletions: true,
                materialize_deletions_threshold: 0.0,
                ..CompactionOptions::default()
            };
            let compact = OptimizeAction::Compact { options, remap_options: None };
            table.optimize(compact).await.map_err(during("compact"))?;
            let prune = OptimizeAction::Prune {
                older_than: Some(Duration::zero()),
                // Otherwise files younger than seven days that no version names stay, in case a write in progress needs
                // them: those of a write that was killed have text of its run. The lock excludes a write in progress.
                delete_unverified: Some(true),
                error_if_tagged_old_versions: Some(false),
            };
            table.optimize(prune).await.map_err(during("prune"))?;
        }
        Ok(())
    }

    /// Reads the memory of all embedders as a whole.
    pub(crate) async fn verify(runs: &Path) -> Result<(), RecallError> {
        steady(async {
            for table in tables(runs).await? {
                let rows = table.query().execute().await.map_err(during("read"))?;
                rows.try_for_each(|_| std::future::ready(Ok(()))).await.map_err(during("read"))?;
                table.stats().await.map_err(during("measure"))?;
            }
            Ok(())
        })
        .await
    }
}

/// Waits for the lock on the memory.
async fn locked(
    file: PathBuf,
    attempt: impl Fn(&Path) -> Result<FileLock, FileLockError> + Send + 'static,
) -> Result<FileLock, RecallError> {
    let lock = tokio::task::spawn_blocking(move || FileLock::wait(PATIENCE, || attempt(&file)));
    Ok(lock.await??)
}

async fn connect(runs: &Path) -> Result<Connection, RecallError> {
    // Each operation looks for the latest version: a run that is removed takes the earlier ones with it.
    let connection = lancedb::connect(&Recall::folder(runs).to_string_lossy());
    connection.read_consistency_interval(std::time::Duration::ZERO).execute().await.map_err(during("open"))
}

/// Returns the name of the table of an embedder. Vectors of different embedders never meet.
fn name(embedder: &Arc<dyn Embedder>) -> String {
    format!("memory_{}", &ContentHash::of(embedder.fingerprint().as_bytes()).as_str()[..8])
}

/// Opens the tables of all embedders.
async fn tables(runs: &Path) -> Result<Vec<Table>, RecallError> {
    if Recall::folder(runs).symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let connection = connect(runs).await?;
    let mut tables = Vec::new();
    for name in connection.table_names().execute().await.map_err(during("read"))? {
        tables.push(connection.open_table(&name).execute().await.map_err(during("open"))?);
    }
    Ok(tables)
}

/// Returns the entries of a branch: its summary, and each quote with the findings that cite it.
pub(crate) fn entries(node: &NodeId, branch: &Branch) -> Vec<Entry> {
    // Without a quote, nothing shows that the summary is made of public text.
    let label = branch.evidence.iter().map(|quote| quote.label).max().unwrap_or(Label::Internal);
    let summary = Entry {
        id: node.to_string(),
        node: node.clone(),
        kind: EntryKind::Summary,
        source: branch.evidence.first().map_or(EntrySource::Kb, source_of),
        place: String::new(),
        label,
        confidence: branch.report.confidence,
        text: branch.report.summary.clone(),
    };
    let quote = |quote: &Evidence| {
        let findings = branch.report.findings.iter().filter(|finding| finding.evidence.contains(&quote.id));
        let says = findings.map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" ");
        Entry {
            id: quote.id.to_string(),
            node: node.clone(),
            kind: EntryKind::Quote,
            source: source_of(quote),
            place: quote.source.for_people(),
            label: quote.label,
            confidence: quote.score,
            text: if says.contains(&quote.quote) { says } else { format!("{says} {}", quote.quote).trim().to_owned() },
        }
    };
    let summary = (!summary.text.trim().is_empty()).then_some(summary);
    summary.into_iter().chain(branch.evidence.iter().map(quote)).collect()
}

fn source_of(quote: &Evidence) -> EntrySource {
    match quote.source {
        Place::Kb { .. } => EntrySource::Kb,
        Place::Web { .. } => EntrySource::Web,
        Place::Mcp { .. } => EntrySource::Mcp,
    }
}

fn schema(dimension: usize) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vector = DataType::FixedSizeList(item, i32::try_from(dimension).unwrap_or(i32::MAX));
    let tags = ["key", "run", "id", "node", "kind", "source", "place", "label"].map(text);
    let rest = [Field::new("confidence", DataType::Float32, false), text("text"), Field::new("vector", vector, true)];
    Arc::new(Schema::new(tags.into_iter().chain(rest).collect::<Vec<_>>()))
}

fn batch(run: &RunId, entries: &[Entry], vectors: &[Vec<f32>], dimension: usize) -> Result<RecordBatch, ArrowError> {
    let texts = |value: &dyn Fn(&Entry) -> String| -> ArrayRef {
        Arc::new(entries.iter().map(|entry| Some(value(entry))).collect::<StringArray>())
    };
    let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), i32::try_from(dimension).unwrap_or(i32::MAX));
    for vector in vectors {
        builder.values().append_slice(vector);
        builder.append(true);
    }
    RecordBatch::try_new(
        schema(dimension),
        vec![
            texts(&|entry| format!("{run}/{}", entry.id)),
            texts(&|_| run.to_string()),
            texts(&|entry| entry.id.clone()),
            texts(&|entry| entry.node.to_string()),
            texts(&|entry| entry.kind.to_string()),
            texts(&|entry| entry.source.to_string()),
            texts(&|entry| entry.place.clone()),
            texts(&|entry| entry.label.to_string()),
            Arc::new(entries.iter().map(|entry| Some(entry.confidence)).collect::<Float32Array>()),
            texts(&|entry| entry.text.clone()),
            Arc::new(builder.finish()),
        ],
    )
}

fn recalled(batch: &RecordBatch) -> Result<Vec<Recalled>, RecallError> {
    let text = |name| column::<StringArray>(batch, name);
    let (run, id, distance) = (text("run")?, text("id")?, column::<Float32Array>(batch, "_distance")?);
    let entry = |row: usize| {
        // LanceDB returns the cosine distance.
        let similarity = 1.0 - distance.value(row);
        Ok(Recalled { run: serde_json::from_value(run.value(row).into())?, id: id.value(row).to_owned(), similarity })
    };
    (0..batch.num_rows()).map(entry).collect()
}

fn column<'a, T: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a T, ArrowError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| ArrowError::SchemaError(format!("column `{name}` is missing or of another type")))
}

fn during(action: &'static str) -> impl Fn(lancedb::Error) -> RecallError {
    move |source| RecallError::Table { action, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::embed::builtin_for_tests;

    fn unexpected() -> OnFailure {
        Arc::new(|error| panic!("{error}"))
    }

    fn entry(id: &str, text: &str) -> Entry {
        Entry {
            id: id.into(),
            node: NodeId::numbered(1),
            kind: EntryKind::Quote,
            source: EntrySource::Kb,
            place: "a.md:1".into(),
            label: Label::Internal,
            confidence: 0.5,
            text: text.into(),
        }
    }

    #[tokio::test]
    async fn nearest_entry_of_the_run_is_found_and_adding_it_again_does_not_double_it() {
        let folder = tempfile::tempdir().unwrap();
        let recall = Recall::open(folder.path(), builtin_for_tests(), unexpected()).await.unwrap();
        let (run, other) = (RunId::random(1), RunId::random(2));
        let entries = || vec![entry("n1e1", "Cats sleep all day long."), entry("n1e2", "Taxes are due in April.")];
        recall.add(&run, entries()).await.unwrap();
        recall.add(&run, entries()).await.unwrap();
        recall.add(&other, vec![entry("n1e1", "When do cats sleep?")]).await.unwrap();
        let all = RecallQuery::of("when do cats sleep", 5);
        let found = recall.search(&RecallQuery { run: Some(&run), ..all }).await.unwrap();
        assert_eq!(found.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), ["n1e1", "n1e2"]);
        let found = recall.search(&all).await.unwrap();
        assert_eq!(found.iter().map(|found| &found.run).collect::<Vec<_>>(), [&other, &run, &run]);
        Recall::forget(folder.path(), &run).await.unwrap();
        let recall = Recall::known(folder.path(), builtin_for_tests()).await.unwrap().unwrap();
        let found = recall.search(&RecallQuery::of("cats", 5)).await.unwrap();
        assert_eq!(found.iter().map(|found| &found.run).collect::<Vec<_>>(), [&other]);
    }

    #[tokio::test]
    async fn removed_run_leaves_no_file_with_its_text_and_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let recall = Recall::open(folder.path(), builtin_for_tests(), unexpected()).await.unwrap();
        let (run, other) = (RunId::random(1), RunId::random(2));
        recall.add(&run, vec![entry("n1e1", "Ottoline sleeps all day long.")]).await.unwrap();
        recall.add(&other, vec![entry("n1e1", "Cats sleep all day long.")]).await.unwrap();
        let held = Recall::open(folder.path(), builtin_for_tests(), unexpected()).await.unwrap();
        // As a write leaves it that is killed before its commit.
        let killed = tables(folder.path()).await.unwrap().remove(0).name().to_owned();
        let killed = Recall::folder(folder.path()).join(format!("{killed}.lance/data/killed.lance"));
        std::fs::write(&killed, "Ottoline").unwrap();

        let lock = FileLock::share(&folder.path().join(LOCK)).unwrap();
        let (runs, removed) = (folder.path().to_owned(), run.clone());
        let forgetting = tokio::spawn(async move { Recall::forget(&runs, &removed).await });
        drop(lock);
        forgetting.await.unwrap().unwrap();
        let mut folders = vec![Recall::folder(folder.path())];
        while let Some(at) = folders.pop() {
            for file in at.read_dir().unwrap().map(|file| file.unwrap().path()) {
                if file.is_dir() {
                    folders.push(file);
                } else {
                    let bytes = std::fs::read(&file).unwrap();
                    assert!(!bytes.windows(8).any(|part| part == b"Ottoline"), "{}", file.display());
                }
            }
        }
        held.add(&other, vec![entry("n1e2", "Dogs sleep at night.")]).await.unwrap();
        for recall in [held, recall] {
            let found = recall.search(&RecallQuery::of("Who sleeps?", 5)).await.unwrap();
            assert_eq!(found.iter().map(|found| &found.run).collect::<Vec<_>>(), [&other, &other]);
        }
    }

    #[tokio::test]
    async fn memory_that_was_never_made_is_not_made_by_reading_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Recall::known(folder.path(), builtin_for_tests()).await.unwrap().is_none());
        assert!(folder.path().read_dir().unwrap().next().is_none());
    }

    #[tokio::test]
    async fn entries_are_filtered_by_kind_source_and_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let recall = Recall::open(folder.path(), builtin_for_tests(), unexpected()).await.unwrap();
        let run = RunId::random(1);
        let (kb, second) = (entry("n1e1", "Cats sleep all day long."), NodeId::numbered(2));
        let web = Entry {
            source: EntrySource::Web,
            label: Label::Public,
            node: second.clone(),
            id: "n2e1".into(),
            ..kb.clone()
        };
        let summary = Entry { kind: EntryKind::Summary, id: "n2".into(), label: Label::Internal, ..web.clone() };
        recall.add(&run, vec![kb, web, summary]).await.unwrap();
        let all = RecallQuery { run: Some(&run), ..RecallQuery::of("Do cats sleep?", 5) };
        for (query, expected) in [
            (all, vec!["n1e1", "n2e1"]),
            (RecallQuery { nodes: std::slice::from_ref(&second), ..all }, vec!["n2e1"]),
            (RecallQuery { source: Some(EntrySource::Kb), ..all }, vec!["n1e1"]),
            (RecallQuery { source: Some(EntrySource::Web), ..all }, vec!["n2e1"]),
            (RecallQuery { nodes: &[NodeId::numbered(1), second.clone()], ..all }, vec!["n1e1", "n2e1"]),
            (RecallQuery { nodes: std::slice::from_ref(&second), kind: EntryKind::Summary, ..all }, vec!["n2"]),
        ] {
            let found = recall.search(&query).await.unwrap();
            assert_eq!(found.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), expected, "{query:?}");
        }
    }
}
