//! A model becomes a Probe: what its endpoint can do, found out with two tiny requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::lenient;
use super::message::{Prompt, Reply, Role, Usage};
use super::model::{Model, ModelError};
use super::schema;

/// Visible tokens either reply may have.
const MAX_OUTPUT_TOKENS: u32 = 64;

/// Counts that differ by less than this many tokens are frames counted differently.
const FREE_DRIFT: u64 = 32;

/// What was found out of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// What came of a plain request.
    pub plain: Result<(), ModelError>,
    /// What came of one with a schema; not sent where the plain one failed.
    pub form: Option<Result<Form, ModelError>>,
    /// What both cost together.
    pub usage: Option<Usage>,
    /// The same in billionths of a dollar; none where nobody knows.
    pub cost_nanos: Option<u64>,
    /// Tokens of the longer prompt: as we count them, and as the endpoint does.
    pub counts: Option<(u64, u64)>,
}

/// How a reply kept to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// To the letter.
    Kept,
    /// JSON, after some mending.
    Mended,
    /// Not at all.
    Ignored,
    /// It ended before it was complete.
    CutOff,
}

impl Probe {
    /// Tells whether our count of a prompt is so far below the endpoint's that limits would not hold.
    pub fn drifts(&self) -> bool {
        self.counts.is_some_and(|(ours, theirs)| theirs > ours + ours / 5 + FREE_DRIFT)
    }

    /// Tells whether the endpoint counts so much less than we that it may have cut the prompt.
    pub fn loses_input(&self) -> bool {
        self.counts.is_some_and(|(ours, theirs)| theirs + theirs / 2 + 2 * FREE_DRIFT < ours)
    }
}

/// What is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Answer {
    /// The larger number.
    larger: i64,
    /// Both numbers.
    #[serde(rename = "numbers")]
    _numbers: Vec<i64>,
}

/// Finds out what a model can do.
pub async fn probe(model: &dyn Model) -> Probe {
    let prompt = Prompt::new(Role::Worker, "You answer with one word.", "Say: ready", MAX_OUTPUT_TOKENS);
    let first = match model.send(&prompt).await {
        Ok(reply) => reply,
        Err(error) => return Probe { plain: Err(error), form: None, usage: None, cost_nanos: None, counts: None },
    };
    let task = "Which of the numbers 17 and 71 is larger? Reply as JSON with `larger` and `numbers`.";
    let prompt = Prompt::new(Role::Worker, "You answer with JSON.", task, MAX_OUTPUT_TOKENS)
        .with_schema("answer", schema::of::<Answer>());
    let second = model.send(&prompt).await;
    let usages = [Some(&first), second.as_ref().ok()].map(|reply| reply.and_then(|reply| reply.usage));
    let mut usage = Usage::default();
    usages.into_iter().flatten().for_each(|each| usage += each);
    let costs = usages.into_iter().flatten().map(|usage| model.cost_nanos(&usage));
    let theirs = usages[1].map(|usage| usage.input_tokens);
    Probe {
        plain: Ok(()),
        form: Some(second.map(|reply| form(&reply))),
        usage: usages[0].map(|_| usage),
        cost_nanos: usages[0].and_then(|_| costs.sum()),
        counts: theirs.map(|theirs| (model.count_input(&prompt), theirs)),
    }
}

fn form(reply: &Reply) -> Form {
    if serde_json::from_str::<Answer>(&reply.text).is_ok_and(|answer| answer.larger == 71) {
        return Form::Kept;
    }
    let mended = lenient::read(&reply.text).ok().and_then(|value| serde_json::from_value::<Answer>(value).ok());
    match mended {
        Some(_) => Form::Mended,
        None if reply.cut_off => Form::CutOff,
        None => Form::Ignored,
    }
}
