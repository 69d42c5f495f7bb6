//! The report: an answer whose findings are tied to checked quotes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::branch::{Branch, Finding, Reported};
use super::claim;
use super::evidence::{Evidence, EvidenceId, marks};
use super::node::{Node, NodeId, NodeStatus, Tree};
use super::pick::only_points;
use super::question::Question;
use crate::base::everyday::is_everyday;
use crate::base::id::as_word;
use crate::base::readable::readable;
use crate::base::word::{WordSplitter, count_words, language_of};
use crate::llm::call::Limit;
use crate::source::{Passage, Place, Support};

/// Version of the JSON report. Raise it when a field is removed, renamed or changes its meaning.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Minimum number of words of a passage listed for further reading.
const LEAST_SNIPPET_WORDS: usize = 8;

/// Maximum number of passages listed for further reading, in total and per document.
const MAX_PASSAGES: usize = 3;
const MAX_OF_DOCUMENT: usize = 2;

/// Minimum score of a listed passage, as a share of the best score. Below it, passages are mostly about something
/// else.
const LEAST_SCORE: f32 = 0.5;

/// Number of words of the question that a passage listed below a written answer must share, if the question has that
/// many. A single word, such as the name of a product, is in most documents about it.
const LEAST_SHARED_WORDS: usize = 2;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The question is answered.
    Complete,
    /// The money limit was reached.
    BudgetExceeded,
    /// The token limit was reached.
    TokensExceeded,
    /// The time limit was reached.
    TimeExceeded,
    /// The limit on rounds was reached.
    IterationsExceeded,
    /// Every planned node has settled and the planner added none.
    NoMoreTasks,
    /// Two consecutive rounds brought no new evidence.
    NoProgress,
    /// The sources have no evidence for an answer.
    NoEvidence,
    /// Interrupted by the user.
    Cancelled,
}

as_word!(StopReason);

impl StopReason {
    /// Returns whether the run ended by itself: neither at a limit nor by interruption.
    pub(crate) fn is_natural(self) -> bool {
        matches!(self, Self::Complete | Self::NoMoreTasks | Self::NoProgress | Self::NoEvidence)
    }

    /// Returns the limit that ended the run, if one did.
    pub(crate) fn limit(self) -> Option<Limit> {
        match self {
            Self::BudgetExceeded => Some(Limit::Cost),
            Self::TokensExceeded => Some(Limit::Tokens),
            Self::TimeExceeded => Some(Limit::Time),
            Self::IterationsExceeded => Some(Limit::Rounds),
            Self::Complete | Self::NoMoreTasks | Self::NoProgress | Self::NoEvidence | Self::Cancelled => None,
        }
    }
}

/// Whether a report answers its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The report answers the question.
    Answered,
    /// The report prints the closest passages, which may not answer the question.
    Closest,
    /// The report is a refusal.
    Refused,
}

as_word!(Outcome);

/// A section of a long answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Heading, one line.
    pub(crate) title: String,
    /// Markdown text with citations in brackets: `[n2e1]`.
    pub(crate) text: String,
    /// The nodes that a model wrote it from; empty without a model, and once one of them is tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeId>,
    /// The findings that a model wrote it from: their numbers within each of [`Self::nodes`], from 1. Empty in drafts of
    /// earlier versions, whose sections were written from all findings of their nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) findings: BTreeMap<NodeId, BTreeSet<usize>>,
}

/// A passage for further reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FurtherReading {
    /// Excerpt of the passage.
    pub snippet: String,
    /// File and lines, or URL.
    pub(crate) source: Place,
}

/// Totals of model and tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageTotals {
    /// Model calls.
    pub(crate) calls: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens served from the endpoint's prompt cache.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// Searches and page reads.
    pub(crate) tool_calls: u64,
    /// Model and tool calls answered from the journal or the cache.
    pub(crate) cache_hits: u64,
    /// Cost in US dollars; `None` if the price of any call is unknown.
    pub(crate) cost_usd: Option<f64>,
}

