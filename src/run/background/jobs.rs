//! The background jobs of a run: each is started once. A resumed run reattaches to a job in flight.
//!
//! ```text
//! on record? ─▶ its report
//!     │ no           in flight, or its report cannot be read? ─▶ polled under its id, which was stored before the first poll
//! open a ticket for the cap ─▶ record what leaves ─▶ start (one request) ─▶ store its id ─▶ poll … ─▶ store its reply ─▶ settle
//! ```

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::DeepResearch;
use super::job::{Job, JobState};
use super::poll::{Poller, patience};
use super::provider::JobError;
use super::report::JobReport;
use super::request::JobRequest;
use crate::base::clock::Moment;
use crate::base::id::{ContentHash, RunId};
use crate::base::mutex::locked;
use crate::base::outbound::Outbound;
use crate::base::retry::{Again, Failure, Policy};
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey, Limit};
use crate::llm::model::ModelError;
use crate::research::node::{Node, NodeId};
use crate::research::outward::OutwardTask;
use crate::research::worker::WorkError;
use crate::run::budget::{CallCost, Purpose};
use crate::run::cache::{Cache, normalised};
use crate::run::egress::{Egress, OutgoingText};
use crate::run::journal::{
    Call, CallKind, CallRow, CallState, EgressKind, EgressRow, JournalError, LockedRun, Lookup, LookupTerms,
    LookupTool, StartedJob,
};
use crate::run::ledger::{Ledger, LeftCall, Reserving, Ticket, end_left};
use crate::run::tree::RunState;
use crate::source::{Label, SourceError};

pub(crate) struct JobTask<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) task: &'a OutwardTask,
    pub(crate) instructions: Outbound,
    /// All the user asked for. The same words mean the same only within that.
    pub(crate) asked: &'a str,
    /// The day the run began: a report serves other runs on that day.
    pub(crate) day: &'a str,
}

impl JobTask<'_> {
    /// Returns the lookup that finds its job among all that were started. `version` says what their reports depend on.
    /// A report on text that was allowed to leave does not serve a run in which it may not.
    fn lookup(&self, version: String, egress: &Egress, attempt: usize) -> Lookup {
        let aspects = self.task.aspects().iter().map(|aspect| normalised(aspect.text.as_str()));
        let words: Vec<_> = [normalised(self.task.question().as_str())].into_iter().chain(aspects).collect();
        Lookup {
            node: self.node.clone(),
            tool: LookupTool::DeepResearch,
            query: format!("{}\n{}", words.join("\n"), self.asked),
            // Not that of the search engine, which a job does not use.
            scope: "the web".to_owned(),
            label: Label::Public,
            version,
            terms: LookupTerms {
                day: Some(self.day.to_owned()),
                is_open: Some(egress.is_open()),
                attempt,
                ..LookupTerms::default()
            },
        }
    }
}

/// Why a job could not be started. `R` is the error of releasing its instructions.
#[derive(Debug, thiserror::Error)]
enum StartError<R> {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Call(#[from] CallError),
    /// The instructions may not leave, or this could not be recorded.
    #[error("{0}")]
    Release(R),
}

impl<R> Failure for StartError<R> {
    fn again(&self) -> Again {
        match self {
            Self::Job(error) => error.again(),
            Self::Call(error) => error.again(),
            Self::Release(_) => Again::Never,
        }
    }
}

/// A job about to be started: its node, its instructions, and the call that records them as sent.
struct Starting<'a, R> {
    node: &'a NodeId,
    instructions: &'a Outbound,
    release: R,
    /// Set once the instructions are recorded, which a second attempt does not repeat.
    released: OnceCell<()>,
}

/// A report on record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finished {
    // Private to this folder: the pages that a report cites may be fetched.
    pub(super) run: RunId,
    pub(super) report: JobReport,
    /// Whether the job was started without reasoning summaries, because the account may not use them.
    pub(super) without_summaries: bool,
    /// Whether the job was given the instructions it is read for. A job in flight of a resumed mixed node may not be.
    pub(super) was_told: bool,
    /// Whether its instructions may have had internal text, which may no longer leave.
    pub(super) may_know_internal: bool,
}

