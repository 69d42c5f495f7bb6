//! Background jobs of a run: time limits, providers, and incomplete reports.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::super::budget::Purpose;
use super::super::journal::{self, CallKind, CallRow, CallState, JobEndpoint, PromptCall, ProviderKind};
use super::super::ledger::Reserving;
use super::calls::ledger;
use super::outside::{LIMITS, Outside};
use super::*;
use crate::base::id::ContentHash;
use crate::base::outbound::Outbound;
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey};
use crate::llm::message::Role;
use crate::llm::model::ModelError;
use crate::llm::openai::Api;
use crate::research::branch::{Branch, BranchStop};
use crate::research::node::{NodeId, NodeStatus};
use crate::research::plan::SavedPlan;
use crate::research::worker::WorkError;
use crate::run::background::{Jobs, ScriptedJobs, jobs_of};
use crate::source::Label;
use crate::web_server::{Call, Fault, Kind, Setup, WebServer};

/// Returns a world with one internal node and one job for each of `questions`.
fn with_jobs<'a>(server: &'a WebServer, questions: &[&str]) -> Outside<'a> {
    let node = |id: &str, question: &str, hint: &str| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "depends_on": [], "why": "it is asked for" });
    let mut nodes = vec![node("inside", "What is said of topic 1?", "internal")];
    let web = questions.iter().enumerate();
    nodes.extend(web.map(|(number, question)| node(&format!("outside{number}"), question, "web")));
    let plan = json!({ "reasoning": "one for every way", "new_nodes": nodes });
    Outside {
        models: Some(ScriptedModel::new(Researcher { nodes: 2, more_nodes: 0 }, Duration::ZERO).models()),
        plan: Some(serde_json::from_value::<SavedPlan>(plan).unwrap()),
        can_search: false,
        ..Outside::at(server, Api::Responses)
    }
}

const BEDS: &str = "How do others water greenhouse beds?";

async fn researched(world: &Outside<'_>) -> Vec<Branch> {
    let state = world.state().await;
    state.jobs().filter_map(|(node, _)| state.branches.get(node).cloned()).collect()
}

#[tokio::test]
async fn job_is_cancelled_when_the_time_of_its_run_is_up_and_restarted_with_more_time() {
    let server = Setup::new(|_| String::new()).with_polls(4).start();
    // Research has time for four polls; the job needs five.
    let limits = BudgetLimits { time: Some(Duration::from_secs(30)), ..LIMITS };
    let world = Outside { limits, ..with_jobs(&server, &[BEDS]) };
    assert_eq!(world.ask().await.unwrap(), StopReason::TimeExceeded);
    assert_eq!(server.jobs().iter().map(|job| job.status).collect::<Vec<_>>(), ["cancelled"]);
    let state = world.state().await;
    let waits = state.jobs().all(|(node, _)| state.tree.get(node).unwrap().status == NodeStatus::Pending);
    assert!(waits && state.jobs().count() == 1, "{:#?}", state.tree);
    assert_eq!(world.resume_with(LIMITS).await.unwrap(), StopReason::Complete);
    assert_eq!(server.jobs().iter().map(|job| job.status).collect::<Vec<_>>(), ["cancelled", "completed"]);
    assert!(!researched(&world).await[0].report.findings.is_empty());
}

#[tokio::test]
async fn node_that_only_concludes_starts_no_job_and_needs_none() {
    for hint in ["web", "mixed"] {
        let server = Setup::new(|_| String::new()).with_polls(0).start();
        let node = |id: &str, question: &str, hint: &str, tools: &[&str], depends_on: &[&str]| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "tools": tools, "depends_on": depends_on, "why": "it is asked for" });
        let nodes = [
            node("beds", BEDS, "web", &[], &[]),
            node("gutters", "What do copper gutters cost?", "web", &[], &[]),
            node("compare", "How do beds and gutters differ?", hint, &["conclude"], &["beds", "gutters"]),
        ];
        let plan = serde_json::from_value(json!({ "reasoning": "compares", "new_nodes": nodes })).unwrap();
        let world = Outside { plan: Some(plan), max_jobs: 2, ..with_jobs(&server, &[]) };
        assert_eq!(world.ask().await.unwrap(), StopReason::Complete, "{hint}");
        assert_eq!(server.jobs().len(), 2, "{hint}");
        let (state, compare) = (world.state().await, NodeId::numbered(4));
        let branch = &state.branches[&compare];
        assert_eq!(state.tree.get(&compare).unwrap().status, NodeStatus::Done, "{hint}");
        assert!(!branch.report.findings.is_empty() && branch.evidence.is_empty(), "{hint}: {branch:#?}");
        assert!(branch.notes.is_empty(), "{hint}: {:?}", branch.notes);
        let calls = world.calls().await;
        let of_node: Vec<_> = calls.iter().filter(|call| call.key.node() == Some(&compare)).collect();
        let label = if hint == "web" { Label::Public } else { Label::Internal };
        assert_eq!(of_node.iter().map(|call| call.label).collect::<Vec<_>>(), [label], "{hint}: {of_node:#?}");
    }
}

