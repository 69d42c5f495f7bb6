//! Reranks the first hits of a search with a model that reads query and passage together: on this machine, or behind a
//! `/rerank` route. `model = "llm"` leaves it to the language model of a run, which only the run itself can ask.
//!
//! Cohere, Jina, vLLM and llama.cpp accept the same request; Text Embeddings Inference has its own. Each search makes
//! one attempt: the user is waiting, and the fused order is good enough.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::base::breaker::{Breaker, Guarded, Health, Open};
use crate::base::clock::Clock;
use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, HttpError, NoReply, ParseBaseUrlError, Secret, authorized, client_for, exchange};
use crate::base::line::{shortened, with_causes};
use crate::kb::embed::{CrossEncoder, CrossEncoderChoice, CrossEncoderError, UnknownCrossEncoder};

/// Default number of hits that are reranked.
pub(crate) const CANDIDATES: usize = 20;

/// Default timeout of a request.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Value of `model` for the language model of a run.
const OF_RUN: &str = "llm";

/// Timeout of a language model, and of a model on this machine, which is loaded for the first search.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest reply read, in bytes. The scores of 100 candidates take a few thousand; the rest allows for servers that
/// echo the passages.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// The table `[rerank]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RerankOptions {
    /// Address to which `/rerank` is appended.
    pub(crate) base_url: Option<String>,
    /// A model on this machine, [`OF_RUN`], or the name of a model on the server; `None` if the server has only one.
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) api: RerankApi,
    /// The variable that holds the key; `None` for a server without one.
    pub(crate) key_env: Option<String>,
    pub(crate) candidates: Option<usize>,
    /// Timeout of a request in seconds.
    pub(crate) timeout_seconds: Option<u64>,
    /// Whether the server is the user's own, although it is not on this machine.
    pub(crate) local: Option<bool>,
}

/// Form of a request to rerank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RerankApi {
    /// `documents`, answered by `results` with a `relevance_score` each.
    #[default]
    Cohere,
    /// `texts`, answered by a list with a `score` each: Text Embeddings Inference.
    Tei,
}

/// The settings in `[rerank]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RerankSettingsError {
    #[error("invalid address")]
    Address(#[from] ParseBaseUrlError),
    #[error("no key")]
    Key(#[from] KeyError),
    #[error("no `base_url`, and no `model` of this machine")]
    NoAddress,
    #[error("`{model}` runs on this machine, but `base_url` names a server")]
    Both { model: String },
    #[error(transparent)]
    Unknown(#[from] UnknownCrossEncoder),
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl RerankSettingsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Key(source) => Some(source.hint()),
            Self::NoAddress => Some(
                "name the server, for example `base_url = \"http://localhost:8080/v1\"`, or a model, for example `model = \
                 \"fastembed:BGERerankerBase\"`"
                    .into(),
            ),
            Self::Both { .. } => Some("remove one of them".into()),
            Self::Unknown(UnknownCrossEncoder { close, .. }) if !close.is_empty() => {
                Some(format!("did you mean `fastembed:{}`?", close.join("`, `fastembed:")))
            }
            Self::Unknown(_) => Some("`dr model list` prints the names".into()),
            Self::Address(_) | Self::Http(_) => None,
        }
    }
}

/// The hits were not reranked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RerankError {
    /// The server was not reached, or gave no reply in time.
    #[error("{0}")]
    NoReply(String),
    #[error("status {status}: {reason}")]
    Refused { status: u16, reason: String },
    #[error("reply does not score every passage once")]
    Form,
    #[error("reranking took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("{}", with_causes(.0))]
    Here(#[from] CrossEncoderError),
    /// Only a run can call its language model.
    #[error("only a run with a language model uses it")]
    OfRun,
    #[error("reranking task panicked")]
    Task(#[source] tokio::task::JoinError),
    /// The last requests of this process failed.
    #[error(transparent)]
    Open(#[from] Open),
}

impl Guarded for RerankError {
    /// Every failure counts: waiting for a timeout in each search costs more than a better order is worth.
    fn health(&self) -> Health {
        if matches!(self, Self::Open(_) | Self::OfRun) { Health::Unknown } else { Health::Down }
    }
}

/// A model that reranks.
pub(crate) struct Reranker {
    backend: Backend,
    pub(crate) timeout: Duration,
    pub(crate) candidates: usize,
    clock: Arc<dyn Clock>,
    breaker: Breaker,
}

/// Where it runs.
enum Backend {
    Here(Arc<CrossEncoder>),
    Server(Box<RerankServer>),
    /// In calls made by the run itself.
    Run,
}

struct RerankServer {
    address: BaseUrl,
    model: Option<String>,
    api: RerankApi,
    key: Option<Secret>,
    /// Whether it is on this machine, or declared as the user's own.
    is_local: bool,
    client: Client,
}

impl fmt::Debug for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reranker({self})")
    }
}

