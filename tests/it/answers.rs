//! Questions over the folders of `tests/answers`, asked offline through the binary and scored by its output.
//!
//! `just answers` asks them all and prints the figures; the suite asks a few that are answered well today.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::World;

/// Questions of the handbook that the suite asks.
const STABLE: [&str; 10] = ["h01", "h02", "h04", "h07", "h08", "h09", "h12", "h15", "h16", "h17"];

/// Most lines of a good answer to one question, and of one with several parts or entities.
const MAX_LINES: (usize, usize) = (40, 80);

/// Least share of cited lines that bear on the question in a good answer.
const LEAST_PRECISION: f64 = 0.4;

/// Least share of the wanted lines in a usable answer.
const LEAST_COVERAGE: f64 = 0.5;

/// Lines of a bad answer that the table shows.
const SHOWN_LINES: usize = 6;

#[derive(Deserialize)]
struct Questions {
    question: Vec<Question>,
}

/// A question with what its answer has to print; the fields are described at the top of `questions.toml`.
#[derive(Deserialize)]
struct Question {
    id: String,
    folder: String,
    kind: String,
    ask: String,
    outcome: String,
    #[serde(default)]
    held_out: bool,
    #[serde(default)]
    must: Vec<Text>,
    #[serde(default)]
    may: Vec<Text>,
    #[serde(default)]
    never: Vec<Text>,
}

/// A verbatim text of a file.
#[derive(Deserialize)]
struct Text {
    path: String,
    text: String,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Usable,
    Bad,
}

/// The score of an answer.
#[derive(Debug, Serialize)]
struct Scored<'a> {
    id: &'a str,
    folder: &'a str,
    kind: &'a str,
    ask: &'a str,
    held_out: bool,
    expected: &'a str,
    outcome: String,
    verdict: Verdict,
    /// Why it is not good.
    why: String,
    /// Share of the wanted lines that are printed and cited; 1 if none is wanted.
    coverage: f64,
    /// Share of the cited lines that bear on the question; `None` if nothing is cited or nothing is wanted.
    precision: Option<f64>,
    lines: usize,
    confidence: f64,
    /// Whether the exit code says what `outcome` says.
    exit_fits: bool,
    printed: String,
}

impl Scored<'_> {
    fn is_answerable(&self) -> bool {
        self.expected == "answered"
    }

    fn is_answered(&self) -> bool {
        self.outcome == "answered"
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers")
}

fn questions() -> Vec<Question> {
    let text = std::fs::read_to_string(folder().join("questions.toml")).unwrap();
    toml::from_str::<Questions>(&text).unwrap().question
}

/// Returns a world with a folder of `tests/answers` indexed as `kb`.
fn indexed(name: &str) -> World {
    let world = World::with_copy_of(&folder().join(name));
    world.dr(["index", "kb", "--quiet"]).succeeded();
    world
}

/// Numbers of the lines of a file.
type Lines = BTreeSet<usize>;

/// The lines of a file, trimmed; line 0 is empty, so that numbers are those of editors.
fn lines_of(world: &World, path: &str) -> Vec<String> {
    let text = world.read(&format!("kb/{path}"));
    std::iter::once("").chain(text.lines()).map(|line| line.trim().to_owned()).collect()
}

/// Returns whether a line says something: blank lines, rules of tables and fences do not.
fn has_words(line: &str) -> bool {
    line.contains(char::is_alphanumeric) && !line.starts_with("```")
}

/// Returns the lines a text stands in.
fn standing(world: &World, text: &Text) -> Lines {
    let file = world.read(&format!("kb/{}", text.path));
    let at = file.find(&text.text).unwrap();
    let line = |at: usize| file[..at].matches('\n').count() + 1;
    (line(at)..=line(at + text.text.len())).collect()
}

/// Returns the block of lines around a text, with the paragraph before it if it is a list, a table or code.
fn block(world: &World, text: &Text) -> Lines {
    let file = lines_of(world, &text.path);
    let is_prose = |line: &String| !line.is_empty() && !line.starts_with('#') && line != "---";
    let own = standing(world, text);
    let (mut first, mut last) = (own.first().copied().unwrap(), own.last().copied().unwrap());
    let widened = |mut first: usize| {
        while is_prose(&file[first - 1]) {
            first -= 1;
        }
        first
    };
    first = widened(first);
    while file.get(last + 1).is_some_and(is_prose) {
        last += 1;
    }
    let marks = ['-', '*', '|', '>', '`', '1'];
    if file[first].starts_with(marks) && first > 2 && is_prose(&file[first - 2]) {
        first = widened(first - 2);
    }
    (first..=last).collect()
}

