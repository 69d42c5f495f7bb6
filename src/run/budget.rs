//! What a run may spend, and has spent: money, tokens, time, rounds.
//!
//! ```text
//! reserve(worst case) ─▶ Reservation ─▶ sent() ─▶ settle(what it cost)
//!        │                   │             └────▶ keep()     the outcome is not known: the worst case stays charged
//!     Refusal             dropped: all given back            (dropping it does the same)
//! ```
//!
//! One [`Budget`] is shared by every worker. A call reserves its worst case before it is made, all or nothing, so no two
//! workers can start on the last thousand tokens; while calls cost no more than they reserved, what is settled and what
//! is reserved never pass a limit together. A part is set aside for writing the report, and research cannot touch it.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::base::clock::{Clock, Moment};
pub use crate::llm::call::Limit;

/// How much a run may spend; what is none has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Money, in billionths of a US dollar.
    pub cost_nanos: Option<u64>,
    /// Tokens of all calls, sent and received.
    pub tokens: Option<u64>,
    /// Active time, over all resumes.
    pub time: Option<Duration>,
    /// Rounds of research.
    pub rounds: Option<u32>,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            cost_nanos: Some(10_000_000_000),
            tokens: Some(150_000),
            time: Some(Duration::from_mins(15)),
            rounds: Some(6),
        }
    }
}

impl BudgetLimits {
    /// Limits nothing.
    pub const NONE: Self = Self { cost_nanos: None, tokens: None, time: None, rounds: None };
}

/// What is set aside for writing the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritingReserve {
    /// Money, in billionths of a US dollar.
    pub cost_nanos: u64,
    /// Tokens.
    pub tokens: u64,
    /// Time.
    pub time: Duration,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Everything up to the verdict.
    Research,
    /// The report: it may draw on what is set aside.
    Writing,
}

/// The most a call can cost, or what it did cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Money, in billionths of a US dollar; none where the price is not known.
    pub cost_nanos: Option<u64>,
    /// Tokens sent and received, reasoning included.
    pub tokens: u64,
}

/// What calls come to together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Money of the calls whose price is known, in billionths of a US dollar.
    pub cost_nanos: u64,
    /// Tokens.
    pub tokens: u64,
    /// Calls.
    pub calls: u64,
    /// Of those, calls whose price is not known.
    pub unpriced_calls: u64,
}

impl Charge {
    fn of(cost: CallCost) -> Self {
        Self {
            cost_nanos: cost.cost_nanos.unwrap_or(0),
            tokens: cost.tokens,
            calls: 1,
            unpriced_calls: u64::from(cost.cost_nanos.is_none()),
        }
    }

    /// Returns both together, or none where a number runs over.
    fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            cost_nanos: self.cost_nanos.checked_add(other.cost_nanos)?,
            tokens: self.tokens.checked_add(other.tokens)?,
            calls: self.calls.checked_add(other.calls)?,
            unpriced_calls: self.unpriced_calls.checked_add(other.unpriced_calls)?,
        })
    }

    fn saturating_sub(self, other: Self) -> Self {
        Self {
            cost_nanos: self.cost_nanos.saturating_sub(other.cost_nanos),
            tokens: self.tokens.saturating_sub(other.tokens),
            calls: self.calls.saturating_sub(other.calls),
            unpriced_calls: self.unpriced_calls.saturating_sub(other.unpriced_calls),
        }
    }
}

impl std::ops::AddAssign for Charge {
    /// Adds; at the end of numbers it stays there.
    fn add_assign(&mut self, other: Self) {
        self.cost_nanos = self.cost_nanos.saturating_add(other.cost_nanos);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.calls = self.calls.saturating_add(other.calls);
        self.unpriced_calls = self.unpriced_calls.saturating_add(other.unpriced_calls);
    }
}

/// What a settled call cost above what it reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// Money, in billionths of a US dollar.
    pub cost_nanos: u64,
    /// Tokens.
    pub tokens: u64,
}

