//! Drives background jobs: each is started once, polled until it ends, and settled. A resumed run reattaches to it.
//!
//! ```text
//! on record? ─▶ its report
//!     │ no           in flight, or its report cannot be read? ─▶ polled under its id, which was stored before the first poll
//! open a ticket for the cap ─▶ start (one request) ─▶ store its id ─▶ poll … ─▶ store its reply ─▶ settle
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::budget::{CallCost, Purpose};
use super::journal::{Call, CallKind, CallRow, CallState, JOB_STEP};
use super::ledger::{Ledger, Reserving, Ticket};
use super::spans::{attach_output, attach_server, attach_usage};
use super::tree::RunState;
use crate::base::clock::Moment;
use crate::base::id::{ContentHash, RunId};
use crate::base::line::with_causes;
use crate::base::outbound::Outbound;
use crate::base::retry::{Again, Failure, Policy, retry};
use crate::llm::call::{CallError, CallKey, Limit};
use crate::llm::message::Reply;
use crate::llm::model::ModelError;
use crate::research::node::{Node, NodeId};
use crate::source::Label;
use crate::source::deep_research::{DeepResearch, Job, JobError, JobId, JobReport, JobRequest, JobState};
use crate::traces::attach;

/// Wait before the first poll of a job.
const FIRST_POLL: Duration = Duration::from_secs(2);

/// Longest wait between two polls.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// Growth factor of the wait.
const POLL_GROWTH: f64 = 1.5;

/// Time-out of a request after the time of the run is up, when a job still has to be cancelled.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// Why a job is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Late,
    TimeIsUp,
    Stopped,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "it exceeded its time limit",
            Self::TimeIsUp => "the time of the run is up",
            Self::Stopped => "run was stopped",
        })
    }
}

/// A request about a job failed.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    /// The job must be cancelled.
    #[error("{0}")]
    Over(Why),
    /// The provider failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The ledger refused the call.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Failure for Interruption {
    fn again(&self) -> Again {
        match self {
            Self::Over(_) => Again::Never,
            Self::Job(error) => error.again(),
            Self::Call(error) => error.again(),
        }
    }
}

/// A report on record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finished {
    /// The run that paid for it.
    pub(crate) run: RunId,
    /// The parsed report.
    pub(crate) report: JobReport,
    /// Whether the job was started without reasoning summaries, because the account may not use them.
    pub(crate) without_summaries: bool,
    /// Whether the job was given the instructions it is read for. A job in flight of a resumed mixed node may not be.
    pub(crate) was_told: bool,
}

/// The background jobs of one run.
pub(crate) struct Jobs {
    ledger: Arc<Ledger>,
    research: Arc<DeepResearch>,
    model: OnceCell<String>,
    /// Nodes for which a job was or may have been started.
    with_job: Mutex<BTreeSet<NodeId>>,
    /// Whether the provider has refused summaries to the account. Later jobs omit them to save a refused request.
    without_summaries: AtomicBool,
}

impl Jobs {
    /// Sets up the jobs of a run. `recorded` are the calls it made before.
    pub(crate) fn open(ledger: Arc<Ledger>, research: Arc<DeepResearch>, recorded: &[CallRow]) -> Self {
        Self {
            ledger,
            research,
            model: OnceCell::new(),
            with_job: Mutex::new(nodes_with_job(recorded)),
            without_summaries: AtomicBool::new(false),
        }
    }

    /// Returns the provider and the limits of a job.
    pub(crate) fn research(&self) -> &DeepResearch {
        &self.research
    }

    /// Returns whether a job was or may have been started for a node.
    pub(crate) fn has(&self, node: &NodeId) -> bool {
        self.with_job().contains(node)
    }

    fn with_job(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.with_job.lock().unwrap_or_else(PoisonError::into_inner)
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
        let found = found.filter(|(_, call)| call.is_job());
        let Some((run, CallRow { reply: Some(reply), provider, call: Call { request_hash, .. }, .. })) = found else {
            let reason = format!(
                "its report is on record and cannot be read (call {call} of the journal). It is not bought again: \
                 `dr doctor` names the run that paid for it, and after `dr doctor --repair`, `dr resume RUN` gets the \
                 report from the provider once more"
            );
            return Err(no_research(&reason));
        };
        let without_summaries = request_hash == Request::without_summaries(instructions);
        Ok(Finished {
            run,
            report: provider.unwrap_or_default().parse(&reply.raw.to_string()),
            without_summaries,
            was_told: without_summaries || request_hash == Request::with_summaries(instructions),
        })
    }

