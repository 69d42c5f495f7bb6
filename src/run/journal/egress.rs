//! Texts that left the machine, or were withheld.
//!
//! The table is only appended to. Each row has a hash of itself and of the hash of the row before it, and the run has the
//! hash of its last row, so that a row that was changed, removed or inserted later is noticed. The hashes have no key:
//! they show damage and careless changes, not the work of a program that computes them anew.

use std::fmt;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{Journal, JournalError, LockedRun, Plain, plain, read_failed, rows};
use crate::base::clock::Moment;
use crate::base::id::{RunId, as_word};
use crate::research::node::NodeId;
use crate::research::tripwire::Tripped;

/// The form in which a text leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EgressKind {
    /// A query to a search engine.
    Query,
    /// The address of a page to fetch.
    Address,
    /// The prompt of a background job.
    Job,
    /// The arguments of a call of a public server's tool.
    Call,
    /// The address of a page that `dr verify` fetches after the run.
    Check,
}

as_word!(EgressKind);

/// Why a text was withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    Tripped(Tripped),
    /// A sentence, as formats up to 9 stored it.
    Said(String),
}

impl Withheld {
    /// Returns the reason that is stored as `text`.
    fn stored_as(text: String) -> Self {
        match text.as_str() {
            "words" => Self::Tripped(Tripped::Run),
            "token" => Self::Tripped(Tripped::Token),
            _ => Self::Said(text),
        }
    }

    /// Returns the text that it is stored as.
    fn stored(&self) -> &str {
        match self {
            Self::Tripped(Tripped::Run) => "words",
            Self::Tripped(Tripped::Token) => "token",
            Self::Said(sentence) => sentence,
        }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tripped(tripped) => tripped.fmt(f),
            Self::Said(sentence) => f.write_str(sentence),
        }
    }
}

