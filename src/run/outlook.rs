//! Estimates the cost of the next calls of a run from its calls so far.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use super::budget::{BudgetLimits, CallCost, WritingReserve};
use super::journal::CallRow;
use super::tree::RunState;
use crate::base::mutex::locked;
use crate::llm::message::{Prompt, Role, Usage};
use crate::llm::roles::Models;
use crate::research::branch::Branch;
use crate::research::cut::estimate;
use crate::research::memory::claims_text;
use crate::research::node::{Node, NodeId, NodeStatus};
use crate::research::question::{Brief, Mode};
use crate::research::verdict::{MAX_QUOTES_TOKENS, reply_tokens};

/// Calls of the writer whose cost is reserved beforehand: the report, and one retry.
const WRITING_CALLS: u64 = 2;

/// Minimum number of prompt tokens with which a report can be written.
const LEAST_WRITING_INPUT: u64 = 2_000;

const WRITING_TIME: Duration = Duration::from_mins(2);

/// Steps that every node is granted before any node takes more.
const DUE_STEPS: u32 = 2;

/// Prompt and reply tokens of a call, as long as fewer than [`LEARNED_FROM`] calls of its role were observed.
const UNKNOWN_SIZE: (u64, u64) = (3_000, 1_000);

/// Calls of a role after which the size of the next one is estimated from theirs.
const LEARNED_FROM: u64 = 2;

/// Tokens of the writer's prompt besides findings and quotes.
const WRITING_RULES: u64 = 1_500;

/// Tokens of the judge's prompt besides task, aspects, nodes, quotes and draft: rules and schema.
const JUDGING_RULES: u64 = 1_000;

/// Tokens of the id of an aspect in the judge's prompt.
const JUDGED_ID: u64 = 6;

/// Tokens of a node in the judge's prompt: its question and what it leaves open.
const JUDGED_NODE: u64 = 60;

/// Tokens of a draft in the judge's prompt, at most: the sections of a long one have 1,200 words.
const JUDGED_DRAFT: u64 = 3_000;

/// Tokens of a draft besides claims: open questions, limitations and headings.
const DRAFT_FRAME: u64 = 300;

/// Tokens of the findings and quotes of a node that has none yet.
const UNKNOWN_BRANCH: u64 = 1_500;

/// Tokens that research takes for one node, used to tell the planner how many the limits pay for: a plan cannot depend
/// on what a run has spent, or a resumed run would buy it again.
const NODE_TOKENS: u64 = 18_000;

/// Expected sizes and costs of the calls of one run.
pub(super) struct Outlook {
    models: Models,
    sizes: Mutex<HashMap<Role, Sizes>>,
    /// Steps still due to each node that is not settled.
    due: Mutex<BTreeMap<NodeId, u32>>,
    /// Worst case of the verdict on the next draft.
    verdict: Mutex<CallCost>,
}

/// The largest calls of a role so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    calls: u64,
    input: u64,
    output: u64,
}

impl Sizes {
    fn add(&mut self, usage: Usage) {
        self.calls += 1;
        self.input = self.input.max(usage.input_tokens);
        self.output = self.output.max(usage.output_tokens);
    }
}

impl Outlook {
    /// Learns from the calls that a run made before.
    pub(super) fn new(models: Models, recorded: &[CallRow]) -> Self {
        let verdict = Mutex::new(cost(&models, Role::Judge, UNKNOWN_SIZE.0, UNKNOWN_SIZE.1));
        let outlook = Self { models, sizes: Mutex::default(), due: Mutex::default(), verdict };
        for (role, usage) in recorded.iter().filter_map(|call| Some((call.prompt()?.role, call.usage()?))) {
            outlook.learn(role, usage);
        }
        outlook
    }

    pub(super) fn learn(&self, role: Role, usage: Usage) {
        let mut sizes = locked(&self.sizes);
        sizes.entry(role).or_default().add(usage);
    }

