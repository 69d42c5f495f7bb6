//! A run of many branches: the summary and the groups stay within their limits, and the report draws on every group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::*;
use crate::base::token::CountTokens;
use crate::llm::message::Role;
use crate::researcher::{GROUPS, MANY, Words};
use crate::run::event::Event;
use crate::run::orchestrator::RunNotice;

const FORTY: Researcher = Researcher { nodes: 40, more_nodes: 0 };

#[tokio::test]
async fn run_of_forty_branches_in_eight_groups_keeps_its_summaries_within_their_limits_and_draws_on_every_group() {
    let mut world = World::new(FORTY);
    world.limits.rounds = Some(1);
    assert_eq!(world.ask().await.unwrap(), StopReason::Complete);
    let (events, state) = world.store.read(&World::run()).await.unwrap();
    let calls = world.store.journal().calls(&World::run()).await.unwrap();

    let r = world.settings().summary_tokens;
    let folds: Vec<_> = calls.iter().filter(|call| call.key.as_str().starts_with("fold/")).collect();
    assert_eq!(folds.len(), 40, "one a branch, however many there are");
    for fold in &folds {
        assert!(fold.usage().unwrap().input_tokens <= 2 * r + 1_000, "{:?} of {}", fold.usage(), fold.key);
        let g = &fold.reply().unwrap().text;
        assert!(Words.count(g) as u64 <= r, "{} has {} tokens", fold.key, Words.count(g));
    }
    let memory = events.iter().find_map(|record| match &record.event {
        Event::RoundEnded { memory, .. } => Some(memory),
        _ => None,
    });
    let memory = memory.unwrap();
    assert!(Words.count(&memory.global.text) as u64 <= r && !memory.global.text.is_empty());

    let mut levels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.key.as_str().starts_with("group/")) {
        let parts: Vec<_> = call.key.as_str().split('/').collect();
        levels.entry(parts[1]).or_default().insert(parts[2]);
        assert!(call.usage().unwrap().input_tokens <= 12_000, "{call:?}");
    }
    assert_eq!(levels.len(), GROUPS);
    assert!(levels.values().all(|levels| *levels == BTreeSet::from(["0", "1"])), "{levels:?}");

    let report = world.report().await;
    let group = |quote: &crate::research::evidence::Evidence| state.tree.get(quote.id.node())?.group.clone();
    let drawn_on: BTreeSet<_> = report.evidence.iter().filter_map(group).collect();
    assert_eq!(drawn_on.len(), GROUPS, "{drawn_on:?}");
    assert!(
        calls.iter().filter(|call| call.prompt().unwrap().role == Role::Writer).all(|call| call
            .usage()
            .unwrap()
            .input_tokens
            <= 12_000)
    );
}

#[tokio::test]
async fn section_is_announced_when_a_model_has_written_it_and_not_when_its_reply_is_on_record() {
    let mut world = World::new(Researcher { nodes: MANY + 10, more_nodes: 0 });
    let announced = Arc::new(Mutex::new(Vec::new()));
    let listening = |world: &World, act: fn(&CancellationToken)| {
        let (announced, stop) = (Arc::clone(&announced), world.stop.clone());
        let listener = move |notice: &RunNotice<'_>| {
            if let RunNotice::Written(section) = notice {
                announced.lock().unwrap().push(section.title.clone());
                act(&stop);
            }
        };
        Resources { listener: Arc::new(listener), ..world.resources() }
    };
    let stopping = listening(&world, CancellationToken::cancel);
    let mut run = world.started(world.settings(), stopping).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Cancelled);
    drop(run);
    assert!(!announced.lock().unwrap().is_empty());

    world.stop = CancellationToken::new();
    let mut run = Orchestrator::resume(World::run(), None, listening(&world, |_| {})).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Complete);
    let announced = announced.lock().unwrap();
    let distinct: BTreeSet<_> = announced.iter().collect();
    assert_eq!((announced.len(), distinct.len()), (GROUPS, GROUPS), "{announced:?}");
}
