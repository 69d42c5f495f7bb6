//! Runs against loopback servers for models, jobs, search engine and pages, over the production code paths. The clock
//! advances only while a task sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::budget::BudgetLimits;
use super::super::journal::{CallRow, CallState};
use super::super::orchestrator::{Orchestrator, Resources, RunError, Sources};
use super::super::store::Store;
use super::super::tree::RunState;
use super::World;
use super::hangs::Hangs;
use crate::base::clock::{Clock, ManualClock, Moment};
use crate::base::environment::Environment;
use crate::base::http::client_for;
use crate::base::id::RunId;
use crate::base::token::{Encoding, TokenCounter};
use crate::llm::openai::{self, Api, OpenAiModel, OpenAiSettings};
use crate::llm::price::{Price, PriceOptions, PriceTable};
use crate::llm::roles::Models;
use crate::research::node::NodeId;
use crate::research::plan::SavedPlan;
use crate::research::report::StopReason;
use crate::researcher::{resources, role_model, settings};
use crate::run::background::{DeepResearch, DeepResearchOptions, DeepResearchSettings, OpenAiJobs, Provider};
use crate::source::web::{EngineClient, FetchOptions, Fetcher, PageStore, SearchEngine, WebAccess, WebSource};
use crate::web_server::WebServer;

/// Returns the price of every model, in dollars.
fn price() -> PriceOptions {
    PriceOptions { input: 2.0, output: 8.0, search: Some(0.01), ..PriceOptions::default() }
}

/// Limits above the needs of a run.
pub(super) const LIMITS: BudgetLimits = BudgetLimits {
    cost_nanos: Some(20_000_000_000),
    tokens: Some(2_000_000),
    time: Some(Duration::from_mins(15)),
    rounds: Some(3),
};

/// The environment of such a run, and its stored state.
pub(super) struct Outside<'a> {
    pub(super) server: &'a WebServer,
    pub(super) store: Store,
    /// In-process models, in place of the server's.
    pub(super) models: Option<Models>,
    /// A plan, in place of the planner's.
    pub(super) plan: Option<SavedPlan>,
    pub(super) can_search: bool,
    pub(super) max_jobs: usize,
    /// The model of jobs.
    pub(super) researcher: &'static str,
    /// In-process background research, in place of the server's.
    pub(super) provider: Option<Arc<dyn Provider>>,
    pub(super) limits: BudgetLimits,
    pub(super) clock: Arc<ManualClock>,
    pub(super) pages: Arc<TempDir>,
    /// Decides which requests time out.
    pub(super) hangs: Hangs,
    pub(super) api: Api,
}

impl<'a> Outside<'a> {
    /// Returns a world in which every endpoint is at `server`.
    pub(super) fn at(server: &'a WebServer, api: Api) -> Self {
        Self {
            server,
            store: Store::in_memory().unwrap(),
            models: None,
            plan: None,
            can_search: true,
            max_jobs: 2,
            researcher: "fixture",
            provider: None,
            limits: LIMITS,
            clock: Arc::new(ManualClock::at(Moment(1_000))),
            pages: Arc::new(tempfile::tempdir().unwrap()),
            hangs: Hangs::default(),
            api,
        }
    }

    /// Starts a run and executes it to its end.
    pub(super) async fn ask(&self) -> Result<StopReason, RunError> {
        self.ask_as(World::run()).await
    }

    /// Starts a run under another id and executes it to its end.
    pub(super) async fn ask_as(&self, run: RunId) -> Result<StopReason, RunError> {
        let question = "What is said of the topics, and how do others water greenhouse beds?".parse().unwrap();
        let run = Orchestrator::start(run, question, settings(self.limits), self.resources(false)).await?;
        self.conduct(run).await
    }

    /// Resumes as a new process would, from the stored state alone.
    pub(super) async fn resume(&self, retry_unknown: bool) -> Result<StopReason, RunError> {
        let run = Orchestrator::resume(World::run(), None, self.resources(retry_unknown)).await?;
        self.conduct(run).await
    }

    pub(super) async fn resume_with(&self, limits: BudgetLimits) -> Result<StopReason, RunError> {
        let run = Orchestrator::resume(World::run(), Some(limits), self.resources(false)).await?;
        self.conduct(run).await
    }

