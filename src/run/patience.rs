//! How long a run waits for a source.

use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Purpose};
use crate::llm::call::{CallError, Limit};
use crate::source::SourceError;

/// How long answers from outside are waited for.
#[derive(Clone)]
pub(crate) struct Patience {
    /// No longer than there is time in it.
    pub(crate) budget: Budget,
    /// No longer than until this is triggered.
    pub(crate) stop: CancellationToken,
}

impl Patience {
    pub(super) async fn wait<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        tokio::select! {
            answer = answer => answer,
            () = self.stop.cancelled() => Err(SourceError::Stopped(CallError::Cancelled)),
            () = self.budget.time_up(Purpose::Research) => Err(SourceError::Stopped(CallError::Limit(Limit::Time))),
        }
    }
}