#[tokio::test]
async fn job_that_an_older_version_started_for_a_node_that_only_concludes_is_settled() {
    let server = Setup::new(|_| String::new()).with_polls(0).start();
    let node = |id: &str, tools: &[&str], depends_on: &[&str]| json!({ "id": id, "question": format!("What of {id}?"), "aspects": ["a1"], "source_hint": "web", "tools": tools, "depends_on": depends_on, "why": "it is asked for" });
    let nodes = [node("beds", &[], &[]), node("sum", &["conclude"], &["beds"])];
    let plan = serde_json::from_value(json!({ "reasoning": "concludes", "new_nodes": nodes })).unwrap();
    let world = Outside { plan: Some(plan), ..with_jobs(&server, &[]) };
    world.ask().await.unwrap();
    let concludes = NodeId::numbered(3);
    let sql = format!(
        "UPDATE calls SET key = '{concludes}/{}', node = '{concludes}', outcome = 'sent', ended_at = NULL, \
         reply = NULL, usage = NULL, cost = NULL WHERE job IS NOT NULL",
        Step::Research
    );
    world.store.journal().damage(&sql).await;
    let job =
        |calls: &[CallRow]| calls.iter().find(|call| call.is_job()).map(|call| (call.state(), call.charged_cost()));
    let (state, cap) = job(&world.calls().await).unwrap();
    assert_eq!(state, CallState::Sent);

    assert_eq!(world.resume(false).await.unwrap(), StopReason::Complete);
    let (state, cost) = job(&world.calls().await).unwrap();
    assert!(state == CallState::Replied && cost < cap, "{state:?}, {cost:?} of {cap:?}");
    assert_eq!(server.jobs().len(), 1);
    let state = world.state().await;
    assert_eq!(state.tree.get(&concludes).unwrap().status, NodeStatus::Done);
    assert!(state.branches[&concludes].evidence.is_empty(), "{:#?}", state.branches[&concludes]);
}

#[tokio::test]
async fn report_that_was_cut_short_is_used_and_counts_as_incomplete() {
    let first = |call: &Call<'_>| (call.kind == Kind::StartJob && call.number == 1).then_some(Fault::IncompleteJob);
    let server = Setup::new(|_| String::new()).with_polls(0).with_faults(first).start();
    let world = with_jobs(&server, &[BEDS]);
    world.ask().await.unwrap();
    let branch = researched(&world).await.remove(0);
    assert!(!branch.report.findings.is_empty() && branch.evidence.iter().all(|quote| quote.checked));
    assert_eq!(branch.report.stop_reason, BranchStop::BudgetExceeded);
    assert_eq!(branch.report.open_questions, [BEDS]);
    assert!(branch.report.confidence <= 0.4, "{}", branch.report.confidence);
    let note = "stopped before it was done (max_output_tokens)";
    assert!(branch.notes.iter().any(|said| said.contains(note)), "{:?}", branch.notes);
    let calls = world.calls().await;
    let job = calls.iter().find(|call| call.is_job()).unwrap();
    assert_eq!(job.state(), CallState::Replied);
    assert!(job.charged_cost().unwrap() > 0 && job.reply().unwrap().cut_off);
}

#[tokio::test]
async fn account_without_summaries_gets_jobs_without_them_and_a_note() {
    let server = Setup::new(|_| String::new()).with_polls(0);
    let server = server.with_faults(|call| (call.kind == Kind::StartJob).then_some(Fault::NoSummaries)).start();
    // One at a time, so that the second job starts after the refusal of the first.
    let limits = BudgetLimits { cost_nanos: Some(20_000_000_000), ..LIMITS };
    let questions = [BEDS, "What do copper gutters cost?"];
    let world = Outside { researcher: "gpt-6-sol", limits, ..with_jobs(&server, &questions) };
    assert_eq!(world.ask().await.unwrap(), StopReason::Complete);
    let branches = researched(&world).await;
    assert_eq!(branches.len(), 2);
    for branch in &branches {
        let is_told = branch.notes.iter().any(|note| note.contains("may not have summaries of the reasoning"));
        assert!(is_told && !branch.report.findings.is_empty(), "{branch:#?}");
    }
    assert_eq!(server.jobs().len(), 2);
    assert!(server.jobs().iter().all(|job| job.body["reasoning"]["summary"].is_null()));
    let calls = world.calls().await;
    let jobs: Vec<_> =
        calls.iter().filter(|call| call.is_job()).map(|call| (call.state(), call.charged_cost())).collect();
    let refused = jobs.iter().filter(|(state, cost)| (*state, *cost) == (CallState::Failed, Some(0))).count();
    assert!((1..=2).contains(&refused) && jobs.len() == 2 + refused, "{jobs:?}");
    // Later jobs do not request summaries again.
    let before = server.count();
    world.resume(false).await.unwrap();
    assert_eq!(server.count(), before);
}

