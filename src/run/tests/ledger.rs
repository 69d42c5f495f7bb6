//! The ledger under any interleaving of opening, ending and dropping tickets.

use std::future::ready;
use std::sync::Mutex;

use proptest::prelude::*;

use super::super::budget::{CallCost, Purpose};
use super::super::journal::{Call, CallKind, CallRow, CallState, JournalError, PromptCall};
use super::super::ledger::{CallNotice, Ledger, Reserving, Ticket};
use super::calls::ledger;
use super::*;
use crate::base::id::ContentHash;
use crate::llm::call::CallKey;
use crate::llm::message::{Reply, Role};
use crate::source::Label;

/// Cost limit of the run, in billionths of a dollar.
const LIMIT: u64 = 100;

/// A prompt whose tokens do not matter.
const PROMPT: PromptCall = PromptCall { role: Role::Worker, is_tight: false, counted_tokens: 0, worst_tokens: 0 };

#[derive(Clone, Debug)]
enum Op {
    /// Opens a ticket.
    Open { worst: u64 },
    /// Ends the oldest open ticket after skipping `skip` of them.
    End { skip: usize, how: u8, share: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..60_u64).prop_map(|worst| Op::Open { worst }),
        (0..4_usize, 0..6_u8, 0..=100_u64).prop_map(|(skip, how, share)| Op::End { skip, how, share }),
    ]
}

/// Ends a ticket and returns the expected state and charge of its call.
async fn end(ticket: Ticket, how: u8, share: u64) -> Result<(CallState, u64), JournalError> {
    let worst = ticket.worst().cost_nanos.unwrap();
    let actual = worst * share / 100;
    let cost = CallCost { cost_nanos: Some(actual), tokens: 0 };
    match how {
        0 => ticket.replied(reply(), cost).await.map(|()| (CallState::Replied, actual)),
        1 => ticket.failed("busy".into()).await.map(|()| (CallState::Failed, 0)),
        2 => ticket.unknown("broke off".into()).await.map(|()| (CallState::Unknown, worst)),
        3 => ticket.lost("nothing".into(), Some(cost)).await.map(|()| (CallState::Lost, actual)),
        4 => ticket.lost("nothing".into(), None).await.map(|()| (CallState::Lost, worst)),
        _ => {
            drop(ticket);
            Ok((CallState::Sent, worst))
        }
    }
}

fn reply() -> Reply {
    Reply { text: "so".into(), usage: None, cut_off: false, raw: serde_json::Value::Null }
}

#[tokio::test]
async fn notice_of_a_reply_comes_when_its_cost_is_spent() {
    let world = World::new(TWO_ROUNDS);
    let (budget, run) = (ledger(&world).await.budget().clone(), world.store.lock(&World::run()).unwrap());
    let (spent, heard) = (budget.clone(), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&heard);
    let listener = Arc::new(move |notice: &CallNotice| {
        if matches!(notice, CallNotice::Replied(..)) {
            told.lock().unwrap().push(spent.balance().spent.total().cost_nanos);
        }
    });
    let ledger = Ledger::new(run, budget, Arc::new(ManualClock::default()), CancellationToken::new(), listener, 1);
    for (number, total) in [7, 14].into_iter().enumerate() {
        let ticket = ledger.open(&call(number, 60), Reserving::IfItFits, ready(())).await.unwrap();
        ticket.replied(reply(), CallCost { cost_nanos: Some(7), tokens: 0 }).await.unwrap();
        assert_eq!(heard.lock().unwrap().last(), Some(&total));
    }
}

fn call(number: usize, worst: u64) -> Call {
    Call {
        key: CallKey::new(format!("n1/step/{number}")),
        kind: CallKind::Prompt(PROMPT),
        model: "m".into(),
        request_hash: ContentHash::of(&number.to_le_bytes()),
        purpose: Purpose::Research,
        label: Label::Internal,
        worst_cost: Some(worst),
    }
}

