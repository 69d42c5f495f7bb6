use std::fs;

use dr::kb::index::lock_writer;
use serde_json::Value;

use crate::common::World;

#[test]
fn healthy_index_has_no_problems() {
    let world = World::indexed();
    fs::remove_file(world.path("kb/latin1.md")).unwrap();
    dr_snapshot!(world.dr(["doctor"]));
    let checkup = world.dr(["doctor", "--json"]).succeeded().json();
    let checks = checkup["checks"].as_array().unwrap();
    let of_this_machine = |check: &&Value| check["name"] == "onnx runtime";
    assert!(checks.iter().filter(|check| !of_this_machine(check)).all(|check| check["status"] == "ok"), "{checks:#?}");
    assert_eq!((&checkup["schema_version"], &checkup["stats"]["chunks"]), (&1.into(), &16.into()));
}

#[test]
fn unindexable_file_is_not_reported_as_outdated() {
    let world = World::indexed();
    let checkup = world.dr(["doctor", "--json"]).succeeded().json();
    let collection = checkup["checks"].as_array().unwrap().iter().find(|check| check["name"] == "collection").unwrap();
    assert_eq!(collection["status"], "ok", "`dr index` has just run and could do no more: {collection:#}");
}

#[test]
fn unfinished_work_is_a_note_with_its_command() {
    let world = World::indexed_text();
    fs::remove_file(world.path("kb/latin1.md")).unwrap();
    world.write("kb/new.md", "# New\n");
    world.write("kb/bom.md", "# Changed, and longer than it was: nobody numbers beds any more.\n");
    fs::remove_file(world.path("kb/field-notes.txt")).unwrap();
    let checkup = world.dr(["doctor", "--json"]).succeeded().json();
    let checks = checkup["checks"].as_array().unwrap();
    let collection = checks.iter().find(|check| check["name"] == "collection").unwrap();
    let detail = collection["detail"].as_str().unwrap();
    assert!(detail.contains("3 to bring up to date"), "one is new, one changed, one gone: {detail}");
    let _lock = lock_writer(world.location().folder().unwrap()).unwrap();
    dr_snapshot!(world.dr(["doctor"]));
}

#[test]
fn missing_folder_is_a_problem() {
    let world = World::indexed_text();
    fs::rename(world.path("kb"), world.path("moved")).unwrap();
    dr_snapshot!(world.dr(["doctor"]));
    let run = world.dr(["doctor", "--json"]);
    assert_eq!(run.exit, Some(1));
    assert!(run.json()["checks"].as_array().unwrap().iter().any(|check| check["status"] == "trouble"));
}

#[test]
fn hint_for_a_missing_folder_repairs_the_index() {
    let world = World::indexed_text();
    world.write("other/a.md", "# Other\n\nA word: tangerine.\n");
    world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
    fs::rename(world.path("kb"), world.path("moved")).unwrap();
    assert!(world.dr(["doctor"]).stdout.contains("remove the collection with `dr index --prune`"));
    world.dr(["index", "--prune", "--no-embed"]).succeeded();
    world.dr(["doctor"]).succeeded();
    let contents = world.contents();
    assert_eq!((contents.documents.len(), contents.collections.len()), (1, 1));
}

#[test]
fn missing_index_is_a_problem_and_is_not_created() {
    let world = World::empty();
    dr_snapshot!(world.dr(["doctor"]));
    assert!(!world.path(".dr").exists(), "doctor changes nothing");
}

#[test]
fn settings_are_shown_with_their_origin() {
    let world = World::indexed_text().with_variable("DR_OFFLINE", "true");
    fs::remove_file(world.path("kb/latin1.md")).unwrap();
    world.set("threads = 1\nlimit = 3\n");
    world.write("dr.toml", "limit = 2\nmode = \"lexical\"\n");
    dr_snapshot!(world.dr(["doctor"]));
    let found = world.dr(["search", "bed", "--json"]).succeeded().json();
    assert_eq!((&found["mode"], found["hits"].as_array().unwrap().len()), (&"lexical".into(), 2));
}

#[test]
fn invalid_settings_are_reported_with_their_location() {
    let world = World::empty();
    world.write("dr.toml", "limti = 3\n");
    dr_snapshot!(world.dr(["search", "siren"]));
    world.write("dr.toml", "limit = \"many\"\n");
    dr_snapshot!(world.dr(["search", "siren"]));
    world.write("dr.toml", "limit = \n");
    dr_snapshot!(world.dr(["search", "siren"]));
    world.write("dr.toml", "index = \"/srv/somebody-elses\"\n");
    dr_snapshot!(world.dr(["search", "siren"]));
    fs::remove_file(world.path("dr.toml")).unwrap();
    let world = world.with_variable("DR_LIMIT", "many");
    dr_snapshot!(world.dr(["search", "siren"]));
}
