use std::collections::BTreeSet;
use std::path::Path;

use dr::kb::index::Index;
use dr::kb::search::{SearchMode, SearchOptions, Searcher, VectorsUnusable};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::common::{World, block_on, keys};

fn paths(world: &World, args: &[&str]) -> Vec<String> {
    let all: Vec<_> = ["search", "--json"].iter().chain(args).collect();
    let json = world.dr(all).succeeded().json();
    json["hits"].as_array().unwrap().iter().map(|hit| hit["path"].as_str().unwrap().to_owned()).collect()
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort();
    paths
}

#[test]
fn hits_are_printed_with_location_headings_and_snippet() {
    let world = World::indexed();
    dr_snapshot!(world.dr(["search", "when are the valves closed at night", "-k", "1"]));
    dr_snapshot!(world.dr(["search", "siren", "--mode", "lexical"]));
    dr_snapshot!(world.dr(["search", "siren", "--mode", "lexical", "--explain", "-k", "1"]));
    dr_snapshot!(world.dr(["search", "nights and mildew", "--explain", "-k", "1"]));
}

#[test]
fn matched_words_are_marked_in_colour() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["search", "mildew", "--mode", "lexical", "--color", "always"]));
}

#[test]
fn json_has_exactly_the_documented_keys() {
    let world = World::indexed();
    let run = world.dr(["search", "lithium cells", "--json", "-k", "3"]).succeeded();
    let json = run.json();
    assert_eq!(keys(&json), ["schema_version", "query", "mode", "support", "elapsed_ms", "hits"].into());
    let hits = json["hits"].as_array().unwrap();
    assert_eq!(hits.len(), 3);
    for hit in hits {
        let expected = "id document_id collection path title heading_path line_start line_end \
                        snippet text score explain";
        assert_eq!(keys(hit), expected.split_whitespace().collect());
        let explain = ["lexical_rank", "lexical_score", "vector_rank", "vector_similarity"];
        assert_eq!(keys(&hit["explain"]), explain.into());
    }
    assert_eq!(json["schema_version"], 1);
    assert!(json["elapsed_ms"].is_number());
    assert_eq!(hits[0]["path"], "decisions/battery.md");
    dr_snapshot!(world.dr(["search", "lithium cells", "--json", "-k", "1"]));
}

#[test]
fn jsonl_has_one_hit_per_line() {
    let world = World::indexed_text();
    let run = world.dr(["search", "siren", "--mode", "lexical", "--jsonl"]).succeeded();
    let hits: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(hits.len() > 1);
    let whole = world.dr(["search", "siren", "--mode", "lexical", "--json"]).succeeded().json();
    assert_eq!(Value::from(hits), whole["hits"]);
}

#[test]
fn search_without_hits_prints_an_object_and_succeeds() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["search", "quokka", "--mode", "lexical"]));
    dr_snapshot!(world.dr(["search", "quokka", "--mode", "lexical", "--json"]));
    dr_snapshot!(world.dr(["search", "quokka", "--mode", "lexical", "--jsonl"]));
}

#[test]
fn unrelated_query_is_reported_as_unsupported() {
    let world = World::indexed();
    dr_snapshot!(world.dr(["search", "parliamentary elections in Portugal", "-k", "1"]));
    let json = world.dr(["search", "parliamentary elections in Portugal", "--json"]).succeeded().json();
    assert_eq!(json["support"], "none");
    let json = world.dr(["search", "when does the siren sound", "--json"]).succeeded().json();
    assert_eq!(json["support"], "strong");
}

