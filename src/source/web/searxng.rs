//! `SearXNG`: a metasearch engine that users run themselves; it takes no key.

use std::time::Duration;

use futures::future::BoxFuture;

use super::provider::{Endpoint, SearchProvider, WebError, WebHit, WebQuery, hit};
use crate::base::http::{BaseUrl, HttpError};

/// Name in settings and journals.
pub(super) const NAME: &str = "searxng";

/// What helps where it refuses a search.
const REFUSAL_HINT: &str = "SearXNG answers programs only if its `search.formats` setting lists `json`";

/// The variable that holds its address: it has no public one, and needs no key.
pub(super) const VARIABLE: &str = "SEARXNG_URL";

/// A `SearXNG` at an address.
///
/// It knows no range of dates: what is outside is dropped where a date is known.
#[derive(Clone, Debug)]
pub struct SearxNg(Endpoint);

impl SearxNg {
    /// Sets up the engine at an address; there is no public one to fall back on.
    pub fn new(address: BaseUrl) -> Result<Self, HttpError> {
        Ok(Self(Endpoint::new(NAME, address, None)?.with_refusal_hint(REFUSAL_HINT)))
    }

    /// Returns the same engine, of which one search may take no longer than `most` either.
    #[must_use]
    pub fn within(self, most: Duration) -> Self {
        Self(self.0.within(most))
    }
}

impl SearchProvider for SearxNg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        Box::pin(async move {
            let words = [("q", query.text.as_str()), ("format", "json")];
            let reply = self.0.send(self.0.get("/search").query(&words)).await?;
            let entries = self.0.list(&reply, "/results")?;
            Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "publishedDate")).collect())
        })
    }
}
