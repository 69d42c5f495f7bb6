use rmcp::ServiceError;
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use super::{Client, HttpServer, QUESTION, call, done, eras, hello, refused};
use crate::common::{World, block_on, peak_memory};
use crate::outside::set;
use crate::run::kills::send;

const TOKEN: &str = "a-token-that-is-long-enough";

pub(super) async fn connect(server: &HttpServer, token: Option<&str>, era: ClientLifecycleMode) -> Client<()> {
    connect_to(&server.url(), token, era).await
}

pub(crate) async fn connect_to(url: &str, token: Option<&str>, era: ClientLifecycleMode) -> Client<()> {
    // Its HTTP client would look for TLS otherwise, which no server here has.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let config = match token {
        Some(token) => config.auth_header(token),
        None => config,
    };
    ().serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), era).await.unwrap()
}

#[test]
fn http_clients_of_both_eras_search_and_ask() {
    let world = World::indexed_text();
    let mut server = HttpServer::start(&world, &["127.0.0.1:0"]);
    for era in eras() {
        block_on(async {
            let client = connect(&server, None, era).await;
            let found = done(&client, "search", json!({ "query": "siren" })).await;
            let first = &found["results"][0];
            assert!(first["url"].as_str().unwrap().starts_with("file:///"), "this machine has the file: {first}");
            done(&client, "fetch", json!({ "id": first["id"] })).await;
            let answer = done(&client, "ask", json!({ "question": QUESTION, "offline": true })).await;
            assert_eq!(answer["outcome"], "answered");
            let (one, two) = tokio::join!(
                call(&client, "search", json!({ "query": "water" })),
                call(&client, "search", json!({ "query": "siren" })),
            );
            assert_eq!((one.is_error, two.is_error), (Some(false), Some(false)));
            client.cancel().await.unwrap();
        });
    }
    send("TERM", &server.child);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn foreign_pages_and_rebound_names_are_refused() {
    let world = World::indexed_text().with_variable("DR_MCP_TOKEN", TOKEN);
    let server = HttpServer::start(&world, &["127.0.0.1:0"]);
    let token = format!("Bearer {TOKEN}");
    let authorized = ("Authorization", token.as_str());
    let hello = hello();
    let status = |headers: &[(&str, &str)]| server.post(headers, hello.as_bytes()).0;
    assert_eq!(status(&[authorized]), 200);
    assert_eq!(status(&[authorized, ("Host", "localhost")]), 200);
    // The token does not help a page of another site.
    for origin in ["https://evil.example", "null", "http://localhost:1", "file://"] {
        assert_eq!(status(&[authorized, ("Origin", origin)]), 403, "{origin}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "0.0.0.0"] {
        assert_eq!(status(&[authorized, ("Host", host)]), 403, "{host}");
    }
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("Authorization", "Bearer wrong")]), 401);
    let near = format!("Bearer {}", &TOKEN[1..]);
    assert_eq!(status(&[("Authorization", near.as_str())]), 401);
}

#[test]
fn huge_and_malformed_bodies_are_refused_and_the_server_goes_on() {
    let world = World::indexed_text();
    let server = HttpServer::start(&world, &["127.0.0.1:0"]);
    assert_eq!(server.post(&[], hello().as_bytes()).0, 200);
    let before = peak_memory(&server.child);
    let huge = vec![b'a'; 50 * 1024 * 1024];
    for _ in 0..3 {
        assert_eq!(server.post(&[], &huge).0, 413);
    }
    let grown = peak_memory(&server.child).saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} kB more");
    for body in ["", "{", "[]", "{\"jsonrpc\":\"2.0\"}", "\u{0}"] {
        let (status, answer) = server.post(&[], body.as_bytes());
        assert!((400..500).contains(&status), "{body:?}: {answer}");
    }
    assert_eq!(server.post(&[("Mcp-Session-Id", "0123")], br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).0, 404);
    assert_eq!(server.post(&[], hello().as_bytes()).0, 200);
}