impl Finished {
    pub(crate) fn report(&self) -> &JobReport {
        &self.report
    }

    pub(crate) fn may_know_internal(&self) -> bool {
        self.may_know_internal
    }

    /// Returns whether its report may have internal text: of a server of the user's, or of its instructions.
    pub(crate) fn saw_internal(&self) -> bool {
        self.may_know_internal || self.report.had_server
    }

    #[cfg(test)]
    pub(crate) fn was_told(&self) -> bool {
        self.was_told
    }

    #[cfg(test)]
    pub(crate) fn of(report: JobReport, may_know_internal: bool) -> Self {
        Self {
            run: RunId::random(1),
            report,
            without_summaries: false,
            was_told: !may_know_internal,
            may_know_internal,
        }
    }

    /// Returns the notes on this job for the report of `run`.
    pub(crate) fn notes(&self, run: &RunId, question: &str) -> Vec<String> {
        let before =
            format!("`{question}` was answered by Deep Research before, in run {}: nothing was sent", self.run);
        let without = "the account may not have summaries of the reasoning, so the job was started without them";
        let notes = [(&self.run != run).then_some(before), self.without_summaries.then(|| without.to_owned())];
        notes.into_iter().flatten().collect()
    }
}

/// The background jobs of one run.
pub(crate) struct Jobs {
    pub(crate) ledger: Arc<Ledger>,
    /// The provider, and the limits of a job.
    pub(crate) research: Arc<DeepResearch>,
    model: OnceCell<String>,
    /// See `RunSettings::keeps_public_apart`.
    keeps_public_apart: bool,
    /// Nodes for which a job was or may have been started.
    with_job: Mutex<BTreeSet<NodeId>>,
    /// Lost calls whose nodes are open: their jobs were cancelled with the run.
    cancelled: BTreeSet<i64>,
    /// Whether the provider has refused summaries to the account. Later jobs omit them to save a refused request.
    without_summaries: AtomicBool,
}

impl Jobs {
    /// Sets up the jobs of a run. `recorded` are the calls it made before; `is_open` returns whether a node will ask for
    /// the same job again. For `keeps_public_apart` see `RunSettings`.
    pub(crate) fn open(
        ledger: Arc<Ledger>,
        research: Arc<DeepResearch>,
        recorded: &[CallRow],
        keeps_public_apart: bool,
        is_open: impl Fn(&NodeId) -> bool,
    ) -> Self {
        let lost = recorded.iter().filter(|call| call.is_job() && call.state() == CallState::Lost);
        Self {
            ledger,
            research,
            model: OnceCell::new(),
            keeps_public_apart,
            with_job: Mutex::new(nodes_with_job(recorded)),
            cancelled: lost.filter(|call| call.key.node().is_some_and(&is_open)).map(|call| call.id).collect(),
            without_summaries: AtomicBool::new(false),
        }
    }

    /// Returns whether a job was or may have been started for a node.
    pub(crate) fn has(&self, node: &NodeId) -> bool {
        locked(&self.with_job).contains(node)
    }

    /// Returns whether the cap of a job fits the remaining cost limit.
    pub(crate) fn can_pay(&self) -> bool {
        self.ledger.budget().fits_alone(CallCost { cost_nanos: self.research.cap(), tokens: 0 }, Purpose::Research)
    }

