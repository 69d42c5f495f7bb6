//! The web as a source: snippets first, pages if snippets are not enough. Pages are stored so that quotes can be
//! verified.
//!
//! ```text
//! query ─▶ providers ─▶ hits ─▶ passages         (search: what an engine shows; no evidence yet)
//!                        │
//!                        └─▶ fetcher ─▶ page ─▶ page store      (open; read returns the stored page)
//! ```
//!
//! All incoming text is untrusted data. Queries and addresses are [`Outbound`], so an address that a model invents
//! cannot be fetched.
//!
//! # Where to look
//!
//! - [`provider`] is shared by all search engines; [`fixture`] is the one without a network. [`polite`] is for those
//!   without a key, [`work`] for those of scholarly works.
//! - [`fetch`] is the only way to a page; [`address`] restricts the machines it may contact, [`robots`] the pages.
//! - [`readable`] converts HTML to text, [`dom`] parses it within limits; [`links`] keeps the addresses a page names;
//!   [`mod@relevant`] selects the parts for a prompt.

mod url;
mod address;
mod robots;
mod polite;
mod provider;
mod searxng;
mod tavily;
mod brave;
mod exa;
mod wikipedia;
mod work;
mod arxiv;
mod open_alex;
mod crossref;
mod europe_pmc;
mod fixture;
mod dom;
mod readable;
mod links;
mod pages;
mod fetch;
mod relevant;
mod search_engine;
mod settings;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};

pub(crate) use self::address::{AllowedHost, ParseAllowedHostError};
pub(crate) use self::fetch::{FetchOptions, Fetcher, html_text};
pub(crate) use self::fixture::{FixtureError, FixtureProvider};
pub(crate) use self::links::{PageLink, links_on};
pub(crate) use self::pages::{PageStore, WebPage};
use self::provider::WebError;
pub(crate) use self::provider::{DateRange, SearchProvider, WebHit, WebQuery, search_patiently};
pub(crate) use self::relevant::{joined, relevant};
#[cfg(test)]
pub(crate) use self::search_engine::EngineClient;
pub(crate) use self::search_engine::SearchEngine;
pub(crate) use self::settings::{WebAccess, WebOptions, WebSettingsError};
pub(crate) use self::url::{WebUrl, named_in};
use super::{Found, Label, Passage, Place, SourceError, SourceFile, Support};
use crate::base::breaker::{Breaker, Guarded, Health};
use crate::base::clock::{Clock, Moment};
use crate::base::line::with_causes;
use crate::base::outbound::Outbound;
use crate::base::word::WordSplitter;

/// Hits of one site in one search, if there are several sites to choose from.
const PER_DOMAIN: usize = 2;

/// Added to the place of a hit in the ranking of one engine, whose reciprocal is its score among several. 60 is the
/// value of the paper, see [`merged`].
const RANK_OFFSET: f32 = 60.0;

/// Factor by which more hits are requested than needed, since some are dropped.
const HITS_PER_PASSAGE: usize = 2;

/// Maximum number of characters of a page returned at once; the whole page is stored.
const MAX_PAGE_CHARS: usize = 60_000;

/// How long a stored page is considered fresh.
const FRESH: Duration = Duration::from_hours(24);

const NAME: &str = "web";

/// A page that was opened, with the links on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenedPage {
    #[serde(flatten)]
    pub(crate) passage: Passage,
    /// Its links. Journals from before pages had any lack them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) links: Vec<PageLink>,
}

/// A page could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Whether its site reports that it does not exist any more.
    pub(crate) is_gone: bool,
    pub(crate) reason: String,
}

/// The web, through search engines and one fetcher.
pub struct WebSource {
    /// Every search asks all of them. Empty if only named pages are opened.
    engines: Vec<GuardedProvider>,
    fetcher: Option<Arc<Fetcher>>,
    pages: PageStore,
    clock: Arc<dyn Clock>,
    dates: DateRange,
    splitter: WordSplitter,
}

/// A search engine behind its circuit breaker. Without a breaker, an engine that is down would delay every search by its
/// retries.
struct GuardedProvider {
    provider: Arc<dyn SearchProvider>,
    breaker: Breaker,
}

impl WebSource {
    /// Returns a source. Without a fetcher, only stored pages can be opened.
    pub(crate) fn new(
        providers: Vec<Arc<dyn SearchProvider>>,
        fetcher: Option<Arc<Fetcher>>,
        pages: PageStore,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let engine = |provider: Arc<dyn SearchProvider>| GuardedProvider {
            breaker: Breaker::of_run(format!("`{}`", provider.name())),
            provider,
        };
        Self {
            engines: providers.into_iter().map(engine).collect(),
            fetcher,
            pages,
            clock,
            dates: DateRange::default(),
            splitter: WordSplitter::default(),
        }
    }

