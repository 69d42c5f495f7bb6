//! Stored runs: list, find, replay, show, export, remove.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Engine, EngineError, create_folder};
use crate::base::id::{ContentHash, RunId};
use crate::base::line::with_causes;
use crate::base::money::{dollars_text, nanos};
use crate::config::TrustError;
use crate::render::json::escaped;
use crate::research::branch::Branch;
use crate::research::memory::Memory;
use crate::research::node::{NodeId, SourceHint, Tree};
use crate::research::question::Brief;
use crate::research::report::{Outcome, Report, ReportInput, StopReason, UsageTable, UsageTotals};
use crate::research::verdict::Verdict;
use crate::run::background::{JobEntry, jobs_of};
use crate::run::budget::BudgetLimits;
use crate::run::event::{Followed, Record, RunSettings};
use crate::run::journal::{CallKind, EgressRow, JournalError, RunList, RunRow};
use crate::run::phase::{Phase, Stage};
use crate::run::recall::{Recall, RecallError};
use crate::run::steps::draft_by_rules;
use crate::run::store::{STATE_FILE, Store, StoreError};
use crate::run::tree::{RunFields, RunState};
use crate::run::usage::{add_usage, token_drift, usage_of};

/// Folder of the user's data folder with the runs of indexes that are in no `.dr`.
const RUNS: &str = "runs";

/// Folder of the user's data folder with the tokens of pages.
const PAGE_TOKENS: &str = "page-tokens";

/// A run in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunEntry", description = "")]
pub(crate) struct RunSummary {
    #[schemars(with = "String")]
    pub(crate) id: RunId,
    pub(crate) question: String,
    /// Start, in UTC.
    pub(crate) started: String,
    /// Why it ended, or `open`, `running` or `broken`.
    pub(crate) state: String,
    pub(crate) nodes: usize,
    /// Active time.
    pub(crate) seconds: f64,
    /// Null if a price is not known.
    pub(crate) cost_usd: Option<f64>,
    /// Why it is broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// Runs with the same number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RunGroup {
    pub(crate) nodes: usize,
    pub(crate) runs: usize,
    /// `None` if the cost of one is unknown.
    pub(crate) mean_cost_usd: Option<f64>,
    pub(crate) mean_seconds: f64,
}

impl RunGroup {
    /// Groups runs, fewest nodes first.
    pub(crate) fn of(runs: &[RunSummary]) -> Vec<Self> {
        let mut groups: BTreeMap<usize, Vec<&RunSummary>> = BTreeMap::new();
        for run in runs {
            groups.entry(run.nodes).or_default().push(run);
        }
        #[expect(clippy::cast_precision_loss, reason = "a mean of a few runs")]
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let group = |(nodes, runs): (usize, Vec<&RunSummary>)| Self {
            nodes,
            runs: runs.len(),
            mean_cost_usd: runs.iter().map(|run| run.cost_usd).collect::<Option<Vec<_>>>().map(mean),
            mean_seconds: mean(runs.iter().map(|run| run.seconds).collect()),
        };
        groups.into_iter().map(group).collect()
    }
}

/// The runs, newest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "RunList")]
pub(crate) struct StoredRuns {
    pub(crate) runs: Vec<RunSummary>,
    /// Why there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<String>,
    /// What the user can do if there are none.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
}

/// The report of a stored run.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Its report. For an unfinished run, a report of the findings so far.
    pub(crate) report: Report,
    /// Whether a process is working on the run.
    pub(crate) is_running: bool,
}

