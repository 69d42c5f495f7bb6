//! A background job: its provider, its id, its state, and the raw reply that reports the state.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The supported providers. Settings and journals name them; the compiler names the places that a new variant has to fill
/// in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    /// The Responses API of `OpenAI`, or a server that speaks it.
    #[default]
    OpenAi,
    /// Answers from memory.
    #[cfg(test)]
    Scripted,
}

/// Longest job id, in bytes.
const MAX_ID: usize = 200;

/// Id of a job at its provider.
///
/// Letters, digits, `_` and `-` only. The id comes from a server and is joined onto a URL path, so anything that could
/// lead elsewhere, such as `../models`, is refused when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct JobId(String);

/// The text is not a valid job id. The error leaves the text out, since it is untrusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid job id (expected up to 200 letters, digits, `_` and `-`)")]
pub(crate) struct ParseJobIdError;

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_id = (1..=MAX_ID).contains(&text.len()) && text.bytes().all(is_part);
        if is_id { Ok(Self(text.to_owned())) } else { Err(ParseJobIdError) }
    }
}

impl TryFrom<String> for JobId {
    type Error = ParseJobIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// State of a job.
///
/// ```text
/// Queued ─▶ InProgress ─▶ Completed
///   │           ├───────▶ Incomplete, Failed
///   └───────────┴───────▶ Cancelled            any of them, after a while ─▶ Vanished
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobState {
    /// Waiting to be started.
    Queued,
    /// Running.
    InProgress,
    /// Finished with a complete reply.
    Completed,
    /// Ended without a reply.
    Failed {
        /// The provider's error message.
        reason: String,
    },
    /// Stopped at a limit, with a partial reply.
    Incomplete {
        /// Name of the limit.
        reason: String,
    },
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
    /// Current state.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn unsafe_ids_are_refused() {
        assert_eq!("resp_06a-B".parse::<JobId>().unwrap().to_string(), "resp_06a-B");
        for text in ["", "../models", "resp_1/cancel", "resp_1?x", "a b", "é", "resp_1\n", &"a".repeat(201)] {
            assert_eq!(text.parse::<JobId>(), Err(ParseJobIdError), "{text}");
            assert!(serde_json::from_value::<JobId>(json!(text)).is_err());
        }
    }

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

    #[test]
    fn state_round_trips_through_json() {
        for state in [JobState::Queued, JobState::Failed { reason: "oh".into() }, JobState::Unknown("new".into())] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<JobState>(&text).unwrap(), state);
        }
    }
}
