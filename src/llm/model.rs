//! The [`Model`] trait and the error shared by all implementations.

use std::time::Duration;

/// How long a model reasons before it replies, in the words of OpenAI's API, which other servers have adopted.
pub(crate) use async_openai::types::responses::ReasoningEffort as Effort;
use futures::future::BoxFuture;

use super::message::{Prompt, Reply};
use crate::base::retry::{Again, Failure};

/// A language model at an endpoint.
pub trait Model: Send + Sync {
    /// Returns the model name sent to the endpoint.
    fn name(&self) -> &str;

    /// Returns the context window: the maximum tokens of a prompt and its reply together.
    fn window_tokens(&self) -> u64;

    /// Returns an upper bound on the tokens of a prompt, including message framing and schema. Used for reservations.
    fn count_input(&self, prompt: &Prompt) -> u64;

    /// Returns the tokens of a prompt as it would be sent now; [`Self::count_input`] also covers a schema that is
    /// refused.
    fn count_sent(&self, prompt: &Prompt) -> u64 {
        self.count_input(prompt)
    }

    /// Returns the maximum tokens of the reply: visible text plus the allowance for reasoning.
    fn max_output(&self, prompt: &Prompt) -> u64;

    /// Returns the cost in billionths of a US dollar, or `None` if the price of the model is unknown.
    fn cost_nanos(&self, usage: &super::message::Usage) -> Option<u64>;

    /// Returns the endpoint's message if it has refused to enforce a schema, which then was part of the prompt.
    fn refused_schema(&self) -> Option<String> {
        None
    }

    /// Checks, with a free request, whether calls are certain to fail. In doubt they are not: servers also accept
    /// models that they do not list. Returns the context window in tokens, if the endpoint states it.
    fn reach(&self) -> BoxFuture<'_, Result<Option<u64>, ModelError>> {
        Box::pin(async { Ok(None) })
    }

    /// Sends one request, once. Dropping the future abandons the request, whose cost is then unknown.
    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// A call without a usable reply. The variant decides whether to retry.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint did not accept the request. Nothing was paid, and a retry may succeed.
    #[error("model endpoint is not available: {reason}")]
    Transient { retry_after: Option<Duration>, reason: String },
    /// Too many requests. Nothing was paid, and a retry may succeed.
    #[error("rate limit of the model endpoint exceeded")]
    RateLimited { retry_after: Option<Duration> },
    /// The request was sent, and no reply can be read. It may have been paid for, so it is charged at its worst case.
    #[error("no reply to a request that may have been paid for: {reason}")]
    Unknown { reason: String },
    #[error("prompt does not fit the context window: {reason}")]
    ContextTooLong { reason: String },
    #[error("model refused: {reason}")]
    Refused { reason: String },
    #[error("reply cannot be used: {complaint}")]
    InvalidOutput { complaint: String },
    #[error("quota of the model endpoint is exhausted")]
    Quota,
    #[error("model endpoint refused the key")]
    Authentication,
    /// The endpoint rejected the request, and a retry would fail the same way.
    #[error("model endpoint refused the request: {reason}")]
    Permanent { reason: String },
    /// A background research job could not be started or ended without a result.
    #[error("Deep Research gave no result: {reason}")]
    NoResearch { reason: String },
}

impl ModelError {
    /// Returns the class of this error, for traces.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Transient { .. } => "not_available",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unknown { .. } => "no_reply",
            Self::ContextTooLong { .. } => "context_too_long",
            Self::Refused { .. } => "refused",
            Self::InvalidOutput { .. } => "invalid_reply",
            Self::Quota => "quota",
            Self::Authentication => "authentication",
            Self::Permanent { .. } => "request_refused",
            Self::NoResearch { .. } => "no_research",
        }
    }
}

impl Failure for ModelError {
    fn again(&self) -> Again {
        match self {
            Self::Transient { retry_after, .. } | Self::RateLimited { retry_after } => Again::Later(*retry_after),
            Self::Unknown { .. } => Again::Unanswered,
            // A refusal is also a reply that was paid for, and the same prompt would be refused again.
            Self::ContextTooLong { .. }
            | Self::Refused { .. }
            | Self::InvalidOutput { .. }
            | Self::Quota
            | Self::Authentication
            | Self::Permanent { .. }
            | Self::NoResearch { .. } => Again::Never,
        }
    }
}
