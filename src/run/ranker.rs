//! Has the model of a run order what a worker's search found, before the worker is shown the first hits.
//!
//! Without an order in time and within the budget, the worker is shown the order of the search, and a note says why.
//! Neither is decided twice in a run: the result of a search is on record, in whichever order.

use std::fmt;
use std::sync::Arc;

use super::event::Listwise;
use super::journal::JournalError;
use crate::base::breaker::{Breaker, Guarded, Health, Open};
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::research::node::NodeId;
use crate::research::prompt::ends_run;
use crate::research::rerank::order;
use crate::source::{Found, SourceError, Support};

/// Minimum number of hits whose order is worth a call.
const LEAST_HITS: usize = 3;

/// Orders hits for all workers of a run.
#[derive(Clone)]
pub(crate) struct HitRanker {
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) settings: Listwise,
    pub(crate) model: String,
    /// Stops asking a model that fails: each time-out is waited for and charged.
    pub(crate) breaker: Arc<Breaker>,
}

impl fmt::Display for HitRanker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.settings.candidates, self.model)
    }
}

/// A search whose hits the model did not order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unranked {
    /// Its hits are in the order of the search.
    Fused(Box<Found>),
    /// The search failed, or the run cannot go on.
    Failed(SourceError),
}

impl From<SourceError> for Unranked {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

impl From<JournalError> for Unranked {
    fn from(error: JournalError) -> Self {
        Self::Failed(error.into())
    }
}

/// Why the model did not order hits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum NoOrder {
    #[error("the budget is nearly used up")]
    Tight,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Open(#[from] Open),
}

impl Guarded for NoOrder {
    fn health(&self) -> Health {
        if matches!(self, Self::Call(CallError::Model(_))) { Health::Down } else { Health::Unknown }
    }
}

impl HitRanker {
    /// Returns the number of hits to search for if a worker is shown `shown`.
    pub(crate) fn wanted(&self, shown: usize) -> usize {
        self.settings.candidates.max(shown)
    }

    /// Orders hits and keeps the first `shown`.
    ///
    /// # Errors
    ///
    /// Returns [`Unranked::Fused`] without an order, and [`Unranked::Failed`] if the run cannot go on.
    pub(crate) async fn ranked(
        &self,
        node: &NodeId,
        query: &str,
        mut found: Found,
        shown: usize,
    ) -> Result<Found, Unranked> {
        let candidates = found.passages.len().min(self.settings.candidates);
        // Otherwise all of them are shown, or none is about the query.
        let pays = candidates > shown && candidates >= LEAST_HITS && found.support != Support::None;
        let order = if pays { self.order(node, query, &found, candidates).await } else { Ok(Vec::new()) };
        if let Ok(order) = &order {
            reorder(&mut found, order);
        }
        found.passages.truncate(shown);
        match order {
            Ok(_) => Ok(found),
            Err(NoOrder::Call(error)) if ends_run(&error) => Err(SourceError::Stopped(error).into()),
            Err(why) => {
                found.notes.push(format!("hits were not reranked by the language model: {why}"));
                Err(Unranked::Fused(Box::new(found)))
            }
        }
    }

