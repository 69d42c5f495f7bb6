//! Probes the capabilities of an endpoint with two small requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::lenient;
use super::message::{Prompt, Reply, Role, Usage};
use super::model::{Model, ModelError};
use super::schema;

/// Limit on the visible tokens of either reply.
const MAX_OUTPUT_TOKENS: u32 = 64;

/// Tolerated difference between two counts, in tokens: endpoints frame messages differently.
const FREE_DRIFT: u64 = 32;

/// The result of probing an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Probe {
    /// Result of a plain request.
    pub(crate) plain: Result<(), ModelError>,
    /// Result of a request with a schema; `None` if the plain one failed.
    pub(crate) form: Option<Result<Conformance, ModelError>>,
    /// The endpoint's message if it refused to enforce the schema, which then was part of the prompt.
    pub(crate) refused_schema: Option<String>,
    /// Tokens of both requests; `None` if the endpoint reported none for a reply.
    pub(crate) usage: Option<Usage>,
    /// Cost of both in billionths of a dollar; `None` if the tokens or the price is unknown.
    pub(crate) cost_nanos: Option<u64>,
    /// Input tokens of the second prompt: our upper bound and the endpoint's count. llama.cpp compiles a schema into a
    /// grammar, which is not part of the prompt, so a count far below ours does not mean that the prompt was cut.
    pub(crate) counts: Option<(u64, u64)>,
}

/// How well a reply followed its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conformance {
    /// Valid without repair.
    Kept,
    /// Valid without repair, but with the wrong answer.
    Wrong,
    /// Valid after lenient parsing.
    Mended,
    /// Invalid.
    Ignored,
    /// Cut off at the output limit.
    CutOff,
}

impl Probe {
    /// Returns whether our count is so far below the endpoint's that token limits would not hold.
    pub(crate) fn drifts(&self) -> bool {
        self.counts.is_some_and(|(ours, theirs)| theirs > ours + ours / 5 + FREE_DRIFT)
    }
}

/// What is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Answer")]
struct ProbeAnswer {
    /// The larger number.
    larger: i64,
    /// The two numbers that were compared, in any order.
    #[serde(rename = "numbers")]
    _numbers: Vec<i64>,
}

/// Sends a plain request, then one with a schema. Both may cost money.
pub(crate) async fn probe(model: &dyn Model) -> Probe {
    let prompt = Prompt::new(Role::Worker, "You answer with one word.", "Say: ready", MAX_OUTPUT_TOKENS);
    let first = match model.send(&prompt).await {
        Ok(reply) => reply,
        Err(error) => {
            let (plain, form, refused_schema) = (Err(error), None, None);
            return Probe { plain, form, refused_schema, usage: None, cost_nanos: None, counts: None };
        }
    };
    let task = "Which of the numbers 17 and 71 is larger? Reply as JSON with `larger` and `numbers`.";
    let prompt = Prompt::new(Role::Worker, "You answer with JSON.", task, MAX_OUTPUT_TOKENS)
        .with_schema("answer", schema::of::<ProbeAnswer>());
    let second = model.send(&prompt).await;
    let theirs = second.as_ref().ok().and_then(|reply| reply.usage).map(|usage| usage.input_tokens);
    // The second request may have failed; its tokens are then unknown and left out.
    let replies = std::iter::once(&first).chain(second.as_ref().ok());
    let usages: Option<Vec<Usage>> = replies.map(|reply| reply.usage).collect();
    Probe {
        plain: Ok(()),
        refused_schema: model.refused_schema(),
        form: Some(second.map(|reply| form(&reply))),
        cost_nanos: usages.as_ref().and_then(|usages| usages.iter().map(|usage| model.cost_nanos(usage)).sum()),
        usage: usages.and_then(|usages| {
            usages.into_iter().reduce(|mut sum, each| {
                sum += each;
                sum
            })
        }),
        // Counted after the request: a schema that the endpoint refused was part of the prompt.
        counts: theirs.map(|theirs| (model.count_sent(&prompt), theirs)),
    }
}

fn form(reply: &Reply) -> Conformance {
    if let Ok(answer) = serde_json::from_str::<ProbeAnswer>(&reply.text) {
        return if answer.larger == 71 { Conformance::Kept } else { Conformance::Wrong };
    }
    let mended = lenient::read(&reply.text).ok().and_then(|value| serde_json::from_value::<ProbeAnswer>(value).ok());
    match mended {
        Some(_) => Conformance::Mended,
        None if reply.cut_off => Conformance::CutOff,
        None => Conformance::Ignored,
    }
}
