//! Follows a job that was started: polls it to its end, settles what it cost, and cancels it if it takes too long.

use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use super::cost::JobCost;
use super::job::{Job, JobState};
use super::provider::JobError;
use super::{DeepResearch, Moved};
use crate::base::id::JobId;
use crate::base::line::with_causes;
use crate::base::retry::{Again, Failure, Policy, retry};
use crate::llm::call::{CallError, Limit};
use crate::llm::message::Reply;
use crate::llm::model::ModelError;
use crate::run::budget::{CallCost, Purpose};
use crate::run::ledger::{Ledger, Ticket};
use crate::run::spans::{attach_reply, attach_server, attach_usage};
use crate::traces::attach;

/// Time-out of a request after the time of the run is up, when a job still has to be cancelled.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// Why a job is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("it exceeded its time limit")]
    Late,
    #[error("the time of the run is up")]
    TimeIsUp,
    #[error("run was stopped")]
    Stopped,
}

/// A job cannot be polled any further.
#[derive(Debug, thiserror::Error)]
enum PollError {
    /// The job must be cancelled.
    #[error("{0}")]
    Over(Why),
    #[error(transparent)]
    Job(#[from] JobError),
}

impl Failure for PollError {
    fn again(&self) -> Again {
        match self {
            Self::Over(_) => Again::Never,
            Self::Job(error) => error.again(),
        }
    }
}

/// Polls the jobs of a run.
#[derive(Clone, Copy)]
pub(super) struct Poller<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) research: &'a DeepResearch,
    /// The setting that has changed since the job was started.
    pub(super) moved: Option<&'a Moved>,
    /// How long ago an earlier process started the job.
    pub(super) age: Duration,
}

