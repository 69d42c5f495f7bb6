//! Exa: a semantic search engine, with a key.

use reqwest::header::HeaderName;
use serde_json::{Value, json};

use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, hit};
use crate::base::http::Secret;

pub(super) static FACTS: EngineFacts =
    EngineFacts { name: "exa", variable: Some("EXA_API_KEY"), address: Some("https://api.exa.ai"), pace: None };

/// Maximum number of results per search; Exa charges more beyond that.
const MAX_RESULTS: usize = 25;

/// Characters requested from the beginning of a page, used if it has no highlights.
const TEXT_CHARS: usize = 1_000;

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let mut body = json!({
        "query": query.text,
        "numResults": query.limit.clamp(1, MAX_RESULTS),
        "contents": { "highlights": true, "text": { "maxCharacters": TEXT_CHARS } },
    });
    if let Some(day) = query.dates.since {
        body["startPublishedDate"] = format!("{day}T00:00:00.000Z").into();
    }
    if let Some(day) = query.dates.until {
        body["endPublishedDate"] = format!("{day}T23:59:59.999Z").into();
    }
    let request =
        client.signed(client.post("/search"), HeaderName::from_static("x-api-key"), Secret::header).json(&body);
    let reply = client.send(request).await?;
    let entries = client.list(&reply, "/results")?;
    Ok(entries.iter().filter_map(read).collect())
}

/// Parses one result. Highlights take precedence over the beginning of the page.
fn read(entry: &Value) -> Option<WebHit> {
    let highlights = entry["highlights"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let found = highlights.collect::<Vec<_>>().join(" … ");
    let snippet = if found.is_empty() { entry["text"].as_str() } else { Some(found.as_str()) };
    hit(entry, snippet, "publishedDate")
}
