//! Fault matrix: under every fault of every call, a run ends within its limits, reports what it lost, and repeats no
//! finished call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use super::super::journal::{CallRow, CallState};
use super::super::orchestrator::RunError;
use super::super::usage::usage_of;
use super::hangs::Hangs;
use super::outside::{LIMITS, Outside, answered, requested_jobs};
use super::{World, report_of};
use crate::base::money::nanos;
use crate::llm::openai::Api;
use crate::model_server::Request;
use crate::reader;
use crate::research::node::{NodeId, NodeStatus};
use crate::research::report::StopReason;
use crate::research::route::Route;
use crate::web_server::{Call, Fault, Kind, Setup, WebServer};

/// Cases that run in parallel. More would mostly wait for each other's threads.
const AT_ONCE: usize = 4;

/// Faults that can occur in any call.
const FAULTS: [Fault; 13] = [
    Fault::RateLimited { retry_after: Some(0) },
    Fault::RateLimited { retry_after: None },
    Fault::ServerError,
    Fault::BadGateway,
    Fault::TimeOut,
    Fault::ResetBefore,
    Fault::ResetAfter,
    Fault::Truncated,
    Fault::InvalidJson,
    Fault::UnknownItems,
    // The head arrives; the body never does.
    Fault::Drip { pause: Duration::from_hours(1) },
    Fault::RedirectLoop,
    Fault::GzipBomb,
];

/// Faults that persist: a server that is down, hangs, drops connections, returns nonsense or has moved.
const LASTING: [Fault; 5] =
    [Fault::ServerError, Fault::TimeOut, Fault::ResetAfter, Fault::InvalidJson, Fault::RedirectLoop];

/// The calls that get a fault.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// One call of a kind, counted from 1.
    Nth(Kind, usize),
    /// All calls of a kind from a number on.
    From(Kind, usize),
    /// The first call of the writer.
    Writer,
}

/// A fault and its places. No place prevents another from being reached.
#[derive(Clone, Debug)]
struct Case {
    fault: Fault,
    places: Vec<Place>,
    api: Api,
}

/// State of a case, shared with its server.
#[derive(Debug, Default)]
struct Progress {
    /// Whether faults are switched off.
    is_over: AtomicBool,
    /// Indexes of the places that were reached.
    reached: Mutex<BTreeSet<usize>>,
}

impl Progress {
    fn meets(&self, places: &[Place], call: &Call<'_>) -> bool {
        let mut reached = self.reached.lock().unwrap();
        let is_due = |(number, place): &(usize, &Place)| match **place {
            Place::Nth(kind, due) => call.kind == kind && call.number == due,
            Place::From(kind, due) => call.kind == kind && call.number >= due,
            Place::Writer => call.request.form() == Some("answer") && !reached.contains(number),
        };
        let due = places.iter().enumerate().find(is_due).map(|(number, _)| number);
        if self.is_over.load(Ordering::SeqCst) {
            return false;
        }
        reached.extend(due);
        due.is_some()
    }
}

impl Case {
    fn new(fault: Fault, places: impl Into<Vec<Place>>, api: Api) -> Self {
        Self { fault, places: places.into(), api }
    }

    fn server(&self, progress: &Arc<Progress>, hangs: &Hangs) -> WebServer {
        let (case, progress, hangs) = (self.clone(), Arc::clone(progress), hangs.clone());
        // A job is cancelled only if it exceeds its time limit.
        let is_slow = |place: &Place| matches!(place, Place::Nth(Kind::CancelJob, _) | Place::From(Kind::CancelJob, _));
        let polls = if self.places.iter().any(is_slow) { usize::MAX } else { 2 };
        let faults = move |call: &Call<'_>| progress.meets(&case.places, call).then(|| case.fault.clone());
        Setup::new(say).with_polls(polls).with_faults(faults).with_hangs(move |kind| hangs.hang(kind)).start()
    }
}

