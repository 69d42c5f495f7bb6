//! The origins of a run's outbound text: the only file in which text of a run becomes outbound.
//!
//! Each constructor takes the run, or the part of it that it is named after, so that no bare string can become an
//! origin. A [`RunState`] is made by its events alone.

use jiff::civil::Date;

use super::super::tree::{Clarified, RunState};
use super::BeforeRetrieval;
use crate::base::line::one_line;
use crate::base::outbound::{EgressAllowed, MayLeave, Voucher};
use crate::research::evidence::Evidence;
use crate::research::node::{Node, NodeId};
use crate::research::question::{Aspect, AspectId};
use crate::source::{Label, Place};

/// Text of a run that may leave.
pub(super) struct RunText(String);

impl MayLeave for RunText {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

/// Words of the user.
impl RunText {
    pub(super) fn question(state: &RunState) -> Self {
        Self(state.question.to_string())
    }

    pub(super) fn answer(state: &RunState) -> Option<Self> {
        state.clarification.as_ref().map(|clarified| Self(clarified.answer.clone()))
    }

    /// Returns the aspects that the answer must cover.
    pub(super) fn required(state: &RunState) -> impl Iterator<Item = Self> {
        state.settings.request.required.iter().cloned().map(Self)
    }

    /// Returns the range of days that pages must be from, for example `from 2026-01-01 on`.
    pub(super) fn days(state: &RunState) -> Option<Self> {
        // Parsed, so that nothing but a date can leave this way.
        let day = |day: &Option<String>| day.as_deref().and_then(|day| day.parse::<Date>().ok());
        let scope = &state.settings.request.scope;
        match (day(&scope.since), day(&scope.until)) {
            (Some(since), Some(last)) => Some(Self(format!("from {since} to {last}"))),
            (Some(since), None) => Some(Self(format!("from {since} on"))),
            (None, Some(last)) => Some(Self(format!("up to {last}"))),
            (None, None) => None,
        }
    }

    /// Returns the day the run began.
    pub(super) fn today(state: &RunState) -> Option<Self> {
        let day = state.started.date()?.parse::<Date>().ok()?;
        Some(Self(day.to_string()))
    }

    /// Returns which question the run follows up. The earlier answer, which may quote files, is left out.
    pub(super) fn followed(state: &RunState) -> Option<Self> {
        let followed = state.settings.follows.as_ref()?;
        Some(Self(format!("This follows up the question \"{}\".", followed.question)))
    }
}

/// Words from before anything was retrieved: of the clarification, the brief and the first plan.
impl RunText {
    /// Returns the clarifying question with the user's answer. It is worded before the brief.
    pub(super) fn clarified(state: &RunState) -> Option<Self> {
        state.clarification.as_ref().map(Clarified::to_string).map(Self)
    }

    pub(super) fn task(before: BeforeRetrieval<'_>) -> Self {
        Self(before.brief.task.clone())
    }

    pub(super) fn aspects(before: BeforeRetrieval<'_>) -> impl Iterator<Item = (AspectId, Self)> {
        before.brief.aspects.iter().map(|Aspect { id, text }| (id.clone(), Self(text.clone())))
    }

    /// Returns the question of a node, if the first plan worded it.
    pub(super) fn of_node(before: BeforeRetrieval<'_>, node: &NodeId) -> Option<Self> {
        planned_first(before, node).map(|node| Self(node.question.to_string()))
    }

    /// Returns the schema of a node's result, if the first plan worded it.
    pub(super) fn output_schema(before: BeforeRetrieval<'_>, node: &NodeId) -> Option<Self> {
        let schema = planned_first(before, node)?.output_schema.as_ref();
        schema.map(|schema| Self(schema.to_string()))
    }
}

/// Public text.
impl RunText {
    /// Returns the public summary if it was folded from outbound text and public branches alone, see
    /// `RunSettings::keeps_public_apart`.
    pub(super) fn summary(state: &RunState) -> Option<Self> {
        let summary = &state.folded.memory.global_public;
        state.settings.keeps_public_apart.then(|| Self(summary.as_str().to_owned()))
    }

    /// Returns address and title of the page of a quote, if the quote is public and was found by code.
    pub(super) fn page_read(quote: &Evidence) -> Option<Self> {
        let Place::Web { url, title, .. } = &quote.source else { return None };
        let is_public = quote.checked && quote.label == Label::Public;
        is_public.then(|| Self(one_line(&format!("Read and quoted before: {url} ({title})"))))
    }
}

/// Looks up a node that the first plan worded. That of a run which follows another one was made with the earlier answer
/// in view, and later plans reword nodes.
fn planned_first<'a>(before: BeforeRetrieval<'a>, id: &NodeId) -> Option<&'a Node> {
    let rounds = before.state.phase.stage().rounds();
    let is_reworded = rounds.is_some_and(|rounds| rounds.reworded.contains(id));
    let node = before.state.tree.get(id)?;
    // The root is the user's question, which no plan made.
    (node.round <= 1 && !is_reworded && !before.has_other_ids()).then_some(node)
}

/// Returns whether the user allows internal text to leave.
pub(crate) fn egress_allowed(state: &RunState) -> Option<EgressAllowed> {
    const VOUCHER: Voucher<EgressAllowed> = Voucher::here();
    EgressAllowed::by_setting(VOUCHER, state.settings.is_open)
}
