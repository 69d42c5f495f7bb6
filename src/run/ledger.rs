//! The ledger of a run: everything that is paid for is reserved and stored before it is sent, and settled once.
//!
//! ```text
//! open(worst case) ─▶ Ticket ─┬▶ replied   the reply is stored and its cost settled
//!                             ├▶ failed    nothing was charged
//!                             ├▶ unknown   the worst case stays charged
//!                             ├▶ lost      no reply; the cost is settled if it is known
//!                             └▶ dropped   the worst case stays charged; its row stays `sent`
//! ```
//!
//! Prompts ([`super::desk`]) and background jobs ([`super::background`]) both go through here. A request whose reply is
//! stored is never bought again within the run, under any key. To get a second sample of the same
//! prompt, set [`crate::llm::message::Prompt::sample`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, BudgetRefusal, CallCost, Hold, Reservation};
use super::journal::{
    Call, CallKind, CallRow, CallState, JobEndpoint, JournalError, LockedRun, ProviderKind, StoredOutcome,
};
use crate::base::clock::{Clock, Moment};
use crate::base::id::{ContentHash, JobId};
use crate::base::line::with_causes;
use crate::base::mutex::locked;
use crate::base::retry::{Failure, Policy, retry};
use crate::llm::call::{CallError, CallKey};
use crate::llm::message::Reply;
use crate::llm::model::ModelError;

/// A call as it happens, for progress displays.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "CallLine")]
pub enum CallNotice {
    Sent(CallKey, CallKind),
    /// It is sent again after this failure.
    Retried(CallKey, String),
    Replied(CallKey, CallKind),
}

/// A [`CallNotice`] as JSON.
#[derive(Serialize)]
struct CallLine {
    what: &'static str,
    #[serde(flatten)]
    key: CallKey,
    /// Role of the model, or the failure before a retry.
    detail: String,
}

impl From<CallNotice> for CallLine {
    fn from(notice: CallNotice) -> Self {
        let (what, key, detail) = match notice {
            CallNotice::Sent(key, kind) => ("sent", key, kind.to_string()),
            CallNotice::Retried(key, error) => ("retried", key, error),
            CallNotice::Replied(key, kind) => ("replied", key, kind.to_string()),
        };
        Self { what, key, detail }
    }
}

/// Receives the calls of a run as they happen.
pub(crate) type CallListener = Arc<dyn Fn(&CallNotice) + Send + Sync>;

/// How the worst case of a call is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserving {
    /// Waits until it fits. A refusal ends the research.
    OrEndResearch,
    /// Waits until it fits. A refusal ends nothing: smaller calls may fit.
    IfItFits,
}

/// The paid calls of one run: reserves, stores and settles each.
pub(crate) struct Ledger {
    run: LockedRun,
    budget: Budget,
    clock: Arc<dyn Clock>,
    closing: CancellationToken,
    listener: CallListener,
    random: Mutex<StdRng>,
    /// A lock for each request that is being made.
    turns: Mutex<HashMap<ContentHash, Arc<tokio::sync::Mutex<()>>>>,
}

impl Ledger {
    /// Opens the ledger of a run. Once `closing` is cancelled, no new call is made. `seed` spreads the retry delays.
    pub(crate) fn new(
        run: LockedRun,
        budget: Budget,
        clock: Arc<dyn Clock>,
        closing: CancellationToken,
        listener: CallListener,
        seed: u64,
    ) -> Self {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        Self { run, budget, clock, closing, listener, random, turns: Mutex::default() }
    }

    pub(crate) fn run(&self) -> &LockedRun {
        &self.run
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Completes when no new call may be made.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Waits until no other task is making `request`. Hold the result while making it: the second task then finds the
    /// reply of the first.
    ///
    /// # Errors
    ///
    /// Returns [`CallError::Cancelled`] if the run is stopped meanwhile.
    pub(crate) async fn turn(&self, request: &ContentHash) -> Result<Turn<'_>, CallError> {
        let lock = {
            let mut turns = locked(&self.turns);
            Arc::clone(turns.entry(request.clone()).or_default())
        };
        let held = tokio::select! {
            held = lock.lock_owned() => held,
            () = self.closing() => return Err(CallError::Cancelled),
        };
        Ok(Turn { ledger: self, request: request.clone(), held: Some(held) })
    }

    /// Returns the calls of this run that made `request` under any key, oldest first.
    pub(crate) async fn calls_for(&self, request: &ContentHash) -> Result<Vec<CallRow>, CallError> {
        Ok(self.run.journal().calls_for(self.run.id(), request).await?)
    }

    /// Like [`Self::open_holding`], for a call of which only the worst case is known.
    pub(crate) async fn open(
        &self,
        call: &Call,
        reserving: Reserving,
        given_up: impl Future<Output = ()>,
    ) -> Result<Ticket, CallError> {
        self.open_holding(call, call.worst().into(), reserving, given_up).await
    }

