//! Branches become a Report: findings, each tied to quotes that were checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::branch::{Branch, Finding, Reported};
use super::evidence::{Evidence, EvidenceId};
use super::node::{Node, NodeId, NodeStatus, Tree};
use super::question::Question;
use crate::source::{Passage as SourcePassage, Place};

/// Version of the report as JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// Passages listed for further reading, at most.
const MAX_PASSAGES: usize = 8;

/// Passages listed beside a refusal, at most.
const MAX_NEAREST: usize = 3;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The question is answered.
    Complete,
    /// The money is spent.
    BudgetExceeded,
    /// The tokens, or the calls, are used up.
    TokensExceeded,
    /// The time is up.
    TimeExceeded,
    /// There were as many rounds as there may be.
    IterationsExceeded,
    /// Everything planned was done, and nothing more could be planned.
    NoMoreTasks,
    /// Two rounds brought no new evidence.
    NoProgress,
    /// Nothing was found that bears on the question.
    NoEvidence,
    /// The user stopped it.
    Cancelled,
}

impl StopReason {
    /// Tells whether a run ended of itself, and not at a limit or because somebody stopped it.
    pub fn is_natural(self) -> bool {
        matches!(self, Self::Complete | Self::NoMoreTasks | Self::NoProgress | Self::NoEvidence)
    }
}

/// A part of a long answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its text, with the ids of the quotes it rests on in brackets: `[n2e1]`.
    pub text: String,
}

/// A passage worth reading beyond the quotes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// A stretch of it.
    pub snippet: String,
    /// Where it stands.
    pub source: Place,
}

/// What calls came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Calls of a model.
    pub calls: u64,
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens sent that the endpoint had in its cache.
    pub cached_tokens: u64,
    /// Tokens received, reasoning included.
    pub output_tokens: u64,
    /// Tokens of reasoning.
    pub reasoning_tokens: u64,
    /// Searches and readings of sources.
    pub tool_calls: u64,
    /// Of those and of the calls of models, how many were answered from what was on record.
    pub cache_hits: u64,
    /// Price in US dollars; none where the price of a call is not known.
    pub cost_usd: Option<f64>,
}

impl Default for Usage {
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

/// Usage as a whole, and by who caused it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageTable {
    /// All of it.
    pub total: Usage,
    /// By role of the model.
    pub by_role: BTreeMap<String, Usage>,
    /// By node of the tree.
    pub by_node: BTreeMap<String, Usage>,
}

/// What is said in answer, by a writer or by rules; every id in it is of a checked quote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The answer in short, with ids of quotes in brackets where a writer wrote it.
    pub answer: String,
    /// The answer at length, where it is long.
    pub sections: Vec<Section>,
    /// The answer claim by claim.
    pub findings: Vec<Finding>,
    /// Findings that cannot all be true.
    pub contradictions: Vec<String>,
    /// What is still open.
    pub open_questions: Vec<String>,
    /// What keeps the answer from being better.
    pub limitations: Vec<String>,
    /// How far it can be relied on, from 0 to 1.
    pub confidence: f32,
    /// Whether code stood in for a model that was to write or judge it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_makeshift: bool,
    /// The answer in the form the caller wanted, where one was wanted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<serde_json::Value>,
}

impl Draft {
    /// Notes what was to be done by a model and was done by code, and why.
    pub fn made_do(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.is_makeshift = true;
        self.limitations.push(format!("{what} by code: {why}"));
    }
}

/// The answer to a question, with everything needed to check it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The stored run; none where nothing was stored.
    pub run_id: Option<String>,
    /// What was asked.
    pub question: Question,
    /// The answer as one text.
    pub answer: String,
    /// The answer at length, where it is long.
    pub sections: Vec<Section>,
    /// The answer claim by claim.
    pub findings: Vec<Finding>,
    /// The quotes the answer cites.
    pub evidence: Vec<Evidence>,
    /// Findings that cannot all be true.
    pub contradictions: Vec<String>,
    /// What is still open.
    pub open_questions: Vec<String>,
    /// What keeps the answer from being better.
    pub limitations: Vec<String>,
    /// How far it can be relied on, from 0 to 1.
    pub confidence: f32,
    /// Why the run ended.
    pub stop_reason: StopReason,
    /// Whether something was lost on the way: a node, or the model that was to write or judge the answer.
    pub degraded: bool,
    /// Nodes that failed; where nothing could be asked at all, also those that no way led to.
    pub failed_nodes: Vec<NodeId>,
    /// The nodes.
    pub tree: Tree,
    /// What the calls cost.
    pub usage: UsageTable,
    /// What Deep Research says and no page was found to bear out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reported: Vec<Reported>,
    /// Passages to read further, best first.
    pub passages: Vec<Passage>,
    /// The answer in the form the caller wanted, where one was wanted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<serde_json::Value>,
    /// Active time, in milliseconds.
    pub elapsed_ms: u64,
}

