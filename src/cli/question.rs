//! The question of `dr ask` and `dr plan`, and the sources for its answer.

use std::path::{Path, PathBuf};

use clap::Args;

use super::completions;
use super::error::CliError;
use super::search::FilterArgs;
use super::ui::Ui;
use crate::engine::{AskRequest, Engine, IndexRequest, Mode, Question, RunRequest, SourceHint};

/// A question and the sources for its answer.
#[derive(Args, Debug)]
pub(super) struct QuestionArgs {
    /// The question
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,

    /// Index this folder first, and answer only from it
    #[arg(long, value_name = "PATH", conflicts_with = "collections")]
    kb: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Aspect that the answer must cover; may be repeated up to 20 times
    #[arg(long, value_name = "TEXT")]
    cover: Vec<String>,

    /// Sources for every sub-question: `internal`, `web` or `mixed` (default: as planned)
    #[arg(long, value_name = "WHERE", add = completions::words(&["internal", "web", "mixed"]))]
    source: Option<SourceHint>,

    /// Do not fetch the pages Deep Research cites; its claims stay unchecked
    #[arg(long)]
    no_verify_web: bool,

    /// Let texts derived from the knowledge base and internal servers leave this machine, in web queries and Deep Research
    /// prompts
    #[arg(long)]
    allow_egress: bool,

    /// Depth of the research: `quick`, `iterative`, `deep` or `auto` (by the question)
    #[arg(long, value_name = "MODE", default_value = "auto", hide_default_value = true)]
    #[arg(add = completions::words(&["quick", "iterative", "deep", "auto"]))]
    mode: Mode,
}

impl QuestionArgs {
    /// Returns the request, validated as far as possible without an index.
    pub(super) fn request(&self) -> Result<AskRequest, CliError> {
        let question: Result<Question, _> = self.question.join(" ").parse();
        let question = question.map_err(|error| CliError::Usage { message: format!("{error}"), hint: None })?;
        let run = RunRequest {
            scope: self.filter.scope(),
            mode: self.mode,
            required: self.cover.clone(),
            source: self.source,
            allow_egress: self.allow_egress,
            verify_web: !self.no_verify_web,
            output_schema: None,
        };
        AskRequest { run, ..AskRequest::new(question) }.checked().map_err(CliError::from)
    }

    /// Indexes the folder of `--kb` and restricts the request to it. Returns `None` if the user interrupts the
    /// indexing.
    pub(super) async fn updated(
        &self,
        ui: &mut Ui,
        engine: &Engine,
        mut request: AskRequest,
    ) -> Result<Option<AskRequest>, CliError> {
        let Some(folder) = &self.kb else { return Ok(Some(request)) };
        Ok(update(ui, engine, folder).await?.map(|collection| {
            request.run.scope.collections = vec![collection];
            request
        }))
    }
}

/// Indexes a folder and returns its collection, or `None` if the user interrupts the indexing.
async fn update(ui: &mut Ui, engine: &Engine, folder: &Path) -> Result<Option<String>, CliError> {
    let request = IndexRequest { folders: vec![folder.to_path_buf()], embed: true, ..IndexRequest::default() };
    let summary = super::index::run(ui, engine, &request).await?;
    for skipped in &summary.skipped {
        ui.tell(&format!("note: `{}` is left out: {}", skipped.path, skipped.reason));
    }
    if summary.interrupted {
        return Ok(None);
    }
    Ok(engine.collection_of(folder).await?)
}