/// Reduces a text to its letters and digits, which Markdown and its rendering share.
fn squashed(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns the printed answer without its sources, statistics and marks of citations.
fn body(printed: &str) -> String {
    let marks = Regex::new(r"\[\d+[a-z]?(, ?\d+[a-z]?)*\]").unwrap();
    let ends = Regex::new(r"(?mi)^#* *(sources|read further)").unwrap();
    let end = ends.find(printed).map_or(printed.len(), |found| found.start());
    marks.replace_all(&printed[..end], "").into_owned()
}

fn cited(report: &Value) -> BTreeMap<String, Lines> {
    let mut cited: BTreeMap<String, Lines> = BTreeMap::new();
    for source in report["evidence"].as_array().unwrap().iter().map(|evidence| &evidence["source"]) {
        let line = |key: &str| usize::try_from(source[key].as_u64().unwrap()).unwrap();
        let lines = line("line_start")..=line("line_end");
        cited.entry(source["path"].as_str().unwrap().to_owned()).or_default().extend(lines);
    }
    cited
}

#[expect(clippy::cast_precision_loss, reason = "there are some dozens of lines")]
fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the share of the wanted lines that are cited and shown.
fn coverage(world: &World, question: &Question, cited: &BTreeMap<String, Lines>, shown: &str) -> Option<f64> {
    let (mut wanted, mut met) = (0, 0);
    for text in &question.must {
        // A text may begin or end within a line, so its own lines are looked for.
        let lines = standing(world, text).into_iter().zip(text.text.lines());
        for (number, line) in lines.filter(|(_, line)| has_words(line)) {
            let is_cited = cited.get(&text.path).is_some_and(|lines| lines.contains(&number));
            wanted += 1;
            met += usize::from(is_cited && shown.contains(&squashed(line)));
        }
    }
    share(met, wanted)
}

/// Returns the share of the cited lines that bear on the question.
fn precision(world: &World, question: &Question, cited: &BTreeMap<String, Lines>) -> Option<f64> {
    let mut right: BTreeMap<&str, Lines> = BTreeMap::new();
    for text in question.must.iter().chain(&question.may) {
        right.entry(&text.path).or_default().extend(block(world, text));
    }
    let (mut all, mut bearing) = (0, 0);
    for (path, lines) in cited {
        let file = lines_of(world, path);
        for line in lines.iter().filter(|line| has_words(&file[**line])) {
            all += 1;
            bearing += usize::from(right.get(path.as_str()).is_some_and(|lines| lines.contains(line)));
        }
    }
    share(bearing, all).filter(|_| !question.must.is_empty())
}

/// Asks a question and scores the answer.
fn score<'a>(world: &World, question: &'a Question) -> Scored<'a> {
    let run = world.dr(["ask", "--offline", "--json", "--quiet", &question.ask]);
    let report = run.json();
    let printed = world.dr(["replay", report["run_id"].as_str().unwrap()]).stdout;
    let (shown, cited) = (squashed(&body(&printed)), cited(&report));
    let never = question.never.iter().find(|text| shown.contains(&squashed(&text.text)));
    let mut scored = Scored {
        id: &question.id,
        folder: &question.folder,
        kind: &question.kind,
        ask: &question.ask,
        held_out: question.held_out,
        expected: &question.outcome,
        outcome: report["outcome"].as_str().unwrap().to_owned(),
        verdict: Verdict::Good,
        why: String::new(),
        coverage: coverage(world, question, &cited, &shown).unwrap_or(1.0),
        precision: precision(world, question, &cited),
        lines: printed.lines().count(),
        confidence: report["confidence"].as_f64().unwrap_or_default(),
        exit_fits: run.exit == Some(if report["outcome"] == "answered" { 0 } else { 3 }),
        printed,
    };
    (scored.verdict, scored.why) = verdict(&scored, never);
    scored
}

