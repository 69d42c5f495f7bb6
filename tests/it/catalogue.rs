//! `dr model`: what there is, and the way of a model to this machine. No machine that runs these tests needs an ONNX Runtime.

use std::fs;

use serde_json::Value;

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::outside::set;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// What git calls `{}`, which every file of this hub is.
const NAME: &str = "9e26dfeeb6e641a33dae4961196235bdb965b21b";

fn hub() -> ModelServer {
    ModelServer::start(|_: &Request| {
        Response::text(200, "{}").with_header("X-Repo-Commit", COMMIT).with_header("ETag", NAME)
    })
}

fn world_at(hub: &ModelServer) -> World {
    World::with_kb().with_variable("HF_ENDPOINT", format!("http://{}", hub.address()))
}

fn entry(world: &World, kind: &str, name: &str) -> Value {
    let list = world.dr(["model", "list", "--json"]).succeeded().json();
    let entries = list[kind].as_array().unwrap();
    entries.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("{list:#}")).clone()
}

#[test]
fn list_says_what_is_used_what_is_here_and_what_is_published() {
    let world = World::indexed_text();
    let builtin = entry(&world, "embedders", "builtin");
    assert_eq!(
        (&builtin["is_used"], &builtin["is_here"], &builtin["dimensions"]),
        (&true.into(), &true.into(), &384.into())
    );
    let small = entry(&world, "embedders", "BGESmallENV15");
    assert_eq!(
        (&small["is_used"], &small["is_here"], &small["licence"]),
        (&false.into(), &false.into(), &"MIT".into())
    );
    assert!(small["ndcg"]["source"].as_str().unwrap().contains("MTEB"), "{small}");
    assert_eq!(entry(&world, "rerankers", "JINARerankerV2BaseMultilingual")["licence"], "CC-BY-NC-4.0");
    let text = world.dr(["model", "list"]).succeeded().stdout;
    let line = text.lines().find(|line| line.contains("builtin")).unwrap();
    assert!(line.starts_with("* builtin ") && line.contains("0.645 scifact"), "{text}");
}

#[test]
fn folder_and_server_that_are_used_are_listed_too() {
    let world = World::indexed_text();
    set(
        &world,
        "embedder = \"endpoint:bge-m3\"\n[embedding]\nbase_url = \"http://localhost:1/v1\"\n[rerank]\nbase_url = \"http://localhost:2\"\n",
    );
    let used = entry(&world, "embedders", "endpoint:bge-m3");
    assert_eq!((&used["is_used"], &used["dimensions"]), (&true.into(), &1024.into()));
    assert_eq!(entry(&world, "rerankers", "http://localhost:2")["is_used"], true);
    assert_eq!(entry(&world, "embedders", "builtin")["is_used"], false);
}

#[test]
fn model_is_downloaded_once_and_not_used_before_it_works() {
    let hub = hub();
    let world = world_at(&hub);
    let run = world.dr(["model", "use", "bge-small-en-v1.5"]);
    assert!(run.exit == Some(2) && run.stderr.contains("did you mean `BGESmallENV15`"), "{run}");
    let run = world.dr(["model", "use", "BGESmallENV15"]);
    assert!(run.exit == Some(1) && run.stderr.contains("no ONNX Runtime found"), "{run}");
    assert!(run.stderr.contains("downloading BGESmallENV15: onnx/model.onnx"), "{run}");
    assert_eq!(hub.count(), 5);
    assert!(!world.path("dr.toml").exists(), "a model that cannot be used is not written");
    assert_eq!(entry(&world, "embedders", "BGESmallENV15")["is_here"], true);
    world.dr(["model", "use", "BGESmallENV15"]);
    assert_eq!(hub.count(), 5);
    assert!(world.home(".local/share/dr/models").is_dir());
}

#[test]
fn nothing_is_downloaded_offline_or_by_a_search() {
    let hub = hub();
    let world = world_at(&hub);
    let run = world.dr(["model", "use", "BGESmallENV15", "--offline"]);
    assert!(run.exit == Some(1) && run.stderr.contains("--from"), "{run}");
    world.dr(["index", "kb", "--quiet"]).succeeded();
    set(&world, "embedder = \"fastembed:BGESmallENV15\"\n");
    for args in [&["search", "valves"][..], &["index", "--offline"], &["index", "--dry-run"], &["doctor"]] {
        world.dr(args);
    }
    assert_eq!(hub.count(), 0);
    let run = world.dr(["index", "--rebuild"]);
    assert!(hub.count() == 5 && run.stderr.contains("downloading BGESmallENV15"), "{run}");
}

