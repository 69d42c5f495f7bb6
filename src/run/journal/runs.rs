//! Runs and their events.

use rusqlite::named_params;
use serde::Serialize;

use super::{Journal, JournalError, Json, LockedRun, Plain, json, plain, rows};
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::run::event::{Event, Record};

/// A run as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RunRow {
    pub(crate) id: RunId,
    /// The question as asked.
    pub(crate) question: String,
    /// When it began.
    pub(crate) started_at: Moment,
}

const INSERT_EVENT: &str = "INSERT INTO events (run, seq, at, body) VALUES (:run, :seq, :at, :body)";

impl LockedRun {
    /// Creates the run with its first event, in one commit.
    pub async fn create(&self, question: &str, first: &Record) -> Result<(), JournalError> {
        let (question, Record { seq, at, event }) = (question.to_owned(), first.clone());
        self.write(move |connection, run| {
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

    /// Removes the run and all rows that belong to it; returns whether it existed.
    pub(crate) async fn remove(&self) -> Result<bool, JournalError> {
        self.write(|connection, run| Ok(connection.execute("DELETE FROM runs WHERE id = ?1", [run.as_str()])? > 0))
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

    /// Returns all runs, newest first.
    pub(crate) async fn runs(&self) -> Result<Vec<RunRow>, JournalError> {
        self.read(|connection| {
            rows(connection, "SELECT id, question, started_at FROM runs ORDER BY started_at DESC, id", [], |row| {
                Ok(RunRow {
                    id: plain(row, "id")?,
                    question: row.get("question")?,
                    started_at: plain(row, "started_at")?,
                })
            })
        })
        .await
    }
}