// Not derived, since no calls cost nothing, while `None` is an unknown cost.
impl Default for UsageTotals {
    fn default() -> Self {
        Self {
            calls: 0,
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            tool_calls: 0,
            cache_hits: 0,
            cost_usd: Some(0.0),
        }
    }
}

/// Usage in total, by role and by node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageTable {
    /// Sum over all calls.
    pub(crate) total: UsageTotals,
    /// By role of the model, for example `planner`.
    pub(crate) by_role: BTreeMap<String, UsageTotals>,
    /// By node id.
    pub(crate) by_node: BTreeMap<String, UsageTotals>,
}

/// The text of an answer, written by a model or assembled by rules. Every id in it belongs to a checked quote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// Short answer with citations in brackets.
    pub(crate) answer: String,
    /// Sections of a long answer; empty for a short one.
    pub(crate) sections: Vec<Section>,
    /// The answer claim by claim.
    pub(crate) findings: Vec<Finding>,
    /// Findings that contradict each other.
    pub(crate) contradictions: Vec<String>,
    pub(crate) open_questions: Vec<String>,
    /// Known gaps and faults of the answer.
    pub(crate) limitations: Vec<String>,
    /// From 0 to 1.
    pub(crate) confidence: f32,
    /// Whether rules replaced a model that failed to write or judge it, or the requested output is missing.
    /// Marks the report as degraded.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) is_makeshift: bool,
    /// The answer in the schema given with `--schema`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) output: Option<serde_json::Value>,
}

/// Returns a text with the characters escaped that are markup in an answer.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if "\\`*_[]<>#|~".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

impl Draft {
    /// Adds a last sentence to the answer that names what it does not fully answer: for each missing aspect the open
    /// questions that bear on it, or the aspect itself, which becomes an open question.
    pub(crate) fn admit(&mut self, question: &Question, missing: &[String]) {
        // The subject of the whole question is that of every aspect.
        let of_all = claim::subject_of(question.as_str());
        let mut named: Vec<String> = Vec::new();
        for aspect in missing {
            let subject = &claim::subject_of(aspect) - &of_all;
            let bears_on = |open: &&String| !claim::subject_of(open).is_disjoint(&subject);
            let open: Vec<_> = self.open_questions.iter().filter(bears_on).cloned().collect();
            named.extend(if open.is_empty() { vec![aspect.clone()] } else { open });
        }
        let mut seen = HashSet::new();
        named.retain(|open| seen.insert(open.clone()));
        let said: Vec<_> = named.iter().map(|open| escaped(open.trim_end_matches(['.', '?', ' ']))).collect();
        if !self.answer.is_empty() && !said.is_empty() {
            self.answer.push_str(&format!("\n\nNot fully answered: {}.", said.join("; ")));
        }
        for open in &named {
            add_open(&mut self.open_questions, open);
        }
    }

    /// Records that rules replaced a failed model: adds a limitation and marks the draft as makeshift.
    pub(crate) fn made_do(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.is_makeshift = true;
        self.limitations.push(format!("{what} without a model: {why}"));
    }
}

/// The answer to a question, with the evidence needed to check it. Printed as JSON by `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub(crate) schema_version: u32,
    /// `None` if the run was not stored.
    pub(crate) run_id: Option<String>,
    /// The user's question.
    pub(crate) question: Question,
    /// Whether it is answered.
    pub(crate) outcome: Outcome,
    /// Short answer with citations in brackets; empty in a refusal.
    pub(crate) answer: String,
    /// Sections of a long answer; empty for a short one.
    pub(crate) sections: Vec<Section>,
    /// The answer claim by claim.
    pub(crate) findings: Vec<Finding>,
    /// Checked quotes the answer cites, in order of first citation; empty in a refusal.
    pub(crate) evidence: Vec<Evidence>,
    /// Findings that contradict each other.
    pub(crate) contradictions: Vec<String>,
    pub(crate) open_questions: Vec<String>,
    /// Known gaps and faults of the answer. The first one of a refusal is its headline.
    pub(crate) limitations: Vec<String>,
    /// From 0 to 1.
    pub(crate) confidence: f32,
    /// Why the run ended.
    pub(crate) stop_reason: StopReason,
    /// Whether a node was lost or rules replaced a model that failed to write or judge the answer.
    pub(crate) degraded: bool,
    /// Nodes that failed, or all nodes if none had a source to search.
    pub(crate) failed_nodes: Vec<NodeId>,
    /// All nodes with their final state.
    pub(crate) tree: Tree,
    /// Calls, tokens and cost.
    pub(crate) usage: UsageTable,
    /// Deep Research claims that no fetched page confirms.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) reported: Vec<Reported>,
    /// Passages for further reading, best first.
    pub(crate) passages: Vec<FurtherReading>,
    /// The answer in the schema given with `--schema`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) output: Option<serde_json::Value>,
    /// Active time in milliseconds. Time between interruption and resume is not counted.
    pub(crate) elapsed_ms: u64,
}

