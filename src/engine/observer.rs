//! Events of a run in progress, for progress displays.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::line::{counted, cut, one_line};
use crate::base::step::{KeyPart, Step};
use crate::llm::call::CallKey;
use crate::research::node::Tree;
use crate::research::report::Section;
use crate::run::budget::{BudgetLimits, Spent};
use crate::run::event::{Event, Record};
use crate::run::ledger::CallNotice;
use crate::run::orchestrator::{RunListener, RunNotice};

/// Longest text in a line, in characters.
pub(crate) const LINE_CHARACTERS: usize = 100;

/// An event of a run in progress. As JSON it is one line of `--events jsonl`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum RunEvent {
    /// An event was appended to the journal.
    Event {
        // Boxed, since the other variants are small.
        event: Box<Record>,
        /// State of the run after it.
        #[serde(skip)]
        progress: Progress,
    },
    /// A model call changed its state.
    Call {
        #[serde(flatten)]
        notice: CallNotice,
        /// Amounts the run has spent so far.
        spent: Spent,
    },
    /// A section of a long answer was written. The final report may still omit it.
    Written { section: Section },
    /// Something went wrong that does not end the run.
    Note { text: String, hint: Option<String> },
    /// The question is answered without the models that are configured.
    Instead { why: String, hint: String },
}

impl RunEvent {
    /// Returns the event as a line of text. Most calls of models are not worth one.
    pub(crate) fn line(&self) -> Option<String> {
        match self {
            Self::Event { event, .. } => Some(event_line(event)),
            Self::Written { section } => Some(format!("written: {}", cut(&section.title, LINE_CHARACTERS))),
            Self::Note { text, .. } => Some(one_line(text)),
            Self::Instead { why, .. } => Some(format!("answering without a model: {}", one_line(why))),
            Self::Call { .. } => None,
        }
    }
}

/// What a run does between two events of its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Doing {
    /// The step of a call, a section that was written, or a note.
    pub(crate) text: String,
    /// The sub-question it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

impl RunEvent {
    /// Returns what the run does now; `None` if the event does not tell.
    pub(crate) fn doing(&self) -> Option<Doing> {
        match self {
            Self::Event { .. } | Self::Call { notice: CallNotice::Replied(..), .. } => None,
            Self::Call { notice: CallNotice::Sent(key, _), .. } => Some(Doing::of_call(key)),
            Self::Call { notice: CallNotice::Retried(key, error), .. } => {
                let Doing { text, node } = Doing::of_call(key);
                Some(Doing { text: format!("{text}, again after: {}", cut(error, LINE_CHARACTERS)), node })
            }
            Self::Written { .. } | Self::Note { .. } | Self::Instead { .. } => {
                self.line().map(|text| Doing { text, node: None })
            }
        }
    }
}

impl Doing {
    /// Says what a call is for, by its step. An unknown step is shown as it is.
    fn of_call(key: &CallKey) -> Self {
        // A node on the web works in the same steps as any other.
        let mut parts = key.parts().skip_while(|part| *part == KeyPart::Step(Step::Web));
        let (step, number) = (parts.next(), parts.next());
        let number = match number {
            Some(KeyPart::Id(number)) => number,
            Some(KeyPart::Step(_) | KeyPart::Other(_)) | None => "",
        };
        let text = match step {
            Some(KeyPart::Step(step)) => text_of(step, number),
            Some(KeyPart::Id(_) | KeyPart::Other(_)) | None => None,
        };
        let text = text.unwrap_or_else(|| format!("calling a model: {}", key.step()));
        Self { text, node: key.node().map(ToString::to_string) }
    }
}

/// Says what a step is for; `None` if it is only ever part of another step.
fn text_of(step: Step, number: &str) -> Option<String> {
    let text = match step {
        Step::Output => "converting the answer to the schema",
        Step::Work => return Some(format!("choosing what to search and read, step {number}")),
        Step::Page => "reading a page",
        Step::Rerank => "ordering what a search found",
        Step::Research => "waiting for Deep Research",
        Step::Report => "summing up what was found",
        Step::Clarify | Step::Brief => "working out what the answer must cover",
        Step::Plan => return Some(format!("planning round {number}")),
        Step::Skim => "skimming the knowledge base",
        Step::Fold | Step::Group => "summing up finished sub-questions",
        Step::Draft => "writing the answer",
        Step::Judge => return Some(format!("judging the answer of round {number}")),
        Step::Outward
        | Step::Shorter
        | Step::Public
        | Step::Outline
        | Step::Section
        | Step::Answer
        | Step::Repair
        | Step::Small
        | Step::Web => return None,
    };
    Some(text.to_owned())
}

