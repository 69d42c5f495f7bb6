//! Cross-encoders on this machine: models that read a query and a passage together, run by fastembed on ONNX Runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use ::fastembed::{RerankInitOptionsUserDefined, TextRerank, UserDefinedRerankingModel};
use tokio_util::sync::CancellationToken;

use super::catalogue::{find_reranker, rerankers_like};
use super::family::Family;
use super::fastembed::folder_at;
use super::model_files::ModelFiles;
use super::store::ModelStore;
use super::{Cause, ModelFilesError, RuntimeError, onnx_runtime};
use crate::base::mutex::locked;

/// Prefix that marks a model on this machine in a setting.
const PREFIX: &str = "fastembed:";

/// A cross-encoder as configured: a name of the catalogue, or a folder with an ONNX model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrossEncoderChoice(String);

/// The text names no cross-encoder of this machine.
#[derive(Debug, thiserror::Error)]
#[error("no reranker called `{name}`")]
pub struct UnknownCrossEncoder {
    pub(crate) name: String,
    /// The most similar names of the catalogue.
    pub(crate) close: Vec<String>,
}

impl CrossEncoderChoice {
    /// Parses the setting `rerank.model`. `None` for a model at a server.
    ///
    /// # Errors
    ///
    /// Returns an error for a name that is neither in the catalogue nor a folder.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, UnknownCrossEncoder>> {
        let name = text.trim().strip_prefix(PREFIX)?.trim();
        if let Some(known) = find_reranker(name) {
            return Some(Ok(Self::named(&known.name)));
        }
        let unknown = || UnknownCrossEncoder { name: name.to_owned(), close: rerankers_like(name) };
        Some(folder_at(name).map(|folder| Self::named(&folder.to_string_lossy())).ok_or_else(unknown))
    }

    /// Returns the choice of a name of the catalogue, or of a folder.
    pub(crate) fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the name in the catalogue, or the folder.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CrossEncoderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

/// A cross-encoder gave no scores.
#[derive(Debug, thiserror::Error)]
pub enum CrossEncoderError {
    #[error("it is not on this machine; `dr model use {model}` downloads it")]
    NotHere { model: String },
    #[error(transparent)]
    Files(#[from] ModelFilesError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("failed to load it")]
    Load(#[source] Cause),
    #[error("failed to run it")]
    Run(#[source] Cause),
    #[error("stopped")]
    Stopped,
}

/// A cross-encoder. Loaded for the first query.
pub(crate) struct CrossEncoder {
    choice: CrossEncoderChoice,
    store: ModelStore,
    /// Data folder of `dr`, one of the places searched for an ONNX Runtime.
    data: PathBuf,
    threads: Option<usize>,
    model: Mutex<Option<TextRerank>>,
}

impl fmt::Display for CrossEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.choice)
    }
}

impl CrossEncoder {
    /// Creates the cross-encoder without loading it.
    pub(crate) fn new(choice: CrossEncoderChoice, store: ModelStore, data: PathBuf, threads: Option<usize>) -> Self {
        Self { choice, store, data, threads, model: Mutex::new(None) }
    }

    /// Returns whether the model's files are on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.files().is_ok()
    }

    /// Returns how relevant each text is to the query, from 0 to 1. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the model cannot be loaded or run, or if `stop` is cancelled before all texts are read.
    pub(crate) fn scores(
        &self,
        query: &str,
        texts: &[String],
        stop: &CancellationToken,
    ) -> Result<Vec<f32>, CrossEncoderError> {
        // A model keeps no state between texts, so one that panicked may be used again.
        let mut model = locked(&self.model);
        if stop.is_cancelled() {
            return Err(CrossEncoderError::Stopped);
        }
        let model = match model.as_mut() {
            Some(model) => model,
            None => model.insert(self.load()?),
        };
        // One by one: a pair is long enough to keep all threads busy, a batch would be padded, and in a model that
        // quantises at run time the score of a text would depend on its neighbours.
        let score = |text: &String| {
            if stop.is_cancelled() {
                return Err(CrossEncoderError::Stopped);
            }
            let scored = model.rerank(query, [text.as_str()], false, None);
            let logit = scored.map_err(|source| CrossEncoderError::Run(source.into()))?.first().map(|one| one.score);
            match logit.filter(|logit| logit.is_finite()) {
                // Fastembed returns the raw output of the model.
                Some(logit) => Ok(1.0 / (1.0 + (-logit).exp())),
                None => Err(CrossEncoderError::Run("no score".into())),
            }
        };
        texts.iter().map(score).collect()
    }

    fn files(&self) -> Result<ModelFiles, CrossEncoderError> {
        let CrossEncoderChoice(name) = &self.choice;
        match find_reranker(name) {
            Some(known) => {
                self.store.find(&known.source).ok_or_else(|| CrossEncoderError::NotHere { model: known.name })
            }
            None => Ok(ModelFiles::in_folder(name.as_ref())?),
        }
    }

    fn load(&self) -> Result<TextRerank, CrossEncoderError> {
        let files = self.files()?;
        let environment = onnx_runtime::environment(Some(&self.data))?;
        // From its file, so that weights stored next to the graph are found.
        let model = UserDefinedRerankingModel::new(files.model.clone(), files.tokenizer_files()?);
        let mut options =
            RerankInitOptionsUserDefined::new().with_environment(environment).with_max_length(Family::WINDOW);
        options.intra_threads = self.threads;
        TextRerank::try_new_from_user_defined(model, options).map_err(|source| CrossEncoderError::Load(source.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, Vec<String>> {
        let choice = CrossEncoderChoice::parse(text).unwrap();
        choice.map(|choice| choice.to_string()).map_err(|error| error.close)
    }

    #[test]
    fn reranker_is_named_as_in_the_catalogue_or_by_its_folder() {
        assert_eq!(parsed("fastembed:bgererankerbase").unwrap(), "fastembed:BGERerankerBase");
        assert_eq!(parsed("fastembed:BAAI/bge-reranker-base").unwrap(), "fastembed:BGERerankerBase");
        let folder = if cfg!(windows) { "C:\\models\\mine" } else { "/models/mine" };
        assert_eq!(parsed(&format!("fastembed:{folder}")).unwrap(), format!("fastembed:{folder}"));
        assert_eq!(parsed("fastembed:BGERerankBase").unwrap_err()[0], "BGERerankerBase");
        assert!(CrossEncoderChoice::parse("bge-reranker-base").is_none(), "a model at a server");
    }

    #[test]
    fn reranker_that_is_not_here_says_how_to_get_it() {
        let choice = CrossEncoderChoice::parse("fastembed:BGERerankerBase").unwrap().unwrap();
        let encoder = CrossEncoder::new(choice, ModelStore::in_folder("/no/store".into()), "/no/data".into(), Some(1));
        let error = encoder.scores("q", &["a".to_owned()], &CancellationToken::new()).unwrap_err();
        assert_eq!(error.to_string(), "it is not on this machine; `dr model use BGERerankerBase` downloads it");
    }
}
