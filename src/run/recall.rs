//! What runs found, as vectors: quotes and branch summaries, searched when an answer is judged and written.
//!
//! One LanceDB table beside the journal for each embedder. It can be made again from the journal at any time, so
//! nothing depends on it being complete; entries of a run are replaced, never doubled.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListBuilder, Float32Array, Float32Builder, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::TryStreamExt;
use lancedb::query::{ExecutableQuery, QueryBase, Select};
use lancedb::table::{CompactionOptions, Duration, OptimizeAction};
use lancedb::{DistanceType, Table};

use crate::base::id::{ContentHash, RunId};
use crate::kb::embed::{EmbedError, Embedder};
use crate::research::branch::Branch;
use crate::research::evidence::Evidence;
use crate::research::node::NodeId;
use crate::source::{Label, Place};

/// Folder of the table in `.dr`.
const FOLDER: &str = "memory";

/// Small pieces of the table that are left alone.
const MAX_SMALL_FRAGMENTS: usize = 32;

/// How long versions of the table are kept that another process may still be reading, in hours.
const KEPT_VERSIONS_HOURS: i64 = 1;

/// The entries of all runs that one embedder made vectors of.
#[derive(Clone)]
pub struct Recall {
    table: Table,
    embedder: Arc<dyn Embedder>,
}

/// Something a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The id of the quote, or of the node whose summary it is.
    pub id: String,
    /// The node.
    pub node: NodeId,
    /// `quote` or `summary`.
    pub kind: &'static str,
    /// `kb` or `web`.
    pub source: &'static str,
    /// The path and lines, or the address.
    pub place: String,
    /// Who may see it.
    pub label: Label,
    /// How far it can be relied on, from 0 to 1.
    pub confidence: f32,
    /// What is searched.
    pub text: String,
}

/// The memory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// The table failed.
    #[error("failed to {action} the memory of runs")]
    Table {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<lancedb::Error>,
    },
    /// A batch of entries made no sense.
    #[error("failed to read the memory of runs")]
    Batch(#[from] ArrowError),
    /// No vectors could be made.
    #[error("failed to embed for the memory of runs")]
    Embed(#[from] EmbedError),
    /// A blocking task died.
    #[error("failed to embed for the memory of runs")]
    Task(#[from] tokio::task::JoinError),
}

impl Recall {
    /// Opens the memory beside the journal in `folder`, or makes it.
    pub async fn open(folder: &Path, embedder: Arc<dyn Embedder>) -> Result<Self, RecallError> {
        let uri = folder.join(FOLDER).to_string_lossy().into_owned();
        let connection = lancedb::connect(&uri).execute().await.map_err(during("open"))?;
        // Vectors of different embedders never meet.
        let name = format!("memory_{}", &ContentHash::of(embedder.fingerprint().as_bytes()).as_str()[..8]);
        let table = match connection.open_table(&name).execute().await {
            Ok(table) => table,
            Err(lancedb::Error::TableNotFound { .. }) => connection
                .create_empty_table(&name, schema(embedder.dimension()))
                .execute()
                .await
                .map_err(during("make"))?,
            Err(error) => return Err(during("open")(error)),
        };
        Ok(Self { table, embedder })
    }

    /// Adds entries of a run; those it has already are replaced.
    pub async fn add(&self, run: &RunId, entries: Vec<Entry>) -> Result<(), RecallError> {
        if entries.is_empty() {
            return Ok(());
        }
        let (embedder, run) = (Arc::clone(&self.embedder), run.clone());
        let batch = tokio::task::spawn_blocking(move || {
            let texts: Vec<_> = entries.iter().map(|entry| entry.text.as_str()).collect();
            let vectors = embedder.embed_passages(&texts)?;
            Ok::<_, RecallError>(batch(&run, &entries, &vectors, embedder.dimension())?)
        });
        let batch = batch.await??;
        let schema = batch.schema();
        let mut merge = self.table.merge_insert(&["key"]);
        merge.when_matched_update_all(None).when_not_matched_insert_all();
        let reader = Box::new(RecordBatchIterator::new([Ok(batch)], schema));
        merge.execute(reader).await.map_err(during("write"))?;
        self.tidy().await
    }

    /// Joins the small pieces that every round of every run leaves behind. Another run that writes at the same time may
    /// win; the next one tidies up then.
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

    /// Returns the ids of the entries of a run that are nearest to `query`, best first, each with its cosine.
    ///
    /// Every vector of the run is compared, so the same entries give the same answer.
    pub async fn search(&self, run: &RunId, query: &str, limit: usize) -> Result<Vec<(String, f32)>, RecallError> {
        let (embedder, text) = (Arc::clone(&self.embedder), query.to_owned());
        let vector = tokio::task::spawn_blocking(move || embedder.embed_query(&text)).await??;
        // A run id is sixteen hex digits, so it is safe inside a query.
        let nearest = self.table.query().nearest_to(vector).map_err(during("search"))?;
        let nearest =
            nearest.distance_type(DistanceType::Cosine).bypass_vector_index().only_if(format!("run = '{run}'"));
        let nearest = nearest.select(Select::columns(&["id", "_distance"])).limit(limit);
        let batches: Vec<RecordBatch> =
            nearest.execute().await.map_err(during("search"))?.try_collect().await.map_err(during("search"))?;
        let mut found = Vec::new();
        for batch in &batches {
            let (ids, distances) = (column::<StringArray>(batch, "id")?, column::<Float32Array>(batch, "_distance")?);
            found.extend((0..batch.num_rows()).map(|row| (ids.value(row).to_owned(), 1.0 - distances.value(row))));
        }
        found.sort_by(|(a, first), (b, second)| second.total_cmp(first).then_with(|| a.cmp(b)));
        Ok(found)
    }

    /// Forgets a run, whichever embedder it was made with.
    pub async fn forget(folder: &Path, run: &RunId) -> Result<(), RecallError> {
        let folder = folder.join(FOLDER);
        if !folder.is_dir() {
            return Ok(());
        }
        let uri = folder.to_string_lossy().into_owned();
        let connection = lancedb::connect(&uri).execute().await.map_err(during("open"))?;
        for name in connection.table_names().execute().await.map_err(during("read"))? {
            let table = connection.open_table(&name).execute().await.map_err(during("open"))?;
            table.delete(&format!("run = '{run}'")).await.map_err(during("write"))?;
        }
        Ok(())
    }
}

/// Returns what a branch leaves to be found again: its summary, and each quote with what it was quoted for.
pub fn entries(node: &NodeId, branch: &Branch) -> Vec<Entry> {
    let label = branch.evidence.iter().map(|quote| quote.label).max().unwrap_or(Label::Internal);
    let summary = Entry {
        id: node.to_string(),
        node: node.clone(),
        kind: "summary",
        source: branch.evidence.first().map_or("kb", kind_of),
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
            kind: "quote",
            source: kind_of(quote),
            place: quote.source.for_people(),
            label: quote.label,
            confidence: quote.score,
            text: if says.contains(&quote.quote) { says } else { format!("{says} {}", quote.quote).trim().to_owned() },
        }
    };
    let summary = (!summary.text.trim().is_empty()).then_some(summary);
    summary.into_iter().chain(branch.evidence.iter().map(quote)).collect()
}

fn kind_of(quote: &Evidence) -> &'static str {
    match quote.source {
        Place::Kb { .. } => "kb",
        Place::Web { .. } => "web",
    }
}

