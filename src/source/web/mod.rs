//! The web as a source: snippets first, a page when they do not answer, each page kept so that quotes can be checked.
//!
//! ```text
//! query ─▶ provider ─▶ hits ─▶ passages          (search: what an engine shows, borne out by nobody)
//!                        │
//!                        └─▶ fetcher ─▶ page ─▶ page store      (open; read gives what was stored)
//! ```
//!
//! Everything that comes in is data of strangers. No address is fetched because a page or a model names it: only those
//! a search of this source returned, or the user's own words name, are opened.
//!
//! # Where to look
//!
//! - [`provider`] is what all search engines share, [`fixture`] the one without a network.
//! - [`fetch`] is the one way to a page; [`address`] says which machines may be asked, [`robots`] which pages.
//! - [`readable`] makes HTML text, [`dom`] within limits; [`mod@relevant`] finds what of it a prompt should take.

mod url;

mod address;

mod robots;

mod provider;

mod searxng;

mod tavily;

mod brave;

mod exa;

mod fixture;

mod dom;

mod readable;

mod pages;

mod fetch;

mod relevant;

mod search_engine;

mod settings;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;

pub use self::address::{AllowedHost, ParseAllowedHostError};
pub use self::brave::Brave;
pub use self::exa::Exa;
pub use self::fetch::{FetchError, FetchOptions, Fetcher};
pub use self::fixture::{FixtureError, FixtureProvider};
pub use self::pages::{Page, PageStore, PageStoreError};
pub use self::provider::{DateRange, SearchProvider, WebError, WebHit, WebQuery, search_patiently};
pub use self::relevant::{joined, relevant};
pub use self::search_engine::SearchEngine;
pub use self::searxng::SearxNg;
pub use self::settings::{WebAccess, WebEnvironment, WebOptions, WebSettingsError};
pub use self::tavily::Tavily;
pub use self::url::{ParseWebUrlError, WebUrl, named_in};
use super::{Found, Label, Passage, Place, Source, SourceError, SourceFile, Support};
use crate::base::clock::Clock;
use crate::base::line::with_causes;
use crate::base::word::WordSplitter;
use crate::kb::search::Signals;

/// Hits of one site in one search, at most.
const MAX_PER_DOMAIN: usize = 2;

/// Hits that are asked for where some will be left out, for each that is wanted.
const HITS_PER_PASSAGE: usize = 2;

/// Letters of a page that are given at once; all of it is stored.
const MAX_PAGE_CHARS: usize = 60_000;

/// How long a page that was fetched stands for what is there now.
const FRESH: Duration = Duration::from_hours(24);

/// Searches in a row that may fail, after all retries, before the engine is not asked any more.
const MAX_FAILED_SEARCHES: u32 = 2;

/// The name of this source.
const NAME: &str = "web";

/// The web, through one search engine and one fetcher.
pub struct WebSource {
    provider: Arc<dyn SearchProvider>,
    fetcher: Option<Arc<Fetcher>>,
    pages: PageStore,
    clock: Arc<dyn Clock>,
    dates: DateRange,
    splitter: WordSplitter,
    /// Searches in a row that failed. An engine that is down would cost every worker all its retries.
    failed_searches: AtomicU32,
    /// What may be opened: addresses a search returned or the user named, by the form they are counted under.
    known: Mutex<HashMap<WebUrl, WebUrl>>,
}

