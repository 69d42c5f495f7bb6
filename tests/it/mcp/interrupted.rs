use std::time::{Duration, Instant};

use rmcp::service::ClientLifecycleMode;
use serde_json::{Value, json};

use super::{Client, HttpServer, PATIENCE, QUESTION, Server, begun, done, eras, hanging, is_asked, refused, session};
use crate::common::{World, block_on};
use crate::model_server::ModelServer;
use crate::run::kills::send;

/// From the end of a server's input, or a signal, to its own end.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns whether the newest run was stopped in order: no process works on it, and it can be resumed.
fn was_stopped(world: &World) -> bool {
    let runs = world.runs();
    runs.len() == 1 && ["cancelled", "open"].contains(&runs[0]["state"].as_str().unwrap())
}

/// Starts a server, asks a question whose first model call hangs, and ends the server with `end`. Returns its exit code.
fn ended_in_the_middle(
    tool: &'static str,
    end: impl AsyncFnOnce(&mut Server, Client<()>),
) -> (World, ModelServer, Option<i32>) {
    let (model, asked, world) = hanging();
    let exit = block_on(async {
        let mut server = Server::start(&world, &[]);
        let client = server.connect((), ClientLifecycleMode::Initialize).await;
        let sent = begun(&client, tool, json!({ "question": QUESTION })).await;
        is_asked(asked).await;
        let started = Instant::now();
        end(&mut server, client).await;
        drop(sent);
        let exit = server.ended();
        assert!(started.elapsed() < LIMIT, "{tool}: {:?}", started.elapsed());
        exit
    });
    (world, model, exit)
}

#[test]
fn end_of_input_in_the_middle_of_a_question_stops_its_run_in_order() {
    for tool in ["ask", "research_start"] {
        let (world, _model, exit) = ended_in_the_middle(tool, async |_, client| {
            client.cancel().await.unwrap();
        });
        assert_eq!(exit, Some(0), "{tool}");
        assert!(was_stopped(&world), "{tool}: {:?}", world.runs());
    }
}

#[test]
fn signal_in_the_middle_of_a_question_stops_its_run_in_order() {
    for signal in ["TERM", "INT"] {
        let (world, _model, exit) = ended_in_the_middle("ask", async |server, client| {
            send(signal, &server.child);
            drop(client);
        });
        assert_eq!(exit, Some(0), "{signal}");
        assert!(was_stopped(&world), "{signal}: {:?}", world.runs());
    }
}

