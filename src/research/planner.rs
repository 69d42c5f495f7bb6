//! Plans with a model: the brief, and in later rounds the verdict, become a [`PlanDraft`].

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::branch::Branch;
use super::memory::Memory;
use super::node::{Node, NodeId, NodeStatus, Tree};
use super::plan::{PlanDraft, TreeLimits};
use super::prompt::{Template, fitted, room, shorten_longest};
use super::question::{AspectId, Brief};
use super::verdict::{Complaint, Verdict, left_open};
use crate::llm::call::{CallKey, Caller};
use crate::llm::message::Role;
use crate::llm::structured::{StructuredError, structured_checked};

/// Validates a plan. The error is the complaint shown to the model.
pub(crate) type PlanCheck<'a> = &'a (dyn Fn(&PlanDraft) -> Result<(), String> + Sync);

#[derive(Clone, Debug)]
pub(crate) struct PlanBounds {
    pub(crate) limits: TreeLimits,
    /// Whether a source for the web is available.
    pub(crate) has_web: bool,
    /// Number of nodes that the run's limits can pay for; `None` without limits.
    pub(crate) paid_for: Option<u32>,
    /// Whether workers inside may call tools of the user's own servers. The names of tools are internal: a question
    /// for the web, worded with them in view, might repeat them.
    pub(crate) has_tools: bool,
}

impl PlanBounds {
    /// Returns how many nodes may be added, and whether the run's limits are what bounds them. Counted in nodes, not
    /// in money: prompts must not depend on the amount spent.
    fn nodes_left(&self, tree: &Tree) -> (u32, bool) {
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let free = self.limits.max_nodes.saturating_sub(count(tree.nodes.len()));
        let paid_for = self.paid_for.map(|nodes| nodes.saturating_sub(count(tree.workers().count())).max(1));
        paid_for.filter(|paid_for| *paid_for <= free).map_or((free, false), |paid_for| (paid_for, true))
    }
}

/// A node as listed in the planner's prompt.
#[derive(Clone, Debug, Serialize)]
struct NodeLine {
    id: String,
    status: NodeStatus,
    aspects: String,
    question: String,
    /// Open questions of its branch.
    open: String,
}

/// Plans the first round. A plan that fails `check` is sent back for one repair.
pub(crate) async fn plan(
    caller: &dyn Caller,
    key: &CallKey,
    brief: &Brief,
    tree: &Tree,
    bounds: PlanBounds,
    check: PlanCheck<'_>,
) -> Result<PlanDraft, StructuredError> {
    let PlanBounds { has_web, has_tools, .. } = bounds;
    let (max_nodes, is_paid_for) = bounds.nodes_left(tree);
    let prompt = Template::Plan.prompt(
        caller,
        json!({
            "task": brief.task,
            "question": Some(brief.question.as_str()).filter(|question| *question != brief.task),
            "aspects": brief.aspects,
            "nodes": node_lines(tree, &BTreeMap::new()),
            "max_nodes": max_nodes,
            "is_paid_for": is_paid_for,
            "max_depth": bounds.limits.max_depth,
            "has_web": has_web,
            "has_tools": has_tools,
        }),
    );
    structured_checked(caller, key, &prompt, "plan", check).await
}

/// Plans a later round for the gaps named in the verdict. A plan that fails `check` is sent back for one repair.
///
/// The summary in the prompt may contain internal text, and so may the questions of the returned nodes. Text for the
/// web is therefore worded from their aspects instead, see [`super::outward`].
#[expect(clippy::too_many_arguments, reason = "each is a noun of its own")]
pub(crate) async fn replan(
    caller: &dyn Caller,
    key: &CallKey,
    brief: &Brief,
    tree: &Tree,
    branches: &BTreeMap<NodeId, Branch>,
    verdict: &Verdict,
    memory: &Memory,
    bounds: PlanBounds,
    check: PlanCheck<'_>,
) -> Result<PlanDraft, StructuredError> {
    let PlanBounds { has_web, has_tools, .. } = bounds;
    let (max_nodes, is_paid_for) = bounds.nodes_left(tree);
    let room = room::<PlanDraft>(caller, Role::Planner);
    let aspects: Vec<_> = brief
        .aspects
        .iter()
        .map(|aspect| {
            let is_missing = verdict.missing_aspects.contains(&aspect.id);
            json!({"id": aspect.id, "text": aspect.text, "is_missing": is_missing})
        })
        .collect();
    let nodes = node_lines(tree, branches);
    let render = |summary: &String| {
        Template::Replan.prompt(
            caller,
            json!({
                "task": brief.task,
                "aspects": aspects,
                "nodes": nodes,
                "verdict": in_words(verdict),
                "memory": summary,
                "max_nodes": max_nodes,
                "is_paid_for": is_paid_for,
                "max_depth": bounds.limits.max_depth,
                "has_web": has_web,
                "has_tools": has_tools,
            }),
        )
    };
    let mut summary = memory.global.text.clone();
    let prompt = fitted(caller, room, &mut summary, render, |summary| {
        let count = |text: &str| caller.count(Role::Planner, text);
        shorten_longest(std::iter::once(summary), &count)
    });
    structured_checked(caller, key, &prompt, "plan", check).await
}

