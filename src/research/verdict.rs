//! The verdict on a draft: whether the answer is complete, and which aspects are missing.
//!
//! Deterministic checks run first, and a model cannot overrule them: a gap they find stays in the verdict. In doubt the
//! verdict asks for another round, except for aspects that were searched without result, which a further round would
//! not change.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::branch::{Branch, BranchStop, Finding};
use super::claim::is_repeated;
use super::compress::confidence;
use super::cut::{Count, cut};
use super::evidence::{Evidence, EvidenceId};
use super::memory::cited;
use super::node::{Node, NodeId, NodeStatus, Tree};
use super::prompt::{PromptText, Template, fitted, room, shorten_longest, shown_quotes};
use super::question::{Aspect, AspectId, Brief};
use super::report::Draft;
use crate::base::line::{one_line, shortened};
use crate::base::word::WordSplitter;
use crate::llm::call::{CallKey, Caller};
use crate::llm::message::Role;
use crate::llm::structured::{StructuredError, structured_checked};
use crate::source::Support;

/// Share of an aspect's key words that the findings must contain for it to count as covered if no finding names it.
const COVERED_SHARE: f32 = 0.6;

/// Maximum number of weak areas kept in a verdict; each is repeated in the next planning prompt.
const MAX_AREAS: usize = 12;

/// Tokens of a quote shown to the judge: a paragraph. The end of a quote may be the part that supports a claim.
const MAX_QUOTE_TOKENS: u64 = 300;

/// Tokens of all quotes shown to the judge.
pub(crate) const MAX_QUOTES_TOKENS: u64 = 6_000;

/// Tokens of a verdict beside those that its aspects and nodes add.
const LEAST_REPLY_TOKENS: usize = 1_000;

/// Tokens that each aspect adds to a verdict: its id and a weak area.
const ASPECT_TOKENS: usize = 70;

/// Tokens that each node adds to a verdict: its id.
const NODE_TOKENS: usize = 8;

/// The judge's verdict after a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the question is answered.
    pub(crate) is_complete: bool,
    /// Whether more research would help.
    pub(crate) recommend_more_iterations: bool,
    /// Aspects without an answer.
    pub(crate) missing_aspects: Vec<AspectId>,
    /// Topics with too little evidence, one line each.
    pub(crate) weak_evidence_areas: Vec<String>,
    /// Confidence in the answer, from 0 to 1.
    pub(crate) overall_confidence: f32,
    /// Finished nodes the verdict is based on.
    pub(crate) relied_on: Vec<NodeId>,
    /// Results of [`checks`], as text.
    pub(crate) complaints: Vec<String>,
    /// Whether rules gave it, in the place of a judge that failed or without a model.
    #[serde(default)]
    pub(crate) is_by_rules: bool,
}

impl Verdict {
    /// Returns whether the run can end with this draft.
    pub(crate) fn is_enough(&self) -> bool {
        self.is_complete && !self.recommend_more_iterations
    }
}

/// A defect found by the deterministic checks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Complaint {
    /// A finding cites no checked quote.
    #[error("claim without evidence: {claim}")]
    Uncited { claim: String },
    /// No finding covers an aspect.
    #[error("aspect {aspect} has no finding")]
    Uncovered { aspect: AspectId },
    #[error("node {node} failed")]
    Failed { node: NodeId },
    /// A node has no findings or was blocked.
    #[error("node {node} found nothing")]
    Empty { node: NodeId },
}

