//! Lists the available models, embedders and rerankers, and selects one by name.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::error::model::LocalModelError;
use super::{Engine, EngineError, IndexRequest};
use crate::base::line::with_causes;
use crate::config::Written;
use crate::kb::embed::{
    BUILTIN_DIMENSION, CrossEncoder, CrossEncoderChoice, EmbedderChoice, Fetching, ModelFiles, ModelSource, Published,
    Taken, catalogue, embedders_like, facts_of, find, find_reranker, rerankers, rerankers_like,
};
use crate::kb::estimate::IndexEstimate;
use crate::kb::index::Index;

const EMBEDDER: &str = "embedder";

const RERANKER: &str = "rerank.model";

#[derive(Clone, Debug, Serialize, Default)]
pub(crate) struct ModelEntry {
    /// As `dr model use` takes it.
    pub(crate) name: String,
    /// Components of a vector.
    pub(crate) dimensions: Option<usize>,
    /// Bytes of its files on this machine.
    pub(crate) bytes: Option<u64>,
    /// Megabytes of its weights, about.
    pub(crate) megabytes: Option<u32>,
    pub(crate) languages: Option<&'static str>,
    pub(crate) licence: Option<&'static str>,
    pub(crate) ndcg: Option<Published>,
    /// Where it runs, or comes from.
    pub(crate) place: String,
    /// Whether it can be used without a download.
    pub(crate) is_here: bool,
    /// Whether the settings of this folder, or its index, name it.
    pub(crate) is_used: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelList {
    pub(crate) embedders: Vec<ModelEntry>,
    pub(crate) rerankers: Vec<ModelEntry>,
}

/// A model that is used from now on.
#[derive(Clone, Debug)]
pub(crate) struct ModelUse {
    pub(crate) setting: &'static str,
    pub(crate) value: String,
    pub(crate) written: Written,
    /// The folder with its files, if it has some.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) reembedding: Reembedding,
}

/// The effect of a model on the vectors of the index.
#[derive(Clone, Debug)]
pub(crate) enum Reembedding {
    /// The model makes no vectors, or another is in force.
    Unconcerned,
    /// There is no index yet.
    NoIndex,
    /// The index has vectors of this model.
    None,
    /// They are made again.
    Needed { from: String, estimate: Box<IndexEstimate> },
    /// They are made again; how long that takes is not known.
    Unknown { from: String },
}

/// A model that the user has named.
enum LocalModel {
    Embedder(EmbedderChoice),
    Reranker(CrossEncoderChoice),
}

impl LocalModel {
    /// Reads a short name, a repository, or the value of a setting.
    fn parse(name: &str) -> Result<Self, LocalModelError> {
        let bare = name.trim().strip_prefix("fastembed:").unwrap_or(name).trim();
        // The catalogue first: a folder of the same name does not hide a model.
        if let Some(known) = find(bare) {
            return Ok(Self::Embedder(EmbedderChoice::Fastembed(known.name)));
        }
        if let Some(known) = find_reranker(bare) {
            return Ok(Self::Reranker(CrossEncoderChoice::named(&known.name)));
        }
        match name.parse() {
            // The setting may be read from any folder.
            Ok(EmbedderChoice::Fastembed(folder)) if Path::new(&folder).is_dir() => {
                let folder = std::path::absolute(&folder).unwrap_or_else(|_| PathBuf::from(&folder));
                Ok(Self::Embedder(EmbedderChoice::Fastembed(folder.to_string_lossy().into_owned())))
            }
            Ok(choice @ (EmbedderChoice::Builtin | EmbedderChoice::Endpoint(_))) => Ok(Self::Embedder(choice)),
            Ok(EmbedderChoice::Fastembed(_)) | Err(_) => {
                let close = embedders_like(bare).into_iter().chain(rerankers_like(bare)).collect();
                Err(LocalModelError::Unknown { name: name.to_owned(), close })
            }
        }
    }

