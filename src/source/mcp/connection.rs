//! A connection to a server: a child process on stdin and stdout, or streamable HTTP.

#[cfg(unix)]
use std::collections::BTreeSet;
use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
#[cfg(unix)]
use std::sync::Mutex;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, Tool,
};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::settings::{Reach, ServerSettings};
use crate::base::folder::create_private;
use crate::base::http::{HttpError, client_for};
use crate::base::line::{counted, shortened};
#[cfg(unix)]
use crate::base::mutex::locked;

/// Largest message of a server, in bytes.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 200;

/// Maximum number of pages of a list of tools. A page may be as large as a message, and a server may never stop.
const MAX_PAGES: usize = 20;

/// Largest error message over HTTP, in bytes.
const MAX_ERROR: usize = 4 * 1024;

/// How long closing a connection may take, and how long its program may continue afterwards. Together less than the
/// time in which a signal ends `dr`, so that no program is left that ignores the end of its stdin.
const GRACE: Duration = Duration::from_millis(400);

/// Longest line of stderr that is logged, in bytes.
const MAX_LOG_LINE: u64 = 2_000;

/// A server did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("program cannot be started")]
    Start(#[source] std::io::Error),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("no reply in {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("connection failed: {0}")]
    Handshake(String),
    #[error("{0}")]
    Request(String),
    #[error("server refuses the request: {0}")]
    Refused(String),
}

impl ConnectionError {
    /// Returns whether other requests may succeed: the server answered this one.
    pub(super) fn is_about_request(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Start(_) | Self::Http(_) | Self::TimedOut(_) | Self::Handshake(_) | Self::Request(_) => false,
        }
    }
}

/// The tools that a server lists.
#[derive(Debug, Default)]
pub(super) struct ToolPages {
    /// At most [`MAX_TOOLS`], no two of one name.
    pub(super) tools: Vec<Tool>,
    /// Where the list was cut, if it was.
    pub(super) cut: Option<String>,
}

impl ToolPages {
    /// Requests pages until the last one, or a limit. Only the first tool of a name is kept: its server would not know
    /// which of several is called.
    async fn read<F>(mut page: impl FnMut(Option<String>) -> F) -> Result<Self, ServiceError>
    where
        F: Future<Output = Result<ListToolsResult, ServiceError>>,
    {
        let (mut pages, mut names, mut cursors) = (Self::default(), HashSet::new(), HashSet::new());
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let ListToolsResult { tools, next_cursor, .. } = page(cursor).await?;
            let mut new = tools.into_iter().filter(|tool| names.insert(tool.name.clone()));
            pages.tools.extend(new.by_ref().take(MAX_TOOLS - pages.tools.len()));
            if new.next().is_some() || (next_cursor.is_some() && pages.tools.len() == MAX_TOOLS) {
                pages.cut = Some(counted(MAX_TOOLS, "tool"));
                return Ok(pages);
            }
            match next_cursor {
                Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
                // The same page again.
                Some(_) => {
                    pages.cut = Some(counted(cursors.len(), "page"));
                    return Ok(pages);
                }
                None => return Ok(pages),
            }
        }
        pages.cut = Some(counted(MAX_PAGES, "page"));
        Ok(pages)
    }
}

/// A connected server. A child process is killed with its group when this is dropped.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    process: Option<Process>,
    /// Why the output of the program was not read to its end.
    fault: Fault,
    limit: Duration,
}

/// Set with the first output that cannot be a message.
type Fault = Arc<OnceLock<&'static str>>;