/// Returns the defects of a draft: claims without evidence, aspects without a finding, nodes that failed or found
/// nothing.
pub(crate) fn checks(brief: &Brief, tree: &Tree, branches: &BTreeMap<NodeId, Branch>, draft: &Draft) -> Vec<Complaint> {
    let checked = checked(branches);
    let uncited = draft.findings.iter().filter(|finding| !is_cited(finding, &checked));
    let uncited = uncited.map(|finding| Complaint::Uncited { claim: finding.text.clone() });
    let uncovered = uncovered(brief, branches, &draft.findings).into_iter();
    let uncovered = uncovered.map(|aspect| Complaint::Uncovered { aspect: aspect.id.clone() });
    let nodes = tree.workers().filter_map(|node| {
        let is_empty = branches.get(&node.id).is_none_or(|branch| branch.report.findings.is_empty());
        match node.status {
            NodeStatus::Failed => Some(Complaint::Failed { node: node.id.clone() }),
            NodeStatus::Blocked => Some(Complaint::Empty { node: node.id.clone() }),
            NodeStatus::Done if is_empty => Some(Complaint::Empty { node: node.id.clone() }),
            NodeStatus::Done | NodeStatus::Pending | NodeStatus::Running => None,
        }
    });
    uncited.chain(uncovered).chain(nodes).collect()
}

/// Returns the ids of all checked quotes.
fn checked(branches: &BTreeMap<NodeId, Branch>) -> BTreeSet<&EvidenceId> {
    let quotes = branches.values().flat_map(|branch| &branch.evidence);
    quotes.filter(|quote| quote.checked).map(|quote| &quote.id).collect()
}

fn is_cited(finding: &Finding, checked: &BTreeSet<&EvidenceId>) -> bool {
    finding.evidence.iter().any(|id| checked.contains(id))
}

/// Returns the aspects that no finding with checked evidence covers.
///
/// A finding covers the aspect it names, unless its branch is weakly supported and there are other aspects. An aspect
/// that no finding names is covered if findings and quotes together contain [`COVERED_SHARE`] of its key words.
fn uncovered<'a>(brief: &'a Brief, branches: &BTreeMap<NodeId, Branch>, drafted: &[Finding]) -> Vec<&'a Aspect> {
    let checked = checked(branches);
    let splitter = WordSplitter::default();
    // With a single aspect another round would only repeat the same search, so weak support counts.
    let is_plain = brief.aspects.len() == 1;
    let mut named: HashSet<&AspectId> = HashSet::new();
    let mut words: HashSet<String> = HashSet::new();
    let found = branches.values().flat_map(|branch| {
        branch.report.findings.iter().map(|finding| (finding, branch.support != Support::Weak || is_plain))
    });
    for (finding, is_supported) in found.chain(drafted.iter().map(|finding| (finding, true))) {
        if is_cited(finding, &checked) {
            words.extend(splitter.key_stems(&finding.text));
            named.extend(finding.aspect.as_ref().filter(|_| is_supported));
        }
    }
    let quotes = branches.values().flat_map(|branch| &branch.evidence).filter(|quote| quote.checked);
    words.extend(quotes.flat_map(|quote| splitter.key_stems(&quote.quote)));
    let is_covered =
        |aspect: &&Aspect| named.contains(&aspect.id) || share(&aspect.text, &words, &splitter) >= COVERED_SHARE;
    brief.aspects.iter().filter(|aspect| !is_covered(aspect)).collect()
}

/// Returns the share of the key words of a text that occur in `words`.
#[expect(clippy::cast_precision_loss, reason = "aspects are short")]
fn share(text: &str, words: &HashSet<String>, splitter: &WordSplitter) -> f32 {
    let wanted = splitter.key_stems(text);
    wanted.iter().filter(|stem| words.contains(*stem)).count() as f32 / wanted.len().max(1) as f32
}

/// Returns whether an aspect was researched and every node for it is blocked.
fn was_tried_in_vain(aspect: &AspectId, tree: &Tree) -> bool {
    all_serving(aspect, tree, &[NodeStatus::Blocked])
}

/// Returns whether an aspect was researched and every node for it has ended without a failure. The judge may then find
/// that another round would bring nothing.
fn was_searched(aspect: &AspectId, tree: &Tree) -> bool {
    all_serving(aspect, tree, &[NodeStatus::Done, NodeStatus::Blocked])
}

fn all_serving(aspect: &AspectId, tree: &Tree, are: &[NodeStatus]) -> bool {
    let serving: Vec<_> = tree.workers().filter(|node| node.aspects.contains(aspect)).collect();
    !serving.is_empty() && serving.iter().all(|node| are.contains(&node.status))
}

