//! `dr config`: prints the effective settings and their origins.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::OutputArgs;
use super::error::CliError;
use super::exit::Exit;
use super::ui::{QUIET, Ui, styled};
use crate::base::line::one_line;
use crate::engine::{Engine, ExplainedSetting};
use crate::render::json::versioned;

/// Print every setting and the origin of its value
///
/// Later wins: defaults, your own file, `dr.toml` beside `.dr/`, variables, flags. Keys are never shown. An invalid
/// value is an error, even if only a run would use it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr config
  dr config --json | jq -r '.settings[] | select(.key == \"limit\").origin'")]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub(super) fn config(ui: &mut Ui, engine: &Engine, args: &ConfigArgs) -> Result<Exit, CliError> {
    let settings = engine.explained_settings();
    if args.output.is_json() {
        ui.print(&versioned(&json!({ "settings": settings }))?)?;
    } else {
        ui.print(&table(&settings))?;
    }
    // Printed before the check, because the values help to understand its error.
    engine.check_settings()?;
    Ok(Exit::Done)
}

/// Returns settings as a table: name, value, origin.
pub(super) fn table(settings: &[ExplainedSetting]) -> String {
    let mut text = String::new();
    let width = settings.iter().map(|setting| setting.key.chars().count()).max().unwrap_or(0) + 1;
    for setting in settings {
        let (key, value, origin) = (one_line(&setting.key), one_line(&setting.value), styled(QUIET, &setting.origin));
        let _ = writeln!(text, "{key:<width$} {value:<36} {origin}");
    }
    text
}
