//! Runs: list, state, report, quotes, stop, resume, delete.

use std::time::Duration;

use aide::NoApi;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::failure::FailureReply;
use super::form::{Body, InPath, Parameters};
use super::question::{RunLimits, StartReply};
use super::search::PassageReply;
use crate::engine::{
    Amounts, EgressKind, Finding, ResumeRequest, RunStatus, RunView, SourceHint, StoredRuns, UsageTable,
};
use crate::render::{self, ReportFormat};

pub(super) async fn list(State(app): State<App>) -> Result<Json<StoredRuns>, FailureReply> {
    Ok(Json(app.engine.runs().await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RunPath {
    /// Id of the run, or a prefix of it.
    pub(super) run: String,
}

/// The state, and the run in the path.
pub(super) type OfRun = (State<App>, InPath<RunPath>);

/// A run with what it has found and spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunReply {
    #[serde(flatten)]
    status: RunStatus,
    limits: RunLimits,
    /// What the answer has to cover.
    aspects: Vec<String>,
    /// What the finished sub-questions found.
    findings: Vec<NodeFindings>,
    usage: UsageTable,
    /// Texts that left this machine, or were withheld.
    egress: Vec<Left>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NodeFindings {
    node: String,
    /// Where it was looked for.
    source: SourceHint,
    /// From 0 to 1.
    confidence: f32,
    /// Each finding with its quotes.
    findings: Vec<FindingReply>,
    /// What it could not do.
    notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FindingReply {
    text: String,
    /// Ids of quotes.
    quotes: Vec<String>,
}

/// A text that left this machine, or was withheld.
#[derive(Debug, Serialize, JsonSchema)]
struct Left {
    node: String,
    kind: EgressKind,
    /// Who received it.
    target: String,
    text: String,
    /// Why it was withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<String>,
}

pub(super) async fn show((State(app), InPath(RunPath { run })): OfRun) -> Result<Json<RunReply>, FailureReply> {
    let RunView { status, limits, aspects, branches, usage, egress } = app.runs.view(&app.engine, &run).await?;
    let findings = branches.iter().map(|(node, branch)| NodeFindings {
        node: node.id.to_string(),
        source: node.source_hint,
        confidence: branch.report.confidence,
        findings: branch.report.findings.iter().map(FindingReply::from).collect(),
        notes: branch.notes.clone(),
    });
    let left = egress.into_iter().map(|row| Left {
        node: row.node.to_string(),
        kind: row.kind,
        target: row.target,
        text: row.text,
        withheld: row.withheld.map(|reason| reason.to_string()),
    });
    let (findings, egress) = (findings.collect(), left.collect());
    Ok(Json(RunReply { status, limits: limits.into(), aspects, findings, usage, egress }))
}

impl From<&Finding> for FindingReply {
    fn from(finding: &Finding) -> Self {
        Self { text: finding.text.clone(), quotes: finding.evidence.iter().map(ToString::to_string).collect() }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportQuery {
    /// `json` if left out.
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Markdown,
    /// Markdown with front matter, for a folder of notes.
    Note,
    /// A page of its own.
    Html,
    /// The contents of such a page.
    Fragment,
}

/// Returns the report of a run that has ended or was stopped.
pub(super) async fn report(
    (State(app), InPath(RunPath { run })): OfRun,
    Parameters(ReportQuery { format }): Parameters<ReportQuery>,
) -> Result<NoApi<Response>, FailureReply> {
    let report = app.runs.report(&app.engine, &run).await?.report;
    let (name, kind, text) = match format {
        Format::Json => ("report.json", "application/json", render::report(&report, ReportFormat::Json)?),
        Format::Markdown => ("report.md", "text/markdown", render::report(&report, ReportFormat::Markdown)?),
        Format::Note => ("note.md", "text/markdown", render::report(&report, ReportFormat::Note)?),
        Format::Html => ("report.html", "text/html", render::report(&report, ReportFormat::Html)?),
        // Never an attachment, so it needs no name.
        Format::Fragment => ("", "text/html", render::html::body(&report)?),
    };
    let kind = format!("{kind}; charset=utf-8");
    // The page shows only fragments: a complete report would run under the address of this server.
    Ok(NoApi(if format == Format::Fragment {
        ([(header::CONTENT_TYPE, kind)], text).into_response()
    } else {
        let file = format!("attachment; filename=\"{name}\"");
        ([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, file)], text).into_response()
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct QuotePath {
    /// Id of the run, or a prefix of it.
    run: String,
    /// Id of the quote, as a report cites it.
    quote: String,
}

/// Returns the document that a quote is from, with the quote marked.
pub(super) async fn quote(
    State(app): State<App>,
    InPath(QuotePath { run, quote }): InPath<QuotePath>,
) -> Result<Json<PassageReply>, FailureReply> {
    let found = app.engine.quoted(&run, &quote).await?;
    Ok(Json(found.ok_or_else(|| FailureReply::not_found(&format!("quote `{quote}`")))?.into()))
}

/// Stops a run cleanly.
pub(super) async fn cancel((State(app), InPath(RunPath { run })): OfRun) -> Result<Json<RunStatus>, FailureReply> {
    Ok(Json(app.runs.cancel(&app.engine, &run).await?))
}

/// Amounts that are added to the limits of a run. As with `dr resume`, they may exceed the limits of the settings: the page
/// is the user's own.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "an object of amounts")]
pub(super) struct RaiseForm {
    /// US dollars.
    cost_usd: f64,
    tokens: u64,
    /// Active time.
    seconds: u32,
    rounds: u32,
}

/// Resumes a run, with higher limits if requested.
pub(super) async fn resume(
    (State(app), InPath(RunPath { run })): OfRun,
    Body(raise): Body<RaiseForm>,
) -> Result<(StatusCode, Json<StartReply>), FailureReply> {
    // The other amounts are unsigned: only this one could be negative.
    if !(raise.cost_usd.is_finite() && raise.cost_usd >= 0.0) {
        return Err(FailureReply::invalid("`cost_usd` is not an amount"));
    }
    let add = Amounts {
        dollars: Some(raise.cost_usd),
        tokens: Some(raise.tokens),
        time: Some(Duration::from_secs(raise.seconds.into())),
        rounds: Some(raise.rounds),
    };
    let request = ResumeRequest { add, max_jobs: app.max_jobs, ..ResumeRequest::default() };
    let run = app.runs.resume(&app.engine, &run, request).await?;
    Ok((StatusCode::ACCEPTED, Json(StartReply { run_id: run.to_string() })))
}

/// Removes a run, and its entries in the research memory.
pub(super) async fn remove((State(app), InPath(RunPath { run })): OfRun) -> Result<StatusCode, FailureReply> {
    // Found first, so that an ambiguous prefix removes nothing.
    for run in app.engine.find_runs(&[run]).await? {
        app.engine.remove_run(&run).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
