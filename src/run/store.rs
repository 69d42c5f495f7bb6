//! The runs of a project: find, lock, read, export, remove.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::event::Record;
use super::journal::{Journal, JournalError, LOCKS, LockedRun, RunRow, Salvaged, run_lock};
use super::tree::{FoldError, RunState};
use crate::base::folder::{create_private, in_the_way};
use crate::base::id::RunId;
use crate::base::lock::{FileLock, FileLockError};

/// Name of the database in `.dr`.
pub(crate) const STATE_FILE: &str = "state.db";

/// The runs kept in one `.dr` folder.
#[derive(Clone)]
pub struct Store {
    journal: Journal,
}

/// A run could not be found or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("run `{run}` cannot be read")]
    Broken { run: RunId, source: FoldError },
    /// The events of this run cannot be read from the journal.
    #[error("run `{run}` cannot be read")]
    Damaged { run: RunId, source: JournalError },
    #[error("run `{run}` is removed, but its text is still in the log of the journal")]
    InLog { run: RunId, source: JournalError },
    #[error("no run `{0}`")]
    Missing(String),
    #[error("`{0}` matches several runs")]
    Ambiguous(String),
    /// If it had runs, the journal was deleted.
    #[error("no run is stored here")]
    Empty { had_runs: bool },
    #[error("run `{run}` is in use by {holder}")]
    Busy { run: RunId, holder: String },
    #[error(transparent)]
    Lock(FileLockError),
    #[error("folder of the runs is read-only, or its disk is full")]
    ReadOnly,
    #[error("failed to create `{path}`")]
    Folder { path: PathBuf, source: std::io::Error },
}

impl StoreError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Journal(error) | Self::Damaged { source: error, .. } => error.hint(),
            Self::Broken { .. } => {
                Some("`dr doctor --repair` keeps its events up to the damage; `dr runs` lists the other runs".into())
            }
            Self::Missing(_) | Self::Ambiguous(_) => Some("`dr runs` lists the runs and their ids".into()),
            Self::Empty { had_runs: false } => Some("`dr ask \"<QUESTION>\"` starts one".into()),
            Self::Empty { had_runs: true } => Some("the journal was deleted; `dr doctor` lists its runs".into()),
            Self::Busy { .. } => Some("wait until it is done, or end that process".into()),
            Self::InLog { .. } => Some("the log is emptied when the last `dr` that uses the journal ends".into()),
            Self::Folder { path, source } => in_the_way(path, source),
            Self::Lock(_) | Self::ReadOnly => None,
        }
    }
}

