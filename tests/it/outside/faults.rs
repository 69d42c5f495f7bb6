use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use super::{QUESTION, greenhouse, models_at, set};
use crate::common::{Run, World};
use crate::model_server::Request;
use crate::reader;
use crate::web_server::{Fault, Kind, Setup, WebServer};

/// What is allowed for a run that may go on for fifteen seconds to end.
const PATIENCE: Duration = Duration::from_secs(100);

/// Which call of a model something goes wrong with; of the others it is the first of each kind.
const MODEL_CALL: usize = 4;

/// Says what the reader says, for a plan with a node for every way.
fn say(request: &Request) -> String {
    if request.form() != Some("plan") || request.said().starts_with("You go on planning") {
        return reader::say(request);
    }
    let node = |id: &str, question: &str, hint: &str, priority: i32| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "priority": priority, "why": "it is asked for" });
    let new_nodes = [
        node("inside", "How do we water the greenhouse beds?", "internal", 0),
        node("job", "How do others water greenhouse beds?", "web", 2),
        node("worker", "What does greenhouse water cost?", "web", 1),
        node("both", "How often are copper gutters polished?", "mixed", 0),
    ];
    json!({ "reasoning": "one for every way", "new_nodes": new_nodes, "updates": [] }).to_string()
}

/// Starts a server where `fault` happens once to each kind of call.
fn faulty(fault: Fault) -> WebServer {
    let is_brief = matches!(fault, Fault::RateLimited { .. } | Fault::ServerError | Fault::ResetBefore);
    let setup = Setup::new(say).with_polls(0).with_faults(move |call| {
        let due = match call.kind {
            Kind::Reply => MODEL_CALL,
            // Where no model can be found, no job can be started for the fault to happen to.
            Kind::AskModel if !is_brief => return None,
            _ => 1,
        };
        (call.number == due).then(|| fault.clone())
    });
    setup.start()
}

/// Runs `dr` to its end, which must come.
fn ended(world: &World, args: &[&str]) -> Run {
    let child = world.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        // The shell's own `kill` is on every machine.
        let _ = std::process::Command::new("sh").args(["-c", "kill -KILL \"$1\"", "sh", &pid.to_string()]).status();
        panic!("{args:?} hangs");
    };
    world.run_of(output.unwrap())
}

/// Returns the requests of models whose replies are stored.
fn stored(world: &World) -> BTreeSet<usize> {
    let lines = world.dr(["export"]).succeeded().stdout;
    let calls = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |call: Value| call.pointer("/reply/raw/id")?.as_str()?.strip_prefix("chatcmpl-")?.parse().ok();
    calls.filter_map(number).collect()
}

/// Runs into `fault` everywhere, goes on, and makes sure that both end as they should.
fn survives(fault: &Fault) {
    let server = faulty(fault.clone());
    let world = models_at(greenhouse(), &server).with_variable("SEARXNG_URL", server.origin());
    set(&world, "[deep_research]\nmodels = [\"fixture\"]\n");
    let ask = ["ask", "--json", "--quiet", "--mode", "deep", "--max-time", "15s", "--deep-research-max", "1", QUESTION];
    let run = ended(&world, &ask);
    match run.exit {
        Some(0 | 3 | 4) => assert!(run.json()["stop_reason"].is_string(), "{fault:?}: {run}"),
        Some(1) => assert!(run.stderr.contains("error: ") || run.json()["failed_nodes"].is_array(), "{fault:?}: {run}"),
        _ => panic!("{fault:?}: {run}"),
    }
    if run.stdout.is_empty() && !world.dr(["runs"]).stdout.contains("open") {
        return;
    }
    let (kept, before, jobs) = (stored(&world), server.count(), server.jobs().len());
    let resumed = ended(&world, &["resume", "--json", "--add-time", "1s"]);
    assert!(matches!(resumed.exit, Some(0 | 1 | 3 | 4)), "{fault:?}: {resumed}");
    let requests = server.requests();
    let (first, later) = requests.split_at(before);
    for request in first.iter().filter(|request| kept.contains(&request.number)) {
        assert!(later.iter().all(|later| later.json != request.json), "{fault:?}: {} was sent again", request.number);
    }
    assert!(jobs <= 1 && server.jobs().len() <= 1, "{fault:?}: {:?}", server.jobs());
}

#[test]
fn run_survives_servers_that_are_busy_or_broken() {
    for fault in [
        Fault::RateLimited { retry_after: Some(0) },
        Fault::RateLimited { retry_after: None },
        Fault::ServerError,
        Fault::BadGateway,
    ] {
        survives(&fault);
    }
}

#[test]
fn run_survives_connections_that_break() {
    for fault in [Fault::ResetBefore, Fault::ResetAfter, Fault::Truncated] {
        survives(&fault);
    }
}

#[test]
fn run_survives_replies_that_do_not_come_or_come_slowly() {
    for fault in [Fault::TimeOut, Fault::Drip { pause: Duration::from_millis(1) }] {
        survives(&fault);
    }
}

#[test]
fn run_survives_replies_that_are_not_what_they_should_be() {
    for fault in [Fault::InvalidJson, Fault::UnknownItems, Fault::RedirectLoop, Fault::GzipBomb] {
        survives(&fault);
    }
}

#[test]
fn run_survives_jobs_that_come_to_nothing() {
    for fault in [Fault::LostJob, Fault::FailedJob, Fault::IncompleteJob] {
        survives(&fault);
    }
}