fn verdict(scored: &Scored<'_>, never: Option<&Text>) -> (Verdict, String) {
    let outcome = scored.outcome.as_str();
    let several = matches!(scored.kind, "comparison" | "parts");
    let max_lines = if several { MAX_LINES.1 } else { MAX_LINES.0 };
    match (scored.expected, outcome) {
        ("closest", "closest" | "refused") | ("refused", "refused") => (Verdict::Good, String::new()),
        ("refused", "closest") => (Verdict::Usable, "closest passages of a foreign folder".into()),
        ("closest" | "refused", _) => (Verdict::Bad, "answered".into()),
        (_, "refused") => (Verdict::Bad, "refused".into()),
        _ if scored.coverage < LEAST_COVERAGE => (Verdict::Bad, "does not answer".into()),
        _ if scored.coverage < 1.0 => (Verdict::Usable, "incomplete".into()),
        (_, "closest") => (Verdict::Usable, "as closest passages".into()),
        _ if never.is_some() => {
            (Verdict::Usable, never.map(|text| format!("prints `{}`", text.text)).unwrap_or_default())
        }
        _ if scored.precision.is_some_and(|share| share < LEAST_PRECISION) => {
            (Verdict::Usable, "much beside it".into())
        }
        _ if scored.lines > max_lines => (Verdict::Usable, format!("{} lines", scored.lines)),
        _ => (Verdict::Good, String::new()),
    }
}

/// Asks all questions, two folders at a time, in the order of the file.
fn score_all(questions: &[Question]) -> Vec<Scored<'_>> {
    let folders: BTreeSet<&str> = questions.iter().map(|question| question.folder.as_str()).collect();
    let (waiting, scored) = (Mutex::new(folders), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(folder) = { waiting.lock().unwrap().pop_first() } {
            let world = indexed(folder);
            for (at, question) in questions.iter().enumerate().filter(|(_, question)| question.folder == folder) {
                let result = score(&world, question);
                scored.lock().unwrap().insert(at, result);
            }
        }
    };
    std::thread::scope(|scope| [scope.spawn(work), scope.spawn(work)].map(|thread| thread.join().unwrap()));
    scored.into_inner().unwrap().into_values().collect()
}

/// Figures of a group of questions.
#[derive(Serialize)]
struct Figures {
    name: String,
    questions: usize,
    good: usize,
    usable: usize,
    bad: usize,
    /// Means over the questions with an answer.
    coverage: Option<f64>,
    precision: Option<f64>,
    /// Median.
    lines: usize,
    refused_wrongly: usize,
    hedged: usize,
    answered_wrongly: usize,
    /// Exit codes that do not say what `outcome` says.
    exit_wrong: usize,
}

