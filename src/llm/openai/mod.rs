//! OpenAI-compatible endpoints: the Responses API, and Chat Completions (Ollama, vLLM, llama.cpp, LM Studio).
//!
//! ```text
//! prompt ─▶ request ─▶ one POST ─▶ reply
//!                          └─────▶ failure: whether it was paid for, whether to retry
//! ```
//!
//! Uses the request types of `async-openai` but not its client, which retries on its own, waits as long as
//! `Retry-After` asks, and reads bodies of any size. A call that may be paid for must be sent exactly once.
//!
//! A schema that an endpoint refuses to enforce is part of the prompt from then on: no reply was generated, so the
//! request is sent again in a looser form (see [`SchemaSupport`]). Replies are checked against the whole schema in any
//! case.

mod request;
mod usage;
pub(crate) mod failure;
mod reply;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::usage::{usage, whole};

use super::message::{Prompt, Reply, Role, Usage};
use super::model::{Effort, Model, ModelError};
use super::price::Price;
use crate::base::clock::{Clock, SystemClock};
use crate::base::http::{BaseUrl, Exchange, Secret, authorized, exchange};
use crate::base::mutex::locked;
use crate::base::token::{CountTokens, TokenCounter};

/// Limit on the size of a response body.
pub(crate) const MAX_REPLY_BYTES: usize = 16 * 1_024 * 1_024;

/// Time limit of a request for the list of models.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Upper bound on the framing tokens that chat templates add per message.
const MESSAGE_TOKENS: u64 = 6;

/// Upper bound on the framing tokens of a whole prompt, and of a schema.
const FRAME_TOKENS: u64 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Api {
    /// `POST /responses`, offered by OpenAI.
    Responses,
    /// `POST /chat/completions`, offered by nearly every server.
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

/// How an endpoint can be made to follow a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchemaSupport {
    /// It enforces a JSON Schema.
    #[default]
    Strict,
    /// It enforces some JSON object; the schema is part of the prompt.
    Json,
    /// It enforces nothing; the schema is part of the prompt.
    None,
}

/// Returns whether a model reasons before it replies, judged by its name.
pub(crate) fn reasons(model: &str) -> bool {
    // Routers put the name of the provider in front: `openai/gpt-5`.
    let model = model.rsplit('/').next().unwrap_or(model);
    // Open models need room for their reasoning too.
    let is_open = || ["gpt-oss", "deepseek-r1", "magistral", "qwq"].iter().any(|family| model.starts_with(family));
    known(model).map_or_else(is_open, |known| known.reasons)
}

/// Properties of an OpenAI model, known by its name wherever it is served: a gateway forwards the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownModel {
    /// Whether it reasons: it accepts an effort but no temperature, and limits its reply only by
    /// `max_completion_tokens`.
    pub(crate) reasons: bool,
    /// Maximum number of tokens in a reply, reasoning included; `None` if the limit is not published.
    pub(crate) max_output_tokens: Option<u32>,
}

/// Families of OpenAI's models, the more specific name first.
const KNOWN: [(&str, KnownModel); 15] = [
    ("gpt-3.5", KnownModel { reasons: false, max_output_tokens: Some(4_096) }),
    ("gpt-4.1", KnownModel { reasons: false, max_output_tokens: Some(32_768) }),
    ("gpt-4o", KnownModel { reasons: false, max_output_tokens: Some(16_384) }),
    ("gpt-4.5", KnownModel { reasons: false, max_output_tokens: Some(16_384) }),
    ("gpt-4-turbo", KnownModel { reasons: false, max_output_tokens: Some(4_096) }),
    // Previews of GPT-4 Turbo: `gpt-4-1106-preview` and `gpt-4-0125-preview`.
    ("gpt-4-1106", KnownModel { reasons: false, max_output_tokens: Some(4_096) }),
    ("gpt-4-0125", KnownModel { reasons: false, max_output_tokens: Some(4_096) }),
    ("gpt-4", KnownModel { reasons: false, max_output_tokens: Some(8_192) }),
    ("gpt-5-chat", KnownModel { reasons: false, max_output_tokens: Some(16_384) }),
    ("gpt-5", KnownModel { reasons: true, max_output_tokens: Some(128_000) }),
    ("gpt-6", KnownModel { reasons: true, max_output_tokens: None }),
    ("o1-mini", KnownModel { reasons: true, max_output_tokens: Some(65_536) }),
    ("o1", KnownModel { reasons: true, max_output_tokens: Some(100_000) }),
    ("o3", KnownModel { reasons: true, max_output_tokens: Some(100_000) }),
    ("o4", KnownModel { reasons: true, max_output_tokens: Some(100_000) }),
];

