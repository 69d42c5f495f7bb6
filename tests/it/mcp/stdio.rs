use std::collections::BTreeSet;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, GetPromptRequestParams, Implementation,
    ProgressNotificationParam, ReadResourceRequestParams, ServerResult,
};
use rmcp::service::{ClientLifecycleMode, NotificationContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{QUESTION, Server, begun, call, done, eras, hello, refused, session};
use crate::common::{Running, World, block_on, write_notes};
use crate::links::linked;
use crate::run::traces::Collector;

#[test]
fn search_and_fetch_keep_the_contract_in_both_eras() {
    let world = World::indexed();
    for era in eras() {
        block_on(async {
            let mut server = Server::start(&world, &[]);
            let client = server.connect((), era).await;
            let found = done(&client, "search", json!({ "query": "siren" })).await;
            assert_eq!(found.as_object().unwrap().keys().collect::<Vec<_>>(), ["results"]);
            let first = &found["results"][0];
            for key in ["id", "title", "url"] {
                assert!(!first[key].as_str().unwrap().is_empty(), "{key}: {first}");
            }
            let file = world.path("kb/guide/alarms.md");
            let url = first["url"].as_str().unwrap();
            assert!(url.starts_with(&format!("file://{}#L", file.display())), "{url}");
            let fetched = done(&client, "fetch", json!({ "id": first["id"] })).await;
            assert_eq!(fetched["id"], first["id"]);
            assert_eq!(fetched["metadata"]["path"], "guide/alarms.md");
            let text = fetched["text"].as_str().unwrap();
            assert!(world.read("kb/guide/alarms.md").contains(text), "the text is verbatim: {text}");
            for tool in ["read", "fetch"] {
                let again = done(&client, tool, json!({ "id": fetched["url"] })).await;
                assert_eq!(again["text"].as_str().unwrap().trim_end(), text.trim_end(), "an address names its text");
            }
            client.cancel().await.unwrap();
            assert_eq!(server.ended(), Some(0));
        });
    }
}

#[test]
fn results_match_the_schemas_and_every_tool_says_whether_it_changes_anything() {
    let world = World::indexed_text();
    session(&world, &["--offline"], async |client| {
        let tools = client.list_all_tools().await.unwrap();
        let reading = ["search", "fetch", "read", "links", "list_collections", "research_status", "research_result"];
        for tool in &tools {
            let hint = tool.annotations.as_ref().unwrap().read_only_hint;
            assert_eq!(hint, Some(reading.contains(&tool.name.as_ref())), "{}", tool.name);
        }
        let schema = |name: &str| {
            let tool = tools.iter().find(|tool| tool.name == name).unwrap();
            let schema = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
            jsonschema::validator_for(&schema).unwrap()
        };
        let run = done(client, "research_start", json!({ "question": QUESTION })).await;
        let id = &run["run_id"];
        for (tool, args) in [
            ("search", json!({ "query": "water", "collections": ["kb"], "limit": 3 })),
            ("search", json!({ "query": "water", "expand": true })),
            ("search", json!({ "query": "zzyzx" })),
            ("fetch", json!({ "id": "kb/guide/alarms.md:1-3" })),
            ("read", json!({ "id": "guide/alarms.md", "extent": "document" })),
            ("read", json!({ "id": "guide/alarms.md:1-3", "expand": true })),
            ("links", json!({ "id": "guide/alarms.md" })),
            ("links", json!({ "collections": ["kb"] })),
            ("list_collections", json!({})),
            ("ask", json!({ "question": QUESTION, "fresh": true })),
            ("ask", json!({ "question": "Who won the world cup of 1954?" })),
            ("research_cancel", json!({ "run_id": id })),
            ("research_status", json!({ "run_id": id })),
            ("research_result", json!({ "run_id": id })),
            ("research_resume", json!({ "run_id": id })),
        ] {
            let result = done(client, tool, args.clone()).await;
            let errors: Vec<_> = schema(tool).iter_errors(&result).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{tool} {args}: {errors:?}");
        }
    });
}

/// A client that passes on notifications of progress.
#[derive(Clone)]
struct ProgressClient(UnboundedSender<ProgressNotificationParam>);

impl ClientHandler for ProgressClient {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"))
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.send(progress).unwrap();
    }
}

