//! What sources were asked and what they said: asked again, they need not answer again.
//!
//! Identical queries are answered from memory, then from the journal, of whichever run; a query that means nearly the
//! same as an earlier one is answered from that. Which earlier one never depends on which node of a run was faster, so
//! that a resumed run sees what it saw. A result serves only under the version of the source it was found in, and an
//! internal one never a node of the web.

use std::sync::Arc;

use futures::future::BoxFuture;
use moka::future::Cache as Memory;

use super::journal::{JournalError, LockedRun, Lookup, LookupAnswer};
use crate::base::clock::{Clock, Moment};
use crate::base::id::ContentHash;
use crate::base::line::one_line;
use crate::base::word::WordSplitter;
use crate::kb::embed::Embedder;
use crate::research::node::NodeId;
use crate::research::question::Question;
use crate::source::{Found, Label, Layer, Passage, Source, SourceError};

/// Two queries of the same key words that are closer than this, as a cosine, ask the same; the cosine alone does not tell
/// "increases" from "reduces". `kb/decisions/near-queries.md` says how it was set.
const SAME_QUESTION: f32 = 0.94;

/// Marks at the end of a word or a query that change nothing of what it asks.
const MARKS: [char; 7] = ['?', '!', '.', ',', ';', ':', '…'];

/// Small words that turn a question into another one.
const RELATIONS: [&str; 20] = [
    "no", "not", "without", "with", "before", "after", "above", "below", "over", "under", "from", "to", "up", "down",
    "against", "more", "less", "most", "least", "only",
];

/// Results kept in memory.
const MEMORY_ENTRIES: u64 = 1_000;

/// Results on record, shared by the workers of a run.
#[derive(Clone)]
pub struct Cache {
    run: LockedRun,
    /// When the run began: results of other runs that are younger are not used.
    since: Moment,
    clock: Arc<dyn Clock>,
    embedder: Option<Arc<dyn Embedder>>,
    memory: Memory<String, Arc<str>>,
}

impl Cache {
    /// Makes the cache of a run; without an embedder only identical queries are known again.
    pub fn new(run: LockedRun, since: Moment, clock: Arc<dyn Clock>, embedder: Option<Arc<dyn Embedder>>) -> Self {
        Self { run, since, clock, embedder, memory: Memory::new(MEMORY_ENTRIES) }
    }

    /// Returns a source that answers from what is on record where it can, for one node.
    ///
    /// `version` is that of the source when the run began.
    pub fn source(&self, inner: Arc<dyn Source>, node: NodeId, version: String) -> CachedSource {
        CachedSource { cache: self.clone(), inner, node, version, read_for: String::new() }
    }

    /// Returns what is on record for a lookup, or what `ask` says.
    ///
    /// # Errors
    ///
    /// Returns what `ask` fails with, and an error where the journal does.
    pub async fn answer<E, F>(&self, lookup: Lookup, ask: F) -> Result<Arc<str>, E>
    where
        E: From<JournalError> + Clone + Send + Sync + 'static,
        F: Future<Output = Result<String, E>> + Send,
    {
        let key = format!("{}\u{1f}{}\u{1f}{}", lookup.tool, lookup.version, lookup.query);
        if let Some(known) = self.memory.get(&key).await {
            if let Some(row) = self.run.journal().find_lookup(self.run.id(), &lookup, self.since).await? {
                self.record(&lookup, LookupAnswer::Known(row.id)).await?;
            }
            return Ok(known);
        }
        // Workers that ask the same thing at the same time wait for one answer.
        let fetched = self.memory.try_get_with(key, self.fetch(lookup, ask)).await;
        fetched.map_err(|error| E::clone(&error))
    }

