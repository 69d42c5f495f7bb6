//! Background research: a provider searches and reads for minutes, and `dr` collects, checks and pays for a report.
//!
//! ```text
//! task ─▶ on record? ─▶ start ─▶ poll … ─▶ raw reply ─▶ report ─▶ claims, verified against the pages they cite
//!         └──────── jobs ────┘   └ poll ─┘               report    verify
//! ```
//!
//! # Where to look
//!
//! - [`provider`] has the trait of a provider and the facts about one. A second one is a file like [`openai`], a variant
//!   of [`ProviderKind`], and the arm of `facts` that the compiler then asks for.
//! - [`settings`] resolves the table `[deep_research]`.
//! - [`jobs`] decides whether a job is started, and never starts one twice; [`poll`] follows it and settles its cost.
//! - [`verify`] turns a report into a branch; [`log`] tells what the jobs of a run did.

mod job;
mod report;
mod request;
mod cost;
mod settings;
mod provider;
mod openai;

#[cfg(test)]
mod scripted;
mod poll;
mod jobs;
mod log;
pub(crate) mod verify;

use std::sync::Arc;

use crate::base::http::HttpError;
use crate::base::id::ContentHash;
use crate::llm::price::{Price, PriceTable};

use super::journal::{CallRow, ProviderKind, StartedJob};
pub(crate) use jobs::{Finished, JobTask, Jobs, end_unsent, to_try_again};
pub(crate) use log::{JobEntry, jobs_of};
#[cfg(test)]
pub(crate) use openai::OpenAiJobs;
pub(crate) use provider::Provider;
use provider::ProviderFacts;
#[cfg(test)]
pub(crate) use report::JobCitation;
pub(crate) use report::JobReport;
#[cfg(test)]
pub(crate) use scripted::ScriptedJobs;
pub(crate) use settings::{DeepResearchError, DeepResearchOptions, DeepResearchSettings, job_cap};

impl ProviderKind {
    fn facts(self) -> &'static ProviderFacts {
        match self {
            Self::OpenAi => &openai::FACTS,
            #[cfg(test)]
            Self::Scripted => &scripted::FACTS,
        }
    }

    /// Parses the raw reply of a job. Never fails: what cannot be read is left out.
    pub(crate) fn parse(self, raw: &str) -> JobReport {
        (self.facts().parse)(raw)
    }
}

impl CallRow {
    /// Parses the reply of a job; `None` if it has none, or it was not read.
    fn report(&self) -> Option<JobReport> {
        // Versions that had a single provider did not store it.
        let provider = self.job.as_ref().and_then(|job| job.provider).unwrap_or_default();
        let mut report = provider.parse(&self.reply()?.raw.to_string());
        // A reply does not always list a tool server that was offered and not called. The stored endpoint decides and
        // not the settings, which may have changed since.
        let endpoint = self.job.as_ref().and_then(|job| job.endpoint.as_ref());
        report.had_server |= endpoint.is_none_or(|endpoint| !endpoint.is_web_only);
        Some(report)
    }
}

/// A setting that has changed since a job was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Moved {
    #[error("it was started with another provider: restore `deep_research.provider`")]
    Provider,
    #[error("it was started at `{started_at}`: restore that address (`deep_research.base_url` or `{variable}`)")]
    Address { started_at: String, variable: &'static str },
    #[error("it was started with another key: restore that key (the variable that `deep_research.key_env` names)")]
    Key,
}

/// Deep Research, ready to start jobs.
pub struct DeepResearch {
    /// The limits of a job, and the models to try.
    pub(crate) settings: DeepResearchSettings,
    pub(crate) provider: Arc<dyn Provider>,
    prices: PriceTable,
    /// Whether a job whose start has an unknown outcome is started again.
    pub(crate) retry_unknown: bool,
}

impl DeepResearch {
    /// Connects to the provider that the settings name.
    pub(crate) fn new(
        settings: DeepResearchSettings,
        prices: PriceTable,
        retry_unknown: bool,
    ) -> Result<Self, HttpError> {
        let provider = (settings.provider.facts().connect)(&settings)?;
        Ok(Self { settings, provider, prices, retry_unknown })
    }

    /// Replaces the provider, for example by one in this process.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn at(self, provider: Arc<dyn Provider>) -> Self {
        Self { provider, ..self }
    }

    /// Returns the setting that has changed since a job was started. `None` if none has, or if it is not known where
    /// it was started, as in journals of older versions.
    fn moved(&self, job: &StartedJob) -> Option<Moved> {
        if job.provider.is_some_and(|provider| provider != self.provider.kind()) {
            return Some(Moved::Provider);
        }
        let (here, there) = (self.settings.endpoint(&job.id), job.endpoint.as_ref()?);
        if there.address != here.address {
            let variable = self.provider.kind().facts().address_variable;
            return Some(Moved::Address { started_at: there.address.clone(), variable });
        }
        (there.key != here.key).then_some(Moved::Key)
    }

    /// Returns the billionths of a dollar set aside for one job; `None` if its price is unknown.
    pub(crate) fn cap(&self) -> Option<u64> {
        self.cap_of(self.settings.models.first()?)
    }

    /// Returns the billionths of a dollar set aside for one job of `model`; `None` if its price is unknown.
    pub(crate) fn cap_of(&self, model: &str) -> Option<u64> {
        job_cap(&self.settings, self.price(model).as_ref())
    }

    pub(crate) fn price(&self, model: &str) -> Option<Price> {
        self.settings.price(model, &self.prices)
    }

    /// Returns whether any model has a price. Jobs of a model without one cannot run under a cost limit.
    pub(crate) fn is_priced(&self) -> bool {
        self.settings.models.iter().any(|model| self.price(model).is_some())
    }

    /// Returns a hash of everything but the instructions that a report depends on.
    pub(crate) fn version(&self) -> String {
        let DeepResearchSettings { address, models, terms, .. } = &self.settings;
        let mut terms = terms.clone();
        // A report does not depend on the key of the tool server.
        if let Some(mcp) = &mut terms.mcp {
            mcp.authorization = None;
        }
        let version = format!("{address}\n{}\n{terms:?}", models.join(","));
        ContentHash::of(version.as_bytes()).as_str().to_owned()
    }
}
