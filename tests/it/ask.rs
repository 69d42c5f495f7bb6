use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{World, keys};

const QUESTION: &str = "Why did we choose lithium batteries?";

/// Asserts that every quote is found byte for byte in the lines it cites.
pub fn assert_quotes_stand_in_their_files(world: &World, report: &Value) {
    for evidence in report["evidence"].as_array().unwrap() {
        let source = &evidence["source"];
        let path = format!("{}/{}", source["collection"].as_str().unwrap(), source["path"].as_str().unwrap());
        let file = world.read(&path);
        let line = |key: &str| usize::try_from(source[key].as_u64().unwrap()).unwrap();
        let (first, last) = (line("line_start"), line("line_end"));
        assert!(1 <= first && first <= last);
        let lines: String = file.split_inclusive('\n').skip(first - 1).take(last - first + 1).collect();
        let quote = evidence["quote"].as_str().unwrap();
        assert!(!quote.trim().is_empty() && lines.contains(quote), "{path}:{first}-{last} has no `{quote}`");
        assert_eq!(evidence["checked"], true);
    }
}

#[test]
fn answer_is_sentences_with_locations() {
    let world = World::indexed();
    dr_snapshot!(world.dr(["ask", "--offline", QUESTION]));
}

#[test]
fn report_has_the_documented_keys_and_verbatim_quotes() {
    let world = World::indexed();
    let run = world.dr(["ask", "--offline", "--format", "json", QUESTION]).succeeded();
    assert_eq!(run.stderr, "");
    let report = run.json();
    let expected = "schema_version run_id question outcome answer sections findings evidence contradictions \
                    open_questions limitations confidence stop_reason degraded failed_nodes tree \
                    usage elapsed_ms passages";
    assert_eq!(keys(&report), expected.split_whitespace().collect());
    assert_eq!(keys(&report["findings"][0]), ["text", "evidence", "aspect", "is_emphasised"].into());
    let evidence = ["id", "node", "label", "checked", "quote", "score", "source"];
    assert_eq!(keys(&report["evidence"][0]), evidence.into());
    let source =
        ["kind", "collection", "path", "title", "heading_path", "line_start", "line_end", "content_hash", "date"];
    assert_eq!(keys(&report["evidence"][0]["source"]), source.into());
    let node = "id parent question aspects status depends_on optional_dependencies parallelizable priority \
                depth source_hint tools group why round confidence summary";
    assert_eq!(keys(&report["tree"]), ["root", "nodes"].into());
    assert_eq!(keys(&report["tree"]["nodes"][0]), node.split_whitespace().collect());
    assert_eq!(keys(&report["usage"]), ["total", "by_role", "by_node"].into());
    assert_eq!((&report["schema_version"], &report["stop_reason"]), (&1.into(), &"complete".into()));
    assert_eq!(report["evidence"][0]["label"], "internal");
    assert_eq!(report["tree"]["root"], report["tree"]["nodes"][0]["id"]);
    assert_quotes_stand_in_their_files(&world, &report);
    let known: BTreeSet<_> =
        report["evidence"].as_array().unwrap().iter().map(|evidence| &evidence["id"]).map(Value::to_string).collect();
    for finding in report["findings"].as_array().unwrap() {
        let cited = finding["evidence"].as_array().unwrap();
        assert!(!cited.is_empty() && cited.iter().all(|id| known.contains(&id.to_string())));
    }
    assert!(report["answer"].as_str().unwrap().contains("they do not leak and last four years"));
}

