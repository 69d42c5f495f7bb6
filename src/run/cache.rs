//! Lookups: queries to sources and their results. A query on record is not sent again.
//!
//! Identical queries are answered from memory, then from the journal of any run. A query with nearly the same meaning
//! as an earlier one takes its result: the journal finds queries with the same key words, and the embedder compares
//! them, so the journal stores no vectors. The choice among earlier queries does not depend on the speed of nodes, so a
//! resumed run sees the same results. A result is reused only under the same version of its source, and an internal
//! result never for the web.

use std::sync::Arc;

use moka::future::Cache as Memory;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::journal::{JournalError, LockedRun, Lookup, LookupAnswer, LookupRow, LookupTerms, LookupTool};
use crate::base::clock::{Clock, Moment};
use crate::base::line::one_line;
use crate::base::word::{WordSplitter, has_key_word};
use crate::kb::embed::{Embedder, cosine};
use crate::research::worker::WorkError;
use crate::source::SourceError;

/// Cosine above which two queries with the same key words count as the same. The cosine alone does not distinguish
/// "increases" from "reduces". `kb/decisions/near-queries.md` explains the value.
const SAME_QUESTION: f32 = 0.94;

/// Marks at the end of a word or a query that do not change its meaning.
const MARKS: [char; 7] = ['?', '!', '.', ',', ';', ':', '…'];

/// Stop words that change the meaning of a question.
const RELATIONS: [&str; 20] = [
    "no", "not", "without", "with", "before", "after", "above", "below", "over", "under", "from", "to", "up", "down",
    "against", "more", "less", "most", "least", "only",
];

/// Results kept in memory. One that was evicted is read from the journal again.
const MEMORY_ENTRIES: u64 = 1_000;

/// Results on record, shared by the workers of a run.
#[derive(Clone)]
pub(crate) struct Cache {
    run: LockedRun,
    /// Start of the run. Later results of other runs are not used, apart from jobs, so that a resumed run sees the same
    /// results.
    since: Moment,
    clock: Arc<dyn Clock>,
    embedder: Option<Arc<dyn Embedder>>,
    memory: Memory<(LookupTool, String, LookupTerms, String), Arc<str>>,
}

