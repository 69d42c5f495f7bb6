use std::fs;

use serde_json::{Value, json};

use super::{KEY, ONE_ROUND, QUESTION, endpoint, outcome, topics, topics_at, undisturbed};
use crate::ask::assert_quotes_stand_in_their_files;
use crate::common::World;

#[test]
fn answer_of_a_model_is_a_cited_report() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    dr_snapshot!(world.dr(["ask", "--quiet", QUESTION]));
    assert!(server.received().contains(KEY), "the key goes to its endpoint");
    assert!(server.requests().iter().all(|request| request.path == "/v1/chat/completions"));
}

#[test]
fn answer_over_the_responses_api_is_the_same() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    world.set("[models]\napi = \"responses\"\n");
    let by_responses = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    assert!(server.requests().iter().all(|request| request.path == "/v1/responses"));
    assert_eq!(outcome(by_responses), undisturbed(ONE_ROUND, "").0);
}

#[test]
fn report_lists_usage_by_role_and_node_and_its_quotes_are_verbatim() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    assert_eq!(report["stop_reason"], "complete");
    assert_eq!(report["run_id"], *world.run_ids()[0]);
    assert_eq!(report["tree"]["nodes"].as_array().unwrap().len(), 5);
    assert!(report["evidence"].as_array().unwrap().len() >= 4, "{:#}", report["evidence"]);
    assert_quotes_stand_in_their_files(&world, &report);
    let usage = &report["usage"];
    assert_eq!(usage["total"]["calls"], server.count());
    for role in ["planner", "worker", "summariser", "judge", "writer"] {
        assert!(usage["by_role"][role]["calls"].as_u64().unwrap() > 0, "{role}: {usage:#}");
    }
    for node in ["n2", "n3", "n4", "n5"] {
        assert_eq!(usage["by_node"][node]["tool_calls"], 1, "{node}: {usage:#}");
    }
    for table in ["by_role", "by_node"] {
        let sum = |key: &str| usage[table].as_object().unwrap().values().map(|of| of[key].as_u64().unwrap()).sum();
        let sums: [u64; 3] = ["calls", "input_tokens", "output_tokens"].map(sum);
        let total = ["calls", "input_tokens", "output_tokens"].map(|key| usage["total"][key].as_u64().unwrap());
        assert_eq!(sums, total, "{table}");
    }
}

#[test]
fn user_schema_is_filled_in_addition_to_the_report() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let schema = json!({
        "type": "object",
        "properties": { "topics": { "type": "integer" } },
        "required": ["topics"],
        "additionalProperties": false,
    });
    world.write("form.json", &schema.to_string());
    let report = world.dr(["ask", "--json", "--schema", "form.json", QUESTION]).succeeded().json();
    assert_eq!(report["output"], json!({ "topics": 4 }));
    assert_quotes_stand_in_their_files(&world, &report);
    let asked: Vec<_> = server.requests().into_iter().filter(|request| request.form() == Some("output")).collect();
    assert_eq!(asked.len(), 1);
}

#[test]
fn invalid_schema_is_refused_before_the_first_request() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    world.write("form.json", r#"{"type": "nonsense"}"#);
    let run = world.dr(["ask", "--schema", "form.json", QUESTION]);
    assert_eq!((run.exit, server.count()), (Some(2), 0), "{run}");
    assert!(run.stderr.starts_with("error: `form.json` is not a JSON Schema"), "{run}");
    fs::write(world.path("form.json"), "no JSON").unwrap();
    assert_eq!(world.dr(["ask", "--schema", "form.json", QUESTION]).exit, Some(2));
    assert_eq!((server.count(), world.run_ids().len()), (0, 0));
}

#[test]
fn follow_up_question_includes_the_earlier_answer() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    world.dr(["ask", QUESTION]).succeeded();
    let first = world.run_ids()[0].clone();
    let before = server.count();
    world.dr(["ask", "--follow", &first[..8], "And how do they work?"]).succeeded();
    let requests = server.requests();
    let brief = requests[before..].iter().find(|request| request.form() == Some("brief")).unwrap().words();
    assert!(brief.contains(QUESTION) && brief.contains("described in its source"), "{brief}");
    let unknown = world.dr(["ask", "--follow", "nothing", "And how?"]);
    assert_eq!(unknown.exit, Some(1));
    assert!(unknown.stderr.contains("no run `nothing`") && unknown.stderr.contains("hint: "), "{unknown}");
    assert_eq!(world.run_ids().len(), 2);
}

#[test]
fn json_events_are_json_only() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let told = |args: &[&str]| {
        let run = world.dr(args);
        let lines: Result<Vec<Value>, _> = run.stderr.lines().map(serde_json::from_str).collect();
        lines.unwrap_or_else(|error| panic!("{error}: {run}"))
    };
    let events = told(&["ask", "--events", "jsonl", QUESTION]);
    let names: Vec<_> = events.iter().filter_map(|line| line.pointer("/event/event/type")?.as_str()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("started", "ended"));
    let sent = events.iter().filter(|line| line["kind"] == "call" && line["what"] == "sent").count();
    assert_eq!(sent, server.count());
    // A run that ends early prints more events, also as JSON.
    let partial =
        told(&["ask", "--fresh", "--events", "jsonl", "--max-rounds", "1", "--max-tokens", "16000", QUESTION]);
    assert!(!partial.is_empty());
}

#[test]
fn comparison_without_a_model_has_a_section_per_item() {
    let world = World::of_notes(&[
        ("heron.md", "# Heron\n\nHeron keeps its log on one disk.\n\nA write to Heron takes 4 ms.\n"),
        ("osprey.md", "# Osprey\n\nOsprey copies its log to three disks.\n\nA write to Osprey takes 11 ms.\n"),
    ]);
    let report = world.dr(["ask", "--offline", "--json", "Compare Heron and Osprey"]).succeeded().json();
    let nodes = report["tree"]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4, "the question, one for each, and one for both: {nodes:#?}");
    assert_quotes_stand_in_their_files(&world, &report);
    dr_snapshot!(world.dr(["replay"]).succeeded());
}

#[test]
fn run_without_an_endpoint_uses_rules_and_says_so() {
    let world = topics();
    let run = world.dr(["ask", "What is said of topic 2?"]).succeeded();
    assert!(run.stderr.starts_with("note: no model is configured"), "{run}");
    assert!(run.stdout.contains("`topic-2.md:1-3`"), "{run}");
}
