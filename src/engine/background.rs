//! Runs that continue while their caller does something else: start, resume, watch, status, result, cancel.
//!
//! A client of a server waits a minute for a reply, and a run may take an hour. So a run is started, and asked about by
//! its id. Its facts are in its journal; kept here are only the handle to stop it and the error that ended it. A run
//! ends with its server, and is resumed like any other that was interrupted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::observer::{Doing, Observer, RunEvent};
use super::run::Begun;
use super::stored::{Asked, Replayed};
use super::{AskRequest, Engine, EngineError, Planned, ResumeRequest, RunStatus, RunView, Standing};
use crate::base::id::RunId;
use crate::base::line::with_causes;
use crate::base::mutex::locked;

/// Runs that are worked on at the same time. Each has the limits of the settings, so this bounds what a client that
/// starts one after the other can spend at once.
const MAX_RUNS: u32 = 4;

/// Ended runs whose outcome is kept here. Those before are read from the journal.
const MAX_KEPT: usize = 32;

/// Events that an observer may be behind. One that is further behind loses some, and reads the journal.
const MAX_BEHIND: usize = 256;

/// Longest wait for a run that was told to stop. It does so between steps, and a call of a model may take minutes: the
/// run is then abandoned, as if its process had been killed, which every run survives. Less than a process may take to
/// end after a signal.
const PATIENCE: Duration = Duration::from_millis(800);

/// The runs that an engine works on in the background.
#[derive(Debug)]
pub(crate) struct Background {
    runs: Mutex<VecDeque<Started>>,
    /// One permit for each run that may be worked on.
    slots: Arc<Semaphore>,
    stop: CancellationToken,
}

/// A run that was started here.
#[derive(Clone, Debug)]
struct Started {
    id: RunId,
    stop: CancellationToken,
    outcome: watch::Receiver<Option<Arc<RunOutcome>>>,
    events: broadcast::WeakSender<RunEvent>,
    now: Now,
}

/// The latest activity of a run, by sub-question. Streams that are opened later begin with it.
type Now = Arc<Mutex<BTreeMap<Option<String>, Doing>>>;

#[derive(Debug)]
pub(crate) struct WatchedRun {
    pub(crate) events: broadcast::Receiver<RunEvent>,
    /// What it did last, for each sub-question and for the run as a whole.
    pub(crate) doing: Vec<Doing>,
}

/// A run that is about to begin: its slot, how to stop it, and where its events go.
struct Beginning {
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
    events: broadcast::Sender<RunEvent>,
    now: Now,
}

impl Beginning {
    fn observer(&self) -> Observer {
        let (events, now) = (self.events.clone(), Arc::clone(&self.now));
        Arc::new(move |event: RunEvent| {
            if let Some(doing) = event.doing() {
                locked(&now).insert(doing.node.clone(), doing);
            }
            // An error means that no stream is open.
            let _ = events.send(event);
        })
    }
}

/// How a run ended.
#[derive(Debug)]
struct RunOutcome {
    /// `None` for one that was abandoned: the journal says how far it is.
    asked: Result<Option<Asked>, String>,
    /// Number of its last event at that time. Another process may have resumed it since.
    last_event: u64,
}

/// Publishes the outcome of a run, at the latest when it is dropped: a task may panic and a caller may go away, and the
/// run would otherwise count as running for as long as the server lives.
struct OutcomePublisher {
    run: RunId,
    outcome: watch::Sender<Option<Arc<RunOutcome>>>,
}

impl OutcomePublisher {
    async fn note(&self, asked: &Result<Option<Asked>, EngineError>, engine: &Engine) {
        let asked = match asked {
            Ok(asked) => Ok(asked.clone()),
            Err(error) => Err(with_causes(error)),
        };
        let status = engine.status(self.run.as_str(), u64::MAX).await;
        let last_event = status.map_or(u64::MAX, |status| status.last_event);
        self.outcome.send_replace(Some(Arc::new(RunOutcome { asked, last_event })));
    }
}