impl Connection {
    /// Starts or reaches a server and lists its tools, both in the time of one request.
    pub(super) async fn open(settings: ServerSettings) -> Result<(Self, ToolPages), ConnectionError> {
        let limit = settings.timeout;
        // A task of its own: the handshake needs a deep stack, and a waiting worker has used part of its own. Dropping
        // the set ends the task.
        let mut task = JoinSet::new();
        task.spawn(async move {
            let connection = Self::opened(&settings).await?;
            let pages = connection.tools().await?;
            Ok((connection, pages))
        });
        let opened = timeout(limit, task.join_next()).await.map_err(|_| ConnectionError::TimedOut(limit))?;
        opened
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(ConnectionError::Handshake("the handshake was aborted".to_owned())))
    }

    async fn opened(settings: &ServerSettings) -> Result<Self, ConnectionError> {
        let client =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("dr", env!("CARGO_PKG_VERSION")));
        // Servers of older protocols expect `initialize`, which the current one no longer has.
        let era = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let fault = Fault::default();
        let failed = |error: ClientInitializeError| {
            let cause = fault.get().map_or_else(|| handshake_cause(&error), |fault| (*fault).to_owned());
            ConnectionError::Handshake(settings.scrub(&cause))
        };
        let (service, process) = match &settings.reach {
            Reach::Program { .. } => {
                let mut process = Process::start(settings)?;
                let missing = || ConnectionError::Start(std::io::ErrorKind::BrokenPipe.into());
                let output = process.child.stdout.take().ok_or_else(missing)?;
                let input = process.child.stdin.take().ok_or_else(missing)?;
                let output = CheckedOutput::new(output, Arc::clone(&fault));
                let service = client.serve_with_lifecycle((output, input), era).await.map_err(failed)?;
                (service, Some(process))
            }
            Reach::Http(address) => {
                let config = StreamableHttpClientTransportConfig::with_uri(address.to_string())
                    .max_sse_event_size(MAX_MESSAGE)
                    .max_json_response_size(MAX_MESSAGE)
                    .max_error_response_size(MAX_ERROR);
                let config = match &settings.key {
                    Some(key) => config.auth_header(key.reveal()),
                    None => config,
                };
                let transport = StreamableHttpClientTransport::with_client(client_for(address)?, config);
                (client.serve_with_lifecycle(transport, era).await.map_err(failed)?, None)
            }
        };
        Ok(Self { service, process, fault, limit: settings.timeout })
    }

    async fn tools(&self) -> Result<ToolPages, ConnectionError> {
        let page = |cursor| {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            self.service.peer().list_tools(Some(params))
        };
        self.answered(Box::pin(ToolPages::read(page))).await
    }

    /// Calls a tool. A server that asks a question instead of answering is not answered.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<CallToolResult, ConnectionError> {
        // The `call_tool` of the service would let its handler answer such a question, and call again.
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.answered(Box::pin(self.service.peer().call_tool_once(request))).await? {
            CallToolResponse::Complete(result) => Ok(result),
            _ => Err(ConnectionError::Refused("it asked for input instead of answering".to_owned())),
        }
    }

    async fn answered<T>(&self, reply: impl Future<Output = Result<T, ServiceError>>) -> Result<T, ConnectionError> {
        let reply = timeout(self.limit, reply).await.map_err(|_| ConnectionError::TimedOut(self.limit))?;
        reply.map_err(|error| match error {
            ServiceError::McpError(error) => ConnectionError::Refused(error.message.into_owned()),
            ServiceError::TransportClosed if self.process.is_some() => {
                ConnectionError::Request((*self.fault.get().unwrap_or(&"server exited")).to_owned())
            }
            // Not shortened here: part of a key would then escape `scrub`.
            error => ConnectionError::Request(cause(&error)),
        })
    }

    /// Closes the connection and waits for the program to exit, and kills it if it does not.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(GRACE).await;
        if let Some(mut process) = self.process.take() {
            let _ = timeout(GRACE, process.child.wait()).await;
        }
    }
}

/// Returns why a handshake failed.
fn handshake_cause(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => cause(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => handshake_cause(fallback),
        error => error.to_string(),
    }
}