    /// Returns whether the reply of a call can be read.
    async fn is_readable(&self, call: &CallRow) -> Result<bool, CallError> {
        let found = self.ledger.run().journal().call(call.id).await?;
        Ok(found.is_some_and(|(_, call)| call.reply.is_some()))
    }

    /// Runs `instructions` as a background job and returns the call with its report: a call on record, else that of a
    /// job in flight, else a new one. A job whose report on record cannot be read is polled again, which is free.
    /// `release` records the egress of a new job's instructions.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached, if the run is stopped (which cancels the job), or if the job has no
    /// report. A start with an unknown outcome is repeated only with `--retry-unknown`.
    pub(crate) async fn carry_out<E: From<CallError>>(
        &self,
        node: &NodeId,
        instructions: &Outbound,
        release: impl Future<Output = Result<(), E>>,
    ) -> Result<i64, E> {
        let request = Request::with_summaries(instructions);
        let _turn = self.ledger.turn(&request).await?;
        let run = self.ledger.run();
        let calls = run.journal().calls_in_short(run.id()).await.map_err(CallError::from)?;
        let requests = [request, Request::without_summaries(instructions)];
        let same: Vec<_> = calls.iter().filter(|call| requests.contains(&call.request_hash)).collect();
        let mut unreadable = None;
        for call in same.iter().filter(|call| call.is_replied()) {
            if self.is_readable(call).await? {
                return Ok(call.id);
            }
            unreadable = call.job.as_ref().map(|job| (*call, job)).or(unreadable);
        }
        // A resumed mixed node may leave other aspects open than before: its job in flight is paid for, whatever it was told.
        let own = calls.iter().filter(|call| call.is_job() && call.key.node() == Some(node));
        let mut earlier = same.into_iter().chain(own);
        if let Some((call, id)) =
            unreadable.or_else(|| earlier.clone().find_map(|call| Some((call, call.job_to_poll()?))))
        {
            let job = Job { id: id.clone(), state: JobState::Queued, raw: String::new() };
            return Ok(self.follow(self.ledger.reopen(call), &call.model, job).await?);
        }
        if earlier.any(CallRow::is_open) && !self.research.retry_unknown {
            // `Unknown` keeps the caller from searching with a worker instead: the job may still deliver a report.
            let reason =
                "a job may have been started, but the outcome is unknown; `dr resume --retry-unknown` starts another";
            return Err(CallError::from(ModelError::Unknown { reason: reason.into() }).into());
        }
        release.await?;
        Ok(self.start(node, instructions).await?)
    }

    /// Starts a job and polls it to its end. Without permission for reasoning summaries, it is started without them.
    async fn start(&self, node: &NodeId, instructions: &Outbound) -> Result<i64, CallError> {
        let model = self.model(&key_of(node)).await?;
        let started = if self.without_summaries.load(Ordering::SeqCst) {
            self.start_with(node, &model, instructions, false).await
        } else {
            match self.start_with(node, &model, instructions, true).await {
                Err(Interruption::Job(JobError::SummariesRefused { .. })) => {
                    self.without_summaries.store(true, Ordering::SeqCst);
                    self.start_with(node, &model, instructions, false).await
                }
                started => started,
            }
        };
        let (ticket, job) = started.map_err(|error| match error {
            Interruption::Job(error) => call_error(error),
            // Not a limit error, which would end the research: smaller calls may still fit.
            Interruption::Call(CallError::Limit(Limit::Cost)) => {
                no_research("its cap is more than is left of the money")
            }
            Interruption::Call(error) => error,
            Interruption::Over(why) => no_research(&why.to_string()),
        })?;
        self.follow(ticket, &model, job).await
    }

    async fn start_with(
        &self,
        node: &NodeId,
        model: &str,
        instructions: &Outbound,
        may_summarise: bool,
    ) -> Result<(Ticket, Job), Interruption> {
        let run = self.ledger.run().id().to_string();
        let metadata = BTreeMap::from([("dr_run".to_owned(), run), ("dr_node".to_owned(), node.to_string())]);
        let mut request = self.research.settings.request(model, instructions.clone(), metadata);
        request.terms.summaries &= may_summarise;
        let hash = if may_summarise { Request::with_summaries } else { Request::without_summaries };
        let call = Call {
            key: key_of(node),
            kind: CallKind::Job,
            model: model.to_owned(),
            request_hash: hash(instructions),
            purpose: Purpose::Research,
            label: Label::Public,
            worst_cost: self.research.cap_of(model),
        };
        self.ledger.retry(&Policy::JOB_START, &call.key, || self.create(node, &call, &request)).await
    }

