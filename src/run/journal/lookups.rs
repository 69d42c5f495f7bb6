//! Queries put to sources, and the results.

use rusqlite::{OptionalExtension, Row, named_params};
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, LockedRun, Plain, plain, read_failed, rows};
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::research::node::NodeId;
use crate::source::Label;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LookupTool {
    /// Passages of the knowledge base.
    #[serde(rename = "kb.search")]
    KbSearch,
    /// A section or document of the knowledge base.
    #[serde(rename = "kb.open")]
    KbOpen,
    /// Results of a search engine.
    #[serde(rename = "web.search")]
    WebSearch,
    #[serde(rename = "web.open")]
    WebOpen,
    /// Quotes of earlier runs.
    #[serde(rename = "memory.recall")]
    MemoryRecall,
    /// The tools of one of the user's servers.
    #[serde(rename = "mcp.tools")]
    McpTools,
    /// The result of such a tool.
    #[serde(rename = "mcp.call")]
    McpCall,
    /// A background job, which was paid for. The result is the number of the call with its report.
    #[serde(rename = "deep_research")]
    DeepResearch,
}

impl LookupTool {
    /// Returns whether a result may be reused for a similar query. Pages have one address. Jobs are excluded, because a
    /// report on the opposite question would be a costly mistake.
    pub(crate) fn is_asked_in_words(self) -> bool {
        matches!(self, Self::KbSearch | Self::WebSearch)
    }
}

/// Condition of SQL for lookups of a tool whose result is no number; `:tool` is [`LookupTool::DeepResearch`].
pub(super) const BROKEN_JOB: &str = "tool = :tool AND result IS NOT NULL AND (result = '' OR result GLOB '*[^0-9]*')";

/// A query put to a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lookup {
    pub(crate) node: NodeId,
    pub(crate) tool: LookupTool,
    /// The query, normalised.
    pub(crate) query: String,
    /// The part of the source that was searched.
    pub(crate) scope: String,
    pub(crate) label: Label,
    /// Version of the source, and of the model that orders its hits.
    pub(crate) version: String,
    pub(crate) terms: LookupTerms,
}

/// Conditions of a result besides its query and its source. A result on record serves lookups with equal terms only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LookupTerms {
    /// Number of hits that were asked for: a short list does not answer a request for a longer one.
    pub(crate) max_hits: Option<usize>,
    /// The only day on which the result is used.
    pub(crate) day: Option<String>,
    /// Start of the hash of the question that a page was shortened for.
    pub(crate) read_for: Option<String>,
    /// Whether all text was allowed to leave.
    pub(crate) is_open: Option<bool>,
    /// Number of results on record that could not be used before this one.
    pub(crate) attempt: usize,
    /// Whether the result serves its own run alone.
    pub(crate) is_of_run: bool,
}

impl Lookup {
    /// Returns the query with the number of hits before it, as formats up to 9 stored it.
    pub(crate) fn query_with_max_hits(&self) -> String {
        let query = &self.query;
        self.terms.max_hits.map_or_else(|| query.clone(), |hits| format!("{hits}: {query}"))
    }

    /// Returns the version with the other terms after it, as formats up to 9 stored it.
    fn with_terms(&self, run: &str) -> String {
        let Self { version, terms: LookupTerms { day, read_for, is_open, attempt, is_of_run, .. }, .. } = self;
        let is_job = self.tool == LookupTool::DeepResearch;
        let parts = [
            Some(if is_job { version.clone() + &" again".repeat(*attempt) } else { version.clone() }),
            day.clone(),
            is_open.map(|is_open| is_open.to_string()),
            read_for.as_ref().map(|hash| format!("for {hash}")),
            (!is_job && *attempt > 0).then(|| attempt.to_string()),
        ];
        let version = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        match (*is_of_run, version.is_empty()) {
            (false, _) => version,
            (true, true) => run.to_owned(),
            (true, false) => format!("{version}, not in {run}"),
        }
    }
}

