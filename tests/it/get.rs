use serde_json::Value;

use crate::common::World;

fn first_hit(world: &World, query: &str) -> Value {
    world.dr(["search", query, "--mode", "lexical", "--json"]).succeeded().json()["hits"][0].clone()
}

#[test]
fn chunk_section_document_and_lines_are_read_from_the_file() {
    let world = World::indexed_text();
    let hit = first_hit(&world, "mildew");
    let id = hit["id"].as_str().unwrap();
    let chunk = world.dr(["get", id]).succeeded();
    assert_eq!(chunk.stdout.trim_end(), hit["text"].as_str().unwrap().trim_end());
    dr_snapshot!(chunk);
    dr_snapshot!(world.dr(["get", id, "--section"]));
    dr_snapshot!(world.dr(["get", id, "--section", "--json"]));
    let document = world.dr(["get", id, "--document"]).succeeded();
    assert_eq!(document.stdout, world.read("kb/guide/watering.md"));
    assert_eq!(world.dr(["get", "guide/watering.md"]).succeeded().stdout, document.stdout);
    assert_eq!(world.dr(["get", "kb/guide/watering.md"]).succeeded().stdout, document.stdout);
    let by_document_id = world.dr(["get", hit["document_id"].as_str().unwrap()]).succeeded();
    assert_eq!(by_document_id.stdout, document.stdout);
    dr_snapshot!(world.dr(["get", "guide/watering.md:23-24"]));
    dr_snapshot!(world.dr(["get", "guide/watering.md:13", "--json"]));
}

#[test]
fn section_ends_where_the_next_heading_of_its_level_starts() {
    let long = |word: &str| format!("The {word} is described at length. ").repeat(60);
    let text = format!(
        "# Top\n\n## First\n\n{}\n\n### Inside\n\n{}\n\n## Second\n\n{}\n",
        long("apple"),
        long("pear"),
        long("plum")
    );
    let world = World::of_notes(&[("long.md", &text)]);
    let id = first_hit(&world, "apple")["id"].as_str().unwrap().to_owned();
    let section = world.dr(["get", &id, "--section"]).succeeded().stdout;
    assert!(section.contains("apple") && section.contains("pear") && !section.contains("plum"));
    assert_eq!(section.matches("apple").count(), 60);
    assert!(text.contains(section.trim_end()), "a section is a stretch of the file");
}

#[test]
fn lines_keep_their_line_endings() {
    let world = World::indexed_text();
    let lines = world.dr(["get", "windows.md:5-7"]).succeeded();
    assert_eq!(
        lines.stdout,
        "## Serial driver\r\n\r\nThe tool needs the Kestrel driver 3.2 before the board is plugged in.\r\n"
    );
}

#[test]
fn unknown_names_are_errors_with_a_hint() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["get", "0000000000000000"]));
    dr_snapshot!(world.dr(["get", "watering.md"]));
    dr_snapshot!(world.dr(["get", "nowhere.md"]));
    dr_snapshot!(world.dr(["get", "../../etc/passwd"]));
    dr_snapshot!(world.dr(["get", "guide/watering.md:9-3"]));
    dr_snapshot!(world.dr(["get", "guide/watering.md:900-901"]));
    dr_snapshot!(World::empty().dr(["get", "a.md"]));
}

#[test]
fn ambiguous_path_needs_a_collection() {
    let world = World::indexed_text();
    world.write("other/bom.md", "# Another\n");
    world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
    dr_snapshot!(world.dr(["get", "bom.md"]));
    assert_eq!(world.dr(["get", "other/bom.md"]).succeeded().stdout, "# Another\n");
}

#[test]
fn changed_file_is_read_from_the_index_and_reported() {
    let world = World::indexed_text();
    let id = first_hit(&world, "mildew")["id"].as_str().unwrap().to_owned();
    world.write("kb/guide/watering.md", "# Something else\n");
    dr_snapshot!(world.dr(["get", &id]));
    dr_snapshot!(world.dr(["get", "guide/watering.md:1-2"]));
    dr_snapshot!(world.dr(["get", "guide/watering.md"]));
    std::fs::remove_file(world.path("kb/guide/watering.md")).unwrap();
    dr_snapshot!(world.dr(["get", &id, "--section"]));
}

#[test]
fn file_is_passed_into_a_pipe_byte_by_byte() {
    let text =
        "\u{feff}# Bytes\r\n\r\nA siren \u{1b}[31msounds\u{9b}2J at\u{202e} noon.\r\n\r\nNo line feed at the end";
    let world = World::of_notes(&[("bytes.md", text)]);
    for color in ["auto", "always", "never"] {
        let whole = world.dr(["get", "bytes.md", "-q", "--color", color]).succeeded();
        assert_eq!(whole.stdout, text, "{color}");
        assert_eq!(world.dr(["get", "bytes.md:5", "-q"]).succeeded().stdout, "No line feed at the end");
    }
}

#[test]
fn several_passages_are_printed_below_their_places_and_wildcards_name_documents() {
    let world = World::indexed_text();
    let several = world.dr(["get", "guide/watering.md:13", "windows.md:5"]).succeeded();
    let line = world.read("kb/guide/watering.md").lines().nth(12).unwrap().to_owned();
    assert_eq!(
        several.stdout,
        format!("==> guide/watering.md:13-13 <==\n{line}\n==> windows.md:5-5 <==\n## Serial driver\r\n")
    );

    let paths = |args: &[&str]| {
        let found = world.dr(args).succeeded().json();
        let passages = found["passages"].as_array().unwrap().clone();
        passages.iter().map(|passage| passage["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let guide = paths(&["get", "guide/*.md", "--json"]);
    assert!(
        guide.contains(&"guide/watering.md".into()) && guide.iter().all(|path| path.starts_with("guide/")),
        "{guide:?}"
    );
    assert_eq!(
        paths(&["get", "kb/window?.md", "--json"]),
        ["windows.md"],
        "a pattern gives a list whatever it matches"
    );

    let nothing = world.dr(["get", "guide/*.txt"]);
    assert!(nothing.exit == Some(1) && nothing.stderr.contains("no document matches `guide/*.txt`"), "{nothing}");
    let invalid = world.dr(["get", "guide/[.md"]);
    assert!(invalid.exit == Some(2) && invalid.stderr.contains("guide/[.md"), "{invalid}");
    let unknown = world.dr(["get", "windows.md", "gone.md", "--json"]);
    assert!(unknown.exit == Some(1) && unknown.stdout.is_empty(), "{unknown}");
}

#[test]
fn document_whose_name_has_wildcards_is_read_by_its_name() {
    let world =
        World::of_notes(&[("[draft].md", "# Draft\n\nThe kiln is cold.\n"), ("d.md", "# Other\n\nThe kiln is hot.\n")]);
    assert_eq!(world.dr(["get", "[draft].md"]).succeeded().stdout, world.read("kb/[draft].md"));
}
