//! `dr ask`: answer a question.

use std::path::{Path, PathBuf};

use clap::Args;

use super::error::CliError;
use super::exit::Exit;
use super::report::ReportArgs;
use super::search::FilterArgs;
use super::ui::Ui;
use crate::engine::{Engine, EngineError, IndexRequest};
use crate::kb::index::Index;
use crate::kb::search::SearchOptions;
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

    #[command(flatten)]
    report: ReportArgs,
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
    let searcher = engine.searcher().await?;
    let report = engine.ask(&searcher, question, &options).await?;
    args.report.print(ui, &report)?;
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
