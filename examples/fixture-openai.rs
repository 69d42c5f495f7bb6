//! A local stand-in for models, Deep Research, search engines and web pages, for trying `dr` without keys and costs.
//!
//! `cargo run --example fixture-openai [-- --port N]` starts a server on loopback, prints how to point `dr` at it, and
//! runs until interrupted. Its output is invented: the models repeat quotes from their prompts, and the pages are
//! generated from the words of the search.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "what it shares with the tests is made for those")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is for a person at a terminal")]

#[path = "../tests/it/model_server.rs"]
mod model_server;

#[path = "../tests/it/researcher.rs"]
mod researcher;

#[path = "../tests/it/reader.rs"]
mod reader;

#[path = "../tests/it/web_server/mod.rs"]
mod web_server;

use std::net::TcpListener;
use std::process::ExitCode;

use model_server::Request;
use serde_json::{Value, json};
use web_server::Setup;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let Some(port) = port(&arguments) else {
        eprintln!("usage: fixture-openai [--port N]");
        return ExitCode::from(2);
    };
    let listener = match TcpListener::bind(("127.0.0.1", port)) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("error: failed to listen on port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let server = Setup::new(say).with_polls(2).on(listener);
    let (url, origin) = (server.url(), server.origin());
    println!("Serving models, background jobs, searches and pages at {url}. Press Ctrl-C to stop.\n");
    println!("In another terminal, in a folder with an index:\n");
    println!("  export OPENAI_BASE_URL={url} OPENAI_API_KEY=any DR_MODEL=fixture");
    println!("  # in ~/.config/dr/config.toml, so that its pages are read:");
    println!("  # [web]");
    println!("  # allowed_hosts = [\"{}\"]", origin.trim_start_matches("http://"));
    println!("  dr ask --mode deep \"how do we do it, and how do others?\"\n");
    println!("Example of a web search: {origin}/search?q=drip+lines&format=json");
    loop {
        // An interrupt ends the process, and the server with it.
        std::thread::park();
    }
}

/// Replies like [`reader::say`], but leaves one question open, so that a mixed node turns to the web.
fn say(request: &Request) -> String {
    let said = reader::say(request);
    match (request.form(), serde_json::from_str::<Value>(&said)) {
        (Some("branch_report"), Ok(mut report)) => {
            report["open_questions"] = json!(["What do others do?"]);
            report.to_string()
        }
        _ => said,
    }
}

/// Parses the port from the command line; 0 selects any free port. Returns `None` for other arguments.
fn port(arguments: &[String]) -> Option<u16> {
    match arguments {
        [] => Some(0),
        [flag, number] if flag == "--port" => number.parse().ok(),
        [flag] => flag.strip_prefix("--port=")?.parse().ok(),
        _ => None,
    }
}
