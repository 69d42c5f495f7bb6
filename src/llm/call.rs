//! Model calls from the view of a research step. The run behind [`Caller`] reserves, records, retries and settles
//! them.

use std::fmt;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::message::{Prompt, Reply, Role};
use super::model::ModelError;
use crate::base::id::{ContentHash, NodeId, as_word};
use crate::base::retry::{Again, Failure};
use crate::base::step::{HASH_DIGITS, KeyPart, Step};

/// Identifies a call within its run, independent of the order of calls: `n3/step/2`, `plan/1`, `fold/1/n3`.
///
/// A step always uses the same key, so that a resumed run finds the recorded reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CallKey {
    node: Option<NodeId>,
    #[serde(rename = "key")]
    text: String,
}

impl CallKey {
    /// Returns the key of a step of the whole run.
    pub(crate) fn of_run(step: Step) -> Self {
        Self { node: None, text: step.to_string() }
    }

    /// Returns the common prefix of the keys of all calls on a node.
    pub(crate) fn of_node(node: &NodeId) -> Self {
        Self { node: Some(node.clone()), text: node.to_string() }
    }

    /// Returns a key that was stored with the node it belongs to.
    pub(crate) fn stored(node: Option<NodeId>, text: String) -> Self {
        Self { node, text }
    }

    /// Parses a key, for tests.
    #[cfg(test)]
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let node = text.split('/').next().and_then(|owner| owner.parse().ok());
        Self { node, text }
    }

    /// Returns the key of a step below this one, for example a repair.
    #[must_use]
    pub(crate) fn then(&self, step: Step) -> Self {
        self.followed_by(step)
    }

    /// Returns the key with the number of its step, or with the node that its step is about.
    #[must_use]
    pub(crate) fn at(&self, id: impl fmt::Display) -> Self {
        self.followed_by(id)
    }

    /// Returns the key with the start of a hash of the text that its step is about.
    #[must_use]
    pub(crate) fn about(&self, text: &str) -> Self {
        self.followed_by(&ContentHash::of(text.as_bytes()).as_str()[..HASH_DIGITS])
    }

    fn followed_by(&self, part: impl fmt::Display) -> Self {
        Self { node: self.node.clone(), text: format!("{}/{part}", self.text) }
    }

    /// Returns the node of the call; `None` for a step of the whole run.
    pub(crate) fn node(&self) -> Option<&NodeId> {
        self.node.as_ref()
    }

    /// Returns the part before the first `/`: the node of the call, or a step of the whole run.
    pub(crate) fn owner(&self) -> &str {
        self.text.split_once('/').map_or(&self.text, |(owner, _)| owner)
    }

    /// Returns the part after the node; of a step of the whole run, all of it.
    pub(crate) fn step(&self) -> &str {
        self.text.split_once('/').filter(|_| self.node.is_some()).map_or(&self.text, |(_, step)| step)
    }

    /// Returns the parts of [`Self::step`].
    pub(crate) fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        self.step().split('/').map(KeyPart::of)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Cost,
    /// Tokens of all model calls, without background jobs.
    Tokens,
    /// Active time of the run.
    Time,
    Rounds,
}

as_word!(Limit);

impl Limit {
    /// Returns the flag of `dr resume` that raises it.
    pub(crate) fn raised_by(self) -> &'static str {
        match self {
            Self::Cost => "--add-budget DOLLARS",
            Self::Tokens => "--add-tokens N",
            Self::Time => "--add-time TIME",
            Self::Rounds => "--add-rounds N",
        }
    }
}

/// A call that was not made or got no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The model failed, after all retries.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The worst case exceeds what remains of the limit. Nothing was sent.
    #[error("limit of {0} is reached")]
    Limit(Limit),
    /// The run was stopped. Nothing was sent, or the reply was abandoned.
    #[error("run was stopped")]
    Cancelled,
    /// The call could not be recorded or looked up, so it was not made.
    #[error("{reason}")]
    Journal { reason: String, hint: Option<String> },
}

impl CallError {
    /// Returns the class of this error, for traces.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Model(error) => error.class(),
            Self::Limit(_) => "limit_reached",
            Self::Cancelled => "cancelled",
            Self::Journal { .. } => "journal",
        }
    }
}

impl Failure for CallError {
    fn again(&self) -> Again {
        match self {
            Self::Model(error) => error.again(),
            Self::Limit(_) | Self::Cancelled | Self::Journal { .. } => Again::Never,
        }
    }
}

/// Makes model calls on behalf of research steps.
pub(crate) trait Caller: Send + Sync {
    /// Returns the reply to `prompt`: the recorded one for this key and prompt, or else a new one, which is paid for.
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>>;

    /// Counts the tokens of a text for the model of this role.
    fn count(&self, role: Role, text: &str) -> u64;

    /// Returns the maximum input tokens of a prompt of this role.
    fn input_limit(&self, role: Role) -> u64;

    /// Returns the maximum visible tokens of a reply of this role.
    fn output_limit(&self, role: Role) -> u32;

    /// Returns whether the budget is so low that work should be wrapped up.
    ///
    /// Decided once per key and recorded with the call, because it is part of the prompt: a resumed run has to build
    /// the same prompt to find its reply.
    fn is_tight(&self, key: &CallKey) -> bool;

    /// Returns whether the rest of the budget is likely to pay for prompts of these sizes, so that no work is begun
    /// that cannot be finished. Work whose `first` call is on record has already begun.
    fn can_pay(&self, first: &CallKey, role: Role, prompts: &[u64]) -> bool;
}