    /// Reserves a call and stores that it is about to be sent. Gives up when `given_up` completes.
    ///
    /// # Errors
    ///
    /// Returns an error if the worst case does not fit, the run is stopped, or the journal fails; nothing is reserved
    /// then.
    pub(crate) async fn open_holding(
        &self,
        call: &Call,
        hold: Hold,
        reserving: Reserving,
        given_up: impl Future<Output = ()>,
    ) -> Result<Ticket, CallError> {
        let budget = &self.budget;
        let reserved = async {
            match reserving {
                Reserving::OrEndResearch => budget.reserve_or_end_research(hold, call.purpose).await,
                Reserving::IfItFits => budget.reserve_if_it_fits(hold, call.purpose).await,
            }
        };
        let mut reservation = tokio::select! {
            // Checks for a stop first: a run that ends opens no call, even if there is budget for it.
            biased;
            () = self.closing() => return Err(CallError::Cancelled),
            reserved = reserved => reserved.map_err(BudgetRefusal::limit).map_err(CallError::Limit)?,
            () = given_up => {
                let reason = "timed out waiting for budget".to_owned();
                // Not `Unknown`: nothing was sent, so nothing may be charged.
                return Err(ModelError::Transient { retry_after: None, reason }.into());
            }
        };
        // Before it counts as sent: if the journal fails, the request is not made and the reservation is returned.
        let id = self.run.begin_call(call, self.clock.now()).await?;
        (self.listener)(&CallNotice::Sent(call.key.clone(), call.kind));
        reservation.sent();
        Ok(self.ticket(id, CallState::Sent, call.key.clone(), call.kind, reservation))
    }

    /// Reopens a call whose job is polled again: its charge becomes a reservation. That is its worst case if an earlier
    /// process left it in flight, and its cost if only its reply is lost.
    ///
    /// A row can be read, and so reopened, more than once. The journal accepts the end of one ticket only: that of
    /// another finds a state it does not leave.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal fails; nothing is reserved then.
    pub(crate) async fn reopen(&self, call: CallRow) -> Result<Ticket, JournalError> {
        let state = match call.state() {
            // Its reply cannot be read. As `Replied`, it could be ended by any number of tickets.
            CallState::Replied => {
                self.run.lose_reply(call.id).await?;
                CallState::Damaged
            }
            state => state,
        };
        // As the row was charged when it was read. Tokens of jobs are not limited, see `charged_tokens`.
        let worst = CallCost { cost_nanos: call.charged_cost(), tokens: charged_tokens(&call) };
        let reservation = self.budget.take_back(worst, call.purpose);
        let Call { key, kind, .. } = call.call;
        Ok(self.ticket(call.id, state, key, kind, reservation))
    }

    fn ticket(&self, id: i64, state: CallState, key: CallKey, kind: CallKind, reservation: Reservation) -> Ticket {
        let (run, clock) = (self.run.clone(), Arc::clone(&self.clock));
        Ticket { id, state, key, kind, run, clock, listener: Arc::clone(&self.listener), reservation }
    }

    /// Closes a call that an earlier process left in flight. It stays charged.
    pub(crate) async fn give_up(&self, call: &CallRow) -> Result<(), CallError> {
        Ok(end_left(&self.run, call, LeftCall::InDoubt, self.clock.now()).await?)
    }

    /// Repeats `send` until it succeeds or the retry table rules out another attempt.
    pub(crate) async fn retry<T, E, S>(&self, policy: &Policy, key: &CallKey, send: impl Fn() -> S) -> Result<T, E>
    where
        E: Failure + From<CallError> + std::fmt::Display,
        S: Future<Output = Result<T, E>>,
    {
        let pause = |delay, error: E| async move {
            // No reservation is held meanwhile: each attempt opens a ticket of its own.
            self.pause(delay).await?;
            (self.listener)(&CallNotice::Retried(key.clone(), error.to_string()));
            Ok(())
        };
        retry(policy, || self.chance(), pause, send).await
    }

    /// Waits, unless the run is stopped.
    pub(crate) async fn pause(&self, delay: Duration) -> Result<(), CallError> {
        tokio::select! {
            () = self.clock.sleep(delay) => Ok(()),
            () = self.closing() => Err(CallError::Cancelled),
        }
    }

    /// Returns a random number from 0 to 1.
    pub(crate) fn chance(&self) -> f64 {
        locked(&self.random).random()
    }
}

/// How far a process got with a call that it left in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftCall {
    /// Its request was not sent, so nothing is charged.
    Unsent,
    /// Its request may have been carried out, so the worst case stays charged.
    InDoubt,
}

