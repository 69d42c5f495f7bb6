//! The scheduler: starts workers as nodes become ready and passes their results on. The only code that spawns workers.
//!
//! ```text
//! policy (which nodes, pure) ─▶ run_ready (tasks, real time)
//!                            └▶ simulate  (virtual time)
//! ```
//!
//! There are no waves: the policy decides again whenever a worker ends. [`run_ready`] owns every task, and leaving it
//! by any path, including being dropped, aborts them all. Results go to the [`Board`] one at a time, and each is stored
//! before the next is taken, so a crash loses whole results and never half of one.

mod policy;
mod simulation;

use std::collections::{BTreeSet, HashMap};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

pub(crate) use policy::{blocked, next};
pub use simulation::simulate;

use crate::base::line::panic_text;
use crate::research::node::{NodeId, Tree};

/// A worker ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    #[error("worker panicked: {message}")]
    Panicked { message: String },
    #[error("worker was stopped")]
    Cancelled,
}

/// Storage of node states. The scheduler reports every change to it and reads its tree.
///
/// A change must be visible in [`Self::tree`] when the method returns. An error ends the schedule and aborts all
/// workers.
pub(crate) trait Board {
    /// Input of a worker.
    type Work;
    /// Result of a worker.
    type Output: Send + 'static;
    /// Failure to store a change.
    type Error;

    fn tree(&self) -> &Tree;

    /// Returns the input of the worker of a node, from the state at the time it starts.
    ///
    /// # Errors
    ///
    /// Returns the reason that the node cannot run. It is then blocked.
    fn prepare(&self, id: &NodeId) -> Result<Self::Work, String>;

    /// Marks a node as running, before its worker starts.
    fn start(&mut self, id: &NodeId, work: &Self::Work) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Stores the result of a worker. Settles the node, or sets it back to pending if the worker was aborted.
    fn finish(
        &mut self,
        id: &NodeId,
        outcome: Result<Self::Output, Lost>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Marks a node that can never run as blocked.
    fn block(&mut self, id: &NodeId, reason: String) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

pub(crate) struct StartLimits<'a> {
    /// Maximum number of nodes that run at the same time.
    pub(crate) max_parallel: usize,
    /// Returns whether the budget is tight. Nodes then run one at a time, so that the rest completes some nodes instead
    /// of being spread over many that a limit would cut off.
    pub(crate) is_tight: &'a (dyn Fn() -> bool + Send + Sync),
    /// Returns whether a limit is reached, after which no node starts.
    pub(crate) is_over: &'a (dyn Fn() -> bool + Send + Sync),
    /// Once cancelled, no node starts, and the running ones finish.
    pub(crate) stop: CancellationToken,
    /// Once cancelled, no node starts, and the running ones are aborted.
    pub(crate) abort: CancellationToken,
}

impl StartLimits<'_> {
    /// Returns whether no further node may start.
    fn are_reached(&self) -> bool {
        self.stop.is_cancelled() || self.abort.is_cancelled() || (self.is_over)()
    }

    fn places(&self) -> usize {
        if (self.is_tight)() { 1 } else { self.max_parallel }
    }
}

/// Runs every node that can run, each as soon as it is ready. Returns when no worker is running. Nodes are pending then
/// only if one of `limits` was reached.
///
/// `worker` builds the future of a worker. It runs as a task of its own, so a panic fails only its own node.
///
/// Dropping the future of this function aborts all workers without reporting them to the board.
///
/// # Errors
///
/// Returns the first error of the board, after aborting all workers.
pub(crate) async fn run_ready<B, W, F>(board: &mut B, mut worker: W, limits: &StartLimits<'_>) -> Result<(), B::Error>
where
    B: Board,
    W: FnMut(B::Work) -> F,
    F: Future<Output = B::Output> + Send + 'static,
{
    let mut workers = Workers::default();
    'decide: loop {
        if !limits.are_reached() {
            block_hopeless(board).await?;
            for id in next(board.tree(), &workers.running, limits.places()) {
                let work = match board.prepare(&id) {
                    Ok(work) => work,
                    Err(reason) => {
                        board.block(&id, reason).await?;
                        // Nodes that depend on it are blocked as well, and another one may take its place.
                        continue 'decide;
                    }
                };
                // Stored before any work is done: a kill in between leaves a running node, which a resume sets back.
                board.start(&id, &work).await?;
                workers.spawn(id, worker(work));
            }
        }
        match workers.finished(&limits.abort).await {
            Some((id, outcome)) => board.finish(&id, outcome).await?,
            None => return Ok(()),
        }
    }
}

/// Marks nodes that can never run as blocked.
async fn block_hopeless<B: Board>(board: &mut B) -> Result<(), B::Error> {
    for (id, reason) in blocked(board.tree()) {
        board.block(&id, reason).await?;
    }
    Ok(())
}

/// The running workers of a schedule. Dropping it aborts them.
struct Workers<T> {
    tasks: JoinSet<T>,
    /// By task, since a worker that panicked is known by the id of its task alone.
    nodes: HashMap<Id, NodeId>,
    running: BTreeSet<NodeId>,
}

impl<T> Default for Workers<T> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), nodes: HashMap::new(), running: BTreeSet::new() }
    }
}

impl<T: Send + 'static> Workers<T> {
    fn spawn(&mut self, id: NodeId, work: impl Future<Output = T> + Send + 'static) {
        let span = info_span!("node", %id, findings = Empty, quotes = Empty);
        let task = self.tasks.spawn(work.instrument(span));
        self.nodes.insert(task.id(), id.clone());
        self.running.insert(id);
    }

    /// Waits for the next worker to end. Returns `None` if no worker is running.
    async fn finished(&mut self, abort: &CancellationToken) -> Option<(NodeId, Result<T, Lost>)> {
        loop {
            let is_aborted = abort.is_cancelled();
            if is_aborted {
                self.tasks.abort_all();
            }
            // Both arms are cancel-safe: a task that has ended stays in the set until `join_next_with_id` returns it.
            let ended = tokio::select! {
                biased;
                () = abort.cancelled(), if !is_aborted => continue,
                ended = self.tasks.join_next_with_id() => ended?,
            };
            let (task, outcome) = match ended {
                Ok((task, outcome)) => (task, Ok(outcome)),
                Err(error) => (error.id(), Err(Lost::from(error))),
            };
            if let Some(id) = self.nodes.remove(&task) {
                self.running.remove(&id);
                return Some((id, outcome));
            }
        }
    }
}

impl From<JoinError> for Lost {
    fn from(error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(payload) => Self::Panicked { message: panic_text(&*payload).to_owned() },
            Err(_) => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests;
