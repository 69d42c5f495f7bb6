//! The source of one node: the knowledge base for a worker inside, the web for a worker or job outside.
//!
//! ```text
//! worker inside ──▶ Inside:  record? ─▶ ask ─▶ keep
//! worker outside ─▶ Outside: pages the user named, record? ─▶ tripwire, egress log ─▶ ask in time ─▶ keep
//! cited pages ────▶ WebPages: the same without a search
//! ```
//!
//! Between a worker and the network stand this source, [`WebSource`] and a search engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tracing::{Instrument, Span, debug_span};

use super::background::Finished;
use super::cache::{Cache, normalised};
use super::egress::{Egress, OWN_SITE, OutgoingText};
use super::journal::{EgressKind, Lookup, LookupTerms, LookupTool};
use super::ranker::{HitRanker, Unranked};
use super::reader::PageReader;
use super::servers::{Arguments, NodeServers};
use super::shared::Shared;
use crate::base::id::ContentHash;
use crate::base::mutex::locked;
use crate::base::outbound::{MayLeave, Outbound, Voucher};
use crate::research::node::NodeId;
use crate::source::web::{OpenedPage, PageLink, WebSource, WebUrl, links_on, named_in};
use crate::source::{Documents, Found, Label, OfferedTool, Passage, Place, Source, SourceError, SourceFile, Support};
use crate::traces::attach;

/// Maximum number of pages that are taken from the user's words. They come first in every search.
const MAX_NAMED: usize = 5;

/// Heads the links of a page that are shown with it.
const LINKS: &str = "Links of this page:";

/// Note of a worker that can look outside but has no search engine.
const NO_ENGINE: &str = "the web was not searched: no search engine is set up";

const WEB: &str = "web";

/// The knowledge base, for one node.
pub(crate) struct Inside {
    pub(super) source: Arc<dyn Source>,
    pub(super) cache: Cache,
    pub(super) egress: Egress,
    pub(super) node: NodeId,
    /// The version of the index when the run began.
    pub(super) version: String,
    /// Tools of internal servers, for a worker with a model.
    pub(super) servers: Option<NodeServers<str>>,
    /// Orders the hits of a worker, if the run has its model do that.
    pub(super) ranker: Option<HitRanker>,
}

impl Inside {
    /// Returns why tools of servers are not offered.
    pub(crate) fn notes(&self) -> &[String] {
        self.servers.as_ref().map_or(&[], NodeServers::notes)
    }

    fn lookup(&self, tool: LookupTool, query: String, terms: LookupTerms) -> Lookup {
        Lookup {
            node: self.node.clone(),
            tool,
            query,
            scope: self.source.scope(),
            label: Label::Internal,
            version: self.version.clone(),
            terms,
        }
    }

    /// Searches and orders the hits. The result is recorded for every run if the model ordered them, and for this one
    /// alone if it did not: another run may have the budget, or a model that answers.
    async fn ranked(
        &self,
        ranker: &HitRanker,
        lookup: Lookup,
        query: &str,
        limit: usize,
    ) -> Result<Found, SourceError> {
        let ranked = Lookup { version: format!("{}, {ranker}", self.version), ..lookup.clone() };
        let fused = Lookup { terms: LookupTerms { is_of_run: true, ..lookup.terms }, ..ranked.clone() };
        if let Some(found) = self.cache.recorded(&fused).await? {
            return Ok(found);
        }
        let ask = async {
            let found = asking(self.source.search(query, ranker.wanted(limit))).await?;
            ranker.ranked(&self.node, query, found, limit).await
        };
        match self.cache.answer(ranked, Box::pin(ask)).await {
            Err(Unranked::Fused(found)) => Ok(self.cache.keep(&fused, *found).await?),
            Err(Unranked::Failed(error)) => Err(error),
            Ok(found) => Ok(found),
        }
    }
}

impl Documents for Inside {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        let opened = async move {
            let ask = asking(self.source.open(id));
            let lookup = self.lookup(LookupTool::KbOpen, id.to_owned(), LookupTerms::default());
            let passage: Passage = self.cache.answer(lookup, ask).await?;
            self.egress.shown(std::slice::from_ref(&passage));
            Ok(passage)
        };
        Box::pin(spanned(debug_span!("fetch", source = self.source.name()), opened))
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        match (&self.servers, place) {
            (Some(servers), Place::Mcp { server, .. }) => Box::pin(servers.read(server, place)),
            _ => self.source.read(place),
        }
    }
}

