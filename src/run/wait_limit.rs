//! Limits the time that a run waits for a source.

use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Purpose};
use crate::llm::call::{CallError, Limit};
use crate::source::SourceError;

/// Limits the wait for answers from outside.
#[derive(Clone)]
pub(crate) struct WaitLimit {
    /// Ends the wait when its time for research is up.
    pub(crate) budget: Budget,
    /// Ends the wait when the run is stopped.
    pub(crate) stop: CancellationToken,
}

impl WaitLimit {
    pub(super) async fn wait<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        tokio::select! {
            answer = answer => answer,
            () = self.stop.cancelled() => Err(SourceError::Stopped(CallError::Cancelled)),
            // Of research, so that time is left to write the report.
            () = self.budget.time_up(Purpose::Research) => Err(SourceError::Stopped(CallError::Limit(Limit::Time))),
        }
    }
}
