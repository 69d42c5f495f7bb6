//! What a conversation that faces outward is given of a run.

use serde_json::json;

use super::super::event::{Event, Followed, Record};
use super::super::outward::{OutwardWork, outward_brief, outward_task};
use super::super::steps::checked;
use super::*;
use crate::research::memory::Memory;
use crate::research::node::{Node, NodeId, SourceHint};
use crate::research::plan::{Plan, PlanDraft};
use crate::research::question::AspectId;
use crate::research::report::Draft;
use crate::research::route::Route;
use crate::research::scripted::{branch, brief};
use crate::research::verdict::Verdict;
use crate::source::Label;

const ASKED: &str = "How do others water beds?";

/// Returns the state after these events.
fn state(settings: RunSettings, events: Vec<Event>) -> RunState {
    let started = Event::Started { question: ASKED.parse().unwrap(), settings: Box::new(settings) };
    let events = [started].into_iter().chain(events);
    let records: Vec<_> = events.zip(1..).map(|(event, seq)| Record { seq, at: Moment(seq), event }).collect();
    RunState::of(&records).unwrap()
}

fn web(number: u32, depends_on: &[u32]) -> Node {
    let question = format!("Word {number} of the planner?").parse().unwrap();
    let node = Node::new(NodeId::numbered(number), Some(NodeId::numbered(1)), question, 1);
    Node {
        source_hint: SourceHint::Web,
        depends_on: depends_on.iter().map(|number| NodeId::numbered(*number)).collect(),
        aspects: vec![AspectId::numbered(1)],
        output_schema: Some(json!({ "type": "object", "title": format!("schema {number}") })),
        ..node
    }
}

fn planned(round: u32, node: Node) -> Event {
    Event::Planned { round, plan: Plan { nodes: vec![Node { round, ..node }], ..Plan::default() } }
}

/// Returns the events of a round with one node for the web, which quotes `words`.
fn round(number: u32, node: u32, words: &str, output: Option<serde_json::Value>) -> [Event; 4] {
    let id = NodeId::numbered(node);
    let mut found = branch(&id, &[words], Label::Public);
    found.report.output = output;
    let verdict = Verdict { recommend_more_iterations: true, ..Verdict::default() };
    [
        planned(number, web(node, &[])),
        Event::NodeStarted { node: id.clone(), route: Route::Web, why: String::new() },
        Event::NodeFinished { node: id, branch: Box::new(found) },
        Event::RoundEnded { round: number, memory: Memory::default(), draft: Draft::default(), verdict },
    ]
}

fn briefed() -> Event {
    Event::Briefed { brief: brief(ASKED, &["water"]), outward: None }
}

#[test]
fn schema_and_output_of_a_node_leave_only_in_words_from_before_retrieval() {
    let output = json!({ "said": "in the words of the schema" });
    let events = [briefed()].into_iter().chain(round(1, 2, "Drip lines save water.", Some(output)));
    let state = state(settings(BudgetLimits::default()), events.chain([planned(2, web(3, &[2]))]).collect());
    let schemas = [2, 3].map(|number| {
        let node = state.tree.get(&NodeId::numbered(number)).unwrap();
        outward_task(&state, node).output_schema.map(|schema| schema.to_string())
    });
    assert_eq!(
        schemas,
        [web(2, &[]).output_schema.map(|schema| schema.to_string()), None],
        "the planner of round 2 had findings in view"
    );
    let work = OutwardWork::of(&state, state.tree.get(&NodeId::numbered(3)).unwrap());
    let reports: Vec<_> = work.conclusions.iter().map(|(.., branch)| &branch.as_branch().report).collect();
    assert_eq!(reports.len(), 1);
    assert!(!reports[0].findings.is_empty() && reports[0].output.is_none(), "{:#?}", reports[0]);
}

#[test]
fn web_is_asked_the_same_in_a_later_round_only_with_more_in_view() {
    let again =
        json!({ "new_nodes": [{ "id": "again", "question": "How?", "aspects": ["a1"], "source_hint": "web" }] });
    let again: PlanDraft = serde_json::from_value(again).unwrap();
    for (found, is_refused) in [("Drip lines save water.", true), ("Mulch saves water.", false)] {
        let events = [briefed()].into_iter().chain(round(1, 2, "Drip lines save water.", None));
        let state = state(settings(BudgetLimits::default()), events.chain(round(2, 3, found, None)).collect());
        let checked = checked(&again, &state, state.brief().unwrap(), 3);
        assert_eq!(checked.is_err(), is_refused, "{found}: {checked:?}");
    }
}

#[test]
fn mixed_node_of_a_later_round_does_not_ask_the_web_what_another_one_asks_unless_that_stayed_inside() {
    let new = |id: &str, hint: &str| json!({ "id": id, "question": id, "aspects": ["a1"], "source_hint": hint });
    let is_refused = |label: Label, nodes: &[serde_json::Value]| {
        let (id, words) = (NodeId::numbered(3), "Drip lines save water.");
        let mut second = round(2, 3, words, None);
        second[0] = planned(2, Node { source_hint: SourceHint::Mixed, ..web(3, &[]) });
        second[2] = Event::NodeFinished { branch: Box::new(branch(&id, &[words], label)), node: id };
        let events = [briefed()].into_iter().chain(round(1, 2, words, None)).chain(second);
        let state = state(settings(BudgetLimits::default()), events.collect());
        let plan: PlanDraft = serde_json::from_value(json!({ "new_nodes": nodes })).unwrap();
        checked(&plan, &state, state.brief().unwrap(), 3).is_err()
    };
    assert!(is_refused(Label::Public, &[new("one", "mixed")]), "of the finished node");
    assert!(!is_refused(Label::Public, &[new("one", "internal")]));
    assert!(!is_refused(Label::Internal, &[new("one", "mixed"), new("two", "web")]), "its queries are on record");
    assert!(!is_refused(Label::Internal, &[new("one", "mixed")]), "the finished node has not asked the web");
    assert!(is_refused(Label::Internal, &[new("one", "mixed"), new("two", "mixed")]), "of one plan");
}

#[test]
fn run_that_was_briefed_with_an_earlier_answer_in_view_and_no_way_out_gives_the_web_its_question_alone() {
    let followed =
        Followed { run: RunId::random(2), question: "What is ours?".parse().unwrap(), answer: "Secret.".into() };
    let state = state(
        RunSettings { follows: Some(followed), ..settings(BudgetLimits::default()) },
        vec![
            Event::Briefed { brief: brief("Say what the secret is.", &["the secret"]), outward: None },
            planned(1, web(2, &[])),
        ],
    );
    let task = outward_task(&state, state.tree.get(&NodeId::numbered(2)).unwrap());
    assert_eq!((task.words().as_str(), task.aspects().len(), task.output_schema.as_ref()), (ASKED, 0, None));
    assert_eq!(outward_brief(&state).as_str(), ASKED);
}
