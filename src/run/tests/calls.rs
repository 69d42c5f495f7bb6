//! Single calls of a run: what is waited for, what is refused, and what that says of other calls.

use futures::future::{BoxFuture, pending};

use super::super::budget::{Budget, Purpose, WritingReserve};
use super::super::desk::{Desk, DeskParts};
use super::super::event::{Event, Record};
use super::*;
use crate::llm::call::{CallError, CallKey, Caller, Limit};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::{Models, RoleModel};
use crate::researcher::Words;

/// A model that goes on for an hour and then is silent.
struct Silent(Arc<ManualClock>);

impl Model for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn window_tokens(&self) -> u64 {
        100_000
    }

    fn count_input(&self, prompt: &Prompt) -> u64 {
        prompt.messages.iter().map(|message| message.text.len() as u64).sum()
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        u64::from(prompt.max_output_tokens)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        Some(usage.tokens())
    }

    fn send<'a>(&'a self, _: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.advance(Duration::from_hours(1));
        Box::pin(pending())
    }
}

/// Opens the desk of a run whose model is silent.
async fn desk(world: &World) -> Desk {
    let run = world.store.lock(&World::run()).unwrap();
    let event = Event::Started { question: "why?".parse().unwrap(), settings: Box::new(world.settings()) };
    run.create("why?", &Record { seq: 1, at: Moment(1), event }).await.unwrap();
    let model = Arc::new(Silent(Arc::clone(&world.clock))) as Arc<dyn Model>;
    let models = Models::of(|_| RoleModel {
        model: Arc::clone(&model),
        counter: Arc::new(Words),
        max_input_tokens: 12_000,
        max_output_tokens: 1_000,
        endpoint: "here".into(),
        is_local: true,
    });
    let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
    let parts = DeskParts {
        run,
        models,
        budget: Budget::new(world.limits, WritingReserve::default(), Arc::clone(&clock)),
        clock,
        closing: CancellationToken::new(),
        closed: CancellationToken::new(),
        listener: Arc::new(|_| {}),
        seed: 7,
        jobs: None,
    };
    Desk::open(parts, &[])
}

/// A call that whoever makes it can do without.
fn optional() -> Prompt {
    Prompt { patience: Some(Duration::from_secs(30)), ..Prompt::new(Role::Summariser, "rules", "task", 100) }
}

#[tokio::test]
async fn reply_that_somebody_can_do_without_is_waited_for_once_and_stays_charged() {
    let world = World::new(TWO_ROUNDS);
    let error = desk(&world).await.call(&CallKey::new("n2/page/1"), &optional()).await.unwrap_err();
    assert!(matches!(error, CallError::Model(ModelError::Unknown { .. })), "{error}");
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    assert_eq!(
        (calls.len(), calls[0].state, calls[0].charged_cost()),
        (1, super::super::journal::CallState::Unknown, Some(109))
    );
}

#[tokio::test]
async fn call_that_can_be_done_without_ends_no_research_where_it_does_not_fit() {
    let mut world = World::new(TWO_ROUNDS);
    world.limits.tokens = Some(50);
    let desk = desk(&world).await;
    let refused = desk.call(&CallKey::new("n2/page/1"), &optional()).await;
    assert_eq!(refused, Err(CallError::Limit(Limit::Tokens)));
    assert_eq!(desk.parts.budget.reached(Purpose::Research), None);
    let needed = Prompt { patience: None, ..optional() };
    assert_eq!(desk.call(&CallKey::new("n2/step/1"), &needed).await, Err(CallError::Limit(Limit::Tokens)));
    assert_eq!(desk.parts.budget.reached(Purpose::Research), Some(Limit::Tokens));
}
