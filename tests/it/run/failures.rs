use serde_json::{Value, json};

use super::{
    ABOUT_ONE, KEY, ONE_ROUND, QUESTION, calls, count, faulty, outcome, stored, topics_at, undisturbed, world_at,
};
use crate::ask::assert_quotes_stand_in_their_files;
use crate::model_server::{ModelServer, Response};

fn busy(status: u16) -> Response {
    Response::text(status, r#"{"error": {"message": "come back"}}"#).with_header("Retry-After", "0")
}

#[test]
fn busy_endpoint_is_retried_and_the_report_is_the_same() {
    let (expected, requests) = undisturbed(ONE_ROUND, "");
    for (status, times) in [(429, 1), (500, 3)] {
        let (server, world) =
            topics_at(faulty(ONE_ROUND, move |request| (2..2 + times).contains(&request.number).then(|| busy(status))));
        let run = world.dr(["ask", "--json", QUESTION]).succeeded();
        assert_eq!(outcome(run.json()), expected, "{status}");
        assert_eq!(server.count(), requests + times, "{status}");
        let calls = calls(&world);
        assert_eq!((count(&calls, "failed"), count(&calls, "replied")), (times, requests), "{status}");
        assert_eq!(run.json()["usage"]["total"]["calls"], requests, "a call that brought nothing costs nothing");
    }
}

#[test]
fn persistently_busy_endpoint_is_given_up() {
    let (server, world) = topics_at(ModelServer::always(busy(503)));
    let run = world.dr(["ask", ABOUT_ONE]);
    assert_eq!((run.exit, server.count()), (Some(4), 5), "{run}");
    assert!(
        run.stderr.contains("the model failed: failed to make a brief: ") && run.stderr.contains("come back"),
        "{run}"
    );
}

#[test]
fn rejected_key_is_reported_at_once_and_not_printed() {
    let (server, world) = topics_at(ModelServer::always(Response::text(401, r#"{"error": {"message": "bad key"}}"#)));
    let run = world.dr(["ask", ABOUT_ONE]);
    assert_eq!((run.exit, server.count()), (Some(4), 1), "{run}");
    assert!(run.stderr.contains("failed to make a brief: model endpoint refused the key"), "{run}");
    assert!(!run.to_string().contains(KEY), "{run}");
}

#[test]
fn invalid_json_reply_is_repaired_in_one_turn() {
    let (expected, requests) = undisturbed(ONE_ROUND, "");
    let (server, world) = topics_at(faulty(ONE_ROUND, |request| {
        (request.number == 1).then(|| request.reply("Of course! Here it comes:", 10, 5))
    }));
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    assert_eq!(outcome(report), expected);
    let received = server.requests();
    assert_eq!(received.len(), requests + 1);
    let said = received[1].messages();
    assert_eq!(said[..2], received[0].messages()[..]);
    assert_eq!(said[2], "Of course! Here it comes:");
    assert!(said[3].starts_with("Your reply cannot be used: "), "{}", said[3]);
    assert!(received[2..].iter().all(|request| request.messages().len() == 2), "one repair is enough");
}

#[test]
fn lost_connection_stays_charged_and_the_run_continues() {
    let (expected, requests) = undisturbed(ONE_ROUND, "");
    let (server, world) = topics_at(faulty(ONE_ROUND, |request| (request.number == 4).then_some(Response::Drop)));
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    assert_eq!(outcome(report.clone()), expected);
    assert_eq!(server.count(), requests + 1);
    let calls = calls(&world);
    let lost: Vec<_> = calls.iter().filter(|call| call["outcome"] == "unknown").collect();
    assert_eq!((lost.len(), stored(&calls).len()), (1, requests));
    let tokens = |call: &Value, key: &str| call[key].as_u64().unwrap();
    assert!(tokens(lost[0], "worst_tokens") > tokens(lost[0], "counted_tokens"));
    assert_eq!(report["usage"]["total"]["calls"], requests + 1, "its outcome is unknown, so it counts");
    let usage = world.dr(["show", "--usage"]).succeeded();
    assert!(usage.stdout.contains(&(requests + 1).to_string()), "{usage}");
}

#[test]
fn run_whose_workers_all_fail_reports_it_without_an_answer() {
    let (_server, world) = topics_at(faulty(ONE_ROUND, |request| {
        (request.form() == Some("step")).then(|| Response::json(400, &json!({ "error": { "message": "no steps" } })))
    }));
    // Neither do the passages answer it.
    let run = world.dr(["ask", "--json", "Who won the parliamentary election in Portugal?"]);
    assert_eq!(run.exit, Some(1), "{run}");
    let report = run.json();
    assert_eq!((&report["answer"], &report["findings"]), (&json!(""), &json!([])));
    assert_eq!(report["failed_nodes"], json!(["n2", "n3", "n4"]));
    assert_eq!(report["degraded"], true);
    let events = world.dr(["show", report["run_id"].as_str().unwrap(), "--events"]).succeeded().stdout;
    assert!(events.contains("n2 failed") && events.contains("no steps") && events.contains("n5 blocked"), "{events}");
}

#[test]
fn run_that_lost_one_worker_is_partial_and_names_it() {
    let server = faulty(ONE_ROUND, |request| {
        let is_second = request.words().contains("Sub-question: What is said of topic 2?");
        (request.form() == Some("step") && is_second).then(|| Response::text(400, "{}"))
    });
    let world = world_at(&server);
    let run = world.dr(["ask", "--json", QUESTION]);
    assert_eq!(run.exit, Some(4), "{run}");
    let report = run.json();
    assert_eq!((&report["failed_nodes"], &report["degraded"]), (&json!(["n3"]), &json!(true)));
    assert!(!report["evidence"].as_array().unwrap().is_empty());
    assert_quotes_stand_in_their_files(&world, &report);
}
