//! Runs as methods: ask, plan, resume, report, list, remove.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError, check_collections, create_folder, create_ignore_file};
use crate::base::clock::{Clock, SystemClock};
use crate::base::id::RunId;
use crate::base::money::{dollars_text, nanos};
use crate::kb::index::{DR_FOLDER, IndexLocation};
use crate::kb::search::{Scope, Searcher};
use crate::llm::message::Role;
use crate::llm::roles::{Models, ModelsError};
use crate::research::evidence::{Picked, pick};
use crate::research::extract::Pick;
use crate::research::node::{NodeId, SourceHint, Tree};
use crate::research::plan::SavedPlan;
use crate::research::question::{Mode, Question};
use crate::research::report::{Material, Report, StopReason, Usage, UsageTable};
use crate::run::budget::BudgetLimits;
use crate::run::estimate::Estimate;
use crate::run::event::{Followed, RunSettings};
use crate::run::jobs::to_try_again;
use crate::run::journal::{JournalError, RunRow};
use crate::run::orchestrator::{AskBack, Orchestrator, Resources, RunListener, Sources, check_plan};
use crate::run::phase::Phase;
use crate::run::recall::Recall;
use crate::run::steps::draft_by_rules;
use crate::run::store::{STATE_FILE, Store, StoreError};
use crate::run::tree::RunState;
use crate::run::usage::usage_of;
use crate::source::deep_research::DeepResearch;
use crate::source::web::{DateRange, WebAccess};
use crate::source::{KbSource, Passage, Source, SourceError};

/// How long a run may work where nobody says, and research at a provider's may be part of it.
const TIME_WITH_JOBS: Duration = Duration::from_hours(1);

/// What a run has to work with besides the index.
struct Means {
    /// Who thinks; rules do where there is nobody.
    models: Option<Models>,
    jobs: Option<Arc<DeepResearch>>,
    web: Option<WebAccess>,
}

impl Means {
    fn can_search(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.can_search)
    }
}

/// Folder of fetched pages in `.dr`.
const PAGES: &str = "pages";

/// What [`Engine::ask`] is to do.
#[derive(Clone, Debug)]
pub struct AskRequest {
    /// What is asked.
    pub question: Question,
    /// What may be searched.
    pub scope: Scope,
    /// How much is done.
    pub mode: Mode,
    /// What the answer must cover, whatever else it does.
    pub required: Vec<String>,
    /// Where everything is to be looked for; as planned where none.
    pub source: Option<SourceHint>,
    /// Whether texts made of the knowledge base may leave this machine.
    pub allow_egress: bool,
    /// Whether the pages Deep Research cites are read.
    pub verify_web: bool,
    /// A plan to run instead of making one.
    pub plan: Option<SavedPlan>,
    /// A JSON Schema the answer must have.
    pub output_schema: Option<Value>,
    /// An earlier run this question follows up, by its id or how that begins.
    pub follow: Option<String>,
}

impl AskRequest {
    /// Asks a question of what `scope` lets through, and leaves everything else open.
    pub fn new(question: Question, scope: Scope, mode: Mode) -> Self {
        Self {
            question,
            scope,
            mode,
            required: Vec::new(),
            source: None,
            allow_egress: false,
            verify_web: true,
            plan: None,
            output_schema: None,
            follow: None,
        }
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
        create_folder(&folder)?;
        create_ignore_file(&folder)?;
        Ok(Store::open(&folder)?)
    }

