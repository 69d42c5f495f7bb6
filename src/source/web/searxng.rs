//! `SearXNG`: a self-hosted metasearch engine without a key.

use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, hit};

pub(super) static FACTS: EngineFacts =
    EngineFacts { name: "searxng", variable: Some("SEARXNG_URL"), address: None, pace: None };

/// Remedy for a rejected search: new installations disable JSON.
pub(super) const REFUSAL_HINT: &str = "SearXNG answers programs only if its `search.formats` setting lists `json`";

/// Asks an instance. Its API has no range of dates; results outside the range are dropped after the search if they have
/// a date.
pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let words = [("q", query.text.as_str()), ("format", "json")];
    let reply = client.send(client.get("/search").query(&words)).await?;
    let entries = client.list(&reply, "/results")?;
    Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "publishedDate")).collect())
}
