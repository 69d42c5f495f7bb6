use std::fs;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use dr::kb::index::lock_writer;
use serde_json::{Value, json};

use crate::common::{Running, World, lines_of};
use crate::run::kills::send;
use crate::serve::client::Page;

/// Longest wait for a line.
const PATIENCE: Duration = Duration::from_mins(1);

/// A `dr` that watches folders.
struct Watching {
    child: Running,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Watching {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut child = Running(world.spawn(args));
        let (stdout, stderr) = (lines_of(child.stdout.take().unwrap()), lines_of(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    /// Waits for a line of stderr that contains a text, and returns it.
    fn told(&self, wanted: &str) -> String {
        let mut told = String::new();
        loop {
            let Ok(line) = self.stderr.recv_timeout(PATIENCE) else { panic!("no line `{wanted}` in: {told}") };
            if line.contains(wanted) {
                return line;
            }
            told.push_str(&line);
        }
    }

    /// Waits for the next line of stdout.
    fn printed(&self) -> Value {
        serde_json::from_str(&self.stdout.recv_timeout(PATIENCE).expect("a line comes")).unwrap()
    }

    /// Sends a signal, and returns the exit code and the unread lines of stdout.
    fn end(mut self, signal: &str) -> (Option<i32>, Vec<String>) {
        send(signal, &self.child);
        let exit = self.child.wait().unwrap().code();
        (exit, self.stdout.iter().collect())
    }
}

fn three_notes() -> World {
    let world = World::empty();
    for name in ["one", "two", "three"] {
        world.write(&format!("kb/{name}.md"), &format!("# {name}\n\nA note about number {name}.\n"));
    }
    world
}

fn finds(world: &World, query: &str) -> bool {
    let found = world.dr(["search", query, "--mode", "lexical", "--json"]).succeeded().json();
    found["hits"].as_array().is_some_and(|hits| !hits.is_empty())
}

#[test]
fn changes_are_indexed_until_a_signal_ends_it() {
    for (how, signal) in [(&[][..], "INT"), (&["--poll", "1s"], "TERM")] {
        let world = three_notes();
        world.write("kb/.gitignore", "drafts\n");
        let watching = Watching::start(&world, &[&["watch", "kb", "--no-embed", "--json"], how].concat());
        assert_eq!(watching.printed()["added"], 3);
        watching.told("watching `");

        // Ignored, so it is in no line.
        world.write("kb/drafts/draft.md", "# Draft\n");
        world.write("kb/deep/er/new.md", "# New\n\nA paragraph about marmalade.\n");
        let line = watching.printed();
        assert_eq!((&line["schema_version"], &line["added"], &line["unchanged"]), (&json!(1), &json!(1), &json!(3)));
        assert!(finds(&world, "marmalade"));

        // In a folder that did not exist at the beginning.
        world.write_on_day(3, "kb/deep/er/new.md", "# New\n\nA paragraph about quinces.\n");
        assert_eq!(watching.printed()["changed"], 1);
        assert!(finds(&world, "quinces") && !finds(&world, "marmalade"));

        world.write("kb/.gitignore", "drafts\ndeep\n");
        assert_eq!(watching.printed()["removed"], 1);
        assert_eq!(watching.end(signal), (Some(0), vec![]), "{how:?}");
    }
}

#[test]
fn folder_that_disappears_stays_in_the_index_and_is_indexed_when_it_is_back() {
    let world = three_notes();
    let watching = Watching::start(&world, &["watch", "kb", "--no-embed", "--json"]);
    assert_eq!(watching.printed()["added"], 3);
    watching.told("watching `");
    // Moved away as a whole, then removed: a folder that is removed file by file may be indexed in between.
    fs::rename(world.path("kb"), world.path("away")).unwrap();
    watching.told("is gone; the index keeps");
    fs::remove_dir_all(world.path("away")).unwrap();
    assert!(finds(&world, "number two"));

    let again = three_notes();
    again.write("kb/four.md", "# Four\n\nA paragraph about marmalade.\n");
    fs::rename(again.path("kb"), world.path("kb")).unwrap();
    watching.told("is back");
    let line = watching.printed();
    assert_eq!((&line["added"], &line["removed"], &line["unchanged"]), (&json!(1), &json!(0), &json!(3)));
    assert!(finds(&world, "marmalade"));

    // The folder that is watched now is the new one.
    world.write("kb/five.md", "# Five\n\nA paragraph about quinces.\n");
    assert_eq!(watching.printed()["added"], 1);

    // Too few files for a folder: nothing is removed, and the failure is not the end.
    fs::rename(world.path("kb"), world.path("away")).unwrap();
    watching.told("is gone; the index keeps");
    fs::create_dir(world.path("kb")).unwrap();
    watching.told("error: 5 of 5 files of collection `kb` are no longer in");
    assert!(finds(&world, "marmalade"));
    fs::remove_dir(world.path("kb")).unwrap();
    fs::rename(world.path("away"), world.path("kb")).unwrap();
    world.write("kb/six.md", "# Six\n");
    assert_eq!(watching.printed()["added"], 1);
    assert_eq!(watching.end("TERM"), (Some(0), vec![]));
}

#[test]
fn other_writer_is_named_once_and_waited_for() {
    let world = World::indexed_text();
    world.write("kb/new.md", "# New\n\nA paragraph about marmalade.\n");
    let lock = lock_writer(world.location().folder().unwrap()).unwrap();
    let watching = Watching::start(&world, &["watch", "--no-embed", "--json"]);
    let line = watching.told("note: waiting");
    assert!(line.contains(&format!("process {} since", std::process::id())), "{line}");
    drop(lock);
    let next = watching.stderr.recv_timeout(PATIENCE).unwrap();
    assert!(!next.contains("waiting"), "{next}");
    assert_eq!(watching.printed()["added"], 1);
    watching.told("watching `");
    assert_eq!(watching.end("TERM"), (Some(0), vec![]));
}

#[test]
fn page_finds_what_has_changed_since_it_was_opened() {
    let world = World::indexed_text();
    let mut watching = Watching::start(&world, &["serve", "--port", "0", "--watch"]);
    let address = watching.told("listening at ");
    watching.told("watching `");
    world.write("kb/new.md", "# New\n\nA paragraph about marmalade.\n");
    watching.told("indexed: 1 added");
    let (port, token) = address.rsplit_once(':').unwrap().1.split_once("/?token=").unwrap();
    // The page has no process of its own to end.
    let child = std::process::Command::new("true").spawn().unwrap();
    let page = Page { child, port: port.parse().unwrap(), token: token.to_owned() };
    let found = page.get("/api/v1/search?q=marmalade").json();
    assert_eq!(found["hits"][0]["path"], "new.md");
    send("TERM", &watching.child);
    assert_eq!(watching.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_watched_is_refused_as_by_index() {
    let world = World::with_kb();
    dr_snapshot!(world.dr(["watch"]));
    dr_snapshot!(world.dr(["watch", "nowhere"]));
    dr_snapshot!(world.dr(["watch", "kb/bom.md"]));
    dr_snapshot!(world.dr(["watch", "kb", "--collection", "one", "--collection", "two"]));
    dr_snapshot!(world.dr(["watch", "kb", "--poll", "0s"]));
    assert!(!world.path(".dr").exists(), "a refused watch leaves nothing behind");
}
