//! Conversations that face outward: a worker on the web.
//!
//! Every prompt of such a conversation is built from a `Task<Outbound>` and from public passages, so the model's
//! queries are outbound text and are sent unchanged.

use super::desk::{Desk, Outward};
use super::node_source::Outside;
use super::outward::OutwardWork;
use crate::base::outbound::Outbound;
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey};
use crate::research::branch::Branch;
use crate::research::compress::{compress, conclude};
use crate::research::extract::{Pick, extract};
use crate::research::node::Node;
use crate::research::outward::OutwardTask;
use crate::research::question::AspectId;
use crate::research::task::{Conclusion, Conversation, Task, TaskAspect, WorkerLimits};
use crate::research::worker::{Gathered, WorkError, gather};

/// Returns what a worker outside is given: of the planned node its id and tools, and else outbound text alone.
fn shown<'a>(
    node: &'a Node,
    key: CallKey,
    work: &'a OutwardWork,
    task: &'a OutwardTask,
    question: &'a Outbound,
) -> Task<'a, Outbound> {
    let conclusions = work.conclusions.iter();
    Task {
        id: &node.id,
        tools: &node.tools,
        output_schema: task.output_schema.clone().map(Box::new),
        key,
        question,
        aspects: task.aspects().iter().map(TaskAspect::from).collect(),
        conclusions: conclusions.map(|(id, question, branch)| Conclusion::public(id, question, branch)).collect(),
        context: &work.context,
        limits: WorkerLimits::default(),
    }
}

/// The means of working on a node outside.
pub(super) enum OutwardMethod<'a> {
    Model(Outward<&'a Desk>),
    /// Rules that pick sentences.
    Rules(&'a dyn Pick),
}

/// Works on a node of the web by searching, and returns its branch.
pub(super) async fn searched(
    method: OutwardMethod<'_>,
    outside: &Outside,
    node: &Node,
    work: &OutwardWork,
    task: &OutwardTask,
) -> Result<Branch, WorkError> {
    let question = task.question();
    let branch = match method {
        OutwardMethod::Model(desk) => {
            let shown = shown(node, CallKey::of_node(&node.id), work, task, &question);
            let gathered = gather(&desk, &Conversation::outside(&shown, outside)).await?;
            compress(&desk, &shown, gathered).await?
        }
        OutwardMethod::Rules(picker) => {
            let asked = question.as_str().parse();
            // Text that is no valid question, such as one too long, is replaced by the question of the user.
            let asked = asked.as_ref().unwrap_or(&work.asked);
            extract(&node.id, node.aspects.first(), asked, &question, outside, picker).await?
        }
    };
    Ok(in_ids_of(node, work, branch))
}

/// Writes the branch of a node that only concludes, from public findings and outbound text alone.
pub(super) async fn concluded(desk: &Outward<&Desk>, node: &Node, work: &OutwardWork) -> Result<Branch, CallError> {
    let question = work.task.question();
    let shown = shown(node, CallKey::of_node(&node.id), work, &work.task, &question);
    Ok(in_ids_of(node, work, conclude(desk, &shown).await?))
}

/// Replaces the aspects of findings, if the worker was shown those of another brief, whose ids mean nothing to the node.
fn in_ids_of(node: &Node, work: &OutwardWork, mut branch: Branch) -> Branch {
    if !work.has_own_ids {
        let only = only_aspect(node);
        for finding in &mut branch.report.findings {
            finding.aspect.clone_from(&only);
        }
    }
    branch
}

/// Gathers evidence on the web for the aspects that the knowledge base left open. The caller compresses it together
/// with the findings from inside.
pub(super) async fn gathered(
    desk: &Outward<&Desk>,
    outside: &Outside,
    node: &Node,
    work: &OutwardWork,
    task: &OutwardTask,
) -> Result<Gathered, WorkError> {
    let question = task.question();
    // The worker inside has the plain key of the node.
    let shown = shown(node, CallKey::of_node(&node.id).then(Step::Web), work, task, &question);
    let gathered = gather(desk, &Conversation::outside(&shown, outside)).await?;
    Ok(if work.has_own_ids { gathered } else { gathered.serving(only_aspect(node).as_ref()) })
}

/// Returns the aspect of a node that has only one; all its findings serve that aspect.
fn only_aspect(node: &Node) -> Option<AspectId> {
    match node.aspects.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}