impl WebSource {
    /// Puts engine, fetcher and store together; without a fetcher no page is opened that is not stored.
    pub fn new(
        provider: Arc<dyn SearchProvider>,
        fetcher: Option<Arc<Fetcher>>,
        pages: PageStore,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            provider,
            fetcher,
            pages,
            clock,
            dates: DateRange::default(),
            splitter: WordSplitter::default(),
            failed_searches: AtomicU32::new(0),
            known: Mutex::default(),
        }
    }

    /// Takes only pages of these days, and those of which nobody knows the day.
    #[must_use]
    pub fn with_dates(self, dates: DateRange) -> Self {
        Self { dates, ..self }
    }

    /// Lets addresses be opened; never give it one that only a model or a page names.
    fn permit(&self, urls: impl IntoIterator<Item = WebUrl>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for url in urls {
            known.entry(url.canonical()).or_insert(url);
        }
    }

    /// Returns the page at an address: as it is stored, else as it is now.
    async fn page(&self, url: &WebUrl) -> Result<Page, SourceError> {
        let (pages, stored) = (self.pages.clone(), url.clone());
        let stored = tokio::task::spawn_blocking(move || pages.latest(&stored)).await;
        if let Ok(Some(page)) = stored
            && self.clock.now().since(page.fetched_at) < FRESH
        {
            return Ok(page);
        }
        let fetcher = self.fetcher.as_ref().ok_or_else(|| failed("pages are not fetched".to_owned()))?;
        let page = fetcher.fetch(url).await.map_err(|error| failed(format!("`{}`: {error}", url.canonical())))?;
        let (pages, kept) = (self.pages.clone(), page.clone());
        let put = tokio::task::spawn_blocking(move || pages.put(&kept)).await;
        put.map_err(|error| failed(with_causes(&error)))?.map_err(|error| failed(with_causes(&error)))?;
        Ok(page)
    }

    /// Makes hits passages: each page once, few of one site, those that fit best by the engine's order first.
    fn passages(&self, query: &str, hits: Vec<WebHit>, limit: usize) -> Vec<Passage> {
        let stems = self.splitter.key_stems(query);
        let mut domains: HashMap<String, usize> = HashMap::new();
        let mut passages: Vec<Passage> = Vec::new();
        for hit in hits {
            let id = hit.url.canonical().to_string();
            let of_domain = domains.entry(hit.url.domain().to_owned()).or_default();
            if passages.len() == limit || *of_domain == MAX_PER_DOMAIN || passages.iter().any(|known| known.id == id) {
                continue;
            }
            *of_domain += 1;
            let text = if hit.snippet.is_empty() { hit.title.clone() } else { hit.snippet };
            let score = self.coverage(&stems, &format!("{} {text}", hit.title));
            passages.push(Passage {
                place: Place::Web { url: id.clone(), title: hit.title, fetched_at: None, content_hash: None },
                id,
                label: Label::Public,
                snippet: text.clone(),
                text,
                score,
            });
        }
        passages
    }

    /// Returns the share of the query's key words that a text has.
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    fn coverage(&self, stems: &[String], text: &str) -> f32 {
        let words = self.splitter.words(text);
        let is_in = |stem: &&String| words.iter().any(|word| word.stem == **stem);
        stems.iter().filter(is_in).count() as f32 / stems.len().max(1) as f32
    }

    fn opened(id: &str, page: Page) -> Passage {
        let end = page.text.char_indices().nth(MAX_PAGE_CHARS).map_or(page.text.len(), |(end, _)| end);
        let text = page.text[..end].to_owned();
        Passage {
            id: id.to_owned(),
            label: Label::Public,
            snippet: text.clone(),
            text,
            score: 1.0,
            place: Place::Web {
                url: page.url.to_string(),
                title: page.title,
                fetched_at: Some(page.fetched_at.0),
                content_hash: Some(page.content_hash),
            },
        }
    }
}

impl Source for WebSource {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scope(&self) -> String {
        format!("the web ({})", self.provider.name())
    }

    fn version(&self) -> String {
        let day = |day: Option<jiff::civil::Date>| day.map(|day| day.to_string()).unwrap_or_default();
        format!("{}:{}..{}", self.provider.name(), day(self.dates.since), day(self.dates.until))
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let asked =
                WebQuery { text: query.to_owned(), limit: limit.saturating_mul(HITS_PER_PASSAGE), dates: self.dates };
            if self.failed_searches.load(Ordering::SeqCst) >= MAX_FAILED_SEARCHES {
                let engine = self.provider.name();
                return Err(failed(format!(
                    "`{engine}` is not asked any more: {MAX_FAILED_SEARCHES} searches in a row failed"
                )));
            }
            let hits = match search_patiently(&*self.provider, &asked, &*self.clock, rand::random).await {
                Ok(hits) => {
                    self.failed_searches.store(0, Ordering::SeqCst);
                    hits
                }
                Err(error) => {
                    self.failed_searches.fetch_add(1, Ordering::SeqCst);
                    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                    return Err(failed(format!("{error}{hint}")));
                }
            };
            self.permit(hits.iter().map(|hit| hit.url.clone()));
            let passages = self.passages(query, hits, limit);
            let coverage = passages.iter().map(|passage| passage.score).fold(0.0, f32::max);
            let support = Support::judge(Signals { similarity: None, coverage });
            Ok(Found { passages, support, notes: Vec::new() })
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let url = id.parse::<WebUrl>().ok().and_then(|url| {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.get(&url.canonical()).cloned()
            });
            let url = url.ok_or_else(|| SourceError::NoSuchPassage { id: id.to_owned() })?;
            Ok(Self::opened(id, self.page(&url).await?))
        })
    }

    fn recognise(&self, found: &Found) {
        self.permit(found.passages.iter().filter_map(|passage| passage.id.parse().ok()));
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        Box::pin(async move {
            let Place::Web { content_hash: Some(hash), .. } = place else { return SourceFile::Gone };
            let (pages, hash) = (self.pages.clone(), hash.clone());
            let page = tokio::task::spawn_blocking(move || pages.get(&hash)).await;
            page.ok().flatten().map_or(SourceFile::Gone, |page| SourceFile::AsIndexed(page.text))
        })
    }
}

fn failed(reason: String) -> SourceError {
    SourceError::Failed { name: NAME.to_owned(), reason }
}
