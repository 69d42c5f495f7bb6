//! Measures the overhead of the orchestrator: a scripted model with fixed delays, compared with a simulation of the
//! scheduler.
//!
//! `cargo bench --bench runs` prints a table; see `kb/reference/performance.md`.

#![expect(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/it/researcher.rs"]
mod researcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dr::base::clock::SystemClock;
use dr::base::id::RunId;
use dr::engine::report_of;
use dr::render::{ReportFormat, report};
use dr::research::plan::TreeLimits;
use dr::research::question::Mode;
use dr::run::budget::BudgetLimits;
use dr::run::event::{Event, RunRequest, RunSettings};
use dr::run::orchestrator::Orchestrator;
use dr::run::scheduler::simulate;
use dr::run::store::Store;
use researcher::{Researcher, ScriptedModel, resources, settings};

/// Delay of every reply of the model.
const DELAY: Duration = Duration::from_millis(100);

/// Calls of a node's worker: search, notes, report.
const CALLS_PER_NODE: u32 = 3;

/// Maximum number of nodes in flight.
const PARALLEL: usize = 8;

/// Runs a tree of `nodes` nodes and prints the measurements.
async fn measure(nodes: usize, delay: Duration) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let store = Store::open(folder.path()).expect("a journal can be made");
    let model = ScriptedModel::new(Researcher { nodes, more_nodes: 0 }, delay);
    let resources = resources(store.clone(), Arc::new(SystemClock), model.models());
    let settings = RunSettings {
        request: RunRequest { mode: Mode::Deep, ..RunRequest::default() },
        tree: TreeLimits { max_depth: 3, max_nodes: 2_000 },
        parallel: PARALLEL,
        summary_tokens: 4_000,
        ..settings(BudgetLimits::NONE)
    };
    let run = RunId::random(1);
    let question = "What is known of the topics?".parse().expect("the question has words");
    let mut orchestrator =
        Orchestrator::start(run.clone(), question, settings, resources).await.expect("the run starts");
    let stop = orchestrator.conduct().await.expect("the run ends");
    drop(orchestrator);
    let (records, state) = store.read(&run).await.expect("the run reads back");
    let moment =
        |name: &'static str| records.iter().filter(move |record| record.event.name() == name).map(|record| record.at);
    let first = moment("planned").next().expect("the run was planned");
    let last = moment("node_finished").next_back().expect("a node was done");
    let mut planned = state.tree.clone();
    for node in &mut planned.nodes {
        node.status = dr::research::node::NodeStatus::Pending;
    }
    let durations: BTreeMap<_, _> = planned.workers().map(|node| (node.id.clone(), delay * CALLS_PER_NODE)).collect();
    let ideal = simulate(&planned, &durations, PARALLEL).makespan;
    let took = last.since(first);
    // Without a delay the simulated time is zero, and the overhead is no ratio.
    let overhead = match ideal.as_secs_f64() {
        0.0 => String::new(),
        ideal => format!(" ({:+.1} %)", (took.as_secs_f64() / ideal - 1.0) * 100.0),
    };
    let started = Instant::now();
    let (_, state) = store.read(&run).await.expect("the run reads back");
    let replayed = report_of(&store, &run, &state).await.expect("the report is made");
    let text = report(&replayed, ReportFormat::Markdown).expect("the report renders");
    let replay = started.elapsed();
    let folds = records.iter().filter(|record| matches!(record.event, Event::NodeFinished { .. })).count();
    println!(
        "{nodes:>6} nodes  {stop:?}  {folds} done  nodes took {:.2} s, simulated {:.2} s{overhead}  replay {} ms, {} KiB  \
         peak memory {} MiB",
        took.as_secs_f64(),
        ideal.as_secs_f64(),
        replay.as_millis(),
        text.len() / 1_024,
        peak_mebibytes()
    );
}

/// Returns the peak memory of this process, or 0 if the system does not report it.
fn peak_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1_024
}

#[tokio::main]
async fn main() {
    measure(200, DELAY).await;
    measure(1_000, Duration::ZERO).await;
}
