//! `dr index`: bring the index up to date with folders.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;
use super::error::CliError;
use super::exit::Exit;
use super::progress::IngestProgress;
use super::signal::interruptible;
use super::ui::{BAD, GOOD, NOTE, Ui, styled};
use crate::base::line::{counted, one_line};
use crate::engine::{Engine, IndexRequest, IngestSummary, SkippedFile};
use crate::render::json::versioned;

/// Bring the index up to date with folders of Markdown
///
/// Only files that changed are read, only passages that changed are embedded. Text can be searched as soon as it is
/// read; vectors follow. A run that is interrupted or killed is finished by the next one. Without a folder, all
/// folders the index knows are brought up to date.
#[derive(Args, Debug)]
pub(super) struct IndexArgs {
    /// Folders to index
    #[arg(value_name = "PATH")]
    folders: Vec<PathBuf>,

    /// Name the folder's collection, once for each folder (default: the folder's own name)
    #[arg(long = "collection", value_name = "NAME")]
    collections: Vec<String>,

    /// Make no vectors now; text is searchable, and a later run makes them
    #[arg(long)]
    no_embed: bool,

    /// Forget files that are gone even if that is more than half of them
    #[arg(long)]
    prune: bool,

    /// Compare files by content, not by size and time
    #[arg(long)]
    verify: bool,

    /// Make the index again from nothing; the old one is used until the new one is ready
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
            hint: Some("give `--collection` once for each folder, in the same order".into()),
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

/// Indexes with progress on stderr, after saying which index it is.
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
        let waiting = format!("without a vector: {}; `dr index` makes them", counted(summary.vectors_missing, "chunk"));
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