#[test]
fn quotes_are_verbatim_whatever_the_file_is_like() {
    let world = World::indexed();
    let questions = [
        ("Which serial driver does the Windows tool need?", "windows.md", "Kestrel driver 3.2"),
        ("How many beds can a greenhouse have?", "bom.md", "sixty-four beds"),
        ("How heavy was the tomato harvest?", "harvest.md", "18 kg"),
        ("How many litres does the well hold?", "field-notes.txt", "900 litres"),
        ("Where is a spare valve?", "broken.md", "drawer seven"),
        ("When are valves closed at night?", "guide/watering.md", "between 22:00 and 05:00"),
        ("What is the moisture threshold for basil?", "guide/watering.md", "41 %"),
        ("What does release 2026.4.10 mend?", "releases/2026.4.10.md", "stuck half open in frost"),
        ("When does the siren sound?", "guide/alarms.md", "dry for forty minutes"),
    ];
    for (question, path, words) in questions {
        let report = world.dr(["ask", "--offline", "--json", question]).succeeded().json();
        assert_quotes_stand_in_their_files(&world, &report);
        let evidence = report["evidence"].as_array().unwrap();
        let has = |evidence: &Value| {
            evidence["source"]["path"] == path && evidence["quote"].as_str().unwrap().contains(words)
        };
        assert!(evidence.iter().any(has), "{question}: {:#}", report["evidence"]);
    }
}

#[test]
fn question_that_names_a_note_is_not_answered_from_another_one() {
    let world = World::empty();
    for (name, day) in [("Zeus", "3 May 2027"), ("Hermes", "9 June 2028")] {
        let text = format!("# {name}\n\n## Launch\n\nThe launch of the satellite is planned for {day}.\n");
        world.write(&format!("kb/{name}.md"), &text);
    }
    world.write("kb/apollo/README.md", "# The relay [![build](b.svg)](b)\n\n## Team\n\nAda and Grace build it.\n");
    world.dr(["index", "kb"]).succeeded();
    let asked = |name: &str| {
        let question = format!("When is the launch of the {name} satellite planned?");
        let report = world.dr(["ask", "--offline", "--json", &question]).json();
        let cited = |evidence: &Value| evidence["source"]["path"].as_str().unwrap().to_owned();
        let cited: BTreeSet<_> = report["evidence"].as_array().unwrap().iter().map(cited).collect();
        (report["outcome"].as_str().unwrap().to_owned(), cited)
    };
    for name in ["Zeus", "Hermes"] {
        assert_eq!(asked(name), ("answered".to_owned(), BTreeSet::from([format!("{name}.md")])));
    }
    // Called by an ordinary word of the question.
    world.write("kb/Planned.md", "# Planned\n\nThe garden gets a fence.\n");
    world.dr(["index", "kb"]).succeeded();
    assert_eq!(asked("Zeus").1, BTreeSet::from(["Zeus.md".to_owned()]));
    let (outcome, cited) = asked("Apollo");
    assert_eq!(outcome, "closest", "{cited:?}");
}

#[test]
fn question_without_support_is_refused() {
    let world = World::indexed();
    let question = "Who won the parliamentary election in Portugal?";
    dr_snapshot!(world.dr(["ask", "--offline", question]));
    let run = world.dr(["ask", "--offline", "--json", question]);
    assert_eq!(run.exit, Some(3));
    let report = run.json();
    assert_eq!(report["stop_reason"], "no_evidence");
    for empty in ["findings", "evidence", "passages"] {
        assert_eq!(report[empty], Value::Array(Vec::new()), "{empty}");
    }
    assert_eq!(report["answer"], "");
    world.set("[collections.kb.about]\n\".\" = \"Notes on a garden\"\n\"adr\" = \"Decisions\"\n");
    let told = world.dr(["ask", "--offline", "--fresh", question]).stdout;
    assert!(told.contains("(searched: 14 files of kb; Notes on a garden)."), "{told}");
}

#[test]
fn report_can_be_written_to_a_file() {
    let world = World::indexed();
    let run = world.dr(["ask", "--offline", QUESTION, "-o", "answer.md"]).succeeded();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    assert_eq!(world.read("answer.md"), world.dr(["ask", "--offline", QUESTION]).succeeded().stdout);
    dr_snapshot!(world.dr(["ask", "--offline", QUESTION, "-o", "nowhere/answer.md"]));
    world.dr(["ask", "--offline", QUESTION, "--collection", "nope", "-o", "left.md"]);
    assert!(!world.path("left.md").exists(), "a command that fails leaves no empty file behind");
}

