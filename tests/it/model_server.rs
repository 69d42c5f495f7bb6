//! A scripted model endpoint: a real HTTP server on loopback, written on the standard library.
//!
//! Also included by the unit tests of the library and by a benchmark.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "unit tests, integration tests and the benchmark each use a part of it, and a panic is how they fail"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Number of the request, from 1.
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The JSON body; null if it is not JSON.
    pub(crate) json: Value,
}

/// The server's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    /// A complete response.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Closes the connection without a response.
    Drop,
    /// Never responds, and keeps the connection open as long as the server lives.
    Hang,
    /// Sends the start of a response and then nothing.
    Truncated { body: String },
    /// Resets the connection without a response.
    Reset,
    /// A response with a binary body.
    Bytes { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// Sends a response one byte at a time with a pause before each, until the client disconnects.
    Drip { headers: Vec<(&'static str, String)>, body: String, pause: Duration },
}

/// Header names and values.
type Headers = [(&'static str, String)];

type Script = dyn Fn(&Request) -> Response + Send + Sync;

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    received: Vec<u8>,
    hung: Vec<TcpStream>,
    probes: usize,
    /// Reaction to a request for the list of models.
    models: Option<(u16, Value)>,
}

/// A running server. Stops when dropped.
pub(crate) struct ModelServer {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts a server that reacts to each request with the result of `script`.
    pub(crate) fn start(script: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind(("127.0.0.1", 0)).unwrap(), script)
    }

    pub(crate) fn on(listener: TcpListener, script: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let script: Arc<Script> = Arc::new(script);
        let (kept, over) = (Arc::clone(&log), Arc::clone(&is_over));
        let listening = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (script, log) = (Arc::clone(&script), Arc::clone(&kept));
                // A client that disconnects is not a failure of the server.
                std::thread::spawn(move || stream.and_then(|stream| serve(stream, &*script, &log)));
            }
        });
        Self { address, log, is_over, listening: Some(listening) }
    }

    /// Starts a server that answers every request with the same response.
    pub(crate) fn always(response: Response) -> Self {
        Self::start(move |_| response.clone())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value for `base_url`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns all requests received so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Returns the number of requests received so far.
    pub(crate) fn count(&self) -> usize {
        self.log.lock().unwrap().requests.len()
    }

    /// Sets the reaction to requests for the list of models. A server without one answers 404.
    pub(crate) fn with_models(self, status: u16, body: Value) -> Self {
        self.log.lock().unwrap().models = Some((status, body));
        self
    }

    /// Returns the number of requests for the list of models, which are not among [`Self::requests`].
    pub(crate) fn probes(&self) -> usize {
        self.log.lock().unwrap().probes
    }

    /// Returns all bytes received, for tests that a text is not sent.
    pub(crate) fn received(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap().received).into_owned()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Unblocks `accept`, so that the listener thread sees the stop flag.
        let _ = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        self.log.lock().unwrap().hung.clear();
    }
}

impl Response {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::text(status, &body.to_string())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.to_owned() }
    }

    pub(crate) fn with_status(mut self, new: u16) -> Self {
        if let Self::Answer { status, .. } | Self::Bytes { status, .. } = &mut self {
            *status = new;
        }
        self
    }

    /// Replaces text in the body.
    pub(crate) fn with_text_replaced(mut self, from: &str, to: &str) -> Self {
        if let Self::Answer { body, .. } = &mut self {
            *body = body.replace(from, to);
        }
        self
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Answer { headers, .. } | Self::Bytes { headers, .. } | Self::Drip { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// Returns a reply in the format of OpenAI's Responses API, with a text and token counts of prompt and reply.
pub(crate) fn responses_reply(text: &str, input_tokens: u64, output_tokens: u64) -> Response {
    let part = json!({ "type": "output_text", "text": text, "annotations": [] });
    let message = json!({ "type": "message", "role": "assistant", "status": "completed", "content": [part] });
    let body = json!({
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": null,
        "incomplete_details": null,
        "output": [{ "type": "reasoning", "id": "rs_1", "summary": [] }, message],
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": output_tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": input_tokens + output_tokens,
        },
    });
    Response::json(200, &body)
}

/// Returns a reply in the Chat Completions format, with a text and token counts of prompt and reply.
pub(crate) fn chat_reply(text: &str, prompt_tokens: u64, completion_tokens: u64) -> Response {
    let message = json!({ "role": "assistant", "content": text });
    let body = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    });
    Response::json(200, &body)
}

