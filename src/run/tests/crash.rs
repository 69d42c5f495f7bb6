//! A run that is killed at any write ends in the report it would have had, and pays for no finished call again.

use super::super::journal::CallRow;
use super::*;

/// Returns the calls of the run.
async fn calls(world: &World) -> Vec<CallRow> {
    world.store.journal().calls(&World::run()).await.unwrap()
}

#[tokio::test]
async fn run_killed_at_any_write_ends_in_the_same_report_and_pays_for_no_finished_call_again() {
    let whole = World::new(TWO_ROUNDS);
    let journal = whole.store.journal().clone();
    journal.kill_after(i64::MAX);
    whole.ask().await.unwrap();
    let writes = i64::MAX - journal.writes_left();
    let expected = whole.report().await;
    assert!(calls(&whole).await.len() >= 40);
    for survived in 0..writes {
        let world = World::new(TWO_ROUNDS);
        world.store.journal().kill_after(survived);
        assert!(world.ask().await.is_err(), "killed after {survived} of {writes} writes, and went on");
        world.store.journal().kill_after(i64::MAX);
        let resumed = if world.store.journal().runs().await.unwrap().is_empty() {
            world.ask().await
        } else {
            world.resume(None).await
        };
        assert_eq!(resumed.unwrap(), StopReason::Complete, "killed after {survived} writes");
        assert_eq!(world.report().await, expected, "killed after {survived} writes");
        let calls = calls(&world).await;
        let sent: usize = world.model.sent.lock().unwrap().values().sum();
        assert!(sent <= calls.len(), "every request is written down before it is sent");
        for call in calls.iter().filter(|call| call.outcome == "replied") {
            let same = |other: &&CallRow| other.key == call.key && other.request_hash == call.request_hash;
            let finished = calls.iter().filter(same).filter(|call| call.outcome == "replied").count();
            assert_eq!(finished, 1, "`{}` was paid for twice after {survived} writes", call.key);
        }
    }
}

#[tokio::test]
async fn request_whose_outcome_nobody_knows_stays_charged_and_is_counted() {
    let world = World::new(TWO_ROUNDS);
    // The first call is written down before it is sent; the write of its reply is the one that fails.
    let journal = world.store.journal().clone();
    journal.kill_after(2);
    assert!(world.ask().await.is_err());
    journal.kill_after(i64::MAX);
    world.resume(None).await.unwrap();
    let calls = calls(&world).await;
    let lost: Vec<_> = calls.iter().filter(|call| call.outcome == "unknown").collect();
    assert_eq!(lost.len(), 1);
    assert!(lost[0].worst_cost.unwrap() > 0);
    let settled: u64 = calls.iter().filter_map(|call| call.cost).sum();
    let total = world.usage().await.total.cost_usd.unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few cents")]
    let expected = (settled + lost[0].worst_cost.unwrap()) as f64 / 1e9;
    assert!((total - expected).abs() < 1e-9, "{total} {expected}");
}
