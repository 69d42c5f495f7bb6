//! Embedders: texts in, unit vectors out.
//!
//! [`load`] creates the [`Embedder`] for an [`EmbedderChoice`]. The built-in one needs no download, network or native
//! library. Others run in fastembed, on an ONNX Runtime loaded at run time, or on a server.
//!
//! Every vector has length one, so the cosine of two vectors is their dot product. Vectors of embedders with different
//! fingerprints must never be compared.
//!
//! # Where to look
//!
//! - [`builtin`] is the model in the binary, [`fastembed`] every other model on this machine; both use [`batch`].
//!   [`endpoint`] asks a server.
//! - [`word_piece`] tokenizes for the built-in model; [`bert_tokens`] counts tokens for every BERT tokenizer.
//! - [`mod@catalogue`] lists fastembed's models by name, [`facts`] has published figures of them. [`store`] manages
//!   those on this machine, and [`download`] fetches others.
//! - [`model_files`] reads the files of a model, and [`family`] has the facts that those files omit. [`recipe`]
//!   computes the fingerprint, and [`reads`] knows the languages of models.
//! - [`cross_encoder`] reads a query and a passage together, on the same ONNX Runtime.
//! - [`onnx_runtime`] finds the native library.

mod batch;
mod recipe;
pub(crate) mod bert_tokens;
mod word_piece;
mod matches;
mod family;
mod reads;
mod builtin;
mod model_files;
mod onnx_runtime;
mod store;
mod catalogue;
mod facts;
mod download;
mod fastembed;
mod cross_encoder;
mod endpoint;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(crate) use self::builtin::DIMENSION as BUILTIN_DIMENSION;
pub(crate) use self::catalogue::{
    catalogue, find, find_reranker, names_like as embedders_like, rerankers, rerankers_like,
};
pub(crate) use self::cross_encoder::{CrossEncoder, CrossEncoderChoice, CrossEncoderError, UnknownCrossEncoder};
pub(crate) use self::download::{DownloadError, Downloading, Fetching, Hub};
pub(crate) use self::endpoint::EndpointOptions;
pub use self::endpoint::{EmbeddingServerError, EndpointSettings, EndpointSettingsError};
pub(crate) use self::facts::{Published, facts_of};
pub use self::matches::Matches;
pub(crate) use self::matches::windows;
pub(crate) use self::model_files::{ModelFiles, ModelFilesError};
pub(crate) use self::onnx_runtime::{RuntimeError, find_runtime};
pub use self::reads::{ParseReadsError, Reads};
pub use self::store::ModelStore;
pub(crate) use self::store::{ModelSource, ModelStoreError, Taken};
use crate::base::clock::SystemClock;
use crate::base::http::BaseUrl;
use crate::base::id::as_text;
use crate::base::token::CountTokens;

/// Turns texts into vectors.
///
/// The model is loaded on the first text: counting tokens and reading the fingerprint do not load it. The embedding
/// methods are CPU-bound and block: call them on a blocking thread.
pub trait Embedder: Send + Sync {
    /// Display name, such as `all-MiniLM-L6-v2-int8` or `fastembed:BGESmallENV15`.
    fn name(&self) -> &str;

    /// Hash of everything that decides what a vector means. Vectors of different fingerprints must never be compared.
    fn fingerprint(&self) -> &str;

    /// Number of components of a vector.
    fn dimension(&self) -> usize;

    /// Longest passage that is embedded whole, in tokens, not counting special tokens and prefixes that the embedder
    /// adds. A longer passage is truncated.
    fn max_tokens(&self) -> usize;

    /// Returns the token counter of this embedder's model.
    fn tokens(&self) -> &dyn CountTokens;

    /// Returns the languages that the model reads.
    fn reads(&self) -> &Reads {
        &reads::ALL
    }

    /// Returns a unit vector for each text, in the order of the texts.
    ///
    /// # Errors
    ///
    /// Returns an error, and no vectors, if the model cannot be loaded or run, or if one of its vectors is zero or not
    /// finite.
    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Returns the unit vector of a query, to compare with those of passages.
    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError>;

    /// Returns whether [`Self::compare`] compares tokens. The weights of [`super::search::Support`] were fitted to an
    /// embedder that does.
    fn compares_tokens(&self) -> bool {
        false
    }

    /// Compares the words of a question with the parts of each text, such as its sentences: by token vectors if the
    /// model provides them, else by the vectors of the question and of each part.
    fn compare(&self, question: &[&str], texts: &[Vec<&str>]) -> Result<Vec<Matches>, EmbedError> {
        // One vector for the whole question, since this embedder provides no token vectors.
        let asked = self.embed_query(&question.join(" "))?;
        let of_text = |parts: &Vec<&str>| {
            self.embed_passages(parts).map(|parts| Matches::of_texts(question.len(), &asked, &parts))
        };
        texts.iter().map(of_text).collect()
    }

    /// Loads the model ahead of [`Self::embed_query`], so that the first query does not wait for it. Blocks.
    ///
    /// Errors are dropped here: the next embedding call returns them.
    fn warm_up(&self) {}

