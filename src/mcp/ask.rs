//! `ask`, and the question that `research_start` takes too.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::answer::Answer;
use super::failure::ToolError;
use super::server::Shared;
use crate::engine::{
    AskRequest, Engine, LowerLimits, Mode, Question, RunEvent, RunRequest, Scope, SourceHint, Watcher,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionArguments {
    /// The question.
    question: String,
    /// Answer only from these collections (see `list_collections`).
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

impl QuestionArguments {
    /// Returns the engine to ask, and the request.
    pub(super) fn request(self, tool: &'static str, shared: &Shared) -> Result<(Engine, AskRequest), ToolError> {
        let question: Result<Question, _> = self.question.parse();
        let question = question.map_err(|error| ToolError::Arguments { tool, reason: format!("question: {error}") })?;
        if self.max_rounds == Some(0) {
            return Err(ToolError::Arguments { tool, reason: "`max_rounds` is 0 (from 1)".to_owned() });
        }
        let run = RunRequest {
            scope: Scope { collections: self.collections, ..Scope::default() },
            mode: self.mode,
            required: self.cover,
            source: self.source,
            ..RunRequest::default()
        };
        let lower = LowerLimits {
            dollars: self.max_cost,
            tokens: self.max_tokens,
            time: self.max_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            rounds: self.max_rounds,
        };
        let request =
            AskRequest { run, lower, max_jobs: shared.max_jobs, fresh: self.fresh, ..AskRequest::new(question) };
        let engine = if self.offline { shared.engine.offline()? } else { shared.engine.clone() };
        Ok((engine, request.checked()?))
    }
}

/// Answers a question, and tells the client what happens meanwhile if it wants to know. The run stops in order if the
/// client cancels the request or goes away.
pub(super) async fn ask(
    shared: &Shared,
    arguments: QuestionArguments,
    context: &RequestContext<RoleServer>,
) -> Result<Answer, ToolError> {
    let (engine, request) = arguments.request("ask", shared)?;
    let (sender, mut events) = mpsc::unbounded_channel();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&notes);
    let watcher: Watcher = Arc::new(move |event: RunEvent| {
        let Some(line) = event.line() else { return };
        if matches!(event, RunEvent::Note { .. } | RunEvent::Instead { .. }) {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        }
        // The receiver is dropped when the run has ended.
        let _ = sender.send(line);
    });
    let mut asked = Box::pin(shared.runs.ask(&engine, request, watcher, context.ct.clone()));
    let mut progress = Progress::of(context);
    let asked = loop {
        tokio::select! {
            asked = &mut asked => break asked?,
            Some(line) = events.recv() => progress.tell(context, line).await,
        }
    };
    // The end of the run and its last events come at the same time.
    while let Ok(line) = events.try_recv() {
        progress.tell(context, line).await;
    }
    let notes = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
    Answer::of(shared, asked, 1, notes).await
}

/// Progress of a request, told if the client wants to know.
struct Progress {
    token: Option<rmcp::model::ProgressToken>,
    steps: u32,
}

impl Progress {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        Self { token: context.meta.get_progress_token(), steps: 0 }
    }

    async fn tell(&mut self, context: &RequestContext<RoleServer>, line: String) {
        let Some(token) = &self.token else { return };
        self.steps += 1;
        let step = ProgressNotificationParam::new(token.clone(), self.steps.into()).with_message(line);
        // A client that has gone away is noticed elsewhere.
        let _ = context.peer.notify_progress(step).await;
    }
}