    /// Returns the report stored with a call of this or another run.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal has no such report, or it cannot be read. Nothing is bought in its place.
    pub(crate) async fn finished(&self, call: i64, instructions: &Outbound) -> Result<Finished, CallError> {
        let found = self.ledger.run().journal().call(call).await?;
        let read =
            found.filter(|(_, call)| call.is_job()).and_then(|(run, call)| Some((run, call.report()?, call.call)));
        let Some((run, report, Call { request_hash, .. })) = read else {
            let reason = format!(
                "its report is on record and cannot be read (call {call} of the journal). It is not bought again: \
                 `dr doctor` names the run that paid for it, and after `dr doctor --repair`, `dr resume RUN` gets the \
                 report from the provider once more"
            );
            return Err(no_research(&reason));
        };
        let without_summaries = request_hash == RequestHash::without_summaries(instructions);
        let was_told = without_summaries || request_hash == RequestHash::with_summaries(instructions);
        // Reports of other runs are found by lookups, which say that nothing internal could leave.
        let may_know_internal = !was_told && !self.keeps_public_apart && run == *self.ledger.run().id();
        Ok(Finished { run, report, without_summaries, was_told, may_know_internal })
    }

    /// Returns the report of the node's own job of a resumed run, else of a job that any run started today for the same
    /// task, else of a new job. An incomplete report serves only the run that paid for it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::carry_out`] and [`Self::finished`].
    pub(crate) async fn report(
        &self,
        task: &JobTask<'_>,
        cache: &Cache,
        egress: &Egress,
    ) -> Result<Finished, WorkError> {
        let call = || async {
            let words = task.task.words();
            let text = OutgoingText { kind: EgressKind::Job, text: &task.instructions, words: &words };
            let release = || egress.release(task.node, "Deep Research", text);
            self.carry_out(task.node, &task.instructions, release).await
        };
        let own = if self.has(task.node) {
            let call = call().await?;
            Some((call, self.finished(call, &task.instructions).await?))
        } else {
            None
        };
        // Not offered to other runs: its job was told something else than this node asks.
        if let Some((_, other)) = own.as_ref().filter(|(_, own)| !own.was_told) {
            return Ok(other.clone());
        }
        let mut attempt = 0;
        loop {
            let lookup = task.lookup(self.research.version(), egress, attempt);
            let call: i64 = match own {
                // A run that was killed while it polled has not recorded its job for other runs.
                Some((call, _)) => cache.keep(&lookup, call).await?,
                // Fails this node alone, as an unreadable report does.
                None if cache.is_broken::<i64>(&lookup).await? => {
                    let reason = "its record in the journal cannot be read. It is not bought again: ask the question \
                                  anew after `dr doctor --repair`";
                    return Err(no_research(reason).into());
                }
                None => Box::pin(cache.answer(lookup, call())).await?,
            };
            let finished = self.finished(call, &task.instructions).await?;
            if &finished.run == self.ledger.run().id() || finished.report.incomplete.is_none() {
                // A job of this run takes precedence over one of another run.
                return Ok(own.map_or(finished, |(_, own)| own));
            }
            // An incomplete report of another run does not do: a second job is looked up, or started.
            attempt += 1;
        }
    }

    /// Returns whether the reply of a call can be read.
    async fn is_readable(&self, call: &CallRow) -> Result<bool, CallError> {
        let found = self.ledger.run().journal().call(call.id).await?;
        Ok(found.is_some_and(|(_, call)| call.reply().is_some()))
    }

