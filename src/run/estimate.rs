//! Estimates the calls, tokens, cost and time that a planned run will usually take.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::budget::BudgetLimits;
use super::outlook::writing_reserve;
use super::tree::RunState;
use crate::base::money::dollars_text;
use crate::llm::message::{Prompt, Role, Usage};
use crate::llm::roles::{Models, RoleModel};
use crate::research::node::{Node, SourceHint};
use crate::run::background::DeepResearch;

/// Tokens of a short prompt, mostly its rules.
const SMALL_PROMPT: u64 = 1_200;

/// Tokens of a short reply.
const SMALL_REPLY: u64 = 300;

const CALL_TIME: Bounds<Duration> = Bounds { low: Duration::from_secs(3), high: Duration::from_secs(20) };

/// Calls of ordinary size that come before the largest one of a short run: brief, plan and steps.
const EARLIER_CALLS: u64 = 6;

/// A cent in billionths of a dollar.
const CENT: u64 = 10_000_000;

/// Long web pages that are digested for a worker.
const PAGES_PER_NODE: u64 = 3;

/// Searches of a worker in the knowledge base whose hits are reranked, if the run has its model do that.
const RERANKS_PER_NODE: u64 = 4;

/// A job costs at least its cap divided by this. A rule of thumb.
const JOB_SHARE: u64 = 5;

const JOB_TIME: Bounds<Duration> = Bounds { low: Duration::from_mins(2), high: Duration::from_mins(20) };

/// The usual range of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Bounds<T> {
    /// If the first searches are enough.
    pub(crate) low: T,
    /// If workers search further and a second round follows; capped by the run's limits.
    pub(crate) high: T,
}

/// Estimate for the rest of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) calls: Bounds<u64>,
    /// Input and output tokens.
    pub(crate) tokens: Bounds<u64>,
    /// Billionths of a US dollar; `None` if a price is unknown.
    pub(crate) cost_nanos: Option<Bounds<u64>>,
    pub(crate) seconds: Bounds<u64>,
    pub(crate) limits: BudgetLimits,
}

/// Number and size of the calls of one kind.
struct Share {
    role: Role,
    calls: Bounds<u64>,
    input: Bounds<u64>,
    output: Bounds<u64>,
}

impl Estimate {
    /// Estimates the rest of a planned run. Without models there are no calls.
    pub(crate) fn of(state: &RunState, models: Option<&Models>, jobs: Option<&DeepResearch>) -> Self {
        // A run by rules makes no calls, and takes about a second.
        let nothing = Self {
            calls: Bounds::default(),
            tokens: Bounds::default(),
            cost_nanos: Some(Bounds::default()),
            seconds: Bounds { low: 0, high: 1 },
            limits: state.settings.limits,
        };
        let Some(models) = models else { return nothing };
        let shares = shares(state, models, jobs.is_some());
        let mut estimate = nothing;
        let parallel = state.settings.parallel.max(1) as u64;
        for share in &shares {
            let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
            let low = usage(share.input.low, share.output.low);
            let high = usage(share.input.high, share.output.high);
            let Bounds { low: fewest, high: most } = share.calls;
            estimate.calls.low += fewest;
            estimate.calls.high += most;
            estimate.tokens.low += fewest * low.tokens();
            estimate.tokens.high += most * high.tokens();
            let model = &models.role(share.role).model;
            // Each call by itself: a long request has a higher price.
            let costs = model.cost_nanos(&low).zip(model.cost_nanos(&high));
            estimate.cost_nanos = estimate
                .cost_nanos
                .zip(costs)
                .map(|(sum, (low, high))| Bounds { low: sum.low + fewest * low, high: sum.high + most * high });
            // Nodes are worked on in parallel.
            let beside = if matches!(share.role, Role::Worker | Role::Summariser) { parallel } else { 1 };
            estimate.seconds.low += CALL_TIME.low.as_secs() * share.calls.low.div_ceil(beside);
            estimate.seconds.high += CALL_TIME.high.as_secs() * share.calls.high.div_ceil(beside);
        }
        if let Some(jobs) = jobs {
            estimate.add_jobs(state, jobs);
        }
        estimate.capped()
    }

    /// Adds the background jobs of the plan, up to the number a run may start.
    fn add_jobs(&mut self, state: &RunState, jobs: &DeepResearch) {
        let waiting = || state.tree.workers().filter(|node| !node.status.is_settled() && !node.only_concludes());
        let of = |hint| waiting().filter(|node| node.source_hint == hint).count().min(jobs.settings.max_jobs) as u64;
        // A mixed node needs a job only if the knowledge base leaves aspects open.
        let low = of(SourceHint::Web);
        let high = (low + of(SourceHint::Mixed)).min(jobs.settings.max_jobs as u64);
        self.calls.low += low;
        self.calls.high += high;
        self.cost_nanos = self
            .cost_nanos
            .zip(jobs.cap())
            .map(|(sum, cap)| Bounds { low: sum.low + low * cap / JOB_SHARE, high: sum.high + high * cap });
        // Jobs run in parallel.
        self.seconds.low += JOB_TIME.low.as_secs() * low.min(1);
        self.seconds.high += JOB_TIME.high.min(jobs.settings.timeout).as_secs() * high.min(1);
    }

