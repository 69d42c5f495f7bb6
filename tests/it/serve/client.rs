//! `dr serve` as a child process, and requests to it as they are on the wire.

#![allow(dead_code, reason = "tests and the benchmark each use a part of it")]
#![allow(clippy::unwrap_used, reason = "a server that does not start or answer ends the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for a sign.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A server of the page, killed when dropped.
pub(crate) struct Page {
    pub(crate) child: Child,
    pub(crate) port: u16,
    pub(crate) token: String,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Page {
    /// Starts a server with a command for `dr`, and waits until it listens.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at http://127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
        let (port, token) = address.split_once("/?token=").unwrap_or_else(|| panic!("{line}"));
        Self { child, port: port.parse().unwrap(), token: token.to_owned() }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    pub(crate) fn tools(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Sends a request as it is, with the headers that are given and `Host`, unless it is among them.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        Self::reply(self.begin(method, path, headers, body))
    }

    /// As [`Self::send`], without saying how long the body is.
    pub(crate) fn send_chunked(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let chunked = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")];
        let mut stream = self.begin(method, path, &[headers, &chunked].concat(), b"");
        // A server that refuses the body need not read all of it.
        let sent = body.chunks(64 * 1024).try_for_each(|chunk| {
            write!(stream, "{:x}\r\n", chunk.len())?;
            stream.write_all(chunk)?;
            stream.write_all(b"\r\n")
        });
        let _ = sent.and_then(|()| stream.write_all(b"0\r\n\r\n"));
        Self::reply(stream)
    }

    fn reply(mut stream: TcpStream) -> Reply {
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Reply { status, head: head.to_owned(), body: if is_chunked { joined(body) } else { body.to_owned() } }
    }

    pub(crate) fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        stream.write_all((head + "\r\n").as_bytes()).unwrap();
        // A server that refuses the head need not read the body.
        let _ = stream.write_all(body);
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[("Authorization", &self.bearer())], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[("Authorization", &self.bearer())], body.to_string().as_bytes())
    }

    /// Reads the events of a run until the stream ends: name, id and data of each.
    pub(crate) fn events(&self, run: &str, last: Option<&str>) -> Vec<(String, Option<String>, Value)> {
        let bearer = self.bearer();
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        let reply = self.send("GET", &format!("/api/v1/runs/{run}/events"), &headers, b"");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let field = |event: &str, name: &str| {
            event.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let events = reply.body.split("\n\n").filter(|event| event.contains("data:"));
        events
            .map(|event| {
                let data = serde_json::from_str(&field(event, "data:").unwrap()).unwrap();
                (field(event, "event:").unwrap(), field(event, "id:"), data)
            })
            .collect()
    }
}

/// Returns the body behind chunks.
fn joined(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = rest.get(..size) else { break };
        whole.push_str(chunk);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
