//! What more than one benchmark does: index, search, print a row.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dr::kb::embed::Embedder;
use dr::kb::index::{Filter, Index, IndexLocation};
use dr::kb::ingest::{IngestOptions, IngestSummary, ingest};
use dr::kb::search::{SearchMode, SearchOptions, Searcher};
use tokio_util::sync::CancellationToken;

pub(crate) type AnyError = Box<dyn std::error::Error>;

/// Number of searches per mode.
const SEARCHES: usize = 50;

/// Depth at which the vector index is compared with the exact scan.
const RECALL_DEPTH: usize = 50;

/// Brings an index up to date.
pub(crate) async fn run(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    options: &IngestOptions,
) -> Result<IngestSummary, AnyError> {
    let cancel = CancellationToken::new();
    Ok(ingest(location, embedder, "builtin", options, &|_| {}, &cancel).await?)
}

/// Prints the latency of each mode and the recall of the vector index, given a sample of the chunks that are searched.
pub(crate) async fn searching(index: Index, embedder: &Arc<dyn Embedder>, texts: &[String]) -> Result<(), AnyError> {
    let searcher = Searcher::new(index, Ok(Arc::clone(embedder)));
    let queries = queries(texts);
    for mode in [SearchMode::Lexical, SearchMode::Vector, SearchMode::Hybrid] {
        let (p50, p95) = latency(&searcher, &queries, mode).await?;
        let name = format!("{mode:?} search p50 / p95").to_lowercase();
        row(&name, format!("{:.1} / {:.1}", millis(p50), millis(p95)), "ms");
    }
    row("vector recall@50", format!("{:.4}", recall(&searcher, embedder, &queries).await?), "");
    Ok(())
}

/// Prints a row of the table.
pub(crate) fn row(name: &str, value: impl Display, unit: &str) {
    println!("{name:<28} {value:>14} {unit}");
}

/// Returns a sample of about `wanted` chunks spread over the whole index.
pub(crate) async fn texts(index: &Index, wanted: usize) -> Result<Vec<String>, AnyError> {
    let documents = index.documents(None).await?;
    let step = (documents.len() / wanted).max(1);
    let mut texts = Vec::new();
    for document in documents.iter().step_by(step) {
        texts.extend(index.document_chunks(&document.id).await?.into_iter().map(|chunk| chunk.text));
        if texts.len() >= wanted {
            break;
        }
    }
    texts.truncate(wanted);
    Ok(texts)
}

/// Returns queries made of six words from the middle of chunks.
fn queries(texts: &[String]) -> Vec<String> {
    let words = |text: &String| {
        let words: Vec<_> = text.split_whitespace().filter(|word| word.chars().all(char::is_alphanumeric)).collect();
        (words.len() >= 6).then(|| words[words.len() / 2 - 3..words.len() / 2 + 3].join(" "))
    };
    texts.iter().filter_map(words).take(SEARCHES).collect()
}

async fn latency(searcher: &Searcher, queries: &[String], mode: SearchMode) -> Result<(Duration, Duration), AnyError> {
    let options = SearchOptions { mode, ..SearchOptions::default() };
    let mut times = Vec::new();
    for query in queries.iter().take(3).chain(queries) {
        let started = Instant::now();
        searcher.search(query, &options).await?;
        times.push(started.elapsed());
    }
    // The first three searches warm the caches.
    let mut times = times.split_off(3.min(times.len().saturating_sub(1)));
    times.sort();
    Ok((times[times.len() / 2], times[times.len() * 95 / 100]))
}

/// Returns the recall of the vector index compared with an exact scan.
async fn recall(searcher: &Searcher, embedder: &Arc<dyn Embedder>, queries: &[String]) -> Result<f64, AnyError> {
    let (index, filter) = (searcher.index(), Filter::default());
    let (mut found, mut wanted) = (0, 0);
    for query in queries {
        let vector = embedder.embed_query(query)?;
        let exact = index.vector_leg(&vector, &filter, RECALL_DEPTH, true).await?;
        let indexed = index.vector_leg(&vector, &filter, RECALL_DEPTH, false).await?;
        wanted += exact.len();
        // Identical passages have equal scores, and either of them may be the last of the list.
        let least = exact.last().map_or(0.0, |hit| hit.score) - 1e-5;
        found += indexed.iter().filter(|hit| hit.score >= least).count().min(exact.len());
    }
    Ok(to_f64(found) / to_f64(wanted))
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

pub(crate) fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