/// Everything a stored run has.
#[derive(Debug, Serialize)]
pub(crate) struct RunDetails {
    pub(crate) run_id: RunId,
    /// Whether a process is working on it.
    pub(crate) is_running: bool,
    pub(crate) settings: RunSettings,
    /// The brief, once it is made.
    pub(crate) brief: Option<Brief>,
    pub(crate) tree: Tree,
    pub(crate) branches: BTreeMap<NodeId, Branch>,
    pub(crate) memory: Memory,
    /// Verdicts, one for each round that ended.
    pub(crate) verdicts: Vec<Verdict>,
    /// Why it ended; `None` if it has not.
    pub(crate) stop_reason: Option<StopReason>,
    pub(crate) usage: UsageTable,
    /// Relative error of our token counts, by model.
    pub(crate) token_drift: BTreeMap<String, f64>,
    /// Texts that left this machine, and texts that were withheld.
    pub(crate) egress: Vec<EgressRow>,
    /// Whether that record was changed after it was written.
    pub(crate) egress_is_altered: bool,
    pub(crate) jobs: Vec<JobEntry>,
    pub(crate) events: Vec<Record>,
    /// Its report, as [`Replayed::report`].
    pub(crate) report: Report,
}

/// A run that has ended or was stopped.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) report: Report,
    /// The run to resume: it is stored and has not ended.
    pub(crate) resumable: Option<RunId>,
}

impl Asked {
    /// Returns the run of the report, if it was stored.
    pub(super) fn run_id(&self) -> Option<RunId> {
        self.report.run_id.as_deref()?.parse().ok()
    }
}

impl Engine {
    /// Opens the store of this project, and creates its folder if necessary.
    pub(super) fn store(&self) -> Result<Store, EngineError> {
        let folder = self.runs_folder();
        match self.location.dr_folder() {
            Some(dr) => self.settings.paths.trust().make(dr)?,
            None => create_folder(&folder)?,
        }
        Ok(Store::open(&folder)?)
    }

    /// Opens the store of this project without creating anything. In a read-only folder and on a full disk, runs can
    /// be read but not locked.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Empty`] if there are no runs.
    pub(super) fn known_runs(&self) -> Result<Store, EngineError> {
        let folder = self.runs_folder();
        // Opening it would create it.
        if !folder.join(STATE_FILE).exists() {
            return Err(self.no_runs().into());
        }
        match Store::open(&folder).map_err(EngineError::from) {
            Err(error) if is_unwritable(&error) => Ok(Store::read_only(&folder)?),
            store => Ok(store?),
        }
    }

    /// Opens the store of this project like [`Self::known_runs`], or returns `None` if there are no runs.
    pub(super) fn runs_if_any(&self) -> Result<Option<Store>, EngineError> {
        match self.known_runs() {
            Err(EngineError::Store(StoreError::Empty { .. })) => Ok(None),
            store => store.map(Some),
        }
    }

    fn no_runs(&self) -> StoreError {
        StoreError::Empty { had_runs: !Store::worked_on(&self.runs_folder()).is_empty() }
    }

    /// Returns the folder that stores runs: the `.dr` of the index, else one for its address in the user's data folder,
    /// so that a command leaves nothing in the working directory.
    pub(super) fn runs_folder(&self) -> PathBuf {
        let elsewhere = || {
            // Hashed, since an address is no name of a folder.
            let name = ContentHash::of(self.location.to_string().as_bytes());
            self.settings.paths.data.join(RUNS).join(name.as_str())
        };
        self.location.dr_folder().map_or_else(elsewhere, Path::to_path_buf)
    }

    /// Returns the file with the token of the page of this project. It is not in the project, which may be shared.
    pub(crate) fn page_token(&self) -> PathBuf {
        let name = ContentHash::of(self.location.to_string().as_bytes());
        self.settings.paths.data.join(PAGE_TOKENS).join(name.as_str())
    }

    /// Finds runs by their ids or prefixes of them. If one cannot be found, none is returned.
    ///
    /// # Errors
    ///
    /// Returns an error for a name that matches no run, or several.
    pub(crate) async fn find_runs(&self, names: &[String]) -> Result<Vec<RunId>, EngineError> {
        let store = self.known_runs()?;
        let mut runs = Vec::new();
        for name in names {
            runs.push(store.find(Some(name)).await?);
        }
        Ok(runs)
    }