#[tokio::test]
async fn second_provider_is_one_implementation_of_the_trait() {
    let server = Setup::new(|_| String::new()).start();
    let provider = Arc::new(ScriptedJobs::default());
    let world = Outside { provider: Some(Arc::clone(&provider) as Arc<_>), ..with_jobs(&server, &[BEDS]) };
    world.ask().await.unwrap();
    let started = provider.started();
    assert_eq!((started.len(), server.jobs().len()), (1, 0));
    assert!(started[0].instructions.as_str().contains(BEDS), "{}", started[0].instructions);
    let calls = world.calls().await;
    let job = calls.iter().find(|call| call.is_job()).unwrap();
    let provider = job.job.as_ref().and_then(|job| job.provider);
    assert_eq!((provider, job.state()), (Some(ProviderKind::Scripted), CallState::Replied));
    // The stored report is parsed without the provider.
    let log = jobs_of(world.store.journal(), &World::run()).await.unwrap();
    assert_eq!((log.len(), log[0].report.as_str()), (1, "scripted report scripted_1"));
}

const TOLD: &str = "Find out about costs.";

/// Returns the jobs of a process that goes on after one that was killed. That one had sent a call for a job of `node`,
/// with other instructions, and stored the id of the job if `job` has it.
async fn interrupted(node: &NodeId, job: Option<&str>, retry_unknown: bool) -> (Jobs, Arc<ScriptedJobs>) {
    let server = Setup::new(|_| String::new()).start();
    let provider = Arc::new(ScriptedJobs::default());
    let outside = Outside { provider: Some(Arc::clone(&provider) as Arc<_>), ..with_jobs(&server, &[]) };
    let ledger = ledger(&World { limits: LIMITS, ..World::new(TWO_ROUNDS) }).await;
    let call = journal::Call {
        key: CallKey::of_node(node).then(Step::Research),
        kind: CallKind::Job,
        model: "fixture".into(),
        request_hash: ContentHash::of(b"Find out about costs and speed."),
        purpose: Purpose::Research,
        label: Label::Public,
        worst_cost: Some(1_000_000_000),
    };
    let ticket = ledger.open(&call, Reserving::IfItFits, std::future::pending()).await.unwrap();
    if let Some(job) = job {
        let endpoint = JobEndpoint { address: server.url(), key: None, is_web_only: true };
        ticket.attach(&job.parse().unwrap(), ProviderKind::Scripted, endpoint).await.unwrap();
    }
    drop(ticket);
    // A worker of another node whose reply is unknown, which is no job.
    let key = CallKey::new("n5/step/1");
    let kind = CallKind::Prompt(PromptCall { role: Role::Worker, is_tight: false, counted_tokens: 0, worst_tokens: 1 });
    let step = journal::Call { key, kind, request_hash: ContentHash::of(b"step"), worst_cost: Some(1), ..call };
    drop(ledger.open(&step, Reserving::IfItFits, std::future::pending()).await.unwrap());
    let calls = ledger.run().journal().calls_in_short(ledger.run().id()).await.unwrap();
    (Jobs::open(ledger, Arc::new(outside.jobs(retry_unknown)), &calls, true, |_| false), provider)
}

/// Returns the report that a node gets, and whether its job was told what it is read for. Adds the node to `released`
/// if a job is started.
async fn carried_out(jobs: &Jobs, node: &NodeId, released: &mut Vec<NodeId>) -> Result<(String, bool), WorkError> {
    let told = Outbound::fixed(TOLD);
    let sent = std::sync::Mutex::new(released);
    let release = || async {
        sent.lock().unwrap().push(node.clone());
        Ok(())
    };
    let call = jobs.carry_out(node, &told, release).await?;
    let found = jobs.finished(call, &told).await?;
    Ok((found.report().text.clone(), found.was_told()))
}