/// What a run has spent; what a journal adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Settled and kept calls of research.
    pub research: Charge,
    /// Settled and kept calls of writing.
    pub writing: Charge,
    /// What was settled above its reservation; part of the charges, not beside them.
    pub overrun: Overrun,
    /// Rounds that were begun.
    pub rounds: u32,
    /// Time the run was at work.
    pub active: Duration,
}

impl Spent {
    /// Returns all calls together.
    pub fn total(&self) -> Charge {
        let mut total = self.research;
        total += self.writing;
        total
    }

    /// Adds a call as it was settled, or its worst case where it was kept.
    pub fn add(&mut self, purpose: Purpose, cost: CallCost) {
        *self.charge_mut(purpose) += Charge::of(cost);
    }

    fn charge_mut(&mut self, purpose: Purpose) -> &mut Charge {
        match purpose {
            Purpose::Research => &mut self.research,
            Purpose::Writing => &mut self.writing,
        }
    }
}

/// What is spent and what is promised, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Settled and kept.
    pub spent: Spent,
    /// Reserved by calls of research that are under way.
    pub reserved_research: Charge,
    /// Reserved by calls of writing that are under way.
    pub reserved_writing: Charge,
    /// The limit that refused a call of research for good.
    refused: Option<Limit>,
    /// Time in which the run waited for somebody.
    waited: Duration,
}

impl Balance {
    /// Returns what is spent and what is promised, together.
    pub fn committed(&self) -> Charge {
        let mut all = self.spent.total();
        all += self.reserved_research;
        all += self.reserved_writing;
        all
    }

    fn reserved_mut(&mut self, purpose: Purpose) -> &mut Charge {
        match purpose {
            Purpose::Research => &mut self.reserved_research,
            Purpose::Writing => &mut self.reserved_writing,
        }
    }

    /// Returns what a purpose has spent and been promised.
    fn committed_for(&self, purpose: Purpose) -> Option<Charge> {
        match purpose {
            Purpose::Research => self.spent.research.checked_add(self.reserved_research),
            Purpose::Writing => self.spent.writing.checked_add(self.reserved_writing),
        }
    }

    /// Returns what a purpose must leave alone beside what is committed: the part of the reserve not yet drawn.
    fn set_aside(&self, reserve: u64, purpose: Purpose, used: fn(&Charge) -> u64) -> u64 {
        match purpose {
            Purpose::Research => {
                let drawn = self.committed_for(Purpose::Writing).map_or(u64::MAX, |charge| used(&charge));
                reserve.saturating_sub(drawn)
            }
            Purpose::Writing => 0,
        }
    }
}

/// A call may not be made; nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its worst case does not fit what is left.
    #[error("limit of {0} is reached")]
    Limit(Limit),
    /// Money is limited, and nobody knows what the call costs.
    #[error("price of the model is not known, and money is limited")]
    UnknownPrice,
}

impl Refusal {
    /// Returns the limit that stands in the way.
    pub fn limit(self) -> Limit {
        match self {
            Self::Limit(limit) => limit,
            Self::UnknownPrice => Limit::Cost,
        }
    }
}

/// What a run may spend, shared by all who spend it; clones are the same budget.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    limits: BudgetLimits,
    reserve: WritingReserve,
    clock: Arc<dyn Clock>,
    started: Moment,
    /// Active time from before this process.
    carried: Duration,
    balance: Mutex<Balance>,
    /// Told when a reservation is closed.
    released: Notify,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { limits, reserve, .. } = &*self.shared;
        f.debug_struct("Budget").field("limits", limits).field("reserve", reserve).finish_non_exhaustive()
    }
}

impl Budget {
    /// Returns the budget of a run that starts now, with a part set aside for writing.
    pub fn new(limits: BudgetLimits, reserve: WritingReserve, clock: Arc<dyn Clock>) -> Self {
        Self::resumed(limits, reserve, Spent::default(), clock)
    }