// Doc comments below are sent as schema descriptions and are part of the request hash: changing one makes `dr resume`
// repeat calls recorded by an older version. The same holds for every type here that derives `JsonSchema`.
/// A verdict, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct VerdictDraft {
    /// Whether every aspect is answered by evidence.
    is_complete: bool,
    /// Whether more research would help.
    recommend_more_iterations: bool,
    /// Ids of aspects that are not fully answered.
    missing_aspects: Vec<String>,
    /// Where the evidence is thin.
    weak_evidence_areas: Vec<String>,
    /// From 0 to 1.
    overall_confidence: f32,
    /// Ids of the nodes the verdict rests on.
    relied_on: Vec<String>,
}

/// Returns the most tokens that the judge may reply with. All of them are held until it has replied, so the output limit
/// of its role, four times as much, could leave the call without room in the budget.
pub(crate) fn reply_tokens(aspects: usize, nodes: usize) -> u32 {
    let needed = LEAST_REPLY_TOKENS + aspects * ASPECT_TOKENS + nodes * NODE_TOKENS;
    u32::try_from(needed).unwrap_or(u32::MAX)
}

/// Asks the judge for a verdict on a draft and enforces the deterministic checks on it.
///
/// # Errors
///
/// Returns an error if the model gives no usable reply. Callers then fall back to [`by_coverage`].
pub(crate) async fn judge(
    caller: &dyn Caller,
    key: &CallKey,
    brief: &Brief,
    tree: &Tree,
    branches: &BTreeMap<NodeId, Branch>,
    quotes: &[&Evidence],
    draft: &Draft,
) -> Result<Verdict, StructuredError> {
    let complaints = checks(brief, tree, branches, draft);
    // The list of nodes says which of them failed or found nothing.
    let is_of_node = |complaint: &&Complaint| matches!(complaint, Complaint::Failed { .. } | Complaint::Empty { .. });
    let lines: Vec<_> = complaints.iter().filter(|complaint| !is_of_node(complaint)).map(ToString::to_string).collect();
    let nodes: Vec<_> = tree.workers().map(|node| node_line(node, tree, branches)).collect();
    let count = |text: &str| caller.count(Role::Judge, text);
    let render = |(draft, quotes): &(String, Vec<&Evidence>)| {
        let (task, aspects) = (&brief.task, &brief.aspects);
        let context = json!({
            "task": task, "aspects": aspects, "nodes": nodes, "complaints": lines, "quotes": shown(quotes, &count),
            "draft": draft,
        });
        Template::Judge.prompt(caller, context)
    };
    let room = room::<VerdictDraft>(caller, Role::Judge);
    let mut material = (draft_text(draft), with_room(quotes, &count));
    let mut prompt = fitted(caller, room, &mut material, render, |(draft, quotes)| {
        // The draft is judged, so the quotes are dropped first.
        quotes.pop().is_some() || shorten_longest(std::iter::once(draft), &count)
    });
    prompt.max_output_tokens = prompt.max_output_tokens.min(reply_tokens(brief.aspects.len(), nodes.len()));
    let check = |said: &VerdictDraft| {
        if said.is_complete && relied_on(said, tree).is_empty() {
            Err("`relied_on` names no node that is done, so nothing shows that it is complete".to_owned())
        } else {
            Ok(())
        }
    };
    let said: VerdictDraft = structured_checked(caller, key, &prompt, "verdict", check).await?;
    Ok(held_to(&said, &complaints, brief, tree))
}

