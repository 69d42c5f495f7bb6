//! How far a run is, read from its journal.

use schemars::JsonSchema;
use serde::Serialize;

use super::observer::event_line;
use super::stored::read;
use super::{Engine, EngineError};
use crate::base::id::RunId;
use crate::research::branch::Branch;
use crate::research::node::Node;
use crate::research::report::UsageTable;
use crate::run::budget::BudgetLimits;
use crate::run::event::Record;
use crate::run::journal::EgressRow;
use crate::run::store::{Store, StoreError};
use crate::run::tree::{RunFields, RunState};
use crate::run::usage::usage_of;

/// The state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    /// A process works on it.
    #[default]
    Running,
    /// It was stopped before its end and can be resumed.
    Open,
    Ended,
    /// It ended with an error.
    Failed,
}

/// The state of a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct RunStatus {
    pub(crate) run_id: String,
    pub(crate) question: String,
    pub(crate) state: Standing,
    /// Why it ended or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Latest planned round; 0 before the first plan.
    pub(crate) round: u32,
    /// The tree of sub-questions.
    pub(crate) nodes: Vec<NodeStanding>,
    /// Model calls so far.
    pub(crate) calls: u64,
    /// Tokens so far, sent and received.
    pub(crate) tokens: u64,
    /// Cost so far; null if a price is not known.
    pub(crate) cost_usd: Option<f64>,
    /// Active time until the last event.
    pub(crate) seconds: f64,
    /// Events after the requested number, oldest first.
    pub(crate) events: Vec<EventEntry>,
    /// Number of the last event; pass it as `since` to get only later ones.
    pub(crate) last_event: u64,
}

/// A sub-question and its state.
#[derive(Clone, Debug, Serialize, JsonSchema, Default)]
pub(crate) struct NodeStanding {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) question: String,
    pub(crate) status: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(crate) depends_on: Vec<String>,
}

/// An event in a line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EventEntry {
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) text: String,
}

/// A run with its findings, costs and outgoing texts so far.
#[derive(Debug)]
pub(crate) struct RunView {
    /// Without events.
    pub(crate) status: RunStatus,
    pub(crate) limits: BudgetLimits,
    /// Aspects that the answer has to cover.
    pub(crate) aspects: Vec<String>,
    /// Each sub-question with its findings.
    pub(crate) branches: Vec<(Node, Branch)>,
    pub(crate) usage: UsageTable,
    /// Texts that left this machine, and texts that were withheld.
    pub(crate) egress: Vec<EgressRow>,
}

/// The records of a run in the journal.
struct Stored {
    store: Store,
    run: RunId,
    is_running: bool,
    events: Vec<Record>,
    state: RunState,
    usage: UsageTable,
}

impl Engine {
    /// Returns how far a stored run is, with its events after number `since`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such run, the audience may not see it, or its journal cannot be read.
    pub(crate) async fn status(&self, run: &str, since: u64) -> Result<RunStatus, EngineError> {
        Ok(self.stored(run).await?.status(since))
    }

    /// Returns a stored run with its findings, costs and outgoing texts so far.
    pub(crate) async fn view(&self, run: &str) -> Result<RunView, EngineError> {
        let stored = self.stored(run).await?;
        // No event has a later number.
        let status = stored.status(u64::MAX);
        let Stored { store, run, state, usage, .. } = stored;
        let egress = store.journal().egress(&run).await.map_err(StoreError::from)?;
        let aspects = state.brief().iter().flat_map(|brief| &brief.aspects).map(|aspect| aspect.text.clone()).collect();
        let RunFields { settings, tree, mut branches, .. } = state.into_fields();
        let nodes = tree.nodes.into_iter();
        let branches = nodes.filter_map(|node| branches.remove(&node.id).map(|branch| (node, branch))).collect();
        Ok(RunView { status, limits: settings.limits, aspects, branches, usage, egress })
    }

    async fn stored(&self, run: &str) -> Result<Stored, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(Some(run)).await?;
        let (is_running, events, state) = read(&store, &run).await?;
        self.check_run_served(&store, &state).await?;
        let usage = usage_of(store.journal(), &run).await.map_err(StoreError::from)?;
        Ok(Stored { store, run, is_running, events, state, usage })
    }
}

impl Stored {
    fn status(&self, since: u64) -> RunStatus {
        let Self { run, is_running, events, state, usage, .. } = self;
        let usage = &usage.total;
        let last_event = events.last().map_or(0, |event| event.seq);
        let new = events.iter().filter(|event| event.seq > since);
        RunStatus {
            run_id: run.to_string(),
            question: state.question.to_string(),
            state: match (*is_running, state.is_over()) {
                // A run that is resumed has its earlier end on record until its next event.
                (true, _) => Standing::Running,
                (false, true) => Standing::Ended,
                (false, false) => Standing::Open,
            },
            reason: state.stop_reason().map(|reason| reason.to_string()),
            round: state.round(),
            nodes: state
                .tree
                .nodes
                .iter()
                .map(|node| NodeStanding {
                    id: node.id.to_string(),
                    parent: node.parent.as_ref().map(ToString::to_string),
                    question: node.question.to_string(),
                    status: node.status.to_string(),
                    depends_on: node.depends_on.iter().map(ToString::to_string).collect(),
                })
                .collect(),
            calls: usage.calls,
            tokens: usage.input_tokens + usage.output_tokens,
            cost_usd: usage.cost_usd,
            seconds: state.active.as_secs_f64(),
            events: new
                .map(|event| EventEntry { number: event.seq, at: event.at.0, text: event_line(event) })
                .collect(),
            last_event,
        }
    }
}
