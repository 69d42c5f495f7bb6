//! Starting, planning and resuming runs.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::before::AskedBefore;
use super::instead::Obstacle;
use super::observer::{Observer, RunEvent, silent};
use super::request::Amounts;
use super::setup::{JobFlags, check_same_models};
use super::stored::{Asked, Origins, report_of};
use super::{AskRequest, Engine, EngineError};
use crate::base::id::RunId;
use crate::research::node::Tree;
use crate::research::plan::{PlanDraft, SavedPlan};
use crate::run::background::to_try_again;
use crate::run::budget::BudgetLimits;
use crate::run::estimate::Estimate;
use crate::run::event::{Event, FailedRun, Instead, RunRequest};
use crate::run::journal::RunRow;
use crate::run::orchestrator::{AskBack, Orchestrator};
use crate::run::store::{Store, StoreError};
use crate::run::tree::RunState;
use crate::run::usage::usage_of;

/// A question that was put to the engine.
pub(super) enum Begun {
    /// An earlier run has answered it.
    Before(Box<Asked>),
    Run(Box<BegunRun>),
}

/// A run whose first event is on record.
pub(super) struct BegunRun {
    run: Orchestrator,
    request: AskRequest,
    observer: Observer,
    stop: CancellationToken,
}

impl BegunRun {
    pub(super) fn id(&self) -> &RunId {
        self.run.id()
    }
}

/// A run that was only planned.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The run. Resuming it executes the plan.
    pub(crate) run: RunId,
    pub(crate) tree: Tree,
    /// The brief and the plan, in the form that can be saved and passed to [`AskRequest::plan`].
    pub(crate) plan: SavedPlan,
    /// Estimate of its calls, tokens, cost and time.
    pub(crate) estimate: Estimate,
}

/// How a run is resumed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResumeRequest {
    /// Amounts that are added to its limits.
    pub(crate) add: Amounts,
    /// Amounts that its limits are raised to.
    pub(crate) at_least: Amounts,
    /// Most Deep Research jobs this run may start; `None` uses the settings.
    pub(crate) max_jobs: Option<usize>,
    /// Whether to start a background job again if the outcome of its first start is unknown; both may be charged.
    pub(crate) retry_unknown: bool,
}

impl ResumeRequest {
    /// Returns the limits of a run that has `limits` now.
    fn limits(&self, limits: BudgetLimits) -> BudgetLimits {
        self.at_least.raised_to(self.add.raised_by(limits))
    }
}

impl Engine {
    /// Answers a question in a research run, or with the report of an earlier run that asked the same. If the models
    /// cannot work on it or find nothing, a run by rules answers it from the same sources, and says so.
    ///
    /// # Errors
    ///
    /// Returns an error if the index or the journal cannot be used, or neither a model nor the rules find an answer
    /// after a model failed. A run without findings, or one that reaches a limit, is not an error: the report says so.
    pub(crate) async fn ask(
        &self,
        request: AskRequest,
        ask_back: Option<AskBack<'_>>,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Asked, EngineError> {
        match Box::pin(self.begin(request, observer, stop)).await? {
            Begun::Before(asked) => Ok(*asked),
            Begun::Run(run) => Box::pin(self.carry_out(*run, ask_back)).await,
        }
    }

