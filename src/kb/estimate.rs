//! Estimates the work, time and cost of indexing. Reads the folders and the index, writes nothing, and contacts no
//! server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use serde::Serialize;

use super::embed::{Embedder, EmbeddingServer};
use super::index::{ChunkRow, DocumentRow, Filter, Index, IndexError, IndexLocation, Replacement};
use super::ingest::{
    CollectionSource, Differences, IngestError, IngestOptions, Read, Rebuild, ToRead, check_same, differences,
    manifest, read, tasks, text_to_embed, with_sources,
};
use crate::base::id::DocumentId;
use crate::base::money::dollars;

/// Number of passages embedded on this machine to measure the speed.
const SAMPLE: usize = 24;

/// Assumed duration of a request to a server, in seconds. The true one depends on the server, which is not contacted.
const SECONDS_PER_REQUEST: f64 = 2.0;

/// Work, time and cost of indexing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct IndexEstimate {
    /// Files that would be read: new ones, and those whose size or time has changed.
    pub(crate) files: usize,
    /// Files that would not be read.
    pub(crate) unchanged: usize,
    /// Files that cannot be indexed.
    pub(crate) skipped: usize,
    /// Files that would be removed from the index.
    pub(crate) removed: usize,
    /// Chunks that would be written.
    pub(crate) chunks: usize,
    /// Chunks that would be embedded, including those left over from an earlier run.
    pub(crate) to_embed: usize,
    /// Chunks that would be written and keep the vector of an earlier run.
    pub(crate) kept: usize,
    /// Upper bound on the tokens to embed.
    pub(crate) tokens: u64,
    /// Approximate duration of embedding, in seconds.
    pub(crate) seconds: f64,
    /// Requests to a server, and their cost; `None` if this machine embeds.
    pub(crate) server: Option<ServerEstimate>,
}

/// Requests to a server that embeds, and their cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ServerEstimate {
    /// Base address of its API, as in the settings.
    pub(crate) address: String,
    /// Number of requests for everything to embed.
    pub(crate) requests: usize,
    /// Assumed duration of a request, in seconds.
    pub(crate) seconds_per_request: f64,
    /// Upper bound on the cost of the tokens in US dollars; `None` if the price is unknown.
    pub(crate) cost_usd: Option<f64>,
    /// The limit in US dollars; `None` for no limit.
    pub(crate) max_cost_usd: Option<f64>,
}

