//! Models behind an OpenAI-compatible route `/embeddings`: Ollama, vLLM, Text Embeddings Inference, llama.cpp, OpenAI.
//!
//! ```text
//! texts ─▶ prefix, window ─▶ batches ─▶ some requests at a time ─▶ vectors, as far as they came
//!                                            │ meter: worst case set aside, then what the server reports
//! ```
//!
//! A server receives only the passages of the index and the queries compared with them: texts compared outside the
//! index use the built-in model (see [`Embedder::companion`]). Vectors computed before a failure are returned with
//! it, because they may have been paid for.

mod meter;
mod settings;
mod request;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use reqwest::Client;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::meter::Meter;
pub(super) use self::meter::cost_nanos;
pub use self::request::EmbeddingServerError;
use self::request::Vectors;
pub(crate) use self::settings::EndpointOptions;
use self::settings::Shorten;
pub use self::settings::{EndpointSettings, EndpointSettingsError};
use super::batch::normalised;
use super::recipe::Recipe;
use super::{EmbedError, Embedded, Embedder, EmbeddingServer, Reads, Sent, builtin};
use crate::base::breaker::Breaker;
use crate::base::clock::Clock;
use crate::base::http::{Exchange, NoReply, authorized, client_for, exchange};
use crate::base::retry::{Policy, retry};
use crate::base::token::{CountTokens, TokenCounter};

/// Maximum number of special tokens that a model adds to a text.
const SPECIAL_TOKENS: usize = 2;

/// Upper bound on the tokens that a server charges for a text in addition to those counted here.
const FRAME_TOKENS: u64 = 4;

/// Minimum length, in tokens, to which a text is shortened if the server rejects it as too long.
const LEAST_TOKENS: usize = 32;

/// How long a request in flight may take after the user stopped the work. It may have been paid for, and the program
/// has a second and a half to exit.
const LAST_REPLIES: Duration = Duration::from_millis(500);

/// A model at a server.
pub(super) struct Endpoint {
    shared: Arc<EndpointCore>,
    meter: Arc<Meter>,
    /// Number of passages truncated to the window or to the server's limit.
    shortened: AtomicUsize,
}

/// State that all limited copies of an endpoint share.
struct EndpointCore {
    settings: EndpointSettings,
    name: String,
    fingerprint: String,
    counter: TokenCounter,
    client: Client,
    clock: Arc<dyn Clock>,
    breaker: Breaker,
    is_offline: bool,
    threads: Option<usize>,
    companion: OnceLock<Arc<dyn Embedder>>,
}

/// The vectors received of a batch, and the error that ended it.
struct PartialBatch {
    vectors: Vec<Option<Vec<f32>>>,
    error: Option<EmbeddingServerError>,
}

impl Endpoint {
    /// Sets up the embedder. Nothing is sent.
    pub(super) fn new(
        settings: EndpointSettings,
        is_offline: bool,
        threads: Option<usize>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EndpointSettingsError> {
        let name = format!("endpoint:{}", settings.model);
        // Without the address, since a model may move. No server states which weights it runs, so the name identifies
        // them.
        let recipe = Recipe {
            model: &settings.model,
            weights_hash: "",
            tokenizer_hash: "",
            dimension: settings.dimensions,
            pooling: "endpoint",
            query_prefix: &settings.query_prefix,
            passage_prefix: &settings.passage_prefix,
            max_length: settings.window,
            quantisation: match settings.shorten {
                None => "none",
                Some(Shorten::Server) => "shortened by the server",
                Some(Shorten::Here) => "shortened here",
            },
        };
        let shared = EndpointCore {
            fingerprint: recipe.fingerprint(),
            name,
            counter: TokenCounter::for_model(&settings.model),
            client: client_for(&settings.server.address)?,
            breaker: Breaker::with_pauses("it", Arc::clone(&clock)),
            clock,
            is_offline,
            threads,
            companion: OnceLock::new(),
            settings,
        };
        let meter = Arc::new(Meter::new(shared.settings.server.price, None));
        Ok(Self { shared: Arc::new(shared), meter, shortened: AtomicUsize::new(0) })
    }

    /// Returns a text with its prefix, and whether it was cut to the window.
    fn prepared(&self, prefix: &str, text: &str) -> Result<(String, bool), EmbeddingServerError> {
        if !text.chars().any(|letter| !letter.is_whitespace()) {
            return Err(EmbeddingServerError::EmptyText);
        }
        let (text, is_cut) = self.cut(text, self.max_tokens());
        Ok((format!("{prefix}{text}"), is_cut))
    }

    /// Cuts a text to some tokens, at the end of a character.
    fn cut<'a>(&self, text: &'a str, max_tokens: usize) -> (Cow<'a, str>, bool) {
        let count = |text: &str| self.shared.counter.count(text);
        // No tokenizer yields more tokens than the text has bytes.
        if text.len() <= max_tokens || count(text) <= max_tokens {
            return (text.into(), false);
        }
        let ends: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
        let fitting = ends.partition_point(|end| count(&text[..*end]) <= max_tokens);
        (text[..ends[fitting.saturating_sub(1)]].to_owned().into(), true)
    }

