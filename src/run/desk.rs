//! Sends the prompts of a run. Each is paid for by a ticket of the [`super::ledger`].
//!
//! ```text
//! on record? ─▶ the stored reply
//!     │ no
//! open a ticket ─▶ send once ─▶ settle it ─▶ reply
//!     ▲                │
//!     └──── wait ◀─────┘ if the retry table allows another attempt
//! ```

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::budget::{CallCost, Hold, Limit, Purpose};
use super::journal::{Call, CallKind, CallRow, CallState, PromptCall};
use super::ledger::{Ledger, Reserving};
use super::outlook::{Found, Outlook, writing_input};
use super::spans::{attach_output, attach_reply, attach_server};
use super::tree::RunState;
use crate::base::id::ContentHash;
use crate::base::mutex::locked;
use crate::base::retry::Policy;
use crate::base::step::{KeyPart, Step};
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::{Models, RoleModel};
use crate::source::Label;
use crate::traces::attach;

/// Sends the prompts of one run and returns their replies, stored or new.
pub(crate) struct Desk {
    ledger: Arc<Ledger>,
    models: Models,
    /// Cancelled to abandon calls in flight.
    closed: CancellationToken,
    writing: AtomicBool,
    /// By call, whether the budget was tight, which its prompt mentions. A resumed run must say the same, or it would
    /// not find the reply on record.
    tight: Mutex<HashMap<CallKey, bool>>,
    /// Keys whose last reply was on record.
    replayed: Mutex<HashSet<CallKey>>,
    outlook: Outlook,
}

impl Desk {
    /// Sets up the prompts of a run. `recorded` are the calls it made before.
    pub(crate) fn open(ledger: Arc<Ledger>, models: Models, closed: CancellationToken, recorded: &[CallRow]) -> Self {
        Self {
            writing: AtomicBool::new(false),
            tight: Mutex::new(
                recorded.iter().filter_map(|call| Some((call.key.clone(), call.prompt()?.is_tight))).collect(),
            ),
            replayed: Mutex::default(),
            outlook: Outlook::new(models.clone(), recorded),
            ledger,
            models,
            closed,
        }
    }

    /// Lets later calls use the reserve for writing the report.
    pub(crate) fn begin_writing(&self) {
        self.writing.store(true, Ordering::SeqCst);
    }

