//! The Model trait, and the error every implementation shares.

use std::time::Duration;

use futures::future::BoxFuture;

use super::message::{Prompt, Reply};

/// A language model behind some endpoint.
pub trait Model: Send + Sync {
    /// Returns the name the endpoint knows it by.
    fn name(&self) -> &str;

    /// Returns the most tokens a prompt and its reply may have together.
    fn window_tokens(&self) -> u64;

    /// Counts the tokens of a prompt as this model would, the frame around each message and the schema included.
    ///
    /// A bound for a reservation: a little more where the tokenizer is not known, never knowingly less.
    fn count_input(&self, prompt: &Prompt) -> u64;

    /// Returns the tokens the reply may cost at most: what is visible and the allowance for reasoning.
    fn max_output(&self, prompt: &Prompt) -> u64;

    /// Returns the price of so many tokens in billionths of a US dollar; none where nobody knows it.
    fn cost_nanos(&self, usage: &super::message::Usage) -> Option<u64>;

    /// Sends one request, once. Dropping the future abandons the request; what it costs is then not known.
    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// A model gave no reply. The variant says what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint did not take the request: it may work later, and nothing was paid.
    #[error("model endpoint is not available: {reason}")]
    Transient {
        /// When to try again, where the endpoint says so.
        retry_after: Option<Duration>,
        /// What happened.
        reason: String,
    },

    /// Too many requests.
    #[error("model endpoint limits the rate of requests")]
    RateLimited {
        /// When to try again, where the endpoint says so.
        retry_after: Option<Duration>,
    },

    /// The request was sent and no reply came: it may have been paid for.
    #[error("no reply to a request that may have been paid for: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },

    /// The prompt is longer than the model's window.
    #[error("prompt of {prompt_tokens} tokens does not fit a window of {limit_tokens}")]
    ContextTooLong {
        /// Tokens of the prompt.
        prompt_tokens: u64,
        /// Tokens the model takes.
        limit_tokens: u64,
    },

    /// The model would not answer.
    #[error("model refused: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },

    /// The reply has not the form it must have.
    #[error("reply cannot be used: {complaint}")]
    InvalidOutput {
        /// What is wrong with it.
        complaint: String,
    },

    /// The account is empty.
    #[error("quota of the model endpoint is used up")]
    Quota,

    /// The key is not accepted.
    #[error("model endpoint refused the key")]
    Authentication,

    /// Trying again cannot help.
    #[error("model endpoint refused the request: {reason}")]
    Permanent {
        /// What it said.
        reason: String,
    },

    /// A job of research came to nothing, or could not be started.
    #[error("Deep Research brought nothing: {reason}")]
    NoResearch {
        /// Why.
        reason: String,
    },
}
