use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

use super::{QUESTION, searching};
use crate::common::{Run, World};
use crate::reader;
use crate::web_server::{Fault, Kind, Setup, WebServer};

/// How long a run may take before the test says that it hangs.
const PATIENCE: Duration = Duration::from_mins(5);

/// Number of the model call that gets the fault. Of the other kinds it is the first call.
const MODEL_CALL: usize = 4;

/// Starts a server where `fault` happens once to each kind of call, and returns it with a greenhouse.
fn faulty(fault: Fault) -> (WebServer, World) {
    let setup = Setup::new(reader::say).with_polls(0).with_faults(move |call| {
        let due = match call.kind {
            Kind::Reply => MODEL_CALL,
            // Without a model no job would be started, and the fault would not occur.
            Kind::AskModel => return None,
            _ => 1,
        };
        (call.number == due).then(|| fault.clone())
    });
    searching(setup)
}

/// Runs `dr` and fails if it hangs.
fn ended(world: &World, args: &[&str]) -> Run {
    let child = world.spawn(args);
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

/// Returns the request numbers of all stored replies.
fn stored(world: &World) -> BTreeSet<usize> {
    let number = |call: Value| call.pointer("/reply/raw/id")?.as_str()?.strip_prefix("chatcmpl-")?.parse().ok();
    world.export(None).into_iter().filter_map(number).collect()
}

/// Runs with `fault` on every kind of call, then resumes. Both must end with the exit code that fits their report,
/// without repeating a stored call. The full matrix of faults and calls runs in-process, see `src/run/tests`.
fn survives(fault: &Fault) {
    let (server, world) = faulty(fault.clone());
    let mut ask = vec!["ask", "--json", "--quiet", "--mode", "deep", "--deep-research-max", "1", QUESTION];
    if *fault == Fault::TimeOut {
        // Only a time limit ends a request that hangs. Where the run stands by then depends on the machine, so the checks
        // below hold for every such moment.
        ask.extend(["--max-time", "20s"]);
    }
    let run = ended(&world, &ask);
    deserves_its_exit(fault, &run);
    let (kept, before, jobs) = (stored(&world), server.count(), server.jobs().len());
    deserves_its_exit(fault, &ended(&world, &["resume", "--json", "--add-time", "1s"]));
    let requests = server.requests();
    let (first, later) = requests.split_at(before);
    for request in first.iter().filter(|request| kept.contains(&request.number)) {
        assert!(later.iter().all(|later| later.json != request.json), "{fault:?}: {} was sent again", request.number);
    }
    let started = server.jobs();
    let nodes: BTreeSet<_> = started.iter().map(|job| job.body["metadata"]["dr_node"].to_string()).collect();
    assert_eq!(nodes.len(), started.len(), "{fault:?}: {started:?}");
    // Only a run that its time limit ended may have left a job to the resumed run.
    assert!(jobs <= 1 && (started.len() == jobs || *fault == Fault::TimeOut), "{fault:?}: {started:?}");
}

/// Asserts that the exit code fits the report.
fn deserves_its_exit(fault: &Fault, run: &Run) {
    let report = run.json();
    let has_answer = !report["findings"].as_array().unwrap().is_empty();
    let is_whole = report["degraded"] == false;
    let has_failed = !report["failed_nodes"].as_array().unwrap().is_empty();
    let expected = match report["stop_reason"].as_str().unwrap() {
        // The time can be up before anything is found.
        "time_exceeded" if *fault == Fault::TimeOut && !has_answer => {
            if has_failed {
                1
            } else {
                4
            }
        }
        "complete" | "no_more_tasks" | "no_progress" if has_answer && is_whole => 0,
        _ if has_answer => 4,
        other => panic!("{fault:?}: {other}: {run}"),
    };
    assert_eq!(run.exit, Some(expected), "{fault:?}: {run}");
}

#[test]
fn run_survives_a_broken_endpoint() {
    survives(&Fault::BadGateway);
}

#[test]
fn run_survives_a_connection_that_breaks_after_the_work() {
    survives(&Fault::ResetAfter);
}

#[test]
fn run_survives_a_missing_reply() {
    survives(&Fault::TimeOut);
}

#[test]
fn run_survives_a_decompression_bomb() {
    survives(&Fault::GzipBomb);
}
