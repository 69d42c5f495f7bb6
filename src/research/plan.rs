//! A Brief becomes a Plan: the sub-questions to open, and what changes in those that wait.
//!
//! A [`PlanDraft`] is what a model, a file or the rules say; [`PlanDraft::check`] is the only way from there to a
//! [`Plan`]. A plan, or a whole tree, can be turned back into a draft, edited as JSON, and checked again.

mod check;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use check::{PlanComplaint, complaints_text};

use super::node::{Node, NodeId, SourceHint, Tool, Tree};
use super::question::{Brief, Question};

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

/// A plan in a file: with the brief it was made for, so that its aspects mean what they meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan {
    /// What the answer must cover; made anew where the file does not say.
    #[serde(default)]
    pub brief: Option<Brief>,
    /// The plan.
    #[serde(flatten)]
    pub draft: PlanDraft,
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

impl From<&Update> for UpdateDraft {
    fn from(update: &Update) -> Self {
        Self {
            id: update.id.to_string(),
            question: update.question.as_ref().map(Question::to_string),
            priority: update.priority,
            source_hint: update.source_hint,
            drop: update.drop,
            why: String::new(),
        }
    }
}

/// The draft that checks to this plan, against the tree the plan was made for.
impl From<&Plan> for PlanDraft {
    fn from(plan: &Plan) -> Self {
        Self {
            reasoning: plan.reasoning.clone(),
            new_nodes: plan.nodes.iter().map(NodeDraft::from).collect(),
            updates: plan.updates.iter().map(UpdateDraft::from).collect(),
        }
    }
}

/// The draft that plans all of this tree anew, under a root that waits.
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
