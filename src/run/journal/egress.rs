//! Texts that left the machine, or were withheld.

use rusqlite::named_params;
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, LockedRun, Plain, plain, rows};
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::research::node::NodeId;

/// The form in which a text leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EgressKind {
    /// A query to a search engine.
    Query,
    /// The address of a page to fetch.
    Address,
    /// The prompt of a background job.
    Job,
}

impl std::fmt::Display for EgressKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Query => "query",
            Self::Address => "address",
            Self::Job => "job",
        })
    }
}

/// A text that left the machine, or was withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EgressRow {
    /// The node it was sent for.
    pub(crate) node: NodeId,
    /// When.
    pub(crate) at: Moment,
    /// Its form.
    pub(crate) kind: EgressKind,
    /// The recipient.
    pub(crate) target: String,
    pub(crate) text: String,
    /// Why it was withheld; `None` if it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<String>,
}

impl LockedRun {
    /// Records a text that is about to leave, or was withheld. A resumed run withholds the same text again; that is
    /// recorded once.
    pub(crate) async fn record_egress(&self, row: &EgressRow) -> Result<(), JournalError> {
        let row = row.clone();
        self.write(move |connection, run| {
            connection.execute(
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
                    ":withheld": row.withheld,
                },
            )?;
            Ok(())
        })
        .await
    }
}

impl Journal {
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
                    withheld: row.get("withheld")?,
                })
            })
        })
        .await
    }
}
