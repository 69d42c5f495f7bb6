//! Crossref: scholarly works as registered by their publishers, without a key.

use std::time::Duration;

use serde_json::Value;

use super::polite::{Contact, Pace};
use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, without_markup};
use super::work::ScholarlyWork;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "crossref",
    variable: None,
    address: Some("https://api.crossref.org"),
    // Its public pool allows one request a second for lists.
    pace: Some(Pace::new(Duration::from_secs(1))),
};

/// Maximum number of results per search.
const MAX_RESULTS: usize = 20;

/// The fields that are read; a whole record has lists of references.
const FIELDS: &str = "DOI,title,author,container-title,issued,abstract";

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let mut words = vec![
        ("query", query.text.as_str().to_owned()),
        ("rows", query.limit.clamp(1, MAX_RESULTS).to_string()),
        ("select", FIELDS.to_owned()),
    ];
    let since = query.dates.since.map(|day| format!("from-pub-date:{day}"));
    let until = query.dates.until.map(|day| format!("until-pub-date:{day}"));
    let dates: Vec<_> = since.into_iter().chain(until).collect();
    words.extend((!dates.is_empty()).then(|| ("filter", dates.join(","))));
    // Crossref asks for it, and may limit requests without.
    let mail = client.contact.as_ref().and_then(Contact::mail);
    words.extend(mail.map(|mail| ("mailto", mail.to_owned())));
    let reply = client.send(client.get("/works").query(&words)).await?;
    let entries = client.list(&reply, "/message/items")?;
    Ok(entries.iter().filter_map(|entry| read(entry).hit()).collect())
}

fn read(entry: &Value) -> ScholarlyWork {
    let text = |place: &str| without_markup(entry.pointer(place).and_then(Value::as_str).unwrap_or_default());
    let author = |author: &Value| {
        let part = |name: &str| author[name].as_str().unwrap_or_default();
        let name = format!("{} {}", part("given"), part("family")).trim().to_owned();
        // An organisation has a `name` in place of the two parts.
        if name.is_empty() { part("name").to_owned() } else { name }
    };
    let authors = entry["author"].as_array().into_iter().flatten().map(author);
    let date = entry.pointer("/issued/date-parts/0").and_then(Value::as_array).into_iter().flatten();
    ScholarlyWork {
        url: None,
        title: text("/title/0"),
        authors: authors.filter(|name| !name.is_empty()).collect(),
        published: date.filter_map(Value::as_u64).map(|part| format!("{part:02}")).collect::<Vec<_>>().join("-"),
        venue: text("/container-title/0"),
        doi: text("/DOI"),
        summary: text("/abstract"),
    }
}