    /// Restricts results to pages from these days and pages without a date.
    #[must_use]
    pub(crate) fn with_dates(self, dates: DateRange) -> Self {
        Self { dates, ..self }
    }

    /// Returns the page at an address, from the store if it is fresh, else fetched.
    async fn page(&self, url: &WebUrl) -> Result<WebPage, Unread> {
        let (pages, stored) = (self.pages.clone(), url.clone());
        let stored = tokio::task::spawn_blocking(move || pages.latest(&stored)).await;
        if let Ok(Some(page)) = stored
            && is_fresh(page.fetched_at, self.clock.now())
        {
            return Ok(page);
        }
        let failed = |reason: String| Unread { is_gone: false, reason };
        let fetcher = self.fetcher.as_ref().ok_or_else(|| failed("fetching pages is disabled".to_owned()))?;
        let page = fetcher.fetch(url).await.map_err(|error| {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Unread { is_gone: error.is_gone(), reason: format!("`{}`: {error}{hint}", url.canonical()) }
        })?;
        // Stored before it is read: quotes are checked against the stored page, so others cannot be quoted.
        let (pages, kept) = (self.pages.clone(), page.clone());
        let put = tokio::task::spawn_blocking(move || pages.put(&kept)).await;
        put.map_err(|error| failed(with_causes(&error)))?.map_err(|error| failed(with_causes(&error)))?;
        Ok(page)
    }