/// Executes a sequence of operations and checks the ledger after each.
async fn check(ops: &[Op]) {
    let mut world = World::new(TWO_ROUNDS);
    world.limits = BudgetLimits { cost_nanos: Some(LIMIT), tokens: None, ..world.limits };
    let ledger = ledger(&world).await;
    let (mut open, mut ended): (Vec<Ticket>, Vec<(i64, CallState, u64)>) = Default::default();
    for (number, op) in ops.iter().enumerate() {
        match *op {
            Op::Open { worst } => {
                open.extend(ledger.open(&call(number, worst), Reserving::IfItFits, ready(())).await.ok());
            }
            Op::End { skip, .. } if skip >= open.len() => {}
            Op::End { skip, how, share } => {
                let ticket = open.remove(skip);
                let id = ticket.id();
                let (state, charged) = end(ticket, how, share).await.unwrap();
                ended.push((id, state, charged));
            }
        }
        let balance = ledger.budget().balance();
        assert!(balance.committed().cost_nanos <= LIMIT, "{balance:?}");
        let promised: u64 = open.iter().map(|ticket| ticket.worst().cost_nanos.unwrap()).sum();
        let charged: u64 = ended.iter().map(|(_, _, charged)| charged).sum();
        assert_eq!((balance.reserved_research.cost_nanos, balance.spent.total().cost_nanos), (promised, charged));
    }
    let in_flight: Vec<_> = open.iter().map(Ticket::id).collect();
    drop(open);
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    assert_eq!(calls.len(), ended.len() + in_flight.len(), "nothing is sent that is not stored");
    for call in &calls {
        let ends: Vec<_> = ended.iter().filter(|(id, ..)| *id == call.id).collect();
        match ends.as_slice() {
            [(_, state, charged)] => assert_eq!((call.state(), call.charged_cost()), (*state, Some(*charged))),
            [] => assert!(in_flight.contains(&call.id) && call.state() == CallState::Sent, "{call:?}"),
            _ => panic!("{call:?} ended twice"),
        }
        let is_open = serde_json::to_value(call).unwrap()["ended_at"].is_null();
        assert_eq!(is_open, call.state() == CallState::Sent);
    }
    let stored: u64 = calls.iter().filter_map(CallRow::charged_cost).sum();
    assert_eq!(ledger.budget().spent().total().cost_nanos, stored, "a resumed run starts from the same sum");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn settled_sum_never_exceeds_the_limit_and_every_ticket_ends_once(ops in prop::collection::vec(op(), 0..24)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(check(&ops));
    }
}

#[tokio::test]
async fn call_that_is_reopened_twice_ends_once() {
    for reply_is_lost in [false, true] {
        let world = World::new(TWO_ROUNDS);
        let ledger = ledger(&world).await;
        let (journal, run) = (world.store.journal(), World::run());
        let cost = CallCost { cost_nanos: Some(7), tokens: 0 };
        let job = Call { kind: CallKind::Job, ..call(1, 60) };
        let ticket = ledger.open(&job, Reserving::IfItFits, ready(())).await.unwrap();
        if reply_is_lost {
            ticket.replied(reply(), cost).await.unwrap();
            journal.damage("UPDATE calls SET reply = substr(reply, 1, 4)").await;
        } else {
            drop(ticket);
        }
        let row = || async { journal.calls_in_short(&run).await.unwrap().remove(0) };
        let stale = row().await;
        let first = ledger.reopen(row().await).await.unwrap();
        let second = ledger.reopen(row().await).await.unwrap();
        first.replied(Reply { text: "first".into(), ..reply() }, cost).await.unwrap();
        let ended = second.replied(Reply { text: "second".into(), ..reply() }, cost).await;
        assert!(matches!(ended, Err(JournalError::Ended { .. })), "{ended:?}");
        // By the row as it was before.
        let ended = match ledger.reopen(stale).await {
            Ok(third) => third.lost("third".into(), None).await,
            Err(error) => Err(error),
        };
        assert!(matches!(ended, Err(JournalError::Ended { .. })), "{ended:?}");
        let stored = journal.calls(&run).await.unwrap().remove(0);
        assert_eq!(stored.reply().map(|reply| reply.text.as_str()), Some("first"));
    }
}

#[tokio::test]
async fn job_that_is_gone_when_its_lost_reply_is_fetched_again_stays_charged_at_its_cost() {
    let world = World::new(TWO_ROUNDS);
    let (ledger, journal) = (ledger(&world).await, world.store.journal());
    let job = Call { kind: CallKind::Job, ..call(1, 60) };
    let ticket = ledger.open(&job, Reserving::IfItFits, ready(())).await.unwrap();
    ticket.replied(reply(), CallCost { cost_nanos: Some(7), tokens: 0 }).await.unwrap();
    journal.damage("UPDATE calls SET reply = substr(reply, 1, 4)").await;
    let row = || async { journal.calls_in_short(&World::run()).await.unwrap().remove(0) };
    ledger.reopen(row().await).await.unwrap().lost("gone".into(), None).await.unwrap();
    let stored = row().await;
    assert_eq!((stored.state(), stored.charged_cost()), (CallState::Lost, Some(7)));
    assert_eq!(ledger.budget().spent().total().cost_nanos, 7);
}

#[tokio::test]
async fn ticket_whose_end_cannot_be_stored_stays_charged() {
    for how in 0..5 {
        let mut world = World::new(TWO_ROUNDS);
        world.limits = BudgetLimits { cost_nanos: Some(LIMIT), ..world.limits };
        let ledger = ledger(&world).await;
        world.store.journal().kill_after(1);
        let ticket = ledger.open(&call(1, 60), Reserving::OrEndResearch, std::future::pending()).await.unwrap();
        assert!(end(ticket, how, 2).await.is_err());
        assert_eq!(ledger.budget().spent().total().cost_nanos, 60, "end {how}");
    }
}