#[test]
fn filters_hold_in_every_mode() {
    let world = World::indexed();
    for mode in ["hybrid", "lexical", "vector"] {
        let found = |args: &[&str]| {
            sorted(paths(&world, &[&["water the beds of a greenhouse", "--mode", mode], args].concat()))
        };
        let everything = found(&["-k", "100"]);
        let under =
            |prefix: &str| everything.iter().filter(|path| path.starts_with(prefix)).cloned().collect::<Vec<_>>();
        assert!(!under("guide/").is_empty() && under("guide/").len() < everything.len());
        assert_eq!(found(&["-k", "100", "--path", "guide/*"]), under("guide/"), "{mode}");
        assert_eq!(found(&["-k", "100", "--path", "**/*.md", "--path", "*.txt"]), everything, "{mode}");
        assert_eq!(found(&["-k", "100", "--path", "*.rst"]), [""; 0], "{mode}");
        assert_eq!(
            found(&["--tag", "guide", "--tag", "water"]),
            ["guide/watering.md"; 2][..found(&["--tag", "water"]).len()]
        );
        assert!(
            found(&["--since", "2026-05-20"])
                .iter()
                .all(|path| ["guide/watering.md", "guide/alarms.md"].contains(&path.as_str()))
        );
        assert!(found(&["--since", "2026-05-20"]).contains(&"guide/watering.md".to_owned()), "{mode}");
        assert_eq!(found(&["--since", "2026-06-12"]), [""; 0], "{mode}");
        assert_eq!(found(&["--until", "2026-06-11", "--since", "2026-05-20"]), found(&["--since", "2026-05-20"]));
        let day = ["--since", "2026-05-20", "--until", "2026-05-20"];
        assert_eq!(found(&day), found(&[&day[..], &["--path", "guide/watering.md"]].concat()), "{mode}");
        assert_eq!(found(&["--collection", "kb", "-k", "100"]), everything, "{mode}");
    }
}

#[test]
fn word_counts_as_known_only_where_the_filter_searches() {
    let world = World::indexed_text();
    let told = |args: &[&str]| world.dr([&["search", "when does the siren sound"], args].concat()).stderr;
    let alarms = &paths(&world, &["siren", "--mode", "lexical", "-k", "1"])[0];
    assert!(!told(&["--path", alarms]).contains("siren"));
    for elsewhere in [["--path", "decisions/*"], ["--tag", "water"]] {
        let told = told(&elsewhere);
        assert!(told.contains("siren"), "{told}");
    }
}

#[test]
fn tag_with_a_quote_is_not_parsed_as_a_filter() {
    let world = World::indexed_text();
    assert!(paths(&world, &["siren", "--mode", "lexical", "--tag", "x' OR '1'='1"]).is_empty());
}

#[test]
fn quoted_phrase_is_found_as_written_and_a_near_miss_is_not() {
    let world = World::indexed();
    assert_eq!(paths(&world, &["\"wet leaves at night\""]), ["guide/watering.md"]);
    assert_eq!(paths(&world, &["\"WET LEAVES at night\""]), ["guide/watering.md"]);
    for near in ["\"wet leaf at night\"", "\"leaves wet at night\"", "\"et leaves at night\"", "\"wet leaves at nigh\""]
    {
        assert!(paths(&world, &[near]).is_empty(), "{near}");
    }
}

#[test]
fn identifiers_are_found_exactly_and_first() {
    let world = World::indexed();
    for mode in ["hybrid", "lexical"] {
        let first = |query: &str| paths(&world, &["--mode", mode, "--", query])[0].clone();
        assert_eq!(first("foo_bar"), "reference/settings.md", "{mode}");
        assert_eq!(first("2026.4.10"), "releases/2026.4.10.md", "{mode}");
        assert_eq!(first("2026.4.1"), "releases/2026.4.1.md", "{mode}");
        assert_eq!(first("--no-rerank"), "reference/cli.md", "{mode}");
        assert_eq!(first("what does --no-rerank do"), "reference/cli.md", "{mode}");
        assert_eq!(first("what was mended in 2026.4.10?"), "releases/2026.4.10.md", "{mode}");
    }
    assert_eq!(paths(&world, &["\"2026.4.10\""]), ["releases/2026.4.10.md"]);
}

#[test]
fn invalid_requests_are_usage_errors() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["search", "   "]));
    dr_snapshot!(world.dr(["search", "?!"]));
    dr_snapshot!(world.dr(["search", "siren", "--mode", "magic"]));
    dr_snapshot!(world.dr(["search", "siren", "--path", "docs/[a"]));
}

#[test]
fn search_without_an_index_prints_a_hint() {
    let world = World::empty();
    dr_snapshot!(world.dr(["search", "siren"]));
    assert!(!world.path(".dr").exists());
}

#[test]
fn unknown_collection_is_an_error() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["search", "siren", "--collection", "nope", "--mode", "lexical"]));
}