impl Drop for OutcomePublisher {
    fn drop(&mut self) {
        self.outcome.send_if_modified(|outcome| {
            let is_missing = outcome.is_none();
            outcome.get_or_insert_with(|| Arc::new(RunOutcome { asked: Ok(None), last_event: u64::MAX }));
            is_missing
        });
    }
}

impl Background {
    /// Returns a set of runs that all stop when `stop` is cancelled.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { runs: Mutex::default(), slots: Arc::new(Semaphore::new(MAX_RUNS as usize)), stop }
    }

    /// Asks a question and waits for the answer, and first for its turn. The run stops in order when `cancelled` is, or
    /// all runs are.
    pub(crate) async fn ask(
        &self,
        engine: &Engine,
        request: AskRequest,
        observer: Observer,
        cancelled: CancellationToken,
    ) -> Result<Asked, EngineError> {
        // Waits for a slot, unlike `start`: this caller waits for the answer anyway.
        let slot = tokio::select! {
            slot = Arc::clone(&self.slots).acquire_owned() => slot.map_err(|_| EngineError::Cancelled)?,
            () = cancelled.cancelled() => return Err(EngineError::Cancelled),
            () = self.stop.cancelled() => return Err(EngineError::Cancelled),
        };
        let beginning = self.beginning_in(slot);
        let (stop, watched) = (beginning.stop.clone(), beginning.observer());
        let observer: Observer = Arc::new(move |event: RunEvent| {
            watched(event.clone());
            observer(event);
        });
        let mut ending = None;
        let asked = async {
            let run = match Box::pin(engine.begin(request, observer, stop.clone())).await? {
                Begun::Run(run) => run,
                Begun::Before(asked) => return Ok(*asked),
            };
            // Other clients may watch and stop it too.
            ending = Some(self.remember(run.id().clone(), &beginning));
            Box::pin(engine.carry_out(*run, None)).await
        };
        let either = async {
            tokio::select! {
                // A client that goes away stops its own run only, whose token this is.
                () = cancelled.cancelled() => stop.cancel(),
                () = stop.cancelled() => {}
            }
        };
        let asked = stoppable(Box::pin(asked), either).await;
        if let Some(ending) = ending {
            ending.note(&asked, engine).await;
        }
        asked?.ok_or(EngineError::Cancelled)
    }

    /// Plans a run. It stops when the future is dropped, or all runs are stopped.
    ///
    /// # Errors
    ///
    /// As [`Engine::plan`]; [`EngineError::TooManyRuns`].
    pub(crate) async fn plan(&self, engine: &Engine, request: AskRequest) -> Result<Planned, EngineError> {
        let beginning = self.beginning()?;
        Box::pin(engine.plan(request, beginning.observer(), beginning.stop.clone())).await
    }

    /// Starts a run and returns its id. A question that a run has answered starts no other: the id is that of the
    /// earlier run.
    ///
    /// # Errors
    ///
    /// As [`Engine::ask`], for everything that can be refused before anything is spent; [`EngineError::TooManyRuns`].
    pub(crate) async fn start(&self, engine: &Engine, request: AskRequest) -> Result<RunId, EngineError> {
        let beginning = self.beginning()?;
        let begun = Box::pin(engine.begin(request, beginning.observer(), beginning.stop.clone())).await?;
        let run = match begun {
            Begun::Run(run) => run,
            // Only a stored run answers a question that was asked before, so there is an id.
            Begun::Before(asked) => return asked.run_id().ok_or(EngineError::Cancelled),
        };
        let (id, own) = (run.id().clone(), engine.clone());
        self.go_on(engine, id.clone(), beginning, async move { Box::pin(own.carry_out(*run, None)).await });
        Ok(id)
    }

    /// Resumes a run and returns its id. A reason why it cannot continue is found later, see [`Self::status`].
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::TooManyRuns`], [`EngineError::StillRunning`], or an error if there is no such run.
    pub(crate) async fn resume(
        &self,
        engine: &Engine,
        run: &str,
        request: ResumeRequest,
    ) -> Result<RunId, EngineError> {
        let beginning = self.beginning()?;
        // A number past every event: only the state is needed.
        let RunStatus { run_id, state, .. } = self.status(engine, run, u64::MAX).await?;
        if state == Standing::Running {
            return Err(EngineError::StillRunning { run: run_id });
        }
        // By the id that the status has resolved, as the run may have been named by a prefix.
        let id = engine.find_runs(&[run_id]).await?.remove(0);
        let (own, observer, stop) = (engine.clone(), beginning.observer(), beginning.stop.clone());
        let run = id.to_string();
        let work = async move { Box::pin(own.resume(&run, request, observer, stop)).await };
        self.go_on(engine, id.clone(), beginning, work);
        Ok(id)
    }

    /// Watches a run that was started here and is worked on.
    pub(crate) fn watch(&self, run: &str) -> Option<WatchedRun> {
        let Started { events, now, .. } = self.started(run)?;
        // Before what it did last is read, so that nothing in between is missed.
        let events = events.upgrade()?.subscribe();
        let doing = locked(&now).values().cloned().collect();
        Some(WatchedRun { events, doing })
    }

    /// Returns how many runs are worked on.
    pub(crate) fn active(&self) -> usize {
        locked(&self.runs).iter().filter(|run| run.outcome.borrow().is_none()).count()
    }

    fn beginning(&self) -> Result<Beginning, EngineError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        Ok(self.beginning_in(slot.map_err(|_| EngineError::TooManyRuns { most: MAX_RUNS })?))
    }

    fn beginning_in(&self, slot: OwnedSemaphorePermit) -> Beginning {
        Beginning { slot, stop: self.stop.child_token(), events: broadcast::channel(MAX_BEHIND).0, now: Now::default() }
    }

    /// Works on a run in a task of its own.
    fn go_on(
        &self,
        engine: &Engine,
        id: RunId,
        beginning: Beginning,
        work: impl Future<Output = Result<Asked, EngineError>> + Send + 'static,
    ) {
        let (engine, ending) = (engine.clone(), self.remember(id, &beginning));
        // Not awaited: `close` waits for its slot, and the channel has its outcome.
        drop(tokio::spawn(async move {
            let Beginning { slot, stop, events, .. } = beginning;
            let asked = stoppable(Box::pin(work), stop.cancelled()).await;
            ending.note(&asked, &engine).await;
            // Last: when the stream ends, or `close` gets the slot, the outcome is known.
            drop((events, slot));
        }));
    }

    /// Returns how far a run is, with its events after number `since`.
    pub(crate) async fn status(&self, engine: &Engine, run: &str, since: u64) -> Result<RunStatus, EngineError> {
        Ok(self.as_known_here(engine.status(run, since).await?))
    }

    /// Returns a run with its findings, costs and outgoing texts so far.
    pub(crate) async fn view(&self, engine: &Engine, run: &str) -> Result<RunView, EngineError> {
        let view = engine.view(run).await?;
        Ok(RunView { status: self.as_known_here(view.status), ..view })
    }

    /// Corrects the state of a run by facts that its journal does not have.
    fn as_known_here(&self, mut status: RunStatus) -> RunStatus {
        let Some(started) = self.started(&status.run_id) else { return status };
        let Some(outcome) = started.outcome.borrow().clone() else {
            // It may not have its lock yet, and its journal may say how it ended before it was resumed.
            (status.state, status.reason) = (Standing::Running, None);
            return status;
        };
        match &outcome.asked {
            _ if outcome.last_event < status.last_event => {}
            Err(reason) => (status.state, status.reason) = (Standing::Failed, Some(reason.clone())),
            // Its lock may be held for a moment longer.
            Ok(None) if status.state == Standing::Running => status.state = Standing::Open,
            Ok(_) => {}
        }
        status
    }

    /// Returns the report of a run that has ended or was stopped.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::StillRunning`] or [`EngineError::RunFailed`]; for a run that was not started here, as
    /// [`Engine::status`].
    pub(crate) async fn report(&self, engine: &Engine, run: &str) -> Result<Asked, EngineError> {
        // First: a run that was removed has no report, whatever is kept here.
        let RunStatus { run_id, state, last_event, .. } = self.status(engine, run, u64::MAX).await?;
        // Not read from the journal, where a run by rules that answered in the place of this one has another id.
        let outcome = self.started(&run_id).and_then(|started| started.outcome.borrow().clone());
        let outcome = outcome.filter(|outcome| last_event <= outcome.last_event);
        match outcome.as_deref().map(|outcome| &outcome.asked) {
            Some(Ok(Some(asked))) => return Ok(asked.clone()),
            Some(Err(reason)) => return Err(EngineError::RunFailed { run: run_id, reason: reason.clone() }),
            Some(Ok(None)) | None => {}
        }
        if state == Standing::Running {
            return Err(EngineError::StillRunning { run: run_id });
        }
        let Replayed { report, .. } = engine.replay(Some(&run_id)).await?;
        Ok(Asked { report, resumable: run_id.parse().ok().filter(|_| state == Standing::Open) })
    }

    /// Stops a run that was started here, and waits until it has noted where it is.
    ///
    /// # Errors
    ///
    /// As [`Self::status`]. Also returns an error for a run that another process works on.
    pub(crate) async fn cancel(&self, engine: &Engine, run: &str) -> Result<RunStatus, EngineError> {
        let status = self.status(engine, run, u64::MAX).await?;
        match self.started(&status.run_id) {
            Some(Started { stop, mut outcome, .. }) => {
                stop.cancel();
                // An error means that its task is gone, which ends it too.
                let _ = outcome.wait_for(Option::is_some).await;
            }
            None if status.state == Standing::Running => {
                return Err(EngineError::NotStartedHere { run: status.run_id });
            }
            None => {}
        }
        self.status(engine, run, u64::MAX).await
    }

    /// Stops all runs and waits for them.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        // All slots are free when every run has ended. The semaphore is never closed, so there is no error.
        drop(self.slots.acquire_many(MAX_RUNS).await);
    }

    /// Lists a run among those that are worked on, until the returned value publishes how it ended.
    fn remember(&self, id: RunId, beginning: &Beginning) -> OutcomePublisher {
        let (ended, outcome) = watch::channel(None);
        let mut runs = locked(&self.runs);
        // A run that is resumed replaces its earlier entry, whose outcome is outdated.
        runs.retain(|run| run.id != id);
        // Weak, since this entry outlives the run: streams of its events end when the run drops its sender.
        let (stop, events) = (beginning.stop.clone(), beginning.events.downgrade());
        let run = id.clone();
        runs.push_back(Started { id, stop, outcome, events, now: Arc::clone(&beginning.now) });
        // Only ended runs are dropped: one that is worked on must stay stoppable.
        while runs.len() > MAX_KEPT
            && let Some(ended) = runs.iter().position(|run| run.outcome.borrow().is_some())
        {
            runs.remove(ended);
        }
        OutcomePublisher { run, outcome: ended }
    }

    fn started(&self, run: &str) -> Option<Started> {
        locked(&self.runs).iter().find(|started| started.id.as_str() == run).cloned()
    }
}

/// Waits for a run. Once `stopped` is ready, which tells it to stop, it has [`PATIENCE`] to do so before it is
/// abandoned.
async fn stoppable(
    run: impl Future<Output = Result<Asked, EngineError>>,
    stopped: impl Future<Output = ()>,
) -> Result<Option<Asked>, EngineError> {
    let mut run = std::pin::pin!(run);
    tokio::select! {
        asked = &mut run => asked.map(Some),
        () = stopped => match tokio::time::timeout(PATIENCE, run).await {
            Ok(asked) => asked.map(Some),
            Err(_) => Ok(None),
        },
    }
}
