//! `dr runs`, `dr rm`, `dr export`: stored runs.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::ui::{QUIET, Ui, styled};
use crate::base::line::{counted, one_line};
use crate::engine::{Engine, RunSummary, StoredRuns};
use crate::render::json::versioned;

/// List stored runs
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr runs
  dr runs --stats")]
pub(super) struct RunsArgs {
    /// Relate the number of sub-questions to cost and time, over all runs
    #[arg(long)]
    stats: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Remove stored runs
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr rm 4f1c09a2")]
pub(super) struct RmArgs {
    /// Ids of the runs, or prefixes of them
    #[arg(value_name = "RUN", required = true, add = completions::runs())]
    runs: Vec<String>,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Export a stored run as JSON Lines
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr export 4f1c09a2 > run.jsonl")]
pub(super) struct ExportArgs {
    /// Id of the run, or a prefix of it (default: the newest run)
    #[arg(value_name = "RUN", add = completions::runs())]
    run: Option<String>,

    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `dr runs`.
pub(super) async fn runs(ui: &mut Ui, engine: &Engine, args: RunsArgs) -> Result<Exit, CliError> {
    let StoredRuns { runs, damage, hint } = engine.runs().await?;
    if args.json {
        ui.print(&versioned(&json!({ "runs": runs, "stats": stats(&runs) }))?)?;
    } else if args.stats {
        ui.print(&stats_text(&runs))?;
    } else if runs.is_empty() {
        ui.tell(&format!("no run is stored here; {}", hint.unwrap_or_default()));
    } else {
        ui.print(&runs.iter().map(line).collect::<String>())?;
    }
    let problems: Vec<_> = runs.iter().filter_map(|run| run.problem.as_ref()).chain(&damage).collect();
    for problem in &problems {
        ui.warn(&format!("note: {}", one_line(problem)));
    }
    if !problems.is_empty() {
        ui.warn("note: `dr doctor --repair` saves what can still be read");
    }
    Ok(Exit::Done)
}

fn line(run: &RunSummary) -> String {
    let cost = run.cost_usd.map_or_else(|| "unknown".to_owned(), |cost| format!("${cost:.4}"));
    let facts =
        format!("{}  {:<20} {:>9}  {:>8.1} s  {cost}", run.started, run.state, counted(run.nodes, "node"), run.seconds);
    format!("{}  {}\n    {}\n", run.id, styled(QUIET, &facts), one_line(&run.question))
}

/// Runs grouped by their number of nodes.
fn stats(runs: &[RunSummary]) -> Vec<serde_json::Value> {
    let mut groups: std::collections::BTreeMap<usize, Vec<&RunSummary>> = std::collections::BTreeMap::new();
    for run in runs {
        groups.entry(run.nodes).or_default().push(run);
    }
    #[expect(clippy::cast_precision_loss, reason = "a mean of a few runs")]
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let group = |(nodes, runs): (usize, Vec<&RunSummary>)| {
        // One unknown cost makes the mean unknown.
        let costs: Option<Vec<f64>> = runs.iter().map(|run| run.cost_usd).collect();
        json!({
            "nodes": nodes,
            "runs": runs.len(),
            "mean_cost_usd": costs.map(mean),
            "mean_seconds": mean(runs.iter().map(|run| run.seconds).collect()),
        })
    };
    groups.into_iter().map(group).collect()
}

fn stats_text(runs: &[RunSummary]) -> String {
    let mut text = format!("{:>6} {:>6} {:>12} {:>10}\n", "nodes", "runs", "mean cost", "mean time");
    for group in stats(runs) {
        let cost = group["mean_cost_usd"].as_f64().map_or_else(|| "unknown".to_owned(), |cost| format!("${cost:.4}"));
        let seconds = group["mean_seconds"].as_f64().unwrap_or_default();
        let [nodes, runs] = ["nodes", "runs"].map(|key| group[key].as_u64().unwrap_or_default());
        let _ = writeln!(text, "{nodes:>6} {runs:>6} {cost:>12} {seconds:>8.1} s");
    }
    text
}

/// Runs `dr rm`.
pub(super) async fn rm(ui: &mut Ui, engine: &Engine, args: RmArgs) -> Result<Exit, CliError> {
    // All names are resolved first, so that a wrong one removes nothing.
    let runs = engine.find_runs(&args.runs).await?;
    for run in &runs {
        engine.remove_run(run).await?;
        if !args.json {
            ui.tell(&format!("removed {run}"));
        }
    }
    if args.json {
        ui.print(&versioned(&json!({ "removed": runs }))?)?;
    }
    Ok(Exit::Done)
}

/// Runs `dr export`.
pub(super) async fn export(ui: &mut Ui, engine: &Engine, args: ExportArgs) -> Result<Exit, CliError> {
    let lines = engine.export(args.run.as_deref()).await?;
    match &args.output {
        Some(file) => super::write(file, &lines)?,
        None => ui.print(&lines)?,
    }
    Ok(Exit::Done)
}