/// Input of [`Report::of`].
#[derive(Clone, Debug)]
pub(crate) struct ReportInput<'a> {
    /// `None` if the run was not stored.
    pub(crate) run_id: Option<String>,
    /// The user's question.
    pub(crate) question: &'a Question,
    /// All nodes.
    pub(crate) tree: &'a Tree,
    /// Results of the nodes that have one.
    pub(crate) branches: &'a BTreeMap<NodeId, Branch>,
    /// The written or assembled answer.
    pub(crate) draft: &'a Draft,
    /// Why the run ended.
    pub(crate) stop_reason: StopReason,
    /// Description of the knowledge base searched, such as `12 files of kb`; empty if only the web was searched.
    pub(crate) searched: &'a str,
    /// Whether the web was searched.
    pub(crate) has_asked_web: bool,
    /// Calls, tokens and cost.
    pub(crate) usage: UsageTable,
    /// Active time in milliseconds. Time between interruption and resume is not counted.
    pub(crate) elapsed_ms: u64,
}

impl Report {
    /// Builds the report. If the draft cites no checked quote, the report is a refusal, whatever the draft says.
    pub(crate) fn of(material: ReportInput<'_>) -> Self {
        let ReportInput {
            run_id,
            question,
            tree,
            branches,
            draft,
            stop_reason,
            searched,
            has_asked_web,
            usage,
            elapsed_ms,
        } = material;
        let draft = &without_twins(draft, branches);
        let evidence: Vec<_> = quotes_of(draft, branches).into_iter().cloned().collect();
        let is_refusal = evidence.is_empty();
        let failed_nodes = failed(tree, branches, stop_reason);
        // Even for a question that is foreign to the sources, a search ranks something first.
        let is_foreign = is_refusal && branches.values().all(|branch| branch.support == Support::None);
        let subject = named_in(question.as_str());
        let is_written = usage.total.calls > 0 && !is_refusal;
        let further = further(question, tree, branches, is_written).into_iter();
        let further = further.filter(|passage| !is_foreign || is_headed_by(&subject, &passage.place));
        let mut report = Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            question: question.clone(),
            outcome: outcome(is_refusal, &usage, branches),
            answer: String::new(),
            sections: Vec::new(),
            findings: Vec::new(),
            evidence,
            contradictions: Vec::new(),
            open_questions: open_questions(draft, tree, branches),
            limitations: limitations(draft, tree, branches, &failed_nodes),
            confidence: 0.0,
            stop_reason,
            degraded: !failed_nodes.is_empty() || tree.nodes.iter().any(is_lost) || draft.is_makeshift,
            failed_nodes,
            tree: tree.clone(),
            usage,
            reported: branches.values().flat_map(|branch| branch.reported.iter().cloned()).collect(),
            passages: Vec::new(),
            output: None,
            elapsed_ms,
        };
        report.passages = passages(further, &report.evidence, is_written);
        if is_refusal {
            // Whatever the verdict: without a checked quote, nothing is answered.
            if stop_reason == StopReason::Complete {
                report.stop_reason = StopReason::NoEvidence;
            }
            let summary = match stop_reason {
                _ if !report.failed_nodes.is_empty() => refusal_of_failed(tree, branches).to_owned(),
                stop if stop.is_natural() && searched.is_empty() => {
                    "Nothing found on the web answers the question.".to_owned()
                }
                stop if stop.is_natural() && has_asked_web => {
                    format!("Nothing found answers the question (searched: {searched} and the web).")
                }
                stop if stop.is_natural() => {
                    format!("Nothing in the knowledge base answers the question (searched: {searched}).")
                }
                _ => "The run ended before it found any evidence.".to_owned(),
            };
            report.limitations.insert(0, summary);
            if report.open_questions.is_empty() {
                report.open_questions = vec![question.to_string()];
            }
        } else {
            report.answer.clone_from(&draft.answer);
            report.sections.clone_from(&draft.sections);
            report.findings.clone_from(&draft.findings);
            report.contradictions.clone_from(&draft.contradictions);
            report.output.clone_from(&draft.output);
            report.confidence = draft.confidence;
        }
        report
    }

    /// Returns whether the report has no answer.
    pub(crate) fn is_refusal(&self) -> bool {
        self.evidence.is_empty()
    }
}

