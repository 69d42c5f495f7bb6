//! The background jobs of a run, read from its journal: searches, pages, reasoning, report and cost.

use serde::Serialize;

use crate::base::id::RunId;
use crate::run::journal::{CallRow, CallState, Journal, JournalError, StoredOutcome};
use crate::run::usage::cost_usd;

/// A job that was or may have been started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct JobEntry {
    pub(crate) node: Option<String>,
    pub(crate) model: String,
    /// Id at the provider; `None` if the start has no known outcome.
    pub(crate) job: Option<String>,
    pub(crate) outcome: CallState,
    /// Why it has no report.
    pub(crate) error: Option<String>,
    /// Charge in dollars; `None` if its price is unknown.
    pub(crate) cost_usd: Option<f64>,
    pub(crate) searches: Vec<String>,
    pub(crate) opened: Vec<String>,
    pub(crate) reasoning: Vec<String>,
    /// The provider's report, verbatim.
    pub(crate) report: String,
}

/// Returns the jobs of a run, oldest first.
pub(crate) async fn jobs_of(journal: &Journal, run: &RunId) -> Result<Vec<JobEntry>, JournalError> {
    Ok(journal.job_calls(run).await?.into_iter().map(JobEntry::of).collect())
}

impl JobEntry {
    fn of(call: CallRow) -> Self {
        let report = call.report().unwrap_or_default();
        Self {
            node: call.key.node().map(ToString::to_string),
            cost_usd: cost_usd(&call),
            model: call.model.clone(),
            outcome: call.state(),
            job: call.job.map(|job| job.id.into()),
            error: match call.outcome {
                StoredOutcome::Failed { error, .. }
                | StoredOutcome::Unknown { error, .. }
                | StoredOutcome::Lost { error, .. } => Some(error),
                _ => None,
            },
            searches: report.searches,
            opened: report.opened,
            reasoning: report.reasoning,
            report: report.text,
        }
    }
}