/// Ends a call that an earlier process left in flight.
///
/// It has no [`Ticket`], because its reservation ended with that process: nothing is held for it, and the budget charges
/// it by its row. An unsent call must therefore end before the budget of this process is set up from the rows.
pub(crate) async fn end_left(run: &LockedRun, call: &CallRow, left: LeftCall, at: Moment) -> Result<(), JournalError> {
    let ended_at = Some(at);
    let outcome = match left {
        LeftCall::Unsent => {
            StoredOutcome::Failed { ended_at, error: "process ended before the request was sent".to_owned() }
        }
        LeftCall::InDoubt => {
            StoredOutcome::Unknown { ended_at, error: "process ended before the reply was stored".to_owned() }
        }
    };
    run.end_call(call.id, CallState::Sent, outcome).await
}

/// The exclusive right to make one request, see [`Ledger::turn`].
#[must_use = "the request may be made by two tasks at once after this is dropped"]
pub(crate) struct Turn<'a> {
    ledger: &'a Ledger,
    request: ContentHash,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = locked(&self.ledger.turns);
        // Under the lock of the map, so that no task can join between this and the count.
        self.held = None;
        // The guard is gone, so the map counts one; more are tasks that wait for their turn.
        if turns.get(&self.request).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            turns.remove(&self.request);
        }
    }
}

/// A call in flight: reserved, stored, and not settled yet.
///
/// It ends once, by the method that consumes it. Dropped, its worst case stays charged and its row stays `sent`, so
/// that the next process can find it.
#[must_use = "a ticket that is dropped leaves its worst case charged"]
pub(crate) struct Ticket {
    id: i64,
    /// Its state in the journal, which the end replaces.
    state: CallState,
    key: CallKey,
    kind: CallKind,
    run: LockedRun,
    clock: Arc<dyn Clock>,
    listener: CallListener,
    /// Charges the worst case when it is dropped, because it was marked as sent.
    reservation: Reservation,
}

impl Ticket {
    /// Returns the number of the call in the journal.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn worst(&self) -> CallCost {
        self.reservation.worst()
    }

    /// Stores the id of the background job that the call has started, and where it can be polled. Must be called before the
    /// first poll.
    pub(crate) async fn attach(
        &self,
        job: &JobId,
        provider: ProviderKind,
        endpoint: JobEndpoint,
    ) -> Result<(), JournalError> {
        self.run.attach_job(self.id, job, provider, endpoint).await
    }

    /// Stores the reply and settles its cost; an unknown cost is settled at the worst case.
    pub(crate) async fn replied(self, reply: Reply, cost: CallCost) -> Result<(), JournalError> {
        let (usage, reply) = (reply.usage, Some(Box::new(reply)));
        let outcome = |ended_at| StoredOutcome::Replied { ended_at, reply, usage, cost: cost.cost_nanos };
        self.end(outcome).await?;
        // Before the notice, whose receiver reads what the run has spent.
        self.reservation.settle(cost);
        (self.listener)(&CallNotice::Replied(self.key, self.kind));
        Ok(())
    }

    /// Stores that the request was not carried out, and releases the reservation.
    pub(crate) async fn failed(self, reason: String) -> Result<(), JournalError> {
        // Stored first: after a crash in between, too much is charged and not too little.
        self.end(|ended_at| StoredOutcome::Failed { ended_at, error: reason }).await?;
        self.reservation.release();
        Ok(())
    }

    /// Stores that the request may have been carried out. The worst case stays charged.
    pub(crate) async fn unknown(self, reason: String) -> Result<(), JournalError> {
        self.end(|ended_at| StoredOutcome::Unknown { ended_at, error: reason }).await?;
        self.reservation.keep();
        Ok(())
    }

    /// Stores that no reply will arrive, and settles the cost if it is known.
    pub(crate) async fn lost(self, reason: String, cost: Option<CallCost>) -> Result<(), JournalError> {
        let known = cost.and_then(|cost| cost.cost_nanos);
        self.end(|ended_at| StoredOutcome::Lost { ended_at, error: reason, cost: known }).await?;
        match cost {
            Some(cost) => {
                self.reservation.settle(cost);
            }
            None => self.reservation.keep(),
        }
        Ok(())
    }

    /// Stores the outcome. The journal comes first: if it fails, the worst case stays charged.
    async fn end(&self, outcome: impl FnOnce(Option<Moment>) -> StoredOutcome) -> Result<(), JournalError> {
        self.run.end_call(self.id, self.state, outcome(Some(self.clock.now()))).await
    }
}

/// Returns the tokens a stored call is charged. Those of jobs do not count: jobs are limited by cost and number.
pub(crate) fn charged_tokens(call: &CallRow) -> u64 {
    match call.prompt() {
        Some(prompt) if call.state() != CallState::Failed => {
            call.usage().map_or(prompt.worst_tokens, |usage| usage.tokens())
        }
        Some(_) | None => 0,
    }
}

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        Self::Journal { reason: with_causes(&error), hint: error.hint() }
    }
}