impl Source for Inside {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn scope(&self) -> String {
        self.source.scope()
    }

    fn about(&self) -> &[String] {
        self.source.about()
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        let searched = async move {
            attach::text("query", || query.to_owned());
            let terms = LookupTerms { max_hits: Some(limit), ..LookupTerms::default() };
            let lookup = self.lookup(LookupTool::KbSearch, normalised(query), terms);
            let found = match &self.ranker {
                Some(ranker) => self.ranked(ranker, lookup, query, limit).await?,
                None => self.cache.answer(lookup, asking(self.source.search(query, limit))).await?,
            };
            self.egress.shown(&found.passages);
            attach::count("hits", found.passages.len());
            Ok(found)
        };
        Box::pin(spanned(debug_span!("search", source = self.source.name()), searched))
    }

    fn has_links(&self) -> bool {
        self.source.has_links()
    }

    fn tools(&self) -> &[OfferedTool] {
        self.servers.as_ref().map_or(&[], NodeServers::tools)
    }

    fn call<'a>(&'a self, tool: &'a str, arguments: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        called(self.servers.as_ref(), tool, arguments)
    }
}

/// Calls a tool of the servers of a node.
fn called<'a, Q: ?Sized + Arguments + 'static>(
    servers: Option<&'a NodeServers<Q>>,
    tool: &'a str,
    arguments: &'a Q,
) -> BoxFuture<'a, Result<Passage, SourceError>> {
    let called = async move {
        match servers {
            Some(servers) => servers.call(tool, arguments).await,
            None => Err(SourceError::Refused { reason: format!("there is no tool `{tool}`") }),
        }
    };
    Box::pin(spanned(debug_span!("tool"), called))
}

/// Pages of the web, for one node: those the user named, that a search found, that a job cites, or that such a page
/// links. No other page can be opened.
pub(crate) struct WebPages {
    web: Arc<WebSource>,
    shared: Shared,
    node: NodeId,
    /// The day the run began, on which alone results from the web are reused.
    day: String,
    /// Shortens long pages for a question; `None` shows pages whole, for code to check.
    reading: Option<(PageReader, Outbound)>,
    /// Pages that may be opened, by the id they are opened with.
    permitted: Mutex<BTreeMap<String, Permitted>>,
}

/// A page that may be opened.
#[derive(Clone)]
struct Permitted {
    /// In the form of the user, the search engine, the job or the page that named it: some sites respond only to that.
    address: Outbound,
    /// The day of publication by the search engine, for a page that does not state it.
    published: Option<String>,
}

/// The address of a public page, which is public, too.
struct PublicAddress(String);

impl MayLeave for PublicAddress {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

impl PublicAddress {
    /// Returns the address of a page that a search found, in the form of the engine.
    fn found(found: &Found, hit: &Passage) -> Option<Self> {
        let Place::Web { url, .. } = &hit.place else { return None };
        (hit.label == Label::Public).then(|| Self(found.addresses.get(&hit.id).unwrap_or(url).clone()))
    }

    /// Returns the addresses of the pages that a job cites, each with the address that it is cited by; of a job that was
    /// offered a server of the user's, only those that it opened on the web, as it opened them: a server may name any
    /// other.
    fn cited(job: &Finished) -> Vec<(String, Self)> {
        let report = job.report();
        let canonical = |url: &str| url.parse::<WebUrl>().ok().map(|url| url.canonical());
        let opened: HashMap<_, _> = report.opened.iter().filter_map(|url| Some((canonical(url)?, url))).collect();
        let as_opened = |url: &String| canonical(url).and_then(|page| opened.get(&page)).copied();
        // A job with internal text in its instructions worded the addresses that it opened, too.
        let cited = report.citations.iter().map(|citation| &citation.url).filter(|_| !job.may_know_internal());
        let address = |url| if report.had_server { as_opened(url) } else { Some(url) };
        cited.filter_map(|url: &String| Some((url.clone(), Self(address(url)?.clone())))).collect()
    }