impl Request {
    /// Returns a reply in the format of the API that was called, with a text and token counts of prompt and reply.
    pub(crate) fn reply(&self, text: &str, input_tokens: u64, output_tokens: u64) -> Response {
        if self.path.ends_with("/responses") {
            responses_reply(text, input_tokens, output_tokens)
        } else {
            chat_reply(text, input_tokens, output_tokens)
        }
    }

    /// Returns the text of all messages, for either API.
    pub(crate) fn words(&self) -> String {
        self.messages().join("\n")
    }

    pub(crate) fn messages(&self) -> Vec<&str> {
        let messages = ["input", "messages"].iter().find_map(|name| self.json[name].as_array());
        messages.into_iter().flatten().filter_map(|message| message["content"].as_str()).collect()
    }

    /// Returns the prompt as one text: the rules, a separator line, then the task and later messages.
    pub(crate) fn said(&self) -> String {
        let messages = self.messages();
        let (rules, rest) = messages.split_first().map_or(("", &[][..]), |(rules, rest)| (*rules, rest));
        format!("{rules}\n--- task ---\n{}", rest.join("\n"))
    }

    /// Returns the requested JSON schema, for either API.
    pub(crate) fn schema(&self) -> Option<&Value> {
        let places = ["/text/format/schema", "/response_format/json_schema/schema"];
        places.iter().find_map(|place| self.json.pointer(place))
    }

    /// Returns the name of the requested JSON schema, for either API.
    pub(crate) fn form(&self) -> Option<&str> {
        let places = ["/text/format/name", "/response_format/json_schema/name"];
        places.iter().find_map(|place| self.json.pointer(place)?.as_str())
    }
}

/// Serves one request. Connections are not reused.
fn serve(stream: TcpStream, script: &Script, log: &Mutex<Log>) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let Some((request, bytes)) = read_request(&mut reader)? else { return Ok(()) };
    if (request.method.as_str(), request.path.as_str()) == ("GET", "/v1/models") {
        let models = {
            let mut log = log.lock().unwrap();
            log.probes += 1;
            log.models.clone()
        };
        let (status, body) = models.unwrap_or((404, Value::Null));
        return write_whole(&stream, status, &[], body.to_string().as_bytes());
    }
    let request = {
        let mut log = log.lock().unwrap();
        let request = Request { number: log.requests.len() + 1, ..request };
        log.received.extend(bytes);
        log.requests.push(request.clone());
        request
    };
    match script(&request) {
        Response::Drop => Ok(()),
        Response::Hang => {
            log.lock().unwrap().hung.push(stream);
            Ok(())
        }
        Response::Truncated { body } => {
            let length = body.len() + 100;
            write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
        }
        Response::Reset => {
            // With a linger time of zero, closing sends RST instead of FIN.
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }
        Response::Answer { status, headers, body } => write_whole(&stream, status, &headers, body.as_bytes()),
        Response::Bytes { status, headers, body } => write_whole(&stream, status, &headers, &body),
        Response::Drip { headers, body, pause } => {
            write_head(&stream, 200, &headers, body.len())?;
            body.as_bytes().iter().try_for_each(|byte| {
                std::thread::sleep(pause);
                (&stream).write_all(&[*byte])
            })
        }
    }
}

fn write_whole(stream: &TcpStream, status: u16, headers: &Headers, body: &[u8]) -> std::io::Result<()> {
    write_head(stream, status, headers, body.len())?;
    let mut stream = stream;
    stream.write_all(body)
}

fn write_head(mut stream: &TcpStream, status: u16, headers: &Headers, length: usize) -> std::io::Result<()> {
    let said: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let kind = if has_type { "" } else { "Content-Type: application/json\r\n" };
    let head = format!("HTTP/1.1 {status} Status\r\n{kind}Connection: close\r\n{said}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())
}

/// Reads a request and returns it with its raw bytes, or `None` if the client sent nothing.
fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<(Request, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let mut lines = Vec::new();
    loop {
        let start = bytes.len();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        match String::from_utf8_lossy(&bytes[start..]).trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines[0].split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: BTreeMap<_, _> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let start = bytes.len();
    reader.take(length).read_to_end(&mut bytes)?;
    let body = bytes[start..].to_vec();
    let json = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some((Request { number: 0, method, path, headers, body, json }, bytes)))
}
