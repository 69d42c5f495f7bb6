//! Background jobs of the Responses API.
//!
//! ```text
//! request ─▶ create (one POST) ─▶ id ─▶ retrieve … retrieve ─▶ raw reply ─▶ report
//!                                           └────▶ cancel
//! ```

mod request;
mod state;
mod report;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::civil::Date;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use self::report::parse;
use self::request::request_body;
use self::state::state_of;
use super::ProviderKind;
use super::job::{Job, JobState};
use super::provider::{JobError, ModelChoice, ModelStatus, Provider, ProviderFacts};
use super::request::JobRequest;
use super::settings::{DeepResearchOptions, DeepResearchSettings, is_model_name};
use crate::base::clock::{Clock, SystemClock};
use crate::base::environment::{Environment, OPENAI_BASE_URL};
use crate::base::http::{BaseUrl, Exchange, HttpError, Secret, authorized, client_for, exchange};
use crate::base::id::JobId;
use crate::base::line::shortened;
use crate::llm::endpoint::{EndpointError, ModelEndpoint};
use crate::llm::model::ModelError;
use crate::llm::openai::{MAX_REPLY_BYTES, failure};

pub(super) static FACTS: ProviderFacts = ProviderFacts {
    // Newest first.
    models: &["gpt-6.1-sol", "gpt-6-sol", "gpt-5.6-sol", "gpt-5.5", "o4-mini-deep-research", "o3-deep-research"],
    address_variable: OPENAI_BASE_URL,
    endpoint,
    connect: |settings| Ok(Arc::new(OpenAiJobs::of(settings)?)),
    parse,
};

/// Time-out of a single request about a job. The job itself takes longer.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the endpoint, and whether jobs can be started there: with a key, or at a server that the user names for
/// research. `OPENAI_BASE_URL` names one for prompts, and most local servers do no research.
pub(super) fn endpoint(
    options: &DeepResearchOptions,
    environment: &Environment,
) -> Result<(ModelEndpoint, bool), EndpointError> {
    let endpoint = ModelEndpoint::resolve(options.base_url.as_deref(), options.key_env.as_deref(), environment)?;
    let is_available = endpoint.key.is_some() || (options.base_url.is_some() && !endpoint.address.is_openai());
    Ok((endpoint, is_available))
}