    /// Embeds as many as possible of the texts, which already have their prefixes.
    async fn embed(&self, texts: Vec<String>, stop: &CancellationToken) -> PartialBatch {
        let EmbeddingServer { batch, concurrency, .. } = self.shared.settings.server;
        let mut vectors = vec![None; texts.len()];
        // After a failure no request is begun or repeated; those in flight may have been paid for, so they are
        // awaited.
        let halt = stop.child_token();
        let batches: Vec<_> = texts.chunks(batch).map(<[String]>::to_vec).enumerate().collect();
        let parts = futures::stream::iter(batches).map(|(number, texts)| {
            let halt = &halt;
            async move {
                let part = self.embed_batch(texts, &Policy::PASSAGES, halt, stop).await;
                if part.error.is_some() {
                    halt.cancel();
                }
                (number, part)
            }
        });
        let mut parts = pin!(parts.buffer_unordered(concurrency));
        let mut first_error = None;
        while let Some((number, part)) = parts.next().await {
            for (place, vector) in part.vectors.into_iter().enumerate() {
                vectors[number * batch + place] = vector;
            }
            // The others stopped because of the first.
            first_error = match (first_error, part.error) {
                (None | Some(EmbeddingServerError::Stopped), Some(error)) => Some(error),
                (known, _) => known,
            };
        }
        PartialBatch { vectors, error: first_error }
    }

