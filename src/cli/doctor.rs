//! `dr doctor`: checks the installation.

use std::fmt::Write;

use clap::Args;

use super::OutputArgs;
use super::config::table;
use super::error::CliError;
use super::exit::Exit;
use super::signal::interruptible;
use super::ui::{BAD, GOOD, NOTE, QUIET, Ui, styled};
use crate::base::line::one_line;
use crate::engine::{CheckStatus, Checkup, Engine};

/// Check the index, the runs, the model, the disk and the settings
///
/// Starts the tool servers of your settings to list their tools, unless offline. Changes nothing without `--repair`.
/// Each problem is shown with the command that fixes it; the exit code is then 1.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr doctor
  dr doctor --model                      also test the language models")]
pub(super) struct DoctorArgs {
    /// Also test each language model with two short prompts, and an embedding server with one word; this may incur a
    /// small cost
    #[arg(long)]
    model: bool,

    /// Save what can still be read of a damaged journal into a new one, and keep the damaged file beside it
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn doctor(ui: &mut Ui, engine: &Engine, args: &DoctorArgs) -> Result<Exit, CliError> {
    // Before the checkup, which shows the remaining problems.
    let repairs = if args.repair { engine.repair().await? } else { Vec::new() };
    // A checkup starts servers; dropping it ends them.
    let checkup = interruptible().run_until_cancelled_owned(Box::pin(async {
        let mut checkup = engine.checkup().await;
        checkup.repairs = repairs;
        if args.model {
            checkup.checks.extend(engine.model_checks().await);
            checkup.checks.extend(engine.embedder_answers().await);
        }
        checkup
    }));
    let Some(checkup) = checkup.await else { return Ok(Exit::Interrupted) };
    args.output.print(ui, &checkup, text)?;
    Ok(if checkup.has_trouble() { Exit::Failed } else { Exit::Done })
}

fn text(checkup: &Checkup) -> String {
    let mut text = format!("{}\n\n", styled(QUIET, &one_line(&checkup.index)));
    for repair in &checkup.repairs {
        let _ = writeln!(text, "{} {}", styled(GOOD, "repair "), one_line(repair));
    }
    for check in &checkup.checks {
        let (style, word) = match check.status {
            CheckStatus::Ok => (GOOD, "ok     "),
            CheckStatus::Note => (NOTE, "note   "),
            CheckStatus::Trouble => (BAD, "trouble"),
        };
        let _ = writeln!(text, "{} {:<13} {}", styled(style, word), check.name, one_line(&check.detail));
        if let Some(mend) = &check.mend {
            let _ = writeln!(text, "{:22}→ {}", "", one_line(mend));
        }
    }
    text.push('\n');
    text.push_str(&table(&checkup.settings));
    text
}
