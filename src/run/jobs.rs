//! Research at a provider's: a job is reserved, started once, followed, and settled; a resumed run finds it again.
//!
//! ```text
//! on record? ─▶ its report, for nothing
//!     │ no            started before? ─▶ asked after again, by the id that was stored before the first question
//! reserve the cap ─▶ write down ─▶ start (one POST) ─▶ store its id ─▶ ask after it … ─▶ store its reply ─▶ settle
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use super::budget::{CallCost, Purpose, Reservation};
use super::desk::{CallNotice, Desk};
use super::journal::{CallRow, CallState, NewCall, Outcome};
use super::tree::RunState;
use crate::base::id::{ContentHash, RunId};
use crate::base::line::with_causes;
use crate::base::retry::{Again, Failure};
use crate::llm::call::{CallError, CallKey, Limit};
use crate::llm::message::{Reply, Role};
use crate::llm::model::ModelError;
use crate::research::node::{Node, NodeId};
use crate::source::deep_research::{DeepResearch, Job, JobError, JobReport, JobState, ProviderKind, job_cap};

/// The first wait before a job is asked after again.
const FIRST_POLL: Duration = Duration::from_secs(2);

/// The longest.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// The factor from one wait to the next.
const POLL_GROWTH: f64 = 1.5;

/// Requests for a job that are refused for the moment are sent again so often.
const MAX_TRIES: u32 = 4;

/// Questions after a job in a row that may go without an answer.
const MAX_SILENCE: u32 = 10;

/// How long a request may take when the time of the run is up: a job has to be called off.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// Why a job is called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Late,
    TimeIsUp,
    Stopped,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "it took longer than it may",
            Self::TimeIsUp => "the time of the run is up",
            Self::Stopped => "run was stopped",
        })
    }
}

/// Returns the first model that the account may use.
async fn choose(jobs: &DeepResearch, today: jiff::civil::Date, most: Duration) -> Result<String, JobError> {
    let choice = jobs.provider.choose_model(&jobs.settings.models, today, most).await?;
    choice.model.ok_or_else(|| {
        let tried = jobs.settings.models.join("`, `");
        JobError::Refused(ModelError::Permanent { reason: format!("none of `{tried}` can be had") })
    })
}

/// Returns how long to wait before asking after a job again; `attempt` counts from 0.
fn poll_delay(attempt: u32) -> Duration {
    // Beyond this the longest wait is reached long since, and the power stays finite.
    let attempt = i32::try_from(attempt.min(32)).unwrap_or(i32::MAX);
    FIRST_POLL.mul_f64(POLL_GROWTH.powi(attempt)).min(LONGEST_POLL)
}

impl Desk {
    /// Returns what jobs are started with, where there is anything.
    pub fn jobs(&self) -> Option<&DeepResearch> {
        self.parts.jobs.as_deref()
    }

    /// Tells whether a job was started for a node, or may have been.
    pub fn has_job(&self, node: &NodeId) -> bool {
        self.with_job.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn has_begun(&self, node: &NodeId) {
        self.with_job.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone());
    }

    /// Tells whether what is set aside for a job fits what is left of the money.
    pub fn can_pay(&self, jobs: &DeepResearch) -> bool {
        self.parts.budget.fits_alone(CallCost { cost_nanos: jobs.cap(), tokens: 0 }, Purpose::Research)
    }

    /// Returns the calls of this run that had `instructions` carried out for a node, oldest first.
    async fn research_calls(&self, node: &NodeId, instructions: &str) -> Result<Vec<CallRow>, CallError> {
        let request = ContentHash::of(instructions.as_bytes());
        let mut calls = self.parts.run.journal().calls_of(self.parts.run.id(), &key_of(node)).await?;
        calls.retain(|call| call.request_hash == request);
        Ok(calls)
    }

