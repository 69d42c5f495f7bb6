use std::io::Read;
use std::time::Instant;

use rmcp::service::ClientLifecycleMode;
use serde_json::{Value, json};

use super::{PATIENCE, Page, serve, serve_at};
use crate::common::{World, block_on, mode, peak_memory, write_program};
use crate::links::linked;
use crate::mcp::{begun, done, hanging, http};
use crate::run::kills::send;

const QUESTION: &str = "When does the siren sound?";

/// What a client of the tools accepts.
const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");

#[test]
fn question_is_asked_watched_and_read_over_http() {
    let world = World::indexed_text();
    let page = serve(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION } })).json();
    let run = started["run_id"].as_str().unwrap();
    let events = page.events(run, None);
    let (name, id, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["state"]), ("state", &json!("ended")), "{events:?}");
    let id = id.clone().unwrap();
    assert_eq!(last["last_event"].to_string(), id);
    let told: usize = events.iter().map(|(_, _, data)| data["events"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(told.to_string(), id, "each event once");
    // A stream that was cut continues behind the event it ended with.
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
    for part in ["", "/report", "/events", &format!("/quotes/{quote}")] {
        assert_eq!(page.get(&format!("/api/v1/runs/{run}{part}")).status, 404, "{part}");
    }
}

#[test]
fn hits_have_marked_snippets_and_lead_to_their_document() {
    let world = World::with_kb();
    for folder in ["kb", "other"] {
        world.write(&format!("{folder}/changing.md"), "# Changing\n\nOne of two.\n");
    }
    world.dr(["index", "kb", "other", "--no-embed", "--quiet"]).succeeded();
    world.write_on_day(3, "other/changing.md", "# Changed\n\nSince it was indexed.\n");
    let page = serve(&world);
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
        ("/api/v1/search?q=siren&since=2026-13-01", 422),
        ("/api/v1/passages?id=..%2F..%2Fetc%2Fpasswd", 404),
        ("/api/v1/passages?id=%2Fetc%2Fpasswd", 404),
        ("/api/v1/passages?id=kb%2Fchanging.md:900-901", 404),
        ("/api/v1/passages?id=changing.md", 409),
        ("/api/v1/passages?id=other%2Fchanging.md:1-2", 409),
        ("/api/v1/runs/..%2F..", 404),
        ("/api/v1/nothing", 404),
    ] {
        let reply = page.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
        let told: Value = serde_json::from_str(&reply.body).unwrap();
        assert!(!told["error"].as_str().unwrap().is_empty(), "{path}");
    }
    let figures = page.get("/metrics");
    assert!(figures.body.contains("dr_search_seconds_count 1"), "{}", figures.body);
}

