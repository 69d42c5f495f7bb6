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
use crate::engine::{Engine, RunGroup, RunSummary, StoredRuns};
use crate::render::json::versioned;

/// List stored runs
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr runs
  dr runs --stats")]
pub(super) struct RunsArgs {
    /// Print the mean cost and time of runs by their number of sub-questions
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

pub(super) async fn runs(ui: &mut Ui, engine: &Engine, args: RunsArgs) -> Result<Exit, CliError> {
    let StoredRuns { runs, damage, hint } = engine.runs().await?;
    if args.json {
        ui.print(&versioned(&json!({ "runs": runs, "stats": RunGroup::of(&runs) }))?)?;
    } else if args.stats {
        ui.print(&stats_text(&RunGroup::of(&runs)))?;
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

fn stats_text(groups: &[RunGroup]) -> String {
    let mut text = format!("{:>6} {:>6} {:>12} {:>10}\n", "nodes", "runs", "mean cost", "mean time");
    for RunGroup { nodes, runs, mean_cost_usd, mean_seconds } in groups {
        let cost = mean_cost_usd.map_or_else(|| "unknown".to_owned(), |cost| format!("${cost:.4}"));
        let _ = writeln!(text, "{nodes:>6} {runs:>6} {cost:>12} {mean_seconds:>8.1} s");
    }
    text
}

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

pub(super) async fn export(ui: &mut Ui, engine: &Engine, args: ExportArgs) -> Result<Exit, CliError> {
    let lines = engine.export(args.run.as_deref()).await?;
    match &args.output {
        Some(file) => super::output::write(file, &lines)?,
        None => ui.print(&lines)?,
    }
    Ok(Exit::Done)
}