    /// Converts hits to passages in their order: each page once, and few per site.
    fn passages(&self, query: &str, hits: Vec<WebHit>, limit: usize) -> Vec<Passage> {
        let stems = self.splitter.key_stems(query);
        let sites: HashSet<_> = hits.iter().map(|hit| hit.url.domain()).collect();
        // An engine of one site, such as a wiki, has nothing else.
        let most = PER_DOMAIN.max(limit / sites.len().max(1));
        let mut domains: HashMap<String, usize> = HashMap::new();
        let mut passages: Vec<Passage> = Vec::new();
        for hit in hits {
            let id = hit.url.canonical().to_string();
            let of_domain = domains.entry(hit.url.domain().to_owned()).or_default();
            if passages.len() == limit || *of_domain == most || passages.iter().any(|known| known.id == id) {
                continue;
            }
            *of_domain += 1;
            let text = if hit.snippet.is_empty() { hit.title.clone() } else { hit.snippet };
            let score = self.coverage(&stems, &format!("{} {text}", hit.title));
            let published = hit.published.as_deref().and_then(provider::day).map(|day| day.to_string());
            let place = Place::unfetched(id.clone(), hit.title, published);
            passages.push(Passage { score, ..Passage::whole(id, Label::Public, place, text) });
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

    fn opened(id: &str, page: WebPage) -> OpenedPage {
        let end = page.text.char_indices().nth(MAX_PAGE_CHARS).map_or(page.text.len(), |(end, _)| end);
        let text = page.text[..end].to_owned();
        let place = Place::Web {
            url: page.url.to_string(),
            title: page.title,
            published: page.published,
            fetched_at: Some(page.fetched_at.0),
            content_hash: Some(page.content_hash),
        };
        OpenedPage { passage: Passage::whole(id.to_owned(), Label::Public, place, text), links: page.links }
    }

    /// Returns the name of the engines, for reports.
    pub(crate) fn scope(&self) -> String {
        format!("the web ({})", self.engines().map(SearchProvider::name).collect::<Vec<_>>().join(", "))
    }

    fn engines(&self) -> impl Iterator<Item = &dyn SearchProvider> {
        self.engines.iter().map(|engine| &*engine.provider)
    }

    /// Returns the version of everything that results depend on besides the query: the engines, their addresses and the
    /// range of days.
    pub(crate) fn version(&self) -> String {
        let engine = |engine: &dyn SearchProvider| {
            let address = engine.address().map(|address| format!(" at {address}")).unwrap_or_default();
            format!("{}{address}", engine.name())
        };
        let engines = self.engines().map(engine).collect::<Vec<_>>().join("+");
        let day = |day: Option<jiff::civil::Date>| day.map(|day| day.to_string()).unwrap_or_default();
        format!("{engines}:{}..{}", day(self.dates.since), day(self.dates.until))
    }

    /// Searches with all engines. One that fails is noted, if another answers.
    ///
    /// # Errors
    ///
    /// Returns an error if every engine fails in spite of retries.
    pub(crate) async fn search(&self, query: &Outbound, limit: usize) -> Result<Found, SourceError> {
        let asked = WebQuery { text: query.clone(), limit: limit.saturating_mul(HITS_PER_PASSAGE), dates: self.dates };
        let searches = self.engines.iter().map(|GuardedProvider { provider, breaker }| {
            breaker.ask(search_patiently(&**provider, &asked, &*self.clock, rand::random))
        });
        let (mut rankings, mut errors) = (Vec::new(), Vec::new());
        for found in join_all(searches).await {
            match found {
                Ok(hits) => rankings.push(hits),
                Err(error) => errors.push(error),
            }
        }
        let said = |error: &WebError| match error.hint() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        if rankings.is_empty() && !errors.is_empty() {
            let reason = errors.iter().map(said).collect::<Vec<_>>().join("; ");
            // One engine that may answer another query is enough for the web to be there.
            return Err(if errors.iter().any(|error| error.health() == Health::Up) {
                failed(reason)
            } else {
                SourceError::Down { name: NAME.to_owned(), reason }
            });
        }
        let notes = errors.iter().map(|error| format!("a search engine was left out: {}", said(error))).collect();
        let hits = merged(rankings);
        let form = |hit: &WebHit| (hit.url.canonical().to_string(), hit.url.to_string());
        // Of several forms that of the best hit, which is the first.
        let addresses = hits.iter().rev().map(form).filter(|(id, address)| id != address).collect();
        let passages = self.passages(query.as_str(), hits, limit);
        let coverage = passages.iter().map(|passage| passage.score).fold(0.0, f32::max);
        let support = Support::of_coverage(coverage);
        Ok(Found { passages, support, notes, addresses, ..Found::default() })
    }

    pub(crate) async fn open(&self, address: &Outbound) -> Result<OpenedPage, SourceError> {
        let id = address.as_str();
        let url: WebUrl = id.parse().map_err(|_| SourceError::NoSuchPassage { id: id.to_owned() })?;
        let page = self.page(&url).await.map_err(|unread| failed(unread.reason))?;
        Ok(Self::opened(id, page))
    }

    /// Returns the whole text of the page at an address as it is now, or was within the last day.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a web address, or the page cannot be fetched.
    pub(crate) async fn text_now(&self, address: &Outbound) -> Result<String, Unread> {
        let url: WebUrl =
            address.as_str().parse().map_err(|_| Unread { is_gone: false, reason: "not a web address".to_owned() })?;
        Ok(self.page(&url).await?.text)
    }

    /// Returns the stored page of a place, to verify a quote.
    pub(crate) async fn read(&self, place: &Place) -> SourceFile {
        let Place::Web { content_hash: Some(hash), .. } = place else { return SourceFile::Gone };
        let (pages, hash) = (self.pages.clone(), hash.clone());
        let page = tokio::task::spawn_blocking(move || pages.get(&hash)).await;
        page.ok().flatten().map_or(SourceFile::Gone, |page| SourceFile::AsIndexed(page.text))
    }
}

/// Merges the rankings of several engines: the score of a page is the sum of the reciprocals of its places (Cormack,
/// Clarke and Büttcher 2009). Of equals, that of the first engine comes first.
fn merged(rankings: Vec<Vec<WebHit>>) -> Vec<WebHit> {
    let mut scores: HashMap<WebUrl, f32> = HashMap::new();
    for ranking in &rankings {
        // An engine may list a page twice, under two forms of its address.
        let mut seen = HashSet::new();
        for (hit, place) in ranking.iter().zip(1_u8..) {
            let page = hit.url.canonical();
            if seen.insert(page.clone()) {
                *scores.entry(page).or_default() += 1.0 / (RANK_OFFSET + f32::from(place));
            }
        }
    }
    // Duplicates stay: `passages` takes each page once.
    let mut hits: Vec<WebHit> = rankings.into_iter().flatten().collect();
    let score = |hit: &WebHit| scores.get(&hit.url.canonical()).copied().unwrap_or_default();
    hits.sort_by(|a, b| score(b).total_cmp(&score(a)));
    hits
}

/// Returns whether a page need not be fetched again. One from the future never counts: it would stay fresh until then.
fn is_fresh(fetched_at: Moment, now: Moment) -> bool {
    fetched_at <= now && now.since(fetched_at) < FRESH
}

fn failed(reason: String) -> SourceError {
    SourceError::Failed { name: NAME.to_owned(), reason }
}
