//! Errors of reading a passage.

/// A passage could not be read.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    #[error("no chunk or document `{id}` in the index")]
    NoSuchId { id: String },
    /// `close` are paths that end the same way.
    #[error("no document `{path}` in the index")]
    NoSuchPath { path: String, close: Vec<String> },
    #[error("no document matches `{glob}`")]
    NoMatch { glob: String },
    #[error("`{path}` is in several collections")]
    Ambiguous { path: String, choices: Vec<String> },
    #[error("`{path}` has {lines} lines, not {wanted}")]
    BeyondEnd { path: String, lines: usize, wanted: u32 },
    /// The PDF has no such page, or no text on it.
    #[error("`{path}` has no text on page {page}")]
    NoSuchPage { path: String, page: u32 },
    #[error("`{path}` no longer exists; it was there when it was indexed")]
    Gone { path: String },
    /// The file has changed since it was indexed, so line numbers are no longer valid.
    #[error("`{path}` has changed since it was indexed")]
    Changed { path: String },
}

impl GetError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchId { .. } => Some("`dr search --json` prints the ids of its hits".into()),
            Self::NoSuchPath { close, .. } if !close.is_empty() => {
                Some(format!("did you mean `{}`?", close.join("`, `")))
            }
            Self::NoSuchPath { .. } | Self::NoMatch { .. } => {
                Some("paths are relative to the collection's root, as `dr search` prints them".into())
            }
            Self::Ambiguous { choices, .. } => Some(format!("say which: `{}`", choices.join("`, `"))),
            Self::Changed { .. } | Self::Gone { .. } => Some("run `dr index` to bring the index up to date".into()),
            Self::BeyondEnd { .. } | Self::NoSuchPage { .. } => None,
        }
    }
}