    /// Returns whether the report is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::SeqCst)
    }

    /// Returns whether a worker of this run was told to wrap up because the run nears a limit.
    pub(super) fn has_hurried(&self) -> bool {
        locked(&self.tight).iter().any(|(key, is_tight)| *is_tight && tells_of_limits(key))
    }

    /// Returns whether the last reply under a key was on record.
    pub(super) fn is_replayed(&self, key: &CallKey) -> bool {
        locked(&self.replayed).contains(key)
    }

    /// Updates the steps that are due to open nodes and the reserve for writing, after an event.
    pub(crate) fn plan_ahead(&self, state: &RunState) {
        let found = Found::of(state);
        self.outlook.update(state, &found);
        let budget = self.ledger.budget();
        budget.keep_for_writing(self.outlook.writing(&found, &budget.limits()));
    }

    /// Returns the number of nodes that the limits pay for, beside planning, judging and writing; `None` without
    /// limits.
    pub(crate) fn nodes_paid_for(&self) -> Option<u32> {
        self.outlook.nodes_paid_for(&self.ledger.budget().limits())
    }

    /// Returns the limit that leaves no room for two more steps, if one does.
    pub(crate) fn limit_ahead(&self) -> Option<Limit> {
        self.ledger.budget().limit_ahead(self.outlook.next())
    }

    /// Returns whether the work that is due and the next two steps do not fit any more.
    pub(crate) fn is_tight_now(&self) -> bool {
        self.ledger.budget().is_tight(self.outlook.next())
    }

    /// Returns the amount a call must leave: a step beyond those due to its node leaves everything that is due, and a
    /// draft its verdict. Other calls are due themselves, and under a small limit some research is better than none.
    fn leaving(&self, key: &CallKey, role: Role) -> CallCost {
        match role {
            Role::Worker if !key.node().is_some_and(|node| self.outlook.take_step(node)) => self.outlook.dues(),
            Role::Writer if !self.is_writing() => self.outlook.verdict(),
            Role::Worker | Role::Writer | Role::Planner | Role::Summariser | Role::Judge => CallCost::default(),
        }
    }

    async fn make(&self, key: &CallKey, prompt: &Prompt, label: Label) -> Result<Reply, CallError> {
        let model = Arc::clone(&self.models.role(prompt.role).model);
        let prompt = &Prompt { cache_key: Some(self.cache_key(key, prompt.role)), ..prompt.clone() };
        let request = request_hash(model.as_ref(), prompt);
        // Held to the end: of two equal requests at once, the second finds the reply of the first on record.
        let _turn = self.ledger.turn(&request).await?;
        let recorded = self.ledger.calls_for(&request).await?;
        // Before the record is used: a step that it answers is taken, too, and a resumed run then has as many due steps
        // as the first.
        let leaving = self.leaving(key, prompt.role);
        if let Some(reply) = on_record(key, &recorded) {
            attach::flag("on_record", true);
            attach_output(&reply);
            locked(&self.replayed).insert(key.clone());
            return Ok(reply);
        }
        let (counted, output) = (model.count_input(prompt), model.max_output(prompt));
        // Refused here, before it is paid for: the reply shares the window.
        let limit = model.window_tokens().saturating_sub(output);
        if counted > limit {
            let reason = format!("{counted} tokens, more than {limit}");
            return Err(ModelError::ContextTooLong { reason }.into());
        }
        // Left in flight by a process that died. It stays charged, so that the next request is charged as a second one.
        for call in recorded.iter().filter(|call| call.state() == CallState::Sent) {
            self.ledger.give_up(call).await?;
        }
        let worst = Usage { input_tokens: counted, output_tokens: output, ..Usage::default() };
        let call = Call {
            key: key.clone(),
            kind: CallKind::Prompt(PromptCall {
                role: prompt.role,
                is_tight: self.is_tight(key),
                counted_tokens: counted,
                worst_tokens: worst.tokens(),
            }),
            model: model.name().to_owned(),
            request_hash: request,
            purpose: self.purpose(key, prompt.role),
            label,
            worst_cost: model.cost_nanos(&worst),
        };
        let hold = Hold {
            worst: call.worst(),
            likely: self.outlook.cost(prompt.role, counted, self.outlook.likely_output(prompt.role, output)),
            leaving,
        };
        let policy = if prompt.patience.is_some() { Policy::OPTIONAL_PROMPT } else { Policy::PROMPT };
        let reply = self.ledger.retry(&policy, key, || self.send(model.as_ref(), prompt, &call, hold)).await?;
        locked(&self.replayed).remove(key);
        Ok(reply)
    }

    /// Sends a request once and settles its cost.
    async fn send(&self, model: &dyn Model, prompt: &Prompt, call: &Call, hold: Hold) -> Result<Reply, CallError> {
        // The run may have begun to write since the attempt before.
        let call = Call { purpose: self.purpose(&call.key, prompt.role), ..call.clone() };
        // A step that is refused leaves others that may fit; the run ends if its node has found nothing by then.
        let can_be_left_out = prompt.patience.is_some() || prompt.role == Role::Worker;
        let reserving = if can_be_left_out { Reserving::IfItFits } else { Reserving::OrEndResearch };
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
                    // An endpoint that reports no usage is charged at the worst case.
                    cost_nanos: reply.usage.as_ref().map_or(hold.worst.cost_nanos, |usage| model.cost_nanos(usage)),
                    tokens: reply.usage.map_or(hold.worst.tokens, |usage| usage.tokens()),
                };
                Span::current().record("tokens", cost.tokens);
                attach_reply(&reply);
                if let Some(nanos) = cost.cost_nanos {
                    attach::dollars("cost", nanos);
                }
                if let Some(usage) = reply.usage {
                    self.outlook.learn(prompt.role, usage);
                }
                // On disk before anything uses it: a resumed run then finds it and does not pay again.
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
        // A stop is no failure of the node, which waits until the run is resumed.
        if self.closed.is_cancelled() { Err(CallError::Cancelled) } else { Err(error.into()) }
    }

    /// Returns a key that the calls of one conversation share: those of one role on one node.
    fn cache_key(&self, key: &CallKey, role: Role) -> String {
        // By owner and role: prompts of a worker begin alike, and share nothing with those of another.
        let name = format!("{} {} {role}", self.ledger.run().id(), key.owner());
        ContentHash::of(name.as_bytes()).as_str()[..16].to_owned()
    }

    /// Returns the purpose of a call. The draft of a round and its verdict are paid from the reserve: the draft is the
    /// report unless another round follows. The output of a node is research.
    fn purpose(&self, key: &CallKey, role: Role) -> Purpose {
        let is_report = matches!(role, Role::Writer | Role::Judge) && key.node().is_none();
        if is_report || self.is_writing() { Purpose::Writing } else { Purpose::Research }
    }

    /// Attaches prompt, model and endpoint to the span of a call.
    fn attach_request(&self, prompt: &Prompt) {
        let RoleModel { model, endpoint, .. } = self.models.role(prompt.role);
        attach::word("model", model.name());
        attach::count("max_tokens", model.max_output(prompt));
        attach_server(endpoint);
        if prompt.schema.is_some() {
            attach::word("format", "json");
        }
        let messages = prompt.messages.iter().map(|message| (message.speaker.name(), message.text.as_str()));
        attach::messages("input", messages, None);
    }

    /// Completes when the patience of an optional prompt runs out; never for others.
    async fn out_of_patience(&self, prompt: &Prompt) {
        match prompt.patience {
            Some(patience) => self.ledger.clock().deadline(patience).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns whether the prompt with this key tells a worker that the run nears a limit, if the run does. First prompts
/// and repairs never do.
fn tells_of_limits(key: &CallKey) -> bool {
    let parts: Vec<_> = key.parts().skip_while(|part| *part != KeyPart::Step(Step::Work)).collect();
    matches!(parts.as_slice(), [_, KeyPart::Id(step)] if *step != "1")
}

/// Returns the stored reply to a request: the one under its own key, so that a resumed run gets the same replies as the
/// first, or else the oldest.
fn on_record(key: &CallKey, recorded: &[CallRow]) -> Option<Reply> {
    let own = recorded.iter().filter(|call| call.key == *key).find_map(|call| call.reply().cloned());
    // A reply to the same request under another key is as good, and paid for.
    own.or_else(|| recorded.iter().find_map(|call| call.reply().cloned()))
}

/// A desk whose calls have a label: that of the strictest text their prompts may contain.
pub(crate) trait Labelled: Send + Sync {
    const LABEL: Label;

    fn desk(&self) -> &Desk;
}

impl Labelled for Desk {
    const LABEL: Label = Label::Internal;

    fn desk(&self) -> &Self {
        self
    }
}

/// The desk for conversations that face outward. Their calls are labelled public, since their prompts may leave.
pub(crate) struct Outward<D>(pub(crate) D);

impl<D: Deref<Target = Desk> + Send + Sync> Labelled for Outward<D> {
    const LABEL: Label = Label::Public;

    fn desk(&self) -> &Desk {
        &self.0
    }
}

impl<L: Labelled> Caller for L {
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>> {
        let desk = self.desk();
        let span = info_span!("call", %key, role = %prompt.role, tokens = Empty, dollars = Empty);
        let call = async move {
            desk.attach_request(prompt);
            let reply = desk.make(key, prompt, L::LABEL).await;
            if let Err(error) = &reply {
                attach::word("error", error.class());
            }
            reply
        };
        Box::pin(call.instrument(span))
    }

    fn count(&self, role: Role, text: &str) -> u64 {
        self.desk().models.role(role).counter.count(text) as u64
    }

    fn input_limit(&self, role: Role) -> u64 {
        let desk = self.desk();
        let limit = desk.models.role(role).max_input_tokens;
        if role == Role::Writer && desk.is_writing() {
            limit.min(writing_input(&desk.models, &desk.ledger.budget().left_for_writing()))
        } else {
            limit
        }
    }

    fn output_limit(&self, role: Role) -> u32 {
        self.desk().models.role(role).max_output_tokens
    }

    fn is_tight(&self, key: &CallKey) -> bool {
        let mut tight = locked(&self.desk().tight);
        *tight.entry(key.clone()).or_insert_with(|| self.desk().is_tight_now())
    }

    fn can_pay(&self, first: &CallKey, role: Role, prompts: &[u64]) -> bool {
        let desk = self.desk();
        // A resumed run has paid for some of them: it goes on as it began.
        if locked(&desk.tight).contains_key(first) {
            return true;
        }
        let verdict = desk.outlook.verdict() * u64::from(!desk.is_writing());
        let all = verdict + desk.outlook.of_prompts(role, prompts);
        desk.ledger.budget().fits_alone(all, Purpose::Writing)
    }
}

/// Returns the identity of a request: the model and all of the prompt.
fn request_hash(model: &dyn Model, prompt: &Prompt) -> ContentHash {
    let prompt = serde_json::to_string(prompt).expect("a prompt of texts, numbers and a schema is always JSON");
    ContentHash::of(format!("{}\n{prompt}", model.name()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_of_a_worker_tell_of_limits_and_nothing_else_does() {
        for (key, tells) in [
            ("n3/step/2", true),
            ("n3/step/12", true),
            ("n3/step/1", false),
            ("n3/step/2/repair", false),
            ("n3/report", false),
            ("draft/2/answer", false),
        ] {
            assert_eq!(tells_of_limits(&CallKey::new(key)), tells, "{key}");
        }
    }
}