    /// Returns the address behind a link of a page that was fetched, in the form of that page: some sites answer only
    /// to that.
    fn linked(link: &PageLink) -> Self {
        Self(link.url.to_string())
    }
}

/// The web, for one node. Its queries are outbound text, so only a worker that faces outward can search it.
pub(crate) struct Outside {
    pages: WebPages,
    /// Pages the user named, by the form an address is counted under, which is the id of a hit.
    named: BTreeMap<String, Passage>,
    /// Tools of public servers, for a worker with a model.
    pub(super) servers: Option<NodeServers<Outbound>>,
    /// Whether a search engine is set up. Without one, a search finds the pages the user named.
    pub(super) can_search: bool,
}

impl WebPages {
    fn new(web: Arc<WebSource>, shared: &Shared, node: NodeId, day: String) -> Self {
        Self { web, shared: shared.clone(), node, day, reading: None, permitted: Mutex::default() }
    }

    /// Returns the pages that a job cites, see [`PublicAddress::cited`]. They are for code to check, so they are not
    /// shortened.
    pub(crate) fn cited(web: Arc<WebSource>, shared: &Shared, node: NodeId, day: String, job: &Finished) -> Self {
        let pages = Self::new(web, shared, node, day);
        for (id, address) in PublicAddress::cited(job) {
            pages.permit(id, address, None);
        }
        pages
    }

    /// Lets a page be opened, by the id `id`, that an answer from the web names.
    fn permit(&self, id: String, address: PublicAddress, published: Option<String>) {
        let page = || Permitted { address: Outbound::of(address), published: None };
        let mut permitted = locked(&self.permitted);
        let page = permitted.entry(id).or_insert_with(page);
        // A page that was linked first may be found later, with its day.
        page.published = page.published.take().or(published);
    }

    /// Returns the id under which a page may be opened, and the page.
    fn permission(&self, id: &str) -> Option<(String, Permitted)> {
        // The address of the entry is fetched, never the id: additions by a model do not leave.
        let permitted = locked(&self.permitted);
        let known = |id: &str| permitted.get_key_value(id).map(|(id, page)| (id.clone(), page.clone()));
        known(id).or_else(|| known(&id.parse::<WebUrl>().ok()?.canonical().to_string()))
    }

    async fn fetch(&self, id: &str, named: &Permitted) -> Result<OpenedPage, SourceError> {
        let outgoing = OutgoingText::all(EgressKind::Address, &named.address);
        self.shared.egress.release(&self.node, OWN_SITE, outgoing).await?;
        let mut page = self.shared.wait_limit.wait(self.web.open(&named.address)).await?;
        page.passage.id = id.to_owned();
        if let Place::Web { published, .. } = &mut page.passage.place {
            *published = published.take().or_else(|| named.published.clone());
        }
        if let Some((reading, question)) = &self.reading {
            // Only the shown text is shortened: quotes are checked against the whole page.
            if let Some(shown) = reading.shown(&self.node, question, &page.passage.text).await? {
                page.passage.snippet = shown;
            }
            let links = links_on(&page.links, question.as_str());
            if !links.is_empty() {
                let lines = links.iter().map(|link| format!("\n- {}: {}", link.text, link.url));
                page.passage.snippet.push_str(&format!("\n\n{LINKS}{}", lines.collect::<String>()));
            }
        }
        Ok(page)
    }