fn node_lines(tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Vec<NodeLine> {
    let line = |node: &Node| NodeLine {
        id: node.id.to_string(),
        status: node.status,
        aspects: node.aspects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        question: node.question.to_string(),
        open: left_open(node, tree, branches).join("; "),
    };
    tree.nodes.iter().map(line).collect()
}

/// Renders the verdict as text for the prompts of planner and writer.
pub(super) fn in_words(verdict: &Verdict) -> String {
    let mut lines = vec![format!(
        "{}; confidence {:.2}",
        if verdict.is_complete { "complete" } else { "not complete" },
        verdict.overall_confidence
    )];
    let missing = verdict.missing_aspects.iter().map(|id| format!("missing: {id}"));
    let weak = verdict.weak_evidence_areas.iter().map(|area| format!("weak: {area}"));
    // A missing aspect is named above, and its complaint adds only that it has no finding.
    let uncovered = |id: &AspectId| Complaint::Uncovered { aspect: id.clone() }.to_string();
    let uncovered: Vec<_> = verdict.missing_aspects.iter().map(uncovered).collect();
    let wrong = verdict.complaints.iter().filter(|complaint| !uncovered.contains(complaint));
    let wrong = wrong.map(|complaint| format!("wrong: {complaint}"));
    lines.extend(missing.chain(weak).chain(wrong));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::{Scripted, branch, brief};
    use crate::source::Label;
    use serde_json::json;

    fn verdict() -> Verdict {
        Verdict {
            recommend_more_iterations: true,
            missing_aspects: vec![AspectId::numbered(2)],
            weak_evidence_areas: vec!["figures".into()],
            ..Verdict::default()
        }
    }

    #[tokio::test]
    async fn invalid_plan_is_repaired_once_and_then_refused() {
        let caller = Scripted::replying(json!({"reasoning": "", "new_nodes": [], "updates": []}));
        let tree = Tree::of("What is A?".parse().unwrap());
        let check = |_: &PlanDraft| Err("aspect `a1` is served by no node".to_owned());
        let brief = brief("What is A?", &["cost", "speed"]);
        let bounds = PlanBounds { limits: TreeLimits::default(), has_web: false, paid_for: None, has_tools: false };
        let failed = plan(&caller, &CallKey::new("plan/1"), &brief, &tree, bounds, &check).await;
        assert_eq!(failed, Err(StructuredError::Invalid { complaint: "aspect `a1` is served by no node".into() }));
        assert_eq!(caller.keys(), ["plan/1", "plan/1/repair", "plan/1/small"]);
        let repair = caller.prompts()[1].messages.last().unwrap().text.clone();
        assert!(repair.contains("aspect `a1` is served by no node"), "{repair}");
    }

    #[test]
    fn verdict_in_words_names_a_missing_aspect_once() {
        let complaints = ["aspect a2 has no finding", "node n3 failed"].map(str::to_owned).to_vec();
        let said = in_words(&Verdict { complaints, ..verdict() });
        assert_eq!(said, "not complete; confidence 0.00\nmissing: a2\nweak: figures\nwrong: node n3 failed");
    }

    #[tokio::test]
    async fn replan_prompt_names_the_gaps_and_fits_its_limit() {
        let caller = Scripted::replying(json!({"reasoning": "enough"})).with_input_limit(6_000);
        let tree = Tree::of("What is A?".parse().unwrap());
        let mut memory = Memory::default();
        memory.global.text = "A costs nine. ".repeat(5_000);
        let brief = brief("What is A?", &["cost", "speed"]);
        let (key, bounds) = (
            CallKey::new("plan/2"),
            PlanBounds { limits: TreeLimits::default(), has_web: true, paid_for: Some(6), has_tools: true },
        );
        let mut found = branch(&NodeId::numbered(1), &["A costs nine."], Label::Internal);
        found.report.open_questions = vec!["how fast A is".into()];
        let branches = BTreeMap::from([(NodeId::numbered(1), found)]);
        let check = |_: &PlanDraft| Ok(());
        let draft = replan(&caller, &key, &brief, &tree, &branches, &verdict(), &memory, bounds, &check).await.unwrap();
        assert!(draft.new_nodes.is_empty());
        let prompt = &caller.prompts()[0];
        assert!(prompt.messages[1].text.contains("- a2: speed (missing)"), "{}", prompt.messages[1].text);
        assert!(prompt.messages[1].text.contains("A costs nine."));
        assert!(prompt.messages[1].text.contains("What is A? Not answered by it: how fast A is\n"));
        assert!(prompt.messages[0].text.contains("and the user's own tools)"), "{}", prompt.messages[0].text);
        assert!(
            prompt.messages[0].text.contains("at most 5 new ones, about what the limits of this run pay for"),
            "{}",
            prompt.messages[0].text
        );
        assert!(caller.sizes().iter().all(|size| *size <= 6_000));
    }
}
