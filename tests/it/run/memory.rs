use std::fs;

use serde_json::Value;

use super::{ABOUT_ONE, topics};
use crate::common::World;

const ABOUT_TWO: &str = "How is topic 2 described?";

/// Returns the quotes that a query finds.
fn recalled(world: &World, query: &str) -> Vec<Value> {
    let recalled = world.dr(["recall", "--json", query]).succeeded().json();
    assert_eq!((&recalled["schema_version"], &recalled["query"]), (&1.into(), &query.into()));
    recalled["quotes"].as_array().unwrap().clone()
}

/// Asserts that a query finds nothing, and that this is no error.
fn assert_nothing_found(world: &World, query: &str) {
    let run = world.dr(["recall", query]).succeeded();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", "nothing found in earlier runs\n"));
    assert_eq!(recalled(world, query), [Value::Null; 0]);
}

#[test]
fn quote_of_an_earlier_run_is_found_with_its_run_and_marked_once_its_file_has_changed() {
    let world = topics();
    for question in [ABOUT_ONE, ABOUT_TWO] {
        world.dr(["ask", "--offline", "--quiet", question]);
    }
    let [second, first] = world.run_ids().try_into().unwrap();
    let found = recalled(&world, "what is the description of topic 3");
    let best = &found[0];
    assert_eq!((&best["run_id"], &best["question"]), (&first.as_str().into(), &ABOUT_ONE.into()), "{found:#?}");
    assert_eq!((&best["source"]["path"], &best["file"]), (&"topic-3.md".into(), &"unchanged".into()));
    assert!(world.read("kb/topic-3.md").contains(best["quote"].as_str().unwrap()));
    assert!(found.iter().any(|quote| quote["run_id"] == second.as_str()), "{found:#?}");
    let similarity = |quote: &Value| quote["similarity"].as_f64().unwrap();
    assert!(found.windows(2).all(|pair| similarity(&pair[0]) >= similarity(&pair[1])), "best first: {found:#?}");
    assert_eq!(recalled(&world, ABOUT_ONE).len(), found.len());
    let from =
        |source| world.dr(["recall", "--source", source, "what is the description of topic 3"]).succeeded().stdout;
    assert!(from("kb").starts_with("topic-3.md") && from("web").is_empty(), "{}", from("kb"));
    let day = best["asked_on"].as_str().unwrap();
    let shown = |mark: &str| {
        let run = world.dr(["recall", "-n", "1", "what is the description of topic 3"]).succeeded();
        assert!(run.stdout.starts_with("topic-3.md:1-3\n  Topic 3 is described here in full"), "{run}");
        let origin = format!("\n  found by run {first} on {day}: {ABOUT_ONE}\n{mark}");
        assert!(run.stdout.ends_with(&origin), "{run}");
    };
    shown("");
    world.write("kb/topic-3.md", "Topic 3 is described here in full.\n");
    shown("  the file has changed since\n");
    world.dr(["index", "--quiet"]).succeeded();
    shown("  the file has changed since\n");
    fs::remove_file(world.path("kb/topic-3.md")).unwrap();
    shown("  the file is gone\n");
    assert_eq!(recalled(&world, "what is the description of topic 3")[0]["file"], "gone");
}

#[test]
fn quote_that_several_runs_found_is_printed_once() {
    let world = topics();
    world.dr(["ask", "--offline", "--quiet", ABOUT_ONE]);
    let once = recalled(&world, ABOUT_ONE);
    for _ in 0..2 {
        world.dr(["ask", "--offline", "--quiet", ABOUT_ONE]);
    }
    let quotes = |found: &[Value]| found.iter().map(|quote| quote["quote"].clone()).collect::<Vec<_>>();
    assert_eq!(quotes(&recalled(&world, ABOUT_ONE)), quotes(&once));
}

#[test]
fn removed_run_is_forgotten() {
    let world = topics();
    for question in [ABOUT_ONE, ABOUT_TWO] {
        world.dr(["ask", "--offline", "--quiet", question]);
    }
    let [second, first] = world.run_ids().try_into().unwrap();
    let of = |run: &str| recalled(&world, "topic").iter().filter(|quote| quote["run_id"] == run).count();
    assert!(of(&first) > 0 && of(&second) > 0);
    world.dr(["rm", &first]).succeeded();
    assert_eq!(of(&first), 0);
    assert!(of(&second) > 0);
    world.dr(["rm", &second]).succeeded();
    assert_nothing_found(&world, "topic");
}

#[test]
fn nothing_found_is_said_and_is_no_error() {
    let world = topics();
    assert_nothing_found(&world, ABOUT_ONE);
    world.dr(["ask", "--offline", "--quiet", ABOUT_ONE]);
    assert_nothing_found(&world, "parliamentary elections in Portugal");
    fs::remove_dir_all(world.path(".dr/memory")).unwrap();
    assert_nothing_found(&world, ABOUT_ONE);
    let run = world.dr(["recall", "?!"]);
    assert_eq!((run.exit, run.stderr.as_str()), (Some(2), "error: query has no words\n"));
}

#[test]
fn damaged_memory_is_an_error_with_the_command_that_mends_it() {
    let world = topics();
    world.dr(["ask", "--offline", "--quiet", ABOUT_ONE]);
    fs::remove_dir_all(world.path(".dr/memory")).unwrap();
    fs::write(world.path(".dr/memory"), "no folder").unwrap();
    let run = world.dr(["recall", ABOUT_ONE]);
    assert_eq!(run.exit, Some(1), "{run}");
    assert!(run.stderr.contains("research memory") && run.stderr.contains("hint: run `dr doctor --repair`"), "{run}");
    world.dr(["doctor", "--repair"]);
    assert_nothing_found(&world, ABOUT_ONE);
}
