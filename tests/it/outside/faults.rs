use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

use super::{QUESTION, greenhouse, models_at};
use crate::common::{Run, World};
use crate::reader;
use crate::web_server::{Fault, Kind, Setup, WebServer};

/// What is allowed for a run that may go on for ten seconds to end.
const PATIENCE: Duration = Duration::from_secs(100);

/// Which call of a model something goes wrong with; of the others it is the first of each kind.
const MODEL_CALL: usize = 4;

/// Starts a server where `fault` happens once to each kind of call.
fn faulty(fault: Fault) -> WebServer {
    let setup = Setup::new(reader::say).with_polls(0).with_faults(move |call| {
        let due = match call.kind {
            Kind::Reply => MODEL_CALL,
            // Where no model can be found, no job can be started for the fault to happen to.
            Kind::AskModel => return None,
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

/// Runs into `fault` everywhere and goes on: both end with the exit code their reports deserve, and nothing that is stored
/// is asked for again. Every fault of every call is tried where no process has to be started for it, see `src/run/tests`.
fn survives(fault: &Fault) {
    let server = faulty(fault.clone());
    let world = models_at(greenhouse(), &server).with_variable("SEARXNG_URL", server.origin());
    let ask = ["ask", "--json", "--quiet", "--mode", "deep", "--max-time", "10s", "--deep-research-max", "1", QUESTION];
    let run = ended(&world, &ask);
    deserves_its_exit(fault, &run);
    let (kept, before, jobs) = (stored(&world), server.count(), server.jobs().len());
    deserves_its_exit(fault, &ended(&world, &["resume", "--json", "--add-time", "1s"]));
    let requests = server.requests();
    let (first, later) = requests.split_at(before);
    for request in first.iter().filter(|request| kept.contains(&request.number)) {
        assert!(later.iter().all(|later| later.json != request.json), "{fault:?}: {} was sent again", request.number);
    }
    assert!(jobs <= 1 && server.jobs().len() == jobs, "{fault:?}: {:?}", server.jobs());
}

/// Makes sure that the exit code says what the report does.
fn deserves_its_exit(fault: &Fault, run: &Run) {
    let report = run.json();
    let has_answer = !report["findings"].as_array().unwrap().is_empty();
    let is_whole = report["degraded"] == false;
    let expected = match report["stop_reason"].as_str().unwrap() {
        "complete" | "no_more_tasks" | "no_progress" if has_answer && is_whole => 0,
        _ if has_answer => 4,
        other => panic!("{fault:?}: {other}: {run}"),
    };
    assert_eq!(run.exit, Some(expected), "{fault:?}: {run}");
}

#[test]
fn run_survives_an_endpoint_that_is_broken() {
    survives(&Fault::BadGateway);
}

#[test]
fn run_survives_a_connection_that_breaks_after_the_work() {
    survives(&Fault::ResetAfter);
}

#[test]
fn run_survives_a_reply_that_does_not_come() {
    survives(&Fault::TimeOut);
}

#[test]
fn run_survives_a_bomb() {
    survives(&Fault::GzipBomb);
}