impl Cache {
    /// Returns the cache of a run. Without an embedder, only identical queries match.
    pub(crate) fn new(
        run: LockedRun,
        since: Moment,
        clock: Arc<dyn Clock>,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Self {
        Self { run, since, clock, embedder, memory: Memory::new(MEMORY_ENTRIES) }
    }

    /// Returns the recorded answer of a source to a lookup, else the result of `ask`. A recorded answer that cannot be
    /// read counts as missing, unless it was paid for.
    ///
    /// # Errors
    ///
    /// Returns the error of `ask`, and an error if the journal fails, or a job is on record and its record cannot be
    /// read.
    pub(crate) async fn answer<T, E>(
        &self,
        lookup: Lookup,
        ask: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<JournalError> + Clone + Send + Sync + 'static,
    {
        // Without the node: nodes of a run share answers.
        // Nor with scope and label, which are the same for all lookups of a tool and a version within a run.
        let key = (lookup.tool, lookup.version.clone(), lookup.terms.clone(), lookup.query.clone());
        let is_readable = |text: &str| serde_json::from_str::<T>(text).is_ok();
        let text = match self.memory.get(&key).await {
            Some(known) => {
                // Each node has a row of its own, since usage is counted by node.
                if let Some(row) = self.known(&lookup, is_readable).await? {
                    self.record(&lookup, LookupAnswer::Known(row.id)).await?;
                }
                known
            }
            None => {
                let ask = async { serde_json::to_string(&ask.await?).map_err(unreadable) };
                // Concurrent workers with the same query share one answer.
                let fetched = self.memory.try_get_with(key, self.fetch(lookup, is_readable, ask)).await;
                fetched.map_err(|error| E::clone(&error))?
            }
        };
        serde_json::from_str(&text).map_err(unreadable)
    }

    /// Returns the recorded answer to exactly this lookup.
    pub(crate) async fn recorded<T>(&self, lookup: &Lookup) -> Result<Option<T>, JournalError>
    where
        T: DeserializeOwned,
    {
        let Some(row) = self.known(lookup, |text| serde_json::from_str::<T>(text).is_ok()).await? else {
            return Ok(None);
        };
        self.record(lookup, LookupAnswer::Known(row.id)).await?;
        Ok(Some(serde_json::from_str(&row.result)?))
    }

    /// Returns whether a job is on record for exactly this lookup, and its record cannot be read.
    pub(crate) async fn is_broken<T: DeserializeOwned>(&self, lookup: &Lookup) -> Result<bool, JournalError> {
        let known = or_miss(self.known(lookup, |text| serde_json::from_str::<T>(text).is_ok()).await)?;
        Ok(known.is_none())
    }

    /// Records an answer that a node already has, unless an answer to the lookup is on record. Returns the one on
    /// record.
    pub(crate) async fn keep<T>(&self, lookup: &Lookup, answer: T) -> Result<T, JournalError>
    where
        T: Serialize + DeserializeOwned,
    {
        let known = or_miss(self.known(lookup, |text| serde_json::from_str::<T>(text).is_ok()).await)?;
        match known {
            Some(Some(row)) => Ok(serde_json::from_str(&row.result)?),
            Some(None) => {
                let result = serde_json::to_string(&answer)?;
                self.record(lookup, LookupAnswer::New { result, words: None }).await?;
                Ok(answer)
            }
            // A record that cannot be read is for `dr doctor --repair`; a second one would be shadowed by it.
            None => Ok(answer),
        }
    }

    /// Returns how many lookups of this run were put to a source, and not answered from the record.
    pub(crate) async fn made(&self, tool: LookupTool, scope: &str) -> Result<u64, JournalError> {
        self.run.journal().new_lookups(self.run.id(), tool, scope).await
    }

    async fn fetch<E: From<JournalError>>(
        &self,
        lookup: Lookup,
        is_readable: impl Fn(&str) -> bool + Send + Sync,
        ask: impl Future<Output = Result<String, E>> + Send,
    ) -> Result<Arc<str>, E> {
        if let Some(row) = self.known(&lookup, &is_readable).await? {
            self.record(&lookup, LookupAnswer::Known(row.id)).await?;
            return Ok(row.result.into());
        }
        // Only after the exact lookup, which costs no embedding.
        let words = lookup.tool.is_asked_in_words().then(|| key_words(&lookup.query).join(" "));
        if let Some(words) = &words
            && let Some(row) = self.nearest(&lookup, words).await?
            && let Some(result) = or_miss(self.run.journal().lookup_result(row).await)?.filter(|text| is_readable(text))
        {
            self.record(&lookup, LookupAnswer::Known(row)).await?;
            return Ok(result.into());
        }
        let result = ask.await?;
        // Stored before it is used: a resumed run must see the answer on which its prompts were built.
        self.record(&lookup, LookupAnswer::New { result: result.clone(), words }).await?;
        Ok(result.into())
    }

    /// Returns the answer on record to exactly this lookup, if there is one that can be read.
    async fn known(
        &self,
        lookup: &Lookup,
        is_readable: impl Fn(&str) -> bool,
    ) -> Result<Option<LookupRow>, JournalError> {
        // A job is never paid for twice, even if a run that began later has paid for it.
        let before = (lookup.tool != LookupTool::DeepResearch).then_some(self.since);
        let found = self.run.journal().find_lookup(self.run.id(), lookup, before).await;
        if lookup.tool == LookupTool::DeepResearch {
            return match found? {
                Some(row) if !is_readable(&row.result) => {
                    Err(JournalError::Unreadable("record of a background job".into()))
                }
                row => Ok(row),
            };
        }
        Ok(or_miss(found)?.flatten().filter(|row| is_readable(&row.result)))
    }

    async fn record(&self, lookup: &Lookup, answer: LookupAnswer) -> Result<(), JournalError> {
        self.run.record_lookup(lookup, answer, self.clock.now()).await
    }

    /// Returns a recorded lookup with the same meaning, if there is one.
    async fn nearest(&self, lookup: &Lookup, words: &str) -> Result<Option<i64>, JournalError> {
        let Some(embedder) = self.embedder.clone() else { return Ok(None) };
        let candidates = self.run.journal().lookups_with_words(self.run.id(), lookup, words, self.since).await;
        let candidates = or_miss(candidates)?.unwrap_or_default();
        if candidates.is_empty() {
            return Ok(None);
        }
        // With the number of hits before it, as formats up to 9 compared it: a resumed run finds the same matches.
        let query = lookup.query_with_max_hits();
        // Without vectors the source is asked: a missed match costs a search, a wrong one hides evidence.
        let nearest = move || {
            let vector = embedder.embed_query(&query).ok()?;
            let similarity =
                |(id, query): (i64, String)| Some((cosine(&vector, &embedder.embed_query(&query).ok()?), id));
            let near = candidates.into_iter().filter_map(similarity).filter(|(cosine, _)| *cosine >= SAME_QUESTION);
            // Among equals the oldest, which stays the same when more are recorded.
            near.max_by(|(a, first), (b, second)| a.total_cmp(b).then(second.cmp(first))).map(|(_, id)| id)
        };
        Ok(tokio::task::spawn_blocking(nearest).await.ok().flatten())
    }
}

/// Treats a recorded answer that cannot be read as missing.
fn or_miss<T>(read: Result<T, JournalError>) -> Result<Option<T>, JournalError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

/// Normalises a query for comparison: lower case, single spaces, no marks at its end.
pub(crate) fn normalised(query: &str) -> String {
    one_line(query).to_lowercase().trim_end_matches(MARKS).trim_end().to_owned()
}

/// Returns the key words of a normalised query in order, since "is A faster than B" differs from "is B faster than A".
/// A word with signs, such as `c++`, is kept whole.
fn key_words(query: &str) -> Vec<String> {
    let splitter = WordSplitter::default();
    let words = query.split_whitespace().map(|word| word.trim_end_matches(MARKS));
    let is_plain =
        |word: &str| word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '\''));
    let key = |word: &str| match () {
        () if !is_plain(word) => vec![word.to_owned()],
        () if has_key_word(word) || RELATIONS.contains(&word) => splitter.key_stems(word),
        () => Vec::new(),
    };
    words.flat_map(key).collect()
}

