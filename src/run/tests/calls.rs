//! Single calls of a run: time-outs, refusals, and replies that are reused.

use std::sync::Mutex;

use futures::future::{BoxFuture, join_all, pending};

use super::super::budget::{Budget, Purpose, WritingReserve};
use super::super::desk::Desk;
use super::super::event::{Event, Record};
use super::super::ledger::Ledger;
use super::*;
use crate::llm::call::{CallError, CallKey, Caller, Limit};
use crate::llm::message::{Prompt, Reply, Role, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::Models;
use crate::researcher::role_model;

/// A model that replies with the number of the request, or never replies while the clock advances by an hour.
struct Numbered {
    clock: Arc<ManualClock>,
    is_silent: bool,
    sent: Mutex<usize>,
}

impl Numbered {
    fn new(world: &World, is_silent: bool) -> Arc<Self> {
        Arc::new(Self { clock: Arc::clone(&world.clock), is_silent, sent: Mutex::default() })
    }

    fn sent(&self) -> usize {
        *self.sent.lock().unwrap()
    }
}

impl Model for Numbered {
    fn name(&self) -> &'static str {
        "numbered"
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
        let mut sent = self.sent.lock().unwrap();
        *sent += 1;
        if self.is_silent {
            self.clock.advance(Duration::from_hours(1));
            return Box::pin(pending());
        }
        let text = sent.to_string();
        Box::pin(async move {
            // Lets other tasks run before the reply arrives.
            tokio::task::yield_now().await;
            Ok(Reply { text, usage: None, cut_off: false, raw: serde_json::Value::Null })
        })
    }
}

/// Opens the ledger of a run that has begun.
pub(super) async fn ledger(world: &World) -> Arc<Ledger> {
    let run = world.store.lock(&World::run()).unwrap();
    let event = Event::Started { question: "why?".parse().unwrap(), settings: Box::new(world.settings()) };
    run.create("why?", &Record { seq: 1, at: Moment(1), event }).await.unwrap();
    let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
    let budget = Budget::new(world.limits, WritingReserve::default(), Arc::clone(&clock));
    Arc::new(Ledger::new(run, budget, clock, CancellationToken::new(), Arc::new(|_| {}), 7))
}

fn desk(ledger: &Arc<Ledger>, model: &Arc<Numbered>) -> Desk {
    let models = Models::of(|_| role_model(Arc::clone(model) as Arc<dyn Model>));
    Desk::open(Arc::clone(ledger), models, CancellationToken::new(), &[])
}

/// A prompt whose caller works without the reply.
fn optional() -> Prompt {
    Prompt { patience: Some(Duration::from_secs(30)), ..Prompt::new(Role::Summariser, "rules", "task", 100) }
}

#[tokio::test]
async fn optional_prompt_that_times_out_is_not_retried_and_stays_charged() {
    let world = World::new(TWO_ROUNDS);
    let ledger = ledger(&world).await;
    let error =
        desk(&ledger, &Numbered::new(&world, true)).call(&CallKey::new("n2/page/1"), &optional()).await.unwrap_err();
    assert!(matches!(error, CallError::Model(ModelError::Unknown { .. })), "{error}");
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    assert_eq!(
        (calls.len(), calls[0].state(), calls[0].charged_cost()),
        (1, super::super::journal::CallState::Unknown, Some(109))
    );
}

#[tokio::test]
async fn optional_prompt_that_does_not_fit_the_budget_does_not_end_the_research() {
    let mut world = World::new(TWO_ROUNDS);
    world.limits.tokens = Some(50);
    let ledger = ledger(&world).await;
    let desk = desk(&ledger, &Numbered::new(&world, true));
    let refused = desk.call(&CallKey::new("n2/page/1"), &optional()).await;
    assert_eq!(refused, Err(CallError::Limit(Limit::Tokens)));
    assert_eq!(ledger.budget().reached(Purpose::Research), None);
    let needed = Prompt { patience: None, ..optional() };
    assert_eq!(desk.call(&CallKey::new("n2/step/1"), &needed).await, Err(CallError::Limit(Limit::Tokens)));
    assert_eq!(ledger.budget().reached(Purpose::Research), Some(Limit::Tokens));
}

fn prompt(text: &str) -> Prompt {
    Prompt::new(Role::Worker, "rules", text, 100)
}

#[tokio::test]
async fn request_on_record_is_not_bought_again_under_another_key() {
    let world = World::new(TWO_ROUNDS);
    let (ledger, model) = (ledger(&world).await, Numbered::new(&world, false));
    let desk = desk(&ledger, &model);
    for key in ["n2/step/1", "n9/step/1", "n2/step/1"] {
        assert_eq!(desk.call(&CallKey::new(key), &prompt("task")).await.unwrap().text, "1", "{key}");
    }
    let other_sample = Prompt { sample: 1, ..prompt("task") };
    assert_eq!(desk.call(&CallKey::new("n2/step/1/small"), &other_sample).await.unwrap().text, "2");
    assert_eq!(desk.call(&CallKey::new("n2/step/1"), &prompt("other task")).await.unwrap().text, "3");
    assert_eq!((model.sent(), world.store.journal().calls(&World::run()).await.unwrap().len()), (3, 3));
}

#[tokio::test]
async fn concurrent_identical_requests_are_bought_once() {
    let world = World::new(TWO_ROUNDS);
    let (ledger, model) = (ledger(&world).await, Numbered::new(&world, false));
    let desk = desk(&ledger, &model);
    let (keys, prompt) =
        ((2..9).map(|node| CallKey::new(format!("n{node}/step/1"))).collect::<Vec<_>>(), prompt("task"));
    let replies = join_all(keys.iter().map(|key| desk.call(key, &prompt))).await;
    assert!(replies.into_iter().all(|reply| reply.unwrap().text == "1"));
    assert_eq!(model.sent(), 1);
}

#[tokio::test]
async fn reply_under_its_own_key_takes_precedence_over_an_older_one_to_the_same_request() {
    let world = World::new(TWO_ROUNDS);
    let (ledger, model) = (ledger(&world).await, Numbered::new(&world, false));
    let desk = desk(&ledger, &model);
    for (key, sample) in [("n2/step/1", 0), ("n3/step/1", 1)] {
        desk.call(&CallKey::new(key), &Prompt { sample, ..prompt("task") }).await.unwrap();
    }
    // Journals of earlier versions can hold two replies to one request.
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
    let same = calls[0].request_hash.as_str();
    world.store.journal().damage(&format!("UPDATE calls SET request_hash = '{same}' WHERE id = {}", calls[1].id)).await;
    assert_eq!(desk.call(&CallKey::new("n3/step/1"), &prompt("task")).await.unwrap().text, "2");
    assert_eq!(desk.call(&CallKey::new("n4/step/1"), &prompt("task")).await.unwrap().text, "1");
}
