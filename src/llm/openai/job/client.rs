//! Jobs are started, asked after and called off: one request each, sent once.

use std::time::Duration;

use jiff::civil::Date;
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use super::state::{Job, JobId, JobState};
use crate::base::http::{BaseUrl, Secret, read_capped};
use crate::base::line::shortened;
use crate::base::retry::MAX_WAIT;
use crate::llm::model::ModelError;
use crate::llm::openai::{MAX_REPLY_BYTES, failure};

/// The first wait before a job is asked after again.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The longest, unless the endpoint asks for more.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How many times as long each further wait is.
const GROWTH: f64 = 1.5;

/// Longest name of a model that is asked for.
const MAX_MODEL: usize = 200;

/// Returns how long to wait before asking after a job again.
///
/// `attempt` counts from 0. An endpoint that says when to come back is taken at its word, from two seconds up to a minute.
pub fn poll_delay(attempt: u32, retry_after: Option<Duration>) -> Duration {
    if let Some(wanted) = retry_after {
        return wanted.clamp(FIRST_WAIT, MAX_WAIT);
    }
    // Beyond this the longest wait is reached long since, and the power stays finite.
    let attempt = i32::try_from(attempt.min(32)).unwrap_or(i32::MAX);
    FIRST_WAIT.mul_f64(GROWTH.powi(attempt)).min(LONGEST_WAIT)
}

/// A request about a job brought nothing to go on with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JobError {
    /// The request to start a job was sent, and no reply names one: it may be running, and be paid for.
    #[error("no reply to the request for a job, which may be running: {reason}")]
    OutcomeUnknown {
        /// What happened.
        reason: String,
    },

    /// The endpoint did not do it. Where a job was to be started, none was, and nothing was paid.
    #[error("endpoint does not do jobs now")]
    Refused(#[source] ModelError),

    /// The question after a job, or the order to call it off, has no answer; the job goes on as it would.
    #[error("no answer about a job: {reason}")]
    NoAnswer {
        /// What happened.
        reason: String,
    },
}

impl JobError {
    /// Tells whether the same request can be sent again without paying twice, and may then work.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused(ModelError::Transient { .. } | ModelError::RateLimited { .. }) | Self::NoAnswer { .. } => {
                true
            }
            Self::OutcomeUnknown { .. } | Self::Refused(_) => false,
        }
    }

    /// Returns when the endpoint wants to be asked again, where it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(ModelError::Transient { retry_after, .. } | ModelError::RateLimited { retry_after }) => {
                *retry_after
            }
            Self::OutcomeUnknown { .. } | Self::NoAnswer { .. } | Self::Refused(_) => None,
        }
    }

    /// Returns what the user can do about this error, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::OutcomeUnknown { .. } => {
                Some("see at the provider's whether the job runs; `--retry-unknown` starts it again".into())
            }
            Self::Refused(ModelError::Authentication) => {
                Some("check the key, and whether its account may use the model".into())
            }
            Self::Refused(ModelError::Quota) => Some("see to the account at the provider's".into()),
            Self::Refused(_) | Self::NoAnswer { .. } => None,
        }
    }
}

/// Whether a model can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStatus {
    /// It can.
    Available {
        /// The day it will be shut down, where that is announced.
        until: Option<Date>,
    },
    /// The endpoint does not know it, or the account may not have it.
    Missing,
    /// It could be had before this day.
    ShutDown {
        /// The day.
        since: Date,
    },
}

/// Which model of a list is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// The first that can be had, if there is one.
    pub model: Option<String>,
    /// Those before it, and why not.
    pub passed_over: Vec<(String, ModelStatus)>,
}

/// The way to the jobs of one endpoint.
#[derive(Clone, Debug)]
pub struct JobClient {
    address: BaseUrl,
    key: Option<Secret>,
    /// Other secrets that are taken out of what the endpoint says.
    hidden: Vec<Secret>,
    client: Client,
    timeout: Duration,
}

