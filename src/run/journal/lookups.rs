//! What sources were asked and what they said.

use rusqlite::{OptionalExtension, Row, params};

use super::{Journal, JournalError, natural, query, read_failed, stored};
use crate::base::clock::Moment;
use crate::base::id::RunId;

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

impl Journal {
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

fn lookup_row(row: &Row<'_>) -> rusqlite::Result<LookupRow> {
    let vector: Option<Vec<u8>> = row.get(3)?;
    let floats = |bytes: Vec<u8>| bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Ok(LookupRow { id: row.get(0)?, query: row.get(1)?, result: row.get(2)?, vector: vector.map(floats) })
}
