//! A call as a step of research makes it: somebody else reserves, records, retries and pays.

use std::fmt;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::message::{Prompt, Reply, Role};
use super::model::ModelError;

/// Names a call within its run, whatever the order calls happen in: `n3/step/2`, `plan/1`, `fold/1/n3`.
///
/// The same step of the same run makes the same key, so that a resumed run finds the reply it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallKey(String);

impl CallKey {
    /// Names a call; the part before the first `/` is the node it was made for, or the step of the whole run.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns the key of a call that follows from this one, for example a repair.
    #[must_use]
    pub fn then(&self, part: &str) -> Self {
        Self(format!("{}/{part}", self.0))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Money.
    Cost,
    /// Tokens of all calls.
    Tokens,
    /// Active time.
    Time,
    /// Rounds of research.
    Rounds,
    /// Calls of models.
    Calls,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cost => "cost",
            Self::Tokens => "tokens",
            Self::Time => "time",
            Self::Rounds => "rounds",
            Self::Calls => "calls",
        })
    }
}

/// A call was not made, or brought no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The model failed, after whatever trying again could do.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// The worst case does not fit what is left; nothing was sent.
    #[error("limit of {0} is reached")]
    Limit(Limit),

    /// The run is being stopped; nothing was sent, or the reply was not waited for.
    #[error("run was stopped")]
    Cancelled,

    /// The call could not be written down, so it was not made.
    #[error("journal cannot be written: {reason}")]
    Journal {
        /// Why.
        reason: String,
    },
}

/// Makes calls for steps of research.
pub trait Caller: Send + Sync {
    /// Returns the reply to `prompt`: the one on record for this key and prompt, else a new one that is paid for.
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>>;

    /// Counts tokens as the model of this role does.
    fn count(&self, role: Role, text: &str) -> u64;

    /// Returns the most input tokens a prompt of this role may have.
    fn input_limit(&self, role: Role) -> u64;

    /// Returns the visible tokens a reply of this role may have.
    fn output_limit(&self, role: Role) -> u32;

    /// Tells whether so much of the budget is gone that work should be wrapped up.
    ///
    /// Decided once for each key and kept with its call, so that a resumed run says the same in its prompts.
    fn is_tight(&self, key: &CallKey) -> bool;
}