/// Replies like the reader, but with a plan of twelve nodes that covers every route.
fn say(request: &Request) -> String {
    if request.form() != Some("plan") || request.said().starts_with("You continue the plan") {
        return reader::say(request);
    }
    let node = |id: &str, question: &str, hint: &str, depends_on: &[&str]| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "depends_on": depends_on, "why": "it is asked for" });
    let new_nodes = [
        node("i1", "What is said of topic 1?", "internal", &[]),
        node("i2", "What is said of topic 2?", "internal", &[]),
        node("i3", "What is said of topic 3?", "internal", &[]),
        // Jobs take as many of these as allowed, workers the others.
        node("w1", "How do others water greenhouse beds?", "web", &[]),
        node("w2", "What do copper gutters cost?", "web", &[]),
        node("w3", "How long do drip lines last?", "web", &[]),
        node("w4", "Which seeds need frost alarms?", "web", &[]),
        node("m1", "How are rain barrels kept clean?", "mixed", &[]),
        node("m2", "What is said of topic 4, and of compost heaps elsewhere?", "mixed", &[]),
        node("d1", "What is said of topic 5?", "internal", &["i1", "w1"]),
        node("d2", "How do others paint garden fences?", "mixed", &["w2", "m1"]),
        node("d3", "What is said of topic 6?", "internal", &["d1", "d2"]),
    ];
    json!({ "reasoning": "one for every way", "new_nodes": new_nodes, "updates": [] }).to_string()
}

/// Runs with the fault, resumes without it, and resumes once more with `--retry-unknown`.
async fn survives(case: &Case) {
    let (progress, hangs) = (Arc::new(Progress::default()), Hangs::default());
    let server = case.server(&progress, &hangs);
    let world = Outside { hangs, ..Outside::at(&server, case.api) };
    check(case, &world, world.ask().await).await;
    assert_eq!(progress.reached.lock().unwrap().len(), case.places.len(), "{case:?}: {progress:?}");
    progress.is_over.store(true, Ordering::SeqCst);
    let (lost, from) = (unknown(&world).await, server.count());
    let (starts, under_way) = (world.starts().await, under_way(&world).await);
    check(case, &world, world.resume(false).await).await;
    let ended: BTreeSet<_> = world.calls().await.iter().filter(|call| !call.is_open()).map(|call| call.id).collect();
    assert!(under_way.is_subset(&ended), "{case:?}: the run reattaches to jobs in flight");
    let again = world.starts().await;
    assert!(
        lost.iter().all(|node| again[node] == starts[node]),
        "{case:?}: no job is retried without `--retry-unknown`"
    );
    assert!(requested_jobs(&server, from).keys().all(|node| !lost.contains(node)), "{case:?}");
    assert_eq!(unknown(&world).await, lost, "{case:?}");
    let from = server.count();
    check(case, &world, world.resume(true).await).await;
    let once: BTreeMap<_, _> = lost.iter().map(|node| (node.clone(), 1)).collect();
    assert_eq!(requested_jobs(&server, from), once, "{case:?}: each of them is started once more, and no other");
    let state = world.state().await;
    let is_failed = |node: &NodeId| state.tree.get(node).unwrap().status == NodeStatus::Failed;
    assert!(!lost.iter().any(is_failed), "{case:?}: {:#?}", state.tree);
}

/// Returns the nodes whose job was started with unknown outcome, and asserts that they failed.
async fn unknown(world: &Outside<'_>) -> BTreeSet<NodeId> {
    let state = world.state().await;
    let calls = world.calls().await;
    let unknown = calls.iter().filter(|call| call.is_job() && call.is_open() && call.job.is_none());
    let nodes: BTreeSet<NodeId> = unknown.map(|call| call.key.node().cloned().unwrap()).collect();
    for node in nodes.iter().filter_map(|id| state.tree.get(id)) {
        assert_eq!(node.status, NodeStatus::Failed, "{node:?}");
    }
    nodes
}

