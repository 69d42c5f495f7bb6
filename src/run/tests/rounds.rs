//! Rounds without new evidence repeat no call, and the web is asked nothing twice.

use super::super::event::{Event, Followed, Record, RunRequest};
use super::super::journal::CallRow;
use super::super::orchestrator::RunNotice;
use super::outside::{LIMITS, Outside};
use super::*;
use crate::llm::message::{Prompt, Speaker};
use crate::llm::openai::Api;
use crate::research::node::NodeId;
use crate::research::question::Mode;
use crate::web_server::Setup;

/// Carries a run out with a model until it is complete, and returns its calls.
async fn completed(world: &World, model: &Arc<ScriptedModel>) -> Vec<CallRow> {
    let resources = Resources { models: Some(model.models()), ..world.resources() };
    let mut run = world.started(world.settings(), resources).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Complete);
    world.store.journal().calls(&World::run()).await.unwrap()
}

#[tokio::test]
async fn round_without_new_evidence_keeps_the_draft_it_has() {
    let world = World::new(TWO_ROUNDS);
    // The second plan repeats topics of the first.
    let model = ScriptedModel::changing(TWO_ROUNDS, |_, text| {
        text.replace("topic 10?", "topic 1?").replace("topic 11?", "topic 2?")
    });
    let calls = completed(&world, &model).await;
    let made = |part: &str| calls.iter().filter(|call| call.key.as_str().starts_with(part)).count();
    assert!(made("draft/1") > 0 && made("judge/2") > 0 && made("plan/2") > 0);
    assert_eq!((made("draft/2"), made("write")), (0, 0), "{calls:#?}");
    assert!(!world.report().await.findings.is_empty());
    // No request of a run is sent twice, for any purpose.
    let asked = model.asked.lock().unwrap();
    for (at, prompt) in asked.iter().enumerate() {
        assert!(!asked[at + 1..].contains(prompt), "{prompt:#?}");
    }
}

/// A question of the second plan, which its node answers from what two others found.
const COMPARED: &str = "How do topics 1 and 2 differ?";

/// Makes the second plan one node that only concludes, with a conclusion of its own.
fn compares(prompt: &Prompt, text: String) -> String {
    let asks_for = |form: &str| prompt.schema.as_ref().is_some_and(|schema| schema.name == form);
    if asks_for("plan") && prompt.messages[0].text.starts_with("You continue the plan") {
        let mut plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        let node = &mut plan["new_nodes"][0];
        (node["question"], node["tools"]) = (COMPARED.into(), ["conclude"].as_slice().into());
        node["depends_on"] = ["n2", "n3"].as_slice().into();
        plan.to_string()
    } else if asks_for("branch_report") && prompt.messages[1].text.contains(COMPARED) {
        let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
        report["findings"][0]["text"] = "Topic 2 is described after topic 1.".into();
        report.to_string()
    } else {
        text
    }
}

#[tokio::test]
async fn round_that_only_concludes_something_new_is_progress_and_gets_a_draft() {
    let researcher = Researcher { nodes: 9, more_nodes: 1 };
    let (world, model) = (World::new(researcher), ScriptedModel::changing(researcher, compares));
    let calls = completed(&world, &model).await;
    let made = |part: &str| calls.iter().filter(|call| call.key.as_str().starts_with(part)).count();
    let state = world.store.read(&World::run()).await.unwrap().1;
    let branch = &state.branches[&"n11".parse().unwrap()];
    assert!(branch.evidence.is_empty() && !branch.report.findings.is_empty(), "{branch:#?}");
    assert!(made("draft/1") > 0 && made("draft/2") > 0, "{calls:#?}");
    assert_eq!((state.round(), state.folded.idle_rounds), (2, 0));
}

#[tokio::test]
async fn draft_that_stands_is_the_answer_of_a_run_that_ends_early_in_its_next_round() {
    for ends in [StopReason::TimeExceeded, StopReason::Cancelled] {
        let mut world = World::new(TWO_ROUNDS);
        world.limits.time = Some(Duration::from_mins(15));
        let (clock, stop) = (Arc::clone(&world.clock), world.stop.clone());
        let listener = move |notice: &RunNotice<'_>| {
            if let RunNotice::Event(Record { event: Event::Planned { round: 2, .. }, .. }, _) = notice {
                match ends {
                    StopReason::Cancelled => stop.cancel(),
                    // Research is over, and there is time to write.
                    _ => clock.advance(Duration::from_mins(14)),
                }
            }
        };
        let resources = Resources { listener: Arc::new(listener), ..world.resources() };
        let mut run = world.started(world.settings(), resources).await.unwrap();
        assert_eq!(run.conduct().await.unwrap(), ends);
        let calls = world.store.journal().calls(&World::run()).await.unwrap();
        let bought: Vec<_> = calls.iter().filter(|call| call.key.as_str().starts_with("write")).collect();
        assert!(bought.is_empty(), "{bought:#?}");
        let state = world.store.read(&World::run()).await.unwrap().1;
        let Phase::Ended(ended) = &state.phase else { panic!("{:#?}", state.phase) };
        // With what its verdict found missing.
        let drafted = &state.folded.draft.as_ref().unwrap().answer;
        assert_eq!(ended.draft.answer, format!("{drafted}\n\nNot fully answered: how the topics work."), "{ends:?}");
        assert!(!ended.draft.is_makeshift && !ended.draft.findings.is_empty(), "{ends:?}");
    }
}

