//! Measures indexing, embedding and search on a folder, by default the manual: `just bench [FOLDER]`.
//!
//! Everything runs in this process, on an index in a temporary folder. If `DR_BENCH_INDEX` is set to the address of an
//! existing index, only searches are measured. `DR_BENCH_CHUNKS` limits the chunks that are embedded. For the quality
//! of search results, see `dr eval`.

#![expect(clippy::print_stdout, reason = "the table is the point")]

mod measure;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dr::kb::embed::{self, Embedder, EmbedderOptions};
use dr::kb::extract::Include;
use dr::kb::index::{Index, IndexLocation};
use dr::kb::ingest::{CollectionSource, IngestOptions};
use rten::{Model, NodeId, ValueOrView};
use rten_tensor::NdTensor;

use measure::{AnyError, row, run, searching, texts, to_f64};

fn main() -> Result<(), AnyError> {
    let folder = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/kb")), PathBuf::from);
    tokio::runtime::Runtime::new()?.block_on(figures(folder.canonicalize()?))
}

async fn figures(folder: PathBuf) -> Result<(), AnyError> {
    let embedder = embed::load(&EmbedderOptions::builtin())?;
    let home = tempfile::tempdir()?;
    if let Ok(address) = std::env::var("DR_BENCH_INDEX") {
        let index = Index::open(&IndexLocation::parse(&address)?).await?;
        let texts = texts(&index, wanted()).await?;
        return searching(index, &embedder, &texts).await;
    }
    let location = IndexLocation::in_folder(home.path());
    let options = |embed| IngestOptions {
        sources: vec![CollectionSource { name: "bench".into(), root: folder.clone(), include: Include::default() }],
        embed,
        ..IngestOptions::default()
    };
    let first = run(&location, &embedder, &options(false)).await?;
    row("files", first.added, "");
    row("chunks", first.chunks, "");
    row("lexical indexing", format!("{:.0}", to_f64(first.added) / first.seconds), "files/s");
    let second = run(&location, &embedder, &options(false)).await?;
    row("unchanged re-index", format!("{:.0}", second.seconds * 1000.0), "ms");

    let texts = texts(&Index::open(&location).await?, wanted()).await?;
    let (ours, bare) = (embedding(&embedder, &texts)?, bare_loop(&texts)?);
    row("embedding", format!("{ours:.1}"), "texts/s");
    row("embedding, bare loop", format!("{bare:.1}"), "texts/s");
    row("embedding, of bare", format!("{:.0}", 100.0 * ours / bare), "%");

    run(&location, &embedder, &options(true)).await?;
    searching(Index::open(&location).await?, &embedder, &texts).await
}

/// Returns the number of chunks of the sample.
fn wanted() -> usize {
    std::env::var("DR_BENCH_CHUNKS").ok().and_then(|text| text.parse().ok()).unwrap_or(256)
}

fn embedding(embedder: &Arc<dyn Embedder>, texts: &[String]) -> Result<f64, AnyError> {
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    embedder.embed_query("warm")?;
    let started = Instant::now();
    embedder.embed_passages(&texts)?;
    Ok(to_f64(texts.len()) / started.elapsed().as_secs_f64())
}

/// Runs the bare model on the same texts as a baseline: tokenised in advance, sorted by length, in batches of 16.
fn bare_loop(texts: &[String]) -> Result<f64, AnyError> {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8");
    let model = Model::load(std::fs::read(format!("{assets}/model.onnx"))?)?;
    let tokenizer =
        tokenizers::Tokenizer::from_file(format!("{assets}/tokenizer.json")).map_err(|error| error.to_string())?;
    let mut inputs = Vec::new();
    for text in texts {
        let encoding = tokenizer.encode(text.as_str(), true).map_err(|error| error.to_string())?;
        inputs.push(encoding.get_ids().iter().take(256).map(|id| id.cast_signed()).collect::<Vec<i32>>());
    }
    inputs.sort_by_key(Vec::len);
    let nodes = [model.node_id("input_ids")?, model.node_id("attention_mask")?, model.node_id("token_type_ids")?];
    let output = model.node_id("last_hidden_state")?;
    let started = Instant::now();
    for batch in inputs.chunks(16) {
        model.run(padded(batch, nodes), &[output], None)?;
    }
    Ok(to_f64(texts.len()) / started.elapsed().as_secs_f64())
}

fn padded(batch: &[Vec<i32>], nodes: [NodeId; 3]) -> Vec<(NodeId, ValueOrView<'static>)> {
    let longest = batch.iter().map(Vec::len).max().unwrap_or(0);
    let tensor = |value: &dyn Fn(&[i32], usize) -> i32| {
        let data: Vec<i32> = batch.iter().flat_map(|ids| (0..longest).map(|at| value(ids, at))).collect();
        NdTensor::from_data([batch.len(), longest], data).into()
    };
    vec![
        (nodes[0], tensor(&|ids, at| ids.get(at).copied().unwrap_or(0))),
        (nodes[1], tensor(&|ids, at| i32::from(at < ids.len()))),
        (nodes[2], tensor(&|_, _| 0)),
    ]
}
