//! Background research: a provider searches and reads for minutes, and `dr` collects a report.
//!
//! ```text
//! settings ─▶ provider ─▶ create ─▶ job ─▶ retrieve … ─▶ raw reply ─▶ report ─▶ cost
//! ```
//!
//! Nothing here stores, waits or pays; `run::jobs` drives a job and settles its cost.
//!
//! # Where to look
//!
//! - [`provider`] is the trait. A new provider is one file like [`openai`] and one variant of [`ProviderKind`].
//! - [`settings`] resolves the table `[deep_research]`.
//! - [`report`] and [`cost`] are what every provider's raw reply becomes.

mod job;

pub(crate) mod report;

mod request;

mod cost;

mod provider;

mod settings;

mod openai;

#[cfg(test)]
mod scripted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::http::HttpError;
use crate::base::id::ContentHash;
use crate::base::outbound::Outbound;
use crate::llm::price::{Price, PriceTable};

pub(crate) use job::{Job, JobId, JobState, ProviderKind};
pub(crate) use openai::OpenAiJobs;
pub(crate) use provider::{JobError, Provider};
pub(crate) use report::JobReport;
pub(crate) use request::JobRequest;
#[cfg(test)]
pub(crate) use scripted::ScriptedJobs;
pub(crate) use settings::{DeepResearchError, DeepResearchOptions, DeepResearchSettings, job_cap};

impl ProviderKind {
    /// Sets up the provider. Nothing is sent yet.
    pub(crate) fn connect(self, settings: &DeepResearchSettings) -> Result<Arc<dyn Provider>, HttpError> {
        match self {
            Self::OpenAi => Ok(Arc::new(OpenAiJobs::of(settings)?)),
            #[cfg(test)]
            Self::Scripted => Ok(Arc::new(scripted::ScriptedJobs::default())),
        }
    }

    /// Parses the raw reply of a job. Never fails: what cannot be read is left out.
    pub(crate) fn parse(self, raw: &str) -> JobReport {
        match self {
            Self::OpenAi => openai::parse(raw),
            #[cfg(test)]
            Self::Scripted => scripted::parse(raw),
        }
    }
}

/// Deep Research, ready to start jobs.
pub struct DeepResearch {
    /// The limits of a job, and the models to try.
    pub(crate) settings: DeepResearchSettings,
    /// Runs the jobs.
    pub(crate) provider: Arc<dyn Provider>,
    prices: PriceTable,
    /// Whether a job whose start has an unknown outcome is started again.
    pub(crate) retry_unknown: bool,
}

impl DeepResearch {
    /// Connects to the provider that the settings name.
    ///
    /// # Errors
    ///
    /// Returns an error if no client can be set up for its address.
    pub(crate) fn new(
        settings: DeepResearchSettings,
        prices: PriceTable,
        retry_unknown: bool,
    ) -> Result<Self, HttpError> {
        let provider = settings.provider.connect(&settings)?;
        Ok(Self { settings, provider, prices, retry_unknown })
    }

    /// Replaces the provider, for example by one in this process.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn at(self, provider: Arc<dyn Provider>) -> Self {
        Self { provider, ..self }
    }

    /// Returns the billionths of a dollar set aside for one job; `None` if its price is unknown.
    pub(crate) fn cap(&self) -> Option<u64> {
        self.cap_of(self.settings.models.first()?)
    }

    /// Returns the billionths of a dollar set aside for one job of `model`; `None` if its price is unknown.
    pub(crate) fn cap_of(&self, model: &str) -> Option<u64> {
        job_cap(&self.settings, self.price(model).as_ref())
    }

    /// Returns the price of a model, if it is known.
    pub(crate) fn price(&self, model: &str) -> Option<Price> {
        self.settings.price(model, &self.prices)
    }

    /// Returns whether any model has a price. Jobs of a model without one cannot run under a cost limit.
    pub(crate) fn is_priced(&self) -> bool {
        self.settings.models.iter().any(|model| self.price(model).is_some())
    }

    /// Returns how long one job may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns how many jobs one run may start.
    pub(crate) fn max_jobs(&self) -> usize {
        self.settings.max_jobs
    }

    /// Returns a hash of everything but the instructions that a report depends on.
    pub(crate) fn version(&self) -> String {
        let mut request = self.settings.request(&self.settings.models.join(","), Outbound::default(), BTreeMap::new());
        if let Some(mcp) = &mut request.terms.mcp {
            mcp.authorization = None;
        }
        let version = format!("{}\n{request:?}", self.settings.address);
        ContentHash::of(version.as_bytes()).as_str().to_owned()
    }
}
