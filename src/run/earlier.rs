//! Quotes that earlier runs found, searched by similarity, for people and for a run that starts.
//!
//! The research memory finds similar entries; the quotes themselves are read from the journal.

use std::collections::BTreeMap;

use super::cache::normalised;
use super::journal::{Lookup, LookupTerms, LookupTool};
use super::node_source::Inside;
use super::recall::{Recall, RecallError, RecallQuery, Recalled};
use super::store::Store;
use super::tree::RunState;
use crate::base::clock::Moment;
use crate::base::id::RunId;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::question::{Brief, Question};
use crate::research::skim::{SkimPassage, questions};
use crate::source::{Documents, Label, Passage, Place, Source, SourceError};

/// Cosine below which an entry has nothing in common with a query. A word and a passage about it have 0.2 to 0.4 with
/// the built-in embedder.
const LEAST_SIMILARITY: f32 = 0.2;

/// Entries that are searched for each quote that is wanted: several runs may have found the same one.
const ENTRIES_PER_QUOTE: usize = 4;

/// Cosine from which a quote is shown to another run, how many are shown, and how many are looked at for them.
const OFFERED_SIMILARITY: f32 = 0.4;
const MAX_OFFERED: usize = 4;
const MAX_CANDIDATES: usize = 12;

/// Hits among which the passage of a quote is looked for.
const HITS: usize = 5;

/// The quotes of earlier runs.
pub(crate) struct Earlier {
    pub(crate) recall: Recall,
    pub(crate) store: Store,
}

/// A quote and the run that found it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EarlierQuote {
    pub(crate) run: RunId,
    pub(crate) question: Question,
    pub(crate) asked_at: Moment,
    /// Cosine of the query and the quote with the findings that cite it.
    pub(crate) similarity: f32,
    pub(crate) quote: Evidence,
}

/// The runs whose journals were read; `None` for one that cannot be read.
type ReadRuns = BTreeMap<RunId, Option<RunState>>;

/// Returns as many quotes of all runs as a query asks for, most similar first. Quotes found by several runs are returned
/// once.
///
/// # Errors
///
/// Returns an error if the memory cannot be read. A run that cannot be read is left out.
pub(crate) async fn quotes(
    recall: &Recall,
    store: &Store,
    query: RecallQuery<'_>,
) -> Result<Vec<EarlierQuote>, RecallError> {
    quotes_of(recall, store, query, &mut ReadRuns::new()).await
}

/// Like [`quotes`]. Reads the journals of runs that are not in `runs`, and adds them.
async fn quotes_of(
    recall: &Recall,
    store: &Store,
    query: RecallQuery<'_>,
    runs: &mut ReadRuns,
) -> Result<Vec<EarlierQuote>, RecallError> {
    let limit = query.limit;
    let mut depth = limit.saturating_mul(ENTRIES_PER_QUOTE);
    loop {
        let entries = recall.search(&RecallQuery { limit: depth, ..query }).await?;
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
        // Most entries were the same quote, or of runs that cannot be read.
        depth = depth.saturating_mul(ENTRIES_PER_QUOTE);
    }
}

/// Returns the quote of an entry as the journal has it.
fn quote(entry: Recalled, state: &RunState) -> Option<EarlierQuote> {
    let id: EvidenceId = entry.id.parse().ok()?;
    let quote = state.branches.get(id.node())?.evidence.iter().find(|quote| quote.id == id && quote.checked)?;
    Some(EarlierQuote {
        run: entry.run,
        question: state.question.clone(),
        asked_at: state.started,
        similarity: entry.similarity,
        quote: quote.clone(),
    })
}