    /// Makes the report of a stored run, only from its journal; `None` is the newest run.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such run, it was only planned, or its journal cannot be read.
    pub(crate) async fn replay(&self, name: Option<&str>) -> Result<Replayed, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(name).await?;
        let (is_running, _, state) = read(&store, &run).await?;
        // No node was ever started: `dr plan` ended here.
        if !is_running && matches!(state.phase, Phase::Open(Stage::Planned(_))) && state.routes.is_empty() {
            return Err(EngineError::OnlyPlanned { run });
        }
        Ok(Replayed { is_running, report: report_of(&store, &run, &state).await? })
    }

    /// Reads everything a stored run has; `None` is the newest run.
    pub(crate) async fn show(&self, name: Option<&str>) -> Result<RunDetails, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(name).await?;
        details(&store, run).await
    }

    /// Returns a stored run as JSON lines: events, calls with their raw replies, egress. `None` is the newest run.
    pub(crate) async fn export(&self, name: Option<&str>) -> Result<String, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(name).await?;
        // Texts of sources may have control characters, which a terminal would obey.
        Ok(escaped(&store.export(&run).await?))
    }

    /// Lists the stored runs, newest first. A run that cannot be read is listed as broken.
    pub(crate) async fn runs(&self) -> Result<StoredRuns, EngineError> {
        let store = match self.known_runs() {
            Err(EngineError::Store(error @ StoreError::Empty { .. })) => {
                return Ok(StoredRuns { hint: error.hint(), ..StoredRuns::default() });
            }
            store => store?,
        };
        let hint = self.no_runs().hint();
        let RunList { runs: rows, damage } = store.journal().runs().await.map_err(StoreError::from)?;
        let mut runs = Vec::new();
        for row in rows {
            runs.push(summary(&store, row).await);
        }
        Ok(StoredRuns { runs, damage, hint })
    }

    /// Removes a run and its entries in the research memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the run does not exist, or a process is working on it or uses the memory all the time.
    pub(crate) async fn remove_run(&self, run: &RunId) -> Result<(), EngineError> {
        let store = self.known_runs()?;
        // First, so that a run that is worked on keeps its memory as well.
        let locked = store.lock(run)?;
        let folder = self.runs_folder();
        let forgotten = match Recall::forget(&folder, run).await {
            Err(error @ RecallError::Lock(_)) => return Err(error.into()),
            // The memory only makes later runs better. If it is damaged, it goes as a whole, and the run is removed
            // still.
            Err(_) => Recall::discard(&folder),
            Ok(()) => Ok(()),
        };
        store.remove(locked).await?;
        forgotten.map_err(|source| EngineError::Folder { action: "remove", path: Recall::folder(&folder), source })
    }
}

/// Reads a run: whether a process is working on it, its events, and its state.
pub(super) async fn read(store: &Store, run: &RunId) -> Result<(bool, Vec<Record>, RunState), StoreError> {
    // Before the journal is read: a run that ends in between would otherwise look as if it had been stopped.
    let is_running = store.is_busy(run);
    let (events, state) = store.read(run).await?;
    Ok((is_running, events, state))
}

/// Reads everything a stored run has.
pub(super) async fn details(store: &Store, run: RunId) -> Result<RunDetails, EngineError> {
    let (is_running, events, state) = read(store, &run).await?;
    let journal = store.journal();
    let usage = usage_of(journal, &run).await.map_err(StoreError::from)?;
    let calls = journal.calls_in_short(&run).await.map_err(StoreError::from)?;
    let egress = journal.egress(&run).await.map_err(StoreError::from)?;
    let egress_is_altered = journal.is_egress_altered(&run).await.map_err(StoreError::from)?;
    let jobs = jobs_of(journal, &run).await.map_err(StoreError::from)?;
    let report = report_of(store, &run, &state).await?;
    let (brief, stop_reason) = (state.brief().cloned(), state.stop_reason());
    let verdicts = state.phase.stage().verdicts().into_iter().cloned().collect();
    let RunFields { settings, tree, branches, folded, .. } = state.into_fields();
    Ok(RunDetails {
        is_running,
        run_id: run,
        brief,
        verdicts,
        stop_reason,
        settings,
        tree,
        branches,
        memory: folded.memory,
        usage,
        token_drift: token_drift(&calls),
        egress,
        egress_is_altered,
        jobs,
        events,
        report,
    })
}