    /// Sends the request for a job, once.
    async fn create(&self, node: &NodeId, call: &Call, request: &JobRequest) -> Result<(Ticket, Job), Interruption> {
        let ticket = self.ledger.open(call, Reserving::IfItFits, pending()).await?;
        let error = match self.research.provider.create(request, self.patience()).await {
            Ok(job) => {
                self.with_job().insert(node.clone());
                ticket.attach(&job.id, self.research.provider.kind()).await.map_err(CallError::from)?;
                return Ok((ticket, job));
            }
            Err(error) => error,
        };
        let ended = match &error {
            JobError::OutcomeUnknown { .. } => {
                self.with_job().insert(node.clone());
                ticket.unknown(error.to_string()).await
            }
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
            let choice = research.provider.choose_model(models, day_of(now), self.patience()).await?;
            choice.model.ok_or_else(|| {
                let reason = format!("none of `{}` is available", models.join("`, `"));
                Interruption::Job(JobError::Refused(ModelError::Permanent { reason }))
            })
        };
        let chosen = self.model.get_or_try_init(|| self.ledger.retry(&Policy::JOB_START, key, choose)).await;
        match chosen {
            Ok(model) => Ok(model.clone()),
            Err(Interruption::Job(error)) => Err(call_error(error)),
            Err(Interruption::Call(error)) => Err(error),
            Err(Interruption::Over(why)) => Err(no_research(&why.to_string())),
        }
    }

    /// Polls a job to its end and settles its cost. Returns its call if it has a report.
    #[tracing::instrument(name = "job", skip_all, fields(id = %job.id, call = ticket.id()))]
    async fn follow(&self, ticket: Ticket, model: &str, job: Job) -> Result<i64, CallError> {
        attach::word("model", model);
        attach_server(&self.research.settings.address.to_string());
        self.followed(ticket, model, job).await.inspect_err(|error| attach::word("error", error.class()))
    }

    async fn followed(&self, ticket: Ticket, model: &str, job: Job) -> Result<i64, CallError> {
        let (job, why) = match self.end_of(job).await {
            Ok(ended) => ended,
            // The job continues at the provider. Its ticket stays open, so that a resumed run reattaches to it.
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                let reason = format!("a job is in flight and cannot be polled: {}{hint}", with_causes(&error));
                return Err(ModelError::Unknown { reason }.into());
            }
        };
        if let Some(why) = why.filter(|_| !job.state.is_over()) {
            // The cancellation may have failed: the ticket stays open, and a resumed run polls the job again.
            return Err(match why {
                Why::Stopped => CallError::Cancelled,
                Why::TimeIsUp => CallError::Limit(Limit::Time),
                Why::Late => {
                    ModelError::Unknown { reason: format!("{why}, and the job could not be cancelled") }.into()
                }
            });
        }
        let report = self.research.provider.parse(&job.raw);
        let cost = self.research.provider.cost(&report, self.research.price(model).as_ref());
        // An unknown part is not zero: charge the cap if it exceeds the known parts.
        let nanos = if cost.has_unknown { cost.nanos.max(ticket.worst().cost_nanos) } else { cost.nanos };
        let known = CallCost { cost_nanos: nanos, tokens: 0 };
        if let Some(usage) = report.usage {
            attach_usage(usage);
        }
        if let Some(nanos) = nanos {
            attach::dollars("cost", nanos);
        }
        let is_usable =
            !report.text.trim().is_empty() && matches!(job.state, JobState::Completed | JobState::Incomplete { .. });
        if is_usable {
            let raw = serde_json::from_str(&job.raw).unwrap_or_default();
            let cut_off = report.incomplete.is_some();
            let call = ticket.id();
            let reply = Reply { text: report.text, usage: report.usage, cut_off, raw };
            attach_output(&reply);
            ticket.replied(reply, known).await?;
            return Ok(call);
        }
        let reason = why.map(|why| why.to_string()).or(report.refusal).unwrap_or_else(|| job.why_nothing());
        ticket.lost(reason.clone(), report.usage.is_some().then_some(known)).await?;
        match why {
            Some(Why::Stopped) => Err(CallError::Cancelled),
            Some(Why::TimeIsUp) => Err(CallError::Limit(Limit::Time)),
            Some(Why::Late) | None => Err(no_research(&reason)),
        }
    }

    /// Polls a job until it is over. If it takes too long or the run is stopped, the job is cancelled and returned with
    /// the reason.
    async fn end_of(&self, mut job: Job) -> Result<(Job, Option<Why>), JobError> {
        let begun = self.ledger.clock().now();
        let left = self.ledger.budget().time_left(Purpose::Research).unwrap_or(Duration::MAX);
        let wait = |delay| async move {
            let waited = self.ledger.clock().now().since(begun);
            match () {
                () if waited >= left => Err(Interruption::Over(Why::TimeIsUp)),
                () if waited >= self.research.timeout() => Err(Interruption::Over(Why::Late)),
                () => self.ledger.pause(delay).await.map_err(|_| Interruption::Over(Why::Stopped)),
            }
        };
        let mut attempt = 0;
        while !job.state.is_over() {
            let ask = || self.ask(&job.id);
            let asked = match wait(poll_delay(attempt)).await {
                Ok(()) => retry(&Policy::JOB_STATUS, || self.ledger.chance(), |delay, _| wait(delay), ask).await,
                Err(interruption) => Err(interruption),
            };
            match asked {
                Ok(now) => job = now,
                Err(Interruption::Job(error)) => return Err(error),
                Err(Interruption::Over(why)) => {
                    // The last reply holds the cost up to then, if the provider reports it.
                    let cancelled = self.research.provider.cancel(&job.id, self.patience()).await;
                    return Ok((cancelled.unwrap_or(job), Some(why)));
                }
                Err(Interruption::Call(_)) => return Ok((job, Some(Why::Stopped))),
            }
            attempt += 1;
        }
        Ok((job, None))
    }

    async fn ask(&self, id: &JobId) -> Result<Job, Interruption> {
        tokio::select! {
            asked = self.research.provider.retrieve(id, self.patience()) => Ok(asked?),
            () = self.ledger.closing() => Err(Interruption::Over(Why::Stopped)),
        }
    }

    /// Returns the time-out of one request, so that none outlasts the run by much.
    fn patience(&self) -> Duration {
        self.ledger.budget().time_left(Purpose::Research).unwrap_or(Duration::MAX).max(LAST_REQUEST)
    }
}

