//! An `OutwardTask`: everything that a worker on the web or a background job is told, made of outbound text alone.

use serde::Serialize;
use serde_json::json;

use super::prompt::Template;
use super::question::AspectId;
use crate::base::outbound::Outbound;
use crate::llm::call::Caller;

/// What a worker on the web or a background job is to find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutwardTask {
    /// The question, complete in itself.
    pub question: Outbound,
    /// What the question is part of.
    pub background: Option<Outbound>,
    /// In the order of their ids, so that the order a plan names them in makes no second task.
    aspects: Vec<OutwardAspect>,
    /// The day the run began.
    pub today: Option<Outbound>,
    /// Days that pages are to be from, if not any: `from 2026-01-01 on`.
    pub days: Option<Outbound>,
}

/// An aspect in words that may leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutwardAspect {
    /// Its id within the brief it is from.
    pub id: AspectId,
    /// What must be covered.
    pub text: Outbound,
}

impl OutwardTask {
    /// Returns a task without background and days.
    pub fn new(question: Outbound, mut aspects: Vec<OutwardAspect>) -> Self {
        aspects.sort_by(|a, b| a.id.cmp(&b.id));
        Self { question, background: None, aspects, today: None, days: None }
    }

    /// Returns the aspects, in the order of their ids.
    pub fn aspects(&self) -> &[OutwardAspect] {
        &self.aspects
    }

    /// Returns all words of the user and the plan in it, without the parts that are dates.
    pub fn words(&self) -> Outbound {
        let aspects = self.aspects.iter().map(|aspect| &aspect.text);
        Outbound::joined([&self.question].into_iter().chain(&self.background).chain(aspects), "\n")
    }

    /// Returns the prompt of a background job, by the rules that providers give for such prompts.
    #[expect(
        clippy::disallowed_methods,
        reason = "the template is part of this program, and all it is given is outbound"
    )]
    pub fn instructions(&self, caller: &dyn Caller) -> Outbound {
        let Self { question, background, aspects, today, days } = self;
        let context =
            json!({"question": question, "task": background, "aspects": aspects, "today": today, "days": days});
        let messages = Template::DeepResearch.prompt(caller, context).messages;
        Outbound::vouched(messages.into_iter().map(|message| message.text).collect::<Vec<_>>().join("\n\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::Scripted;

    #[test]
    fn order_in_which_aspects_are_named_changes_nothing() {
        let aspect = |number, text| OutwardAspect { id: AspectId::numbered(number), text: Outbound::fixed(text) };
        let [cost, speed] = [aspect(1, "cost"), aspect(2, "speed")];
        let question = Outbound::fixed("Which broker do others use?");
        let task = OutwardTask::new(question.clone(), vec![cost.clone(), speed.clone()]);
        let other = OutwardTask::new(question, vec![speed, cost]);
        let caller = Scripted::replying(json!({}));
        assert_eq!(task.instructions(&caller), other.instructions(&caller));
        assert_eq!(task.words().as_str(), "Which broker do others use?\ncost\nspeed");
    }
}