/// A stored result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LookupRow {
    /// Its number among the lookups of all runs.
    pub(crate) id: i64,
    /// The result as JSON.
    pub(crate) result: String,
}

/// Where the answer to a lookup comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LookupAnswer {
    /// From the source. `words` are the key words of the query in their order, if the same may be asked in other words.
    New { result: String, words: Option<String> },
    /// From an earlier lookup.
    Known(i64),
}

/// Returns a condition of SQL for results that serve a lookup; `column` is `query` or `words`.
///
/// Formats up to 9 stored the terms in the text of `version` and `column`; their rows have no `attempt`. Such rows are
/// matched, too: otherwise a job would be paid for twice, and a resumed run would find other passages than before, so
/// that its prompts would not be those on record.
fn serving(column: &str) -> String {
    // With `OR` in place of `IN`, SQLite would use the index for the tool alone.
    format!(
        "tool = :tool AND version IN (:version, :old_version) AND {column} IN (:asked, :old_asked) AND \
         scope = :scope AND label = :label AND result IS NOT NULL AND \
         iif(attempt IS NULL, version = :old_version AND {column} = :old_asked, version = :version AND \
         {column} = :asked AND attempt = :attempt AND max_hits IS :max_hits AND day IS :day AND read_for IS :read_for \
         AND is_open IS :is_open AND is_of_run = :is_of_run AND (NOT is_of_run OR run = :run))"
    )
}

/// Returns the parameters of [`serving`] and others.
macro_rules! serving_params {
    ($run:ident, $lookup:ident, $asked:expr, $old_asked:expr, $($others:tt)*) => {
        named_params! {
            ":run": $run,
            ":tool": Plain($lookup.tool),
            ":scope": $lookup.scope,
            ":label": Plain($lookup.label),
            ":version": $lookup.version,
            ":old_version": $lookup.with_terms(&$run),
            ":asked": $asked,
            ":old_asked": $old_asked,
            ":max_hits": Plain($lookup.terms.max_hits),
            ":day": $lookup.terms.day,
            ":read_for": $lookup.terms.read_for,
            ":is_open": $lookup.terms.is_open,
            ":attempt": Plain($lookup.terms.attempt),
            ":is_of_run": $lookup.terms.is_of_run,
            $($others)*
        }
    };
}

impl LockedRun {
    /// Records a query with its result, or with the earlier lookup that answered it.
    pub(crate) async fn record_lookup(
        &self,
        lookup: &Lookup,
        answer: LookupAnswer,
        at: Moment,
    ) -> Result<(), JournalError> {
        let lookup = lookup.clone();
        let (answered_by, result, words) = match answer {
            LookupAnswer::New { result, words } => (None, Some(result), words),
            LookupAnswer::Known(id) => (Some(id), None, None),
        };
        self.write(move |connection, run| {
            connection.execute(
                "INSERT INTO lookups (run, node, tool, query, scope, label, version, max_hits, day, read_for, is_open, \
                 attempt, is_of_run, at, answered_by, result, words) VALUES (:run, :node, :tool, :query, :scope, \
                 :label, :version, :max_hits, :day, :read_for, :is_open, :attempt, :is_of_run, :at, :answered_by, \
                 :result, :words)",
                named_params! {
                    ":run": run.as_str(),
                    ":node": Plain(lookup.node),
                    ":tool": Plain(lookup.tool),
                    ":query": lookup.query,
                    ":scope": lookup.scope,
                    ":label": Plain(lookup.label),
                    ":version": lookup.version,
                    ":max_hits": Plain(lookup.terms.max_hits),
                    ":day": lookup.terms.day,
                    ":read_for": lookup.terms.read_for,
                    ":is_open": lookup.terms.is_open,
                    ":attempt": Plain(lookup.terms.attempt),
                    ":is_of_run": lookup.terms.is_of_run,
                    ":at": Plain(at),
                    ":answered_by": answered_by,
                    ":result": result,
                    ":words": words,
                },
            )?;
            Ok(())
        })
        .await
    }
}

