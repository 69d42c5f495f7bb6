//! The whole input of a worker on the web or of a background job, made only of outbound text.

use serde::Serialize;
use serde_json::json;

use super::prompt::Template;
use super::question::AspectId;
use super::task::TaskAspect;
use crate::base::outbound::{MayLeave, Outbound, Voucher};
use crate::llm::call::Caller;

/// Longest question composed of aspects, in characters.
const MAX_QUESTION_CHARACTERS: usize = 4_000;

/// The task of a worker on the web or of a background job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutwardTask {
    /// The question of the node, if it was worded before any retrieval.
    planned: Option<Outbound>,
    /// The question of the user.
    asked: Outbound,
    /// The context of the question.
    pub(crate) background: Option<Outbound>,
    /// Sorted by id, so that plans that list them in another order have the same task.
    aspects: Vec<OutwardAspect>,
    /// The day the run began.
    pub(crate) today: Option<Outbound>,
    /// Restriction on the dates of pages: `from 2026-01-01 on`.
    pub(crate) days: Option<Outbound>,
    /// JSON Schema of the result, if it was planned before any retrieval.
    pub(crate) output_schema: Option<Outbound>,
}

/// An aspect, worded in outbound text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OutwardAspect {
    pub(crate) id: AspectId,
    /// The topic to cover.
    pub(crate) text: Outbound,
}

impl<'a> From<&'a OutwardAspect> for TaskAspect<'a, Outbound> {
    fn from(OutwardAspect { id, text }: &'a OutwardAspect) -> Self {
        Self { id, text }
    }
}

impl OutwardTask {
    /// Returns the task of a node. Without a `planned` question, its question is composed of its aspects.
    pub(crate) fn new(asked: Outbound, planned: Option<Outbound>, mut aspects: Vec<OutwardAspect>) -> Self {
        aspects.sort_by(|a, b| a.id.cmp(&b.id));
        Self { planned, asked, background: None, aspects, today: None, days: None, output_schema: None }
    }

    /// Returns the task for a subset of its aspects.
    #[must_use]
    pub(crate) fn restricted(&self, open: &[AspectId]) -> Self {
        let aspects = self.aspects.iter().filter(|aspect| open.contains(&aspect.id)).cloned().collect();
        Self { aspects, ..self.clone() }
    }

    /// Returns the question, which is complete without context.
    pub(crate) fn question(&self) -> Outbound {
        let by_aspects = || match self.aspects.as_slice() {
            [] => self.asked.clone(),
            aspects => self.asked.in_particular(aspects.iter().map(|aspect| &aspect.text)),
        };
        let question = self.planned.clone().unwrap_or_else(by_aspects);
        // A rule-based worker parses it as a [`Question`](super::question::Question), which has this limit.
        let is_short = question.as_str().chars().count() <= MAX_QUESTION_CHARACTERS;
        if is_short { question } else { self.asked.clone() }
    }

    /// Returns the aspects, sorted by id.
    pub(crate) fn aspects(&self) -> &[OutwardAspect] {
        &self.aspects
    }

    /// Returns its text without the dates.
    pub(crate) fn words(&self) -> Outbound {
        // A planned question need not name its aspects.
        let aspects = self.aspects.iter().map(|aspect| &aspect.text);
        Outbound::lines([&self.question()].into_iter().chain(&self.background).chain(aspects))
    }

    /// Returns the prompt of a background job. Its form follows the advice of providers for such prompts.
    pub(crate) fn instructions(&self, caller: &dyn Caller) -> Outbound {
        let context = JobContext {
            question: self.question(),
            task: self.background.as_ref(),
            aspects: &self.aspects,
            today: self.today.as_ref(),
            days: self.days.as_ref(),
        };
        Outbound::of(JobPrompt { caller, context })
    }
}

/// Everything that is inserted into the prompt of a background job: outbound text, and ids, which are numbers.
#[derive(Serialize)]
struct JobContext<'a> {
    question: Outbound,
    task: Option<&'a Outbound>,
    aspects: &'a [OutwardAspect],
    today: Option<&'a Outbound>,
    days: Option<&'a Outbound>,
}

/// The prompt of a background job. Its template is part of this program.
struct JobPrompt<'a> {
    caller: &'a dyn Caller,
    context: JobContext<'a>,
}

impl MayLeave for JobPrompt<'_> {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        let messages = Template::DeepResearch.prompt(self.caller, json!(self.context)).messages;
        messages.into_iter().map(|message| message.text).collect::<Vec<_>>().join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::Scripted;

    fn aspect(number: u32, text: &'static str) -> OutwardAspect {
        OutwardAspect { id: AspectId::numbered(number), text: Outbound::fixed(text) }
    }

    #[test]
    fn order_in_which_aspects_are_named_changes_nothing() {
        let asked = Outbound::fixed("Which broker do others use?");
        let of = |aspects: [OutwardAspect; 2]| OutwardTask::new(asked.clone(), None, aspects.to_vec());
        let task = of([aspect(1, "cost"), aspect(2, "speed")]);
        let other = of([aspect(2, "speed"), aspect(1, "cost")]);
        let caller = Scripted::replying(json!({}));
        assert_eq!(task.instructions(&caller), other.instructions(&caller));
        assert_eq!(task.question().as_str(), "Which broker do others use? In particular: cost; speed");
    }

    #[test]
    fn task_for_some_aspects_names_no_other_and_keeps_a_planned_question() {
        let asked = Outbound::fixed("Which broker do others use?");
        let aspects = vec![aspect(1, "cost"), aspect(2, "speed")];
        let task = OutwardTask::new(asked.clone(), None, aspects.clone()).restricted(&[AspectId::numbered(2)]);
        assert_eq!(task.words().as_str(), "Which broker do others use? In particular: speed\nspeed");
        let planned = OutwardTask::new(asked, Some(Outbound::fixed("How fast are brokers?")), aspects);
        assert_eq!(planned.restricted(&[]).words().as_str(), "How fast are brokers?");
    }
}