    /// Embeds the texts of one batch. A batch that is too large for the server is halved, and a text that is too long
    /// is shortened, which is counted.
    async fn embed_batch(
        &self,
        mut texts: Vec<String>,
        policy: &Policy,
        halt: &CancellationToken,
        stop: &CancellationToken,
    ) -> PartialBatch {
        let mut vectors = vec![None; texts.len()];
        let mut shortened = vec![false; texts.len()];
        // The remaining ranges of texts, the next one last.
        let mut left: Vec<Range<usize>> = std::iter::once(0..texts.len()).collect();
        while let Some(range) = left.pop() {
            let answer = if halt.is_cancelled() {
                Err(EmbeddingServerError::Stopped)
            } else {
                self.ask(&texts[range.clone()], policy, halt, stop).await
            };
            match answer {
                Ok(found) => {
                    for (place, vector) in range.zip(found) {
                        vectors[place] = Some(vector);
                    }
                }
                Err(EmbeddingServerError::TooLarge { .. }) if range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    left.extend([middle..range.end, range.start..middle]);
                }
                Err(error @ EmbeddingServerError::TooLarge { .. }) => {
                    let text = &texts[range.start];
                    // By a quarter each time, because the server's tokenizer and limit are unknown.
                    let most = self.shared.counter.count(text) * 3 / 4;
                    if most < LEAST_TOKENS {
                        return PartialBatch { vectors, error: Some(error) };
                    }
                    texts[range.start] = self.cut(text, most).0.into_owned();
                    if !std::mem::replace(&mut shortened[range.start], true) {
                        self.shortened.fetch_add(1, Ordering::Relaxed);
                    }
                    left.push(range);
                }
                Err(error) => return PartialBatch { vectors, error: Some(error) },
            }
        }
        PartialBatch { vectors, error: None }
    }

    /// Sends a request until it succeeds or sending it again cannot help.
    async fn ask(
        &self,
        texts: &[String],
        policy: &Policy,
        halt: &CancellationToken,
        stop: &CancellationToken,
    ) -> Result<Vec<Vec<f32>>, EmbeddingServerError> {
        let pause = |wait: Duration, error: EmbeddingServerError| async move {
            tracing::info!(%error, seconds = wait.as_secs_f64(), "retrying the embedding request");
            match select(self.shared.clock.sleep(wait), pin!(halt.cancelled())).await {
                Either::Left(_) if !halt.is_cancelled() => Ok(()),
                Either::Left(_) | Either::Right(_) => Err(error),
            }
        };
        retry(policy, rand::random::<f64>, pause, || self.ask_once(texts, stop)).await
    }

    async fn ask_once(
        &self,
        texts: &[String],
        stop: &CancellationToken,
    ) -> Result<Vec<Vec<f32>>, EmbeddingServerError> {
        let EndpointSettings { server, key, timeout, .. } = &self.shared.settings;
        if self.shared.is_offline {
            return Err(EmbeddingServerError::Offline);
        }
        let most = texts.iter().map(|text| self.shared.counter.count(text) as u64 + FRAME_TOKENS).sum();
        let hold = self.meter.hold(most)?;
        let request = self.shared.client.post(server.address.with_path("/embeddings"));
        let request = authorized(request, key.as_ref()).json(&request::body(&self.shared.settings, texts));
        let limit = self.shared.clock.deadline(*timeout);
        let exchanged = pin!(exchange(request, request::max_reply_bytes(texts.len()), limit));
        let stopped = pin!(async {
            stop.cancelled().await;
            self.shared.clock.sleep(LAST_REPLIES).await;
        });
        let read = match select(exchanged, stopped).await {
            Either::Left((reply, _)) => self.read(reply, texts.len()),
            Either::Right(_) => Err(EmbeddingServerError::Stopped),
        };
        match read {
            Ok(Vectors { vectors, tokens }) => {
                // A report that is missing, or says zero tokens, is not trusted.
                hold.settle(tokens.filter(|tokens| *tokens > 0).unwrap_or(most));
                Ok(vectors)
            }
            // The hold is dropped unsettled, which leaves the worst case charged.
            Err(error) if error.may_be_paid() => Err(error),
            Err(error) => {
                hold.release();
                Err(error)
            }
        }
    }

    fn read(&self, reply: Result<Exchange, NoReply>, texts: usize) -> Result<Vectors, EmbeddingServerError> {
        let key = self.shared.settings.key.as_ref();
        let scrubbed = |text: &str| key.map_or_else(|| text.to_owned(), |key| key.scrub(text));
        let reply = reply.map_err(|error| request::without_reply(&error, scrubbed))?;
        if !reply.status.is_success() {
            let said = scrubbed(&String::from_utf8_lossy(&reply.body));
            return Err(request::refused(reply.status, &reply.headers, &said));
        }
        let Vectors { vectors, tokens } = request::read(&reply.body, texts)?;
        let vectors = vectors.into_iter().map(|vector| self.as_stored(vector)).collect::<Result<_, _>>()?;
        Ok(Vectors { vectors, tokens })
    }

    /// Returns a vector of length one with the dimensions of the settings.
    fn as_stored(&self, mut vector: Vec<f32>) -> Result<Vec<f32>, EmbeddingServerError> {
        let expected = self.dimension();
        if self.shared.settings.shorten == Some(Shorten::Here) {
            vector.truncate(expected);
        }
        if vector.len() != expected {
            return Err(EmbeddingServerError::WrongDimensions { found: vector.len(), expected });
        }
        normalised(vector).ok_or(EmbeddingServerError::NoDirection)
    }

    fn failed(&self, source: EmbeddingServerError) -> EmbedError {
        let address = self.shared.settings.server.address.to_string();
        EmbedError::Endpoint { model: self.shared.settings.model.clone(), address, source: Box::new(source) }
    }

    /// Waits for a future on a blocking thread.
    fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, EmbedError> {
        if let Ok(runtime) = Handle::try_current() {
            return Ok(runtime.block_on(future));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let load = |source: std::io::Error| EmbedError::Load { model: self.shared.name.clone(), source: source.into() };
        Ok(runtime.map_err(load)?.block_on(future))
    }
}

