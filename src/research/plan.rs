//! A Brief becomes a Plan: the sub-questions to open, and what changes in those that wait.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node::{Node, NodeId, SourceHint, Tool};
use super::question::Question;

/// A plan as a model or a file says it: nothing in it has been checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDraft {
    /// Why the work is divided like this.
    #[serde(default)]
    pub reasoning: String,
    /// Sub-questions to open.
    #[serde(default)]
    pub new_nodes: Vec<NodeDraft>,
    /// Changes to sub-questions that wait.
    #[serde(default)]
    pub updates: Vec<UpdateDraft>,
}

/// A sub-question as a model or a file says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDraft {
    /// A name to refer to it by within the plan.
    pub id: String,
    /// The node it belongs under; the root when absent.
    #[serde(default)]
    pub parent: Option<String>,
    /// The sub-question, complete in itself.
    pub question: String,
    /// Ids of the aspects it serves.
    #[serde(default)]
    pub aspects: Vec<String>,
    /// Ids of nodes whose conclusions it needs.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Whether it can go on when a dependency failed.
    #[serde(default)]
    pub optional_dependencies: bool,
    /// False only for a node that must run alone.
    #[serde(default = "yes")]
    pub parallelizable: bool,
    /// Higher goes first among equals.
    #[serde(default)]
    pub priority: i32,
    /// Nodes that belong together share a group.
    #[serde(default)]
    pub group: Option<String>,
    /// Where to look.
    #[serde(default)]
    pub source_hint: SourceHint,
    /// What its worker may do; everything when empty.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// A JSON Schema its result must have, as JSON text.
    #[serde(default)]
    pub output_schema: Option<String>,
    /// Why it is needed.
    #[serde(default)]
    pub why: String,
}

/// A change to a node that waits, as a model or a file says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateDraft {
    /// The node.
    pub id: String,
    /// Asks something else.
    #[serde(default)]
    pub question: Option<String>,
    /// Goes first or last.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Looks elsewhere.
    #[serde(default)]
    pub source_hint: Option<SourceHint>,
    /// Is not needed any more.
    #[serde(default)]
    pub drop: bool,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// A plan that fits its tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Why the work is divided like this.
    pub reasoning: String,
    /// New nodes, numbered after those there are.
    pub nodes: Vec<Node>,
    /// Changes to nodes that wait.
    pub updates: Vec<Update>,
}

/// A change to a node that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The node.
    pub id: NodeId,
    /// Asks something else.
    pub question: Option<Question>,
    /// Goes first or last.
    pub priority: Option<i32>,
    /// Looks elsewhere.
    pub source_hint: Option<SourceHint>,
    /// Is not needed any more.
    pub drop: bool,
}

/// How large a tree may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLimits {
    /// Nodes above a node, at most.
    pub max_depth: u32,
    /// Nodes in all, the root included.
    pub max_nodes: u32,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { max_depth: 3, max_nodes: 200 }
    }
}

fn yes() -> bool {
    true
}
