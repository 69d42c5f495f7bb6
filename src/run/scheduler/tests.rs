use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::BoxFuture;
use proptest::prelude::*;
use tokio::sync::{Notify, mpsc, oneshot};

use super::simulation::tests::{Shape, shape};
use super::*;
use crate::research::node::NodeStatus;

/// A tree and a log of every change reported for it.
struct TestBoard {
    tree: Tree,
    told: Vec<String>,
    /// Node whose start fails to be stored.
    broken: Option<NodeId>,
    /// Node that cannot run.
    hopeless: Option<NodeId>,
}

impl TestBoard {
    /// Returns a board of nodes from `n2` on, with the given dependencies.
    fn new(needs: &[&[u32]]) -> Self {
        Self { tree: policy::tests::tree(needs), told: Vec::new(), broken: None, hopeless: None }
    }

    fn tell(&mut self, id: &NodeId, status: NodeStatus, what: &str) {
        self.tree.get_mut(id).unwrap().status = status;
        self.told.push(format!("{id} {what}"));
    }
}

impl Board for TestBoard {
    type Work = NodeId;
    type Output = &'static str;
    type Error = String;

    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn prepare(&self, id: &NodeId) -> Result<NodeId, String> {
        if self.hopeless.as_ref() == Some(id) { Err("has no way out".to_owned()) } else { Ok(id.clone()) }
    }

    async fn start(&mut self, id: &NodeId, _: &NodeId) -> Result<(), String> {
        if self.broken.as_ref() == Some(id) {
            return Err(format!("no room for {id}"));
        }
        self.tell(id, NodeStatus::Running, "starts");
        Ok(())
    }

    async fn finish(&mut self, id: &NodeId, outcome: Result<&'static str, Lost>) -> Result<(), String> {
        match outcome {
            Ok(text) => self.tell(id, NodeStatus::Done, text),
            Err(Lost::Cancelled) => self.tell(id, NodeStatus::Pending, "stopped"),
            Err(lost) => self.tell(id, NodeStatus::Failed, &lost.to_string()),
        }
        Ok(())
    }

    async fn block(&mut self, id: &NodeId, reason: String) -> Result<(), String> {
        self.tell(id, NodeStatus::Blocked, &reason);
        Ok(())
    }
}

fn never() -> bool {
    false
}

fn limits(max_parallel: usize) -> StartLimits<'static> {
    let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
    StartLimits { max_parallel, is_tight: &never, is_over: &never, stop, abort }
}

/// A worker that finishes immediately.
fn at_once(_: NodeId) -> std::future::Ready<&'static str> {
    std::future::ready("done")
}

type Work = BoxFuture<'static, &'static str>;

