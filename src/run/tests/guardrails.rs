//! Every limit ends a run with a report of the findings, which names the limit.

use futures::future::BoxFuture;

use super::super::budget::{LimitsByPlan, PlanShare};
use super::super::orchestrator::RunNotice;
use super::*;
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::{Models, RoleModel};
use crate::researcher::role_model;

const FOUR: Researcher = Researcher { nodes: 4, more_nodes: 0 };

/// Says that a report has no verdict.
const NOT_JUDGED: &str = "the report was not judged: the limit on tokens leaves no room for a verdict";

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

/// Returns whether a worker was told to wrap up because the run nears a limit.
async fn was_hurried(world: &World) -> bool {
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    let mut steps = calls.iter().filter_map(|call| Some((call.key.as_str().split_once("/step/")?.1, call.prompt()?)));
    steps.any(|(step, prompt)| step != "1" && !step.contains('/') && prompt.is_tight)
}

#[tokio::test]
async fn run_is_judged_under_every_limit_that_pays_for_it_and_passes_none() {
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
        let report = report_of(&state);
        let is_told = report.limitations.iter().any(|limitation| limitation == NOT_JUDGED);
        assert!(!is_judged || !is_told, "{stop:?} under {limit}");
        assert_eq!(stop == StopReason::Complete, is_judged || is_told, "{stop:?} under {limit}");
        assert!(report.degraded || !is_told, "{stop:?} under {limit}");
        assert!(!is_told || !was_hurried(&world).await, "{stop:?} under {limit}");
        ends.push(is_judged);
    }
    assert!(!ends[0], "{ends:?}");
}

/// A judge whose prompts no limit pays for.
struct Dear(Arc<ScriptedModel>);

impl Model for Dear {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn window_tokens(&self) -> u64 {
        1_000_000
    }

    fn count_input(&self, _: &Prompt) -> u64 {
        900_000
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        self.0.max_output(prompt)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        self.0.cost_nanos(usage)
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.send(prompt)
    }
}

/// Returns resources with a judge that the limits do not pay for.
fn without_judge(world: &World) -> Resources {
    let model = |role: Role| -> Arc<dyn Model> {
        let model = Arc::clone(&world.model);
        if role == Role::Judge { Arc::new(Dear(model)) } else { model }
    };
    Resources { models: Some(Models::of(|role| role_model(model(role)))), ..world.resources() }
}

/// Returns resources with a writer whose requests differ from those that are on record.
fn with_other_writer(world: &World) -> Resources {
    let model = |role: Role| {
        let model = role_model(Arc::clone(&world.model) as Arc<dyn Model>);
        if role == Role::Writer { RoleModel { max_output_tokens: 2_000, ..model } } else { model }
    };
    Resources { models: Some(Models::of(model)), ..world.resources() }
}

async fn drafts(world: &World) -> usize {
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    calls.iter().filter(|call| call.key.as_str().starts_with("draft/")).count()
}

#[tokio::test]
async fn report_without_room_for_its_verdict_is_complete_if_it_covers_every_aspect_and_is_judged_on_resume() {
    let mut world = World::new(FOUR);
    // Enough that no worker is told to wrap up.
    world.limits.tokens = Some(400_000);
    let mut run = world.started(world.settings(), without_judge(&world)).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Complete);
    drop(run);
    let report = world.report().await;
    assert!(report.limitations.iter().any(|limitation| limitation == NOT_JUDGED), "{:?}", report.limitations);
    assert!(
        !report.limitations.iter().any(|limitation| limitation.contains("was reached")),
        "{:?}",
        report.limitations
    );
    assert!(report.degraded && !report.findings.is_empty());
    assert_eq!(drafts(&world).await, 1);

    let raised = BudgetLimits { tokens: Some(1_000_000), ..world.limits };
    let mut run = Orchestrator::resume(World::run(), Some(raised), with_other_writer(&world)).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Complete);
    assert_eq!(run.state().rounds_ended(), 1);
    drop(run);
    let judged = world.report().await;
    assert!(!judged.degraded && !judged.limitations.iter().any(|limitation| limitation == NOT_JUDGED), "{judged:?}");
    assert_eq!(judged.answer, report.answer);
    assert_eq!(drafts(&world).await, 1, "the draft is judged as it is");
}

#[tokio::test]
async fn limit_ends_a_run_without_a_verdict_if_a_judge_had_asked_for_more_before() {
    let mut world = World::new(TWO_ROUNDS);
    world.limits.rounds = Some(1);
    assert_eq!(world.ask().await.unwrap(), StopReason::IterationsExceeded);
    let limits = BudgetLimits { rounds: Some(6), tokens: Some(90_000), ..world.limits };
    let mut run = Orchestrator::resume(World::run(), Some(limits), without_judge(&world)).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::TokensExceeded);
    assert_eq!((run.state().round(), run.state().rounds_ended()), (2, 1));
    drop(run);
    let report = world.report().await;
    assert!(!report.limitations.iter().any(|limitation| limitation == NOT_JUDGED), "{:?}", report.limitations);
    assert!(
        report.limitations.iter().any(|limitation| limitation.contains("tokens was reached")),
        "{:?}",
        report.limitations
    );
}
