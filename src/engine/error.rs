//! Why the engine could not do what it was asked.

use std::path::PathBuf;

use super::passage::GetError;
use super::request::RequestError;
use crate::config::ConfigError;
use crate::kb::embed::EmbedError;
use crate::kb::eval::EvalError;
use crate::kb::index::{IndexError, LocationError};
use crate::kb::ingest::IngestError;
use crate::kb::search::SearchError;
use crate::llm::call::CallError;
use crate::llm::message::Role;
use crate::llm::price::PriceError;
use crate::llm::roles::ModelsError;
use crate::run::orchestrator::RunError;
use crate::run::recall::RecallError;
use crate::run::store::StoreError;

/// What the engine was asked to do failed.
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
    /// The request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A blocking task died.
    #[error("failed to compare the files with the index")]
    Task(#[from] tokio::task::JoinError),
}

/// The kind of a failure: what a surface makes an exit code or a status code of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request or a setting cannot be used.
    Usage,
    /// The user stopped it.
    Cancelled,
    /// A limit of the run ended it.
    Limit,
    /// Anything else.
    Failed,
}

impl EngineError {
    /// Returns the kind of this failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_)
            | Self::Location(_)
            | Self::Request(_)
            | Self::RemoteOffline { .. }
            | Self::NoWayOut { .. }
            | Self::Run(RunError::Plan { .. }) => ErrorKind::Usage,
            Self::Run(RunError::Call { source: CallError::Cancelled, .. }) => ErrorKind::Cancelled,
            Self::Run(RunError::Call { source: CallError::Limit(_), .. }) => ErrorKind::Limit,
            Self::Index(_)
            | Self::Ingest(_)
            | Self::Search(_)
            | Self::Embed(_)
            | Self::Get(_)
            | Self::Eval(_)
            | Self::RootOutside { .. }
            | Self::NoCollection { .. }
            | Self::NothingToIndex
            | Self::SameName { .. }
            | Self::Folder { .. }
            | Self::Models(_)
            | Self::Price(_)
            | Self::CannotKeep { .. }
            | Self::NotLocal { .. }
            | Self::Unpriced { .. }
            | Self::OtherModel { .. }
            | Self::Run(_)
            | Self::Recall(_)
            | Self::Store(_)
            | Self::Task(_) => ErrorKind::Failed,
        }
    }

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
            Self::Eval(error) => Some(error.hint().to_owned()),
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
            Self::Request(error) => error.hint(),
            Self::Price(_) | Self::Folder { .. } | Self::Recall(_) | Self::Task(_) => None,
        }
    }
}
