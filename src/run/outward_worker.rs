//! Conversations that face outward: a worker on the web, and the verification of a job's citations.
//!
//! Only in this module may text that a model wrote leave. Every prompt of such a conversation is built from an
//! [`OutwardWork`] and from public passages, so the model's queries are outbound text and are sent unchanged.

use super::desk::{Desk, Outward};
use super::node_source::{Outside, WebPages};
use super::outward::OutwardWork;
use crate::base::outbound::Outbound;
use crate::llm::call::CallKey;
use crate::research::branch::Branch;
use crate::research::compress::compress;
use crate::research::extract::{Pick, extract};
use crate::research::node::{Node, NodeId};
use crate::research::outward::OutwardTask;
use crate::research::question::{Aspect, AspectId};
use crate::research::reported;
use crate::research::worker::{Conclusion, Conversation, Gathered, Task, WorkError, WorkerLimits, gather};
use crate::source::deep_research::JobReport;
use crate::source::{Documents, SourceError};

/// Most pages read to verify the claims of one job.
const MAX_VERIFIED_PAGES: usize = 12;

/// Owned data for the [`Task`] of a worker outside.
struct Shown {
    node: Node,
    aspects: Vec<Aspect>,
    conclusions: Vec<(Node, Branch)>,
    context: String,
}

impl Shown {
    /// Converts a task. Of the planned node, only the id, tools and output schema are used.
    fn of(node: &Node, work: &OutwardWork, task: &OutwardTask) -> Self {
        // Many long aspects may exceed the limit of a question; the user's question takes their place.
        let bare = |id: &NodeId, question: &Outbound| {
            let question = question.as_str().parse().unwrap_or_else(|_| work.asked.clone());
            Node::new(id.clone(), None, question, 0)
        };
        let (tools, output_schema) = (node.tools.clone(), node.output_schema.clone());
        let aspects = task.aspects().iter();
        let conclusions = work.conclusions.iter();
        Self {
            node: Node { tools, output_schema, ..bare(&node.id, &task.question()) },
            aspects: aspects.map(|aspect| Aspect { id: aspect.id.clone(), text: aspect.text.to_string() }).collect(),
            conclusions: conclusions.map(|(id, question, branch)| (bare(id, question), branch.clone())).collect(),
            context: work.context.to_string(),
        }
    }

    /// Returns a conversation on the web.
    #[expect(
        clippy::disallowed_methods,
        reason = "the worker is shown this, made of an `OutwardWork`, and public passages"
    )]
    fn conversation<'a>(&'a self, key: CallKey, outside: &'a Outside) -> Conversation<'a, Outbound> {
        let task = Task {
            node: &self.node,
            key,
            aspects: self.aspects.iter().collect(),
            conclusions: self.conclusions.iter().map(|(node, branch)| Conclusion { node, branch }).collect(),
            context: &self.context,
            answers: None,
            limits: WorkerLimits::default(),
        };
        Conversation {
            task,
            source: outside,
            query: |words| Box::new(Outbound::vouched(words)),
            goes_on_outside: false,
        }
    }
}

/// How a node is worked on outside.
pub(super) enum Mind<'a> {
    /// With a model.
    Model(Outward<&'a Desk>),
    /// With rules that pick sentences.
    Rules(&'a dyn Pick),
}

/// Works on a node of the web by searching, and returns its branch.
pub(super) async fn searched(
    mind: Mind<'_>,
    outside: &Outside,
    node: &Node,
    work: &OutwardWork,
    task: &OutwardTask,
) -> Result<Branch, WorkError> {
    let shown = Shown::of(node, work, task);
    let mut branch = match mind {
        Mind::Model(desk) => {
            let conversation = shown.conversation(CallKey::of_node(&node.id), outside);
            let gathered = gather(&desk, &conversation).await?;
            compress(&desk, &conversation.task, gathered).await?
        }
        Mind::Rules(picker) => {
            let node = Node { aspects: node.aspects.clone(), ..shown.node.clone() };
            extract(&node, &task.question(), outside, picker).await?
        }
    };
    if !work.has_own_ids {
        let only = only_aspect(node);
        for finding in &mut branch.report.findings {
            finding.aspect.clone_from(&only);
        }
    }
    Ok(branch)
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
    let shown = Shown::of(node, work, task);
    let gathered = gather(desk, &shown.conversation(CallKey::of_node(&node.id).then("web"), outside)).await?;
    Ok(if work.has_own_ids { gathered } else { gathered.serving(only_aspect(node).as_ref()) })
}

/// Returns the branch of a job's report. Its claims are verified against the cited pages, up to [`MAX_VERIFIED_PAGES`].
///
/// The branch counts as public, so its open questions are worded by `task`: the planner may have worded `node` after
/// retrieval.
pub(super) async fn verified(
    node: &Node,
    work: &OutwardWork,
    task: &OutwardTask,
    aspects: &[Aspect],
    report: &JobReport,
    cited: Option<&WebPages>,
) -> Result<Branch, SourceError> {
    let pages = cited.map(|pages| pages as &dyn Documents);
    let shown = Shown::of(node, work, task);
    reported::branch_of(&shown.node, aspects, report, pages, MAX_VERIFIED_PAGES).await
}

/// Returns the aspect of a node that has only one; all its findings serve that aspect.
fn only_aspect(node: &Node) -> Option<AspectId> {
    match node.aspects.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::outward::UserWords;

    #[tokio::test]
    async fn open_question_of_a_job_has_the_outward_wording() {
        let asked: crate::research::question::Question = "How do others run projects?".parse().unwrap();
        let question = Outbound::fixed("How do others run projects?");
        let task = OutwardTask::new(question.clone(), None, Vec::new());
        let words = UserWords { question, clarification: None, required: Vec::new(), days: None };
        let work = OutwardWork {
            task: task.clone(),
            has_own_ids: true,
            conclusions: Vec::new(),
            context: Outbound::default(),
            asked,
            words,
        };
        let planned = "What do others do about the outage that Ferreira reports?".parse().unwrap();
        let node = Node::new(NodeId::numbered(5), None, planned, 2);
        let branch = verified(&node, &work, &task, &[], &JobReport::default(), None).await.unwrap();
        assert_eq!(branch.report.open_questions, ["How do others run projects?"]);
    }
}