/// Returns what [`ingest`](super::ingest::ingest) would do with the same parameters. Embedding would stop at a cost of
/// `max_cost`, in billionths of a dollar.
///
/// # Errors
///
/// Returns the error that ingest would begin with.
pub(crate) async fn estimate(
    location: &IndexLocation,
    embedder: &Arc<dyn Embedder>,
    choice: &str,
    options: &IngestOptions,
    max_cost: Option<u64>,
) -> Result<IndexEstimate, IngestError> {
    let wanted = manifest(embedder, choice);
    let index = match options.rebuild {
        // A full rebuild starts from the files, and opens nothing that may be damaged.
        Rebuild::All => None,
        Rebuild::No | Rebuild::Text | Rebuild::Embedder => match Index::open(location).await {
            Ok(index) => Some(index),
            Err(IndexError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    let stored = index.as_ref().map(|index| index.manifest().clone());
    if let Some(stored) = stored.as_ref().filter(|_| options.rebuild == Rebuild::No) {
        check_same(stored, &wanted)?;
    }
    // Called only for its errors.
    with_sources(location, stored.unwrap_or(wanted), options)?;
    let mut estimator = Estimator { embedder, options, index, estimate: IndexEstimate::default(), sample: Vec::new() };
    let mut read_again = HashSet::new();
    for source in &options.sources {
        read_again.extend(estimator.add(source).await?);
    }
    estimator.add_forgotten(&mut read_again).await?;
    if options.embed {
        estimator.add_waiting(&read_again).await?;
        estimator.finish(max_cost).await
    } else {
        Ok(IndexEstimate { to_embed: 0, tokens: 0, ..estimator.estimate })
    }
}

/// State of an estimate while folders are added.
struct Estimator<'a> {
    embedder: &'a Arc<dyn Embedder>,
    options: &'a IngestOptions,
    /// The current index; `None` if it is not used.
    index: Option<Index>,
    estimate: IndexEstimate,
    /// A sample of the texts to embed.
    sample: Vec<String>,
}

impl Estimator<'_> {
    /// Adds a folder. Returns the documents whose chunks would be replaced or removed.
    async fn add(&mut self, source: &CollectionSource) -> Result<Vec<DocumentId>, IngestError> {
        let indexed = match &self.index {
            Some(index) => index.documents(Some(&source.name)).await?,
            None => Vec::new(),
        };
        let is_again = self.options.rebuild != Rebuild::No;
        let (known, donor) = if is_again { (Vec::new(), self.index.as_ref()) } else { (indexed.clone(), None) };
        let Differences { to_read, gone, renamed, skipped, unchanged, .. } =
            differences(source, known, donor, self.options).await?;
        self.estimate.files += to_read.len();
        self.estimate.unchanged += unchanged;
        self.estimate.skipped += skipped.len();
        self.estimate.removed += gone.len() - renamed.len();
        let vectors = self.keys_kept(&indexed, &to_read, &renamed).await?;
        let mut replaced: Vec<_> = gone.into_iter().map(|row| row.id).collect();
        replaced.extend(self.read(source, to_read, &vectors, &renamed).await?);
        Ok(replaced)
    }

    /// Returns the keys of vectors that chunks of the files to read may reuse.
    async fn keys_kept(
        &self,
        indexed: &[DocumentRow],
        to_read: &[ToRead],
        renamed: &HashMap<String, DocumentId>,
    ) -> Result<HashSet<String>, IngestError> {
        let Some(index) = &self.index else { return Ok(HashSet::new()) };
        let donors: Vec<_> = match self.options.rebuild {
            // Vectors of another embedder, and those of an index that may be damaged, are not reused.
            Rebuild::Embedder | Rebuild::All => Vec::new(),
            Rebuild::Text => indexed.iter().map(|row| row.id.clone()).collect(),
            Rebuild::No => {
                let known = to_read.iter().filter_map(|file| file.known.as_ref());
                known.map(|row| row.id.clone()).chain(renamed.values().cloned()).collect()
            }
        };
        Ok(index.embedded_keys(&donors).await?)
    }

    /// Adds files to read. Returns the documents whose chunks would be replaced or removed: not those of files with the
    /// same content, which may wait for vectors.
    async fn read(
        &mut self,
        source: &CollectionSource,
        to_read: Vec<ToRead>,
        vectors: &HashSet<String>,
        renamed: &HashMap<String, DocumentId>,
    ) -> Result<Vec<DocumentId>, IngestError> {
        let (mut replaced, none) = (Vec::new(), HashSet::new());
        let is_again = self.options.rebuild != Rebuild::No;
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut reads = futures::stream::iter(tasks(&to_read))
            .map(|files| {
                let (source, embedder) = (source.clone(), Arc::clone(self.embedder));
                tokio::task::spawn_blocking(move || {
                    files.into_iter().map(|file| read(&source, file, embedder.as_ref())).collect::<Vec<_>>()
                })
            })
            .buffered(threads);
        while let Some(read) = reads.next().await {
            for read in read.map_err(IngestError::Task)? {
                match read {
                    // Size or time has changed, but not the content.
                    Read::Same(_) => {
                        self.estimate.files -= 1;
                        self.estimate.unchanged += 1;
                    }
                    Read::Skipped { reason, known, .. } => {
                        self.estimate.files -= 1;
                        self.estimate.skipped += 1;
                        let removed = known.filter(|_| !reason.is_passing());
                        self.estimate.removed += usize::from(removed.is_some());
                        replaced.extend(removed);
                    }
                    Read::New { replacement: Replacement { document, chunks, .. }, is_known, .. } => {
                        // A copy of an indexed file is embedded again.
                        let is_copy = !is_again && !is_known && !renamed.contains_key(&document.path);
                        let vectors = if is_copy { &none } else { vectors };
                        replaced.extend(is_known.then_some(document.id));
                        self.estimate.chunks += chunks.len();
                        let (estimate, sample) = (&mut self.estimate, &mut self.sample);
                        for row in &chunks {
                            add_chunk(estimate, sample, row, vectors);
                        }
                    }
                }
            }
        }
        Ok(replaced)
    }

    /// Adds the collections that would be removed.
    async fn add_forgotten(&mut self, read_again: &mut HashSet<DocumentId>) -> Result<(), IngestError> {
        let Some(index) = &self.index else { return Ok(()) };
        for name in &self.options.forget {
            let gone = index.documents(Some(name)).await?;
            self.estimate.removed += gone.len();
            read_again.extend(gone.into_iter().map(|row| row.id));
        }
        Ok(())
    }

    /// Adds chunks that an earlier run left without a vector.
    async fn add_waiting(&mut self, read_again: &HashSet<DocumentId>) -> Result<(), IngestError> {
        // A rebuild writes every chunk again, so none is left over.
        let Some(index) = self.index.as_ref().filter(|_| self.options.rebuild == Rebuild::No) else { return Ok(()) };
        for (document, tokens) in index.missing_tokens(&Filter::default()).await? {
            if !read_again.contains(&document) {
                self.estimate.to_embed += 1;
                self.estimate.tokens += u64::from(tokens);
            }
        }
        if self.sample.is_empty() {
            self.sample = index.missing_vectors(&Filter::default(), SAMPLE).await?.iter().map(text_to_embed).collect();
        }
        Ok(())
    }

    async fn finish(self, max_cost: Option<u64>) -> Result<IndexEstimate, IngestError> {
        let IndexEstimate { to_embed, tokens, .. } = self.estimate;
        let tokens = self.embedder.tokens_of(tokens, to_embed);
        if let Some(server) = self.embedder.server() {
            let requests = to_embed.div_ceil(server.batch);
            return Ok(IndexEstimate {
                tokens,
                seconds: seconds_at(server, requests),
                server: Some(ServerEstimate {
                    address: server.address.to_string(),
                    requests,
                    seconds_per_request: SECONDS_PER_REQUEST,
                    cost_usd: server.cost_nanos(tokens).map(dollars),
                    max_cost_usd: max_cost.map(dollars),
                }),
                ..self.estimate
            });
        }
        let (embedder, sample) = (Arc::clone(self.embedder), self.sample);
        let measured = tokio::task::spawn_blocking(move || seconds_per_token(embedder.as_ref(), &sample));
        let each = measured.await.map_err(IngestError::Task)??;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let seconds = each * tokens as f64;
        Ok(IndexEstimate { tokens, seconds, ..self.estimate })
    }
}

fn add_chunk(estimate: &mut IndexEstimate, sample: &mut Vec<String>, row: &ChunkRow, vectors: &HashSet<String>) {
    match &row.embed_key {
        None => {}
        Some(key) if vectors.contains(key) => estimate.kept += 1,
        Some(_) => {
            estimate.to_embed += 1;
            estimate.tokens += u64::from(row.tokens);
            if sample.len() < SAMPLE {
                sample.push(text_to_embed(row));
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn seconds_at(server: &EmbeddingServer, requests: usize) -> f64 {
    requests.div_ceil(server.concurrency) as f64 * SECONDS_PER_REQUEST
}

/// Measures how long a token takes on this machine.
fn seconds_per_token(embedder: &dyn Embedder, sample: &[String]) -> Result<f64, IngestError> {
    let texts: Vec<_> = sample.iter().map(String::as_str).collect();
    let tokens: usize = texts.iter().map(|text| embedder.tokens().count(text)).sum();
    if tokens == 0 {
        return Ok(0.0);
    }
    // Loading the model takes as long for many texts as for few, and a passage needs other weights than a query.
    embedder.embed_passages(&texts[..1])?;
    let started = Instant::now();
    embedder.embed_passages(&texts)?;
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let each = started.elapsed().as_secs_f64() / tokens as f64;
    Ok(each)
}
