//! Events and calls on disk: what is written down here is never paid for twice.
//!
//! One `SQLite` database for all runs, in write-ahead mode with every commit flushed to the disk, readable by its owner
//! alone. A call is written down before it is sent, and its raw reply before anything uses it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::event::{Event, Record};
use crate::base::clock::Moment;
use crate::base::id::{ContentHash, RunId};
use crate::llm::call::CallKey;
use crate::llm::message::{Reply, Role, Usage};
use crate::llm::openai::job::JobId;
use crate::research::node::NodeId;

/// How long another process's commit is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What brings a database from each version of the format to the next; their number is the version of this program.
const MIGRATIONS: [&str; 3] = [
    "CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        question TEXT NOT NULL,
        started_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE events (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE calls (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        role TEXT NOT NULL,
        model TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        is_tight INTEGER NOT NULL,
        counted_tokens INTEGER NOT NULL,
        worst_tokens INTEGER NOT NULL,
        worst_cost INTEGER,
        sent_at INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        ended_at INTEGER,
        reply TEXT,
        error TEXT,
        usage TEXT,
        cost INTEGER
    ) STRICT;
    CREATE INDEX calls_by_key ON calls (run, key);",
    "CREATE TABLE lookups (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        tool TEXT NOT NULL,
        query TEXT NOT NULL,
        scope TEXT NOT NULL,
        label TEXT NOT NULL,
        version TEXT NOT NULL,
        at INTEGER NOT NULL,
        answered_by INTEGER REFERENCES lookups (id) ON DELETE SET NULL,
        result TEXT,
        vector BLOB
    ) STRICT;
    CREATE INDEX lookups_by_query ON lookups (tool, version, query);
    CREATE INDEX lookups_by_run ON lookups (run);
    CREATE INDEX lookups_by_answer ON lookups (answered_by);",
    "ALTER TABLE calls ADD COLUMN job TEXT;
    CREATE TABLE egress (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        text TEXT NOT NULL,
        withheld TEXT
    ) STRICT;
    CREATE INDEX egress_by_run ON egress (run);",
];

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

/// A call that is about to be sent.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Its name within the run.
    pub key: CallKey,
    /// Who asks.
    pub role: Role,
    /// The model.
    pub model: String,
    /// Hash of everything the request says.
    pub request: ContentHash,
    /// Whether the budget was tight when the call was made, which its prompt says.
    pub is_tight: bool,
    /// Tokens of the prompt as counted here.
    pub counted_tokens: u64,
    /// Tokens it may cost at most.
    pub worst_tokens: u64,
    /// Money it may cost at most, in billionths of a dollar; none where no price is known.
    pub worst_cost: Option<u64>,
    /// When.
    pub sent_at: Moment,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With a reply, which costs so much; none where no price is known.
    Replied(Box<Reply>, Option<u64>),
    /// Without one, and nothing was paid.
    Failed(String),
    /// Nobody knows; the worst case stays charged.
    Unknown(String),
    /// Without one, for certain, and it has cost so much; where nobody knows how much, the worst case stays charged.
    Lost(String, Option<u64>),
}

/// A call as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// Its number among all calls.
    pub id: i64,
    /// Its name within the run.
    pub key: CallKey,
    /// Who asked.
    pub role: Role,
    /// The model.
    pub model: String,
    /// Hash of everything the request said.
    pub request_hash: String,
    /// Whether the budget was tight when it was made.
    pub is_tight: bool,
    /// Tokens of the prompt as counted before it was sent.
    pub counted_tokens: u64,
    /// Tokens it might have cost at most.
    pub worst_tokens: u64,
    /// Money it might have cost at most, in billionths of a dollar.
    pub worst_cost: Option<u64>,
    /// When it was sent.
    pub sent_at: Moment,
    /// `sent`, `replied`, `failed`, `unknown` or `lost`.
    pub outcome: String,
    /// When it ended.
    pub ended_at: Option<Moment>,
    /// The reply, raw body included.
    pub reply: Option<Reply>,
    /// Why there is none.
    pub error: Option<String>,
    /// Tokens it cost.
    pub usage: Option<Usage>,
    /// Money it cost, in billionths of a dollar.
    pub cost: Option<u64>,
    /// The job it started, where it started one.
    pub job: Option<String>,
}