    /// Caps the figures at the limits of the run, which are enforced in any case.
    fn capped(mut self) -> Self {
        let limits = self.limits;
        let cap = |value: &mut Bounds<u64>, limit: Option<u64>| {
            value.high = value.high.min(limit.unwrap_or(u64::MAX));
            // The lower end may pass the limit, too.
            value.low = value.low.min(value.high);
        };
        cap(&mut self.tokens, limits.tokens);
        cap(&mut self.seconds, limits.time.map(|time| time.as_secs()));
        if let Some(cost) = &mut self.cost_nanos {
            cap(cost, limits.cost_nanos);
        }
        self
    }
}

fn shares(state: &RunState, models: &Models, has_jobs: bool) -> Vec<Share> {
    let waiting = || state.tree.workers().filter(|node| !node.status.is_settled());
    // A background job reads its pages itself.
    let reads = |node: &&Node| match node.source_hint {
        _ if node.only_concludes() => false,
        SourceHint::Internal => false,
        SourceHint::Web => !has_jobs,
        SourceHint::Mixed => true,
    };
    let pages = PAGES_PER_NODE * waiting().filter(reads).count() as u64;
    let nodes = waiting().count() as u64;
    let reranks = if state.settings.rerank.is_some() { RERANKS_PER_NODE } else { 0 };
    let searches = |node: &&Node| !node.only_concludes() && node.source_hint != SourceHint::Web;
    let reranks = reranks * waiting().filter(searches).count() as u64;
    // Two at most: the figures are those of usual runs, not of the worst that the limits allow.
    let rounds = u64::from(state.settings.limits.rounds.unwrap_or(1)).clamp(1, 2);
    // A second round works on the gaps only.
    let most_nodes = nodes + (rounds - 1) * nodes.div_ceil(2);
    let share = |role, calls: (u64, u64), input: (u64, u64), output: (u64, u64)| {
        let RoleModel { model, max_input_tokens, max_output_tokens, .. } = models.role(role);
        let visible = u64::from(*max_output_tokens);
        let reasoning = model.max_output(&Prompt::new(role, "", "", *max_output_tokens)).saturating_sub(visible);
        Share {
            role,
            calls: Bounds { low: calls.0, high: calls.1 },
            input: Bounds { low: input.0, high: input.1.min(*max_input_tokens).max(input.0) },
            output: Bounds { low: output.0.min(visible), high: output.1.min(visible) + reasoning / 2 },
        }
    };
    // Rules of thumb: tokens of prompts and replies as they were in runs on real knowledge bases.
    vec![
        share(Role::Worker, (2 * nodes, 5 * most_nodes + 1), (1_500, 4_500), (200, 700)),
        share(Role::Summariser, (nodes, most_nodes), (1_500, 3_500), (300, 900)),
        share(Role::Summariser, (0, pages * rounds), (2_000, 8_000), (100, 500)),
        share(Role::Summariser, (0, reranks * rounds), (1_500, 4_500), (50, 200)),
        share(Role::Judge, (1, rounds), (2_000, 8_000), (200, 800)),
        share(Role::Planner, (0, rounds - 1), (1_500, 4_000), (200, 800)),
        share(Role::Writer, (1, rounds + 1), (2_500, 12_000), (600, 3_000)),
    ]
}

/// A limit under which no call of a run could be made, and one that would do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum TooSmall {
    #[error("a single call may use more than {limit} tokens")]
    Tokens { limit: u64, enough: u64 },
    /// The cost limit, in billionths of a US dollar.
    #[error("a single call may cost more than {}", dollars_text(*limit))]
    Cost { limit: u64, enough: u64 },
}