/// Returns the calls whose jobs were in flight when the run ended.
async fn under_way(world: &Outside<'_>) -> BTreeSet<i64> {
    let calls = world.calls().await;
    calls.iter().filter(|call| call.state() == CallState::Sent && call.job.is_some()).map(|call| call.id).collect()
}

/// Asserts that a run ended correctly.
async fn check(case: &Case, world: &Outside<'_>, ended: Result<StopReason, RunError>) {
    let state = world.state().await;
    match ended {
        Ok(stop) => {
            assert_eq!(state.stop_reason(), Some(stop));
            assert_ne!(stop, StopReason::Cancelled, "{case:?}: it was not stopped");
            is_honest(case, world).await;
        }
        // Without even a plan there is nothing to report.
        Err(RunError::Call { .. }) if state.round() == 0 => {}
        Err(error) => panic!("{case:?}: {error}: {:?}", std::error::Error::source(&error)),
    }
    let usage = usage_of(world.store.journal(), &World::run()).await.unwrap();
    let of_jobs = usage.by_role.get("researcher").map_or(0, |usage| usage.input_tokens + usage.output_tokens);
    let tokens = usage.total.input_tokens + usage.total.output_tokens - of_jobs;
    assert!(tokens <= LIMITS.tokens.unwrap(), "{case:?}: {tokens} tokens");
    assert!(nanos(usage.total.cost_usd.unwrap()) <= LIMITS.cost_nanos.unwrap(), "{case:?}: {:?}", usage.total);
    assert!(state.active <= LIMITS.time.unwrap(), "{case:?}: {:?}", state.active);
    pays_once(case, world).await;
}

/// Asserts that the report names everything that was lost.
async fn is_honest(case: &Case, world: &Outside<'_>) {
    let state = world.state().await;
    let report = report_of(&state);
    let is_lost = |status| matches!(status, NodeStatus::Failed | NodeStatus::Pending | NodeStatus::Running);
    for node in state.tree.nodes.iter().filter(|node| is_lost(node.status)) {
        let is_told = report.limitations.iter().any(|limitation| limitation.contains(node.question.as_str()));
        assert!(report.degraded && is_told, "{case:?}: {node:?} {:#?}", report.limitations);
    }
    for quote in &report.evidence {
        assert!(quote.checked, "{case:?}: {quote:?}");
    }
    let is_writer = |key: &str| key.starts_with("draft/") || key == "write";
    let calls = world.calls().await;
    let last = calls.iter().rev().find(|call| is_writer(call.key.as_str()));
    if last.is_some_and(|call| call.state() != CallState::Replied) {
        let is_told = report.limitations.iter().any(|limitation| limitation.contains("without a model"));
        assert!(report.degraded && is_told, "{case:?}: {:#?}", report.limitations);
    }
}

/// Asserts that no finished call was repeated, according to the journal and to the servers.
async fn pays_once(case: &Case, world: &Outside<'_>) {
    let calls = world.calls().await;
    let requests = world.server.requests();
    let mut stored: BTreeMap<String, usize> = BTreeMap::new();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.state() == CallState::Replied) {
        let is_again = |other: &_| same(call, other);
        assert!(!calls[at + 1..].iter().any(is_again), "{case:?}: `{}` was made again", call.key);
        let Some(number) = answered(&call.reply().unwrap().raw) else { continue };
        let body = &requests[number - 1].json;
        let later = requests[number..].iter().find(|later| later.json == *body);
        assert!(later.is_none(), "{case:?}: `{}` was sent again: {later:?}", call.key);
        *stored.entry(body.to_string()).or_default() += 1;
    }
    assert!(stored.values().all(|times| *times == 1), "{case:?}");
    let known = |job: &str| {
        let of_node = |call: &&CallRow| call.is_job() && call.key.node().unwrap().to_string() == job;
        calls.iter().filter(of_node).filter(|call| call.state() != CallState::Failed).count()
    };
    let jobs = world.server.jobs();
    let nodes: Vec<_> = jobs.iter().map(|job| job.body["metadata"]["dr_node"].as_str().unwrap()).collect();
    for node in &nodes {
        let started = nodes.iter().filter(|other| *other == node).count();
        assert!(started <= known(node), "{case:?}: {started} jobs for `{node}`");
    }
}

