//! Errors of the engine, their kinds and hints.

// Below this file and not beside the code that fails, which returns `EngineError`: the two would use each other.
pub(super) mod get;
pub(super) mod model;
pub(super) mod pull;
pub(super) mod verify;

use std::path::PathBuf;

use self::get::GetError;
use self::model::LocalModelError;
use self::pull::PullError;
use self::verify::VerifyError;
use super::request::RequestError;
use crate::base::folder::in_the_way;
use crate::base::id::RunId;
use crate::config::{ConfigError, TrustError};
use crate::kb::embed::EmbedError;
use crate::kb::eval::EvalError;
use crate::kb::index::{IndexError, LocationError};
use crate::kb::ingest::IngestError;
use crate::kb::search::SearchError;
use crate::llm::call::CallError;
use crate::llm::message::Role;
use crate::llm::roles::ModelsError;
use crate::run::orchestrator::RunError;
use crate::run::recall::RecallError;
use crate::run::store::StoreError;
use crate::source::mcp::ServerError;

/// An operation of the engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("no server `{name}` in your settings")]
    NoServer { name: String, known: Vec<String> },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Search(#[from] SearchError),
    #[error("embedder cannot be used")]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    Model(#[from] LocalModelError),
    #[error(transparent)]
    Get(#[from] GetError),
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// The folder of a collection is outside the project. An index that was shipped with the project may not make `dr`
    /// read other folders.
    #[error("collection `{collection}` is indexed from `{root}`, which is outside this project")]
    RootOutside { collection: String, root: PathBuf },
    /// A folder in the project is a symbolic link out of it, which may have come with the project. `was_folder` says that it
    /// was indexed before it became a link.
    #[error("`{link}` is a symbolic link to `{real}`, which is outside this project")]
    LinkOutside { link: PathBuf, real: PathBuf, was_folder: bool },
    #[error("index `{uri}` is on the network, and `dr` is offline")]
    RemoteOffline { uri: String },
    #[error("no collection `{name}` in the index")]
    NoCollection { name: String, known: Vec<String> },
    #[error("index was made before links were stored")]
    NoLinks,
    #[error("no folder to index was given, and none is known yet")]
    NothingToIndex { rebuild: bool },
    #[error("two folders would both be collection `{name}`")]
    SameName { name: String },
    #[error("failed to {action} `{path}`")]
    Folder { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// The request is restricted to the web, which cannot be searched.
    #[error("web cannot be searched: {reason}")]
    NoWayOut { reason: &'static str, hint: &'static str },
    /// The folder for runs is read-only, or its disk is full. A run with models must be stored, so that paid replies
    /// are not lost.
    #[error("folder `{folder}` is not writable, and a run with a model must be stored there")]
    CannotKeep { folder: PathBuf, source: Box<Self> },
    #[error("collection `{collection}` is for local models only, and the {role} is at `{endpoint}`")]
    NotLocal { collection: String, role: Role, endpoint: String },
    #[error("collection `{collection}` is for local models only, and the embedder `{embedder}` is at `{address}`")]
    EmbedderNotLocal { collection: String, embedder: String, address: String },
    #[error("price of the embedder `{embedder}` is not known, and the cost is limited")]
    EmbedderUnpriced { embedder: String },
    #[error("collection `{collection}` is for this machine only, and this server answers other machines")]
    LocalOnly { collection: String },
    /// The caller gave up before the work began.
    #[error("request was cancelled")]
    Cancelled,
    /// Another process works on the run that is to be cancelled.
    #[error("run `{run}` was not started by this server")]
    NotStartedHere { run: String },
    #[error("{most} runs are being worked on, which is the limit")]
    TooManyRuns { most: u32 },
    /// A report was asked for that is not final yet.
    #[error("run `{run}` is being worked on")]
    StillRunning { run: String },
    #[error("run `{run}` failed: {reason}")]
    RunFailed { run: String, reason: String },
    #[error("price of `{model}` ({role}) is not known, and the cost of a run is limited")]
    Unpriced { model: String, role: Role },
    #[error("plan was made for a run that follows `{run}`")]
    PlanFollows { run: RunId },
    #[error("run was started with `{was}` as its {role}, and `{now}` is set now")]
    OtherModel { role: Role, was: String, now: String },
    /// A run was started with its language model as reranker and is resumed without, or the other way round.
    #[error("run was started with another `[rerank]`")]
    OtherReranker,
    #[error("no run can be resumed: all have ended")]
    NothingToResume { newest: RunId },
    /// A plan has no report before it is carried out.
    #[error("run `{run}` was only planned: it has no report")]
    OnlyPlanned { run: RunId },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Recall(#[from] RecallError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("failed to compare the files with the index")]
    Task(#[from] tokio::task::JoinError),
}

/// The kind of a failure, from which a surface derives an exit code or a status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request or a setting is invalid. A run, file or collection that does not exist is [`Self::Failed`].
    Usage,
    /// The user stopped it.
    Cancelled,
    /// A limit of the run ended it.
    Limit,
    Failed,
}

impl EngineError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_)
            | Self::Location(_)
            | Self::Request(_)
            | Self::Models(
                ModelsError::NoModel { .. }
                | ModelsError::Key { .. }
                | ModelsError::Address { .. }
                | ModelsError::WindowTooSmall { .. }
                | ModelsError::NotTaken { .. },
            )
            | Self::RemoteOffline { .. }
            | Self::SameName { .. }
            | Self::NoWayOut { .. }
            | Self::PlanFollows { .. }
            | Self::Run(RunError::Plan { .. }) => ErrorKind::Usage,
            Self::Verify(error) if error.is_usage() => ErrorKind::Usage,
            Self::Model(error) if error.is_usage() => ErrorKind::Usage,
            Self::Model(error) if error.is_cancelled() => ErrorKind::Cancelled,
            // Only a stopped run cancels a call; a time-out is a failure.
            Self::Cancelled | Self::Run(RunError::Call { source: CallError::Cancelled, .. }) => ErrorKind::Cancelled,
            Self::Run(RunError::Call { source: CallError::Limit(_), .. }) => ErrorKind::Limit,
            // Listed one by one, so that the compiler asks for the kind of a new error.
            Self::Trust(_)
            | Self::Server(_)
            | Self::NoServer { .. }
            | Self::Index(_)
            | Self::Ingest(_)
            | Self::Search(_)
            | Self::Embed(_)
            | Self::Model(_)
            | Self::Get(_)
            | Self::Eval(_)
            | Self::RootOutside { .. }
            | Self::LinkOutside { .. }
            | Self::NoCollection { .. }
            | Self::NoLinks
            | Self::NothingToIndex { .. }
            | Self::Folder { .. }
            // Not a usage error like the others: the HTTP client could not be built.
            | Self::Models(ModelsError::Http(_))
            | Self::CannotKeep { .. }
            | Self::NotLocal { .. }
            | Self::EmbedderNotLocal { .. }
            | Self::EmbedderUnpriced { .. }
            | Self::LocalOnly { .. }
            | Self::NotStartedHere { .. }
            | Self::TooManyRuns { .. }
            | Self::StillRunning { .. }
            | Self::RunFailed { .. }
            | Self::Unpriced { .. }
            | Self::OtherModel { .. }
            | Self::OtherReranker
            | Self::NothingToResume { .. }
            | Self::OnlyPlanned { .. }
            | Self::Run(_)
            | Self::Store(_)
            | Self::Recall(_)
            | Self::Verify(_)
            | Self::Pull(_)
            | Self::Task(_) => ErrorKind::Failed,
        }
    }

    /// Returns whether the named object is in a state that rules the request out: a run is worked on, a file has changed,
    /// the name is ambiguous, or an index is too old.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Busy { .. } | StoreError::Ambiguous(_))
                | Self::Get(GetError::Changed { .. } | GetError::Ambiguous { .. })
                | Self::StillRunning { .. }
                | Self::NotStartedHere { .. }
                | Self::OnlyPlanned { .. }
                | Self::NoLinks
        )
    }

    /// Returns whether something was named that does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NoCollection { .. }
                | Self::Get(
                    GetError::NoSuchId { .. }
                        | GetError::NoSuchPath { .. }
                        | GetError::NoMatch { .. }
                        | GetError::BeyondEnd { .. }
                        | GetError::NoSuchPage { .. }
                        | GetError::Gone { .. }
                )
                | Self::Store(StoreError::Missing(_) | StoreError::Empty { .. })
                | Self::Verify(VerifyError::NoReport { .. })
                | Self::NoServer { .. }
        )
    }

    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Trust(error) => error.hint(),
            Self::Location(error) => error.hint(),
            Self::Index(error) => error.hint(),
            Self::Ingest(error) => error.hint(),
            Self::Search(error) => error.hint(),
            Self::Embed(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Get(error) => error.hint(),
            Self::Eval(error) => Some(error.hint().to_owned()),
            Self::NoServer { known, .. } if known.is_empty() => {
                Some("`kb/how-to/call-your-own-tools.md` in dr's manual says how to set one up".into())
            }
            Self::NoServer { known, .. } => Some(format!("the settings have: {}", known.join(", "))),
            Self::NoCollection { known, .. } => Some(format!("the index has: {}", known.join(", "))),
            Self::RootOutside { root, .. } => Some(format!("if you trust the index, run `dr index {}`", root.display())),
            Self::LinkOutside { real, was_folder: false, .. } => {
                Some(format!("if you want that folder to be read, name it: `dr index {}`", real.display()))
            }
            Self::LinkOutside { was_folder: true, .. } => {
                Some("restore the folder, or remove the collection with `dr index --prune`".into())
            }
            Self::RemoteOffline { .. } => Some("use a local index with `--index <FOLDER>`".into()),
            Self::NoLinks => Some("run `dr index` to bring it up to date".into()),
            Self::NothingToIndex { rebuild: false } => Some("run `dr index <FOLDER>`".into()),
            Self::NothingToIndex { rebuild: true } => Some("run `dr index --rebuild <FOLDER>`".into()),
            Self::SameName { .. } => Some("name them with `--collection`, once for each folder".into()),
            Self::Models(error) => error.hint(),
            Self::NoWayOut { hint, .. } => Some((*hint).into()),
            Self::CannotKeep { .. } => Some(
                "make the folder writable, free some disk space, or work on a copy of the project; `--offline` answers \
                 without a model, and keeps nothing"
                    .into(),
            ),
            Self::PlanFollows { run } => Some(format!("add `--follow {run}`")),
            Self::NotLocal { .. } => {
                Some("ask other collections with `--collection`, or set up a model of your own".into())
            }
            Self::EmbedderNotLocal { .. } => Some(
                "index it with `--embedder builtin`, without vectors (`--no-embed`), or by itself (`--index`); `local = \
                 true` in `[embedding]` says that the server is your own"
                    .into(),
            ),
            Self::EmbedderUnpriced { .. } => Some(
                "set `price` in `[embedding]`, `local = true` for a server of your own, or lift the limit with \
                 `--max-cost inf`"
                    .into(),
            ),
            Self::LocalOnly { .. } => Some(
                "it is served over stdio and on a loopback address; `local_only` in `[collections]` of the server's \
                 settings says so"
                    .into(),
            ),
            Self::NotStartedHere { .. } => Some("end the process that works on it".into()),
            Self::TooManyRuns { .. } => Some("wait until one of them has ended, or cancel one".into()),
            Self::StillRunning { run } => Some(format!("ask for the status of run {run} until it has ended")),
            Self::RunFailed { run, .. } => Some(format!("`dr show {run}` prints what it has; `dr resume {run}` continues")),
            Self::Unpriced { model, .. } => Some(format!(
                "set `[prices.\"{model}\"]` with `input` and `output`, `local = true` for a server of your own, or lift \
                 the limit with `--max-cost inf`"
            )),
            Self::OtherModel { was, .. } => {
                Some(format!("set the models as they were, for example with `--model {was}` where it was one for all"))
            }
            Self::OtherReranker => Some("set `model` in `[rerank]` as it was, or ask again".into()),
            Self::NothingToResume { newest } => Some(format!(
                "`dr replay` prints the newest report again; `dr resume {newest} --add-rounds 1` continues that run"
            )),
            Self::OnlyPlanned { run } => {
                Some(format!("`dr resume {run}` carries the plan out; `dr show {run}` prints it"))
            }
            Self::Run(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Recall(error) => error.hint(),
            Self::Pull(error) => Some(error.hint().to_owned()),
            Self::Verify(error) => error.hint(),
            Self::Request(error) => error.hint(),
            Self::Folder { action: "create", path, source } => in_the_way(path, source),
            Self::Folder { .. } | Self::Task(_) | Self::Cancelled | Self::Server(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::environment::KeyError;
    use crate::base::http::ParseBaseUrlError;

    #[test]
    fn model_setting_that_is_invalid_is_a_usage_error() {
        let role = Role::Planner;
        for error in [
            ModelsError::Address { role, source: ParseBaseUrlError::NotBare },
            ModelsError::Key { role, source: KeyError::BadName },
            ModelsError::WindowTooSmall { role, window_tokens: 1, output_tokens: 2 },
        ] {
            assert_eq!(EngineError::from(error).kind(), ErrorKind::Usage);
        }
    }
}
