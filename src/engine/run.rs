//! Runs as methods: ask, plan, resume, report, list, remove.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError, check_collections, make_ignore_file, searched};
use crate::base::clock::{Clock, SystemClock};
use crate::base::id::RunId;
use crate::kb::index::{DR_FOLDER, IndexLocation};
use crate::kb::search::{Scope, Searcher};
use crate::llm::roles::Models;
use crate::research::evidence::{Picked, pick};
use crate::research::extract::Pick;
use crate::research::node::NodeId;
use crate::research::plan::PlanDraft;
use crate::research::question::{Mode, Question};
use crate::research::report::{Material, Report, StopReason};
use crate::run::budget::BudgetLimits;
use crate::run::estimate::Estimate;
use crate::run::event::{Followed, RunSettings};
use crate::run::journal::RunRow;
use crate::run::orchestrator::{Orchestrator, Resources, RunListener, Sources};
use crate::run::recall::Recall;
use crate::run::steps::draft_by_rules;
use crate::run::store::{Store, StoreError};
use crate::run::tree::RunState;
use crate::run::usage::usage_of;
use crate::source::{KbSource, Passage, Source, SourceError};

/// What [`Engine::ask`] is to do.
#[derive(Clone, Debug)]
pub struct AskRequest {
    /// What is asked.
    pub question: Question,
    /// What may be searched.
    pub scope: Scope,
    /// How much is done.
    pub mode: Mode,
    /// A plan to run instead of making one.
    pub plan: Option<PlanDraft>,
    /// A JSON Schema the answer must have.
    pub output_schema: Option<Value>,
    /// An earlier run this question follows up, by its id or how that begins.
    pub follow: Option<String>,
}

/// Shows the user a question and returns what they say.
pub type AskBack<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

impl AskRequest {
    /// Asks a question of what `scope` lets through, and leaves everything else open.
    pub fn new(question: Question, scope: Scope, mode: Mode) -> Self {
        Self { question, scope, mode, plan: None, output_schema: None, follow: None }
    }
}

/// A run, as far as it came.
#[derive(Debug)]
pub struct Asked {
    /// The run.
    pub run: RunId,
    /// Where it stands.
    pub state: RunState,
    /// Its report.
    pub report: Report,
    /// Whether it is stored, and can be resumed.
    pub is_kept: bool,
}

/// A run that was planned and not begun.
#[derive(Debug)]
pub struct Planned {
    /// The run; resuming it carries the plan out.
    pub run: RunId,
    /// Where it stands.
    pub state: RunState,
    /// What it will take.
    pub estimate: Estimate,
}

