//! Quotes that earlier runs found, searched by similarity.
//!
//! The research memory says which entries are similar; the quotes themselves are read from the journal.

use std::collections::BTreeMap;

use super::recall::{EntryKind, Recall, RecallError, RecallQuery, Recalled};
use super::store::Store;
use super::tree::RunState;
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::question::Question;

/// Cosine below which an entry does not bear on a query. Texts with nothing in common have up to 0.2 with the built-in
/// embedder.
const LEAST_SIMILARITY: f32 = 0.3;

/// Entries that are searched for each quote that is wanted: several runs may have found the same one.
const ENTRIES_PER_QUOTE: usize = 4;

/// A quote and the run that found it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EarlierQuote {
    pub(crate) run: RunId,
    /// The question of the run.
    pub(crate) question: Question,
    pub(crate) asked_at: Moment,
    /// Similarity of the quote, with what it was quoted for, to the query, as a cosine.
    pub(crate) similarity: f32,
    pub(crate) quote: Evidence,
}

/// Returns up to `limit` quotes of all runs that bear on a text, most similar first. A quote that several runs found is
/// returned once.
///
/// # Errors
///
/// Returns an error if the memory cannot be read. A run that cannot be read is left out.
pub(crate) async fn quotes(
    recall: &Recall,
    store: &Store,
    text: &str,
    limit: usize,
) -> Result<Vec<EarlierQuote>, RecallError> {
    let mut runs = BTreeMap::new();
    let mut depth = limit.saturating_mul(ENTRIES_PER_QUOTE);
    loop {
        let query = RecallQuery { kind: Some(EntryKind::Quote), ..RecallQuery::of(text, depth) };
        let entries = recall.search(&query).await?;
        let is_all = entries.len() < depth || entries.last().is_none_or(|last| last.similarity < LEAST_SIMILARITY);
        let mut found: Vec<EarlierQuote> = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.similarity >= LEAST_SIMILARITY) {
            if !runs.contains_key(&entry.run) {
                let state = store.read(&entry.run).await.ok().map(|(_, state)| state);
                runs.insert(entry.run.clone(), state);
            }
            let quote = runs.get(&entry.run).and_then(Option::as_ref).and_then(|state| quote(entry, state));
            found.extend(quote.filter(|quote| !found.iter().any(|known| is_same(&known.quote, &quote.quote))));
        }
        if is_all || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
        depth = depth.saturating_mul(ENTRIES_PER_QUOTE);
    }
}

/// Returns the quote of an entry as the journal has it.
fn quote(entry: Recalled, state: &RunState) -> Option<EarlierQuote> {
    let id: EvidenceId = entry.entry.id.parse().ok()?;
    let quote = state.branches.get(id.node())?.evidence.iter().find(|quote| quote.id == id && quote.checked)?;
    Some(EarlierQuote {
        run: entry.run,
        question: state.question.clone(),
        asked_at: state.started_at(),
        similarity: entry.similarity,
        quote: quote.clone(),
    })
}

fn is_same(quote: &Evidence, other: &Evidence) -> bool {
    quote.quote == other.quote && quote.source.is_same_document(&other.source)
}
