//! The budget of a run: limits on money, tokens, time and rounds, and the amounts spent.
//!
//! ```text
//! reserve(worst case) ─▶ Reservation ─▶ sent() ─▶ settle(actual cost)
//!        │                   │             └────▶ keep()     outcome unknown: the worst case stays charged
//!  BudgetRefusal          dropped: all returned              (dropping it does the same)
//! ```
//!
//! All workers share one [`Budget`]. A call reserves its worst case atomically before it is sent, so two workers cannot
//! both start on the last thousand tokens. As long as no call costs more than it reserved, settled and reserved amounts
//! together never exceed a limit.
//!
//! Research is planned by the likely costs of calls ([`Hold::likely`]), since most replies are far below their output
//! limit: by worst cases, a third of the tokens would never be spent. By likely costs, research leaves the whole
//! [`WritingReserve`]; by worst cases, it leaves [`WritingReserve::firm`], so that the report can be written even if
//! every call in flight turns out as expensive as it can.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::base::clock::Clock;
use crate::base::id::as_word;
use crate::base::line::grouped;
use crate::base::money::dollars_text;
use crate::base::mutex::locked;
pub(crate) use crate::llm::call::Limit;

/// Limits of a run. `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Cost in billionths of a US dollar. Integers, because sums of floating-point cents would drift.
    pub(crate) cost_nanos: Option<u64>,
    /// Input and output tokens of all model calls, without background jobs.
    pub(crate) tokens: Option<u64>,
    /// Active time, summed over all resumes.
    pub(crate) time: Option<Duration>,
    pub(crate) rounds: Option<u32>,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            cost_nanos: Some(10_000_000_000),
            // Tokens and time are the most that a plan can get; the plan lowers them, see [`LimitsByPlan`].
            tokens: Some(300_000),
            time: Some(Duration::from_mins(30)),
            rounds: Some(6),
        }
    }
}

impl BudgetLimits {
    pub const NONE: Self = Self { cost_nanos: None, tokens: None, time: None, rounds: None };

    /// Returns the limits of a run for a plan with this number of workers.
    pub(crate) fn planned(self, by_plan: LimitsByPlan, workers: u32) -> Self {
        let tokens = by_plan.tokens.map(|share| share.base + share.each.saturating_mul(workers.into()));
        let time = by_plan.time.map(|share| share.base + share.each.saturating_mul(workers));
        Self {
            tokens: self.tokens.map(|most| tokens.map_or(most, |tokens| tokens.min(most))),
            time: self.time.map(|most| time.map_or(most, |time| time.min(most))),
            ..self
        }
    }
}

/// Limits that the first plan lowers, because the user has set none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsByPlan {
    /// Input and output tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) tokens: Option<PlanShare<u64>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) time: Option<PlanShare<Duration>>,
}

/// A limit by the number of planned workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanShare<T> {
    /// For planning, judging and writing.
    pub(crate) base: T,
    pub(crate) each: T,
}

impl LimitsByPlan {
    /// No limit depends on the plan.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Part of the limits that is reserved for writing the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WritingReserve {
    /// Cost in billionths of a US dollar.
    pub(crate) cost_nanos: u64,
    /// Input and output tokens.
    pub(crate) tokens: u64,
    pub(crate) time: Duration,
}

impl WritingReserve {
    /// Returns the part that no research call can use, whatever it turns out to cost: one of two attempts to write.
    fn firm(self) -> Self {
        Self { cost_nanos: self.cost_nanos / 2, tokens: self.tokens / 2, ..self }
    }
}

/// Purpose of a call; decides whether it may use the [`WritingReserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Purpose {
    /// Calls that plan, search, read, sum up and end the round.
    Research,
    /// Calls that draft and judge an answer, and those that write the report. They may use the reserve.
    Writing,
}

as_word!(Purpose);

/// Cost of one call: its worst case or its actual cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallCost {
    /// Billionths of a US dollar; `None` if the price is unknown.
    pub(crate) cost_nanos: Option<u64>,
    /// Input and output tokens, including reasoning.
    pub(crate) tokens: u64,
}