    /// Updates the steps that are due to open nodes, and the cost of the verdict, after an event.
    pub(super) fn update(&self, state: &RunState, found: &Found) {
        *locked(&self.verdict) = self.verdict_on(state, found);
        let open: Vec<_> = open_nodes(state).collect();
        let mut due = locked(&self.due);
        due.retain(|id, _| open.iter().any(|node| node.id == *id));
        for node in &open {
            let steps = if node.only_concludes() { 0 } else { DUE_STEPS };
            let known = due.entry(node.id.clone()).or_insert(steps);
            // A node that was paused starts over, so its first steps are due again.
            if node.status == NodeStatus::Pending {
                *known = steps;
            }
        }
    }

    /// Takes a step off those due to a node. Returns whether it was due.
    pub(super) fn take_step(&self, node: &NodeId) -> bool {
        let mut due = locked(&self.due);
        let Some(steps) = due.get_mut(node).filter(|steps| **steps > 0) else { return false };
        *steps -= 1;
        true
    }

    /// Returns the cost of the work that is due: the first steps and the report of every node that is not settled.
    pub(super) fn dues(&self) -> CallCost {
        let due = locked(&self.due);
        let (nodes, steps) = (due.len() as u64, due.values().copied().map(u64::from).sum::<u64>());
        drop(due);
        self.likely(Role::Worker) * steps + self.likely(Role::Summariser) * nodes
    }

    /// Returns the cost of the work that is due and of the next two steps.
    pub(super) fn next(&self) -> CallCost {
        self.dues() + self.likely(Role::Worker) * 2
    }

    /// Returns the cost of two attempts to write, estimated from the findings so far, and of the verdict as of the last
    /// [`Self::update`]: the first attempt at its worst case, and all of it at most the reserve.
    pub(super) fn writing(&self, found: &Found, limits: &BudgetLimits) -> CallCost {
        let writer = self.models.role(Role::Writer);
        let input = (WRITING_RULES + found.claims + found.quotes + found.expected).min(writer.max_input_tokens);
        let output = max_output(&self.models, Role::Writer);
        let first = self.cost(Role::Writer, input, output);
        let second = self.cost(Role::Writer, input, self.likely_output(Role::Writer, output));
        let needed = first + second + self.verdict();
        let most = writing_reserve(&self.models, limits);
        CallCost {
            cost_nanos: needed.cost_nanos.map(|cost| cost.min(most.cost_nanos)),
            tokens: needed.tokens.min(most.tokens),
        }
    }

    /// Returns the worst case of the verdict on the next draft, see [`Self::verdict_on`].
    pub(super) fn verdict(&self) -> CallCost {
        *locked(&self.verdict)
    }

    /// Returns the worst case of a verdict on a draft of the findings so far, estimated from what the judge will be
    /// shown. Earlier verdicts are no guide: they vary by round, and most runs have only one.
    fn verdict_on(&self, state: &RunState, found: &Found) -> CallCost {
        let brief = state.brief();
        if brief.is_some_and(|brief| brief.mode == Mode::Quick) {
            return CallCost::default();
        }
        let judge = self.models.role(Role::Judge);
        let nodes = state.tree.workers().count();
        let quotes = (found.quotes + found.expected).min(MAX_QUOTES_TOKENS);
        // A short draft is shown with its findings, which its answer says again.
        let draft = (2 * found.claims + DRAFT_FRAME).min(JUDGED_DRAFT);
        let rules = JUDGING_RULES + brief.map_or(0, brief_tokens);
        let input = (rules + nodes as u64 * JUDGED_NODE + quotes + draft).min(judge.max_input_tokens);
        let most = reply_tokens(brief.map_or(0, |brief| brief.aspects.len()), nodes).min(judge.max_output_tokens);
        let output = judge.model.max_output(&Prompt::new(Role::Judge, "", "", most));
        self.cost(Role::Judge, input, output)
    }

