use std::fs;

use serde_json::{Value, json};

use crate::common::{Run, World};
#[cfg(unix)]
use crate::common::{mode, set_mode};
use crate::web_server::{Kind, Setup, WebServer};

const QUESTION: &str = "When are valves closed at night?";

/// Cited by an answer to [`QUESTION`].
const FILE: &str = "kb/guide/watering.md";

/// Returns a world with a note and a JSON report of one answer, made with an index that is gone.
fn documentation() -> World {
    let world = World::indexed();
    world.dr(["ask", "--offline", "--quiet", "--format", "note", "-o", "kb/note.md", QUESTION]).succeeded();
    world.dr(["replay", "--quiet", "--json", "-o", "report.json"]).succeeded();
    fs::remove_dir_all(world.path(".dr")).unwrap();
    world
}

/// Returns the lines that `dr verify` prints, and checks its exit code.
fn verify(world: &World, exit: i32, args: &[&str]) -> Vec<String> {
    let run = world.dr([&["verify", "--offline"], args].concat());
    assert_eq!(run.exit, Some(exit), "{run}");
    run.stdout.lines().map(str::to_owned).collect()
}

fn states(run: &Run) -> Vec<String> {
    let reports = run.json();
    let citations = reports["reports"][0]["citations"].as_array().unwrap().clone();
    citations.iter().map(|citation| citation["state"].as_str().unwrap().to_owned()).collect()
}

/// Returns a JSON report with these citations.
fn report(citations: &[Value]) -> String {
    let evidence: Vec<_> = citations
        .iter()
        .zip(1..)
        .map(|(source, number)| json!({"id": format!("n1e{number}"), "quote": "Lithium cells last.", "source": source}))
        .collect();
    json!({"schema_version": 1, "run_id": null, "evidence": evidence}).to_string()
}

fn file(collection: &str, path: &str) -> Value {
    json!({"kind": "kb", "collection": collection, "path": path, "line_start": 1, "line_end": 1, "content_hash": "ab"})
}

#[test]
fn note_in_a_checkout_without_an_index_passes_until_a_quote_changes_and_update_follows_a_moved_one() {
    let world = documentation();
    let reports = ["kb/note.md", "report.json"];
    let before = reports.map(|report| world.read(report));
    let holds = verify(&world, 0, &reports);
    assert!(holds.len() == 2 && holds[0].starts_with("kb/note.md: ") && !holds[0].contains(','), "{holds:?}");
    assert!(!world.path(".dr").exists(), "a check leaves nothing behind");

    let text = world.read(FILE);
    let (front, body) = text.split_once("# ").unwrap();
    world.write(FILE, &format!("{front}\n\n\n# {body}"));
    let moved = verify(&world, 4, &["kb/note.md"]);
    assert!(moved[0].contains(": moved to guide/watering.md:"), "{moved:?}");
    assert!(moved.last().unwrap().contains(" moved"), "{moved:?}");
    assert_eq!(reports.map(|report| world.read(report)), before, "nothing is written without --update");

    let updated = verify(&world, 0, &["--update", "kb/note.md", "report.json"]);
    assert!(updated.last().unwrap().contains("moved and updated"), "{updated:?}");
    verify(&world, 0, &reports);
    for (before, after) in before.iter().zip(reports.map(|report| world.read(report))) {
        assert_ne!(*before, after);
        let plain = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
        assert_eq!(plain(before), plain(&after), "only numbers differ");
    }
    let printed = world.read("kb/note.md");
    let place = updated[0].split(": ").next().unwrap();
    assert!(printed.contains(&format!("1. `{place}` — ")), "{place} in {printed}");

    world.write(FILE, &world.read(FILE).replace("22:00", "23:00"));
    let changed = verify(&world, 4, &["--update", "kb/note.md"]);
    assert!(changed[0].starts_with("guide/watering.md:") && changed[0].contains(": changed: "), "{changed:?}");
    assert_eq!(world.read("kb/note.md"), printed);

    fs::remove_file(world.path(FILE)).unwrap();
    let gone = verify(&world, 4, &["kb/note.md"]);
    assert!(gone[0].contains(": gone: "), "{gone:?}");
}