impl std::ops::Add for CallCost {
    type Output = Self;

    /// Adds, saturating at the largest values. An unknown price counts as 0.
    fn add(self, other: Self) -> Self {
        // Counting it as 0 is safe: under a cost limit, such a call is refused, see [`BudgetRefusal::UnknownPrice`].
        let cost_nanos = self.cost_nanos.unwrap_or(0).saturating_add(other.cost_nanos.unwrap_or(0));
        Self { cost_nanos: Some(cost_nanos), tokens: self.tokens.saturating_add(other.tokens) }
    }
}

impl std::ops::Mul<u64> for CallCost {
    type Output = Self;

    /// Multiplies, saturating at the largest values.
    fn mul(self, number: u64) -> Self {
        let cost_nanos = self.cost_nanos.map(|cost| cost.saturating_mul(number));
        Self { cost_nanos, tokens: self.tokens.saturating_mul(number) }
    }
}

/// Amounts held for one call until it is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Its worst case. It fits the limits under any interleaving.
    pub(crate) worst: CallCost,
    /// Its cost as judged by earlier calls, at most the worst case. Research is planned with it, and it decides
    /// whether a draft leaves room for its verdict.
    pub(crate) likely: CallCost,
    /// Amount that must be left after it for other work that is due.
    pub(crate) leaving: CallCost,
}

impl From<CallCost> for Hold {
    /// Holds the worst case for a call of which nothing else is known.
    fn from(worst: CallCost) -> Self {
        Self { worst, likely: worst, leaving: CallCost::default() }
    }
}

/// Total cost of several calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    /// Billionths of a US dollar, summed over calls with a known price.
    pub(crate) cost_nanos: u64,
    /// Input and output tokens.
    pub(crate) tokens: u64,
    pub(crate) calls: u64,
    /// Number of those calls whose price is unknown.
    pub(crate) unpriced_calls: u64,
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

    /// Returns the sum, or `None` on overflow.
    fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            cost_nanos: self.cost_nanos.checked_add(other.cost_nanos)?,
            tokens: self.tokens.checked_add(other.tokens)?,
            calls: self.calls.checked_add(other.calls)?,
            unpriced_calls: self.unpriced_calls.checked_add(other.unpriced_calls)?,
        })
    }

    fn saturating_sub(self, other: Self) -> Self {
        self.with_each(other, u64::saturating_sub)
    }

    fn with_each(self, other: Self, combined: fn(u64, u64) -> u64) -> Self {
        Self {
            cost_nanos: combined(self.cost_nanos, other.cost_nanos),
            tokens: combined(self.tokens, other.tokens),
            calls: combined(self.calls, other.calls),
            unpriced_calls: combined(self.unpriced_calls, other.unpriced_calls),
        }
    }
}

impl std::ops::AddAssign for Charge {
    /// Adds, saturating at the largest values.
    fn add_assign(&mut self, other: Self) {
        *self = self.with_each(other, u64::saturating_add);
    }
}

/// Amount by which settled calls exceeded their reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overrun {
    /// Billionths of a US dollar.
    pub(crate) cost_nanos: u64,
    /// Input and output tokens.
    pub(crate) tokens: u64,
}

/// Amounts spent by a run; equal to the sum over its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Settled and kept research calls.
    pub(crate) research: Charge,
    /// Settled and kept writing calls.
    pub(crate) writing: Charge,
    /// Part of the charges that exceeded reservations. Included in them.
    pub(crate) overrun: Overrun,
    pub(crate) rounds: u32,
    /// Active time, without waiting for the user and without time between resumes.
    pub(crate) active: Duration,
}

impl Spent {
    pub(crate) fn total(&self) -> Charge {
        let mut total = self.research;
        total += self.writing;
        total
    }

    /// Adds the actual cost of a settled call, or the worst case of a kept one.
    pub(crate) fn add(&mut self, purpose: Purpose, cost: CallCost) {
        *self.charge_mut(purpose) += Charge::of(cost);
    }

    fn charge_mut(&mut self, purpose: Purpose) -> &mut Charge {
        match purpose {
            Purpose::Research => &mut self.research,
            Purpose::Writing => &mut self.writing,
        }
    }
}

