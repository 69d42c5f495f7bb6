//! Usage of a run by role and by node, summed over its journal.

use std::collections::BTreeMap;

use super::journal::{CallRow, CallState, Journal, JournalError};
use crate::base::id::RunId;
use crate::base::money::dollars;
use crate::llm::message::Usage;
use crate::research::report::{UsageTable, UsageTotals};

pub(crate) async fn usage_of(journal: &Journal, run: &RunId) -> Result<UsageTable, JournalError> {
    let mut table = usage_of_calls(&journal.calls_in_short(run).await?);
    for (node, tool_calls, cache_hits) in journal.lookup_counts(run).await? {
        let lookups = UsageTotals { tool_calls, cache_hits, ..UsageTotals::default() };
        add(&mut table.total, &lookups);
        add(table.by_node.entry(node.to_string()).or_default(), &lookups);
    }
    Ok(table)
}

/// Adds the usage of another run, except by node: its nodes are others.
pub(crate) fn add_usage(table: &mut UsageTable, of_run: &UsageTable) {
    add(&mut table.total, &of_run.total);
    for (role, usage) in &of_run.by_role {
        add(table.by_role.entry(role.clone()).or_default(), usage);
    }
}

/// Sums up calls. A call with unknown outcome counts at its worst case. A call without a price makes the cost unknown.
fn usage_of_calls(calls: &[CallRow]) -> UsageTable {
    let mut table = UsageTable::default();
    // A failed call was charged nothing.
    for call in calls.iter().filter(|call| call.state() != CallState::Failed) {
        let usage = usage_of_call(call);
        // Calls without a node, such as brief, plan and report, are summed up under this name.
        let node = call.key.node().map_or_else(|| "run".to_owned(), ToString::to_string);
        for sum in [
            &mut table.total,
            table.by_role.entry(call.kind.to_string()).or_default(),
            table.by_node.entry(node).or_default(),
        ] {
            add(sum, &usage);
        }
    }
    table
}

fn usage_of_call(call: &CallRow) -> UsageTotals {
    // A call of unknown outcome is charged at its worst case, and counts with its tokens.
    let worst = call.prompt().map(|prompt| Usage {
        input_tokens: prompt.counted_tokens,
        output_tokens: prompt.worst_tokens.saturating_sub(prompt.counted_tokens),
        ..Usage::default()
    });
    let tokens = call.usage().or(worst).unwrap_or_default();
    UsageTotals {
        calls: 1,
        input_tokens: tokens.input_tokens,
        cached_tokens: tokens.cached_tokens,
        output_tokens: tokens.output_tokens,
        reasoning_tokens: tokens.reasoning_tokens,
        tool_calls: 0,
        cache_hits: 0,
        cost_usd: cost_usd(call),
    }
}

/// Returns the charge for a call in dollars, or `None` if its price is unknown.
pub(super) fn cost_usd(call: &CallRow) -> Option<f64> {
    call.charged_cost().map(dollars)
}

fn add(sum: &mut UsageTotals, usage: &UsageTotals) {
    sum.calls += usage.calls;
    sum.input_tokens += usage.input_tokens;
    sum.cached_tokens += usage.cached_tokens;
    sum.output_tokens += usage.output_tokens;
    sum.reasoning_tokens += usage.reasoning_tokens;
    sum.tool_calls += usage.tool_calls;
    sum.cache_hits += usage.cache_hits;
    // One unknown cost makes the sum unknown.
    sum.cost_usd = sum.cost_usd.zip(usage.cost_usd).map(|(sum, cost)| sum + cost);
}

/// Returns the relative error of our input token counts by model, against the counts of the endpoint. Positive means
/// that we counted too many.
pub(crate) fn token_drift(calls: &[CallRow]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for call in calls {
        // A job's prompt is a small part of its input tokens: most are pages it reads.
        if let (Some(usage), Some(prompt)) = (call.usage(), call.prompt()) {
            let (counted, billed) = sums.entry(&call.model).or_default();
            *counted += prompt.counted_tokens;
            *billed += usage.input_tokens;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a share is wanted, not a count")]
    let drift = |(counted, billed): (u64, u64)| counted as f64 / billed.max(1) as f64 - 1.0;
    sums.into_iter().map(|(model, sums)| (model.to_owned(), drift(sums))).collect()
}
