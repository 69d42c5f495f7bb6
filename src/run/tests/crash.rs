//! Crash sweep: a run killed at any write resumes to the same report without repeating a finished call.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::journal::{CallRow, CallState};
use super::outside::{Outside, requested_jobs};
use super::*;
use crate::llm::openai::Api;
use crate::research::node::{NodeId, NodeStatus};
use crate::research::plan::SavedPlan;
use crate::source::{Label, Place};
use crate::web_server::{Setup, WebServer};

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
        let resumed = if world.store.journal().runs().await.unwrap().runs.is_empty() {
            world.ask().await
        } else {
            world.resume(None).await
        };
        assert_eq!(resumed.unwrap(), StopReason::Complete, "killed after {survived} writes");
        assert_eq!(world.report().await, expected, "killed after {survived} writes");
        let calls = calls(&world).await;
        let sent: usize = world.model.sent.lock().unwrap().values().sum();
        assert!(sent <= calls.len(), "every request is written down before it is sent");
        for call in calls.iter().filter(|call| call.state() == CallState::Replied) {
            let same = |other: &&CallRow| other.key == call.key && other.request_hash == call.request_hash;
            let finished = calls.iter().filter(same).filter(|call| call.state() == CallState::Replied).count();
            assert_eq!(finished, 1, "`{}` was paid for twice after {survived} writes", call.key);
        }
    }
}

#[tokio::test]
async fn request_with_unknown_outcome_stays_charged_and_is_counted() {
    let world = World::new(TWO_ROUNDS);
    // The first write records the request before it is sent, so the write of its reply is the one that fails.
    let journal = world.store.journal().clone();
    journal.kill_after(2);
    assert!(world.ask().await.is_err());
    journal.kill_after(i64::MAX);
    world.resume(None).await.unwrap();
    let calls = calls(&world).await;
    let lost: Vec<_> = calls.iter().filter(|call| call.state() == CallState::Unknown).collect();
    assert_eq!(lost.len(), 1);
    assert!(lost[0].worst_cost.unwrap() > 0);
    let settled: u64 = calls.iter().filter(|call| !call.is_open()).filter_map(CallRow::charged_cost).sum();
    let total = world.usage().await.total.cost_usd.unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few cents")]
    let expected = (settled + lost[0].worst_cost.unwrap()) as f64 / 1e9;
    assert!((total - expected).abs() < 1e-9, "{total} {expected}");
}

/// Returns a world without a search engine, in which jobs handle a web node and a mixed node that the notes do not
/// answer.
fn with_jobs(server: &WebServer) -> Outside<'_> {
    let node = |id: &str, question: &str, hint: &str, depends_on: &[&str]| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "depends_on": depends_on, "why": "it is asked for" });
    let plan = json!({ "reasoning": "one for every way", "new_nodes": [
        node("inside", "What is said of topic 1?", "internal", &[]),
        node("one", "How do others water greenhouse beds?", "web", &[]),
        node("both", "How are rain barrels kept clean?", "mixed", &[]),
        node("last", "What is said of topic 2?", "internal", &["one"]),
    ] });
    Outside {
        models: Some(ScriptedModel::new(Researcher { nodes: 4, more_nodes: 0 }, Duration::ZERO).models()),
        plan: Some(serde_json::from_value::<SavedPlan>(plan).unwrap()),
        can_search: false,
        max_jobs: 2,
        ..Outside::at(server, Api::Responses)
    }
}

async fn failed(world: &Outside<'_>) -> Vec<NodeId> {
    let state = world.state().await;
    let failed = state.tree.nodes.iter().filter(|node| node.status == NodeStatus::Failed);
    failed.map(|node| node.id.clone()).collect()
}

/// Returns the report of a run without usage and fetch times.
async fn timeless_report(world: &Outside<'_>) -> Report {
    let mut report = report_of(&world.state().await);
    let quoted = report.evidence.iter_mut().map(|quote| &mut quote.source);
    for place in quoted.chain(report.passages.iter_mut().map(|passage| &mut passage.source)) {
        if let Place::Web { fetched_at, .. } = place {
            *fetched_at = None;
        }
    }
    report
}

/// Asserts that no finished call was repeated.
async fn pays_once(world: &Outside<'_>) {
    let calls = world.calls().await;
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.state() == CallState::Replied) {
        let is_again = |other: &&CallRow| other.key == call.key && other.request_hash == call.request_hash;
        assert!(!calls[at + 1..].iter().any(|other| is_again(&other)), "`{}` was made again", call.key);
    }
}

