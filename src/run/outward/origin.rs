//! The origins of a run's outbound text: the only file in which text of a run becomes outbound.
//!
//! Each constructor takes the part of the run that it is named after, so that no bare string can become an origin.

use super::super::event::{Followed, RunRequest};
use super::super::tree::{Clarified, RunState};
use super::BeforeRetrieval;
use crate::base::line::one_line;
use crate::base::outbound::{EgressAllowed, MayLeave, Voucher};
use crate::research::evidence::Evidence;
use crate::research::node::Node;
use crate::research::question::{Aspect, AspectId};
use crate::source::{Label, Place};

/// Words that the user wrote for this run.
pub(super) struct UserText(String);

impl MayLeave for UserText {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

impl UserText {
    pub(super) fn question(state: &RunState) -> Self {
        Self(state.question.to_string())
    }

    pub(super) fn answer(clarified: &Clarified) -> Self {
        Self(clarified.answer.clone())
    }

    pub(super) fn required(request: &RunRequest) -> impl Iterator<Item = Self> {
        request.required.iter().cloned().map(Self)
    }

    /// Returns which question a run follows up. The earlier answer, which may quote files, is left out.
    pub(super) fn followed(followed: &Followed) -> Self {
        Self(format!("This follows up the question \"{}\".", followed.question))
    }
}

/// Words from before anything was retrieved: of the clarification, the brief and the first plan.
pub(super) struct PlannedText(String);

impl MayLeave for PlannedText {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

impl PlannedText {
    /// Returns the clarifying question with the user's answer. It is worded before the brief.
    pub(super) fn clarified(clarified: &Clarified) -> Self {
        Self(clarified.to_string())
    }

    pub(super) fn task(before: BeforeRetrieval<'_>) -> Self {
        Self(before.brief.task.clone())
    }

    pub(super) fn aspects(before: BeforeRetrieval<'_>) -> impl Iterator<Item = (AspectId, Self)> {
        before.brief.aspects.iter().map(|Aspect { id, text }| (id.clone(), Self(text.clone())))
    }

    /// Returns the question of a node, if the first plan worded it.
    pub(super) fn question(before: BeforeRetrieval<'_>, node: &Node) -> Option<Self> {
        before.has_worded(node).then(|| Self(node.question.to_string()))
    }

    /// Returns the schema of a node's result, if the first plan worded it.
    pub(super) fn output_schema(before: BeforeRetrieval<'_>, node: &Node) -> Option<Self> {
        let schema = node.output_schema.as_ref().filter(|_| before.has_worded(node));
        schema.map(|schema| Self(schema.to_string()))
    }
}

/// Public text.
pub(super) struct PublicText(String);

impl MayLeave for PublicText {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

impl PublicText {
    /// Returns the public summary, which was folded from outbound text and public branches alone, unless the run was
    /// begun when public texts were still made with internal ones in view.
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

/// Returns whether the user allows internal text to leave.
pub(crate) fn egress_allowed(state: &RunState) -> Option<EgressAllowed> {
    const VOUCHER: Voucher<EgressAllowed> = Voucher::here();
    EgressAllowed::by_setting(VOUCHER, state.settings.is_open)
}
