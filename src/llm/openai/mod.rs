//! Endpoints that speak as OpenAI's do: the Responses API, and Chat Completions (Ollama, vLLM, llama.cpp, LM Studio).
//!
//! ```text
//! prompt ─▶ request ─▶ one POST ─▶ reply
//!                          └─────▶ failure: what can be done about it
//! ```
//!
//! The requests are those of `async-openai`, and its client is not used: it sends a request again on its own, keeps
//! neither `Retry-After` nor a limit on what it reads, and a call that may be paid for must go out exactly once.

mod request;

mod reply;

mod failure;

pub mod job;

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::Client;
use reqwest::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};

pub use async_openai::types::responses::ReasoningEffort as Effort;

use super::message::{Prompt, Reply, Usage};
use super::model::{Model, ModelError};
use super::price::Price;
use crate::base::http::{BaseUrl, Secret, read_capped};
use crate::base::token::{CountTokens, TokenCounter};

/// Largest reply that is read.
const MAX_REPLY_BYTES: usize = 16 * 1_024 * 1_024;

/// Tokens an endpoint puts around each message.
const MESSAGE_TOKENS: u64 = 6;

/// Tokens an endpoint puts around a whole prompt, and around a schema.
const FRAME_TOKENS: u64 = 24;

/// Which of the two ways of asking an endpoint knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `POST /responses`, which OpenAI has.
    Responses,
    /// `POST /chat/completions`, which nearly everybody has.
    Chat,
}

impl Api {
    fn path(self) -> &'static str {
        match self {
            Self::Responses => "/responses",
            Self::Chat => "/chat/completions",
        }
    }
}

/// How an endpoint can be held to a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaSupport {
    /// By a JSON Schema.
    #[default]
    Strict,
    /// To some JSON object; the schema is told in words.
    Json,
    /// Not at all; the schema is told in words.
    None,
}

/// Tells whether a model thinks before it speaks, by its name.
pub(super) fn reasons(model: &str) -> bool {
    // What an endpoint for several providers puts in front is no part of the name.
    let model = model.rsplit('/').next().unwrap_or(model);
    ["gpt-5", "gpt-6", "gpt-oss", "o1", "o3", "o4", "deepseek-r1", "magistral", "qwq"]
        .iter()
        .any(|family| model.starts_with(family))
}

/// Everything that makes up one model behind one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAiSettings {
    /// The name the endpoint knows the model by.
    pub model: String,
    /// Where the endpoint is.
    pub address: BaseUrl,
    /// How it is asked.
    pub api: Api,
    /// What it is presented with; nothing where it wants nothing.
    pub key: Option<Secret>,
    /// How it can be held to a form.
    pub schema: SchemaSupport,
    /// Tokens a prompt and its reply may have together.
    pub window_tokens: u64,
    /// Tokens the model may think before it speaks, beside those of its reply.
    pub reasoning_tokens: u32,
    /// Whether it thinks, so that it takes no temperature.
    pub reasons: bool,
    /// How hard it thinks; its own default where none.
    pub effort: Option<Effort>,
    /// How freely it chooses its words, whatever a prompt says; as the prompt says where none.
    pub temperature: Option<f32>,
    /// How long one request may take.
    pub timeout: Duration,
    /// What its tokens are counted with.
    pub counter: TokenCounter,
    /// What it costs; none where nobody knows it.
    pub price: Option<Price>,
}

/// A model behind an endpoint.
#[derive(Debug)]
pub struct OpenAiModel {
    settings: OpenAiSettings,
    client: Client,
}

impl OpenAiModel {
    /// Sets up a model that is reached through `client`; models at one address share theirs, and its connections.
    pub fn new(settings: OpenAiSettings, client: Client) -> Self {
        Self { settings, client }
    }

    async fn post(&self, prompt: &Prompt) -> Result<Reply, ModelError> {
        let OpenAiSettings { address, api, key, timeout, .. } = &self.settings;
        let mut request = self.client.post(address.with_path(api.path())).timeout(*timeout);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, key.bearer());
        }
        let sent = request.json(&request::body(&self.settings, prompt)).send().await;
        let response = sent.map_err(|error| failure::without_answer(&error, *timeout))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_capped(response, MAX_REPLY_BYTES).await;
        let scrubbed = |body: Vec<u8>| {
            let text = String::from_utf8_lossy(&body).into_owned();
            key.as_ref().map_or_else(|| text.clone(), |key| key.scrub(&text))
        };
        if status.is_success() {
            return reply::read(&scrubbed(body.map_err(|error| failure::body_lost(&error))?));
        }
        // The status says enough where the words behind it were lost.
        let body = scrubbed(body.unwrap_or_default());
        Err(failure::answered(status, &headers, &body, prompt.schema.is_some()))
    }
}

impl Model for OpenAiModel {
    fn name(&self) -> &str {
        &self.settings.model
    }

    fn window_tokens(&self) -> u64 {
        self.settings.window_tokens
    }

    fn count_input(&self, prompt: &Prompt) -> u64 {
        let count = |text: &str| self.settings.counter.count(text) as u64;
        let messages = request::told(self.settings.schema, prompt);
        let messages: u64 = messages.iter().map(|message| count(&message.text) + MESSAGE_TOKENS).sum();
        let schema = request::sent_schema(self.settings.schema, prompt);
        let schema = schema.map_or(0, |(schema, _)| count(&schema.to_string()) + FRAME_TOKENS);
        messages + schema + FRAME_TOKENS
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        u64::from(prompt.max_output_tokens) + u64::from(self.settings.reasoning_tokens)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        self.settings.price.map(|price| price.cost_nanos(usage))
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.post(prompt))
    }
}
