//! Errors of checking reports.

use std::path::PathBuf;

use crate::base::bounded::TooSlow;
use crate::render::saved::SavedError;

/// A report could not be checked or updated.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("no report `{name}`")]
    NoReport { name: String },
    #[error("failed to {action} `{path}`")]
    File { action: &'static str, path: String, source: std::io::Error },
    #[error("failed to {action} `{path}`")]
    Format { action: &'static str, path: String, source: SavedError },
    #[error("note `{path}` was written by an earlier version and has no quotes, and its run is not stored here")]
    NoQuotes { path: String },
    #[error("note `{path}` was written by an earlier version and records no citation locations to update")]
    NoPlaces { path: String },
    #[error("`{name}` is a run, and a run is never changed")]
    UpdatesRun { name: String },
    #[error("`{path}` is a symbolic link out of this project")]
    LinkOutside { path: String },
    #[error("failed to check the report")]
    TooSlow(#[source] TooSlow),
    #[error("`{folder}` is not a folder")]
    NotAFolder { folder: PathBuf },
}

impl VerifyError {
    /// Returns whether the request itself is invalid.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::UpdatesRun { .. } | Self::NotAFolder { .. })
    }

    /// Returns what the user can do about this error.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::NoReport { .. } => {
                Some("name a report as JSON, a note (`--format note`), or a run that `dr runs` lists".into())
            }
            Self::Format { source: SavedError::Unknown, .. } => {
                Some("write one with `dr replay RUN --format note -o FILE`, or with `--json`".into())
            }
            Self::NoQuotes { .. } | Self::NoPlaces { .. } => {
                Some("write it again with `dr replay RUN --format note -o FILE`, in the folder of its run".into())
            }
            Self::UpdatesRun { name } => {
                Some(format!("save its report with `dr replay {name} --format note -o FILE`, and update that"))
            }
            _ => None,
        }
    }
}