fn schema(dimension: usize) -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, false);
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Arc::new(Schema::new(vec![
        text("key"),
        text("run"),
        text("id"),
        text("node"),
        text("kind"),
        text("source"),
        text("place"),
        text("label"),
        Field::new("confidence", DataType::Float32, false),
        text("text"),
        Field::new("vector", DataType::FixedSizeList(item, i32::try_from(dimension).unwrap_or(i32::MAX)), true),
    ]))
}

fn batch(run: &RunId, entries: &[Entry], vectors: &[Vec<f32>], dimension: usize) -> Result<RecordBatch, ArrowError> {
    let texts = |value: fn(&Entry) -> String| -> ArrayRef {
        Arc::new(entries.iter().map(|entry| Some(value(entry))).collect::<StringArray>())
    };
    let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), i32::try_from(dimension).unwrap_or(i32::MAX));
    for vector in vectors {
        builder.values().append_slice(vector);
        builder.append(true);
    }
    let keys = entries.iter().map(|entry| Some(format!("{run}/{}", entry.id))).collect::<StringArray>();
    let runs = entries.iter().map(|_| Some(run.to_string())).collect::<StringArray>();
    RecordBatch::try_new(
        schema(dimension),
        vec![
            Arc::new(keys),
            Arc::new(runs),
            texts(|entry| entry.id.clone()),
            texts(|entry| entry.node.to_string()),
            texts(|entry| entry.kind.to_owned()),
            texts(|entry| entry.source.to_owned()),
            texts(|entry| entry.place.clone()),
            texts(|entry| if entry.label == Label::Public { "public".into() } else { "internal".into() }),
            Arc::new(entries.iter().map(|entry| Some(entry.confidence)).collect::<Float32Array>()),
            texts(|entry| entry.text.clone()),
            Arc::new(builder.finish()),
        ],
    )
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

    fn entry(id: &str, text: &str) -> Entry {
        Entry {
            id: id.into(),
            node: NodeId::numbered(1),
            kind: "quote",
            source: "kb",
            place: "a.md:1".into(),
            label: Label::Internal,
            confidence: 0.5,
            text: text.into(),
        }
    }

    #[tokio::test]
    async fn nearest_entry_of_the_run_is_found_and_adding_it_again_does_not_double_it() {
        let folder = tempfile::tempdir().unwrap();
        let recall = Recall::open(folder.path(), builtin_for_tests()).await.unwrap();
        let (run, other) = (RunId::random(1), RunId::random(2));
        let entries = || vec![entry("n1e1", "Cats sleep all day long."), entry("n1e2", "Taxes are due in April.")];
        recall.add(&run, entries()).await.unwrap();
        recall.add(&run, entries()).await.unwrap();
        recall.add(&other, vec![entry("n1e1", "When do cats sleep?")]).await.unwrap();
        let found = recall.search(&run, "when do cats sleep", 5).await.unwrap();
        assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["n1e1", "n1e2"]);
        Recall::forget(folder.path(), &run).await.unwrap();
        let recall = Recall::open(folder.path(), builtin_for_tests()).await.unwrap();
        assert!(recall.search(&run, "cats", 5).await.unwrap().is_empty());
    }
}