/// Returns whether a question is answered. Without a model, only the support of the searches tells.
fn outcome(is_refusal: bool, usage: &UsageTable, branches: &BTreeMap<NodeId, Branch>) -> Outcome {
    let is_strong = |branch: &Branch| branch.support == Support::Strong && !branch.evidence.is_empty();
    match () {
        () if is_refusal => Outcome::Refused,
        () if usage.total.calls == 0 && !branches.values().any(is_strong) => Outcome::Closest,
        () => Outcome::Answered,
    }
}

/// Returns the checked quotes a draft cites, in order of first citation.
pub(crate) fn quotes_of<'a>(draft: &Draft, branches: &'a BTreeMap<NodeId, Branch>) -> Vec<&'a Evidence> {
    let mut ids: Vec<EvidenceId> = Vec::new();
    let texts = std::iter::once(&draft.answer).chain(draft.sections.iter().map(|section| &section.text));
    let texts = texts.chain(&draft.contradictions);
    let in_texts = texts.flat_map(|text| marks(text).into_iter().map(|(_, id)| id));
    ids.extend(in_texts.chain(draft.findings.iter().flat_map(|finding| finding.evidence.clone())));
    let mut seen = BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    let evidence = |id: &EvidenceId| branches.get(id.node())?.evidence.iter().find(|quote| quote.id == *id);
    ids.iter().filter_map(evidence).filter(|quote| quote.checked).collect()
}

/// Replaces ids of duplicate quotes by the first one's. Two nodes may quote the same words of the same place, and the
/// report would print them twice.
fn without_twins(draft: &Draft, branches: &BTreeMap<NodeId, Branch>) -> Draft {
    let mut first: Vec<&Evidence> = Vec::new();
    let mut twins: BTreeMap<&EvidenceId, &EvidenceId> = BTreeMap::new();
    for quote in branches.values().flat_map(|branch| &branch.evidence) {
        match first.iter().find(|known| known.quote == quote.quote && known.source == quote.source) {
            Some(known) => drop(twins.insert(&quote.id, &known.id)),
            None => first.push(quote),
        }
    }
    let mut draft = draft.clone();
    if twins.is_empty() {
        return draft;
    }
    let one = |id: &EvidenceId| (*twins.get(id).unwrap_or(&id)).clone();
    for finding in &mut draft.findings {
        let mut seen = BTreeSet::new();
        finding.evidence = finding.evidence.iter().map(one).filter(|id| seen.insert(id.clone())).collect();
        finding.text = renamed(&finding.text, &one);
    }
    draft.answer = renamed(&draft.answer, &one);
    for section in &mut draft.sections {
        section.text = renamed(&section.text, &one);
    }
    for contradiction in &mut draft.contradictions {
        *contradiction = renamed(contradiction, &one);
    }
    draft
}

