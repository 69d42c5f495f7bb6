use serde_json::Value;

use crate::common::World;

/// Returns a world of linked notes in two collections, indexed as text.
pub(crate) fn linked() -> World {
    let world = World::empty();
    for (path, text) in [
        (
            "notes/Garden.md",
            "---\naliases: [Beds]\n---\n# The garden\n\nSee [[Water#The pump|the pump]] and [tools](tools/#saws).\n\
             An [old plan](old%20plan.md), [[Ferreira]], a [script](build.txt), and [the code](../src/lib.md).\n\n\
             ## Paths\n\nThe paths are of gravel.\n",
        ),
        ("notes/sub/water.md", "# Water\n\n## The pump\n\nThe pump of the [[beds]] is a Kestrel.\n\n![[Garden]]\n"),
        ("notes/tools/README.md", "# Tools\n\nSaws and rakes, for [paths](../Garden.md#paths).\n"),
        ("wiki/start.md", "# Start\n\nThe wiki knows [no garden](garden.md). `[[code]]`\n"),
        ("wiki/lonely.md", "# Lonely\n\nNothing leads here.\n"),
        ("notes/.drignore", "build.txt\n"),
        ("notes/build.txt", "make\n"),
    ] {
        world.write(path, text);
    }
    world.dr(["index", "notes", "wiki", "--no-embed", "--quiet"]).succeeded();
    world
}

#[test]
fn links_of_a_note_lead_where_they_say() {
    let world = linked();
    dr_snapshot!(world.dr(["links", "Garden.md"]));
    dr_snapshot!(world.dr(["links", "notes/sub/water.md"]));
    dr_snapshot!(world.dr(["links", "lonely.md"]));
    dr_snapshot!(world.dr(["links", "Garden.md", "--json"]));
    dr_snapshot!(world.dr(["links", "garden.md"]));
}

#[test]
fn broken_links_of_all_collections_are_listed() {
    let world = linked();
    dr_snapshot!(world.dr(["links"]));
    dr_snapshot!(world.dr(["links", "--json"]));
    dr_snapshot!(world.dr(["links", "--collection", "wiki"]));
    dr_snapshot!(world.dr(["links", "--collection", "nowhere"]));
    assert_eq!(world.dr(["links", "--check"]).exit, Some(1));
    assert_eq!(world.dr(["links", "Garden.md", "--check", "--json"]).exit, Some(1));
    assert_eq!(world.dr(["links", "lonely.md", "--check"]).exit, Some(0));
}

#[test]
fn new_note_mends_links_to_it_and_a_removed_one_breaks_them() {
    let world = linked();
    let broken = || {
        let json = world.dr(["links", "--collection", "notes", "--json"]).succeeded().json();
        let written = |link: &Value| link["written"].as_str().unwrap().to_owned();
        json["broken"].as_array().unwrap().iter().map(written).collect::<Vec<_>>()
    };
    assert_eq!(broken(), ["old plan.md", "[[Ferreira]]"]);
    world.write("notes/people/ferreira.md", "# Ferreira\n");
    std::fs::remove_file(world.path("notes/sub/water.md")).unwrap();
    let summary = world.dr(["index", "--no-embed", "--json"]).succeeded().json();
    assert_eq!([&summary["added"], &summary["changed"], &summary["removed"]], [1, 0, 1]);
    assert_eq!(broken(), ["[[Water#The pump]]", "old plan.md"]);
}

#[test]
fn link_out_of_the_collection_is_not_followed() {
    let world = World::empty();
    world.write("kb/a.md", "[one](../secret.md) [two](link/secret.md) [three](/../secret.md) [[../secret]]\n");
    world.write("secret.md", "# Secret\n");
    #[cfg(unix)]
    std::os::unix::fs::symlink(world.path(""), world.path("kb/link")).unwrap();
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let links = world.dr(["links", "a.md", "--json"]).succeeded().json()["links"].clone();
    let states: Vec<_> = links.as_array().unwrap().iter().map(|link| link["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["outside", "missing", "outside", "outside"]);
}

#[test]
fn expanded_passage_has_section_outline_and_linked_notes() {
    let world = linked();
    dr_snapshot!(world.dr(["search", "gravel", "--mode", "lexical", "--expand"]));
    let hits = world.dr(["search", "gravel", "--mode", "lexical", "--expand", "--json"]).succeeded().json();
    let hit = &hits["hits"][0];
    assert_eq!([&hit["outline"][1]["line"], &hit["outline"][1]["text"]], [&Value::from(9), &Value::from("Paths")]);
    assert_eq!(hit["links"][0]["path"], "sub/water.md");
    assert_eq!(hit["backlinks"].as_array().unwrap().len(), 2);
    let id = hit["id"].as_str().unwrap();
    dr_snapshot!(world.dr(["get", id, "--expand"]));
    dr_snapshot!(world.dr(["get", "tools/README.md:3", "--expand"]));
    dr_snapshot!(world.dr(["get", "tools/README.md:3", "--expand", "--json"]));
}

#[test]
fn links_of_the_manual_hold() {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kb");
    let world = World::with_copy_of(&manual);
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let checked = world.dr(["links", "--check"]);
    assert_eq!((checked.exit, checked.stdout.as_str()), (Some(0), ""), "{checked}");
}
