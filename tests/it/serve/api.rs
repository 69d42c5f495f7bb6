use std::io::Read;

use serde_json::{Value, json};

use super::Page;
use crate::common::World;
use crate::mcp::{hanging, world_at};
use crate::run::kills::send;

const QUESTION: &str = "When does the siren sound?";

#[test]
fn question_is_asked_watched_and_read_over_http() {
    let world = World::indexed_text();
    let page = Page::start(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION } })).json();
    let run = started["run_id"].as_str().unwrap();
    let events = page.events(run, None);
    let (name, id, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["state"]), ("state", &json!("ended")), "{events:?}");
    let id = id.clone().unwrap();
    assert_eq!(last["last_event"].to_string(), id);
    let told: usize = events.iter().map(|(_, _, data)| data["events"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(told.to_string(), id, "each event once");
    // A stream that was cut goes on behind the event it ended with.
    let again = page.events(run, Some("2"));
    assert_eq!(again[0].2["events"][0]["number"], 3);

    let report = page.get(&format!("/api/v1/runs/{run}/report")).json();
    assert_eq!(report["outcome"], "answered");
    let quote = report["evidence"][0]["id"].as_str().unwrap();
    let shown = page.get(&format!("/api/v1/runs/{run}/quotes/{quote}")).json();
    assert!(shown["html"].as_str().unwrap().contains("<mark>"), "{shown:#}");
    assert_eq!(page.get(&format!("/api/v1/runs/{run}/quotes/n9e9")).status, 404);
    let state = page.get(&format!("/api/v1/runs/{run}")).json();
    assert_eq!((state["state"].as_str(), state["egress"].as_array().map(Vec::len)), (Some("ended"), Some(0)));
    assert!(!state["findings"][0]["findings"][0]["quotes"][0].as_str().unwrap().is_empty());

    let listed = page.get("/api/v1/runs").json();
    assert_eq!((listed["runs"][0]["id"].as_str(), listed["runs"].as_array().map(Vec::len)), (Some(run), Some(1)));
    assert_eq!(
        page.send("DELETE", &format!("/api/v1/runs/{run}"), &[("Authorization", &page.bearer())], b"").status,
        204
    );
    assert_eq!(page.get(&format!("/api/v1/runs/{run}")).status, 404);
}

#[test]
fn hits_have_marked_snippets_and_lead_to_their_document() {
    let world = World::indexed_text();
    let page = Page::start(&world);
    let found = page.get("/api/v1/search?q=siren&limit=3").json();
    let hit = &found["hits"][0];
    let marked: Vec<_> = hit["snippet"].as_array().unwrap().iter().filter(|part| part["is_match"] == true).collect();
    assert!(marked.iter().any(|part| part["text"].as_str().unwrap().to_lowercase().starts_with("siren")), "{found:#}");
    let id = hit["id"].as_str().unwrap();
    let document = page.get(&format!("/api/v1/passages?id={id}&extent=document")).json();
    assert!(document["html"].as_str().unwrap().contains("<mark>"));
    for (path, status) in [
        ("/api/v1/search?q=", 422),
        ("/api/v1/search", 400),
        ("/api/v1/search?q=siren&other=1", 400),
        ("/api/v1/search?q=siren&limit=many", 400),
        ("/api/v1/search?q=siren&collection=none", 404),
        ("/api/v1/passages?id=..%2F..%2Fetc%2Fpasswd", 404),
        ("/api/v1/passages?id=%2Fetc%2Fpasswd", 404),
        ("/api/v1/runs/..%2F..", 404),
        ("/api/v1/nothing", 404),
    ] {
        let reply = page.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
    let figures = page.get("/metrics");
    assert!(figures.body.contains("dr_search_seconds_count 1"), "{}", figures.body);
}

#[test]
fn description_has_every_route_and_its_types() {
    let world = World::indexed_text();
    let page = Page::start(&world);
    let document = page.get("/api/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    for path in ["/api/v1/search", "/api/v1/runs", "/api/v1/runs/{run}/events", "/api/v1/passages", "/api/v1/plans"] {
        assert!(paths.contains_key(path), "{path}: {:?}", paths.keys());
    }
    let search = &document["paths"]["/api/v1/search"]["get"];
    let names: Vec<_> =
        search["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"q") && names.contains(&"since"), "{search:#}");
    assert!(document["components"]["schemas"]["SearchReply"]["properties"]["hits"].is_object(), "{document:#}");
}

#[test]
fn only_the_page_and_those_with_the_token_are_let_in() {
    let world = World::indexed_text();
    let page = Page::start(&world);
    let (bearer, path) = (page.bearer(), "/api/v1/collections");
    let status = |headers: &[(&str, &str)]| page.send("GET", path, headers, b"").status;
    let authorized = ("Authorization", bearer.as_str());
    assert_eq!(status(&[authorized]), 200);
    for path in ["/", "/app.js", path, "/api/openapi.json", "/metrics", "/mcp"] {
        assert_eq!(page.send("GET", path, &[], b"").status, 401, "{path}");
    }
    assert_eq!(page.send("GET", "/healthz", &[], b"").status, 200);
    // A name that was rebound to this machine, and a page of another site: the token does not help.
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost"] {
        assert_eq!(status(&[authorized, ("Host", host)]), 421, "{host}");
    }
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(status(&[authorized, ("Origin", origin)]), 403, "{origin}");
    }
    assert_eq!(status(&[authorized, ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(page.send("GET", "/?token=wrong", &[], b"").status, 401);
    // The printed address exchanges the token for a cookie, which a page of another site cannot send.
    let entered = page.send("GET", &format!("/?token={}", page.token), &[], b"");
    let head = entered.head.to_ascii_lowercase();
    assert_eq!(entered.status, 303);
    assert!(
        head.contains("samesite=strict") && head.contains("httponly") && head.contains("location: /\r\n"),
        "{head}"
    );
    let cookie = format!("dr_{}={}", page.port, page.token);
    let whole = page.send("GET", "/", &[("Cookie", &cookie)], b"");
    assert_eq!(whole.status, 200);
    let head = whole.head.to_ascii_lowercase();
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    assert!(!whole.body.contains(&page.token));
}

#[test]
fn huge_and_malformed_bodies_are_refused_and_the_server_goes_on() {
    let world = World::indexed_text();
    let page = Page::start(&world);
    let huge = vec![b'a'; 50 * 1024 * 1024];
    assert_eq!(page.send("POST", "/api/v1/runs", &[("Authorization", &page.bearer())], &huge).status, 413);
    for (body, status) in
        [("{", 400), ("[]", 422), ("{\"question\":{}}", 422), ("{\"question\":{\"question\":\" \"}}", 422)]
    {
        let reply = page.send("POST", "/api/v1/runs", &[("Authorization", &page.bearer())], body.as_bytes());
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        let told: Value = serde_json::from_str(&reply.body).unwrap();
        assert!(!told["error"].as_str().unwrap().is_empty());
    }
    let above = json!({ "question": { "question": QUESTION, "max_cost": 1e9 } });
    assert_eq!(page.post("/api/v1/runs", &above).status, 422);
    assert_eq!(page.get("/api/v1/collections").status, 200);
}

#[test]
fn idle_event_streams_are_limited_and_others_are_served() {
    let (model, _asked) = hanging();
    let world = world_at(&model);
    let page = Page::start(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION, "mode": "deep" } })).json();
    let path = format!("/api/v1/runs/{}/events", started["run_id"].as_str().unwrap());
    let bearer = page.bearer();
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..300 {
        let mut stream = page.begin("GET", &path, &[("Authorization", &bearer)], b"");
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        refused += usize::from(&head == b"HTTP/1.1 503");
        streams.push(stream);
    }
    assert_eq!(refused, 300 - 256);
    assert_eq!(page.get("/api/v1/search?q=siren").status, 200);
}

#[test]
fn run_that_was_stopped_with_the_server_is_resumed_by_the_next_one_on_the_same_port_with_the_same_token() {
    let (model, _asked) = hanging();
    let world = world_at(&model);
    let mut page = Page::start(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION, "mode": "deep" } })).json();
    let run = started["run_id"].as_str().unwrap().to_owned();
    assert_eq!(page.get(&format!("/api/v1/runs/{run}")).json()["state"], "running");
    assert_eq!(page.post(&format!("/api/v1/runs/{run}/resume"), &json!({})).status, 409);
    let bearer = page.bearer();
    assert_eq!(page.send("DELETE", &format!("/api/v1/runs/{run}"), &[("Authorization", &bearer)], b"").status, 409);
    send("TERM", &page.child);
    page.child.wait().unwrap();
    let (port, token) = (page.port, page.token.clone());
    drop(page);
    let page = Page::at(&world, port);
    assert_eq!(page.token, token);
    let events = page.events(&run, Some("1"));
    assert_eq!(events.last().unwrap().2["state"], "open");
    let resumed = page.post(&format!("/api/v1/runs/{run}/resume"), &json!({}));
    assert_eq!(resumed.status, 202, "{}", resumed.body);
    let stopped = page.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).json();
    assert_eq!(stopped["state"], "open");
}