#[test]
fn lines_of_every_hit_reproduce_its_text_in_the_file() {
    let world = World::indexed_text();
    let index = block_on(Index::open(&world.location())).unwrap();
    let searcher = Searcher::new(index, Err(VectorsUnusable::NoneYet));
    let texts: Vec<_> = world.contents().chunks.into_iter().map(|chunk| chunk.text).collect();
    let words: BTreeSet<_> =
        texts.iter().flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric())).collect();
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let queries = prop::collection::vec(prop::sample::select(words), 1..4);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&queries, |query| {
        let options = SearchOptions { mode: SearchMode::Lexical, ..SearchOptions::default() };
        let found = runtime.block_on(searcher.search(&query.join(" "), &options)).unwrap();
        for hit in found.hits {
            let bytes = std::fs::read(world.path("kb").join(&hit.path)).unwrap();
            let file = String::from_utf8(bytes).unwrap();
            let (first, last) = (hit.line_start as usize, hit.line_end as usize);
            let lines: String = file.split_inclusive('\n').skip(first - 1).take(last - first + 1).collect();
            prop_assert!(lines.contains(&hit.text), "{}:{first}-{last}", hit.path);
            let start = usize::try_from(hit.byte_start).unwrap();
            prop_assert_eq!(&file[start..start + hit.text.len()], &hit.text);
            prop_assert_eq!(file[..start].matches('\n').count() + 1, first);
            prop_assert_eq!(first + hit.text.trim_end_matches('\n').matches('\n').count(), last);
        }
        Ok(())
    });
    outcome.unwrap();
}

/// Returns whether text could control a terminal or hide something.
fn is_tame(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_control() && letter != '\n' || dr::base::line::is_invisible(letter))
}