impl Embedder for Endpoint {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn fingerprint(&self) -> &str {
        &self.shared.fingerprint
    }

    fn dimension(&self) -> usize {
        self.shared.settings.dimensions
    }

    fn max_tokens(&self) -> usize {
        let EndpointSettings { window, passage_prefix, .. } = &self.shared.settings;
        let taken = SPECIAL_TOKENS + self.shared.counter.count(passage_prefix);
        window.saturating_sub(taken).max(1)
    }

    fn tokens(&self) -> &dyn CountTokens {
        &self.shared.counter
    }

    fn reads(&self) -> &Reads {
        &self.shared.settings.reads
    }

    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let Embedded { vectors, error } = self.embed_until(texts, &CancellationToken::new());
        match error {
            Some(error) => Err(error),
            None => Ok(vectors.into_iter().flatten().collect()),
        }
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let prefix = &self.shared.settings.query_prefix;
        let (text, _) = self.prepared(prefix, text).map_err(|error| self.failed(error))?;
        let never = CancellationToken::new();
        let asked = self.shared.breaker.ask(async {
            let PartialBatch { vectors, error } = self.embed_batch(vec![text], &Policy::QUERY, &never, &never).await;
            match (vectors.into_iter().flatten().next(), error) {
                (Some(vector), None) => Ok(vector),
                (_, Some(error)) => Err(error),
                (None, None) => Err(EmbeddingServerError::Stopped),
            }
        });
        self.wait(asked)?.map_err(|error| self.failed(error))
    }

    fn server(&self) -> Option<&EmbeddingServer> {
        Some(&self.shared.settings.server)
    }

    fn companion(&self) -> Option<Arc<dyn Embedder>> {
        let made = self.shared.companion.get_or_init(|| Arc::new(builtin::Builtin::new(self.shared.threads)));
        Some(Arc::clone(made))
    }

    fn within(&self, limit_nanos: Option<u64>) -> Option<Arc<dyn Embedder>> {
        let meter = Arc::new(Meter::new(self.shared.settings.server.price, limit_nanos));
        Some(Arc::new(Self { shared: Arc::clone(&self.shared), meter, shortened: AtomicUsize::new(0) }))
    }

    fn check_cost(&self, tokens: u64) -> Result<(), EmbedError> {
        self.meter.check(tokens).map_err(|over| self.failed(over.into()))
    }

    fn tokens_of(&self, tokens: u64, texts: usize) -> u64 {
        let prefix = self.shared.counter.count(&self.shared.settings.passage_prefix) as u64;
        tokens.saturating_add((prefix + FRAME_TOKENS).saturating_mul(texts as u64))
    }

    fn sent(&self) -> Sent {
        let spent = self.meter.spent_so_far();
        Sent {
            tokens: spent.tokens,
            cost_nanos: self.shared.settings.server.price.map(|_| spent.nanos),
            shortened: self.shortened.load(Ordering::Relaxed),
        }
    }

    fn at_once(&self) -> usize {
        let EmbeddingServer { batch, concurrency, .. } = self.shared.settings.server;
        batch.saturating_mul(concurrency)
    }

    fn embed_until(&self, texts: &[&str], stop: &CancellationToken) -> Embedded {
        let none = || vec![None; texts.len()];
        let prefix = &self.shared.settings.passage_prefix;
        let prepared: Result<Vec<_>, _> = texts.iter().map(|text| self.prepared(prefix, text)).collect();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Embedded { vectors: none(), error: Some(self.failed(error)) },
        };
        let cut = prepared.iter().filter(|(_, is_cut)| *is_cut).count();
        self.shortened.fetch_add(cut, Ordering::Relaxed);
        let texts = prepared.into_iter().map(|(text, _)| text).collect();
        match self.wait(self.embed(texts, stop)) {
            Ok(PartialBatch { vectors, error }) => {
                // Work stopped by the user has not failed.
                let error = error.filter(|_| !stop.is_cancelled()).map(|error| self.failed(error));
                Embedded { vectors, error }
            }
            Err(error) => Embedded { vectors: none(), error: Some(error) },
        }
    }
}
