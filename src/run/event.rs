//! The events of a run, as stored in the journal.
//!
//! Field and variant names are part of the on-disk format: existing journals must stay readable, so a new field needs
//! `#[serde(default)]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::kb::search::Scope;
use crate::llm::message::Role;
use crate::research::branch::Branch;
use crate::research::brief::PublicBrief;
use crate::research::memory::Memory;
use crate::research::node::{NodeId, SourceHint};
use crate::research::plan::{Plan, TreeLimits};
use crate::research::question::{Brief, Mode, Question};
use crate::research::report::{Draft, StopReason, UsageTable};
use crate::research::route::Route;
use crate::research::verdict::Verdict;
use crate::source::Label;
use crate::source::mcp::ServerNote;

use super::budget::{BudgetLimits, LimitsByPlan};

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number within the run, from 1.
    pub(crate) seq: u64,
    /// Time of writing.
    pub at: Moment,
    pub event: Event,
}

/// How the user wants a question answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Requested depth of the research.
    pub mode: Mode,
    /// Aspects the answer must cover, in addition to those of the brief.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub required: Vec<String>,
    /// Source for every sub-question (`--source`); `None` follows the plan.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<SourceHint>,
    /// Whether the user lets internal text leave with this run (`--allow-egress`). What the run does is
    /// [`RunSettings::is_open`].
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub allow_egress: bool,
    /// Whether pages cited by Deep Research are fetched to verify its claims.
    // Runs from before this flag always fetched them.
    #[serde(default = "yes")]
    pub verify_web: bool,
    /// JSON Schema for the answer (`--schema`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<serde_json::Value>,
    /// Collections and filters to search.
    pub scope: Scope,
}

impl Default for RunRequest {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            required: Vec::new(),
            source: None,
            allow_egress: false,
            verify_web: true,
            output_schema: None,
            scope: Scope::default(),
        }
    }
}

/// Settings of a run. Fixed when it starts, except for the limits and the rules of egress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    // Flattened, since journals have these fields beside the others.
    #[serde(flatten)]
    pub request: RunRequest,
    /// Whether texts labelled public are made without internal text in view.
    ///
    /// True for new runs. Cleared when the permission to send internal text is withdrawn, since public text made until
    /// then may repeat it. Always false for runs older than journal format 6, in which one worker saw both.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub keeps_public_apart: bool,
    /// Whether internal text may leave, see [`InternalText::may_leave`]. Decided anew
    /// each time the run is resumed, since collections and their settings change.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_open: bool,
    /// Whether the run may have text of internal servers, its own or those of runs it follows. The setting of a
    /// collection does not let such text leave.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub has_server_text: bool,
    /// Limits on cost, tokens, time and rounds. The first plan may lower them, see [`Self::by_plan`].
    pub limits: BudgetLimits,
    /// Limits that the user has not set, by the workers of the first plan.
    #[serde(skip_serializing_if = "LimitsByPlan::is_none", default)]
    pub by_plan: LimitsByPlan,
    pub tree: TreeLimits,
    /// Maximum number of nodes that run at the same time.
    pub parallel: usize,
    /// Maximum number of tokens of the rolling summary.
    pub summary_tokens: u64,
    /// Whether the run uses rules instead of models.
    pub by_rules: bool,
    /// Name of the model for each role.
    #[serde(default)]
    pub models: BTreeMap<Role, String>,
    /// Description of the scope for the report: `12 files of kb`, and what the user says of the collections.
    pub searched: String,
    /// Version of the source, on which search results depend, see [`crate::source::Source::version`].
    pub source_version: String,
    /// Collections whose text the run may have: those it searches, and those of the runs it follows. Their rules apply
    /// to it. Empty if an older version began it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub collections: BTreeSet<String>,
    /// The run this one follows up (`--follow`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<Followed>,
    /// Whether the run is shown quotes of earlier runs.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub reuse: bool,
    /// How the model of the run reranks the hits of its workers; `None` if it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rerank: Option<Listwise>,
    /// Whether the user gave the plan (`--plan`).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub has_own_plan: bool,
    /// Versions of the search engine and of the background jobs that the run may ask; empty if it may ask neither.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub outside: String,
    /// The user's own servers that the run may call.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub servers: Vec<ServerNote>,
    /// Why the run does not use the configured models; `None` if it uses them, or none are configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instead: Option<Instead>,
}

/// How the model of a run reranks hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listwise {
    /// Hits of a search that it orders.
    pub(crate) candidates: usize,
    /// Time-out of one call.
    pub(crate) timeout: Duration,
}

