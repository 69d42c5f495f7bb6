//! Nodes, the sub-questions of a run, and the tree they form.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::question::{AspectId, Question};
pub use crate::base::id::NodeId;
use crate::base::id::{as_word, from_word};

/// State of a node.
///
/// ```text
/// pending ─▶ running ─▶ done
///    │          └─────▶ failed
///    └─▶ blocked
/// ```
///
/// Resuming a run sets nodes that were running when the process died back to pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Waiting for its dependencies or for a free slot.
    Pending,
    /// A worker is working on it.
    Running,
    /// Its branch report is stored.
    Done,
    /// Its worker failed.
    Failed,
    /// No answer is possible: a dependency failed, no source is configured, or the sources have no evidence.
    Blocked,
}

as_word!(NodeStatus);

impl NodeStatus {
    /// Returns whether the state is final.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Blocked)
    }
}

/// Where the evidence of a node is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceHint {
    /// In the knowledge base.
    #[default]
    Internal,
    /// On the web.
    Web,
    /// In the knowledge base first, then what is missing on the web.
    Mixed,
}

impl FromStr for SourceHint {
    type Err = ParseSourceHintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_word(text).ok_or(ParseSourceHintError)
    }
}

/// The text names no source.
#[derive(Debug, thiserror::Error)]
#[error("expected `internal`, `web` or `mixed`")]
pub struct ParseSourceHintError;

/// What a worker may do besides taking notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    /// Search, and see snippets.
    Search,
    /// Read the section or page around a passage.
    Open,
    /// Draw conclusions from the nodes it depends on; a node with this tool alone looks nothing up.
    Conclude,
}

/// A sub-question, its settings and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Unique within the tree, never reused.
    pub id: NodeId,
    /// `None` for the root.
    pub(crate) parent: Option<NodeId>,
    /// The sub-question, readable without its parent.
    pub question: Question,
    /// Aspects of the user's question it answers.
    pub(crate) aspects: Vec<AspectId>,
    pub status: NodeStatus,
    /// Nodes whose conclusions its worker is shown; all must settle first.
    pub(crate) depends_on: Vec<NodeId>,
    /// Whether it runs even if a dependency failed.
    pub(crate) optional_dependencies: bool,
    /// Whether other nodes may run at the same time.
    pub(crate) parallelizable: bool,
    /// Scheduling order among nodes with the same critical path; higher runs first.
    pub(crate) priority: i32,
    /// Number of ancestors.
    pub(crate) depth: u32,
    pub(crate) source_hint: SourceHint,
    pub(crate) tools: Vec<Tool>,
    /// JSON Schema its result must match, if the plan sets one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) output_schema: Option<Value>,
    /// Nodes of the same group share a group summary.
    pub(crate) group: Option<String>,
    /// The planner's reason.
    pub(crate) why: String,
    /// Round in which it was planned, from 1.
    pub(crate) round: u32,
    /// Confidence of its branch report, from 0 to 1.
    pub(crate) confidence: f32,
    /// Summary of the findings, or the reason it failed or was blocked.
    pub(crate) summary: String,
}

impl Node {
    /// Returns a pending node with default settings.
    pub(crate) fn new(id: NodeId, parent: Option<NodeId>, question: Question, depth: u32) -> Self {
        Self {
            id,
            parent,
            question,
            aspects: Vec::new(),
            status: NodeStatus::Pending,
            depends_on: Vec::new(),
            optional_dependencies: false,
            parallelizable: true,
            priority: 0,
            depth,
            source_hint: SourceHint::Internal,
            tools: vec![Tool::Search, Tool::Open],
            output_schema: None,
            group: None,
            why: String::new(),
            round: 1,
            confidence: 0.0,
            summary: String::new(),
        }
    }

    /// Returns whether it only draws conclusions from the nodes it depends on.
    pub(crate) fn only_concludes(&self) -> bool {
        self.tools == [Tool::Conclude]
    }
}

/// The nodes of a run.
///
/// The root asks the user's question. If the first plan divides it, the root has no worker and is settled by the
/// report; otherwise it has a worker like every other node, and later rounds add nodes below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Id of the node that asks the user's question.
    pub(crate) root: NodeId,
    /// All nodes in the order of planning, the root first.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// Returns a tree that consists of its root.
    pub(crate) fn of(question: Question) -> Self {
        let root = NodeId::numbered(1);
        Self { nodes: vec![Node::new(root.clone(), None, question, 0)], root }
    }

    /// Looks up a node by id.
    pub(crate) fn get(&self, id: &NodeId) -> Option<&Node> {
        // Node `n3` is nearly always at index 2. The search is for trees in which a plan left numbers out.
        let place = (id.number() as usize).wrapping_sub(1);
        self.nodes.get(place).filter(|node| node.id == *id).or_else(|| self.nodes.iter().find(|node| node.id == *id))
    }

    /// Looks up a node by id, mutably.
    pub(crate) fn get_mut(&mut self, id: &NodeId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == *id)
    }

    /// Returns whether a node has a worker: every node does, except a root that was divided in the first round.
    pub(crate) fn has_worker(&self, id: &NodeId) -> bool {
        *id != self.root || !self.nodes.iter().any(|node| node.id != self.root && node.round == 1)
    }

    /// Returns the nodes that have a worker, in the order of planning. Branches are folded into the summary in this
    /// order, whatever order they finish in, so that a run is repeatable.
    pub fn workers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| self.has_worker(&node.id))
    }

    /// Returns the number of the next node to be planned.
    pub(crate) fn next_number(&self) -> u32 {
        // Not the number of nodes, since a plan may have left numbers out.
        self.nodes.iter().map(|node| node.id.number()).max().unwrap_or(0) + 1
    }
}
