//! Report output, shared by all commands that print one.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::error::CliError;
use super::exit::Exit;
use super::output::{check_writable, write};
use super::ui::{Ui, file_address, linked};
use crate::base::line::CodeFence;
use crate::engine::{Engine, Outcome, Report, StopReason};
use crate::render::links::{Target, places, with_links};
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
    pub(super) fn is_json(&self) -> bool {
        self.json || self.format == ReportFormat::Json
    }

    /// Checks that the output file is writable, before anything is spent on the report.
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.output.as_deref().map_or(Ok(()), check_writable)
    }

    /// Prints a report and returns the exit code.
    ///
    /// If the run was stopped because its terminal was closed, failing to print there is not another error: the report
    /// is stored.
    pub(super) async fn end(&self, ui: &mut Ui, engine: &Engine, report: &Report) -> Result<Exit, CliError> {
        match (exit(report), self.print(ui, engine, report).await) {
            (Exit::Interrupted, Err(CliError::Output(_))) => Ok(Exit::Interrupted),
            (exit, printed) => printed.map(|()| exit),
        }
    }

    /// Prints a report, or writes it to the output file. On a terminal, Markdown is formatted, and places are links
    /// where the terminal shows them.
    async fn print(&self, ui: &mut Ui, engine: &Engine, report: &Report) -> Result<(), CliError> {
        let format = if self.json { ReportFormat::Json } else { self.format };
        let mut text = render::report(report, format)?;
        // The output ends with a newline, in files and on terminals.
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match &self.output {
            Some(file) => write(file, &text),
            None if format == ReportFormat::Markdown && ui.formats() => {
                let text = termimad::MadSkin::default().term_text(&indented(&text)).to_string();
                let names = if ui.shows_links() { addresses(engine, report).await } else { Vec::new() };
                Ok(ui.print(&with_links(&text, &names, linked))?)
            }
            None => Ok(ui.print(&text)?),
        }
    }
}

/// Returns the names of places in a report, each with its address.
async fn addresses(engine: &Engine, report: &Report) -> Vec<(String, String)> {
    let folders = engine.folders().await;
    let address = |target: &Target| match target {
        Target::File { collection, path } => folders.get(collection).map(|folder| file_address(&folder.join(path))),
        Target::Page(url) => Some(url.clone()),
    };
    let named = places(report).into_iter();
    named.filter_map(|place| address(&place.target).map(|address| (place.text, address))).collect()
}

fn exit(report: &Report) -> Exit {
    match report.stop_reason {
        StopReason::Cancelled => Exit::Interrupted,
        // Not `NoEvidence`: the failed nodes may have missed the answer.
        _ if report.is_refusal() && !report.failed_nodes.is_empty() => Exit::Failed,
        // Before a refusal as well: within a higher limit, there may be an answer.
        stop if !stop.is_natural() => Exit::Partial,
        _ if report.is_refusal() || (report.outcome == Outcome::Closest && !report.degraded) => Exit::NoEvidence,
        StopReason::Complete | StopReason::NoMoreTasks | StopReason::NoProgress if !report.degraded => Exit::Done,
        _ => Exit::Partial,
    }
}

/// Returns Markdown with the indentation that `termimad` understands: it takes four spaces for code, and one to three
/// for the depth of an item, so deeper ones are moved by spaces behind their mark. Other lines of an item become
/// quotations, since other text is not wrapped with its indentation.
fn indented(markdown: &str) -> String {
    let mut shown = String::with_capacity(markdown.len());
    let mut fence = CodeFence::default();
    let mut breaks = false;
    for line in markdown.split_inclusive('\n') {
        let text = line.trim_start_matches(' ');
        let is_indented = text.len() < line.len() && !text.trim().is_empty();
        let is_code = fence.takes(line);
        match () {
            () if is_code => shown.push_str(line),
            () if is_item(text) && !(breaks && is_indented) => {
                let depth = (line.len() - text.len()) / 4;
                let (mark, said) = text.split_once(' ').unwrap_or((text, ""));
                let (before, behind) = (["", "  ", "   "][depth.min(2)], "\u{a0}".repeat(2 * depth.saturating_sub(1)));
                shown.push_str(&format!("{before}{mark} {behind}{said}"));
            }
            () if is_indented => shown.push_str(&format!("> {text}")),
            () => shown.push_str(line),
        }
        breaks = !is_code && line.ends_with("  \n") && is_item(text);
    }
    shown
}

/// Returns whether a line without its indentation is an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_item_is_an_item_on_a_terminal_and_code_stays_as_it_is() {
        let markdown = "1. Open:\n    - the `lid`\n        - slowly\n\n    Wait.\n\n```\n    - code\n```\n\n- `a.md` — Mill  \n  It grinds.\n";
        let shown = "1. Open:\n  - the `lid`\n   - \u{a0}\u{a0}slowly\n\n> Wait.\n\n```\n    - code\n```\n\n- `a.md` — Mill  \n> It grinds.\n";
        assert_eq!(indented(markdown), shown);
    }
}