    /// Returns the number of nodes that the limits pay for, beside planning, judging and writing; `None` without
    /// limits.
    pub(super) fn nodes_paid_for(&self, limits: &BudgetLimits) -> Option<u32> {
        let reserve = writing_reserve(&self.models, limits);
        let node = self.cost(Role::Worker, NODE_TOKENS * 4 / 5, NODE_TOKENS / 5);
        let of = |limit: Option<u64>, reserve: u64, each: u64| {
            limit.map(|limit| limit.saturating_sub(reserve).checked_div(each).unwrap_or(u64::MAX))
        };
        // Half of it, since the reserve is for two attempts to write.
        let by_tokens = of(limits.tokens, reserve.tokens / 2, node.tokens);
        let by_cost = of(limits.cost_nanos, reserve.cost_nanos / 2, node.cost_nanos.unwrap_or(0));
        let nodes = by_tokens.into_iter().chain(by_cost).min()?;
        Some(u32::try_from(nodes).unwrap_or(u32::MAX).max(1))
    }

    /// Returns the likely cost of prompts of these sizes in tokens.
    pub(super) fn of_prompts(&self, role: Role, prompts: &[u64]) -> CallCost {
        let output = match self.sizes(role) {
            Sizes { calls: 0, .. } => UNKNOWN_SIZE.1,
            Sizes { .. } => self.likely_output(role, max_output(&self.models, role)),
        };
        prompts.iter().fold(CallCost::default(), |all, input| all + self.cost(role, *input, output))
    }

    pub(super) fn likely(&self, role: Role) -> CallCost {
        match self.sizes(role) {
            Sizes { calls: 0, .. } => self.cost(role, UNKNOWN_SIZE.0, UNKNOWN_SIZE.1),
            Sizes { input, .. } => self.cost(role, input, self.likely_output(role, max_output(&self.models, role))),
        }
    }

    /// Returns the output a call of a role is likely to have at most: half more than the largest so far.
    pub(super) fn likely_output(&self, role: Role, most: u64) -> u64 {
        match self.sizes(role) {
            // Nothing is known yet, so the worst case is the only bound.
            Sizes { calls: 0, .. } => most,
            Sizes { output, .. } => (output + output / 2 + 100).min(most),
        }
    }

    pub(super) fn cost(&self, role: Role, input: u64, output: u64) -> CallCost {
        cost(&self.models, role, input, output)
    }

    fn sizes(&self, role: Role) -> Sizes {
        let sizes = locked(&self.sizes);
        sizes.get(&role).copied().filter(|sizes| sizes.calls >= LEARNED_FROM).unwrap_or_default()
    }
}

/// Tokens of the material for a draft, estimated.
pub(super) struct Found {
    claims: u64,
    quotes: u64,
    /// Those of nodes that are still open.
    expected: u64,
}

impl Found {
    pub(super) fn of(state: &RunState) -> Self {
        // Beside its text, a quote is shown with its id and its provenance.
        let quotes = |branch: &Branch| branch.evidence.iter().map(|quote| estimate(&quote.quote) + 40).sum::<u64>();
        let claims = state.branches.values().map(|branch| estimate(&claims_text(&branch.report))).sum::<u64>();
        let quotes = state.branches.values().map(quotes).sum::<u64>();
        let each = (claims + quotes).checked_div(state.branches.len() as u64).unwrap_or(UNKNOWN_BRANCH);
        let expected = open_nodes(state).count() as u64 * each.max(UNKNOWN_BRANCH / 2);
        Self { claims, quotes, expected }
    }
}

/// Returns the tokens of the task and the aspects of a brief.
fn brief_tokens(brief: &Brief) -> u64 {
    estimate(&brief.task) + brief.aspects.iter().map(|aspect| estimate(&aspect.text) + JUDGED_ID).sum::<u64>()
}

fn open_nodes(state: &RunState) -> impl Iterator<Item = &Node> {
    state.tree.workers().filter(|node| !node.status.is_settled())
}

fn cost(models: &Models, role: Role, input_tokens: u64, output_tokens: u64) -> CallCost {
    let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
    CallCost { cost_nanos: models.role(role).model.cost_nanos(&usage), tokens: usage.tokens() }
}

