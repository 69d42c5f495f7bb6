//! Sends the prompts of a run. Each is paid for by a ticket of the [`super::ledger`].
//!
//! ```text
//! on record? ─▶ the stored reply
//!     │ no
//! open a ticket ─▶ send once ─▶ settle it ─▶ reply
//!     ▲                │
//!     └──── wait ◀─────┘ if the retry table allows another attempt
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::budget::{BudgetLimits, CallCost, Purpose, WritingReserve};
use super::journal::{CallRow, CallState, NewCall};
use super::ledger::{Ledger, Reserving};
use crate::base::id::ContentHash;
use crate::base::retry::Policy;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::Models;

/// Calls of the writer whose cost is reserved beforehand: the report, and one retry.
const WRITING_CALLS: u64 = 2;

/// Fewest prompt tokens with which a report can be written.
const LEAST_WRITING_INPUT: u64 = 2_000;

/// Time reserved for writing.
const WRITING_TIME: Duration = Duration::from_mins(2);

/// Sends the prompts of one run and returns their replies, stored or new.
pub(crate) struct Desk {
    ledger: Arc<Ledger>,
    models: Models,
    /// Cancelled to abandon calls in flight.
    closed: CancellationToken,
    /// Prompt tokens covered by the reserve for writing.
    writing_input: u64,
    writing: AtomicBool,
    tight: Mutex<HashMap<CallKey, bool>>,
}

impl Desk {
    /// Sets up the prompts of a run. `recorded` are the calls it made before.
    pub(crate) fn open(ledger: Arc<Ledger>, models: Models, closed: CancellationToken, recorded: &[CallRow]) -> Self {
        Self {
            writing_input: writing_reserve(&models, &ledger.budget().limits()).1,
            writing: AtomicBool::new(false),
            tight: Mutex::new(recorded.iter().map(|call| (call.key.clone(), call.is_tight)).collect()),
            ledger,
            models,
            closed,
        }
    }

    /// Lets later calls use the reserve for writing the report.
    pub(crate) fn begin_writing(&self) {
        self.writing.store(true, Ordering::SeqCst);
    }

    async fn make(&self, key: &CallKey, prompt: &Prompt) -> Result<Reply, CallError> {
        let model = Arc::clone(&self.models.role(prompt.role).model);
        let request = request_hash(model.as_ref(), prompt);
        let _turn = self.ledger.turn(&request).await?;
        let recorded = self.ledger.calls_for(&request).await?;
        if let Some(reply) = on_record(key, &recorded) {
            return Ok(reply);
        }
        let (counted, output) = (model.count_input(prompt), model.max_output(prompt));
        let limit = model.window_tokens().saturating_sub(output);
        if counted > limit {
            return Err(ModelError::ContextTooLong { prompt_tokens: counted, limit_tokens: limit }.into());
        }
        // Left in flight by a process that died. It stays charged, so that the next request is charged as a second one.
        for call in recorded.iter().filter(|call| call.state == CallState::Sent) {
            self.ledger.give_up(call).await?;
        }
        let worst = Usage { input_tokens: counted, output_tokens: output, ..Usage::default() };
        let call = NewCall {
            key: key.clone(),
            role: prompt.role,
            model: model.name().to_owned(),
            request,
            purpose: self.purpose(),
            is_tight: self.is_tight(key),
            counted_tokens: counted,
            worst_tokens: worst.tokens(),
            worst_cost: model.cost_nanos(&worst),
        };
        let policy = if prompt.patience.is_some() { Policy::OPTIONAL_PROMPT } else { Policy::PROMPT };
        self.ledger.retry(&policy, key, || self.send(model.as_ref(), prompt, &call)).await
    }