/// The identities of the requests for a job with given instructions.
struct Request;

impl Request {
    fn with_summaries(instructions: &Outbound) -> ContentHash {
        ContentHash::of(instructions.as_str().as_bytes())
    }

    fn without_summaries(instructions: &Outbound) -> ContentHash {
        ContentHash::of(format!("{instructions}\nwithout summaries of the reasoning").as_bytes())
    }
}

/// Returns the wait before the next poll of a job; `attempt` counts from 0.
fn poll_delay(attempt: u32) -> Duration {
    // Capped to keep the power finite; the longest wait is reached long before.
    let attempt = i32::try_from(attempt.min(32)).unwrap_or(i32::MAX);
    FIRST_POLL.mul_f64(POLL_GROWTH.powi(attempt)).min(LONGEST_POLL)
}

fn day_of(now: Moment) -> jiff::civil::Date {
    now.date().and_then(|date| date.parse().ok()).unwrap_or_default()
}

fn key_of(node: &NodeId) -> CallKey {
    CallKey::of_node(node).then(JOB_STEP)
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

/// Returns the nodes for which a job was or may have been started.
fn nodes_with_job(calls: &[CallRow]) -> BTreeSet<NodeId> {
    let jobs = calls.iter().filter(|call| call.is_job() && call.state != CallState::Failed);
    jobs.filter_map(|call| call.key.node().cloned()).collect()
}

fn no_research(reason: &str) -> CallError {
    ModelError::NoResearch { reason: reason.to_owned() }.into()
}

fn call_error(error: JobError) -> CallError {
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    match error {
        JobError::Refused(error) => error.into(),
        JobError::SummariesRefused { reason } => no_research(&format!("{reason}{hint}")),
        error @ (JobError::OutcomeUnknown { .. } | JobError::NoAnswer { .. }) => {
            CallError::Model(ModelError::Unknown { reason: format!("{error}{hint}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_questions_grow_by_half_up_to_half_a_minute() {
        let waits: Vec<_> = (0..9).map(|attempt| poll_delay(attempt).as_millis()).collect();
        assert_eq!(waits, [2_000, 3_000, 4_500, 6_750, 10_125, 15_187, 22_781, 30_000, 30_000]);
        assert_eq!(poll_delay(u32::MAX), Duration::from_secs(30));
    }
}