#[test]
fn output_for_programs_holds_no_character_that_controls_a_terminal() {
    let world = World::of_notes(&[(
        "a.md",
        "# Siren\n\nThe siren \u{9b}31msounds\u{85} at\u{202e} noon\u{2066}, says the sign.\n",
    )]);
    for args in [&["search", "siren", "--jsonl"][..], &["search", "siren", "--json"]] {
        let run = world.dr(args).succeeded();
        assert!(run.json().to_string().contains('\u{9b}'), "the text is whole: {run}");
        assert!(is_tame(&run.stdout), "{run}");
    }
    let asked = world
        .dr(["ask", "--offline", "-q", "--events", "jsonl", "What does the sign say of the siren at noon?"])
        .succeeded();
    assert!(is_tame(&asked.stderr) && is_tame(&asked.stdout), "{asked}");
    let exported = world.dr(["export"]).succeeded();
    assert!(exported.stdout.contains("\\u202e") && is_tame(&exported.stdout), "{exported}");
    for line in exported.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn colours_that_are_asked_for_go_into_a_pipe() {
    let world = World::indexed_text();
    let is_coloured = |args: &[&str]| {
        let run = world.dr(args).succeeded();
        run.stdout.contains("\u{1b}[")
    };
    for command in [&["search", "siren"][..], &["doctor"], &["ask", "--offline", "-q", "When does the siren sound?"]] {
        for (color, expected) in [("always", true), ("auto", false), ("never", false)] {
            let args = [command, &["--color", color]].concat();
            assert_eq!(is_coloured(&args), expected, "{args:?}");
        }
    }
}

#[test]
fn question_in_another_language_than_the_folder_is_named() {
    let world = World::indexed_text();
    let english = world.dr(["search", "how much water do the tomatoes need"]);
    assert!(!english.stderr.contains("seems to be in"), "{english}");
    let german = world.dr(["search", "Wie oft wird im Garten mit water gegossen, und von wem?"]);
    let said = "the question seems to be in German, and what was found in English";
    assert!(german.stderr.contains(said), "{german}");
    world.write("kb/wasser.md", "# Wasser\n\nDer Garten wird von uns mit dem Wasser aus der Tonne gegossen.\n");
    world.dr(["index", "--no-embed", "--quiet"]).succeeded();
    let mixed = world.dr(["search", "Wie oft wird im Garten mit water gegossen, und von wem?"]);
    assert!(mixed.stdout.contains("wasser.md") && !mixed.stderr.contains("seems to be in"), "{mixed}");
}

// The names of its files are invalid on Windows.
#[cfg(unix)]
#[test]
fn csv_has_a_row_a_hit_and_files_has_each_file_once_where_it_can_be_opened() {
    let world = World::of_notes(&[
        ("a/cells, \"new\".md", "# Cells\n\nLithium cells charge cold.\n\n## More\n\nLithium cells rest.\n"),
        ("b.md", "# Packs\n\nOne pack has four lithium cells.\n"),
    ]);
    let csv = world.dr(["search", "lithium cells", "--mode", "lexical", "--format", "csv"]).succeeded().stdout;
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let header = "path line_start line_end score title heading snippet collection id";
    assert_eq!(rows.headers().unwrap().iter().collect::<Vec<_>>().join(" "), header);
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    let of_cells = rows.iter().find(|row| &row[0] == "a/cells, \"new\".md").unwrap();
    assert_eq!((&of_cells[1], &of_cells[4], &of_cells[7]), ("1", "Cells", "kb"));

    let files = world.dr(["search", "lithium cells", "--mode", "lexical", "--format", "files"]).succeeded().stdout;
    assert_eq!(sorted(files.lines().map(str::to_owned).collect()), ["kb/a/cells, \"new\".md", "kb/b.md"]);
    let mut elsewhere = world.command(["search", "pack", "--mode", "lexical", "--format", "files"]);
    elsewhere.current_dir(world.path("kb/a"));
    let inside = world.run_of(elsewhere.output().unwrap()).succeeded().stdout;
    assert!(Path::new(inside.lines().next().unwrap()).is_absolute() && inside.ends_with("/kb/b.md\n"), "{inside}");
}

#[test]
fn csv_has_no_character_that_controls_a_terminal() {
    let world = World::of_notes(&[("siren.md", "# Siren &#27;[2J\n\nThe siren \u{1b}[31m is red.\n")]);
    let csv = world.dr(["search", "siren", "--mode", "lexical", "--format", "csv"]).succeeded().stdout;
    assert!(csv.contains("The siren [31m is red.") && !csv.contains('\u{1b}'), "{csv:?}");
}

#[test]
fn csv_has_no_formula_of_a_note() {
    let world = World::of_notes(&[("calc.md", "# =HYPERLINK(1)\n\n=cmd|calc sounds the siren.\n")]);
    let csv = world.dr(["search", "siren", "--mode", "lexical", "--format", "csv"]).succeeded().stdout;
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let row = rows.records().next().unwrap().unwrap();
    assert_eq!(&row[4], "'=HYPERLINK(1)");
    assert!(row[6].starts_with("'=cmd|calc"), "{csv}");
}

// The names of its files are invalid on Windows.
#[cfg(unix)]
#[test]
fn files_are_printed_to_a_pipe_by_their_true_names() {
    let siren = "# Siren\n\nThe siren is red.\n";
    let world = World::of_notes(&[("new \u{1b}line.md", siren), ("two\nlines.md", siren)]);
    let files = world.dr(["search", "siren", "--mode", "lexical", "--format", "files"]).succeeded();
    assert_eq!(files.stdout, "kb/new \u{1b}line.md\n");
    assert!(files.stderr.contains("its name has a line break: kb/two lines.md"), "{}", files.stderr);
}

#[test]
fn sentence_about_a_folder_is_shown_with_its_first_hit() {
    let world = World::empty();
    world.write("kb/adr/1.md", "# One\n\nThe kiln is fired with gas.\n");
    world.write("kb/adr/2.md", "# Two\n\nThe kiln is fired with wood.\n");
    world.write("kb/log.md", "# Log\n\nThe kiln was fired on Monday.\n");
    world.write(
        "dr.toml",
        "[collections.kb.about]\n\"adr\" = \"Decisions, the last one counts\"\n\"log.md\" = \"Diary\"\n",
    );
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    dr_snapshot!(world.dr(["search", "kiln fired", "--mode", "lexical"]));
    let json = world.dr(["search", "gas kiln", "--mode", "lexical", "--json", "-k", "1"]).succeeded().json();
    assert_eq!(json["hits"][0]["about"], "Decisions, the last one counts");
    let shown = world.dr(["config"]).succeeded().stdout;
    assert!(shown.contains("collections.kb.about.log.md"), "{shown}");
}