#[test]
fn server_for_other_machines_needs_a_token_and_keeps_local_collections_to_itself() {
    let world = World::indexed_text();
    world.write("private/diary.md", "# Diary\n\nThe siren at home sounds like a whale.\n");
    world.dr(["index", "private", "--no-embed", "--quiet"]).succeeded();
    let published = "[collections.kb]\nurl = \"https://docs.example.com/kb\"\n";
    set(&world, &format!("[collections.private]\nlocal_only = true\n{published}"));
    let run = world.dr(["mcp", "--http", "0.0.0.0:0"]);
    assert_eq!(run.exit, Some(2), "{run}");
    assert!(run.stderr.contains("needs a token"), "{run}");
    let local = world.dr(["ask", "--offline", "--json", "What does the siren at home sound like?"]).succeeded().json();
    let world = world.with_variable("DR_MCP_TOKEN", TOKEN);
    let server = HttpServer::start(&world, &["0.0.0.0:0"]);
    block_on(async {
        let client = connect(&server, Some(TOKEN), eras()[0].clone()).await;
        let found = done(&client, "search", json!({ "query": "siren" })).await;
        let results = found["results"].as_array().unwrap();
        assert!(!results.is_empty());
        for result in results {
            let url = result["url"].as_str().unwrap();
            assert!(url.starts_with("https://docs.example.com/kb/"), "published, and no private file: {url}");
        }
        let collections = done(&client, "list_collections", json!({})).await;
        let private = &collections["collections"][1];
        assert_eq!((&private["name"], &private["served"]), (&json!("private"), &json!(false)));
        let why = "collection `private` is for this machine only";
        assert!(private["reason"].as_str().unwrap().contains(why), "{private}");
        for (tool, args) in [
            ("search", json!({ "query": "siren", "collections": ["private"] })),
            ("read", json!({ "id": "private/diary.md" })),
            ("read", json!({ "id": "diary.md" })),
            ("links", json!({ "id": "private/diary.md" })),
            ("links", json!({ "collections": ["private"] })),
            ("ask", json!({ "question": "What does the siren at home sound like?", "collections": ["private"] })),
            ("research_start", json!({ "question": QUESTION, "collections": ["private"] })),
            ("research_status", json!({ "run_id": local["run_id"] })),
            ("research_result", json!({ "run_id": local["run_id"] })),
        ] {
            let told = refused(&client, tool, args).await;
            assert!(told.contains(why) && !told.contains("whale"), "{tool}: {told}");
        }
        let checked = done(&client, "links", json!({})).await;
        assert_eq!(checked["check"]["collections"], json!(["kb"]));
        let close = refused(&client, "read", json!({ "id": "iary.md" })).await;
        assert!(!close.contains("diary"), "names of private files are not suggested: {close}");
        let args = json!({ "question": "What does the siren at home sound like?", "offline": true });
        let answer = done(&client, "ask", args).await;
        assert!(!answer.to_string().contains("whale"), "{answer}");
        let listed = json!(client.list_all_resources().await.unwrap()).to_string();
        let run = answer["run_id"].as_str().unwrap();
        assert!(listed.contains(&format!("dr://runs/{run}")), "{listed}");
        assert!(!listed.contains("diary") && !listed.contains(local["run_id"].as_str().unwrap()), "{listed}");
        client.cancel().await.unwrap();
        let config = StreamableHttpClientTransportConfig::with_uri(server.url());
        let refused =
            ().serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), eras()[0].clone()).await;
        assert!(refused.is_err(), "without the token");
    });
    // On this machine the collection is served.
    let server = HttpServer::start(&world, &["127.0.0.1:0"]);
    block_on(async {
        let client = connect(&server, Some(TOKEN), eras()[1].clone()).await;
        assert!(
            done(&client, "read", json!({ "id": "private/diary.md" })).await["text"]
                .as_str()
                .unwrap()
                .contains("whale")
        );
        client.cancel().await.unwrap();
    });
}

#[test]
fn other_machines_are_not_told_of_folders() {
    let world = World::indexed_text().with_variable("DR_MCP_TOKEN", TOKEN);
    let server = HttpServer::start(&world, &["0.0.0.0:0"]);
    block_on(async {
        let client = connect(&server, Some(TOKEN), eras()[0].clone()).await;
        let found = done(&client, "search", json!({ "query": "siren" })).await;
        let read = done(&client, "read", json!({ "id": "guide/alarms.md" })).await;
        let answer = done(&client, "ask", json!({ "question": QUESTION, "offline": true })).await;
        let again = done(&client, "read", json!({ "id": read["url"] })).await;
        assert_eq!(again["text"], read["text"], "the address of a text names it");
        for said in [&found, &read, &answer] {
            let said = said.to_string();
            assert!(said.contains("dr://documents/kb/guide/alarms.md#L"), "{said}");
            assert!(!said.contains(world.path("").to_str().unwrap()), "{said}");
        }
        client.cancel().await.unwrap();
    });
}

#[test]
fn name_of_its_own_makes_a_loopback_server_one_for_other_machines() {
    let world = World::indexed_text();
    let args = ["mcp", "--http", "127.0.0.1:0", "--allow-host", "kb.example"];
    assert_eq!(world.dr(args).exit, Some(2));
    let world = world.with_variable("DR_MCP_TOKEN", TOKEN);
    let server = HttpServer::start(&world, &["127.0.0.1:0", "--allow-host", "kb.example"]);
    let token = format!("Bearer {TOKEN}");
    let by_name = [("Authorization", token.as_str()), ("Host", "kb.example")];
    assert_eq!(server.post(&by_name, hello().as_bytes()).0, 200);
    let run = world.dr(["mcp", "--http", "127.0.0.1:0", "--offline"]);
    assert_eq!(run.exit, Some(2), "{run}");
    assert!(run.stderr.contains("needs a socket"), "{run}");
}

#[test]
fn unknown_tool_is_an_error_of_the_protocol() {
    let world = World::indexed_text();
    let server = HttpServer::start(&world, &["127.0.0.1:0"]);
    block_on(async {
        let client = connect(&server, None, eras()[1].clone()).await;
        let error = client.call_tool(rmcp::model::CallToolRequestParams::new("shell")).await.unwrap_err();
        assert!(matches!(&error, ServiceError::McpError(_)), "{error}");
        client.cancel().await.unwrap();
    });
}