    /// Returns the server that computes the vectors; `None` if they are computed on this machine.
    fn server(&self) -> Option<&EmbeddingServer> {
        None
    }

    /// Returns the embedder for texts that are not compared with vectors of the index, if it is a different one: a
    /// server receives no more text than necessary.
    fn companion(&self) -> Option<Arc<dyn Embedder>> {
        None
    }

    /// Returns a copy that spends no more than a limit in billionths of a dollar, with its spending counted from
    /// zero; `None` if embedding costs nothing.
    fn within(&self, _limit_nanos: Option<u64>) -> Option<Arc<dyn Embedder>> {
        None
    }

    /// Returns the maximum number of tokens charged for passages of `tokens` tokens, prefixes included.
    fn tokens_of(&self, tokens: u64, _texts: usize) -> u64 {
        tokens
    }

    /// Checks that `tokens` tokens can be paid for within the limit.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot. Nothing is sent.
    fn check_cost(&self, _tokens: u64) -> Result<(), EmbedError> {
        Ok(())
    }

    /// Returns the tokens that this copy has sent, and their cost.
    fn sent(&self) -> Sent {
        Sent::default()
    }

    /// Returns the best number of passages per call of [`Self::embed_until`].
    fn at_once(&self) -> usize {
        TEXTS_AT_ONCE
    }

    /// Embeds passages as far as possible: until all have a vector, one fails, or `stop` is cancelled. Vectors
    /// computed before a failure may have been paid for, so they are returned with it.
    fn embed_until(&self, texts: &[&str], _stop: &CancellationToken) -> Embedded {
        match self.embed_passages(texts) {
            Ok(vectors) => Embedded { vectors: vectors.into_iter().map(Some).collect(), error: None },
            // `embed_passages` returns all vectors or none, and vectors computed on this machine cost nothing.
            Err(error) => Embedded { vectors: vec![None; texts.len()], error: Some(error) },
        }
    }
}

/// Passages embedded on this machine between two checks for cancellation.
const TEXTS_AT_ONCE: usize = 32;

/// A server that computes vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingServer {
    pub(crate) address: BaseUrl,
    /// Whether it is on this machine, or declared as the user's own.
    pub(crate) is_local: bool,
    /// Price of a million tokens in billionths of a dollar; `None` if unknown.
    pub(crate) price: Option<u64>,
    /// Texts of one request.
    pub(crate) batch: usize,
    /// Requests in flight.
    pub(crate) concurrency: usize,
}

impl EmbeddingServer {
    /// Returns the cost of tokens in billionths of a dollar, rounded up; `None` if the price is unknown.
    pub(crate) fn cost_nanos(&self, tokens: u64) -> Option<u64> {
        self.price.map(|price| endpoint::cost_nanos(price, tokens))
    }

    /// Returns whether it is known to cost nothing.
    pub(crate) fn is_free(&self) -> bool {
        self.price == Some(0)
    }
}

/// Tokens sent to a server, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Tokens charged, as far as known.
    pub(crate) tokens: u64,
    /// Upper bound on their cost in billionths of a dollar; `None` if the price is unknown.
    pub(crate) cost_nanos: Option<u64>,
    /// Number of passages truncated to the model's input limit.
    pub(crate) shortened: usize,
}

/// Vectors of passages, as far as they were computed.
#[derive(Debug)]
pub struct Embedded {
    /// The unit vector of each passage, in the order of the passages; `None` for those that have none yet.
    pub(crate) vectors: Vec<Option<Vec<f32>>>,
    /// The error that ended the work, if any.
    pub(crate) error: Option<EmbedError>,
}

/// Returns whether a word is a common English one: it is a single token of the built-in model's vocabulary.
pub(crate) fn is_english(word: &str) -> bool {
    // The list is searched from the beginning, because a search asks for a few words at most.
    let word = word.to_lowercase();
    builtin::VOCABULARY.lines().any(|own| own == word)
}

/// Returns the cosine of two unit vectors.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// An embedder as configured: `builtin`, `fastembed:MODEL`, `fastembed:FOLDER` or `endpoint:MODEL`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum EmbedderChoice {
    /// The model compiled into the binary.
    #[default]
    Builtin,
    /// The name of a model in fastembed's catalogue, or a folder with an ONNX model and its tokenizer.
    Fastembed(String),
    /// A model on the configured server.
    Endpoint(String),
}

/// The text does not name an embedder.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an embedder (expected `builtin`, `fastembed:MODEL`, `fastembed:FOLDER` or `endpoint:MODEL`)")]
pub struct ParseEmbedderChoiceError(String);

impl FromStr for EmbedderChoice {
    type Err = ParseEmbedderChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // At the first colon, since names of models have colons, too: `qwen3-embedding:0.6b`.
        match text.trim().split_once(':') {
            None if text.trim() == "builtin" => Ok(Self::Builtin),
            Some(("fastembed", model)) if !model.trim().is_empty() => Ok(Self::Fastembed(model.trim().to_owned())),
            Some(("endpoint", model)) if !model.trim().is_empty() => Ok(Self::Endpoint(model.trim().to_owned())),
            _ => Err(ParseEmbedderChoiceError(text.to_owned())),
        }
    }
}

