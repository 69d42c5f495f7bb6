//! Drives a run from question to report. Every step is an event, appended to the journal before it takes effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span, info, info_span};

use super::background::{DeepResearch, Jobs, end_unsent, to_try_again};
use super::budget::{Budget, BudgetLimits, CallCost, Purpose, Spent};
use super::cache::Cache;
use super::desk::{Desk, Outward};
use super::earlier::Earlier;
use super::egress::Egress;
use super::event::{Event, InternalText, Record, RunSettings};
use super::journal::{CallRow, CallState, JournalError, LockedRun};
use super::ledger::{CallNotice, Ledger, charged_tokens};
use super::outlook::writing_reserve;
use super::phase::{Briefs, Judged, NOT_JUDGED, Phase, Stage};
use super::ranker::HitRanker;
use super::reader::PageReader;
use super::recall::Recall;
use super::scheduler::{Board, Lost, StartLimits, run_ready};
use super::servers::RunServers;
use super::shared::Shared;
use super::sources::RunSources;
pub use super::sources::{McpServers, Sources};
use super::steps::{RoundEnd, StepError, Steps, draft_by_rules};
use super::store::{Store, StoreError};
use super::tree::{FoldError, RunState};
use super::wait_limit::WaitLimit;
use super::work::Work;
use crate::base::breaker::Breaker;
use crate::base::clock::Clock;
use crate::base::id::RunId;
use crate::base::line::one_line;
use crate::base::money::dollars_text;
use crate::kb::embed::Embedder;
use crate::llm::call::{CallError, Caller, Limit};
use crate::llm::model::ModelError;
use crate::llm::roles::Models;
use crate::research::branch::{Branch, BranchStop};
use crate::research::claim::is_repeated;
use crate::research::evidence::strike;
use crate::research::extract::Pick;
use crate::research::node::{NodeId, Tree};
use crate::research::plan::{Plan, PlanDraft, SavedPlan, TreeLimits};
use crate::research::prompt::Template;
use crate::research::question::{AspectId, Brief, Mode, Question};
use crate::research::report::{Draft, Section, StopReason};
use crate::research::route::{JobWay, Route, Way, Ways, route};
use crate::research::verdict::{Verdict, by_coverage};
use crate::source::SourceError;
use crate::traces::attach;

/// Rounds in a row without new evidence after which a run gives up.
const MAX_IDLE_ROUNDS: u32 = 2;

/// How long calls in flight may continue after a stop was requested.
const GRACE: Duration = Duration::from_secs(10);