/// Maps every cited id through `name` and removes duplicates within a pair of brackets.
fn renamed(text: &str, name: &dyn Fn(&EvidenceId) -> EvidenceId) -> String {
    let mut brackets: BTreeMap<usize, (usize, Vec<String>)> = BTreeMap::new();
    for (range, id) in marks(text) {
        let ids = &mut brackets.entry(range.start).or_insert((range.end, Vec::new())).1;
        let id = name(&id).to_string();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let (mut renamed, mut from) = (String::with_capacity(text.len()), 0);
    for (start, (end, ids)) in brackets {
        renamed.push_str(&text[from..start]);
        renamed.push_str(&format!("[{}]", ids.join(", ")));
        from = end;
    }
    renamed.push_str(&text[from..]);
    renamed
}

/// Returns the nodes that failed. If every node was blocked before any source was searched, all of them count as
/// failed: the run then says nothing about what the sources contain.
fn failed(tree: &Tree, branches: &BTreeMap<NodeId, Branch>, stop: StopReason) -> Vec<NodeId> {
    let is_unasked =
        stop.is_natural() && branches.is_empty() && tree.workers().all(|node| node.status == NodeStatus::Blocked);
    let is_failed = |node: &&Node| {
        let is_blocked = is_unasked && tree.has_worker(&node.id);
        node.status == NodeStatus::Failed || is_blocked
    };
    tree.nodes.iter().filter(is_failed).map(|node| node.id.clone()).collect()
}

/// Returns the headline of a refusal after nodes failed.
fn refusal_of_failed(tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> &'static str {
    let has_failed = tree.nodes.iter().any(|node| node.status == NodeStatus::Failed);
    match (branches.is_empty(), has_failed) {
        (false, _) => "Some nodes failed, and the others found no evidence.",
        (true, true) => "Every node failed.",
        (true, false) => "Nothing was searched: no source for this question is available.",
    }
}

/// Returns the open questions of a draft, and the questions of nodes that searched in vain.
fn open_questions(draft: &Draft, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Vec<String> {
    let mut open = draft.open_questions.clone();
    let findings = || branches.values().flat_map(|branch| &branch.report.findings);
    // A settled node is not opened again: a later one serves its aspects, and may have answered it.
    let is_answered = |node: &Node| {
        let has_finding = |aspect| findings().any(|finding| finding.aspect.as_ref() == Some(aspect));
        !node.aspects.is_empty() && node.aspects.iter().all(has_finding)
    };
    let in_vain = tree.nodes.iter().filter(|node| is_in_vain(node, branches) && !is_answered(node));
    // The root asks the question itself.
    for node in in_vain.filter(|node| node.id != tree.root) {
        add_open(&mut open, node.question.as_str());
    }
    open
}

/// Adds a question unless a known one has all of its words. A looser comparison would drop one that differs in a single
/// word: the same question about another cluster.
fn add_open(open: &mut Vec<String>, question: &str) {
    let asked = claim::subject_of(question);
    let is_named =
        |known: &String| known == question || !asked.is_empty() && asked.is_subset(&claim::subject_of(known));
    if !open.iter().any(is_named) {
        open.push(question.to_owned());
    }
}

/// Returns whether a node has ended without findings, and is not blocked for another reason.
fn is_in_vain(node: &Node, branches: &BTreeMap<NodeId, Branch>) -> bool {
    node.status == NodeStatus::Blocked && branches.contains_key(&node.id)
}

/// Returns whether a node was planned but never finished.
fn is_lost(node: &Node) -> bool {
    matches!(node.status, NodeStatus::Pending | NodeStatus::Running)
}

fn limitations(
    draft: &Draft,
    tree: &Tree,
    branches: &BTreeMap<NodeId, Branch>,
    failed_nodes: &[NodeId],
) -> Vec<String> {
    let mut limitations = draft.limitations.clone();
    let notes = branches.values().flat_map(|branch| branch.notes.iter().cloned());
    // A root with a worker is the question itself, and the headline says already that it has no answer. A question that
    // was searched in vain is listed as open.
    let is_part =
        |node: &&Node| (node.id != tree.root || failed_nodes.contains(&node.id)) && !is_in_vain(node, branches);
    // Questions grouped by reason: several often fail for the same one.
    let mut lost: Vec<(String, Vec<String>)> = Vec::new();
    for node in tree.nodes.iter().filter(is_part) {
        let what = match node.status {
            NodeStatus::Done => continue,
            NodeStatus::Failed => "research failed",
            NodeStatus::Blocked => "no answer was found",
            NodeStatus::Pending | NodeStatus::Running => "not researched",
        };
        let how = if node.summary.is_empty() { what.to_owned() } else { format!("{what} ({})", node.summary) };
        let question = format!("`{}`", node.question);
        match lost.iter_mut().find(|(known, _)| *known == how) {
            Some((_, questions)) => questions.push(question),
            None => lost.push((how, vec![question])),
        }
    }
    let lost = lost.into_iter().map(|(how, questions)| format!("{how}: {}", questions.join("; ")));
    for note in notes.chain(lost) {
        if !limitations.contains(&note) {
            limitations.push(note);
        }
    }
    limitations
}

/// Returns the stems of the words that name what a question is about.
fn named_in(question: &str) -> HashSet<String> {
    let splitter = WordSplitter::default();
    let subject = splitter.subject_stems(question);
    let named = splitter.words(question).into_iter().filter(|word| !is_everyday(&question[word.range.clone()]));
    named.map(|word| word.stem).filter(|stem| subject.contains(stem)).collect()
}

/// Returns whether the title and headings of a file have at least half of these stems. Pages and results of tools pass:
/// they were found for the question, whatever their titles.
fn is_headed_by(stems: &HashSet<String>, place: &Place) -> bool {
    if !matches!(place, Place::Kb { .. }) {
        return true;
    }
    let splitter = WordSplitter::default();
    let said: HashSet<_> = title_and_headings(place).flat_map(|own| splitter.stems(own)).collect();
    let shared = stems.intersection(&said).count();
    shared > 0 && shared * 2 >= stems.len()
}

fn title_and_headings(place: &Place) -> impl Iterator<Item = &str> {
    std::iter::once(place.title()).chain(place.heading_path().iter().map(String::as_str))
}

/// Returns the passages that nodes found besides their quotes. Below an answer written by a model, only those that
/// share words with its question or that of their node: a worker tries many searches, and some hits are beside the
/// point.
fn further<'a>(
    question: &Question,
    tree: &Tree,
    branches: &'a BTreeMap<NodeId, Branch>,
    is_written: bool,
) -> Vec<&'a Passage> {
    if !is_written {
        return branches.values().flat_map(|branch| &branch.further).collect();
    }
    let splitter = WordSplitter::default();
    let stems_of = |question: &Question| splitter.subject_stems(question.as_str());
    let (of_run, language) = (stems_of(question), language_of(question.as_str()));
    let mut further = Vec::new();
    for (id, branch) in branches {
        let of_node = tree.get(id).map(|node| stems_of(&node.question));
        let bears_on = |passage: &&Passage| {
            let names = title_and_headings(&passage.place);
            let text = names.chain([passage.snippet.as_str()]).collect::<Vec<_>>().join("\n");
            // Words of two languages have nothing in common.
            if language_of(&text).zip(language).is_some_and(|(own, asked)| own.code != asked.code) {
                return true;
            }
            let words = splitter.stems(&text);
            let has_words = |wanted: &Vec<String>| {
                let shared = wanted.iter().filter(|stem| words.contains(*stem)).count();
                shared >= LEAST_SHARED_WORDS.min(wanted.len())
            };
            has_words(&of_run) || of_node.as_ref().is_some_and(has_words)
        };
        further.extend(branch.further.iter().filter(bears_on));
    }
    further
}