impl fmt::Display for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Here(model) => write!(f, "{model}"),
            Backend::Run => f.write_str(OF_RUN),
            Backend::Server(server) => match &server.model {
                Some(model) => write!(f, "{model} at {}", server.address),
                None => write!(f, "{}", server.address),
            },
        }
    }
}

/// Whether the first hits of a search are reranked.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rerank {
    /// No reranker is configured.
    #[default]
    Off,
    /// Hits are reranked by this one.
    By(Arc<Reranker>),
    /// One is configured but may not be used, for this reason.
    Withheld(String),
}

impl RerankOptions {
    /// Resolves the settings; `None` if nothing is reranked. `here` creates a model on this machine.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent or loaded.
    pub(crate) fn resolve(
        &self,
        environment: &Environment,
        clock: Arc<dyn Clock>,
        here: impl FnOnce(CrossEncoderChoice) -> CrossEncoder,
    ) -> Result<Option<Reranker>, RerankSettingsError> {
        // Only an empty table is allowed to enable nothing. One that sets anything but a model is an error below,
        // since it would have no effect.
        if *self == Self::default() {
            return Ok(None);
        }
        let is_of_run = self.model.as_deref() == Some(OF_RUN);
        let named = self.model.as_deref().and_then(CrossEncoderChoice::parse).transpose()?;
        let (backend, timeout) = match (named, &self.base_url) {
            (None, Some(_)) if is_of_run => return Err(RerankSettingsError::Both { model: OF_RUN.to_owned() }),
            (None, None) if is_of_run => (Backend::Run, LOCAL_TIMEOUT),
            (Some(model), Some(_)) => return Err(RerankSettingsError::Both { model: model.to_string() }),
            (Some(model), None) => (Backend::Here(Arc::new(here(model))), LOCAL_TIMEOUT),
            (None, Some(address)) => (Backend::Server(Box::new(self.server(address, environment)?)), TIMEOUT),
            (None, None) => return Err(RerankSettingsError::NoAddress),
        };
        Ok(Some(Reranker {
            backend,
            timeout: self.timeout_seconds.map_or(timeout, Duration::from_secs),
            candidates: self.candidates.unwrap_or(CANDIDATES),
            // The note of the search begins with the name of the reranker.
            breaker: Breaker::with_pauses("it", Arc::clone(&clock)),
            clock,
        }))
    }

    fn server(&self, address: &str, environment: &Environment) -> Result<RerankServer, RerankSettingsError> {
        let address = BaseUrl::from_str(address)?;
        Ok(RerankServer {
            client: client_for(&address)?,
            is_local: address.is_own(self.local),
            address,
            model: self.model.clone(),
            api: self.api,
            key: environment.key_in(self.key_env.as_deref())?,
        })
    }
}

impl Reranker {
    /// Returns whether the text it reads stays on the user's machines.
    pub(crate) fn is_local(&self) -> bool {
        match &self.backend {
            Backend::Here(_) => true,
            Backend::Server(server) => server.is_local,
            // The engine checks each run's models itself.
            Backend::Run => false,
        }
    }