    /// Runs `instructions` as a background job and returns the call with its report: a call on record, else that of a
    /// job in flight, else a new one. A job of the node itself is used whatever it was told. A job whose report on
    /// record cannot be read is polled again, which is free. `release` records the egress of a new job's instructions.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached, if the run is stopped (which cancels the job), or if the job has no
    /// report. A start with an unknown outcome is repeated only with `--retry-unknown`.
    pub(crate) async fn carry_out<F: Future<Output = Result<(), SourceError>>>(
        &self,
        node: &NodeId,
        instructions: &Outbound,
        release: impl Fn() -> F,
    ) -> Result<i64, WorkError> {
        let request = RequestHash::with_summaries(instructions);
        // One turn for both forms of the request, since a report on either answers both.
        let _turn = self.ledger.turn(&request).await?;
        let run = self.ledger.run();
        let calls = run.journal().calls_in_short(run.id()).await.map_err(CallError::from)?;
        let requests = [request, RequestHash::without_summaries(instructions)];
        let same: Vec<_> = calls.iter().filter(|call| requests.contains(&call.request_hash)).collect();
        // A resumed mixed node may leave other aspects open than before: its own job is paid for, whatever it was told.
        let own = calls.iter().filter(|call| call.is_job() && call.key.node() == Some(node));
        let mut earlier = same.iter().copied().chain(own);
        let mut unreadable = None;
        for call in earlier.clone().filter(|call| call.state() == CallState::Replied) {
            if self.is_readable(call).await? {
                return Ok(call.id);
            }
            unreadable = unreadable.or(call.job.as_ref().map(|job| (call, job)));
        }
        if let Some((call, job)) =
            unreadable.or_else(|| earlier.clone().find_map(|call| Some((call, call.job_to_poll()?))))
        {
            return Ok(self.reattach(call.clone(), job.clone()).await?);
        }
        if earlier.any(CallRow::is_open) && !self.research.retry_unknown {
            // `Unknown` keeps the caller from searching with a worker instead: the job may still deliver a report.
            let reason =
                "a job may have been started, but the outcome is unknown; `dr resume --retry-unknown` starts another";
            return Err(CallError::from(ModelError::Unknown { reason: reason.into() }).into());
        }
        // One that was cancelled with the run may be started again, once: by its own node, or by another that comes first
        // and whose report then serves both.
        let may_be_again = |call: &CallRow| call.key.node() == Some(node) || self.cancelled.contains(&call.id);
        if same.iter().any(|call| call.state() == CallState::Lost && !may_be_again(call)) {
            return Err(no_research("the same job of another node was charged and has no report").into());
        }
        self.start(&Starting { node, instructions, release, released: OnceCell::new() }).await
    }