/// Returns the best passages that the report does not quote from. Documents that a model cites are left out entirely,
/// since it has read them.
fn passages<'a>(
    further: impl Iterator<Item = &'a Passage>,
    quoted: &[Evidence],
    is_written: bool,
) -> Vec<FurtherReading> {
    let is_cited = |quote: &Evidence, place: &Place| {
        quote.source.overlaps(place) || is_written && quote.source.is_same_document(place)
    };
    let is_quoted = |passage: &Passage| quoted.iter().any(|quote| is_cited(quote, &passage.place));
    let mut best: Vec<&Passage> = Vec::new();
    let mut top: f32 = 0.0;
    for passage in further {
        top = top.max(passage.score);
        if !best.iter().any(|known| known.id == passage.id) && !is_quoted(passage) {
            best.push(passage);
        }
    }
    best.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut listed: Vec<FurtherReading> = Vec::new();
    for passage in best {
        let snippet = readable(&passage.snippet);
        let of_document = listed.iter().filter(|known| known.source.is_same_document(&passage.place)).count();
        let is_listed = listed.iter().any(|known| known.source.overlaps(&passage.place));
        let is_near = passage.score >= top * LEAST_SCORE && of_document < MAX_OF_DOCUMENT && !is_listed;
        let has_text = !passage.place.heading_path().iter().any(|heading| snippet.trim() == heading.trim());
        if listed.len() < MAX_PASSAGES && is_near && has_text && is_telling(&snippet) {
            listed.push(FurtherReading { snippet, source: passage.place.clone() });
        }
    }
    listed
}

