//! Reranks the first hits of a search with a model that reads query and passage together, behind a `/rerank` route.
//!
//! Cohere, Jina, vLLM and llama.cpp take the same request; Text Embeddings Inference takes its own. One attempt is made
//! for each search: its user waits for it, and the fused order is a good answer.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::breaker::{Breaker, Paused};
use crate::base::clock::Clock;
use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, HttpError, NoReply, ParseBaseUrlError, Secret, client_for, exchange};
use crate::base::line::{shortened, with_causes};

/// Hits that are reranked, unless the settings say otherwise.
const CANDIDATES: usize = 20;

/// Time-out of one request, unless the settings say otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest reply read, in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// The table `[rerank]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RerankOptions {
    /// Address to which `/rerank` is appended; without one, nothing is reranked.
    pub(crate) base_url: Option<String>,
    /// Name of the model; `None` if the server has only one.
    pub(crate) model: Option<String>,
    /// Form of the requests.
    #[serde(default)]
    pub(crate) api: RerankApi,
    /// The variable that holds the key; `None` for a server without one.
    pub(crate) key_env: Option<String>,
    /// Hits that are reranked.
    pub(crate) candidates: Option<usize>,
    /// Seconds one request may take.
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
    /// The address is invalid.
    #[error("invalid address")]
    Address(#[from] ParseBaseUrlError),
    /// The key cannot be used.
    #[error("no key")]
    Key(#[from] KeyError),
    /// There is no address.
    #[error("no `base_url`")]
    NoAddress,
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl RerankSettingsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Key(source) => Some(source.hint()),
            Self::NoAddress => Some("name the server, for example `base_url = \"http://localhost:8080/v1\"`".into()),
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
    /// The server refused the request.
    #[error("status {status}: {reason}")]
    Refused { status: u16, reason: String },
    /// The reply is not in the form of the API.
    #[error("reply does not score every passage once")]
    Form,
    /// The last requests of this process failed.
    #[error(transparent)]
    Paused(#[from] Paused),
}

/// A reranking server.
pub(crate) struct Reranker {
    address: BaseUrl,
    model: Option<String>,
    api: RerankApi,
    key: Option<Secret>,
    timeout: Duration,
    /// Hits that are reranked.
    pub(crate) candidates: usize,
    /// Whether it is on this machine, or the user says that it is theirs.
    pub(crate) is_local: bool,
    client: Client,
    clock: Arc<dyn Clock>,
    breaker: Breaker,
}

impl fmt::Debug for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reranker({self})")
    }
}

impl fmt::Display for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "{model} at {}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// Whether the first hits of a search are reranked.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rerank {
    /// No server is configured.
    #[default]
    Off,
    /// By this server.
    By(Arc<Reranker>),
    /// A server is configured and may not be asked, for this reason.
    Withheld(String),
}

impl RerankOptions {
    /// Resolves the settings; `None` if nothing is reranked.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub(crate) fn resolve(
        &self,
        environment: &Environment,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Reranker>, RerankSettingsError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let address = BaseUrl::from_str(self.base_url.as_deref().ok_or(RerankSettingsError::NoAddress)?)?;
        let key = self.key_env.as_deref().map(|variable| environment.key(variable)).transpose()?;
        Ok(Some(Reranker {
            client: client_for(&address)?,
            is_local: address.is_loopback() || self.local == Some(true),
            address,
            model: self.model.clone(),
            api: self.api,
            key,
            timeout: self.timeout_seconds.map_or(TIMEOUT, Duration::from_secs),
            candidates: self.candidates.unwrap_or(CANDIDATES),
            breaker: Breaker::new(Arc::clone(&clock)),
            clock,
        }))
    }
}

impl Reranker {
    /// Returns how relevant each text is to the query, from 0 to 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the server gives no usable reply, and at once for a while after it failed twice.
    pub(crate) async fn scores(&self, query: &str, texts: &[&str]) -> Result<Vec<f32>, RerankError> {
        self.breaker.ask(self.asked(query, texts)).await
    }

    async fn asked(&self, query: &str, texts: &[&str]) -> Result<Vec<f32>, RerankError> {
        let mut body = match self.api {
            RerankApi::Cohere => json!({"query": query, "documents": texts, "top_n": texts.len()}),
            RerankApi::Tei => json!({"query": query, "texts": texts, "truncate": true}),
        };
        if let Some(model) = &self.model {
            body["model"] = model.as_str().into();
        }
        let mut request = self.client.post(self.address.with_path("/rerank")).json(&body);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.bearer());
        }
        let scrubbed =
            |text: &str| shortened(&self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text)));
        let reply = exchange(request, MAX_REPLY_BYTES, self.clock.deadline(self.timeout)).await;
        let reply = reply.map_err(|error: NoReply| RerankError::NoReply(scrubbed(&with_causes(&error))))?;
        if !reply.status.is_success() {
            let reason = scrubbed(&String::from_utf8_lossy(&reply.body));
            return Err(RerankError::Refused { status: reply.status.as_u16(), reason });
        }
        let reply: Value = serde_json::from_slice(&reply.body).map_err(|_| RerankError::Form)?;
        scores_in(&reply, texts.len()).ok_or(RerankError::Form)
    }
}

/// Returns the score of each of so many texts. A server that returns logits is recognised by a score outside 0 to 1.
fn scores_in(reply: &Value, number: usize) -> Option<Vec<f32>> {
    #[derive(Deserialize)]
    struct Scored {
        index: usize,
        #[serde(alias = "relevance_score")]
        score: f32,
    }
    let list = reply.get("results").or_else(|| reply.get("data")).unwrap_or(reply);
    let scored: Vec<Scored> = Vec::deserialize(list).ok()?;
    let mut scores = vec![None; number];
    for Scored { index, score } in scored {
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
        let options = RerankOptions { base_url: Some("http://127.0.0.1:9".into()), ..RerankOptions::default() };
        let reranker = options.resolve(&Environment::default(), clock.clone()).unwrap().unwrap();
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