#[test]
fn links_of_a_document_and_what_is_around_a_hit_are_served() {
    let world = linked();
    let page = serve(&world);
    let hits = page.get("/api/v1/search?q=gravel&expand=true").json()["hits"].clone();
    let around = &hits[0]["context"];
    assert_eq!((&around["outline"][1]["text"], &around["links"][0]["path"]), (&json!("Paths"), &json!("sub/water.md")));
    assert!(world.read("notes/Garden.md").contains(around["section"]["text"].as_str().unwrap()), "{around:#}");
    assert!(page.get("/api/v1/search?q=gravel").json()["hits"][0]["context"].is_null());
    let id = hits[0]["id"].as_str().unwrap();
    let document = page.get(&format!("/api/v1/passages?id={id}&extent=document&expand=true")).json();
    assert_eq!(
        (&document["document"], &document["context"]["outline"]),
        (&json!("notes/Garden.md"), &around["outline"])
    );

    let links = page.get(&format!("/api/v1/links?id={id}")).json();
    let count = |links: &Value, list: &str| links[list].as_array().unwrap().len();
    assert_eq!((count(&links, "links"), count(&links, "backlinks")), (6, 3), "{links:#}");
    let last = page.get("/api/v1/links?id=notes%2FGarden.md&from=2&limit=1").json();
    assert_eq!((&last["links"][0], &last["backlinks"][0]), (&links["links"][2], &links["backlinks"][2]));
    assert_eq!((count(&last, "links"), &last["more_links"], &last["more_backlinks"]), (1, &json!(3), &json!(0)));
    let broken = page.get("/api/v1/links/broken?collection=notes&limit=1").json();
    assert_eq!((&broken["broken"][0]["written"], &broken["more_broken"]), (&json!("old plan.md"), &json!(1)));
    assert_eq!(count(&page.get("/api/v1/links/broken").json(), "broken"), 3);
    for (path, status) in [
        ("/api/v1/links", 400),
        ("/api/v1/links?id=..%2F..%2Fetc%2Fpasswd", 404),
        ("/api/v1/links?id=Garden.md&limit=1001", 400),
        ("/api/v1/links/broken?limit=0", 400),
        ("/api/v1/links/broken?collection=none", 404),
    ] {
        let reply = page.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
}

#[test]
fn description_has_every_route_and_its_types() {
    let world = World::indexed_text();
    let page = serve(&world);
    let document = page.get("/api/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    for path in ["search", "runs", "runs/{run}/events", "passages", "links", "links/broken", "plans"]
        .map(|path| format!("/api/v1/{path}"))
    {
        assert!(paths.contains_key(&path), "{path}: {:?}", paths.keys());
    }
    let search = &document["paths"]["/api/v1/search"]["get"];
    let names: Vec<_> =
        search["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"q") && names.contains(&"since"), "{search:#}");
    let replies = |path: &str, method: &str| document["paths"][path][method]["responses"].clone();
    let started = replies("/api/v1/runs", "post");
    assert_eq!(started["202"]["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/StartedRun");
    assert_eq!(replies("/api/v1/runs/{run}/resume", "post")["202"], started["202"]);
    assert!(replies("/api/v1/runs/{run}", "delete")["204"].is_object());
    assert!(replies("/api/v1/runs/{run}/events", "get")["200"]["content"]["text/event-stream"].is_object());
    let report = replies("/api/v1/runs/{run}/report", "get");
    assert!(report["200"]["content"]["text/markdown"].is_object(), "{report:#}");
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{ "token": [] }]));
    let schemas = &document["components"]["schemas"];
    assert!(schemas["SearchReply"]["properties"]["hits"].is_object(), "{document:#}");
    assert!(schemas["LinksReply"]["properties"]["backlinks"].is_object(), "{document:#}");
}

#[test]
fn only_the_page_and_those_with_the_token_are_let_in() {
    let world = World::indexed_text();
    let page = serve(&world);
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
    assert_eq!(entered.status, 200);
    assert!(
        head.contains("samesite=strict") && head.contains("httponly") && head.contains("refresh: 0; url=/\r\n"),
        "{head}"
    );
    assert!(!entered.body.contains(&page.token));
    let cookie = format!("dr_{}={}", page.port, page.token);
    let whole = page.send("GET", "/", &[("Cookie", &cookie)], b"");
    assert_eq!(whole.status, 200);
    let head = whole.head.to_ascii_lowercase();
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    assert!(!whole.body.contains(&page.token));
}

#[cfg(unix)]
#[test]
fn browser_is_opened_without_the_token_among_its_arguments() {
    let world = World::indexed_text();
    // `dr` waits for a browser of this name to end, so its arguments are known once the server replies.
    let browser = world.path("lynx");
    write_program(&browser, "printf '%s' \"$*\" > args");
    let mut command = world.command(["serve", "--port", "0", "--open"]);
    let mut page = Page::start(command.env("BROWSER", &browser));
    assert_eq!(page.get("/healthz").status, 200);
    let args = world.read("args");
    let file = std::path::Path::new(args.strip_prefix("file://").unwrap_or_else(|| panic!("{args}")));
    assert_eq!(mode(file), 0o600);
    assert!(std::fs::read_to_string(file).unwrap().contains(&page.address()));
    send("TERM", &page.child);
    page.child.wait().unwrap();
    assert!(!file.exists(), "it outlives the server");
}

#[test]
fn huge_and_malformed_bodies_are_refused_and_the_server_goes_on() {
    let world = World::indexed_text();
    let page = serve(&world);
    assert_eq!(page.get("/api/v1/search?q=siren").status, 200);
    let before = peak_memory(&page.child);
    let huge = vec![b'a'; 50 * 1024 * 1024];
    let authorization = ("Authorization", page.bearer());
    let headers = [(authorization.0, authorization.1.as_str())];
    for path in ["/api/v1/runs", "/api/v1/plans", "/mcp"] {
        let reply = page.send("POST", path, &[headers[0], ACCEPT], &huge);
        assert_eq!(reply.status, 413, "{path}: {}", reply.body);
        let reply = page.send_chunked("POST", path, &[headers[0], ACCEPT], &huge);
        assert_eq!(reply.status, 413, "{path} in chunks: {}", reply.body);
    }
    // A body that is too long is not kept: six of 50 MB were sent.
    let grown = peak_memory(&page.child).saturating_sub(before);
    assert!(grown < 40 * 1024, "{grown} kB more");
    for (body, status) in [
        ("{", 400),
        ("[]", 422),
        ("{\"question\":3}", 422),
        ("{\"question\":{}}", 422),
        ("{\"question\":{\"question\":\" \"}}", 422),
    ] {
        let reply = page.send("POST", "/api/v1/runs", &headers, body.as_bytes());
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        let told: Value = serde_json::from_str(&reply.body).unwrap();
        let error = told["error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains("Form") && !error.contains("Asking"), "{error}");
    }
    let above = json!({ "question": { "question": QUESTION, "max_cost": 1e9 } });
    assert_eq!(page.post("/api/v1/runs", &above).status, 422);
    assert_eq!(page.get("/api/v1/collections").status, 200);
}

#[test]
fn search_and_passages_have_no_more_than_their_limits() {
    let world = World::with_kb();
    let sections = (0..300).map(|number| format!("## Part {number}\n\nThe lantern hangs on hook {number}.\n\n"));
    world.write("kb/lanterns.md", &format!("# Lanterns\n\n{}", sections.collect::<String>()));
    for number in 0..150 {
        world.write(&format!("kb/lantern-{number}.md"), &format!("# Lantern {number}\n\nA lantern of iron.\n"));
    }
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let page = serve(&world);
    let search = |limit: u32| page.get(&format!("/api/v1/search?q=lantern&limit={limit}"));
    let hits = |limit| search(limit).json()["hits"].as_array().unwrap().len();
    assert_eq!((hits(7), hits(100)), (7, 100));
    for limit in [0, 101] {
        let refused = search(limit);
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains(&format!("`limit` is {limit} (from 1 to 100)")), "{}", refused.body);
    }
    let long = format!("/api/v1/search?q={}", "lantern+".repeat(20_000));
    assert!([414, 422, 431].contains(&page.get(&long).status));
    let whole = page.get("/api/v1/passages?id=lanterns.md").json();
    assert!(whole["text"].as_str().unwrap().trim_end().ends_with("hook 299."));
}

#[test]
fn thousand_event_streams_are_limited_others_are_served_and_all_end_with_their_clients() {
    let (_model, _asked, world) = hanging();
    let page = serve(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION, "mode": "deep" } })).json();
    let path = format!("/api/v1/runs/{}/events", started["run_id"].as_str().unwrap());
    let bearer = page.bearer();
    // The second search arranges the weights of the model, which takes memory once.
    for _ in 0..2 {
        assert_eq!(page.get("/api/v1/search?q=siren").status, 200);
    }
    let before = peak_memory(&page.child);
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..1_000 {
        let mut stream = page.begin("GET", &path, &[("Authorization", &bearer)], b"");
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        if &head == b"HTTP/1.1 503" {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            assert!(rest.contains("too many event streams are open"), "{rest}");
            refused += 1;
        } else {
            assert_eq!(&head, b"HTTP/1.1 200");
            streams.push(stream);
        }
    }
    assert_eq!((refused, streams.len()), (1_000 - 256, 256));
    assert_eq!(page.get("/api/v1/search?q=siren").status, 200);
    assert_eq!(open_streams(&page), 256);
    let grown = peak_memory(&page.child).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB more");

    drop(streams);
    let until = Instant::now() + PATIENCE;
    while open_streams(&page) > 0 {
        assert!(Instant::now() < until, "streams outlive their clients");
    }
    let mut stream = page.begin("GET", &path, &[("Authorization", &bearer)], b"");
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(page.post(&format!("{}/cancel", path.trim_end_matches("/events")), &json!({})).status, 200);
}