fn same(call: &CallRow, other: &CallRow) -> bool {
    (&call.key, &call.request_hash) == (&other.key, &other.request_hash)
}

async fn survives_all(cases: impl IntoIterator<Item = Case>) {
    let cases = futures::stream::iter(cases);
    cases.for_each_concurrent(AT_ONCE, async |case| survives(&case).await).await;
}

#[tokio::test]
async fn run_without_faults_covers_every_route() {
    let server = Setup::new(say).with_polls(2).start();
    let world = Outside::at(&server, Api::Chat);
    assert_eq!(world.ask().await.unwrap(), StopReason::Complete);
    let state = world.state().await;
    let routes = |route| state.routes.values().filter(|taken| **taken == route).count();
    let all = [Route::Internal, Route::DeepResearch, Route::Web, Route::Mixed].map(routes);
    assert_eq!((state.tree.workers().count(), all), (12, [5, 2, 2, 3]));
    assert!(!report_of(&state).degraded);
    assert!(state.tree.workers().all(|node| node.status == NodeStatus::Done), "{:#?}", state.tree);
}

#[tokio::test]
async fn fault_of_a_model_is_survived() {
    let first = FAULTS.map(|fault| Case::new(fault, [Place::Nth(Kind::Reply, 1)], Api::Responses));
    let lasting = LASTING.map(|fault| Case::new(fault, [Place::From(Kind::Reply, 4)], Api::Responses));
    survives_all(first.into_iter().chain(lasting)).await;
}

#[tokio::test]
async fn fault_of_a_worker_of_the_writer_and_of_cancelling_a_job_is_survived() {
    let places = [Place::Nth(Kind::Reply, 4), Place::Writer, Place::Nth(Kind::CancelJob, 1)];
    survives_all(FAULTS.map(|fault| Case::new(fault, places, Api::Chat))).await;
    let places = [Place::Nth(Kind::CancelJob, 1)];
    survives(&Case::new(Fault::LostJob, places, Api::Responses)).await;
}

#[tokio::test]
async fn fault_of_the_start_of_a_job_is_survived() {
    let of_jobs = [Fault::LostJob, Fault::FailedJob, Fault::IncompleteJob];
    let places = [Place::Nth(Kind::StartJob, 1), Place::Nth(Kind::Robots, 1)];
    let once = FAULTS.into_iter().chain(of_jobs).map(|fault| Case::new(fault, places, Api::Chat));
    let lasting = LASTING.map(|fault| Case::new(fault, [Place::From(Kind::StartJob, 1)], Api::Responses));
    survives_all(once.chain(lasting)).await;
}

#[tokio::test]
async fn fault_of_polling_a_job_of_a_search_and_of_a_page_is_survived() {
    let places = [Kind::AskModel, Kind::AskJob, Kind::SearxNg, Kind::Page].map(|kind| Place::Nth(kind, 1));
    survives_all(FAULTS.map(|fault| Case::new(fault, places, Api::Chat))).await;
    survives(&Case::new(Fault::LostJob, [Place::Nth(Kind::AskJob, 3)], Api::Chat)).await;
}

#[tokio::test]
async fn permanent_loss_of_all_servers_is_survived() {
    let pairs = [[Kind::AskModel, Kind::SearxNg], [Kind::AskJob, Kind::Robots]];
    let lasting = LASTING.into_iter().flat_map(|fault| {
        pairs.map(|pair| Case::new(fault.clone(), pair.map(|kind| Place::From(kind, 1)), Api::Responses))
    });
    survives_all(lasting).await;
}
