//! The world outside, through the binary: jobs, the web, what may leave, and what comes in.

/// Answers with evidence of both ends.
mod answers;

/// What becomes of pages that are opened.
mod pages;

/// P2: a job is started once, found again, and called off.
#[cfg(unix)]
mod jobs;

/// P5: what is said inside reaches the models and nobody else.
mod canary;

/// Whom a collection may be shown to.
mod trust;

/// Settings that cannot be used, and what is said of them.
mod settings;

/// Ways out that are not there, or broken.
mod ways;

/// Hostile texts.
mod injections;

/// What comes in is data, whatever it says.
mod hostile;

/// Whatever goes wrong out there, a run ends and pays for nothing twice.
mod faults;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::World;
use crate::web_server::{Kind, WebServer};

/// A question of which the notes know one half.
const QUESTION: &str = "How do we water the greenhouse beds, and how do others water greenhouse beds?";

/// What must not be written down anywhere.
const KEY: &str = "sk-never-written-down";

/// Makes a world with notes about a greenhouse, as text.
fn greenhouse() -> World {
    let world = World::empty();
    world.write_on_day(
        1,
        "kb/watering.md",
        "# Watering\n\nWe water the greenhouse beds with drip lines at six in the morning.\n\n\
         The beds of the greenhouse take forty litres of water a day.\n",
    );
    world.write_on_day(1, "kb/siren.md", "# Siren\n\nThe siren sounds when the boiler of the workshop is too hot.\n");
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    world
}

/// Returns a world whose models are at `server`, and nothing else is set.
fn models_at(world: World, server: &WebServer) -> World {
    let world = world.with_variable("OPENAI_BASE_URL", server.url()).with_variable("OPENAI_API_KEY", KEY);
    world.with_variable("DR_MODEL", "fixture")
}

/// Writes the user's own settings.
fn set(world: &World, settings: &str) {
    fs::create_dir_all(world.home(".config/dr")).unwrap();
    fs::write(world.home(".config/dr/config.toml"), settings).unwrap();
}

/// Returns how many requests of a kind were worked on.
fn count(server: &WebServer, kind: Kind) -> usize {
    server.worked_on().iter().filter(|(known, _)| *known == kind).count()
}

/// Returns the quotes of a report from one side, `internal` or `public`.
fn quotes<'a>(report: &'a Value, label: &str) -> Vec<&'a Value> {
    report["evidence"].as_array().unwrap().iter().filter(|quote| quote["label"] == label).collect()
}

/// Returns the nodes of a report, without the question itself.
fn nodes(report: &Value) -> Vec<&Value> {
    let nodes = report["tree"]["nodes"].as_array().unwrap();
    nodes.iter().filter(|node| node["id"] != report["tree"]["root"]).collect()
}

/// Tells whether a file somewhere in `folder` has these bytes.
fn is_stored(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => is_stored(&entry.path(), bytes),
        kind if kind.is_file() => fs::read(entry.path()).unwrap().windows(bytes.len()).any(|window| window == bytes),
        _ => false,
    })
}
