//! Texts become vectors, and texts of like meaning vectors of like direction.
//!
//! An [`Embedder`] is chosen by an [`EmbedderChoice`] and made by [`load`]. The built-in one needs no download, no
//! network and no native library; the others are fastembed's, over an ONNX Runtime that is found at run time.
//!
//! Every vector has length one, so the cosine of two is their dot product. Vectors of embedders whose fingerprints
//! differ must never be compared.
//!
//! # Where to look
//!
//! - [`builtin`] is the model in the binary, [`fastembed`] the rest; [`batch`] has what both share.
//! - [`word_piece`] reads texts for the one in the binary; [`bert_tokens`] counts for any like it.
//! - [`catalogue`] knows fastembed's models by name, [`model_files`] finds one on disk, [`family`] what its files leave
//!   out. [`recipe`] makes the fingerprint.
//! - [`onnx_runtime`] finds the native library.

mod batch;
mod recipe;

pub(crate) mod bert_tokens;

mod word_piece;

mod builtin;

mod catalogue;
mod family;
mod model_files;
mod onnx_runtime;

mod fastembed;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::catalogue::{CatalogueModel, catalogue};
pub use self::model_files::ModelFilesError;
pub use self::onnx_runtime::{RuntimeError, find_runtime};
use crate::base::token::CountTokens;

/// Makes vectors of texts.
///
/// Loading is lazy where it can be: an embedder that only counts tokens and names its fingerprint has not loaded its
/// model. The methods that embed block for as long as the model computes.
pub trait Embedder: Send + Sync {
    /// Name for people, such as `all-MiniLM-L6-v2-int8` or `fastembed:BGESmallENV15`.
    fn name(&self) -> &str;

    /// Hash of everything that decides what a vector means. Vectors of different fingerprints must never be compared.
    fn fingerprint(&self) -> &str;

    /// Number of components of a vector.
    fn dimension(&self) -> usize;

    /// Longest passage that is embedded whole, in tokens, what the embedder puts around it not counted. The rest of
    /// a longer one is not seen.
    fn max_tokens(&self) -> usize;

    /// Counts as this embedder's model does.
    fn tokens(&self) -> &dyn CountTokens;

    /// Returns a vector of length one for each text, in the order of the texts.
    ///
    /// # Errors
    ///
    /// Returns an error, and no vectors, if the model cannot be loaded or run, or if one of its vectors is zero or not
    /// finite.
    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Returns the vector to look for passages with that answer `text`.
    ///
    /// # Errors
    ///
    /// As [`Self::embed_passages`].
    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError>;

    /// Loads what [`Self::embed_query`] would load, so that a later query does not wait for it.
    ///
    /// Blocks meanwhile. A failure is not told here: whoever embeds gets it.
    fn warm_up(&self) {}
}

/// Returns the words the built-in embedder knows as a whole: common English ones in lower case, numbers and signs.
pub fn common_words() -> impl Iterator<Item = &'static str> {
    builtin::VOCABULARY.lines().filter(|token| !token.starts_with("##") && !token.starts_with('['))
}

/// Which embedder the user asked for: `builtin`, `fastembed:MODEL` or `fastembed:FOLDER`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum EmbedderChoice {
    /// The model compiled into the binary.
    #[default]
    Builtin,
    /// A model of fastembed's catalogue, by name, or a folder with an ONNX model and its tokenizer.
    Fastembed(String),
}

/// The text does not name an embedder.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an embedder (expected `builtin`, `fastembed:MODEL` or `fastembed:FOLDER`)")]
pub struct ParseEmbedderChoiceError(String);

impl FromStr for EmbedderChoice {
    type Err = ParseEmbedderChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().split_once(':') {
            None if text.trim() == "builtin" => Ok(Self::Builtin),
            Some(("fastembed", model)) if !model.trim().is_empty() => Ok(Self::Fastembed(model.trim().to_owned())),
            _ => Err(ParseEmbedderChoiceError(text.to_owned())),
        }
    }
}

impl fmt::Display for EmbedderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("builtin"),
            Self::Fastembed(model) => write!(f, "fastembed:{model}"),
        }
    }
}

impl From<EmbedderChoice> for String {
    fn from(choice: EmbedderChoice) -> Self {
        choice.to_string()
    }
}

