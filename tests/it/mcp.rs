//! `dr mcp` with rmcp's own client, in both eras of the protocol, and with what no client should send.

/// Over stdin and stdout.
mod stdio;

/// Over HTTP: authentication, and the tools and collections served to other machines.
pub(crate) mod http;

/// Runs that are cancelled, and servers that are ended in the middle of one.
mod interrupted;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, ClientRequest, ProtocolVersion, Request};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, PeerRequestOptions, RequestHandle, RunningService};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::net::unix::pipe;

use crate::common::{Running, World, block_on};
use crate::model_server::{ModelServer, Response};

/// Longest wait for a sign.
const PATIENCE: Duration = Duration::from_mins(1);

const QUESTION: &str = "When does the siren sound?";

/// The eras of the protocol: with a handshake, and with metadata in each request.
fn eras() -> [ClientLifecycleMode; 2] {
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
    ]
}

type Client<C> = RunningService<RoleClient, C>;

/// A server on stdin and stdout.
struct Server {
    child: Running,
}

impl Server {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.command([&["mcp"], args].concat());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: Running(command.spawn().unwrap()) }
    }

    /// Connects a client to it. Call it within a runtime.
    async fn connect<C: ClientHandler>(&mut self, client: C, era: ClientLifecycleMode) -> Client<C> {
        let output = pipe::Receiver::from_owned_fd(self.child.stdout.take().unwrap().into()).unwrap();
        let input = pipe::Sender::from_owned_fd(self.child.stdin.take().unwrap().into()).unwrap();
        client.serve_with_lifecycle((output, input), era).await.unwrap()
    }

    /// Sends lines as they are, closes stdin, and returns the lines of stdout, and stderr.
    fn exchange(mut self, lines: &[&str]) -> (Vec<Value>, String) {
        let mut input = self.child.stdin.take().unwrap();
        for line in lines {
            writeln!(input, "{line}").unwrap();
        }
        drop(input);
        let (mut said, mut log) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{log}");
        (said.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), log)
    }

    /// Waits for its end and returns the exit code.
    fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// Talks with a server on stdin and stdout as one client, then ends both.
fn session(world: &World, args: &[&str], talk: impl AsyncFnOnce(&Client<()>)) {
    block_on(async {
        let mut server = Server::start(world, args);
        let client = server.connect((), ClientLifecycleMode::Initialize).await;
        talk(&client).await;
        client.cancel().await.unwrap();
    });
}

pub(crate) struct HttpServer {
    child: Running,
    address: SocketAddr,
}

impl HttpServer {
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let args = [&["mcp", "--http"], args].concat();
        let mut child = Running(world.spawn(args));
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening at http://").unwrap_or_else(|| panic!("{line}"));
        let address: SocketAddr = url.strip_suffix("/mcp").unwrap().parse().unwrap();
        // A wildcard address is reached by that of the loopback interface.
        Self { child, address: (std::net::Ipv4Addr::LOCALHOST, address.port()).into() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Sends one request and returns its status and body.
    fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n\
                        Accept: application/json, text/event-stream\r\n"
            .to_owned();
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the head need not read the body.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer}")), answer)
    }
}

/// Returns the first message of a client.
fn hello() -> String {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

/// Calls a tool and returns its result, which may be an error.
async fn call<C: ClientHandler>(client: &Client<C>, tool: &'static str, args: Value) -> CallToolResult {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    client.call_tool(CallToolRequestParams::new(tool).with_arguments(args)).await.unwrap()
}

/// Calls a tool without waiting for its result.
pub(crate) async fn begun<C: ClientHandler>(
    client: &Client<C>,
    tool: &'static str,
    args: Value,
) -> RequestHandle<RoleClient> {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let request = CallToolRequestParams::new(tool).with_arguments(args);
    let request = ClientRequest::CallToolRequest(Request::new(request));
    client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap()
}

/// Waits on another thread until a model is asked.
async fn is_asked(asked: Receiver<()>) {
    tokio::task::spawn_blocking(move || asked.recv_timeout(PATIENCE).expect("the model is asked")).await.unwrap();
}

/// Calls a tool and returns its structured result, which its text repeats.
pub(crate) async fn done<C: ClientHandler>(client: &Client<C>, tool: &'static str, args: Value) -> Value {
    let result = call(client, tool, args).await;
    assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
    assert_eq!(result.content.len(), 1, "{tool}");
    let text: Value = serde_json::from_str(&result.content[0].as_text().unwrap().text).unwrap();
    assert_eq!(Some(&text), result.structured_content.as_ref(), "{tool}");
    text
}

/// Calls a tool that fails and returns its message.
async fn refused<C: ClientHandler>(client: &Client<C>, tool: &'static str, args: Value) -> String {
    let result = call(client, tool, args.clone()).await;
    assert_eq!(result.is_error, Some(true), "{tool} {args}: {result:?}");
    result.content[0].as_text().unwrap().text.clone()
}

/// Returns a server that never replies, and a channel that says when it is asked.
pub(crate) fn silent() -> (ModelServer, Receiver<()>) {
    let (sender, asked) = channel();
    let server = ModelServer::start(move |_| {
        let _ = sender.send(());
        Response::Hang
    });
    (server, asked)
}

/// As [`silent`], with an indexed world whose models are there.
pub(crate) fn hanging() -> (ModelServer, Receiver<()>, World) {
    let (server, asked) = silent();
    let world = World::indexed_text()
        .with_variable("OPENAI_BASE_URL", server.url())
        .with_variable("OPENAI_API_KEY", "sk-test")
        .with_variable("DR_MODEL", "scripted")
        .with_variable("DR_MAX_COST", "inf");
    (server, asked, world)
}
