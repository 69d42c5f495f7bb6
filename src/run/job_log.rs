//! The jobs of a run as its journal has them: what each looked for, what it read, what it cost.

use serde::Serialize;

use super::journal::{CallRow, CallState, Journal, JournalError};
use super::usage::cost_usd;
use crate::base::id::RunId;

/// A job that was started, or may have been.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobEntry {
    /// The node it was started for.
    pub node: Option<String>,
    /// The model.
    pub model: String,
    /// Its id at the provider's, where that is known.
    pub job: Option<String>,
    /// Where its call stands.
    pub outcome: CallState,
    /// Why it brought nothing, where it did not.
    pub error: Option<String>,
    /// What is booked for it, in dollars; none where nobody knows.
    pub cost_usd: Option<f64>,
    /// What it searched for.
    pub searches: Vec<String>,
    /// Pages it opened.
    pub opened: Vec<String>,
    /// What it says it thought.
    pub reasoning: Vec<String>,
    /// Its report, as it came.
    pub report: String,
}

/// Returns the jobs of a run, oldest first.
///
/// # Errors
///
/// Returns an error where the journal cannot be read.
pub async fn jobs_of(journal: &Journal, run: &RunId) -> Result<Vec<JobEntry>, JournalError> {
    Ok(journal.job_calls(run).await?.into_iter().map(JobEntry::of).collect())
}

impl JobEntry {
    fn of(call: CallRow) -> Self {
        let report = call
            .reply
            .as_ref()
            .map(|reply| call.provider.unwrap_or_default().parse(&reply.raw.to_string()))
            .unwrap_or_default();
        Self {
            node: call.node().map(|node| node.to_string()),
            cost_usd: cost_usd(&call),
            model: call.model,
            job: call.job.map(String::from),
            outcome: call.state,
            error: call.error,
            searches: report.searches,
            opened: report.opened,
            reasoning: report.reasoning,
            report: report.text,
        }
    }
}
