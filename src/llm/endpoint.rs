//! Resolves the address of a model endpoint and the key to send to it.

use crate::base::environment::{Environment, KeyError, OPENAI_BASE_URL, OPENAI_KEY};
use crate::base::http::{BaseUrl, OPENAI_HOST, ParseBaseUrlError, Secret};

/// Address of OpenAI's API.
pub(crate) const OPENAI: &str = "https://api.openai.com/v1";

/// An address, and the key to send to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelEndpoint {
    pub(crate) address: BaseUrl,
    /// The key; `None` sends no key.
    pub(crate) key: Option<Secret>,
}

/// An endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error(transparent)]
    Address(ParseBaseUrlError),
    /// `key_env` leads to no key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl ModelEndpoint {
    /// Resolves the settings `base_url` and `key_env`.
    ///
    /// `OPENAI_API_KEY` is sent to OpenAI and to the address in `OPENAI_BASE_URL`, because users set those two
    /// together. Any other address gets a key only through `key_env`, so that a key never reaches an address it was
    /// not issued for.
    pub(crate) fn resolve(
        base_url: Option<&str>,
        key_env: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, EndpointError> {
        let address = base_url.or_else(|| environment.get(OPENAI_BASE_URL)).unwrap_or(OPENAI);
        let address: BaseUrl = address.parse().map_err(EndpointError::Address)?;
        // Compared by host, because `base_url` may also spell out OpenAI's own address.
        let is_paired = base_url.is_none() || address.is_openai();
        // Only if it is set: `key_in` refuses a variable without a value, and a server may need no key.
        let usual = (is_paired && environment.get(OPENAI_KEY).is_some()).then_some(OPENAI_KEY);
        let key = environment.key_in(key_env.or(usual))?;
        Ok(Self { address, key })
    }
}

/// Hosts of providers that speak the API of OpenAI, with their names in the `GenAI` conventions. A host that begins
/// with a dot matches every host with that suffix.
const PROVIDERS: [(&str, &str); 12] = [
    (OPENAI_HOST, "openai"),
    (".openai.azure.com", "azure.ai.openai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    (".aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.anthropic.com", "anthropic"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "x_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.moonshot.ai", "moonshot_ai"),
    (".cohere.com", "cohere"),
];

/// Returns the provider at an address, for traces.
pub(crate) fn provider(address: &BaseUrl) -> &'static str {
    let is_at = |host: &str| address.host() == host || host.starts_with('.') && address.host().ends_with(host);
    let known = PROVIDERS.iter().find(|(host, _)| is_at(host));
    known.map_or("openai_compatible", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_known_by_its_host() {
        for (address, name) in [
            (OPENAI, "openai"),
            ("https://mine.openai.azure.com/v1", "azure.ai.openai"),
            ("https://api.groq.com/openai/v1", "groq"),
            ("https://notapi.openai.com/v1", "openai_compatible"),
            (LOCAL, "openai_compatible"),
        ] {
            assert_eq!(provider(&address.parse().unwrap()), name, "{address}");
        }
    }

    const LOCAL: &str = "http://localhost:9999/v1";

    #[test]
    fn openai_key_goes_only_to_openai_and_to_the_address_set_with_it() {
        let key = |base_url, key_env, beside: Option<&str>| {
            let environment = [(OPENAI_KEY, "sk-1"), ("MINE", "sk-2"), (OPENAI_BASE_URL, beside.unwrap_or(""))];
            ModelEndpoint::resolve(base_url, key_env, &Environment::of(environment)).unwrap().key
        };
        let (openai, mine) = (Some("sk-1".parse().unwrap()), Some("sk-2".parse().unwrap()));
        assert_eq!(key(None, None, None), openai);
        assert_eq!(key(Some(OPENAI), None, None), openai);
        assert_eq!(key(None, None, Some(LOCAL)), openai);
        assert_eq!(key(Some(LOCAL), None, None), None);
        assert_eq!(key(Some(LOCAL), None, Some(OPENAI)), None);
        assert_eq!(key(Some(LOCAL), Some("MINE"), None), mine);
        assert_eq!(key(None, Some("MINE"), None), mine);
    }
}
