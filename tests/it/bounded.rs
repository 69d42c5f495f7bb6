use std::fs::{self, File};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::World;

/// Nests `anyOf` with two alternatives a level.
fn nested(depth: u32) -> Value {
    if depth == 0 { json!({ "type": "string" }) } else { json!({ "anyOf": [nested(depth - 1), nested(depth - 1)] }) }
}

/// Asserts that `dr ask` refuses its arguments at once, with a message.
fn assert_refused(world: &World, args: &[&str], exit: i32, message: &str) {
    let started = Instant::now();
    let run = world.dr(["ask", "--offline", "siren"].iter().chain(args));
    assert_eq!(run.exit, Some(exit), "{run}");
    assert!(run.stderr.contains(message), "{run}");
    // A debug build on a busy machine; without the limits these take minutes.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}: {run}", started.elapsed());
}

#[test]
fn schema_of_a_million_branches_is_refused_at_once() {
    let world = World::indexed_text();
    let schema = |depth| json!({ "type": "object", "properties": { "a": nested(depth) } }).to_string();
    world.write("wide.json", &schema(14));
    assert_refused(&world, &["--schema", "wide.json"], 2, "it has more than 4000 subschemas");
    world.write("wider.json", &schema(16));
    assert_refused(&world, &["--schema", "wider.json"], 1, "longer than 1000 kB");
}

#[test]
fn plan_with_an_endless_task_is_refused_at_once() {
    let world = World::indexed_text();
    let plan = |task: &str| {
        let aspects = json!([{ "id": "a1", "text": "siren" }]);
        json!({ "brief": { "question": "siren", "task": task, "aspects": aspects, "mode": "quick" } }).to_string()
    };
    world.write("plan.json", &plan(&"siren ".repeat(2_000_000)));
    assert_refused(&world, &["--plan", "plan.json"], 1, "longer than 1000 kB");
    world.write("plan.json", &plan(&"siren ".repeat(1_000)));
    assert_refused(&world, &["--plan", "plan.json"], 2, "task of the brief has 6000 characters (at most 4000)");
}

#[test]
fn settings_file_of_gigabytes_is_not_read() {
    let world = World::indexed_text();
    world.write("dr.toml", "limit = 3\n");
    File::options().write(true).open(world.path("dr.toml")).unwrap().set_len(3 << 30).unwrap();
    let started = Instant::now();
    let run = world.dr(["search", "siren"]);
    assert_eq!(run.exit, Some(2), "{run}");
    assert!(run.stderr.contains("dr.toml`: longer than 1000 kB"), "{run}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    fs::remove_file(world.path("dr.toml")).unwrap();
    world.dr(["search", "siren"]).succeeded();
}

#[cfg(unix)]
mod signals {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use super::*;

    /// From the signal to the end of the process.
    const LIMIT: Duration = Duration::from_secs(2);

    /// Starts `dr`, sends a signal when a line of its stderr contains `line`, and returns its exit code and how long it
    /// took to end.
    fn signalled(world: &World, args: &[&str], line: &str, signal: &str) -> (Option<i32>, Duration) {
        let mut child = world.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id().to_string();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        while !told.contains(line) {
            assert_ne!(stderr.read_line(&mut told).unwrap(), 0, "no line `{line}` in: {told}");
        }
        let script = format!("kill -{signal} \"$1\"");
        assert!(Command::new("sh").args(["-c", &script, "sh", &pid]).status().unwrap().success());
        let started = Instant::now();
        stderr.read_to_string(&mut told).unwrap();
        let exit = child.wait().unwrap().code();
        (exit, started.elapsed())
    }

    #[test]
    fn signal_ends_a_command_within_two_seconds_whatever_it_computes() {
        let world = World::empty();
        // In a debug build, splitting one of these files takes seconds.
        let line = "The siren of the greenhouse sounds at noon, and the valves of the beds open at six. ";
        for number in 0..16 {
            world.write_on_day(1, &format!("kb/{number}.md"), &line.repeat(40_000));
        }
        for signal in ["TERM", "INT"] {
            let (exit, took) = signalled(&world, &["index", "kb"], "files to read", signal);
            assert_eq!(exit, Some(130), "{signal}");
            assert!(took < LIMIT, "{signal}: {took:?}");
        }
    }
}