#[test]
fn run_that_a_client_of_the_tools_starts_counts_and_is_stopped_on_the_page() {
    let (_model, asked, world) = hanging();
    let page = serve(&world);
    let first = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION, "mode": "deep" } })).json();
    asked.recv_timeout(PATIENCE).expect("the model is asked");
    let (listed, over_tools) = block_on(async {
        let client = http::connect_to(&page.tools(), Some(&page.token), ClientLifecycleMode::Initialize).await;
        let args = json!({ "question": format!("{QUESTION} (again)") });
        let run = done(&client, "research_start", args.clone()).await["run_id"].clone();
        let status = done(&client, "research_status", json!({ "run_id": first["run_id"] })).await;
        done(&client, "research_start", json!({ "question": format!("{QUESTION} (third)") })).await;
        // The fourth waits for its answer.
        let waiting = begun(&client, "ask", args).await;
        let asked = tokio::task::spawn_blocking(move || {
            (0..3).for_each(|_| asked.recv_timeout(PATIENCE).expect("the model is asked"));
        });
        asked.await.unwrap();
        let told = page.post("/api/v1/runs", &json!({ "question": { "question": "Is there a fifth?" } }));
        assert_eq!(told.status, 429, "{}", told.body);
        assert!(page.get("/metrics").body.contains("\ndr_runs_active 4\n"));
        for run in page.get("/api/v1/runs").json()["runs"].as_array().unwrap() {
            let stopped = page.post(&format!("/api/v1/runs/{}/cancel", run["id"].as_str().unwrap()), &json!({}));
            assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("open")), "{}", stopped.body);
        }
        drop(waiting);
        client.cancel().await.unwrap();
        (status, run)
    });
    assert_eq!(listed["state"], "running", "one that the page started");
    assert!(page.get("/metrics").body.contains("\ndr_runs_active 0\n"));
    // The page is the user's own: limits are raised beyond those of the settings, as with `dr resume`.
    let path = format!("/api/v1/runs/{}", over_tools.as_str().unwrap());
    let tokens = |page: &Page| page.get(&path).json()["limits"]["tokens"].as_u64().unwrap();
    let before = tokens(&page);
    let raised = page.post(&format!("{path}/resume"), &json!({ "tokens": 10_000_000 }));
    assert_eq!(raised.status, 202, "{}", raised.body);
    page.post(&format!("{path}/cancel"), &json!({})).json();
    assert_eq!(tokens(&page), before + 10_000_000);
}

