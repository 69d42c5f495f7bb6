//! How a report is printed, by every command that has one.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;
use crate::engine::{Report, StopReason};
use crate::render::{self, ReportFormat};

/// Flags of commands that print a report.
#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// Print the report as markdown, note, html or json
    #[arg(long, value_name = "FORMAT", default_value_t, value_parser = formats())]
    format: ReportFormat,

    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the report to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn formats() -> impl TypedValueParser<Value = ReportFormat> {
    let value = |format: ReportFormat| PossibleValue::new(format.name()).help(format.about());
    PossibleValuesParser::new(ReportFormat::ALL.map(value)).try_map(|name| name.parse())
}

impl ReportArgs {
    /// Tells whether an object for programs is wanted.
    pub(super) fn is_json(&self) -> bool {
        self.json || self.format == ReportFormat::Json
    }

    /// Makes sure that the file that was asked for can be written, before anything is spent on what goes into it.
    pub(super) fn check(&self) -> Result<(), CliError> {
        let Some(file) = &self.output else { return Ok(()) };
        // A pipe or device is what it is.
        if file.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            return Ok(());
        }
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map(drop).map_err(|source| CliError::File { action: "write", path: file.display().to_string(), source })
    }

    /// Prints a report, and returns the exit code it ends the program with.
    ///
    /// Where the terminal went away, that is what stopped the run, and that the report cannot be printed there is no
    /// second failure: it is stored.
    pub(super) fn end(&self, ui: &mut Ui, report: &Report) -> Result<Exit, CliError> {
        match (exit(report), self.print(ui, report)) {
            (Exit::Interrupted, Err(CliError::Output(_))) => Ok(Exit::Interrupted),
            (exit, printed) => printed.map(|()| exit),
        }
    }

    /// Prints a report, or writes it to the file that was asked for; Markdown is laid out on a terminal.
    fn print(&self, ui: &mut Ui, report: &Report) -> Result<(), CliError> {
        let format = if self.json { ReportFormat::Json } else { self.format };
        let mut text = render::report(report, format)?;
        // On paper and on the screen, the last line ends as every other.
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match &self.output {
            Some(file) => write(file, &text),
            None if format == ReportFormat::Markdown && ui.is_for_people() => {
                Ok(ui.print(&termimad::MadSkin::default().term_text(&text).to_string())?)
            }
            None => Ok(ui.print(&text)?),
        }
    }
}

/// Writes the report; a link is followed, and a pipe or device is written to.
fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|source| CliError::File {
        action: "write",
        path: file.display().to_string(),
        source,
    })
}

/// Returns the exit code a report ends the program with.
fn exit(report: &Report) -> Exit {
    match report.stop_reason {
        StopReason::Cancelled => Exit::Interrupted,
        _ if report.is_refusal() && !report.failed_nodes.is_empty() => Exit::Failed,
        StopReason::BudgetExceeded
        | StopReason::TokensExceeded
        | StopReason::TimeExceeded
        | StopReason::IterationsExceeded => Exit::Partial,
        _ if report.is_refusal() => Exit::NoEvidence,
        StopReason::Complete | StopReason::NoMoreTasks | StopReason::NoProgress if !report.degraded => Exit::Done,
        _ => Exit::Partial,
    }
}