/// Client for the jobs of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct OpenAiJobs {
    address: BaseUrl,
    key: Option<Secret>,
    /// Other secrets to remove from replies.
    hidden: Vec<Secret>,
    client: Client,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl OpenAiJobs {
    /// Returns a client for the endpoint in the settings.
    pub(crate) fn of(settings: &DeepResearchSettings) -> Result<Self, HttpError> {
        let client = client_for(&settings.address)?;
        let authorization = settings.terms.mcp.as_ref().and_then(|server| server.authorization.clone());
        let jobs = Self::new(settings.address.clone(), settings.key.clone(), client, REQUEST_TIMEOUT);
        Ok(jobs.hiding(authorization))
    }

    /// Returns a client. `timeout` limits a single request.
    pub(crate) fn new(address: BaseUrl, key: Option<Secret>, client: Client, timeout: Duration) -> Self {
        Self { address, key, hidden: Vec::new(), client, timeout, clock: Arc::new(SystemClock) }
    }

    /// Returns a client whose requests time out by another clock.
    #[cfg(test)]
    pub(crate) fn on(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Removes a secret from all replies: some endpoints echo the request.
    #[must_use]
    pub(crate) fn hiding(mut self, secret: Option<Secret>) -> Self {
        self.hidden.extend(secret);
        self
    }

    /// Returns a client whose requests take at most `most`.
    #[must_use]
    pub(crate) fn within(&self, most: Duration) -> Self {
        Self { timeout: self.timeout.min(most), ..self.clone() }
    }

    async fn post(&self, body: &Value) -> Result<Job, JobError> {
        let request = self.request(Method::POST, self.address.with_path("/responses")).json(body);
        let answer = self.send(request).await.map_err(unknown_outcome)?;
        let said = read_started(&answer.body)?;
        Ok(Job { id: said.0, state: said.1, raw: answer.body })
    }

    async fn get(&self, id: &JobId) -> Result<Job, JobError> {
        let path = self.address.with_path(&format!("/responses/{id}"));
        self.about(id, self.request(Method::GET, path)).await
    }

    async fn call_off(&self, id: &JobId) -> Result<Job, JobError> {
        let path = self.address.with_path(&format!("/responses/{id}/cancel"));
        match self.about(id, self.request(Method::POST, path)).await {
            // Some endpoints return an error for the cancellation of a finished job.
            Err(JobError::Refused(ModelError::Permanent { reason })) => {
                let job = self.get(id).await?;
                if job.state.is_over() { Ok(job) } else { Err(JobError::Refused(ModelError::Permanent { reason })) }
            }
            outcome => outcome,
        }
    }

    async fn model_exists(&self, model: &str, today: Date) -> Result<ModelStatus, JobError> {
        let Some(url) = self.model_url(model) else { return Ok(ModelStatus::Missing) };
        let answer = match self.send(self.request(Method::GET, url.into())).await {
            Ok(answer) => answer,
            Err(failed) if failed.is_missing() => return Ok(ModelStatus::Missing),
            Err(failed) => return Err(no_answer(failed)),
        };
        let known: Value = serde_json::from_str(&answer.body).map_err(|_| not_json(&answer.body))?;
        if !known["id"].is_string() {
            return Ok(ModelStatus::Missing);
        }
        let until = known["shutdown_date"].as_str().and_then(|day| day.get(..10)?.parse::<Date>().ok());
        Ok(match until {
            Some(since) if since <= today => ModelStatus::ShutDown { since },
            until => ModelStatus::Available { until },
        })
    }

    async fn first_available(&self, models: &[String], today: Date) -> Result<ModelChoice, JobError> {
        let mut passed_over = Vec::new();
        for model in models {
            match self.model_exists(model, today).await? {
                ModelStatus::Available { .. } => return Ok(ModelChoice { model: Some(model.clone()), passed_over }),
                status => passed_over.push((model.clone(), status)),
            }
        }
        Ok(ModelChoice { model: None, passed_over })
    }

    /// Returns the URL that describes a model, with its name escaped, or `None` for an invalid name.
    fn model_url(&self, model: &str) -> Option<Url> {
        let mut url = Url::parse(&self.address.with_path("/models")).ok()?;
        // `..` would change the path.
        let is_dots = model.bytes().all(|byte| byte == b'.');
        url.path_segments_mut().ok()?.push(model);
        (is_model_name(model) && !is_dots).then_some(url)
    }

    async fn about(&self, id: &JobId, request: RequestBuilder) -> Result<Job, JobError> {
        match self.send(request).await {
            Ok(answer) => {
                let raw: Value = serde_json::from_str(&answer.body).map_err(|_| not_json(&answer.body))?;
                if !raw.is_object() {
                    return Err(not_json(&answer.body));
                }
                Ok(Job { id: id.clone(), state: state_of(&raw), raw: answer.body })
            }
            Err(failed) if matches!(failed.status, Some(StatusCode::NOT_FOUND | StatusCode::GONE)) => {
                Ok(Job { id: id.clone(), state: JobState::Vanished, raw: failed.body })
            }
            Err(failed) => Err(no_answer(failed)),
        }
    }

    fn request(&self, method: Method, url: String) -> RequestBuilder {
        authorized(self.client.request(method, url), self.key.as_ref())
    }

    /// Sends a request once and reads its reply.
    async fn send(&self, request: RequestBuilder) -> Result<JobReply, FailedRequest> {
        let Exchange { status, headers, body } =
            exchange(request, MAX_REPLY_BYTES, self.clock.deadline(self.timeout)).await.map_err(|error| {
                let error = failure::without_answer(&error, self.timeout);
                FailedRequest { status: None, body: String::new(), error }
            })?;
        let body = self.scrubbed(&body);
        if status.is_success() {
            return Ok(JobReply { body });
        }
        let error = failure::answered(status, &headers, &body);
        Err(FailedRequest { status: Some(status), body, error })
    }

    fn scrubbed(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body).into_owned();
        self.key.iter().chain(&self.hidden).fold(text, |text, secret| secret.scrub(&text))
    }
}

