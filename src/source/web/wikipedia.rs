//! Wikipedia, or another wiki on `MediaWiki`, without a key.

use std::time::Duration;

use serde_json::Value;

use super::polite::Pace;
use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, cut, page, without_markup};

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "wikipedia",
    variable: None,
    // The English one. Those in other languages are set as `base_url`.
    address: Some("https://en.wikipedia.org"),
    // Wikimedia asks for one request after the other, and sets no time between them.
    pace: Some(Pace::new(Duration::ZERO)),
};

/// Maximum number of results per search.
const MAX_RESULTS: usize = 50;

/// Longest query, in characters. `MediaWiki` refuses longer ones.
const MAX_QUERY_CHARS: usize = 300;

/// Asks a wiki. Its API has no range of dates.
pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let limit = query.limit.clamp(1, MAX_RESULTS).to_string();
    let words = [("q", cut(query.text.as_str(), MAX_QUERY_CHARS)), ("limit", limit)];
    let reply = client.send(client.get("/w/rest.php/v1/search/page").query(&words)).await?;
    let entries = client.list(&reply, "/pages")?;
    Ok(entries.iter().filter_map(|entry| read(client, entry)).collect())
}

/// Parses one result: the `key` of a page is its title in its address.
fn read(client: &SearchClient, entry: &Value) -> Option<WebHit> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let key = Some(text("key")).filter(|key| !key.is_empty())?;
    let url = client.address.with_segments(&["wiki", key]);
    let excerpt = without_markup(text("excerpt"));
    let snippet = match text("description") {
        "" => excerpt,
        description => format!("{description}: {excerpt}"),
    };
    page(&url, &format!("{} (Wikipedia)", text("title")), &snippet, None)
}
