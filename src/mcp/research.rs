//! `research_start`, `research_status`, `research_result` and `research_cancel`: runs that take longer than a client waits
//! for a reply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::ask::QuestionArguments;
use super::failure::ToolError;
use super::server::Shared;
use crate::base::id::RunId;
use crate::engine::RunStatus;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StartedRun {
    /// Pass it to `research_status`, `research_result` and `research_cancel`.
    run_id: String,
}

pub(super) async fn start(shared: &Shared, arguments: QuestionArguments) -> Result<StartedRun, ToolError> {
    let (engine, request) = arguments.request("research_start", shared)?;
    let run = shared.runs.start(&engine, request).await?;
    tracing::info!(%run, "run started");
    Ok(StartedRun { run_id: run.to_string() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    /// The run.
    run_id: String,
    /// Return only events after this number, the `last_event` of an earlier status.
    #[serde(default)]
    since: u64,
}

pub(super) async fn status(shared: &Shared, arguments: StatusArguments) -> Result<RunStatus, ToolError> {
    let run = run_id("research_status", &arguments.run_id)?;
    Ok(shared.runs.status(&shared.engine, run.as_str(), arguments.since).await?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultArguments {
    /// The run.
    run_id: String,
    /// First line of the report, for the rest of one that was cut.
    #[serde(default)]
    from_line: usize,
}

pub(super) async fn result(shared: &Shared, arguments: ResultArguments) -> Result<Answer, ToolError> {
    let run = run_id("research_result", &arguments.run_id)?;
    let report = shared.runs.report(&shared.engine, run.as_str()).await?;
    Answer::of(shared, report, arguments.from_line.max(1), Vec::new()).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelArguments {
    /// The run.
    run_id: String,
}

pub(super) async fn cancel(shared: &Shared, arguments: CancelArguments) -> Result<RunStatus, ToolError> {
    let run = run_id("research_cancel", &arguments.run_id)?;
    Ok(shared.runs.cancel(&shared.engine, run.as_str()).await?)
}

/// Parses the id of a run. Prefixes, which people may type, could name a run that the client does not know.
fn run_id(tool: &'static str, text: &str) -> Result<RunId, ToolError> {
    text.parse().map_err(|error: crate::base::id::ParseIdError| {
        // The id is echoed, and may be of any length.
        let reason = crate::engine::cut(&format!("run_id: {error}"));
        ToolError::Arguments { tool, reason }
    })
}