impl TryFrom<String> for EmbedderChoice {
    type Error = ParseEmbedderChoiceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// What [`load`] needs to know.
#[derive(Clone, Debug)]
pub struct EmbedderOptions {
    /// Which embedder.
    pub choice: EmbedderChoice,
    /// Never touch the network: a model that is not on disk is an error.
    pub offline: bool,
    /// Folder that downloaded models are kept in.
    pub cache_dir: PathBuf,
    /// Folder where an ONNX Runtime of `dr`'s own may lie.
    pub data_dir: Option<PathBuf>,
    /// Threads to compute with; all cores if not given.
    pub threads: Option<usize>,
}

/// Returns the embedder that was asked for.
///
/// The built-in one costs nothing until it is used. For another the ONNX Runtime is found and loaded, the model is
/// downloaded if it is not cached (never when offline) and its files are read for the fingerprint; the model itself is
/// loaded with the first text.
///
/// # Errors
///
/// Returns an error if the model is not known, not on disk when offline, or has files that cannot be used, or if there
/// is no ONNX Runtime. Lexical search can go on without an embedder; [`EmbedError::hint`] says what would help.
pub fn load(options: &EmbedderOptions) -> Result<Arc<dyn Embedder>, EmbedError> {
    match &options.choice {
        EmbedderChoice::Builtin => Ok(Arc::new(builtin::Builtin::new(options.threads))),
        EmbedderChoice::Fastembed(model) => Ok(Arc::new(fastembed::Fastembed::load(model, options)?)),
    }
}

/// A cause of any kind.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An embedder could not be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// Neither a model of the catalogue nor a folder.
    #[error("no embedding model called `{name}`")]
    UnknownModel {
        /// The name as given.
        name: String,
        /// Names of the catalogue that are most like it.
        close: Vec<String>,
    },

    /// The model would have to be downloaded, and `dr` is offline.
    #[error("embedding model `{model}` is not in `{cache_dir}`")]
    NotCached {
        /// Name in the catalogue.
        model: String,
        /// The folder that was looked in.
        cache_dir: PathBuf,
    },

    /// Fetching a model of the catalogue failed.
    #[error("failed to download embedding model `{model}`")]
    Download {
        /// Name in the catalogue.
        model: String,
        /// The error from the download.
        #[source]
        source: Cause,
    },

    /// The files of a model are not what is needed.
    #[error(transparent)]
    Files(#[from] ModelFilesError),

    /// There is no ONNX Runtime that can be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),

    /// The model did not load.
    #[error("failed to load embedding model `{model}`")]
    Load {
        /// Name of the embedder.
        model: String,
        /// The error from the library that runs it.
        #[source]
        source: Cause,
    },

    /// The model loaded, but not this time.
    #[error("failed to run embedding model `{model}`")]
    Run {
        /// Name of the embedder.
        model: String,
        /// The error from the library that runs it.
        #[source]
        source: Cause,
    },

    /// What the model returned has the wrong shape.
    #[error("embedding model `{model}` returned {found:?} numbers where {expected:?} were expected")]
    WrongShape {
        /// Name of the embedder.
        model: String,
        /// Shape of the output, outermost first.
        found: Vec<usize>,
        /// Shape that was needed.
        expected: Vec<usize>,
    },

    /// A vector is all zero or not finite.
    #[error("embedding model `{model}` returned a vector without direction")]
    UnusableVector {
        /// Name of the embedder.
        model: String,
    },
}

impl EmbedError {
    /// Returns what the user can do about this error, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownModel { close, .. } if !close.is_empty() => {
                Some(format!("did you mean `{}`?", close.join("`, `")))
            }
            Self::UnknownModel { .. } => {
                Some("the names are those of fastembed's catalogue; a folder is given as `fastembed:FOLDER`".into())
            }
            Self::NotCached { .. } => Some("run the command once without `--offline`, which downloads it".into()),
            Self::Download { .. } => {
                Some("check the connection, or set HF_ENDPOINT to a mirror; `builtin` needs no download".into())
            }
            Self::Files(error) => error.hint(),
            Self::Runtime(error) => Some(error.hint()),
            Self::Load { .. } | Self::Run { .. } | Self::WrongShape { .. } | Self::UnusableVector { .. } => None,
        }
    }
}

/// Returns the model in the binary, for tests.
#[cfg(test)]
pub(crate) fn builtin_for_tests() -> Arc<dyn Embedder> {
    let choice = EmbedderChoice::Builtin;
    let cache_dir = std::env::temp_dir();
    load(&EmbedderOptions { choice, offline: true, cache_dir, data_dir: None, threads: Some(1) }).unwrap()
}