/// Summarises a run. One that cannot be read is broken, and says why.
async fn summary(store: &Store, RunRow { id, question, started_at }: RunRow) -> RunSummary {
    // A run that cannot be read is listed as well.
    let usage = usage_of(store.journal(), &id).await.unwrap_or_default();
    let at = i64::try_from(started_at.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    let read = read(store, &id).await;
    let problem = read.as_ref().err().map(|error| with_causes(error));
    let (state, nodes, seconds) = match read {
        Ok((is_running, _, state)) => {
            let open = if is_running { "running" } else { "open" };
            let ended = state.stop_reason().map_or_else(|| open.to_owned(), |stop| stop.to_string());
            (ended, state.tree.nodes.len(), state.active.as_secs_f64())
        }
        Err(_) => ("broken".to_owned(), 0, 0.0),
    };
    RunSummary {
        id,
        question,
        started: at.map(|at| at.strftime("%F %H:%M").to_string()).unwrap_or_default(),
        state,
        nodes,
        seconds,
        cost_usd: usage.total.cost_usd,
        problem,
    }
}

/// Returns whether nothing can be written in the folder for runs: it is read-only, or its disk is full.
pub(super) fn is_unwritable(error: &EngineError) -> bool {
    match error {
        EngineError::Store(StoreError::Journal(error)) if error.is_full() || error.is_read_only() => true,
        EngineError::Folder { source, .. }
        | EngineError::Trust(TrustError::File { source, .. } | TrustError::Note { source, .. })
        | EngineError::Store(
            StoreError::Folder { source, .. } | StoreError::Journal(JournalError::File { source, .. }),
        ) => matches!(
            source.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull
        ),
        _ => false,
    }
}

/// Makes the report of a run, only from its journal. For an unfinished run it covers the findings so far.
pub async fn report_of(store: &Store, run: &RunId, state: &RunState) -> Result<Report, StoreError> {
    let usage = usage_of(store.journal(), run).await?;
    let mut draft = match &state.phase {
        Phase::Ended(ended) => ended.draft.clone(),
        // By rules even for a run with models: reading a run asks none.
        Phase::Open(_) => draft_by_rules(state),
    };
    draft.limitations.extend(overrun(&usage, &state.settings.limits));
    let instead = state.settings.instead.as_ref();
    if let Some(instead) = instead {
        draft.made_do("the question was answered", &instead.why);
    }
    let mut report = Report::of(ReportInput {
        run_id: store.is_kept().then(|| run.to_string()),
        question: &state.question,
        tree: &state.tree,
        branches: &state.branches,
        draft: &draft,
        stop_reason: state.stop_reason().unwrap_or(StopReason::Cancelled),
        searched: if state.settings.request.source == Some(SourceHint::Web) { "" } else { &state.settings.searched },
        has_asked_web: store.journal().egress(run).await?.iter().any(EgressRow::was_sent_by_run),
        usage,
        elapsed_ms: u64::try_from(state.active.as_millis()).unwrap_or(u64::MAX),
    });
    // After the outcome, which depends on whether models worked on this run.
    if let Some(failed) = instead.and_then(|instead| instead.failed_run.as_ref()) {
        add_usage(&mut report.usage, &failed.usage);
        report.limitations.push(format!("calls and cost include those of run {}, which found no answer", failed.id));
    }
    // A model has read the passages and found no answer in them, so the rules do not claim one.
    if instead.is_some_and(|instead| instead.has_read) && report.outcome == Outcome::Answered {
        report.outcome = Outcome::Closest;
    }
    Ok(report)
}

/// Returns a limitation if a run exceeded its limits because an endpoint charged more than a request can cost.
fn overrun(usage: &UsageTable, limits: &BudgetLimits) -> Option<String> {
    let total = &usage.total;
    let tokens = |usage: &UsageTotals| usage.input_tokens + usage.output_tokens;
    // Tokens of jobs do not count: jobs are limited by cost and number.
    let of_jobs = usage.by_role.get(&CallKind::Job.to_string()).map_or(0, tokens);
    let tokens = tokens(total) - of_jobs;
    let cost = total.cost_usd.map_or(0, nanos);
    let is_over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used > limit);
    // Sums of dollars as floating-point numbers are not exact to the last billionth.
    (is_over(limits.tokens, tokens) || is_over(limits.cost_nanos, cost.saturating_sub(1_000))).then(|| {
        format!(
            "the run exceeded its limits: an endpoint reported more than its requests can use ({tokens} tokens, {})",
            dollars_text(cost)
        )
    })
}