    /// Returns its name in the catalogue and where its files are; `None` if it is in none.
    fn source(&self) -> Option<(String, ModelSource)> {
        match self {
            Self::Embedder(EmbedderChoice::Fastembed(name)) => {
                find(name).map(|known| (known.name.clone(), known.source()))
            }
            Self::Embedder(EmbedderChoice::Builtin | EmbedderChoice::Endpoint(_)) => None,
            Self::Reranker(choice) => find_reranker(choice.name()).map(|known| (known.name, known.source)),
        }
    }
}

impl Engine {
    /// Returns all models: those of the settings, the built-in one, and the catalogue.
    pub(crate) async fn model_list(&self) -> ModelList {
        let stored = Index::known(&self.location).await.ok().flatten();
        let used = self.embedder_choice(stored.as_ref(), false);
        let mut embedders = vec![self.entry("builtin", Some(BUILTIN_DIMENSION), None)];
        let known = match &used {
            EmbedderChoice::Fastembed(name) => find(name),
            EmbedderChoice::Builtin | EmbedderChoice::Endpoint(_) => None,
        };
        if known.is_none() && used != EmbedderChoice::Builtin {
            embedders.push(self.configured(&used));
        }
        embedders.extend(
            catalogue().iter().map(|model| self.entry(&model.name, Some(model.dimension()), Some(&model.source()))),
        );
        let used = known.map_or_else(|| used.to_string(), |known| known.name);
        let mut again: Vec<_> =
            rerankers().iter().map(|model| self.entry(&model.name, None, Some(&model.source))).collect();
        if let Ok(Some(reranker)) = self.settings.reranker() {
            let shown = reranker.to_string();
            match again.iter_mut().find(|entry| shown == CrossEncoderChoice::named(&entry.name).to_string()) {
                Some(entry) => entry.is_used = true,
                None => {
                    let place = match () {
                        () if reranker.is_of_run() => "the language model of a run",
                        () if reranker.is_server() => "a server",
                        () => "a folder of this machine",
                    };
                    again
                        .insert(0, ModelEntry { is_used: true, ..ModelEntry::named(shown, place, reranker.is_here()) });
                }
            }
        }
        for entry in embedders.iter_mut().filter(|entry| entry.name == used) {
            entry.is_used = true;
        }
        ModelList { embedders, rerankers: again }
    }

    /// Returns the entry of a model with published facts.
    fn entry(&self, name: &str, dimensions: Option<usize>, source: Option<&ModelSource>) -> ModelEntry {
        let found = source.and_then(|source| self.settings.paths.store().find(source));
        let place = source.map_or("in dr", ModelSource::repository);
        let facts = facts_of(name);
        ModelEntry {
            dimensions,
            bytes: found.as_ref().map(ModelFiles::bytes),
            megabytes: facts.map(|facts| facts.megabytes),
            languages: facts.map(|facts| facts.languages.shown),
            licence: facts.map(|facts| facts.licence),
            ndcg: facts.and_then(|facts| facts.ndcg),
            ..ModelEntry::named(name.to_owned(), place, source.is_none() || found.is_some())
        }
    }

    /// Returns the entry of a folder or a server that is used.
    fn configured(&self, used: &EmbedderChoice) -> ModelEntry {
        let (dimensions, place) = match used {
            EmbedderChoice::Endpoint(model) => match self.settings.embedding(model) {
                Ok(server) => (Some(server.dimensions), server.address().to_string()),
                Err(_) => (None, "`[embedding]` of your settings".to_owned()),
            },
            EmbedderChoice::Fastembed(_) | EmbedderChoice::Builtin => (None, "a folder of this machine".to_owned()),
        };
        ModelEntry { dimensions, ..ModelEntry::named(used.to_string(), &place, true) }
    }

    /// Makes a model the one that is used: gets its files, tries it, and writes the setting.
    ///
    /// # Errors
    ///
    /// Returns an error if the model does not exist, cannot be downloaded or cannot be used. The setting is not written
    /// then; files that were downloaded stay, and so do files of `from` unless they are no usable model.
    pub(crate) async fn use_model(
        &mut self,
        name: &str,
        from: Option<&Path>,
        fetching: &Fetching<'_>,
    ) -> Result<ModelUse, EngineError> {
        let named = LocalModel::parse(name)?;
        let source = named.source();
        let mut taken = None;
        match (&source, from) {
            (Some((model, source)), Some(from)) => taken = Some((source, self.take(model, source, from).await?)),
            (Some((model, source)), None) => self.fetch(model, source, fetching).await?,
            (None, Some(_)) => return Err(LocalModelError::NoFiles { name: name.to_owned() }.into()),
            (None, None) => {}
        }
        let (setting, value, tried) = match &named {
            LocalModel::Embedder(choice) => (EMBEDDER, choice.to_string(), self.try_embedder(choice).await),
            LocalModel::Reranker(choice) => (RERANKER, choice.to_string(), self.try_reranker(choice).await),
        };
        if let (Err(EngineError::Model(error)), Some((source, taken))) = (&tried, taken)
            && error.is_of_files()
            && let Err(error) = self.settings.paths.store().undo(source, &taken)
        {
            tracing::warn!(error = with_causes(&error), "files that are no usable model were not removed");
        }
        tried?;
        // Only after the model was tried: a setting that cannot be used would fail every later command.
        let written = self.settings.write(&self.project, setting, &value).map_err(LocalModelError::from)?;
        let reembedding = match named {
            LocalModel::Embedder(choice) if written.overridden.is_none() => {
                // As the next command will resolve it.
                self.settings.values.embedder = Some(choice);
                self.reembedding().await
            }
            LocalModel::Embedder(_) | LocalModel::Reranker(_) => Reembedding::Unconcerned,
        };
        let folder = source.is_some().then(|| self.settings.paths.store().folder().to_owned());
        Ok(ModelUse { setting, value, written, folder, reembedding })
    }

