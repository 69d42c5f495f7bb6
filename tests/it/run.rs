//! Research runs through the binary, on a scripted model endpoint.

/// Reports: citations, formats, follow-up questions.
mod answers;

/// Plans: saved, edited, refused, executed.
mod plans;

/// Finished runs: list, show, replay, export, remove.
mod stored;

/// Limits, and runs resumed with higher ones.
mod limits;

/// Failing endpoints.
mod failures;

/// Answers without the models that are configured.
mod instead;

/// Traces over OTLP: what a collector receives, and what it does not.
pub(crate) mod traces;

/// What earlier runs found.
mod memory;

/// Hits that the model of the run orders.
mod reranked;

/// A question that was asked before.
pub(crate) mod again;

/// P2: a run killed or interrupted at any request resumes without repeating a finished call.
#[cfg(unix)]
pub(crate) mod kills;

use std::collections::BTreeSet;

use dr::base::token::CountTokens;
use serde_json::Value;

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::researcher::{Researcher, Words};

const QUESTION: &str = "What is known of the topics?";

/// A question that the passages answer without a model.
const ABOUT_ONE: &str = "How is topic 3 described?";

/// A key that must not be stored anywhere.
const KEY: &str = "sk-never-written-down";

/// Topics of the knowledge base, one file each.
const TOPICS: usize = 5;

/// Four nodes. The last depends on the others.
const ONE_ROUND: Researcher = Researcher { nodes: 4, more_nodes: 0 };

/// Four nodes and one added by a second round.
const TWO_ROUNDS: Researcher = Researcher { nodes: 4, more_nodes: 1 };

/// Settings with prices and small prompts, so that tests can reach limits of cost and tokens.
const SMALL: &str = "[models]\nmax_input_tokens = 12000\nmax_output_tokens = 1000\n\
                     [prices.scripted]\ninput = 1.0\noutput = 4.0\n";

/// Returns a world with an indexed file per topic.
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

/// Returns a world of topics with `server` as the endpoint of all models.
fn world_at(server: &ModelServer) -> World {
    at(topics(), &server.url())
}

/// Returns a server, and a world of topics whose models are there.
fn topics_at(server: ModelServer) -> (ModelServer, World) {
    let world = world_at(&server);
    (server, world)
}

fn at(world: World, address: &str) -> World {
    let world = world.with_variable("OPENAI_BASE_URL", address).with_variable("OPENAI_API_KEY", KEY);
    world.with_variable("DR_MODEL", "scripted")
}

/// Starts an endpoint that replies with `researcher`.
fn endpoint(researcher: Researcher) -> ModelServer {
    ModelServer::start(move |request| answer(researcher, request))
}

/// Starts an endpoint that replies with `researcher`, unless `fault` returns another reaction.
fn faulty(researcher: Researcher, fault: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static) -> ModelServer {
    ModelServer::start(move |request| fault(request).unwrap_or_else(|| answer(researcher, request)))
}

/// Replies with `researcher`. The id of a reply is the number of its request.
fn answer(researcher: Researcher, request: &Request) -> Response {
    let words = request.said();
    let text = match request.form() {
        Some("output") => r#"{"topics": 4}"#.to_owned(),
        form => researcher.say(form, &words),
    };
    let response = request.reply(&text, Words.count(&words) as u64, Words.count(&text) as u64);
    response.with_text_replaced("\"chatcmpl-1\"", &format!("\"chatcmpl-{}\"", request.number))
}

fn calls(world: &World) -> Vec<Value> {
    world.export(None).into_iter().filter(|line| line["kind"] == "call").collect()
}

fn count(calls: &[Value], outcome: &str) -> usize {
    calls.iter().filter(|call| call["outcome"] == outcome).count()
}

/// Returns the request numbers of all stored replies.
fn stored(calls: &[Value]) -> BTreeSet<usize> {
    let number = |call: &Value| call.pointer("/reply/raw/id")?.as_str()?.strip_prefix("chatcmpl-")?.parse().ok();
    calls.iter().filter_map(number).collect()
}

/// Returns a report without the fields that an interruption may change: id, usage and time.
fn outcome(mut report: Value) -> Value {
    for changing in ["run_id", "usage", "elapsed_ms"] {
        report.as_object_mut().unwrap().remove(changing).unwrap();
    }
    report
}

/// Returns the report of an uninterrupted run and its number of requests.
fn undisturbed(researcher: Researcher, settings: &str) -> (Value, usize) {
    let (server, world) = topics_at(endpoint(researcher));
    world.set(settings);
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    (outcome(report), server.count())
}

/// Asserts that none of the first `before` requests with a `stored` reply was sent again.
fn assert_nothing_stored_was_sent_again(server: &ModelServer, stored: &BTreeSet<usize>, before: usize) {
    let requests = server.requests();
    let (first, later) = requests.split_at(before);
    for request in first.iter().filter(|request| stored.contains(&request.number)) {
        let again = later.iter().find(|later| later.json == request.json);
        assert!(again.is_none(), "request {} was sent again: {:#}", request.number, request.json);
    }
}
