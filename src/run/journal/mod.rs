//! The journal: runs, events, calls, lookups and outgoing texts, on disk.
//!
//! ```text
//! Store::lock(run) ─▶ LockedRun   append, begin_call, end_call, record_lookup, record_egress, remove, scrub
//! Store::journal() ─▶ Journal     reads only
//! ```
//!
//! One SQLite database holds all runs of a project, in write-ahead mode with every commit flushed to disk, readable by
//! its owner only. A call is stored before it is sent, and its raw reply before anything uses it, so no finished
//! call is ever paid for twice, even if the process is killed at any instant.
//!
//! A process that has the database open holds a lock beside it, which all share. A repair, which replaces the file,
//! holds it alone.
//!
//! # Where to look
//!
//! - `schema` has the tables and a migration from each version of the format to the next.
//! - One file per table has its rows as types and the statements on it. Enumerated columns are enums: a word that this
//!   version does not know is an error that names it.

mod calls;
mod egress;
mod lookups;
mod schema;
mod salvage;
mod runs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, Params, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use calls::{
    Call, CallKind, CallRow, CallState, JobEndpoint, PromptCall, ProviderKind, StartedJob, StoredOutcome,
};
pub(crate) use egress::{EgressKind, EgressRow, Withheld};
pub(crate) use lookups::{Lookup, LookupAnswer, LookupRow, LookupTerms, LookupTool};
pub(crate) use runs::{RunList, RunRow};
pub(crate) use salvage::Salvaged;

use crate::base::file::unless_missing;
use crate::base::folder::open_private;
use crate::base::id::RunId;
use crate::base::lock::{FileLock, FileLockError};
use crate::base::mutex::locked;
use salvage::{complete_repair, is_half_repaired};
use schema::{MIGRATIONS, differences, harden, migrate, version};

/// The setting under which SQLite refuses to write. It is on except during writes of a [`LockedRun`] or a repair.
const QUERY_ONLY: &str = "query_only";

/// Folder of the lock files beside the database, one per run.
pub(super) const LOCKS: &str = "runs";

/// How long to wait for another process's commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait between two attempts at what SQLite itself does not wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The journal of all runs of a project, for reading. [`LockedRun`] writes.
#[derive(Clone)]
pub struct Journal {
    database: Arc<Database>,
    keeping: Keeping,
    #[cfg(test)]
    writes_left: Arc<std::sync::atomic::AtomicI64>,
    /// Value that `writes_left` gets when the text of a job is recorded. Ignored if negative.
    #[cfg(test)]
    writes_from_job: Arc<std::sync::atomic::AtomicI64>,
}

/// Where a journal is kept, which decides how its runs are locked.
#[derive(Clone)]
enum Keeping {
    /// On disk; the lock files are in this folder.
    Disk(PathBuf),
    /// In a temporary folder, which is removed with the last handle; see [`Journal::open_copy`]. It is only read.
    Copy { _folder: Arc<tempfile::TempDir> },
    /// In memory, where no other process sees it.
    Memory,
}

struct Database {
    connection: Mutex<Connection>,
    /// Keeps a repair from replacing the file. `None` for a database in memory.
    _lock: Option<FileLock>,
}

/// The right to write to one run, which one process holds at a time. Only [`Journal::lock`] makes one.
///
/// Clones share the lock. It is released when the last of them is dropped, so a task that outlives its run cannot write
/// after another process took the run over.
///
/// ```no_run
/// # use dr::run::{event::Record, store::Store};
/// # async fn example(store: Store, run: dr::base::id::RunId, record: Record) -> Result<(), Box<dyn std::error::Error>> {
/// let journal = store.journal();
/// store.lock(&run)?.append(&record).await?;
/// # Ok(())
/// # }
/// ```
///
/// The journal itself has no method that writes:
///
/// ```compile_fail,E0599
/// # use dr::run::{event::Record, store::Store};
/// # async fn example(store: Store, run: dr::base::id::RunId, record: Record) -> Result<(), Box<dyn std::error::Error>> {
/// let journal = store.journal();
/// journal.append(&record).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockedRun {
    run: RunId,
    journal: Journal,
    _lock: Arc<Option<FileLock>>,
}

impl LockedRun {
    fn new(run: RunId, journal: Journal, lock: Option<FileLock>) -> Self {
        Self { run, journal, _lock: Arc::new(lock) }
    }

    pub(crate) fn id(&self) -> &RunId {
        &self.run
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Runs `work` on a blocking thread. Several statements are one commit only in a transaction of their own.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &RunId) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        #[cfg(test)]
        if self.journal.writes_left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0 {
            return Err(JournalError::Killed);
        }
        // A write goes on after its future was dropped, and so does its lock.
        let locked = self.clone();
        self.journal.write(move |connection| work(connection, locked.id())).await
    }
}

