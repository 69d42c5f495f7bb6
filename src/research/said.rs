//! Words of a model.

use serde::{Deserialize, Serialize};

use crate::base::line;

/// Words that a model chose, read from its reply. It has no constructor: words of a worker that faces outward may leave,
/// see [`Conversation::worded`](super::task::Conversation::worded).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Said(String);

impl Said {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn one_line(&self) -> Self {
        Self(line::one_line(&self.0))
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}
