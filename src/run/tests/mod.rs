//! Whole runs, from question to report: killed at every write, stopped by every limit, under faults of every server.

mod calls;
mod crash;
mod earlier;
mod faults;
mod fold;
mod groups;
mod guardrails;
mod hangs;
mod jobs;
mod ledger;
mod outside;
mod outward;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::budget::BudgetLimits;
use super::event::RunSettings;
use super::orchestrator::{Orchestrator, Resources, RunError};
use super::phase::Phase;
use super::recall::Recall;
use super::store::Store;
use super::tree::RunState;
use super::usage::usage_of;
use crate::base::clock::{Clock, ManualClock, Moment};
use crate::base::id::RunId;
use crate::research::report::{Report, ReportInput, StopReason, UsageTable};
use crate::researcher::{Researcher, ScriptedModel, resources, settings};

/// The environment of a run, independent of the machine it runs on.
struct World {
    store: Store,
    model: Arc<ScriptedModel>,
    clock: Arc<ManualClock>,
    limits: BudgetLimits,
    summary_tokens: u64,
    stop: CancellationToken,
    /// The research memory. With one, quotes of earlier runs are shown.
    recall: Option<Recall>,
}

impl World {
    fn new(researcher: Researcher) -> Self {
        Self {
            store: Store::in_memory().unwrap(),
            model: ScriptedModel::new(researcher, Duration::ZERO),
            clock: Arc::new(ManualClock::at(Moment(1_000))),
            limits: BudgetLimits { tokens: Some(10_000_000), ..BudgetLimits::default() },
            summary_tokens: 600,
            stop: CancellationToken::new(),
            recall: None,
        }
    }

    fn resources(&self) -> Resources {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let (recall, stop) = (self.recall.clone(), self.stop.clone());
        Resources { recall, stop, ..resources(self.store.clone(), clock, self.model.models()) }
    }

    fn settings(&self) -> RunSettings {
        RunSettings { summary_tokens: self.summary_tokens, reuse: self.recall.is_some(), ..settings(self.limits) }
    }

    fn run() -> RunId {
        RunId::random(1)
    }

    async fn ask(&self) -> Result<StopReason, RunError> {
        self.started(self.settings(), self.resources()).await?.conduct().await
    }

    /// Starts a run on the question of this world.
    async fn started(&self, settings: RunSettings, resources: Resources) -> Result<Orchestrator, RunError> {
        Orchestrator::start(Self::run(), "What is known of the topics?".parse().unwrap(), settings, resources).await
    }

    async fn resume(&self, limits: Option<BudgetLimits>) -> Result<StopReason, RunError> {
        Orchestrator::resume(Self::run(), limits, self.resources()).await?.conduct().await
    }

    /// Returns the report without usage.
    async fn report(&self) -> Report {
        report_of(&self.store.read(&Self::run()).await.unwrap().1)
    }

    async fn usage(&self) -> UsageTable {
        usage_of(self.store.journal(), &Self::run()).await.unwrap()
    }
}

/// Returns the report of a finished run without usage.
fn report_of(state: &RunState) -> Report {
    let Phase::Ended(ended) = &state.phase else { panic!("the run has not ended: {state:#?}") };
    Report::of(ReportInput {
        run_id: None,
        question: &state.question,
        tree: &state.tree,
        branches: &state.branches,
        draft: &ended.draft,
        stop_reason: ended.stop_reason,
        searched: "",
        has_asked_web: false,
        usage: UsageTable::default(),
        elapsed_ms: 0,
    })
}

const TWO_ROUNDS: Researcher = Researcher { nodes: 9, more_nodes: 2 };

#[tokio::test]
async fn run_ends_in_a_report_whose_every_finding_rests_on_a_checked_quote() {
    let world = World::new(TWO_ROUNDS);
    assert_eq!(world.ask().await.unwrap(), StopReason::Complete);
    let report = world.report().await;
    assert_eq!(report.tree.nodes.len(), 12);
    assert!(!report.findings.is_empty() && !report.degraded);
    for finding in &report.findings {
        assert!(!finding.evidence.is_empty());
        assert!(finding.evidence.iter().all(|id| report.evidence.iter().any(|quote| quote.id == *id && quote.checked)));
    }
    let usage = world.usage().await;
    assert!(usage.total.calls >= 40, "{} calls", usage.total.calls);
    assert_eq!(usage.by_node["n2"].tool_calls, 1);
}