/// Returns the known properties of an OpenAI model, also by the name a router gives it: `openai/gpt-5`.
pub(crate) fn known(model: &str) -> Option<KnownModel> {
    let model = model.rsplit('/').next().unwrap_or(model);
    KNOWN.iter().find(|(family, _)| model.starts_with(family)).map(|(_, known)| *known)
}

/// Settings of a model at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenAiSettings {
    /// Model name sent to the endpoint.
    pub(crate) model: String,
    pub(crate) address: BaseUrl,
    pub(crate) api: Api,
    /// Key of the endpoint; `None` if it requires no key.
    pub(crate) key: Option<Secret>,
    pub(crate) schema: SchemaSupport,
    /// Context window: tokens of a prompt and its reply together.
    pub(crate) window_tokens: u64,
    /// Allowance for reasoning, in tokens, on top of the visible reply.
    pub(crate) reasoning_tokens: u32,
    /// Whether the model reasons, in which case the temperature of a prompt is not sent.
    pub(crate) reasons: bool,
    /// Reasoning effort; `None` for the default of the model.
    pub(crate) effort: Option<Effort>,
    /// Temperature that overrides that of every prompt.
    pub(crate) temperature: Option<f32>,
    /// Time limit of one request.
    pub(crate) timeout: Duration,
    pub(crate) counter: TokenCounter,
    /// Price of the model; `None` if unknown.
    pub(crate) price: Option<Price>,
}

/// A model at an OpenAI-compatible endpoint.
#[derive(Debug)]
pub(crate) struct OpenAiModel {
    settings: OpenAiSettings,
    client: Client,
    clock: Arc<dyn Clock>,
    refused: Mutex<RefusedSchemas>,
}

/// Schemas that the endpoint refused to enforce.
#[derive(Debug, Default)]
struct RefusedSchemas {
    /// The remaining support, by the text of the schema. Another schema may still be enforced.
    left: BTreeMap<String, SchemaSupport>,
    /// The first refusal in words.
    reason: Option<String>,
}

struct FailedPost {
    error: ModelError,
    /// Whether the endpoint refused the schema that was to be enforced.
    is_of_schema: bool,
}

impl From<ModelError> for FailedPost {
    fn from(error: ModelError) -> Self {
        Self { error, is_of_schema: false }
    }
}

impl OpenAiModel {
    /// Returns a model that sends its requests through `client`. Models at one address share a client and its
    /// connections.
    pub(crate) fn new(settings: OpenAiSettings, client: Client) -> Self {
        Self { settings, client, clock: Arc::new(SystemClock), refused: Mutex::default() }
    }