    /// Returns the report that a call brought, of whichever run, and the run.
    ///
    /// # Errors
    ///
    /// Returns an error where the journal has no such reply.
    pub async fn report(&self, call: i64) -> Result<(RunId, JobReport), CallError> {
        let (run, reply) = self.parts.run.journal().reply(call).await?;
        Ok((run, ProviderKind::OpenAi.parse(&reply.raw.to_string())))
    }

    /// Has `instructions` carried out by a job, and returns the call that brought its report: one on record, else one of
    /// a job that was started before, else a new one, for which `release` lets them leave.
    ///
    /// # Errors
    ///
    /// Returns an error where a limit is reached, where the run is stopped (the job is called off), and where the job
    /// brings no report. A start whose outcome is not known is not repeated unless the user said so.
    pub async fn research<E: From<CallError>>(
        &self,
        node: &NodeId,
        instructions: &str,
        release: impl Future<Output = Result<(), E>>,
    ) -> Result<i64, E> {
        let jobs = self.jobs().ok_or_else(|| no_research("none is set up"))?;
        let same = self.research_calls(node, instructions).await?;
        if let Some(call) = same.iter().find(|call| call.reply.is_some()) {
            return Ok(call.id);
        }
        if let Some((call, id)) = same.iter().find_map(under_way) {
            let worst = CallCost { cost_nanos: call.worst_cost, tokens: 0 };
            let reservation = self.parts.budget.take_back(worst, Purpose::Research);
            let job = Job { id, state: JobState::Queued, raw: String::new() };
            return Ok(self.follow(jobs, node, (call.id, &call.model), job, reservation).await?);
        }
        if same.iter().any(CallRow::is_open) && !jobs.retry_unknown {
            // Nothing takes the place of what may be under way.
            let reason =
                "a job may have been started already, and nobody knows; `dr resume --retry-unknown` starts another";
            return Err(CallError::from(ModelError::Unknown { reason: reason.into() }).into());
        }
        release.await?;
        let now = self.parts.clock.now();
        let today = now.date().and_then(|date| date.parse().ok()).unwrap_or_default();
        let model = self.model(jobs, today).await?;
        let price = jobs.price(&model);
        let call = NewCall {
            key: key_of(node),
            role: Role::Researcher,
            model,
            request: ContentHash::of(instructions.as_bytes()),
            purpose: Purpose::Research,
            is_tight: false,
            counted_tokens: 0,
            worst_tokens: 0,
            worst_cost: job_cap(&jobs.settings, price.as_ref()),
            sent_at: now,
        };
        Ok(self.start(jobs, node, call, instructions).await?)
    }

    /// Returns the model to be used; asking for it costs nothing, so what passes is waited for.
    async fn model(&self, jobs: &DeepResearch, today: jiff::civil::Date) -> Result<String, CallError> {
        let mut tries = 0;
        loop {
            let error = match choose(jobs, today, self.patience()).await {
                Ok(model) => return Ok(model),
                Err(error) => error,
            };
            tries += 1;
            if !matches!(error.again(), Again::Later(_)) || tries == MAX_TRIES {
                return Err(call_error(error));
            }
            self.pause(poll_delay(tries)).await?;
        }
    }

