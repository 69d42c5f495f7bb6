use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::Purpose::{Research, Writing};
use super::*;
use crate::base::clock::{ManualClock, Moment};

const RESERVE: WritingReserve = WritingReserve { cost_nanos: 20, tokens: 200, time: Duration::from_secs(20) };

fn limits() -> BudgetLimits {
    BudgetLimits { cost_nanos: Some(100), tokens: Some(1_000), time: Some(Duration::from_secs(100)), rounds: Some(2) }
}

fn budget(limits: BudgetLimits) -> (Budget, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Moment(1_000)));
    (Budget::new(limits, RESERVE, clock.clone()), clock)
}

fn cost(cost_nanos: u64, tokens: u64) -> CallCost {
    CallCost { cost_nanos: Some(cost_nanos), tokens }
}

/// Settles a research call at its worst case.
fn spend(budget: &Budget, cost: CallCost) {
    assert_eq!(budget.reserve(cost, Research).unwrap().settle(cost), None);
}

#[test]
fn money_is_refused_above_its_limit_and_writing_has_its_own() {
    let (budget, _) = budget(limits());
    let held = budget.reserve(cost(80, 0), Research).unwrap();
    assert_eq!(budget.reserve(cost(1, 0), Research).unwrap_err(), BudgetRefusal::Limit(Limit::Cost));
    assert_eq!(budget.reserve(cost(21, 0), Writing).unwrap_err(), BudgetRefusal::Limit(Limit::Cost));
    held.settle(cost(80, 0));
    assert_eq!(budget.reached(Research), Some(Limit::Cost));
    assert_eq!(budget.reached(Writing), None);
    budget.reserve(cost(20, 0), Writing).unwrap().settle(cost(20, 0));
    assert_eq!(budget.reached(Writing), Some(Limit::Cost));
}

#[test]
fn tokens_are_refused_above_their_limit() {
    let (budget, _) = budget(limits());
    assert_eq!(budget.reserve(cost(0, 801), Research).unwrap_err(), BudgetRefusal::Limit(Limit::Tokens));
    spend(&budget, cost(0, 800));
    assert_eq!(budget.reached(Research), Some(Limit::Tokens));
    assert_eq!(budget.reserve(cost(0, 1), Research).unwrap_err().limit(), Limit::Tokens);
    assert!(budget.reserve(cost(0, 200), Writing).is_ok());
}

#[test]
fn time_is_refused_above_its_limit_and_what_ran_before_a_resume_counts() {
    let (budget, clock) = budget(limits());
    clock.advance(Duration::from_secs(30));
    let spent = budget.spent();
    assert_eq!(spent.active, Duration::from_secs(30));
    clock.advance(Duration::from_hours(5));
    let resumed = Budget::resumed(limits(), RESERVE, spent, clock.clone());
    clock.advance(Duration::from_millis(49_999));
    assert_eq!(resumed.time_left(Research), Some(Duration::from_millis(1)));
    assert!(resumed.reserve(cost(0, 0), Research).is_ok());
    clock.advance(Duration::from_millis(1));
    assert_eq!(resumed.reserve(cost(0, 0), Research).unwrap_err(), BudgetRefusal::Limit(Limit::Time));
    assert_eq!(resumed.reached(Research), Some(Limit::Time));
    assert_eq!(resumed.time_left(Writing), Some(Duration::from_secs(20)));
    assert!(resumed.reserve(cost(0, 0), Writing).is_ok());
    clock.advance(Duration::from_secs(20));
    assert_eq!(resumed.reserve(cost(0, 0), Writing).unwrap_err(), BudgetRefusal::Limit(Limit::Time));
}

