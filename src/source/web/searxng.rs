//! `SearXNG`: a self-hosted metasearch engine without a key.

use super::provider::{Endpoint, EngineApi, WebError, WebHit, WebQuery, hit};
use crate::base::http::{BaseUrl, HttpError};

/// Name in settings and journals.
pub(super) const NAME: &str = "searxng";

/// Remedy for a rejected search: new installations disable JSON.
const REFUSAL_HINT: &str = "SearXNG answers programs only if its `search.formats` setting lists `json`";

/// The variable that holds its address. There is no public instance to fall back on.
pub(super) const VARIABLE: &str = "SEARXNG_URL";

/// Client for one `SearXNG` instance.
///
/// Its API has no range of dates; results outside the range are dropped after the search if they have a date.
#[derive(Clone, Debug)]
pub(crate) struct SearxNg(Endpoint);

impl SearxNg {
    /// Returns a client for the instance at `address`.
    pub(crate) fn new(address: BaseUrl) -> Result<Self, HttpError> {
        Ok(Self(Endpoint::new(NAME, address, None)?.with_refusal_hint(REFUSAL_HINT)))
    }

    /// Returns a client whose searches time out by another clock.
    #[cfg(test)]
    pub(crate) fn on(self, clock: std::sync::Arc<dyn crate::base::clock::Clock>) -> Self {
        Self(self.0.on(clock))
    }
}

impl EngineApi for SearxNg {
    fn endpoint(&self) -> &Endpoint {
        &self.0
    }

    async fn ask(&self, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
        let words = [("q", query.text.as_str()), ("format", "json")];
        let reply = self.0.send(self.0.get("/search").query(&words)).await?;
        let entries = self.0.list(&reply, "/results")?;
        Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "publishedDate")).collect())
    }
}