impl fmt::Display for EmbedderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("builtin"),
            Self::Fastembed(model) => write!(f, "fastembed:{model}"),
            Self::Endpoint(model) => write!(f, "endpoint:{model}"),
        }
    }
}

as_text!(EmbedderChoice);

/// Options of [`load`].
#[derive(Clone, Debug)]
pub struct EmbedderOptions {
    pub choice: EmbedderChoice,
    pub offline: bool,
    /// Models of the catalogue on this machine.
    pub store: ModelStore,
    /// Data folder of `dr`, one of the places searched for an ONNX Runtime.
    pub data_dir: Option<PathBuf>,
    /// Compute threads; defaults to the number of cores.
    pub threads: Option<usize>,
    /// The server of [`EmbedderChoice::Endpoint`].
    pub endpoint: Option<EndpointSettings>,
}

impl EmbedderOptions {
    /// Returns the options of the built-in embedder, which needs no files.
    pub fn builtin() -> Self {
        Self {
            choice: EmbedderChoice::Builtin,
            offline: true,
            store: ModelStore::in_folder(PathBuf::new()),
            data_dir: None,
            threads: None,
            endpoint: None,
        }
    }
}

/// Returns the configured embedder.
///
/// The built-in one costs nothing until it is used. For those of fastembed, this finds and loads the ONNX Runtime and
/// hashes the model's files for the fingerprint. The model itself is loaded on the first text. Nothing is downloaded
/// or sent to a server yet.
///
/// # Errors
///
/// Returns an error if the model is unknown or not on this machine, if its files are unusable, if no ONNX Runtime is
/// found, or if no server is set up. Lexical search works without an embedder; [`EmbedError::hint`] says how to get
/// one.
pub fn load(options: &EmbedderOptions) -> Result<Arc<dyn Embedder>, EmbedError> {
    match &options.choice {
        EmbedderChoice::Builtin => Ok(Arc::new(builtin::Builtin::new(options.threads))),
        EmbedderChoice::Fastembed(model) => Ok(Arc::new(fastembed::Fastembed::load(model, options)?)),
        EmbedderChoice::Endpoint(_) => {
            let settings = options.endpoint.clone().ok_or(EndpointSettingsError::NoAddress)?;
            let clock = Arc::new(SystemClock);
            Ok(Arc::new(endpoint::Endpoint::new(settings, options.offline, options.threads, clock)?))
        }
    }
}

pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An embedder could not be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// `close` are the most similar names of the catalogue.
    #[error("no embedding model called `{name}`")]
    UnknownModel { name: String, close: Vec<String> },
    #[error("embedding model `{model}` is not on this machine")]
    NotHere { model: String },
    #[error(transparent)]
    Files(#[from] ModelFilesError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("failed to load embedding model `{model}`")]
    Load { model: String, source: Cause },
    #[error("failed to run embedding model `{model}`")]
    Run { model: String, source: Cause },
    #[error("embedding model `{model}` returned {found:?} numbers where {expected:?} were expected")]
    WrongShape { model: String, found: Vec<usize>, expected: Vec<usize> },
    /// A vector is all zero or not finite.
    #[error("embedding model `{model}` returned a zero vector")]
    UnusableVector { model: String },
    #[error("settings of `[embedding]` cannot be used")]
    Settings(#[from] EndpointSettingsError),
    /// `source` is the last failure, after all retries.
    #[error("no vectors of `{model}` from {address}")]
    Endpoint { model: String, address: String, source: Box<EmbeddingServerError> },
}

impl EmbedError {
    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownModel { close, .. } if !close.is_empty() => {
                Some(format!("did you mean `{}`?", close.join("`, `")))
            }
            Self::UnknownModel { .. } => {
                Some("the names are those of fastembed's catalogue; a folder is given as `fastembed:FOLDER`".into())
            }
            Self::NotHere { model } => {
                Some(format!("`dr model use {model}` downloads it; `builtin` needs no download"))
            }
            Self::Files(error) => error.hint(),
            Self::Runtime(error) => Some(error.hint()),
            Self::Settings(error) => error.hint(),
            Self::Endpoint { source, .. } => source.hint(),
            Self::Load { .. } | Self::Run { .. } | Self::WrongShape { .. } | Self::UnusableVector { .. } => None,
        }
    }
}

/// Returns the built-in embedder with one thread.
#[cfg(test)]
pub(crate) fn builtin_for_tests() -> Arc<dyn Embedder> {
    let choice = EmbedderChoice::Builtin;
    let store = ModelStore::in_folder(std::env::temp_dir());
    load(&EmbedderOptions { choice, offline: true, store, data_dir: None, threads: Some(1), endpoint: None }).unwrap()
}
