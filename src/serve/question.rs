//! Questions: the form and its choices, a plan with its estimate, and the start of a run.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::failure::FailureReply;
use super::form::Body;
use crate::base::money::dollars;
use crate::engine::{AskRequest, BudgetLimits, Engine, Planned, QuestionForm, SavedPlan};

/// What the server can do, for a form to ask a question with.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "About")]
pub(super) struct ServerInfo {
    version: &'static str,
    /// Whether a language model is set up. Without one, answers are verbatim passages and cost nothing.
    has_model: bool,
    /// Limits of a run; a question may lower them.
    limits: RunLimits,
}

/// Limits of a run. A limit that is left out is not set.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(super) struct RunLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Active time.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<u32>,
}

impl From<BudgetLimits> for RunLimits {
    fn from(limits: BudgetLimits) -> Self {
        Self {
            cost_usd: limits.cost_nanos.map(dollars),
            tokens: limits.tokens,
            seconds: limits.time.map(|time| time.as_secs_f64()),
            rounds: limits.rounds,
        }
    }
}

pub(super) async fn about(State(app): State<App>) -> Result<Json<ServerInfo>, FailureReply> {
    let limits = app.engine.limits(app.max_jobs)?.into();
    Ok(Json(ServerInfo { version: env!("CARGO_PKG_VERSION"), has_model: app.engine.has_model()?, limits }))
}

/// A question, and a plan to use instead of making one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object with `question`")]
pub(super) struct Asking {
    question: QuestionForm,
    /// A plan that `/plans` returned, which may have been edited.
    #[schemars(with = "Option<serde_json::Value>")]
    plan: Option<SavedPlan>,
}

impl Asking {
    fn request(self, app: &App) -> Result<(Engine, AskRequest), FailureReply> {
        let (engine, request) = self.question.request(&app.engine, app.max_jobs)?;
        Ok((engine, AskRequest { plan: self.plan, ..request }))
    }
}

/// A planned run, which has spent what its plan cost.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PlanReply {
    /// The run, to be resumed if the plan is to be used as it is.
    run_id: String,
    /// The plan, to be edited and sent with the question.
    #[schemars(with = "serde_json::Value")]
    plan: SavedPlan,
    calls: Range,
    tokens: Range,
    /// US dollars; null if a price is not known.
    cost_usd: Option<[f64; 2]>,
    seconds: Range,
    limits: RunLimits,
}

/// The usual lower and upper value of a figure.
type Range = [u64; 2];

pub(super) async fn plan(State(app): State<App>, Body(asking): Body<Asking>) -> Result<Json<PlanReply>, FailureReply> {
    let (engine, request) = asking.request(&app)?;
    let Planned { run, plan, estimate, .. } = app.runs.plan(&engine, request).await?;
    Ok(Json(PlanReply {
        run_id: run.to_string(),
        plan,
        calls: [estimate.calls.low, estimate.calls.high],
        tokens: [estimate.tokens.low, estimate.tokens.high],
        cost_usd: estimate.cost_nanos.map(|cost| [dollars(cost.low), dollars(cost.high)]),
        seconds: [estimate.seconds.low, estimate.seconds.high],
        limits: estimate.limits.into(),
    }))
}

/// A run that was started, or that answered the question before.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StartedRun")]
pub(super) struct StartReply {
    pub(super) run_id: String,
}

pub(super) async fn start(
    State(app): State<App>,
    Body(asking): Body<Asking>,
) -> Result<(StatusCode, Json<StartReply>), FailureReply> {
    let (engine, request) = asking.request(&app)?;
    let run = app.runs.start(&engine, request).await?;
    tracing::info!(%run, "run started");
    Ok((StatusCode::ACCEPTED, Json(StartReply { run_id: run.to_string() })))
}
