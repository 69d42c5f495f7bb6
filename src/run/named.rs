//! Pages that the user's own words name stand before whatever a search finds, so that they can be opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::research::question::Question;
use crate::source::web::named_in;
use crate::source::{Found, Layer, Passage, Source, SourceError, Support};

/// Pages that are taken from one question.
const MAX_NAMED: usize = 5;

/// A source of the web that always finds the pages the user named.
///
/// Only the user's own words count: whoever names an address has it fetched.
pub struct Named {
    inner: Arc<dyn Source>,
    /// By the form an address is counted under, which is what goes by the name of a hit.
    pages: BTreeMap<String, Passage>,
}

impl Named {
    /// Puts the pages that `question`, as the user wrote it, names before those of a source.
    pub fn new(inner: Arc<dyn Source>, question: &Question) -> Self {
        let mut pages = BTreeMap::new();
        for url in named_in(question.as_str()) {
            if pages.len() < MAX_NAMED {
                pages.entry(url.canonical().to_string()).or_insert_with(|| page(url.to_string()));
            }
        }
        Self { inner, pages }
    }

    fn found(&self) -> Found {
        Found { passages: self.pages.values().cloned().collect(), support: Support::Weak, notes: Vec::new() }
    }
}

impl Layer for Named {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            if self.pages.is_empty() {
                return self.inner.search(query, limit).await;
            }
            let mut found = self.found();
            self.inner.recognise(&found);
            match self.inner.search(query, limit).await {
                Ok(rest) => {
                    found.passages.extend(rest.passages.into_iter().filter(|hit| !self.pages.contains_key(&hit.id)));
                    found.support = found.support.max(rest.support);
                    found.notes = rest.notes;
                }
                Err(error @ SourceError::Stopped(_)) => return Err(error),
                // What the user named can be read whatever becomes of the search.
                Err(error) => found.notes.push(error.to_string()),
            }
            Ok(found)
        })
    }
}

/// Returns a page as a search would have found it.
fn page(url: String) -> Passage {
    let snippet = "named in the question".to_owned();
    Passage { text: url.clone(), snippet, score: 1.0, ..Passage::unread(url.clone(), url) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Place, SourceFile};

    /// An engine that finds one page, or may not be asked.
    struct Engine(Option<&'static str>);

    impl Source for Engine {
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
            let failed = || SourceError::Withheld { reason: "it says what the notes say".into() };
            let found =
                |url: &str| Found { passages: vec![page(url.to_owned())], support: Support::Strong, notes: Vec::new() };
            Box::pin(async move { self.0.map(found).ok_or_else(failed) })
        }

        fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
            Box::pin(async move { Err(SourceError::NoSuchPassage { id: id.to_owned() }) })
        }

        fn read<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, SourceFile> {
            Box::pin(async { SourceFile::Gone })
        }
    }

    async fn found(engine: Option<&'static str>, question: &str) -> Result<(Vec<String>, Support, usize), SourceError> {
        let named = Named::new(Arc::new(Engine(engine)), &question.parse().unwrap());
        let found = Source::search(&named, "anything", 5).await?;
        let ids = found.passages.into_iter().map(|passage| passage.id).collect();
        Ok((ids, found.support, found.notes.len()))
    }

    #[tokio::test]
    async fn named_page_comes_first_and_once_also_where_nothing_may_be_searched() {
        let (one, other) = ("https://example.org/one", "https://example.org/other");
        let both = format!("What do {one} and {one} say?");
        assert_eq!(found(Some(other), &both).await, Ok((vec![one.into(), other.into()], Support::Strong, 0)));
        assert_eq!(found(Some(one), &both).await, Ok((vec![one.into()], Support::Strong, 0)));
        assert_eq!(found(None, &both).await, Ok((vec![one.into()], Support::Weak, 1)));
        assert!(found(None, "What do they say?").await.is_err());
        let many: String = (0..9).map(|page| format!("{one}/{page} ")).collect();
        assert_eq!(found(None, &many).await.unwrap().0.len(), MAX_NAMED);
    }
}