/// Progress of a run, for listeners.
pub enum RunNotice<'a> {
    /// An event was appended to the journal, with the state after it.
    Event(&'a Record, &'a RunState),
    /// A model call changed its state.
    Call(&'a CallNotice, Spent),
    /// A section of a long answer was written. The final report may still omit it.
    Written(&'a Section),
}

/// Receives the progress of a run.
pub(crate) type RunListener = Arc<dyn Fn(&RunNotice<'_>) + Send + Sync>;

pub struct Resources {
    pub store: Store,
    /// Clock for time limits and retry delays.
    pub clock: Arc<dyn Clock>,
    pub sources: Sources,
    pub picker: Arc<dyn Pick>,
    /// Embeds queries for the cache.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The research memory; `None` if runs are not stored.
    pub recall: Option<Recall>,
    /// Models by role; `None` runs the rule-based steps instead.
    pub models: Option<Models>,
    pub listener: RunListener,
    /// Cancelled when the user stops the run.
    pub stop: CancellationToken,
    /// Seed of the retry delays.
    pub seed: u64,
    /// Background jobs, if a provider is configured.
    pub jobs: Option<Arc<DeepResearch>>,
    /// Part of the cost limit that is set aside for vectors of queries, in billionths of a dollar.
    pub set_aside_nanos: u64,
    /// Where internal text of the run may be from.
    pub internal_text: InternalText,
}

impl Resources {
    /// Returns the limits without the amount that is set aside.
    fn limits(&self, state: &RunState) -> BudgetLimits {
        let limits = state.settings.limits;
        let cost_nanos = limits.cost_nanos.map(|limit| limit.saturating_sub(self.set_aside_nanos));
        BudgetLimits { cost_nanos, ..limits }
    }
}

/// A run stopped before its end. Its events are stored, and it can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("journal event does not fit the state of the run")]
    Fold(#[from] FoldError),
    /// A call that the whole run depends on failed.
    #[error("failed to {step}")]
    Call { step: &'static str, source: CallError },
    /// A source that everything depends on failed.
    #[error("failed to {step}")]
    Source { step: &'static str, source: StepError },
    #[error("plan cannot be used: {complaints}")]
    Plan { complaints: String },
    /// A run that began with models is resumed without them, or the other way round.
    #[error("run was started {} a model", if *by_rules { "without" } else { "with" })]
    ModelsChanged { by_rules: bool },
}

impl RunError {
    /// Returns the class of this error, for traces.
    fn class(&self) -> &'static str {
        match self {
            Self::Journal(_) | Self::Store(_) => "journal",
            Self::Fold(_) => "bug",
            Self::Call { source, .. } => source.class(),
            Self::Source { source, .. } => source.class(),
            Self::Plan { .. } => "plan_refused",
            Self::ModelsChanged { .. } => "other_models",
        }
    }

    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Journal(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::ModelsChanged { by_rules: false } => Some("configure a model, as it was when the run began".into()),
            Self::ModelsChanged { by_rules: true } => Some("add `--offline` to continue without a model".into()),
            Self::Plan { .. } => Some("`dr plan --save FILE` writes a plan that can be used".into()),
            Self::Call { source: CallError::Model(ModelError::Authentication), .. } => {
                Some("check the key; `dr doctor --model` tests it".into())
            }
            Self::Call { source: CallError::Journal { hint: Some(hint), .. }, .. } => Some(hint.clone()),
            Self::Call { .. } | Self::Source { .. } => {
                Some("finished work is stored; `dr resume` continues the run".into())
            }
            Self::Fold(_) => None,
        }
    }
}

/// A run in progress.
pub struct Orchestrator {
    locked: LockedRun,
    resources: Resources,
    state: RunState,
    steps: Arc<Steps>,
    budget: Budget,
    /// Set if the last round has no verdict.
    unjudged: Option<Unjudged>,
    grace: GracePeriod,
    /// Parent of all other spans of the run.
    span: Span,
}

/// A round for whose verdict a limit leaves no room.
struct Unjudged {
    /// Its draft; `None` if the limit did not pay for both draft and verdict. Reused as the final draft: prompts cut to
    /// other limits would not be on record, and the draft would be paid for twice.
    draft: Option<Box<Draft>>,
}

/// Shows the user a question and returns the answer; `None` if there is none.
pub(crate) type AskBack<'a> = &'a (dyn Fn(String) -> BoxFuture<'static, Option<String>> + Sync);

/// Task that cancels calls in flight after a grace period once the run is stopped. It ends with the run.
struct GracePeriod {
    task: tokio::task::JoinHandle<()>,
    /// Cancelled after the grace period.
    closed: CancellationToken,
}

impl GracePeriod {
    fn after(stop: CancellationToken, clock: Arc<dyn Clock>) -> Self {
        let closed = CancellationToken::new();
        let over = closed.clone();
        let task = tokio::spawn(async move {
            stop.cancelled().await;
            // Their worst case is charged either way. A reply that arrives in time is stored, and a resumed run does
            // not buy it.
            clock.deadline(GRACE).await;
            over.cancel();
        });
        Self { task, closed }
    }
}

impl Drop for GracePeriod {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Orchestrator {
    /// Starts a run by recording its first event.
    pub async fn start(
        run: RunId,
        question: Question,
        settings: RunSettings,
        resources: Resources,
    ) -> Result<Self, RunError> {
        let locked = resources.store.lock(&run)?;
        let event = Event::Started { question: question.clone(), settings: Box::new(settings) };
        let record = Record { seq: 1, at: resources.clock.now(), event };
        // Folded before it is stored, so that no run is recorded that cannot be read.
        let state = RunState::of(std::slice::from_ref(&record))?;
        // A run that is not stored leaves no lock file, or it would count as one that the journal has lost.
        locked.create(question.as_str(), &record).await.inspect_err(|_| resources.store.forget(locked.id()))?;
        (resources.listener)(&RunNotice::Event(&record, &state));
        let span = span_of(&run);
        Ok(Self::of(locked, resources, state, &[], span))
    }

    /// Resumes a run from the end of its journal, under its own limits or new ones.
    ///
    /// # Errors
    ///
    /// Returns an error if another process holds the run, or it was started with a model and none is configured now.
    pub(crate) async fn resume(
        run: RunId,
        limits: Option<BudgetLimits>,
        resources: Resources,
    ) -> Result<Self, RunError> {
        let locked = resources.store.lock(&run)?;
        let (_, mut state) = resources.store.read(&run).await?;
        let by_rules = state.settings.by_rules;
        if by_rules != resources.models.is_none() {
            return Err(RunError::ModelsChanged { by_rules });
        }
        // Before the calls are read: a job that was never sent is then neither charged nor waited for.
        end_unsent(&locked, resources.clock.now()).await?;
        // Without their replies, which are read one by one as their requests are made again.
        let calls = locked.journal().calls_in_short(&run).await?;
        let limits = limits.unwrap_or(state.settings.limits);
        let is_open = resources.internal_text.may_leave(state.settings.has_flag());
        let at = resources.clock.now().max(state.last);
        let jobs = resources.jobs.as_ref();
        let again = jobs.map_or_else(Vec::new, |jobs| to_try_again(&state, &calls, jobs.retry_unknown));
        let record = Record { seq: state.next_seq(), at, event: Event::Resumed { limits, again, is_open } };
        locked.append(&record).await?;
        state.apply(&record)?;
        (resources.listener)(&RunNotice::Event(&record, &state));
        let read = locked.journal().lookup_results(&run).await?;
        let span = span_of(&run);
        // At once: when the span starts, `traces::identity` reads from it whether the run continues an earlier trace.
        span.record("resumed", true);
        let run = Self::of(locked, resources, state, &calls, span);
        run.plan_ahead();
        // The tripwire is not stored: it learns again the texts that the run had read.
        run.steps.sources.shared.egress.recall(&read);
        Ok(run)
    }

    fn of(locked: LockedRun, resources: Resources, state: RunState, calls: &[CallRow], span: Span) -> Self {
        span.in_scope(|| {
            attach::flag("by_rules", state.settings.by_rules);
            attach::text("question", || state.question.to_string());
        });
        let budget = budget(&state, calls, &resources);
        let grace = GracePeriod::after(resources.stop.clone(), Arc::clone(&resources.clock));
        let clock = Arc::clone(&resources.clock);
        let cache = Cache::new(locked.clone(), state.started, Arc::clone(&clock), resources.embedder.clone());
        let egress = Egress::new(locked.clone(), clock, state.settings.is_open);
        egress.learn(&state);
        let (listener, spent) = (Arc::clone(&resources.listener), budget.clone());
        let ledger = Arc::new(Ledger::new(
            locked.clone(),
            budget.clone(),
            Arc::clone(&resources.clock),
            resources.stop.clone(),
            Arc::new(move |notice| listener(&RunNotice::Call(notice, spent.spent()))),
            resources.seed,
        ));
        let desk = resources
            .models
            .clone()
            .map(|models| Arc::new(Desk::open(Arc::clone(&ledger), models, grace.closed.clone(), calls)));
        let research = resources.jobs.clone();
        // A mixed node may ask for another job than before.
        let is_open = |id: &NodeId| {
            let is_settled = state.tree.get(id).is_none_or(|node| node.status.is_settled());
            !is_settled && state.routes.get(id) == Some(&Route::DeepResearch)
        };
        let is_apart = state.settings.keeps_public_apart;
        let jobs = research.map(|research| Jobs::open(Arc::clone(&ledger), research, calls, is_apart, is_open));
        let jobs = jobs.map(Arc::new);
        let wait_limit = WaitLimit { budget: budget.clone(), stop: resources.stop.clone() };
        let day = state.started.date().unwrap_or_default();
        let shared = Shared { cache, egress, wait_limit, breaker: Arc::new(Breaker::of_run("source `web`")) };
        let ranker = state.settings.rerank.zip(desk.clone()).zip(resources.models.as_ref());
        let ranker = ranker.map(|((settings, desk), models)| HitRanker {
            caller: desk,
            settings,
            model: models.role(Template::Rerank.role()).model.name().to_owned(),
            breaker: Arc::new(Breaker::of_run("the language model")),
        });
        let servers = &resources.sources.servers;
        let sources = RunSources {
            // Only a model can choose a tool and word its arguments.
            internal_servers: RunServers::new(&servers.internal, &shared, &day).filter(|_| desk.is_some()),
            public_servers: RunServers::new(&servers.public, &shared, &day).filter(|_| desk.is_some()),
            sources: resources.sources.clone(),
            shared,
            reading: PageReader {
                caller: desk.clone().map(|desk| Arc::new(Outward(desk)) as Arc<dyn Caller>),
                embedder: resources.embedder.clone(),
            },
            internal_version: state.settings.source_version.clone(),
            ranker,
            day,
        };
        let steps = Arc::new(Steps {
            run: locked.id().clone(),
            desk,
            jobs,
            sources,
            picker: Arc::clone(&resources.picker),
            skim: OnceCell::new(),
            recall: resources.recall.clone(),
            earlier: resources
                .recall
                .clone()
                .filter(|_| state.settings.reuse)
                .map(|recall| Earlier { recall, store: resources.store.clone() }),
            on_section: {
                let listener = Arc::clone(&resources.listener);
                Arc::new(move |section| listener(&RunNotice::Written(section)))
            },
        });
        Self { locked, resources, state, steps, budget, unjudged: None, grace, span }
    }

    pub(crate) fn id(&self) -> &RunId {
        self.locked.id()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.resources.store
    }

    pub(crate) async fn end_servers(&self) {
        self.resources.sources.servers.end().await;
    }

    /// Returns the background jobs, if a provider is configured.
    pub(crate) fn jobs(&self) -> Option<&DeepResearch> {
        self.resources.jobs.as_deref()
    }

    pub(crate) fn state(&self) -> &RunState {
        &self.state
    }

    /// Asks the user for clarification if the question is ambiguous in a way that matters. A stopped run does not wait for
    /// the answer.
    pub(crate) async fn clarify(&mut self, ask: AskBack<'_>) -> Result<(), RunError> {
        if self.state.phase != Phase::ASKED || self.state.clarification.is_some() {
            return Ok(());
        }
        let asked = match self.steps.clarify(&self.state).instrument(self.span.clone()).await {
            // The run ends for the same reason right after this, and reports it.
            Err(StepError::Call(CallError::Cancelled | CallError::Limit(_))) => None,
            asked => asked.map_err(|error| error.during("check whether the question needs clarification"))?,
        };
        let Some(question) = asked.map(|clarification| clarification.question) else { return Ok(()) };
        let from = self.resources.clock.instant();
        let answer = tokio::select! {
            answer = ask(question.clone()) => answer,
            () = self.resources.stop.cancelled() => None,
        };
        self.budget.waited(self.resources.clock.instant().duration_since(from));
        match answer {
            Some(answer) => self.commit(Event::Clarified { question, answer }).await,
            None => Ok(()),
        }
    }

    /// Makes the brief and the first plan, or uses `plan`, and stops there.
    ///
    /// # Errors
    ///
    /// Returns an error if a model cannot be reached, or the given plan is invalid.
    pub(crate) async fn plan(&mut self, plan: Option<&SavedPlan>) -> Result<(), RunError> {
        let span = self.span.clone();
        self.brief_and_plan(plan).instrument(span).await
    }

    async fn brief_and_plan(&mut self, plan: Option<&SavedPlan>) -> Result<(), RunError> {
        let limits = self.state.settings.tree;
        if self.state.phase == Phase::ASKED {
            let brief = match plan {
                // A saved plan refers to the aspects of its brief, so it brings that brief along.
                Some(SavedPlan { brief: Some(brief), draft, .. }) if brief.question == self.state.question => {
                    check_plan(draft, &self.state.tree, brief, limits)?;
                    brief.clone()
                }
                Some(_) | None => self.steps.brief(&self.state).await.map_err(|error| error.during("make a brief"))?,
            };
            self.brief(brief).await?;
        }
        if let Phase::Open(Stage::Briefed(Briefs { brief, .. })) = &self.state.phase {
            let plan = match plan {
                Some(plan) => check_plan(&plan.draft, &self.state.tree, brief, limits)?,
                None => self.steps.plan(&self.state, brief).await.map_err(|error| error.during("make a plan"))?,
            };
            self.commit(Event::Planned { round: 1, plan }).await?;
        }
        Ok(())
    }

    /// Commits a brief, and a second one for the web if the brief itself may not leave.
    async fn brief(&mut self, brief: Brief) -> Result<(), RunError> {
        // Before the event, which holds both: a run stopped in between would have no brief that may leave.
        let outward = self.steps.outward_brief(&self.state).await;
        let outward = outward.map_err(|error| error.during("make a brief"))?.map(Box::new);
        self.commit(Event::Briefed { brief, outward }).await
    }

    /// Runs rounds of research until the answer is complete or a limit is reached, then writes the report.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal fails, or a model fails before anything was found. Reaching a limit is not an error.
    pub async fn conduct(&mut self) -> Result<StopReason, RunError> {
        let span = self.span.clone();
        let ended = self.conducted().instrument(span.clone()).await;
        span.in_scope(|| self.attach_end(&ended));
        ended
    }

    /// Attaches the end and the cost so far to the span of the run, earlier processes included.
    fn attach_end(&self, ended: &Result<StopReason, RunError>) {
        let spent = self.budget.spent();
        attach::count("rounds", self.state.rounds_ended());
        attach::count("nodes", self.state.tree.nodes.len());
        attach::count("tokens", spent.total().tokens);
        attach::dollars("cost", spent.total().cost_nanos);
        match ended {
            Ok(stop) => attach::word("stop", stop.to_string()),
            Err(error) => attach::word("error", error.class()),
        }
    }

    async fn conducted(&mut self) -> Result<StopReason, RunError> {
        let stop = self.rounds().await?;
        let (stop, draft) = self.final_draft(stop).await?;
        self.commit(Event::Ended { stop_reason: stop, draft }).await?;
        Ok(stop)
    }

    /// A limit that a step reaches, or a stop during it, ends the rounds without an error.
    async fn rounds(&mut self) -> Result<StopReason, RunError> {
        match self.rounds_to_the_end().await {
            Err(RunError::Call { source: CallError::Limit(limit), .. }) => Ok(stop_of(limit)),
            Err(RunError::Call { source: CallError::Cancelled, .. }) => Ok(StopReason::Cancelled),
            ended => ended,
        }
    }

    async fn rounds_to_the_end(&mut self) -> Result<StopReason, RunError> {
        self.plan(None).await?;
        loop {
            let round = match &self.state.phase {
                Phase::Open(Stage::Planned(rounds)) => debug_span!("round", number = rounds.number),
                Phase::Open(Stage::Asked | Stage::Briefed(_) | Stage::Judged(_)) | Phase::Ended(_) => Span::none(),
            };
            // A resumed run may be past the verdict of its round, which is then neither researched nor judged again.
            if let Phase::Open(Stage::Planned(_)) = self.state.phase {
                self.research().instrument(round.clone()).await?;
                if let Some(stop) = self.interrupted().filter(|stop| self.must_stop(*stop)) {
                    return Ok(stop);
                }
            }
            if let Some(limit) = self.end_round().instrument(round).await? {
                return Ok(stop_of(limit));
            }
            let Phase::Open(Stage::Judged(judged)) = &self.state.phase else { return Ok(self.nothing_more()) };
            if let Some(stop) = self.verdict(judged) {
                return Ok(stop);
            }
            // A round that no worker can begin would cost its planning for nothing.
            if let Some(limit) = self.steps.desk.as_ref().and_then(|desk| desk.limit_ahead()) {
                return Ok(stop_of(limit));
            }
            let plan = self.steps.replan(&self.state, judged).await;
            let plan = plan.map_err(|error| error.during("plan another round"))?;
            if plan.nodes.is_empty() {
                return Ok(self.nothing_more());
            }
            let round = judged.rounds.number + 1;
            self.commit(Event::Planned { round, plan }).await?;
        }
    }

    /// Executes nodes until none is ready.
    async fn research(&mut self) -> Result<(), RunError> {
        let (tight, over) = (self.steps.desk.clone(), self.budget.clone());
        let limits = StartLimits {
            max_parallel: self.state.settings.parallel,
            is_tight: &move || tight.as_ref().is_some_and(|desk| desk.is_tight_now()),
            is_over: &move || over.reached(Purpose::Research).is_some(),
            stop: self.resources.stop.clone(),
            abort: self.grace.closed.clone(),
        };
        let steps = Arc::clone(&self.steps);
        let worker = |work: Work| {
            let steps = Arc::clone(&steps);
            async move {
                let branch = steps.look_into(work).await.inspect_err(|error| attach::word("error", error.class()))?;
                Span::current().record("findings", branch.report.findings.len());
                Span::current().record("quotes", branch.evidence.len());
                Ok(branch)
            }
        };
        run_ready(self, worker, &limits).await
    }

    /// Returns the ways to the web that a node can take. A node that has or holds a job takes no other.
    fn ways(&self, node: &NodeId) -> Ways {
        let ways = self.steps.ways(&self.state);
        let holds_one = self.state.jobs().any(|(known, is_running)| known == node && is_running);
        let has_one = self.steps.jobs.as_ref().is_some_and(|jobs| holds_one || jobs.has(node));
        // Even if other ways are open by now: the job may have been started, and would be paid for in vain.
        if has_one { Ways { job: JobWay::Open, web: false, ..ways } } else { ways }
    }

    /// Judges the current round. Returns the limit that leaves no room for a verdict, if one does: the run then ends
    /// without one, and is judged when it is resumed under a higher limit.
    async fn end_round(&mut self) -> Result<Option<Limit>, RunError> {
        let Phase::Open(Stage::Planned(rounds)) = &self.state.phase else { return Ok(None) };
        let round = rounds.number;
        let ended = self.steps.end_round(&self.state, rounds).await.map_err(|error| error.during("judge a round"))?;
        let (memory, draft, verdict) = match ended {
            RoundEnd::Judged(judged) => *judged,
            RoundEnd::Unjudged(limit, draft) => {
                self.unjudged = Some(Unjudged { draft });
                return Ok(Some(limit));
            }
        };
        self.commit(Event::RoundEnded { round, memory, draft, verdict }).await?;
        Ok(None)
    }

    /// Returns whether the round ends without a draft and a verdict. If all nodes are settled, a limit on money or
    /// tokens leaves the reserve that pays for both.
    fn must_stop(&self, stop: StopReason) -> bool {
        let has_open = self.state.tree.workers().any(|node| !node.status.is_settled());
        has_open || !matches!(stop, StopReason::BudgetExceeded | StopReason::TokensExceeded)
    }

    /// Returns why no new work may start, if so.
    fn interrupted(&self) -> Option<StopReason> {
        if self.resources.stop.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        self.budget.reached(Purpose::Research).map(stop_of)
    }

    /// Returns why the run ends after this round; `None` if another one is due.
    fn verdict(&self, Judged { rounds, verdict, .. }: &Judged) -> Option<StopReason> {
        let state = &self.state;
        let is_quick = rounds.briefs.brief.mode == Mode::Quick;
        // First: a complete answer counts as complete, even if a limit was reached in the same round.
        if verdict.is_enough() {
            Some(StopReason::Complete)
        } else if let Some(stop) = self.interrupted() {
            Some(stop)
        } else if is_quick || !verdict.recommend_more_iterations {
            Some(self.nothing_more())
        } else if state.settings.limits.rounds.is_some_and(|most| state.rounds_ended() >= most) {
            Some(StopReason::IterationsExceeded)
        } else if state.folded.idle_rounds >= MAX_IDLE_ROUNDS {
            Some(if state.has_evidence() { StopReason::NoProgress } else { StopReason::NoEvidence })
        } else {
            None
        }
    }

    fn nothing_more(&self) -> StopReason {
        if self.state.has_evidence() { StopReason::NoMoreTasks } else { StopReason::NoEvidence }
    }

    /// Writes the final answer, which may use the reserve for writing, and returns why the run has ended.
    async fn final_draft(&mut self, stop: StopReason) -> Result<(StopReason, Draft), RunError> {
        let unjudged = self.unjudged.take();
        let coverage = unjudged.as_ref().and_then(|_| self.coverage());
        // The refused call was then a draft or a verdict, so nothing was held back from it.
        let purpose = if unjudged.is_some() { Purpose::Writing } else { Purpose::Research };
        // Time and rounds are not spent by calls, so there are no amounts to name.
        let limit = stop.limit().filter(|limit| matches!(limit, Limit::Cost | Limit::Tokens));
        // Worded before anything is written: it names the amounts spent when the limit was reached.
        let reached = limit.and_then(|limit| self.budget.reached_in_words(limit, purpose));
        if let Some(desk) = &self.steps.desk {
            desk.begin_writing();
        }
        let mut draft = self.written(stop, unjudged.and_then(|round| round.draft)).await?;
        // A report that is written and covers every aspect was not cut short. It only lacks a verdict, and says so.
        if let (Some(limit), Some(coverage)) = (limit, &coverage)
            && coverage.is_enough()
            && !draft.is_makeshift
            && self.was_researched_in_full()
        {
            draft.is_makeshift = true;
            draft.limitations.push(self.not_judged(limit));
            return Ok((StopReason::Complete, draft));
        }
        draft.limitations.extend(reached);
        self.hold_to_verdict(&mut draft, coverage.as_ref());
        Ok((stop, draft))
    }

    /// Says that a limit leaves no room for a verdict, and how to get one.
    fn not_judged(&self, limit: Limit) -> String {
        let said = format!("{NOT_JUDGED}: the limit on {limit} leaves no room for a verdict");
        let raised = limit.raised_by();
        // A run in memory ends with its process.
        if self.store().is_kept() { format!("{said}; `dr resume {} {raised}` gets one", self.id()) } else { said }
    }

    /// Returns the verdict by the aspects that findings cover.
    fn coverage(&self) -> Option<Verdict> {
        Some(by_coverage(self.state.brief()?, &self.state.tree, &self.state.branches))
    }

    /// Returns whether no limit has cut a node short or had its worker wrap up, and no judge has asked for more. Otherwise
    /// the aspects that findings cover do not tell whether the answer is complete.
    fn was_researched_in_full(&self) -> bool {
        let is_cut = |branch: &Branch| branch.report.stop_reason == BranchStop::BudgetExceeded;
        let has_hurried = self.steps.desk.as_ref().is_some_and(|desk| desk.has_hurried());
        self.state.phase.stage().verdicts().is_empty() && !has_hurried && !self.state.branches.values().any(is_cut)
    }

    /// Adds what the judge finds not fully answered or thin, unless the draft says so, and lowers the confidence of the
    /// writer to that of the judge. `coverage` is the verdict by rules if the last round was not judged: aspects that
    /// it finds covered are no longer missing.
    fn hold_to_verdict(&self, draft: &mut Draft, coverage: Option<&Verdict>) {
        let verdicts = self.state.phase.stage().verdicts();
        let verdict = verdicts.last().copied().or(coverage).filter(|_| self.steps.desk.is_some());
        let (Some(verdict), Some(brief)) = (verdict, self.state.brief()) else { return };
        let is_missing = |id: &&AspectId| coverage.is_none_or(|coverage| coverage.missing_aspects.contains(id));
        let missing = verdict.missing_aspects.iter().filter(is_missing).filter_map(|id| brief.aspect(id));
        let missing: Vec<_> = missing.map(|aspect| strike(&one_line(&aspect.text), &|_| false, "").0).collect();
        draft.admit(&self.state.question, &missing);
        // Rules see neither thin evidence nor doubts.
        if verdict.is_by_rules {
            return;
        }
        let areas = verdict.weak_evidence_areas.iter().map(|area| strike(area, &|_| false, "").0);
        let is_admitted =
            |area: &str| [&draft.limitations, &draft.open_questions].iter().any(|said| is_repeated(area, said));
        let areas: Vec<_> = areas.filter(|area| !is_admitted(area)).collect();
        if !verdict.is_complete && !areas.is_empty() {
            draft.limitations.push(format!("thin evidence: {}", areas.join("; ")));
        }
        draft.confidence = draft.confidence.min(verdict.overall_confidence);
    }

    async fn written(&self, stop: StopReason, unjudged: Option<Box<Draft>>) -> Result<Draft, RunError> {
        match self.steps.final_draft(&self.state, stop, unjudged.map(|draft| *draft)).await {
            Ok(draft) => Ok(draft),
            Err(error @ StepError::Call(CallError::Journal { .. })) => Err(error.during("write the report")),
            // If the writer fails, the report still lists all findings.
            Err(error) => {
                let mut draft = draft_by_rules(&self.state);
                draft.made_do("the answer was assembled", &error);
                Ok(draft)
            }
        }
    }

    /// Appends an event to the journal, and only then applies it.
    async fn commit(&mut self, event: Event) -> Result<(), RunError> {
        // The clock may have been set back; times of events never decrease.
        let at = self.resources.clock.now().max(self.state.last);
        let record = Record { seq: self.state.next_seq(), at, event };
        self.locked.append(&record).await?;
        self.state.apply(&record)?;
        self.log(&record);
        self.watch(&record.event);
        // After every event: each changes the work that is due, and the first plan changes the limits.
        self.plan_ahead();
        (self.resources.listener)(&RunNotice::Event(&record, &self.state));
        Ok(())
    }

    /// Logs an event with ids and counts.
    fn log(&self, record: &Record) {
        let spent = self.budget.spent().total();
        let (route, stop) = match &record.event {
            Event::NodeStarted { route, .. } => (Some(*route), None),
            Event::Ended { stop_reason, .. } => (None, Some(stop_reason.to_string())),
            _ => (None, None),
        };
        info!(
            seq = record.seq,
            node = record.event.node().map(tracing::field::display),
            route = route.map(tracing::field::debug),
            stop,
            nodes = self.state.tree.nodes.len(),
            tokens = spent.tokens,
            dollars = %dollars_text(spent.cost_nanos),
            "{}",
            record.event.name()
        );
    }

    /// Applies the limits of the plan, and sets aside amounts for the rest of the run.
    fn plan_ahead(&self) {
        self.budget.limit(self.resources.limits(&self.state));
        if let Some(desk) = &self.steps.desk {
            desk.plan_ahead(&self.state);
        }
    }

    /// Adds the texts of an event to the tripwire.
    fn watch(&self, event: &Event) {
        let egress = &self.steps.sources.shared.egress;
        match event {
            Event::Clarified { .. } | Event::Briefed { .. } | Event::Planned { .. } | Event::RoundEnded { .. } => {
                egress.learn(&self.state);
            }
            Event::NodeFinished { node, .. } => egress.learn_branch(&self.state, node),
            Event::Started { .. }
            | Event::Resumed { .. }
            | Event::NodeStarted { .. }
            | Event::NodePaused { .. }
            | Event::NodeFailed { .. }
            | Event::NodeBlocked { .. }
            | Event::Ended { .. } => {}
        }
    }
}

/// Returns the span of a run. What it took is recorded at its end.
fn span_of(run: &RunId) -> Span {
    info_span!("run", id = %run, resumed = Empty, rounds = Empty, nodes = Empty, tokens = Empty, dollars = Empty)
}

impl Board for Orchestrator {
    type Work = Work;
    type Output = Result<Branch, StepError>;
    type Error = RunError;

    fn tree(&self) -> &Tree {
        &self.state.tree
    }

    fn prepare(&self, id: &NodeId) -> Result<Work, String> {
        let (Phase::Open(Stage::Planned(rounds)), Some(node)) = (&self.state.phase, self.state.tree.get(id)) else {
            return Err("it is not planned".to_owned());
        };
        let way = route(node, self.ways(id)).map_err(|no_way| no_way.to_string())?;
        Ok(Work::of(&self.state, &rounds.briefs, node, way))
    }

    async fn start(&mut self, id: &NodeId, work: &Work) -> Result<(), RunError> {
        let Way { route, why, .. } = work.way;
        self.commit(Event::NodeStarted { node: id.clone(), route, why: why.to_owned() }).await
    }

    async fn finish(&mut self, id: &NodeId, outcome: Result<Self::Output, Lost>) -> Result<(), RunError> {
        let node = id.clone();
        let event = match outcome {
            Ok(Ok(branch)) => Event::NodeFinished { node, branch: Box::new(branch) },
            // Ends the run: the results of other nodes could not be stored either.
            Ok(Err(StepError::Call(error @ CallError::Journal { .. }))) => {
                return Err(StepError::Call(error).during("work on a node"));
            }
            // The node becomes pending again, until a limit is raised or the run is resumed.
            Ok(Err(StepError::Call(CallError::Limit(limit)))) => {
                // Ends research: the node is pending again, and would otherwise be started and refused without end.
                self.budget.refuse(limit);
                Event::NodePaused { node }
            }
            Ok(Err(StepError::Call(CallError::Cancelled))) | Err(Lost::Cancelled) => Event::NodePaused { node },
            Ok(Err(error @ (StepError::NoWay(_) | StepError::Source(SourceError::Withheld { .. })))) => {
                Event::NodeBlocked { node, reason: error.to_string() }
            }
            Ok(Err(error)) => Event::NodeFailed { node, error: error.to_string() },
            Err(error @ Lost::Panicked { .. }) => Event::NodeFailed { node, error: error.to_string() },
        };
        self.commit(event).await
    }

    async fn block(&mut self, id: &NodeId, reason: String) -> Result<(), RunError> {
        self.commit(Event::NodeBlocked { node: id.clone(), reason }).await
    }
}

/// Validates a plan from a file.
///
/// # Errors
///
/// Returns all problems of the plan.
pub(crate) fn check_plan(draft: &PlanDraft, tree: &Tree, brief: &Brief, limits: TreeLimits) -> Result<Plan, RunError> {
    let refused = |complaints: Vec<String>| RunError::Plan { complaints: complaints.join("; ") };
    draft.check(tree, brief, limits, 1, &|_| None).map_err(refused)
}

/// Sets up the budget of a run, with the amounts already spent according to its journal.
fn budget(state: &RunState, calls: &[CallRow], resources: &Resources) -> Budget {
    let limits = resources.limits(state);
    let reserve = resources.models.as_ref().map(|models| writing_reserve(models, &limits)).unwrap_or_default();
    let mut spent = Spent { rounds: state.rounds_ended(), active: state.active, ..Spent::default() };
    // A job in flight stays charged at its worst case until it is polled again.
    for call in calls.iter().filter(|call| call.state() != CallState::Failed) {
        spent.add(call.purpose, CallCost { cost_nanos: call.charged_cost(), tokens: charged_tokens(call) });
    }
    Budget::resumed(limits, reserve, spent, Arc::clone(&resources.clock))
}

impl StepError {
    /// Adds the step that failed.
    fn during(self, step: &'static str) -> RunError {
        let source = match self {
            Self::Call(source) => source,
            Self::Invalid(complaint) => CallError::Model(ModelError::InvalidOutput { complaint }),
            source @ (Self::Source(_) | Self::NoWay(_)) => return RunError::Source { step, source },
        };
        RunError::Call { step, source }
    }
}

fn stop_of(limit: Limit) -> StopReason {
    match limit {
        Limit::Cost => StopReason::BudgetExceeded,
        Limit::Tokens => StopReason::TokensExceeded,
        Limit::Time => StopReason::TimeExceeded,
        Limit::Rounds => StopReason::IterationsExceeded,
    }
}
