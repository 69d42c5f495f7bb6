use serde_json::json;

use super::{QUESTION, greenhouse, models_at, set};
use crate::common::World;
use crate::model_server::{ModelServer, Response};
use crate::reader;
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
    let server = Setup::new(reader::say).start();
    let world = models_at(greenhouse(), &server);
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
    let server = Setup::new(only_web).start();
    let world = models_at(greenhouse(), &server);
    let run = world.dr(["ask", "--json", "--quiet", "--no-deep-research", "--mode", "deep", QUESTION]);
    let report = run.json();
    assert_eq!(run.exit, Some(1), "{report:#}");
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("Nothing was searched: none of the sources"), "{limitations}");
    assert!(limitations.contains("no search engine or Deep Research is set up"), "{limitations}");
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
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    let server = Setup::new(reader::say).start();
    let world = models_at(greenhouse(), &server);
    let folder = world.path(".dr");
    set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
    let is_closed = write(folder.join("probe"), "").is_err();
    let run = world.dr(["ask", "--quiet", "--no-deep-research", QUESTION]);
    let offline = world.dr(["ask", "--quiet", "--offline", "What waters the beds?"]);
    set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
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
