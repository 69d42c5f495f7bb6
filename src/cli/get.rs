//! `dr get`: prints passages.

use clap::Args;
use serde::Serialize;

use super::OutputArgs;
use super::error::CliError;
use super::exit::Exit;
use super::expanded;
use super::ui::{PLACE, Ui, styled};
use crate::base::line::{one_line, printable};
use crate::engine::{Engine, Excerpt, Extent, Neighbourhood, Selector};
use crate::render::json::versioned;

/// Read chunks, their sections, their documents, or lines of files
///
/// Several passages are printed one after another, each below a line with its place. The text comes from the file if it
/// is unchanged since it was indexed, otherwise from the index, with a note.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr get f2cb8db59abecbd4 --section      everything under the heading of a chunk
  dr get 'papers/locks.pdf, page 7'      a page of a PDF
  dr get concepts/journal.md:36-41
  dr get f2cb8db59abecbd4 --expand       the section, the outline, and linked notes
  dr get 'decisions/*.md' index.md       several files, by path or wildcard")]
pub(super) struct GetArgs {
    /// Id of a chunk or document, a path, `path:from-to`, or a path with wildcards
    #[arg(value_name = "ID", required = true)]
    selectors: Vec<Selector>,

    /// Read everything under the chunk's heading
    #[arg(long, conflicts_with = "document")]
    section: bool,

    /// Read the chunk's whole document
    #[arg(long)]
    document: bool,

    /// Also print the document's outline and linked notes, and a chunk's section
    #[arg(long)]
    expand: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// A passage as JSON.
#[derive(Serialize)]
struct PassageEntry {
    #[serde(flatten)]
    passage: Excerpt,
    /// Its context, with `--expand`.
    #[serde(flatten)]
    around: Option<Neighbourhood>,
}

pub(super) async fn get(ui: &mut Ui, engine: &Engine, args: GetArgs) -> Result<Exit, CliError> {
    let extent = match (args.section, args.document) {
        (true, _) => Extent::Section,
        (_, true) => Extent::Document,
        _ if args.expand => Extent::Section,
        _ => Extent::Passage,
    };
    let (mut selectors, mut is_list) = (Vec::new(), args.selectors.len() > 1);
    for selector in args.selectors {
        match engine.matching(&selector).await? {
            Some(found) => {
                is_list = true;
                selectors.extend(found);
            }
            None => selectors.push(selector),
        }
    }
    let (mut passages, mut neighbours) = (Vec::new(), None);
    for selector in &selectors {
        let passage = engine.get(selector, extent).await?;
        if args.expand && neighbours.is_none() {
            // Once for all passages: it reads the links of the whole index.
            neighbours = Some(engine.neighbours().await?);
        }
        let around = neighbours.as_ref().map(|neighbours| neighbours.of(&passage.document_id));
        if let Some(note) = passage.note() {
            ui.warn(&format!("note: `{}`: {note}", passage.path));
        }
        let entry = PassageEntry { passage, around };
        match (args.output.is_json(), is_list) {
            (true, true) => passages.push(entry),
            (true, false) => ui.print(&versioned(&entry)?)?,
            (false, _) => print(ui, &entry, is_list)?,
        }
    }
    if args.output.is_json() && is_list {
        ui.print(&versioned(&Passages { passages })?)?;
    }
    Ok(Exit::Done)
}

/// Several passages as JSON.
#[derive(Serialize)]
struct Passages {
    passages: Vec<PassageEntry>,
}

/// Prints the text of a passage. Its place is printed above it if there are several, else on stderr.
fn print(ui: &mut Ui, PassageEntry { passage, around }: &PassageEntry, is_listed: bool) -> Result<(), CliError> {
    let place = one_line(&format!("{}:{}-{}", passage.path, passage.line_start, passage.line_end));
    if is_listed {
        ui.print(&styled(PLACE, &format!("==> {place} <==")))?;
    } else {
        ui.tell_styled(PLACE, &place);
    }
    if Ui::is_for_people() {
        ui.print(&printable(&passage.text))?;
    } else {
        // To a pipe or a file, byte for byte; characters are escaped only for terminals.
        ui.pass(passage.text.as_bytes())?;
        if is_listed && !passage.text.ends_with('\n') {
            ui.pass(b"\n")?;
        }
    }
    if let Some(around) = around {
        let end = if passage.text.ends_with('\n') || is_listed { "" } else { "\n" };
        ui.print(&format!("{end}\n{}", expanded::around(around, "")))?;
    }
    Ok(())
}
