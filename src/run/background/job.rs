//! A background job: its id, its state, and the raw reply that reports the state.

use std::fmt;

use crate::base::id::JobId;

/// State of a job.
///
/// ```text
/// Queued ─▶ InProgress ─▶ Completed
///   │           ├───────▶ Incomplete, Failed
///   └───────────┴───────▶ Cancelled            any of them, after a while ─▶ Vanished
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Waiting to be started.
    Queued,
    /// Being worked on.
    InProgress,
    /// Finished with a complete reply.
    Completed,
    /// Ended without a reply.
    Failed { reason: String },
    /// Stopped at a limit, with a partial reply.
    Incomplete { reason: String },
    /// Cancelled on request.
    Cancelled,
    /// Not known to the provider, or no longer.
    Vanished,
    /// A status this version does not know.
    Unknown(String),
}

impl JobState {
    /// Returns whether the state is final. An unknown status is not, so that polling continues until the deadline.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Completed | Self::Failed { .. } | Self::Incomplete { .. } | Self::Cancelled | Self::Vanished => true,
            Self::Queued | Self::InProgress | Self::Unknown(_) => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("queued"),
            Self::InProgress => f.write_str("in progress"),
            Self::Completed => f.write_str("completed"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
            Self::Incomplete { reason } => write!(f, "incomplete: {reason}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Vanished => f.write_str("vanished"),
            Self::Unknown(status) => write!(f, "in an unknown state `{status}`"),
        }
    }
}

/// A job as the provider reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Id for polling and cancelling.
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    /// The reply verbatim, except that secrets are removed. Store it before parsing it.
    pub(crate) raw: String,
}

impl Job {
    /// Returns why a finished job has no report, with the consequences if the job vanished.
    pub(crate) fn why_nothing(&self) -> String {
        match &self.state {
            JobState::Vanished => format!(
                "the provider no longer has job `{}` or its report; its cost is unknown, so its cap is charged, and it is \
                  not started again: ask the question anew for another",
                self.id
            ),
            state => state.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vanished_job_is_reported_with_the_consequences() {
        let job = |state| Job { id: "resp_7".parse().unwrap(), state, raw: String::new() };
        let why = job(JobState::Vanished).why_nothing();
        assert!(
            why.starts_with("the provider no longer has job `resp_7`") && why.contains("its cap is charged"),
            "{why}"
        );
        assert_eq!(job(JobState::Failed { reason: "oh".into() }).why_nothing(), "failed: oh");
    }
}