#[test]
fn question_is_answered_with_citations_and_progress_in_both_eras() {
    let world = World::indexed();
    for era in eras() {
        block_on(async {
            let (sender, mut progress) = unbounded_channel();
            let mut server = Server::start(&world, &[]);
            let client = server.connect(ProgressClient(sender), era).await;
            let sent = begun(&client, "ask", json!({ "question": QUESTION, "offline": true })).await;
            let token = sent.progress_token.clone();
            let ServerResult::CallToolResult(result) = sent.await_response().await.unwrap() else { panic!("a result") };
            let answer = result.structured_content.unwrap();
            assert_eq!(answer["outcome"], "answered");
            let quote = answer["citations"][0]["quote"].as_str().unwrap();
            assert!(world.read("kb/guide/alarms.md").contains(quote), "{quote}");
            assert!(answer["citations"][0]["url"].as_str().unwrap().starts_with("file:///"));
            assert!(answer["report"].as_str().unwrap().contains("guide/alarms.md"), "{answer}");
            // The client handles each on a task of its own, in any order.
            let message = |step: &ProgressNotificationParam| step.message.clone().unwrap();
            let is_end = |step: &ProgressNotificationParam| message(step).starts_with("ended: ");
            let mut told = vec![progress.recv().await.unwrap()];
            let mut number = 1.0;
            while told.iter().find(|step| is_end(step)).is_none_or(|end| number < end.progress) {
                told.push(progress.recv().await.unwrap());
                number += 1.0;
            }
            told.sort_by(|a, b| a.progress.total_cmp(&b.progress));
            assert!(told.iter().all(|step| step.progress_token == token));
            assert!(told.is_sorted_by(|a, b| a.progress < b.progress) && told.len() > 2, "{told:?}");
            assert!(message(&told[0]).starts_with("asked: "), "{told:?}");
            // The run is stored, and its report can be had again by its address.
            let run = answer["run_id"].as_str().unwrap();
            let uri = format!("dr://runs/{run}");
            let report = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
            assert_eq!(json!(report.contents)[0]["text"], answer["report"]);
            client.cancel().await.unwrap();
        });
    }
}

#[test]
fn research_goes_on_in_the_background_and_tells_its_events_once() {
    let world = World::indexed_text();
    session(&world, &["--offline"], async |client| {
        let run = done(client, "research_start", json!({ "question": QUESTION })).await["run_id"].clone();
        let mut events: Vec<u64> = Vec::new();
        let mut since = json!(0);
        let last = loop {
            let status = done(client, "research_status", json!({ "run_id": run, "since": since })).await;
            let new = status["events"].as_array().unwrap();
            events.extend(new.iter().map(|event| event["number"].as_u64().unwrap()));
            since = status["last_event"].clone();
            if status["state"] != "running" {
                break status;
            }
        };
        assert_eq!((&last["state"], &last["nodes"][0]["status"]), (&json!("ended"), &json!("done")), "{last}");
        assert_eq!(events, (1..=last["last_event"].as_u64().unwrap()).collect::<Vec<_>>());
        let result = done(client, "research_result", json!({ "run_id": run })).await;
        assert_eq!((&result["outcome"], &result["run_id"]), (&json!("answered"), &run));
        assert_eq!(world.runs()[0]["id"], run);
        // Ids of other projects, prefixes and things that are no id name no run.
        for wrong in ["0123456789abcdef", &run.as_str().unwrap()[..6], "../state.db", ""] {
            for tool in ["research_status", "research_result", "research_cancel", "research_resume"] {
                refused(client, tool, json!({ "run_id": wrong })).await;
            }
        }
    });
}

#[test]
fn each_run_of_an_assistant_is_a_trace_of_its_own() {
    let collector = Collector::start();
    let world = World::indexed_text().with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address());
    let mut server = Server::start(&world, &[]);
    block_on(async {
        let client = server.connect((), ClientLifecycleMode::Initialize).await;
        for (question, is_offline) in [(QUESTION, false), ("How is the siren silenced?", false), (QUESTION, true)] {
            done(&client, "ask", json!({ "question": question, "offline": is_offline })).await;
        }
        client.cancel().await.unwrap();
    });
    assert_eq!(server.ended(), Some(0));
    let traces: BTreeSet<_> = collector.spans().into_iter().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), 2, "a question that is asked offline has no trace");
    assert!(!collector.spans().iter().any(|span| span.attributes.is_empty()));
}

