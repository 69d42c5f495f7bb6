//! `dr verify`: checks the citations of a report again.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::ui::{BAD, NOTE, PLACE, Ui, styled};
use crate::base::line::{counted, cut, one_line, shortened};
use crate::engine::{CitationState, Engine, VerifiedCitation, VerifiedReport, VerifyRequest};
use crate::render::json::versioned;
use crate::render::saved::CitedPlace;

/// Maximum number of characters printed of a quote.
const MAX_QUOTE_CHARS: usize = 80;

/// Check whether the citations of a report still hold
///
/// Each quote is looked up in its file as it is now. Prints one line per citation that no longer holds: a quote that
/// moved to other lines, changed, or is gone with its file. Works without an index. Exits with 4 if a citation does not
/// hold.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr verify notes/batteries.md              a note written with --format note
  dr verify --update notes/*.md             write the new places of moved quotes
  dr verify --online report.json            also fetch the cited web pages
  dr verify 4f1c09a2                        a stored run")]
pub(super) struct VerifyArgs {
    /// Reports as JSON, notes, or ids of runs
    #[arg(value_name = "REPORT", required = true)]
    reports: Vec<String>,

    /// Read all cited files from this folder, whatever their collection
    #[arg(long = "kb", value_name = "PATH")]
    folder: Option<PathBuf>,

    /// Fetch the cited web pages too
    #[arg(long)]
    online: bool,

    /// Write the places of moved quotes into the reports, and nothing else
    #[arg(long)]
    update: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn verify(ui: &mut Ui, engine: &Engine, args: VerifyArgs) -> Result<Exit, CliError> {
    let mut verified = Vec::new();
    for report in args.reports {
        let request = VerifyRequest { report, folder: args.folder.clone(), online: args.online, update: args.update };
        let report = engine.verify(&request).await?;
        tell_of_index(ui, &report);
        if !args.json {
            ui.print(&text(&report, args.online))?;
        }
        verified.push(report);
    }
    if args.json {
        ui.print(&versioned(&json!({ "reports": verified }))?)?;
    }
    // Not 1, which is for a report that cannot be read.
    Ok(if verified.iter().all(|report| report.holds) { Exit::Done } else { Exit::Partial })
}

fn tell_of_index(ui: &mut Ui, report: &VerifiedReport) {
    if let Some(problem) = &report.index_problem {
        ui.tell(&format!("note: the files were checked without the index: {}", one_line(problem)));
    }
    let older = report.citations.iter().filter(|citation| citation.index_is_older == Some(true)).count();
    if older > 0 {
        ui.tell(&format!("note: the index is older than the files of {}; run `dr index`", counted(older, "citation")));
    }
}

/// Returns the citations that do not hold, one line each, the pages that are on no record, and a summary.
fn text(report: &VerifiedReport, online: bool) -> String {
    let lines = report.citations.iter().filter_map(|citation| line(citation, online));
    let mut text: String = lines.map(|line| line + "\n").collect();
    if !report.unrecorded.is_empty() {
        text.push_str("pages looked up, but not recorded, since the run of this report is not stored here:\n");
        for address in &report.unrecorded {
            text.push_str(&format!("  {}\n", styled(PLACE, &one_line(address))));
        }
    }
    let hint = if report.unchecked_pages() > 0 && !online { " (`--online` checks them)" } else { "" };
    text.push_str(&format!("{}: {}{hint}\n", one_line(&report.report), report.summary()));
    text
}

/// Returns the line for a citation that does not hold, or that could not be checked although it should have been.
fn line(citation: &VerifiedCitation, online: bool) -> Option<String> {
    let VerifiedCitation { quote, source, state, .. } = citation;
    let quote = || cut(quote, MAX_QUOTE_CHARS);
    let said = match state {
        CitationState::Unchanged => return None,
        CitationState::NotChecked { .. } if !online => return None,
        CitationState::NotChecked { why } => styled(NOTE, &format!("not checked: {}", shortened(why))),
        CitationState::Moved { now } if now == source => styled(NOTE, "moved here, updated"),
        CitationState::Moved { now } => styled(NOTE, &moved(source, now)),
        CitationState::Changed => format!("{}: {}", styled(BAD, "changed"), quote()),
        CitationState::Gone => format!("{}: {}", styled(BAD, "gone"), quote()),
        CitationState::Unreadable { why } => format!("{}: {}", styled(BAD, "unreadable"), shortened(why)),
    };
    Some(format!("{}: {said}", styled(PLACE, &source.for_people())))
}

/// Returns the current place of a quote. The collection is named only if it differs.
fn moved(source: &CitedPlace, now: &CitedPlace) -> String {
    let moved = format!("moved to {}", now.for_people());
    match (source, now) {
        (CitedPlace::File { collection: before, .. }, CitedPlace::File { collection, .. }) if before != collection => {
            format!("{moved} of collection `{}`", one_line(collection))
        }
        _ => moved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ContentHash;

    #[test]
    fn other_collection_of_a_moved_quote_is_named() {
        let in_collection = |collection: &str| CitedPlace::File {
            collection: collection.into(),
            path: "a.md".into(),
            line_start: 1,
            line_end: 2,
            content_hash: ContentHash::of(b"x"),
        };
        let (kb, notes) = (in_collection("kb"), in_collection("notes"));
        assert_eq!(moved(&kb, &notes), "moved to a.md:1-2 of collection `notes`");
        assert_eq!(moved(&kb, &kb), "moved to a.md:1-2");
    }
}
