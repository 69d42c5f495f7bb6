//! Requests of clients of a server. They may set any limit up to that of the settings.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::request::{Amounts, AskRequest, RequestError};
use super::{Engine, EngineError, Mode, ResumeRequest, RunRequest, Scope, SourceHint};

/// A question of a client. The settings and the plan decide whatever is left out.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `question`")]
pub(crate) struct QuestionForm {
    /// The question, in plain words.
    question: String,
    /// Answer only from these collections (all if none is named).
    #[serde(default)]
    collections: Vec<String>,
    /// Depth of the research; chosen by the question if not given.
    #[serde(default)]
    mode: Mode,
    /// Sources: the knowledge base, the web, or both; as planned if not given.
    source: Option<SourceHint>,
    /// Aspects that the answer must cover, up to 20.
    #[serde(default)]
    cover: Vec<String>,
    /// Answer without models and without the web, from verbatim passages. Takes about a second and costs nothing.
    #[serde(default)]
    offline: bool,
    /// Ask again even if an earlier run has answered the same question.
    #[serde(default)]
    fresh: bool,
    /// Id of an earlier run that this question follows up.
    follow: Option<String>,
    /// Most US dollars; at most the server's limit.
    max_cost: Option<f64>,
    /// Most tokens; at most the server's limit.
    max_tokens: Option<u64>,
    /// Most seconds of work; at most the server's limit.
    max_seconds: Option<u32>,
    /// Most rounds of research; at most the server's limit.
    #[schemars(range(min = 1))]
    max_rounds: Option<u32>,
}

impl QuestionForm {
    /// Returns the engine to ask, and the request. A run may start up to `max_jobs` Deep Research jobs.
    ///
    /// # Errors
    ///
    /// Returns an error for a question or a number of rounds that is invalid. The rest is checked by what takes the request.
    pub(crate) fn request(self, engine: &Engine, max_jobs: Option<usize>) -> Result<(Engine, AskRequest), EngineError> {
        let question = self.question.parse().map_err(RequestError::Question)?;
        if self.max_rounds == Some(0) {
            return Err(RequestError::NoRounds.into());
        }
        let run = RunRequest {
            scope: Scope { collections: self.collections, ..Scope::default() },
            mode: self.mode,
            required: self.cover,
            source: self.source,
            ..RunRequest::default()
        };
        let lower = amounts(self.max_cost, self.max_tokens, self.max_seconds, self.max_rounds);
        let (follow, fresh) = (self.follow, self.fresh);
        let request = AskRequest { run, follow, max_jobs, lower, fresh, ..AskRequest::new(question) };
        // Offline by its engine, so that no part of the run can open a socket.
        let engine = if self.offline { engine.offline()? } else { engine.clone() };
        Ok((engine, request))
    }
}

/// A run that a client resumes. A limit that is left out stays as it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `run_id`")]
pub(crate) struct ResumeForm {
    /// Id of the run, as `research_start` and `runs` return it.
    pub(crate) run_id: String,
    /// Raise its limit to this many US dollars; at most the server's limit. A limit that is higher stays.
    max_cost: Option<f64>,
    /// Raise its limit to this many tokens; at most the server's limit.
    max_tokens: Option<u64>,
    /// Raise its limit to this many seconds of work; at most the server's limit.
    max_seconds: Option<u32>,
    /// Raise its limit to this many rounds of research; at most the server's limit.
    #[schemars(range(min = 1))]
    max_rounds: Option<u32>,
}

impl ResumeForm {
    /// Returns the request. The run may start up to `max_jobs` Deep Research jobs.
    ///
    /// # Errors
    ///
    /// Returns an error for a limit above that of the settings, see [`Engine::limits`].
    pub(crate) fn request(&self, engine: &Engine, max_jobs: Option<usize>) -> Result<ResumeRequest, EngineError> {
        let at_least = amounts(self.max_cost, self.max_tokens, self.max_seconds, self.max_rounds);
        // Only a check: limits of the run that are higher already stay, see `raised_to`.
        at_least.capped_by(engine.limits(max_jobs)?)?;
        Ok(ResumeRequest { at_least, max_jobs, ..ResumeRequest::default() })
    }
}

fn amounts(dollars: Option<f64>, tokens: Option<u64>, seconds: Option<u32>, rounds: Option<u32>) -> Amounts {
    Amounts { dollars, tokens, time: seconds.map(|seconds| Duration::from_secs(seconds.into())), rounds }
}
