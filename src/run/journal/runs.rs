//! Runs and their events.

use std::collections::HashSet;
use std::path::Path;

use reqwest::Url;
use rusqlite::{Connection, OpenFlags, Row, named_params};
use serde::Serialize;

use super::salvage::runs_with_events;
use super::schema::{differences, harden};
use super::{
    Journal, JournalError, Json, LockedRun, MIGRATIONS, Plain, json, plain, read_failed, rows, side_file, version,
};
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::base::line::with_causes;
use crate::run::event::{Event, Record};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RunRow {
    pub(crate) id: RunId,
    pub(crate) question: String,
    pub(crate) started_at: Moment,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunList {
    /// The runs that can be read, newest first.
    pub(crate) runs: Vec<RunRow>,
    /// Why the list may not be complete.
    pub(crate) damage: Option<String>,
}

/// Maximum number of runs of [`Journal::glance`]: as many as a terminal can list.
const GLANCED: usize = 50;

const INSERT_EVENT: &str = "INSERT INTO events (run, seq, at, body) VALUES (:run, :seq, :at, :body)";

impl LockedRun {
    /// Creates the run with its first event, in one commit.
    pub async fn create(&self, question: &str, first: &Record) -> Result<(), JournalError> {
        let (question, Record { seq, at, event }) = (question.to_owned(), first.clone());
        self.write(move |connection, run| {
            // Unchecked is safe: `write` lends the connection under its lock, so no other transaction is open.
            let transaction = connection.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO runs (id, question, started_at) VALUES (:id, :question, :started_at)",
                named_params! { ":id": run.as_str(), ":question": question, ":started_at": Plain(at) },
            )?;
            let values =
                named_params! { ":run": run.as_str(), ":seq": Plain(seq), ":at": Plain(at), ":body": Json(event) };
            transaction.execute(INSERT_EVENT, values)?;
            transaction.commit()
        })
        .await
    }

    /// Appends an event. One with a number that is taken is refused.
    pub async fn append(&self, record: &Record) -> Result<(), JournalError> {
        let Record { seq, at, event } = record.clone();
        self.write(move |connection, run| {
            let values =
                named_params! { ":run": run.as_str(), ":seq": Plain(seq), ":at": Plain(at), ":body": Json(event) };
            connection.execute(INSERT_EVENT, values).map(drop)
        })
        .await
    }

    /// Removes the run and all rows that belong to it; returns whether it existed. The database overwrites them with
    /// zeros; the log has them until [`Self::scrub`].
    pub(crate) async fn remove(&self) -> Result<bool, JournalError> {
        self.write(|connection, run| {
            let transaction = connection.unchecked_transaction()?;
            let mut removed = transaction.execute("DELETE FROM runs WHERE id = ?1", [run.as_str()])?;
            // In a damaged journal, events may have no row in `runs`.
            removed += transaction.execute("DELETE FROM events WHERE run = ?1", [run.as_str()])?;
            transaction.commit()?;
            Ok(removed > 0)
        })
        .await
    }

    /// Empties the write-ahead log, which has rows that were removed, and returns the room they took to the system.
    ///
    /// # Errors
    ///
    /// Returns an error if another process reads or writes all the time that SQLite waits for it.
    pub(crate) async fn scrub(&self) -> Result<(), JournalError> {
        self.journal
            .write(|connection| {
                connection.execute_batch("VACUUM")?;
                // Last, since `VACUUM` writes the remaining pages through the log. A log in use is no error to SQLite.
                let is_busy =
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>("busy"))?;
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                if is_busy { Err(rusqlite::Error::SqliteFailure(busy, None)) } else { Ok(()) }
            })
            .await
    }
}