/// A consistent snapshot of spent and reserved amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    limits: BudgetLimits,
    /// Settled and kept calls.
    pub(crate) spent: Spent,
    /// Reservations of research calls in flight.
    pub(crate) reserved_research: Charge,
    /// Reservations of writing calls in flight.
    pub(crate) reserved_writing: Charge,
    /// Likely costs of research calls in flight.
    likely_research: Charge,
    /// Amount that research leaves for writing the report, including amounts that writing has spent.
    reserve: WritingReserve,
    /// The limit that refused a research call which would not have fitted even with nothing in flight.
    refused: Option<Limit>,
    /// Time spent waiting for the user.
    waited: Duration,
}

impl Balance {
    /// Returns the sum of spent and reserved amounts.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> Charge {
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

    /// Returns the sum of spent and reserved amounts for one purpose, or `None` on overflow.
    fn committed_for(&self, purpose: Purpose) -> Option<Charge> {
        match purpose {
            Purpose::Research => self.spent.research.checked_add(self.reserved_research),
            Purpose::Writing => self.spent.writing.checked_add(self.reserved_writing),
        }
    }

    /// Returns the amount a purpose must leave untouched: for research, the unused part of the writing reserve.
    fn set_aside(&self, reserve: u64, purpose: Purpose, used: fn(&Charge) -> u64) -> u64 {
        match purpose {
            Purpose::Research => {
                // A sum that overflows is refused by `fits` in any case.
                let drawn = self.committed_for(Purpose::Writing).map_or(u64::MAX, |charge| used(&charge));
                reserve.saturating_sub(drawn)
            }
            Purpose::Writing => 0,
        }
    }

    fn time_limit(&self, purpose: Purpose) -> Option<Duration> {
        let limit = self.limits.time?;
        Some(match purpose {
            Purpose::Research => limit.saturating_sub(self.reserve.time),
            Purpose::Writing => limit,
        })
    }

    /// Checks that a call fits into the limits: its worst case beside all worst cases and, for research, its likely
    /// cost beside all likely ones and work that is due after it.
    fn check_fit(&self, hold: Hold, purpose: Purpose) -> Result<(), Limit> {
        let committed = self
            .committed_for(Purpose::Research)
            .and_then(|research| research.checked_add(self.committed_for(Purpose::Writing)?));
        // The firm part of the reserve: it pays for a report even if every call in flight costs its worst case.
        self.fits(committed, Charge::of(hold.worst), self.reserve.firm(), purpose)?;
        match purpose {
            Purpose::Research => self.check_likely(hold),
            // A draft leaves the cost of its verdict: both are paid from the reserve. Its likely cost is compared: if
            // it runs long, the round loses its verdict, but refusing it would lose both.
            Purpose::Writing => self.fits(committed, Charge::of(hold.likely + hold.leaving), self.reserve, purpose),
        }
    }

    /// Checks that the likely cost of a research call fits, with the work that is due after it.
    fn check_likely(&self, hold: Hold) -> Result<(), Limit> {
        let in_flight = self.likely_research.checked_add(self.reserved_writing);
        let expected = in_flight.and_then(|in_flight| self.spent.total().checked_add(in_flight));
        let wanted = Charge::of(hold.likely).checked_add(Charge::of(hold.leaving));
        let wanted = wanted.unwrap_or(Charge { tokens: u64::MAX, cost_nanos: u64::MAX, ..Charge::default() });
        self.fits(expected, wanted, self.reserve, Purpose::Research)
    }

    /// Checks that `wanted` fits beside `committed` and the part of `reserve` that the purpose must leave. A
    /// `committed` of `None` is an overflow.
    fn fits(
        &self,
        committed: Option<Charge>,
        wanted: Charge,
        reserve: WritingReserve,
        purpose: Purpose,
    ) -> Result<(), Limit> {
        let all = committed.and_then(|committed| committed.checked_add(wanted));
        let fits = |limit: Option<u64>, reserve: u64, used: fn(&Charge) -> u64| {
            let Some(all) = &all else { return false };
            let set_aside = self.set_aside(reserve, purpose, used);
            limit.is_none_or(|limit| used(all).checked_add(set_aside).is_some_and(|all| all <= limit))
        };
        if !fits(self.limits.cost_nanos, reserve.cost_nanos, |charge| charge.cost_nanos) {
            Err(Limit::Cost)
        } else if !fits(self.limits.tokens, reserve.tokens, |charge| charge.tokens) {
            Err(Limit::Tokens)
        } else {
            Ok(())
        }
    }
}

