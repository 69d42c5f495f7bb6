//! Everything that can happen in a run, as facts that can be written down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::kb::search::Scope;
use crate::llm::message::Role;
use crate::research::branch::Branch;
use crate::research::memory::Memory;
use crate::research::node::{NodeId, SourceHint};
use crate::research::plan::{Plan, TreeLimits};
use crate::research::question::{Brief, Mode, Question};
use crate::research::report::{Draft, StopReason};
use crate::research::route::Route;
use crate::research::verdict::Verdict;

use super::budget::BudgetLimits;

/// A fact and when it became one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its place among the facts of its run, from 1.
    pub seq: u64,
    /// When it was written down.
    pub at: Moment,
    /// The fact.
    pub event: Event,
}

/// How a run is to be made; fixed when it starts, limits aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// How much is done.
    pub mode: Mode,
    /// What the answer must cover, in the caller's words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub required: Vec<String>,
    /// Where all of it is to be looked for, whatever the plan hints.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<SourceHint>,
    /// Whether texts made of the knowledge base may leave this machine.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub allow_egress: bool,
    /// Whether the pages Deep Research cites are read, so that what it says of them can be checked.
    #[serde(default = "yes")]
    pub verify_web: bool,
    /// What it may spend.
    pub limits: BudgetLimits,
    /// How large its tree may grow.
    pub tree: TreeLimits,
    /// Nodes worked on at the same time, at most.
    pub parallel: usize,
    /// Tokens of the rolling summary, at most.
    pub summary_tokens: u64,
    /// Whether models think, or rules.
    pub by_rules: bool,
    /// The model of each role, by name.
    #[serde(default)]
    pub models: BTreeMap<Role, String>,
    /// A JSON Schema the answer must have.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<serde_json::Value>,
    /// What is searched.
    pub scope: Scope,
    /// The same for people: `12 files of kb`.
    pub searched: String,
    /// What results of a search depend on besides the query, see [`crate::source::Source::version`].
    pub source_version: String,
    /// The run this one follows up, and what came of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<Followed>,
}

fn yes() -> bool {
    true
}

/// What a follow-up question is asked about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The run.
    pub run: RunId,
    /// What it asked.
    pub question: Question,
    /// What it answered.
    pub answer: String,
}

/// A fact of a run. The fold in [`super::tree`] says what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A run began.
    Started {
        /// What was asked.
        question: Question,
        /// How it is to be made.
        settings: Box<RunSettings>,
    },
    /// A process went on with the run; nodes that were running wait again.
    Resumed {
        /// What it may spend now.
        limits: BudgetLimits,
        /// Nodes that are worked on again.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        again: Vec<NodeId>,
    },
    /// The user was asked something, and said this.
    Clarified {
        /// What was asked.
        question: String,
        /// The answer.
        answer: String,
    },
    /// It is fixed what the answer must cover.
    Briefed {
        /// The brief.
        brief: Brief,
        /// The same made without the answer of the run that this one follows up, for what faces outward.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        outward: Option<Box<Brief>>,
    },
    /// Nodes were opened; the round begins.
    Planned {
        /// The round, from 1.
        round: u32,
        /// The nodes and why.
        plan: Plan,
    },
    /// A worker began.
    NodeStarted {
        /// The node.
        node: NodeId,
        /// The way it takes.
        route: Route,
        /// Why that way.
        why: String,
    },
    /// A worker ended.
    NodeFinished {
        /// The node.
        node: NodeId,
        /// What it found.
        branch: Box<Branch>,
    },
    /// A worker was stopped before it was done; its node waits again.
    NodePaused {
        /// The node.
        node: NodeId,
    },
    /// A worker broke down.
    NodeFailed {
        /// The node.
        node: NodeId,
        /// Why.
        error: String,
    },
    /// A node cannot be worked on.
    NodeBlocked {
        /// The node.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// Nothing more could run; the branches were folded, a draft was made and judged.
    RoundEnded {
        /// The round.
        round: u32,
        /// The summaries as they are now.
        memory: Memory,
        /// The answer so far.
        draft: Draft,
        /// What the judge says.
        verdict: Verdict,
    },
    /// The run ended; [`Event::Resumed`] may supersede it.
    Ended {
        /// Why.
        stop_reason: StopReason,
        /// The answer.
        draft: Draft,
    },
}

impl Event {
    /// Returns the name of the kind of event, as it is stored.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Resumed { .. } => "resumed",
            Self::Clarified { .. } => "clarified",
            Self::Briefed { .. } => "briefed",
            Self::Planned { .. } => "planned",
            Self::NodeStarted { .. } => "node_started",
            Self::NodeFinished { .. } => "node_finished",
            Self::NodePaused { .. } => "node_paused",
            Self::NodeFailed { .. } => "node_failed",
            Self::NodeBlocked { .. } => "node_blocked",
            Self::RoundEnded { .. } => "round_ended",
            Self::Ended { .. } => "ended",
        }
    }
}