#[test]
fn caller_lowers_limits_and_cannot_raise_them() {
    let world = World::indexed_text();
    session(&world, &["--offline", "--max-cost", "2", "--max-tokens", "9000"], async |client| {
        let ask = |more: Value| {
            let mut args = json!({ "question": QUESTION, "fresh": true });
            args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            args
        };
        for tool in ["ask", "research_start"] {
            for (more, said) in [
                (json!({ "max_cost": 2.5 }), "`max_cost` is 2.5 dollars, and the limit is 2 dollars"),
                (json!({ "max_tokens": 9001 }), "`max_tokens` is 9001, and the limit is 9000"),
                (json!({ "max_seconds": 1801 }), "`max_seconds` is 1801 seconds, and the limit is 1800 seconds"),
                (json!({ "max_rounds": 7 }), "`max_rounds` is 7, and the limit is 6"),
            ] {
                let told = refused(client, tool, ask(more)).await;
                assert!(told.contains(said), "{tool}: {told}");
            }
        }
        assert!(world.runs().is_empty(), "nothing was started");
        done(client, "ask", ask(json!({ "max_cost": 0.5, "max_tokens": 8000, "max_seconds": 60 }))).await;
    });
    let settings = world.dr(["show", "--json"]).succeeded().json()["settings"].clone();
    assert_eq!(settings["limits"]["cost_nanos"], 500_000_000);
    assert_eq!(settings["limits"]["tokens"], 8_000);
}

#[test]
fn long_texts_are_cut_and_the_rest_can_be_had() {
    let lines: Vec<_> =
        (1..=3_000).map(|line| format!("Line {line} of the long list of valves and probes.\n")).collect();
    let world = World::of_notes(&[("long.md", &format!("# Long\n\n{}", lines.join("\n")))]);
    let whole = world.read("kb/long.md");
    session(&world, &[], async |client| {
        for (tool, place) in [("read", ""), ("fetch", "/metadata")] {
            let (mut id, mut read) = (json!("kb/long.md"), String::new());
            for step in 0.. {
                let part = done(client, tool, json!({ "id": id })).await;
                let text = part["text"].as_str().unwrap();
                assert!(text.len() < 60_000, "{}", text.len());
                read.push_str(text);
                id = part.pointer(&format!("{place}/rest")).cloned().unwrap_or_default();
                if id.is_null() {
                    assert!(step > 2, "{step} parts");
                    break;
                }
                let note = part.pointer(&format!("{place}/note")).unwrap().as_str().unwrap();
                assert!(note.contains("lines are left out") && note.contains(id.as_str().unwrap()), "{note}");
            }
            assert!(read == whole, "{tool}: the parts are the document");
        }
    });
}