/// Everything a report is made of.
#[derive(Clone, Debug)]
pub struct Material<'a> {
    /// The stored run; none where nothing was stored.
    pub run_id: Option<String>,
    /// What was asked.
    pub question: &'a Question,
    /// The nodes.
    pub tree: &'a Tree,
    /// What the nodes found.
    pub branches: &'a BTreeMap<NodeId, Branch>,
    /// What is said in answer.
    pub draft: &'a Draft,
    /// Why the run ended.
    pub stop_reason: StopReason,
    /// What was searched inside, for people: `12 files of kb`; nothing where only the web was asked.
    pub searched: &'a str,
    /// Whether the web was asked too.
    pub has_asked_web: bool,
    /// What the calls cost.
    pub usage: UsageTable,
    /// Active time, in milliseconds.
    pub elapsed_ms: u64,
}

impl Report {
    /// Puts a report together. Without a single checked quote there is a refusal, whatever the draft says.
    pub fn of(material: Material<'_>) -> Self {
        let Material {
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
        let evidence = cited(draft, branches);
        let is_refusal = evidence.is_empty();
        let failed_nodes = failed(tree, branches, stop_reason);
        let further = branches.values().flat_map(|branch| &branch.further);
        let mut report = Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            question: question.clone(),
            answer: String::new(),
            sections: Vec::new(),
            findings: Vec::new(),
            evidence,
            contradictions: Vec::new(),
            open_questions: draft.open_questions.clone(),
            limitations: limitations(draft, tree, branches, &failed_nodes),
            confidence: 0.0,
            stop_reason,
            degraded: !failed_nodes.is_empty() || tree.nodes.iter().any(is_lost) || draft.is_makeshift,
            failed_nodes,
            tree: tree.clone(),
            usage,
            reported: branches.values().flat_map(|branch| branch.reported.iter().cloned()).collect(),
            passages: passages(further, if is_refusal { MAX_NEAREST } else { MAX_PASSAGES }),
            output: None,
            elapsed_ms,
        };
        if is_refusal {
            if stop_reason == StopReason::Complete {
                report.stop_reason = StopReason::NoEvidence;
            }
            let summary = match stop_reason {
                _ if !report.failed_nodes.is_empty() => refusal_of_failed(tree, branches).to_owned(),
                stop if stop.is_natural() && searched.is_empty() => {
                    "Nothing that was found on the web answers this question.".to_owned()
                }
                stop if stop.is_natural() && has_asked_web => {
                    format!("Nothing that was found answers this question (asked: {searched}, and the web).")
                }
                stop if stop.is_natural() => {
                    format!("Nothing in the knowledge base answers this question (searched: {searched}).")
                }
                _ => "The run ended before anything was found.".to_owned(),
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

    /// Returns the quote a finding refers to.
    pub fn quote(&self, id: &EvidenceId) -> Option<&Evidence> {
        self.evidence.iter().find(|evidence| evidence.id == *id)
    }

    /// Tells whether there is an answer.
    pub fn is_refusal(&self) -> bool {
        self.evidence.is_empty()
    }
}

/// Returns the checked quotes a draft cites, in the order it cites them.
fn cited(draft: &Draft, branches: &BTreeMap<NodeId, Branch>) -> Vec<Evidence> {
    let mut ids: Vec<EvidenceId> = Vec::new();
    let texts = std::iter::once(&draft.answer).chain(draft.sections.iter().map(|section| &section.text));
    let in_texts = texts.flat_map(|text| marks(text).into_iter().map(|(_, id)| id));
    ids.extend(in_texts.chain(draft.findings.iter().flat_map(|finding| finding.evidence.clone())));
    let mut seen = BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    let evidence = |id: &EvidenceId| branches.get(id.node())?.evidence.iter().find(|quote| quote.id == *id);
    ids.iter().filter_map(evidence).filter(|quote| quote.checked).cloned().collect()
}

/// Returns the draft with every quote named by one id: two nodes may have found the same words in the same place.
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
    draft
}

/// Returns a text with every id in brackets as `name` has it, none twice in one pair of brackets.
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

/// Returns where a text cites quotes, `[n2e1]` or `[n2e1, n3e2]`: the range of the brackets and each id in them.
pub fn marks(text: &str) -> Vec<(std::ops::Range<usize>, EvidenceId)> {
    let mut marks = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find('[').map(|at| from + at) {
        let Some(close) = text[open..].find(']').map(|at| open + at) else { break };
        let inner: Vec<_> = text[open + 1..close].split([',', ';']).map(|id| id.trim().parse::<EvidenceId>()).collect();
        from = open + 1;
        if inner.iter().all(Result::is_ok) {
            from = close + 1;
            marks.extend(inner.into_iter().flatten().map(|id| (open..close + 1, id)));
        }
    }
    marks
}

/// Returns a text without the ids in it that are not known, and how many those were; where brackets lose all they have,
/// `instead` stands in their place.
pub fn strike(text: &str, is_known: &dyn Fn(&EvidenceId) -> bool, instead: &str) -> (String, usize) {
    let mut brackets: Vec<(std::ops::Range<usize>, Vec<EvidenceId>)> = Vec::new();
    for (range, id) in marks(text) {
        match brackets.last_mut().filter(|(last, _)| *last == range) {
            Some((_, ids)) => ids.push(id),
            None => brackets.push((range, vec![id])),
        }
    }
    let (mut kept, mut from, mut struck) = (String::with_capacity(text.len()), 0, 0);
    for (range, ids) in brackets {
        let known: Vec<_> = ids.iter().filter(|id| is_known(id)).map(ToString::to_string).collect();
        struck += ids.len() - known.len();
        kept.push_str(&text[from..range.start]);
        match (known.is_empty(), instead.is_empty()) {
            (false, _) => kept.push_str(&format!("[{}]", known.join(", "))),
            (true, false) => kept.push_str(instead),
            // The space before what is struck out goes with it.
            (true, true) => kept.truncate(kept.trim_end_matches(' ').len()),
        }
        from = range.end;
    }
    kept.push_str(&text[from..]);
    (kept, struck)
}

/// Returns the nodes that failed. Where none did, and all were blocked before they were looked into, those are as lost: no
/// source had a chance to have nothing.
fn failed(tree: &Tree, branches: &BTreeMap<NodeId, Branch>, stop: StopReason) -> Vec<NodeId> {
    let is_unasked =
        stop.is_natural() && branches.is_empty() && tree.workers().all(|node| node.status == NodeStatus::Blocked);
    let is_failed = |node: &&Node| {
        let is_blocked = is_unasked && tree.has_worker(&node.id);
        node.status == NodeStatus::Failed || is_blocked
    };
    tree.nodes.iter().filter(is_failed).map(|node| node.id.clone()).collect()
}

/// Says why there is no answer where nodes failed.
fn refusal_of_failed(tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> &'static str {
    let has_failed = tree.nodes.iter().any(|node| node.status == NodeStatus::Failed);
    match (branches.is_empty(), has_failed) {
        (false, _) => "Part of what was tried failed, and the rest found nothing.",
        (true, true) => "Everything that was tried failed.",
        (true, false) => "Nothing was asked: no way led to where the answer was to be looked for.",
    }
}

/// Tells whether a node is missing from the answer though it was planned.
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
    // A root that is looked into by itself is the question: that it has no answer is said above.
    let is_part = |node: &&Node| node.id != tree.root || failed_nodes.contains(&node.id);
    let lost = tree.nodes.iter().filter(is_part).filter_map(|node| {
        let what = match node.status {
            NodeStatus::Done => return None,
            NodeStatus::Failed => "failed",
            NodeStatus::Blocked => "had no answer",
            NodeStatus::Pending | NodeStatus::Running => "was not looked into",
        };
        let why = if node.summary.is_empty() { String::new() } else { format!(": {}", node.summary) };
        Some(format!("`{}` {what}{why}", node.question))
    });
    for note in notes.chain(lost) {
        if !limitations.contains(&note) {
            limitations.push(note);
        }
    }
    limitations
}

fn passages<'a>(further: impl Iterator<Item = &'a SourcePassage>, limit: usize) -> Vec<Passage> {
    let mut best: Vec<&SourcePassage> = Vec::new();
    for passage in further {
        if !best.iter().any(|known| known.id == passage.id) {
            best.push(passage);
        }
    }
    best.sort_by(|a, b| b.score.total_cmp(&a.score));
    best.into_iter()
        .take(limit)
        .map(|passage| Passage { snippet: passage.snippet.clone(), source: passage.place.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_ids_stand_once_in_their_brackets() {
        let one: EvidenceId = "n2e1".parse().unwrap();
        let name = |id: &EvidenceId| if id.to_string() == "n3e1" { one.clone() } else { id.clone() };
        assert_eq!(
            renamed("A [n2e1, n3e1]. B [n3e1] [n4e2], [the note].", &name),
            "A [n2e1]. B [n2e1] [n4e2], [the note]."
        );
    }

    #[test]
    fn mark_is_found_where_every_id_in_the_brackets_is_one() {
        let found = |text: &str| marks(text).into_iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>();
        assert_eq!(found("so [n2e1], and [n2e1; n3e12]."), ["n2e1", "n2e1", "n3e12"]);
        assert_eq!(found("see [the note] [n2] [[n4e1]] [n2e1"), ["n4e1"]);
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
