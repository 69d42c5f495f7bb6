//! A search provider backed by a file, for tests and for trying `dr` without a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use serde_json::Value;

use super::provider::{SearchProvider, WebError, WebHit, WebQuery, hit};
use crate::base::http::BaseUrl;
use crate::base::line::one_line;
use crate::base::word::WordSplitter;

/// Queries and their results: `{"query": [{"url": …, "title": …, "snippet": …}, …], …}`.
///
/// A query in the file returns its results. Any other query returns all results that share a key word with it, most
/// shared words first.
#[derive(Default)]
pub(crate) struct FixtureProvider {
    hits: BTreeMap<String, Vec<WebHit>>,
    splitter: WordSplitter,
}

/// The file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    #[error("failed to read `{path}`")]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{path}` has no queries with lists of pages")]
    Form { path: PathBuf },
}

impl FixtureProvider {
    pub(crate) fn from_file(path: &Path) -> Result<Self, FixtureError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| FixtureError::File { path: path.to_owned(), source })?;
        let wrong = || FixtureError::Form { path: path.to_owned() };
        Self::read(&serde_json::from_str(&text).map_err(|_| wrong())?).ok_or_else(wrong)
    }

    /// Parses the content of a file. Returns `None` if it does not have the expected format.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let read = |entry: &Value| hit(entry, entry["snippet"].as_str(), "published");
        let list = |list: &Value| Some(list.as_array()?.iter().filter_map(read).collect());
        let hits = value.as_object()?.iter().map(|(query, hits)| Some((normal(query), list(hits)?)));
        Some(Self { hits: hits.collect::<Option<_>>()?, splitter: WordSplitter::default() })
    }

    fn find(&self, query: &WebQuery) -> Vec<WebHit> {
        if let Some(hits) = self.hits.get(&normal(query.text.as_str())) {
            return hits.clone();
        }
        let stems = self.splitter.key_stems(query.text.as_str());
        let shared = |hit: &WebHit| {
            let words = self.splitter.key_stems(&format!("{} {}", hit.title, hit.snippet));
            stems.iter().filter(|stem| words.contains(stem)).count()
        };
        let mut found: Vec<_> = self.hits.values().flatten().map(|hit| (shared(hit), hit)).collect();
        found.retain(|(shared, _)| *shared > 0);
        found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
        found.into_iter().map(|(_, hit)| hit.clone()).collect()
    }
}

fn normal(query: &str) -> String {
    one_line(query).to_lowercase()
}

impl SearchProvider for FixtureProvider {
    fn name(&self) -> &'static str {
        "fixture"
    }

    fn address(&self) -> Option<&BaseUrl> {
        None
    }

    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        Box::pin(async move { Ok(self.find(query)) })
    }
}
