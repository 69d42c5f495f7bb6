//! Errors of local models.

use crate::config::EditError;
use crate::kb::embed::{CrossEncoderError, DownloadError, EmbedError, ModelStoreError};

/// A model could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalModelError {
    #[error("no model called `{name}`")]
    Unknown { name: String, close: Vec<String> },
    #[error("`{name}` needs no files")]
    NoFiles { name: String },
    #[error("`{model}` is not on this machine, and `dr` is offline")]
    Offline { model: String },
    #[error("failed to download `{model}`")]
    Download { model: String, source: DownloadError },
    #[error("files of `{model}` cannot be used")]
    Take { model: String, source: ModelStoreError },
    #[error("`{model}` cannot be used")]
    Embedder { model: String, source: EmbedError },
    #[error("`{model}` cannot be used")]
    Reranker { model: String, source: CrossEncoderError },
    #[error("setting was not written")]
    Setting(#[from] EditError),
}

impl LocalModelError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { close, .. } if !close.is_empty() => Some(format!("did you mean `{}`?", close.join("`, `"))),
            Self::Unknown { .. } => Some("`dr model list` prints the names".into()),
            Self::NoFiles { .. } => Some("leave out `--from`".into()),
            Self::Offline { model } => Some(format!(
                "run `dr model use {model}` without `--offline`, or with `--from FOLDER` if the files are on this machine"
            )),
            Self::Download { source, .. } => source.hint(),
            Self::Take { source, .. } => source.hint(),
            Self::Reranker { source: CrossEncoderError::Runtime(error), .. } => Some(error.hint()),
            Self::Embedder { source, .. } => source.hint(),
            Self::Reranker { .. } => None,
            Self::Setting(EditError::Config(error)) => error.hint(),
            Self::Setting(_) => {
                Some("write the setting yourself, see `kb/reference/configuration.md` in dr's manual".into())
            }
        }
    }

    /// Returns whether the files of a model are at fault. A missing ONNX Runtime says nothing about them.
    pub(in crate::engine) fn is_of_files(&self) -> bool {
        match self {
            Self::Embedder { source, .. } => matches!(
                source,
                EmbedError::Files(_)
                    | EmbedError::Load { .. }
                    | EmbedError::Run { .. }
                    | EmbedError::WrongShape { .. }
                    | EmbedError::UnusableVector { .. }
            ),
            Self::Reranker { source, .. } => {
                matches!(source, CrossEncoderError::Files(_) | CrossEncoderError::Load(_) | CrossEncoderError::Run(_))
            }
            _ => false,
        }
    }

    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::NoFiles { .. })
    }

    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Download { source: DownloadError::Cancelled, .. })
    }
}