impl JobClient {
    /// Sets up the way to an endpoint, on which one request may take as long as `timeout`.
    pub fn new(address: BaseUrl, key: Option<Secret>, client: Client, timeout: Duration) -> Self {
        Self { address, key, hidden: Vec::new(), client, timeout }
    }

    /// Takes a secret out of whatever the endpoint says: some repeat what they were sent.
    #[must_use]
    pub fn hiding(mut self, secret: Option<Secret>) -> Self {
        self.hidden.extend(secret);
        self
    }

    /// Returns the same way, on which a request may take no longer than `most` either.
    #[must_use]
    pub fn within(&self, most: Duration) -> Self {
        Self { timeout: self.timeout.min(most), ..self.clone() }
    }

    /// Starts a job. The request goes out once; dropping the future leaves its outcome unknown.
    ///
    /// # Errors
    ///
    /// [`JobError::OutcomeUnknown`] says that the job may be running, under an id nobody here knows. After
    /// [`JobError::Refused`] there is none.
    pub async fn create(&self, body: &Value) -> Result<Job, JobError> {
        let request = self.request(Method::POST, self.address.with_path("/responses")).json(body);
        let answer = self.send(request).await.map_err(unknown_outcome)?;
        let said = read_started(&answer.body)?;
        Ok(Job { id: said.0, state: said.1, raw: answer.body })
    }

    /// Asks after a job. One the endpoint does not know has vanished, which is no error.
    pub async fn retrieve(&self, id: &JobId) -> Result<Job, JobError> {
        let path = self.address.with_path(&format!("/responses/{id}"));
        self.about(id, self.request(Method::GET, path)).await
    }

    /// Calls a job off, and returns what became of it: one that was over stays as it was.
    pub async fn cancel(&self, id: &JobId) -> Result<Job, JobError> {
        let path = self.address.with_path(&format!("/responses/{id}/cancel"));
        match self.about(id, self.request(Method::POST, path)).await {
            // A job that is over cannot be called off, and some endpoints make a complaint of that.
            Err(JobError::Refused(ModelError::Permanent { reason })) => {
                let job = self.retrieve(id).await?;
                if job.state.is_over() { Ok(job) } else { Err(JobError::Refused(ModelError::Permanent { reason })) }
            }
            outcome => outcome,
        }
    }

    /// Asks whether a model can be had on the day that is `today`.
    pub async fn model_exists(&self, model: &str, today: Date) -> Result<ModelStatus, JobError> {
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

    /// Asks for each model of a list in turn, up to the first that can be had on the day that is `today`.
    pub async fn first_available(&self, models: &[String], today: Date) -> Result<ModelChoice, JobError> {
        let mut passed_over = Vec::new();
        for model in models {
            match self.model_exists(model, today).await? {
                ModelStatus::Available { .. } => return Ok(ModelChoice { model: Some(model.clone()), passed_over }),
                status => passed_over.push((model.clone(), status)),
            }
        }
        Ok(ModelChoice { model: None, passed_over })
    }

    /// Returns where a model is asked for, whatever characters its name has; nothing for what is no name.
    fn model_url(&self, model: &str) -> Option<Url> {
        let is_name = (1..=MAX_MODEL).contains(&model.len()) && model.bytes().all(|byte| byte.is_ascii_graphic());
        let mut url = Url::parse(&self.address.with_path("/models")).ok()?;
        // `..` would lead elsewhere.
        let is_dots = model.bytes().all(|byte| byte == b'.');
        url.path_segments_mut().ok()?.push(model);
        (is_name && !is_dots).then_some(url)
    }

    async fn about(&self, id: &JobId, request: RequestBuilder) -> Result<Job, JobError> {
        match self.send(request).await {
            Ok(answer) => {
                let raw: Value = serde_json::from_str(&answer.body).map_err(|_| not_json(&answer.body))?;
                if !raw.is_object() {
                    return Err(not_json(&answer.body));
                }
                Ok(Job { id: id.clone(), state: JobState::read(&raw), raw: answer.body })
            }
            Err(failed) if matches!(failed.status, Some(StatusCode::NOT_FOUND | StatusCode::GONE)) => {
                Ok(Job { id: id.clone(), state: JobState::Vanished, raw: failed.body })
            }
            Err(failed) => Err(no_answer(failed)),
        }
    }

    fn request(&self, method: Method, url: String) -> RequestBuilder {
        let request = self.client.request(method, url).timeout(self.timeout);
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, key.bearer()),
            None => request,
        }
    }

    /// Sends a request, once, and reads its answer.
    async fn send(&self, request: RequestBuilder) -> Result<Answer, Failed> {
        let lost = |error| Failed { status: None, body: String::new(), error };
        let sent = request.send().await;
        let response = sent.map_err(|error| lost(failure::without_answer(&error, self.timeout)))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_capped(response, MAX_REPLY_BYTES).await;
        if status.is_success() {
            let body = body.map_err(|error| lost(failure::body_lost(&error)))?;
            return Ok(Answer { body: self.scrubbed(&body) });
        }
        // The status says enough where the words behind it were lost.
        let body = self.scrubbed(&body.unwrap_or_default());
        let error = failure::answered(status, &headers, &body, false);
        Err(Failed { status: Some(status), body, error })
    }

    fn scrubbed(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body).into_owned();
        self.key.iter().chain(&self.hidden).fold(text, |text, secret| secret.scrub(&text))
    }
}

