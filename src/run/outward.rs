//! What of a run may face outward: the one place where its state becomes outbound text.
//!
//! The user's words and the plan made before any retrieval are read off [`RunState`] here and nowhere else, so that what
//! may leave can be reviewed in one file.

use super::tree::RunState;
use crate::base::outbound::{EgressAllowed, Outbound};
use crate::research::node::Node;
use crate::research::outward::{OutwardAspect, OutwardTask};
use crate::research::question::{AspectId, Brief};

/// Words the user wrote: the question, what they said when asked back, and what they require.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserWords {
    /// What was asked.
    pub question: Outbound,
    /// What was said when asked back, after the question it answers, which was worded before any retrieval.
    pub clarification: Option<Outbound>,
    /// What the answer must cover.
    pub required: Vec<Outbound>,
    /// Days that pages are to be from, if not any.
    pub days: Option<Outbound>,
}

impl UserWords {
    /// Reads them off a run.
    #[expect(clippy::disallowed_methods, reason = "the user wrote them for this question")]
    pub fn of(state: &RunState) -> Self {
        let day = |day: &Option<String>| day.as_deref().and_then(|day| day.parse::<jiff::civil::Date>().ok());
        let scope = &state.settings.scope;
        let (from, to, on, until) =
            (Outbound::fixed("from"), Outbound::fixed("to"), Outbound::fixed("on"), Outbound::fixed("up to"));
        let days = match (day(&scope.since).map(Outbound::from), day(&scope.until).map(Outbound::from)) {
            (Some(since), Some(last)) => Some(Outbound::joined([&from, &since, &to, &last], " ")),
            (Some(since), None) => Some(Outbound::joined([&from, &since, &on], " ")),
            (None, Some(last)) => Some(Outbound::joined([&until, &last], " ")),
            (None, None) => None,
        };
        Self {
            question: Outbound::vouched(state.question.as_str()),
            clarification: state.clarification.as_deref().map(Outbound::vouched),
            required: state.settings.required.iter().map(Outbound::vouched).collect(),
            days,
        }
    }

    /// Returns all of them but the days.
    pub fn all(&self) -> impl Iterator<Item = &Outbound> {
        [&self.question].into_iter().chain(&self.clarification).chain(&self.required)
    }
}

/// The brief and the first plan, made before anything was retrieved.
///
/// The brief of a run that follows another one is made with the earlier answer in view, so such a run has a second brief,
/// made without it, and no plan that may leave.
#[derive(Clone, Copy, Debug)]
pub struct BeforeRetrieval<'a> {
    state: &'a RunState,
    brief: &'a Brief,
}

impl<'a> BeforeRetrieval<'a> {
    /// Returns what of a run was made before retrieval; `None` if no brief was.
    pub fn of(state: &'a RunState) -> Option<Self> {
        let brief = match state.settings.follows {
            None => state.brief(),
            Some(_) => state.outward_brief.as_ref(),
        };
        brief.map(|brief| Self { state, brief })
    }

    /// Returns the question in full.
    #[expect(clippy::disallowed_methods, reason = "this brief was made before any retrieval")]
    pub fn task(self) -> Outbound {
        Outbound::vouched(&self.brief.task)
    }

    /// Returns the aspects that `ids` of the brief that nodes go by stand for: all of them if that is another brief.
    #[expect(clippy::disallowed_methods, reason = "this brief was made before any retrieval")]
    pub fn aspects(self, ids: &[AspectId]) -> Vec<OutwardAspect> {
        let is_wanted = |id: &AspectId| self.state.settings.follows.is_some() || ids.contains(id);
        let wanted = self.brief.aspects.iter().filter(|aspect| is_wanted(&aspect.id));
        wanted.map(|aspect| OutwardAspect { id: aspect.id.clone(), text: Outbound::vouched(&aspect.text) }).collect()
    }

    /// Returns what a node asks, if the first plan worded it.
    #[expect(clippy::disallowed_methods, reason = "the first plan of a run that follows no other saw no evidence")]
    pub fn question(self, node: &Node) -> Option<Outbound> {
        let is_first = self.state.settings.follows.is_none() && !self.state.reworded.contains(&node.id);
        is_first.then(|| Outbound::vouched(node.question.as_str()))
    }

    /// Returns what the first plan asks.
    pub fn questions(self) -> impl Iterator<Item = Outbound> {
        self.state.tree.nodes.iter().filter_map(move |node| self.question(node))
    }
}

/// Returns whether the user lets internal text leave.
#[expect(clippy::disallowed_methods, reason = "this is where the setting is read")]
pub fn egress_allowed(state: &RunState) -> Option<EgressAllowed> {
    EgressAllowed::by_setting(state.settings.allow_egress)
}

/// Returns what a worker or a job outside is told of a node, for those of its aspects that are `open`.
pub fn outward_task(state: &RunState, node: &Node, open: &[AspectId]) -> OutwardTask {
    let words = UserWords::of(state);
    let (question, background, aspects) = match (egress_allowed(state), BeforeRetrieval::of(state)) {
        (Some(allowed), _) => {
            let text = |text: &str| Outbound::allowed_by_user(allowed, text);
            let aspects = state.brief().into_iter().flat_map(|brief| &brief.aspects);
            let aspects = aspects.filter(|aspect| open.contains(&aspect.id));
            let aspects = aspects.map(|aspect| OutwardAspect { id: aspect.id.clone(), text: text(&aspect.text) });
            let background = state.brief().map(|brief| text(&brief.task));
            (Some(text(node.question.as_str())), background, aspects.collect())
        }
        (None, Some(before)) => (before.question(node), Some(before.task()), before.aspects(open)),
        (None, None) => (None, None, Vec::new()),
    };
    let mut task = OutwardTask::new(words.question.clone(), aspects);
    // A question that was worded after retrieval gives way to the aspects it serves.
    let by_aspects =
        || Outbound::joined(task.aspects().iter().map(|aspect| &aspect.text).chain([&words.question]), "; ");
    task.question = question.unwrap_or_else(by_aspects);
    task.background = background;
    task.today = state.started_at().date().and_then(|day| day.parse::<jiff::civil::Date>().ok()).map(Outbound::from);
    task.days = words.days;
    task
}
