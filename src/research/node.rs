//! A sub-question in the tree, and the states it moves through.

use serde::Serialize;

use super::question::Question;

/// Names a node within its tree, for example `n1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NodeId(String);

impl NodeId {
    /// Returns the id of the node that was planned as `number`, from 1.
    pub fn numbered(number: usize) -> Self {
        Self(format!("n{number}"))
    }
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// It has its evidence and its summary.
    Done,
    /// Nothing was found that bears on it.
    Blocked,
}

/// Where the evidence of a node is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceHint {
    /// In the knowledge base.
    Internal,
}

/// A sub-question and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// The node it was opened for; none for the root.
    pub parent: Option<NodeId>,
    /// What it asks.
    pub question: Question,
    /// How far it came.
    pub status: NodeStatus,
    /// Nodes whose conclusions it needs.
    pub depends_on: Vec<NodeId>,
    /// Nodes above it.
    pub depth: u32,
    /// Where its evidence is looked for.
    pub source_hint: SourceHint,
    /// Nodes that are summarised together share a group.
    pub group: Option<String>,
    /// How far its findings can be relied on, from 0 to 1.
    pub confidence: f32,
    /// What it found, in short.
    pub summary: String,
}

/// All nodes of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tree {
    /// The node that asks the user's question.
    pub root: NodeId,
    /// Every node, in the order they were planned.
    pub nodes: Vec<Node>,
}