fn unreadable<E: From<JournalError>>(error: serde_json::Error) -> E {
    JournalError::from(error).into()
}

impl From<JournalError> for WorkError {
    fn from(error: JournalError) -> Self {
        Self::Call(error.into())
    }
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
    use crate::research::node::NodeId;
    use crate::run::event::Record;
    use crate::run::journal::tests::started;
    use crate::run::store::Store;
    use crate::source::Label;

    async fn cache(run: &RunId, store: &Store, at: Moment) -> Cache {
        let run = store.lock(run).unwrap();
        run.create("why?", &Record { at, ..started() }).await.unwrap();
        Cache::new(run, at, Arc::new(ManualClock::at(at)), Some(builtin_for_tests()))
    }

    /// Returns the answer of a source that echoes its query, for a node.
    async fn asked(cache: &Cache, node: u32, query: &str) -> String {
        let lookup = Lookup {
            node: NodeId::numbered(node),
            tool: LookupTool::KbSearch,
            query: normalised(query),
            scope: "files".into(),
            label: Label::Internal,
            version: "1".into(),
            terms: LookupTerms { max_hits: Some(5), ..LookupTerms::default() },
        };
        cache.answer(lookup, async { Ok::<_, SourceError>(query.to_owned()) }).await.unwrap()
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
        let first_answer = asked(&earlier, 2, "Does topic 4 increase survival?").await;
        let later = cache(&second, &store, Moment(2)).await;
        let again = asked(&later, 2, "please tell me, does topic 4 increase survival").await;
        assert_eq!((again, known(&store, &second).await), (first_answer, 1));
        for other in [
            "Does topic 4 reduce survival?",
            "Does survival increase topic 4?",
            "Does topic 4 not increase survival?",
            "Does topic 4+ increase survival?",
            "Does topic 4# increase survival?",
        ] {
            asked(&later, 2, other).await;
            assert_eq!(known(&store, &second).await, 1, "{other}");
        }
        asked(&later, 2, "Does topic 4+ increase survival").await;
        assert_eq!(known(&store, &second).await, 2, "the mark at the end asks nothing else");
    }

    #[tokio::test]
    async fn answer_on_record_that_cannot_be_read_is_asked_for_again() {
        let store = Store::in_memory().unwrap();
        for (place, damage) in ["'{\"half'", "CAST(x'22ff22' AS TEXT)"].into_iter().enumerate() {
            let id = u64::try_from(place).unwrap() * 2;
            let (first, second) = (RunId::random(id), RunId::random(id + 1));
            let query = format!("When do valves open on day {place}?");
            asked(&cache(&first, &store, Moment(id)).await, 2, &query).await;
            store
                .journal()
                .damage(&format!("PRAGMA ignore_check_constraints = 1; UPDATE lookups SET result = {damage}"))
                .await;
            let later = cache(&second, &store, Moment(id + 1)).await;
            assert_eq!(asked(&later, 2, &query).await, query, "{damage}");
            assert_eq!(known(&store, &second).await, 0, "{damage}");
            assert_eq!(asked(&later, 2, &query).await, query);
        }
    }

    #[tokio::test]
    async fn node_is_not_answered_from_what_another_node_of_its_run_has_just_found_in_other_words() {
        let store = Store::in_memory().unwrap();
        let run = RunId::random(1);
        let cache = cache(&run, &store, Moment(1)).await;
        asked(&cache, 2, "Does topic 4 increase survival?").await;
        asked(&cache, 3, "please tell me, does topic 4 increase survival").await;
        assert_eq!(known(&store, &run).await, 0);
        asked(&cache, 3, "Does topic 4 increase survival?").await;
        assert_eq!(known(&store, &run).await, 1, "an identical query is shared by all nodes");
    }
}