#[test]
fn renamed_file_is_found_by_its_contents_with_and_without_an_index_and_the_report_follows() {
    let world = documentation();
    fs::rename(world.path(FILE), world.path("kb/valves.md")).unwrap();
    let json = world.dr(["verify", "--offline", "--json", "report.json"]);
    assert_eq!(json.exit, Some(4), "{json}");
    let citation = &json.json()["reports"][0]["citations"][0];
    assert_eq!((&citation["state"], &citation["now"]["path"]), (&json!("moved"), &json!("valves.md")));
    assert_eq!(citation["now"]["line_start"], citation["source"]["line_start"]);

    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let indexed = verify(&world, 4, &["report.json"]);
    assert!(indexed[0].contains(": moved to valves.md:"), "{indexed:?}");
    verify(&world, 0, &["--update", "report.json", "kb/note.md"]);
    verify(&world, 0, &["report.json", "kb/note.md"]);
    assert!(world.read("kb/note.md").contains("`valves.md:"));
}

#[test]
fn index_that_is_older_than_a_cited_file_is_a_note_and_no_failure() {
    let world = World::indexed();
    world.dr(["ask", "--offline", "--quiet", "--json", "-o", "report.json", QUESTION]).succeeded();
    world.write(FILE, &(world.read(FILE) + "\nMore.\n"));
    let run = world.dr(["verify", "--offline", "report.json"]).succeeded();
    assert!(run.stderr.starts_with("note: the index is older than the files of "), "{run}");
    let json = world.dr(["verify", "--offline", "--json", "report.json"]).json();
    assert_eq!(json["reports"][0]["citations"][0]["index_is_older"], true);
    world.dr(["index", "--quiet"]).succeeded();
    assert_eq!(world.dr(["verify", "--offline", "report.json"]).succeeded().stderr, "");
}

#[test]
fn run_of_this_folder_and_note_of_an_earlier_version_are_checked_and_never_written() {
    let world = World::indexed();
    let report = world.dr(["ask", "--offline", "--json", QUESTION]).succeeded().json();
    let run = report["run_id"].as_str().unwrap();
    let all = report["evidence"].as_array().unwrap().len();
    let checked = verify(&world, 0, &[&run[..6]]);
    assert!(checked[0].starts_with(&format!("{}: {all} of ", &run[..6])), "{checked:?}");
    let old = format!("---\ntitle: Valves\nrun_id: \"{run}\"\ntags: [dr-report]\n---\n\n# Valves\n");
    world.write("old.md", &old);
    verify(&world, 0, &["old.md"]);
    for (args, exit, hint) in [
        (["--update", run], 2, "hint: save its report with `dr replay"),
        (["--update", "old.md"], 1, "hint: write it again with `dr replay"),
        (["--quiet", "missing.json"], 1, "hint: name a report as JSON"),
        (["--quiet", FILE], 1, "hint: write one with `dr replay"),
    ] {
        let refused = world.dr([&["verify"][..], &args].concat());
        assert_eq!(refused.exit, Some(exit), "{refused}");
        assert!(refused.stderr.contains(hint), "{refused}");
    }
    assert_eq!(world.read("old.md"), old);
    let elsewhere = World::empty();
    elsewhere.write("old.md", &old);
    let refused = elsewhere.dr(["verify", "old.md"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert!(refused.stderr.contains("its run is not stored here"), "{refused}");
}

#[test]
fn byte_order_mark_and_line_endings_of_files_and_notes_make_no_difference() {
    let world = documentation();
    for path in [FILE, "kb/note.md"] {
        world.write(path, &format!("\u{feff}{}", world.read(path).replace('\n', "\r\n")));
    }
    verify(&world, 0, &["kb/note.md"]);
    let text = world.read(FILE);
    world.write(FILE, &text.replacen("---\r\n", "---\r\nowner: me\r\n", 1));
    assert_ne!(world.read(FILE), text);
    verify(&world, 0, &["--update", "kb/note.md"]);
    let note = world.read("kb/note.md");
    assert!(note.starts_with("\u{feff}---\r\n") && note.lines().count() * 2 < note.len());
    assert_eq!(note.matches('\n').count(), note.matches("\r\n").count());
    verify(&world, 0, &["kb/note.md"]);
}

#[test]
fn hostile_report_reads_nothing_outside_and_prints_no_control_characters() {
    let world = World::empty();
    world.write("../secret.md", "Lithium cells last.\n");
    world.write("kb/a.md", "Lithium cells last.\n");
    let secret = world.path("../secret.md").canonicalize().unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&secret, world.path("kb/link.md")).unwrap();
    let cited = [
        file("kb", "a.md"),
        file("kb", "../../secret.md"),
        file("..", "secret.md"),
        file("kb/..", "../secret.md"),
        file("kb", secret.to_str().unwrap()),
        file("/", &secret.to_str().unwrap()[1..]),
        file("kb", "link.md"),
        file("kb", "a.md\u{0}"),
        file("kb", "\u{1b}]0;owned\u{7}\u{202e}.md"),
        file("kb", "."),
        json!({"kind": "web", "url": "javascript:alert(1)\u{1b}[2J"}),
    ];
    world.write("report.json", &report(&cited));
    let run = world.dr(["verify", "--offline", "--json", "report.json"]);
    assert_eq!(run.exit, Some(4), "{run}");
    let found = states(&run);
    assert_eq!(found.iter().filter(|state| *state == "unchanged").count(), 1, "{found:?}");
    assert_eq!((found[0].as_str(), found[10].as_str()), ("unchanged", "not_checked"));
    let text = world.dr(["verify", "--offline", "report.json"]);
    for output in [&text, &run] {
        let is_odd = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!output.stdout.contains(is_odd), "{output}");
    }
    let update = world.dr(["verify", "--offline", "--update", "report.json"]);
    assert_eq!((update.exit, world.read("report.json")), (Some(4), report(&cited)));
}