    /// Returns the budget of a run that goes on now, having spent what its journal says.
    ///
    /// Time between then and now does not count.
    pub fn resumed(limits: BudgetLimits, reserve: WritingReserve, spent: Spent, clock: Arc<dyn Clock>) -> Self {
        let balance = Mutex::new(Balance { spent, ..Balance::default() });
        let shared = Shared {
            limits,
            reserve,
            started: clock.now(),
            clock,
            carried: spent.active,
            balance,
            released: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the limits.
    pub fn limits(&self) -> BudgetLimits {
        self.shared.limits
    }

    /// Sets aside the worst case of one call, before it is made.
    ///
    /// All or nothing. The difference to what the call did cost comes back in [`Reservation::settle`].
    ///
    /// # Errors
    ///
    /// Returns a refusal and sets nothing aside where the worst case does not fit what is left for this purpose. For
    /// the caller that is an ordinary end: it goes on with what it has.
    pub fn reserve(&self, worst: CallCost, purpose: Purpose) -> Result<Reservation, Refusal> {
        let mut balance = self.shared.balance();
        if self.shared.limits.cost_nanos.is_some() && worst.cost_nanos.is_none() {
            return Err(Refusal::UnknownPrice);
        }
        self.shared.check_time(&mut balance, purpose).map_err(Refusal::Limit)?;
        let charge = Charge::of(worst);
        self.shared.check_fit(&balance, charge, purpose).map_err(Refusal::Limit)?;
        *balance.reserved_mut(purpose) += charge;
        Ok(Reservation { shared: Arc::clone(&self.shared), worst, purpose, state: ReservationState::Unsent })
    }

    /// As [`Self::reserve`], but where only the worst cases of calls under way stand in the way, waits for them: mostly
    /// they cost less. Dropping the future waits no longer and reserves nothing.
    ///
    /// # Errors
    ///
    /// Returns a refusal where the call would not fit even beside none; research is then over, see [`Self::reached`].
    pub async fn reserve_in_turn(&self, worst: CallCost, purpose: Purpose) -> Result<Reservation, Refusal> {
        let reserved = self.reserve_if_it_fits(worst, purpose).await;
        if let (Err(refusal), Purpose::Research) = (&reserved, purpose) {
            self.shared.balance().refused = Some(refusal.limit());
        }
        reserved
    }

    /// As [`Self::reserve_in_turn`], for what research can do without: a refusal says nothing of smaller calls.
    ///
    /// # Errors
    ///
    /// Returns a refusal where the call would not fit even beside none.
    pub async fn reserve_if_it_fits(&self, worst: CallCost, purpose: Purpose) -> Result<Reservation, Refusal> {
        loop {
            let mut released = pin!(self.shared.released.notified());
            // From here on no release is missed.
            released.as_mut().enable();
            match self.reserve(worst, purpose) {
                Err(Refusal::Limit(limit)) if limit != Limit::Time && self.fits_alone(worst, purpose) => released.await,
                reserved => return reserved,
            }
        }
    }

    /// Takes back what was charged for a call whose outcome was not known and now will be: it is reserved again, as for one
    /// that is under way.
    pub fn take_back(&self, worst: CallCost, purpose: Purpose) -> Reservation {
        let charge = Charge::of(worst);
        let mut balance = self.shared.balance();
        let charged = balance.spent.charge_mut(purpose);
        *charged = charged.saturating_sub(charge);
        *balance.reserved_mut(purpose) += charge;
        Reservation { shared: Arc::clone(&self.shared), worst, purpose, state: ReservationState::Sent }
    }

    /// Tells whether a call fits beside what is settled and set aside, whatever is under way.
    pub fn fits_alone(&self, worst: CallCost, purpose: Purpose) -> bool {
        let settled = Balance { spent: self.shared.balance().spent, ..Balance::default() };
        self.shared.check_fit(&settled, Charge::of(worst), purpose).is_ok()
    }

    /// Notes that the run waited so long for somebody: that is no time at work.
    pub fn waited(&self, duration: Duration) {
        let mut balance = self.shared.balance();
        balance.waited = balance.waited.saturating_add(duration);
    }

    /// Returns the limit that leaves nothing to spend for a purpose, where there is one.
    ///
    /// A call of research that was refused for good counts: the next one would be refused too.
    pub fn reached(&self, purpose: Purpose) -> Option<Limit> {
        let mut balance = self.shared.balance();
        if let (Purpose::Research, Some(limit)) = (purpose, balance.refused) {
            return Some(limit);
        }
        if let Err(limit) = self.shared.check_time(&mut balance, purpose) {
            return Some(limit);
        }
        let used_up = |limit: Option<u64>, reserve: u64, used: fn(&Charge) -> u64| {
            let all = used(&balance.spent.total());
            let limit = limit.map(|limit| limit.saturating_sub(balance.set_aside(reserve, purpose, used)));
            // A limit of nothing is kept by calls that cost nothing.
            limit.is_some_and(|limit| all > 0 && all >= limit)
        };
        let BudgetLimits { cost_nanos, tokens, .. } = self.shared.limits;
        let WritingReserve { cost_nanos: cost_reserve, tokens: token_reserve, .. } = self.shared.reserve;
        if used_up(cost_nanos, cost_reserve, |charge| charge.cost_nanos) {
            Some(Limit::Cost)
        } else if used_up(tokens, token_reserve, |charge| charge.tokens) {
            Some(Limit::Tokens)
        } else {
            None
        }
    }

    /// Tells whether three quarters of what research may spend are gone, of any limit but rounds.
    ///
    /// What is only promised does not count: it mostly comes back. Rounds do not count either: a run of one round
    /// would be tight from its first step.
    pub fn is_tight(&self) -> bool {
        let mut balance = self.shared.balance();
        let spent = balance.spent.research;
        let BudgetLimits { cost_nanos, tokens, time, .. } = self.shared.limits;
        let reserve = self.shared.reserve;
        let is_tight = |used: u128, limit: Option<u128>, reserve: u128| {
            limit.is_some_and(|limit| used > 0 && used * 4 >= limit.saturating_sub(reserve) * 3)
        };
        is_tight(spent.cost_nanos.into(), cost_nanos.map(u128::from), reserve.cost_nanos.into())
            || is_tight(spent.tokens.into(), tokens.map(u128::from), reserve.tokens.into())
            || is_tight(
                self.shared.active(&mut balance).as_millis(),
                time.map(|limit| limit.as_millis()),
                reserve.time.as_millis(),
            )
    }

    /// Returns what is settled by now, and the active time up to now.
    pub fn spent(&self) -> Spent {
        self.balance().spent
    }

    /// Returns what is settled and what is reserved, at one instant.
    pub fn balance(&self) -> Balance {
        let mut balance = self.shared.balance();
        self.shared.active(&mut balance);
        *balance
    }

    /// Returns the time that is left for a purpose; none where time has no limit. A call may not take longer.
    pub fn time_left(&self, purpose: Purpose) -> Option<Duration> {
        let mut balance = self.shared.balance();
        let limit = self.shared.time_limit(purpose)?;
        Some(limit.saturating_sub(self.shared.active(&mut balance)))
    }

    /// Completes when the time there is for a purpose is up, or never.
    pub async fn time_up(&self, purpose: Purpose) {
        match self.time_left(purpose) {
            Some(left) => self.shared.clock.deadline(left).await,
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    /// The balance is whole between any two statements of its holders, so a panic of one of them does not spoil it.
    fn balance(&self) -> MutexGuard<'_, Balance> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes and returns the time the run was at work; it never runs back, even where the clock does.
    fn active(&self, balance: &mut Balance) -> Duration {
        let active = self.carried.saturating_add(self.clock.now().since(self.started)).saturating_sub(balance.waited);
        balance.spent.active = balance.spent.active.max(active);
        balance.spent.active
    }

    fn time_limit(&self, purpose: Purpose) -> Option<Duration> {
        let limit = self.limits.time?;
        Some(match purpose {
            Purpose::Research => limit.saturating_sub(self.reserve.time),
            Purpose::Writing => limit,
        })
    }

    fn check_time(&self, balance: &mut Balance, purpose: Purpose) -> Result<(), Limit> {
        let is_up = self.time_limit(purpose).is_some_and(|limit| self.active(balance) >= limit);
        if is_up { Err(Limit::Time) } else { Ok(()) }
    }

    /// Checks that `charge` fits beside everything that is spent, promised and set aside.
    fn check_fit(&self, balance: &Balance, charge: Charge, purpose: Purpose) -> Result<(), Limit> {
        let committed = balance
            .committed_for(Purpose::Research)
            .and_then(|research| research.checked_add(balance.committed_for(Purpose::Writing)?)?.checked_add(charge));
        let fits = |limit: Option<u64>, reserve: u64, used: fn(&Charge) -> u64| {
            let Some(committed) = &committed else { return false };
            let set_aside = balance.set_aside(reserve, purpose, used);
            limit.is_none_or(|limit| used(committed).checked_add(set_aside).is_some_and(|all| all <= limit))
        };
        if !fits(self.limits.cost_nanos, self.reserve.cost_nanos, |charge| charge.cost_nanos) {
            Err(Limit::Cost)
        } else if !fits(self.limits.tokens, self.reserve.tokens, |charge| charge.tokens) {
            Err(Limit::Tokens)
        } else {
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReservationState {
    Unsent,
    Sent,
    /// Nothing is reserved any more.
    Closed,
}

/// The worst case of one call, set aside.
///
/// Dropped before [`Self::sent`], all of it is given back; dropped after, the worst case stays charged, for the call
/// may have been paid for.
#[must_use = "a reservation that is dropped sets nothing aside"]
pub struct Reservation {
    shared: Arc<Shared>,
    worst: CallCost,
    purpose: Purpose,
    state: ReservationState,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worst, purpose, state, .. } = self;
        f.debug_struct("Reservation")
            .field("worst", worst)
            .field("purpose", purpose)
            .field("state", state)
            .finish_non_exhaustive()
    }
}

impl Reservation {
    /// Returns what is set aside.
    pub fn worst(&self) -> CallCost {
        self.worst
    }

    /// Notes that the call is on its way: from now on it may have been paid for.
    pub fn sent(&mut self) {
        self.state = ReservationState::Sent;
    }

    /// Charges what the call did cost, gives the rest back, and returns what it cost above the worst case.
    ///
    /// All of it is charged, above a limit too. Where the price was known and the cost is not, the worst case is
    /// charged.
    pub fn settle(mut self, actual: CallCost) -> Option<Overrun> {
        let actual = CallCost { cost_nanos: actual.cost_nanos.or(self.worst.cost_nanos), ..actual };
        let above = |actual: u64, worst: u64| actual.saturating_sub(worst);
        let overrun = Overrun {
            cost_nanos: above(actual.cost_nanos.unwrap_or(0), self.worst.cost_nanos.unwrap_or(0)),
            tokens: above(actual.tokens, self.worst.tokens),
        };
        self.close(Some(actual), overrun);
        Some(overrun).filter(|overrun| *overrun != Overrun::default())
    }

    /// Leaves the worst case charged: the call may have been paid for, and nobody knows what it cost.
    pub fn keep(mut self) {
        self.close(Some(self.worst), Overrun::default());
    }

    /// Gives everything back: the endpoint did not take the call.
    pub fn release(mut self) {
        self.close(None, Overrun::default());
    }

    /// Turns what is reserved into what is charged, once, at one instant.
    fn close(&mut self, charged: Option<CallCost>, overrun: Overrun) {
        let mut balance = self.shared.balance();
        let reserved = balance.reserved_mut(self.purpose);
        *reserved = reserved.saturating_sub(Charge::of(self.worst));
        if let Some(cost) = charged {
            balance.spent.add(self.purpose, cost);
        }
        let total = &mut balance.spent.overrun;
        total.cost_nanos = total.cost_nanos.saturating_add(overrun.cost_nanos);
        total.tokens = total.tokens.saturating_add(overrun.tokens);
        self.state = ReservationState::Closed;
        drop(balance);
        self.shared.released.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.state {
            ReservationState::Unsent => self.close(None, Overrun::default()),
            ReservationState::Sent => self.close(Some(self.worst), Overrun::default()),
            ReservationState::Closed => {}
        }
    }
}

#[cfg(test)]
mod tests;