#[test]
fn http_client_that_goes_away_in_the_middle_of_a_question_stops_its_run() {
    let (_model, asked, world) = hanging();
    let mut server = HttpServer::start(&world, &["127.0.0.1:0"]);
    block_on(async {
        let client = super::http::connect(&server, None, eras()[1].clone()).await;
        let sent = begun(&client, "ask", json!({ "question": QUESTION })).await;
        is_asked(asked).await;
        drop(sent);
        client.cancel().await.unwrap();
        let started = Instant::now();
        while !was_stopped(&world) {
            assert!(started.elapsed() < PATIENCE, "{:?}", world.runs());
        }
    });
    send("TERM", &server.child);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn signal_in_the_middle_of_a_question_over_http_stops_its_run_in_order() {
    let (_model, asked, world) = hanging();
    let mut server = HttpServer::start(&world, &["127.0.0.1:0"]);
    block_on(async {
        let client = super::http::connect(&server, None, ClientLifecycleMode::Initialize).await;
        done(&client, "research_start", json!({ "question": QUESTION })).await;
        is_asked(asked).await;
        send("TERM", &server.child);
        let started = Instant::now();
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
    });
    assert!(was_stopped(&world), "{:?}", world.runs());
}

#[test]
fn cancelled_request_stops_its_run_and_not_the_server() {
    for era in eras() {
        let (_model, asked, world) = hanging();
        block_on(async {
            let mut server = Server::start(&world, &[]);
            let client = server.connect((), era).await;
            let sent = begun(&client, "ask", json!({ "question": QUESTION })).await;
            is_asked(asked).await;
            sent.cancel(Some("no longer wanted".to_owned())).await.unwrap();
            let run = world.runs()[0]["id"].clone();
            let started = Instant::now();
            let state = loop {
                let status = done(&client, "research_status", json!({ "run_id": run })).await;
                if status["state"] != "running" {
                    break status["state"].clone();
                }
                assert!(started.elapsed() < PATIENCE, "{status}");
            };
            assert!(["open", "ended"].contains(&state.as_str().unwrap()), "{state}");
            client.cancel().await.unwrap();
            assert_eq!(server.ended(), Some(0));
        });
        assert!(was_stopped(&world), "{:?}", world.runs());
    }
}

#[test]
fn run_in_the_background_is_cancelled_by_its_id() {
    let (_model, asked, world) = hanging();
    session(&world, &[], async |client| {
        let run = done(client, "research_start", json!({ "question": QUESTION })).await["run_id"].clone();
        is_asked(asked).await;
        let told = refused(client, "research_result", json!({ "run_id": run })).await;
        assert!(told.contains("is being worked on"), "{told}");
        let status = done(client, "research_cancel", json!({ "run_id": run })).await;
        assert_ne!(status["state"], "running", "{status}");
        let result = done(client, "research_result", json!({ "run_id": run })).await;
        assert_eq!((&result["stop_reason"], &result["resumable"]), (&json!("cancelled"), &json!(true)), "{result}");
    });
    assert!(was_stopped(&world));
    let resumed = world.dr(["resume", "--offline"]);
    assert_ne!(resumed.exit, Some(2), "{resumed}");
}

#[test]
fn run_that_was_stopped_is_resumed_with_its_limits_or_with_higher_ones_up_to_those_of_the_server() {
    let (_model, asked, world) = hanging();
    let asked = &asked;
    session(&world, &["--max-tokens", "90000"], async |client| {
        let is_asked = || tokio::task::block_in_place(|| asked.recv_timeout(PATIENCE).expect("the model is asked"));
        let args = json!({ "question": QUESTION, "max_tokens": 50_000, "max_rounds": 2, "max_seconds": 60 });
        let run = done(client, "research_start", args).await["run_id"].clone();
        is_asked();
        let told = refused(client, "research_resume", json!({ "run_id": run })).await;
        assert!(told.contains("is being worked on"), "{told}");
        done(client, "research_cancel", json!({ "run_id": run })).await;

        for (more, said) in [
            (json!({ "max_tokens": 90_001 }), "`max_tokens` is 90001, and the limit is 90000"),
            (json!({ "max_rounds": 7 }), "`max_rounds` is 7, and the limit is 6"),
            // A run with background jobs has twice as long as the settings say.
            (json!({ "max_seconds": 3_601 }), "`max_seconds` is 3601 seconds, and the limit is 3600 seconds"),
            (json!({ "max_cost": -1 }), "`max_cost` is not an amount"),
            (json!({ "retry_unknown": true }), "unknown field"),
        ] {
            let mut args = more.as_object().unwrap().clone();
            args.insert("run_id".into(), run.clone());
            let told = refused(client, "research_resume", json!(args)).await;
            assert!(told.contains(said), "{told}");
        }
        let limits = || {
            let limits = world.dr(["show", "--json"]).succeeded().json()["settings"]["limits"].clone();
            let number = |limit: &Value| limit.as_u64().unwrap();
            (number(&limits["tokens"]), number(&limits["rounds"]), number(&limits["time"]["secs"]))
        };
        for (args, expected) in [
            (json!({ "run_id": run }), (50_000, 2, 60)),
            // A limit that is higher stays.
            (json!({ "run_id": run, "max_tokens": 60_000, "max_rounds": 1 }), (60_000, 2, 60)),
            (json!({ "run_id": run, "max_seconds": 3_600 }), (60_000, 2, 3_600)),
        ] {
            assert_eq!(done(client, "research_resume", args).await["run_id"], run);
            is_asked();
            assert_eq!(done(client, "research_status", json!({ "run_id": run })).await["state"], "running");
            assert_eq!(limits(), expected);
            done(client, "research_cancel", json!({ "run_id": run })).await;
        }
    });
    assert!(was_stopped(&world), "{:?}", world.runs());
}

#[test]
fn no_more_runs_are_started_than_the_server_works_on() {
    let (_model, _asked, world) = hanging();
    block_on(async {
        let mut server = Server::start(&world, &[]);
        let client = server.connect((), ClientLifecycleMode::Initialize).await;
        for number in 1..=4 {
            done(&client, "research_start", json!({ "question": format!("{QUESTION} ({number})") })).await;
        }
        let told = refused(&client, "research_start", json!({ "question": QUESTION })).await;
        assert!(told.contains("4 runs are being worked on"), "{told}");
        client.cancel().await.unwrap();
        assert_eq!(server.ended(), Some(0));
    });
    assert_eq!(world.runs().len(), 4);
}
