//! The desk every model call of a run goes over: it is reserved, written down, sent, retried, settled.
//!
//! ```text
//! on record? ─▶ its reply, for nothing
//!     │ no
//! reserve the worst case ─▶ write down ─▶ send once ─▶ write the reply down ─▶ settle ─▶ reply
//!     ▲                                       │
//!     └──── wait, where waiting can help ◀────┘
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::budget::{Budget, BudgetLimits, CallCost, Purpose, Refusal, Reservation, WritingReserve};
use super::jobs::nodes_with_job;
use super::journal::{CallRow, CallState, JournalError, LockedRun, NewCall, Outcome};
use crate::base::clock::Clock;
use crate::base::id::ContentHash;
use crate::base::line::with_causes;
use crate::base::retry::{Policy, retry};
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::Models;
use crate::research::node::NodeId;
use crate::source::deep_research::DeepResearch;

/// Calls of the writer that are paid for beforehand: the report, and one more try.
const WRITING_CALLS: u64 = 2;

/// Tokens of a prompt below which a report cannot be written.
const LEAST_WRITING_INPUT: u64 = 2_000;

/// Time that is set aside for writing.
const WRITING_TIME: Duration = Duration::from_mins(2);

/// What somebody may want to know of a call while it happens.
#[derive(Clone, Debug, PartialEq)]
pub enum CallNotice {
    /// It was sent.
    Sent(CallKey, Role),
    /// It is sent again after a failure.
    Retried(CallKey, String),
    /// Its reply is there.
    Replied(CallKey, Role),
}

/// Hears of calls.
pub type CallListener = Arc<dyn Fn(&CallNotice) + Send + Sync>;

/// Makes the calls of one run.
pub struct Desk {
    pub(super) parts: DeskParts,
    /// Tokens of a prompt that what is set aside for writing pays for.
    writing_input: u64,
    writing: AtomicBool,
    random: Mutex<StdRng>,
    tight: Mutex<HashMap<CallKey, bool>>,
    /// Nodes that a job was started for, or may have been.
    pub(super) with_job: Mutex<BTreeSet<NodeId>>,
}

/// What a desk is made of; see [`Desk`].
pub struct DeskParts {
    /// The run the calls are made for and stored in.
    pub run: LockedRun,
    /// The model of each role.
    pub models: Models,
    /// What may be spent.
    pub budget: Budget,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Triggered when no new call may be made.
    pub closing: CancellationToken,
    /// Triggered when calls under way are given up.
    pub closed: CancellationToken,
    /// Hears of calls.
    pub listener: CallListener,
    /// Seed of the waiting times.
    pub seed: u64,
    /// Starts research at a provider's, where that is set up.
    pub jobs: Option<Arc<DeepResearch>>,
}

impl Desk {
    /// Opens the desk of a run; `recorded` are the calls it has made before.
    pub fn open(parts: DeskParts, recorded: &[CallRow]) -> Self {
        let tight = recorded.iter().map(|call| (call.key.clone(), call.is_tight)).collect();
        Self {
            writing_input: writing_reserve(&parts.models, &parts.budget.limits()).1,
            writing: AtomicBool::new(false),
            random: Mutex::new(StdRng::seed_from_u64(parts.seed)),
            tight: Mutex::new(tight),
            with_job: Mutex::new(nodes_with_job(recorded)),
            parts,
        }
    }

    /// Lets calls from now on draw on what was set aside for writing the report.
    pub fn begin_writing(&self) {
        self.writing.store(true, Ordering::SeqCst);
    }