#[tokio::test]
async fn call_waits_for_calls_in_flight_only_if_it_would_fit_without_them() {
    let (budget, _) = budget(BudgetLimits { cost_nanos: Some(100), ..BudgetLimits::NONE });
    let room = 100 - RESERVE.cost_nanos;
    let held = budget.reserve(cost(room, 0), Research).unwrap();
    let waiting = tokio::spawn({
        let budget = budget.clone();
        async move { budget.reserve_or_end_research(cost(room / 2, 0), Research).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    held.settle(cost(1, 0));
    waiting.await.unwrap().unwrap();
    assert_eq!(budget.reached(Research), None);
    assert!(budget.reserve_or_end_research(cost(room, 0), Research).await.is_err());
    assert_eq!(budget.reached(Research), Some(Limit::Cost), "the next call would be refused too");
    assert!(budget.reserve_or_end_research(cost(room, 0), Writing).await.is_ok());
}

#[test]
fn a_model_without_a_price_is_refused_under_a_cost_limit() {
    let unpriced = CallCost { cost_nanos: None, tokens: 10 };
    let (limited, _) = budget(limits());
    let refusal = limited.reserve(unpriced, Research).unwrap_err();
    assert_eq!((refusal, refusal.limit()), (BudgetRefusal::UnknownPrice, Limit::Cost));
    let (free, _) = budget(BudgetLimits { cost_nanos: None, ..limits() });
    free.reserve(unpriced, Research).unwrap().settle(unpriced);
    assert_eq!(free.spent().total(), Charge { cost_nanos: 0, tokens: 10, calls: 1, unpriced_calls: 1 });
}

#[test]
fn free_calls_are_allowed_under_a_cost_limit_of_zero() {
    let (budget, _) = budget(BudgetLimits { cost_nanos: Some(0), ..BudgetLimits::NONE });
    let refused = budget.reserve(cost(0, 5), Research);
    assert_eq!(refused.unwrap_err(), BudgetRefusal::Limit(Limit::Cost), "the reserve does not fit the limit");
    let budget = Budget::new(budget.limits(), WritingReserve::default(), Arc::new(ManualClock::default()));
    spend(&budget, cost(0, 5));
    assert_eq!((budget.reached(Research), budget.is_tight(CallCost::default())), (None, false));
}

#[test]
fn settling_returns_the_unused_part() {
    let (budget, _) = budget(limits());
    let reservation = budget.reserve(cost(80, 800), Research).unwrap();
    assert_eq!(reservation.settle(cost(10, 100)), None);
    assert_eq!(budget.balance().committed(), Charge { cost_nanos: 10, tokens: 100, calls: 1, unpriced_calls: 0 });
    assert!(budget.reserve(cost(70, 700), Research).is_ok());
}

#[test]
fn dropping_an_unsent_reservation_returns_it_and_a_sent_one_stays_charged() {
    let (budget, _) = budget(limits());
    drop(budget.reserve(cost(80, 800), Research).unwrap());
    assert_eq!(budget.balance().committed(), Charge::default());
    let mut sent = budget.reserve(cost(30, 300), Research).unwrap();
    sent.sent();
    drop(sent);
    budget.reserve(cost(20, 200), Research).unwrap().keep();
    let mut refused = budget.reserve(cost(30, 300), Research).unwrap();
    refused.sent();
    refused.release();
    assert_eq!(budget.spent().total(), Charge { cost_nanos: 50, tokens: 500, calls: 2, unpriced_calls: 0 });
    assert_eq!(budget.balance().committed(), budget.spent().total());
}

#[test]
fn cost_above_the_worst_case_is_charged_and_reported() {
    let (budget, _) = budget(limits());
    let reservation = budget.reserve(cost(50, 500), Research).unwrap();
    let overrun = reservation.settle(cost(130, 400)).unwrap();
    assert_eq!(overrun, Overrun { cost_nanos: 80, tokens: 0 });
    assert_eq!((budget.spent().total().cost_nanos, budget.spent().overrun), (130, overrun));
    assert_eq!(budget.reserve(cost(0, 0), Writing).unwrap_err(), BudgetRefusal::Limit(Limit::Cost));
}

#[test]
fn an_unreported_cost_is_charged_at_the_worst_case() {
    let (budget, _) = budget(limits());
    let reservation = budget.reserve(cost(50, 500), Research).unwrap();
    reservation.settle(CallCost { cost_nanos: None, tokens: 20 });
    assert_eq!(budget.spent().total(), Charge { cost_nanos: 50, tokens: 20, calls: 1, unpriced_calls: 0 });
}

#[test]
fn budget_is_tight_when_what_lies_ahead_does_not_fit_beside_what_is_spent_and_held() {
    for (limits, one) in [
        (BudgetLimits { cost_nanos: Some(100), ..BudgetLimits::NONE }, cost(1, 0)),
        (BudgetLimits { tokens: Some(1_000), ..BudgetLimits::NONE }, cost(0, 10)),
    ] {
        let (budget, _) = budget(limits);
        spend(&budget, one * 30);
        assert!(!budget.is_tight(one * 50), "{limits:?}");
        assert!(budget.is_tight(one * 51), "the reserve for writing is left: {limits:?}");
        let hold = Hold { worst: one * 40, likely: one * 20, ..Hold::default() };
        let held = budget.reserve(hold, Research).unwrap();
        assert!(
            !budget.is_tight(one * 30) && budget.is_tight(one * 31),
            "a call counts at its likely cost: {limits:?}"
        );
        held.settle(one * 5);
        assert!(!budget.is_tight(one * 45) && budget.is_tight(one * 46), "{limits:?}");
    }
}

#[test]
fn budget_is_tight_from_three_quarters_of_the_time_of_research() {
    let (timed, clock) = budget(BudgetLimits { time: Some(Duration::from_secs(100)), ..BudgetLimits::NONE });
    clock.advance(Duration::from_millis(59_999));
    assert!(!timed.is_tight(CallCost::default()));
    clock.advance(Duration::from_millis(1));
    assert!(timed.is_tight(CallCost::default()));
}

#[test]
fn research_is_planned_by_likely_costs_and_never_uses_the_firm_part_of_the_reserve() {
    let (budget, _) = budget(BudgetLimits { tokens: Some(1_000), ..BudgetLimits::NONE });
    let hold =
        |worst, likely, leaving| Hold { worst: cost(0, worst), likely: cost(0, likely), leaving: cost(0, leaving) };
    let first = budget.reserve(hold(500, 100, 0), Research).unwrap();
    assert!(budget.reserve(hold(300, 100, 601), Research).is_err(), "what is due has to be left");
    assert!(budget.reserve(hold(401, 100, 600), Research).is_err(), "all worst cases leave one attempt to write");
    let second = budget.reserve(hold(400, 100, 600), Research).unwrap();
    first.settle(cost(0, 500));
    second.settle(cost(0, 400));
    assert_eq!(budget.reached(Research), Some(Limit::Tokens));
    assert!(budget.reserve(cost(0, 100), Writing).is_ok());
}

#[test]
fn limit_is_reported_with_what_was_spent_held_for_writing_and_left_which_add_up_to_it() {
    let (budget, _) = budget(BudgetLimits { tokens: Some(1_000), cost_nanos: None, ..limits() });
    spend(&budget, cost(0, 700));
    let said = |purpose| budget.reached_in_words(Limit::Tokens, purpose).unwrap();
    assert_eq!(
        said(Research),
        "the limit of 1,000 tokens was reached: 700 were spent, 200 were held for writing the report, and the next call \
         did not fit the remaining 100"
    );
    let next = "the limit of 1,000 tokens was reached: 700 were spent, and the next call did not fit the remaining 300";
    assert_eq!(said(Writing), next);
    budget.keep_for_writing(cost(0, 5_000));
    assert_eq!(
        said(Research),
        "the limit of 1,000 tokens was reached: 700 were spent, 300 were held for writing the report, and nothing was \
         left for the next call"
    );
    assert_eq!(budget.reached_in_words(Limit::Cost, Research), None);

    let (budget, _) = self::budget(BudgetLimits { tokens: None, cost_nanos: Some(1_000_000_000), ..limits() });
    spend(&budget, cost(700_000_000, 0));
    let said = budget.reached_in_words(Limit::Cost, Writing).unwrap();
    assert!(said.contains("$0.7000 was spent"), "{said}");
}

#[test]
fn reserve_follows_what_writing_needs_and_counts_what_it_has_spent() {
    let (budget, _) = budget(BudgetLimits { tokens: Some(1_000), ..BudgetLimits::NONE });
    assert!(budget.reserve(cost(0, 801), Research).is_err());
    budget.keep_for_writing(cost(0, 50));
    assert!(budget.reserve(cost(0, 950), Research).is_ok());
    budget.reserve(cost(0, 100), Writing).unwrap().settle(cost(0, 100));
    budget.keep_for_writing(cost(0, 50));
    assert!(budget.reserve(cost(0, 851), Research).is_err() && budget.reserve(cost(0, 850), Research).is_ok());
}

#[test]
fn writing_uses_its_reserve_before_the_rest_of_the_budget() {
    let (budget, _) = budget(limits());
    budget.reserve(cost(15, 0), Writing).unwrap().settle(cost(15, 0));
    let held = budget.reserve(cost(80, 0), Research).unwrap();
    drop(held);
    budget.reserve(cost(25, 0), Writing).unwrap().settle(cost(25, 0));
    assert!(budget.reserve(cost(61, 0), Research).is_err());
    assert!(budget.reserve(cost(60, 0), Research).is_ok());
}

#[test]
fn amounts_that_overflow_are_refused() {
    let (budget, _) = budget(BudgetLimits::NONE);
    let held = budget.reserve(cost(u64::MAX, u64::MAX), Research).unwrap();
    assert!(budget.reserve(cost(1, 1), Research).is_err());
    drop(held);
    assert_eq!(budget.balance().committed(), Charge::default());
}

#[test]
fn a_resumed_budget_continues_from_the_amounts_spent() {
    let (first, clock) = budget(limits());
    spend(&first, cost(70, 0));
    let json = serde_json::to_string(&first.spent()).unwrap();
    let resumed = Budget::resumed(limits(), RESERVE, serde_json::from_str(&json).unwrap(), clock);
    assert_eq!(resumed.spent(), first.spent());
    assert!(resumed.reserve(cost(11, 0), Research).is_err());
    assert!(resumed.reserve(cost(10, 0), Research).is_ok());
}

#[test]
fn active_time_does_not_change_with_the_time_of_day() {
    let clock = Arc::new(SteppingClock::new(1_000_000));
    let budget = Budget::new(limits(), RESERVE, clock.clone());
    clock.passed.store(50, Ordering::SeqCst);
    for day in [1_000_000, 0, 90_000_000] {
        clock.now.store(day, Ordering::SeqCst);
        assert_eq!(budget.spent().active, Duration::from_secs(50), "at {day}");
    }
}

/// A clock that is set to another time of day without time passing.
#[derive(Debug)]
struct SteppingClock {
    now: AtomicU64,
    begun: Instant,
    /// Seconds since then.
    passed: AtomicU64,
}

impl SteppingClock {
    fn new(now: u64) -> Self {
        Self { now: AtomicU64::new(now), begun: Instant::now(), passed: AtomicU64::default() }
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    fn instant(&self) -> Instant {
        self.begun + Duration::from_secs(self.passed.load(Ordering::SeqCst))
    }

    fn sleep(&self, _: Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    worst: CallCost,
    likely: CallCost,
    actual: CallCost,
    end: u8,
}

prop_compose! {
    fn call()(
        worst_cost in 0..60_u64,
        worst_tokens in 0..600_u64,
        share in 0..=100_u64,
        likely in 0..=100_u64,
        end in 0..5_u8,
    ) -> Call {
        let part = |share: u64| cost(worst_cost * share / 100, worst_tokens * share / 100);
        Call { worst: part(100), likely: part(likely), actual: part(share), end }
    }
}

impl Call {
    fn make(self, budget: &Budget) -> Charge {
        let hold = Hold { worst: self.worst, likely: self.likely, ..Hold::default() };
        let Ok(mut reservation) = budget.reserve(hold, Research) else { return Charge::default() };
        thread::yield_now();
        if self.end > 0 {
            reservation.sent();
        }
        match self.end {
            0 => drop(reservation),
            1 => {
                drop(reservation);
                return Charge::of(self.worst);
            }
            2 => {
                reservation.keep();
                return Charge::of(self.worst);
            }
            3 => reservation.release(),
            _ => {
                assert_eq!(reservation.settle(self.actual), None);
                return Charge::of(self.actual);
            }
        }
        Charge::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn committed_amounts_never_exceed_a_limit_under_any_interleaving(
        workers in prop::collection::vec(prop::collection::vec(call(), 0..12), 1..12),
        is_learned: bool,
    ) {
        let limits = BudgetLimits { time: None, ..limits() };
        let (budget, _) = budget(limits);
        let is_over = AtomicBool::new(false);
        // By worst cases alone, the whole reserve is left; by likely costs, its firm half.
        let kept = if is_learned { RESERVE.firm() } else { RESERVE };
        let within =
            |charge: Charge| charge.cost_nanos <= 100 - kept.cost_nanos && charge.tokens <= 1_000 - kept.tokens;
        let workers: Vec<Vec<Call>> = workers
            .into_iter()
            .map(|calls| {
                let held = |call: Call| if is_learned { call } else { Call { likely: call.worst, ..call } };
                calls.into_iter().map(held).collect()
            })
            .collect();
        let (shared, is_done) = (&budget, &is_over);
        let charged = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut is_within = true;
                while !is_done.load(Ordering::SeqCst) {
                    is_within &= within(shared.balance().committed());
                    thread::yield_now();
                }
                is_within
            });
            let workers: Vec<_> = workers
                .into_iter()
                .map(|calls| scope.spawn(move || calls.into_iter().map(|call| call.make(shared)).collect::<Vec<_>>()))
                .collect();
            let mut sum = Charge::default();
            for charge in workers.into_iter().flat_map(|worker| worker.join().unwrap()) {
                sum += charge;
            }
            is_done.store(true, Ordering::SeqCst);
            assert!(watcher.join().unwrap());
            sum
        });
        prop_assert_eq!(budget.spent().total(), charged);
        prop_assert_eq!(budget.balance().committed(), charged);
        prop_assert!(within(charged));
        let report = cost(kept.cost_nanos, kept.tokens);
        let last = budget.reserve(report, Writing);
        prop_assert!(last.is_ok());
        prop_assert_eq!(last.unwrap().settle(report), None);
    }
}
