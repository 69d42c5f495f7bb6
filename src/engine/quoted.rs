//! Finds the quote behind a citation in its document, for a reader who wants to see its context.

use std::ops::Range;

use super::passage::{Excerpt, Extent, Selector};
use super::setup::PAGES;
use super::{Engine, EngineError};
use crate::research::evidence::{Evidence, line_range};
use crate::source::{Place, SourceFile};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quoted {
    pub(crate) evidence: Evidence,
    /// The file, the stored page, or the stored result of a tool; only the quote if that no longer exists.
    pub(crate) text: String,
    /// Byte range of the quote in the text; `None` if the text has changed since.
    pub(crate) at: Option<Range<usize>>,
    /// A caveat about the text.
    pub(crate) note: Option<&'static str>,
}

impl Engine {
    /// Reads the document of a passage. Returns the byte range of the passage as well, unless a whole document is
    /// named.
    pub(crate) async fn in_document(
        &self,
        selector: &Selector,
    ) -> Result<(Excerpt, Option<Range<usize>>), EngineError> {
        let selector = &self.resolved(selector).await?;
        let passage = self.get(selector, Extent::Passage).await?;
        let whole = Selector::Path { path: format!("{}/{}", passage.collection, passage.path), lines: None };
        let document = self.get(&whole, Extent::Document).await?;
        let is_part =
            passage.id.is_some() || matches!(selector, Selector::Path { lines: Some(_), .. } | Selector::Page { .. });
        let marked = is_part.then(|| line_range(&document.text, passage.line_start, passage.line_end));
        Ok((document, marked))
    }

    /// Finds a quote of a stored run in its document; `None` if the run has no such quote.
    pub(crate) async fn quoted(&self, run: &str, evidence: &str) -> Result<Option<Quoted>, EngineError> {
        let store = self.known_runs()?;
        let run = store.find(Some(run)).await?;
        let (_, state) = store.read(&run).await?;
        self.check_run_served(&store, &state).await?;
        let mut quotes = state.branches.values().flat_map(|branch| &branch.evidence);
        let found = quotes.find(|quote| quote.id.to_string() == evidence);
        let Some(evidence) = found else { return Ok(None) };
        let (text, note) = match &evidence.source {
            Place::Kb { collection, path, .. } => {
                let selector = Selector::Path { path: format!("{collection}/{path}"), lines: None };
                match self.get(&selector, Extent::Document).await {
                    Ok(document) => {
                        let note = document.note();
                        (Some(document.text), note)
                    }
                    // For any reason: the quote is on record, and is shown without its context.
                    Err(_) => (None, Some("the index no longer has the file; only the quote is left")),
                }
            }
            Place::Web { content_hash, .. } => {
                let pages = self.settings.pages(self.runs_folder().join(PAGES));
                let page = content_hash.as_ref().and_then(|hash| pages.get(hash));
                // The page may have changed since, and is not fetched to show a quote.
                let note = if page.is_some() { "as it was fetched" } else { "the page is not stored any more" };
                (page.map(|page| page.text), Some(note))
            }
            place @ Place::Mcp { .. } => match self.settings.answers(self.runs_folder().join(PAGES)).read(place) {
                SourceFile::AsIndexed(text) => (Some(text), Some("as the tool returned it")),
                SourceFile::Changed | SourceFile::Gone => (None, Some("the result is not stored any more")),
            },
        };
        let text = text.unwrap_or_else(|| evidence.quote.clone());
        let at = position(&text, evidence);
        Ok(Some(Quoted { evidence: evidence.clone(), text, at, note }))
    }
}

/// Finds a quote, first in the lines that it is cited from.
fn position(text: &str, evidence: &Evidence) -> Option<Range<usize>> {
    let quote = evidence.quote.as_str();
    let lines = match &evidence.source {
        Place::Kb { line_start, line_end, .. } => line_range(text, *line_start, *line_end),
        Place::Web { .. } | Place::Mcp { .. } => 0..text.len(),
    };
    // The same words may stand elsewhere in the document, too.
    let cited = text[lines.clone()].find(quote).map(|at| lines.start + at);
    let start = cited.or_else(|| text.find(quote))?;
    Some(start..start + quote.len())
}
