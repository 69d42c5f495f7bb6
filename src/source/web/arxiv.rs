//! arXiv: preprints, without a key.

use std::time::Duration;

use roxmltree::{Document, Node};

use super::polite::Pace;
use super::provider::{EngineFacts, SearchClient, WebError, WebHit, WebQuery};
use super::work::ScholarlyWork;
use crate::base::word::WordSplitter;

pub(super) static FACTS: EngineFacts = EngineFacts {
    name: "arxiv",
    variable: None,
    address: Some("https://export.arxiv.org"),
    // Its terms of use: one request every three seconds, over one connection.
    pace: Some(Pace::new(Duration::from_secs(3))),
};

/// Maximum number of results per search.
const MAX_RESULTS: usize = 25;

/// Maximum number of words of a query.
const MAX_WORDS: usize = 12;

pub(super) async fn ask(client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
    let limit = query.limit.clamp(1, MAX_RESULTS).to_string();
    let words = [("search_query", asked(query)), ("max_results", limit), ("sortBy", "relevance".into())];
    let reply = client.send_text(client.get("/api/query").query(&words)).await?;
    // Without document types, so an entity cannot expand.
    let document = Document::parse(&reply).ok();
    let feed = document.as_ref().map(Document::root_element).filter(|root| root.tag_name().name() == "feed");
    let feed = feed.ok_or_else(|| client.bad_reply("not Atom"))?;
    let entries = feed.children().filter(|node| node.tag_name().name() == "entry");
    Ok(entries.filter_map(|entry| read(&entry).hit()).collect())
}

/// Returns the query in the engine's language: any of the words, best matches first, within the dates.
fn asked(query: &WebQuery) -> String {
    let words = WordSplitter::default().without_stop_words(query.text.as_str());
    // Quotes, brackets and colons have a meaning in the engine's language.
    let words = words.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let any = words.take(MAX_WORDS).map(|word| format!("all:{word}")).collect::<Vec<_>>().join(" OR ");
    if let (None, None) = (query.dates.since, query.dates.until) {
        return any;
    }
    let day = |day: Option<jiff::civil::Date>, open: &str, time: &str| {
        let day = day.map_or_else(|| open.to_owned(), |day| day.strftime("%Y%m%d").to_string());
        format!("{day}{time}")
    };
    // A range has two ends. arXiv has nothing from before 1991.
    let since = day(query.dates.since, "19900101", "0000");
    let until = day(query.dates.until, "21000101", "2359");
    format!("({any}) AND submittedDate:[{since} TO {until}]")
}

fn read(entry: &Node<'_, '_>) -> ScholarlyWork {
    let children = |name: &'static str| entry.children().filter(move |child| child.tag_name().name() == name);
    let text = |name: &'static str| {
        children(name).find_map(|child| child.text().map(|text| text.trim().to_owned())).unwrap_or_default()
    };
    let author = |author: Node<'_, '_>| {
        let name = author.children().find(|child| child.tag_name().name() == "name")?;
        name.text().map(|name| name.trim().to_owned())
    };
    let venue = text("journal_ref");
    ScholarlyWork {
        // Its ids are plain HTTP addresses of pages that are served over HTTPS as well.
        url: Some(text("id").replacen("http://", "https://", 1)),
        title: text("title"),
        authors: children("author").filter_map(author).collect(),
        published: text("published"),
        venue: if venue.is_empty() { "arXiv".to_owned() } else { venue },
        doi: text("doi"),
        summary: text("summary"),
    }
}
