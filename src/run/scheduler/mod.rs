//! Starts workers when their turn comes, and hands on what they bring: the only place that spawns.
//!
//! ```text
//! policy (which nodes, pure) ─▶ run_ready (tasks, real time)
//!                            └▶ simulate  (virtual time)
//! ```
//!
//! There are no waves: whenever something is done, the policy is asked again. One owner holds every task; leaving
//! [`run_ready`] by any path, being dropped included, ends them all. What a worker brings is handed to the
//! [`Board`], which writes it down before the next is taken, so it is either there or not.

mod policy;

mod simulation;

use std::any::Any;
use std::collections::{BTreeSet, HashMap};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

pub use policy::{blocked, next};
pub use simulation::{Simulation, simulate};

use crate::research::node::{NodeId, NodeStatus, Tree};

/// A worker brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It broke down.
    #[error("worker broke down: {message}")]
    Panicked {
        /// Its last words.
        message: String,
    },
    /// It was ended before it was done.
    #[error("worker was stopped")]
    Cancelled,
}

/// Where the state of the nodes is kept; the scheduler tells it what happens and reads its tree.
///
/// Every change must show in [`Self::tree`] when the call returns. An error ends the schedule and every worker.
pub trait Board {
    /// What a worker brings.
    type Outcome: Send + 'static;
    /// Why a change could not be kept.
    type Error;

    /// Returns the tree as it is now.
    fn tree(&self) -> &Tree;

    /// A worker starts on a node: it is running.
    fn start(&mut self, id: &NodeId) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The worker of a node has ended: the node is settled, or waits again where the worker was stopped.
    fn finish(
        &mut self,
        id: &NodeId,
        outcome: Result<Self::Outcome, Lost>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// A node can never run: it is blocked.
    fn block(&mut self, id: &NodeId, reason: String) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// How fast nodes are started, and when no more are.
pub struct Pace<'a> {
    /// Nodes at once, at most; one when the budget is tight.
    pub max_parallel: usize,
    /// Tells whether the budget is tight, so that the run can stop early.
    pub is_tight: &'a (dyn Fn() -> bool + Send + Sync),
    /// Tells whether a limit is reached: nothing more starts.
    pub is_over: &'a (dyn Fn() -> bool + Send + Sync),
    /// Once cancelled nothing more starts; what runs is waited for.
    pub stop: CancellationToken,
    /// Once cancelled nothing more starts and what runs is ended.
    pub abort: CancellationToken,
}

/// Why a schedule ended; nothing runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No node waits any more.
    Drained,
    /// A limit was reached; nodes may wait.
    Over,
    /// Somebody stopped it; nodes may wait.
    Stopped,
}

impl Pace<'_> {
    /// Returns why nothing more may start.
    fn ended(&self) -> Option<Ended> {
        if self.stop.is_cancelled() || self.abort.is_cancelled() {
            Some(Ended::Stopped)
        } else {
            (self.is_over)().then_some(Ended::Over)
        }
    }

    fn places(&self) -> usize {
        if (self.is_tight)() { 1 } else { self.max_parallel }
    }
}

/// Works on every node that can be worked on, each from the moment its turn comes.
///
/// `work` composes what a worker needs from the board as it stands when the node starts; the future it returns runs as
/// a task. A worker that panics loses its own node and no other.
///
/// Dropping the future of this function ends every worker; none is then reported to the board.
///
/// # Errors
///
/// Returns the first error of the board, and ends every worker.
pub async fn run_ready<B, W, F>(board: &mut B, mut work: W, pace: &Pace<'_>) -> Result<Ended, B::Error>
where
    B: Board,
    W: FnMut(&B, &NodeId) -> F,
    F: Future<Output = B::Outcome> + Send + 'static,
{
    let mut workers = Workers::default();
    loop {
        let ended = pace.ended();
        if ended.is_none() {
            block_hopeless(board).await?;
            for id in next(board.tree(), &workers.running, pace.places()) {
                board.start(&id).await?;
                let future = work(board, &id);
                workers.spawn(id, future);
            }
        }
        match workers.finished(&pace.abort).await {
            Some((id, outcome)) => board.finish(&id, outcome).await?,
            None if board.tree().workers().any(|node| node.status == NodeStatus::Pending) => {
                return Ok(ended.unwrap_or(Ended::Drained));
            }
            None => return Ok(Ended::Drained),
        }
    }
}

/// Tells the board which nodes can never run.
async fn block_hopeless<B: Board>(board: &mut B) -> Result<(), B::Error> {
    for (id, reason) in blocked(board.tree()) {
        board.block(&id, reason).await?;
    }
    Ok(())
}

/// The tasks of one schedule; dropped, it ends them.
struct Workers<T> {
    tasks: JoinSet<T>,
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
        let task = self.tasks.spawn(work.instrument(info_span!("node", %id)));
        self.nodes.insert(task.id(), id.clone());
        self.running.insert(id);
    }

    /// Waits for the next worker to end; none when nothing runs.
    async fn finished(&mut self, abort: &CancellationToken) -> Option<(NodeId, Result<T, Lost>)> {
        loop {
            let is_aborted = abort.is_cancelled();
            if is_aborted {
                self.tasks.abort_all();
            }
            // Both arms can be dropped half way: a task that has ended stays in the set until it is taken.
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
            Ok(payload) => Self::Panicked { message: last_words(&*payload) },
            Err(_) => Self::Cancelled,
        }
    }
}

fn last_words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason given").to_owned()
}

#[cfg(test)]
mod tests;