#[test]
fn hub_without_the_model_is_said_with_its_answer() {
    let hub = ModelServer::always(Response::text(404, "Entry not found"));
    let run = world_at(&hub).dr(["model", "use", "BGERerankerBase"]);
    assert!(run.exit == Some(1) && run.stderr.contains("status 404"), "{run}");
}

#[test]
fn files_are_taken_from_a_folder_without_a_network() {
    let world = World::with_kb();
    let given = world.path("download");
    fs::create_dir_all(given.join("onnx")).unwrap();
    for file in ["onnx/model.onnx", "tokenizer.json", "config.json", "special_tokens_map.json"] {
        fs::write(given.join(file), "{}").unwrap();
    }
    let run = world.dr(["model", "use", "BGESmallENV15", "--from", "download", "--offline"]);
    assert!(run.exit == Some(1) && run.stderr.contains("no `tokenizer_config.json` in `download`"), "{run}");
    fs::write(given.join("tokenizer_config.json"), "{}").unwrap();
    let run = world.dr(["model", "use", "BGESmallENV15", "--from", "download", "--offline"]);
    assert!(run.stderr.contains("no ONNX Runtime found"), "{run}");
    assert_eq!(entry(&world, "embedders", "BGESmallENV15")["is_here"], true);
}

#[test]
fn setting_is_written_where_it_may_be_and_the_rest_of_the_file_stays() {
    let world = World::indexed();
    world.write("dr.toml", "# ours\nlimit = 5\n\n[collections.kb]\nlocal_only = true\n");
    let run = world.dr(["model", "use", "builtin"]).succeeded();
    assert_eq!(
        world.read("dr.toml"),
        "# ours\nlimit = 5\nembedder = \"builtin\"\n\n[collections.kb]\nlocal_only = true\n"
    );
    assert!(run.stdout.contains("there is nothing to do"), "{run}");
    set(&world, "[embedding]\nbase_url = \"http://localhost:1/v1\"\n");
    let run = world.dr(["model", "use", "endpoint:bge-m3"]).succeeded();
    assert!(run.stdout.contains("for all your folders") && run.stdout.contains("dr.toml sets another"), "{run}");
    let users = fs::read_to_string(world.settings_file()).unwrap();
    assert!(users.starts_with("embedder = \"endpoint:bge-m3\"\n"), "{users}");
}

#[test]
fn other_model_says_what_is_embedded_again_and_search_goes_on_with_the_vectors_there_are() {
    let world = World::indexed();
    set(&world, "[embedding]\nbase_url = \"http://localhost:1/v1\"\n");
    let run = world.dr(["model", "use", "endpoint:bge-m3"]).succeeded();
    assert!(run.stdout.contains("`dr index` embeds ") && run.stdout.contains(" chunks again"), "{run}");
    let found = world.dr(["search", "when are the valves closed at night", "--json"]).succeeded();
    assert_eq!(found.stderr, "");
    assert!(found.json()["hits"][0]["explain"]["vector_rank"].is_number(), "{found}");
}

#[test]
fn hits_come_in_the_usual_order_and_a_note_says_why_if_the_local_reranker_is_missing() {
    let world = World::indexed();
    let plain = world.dr(["search", "valves", "--json"]).succeeded().json();
    set(&world, "[rerank]\nmodel = \"fastembed:BGERerankerBase\"\n[collections.kb]\nlocal_only = true\n");
    let run = world.dr(["search", "valves", "--json", "--offline"]).succeeded();
    assert!(run.stderr.contains("`dr model use BGERerankerBase` downloads it"), "{run}");
    assert_eq!(run.json()["hits"], plain["hits"]);
    set(&world, "[rerank]\nmodel = \"fastembed:BGERerankBase\"\n");
    let run = world.dr(["search", "valves"]);
    assert!(run.exit == Some(2) && run.stderr.contains("did you mean `fastembed:BGERerankerBase`"), "{run}");
}
