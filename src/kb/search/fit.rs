//! Fits the weights of [`Support`] to sets of questions: `just fit SETS`.
//!
//! Each line of the file SETS names an index (`F/.dr/index`, with its files in `F/kb`), a folder with `queries.jsonl`,
//! and `own` or `foreign`: whether the questions were asked about this index. A query with `"answerable": false` is a
//! near miss: the index has the subject but not the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::signals::{Measured, Signals};
use super::{SearchOptions, Searcher};
use crate::kb::embed::{EmbedderOptions, load};
use crate::kb::index::{Index, IndexLocation};

/// Strength of the ridge penalty on standardised weights.
const RIDGE: f64 = 3.0;

/// Folds of the cross-validation.
const FOLDS: usize = 10;

/// Largest total weight of the questions of one set and kind, as a number of questions. Keeps large sets from
/// dominating the fit.
const MOST: f64 = 300.0;

/// The same limit for the answerable questions of a set without questions of the other class: they can only move the
/// threshold.
const ALONE: f64 = 20.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Own,
    Near,
    Foreign,
}

/// A question with its signals.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    index: String,
    set: String,
    question: String,
    kind: Kind,
    /// Whether it is excluded from the fit.
    #[serde(default)]
    held_out: bool,
    values: BTreeMap<String, f32>,
}

#[derive(Deserialize)]
struct LabelledQuestion {
    text: String,
    #[serde(default = "yes")]
    answerable: bool,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    held: bool,
}

fn yes() -> bool {
    true
}

/// Measures the signals of all sets. `DR_FIT` is the file of sets, `DR_FIT_CASES` the file to write.
#[tokio::test]
#[ignore = "reads evaluation sets"]
async fn measure() {
    let sets = std::fs::read_to_string(std::env::var("DR_FIT").unwrap()).unwrap();
    let mut cases = String::new();
    for line in sets.lines() {
        let [index, folder, kind] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let index_of = Index::open(&IndexLocation::parse(index).unwrap()).await.unwrap();
        let searcher = Searcher::new(index_of, Ok(load(&EmbedderOptions::builtin()).unwrap()));
        let queries = std::fs::read_to_string(format!("{folder}/queries.jsonl")).unwrap();
        for query in queries.lines().map(|line| serde_json::from_str::<LabelledQuestion>(line).unwrap()) {
            let kind = match kind {
                "foreign" if query.answerable => Kind::Foreign,
                "foreign" => continue,
                _ if query.answerable => Kind::Own,
                _ if ["foreign", "other-language"].contains(&query.kind.as_str()) => Kind::Foreign,
                _ => Kind::Near,
            };
            let options = SearchOptions::default();
            let parsed = searcher.query(&query.text);
            let hits = searcher.find(&parsed, &options).await.unwrap().hits;
            let keys = searcher.key_words(&parsed, &options.filter).await.unwrap();
            let signals = searcher.signals(&parsed, &hits, &keys, Measured::Tokens).await.unwrap();
            let set = index.rsplit('/').find(|part| ![".dr", "index"].contains(part)).unwrap_or_default().to_owned();
            let case = Case {
                index: index.to_owned(),
                set,
                question: query.text,
                kind,
                held_out: query.held,
                values: signals.values().map(|(name, value)| (name.to_owned(), value)).into(),
            };
            writeln!(cases, "{}", serde_json::to_string(&case).unwrap()).unwrap();
        }
    }
    std::fs::write(std::env::var("DR_FIT_CASES").unwrap(), cases).unwrap();
}

/// Standardised logistic regression.
struct Fitted {
    bias: f64,
    weights: Vec<f64>,
}

