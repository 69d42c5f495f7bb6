//! The table `[embedding]`: the server of the embedder `endpoint:MODEL`, and how its model is used.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::family::Family;
use super::super::{EmbeddingServer, Reads};
use crate::base::environment::{Environment, KeyError, OPENAI_KEY};
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, Secret};
use crate::base::money::nanos;

/// Components of the vectors of known models, by a part of their name in lower case; the first match wins.
const DIMENSIONS: [(&str, usize); 20] = [
    ("text-embedding-3-small", 1_536),
    ("text-embedding-3-large", 3_072),
    ("text-embedding-ada-002", 1_536),
    ("nomic-embed-text", 768),
    ("embeddinggemma", 768),
    ("mxbai-embed-large", 1_024),
    ("all-minilm", 384),
    ("all-mpnet-base", 768),
    ("bge-m3", 1_024),
    ("bge-small-en", 384),
    ("bge-base-en", 768),
    ("bge-large", 1_024),
    ("multilingual-e5-small", 384),
    ("multilingual-e5-base", 768),
    ("multilingual-e5-large", 1_024),
    ("qwen3-embedding:0.6b", 1_024),
    ("qwen3-embedding-0.6b", 1_024),
    ("qwen3-embedding-4b", 2_560),
    ("qwen3-embedding-8b", 4_096),
    ("jina-embeddings-v3", 1_024),
];

/// The table `[embedding]`. The rows of the settings document the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointOptions {
    pub(crate) base_url: Option<String>,
    pub(crate) key_env: Option<String>,
    pub(crate) dimensions: Option<usize>,
    pub(crate) shorten: Option<Shorten>,
    pub(crate) query_prefix: Option<String>,
    pub(crate) passage_prefix: Option<String>,
    pub(crate) window_tokens: Option<usize>,
    pub(crate) languages: Option<Reads>,
    pub(crate) batch: Option<usize>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) price: Option<f64>,
    pub(crate) local: Option<bool>,
}

/// Defaults, which the rows of the settings state.
impl EndpointOptions {
    /// Text Embeddings Inference accepts no more by default.
    pub(crate) const BATCH: usize = 32;
    pub(crate) const CONCURRENCY: usize = 4;
    /// A local server may have to load the model first.
    pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
}

/// Where vectors of a Matryoshka model are truncated to the dimensions of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shorten {
    /// At the server, which receives the number of dimensions.
    Server,
    /// In this program, which keeps the first components and scales them to length one.
    Here,
}

/// The settings in `[embedding]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointSettingsError {
    #[error("invalid address")]
    Address(#[from] ParseBaseUrlError),
    #[error("no key")]
    Key(#[from] KeyError),
    #[error("no `base_url`")]
    NoAddress,
    #[error("dimensions of `{model}` are not known")]
    NoDimensions { model: String },
    #[error("`shorten` is set without `dimensions`")]
    ShortenedToNothing,
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl EndpointSettingsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Key(source) => Some(source.hint()),
            Self::NoAddress => {
                Some("name the server in `[embedding]`, for example `base_url = \"http://localhost:11434/v1\"`".into())
            }
            Self::NoDimensions { .. } => {
                Some("set `dimensions` in `[embedding]` to the length of its vectors, for example 768".into())
            }
            Self::ShortenedToNothing => Some("set `dimensions` to the length you want, for example 256".into()),
            Self::Address(_) | Self::Http(_) => None,
        }
    }
}

/// A model at a server, and how it is used.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Name of the model, as the server knows it.
    pub(super) model: String,
    pub(super) server: EmbeddingServer,
    pub(super) key: Option<Secret>,
    /// Components of a vector as it is stored.
    pub(crate) dimensions: usize,
    pub(super) shorten: Option<Shorten>,
    pub(super) query_prefix: String,
    pub(super) passage_prefix: String,
    /// Window in tokens, special ones and prefixes included.
    pub(super) window: usize,
    /// Not part of the fingerprint, since it does not change a vector.
    pub(super) reads: Reads,
    pub(super) timeout: Duration,
}

impl EndpointSettings {
    pub(crate) fn address(&self) -> &BaseUrl {
        &self.server.address
    }

    /// Returns the price of a million tokens in billionths of a dollar, if it is known.
    #[cfg(test)]
    pub(crate) fn price(&self) -> Option<u64> {
        self.server.price
    }
}

impl EndpointOptions {
    /// Resolves the settings for a model. `known_price` is the price of a million tokens from the price table, in
    /// billionths of a dollar.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub(crate) fn resolve(
        &self,
        model: &str,
        environment: &Environment,
        known_price: Option<u64>,
    ) -> Result<EndpointSettings, EndpointSettingsError> {
        let address = BaseUrl::from_str(self.base_url.as_deref().ok_or(EndpointSettingsError::NoAddress)?)?;
        // Other servers receive this key only if the settings name it.
        let usual = address.is_openai().then_some(OPENAI_KEY);
        let key = environment.key_in(self.key_env.as_deref().or(usual))?;
        let dimensions = match (self.dimensions, self.shorten) {
            (None, Some(_)) => return Err(EndpointSettingsError::ShortenedToNothing),
            (Some(dimensions), _) => dimensions,
            (None, None) => known_dimensions(model)
                .ok_or_else(|| EndpointSettingsError::NoDimensions { model: model.to_owned() })?,
        };
        let is_local = address.is_own(self.local);
        // A model with a known price may cost that on the user's own server too, which may forward the requests.
        let price = self.price.map(nanos).or(known_price).or(is_local.then_some(0));
        let family = Family::of(model);
        let prefix = |own: &Option<String>, known: &str| own.clone().unwrap_or_else(|| known.to_owned());
        Ok(EndpointSettings {
            model: model.to_owned(),
            server: EmbeddingServer {
                address,
                is_local,
                price,
                batch: self.batch.unwrap_or(Self::BATCH).max(1),
                concurrency: self.concurrency.unwrap_or(Self::CONCURRENCY).max(1),
            },
            key,
            dimensions,
            shorten: self.shorten,
            query_prefix: prefix(&self.query_prefix, family.query_prefix),
            passage_prefix: prefix(&self.passage_prefix, family.passage_prefix),
            window: self.window_tokens.unwrap_or_else(|| family.window()),
            reads: self.languages.clone().unwrap_or_else(|| Reads::of_model(model)),
            timeout: self.timeout_seconds.map_or(Self::TIMEOUT, Duration::from_secs),
        })
    }
}