#[tokio::test]
async fn a_node_never_waits_for_one_it_does_not_depend_on() {
    // n3 ends only after n4 has run, and n4 depends on n2 only: a wave scheduler would deadlock.
    let mut board = TestBoard::new(&[&[], &[], &[2]]);
    let notify = Arc::new(Notify::new());
    let work = |id: NodeId| -> Work {
        let (notify, number) = (Arc::clone(&notify), id.number());
        Box::pin(async move {
            match number {
                3 => notify.notified().await,
                4 => notify.notify_one(),
                _ => {}
            }
            "done"
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits(2)).await, Ok(()));
    assert_eq!(board.told, ["n2 starts", "n3 starts", "n2 done", "n4 starts", "n4 done", "n3 done"]);
}

#[tokio::test]
async fn a_panic_fails_its_own_node_and_blocks_its_dependants() {
    let mut board = TestBoard::new(&[&[], &[2], &[], &[3, 4], &[2]]);
    board.tree.nodes[4].optional_dependencies = true;
    let work = |id: NodeId| -> Work {
        let number = id.number();
        Box::pin(async move {
            assert_ne!(number, 2, "out of ideas");
            "done"
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits(1)).await, Ok(()));
    assert!(board.told[1].starts_with("n2 worker panicked: ") && board.told[1].contains("out of ideas"));
    assert_eq!(board.told[2..], ["n3 n2 failed", "n6 n2 failed", "n4 starts", "n4 done", "n5 starts", "n5 done"]);
}

#[tokio::test]
async fn a_stopped_schedule_starts_nothing_and_waits_for_running_workers() {
    let mut board = TestBoard::new(&[&[], &[], &[]]);
    let limits = limits(2);
    let work = |id: NodeId| -> Work {
        let (stop, is_first) = (limits.stop.clone(), id.number() == 2);
        Box::pin(async move {
            if is_first {
                stop.cancel();
            }
            tokio::task::yield_now().await;
            "done"
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits).await, Ok(()));
    assert_eq!(board.told.len(), 4);
    assert_eq!(board.tree.nodes[3].status, NodeStatus::Pending);
}

#[tokio::test]
async fn an_aborted_schedule_aborts_running_workers_and_reports_them() {
    let mut board = TestBoard::new(&[&[], &[], &[]]);
    let limits = limits(2);
    let work = |id: NodeId| -> Work {
        let (abort, is_second) = (limits.abort.clone(), id.number() == 3);
        Box::pin(async move {
            if is_second {
                abort.cancel();
            }
            std::future::pending().await
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits).await, Ok(()));
    board.told[2..].sort();
    assert_eq!(board.told, ["n2 starts", "n3 starts", "n2 stopped", "n3 stopped"]);
}

#[tokio::test]
async fn a_schedule_cancelled_before_it_begins_starts_nothing() {
    for is_abort in [false, true] {
        let mut board = TestBoard::new(&[&[]]);
        let limits = limits(2);
        if is_abort {
            limits.abort.cancel();
        } else {
            limits.stop.cancel();
        }
        assert_eq!(run_ready(&mut board, at_once, &limits).await, Ok(()));
        assert!(board.told.is_empty());
    }
}

#[tokio::test]
async fn dropping_the_schedule_aborts_every_worker() {
    let mut board = TestBoard::new(&[&[], &[]]);
    let (running, mut is_running) = mpsc::unbounded_channel();
    let (held, all_dropped) = mpsc::unbounded_channel::<()>();
    let work = move |_: NodeId| -> Work {
        let (running, held) = (running.clone(), held.clone());
        Box::pin(async move {
            let _held = held;
            running.send(()).unwrap();
            std::future::pending().await
        })
    };
    let limits = limits(2);
    let schedule = run_ready(&mut board, work, &limits);
    tokio::select! {
        biased;
        ended = schedule => panic!("{ended:?}"),
        () = async { is_running.recv().await.unwrap(); is_running.recv().await.unwrap() } => {}
    }
    // The channel closes when the last worker is dropped.
    let mut all_dropped = all_dropped;
    assert_eq!(all_dropped.recv().await, None);
    assert_eq!(board.told, ["n2 starts", "n3 starts"]);
}

#[tokio::test]
async fn a_tight_budget_leaves_one_place() {
    let mut board = TestBoard::new(&[&[], &[], &[], &[], &[]]);
    let (is_tight, now, most) = (AtomicBool::new(true), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let is_tight = || is_tight.load(Ordering::SeqCst);
    let limits = StartLimits { is_tight: &is_tight, ..limits(4) };
    let work = |_: NodeId| -> Work {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            "done"
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits).await, Ok(()));
    assert_eq!((most.load(Ordering::SeqCst), board.told.len()), (1, 10));
}

#[tokio::test]
async fn no_node_starts_after_a_limit_is_reached() {
    let mut board = TestBoard::new(&[&[], &[], &[]]);
    let started = AtomicUsize::new(0);
    let is_over = || started.load(Ordering::SeqCst) >= 2;
    let limits = StartLimits { is_over: &is_over, ..limits(1) };
    let work = |_: NodeId| {
        started.fetch_add(1, Ordering::SeqCst);
        std::future::ready("done")
    };
    assert_eq!(run_ready(&mut board, work, &limits).await, Ok(()));
    assert_eq!(board.told, ["n2 starts", "n2 done", "n3 starts", "n3 done"]);
}

#[tokio::test]
async fn an_error_of_the_board_aborts_every_worker() {
    let mut board = TestBoard::new(&[&[], &[]]);
    board.broken = Some(NodeId::numbered(3));
    let (held, dropped) = oneshot::channel::<Infallible>();
    let mut held = Some(held);
    let work = move |_: NodeId| -> Work {
        let held = held.take();
        Box::pin(async move {
            let _held = held;
            std::future::pending().await
        })
    };
    assert_eq!(run_ready(&mut board, work, &limits(2)).await, Err("no room for n3".to_owned()));
    assert!(dropped.await.is_err());
}

#[tokio::test]
async fn a_node_that_cannot_run_is_blocked_with_those_that_depend_on_it_and_never_starts() {
    let mut board = TestBoard::new(&[&[], &[2], &[]]);
    board.hopeless = Some(NodeId::numbered(2));
    assert_eq!(run_ready(&mut board, at_once, &limits(1)).await, Ok(()));
    assert_eq!(board.told, ["n2 has no way out", "n3 n2 is blocked", "n4 starts", "n4 done"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn live_runs_start_nodes_in_the_order_of_the_simulation(shape in shape()) {
        let Shape { tree, durations } = shape;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut board = TestBoard { tree: tree.clone(), told: Vec::new(), broken: None, hopeless: None };
        prop_assert_eq!(runtime.block_on(run_ready(&mut board, at_once, &limits(1))), Ok(()));
        let started: Vec<_> = board.told.iter().filter_map(|told| told.strip_suffix(" starts")).collect();
        let simulated: Vec<_> = simulate(&tree, &durations, 1).starts.iter().map(|(id, _)| id.to_string()).collect();
        prop_assert_eq!(started, simulated);
    }
}