    /// Starts a job: each request is written down first, and sent again only where none was started for certain.
    async fn start(
        &self,
        jobs: &DeepResearch,
        node: &NodeId,
        mut call: NewCall,
        instructions: &str,
    ) -> Result<i64, CallError> {
        let run = self.parts.run.id().to_string();
        let metadata = BTreeMap::from([("dr_run".to_owned(), run), ("dr_node".to_owned(), node.to_string())]);
        let request = jobs.settings.request(&call.model, instructions.to_owned(), metadata);
        let mut tries = 0;
        loop {
            let worst = CallCost { cost_nanos: call.worst_cost, tokens: 0 };
            let reserving = self.parts.budget.reserve_if_it_fits(worst, Purpose::Research);
            let mut reservation = self.unless_closing(reserving).await.map_err(|error| match error {
                // That ends no research: smaller calls may fit.
                CallError::Limit(Limit::Cost) => no_research("its cap is more than is left of the money"),
                error => error,
            })?;
            call.sent_at = self.parts.clock.now();
            let id = self.parts.run.begin_call(&call).await?;
            (self.parts.listener)(&CallNotice::Sent(call.key.clone(), call.role));
            reservation.sent();
            let error = match jobs.provider.create(&request, self.patience()).await {
                Ok(job) => {
                    self.has_begun(node);
                    self.parts.run.attach_job(id, &job.id).await?;
                    return self.follow(jobs, node, (id, &call.model), job, reservation).await;
                }
                Err(error) => error,
            };
            if matches!(error, JobError::OutcomeUnknown { .. }) {
                self.has_begun(node);
                self.end(id, &Outcome::Unknown(error.to_string())).await?;
                reservation.keep();
                return Err(call_error(error));
            }
            self.end(id, &Outcome::Failed(error.to_string())).await?;
            reservation.release();
            tries += 1;
            if !matches!(error.again(), Again::Later(_)) || tries == MAX_TRIES {
                return Err(call_error(error));
            }
            self.pause(poll_delay(tries)).await?;
        }
    }

    /// Follows a job to its end, and settles what it cost; returns its call where it brought a report.
    #[tracing::instrument(name = "job", skip_all, fields(%node, id = %job.id, call = call.0))]
    async fn follow(
        &self,
        jobs: &DeepResearch,
        node: &NodeId,
        call: (i64, &str),
        job: Job,
        reservation: Reservation,
    ) -> Result<i64, CallError> {
        let (call, model) = call;
        let (job, why) = match self.end_of(jobs, job).await {
            Ok(ended) => ended,
            // It goes on at the provider's, and is found again when the run is resumed; nothing takes its place.
            Err(error) => {
                reservation.keep();
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                let reason = format!("a job is under way and cannot be asked after: {}{hint}", with_causes(&error));
                return Err(ModelError::Unknown { reason }.into());
            }
        };
        if let Some(why) = why.filter(|_| !job.state.is_over()) {
            // Nobody knows that it was called off, so it goes on: the next run asks after it.
            reservation.keep();
            return Err(match why {
                Why::Stopped => CallError::Cancelled,
                Why::TimeIsUp => CallError::Limit(Limit::Time),
                Why::Late => {
                    ModelError::Unknown { reason: format!("{why}, and the job could not be called off") }.into()
                }
            });
        }
        let report = jobs.provider.parse(&job.raw);
        let cost = jobs.provider.cost(&report, jobs.price(model).as_ref());
        // A part nobody knows is not nothing: the cap stands in for the whole where that is more.
        let known = if cost.has_unknown { cost.nanos.max(reservation.worst().cost_nanos) } else { cost.nanos };
        let settled = CallCost { cost_nanos: known, tokens: 0 };
        let is_usable =
            !report.text.trim().is_empty() && matches!(job.state, JobState::Completed | JobState::Incomplete { .. });
        if is_usable {
            let raw = serde_json::from_str(&job.raw).unwrap_or_default();
            let reply = Reply { text: report.text.clone(), usage: report.usage, cut_off: false, raw };
            self.end(call, &Outcome::Replied(Box::new(reply), known)).await?;
            reservation.settle(settled);
            (self.parts.listener)(&CallNotice::Replied(key_of(node), Role::Researcher));
            return Ok(call);
        }
        let reason = why.map(|why| why.to_string()).or(report.refusal).unwrap_or_else(|| job.why_nothing());
        let spent = report.usage.is_some().then_some(known).flatten();
        self.end(call, &Outcome::Lost(reason.clone(), spent)).await?;
        match spent {
            Some(_) => drop(reservation.settle(settled)),
            None => reservation.keep(),
        }
        match why {
            Some(Why::Stopped) => Err(CallError::Cancelled),
            Some(Why::TimeIsUp) => Err(CallError::Limit(Limit::Time)),
            Some(Why::Late) | None => Err(no_research(&reason)),
        }
    }

