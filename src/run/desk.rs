//! Sends the prompts of a run. Each is paid for by a ticket of the [`super::ledger`].
//!
//! ```text
//! on record? ─▶ the stored reply
//!     │ no
//! open a ticket ─▶ send once ─▶ settle it ─▶ reply
//!     ▲                │
//!     └──── wait ◀─────┘ if the retry table allows another attempt
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::budget::{BudgetLimits, CallCost, Hold, Purpose, WritingReserve};
use super::journal::{CallRow, CallState, NewCall};
use super::ledger::{Ledger, Reserving};
use super::outward::estimate;
use super::tree::RunState;
use crate::base::id::ContentHash;
use crate::base::retry::Policy;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::Models;
use crate::research::branch::Branch;
use crate::research::memory::branch_text;
use crate::research::node::{Node, NodeStatus};

/// Calls of the writer whose cost is reserved beforehand: the report, and one retry.
const WRITING_CALLS: u64 = 2;

/// Fewest prompt tokens with which a report can be written.
const LEAST_WRITING_INPUT: u64 = 2_000;

/// Time reserved for writing.
const WRITING_TIME: Duration = Duration::from_mins(2);

/// Steps that every node is granted before any node takes more.
const DUE_STEPS: u32 = 2;

/// Prompt and reply tokens of a call, as long as fewer than [`LEARNED_FROM`] calls of its role were observed.
const UNKNOWN_SIZE: (u64, u64) = (3_000, 1_000);

/// Calls of a role after which their sizes say what the next one will take.
const LEARNED_FROM: u64 = 2;

/// Tokens of the writer's prompt besides findings and quotes.
const WRITING_RULES: u64 = 1_500;

/// Tokens of the findings and quotes of a node that has none yet.
const UNKNOWN_BRANCH: u64 = 1_500;

/// Tokens that research takes for one node, used to tell the planner how many the limits pay for: a plan cannot depend on
/// what a run has spent, or a resumed run would buy it again.
const NODE_TOKENS: u64 = 18_000;

/// Sends the prompts of one run and returns their replies, stored or new.
pub(crate) struct Desk {
    ledger: Arc<Ledger>,
    models: Models,
    /// Cancelled to abandon calls in flight.
    closed: CancellationToken,
    writing: AtomicBool,
    tight: Mutex<HashMap<CallKey, bool>>,
    sizes: Mutex<HashMap<Role, Sizes>>,
    /// Steps still due to each node that is not settled.
    due: Mutex<BTreeMap<String, u32>>,
}

/// The largest calls of a role so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    calls: u64,
    input: u64,
    output: u64,
}

impl Sizes {
    fn add(&mut self, usage: Usage) {
        self.calls += 1;
        self.input = self.input.max(usage.input_tokens);
        self.output = self.output.max(usage.output_tokens);
    }
}

impl Desk {
    /// Sets up the prompts of a run. `recorded` are the calls it made before.
    pub(crate) fn open(ledger: Arc<Ledger>, models: Models, closed: CancellationToken, recorded: &[CallRow]) -> Self {
        let mut sizes: HashMap<Role, Sizes> = HashMap::new();
        for (role, usage) in recorded.iter().filter_map(|call| Some((call.role, call.usage?))) {
            sizes.entry(role).or_default().add(usage);
        }
        Self {
            writing: AtomicBool::new(false),
            tight: Mutex::new(recorded.iter().map(|call| (call.key.clone(), call.is_tight)).collect()),
            sizes: Mutex::new(sizes),
            due: Mutex::default(),
            ledger,
            models,
            closed,
        }
    }

    /// Lets later calls use the reserve for writing the report.
    pub(crate) fn begin_writing(&self) {
        self.writing.store(true, Ordering::SeqCst);
    }