impl Journal {
    /// Returns the stored result of exactly this lookup, from `run` or from any run, before `before` if it is given.
    pub(crate) async fn find_lookup(
        &self,
        run: &RunId,
        lookup: &Lookup,
        before: Option<Moment>,
    ) -> Result<Option<LookupRow>, JournalError> {
        let (run, lookup) = (run.to_string(), lookup.clone());
        self.read(move |connection| {
            // Of other runs, only results from before this one began: a resumed run must see the same ones.
            // The oldest one: it stays the same, however often the lookup is recorded later.
            let sql = format!(
                "SELECT id, result FROM lookups WHERE {} AND (run = :run OR :before IS NULL OR at < :before) \
                 ORDER BY id LIMIT 1",
                serving("query")
            );
            let mut statement = connection.prepare_cached(&sql).map_err(read_failed)?;
            let old_query = lookup.query_with_max_hits();
            let params = serving_params!(run, lookup, lookup.query, old_query, ":before": before.map(Plain));
            let found = |row: &Row<'_>| Ok(LookupRow { id: row.get("id")?, result: row.get("result")? });
            statement.query_row(params, found).optional().map_err(read_failed)
        })
        .await
    }

    /// Returns the id and the query, with the number of hits before it, of stored lookups of the same source whose
    /// query has the same key words; see [`Self::lookup_result`].
    ///
    /// Only those from before `before` and those of the same node of the same run count: otherwise the answer would
    /// depend on which node of a run was faster.
    pub(crate) async fn lookups_with_words(
        &self,
        run: &RunId,
        lookup: &Lookup,
        words: &str,
        before: Moment,
    ) -> Result<Vec<(i64, String)>, JournalError> {
        let (run, lookup, words) = (run.to_string(), lookup.clone(), words.to_owned());
        self.read(move |connection| {
            // Rows that an earlier lookup answered have no result of their own, and are not compared.
            let sql = format!(
                "SELECT id, coalesce(max_hits || ': ', '') || query AS asked FROM lookups WHERE {} AND \
                 (at < :before AND run <> :run OR run = :run AND node = :node) ORDER BY id",
                serving("words")
            );
            // Formats up to 9 took the number for one of the words.
            let hits = lookup.terms.max_hits.map(|hits| hits.to_string()).unwrap_or_default();
            let old_words = format!("{hits} {words}").trim().to_owned();
            let (before, node) = (Plain(before), Plain(&lookup.node));
            let params = serving_params!(run, lookup, words, old_words, ":before": before, ":node": node);
            rows(connection, &sql, params, |row| Ok((row.get("id")?, row.get("asked")?)))
        })
        .await
    }

    /// Returns the result of a lookup, as JSON.
    pub(crate) async fn lookup_result(&self, id: i64) -> Result<String, JournalError> {
        self.read(move |connection| {
            let sql = "SELECT result FROM lookups WHERE id = ?1";
            connection.query_row(sql, [id], |row| row.get("result")).map_err(read_failed)
        })
        .await
    }

    /// Returns the results of all lookups of a run, as JSON. A result of another run that was removed since is missing.
    pub(crate) async fn lookup_results(&self, run: &RunId) -> Result<Vec<String>, JournalError> {
        let params = [run.to_string()];
        self.read(move |connection| {
            let sql = "SELECT DISTINCT coalesce(answers.result, lookups.result) AS answer FROM lookups \
                       LEFT JOIN lookups AS answers ON answers.id = lookups.answered_by \
                       WHERE lookups.run = ?1 AND answer IS NOT NULL";
            rows(connection, sql, params, |row| row.get("answer"))
        })
        .await
    }