impl Journal {
    /// Returns all events of a run in order; empty for a run that does not exist.
    pub(crate) async fn records(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            rows(connection, "SELECT seq, at, body FROM events WHERE run = ?1 ORDER BY seq", [run], |row| {
                let event: Event = json(row, "body")?;
                Ok(Record { seq: plain(row, "seq")?, at: plain(row, "at")?, event })
            })
        })
        .await
    }

    /// Returns the newest runs of the database at `path`, for shell completion. Creates, migrates, locks and awaits
    /// nothing; returns `None` if the runs cannot be read that way.
    pub(crate) fn glance(path: &Path) -> Option<Vec<RunRow>> {
        // A link here could lead to another file.
        if !path.symlink_metadata().ok()?.is_file() {
            return None;
        }
        // The log has rows while a process has the database open, and after one that was killed. Without it, the file
        // alone is read: SQLite would create the log, and a file of locks beside it.
        let has_log = side_file(path, "-wal").metadata().is_ok_and(|log| log.len() > 0);
        let mut address = Url::from_file_path(path).ok()?;
        address.set_query(Some(if has_log { "mode=ro&readonly_shm=1" } else { "mode=ro&immutable=1" }));
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        newest(&Connection::open_with_flags(address.as_str(), flags).ok()?)
    }

    /// Returns all runs, newest first, as far as they can be read.
    pub(crate) async fn runs(&self) -> Result<RunList, JournalError> {
        self.read(|connection| {
            let mut list = RunList::default();
            if let Err(error) = read_list(connection, &mut list) {
                let error = read_failed(error);
                // A busy file, for example, is an error; only a damaged one has a partial list.
                if !error.is_damage() {
                    return Err(error);
                }
                list.damage = Some(with_causes(&error));
            }
            // A run whose row is damaged still has its events.
            let listed: HashSet<_> = list.runs.iter().map(|run| run.id.clone()).collect();
            let found = runs_with_events(connection).into_iter().filter_map(|id| id.parse::<RunId>().ok());
            list.runs.extend(found.filter(|id| !listed.contains(id)).map(|id| row_of_events(connection, id)));
            list.runs.sort_by(|a, b| b.started_at.cmp(&a.started_at).then_with(|| a.id.cmp(&b.id)));
            Ok(list)
        })
        .await
    }
}

/// Returns the newest runs of a database, if `dr` made it, and not a newer one.
fn newest(connection: &Connection) -> Option<Vec<RunRow>> {
    harden(connection).ok()?;
    if version(connection).ok()? > MIGRATIONS.len() || !differences(connection).ok()?.is_empty() {
        return None;
    }
    let sql = format!("SELECT id, question, started_at FROM runs ORDER BY started_at DESC, id LIMIT {GLANCED}");
    let runs = rows(connection, &sql, [], |row| {
        Ok(RunRow { id: plain(row, "id")?, question: lossy(row, "question"), started_at: plain(row, "started_at")? })
    });
    runs.ok()
}

/// Reads the table of runs up to the first row that SQLite cannot reach.
fn read_list(connection: &Connection, list: &mut RunList) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT id, question, started_at FROM runs")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match plain(row, "id") {
            Ok(id) => list.runs.push(RunRow {
                id,
                question: lossy(row, "question"),
                // A run with an unreadable time is listed all the same, as the oldest.
                started_at: plain(row, "started_at").unwrap_or(Moment(0)),
            }),
            Err(error) => list.damage = Some(format!("id of a run cannot be read: {error}")),
        }
    }
    Ok(())
}

/// Returns a run by its first event.
fn row_of_events(connection: &Connection, id: RunId) -> RunRow {
    let sql = "SELECT at, body FROM events WHERE run = ?1 ORDER BY seq LIMIT 1";
    let first = connection.query_row(sql, [id.as_str()], |row| Ok((plain(row, "at")?, json::<Event>(row, "body")?)));
    match first {
        Ok((started_at, Event::Started { question, .. })) => {
            RunRow { id, question: question.as_str().to_owned(), started_at }
        }
        _ => RunRow { id, question: String::new(), started_at: Moment(0) },
    }
}

/// Returns a column as text, with a mark for each byte that is not UTF-8.
fn lossy(row: &Row<'_>, column: &str) -> String {
    let text = row.get_ref(column).ok().and_then(|value| value.as_bytes().ok());
    text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}