#[test]
fn report_that_is_damaged_huge_or_a_link_out_is_refused() {
    let world = World::empty();
    world.write("kb/a.md", "New.\n\nLithium cells last.\n");
    let cases = [
        ("{}", "not a report as JSON"),
        ("{\"schema_version\": 9, \"evidence\": []}", "has format 9"),
        ("# A page\n", "neither a report as JSON nor a note"),
        ("---\nsources: 7\n---\n", "not the front matter of a `dr` note"),
    ];
    for (text, why) in cases {
        world.write("x", text);
        let refused = world.dr(["verify", "x"]);
        assert_eq!(refused.exit, Some(1), "{refused}");
        assert!(refused.stderr.contains(why) && refused.stdout.is_empty(), "{refused}");
    }
    fs::File::options().write(true).open(world.path("x")).unwrap().set_len(1 << 40).unwrap();
    assert!(world.dr(["verify", "x"]).stderr.contains("longer than 16000 kB"));
    let many = report(&vec![file("kb", "a.md"); 2_001]);
    world.write("many.json", &many);
    assert!(world.dr(["verify", "many.json"]).stderr.contains("more than 2000"));

    world.write("../outside.json", &report(&[file("kb", "a.md")]));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(world.path("../outside.json"), world.path("report.json")).unwrap();
        let before = world.read("../outside.json");
        let refused = world.dr(["verify", "--update", "report.json"]);
        assert!(refused.exit == Some(1) && refused.stderr.contains("symbolic link out of this project"), "{refused}");
        assert_eq!(world.read("../outside.json"), before);
    }
}