    fn lookup(&self, tool: LookupTool, query: String, terms: LookupTerms) -> Lookup {
        Lookup {
            node: self.node.clone(),
            tool,
            query,
            scope: self.web.scope(),
            label: Label::Public,
            version: self.web.version(),
            terms: LookupTerms { day: Some(self.day.clone()), ..terms },
        }
    }
}

impl Documents for WebPages {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        let opened = async move {
            let (id, page) = self.permission(id).ok_or_else(|| SourceError::NoSuchPassage { id: id.to_owned() })?;
            // Another question is shown something else of the same page.
            let read_for = self.reading.as_ref().map(|(_, question)| {
                let hash = ContentHash::of(question.as_str().as_bytes());
                hash.as_str()[..16].to_owned()
            });
            let terms = LookupTerms { read_for, ..LookupTerms::default() };
            let lookup = self.lookup(LookupTool::WebOpen, id.clone(), terms);
            attach::word("host", host_of(&page.address));
            attach::text("address", || page.address.to_string());
            let fetch = Box::pin(asking(self.fetch(&id, &page)));
            let OpenedPage { passage, links } = self.shared.cache.answer(lookup, fetch).await?;
            self.shared.egress.shown(std::slice::from_ref(&passage));
            // Links of a public page are public: a worker may use their words and addresses in a query.
            self.shared.egress.seen_in_public(links.iter().flat_map(|link| [link.text.as_str(), link.url.as_str()]));
            for link in &links {
                self.permit(link.url.canonical().to_string(), PublicAddress::linked(link), None);
            }
            Ok(passage)
        };
        Box::pin(spanned(debug_span!("fetch", source = WEB), opened))
    }

    /// Reads the stored page behind a place.
    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        Box::pin(self.web.read(place))
    }
}

impl Outside {
    /// Returns the web for a node, without tools of servers. Results on record serve it only if they are of the same
    /// `day`.
    pub(crate) fn new(web: Arc<WebSource>, shared: &Shared, node: NodeId, day: String) -> Self {
        let pages = WebPages::new(web, shared, node, day);
        Self { pages, named: BTreeMap::new(), servers: None, can_search: true }
    }

    /// Returns why the web is not searched, and why tools of servers are not offered.
    pub(crate) fn notes(&self) -> Vec<String> {
        let no_engine = (!self.can_search).then(|| NO_ENGINE.to_owned());
        let of_servers = self.servers.as_ref().map_or(&[][..], NodeServers::notes);
        no_engine.into_iter().chain(of_servers.iter().cloned()).collect()
    }

    /// Shortens long pages to the parts that bear on `question`.
    #[must_use]
    pub(crate) fn read_for(mut self, reading: PageReader, question: Outbound) -> Self {
        self.pages.reading = Some((reading, question));
        self
    }

    /// Puts the pages that the user's words name before the results of every search.
    #[must_use]
    pub(crate) fn naming<'a>(mut self, words: impl Iterator<Item = &'a Outbound>) -> Self {
        for address in words.flat_map(|words| words.parts(named_in)) {
            let Ok(url) = address.as_str().parse::<WebUrl>() else { continue };
            if self.named.len() < MAX_NAMED {
                self.named.entry(url.canonical().to_string()).or_insert_with(|| named_page(url.to_string()));
                let page = Permitted { address, published: None };
                locked(&self.pages.permitted).entry(url.to_string()).or_insert(page);
            }
        }
        self
    }

    pub(crate) fn names_pages(&self) -> bool {
        !self.named.is_empty()
    }

    async fn ask(&self, query: &Outbound, limit: usize) -> Result<Found, SourceError> {
        let WebPages { web, shared: Shared { egress, wait_limit, breaker, .. }, node, .. } = &self.pages;
        breaker
            .ask(async {
                // Within the breaker: a query that it refuses does not leave, and must not be on record as sent.
                let outgoing = OutgoingText::all(EgressKind::Query, query);
                egress.release(node, &web.scope(), outgoing).await?;
                wait_limit.wait(web.search(query, limit)).await
            })
            .await
    }
}

impl Documents for Outside {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        self.pages.open(id)
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        match (&self.servers, place) {
            (Some(servers), Place::Mcp { server, .. }) => Box::pin(servers.read(server, place)),
            _ => self.pages.read(place),
        }
    }
}

