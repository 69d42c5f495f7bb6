//! A Job: its id, where it is in its life, and the reply that says so.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
/// Longest id of a job.
const MAX_ID: usize = 200;

/// Names a job at its provider.
///
/// Letters, digits, `_` and `-`. Servers make ids up; anything else is refused on the way in, so a `JobId` is always
/// safe to join onto the path of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

/// The text is not the id of a job. It is not shown: nobody knows what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("id of the job cannot be used (expected up to 200 letters, digits, `_` and `-`)")]
pub struct ParseJobIdError;

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

/// Where a job is in its life.
///
/// ```text
/// Queued ─▶ InProgress ─▶ Completed
///   │           ├───────▶ Incomplete, Failed
///   └───────────┴───────▶ Cancelled            any of them, after a while ─▶ Vanished
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for its turn.
    Queued,
    /// It is worked on.
    InProgress,
    /// Its reply is whole.
    Completed,
    /// It ended without a reply.
    Failed {
        /// What the provider says.
        reason: String,
    },
    /// It was stopped at a limit; what it has so far is in its reply.
    Incomplete {
        /// Which limit.
        reason: String,
    },
    /// It was called off.
    Cancelled,
    /// The provider does not know it, or no longer.
    Vanished,
    /// The provider says something new of it.
    Unknown(String),
}

impl JobState {
    /// Tells whether asking again can bring nothing new.
    pub fn is_over(&self) -> bool {
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

/// What a provider says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it is asked after by.
    pub id: JobId,
    /// Where it is.
    pub state: JobState,
    /// The reply as it came, without secrets: keep it before reading it.
    pub raw: String,
}

impl Job {
    /// Returns why a job that is over brought nothing, and what that means where it is not plain.
    pub fn why_nothing(&self) -> String {
        match &self.state {
            JobState::Vanished => format!(
                "the provider no longer has job `{}`, and what it found with it; what it cost is not known, so its cap is \
                 charged, and it is not started again: ask anew for another",
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
    fn id_that_would_lead_elsewhere_is_refused() {
        assert_eq!("resp_06a-B".parse::<JobId>().unwrap().to_string(), "resp_06a-B");
        for text in ["", "../models", "resp_1/cancel", "resp_1?x", "a b", "é", "resp_1\n", &"a".repeat(201)] {
            assert_eq!(text.parse::<JobId>(), Err(ParseJobIdError), "{text}");
            assert!(serde_json::from_value::<JobId>(json!(text)).is_err());
        }
    }

    #[test]
    fn job_that_vanished_is_named_with_what_that_means() {
        let job = |state| Job { id: "resp_7".parse().unwrap(), state, raw: String::new() };
        let why = job(JobState::Vanished).why_nothing();
        assert!(
            why.starts_with("the provider no longer has job `resp_7`") && why.contains("its cap is charged"),
            "{why}"
        );
        assert_eq!(job(JobState::Failed { reason: "oh".into() }).why_nothing(), "failed: oh");
    }

    #[test]
    fn state_survives_a_journal() {
        for state in [JobState::Queued, JobState::Failed { reason: "oh".into() }, JobState::Unknown("new".into())] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<JobState>(&text).unwrap(), state);
        }
    }
}