#[test]
fn stream_that_opens_later_says_what_the_run_is_doing() {
    let (_model, asked, world) = hanging();
    let page = serve(&world);
    let started = page.post("/api/v1/runs", &json!({ "question": { "question": QUESTION, "mode": "deep" } })).json();
    asked.recv_timeout(PATIENCE).expect("the model is asked");
    let path = format!("/api/v1/runs/{}/events", started["run_id"].as_str().unwrap());
    let mut stream = page.begin("GET", &path, &[("Authorization", &page.bearer())], b"");
    let (mut seen, mut buffer) = (String::new(), [0; 1024]);
    while !seen.contains("event: doing\ndata: {\"text\":\"working out what the answer must cover\"}") {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

fn open_streams(page: &Page) -> u32 {
    let figures = page.get("/metrics").body;
    let line = figures.lines().find_map(|line| line.strip_prefix("dr_event_streams "));
    line.unwrap_or_else(|| panic!("{figures}")).parse().unwrap()
}

#[test]
fn run_that_was_stopped_with_the_server_is_resumed_by_the_next_one_on_the_same_port_with_the_same_token() {
    let (_model, _asked, world) = hanging();
    let mut page = serve(&world);
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
    let page = serve_at(&world, port);
    assert_eq!(page.token, token);
    let events = page.events(&run, Some("1"));
    assert_eq!(events.last().unwrap().2["state"], "open");
    let resumed = page.post(&format!("/api/v1/runs/{run}/resume"), &json!({}));
    assert_eq!(resumed.status, 202, "{}", resumed.body);
    let stopped = page.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).json();
    assert_eq!(stopped["state"], "open");
}
