//! Rounds without new evidence repeat no call.

use std::sync::Mutex;

use futures::future::BoxFuture;

use super::*;
use crate::base::token::CountTokens;
use crate::llm::message::{Prompt, Reply, Usage};
use crate::llm::model::{Model, ModelError};
use crate::llm::roles::{Models, RoleModel};
use crate::researcher::Words;

/// The scripted model, with a second plan that repeats topics of the first.
struct Repeating {
    model: Arc<ScriptedModel>,
    asked: Mutex<Vec<Prompt>>,
}

impl Model for Repeating {
    fn name(&self) -> &'static str {
        "repeating"
    }

    fn window_tokens(&self) -> u64 {
        self.model.window_tokens()
    }

    fn count_input(&self, prompt: &Prompt) -> u64 {
        self.model.count_input(prompt)
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        self.model.max_output(prompt)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        self.model.cost_nanos(usage)
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.asked.lock().unwrap().push(prompt.clone());
        Box::pin(async move {
            let mut reply = self.model.send(prompt).await?;
            for (new, old) in [("topic 10?", "topic 1?"), ("topic 11?", "topic 2?")] {
                reply.text = reply.text.replace(new, old);
            }
            Ok(reply)
        })
    }
}

#[tokio::test]
async fn round_without_new_evidence_keeps_the_draft_it_has() {
    let world = World::new(TWO_ROUNDS);
    let model = Arc::new(Repeating { model: Arc::clone(&world.model), asked: Mutex::default() });
    let mut resources = world.resources();
    resources.models = Some(Models::of(|_| RoleModel {
        model: Arc::clone(&model) as Arc<dyn Model>,
        counter: Arc::new(Words) as Arc<dyn CountTokens>,
        max_input_tokens: 12_000,
        max_output_tokens: 1_000,
        endpoint: "here".into(),
        is_local: true,
    }));
    let question = "What is known of the topics?".parse().unwrap();
    let mut run = Orchestrator::start(World::run(), question, world.settings(), resources).await.unwrap();
    assert_eq!(run.conduct().await.unwrap(), StopReason::Complete);
    let calls = world.store.journal().calls(&World::run()).await.unwrap();
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
