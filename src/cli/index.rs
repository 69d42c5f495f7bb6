//! `dr index`: updates the index from folders.

use std::fmt::{Display, Write};
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
use crate::base::money::{dollars_text, nanos};
use crate::engine::{
    Engine, Include, IndexEstimate, IndexRequest, IngestSummary, Pulled, ServerEstimate, SkippedFile, dollars,
};

/// Index folders of Markdown, or update their index
///
/// Reads only changed files and embeds only changed passages. Text is searchable as soon as it is read; vectors follow.
/// The next run completes a run that was interrupted or killed. Without a folder, all folders of the index are updated.
/// PDF and HTML files are read if `--include` says so.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr index docs                        index a folder, or update its index
  dr index                             update all folders of the index
  dr index --dry-run docs              estimate its time and cost
  dr index --include pdf ~/papers      also read PDF files, now and in later runs
  dr index --collection wiki ~/wiki    name the collection")]
pub(super) struct IndexArgs {
    /// Folders to index
    #[arg(value_name = "PATH")]
    folders: Vec<PathBuf>,

    /// Name of the folder's collection; repeat once per folder (default: the folder's name)
    #[arg(long = "collection", value_name = "NAME", add = completions::collections())]
    collections: Vec<String>,

    /// Additional formats to index: `pdf`, `html`, or `none` (default: same as the last run)
    #[arg(long, value_name = "FORMATS")]
    include: Option<Include>,

    /// Run `git pull --ff-only` first in the repositories of the folders
    // A dry run changes nothing, and a pull changes the folders.
    #[arg(long, conflicts_with = "dry_run")]
    pull: bool,

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

    /// Print what would be read and embedded, and estimate time and cost; write and send nothing
    #[arg(long)]
    dry_run: bool,

    /// Limit in US dollars on embedding with a server that costs money; `inf` for no limit (default: 10)
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(super) max_cost: Option<f64>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn index(ui: &mut Ui, engine: &Engine, args: IndexArgs) -> Result<Exit, CliError> {
    check_names(&args.collections, &args.folders)?;
    let request = IndexRequest {
        folders: args.folders,
        names: args.collections,
        include: args.include,
        embed: !args.no_embed,
        prune: args.prune,
        verify: args.verify,
        rebuild: args.rebuild,
        ..IndexRequest::default()
    };
    if args.dry_run {
        let estimate = engine.index_estimate(&request).await?;
        args.output.print(ui, &estimate, estimate_text)?;
        return Ok(Exit::Done);
    }
    if args.pull {
        for Pulled { repository, said } in engine.pull(&request, &interruptible()).await? {
            ui.tell(&format!("{}: {said}", one_line(&repository.display().to_string())));
        }
    }
    let summary = run(ui, engine, &request).await?;
    // After an interruption, too: the files that were read by then are in the index.
    args.output.print(ui, &summary, text)?;
    Ok(if summary.interrupted { Exit::Interrupted } else { Exit::Done })
}

/// Checks that there are no more names than folders. By hand, since clap does not compare two lists.
pub(super) fn check_names(names: &[String], folders: &[PathBuf]) -> Result<(), CliError> {
    if names.len() <= folders.len() {
        return Ok(());
    }
    Err(CliError::Usage {
        message: format!("{} for {}", counted(names.len(), "name"), counted(folders.len(), "folder")),
        hint: Some("repeat `--collection` once per folder, in the same order".into()),
    })
}

/// Prints the location of the index, then indexes with progress on stderr.
pub(super) async fn run(ui: &mut Ui, engine: &Engine, request: &IndexRequest) -> Result<IngestSummary, CliError> {
    let progress = IngestProgress::new(ui, engine.index_address());
    let cancel = interruptible();
    let summary = engine.index(request, &|event| progress.take(&event), &cancel).await;
    progress.finish();
    Ok(summary?)
}

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
    if summary.shortened > 0 {
        let _ = writeln!(
            text,
            "{:<9} {:>7}   longer than the model reads, embedded without their end",
            "shortened", summary.shortened
        );
    }
    if let Some(cost) = summary.cost_usd.filter(|cost| *cost > 0.0) {
        let _ = writeln!(text, "{:<9} {:>7}", "cost", dollars_text(nanos(cost)));
    }
    if summary.vectors_missing > 0 {
        let waiting = format!("without a vector: {}; `dr index` adds them", counted(summary.vectors_missing, "chunk"));
        let _ = writeln!(text, "{}", styled(NOTE, &waiting));
    }
    let (style, word) = if summary.interrupted { (BAD, "interrupted after") } else { (GOOD, "done in") };
    let _ = writeln!(text, "{}", styled(style, &format!("{word} {:.1} s", summary.seconds)));
    text
}

fn estimate_text(estimate: &IndexEstimate) -> String {
    let IndexEstimate { files, unchanged, skipped, removed, chunks, to_embed, kept, tokens, seconds, server } =
        estimate;
    let mut text = String::new();
    let mut line = |what: &str, number: &dyn Display, more: String| {
        let _ = writeln!(text, "{}", format!("{what:<9} {number:>10}   {more}").trim_end());
    };
    let removed = if *removed > 0 { format!(", {removed} to remove") } else { String::new() };
    line("files", files, format!("to read; {unchanged} unchanged, {skipped} skipped{removed}"));
    line("chunks", chunks, format!("to write; {kept} of them keep their vector"));
    line("embed", to_embed, "chunks".to_owned());
    line("tokens", tokens, "to embed, at most".to_owned());
    match server {
        None => line("cost", &"nothing", "this machine embeds".to_owned()),
        Some(ServerEstimate { address, cost_usd, max_cost_usd, .. }) => {
            // No limit can be kept without a price, so nothing would be sent.
            let limit = match (cost_usd, max_cost_usd) {
                (_, None) => "no limit is set",
                (None, Some(_)) => "the price is not known and the limit is {}, so nothing would be sent",
                (Some(cost), Some(limit)) if cost > limit => "more than the limit of {}, so nothing would be sent",
                (Some(_), Some(_)) => "the limit is {}",
            };
            let limit = limit.replace("{}", &dollars_text(nanos(max_cost_usd.unwrap_or_default())));
            let cost = cost_usd.map_or_else(|| "unknown".to_owned(), |cost| dollars_text(nanos(cost)));
            line("cost", &cost, format!("at most, at {}; {limit}", one_line(address)));
        }
    }
    let basis = match server {
        None => "on this machine".to_owned(),
        Some(ServerEstimate { requests, seconds_per_request, .. }) => {
            format!("{}, if each takes {seconds_per_request} s", counted(*requests, "request"))
        }
    };
    line("time", &about(*seconds), basis);
    let _ = writeln!(text, "{}", styled(GOOD, "nothing was written or sent"));
    text
}

/// Returns an approximate time in words, with as few digits as an estimate deserves.
pub(super) fn about(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5_400.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

fn list(text: &mut String, files: &[SkippedFile]) {
    for SkippedFile { collection, path, reason } in files {
        // A file name may contain line breaks and escape sequences of terminals.
        let _ = writeln!(text, "  {}: {}", one_line(&format!("{collection}/{path}")), one_line(reason));
    }
}
