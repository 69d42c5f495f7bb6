//! `dr links`: prints the targets of links, and the broken ones.

use std::fmt::Write;

use clap::Args;

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::ui::{BAD, PLACE, QUIET, Ui, styled};
use crate::base::line::{counted, one_line};
use crate::engine::{Backlink, BrokenLink, DocumentLinks, Engine, LinkCheck, LinkEntry, LinkState, Selector};
use crate::render::json::versioned;

/// Show what a note links to and what links to it, or every broken link
///
/// Covers links to notes: relative paths and references, `[[wikilinks]]` by file name, path, title or alias, and
/// `![[embeds]]`, as of the last `dr index`. A link is broken if it leads to no note, file or folder of its collection.
/// Links that lead out of the collection are not followed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr links concepts/journal.md           what it links to, and what links to it
  dr links                               the broken links of every collection
  dr links --collection docs --check     exit code 1 if a link is broken, for CI")]
pub(super) struct LinksArgs {
    /// Path or id of a note (default: print the broken links)
    #[arg(value_name = "PATH")]
    selector: Option<Selector>,

    /// Look for broken links in this collection only; may be repeated
    #[arg(long = "collection", value_name = "NAME", conflicts_with = "selector", add = completions::collections())]
    collections: Vec<String>,

    /// Exit with code 1 if a link is broken
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn links(ui: &mut Ui, engine: &Engine, args: LinksArgs) -> Result<Exit, CliError> {
    let is_broken = match &args.selector {
        Some(selector) => {
            let found = engine.links(selector).await?;
            args.output.print(ui, &found, of_document)?;
            found.links.iter().any(|link| link.state == LinkState::Missing)
        }
        None => {
            let found = engine.check_links(&args.collections).await?;
            if args.output.is_json() {
                ui.print(&versioned(&found)?)?;
            } else {
                if !found.broken.is_empty() {
                    ui.print(&broken(&found))?;
                }
                let (links, notes) = (counted(found.links, "link"), counted(found.documents, "note"));
                // On stderr, so that stdout has one line for each broken link and nothing else.
                ui.tell(&format!("{} of {links} in {notes} broken", found.broken.len()));
            }
            !found.broken.is_empty()
        }
    };
    Ok(if args.check && is_broken { Exit::Failed } else { Exit::Done })
}

/// Returns the links from and to a note.
fn of_document(found: &DocumentLinks) -> String {
    let DocumentLinks { path, title, links, backlinks, .. } = found;
    let mut text = format!("{}  {}\n", styled(PLACE, &one_line(path)), styled(QUIET, &one_line(title)));
    let widest = |lines: &mut dyn Iterator<Item = usize>| lines.max().unwrap_or_default();
    if !links.is_empty() {
        text.push_str("\nLinks to:\n");
        let width = widest(&mut links.iter().map(|link| link.line.to_string().len()));
        let written = widest(&mut links.iter().map(|link| one_line(&link.written).chars().count())).min(MAX_WRITTEN);
        for link in links {
            let _ = writeln!(text, "  {:>width$}  {:written$}  → {}", link.line, one_line(&link.written), leads(link));
        }
    }
    if !backlinks.is_empty() {
        text.push_str("\nLinked from:\n");
        let place = |link: &Backlink| one_line(&format!("{}:{}", link.path, link.line));
        let width = widest(&mut backlinks.iter().map(|link| place(link).chars().count())).min(MAX_WRITTEN);
        for link in backlinks {
            let place = styled(PLACE, &format!("{:width$}", place(link)));
            let _ = writeln!(text, "  {place}  {}", styled(QUIET, &one_line(&link.title)));
        }
    }
    if links.is_empty() && backlinks.is_empty() {
        text.push_str("\nno links to notes, and no links from any\n");
    }
    text
}

/// Maximum width, in characters, of the first column for the second to be aligned.
const MAX_WRITTEN: usize = 48;

fn leads(link: &LinkEntry) -> String {
    match (&link.note, link.state) {
        (Some(note), _) => {
            let line = link.heading_line.map(|line| format!(":{line}")).unwrap_or_default();
            let place = one_line(&format!("{}{line}", note.path));
            format!("{}  {}", styled(PLACE, &place), styled(QUIET, &one_line(&note.title)))
        }
        (None, LinkState::NotIndexed) => styled(QUIET, "not in the index"),
        (None, LinkState::Outside) => styled(QUIET, "outside of the collection"),
        (None, LinkState::Missing | LinkState::Found) => styled(BAD, "broken: no such note"),
    }
}

/// Returns the broken links, one per line. Collections are named if there are several.
fn broken(found: &LinkCheck) -> String {
    let line = |link: &BrokenLink| {
        let collection = if found.collections.len() > 1 { format!("{}/", link.collection) } else { String::new() };
        let place = one_line(&format!("{collection}{}:{}", link.path, link.line));
        format!("{}  {}", styled(PLACE, &place), one_line(&link.written))
    };
    found.broken.iter().map(line).collect::<Vec<_>>().join("\n")
}
