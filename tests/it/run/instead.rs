use std::net::TcpListener;

use serde_json::{Value, json};

use super::{ABOUT_ONE, ONE_ROUND, at, endpoint, faulty, topics, topics_at, world_at};
use crate::ask::assert_quotes_stand_in_their_files;
use crate::common::{Run, World};
use crate::model_server::{ModelServer, Request, Response};
use crate::researcher::Researcher;

/// Asserts that a run printed the answer that it gives offline, the reason, and a hint.
fn assert_offline_answer(world: &World, run: &Run, why: &str) -> Value {
    assert_eq!(run.exit, Some(4), "{run}");
    let report = run.json();
    let offline = world.dr(["ask", "--offline", "--json", ABOUT_ONE]).json();
    assert_eq!(report["answer"], offline["answer"]);
    assert!(!report["evidence"].as_array().unwrap().is_empty(), "{run}");
    assert_quotes_stand_in_their_files(world, &report);
    assert_eq!(report["degraded"], true);
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("the question was answered without a model: ") && limitations.contains(why), "{run}");
    assert!(run.stderr.contains("note: answering without a model: ") && run.stderr.contains(why), "{run}");
    assert!(run.stderr.contains("hint: "), "{run}");
    let replayed = world.dr(["replay", "--json", report["run_id"].as_str().unwrap()]);
    assert_eq!((replayed.exit, replayed.json()), (Some(4), report.clone()), "the journal says so too");
    report
}

#[test]
fn endpoint_that_is_down_is_reported_before_the_run_and_the_passages_answer() {
    let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let world = at(topics(), &format!("http://{address}/v1"));
    let run = world.dr(["ask", "--json", ABOUT_ONE]);
    assert_offline_answer(&world, &run, "no connection");
    for name in ["DR_MODEL", "base_url", "--offline", "dr doctor --model"] {
        assert!(run.stderr.contains(name), "{run}");
    }
}

#[test]
fn run_that_falls_back_before_it_begins_is_set_up_as_one_without_a_model() {
    let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let own = "[mcp.tickets]\ncommand = [\"/bin/false\"]\ntools = [\"read\"]\nlabel = \"public\"\n";
    let settings = |world: &World| {
        world.set(own);
        assert!(matches!(world.dr(["ask", "-q", ABOUT_ONE]).exit, Some(0 | 3 | 4)));
        let mut settings = world.dr(["show", "--json"]).succeeded().json()["settings"].take();
        settings.as_object_mut().unwrap().remove("instead");
        settings
    };
    let world = topics();
    let without = settings(&world);
    assert_eq!(settings(&at(world, &format!("http://{address}/v1"))), without);
}

#[test]
fn rejected_key_is_reported_before_the_run_without_a_request_to_a_model() {
    let (server, world) = topics_at(endpoint(ONE_ROUND).with_models(401, json!({ "error": { "message": "bad key" } })));
    let run = world.dr(["ask", "--json", ABOUT_ONE]);
    assert_offline_answer(&world, &run, "refused the key");
    assert_eq!((server.count(), world.run_ids().len()), (0, 2), "the run by rules, and the one offline");
}

#[test]
fn unknown_model_is_reported_before_the_run() {
    let unknown = json!({ "error": { "message": "model `scripted` not found" } });
    let (server, world) = topics_at(
        ModelServer::always(Response::json(404, &unknown)).with_models(200, json!({ "data": [{ "id": "other" }] })),
    );
    let run = world.dr(["ask", "--json", ABOUT_ONE]);
    assert_offline_answer(&world, &run, "not found");
    assert_eq!(server.count(), 1, "a model that costs nothing is asked itself");
}

#[test]
fn name_that_a_server_takes_without_listing_it_is_used() {
    let server = endpoint(ONE_ROUND).with_models(200, json!({ "data": [{ "id": "/models/llama.gguf" }] }));
    world_at(&server).dr(["ask", ABOUT_ONE]).succeeded();
}

#[test]
fn endpoint_that_answered_is_not_probed_again_that_day() {
    let (server, world) = topics_at(endpoint(ONE_ROUND).with_models(200, json!({ "data": [{ "id": "scripted" }] })));
    for _ in 0..2 {
        world.dr(["ask", "--fresh", ABOUT_ONE]).succeeded();
    }
    assert_eq!(server.probes(), 1);
    let file = world.home(".local/share/dr/reached");
    let yesterday = std::fs::read_to_string(&file).unwrap().replacen("20", "19", 1);
    std::fs::write(&file, yesterday).unwrap();
    world.dr(["ask", "--fresh", ABOUT_ONE]).succeeded();
    assert_eq!(server.probes(), 2);
}

#[test]
fn run_whose_model_fails_midway_ends_with_the_answer_of_the_passages() {
    for form in ["brief", "plan", "step"] {
        let (_server, world) = topics_at(faulty(ONE_ROUND, move |request| {
            (request.form() == Some(form)).then(|| Response::json(400, &json!({ "error": { "message": "no more" } })))
        }));
        let run = world.dr(["ask", "--json", ABOUT_ONE]);
        assert_offline_answer(&world, &run, "no more");
    }
}

