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
    world.write("plan.json", &plan(&"siren ".repeat(2_000)));
    assert_refused(&world, &["--plan", "plan.json"], 2, "task of the brief has 12000 characters (at most 8000)");
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
