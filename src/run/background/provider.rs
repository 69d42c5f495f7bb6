//! What a provider of background research can do, and the facts about it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::civil::Date;

use super::ProviderKind;
use super::job::Job;
use super::report::JobReport;
use super::request::JobRequest;
use super::settings::{DeepResearchOptions, DeepResearchSettings};
use crate::base::environment::Environment;
use crate::base::http::HttpError;
use crate::base::id::JobId;
use crate::base::retry::{Again, Failure};
use crate::llm::endpoint::{EndpointError, ModelEndpoint};
use crate::llm::model::ModelError;

/// Returns the endpoint of a provider, and whether jobs can be started there.
pub(super) type ResolveEndpoint =
    fn(&DeepResearchOptions, &Environment) -> Result<(ModelEndpoint, bool), EndpointError>;

/// The facts about a provider that no setting changes.
pub(super) struct ProviderFacts {
    /// Its default models, in the order they are tried. A model that was shut down is skipped.
    pub(super) models: &'static [&'static str],
    /// The variable that sets its address, if `deep_research.base_url` does not.
    pub(super) address_variable: &'static str,
    pub(super) endpoint: ResolveEndpoint,
    /// Sets up the provider. Nothing is sent yet.
    pub(super) connect: fn(&DeepResearchSettings) -> Result<Arc<dyn Provider>, HttpError>,
    /// Parses the raw reply of a job. Never fails: what cannot be read is left out.
    pub(super) parse: fn(&str) -> JobReport,
}

/// Starts, polls and cancels background jobs. Each method sends its request once; `most` limits the time it may take.
///
/// Nothing here stores, retries or pays: the caller stores a job's id before its first question about it, and the raw
/// reply before it is parsed.
pub(crate) trait Provider: Send + Sync {
    fn kind(&self) -> ProviderKind;

    /// Returns the first of `models` that the account may use on the day `today`.
    fn choose_model<'a>(
        &'a self,
        models: &'a [String],
        today: Date,
        most: Duration,
    ) -> BoxFuture<'a, Result<ModelChoice, JobError>>;

    /// Starts a job. Dropping the future leaves its outcome unknown.
    ///
    /// # Errors
    ///
    /// After [`JobError::OutcomeUnknown`] the job may be running, under an id that is lost. After any other error, no
    /// job was started.
    fn create<'a>(&'a self, request: &'a JobRequest, most: Duration) -> BoxFuture<'a, Result<Job, JobError>>;

    /// Returns the current state of a job. One that the provider does not know has vanished, which is no error.
    fn retrieve<'a>(&'a self, id: &'a JobId, most: Duration) -> BoxFuture<'a, Result<Job, JobError>>;

    /// Cancels a job and returns its state. A finished job stays as it is.
    fn cancel<'a>(&'a self, id: &'a JobId, most: Duration) -> BoxFuture<'a, Result<Job, JobError>>;
}

/// Whether the account may use a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelStatus {
    /// The account may use it, until the day of its shutdown if one is announced.
    Available { until: Option<Date> },
    /// The endpoint does not know the model, or the account may not use it.
    Missing,
    /// It was shut down.
    ShutDown { since: Date },
}

/// The model chosen from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelChoice {
    /// The first available model.
    pub(crate) model: Option<String>,
    /// The models before it in the list, and why each was skipped.
    pub(crate) passed_over: Vec<(String, ModelStatus)>,
}

/// A request about a job failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum JobError {
    /// The request to start a job was sent, but no reply with a job id arrived: the job may be running and billed.
    #[error("no reply to the request for a background job, which may be running: {reason}")]
    OutcomeUnknown { reason: String },
    /// The account may not use reasoning summaries, so no job was started. The same request without them may succeed.
    #[error("account is not allowed to use reasoning summaries: {reason}")]
    SummariesRefused { reason: String },
    /// The endpoint refused the request. If it was to start a job, none was started and nothing is billed.
    #[error("endpoint refused the request for a background job")]
    Refused(#[source] ModelError),
    /// A poll or a cancellation got no answer. The job is unaffected.
    #[error("no reply to a request about a background job: {reason}")]
    NoAnswer { reason: String },
}

impl JobError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::OutcomeUnknown { .. } => {
                Some("check with the provider whether the job runs; `--retry-unknown` starts it again".into())
            }
            Self::Refused(ModelError::Authentication) => {
                Some("check the key, and that its account may use the model".into())
            }
            Self::Refused(ModelError::Quota) => Some("check the billing of the account with the provider".into()),
            Self::SummariesRefused { .. } => Some("set `summaries = false` in `[deep_research]`".into()),
            Self::Refused(_) | Self::NoAnswer { .. } => None,
        }
    }
}

impl Failure for JobError {
    fn again(&self) -> Again {
        match self {
            Self::OutcomeUnknown { .. } => Again::Unanswered,
            // The same request would be refused again; the caller sends one without summaries.
            Self::SummariesRefused { .. } => Again::Never,
            Self::Refused(error) => error.again(),
            // Polling is free.
            Self::NoAnswer { .. } => Again::Later(None),
        }
    }
}
