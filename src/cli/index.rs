//! `dr index`: updates the index from folders.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::progress::IngestProgress;
use super::signal::interruptible;
use super::ui::{BAD, GOOD, NOTE, Ui, styled};
use crate::base::line::{counted, one_line};
use crate::engine::{Engine, IndexRequest, IngestSummary, SkippedFile};
use crate::render::json::versioned;

/// Index folders of Markdown, or update their index
///
/// Reads only changed files and embeds only changed passages. Text is searchable as soon as it is read; vectors follow.
/// The next run completes a run that was interrupted or killed. Without a folder, all folders of the index are updated.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr index docs                        index a folder, or update its index
  dr index                             update all folders of the index
  dr index --collection wiki ~/wiki    name the collection")]
pub(super) struct IndexArgs {
    /// Folders to index
    #[arg(value_name = "PATH")]
    folders: Vec<PathBuf>,

    /// Name of the folder's collection; repeat once per folder (default: the folder's name)
    #[arg(long = "collection", value_name = "NAME", add = completions::collections())]
    collections: Vec<String>,

    /// Skip embedding; the text is searchable, and a later run adds the vectors
    #[arg(long)]
    no_embed: bool,

    /// Remove missing files from the index even if more than half are missing
    #[arg(long)]
    prune: bool,

    /// Compare files by content, not by size and time
    #[arg(long)]
    verify: bool,

    /// Rebuild the index from scratch; the old one stays in use until the new one is ready
    #[arg(long)]
    rebuild: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub(super) async fn index(ui: &mut Ui, engine: &Engine, args: IndexArgs) -> Result<Exit, CliError> {
    if args.collections.len() > args.folders.len() {
        return Err(CliError::Usage {
            message: format!(
                "{} for {}",
                counted(args.collections.len(), "name"),
                counted(args.folders.len(), "folder")
            ),
            hint: Some("repeat `--collection` once per folder, in the same order".into()),
        });
    }
    let request = IndexRequest {
        folders: args.folders,
        names: args.collections,
        embed: !args.no_embed,
        prune: args.prune,
        verify: args.verify,
        rebuild: args.rebuild,
    };
    let summary = run(ui, engine, &request).await?;
    if args.output.is_json() {
        ui.print(&versioned(&summary)?)?;
    } else {
        ui.print(&text(&summary))?;
    }
    Ok(if summary.interrupted { Exit::Interrupted } else { Exit::Done })
}

/// Prints the location of the index, then indexes with progress on stderr.
pub(super) async fn run(ui: &mut Ui, engine: &Engine, request: &IndexRequest) -> Result<IngestSummary, CliError> {
    let progress = IngestProgress::new(ui, engine.index_address());
    let cancel = interruptible();
    let summary = engine.index(request, &|event| progress.take(&event), &cancel).await;
    progress.finish();
    Ok(summary?)
}

/// Returns the summary for people.
fn text(summary: &IngestSummary) -> String {
    let IngestSummary { added, changed, renamed, removed, unchanged, skipped, warnings, .. } = summary;
    let counts =
        [("added", added), ("changed", changed), ("renamed", renamed), ("removed", removed), ("unchanged", unchanged)];
    let mut text = String::new();
    for (what, count) in counts {
        let _ = writeln!(text, "{what:<9} {count:>7}");
    }
    let _ = writeln!(text, "{:<9} {:>7}", "skipped", skipped.len());
    list(&mut text, skipped);
    if !warnings.is_empty() {
        let _ = writeln!(text, "{:<9} {:>7}", "warnings", warnings.len());
        list(&mut text, warnings);
    }
    let _ = writeln!(text, "{:<9} {:>7}", "chunks", summary.chunks);
    let _ = writeln!(text, "{:<9} {:>7}", "embedded", summary.embedded);
    if summary.vectors_missing > 0 {
        let waiting = format!("without a vector: {}; `dr index` adds them", counted(summary.vectors_missing, "chunk"));
        let _ = writeln!(text, "{}", styled(NOTE, &waiting));
    }
    let (style, word) = if summary.interrupted { (BAD, "interrupted after") } else { (GOOD, "done in") };
    let _ = writeln!(text, "{}", styled(style, &format!("{word} {:.1} s", summary.seconds)));
    text
}

fn list(text: &mut String, files: &[SkippedFile]) {
    for SkippedFile { collection, path, reason } in files {
        let _ = writeln!(text, "  {}: {}", one_line(&format!("{collection}/{path}")), one_line(reason));
    }
}
