//! Fits the weights of [`Features`] to sets of questions: `just fit-units SETS`.
//!
//! Each line of the file SETS names an index, the folder it was made of, and a file of questions, one JSON object a
//! line: `text`, `gold` and `fair`. The last two list excerpts (`doc`, `content`) of the units that answer, and of
//! those that answer in part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::features::Features;
use super::*;
use crate::base::id::ContentHash;
use crate::kb::embed::{EmbedderOptions, load};
use crate::kb::index::{Index, IndexLocation};
use crate::kb::search::{Hit, SearchOptions, Searcher};
use crate::research::evidence::line_range;
use crate::source::Label;

/// Hits that are read for one question.
const HITS: usize = 10;

/// Strength of the ridge penalty on standardised weights, as a number of questions.
const RIDGE: f64 = 3.0;

/// Steps of the fit, and the length of each.
const STEPS: usize = 3_000;
const RATE: f64 = 0.5;

#[derive(Deserialize)]
struct UnitExcerpt {
    doc: String,
    content: String,
}

#[derive(Deserialize)]
struct GradedQuestion {
    text: String,
    gold: Vec<UnitExcerpt>,
    #[serde(default)]
    fair: Vec<UnitExcerpt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answers {
    Wholly,
    Partly,
    Not,
}

/// A question with its units and their features.
#[derive(Serialize, Deserialize)]
struct Case {
    set: String,
    question: String,
    units: Vec<(Answers, Vec<f64>)>,
}

fn reading(text: String, hit: &Hit) -> DocumentHits {
    let place = Place::Kb {
        collection: hit.collection.clone(),
        path: hit.path.clone(),
        title: hit.title.clone(),
        heading_path: hit.heading_path.clone(),
        line_start: 1,
        line_end: 1,
        content_hash: ContentHash::of(text.as_bytes()),
        date: None,
    };
    let id = hit.id.to_string();
    let document = Passage { id, place, label: Label::Internal, snippet: String::new(), text, score: hit.score };
    DocumentHits { document, hits: Vec::new() }
}

async fn searcher(index: &str, embedder: &Arc<dyn Embedder>) -> Searcher {
    let index = Index::open(&IndexLocation::parse(index).unwrap()).await.unwrap();
    Searcher::new(index, Ok(Arc::clone(embedder)))
}

/// Returns the options with which a run searches.
fn options() -> SearchOptions {
    SearchOptions { limit: 12, distinct: true, ..SearchOptions::default() }
}

/// Returns the documents of the hits, as a run reads them.
fn readings(hits: &[Hit], folder: &str) -> Vec<DocumentHits> {
    let mut readings: Vec<(&str, DocumentHits)> = Vec::new();
    for hit in hits.iter().take(HITS) {
        let at = readings.iter().position(|(path, _)| *path == hit.path).unwrap_or_else(|| {
            let text = std::fs::read_to_string(format!("{folder}/{}", hit.path)).unwrap();
            readings.push((&hit.path, reading(text, hit)));
            readings.len() - 1
        });
        let own = &mut readings[at].1;
        own.hits.push((line_range(&own.document.text, hit.line_start, hit.line_end), hit.score));
    }
    readings.into_iter().map(|(_, reading)| reading).collect()
}

/// Returns whether a unit has half of an excerpt: one may begin in the sentence before.
fn has_any(candidate: &UnitCandidate<'_>, excerpts: &[UnitExcerpt]) -> bool {
    let Passage { place: Place::Kb { path, .. }, text, .. } = &candidate.reading.document else { return false };
    let own = &candidate.unit.range;
    let shared = |at: usize, length: usize| own.end.min(at + length).saturating_sub(own.start.max(at));
    let has = |UnitExcerpt { content, .. }: &UnitExcerpt| {
        text.match_indices(content).any(|(at, _)| shared(at, content.len()) * 2 > content.len())
    };
    excerpts.iter().filter(|excerpt| excerpt.doc == *path).any(has)
}

/// Measures the features of the units of all sets. `DR_FIT` is the file of sets, `DR_FIT_CASES` the file to write.
#[tokio::test]
#[ignore = "reads evaluation sets"]
async fn measure() {
    let embedder = load(&EmbedderOptions::builtin()).unwrap();
    let sets = std::fs::read_to_string(std::env::var("DR_FIT").unwrap()).unwrap();
    let mut cases = String::new();
    for line in sets.lines() {
        let [index, folder, questions] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let searcher = searcher(index, &embedder).await;
        for line in std::fs::read_to_string(questions).unwrap().lines() {
            let GradedQuestion { text, gold, fair } = serde_json::from_str(line).unwrap();
            let readings = readings(&searcher.search(&text, &options()).await.unwrap().hits, folder);
            let question: Question = text.parse().unwrap();
            let sought = Sought::of(&text, &searcher.splitter);
            let (mut candidates, _) = candidates(&readings, &[], &sought);
            add_meaning(&mut candidates, &question, embedder.as_ref()).unwrap();
            let answers = |candidate: &UnitCandidate<'_>| match () {
                () if has_any(candidate, &gold) => Answers::Wholly,
                () if has_any(candidate, &fair) => Answers::Partly,
                () => Answers::Not,
            };
            let values =
                |own: &UnitCandidate<'_>| own.features.values().iter().map(|(_, value)| f64::from(*value)).collect();
            let units = candidates.iter().map(|candidate| (answers(candidate), values(candidate))).collect();
            let case = Case { set: questions.to_owned(), question: text, units };
            writeln!(cases, "{}", serde_json::to_string(&case).unwrap()).unwrap();
        }
    }
    std::fs::write(std::env::var("DR_FIT_CASES").unwrap(), cases).unwrap();
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Fits weights that make the units which answer likely: a softmax over the units of each question. Those that answer
/// in part count neither way.
fn fit(cases: &[&Case]) -> Vec<f64> {
    let columns = cases[0].units[0].1.len();
    let all: Vec<&Vec<f64>> = cases.iter().flat_map(|case| &case.units).map(|(_, values)| values).collect();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand units")]
    let mean = |of: &dyn Fn(&Vec<f64>) -> f64| all.iter().map(|values| of(values)).sum::<f64>() / all.len() as f64;
    let scale: Vec<f64> = (0..columns)
        .map(|at| {
            let middle = mean(&|values| values[at]);
            mean(&|values| (values[at] - middle).powi(2)).sqrt()
        })
        .collect();
    let mut weights = vec![0.0; columns];
    for _ in 0..STEPS {
        let mut slope: Vec<f64> = weights.iter().zip(&scale).map(|(weight, scale)| -RIDGE * weight * scale).collect();
        for case in cases {
            let units = || case.units.iter().filter(|(answers, _)| *answers != Answers::Partly);
            let odds = |(_, values): &(Answers, Vec<f64>)| dot(values, &weights).exp();
            let sum: f64 = units().map(odds).sum();
            let right: f64 = units().filter(|unit| unit.0 == Answers::Wholly).map(odds).sum();
            for unit in units().filter(|_| right > 0.0) {
                let is_right = if unit.0 == Answers::Wholly { 1.0 / right } else { 0.0 };
                let pull = odds(unit) * (is_right - 1.0 / sum);
                slope
                    .iter_mut()
                    .zip(&unit.1)
                    .zip(&scale)
                    .for_each(|((s, value), scale)| *s += pull * value / scale.max(1e-9));
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a few hundred questions")]
        let step = RATE / cases.len() as f64;
        // Along standardised features; one that never varies is left alone.
        for ((weight, slope), scale) in weights.iter_mut().zip(slope).zip(&scale).filter(|(_, scale)| **scale > 1e-6) {
            *weight += step * slope / scale;
        }
    }
    weights
}

/// A question measured by `just fit`; the other fields are kept unchanged.
#[derive(Serialize, Deserialize)]
struct MeasuredQuestion {
    index: String,
    question: String,
    values: BTreeMap<String, f32>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

/// Adds the match of the best unit to each question of the file `DR_FIT_CASES`, which `just fit` has measured. The
/// files of an index `F/.dr/index` are read from `F/kb`.
#[tokio::test]
#[ignore = "reads what `kb::search::fit::measure` has written"]
async fn add_matches() {
    let path = std::env::var("DR_FIT_CASES").unwrap();
    let embedder = load(&EmbedderOptions::builtin()).unwrap();
    let mut searchers: BTreeMap<String, Searcher> = BTreeMap::new();
    let mut cases = String::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let mut case: MeasuredQuestion = serde_json::from_str(line).unwrap();
        if !searchers.contains_key(&case.index) {
            searchers.insert(case.index.clone(), searcher(&case.index, &embedder).await);
        }
        let searcher = &searchers[&case.index];
        let folder = format!("{}/kb", case.index.trim_end_matches("/.dr/index"));
        let readings = readings(&searcher.search(&case.question, &options()).await.unwrap().hits, &folder);
        let question: Question = case.question.parse().unwrap();
        let picked =
            pick(&NodeId::numbered(1), &question, &[], &readings, &searcher.splitter, Some(embedder.as_ref())).unwrap();
        if let Some(matches) = picked.units.first().and_then(|best| best.matches) {
            case.values.extend([("whole".to_owned(), matches.whole), ("headings".to_owned(), matches.headings)]);
        }
        writeln!(cases, "{}", serde_json::to_string(&case).unwrap()).unwrap();
    }
    std::fs::write(path, cases).unwrap();
}

/// Prints how often the first unit answers, wholly or at least in part, and how often one of the first three does.
fn print_shares(name: &str, cases: &[&Case], weights: &[f64]) {
    let mut counts = [0; 3];
    for case in cases {
        let mut units: Vec<_> = case.units.iter().map(|(answers, values)| (dot(values, weights), *answers)).collect();
        units.sort_by(|a, b| b.0.total_cmp(&a.0));
        let is = |wanted: &[Answers], first: usize| units.iter().take(first).any(|(_, own)| wanted.contains(own));
        let found = [is(&[Answers::Wholly], 1), is(&[Answers::Wholly, Answers::Partly], 1), is(&[Answers::Wholly], 3)];
        counts.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
    }
    println!("{name}: of {} questions {counts:?} have an answer first, a partial one first, one of three", cases.len());
}

/// Fits the weights to the file `DR_FIT_CASES` and prints them, with their results on each set when it is left out.
#[test]
#[ignore = "reads what `measure` has written"]
fn weights() {
    let text = std::fs::read_to_string(std::env::var("DR_FIT_CASES").unwrap()).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let today: Vec<f64> = features::WEIGHTS.iter().map(|weight| f64::from(*weight)).collect();
    for set in cases.iter().map(|case| &case.set).collect::<BTreeSet<_>>() {
        let (own, others): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.set == *set);
        print_shares(&format!("{set} as weighed today"), &own, &today);
        print_shares(&format!("{set} left out"), &own, &fit(&others));
    }
    let names = Features::default().values().map(|(name, _)| name);
    let weights: BTreeMap<_, _> = names.into_iter().zip(fit(&cases.iter().collect::<Vec<_>>())).collect();
    println!("{weights:.2?}");
}

#[test]
fn fit_finds_the_feature_that_tells() {
    let unit = |answers, tells: f64, noise: f64| (answers, vec![tells, noise]);
    let case = |number: u32| {
        let noise = f64::from(number % 5);
        let units = vec![
            unit(Answers::Not, 0.2, noise),
            unit(Answers::Wholly, 0.9, 2.0),
            unit(Answers::Partly, 0.6, noise),
            unit(Answers::Not, 0.4, 4.0 - noise),
        ];
        Case { set: String::new(), question: number.to_string(), units }
    };
    let cases: Vec<_> = (0..50).map(case).collect();
    let weights = fit(&cases.iter().collect::<Vec<_>>());
    assert!(weights[0] > 2.0 && weights[1].abs() < 0.1, "{weights:?}");
}