#[test]
fn kb_flag_indexes_the_folder_and_restricts_the_answer_to_it() {
    let world = World::with_kb();
    world.write("other/lithium.md", "# Lithium batteries\n\nWe chose lithium batteries because the other team did.\n");
    world.dr(["index", "other", "--quiet"]).succeeded();
    let run = world.dr(["ask", "--offline", "--kb", "kb", "--json", QUESTION]).succeeded();
    assert!(run.stderr.contains("15 files to read"), "{run}");
    let report = run.json();
    assert_quotes_stand_in_their_files(&world, &report);
    assert!(report["evidence"].as_array().unwrap().iter().all(|evidence| evidence["source"]["collection"] == "kb"));

    let edited = world.read("kb/decisions/battery.md").replace("four years", "five years");
    world.write("kb/decisions/battery.md", &edited);
    let report = world.dr(["ask", "--offline", "--kb", "kb", "--json", "--quiet", QUESTION]).succeeded().json();
    assert_quotes_stand_in_their_files(&world, &report);
    assert!(report["answer"].as_str().unwrap().contains("five years"), "{report:#}");
}

#[test]
fn fresh_folder_is_indexed_and_answered_in_one_command() {
    dr_snapshot!(World::with_kb().dr(["ask", "--kb", "kb", "--offline", "When does the siren sound?"]));
}

#[test]
fn file_changed_since_indexing_is_reported() {
    let world = World::indexed();
    world.write("kb/decisions/battery.md", "# Gone with the wind\n");
    dr_snapshot!(world.dr(["ask", "--offline", QUESTION]));
    fs::remove_file(world.path("kb/decisions/battery.md")).unwrap();
    let report = world.dr(["ask", "--offline", "--json", QUESTION]).succeeded().json();
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("`decisions/battery.md` has gone since it was indexed"), "{limitations}");
}

#[test]
fn index_that_does_not_match_its_file_gives_no_citation() {
    // The index is edited so that hash, size and time still match the changed file: only reading the file reveals it.
    let world = World::indexed();
    let report = world.dr(["ask", "--offline", "--json", QUESTION]).succeeded().json();
    assert_quotes_stand_in_their_files(&world, &report);
    let edited = world.read("kb/decisions/battery.md").replace("do not leak", "do not reek");
    world.write_on_day(1, "kb/decisions/battery.md", &edited);
    let report = world.dr(["ask", "--offline", "--json", QUESTION]).succeeded().json();
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("`decisions/battery.md` has changed since it was indexed"), "{limitations}");
}

#[test]
fn missing_key_is_reported_in_one_line() {
    let world = World::indexed();
    let online = world.dr(["ask", QUESTION]).succeeded();
    let offline = world.dr(["ask", "--offline", QUESTION]).succeeded();
    assert_eq!(online.stdout, offline.stdout);
    assert_eq!((online.stderr.lines().count(), offline.stderr.as_str()), (1, ""));
    insta::assert_snapshot!(online.stderr);
}

#[test]
fn invalid_questions_are_errors() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["ask", "--offline", " "]));
    dr_snapshot!(world.dr(["ask", "--offline", "why?", "--collection", "nope"]));
    dr_snapshot!(world.dr(["ask", "--offline", "why?", "--kb", "nowhere"]));
    dr_snapshot!(World::empty().dr(["ask", "--offline", "why?"]));
}

#[test]
fn answer_from_text_alone_says_that_vectors_are_missing() {
    let world = World::indexed_text();
    dr_snapshot!(world.dr(["ask", "--offline", "When does the siren sound?"]));
}

#[test]
fn folder_that_cannot_be_created_is_reported_with_the_attempt() {
    let world = World::with_kb();
    world.write(".dr", "a file, where the folder of the index belongs");
    let run = world.dr(["ask", "--offline", "--kb", "kb", QUESTION]);
    let folder = world.path(".dr").display().to_string();
    assert_eq!(run.exit, Some(1), "{run}");
    assert!(run.stderr.starts_with(&format!("error: failed to create `{folder}`: ")), "{run}");
}