    async fn fetch<E, F>(&self, lookup: Lookup, ask: F) -> Result<Arc<str>, E>
    where
        E: From<JournalError>,
        F: Future<Output = Result<String, E>> + Send,
    {
        if let Some(row) = self.run.journal().find_lookup(self.run.id(), &lookup, self.since).await? {
            self.record(&lookup, LookupAnswer::Known(row.id)).await?;
            return Ok(row.result.into());
        }
        let vector = if is_in_words(&lookup) { self.embed(&lookup.query).await } else { None };
        if let Some(vector) = &vector {
            let words = key_words(&lookup.query);
            let near = self.run.journal().near_lookups(self.run.id(), &lookup, self.since).await;
            let near = near?.into_iter().filter_map(|row| {
                let similarity = dot(vector, row.vector.as_deref()?);
                let is_same = similarity >= SAME_QUESTION && key_words(&row.query) == words;
                is_same.then_some((similarity, row))
            });
            if let Some((_, row)) = near.max_by(|(a, first), (b, second)| a.total_cmp(b).then(second.id.cmp(&first.id)))
            {
                self.record(&lookup, LookupAnswer::Known(row.id)).await?;
                return Ok(self.run.journal().lookup_result(row.id).await?.into());
            }
        }
        let result = ask.await?;
        self.record(&lookup, LookupAnswer::New { result: result.clone(), vector }).await?;
        Ok(result.into())
    }

    async fn record(&self, lookup: &Lookup, answer: LookupAnswer) -> Result<(), JournalError> {
        self.run.record_lookup(lookup, answer, self.clock.now()).await
    }

    async fn embed(&self, query: &str) -> Option<Vec<f32>> {
        let (embedder, query) = (self.embedder.clone()?, query.to_owned());
        tokio::task::spawn_blocking(move || embedder.embed_query(&query)).await.ok()?.ok()
    }
}

/// A source that need not answer twice.
pub struct CachedSource {
    cache: Cache,
    inner: Arc<dyn Source>,
    node: NodeId,
    version: String,
    read_for: String,
}

impl CachedSource {
    /// Keeps what is opened for this question alone: another one is shown something else of the same page.
    #[must_use]
    pub fn read_for(self, question: &Question) -> Self {
        let hash = ContentHash::of(question.as_str().as_bytes());
        Self { read_for: format!(" for {}", &hash.as_str()[..16]), ..self }
    }

    fn lookup(&self, tool: &str, query: String, version: String) -> Lookup {
        Lookup {
            node: self.node.clone(),
            tool: format!("{}.{tool}", self.inner.name()),
            query,
            scope: self.inner.scope(),
            label: if self.inner.name() == "web" { Label::Public } else { Label::Internal },
            version,
        }
    }
}

impl Layer for CachedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let normalised = format!("{limit}: {}", normalised(query));
            let ask = async {
                let found = self.inner.search(query, limit).await?;
                serde_json::to_string(&found).map_err(|error| unreadable(&error))
            };
            let result = self.cache.answer(self.lookup("search", normalised, self.version.clone()), ask).await?;
            let found = serde_json::from_str(&result).map_err(|error| unreadable(&error))?;
            self.inner.recognise(&found);
            Ok(found)
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let ask = async {
                let passage = self.inner.open(id).await?;
                serde_json::to_string(&passage).map_err(|error| unreadable(&error))
            };
            let version = format!("{}{}", self.version, self.read_for);
            let result = self.cache.answer(self.lookup("open", id.to_owned(), version), ask).await?;
            serde_json::from_str(&result).map_err(|error| unreadable(&error))
        })
    }
}

/// Tells whether other words may have asked the same. A page has one address, and what a job is started for is worth more
/// than it is likely: a report on the opposite would be taken for one on the question.
fn is_in_words(lookup: &Lookup) -> bool {
    lookup.tool.split_once('.').is_some_and(|(_, what)| what == "search")
}

/// Returns a query as it is compared with others: lower case, single spaces, no marks around it.
pub(super) fn normalised(query: &str) -> String {
    one_line(query).to_lowercase().trim_end_matches(MARKS).trim_end().to_owned()
}

/// Returns the key words of a normalised query in their order, for "is A faster than B" is not "is B faster than A"; how
/// many hits were wanted, which stands in front, is one of them. What has signs in it, such as `c++`, is one as it stands.
fn key_words(query: &str) -> Vec<String> {
    let splitter = WordSplitter::default();
    let words = query.split_whitespace().map(|word| word.trim_end_matches(MARKS));
    let is_plain =
        |word: &str| word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '\''));
    let key = |word: &str| match () {
        () if !is_plain(word) => vec![word.to_owned()],
        () if splitter.has_key_word(word) || RELATIONS.contains(&word) => splitter.key_stems(word),
        () => Vec::new(),
    };
    words.flat_map(key).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn unreadable(error: &serde_json::Error) -> SourceError {
    SourceError::Failed { name: "cache".into(), reason: error.to_string() }
}

