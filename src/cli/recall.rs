//! `dr recall`: searches what earlier runs found.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::ui::{NOTE, PLACE, QUIET, Ui, styled};
use crate::base::line::{one_line, printable};
use crate::engine::{Engine, EntrySource, FileState, FoundBefore, bounds};
use crate::render::json::versioned;

/// Find quotes that earlier runs found
///
/// The quotes of all stored runs are searched by similarity, without a model. Each is printed with its place, and with
/// the run that found it. A quote is marked if its file has changed since.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr recall \"lithium cells\" -n 5")]
pub(super) struct RecallArgs {
    /// Words to search for
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,

    /// Most quotes to return (default: 10)
    #[arg(short = 'n', long = "limit", value_name = "N", value_parser = clap::value_parser!(u16).range(bounds("limit")))]
    pub(super) limit: Option<u16>,

    /// Only quotes from the knowledge base, the web or your tool servers
    #[arg(long)]
    source: Option<QuotesFrom>,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Kinds of sources that a quote may be from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum QuotesFrom {
    Kb,
    Web,
    Mcp,
}

impl From<QuotesFrom> for EntrySource {
    fn from(from: QuotesFrom) -> Self {
        match from {
            QuotesFrom::Kb => Self::Kb,
            QuotesFrom::Web => Self::Web,
            QuotesFrom::Mcp => Self::Mcp,
        }
    }
}

pub(super) async fn recall(ui: &mut Ui, engine: &Engine, args: RecallArgs) -> Result<Exit, CliError> {
    let query = args.query.join(" ");
    let found = engine.recall(&query, args.source.map(EntrySource::from)).await?;
    if args.json {
        ui.print(&versioned(&json!({ "query": query, "quotes": found }))?)?;
    } else if found.is_empty() {
        ui.tell("nothing found in earlier runs");
    } else {
        ui.print(&found.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Exit::Done)
}

/// Returns a quote as text.
fn text(found: &FoundBefore) -> String {
    let FoundBefore { quote, source, file, run_id, question, asked_on, .. } = found;
    let mut text = format!("{}\n", styled(PLACE, &one_line(&source.for_people())));
    for line in printable(quote).lines() {
        let _ = writeln!(text, "  {line}");
    }
    let day = asked_on.as_deref().unwrap_or("a day that is not known");
    let origin = format!("found by run {run_id} on {day}: {}", one_line(question));
    let _ = writeln!(text, "  {}", styled(QUIET, &origin));
    let note = match file {
        Some(FileState::Changed) => "the file has changed since",
        Some(FileState::Gone) => "the file is gone",
        Some(FileState::Unchanged) | None => return text,
    };
    let _ = writeln!(text, "  {}", styled(NOTE, note));
    text
}