    /// Downloads an embedder if its files are missing.
    pub(super) async fn fetch_embedder(
        &self,
        choice: &EmbedderChoice,
        fetching: &Fetching<'_>,
    ) -> Result<(), LocalModelError> {
        match LocalModel::Embedder(choice.clone()).source() {
            Some((model, source)) => self.fetch(&model, &source, fetching).await,
            None => Ok(()),
        }
    }

    async fn fetch(&self, model: &str, source: &ModelSource, fetching: &Fetching<'_>) -> Result<(), LocalModelError> {
        let store = self.settings.paths.store();
        // Before the check for offline: files that are here need no network.
        if store.find(source).is_some() {
            return Ok(());
        }
        if self.is_offline() {
            return Err(LocalModelError::Offline { model: model.to_owned() });
        }
        let failed = |source| LocalModelError::Download { model: model.to_owned(), source };
        let hub = self.settings.hub().map_err(failed)?;
        tracing::info!(model, from = %hub.address(), "downloading a model");
        hub.download(&store, model, source, fetching).await.map_err(failed)
    }

    async fn take(&self, model: &str, source: &ModelSource, from: &Path) -> Result<Taken, EngineError> {
        let (store, source, from) = (self.settings.paths.store(), source.clone(), from.to_owned());
        let taken = tokio::task::spawn_blocking(move || store.take(&source, &from)).await?;
        Ok(taken.map_err(|source| LocalModelError::Take { model: model.to_owned(), source })?)
    }

    /// Embeds a word. A server is not asked.
    async fn try_embedder(&self, choice: &EmbedderChoice) -> Result<(), EngineError> {
        let failed = |source| LocalModelError::Embedder { model: choice.to_string(), source };
        let embedder = self.load_embedder(choice).await.map_err(failed)?;
        if embedder.server().is_none() {
            tokio::task::spawn_blocking(move || embedder.embed_query("ready")).await?.map_err(failed)?;
        }
        Ok(())
    }

    async fn try_reranker(&self, choice: &CrossEncoderChoice) -> Result<(), EngineError> {
        let paths = &self.settings.paths;
        let encoder =
            CrossEncoder::new(choice.clone(), paths.store(), paths.data.clone(), self.settings.values.threads);
        let scored = move || encoder.scores("ready", &["ready".to_owned()], &CancellationToken::new()).map(drop);
        let scored = tokio::task::spawn_blocking(scored).await?;
        Ok(scored.map_err(|source| LocalModelError::Reranker { model: choice.to_string(), source })?)
    }

    /// Returns the effect of the embedder of the settings on the index.
    async fn reembedding(&self) -> Reembedding {
        let Ok(Some(stored)) = Index::known(&self.location).await else { return Reembedding::NoIndex };
        let choice = self.embedder_choice(Some(&stored), false);
        let from = stored.embedder.name;
        match self.load_embedder(&choice).await {
            Ok(embedder) if embedder.fingerprint() == stored.embedder.fingerprint => Reembedding::None,
            // A model that cannot be loaded counts as another one.
            Ok(_) | Err(_) => {
                let request = IndexRequest { embed: true, ..IndexRequest::default() };
                match self.index_estimate(&request).await {
                    Ok(estimate) => Reembedding::Needed { from, estimate: Box::new(estimate) },
                    Err(_) => Reembedding::Unknown { from },
                }
            }
        }
    }
}

impl ModelEntry {
    fn named(name: String, place: &str, is_here: bool) -> Self {
        Self { name, place: place.to_owned(), is_here, ..Self::default() }
    }
}