impl Engine {
    /// Opens the runs of this project, and makes the place for them where there is none.
    ///
    /// # Errors
    ///
    /// Returns an error where they cannot be read or written.
    pub fn store(&self) -> Result<Store, EngineError> {
        let folder = self.runs_folder();
        let failed = |source| EngineError::Folder { path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        make_ignore_file(&folder).map_err(failed)?;
        Ok(Store::open(&folder)?)
    }

    /// Returns the `.dr` folder runs are kept in: that of the index, else that of the folder the user stands in.
    fn runs_folder(&self) -> PathBuf {
        let of_index = match self.location() {
            IndexLocation::Local { folder, .. } => folder.parent().filter(|parent| parent.ends_with(DR_FOLDER)),
            IndexLocation::Remote { .. } => None,
        };
        of_index.map_or_else(|| self.settings().paths.current.join(DR_FOLDER), std::path::Path::to_path_buf)
    }

    /// Answers a question by a run of research.
    ///
    /// # Errors
    ///
    /// Returns an error where the index or the journal cannot be used, or no model answers. Finding nothing, and
    /// reaching a limit, are none: the report says so.
    pub async fn ask(
        &self,
        searcher: &Searcher,
        request: AskRequest,
        ask_back: Option<AskBack<'_>>,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Asked, EngineError> {
        let mut run = self.begin(searcher, &request, listener, stop).await?;
        if let (Some(ask_back), None) = (ask_back, &request.plan) {
            run.clarify(ask_back).await?;
        }
        if request.plan.is_some() {
            run.plan(request.plan.as_ref()).await?;
        }
        finish(run).await
    }

    /// Plans a run and stops there.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub async fn plan(
        &self,
        searcher: &Searcher,
        request: AskRequest,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Planned, EngineError> {
        let mut run = self.begin(searcher, &request, listener, stop).await?;
        run.plan(request.plan.as_ref()).await?;
        let models = self.settings().models()?;
        let estimate = Estimate::of(run.state(), models.as_ref());
        Ok(Planned { run: run.id().clone(), state: run.state().clone(), estimate })
    }

    /// Goes on with a run; `limits` are changed from what it was begun with.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`]; also where another process works on the run.
    pub async fn resume(
        &self,
        searcher: &Searcher,
        run: RunId,
        raise: impl FnOnce(&mut BudgetLimits) + Send,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Asked, EngineError> {
        let store = self.store()?;
        let (_, state) = store.read(&run).await?;
        let mut limits = state.settings.limits;
        raise(&mut limits);
        let models = if state.settings.by_rules { None } else { self.models(&limits)? };
        let resources = self.resources(searcher, &state.settings.scope, store, models, listener, stop).await?;
        finish(Orchestrator::resume(run, Some(limits), resources).await?).await
    }

    /// Tells whether a language model is set up; without one rules do its work.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that do not make up a model.
    pub fn has_model(&self) -> Result<bool, EngineError> {
        Ok(self.settings().models()?.is_some())
    }

    /// Returns the models, where none of them could pass a limit of money unseen.
    fn models(&self, limits: &BudgetLimits) -> Result<Option<Models>, EngineError> {
        let models = self.settings().models()?;
        let is_limited = limits.cost_nanos.is_some();
        match models.as_ref().filter(|_| is_limited).and_then(|models| models.unpriced().into_iter().next()) {
            Some((role, model)) => Err(EngineError::Unpriced { model, role }),
            None => Ok(models),
        }
    }

    async fn begin(
        &self,
        searcher: &Searcher,
        request: &AskRequest,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Orchestrator, EngineError> {
        // A folder that cannot be written to can still be asked; nothing is kept then.
        let store = self.store().or_else(|_| Store::in_memory())?;
        let models = self.models(&self.settings().options.limits())?;
        let by_rules = models.is_none();
        let follows = match &request.follow {
            Some(name) => Some(followed(&store, name).await?),
            None => None,
        };
        let resources = self.resources(searcher, &request.scope, store, models, listener, stop).await?;
        let options = &self.settings().options;
        let settings = RunSettings {
            mode: request.mode,
            limits: options.limits(),
            tree: options.tree_limits(),
            parallel: options.parallel(),
            summary_tokens: options.summary_tokens(),
            by_rules,
            output_schema: request.output_schema.clone(),
            scope: request.scope.clone(),
            searched: resources.sources.internal.scope(),
            source_version: resources.sources.internal.version(),
            follows,
        };
        let run = RunId::random(rand::random());
        Ok(Orchestrator::start(run, request.question.clone(), settings, resources).await?)
    }

    async fn resources(
        &self,
        searcher: &Searcher,
        scope: &Scope,
        store: Store,
        models: Option<Models>,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Resources, EngineError> {
        check_collections(searcher, &scope.collections)?;
        let options = scope.options()?;
        let searched = searched(searcher.index(), &options).await?;
        let internal = KbSource::new(searcher.clone(), options, searched).await?;
        let embedder = searcher.embedder().map(Arc::clone);
        let recall = match (&embedder, store.is_kept()) {
            (Some(embedder), true) => Recall::open(&self.runs_folder(), Arc::clone(embedder)).await.ok(),
            _ => None,
        };
        Ok(Resources {
            store,
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            sources: Sources { internal: Arc::new(internal) as Arc<dyn Source>, web: None },
            picker: Arc::new(Picker(searcher.clone())),
            embedder,
            recall,
            models,
            listener,
            stop,
            seed: rand::random(),
        })
    }
}

/// Carries a run to its end and reads its report off the journal, as a replay would.
async fn finish(mut run: Orchestrator) -> Result<Asked, EngineError> {
    run.conduct().await?;
    let (store, id) = (run.store().clone(), run.id().clone());
    let report = report_of(&store, &id, run.state()).await?;
    Ok(Asked { run: id, state: run.state().clone(), report, is_kept: store.is_kept() })
}

/// Makes the report of a run from its journal alone: of one that has not ended, from what it has.
///
/// # Errors
///
/// Returns an error where the journal cannot be read.
pub async fn report_of(store: &Store, run: &RunId, state: &RunState) -> Result<Report, StoreError> {
    let usage = usage_of(store.journal(), run).await?;
    let draft = match (&state.end, &state.draft) {
        (Some(_), Some(draft)) => draft.clone(),
        _ => draft_by_rules(state),
    };
    Ok(Report::of(Material {
        run_id: store.is_kept().then(|| run.to_string()),
        question: &state.question,
        tree: &state.tree,
        branches: &state.branches,
        draft: &draft,
        stop_reason: state.end.unwrap_or(StopReason::Cancelled),
        searched: &state.settings.searched,
        usage,
        elapsed_ms: u64::try_from(state.active.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Reads what a follow-up question is asked about.
async fn followed(store: &Store, name: &str) -> Result<Followed, EngineError> {
    let run = store.find(Some(name)).await?;
    let (_, state) = store.read(&run).await?;
    let report = report_of(store, &run, &state).await?;
    Ok(Followed { run, question: state.question, answer: report.answer })
}

/// Picks sentences on a thread that may block.
struct Picker(Searcher);

impl Pick for Picker {
    fn pick<'a>(
        &'a self,
        node: &'a NodeId,
        question: &'a Question,
        passages: &'a [Passage],
    ) -> BoxFuture<'a, Result<Vec<Picked>, SourceError>> {
        let (searcher, node, question, passages) = (self.0.clone(), node.clone(), question.clone(), passages.to_vec());
        Box::pin(async move {
            let failed = |reason: String| SourceError::Failed { name: "embedder".to_owned(), reason };
            let picked = tokio::task::spawn_blocking(move || {
                let embedder = searcher.embedder().map(AsRef::as_ref);
                pick(&node, &question, &passages, searcher.splitter(), embedder)
            });
            picked.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
        })
    }
}

/// A run in a list.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// What was asked.
    pub question: String,
    /// When it began, in UTC.
    pub started: String,
    /// Why it ended, or that it has not.
    pub state: String,
    /// Its nodes.
    pub nodes: usize,
    /// Active time.
    pub seconds: f64,
    /// What it cost; none where a price is not known.
    pub cost_usd: Option<f64>,
}

impl Engine {
    /// Lists the runs that are stored, newest first. One whose journal makes no sense is listed as broken.
    ///
    /// # Errors
    ///
    /// Returns an error where the journal cannot be read.
    pub async fn runs(&self) -> Result<Vec<RunSummary>, EngineError> {
        let store = self.store()?;
        let mut runs = Vec::new();
        for RunRow { id, question, started_at } in store.journal().runs().await.map_err(StoreError::from)? {
            let usage = usage_of(store.journal(), &id).await.map_err(StoreError::from)?;
            let at = i64::try_from(started_at.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
            let (state, nodes, seconds) = match store.read(&id).await {
                Ok((_, state)) => {
                    let ended = state.end.and_then(|stop| serde_json::to_value(stop).ok()?.as_str().map(str::to_owned));
                    let open = if store.is_busy(&id) { "running" } else { "open" };
                    (ended.unwrap_or_else(|| open.to_owned()), state.tree.nodes.len(), state.active.as_secs_f64())
                }
                Err(StoreError::Broken { .. }) => ("broken".to_owned(), 0, 0.0),
                Err(error) => return Err(error.into()),
            };
            runs.push(RunSummary {
                id,
                question,
                started: at.map(|at| at.strftime("%F %H:%M").to_string()).unwrap_or_default(),
                state,
                nodes,
                seconds,
                cost_usd: usage.total.cost_usd,
            });
        }
        Ok(runs)
    }

    /// Removes a run, and what it left in the memory of runs.
    ///
    /// # Errors
    ///
    /// Returns an error for a run that does not exist, or that a process works on.
    pub async fn remove_run(&self, run: &RunId) -> Result<(), EngineError> {
        let store = self.store()?;
        store.remove(run).await?;
        Recall::forget(&self.runs_folder(), run).await.map_err(EngineError::Recall)
    }
}