/// A reservation was refused; nothing is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetRefusal {
    #[error("limit of {0} is reached")]
    Limit(Limit),
    #[error("price of the model is unknown, but the cost is limited")]
    UnknownPrice,
}

impl BudgetRefusal {
    /// Returns the limit that refused the call.
    pub(crate) fn limit(self) -> Limit {
        match self {
            Self::Limit(limit) => limit,
            Self::UnknownPrice => Limit::Cost,
        }
    }
}

/// The budget of a run. Clones share the same budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    clock: Arc<dyn Clock>,
    started: Instant,
    /// Active time of earlier processes of the same run.
    carried: Duration,
    balance: Mutex<Balance>,
    /// Notified when a reservation is closed.
    released: Notify,
}

impl Budget {
    /// Returns the budget of a run that starts now.
    #[cfg(test)]
    pub(crate) fn new(limits: BudgetLimits, reserve: WritingReserve, clock: Arc<dyn Clock>) -> Self {
        Self::resumed(limits, reserve, Spent::default(), clock)
    }

    /// Returns the budget of a resumed run that has spent `spent` according to its journal. The time since then is not
    /// counted.
    pub(crate) fn resumed(limits: BudgetLimits, reserve: WritingReserve, spent: Spent, clock: Arc<dyn Clock>) -> Self {
        let balance = Mutex::new(Balance { limits, spent, reserve, ..Balance::default() });
        let shared =
            BudgetState { started: clock.instant(), clock, carried: spent.active, balance, released: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn limits(&self) -> BudgetLimits {
        self.shared.balance().limits
    }

    pub(crate) fn limit(&self, limits: BudgetLimits) {
        self.shared.balance().limits = limits;
    }

    /// Sets the amount that research must leave for writing from now on, beside the amount that writing has spent. The
    /// time stays.
    pub(crate) fn keep_for_writing(&self, needed: CallCost) {
        let mut balance = self.shared.balance();
        let drawn = balance.committed_for(Purpose::Writing).unwrap_or_default();
        // With the amount that writing has spent, since `set_aside` deducts it again.
        balance.reserve.tokens = needed.tokens.saturating_add(drawn.tokens);
        balance.reserve.cost_nanos = needed.cost_nanos.unwrap_or(0).saturating_add(drawn.cost_nanos);
    }

    /// Reserves one call, before it is sent. [`Reservation::settle`] returns the unused part.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the call does not fit the rest for this purpose. That is a normal end for the caller,
    /// which continues with the evidence it has.
    pub(crate) fn reserve(&self, hold: impl Into<Hold>, purpose: Purpose) -> Result<Reservation, BudgetRefusal> {
        let hold = hold.into();
        let mut balance = self.shared.balance();
        // Before the sums, in which an unknown price counts as 0.
        if balance.limits.cost_nanos.is_some() && hold.worst.cost_nanos.is_none() {
            return Err(BudgetRefusal::UnknownPrice);
        }
        self.shared.check_time(&mut balance, purpose).map_err(BudgetRefusal::Limit)?;
        balance.check_fit(hold, purpose).map_err(BudgetRefusal::Limit)?;
        Ok(self.shared.reserved(&mut balance, hold, purpose, ReservationState::Unsent))
    }

    /// Like [`Self::reserve_if_it_fits`], for calls that a node depends on.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the call would not fit even with nothing in flight. Research is then over, see
    /// [`Self::reached`].
    pub(crate) async fn reserve_or_end_research(
        &self,
        hold: impl Into<Hold>,
        purpose: Purpose,
    ) -> Result<Reservation, BudgetRefusal> {
        let reserved = self.reserve_if_it_fits(hold, purpose).await;
        // A refused writing call ends no research: the report is then assembled by rules.
        if let (Err(refusal), Purpose::Research) = (&reserved, purpose) {
            self.refuse(refusal.limit());
        }
        reserved
    }

    /// Records that a limit refused a research call on which a node depends. Research is then over.
    pub(crate) fn refuse(&self, limit: Limit) {
        self.shared.balance().refused = Some(limit);
    }

    /// Like [`Self::reserve`], but if the call would fit without the reservations in flight, waits for one of them to
    /// settle: most calls cost less than their worst case. Cancel-safe: dropping the future reserves nothing.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the call would not fit even with nothing in flight. Smaller calls may still fit.
    pub(crate) async fn reserve_if_it_fits(
        &self,
        hold: impl Into<Hold>,
        purpose: Purpose,
    ) -> Result<Reservation, BudgetRefusal> {
        let hold = hold.into();
        loop {
            let mut released = pin!(self.shared.released.notified());
            // Registered before the attempt, so that a release in between is not missed.
            released.as_mut().enable();
            match self.reserve(hold, purpose) {
                // A call that settles may release tokens and money, but never time.
                Err(BudgetRefusal::Limit(limit)) if limit != Limit::Time && self.fits_alone(hold, purpose) => {
                    released.await;
                }
                reserved => return reserved,
            }
        }
    }

    /// Turns the charge of a call with unknown outcome back into a reservation, when its outcome can be found out after
    /// all.
    pub(crate) fn take_back(&self, worst: CallCost, purpose: Purpose) -> Reservation {
        let mut balance = self.shared.balance();
        let charged = balance.spent.charge_mut(purpose);
        *charged = charged.saturating_sub(Charge::of(worst));
        // `Sent`: if it is dropped before the outcome is known, the worst case must be charged again.
        self.shared.reserved(&mut balance, worst.into(), purpose, ReservationState::Sent)
    }

    /// Returns whether a call would fit with nothing in flight.
    pub(crate) fn fits_alone(&self, hold: impl Into<Hold>, purpose: Purpose) -> bool {
        let balance = *self.shared.balance();
        let settled =
            Balance { limits: balance.limits, spent: balance.spent, reserve: balance.reserve, ..Balance::default() };
        settled.check_fit(hold.into(), purpose).is_ok()
    }

    /// Returns the rest of the limits for writing, settled research deducted. It does not change while a report is
    /// written, so that a resumed run fits its prompts to the same size.
    pub(crate) fn left_for_writing(&self) -> BudgetLimits {
        let Balance { limits, spent: Spent { research, .. }, .. } = *self.shared.balance();
        BudgetLimits {
            tokens: limits.tokens.map(|limit| limit.saturating_sub(research.tokens)),
            cost_nanos: limits.cost_nanos.map(|limit| limit.saturating_sub(research.cost_nanos)),
            ..limits
        }
    }

    /// Excludes time spent waiting for the user from the active time.
    pub(crate) fn waited(&self, duration: Duration) {
        let mut balance = self.shared.balance();
        balance.waited = balance.waited.saturating_add(duration);
    }

    /// Returns the limit that is used up for a purpose, if any.
    ///
    /// A research call refused by [`Self::reserve_or_end_research`] counts, since the next one would be refused too.
    pub(crate) fn reached(&self, purpose: Purpose) -> Option<Limit> {
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
            // Under a limit of 0, calls that cost nothing are still allowed.
            limit.is_some_and(|limit| all > 0 && all >= limit)
        };
        let BudgetLimits { cost_nanos, tokens, .. } = balance.limits;
        let WritingReserve { cost_nanos: cost_reserve, tokens: token_reserve, .. } = balance.reserve;
        if used_up(cost_nanos, cost_reserve, |charge| charge.cost_nanos) {
            Some(Limit::Cost)
        } else if used_up(tokens, token_reserve, |charge| charge.tokens) {
            Some(Limit::Tokens)
        } else {
            None
        }
    }

    /// Returns whether `ahead` does not fit any more beside settled amounts and the likely costs of calls in flight, or
    /// whether three quarters of the time of research are used up.
    ///
    /// `ahead` is the work that is due and the next steps: a worker can wrap up only while it can still make them.
    /// Rounds do not count, since a run of one round would be tight from its first step.
    pub(crate) fn is_tight(&self, ahead: CallCost) -> bool {
        let is_late = {
            let mut balance = self.shared.balance();
            let active = self.shared.active(&mut balance).as_millis();
            let time = balance.limits.time.map(|limit| limit.saturating_sub(balance.reserve.time).as_millis());
            time.is_some_and(|limit| active > 0 && active * 4 >= limit * 3)
        };
        is_late || self.limit_ahead(ahead).is_some()
    }

    /// Returns the limit on money or tokens that leaves no room for the work `ahead`, if there is one.
    pub(crate) fn limit_ahead(&self, ahead: CallCost) -> Option<Limit> {
        self.shared.balance().check_likely(Hold { likely: ahead, ..Hold::default() }).err()
    }

    /// Returns how a limit was reached by a call of this purpose, in words: the amounts spent, held for writing the report
    /// and left, which add up to the limit.
    pub(crate) fn reached_in_words(&self, limit: Limit, purpose: Purpose) -> Option<String> {
        let balance = *self.shared.balance();
        let spent = balance.spent.total();
        match limit {
            Limit::Tokens => {
                let held = balance.set_aside(balance.reserve.tokens, purpose, |charge| charge.tokens);
                let limit = balance.limits.tokens?;
                let named = format!("{} tokens", grouped(limit));
                Some(in_words(&named, [limit, spent.tokens, held], "were", grouped))
            }
            Limit::Cost => {
                let held = balance.set_aside(balance.reserve.cost_nanos, purpose, |charge| charge.cost_nanos);
                let limit = balance.limits.cost_nanos?;
                Some(in_words(&dollars_text(limit), [limit, spent.cost_nanos, held], "was", dollars_text))
            }
            Limit::Time | Limit::Rounds => None,
        }
    }

    /// Returns the amounts settled so far, with the current active time.
    pub(crate) fn spent(&self) -> Spent {
        self.balance().spent
    }

    /// Returns a snapshot with the current active time.
    pub(crate) fn balance(&self) -> Balance {
        let mut balance = self.shared.balance();
        self.shared.active(&mut balance);
        *balance
    }

    /// Returns the time left for a purpose, or `None` if time is unlimited. It bounds the time-out of a call.
    pub(crate) fn time_left(&self, purpose: Purpose) -> Option<Duration> {
        let mut balance = self.shared.balance();
        let limit = balance.time_limit(purpose)?;
        Some(limit.saturating_sub(self.shared.active(&mut balance)))
    }

    /// Completes when the time for a purpose is used up; never, if it is unlimited.
    pub(crate) async fn time_up(&self, purpose: Purpose) {
        match self.time_left(purpose) {
            Some(left) => self.shared.clock.deadline(left).await,
            None => std::future::pending().await,
        }
    }
}

/// Says how a limit was reached. `named` is the limit with its unit, and `were` the verb for its amounts.
fn in_words(named: &str, [limit, spent, wanted]: [u64; 3], were: &str, shown: fn(u64) -> String) -> String {
    let left = limit.saturating_sub(spent);
    // Writing may need more than is left, but no more is held.
    let held = wanted.min(left);
    let mut text = format!("the limit of {named} was reached: {} {were} spent", shown(spent));
    if held > 0 {
        text += &format!(", {} {were} held for writing the report", shown(held));
    }
    text + &match left - held {
        0 => ", and nothing was left for the next call".to_owned(),
        rest => format!(", and the next call did not fit the remaining {}", shown(rest)),
    }
}

impl BudgetState {
    /// Locks the balance, which is consistent between any two statements of a holder.
    fn balance(&self) -> MutexGuard<'_, Balance> {
        locked(&self.balance)
    }

