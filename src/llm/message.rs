//! What is said to a model and what comes back: Prompt, Reply, Usage.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who asks: each role may have a model, an endpoint and limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Writes the brief and the plan.
    Planner,
    /// Looks for evidence.
    Worker,
    /// Folds what was found into summaries.
    Summariser,
    /// Says what is still missing.
    Judge,
    /// Writes the report.
    Writer,
    /// Does research at a provider's, as a job; its models are set up apart.
    Researcher,
}

impl Role {
    /// Every role that is asked call by call.
    pub const ALL: [Self; 5] = [Self::Planner, Self::Worker, Self::Summariser, Self::Judge, Self::Writer];

    /// Returns the name as it is written in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Worker => "worker",
            Self::Summariser => "summariser",
            Self::Judge => "judge",
            Self::Writer => "writer",
            Self::Researcher => "researcher",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no role.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a role (expected planner, worker, summariser, judge or writer)")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// Whose words a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// The rules.
    System,
    /// The task and its data.
    User,
    /// What the model said before.
    Assistant,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Whose words.
    pub speaker: Speaker,
    /// The words.
    pub text: String,
}

/// The form a reply must have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// A name for it, of letters, digits and `_`.
    pub name: String,
    /// A JSON Schema.
    pub schema: Value,
}

/// Everything one request to a model says; two equal prompts are the same request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Who asks.
    pub role: Role,
    /// What is said, in order.
    pub messages: Vec<Message>,
    /// Visible tokens of the reply, at most; reasoning has an allowance apart.
    pub max_output_tokens: u32,
    /// How freely the model chooses its words; the endpoint's own default where none.
    pub temperature: Option<f32>,
    /// The form of the reply; free text where none.
    pub schema: Option<Schema>,
    /// How long the reply is waited for, by somebody who can do without it: it is not asked for twice, and that it does not
    /// fit what may be spent says nothing of other calls. The request is the same with and without.
    #[serde(skip)]
    pub patience: Option<Duration>,
}

impl Prompt {
    /// Returns a prompt of rules and one task.
    pub fn new(role: Role, system: impl Into<String>, user: impl Into<String>, max_output_tokens: u32) -> Self {
        let messages = vec![
            Message { speaker: Speaker::System, text: system.into() },
            Message { speaker: Speaker::User, text: user.into() },
        ];
        Self { role, messages, max_output_tokens, temperature: None, schema: None, patience: None }
    }

    /// Demands a form of the reply.
    #[must_use]
    pub fn with_schema(mut self, name: &str, schema: Value) -> Self {
        self.schema = Some(Schema { name: name.to_owned(), schema });
        self
    }
}

/// Tokens of one call, as the endpoint counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens sent that the endpoint had in its cache.
    pub cached_tokens: u64,
    /// Tokens received, reasoning included.
    pub output_tokens: u64,
    /// Tokens of reasoning that nobody sees.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Returns all tokens.
    pub fn tokens(&self) -> u64 {
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

/// What a model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Its words, without reasoning.
    pub text: String,
    /// Tokens; none where the endpoint does not say.
    pub usage: Option<Usage>,
    /// Whether the reply was cut off at its limit.
    pub cut_off: bool,
    /// The body as it came.
    pub raw: Value,
}