impl Earlier {
    /// Returns quotes of the knowledge base that bear on a question or one of its aspects, are still true, and overlap
    /// none of `units`. They are put on record, so that a resumed run is shown the same.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal fails or the run must stop. Without its memory, a run goes on.
    pub(crate) async fn offered(
        &self,
        brief: &Brief,
        source: &Inside,
        units: &[SkimPassage],
    ) -> Result<Vec<SkimPassage>, SourceError> {
        let questions = questions(brief);
        let words: Vec<_> = questions.iter().map(|question| normalised(question.as_str())).collect();
        let lookup = Lookup {
            node: source.node.clone(),
            tool: LookupTool::MemoryRecall,
            query: words.join("\n"),
            scope: source.scope(),
            label: Label::Internal,
            version: String::new(),
            // The memory changes with every run.
            terms: LookupTerms { is_of_run: true, ..LookupTerms::default() },
        };
        let found = Box::pin(source.cache.answer(lookup, self.found(&questions, source, units))).await?;
        source.egress.shown(&found.iter().map(|shown| shown.passage.clone()).collect::<Vec<_>>());
        Ok(found)
    }

    async fn found(
        &self,
        questions: &[Question],
        source: &Inside,
        units: &[SkimPassage],
    ) -> Result<Vec<SkimPassage>, SourceError> {
        let mut found: Vec<SkimPassage> = Vec::new();
        for EarlierQuote { run, asked_at, mut quote, .. } in self.candidates(questions).await {
            let mut known = units.iter().chain(&found).map(|shown| &shown.passage.place);
            if found.len() == MAX_OFFERED || known.any(|place| place.overlaps(&quote.source)) {
                continue;
            }
            // Without the indexed text: a quote of a changed file is left out in any case.
            quote.check(&source.read(&quote.source).await, "");
            if !quote.checked || quote.stale {
                continue;
            }
            // Only passages that a search of this run finds, with its filters, may be shown; hits can also be opened.
            // Quotation marks would make the query a phrase.
            let hits = match source.search(&quote.quote.replace('"', " "), HITS).await {
                Err(error) if error.ends_run() => return Err(error),
                searched => searched.unwrap_or_default().passages,
            };
            let is_around = |hit: &Passage| {
                hit.place.overlaps(&quote.source) && hit.place.content_hash() == quote.source.content_hash()
            };
            let Some(hit) = hits.into_iter().find(is_around) else { continue };
            let day = asked_at.date().map(|day| format!(" on {day}")).unwrap_or_default();
            let Evidence { quote: text, source: place, score, .. } = quote;
            let passage = Passage { id: hit.id, place, label: hit.label, snippet: text.clone(), text, score };
            found.push(SkimPassage { passage, origin: Some(format!("found by run {run}{day}")) });
        }
        Ok(found)
    }

    /// Returns quotes of the knowledge base that are similar to one of some questions, most similar first.
    async fn candidates(&self, questions: &[Question]) -> Vec<EarlierQuote> {
        let (mut candidates, mut runs): (Vec<EarlierQuote>, _) = (Vec::new(), ReadRuns::new());
        for question in questions {
            let query = RecallQuery::of(question.as_str(), MAX_CANDIDATES);
            let found = quotes_of(&self.recall, &self.store, query, &mut runs).await;
            let found = found.inspect_err(|error| tracing::warn!(%error, "failed to search the research memory"));
            candidates.extend(found.unwrap_or_default().into_iter().filter(|found| {
                found.similarity >= OFFERED_SIMILARITY && matches!(found.quote.source, Place::Kb { .. })
            }));
        }
        // The sort is stable: of equally similar quotes, those for the question itself come first.
        candidates.sort_by(|a, b| b.similarity.total_cmp(&a.similarity));
        let mut distinct: Vec<EarlierQuote> = Vec::new();
        for candidate in candidates {
            if !distinct.iter().any(|known| is_same(&known.quote, &candidate.quote)) {
                distinct.push(candidate);
            }
        }
        distinct.truncate(MAX_CANDIDATES);
        distinct
    }
}

fn is_same(quote: &Evidence, other: &Evidence) -> bool {
    quote.quote == other.quote && quote.source.is_same_document(&other.source)
}
