use std::collections::BTreeSet;

use serde_json::Value;

use super::{ONE_ROUND, QUESTION, at, calls, faulty, outcome};
use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};

const SETTINGS: &str = "[rerank]\nmodel = \"llm\"\n";

/// A word for each topic, so that no passage repeats another.
const SUBJECTS: [&str; 12] =
    ["valves", "pumps", "beds", "lamps", "fans", "pipes", "tanks", "seeds", "soil", "glass", "doors", "bees"];

/// Returns a world with more topics than a worker is shown of one search.
fn world(server: &ModelServer, settings: &str) -> World {
    let world = World::empty();
    for (subject, number) in SUBJECTS.iter().zip(1..) {
        let text = format!("Topic {number} is described here by what is said of the {subject} in house {number}.\n");
        world.write_on_day(1, &format!("kb/{subject}.md"), &text);
    }
    world.dr(["index", "kb", "--quiet"]).succeeded();
    let world = at(world, &server.url());
    world.set(settings);
    world
}

fn is_order(request: &Request) -> bool {
    request.form() == Some("order")
}

/// Starts an endpoint that reacts so to requests for an order.
fn ordering(reaction: impl Fn(&Request) -> Response + Send + Sync + 'static) -> ModelServer {
    faulty(ONE_ROUND, move |request| is_order(request).then(|| reaction(request)))
}

fn twelfth_first(request: &Request) -> Response {
    let reply = request.reply(r#"{"order": [12, 12, 99, 2]}"#, 900, 20);
    reply.with_text_replaced("\"chatcmpl-1\"", &format!("\"chatcmpl-{}\"", request.number))
}

fn refused(_: &Request) -> Response {
    Response::text(400, r#"{"error": {"message": "no order today"}}"#)
}

fn orders(server: &ModelServer) -> Vec<Request> {
    server.requests().into_iter().filter(is_order).collect()
}

/// Returns the texts of the passages with these ids in a prompt, without the line on their place.
fn texts(request: &Request, ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let said = request.said();
    let text = |id: String| {
        let (_, rest) = said.split_once(&format!("<data id=\"{id}\">\n"))?;
        Some(rest.split("\n</data>").next()?.lines().last()?.to_owned())
    };
    ids.into_iter().filter_map(text).collect()
}

#[test]
fn worker_is_shown_the_hits_that_the_model_puts_first() {
    let server = ordering(twelfth_first);
    let world = world(&server, SETTINGS);
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    assert_eq!(report["stop_reason"], "complete", "{report:#}");
    let orders = orders(&server);
    assert!(!orders.is_empty(), "{report:#}");
    let steps: Vec<_> = server.requests().into_iter().filter(|request| request.form() == Some("step")).collect();
    for order in &orders {
        let all = texts(order, (1..=20).map(|number| number.to_string()));
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), SUBJECTS.len(), "{all:?}");
        let mut expected = vec![all[11].clone(), all[1].clone(), all[0].clone()];
        expected.extend_from_slice(&all[2..7]);
        let shown = |step: &Request| texts(step, (1..=12).map(|number| format!("p{number}")));
        assert!(steps.iter().any(|step| shown(step) == expected), "{expected:#?}");
    }
    let calls = calls(&world);
    let reranked: Vec<_> = calls.iter().filter(|call| call["key"].as_str().unwrap().contains("/rerank/")).collect();
    assert_eq!(reranked.len(), orders.len());
    for call in reranked {
        assert_eq!((&call["role"], &call["outcome"]), (&Value::from("summariser"), &Value::from("replied")), "{call}");
    }
}

#[test]
fn order_is_paid_for_once_however_often_the_question_is_asked() {
    let server = ordering(twelfth_first);
    let world = world(&server, SETTINGS);
    let first = outcome(world.dr(["ask", "--json", QUESTION]).succeeded().json());
    let paid = orders(&server).len();
    let again = outcome(world.dr(["ask", "--json", "--fresh", QUESTION]).succeeded().json());
    assert_eq!((world.run_ids().len(), orders(&server).len(), paid > 0), (2, paid, true));
    assert_eq!(again["evidence"], first["evidence"]);
    world.set("");
    let other = outcome(world.dr(["ask", "--json", QUESTION]).succeeded().json());
    assert_ne!(other["evidence"], first["evidence"], "without the setting, that run does not answer");
    assert_eq!(orders(&server).len(), paid);
}

#[test]
fn run_goes_on_in_the_order_of_the_search_if_the_model_gives_none() {
    let plain = ordering(refused);
    let expected = world(&plain, "").dr(["ask", "--json", QUESTION]).succeeded().json();
    assert_eq!(orders(&plain).len(), 0, "off by default");
    for (server, settings, reason) in [
        (ordering(refused), SETTINGS.to_owned(), "no order today"),
        (ordering(|_| Response::Hang), format!("{SETTINGS}timeout_seconds = 1\n"), "timed out waiting for the reply"),
    ] {
        let world = world(&server, &settings);
        let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
        assert_eq!((&report["evidence"], &report["stop_reason"]), (&expected["evidence"], &"complete".into()));
        let notes = report.to_string();
        assert!(notes.contains("hits were not reranked by the language model") && notes.contains(reason), "{report:#}");
        assert_eq!(orders(&server).len(), 3, "four workers search, and a model that fails is left alone");
    }
}

/// Kills a run while its first worker is reporting, resumes it, and asserts that no order was asked for again.
#[cfg(unix)]
#[test]
fn resumed_run_asks_for_no_order_again_whether_it_got_one_or_not() {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::{assert_nothing_stored_was_sent_again, stored};
    use crate::common::kill;

    for reaction in [twelfth_first, refused] {
        let (sender, has_come) = channel();
        let (sender, is_held) = (Mutex::new(sender), AtomicBool::new(false));
        let server = faulty(ONE_ROUND, move |request| match request.form() {
            Some("order") => Some(reaction(request)),
            Some("branch_report") if !is_held.swap(true, Ordering::SeqCst) => {
                let _ = sender.lock().unwrap().send(());
                Some(Response::Hang)
            }
            _ => None,
        });
        let world = world(&server, SETTINGS);
        kill(super::kills::started(&world, &has_come));
        let (before, sent, kept) = (orders(&server), server.count(), stored(&calls(&world)));
        world.set("[rerank]\nbase_url = \"http://127.0.0.1:9\"\n");
        let other = world.dr(["resume"]);
        assert!(other.exit == Some(1) && other.stderr.contains("run was started with another `[rerank]`"), "{other}");
        world.set(SETTINGS);
        let report = world.dr(["resume", "--json"]).succeeded().json();
        assert_eq!(report["stop_reason"], "complete", "{report:#}");
        assert_nothing_stored_was_sent_again(&server, &kept, sent);
        let requests = server.requests();
        let repeated = |order: &&Request| requests.iter().filter(|request| request.json == order.json).count() > 1;
        assert!(!before.is_empty() && !before.iter().any(|order| repeated(&order)), "{} orders", before.len());
    }
}

#[test]
fn search_and_a_question_without_a_model_ask_for_no_order_and_say_so() {
    let server = ordering(twelfth_first);
    let world = world(&server, SETTINGS);
    let note = "llm was not used: only a run with a language model uses it";
    let searched = world.dr(["search", "what is said of topic 3"]).succeeded();
    assert!(searched.stderr.contains(note), "{searched}");
    let asked = world.dr(["ask", "--offline", "--json", "How is topic 3 described?"]);
    assert!(asked.to_string().contains(note), "{asked}");
    assert_eq!(server.count(), 0);
}