    /// Counts the background jobs on record whose result cannot be read. Other answers that cannot be read are asked
    /// for again.
    pub(crate) async fn broken_jobs(&self) -> Result<usize, JournalError> {
        self.read(|connection| {
            let sql = format!("SELECT count(*) AS broken FROM lookups WHERE {BROKEN_JOB}");
            connection
                .query_row(&sql, [Plain(LookupTool::DeepResearch)], |row| plain(row, "broken"))
                .map_err(read_failed)
        })
        .await
    }

    /// Counts the lookups of a run that no earlier lookup answered.
    pub(crate) async fn new_lookups(&self, run: &RunId, tool: LookupTool, scope: &str) -> Result<u64, JournalError> {
        let params = (run.to_string(), Plain(tool), scope.to_owned());
        self.read(move |connection| {
            // A lookup that an earlier one answered has no result of its own, and is not counted.
            let sql = "SELECT count(result) AS made FROM lookups WHERE run = ?1 AND tool = ?2 AND scope = ?3";
            connection.query_row(sql, params, |row| plain(row, "made")).map_err(read_failed)
        })
        .await
    }

    /// Counts the lookups of each node of a run: all, and those that an earlier lookup answered. Listings of tools do
    /// not count: no worker asks for them.
    pub(crate) async fn lookup_counts(&self, run: &RunId) -> Result<Vec<(NodeId, u64, u64)>, JournalError> {
        let params = (run.to_string(), Plain(LookupTool::McpTools));
        self.read(move |connection| {
            let sql = "SELECT node, count(*) AS asked, count(*) - count(result) AS known FROM lookups WHERE run = ?1 \
                       AND tool <> ?2 GROUP BY node";
            rows(connection, sql, params, |row| Ok((plain(row, "node")?, plain(row, "asked")?, plain(row, "known")?)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::run::journal::tests::{place, started};
    use crate::run::journal::{MIGRATIONS, migrate};

    fn lookup(tool: LookupTool, query: &str, version: &str, terms: &LookupTerms) -> Lookup {
        let (node, scope, label) = (NodeId::numbered(2), "files".to_owned(), Label::Internal);
        Lookup { node, tool, query: query.into(), scope, label, version: version.into(), terms: terms.clone() }
    }

    #[tokio::test]
    async fn lookups_of_format_9_are_found_by_their_text() {
        let (_folder, path) = place();
        let run = RunId::random(5);
        let hits = LookupTerms { max_hits: Some(8), ..LookupTerms::default() };
        let of_run = LookupTerms { is_of_run: true, ..LookupTerms::default() };
        let today = LookupTerms { day: Some("2026-11-22".into()), ..LookupTerms::default() };
        let read_for = LookupTerms { read_for: Some("ed7944bb118d3958".into()), ..today.clone() };
        let job = LookupTerms { is_open: Some(false), attempt: 2, ..today.clone() };
        // How format 9 stored query and version, and the lookup.
        let (ranked, own) = (format!("1, 4 by m, not in {run}"), run.to_string());
        let cases = [
            ("8: when", "1", lookup(LookupTool::KbSearch, "when", "1", &hits)),
            (
                "8: when",
                ranked.as_str(),
                lookup(LookupTool::KbSearch, "when", "1, 4 by m", &LookupTerms { is_of_run: true, ..hits.clone() }),
            ),
            ("c1", "1", lookup(LookupTool::KbOpen, "c1", "1", &LookupTerms::default())),
            (
                "8: when",
                "exa:.. 2026-11-22",
                lookup(LookupTool::WebSearch, "when", "exa:..", &LookupTerms { max_hits: Some(8), ..today.clone() }),
            ),
            ("a.example", "exa:.. 2026-11-22", lookup(LookupTool::WebOpen, "a.example", "exa:..", &today)),
            (
                "a.example",
                "exa:.. 2026-11-22 for ed7944bb118d3958",
                lookup(LookupTool::WebOpen, "a.example", "exa:..", &read_for),
            ),
            ("why\nwhen", own.as_str(), lookup(LookupTool::MemoryRecall, "why\nwhen", "", &of_run)),
            ("crm", own.as_str(), lookup(LookupTool::McpTools, "crm", "", &of_run)),
            ("crm.find {}", "1 2 2026-11-22", lookup(LookupTool::McpCall, "crm.find {}", "1 2", &today)),
            (
                "crm.find {}",
                "1 2 2026-11-22 2",
                lookup(LookupTool::McpCall, "crm.find {}", "1 2", &LookupTerms { attempt: 2, ..today.clone() }),
            ),
            ("why", "1 again again 2026-11-22 false", lookup(LookupTool::DeepResearch, "why", "1", &job)),
        ];
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, &MIGRATIONS[..9]).unwrap();
        let insert = "INSERT INTO runs (id, question, started_at) VALUES (?1, 'why?', 7)";
        old.execute(insert, [run.as_str()]).unwrap();
        let insert = "INSERT INTO lookups (run, node, tool, query, scope, label, version, at, result, words) \
                      VALUES (?1, 'n2', ?2, ?3, 'files', 'internal', ?4, 8, '1', '8 when')";
        for (query, version, lookup) in &cases {
            old.execute(insert, (run.as_str(), Plain(lookup.tool), query, version)).unwrap();
        }
        drop(old);
        let journal = Journal::open(&path).unwrap();
        for (id, (.., known)) in (1..).zip(&cases) {
            let found = journal.find_lookup(&run, known, None).await.unwrap().map(|row| row.id);
            assert_eq!(found, Some(id), "{known:?}");
            let terms = LookupTerms { attempt: known.terms.attempt + 1, ..known.terms.clone() };
            let other = Lookup { terms, ..known.clone() };
            assert_eq!(journal.find_lookup(&run, &other, None).await.unwrap(), None, "{other:?}");
        }
        let similar = journal.lookups_with_words(&RunId::random(6), &cases[0].2, "when", Moment(9)).await.unwrap();
        assert_eq!(similar, [(1, "8: when".to_owned())]);
    }

    #[tokio::test]
    async fn result_serves_lookups_with_the_same_terms_only() {
        let journal = Journal::in_memory().unwrap();
        let terms = LookupTerms {
            max_hits: Some(8),
            day: Some("2026-11-22".into()),
            read_for: Some("ed7944bb118d3958".into()),
            is_open: Some(false),
            attempt: 1,
            is_of_run: false,
        };
        let [run, other] = [1, 2].map(RunId::random);
        let locked = LockedRun::new(run.clone(), journal.clone(), None);
        locked.create("why?", &started()).await.unwrap();
        let of_run = LookupTerms { is_of_run: true, ..terms.clone() };
        for terms in [&terms, &of_run] {
            let answer = LookupAnswer::New { result: "1".into(), words: None };
            locked.record_lookup(&lookup(LookupTool::WebSearch, "when", "1", terms), answer, Moment(8)).await.unwrap();
        }
        let found = async |run: &RunId, terms: &LookupTerms| {
            let lookup = lookup(LookupTool::WebSearch, "when", "1", terms);
            journal.find_lookup(run, &lookup, None).await.unwrap().map(|row| row.id)
        };
        assert_eq!((found(&run, &terms).await, found(&other, &terms).await), (Some(1), Some(1)));
        assert_eq!((found(&run, &of_run).await, found(&other, &of_run).await), (Some(2), None));
        for others in [
            LookupTerms { max_hits: Some(9), ..terms.clone() },
            LookupTerms { day: None, ..terms.clone() },
            LookupTerms { read_for: None, ..terms.clone() },
            LookupTerms { is_open: Some(true), ..terms.clone() },
            LookupTerms { attempt: 0, ..terms.clone() },
        ] {
            assert_eq!(found(&run, &others).await, None, "{others:?}");
        }
    }
}