#[tokio::test]
async fn round_that_no_worker_can_begin_is_not_planned() {
    const RESEARCHER: Researcher = Researcher { nodes: 4, more_nodes: 2 };
    let mut planned = Vec::new();
    for limit in (14_000..=26_000).step_by(400) {
        let mut world = World::new(RESEARCHER);
        world.limits.tokens = Some(limit);
        world.ask().await.unwrap();
        let calls = world.store.journal().calls(&World::run()).await.unwrap();
        let is_made = |part: &str| calls.iter().any(|call| call.key.as_str().starts_with(part));
        assert!(!is_made("plan/2") || is_made("n6/step"), "under {limit}: {calls:#?}");
        planned.push(is_made("plan/2"));
    }
    assert!(planned.contains(&true) && planned.contains(&false), "{planned:?}");
}

#[tokio::test]
async fn worker_and_compressor_are_told_the_aspects_of_their_node_alone() {
    let world = World::new(TWO_ROUNDS);
    let model = ScriptedModel::changing(TWO_ROUNDS, |_, text| text);
    let resources = Resources { models: Some(model.models()), ..world.resources() };
    let mut run = world.started(world.settings(), resources).await.unwrap();
    run.conduct().await.unwrap();
    let asked = model.asked.lock().unwrap();
    let mut seen = 0;
    for task in asked.iter().map(|prompt| &prompt.messages[1].text) {
        let topic = task.strip_prefix("Sub-question: What is said of topic ").and_then(|rest| rest.split('?').next());
        let Some(topic) = topic.and_then(|topic| topic.parse::<u32>().ok()) else { continue };
        let (own, other) = if topic.is_multiple_of(2) { ("a1", "a2") } else { ("a2", "a1") };
        assert!(task.contains(&format!("\n- {own}: ")) && !task.contains(&format!("\n- {other}: ")), "{task}");
        seen += 1;
    }
    assert!(seen >= 3 * 11, "two steps and a report of each node, not {seen} prompts");
}

#[tokio::test]
async fn worker_and_compressor_of_a_follow_up_question_are_told_what_it_refers_to() {
    // The brief of the scripted planner.
    const TASK: &str = "Say what is known of the topics.";
    let researcher = Researcher { nodes: 0, more_nodes: 0 };
    let (mut world, model) = (World::new(researcher), ScriptedModel::changing(researcher, |_, text| text));
    world.limits.rounds = Some(1);
    let followed =
        Followed { run: RunId::random(2), question: "What is topic 3?".parse().unwrap(), answer: "A topic.".into() };
    let request = RunRequest { mode: Mode::Iterative, ..RunRequest::default() };
    let settings = RunSettings { request, follows: Some(followed), ..world.settings() };
    let resources = Resources { models: Some(model.models()), ..world.resources() };
    let question = "And what else is said of 3?".parse().unwrap();
    let mut run = Orchestrator::start(World::run(), question, settings, resources).await.unwrap();
    run.conduct().await.unwrap();
    let asked = model.asked.lock().unwrap();
    for form in ["step", "branch_report"] {
        let is_asked = |prompt: &&Prompt| prompt.schema.as_ref().is_some_and(|schema| schema.name == form);
        let tasks: Vec<_> = asked.iter().filter(is_asked).map(|prompt| &prompt.messages[1].text).collect();
        let line = format!("Sub-question: And what else is said of 3? (in full: {TASK})\n");
        assert!(!tasks.is_empty() && tasks.iter().all(|task| task.starts_with(&line)), "{form}: {tasks:#?}");
    }
    let branch = &run.state().branches[&NodeId::numbered(1)];
    assert!(!branch.evidence.is_empty(), "{branch:#?}");
}

#[tokio::test]
async fn later_round_pays_for_one_of_two_web_nodes_that_are_worded_from_the_same_aspects() {
    let server = Setup::new(|_| String::new()).start();
    // The second plan has nodes 11 to 13 for the web, of which the last has the aspect of the first. The planner leaves
    // it out when it is told.
    let researcher = Researcher { nodes: 9, more_nodes: 3 };
    let model = ScriptedModel::changing(researcher, |prompt, text| {
        if !prompt.messages[0].text.starts_with("You continue the plan") {
            return text;
        }
        let refused = prompt.messages.iter().find(|message| message.speaker == Speaker::Assistant);
        let said = refused.map_or(text.as_str(), |message| message.text.as_str());
        let mut plan: serde_json::Value = serde_json::from_str(said).unwrap();
        let nodes = plan["new_nodes"].as_array_mut().unwrap();
        for node in nodes.iter_mut() {
            node["source_hint"] = "web".into();
        }
        if refused.is_some() {
            nodes.pop();
        }
        plan.to_string()
    });
    // Too little for a job, so nodes for the web have workers.
    let limits = BudgetLimits { cost_nanos: Some(950_000_000), rounds: Some(2), ..LIMITS };
    let world = Outside { models: Some(model.models()), limits, ..Outside::at(&server, Api::Responses) };
    world.ask().await.unwrap();
    let calls = world.calls().await;
    let made = |part: &str| calls.iter().filter(|call| call.key.as_str().starts_with(part)).count();
    assert_eq!(made("plan/2"), 2, "{calls:#?}");
    assert!(made("n11/step") > 0 && made("n12/step") > 0, "{calls:#?}");
    assert_eq!(made("n13/"), 0, "{calls:#?}");
}