    /// Updates what is due to the nodes that are not settled, and what writing will need, after an event.
    pub(crate) fn plan_ahead(&self, state: &RunState) {
        let is_open = |node: &&Node| !node.status.is_settled();
        let open: Vec<_> = state.tree.workers().filter(is_open).collect();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.retain(|id, _| open.iter().any(|node| node.id.to_string() == *id));
        for node in &open {
            let steps = if node.only_concludes() { 0 } else { DUE_STEPS };
            let known = due.entry(node.id.to_string()).or_insert(steps);
            if node.status == NodeStatus::Pending {
                *known = steps;
            }
        }
        drop(due);
        self.ledger.budget().keep_for_writing(self.writing_needs(state, open.len() as u64));
    }

    /// Returns what two attempts to write and a verdict will need, judged by what was found. The first attempt is counted at
    /// its worst case.
    fn writing_needs(&self, state: &RunState, open: u64) -> CallCost {
        let size = |branch: &Branch| {
            let quotes: u64 = branch.evidence.iter().map(|quote| estimate(&quote.quote) + 40).sum();
            estimate(&branch_text(branch)) + quotes
        };
        let (found, all): (u64, u64) = (state.branches.len() as u64, state.branches.values().map(size).sum());
        let each = all.checked_div(found).unwrap_or(UNKNOWN_BRANCH).max(UNKNOWN_BRANCH / 2);
        let writer = self.models.role(Role::Writer);
        let input = (WRITING_RULES + all + open * each).min(writer.max_input_tokens);
        let output = self.max_output(Role::Writer);
        let first = self.cost(Role::Writer, input, output);
        let second = self.cost(Role::Writer, input, self.likely_output(Role::Writer, output));
        let needed = first + second + self.likely(Role::Judge);
        let most = writing_reserve(&self.models, &self.ledger.budget().limits());
        CallCost {
            cost_nanos: needed.cost_nanos.map(|cost| cost.min(most.cost_nanos)),
            tokens: needed.tokens.min(most.tokens),
        }
    }

    /// Returns the number of nodes that the limits pay for, beside planning, judging and writing; `None` without limits.
    pub(crate) fn nodes_paid_for(&self) -> Option<u32> {
        let limits = self.ledger.budget().limits();
        let reserve = writing_reserve(&self.models, &limits);
        let node = self.cost(Role::Worker, NODE_TOKENS * 4 / 5, NODE_TOKENS / 5);
        let of = |limit: Option<u64>, reserve: u64, each: u64| {
            limit.map(|limit| limit.saturating_sub(reserve).checked_div(each).unwrap_or(u64::MAX))
        };
        let by_tokens = of(limits.tokens, reserve.tokens / 2, node.tokens);
        let by_cost = of(limits.cost_nanos, reserve.cost_nanos / 2, node.cost_nanos.unwrap_or(0));
        let nodes = by_tokens.into_iter().chain(by_cost).min()?;
        Some(u32::try_from(nodes).unwrap_or(u32::MAX).max(1))
    }

    fn cost(&self, role: Role, input_tokens: u64, output_tokens: u64) -> CallCost {
        let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        CallCost { cost_nanos: self.models.role(role).model.cost_nanos(&usage), tokens: usage.tokens() }
    }

    fn max_output(&self, role: Role) -> u64 {
        let role_model = self.models.role(role);
        role_model.model.max_output(&Prompt::new(role, "", "", role_model.max_output_tokens))
    }

    fn sizes(&self, role: Role) -> Sizes {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.get(&role).copied().filter(|sizes| sizes.calls >= LEARNED_FROM).unwrap_or_default()
    }

    /// Returns the output a call of a role is likely to have at most: half more than the largest so far.
    fn likely_output(&self, role: Role, most: u64) -> u64 {
        match self.sizes(role) {
            Sizes { calls: 0, .. } => most,
            Sizes { output, .. } => (output + output / 2 + 100).min(most),
        }
    }

