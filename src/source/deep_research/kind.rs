//! Names of the providers, as settings and journals store them. Each has one file beside this one; the compiler names the
//! places that a new variant has to fill in.

use serde::{Deserialize, Serialize};

/// The supported providers. Journals name the one a reply came from.
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
