//! Truncated journals: from any prefix of its events, a run folds to the tree it had at that point and continues.

use std::sync::Mutex;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::event::{Event, InternalText, Record, RunRequest};
use super::super::orchestrator::RunNotice;
use super::super::outward::UserWords;
use super::*;
use crate::research::node::NodeStatus;

/// Executes a run and returns each event with the state after it.
async fn lived(world: &World) -> Vec<(Record, RunState)> {
    let lived = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lived);
    let listener = move |notice: &RunNotice<'_>| {
        if let RunNotice::Event(record, state) = notice {
            seen.lock().unwrap().push(((*record).clone(), (*state).clone()));
        }
    };
    let resources = Resources { listener: Arc::new(listener), ..world.resources() };
    let run = world.started(world.settings(), resources).await;
    run.unwrap().conduct().await.unwrap();
    std::mem::take(&mut *lived.lock().unwrap())
}

/// Returns a world whose journal has these events and no calls.
async fn cut_to(prefix: &[(Record, RunState)], researcher: Researcher) -> World {
    let world = World::new(researcher);
    let run = world.store.lock(&World::run()).unwrap();
    run.create("What is known of the topics?", &prefix[0].0).await.unwrap();
    for (record, _) in &prefix[1..] {
        run.append(record).await.unwrap();
    }
    world
}

/// Asserts that a resumed run has kept every settled node of the state before it.
fn keeps_what_was_settled(resumed: &RunState, before: &RunState) {
    assert_eq!(resumed.tree.nodes.len(), before.tree.nodes.len());
    assert_eq!(resumed.branches, before.branches);
    for (now, was) in resumed.tree.workers().zip(before.tree.workers()) {
        match was.status {
            NodeStatus::Pending | NodeStatus::Running => assert_eq!(now.status, NodeStatus::Pending),
            NodeStatus::Done | NodeStatus::Failed | NodeStatus::Blocked => assert_eq!(now, was),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn journal_cut_at_any_event_folds_to_the_tree_of_the_uncut_prefix_and_ends_in_the_same_report(
        nodes in 1_usize..8, more_nodes in 0_usize..3, at in any::<Index>()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let researcher = Researcher { nodes, more_nodes };
            let whole = World::new(researcher);
            let lived = lived(&whole).await;
            let prefix = &lived[..=at.index(lived.len())];
            let before = &prefix.last().unwrap().1;
            let world = cut_to(prefix, researcher).await;
            let (_, read) = world.store.read(&World::run()).await.unwrap();
            assert_eq!(&read, before);
            let mut run = Orchestrator::resume(World::run(), None, world.resources()).await.unwrap();
            keeps_what_was_settled(run.state(), before);
            run.conduct().await.unwrap();
            assert_eq!(world.report().await, whole.report().await);
        });
    }
}

#[tokio::test]
async fn address_that_a_model_asks_back_about_is_not_in_the_words_of_the_user() {
    let (_, mut state) = lived(&World::new(Researcher { nodes: 2, more_nodes: 0 })).await.swap_remove(0);
    let event = Event::Clarified {
        question: "Do you mean https://acme.example/heron?".into(),
        answer: "No, https://quill.example/mill.".into(),
    };
    state.apply(&Record { seq: state.next_seq(), at: state.last, event }).unwrap();
    let words = UserWords::of(&state).all().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(words.contains("quill.example") && !words.contains("acme.example"), "{words}");
}

#[tokio::test]
async fn permission_to_leave_is_decided_anew_when_a_run_is_resumed() {
    let (started, _) = lived(&World::new(Researcher { nodes: 2, more_nodes: 0 })).await.swap_remove(0);
    let Event::Started { question, settings } = &started.event else { panic!("{started:?}") };
    // Of the flag, of what the run was when it began, and of the settings of now. An old journal has the flag alone.
    for (flag, was_open, collections_are_open, is_open) in [
        (false, true, false, false),
        (false, true, true, true),
        (false, false, true, true),
        (true, true, false, true),
        (true, false, false, false),
    ] {
        let request = RunRequest { allow_egress: flag, ..settings.request.clone() };
        let settings = Box::new(RunSettings { request, is_open: was_open, ..(**settings).clone() });
        let event = Event::Started { question: question.clone(), settings };
        let record = Record { event, ..started.clone() };
        let state = RunState::of(std::slice::from_ref(&record)).unwrap();
        let world = cut_to(&[(record, state)], Researcher { nodes: 2, more_nodes: 0 }).await;
        for _ in 0..2 {
            let collections_allow = vec![collections_are_open];
            let internal_text = InternalText { collections_allow, from_servers: false };
            let resources = Resources { internal_text, ..world.resources() };
            let run = Orchestrator::resume(World::run(), None, resources).await.unwrap();
            let RunSettings { is_open: may_leave, keeps_public_apart, .. } = run.state().settings;
            assert_eq!(may_leave, is_open, "{flag} {was_open} {collections_are_open}");
            // What was made while internal text could leave is not public once it no longer may.
            assert_eq!(keeps_public_apart, is_open || !(flag || was_open), "{flag} {was_open} {collections_are_open}");
        }
    }
}
