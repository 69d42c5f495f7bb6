//! Commits of Lance that LanceDB does not expose.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchIterator};
use lance::Dataset;
use lance::dataset::transaction::{Operation, Transaction, UpdateMode};
use lance::dataset::{
    CommitBuilder, DeleteBuilder, InsertBuilder, MergeInsertBuilder, MergeInsertWriteMode, WhenMatched, WhenNotMatched,
    WriteMode, WriteParams,
};
use lance::table::format::Fragment;
use lancedb::Table;

/// Changes a table by a commit of Lance. Returns the number of rows written; `None` for a table of LanceDB's service,
/// which has no dataset here.
pub(super) async fn change<F>(
    table: &Table,
    commit: impl FnOnce(Arc<Dataset>) -> F,
) -> Result<Option<u64>, lancedb::Error>
where
    F: Future<Output = Result<(Arc<Dataset>, u64), lance::Error>>,
{
    let Some(dataset) = table.dataset() else { return Ok(None) };
    let (changed, rows) = commit(dataset.get().await?).await?;
    dataset.update(Arc::unwrap_or_clone(changed));
    Ok(Some(rows))
}

/// Replaces the columns of `batch` in rows matched by `chunk_id`. Returns the number of rows updated.
///
/// LanceDB's merge rewrites whole rows, which removes them from the text index.
pub(super) async fn patch_columns(
    dataset: Arc<Dataset>,
    batch: RecordBatch,
) -> Result<(Arc<Dataset>, u64), lance::Error> {
    let mut merge = MergeInsertBuilder::try_new(dataset, vec!["chunk_id".to_owned()])?;
    merge
        .when_matched(WhenMatched::UpdateAll)
        .when_not_matched(WhenNotMatched::DoNothing)
        .write_mode(MergeInsertWriteMode::RewriteColumns);
    let (dataset, stats) = merge.try_build()?.execute_reader(reader(batch)).await?;
    Ok((dataset, stats.num_updated_rows))
}

/// Deletes the rows that match `condition` and appends those of `batch`, in one commit. Returns the number of rows
/// appended.
///
/// LanceDB's merge would read the keys of all rows and join them with those of the batch.
pub(super) async fn replace_rows(
    dataset: Arc<Dataset>,
    condition: &str,
    batch: RecordBatch,
) -> Result<(Arc<Dataset>, u64), lance::Error> {
    let deleted = DeleteBuilder::new(Arc::clone(&dataset), condition).execute_uncommitted().await?;
    let Operation::Delete { updated_fragments, deleted_fragment_ids, .. } = deleted.transaction.operation else {
        return Err(lance::Error::internal("the deletion of rows is another operation"));
    };
    let new_fragments = append(&dataset, batch).await?;
    let appended = new_fragments.iter().filter_map(|fragment| fragment.physical_rows).sum::<usize>();
    let operation = Operation::Update {
        removed_fragment_ids: deleted_fragment_ids,
        updated_fragments,
        new_fragments,
        fields_modified: Vec::new(),
        compacted_sstables: Vec::new(),
        fields_for_preserving_frag_bitmap: Vec::new(),
        update_mode: Some(UpdateMode::RewriteRows),
        inserted_rows_filter: None,
        updated_fragment_offsets: None,
    };
    let transaction = Transaction::new(dataset.version().version, operation, None);
    let commit = CommitBuilder::new(dataset);
    let commit = match deleted.affected_rows {
        // With them, a deletion of other rows of the same fragments by another writer is no conflict.
        Some(rows) => commit.with_affected_rows(rows),
        None => commit,
    };
    Ok((Arc::new(commit.execute(transaction).await?), appended as u64))
}

/// Writes the fragments of rows to append, without a commit.
async fn append(dataset: &Arc<Dataset>, batch: RecordBatch) -> Result<Vec<Fragment>, lance::Error> {
    if batch.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
    let insert = InsertBuilder::new(Arc::clone(dataset)).with_params(&params);
    match insert.execute_uncommitted(vec![batch]).await?.operation {
        Operation::Append { fragments } => Ok(fragments),
        _ => Err(lance::Error::internal("the append of rows is another operation")),
    }
}

/// Returns a reader of one batch.
pub(super) fn reader(batch: RecordBatch) -> Box<dyn arrow::array::RecordBatchReader + Send> {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}
