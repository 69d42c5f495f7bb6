//! Calls of models, written down before they are sent.

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, natural, number, query, read_failed, stored};
use crate::base::clock::Moment;
use crate::base::id::{ContentHash, RunId};
use crate::llm::call::CallKey;
use crate::llm::message::{Reply, Role, Usage};
use crate::llm::openai::job::JobId;
use crate::research::node::NodeId;

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

impl Journal {
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
