//! Texts that left the machine, or were kept back.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, natural, query, stored};
use crate::base::clock::Moment;
use crate::base::id::RunId;

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

impl Journal {
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
}