impl TooSmall {
    /// Returns the limit that is less than the largest call of a run without surprises and the reserve for writing.
    pub(crate) fn of(models: &Models, limits: &BudgetLimits) -> Option<Self> {
        let reserve = writing_reserve(models, limits);
        let (mut tokens, mut cost) = (Bounds::<u64>::default(), Bounds::<u64>::default());
        for role in [Role::Planner, Role::Worker, Role::Judge] {
            let RoleModel { model, max_output_tokens, .. } = models.role(role);
            let usage = |calls: u64, output: u64| Usage {
                input_tokens: calls * SMALL_PROMPT,
                output_tokens: calls * output,
                ..Usage::default()
            };
            let worst = usage(1, model.max_output(&Prompt::new(role, "", "", *max_output_tokens)));
            let earlier = usage(EARLIER_CALLS, SMALL_REPLY);
            let price = |usage| model.cost_nanos(usage).unwrap_or(0);
            tokens.low = tokens.low.max(worst.tokens());
            tokens.high = tokens.high.max(worst.tokens() + earlier.tokens());
            cost.low = cost.low.max(price(&worst));
            cost.high = cost.high.max(price(&worst) + price(&earlier));
        }
        // The reserve takes up to a third of a limit.
        let enough = |needed: u64, unit: u64| (needed * 3 / 2).next_multiple_of(unit);
        let is_less = |limit: &u64, needed: u64| *limit < needed;
        let few_tokens = limits.tokens.filter(|limit| is_less(limit, tokens.low + reserve.tokens));
        let little_money = limits.cost_nanos.filter(|limit| is_less(limit, cost.low + reserve.cost_nanos));
        match (few_tokens, little_money) {
            (Some(limit), _) => Some(Self::Tokens { limit, enough: enough(tokens.high, 1_000) }),
            (None, Some(limit)) => Some(Self::Cost { limit, enough: enough(cost.high, CENT) }),
            (None, None) => None,
        }
    }

    /// Returns the flag that would do.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Tokens { enough, .. } => format!("`--max-tokens {enough}` is enough for a short answer"),
            Self::Cost { enough, .. } => format!("`--max-cost {}` is enough for a short answer", cents_text(*enough)),
        }
    }
}

/// Formats billionths of a dollar as dollars and cents, without a sign.
fn cents_text(nanos: u64) -> String {
    format!("{}.{:02}", nanos / (100 * CENT), nanos / CENT % 100)
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  calls   {} to {}", self.calls.low, self.calls.high)?;
        writeln!(f, "  tokens  {} to {}", rounded(self.tokens.low), rounded(self.tokens.high))?;
        match &self.cost_nanos {
            Some(cost) => writeln!(f, "  cost    {} to {}", dollars_text(cost.low), dollars_text(cost.high))?,
            None => writeln!(f, "  cost    unknown: a model has no price")?,
        }
        write!(f, "  time    {} to {}", time_text(self.seconds.low), time_text(self.seconds.high))?;
        let BudgetLimits { cost_nanos, tokens, time, .. } = self.limits;
        let tokens = tokens.map(|tokens| format!("{tokens} tokens"));
        let time = time.map(|time| time_text(time.as_secs()));
        let limits: Vec<_> = tokens.into_iter().chain(cost_nanos.map(dollars_text)).chain(time).collect();
        if limits.is_empty() { Ok(()) } else { write!(f, "\n  limits  {}", limits.join(", ")) }
    }
}

/// Rounds to thousands, from 1,000 on.
fn rounded(tokens: u64) -> u64 {
    if tokens < 1_000 { tokens } else { (tokens + 500) / 1_000 * 1_000 }
}

fn time_text(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::BoxFuture;

    use super::*;
    use crate::llm::message::Reply;
    use crate::llm::model::{Model, ModelError};
    use crate::research::node::NodeId;
    use crate::researcher::role_model;
    use crate::run::journal::tests::started;

    /// A model whose requests cost a billionth of a dollar each, and a thousand if they are long.
    struct CheapIfShort;

    impl Model for CheapIfShort {
        fn name(&self) -> &'static str {
            "cheap if short"
        }

        fn window_tokens(&self) -> u64 {
            100_000
        }

        fn count_input(&self, _: &Prompt) -> u64 {
            0
        }

        fn max_output(&self, prompt: &Prompt) -> u64 {
            u64::from(prompt.max_output_tokens)
        }

        fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
            Some(if usage.input_tokens > 20_000 { 1_000 } else { 1 })
        }

        fn send<'a>(&'a self, _: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn many_short_requests_do_not_cost_as_much_as_long_ones() {
        let mut state = RunState::of(&[started()]).unwrap();
        let root = state.tree.root.clone();
        let node = |number| Node {
            source_hint: SourceHint::Web,
            ..Node::new(NodeId::numbered(number), Some(root.clone()), "What do others do?".parse().unwrap(), 1)
        };
        state.fields_mut().tree.nodes.extend((2..12).map(node));
        let models = Models::of(|_| role_model(Arc::new(CheapIfShort)));
        let estimate = Estimate::of(&state, Some(&models), None);
        assert!(estimate.calls.high > 100, "{estimate}");
        assert_eq!(estimate.cost_nanos, Some(estimate.calls));
    }
}