impl RunSettings {
    /// Returns whether the user started the run with `--allow-egress`. Versions that do not record whether the run is
    /// open also set the flag because of collection settings, so it is ignored for them.
    pub(crate) fn has_flag(&self) -> bool {
        self.request.allow_egress && self.is_open
    }

    /// Returns whether the run may have text of internal servers.
    pub(crate) fn may_have_server_text(&self) -> bool {
        self.has_server_text || self.servers.iter().any(|server| server.label == Label::Internal)
    }
}

/// Where internal text of a run may be from, with what the user's settings permit now.
#[derive(Clone, Debug, Default)]
pub struct InternalText {
    /// Whether it permits its text to leave (`allow_egress`), for each collection.
    pub collections_allow: Vec<bool>,
    /// Whether it may be from internal servers, too. No setting permits that to leave.
    pub from_servers: bool,
}

impl InternalText {
    /// Returns whether it may leave with a run: by the flag of the run (`--allow-egress`), which covers any text, or by
    /// the settings of every collection.
    pub(crate) fn may_leave(&self, flag: bool) -> bool {
        // `all` is true of no collections, which permit nothing.
        let by_settings = !self.collections_allow.is_empty() && self.collections_allow.iter().all(|allows| *allows);
        flag || by_settings && !self.from_servers
    }
}

/// Why a question is answered without the configured models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instead {
    /// The reason, as a clause.
    pub(crate) why: String,
    /// Whether the models completed their work and noted nothing. The quotes are then shown as the closest passages at
    /// most.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) has_read: bool,
    /// The run in which the models failed, if it began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed_run: Option<FailedRun>,
}

/// A run in whose place another answers. Its calls are paid, so they count in the report of the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRun {
    pub(crate) id: RunId,
    /// Its usage when it failed. It may be resumed later, or removed.
    pub(crate) usage: UsageTable,
}

fn yes() -> bool {
    true
}

/// The run that a follow-up question refers to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    pub(crate) run: RunId,
    pub(crate) question: Question,
    /// Its answer, which the planner is shown.
    pub answer: String,
}

/// An event of a run. [`super::tree`] folds events into the state of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A run began.
    Started { question: Question, settings: Box<RunSettings> },
    /// A process resumed the run. Nodes that were running are pending again.
    Resumed {
        limits: BudgetLimits,
        /// Nodes to retry.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        again: Vec<NodeId>,
        /// Whether internal text may leave from now on.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        is_open: bool,
    },
    /// The user answered a clarifying question.
    Clarified { question: String, answer: String },
    /// The aspects that the answer must cover are fixed.
    Briefed {
        brief: Brief,
        /// In a follow-up run, a brief made without the earlier answer. Text sent to the web is built from this one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        outward: Option<Box<PublicBrief>>,
    },
    /// A round was planned and begins.
    Planned { round: u32, plan: Plan },
    /// A worker takes a route, for the reason `why`.
    NodeStarted { node: NodeId, route: Route, why: String },
    /// A worker returned a result.
    NodeFinished { node: NodeId, branch: Box<Branch> },
    /// A worker was stopped early. Its node is pending again.
    NodePaused { node: NodeId },
    /// A worker returned an error.
    NodeFailed { node: NodeId, error: String },
    /// A node cannot be answered. It may never have started.
    NodeBlocked { node: NodeId, reason: String },
    /// No further node could run: the branches were folded into the summaries, and an answer was drafted and judged.
    RoundEnded { round: u32, memory: Memory, draft: Draft, verdict: Verdict },
    /// The run ended. A later [`Event::Resumed`] supersedes this.
    Ended { stop_reason: StopReason, draft: Draft },
}

impl Event {
    pub(crate) fn node(&self) -> Option<&NodeId> {
        match self {
            Self::NodeStarted { node, .. }
            | Self::NodeFinished { node, .. }
            | Self::NodePaused { node }
            | Self::NodeFailed { node, .. }
            | Self::NodeBlocked { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Returns the stored name of the event type.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_text_leaves_by_the_flag_or_by_the_settings_of_all_its_collections() {
        for (flag, collections, from_servers, leaves) in [
            (false, &[][..], false, false),
            (false, &[true], false, true),
            (false, &[true, false], false, false),
            (false, &[true], true, false),
            (true, &[], false, true),
            (true, &[false], true, true),
        ] {
            let text = InternalText { collections_allow: collections.to_vec(), from_servers };
            assert_eq!(text.may_leave(flag), leaves, "{flag} {text:?}");
        }
    }
}
