//! Research on the web, through the binary: jobs, pages, egress, untrusted content.

/// Answers with evidence from the knowledge base and the web.
mod answers;

/// Opened pages: digests and quotes.
mod pages;

/// P2: a job is started once, reattached to, and cancelled.
#[cfg(unix)]
mod jobs;

/// P5: internal text is sent to the models only.
mod canary;

/// Which models may see a collection.
mod trust;

/// Invalid settings and their error messages.
mod settings;

/// Missing and failing sources.
mod ways;

/// Hostile texts.
mod injections;

/// Untrusted text is data and never an instruction.
mod hostile;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::World;
use crate::web_server::{Kind, Setup, WebServer};

/// A question that the notes answer in part.
pub(crate) const QUESTION: &str = "How do we water the greenhouse beds, and how do others water greenhouse beds?";

/// A key that must not be stored anywhere.
const KEY: &str = "sk-never-written-down";

/// Returns a world with notes about a greenhouse, indexed as text only.
pub(crate) fn greenhouse() -> World {
    World::of_notes(&[
        (
            "watering.md",
            "# Watering\n\nWe water the greenhouse beds with drip lines at six in the morning.\n\n\
         The beds of the greenhouse take forty litres of water a day.\n",
        ),
        ("siren.md", "# Siren\n\nThe siren sounds when the boiler of the workshop is too hot.\n"),
    ])
}

/// Configures `server` as the endpoint of all models, and allows its pages, which are on this machine.
pub(crate) fn models_at(world: World, server: &WebServer) -> World {
    let host = server.origin().trim_start_matches("http://");
    set(&world, &format!("[web]\nallowed_hosts = [\"{host}\"] {KEPT}\n"));
    let world = world.with_variable("OPENAI_BASE_URL", server.url()).with_variable("OPENAI_API_KEY", KEY);
    world.with_variable("DR_MODEL", "fixture")
}

/// Starts a server, and returns it with a greenhouse whose models are there.
pub(crate) fn greenhouse_at(setup: Setup) -> (WebServer, World) {
    let server = setup.start();
    let world = models_at(greenhouse(), &server);
    (server, world)
}

/// As [`greenhouse_at`], with the server as the search engine too.
pub(crate) fn searching(setup: Setup) -> (WebServer, World) {
    let (server, world) = greenhouse_at(setup);
    let world = world.with_variable("SEARXNG_URL", server.origin());
    (server, world)
}

/// Marks the line of the user settings file that [`set`] keeps.
const KEPT: &str = "# of the test server";

/// Writes the user settings file. Pages of the test server stay allowed, unless `settings` names hosts.
pub(crate) fn set(world: &World, settings: &str) {
    let file = world.settings_file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let before = fs::read_to_string(&file).unwrap_or_default();
    let allowed = before.lines().find(|line| line.ends_with(KEPT) && !settings.contains("allowed_hosts"));
    let settings = match allowed {
        Some(allowed) if settings.contains("[web]\n") => settings.replace("[web]\n", &format!("[web]\n{allowed}\n")),
        Some(allowed) => format!("{settings}\n[web]\n{allowed}\n"),
        None => settings.to_owned(),
    };
    fs::write(file, settings).unwrap();
}

/// Returns the number of executed calls of a kind.
pub(crate) fn count(server: &WebServer, kind: Kind) -> usize {
    server.worked_on().iter().filter(|(known, _)| *known == kind).count()
}

/// Returns the quotes of a report with a label, `internal` or `public`.
fn quotes<'a>(report: &'a Value, label: &str) -> Vec<&'a Value> {
    report["evidence"].as_array().unwrap().iter().filter(|quote| quote["label"] == label).collect()
}

/// Returns the nodes of a report except the root.
fn nodes(report: &Value) -> Vec<&Value> {
    let nodes = report["tree"]["nodes"].as_array().unwrap();
    nodes.iter().filter(|node| node["id"] != report["tree"]["root"]).collect()
}

/// Returns whether any file below `folder` contains these bytes.
fn is_stored(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => is_stored(&entry.path(), bytes),
        kind if kind.is_file() => fs::read(entry.path()).unwrap().windows(bytes.len()).any(|window| window == bytes),
        _ => false,
    })
}
