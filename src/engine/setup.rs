//! Sets up a run: the settings it records and the resources it works with.
//!
//! The order matters. Every check that can refuse the request comes first; then the folder for runs is opened or
//! created; then the first event is appended to the journal; and only after that can a call be charged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::observer::{Observer, RunEvent, listener};
use super::request::check_scope;
use super::search::check_collections;
use super::stored::{KnownCollections, Origins, followed, is_unwritable};
use super::{AskRequest, Engine, EngineError};
use crate::base::clock::{Clock, SystemClock};
use crate::base::id::RunId;
use crate::base::line::with_causes;
use crate::kb::search::{Scope, SearchMode, Searcher, VectorsUnusable};
use crate::llm::message::Role;
use crate::llm::roles::{Models, ModelsError};
use crate::research::extract::Pick;
use crate::research::node::{NodeId, SourceHint, Tree};
use crate::research::pick::{DocumentHits, Picks, pick};
use crate::research::plan::SavedPlan;
use crate::research::question::Question;
use crate::run::background::DeepResearch;
use crate::run::budget::{BudgetLimits, LimitsByPlan, PlanShare};
use crate::run::event::{Followed, Instead, InternalText, Listwise, RunSettings};
use crate::run::orchestrator::{Orchestrator, Resources, Sources, check_plan};
use crate::run::recall::{Recall, RecallError};
use crate::run::store::Store;
use crate::run::tree::RunState;
use crate::source::mcp::McpServers;
use crate::source::web::DateRange;
use crate::source::{KbSource, Label, ProperName, SourceError};
use crate::traces::NotExported;
use crate::traces::attach::{ExportRule, rule};

/// Default time limit of a run that may start background jobs, which take up to half an hour each.
const TIME_WITH_JOBS: Duration = Duration::from_hours(1);

/// Default token limit of a run, at most that of the settings.
const TOKENS_BY_PLAN: PlanShare<u64> = PlanShare { base: 100_000, each: 35_000 };

/// Default time limit of a run, at most that of the settings.
const TIME_BY_PLAN: PlanShare<Duration> = PlanShare { base: Duration::from_mins(10), each: Duration::from_secs(150) };

/// Factor on the default time limit for models on this machine.
const LOCAL_TIMES: u32 = 3;

/// The part of a run's cost limit that is set aside for embedding its queries, in each process that works on it, where
/// that costs money. A query has some twenty tokens, of which a million cost cents.
const EMBEDDING_PART: u64 = 100;

/// Tokens that this part must pay for at least; otherwise queries are not embedded.
const LEAST_QUERY_TOKENS: u64 = 64;

/// Folder of fetched pages in `.dr`.
pub(super) const PAGES: &str = "pages";

/// Flags about background jobs that no settings file can set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobFlags {
    /// Maximum number of jobs the run may start; `None` uses the settings.
    pub(super) max_jobs: Option<usize>,
    /// Whether a job whose start has an unknown outcome is started again.
    pub(super) retry_unknown: bool,
}

/// A run that can be started: everything that can be refused beforehand is checked.
pub(super) struct Prepared {
    pub(super) setup: Setup,
    pub(super) settings: RunSettings,
}

/// Resources of a run, except for its store.
pub(super) struct Setup {
    pub(super) searcher: Searcher,
    /// See [`RunSettings::rerank`].
    listwise: Option<Listwise>,
    models: Option<Models>,
    pub(super) jobs: Option<Arc<DeepResearch>>,
    sources: Sources,
    /// Collections whose rules apply to the run.
    pub(super) collections: BTreeSet<String>,
    internal_text: InternalText,
    /// Highest cost of queries in this process and earlier ones, in billionths of a dollar.
    set_aside_nanos: u64,
}

