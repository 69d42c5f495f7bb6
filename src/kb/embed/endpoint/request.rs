//! Requests to `/embeddings`, and the classification of replies.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::meter::OverLimit;
use super::settings::{EndpointSettings, Shorten};
use crate::base::breaker::{Guarded, Health, Open};
use crate::base::http::{BodyError, NoReply, retry_after};
use crate::base::line::{shortened, with_causes};
use crate::base::retry::{Again, Failure};

/// Longest reply for one text, in bytes: 8,192 components of 32 characters each.
const MAX_REPLY_BYTES_PER_TEXT: usize = 8_192 * 32;

/// Additional bytes allowed in a reply.
const MAX_REPLY_FRAME_BYTES: usize = 1 << 20;

/// Phrases in the errors of various servers for a text, or a number of texts, that is too large. Text Embeddings
/// Inference: `must have less than`, `batch size`; Ollama, OpenAI, vLLM: `context length`; llama.cpp: `too large to
/// process`, `context size`, `physical batch size`.
const TOO_LARGE: [&str; 9] = [
    "too long", "too large", "too many inputs", "must have less than", "batch size", "context length", "context size",
    "context window", "maximum input length",
];

/// An embedding server gave no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingServerError {
    #[error("dr is offline")]
    Offline,
    /// The server was not reached, or gave no complete reply. The request cannot have been carried out if no connection
    /// was made.
    #[error("{reason}")]
    NoReply { reason: String, may_be_done: bool },
    /// The reply is larger than the vectors could be.
    #[error("reply is larger than {max_bytes} bytes")]
    TooMuch { max_bytes: usize },
    /// Status 401 or 403.
    #[error("status {status}: the key is missing or refused")]
    Key { status: u16 },
    /// Status 402 or 429.
    #[error("status {status}: the quota of the account is used up")]
    Quota { status: u16 },
    /// Status 408, 409, 429 or 5xx. `retry_after` is the wait that the server requests.
    #[error("status {status}: {reason}")]
    Busy { status: u16, reason: String, retry_after: Option<Duration> },
    /// A text, or their number, is too large: status 400, 413, 422 or 500.
    #[error("status {status}: {reason}")]
    TooLarge { status: u16, reason: String },
    /// Any other status.
    #[error("status {status}: {reason}")]
    Refused { status: u16, reason: String },
    #[error("reply is not in the form of the API: {reason}")]
    Form { reason: String },
    #[error("vectors have {found} dimensions, not {expected}")]
    WrongDimensions { found: usize, expected: usize },
    #[error("server returned a zero or non-finite vector")]
    NoDirection,
    #[error("text to embed is empty")]
    EmptyText,
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The server failed before.
    #[error(transparent)]
    Open(#[from] Open),
    #[error("stopped")]
    Stopped,
}

impl EmbeddingServerError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Offline => "run it without `--offline`, or skip the vectors: `dr index --no-embed`".to_owned(),
            Self::NoReply { .. } => {
                "check that the server runs at the `base_url` in `[embedding]`; what was embedded is kept, and the next \
                 `dr index` continues from there"
                    .to_owned()
            }
            Self::Key { .. } => "name the variable that holds the key with `key_env` in `[embedding]`".to_owned(),
            Self::Refused { status: 404, .. } => {
                "check the name of the model in `endpoint:MODEL`, and that `base_url` in `[embedding]` ends as the \
                 server wants it, mostly in `/v1`"
                    .to_owned()
            }
            Self::TooLarge { .. } => "set a smaller `window_tokens` or `batch` in `[embedding]`".to_owned(),
            Self::WrongDimensions { found, expected } if found > expected => format!(
                "set `dimensions = {found}` in `[embedding]`, or `shorten = \"here\"` if the model was trained for \
                 shorter vectors"
            ),
            Self::WrongDimensions { found, .. } => format!("set `dimensions = {found}` in `[embedding]`"),
            Self::OverLimit(_) => {
                "raise the limit with `--max-cost`, or skip the vectors: `dr index --no-embed`".to_owned()
            }
            Self::Quota { .. } | Self::Busy { .. } => {
                "what was embedded is kept; run `dr index` again later".to_owned()
            }
            _ => return None,
        })
    }

    /// Returns whether the server carried out the request, or may have, so that it may have been paid for.
    pub(super) fn may_be_paid(&self) -> bool {
        match self {
            Self::NoReply { may_be_done, .. } => *may_be_done,
            Self::TooMuch { .. }
            | Self::Form { .. }
            | Self::WrongDimensions { .. }
            | Self::NoDirection
            | Self::Stopped => true,
            Self::Offline
            | Self::Key { .. }
            | Self::Quota { .. }
            | Self::Busy { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::EmptyText
            | Self::OverLimit(_)
            | Self::Open(_) => false,
        }
    }
}

impl Guarded for EmbeddingServerError {
    fn health(&self) -> Health {
        match self {
            Self::NoReply { .. }
            | Self::TooMuch { .. }
            | Self::Key { .. }
            | Self::Quota { .. }
            | Self::Busy { .. }
            | Self::Form { .. }
            | Self::WrongDimensions { .. } => Health::Down,
            // About this text alone.
            Self::TooLarge { .. } | Self::Refused { .. } | Self::NoDirection => Health::Up,
            // Not sent, or not waited for. The limit is that of one run, and all runs share the breaker.
            Self::Offline | Self::EmptyText | Self::OverLimit(_) | Self::Open(_) | Self::Stopped => Health::Unknown,
        }
    }
}