/// An answer that is none of failure.
struct Answer {
    body: String,
}

/// A request that was not answered, or with a failure.
struct Failed {
    /// None where there was no answer.
    status: Option<StatusCode>,
    body: String,
    error: ModelError,
}

impl Failed {
    /// Tells whether the endpoint says that what is asked for is not there, or not for this account.
    fn is_missing(&self) -> bool {
        match self.status {
            Some(StatusCode::NOT_FOUND | StatusCode::GONE) => true,
            Some(StatusCode::FORBIDDEN) => self.body.contains("model_not_found"),
            _ => false,
        }
    }
}

/// Reads the answer to the request for a job.
fn read_started(body: &str) -> Result<(JobId, JobState), JobError> {
    let permanent = |reason: String| JobError::Refused(ModelError::Permanent { reason });
    if body.trim_start().starts_with('<') {
        return Err(permanent("it answers with a web page; `base_url` is not that of an API".into()));
    }
    let unknown = |reason: String| JobError::OutcomeUnknown { reason };
    let raw: Value = serde_json::from_str(body).map_err(|_| unknown("the answer is not JSON".into()))?;
    match raw["id"].as_str() {
        Some(id) => Ok((id.parse().map_err(|error| unknown(format!("{error}")))?, JobState::read(&raw))),
        // Gateways report failures of those behind them with status 200.
        None if raw["error"].is_object() => Err(JobError::Refused(failure::reported(&raw["error"]))),
        None if raw["object"] == "response" || raw.get("status").is_some() || raw.get("output").is_some() => {
            Err(unknown("the answer has no id".into()))
        }
        None => Err(permanent(format!("what it answers is no job: {}", shortened(body)))),
    }
}

/// Tells what it means that a job was asked for and not got.
///
/// A gateway that has no answer does not know what happened behind it, and a server that fails may do so after the job
/// was put in its queue. Only one that says it is too busy has not taken the request.
fn unknown_outcome(failed: Failed) -> JobError {
    let is_busy = failed.status.is_none_or(|status| matches!(status.as_u16(), 409 | 503 | 529));
    match failed.error {
        ModelError::Transient { reason, .. } if !is_busy => JobError::OutcomeUnknown { reason },
        ModelError::Unknown { reason } => JobError::OutcomeUnknown { reason },
        error => JobError::Refused(error),
    }
}

/// Tells what it means that a question has no answer: asking costs nothing, so nothing is lost.
fn no_answer(failed: Failed) -> JobError {
    match failed.error {
        ModelError::Unknown { reason } => JobError::NoAnswer { reason },
        error => JobError::Refused(error),
    }
}

fn not_json(body: &str) -> JobError {
    JobError::NoAnswer { reason: format!("the answer is not JSON: {}", shortened(body)) }
}