#[test]
fn notes_around_a_result_are_named_once_and_read_by_their_ids() {
    let world = linked();
    session(&world, &[], async |client| {
        let plain = done(client, "search", json!({ "query": "gravel" })).await;
        assert!(plain["results"][0]["context"].is_null(), "{plain}");
        let found = done(client, "search", json!({ "query": "garden gravel pump tools", "expand": true })).await;
        let results = found["results"].as_array().unwrap();
        let document = |result: &Value| result["url"].as_str().unwrap().split('#').next().unwrap().to_owned();
        for (at, result) in results.iter().enumerate() {
            let is_first = !results[..at].iter().any(|other| document(other) == document(result));
            let outline = result["context"]["outline"].as_array().unwrap();
            assert_eq!(!outline.is_empty(), is_first, "{found:#}");
        }
        let garden = results.iter().find(|result| document(result).ends_with("Garden.md")).unwrap();
        let around = &garden["context"];
        assert_eq!(around["outline"][1], json!({ "line": 9, "level": 2, "text": "Paths" }));
        let section = around["section"]["text"].as_str().unwrap();
        assert!(world.read("notes/Garden.md").contains(section), "{section}");
        assert_eq!(around["backlinks"].as_array().unwrap().len(), 2, "{around:#}");
        let water = &around["links"][0];
        assert_eq!(water["path"], "sub/water.md");
        let read = done(client, "read", json!({ "id": water["id"], "expand": true })).await;
        assert_eq!(read["text"], world.read("notes/sub/water.md"));
        assert_eq!(read["context"]["backlinks"][0]["path"], "Garden.md");

        let links = done(client, "links", json!({ "id": "Garden.md" })).await["document"].clone();
        let states: Vec<_> =
            links["links"].as_array().unwrap().iter().map(|link| link["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["found", "found", "missing", "missing", "not_indexed", "outside"]);
        assert_eq!(links["backlinks"].as_array().unwrap().len(), 3);
        let check = done(client, "links", json!({ "collections": ["notes"] })).await["check"].clone();
        let broken: Vec<_> =
            check["broken"].as_array().unwrap().iter().map(|link| link["written"].as_str().unwrap()).collect();
        assert_eq!(broken, ["old plan.md", "[[Ferreira]]"]);
    });
}

#[test]
fn long_sections_and_lists_of_links_are_cut_and_the_rest_can_be_had() {
    let links = (0..1_500).map(|number| format!("- see [[No note has the number {number}]]\n"));
    let text = format!("# Long\n\n{}\nThe probe is at the end.\n", links.collect::<String>());
    let world = World::of_notes(&[("long.md", &text)]);
    session(&world, &[], async |client| {
        let found = done(client, "search", json!({ "query": "probe", "expand": true })).await;
        let around = &found["results"][0]["context"];
        let section = around["section"]["text"].as_str().unwrap();
        assert!(section.contains("The probe is at the end.") && section.len() < 40_000, "{} bytes", section.len());
        let said = around["left_out"].as_str().unwrap();
        assert!(said.starts_with("the rest of the section, which is lines "), "{said}");
        for (args, list) in [(json!({ "id": "long.md" }), "/document/links"), (json!({}), "/check/broken")] {
            let (mut args, mut read, mut pages) = (args, Vec::new(), 0);
            loop {
                let page = done(client, "links", args.clone()).await;
                assert!(page.to_string().len() < 60_000, "{} bytes", page.to_string().len());
                read.extend(page.pointer(list).unwrap().as_array().unwrap().iter().map(|link| link["line"].clone()));
                pages += 1;
                let Some(next) = page.get("next") else { break };
                assert!(page["note"].as_str().unwrap().starts_with("left out: "), "{page}");
                args["from"] = next.clone();
            }
            assert_eq!(read, (3..1_503).map(Value::from).collect::<Vec<_>>());
            assert!(pages > 2, "{pages} pages");
        }
    });
}

#[test]
fn index_that_changes_appears_or_is_made_again_is_seen_by_the_next_call() {
    let world = World::with_kb();
    session(&world, &[], async |client| {
        let told = refused(client, "search", json!({ "query": "siren" })).await;
        assert!(told.contains("no index at") && told.contains("hint: run `dr index"), "{told}");
        let hits = async |query: &str| {
            let found = done(client, "search", json!({ "query": query })).await;
            found["results"].as_array().unwrap().len()
        };
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        assert!(hits("siren").await > 0, "an index that appears");
        assert_eq!(hits("zeppelin").await, 0);
        world.write("kb/new.md", "# New\n\nThe zeppelin is filled with helium.\n");
        world.dr(["index", "--no-embed", "--quiet"]).succeeded();
        assert_eq!(hits("zeppelin").await, 1, "a document that is added");
        std::fs::remove_file(world.path("kb/new.md")).unwrap();
        world.dr(["index", "--no-embed", "--quiet"]).succeeded();
        assert_eq!(hits("zeppelin").await, 0, "a document that is removed");
        world.dr(["index", "--rebuild", "--quiet"]).succeeded();
        assert!(hits("siren").await > 0, "an index that is rebuilt, with vectors");
        std::fs::remove_dir_all(world.path(".dr/index")).unwrap();
        refused(client, "search", json!({ "query": "siren" })).await;
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        assert!(hits("siren").await > 0, "an index that is removed and made again");
    });
}

#[test]
fn index_is_opened_once_and_again_only_after_a_commit() {
    let world = World::indexed_text().with_variable("DR_LOG", "lance=info");
    block_on(async {
        let mut server = Server::start(&world, &[]);
        let log = server.child.stderr.take().unwrap();
        let log = std::thread::spawn(move || std::io::read_to_string(log).unwrap());
        let client = server.connect((), ClientLifecycleMode::Initialize).await;
        for _ in 0..3 {
            done(&client, "search", json!({ "query": "siren" })).await;
            done(&client, "read", json!({ "id": "guide/alarms.md" })).await;
        }
        world.write("kb/new.md", "# New\n\nThe zeppelin is filled with helium.\n");
        world.dr(["index", "--no-embed", "--quiet"]).succeeded();
        for _ in 0..3 {
            done(&client, "search", json!({ "query": "zeppelin" })).await;
        }
        client.cancel().await.unwrap();
        drop(server);
        let log = log.join().unwrap();
        let opened = log.lines().filter(|line| line.contains("loading") && line.contains("documents_1.lance"));
        assert_eq!(opened.count(), 2, "{log}");
    });
}

#[test]
fn documents_and_prompts_are_listed_and_read() {
    let world = World::empty();
    write_notes(&world, 230, 1);
    world.write("notes/a b/50% #1.md", "# Odd\n\nA file with an odd name.\n");
    world.dr(["index", "notes", "--no-embed", "--quiet"]).succeeded();
    session(&world, &[], async |client| {
        assert_eq!(client.list_all_resource_templates().await.unwrap().len(), 2);
        let run = done(client, "ask", json!({ "question": QUESTION, "offline": true })).await["run_id"].clone();
        let resources = client.list_all_resources().await.unwrap();
        assert_eq!(resources.len(), 232, "all pages of the list");
        let report = &resources[231];
        assert_eq!(
            (&report.uri, report.title.as_deref()),
            (&format!("dr://runs/{}", run.as_str().unwrap()), Some(QUESTION))
        );
        let odd = resources.iter().find(|resource| resource.title.as_deref() == Some("Odd")).unwrap();
        assert_eq!(odd.uri, "dr://documents/notes/a%20b/50%25%20%231.md");
        let read = client.read_resource(ReadResourceRequestParams::new(&odd.uri)).await.unwrap();
        assert_eq!(json!(read.contents)[0]["text"], world.read("notes/a b/50% #1.md"));
        for uri in [
            "dr://documents/notes/../../../etc/passwd",
            "dr://documents//etc/passwd",
            "file:///etc/passwd",
            "dr://runs/../x",
        ] {
            let error = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap_err();
            assert!(error.to_string().contains("no "), "{uri}: {error}");
        }
        assert_eq!(client.list_all_prompts().await.unwrap()[0].name, "research");
        let args = json!({ "question": QUESTION }).as_object().unwrap().clone();
        let prompt = client.get_prompt(GetPromptRequestParams::new("research").with_arguments(args)).await.unwrap();
        assert!(json!(prompt.messages)[0]["content"]["text"].as_str().unwrap().contains(QUESTION));
        client.get_prompt(GetPromptRequestParams::new("research")).await.unwrap_err();
    });
}

#[test]
fn names_from_a_client_never_become_paths() {
    let world = World::indexed_text();
    world.write("secret.md", "# Secret\n\nNot in the index.\n");
    world.write("kb/unindexed.md", "# Later\n\nNot in the index either.\n");
    let outside = world.path("secret.md").display().to_string();
    let long = "a/".repeat(5_000);
    session(&world, &[], async |client| {
        for id in [
            "../secret.md",
            "kb/../../secret.md",
            outside.as_str(),
            "unindexed.md",
            "/etc/passwd",
            "/etc/passwd:1-3",
            "file:///etc/passwd",
            &format!("file://{outside}"),
            &format!("file://{}/../../secret.md", world.path("kb").display()),
            &format!("file://{}/%2e%2e/secret.md#L1-L3", world.path("kb").display()),
            "..\\secret.md",
            "guide/alarms.md\u{0}",
            "",
            ".",
            "'; DROP TABLE chunks; --",
            "0123456789abcdef",
            &long,
        ] {
            for tool in ["read", "fetch", "links"] {
                let told = refused(client, tool, json!({ "id": id })).await;
                assert!(!told.contains("Not in the index"), "{told}");
                assert!(told.len() < 6_000, "{} bytes", told.len());
            }
        }
        for (tool, args) in [
            ("search", json!({ "query": "siren", "collections": ["' OR 1 = 1 --"] })),
            ("search", json!({ "query": "?!" })),
            ("search", json!({ "query": "x".repeat(9_000) })),
            ("search", json!({ "query": "siren", "limit": 51 })),
            ("search", json!({ "query": "siren", "path": "*" })),
            ("links", json!({ "collections": ["none"] })),
            ("links", json!({ "id": "guide/alarms.md", "collections": ["kb"] })),
            ("search", json!({})),
            ("search", json!({ "query": ["siren"] })),
            ("ask", json!({ "question": "" })),
            ("ask", json!({ "question": QUESTION, "allow_egress": true })),
            ("ask", json!({ "question": QUESTION, "max_cost": -1 })),
        ] {
            refused(client, tool, args).await;
        }
        let unknown = client.call_tool(CallToolRequestParams::new("shell")).await.unwrap_err();
        assert!(unknown.to_string().contains("no such tool"), "{unknown}");
        // After all that the server still answers, also two at once.
        let (one, two) = tokio::join!(
            done(client, "search", json!({ "query": "siren" })),
            done(client, "search", json!({ "query": "water" })),
        );
        assert_ne!(one["results"][0]["id"], two["results"][0]["id"]);
        assert_eq!(call(client, "list_collections", json!({})).await.is_error, Some(false));
    });
}

#[test]
fn stdout_carries_the_protocol_alone_and_the_log_no_texts() {
    let world = World::indexed_text().with_variable("DR_LOG", "info,dr=trace");
    let search = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"query":"siren zebrafish"}}}"#;
    let long = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"ping","params":{{"x":"{}"}}}}"#, "a".repeat(2_000_000));
    let ping = r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let lines = [&hello(), ready, "{\"jsonrpc\": nonsense", "[]", search, &long, ping];
    let (said, log) = Server::start(&world, &[]).exchange(&lines);
    let replies = |id: u64| said.iter().filter(move |reply| reply["id"] == id).collect::<Vec<_>>();
    assert_eq!(replies(2)[0]["result"]["isError"], false, "{said:?}");
    assert_eq!(replies(3)[0]["error"]["code"], -32_600, "a message that is too long is refused: {said:?}");
    assert_eq!(said.iter().filter(|reply| reply.get("id") == Some(&Value::Null)).count(), 2, "{said:?}");
    assert_eq!(replies(4).len(), 1, "what came before did not end the server: {said:?}");
    assert!(said.iter().all(|reply| reply["jsonrpc"] == "2.0"));
    assert!(log.contains("tool called") && log.contains("tool=\"search\"") && log.contains("request=2"), "{log}");
    assert!(!log.contains("zebrafish"), "{log}");
}

