use serde_json::json;

use super::{QUESTION, greenhouse, greenhouse_at, models_at, set};
use crate::common::World;
#[cfg(unix)]
use crate::common::set_mode;
use crate::model_server::{ModelServer, Request, Response};
use crate::reader;
use crate::researcher::nodes;
use crate::web_server::Setup;

const ON_THE_WEB: [&str; 7] = ["ask", "--json", "--quiet", "--source", "web", "--mode", "quick"];

/// Starts a search engine that answers every search the same way.
fn engine(status: u16, reply: &serde_json::Value) -> ModelServer {
    ModelServer::always(Response::json(status, reply))
}

fn with_engine(world: World, engine: &ModelServer) -> World {
    let address = engine.url();
    world.with_variable("SEARXNG_URL", address.trim_end_matches("/v1"))
}

#[test]
fn unavailable_web_is_an_error_before_the_run_starts() {
    let world = greenhouse();
    for (flags, said) in [
        (&["--offline"][..], "error: web cannot be searched: `dr` is offline\n\nhint: omit `--offline`"),
        (
            &[],
            "error: web cannot be searched: no search engine is set up, and no Deep Research\n\nhint: name an engine",
        ),
    ] {
        let run = world.dr(ON_THE_WEB.iter().chain(flags).chain(&[QUESTION]));
        assert_eq!((run.exit, run.stdout.as_str()), (Some(2), ""), "{run}");
        assert!(run.stderr.contains(said), "{run}");
        assert!(!world.path(".dr/state.db").exists(), "nothing is stored");
    }
    let (server, world) = greenhouse_at(Setup::new(reader::say));
    let run = world.dr(ON_THE_WEB.iter().chain(&["--no-deep-research", QUESTION]));
    assert_eq!((run.exit, server.count()), (Some(2), 0), "{run}");
}

#[test]
fn failing_engine_is_a_failure_and_an_empty_one_a_refusal() {
    let models = Setup::new(reader::say).start();
    let ask: Vec<_> = ON_THE_WEB.iter().chain(&["--no-deep-research", QUESTION]).collect();
    for has_model in [false, true] {
        let world = || if has_model { models_at(greenhouse(), &models) } else { greenhouse() };
        let broken = engine(403, &json!({}));
        let run = with_engine(world(), &broken).dr(&ask);
        assert_eq!(run.exit, Some(1), "{run}");
        let report = run.json();
        let limitations = report["limitations"].to_string();
        assert!(limitations.contains("Every node failed.") && limitations.contains("web"), "{report:#}");
        assert!(!limitations.contains("knowledge base"), "{report:#}");
        assert!(!report["failed_nodes"].as_array().unwrap().is_empty() && report["degraded"] == true, "{report:#}");

        let empty = engine(200, &json!({ "results": [] }));
        let run = with_engine(world(), &empty).dr(&ask);
        assert_eq!(run.exit, Some(3), "{run}");
        assert!(empty.count() > 0 && run.json()["failed_nodes"] == json!([]), "{run}");
    }
}

#[test]
fn empty_knowledge_base_is_a_refusal_even_if_the_engine_fails() {
    let broken = engine(403, &json!({}));
    let world = with_engine(greenhouse(), &broken);
    let run = world.dr(["ask", "--json", "--quiet", "--source", "mixed", "--mode", "quick", "What do zeppelins cost?"]);
    assert_eq!(run.exit, Some(3), "{run}");
    assert!(run.json()["limitations"].to_string().contains("source `web` failed"), "the web had no chance: {run}");
}

#[test]
fn nodes_without_a_source_are_lost_if_nothing_else_was_searched() {
    let only_web = |request: &crate::model_server::Request| {
        match request.form() {
        Some("plan") => json!({
            "reasoning": "the web knows",
            "new_nodes": [{ "id": "a", "question": "What do others do?", "aspects": ["a1"], "source_hint": "web", "why": "asked" }],
            "updates": [],
        })
        .to_string(),
        _ => reader::say(request),
    }
    };
    let (_server, world) = greenhouse_at(Setup::new(only_web));
    let run = world.dr(["ask", "--json", "--quiet", "--no-deep-research", "--mode", "deep", QUESTION]);
    let report = run.json();
    assert_eq!(run.exit, Some(1), "{report:#}");
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("Nothing was searched: no source for this question"), "{limitations}");
    assert!(limitations.contains("no search engine is set up, and Deep Research is unavailable"), "{limitations}");
}

