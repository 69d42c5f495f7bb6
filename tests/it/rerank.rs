//! Hits are reranked by a server on loopback, and come in the fused order if it does not answer.

use serde_json::{Value, json};

use crate::common::{World, keys};
use crate::model_server::{ModelServer, Request, Response};
use crate::outside::set;

const QUERY: &str = "when are the valves closed at night";

fn reply(status: u16, body: &Value) -> Response {
    Response::Answer { status, headers: Vec::new(), body: body.to_string() }
}

fn scored(request: &Request, score: impl Fn(usize) -> f64) -> Response {
    let number = request.json["documents"].as_array().map_or(0, Vec::len);
    let results: Vec<_> = (0..number).map(|index| json!({"index": index, "relevance_score": score(index)})).collect();
    reply(200, &json!({ "results": results }))
}

/// Scores the passages it is sent, the last one best.
fn last_is_best(request: &Request) -> Response {
    scored(request, |index| [0.6, 0.7, 0.8, 0.9, 1.0].get(index).copied().unwrap_or(0.0))
}

fn reranked_by(server: &ModelServer, more: &str) -> World {
    let world = World::indexed();
    set(&world, &format!("[rerank]\nbase_url = \"{}\"\n{more}", server.url()));
    world
}

fn places(hits: &Value) -> Vec<String> {
    let place = |hit: &Value| format!("{}:{}", hit["path"].as_str().unwrap(), hit["line_start"]);
    hits["hits"].as_array().unwrap().iter().map(place).collect()
}

#[test]
fn hits_come_in_the_order_of_the_reranker_and_say_their_relevance() {
    let server = ModelServer::start(last_is_best);
    let plain = World::indexed().dr(["search", QUERY, "--json", "-k", "5"]).succeeded().json();
    let world = reranked_by(&server, "model = \"cross\"\ncandidates = 5\n");
    let run = world.dr(["search", QUERY, "--json", "-k", "5"]).succeeded();
    let json = run.json();
    let mut turned = places(&plain);
    turned.reverse();
    assert_eq!(places(&json), turned);
    assert_eq!(json["hits"][0]["explain"]["relevance"], 1.0);
    assert_eq!((run.stderr.as_str(), json["support"].as_str()), ("", Some("strong")));
    let request = &server.requests()[0].json;
    assert_eq!((request["query"].as_str(), request["model"].as_str()), (Some(QUERY), Some("cross")));
    assert_eq!(request["documents"].as_array().unwrap().len(), 5);
    let explained = world.dr(["search", QUERY, "--explain", "-k", "1"]).succeeded();
    assert!(explained.stdout.contains("score 1.000 = relevance 1.000 = lexical"), "{explained}");
}

#[test]
fn text_embeddings_inference_is_asked_in_its_own_form_and_its_scores_decide_the_order() {
    // As it answers: a list of its own, best first.
    let server = ModelServer::start(|request| {
        let scores = [0.6, 0.7, 0.8, 0.9, 1.0];
        let number = request.json["texts"].as_array().map_or(0, Vec::len);
        let scored = (0..number).rev().map(|index| json!({"index": index, "score": scores[index]}));
        reply(200, &Value::Array(scored.collect()))
    });
    let plain = World::indexed().dr(["search", QUERY, "--json", "-k", "5"]).succeeded().json();
    let world = reranked_by(&server, "api = \"tei\"\ncandidates = 5\n");
    let run = world.dr(["search", QUERY, "--json", "-k", "5"]).succeeded();
    let json = run.json();
    let mut turned = places(&plain);
    turned.reverse();
    assert_eq!((places(&json), run.stderr.as_str()), (turned, ""));
    let requests = server.requests();
    let body = &requests[0].json;
    assert!(requests.len() == 1 && requests[0].path.ends_with("/rerank"), "{}", requests[0].path);
    // Without `raw_scores`, the scores are from 0 to 1; without `truncate`, a long passage is refused.
    assert!(keys(body).into_iter().eq(["query", "texts", "truncate"]), "{body}");
    assert_eq!((body["query"].as_str(), body["truncate"].as_bool()), (Some(QUERY), Some(true)));
    let texts: Vec<_> = body["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(texts.len() == 5 && texts.iter().any(|text| text.contains("valve")), "{texts:?}");
}

#[test]
fn fused_order_is_kept_and_said_if_the_reranker_fails() {
    let plain = World::indexed().dr(["search", QUERY, "--json"]).succeeded().json();
    for (response, reason) in [
        (reply(503, &json!({"error": "loading"})), "status 503"),
        (reply(200, &json!({"results": []})), "does not score every passage once"),
        (Response::Reset, "no reply"),
    ] {
        let server = ModelServer::always(response);
        let run = reranked_by(&server, "").dr(["search", QUERY, "--json"]).succeeded();
        assert_eq!(places(&run.json()), places(&plain));
        assert!(run.stderr.starts_with("note: ") && run.stderr.contains(reason), "{run}");
    }
}

#[test]
fn reranker_is_asked_nothing_offline_and_one_elsewhere_sees_no_collection_that_is_local_only() {
    let server = ModelServer::start(last_is_best);
    let offline = reranked_by(&server, "").dr(["search", QUERY, "--offline"]).succeeded();
    assert!(offline.stderr.contains("was not used: offline"), "{offline}");
    assert_eq!(server.count(), 0);
    let world = World::indexed();
    let settings = "[rerank]\nbase_url = \"https://rerank.example/v1\"\n[collections.kb]\nlocal_only = true\n";
    set(&world, settings);
    let closed = world.dr(["search", QUERY]).succeeded();
    assert!(closed.stderr.contains("`kb` is only for models of your own"), "{closed}");
}

#[test]
fn relevance_decides_whether_passages_answer_or_are_the_closest() {
    for (score, outcome, exit) in [(0.9, "answered", 0), (0.1, "closest", 3)] {
        let server = ModelServer::start(move |request| scored(request, |_| score));
        let world = reranked_by(&server, "");
        let run = world.dr(["ask", "--json", "When are the valves closed at night?"]);
        assert_eq!((run.exit, run.json()["outcome"].as_str()), (Some(exit), Some(outcome)), "{run}");
        assert!(server.count() > 0);
    }
}
