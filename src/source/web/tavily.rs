//! Tavily: a search API, with a key.

use reqwest::header::AUTHORIZATION;
use serde_json::json;

use super::provider::{Endpoint, EngineApi, WebError, WebHit, WebQuery, cut, hit};
use crate::base::http::{BaseUrl, HttpError, Secret};

/// Name in settings and journals.
pub(super) const NAME: &str = "tavily";

/// The variable that holds its key.
pub(super) const VARIABLE: &str = "TAVILY_API_KEY";

/// Its public address.
const ADDRESS: &str = "https://api.tavily.com";

/// Most results per search, set by Tavily.
const MAX_RESULTS: usize = 20;

/// Longest query, in characters. Tavily refuses longer ones.
const MAX_QUERY_CHARS: usize = 400;

/// Client for Tavily or a compatible API.
#[derive(Clone, Debug)]
pub(crate) struct Tavily {
    endpoint: Endpoint,
    key: Secret,
}

impl Tavily {
    /// Returns a client. `None` as the address selects Tavily's public one.
    pub(crate) fn new(key: Secret, address: Option<BaseUrl>) -> Result<Self, HttpError> {
        Ok(Self { endpoint: Endpoint::keyed(NAME, key.clone(), address, ADDRESS)?, key })
    }
}

impl EngineApi for Tavily {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    async fn ask(&self, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
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
        let request = self.endpoint.post("/search").header(AUTHORIZATION, self.key.bearer()).json(&body);
        let reply = self.endpoint.send(request).await?;
        let entries = self.endpoint.list(&reply, "/results")?;
        Ok(entries.iter().filter_map(|entry| hit(entry, entry["content"].as_str(), "published_date")).collect())
    }
}