    async fn make(&self, key: &CallKey, prompt: &Prompt) -> Result<Reply, CallError> {
        let model = Arc::clone(&self.parts.models.role(prompt.role).model);
        let counted = model.count_input(prompt);
        let limit = model.window_tokens().saturating_sub(model.max_output(prompt));
        let request = request_hash(model.as_ref(), prompt);
        let recorded = self.parts.run.journal().calls_of(self.parts.run.id(), key).await?;
        let same: Vec<_> = recorded.into_iter().filter(|call| call.request_hash == request).collect();
        if let Some(reply) = same.iter().find_map(|call| call.reply.clone()) {
            return Ok(reply);
        }
        if counted > limit {
            return Err(ModelError::ContextTooLong { prompt_tokens: counted, limit_tokens: limit }.into());
        }
        for call in same.iter().filter(|call| call.state == CallState::Sent) {
            // It was sent by a process that died. What it cost stays charged, and whoever reads the journal can see
            // that the next request is a second one.
            let outcome = Outcome::Unknown("process ended before the reply was stored".into());
            self.parts.run.end_call(call.id, &outcome, self.parts.clock.now()).await?;
        }
        let call = NewCall {
            key: key.clone(),
            role: prompt.role,
            model: model.name().to_owned(),
            request,
            purpose: Purpose::Research,
            is_tight: self.is_tight(key),
            counted_tokens: counted,
            worst_tokens: counted + model.max_output(prompt),
            worst_cost: model.cost_nanos(&Usage {
                input_tokens: counted,
                output_tokens: model.max_output(prompt),
                ..Usage::default()
            }),
            sent_at: self.parts.clock.now(),
        };
        self.send(model.as_ref(), prompt, call).await
    }

    /// Sends until there is a reply, or nothing more can help.
    async fn send(&self, model: &dyn Model, prompt: &Prompt, call: NewCall) -> Result<Reply, CallError> {
        let policy = if prompt.patience.is_some() { Policy::OPTIONAL_PROMPT } else { Policy::PROMPT };
        let call = &call;
        let pause = |delay, error: CallError| async move {
            tokio::select! {
                () = self.parts.clock.sleep(delay) => {}
                () = self.parts.closing.cancelled() => return Err(CallError::Cancelled),
            }
            (self.parts.listener)(&CallNotice::Retried(call.key.clone(), error.to_string()));
            Ok(())
        };
        retry(&policy, || self.random(), pause, || self.send_once(model, prompt, call)).await
    }

    async fn send_once(&self, model: &dyn Model, prompt: &Prompt, call: &NewCall) -> Result<Reply, CallError> {
        let purpose = if self.writing.load(Ordering::SeqCst) { Purpose::Writing } else { Purpose::Research };
        let worst = CallCost { cost_nanos: call.worst_cost, tokens: call.worst_tokens };
        let mut reservation = match prompt.patience {
            Some(_) => tokio::select! {
                reserved = self.unless_closing(self.parts.budget.reserve_if_it_fits(worst, purpose)) => reserved?,
                () = self.out_of_patience(prompt) => {
                    let reason = "it could not be paid for in time".to_owned();
                    return Err(ModelError::Transient { retry_after: None, reason }.into());
                }
            },
            None => self.unless_closing(self.parts.budget.reserve_in_turn(worst, purpose)).await?,
        };
        let call = NewCall { sent_at: self.parts.clock.now(), purpose, ..call.clone() };
        let id = self.parts.run.begin_call(&call).await?;
        (self.parts.listener)(&CallNotice::Sent(call.key.clone(), call.role));
        reservation.sent();
        let result = tokio::select! {
            result = model.send(prompt) => result,
            () = self.parts.closed.cancelled() => Err(ModelError::Unknown { reason: "run was stopped".into() }),
            () = self.parts.budget.time_up(purpose) => {
                Err(ModelError::Unknown { reason: "time of the run is up".into() })
            }
            () = self.out_of_patience(prompt) => {
                Err(ModelError::Unknown { reason: "timed out waiting for the reply".into() })
            }
        };
        let error = match result {
            Ok(reply) => {
                let cost = match &reply.usage {
                    Some(usage) => model.cost_nanos(usage),
                    None => call.worst_cost,
                };
                let outcome = Outcome::Replied(Box::new(reply.clone()), cost);
                self.end(id, &outcome).await?;
                let tokens = reply.usage.map_or(call.worst_tokens, |usage| usage.tokens());
                reservation.settle(CallCost { cost_nanos: cost, tokens });
                Span::current().record("tokens", tokens);
                (self.parts.listener)(&CallNotice::Replied(call.key.clone(), call.role));
                return Ok(reply);
            }
            Err(error) => error,
        };
        // A refusal was thought about and paid for, and its usage is not known.
        if matches!(error, ModelError::Unknown { .. } | ModelError::Refused { .. }) {
            self.end(id, &Outcome::Unknown(error.to_string())).await?;
            reservation.keep();
        } else {
            self.end(id, &Outcome::Failed(error.to_string())).await?;
            reservation.release();
        }
        if self.parts.closed.is_cancelled() { Err(CallError::Cancelled) } else { Err(error.into()) }
    }

