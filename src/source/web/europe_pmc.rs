//! Europe PMC: literature of the life sciences, without a key.

use std::time::Duration;

use serde_json::Value;

use super::polite::Pace;
use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery, without_markup};
use super::work::ScholarlyWork;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "europepmc",
    variable: None,
    address: Some("https://www.ebi.ac.uk"),
    // It allows ten requests a second and asks for restraint.
    pace: Some(Pace::new(Duration::from_millis(200))),
};

/// Maximum number of results per search.
const MAX_RESULTS: usize = 25;

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let limit = query.limit.clamp(1, MAX_RESULTS).to_string();
    let words = [("query", asked(query)), ("format", "json".into()), ("resultType", "core".into())];
    let path = "/europepmc/webservices/rest/search";
    let request = client.get(path).query(&words).query(&[("pageSize", limit)]);
    let reply = client.send(request).await?;
    let entries = client.list(&reply, "/resultList/result")?;
    Ok(entries.iter().filter_map(|entry| read(entry).hit()).collect())
}

/// Returns the query in the engine's language, in which brackets, quotes and colons mean something.
fn asked(query: &WebQuery) -> String {
    let words = query.text.as_str().split(|letter: char| !letter.is_alphanumeric() && letter != '-');
    let mut asked = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if let (None, None) = (query.dates.since, query.dates.until) {
        return asked;
    }
    let day = |day: Option<jiff::civil::Date>, open: &str| day.map_or_else(|| open.to_owned(), |day| day.to_string());
    let (since, until) = (day(query.dates.since, "1800-01-01"), day(query.dates.until, "2100-01-01"));
    asked.push_str(&format!(" AND (FIRST_PDATE:[{since} TO {until}])"));
    asked
}

fn read(entry: &Value) -> ScholarlyWork {
    let text = |place: &str| without_markup(entry.pointer(place).and_then(Value::as_str).unwrap_or_default());
    let doi = text("/doi");
    let (source, id) = (text("/source"), text("/id"));
    let own = (!source.is_empty() && !id.is_empty()).then(|| format!("https://europepmc.org/article/{source}/{id}"));
    let authors = text("/authorString");
    let published = text("/firstPublicationDate");
    ScholarlyWork {
        // A work with a DOI is listed under that, as by other engines.
        url: own.filter(|_| doi.is_empty()),
        title: text("/title"),
        authors: authors.trim_end_matches('.').split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        published: if published.is_empty() { text("/pubYear") } else { published },
        venue: text("/journalInfo/journal/title"),
        doi,
        summary: text("/abstractText"),
    }
}
