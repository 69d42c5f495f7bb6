//! `research_start`, `research_status`, `research_result`, `research_cancel` and `research_resume`: runs that take longer
//! than a client waits for a reply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::AnswerResult;
use super::failure::ToolError;
use crate::base::id::{ParseIdError, RunId};
use crate::base::line::counted;
use crate::engine::{QuestionForm, ResumeForm, RunStatus, Service};

/// Maximum number of events and sub-questions in a status. Each is a line of up to 100 characters, so both are some
/// 10,000 tokens.
const MAX_EVENTS: usize = 200;
const MAX_NODES: usize = 200;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StartedRun {
    /// Pass it to `research_status`, `research_result`, `research_cancel` and `research_resume`.
    run_id: String,
}

pub(super) async fn start(service: &Service, question: QuestionForm) -> Result<StartedRun, ToolError> {
    let (engine, request) = question.request(&service.engine, service.max_jobs)?;
    let run = service.runs.start(&engine, request).await?;
    tracing::info!(%run, "run started");
    Ok(StartedRun { run_id: run.to_string() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    /// Id of the run, as `research_start` returned it.
    run_id: String,
    /// Return only events after this number, the `last_event` of an earlier status.
    #[serde(default)]
    since: u64,
}

/// The state of a run, no longer than a result may be.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Status {
    #[serde(flatten)]
    run: RunStatus,
    /// What was left out, and how to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
}

pub(super) async fn status(service: &Service, arguments: StatusArguments) -> Result<Status, ToolError> {
    let run = run_id("research_status", &arguments.run_id)?;
    Ok(Status::of(service.runs.status(&service.engine, run.as_str(), arguments.since).await?))
}

impl Status {
    fn of(mut run: RunStatus) -> Self {
        let mut cut = Vec::new();
        let events = run.events.len();
        if events > MAX_EVENTS {
            // The earliest are kept: `since` reaches those after them.
            run.events.truncate(MAX_EVENTS);
            run.last_event = run.events.last().map_or(run.last_event, |event| event.number);
            let (rest, last) = (events - MAX_EVENTS, run.last_event);
            cut.push(format!("left out: {}; pass {last} as `since` for more", counted(rest, "later event")));
        }
        if run.nodes.len() > MAX_NODES {
            let rest = run.nodes.len() - MAX_NODES;
            run.nodes.truncate(MAX_NODES);
            cut.push(format!("left out: {}; the events name all", counted(rest, "sub-question")));
        }
        Self { run, cut: (!cut.is_empty()).then(|| cut.join("; ")) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultArguments {
    /// Id of the run, as `research_start` returned it.
    run_id: String,
    /// First line of the report, for the rest of one that was cut.
    #[serde(default)]
    from_line: usize,
}

pub(super) async fn result(service: &Service, arguments: ResultArguments) -> Result<AnswerResult, ToolError> {
    let run = run_id("research_result", &arguments.run_id)?;
    let report = service.runs.report(&service.engine, run.as_str()).await?;
    AnswerResult::of(service, report, arguments.from_line.max(1), Vec::new()).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelArguments {
    /// Id of the run, as `research_start` returned it.
    run_id: String,
}

pub(super) async fn cancel(service: &Service, arguments: CancelArguments) -> Result<Status, ToolError> {
    let run = run_id("research_cancel", &arguments.run_id)?;
    Ok(Status::of(service.runs.cancel(&service.engine, run.as_str()).await?))
}

pub(super) async fn resume(service: &Service, form: ResumeForm) -> Result<StartedRun, ToolError> {
    let run = run_id("research_resume", &form.run_id)?;
    let request = form.request(&service.engine, service.max_jobs)?;
    let run = service.runs.resume(&service.engine, run.as_str(), request).await?;
    tracing::info!(%run, "run resumed");
    Ok(StartedRun { run_id: run.to_string() })
}

/// Parses the id of a run. Prefixes, which people may type, could name a run that the client does not know.
fn run_id(tool: &'static str, text: &str) -> Result<RunId, ToolError> {
    text.parse().map_err(|error: ParseIdError| ToolError::arguments(tool, format!("run_id: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EventEntry, NodeStanding};

    #[test]
    fn status_of_a_long_run_is_cut_and_goes_on_where_it_ends() {
        let event = |number| EventEntry { number, at: 0, text: String::new() };
        let node = |number: u32| NodeStanding { id: format!("n{number}"), ..NodeStanding::default() };
        let (nodes, events) = ((1..=201).map(node).collect(), (11..=310).map(event).collect());
        let run = RunStatus { nodes, events, last_event: 310, ..RunStatus::default() };
        let Status { run, cut } = Status::of(run);
        assert_eq!((run.nodes.len(), run.events.len(), run.last_event), (200, 200, 210));
        let said =
            "left out: 100 later events; pass 210 as `since` for more; left out: 1 sub-question; the events name all";
        assert_eq!(cut.as_deref(), Some(said));
    }
}