/// The journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("failed to {action} the journal")]
    Database { action: &'static str, source: rusqlite::Error },
    #[error("failed to {action} `{path}`")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    /// Another process repairs the journal, or has it open when it is to be repaired.
    #[error("journal is in use by {holder}")]
    Held { holder: String },
    #[error("journal has format {found}, but this version of dr supports up to {known}")]
    TooNew { found: usize, known: usize },
    #[error("journal has unexpected parts: {}", parts.join(", "))]
    Altered { parts: Vec<String> },
    /// A stored value is not one this version writes.
    #[error("journal has an entry that cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("call {call} has ended already")]
    Ended { call: i64 },
    #[error("journal task was aborted")]
    Task(#[from] tokio::task::JoinError),
    /// A test stopped all writes.
    #[cfg(test)]
    #[error("killed")]
    Killed,
}

/// Errors of the system, or because of another process.
const SYSTEM_CODES: [ErrorCode; 10] = [
    ErrorCode::SystemIoFailure,
    ErrorCode::DatabaseBusy,
    ErrorCode::DatabaseLocked,
    ErrorCode::FileLockingProtocolFailed,
    ErrorCode::PermissionDenied,
    ErrorCode::ReadOnly,
    ErrorCode::CannotOpen,
    ErrorCode::DiskFull,
    ErrorCode::OutOfMemory,
    ErrorCode::OperationInterrupted,
];

impl JournalError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::TooNew { .. } => Some("use the newer dr, or move `.dr/state.db` away".into()),
            Self::Altered { .. } => Some(
                "it is damaged, or another program changed it: `dr doctor --repair` copies its runs into a new journal"
                    .into(),
            ),
            Self::Held { .. } => Some("wait until it is done, or end that process".into()),
            _ if self.is_damage() => Some(
                "`dr doctor --repair` saves what can still be read into a new journal, and keeps the damaged one"
                    .into(),
            ),
            _ if self.is_full() => Some("free some disk space".into()),
            _ if self.has_code(&[ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked]) => {
                Some("another program writes to `.dr/state.db`: wait until it is done, or end it".into())
            }
            _ => None,
        }
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            // At every opening, SQLite extends a side file, and does not say what kept it from that.
            Self::Database { source: rusqlite::Error::SqliteFailure(error, _), .. } => {
                error.code == ErrorCode::DiskFull || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
            }
            Self::File { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Returns whether the journal, or its folder, cannot be written to.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has_code(&[ErrorCode::ReadOnly])
    }

    fn has_code(&self, codes: &[ErrorCode]) -> bool {
        let Self::Database { source: rusqlite::Error::SqliteFailure(error, _), .. } = self else { return false };
        codes.contains(&error.code)
    }

    /// Returns whether the stored data is damaged, as opposed to a full disk or a busy database.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Database { source, .. } => is_damage(source),
            Self::Unreadable(_) | Self::Altered { .. } => true,
            Self::File { .. } | Self::Held { .. } | Self::TooNew { .. } | Self::Ended { .. } | Self::Task(_) => false,
            #[cfg(test)]
            Self::Killed => false,
        }
    }

    /// Returns whether the data may be sound: the error is of the system or of another process, or the journal is of a
    /// newer version.
    pub(crate) fn may_pass(&self) -> bool {
        let is_of_data = matches!(self, Self::Database { .. }) && !self.has_code(&SYSTEM_CODES);
        !is_of_data && !self.is_damage()
    }
}

/// Adds the action during which the database failed.
fn during(action: &'static str) -> impl Fn(rusqlite::Error) -> JournalError {
    move |source| JournalError::Database { action, source }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(error, message) = error else {
        return matches!(error, rusqlite::Error::SqlInputError { .. });
    };
    let is_short = error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ;
    // Without its definitions, a table is missing to SQLite.
    let is_missing = message.as_ref().is_some_and(|message| message.starts_with("no such"));
    let is_damaged = matches!(error.code, rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase);
    is_damaged || is_short || is_missing
}

/// Returns the error of an action on a file of the journal.
fn in_file(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> JournalError + Copy {
    move |source| JournalError::File { action, path: path.to_path_buf(), source }
}

impl From<FileLockError> for JournalError {
    fn from(error: FileLockError) -> Self {
        match error {
            FileLockError::Held { holder, .. } => Self::Held { holder },
            FileLockError::File { path, source } => Self::File { action: "lock", path, source },
        }
    }
}

impl From<serde_json::Error> for JournalError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.into())
    }
}