    /// Updates and returns the active time. It never decreases.
    fn active(&self, balance: &mut Balance) -> Duration {
        let active = self
            .carried
            // Monotonic: setting the time of day changes no limit.
            .saturating_add(self.clock.instant().duration_since(self.started))
            .saturating_sub(balance.waited);
        balance.spent.active = balance.spent.active.max(active);
        balance.spent.active
    }

    fn check_time(&self, balance: &mut Balance, purpose: Purpose) -> Result<(), Limit> {
        let is_up = balance.time_limit(purpose).is_some_and(|limit| self.active(balance) >= limit);
        if is_up { Err(Limit::Time) } else { Ok(()) }
    }

    /// Reserves a call that fits.
    fn reserved(
        self: &Arc<Self>,
        balance: &mut Balance,
        hold: Hold,
        purpose: Purpose,
        state: ReservationState,
    ) -> Reservation {
        *balance.reserved_mut(purpose) += Charge::of(hold.worst);
        // Writing has no likely amount: only its worst case counts.
        if purpose == Purpose::Research {
            balance.likely_research += Charge::of(hold.likely);
        }
        Reservation { shared: Arc::clone(self), hold, purpose, state }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReservationState {
    Unsent,
    Sent,
    Closed,
}

/// The reserved worst case of one call.
///
/// Dropping it before [`Self::sent`] returns all of it. Dropping it afterwards charges the worst case, since the
/// provider may bill the call.
#[derive(Debug)]
#[must_use = "dropping a reservation returns it"]
pub(crate) struct Reservation {
    shared: Arc<BudgetState>,
    hold: Hold,
    purpose: Purpose,
    state: ReservationState,
}

impl Reservation {
    pub(crate) fn worst(&self) -> CallCost {
        self.hold.worst
    }

    /// Marks the call as sent. From now on the provider may bill it.
    pub(crate) fn sent(&mut self) {
        self.state = ReservationState::Sent;
    }

    /// Charges the actual cost, returns the rest to the budget, and reports the amount above the worst case, if any.
    ///
    /// The full cost is charged even above a limit. If the price is known but the reply reports no usage, the worst
    /// case is charged.
    pub(crate) fn settle(mut self, actual: CallCost) -> Option<Overrun> {
        let actual = CallCost { cost_nanos: actual.cost_nanos.or(self.hold.worst.cost_nanos), ..actual };
        let above = |actual: u64, worst: u64| actual.saturating_sub(worst);
        let overrun = Overrun {
            cost_nanos: above(actual.cost_nanos.unwrap_or(0), self.hold.worst.cost_nanos.unwrap_or(0)),
            tokens: above(actual.tokens, self.hold.worst.tokens),
        };
        self.close(Some(actual), overrun);
        Some(overrun).filter(|overrun| *overrun != Overrun::default())
    }

    /// Charges the worst case of a call whose outcome is unknown.
    pub(crate) fn keep(mut self) {
        self.close(Some(self.hold.worst), Overrun::default());
    }

    /// Returns everything to the budget, because the endpoint rejected the call.
    pub(crate) fn release(mut self) {
        self.close(None, Overrun::default());
    }

    /// Replaces the reservation by a charge, atomically.
    fn close(&mut self, charged: Option<CallCost>, overrun: Overrun) {
        let mut balance = self.shared.balance();
        let reserved = balance.reserved_mut(self.purpose);
        *reserved = reserved.saturating_sub(Charge::of(self.hold.worst));
        if self.purpose == Purpose::Research {
            balance.likely_research = balance.likely_research.saturating_sub(Charge::of(self.hold.likely));
        }
        if let Some(cost) = charged {
            balance.spent.add(self.purpose, cost);
        }
        let total = &mut balance.spent.overrun;
        total.cost_nanos = total.cost_nanos.saturating_add(overrun.cost_nanos);
        total.tokens = total.tokens.saturating_add(overrun.tokens);
        self.state = ReservationState::Closed;
        drop(balance);
        // All of them: the released amount may be too little for the first, and enough for the next.
        self.shared.released.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.state {
            ReservationState::Unsent => self.close(None, Overrun::default()),
            ReservationState::Sent => self.close(Some(self.hold.worst), Overrun::default()),
            ReservationState::Closed => {}
        }
    }
}

#[cfg(test)]
mod tests;
