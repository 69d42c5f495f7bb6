//! `dr eval`: measures searches against judgments.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;
use crate::base::file::read_text;
use crate::engine::{Engine, Figures, SearchMode};
use clap::Args;

/// Largest file of questions or judgments, in bytes.
const MAX_FILE_BYTES: u64 = 100_000_000;

/// Measure search quality against judgments
///
/// Documents are ranked by their best passage. Every judged file must be in the index.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr eval --queries queries.jsonl --qrels qrels.tsv --mode lexical")]
pub(super) struct EvalArgs {
    /// Questions, one `{"id": …, "text": …}` per line
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,

    /// Judgments: question id, path and grade, separated by tabs
    #[arg(long, value_name = "FILE")]
    qrels: PathBuf,

    /// Search by `hybrid`, `lexical` or `vector` (default: hybrid)
    #[arg(long, value_name = "MODE", add = completions::words(SearchMode::NAMES))]
    pub(super) mode: Option<SearchMode>,

    /// Measure only this collection
    #[arg(long, value_name = "NAME", add = completions::collections())]
    collection: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn eval(ui: &mut Ui, engine: &Engine, args: EvalArgs) -> Result<Exit, CliError> {
    let (queries, judgments) = (read(&args.queries)?, read(&args.qrels)?);
    let measured = engine.eval(&queries, &judgments, args.collection.as_deref()).await?;
    args.output.print(ui, &measured, |measured| text(&measured.figures))?;
    Ok(Exit::Done)
}

fn read(file: &Path) -> Result<String, CliError> {
    read_text(file, MAX_FILE_BYTES).map_err(CliError::file("read", file))
}

fn text(figures: &Figures) -> String {
    let rows = [
        ("nDCG@10", figures.ndcg_at_10),
        ("recall@10", figures.recall_at_10),
        ("recall@100", figures.recall_at_100),
        ("MRR", figures.mrr),
        ("hit@1", figures.hit_at_1),
        ("hit@3", figures.hit_at_3),
        ("hit@10", figures.hit_at_10),
    ];
    let mut text = format!("{:<12}{:>8}\n", "queries", figures.queries);
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<12}{value:>8.4}");
    }
    let _ = writeln!(text, "{:<12}{:>8.1} ms", "latency p50", figures.latency_p50_ms);
    let _ = writeln!(text, "{:<12}{:>8.1} ms", "latency p95", figures.latency_p95_ms);
    text
}