/// Switches a database to write-ahead mode, waiting for another process that does the same: each holds a lock that the
/// other needs, and SQLite then reports the conflict at once, whatever the time-out.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let started = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_TIMEOUT => std::thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

impl Journal {
    /// Opens the database at `path`, creating it if missing and migrating an older format.
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::TooNew`] for a database of a newer `dr`, and an error if the file cannot be used or is
    /// being repaired.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        // Before the file is opened: a repair may be about to replace it.
        let lock = lock_of(path)?;
        // SQLite gives its side files the same permissions.
        open_private(path).map_err(in_file("create", path))?;
        let open = during("open");
        let connection = Connection::open(path).map_err(&open)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(&open)?;
        write_ahead(&connection).map_err(&open)?;
        // "full" flushes each commit: with "normal", a power cut could take back a call that was already sent.
        connection.pragma_update(None, "synchronous", "full").map_err(&open)?;
        // Removed rows are overwritten with zeros.
        connection.pragma_update(None, "secure_delete", true).map_err(open)?;
        Self::of(connection, Keeping::Disk(path.with_file_name(LOCKS)), Some(lock))
    }

    /// Opens a temporary copy of the journal at `path`, with its write-ahead log.
    ///
    /// For folders that cannot be written to: SQLite cannot even read a database in write-ahead mode there, because it
    /// needs a side file.
    pub(crate) fn open_copy(path: &Path) -> Result<Self, JournalError> {
        let failed = in_file("copy", path);
        let folder = tempfile::tempdir().map_err(failed)?;
        let copy = folder.path().join("state.db");
        copy_with_log(path, &copy).map_err(failed)?;
        let mut journal = Self::open(&copy)?;
        journal.keeping = Keeping::Copy { _folder: Arc::new(folder) };
        Ok(journal)
    }

    /// Opens an empty journal in memory.
    pub(crate) fn in_memory() -> Result<Self, JournalError> {
        Self::of(Connection::open_in_memory().map_err(during("open"))?, Keeping::Memory, None)
    }

    fn of(mut connection: Connection, keeping: Keeping, lock: Option<FileLock>) -> Result<Self, JournalError> {
        // First of all: a trigger or a view of a foreign database could take part in any later statement.
        harden(&connection).map_err(during("open"))?;
        // Off by default in SQLite. The rows of a run are removed by its cascades.
        connection.pragma_update(None, "foreign_keys", true).map_err(during("open"))?;
        let found = version(&connection).map_err(during("read"))?;
        // Before the parts are compared: those of a newer format are not known.
        if found > MIGRATIONS.len() {
            return Err(JournalError::TooNew { found, known: MIGRATIONS.len() });
        }
        let parts = differences(&connection).map_err(during("read"))?;
        if !parts.is_empty() {
            return Err(JournalError::Altered { parts });
        }
        migrate(&mut connection, &MIGRATIONS).map_err(during("migrate"))?;
        // After the migrations, which write.
        connection.pragma_update(None, QUERY_ONLY, true).map_err(during("open"))?;
        Ok(Self {
            database: Arc::new(Database { connection: Mutex::new(connection), _lock: lock }),
            keeping,
            #[cfg(test)]
            writes_left: Arc::new(i64::MAX.into()),
            #[cfg(test)]
            writes_from_job: Arc::new((-1).into()),
        })
    }

    /// Lets `writes` more writes succeed and fails all after them, as if the process had been killed there.
    #[cfg(test)]
    pub(in crate::run) fn kill_after(&self, writes: i64) {
        self.writes_left.store(writes, std::sync::atomic::Ordering::SeqCst);
    }

    /// As [`Self::kill_after`], counted from the first record of the text of a job, which is the first write.
    #[cfg(test)]
    pub(in crate::run) fn kill_from_job(&self, writes: i64) {
        self.writes_from_job.store(writes, std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns how many of the writes allowed by [`Self::kill_after`] are left.
    #[cfg(test)]
    pub(in crate::run) fn writes_left(&self) -> i64 {
        self.writes_left.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Changes rows behind the back of the journal. Values that a table refuses are left out.
    #[cfg(test)]
    pub(in crate::run) async fn damage(&self, sql: &str) {
        let sql = sql.to_owned();
        let _ = self.write(move |connection| connection.execute_batch(&sql)).await;
    }

    /// Takes the lock of a run. The only way to get a [`LockedRun`], and so to write. Returns `None` for a copy.
    pub(super) fn lock(&self, run: &RunId) -> Option<Result<LockedRun, FileLockError>> {
        let lock = match &self.keeping {
            Keeping::Disk(locks) => FileLock::take(&run_lock(locks, run)).map(Some),
            Keeping::Copy { .. } => return None,
            Keeping::Memory => Ok(None),
        };
        Some(lock.map(|lock| LockedRun::new(run.clone(), self.clone(), lock)))
    }

    /// Returns the folder of the lock files of its runs, if it has one.
    pub(super) fn locks(&self) -> Option<&Path> {
        match &self.keeping {
            Keeping::Disk(locks) => Some(locks),
            Keeping::Copy { .. } | Keeping::Memory => None,
        }
    }

    /// Returns whether its runs outlive this process.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.keeping, Keeping::Memory)
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let database = Arc::clone(&self.database);
        tokio::task::spawn_blocking(move || work(&locked(&database.connection))).await?
    }

    /// Runs `work` with a connection that may write. [`LockedRun`] is the way to get here.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let database = Arc::clone(&self.database);
        tokio::task::spawn_blocking(move || database.write(work)).await?
    }

    /// Checks every page and every index of the database; returns the problems found, empty if it is sound.
    pub(crate) async fn check(&self) -> Result<String, JournalError> {
        self.read(|connection| {
            let lines: Vec<String> = rows(connection, "PRAGMA integrity_check(5)", [], |row| row.get(0))?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect::<Vec<_>>().join("; "))
        })
        .await
    }
}

impl Database {
    /// Runs `work` with a connection that may write.
    fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let connection = locked(&self.connection);
        connection.pragma_update(None, QUERY_ONLY, false).map_err(during("write to"))?;
        let _read_only = ReadOnly(&connection);
        work(&connection).map_err(during("write to"))
    }
}

/// Makes a connection read-only again when it is dropped.
struct ReadOnly<'a>(&'a Connection);

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.pragma_update(None, QUERY_ONLY, true) {
            tracing::warn!(%error, "journal stays open for writing");
        }
    }
}

/// Takes the lock that is shared by all processes that have the database at `path` open. Completes a repair that was
/// killed.
fn lock_of(path: &Path) -> Result<FileLock, JournalError> {
    let file = lock_file(path);
    loop {
        let lock = FileLock::share(&file)?;
        // A repair holds the lock alone, so none can begin or end from here on.
        if !is_half_repaired(path) {
            return Ok(lock);
        }
        drop(lock);
        let _alone = FileLock::take(&file)?;
        complete_repair(path).map_err(in_file("repair", path))?;
    }
}

/// Returns the file of the lock on the database at `path`: `state.lock` for `state.db`.
fn lock_file(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

pub(super) fn run_lock(locks: &Path, run: &RunId) -> PathBuf {
    locks.join(format!("{run}.lock"))
}

/// Returns the path of a file beside the database, whose name continues that of the database.
fn side_file(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Copies the database at `from` and its write-ahead log.
fn copy_with_log(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(from, to)?;
    unless_missing(std::fs::copy(side_file(from, "-wal"), side_file(to, "-wal")).map(drop))?;
    // A copy keeps the permissions of the original, which may be read-only.
    make_writable(to)?;
    make_writable(&side_file(to, "-wal"))
}

fn make_writable(path: &Path) -> std::io::Result<()> {
    let Ok(mut permissions) = path.metadata().map(|metadata| metadata.permissions()) else { return Ok(()) };
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
    std::fs::set_permissions(path, permissions)
}

/// Distinguishes a value that cannot be read from a database that cannot be read.
fn read_failed(error: rusqlite::Error) -> JournalError {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, source) => JournalError::Unreadable(source),
        error @ (rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)) => JournalError::Unreadable(error.into()),
        source => during("read")(source),
    }
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, JournalError> {
    let mut statement = connection.prepare_cached(sql).map_err(read_failed)?;
    let rows = statement.query_map(params, read).map_err(read_failed)?;
    rows.collect::<Result<_, _>>().map_err(read_failed)
}

/// A column that holds the serde form of a value as it stands: a word, a number or null. Enums, ids and moments are
/// stored this way, so that their spelling on disk and in an export is the same.
struct Plain<T>(T);

impl<T: Serialize> ToSql for Plain<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let failed = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
        let value = match serde_json::to_value(&self.0).map_err(failed)? {
            serde_json::Value::String(word) => Value::Text(word),
            // SQLite has no unsigned integers; counts never come near the difference.
            serde_json::Value::Number(number) if number.is_u64() || number.is_i64() => {
                Value::Integer(number.as_i64().unwrap_or(i64::MAX))
            }
            serde_json::Value::Null => Value::Null,
            other => {
                return Err(rusqlite::Error::ToSqlConversionFailure(format!("`{other}` is no plain value").into()));
            }
        };
        Ok(ToSqlOutput::Owned(value))
    }
}

impl<T: DeserializeOwned> FromSql for Plain<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let value = match value {
            ValueRef::Null => serde_json::Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Text(_) => value.as_str()?.into(),
            ValueRef::Real(_) | ValueRef::Blob(_) => return Err(FromSqlError::InvalidType),
        };
        serde_json::from_value(value).map(Self).map_err(FromSqlError::other)
    }
}

/// A column that holds JSON.
struct Json<T>(T);

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let failed = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
        Ok(serde_json::to_string(&self.0).map_err(failed)?.into())
    }
}

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

fn plain<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    row.get::<_, Plain<T>>(column).map(|value| value.0)
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    row.get::<_, Json<T>>(column).map(|value| value.0)
}

fn optional_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    row.get::<_, Option<Json<T>>>(column).map(|value| value.map(|value| value.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::clock::Moment;
    use crate::base::id::ContentHash;
    use crate::base::line::with_causes;
    use crate::llm::call::CallKey;
    use crate::llm::message::{Reply, Role, Usage};
    use crate::research::tripwire::Tripped;
    use crate::researcher::settings;
    use crate::run::budget::{BudgetLimits, Purpose};
    use crate::run::event::{Event, Record, RunSettings};
    use crate::run::store::{Store, StoreError};
    use crate::source::Label;

    /// Returns the first event of a run.
    pub(crate) fn started() -> Record {
        let settings = RunSettings { by_rules: true, ..settings(BudgetLimits::default()) };
        let event = Event::Started { question: "why?".parse().unwrap(), settings: Box::new(settings) };
        Record { seq: 1, at: Moment(7), event }
    }

    pub(super) fn call(key: &str) -> Call {
        let role = Role::Judge;
        Call {
            key: CallKey::new(key),
            kind: CallKind::Prompt(PromptCall { role, is_tight: true, counted_tokens: 6, worst_tokens: 10 }),
            model: "m".into(),
            request_hash: ContentHash::of(b"request"),
            purpose: Purpose::Writing,
            label: Label::Public,
            worst_cost: None,
        }
    }

    /// Returns the outcome of a call with a reply.
    pub(super) fn replied() -> StoredOutcome {
        let usage = Some(Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() });
        let reply = Reply { text: "so".into(), usage, cut_off: false, raw: serde_json::json!({"a": 1}) };
        StoredOutcome::Replied { ended_at: Some(Moment(9)), reply: Some(Box::new(reply)), usage, cost: Some(42) }
    }

    /// Returns a folder and the path of a database in it.
    pub(super) fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        (folder, path)
    }

    /// Returns a run that has begun, in memory.
    async fn begun() -> LockedRun {
        let run = LockedRun::new(RunId::random(5), Journal::in_memory().unwrap(), None);
        run.create("why?", &started()).await.unwrap();
        run
    }

    #[test]
    fn error_of_the_system_may_pass_and_damage_does_not() {
        use rusqlite::ffi::{self, Error};
        let failed = |code| during("read")(rusqlite::Error::SqliteFailure(Error::new(code), None));
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_IOERR, ffi::SQLITE_FULL, ffi::SQLITE_CANTOPEN, ffi::SQLITE_READONLY]
        {
            assert!(failed(code).may_pass() && !failed(code).is_damage(), "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_IOERR_SHORT_READ] {
            assert!(!failed(code).may_pass() && failed(code).is_damage(), "{code}");
        }
    }

    #[test]
    fn journal_is_created_by_several_at_once() {
        for _ in 0..10 {
            let (_folder, path) = place();
            let at_once = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                let open = || {
                    at_once.wait();
                    Journal::open(&path).map(drop)
                };
                let opened: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                for opened in opened {
                    opened.join().unwrap().unwrap();
                }
            });
        }
    }

    #[tokio::test]
    async fn run_reads_back_as_it_was_written_from_a_file_only_its_owner_can_read() {
        let (_folder, path) = place();
        let run = RunId::random(5);
        let first = started();
        {
            let journal = Journal::open(&path).unwrap();
            let locked = LockedRun::new(run.clone(), journal, None);
            locked.create("why?", &first).await.unwrap();
            let id = locked.begin_call(&call("n2/step/1"), Moment(8)).await.unwrap();
            locked.end_call(id, CallState::Sent, replied()).await.unwrap();
            locked.begin_call(&call("judge/1"), Moment(8)).await.unwrap();
        }
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.records(&run).await.unwrap(), [first]);
        let calls = journal.calls(&run).await.unwrap();
        assert_eq!(calls[0].reply().unwrap().raw["a"], 1);
        assert_eq!(
            (calls[0].charged_cost(), calls[0].kind, calls[0].key.node()),
            (Some(42), call("").kind, Some(&"n2".parse().unwrap()))
        );
        assert!(!calls[0].is_open() && calls[1].is_open() && calls[1].key.node().is_none());
        assert_eq!((calls[0].label, calls[0].key.as_str()), (Label::Public, "n2/step/1"));
        #[cfg(unix)]
        for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.unwrap().metadata().unwrap().permissions());
            assert_eq!(mode & 0o077, 0);
        }
        assert!(LockedRun::new(run.clone(), journal.clone(), None).remove().await.unwrap());
        assert!(journal.calls(&run).await.unwrap().is_empty() && journal.runs().await.unwrap().runs.is_empty());
    }

    #[tokio::test]
    async fn copy_of_a_journal_has_what_its_side_file_has_and_leaves_both_alone() {
        let (_folder, path) = place();
        // It stays open, so that the newest entries are in its side file alone.
        let journal = Journal::open(&path).unwrap();
        let (run, record) = (RunId::random(1), started());
        LockedRun::new(run.clone(), journal.clone(), None).create("q", &record).await.unwrap();
        let before = std::fs::read(&path).unwrap();
        let copy = Journal::open_copy(&path).unwrap();
        assert_eq!(copy.records(&run).await.unwrap(), vec![record]);
        assert!(LockedRun::new(run, copy, None).remove().await.unwrap());
        assert_eq!((journal.runs().await.unwrap().runs.len(), std::fs::read(&path).unwrap()), (1, before));
        assert_eq!(journal.check().await.unwrap(), "");
    }

    #[tokio::test]
    async fn run_is_removed_although_its_text_stays_in_a_log_that_another_process_reads() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let run = store.lock(&RunId::random(5)).unwrap();
        run.create("Where is Ottoline?", &started()).await.unwrap();
        store.journal().write(|connection| connection.busy_timeout(Duration::ZERO)).await.unwrap();
        let reader = Connection::open(folder.path().join("state.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
        let error = store.remove(run).await.unwrap_err();
        assert!(matches!(error, StoreError::InLog { .. }), "{error:?}");
        assert!(store.journal().runs().await.unwrap().runs.is_empty() && Store::worked_on(folder.path()).is_empty());
        drop((reader, store));
        std::fs::remove_dir(folder.path().join("runs")).unwrap();
        for (file, bytes) in files(folder.path()) {
            assert!(!bytes.windows(8).any(|part| part == b"Ottoline"), "{}", file.display());
        }
    }

    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect();
        files.sort();
        files
    }

    /// Returns the questions that a glance finds, which changes no file.
    fn glanced(path: &Path) -> Option<Vec<String>> {
        let before = files(path.parent().unwrap());
        let found = Journal::glance(path);
        assert!(files(path.parent().unwrap()) == before, "a file was changed");
        found.map(|runs| runs.into_iter().map(|run| run.question).collect())
    }

    #[tokio::test]
    async fn glance_at_a_journal_finds_its_newest_runs_and_changes_no_file() {
        let (folder, path) = place();
        assert_eq!(glanced(&path), None);

        // Formats of earlier versions are read as they are.
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, &MIGRATIONS[..1]).unwrap();
        old.execute("INSERT INTO runs VALUES ('0000000000000005', 'old?', 7)", []).unwrap();
        drop(old);
        assert_eq!(glanced(&path).unwrap(), ["old?"]);

        let journal = Journal::open(&path).unwrap();
        let newer = Record { at: Moment(8), ..started() };
        LockedRun::new(RunId::random(1), journal.clone(), None).create("new?", &newer).await.unwrap();
        // As after a kill, and as another process sees it: with a log that has the newest run alone.
        let killed = tempfile::tempdir().unwrap();
        for (file, bytes) in files(folder.path()) {
            std::fs::write(killed.path().join(file.file_name().unwrap()), bytes).unwrap();
        }
        assert_eq!(glanced(&killed.path().join("state.db")).unwrap(), ["new?", "old?"]);
        drop(journal);
        assert_eq!(glanced(&path).unwrap(), ["new?", "old?"]);

        Connection::open(&path).unwrap().execute_batch("CREATE VIEW foreign_part AS SELECT 1").unwrap();
        assert_eq!(glanced(&path), None, "a journal that dr did not write");
        std::fs::write(&path, "no database").unwrap();
        assert_eq!(glanced(&path), None);
    }

    #[tokio::test]
    async fn code_that_reads_cannot_write() {
        let run = LockedRun::new(RunId::random(5), Journal::in_memory().unwrap(), None);
        for _ in 0..2 {
            run.create("why?", &started()).await.unwrap();
            let delete = |connection: &Connection| connection.execute("DELETE FROM runs", []).map_err(read_failed);
            let refused = with_causes(&run.journal().read(delete).await.unwrap_err());
            assert!(refused.contains("readonly"), "{refused}");
            assert!(run.remove().await.unwrap());
        }
    }

    #[tokio::test]
    async fn write_that_outlives_its_task_keeps_the_lock_of_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let id = RunId::random(5);
        let run = store.lock(&id).unwrap();
        let (begun, begins) = std::sync::mpsc::channel();
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let task = tokio::spawn(async move {
            let work = move |_: &Connection, _: &RunId| {
                begun.send(()).unwrap();
                let _ = finished.recv();
                Ok(())
            };
            run.write(work).await
        });
        tokio::task::yield_now().await;
        begins.recv().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(matches!(store.lock(&id), Err(StoreError::Busy { .. })), "the write is still under way");
        drop(finish);
    }

    #[tokio::test]
    async fn event_with_a_number_that_is_taken_is_refused() {
        let run = begun().await;
        assert!(run.append(&started()).await.is_err());
    }

    #[tokio::test]
    async fn text_that_is_kept_back_again_is_listed_once_and_one_that_left_again_twice() {
        let run = begun().await;
        let tripped = || Some(Withheld::Tripped(Tripped::Token));
        for withheld in [None, tripped(), None, tripped()] {
            let row = EgressRow {
                node: "n2".parse().unwrap(),
                at: Moment(8),
                kind: EgressKind::Query,
                target: "the web".into(),
                text: "copper gutters".into(),
                withheld,
            };
            run.record_egress(&row).await.unwrap();
        }
        let listed: Vec<_> =
            run.journal().egress(run.id()).await.unwrap().into_iter().map(|row| row.withheld.is_some()).collect();
        assert_eq!(listed, [false, true, false]);
    }

    #[tokio::test]
    async fn reason_of_a_withheld_text_is_a_word_on_disk_and_a_sentence_to_people_as_before() {
        let run = begun().await;
        let sentence = Tripped::Run.to_string();
        let reasons =
            [Withheld::Tripped(Tripped::Run), Withheld::Tripped(Tripped::Token), Withheld::Said(sentence.clone())];
        for (reason, text) in reasons.iter().zip(["one", "two", "three"]) {
            let row = EgressRow {
                node: "n2".parse().unwrap(),
                at: Moment(8),
                kind: EgressKind::Query,
                target: "the web".into(),
                text: text.into(),
                withheld: Some(reason.clone()),
            };
            run.record_egress(&row).await.unwrap();
        }
        let stored = |connection: &Connection| rows(connection, "SELECT withheld FROM egress", [], |row| row.get(0));
        let stored: Vec<String> = run.journal().read(stored).await.unwrap();
        assert_eq!(stored, ["words", "token", sentence.as_str()]);
        let listed = run.journal().egress(run.id()).await.unwrap();
        assert!(listed.iter().map(|row| row.withheld.as_ref()).eq(reasons.iter().map(Some)), "{listed:?}");
        assert_eq!(serde_json::to_value(&listed[0]).unwrap()["withheld"], sentence);
        assert!(!run.journal().is_egress_altered(run.id()).await.unwrap());
    }

    #[test]
    fn database_of_format_one_is_brought_up_to_date_with_everything_in_it() {
        let (_folder, path) = place();
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, &MIGRATIONS[..1]).unwrap();
        old.execute("INSERT INTO runs VALUES ('0000000000000005', 'why?', 7)", []).unwrap();
        drop(old);
        let journal = Journal::open(&path).unwrap();
        let connection = locked(&journal.database.connection);
        assert_eq!(version(&connection).unwrap(), MIGRATIONS.len());
        let question: String = connection.query_row("SELECT question FROM runs", [], |row| row.get(0)).unwrap();
        assert_eq!(question, "why?");
        connection.execute("SELECT count(*) FROM lookups", []).unwrap_err();
        assert_eq!(connection.query_row("SELECT count(*) FROM lookups", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[tokio::test]
    async fn word_this_version_does_not_know_is_an_error_that_names_it() {
        let run = begun().await;
        run.begin_call(&call("judge/1"), Moment(8)).await.unwrap();
        run.write(|connection, _| connection.execute("UPDATE calls SET outcome = 'sunk'", [])).await.unwrap();
        let error = with_causes(&run.journal().calls(run.id()).await.unwrap_err());
        assert!(error.starts_with("journal has an entry that cannot be read: unknown variant `sunk`"), "{error}");
        run.write(|connection, _| connection.execute("UPDATE calls SET outcome = 'sent', sent_at = -1", []))
            .await
            .unwrap();
        assert!(matches!(run.journal().calls(run.id()).await, Err(JournalError::Unreadable(_))));
    }

    #[tokio::test]
    async fn call_of_another_run_is_not_ended_and_gets_no_job() {
        let journal = Journal::in_memory().unwrap();
        let [mine, other] = [1, 2].map(|id| LockedRun::new(RunId::random(id), journal.clone(), None));
        mine.create("why?", &started()).await.unwrap();
        other.create("why?", &started()).await.unwrap();
        let id = mine.begin_call(&call("judge/1"), Moment(8)).await.unwrap();
        let ended = other.end_call(id, CallState::Sent, replied()).await;
        assert!(matches!(ended, Err(JournalError::Ended { call }) if call == id));
        assert!(matches!(attach(&other, id).await, Err(JournalError::Ended { call }) if call == id));
        let call = journal.calls(mine.id()).await.unwrap().remove(0);
        assert_eq!((call.state(), call.job), (CallState::Sent, None));
    }

    async fn attach(run: &LockedRun, call: i64) -> Result<(), JournalError> {
        let endpoint = JobEndpoint { address: "http://localhost".into(), key: None, is_web_only: true };
        run.attach_job(call, &"resp_7".parse().unwrap(), ProviderKind::OpenAi, endpoint).await
    }

    #[tokio::test]
    async fn call_that_ended_is_not_ended_again_and_starts_no_job() {
        let run = LockedRun::new(RunId::random(1), Journal::in_memory().unwrap(), None);
        run.create("why?", &started()).await.unwrap();
        let id = run.begin_call(&call("judge/1"), Moment(8)).await.unwrap();
        let end = |reason: &'static str| {
            let run = run.clone();
            let outcome = StoredOutcome::Unknown { ended_at: Some(Moment(9)), error: reason.into() };
            async move { run.end_call(id, CallState::Sent, outcome).await }
        };
        end("timed out").await.unwrap();
        assert!(matches!(end("refused").await, Err(JournalError::Ended { .. })));
        assert!(matches!(attach(&run, id).await, Err(JournalError::Ended { .. })));
        let outcome = run.journal().calls(run.id()).await.unwrap().remove(0).outcome;
        assert!(matches!(outcome, StoredOutcome::Unknown { error, .. } if error == "timed out"));
    }

    #[tokio::test]
    async fn purpose_of_calls_from_before_it_was_stored_is_read_off_their_keys_once() {
        let (_folder, path) = place();
        let run = RunId::random(5);
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, &MIGRATIONS[..3]).unwrap();
        old.execute("INSERT INTO runs VALUES (?1, 'why?', 7)", [run.as_str()]).unwrap();
        for key in ["n1/step/1", "write", "write/section/2", "output", "output/repair", "draft/1"] {
            let sql = "INSERT INTO calls (run, key, role, model, request_hash, is_tight, counted_tokens, worst_tokens, \
                       sent_at, outcome) VALUES (?1, ?2, 'writer', 'm', '', 0, 1, 2, 8, 'sent')";
            old.execute(sql, [run.as_str(), key]).unwrap();
        }
        drop(old);
        let calls = Journal::open(&path).unwrap().calls(&run).await.unwrap();
        let writing: Vec<_> = calls.iter().filter(|call| call.purpose == Purpose::Writing).collect();
        let keys: Vec<_> = writing.iter().map(|call| call.key.as_str()).collect();
        assert_eq!((calls.len(), keys), (6, vec!["write", "write/section/2", "output", "output/repair"]));
    }

    #[test]
    fn triggers_and_views_of_a_database_do_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        harden(&connection).unwrap();
        let hostile = "CREATE TABLE a (x); CREATE VIEW b AS SELECT 7;
            CREATE TRIGGER c AFTER INSERT ON a BEGIN UPDATE a SET x = 9; END; INSERT INTO a VALUES (1);";
        connection.execute_batch(hostile).unwrap();
        assert_eq!(connection.query_row("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        let error = connection.query_row("SELECT * FROM b", [], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("view"), "{error}");
        connection.execute_batch("PRAGMA writable_schema = 1; DELETE FROM sqlite_schema").unwrap_err();
    }

    #[test]
    fn database_of_a_newer_dr_is_refused() {
        let (_folder, path) = place();
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let error = Journal::open(&path).err().unwrap();
        assert_eq!(error.to_string(), "journal has format 99, but this version of dr supports up to 10");
    }
}