#[test]
fn client_that_says_nothing_or_does_not_introduce_itself_does_no_harm() {
    let world = World::indexed_text();
    let (said, _) = Server::start(&world, &[]).exchange(&[]);
    assert!(said.is_empty());
    let list =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"query":"siren"}}}"#;
    let (said, _) = Server::start(&world, &[]).exchange(&[list]);
    assert!(said.iter().all(|reply| reply.get("result").is_none()), "{said:?}");
}

#[test]
fn settings_for_assistants_start_a_server_from_anywhere() {
    let world = World::indexed_text();
    for (assistant, servers) in [("claude", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")] {
        let settings = world.dr(["mcp", "--print-config", assistant]).succeeded().json();
        let server = &settings[servers]["dr"];
        assert_eq!(server["command"], env!("CARGO_BIN_EXE_dr"), "{assistant}");
        let args: Vec<_> = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        assert_eq!(args, ["mcp", "--project", world.path("").display().to_string().trim_end_matches('/')]);
        block_on(async {
            let mut command = world.command(&args);
            let command = command.current_dir("/").stdin(std::process::Stdio::piped());
            let child =
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
            let mut server = Server { child: Running(child) };
            let client = server.connect((), ClientLifecycleMode::Initialize).await;
            assert_eq!(done(&client, "list_collections", json!({})).await["collections"][0]["name"], "kb");
            client.cancel().await.unwrap();
        });
    }
    let settings = world.dr(["mcp", "--print-config", "codex"]).succeeded().stdout;
    assert!(settings.starts_with("[mcp_servers.dr]\ncommand = "), "{settings}");
}