    /// Returns whether it needs the network.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.backend, Backend::Server(_))
    }

    /// Returns whether it is the language model of a run, which the run calls itself.
    pub(crate) fn is_of_run(&self) -> bool {
        matches!(self.backend, Backend::Run)
    }

    /// Returns whether it is available: a model on this machine may not be downloaded yet.
    pub(crate) fn is_here(&self) -> bool {
        match &self.backend {
            Backend::Here(model) => model.is_here(),
            Backend::Server(_) | Backend::Run => true,
        }
    }

    /// Returns how relevant each text is to the query, from 0 to 1.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no usable reply in time. After two such failures, fails at once for a while.
    pub(crate) async fn scores(&self, query: &str, texts: &[&str]) -> Result<Vec<f32>, RerankError> {
        let asked = async {
            match &self.backend {
                Backend::Here(model) => self.computed(model, query, texts).await,
                Backend::Server(server) => server.asked(query, texts, self.clock.deadline(self.timeout)).await,
                Backend::Run => Err(RerankError::OfRun),
            }
        };
        self.breaker.ask(asked).await
    }

    async fn computed(&self, model: &Arc<CrossEncoder>, query: &str, texts: &[&str]) -> Result<Vec<f32>, RerankError> {
        let stop = CancellationToken::new();
        // Dropping the search ends the computation too.
        let _stopped = stop.clone().drop_guard();
        let (model, query) = (Arc::clone(model), query.to_owned());
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        let computed = tokio::task::spawn_blocking(move || model.scores(&query, &texts, &stop));
        tokio::select! {
            () = self.clock.deadline(self.timeout) => Err(RerankError::TooSlow(self.timeout)),
            scores = computed => Ok(scores.map_err(RerankError::Task)??),
        }
    }
}

impl RerankServer {
    async fn asked(
        &self,
        query: &str,
        texts: &[&str],
        deadline: BoxFuture<'static, ()>,
    ) -> Result<Vec<f32>, RerankError> {
        let mut body = match self.api {
            // `top_n`, because a server that returns only the best leaves passages without a score.
            RerankApi::Cohere => json!({"query": query, "documents": texts, "top_n": texts.len()}),
            // Without `truncate`, it refuses a passage longer than the model's input limit.
            RerankApi::Tei => json!({"query": query, "texts": texts, "truncate": true}),
        };
        if let Some(model) = &self.model {
            body["model"] = model.as_str().into();
        }
        let request = self.client.post(self.address.with_path("/rerank")).json(&body);
        let request = authorized(request, self.key.as_ref());
        // A server may echo the key in its error, which is printed.
        let scrubbed =
            |text: &str| shortened(&self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text)));
        let reply = exchange(request, MAX_REPLY_BYTES, deadline).await;
        let reply = reply.map_err(|error: NoReply| RerankError::NoReply(scrubbed(&with_causes(&error))))?;
        if !reply.status.is_success() {
            let reason = scrubbed(&String::from_utf8_lossy(&reply.body));
            return Err(RerankError::Refused { status: reply.status.as_u16(), reason });
        }
        let reply: Value = serde_json::from_slice(&reply.body).map_err(|_| RerankError::Form)?;
        scores_in(&reply, texts.len()).ok_or(RerankError::Form)
    }
}