    /// Sends a request once and settles its cost.
    async fn send(&self, model: &dyn Model, prompt: &Prompt, call: &NewCall) -> Result<Reply, CallError> {
        let call = NewCall { purpose: self.purpose(), ..call.clone() };
        let reserving = if prompt.patience.is_some() { Reserving::IfItFits } else { Reserving::InTurn };
        let ticket = self.ledger.open(&call, reserving, self.out_of_patience(prompt)).await?;
        let unknown = |reason: &str| Err(ModelError::Unknown { reason: reason.to_owned() });
        let result = tokio::select! {
            result = model.send(prompt) => result,
            () = self.closed.cancelled() => unknown("run was stopped"),
            () = self.ledger.budget().time_up(call.purpose) => unknown("time of the run is up"),
            () = self.out_of_patience(prompt) => unknown("timed out waiting for the reply"),
        };
        let error = match result {
            Ok(reply) => {
                let cost = CallCost {
                    cost_nanos: reply.usage.as_ref().map_or(call.worst_cost, |usage| model.cost_nanos(usage)),
                    tokens: reply.usage.map_or(call.worst_tokens, |usage| usage.tokens()),
                };
                Span::current().record("tokens", cost.tokens);
                ticket.replied(reply.clone(), cost).await?;
                return Ok(reply);
            }
            Err(error) => error,
        };
        match &error {
            // A refusal was generated and is charged, but the error does not carry its usage.
            ModelError::Unknown { .. } | ModelError::Refused { .. } => ticket.unknown(error.to_string()).await?,
            ModelError::Transient { .. }
            | ModelError::RateLimited { .. }
            | ModelError::ContextTooLong { .. }
            | ModelError::InvalidOutput { .. }
            | ModelError::Quota
            | ModelError::Authentication
            | ModelError::Permanent { .. }
            | ModelError::NoResearch { .. } => ticket.failed(error.to_string()).await?,
        }
        if self.closed.is_cancelled() { Err(CallError::Cancelled) } else { Err(error.into()) }
    }

    fn purpose(&self) -> Purpose {
        if self.writing.load(Ordering::SeqCst) { Purpose::Writing } else { Purpose::Research }
    }

    /// Completes when the patience of an optional prompt runs out; never for others.
    async fn out_of_patience(&self, prompt: &Prompt) {
        match prompt.patience {
            Some(patience) => self.ledger.clock().deadline(patience).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the stored reply to a request: the one under its own key, so that a resumed run gets the same replies as the
/// first, or else the oldest.
fn on_record(key: &CallKey, recorded: &[CallRow]) -> Option<Reply> {
    let own = recorded.iter().filter(|call| call.key == *key).find_map(|call| call.reply.clone());
    own.or_else(|| recorded.iter().find_map(|call| call.reply.clone()))
}

impl Caller for Desk {
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>> {
        let span = info_span!("call", %key, role = %prompt.role, tokens = Empty);
        Box::pin(self.make(key, prompt).instrument(span))
    }

    fn count(&self, role: Role, text: &str) -> u64 {
        self.models.role(role).counter.count(text) as u64
    }

    fn input_limit(&self, role: Role) -> u64 {
        let limit = self.models.role(role).max_input_tokens;
        let writes = role == Role::Writer && self.writing.load(Ordering::SeqCst);
        if writes { limit.min(self.writing_input) } else { limit }
    }

    fn output_limit(&self, role: Role) -> u32 {
        self.models.role(role).max_output_tokens
    }

    fn is_tight(&self, key: &CallKey) -> bool {
        let mut tight = self.tight.lock().unwrap_or_else(PoisonError::into_inner);
        *tight.entry(key.clone()).or_insert_with(|| self.ledger.budget().is_tight())
    }
}

/// Returns the reserve for writing the report, and the tokens of a prompt it pays for.
///
/// It covers the worst case of [`WRITING_CALLS`] calls of the writer, but at most a third of the limits, so that a run
/// with small limits can still do research. If that is too little for two calls, it covers one.
pub(crate) fn writing_reserve(models: &Models, limits: &BudgetLimits) -> (WritingReserve, u64) {
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

/// Returns the identity of a request: the model and all of the prompt.
fn request_hash(model: &dyn Model, prompt: &Prompt) -> ContentHash {
    let prompt = serde_json::to_string(prompt).unwrap_or_default();
    ContentHash::of(format!("{}\n{prompt}", model.name()).as_bytes())
}
