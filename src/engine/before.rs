//! A question that was asked before: the report of a run that a new one could only pay for again.

use super::setup::Prepared;
use super::stored::report_of;
use super::{AskRequest, Engine, EngineError};
use crate::base::clock::{Clock, SystemClock};
use crate::base::id::RunId;
use crate::kb::index::Index;
use crate::research::evidence::Evidence;
use crate::research::report::{Report, StopReason};
use crate::run::cache::normalised;
use crate::run::event::RunSettings;
use crate::run::journal::EgressRow;
use crate::run::store::{Store, StoreError};
use crate::run::tree::RunState;
use crate::source::{Place, SourceFile, read_place};

/// The report of an earlier run.
pub(super) struct AskedBefore {
    pub(super) report: Report,
    /// The day the run began, in UTC.
    pub(super) day: String,
}

impl Engine {
    /// Returns the report of the newest run that asked the same in the same words, of the same index, web and models,
    /// and answered it completely. A run without models costs nothing, so it is never replaced by an earlier one.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal cannot be read. A run that cannot be read does not count.
    pub(super) async fn asked_before(
        &self,
        request: &AskRequest,
        Prepared { setup, settings }: &Prepared,
    ) -> Result<Option<AskedBefore>, EngineError> {
        if request.fresh || settings.by_rules || settings.has_own_plan {
            return Ok(None);
        }
        let Some(store) = self.runs_if_any()? else { return Ok(None) };
        let words = normalised(request.question.as_str());
        let runs = store.journal().runs().await.map_err(StoreError::from)?.runs;
        // The list has the questions, so that only runs with the same one are read.
        for run in runs.into_iter().filter(|run| normalised(&run.question) == words) {
            // A damaged run answers nothing, and `dr doctor` reports it.
            let Ok((_, state)) = store.read(&run.id).await else { continue };
            if !is_same(&state, settings) {
                continue;
            }
            let report = report_of(&store, &run.id, &state).await?;
            let is_complete = report.stop_reason == StopReason::Complete && !report.degraded;
            if let Some(day) = state.started.date()
                && is_complete
                // The web and servers may say something else tomorrow; within a day, they count as unchanged.
                && (Some(&day) == SystemClock.now().date().as_ref() || !has_outside(&store, &run.id, &state).await?)
                && are_unchanged(setup.searcher.index(), &report).await
            {
                return Ok(Some(AskedBefore { report, day }));
            }
        }
        Ok(None)
    }
}

/// Returns whether a run was begun as another one would be now, and the user added nothing on the way.
fn is_same(state: &RunState, new: &RunSettings) -> bool {
    let old = &state.settings;
    // Such a run depends on more than its settings: on rules, a plan of the user, or an answer to a question.
    let is_plain = !old.by_rules && !old.has_own_plan && old.instead.is_none() && state.clarification.is_none();
    is_plain
        && (&old.request, &old.follows, &old.models) == (&new.request, &new.follows, &new.models)
        && (&old.source_version, &old.outside, &old.servers) == (&new.source_version, &new.outside, &new.servers)
        && (old.is_open, old.rerank) == (new.is_open, new.rerank)
}

/// Returns whether a run asked the web, found something there, or could call servers, whose answers change without
/// notice.
async fn has_outside(store: &Store, run: &RunId, state: &RunState) -> Result<bool, EngineError> {
    let egress = store.journal().egress(run).await.map_err(StoreError::from)?;
    let mut found = state.branches.values().flat_map(|branch| &branch.evidence);
    let is_file = |quote: &Evidence| matches!(quote.source, Place::Kb { .. });
    let has_servers = !state.settings.servers.is_empty();
    // Even without a quote: that nothing was found outside may be different tomorrow.
    Ok(has_servers || egress.iter().any(EgressRow::was_sent_by_run) || found.any(|quote| !is_file(quote)))
}

/// Returns whether the files that a report cites are as they were. A file may have changed since it was indexed.
async fn are_unchanged(index: &Index, report: &Report) -> bool {
    for quote in &report.evidence {
        // `None` is a page or the result of a tool, see `has_outside`.
        if !matches!(read_place(index, &quote.source).await, None | Some(SourceFile::AsIndexed(_))) {
            return false;
        }
    }
    true
}
