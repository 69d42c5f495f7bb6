use std::fs;

use serde_json::Value;

use super::{ONE_ROUND, QUESTION, TWO_ROUNDS, endpoint, faulty, topics, topics_at};
use crate::common::{Run, World};
use crate::model_server::{ModelServer, Response};

/// Asks, and returns the output and the number of requests that it took.
fn asked(world: &World, server: &ModelServer, args: &[&str]) -> (Run, usize) {
    let before = server.count();
    let run = world.dr([&["ask", "--json"], args].concat());
    (run, server.count() - before)
}

/// Moves the beginning of all runs, and everything in them, to the day before.
pub(crate) fn a_day_ago(world: &World) {
    let journal = rusqlite::Connection::open(world.path(".dr/state.db")).unwrap();
    let tables = [("runs", "started_at"), ("events", "at"), ("lookups", "at")];
    for (table, column) in tables {
        journal.execute(&format!("UPDATE {table} SET {column} = {column} - 86400000"), []).unwrap();
    }
}

#[test]
fn question_asked_twice_costs_once() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let (first, paid) = asked(&world, &server, &[QUESTION]);
    let run = first.succeeded().json()["run_id"].as_str().unwrap().to_owned();
    let report = world.dr(["replay", "--json"]).succeeded().stdout;
    for question in [QUESTION, " what is known  of the TOPICS"] {
        let (again, requests) = asked(&world, &server, &[question]);
        let again = again.succeeded();
        assert_eq!((requests, again.stdout.as_str()), (0, report.as_str()));
        let note = format!("note: asked before, in run {run} on ");
        assert!(again.stderr.starts_with(&note), "{again}");
        assert!(again.stderr.ends_with(", against the same index; --fresh asks again\n"), "{again}");
    }
    assert_eq!(world.run_ids(), [run.as_str()], "no run is recorded");
    let events = world.dr(["ask", "--events", "jsonl", QUESTION]).succeeded().stderr;
    let event: Value = serde_json::from_str(&events).unwrap();
    assert!(event["kind"] == "note" && event["text"].as_str().unwrap().contains(&run), "{event}");
    a_day_ago(&world);
    assert_eq!(asked(&world, &server, &[QUESTION]).1, 0, "what files say is the same on the next day");
    let (fresh, requests) = asked(&world, &server, &["--fresh", QUESTION]);
    assert_eq!((requests, fresh.stderr.contains("asked before")), (paid, false), "{fresh}");
    assert_eq!(world.run_ids().len(), 2);
    drop(server);
    let again = world.dr(["ask", "--json", QUESTION]).succeeded();
    assert_eq!(again.json()["run_id"], world.run_ids()[0].as_str(), "the newest run, and no model is needed");
}

#[test]
fn other_request_or_model_is_asked() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let schema = r#"{"type": "object", "properties": {"topics": {"type": "integer"}}, "required": ["topics"]}"#;
    world.write("form.json", schema);
    asked(&world, &server, &[QUESTION]).0.succeeded();
    let run = world.run_ids()[0].clone();
    world.dr(["plan", "--save", "plan.json", QUESTION]).succeeded();
    let mut known = 0;
    for args in [
        &["--mode", "quick"][..],
        &["--source", "internal"],
        &["--cover", "the last topic"],
        &["--path", "topic-*.md"],
        &["--schema", "form.json"],
        &["--follow", &run],
        &["--model", "another"],
        &["--plan", "plan.json"],
    ] {
        let all = [args, &[QUESTION]].concat();
        let (asked_so, requests) = asked(&world, &server, &all);
        assert!(requests > 0, "{args:?}");
        let is_answered = asked_so.exit == Some(0) && asked_so.json()["stop_reason"] == "complete";
        let is_known = asked(&world, &server, &all).1 == 0;
        assert_eq!(is_known, is_answered && args[0] != "--plan", "{args:?}: {asked_so}");
        known += usize::from(is_known);
    }
    assert!(known > 3, "{known} were answered, and known then");
    assert_eq!(asked(&world, &server, &[QUESTION]).0.json()["run_id"], run.as_str(), "the run that asked just this");
}

#[test]
fn changed_file_or_index_is_asked_about() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    asked(&world, &server, &[QUESTION]).0.succeeded();
    let text = world.read("kb/topic-1.md");
    world.write("kb/topic-1.md", "Topic 1 is described here anew.\n");
    assert!(asked(&world, &server, &[QUESTION]).1 > 0, "a cited file has changed since it was indexed");
    world.dr(["index", "--quiet"]).succeeded();
    let new = asked(&world, &server, &[QUESTION]);
    assert!(new.1 > 0 && new.0.stdout.contains("described here anew"), "{}", new.0);
    assert_eq!(asked(&world, &server, &[QUESTION]).1, 0);
    world.write_on_day(1, "kb/topic-1.md", &text);
    fs::remove_file(world.path("kb/topic-5.md")).unwrap();
    world.dr(["index", "--quiet"]).succeeded();
    assert!(asked(&world, &server, &[QUESTION]).1 > 0);
}

#[test]
fn unchanged_folder_may_be_looked_through_again() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    for is_first in [true, false] {
        let (run, requests) = asked(&world, &server, &["--kb", "kb", QUESTION]);
        assert_eq!(requests > 0, is_first, "{run}");
    }
}

#[test]
fn run_that_has_not_ended_well_does_not_count() {
    // The judge's replies have no form, so rules judge.
    let (server, world) = topics_at(faulty(ONE_ROUND, |request| {
        (request.form() == Some("verdict")).then(|| request.reply("no form", 10, 5))
    }));
    for _ in 0..2 {
        let (degraded, requests) = asked(&world, &server, &[QUESTION]);
        assert_eq!((degraded.exit, requests > 0), (Some(4), true), "{degraded}");
    }
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    world.dr(["plan", QUESTION]).succeeded();
    assert!(asked(&world, &server, &[QUESTION]).1 > 0, "a plan is no answer");
    let (server, world) = topics_at(endpoint(TWO_ROUNDS));
    for _ in 0..2 {
        let (limited, requests) = asked(&world, &server, &["--max-rounds", "1", QUESTION]);
        assert_eq!((limited.exit, requests > 0), (Some(4), true), "{limited}");
    }
}

#[test]
fn question_without_a_model_is_answered_anew() {
    let world = topics();
    for _ in 0..2 {
        let run = world.dr(["ask", "--offline", "How is topic 3 described?"]);
        assert!(!run.stderr.contains("asked before"), "{run}");
    }
    assert_eq!(world.run_ids().len(), 2);
}

#[test]
fn run_in_place_of_a_model_does_not_count() {
    let (_down, world) = topics_at(ModelServer::always(Response::text(503, "{}")));
    world.dr(["ask", "--quiet", QUESTION]);
    let server = endpoint(ONE_ROUND);
    let world = world.with_variable("OPENAI_BASE_URL", server.url());
    assert!(asked(&world, &server, &[QUESTION]).1 > 0);
}