impl Source<Outbound> for Outside {
    fn name(&self) -> &'static str {
        WEB
    }

    fn scope(&self) -> String {
        // Without an engine, a worker is sent outside for the tools alone.
        if self.can_search { self.pages.web.scope() } else { "public tool servers".to_owned() }
    }

    fn version(&self) -> String {
        self.pages.web.version()
    }

    /// Searches. Pages the user named come first, then the results on record or, without a record, those of the engine.
    fn search<'a>(&'a self, query: &'a Outbound, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        let searched = async move {
            attach::text("query", || query.to_string());
            let Shared { cache, egress, .. } = &self.pages.shared;
            let terms = LookupTerms { max_hits: Some(limit), ..LookupTerms::default() };
            let lookup = self.pages.lookup(LookupTool::WebSearch, normalised(query.as_str()), terms);
            let ask = Box::pin(asking(self.ask(query, limit)));
            let searched: Result<Found, _> =
                if self.can_search { Box::pin(cache.answer(lookup, ask)).await } else { Ok(Found::default()) };
            let named = self.named.values().cloned();
            let found = match searched {
                Ok(rest) => {
                    for hit in &rest.passages {
                        if let (Some(address), Place::Web { published, .. }) =
                            (PublicAddress::found(&rest, hit), &hit.place)
                        {
                            self.pages.permit(hit.id.clone(), address, published.clone());
                        }
                    }
                    let new = rest.passages.into_iter().filter(|hit| !self.named.contains_key(&hit.id));
                    // Named pages have not been read yet, so poor hits of the engine do not refuse the question.
                    let support = if self.names_pages() { rest.support.max(Support::Weak) } else { rest.support };
                    Found { passages: named.chain(new).collect(), support, ..rest }
                }
                // Named pages cannot be opened then, either.
                Err(error @ SourceError::Stopped(_)) => return Err(error),
                // A page the user named can be read even if the search fails.
                Err(error) if self.names_pages() => Found {
                    passages: named.collect(),
                    support: Support::Weak,
                    notes: vec![error.to_string()],
                    ..Found::default()
                },
                Err(error) => return Err(error),
            };
            egress.shown(&found.passages);
            attach::count("hits", found.passages.len());
            Ok(found)
        };
        Box::pin(spanned(debug_span!("search", source = WEB), searched))
    }

    fn has_links(&self) -> bool {
        true
    }

    fn tools(&self) -> &[OfferedTool] {
        self.servers.as_ref().map_or(&[], NodeServers::tools)
    }

    fn call<'a>(&'a self, tool: &'a str, arguments: &'a Outbound) -> BoxFuture<'a, Result<Passage, SourceError>> {
        called(self.servers.as_ref(), tool, arguments)
    }
}

/// Does `work` within `span`, and notes its error there.
async fn spanned<T>(span: Span, work: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
    async { work.await.inspect_err(|error| attach::word("error", error.class())) }.instrument(span).await
}

/// Notes on the current span that the source was asked, since no answer was on record.
async fn asking<T>(work: impl Future<Output = T>) -> T {
    attach::flag("asked", true);
    work.await
}

fn host_of(address: &Outbound) -> String {
    address.as_str().parse().map(|url: WebUrl| url.host().to_owned()).unwrap_or_default()
}