impl Store {
    /// Opens the runs in `folder`, an existing `.dr` folder.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let locks = folder.join(LOCKS);
        let failed = |source| StoreError::Folder { path: locks.clone(), source };
        create_private(&locks).map_err(failed)?;
        Ok(Self { journal: Journal::open(&folder.join(STATE_FILE))? })
    }

    /// Returns the runs in `folder` that have a lock file: all that were worked on and not removed.
    pub(crate) fn worked_on(folder: &Path) -> Vec<RunId> {
        locked_in(&folder.join(LOCKS))
    }

    /// Replaces a damaged journal by a new one with everything that can still be read. The damaged file is kept.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] while a process works on a run, and an error while one has the journal open.
    pub(crate) fn repair(folder: &Path) -> Result<Salvaged, StoreError> {
        // The journal is locked, too, but that lock cannot name the run.
        for run in Self::worked_on(folder) {
            if let Some(holder) = FileLock::holder(&run_lock(&folder.join(LOCKS), &run)) {
                return Err(StoreError::Busy { run, holder });
            }
        }
        Ok(Journal::salvage(&folder.join(STATE_FILE), |records| RunState::of(records).is_ok())?)
    }

    /// Opens the runs in a folder that cannot be written, for reading.
    pub(crate) fn read_only(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { journal: Journal::open_copy(&folder.join(STATE_FILE))? })
    }

    /// Opens an empty store in memory, for offline questions in a read-only folder.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Ok(Self { journal: Journal::in_memory()? })
    }

    /// Returns the newest runs in `folder`, as [`Journal::glance`].
    pub(crate) fn glance(folder: &Path) -> Option<Vec<RunRow>> {
        Journal::glance(&folder.join(STATE_FILE))
    }

    #[doc(hidden)]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns whether runs outlive this process.
    pub(crate) fn is_kept(&self) -> bool {
        self.journal.is_kept()
    }

    /// Finds a run by its id or a prefix of it; the newest if no name is given.
    pub(crate) async fn find(&self, name: Option<&str>) -> Result<RunId, StoreError> {
        let runs = self.journal.runs().await?.runs;
        let Some(name) = name else {
            // Lock files outlive a journal that was deleted.
            let had_runs = self.journal.locks().is_some_and(|locks| !locked_in(locks).is_empty());
            return runs.into_iter().next().map(|run| run.id).ok_or(StoreError::Empty { had_runs });
        };
        // An empty name would be a prefix of every id.
        let mut like = runs.into_iter().filter(|run| run.id.as_str().starts_with(name) && !name.is_empty());
        match (like.next(), like.next()) {
            (Some(run), None) => Ok(run.id),
            (None, _) => Err(StoreError::Missing(name.to_owned())),
            (Some(_), Some(_)) => Err(StoreError::Ambiguous(name.to_owned())),
        }
    }

    /// Takes the lock of a run, which need not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] if another process holds it, and [`StoreError::ReadOnly`] for runs opened with
    /// [`Self::read_only`].
    pub fn lock(&self, run: &RunId) -> Result<LockedRun, StoreError> {
        self.journal.lock(run).ok_or(StoreError::ReadOnly)?.map_err(|error| match error {
            FileLockError::Held { holder, .. } => StoreError::Busy { run: run.clone(), holder },
            error @ FileLockError::File { .. } => StoreError::Lock(error),
        })
    }

    /// Returns whether a process is working on a run.
    pub(crate) fn is_busy(&self, run: &RunId) -> bool {
        self.journal.locks().is_some_and(|locks| FileLock::holder(&run_lock(locks, run)).is_some())
    }

    /// Reads a run: its events, and the state they fold to.
    pub async fn read(&self, run: &RunId) -> Result<(Vec<Record>, RunState), StoreError> {
        let records = self.journal.records(run).await.map_err(|source| match source {
            source if source.is_damage() => StoreError::Damaged { run: run.clone(), source },
            source => source.into(),
        })?;
        if records.is_empty() {
            return Err(StoreError::Missing(run.to_string()));
        }
        let state = RunState::of(&records).map_err(|source| StoreError::Broken { run: run.clone(), source })?;
        Ok((records, state))
    }

    /// Removes a run.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::InLog`] if it is removed and the log of the journal still has its text.
    pub(crate) async fn remove(&self, run: LockedRun) -> Result<(), StoreError> {
        if !run.remove().await? {
            return Err(StoreError::Missing(run.id().to_string()));
        }
        // Its failure is returned last: the run is removed by now, and its lock file goes with it.
        let scrubbed = run.scrub().await;
        self.forget(run.id());
        scrubbed.map_err(|source| StoreError::InLog { run: run.id().clone(), source })
    }

    /// Removes the lock file of a run that is not in the journal. The caller holds its lock.
    pub(super) fn forget(&self, run: &RunId) {
        if let Some(locks) = self.journal.locks() {
            // A leftover lock file is harmless, so a failure to remove it is ignored.
            let _ = std::fs::remove_file(run_lock(locks, run));
        }
    }

    /// Returns a run as JSON lines: its events, its calls with their raw replies, and the texts that left for it.
    pub(crate) async fn export(&self, run: &RunId) -> Result<String, StoreError> {
        let (records, _) = self.read(run).await?;
        let mut lines = vec![json!({"kind": "run", "id": run, "format": 2}).to_string()];
        lines.extend(records.iter().map(|record| line("event", record)));
        lines.extend(self.journal.calls(run).await?.iter().map(|call| line("call", call)));
        // Nested, because the row has its own `kind` field.
        let egress = self.journal.egress(run).await?;
        lines.extend(egress.iter().map(|row| json!({"kind": "egress", "row": row}).to_string()));
        Ok(lines.join("\n") + "\n")
    }
}

/// Returns the runs that have a lock file in a folder.
fn locked_in(locks: &Path) -> Vec<RunId> {
    let files = std::fs::read_dir(locks).into_iter().flatten().flatten();
    let mut runs: Vec<RunId> =
        files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".lock")?.parse().ok()).collect();
    // The order of a folder differs between file systems.
    runs.sort();
    runs
}

fn line<T: Serialize>(kind: &str, value: &T) -> String {
    let mut object = json!({ "kind": kind });
    if let (Some(object), Ok(serde_json::Value::Object(fields))) = (object.as_object_mut(), serde_json::to_value(value))
    {
        object.extend(fields);
    }
    object.to_string()
}