impl Provider for OpenAiJobs {
    fn kind(&self) -> ProviderKind {
        ProviderKind::OpenAi
    }

    fn choose_model<'a>(
        &'a self,
        models: &'a [String],
        today: Date,
        most: Duration,
    ) -> BoxFuture<'a, Result<ModelChoice, JobError>> {
        Box::pin(async move { self.within(most).first_available(models, today).await })
    }

    fn create<'a>(&'a self, request: &'a JobRequest, most: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        let body = request_body(request);
        Box::pin(async move { self.within(most).post(&body).await })
    }

    fn retrieve<'a>(&'a self, id: &'a JobId, most: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        Box::pin(async move { self.within(most).get(id).await })
    }

    fn cancel<'a>(&'a self, id: &'a JobId, most: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        Box::pin(async move { self.within(most).call_off(id).await })
    }
}

struct JobReply {
    body: String,
}

/// A request that failed or got no reply.
struct FailedRequest {
    /// `None` if there was no reply.
    status: Option<StatusCode>,
    body: String,
    error: ModelError,
}

impl FailedRequest {
    /// Returns whether the endpoint reports that the resource does not exist or is not available to the account.
    fn is_missing(&self) -> bool {
        match self.status {
            Some(StatusCode::NOT_FOUND | StatusCode::GONE) => true,
            Some(StatusCode::FORBIDDEN) => self.body.contains("model_not_found"),
            _ => false,
        }
    }

    /// Returns whether the endpoint rejects only the request for reasoning summaries.
    fn refuses_summaries(&self) -> bool {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let says = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        matches!(self.status, Some(StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN))
            && (says("/error/param") == "reasoning.summary" || says("/error/message").contains("reasoning summar"))
    }
}

/// Parses the reply to the request that starts a job.
fn read_started(body: &str) -> Result<(JobId, JobState), JobError> {
    let permanent = |reason: String| JobError::Refused(ModelError::Permanent { reason });
    // Not an unknown outcome: a server that answers with a page for people has started no job.
    if body.trim_start().starts_with('<') {
        return Err(permanent("the answer is a web page; `base_url` is not the address of an API".into()));
    }
    let unknown = |reason: String| JobError::OutcomeUnknown { reason };
    let raw: Value = serde_json::from_str(body).map_err(|_| unknown("the answer is not JSON".into()))?;
    match raw["id"].as_str() {
        Some(id) => Ok((id.parse().map_err(|error| unknown(format!("{error}")))?, state_of(&raw))),
        // Gateways report upstream failures with status 200.
        None if raw["error"].is_object() => Err(match failure::reported(&raw, &raw["error"]) {
            ModelError::Unknown { reason } => unknown(reason),
            error => JobError::Refused(error),
        }),
        // It has the form of a job, so one may be running and billed.
        None if raw["object"] == "response" || raw.get("status").is_some() || raw.get("output").is_some() => {
            Err(unknown("the answer has no id".into()))
        }
        None => Err(permanent(format!("the answer is not a background job: {}", shortened(body)))),
    }
}

/// Classifies the failure of a request that starts a job.
///
/// A gateway time-out says nothing about the server behind it, and a server may fail after it has queued the job. Only
/// an explicit "busy" means that no job was started.
fn unknown_outcome(failed: FailedRequest) -> JobError {
    if failed.refuses_summaries() {
        return JobError::SummariesRefused { reason: failed.error.to_string() };
    }
    // Without a status, a passing failure means that no connection was made.
    let is_busy = failed.status.is_none_or(|status| matches!(status.as_u16(), 409 | 503 | 529));
    match failed.error {
        ModelError::Transient { reason, .. } if !is_busy => JobError::OutcomeUnknown { reason },
        ModelError::Unknown { reason } => JobError::OutcomeUnknown { reason },
        error => JobError::Refused(error),
    }
}

/// Classifies the failure of a poll. Polling is free, so its outcome never needs to be known.
fn no_answer(failed: FailedRequest) -> JobError {
    match failed.error {
        ModelError::Unknown { reason } => JobError::NoAnswer { reason },
        error => JobError::Refused(error),
    }
}

fn not_json(body: &str) -> JobError {
    JobError::NoAnswer { reason: format!("the answer is not JSON: {}", shortened(body)) }
}