    /// Returns what the next call of a role is likely to cost.
    fn likely(&self, role: Role) -> CallCost {
        match self.sizes(role) {
            Sizes { calls: 0, .. } => self.cost(role, UNKNOWN_SIZE.0, UNKNOWN_SIZE.1),
            Sizes { input, .. } => self.cost(role, input, self.likely_output(role, self.max_output(role))),
        }
    }

    /// Returns what is due: the first steps and the report of every node that is not settled.
    fn dues(&self) -> CallCost {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let (nodes, steps) = (due.len() as u64, due.values().copied().map(u64::from).sum::<u64>());
        drop(due);
        self.likely(Role::Worker) * steps + self.likely(Role::Summariser) * nodes
    }

    /// Returns what a call has to leave: a step beyond those due to its node leaves everything that is due, and a draft its
    /// verdict. Other calls are due themselves, and under a small limit some research is better than none.
    fn leaving(&self, key: &CallKey, role: Role) -> CallCost {
        if role == Role::Writer && !self.writing.load(Ordering::SeqCst) {
            return self.likely(Role::Judge);
        }
        if role != Role::Worker {
            return CallCost::default();
        }
        let node = key.as_str().split('/').next().unwrap_or_default();
        let is_due = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.get_mut(node).is_some_and(|steps| {
                let is_due = *steps > 0;
                *steps = steps.saturating_sub(1);
                is_due
            })
        };
        if is_due { CallCost::default() } else { self.dues() }
    }

    async fn make(&self, key: &CallKey, prompt: &Prompt) -> Result<Reply, CallError> {
        let model = Arc::clone(&self.models.role(prompt.role).model);
        let prompt = &Prompt { cache_key: Some(self.cache_key(key, prompt.role)), ..prompt.clone() };
        let request = request_hash(model.as_ref(), prompt);
        let _turn = self.ledger.turn(&request).await?;
        let recorded = self.ledger.calls_for(&request).await?;
        if let Some(reply) = on_record(key, &recorded) {
            self.leaving(key, prompt.role);
            return Ok(reply);
        }
        let leaving = self.leaving(key, prompt.role);
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
            purpose: self.purpose(key),
            is_tight: self.is_tight(key),
            counted_tokens: counted,
            worst_tokens: worst.tokens(),
            worst_cost: model.cost_nanos(&worst),
        };
        let hold = Hold {
            worst: CallCost { cost_nanos: call.worst_cost, tokens: call.worst_tokens },
            likely: self.cost(prompt.role, counted, self.likely_output(prompt.role, output)),
            leaving,
        };
        let policy = if prompt.patience.is_some() { Policy::OPTIONAL_PROMPT } else { Policy::PROMPT };
        self.ledger.retry(&policy, key, || self.send(model.as_ref(), prompt, &call, hold)).await
    }

    /// Sends a request once and settles its cost.
    async fn send(&self, model: &dyn Model, prompt: &Prompt, call: &NewCall, hold: Hold) -> Result<Reply, CallError> {
        let call = NewCall { purpose: self.purpose(&call.key), ..call.clone() };
        // A step that is refused leaves others that may fit; the run ends if its node has found nothing by then.
        let can_be_left_out = prompt.patience.is_some() || prompt.role == Role::Worker;
        let reserving = if can_be_left_out { Reserving::IfItFits } else { Reserving::InTurn };
        let ticket = self.ledger.open_holding(&call, hold, reserving, self.out_of_patience(prompt)).await?;
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
                if let Some(usage) = reply.usage {
                    let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
                    sizes.entry(prompt.role).or_default().add(usage);
                }
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

    /// Returns whether what is due and the next two steps do not fit any more.
    pub(crate) fn is_tight_now(&self) -> bool {
        self.ledger.budget().is_tight(self.dues() + self.likely(Role::Worker) * 2)
    }

    /// Returns a key that the calls of one conversation share: those of one role on one node.
    fn cache_key(&self, key: &CallKey, role: Role) -> String {
        let conversation = key.as_str().split('/').next().unwrap_or_default();
        let name = format!("{} {conversation} {role}", self.ledger.run().id());
        ContentHash::of(name.as_bytes()).as_str()[..16].to_owned()
    }

    /// Returns the purpose of a call. The draft of a round is the report, unless another round follows; its verdict is paid
    /// for once the draft is there.
    fn purpose(&self, key: &CallKey) -> Purpose {
        let is_draft = ["draft/", "judge/"].iter().any(|step| key.as_str().starts_with(step));
        if is_draft || self.writing.load(Ordering::SeqCst) { Purpose::Writing } else { Purpose::Research }
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
        if writes { limit.min(writing_input(&self.models, &self.ledger.budget().left_for_writing())) } else { limit }
    }

    fn output_limit(&self, role: Role) -> u32 {
        self.models.role(role).max_output_tokens
    }

    fn is_tight(&self, key: &CallKey) -> bool {
        let mut tight = self.tight.lock().unwrap_or_else(PoisonError::into_inner);
        *tight.entry(key.clone()).or_insert_with(|| self.is_tight_now())
    }

    fn can_pay(&self, role: Role, prompts: &[u64]) -> bool {
        let output = match self.sizes(role) {
            Sizes { calls: 0, .. } => UNKNOWN_SIZE.1,
            Sizes { .. } => self.likely_output(role, self.max_output(role)),
        };
        let verdict = u64::from(!self.writing.load(Ordering::SeqCst));
        let all = self.likely(Role::Judge) * verdict;
        let all = prompts.iter().fold(all, |all, input| all + self.cost(role, *input, output));
        self.ledger.budget().fits_alone(all, Purpose::Writing)
    }
}

