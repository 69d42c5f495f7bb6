//! A sub-question in the tree, and the states it moves through.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::question::{AspectId, Question};

/// Names a node within its tree, for example `n1`; the root is always `n1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(u32);

/// The text is not the id of a node.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a node id (expected `n` and a number, for example `n3`)")]
pub struct ParseNodeIdError(String);

impl NodeId {
    /// Returns the id of the node that was planned as `number`, from 1.
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub fn number(&self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix('n').filter(|digits| !digits.starts_with(['0', '+']));
        digits.and_then(|digits| digits.parse().ok()).map(Self).ok_or_else(|| ParseNodeIdError(text.to_owned()))
    }
}

impl TryFrom<String> for NodeId {
    type Error = ParseNodeIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.to_string()
    }
}

/// Where a node is in its life.
///
/// ```text
/// pending ─▶ running ─▶ done
///    │          └─────▶ failed
///    └─▶ blocked
/// ```
///
/// A running node whose process died is pending again when the run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// It waits for its dependencies, or for its turn.
    Pending,
    /// A worker is on it.
    Running,
    /// It has its branch report.
    Done,
    /// Its worker broke down.
    Failed,
    /// It cannot be worked on: a dependency failed, there is no source for it, or nothing was found that bears on it.
    Blocked,
}

impl NodeStatus {
    /// Tells whether nothing more will happen to the node.
    pub fn is_settled(self) -> bool {
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

/// What a worker may do besides taking notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// Search, and see snippets.
    Search,
    /// Read the section or page around a passage.
    Open,
}

/// A sub-question and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// The node it was opened for; none for the root.
    pub parent: Option<NodeId>,
    /// What it asks.
    pub question: Question,
    /// The aspects of the user's question it serves.
    pub aspects: Vec<AspectId>,
    /// How far it came.
    pub status: NodeStatus,
    /// Nodes whose conclusions it needs.
    pub depends_on: Vec<NodeId>,
    /// Whether it can go on when a dependency failed.
    pub optional_dependencies: bool,
    /// Whether other nodes may run beside it.
    pub parallelizable: bool,
    /// Higher goes first among equals.
    pub priority: i32,
    /// Nodes above it.
    pub depth: u32,
    /// Where its evidence is looked for.
    pub source_hint: SourceHint,
    /// What its worker may do.
    pub tools: Vec<Tool>,
    /// The form of its result, where the plan wants one: a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<Value>,
    /// Nodes that are summarised together share a group.
    pub group: Option<String>,
    /// Why it was planned.
    pub why: String,
    /// The round it was planned in, from 1.
    pub round: u32,
    /// How far its findings can be relied on, from 0 to 1.
    pub confidence: f32,
    /// What it found, in short; why it did not, where it failed.
    pub summary: String,
}

impl Node {
    /// Returns a node that waits: everything but the question as plans have it when they say nothing.
    pub fn new(id: NodeId, parent: Option<NodeId>, question: Question, depth: u32) -> Self {
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
}

/// All nodes of a run.
///
/// The root asks the user's question. Where the first plan divides it, it is settled by the report and has no worker; else
/// it is worked on like any other, and later rounds add to what it found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// The node that asks the user's question.
    pub root: NodeId,
    /// Every node, in the order they were planned.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// Returns a tree of the root alone.
    pub fn of(question: Question) -> Self {
        let root = NodeId::numbered(1);
        Self { nodes: vec![Node::new(root.clone(), None, question, 0)], root }
    }

    /// Returns a node.
    pub fn get(&self, id: &NodeId) -> Option<&Node> {
        // Nodes are numbered as they are planned, so the place is nearly always known.
        let place = (id.number() as usize).wrapping_sub(1);
        self.nodes.get(place).filter(|node| node.id == *id).or_else(|| self.nodes.iter().find(|node| node.id == *id))
    }

    /// Returns a node to change.
    pub fn get_mut(&mut self, id: &NodeId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == *id)
    }

    /// Tells whether a node is worked on: all but a root that was divided in the first round.
    pub fn has_worker(&self, id: &NodeId) -> bool {
        *id != self.root || !self.nodes.iter().any(|node| node.id != self.root && node.round == 1)
    }

    /// Returns the nodes that are worked on, in the order they were planned: the order branches are folded in.
    pub fn workers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| self.has_worker(&node.id))
    }

    /// Returns the number the next node gets.
    pub fn next_number(&self) -> u32 {
        self.nodes.iter().map(|node| node.id.number()).max().unwrap_or(0) + 1
    }
}