#[test]
fn resumed_run_whose_model_fails_ends_with_the_answer_of_the_passages() {
    let (_server, world) = topics_at(faulty(ONE_ROUND, |request| {
        (request.form() == Some("step")).then(|| Response::json(400, &json!({ "error": { "message": "no more" } })))
    }));
    world.dr(["ask", "--dry-run", ABOUT_ONE]).succeeded();
    let run = world.dr(["resume", "--json"]);
    assert_offline_answer(&world, &run, "no more");
}

/// Returns an endpoint whose workers find nothing to note.
fn noting_nothing() -> ModelServer {
    faulty(ONE_ROUND, |request| {
        let done = json!({ "thought": "nothing fits", "actions": [], "done": true });
        (request.form() == Some("step")).then(|| request.reply(&done.to_string(), 50, 10))
    })
}

#[test]
fn workers_that_note_nothing_leave_the_closest_passages() {
    let (_server, world) = topics_at(noting_nothing());
    let report = assert_offline_answer(&world, &world.dr(["ask", "--json", ABOUT_ONE]), "the model noted nothing");
    assert_eq!(report["outcome"], "closest", "the model has read them and noted nothing");
    // The oldest.
    let failed = world.run_ids().pop().unwrap();
    let of_failed = world.dr(["show", &failed, "--json"]).json()["report"]["usage"]["total"].take();
    assert_eq!(report["usage"]["total"]["calls"], of_failed["calls"], "its calls are paid");
    assert_eq!(report["usage"]["total"]["input_tokens"], of_failed["input_tokens"]);
    assert!(of_failed["calls"].as_u64() > Some(1) && report["limitations"].to_string().contains(&failed), "{report}");
    let id = report["run_id"].as_str().unwrap();
    world.dr(["rm", &failed]).succeeded();
    assert_eq!(world.dr(["replay", id, "--json"]).json(), report, "a report does not change with another run");
}

#[test]
fn refusal_of_both_is_the_refusal_of_the_run_with_the_model() {
    let (_server, world) = topics_at(noting_nothing());
    let run = world.dr(["ask", "--json", "Who won the parliamentary election in Portugal?"]);
    assert_eq!(run.exit, Some(3), "{run}");
    assert_ne!(run.json()["usage"]["total"]["calls"], 0, "{run}");
    assert!(!run.stderr.contains("answering without a model"), "{run}");
}

#[test]
fn limit_below_one_call_makes_none_and_says_what_would_do() {
    let settings =
        "[models]\nmax_input_tokens = 12000\nmax_output_tokens = 1000\n[prices.scripted]\ninput = 1.0\noutput = 40.0\n";
    for [flag, little] in [["--max-tokens", "1000"], ["--max-cost", "0.02"]] {
        let (server, world) = topics_at(endpoint(Researcher { nodes: 1, more_nodes: 0 }));
        world.set(settings);
        let run = world.dr(["ask", "--json", flag, little, ABOUT_ONE]);
        assert_offline_answer(&world, &run, "a single call may");
        assert_eq!(server.count(), 0);
        let said =
            run.stderr.split_once(&format!("`{flag} ")).map(|(_, rest)| rest.split('`').next().unwrap().to_owned());
        let enough = said.unwrap_or_else(|| panic!("{run}"));
        let report = world.dr(["ask", "--json", flag, &enough, ABOUT_ONE]).json();
        assert!(!report["limitations"].to_string().contains("without a model"), "{enough}: {report:#}");
        assert!(!report["findings"].as_array().unwrap().is_empty(), "{enough}: {report:#}");
    }
}

/// Asks for an answer in the form of a schema that has no strict form, from an endpoint that replies with `outputs` in
/// turn.
fn in_form_of_a_list(outputs: &'static [&'static str]) -> (ModelServer, Run) {
    let server = faulty(ONE_ROUND, move |request| {
        let is_output = request.form().is_none() && request.words().contains("one JSON value");
        is_output.then(|| {
            let repairs = request.messages().iter().filter(|text| text.contains("cannot be used")).count();
            request.reply(outputs[repairs.min(outputs.len() - 1)], 50, 10)
        })
    });
    let world = world_at(&server);
    world.write("form.json", r#"{"type": "array", "items": {"type": "string"}, "minItems": 1}"#);
    let run = world.dr(["ask", "--json", "--schema", "form.json", ABOUT_ONE]);
    (server, run)
}

#[test]
fn schema_beyond_strict_mode_is_told_and_the_reply_is_checked() {
    let (_, run) = in_form_of_a_list(&["[]", r#"["Topic 3 is described [n2e1]."]"#]);
    assert_eq!(run.exit, Some(0), "{run}");
    assert_eq!(run.json()["output"], json!(["Topic 3 is described."]), "without ids, which mean nothing outside");
}

#[test]
fn form_that_is_never_filled_makes_the_report_partial() {
    let (server, run) = in_form_of_a_list(&["no JSON at all"]);
    assert_eq!(run.exit, Some(4), "{run}");
    let report = run.json();
    assert_eq!((&report["degraded"], &report["output"]), (&json!(true), &Value::Null));
    assert!(report["limitations"].to_string().contains("requested schema could not be filled"), "{run}");
    let prompts: Vec<_> = server.requests().iter().map(Request::words).collect();
    let output: Vec<_> = prompts.iter().filter(|words| words.contains("one JSON value")).collect();
    assert!(!output.is_empty() && output.iter().all(|words| !words.contains("[n2e1]")), "{output:#?}");
}