/// State of a run.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) tree: Tree,
    /// Latest planned round; 0 before the first plan.
    pub(crate) round: u32,
    pub(crate) limits: BudgetLimits,
    /// Whether the run uses rule-based steps instead of models.
    pub(crate) by_rules: bool,
}

/// Receives the events of a run, in order. It is called on the tasks that execute the run, so it must not block.
pub(crate) type Observer = Arc<dyn Fn(RunEvent) + Send + Sync>;

/// Returns an observer that discards events.
pub(super) fn silent() -> Observer {
    Arc::new(|_| ())
}

/// Forwards the events of a run to an observer.
pub(super) fn listener(observer: Observer) -> RunListener {
    Arc::new(move |notice| observer(RunEvent::from(notice)))
}

impl From<&RunNotice<'_>> for RunEvent {
    fn from(notice: &RunNotice<'_>) -> Self {
        match notice {
            RunNotice::Event(record, state) => Self::Event {
                event: Box::new((*record).clone()),
                progress: Progress {
                    tree: state.tree.clone(),
                    round: state.round(),
                    limits: state.settings.limits,
                    by_rules: state.settings.by_rules,
                },
            },
            RunNotice::Call(notice, spent) => Self::Call { notice: (*notice).clone(), spent: *spent },
            RunNotice::Written(section) => Self::Written { section: (*section).clone() },
        }
    }
}

/// Formats an event as one line of text.
pub(crate) fn event_line(record: &Record) -> String {
    let text = match &record.event {
        Event::Started { question, .. } => format!("asked: {question}"),
        Event::Resumed { .. } => "resumed".to_owned(),
        Event::Clarified { question, answer } => format!("clarified: {question} — {answer}"),
        Event::Briefed { brief, .. } => format!("brief: {}", counted(brief.aspects.len(), "aspect")),
        // The root is worked on itself.
        Event::Planned { round: 1, plan } if plan.nodes.is_empty() => "round 1: the question is not divided".to_owned(),
        Event::Planned { round, plan } if plan.nodes.is_empty() => format!("round {round}: no new sub-questions"),
        Event::Planned { round, plan } => {
            format!("round {round}: {} planned", counted(plan.nodes.len(), "sub-question"))
        }
        Event::NodeStarted { node, route, why } => {
            format!("{node} started: {route} ({why})")
        }
        Event::NodeFinished { node, branch } => format!(
            "{node} finished: {}, {}, confidence {:.2}",
            counted(branch.report.findings.len(), "finding"),
            counted(branch.evidence.len(), "quote"),
            branch.report.confidence
        ),
        Event::NodePaused { node } => format!("{node} is pending again"),
        Event::NodeFailed { node, error } => format!("{node} failed: {error}"),
        Event::NodeBlocked { node, reason } => format!("{node} blocked: {reason}"),
        Event::RoundEnded { round, verdict, .. } => format!(
            "round {round} ended: {}, confidence {:.2}, {} missing",
            if verdict.is_enough() { "complete" } else { "not complete" },
            verdict.overall_confidence,
            counted(verdict.missing_aspects.len(), "aspect")
        ),
        Event::Ended { stop_reason, .. } => format!("ended: {stop_reason}"),
    };
    cut(&text, LINE_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Moment;
    use crate::research::plan::Plan;

    #[test]
    fn plan_without_sub_questions_says_that_the_question_is_worked_on_itself() {
        let event = Event::Planned { round: 1, plan: Plan::default() };
        let line = event_line(&Record { seq: 3, at: Moment(1), event });
        assert_eq!(line, "round 1: the question is not divided");
    }

    #[test]
    fn call_says_what_it_is_for_and_for_which_sub_question() {
        for (key, node, text) in [
            ("n12/step/3", Some("n12"), "choosing what to search and read, step 3"),
            ("n2/step/3/shorter", Some("n2"), "choosing what to search and read, step 3"),
            ("n2/report", Some("n2"), "summing up what was found"),
            ("n2/web/step/4", Some("n2"), "choosing what to search and read, step 4"),
            ("n2/output", Some("n2"), "converting the answer to the schema"),
            ("n2/research", Some("n2"), "waiting for Deep Research"),
            ("brief/outward", None, "working out what the answer must cover"),
            ("plan/2", None, "planning round 2"),
            ("draft/1/section/2", None, "writing the answer"),
            ("judge/1", None, "judging the answer of round 1"),
            ("notes/1", None, "calling a model: notes/1"),
        ] {
            let node = node.map(str::to_owned);
            assert_eq!(Doing::of_call(&CallKey::new(key)), Doing { text: text.to_owned(), node }, "{key}");
        }
    }
}
