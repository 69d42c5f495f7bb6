//! Events and calls on disk: what is written down here is never paid for twice.
//!
//! One `SQLite` database for all runs, in write-ahead mode with every commit flushed to the disk, readable by its owner
//! alone. A call is written down before it is sent, and its raw reply before anything uses it.

mod calls;

mod egress;

mod lookups;

mod runs;

mod schema;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Row};

pub use calls::{CallRow, NewCall, Outcome};
pub use egress::EgressRow;
pub use lookups::{Lookup, LookupAnswer, LookupRow};
pub use runs::RunRow;

use crate::base::clock::Moment;
use schema::{MIGRATIONS, migrate, version};

/// How long another process's commit is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// All runs of a project.
#[derive(Clone)]
pub struct Journal {
    connection: Arc<Mutex<Connection>>,
    /// The folder this is a copy in, removed with it.
    copy: Option<Arc<tempfile::TempDir>>,
    #[cfg(test)]
    writes_left: Arc<std::sync::atomic::AtomicI64>,
}

/// The journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The database failed.
    #[error("failed to {action} the journal")]
    Database {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
    /// The file could not be made.
    #[error("failed to make `{path}`")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another version of `dr` wrote it.
    #[error("journal has format {found}, and this version of dr knows {known}")]
    TooNew {
        /// The format found.
        found: usize,
        /// The newest format known.
        known: usize,
    },
    /// What is stored cannot be read back.
    #[error("journal has an entry that cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The thread that was writing died.
    #[error("journal was given up")]
    Task(#[from] tokio::task::JoinError),
    /// A test stopped the world here.
    #[cfg(test)]
    #[error("killed")]
    Killed,
}

impl JournalError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooNew { .. } => Some("use the newer dr, or move `.dr/state.db` away".into()),
            _ => None,
        }
    }
}

