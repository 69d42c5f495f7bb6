//! Prompts, replies and token usage.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::id::as_word;

/// The purpose of a call. Each role may have its own model, endpoint and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Writes the brief and the plan.
    Planner,
    /// Gathers evidence.
    Worker,
    /// Merges findings into summaries.
    Summariser,
    /// Judges a draft and names its gaps.
    Judge,
    /// Writes the report.
    Writer,
}

impl Role {
    /// Every role.
    pub(crate) const ALL: [Self; 5] = [Self::Planner, Self::Worker, Self::Summariser, Self::Judge, Self::Writer];
}

as_word!(Role);

/// The text does not name a role.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a role (expected planner, worker, summariser, judge or writer)")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.to_string() == text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Speaker {
    /// The rules.
    System,
    /// The task and its data.
    User,
    /// An earlier reply of the model.
    Assistant,
}

impl Speaker {
    /// Returns its role name in chat APIs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub(crate) speaker: Speaker,
    pub text: String,
}

/// The schema that a reply must follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Name sent to the endpoint: letters, digits and `_`.
    pub name: String,
    pub(crate) schema: Value,
}

/// The content of a request. Recorded replies are found by its hash, so equal prompts are one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub(crate) role: Role,
    pub messages: Vec<Message>,
    /// Limit on the visible tokens of the reply; the allowance for reasoning is separate.
    pub max_output_tokens: u32,
    /// Sampling temperature; `None` leaves it to the endpoint.
    pub(crate) temperature: Option<f32>,
    /// Schema of the reply; `None` for free text.
    pub schema: Option<Schema>,
    /// Number of this sample of the prompt. A recorded reply answers only its own sample. Not sent.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(crate) sample: u32,
    /// Timeout of an optional call. Such a call is not retried, and other calls continue if it does not fit the budget.
    /// Not part of the request.
    #[serde(skip)]
    pub(crate) patience: Option<Duration>,
    /// Hint for the endpoint's prompt cache: prompts with equal keys begin alike. Not part of the request.
    #[serde(skip)]
    pub(crate) cache_key: Option<String>,
}

/// Omits the field from hashes, since older journals have hashes of prompts without it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(sample: &u32) -> bool {
    *sample == 0
}

impl Prompt {
    /// Returns a prompt with a system and a user message.
    pub(crate) fn new(role: Role, system: impl Into<String>, user: impl Into<String>, max_output_tokens: u32) -> Self {
        let messages = vec![
            Message { speaker: Speaker::System, text: system.into() },
            Message { speaker: Speaker::User, text: user.into() },
        ];
        Self {
            role,
            messages,
            max_output_tokens,
            temperature: None,
            schema: None,
            sample: 0,
            patience: None,
            cache_key: None,
        }
    }

    /// Requires the reply to follow a schema.
    #[must_use]
    pub(crate) fn with_schema(mut self, name: &str, schema: Value) -> Self {
        self.schema = Some(Schema { name: name.to_owned(), schema });
        self
    }
}

/// Tokens of one call, as counted by the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens read from the endpoint's cache.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Hidden reasoning tokens, part of the output.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Returns the sum of input and output tokens.
    pub(crate) fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The visible text, without reasoning.
    pub text: String,
    /// Token usage; `None` if the endpoint does not report it.
    pub usage: Option<Usage>,
    /// Whether the reply was cut off at the output limit.
    pub cut_off: bool,
    /// The response body as received.
    pub raw: Value,
}