#[tokio::test]
async fn job_in_flight_of_a_node_is_followed_whatever_it_was_told() {
    let (node, other) = (NodeId::numbered(4), NodeId::numbered(5));
    let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
    let mut released = Vec::new();
    let found = carried_out(&jobs, &node, &mut released).await.unwrap();
    assert_eq!(found, ("scripted report scripted_7".into(), false));
    assert!(provider.started().is_empty() && released.is_empty(), "nothing was sent");
    let found = carried_out(&jobs, &other, &mut released).await.unwrap();
    assert_eq!(found, ("scripted report scripted_1".into(), true));
    assert_eq!((provider.started().len(), released), (1, vec![other]));
}

#[tokio::test]
async fn report_of_a_node_serves_it_whatever_its_job_was_told_and_is_fetched_again_if_it_cannot_be_read() {
    let node = NodeId::numbered(4);
    let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
    let mut released = Vec::new();
    let first = carried_out(&jobs, &node, &mut released).await.unwrap();
    assert_eq!(first, ("scripted report scripted_7".into(), false));
    for reply in ["reply", "substr(reply, 1, 4)"] {
        let damage = format!("UPDATE calls SET reply = {reply} WHERE job IS NOT NULL");
        jobs.ledger.run().journal().damage(&damage).await;
        assert_eq!(carried_out(&jobs, &node, &mut released).await.unwrap(), first, "{reply}");
    }
    assert!(provider.started().is_empty() && released.is_empty(), "nothing was sent");
}

#[tokio::test]
async fn time_limit_of_a_job_counts_from_its_start_and_one_that_ended_meanwhile_is_fetched() {
    let node = NodeId::numbered(4);
    for (age, is_slow) in [(50, true), (120, true), (120, false)] {
        let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
        provider.is_slow.store(is_slow, Ordering::SeqCst);
        let clock = jobs.ledger.clock();
        clock.sleep(Duration::from_secs(age)).await;
        let from = clock.now();
        let found = carried_out(&jobs, &node, &mut Vec::new()).await;
        let waited = clock.now().since(from);
        assert!(waited < Duration::from_secs(30), "{age}: {waited:?}");
        match found {
            Ok((report, _)) => assert!(!is_slow && report == "scripted report scripted_7", "{age}: {report}"),
            Err(error) => assert!(is_slow && error.to_string().contains("exceeded its time limit"), "{age}: {error}"),
        }
    }
}

#[tokio::test]
async fn report_is_of_the_web_alone_only_if_its_job_was_stored_as_such() {
    let (node, told) = (NodeId::numbered(4), Outbound::fixed(TOLD));
    for (endpoint, had_server) in [
        ("endpoint", false),
        ("json_set(endpoint, '$.is_web_only', json('false'))", true),
        ("json_remove(endpoint, '$.is_web_only')", true),
        ("NULL", true),
    ] {
        let (jobs, _) = interrupted(&node, Some("scripted_7"), false).await;
        let damage = format!("UPDATE calls SET endpoint = {endpoint} WHERE job IS NOT NULL");
        jobs.ledger.run().journal().damage(&damage).await;
        let call = jobs.carry_out(&node, &told, || async { Ok(()) }).await.unwrap();
        let finished = jobs.finished(call, &told).await.unwrap();
        assert_eq!(finished.report().had_server, had_server, "{endpoint}");
    }
}

#[tokio::test]
async fn unreadable_record_of_a_job_fails_its_node_and_not_the_run() {
    let server = Setup::new(|_| String::new()).with_polls(0).start();
    let world = with_jobs(&server, &[BEDS]);
    world.ask().await.unwrap();
    world.store.journal().damage("UPDATE lookups SET result = '1.5' WHERE tool = 'deep_research'").await;
    let run = RunId::random(2);
    world.ask_as(run.clone()).await.unwrap();
    let (_, state) = world.store.read(&run).await.unwrap();
    let failed: Vec<_> = state.tree.nodes.iter().filter(|node| node.status == NodeStatus::Failed).collect();
    assert!(failed.len() == 1 && failed[0].summary.contains("its record in the journal cannot be read"), "{failed:#?}");
    assert_eq!(server.jobs().len(), 1, "it is not bought again");
}

