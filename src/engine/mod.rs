//! Everything `dr` can do, as methods: index, search, get, ask, eval, doctor.
//!
//! An engine knows where the index is and how settings were resolved, and nothing of how it was called: no terminal, no
//! flags, no exit codes.

mod passage;

mod doctor;

mod model_checks;

mod outside_checks;

mod run;

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

pub use crate::run::orchestrator::AskBack;
pub use doctor::{Check, CheckStatus, Checkup, ExplainedSetting};
pub use passage::{Extent, GetError, Passage, Selector};
pub use run::{AskRequest, Asked, Planned, RunSummary, report_of};

use crate::base::line::with_causes;
use crate::config::{ConfigError, Options, Paths, Settings};
use crate::kb::embed::{self, EmbedError, Embedder, EmbedderChoice, EmbedderOptions};
use crate::kb::eval::{EvalError, EvalQuery, Figures, Judgments, Ranking, check_indexed, measure};
use crate::kb::index::{DR_FOLDER, Filter, Index, IndexError, IndexLocation, LocationError, WriterLock};
use crate::kb::ingest::{CollectionSource, IngestError, IngestEvent, IngestOptions, IngestSummary, Listener, ingest};
use crate::kb::search::{Found, PerDocument, SearchError, SearchMode, SearchOptions, Searcher, VectorsUnusable};
use crate::llm::message::Role;
use crate::llm::price::PriceError;
use crate::llm::roles::ModelsError;
use crate::run::orchestrator::RunError;
use crate::run::recall::RecallError;
use crate::run::store::StoreError;

/// Threads of the embedder, at most; more would only cost memory.
const MAX_THREADS: usize = 256;

/// Documents ranked for each question of an evaluation.
const EVAL_DEPTH: usize = 100;

/// `dr`, set up for one index.
#[derive(Clone, Debug)]
pub struct Engine {
    settings: Settings,
    location: IndexLocation,
}