impl Fitted {
    /// Fits weights to rows with a label and a weight each, by Newton's method.
    fn of(rows: &[(Vec<f64>, bool, f64)]) -> Self {
        let columns = rows[0].0.len();
        let total: f64 = rows.iter().map(|row| row.2).sum();
        let mean: Vec<f64> =
            (0..columns).map(|at| rows.iter().map(|row| row.0[at] * row.2).sum::<f64>() / total).collect();
        let spread = |at: usize| rows.iter().map(|row| (row.0[at] - mean[at]).powi(2) * row.2).sum::<f64>() / total;
        let scale: Vec<f64> = (0..columns).map(|at| spread(at).sqrt().max(1e-9)).collect();
        let standard = |row: &[f64]| {
            let values = row.iter().zip(mean.iter().zip(&scale)).map(|(x, (mean, scale))| (x - mean) / scale);
            std::iter::once(1.0).chain(values).collect::<Vec<f64>>()
        };
        let rows: Vec<_> = rows.iter().map(|(row, label, weight)| (standard(row), *label, *weight)).collect();
        let mut beta = vec![0.0; columns + 1];
        for _ in 0..30 {
            let mut gradient = vec![0.0; columns + 1];
            let mut hessian = vec![vec![0.0; columns + 1]; columns + 1];
            for (row, label, weight) in &rows {
                let p = logistic(row.iter().zip(&beta).map(|(x, b)| x * b).sum());
                for a in 0..=columns {
                    gradient[a] += weight * (f64::from(u8::from(*label)) - p) * row[a];
                    for b in 0..=columns {
                        hessian[a][b] += weight * p * (1.0 - p) * row[a] * row[b];
                    }
                }
            }
            for at in 1..=columns {
                gradient[at] -= RIDGE * beta[at];
                hessian[at][at] += RIDGE;
            }
            for (b, step) in beta.iter_mut().zip(solved(hessian, gradient)) {
                *b += step;
            }
        }
        let weights: Vec<f64> = beta[1..].iter().zip(&scale).map(|(b, scale)| b / scale).collect();
        let bias = beta[0] - weights.iter().zip(&mean).map(|(w, mean)| w * mean).sum::<f64>();
        Self { bias, weights }
    }

    fn probability(&self, row: &[f64]) -> f64 {
        logistic(self.bias + row.iter().zip(&self.weights).map(|(x, w)| x * w).sum::<f64>())
    }
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Solves a system of linear equations by elimination with pivots.
fn solved(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs())).unwrap();
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        for row in at + 1..size {
            let factor = matrix[row][at] / matrix[at][at];
            let pivot = matrix[at].clone();
            for (value, above) in matrix[row].iter_mut().zip(&pivot).skip(at) {
                *value -= factor * above;
            }
            right[row] -= factor * right[at];
        }
    }
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|column| matrix[at][column] * right[column]).sum();
        right[at] = (right[at] - known) / matrix[at][at];
    }
    right
}

/// Fits one model that separates `Own` from `against` by the named signals, and prints the weights and their
/// decisions.
fn fit(name: &str, cases: &[Case], used: &[&str], against: Kind, cut: impl Fn(&[(&Case, f64)]) -> f64) {
    let row = |case: &Case| used.iter().map(|name| f64::from(case.values[*name])).collect::<Vec<_>>();
    let training: Vec<&Case> =
        cases.iter().filter(|case| !case.held_out && (case.kind == Kind::Own || case.kind == against)).collect();
    let mut sizes: BTreeMap<(&str, Kind), f64> = BTreeMap::new();
    for case in &training {
        *sizes.entry((&case.set, case.kind)).or_default() += 1.0;
    }
    let most = |set: &str, kind: Kind| {
        let is_alone = kind == Kind::Own && !sizes.contains_key(&(set, against));
        sizes[&(set, kind)].min(if is_alone { ALONE } else { MOST })
    };
    let mass = |of: Kind| sizes.keys().filter(|(_, kind)| *kind == of).map(|(set, kind)| most(set, *kind)).sum::<f64>();
    let balance = mass(against) / mass(Kind::Own);
    let weighted = |case: &&Case| {
        let is_own = case.kind == Kind::Own;
        let weight = most(&case.set, case.kind) / sizes[&(case.set.as_str(), case.kind)];
        (row(case), is_own, if is_own { weight * balance } else { weight })
    };
    let whole = Fitted::of(&training.iter().map(weighted).collect::<Vec<_>>());
    let mut judged: Vec<(&Case, f64)> = Vec::new();
    for fold in 0..FOLDS {
        let is_out = |place: usize| place * 7919 % FOLDS == fold;
        let rest: Vec<_> =
            training.iter().enumerate().filter(|(place, _)| !is_out(*place)).map(|(_, c)| weighted(c)).collect();
        let fitted = Fitted::of(&rest);
        let out = training.iter().enumerate().filter(|(place, _)| is_out(*place));
        judged.extend(out.map(|(_, case)| (*case, fitted.probability(&row(case)))));
    }
    let cut = cut(&judged);
    let rest = cases.iter().filter(|case| case.held_out || (case.kind != Kind::Own && case.kind != against));
    judged.extend(rest.map(|case| (case, whole.probability(&row(case)))));
    let mut groups: BTreeMap<(&str, Kind, bool), Vec<bool>> = BTreeMap::new();
    for (case, p) in &judged {
        groups.entry((&case.set, case.kind, case.held_out)).or_default().push(*p >= cut);
    }
    println!("{name}: cut {cut:.3}");
    for ((set, kind, held_out), above) in groups {
        let yes = above.iter().filter(|yes| **yes).count();
        println!("  {set:28} {kind:?}{} {yes} of {}", if held_out { " held out" } else { "" }, above.len());
    }
    let weight = |(name, _): (&str, f32)| {
        let weight = used.iter().position(|used| *used == name).map_or(0.0, |at| whole.weights[at]);
        (weight * 1000.0).round() / 1000.0
    };
    let values = Signals::default().values().map(weight);
    let unit = [("whole", 0.0), ("headings", 0.0)].map(weight);
    println!("  bias: {:.3}, weights: {values:?}, unit: {unit:?}", whole.bias - (cut / (1.0 - cut)).ln());
}

