//! Plans: new sub-questions for a tree, and changes to pending ones.
//!
//! A [`PlanDraft`] is unchecked input from a model, a file or the rules. [`PlanDraft::check`] is the only way to make a
//! [`Plan`] of it. A tree converts back into a draft that can be edited as JSON and checked again.

mod check;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node::{Node, NodeId, SourceHint, Tool, Tree};
use super::question::{Brief, Question};
use crate::base::id::RunId;

// The doc comments of `PlanDraft`, `NodeDraft` and `UpdateDraft` are sent to models as schema descriptions and are part
// of the request hash: changing one makes `dr resume` repeat planning calls recorded by an older version.
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

/// A plan file (`dr plan --save`, `dr ask --plan`). Includes the brief it was made for, since aspect ids refer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedPlan {
    /// The brief; if the file has none, a new one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) brief: Option<Brief>,
    /// The run whose answer the planner was shown. Such a plan may be used only for a run that follows the same one:
    /// its wording must not leave, see `run::outward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<RunId>,
    #[serde(flatten)]
    pub(crate) draft: PlanDraft,
}

/// A sub-question as a model or a file says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDraft {
    /// A name to refer to it by within the plan.
    pub(crate) id: String,
    /// The node it belongs under; the root when absent.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    /// The sub-question, complete in itself.
    pub question: String,
    /// Ids of the aspects it serves.
    #[serde(default)]
    pub(crate) aspects: Vec<String>,
    /// Ids of nodes whose conclusions it needs.
    #[serde(default)]
    pub(crate) depends_on: Vec<String>,
    /// Whether it can go on when a dependency failed.
    #[serde(default)]
    pub(crate) optional_dependencies: bool,
    /// False only for a node that must run alone.
    #[serde(default = "yes")]
    pub(crate) parallelizable: bool,
    /// Higher goes first among equals.
    #[serde(default)]
    pub(crate) priority: i32,
    /// Nodes that belong together share a group.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// Where to look.
    #[serde(default)]
    pub source_hint: SourceHint,
    /// What its worker may do; everything when empty.
    #[serde(default)]
    pub(crate) tools: Vec<Tool>,
    /// A JSON Schema its result must have, as JSON text.
    #[serde(default)]
    pub(crate) output_schema: Option<String>,
    /// Why it is needed.
    #[serde(default)]
    pub(crate) why: String,
}

/// A change to a node that waits, as a model or a file says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateDraft {
    /// The node.
    pub(crate) id: String,
    /// Asks something else.
    #[serde(default)]
    pub(crate) question: Option<String>,
    /// Goes first or last.
    #[serde(default)]
    pub(crate) priority: Option<i32>,
    /// Looks elsewhere.
    #[serde(default)]
    pub(crate) source_hint: Option<SourceHint>,
    /// Is not needed any more.
    #[serde(default)]
    pub(crate) drop: bool,
    /// The reason, for the log of the run.
    #[serde(default)]
    pub(crate) why: String,
}

/// A validated plan for a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The planner's reasons for this division.
    pub(crate) reasoning: String,
    /// New nodes, numbered after the existing ones.
    pub(crate) nodes: Vec<Node>,
    /// Changes to pending nodes.
    pub(crate) updates: Vec<Update>,
}

/// A validated change to a pending node. `None` leaves a field unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Update {
    pub(crate) id: NodeId,
    pub(crate) question: Option<Question>,
    pub(crate) priority: Option<i32>,
    pub(crate) source_hint: Option<SourceHint>,
    /// Whether to drop the node.
    pub(crate) drop: bool,
}

/// Limits on the size of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLimits {
    /// Maximum number of ancestors of a node.
    pub max_depth: u32,
    /// Maximum number of nodes, including the root and dropped ones.
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

impl From<&Node> for NodeDraft {
    fn from(node: &Node) -> Self {
        Self {
            id: node.id.to_string(),
            parent: node.parent.as_ref().map(NodeId::to_string),
            question: node.question.to_string(),
            aspects: node.aspects.iter().map(ToString::to_string).collect(),
            depends_on: node.depends_on.iter().map(NodeId::to_string).collect(),
            optional_dependencies: node.optional_dependencies,
            parallelizable: node.parallelizable,
            priority: node.priority,
            group: node.group.clone(),
            source_hint: node.source_hint,
            tools: node.tools.clone(),
            output_schema: node.output_schema.as_ref().map(ToString::to_string),
            why: node.why.clone(),
        }
    }
}

/// Returns a draft that rebuilds this tree under a pending root.
impl From<&Tree> for PlanDraft {
    fn from(tree: &Tree) -> Self {
        let below = tree.nodes.iter().filter(|node| node.id != tree.root);
        let root = tree.get(&tree.root).map(|root| UpdateDraft {
            id: root.id.to_string(),
            priority: Some(root.priority).filter(|priority| *priority != 0),
            source_hint: Some(root.source_hint).filter(|hint| *hint != SourceHint::default()),
            ..UpdateDraft::default()
        });
        let changed = root.filter(|root| root.priority.is_some() || root.source_hint.is_some());
        Self {
            reasoning: String::new(),
            new_nodes: below.map(NodeDraft::from).collect(),
            updates: changed.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