/// Returns a page as a search would have found it.
fn named_page(url: String) -> Passage {
    let place = Place::unfetched(url.clone(), url.clone(), None);
    Passage { snippet: "named in the question".to_owned(), ..Passage::whole(url.clone(), Label::Public, place, url) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::base::breaker::Breaker;
    use crate::base::clock::{Clock, ManualClock, Moment};
    use crate::base::id::RunId;
    use crate::run::background::{JobCitation, JobReport};
    use crate::run::budget::{Budget, BudgetLimits, WritingReserve};
    use crate::run::journal::tests::started;
    use crate::run::store::Store;
    use crate::run::wait_limit::WaitLimit;
    use crate::source::web::{FixtureProvider, PageLink, PageStore, WebPage};

    const FOUND: &str = "https://example.org/beds";
    const CITED: &str = "https://example.org/cited";
    const INTERNAL: &str = "https://notes.example/project-ferreira";
    const NAMED: &str = "https://example.org/named";
    const LINKED: &str = "https://example.org/more?page=2";
    /// A linked page that is not stored. Some sites answer only to the address with the slash.
    const WITH_SLASH: &str = "https://example.org/imprint/";
    /// The id of that page.
    const SLASHED: &str = "https://example.org/imprint";

    /// Returns the web of a node, whose engine finds one page, which links another. Both are stored, and no other can
    /// be fetched. The store and the folder are those of its run.
    async fn outside(reads_for: &'static str) -> (Store, TempDir, Outside) {
        let (store, folder) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
        let hit = json!({ "url": FOUND, "title": "Beds", "snippet": "Valves open at six." });
        let with_slash = json!({ "url": WITH_SLASH, "title": "Imprint", "snippet": "Who waters the beds." });
        let queries = json!({ "when do valves open": [hit], "who waters the beds": [with_slash] });
        let engine = FixtureProvider::read(&queries).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Moment(1)));
        let pages = PageStore::new(folder.path().join("pages"), folder.path().join("key"));
        let link = |text: &str, url: &str| PageLink { text: text.into(), url: url.parse().unwrap() };
        let links = vec![link("more on when valves open", LINKED), link("imprint", WITH_SLASH)];
        for (url, text, links) in [(FOUND, "Valves open at six.", links), (LINKED, "They close at nine.", Vec::new())] {
            let page = WebPage {
                url: url.parse().unwrap(),
                requested: url.parse().unwrap(),
                title: "Beds".into(),
                published: None,
                content_hash: ContentHash::of(text.as_bytes()),
                text: text.to_owned(),
                links,
                fetched_at: Moment(1),
                content_type: "text/html".into(),
            };
            pages.put(&page).unwrap();
        }
        let web = Arc::new(WebSource::new(vec![Arc::new(engine)], None, pages, Arc::clone(&clock)));
        let run = store.lock(&RunId::random(1)).unwrap();
        run.create("why?", &started()).await.unwrap();
        let budget = Budget::new(BudgetLimits::default(), WritingReserve::default(), Arc::clone(&clock));
        let shared = Shared {
            cache: Cache::new(run.clone(), Moment(1), Arc::clone(&clock), None),
            egress: Egress::new(run, clock, false),
            wait_limit: WaitLimit { budget, stop: CancellationToken::new() },
            breaker: Arc::new(Breaker::of_run("source `web`")),
        };
        (store, folder, of_node(web, &shared, reads_for))
    }

    fn of_node(web: Arc<WebSource>, shared: &Shared, reads_for: &'static str) -> Outside {
        let outside = Outside::new(web, shared, NodeId::numbered(2), "1".into());
        let reading = PageReader { caller: None, embedder: None };
        let words = Outbound::fixed("What does https://example.org/named say?");
        outside.read_for(reading, Outbound::fixed(reads_for)).naming([&words].into_iter())
    }

    fn unknown(id: &str) -> Result<Passage, SourceError> {
        Err(SourceError::NoSuchPassage { id: id.to_owned() })
    }

    #[tokio::test]
    async fn page_is_opened_only_if_the_user_named_it_a_search_found_it_or_a_page_that_was_opened_links_it() {
        let (store, _folder, outside) = outside("when?").await;
        assert_eq!(outside.open(FOUND).await, unknown(FOUND));
        let found = outside.search(&Outbound::fixed("when do valves open"), 5).await.unwrap();
        let ids: Vec<_> = found.passages.iter().map(|passage| passage.id.as_str()).collect();
        assert_eq!(ids, [NAMED, FOUND]);
        assert_eq!(outside.open(LINKED).await, unknown(LINKED));
        assert_eq!(outside.open(FOUND).await.unwrap().text, "Valves open at six.");
        for id in [LINKED, "https://example.org/more?page=2&utm_source=secret#secret"] {
            let linked = outside.open(id).await.unwrap();
            assert_eq!((linked.text.as_str(), linked.id.as_str()), ("They close at nine.", LINKED));
        }
        let error = outside.open(NAMED).await.unwrap_err().to_string();
        assert!(error.contains("fetching pages is disabled"), "{error}");
        for id in [WITH_SLASH, WITH_SLASH.trim_end_matches('/')] {
            outside.open(id).await.unwrap_err();
            let asked = store.journal().egress(&RunId::random(1)).await.unwrap();
            assert_eq!(asked.last().unwrap().text, WITH_SLASH, "asked for as the page has it");
        }
        for id in [
            "https://example.org/beds?leak=secret",
            "https://example.org/more?page=3",
            "https://example.org/more",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(outside.open(id).await, unknown(id));
        }
    }

    #[tokio::test]
    async fn page_is_asked_for_in_the_form_of_the_engine_also_when_the_search_comes_from_the_record() {
        let (store, _folder, first) = outside("who?").await;
        let other = of_node(Arc::clone(&first.pages.web), &first.pages.shared, "who?");
        for (number, outside) in [first, other].into_iter().enumerate() {
            let found = outside.search(&Outbound::fixed("who waters the beds"), 5).await.unwrap();
            let hit = found.passages.last().unwrap();
            assert_eq!((hit.id.as_str(), hit.place.for_people().as_str()), (SLASHED, SLASHED), "one page has one name");
            outside.open(SLASHED).await.unwrap_err();
            let asked = store.journal().egress(&RunId::random(1)).await.unwrap();
            let addresses: Vec<_> = asked.iter().filter(|row| row.kind == EgressKind::Address).collect();
            assert_eq!((addresses.len(), addresses[number].text.as_str()), (number + 1, WITH_SLASH));
        }
    }

    #[tokio::test]
    async fn links_that_bear_on_the_question_are_shown_with_a_page_and_may_be_opened_when_it_comes_from_the_record() {
        let (_, _folder, first) = outside("when do valves open?").await;
        let other = of_node(Arc::clone(&first.pages.web), &first.pages.shared, "when do valves open?");
        for outside in [first, other] {
            outside.search(&Outbound::fixed("when do valves open"), 5).await.unwrap();
            let page = outside.open(FOUND).await.unwrap();
            assert_eq!(
                page.snippet,
                format!("Valves open at six.\n\nLinks of this page:\n- more on when valves open: {LINKED}")
            );
            assert_eq!(outside.open(LINKED).await.unwrap().text, "They close at nine.");
        }
    }

    #[tokio::test]
    async fn page_that_a_job_cites_is_opened_and_no_other() {
        let (_, _folder, first) = outside("when?").await;
        let opened = [CITED, FOUND].map(|url| format!("{url}?utm_source=job"));
        let cited = opened.iter().map(String::as_str).chain([INTERNAL]);
        let citations = cited.map(|url| JobCitation { url: url.to_owned(), title: "Cited".into(), span: None });
        let mut report = JobReport { citations: citations.collect(), ..JobReport::default() };
        let pages = |report: &JobReport, may_know_internal| {
            let (web, job) = (Arc::clone(&first.pages.web), Finished::of(report.clone(), may_know_internal));
            WebPages::cited(web, &first.pages.shared, NodeId::numbered(3), "1".into(), &job)
        };
        let told = pages(&report, true);
        for url in [&opened[0], INTERNAL] {
            assert_eq!(told.open(url).await, unknown(url), "the address may have words of its instructions");
        }
        let cited = pages(&report, false);
        for url in [&opened[0], INTERNAL] {
            let error = cited.open(url).await.unwrap_err().to_string();
            assert!(error.contains("fetching pages is disabled"), "{error}");
        }
        assert_eq!(cited.open(NAMED).await, unknown(NAMED));
        report.had_server = true;
        report.opened = vec![FOUND.into()];
        assert_eq!(pages(&report, true).open(&opened[1]).await, unknown(&opened[1]));
        let cited = pages(&report, false);
        assert_eq!(cited.open(&opened[1]).await.unwrap().text, "Valves open at six.", "it was opened on the web");
        for url in [&opened[0], INTERNAL] {
            assert_eq!(cited.open(url).await, unknown(url), "the server may have named it");
        }
    }

    #[tokio::test]
    async fn what_is_opened_for_one_question_is_not_shown_for_another() {
        let (store, _folder, first) = outside("when?").await;
        let other = of_node(Arc::clone(&first.pages.web), &first.pages.shared, "who?");
        for (outside, known) in [(&first, 0), (&other, 0), (&first, 1)] {
            outside.search(&Outbound::fixed("when do valves open"), 5).await.unwrap();
            let before = store.journal().lookup_counts(&RunId::random(1)).await.unwrap()[0].2;
            outside.open(FOUND).await.unwrap();
            let after = store.journal().lookup_counts(&RunId::random(1)).await.unwrap()[0].2;
            assert_eq!(after - before, known);
        }
    }
}