fn max_output(models: &Models, role: Role) -> u64 {
    let role_model = models.role(role);
    role_model.model.max_output(&Prompt::new(role, "", "", role_model.max_output_tokens))
}

/// Returns the most that is set aside for writing the report: the worst case of [`WRITING_CALLS`] calls of the writer,
/// but at most a third of the limits, so that a run with small limits can still do research.
pub(crate) fn writing_reserve(models: &Models, limits: &BudgetLimits) -> WritingReserve {
    let input = models.role(Role::Writer).max_input_tokens;
    let most = cost(models, Role::Writer, input, max_output(models, Role::Writer)) * WRITING_CALLS;
    let third = |limit: Option<u64>| limit.map_or(u64::MAX, |limit| limit / 3);
    WritingReserve {
        cost_nanos: most.cost_nanos.unwrap_or(0).min(third(limits.cost_nanos)),
        tokens: most.tokens.min(third(limits.tokens)),
        time: WRITING_TIME.min(limits.time.map_or(WRITING_TIME, |limit| limit / 5)),
    }
}

/// Returns the tokens of a writer's prompt that `left` pays for: in [`WRITING_CALLS`] calls or, if that is too little,
/// in one.
pub(super) fn writing_input(models: &Models, left: &BudgetLimits) -> u64 {
    let output = max_output(models, Role::Writer);
    let pays = |input: u64, calls: u64| {
        let all = cost(models, Role::Writer, input, output) * calls;
        left.tokens.is_none_or(|left| all.tokens <= left)
            && left.cost_nanos.is_none_or(|left| all.cost_nanos.unwrap_or(0) <= left)
    };
    let calls = if pays(LEAST_WRITING_INPUT, WRITING_CALLS) { WRITING_CALLS } else { 1 };
    let mut input = models.role(Role::Writer).max_input_tokens;
    // Searched and not computed: above a certain length, some models charge more for each token.
    while input > LEAST_WRITING_INPUT && !pays(input, calls) {
        input = input * 15 / 16;
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Moment;
    use crate::research::scripted::{branch, brief};
    use crate::researcher::{Researcher, ScriptedModel, settings};
    use crate::run::event::{Event, Record};
    use crate::source::Label;

    fn briefed(brief: Brief) -> RunState {
        let settings = Box::new(settings(BudgetLimits::default()));
        let events =
            [Event::Started { question: brief.question.clone(), settings }, Event::Briefed { brief, outward: None }];
        let records: Vec<_> = (1..).zip(events).map(|(seq, event)| Record { seq, at: Moment(1), event }).collect();
        RunState::of(&records).unwrap()
    }

    #[test]
    fn verdict_is_held_at_what_the_judge_will_be_shown() {
        let model = ScriptedModel::new(Researcher { nodes: 1, more_nodes: 0 }, Duration::ZERO);
        let outlook = Outlook::new(model.models(), &[]);
        let brief = brief("When do the valves open?", &["the valves"]);
        let mut state = briefed(Brief { mode: Mode::Deep, ..brief.clone() });
        outlook.update(&state, &Found::of(&state));
        let before = outlook.verdict().tokens;
        let texts: Vec<_> = (0..200).map(|valve| format!("Valve {valve} opens when the beds have cooled.")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let id = NodeId::numbered(1);
        state.fields_mut().branches.insert(id.clone(), branch(&id, &texts, Label::Internal));
        outlook.update(&state, &Found::of(&state));
        let most = JUDGING_RULES + brief_tokens(&brief) + JUDGED_NODE + MAX_QUOTES_TOKENS + JUDGED_DRAFT;
        let reply = reply_tokens(1, 1).min(model.models().role(Role::Judge).max_output_tokens);
        assert_eq!(outlook.verdict().tokens, most + u64::from(reply));
        assert!(before < outlook.verdict().tokens);

        let quick = briefed(Brief { mode: Mode::Quick, ..brief });
        outlook.update(&quick, &Found::of(&quick));
        assert_eq!(outlook.verdict().tokens, 0, "a quick report is not judged");
    }
}