#[cfg(unix)]
#[test]
fn updated_report_keeps_its_permissions() {
    let world = World::empty();
    world.write("kb/a.md", "New.\n\nLithium cells last.\n");
    world.write("report.json", &report(&[file("kb", "a.md")]));
    let path = world.path("report.json");
    set_mode(&path, 0o640);
    verify(&world, 0, &["--update", "report.json"]);
    assert_eq!(mode(&path), 0o640);
    assert!(world.read("report.json").contains("\"line_start\":3"));
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn folder_may_be_named_instead_of_the_collection() {
    let world = World::empty();
    world.write("docs/v2/a.md", "Lithium cells last.\n");
    world.write("report.json", &report(&[file("handbook", "a.md")]));
    verify(&world, 4, &["report.json"]);
    verify(&world, 0, &["--kb", "docs/v2", "report.json"]);
    verify(&world, 2, &["--kb", "missing", "report.json"]);
}

/// Lets a world fetch pages of a server.
fn allow(world: &World, server: &WebServer) {
    let origin = server.origin();
    let host = origin.strip_prefix("http://").unwrap();
    world.set(&format!("[web]\nallowed_hosts = [\"{host}\"]\n"));
}

/// Returns a page that has a text.
fn page(text: &str) -> String {
    format!(
        "<html><head><title>T</title></head><body><main><h1>Cells</h1><p>{text} It is a page about cells.</p></main></body></html>"
    )
}

/// Returns a world that may fetch pages of a server, and a report that cites some.
fn citing(server: &WebServer, paths: &[&str]) -> World {
    let world = World::empty();
    let origin = server.origin();
    allow(&world, server);
    let page = |path: &&str| json!({"kind": "web", "url": format!("{origin}{path}"), "title": "T"});
    world.write("report.json", &report(&paths.iter().map(page).collect::<Vec<_>>()));
    world
}

#[test]
fn pages_are_fetched_once_and_only_with_online_and_robots_are_obeyed() {
    let server = Setup::new(|_| String::new())
        .with_page("/same", &page("Lithium cells last."))
        .with_page("/other", &page("Lithium cells leak."))
        .start();
    let world = citing(&server, &["/same", "/other", "/same", "/gone"]);
    let offline = world.dr(["verify", "report.json"]).succeeded();
    assert_eq!(server.count(), 0);
    assert_eq!(
        offline.stdout,
        "report.json: 0 of 4 citations hold, 4 page quotes not checked (`--online` checks them)\n"
    );
    let refused = world.dr(["verify", "--online", "--offline", "report.json"]);
    assert_eq!((refused.exit, server.count()), (Some(2), 0), "{refused}");
    assert!(!world.path(".dr").exists());

    let online = world.dr(["verify", "--online", "--json", "report.json"]);
    assert_eq!(online.exit, Some(4), "{online}");
    assert_eq!(states(&online), ["unchanged", "changed", "unchanged", "gone"]);
    let fetched = server.count();
    assert_eq!(fetched, 4, "robots.txt and three pages");
    let again = world.dr(["verify", "--online", "--json", "report.json"]);
    assert_eq!(states(&again), states(&online));
    assert!(server.count() <= fetched + 2, "pages are cached: {}", server.count());
    let text = world.dr(["verify", "--online", "report.json"]);
    let pages = ["gone", "other", "same"].map(|page| format!("  {}/{page}\n", server.origin())).concat();
    let listed = format!("not recorded, since the run of this report is not stored here:\n{pages}report.json: ");
    assert!(text.stdout.contains(&listed), "{text}");

    let closed = Setup::new(|_| String::new()).with_page("/private/same", &page("Lithium cells last.")).start();
    let world = citing(&closed, &["/private/same"]);
    let run = world.dr(["verify", "--online", "report.json"]).succeeded();
    assert!(run.stdout.contains("not checked: ") && run.stdout.contains("disallows"), "{run}");
    assert!(matches!(closed.worked_on()[..], [(Kind::Robots, _)]));
}

#[test]
fn page_that_is_fetched_again_is_on_record_with_the_run_of_the_report_which_replays_as_before() {
    let server = Setup::new(|_| String::new()).with_page("/same", &page("Lithium cells last.")).start();
    let world = World::indexed();
    allow(&world, &server);
    let run = world.dr(["ask", "--offline", "--json", QUESTION]).succeeded().json()["run_id"].clone();
    let before = world.dr(["replay", "--json"]).succeeded().stdout;
    let url = format!("{}/same", server.origin());
    let source = json!({"kind": "web", "url": url, "title": "T"});
    // The run has no such node, so the page is recorded under the root.
    let evidence = json!([{"id": "n9e1", "quote": "Lithium cells last.", "source": source}]);
    world.write("report.json", &json!({"schema_version": 1, "run_id": run, "evidence": evidence}).to_string());
    let verified = world.dr(["verify", "--online", "report.json"]).succeeded();
    assert!(server.count() > 0 && !verified.stdout.contains("not recorded"), "{verified}");
    let left = world.dr(["show", "--json"]).succeeded().json();
    let row = &left["egress"][0];
    assert_eq!((&row["node"], &row["kind"], &left["egress"][1]), (&json!("n1"), &json!("check"), &Value::Null));
    let listed = world.dr(["show", "--egress"]).succeeded();
    assert!(
        listed.stdout.starts_with("n1 check: ") && listed.stdout.contains("(sent to the page's own site)"),
        "{listed}"
    );
    assert_eq!(world.dr(["replay", "--json"]).succeeded().stdout, before, "its report does not change");
}