/// Returns the innermost cause. The outer ones repeat the address, and name types of the client.
fn cause(error: &(dyn Error + 'static)) -> String {
    let status = |status: u16| match status {
        401 | 403 => format!("replied with status {status}; check `key_env`"),
        status => format!("replied with status {status}"),
    };
    let mut cause = error;
    loop {
        cause = match cause.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::AuthRequired(_)) => return status(401),
            Some(StreamableHttpError::InsufficientScope(_)) => return status(403),
            Some(StreamableHttpError::HttpStatus(error)) => return status(error.status),
            Some(StreamableHttpError::UnexpectedServerResponse(said)) => {
                let number = said.strip_prefix("HTTP ").and_then(|said| said.get(..3)?.parse().ok());
                return number.map_or_else(|| said.to_string(), status);
            }
            Some(StreamableHttpError::Client(error)) => error,
            _ => match cause.source() {
                Some(deeper) => deeper,
                None => return cause.to_string(),
            },
        };
    }
}

/// A program that serves on stdin and stdout, with its group. Killed when dropped.
struct Process {
    child: Child,
    #[cfg(unix)]
    group: Option<nix::unistd::Pid>,
}

impl Process {
    /// Starts the program of a server, without a shell.
    fn start(settings: &ServerSettings) -> Result<Self, ConnectionError> {
        let Reach::Program { program, arguments, environment, folder, fallback } = &settings.reach else {
            return Err(ConnectionError::Start(std::io::ErrorKind::Unsupported.into()));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.all()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match folder.as_deref().map(Path::new).filter(|folder| folder.is_dir()) {
            Some(home) => command.current_dir(home),
            None => {
                create_private(fallback).map_err(ConnectionError::Start)?;
                command.current_dir(fallback)
            }
        };
        // Ctrl-C in a terminal reaches `dr` alone, which ends its servers in order.
        #[cfg(unix)]
        command.process_group(0);
        // Held until the program is on the list, so that none starts beside the end of this process.
        #[cfg(unix)]
        let mut groups = locked(&GROUPS);
        #[cfg(unix)]
        let groups = groups.as_mut().ok_or_else(|| ConnectionError::Start(std::io::ErrorKind::Interrupted.into()))?;
        let mut child = command.spawn().map_err(ConnectionError::Start)?;
        #[cfg(unix)]
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(nix::unistd::Pid::from_raw);
        #[cfg(unix)]
        groups.extend(group);
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log(settings.name.clone(), stderr));
        }
        Ok(Self {
            child,
            #[cfg(unix)]
            group,
        })
    }
}

#[cfg(unix)]
impl Drop for Process {
    fn drop(&mut self) {
        // The program may have started others, and may have ended before them.
        if let Some(group) = self.group {
            let mut groups = locked(&GROUPS);
            // Under the lock: this process may exit as soon as the group is not on the list any more.
            kill(group);
            if let Some(groups) = groups.as_mut() {
                groups.remove(&group);
            }
        }
    }
}

/// Groups of the programs that run; `None` once this process ends.
#[cfg(unix)]
static GROUPS: Mutex<Option<BTreeSet<nix::unistd::Pid>>> = Mutex::new(Some(BTreeSet::new()));

#[cfg(unix)]
fn kill(group: nix::unistd::Pid) {
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
}

/// Kills all server processes and refuses to start more. Called before the process exits, which runs no destructors.
pub(crate) fn kill_programs() {
    #[cfg(unix)]
    for group in locked(&GROUPS).take().into_iter().flatten() {
        kill(group);
    }
}

/// Logs the stderr of a program. Its lines may contain anything, so they are debug output only.
async fn log(server: String, stderr: ChildStderr) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tracing::debug!(server, "{}", shortened(&String::from_utf8_lossy(&line))),
        }
    }
}

/// Output of a program, whose lines are limited and UTF-8. Anything else ends the connection, since no reply would be
/// found in it and its request would be waited for in vain.
struct CheckedOutput<R> {
    output: R,
    fault: Fault,
    /// Bytes since the last line break.
    line: usize,
    /// Bytes of a character whose others are still to be read.
    cut: Vec<u8>,
}

impl<R> CheckedOutput<R> {
    fn new(output: R, fault: Fault) -> Self {
        Self { output, fault, line: 0, cut: Vec::new() }
    }

