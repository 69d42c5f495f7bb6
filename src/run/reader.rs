//! A page of the web is read for a node: of a long one its worker is shown a digest, else the stretches that bear on the
//! question. No page is shown whole, and all of it stays what quotes are checked against.

use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::base::id::ContentHash;
use crate::kb::embed::Embedder;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::research::digest::{Digest, digest};
use crate::research::node::NodeId;
use crate::research::prompt::ends_run;
use crate::research::question::Question;
use crate::source::web::{joined, relevant};
use crate::source::{Layer, Passage, Source, SourceError};

/// Characters of a page that a worker is shown.
const SHOWN_CHARACTERS: usize = 6_000;

/// What pages are read with, in a whole run.
#[derive(Clone)]
pub struct Reading {
    /// Makes digests; without it the stretches that bear on the question are all that is shown.
    pub caller: Option<Arc<dyn Caller>>,
    /// Tells what bears on a question; without it the beginning of a page is all there is.
    pub embedder: Option<Arc<dyn Embedder>>,
}

/// A source whose long pages are read for one question. Only public texts go in: pages, and a question that may leave.
pub struct Reader {
    inner: Arc<dyn Source>,
    reading: Reading,
    node: NodeId,
    question: Question,
}

impl Reader {
    /// Reads the pages of a source for a node that asks `question`.
    pub fn new(inner: Arc<dyn Source>, reading: Reading, node: NodeId, question: Question) -> Self {
        Self { inner, reading, node, question }
    }

    /// Returns what is shown of a page; nothing where all of it is.
    async fn shown(&self, page: &str) -> Result<Option<String>, SourceError> {
        if page.chars().count() <= SHOWN_CHARACTERS {
            return Ok(None);
        }
        let Some(ranked) = self.ranked(page).await.filter(|ranked| !ranked.is_empty()) else { return Ok(None) };
        let digest = self.digest(page, &ranked).await.map_err(SourceError::Stopped)?;
        Ok(Some(match digest {
            Some(digest) => digest.shown(page, SHOWN_CHARACTERS),
            None => joined(page, ranked.into_iter(), SHOWN_CHARACTERS),
        }))
    }

    /// Returns the stretches of a page that bear most on the question, best first.
    async fn ranked(&self, page: &str) -> Option<Vec<Range<usize>>> {
        let (embedder, question, page) = (self.reading.embedder.clone()?, self.question.clone(), page.to_owned());
        let rank = move || relevant(&page, question.as_str(), embedder.as_ref());
        tokio::task::spawn_blocking(rank).await.ok()?.ok()
    }

    /// Returns the digest of a page, if there is one in time; an error only where the run itself cannot go on.
    async fn digest(&self, page: &str, ranked: &[Range<usize>]) -> Result<Option<Digest>, CallError> {
        let Some(caller) = &self.reading.caller else { return Ok(None) };
        let hash = ContentHash::of(page.as_bytes());
        let key = CallKey::new(format!("{}/page/{}", self.node, &hash.as_str()[..12]));
        match digest(caller.as_ref(), &key, &self.question, page, ranked).await {
            Err(error) if ends_run(&error) => Err(error),
            made => Ok(made.ok().flatten()),
        }
    }
}

impl Layer for Reader {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let mut passage = self.inner.open(id).await?;
            if let Some(shown) = self.shown(&passage.text).await? {
                passage.snippet = shown;
            }
            Ok(passage)
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use serde_json::json;

    use super::*;
    use crate::kb::embed::builtin_for_tests;
    use crate::llm::call::Limit;
    use crate::research::digest::{SUMMARY, VERBATIM};
    use crate::research::scripted::{Scripted, broken};
    use crate::source::{Found, Label, Place, SourceFile};

    const VALVES: &str = "The greenhouse beds are watered from six until nine in the morning.";

    /// A page of the web, again and again.
    struct OnePage(String);

    impl Source for OnePage {
        fn name(&self) -> &'static str {
            "web"
        }

        fn scope(&self) -> String {
            "the web".into()
        }

        fn version(&self) -> String {
            "1".into()
        }

        fn search<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
            Box::pin(pending())
        }

        fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
            let place = Place::Web { url: id.into(), title: "Beds".into(), fetched_at: Some(1), content_hash: None };
            let (text, snippet) = (self.0.clone(), self.0.clone());
            Box::pin(
                async move { Ok(Passage { id: id.into(), place, label: Label::Public, text, snippet, score: 1.0 }) },
            )
        }

        fn read<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, SourceFile> {
            Box::pin(async { SourceFile::Gone })
        }
    }

    fn long_page() -> String {
        let other =
            format!("{}\n\n", "The cat of the house sleeps in the sun and dreams of mice. ".repeat(11).trim_end());
        let other = other.repeat(6);
        format!("{other}{VALVES}\n\n{other}")
    }

    async fn opened(page: &str, caller: Arc<dyn Caller>) -> Result<Passage, SourceError> {
        let reading = Reading { caller: Some(caller), embedder: Some(builtin_for_tests()) };
        let question = "When are the greenhouse beds watered?".parse().unwrap();
        let inner = Arc::new(OnePage(page.to_owned()));
        let reader = Reader::new(inner, reading, NodeId::numbered(2), question);
        Source::open(&reader, "https://example.org/").await
    }

    #[tokio::test]
    async fn long_page_is_shown_as_a_digest_and_checked_against_as_it_is() {
        let caller = Arc::new(Scripted::new(|_, prompt| {
            let task = &prompt.messages[1].text;
            let number = task.split("<data id=\"").skip(1).find(|block| block.contains(VALVES)).unwrap();
            let number: i64 = number.split('"').next().unwrap().parse().unwrap();
            Ok(json!({"summary": "Beds get water from six.", "pieces": [number]}).to_string())
        }));
        let page = long_page();
        let passage = opened(&page, Arc::clone(&caller) as Arc<dyn Caller>).await.unwrap();
        assert_eq!(passage.snippet, format!("{SUMMARY} Beds get water from six.\n\n{VERBATIM}\n{VALVES}"));
        assert_eq!(passage.text, page);
        let keys = caller.keys();
        assert!(keys.len() == 1 && keys[0].starts_with("n2/page/"), "{keys:?}");
    }

    #[tokio::test]
    async fn short_page_is_shown_as_it_is_and_nobody_is_asked() {
        let caller = Arc::new(Scripted::replying(json!({})));
        let passage = opened(VALVES, Arc::clone(&caller) as Arc<dyn Caller>).await.unwrap();
        assert_eq!((passage.snippet.as_str(), caller.keys().len()), (VALVES, 0));
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
            let shown = opened(&long_page(), caller).await.unwrap().snippet;
            assert!(shown.contains(VALVES) && shown.chars().count() <= SHOWN_CHARACTERS, "{shown}");
            assert!(!shown.contains(SUMMARY), "{shown}");
        }
    }

    #[tokio::test]
    async fn run_that_is_stopped_reads_no_further() {
        for error in [CallError::Cancelled, CallError::Journal { reason: "disk full".into() }] {
            let caller = Scripted::replying(json!({})).failing_at(1, error.clone());
            let opened = opened(&long_page(), Arc::new(caller)).await;
            assert_eq!(opened, Err(SourceError::Stopped(error)));
        }
    }
}
