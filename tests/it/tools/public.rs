use serde_json::{Value, json};

use super::{Script, tool};
use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::reader;
use crate::researcher::nodes;
use crate::run::traces::{Collector, assert_no_texts};

/// Texts that must not leave.
const SECRETS: [&str; 2] = ["CANARY-7f3a9c", "the board agreed to buy the mill next spring"];

const QUESTION: &str = "What is known of project Heron, and how do others run such projects?";

/// What the public server says of others.
const WIKI: &str = "How others run such projects: they meet every week.";

/// Replies as a model that calls every tool it is shown with everything it has read.
fn reply(request: &Request) -> Response {
    let words = request.said();
    let text = match request.form() {
        Some("brief") => {
            json!({ "task": QUESTION, "aspects": ["what is known of project Heron", "how others run such projects"], "mode": "deep" })
                .to_string()
        }
        Some("plan") => json!({
            "reasoning": "both", "updates": [],
            "new_nodes": [{
                "id": "s1", "question": QUESTION, "aspects": ["a1", "a2"], "depends_on": [],
                "optional_dependencies": true, "source_hint": "mixed", "why": "it is asked for",
            }],
        })
        .to_string(),
        Some("verdict") => json!({
            "is_complete": true, "recommend_more_iterations": false, "missing_aspects": [],
            "weak_evidence_areas": [], "overall_confidence": 0.8, "relied_on": nodes(&words),
        })
        .to_string(),
        Some("step") => step(request, &words).to_string(),
        _ => reader::say(request),
    };
    request.reply(&text, 100, 100)
}

fn step(request: &Request, words: &str) -> Value {
    let known: Vec<_> = SECRETS.into_iter().filter(|secret| words.contains(secret)).collect();
    let said = format!("projects of others {}", known.join(" "));
    let mut step: Value = serde_json::from_str(&reader::say(request)).unwrap();
    let names = ["tickets.find", "wiki.find"].into_iter().filter(|name| words.contains(&format!("`{name}`:")));
    let call = |name: &str| json!({ "tool": name, "arguments": json!({ "text": said }).to_string() });
    let calls: Vec<_> = names.map(call).collect();
    if !calls.is_empty() && !words.contains("call wiki.find") {
        step["calls"] = json!(calls);
        step["done"] = json!(false);
    }
    if let Some(passage) = words.split("<data id=\"p").skip(1).find(|passage| passage.contains(WIKI)) {
        let id = format!("p{}", passage.split('"').next().unwrap());
        let note = json!({ "tool": "note", "passage": id, "quote": WIKI, "text": WIKI, "aspect": "a2" });
        step["actions"] = json!([note]);
        step["done"] = json!(true);
    }
    step
}

/// A tool that finds something.
fn find() -> String {
    let mut find = tool("find", "Finds what is said.", true);
    find["inputSchema"] = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    json!([find]).to_string()
}

#[test]
fn public_server_gets_nothing_of_the_knowledge_base_and_every_call_is_in_the_egress_log() {
    is_asked_beside("provider = \"fixture:hits.json\"\n", &[]);
}

/// A public server is a way out of its own.
#[test]
fn public_server_is_asked_without_a_search_engine() {
    for source in ["mixed", "web"] {
        let said = is_asked_beside("", &["--source", source, "--no-deep-research"]);
        assert!(said.contains("the web was not searched: no search engine is set up"), "{said}");
        assert!(!said.contains("query: "), "no query is sent: {said}");
    }
}

/// Asks with an internal and a public server, and returns the report and the egress log.
fn is_asked_beside(engine: &str, args: &[&str]) -> String {
    let models = ModelServer::start(reply);
    let world = World::of_notes(&[(
        "heron.md",
        &format!("# Heron\n\nThe code name of project Heron is {}.\n\nFor project Heron {}.\n", SECRETS[0], SECRETS[1]),
    )]);
    let world = world.with_variable("OPENAI_BASE_URL", models.url()).with_variable("OPENAI_API_KEY", "sk-test-key");
    let world = world.with_variable("DR_MODEL", "scripted").with_variable("DR_MAX_COST", "inf");
    let (tickets, wiki) = (Script::new(&world, "tickets"), Script::new(&world, "wiki"));
    for script in [&tickets, &wiki] {
        script.write("tools.json", &find());
    }
    tickets.answers("Lunch begins at noon.");
    wiki.answers(WIKI);
    let fixture = world.home("hits.json");
    std::fs::write(&fixture, "{}").unwrap();
    let engine = engine.replace("hits.json", &fixture.display().to_string());
    let server = |name: &str, script: &Script, label: &str| {
        format!("[mcp.{name}]\ncommand = {}\ntools = [\"find\"]\nlabel = \"{label}\"\n", script.command())
    };
    let (inside, outside) = (server("tickets", &tickets, "internal"), server("wiki", &wiki, "public"));
    crate::outside::set(&world, &format!("[web]\n{engine}fetch = false\n{inside}{outside}"));
    let collector = Collector::start();
    let world = world.with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address());
    let run = world.dr([&["ask", "--json", "--yes", QUESTION], args].concat());
    let report = run.json();

    let sent = wiki.read("calls");
    assert!(!wiki.calls().is_empty(), "the public server is asked: {run}");
    for secret in SECRETS {
        assert!(!sent.contains(secret), "{sent}");
    }
    let all = models.received();
    let reads_inside = !args.contains(&"web");
    assert!(SECRETS.iter().all(|secret| all.contains(secret) == reads_inside), "a model was shown the secrets");
    let searched =
        if engine.is_empty() { "by searching public tool servers." } else { "by searching the web (fixture)." };
    for request in models.requests().into_iter().filter(|request| request.form() == Some("step")) {
        let words = request.said();
        let (inside, outside) = (words.contains("`tickets.find`:"), words.contains("`wiki.find`:"));
        assert!(inside != outside, "a worker has tools of one side: {words}");
        assert!(!words.contains("()") && (!outside || words.contains(searched)), "{words}");
        assert!(!outside || SECRETS.iter().all(|secret| !words.contains(secret)), "{words}");
    }
    let quote = super::from_tools(&report).into_iter().find(|quote| quote["source"]["server"] == "wiki");
    let quote = quote.unwrap_or_else(|| panic!("{run}"));
    assert_eq!((&quote["quote"], &quote["label"], &quote["checked"]), (&json!(WIKI), &json!("public"), &json!(true)));
    let spans = collector.spans();
    assert!(spans.iter().any(|span| span.name == "execute_tool wiki.find"), "{spans:#?}");
    assert_no_texts(&spans);
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert!(egress.contains("call: ") && egress.contains("mcp:wiki"), "{egress}");
    assert!(!egress.contains("mcp:tickets"), "an internal server is not outside: {egress}");
    format!("{report:#}\n{egress}")
}