    fn check(&mut self, new: &[u8]) -> Result<(), &'static str> {
        self.line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => new.len() - at - 1,
            None => self.line + new.len(),
        };
        if self.line > MAX_MESSAGE {
            return Err("server sent an oversized message");
        }
        self.cut.extend(new);
        let valid = match std::str::from_utf8(&self.cut) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err("server sent a message that is not UTF-8"),
        };
        self.cut.drain(..valid);
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for CheckedOutput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.output).poll_read(context, buffer);
        if let Err(fault) = self.check(&buffer.filled()[before..]) {
            // A read that fails must not have filled anything.
            buffer.set_filled(before);
            let _ = self.fault.set(fault);
            return Poll::Ready(Err(std::io::Error::other(fault)));
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the number of tools, where the list was cut, and the number of requests.
    async fn listed(page: impl Fn(usize) -> Value) -> (usize, Option<String>, usize) {
        let mut requests = 0;
        let pages = ToolPages::read(|_| {
            requests += 1;
            let page = serde_json::from_value(page(requests)).unwrap();
            async move { Ok(page) }
        });
        let ToolPages { tools, cut } = pages.await.unwrap();
        (tools.len(), cut, requests)
    }

    #[tokio::test]
    async fn list_of_tools_ends_at_its_last_page_or_at_a_limit_which_is_said() {
        let tools = |names: std::ops::Range<usize>| {
            names.map(|name| json!({ "name": format!("t{name}"), "inputSchema": {} })).collect::<Vec<_>>()
        };
        let two = |page| match page {
            1 => json!({ "tools": tools(0..3), "nextCursor": "2" }),
            _ => json!({ "tools": tools(2..5) }),
        };
        assert_eq!(listed(two).await, (5, None, 2), "the tool on both pages is kept once");
        let endless = |page: usize| json!({ "tools": tools(page..page + 1), "nextCursor": page.to_string() });
        assert_eq!(listed(endless).await, (MAX_PAGES, Some("20 pages".to_owned()), MAX_PAGES));
        let circle = |_| json!({ "tools": tools(0..1), "nextCursor": "again" });
        assert_eq!(listed(circle).await, (1, Some("1 page".to_owned()), 2));
        let large =
            |page: usize| json!({ "tools": tools(page * 150..page * 150 + 150), "nextCursor": page.to_string() });
        assert_eq!(listed(large).await, (MAX_TOOLS, Some("200 tools".to_owned()), 2));
        let exact = |_| json!({ "tools": tools(0..MAX_TOOLS) });
        assert_eq!(listed(exact).await, (MAX_TOOLS, None, 1));
    }

    #[tokio::test]
    async fn line_that_is_too_long_ends_the_output_and_shorter_ones_pass() {
        let short = "x\n".repeat(MAX_MESSAGE);
        let mut passed = String::new();
        checked(short.as_bytes()).read_to_string(&mut passed).await.unwrap();
        assert_eq!(passed.len(), short.len());
        let long = "x".repeat(MAX_MESSAGE + 1);
        assert!(checked(long.as_bytes()).read_to_string(&mut passed).await.is_err());
    }

    fn checked(output: &[u8]) -> CheckedOutput<&[u8]> {
        CheckedOutput::new(output, Fault::default())
    }

    #[test]
    fn character_may_be_cut_between_two_reads_and_other_bytes_are_a_fault() {
        for (reads, is_text) in [
            (&[&b"caf\xc3"[..], &b"\xa9\n"[..]][..], true),
            (&[b"\xf0", b"\x9f", b"\x98", b"\x80"], true),
            (&[b"caf\xe9\n"], false),
            (&[b"caf\xc3", b"e\n"], false),
        ] {
            let mut output = checked(b"");
            let faults: Vec<_> = reads.iter().filter_map(|read| output.check(read).err()).collect();
            assert_eq!(faults.is_empty(), is_text, "{reads:?}: {faults:?}");
        }
    }
}