impl Figures {
    fn of(name: &str, scored: &[&Scored<'_>]) -> Self {
        let count = |is: &dyn Fn(&Scored<'_>) -> bool| scored.iter().filter(|scored| is(scored)).count();
        let verdicts = |verdict| count(&|scored| scored.verdict == verdict);
        let answerable = || scored.iter().filter(|scored| scored.is_answerable());
        let precisions: Vec<f64> = answerable().filter_map(|scored| scored.precision).collect();
        let coverages: Vec<f64> = answerable().map(|scored| scored.coverage).collect();
        let mut lines: Vec<usize> = scored.iter().map(|scored| scored.lines).collect();
        lines.sort_unstable();
        Self {
            name: name.to_owned(),
            questions: scored.len(),
            good: verdicts(Verdict::Good),
            usable: verdicts(Verdict::Usable),
            bad: verdicts(Verdict::Bad),
            coverage: mean(&coverages),
            precision: mean(&precisions),
            lines: lines.get(lines.len() / 2).copied().unwrap_or_default(),
            refused_wrongly: count(&|scored| scored.is_answerable() && scored.outcome == "refused"),
            hedged: count(&|scored| scored.is_answerable() && scored.outcome == "closest"),
            answered_wrongly: count(&|scored| !scored.is_answerable() && scored.is_answered()),
            exit_wrong: count(&|scored| !scored.exit_fits),
        }
    }

    fn line(&self) -> String {
        let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        format!(
            "{:<15} {:>3} {:>5} {:>6} {:>4} {:>9} {:>9} {:>6} {:>8} {:>7} {:>9} {:>6}\n",
            self.name,
            self.questions,
            self.good,
            self.usable,
            self.bad,
            figure(self.coverage),
            figure(self.precision),
            self.lines,
            self.refused_wrongly,
            self.hedged,
            self.answered_wrongly,
            self.exit_wrong,
        )
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    share(1, values.len()).map(|each| values.iter().sum::<f64>() * each)
}

fn figures(scored: &[Scored<'_>]) -> Vec<Figures> {
    let keys: [fn(&Scored<'_>) -> String; 4] = [
        |scored| scored.kind.to_owned(),
        |scored| scored.folder.to_owned(),
        |scored| (if scored.held_out { "held out" } else { "not held out" }).to_owned(),
        |_| "all".to_owned(),
    ];
    let mut groups: Vec<(String, Vec<&Scored<'_>>)> = Vec::new();
    for (key, scored) in keys.iter().flat_map(|key| scored.iter().map(move |scored| (key(scored), scored))) {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(scored),
            None => groups.push((key, vec![scored])),
        }
    }
    groups.iter().map(|(name, group)| Figures::of(name, group)).collect()
}

fn table(figures: &[Figures]) -> String {
    let head = "                  n  good usable  bad  coverage precision  lines  refused  hedged  answered   exit\n";
    let under = "                                                           median  wrongly          wrongly  wrong\n";
    format!("{head}{under}{}", figures.iter().map(Figures::line).collect::<String>())
}

/// Lists the answers that are not good, the worst first, with the first lines that were printed.
fn failures(scored: &[Scored<'_>]) -> String {
    let mut text = String::new();
    for verdict in [Verdict::Bad, Verdict::Usable] {
        // Held-out questions are counted but not shown, so that weights are not fitted to them by eye.
        for scored in scored.iter().filter(|scored| scored.verdict == verdict && !scored.held_out) {
            let Scored { id, kind, ask, why, coverage, .. } = scored;
            let _ = writeln!(text, "\n{id} {verdict:?} ({kind}): {ask}\n   {why}, coverage {coverage:.2}");
            let printed = scored.printed.lines().filter(|line| !line.trim().is_empty()).skip(1).take(SHOWN_LINES);
            printed.for_each(|line| {
                let _ = writeln!(text, "   | {}", line.chars().take(110).collect::<String>());
            });
        }
    }
    text
}

/// Lists the questions whose verdict differs from that of an earlier run.
fn changes(before: &Value, scored: &[Scored<'_>]) -> String {
    let old = |id: &str| before["questions"].as_array()?.iter().find(|question| question["id"] == id);
    let changed = scored.iter().filter_map(|scored| {
        let old = Verdict::deserialize(&old(scored.id)?["verdict"]).ok()?;
        let better = if scored.verdict < old { "better" } else { "worse" };
        (scored.verdict != old).then(|| format!("{better}: {} {old:?} → {:?}\n", scored.id, scored.verdict))
    });
    changed.collect()
}

/// Prints the figures. `DR_ANSWERS` names a JSON file that receives them; what changed since the run it holds is listed.
#[test]
#[ignore = "prints figures; run it with `just answers`"]
fn figures_of_all_questions() {
    let questions = questions();
    let scored = score_all(&questions);
    let figures = figures(&scored);
    println!("{}\n{}", failures(&scored), table(&figures));
    if let Some(file) = std::env::var_os("DR_ANSWERS") {
        let before = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        println!("{}", before.map(|before| changes(&before, &scored)).unwrap_or_default());
        let json = serde_json::json!({ "figures": figures, "questions": scored });
        std::fs::write(&file, serde_json::to_string_pretty(&json).unwrap()).unwrap();
    }
}

#[test]
fn texts_of_the_questions_stand_once_in_their_files() {
    let questions = questions();
    let ids: BTreeSet<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(ids.len(), questions.len(), "every question has its own id");
    for question in &questions {
        for text in question.must.iter().chain(&question.may).chain(&question.never) {
            let file = std::fs::read_to_string(folder().join(&question.folder).join(&text.path)).unwrap();
            assert_eq!(file.matches(&text.text).count(), 1, "{} {}: `{}`", question.id, text.path, text.text);
        }
        let is_answerable = question.outcome == "answered";
        assert!(["answered", "closest", "refused"].contains(&question.outcome.as_str()), "{}", question.id);
        assert_eq!(is_answerable, !question.must.is_empty(), "{}", question.id);
    }
    let held_out = questions.iter().filter(|question| question.held_out).count();
    assert!((questions.len() / 4..=questions.len() / 2).contains(&held_out), "{held_out} are held out");
}

#[test]
fn stable_questions_are_answered_well() {
    let world = indexed("handbook");
    let questions = questions();
    let bad: Vec<_> = questions
        .iter()
        .filter(|question| STABLE.contains(&question.id.as_str()))
        .map(|question| score(&world, question))
        .filter(|scored| scored.verdict != Verdict::Good)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