/// As a sentence: an export is for people, too.
impl Serialize for Withheld {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that left the machine, or was withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EgressRow {
    pub(crate) node: NodeId,
    pub(crate) at: Moment,
    pub(crate) kind: EgressKind,
    pub(crate) target: String,
    pub(crate) text: String,
    /// Why it was withheld; `None` if it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<Withheld>,
}

impl EgressRow {
    /// Returns whether the run itself sent the text. Checks after it must not change its report.
    pub(crate) fn was_sent_by_run(&self) -> bool {
        self.withheld.is_none() && self.kind != EgressKind::Check
    }
}

/// The columns that a hash covers.
const HASHED: &str = "run, node, at, kind, target, text, withheld";

/// Returns the hash of a row of [`HASHED`] and of the hash before it. Takes values as they are stored, so that it does not
/// depend on how this version reads them.
fn hash_of(row: &Row<'_>, previous: &str) -> rusqlite::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut part = |kind: u8, bytes: &[u8]| {
        // With type and length, so that no text can move from one column to the next unnoticed.
        hasher.update(&[kind]).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    part(0, previous.as_bytes());
    for column in HASHED.split(", ") {
        match row.get_ref(column)? {
            ValueRef::Null => part(1, &[]),
            ValueRef::Integer(number) => part(2, &number.to_le_bytes()),
            ValueRef::Real(number) => part(3, &number.to_le_bytes()),
            ValueRef::Text(text) => part(4, text),
            ValueRef::Blob(bytes) => part(5, bytes),
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Appends a row that was just inserted to the chain of its run.
fn link(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    let head = "SELECT runs.id, runs.egress_head FROM runs JOIN egress ON egress.run = runs.id WHERE egress.id = ?1";
    let columns = |row: &Row<'_>| Ok((row.get("id")?, row.get("egress_head")?));
    let (run, previous): (String, String) = connection.query_row(head, [id], columns)?;
    let row = format!("SELECT {HASHED} FROM egress WHERE id = ?1");
    let hash = connection.query_row(&row, [id], |row| hash_of(row, &previous))?;
    connection.execute("UPDATE egress SET hash = ?1 WHERE id = ?2", (&hash, id))?;
    connection.execute("UPDATE runs SET egress_head = ?1 WHERE id = ?2", (&hash, &run)).map(drop)
}

/// Chains the rows of a database of an older version.
pub(super) fn link_all(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT id FROM egress ORDER BY id")?;
    let ids: Vec<i64> = statement.query_map([], |row| row.get("id"))?.collect::<Result<_, _>>()?;
    ids.into_iter().try_for_each(|id| link(connection, id))
}

/// Returns whether the chain of a run ends in `head`.
fn is_whole(connection: &Connection, run: &str, head: &str) -> rusqlite::Result<bool> {
    let sql = format!("SELECT {HASHED}, hash FROM egress WHERE run = ?1 ORDER BY id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([run])?;
    let mut previous = String::new();
    while let Some(row) = rows.next()? {
        let hash = hash_of(row, &previous)?;
        // Compared as stored: a hash of another type is a changed record, not an error.
        if row.get_ref("hash")? != ValueRef::Text(hash.as_bytes()) {
            return Ok(false);
        }
        previous = hash;
    }
    Ok(previous == head)
}

impl LockedRun {
    /// Records a text that is about to leave, or was withheld. A resumed run withholds the same text again; that is
    /// recorded once.
    pub(crate) async fn record_egress(&self, row: &EgressRow) -> Result<(), JournalError> {
        #[cfg(test)]
        if row.kind == EgressKind::Job {
            let left = self.journal().writes_from_job.swap(-1, std::sync::atomic::Ordering::SeqCst);
            if left >= 0 {
                self.journal().kill_after(left);
            }
        }
        let row = row.clone();
        self.write(move |connection, run| {
            // One commit: a row without its link would count as changed.
            let transaction = connection.unchecked_transaction()?;
            let inserted = transaction.execute(
                "INSERT INTO egress (run, node, at, kind, target, text, withheld) \
                 SELECT :run, :node, :at, :kind, :target, :text, :withheld \
                 WHERE :withheld IS NULL OR NOT EXISTS (SELECT 1 FROM egress WHERE run = :run AND node = :node AND \
                 kind = :kind AND text = :text AND withheld IS NOT NULL)",
                named_params! {
                    ":run": run.as_str(),
                    ":node": Plain(row.node),
                    ":at": Plain(row.at),
                    ":kind": Plain(row.kind),
                    ":target": row.target,
                    ":text": row.text,
                    ":withheld": row.withheld.as_ref().map(Withheld::stored),
                },
            )?;
            if inserted > 0 {
                link(&transaction, transaction.last_insert_rowid())?;
            }
            transaction.commit()
        })
        .await
    }
}

impl Journal {
    /// Returns the ids of runs whose record of outgoing texts was changed after it was written.
    pub(crate) async fn runs_with_altered_egress(&self) -> Result<Vec<String>, JournalError> {
        self.read(|connection| {
            let heads = rows(connection, "SELECT id, egress_head FROM runs ORDER BY id", [], |row| {
                Ok((row.get::<_, String>("id")?, row.get::<_, String>("egress_head")?))
            })?;
            let mut altered = Vec::new();
            for (run, head) in heads {
                if !is_whole(connection, &run, &head).map_err(read_failed)? {
                    altered.push(run);
                }
            }
            Ok(altered)
        })
        .await
    }

    /// Returns whether the record of outgoing texts of a run was changed after it was written. A run without a row has no
    /// hash to compare with, so its record counts as changed.
    pub(crate) async fn is_egress_altered(&self, run: &RunId) -> Result<bool, JournalError> {
        let run = run.to_string();
        self.read(move |connection| {
            let sql = "SELECT egress_head FROM runs WHERE id = ?1";
            let head: Option<String> =
                connection.query_row(sql, [&run], |row| row.get("egress_head")).optional().map_err(read_failed)?;
            let Some(head) = head else { return Ok(true) };
            is_whole(connection, &run, &head).map(|is_whole| !is_whole).map_err(read_failed)
        })
        .await
    }

    /// Returns every text of a run that left or was withheld, in order.
    pub(crate) async fn egress(&self, run: &RunId) -> Result<Vec<EgressRow>, JournalError> {
        let params = [run.to_string()];
        self.read(move |connection| {
            let sql = "SELECT node, at, kind, target, text, withheld FROM egress WHERE run = ?1 ORDER BY id";
            rows(connection, sql, params, |row| {
                Ok(EgressRow {
                    node: plain(row, "node")?,
                    at: plain(row, "at")?,
                    kind: plain(row, "kind")?,
                    target: row.get("target")?,
                    text: row.get("text")?,
                    withheld: row.get::<_, Option<String>>("withheld")?.map(Withheld::stored_as),
                })
            })
        })
        .await
    }
}