    /// Asks after a job until it is over, the time is up, or the run is stopped; then it is called off, with the reason.
    async fn end_of(&self, jobs: &DeepResearch, mut job: Job) -> Result<(Job, Option<Why>), JobError> {
        let left = self.parts.budget.time_left(Purpose::Research).unwrap_or(Duration::MAX);
        let begun = self.parts.clock.now();
        let (mut attempt, mut silence) = (0, 0);
        while !job.state.is_over() {
            let waited = self.parts.clock.now().since(begun);
            let why = match () {
                () if waited >= left => Some(Why::TimeIsUp),
                () if waited >= jobs.settings.timeout => Some(Why::Late),
                () => self.pause(poll_delay(attempt)).await.is_err().then_some(Why::Stopped),
            };
            if why.is_some() {
                // What it has cost by then is on its last reply, where the provider says.
                return Ok((jobs.provider.cancel(&job.id, self.patience()).await.unwrap_or(job), why));
            }
            attempt += 1;
            let asked = tokio::select! {
                asked = jobs.provider.retrieve(&job.id, self.patience()) => asked,
                () = self.parts.closing.cancelled() => continue,
            };
            match asked {
                Ok(now) => (job, silence) = (now, 0),
                Err(error) if matches!(error.again(), Again::Later(_)) && silence < MAX_SILENCE => silence += 1,
                Err(error) => return Err(error),
            }
        }
        Ok((job, None))
    }

    /// Returns how long one request may take, so that none outlasts the run by much.
    fn patience(&self) -> Duration {
        self.parts.budget.time_left(Purpose::Research).unwrap_or(Duration::MAX).max(LAST_REQUEST)
    }

    async fn pause(&self, delay: Duration) -> Result<(), CallError> {
        tokio::select! {
            () = self.parts.clock.sleep(delay) => Ok(()),
            () = self.parts.closing.cancelled() => Err(CallError::Cancelled),
        }
    }
}

fn key_of(node: &NodeId) -> CallKey {
    CallKey::new(format!("{node}/research"))
}

/// Returns the nodes that made do without a job and need not: one that is under way is asked after again, and where nobody
/// knows whether one was started, `retry_unknown` has another started.
pub fn to_try_again(state: &RunState, calls: &[CallRow], retry_unknown: bool) -> Vec<NodeId> {
    let is_open = |node: &&Node| {
        let mut jobs = calls.iter().rev().filter(|call| call.role == Role::Researcher);
        let last = jobs.find(|call| call.node().as_ref() == Some(&node.id)).filter(|call| call.is_open());
        node.status.is_settled() && last.is_some_and(|call| retry_unknown || under_way(call).is_some())
    };
    state.tree.nodes.iter().filter(is_open).map(|node| node.id.clone()).collect()
}

/// Returns the nodes that a job was started for, or may have been.
pub fn nodes_with_job(calls: &[CallRow]) -> BTreeSet<NodeId> {
    let jobs = calls.iter().filter(|call| call.role == Role::Researcher && call.state != CallState::Failed);
    jobs.filter_map(CallRow::node).collect()
}

/// Returns the job a call has started that nobody has seen the end of.
fn under_way(call: &CallRow) -> Option<(&CallRow, crate::source::deep_research::JobId)> {
    let job = call.job.clone().filter(|_| call.state == CallState::Sent)?;
    Some((call, job))
}

fn no_research(reason: &str) -> CallError {
    ModelError::NoResearch { reason: reason.to_owned() }.into()
}

fn call_error(error: JobError) -> CallError {
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    match error {
        JobError::Refused(error) => error.into(),
        error => CallError::Model(ModelError::Unknown { reason: format!("{error}{hint}") }),
    }
}