impl CallRow {
    /// Returns the node it was made for, where it was made for one.
    pub fn node(&self) -> Option<NodeId> {
        self.key.as_str().split('/').next()?.parse().ok()
    }

    /// Returns the money this call is charged, in billionths of a dollar: its worst case where nobody knows what became of
    /// it; none where no price is known.
    pub fn charged_cost(&self) -> Option<u64> {
        match self.outcome.as_str() {
            _ if self.is_open() => self.worst_cost,
            "lost" => self.cost.or(self.worst_cost),
            _ => self.cost,
        }
    }

    /// Tells whether the worst case of this call stays charged because nobody knows what became of it.
    pub fn is_open(&self) -> bool {
        matches!(self.outcome.as_str(), "sent" | "unknown")
    }
}

/// A run as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// What was asked.
    pub question: String,
    /// When it began.
    pub started_at: Moment,
}

/// A question put to a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// The node it was put for.
    pub node: String,
    /// `search` or `open`, and of which source.
    pub tool: String,
    /// The query, normalised.
    pub query: String,
    /// What was searched.
    pub scope: String,
    /// Who may see the result.
    pub label: String,
    /// What the result depends on besides the query.
    pub version: String,
}

/// A result on record.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupRow {
    /// Its number.
    pub id: i64,
    /// The query it answers.
    pub query: String,
    /// The result as JSON.
    pub result: String,
    /// The query as a vector, where it was embedded.
    pub vector: Option<Vec<f32>>,
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
    pub(super) fn kill_after(&self, writes: i64) {
        self.writes_left.store(writes, std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns how many writes were made since [`Self::kill_after`].
    #[cfg(test)]
    pub(super) fn writes_left(&self) -> i64 {
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

    /// Begins a run with its first event.
    pub async fn create(&self, run: &RunId, question: &str, first: &Record) -> Result<(), JournalError> {
        let (run, question, at, body) = (run.to_string(), question.to_owned(), stored(first.at), body(&first.event)?);
        self.write(move |connection| {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute("INSERT INTO runs VALUES (?1, ?2, ?3)", params![run, question, at])?;
            transaction.execute("INSERT INTO events VALUES (?1, 1, ?2, ?3)", params![run, at, body])?;
            transaction.commit()
        })
        .await
    }

    /// Writes the next event of a run down.
    pub async fn append(&self, run: &RunId, record: &Record) -> Result<(), JournalError> {
        let (run, seq, at, body) = (run.to_string(), number(record.seq), stored(record.at), body(&record.event)?);
        self.write(move |connection| {
            connection.execute("INSERT INTO events VALUES (?1, ?2, ?3, ?4)", params![run, seq, at, body]).map(drop)
        })
        .await
    }

    /// Returns all events of a run, in order; none for a run that does not exist.
    pub async fn records(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let rows =
                query(connection, "SELECT seq, at, body FROM events WHERE run = ?1 ORDER BY seq", &run, |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
                })?;
            rows.into_iter()
                .map(|(seq, at, body)| {
                    Ok(Record { seq: natural(seq), at: Moment(natural(at)), event: serde_json::from_str(&body)? })
                })
                .collect()
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

    /// Returns all runs, newest first.
    pub async fn runs(&self) -> Result<Vec<RunRow>, JournalError> {
        self.read(|connection| {
            let sql = "SELECT id, question, started_at FROM runs WHERE ?1 = '' ORDER BY started_at DESC, id";
            let rows = query(connection, sql, "", |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
            })?;
            let run = |(id, question, at): (String, String, i64)| {
                Some(RunRow { id: id.parse().ok()?, question, started_at: Moment(natural(at)) })
            };
            Ok(rows.into_iter().filter_map(run).collect())
        })
        .await
    }

    /// Removes a run and everything stored of it; tells whether there was one.
    pub async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let run = run.to_string();
        self.write(move |connection| Ok(connection.execute("DELETE FROM runs WHERE id = ?1", [run])? > 0)).await
    }

    /// Writes down that a call is about to be sent, and returns its number.
    pub async fn begin_call(&self, run: &RunId, call: &NewCall) -> Result<i64, JournalError> {
        let (run, call) = (run.to_string(), call.clone());
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO calls (run, key, role, model, request_hash, is_tight, counted_tokens, worst_tokens, worst_cost, \
                 sent_at, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'sent')",
                params![
                    run,
                    call.key.as_str(),
                    call.role.name(),
                    call.model,
                    call.request.as_str(),
                    call.is_tight,
                    number(call.counted_tokens),
                    number(call.worst_tokens),
                    call.worst_cost.map(number),
                    stored(call.sent_at),
                ],
            )?;
            Ok(connection.last_insert_rowid())
        })
        .await
    }

    /// Writes down how a call ended.
    pub async fn end_call(&self, id: i64, outcome: &Outcome, at: Moment) -> Result<(), JournalError> {
        let (name, reply, error, usage, cost) = match outcome {
            Outcome::Replied(reply, cost) => {
                let usage = reply.usage.map(|usage| serde_json::to_string(&usage)).transpose()?;
                ("replied", Some(serde_json::to_string(reply)?), None, usage, cost.map(number))
            }
            Outcome::Failed(error) => ("failed", None, Some(error.clone()), None, Some(0)),
            Outcome::Unknown(error) => ("unknown", None, Some(error.clone()), None, None),
            Outcome::Lost(error, cost) => ("lost", None, Some(error.clone()), None, cost.map(number)),
        };
        self.write(move |connection| {
            let sql = "UPDATE calls SET outcome = ?2, ended_at = ?3, reply = ?4, error = ?5, usage = ?6, cost = ?7 \
                       WHERE id = ?1";
            connection.execute(sql, params![id, name, stored(at), reply, error, usage, cost]).map(drop)
        })
        .await
    }

    /// Writes down which job a call has started, before anybody asks after it.
    pub async fn attach_job(&self, id: i64, job: &JobId) -> Result<(), JournalError> {
        let job = job.to_string();
        self.write(move |connection| {
            connection.execute("UPDATE calls SET job = ?2 WHERE id = ?1", params![id, job]).map(drop)
        })
        .await
    }

    /// Returns the reply of a call, of whichever run, and the run.
    pub async fn reply(&self, call: i64) -> Result<(RunId, Reply), JournalError> {
        self.read(move |connection| {
            let sql = "SELECT run, reply FROM calls WHERE id = ?1 AND reply IS NOT NULL";
            let columns = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            let (run, reply) = connection.query_row(sql, [call], columns).map_err(read_failed)?;
            Ok((serde_json::from_value(run.into())?, serde_json::from_str(&reply)?))
        })
        .await
    }

    /// Returns the calls made under a key, oldest first.
    pub async fn calls_of(&self, run: &RunId, key: &CallKey) -> Result<Vec<CallRow>, JournalError> {
        let (run, key) = (run.to_string(), key.to_string());
        self.read(move |connection| {
            let sql = format!("SELECT {CALL_COLUMNS} FROM calls WHERE run = ?1 AND key = ?2 ORDER BY id");
            let mut statement = connection.prepare_cached(&sql).map_err(read_failed)?;
            let rows = statement.query_map([run, key], call_columns).map_err(read_failed)?;
            rows.map(|row| call_row(row.map_err(read_failed)?)).collect()
        })
        .await
    }

    /// Returns all calls of a run, oldest first, without their replies.
    pub async fn calls_in_short(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let columns = CALL_COLUMNS.replace("reply", "NULL");
            let sql = format!("SELECT {columns} FROM calls WHERE run = ?1 ORDER BY id");
            query(connection, &sql, &run, call_columns)?.into_iter().map(call_row).collect()
        })
        .await
    }

    /// Returns all calls of a run, oldest first.
    pub async fn calls(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let sql = format!("SELECT {CALL_COLUMNS} FROM calls WHERE run = ?1 ORDER BY id");
            query(connection, &sql, &run, call_columns)?.into_iter().map(call_row).collect()
        })
        .await
    }

    /// Returns the calls of a run by which jobs were started, oldest first.
    pub async fn job_calls(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let role = Role::Researcher.name();
            let sql = format!("SELECT {CALL_COLUMNS} FROM calls WHERE run = ?1 AND role = '{role}' ORDER BY id");
            query(connection, &sql, &run, call_columns)?.into_iter().map(call_row).collect()
        })
        .await
    }

    /// Writes down what a source was asked and what it said, or which earlier answer was used again.
    pub async fn record_lookup(
        &self,
        run: &RunId,
        lookup: &Lookup,
        answer: LookupAnswer,
        at: Moment,
    ) -> Result<(), JournalError> {
        let (run, lookup) = (run.to_string(), lookup.clone());
        let (answered_by, result, vector) = match answer {
            LookupAnswer::New { result, vector } => (None, Some(result), vector),
            LookupAnswer::Known(id) => (Some(id), None, None),
        };
        let vector = vector.map(|vector| vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        self.write(move |connection| {
            connection
                .execute(
                    "INSERT INTO lookups (run, node, tool, query, scope, label, version, at, answered_by, result, \
                     vector) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                    params![
                        run,
                        lookup.node,
                        lookup.tool,
                        lookup.query,
                        lookup.scope,
                        lookup.label,
                        lookup.version,
                        stored(at),
                        answered_by,
                        result,
                        vector,
                    ],
                )
                .map(drop)
        })
        .await
    }

    /// Returns the result on record for exactly this lookup, of `run` or of any other from before `before`.
    pub async fn find_lookup(
        &self,
        run: &RunId,
        lookup: &Lookup,
        before: Moment,
    ) -> Result<Option<LookupRow>, JournalError> {
        let (run, lookup) = (run.to_string(), lookup.clone());
        self.read(move |connection| {
            let sql = "SELECT id, query, result, vector FROM lookups WHERE tool = ?1 AND version = ?2 AND query = ?3 \
                       AND scope = ?4 AND label = ?5 AND result IS NOT NULL AND (run = ?6 OR at < ?7) ORDER BY id LIMIT 1";
            let mut statement = connection.prepare_cached(sql).map_err(read_failed)?;
            let Lookup { tool, version, query, scope, label, .. } = lookup;
            let keys = params![tool, version, query, scope, label, run, stored(before)];
            statement.query_row(keys, lookup_row).optional().map_err(read_failed)
        })
        .await
    }

    /// Returns results on record of other queries to the same source whose query was embedded: those made before
    /// `before`, and those of the same node of the same run, so that what is found does not depend on which node of a
    /// run was faster. Their results are left out, see [`Self::lookup_result`].
    pub async fn near_lookups(
        &self,
        run: &RunId,
        lookup: &Lookup,
        before: Moment,
    ) -> Result<Vec<LookupRow>, JournalError> {
        let (run, lookup) = (run.to_string(), lookup.clone());
        self.read(move |connection| {
            let sql = "SELECT id, query, '', vector FROM lookups WHERE tool = ?1 AND version = ?2 AND scope = ?3 \
                       AND label = ?4 AND vector IS NOT NULL AND result IS NOT NULL AND (at < ?5 AND run <> ?6 OR \
                       run = ?6 AND node = ?7) ORDER BY id";
            let mut statement = connection.prepare_cached(sql).map_err(read_failed)?;
            let keys =
                params![lookup.tool, lookup.version, lookup.scope, lookup.label, stored(before), run, lookup.node];
            let rows = statement.query_map(keys, lookup_row).map_err(read_failed)?;
            rows.map(|row| row.map_err(read_failed)).collect()
        })
        .await
    }

    /// Returns the result of a lookup, as JSON.
    pub async fn lookup_result(&self, id: i64) -> Result<String, JournalError> {
        self.read(move |connection| {
            let sql = "SELECT result FROM lookups WHERE id = ?1";
            connection.query_row(sql, [id], |row| row.get(0)).map_err(read_failed)
        })
        .await
    }

    /// Writes down a text that is about to leave, or that was kept back; a resumed run keeps it back again, which is one
    /// fact and not two.
    pub async fn record_egress(&self, run: &RunId, row: &EgressRow) -> Result<(), JournalError> {
        let (run, row) = (run.to_string(), row.clone());
        self.write(move |connection| {
            let sql = "INSERT INTO egress (run, node, at, kind, target, text, withheld) \
                       SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (SELECT 1 FROM egress WHERE run = ?1 AND \
                       node = ?2 AND kind = ?4 AND text = ?6 AND withheld IS NOT NULL AND ?7 IS NOT NULL)";
            let values = params![run, row.node, stored(row.at), row.kind, row.target, row.text, row.withheld];
            connection.execute(sql, values).map(drop)
        })
        .await
    }

    /// Returns every text of a run that left or was kept back, in order.
    pub async fn egress(&self, run: &RunId) -> Result<Vec<EgressRow>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let sql = "SELECT node, at, kind, target, text, withheld FROM egress WHERE run = ?1 ORDER BY id";
            query(connection, sql, &run, |row| {
                Ok(EgressRow {
                    node: row.get(0)?,
                    at: Moment(natural(row.get(1)?)),
                    kind: row.get(2)?,
                    target: row.get(3)?,
                    text: row.get(4)?,
                    withheld: row.get(5)?,
                })
            })
        })
        .await
    }

    /// Counts the lookups of each node of a run: all, and those that an earlier answer served.
    pub async fn lookup_counts(&self, run: &RunId) -> Result<Vec<(String, u64, u64)>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let sql = "SELECT node, count(*), count(*) - count(result) FROM lookups WHERE run = ?1 GROUP BY node";
            query(connection, sql, &run, |row| Ok((row.get(0)?, natural(row.get(1)?), natural(row.get(2)?))))
        })
        .await
    }
}