    /// Polls the job in flight of a node that does not use its report, so that its cost replaces its cap. A job that
    /// failed, or cannot be polled, changes nothing else for the node.
    ///
    /// # Errors
    ///
    /// Returns an error if the run is stopped or out of time, or the journal fails.
    pub(crate) async fn settle(&self, node: &NodeId) -> Result<(), CallError> {
        if !self.has(node) {
            return Ok(());
        }
        let run = self.ledger.run();
        let calls = run.journal().calls_in_short(run.id()).await?;
        let own = calls.into_iter().filter(|call| call.is_job() && call.key.node() == Some(node));
        for (job, call) in own.filter_map(|call| Some((call.job_to_poll()?.clone(), call))) {
            match self.reattach(call, job).await {
                Ok(_) | Err(CallError::Model(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Polls a job that an earlier process has started.
    async fn reattach(&self, call: CallRow, started: StartedJob) -> Result<i64, CallError> {
        let (moved, model) = (self.research.moved(&started), call.model.clone());
        let age = self.ledger.clock().now().since(call.sent_at);
        let job = Job { id: started.id, state: JobState::Queued, raw: String::new() };
        let ticket = self.ledger.reopen(call).await?;
        let poller = Poller { ledger: &self.ledger, research: &self.research, moved: moved.as_ref(), age };
        poller.follow(ticket, &model, job).await
    }

    /// Starts a job and polls it to its end. Without permission for reasoning summaries, it is started without them.
    async fn start<F: Future<Output = Result<(), SourceError>>>(
        &self,
        starting: &Starting<'_, impl Fn() -> F>,
    ) -> Result<i64, WorkError> {
        let model = self.model(&key_of(starting.node)).await?;
        let started = if self.without_summaries.load(Ordering::SeqCst) {
            self.start_with(starting, &model, false).await
        } else {
            match self.start_with(starting, &model, true).await {
                Err(StartError::Job(JobError::SummariesRefused { .. })) => {
                    self.without_summaries.store(true, Ordering::SeqCst);
                    self.start_with(starting, &model, false).await
                }
                started => started,
            }
        };
        let (ticket, job) = match started {
            Ok(started) => started,
            Err(StartError::Release(error)) => return Err(error.into()),
            Err(StartError::Job(error)) => return Err(call_error(error).into()),
            // Not a limit error, which would end the research: smaller calls may still fit.
            Err(StartError::Call(CallError::Limit(Limit::Cost))) => {
                return Err(no_research("its cap exceeds what is left of the cost limit").into());
            }
            Err(StartError::Call(error)) => return Err(error.into()),
        };
        let poller = Poller { ledger: &self.ledger, research: &self.research, moved: None, age: Duration::ZERO };
        Ok(poller.follow(ticket, &model, job).await?)
    }

    async fn start_with<F: Future<Output = Result<(), SourceError>>>(
        &self,
        starting: &Starting<'_, impl Fn() -> F>,
        model: &str,
        may_summarise: bool,
    ) -> Result<(Ticket, Job), StartError<SourceError>> {
        let (node, instructions) = (starting.node, starting.instructions);
        let name = (self.ledger.run().id().clone(), node.clone());
        let mut request = self.research.settings.request(model, instructions.clone(), name);
        request.terms.summaries &= may_summarise;
        let hash = if may_summarise { RequestHash::with_summaries } else { RequestHash::without_summaries };
        let call = Call {
            key: key_of(node),
            kind: CallKind::Job,
            model: model.to_owned(),
            request_hash: hash(instructions),
            purpose: Purpose::Research,
            label: Label::Public,
            // The cap of the user: a job has no worst case beforehand, see `job_cap`.
            worst_cost: self.research.cap_of(model),
        };
        self.ledger.retry(&Policy::JOB_START, &call.key, || self.create(starting, &call, &request)).await
    }

    /// Sends the request for a job, once. Only then do its instructions count as having left.
    async fn create<F: Future<Output = Result<(), SourceError>>>(
        &self,
        starting: &Starting<'_, impl Fn() -> F>,
        call: &Call,
        request: &JobRequest,
    ) -> Result<(Ticket, Job), StartError<SourceError>> {
        let ticket = self.ledger.open(call, Reserving::IfItFits, pending()).await?;
        if let Err(error) = starting.released.get_or_try_init(|| (starting.release)()).await {
            ticket.failed(error.to_string()).await.map_err(CallError::from)?;
            return Err(StartError::Release(error));
        }
        let error = match self.research.provider.create(request, patience(&self.ledger)).await {
            Ok(job) => {
                // Before the id is stored: if that fails, the job is running all the same.
                locked(&self.with_job).insert(starting.node.clone());
                let (kind, endpoint) = (self.research.provider.kind(), self.research.settings.endpoint(&job.id));
                ticket.attach(&job.id, kind, endpoint).await.map_err(CallError::from)?;
                return Ok((ticket, job));
            }
            Err(error) => error,
        };
        let ended = match &error {
            JobError::OutcomeUnknown { .. } => {
                locked(&self.with_job).insert(starting.node.clone());
                ticket.unknown(error.to_string()).await
            }
            // After any of these no job was started, see `Provider::create`.
            JobError::SummariesRefused { .. } | JobError::Refused(_) | JobError::NoAnswer { .. } => {
                ticket.failed(error.to_string()).await
            }
        };
        ended.map_err(CallError::from)?;
        Err(error.into())
    }

    /// Returns the first model that the account may use. The check is free.
    async fn model(&self, key: &CallKey) -> Result<String, CallError> {
        let (research, now) = (&self.research, self.ledger.clock().now());
        let choose = || async {
            let models = &research.settings.models;
            let choice = research.provider.choose_model(models, day_of(now), patience(&self.ledger)).await?;
            choice.model.ok_or_else(|| {
                let reason = format!("none of `{}` is available", models.join("`, `"));
                StartError::<Infallible>::Job(JobError::Refused(ModelError::Permanent { reason }))
            })
        };
        let chosen = self.model.get_or_try_init(|| self.ledger.retry(&Policy::JOB_START, key, choose)).await;
        match chosen {
            Ok(model) => Ok(model.clone()),
            // No job was started, so the web may be searched instead.
            Err(StartError::Job(JobError::NoAnswer { reason })) => Err(no_research(&reason)),
            Err(StartError::Job(error)) => Err(call_error(error)),
            Err(StartError::Call(error)) => Err(error),
        }
    }
}

/// The identities of the requests for a job with given instructions.
struct RequestHash;

impl RequestHash {
    fn with_summaries(instructions: &Outbound) -> ContentHash {
        ContentHash::of(instructions.as_str().as_bytes())
    }

    fn without_summaries(instructions: &Outbound) -> ContentHash {
        ContentHash::of(format!("{instructions}\nwithout summaries of the reasoning").as_bytes())
    }
}

fn day_of(now: Moment) -> jiff::civil::Date {
    now.date().and_then(|date| date.parse().ok()).unwrap_or_default()
}

fn key_of(node: &NodeId) -> CallKey {
    CallKey::of_node(node).then(Step::Research)
}

/// Returns the settled nodes whose job can be retried: a job in flight is polled again, and one with an unknown start
/// is started again if `retry_unknown` is set.
pub(crate) fn to_try_again(state: &RunState, calls: &[CallRow], retry_unknown: bool) -> Vec<NodeId> {
    let is_open = |node: &&Node| {
        let mut jobs = calls.iter().rev().filter(|call| call.is_job());
        let last = jobs.find(|call| call.key.node() == Some(&node.id));
        let is_worth_it = |call: &CallRow| call.job_to_poll().is_some() || call.is_open() && retry_unknown;
        node.status.is_settled() && last.is_some_and(is_worth_it)
    };
    state.tree.nodes.iter().filter(is_open).map(|node| node.id.clone()).collect()
}

/// Ends the calls whose jobs were never started: their process died before it recorded the instructions, which it does
/// before it sends them. They are not charged, and can be made again.
pub(crate) async fn end_unsent(run: &LockedRun, at: Moment) -> Result<(), JournalError> {
    let (journal, id) = (run.journal(), run.id());
    let calls = journal.calls_in_short(id).await?;
    let in_doubt = calls.iter().filter(|call| call.is_job() && call.state() == CallState::Sent && call.job.is_none());
    // A log that was changed proves nothing.
    let is_altered = journal.is_egress_altered(id).await?;
    let left = journal.egress(id).await?;
    let is_recorded = |call: &CallRow| {
        // By node: the instructions of an attempt that was refused are not recorded again for the next one.
        let is_out = |row: &EgressRow| row.kind == EgressKind::Job && row.withheld.is_none();
        let of_node = |row: &EgressRow| is_out(row) && Some(&row.node) == call.key.node();
        left.iter().any(of_node)
    };
    for call in in_doubt.filter(|call| !is_altered && !is_recorded(call)) {
        end_left(run, call, LeftCall::Unsent, at).await?;
    }
    Ok(())
}

/// Returns the nodes for which a job was or may have been started.
fn nodes_with_job(calls: &[CallRow]) -> BTreeSet<NodeId> {
    let jobs = calls.iter().filter(|call| call.is_job() && call.state() != CallState::Failed);
    jobs.filter_map(|call| call.key.node().cloned()).collect()
}

fn no_research(reason: &str) -> CallError {
    ModelError::NoResearch { reason: reason.to_owned() }.into()
}

fn call_error(error: JobError) -> CallError {
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    match error {
        JobError::Refused(ModelError::Permanent { reason }) | JobError::SummariesRefused { reason } => {
            no_research(&format!("{reason}{hint}"))
        }
        JobError::Refused(ModelError::Transient { reason, .. }) => no_research(&format!("not available: {reason}")),
        JobError::Refused(ModelError::RateLimited { .. }) => no_research("its rate limit was exceeded"),
        JobError::Refused(ModelError::Authentication) => no_research(&format!("its endpoint refused the key{hint}")),
        JobError::Refused(ModelError::Quota) => no_research(&format!("its quota is exhausted{hint}")),
        JobError::Refused(error) => error.into(),
        error @ (JobError::OutcomeUnknown { .. } | JobError::NoAnswer { .. }) => {
            CallError::Model(ModelError::Unknown { reason: format!("{error}{hint}") })
        }
    }
}
