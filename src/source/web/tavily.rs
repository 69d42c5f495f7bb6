//! Tavily: a search API, with a key.

use reqwest::header::AUTHORIZATION;
use serde_json::json;

use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, cut, hit};
use crate::base::http::Secret;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "tavily",
    variable: Some("TAVILY_API_KEY"),
    address: Some("https://api.tavily.com"),
    pace: None,
};

/// Maximum number of results per search, set by Tavily.
const MAX_RESULTS: usize = 20;

/// Longest query, in characters. Tavily refuses longer ones.
const MAX_QUERY_CHARS: usize = 400;

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let mut body = json!({
        "query": cut(query.text.as_str(), MAX_QUERY_CHARS),
        "max_results": query.limit.clamp(1, MAX_RESULTS),
        // `advanced` costs more.
        "search_depth": "basic",
        "include_answer": false,
    });
    for (name, day) in [("start_date", query.dates.since), ("end_date", query.dates.until)] {
        if let Some(day) = day {
            body[name] = day.to_string().into();
        }
    }
    let request = client.signed(client.post("/search"), AUTHORIZATION, Secret::bearer).json(&body);
    let reply = client.send(request).await?;
    let entries = client.list(&reply, "/results")?;
    Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "published_date")).collect())
}