/// Fits all models to the file `DR_FIT_CASES` and prints their weights.
#[test]
#[ignore = "reads what `measure` has written"]
fn weights() {
    let text = std::fs::read_to_string(std::env::var("DR_FIT_CASES").unwrap()).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // All but three in two hundred questions about something else are refused.
    let foreign = |judged: &[(&Case, f64)]| quantile(judged, |case| case.kind == Kind::Foreign, 0.985);
    // In the large set with near misses, four of five answerable questions are answered.
    let near = |judged: &[(&Case, f64)]| {
        let sets: Vec<_> =
            judged.iter().filter(|(case, _)| case.kind == Kind::Near).map(|(case, _)| &case.set).collect();
        let largest = sets.iter().max_by_key(|set| sets.iter().filter(|other| other == set).count()).copied().unwrap();
        quantile(judged, |case| case.kind == Kind::Own && case.set == *largest, 0.2)
    };
    let about = std::env::var("DR_FIT_ABOUT").unwrap_or("similarity passage unknown hits".into());
    let says = std::env::var("DR_FIT_SAYS").unwrap_or("hits text_score similarity passage worst length words".into());
    let words = ["window", "hits", "missing", "unknown", "text_score", "words"];
    // Non-English questions have no match of a unit.
    let compared: Vec<Case> = cases.iter().filter(|case| case.values.contains_key("whole")).cloned().collect();
    let unit = ["similarity", "length", "words", "worst", "whole", "headings"];
    fit("SAYS_BY_UNIT, then WHOLE and HEADINGS", &compared, &unit, Kind::Near, near);
    fit("ABOUT", &cases, &about.split(' ').collect::<Vec<_>>(), Kind::Foreign, foreign);
    fit("SAYS", &cases, &says.split(' ').collect::<Vec<_>>(), Kind::Near, near);
    let by_similarity = ["similarity", "unknown", "hits"];
    fit("ABOUT_BY_SIMILARITY", &cases, &by_similarity, Kind::Foreign, foreign);
    let by_similarity = ["window", "hits", "text_score", "length", "similarity", "words"];
    fit("SAYS_BY_SIMILARITY", &cases, &by_similarity, Kind::Near, near);
    // Words alone are less reliable: there are more errors of both kinds.
    let by_words = |judged: &[(&Case, f64)]| quantile(judged, |case| case.kind == Kind::Foreign, 0.96);
    fit("ABOUT_BY_WORDS", &cases, &words, Kind::Foreign, by_words);
    fit("SAYS_BY_WORDS", &cases, &words, Kind::Near, near);
}

fn quantile(judged: &[(&Case, f64)], is: impl Fn(&Case) -> bool, part: f64) -> f64 {
    let mut values: Vec<f64> = judged.iter().filter(|(case, _)| is(case)).map(|(_, p)| *p).collect();
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    values[((values.len() as f64 * part) as usize).min(values.len() - 1)]
}

#[test]
fn weights_that_separate_are_found() {
    let rows: Vec<_> = (0..200).map(|at| (vec![f64::from(at), f64::from(at % 7)], at >= 100, 1.0)).collect();
    let fitted = Fitted::of(&rows);
    assert!(fitted.probability(&[150.0, 3.0]) > 0.9 && fitted.probability(&[50.0, 3.0]) < 0.1);
}
