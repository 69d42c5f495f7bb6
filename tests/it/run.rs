//! Runs of research through the binary, on models behind an endpoint that does as a test says.

/// Reports: cited, in every form, followed up.
mod answers;

/// Plans that are saved, edited, refused, carried out.
mod plans;

/// Runs that are over: listed, shown, printed again, exported, removed.
mod stored;

/// Limits, and runs that go on when they are raised.
mod limits;

/// Endpoints that fail.
mod failures;

/// P2: killed or interrupted at any request, a run goes on and pays for nothing twice.
#[cfg(unix)]
pub(crate) mod kills;

use std::collections::BTreeSet;
use std::fs;

use dr::base::token::CountTokens;
use serde_json::Value;

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::researcher::{Researcher, Words};

const QUESTION: &str = "What is known of the topics?";

/// What must not be written down anywhere.
const KEY: &str = "sk-never-written-down";

/// Files of the knowledge base, one a topic.
const TOPICS: usize = 5;

/// Four nodes, the last of which builds on the others.
const ONE_ROUND: Researcher = Researcher { nodes: 4, more_nodes: 0 };

/// The same, and a node that the judge has added.
const TWO_ROUNDS: Researcher = Researcher { nodes: 4, more_nodes: 1 };

/// Settings under which a small limit is still worth something, and a call costs something.
const SMALL: &str = "[models]\nmax_input_tokens = 12000\nmax_output_tokens = 1000\n\
                     [prices.scripted]\ninput = 1.0\noutput = 4.0\n";

/// Makes a world with a file for each topic, indexed.
fn topics() -> World {
    let world = World::empty();
    for number in 1..=TOPICS {
        let text = format!(
            "Topic {number} is described here in full, as item {number} of many.\n\nIt works as all topics work.\n"
        );
        world.write_on_day(1, &format!("kb/topic-{number}.md"), &text);
    }
    world.dr(["index", "kb", "--quiet"]).succeeded();
    world
}

/// Makes a world of topics whose models are all at `server`.
fn world_at(server: &ModelServer) -> World {
    at(topics(), &server.url())
}

fn at(world: World, address: &str) -> World {
    let world = world.with_variable("OPENAI_BASE_URL", address).with_variable("OPENAI_API_KEY", KEY);
    world.with_variable("DR_MODEL", "scripted")
}

/// Writes the user's own settings.
fn set(world: &World, settings: &str) {
    fs::create_dir_all(world.home(".config/dr")).unwrap();
    fs::write(world.home(".config/dr/config.toml"), settings).unwrap();
}

/// Starts an endpoint that answers as `researcher` does.
fn endpoint(researcher: Researcher) -> ModelServer {
    ModelServer::start(move |request| answer(researcher, request))
}

/// Starts an endpoint that answers as `researcher` does, except where `fault` has something else to say.
fn faulty(researcher: Researcher, fault: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static) -> ModelServer {
    ModelServer::start(move |request| fault(request).unwrap_or_else(|| answer(researcher, request)))
}

/// Answers as `researcher` does; the id of a chat is the number of its request.
fn answer(researcher: Researcher, request: &Request) -> Response {
    let words = request.said();
    let text = match request.form() {
        Some("output") => r#"{"topics": 4}"#.to_owned(),
        form => researcher.say(form, &words),
    };
    let response = request.reply(&text, Words.count(&words) as u64, Words.count(&text) as u64);
    response.with_text_replaced("\"chatcmpl-1\"", &format!("\"chatcmpl-{}\"", request.number))
}

/// Returns the stored runs, newest first.
fn runs(world: &World) -> Vec<String> {
    let listed = world.dr(["runs", "--json"]).succeeded().json();
    listed["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns everything stored of the newest run.
fn export(world: &World) -> Vec<Value> {
    let lines = world.dr(["export"]).succeeded().stdout;
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the calls of the newest run.
fn calls(world: &World) -> Vec<Value> {
    export(world).into_iter().filter(|line| line["kind"] == "call").collect()
}

/// Returns how many calls came to `outcome`.
fn count(calls: &[Value], outcome: &str) -> usize {
    calls.iter().filter(|call| call["outcome"] == outcome).count()
}

/// Returns the numbers of the requests whose replies are stored.
fn stored(calls: &[Value]) -> BTreeSet<usize> {
    let number = |call: &Value| call.pointer("/reply/raw/id")?.as_str()?.strip_prefix("chatcmpl-")?.parse().ok();
    calls.iter().filter_map(number).collect()
}

/// Returns a report as it is whatever became of its run on the way: id, usage and time aside.
fn outcome(mut report: Value) -> Value {
    for changing in ["run_id", "usage", "elapsed_ms"] {
        report.as_object_mut().unwrap().remove(changing).unwrap();
    }
    report
}

/// Returns the report of a run nothing happened to, and how many requests that took.
fn undisturbed(researcher: Researcher, settings: &str) -> (Value, usize) {
    let server = endpoint(researcher);
    let world = world_at(&server);
    set(&world, settings);
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    (outcome(report), server.count())
}

/// Makes sure that of the first `before` requests none whose reply is `stored` was sent again.
fn assert_nothing_stored_was_sent_again(server: &ModelServer, stored: &BTreeSet<usize>, before: usize) {
    let requests = server.requests();
    let (first, later) = requests.split_at(before);
    for request in first.iter().filter(|request| stored.contains(&request.number)) {
        let again = later.iter().find(|later| later.json == request.json);
        assert!(again.is_none(), "request {} was sent again: {:#}", request.number, request.json);
    }
}
