//! The source of one node: the knowledge base for a worker inside, the web for what faces outward.
//!
//! ```text
//! worker inside ──▶ Inside:  record? ─▶ ask ─▶ keep
//! what faces out ─▶ Outside: pages the user named, record? ─▶ tripwire, egress log ─▶ ask in time ─▶ keep
//! ```
//!
//! Between a worker and the network stand this source, [`WebSource`] and a search engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Purpose};
use super::cache::{Cache, normalised};
use super::egress::{Egress, Leaving};
use super::journal::{EgressKind, Lookup};
use super::reader::Reading;
use crate::base::id::ContentHash;
use crate::base::outbound::Outbound;
use crate::llm::call::{CallError, Limit};
use crate::research::node::NodeId;
use crate::source::web::{WebSource, named_in};
use crate::source::{Found, Label, Passage, Place, PublicPassage, Source, SourceError, SourceFile, Support};

/// Pages that are taken from one question.
const MAX_NAMED: usize = 5;

/// Consecutive failed searches after which a run no longer uses a search engine.
const MAX_FAILURES: u32 = 3;

/// The knowledge base, for one node.
pub(crate) struct Inside {
    pub(super) source: Arc<dyn Source>,
    pub(super) cache: Cache,
    pub(super) egress: Egress,
    pub(super) node: NodeId,
    /// The version of the index when the run began.
    pub(super) version: String,
}

impl Inside {
    fn lookup(&self, tool: &str, query: String) -> Lookup {
        Lookup {
            node: self.node.clone(),
            tool: format!("{}.{tool}", self.source.name()),
            query,
            scope: self.source.scope(),
            label: Label::Internal,
            version: self.version.clone(),
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

    fn version(&self) -> String {
        self.version.clone()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let lookup = self.lookup("search", format!("{limit}: {}", normalised(query)));
            let found: Found = self.cache.answer_json(lookup, self.source.search(query, limit)).await?;
            self.egress.shown(&found.passages);
            Ok(found)
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let passage: Passage =
                self.cache.answer_json(self.lookup("open", id.to_owned()), self.source.open(id)).await?;
            self.egress.shown(std::slice::from_ref(&passage));
            Ok(passage)
        })
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        self.source.read(place)
    }
}

/// The web, for one node. It takes outbound text alone, so it is no [`Source`] that any worker can be given.
pub(crate) struct Outside {
    pub(super) web: Arc<WebSource>,
    pub(super) cache: Cache,
    pub(super) egress: Egress,
    pub(super) node: NodeId,
    /// What results depend on: the engine, the days, and the day the run began.
    pub(super) version: String,
    pub(super) patience: Patience,
    pub(super) breaker: Arc<Breaker>,
    /// How long pages are shown; without it they are shown whole, for code to check.
    pub(super) reading: Option<(Reading, Outbound)>,
    /// Pages that may be opened: those the user named, that a search found, or that a job cites; by id.
    pages: Mutex<BTreeMap<String, Outbound>>,
    /// Pages the user named, by the form an address is counted under, which is the id of a hit.
    named: BTreeMap<String, Passage>,
}

/// What the sources of one node share with those of all others in a run.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Answers on record.
    pub(crate) cache: Cache,
    /// What may be sent.
    pub(crate) egress: Egress,
    /// How long answers from outside are waited for.
    pub(crate) patience: Patience,
    /// Stops asking an engine that fails.
    pub(crate) breaker: Arc<Breaker>,
}

/// How long answers from outside are waited for.
#[derive(Clone)]
pub(crate) struct Patience {
    /// No longer than there is time in it.
    pub(crate) budget: Budget,
    /// No longer than until this is triggered.
    pub(crate) stop: CancellationToken,
}

impl Patience {
    async fn wait<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        tokio::select! {
            answer = answer => answer,
            () = self.stop.cancelled() => Err(SourceError::Stopped(CallError::Cancelled)),
            () = self.budget.time_up(Purpose::Research) => Err(SourceError::Stopped(CallError::Limit(Limit::Time))),
        }
    }
}

impl Outside {
    /// Returns the web for a node; `version` says what results depend on.
    pub(crate) fn new(web: Arc<WebSource>, shared: &Shared, node: NodeId, version: String) -> Self {
        let Shared { cache, egress, patience, breaker } = shared.clone();
        let (reading, pages, named) = (None, Mutex::default(), BTreeMap::new());
        Self { web, cache, egress, node, version, patience, breaker, reading, pages, named }
    }

