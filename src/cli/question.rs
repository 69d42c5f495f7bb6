//! The question of `dr ask` and `dr plan`, and what may be searched for its answer.

use std::path::{Path, PathBuf};

use clap::Args;

use super::error::CliError;
use super::search::FilterArgs;
use super::ui::Ui;
use crate::engine::{AskRequest, Engine, EngineError, IndexRequest};
use crate::kb::index::Index;
use crate::kb::search::Scope;
use crate::research::node::SourceHint;
use crate::research::question::{Mode, Question, required};

/// A question and what may be searched for its answer.
#[derive(Args, Debug)]
pub(super) struct QuestionArgs {
    /// The question
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,

    /// Bring the index up to date with this folder first, and answer from it alone
    #[arg(long, value_name = "PATH", conflicts_with = "collections")]
    kb: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Make sure the answer covers this; may be given up to 20 times
    #[arg(long, value_name = "TEXT")]
    cover: Vec<String>,

    /// Look for everything there: `internal`, `web` or `mixed` (default: as planned)
    #[arg(long, value_name = "WHERE", value_parser = source_hint)]
    source: Option<SourceHint>,

    /// Do not read the pages Deep Research cites: what it says of them stays unchecked
    #[arg(long)]
    no_verify_web: bool,

    /// Let texts made of the knowledge base leave this machine, in web queries and Deep Research prompts
    #[arg(long)]
    allow_egress: bool,

    /// How much to do: `quick`, `iterative`, `deep` or `auto` (by the question)
    #[arg(long, value_name = "MODE", default_value = "auto", hide_default_value = true)]
    mode: Mode,
}

impl QuestionArgs {
    /// Returns the question.
    pub(super) fn question(&self) -> Result<Question, CliError> {
        let parsed = self.question.join(" ").parse();
        parsed.map_err(|error| CliError::Usage { message: format!("{error}"), hint: None })
    }

    /// Returns what the answer must cover.
    fn required(&self) -> Result<Vec<String>, CliError> {
        required(&self.cover).map_err(|error| CliError::Usage { message: format!("`--cover`: {error}"), hint: None })
    }

    /// Returns what is asked, once the index is up to date; nothing where the user stopped that.
    pub(super) async fn request(&self, ui: &mut Ui, engine: &Engine) -> Result<Option<AskRequest>, CliError> {
        let question = self.question()?;
        // What cannot be used is said before anything is indexed.
        self.filter.options()?;
        let required = self.required()?;
        let mut scope = self.filter.scope();
        if let Some(folder) = &self.kb {
            match update(ui, engine, folder).await? {
                Some(collection) => scope = Scope { collections: vec![collection], ..scope },
                None => return Ok(None),
            }
        }
        let (source, allow_egress, verify_web) = (self.source, self.allow_egress, !self.no_verify_web);
        Ok(Some(AskRequest {
            required,
            source,
            allow_egress,
            verify_web,
            ..AskRequest::new(question, scope, self.mode)
        }))
    }
}

fn source_hint(text: &str) -> Result<SourceHint, String> {
    match text {
        "internal" => Ok(SourceHint::Internal),
        "web" => Ok(SourceHint::Web),
        "mixed" => Ok(SourceHint::Mixed),
        _ => Err("expected `internal`, `web` or `mixed`".to_owned()),
    }
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
