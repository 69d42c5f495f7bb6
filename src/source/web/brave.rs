//! Brave Search: an engine with its own index, with a key.

use jiff::civil::{Date, date};
use reqwest::header::HeaderName;
use serde_json::Value;

use super::provider::{DateRange, EngineFacts, SearchClient, WebError, WebHit, WebQuery, cut, hit, without_markup};
use crate::base::http::Secret;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "brave",
    variable: Some("BRAVE_API_KEY"),
    address: Some("https://api.search.brave.com"),
    pace: None,
};

/// Maximum number of results per search, set by Brave.
const MAX_RESULTS: usize = 20;

/// Longest query, in characters. Brave refuses longer ones, and those of more words.
const MAX_QUERY_CHARS: usize = 400;

const MAX_QUERY_WORDS: usize = 50;

/// Dates sent for an open end of a range: Brave requires both.
const FIRST_DAY: Date = date(1990, 1, 1);
const LAST_DAY: Date = date(2100, 1, 1);

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let words: Vec<_> = query.text.as_str().split_whitespace().take(MAX_QUERY_WORDS).collect();
    let count = query.limit.clamp(1, MAX_RESULTS).to_string();
    let mut asked =
        vec![("q", cut(&words.join(" "), MAX_QUERY_CHARS)), ("count", count), ("text_decorations", "false".to_owned())];
    asked.extend(freshness(query.dates).map(|dates| ("freshness", dates)));
    let request = client.get("/res/v1/web/search").query(&asked);
    let request = client.signed(request, HeaderName::from_static("x-subscription-token"), Secret::header);
    let reply = client.send(request).await?;
    // Without results, Brave omits the list.
    if reply.is_object() && reply["web"].is_null() {
        return Ok(Vec::new());
    }
    let entries = client.list(&reply, "/web/results")?;
    Ok(entries.iter().filter_map(read).collect())
}

fn read(entry: &Value) -> Option<WebHit> {
    let snippet = entry["description"].as_str().map(without_markup);
    hit(entry, snippet.as_deref(), "page_age")
}

fn freshness(dates: DateRange) -> Option<String> {
    let is_open = dates == DateRange::default();
    let (since, until) = (dates.since.unwrap_or(FIRST_DAY), dates.until.unwrap_or(LAST_DAY));
    (!is_open).then(|| format!("{since}to{until}"))
}