impl Poller<'_> {
    /// Polls a job to its end and settles its cost. Returns its call if it has a report.
    #[tracing::instrument(name = "job", skip_all, fields(id = %job.id, call = ticket.id(), tokens = Empty, dollars = Empty))]
    pub(super) async fn follow(self, ticket: Ticket, model: &str, job: Job) -> Result<i64, CallError> {
        attach::word("model", model);
        attach_server(&self.research.settings.address.to_string());
        self.followed(ticket, model, job).await.inspect_err(|error| attach::word("error", error.class()))
    }

    async fn followed(self, ticket: Ticket, model: &str, job: Job) -> Result<i64, CallError> {
        // The job continues at the provider. Its ticket stays open, so that a resumed run reattaches to it.
        let cannot_be_polled = |reason: String| {
            let reason = format!("a job is in flight and cannot be polled: {reason}");
            CallError::from(ModelError::Unknown { reason })
        };
        // Another server has no answer about the job. Another key may be of the same account.
        if let Some(moved @ (Moved::Provider | Moved::Address { .. })) = self.moved {
            return Err(cannot_be_polled(moved.to_string()));
        }
        let (job, why) = match self.end_of(job).await {
            Ok(ended) => ended,
            Err(error) => {
                let hint = self.moved.map(Moved::to_string).or_else(|| error.hint());
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                return Err(cannot_be_polled(with_causes(&error) + &hint));
            }
        };
        // Another account cannot see the job, so it looks as if it never existed.
        let moved = self.moved.filter(|_| job.state == JobState::Vanished);
        if let Some(why) = why.filter(|_| !job.state.is_over() || moved.is_some()) {
            // The cancellation may have failed: the ticket stays open, and a resumed run polls the job again.
            return Err(match why {
                Why::Stopped => CallError::Cancelled,
                Why::TimeIsUp => CallError::Limit(Limit::Time),
                Why::Late => {
                    ModelError::Unknown { reason: format!("{why}, and the job could not be cancelled") }.into()
                }
            });
        }
        if let Some(moved) = moved {
            return Err(cannot_be_polled(format!("the provider does not know it, and {moved}")));
        }
        let report = self.research.provider.kind().parse(&job.raw);
        let cost = JobCost::of(&report, self.research.price(model).as_ref());
        // An unknown part is not zero: the cap is charged if it exceeds the known parts.
        let nanos = if cost.has_unknown { cost.nanos.max(ticket.worst().cost_nanos) } else { cost.nanos };
        let known = CallCost { cost_nanos: nanos, tokens: 0 };
        if let Some(usage) = report.usage {
            Span::current().record("tokens", usage.tokens());
            attach_usage(usage);
        }
        if let Some(nanos) = nanos {
            attach::dollars("cost", nanos);
        }
        // An incomplete report is paid for, too. Its findings get half the confidence, see `verify`.
        let is_usable =
            !report.text.trim().is_empty() && matches!(job.state, JobState::Completed | JobState::Incomplete { .. });
        if is_usable {
            let raw = serde_json::from_str(&job.raw).unwrap_or_default();
            let cut_off = report.incomplete.is_some();
            let call = ticket.id();
            let reply = Reply { text: report.text, usage: report.usage, cut_off, raw };
            attach_reply(&reply);
            ticket.replied(reply, known).await?;
            return Ok(call);
        }
        let reason = why.map(|why| why.to_string()).or(report.refusal).unwrap_or_else(|| job.why_nothing());
        // Without a usage the cost is unknown, and the worst case stays charged.
        ticket.lost(reason.clone(), report.usage.is_some().then_some(known)).await?;
        match why {
            Some(Why::Stopped) => Err(CallError::Cancelled),
            Some(Why::TimeIsUp) => Err(CallError::Limit(Limit::Time)),
            Some(Why::Late) | None => Err(ModelError::NoResearch { reason }.into()),
        }
    }

    /// Polls a job until it is over. If it takes too long or the run is stopped, the job is cancelled and returned with
    /// the reason.
    async fn end_of(self, mut job: Job) -> Result<(Job, Option<Why>), JobError> {
        let begun = self.ledger.clock().instant();
        let left = self.ledger.budget().time_left(Purpose::Research).unwrap_or(Duration::MAX);
        // At least one poll, however old the job: it may have ended while no process was polling.
        let time_limit = self.research.settings.timeout.saturating_sub(self.age).max(Policy::JOB_POLL.delay(1));
        let wait = |delay| async move {
            let waited = self.ledger.clock().instant().duration_since(begun);
            match () {
                () if waited >= left => Err(PollError::Over(Why::TimeIsUp)),
                () if waited >= time_limit => Err(PollError::Over(Why::Late)),
                () => self.ledger.pause(delay).await.map_err(|_| PollError::Over(Why::Stopped)),
            }
        };
        let mut polls = 1;
        while !job.state.is_over() {
            let ask = || self.ask(&job.id);
            // Waited before the first poll, too: a job takes minutes.
            let asked = match wait(Policy::JOB_POLL.delay(polls)).await {
                Ok(()) => retry(&Policy::JOB_STATUS, || self.ledger.chance(), |delay, _| wait(delay), ask).await,
                Err(interruption) => Err(interruption),
            };
            match asked {
                Ok(now) => job = now,
                Err(PollError::Job(error)) => return Err(error),
                Err(PollError::Over(why)) => {
                    // The last reply holds the cost up to then, if the provider reports it.
                    let cancelled = self.research.provider.cancel(&job.id, patience(self.ledger)).await;
                    return Ok((cancelled.unwrap_or(job), Some(why)));
                }
            }
            polls += 1;
        }
        Ok((job, None))
    }

    async fn ask(self, id: &JobId) -> Result<Job, PollError> {
        tokio::select! {
            asked = self.research.provider.retrieve(id, patience(self.ledger)) => Ok(asked?),
            () = self.ledger.closing() => Err(PollError::Over(Why::Stopped)),
        }
    }
}

/// Returns the time-out of one request, so that none outlasts the run by much.
pub(super) fn patience(ledger: &Ledger) -> Duration {
    ledger.budget().time_left(Purpose::Research).unwrap_or(Duration::MAX).max(LAST_REQUEST)
}