/// Where text of earlier runs is from. The rules of collections and servers continue to apply to it.
#[derive(Default)]
pub(super) struct Origins {
    pub(super) collections: KnownCollections,
    /// Whether it may be from internal servers too.
    pub(super) has_server_text: bool,
}

/// Collections that text of earlier runs is from.
pub(super) enum KnownCollections {
    These(BTreeSet<String>),
    /// Perhaps any: an older version began the run, or a run it follows was removed.
    Any,
}

impl Default for KnownCollections {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Origins {
    /// Returns the sources that a run's text may come from, including those of the runs it follows.
    pub(super) async fn of(store: &Store, state: &RunState) -> Result<Self, EngineError> {
        let has_server_text = state.settings.may_have_server_text()
            // Runs of older versions do not say whether their jobs read a server.
            || state.branches.values().any(|branch| branch.saw_internal);
        Ok(Self { collections: KnownCollections::of(store, state).await?, has_server_text })
    }
}

impl KnownCollections {
    async fn of(store: &Store, state: &RunState) -> Result<Self, EngineError> {
        if !state.settings.collections.is_empty() {
            return Ok(Self::These(state.settings.collections.clone()));
        }
        let mut known: BTreeSet<_> = state.settings.request.scope.collections.iter().cloned().collect();
        // Without a restriction, all collections of that time were searched, and their names are not on record.
        if known.is_empty() {
            return Ok(Self::Any);
        }
        let Some(Followed { run, .. }) = &state.settings.follows else { return Ok(Self::These(known)) };
        match store.read(run).await {
            Ok((_, earlier)) => match Box::pin(Self::of(store, &earlier)).await? {
                Self::These(earlier) => {
                    known.extend(earlier);
                    Ok(Self::These(known))
                }
                Self::Any => Ok(Self::Any),
            },
            Err(StoreError::Missing(_)) => Ok(Self::Any),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the earlier run that a follow-up question refers to, and where its text is from.
pub(super) async fn followed(store: &Store, name: &str) -> Result<(Followed, Origins), EngineError> {
    let run = store.find(Some(name)).await?;
    let (_, state) = store.read(&run).await?;
    let report = report_of(store, &run, &state).await?;
    let origins = Origins::of(store, &state).await?;
    Ok((Followed { run, question: state.question.clone(), answer: report.answer }, origins))
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::run::journal::tests::started;

    #[test]
    fn full_disk_counts_as_read_only_and_has_a_hint() {
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_SHMSIZE);
        let source = rusqlite::Error::SqliteFailure(full, None);
        let error = EngineError::from(StoreError::from(JournalError::Database { action: "open", source }));
        assert!(is_unwritable(&error));
        assert_eq!(error.hint().unwrap(), "free some disk space");
    }

    #[tokio::test]
    async fn run_that_ends_while_it_is_read_counts_as_running() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let run = RunId::random(1);
        let locked = store.lock(&run).unwrap();
        locked.create("why?", &started()).await.unwrap();
        let mut reading = Box::pin(read(&store, &run));
        let begun = futures::poll!(&mut reading);
        drop(locked);
        let (is_running, events, _) = match begun {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => reading.await.unwrap(),
        };
        assert_eq!((is_running, events.len()), (true, 1));
    }
}
