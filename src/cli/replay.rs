//! `dr replay`: prints the report of a run again.

use clap::Args;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::report::ReportArgs;
use super::ui::Ui;
use crate::engine::Engine;

/// Print the report of a run again, byte for byte
///
/// Reads only the journal: no model, no index, no network.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr replay                              the report of the newest run
  dr replay 4f1c09a2 --format html -o report.html")]
pub(super) struct ReplayArgs {
    /// Id of the run, or a prefix of it (default: the newest run)
    #[arg(value_name = "RUN", add = completions::runs())]
    run: Option<String>,

    #[command(flatten)]
    report: ReportArgs,
}

pub(super) async fn replay(ui: &mut Ui, engine: &Engine, args: ReplayArgs) -> Result<Exit, CliError> {
    let replayed = engine.replay(args.run.as_deref()).await?;
    if replayed.is_running {
        ui.tell("note: this run is still in progress; this is what it has so far");
    }
    args.report.end(ui, engine, &replayed.report).await
}
