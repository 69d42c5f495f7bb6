//! `dr model`: lists the embedders and rerankers, and selects one.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::index::about;
use super::progress::IngestProgress;
use super::signal::interruptible;
use super::ui::{GOOD, NOTE, QUIET, Ui, styled};
use crate::base::line::{counted, one_line};
use crate::engine::{
    Engine, Fetching, IndexEstimate, IngestEvent, ModelEntry, ModelList, ModelUse, Published, Reembedding,
};

/// List the embedders and rerankers, or use one
///
/// The built-in embedder needs no download. The others run on ONNX Runtime and are downloaded once, into your data
/// folder. `kb/how-to/use-another-embedder.md` in the manual says which to choose.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr model list
  dr model use BGESmallENV15")]
pub(super) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    List(ListArgs),
    Use(UseArgs),
}

/// List embedders and rerankers; marks those in use and those on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr model list
  dr model list --json | jq -r '.embedders[] | select(.is_here).name'")]
struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Use a model: download it if it is missing, try it, write the setting
///
/// The setting is written to `dr.toml` of this project, or to your own settings if a project may not set it. Nothing is
/// embedded yet: what the next `dr index` will do is printed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr model use BGESmallENV15
  dr model use BGESmallENV15 --from ~/downloads/bge-small-en-v1.5      without a network
  dr model use builtin                   back to the one in the binary
  dr model use BGERerankerBase           rerank the first hits of every search")]
struct UseArgs {
    /// A name of the list, a repository, `builtin`, `endpoint:MODEL`, or `fastembed:FOLDER`
    #[arg(value_name = "NAME", add = completions::models())]
    name: String,

    /// Take the files of the model from here: a folder, or the `.onnx` file
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
}

pub(super) async fn model(ui: &mut Ui, mut engine: Engine, args: ModelArgs) -> Result<Exit, CliError> {
    match args.command {
        ModelCommand::List(args) => {
            let list = engine.model_list().await;
            args.output.print(ui, &list, table)?;
        }
        ModelCommand::Use(args) => {
            let progress = IngestProgress::new(ui, engine.index_address());
            let cancel = interruptible();
            let listener = |download| progress.take(&IngestEvent::Downloading(download));
            let fetching = Fetching { listener: &listener, cancel: &cancel };
            let used = engine.use_model(&args.name, args.from.as_deref(), &fetching).await;
            progress.finish();
            ui.print(&said(&used?))?;
        }
    }
    Ok(Exit::Done)
}

/// Returns the models as two tables.
fn table(list: &ModelList) -> String {
    let mut text = String::new();
    let mut sources: Vec<Published> = Vec::new();
    for (what, entries) in [("embedder", &list.embedders), ("reranker", &list.rerankers)] {
        let width = entries.iter().map(|entry| entry.name.chars().count()).max().unwrap_or(0).max(what.len());
        let head = format!(
            "  {what:<width$}  {:>5} {:>8}  {:<16} {:<12} {:<14} place",
            "dim", "size", "languages", "licence", "nDCG@10"
        );
        let _ = writeln!(text, "{}", styled(QUIET, &head));
        for entry in entries {
            // Each source is named once, since many figures share one.
            sources.extend(entry.ndcg.filter(|new| !sources.iter().any(|known| known.is_like(new))));
            let _ = writeln!(text, "{}", line(entry, width));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", styled(QUIET, "* used here   + on this machine   ~ estimated download size"));
    for Published { set, source, .. } in sources {
        let _ = writeln!(text, "{}", styled(QUIET, &format!("{set}: {source}")));
    }
    text
}

fn line(entry: &ModelEntry, width: usize) -> String {
    let mark = match (entry.is_used, entry.is_here) {
        (true, _) => "*",
        (false, true) => "+",
        (false, false) => " ",
    };
    let dimensions = entry.dimensions.map_or_else(String::new, |dimensions| dimensions.to_string());
    let size = match (entry.bytes, entry.megabytes) {
        (Some(bytes), _) => format!("{} MB", bytes.div_ceil(1_000_000)),
        (None, Some(megabytes)) if entry.is_here => format!("{megabytes} MB"),
        (None, Some(megabytes)) => format!("~{megabytes} MB"),
        (None, None) => String::new(),
    };
    let ndcg = entry.ndcg.map_or_else(String::new, |Published { value, set, .. }| format!("{value:.3} {set}"));
    let name = one_line(&entry.name);
    let place = if entry.is_here || !entry.is_used {
        one_line(&entry.place)
    } else {
        styled(NOTE, &format!("{}, not on this machine", one_line(&entry.place)))
    };
    let (languages, licence) = (entry.languages.unwrap_or(""), entry.licence.unwrap_or(""));
    format!("{mark} {name:<width$}  {dimensions:>5} {size:>8}  {languages:<16} {licence:<12} {ndcg:<14} {place}")
}

/// Returns a line about the change, and the next step.
fn said(used: &ModelUse) -> String {
    let ModelUse { setting, value, written, folder, reembedding } = used;
    let mut text = String::new();
    let mut say = |line: &str| {
        let _ = writeln!(text, "{line}");
    };
    if let Some(folder) = folder {
        say(&format!("`{}` works; models are in {}", one_line(value), folder.display()));
    }
    let scope = if written.is_users { ", for all your folders" } else { "" };
    say(&format!("{setting} = \"{}\" is in {}{scope}", one_line(value), written.file.display()));
    if let Some(origin) = &written.overridden {
        say(&styled(NOTE, &format!("{} sets another value, which takes precedence", one_line(origin))));
    }
    match reembedding {
        Reembedding::Unconcerned => {}
        Reembedding::NoIndex => say("there is no index yet: `dr index <FOLDER>` makes one with it"),
        Reembedding::None => say("the index already has its vectors; there is nothing to do"),
        Reembedding::Unknown { from } => {
            say(&format!("the index has vectors of `{}`: run `dr index --rebuild`", one_line(from)));
        }
        Reembedding::Needed { from, estimate } => say(&needed(from, estimate)),
    }
    text
}

fn needed(from: &str, estimate: &IndexEstimate) -> String {
    let IndexEstimate { to_embed, seconds, .. } = estimate;
    let chunks = counted(*to_embed, "chunk");
    let next = format!(
        "the index has vectors of `{}`: `dr index` embeds {chunks} again, in about {}",
        one_line(from),
        about(*seconds)
    );
    format!(
        "{}\nsearch continues meanwhile; if it is interrupted, the next `dr index` continues where it stopped",
        styled(GOOD, &next)
    )
}