#[tokio::test]
async fn run_killed_at_any_write_reattaches_to_its_jobs_and_starts_none_twice() {
    let server = Setup::new(|_| String::new()).with_polls(2).start();
    let whole = with_jobs(&server);
    let journal = whole.store.journal().clone();
    journal.kill_after(i64::MAX);
    assert_eq!(whole.ask().await.unwrap(), StopReason::Complete);
    let writes = i64::MAX - journal.writes_left();
    let expected = timeless_report(&whole).await;
    assert!(expected.evidence.iter().any(|quote| quote.label == Label::Public && quote.checked));
    let (starts, mut found_again, mut lost) = (whole.starts().await, 0, 0);
    assert_eq!((starts.len(), requested_jobs(&server, 0)), (2, starts.clone()));
    for survived in 0..writes {
        // All worlds share one page store, since writing pages is slow.
        let world = Outside { pages: Arc::clone(&whole.pages), ..with_jobs(&server) };
        let from = server.count();
        world.store.journal().kill_after(survived);
        assert!(world.ask().await.is_err(), "killed after {survived} of {writes} writes, and went on");
        world.store.journal().kill_after(i64::MAX);
        let is_there = !world.store.journal().runs().await.unwrap().runs.is_empty();
        found_again +=
            usize::from(world.calls().await.iter().any(|call| call.state() == CallState::Sent && call.job.is_some()));
        let resumed = if is_there { world.resume(false).await } else { world.ask().await };
        resumed.unwrap();
        let failed = failed(&world).await;
        let once: BTreeMap<_, _> =
            world.starts().await.into_iter().filter(|(node, _)| !failed.contains(node)).collect();
        assert!(once.values().all(|starts| *starts == 1), "killed after {survived} writes: {once:?}");
        if !failed.is_empty() {
            lost += 1;
            starts_only_those_again(&world, &failed).await;
        }
        let requested = requested_jobs(&server, from);
        let most = |node: &NodeId| if failed.contains(node) { 2 } else { 1 };
        assert!(requested.iter().all(|(node, times)| *times <= most(node)), "killed after {survived}: {requested:?}");
        assert_eq!(requested.len(), 2, "killed after {survived} writes");
        pays_once(&world).await;
        assert_eq!(timeless_report(&world).await, expected, "killed after {survived} writes");
    }
    assert!(found_again >= 2 && lost >= 2, "{found_again} {lost}");
}

/// Asserts that the failed nodes give a reason, and that `--retry-unknown` starts one more job for each of them.
async fn starts_only_those_again(world: &Outside<'_>, failed: &[NodeId]) {
    let state = world.state().await;
    let report = report_of(&state);
    assert!(report.degraded && report.failed_nodes == failed);
    for node in failed.iter().map(|node| state.tree.get(node).unwrap()) {
        assert!(node.summary.contains("may have been started"), "{node:?}");
    }
    let calls = world.calls().await;
    let is_unknown = |node: &&NodeId| {
        let mut of_node = calls.iter().filter(|call| call.is_job() && call.key.node() == Some(*node));
        of_node.next().is_some_and(|call| call.is_open() && call.job.is_none()) && of_node.next().is_none()
    };
    assert!(failed.iter().all(|node| is_unknown(&node)), "{calls:#?}");
    let before = world.starts().await;
    assert_eq!(world.resume(true).await.unwrap(), StopReason::Complete);
    for (node, starts) in world.starts().await {
        let more = usize::from(failed.contains(&node));
        assert_eq!(starts, before.get(&node).copied().unwrap_or(0) + more, "`{node}`");
    }
}

/// Returns a run that was killed before it stored the id of a job, and before or after it recorded its instructions.
async fn killed_before_an_id(server: &WebServer, has_recorded: bool) -> Outside<'_> {
    let world = Outside { can_search: true, ..with_jobs(server) };
    world.store.journal().kill_from_job(i64::from(has_recorded));
    assert!(world.ask().await.is_err(), "no job was started");
    world.store.journal().kill_after(i64::MAX);
    assert!(world.calls().await.iter().any(|call| call.is_job() && call.job.is_none()));
    world
}

#[tokio::test]
async fn job_with_unknown_start_is_not_replaced_by_a_search() {
    let server = Setup::new(|_| String::new()).with_polls(2).start();
    let world = killed_before_an_id(&server, true).await;
    world.resume(false).await.unwrap();
    let failed = failed(&world).await;
    assert!(!failed.is_empty(), "{:#?}", world.state().await.tree);
    starts_only_those_again(&world, &failed).await;
}

#[tokio::test]
async fn job_whose_instructions_were_not_recorded_was_not_started_and_is_by_the_resumed_run() {
    let server = Setup::new(|_| String::new()).with_polls(2).start();
    let world = killed_before_an_id(&server, false).await;
    assert_eq!(world.resume(false).await.unwrap(), StopReason::Complete);
    assert!(failed(&world).await.is_empty(), "{:#?}", world.state().await.tree);
    let unsent = world.calls().await.into_iter().filter(|call| call.is_job() && call.state() == CallState::Failed);
    assert_eq!(unsent.map(|call| call.charged_cost()).collect::<Vec<_>>(), [Some(0)]);
    assert!(world.starts().await.values().all(|starts| *starts == 1));
}
