//! `OpenAlex`: an open index of scholarly works. Without a key it allows a few searches a day.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use serde_json::Value;

use super::polite::Pace;
use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, without_markup};
use super::work::ScholarlyWork;
use crate::base::http::Secret;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "openalex",
    variable: Some("OPENALEX_API_KEY"),
    address: Some("https://api.openalex.org"),
    // It allows many requests a second and limits their number by the day.
    pace: Some(Pace::new(Duration::from_millis(100))),
};

/// Maximum number of results per search.
const MAX_RESULTS: usize = 25;

/// The fields that are read.
const FIELDS: &str =
    "doi,display_name,publication_date,authorships,primary_location,best_oa_location,abstract_inverted_index";

/// Maximum number of words of an abstract.
const MAX_WORDS: u64 = 2_000;

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let limit = query.limit.clamp(1, MAX_RESULTS).to_string();
    let mut words =
        vec![("search", query.text.as_str().to_owned()), ("per_page", limit), ("select", FIELDS.to_owned())];
    let since = query.dates.since.map(|day| format!("from_publication_date:{day}"));
    let until = query.dates.until.map(|day| format!("to_publication_date:{day}"));
    let dates: Vec<_> = since.into_iter().chain(until).collect();
    words.extend((!dates.is_empty()).then(|| ("filter", dates.join(","))));
    let request = client.signed(client.get("/works").query(&words), AUTHORIZATION, Secret::bearer);
    let reply = client.send(request).await?;
    let entries = client.list(&reply, "/results")?;
    Ok(entries.iter().filter_map(|entry| read(entry).hit()).collect())
}

fn read(entry: &Value) -> ScholarlyWork {
    let text = |place: &str| without_markup(entry.pointer(place).and_then(Value::as_str).unwrap_or_default());
    let name = |author: &Value| author.pointer("/author/display_name").and_then(Value::as_str).map(str::to_owned);
    // An open copy can be read and quoted; the page behind a DOI may be closed.
    let open = text("/best_oa_location/landing_page_url");
    ScholarlyWork {
        url: (!open.is_empty()).then_some(open),
        title: text("/display_name"),
        authors: entry["authorships"].as_array().into_iter().flatten().filter_map(name).collect(),
        published: text("/publication_date"),
        venue: text("/primary_location/source/display_name"),
        doi: text("/doi"),
        summary: in_order(&entry["abstract_inverted_index"]),
    }
}

/// Returns the abstract, of which `OpenAlex` gives each word with its places.
fn in_order(index: &Value) -> String {
    let mut words = BTreeMap::new();
    for (word, places) in index.as_object().into_iter().flatten() {
        let places = places.as_array().into_iter().flatten().filter_map(Value::as_u64);
        words.extend(places.filter(|place| *place < MAX_WORDS).map(|place| (place, word.as_str())));
    }
    words.into_values().collect::<Vec<_>>().join(" ")
}
