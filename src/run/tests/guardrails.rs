//! Every limit ends a run with a report of the findings, which names the limit.

use super::super::budget::{LimitsByPlan, PlanShare};
use super::super::orchestrator::RunNotice;
use super::*;

/// Returns resources with which `act` is done after each event of this name.
fn with_act(world: &World, name: &'static str, act: impl Fn() + Send + Sync + 'static) -> Resources {
    let listener = move |notice: &RunNotice<'_>| {
        if let RunNotice::Event(record, _) = notice
            && record.event.name() == name
        {
            act();
        }
    };
    Resources { listener: Arc::new(listener), ..world.resources() }
}

#[tokio::test]
async fn time_limit_ends_a_run() {
    let mut world = World::new(TWO_ROUNDS);
    world.limits.time = Some(Duration::from_mins(1));
    let clock = Arc::clone(&world.clock);
    // Each start of a worker advances the clock by half a minute.
    let resources = with_act(&world, "node_started", move || clock.advance(Duration::from_secs(30)));
    let mut run = world.started(world.settings(), resources).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::TimeExceeded);
}

/// Starts a run whose token limit depends on its plan.
async fn started_by_plan(world: &World) -> Orchestrator {
    let by_plan = LimitsByPlan { tokens: Some(PlanShare { base: 20_000, each: 500 }), time: None };
    world.started(RunSettings { by_plan, ..world.settings() }, world.resources()).await.unwrap()
}

#[tokio::test]
async fn first_plan_sets_a_limit_that_the_user_has_not_set_and_the_limit_holds() {
    let world = World::new(TWO_ROUNDS);
    let mut run = started_by_plan(&world).await;
    run.plan(None).await.unwrap();
    let nodes = run.state().tree.workers().count();
    let limit = 20_000 + 500 * nodes as u64;
    assert_eq!(run.state().settings.limits.tokens, Some(limit));
    assert_eq!(run.conduct().await.unwrap(), StopReason::TokensExceeded);
    let usage = world.usage().await.total;
    assert!(usage.input_tokens + usage.output_tokens <= limit, "{usage:?}");
    let (_, state) = world.store.read(&World::run()).await.unwrap();
    assert_eq!(state.settings.limits.tokens, Some(limit));
}

#[tokio::test]
async fn limit_that_was_raised_before_the_plan_is_not_lowered_by_it() {
    let world = World::new(TWO_ROUNDS);
    drop(started_by_plan(&world).await);
    let raised = BudgetLimits { tokens: Some(20_000_000), ..world.limits };
    assert_eq!(world.resume(Some(raised)).await.unwrap(), StopReason::Complete);
    let (_, state) = world.store.read(&World::run()).await.unwrap();
    assert_eq!(state.settings.limits.tokens, Some(20_000_000));
}

#[tokio::test]
async fn stopped_run_keeps_its_work_and_can_be_resumed() {
    let world = World::new(TWO_ROUNDS);
    let stop = world.stop.clone();
    let resources = with_act(&world, "node_finished", move || stop.cancel());
    let mut run = world.started(world.settings(), resources).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Cancelled);
    drop(run);
    assert!(!world.report().await.is_refusal());
    let world = World { stop: CancellationToken::new(), ..world };
    assert_eq!(world.resume(None).await.unwrap(), StopReason::Complete);
    let whole = World::new(TWO_ROUNDS);
    whole.ask().await.unwrap();
    assert_eq!(world.report().await, whole.report().await);
}

#[tokio::test]
async fn fold_of_a_branch_never_costs_more_than_twice_the_summary_and_a_thousand_tokens() {
    let mut world = World::new(TWO_ROUNDS);
    world.summary_tokens = 60;
    world.ask().await.unwrap();
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    let folds: Vec<_> = calls.iter().filter(|call| call.key.as_str().starts_with("fold/")).collect();
    assert!(folds.len() >= 5, "{}", folds.len());
    let most = 2 * world.settings().summary_tokens + 1_000;
    assert!(folds.iter().all(|call| call.usage().unwrap().input_tokens <= most));
}

#[tokio::test]
async fn run_is_judged_under_every_limit_that_pays_for_it_and_passes_none() {
    const FOUR: Researcher = Researcher { nodes: 4, more_nodes: 0 };
    // A third of the least pays for two calls of the writer and a verdict.
    const LEAST: u64 = 16_000;
    let mut ends = Vec::new();
    for limit in (6..=30).step_by(2).map(|thousands| thousands * 1_000) {
        let mut world = World::new(FOUR);
        world.limits.tokens = Some(limit);
        let stop = world.ask().await.unwrap();
        let usage = world.usage().await.total;
        assert!(usage.input_tokens + usage.output_tokens <= limit, "{usage:?} under {limit}");
        let (_, state) = world.store.read(&World::run()).await.unwrap();
        let is_judged = !state.phase.stage().verdicts().is_empty();
        assert!(is_judged || limit < LEAST, "{stop:?} under {limit}");
        assert_eq!(stop == StopReason::Complete, is_judged, "{stop:?} under {limit}");
        ends.push(is_judged);
    }
    assert!(!ends[0], "{ends:?}");
}
