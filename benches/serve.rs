//! Measures `dr serve` under load: searches a second beside open event streams and a run that is being worked on.
//!
//! `cargo bench --bench serve -- FOLDER QUERIES` prints a table. `FOLDER` is indexed before with `dr index`; `QUERIES` has a
//! query a line. The model of the run never replies.

#![expect(clippy::print_stdout, reason = "the table is the point")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Open event streams.
const STREAMS: usize = 50;

/// Time between the starts of two searches.
const EVERY: Duration = Duration::from_millis(50);

/// Searches that are measured.
const SEARCHES: usize = 400;

struct Page {
    child: Child,
    host: String,
    token: String,
}

impl Page {
    fn start(folder: &str, model: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dr"));
        command.args(["serve", "--port", "0"]).current_dir(folder).stderr(Stdio::piped());
        command.env("OPENAI_BASE_URL", model).env("OPENAI_API_KEY", "none").env("DR_MODEL", "silent");
        let mut child = command.env("DR_MAX_COST", "inf").spawn().expect("dr starts");
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("it says where it is");
        let address = line.trim().strip_prefix("listening at http://").unwrap_or_else(|| panic!("{line}"));
        let (host, token) = address.split_once("/?token=").expect("the address has a token");
        Self { child, host: host.to_owned(), token: token.to_owned() }
    }

    fn begin(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).expect("the server listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            self.token,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("the request is sent");
        stream
    }

    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut reply = String::new();
        let _ = self.begin(method, path, body).read_to_string(&mut reply);
        reply
    }

    /// Returns the resident memory in megabytes; 0 where the system does not say.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or_default() / 1_024
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts an endpoint of models that lists one and never replies to a prompt. Returns its address.
fn silent_model() -> String {
    const MODELS: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 26\r\n\r\n\
                            {\"data\":[{\"id\":\"silent\"}]}";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        let mut prompts = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut method = [0; 3];
            if stream.read_exact(&mut method).is_ok() && &method == b"GET" {
                let _ = stream.write_all(MODELS);
            } else {
                prompts.push(stream);
            }
        }
    });
    format!("http://{address}/v1")
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
    let started = Instant::now();
    let page = Page::start(&folder, &silent_model());
    let listens = started.elapsed();
    page.send("GET", "/", "");
    let shows = started.elapsed();
    page.send("GET", &format!("/api/v1/search?q={}", queries[0]), "");
    let first = started.elapsed();
    let run = page.send("POST", "/api/v1/runs", r#"{"question":{"question":"What is known of this?","mode":"deep"}}"#);
    let id =
        run.split("\"run_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_else(|| panic!("{run}"));
    let streams: Vec<_> = (0..STREAMS).map(|_| page.begin("GET", &format!("/api/v1/runs/{id}/events"), "")).collect();

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
                    let reply = page.send("GET", &format!("/api/v1/search?q={query}"), "");
                    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
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
    println!("memory                    {:8} MB", page.memory());
    drop(streams);
}