impl From<JournalError> for SourceError {
    fn from(error: JournalError) -> Self {
        Self::Stopped(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::id::RunId;
    use crate::kb::embed::builtin_for_tests;
    use crate::researcher::ScriptedSource;
    use crate::run::event::{Event, Record};
    use crate::run::store::Store;

    async fn cache(run: &RunId, store: &Store, at: Moment) -> Cache {
        let settings = serde_json::json!({
            "mode": "quick", "limits": crate::run::budget::BudgetLimits::default(), "parallel": 1, "summary_tokens": 200,
            "tree": { "max_depth": 1, "max_nodes": 9 }, "by_rules": true, "scope": {}, "searched": "", "source_version": "1",
        });
        let event =
            Event::Started { question: "why?".parse().unwrap(), settings: serde_json::from_value(settings).unwrap() };
        let run = store.lock(run).unwrap();
        run.create("why?", &Record { seq: 1, at, event }).await.unwrap();
        Cache::new(run, at, Arc::new(ManualClock::at(at)), Some(builtin_for_tests()))
    }

    fn of_node(cache: &Cache, node: u32) -> Box<dyn Source> {
        Box::new(cache.source(Arc::new(ScriptedSource), NodeId::numbered(node), "1".into()))
    }

    /// Returns how many lookups of the run an earlier answer served.
    async fn known(store: &Store, run: &RunId) -> u64 {
        store.journal().lookup_counts(run).await.unwrap().iter().map(|(_, _, known)| known).sum()
    }

    #[tokio::test]
    async fn question_asked_before_in_nearly_the_same_words_is_answered_from_the_record_and_its_opposite_is_not() {
        let store = Store::in_memory().unwrap();
        let (first, second) = (RunId::random(1), RunId::random(2));
        let earlier = cache(&first, &store, Moment(1)).await;
        let asked = of_node(&earlier, 2).search("Does topic 4 increase survival?", 5).await.unwrap();
        let later = cache(&second, &store, Moment(2)).await;
        let again = of_node(&later, 2).search("please tell me, does topic 4 increase survival", 5).await.unwrap();
        assert_eq!((again, known(&store, &second).await), (asked, 1));
        for other in [
            "Does topic 4 reduce survival?",
            "Does survival increase topic 4?",
            "Does topic 4 not increase survival?",
            "Does topic 4+ increase survival?",
            "Does topic 4# increase survival?",
        ] {
            of_node(&later, 2).search(other, 5).await.unwrap();
            assert_eq!(known(&store, &second).await, 1, "{other}");
        }
        of_node(&later, 2).search("Does topic 4+ increase survival", 5).await.unwrap();
        assert_eq!(known(&store, &second).await, 2, "the mark at the end asks nothing else");
    }

    #[tokio::test]
    async fn node_is_not_answered_from_what_another_node_of_its_run_has_just_found_in_other_words() {
        let store = Store::in_memory().unwrap();
        let run = RunId::random(1);
        let cache = cache(&run, &store, Moment(1)).await;
        let source = |node| of_node(&cache, node);
        source(2).search("Does topic 4 increase survival?", 5).await.unwrap();
        source(3).search("please tell me, does topic 4 increase survival", 5).await.unwrap();
        assert_eq!(known(&store, &run).await, 0);
        source(3).search("Does topic 4 increase survival?", 5).await.unwrap();
        assert_eq!(known(&store, &run).await, 1, "the very same query is the same for everybody");
    }

    #[tokio::test]
    async fn what_is_opened_for_one_question_is_not_shown_for_another() {
        let store = Store::in_memory().unwrap();
        let run = RunId::random(1);
        let cache = cache(&run, &store, Moment(1)).await;
        let opened = async |question: &str| {
            let source = cache.source(Arc::new(ScriptedSource), NodeId::numbered(2), "1".into());
            let source: Box<dyn Source> = Box::new(source.read_for(&question.parse().unwrap()));
            source.open("topic-4").await.unwrap();
            known(&store, &run).await
        };
        assert_eq!(opened("What is it?").await, 0);
        assert_eq!(opened("Who made it?").await, 0);
        assert_eq!(opened("What is it?").await, 1);
    }
}
