use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::{
    ONE_ROUND, QUESTION, TWO_ROUNDS, answer, assert_nothing_stored_was_sent_again, calls, count, outcome, stored,
    undisturbed, world_at,
};
use crate::common::{Run, World, kill};
use crate::model_server::{ModelServer, Response};
use crate::researcher::Researcher;

/// Number of kills, spread over the requests of a run.
const KILLS: usize = 10;

/// Starts an endpoint that signals when request `held` arrives and never answers it.
fn holding(researcher: Researcher, held: usize) -> (ModelServer, Receiver<()>) {
    let (sender, receiver) = channel();
    let server = ModelServer::start(move |request| {
        if request.number == held {
            // A failed test has dropped the receiver.
            let _ = sender.send(());
            return Response::Hang;
        }
        answer(researcher, request)
    });
    (server, receiver)
}

/// Starts `dr ask` and returns once the held request has arrived.
pub(super) fn started(world: &World, held: &Receiver<()>) -> Child {
    #[cfg(unix)]
    crate::signals::deliver_signals();
    let child = world.spawn(["ask", "--json", QUESTION]);
    held.recv_timeout(Duration::from_mins(1)).expect("the request comes");
    child
}

pub(crate) fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    // The shell's own `kill` is on every machine.
    let sent = Command::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "sh", signal, &pid]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn run_killed_at_any_request_resumes_to_the_same_report_without_repeating_calls() {
    let (expected, requests) = undisturbed(TWO_ROUNDS, "");
    assert!(requests >= 2 * KILLS, "{requests} requests");
    for point in 0..KILLS {
        let held = 1 + point * (requests - 1) / (KILLS - 1);
        let (server, has_come) = holding(TWO_ROUNDS, held);
        let world = world_at(&server);
        let mut child = started(&world, &has_come);
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());

        let (before, kept) = (server.count(), stored(&calls(&world)));
        assert!(!kept.contains(&held) && kept.len() + 3 >= before.min(held), "{kept:?} of {before}");
        let resumed = world.dr(["resume", "--json"]).succeeded().json();
        assert_eq!(outcome(resumed), expected, "killed at request {held}");
        assert_nothing_stored_was_sent_again(&server, &kept, before);
        let calls = calls(&world);
        assert_eq!(stored(&calls).len(), requests, "every reply is stored once, killed at request {held}");
        let lost = count(&calls, "unknown");
        assert!((1..=3).contains(&lost), "{lost} requests were under way when it was killed");
        assert!(server.count() <= requests + lost);
        assert_eq!(calls.len(), requests + lost);
    }
}

#[test]
fn locked_run_is_neither_resumed_nor_removed() {
    let (server, has_come) = holding(ONE_ROUND, 5);
    let world = world_at(&server);
    let child = started(&world, &has_come);
    let run = world.run_ids()[0].clone();
    let process = format!("error: run `{run}` is in use by process {} since ", child.id());
    for command in ["resume", "rm"] {
        let refused = world.dr([command, &run]);
        assert_eq!((refused.exit, refused.stdout.as_str()), (Some(1), ""), "{refused}");
        assert!(refused.stderr.starts_with(&process), "{refused}");
        assert!(refused.stderr.ends_with("hint: wait until it is done, or end that process\n"), "{refused}");
    }
    assert_eq!(world.runs()[0]["state"], "running");
    assert_eq!(world.dr(["show", "--json"]).succeeded().json()["is_running"], true);
    kill(child);
    assert_eq!(world.runs()[0]["state"], "open");
    world.dr(["resume", &run]).succeeded();
}

#[test]
fn interrupted_run_keeps_its_work_and_prints_how_to_resume() {
    keeps_what_it_has_on("INT");
}

#[test]
fn sigterm_acts_like_an_interrupt() {
    keeps_what_it_has_on("TERM");
}

#[cfg(target_os = "linux")]
#[test]
fn closed_terminal_acts_like_an_interrupt() {
    keeps_what_it_has_on("HUP");
}

/// Starts an endpoint that signals when its sixth request arrives and answers it when told to.
fn waiting() -> (ModelServer, Receiver<()>, Sender<()>) {
    let (sender, has_come) = channel();
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    let server = ModelServer::start(move |request| {
        if request.number == 6 {
            let _ = sender.send(());
            let _ = released.lock().unwrap().recv();
        }
        answer(ONE_ROUND, request)
    });
    (server, has_come, release)
}

fn keeps_what_it_has_on(signal: &str) {
    let (expected, requests) = undisturbed(ONE_ROUND, "");
    let (server, has_come, release) = waiting();
    let world = world_at(&server);
    let child = started(&world, &has_come);
    send(signal, &child);
    release.send(()).unwrap();
    let asked: Run = world.run_of(child.wait_with_output().unwrap());
    assert_eq!(asked.exit, Some(130), "{asked}");
    assert_eq!(asked.json()["stop_reason"], "cancelled");
    let run = world.run_ids()[0].clone();
    assert!(asked.stderr.ends_with(&format!("note: `dr resume {run}` continues this run\n")), "{asked}");

    let resumed = world.dr(["resume", &run, "--json"]).succeeded().json();
    assert_eq!(outcome(resumed), expected);
    assert_eq!((server.count(), count(&calls(&world), "replied")), (requests, requests), "what was under way was kept");
}

/// A closed terminal closes both streams and sends SIGHUP twice: once from the kernel, once from the shell.
#[cfg(target_os = "linux")]
#[test]
fn run_with_closed_output_is_still_stored() {
    let (expected, _) = undisturbed(ONE_ROUND, "");
    let (server, has_come, release) = waiting();
    let world = world_at(&server);
    let mut child = started(&world, &has_come);
    drop((child.stdout.take(), child.stderr.take()));
    send("HUP", &child);
    send("HUP", &child);
    release.send(()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(world.dr(["replay", "--json"]).json()["stop_reason"], "cancelled");
    assert_eq!(outcome(world.dr(["resume", "--json"]).succeeded().json()), expected);
}

#[test]
fn run_under_nohup_outlives_its_terminal() {
    let (expected, _) = undisturbed(ONE_ROUND, "");
    let (server, has_come, release) = waiting();
    let world = world_at(&server);
    let dr = world.command(["ask", "--json", QUESTION]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(dr.get_program()).args(dr.get_args());
    shell.current_dir(dr.get_current_dir().unwrap()).stdin(Stdio::null()).env_clear();
    shell.envs(dr.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    has_come.recv_timeout(Duration::from_mins(1)).expect("the request comes");
    send("HUP", &child);
    release.send(()).unwrap();
    let asked = world.run_of(child.wait_with_output().unwrap()).succeeded();
    assert_eq!(outcome(asked.json()), expected);
}