    /// Starts a run without carrying it out, so that its id is known at once. A question that a run has answered starts
    /// no run.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`], for everything that can be refused before anything is spent.
    pub(super) async fn begin(
        &self,
        request: AskRequest,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Begun, EngineError> {
        let request = self.served_request(request.checked()?).await?;
        let prepared = Box::pin(self.prepare(&request, None)).await?;
        if let Some(AskedBefore { report, day }) = Box::pin(self.asked_before(&request, &prepared)).await? {
            let run = report.run_id.as_deref().unwrap_or_default();
            let text = format!("asked before, in run {run} on {day}, against the same index; --fresh asks again");
            observer(RunEvent::Note { text, hint: None });
            return Ok(Begun::Before(Box::new(Asked { report, resumable: None })));
        }
        let run = Box::pin(self.start(&request, prepared, Arc::clone(&observer), stop.clone())).await?;
        Ok(Begun::Run(Box::new(BegunRun { run, request, observer, stop })))
    }

    /// Carries out a run that was begun.
    pub(super) async fn carry_out(&self, begun: BegunRun, ask_back: Option<AskBack<'_>>) -> Result<Asked, EngineError> {
        let BegunRun { run, request, observer, stop } = begun;
        let (id, by_rules) = (run.id().clone(), run.state().settings.by_rules);
        let asked = Box::pin(ask_of(run, &request, ask_back)).await;
        // Rules have nothing to fall back on.
        if by_rules { asked } else { Box::pin(self.or_by_rules(asked, id, &request, observer, stop)).await }
    }

    /// Returns the outcome of a run with models, or of a run by rules if the models found nothing and the rules do.
    async fn or_by_rules(
        &self,
        asked: Result<Asked, EngineError>,
        id: RunId,
        request: &AskRequest,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Asked, EngineError> {
        // A run that the user has stopped is not continued in another way.
        let Some(obstacle) = Obstacle::behind(&asked, request).filter(|_| !stop.is_cancelled()) else {
            return asked;
        };
        let usage = usage_of(self.store()?.journal(), &id).await.map_err(StoreError::from)?;
        let failed_run = (usage.total.calls > 0).then(|| FailedRun { id: id.clone(), usage });
        let instead = Instead { failed_run, ..obstacle.instead.clone() };
        let prepared = Box::pin(self.prepare(request, Some(instead))).await?;
        // Silent, because its answer is used only if it has one; the observer is told then.
        let run = Box::pin(self.start(request, prepared, silent(), stop)).await?;
        let answered = Box::pin(finish(run)).await?;
        if answered.report.is_refusal() {
            return asked;
        }
        obstacle.tell(&observer);
        // The run with models, which can go on once the obstacle is gone.
        let resumable = asked.map_or(Some(id), |asked| asked.resumable);
        Ok(Asked { resumable, ..answered })
    }

    /// Plans a run without executing it.
    pub(crate) async fn plan(
        &self,
        request: AskRequest,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Planned, EngineError> {
        let request = self.served_request(request.checked()?).await?;
        let prepared = Box::pin(self.prepare(&request, None)).await?;
        let mut run = Box::pin(self.start(&request, prepared, observer, stop)).await?;
        run.plan(request.plan.as_ref()).await?;
        let state = run.state();
        let models = if state.settings.by_rules { None } else { self.settings.models()? };
        Ok(Planned {
            run: run.id().clone(),
            tree: state.tree.clone(),
            plan: SavedPlan {
                brief: state.brief().cloned(),
                follows: state.settings.follows.as_ref().map(|followed| followed.run.clone()),
                draft: PlanDraft::from(&state.tree),
            },
            estimate: Estimate::of(state, models.as_ref(), run.jobs()),
        })
    }

    /// Returns the newest run that can continue. A run that another process works on is taken only if there is no
    /// other.
    ///
    /// # Errors
    ///
    /// Returns an error if all runs have ended, or the journal cannot be read.
    pub(crate) async fn resumable(&self, request: &ResumeRequest) -> Result<RunRow, EngineError> {
        resumable(&self.known_runs()?, request).await
    }

    /// Resumes a run, named by its id or a prefix of it. A run that has ended is returned unchanged unless its limits
    /// are raised.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`]. Also returns an error if another process holds the run.
    pub(crate) async fn resume(
        &self,
        run: &str,
        request: ResumeRequest,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Asked, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(Some(run)).await?;
        let (records, state) = store.read(&run).await?;
        self.check_run_served(&store, &state).await?;
        if !can_go_on(&store, &run, &state, &request).await? {
            return as_it_is(&store, run, &state).await;
        }
        let limits = request.limits(state.settings.limits);
        let is_done = state.is_over() && limits == state.settings.limits;
        let models = if state.settings.by_rules { None } else { self.models(&limits)? };
        let flags = JobFlags { max_jobs: request.max_jobs, retry_unknown: request.retry_unknown };
        let origins = Origins::of(&store, &state).await?;
        // Each process that worked on the run may have spent its share on queries, see `with_allowance`.
        let resumed = records.iter().filter(|record| matches!(record.event, Event::Resumed { .. })).count();
        let scope = &state.settings.request.scope;
        let setup = self.set_up(scope, origins, models, &limits, flags, 1 + resumed as u64).await?;
        // In a run that has ended, only its jobs can be retried.
        if is_done && setup.jobs.is_none() {
            return as_it_is(&store, run, &state).await;
        }
        check_same_models(&state, &setup)?;
        self.rule_traces(&run, &setup.collections);
        let resources = self.resources(setup, store, Arc::clone(&observer), stop.clone()).await;
        let asked = Box::pin(finish(Orchestrator::resume(run.clone(), Some(limits), resources).await?)).await;
        if state.settings.by_rules {
            return asked;
        }
        let request = AskRequest {
            run: RunRequest { allow_egress: state.settings.has_flag(), ..state.settings.request.clone() },
            follow: state.settings.follows.as_ref().map(|followed| followed.run.to_string()),
            ..AskRequest::new(state.question.clone())
        };
        Box::pin(self.or_by_rules(asked, run, &request, observer, stop)).await
    }

    /// Returns whether a language model is configured. Without one, rule-based steps are used.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that lack a model, a key, or room for a prompt.
    pub(crate) fn has_model(&self) -> Result<bool, EngineError> {
        Ok(self.settings.models()?.is_some())
    }
}

/// Clarifies and plans a run as the request says, and drives it to its end.
async fn ask_of(
    mut run: Orchestrator,
    request: &AskRequest,
    ask_back: Option<AskBack<'_>>,
) -> Result<Asked, EngineError> {
    // A plan that is given has settled what the question means.
    if let (Some(ask_back), None) = (ask_back, &request.plan) {
        run.clarify(ask_back).await?;
    }
    if request.plan.is_some() {
        run.plan(request.plan.as_ref()).await?;
    }
    finish(run).await
}

async fn resumable(store: &Store, request: &ResumeRequest) -> Result<RunRow, EngineError> {
    let newest = store.find(None).await?;
    let mut busy = None;
    for run in store.journal().runs().await.map_err(StoreError::from)?.runs {
        // A damaged run is no reason not to resume another.
        let Ok((_, state)) = store.read(&run.id).await else { continue };
        if !can_go_on(store, &run.id, &state, request).await? {
            continue;
        }
        if !store.is_busy(&run.id) {
            return Ok(run);
        }
        busy.get_or_insert(run);
    }
    busy.ok_or(EngineError::NothingToResume { newest })
}

/// Returns whether a run has not ended, its limits are raised, or jobs of it can be tried again.
async fn can_go_on(store: &Store, run: &RunId, state: &RunState, request: &ResumeRequest) -> Result<bool, EngineError> {
    if !state.is_over() || request.limits(state.settings.limits) != state.settings.limits {
        return Ok(true);
    }
    let calls = store.journal().calls_in_short(run).await.map_err(StoreError::from)?;
    Ok(!to_try_again(state, &calls, request.retry_unknown).is_empty())
}

/// Drives a run to its end. The report is made from the journal, so that a replay prints the same bytes.
async fn finish(mut run: Orchestrator) -> Result<Asked, EngineError> {
    let conducted = run.conduct().await;
    // Before an error is returned: a server is a process, which a failed run must not leave behind.
    run.end_servers().await;
    conducted?;
    let (store, id) = (run.store().clone(), run.id().clone());
    as_it_is(&store, id, run.state()).await
}

async fn as_it_is(store: &Store, run: RunId, state: &RunState) -> Result<Asked, EngineError> {
    let report = report_of(store, &run, state).await?;
    // A run in memory ends with its process.
    Ok(Asked { report, resumable: (store.is_kept() && !state.is_over()).then_some(run) })
}
