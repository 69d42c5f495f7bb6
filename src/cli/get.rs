//! `dr get`: prints a passage.

use clap::Args;
use serde::Serialize;

use super::OutputArgs;
use super::error::CliError;
use super::exit::Exit;
use super::expanded;
use super::ui::{PLACE, Ui};
use crate::base::line::{one_line, printable};
use crate::engine::{Engine, Excerpt, Extent, Neighbourhood, Selector};
use crate::render::json::versioned;

/// Read a chunk, its section, its document, or lines of a file
///
/// The text comes from the file if it is unchanged since it was indexed, otherwise from the index, with a note.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr get f2cb8db59abecbd4 --section      everything under the heading of a chunk
  dr get concepts/journal.md:36-41
  dr get f2cb8db59abecbd4 --expand       the section, the outline, and linked notes")]
pub(super) struct GetArgs {
    /// Id of a chunk or document, a path, or `path:from-to`
    #[arg(value_name = "ID")]
    selector: Selector,

    /// Read everything under the chunk's heading
    #[arg(long, conflicts_with = "document")]
    section: bool,

    /// Read the chunk's whole document
    #[arg(long)]
    document: bool,

    /// Print the outline of the document and linked notes too; of a chunk, the section it stands in
    #[arg(long)]
    expand: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// A passage and what stands around it, as JSON.
#[derive(Serialize)]
struct Expanded<'a> {
    #[serde(flatten)]
    passage: &'a Excerpt,
    #[serde(flatten)]
    around: &'a Neighbourhood,
}

/// Runs the command.
pub(super) async fn get(ui: &mut Ui, engine: &Engine, args: GetArgs) -> Result<Exit, CliError> {
    let extent = match (args.section, args.document) {
        (true, _) => Extent::Section,
        (_, true) => Extent::Document,
        _ if args.expand => Extent::Section,
        _ => Extent::Chunk,
    };
    let passage = engine.get(&args.selector, extent).await?;
    let around = if args.expand { Some(engine.neighbourhood(&passage.document_id).await?) } else { None };
    if passage.stale {
        ui.warn(&format!("note: `{}` has changed since it was indexed; this is the indexed text", passage.path));
    }
    if args.output.is_json() {
        let json = around.as_ref().map(|around| versioned(&Expanded { passage: &passage, around }));
        ui.print(&json.unwrap_or_else(|| versioned(&passage))?)?;
    } else {
        let place = format!("{}:{}-{}", passage.path, passage.line_start, passage.line_end);
        ui.tell_styled(PLACE, &one_line(&place));
        if Ui::is_for_people() {
            ui.print(&printable(&passage.text))?;
        } else {
            ui.pass(passage.text.as_bytes())?;
        }
        if let Some(around) = &around {
            let end = if passage.text.ends_with('\n') { "" } else { "\n" };
            ui.print(&format!("{end}\n{}", expanded::around(around, "")))?;
        }
    }
    Ok(Exit::Done)
}
