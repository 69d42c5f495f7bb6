//! The world outside, to play with: models, Deep Research, search engines and web pages on this machine.
//!
//! `cargo run --example fixture-openai [-- --port N]` starts it, says how `dr` is pointed at it, and runs until it is
//! interrupted. Nothing it says is true, and nothing of it costs anything: its models repeat quotes from their prompts, and
//! its pages are made up from the words that were searched for.

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
    println!("Models, background jobs, searches and pages are at {url} until you press Ctrl-C.\n");
    println!("In the folder of an index, in another terminal:\n");
    println!("  export OPENAI_BASE_URL={url} OPENAI_API_KEY=any DR_MODEL=fixture");
    println!("  dr ask --mode deep \"how do we do it, and how do others?\"\n");
    println!("What a web search finds: {origin}/search?q=drip+lines&format=json");
    loop {
        // An interrupt ends the process, and the server with it.
        std::thread::park();
    }
}

/// Says what the reader says, and that no folder settles what others do, so that a mixed question goes out for that.
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

/// Reads the port from the command line, 0 for any; none where it says something else.
fn port(arguments: &[String]) -> Option<u16> {
    match arguments {
        [] => Some(0),
        [flag, number] if flag == "--port" => number.parse().ok(),
        [flag] => flag.strip_prefix("--port=")?.parse().ok(),
        _ => None,
    }
}
