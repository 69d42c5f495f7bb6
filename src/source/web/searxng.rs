//! `SearXNG`: a self-hosted metasearch engine without a key.

use super::provider::{Endpoint, WebError, WebHit, WebQuery, hit};

/// Name in settings and journals.
pub(super) const NAME: &str = "searxng";

/// Remedy for a rejected search: new installations disable JSON.
pub(super) const REFUSAL_HINT: &str = "SearXNG answers programs only if its `search.formats` setting lists `json`";

/// The variable that holds its address. There is no public instance to fall back on.
pub(super) const VARIABLE: &str = "SEARXNG_URL";

/// Asks an instance. Its API has no range of dates; results outside the range are dropped after the search if they have
/// a date.
pub(super) async fn ask(endpoint: &Endpoint, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let words = [("q", query.text.as_str()), ("format", "json")];
    let reply = endpoint.send(endpoint.get("/search").query(&words)).await?;
    let entries = endpoint.list(&reply, "/results")?;
    Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "publishedDate")).collect())
}