#[tokio::test]
async fn job_that_is_not_known_is_given_up_only_where_it_was_started() {
    let node = NodeId::numbered(4);
    for (column, value, says) in [
        ("endpoint", "NULL", None),
        ("endpoint", "endpoint", None),
        ("endpoint", "json_set(endpoint, '$.key', '0123456789abcdef')", Some("another key")),
        ("endpoint", "json_set(endpoint, '$.address', 'https://example.org/v1')", Some("`https://example.org/v1`")),
        ("provider", "'openai'", Some("another provider")),
    ] {
        let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
        let journal = jobs.ledger.run().journal();
        journal.damage(&format!("UPDATE calls SET {column} = {value} WHERE job IS NOT NULL")).await;
        provider.forgets.store(true, Ordering::SeqCst);
        let failed = carried_out(&jobs, &node, &mut Vec::new()).await.unwrap_err();
        let calls = journal.calls(jobs.ledger.run().id()).await.unwrap();
        let job = calls.iter().find(|call| call.is_job()).unwrap();
        match says {
            None => assert_eq!(job.state(), CallState::Lost, "{column} = {value}: {failed}"),
            Some(says) => {
                assert_eq!(job.state(), CallState::Sent, "{column} = {value}: {failed}");
                assert!(failed.to_string().contains(says), "{failed}");
            }
        }
    }
}

#[tokio::test]
async fn job_is_polled_with_another_key_of_its_account() {
    let node = NodeId::numbered(4);
    let (jobs, _) = interrupted(&node, Some("scripted_7"), false).await;
    let journal = jobs.ledger.run().journal();
    journal.damage("UPDATE calls SET endpoint = json_set(endpoint, '$.key', 'cafe') WHERE job IS NOT NULL").await;
    let found = carried_out(&jobs, &node, &mut Vec::new()).await.unwrap();
    assert_eq!(found.0, "scripted report scripted_7");
}

#[tokio::test]
async fn node_whose_job_may_have_been_started_gets_no_other_whatever_it_was_told() {
    let (node, other) = (NodeId::numbered(4), NodeId::numbered(5));
    let mut released = Vec::new();
    let (jobs, provider) = interrupted(&node, None, false).await;
    let refused = carried_out(&jobs, &node, &mut released).await;
    assert!(matches!(refused, Err(WorkError::Call(CallError::Model(ModelError::Unknown { .. })))), "{refused:?}");
    assert!(provider.started().is_empty() && released.is_empty(), "nothing was sent");
    carried_out(&jobs, &other, &mut released).await.unwrap();
    assert_eq!((provider.started().len(), &released), (1, &vec![other]));

    let (jobs, provider) = interrupted(&node, None, true).await;
    carried_out(&jobs, &node, &mut released).await.unwrap();
    assert_eq!(provider.started().len(), 1, "the user said so");
}

#[tokio::test]
async fn job_that_was_charged_and_lost_is_bought_again_by_no_other_node() {
    let (node, other) = (NodeId::numbered(4), NodeId::numbered(5));
    let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
    let told = ContentHash::of(TOLD.as_bytes());
    let journal = jobs.ledger.run().journal();
    let lost = "UPDATE calls SET outcome = 'lost', request_hash";
    journal.damage(&format!("{lost} = '{}' WHERE job IS NOT NULL", told.as_str())).await;
    let mut released = Vec::new();
    let refused = carried_out(&jobs, &other, &mut released).await.unwrap_err();
    assert!(refused.to_string().contains("was charged and has no report"), "{refused}");
    assert!(provider.started().is_empty() && released.is_empty(), "nothing was sent");
    carried_out(&jobs, &node, &mut released).await.unwrap();
    assert_eq!((provider.started().len(), released), (1, vec![node]), "its own was cancelled with the run");
}

#[tokio::test]
async fn job_that_was_cancelled_with_its_run_is_bought_once_more_by_the_node_that_comes_first() {
    let (node, other) = (NodeId::numbered(4), NodeId::numbered(5));
    let (jobs, provider) = interrupted(&node, Some("scripted_7"), false).await;
    let (told, run) = (ContentHash::of(TOLD.as_bytes()), jobs.ledger.run());
    let lose = format!("UPDATE calls SET outcome = 'lost', request_hash = '{}' WHERE job IS NOT NULL", told.as_str());
    run.journal().damage(&lose).await;
    let calls = run.journal().calls_in_short(run.id()).await.unwrap();
    let jobs = Jobs::open(Arc::clone(&jobs.ledger), Arc::clone(&jobs.research), &calls, true, |open| *open == node);
    let mut released = Vec::new();
    let first = carried_out(&jobs, &other, &mut released).await.unwrap();
    assert_eq!(carried_out(&jobs, &node, &mut released).await.unwrap(), first, "its report serves both");
    jobs.ledger.run().journal().damage(&lose).await;
    let refused = carried_out(&jobs, &node, &mut released).await.unwrap_err();
    assert!(refused.to_string().contains("was charged and has no report"), "{refused}");
    assert_eq!((provider.started().len(), released), (1, vec![other]));
}
