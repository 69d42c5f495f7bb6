//! The task of a worker, and the conversation in which it is shown.

use serde::{Deserialize, Serialize};

use super::branch::Branch;
use super::memory::PublicBranch;
use super::node::{Node, NodeId, Tool};
use super::question::{Aspect, AspectId};
use super::said::Said;
use super::skim::Answer;
use crate::base::outbound::{MayLeave, Outbound, Voucher};
use crate::llm::call::CallKey;
use crate::source::Source;

/// Limits on the steps of a worker and the size of its prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerLimits {
    pub(crate) max_steps: u32,
    /// Tokens of all its steps, sent and received.
    pub(crate) max_tokens: u64,
    /// Passages shown of each search.
    pub(crate) passages_per_search: usize,
    /// Tokens shown of each hit.
    pub(crate) snippet_tokens: u64,
    /// Tokens shown of each opened passage.
    pub(crate) open_tokens: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self { max_steps: 8, max_tokens: 60_000, passages_per_search: 8, snippet_tokens: 200, open_tokens: 1_500 }
    }
}

/// Conclusions of a node, as shown to a worker.
#[derive(Debug)]
pub(crate) struct Conclusion<'a, Q: ?Sized = str> {
    // Private: for outbound text, only `public` may set them.
    id: &'a NodeId,
    question: &'a Q,
    branch: &'a Branch,
}

impl<'a, Q: ?Sized> Conclusion<'a, Q> {
    pub(super) fn id(&self) -> &'a NodeId {
        self.id
    }

    pub(super) fn question(&self) -> &'a Q {
        self.question
    }

    pub(super) fn branch(&self) -> &'a Branch {
        self.branch
    }
}

impl<'a> Conclusion<'a> {
    /// Returns the conclusions of a node for a worker inside.
    pub(crate) fn of(node: &'a Node, branch: &'a Branch) -> Self {
        Self { id: &node.id, question: node.question.as_str(), branch }
    }
}

impl<'a> Conclusion<'a, Outbound> {
    /// Returns the conclusions of a node for a worker that faces outward.
    pub(crate) fn public(id: &'a NodeId, question: &'a Outbound, branch: &'a PublicBranch) -> Self {
        Self { id, question, branch: branch.as_branch() }
    }
}

/// An aspect, as shown to a worker.
#[derive(Debug, Serialize)]
pub(crate) struct TaskAspect<'a, Q: ?Sized = str> {
    pub(crate) id: &'a AspectId,
    pub(crate) text: &'a Q,
}

impl<'a> From<&'a Aspect> for TaskAspect<'a> {
    fn from(Aspect { id, text }: &'a Aspect) -> Self {
        Self { id, text }
    }
}

/// The input of a worker, all of whose text is a `Q`: any text inside, [`Outbound`] for a worker that faces outward.
#[derive(Debug)]
pub(crate) struct Task<'a, Q: ?Sized = str> {
    pub(crate) id: &'a NodeId,
    /// Actions that the worker may take.
    pub(crate) tools: &'a [Tool],
    /// JSON Schema of the node's result. No step shows it: it shapes the report, after everything was gathered.
    pub(crate) output_schema: Option<Box<Q>>,
    pub(crate) key: CallKey,
    pub(crate) question: &'a Q,
    pub(crate) aspects: Vec<TaskAspect<'a, Q>>,
    /// Conclusions of the nodes it depends on.
    pub(crate) conclusions: Vec<Conclusion<'a, Q>>,
    /// The slice of the global summary that this node may see.
    pub(crate) context: &'a Q,
    pub(crate) limits: WorkerLimits,
}

impl<Q: ?Sized + AsRef<str>> Task<'_, Q> {
    /// Returns the same task as text of any origin.
    pub(super) fn plain(&self) -> Task<'_> {
        let Self { id, tools, limits, .. } = *self;
        let aspects = self.aspects.iter().map(|aspect| TaskAspect { id: aspect.id, text: aspect.text.as_ref() });
        let conclusions = self.conclusions.iter().map(|Conclusion { id, question, branch }| Conclusion {
            id,
            question: question.as_ref(),
            branch,
        });
        Task {
            id,
            tools,
            output_schema: self.output_schema.as_deref().map(|schema| schema.as_ref().into()),
            key: self.key.clone(),
            question: self.question.as_ref(),
            aspects: aspects.collect(),
            conclusions: conclusions.collect(),
            context: self.context.as_ref(),
            limits,
        }
    }
}

/// A conversation with a worker: the task it is shown, the source it searches, and the conversion of its words into
/// queries.
///
/// The three belong together: a source that takes outbound text is searched only in a conversation that shows the
/// worker outbound text alone, which makes the worker's own words outbound text, too.
pub(crate) struct Conversation<'a, Q: ?Sized = str> {
    pub(super) task: &'a Task<'a, Q>,
    pub(super) source: &'a dyn Source<Q>,
    /// The units that answer the aspects, if the knowledge base was skimmed.
    pub(super) answers: Option<Vec<&'a Answer>>,
    /// Aspects that other nodes serve as well. An answer to one of them may be of use to those only.
    pub(super) shared_aspects: &'a [AspectId],
    query: fn(Said) -> Box<Q>,
    pub(super) goes_on_outside: bool,
}

impl<Q: ?Sized> Conversation<'_, Q> {
    /// Returns words that its worker chose as a query, or as arguments of a call.
    pub(super) fn worded(&self, words: Said) -> Box<Q> {
        (self.query)(words)
    }
}

impl<'a> Conversation<'a> {
    /// Returns the conversation with a worker whose queries may be any text. `answers` are the units that answer its
    /// aspects, if the knowledge base was skimmed.
    pub(crate) fn inside(task: &'a Task<'a>, source: &'a dyn Source, answers: Option<Vec<&'a Answer>>) -> Self {
        let query = |said: Said| said.into_text().into_boxed_str();
        Self { task, source, answers, shared_aspects: &[], query, goes_on_outside: false }
    }

    /// Names the aspects that other nodes serve as well.
    #[must_use]
    pub(crate) fn sharing(self, shared_aspects: &'a [AspectId]) -> Self {
        Self { shared_aspects, ..self }
    }

    /// Tells the worker that another one searches the web afterwards, for the aspects that it leaves open.
    #[must_use]
    pub(crate) fn before_outside(self) -> Self {
        Self { goes_on_outside: true, ..self }
    }
}

/// Words of a worker that is shown an outbound task and public passages, and has nothing else to word queries from.
struct WordsOutside(Said);

impl MayLeave for WordsOutside {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0.into_text()
    }
}

impl<'a> Conversation<'a, Outbound> {
    /// Returns the conversation with a worker that faces outward.
    pub(crate) fn outside(task: &'a Task<'a, Outbound>, source: &'a dyn Source<Outbound>) -> Self {
        let query = |words| Box::new(Outbound::of(WordsOutside(words)));
        Self { task, source, answers: None, shared_aspects: &[], query, goes_on_outside: false }
    }
}
