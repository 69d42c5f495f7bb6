//! Retrieval metrics: compares rankings with judgments of which documents are relevant to which query.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One line of `queries.jsonl`; other fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct EvalQuery {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// Grades by query id and path; a grade above 0 is relevant.
pub(crate) type Judgments = BTreeMap<String, HashMap<String, u32>>;

/// Queries or judgments are unusable.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    #[error("line {line} of the queries is not an object with `id` and `text`")]
    Query { line: usize, source: serde_json::Error },
    #[error("line {line} of the judgments is not `query id`, tab, `path`, tab, `grade`")]
    Judgment { line: usize },
    /// A judged file is not in the index, which would make every metric too low.
    #[error("{missing} of {judged} judged files are not in the index, first `{first}`")]
    NotIndexed { missing: usize, judged: usize, first: String },
    /// No query has a relevant document, so every mean would be undefined.
    #[error("no query has a relevant document")]
    NothingToMeasure,
}

impl EvalError {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Query { .. } => "queries.jsonl has one {\"id\": …, \"text\": …} per line",
            Self::Judgment { .. } => "qrels.tsv has three columns and no header",
            Self::NotIndexed { .. } => "paths are relative to the collection's root; index that folder first",
            Self::NothingToMeasure => "check that the ids in the two files are the same",
        }
    }
}

/// Written by some editors at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Parses queries, one JSON object per line; empty lines are skipped.
pub(crate) fn parse_queries(text: &str) -> Result<Vec<EvalQuery>, EvalError> {
    let lines = text.trim_start_matches(BYTE_ORDER_MARK).lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(text, line)| serde_json::from_str(text).map_err(|source| EvalError::Query { line, source })).collect()
}

/// Parses judgments: query id, path and grade, separated by tabs; empty lines are skipped.
pub(crate) fn parse_judgments(text: &str) -> Result<Judgments, EvalError> {
    let mut judgments = Judgments::new();
    for (text, line) in
        text.trim_start_matches(BYTE_ORDER_MARK).lines().zip(1..).filter(|(line, _)| !line.trim().is_empty())
    {
        let columns: Vec<_> = text.split('\t').map(str::trim).collect();
        let &[query, path, grade] = columns.as_slice() else { return Err(EvalError::Judgment { line }) };
        let grade = grade.parse().map_err(|_| EvalError::Judgment { line })?;
        judgments.entry(query.to_owned()).or_default().insert(plain_path(path), grade);
    }
    Ok(judgments)
}

/// Normalises a path to the form stored in the index: single slashes and no `.` components.
fn plain_path(path: &str) -> String {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// Returns an error unless every judged path is in `indexed`.
pub(crate) fn check_indexed(judgments: &Judgments, indexed: &HashSet<String>) -> Result<(), EvalError> {
    let judged: HashSet<&String> = judgments.values().flat_map(HashMap::keys).collect();
    let mut missing: Vec<_> = judged.iter().filter(|path| !indexed.contains(**path)).collect();
    missing.sort();
    match missing.first() {
        None => Ok(()),
        Some(first) => {
            Err(EvalError::NotIndexed { missing: missing.len(), judged: judged.len(), first: (**first).clone() })
        }
    }
}

/// The result of one search: documents in the order of their best chunk.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    pub(crate) query: String,
    /// Distinct paths, best first.
    pub(crate) paths: Vec<String>,
    pub(crate) latency: Duration,
}

/// Means over all queries that have a relevant document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Number of queries measured.
    pub(crate) queries: usize,
    /// Normalised discounted cumulative gain of the first 10 documents; the gain is the grade, as in `trec_eval`.
    pub(crate) ndcg_at_10: f64,
    /// Fraction of the relevant documents among the first 10.
    pub(crate) recall_at_10: f64,
    /// Fraction of the relevant documents among the first 100.
    pub(crate) recall_at_100: f64,
    /// Mean reciprocal rank of the first relevant document.
    pub(crate) mrr: f64,
    /// Fraction of queries whose first document is relevant.
    pub(crate) hit_at_1: f64,
    /// Fraction of queries with a relevant document among the first 3.
    pub(crate) hit_at_3: f64,
    /// Fraction of queries with a relevant document among the first 10.
    pub(crate) hit_at_10: f64,
    /// Median latency in milliseconds.
    pub(crate) latency_p50_ms: f64,
    /// 95th percentile of the latency in milliseconds.
    pub(crate) latency_p95_ms: f64,
}

/// A metric of one ranking, given the grades of its query.
type Figure<'a> = &'a dyn Fn(&[String], &HashMap<String, u32>) -> f64;

