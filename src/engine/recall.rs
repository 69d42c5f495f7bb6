//! Searching what earlier runs found.

use std::sync::Arc;

use serde::Serialize;

use super::request::check_query;
use super::{Engine, EngineError};
use crate::base::id::RunId;
use crate::kb::search::SearchMode;
use crate::run::earlier::{EarlierQuote, quotes};
pub(crate) use crate::run::recall::EntrySource;
use crate::run::recall::{Recall, RecallQuery};
use crate::source::{Place, SourceFile, read_place};

/// A quote that an earlier run found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FoundBefore {
    pub(crate) quote: String,
    pub(crate) source: Place,
    /// State of its file; `None` for a page of the web, which is not fetched again.
    pub(crate) file: Option<FileState>,
    /// Similarity to the query, as a cosine.
    pub(crate) similarity: f32,
    pub(crate) run_id: RunId,
    pub(crate) question: String,
    /// The day it began, in UTC.
    pub(crate) asked_on: Option<String>,
}

/// State of a file, compared with the one that was quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileState {
    Unchanged,
    Changed,
    Gone,
}

impl Engine {
    /// Searches the quotes of all stored runs by similarity, or those from one kind of source. Returns up to `limit` of
    /// the settings, best first. Finding nothing is not an error.
    ///
    /// # Errors
    ///
    /// Returns an error for a query without words, or if index, embedder or memory cannot be used.
    pub(crate) async fn recall(
        &self,
        query: &str,
        source: Option<EntrySource>,
    ) -> Result<Vec<FoundBefore>, EngineError> {
        check_query(query)?;
        let Some(store) = self.runs_if_any()? else { return Ok(Vec::new()) };
        // Not the mode of the settings: quotes are compared by their vectors alone.
        let searcher = self.searcher(SearchMode::Vector).await?;
        let embedder = Arc::clone(searcher.needed_companion()?);
        let Some(recall) = Recall::known(&self.runs_folder(), embedder).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let query = RecallQuery { source, ..RecallQuery::of(query, self.settings.values.limit) };
        for earlier in quotes(&recall, &store, query).await? {
            let EarlierQuote { run, question, asked_at, similarity, quote } = earlier;
            let file = read_place(searcher.index(), &quote.source).await.map(FileState::from);
            found.push(FoundBefore {
                quote: quote.quote,
                source: quote.source,
                file,
                similarity,
                run_id: run,
                question: question.as_str().to_owned(),
                asked_on: asked_at.date(),
            });
        }
        Ok(found)
    }
}

impl From<SourceFile> for FileState {
    fn from(file: SourceFile) -> Self {
        match file {
            SourceFile::AsIndexed(_) => Self::Unchanged,
            SourceFile::Changed => Self::Changed,
            SourceFile::Gone => Self::Gone,
        }
    }
}
