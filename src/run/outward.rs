//! The parts of a run that may leave. [`origin`] takes them from [`RunState`], as the only file that does.

mod origin;

use self::origin::RunText;
pub(crate) use self::origin::egress_allowed;
use super::tree::RunState;
use crate::base::outbound::Outbound;
use crate::research::memory::{PublicBranch, public_slice};
use crate::research::node::{Node, NodeId};
use crate::research::outward::{OutwardAspect, OutwardTask};
use crate::research::question::{AspectId, Brief, Question};

/// Tokens of the global summary that a worker is shown.
pub(super) const CONTEXT_TOKENS: u64 = 1_000;

/// Maximum number of pages listed for a worker outside as read before.
const MAX_PAGES_READ: usize = 20;

/// Words the user wrote: question, answer to a clarifying question, and requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserWords {
    pub(crate) question: Outbound,
    /// The user's answer to a clarifying question. The question is the model's: an address in it is not the user's.
    pub(crate) answer: Option<Outbound>,
    /// Aspects the answer must cover.
    pub(crate) required: Vec<Outbound>,
    /// Range of days that pages must be from.
    pub(crate) days: Option<Outbound>,
}

impl UserWords {
    /// Collects them from a run.
    pub(crate) fn of(state: &RunState) -> Self {
        Self {
            question: Outbound::of(RunText::question(state)),
            answer: RunText::answer(state).map(Outbound::of),
            required: RunText::required(state).map(Outbound::of).collect(),
            days: RunText::days(state).map(Outbound::of),
        }
    }

    /// Returns all of them except the days.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Outbound> {
        [&self.question].into_iter().chain(&self.answer).chain(&self.required)
    }
}

/// The brief and the first plan, made before anything was retrieved: their text holds no internal text.
///
/// The plan of a run that follows another one is made with the earlier answer in view, so no question of it may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeRetrieval<'a> {
    state: &'a RunState,
    brief: &'a Brief,
}

impl<'a> BeforeRetrieval<'a> {
    /// Returns the part of a run that was made before retrieval; `None` if its brief was not.
    pub(crate) fn of(state: &'a RunState) -> Option<Self> {
        let briefs = state.phase.stage().briefs()?;
        let brief = match state.settings.follows {
            None => &briefs.brief,
            Some(_) => briefs.outward.as_ref()?.as_brief(),
        };
        Some(Self { state, brief })
    }

    /// Returns the question in full.
    pub(crate) fn task(self) -> Outbound {
        Outbound::of(RunText::task(self))
    }

    /// Returns the aspects with these ids; all aspects if nodes use the ids of another brief.
    pub(crate) fn aspects(self, ids: &[AspectId]) -> Vec<OutwardAspect> {
        let is_wanted = |aspect: &OutwardAspect| self.has_other_ids() || ids.contains(&aspect.id);
        self.all_aspects().filter(is_wanted).collect()
    }

    pub(crate) fn all_aspects(self) -> impl Iterator<Item = OutwardAspect> {
        RunText::aspects(self).map(|(id, text)| OutwardAspect { id, text: Outbound::of(text) })
    }

    /// Returns whether nodes use the aspect ids of a different brief.
    pub(crate) fn has_other_ids(self) -> bool {
        self.state.settings.follows.is_some()
    }

    /// Returns the question of a node, if the first plan worded it.
    pub(crate) fn question(self, node: &NodeId) -> Option<Outbound> {
        RunText::of_node(self, node).map(Outbound::of)
    }

    /// Returns the schema of a node's result, if the first plan worded it.
    pub(crate) fn output_schema(self, node: &NodeId) -> Option<Outbound> {
        RunText::output_schema(self, node).map(Outbound::of)
    }

    /// Returns the questions of the first plan.
    pub(crate) fn questions(self) -> impl Iterator<Item = Outbound> {
        self.state.tree.nodes.iter().filter_map(move |node| self.question(&node.id))
    }
}

/// Everything that a conversation facing outward is shown of a run.
#[derive(Clone, Debug)]
pub(crate) struct OutwardWork {
    /// The task of the node, for all of its aspects.
    pub(crate) task: OutwardTask,
    /// Whether its aspects have the ids that nodes use.
    pub(crate) has_own_ids: bool,
    /// Public findings of the nodes it depends on, each with the node's question in words that may leave.
    pub(crate) conclusions: Vec<(NodeId, Outbound, PublicBranch)>,
    /// The part of the public summary that bears on the question and its aspects.
    pub(crate) context: Outbound,
    pub(crate) asked: Question,
    pub(crate) words: UserWords,
}