/// Computes the metrics. Queries without a relevant document are left out.
///
/// # Errors
///
/// Returns [`EvalError::NothingToMeasure`] if no ranked query has a relevant document.
pub(crate) fn measure(rankings: &[Ranking], judgments: &Judgments) -> Result<Figures, EvalError> {
    let judged: Vec<_> = rankings
        .iter()
        .filter_map(|ranking| Some((ranking, judgments.get(&ranking.query)?)))
        .filter(|(_, grades)| grades.values().any(|grade| *grade > 0))
        .collect();
    if judged.is_empty() {
        return Err(EvalError::NothingToMeasure);
    }
    let mean = |figure: Figure<'_>| {
        judged.iter().map(|(ranking, grades)| figure(&ranking.paths, grades)).sum::<f64>() / count(judged.len())
    };
    let mut latencies: Vec<_> = judged.iter().map(|(ranking, _)| ranking.latency.as_secs_f64() * 1000.0).collect();
    latencies.sort_by(f64::total_cmp);
    Ok(Figures {
        queries: judged.len(),
        ndcg_at_10: mean(&|paths, grades| ndcg(paths, grades, 10)),
        recall_at_10: mean(&|paths, grades| recall(paths, grades, 10)),
        recall_at_100: mean(&|paths, grades| recall(paths, grades, 100)),
        mrr: mean(&|paths, grades| first_relevant(paths, grades).map_or(0.0, |rank| 1.0 / count(rank))),
        hit_at_1: mean(&|paths, grades| hit(paths, grades, 1)),
        hit_at_3: mean(&|paths, grades| hit(paths, grades, 3)),
        hit_at_10: mean(&|paths, grades| hit(paths, grades, 10)),
        latency_p50_ms: percentile(&latencies, 50),
        latency_p95_ms: percentile(&latencies, 95),
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

fn is_relevant(grades: &HashMap<String, u32>, path: &String) -> bool {
    grades.get(path).is_some_and(|grade| *grade > 0)
}

fn ndcg(paths: &[String], grades: &HashMap<String, u32>, depth: usize) -> f64 {
    let discounted = |gains: &mut dyn Iterator<Item = f64>| {
        gains.take(depth).zip(1..).map(|(gain, rank)| gain / (count(rank) + 1.0).log2()).sum::<f64>()
    };
    let mut ideal: Vec<_> = grades.values().map(|grade| f64::from(*grade)).collect();
    ideal.sort_by(|a, b| b.total_cmp(a));
    let got = discounted(&mut paths.iter().map(|path| grades.get(path).map_or(0.0, |grade| f64::from(*grade))));
    // An empty sum is −0.0, which would be printed with its sign.
    (got / discounted(&mut ideal.into_iter())).max(0.0)
}

fn recall(paths: &[String], grades: &HashMap<String, u32>, depth: usize) -> f64 {
    let relevant = grades.values().filter(|grade| **grade > 0).count();
    count(paths.iter().take(depth).filter(|path| is_relevant(grades, path)).count()) / count(relevant)
}

fn first_relevant(paths: &[String], grades: &HashMap<String, u32>) -> Option<usize> {
    paths.iter().position(|path| is_relevant(grades, path)).map(|place| place + 1)
}

fn hit(paths: &[String], grades: &HashMap<String, u32>, depth: usize) -> f64 {
    if first_relevant(paths, grades).is_some_and(|rank| rank <= depth) { 1.0 } else { 0.0 }
}

/// Returns the nearest-rank percentile of sorted values, or 0 if there are none.
fn percentile(sorted: &[f64], share: usize) -> f64 {
    let place = (sorted.len() * share).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(query: &str, paths: &[&str], milliseconds: u64) -> Ranking {
        Ranking {
            query: query.into(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            latency: Duration::from_millis(milliseconds),
        }
    }

    #[test]
    fn figures_are_those_of_the_definitions() {
        let judgments = parse_judgments("q1\ta.md\t1\nq1\tb.md\t1\nq2\tc.md\t1\nq3\td.md\t0\n").unwrap();
        let rankings = [
            ranking("q1", &["x.md", "a.md", "y.md", "b.md"], 10),
            ranking("q2", &["c.md"], 30),
            ranking("q3", &["d.md"], 1_000),
        ];
        let figures = measure(&rankings, &judgments).unwrap();
        let ideal = 1.0 + 1.0 / 3f64.log2();
        let first = (1.0 / 3f64.log2() + 1.0 / 5f64.log2()) / ideal;
        assert!((figures.ndcg_at_10 - f64::midpoint(first, 1.0)).abs() < 1e-12);
        assert_eq!((figures.queries, figures.recall_at_10), (2, 1.0));
        assert_eq!((figures.mrr, figures.hit_at_1, figures.hit_at_3), (0.75, 0.5, 1.0));
        assert_eq!((figures.latency_p50_ms, figures.latency_p95_ms), (10.0, 30.0));
    }

    #[test]
    fn judged_path_is_read_as_the_index_writes_it() {
        let judgments = parse_judgments("q\t./a//b.md\t1\n").unwrap();
        assert!(judgments["q"].contains_key("a/b.md"));
    }
}