    /// Opens the runs of this project where there are some; makes nothing. Where they cannot be written to they can
    /// still be read, and locking one is an error.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Empty`] where there are none.
    pub fn known_runs(&self) -> Result<Store, EngineError> {
        let folder = self.runs_folder();
        if !folder.join(STATE_FILE).exists() {
            return Err(StoreError::Empty.into());
        }
        match Store::open(&folder).map_err(EngineError::from) {
            Err(error) if is_read_only(&error) => Ok(Store::read_only(&folder)?),
            store => Ok(store?),
        }
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
        let estimate = Estimate::of(run.state(), models.as_ref(), run.jobs());
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
        let store = self.known_runs()?;
        let (_, state) = store.read(&run).await?;
        let mut limits = state.settings.limits;
        raise(&mut limits);
        let is_done = state.is_over() && limits == state.settings.limits;
        let calls = store.journal().calls_in_short(&run).await.map_err(StoreError::from)?;
        let retries = self.settings().options.retry_unknown == Some(true);
        if is_done && to_try_again(&state, &calls, retries).is_empty() {
            return as_it_is(&store, run, state).await;
        }
        let models = if state.settings.by_rules { None } else { self.models(&limits)? };
        let means = self.means(searcher, &state.settings.scope, models, &limits)?;
        // What could be tried again is tried by jobs alone.
        if is_done && means.jobs.is_none() {
            return as_it_is(&store, run, state).await;
        }
        check_same_models(&state, means.models.as_ref())?;
        let resources = self.resources(searcher, &state.settings.scope, store, means, listener, stop).await?;
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

    /// Refuses to show a model elsewhere what is for models on machines of one's own.
    fn check_trust(&self, searcher: &Searcher, scope: &Scope, models: Option<&Models>) -> Result<(), EngineError> {
        let Some(models) = models else { return Ok(()) };
        let known = searcher.index().manifest().collections.keys();
        let is_searched = |name: &&String| scope.collections.is_empty() || scope.collections.contains(*name);
        let options = &self.settings().options.collections;
        let closed =
            known.filter(is_searched).find(|name| options.get(*name).is_some_and(|options| options.local_only));
        let away = Role::ALL.into_iter().find(|role| !models.role(*role).is_local);
        match (closed, away) {
            (Some(collection), Some(role)) => Err(EngineError::NotLocal {
                collection: collection.clone(),
                role,
                endpoint: models.role(role).endpoint.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses to look for everything on the web where there is no way there.
    fn check_way_out(&self, means: &Means) -> Result<(), EngineError> {
        if self.settings().is_offline() {
            let hint =
                "leave out `--offline` (or unset `DR_OFFLINE`), or look in the knowledge base: `--source internal`";
            return Err(EngineError::NoWayOut { reason: "`dr` is offline", hint });
        }
        if means.can_search() || means.jobs.is_some() {
            return Ok(());
        }
        let reason = "no search engine is set up, and no Deep Research";
        let hint = "name an engine in `[web]`, export `SEARXNG_URL`, or allow Deep Research, which needs a key and a language model; \
             `dr doctor` says what is missing";
        Err(EngineError::NoWayOut { reason, hint })
    }

    /// Tells whether all that is searched may leave, as the settings of its collections say.
    fn allows_egress(&self, searcher: &Searcher, scope: &Scope) -> bool {
        let options = &self.settings().options.collections;
        let is_searched = |name: &&String| scope.collections.is_empty() || scope.collections.contains(*name);
        let mut searched = searcher.index().manifest().collections.keys().filter(is_searched).peekable();
        searched.peek().is_some() && searched.all(|name| options.get(name).is_some_and(|options| options.allow_egress))
    }

    async fn begin(
        &self,
        searcher: &Searcher,
        request: &AskRequest,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Orchestrator, EngineError> {
        let mut limits = self.settings().options.limits();
        if let Some(SavedPlan { brief: Some(brief), draft }) = &request.plan
            && brief.question == request.question
        {
            // What is wrong with it is said before anything is written down or paid for.
            let tree = Tree::of(request.question.clone());
            check_plan(draft, &tree, brief, self.settings().options.tree_limits())?;
        }
        let means = self.means(searcher, &request.scope, self.models(&limits)?, &limits)?;
        if request.source == Some(SourceHint::Web) {
            self.check_way_out(&means)?;
        }
        if self.settings().options.max_time.is_none() && means.jobs.is_some() {
            limits.time = Some(TIME_WITH_JOBS);
        }
        let (models, by_rules) = (models_by_name(means.models.as_ref()), means.models.is_none());
        let store = match self.store() {
            // A folder that cannot be written to can still be asked where that costs nothing; nothing is kept then.
            Err(error) if by_rules && is_read_only(&error) => Store::in_memory()?,
            Err(error) if is_read_only(&error) => {
                return Err(EngineError::CannotKeep { folder: self.runs_folder(), source: Box::new(error) });
            }
            store => store?,
        };
        let follows = match &request.follow {
            Some(name) => Some(followed(&store, name).await?),
            None => None,
        };
        let resources = self.resources(searcher, &request.scope, store, means, listener, stop).await?;
        let options = &self.settings().options;
        let settings = RunSettings {
            mode: request.mode,
            required: request.required.clone(),
            source: request.source,
            verify_web: request.verify_web,
            allow_egress: request.allow_egress || self.allows_egress(searcher, &request.scope),
            limits,
            tree: options.tree_limits(),
            parallel: options.parallel(),
            summary_tokens: options.summary_tokens(),
            by_rules,
            models,
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
        means: Means,
        listener: RunListener,
        stop: CancellationToken,
    ) -> Result<Resources, EngineError> {
        check_collections(searcher, &scope.collections)?;
        let options = scope.options()?;
        let internal = KbSource::new(searcher.clone(), options).await?;
        let embedder = searcher.embedder().map(Arc::clone);
        let recall = match (&embedder, store.is_kept()) {
            (Some(embedder), true) => Recall::open(&self.runs_folder(), Arc::clone(embedder)).await.ok(),
            _ => None,
        };
        let can_search = means.can_search();
        let Means { models, jobs, web } = means;
        // Without a search engine nobody but a job names pages that could be read.
        let pages = web.filter(|_| can_search || jobs.is_some()).map(|web| web.source as Arc<dyn Source>);
        let web = pages.clone().filter(|_| can_search);
        Ok(Resources {
            store,
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            sources: Sources { internal: Arc::new(internal) as Arc<dyn Source>, web, pages },
            picker: Arc::new(Picker(searcher.clone())),
            embedder,
            recall,
            models,
            listener,
            stop,
            seed: rand::random(),
            jobs,
        })
    }

    /// Gathers what a run has to work with, where what it searches may be shown to its models.
    fn means(
        &self,
        searcher: &Searcher,
        scope: &Scope,
        models: Option<Models>,
        limits: &BudgetLimits,
    ) -> Result<Means, EngineError> {
        self.check_trust(searcher, scope, models.as_ref())?;
        let jobs = self.jobs(models.as_ref(), limits)?;
        let day = |day: &Option<String>| day.as_deref().and_then(|day| day.parse().ok());
        let dates = DateRange { since: day(&scope.since), until: day(&scope.until) };
        let web = self.settings().web(self.runs_folder().join(PAGES), dates)?;
        Ok(Means { models, jobs, web })
    }

    /// Sets up research at a provider's, where it is wanted and could not pass a limit of money unseen.
    fn jobs(&self, models: Option<&Models>, limits: &BudgetLimits) -> Result<Option<Arc<DeepResearch>>, EngineError> {
        let options = &self.settings().options;
        if options.deep_research_max == Some(0) {
            return Ok(None);
        }
        let Some(mut settings) = self.settings().deep_research()?.filter(|_| models.is_some()) else { return Ok(None) };
        settings.max_jobs = options.deep_research_max.unwrap_or(settings.max_jobs);
        if settings.max_jobs == 0 {
            return Ok(None);
        }
        let retry_unknown = options.retry_unknown.unwrap_or(false);
        let jobs = DeepResearch::new(settings, self.settings().prices()?, retry_unknown).map_err(ModelsError::from)?;
        let may_run = limits.cost_nanos.is_none() || jobs.is_priced();
        Ok(may_run.then(|| Arc::new(jobs)))
    }
}

/// Tells whether a folder for runs cannot be written to, as on a read-only disk.
fn is_read_only(error: &EngineError) -> bool {
    let (EngineError::Folder { source, .. }
    | EngineError::Store(
        StoreError::Folder { source, .. } | StoreError::Journal(JournalError::File { source, .. }),
    )) = error
    else {
        return false;
    };
    matches!(source.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
}

fn models_by_name(models: Option<&Models>) -> BTreeMap<Role, String> {
    let name = |models: &Models, role| models.role(role).model.name().to_owned();
    models.map(|models| Role::ALL.into_iter().map(|role| (role, name(models, role))).collect()).unwrap_or_default()
}

/// Refuses to go on with other models: what they have not said is not on record, and would be paid for again.
fn check_same_models(state: &RunState, models: Option<&Models>) -> Result<(), EngineError> {
    let now = models_by_name(models);
    let other = state.settings.models.iter().find(|(role, was)| now.get(*role).is_some_and(|now| now != *was));
    match other {
        Some((role, was)) => Err(EngineError::OtherModel { role: *role, was: was.clone(), now: now[role].clone() }),
        None => Ok(()),
    }
}

/// Carries a run to its end and reads its report off the journal, as a replay would.
async fn finish(mut run: Orchestrator) -> Result<Asked, EngineError> {
    run.conduct().await?;
    let (store, id) = (run.store().clone(), run.id().clone());
    as_it_is(&store, id, run.state().clone()).await
}

/// Returns a run as its journal has it.
async fn as_it_is(store: &Store, run: RunId, state: RunState) -> Result<Asked, EngineError> {
    let report = report_of(store, &run, &state).await?;
    Ok(Asked { run, state, report, is_kept: store.is_kept() })
}

/// Makes the report of a run from its journal alone: of one that has not ended, from what it has.
///
/// # Errors
///
/// Returns an error where the journal cannot be read.
pub async fn report_of(store: &Store, run: &RunId, state: &RunState) -> Result<Report, StoreError> {
    let usage = usage_of(store.journal(), run).await?;
    let mut draft = match &state.phase {
        Phase::Ended(ended) => ended.draft.clone(),
        Phase::Asked | Phase::Briefed(_) | Phase::Planned(_) | Phase::Judged(_) => draft_by_rules(state),
    };
    draft.limitations.extend(overrun(&usage, &state.settings.limits));
    Ok(Report::of(Material {
        run_id: store.is_kept().then(|| run.to_string()),
        question: &state.question,
        tree: &state.tree,
        branches: &state.branches,
        draft: &draft,
        stop_reason: state.stop_reason().unwrap_or(StopReason::Cancelled),
        searched: if state.settings.source == Some(SourceHint::Web) { "" } else { &state.settings.searched },
        has_asked_web: store.journal().egress(run).await?.iter().any(|text| text.withheld.is_none()),
        usage,
        elapsed_ms: u64::try_from(state.active.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Says by how much a run passed its limits, where an endpoint charged more than a request can cost.
fn overrun(usage: &UsageTable, limits: &BudgetLimits) -> Option<String> {
    let total = &usage.total;
    let tokens = |usage: &Usage| usage.input_tokens + usage.output_tokens;
    // Jobs are limited by money and number.
    let of_jobs = usage.by_role.get(Role::Researcher.name()).map_or(0, tokens);
    let tokens = tokens(total) - of_jobs;
    let cost = total.cost_usd.map_or(0, nanos);
    let is_over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used > limit);
    // A sum of dollars is not exact to the last billionth.
    (is_over(limits.tokens, tokens) || is_over(limits.cost_nanos, cost.saturating_sub(1_000))).then(|| {
        format!(
            "the run passed its limits: an endpoint reported more than its requests can take ({tokens} tokens, {})",
            dollars_text(cost)
        )
    })
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
        let store = match self.known_runs() {
            Err(EngineError::Store(StoreError::Empty)) => return Ok(Vec::new()),
            store => store?,
        };
        let mut runs = Vec::new();
        for RunRow { id, question, started_at } in store.journal().runs().await.map_err(StoreError::from)? {
            let usage = usage_of(store.journal(), &id).await.unwrap_or_default();
            let at = i64::try_from(started_at.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
            let (state, nodes, seconds) = match store.read(&id).await {
                Ok((_, state)) => {
                    let ended = state
                        .stop_reason()
                        .and_then(|stop| serde_json::to_value(stop).ok()?.as_str().map(str::to_owned));
                    let open = if store.is_busy(&id) { "running" } else { "open" };
                    (ended.unwrap_or_else(|| open.to_owned()), state.tree.nodes.len(), state.active.as_secs_f64())
                }
                Err(
                    StoreError::Broken { .. }
                    | StoreError::Missing(_)
                    | StoreError::Journal(JournalError::Unreadable(_)),
                ) => ("broken".to_owned(), 0, 0.0),
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
        let store = self.known_runs()?;
        let locked = store.lock(run)?;
        Recall::forget(&self.runs_folder(), run).await.map_err(EngineError::Recall)?;
        Ok(store.remove(locked).await?)
    }
}
