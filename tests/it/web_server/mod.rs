//! A fixture server on loopback: models, background jobs, search engines and web pages behind one listener.
//!
//! ```text
//! request ─▶ kind of call ─▶ fault, if one is due ─▶ reply ─▶ fault, if one spoils it ─▶ bytes
//! ```
//!
//! Every page is generated from its URL, so that jobs, searches and pages agree on its text, also after the server is
//! restarted on the same port. Also included by the example.

#![allow(dead_code, clippy::unwrap_used, reason = "tests and the example each use a part of it")]

mod fault;
mod jobs;
mod pages;
mod search;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

pub(crate) use fault::Fault;
pub(crate) use jobs::JobRecord;
use pages::Article;

use crate::model_server::{ModelServer, Request, Response};
use crate::researcher::Words;
use dr::base::token::CountTokens;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A model call, in either API.
    Reply,
    StartJob,
    AskJob,
    CancelJob,
    /// Query whether a model exists.
    AskModel,
    /// Search without a key (`SearXNG`).
    SearxNg,
    /// Search with a key (Tavily).
    Tavily,
    Robots,
    /// Anything else.
    Page,
}

/// A request and its number among those of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) kind: Kind,
    /// Number of the call within its kind, from 1.
    pub(crate) number: usize,
    pub(crate) request: &'a Request,
}

type Speak = dyn Fn(&Request) -> String + Send + Sync;

type Hangs = dyn Fn(Kind) + Send + Sync;

