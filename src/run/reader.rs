//! Reads long web pages for a node, which sees a digest or, without one, the excerpts relevant to its question.
//!
//! No long page is shown whole, but quotes are checked against all of it. Only public text goes in: pages, and a
//! question that may leave.

use std::ops::Range;
use std::sync::Arc;

use crate::base::outbound::Outbound;
use crate::base::step::Step;
use crate::kb::embed::Embedder;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::research::digest::{Digest, digest};
use crate::research::node::NodeId;
use crate::research::prompt::ends_run;
use crate::source::SourceError;
use crate::source::web::{joined, relevant};

/// Characters of a page that a worker is shown.
const SHOWN_CHARACTERS: usize = 6_000;

/// Reads pages for all nodes of a run.
#[derive(Clone)]
pub(crate) struct PageReader {
    /// Makes digests; without it, excerpts relevant to the question are shown.
    pub(crate) caller: Option<Arc<dyn Caller>>,
    /// Ranks excerpts by relevance to a question; without it, the beginning of a page is shown.
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
}

impl PageReader {
    /// Returns the part of a page to show; `None` for the whole page.
    ///
    /// # Errors
    ///
    /// Returns an error only if the run itself cannot go on.
    pub(crate) async fn shown(
        &self,
        node: &NodeId,
        question: &Outbound,
        page: &str,
    ) -> Result<Option<String>, SourceError> {
        // A page of this length is shown whole, and costs no call.
        if page.chars().count() <= SHOWN_CHARACTERS {
            return Ok(None);
        }
        let ranked = self.ranked(question, page).await.filter(|ranked| !ranked.is_empty());
        // The worker then cuts the page to its beginning.
        let Some(ranked) = ranked else { return Ok(None) };
        let digest = self.digest(node, question, page, &ranked).await.map_err(SourceError::Stopped)?;
        Ok(Some(match digest {
            Some(digest) => digest.shown(page, SHOWN_CHARACTERS),
            None => joined(page, ranked.into_iter(), SHOWN_CHARACTERS),
        }))
    }

    /// Returns the parts of a page by relevance to the question, best first.
    async fn ranked(&self, question: &Outbound, page: &str) -> Option<Vec<Range<usize>>> {
        let (embedder, question, page) = (self.embedder.clone()?, question.clone(), page.to_owned());
        let rank = move || relevant(&page, question.as_str(), embedder.as_ref());
        tokio::task::spawn_blocking(rank).await.ok()?.ok()
    }

    /// Returns the digest of a page; `None` if it fails or takes too long.
    async fn digest(
        &self,
        node: &NodeId,
        question: &Outbound,
        page: &str,
        ranked: &[Range<usize>],
    ) -> Result<Option<Digest>, CallError> {
        let Some(caller) = &self.caller else { return Ok(None) };
        // By the text, so that a page that has changed is read again.
        let key = CallKey::of_node(node).then(Step::Page).about(page);
        match digest(caller.as_ref(), &key, question, page, ranked).await {
            // Any other failure costs the digest only: the excerpts are shown instead.
            Err(error) if ends_run(&error) => Err(error),
            made => Ok(made.ok().flatten()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kb::embed::builtin_for_tests;
    use crate::llm::call::Limit;
    use crate::research::digest::{SUMMARY, VERBATIM};
    use crate::research::scripted::{Scripted, broken};

    const VALVES: &str = "The greenhouse beds are watered from six until nine in the morning.";

    fn long_page() -> String {
        let other =
            format!("{}\n\n", "The cat of the house sleeps in the sun and dreams of mice. ".repeat(11).trim_end());
        let other = other.repeat(6);
        format!("{other}{VALVES}\n\n{other}")
    }

    /// Returns the part of a page to show.
    async fn shown(page: &str, caller: Arc<dyn Caller>) -> Result<Option<String>, SourceError> {
        let reading = PageReader { caller: Some(caller), embedder: Some(builtin_for_tests()) };
        reading.shown(&NodeId::numbered(2), &Outbound::fixed("When are the greenhouse beds watered?"), page).await
    }

    #[tokio::test]
    async fn long_page_is_shown_as_a_digest() {
        let caller = Arc::new(Scripted::new(|_, prompt| {
            let task = &prompt.messages[1].text;
            let number = task.split("<data id=\"").skip(1).find(|block| block.contains(VALVES)).unwrap();
            let number: i64 = number.split('"').next().unwrap().parse().unwrap();
            Ok(json!({"summary": "Beds get water from six.", "pieces": [number]}).to_string())
        }));
        let page = long_page();
        let shown = shown(&page, Arc::clone(&caller) as Arc<dyn Caller>).await.unwrap();
        assert_eq!(shown, Some(format!("{SUMMARY} Beds get water from six.\n\n{VERBATIM}\n{VALVES}")));
        let keys = caller.keys();
        assert!(keys.len() == 1 && keys[0].starts_with("n2/page/"), "{keys:?}");
    }

    #[tokio::test]
    async fn short_page_is_shown_as_it_is_without_a_call() {
        let caller = Arc::new(Scripted::replying(json!({})));
        let shown = shown(VALVES, Arc::clone(&caller) as Arc<dyn Caller>).await.unwrap();
        assert_eq!((shown, caller.keys().len()), (None, 0));
    }

    #[tokio::test]
    async fn page_is_cut_to_what_bears_on_the_question_where_there_is_no_digest_in_time() {
        let useless: Vec<Arc<dyn Caller>> = vec![
            Arc::new(Scripted::replying(json!({"summary": "Beds.", "pieces": []}))),
            Arc::new(Scripted::new(|_, _| Ok("I like pages.".into()))),
            Arc::new(Scripted::replying(json!({})).failing_at(1, broken("no"))),
            Arc::new(Scripted::replying(json!({})).failing_at(1, CallError::Limit(Limit::Tokens))),
        ];
        for caller in useless {
            let shown = shown(&long_page(), caller).await.unwrap().unwrap();
            assert!(shown.contains(VALVES) && shown.chars().count() <= SHOWN_CHARACTERS, "{shown}");
            assert!(!shown.contains(SUMMARY), "{shown}");
        }
    }

    #[tokio::test]
    async fn run_that_is_stopped_reads_no_further() {
        for error in [CallError::Cancelled, CallError::Journal { reason: "disk full".into(), hint: None }] {
            let caller = Scripted::replying(json!({})).failing_at(1, error.clone());
            let shown = shown(&long_page(), Arc::new(caller)).await;
            assert_eq!(shown, Err(SourceError::Stopped(error)));
        }
    }
}