    /// Returns a model whose timeouts use another clock.
    #[cfg(test)]
    pub(crate) fn on(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    async fn post(&self, prompt: &Prompt) -> Result<Reply, ModelError> {
        let mut support = self.support(prompt);
        // Terminates, since each iteration enforces less.
        loop {
            let FailedPost { error, is_of_schema } = match self.post_once(support, prompt).await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let looser = request::looser(support, prompt).filter(|_| is_of_schema);
            // Remembered even if the error is returned: the next attempt must not be refused and charged again.
            if let Some(looser) = looser {
                support = self.loosen(prompt, looser, &error);
            }
            // A request that may have been paid for is charged. The caller decides whether to send the prompt again.
            if looser.is_none() || matches!(error, ModelError::Unknown { .. }) {
                return Err(error);
            }
        }
    }

    /// Returns how far the endpoint enforces the schema of a prompt, as far as is known.
    fn support(&self, prompt: &Prompt) -> SchemaSupport {
        // Each change of the map is atomic.
        let refused = locked(&self.refused);
        let left = prompt.schema.as_ref().and_then(|form| refused.left.get(&form.schema.to_string()));
        left.copied().unwrap_or(self.settings.schema)
    }

    /// Records that the endpoint refused to enforce the schema of a prompt, and returns the looser support.
    fn loosen(&self, prompt: &Prompt, looser: SchemaSupport, error: &ModelError) -> SchemaSupport {
        let name = prompt.schema.as_ref().map(|form| form.name.as_str()).unwrap_or_default();
        tracing::info!(schema = name, %error, "the endpoint refuses the schema, which becomes part of the prompt");
        let mut refused = locked(&self.refused);
        if let Some(form) = &prompt.schema {
            refused.left.insert(form.schema.to_string(), looser);
        }
        refused.reason.get_or_insert_with(|| error.to_string());
        looser
    }

    async fn post_once(&self, support: SchemaSupport, prompt: &Prompt) -> Result<Reply, FailedPost> {
        let OpenAiSettings { address, api, key, timeout, .. } = &self.settings;
        let request = authorized(self.client.post(address.with_path(api.path())), key.as_ref());
        let request = request.json(&request::body(&self.settings, support, prompt));
        let sent = exchange(request, MAX_REPLY_BYTES, self.clock.deadline(*timeout)).await;
        let Exchange { status, headers, body } = sent.map_err(|error| failure::without_answer(&error, *timeout))?;
        let text = String::from_utf8_lossy(&body).into_owned();
        // A server may echo the key in an error, which is printed and stored.
        let text = key.as_ref().map_or_else(|| text.clone(), |key| key.scrub(&text));
        if status.is_success() {
            Ok(reply::read(&text)?)
        } else {
            let error = failure::answered(status, &headers, &text);
            Err(FailedPost { error, is_of_schema: failure::refuses_schema(status, &text) })
        }
    }

    /// Returns an upper bound on the tokens of a prompt if the endpoint enforces its schema as far as `support` goes.
    fn count_as(&self, support: SchemaSupport, prompt: &Prompt) -> u64 {
        let count = |text: &str| self.settings.counter.count(text) as u64;
        let messages = request::told(support, prompt);
        let messages: u64 = messages.iter().map(|message| count(&message.text) + MESSAGE_TOKENS).sum();
        let schema = request::sent_schema(support, prompt);
        let schema = schema.map_or(0, |schema| count(&schema.to_string()) + FRAME_TOKENS);
        messages + schema + FRAME_TOKENS
    }

    /// Requests the list of models.
    ///
    /// A failed connection and a refused key are certain failures. A model that is not listed is unknown only at
    /// OpenAI: other servers also accept names that they do not list. If requests are free, the model itself is
    /// tried. Returns the context window if the list states it.
    async fn list(&self) -> Result<Option<u64>, ModelError> {
        let OpenAiSettings { address, key, model, .. } = &self.settings;
        let request = authorized(self.client.get(address.with_path("/models")), key.as_ref());
        let listed = match exchange(request, MAX_REPLY_BYTES, self.clock.deadline(LIST_TIMEOUT)).await {
            Ok(Exchange { status, body, .. }) if status.is_success() => serde_json::from_slice::<Listed>(&body),
            Ok(Exchange { status, body, .. }) => {
                // A restricted key may be valid for models but not for listing them; OpenAI then names the missing
                // scope.
                let is_narrow = String::from_utf8_lossy(&body).contains("scope");
                let is_refused = status == StatusCode::UNAUTHORIZED && !is_narrow;
                return if is_refused { Err(ModelError::Authentication) } else { Ok(None) };
            }
            Err(error) => {
                let error = failure::without_answer(&error, LIST_TIMEOUT);
                return if matches!(error, ModelError::Transient { .. }) { Err(error) } else { Ok(None) };
            }
        };
        let Ok(Listed { data }) = listed else { return Ok(None) };
        let known = data.iter().find(|listed| listed.id == *model);
        // A server with a single model accepts any name for it.
        let window = known.or(data.first().filter(|_| data.len() == 1)).and_then(ListedModel::window_tokens);
        if data.is_empty() || known.is_some() {
            Ok(window)
        } else if address.is_openai() {
            Err(ModelError::Permanent { reason: format!("the endpoint has no model `{model}`") })
        } else if self.settings.price == Some(Price::FREE) {
            let asked = self.post(&Prompt::new(Role::Worker, "You answer with one word.", "Say: ready", 16)).await;
            match asked {
                Err(error @ ModelError::Permanent { .. }) => Err(error),
                _ => Ok(window),
            }
        } else {
            Ok(None)
        }
    }
}

/// The list of models of an endpoint.
#[derive(Deserialize)]
struct Listed {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    /// Stated by llama.cpp.
    meta: Option<Value>,
    /// Stated by vLLM.
    max_model_len: Option<u64>,
}

impl ListedModel {
    /// Returns the tokens of a prompt and its reply together, as the server was started with.
    fn window_tokens(&self) -> Option<u64> {
        self.max_model_len.or_else(|| self.meta.as_ref()?.get("n_ctx")?.as_u64())
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
        let support = self.settings.schema;
        let looser = request::looser(support, prompt);
        // The endpoint may refuse the schema, which then is part of the prompt.
        let most = [Some(support), looser].into_iter().flatten().map(|support| self.count_as(support, prompt)).max();
        most.unwrap_or_default()
    }

    fn count_sent(&self, prompt: &Prompt) -> u64 {
        self.count_as(self.support(prompt), prompt)
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        u64::from(prompt.max_output_tokens) + u64::from(self.settings.reasoning_tokens)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        self.settings.price.map(|price| price.cost_nanos(usage))
    }

    fn refused_schema(&self) -> Option<String> {
        locked(&self.refused).reason.clone()
    }

    fn reach(&self) -> BoxFuture<'_, Result<Option<u64>, ModelError>> {
        Box::pin(self.list())
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.post(prompt))
    }
}