type Faults = dyn Fn(&Call<'_>) -> Option<Fault> + Send + Sync;

/// Builder of a server.
pub(crate) struct Setup {
    speak: Box<Speak>,
    faults: Box<Faults>,
    hangs: Box<Hangs>,
    polls: usize,
    pages: BTreeMap<String, String>,
    snippet: String,
}

impl Setup {
    /// Sets the models: `speak` returns the reply text to a request.
    pub(crate) fn new(speak: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self {
            speak: Box::new(speak),
            faults: Box::new(|_| None),
            hangs: Box::new(|_| {}),
            polls: 1,
            pages: BTreeMap::new(),
            snippet: String::new(),
        }
    }

    /// Sets the function that decides the fault of each call.
    pub(crate) fn with_faults(mut self, faults: impl Fn(&Call<'_>) -> Option<Fault> + Send + Sync + 'static) -> Self {
        self.faults = Box::new(faults);
        self
    }

    /// Sets a function that is called when a fault withholds a reply.
    pub(crate) fn with_hangs(mut self, hangs: impl Fn(Kind) + Send + Sync + 'static) -> Self {
        self.hangs = Box::new(hangs);
        self
    }

    /// Sets the number of polls for which a job is still in progress.
    pub(crate) fn with_polls(mut self, polls: usize) -> Self {
        self.polls = polls;
        self
    }

    pub(crate) fn with_page(mut self, path: &str, html: &str) -> Self {
        self.pages.insert(path.to_owned(), html.to_owned());
        self
    }

    /// Adds text to every search engine snippet.
    pub(crate) fn with_snippet(mut self, words: &str) -> Self {
        words.clone_into(&mut self.snippet);
        self
    }

    /// Starts the server on a free port.
    pub(crate) fn start(self) -> WebServer {
        self.on(TcpListener::bind(("127.0.0.1", 0)).unwrap())
    }

    pub(crate) fn on(self, listener: TcpListener) -> WebServer {
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let world = Arc::new(World { setup: self, origin, state: Mutex::default() });
        let asked = Arc::clone(&world);
        WebServer { server: ModelServer::on(listener, move |request| asked.answer(request)), world }
    }
}

/// A running server. Stops when dropped.
pub(crate) struct WebServer {
    server: ModelServer,
    world: Arc<World>,
}

impl WebServer {
    /// Returns the value for `OPENAI_BASE_URL`.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the base URL of search engines and pages, without a trailing slash.
    pub(crate) fn origin(&self) -> &str {
        &self.world.origin
    }

    /// Returns all requests received so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Returns the number of requests received so far.
    pub(crate) fn count(&self) -> usize {
        self.server.count()
    }

    pub(crate) fn received(&self) -> String {
        self.server.received()
    }

    /// Returns the bytes received after decoding `%41` and `+`, repeated for text that was encoded several times.
    pub(crate) fn received_decoded(&self) -> String {
        (0..3).fold(self.received(), |text, _| decoded(&text))
    }

    /// Returns the executed calls, whether or not their replies arrived: those a provider would bill.
    pub(crate) fn worked_on(&self) -> Vec<(Kind, Request)> {
        self.world.state.lock().unwrap().worked_on.clone()
    }

    /// Returns the started jobs, in order.
    pub(crate) fn jobs(&self) -> Vec<JobRecord> {
        self.world.state.lock().unwrap().jobs.clone()
    }
}

#[derive(Default)]
struct State {
    calls: BTreeMap<Kind, usize>,
    worked_on: Vec<(Kind, Request)>,
    jobs: Vec<JobRecord>,
}

struct World {
    setup: Setup,
    origin: String,
    state: Mutex<State>,
}

impl World {
    fn answer(&self, request: &Request) -> Response {
        let (path, query) = parts(&request.path);
        let kind = Kind::of(request, path, &query);
        let number = {
            let mut state = self.state.lock().unwrap();
            let number = state.calls.entry(kind).or_default();
            *number += 1;
            *number
        };
        let fault = (self.setup.faults)(&Call { kind, number, request });
        let job = || path.trim_end_matches("/cancel").rsplit('/').next().unwrap_or_default();
        if fault == Some(Fault::LostJob) && matches!(kind, Kind::AskJob | Kind::CancelJob) {
            self.state.lock().unwrap().lose(job());
        }
        if let Some(response) = fault.as_ref().and_then(|fault| fault.instead(request)) {
            return response;
        }
        let response = match kind {
            Kind::Reply => self.reply(request),
            Kind::StartJob => self.start_job(request, fault.as_ref()),
            Kind::AskJob => self.ask_job(job()),
            Kind::CancelJob => self.cancel_job(job()),
            Kind::AskModel => model(path.trim_start_matches("/models").trim_start_matches('/')),
            Kind::SearxNg => self.with_snippet(search::searxng(&self.origin, &query)),
            Kind::Tavily => self.with_snippet(search::tavily(&self.origin, request)),
            Kind::Robots => text("text/plain", "User-agent: *\nDisallow: /private/\nAllow: /\n"),
            Kind::Page => self.page(path),
        };
        self.state.lock().unwrap().worked_on.push((kind, request.clone()));
        let response = match fault {
            Some(fault) => fault.spoil(response),
            None => response,
        };
        if matches!(response, Response::Hang | Response::Drip { .. }) {
            (self.setup.hangs)(kind);
        }
        response
    }

    fn reply(&self, request: &Request) -> Response {
        let text = (self.setup.speak)(request);
        let count = |text: &str| Words.count(text) as u64;
        let response = request.reply(&text, count(&request.said()), count(&text));
        // A unique id per reply, so that tests can recognise stored replies.
        let number = request.number;
        let response = response.with_text_replaced("\"chatcmpl-1\"", &format!("\"chatcmpl-{number}\""));
        response.with_text_replaced("\"resp_1\"", &format!("\"resp_{number}\""))
    }

    fn with_snippet(&self, response: Response) -> Response {
        let words = Value::from(self.setup.snippet.as_str()).to_string();
        let words = words.trim_matches('"');
        if words.is_empty() {
            response
        } else {
            response.with_text_replaced("\"content\":\"", &format!("\"content\":\"{words} "))
        }
    }

    fn page(&self, path: &str) -> Response {
        if let Some(html) = self.setup.pages.get(path) {
            return text("text/html; charset=utf-8", html);
        }
        match Article::at(path) {
            Some(article) => text("text/html; charset=utf-8", &article.html(&self.origin)),
            None => text("text/html; charset=utf-8", "<h1>There is no such page</h1>").with_status(404),
        }
    }
}

impl Kind {
    fn of(request: &Request, path: &str, query: &BTreeMap<String, String>) -> Self {
        let is_post = request.method == "POST";
        match path {
            "/responses" if is_post && request.json["background"] == true => Self::StartJob,
            "/responses" | "/chat/completions" if is_post => Self::Reply,
            _ if path.starts_with("/responses/") && path.ends_with("/cancel") && is_post => Self::CancelJob,
            _ if path.starts_with("/responses/") => Self::AskJob,
            _ if path == "/models" || path.starts_with("/models/") => Self::AskModel,
            "/search" if is_post => Self::Tavily,
            "/search" if query.contains_key("q") => Self::SearxNg,
            "/robots.txt" => Self::Robots,
            _ => Self::Page,
        }
    }
}

/// Returns the description of a model. `gone-…` does not exist, `retired-…` no longer exists.
fn model(id: &str) -> Response {
    let known = |id: &str| json!({ "id": id, "object": "model", "created": 1_700_000_000, "owned_by": "fixture" });
    if id.is_empty() {
        return Response::json(200, &json!({ "object": "list", "data": [known("fixture")] }));
    }
    if id.starts_with("gone") {
        return refused(404, "model_not_found", &format!("The model '{id}' does not exist"));
    }
    let mut model = known(id);
    if id.starts_with("retired") {
        model["shutdown_date"] = "2025-01-31".into();
    }
    Response::json(200, &model)
}

/// Returns an error in OpenAI's format.
fn refused(status: u16, code: &str, message: &str) -> Response {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    Response::json(status, &json!({ "error": error }))
}

fn text(content_type: &str, body: &str) -> Response {
    Response::text(200, body).with_header("Content-Type", content_type)
}

/// Returns the path of a request without the `/v1` prefix, and its query.
fn parts(path: &str) -> (&str, BTreeMap<String, String>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    (path, pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
}

/// Decodes percent-encoding and `+`.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(byte.unwrap_or(if bytes[at] == b'+' { b' ' } else { bytes[at] }));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Returns all text that a request sends to a model, including input given as a single string.
fn prompt(body: &Value) -> String {
    if let Some(input) = body["input"].as_str() {
        return input.to_owned();
    }
    let texts = |message: &Value| match &message["content"] {
        Value::String(text) => vec![text.clone()],
        content => content
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|part| part["text"].as_str().map(str::to_owned))
            .collect(),
    };
    let instructions = body["instructions"].as_str().map(str::to_owned);
    let messages = body["input"].as_array().into_iter().flatten().flat_map(texts);
    messages.chain(instructions).collect::<Vec<_>>().join("\n")
}
