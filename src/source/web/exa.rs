//! Exa: an engine that finds by meaning, with a key.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::provider::{Endpoint, SearchProvider, WebError, WebHit, WebQuery, hit};
use crate::base::http::{BaseUrl, HttpError, Secret};

/// Name in settings and journals.
pub(super) const NAME: &str = "exa";

/// The variable that holds its key.
pub(super) const VARIABLE: &str = "EXA_API_KEY";

/// Its public address.
const ADDRESS: &str = "https://api.exa.ai";

/// Pages that are asked for at most; more cost more.
const MAX_RESULTS: usize = 25;

/// Letters of a page that are asked for where there is no shorter stretch.
const TEXT_CHARS: usize = 1_000;

/// Exa, or something that speaks as it does.
#[derive(Clone, Debug)]
pub struct Exa {
    endpoint: Endpoint,
    key: Secret,
}

impl Exa {
    /// Sets it up with a key, at its own address where no other is given.
    pub fn new(key: Secret, address: Option<BaseUrl>) -> Result<Self, HttpError> {
        let address = address.unwrap_or_else(|| ADDRESS.parse().expect("the address is one"));
        Ok(Self { endpoint: Endpoint::new(NAME, address, Some(key.clone()))?, key })
    }
}

impl SearchProvider for Exa {
    fn name(&self) -> &'static str {
        NAME
    }

    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        Box::pin(async move {
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
            let request = self.endpoint.post("/search").header("x-api-key", self.key.header()).json(&body);
            let reply = self.endpoint.send(request).await?;
            let entries = self.endpoint.list(&reply, "/results")?;
            Ok(entries.iter().filter_map(read).collect())
        })
    }
}

/// Reads an entry; the stretches that were found come before the beginning of the page.
fn read(entry: &Value) -> Option<WebHit> {
    let highlights = entry["highlights"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let found = highlights.collect::<Vec<_>>().join(" … ");
    let snippet = if found.is_empty() { entry["text"].as_str() } else { Some(found.as_str()) };
    hit(entry, snippet, "publishedDate")
}