/// Returns whether a snippet is a reason to open a document. A heading, a table header, data or a link is not.
fn is_telling(snippet: &str) -> bool {
    let parts = || snippet.split_whitespace();
    let of_code = parts().filter(|part| part.contains(['{', '}', '=', ';', '<', '>', '"', '_'])).count();
    count_words(snippet) >= LEAST_SNIPPET_WORDS && of_code * 3 < parts().count() && !only_points(snippet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::evidence::strike;
    use crate::research::scripted::{ScriptedSource, add_node, branch};
    use crate::source::Label;

    #[test]
    fn aspect_without_an_answer_is_named_below_the_answer_and_once_among_the_open_questions() {
        let open = "What does a red lamp cost in winter?";
        let question = "What of lamps?".parse().unwrap();
        let mut draft =
            Draft { answer: "Lamps are old. [n2e1]".into(), open_questions: vec![open.into()], ..Draft::default() };
        draft.admit(&question, &["cost of lamps".into(), "Who makes lamps?".into()]);
        let said = "Not fully answered: What does a red lamp cost in winter; Who makes lamps.";
        assert_eq!(draft.answer, format!("Lamps are old. [n2e1]\n\n{said}"));
        assert_eq!(draft.open_questions, [open, "Who makes lamps?"]);
        assert!(draft.limitations.is_empty());
        let answered = Draft { answer: "Lamps are old. [n2e1]".into(), ..Draft::default() };
        let mut draft = answered.clone();
        draft.admit(&question, &[]);
        assert_eq!(draft, answered);
    }

    #[test]
    fn question_that_was_searched_in_vain_is_an_open_question_once_and_no_limitation() {
        let mut tree = Tree::of("What of lamps?".parse().unwrap());
        let asked = ["What do red lamps cost?", "Who makes green lamps?", "Where are lamps sold?"];
        let ids = asked.map(|question| add_node(&mut tree, question, &[]));
        for id in &ids {
            tree.get_mut(id).unwrap().status = NodeStatus::Blocked;
        }
        "no source is set up".clone_into(&mut tree.get_mut(&ids[2]).unwrap().summary);
        let in_vain = ids[..2].iter().map(|id| (id.clone(), branch(id, &[], Label::Internal)));
        let branches: BTreeMap<_, _> = in_vain.collect();
        let draft = Draft { open_questions: vec!["cost of red lamps".into()], ..Draft::default() };
        assert_eq!(open_questions(&draft, &tree, &branches), ["cost of red lamps", asked[1]]);
        assert_eq!(
            limitations(&draft, &tree, &branches, &[]),
            ["no answer was found (no source is set up): `Where are lamps sold?`"]
        );
    }

    #[test]
    fn renamed_ids_are_unique_within_brackets() {
        let one: EvidenceId = "n2e1".parse().unwrap();
        let name = |id: &EvidenceId| if id.to_string() == "n3e1" { one.clone() } else { id.clone() };
        assert_eq!(
            renamed("A [n2e1, n3e1]. B [n3e1] [n4e2], [the note].", &name),
            "A [n2e1]. B [n2e1] [n4e2], [the note]."
        );
    }

    #[test]
    fn brackets_are_a_citation_only_if_every_entry_is_an_id() {
        let found = |text: &str| marks(text).into_iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>();
        assert_eq!(found("so [n2e1], and [n2e1; n3e12]."), ["n2e1", "n2e1", "n3e12"]);
        assert_eq!(found("see [the note] [n2] [[n4e1]] [n2e1"), ["n4e1"]);
    }

    #[test]
    fn two_passages_of_a_document_are_listed_and_none_that_scores_far_below_the_best() {
        let source = ScriptedSource::of(&[]);
        let passage = |path: &str, line: u32, score: f32| {
            let text = "The mill grinds oats from May to the frost.";
            let passage = source.passage(path, &format!("{path}#{line}"), text, line, line);
            Passage { score, snippet: text.into(), ..passage }
        };
        let found = [("a.md", 1, 1.0), ("a.md", 5, 0.9), ("a.md", 9, 0.8), ("b.md", 1, 0.5), ("c.md", 1, 0.4)];
        let found = found.map(|(path, line, score)| passage(path, line, score));
        let listed = passages(found.iter(), &[], false);
        let places: Vec<_> = listed.iter().map(|own| own.source.for_people()).collect();
        assert_eq!(places, ["a.md:1", "a.md:5", "b.md:1"]);
    }

    #[test]
    fn passage_below_a_written_answer_has_words_of_the_question_or_of_that_of_its_node() {
        let source = ScriptedSource::of(&[]);
        let passage = |path: &str, text: &str| Passage {
            snippet: text.into(),
            ..source.passage(path, &format!("{path}#1"), text, 1, 1)
        };
        let mut tree = Tree::of("When does the mill grind oats?".parse().unwrap());
        let id = add_node(&mut tree, "What does the miller pay for rye?", &[]);
        let mut found = branch(&id, &[], Label::Internal);
        found.further = vec![
            passage("mill.md", "Oats are ground from May to the frost."),
            passage("rye.md", "A miller pays in autumn."),
            passage("wheel.md", "The wheel of the mill is red."),
            passage("cats.md", "Cats sleep all day."),
        ];
        let branches = BTreeMap::from([(id, found)]);
        let paths = |is_written: bool| -> Vec<_> {
            let question = tree.nodes[0].question.clone();
            further(&question, &tree, &branches, is_written).iter().map(|passage| passage.id.clone()).collect()
        };
        assert_eq!(paths(true), ["mill.md#1", "rye.md#1"]);
        assert_eq!(paths(false).len(), 4, "without a model, they are the closest there is");
    }

    #[test]
    fn heading_and_data_are_no_reason_to_read_further() {
        assert!(is_telling("The mill grinds oats from May to the first frost."));
        assert!(!is_telling("To grind oats"));
        assert!(!is_telling("For more information about the mill and its wheels, see the page of the mill."));
        assert!(!is_telling(r#"{ "mill": "red", "grinds": ["oats", "rye"], "from": "May", "to": "frost" }"#));
    }

    #[test]
    fn unknown_ids_are_struck_and_counted() {
        let is_known = |id: &EvidenceId| id.to_string() == "n2e1";
        let text = "One [n2e1, n9e9]. Two [n9e9; n8e8]. Three [n2e1] [the note].";
        let (struck, number) = strike(text, &is_known, "");
        assert_eq!((struck.as_str(), number), ("One [n2e1]. Two. Three [n2e1] [the note].", 3));
        assert_eq!(strike("Two [n9e9].", &is_known, "[unsupported]").0, "Two [unsupported].");
    }
}