/// A text that left the machine, or was to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRow {
    /// The node it was for.
    pub node: String,
    /// When.
    pub at: Moment,
    /// `query`, `address` or `job`.
    pub kind: String,
    /// Who was to get it.
    pub target: String,
    /// The text.
    pub text: String,
    /// Why it was kept back; none where it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Where the answer to a lookup comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupAnswer {
    /// From the source.
    New {
        /// The result as JSON.
        result: String,
        /// The query as a vector, where it was embedded.
        vector: Option<Vec<f32>>,
    },
    /// From an earlier lookup.
    Known(i64),
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// Takes every step the database has not taken yet, each with its version in one transaction.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    if version(connection)? >= migrations.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    for (migration, version) in migrations.iter().zip(1_i64..).skip(version(&transaction)?) {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()
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

fn body(event: &Event) -> Result<String, JournalError> {
    Ok(serde_json::to_string(event)?)
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

const CALL_COLUMNS: &str = "id, key, role, model, request_hash, is_tight, worst_tokens, worst_cost, sent_at, outcome, \
                            ended_at, reply, error, usage, cost, counted_tokens, job";

/// A call as the database has it: its JSON columns are still text.
struct CallColumns {
    row: CallRow,
    role: String,
    reply: Option<String>,
    usage: Option<String>,
}

fn call_columns(row: &Row<'_>) -> rusqlite::Result<CallColumns> {
    Ok(CallColumns {
        role: row.get(2)?,
        reply: row.get(11)?,
        usage: row.get(13)?,
        row: CallRow {
            id: row.get(0)?,
            key: CallKey::new(row.get::<_, String>(1)?),
            role: Role::Worker,
            model: row.get(3)?,
            request_hash: row.get(4)?,
            is_tight: row.get(5)?,
            counted_tokens: natural(row.get(15)?),
            worst_tokens: natural(row.get(6)?),
            worst_cost: row.get::<_, Option<i64>>(7)?.map(natural),
            sent_at: Moment(natural(row.get(8)?)),
            outcome: row.get(9)?,
            ended_at: row.get::<_, Option<i64>>(10)?.map(natural).map(Moment),
            reply: None,
            error: row.get(12)?,
            usage: None,
            cost: row.get::<_, Option<i64>>(14)?.map(natural),
            job: row.get(16)?,
        },
    })
}

fn call_row(columns: CallColumns) -> Result<CallRow, JournalError> {
    let CallColumns { row, role, reply, usage } = columns;
    Ok(CallRow {
        role: serde_json::from_value(role.into())?,
        reply: reply.map(|reply| serde_json::from_str(&reply)).transpose()?,
        usage: usage.map(|usage| serde_json::from_str(&usage)).transpose()?,
        ..row
    })
}

fn lookup_row(row: &Row<'_>) -> rusqlite::Result<LookupRow> {
    let vector: Option<Vec<u8>> = row.get(3)?;
    let floats = |bytes: Vec<u8>| bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Ok(LookupRow { id: row.get(0)?, query: row.get(1)?, result: row.get(2)?, vector: vector.map(floats) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Record {
        let settings = serde_json::from_value(serde_json::json!({
            "mode": "quick", "limits": super::super::budget::BudgetLimits::default(),
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
