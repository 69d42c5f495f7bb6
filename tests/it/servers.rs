//! Tests of the test servers, through raw connections.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::reader;
use crate::web_server::{Fault, Setup, WebServer};

/// A raw response: head as text and body as bytes.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn connect(server: &WebServer, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    let mut stream = TcpStream::connect(server.origin().trim_start_matches("http://")).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

/// Sends a request and reads the response until the connection closes.
fn ask(server: &WebServer, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Answer> {
    let mut bytes = Vec::new();
    connect(server, method, path, body).read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or(ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    Ok(Answer { head, body: bytes[end + 4..].to_vec() })
}

fn get(server: &WebServer, path: &str) -> Answer {
    ask(server, "GET", path, None).unwrap()
}

fn job_request() -> Value {
    let prompt = "Find out what is published.\nQuestion: what do drip lines cost?";
    json!({ "model": "o3-deep-research", "background": true, "max_tool_calls": 9, "metadata": { "dr_node": "n2" },
            "input": [{ "role": "user", "content": prompt }] })
}

/// Starts a server on which every call has the same fault.
fn faulty(fault: Fault) -> WebServer {
    Setup::new(|_| "said".into()).with_faults(move |_| Some(fault.clone())).start()
}

fn chat() -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "Say: ready" }] })
}

fn ask_chat(server: &WebServer) -> std::io::Result<Answer> {
    ask(server, "POST", "/v1/chat/completions", Some(&chat()))
}

#[test]
fn status_fault_returns_its_status_without_executing_the_call() {
    for (fault, status, said) in [
        (Fault::RateLimited { retry_after: Some(7) }, 429, "Retry-After: 7"),
        (Fault::RateLimited { retry_after: None }, 429, "rate_limit_exceeded"),
        (Fault::ServerError, 500, "server_error"),
        (Fault::BadGateway, 502, "<h1>502 Bad Gateway</h1>"),
    ] {
        let server = faulty(fault.clone());
        let answer = ask_chat(&server).unwrap();
        assert_eq!(answer.status(), status);
        assert!(format!("{}{}", answer.head, answer.text()).contains(said), "{fault:?}: {}", answer.head);
        assert_eq!(answer.head.contains("Retry-After"), said.contains("Retry-After"));
        assert_eq!(server.worked_on().len(), 0);
    }
}

#[test]
fn connection_is_reset_before_or_after_the_work() {
    for (fault, worked_on) in [(Fault::ResetBefore, 0), (Fault::ResetAfter, 1)] {
        let server = faulty(fault);
        assert_eq!(ask_chat(&server).err().unwrap().kind(), ErrorKind::ConnectionReset);
        assert_eq!((server.worked_on().len(), server.count()), (worked_on, 1));
    }
    let server = faulty(Fault::ResetAfter);
    assert!(ask(&server, "POST", "/v1/responses", Some(&job_request())).is_err());
    assert_eq!(server.jobs().len(), 1);
}

#[test]
fn reply_can_be_truncated_invalid_or_have_unknown_items() {
    let promised = |answer: &Answer| {
        let length = answer.head.split("Content-Length: ").nth(1).unwrap();
        length.split("\r\n").next().unwrap().parse::<usize>().unwrap()
    };
    let cut = ask_chat(&faulty(Fault::Truncated)).unwrap();
    assert!(promised(&cut) > cut.body.len() && !cut.body.is_empty());
    let invalid = ask_chat(&faulty(Fault::InvalidJson)).unwrap();
    assert_eq!(promised(&invalid), invalid.body.len());
    assert!(serde_json::from_slice::<Value>(&invalid.body).is_err());

    let server = Setup::new(reader::say).with_polls(0).with_faults(|_| Some(Fault::UnknownItems)).start();
    let job = get(&server, &format!("/v1/responses/{}", start_job(&server))).json();
    assert_eq!(job["output"][0]["type"], "hologram_call");
    let message = job["output"].as_array().unwrap().last().unwrap();
    assert_eq!(message["content"][0]["annotations"][0]["type"], "hologram_citation");
    assert_eq!(get(&server, "/search?q=a&format=json").json()["results"][0]["type"], "hologram_result");
}

fn start_job(server: &WebServer) -> String {
    let started = ask(server, "POST", "/v1/responses", Some(&job_request())).unwrap().json();
    started["id"].as_str().unwrap().to_owned()
}

#[test]
fn reply_can_be_withheld_or_dripped() {
    let server = faulty(Fault::TimeOut);
    let mut stream = connect(&server, "POST", "/v1/chat/completions", Some(&chat()));
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let kind = stream.read(&mut [0]).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind:?}");
    assert_eq!(server.worked_on().len(), 1);

    let pause = Duration::from_millis(1);
    let server = faulty(Fault::Drip { pause });
    let started = Instant::now();
    let answer = ask_chat(&server).unwrap();
    assert!(started.elapsed() >= pause * u32::try_from(answer.body.len()).unwrap());
    assert!(answer.json()["choices"].is_array());
}

#[test]
fn redirect_never_ends() {
    let server = faulty(Fault::RedirectLoop);
    let mut path = "/articles/survey/drip-lines?a=b".to_owned();
    for hop in 1..=30 {
        let answer = get(&server, &path);
        assert_eq!(answer.status(), 302);
        let location = answer.head.split("Location: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert!(location.starts_with("/articles/") && location.ends_with(&format!("&hop={hop}")), "{location}");
        path = location.to_owned();
    }
}

#[test]
fn bomb_is_small_until_decompressed() {
    let answer = get(&faulty(Fault::GzipBomb), "/articles/survey/drip-lines");
    assert!(answer.head.contains("Content-Encoding: gzip") && answer.body.len() < 100_000, "{}", answer.body.len());
    let mut page = Vec::new();
    GzDecoder::new(answer.body.as_slice()).read_to_end(&mut page).unwrap();
    assert!(page.len() > 10_000_000 && page.ends_with(b"</html>\n"));
}

#[test]
fn received_text_is_found_in_any_encoding() {
    let server = Setup::new(reader::say).start();
    get(&server, "/search?q=the+secret+%C3%BC%2541&format=json");
    ask(&server, "POST", "/collect", Some(&json!({ "notes": "another secret" }))).unwrap();
    assert!(server.received().contains("another secret") && !server.received().contains("the secret"));
    assert!(server.received_decoded().contains("the secret üA"));
}