impl OutwardWork {
    /// Collects it. Findings are public ones only, unless the user allows all text to leave. A run whose public texts
    /// were made with internal ones in view has none, see `RunSettings::keeps_public_apart`.
    pub(crate) fn of(state: &RunState, node: &Node) -> Self {
        let task = outward_task(state, node);
        let memory = &state.folded.memory;
        let (allowed, is_apart) = (egress_allowed(state), state.settings.keeps_public_apart);
        let found = |id: &NodeId| match allowed {
            Some(allowed) => Some(PublicBranch::allowed_by_user(allowed, state.branches.get(id)?)),
            None => state.public_branch(id),
        };
        let conclusion =
            |id: &NodeId| Some((id.clone(), outward_task(state, state.tree.get(id)?).question(), found(id)?));
        let conclusions: Vec<_> = node.depends_on.iter().filter_map(conclusion).collect();
        let summary = match allowed {
            Some(allowed) => Outbound::allowed_by_user(allowed, &memory.global.text),
            None => RunText::summary(state).map(Outbound::of).unwrap_or_default(),
        };
        // Conclusions are shown in full, so the summary need not repeat them.
        let shown: Vec<_> = conclusions.iter().map(|(id, ..)| id.clone()).collect();
        let aspects: Vec<_> = task.aspects().iter().map(|aspect| &aspect.text).collect();
        let known = public_slice(&summary, &shown, &task.question(), &aspects, CONTEXT_TOKENS);
        let shows_pages = node.round > 1 && (is_apart || allowed.is_some());
        let read = if shows_pages { pages_read(state) } else { Vec::new() };
        Self {
            conclusions,
            context: Outbound::lines([&known].into_iter().chain(&read)),
            has_own_ids: egress_allowed(state).is_some()
                || !BeforeRetrieval::of(state).is_some_and(BeforeRetrieval::has_other_ids),
            task,
            asked: state.question.clone(),
            words: UserWords::of(state),
        }
    }
}

/// Returns the pages that earlier nodes quote, a line each, so that a node of a later round need not find them again.
fn pages_read(state: &RunState) -> Vec<Outbound> {
    let quotes = state.branches.values().flat_map(|branch| &branch.evidence);
    let mut pages: Vec<Outbound> = Vec::new();
    for line in quotes.filter_map(RunText::page_read).map(Outbound::of) {
        if pages.len() < MAX_PAGES_READ && !pages.contains(&line) {
            pages.push(line);
        }
    }
    pages
}

/// Returns the task of a node for a worker or job outside.
pub(crate) fn outward_task(state: &RunState, node: &Node) -> OutwardTask {
    let words = UserWords::of(state);
    // The day the run began: a resumed run must make the same prompts.
    let today = RunText::today(state).map(Outbound::of);
    let before = BeforeRetrieval::of(state);
    let (planned, background, aspects, output_schema) = match (egress_allowed(state).zip(state.brief()), before) {
        (Some((allowed, brief)), _) => {
            let text = |text: &str| Outbound::allowed_by_user(allowed, text);
            let aspects = brief.aspects.iter().filter(|aspect| node.aspects.contains(&aspect.id));
            let aspects = aspects.map(|aspect| OutwardAspect { id: aspect.id.clone(), text: text(&aspect.text) });
            let background = Some(text(&brief.task));
            let schema = node.output_schema.as_ref().map(|schema| text(&schema.to_string()));
            (Some(text(node.question.as_str())), background, aspects.collect(), schema)
        }
        (None, Some(before)) => {
            let aspects = before.aspects(&node.aspects);
            (before.question(&node.id), Some(before.task()), aspects, before.output_schema(&node.id))
        }
        (None, None) => (None, None, Vec::new(), None),
    };
    let mut task = OutwardTask::new(words.question, planned, aspects);
    (task.background, task.output_schema) = (background, output_schema);
    (task.today, task.days) = (today, words.days);
    task
}

/// Returns the clarification of a run that follows another one, and the question that it follows up; `None` if it
/// follows none.
pub(crate) fn asked_before(state: &RunState) -> Option<Outbound> {
    let follows = Outbound::of(RunText::followed(state)?);
    let clarified = RunText::clarified(state).map(Outbound::of);
    Some(Outbound::lines(clarified.iter().chain([&follows])))
}

/// Returns the task of the whole run in words that may leave.
pub(crate) fn outward_brief(state: &RunState) -> Outbound {
    BeforeRetrieval::of(state).map_or_else(|| UserWords::of(state).question, BeforeRetrieval::task)
}