#[test]
fn disabled_deep_research_is_reported_with_the_reason() {
    let detail = |settings: &str| {
        let world = World::empty().with_variable("OPENAI_API_KEY", "x");
        set(&world, settings);
        let checkup = world.dr(["doctor", "--json"]).json();
        let check =
            checkup["checks"].as_array().unwrap().iter().find(|check| check["name"] == "deep research").cloned();
        let check = check.unwrap();
        format!("{} {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
    };
    assert_eq!(detail("[deep_research]\nmax_jobs = 0"), "ok turned off: `max_jobs` is 0");
    let unpriced = "[deep_research]\nbase_url = \"https://gpu.example/v1\"\nmodels = [\"mine\"]\n";
    assert!(detail(unpriced).starts_with("note price of `mine` is not known"), "{}", detail(unpriced));
    assert!(detail("[deep_research]\nmax_jobs = 1").starts_with("ok up to 1 job a run, "));
}

/// Root may write anywhere, so the test asserts nothing if run as root.
#[cfg(unix)]
#[test]
fn unwritable_folder_is_an_error_before_a_model_is_called() {
    let (server, world) = greenhouse_at(Setup::new(reader::say));
    let folder = world.path(".dr");
    set_mode(&folder, 0o555);
    let is_closed = std::fs::write(folder.join("probe"), "").is_err();
    let run = world.dr(["ask", "--quiet", "--no-deep-research", QUESTION]);
    let offline = world.dr(["ask", "--quiet", "--offline", "What waters the beds?"]);
    set_mode(&folder, 0o755);
    if is_closed {
        assert_eq!((run.exit, server.count()), (Some(1), 0), "{run}");
        let said = format!(
            "error: folder `{}` is not writable, and a run with a model must be stored there",
            folder.display()
        );
        assert!(run.stderr.starts_with(&said) && run.stderr.contains("hint: give yourself the right"), "{run}");
        assert_ne!(offline.exit, Some(1), "{offline}");
    }
}

#[test]
fn mixed_run_without_a_way_out_says_that_the_web_was_not_asked_and_why() {
    let server = Setup::new(reader::say).start();
    for (world, flags, why) in [
        (greenhouse(), "--offline", "the web was not searched: `dr` is offline"),
        (
            greenhouse(),
            "--no-deep-research",
            "the web was not searched: no search engine is set up, and Deep Research is unavailable",
        ),
        (
            models_at(greenhouse(), &server),
            "--no-deep-research",
            "the web was not searched: no search engine is set up",
        ),
    ] {
        let ask =
            ["ask", "--json", "--quiet", "--source", "mixed", "--mode", "quick", flags, "When does the siren sound?"];
        let report = world.dr(ask).succeeded().json();
        let limitations = report["limitations"].as_array().unwrap();
        let said = limitations.iter().filter(|limitation| limitation.as_str().unwrap().starts_with(why)).count();
        assert_eq!(said, 1, "{why}: {limitations:#?}");
    }
}

#[test]
fn engine_that_fails_three_searches_in_a_row_is_not_asked_again_and_the_report_says_so() {
    let many = |request: &Request| {
        if request.form() != Some("step") {
            return reader::say(request);
        }
        let search = |number: usize| json!({ "tool": "search", "query": format!("greenhouse beds, part {number}") });
        json!({ "thought": "", "actions": (1..=8).map(search).collect::<Vec<_>>(), "done": true }).to_string()
    };
    let models = Setup::new(many).start();
    let broken = engine(403, &json!({}));
    let world = with_engine(models_at(greenhouse(), &models), &broken);
    let run = world.dr(ON_THE_WEB.iter().chain(&["--no-deep-research", QUESTION]));
    assert_eq!((run.exit, broken.count()), (Some(1), 3), "{run}");
    let limitations = run.json()["limitations"].to_string();
    assert!(limitations.contains("skipped after 3 consecutive failures"), "{limitations}");
    assert!(limitations.contains("rejected the search: status 403"), "{limitations}");
    assert!(!limitations.contains("model endpoint"), "{limitations}");
}

#[test]
fn nodes_whose_aspects_differ_in_order_alone_share_one_job() {
    let speak = |request: &Request| {
        let is_later = request.said().starts_with("You continue the plan");
        let node = |id: &str, hint: &str, aspects: [&str; 2], depends_on: &[&str]| {
            json!({
                "id": id, "question": format!("What is known of drip lines, part {id}?"), "aspects": aspects,
                "source_hint": hint, "depends_on": depends_on, "why": "asked",
            })
        };
        let value = match request.form() {
            Some("brief") => {
                json!({ "task": QUESTION, "aspects": ["cost of drip lines", "life of drip lines"], "mode": "deep" })
            }
            Some("plan") if is_later => json!({
                "reasoning": "", "updates": [],
                "new_nodes": [node("one", "web", ["a1", "a2"], &[]), node("other", "web", ["a2", "a1"], &["n2"])],
            }),
            Some("plan") => {
                json!({ "reasoning": "", "updates": [], "new_nodes": [node("inside", "internal", ["a1", "a2"], &[])] })
            }
            Some("verdict") => {
                let found = nodes(&request.said());
                let is_complete = found.len() > 2;
                json!({
                    "is_complete": is_complete, "recommend_more_iterations": !is_complete,
                    "missing_aspects": if is_complete { vec![] } else { vec!["a1", "a2"] },
                    "weak_evidence_areas": [], "overall_confidence": 0.5, "relied_on": found,
                })
            }
            _ => return reader::say(request),
        };
        value.to_string()
    };
    let (server, world) = greenhouse_at(Setup::new(speak).with_polls(0));
    let run = world.dr(["ask", "--quiet", "--mode", "deep", "--max-rounds", "2", QUESTION]);
    assert_eq!(server.jobs().len(), 1, "{run}");
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert_eq!(egress.matches(" job: ").count(), 1, "{egress}");
}
