//! Measures `dr serve` under load: searches a second beside open event streams and a run that is being worked on.
//!
//! `cargo bench --bench serve -- FOLDER QUERIES` prints a table. `FOLDER` is indexed before with `dr index`; `QUERIES`
//! has a query a line. The model of the run never replies.

#![expect(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/it/serve/client.rs"]
mod client;

#[path = "../tests/it/model_server.rs"]
mod model_server;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::json;

use client::Page;
use model_server::{ModelServer, Response};

/// Open event streams.
const STREAMS: usize = 50;

/// Time between the starts of two searches.
const EVERY: Duration = Duration::from_millis(50);

/// Searches that are measured.
const SEARCHES: usize = 400;

/// Starts `dr serve` in a folder, with a model.
fn serve(folder: &str, model: &str) -> Page {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dr"));
    command.args(["serve", "--port", "0"]).current_dir(folder);
    command.env("OPENAI_BASE_URL", model).env("OPENAI_API_KEY", "none").env("DR_MODEL", "silent");
    Page::start(command.env("DR_MAX_COST", "inf"))
}

/// Returns the resident memory of a process in megabytes; 0 where the system does not say.
fn memory(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or_default() / 1_024
}

fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(folder), Some(queries)) = (arguments.next(), arguments.next()) else {
        println!("usage: cargo bench --bench serve -- FOLDER QUERIES");
        return;
    };
    let queries = std::fs::read_to_string(&queries).unwrap_or_else(|error| panic!("{queries}: {error}"));
    let queries: Vec<_> = queries.lines().filter(|line| !line.trim().is_empty()).map(encoded).collect();
    assert!(!queries.is_empty(), "the file has no query");
    let model = ModelServer::always(Response::Hang).with_models(200, json!({ "data": [{ "id": "silent" }] }));
    let started = Instant::now();
    let page = serve(&folder, &model.url());
    let listens = started.elapsed();
    page.get("/");
    let shows = started.elapsed();
    page.get(&format!("/api/v1/search?q={}", queries[0]));
    let first = started.elapsed();
    let asked = json!({ "question": { "question": "What is known of this?", "mode": "deep" } });
    let started = page.post("/api/v1/runs", &asked).json();
    let id = started["run_id"].as_str().expect("a run has an id");
    let (path, bearer) = (format!("/api/v1/runs/{id}/events"), page.bearer());
    let open = |_| page.begin("GET", &path, &[("Authorization", bearer.as_str())], b"");
    let streams: Vec<_> = (0..STREAMS).map(open).collect();

    // Searches start at fixed times, whether or not those before have ended: a slow server does not get fewer.
    let begun = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let searches: Vec<_> = (0..SEARCHES)
            .map(|number| {
                let (page, query) = (&page, &queries[number % queries.len()]);
                scope.spawn(move || {
                    let due = EVERY * u32::try_from(number).unwrap_or(u32::MAX);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                    let started = Instant::now();
                    let reply = page.get(&format!("/api/v1/search?q={query}"));
                    assert_eq!(reply.status, 200, "{}", reply.body);
                    started.elapsed()
                })
            })
            .collect();
        searches.into_iter().map(|search| search.join().expect("a search ends")).collect()
    });
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1_000.0;
    println!("{STREAMS} event streams, a run, {} searches a second", 1_000 / EVERY.as_millis());
    println!("start to listening        {:8.1} ms", listens.as_secs_f64() * 1_000.0);
    println!("start to the page         {:8.1} ms", shows.as_secs_f64() * 1_000.0);
    println!("start to the first search {:8.1} ms", first.as_secs_f64() * 1_000.0);
    println!("search p50                {:8.1} ms", at(50));
    println!("search p95                {:8.1} ms", at(95));
    println!("search p99                {:8.1} ms", at(99));
    println!("memory                    {:8} MB", memory(&page.child));
    drop(streams);
}