    /// Shows of long pages what bears on `question`.
    #[must_use]
    pub(crate) fn read_for(self, reading: Reading, question: Outbound) -> Self {
        Self { reading: Some((reading, question)), ..self }
    }

    /// Finds the pages that the user's words name first, whatever a search finds.
    #[must_use]
    pub(crate) fn naming(mut self, words: &Outbound) -> Self {
        for url in named_in(words.as_str()) {
            if self.named.len() < MAX_NAMED {
                self.named.entry(url.canonical().to_string()).or_insert_with(|| named_page(url.to_string()));
            }
        }
        self.permit(self.named.values());
        self
    }

    /// Lets public pages be opened.
    pub(crate) fn permit<'a>(&self, passages: impl IntoIterator<Item = &'a Passage>) {
        let public = passages.into_iter().filter_map(|passage| Some((passage, PublicPassage::of(passage)?)));
        self.pages().extend(public.map(|(passage, public)| (passage.id.clone(), public.address())));
    }

    /// Returns whether the user named a page.
    pub(crate) fn names_pages(&self) -> bool {
        !self.named.is_empty()
    }

    /// Describes the searched source, for reports.
    pub(crate) fn scope(&self) -> String {
        self.web.scope()
    }

    /// Returns what results depend on besides the query.
    pub(crate) fn version(&self) -> String {
        self.version.clone()
    }

    /// Searches. Pages the user named come first, then the results on record or, without a record, those of the engine.
    pub(crate) async fn search(&self, query: &Outbound, limit: usize) -> Result<Found, SourceError> {
        let lookup = self.lookup("search", format!("{limit}: {}", normalised(query.as_str())), &self.version);
        let searched: Result<Found, _> =
            Box::pin(self.cache.answer_json(lookup, Box::pin(self.ask(query, limit)))).await;
        let named = self.named.values().cloned();
        let found = match searched {
            Ok(rest) => {
                self.permit(&rest.passages);
                let new = rest.passages.into_iter().filter(|hit| !self.named.contains_key(&hit.id));
                let support = if self.names_pages() { rest.support.max(Support::Weak) } else { rest.support };
                Found { passages: named.chain(new).collect(), support, notes: rest.notes }
            }
            Err(error @ SourceError::Stopped(_)) => return Err(error),
            // A page the user named can be read even if the search fails.
            Err(error) if self.names_pages() => {
                Found { passages: named.collect(), support: Support::Weak, notes: vec![error.to_string()] }
            }
            Err(error) => return Err(error),
        };
        self.egress.shown(&found.passages);
        Ok(found)
    }

    async fn ask(&self, query: &Outbound, limit: usize) -> Result<Found, SourceError> {
        self.breaker
            .guard(async {
                let leaving = Leaving::all(EgressKind::Query, query);
                self.egress.release(&self.node, &self.web.scope(), leaving).await?;
                self.patience.wait(self.web.search(query, limit)).await
            })
            .await
    }

    /// Opens a page that the user named, that a search found or that a job cites; no other.
    pub(crate) async fn open(&self, id: &str) -> Result<Passage, SourceError> {
        let address = self.pages().get(id).cloned();
        let address = address.ok_or_else(|| SourceError::NoSuchPassage { id: id.to_owned() })?;
        let read_for = self.reading.as_ref().map_or_else(String::new, |(_, question)| {
            let hash = ContentHash::of(question.as_str().as_bytes());
            format!(" for {}", &hash.as_str()[..16])
        });
        // Another question is shown something else of the same page.
        let lookup = self.lookup("open", id.to_owned(), &format!("{}{read_for}", self.version));
        let passage: Passage = Box::pin(self.cache.answer_json(lookup, Box::pin(self.fetch(&address)))).await?;
        self.egress.shown(std::slice::from_ref(&passage));
        Ok(passage)
    }

    async fn fetch(&self, address: &Outbound) -> Result<Passage, SourceError> {
        let leaving = Leaving::all(EgressKind::Address, address);
        self.egress.release(&self.node, "the page's own site", leaving).await?;
        let mut passage = self.patience.wait(self.web.open(address)).await?;
        if let Some((reading, question)) = &self.reading
            && let Some(shown) = reading.shown(&self.node, question, &passage.text).await?
        {
            passage.snippet = shown;
        }
        Ok(passage)
    }

    /// Reads the stored page behind a place, to check a quote against.
    pub(crate) fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        Box::pin(self.web.read(place))
    }

    fn lookup(&self, tool: &str, query: String, version: &str) -> Lookup {
        Lookup {
            node: self.node.clone(),
            tool: format!("web.{tool}"),
            query,
            scope: self.web.scope(),
            label: Label::Public,
            version: version.to_owned(),
        }
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<String, Outbound>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a page as a search would have found it.
fn named_page(url: String) -> Passage {
    let snippet = "named in the question".to_owned();
    Passage { text: url.clone(), snippet, score: 1.0, ..Passage::unread(url.clone(), url) }
}

/// Stops asking a search engine that has failed [`MAX_FAILURES`] times in a row.
///
/// Workers search side by side, so until a search succeeds they take turns: otherwise all of a step would be sent to an
/// engine that is down before the first failure is known.
#[derive(Default)]
pub(crate) struct Breaker {
    turn: tokio::sync::Mutex<()>,
    state: Mutex<Record>,
}

#[derive(Clone, Debug, Default)]
struct Record {
    failures: u32,
    has_succeeded: bool,
    /// Error of the last search.
    reason: String,
}

impl Breaker {
    async fn guard<T>(&self, ask: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        let is_sound = |record: &Record| record.has_succeeded && record.failures == 0;
        let _turn = if is_sound(&self.state()) { None } else { Some(self.turn.lock().await) };
        let Record { failures, reason, .. } = self.state().clone();
        if failures >= MAX_FAILURES {
            let reason = format!("not asked any more, since {failures} searches in a row failed; the last: {reason}");
            return Err(SourceError::Failed { name: "web".to_owned(), reason });
        }
        let answer = ask.await;
        let mut state = self.state();
        match &answer {
            Ok(_) => *state = Record { has_succeeded: true, ..Record::default() },
            Err(SourceError::Failed { reason, .. }) => {
                state.failures += 1;
                state.reason.clone_from(reason);
            }
            // The engine was not asked, or not waited for.
            Err(SourceError::NoSuchPassage { .. } | SourceError::Withheld { .. } | SourceError::Stopped(_)) => {}
        }
        answer
    }

    fn state(&self) -> MutexGuard<'_, Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::base::clock::{Clock, ManualClock, Moment};
    use crate::base::id::RunId;
    use crate::run::budget::{BudgetLimits, WritingReserve};
    use crate::run::event::{Event, Record};
    use crate::run::store::Store;
    use crate::source::web::{FixtureProvider, Page, PageStore};

    fn failed() -> SourceError {
        SourceError::Failed { name: "web".into(), reason: "`searxng` does not answer".into() }
    }

    const FOUND: &str = "https://example.org/beds";
    const CITED: &str = "https://example.org/cited";
    const NAMED: &str = "https://example.org/named";

    /// Returns the web of a node, whose engine finds one page. That page is stored, and no other can be fetched.
    async fn outside(store: &Store, folder: &Path, reads_for: &'static str) -> Outside {
        let hit = json!({ "url": FOUND, "title": "Beds", "snippet": "Valves open at six." });
        let engine = FixtureProvider::read(&json!({ "when do valves open": [hit] })).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Moment(1)));
        let pages = PageStore::new(folder.join("pages"), folder.join("key"));
        let text = "Valves open at six.".to_owned();
        pages
            .put(&Page {
                url: FOUND.parse().unwrap(),
                requested: FOUND.parse().unwrap(),
                title: "Beds".into(),
                content_hash: ContentHash::of(text.as_bytes()),
                text,
                fetched_at: Moment(1),
                content_type: "text/html".into(),
            })
            .unwrap();
        let web = Arc::new(WebSource::new(Arc::new(engine), None, pages, Arc::clone(&clock)));
        let run = store.lock(&RunId::random(1)).unwrap();
        let settings = json!({
            "mode": "quick", "limits": BudgetLimits::default(), "parallel": 1, "summary_tokens": 200, "by_rules": true,
            "tree": { "max_depth": 1, "max_nodes": 9 }, "scope": {}, "searched": "", "source_version": "1",
        });
        let settings = serde_json::from_value(settings).unwrap();
        let event = Event::Started { question: "why?".parse().unwrap(), settings };
        run.create("why?", &Record { seq: 1, at: Moment(1), event }).await.unwrap();
        let budget = Budget::new(BudgetLimits::default(), WritingReserve::default(), Arc::clone(&clock));
        let shared = Shared {
            cache: Cache::new(run.clone(), Moment(1), Arc::clone(&clock), None),
            egress: Egress::new(run, clock, false),
            patience: Patience { budget, stop: CancellationToken::new() },
            breaker: Arc::default(),
        };
        of_node(web, &shared, reads_for)
    }

    fn of_node(web: Arc<WebSource>, shared: &Shared, reads_for: &'static str) -> Outside {
        let outside = Outside::new(web, shared, NodeId::numbered(2), "1".into());
        let reading = Reading { caller: None, embedder: None };
        let words = Outbound::fixed("What does https://example.org/named say?");
        outside.read_for(reading, Outbound::fixed(reads_for)).naming(&words)
    }

    #[tokio::test]
    async fn page_is_opened_only_if_the_user_named_it_a_search_found_it_or_a_job_cites_it() {
        let (store, folder) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
        let outside = outside(&store, folder.path(), "when?").await;
        let unknown = |id: &str| Err(SourceError::NoSuchPassage { id: id.to_owned() });
        assert_eq!(outside.open(FOUND).await, unknown(FOUND));
        let found = outside.search(&Outbound::fixed("when do valves open"), 5).await.unwrap();
        let ids: Vec<_> = found.passages.iter().map(|passage| passage.id.as_str()).collect();
        assert_eq!(ids, [NAMED, FOUND]);
        assert_eq!(outside.open(CITED).await, unknown(CITED));
        outside.permit(&[Passage::unread(CITED.into(), "Cited".into())]);
        let internal =
            Passage { label: Label::Internal, ..Passage::unread("https://a.example/".into(), String::new()) };
        outside.permit(&[internal]);
        assert_eq!(outside.open(FOUND).await.unwrap().text, "Valves open at six.");
        for id in [CITED, NAMED] {
            let error = outside.open(id).await.unwrap_err().to_string();
            assert!(error.contains("pages are not fetched"), "{error}");
        }
        for id in ["https://example.org/beds?leak=secret", "https://a.example/", "file:///etc/passwd", ""] {
            assert_eq!(outside.open(id).await, unknown(id));
        }
    }

    #[tokio::test]
    async fn what_is_opened_for_one_question_is_not_shown_for_another() {
        let (store, folder) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
        let first = outside(&store, folder.path(), "when?").await;
        let shared = Shared {
            cache: first.cache.clone(),
            egress: first.egress.clone(),
            patience: first.patience.clone(),
            breaker: Arc::clone(&first.breaker),
        };
        let other = of_node(Arc::clone(&first.web), &shared, "who?");
        for (outside, known) in [(&first, 0), (&other, 0), (&first, 1)] {
            outside.search(&Outbound::fixed("when do valves open"), 5).await.unwrap();
            let before = store.journal().lookup_counts(&RunId::random(1)).await.unwrap()[0].2;
            outside.open(FOUND).await.unwrap();
            let after = store.journal().lookup_counts(&RunId::random(1)).await.unwrap()[0].2;
            assert_eq!(after - before, known);
        }
    }

    #[tokio::test]
    async fn engine_that_fails_three_times_in_a_row_is_not_asked_again_however_many_search_side_by_side() {
        let (breaker, asked) = (Breaker::default(), Mutex::new(0));
        let fail = || async {
            *asked.lock().unwrap() += 1;
            tokio::task::yield_now().await;
            Err::<(), _>(failed())
        };
        let answers = join_all((0..8).map(|_| breaker.guard(fail()))).await;
        assert_eq!(*asked.lock().unwrap(), 3);
        let last = answers[7].clone().unwrap_err().to_string();
        assert!(last.contains("3 searches in a row failed; the last: `searxng` does not answer"), "{last}");
    }

    #[tokio::test]
    async fn engine_that_answers_now_and_then_goes_on_being_asked() {
        let breaker = Breaker::default();
        for round in 0..9 {
            let answer = if round % 3 == 2 { Ok(round) } else { Err(failed()) };
            assert_eq!(breaker.guard(async { answer.clone() }).await, answer);
        }
        let withheld = SourceError::Withheld { reason: "why".into() };
        for _ in 0..4 {
            assert_eq!(breaker.guard(async { Err::<(), _>(withheld.clone()) }).await, Err(withheld.clone()));
        }
        assert_eq!(breaker.guard(async { Ok(()) }).await, Ok(()));
    }
}