/// Returns the most that is set aside for writing the report: the worst case of [`WRITING_CALLS`] calls of the writer, but
/// at most a third of the limits, so that a run with small limits can still do research.
pub(crate) fn writing_reserve(models: &Models, limits: &BudgetLimits) -> WritingReserve {
    let writer = models.role(Role::Writer);
    let output = writer.model.max_output(&Prompt::new(Role::Writer, "", "", writer.max_output_tokens));
    let usage = Usage { input_tokens: writer.max_input_tokens, output_tokens: output, ..Usage::default() };
    let third = |limit: Option<u64>| limit.map_or(u64::MAX, |limit| limit / 3);
    let cost = writer.model.cost_nanos(&usage).unwrap_or(0);
    WritingReserve {
        cost_nanos: (WRITING_CALLS * cost).min(third(limits.cost_nanos)),
        tokens: (WRITING_CALLS * usage.tokens()).min(third(limits.tokens)),
        time: WRITING_TIME.min(limits.time.map_or(WRITING_TIME, |limit| limit / 5)),
    }
}

/// Returns the tokens of a writer's prompt that `left` pays for: in [`WRITING_CALLS`] calls or, if that is too little, in
/// one.
fn writing_input(models: &Models, left: &BudgetLimits) -> u64 {
    let writer = models.role(Role::Writer);
    let output = writer.model.max_output(&Prompt::new(Role::Writer, "", "", writer.max_output_tokens));
    let pays = |input: u64, calls: u64| {
        let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let cost = writer.model.cost_nanos(&usage).unwrap_or(0);
        left.tokens.is_none_or(|left| usage.tokens() * calls <= left)
            && left.cost_nanos.is_none_or(|left| cost * calls <= left)
    };
    let calls = if pays(LEAST_WRITING_INPUT, WRITING_CALLS) { WRITING_CALLS } else { 1 };
    let mut input = writer.max_input_tokens;
    while input > LEAST_WRITING_INPUT && !pays(input, calls) {
        input = input * 15 / 16;
    }
    input
}

/// Returns the identity of a request: the model and all of the prompt.
fn request_hash(model: &dyn Model, prompt: &Prompt) -> ContentHash {
    let prompt = serde_json::to_string(prompt).unwrap_or_default();
    ContentHash::of(format!("{}\n{prompt}", model.name()).as_bytes())
}