/// Refuses a plan that was made with the answer of a run in view for a run that does not follow that one: its wording
/// would count as made before any retrieval.
fn check_follows(plan: Option<&SavedPlan>, follows: Option<&Followed>) -> Result<(), EngineError> {
    match plan.and_then(|plan| plan.follows.as_ref()) {
        Some(run) if follows.is_none_or(|followed| followed.run != *run) => {
            Err(EngineError::PlanFollows { run: run.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

impl Engine {
    /// Prepares a run. `instead` says why it uses no models although they are configured.
    ///
    /// # Errors
    ///
    /// Returns an error for anything that can be refused before the run is recorded.
    pub(super) async fn prepare(
        &self,
        request: &AskRequest,
        instead: Option<Instead>,
    ) -> Result<Prepared, EngineError> {
        let mut limits = self.settings.limits();
        // The time limit depends on whether jobs can be started.
        let lowered = request.lower.capped_by(BudgetLimits { time: None, ..limits })?;
        if let Some(SavedPlan { brief: Some(brief), draft, .. }) = &request.plan
            // A plan that was made for another question is checked against the brief that this run makes.
            && brief.question == request.question
        {
            check_plan(draft, &Tree::of(request.question.clone()), brief, self.settings.tree_limits())?;
        }
        let models = if instead.is_some() { None } else { self.models(&limits)? };
        // A new run has no job whose outcome is unknown.
        let flags = JobFlags { max_jobs: request.max_jobs, retry_unknown: false };
        let (follows, origins) = match &request.follow {
            Some(name) => {
                followed(&self.known_runs()?, name).await.map(|(followed, origins)| (Some(followed), origins))?
            }
            None => (None, Origins::default()),
        };
        check_follows(request.plan.as_ref(), follows.as_ref())?;
        let setup = self.set_up(&request.run.scope, origins, models, &lowered, flags, 0).await?;
        if request.run.source == Some(SourceHint::Web) {
            self.check_way_out(&setup)?;
        }
        let by_plan = self.adapt(&mut limits, setup.models.as_ref(), setup.jobs.is_some());
        let limits = request.lower.capped_by(limits)?;
        let by_plan = request.lower.over(by_plan);
        let settings = RunSettings {
            request: request.run.clone(),
            keeps_public_apart: true,
            is_open: setup.internal_text.may_leave(request.run.allow_egress),
            has_server_text: setup.internal_text.from_servers,
            limits,
            by_plan,
            tree: self.settings.tree_limits(),
            parallel: self.settings.values.parallel,
            summary_tokens: self.settings.values.summary_tokens,
            by_rules: setup.models.is_none(),
            models: models_by_name(setup.models.as_ref()),
            searched: self.searched(&setup),
            source_version: setup.sources.internal.version(),
            collections: setup.collections.clone(),
            follows,
            reuse: self.settings.values.reuse && !request.fresh,
            rerank: setup.listwise,
            has_own_plan: request.plan.is_some(),
            // A run that stays inside does not depend on the ways out, see `asked_before`.
            outside: if request.run.source == Some(SourceHint::Internal) { String::new() } else { setup.outside() },
            servers: setup.sources.servers.notes(),
            instead,
        };
        Ok(Prepared { setup, settings })
    }

    /// Returns the highest limits that a run of this engine can have: those of the settings, with the time that its
    /// models and jobs take. A run may start up to `max_jobs` Deep Research jobs.
    ///
    /// # Errors
    ///
    /// Returns an error for settings of models or jobs that cannot be used.
    pub(crate) fn limits(&self, max_jobs: Option<usize>) -> Result<BudgetLimits, EngineError> {
        let mut limits = self.settings.limits();
        let models = self.models(&limits)?;
        let jobs = self.jobs(models.as_ref(), &limits, JobFlags { max_jobs, retry_unknown: false })?;
        self.adapt(&mut limits, models.as_ref(), jobs.is_some());
        Ok(limits)
    }

    /// Adapts the time limit to the models and jobs of a run, unless the user has set it. Returns how the plan lowers
    /// the limits that the user has not set.
    fn adapt(&self, limits: &mut BudgetLimits, models: Option<&Models>, has_jobs: bool) -> LimitsByPlan {
        let tokens = (!self.settings.is_set("max_tokens")).then_some(TOKENS_BY_PLAN);
        if self.settings.is_set("max_time") {
            return LimitsByPlan { tokens, time: None };
        }
        if has_jobs {
            limits.time = Some(TIME_WITH_JOBS);
            return LimitsByPlan { tokens, time: None };
        }
        let is_local = |models: &Models| Role::ALL.into_iter().all(|role| models.role(role).is_local);
        let times = if models.is_some_and(is_local) { LOCAL_TIMES } else { 1 };
        limits.time = limits.time.map(|time| time * times);
        let PlanShare { base, each } = TIME_BY_PLAN;
        LimitsByPlan { tokens, time: Some(PlanShare { base: base * times, each: each * times }) }
    }

    /// Starts a prepared run of a request and records its first event. If the models cannot work on it, it runs
    /// without them and tells the observer.
    pub(super) async fn start(
        &self,
        request: &AskRequest,
        mut prepared: Prepared,
        observer: Observer,
        stop: CancellationToken,
    ) -> Result<Orchestrator, EngineError> {
        // A run on the web alone has no answer without models, see `Obstacle::behind`.
        if let Some(models) = prepared.setup.models.as_ref().filter(|_| request.run.source != Some(SourceHint::Web))
            && let Some(obstacle) = self.obstacle(models, &prepared.settings.limits, &observer).await
        {
            obstacle.tell(&observer);
            // Anew, because servers, ways out and limits depend on the models.
            prepared = Box::pin(self.prepare(request, Some(obstacle.instead))).await?;
        }
        let Prepared { setup, settings } = prepared;
        let store = self.store_for(&setup)?;
        let resources = self.resources(setup, store, observer, stop).await;
        let run = RunId::random(rand::random());
        // Before the run begins, because its first span has the question.
        self.rule_traces(&run, &settings.collections);
        Ok(Orchestrator::start(run, request.question.clone(), settings, resources).await?)
    }

    /// Sets up models, jobs and sources, after checking that the models may see the collections that are searched and
    /// those that text of earlier runs is from. `earlier_processes` have worked on the run before.
    pub(super) async fn set_up(
        &self,
        scope: &Scope,
        origins: Origins,
        models: Option<Models>,
        limits: &BudgetLimits,
        flags: JobFlags,
        earlier_processes: u64,
    ) -> Result<Setup, EngineError> {
        // The mode of the settings is for searches of the user, not for those of a run.
        let searcher = self.searcher(SearchMode::Hybrid).await?;
        check_collections(searcher.index(), &scope.collections)?;
        // If the run's model reranks, the run calls it, and only for its workers' searches.
        let listwise = self.listwise()?.filter(|_| models.is_some());
        let searcher = match listwise {
            Some(_) => searcher,
            None => self.reranking(searcher, &scope.collections, limits.cost_nanos.is_some())?,
        };
        let Origins { collections, has_server_text } = origins;
        let collections = self.collections(&searcher, scope, collections);
        let searcher = self.fenced(searcher, &collections);
        let (searcher, set_aside_nanos) = with_allowance(searcher, limits.cost_nanos, earlier_processes);
        self.check_trust(&collections, models.as_ref())?;
        let jobs = self.jobs(models.as_ref(), limits, flags)?;
        let internal = KbSource::new(searcher.clone(), check_scope(scope)?, &self.settings.about()).await?;
        let day = |day: &Option<String>| day.as_deref().and_then(|day| day.parse().ok());
        let dates = DateRange { since: day(&scope.since), until: day(&scope.until) };
        let web = self.settings.web(self.runs_folder().join(PAGES), dates)?;
        let servers = if models.is_some() { self.servers_for(&collections)? } else { McpServers::default() };
        // Without a search engine, pages are read that a job cites, and that the user names where servers are asked.
        let web = web.filter(|web| web.can_search || jobs.is_some() || !servers.public.is_empty());
        let asks_server = jobs.as_ref().is_some_and(|jobs| jobs.settings.terms.mcp.is_some());
        let options = &self.settings.values.collections;
        let allows = |name: &String| options.get(name).is_some_and(|options| options.allow_egress);
        let internal_text = InternalText {
            collections_allow: collections.iter().map(allows).collect(),
            from_servers: has_server_text || asks_server || !servers.internal.is_empty(),
        };
        let sources = Sources { internal: Arc::new(internal), web, is_offline: self.is_offline(), servers };
        Ok(Setup { searcher, listwise, models, jobs, sources, collections, internal_text, set_aside_nanos })
    }

    /// Completes the resources of a run.
    pub(super) async fn resources(
        &self,
        setup: Setup,
        store: Store,
        observer: Observer,
        stop: CancellationToken,
    ) -> Resources {
        let Setup { searcher, models, jobs, sources, internal_text, set_aside_nanos, .. } = setup;
        let embedder = searcher.companion().map(Arc::clone);
        let recall = match (&embedder, store.is_kept()) {
            // A store in memory means that the folder cannot be written, so that a memory could not be either.
            (Some(embedder), true) => {
                let observer = Arc::clone(&observer);
                let on_failure = move |error: &RecallError| {
                    let text = format!("the run continues without its research memory: {}", with_causes(error));
                    observer(RunEvent::Note { text, hint: error.hint() });
                };
                Recall::open(&self.runs_folder(), Arc::clone(embedder), Arc::new(on_failure)).await
            }
            _ => None,
        };
        Resources {
            store,
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            sources,
            picker: Arc::new(Picker(searcher)),
            embedder,
            recall,
            models,
            listener: listener(observer),
            stop,
            seed: rand::random(),
            jobs,
            set_aside_nanos,
            internal_text,
        }
    }

    /// Describes what a run searches, for a refusal, with the user's sentence on the collection if there is only one.
    fn searched(&self, setup: &Setup) -> String {
        let (about, scope) = (self.settings.about(), setup.sources.internal.scope());
        let only = setup.collections.first().filter(|_| setup.collections.len() == 1);
        match only.and_then(|name| about.of(name, "")) {
            Some(sentence) => format!("{scope}; {}", sentence.trim_end_matches('.')),
            None => scope,
        }
    }

    /// Opens the store for a new run. If the folder cannot be written, a run without models is kept in memory: no paid
    /// call can be lost.
    fn store_for(&self, setup: &Setup) -> Result<Store, EngineError> {
        match self.store() {
            // By rules a run costs nothing, so it need not outlive the process.
            Err(error) if is_unwritable(&error) && setup.models.is_none() => Ok(Store::in_memory()?),
            Err(error) if is_unwritable(&error) => {
                Err(EngineError::CannotKeep { folder: self.runs_folder(), source: Box::new(error) })
            }
            store => store,
        }
    }

    /// Returns the models. Under a cost limit, a model without a known price is refused.
    pub(super) fn models(&self, limits: &BudgetLimits) -> Result<Option<Models>, EngineError> {
        let models = self.settings.models()?;
        let is_limited = limits.cost_nanos.is_some();
        match models.as_ref().filter(|_| is_limited).and_then(|models| models.unpriced().into_iter().next()) {
            Some((role, model)) => Err(EngineError::Unpriced { model, role }),
            None => Ok(models),
        }
    }

    /// Returns the background jobs, unless they are turned off, or no price is known to hold them to a cost limit.
    fn jobs(
        &self,
        models: Option<&Models>,
        limits: &BudgetLimits,
        flags: JobFlags,
    ) -> Result<Option<Arc<DeepResearch>>, EngineError> {
        // Before the settings are read: a run without jobs does not fail because of them.
        if flags.max_jobs == Some(0) {
            return Ok(None);
        }
        let Some(mut settings) = self.settings.deep_research()?.filter(|_| models.is_some()) else { return Ok(None) };
        settings.max_jobs = flags.max_jobs.unwrap_or(settings.max_jobs);
        if settings.max_jobs == 0 {
            return Ok(None);
        }
        let jobs = DeepResearch::new(settings, self.settings.prices(), flags.retry_unknown);
        let jobs = jobs.map_err(ModelsError::from)?;
        let may_run = limits.cost_nanos.is_none() || jobs.is_priced();
        Ok(may_run.then(|| Arc::new(jobs)))
    }

    /// Returns the collections whose rules apply: those in a scope, and those that text of earlier runs is from.
    fn collections(&self, searcher: &Searcher, scope: &Scope, earlier: KnownCollections) -> BTreeSet<String> {
        let known = searcher.index().manifest().collections.keys();
        let searched = known.clone().filter(|name| scope.collections.is_empty() || scope.collections.contains(*name));
        let earlier = match earlier {
            KnownCollections::These(names) => names,
            // An earlier version noted no collections: the run may have text of any.
            KnownCollections::Any => known.chain(self.settings.values.collections.keys()).cloned().collect(),
        };
        searched.cloned().chain(earlier).collect()
    }

    /// Sets what the traces of a run may export: nothing if it is offline, and its texts if the user wants that. Texts
    /// of a run that may read a `local_only` collection go only to a collector on this machine.
    pub(super) fn rule_traces(&self, run: &RunId, collections: &BTreeSet<String>) {
        match self.traces() {
            Ok(traces) if !traces.has_texts => {}
            // Texts of a `local_only` collection stay on this machine, even if the setting exports texts.
            Ok(traces) if !traces.address.is_loopback() && self.has_local_only(collections) => {}
            Ok(_) => rule(run, ExportRule::Texts),
            Err(NotExported::Offline) => rule(run, ExportRule::Nothing),
            Err(_) => {}
        }
    }

    /// Refuses to send text of a `local_only` collection to a model on another machine.
    fn check_trust(&self, collections: &BTreeSet<String>, models: Option<&Models>) -> Result<(), EngineError> {
        let Some(models) = models else { return Ok(()) };
        let closed = collections.iter().find(|name| self.is_local_only(name));
        let away = Role::ALL.into_iter().find(|role| !models.role(*role).is_local);
        match (closed, away) {
            (Some(collection), Some(role)) => Err(EngineError::NotLocal {
                collection: collection.clone(),
                role,
                endpoint: models.role(role).endpoint.clone(),
            }),
            (None, _) | (Some(_), None) => Ok(()),
        }
    }

    /// Returns the servers that a run on these collections may call. An internal server on another machine is sent what
    /// workers make of the collections, so a run on a `local_only` one does without it.
    fn servers_for(&self, collections: &BTreeSet<String>) -> Result<McpServers, EngineError> {
        let is_closed = self.has_local_only(collections);
        let mut servers = self.settings.servers()?;
        // A public server is sent only text that may leave, so it may be anywhere.
        servers.retain(|server| server.label == Label::Public || server.is_local() || !is_closed);
        Ok(self.settings.mcp_servers(servers, self.runs_folder().join(PAGES)))
    }

    /// Refuses a web-only run if the web is unreachable.
    fn check_way_out(&self, setup: &Setup) -> Result<(), EngineError> {
        let (reason, hint) = if self.is_offline() {
            (
                "`dr` is offline",
                "omit `--offline` (or unset `DR_OFFLINE`), or search the knowledge base: `--source internal`",
            )
        } else if setup.sources.web.is_none() && setup.jobs.is_none() {
            (
                "no search engine is set up, and no Deep Research",
                "name an engine in `[web]`, export `SEARXNG_URL`, or allow Deep Research, which needs a key and a \
                 language model (a public server in `[mcp]` needs a model too); `dr doctor` shows what is missing",
            )
        } else {
            return Ok(());
        };
        Err(EngineError::NoWayOut { reason, hint })
    }
}

/// Lets a server that embeds queries spend a part of the cost limit of a run. Returns the amount set aside for that in
/// all processes that have worked on the run, whose queries are not on record. A server without a price has no place
/// under a limit.
fn with_allowance(searcher: Searcher, cost_limit: Option<u64>, earlier_processes: u64) -> (Searcher, u64) {
    let price = searcher.server().filter(|server| !server.is_free()).map(|server| server.price);
    match (price, cost_limit) {
        (None, _) | (Some(_), None) => (searcher, 0),
        (Some(None), Some(_)) => {
            let why = "it has no price, and the cost of the run is limited; set `price` in `[embedding]`";
            (searcher.without_vectors(VectorsUnusable::Withheld(why.to_owned())), 0)
        }
        (Some(Some(_)), Some(limit)) => {
            let each = limit / EMBEDDING_PART;
            let set_aside = each.saturating_mul(earlier_processes.saturating_add(1)).min(limit);
            let searcher = searcher.within(each);
            if searcher.can_pay_for(LEAST_QUERY_TOKENS) {
                (searcher, set_aside)
            } else {
                let why = "a hundredth of the cost limit does not pay for a query";
                (searcher.without_vectors(VectorsUnusable::Withheld(why.to_owned())), set_aside)
            }
        }
    }
}

impl Setup {
    /// Returns what the run may ask outside; see [`RunSettings::outside`].
    fn outside(&self) -> String {
        let web = self.sources.web.as_ref().filter(|web| web.can_search).map(|web| web.source.version());
        let jobs = self.jobs.as_ref().map(|jobs| jobs.version());
        web.into_iter().chain(jobs).collect::<Vec<_>>().join(" ")
    }
}

fn models_by_name(models: Option<&Models>) -> BTreeMap<Role, String> {
    let name = |models: &Models, role| models.role(role).model.name().to_owned();
    models.map(|models| Role::ALL.into_iter().map(|role| (role, name(models, role))).collect()).unwrap_or_default()
}

/// Refuses to resume with other models: their replies are not on record, so the whole run would be charged again.
pub(super) fn check_same_models(state: &RunState, setup: &Setup) -> Result<(), EngineError> {
    let now = models_by_name(setup.models.as_ref());
    let other = state.settings.models.iter().find(|(role, was)| now.get(*role).is_some_and(|now| now != *was));
    match other {
        Some((role, was)) => Err(EngineError::OtherModel { role: *role, was: was.clone(), now: now[role].clone() }),
        // Its searches would be reranked twice, or not at all.
        None if state.settings.rerank.is_some() != setup.listwise.is_some() => Err(EngineError::OtherReranker),
        None => Ok(()),
    }
}

/// Picks units on a blocking thread, since that is CPU-bound.
struct Picker(Searcher);

impl Pick for Picker {
    fn pick<'a>(
        &'a self,
        node: &'a NodeId,
        question: &'a Question,
        names: &'a [ProperName],
        readings: &'a [DocumentHits],
    ) -> BoxFuture<'a, Result<Picks, SourceError>> {
        let (searcher, node, question) = (self.0.clone(), node.clone(), question.clone());
        let (names, readings) = (names.to_vec(), readings.to_vec());
        Box::pin(async move {
            let failed = |reason: String| SourceError::Failed { name: "embedder".to_owned(), reason };
            let picked = tokio::task::spawn_blocking(move || {
                let embedder = searcher.companion().map(AsRef::as_ref);
                pick(&node, &question, &names, &readings, &searcher.splitter, embedder)
            });
            picked.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
        })
    }
}
