use super::{QUESTION, greenhouse, greenhouse_at, models_at, set};
use crate::common::World;
use crate::reader;
use crate::web_server::{Setup, WebServer};

/// Settings with a model on another machine.
const ELSEWHERE: &str = "[models]\nbase_url = \"http://models.example/v1\"\nmodel = \"fixture\"\n";

const LOCAL_ONLY: &str = "[collections.kb]\nlocal_only = true\n";

const ASK: [&str; 7] = ["ask", "--json", "--quiet", "--no-deep-research", "--max-cost", "inf", QUESTION];

fn server() -> WebServer {
    Setup::new(reader::say).start()
}

/// Returns a world that reaches other machines through the proxy `server`, which records the requests.
fn through(server: &WebServer) -> World {
    greenhouse().with_variable("HTTP_PROXY", server.origin()).with_variable("http_proxy", server.origin())
}

#[test]
fn local_only_collection_is_refused_before_anything_is_sent_elsewhere() {
    let server = server();
    let world = through(&server);
    set(&world, ELSEWHERE);
    world.dr(ASK);
    let heard = server.count();
    assert!(heard > 0, "what is sent is heard");

    set(&world, &format!("{ELSEWHERE}{LOCAL_ONLY}"));
    let run = world.dr(ASK);
    assert_eq!((run.exit, run.stdout.as_str(), server.count()), (Some(1), "", heard), "{run}");
    assert_eq!(
        run.stderr,
        "error: collection `kb` is for local models only, and the planner is at `http://models.example/v1`\n\n\
         hint: ask other collections with `--collection`, or set up a model of your own\n"
    );
    let of_project = "[collections.kb]\nlocal_only = true\n";
    set(&world, ELSEWHERE);
    world.write("dr.toml", of_project);
    assert_eq!((world.dr(ASK).exit, server.count()), (Some(1), heard), "a project may close what is its own");
}

#[test]
fn other_collections_of_the_same_index_are_allowed() {
    let server = server();
    let world = through(&server);
    world.write_on_day(1, "other/beds.md", "# Beds\n\nThe beds are raised.\n");
    world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
    set(&world, &format!("{ELSEWHERE}{LOCAL_ONLY}"));
    assert_eq!((world.dr(ASK).exit, server.count()), (Some(1), 0), "all are searched where none is named");
    let run = world.dr(ASK.iter().chain(&["--collection", "other"]));
    assert!(server.count() > 0 && !run.stderr.contains("local models only"), "{run}");
}

#[test]
fn local_only_collection_is_allowed_for_a_loopback_model() {
    let (_server, world) = greenhouse_at(Setup::new(reader::say));
    set(&world, LOCAL_ONLY);
    let report = world.dr(["ask", "--json", "--quiet", "--source", "internal", "--mode", "quick", QUESTION]);
    assert!(!report.succeeded().json()["evidence"].as_array().unwrap().is_empty());
}

#[test]
fn answer_over_a_local_only_collection_is_followed_up_by_local_models_alone_however_long_the_chain() {
    let (here, away) = (server(), server());
    let world = models_at(greenhouse(), &here);
    world.write_on_day(1, "other/beds.md", "# Beds\n\nThe beds are raised.\n");
    world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
    set(&world, LOCAL_ONLY);
    let ask = ["ask", "--quiet", "--source", "internal", "--mode", "quick", "--max-cost", "inf"];
    let of = |more: &[&str]| world.dr(ask.iter().chain(more));
    of(&["--collection", "kb", "How much water do the beds take?"]).succeeded();
    let first = world.run_ids()[0].clone();
    of(&["--collection", "other", "--follow", &first, "Are the beds raised?"]).succeeded();
    let second = world.run_ids()[0].clone();
    assert_ne!(first, second);
    assert!(here.received().contains("forty litres"), "the answer is shown to the local model");

    set(&world, &format!("{ELSEWHERE}{LOCAL_ONLY}"));
    let world = world.with_variable("HTTP_PROXY", away.origin()).with_variable("http_proxy", away.origin());
    let other = ["--collection", "other", "Are the beds raised?"];
    for follow in [&first, &second] {
        let run = world.dr(ask.iter().chain(&["--follow", follow]).chain(&other));
        assert_eq!((run.exit, away.received().as_str()), (Some(1), ""), "{run}");
        assert!(run.stderr.starts_with("error: collection `kb` is for local models only"), "{run}");
    }
    let run = world.dr(["resume", "--add-tokens", "9000", &second]);
    assert_eq!((run.exit, away.received().as_str()), (Some(1), ""), "{run}");
    world.dr(ask.iter().chain(&other));
    assert!(away.count() > 0, "without the earlier answer it is sent");
}