/// Returns the scores of `number` texts. A server that returns logits is recognised by a score outside 0 to 1.
fn scores_in(reply: &Value, number: usize) -> Option<Vec<f32>> {
    #[derive(Deserialize)]
    struct Scored {
        index: usize,
        #[serde(alias = "relevance_score")]
        score: f32,
    }
    // Text Embeddings Inference sends the list itself.
    let list = reply.get("results").or_else(|| reply.get("data")).unwrap_or(reply);
    let scored: Vec<Scored> = Vec::deserialize(list).ok()?;
    let mut scores = vec![None; number];
    for Scored { index, score } in scored {
        // An index that occurs twice or is out of range would give a passage the score of another.
        *scores.get_mut(index).filter(|known| known.is_none() && score.is_finite())? = Some(score);
    }
    let mut scores: Vec<f32> = scores.into_iter().collect::<Option<_>>()?;
    if scores.iter().any(|score| !(0.0..=1.0).contains(score)) {
        for score in &mut scores {
            *score = 1.0 / (1.0 + (-*score).exp());
        }
    }
    Some(scores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{ManualClock, Moment};
    use crate::kb::embed::ModelStore;

    fn local(choice: CrossEncoderChoice) -> CrossEncoder {
        CrossEncoder::new(choice, ModelStore::in_folder("/no/store".into()), "/no/data".into(), Some(1))
    }

    fn resolved(clock: &Arc<ManualClock>, base_url: Option<&str>, model: Option<&str>) -> Result<Reranker, String> {
        let (base_url, model) = (base_url.map(str::to_owned), model.map(str::to_owned));
        let options = RerankOptions { base_url, model, ..RerankOptions::default() };
        let resolved = options.resolve(&Environment::default(), clock.clone(), local);
        resolved.map(Option::unwrap).map_err(|error| error.hint().unwrap())
    }

    #[tokio::test]
    async fn model_of_this_machine_needs_no_server_and_says_if_it_is_not_here() {
        let clock = Arc::new(ManualClock::at(Moment(5)));
        let reranker = resolved(&clock, None, Some("fastembed:BGERerankerBase")).unwrap();
        assert!(reranker.is_local() && !reranker.is_server() && !reranker.is_here());
        let error = reranker.scores("q", &["a"]).await.unwrap_err();
        assert!(error.to_string().contains("`dr model use BGERerankerBase`"), "{error}");
        for (base_url, model) in [
            (None, "fastembed:BGERerankBase"),
            (Some("http://127.0.0.1:9"), "fastembed:BGERerankerBase"),
            (Some("http://127.0.0.1:9"), OF_RUN),
            (None, "bge-reranker-base"),
        ] {
            assert!(resolved(&clock, base_url, Some(model)).is_err(), "{base_url:?} {model}");
        }
    }

    #[tokio::test]
    async fn language_model_of_a_run_scores_nothing_for_a_search() {
        let reranker = resolved(&Arc::new(ManualClock::at(Moment(5))), None, Some(OF_RUN)).unwrap();
        assert!(reranker.is_of_run() && !reranker.is_server());
        assert_eq!((reranker.candidates, reranker.timeout), (CANDIDATES, LOCAL_TIMEOUT));
        for _ in 0..5 {
            let error = reranker.scores("q", &["a"]).await.unwrap_err();
            assert!(matches!(error, RerankError::OfRun), "{error}");
        }
    }

    #[test]
    fn scores_are_read_from_the_replies_of_the_known_servers() {
        let scored = |reply: Value| scores_in(&reply, 2);
        let cohere = json!({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]});
        assert_eq!(scored(cohere), Some(vec![0.2, 0.9]));
        assert_eq!(
            scored(json!({"data": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0}]})),
            Some(vec![0.5, 0.0])
        );
        assert_eq!(scored(json!([{"index": 0, "score": 0.2}, {"index": 1, "score": 0.9}])), Some(vec![0.2, 0.9]));
        let logits =
            scored(json!({"results": [{"index": 0, "relevance_score": -4.0}, {"index": 1, "relevance_score": 4.0}]}));
        let logits = logits.unwrap();
        assert!(logits[0] < 0.02 && logits[1] > 0.98, "{logits:?}");
    }

    #[tokio::test]
    async fn server_that_fails_twice_is_left_alone_for_a_while() {
        let clock = Arc::new(ManualClock::at(Moment(5)));
        // Nothing listens on port 9 of this machine.
        let reranker = resolved(&clock, Some("http://127.0.0.1:9"), None).unwrap();
        let asked = async || matches!(reranker.scores("q", &["a"]).await, Err(RerankError::NoReply(_)));
        assert!(asked().await && asked().await && !asked().await);
        clock.advance(Duration::from_mins(1));
        assert!(asked().await && !asked().await);
    }

    #[test]
    fn reply_that_does_not_score_every_passage_once_is_refused() {
        let of = |indexes: &[usize]| {
            let results: Vec<_> = indexes.iter().map(|index| json!({"index": index, "relevance_score": 0.5})).collect();
            scores_in(&json!({ "results": results }), 2)
        };
        for indexes in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 1]] {
            assert_eq!(of(indexes), None, "{indexes:?}");
        }
        assert_eq!(scores_in(&json!({"error": "no"}), 2), None);
        assert_eq!(scores_in(&json!({"results": [{"index": 0, "relevance_score": "high"}]}), 1), None);
    }
}