impl Failure for EmbeddingServerError {
    fn again(&self) -> Again {
        match self {
            Self::NoReply { may_be_done: true, .. } => Again::Unanswered,
            Self::NoReply { may_be_done: false, .. } => Again::Later(None),
            Self::Busy { retry_after, .. } => Again::Later(*retry_after),
            Self::Offline
            | Self::EmptyText
            | Self::OverLimit(_)
            | Self::Open(_)
            | Self::Stopped
            | Self::Key { .. }
            | Self::Quota { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::TooMuch { .. }
            | Self::Form { .. }
            | Self::WrongDimensions { .. }
            | Self::NoDirection => Again::Never,
        }
    }
}

pub(super) fn body(settings: &EndpointSettings, texts: &[String]) -> Value {
    let mut body = json!({ "model": settings.model, "input": texts, "encoding_format": "float" });
    if settings.shorten == Some(Shorten::Server) {
        body["dimensions"] = settings.dimensions.into();
    }
    body
}

/// Returns the longest reply to `texts` texts, in bytes.
pub(super) fn max_reply_bytes(texts: usize) -> usize {
    MAX_REPLY_FRAME_BYTES + texts * MAX_REPLY_BYTES_PER_TEXT
}

/// Classifies a request without a complete reply.
pub(super) fn without_reply(error: &NoReply, scrubbed: impl Fn(&str) -> String) -> EmbeddingServerError {
    let no_reply = |may_be_done| EmbeddingServerError::NoReply { reason: scrubbed(&with_causes(error)), may_be_done };
    match error {
        NoReply::Failed(cause) => no_reply(!cause.is_connect()),
        NoReply::TimedOut | NoReply::Body(BodyError::Broken(_)) => no_reply(true),
        NoReply::Body(BodyError::TooLarge { max_bytes }) => EmbeddingServerError::TooMuch { max_bytes: *max_bytes },
    }
}

/// Classifies a reply with an error status. `body` is without the key.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: &str) -> EmbeddingServerError {
    let (reason, lower) = (reason(body), body.to_lowercase());
    let status = status.as_u16();
    let is_too_large = status == 413 || TOO_LARGE.iter().any(|words| lower.contains(words));
    let is_of_quota = lower.contains("insufficient_quota") || lower.contains("exceeded your current quota");
    match status {
        401 | 403 => EmbeddingServerError::Key { status },
        402 => EmbeddingServerError::Quota { status },
        // Not retried like a busy server: the quota stays exhausted.
        429 if is_of_quota => EmbeddingServerError::Quota { status },
        // Llama.cpp reports a text that is too long with the status of an internal error.
        400 | 413 | 422 | 500 if is_too_large => EmbeddingServerError::TooLarge { status, reason },
        // A gateway timed out waiting for a server that has the request and may still carry it out: 504, and
        // Cloudflare's 524.
        504 | 524 => EmbeddingServerError::NoReply { reason: format!("{status}: {reason}"), may_be_done: true },
        408 | 409 | 429 | 500..=599 => EmbeddingServerError::Busy { status, reason, retry_after: retry_after(headers) },
        _ => EmbeddingServerError::Refused { status, reason },
    }
}

/// Returns the message in an error body, in any of the forms that servers use.
fn reason(body: &str) -> String {
    let said = match serde_json::from_str::<Value>(body) {
        Ok(value) => {
            let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(&value);
            let text = ["message", "detail", "error"].iter().find_map(|name| error[*name].as_str());
            text.or(error.as_str()).map_or_else(|| error.to_string(), str::to_owned)
        }
        // The HTML error page of a proxy has no useful message.
        Err(_) if body.trim_start().starts_with('<') => String::new(),
        Err(_) => body.to_owned(),
    };
    if said.trim().is_empty() { "the server does not say why".to_owned() } else { shortened(&said) }
}

/// The vectors of a reply in the order of the texts, and the tokens that the server charges, if reported.
#[derive(Debug)]
pub(super) struct Vectors {
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) tokens: Option<u64>,
}

#[derive(Deserialize)]
struct EmbeddingReply {
    data: Vec<EmbeddingEntry>,
    usage: Option<Consumed>,
}

#[derive(Deserialize)]
struct EmbeddingEntry {
    /// Left out by some servers, whose vectors are in the order of the texts.
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Consumed {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

/// Reads the reply for `texts` texts.
///
/// # Errors
///
/// Returns [`EmbeddingServerError::Form`] unless each text has one vector of numbers.
pub(super) fn read(body: &[u8], texts: usize) -> Result<Vectors, EmbeddingServerError> {
    let form = |reason: String| EmbeddingServerError::Form { reason: shortened(&reason) };
    let reply: EmbeddingReply = serde_json::from_slice(body).map_err(|error| form(error.to_string()))?;
    let found = reply.data.len();
    let mut vectors = vec![None; texts];
    for (place, EmbeddingEntry { index, embedding }) in reply.data.into_iter().enumerate() {
        match vectors.get_mut(index.unwrap_or(place)) {
            Some(vector @ None) => *vector = Some(embedding),
            Some(Some(_)) => return Err(form("two vectors are for the same text".to_owned())),
            None => return Err(form(format!("{found} vectors for {texts} texts"))),
        }
    }
    let vectors: Option<Vec<_>> = vectors.into_iter().collect();
    let vectors = vectors.ok_or_else(|| form(format!("{found} vectors for {texts} texts")))?;
    let tokens = reply.usage.and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    Ok(Vectors { vectors, tokens })
}