/// Something an engine was asked to do failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address of the index.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Indexing.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// Searching.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The embedder.
    #[error("embedder cannot be used")]
    Embed(#[from] EmbedError),
    /// Reading a passage.
    #[error(transparent)]
    Get(#[from] GetError),
    /// Measuring.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// A collection lies elsewhere, and an index that came with a folder may not send `dr` there.
    #[error("collection `{collection}` is indexed from `{root}`, which is outside this project")]
    RootOutside {
        /// The collection.
        collection: String,
        /// Its folder.
        root: PathBuf,
    },
    /// The index is on the network, which may not be touched.
    #[error("index `{uri}` is on the network, and `dr` is offline")]
    RemoteOffline {
        /// Its address.
        uri: String,
    },
    /// A collection that is not in the index.
    #[error("no collection `{name}` in the index")]
    NoCollection {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// There is nothing to index.
    #[error("no folder to index was given, and none is known yet")]
    NothingToIndex,
    /// Two folders would share a name.
    #[error("two folders would both be collection `{name}`")]
    SameName {
        /// The name.
        name: String,
    },
    /// A folder cannot be used.
    #[error("failed to {action} `{path}`")]
    Folder {
        /// What was attempted: `find`, `create`.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Settings of models.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// A price.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// Everything is to be looked for on the web, and there is no way there.
    #[error("web cannot be asked: {reason}")]
    NoWayOut {
        /// Why.
        reason: &'static str,
        /// What the user can do.
        hint: &'static str,
    },
    /// Runs cannot be kept, and one with models is: what was paid for must not be lost.
    #[error("folder `{folder}` cannot be written to, and a run with a model is kept there")]
    CannotKeep {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: Box<Self>,
    },
    /// A model elsewhere would see what is for models of one's own.
    #[error("collection `{collection}` is for local models only, and the {role} is at `{endpoint}`")]
    NotLocal {
        /// The collection.
        collection: String,
        /// Whose model it is.
        role: Role,
        /// Where that is.
        endpoint: String,
    },
    /// Money is limited, and nobody knows what a model costs.
    #[error("price of `{model}` ({role}) is not known, and the cost of a run is limited")]
    Unpriced {
        /// The model.
        model: String,
        /// Whose it is.
        role: Role,
    },
    /// A run is to go on with another model than it was begun with.
    #[error("run was begun with `{was}` as its {role}, and `{now}` is set now")]
    OtherModel {
        /// Whose model.
        role: Role,
        /// The model then.
        was: String,
        /// The model now.
        now: String,
    },
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The memory of runs.
    #[error(transparent)]
    Recall(RecallError),
    /// The runs that are stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What may be searched was said by a pattern that is none.
    #[error("path pattern cannot be used")]
    Glob(#[from] globset::Error),
    /// A blocking task died.
    #[error("failed to compare the files with the index")]
    Task(#[from] tokio::task::JoinError),
}

impl EngineError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Location(error) => error.hint(),
            Self::Index(error) => error.hint(),
            Self::Ingest(error) => error.hint(),
            Self::Search(error) => error.hint(),
            Self::Embed(error) => error.hint(),
            Self::Get(error) => error.hint(),
            Self::Eval(error) => error.hint(),
            Self::NoCollection { known, .. } => Some(format!("the index has: {}", known.join(", "))),
            Self::RootOutside { root, .. } => Some(format!("if that is right, name it: `dr index {}`", root.display())),
            Self::RemoteOffline { .. } => Some("use a local index with `--index <FOLDER>`".into()),
            Self::NothingToIndex => Some("run `dr index <FOLDER>`".into()),
            Self::SameName { .. } => Some("name them with `--collection`, once for each folder".into()),
            Self::Models(error) => error.hint(),
            Self::NoWayOut { hint, .. } => Some((*hint).into()),
            Self::CannotKeep { .. } => Some(
                "give yourself the right to write there, or work on a copy of the project; `--offline` answers without a \
                 model, and keeps nothing"
                    .into(),
            ),
            Self::NotLocal { .. } => {
                Some("ask other collections with `--collection`, or set up a model of your own".into())
            }
            Self::Unpriced { model, .. } => Some(format!(
                "set `[prices.\"{model}\"]` with `input` and `output`, `local = true` for a server of your own, or lift \
                 the limit with `--max-cost inf`"
            )),
            Self::OtherModel { was, .. } => {
                Some(format!("set the models as they were, for example with `--model {was}` where it was one for all"))
            }
            Self::Run(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Price(_) | Self::Folder { .. } | Self::Recall(_) | Self::Glob(_) | Self::Task(_) => None,
        }
    }
}

/// What [`Engine::index`] is to do.
#[derive(Clone, Debug, Default)]
pub struct IndexRequest {
    /// Folders; those known already when empty.
    pub folders: Vec<PathBuf>,
    /// Their names, in the same order; the folder's own name where there is none.
    pub names: Vec<String>,
    /// See [`IngestOptions::embed`].
    pub embed: bool,
    /// See [`IngestOptions::prune`].
    pub prune: bool,
    /// See [`IngestOptions::verify`].
    pub verify: bool,
    /// See [`IngestOptions::rebuild`].
    pub rebuild: bool,
}

impl Engine {
    /// Sets up for the index that `flags`, the settings, or the current folder point at.
    ///
    /// # Errors
    ///
    /// Returns an error for settings or an address that cannot be used. A missing index is none yet.
    pub fn new(flags: &Options) -> Result<Self, EngineError> {
        let paths = Paths::find()?;
        let nearest = IndexLocation::nearest(&paths.current);
        let project = match &nearest {
            Some(IndexLocation::Local { base, .. }) => base.clone(),
            _ => paths.current.clone(),
        };
        let settings = Settings::resolve(paths, &project, flags)?;
        let location = match (&settings.options.index, nearest) {
            (Some(address), _) => IndexLocation::parse(address)?,
            (None, Some(location)) => location,
            (None, None) => IndexLocation::in_folder(&settings.paths.current),
        };
        if let (IndexLocation::Remote { uri }, true) = (&location, settings.is_offline()) {
            return Err(EngineError::RemoteOffline { uri: uri.clone() });
        }
        location.check()?;
        Ok(Self { settings, location })
    }

    /// Returns where the index is, or would be made.
    pub fn location(&self) -> &IndexLocation {
        &self.location
    }

    /// Returns the resolved settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Brings the index up to date with folders.
    ///
    /// # Errors
    ///
    /// See [`IngestError`]; also where folders and names do not fit together.
    pub async fn index(
        &self,
        request: &IndexRequest,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<IngestSummary, EngineError> {
        let stored = match Index::open(&self.location).await {
            Ok(index) => Some(index),
            Err(IndexError::Missing { .. }) => None,
            // Whatever is wrong with it, the folders to make it again from were named.
            Err(_) if request.rebuild && !request.folders.is_empty() => {
                self.set_aside()?;
                None
            }
            Err(error) => return Err(error.into()),
        };
        let choice = self.embedder_choice(stored.as_ref(), request.rebuild);
        let embedder = self.load_embedder(&choice).await?;
        let (sources, forget) = self.sources(request, stored.as_ref())?;
        let options = IngestOptions {
            sources,
            forget,
            embed: request.embed,
            prune: request.prune,
            verify: request.verify,
            rebuild: request.rebuild,
        };
        let is_new = stored.is_none();
        drop(stored);
        self.make_folder()?;
        listener(IngestEvent::Opened { is_new });
        Ok(ingest(&self.location, &embedder, &choice.to_string(), &options, listener, cancel).await?)
    }

    /// Moves an index that cannot be opened out of the way; the one that was moved before is removed.
    fn set_aside(&self) -> Result<(), EngineError> {
        let Some(folder) = self.location.folder() else { return Ok(()) };
        let _lock = WriterLock::take(folder).map_err(IndexError::from)?;
        let aside = folder.with_extension("damaged");
        if aside.exists() {
            let failed = |source| EngineError::Folder { action: "remove", path: aside.clone(), source };
            std::fs::remove_dir_all(&aside).map_err(failed)?;
        }
        let failed = |source| EngineError::Folder { action: "rename", path: folder.to_path_buf(), source };
        std::fs::rename(folder, &aside).map_err(failed)
    }

    /// Returns the folders to index, and the collections to forget because theirs is gone.
    ///
    /// Those are the folders given; without one, and on a rebuild, every one known, so that none is lost.
    fn sources(
        &self,
        request: &IndexRequest,
        stored: Option<&Index>,
    ) -> Result<(Vec<CollectionSource>, Vec<String>), EngineError> {
        let mut sources = Vec::new();
        let mut names = request.names.iter();
        for folder in &request.folders {
            let root = canonical(folder)?;
            if !root.is_dir() {
                return Err(IngestError::NotAFolder { path: folder.clone() }.into());
            }
            let name = match names.next() {
                Some(name) => name.clone(),
                None => self.known_name(&root, stored).unwrap_or_else(|| folder_name(&root)),
            };
            if sources.iter().any(|source: &CollectionSource| source.name == name) {
                return Err(EngineError::SameName { name });
            }
            sources.push(CollectionSource { name, root });
        }
        let mut forget = Vec::new();
        if request.folders.is_empty() || request.rebuild {
            let collections = stored.map(|index| index.manifest().collections.clone()).unwrap_or_default();
            for (name, root) in collections {
                if sources.iter().any(|source| source.name == name) {
                    continue;
                }
                if !self.location.owns(&root) {
                    return Err(EngineError::RootOutside { collection: name, root: self.location.open_root(&root) });
                }
                let root = self.location.open_root(&root);
                match root.is_dir() {
                    true => sources.push(CollectionSource { name, root }),
                    false if request.prune => forget.push(name),
                    false => return Err(IngestError::RootGone { collection: name, root }.into()),
                }
            }
        }
        if sources.is_empty() && forget.is_empty() { Err(EngineError::NothingToIndex) } else { Ok((sources, forget)) }
    }

    /// Returns the collection that was indexed from `folder`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error where the folder does not exist.
    pub fn collection_of(&self, index: &Index, folder: &Path) -> Result<Option<String>, EngineError> {
        Ok(self.known_name(&canonical(folder)?, Some(index)))
    }

    fn known_name(&self, root: &Path, stored: Option<&Index>) -> Option<String> {
        let root = self.location.store_root(root);
        let mut collections = stored?.manifest().collections.iter();
        collections.find(|(_, known)| **known == root).map(|(name, _)| name.clone())
    }

    /// Makes `.dr` with an ignore file of its own, so that an index is never committed by accident.
    fn make_folder(&self) -> Result<(), EngineError> {
        let Some(folder) = self.location.folder() else { return Ok(()) };
        create_folder(folder)?;
        match folder.parent().filter(|parent| parent.ends_with(DR_FOLDER)) {
            Some(parent) => create_ignore_file(parent),
            None => Ok(()),
        }
    }

    /// Returns the embedder to use: the one asked for, else the one that made the index, else the built-in one.
    fn embedder_choice(&self, stored: Option<&Index>, rebuild: bool) -> EmbedderChoice {
        let stored = stored.filter(|_| !rebuild).and_then(|index| index.manifest().embedder.choice.parse().ok());
        let stored = stored.filter(|choice| !self.is_shipped(choice));
        match self.settings.options.embedder.clone().or(stored).unwrap_or_default() {
            // The index remembers the choice, and is used from other folders too.
            EmbedderChoice::Fastembed(model) if Path::new(&model).is_dir() => {
                let folder = std::path::absolute(&model).unwrap_or_else(|_| PathBuf::from(&model));
                EmbedderChoice::Fastembed(folder.to_string_lossy().into_owned())
            }
            choice => choice,
        }
    }

    /// Tells whether an embedder is a folder inside the project: it may have come with the index, and the files of a
    /// model are not loaded on somebody else's word.
    fn is_shipped(&self, choice: &EmbedderChoice) -> bool {
        match (choice, &self.location) {
            (EmbedderChoice::Fastembed(model), IndexLocation::Local { base, .. }) => {
                base.join(model).exists() && base.join(model).starts_with(base)
            }
            _ => false,
        }
    }

    async fn load_embedder(&self, choice: &EmbedderChoice) -> Result<Arc<dyn Embedder>, EmbedError> {
        let options = EmbedderOptions {
            choice: choice.clone(),
            offline: self.settings.is_offline(),
            cache_dir: self.settings.paths.models.clone(),
            data_dir: Some(self.settings.paths.data.clone()),
            threads: self.settings.options.threads.map(|threads| threads.clamp(1, MAX_THREADS)),
        };
        let model = choice.to_string();
        tokio::task::spawn_blocking(move || embed::load(&options))
            .await
            .unwrap_or_else(|error| Err(EmbedError::Load { model, source: Box::new(error) }))
    }

    /// Opens the index for searching in `mode`, with its embedder where that takes one and it can be had.
    ///
    /// While the index is being opened, the embedder it most likely has is made ready.
    pub async fn searcher(&self, mode: SearchMode) -> Result<Searcher, EngineError> {
        if mode == SearchMode::Lexical {
            let reason = "a lexical search does not load it".to_owned();
            return Ok(Searcher::new(Index::open(&self.location).await?, Err(VectorsUnusable::NoEmbedder(reason))));
        }
        let likely = self.embedder_choice(None, false);
        let (index, loaded) = futures::join!(Index::open(&self.location), self.warm_embedder(&likely));
        let index = index?;
        let choice = self.embedder_choice(Some(&index), false);
        let loaded = if choice == likely { loaded } else { self.load_embedder(&choice).await };
        let embedder = loaded.map_err(|error| VectorsUnusable::NoEmbedder(with_causes(&error)));
        Ok(Searcher::new(index, embedder))
    }

    /// Loads an embedder, and leaves a thread behind that makes it ready for its first query.
    async fn warm_embedder(&self, choice: &EmbedderChoice) -> Result<Arc<dyn Embedder>, EmbedError> {
        let embedder = self.load_embedder(choice).await?;
        let warmed = Arc::clone(&embedder);
        // Nobody waits for it: a query that comes too early waits inside the embedder.
        drop(tokio::task::spawn_blocking(move || warmed.warm_up()));
        Ok(embedder)
    }

    /// Searches.
    ///
    /// # Errors
    ///
    /// See [`SearchError`]; also where a collection is named that the index does not have.
    pub async fn search(&self, searcher: &Searcher, text: &str, options: &SearchOptions) -> Result<Found, EngineError> {
        check_collections(searcher, &options.filter.collections)?;
        Ok(searcher.search(text, options).await?)
    }

    /// Measures searches against judgments.
    ///
    /// # Errors
    ///
    /// Returns an error where a judged file is not in the index; see [`EvalError`].
    pub async fn eval(
        &self,
        queries: &[EvalQuery],
        judgments: &Judgments,
        mode: SearchMode,
        collection: Option<&str>,
    ) -> Result<Figures, EngineError> {
        let searcher = self.searcher(mode).await?;
        let documents = searcher.index().documents(collection).await?;
        let indexed: HashSet<_> = documents.into_iter().map(|row| row.path).collect();
        check_indexed(judgments, &indexed)?;
        let filter = Filter { collections: collection.map(str::to_owned).into_iter().collect(), ..Filter::default() };
        let options =
            SearchOptions { mode, limit: EVAL_DEPTH, per_document: PerDocument::Only(1), filter, paths: None };
        let mut rankings = Vec::new();
        for query in queries.iter().filter(|query| judgments.contains_key(&query.id)) {
            let started = Instant::now();
            let found = self.search(&searcher, &query.text, &options).await?;
            let paths = found.hits.into_iter().map(|hit| hit.path).collect();
            rankings.push(Ranking { query: query.id.clone(), paths, latency: started.elapsed() });
        }
        Ok(measure(&rankings, judgments)?)
    }
}

fn canonical(folder: &Path) -> Result<PathBuf, EngineError> {
    let failed = |source| EngineError::Folder { action: "find", path: folder.to_path_buf(), source };
    folder.canonicalize().map_err(failed)
}

fn create_folder(folder: &Path) -> Result<(), EngineError> {
    let failed = |source| EngineError::Folder { action: "create", path: folder.to_path_buf(), source };
    std::fs::create_dir_all(folder).map_err(failed)
}

/// Refuses collections that are not in the index.
fn check_collections(searcher: &Searcher, wanted: &[String]) -> Result<(), EngineError> {
    let collections = &searcher.index().manifest().collections;
    match wanted.iter().find(|name| !collections.contains_key(*name)) {
        Some(name) => {
            Err(EngineError::NoCollection { name: name.clone(), known: collections.keys().cloned().collect() })
        }
        None => Ok(()),
    }
}

/// Creates the file that keeps a `.dr` folder out of version control.
fn create_ignore_file(folder: &Path) -> Result<(), EngineError> {
    let path = folder.join(".gitignore");
    let created = match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => file.write_all(b"*\n"),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    created.map_err(|source| EngineError::Folder { action: "create", path, source })
}

fn folder_name(root: &Path) -> String {
    root.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
}