    async fn conduct(&self, mut run: Orchestrator) -> Result<StopReason, RunError> {
        if let Some(plan) = &self.plan {
            run.plan(Some(plan)).await?;
        }
        run.conduct().await
    }

    fn resources(&self, retry_unknown: bool) -> Resources {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let origin = self.server.origin();
        let allowed_hosts = vec![origin.trim_start_matches("http://").parse().unwrap()];
        let options = FetchOptions { allowed_hosts, ..FetchOptions::default() };
        let fetcher = Fetcher::new(options, self.hangs.pages.on(&self.clock)).unwrap();
        let engine = EngineClient::new(SearchEngine::SearxNg, origin.parse().unwrap(), None, None).unwrap();
        let engine = engine.on(self.hangs.searches.on(&self.clock));
        let pages = PageStore::new(self.pages.path().join("pages"), self.pages.path().join("key"));
        let web = WebSource::new(vec![Arc::new(engine)], Some(Arc::new(fetcher)), pages, Arc::clone(&clock));
        let web = Some(WebAccess { source: Arc::new(web), can_search: self.can_search });
        let models = self.models.clone().unwrap_or_else(|| self.models_there());
        let base = resources(self.store.clone(), clock, models);
        let sources = Sources { web, ..base.sources };
        Resources { sources, jobs: Some(Arc::new(self.jobs(retry_unknown))), ..base }
    }

    fn models_there(&self) -> Models {
        let client = client_for(&self.server.url().parse().unwrap()).unwrap();
        Models::of(|_| {
            let settings = OpenAiSettings {
                model: "fixture".into(),
                key: None,
                window_tokens: 100_000,
                timeout: Duration::from_mins(10),
                counter: TokenCounter::of(Encoding::Cl100k),
                price: Some(Price::of(&price())),
                ..openai::tests::settings(&self.server.url(), self.api)
            };
            role_model(Arc::new(OpenAiModel::new(settings, client.clone()).on(self.hangs.models.on(&self.clock))))
        })
    }

    pub(super) fn jobs(&self, retry_unknown: bool) -> DeepResearch {
        let options = json!({
            "base_url": self.server.url(), "models": [self.researcher], "max_cost": 1.0, "max_jobs": self.max_jobs,
            "timeout_minutes": 1,
        });
        let options: DeepResearchOptions = serde_json::from_value(options).unwrap();
        let environment = Environment::default();
        let settings = DeepResearchSettings::resolve(&options, &environment).unwrap().unwrap();
        let there =
            || Arc::new(OpenAiJobs::of(&settings).unwrap().on(self.hangs.jobs.on(&self.clock))) as Arc<dyn Provider>;
        let provider = self.provider.clone().unwrap_or_else(there);
        let prices = PriceTable::with(&BTreeMap::from([("fixture".to_owned(), price())]));
        DeepResearch::new(settings, prices, retry_unknown).unwrap().at(provider)
    }

    pub(super) async fn state(&self) -> RunState {
        self.store.read(&World::run()).await.unwrap().1
    }

    pub(super) async fn calls(&self) -> Vec<CallRow> {
        self.store.journal().calls(&World::run()).await.unwrap()
    }

    /// Returns the number of job starts per node, from the journal.
    pub(super) async fn starts(&self) -> BTreeMap<NodeId, usize> {
        let mut starts = BTreeMap::new();
        for call in self.calls().await.iter().filter(|call| call.is_job() && call.state() != CallState::Failed) {
            *starts.entry(call.key.node().cloned().unwrap()).or_default() += 1;
        }
        starts
    }
}

/// Counts the requests for jobs per node, starting from request number `from`.
pub(super) fn requested_jobs(server: &WebServer, from: usize) -> BTreeMap<NodeId, usize> {
    let mut requested = BTreeMap::new();
    for request in server.requests().iter().skip(from).filter(|request| request.json["background"] == true) {
        *requested.entry(request.json["metadata"]["dr_node"].as_str().unwrap().parse().unwrap()).or_default() += 1;
    }
    requested
}

/// Returns the number of the request a stored reply answers.
pub(super) fn answered(reply: &Value) -> Option<usize> {
    reply["id"].as_str()?.strip_prefix("chatcmpl-").or(reply["id"].as_str()?.strip_prefix("resp_"))?.parse().ok()
}
