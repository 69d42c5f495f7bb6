//! Errors of servers and tools, with the text a client receives.

use std::net::SocketAddr;

use rmcp::service::ServerInitializeError;

use crate::base::line::{shortened, with_causes};
use crate::engine::EngineError;
use crate::render::RenderError;

/// Variable with the token that clients must send.
pub(crate) const TOKEN_VARIABLE: &str = "DR_MCP_TOKEN";

/// A server could not be started, or its socket failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The first message does not begin a connection.
    #[error("client does not speak the Model Context Protocol")]
    Handshake(#[source] Box<ServerInitializeError>),
    /// Other machines can reach the server, and no token is set.
    #[error("a server at {address} is reachable from other machines and needs a token")]
    NoToken { address: SocketAddr },
    /// The token can be guessed.
    #[error("token in `{TOKEN_VARIABLE}` is shorter than {least} characters")]
    ShortToken { least: usize },
    #[error("`dr` is offline, and a server needs a socket")]
    Offline,
    /// The address is in use, or not an address of this machine.
    #[error("failed to listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

impl ServeError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NoToken { .. } | Self::ShortToken { .. } => {
                format!(
                    "export {TOKEN_VARIABLE}=\"$(openssl rand -hex 32)\", or use a loopback address such as 127.0.0.1:7879"
                )
            }
            Self::Offline => {
                "omit `--offline`, or unset `DR_OFFLINE`; `dr mcp` needs no socket without `--http`".into()
            }
            Self::Listen { .. } => "choose another port; 0 takes a free one".into(),
            Self::Handshake(_) => "an assistant starts this command; `dr mcp --print-config claude` prints how".into(),
        }
    }

    /// Returns whether the command line or a variable is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::NoToken { .. } | Self::ShortToken { .. } | Self::Offline)
    }
}

/// A call of a tool failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An argument is missing, of another type, or out of bounds.
    #[error("arguments of `{tool}`: {reason}")]
    Arguments { tool: &'static str, reason: String },
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("result cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// A panic. A damaged index makes the storage engine panic.
    #[error("stopped by a bug or a damaged index: {0}")]
    Panic(String),
}

impl ToolError {
    /// Returns the error for arguments refused by `error`, which may echo one of any length.
    pub(super) fn arguments(tool: &'static str, error: impl std::fmt::Display) -> Self {
        Self::Arguments { tool, reason: shortened(&error.to_string()) }
    }

    /// Returns the message with its hint, for a model to act on.
    pub(super) fn told(&self) -> String {
        let hint = match self {
            Self::Engine(error) => error.hint(),
            Self::Panic(_) => Some("`dr doctor` checks the index".to_owned()),
            Self::Arguments { .. } | Self::Render(_) | Self::Json(_) => None,
        };
        let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        format!("error: {}{hint}", with_causes(self))
    }
}

impl From<crate::engine::RequestError> for ToolError {
    fn from(error: crate::engine::RequestError) -> Self {
        Self::Engine(error.into())
    }
}

/// Refuses an argument of more than `most` bytes.
pub(super) fn check_length(tool: &'static str, name: &'static str, text: &str, most: usize) -> Result<(), ToolError> {
    if text.len() <= most {
        return Ok(());
    }
    Err(ToolError::arguments(tool, format!("`{name}` has {} bytes (at most {most})", text.len())))
}