    /// Completes when whoever asks waits no longer, or never.
    async fn out_of_patience(&self, prompt: &Prompt) {
        match prompt.patience {
            Some(patience) => self.parts.clock.deadline(patience).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a reservation, unless the run is stopped.
    pub(super) async fn unless_closing(
        &self,
        reserving: impl Future<Output = Result<Reservation, Refusal>>,
    ) -> Result<Reservation, CallError> {
        tokio::select! {
            biased;
            () = self.parts.closing.cancelled() => Err(CallError::Cancelled),
            reserved = reserving => reserved.map_err(|refusal| CallError::Limit(refusal.limit())),
        }
    }

    pub(super) async fn end(&self, id: i64, outcome: &Outcome) -> Result<(), CallError> {
        Ok(self.parts.run.end_call(id, outcome, self.parts.clock.now()).await?)
    }

    fn random(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).random()
    }
}

impl Caller for Desk {
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>> {
        let span = info_span!("call", %key, role = %prompt.role, tokens = Empty);
        Box::pin(self.make(key, prompt).instrument(span))
    }

    fn count(&self, role: Role, text: &str) -> u64 {
        self.parts.models.role(role).counter.count(text) as u64
    }

    fn input_limit(&self, role: Role) -> u64 {
        let limit = self.parts.models.role(role).max_input_tokens;
        let writes = role == Role::Writer && self.writing.load(Ordering::SeqCst);
        if writes { limit.min(self.writing_input) } else { limit }
    }

    fn output_limit(&self, role: Role) -> u32 {
        self.parts.models.role(role).max_output_tokens
    }

    fn is_tight(&self, key: &CallKey) -> bool {
        let mut tight = self.tight.lock().unwrap_or_else(PoisonError::into_inner);
        *tight.entry(key.clone()).or_insert_with(|| self.parts.budget.is_tight())
    }
}

/// Returns what is set aside for writing the report, and the tokens of a prompt it pays for.
///
/// It pays for [`WRITING_CALLS`] calls of the writer at their worst, or for a third of what there is, whichever is less:
/// a run whose limits are small still does some research. Where that leaves two calls too little to say, it pays for one.
pub fn writing_reserve(models: &Models, limits: &BudgetLimits) -> (WritingReserve, u64) {
    let writer = models.role(Role::Writer);
    let probe = Prompt::new(Role::Writer, "", "", writer.max_output_tokens);
    let output = writer.model.max_output(&probe);
    let wanted = WRITING_CALLS * (writer.max_input_tokens + output);
    let tokens = wanted.min(limits.tokens.map_or(u64::MAX, |limit| limit / 3));
    let input = |calls: u64| (tokens / calls).saturating_sub(output).min(writer.max_input_tokens);
    let calls = if input(WRITING_CALLS) < LEAST_WRITING_INPUT { 1 } else { WRITING_CALLS };
    let input = input(calls);
    let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
    let cost = calls * writer.model.cost_nanos(&usage).unwrap_or(0);
    let reserve = WritingReserve {
        cost_nanos: cost.min(limits.cost_nanos.map_or(u64::MAX, |limit| limit / 3)),
        tokens,
        time: WRITING_TIME.min(limits.time.map_or(WRITING_TIME, |limit| limit / 5)),
    };
    (reserve, input)
}

/// Returns what tells a request from every other: the model and all of the prompt.
fn request_hash(model: &dyn Model, prompt: &Prompt) -> ContentHash {
    let prompt = serde_json::to_string(prompt).unwrap_or_default();
    ContentHash::of(format!("{}\n{prompt}", model.name()).as_bytes())
}

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        Self::Journal { reason: with_causes(&error) }
    }
}
