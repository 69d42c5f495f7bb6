//! Runs and their events.

use rusqlite::params;
use serde::Serialize;

use super::{Journal, JournalError, natural, number, query, stored};
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::run::event::{Event, Record};

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

impl Journal {
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
}

fn body(event: &Event) -> Result<String, JournalError> {
    Ok(serde_json::to_string(event)?)
}