    async fn order(&self, node: &NodeId, query: &str, found: &Found, candidates: usize) -> Result<Vec<usize>, NoOrder> {
        let passages = &found.passages[..candidates];
        let ids = passages.iter().flat_map(|passage| ["\n", passage.id.as_str()]).collect::<String>();
        let key = CallKey::of_node(node).then(Step::Rerank).about(&format!("{query}{ids}"));
        // The rest of the budget is worth more in steps of the workers.
        if self.caller.is_tight(&key) {
            return Err(NoOrder::Tight);
        }
        let ordered = order(self.caller.as_ref(), &key, query, passages, self.settings.timeout);
        self.breaker.ask(async { Ok(ordered.await?) }).await
    }
}

/// Moves the passages at the positions of `order` to the front, in that order. Those that it lacks keep their places
/// behind. The scores stay where they are: a model gives none, and they have to fall from hit to hit.
fn reorder(found: &mut Found, order: &[usize]) {
    let scores: Vec<_> = found.passages.iter().map(|passage| passage.score).collect();
    let first: Vec<_> = order.iter().map(|position| found.passages[*position].clone()).collect();
    found.passages.splice(..first.len(), first);
    for (passage, score) in found.passages.iter_mut().zip(scores) {
        passage.score = score;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::llm::call::Limit;
    use crate::research::scripted::{Scripted, ScriptedSource, broken};
    use crate::source::Source;

    const TEXT: &str = "valve one\n\nvalve two\n\nvalve three\n\nvalve four";

    async fn found(support: Support) -> Found {
        let judged = Found { support, ..Found::default() };
        let mut found = ScriptedSource::of(&[("a.md", TEXT)]).judging(judged).search("valve", 9).await.unwrap();
        for (passage, score) in found.passages.iter_mut().zip([0.9, 0.7, 0.5, 0.3]) {
            passage.score = score;
        }
        found
    }

    fn ranker(caller: &Arc<Scripted>) -> HitRanker {
        HitRanker {
            caller: Arc::clone(caller) as Arc<dyn Caller>,
            settings: Listwise { candidates: 4, timeout: Duration::from_secs(9) },
            model: "scripted".into(),
            breaker: Arc::new(Breaker::of_run("it")),
        }
    }

    async fn ranked(ranker: &HitRanker, shown: usize, support: Support) -> Result<Found, Unranked> {
        ranker.ranked(&NodeId::numbered(2), "valve", found(support).await, shown).await
    }

    fn texts(found: &Found) -> Vec<&str> {
        found.passages.iter().map(|passage| passage.text.as_str()).collect()
    }

    #[tokio::test]
    async fn hits_come_in_the_order_of_the_model_with_the_scores_of_their_places() {
        let caller = Arc::new(Scripted::replying(json!({"order": [3, 2, 4, 1]})));
        let found = ranked(&ranker(&caller), 2, Support::Weak).await.unwrap();
        assert_eq!(texts(&found), ["valve three", "valve two"]);
        let scores: Vec<_> = found.passages.iter().map(|passage| passage.score).collect();
        assert_eq!((scores, found.support, found.notes), (vec![0.9, 0.7], Support::Weak, Vec::<String>::new()));
        let keys = caller.keys();
        assert!(keys.len() == 1 && keys[0].starts_with("n2/rerank/"), "{keys:?}");
    }

    #[tokio::test]
    async fn order_that_cannot_matter_is_not_asked_for() {
        let caller = Arc::new(Scripted::replying(json!({"order": [4, 3, 2, 1]})));
        for (shown, support) in [(4, Support::Strong), (9, Support::Strong), (2, Support::None)] {
            let found = ranked(&ranker(&caller), shown, support).await.unwrap();
            assert_eq!(texts(&found)[..2], ["valve one", "valve two"]);
            assert_eq!(found.notes, Vec::<String>::new());
        }
        assert_eq!(caller.keys(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn hits_without_an_order_come_as_they_were_found_and_say_why() {
        for (caller, reason, calls) in [
            (Scripted::replying(json!({})).tight(), "the budget is nearly used up", 0),
            (Scripted::replying(json!({})).failing_at(1, CallError::Limit(Limit::Cost)), "limit of cost is reached", 1),
            (Scripted::replying(json!({})).failing_at(1, broken("no")), "no", 1),
            (Scripted::replying(json!("no form")), "the reply", 3),
        ] {
            let caller = Arc::new(caller);
            let Err(Unranked::Fused(found)) = ranked(&ranker(&caller), 2, Support::Strong).await else { panic!() };
            assert_eq!((texts(&found), caller.keys().len()), (vec!["valve one", "valve two"], calls), "{reason}");
            let note = found.notes[0].strip_prefix("hits were not reranked by the language model: ");
            assert!(note.unwrap().contains(reason), "{:?}", found.notes);
        }
    }

    #[tokio::test]
    async fn model_that_fails_three_times_is_not_asked_again() {
        let caller = Arc::new(Scripted::replying(json!({})).failing_at(1, broken("no")));
        let ranker = ranker(&caller);
        for _ in 0..5 {
            assert!(matches!(ranked(&ranker, 2, Support::Strong).await, Err(Unranked::Fused(_))));
        }
        assert_eq!(caller.keys().len(), 3);
    }

    #[tokio::test]
    async fn run_that_is_stopped_shows_no_hits() {
        for error in [CallError::Cancelled, CallError::Journal { reason: "disk full".into(), hint: None }] {
            let caller = Arc::new(Scripted::replying(json!({})).failing_at(1, error.clone()));
            let stopped = ranked(&ranker(&caller), 2, Support::Strong).await;
            assert_eq!(stopped, Err(Unranked::Failed(SourceError::Stopped(error))));
        }
    }
}