impl Journal {
    /// Opens the database at `path`, or makes it; a database of an older format is brought up to date.
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::TooNew`] for a database of a newer `dr`, and an error where the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        make_private(path).map_err(|source| JournalError::File { path: path.to_path_buf(), source })?;
        let open = |source| JournalError::Database { action: "open", source };
        let connection = Connection::open(path).map_err(open)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(open)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).map_err(open)?;
        connection.pragma_update(None, "synchronous", "full").map_err(open)?;
        Self::of(connection)
    }

    /// Opens a copy of the journal at `path`, with what its side file has; nothing that is written to it is kept.
    ///
    /// `SQLite` cannot read a database in write-ahead mode where it cannot write beside it.
    pub fn open_copy(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::File { path: path.to_path_buf(), source };
        let folder = tempfile::tempdir().map_err(failed)?;
        let copy = folder.path().join("state.db");
        std::fs::copy(path, &copy).map_err(failed)?;
        let side = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
        match std::fs::copy(side(path), side(&copy)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        // Whoever may not write to the original may have made a copy that is just as closed.
        make_writable(&copy).map_err(failed)?;
        make_writable(&side(&copy)).map_err(failed)?;
        let mut journal = Self::open(&copy)?;
        journal.copy = Some(Arc::new(folder));
        Ok(journal)
    }

    /// Makes a journal that is gone when it is dropped, for folders that cannot be written to.
    pub fn in_memory() -> Result<Self, JournalError> {
        Self::of(Connection::open_in_memory().map_err(|source| JournalError::Database { action: "open", source })?)
    }

    fn of(mut connection: Connection) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Database { action: "bring up to date", source };
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        migrate(&mut connection, &MIGRATIONS).map_err(failed)?;
        let found = version(&connection).map_err(failed)?;
        if found > MIGRATIONS.len() {
            return Err(JournalError::TooNew { found, known: MIGRATIONS.len() });
        }
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            copy: None,
            #[cfg(test)]
            writes_left: Arc::new(i64::MAX.into()),
        })
    }

    /// Makes every write after the next `writes` fail, as if the process had been killed there.
    #[cfg(test)]
    pub(in crate::run) fn kill_after(&self, writes: i64) {
        self.writes_left.store(writes, std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns how many writes were made since [`Self::kill_after`].
    #[cfg(test)]
    pub(in crate::run) fn writes_left(&self) -> i64 {
        self.writes_left.load(std::sync::atomic::Ordering::SeqCst)
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let connection = Arc::clone(&self.connection);
        tokio::task::spawn_blocking(move || work(&connection.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        #[cfg(test)]
        if self.writes_left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0 {
            return Err(JournalError::Killed);
        }
        self.read(move |connection| {
            work(connection).map_err(|source| JournalError::Database { action: "write", source })
        })
        .await
    }

    /// Reads every page of the database, and returns what is wrong with it; nothing where it is sound.
    pub async fn check(&self) -> Result<String, JournalError> {
        self.read(|connection| {
            let rows = query(connection, "SELECT * FROM pragma_quick_check WHERE ?1 = ''", "", |row| row.get(0))?;
            let found: Vec<String> = rows;
            Ok(found.into_iter().filter(|line| line != "ok").collect::<Vec<_>>().join("; "))
        })
        .await
    }
}

/// Makes the file where it is missing, for its owner alone; `SQLite` gives its side files the same permissions.
fn make_private(path: &Path) -> std::io::Result<()> {
    // The folder may be somebody else's: a link here would have another file written to.
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn make_writable(path: &Path) -> std::io::Result<()> {
    let mut permissions = match path.metadata() {
        Ok(metadata) => metadata.permissions(),
        Err(_) => return Ok(()),
    };
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
    std::fs::set_permissions(path, permissions)
}

fn read_failed(source: rusqlite::Error) -> JournalError {
    JournalError::Database { action: "read", source }
}

fn query<T>(
    connection: &Connection,
    sql: &str,
    run: &str,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, JournalError> {
    let mut statement = connection.prepare_cached(sql).map_err(read_failed)?;
    let rows = statement.query_map([run], row).map_err(read_failed)?;
    rows.collect::<Result<_, _>>().map_err(read_failed)
}

/// `SQLite` has no unsigned numbers; ours never come near the difference.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn stored(moment: Moment) -> i64 {
    number(moment.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{ContentHash, RunId};
    use crate::llm::call::CallKey;
    use crate::llm::message::{Reply, Role, Usage};
    use crate::run::budget::BudgetLimits;
    use crate::run::event::{Event, Record};

    fn started() -> Record {
        let settings = serde_json::from_value(serde_json::json!({
            "mode": "quick", "limits": BudgetLimits::default(),
            "tree": {"max_depth": 3, "max_nodes": 9}, "parallel": 2, "summary_tokens": 100, "by_rules": true,
            "scope": {}, "searched": "1 file of kb", "source_version": "v"
        }));
        let event = Event::Started { question: "why?".parse().unwrap(), settings: Box::new(settings.unwrap()) };
        Record { seq: 1, at: Moment(7), event }
    }

    fn call(key: &str) -> NewCall {
        NewCall {
            key: CallKey::new(key),
            role: Role::Judge,
            model: "m".into(),
            request: ContentHash::of(b"request"),
            is_tight: true,
            counted_tokens: 6,
            worst_tokens: 10,
            worst_cost: None,
            sent_at: Moment(8),
        }
    }

    #[tokio::test]
    async fn run_reads_back_as_it_was_written_from_a_file_only_its_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let run = RunId::random(5);
        let first = started();
        {
            let journal = Journal::open(&path).unwrap();
            journal.create(&run, "why?", &first).await.unwrap();
            let id = journal.begin_call(&run, &call("n2/step/1")).await.unwrap();
            let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
            let reply =
                Reply { text: "so".into(), usage: Some(usage), cut_off: false, raw: serde_json::json!({"a": 1}) };
            journal.end_call(id, &Outcome::Replied(Box::new(reply), Some(42)), Moment(9)).await.unwrap();
            journal.begin_call(&run, &call("judge/1")).await.unwrap();
        }
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.records(&run).await.unwrap(), [first]);
        let calls = journal.calls(&run).await.unwrap();
        assert_eq!(calls[0].reply.as_ref().unwrap().raw["a"], 1);
        assert_eq!((calls[0].cost, calls[0].role, calls[0].node()), (Some(42), Role::Judge, "n2".parse().ok()));
        assert!(!calls[0].is_open() && calls[1].is_open() && calls[1].node().is_none());
        #[cfg(unix)]
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.unwrap().metadata().unwrap().permissions());
            assert_eq!(mode & 0o077, 0);
        }
        assert!(journal.remove(&run).await.unwrap());
        assert!(journal.calls(&run).await.unwrap().is_empty() && journal.runs().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn copy_of_a_journal_has_what_its_side_file_has_and_leaves_both_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        // It stays open, so that the newest entries are in its side file alone.
        let journal = Journal::open(&path).unwrap();
        let (run, record) = (RunId::random(1), started());
        journal.create(&run, "q", &record).await.unwrap();
        let before = std::fs::read(&path).unwrap();
        let copy = Journal::open_copy(&path).unwrap();
        assert_eq!(copy.records(&run).await.unwrap(), vec![record]);
        assert!(copy.remove(&run).await.unwrap());
        assert_eq!((journal.runs().await.unwrap().len(), std::fs::read(&path).unwrap()), (1, before));
        assert_eq!(journal.check().await.unwrap(), "");
    }

    #[tokio::test]
    async fn event_with_a_number_that_is_taken_is_refused() {
        let journal = Journal::in_memory().unwrap();
        let run = RunId::random(5);
        journal.create(&run, "why?", &started()).await.unwrap();
        assert!(journal.append(&run, &started()).await.is_err());
    }

    #[tokio::test]
    async fn text_that_is_kept_back_again_is_listed_once_and_one_that_left_again_twice() {
        let journal = Journal::in_memory().unwrap();
        let run = RunId::random(5);
        journal.create(&run, "why?", &started()).await.unwrap();
        for withheld in [None, Some("private"), None, Some("private")] {
            let row = EgressRow {
                node: "n2".into(),
                at: Moment(8),
                kind: "query".into(),
                target: "the web".into(),
                text: "copper gutters".into(),
                withheld: withheld.map(str::to_owned),
            };
            journal.record_egress(&run, &row).await.unwrap();
        }
        let listed: Vec<_> =
            journal.egress(&run).await.unwrap().into_iter().map(|row| row.withheld.is_some()).collect();
        assert_eq!(listed, [false, true, false]);
    }

    #[test]
    fn database_of_format_one_is_brought_up_to_date_with_everything_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, &MIGRATIONS[..1]).unwrap();
        old.execute("INSERT INTO runs VALUES ('0000000000000005', 'why?', 7)", []).unwrap();
        drop(old);
        let journal = Journal::open(&path).unwrap();
        let connection = journal.connection.lock().unwrap();
        assert_eq!(version(&connection).unwrap(), MIGRATIONS.len());
        let question: String = connection.query_row("SELECT question FROM runs", [], |row| row.get(0)).unwrap();
        assert_eq!(question, "why?");
        connection.execute("SELECT count(*) FROM lookups", []).unwrap_err();
        assert_eq!(connection.query_row("SELECT count(*) FROM lookups", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[test]
    fn database_of_a_newer_dr_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let error = Journal::open(&path).err().unwrap();
        assert_eq!(error.to_string(), "journal has format 99, and this version of dr knows 3");
    }
}