fn node_line(node: &Node, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Value {
    let aspects: Vec<_> = node.aspects.iter().map(ToString::to_string).collect();
    let (open, in_vain) = gaps(node, tree, branches);
    json!({
        "id": node.id, "status": node.status, "source": node.source_hint,
        "confidence": format!("{:.2}", node.confidence), "aspects": aspects.join(", "), "question": node.question,
        "open": open, "in_vain": in_vain,
    })
}

/// Returns what a node left open, and what it searched for in vain. A worker that stopped early did not look for
/// everything, and a node that only concludes looked for nothing.
fn gaps(node: &Node, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> (String, String) {
    let Some(Branch { report, .. }) = branches.get(&node.id) else { return (String::new(), String::new()) };
    let has_looked = match report.stop_reason {
        BranchStop::Done | BranchStop::Repeated | BranchStop::NoEvidence => !node.only_concludes(),
        BranchStop::StepsExceeded
        | BranchStop::TokensExceeded
        | BranchStop::BudgetExceeded
        | BranchStop::ModelFailed => false,
    };
    let open = match left_open(node, tree, branches) {
        open if report.findings.is_empty() && open.is_empty() => "all of it".to_owned(),
        open => open.join("; "),
    };
    if has_looked { (String::new(), open) } else { (open, String::new()) }
}

/// Returns the open questions of a node that no later node with findings has asked. Its own question, which a node
/// without findings leaves open, is not among them.
pub(super) fn left_open(node: &Node, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Vec<String> {
    let has_findings = |id: &NodeId| branches.get(id).is_some_and(|branch| !branch.report.findings.is_empty());
    let later = tree.workers().skip_while(|other| other.id != node.id).skip(1).filter(|later| has_findings(&later.id));
    let asked: Vec<_> = later.map(|later| later.question.to_string()).collect();
    let open = branches.get(&node.id).into_iter().flat_map(|branch| &branch.report.open_questions);
    let open = open.filter(|open| *open != node.question.as_str() && !is_repeated(open, &asked));
    open.map(|open| shortened(open)).collect()
}

/// Returns the quotes that the judge is shown: the first ones, as many as fit into [`MAX_QUOTES_TOKENS`].
fn with_room<'a>(quotes: &[&'a Evidence], count: Count<'_>) -> Vec<&'a Evidence> {
    let tokens = |number: &usize| shown(&quotes[..*number], count).iter().map(|quote| count(&quote.text)).sum::<u64>();
    let numbers: Vec<_> = (1..=quotes.len()).collect();
    quotes[..numbers.partition_point(|number| tokens(number) <= MAX_QUOTES_TOKENS)].to_vec()
}

/// Returns quotes as the judge is shown them: whole unless they are long.
fn shown(quotes: &[&Evidence], count: Count<'_>) -> Vec<PromptText> {
    shown_quotes(quotes, |quote| cut(&quote.quote, MAX_QUOTE_TOKENS, count))
}

/// Renders a draft as text for the judge's prompt.
fn draft_text(draft: &Draft) -> String {
    let sections = draft.sections.iter().map(|section| format!("{}:\n{}", section.title, section.text));
    // Sections repeat the findings, and so may an answer: one put together by rules consists of them.
    let ends = |rest: &str| matches!(rest.trim_start_matches(' ').chars().next(), None | Some('[' | '\n'));
    let repeats = |text: &str| draft.answer.match_indices(text).any(|(at, _)| ends(&draft.answer[at + text.len()..]));
    let is_said = |finding: &&Finding| !draft.sections.is_empty() || repeats(&finding.text);
    let findings = draft.findings.iter().filter(|finding| !is_said(finding)).map(|finding| match &finding.aspect {
        Some(aspect) => format!("- {} ({aspect})", cited(finding)),
        None => format!("- {}", cited(finding)),
    });
    let limitations = draft.limitations.iter().map(|limitation| format!("Limitation: {limitation}"));
    let open = draft.open_questions.iter().map(|question| format!("Open: {question}"));
    let disagreements = draft.contradictions.iter().map(|contradiction| format!("Contradiction: {contradiction}"));
    let rest = disagreements.chain(open).chain(limitations);
    let parts = std::iter::once(draft.answer.clone()).chain(sections).chain(findings).chain(rest);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn relied_on(said: &VerdictDraft, tree: &Tree) -> Vec<NodeId> {
    let ids = said.relied_on.iter().filter_map(|id| id.trim().parse::<NodeId>().ok());
    let is_done = |id: &NodeId| tree.get(id).is_some_and(|node| node.status == NodeStatus::Done);
    ids.filter(is_done).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Combines the judge's verdict with the checks: complaints make it incomplete, unknown ids are dropped.
fn held_to(said: &VerdictDraft, complaints: &[Complaint], brief: &Brief, tree: &Tree) -> Verdict {
    let found_missing = |aspect: &Aspect| {
        complaints.iter().any(|complaint| matches!(complaint, Complaint::Uncovered { aspect: id } if *id == aspect.id))
    };
    let said_missing = |aspect: &Aspect| said.missing_aspects.iter().any(|id| AspectId::named(id) == aspect.id);
    let missing: Vec<_> = brief.aspects.iter().filter(|aspect| found_missing(aspect) || said_missing(aspect)).collect();
    let has_uncited = complaints.iter().any(|complaint| matches!(complaint, Complaint::Uncited { .. }));
    let relied_on = relied_on(said, tree);
    // A node that failed or found nothing is no gap by itself: others may cover its aspects.
    let is_complete = said.is_complete && missing.is_empty() && !has_uncited && !relied_on.is_empty();
    let is_in_vain = |aspect: &&Aspect| {
        was_tried_in_vain(&aspect.id, tree) || !said.recommend_more_iterations && was_searched(&aspect.id, tree)
    };
    let is_in_vain = match missing.as_slice() {
        // Every aspect has a finding: whether another round would better them is for the judge to say.
        [] => !said.recommend_more_iterations && !has_uncited && !relied_on.is_empty(),
        missing => missing.iter().all(is_in_vain),
    };
    let areas = said.weak_evidence_areas.iter().map(|area| one_line(area)).filter(|area| !area.is_empty());
    Verdict {
        is_complete,
        recommend_more_iterations: said.recommend_more_iterations || !(is_complete || is_in_vain),
        missing_aspects: missing.into_iter().map(|aspect| aspect.id.clone()).collect(),
        weak_evidence_areas: areas.take(MAX_AREAS).collect(),
        overall_confidence: confidence(said.overall_confidence),
        relied_on,
        complaints: complaints.iter().map(ToString::to_string).collect(),
        is_by_rules: false,
    }
}

/// Returns a verdict without a model, from the aspects that findings cover.
#[expect(clippy::cast_precision_loss, reason = "there are a handful of aspects and nodes")]
pub(crate) fn by_coverage(brief: &Brief, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Verdict {
    let missing = uncovered(brief, branches, &[]);
    let found: Vec<_> = branches.iter().filter(|(_, branch)| !branch.report.findings.is_empty()).collect();
    let is_complete = missing.is_empty() && !found.is_empty();
    let is_in_vain = missing.iter().all(|aspect| was_tried_in_vain(&aspect.id, tree));
    let covered = 1.0 - missing.len() as f32 / brief.aspects.len().max(1) as f32;
    // `abs`, since the sum of an empty iterator is -0.0, which would be printed with its sign.
    let mean = found.iter().map(|(_, branch)| branch.report.confidence).sum::<f32>().abs() / found.len().max(1) as f32;
    let weak = found.iter().filter(|(_, branch)| branch.support == Support::Weak);
    let weak = weak.filter_map(|(id, _)| tree.get(id)).map(|node| node.question.to_string());
    Verdict {
        is_complete,
        recommend_more_iterations: !is_complete && !is_in_vain,
        missing_aspects: missing.iter().map(|aspect| aspect.id.clone()).collect(),
        weak_evidence_areas: weak.take(MAX_AREAS).collect(),
        overall_confidence: confidence(covered * mean),
        relied_on: found.into_iter().map(|(id, _)| id.clone()).collect(),
        complaints: checks(brief, tree, branches, &Draft::default()).iter().map(ToString::to_string).collect(),
        is_by_rules: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::{Scripted, add_node, branch, brief};
    use crate::source::Label;

    /// Two nodes: the first found the price of A; the second found nothing and has `status`.
    fn half_done(status: NodeStatus) -> (Brief, Tree, BTreeMap<NodeId, Branch>) {
        let brief = brief("Compare A and B", &["price of apples", "colour of bananas"]);
        let mut tree = Tree::of("Compare A and B".parse().unwrap());
        let (first, second) = (add_node(&mut tree, "What of A?", &[]), add_node(&mut tree, "What of B?", &[]));
        tree.get_mut(&first).unwrap().aspects = vec![AspectId::numbered(1)];
        tree.get_mut(&second).unwrap().aspects = vec![AspectId::numbered(2)];
        tree.get_mut(&second).unwrap().status = status;
        let mut found = branch(&first, &["The price of apples is nine."], Label::Internal);
        found.report.findings[0].aspect = Some(AspectId::numbered(1));
        (brief, tree, BTreeMap::from([(first, found), (second.clone(), branch(&second, &[], Label::Internal))]))
    }

    fn said(is_complete: bool, more: bool, relied_on: &[&str], missing: &[&str]) -> Value {
        json!({
            "is_complete": is_complete, "recommend_more_iterations": more, "missing_aspects": missing,
            "weak_evidence_areas": [], "overall_confidence": 1.7, "relied_on": relied_on,
        })
    }

    async fn judged(status: NodeStatus, said: Value) -> Verdict {
        let (brief, tree, branches) = half_done(status);
        let draft = Draft {
            findings: branches.values().flat_map(|found| found.report.findings.clone()).collect(),
            ..Draft::default()
        };
        judge(&Scripted::replying(said), &CallKey::new("judge/1"), &brief, &tree, &branches, &[], &draft).await.unwrap()
    }

    #[test]
    fn question_that_a_later_node_has_answered_is_open_no_more() {
        let mut tree = Tree::of("What of A?".parse().unwrap());
        let first = add_node(&mut tree, "How does A scale?", &[]);
        let second = add_node(&mut tree, "What does the press cost in each region?", &[]);
        let mut found = branch(&first, &["A scales."], Label::Internal);
        found.report.open_questions =
            vec!["What does the press cost?".into(), "Who sells A?".into(), "How does A scale?".into()];
        let mut branches = BTreeMap::from([(first.clone(), found)]);
        let open = |branches: &_| left_open(tree.get(&first).unwrap(), &tree, branches);
        assert_eq!(open(&branches), ["What does the press cost?", "Who sells A?"]);
        branches.insert(second.clone(), branch(&second, &["A costs nine."], Label::Internal));
        assert_eq!(open(&branches), ["Who sells A?"]);
    }

    #[test]
    fn code_finds_uncited_claims_uncovered_aspects_and_lost_nodes() {
        let (brief, mut tree, branches) = half_done(NodeStatus::Failed);
        add_node(&mut tree, "What of C?", &[]);
        let finding = Finding {
            text: "B is yellow.".into(),
            evidence: vec!["n9e9".parse().unwrap()],
            aspect: None,
            is_emphasised: false,
        };
        let draft = Draft { findings: vec![finding], ..Draft::default() };
        let said: Vec<_> = checks(&brief, &tree, &branches, &draft).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "claim without evidence: B is yellow.",
                "aspect a2 has no finding",
                "node n3 failed",
                "node n4 found nothing"
            ]
        );
    }

    #[tokio::test]
    async fn verdict_is_not_complete_while_code_finds_an_aspect_missing() {
        let verdict = judged(NodeStatus::Failed, said(true, false, &["n2"], &[])).await;
        assert!(!verdict.is_complete && verdict.recommend_more_iterations);
        assert_eq!(verdict.missing_aspects, [AspectId::numbered(2)]);
        assert!((verdict.overall_confidence - 1.0).abs() < f32::EPSILON);
    }

    #[tokio::test]
    async fn aspect_searched_without_result_is_missing_but_not_searched_again() {
        let verdict = judged(NodeStatus::Blocked, said(false, false, &["n2"], &["a2", "a77"])).await;
        assert!(!verdict.is_complete && !verdict.recommend_more_iterations);
        assert_eq!(verdict.missing_aspects, [AspectId::numbered(2)], "an id that is not in the brief is dropped");
        assert!(judged(NodeStatus::Blocked, said(false, true, &["n2"], &[])).await.recommend_more_iterations);
        // The judge decides whether partly answered aspects are searched again.
        let [settled, failed] =
            [NodeStatus::Done, NodeStatus::Failed].map(|status| (status, said(false, false, &["n2"], &["a2"])));
        assert!(!judged(settled.0, settled.1).await.recommend_more_iterations);
        assert!(judged(failed.0, failed.1).await.recommend_more_iterations);
    }

    #[tokio::test]
    async fn verdict_that_finds_evidence_thin_and_recommends_no_more_is_kept() {
        let (mut brief, tree, branches) = half_done(NodeStatus::Done);
        brief.aspects.truncate(1);
        for (more, relied_on, is_more) in [(false, "n2", false), (true, "n2", true), (false, "n77", true)] {
            let caller = Scripted::replying(said(false, more, &[relied_on], &[]));
            let key = CallKey::new("judge/1");
            let verdict = judge(&caller, &key, &brief, &tree, &branches, &[], &Draft::default()).await.unwrap();
            assert_eq!((verdict.is_complete, verdict.recommend_more_iterations), (false, is_more), "{relied_on}");
        }
    }

    #[tokio::test]
    async fn complete_verdict_must_rely_on_a_finished_node() {
        let (mut brief, tree, branches) = half_done(NodeStatus::Done);
        brief.aspects.truncate(1);
        let caller = Scripted::replying(said(true, false, &["n77"], &[]));
        let key = CallKey::new("judge/1");
        let refused = judge(&caller, &key, &brief, &tree, &branches, &[], &Draft::default()).await;
        assert!(matches!(refused, Err(StructuredError::Invalid { .. })), "{refused:?}");
        let caller = Scripted::replying(said(true, false, &["n2"], &[]));
        assert!(judge(&caller, &key, &brief, &tree, &branches, &[], &Draft::default()).await.unwrap().is_enough());
    }

    #[tokio::test]
    async fn judge_is_shown_whole_quotes_up_to_a_limit_of_each_and_of_all() {
        let (brief, tree, mut branches) = half_done(NodeStatus::Done);
        let long =
            |words: &str, number| format!("{}. The end of it is what bears it out.", vec![words; number].join(" "));
        let texts: Vec<_> = (0..60).map(|number| format!("{number}: {}", long("Apples cost nine", 60))).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let found = branch(&tree.nodes[1].id, &texts, Label::Internal);
        branches.insert(tree.nodes[1].id.clone(), found.clone());
        let quotes: Vec<_> = found.evidence.iter().collect();
        let caller = Scripted::replying(said(false, true, &["n2"], &[]));
        judge(&caller, &CallKey::new("judge/1"), &brief, &tree, &branches, &quotes, &Draft::default()).await.unwrap();
        let task = caller.tasks().remove(0);
        let number = task.matches("is what bears it out.").count();
        assert!((20..=24).contains(&number), "{number} quotes of some 250 tokens");
        let count = |text: &str| caller.count(Role::Judge, text);
        let cut = Evidence { quote: long("Apples cost nine.", 200), ..found.evidence[0].clone() };
        let text = &shown(&[&cut], &count)[0].text;
        assert!(text.contains("nine. …") && !text.contains("bears it out"), "{text}");
        let of = |number: u32, quote: &str| Evidence {
            id: EvidenceId::new(tree.nodes[1].id.clone(), number),
            quote: quote.to_owned(),
            ..found.evidence[0].clone()
        };
        let quotes =
            [of(1, "A costs nine. B costs ten."), of(2, "B costs ten."), of(3, "B costs one."), cut.clone(), cut];
        let texts: Vec<_> = shown(&quotes.iter().collect::<Vec<_>>(), &count).into_iter().map(|own| own.text).collect();
        let first = ["From: a.md › a\nA costs nine. B costs ten.", "Its words stand in n2e1 above.", "B costs one."];
        assert_eq!(texts[..3], first, "the document is named once");
        assert_eq!(texts[3], texts[4], "the end of a quote that is cut is not above");
    }

    #[tokio::test]
    async fn judge_is_told_what_was_searched_in_vain_and_what_was_not_looked_for() {
        let (brief, mut tree, mut branches) = half_done(NodeStatus::Blocked);
        let ids: Vec<_> = tree.nodes[1..].iter().map(|node| node.id.clone()).collect();
        let hurried = add_node(&mut tree, "What of C?", &[]);
        for (id, stop) in [(&ids[0], BranchStop::Done), (&hurried, BranchStop::BudgetExceeded)] {
            let mut found = branch(id, &["The price of apples is nine."], Label::Internal);
            found.report.open_questions = vec![format!("What did {id} cost before?")];
            found.report.stop_reason = stop;
            branches.insert(id.clone(), found);
        }
        let caller = Scripted::replying(said(false, true, &["n2"], &[]));
        judge(&caller, &CallKey::new("judge/1"), &brief, &tree, &branches, &[], &Draft::default()).await.unwrap();
        let task = caller.tasks().remove(0);
        let line = |id: &NodeId| task.lines().find(|line| line.starts_with(&format!("- {id} "))).unwrap();
        assert!(line(&ids[0]).ends_with("Searched for in vain: What did n2 cost before?"), "{task}");
        assert!(line(&ids[1]).ends_with("What of B? Searched for in vain: all of it"), "{task}");
        assert!(line(&hurried).ends_with("Not answered by it: What did n4 cost before?"), "{task}");
        assert!(line(&ids[1]).starts_with("- n3 (blocked, internal, "), "{task}");
        assert!(!task.contains("found nothing"), "its line says so: {task}");
    }

    #[tokio::test]
    async fn reply_of_the_judge_is_capped_at_what_a_verdict_may_need() {
        let (brief, tree, branches) = half_done(NodeStatus::Done);
        let needed = reply_tokens(brief.aspects.len(), tree.workers().count());
        for (role, capped) in [(4_000, needed), (300, 300)] {
            let caller = Scripted::replying(said(false, true, &["n2"], &[])).with_output_limit(role);
            let (key, draft) = (CallKey::new("judge/1"), Draft::default());
            judge(&caller, &key, &brief, &tree, &branches, &[], &draft).await.unwrap();
            assert_eq!(caller.prompts()[0].max_output_tokens, capped);
        }
        assert!((1_100..1_300).contains(&needed), "{needed}");
        assert!(reply_tokens(8, 200) > 3_000, "each node may be named");
    }

    #[test]
    fn judge_is_shown_a_finding_once_although_the_answer_repeats_it() {
        let finding = |text: &str| Finding {
            text: text.into(),
            evidence: vec!["n2e1".parse().unwrap()],
            aspect: None,
            is_emphasised: false,
        };
        let draft = Draft {
            answer: "A costs nine. [n2e1]".into(),
            findings: vec![finding("A costs nine."), finding("B costs ten.")],
            ..Draft::default()
        };
        assert_eq!(draft_text(&draft), "A costs nine. [n2e1]\n- B costs ten. [n2e1]");
    }

    #[test]
    fn coverage_counts_aspects_and_gives_up_only_on_those_that_were_searched() {
        let (mut brief, tree, branches) = half_done(NodeStatus::Pending);
        let verdict = by_coverage(&brief, &tree, &branches);
        assert!(!verdict.is_complete && verdict.recommend_more_iterations);
        assert!((verdict.overall_confidence - 0.4).abs() < 0.001);
        let (_, tree, branches) = half_done(NodeStatus::Blocked);
        assert!(!by_coverage(&brief, &tree, &branches).recommend_more_iterations);
        brief.aspects.truncate(1);
        assert!(by_coverage(&brief, &tree, &branches).is_enough());
    }
}