fn known_dimensions(model: &str) -> Option<usize> {
    let model = model.to_lowercase();
    DIMENSIONS.iter().find(|(part, _)| model.contains(part)).map(|(_, dimensions)| *dimensions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "http://localhost:11434/v1";
    const ELSEWHERE: &str = "https://embed.example/v1";

    fn at(address: &str) -> EndpointOptions {
        EndpointOptions { base_url: Some(address.to_owned()), ..EndpointOptions::default() }
    }

    fn resolved(options: &EndpointOptions, model: &str, price: Option<u64>) -> EndpointSettings {
        options.resolve(model, &Environment::of([("MINE", "sk-2")]), price).unwrap()
    }

    #[test]
    fn known_model_needs_an_address_alone_and_has_the_prefixes_it_was_trained_with() {
        let settings = resolved(&at(LOCAL), "nomic-embed-text:v1.5", None);
        assert_eq!((settings.dimensions, settings.window, settings.key), (768, 512, None));
        assert_eq!(
            (settings.query_prefix.as_str(), settings.passage_prefix.as_str()),
            ("search_query: ", "search_document: ")
        );
        let own = EndpointOptions { query_prefix: Some(String::new()), ..at(LOCAL) };
        assert_eq!(resolved(&own, "nomic-embed-text", None).query_prefix, "", "an empty prefix is none");
    }

    #[test]
    fn languages_are_told_by_the_name_of_the_model_unless_the_settings_say_them() {
        let reads = |options: &EndpointOptions, model: &str| resolved(options, model, None).reads.to_string();
        assert_eq!((reads(&at(LOCAL), "all-minilm:latest"), reads(&at(LOCAL), "bge-m3")), ("en".into(), "all".into()));
        let own = |text: &str| EndpointOptions { languages: Some(text.parse().unwrap()), ..at(LOCAL) };
        assert_eq!(reads(&own("all"), "all-minilm"), "all");
        assert_eq!(reads(&own("de, en"), "bge-m3"), "de, en");
    }

    #[test]
    fn server_on_this_machine_is_free_and_one_elsewhere_has_its_price_or_none() {
        let price = |options: &EndpointOptions, known| resolved(options, "bge-m3", known).server.price;
        assert_eq!(price(&at(LOCAL), None), Some(0));
        assert_eq!(price(&at(LOCAL), Some(7)), Some(7), "it may pass the requests on");
        assert_eq!(price(&at(ELSEWHERE), None), None);
        assert_eq!(price(&EndpointOptions { price: Some(0.02), ..at(ELSEWHERE) }, Some(7)), Some(20_000_000));
        let own = EndpointOptions { local: Some(true), ..at(ELSEWHERE) };
        assert_eq!((price(&own, None), resolved(&own, "bge-m3", None).server.is_local), (Some(0), true));
        assert!(!resolved(&at(ELSEWHERE), "bge-m3", None).server.is_local);
    }

    #[test]
    fn key_of_openai_goes_to_openai_alone() {
        let environment = Environment::of([(OPENAI_KEY, "sk-1"), ("MINE", "sk-2")]);
        let key = |options: &EndpointOptions| options.resolve("bge-m3", &environment, None).unwrap().key;
        assert_eq!(key(&at("https://api.openai.com/v1")), Some("sk-1".parse().unwrap()));
        assert_eq!(key(&at(ELSEWHERE)), None);
        let own = EndpointOptions { key_env: Some("MINE".into()), ..at(ELSEWHERE) };
        assert_eq!(key(&own), Some("sk-2".parse().unwrap()));
    }

    #[test]
    fn settings_that_cannot_be_used_say_what_is_missing() {
        let refused = |options: &EndpointOptions, model: &str| {
            let error = options.resolve(model, &Environment::default(), None).unwrap_err();
            (error.to_string(), error.hint().is_some())
        };
        assert_eq!(refused(&EndpointOptions::default(), "bge-m3"), ("no `base_url`".into(), true));
        assert_eq!(refused(&at(LOCAL), "mine"), ("dimensions of `mine` are not known".into(), true));
        assert_eq!(refused(&at("https://api.openai.com/v1"), "bge-m3"), ("no key".into(), true));
        let shortened = EndpointOptions { shorten: Some(Shorten::Here), ..at(LOCAL) };
        assert_eq!(refused(&shortened, "bge-m3"), ("`shorten` is set without `dimensions`".into(), true));
    }
}
