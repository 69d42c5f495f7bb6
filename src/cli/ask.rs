//! `dr ask`: answer a question.

use std::path::{Path, PathBuf};

use clap::Args;

use super::error::CliError;
use super::exit::Exit;
use super::search::FilterArgs;
use super::ui::Ui;
use crate::engine::{Engine, EngineError, IndexRequest};
use crate::kb::index::Index;
use crate::kb::search::SearchOptions;
use crate::render::{json, markdown};
use crate::research::question::Question;

/// Answer a question with checked citations
///
/// The answer is made of sentences that stand in the knowledge base, each with its place. Where nothing bears on the
/// question, `dr` says so and exits with 3; it never makes an answer up.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    /// The question
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,

    /// Bring the index up to date with this folder first, and answer from it alone
    #[arg(long, value_name = "PATH", conflicts_with = "collections")]
    kb: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Print the report as markdown or json
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: ReportFormat,

    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the report to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ReportFormat {
    /// Markdown, rendered on a terminal
    #[default]
    Markdown,
    /// The report object
    Json,
}

/// Runs the command.
pub(super) async fn ask(ui: &mut Ui, engine: &Engine, args: AskArgs) -> Result<Exit, CliError> {
    let question: Question =
        args.question.join(" ").parse().map_err(|error| CliError::Usage { message: format!("{error}"), hint: None })?;
    if !engine.settings().is_offline() {
        ui.tell("note: no model is configured, so the answer is made of sentences from the knowledge base");
    }
    let mut filter = args.filter.filter();
    if let Some(folder) = &args.kb {
        match update(ui, engine, folder).await? {
            Some(collection) => filter.collections = vec![collection],
            None => return Ok(Exit::Interrupted),
        }
    }
    let options = SearchOptions { filter, paths: args.filter.paths()?, ..SearchOptions::default() };
    let searcher = engine.searcher(options.mode).await?;
    let report = engine.ask(&searcher, question, &options).await?;
    let is_json = args.json || args.format == ReportFormat::Json;
    let text = if is_json { json::plain(&report)? } else { markdown::report(&report) };
    match &args.output {
        Some(file) => write(file, &text)?,
        None if !is_json && ui.is_for_people() => {
            ui.print(&termimad::MadSkin::default().term_text(&text).to_string())?;
        }
        None => ui.print(&text)?,
    }
    Ok(if report.is_refusal() { Exit::NoEvidence } else { Exit::Done })
}

/// Indexes a folder and returns its collection, or nothing where the user stopped it.
async fn update(ui: &mut Ui, engine: &Engine, folder: &Path) -> Result<Option<String>, CliError> {
    let request = IndexRequest { folders: vec![folder.to_path_buf()], embed: true, ..IndexRequest::default() };
    let summary = super::index::run(ui, engine, &request).await?;
    for skipped in &summary.skipped {
        ui.tell(&format!("note: `{}` is left out: {}", skipped.path, skipped.reason));
    }
    if summary.interrupted {
        return Ok(None);
    }
    let index = Index::open(engine.location()).await.map_err(EngineError::from)?;
    Ok(engine.collection_of(&index, folder)?)
}

/// Writes the report; a link is followed, and a pipe or device is written to.
fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|source| CliError::File {
        action: "write",
        path: file.display().to_string(),
        source,
    })
}
