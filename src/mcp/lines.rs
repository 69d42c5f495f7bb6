//! The transport over stdin and stdout: a message per line.
//!
//! rmcp's own transport drops lines that are too long or cannot be parsed, which leaves the client waiting. This one
//! answers them with an error.

use std::io;
use std::mem::take;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Longest message of a client, in bytes. The longest argument is a question.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Number of bytes of a line that are kept, to find the id of a message that is too long. Many clients write it last.
const MAX_LINE_BYTES: usize = 16 * MAX_MESSAGE_BYTES;

/// Why a line is not a valid message. The client's text is not part of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum RefusedLine {
    #[error("message has more than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
    #[error("message is not JSON, or nested too deeply")]
    NotJson,
    #[error("message is not a request, notification or response")]
    Invalid,
}

impl RefusedLine {
    fn code(self) -> ErrorCode {
        match self {
            Self::NotJson => ErrorCode::PARSE_ERROR,
            Self::TooLong | Self::Invalid => ErrorCode::INVALID_REQUEST,
        }
    }
}

/// The members that tell requests, notifications and responses apart. They are found beside members of any depth, which
/// serde skips without recursion.
#[derive(Default, Deserialize)]
struct Head {
    id: Option<RequestId>,
    method: Option<String>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

pub(super) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// What has been read of the next line. Kept here, because `receive` may be dropped and called again.
    line: Vec<u8>,
    output: Arc<Mutex<W>>,
    /// The reply to a line that was refused, until it is written.
    reply: Option<BoxFuture<'static, io::Result<()>>>,
    gone: CancellationToken,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin + Send + 'static> LineTransport<R, W> {
    /// Cancels `gone` at the end of `input`.
    pub(super) fn new(input: R, output: W, gone: CancellationToken) -> Self {
        let (input, output) = (BufReader::new(input), Arc::new(Mutex::new(output)));
        Self { input, line: Vec::new(), output, reply: None, gone }
    }

    /// Completes `line`, of which no more than [`MAX_LINE_BYTES`] are kept. Returns `None` at the end of the input.
    async fn read_line(&mut self) -> Option<Vec<u8>> {
        loop {
            let read = self.input.fill_buf().await.ok().filter(|read| !read.is_empty())?;
            let end = read.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(read.len(), |end| end + 1);
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&read[..length.min(room)]);
            self.input.consume(length);
            if end.is_some() {
                return Some(take(&mut self.line));
            }
        }
    }

    fn write(&self, message: &impl Serialize) -> BoxFuture<'static, io::Result<()>> {
        let (text, output) = (serde_json::to_vec(message), Arc::clone(&self.output));
        async move {
            let mut line = text?;
            line.push(b'\n');
            let mut output = output.lock().await;
            output.write_all(&line).await?;
            output.flush().await
        }
        .boxed()
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> Transport<RoleServer>
    for LineTransport<R, W>
{
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.write(&message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(reply) = &mut self.reply {
                let written = reply.await;
                self.reply = None;
                written.ok()?;
            }
            let Some(line) = self.read_line().await else {
                self.gone.cancel();
                return None;
            };
            // Some Windows programs begin their output with a byte order mark.
            let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line).trim_ascii();
            if line.is_empty() {
                continue;
            }
            let refusal = match message_in(line) {
                Ok(message) => return Some(message),
                Err(refusal) => refusal,
            };
            let Head { id, method, result, error } = serde_json::from_slice(line).unwrap_or_default();
            tracing::warn!(bytes = line.len(), %refusal, "message refused");
            // Neither a notification, which has no id, nor a response is ever answered.
            let is_notification = id.is_none() && method.is_some();
            if !is_notification && result.is_none() && error.is_none() {
                let error = json!({ "code": refusal.code(), "message": refusal.to_string() });
                self.reply = Some(self.write(&json!({ "jsonrpc": "2.0", "id": id, "error": error })));
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // It may hold the lock, waiting for a client that reads nothing.
        self.reply = None;
        self.output.lock().await.shutdown().await
    }
}

fn message_in(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, RefusedLine> {
    if line.len() > MAX_MESSAGE_BYTES {
        return Err(RefusedLine::TooLong);
    }
    serde_json::from_slice(line).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof => RefusedLine::NotJson,
        Category::Data | Category::Io => RefusedLine::Invalid,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Returns the replies to one line, which is followed by a `ping` that has to arrive.
    async fn replies(line: &str) -> Vec<Value> {
        let input = format!("{line}\n{}\n", json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" }));
        let (output, mut written) = tokio::io::duplex(4_096);
        let gone = CancellationToken::new();
        let mut transport = LineTransport::new(input.as_bytes(), output, gone.clone());
        let ping = serde_json::to_value(transport.receive().await.unwrap()).unwrap();
        assert_eq!(ping["id"], 9, "{}", &line[..line.len().min(80)]);
        assert!(transport.receive().await.is_none() && gone.is_cancelled());
        drop(transport);
        let mut text = String::new();
        written.read_to_string(&mut text).await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn request_that_cannot_be_read_is_answered_with_its_id_where_that_can_be_read() {
        let call = |arguments: &str| {
            format!(r#"{{"method":"tools/call","params":{{"name":"search","arguments":{arguments}}},"id":3}}"#)
        };
        let text = |bytes: usize| call(&format!(r#"{{"query":"{}"}}"#, "z".repeat(bytes)));
        for (line, id, code) in [
            (text(2 * MAX_MESSAGE_BYTES), json!(3), -32_600),
            (text(MAX_LINE_BYTES), Value::Null, -32_600),
            (call(&format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000))), json!(3), -32_700),
            (r#"{"jsonrpc": nonsense"#.into(), Value::Null, -32_700),
            ("[]".into(), Value::Null, -32_600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#.into(), json!("a"), -32_600),
        ] {
            let replies = replies(&line).await;
            let [reply] = &replies[..] else { panic!("{code}: {replies:?}") };
            assert_eq!((reply.get("id"), &reply["error"]["code"]), (Some(&id), &json!(code)), "{reply}");
            assert!(reply["error"]["message"].as_str().unwrap().starts_with("message "), "{reply}");
        }
    }

    #[tokio::test]
    async fn notification_response_and_empty_line_are_not_answered() {
        let long = format!(r#"{{"method":"notifications/x","params":{{"a":"{}"}}}}"#, "z".repeat(MAX_MESSAGE_BYTES));
        let response = r#"{"jsonrpc":"1.0","id":3,"result":{}}"#;
        for line in [r#"{"jsonrpc":"1.0","method":"$/setTrace"}"#, &long, response, "", " \r"] {
            assert_eq!(replies(line).await, [Value::Null; 0]);
        }
    }
}
