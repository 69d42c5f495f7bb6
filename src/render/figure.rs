//! Formats money, tokens, durations, states and stop reasons.

use std::collections::BTreeMap;

use crate::base::line::counted;
pub(crate) use crate::base::line::grouped as count;
use crate::llm::message::Role;
use crate::research::extract::STRONG_CONFIDENCE;
use crate::research::node::NodeId;
use crate::research::report::{Outcome, Report, StopReason, UsageTable, UsageTotals};

/// Formats a cost in US dollars. `None` becomes `unknown`, which is different from `$0`.
pub(crate) fn cost(usd: Option<f64>) -> String {
    match usd {
        None => "unknown".to_owned(),
        Some(0.0) => "$0".to_owned(),
        // `$0.0000` would look like no cost.
        Some(usd) if usd.abs() < 0.000_1 => "< $0.0001".to_owned(),
        Some(usd) if usd.abs() < 1.0 => format!("${usd:.4}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// Formats a duration in milliseconds: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..10 => format!("{seconds}.{} s", millis % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Returns a stop reason as a clause that follows "because".
pub(crate) fn ended(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Complete => "the question is answered",
        StopReason::BudgetExceeded => "the cost limit was reached",
        StopReason::TokensExceeded => "the token limit was reached",
        StopReason::TimeExceeded => "the time limit was reached",
        StopReason::IterationsExceeded => "the limit of rounds was reached",
        StopReason::NoMoreTasks => "no further research was planned",
        StopReason::NoProgress => "two rounds brought no new evidence",
        StopReason::NoEvidence => "no relevant evidence was found",
        StopReason::Cancelled => "it was stopped",
    }
}

/// Returns whether the course of the run is worth showing: it called a model or did not end normally.
pub(super) fn is_run(report: &Report) -> bool {
    report.usage.total.calls > 0 || !report.stop_reason.is_natural() || report.degraded
}

/// Returns how well the sources support an answer made without a model, in one word.
pub(super) fn support(report: &Report) -> &'static str {
    match report.outcome {
        Outcome::Answered if report.confidence >= STRONG_CONFIDENCE => "strong",
        Outcome::Answered => "some",
        Outcome::Closest => "weak",
        Outcome::Refused => "none",
    }
}

/// Returns a warning to print above the answer if it may not be one, or if the run ended early or lost nodes.
pub(super) fn reservation(report: &Report) -> Option<String> {
    let mut said = Vec::new();
    if report.outcome == Outcome::Closest {
        said.push("These notes may not answer this. Closest passages:".to_owned());
    }
    if !report.stop_reason.is_natural() {
        said.push(format!("The run ended early because {}.", ended(report.stop_reason)));
    }
    if !report.failed_nodes.is_empty() {
        let (failed, all) = (report.failed_nodes.len(), report.tree.workers().count());
        said.push(match all {
            0 | 1 => "The search for an answer failed.".to_owned(),
            _ => format!("{failed} of {all} sub-questions failed; the limitations say why."),
        });
    } else if report.degraded {
        said.push("Not everything was done as planned; the limitations say why.".to_owned());
    }
    (!said.is_empty()).then(|| said.join(" "))
}

/// Returns one sentence on the course of a run.
pub(super) fn course(report: &Report) -> String {
    let rounds = report.tree.nodes.iter().map(|node| node.round).max().unwrap_or(1);
    let UsageTotals { calls, input_tokens, output_tokens, cost_usd, .. } = report.usage.total;
    format!(
        "The run ended after {} because {} (`{}`): {} in {}, {}, {} tokens, cost {}.",
        duration(report.elapsed_ms),
        ended(report.stop_reason),
        report.stop_reason,
        counted(report.tree.nodes.len(), "node"),
        counted(rounds as usize, "planned round"),
        counted(usize::try_from(calls).unwrap_or(usize::MAX), "model call"),
        count(input_tokens + output_tokens),
        cost(cost_usd),
    )
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct UsageRow {
    /// Role, node, or `all`.
    pub(super) name: String,
    /// One cell per [`USAGE_COLUMNS`].
    pub(super) figures: [String; 8],
    pub(super) is_total: bool,
}

/// Headings of the usage table.
pub(super) const USAGE_COLUMNS: [&str; 8] =
    ["calls", "prompt", "cached", "completion", "reasoning", "tool calls", "from cache", "cost"];

/// Returns usage by role, by node, and in total; empty if the run made no calls.
pub(super) fn usage_rows(report: &Report) -> Vec<UsageRow> {
    let table = &report.usage;
    if table.total == UsageTotals::default() && table.by_role.is_empty() && table.by_node.is_empty() {
        return Vec::new();
    }
    let role = |name: &String| Role::ALL.iter().position(|role| role.to_string() == *name).unwrap_or(usize::MAX);
    // By number: as text, `n10` would come before `n2`.
    let node = |name: &String| name.parse().map_or(u32::MAX, |id: NodeId| id.number());
    let mut rows = sorted(&table.by_role, role);
    rows.extend(sorted(&table.by_node, node));
    rows.push(usage_row("all", &table.total, true));
    rows
}

/// Returns the usage table as aligned text, one line per row.
pub(crate) fn usage_lines(table: &UsageTable) -> Vec<String> {
    let mut rows = vec![[""].into_iter().chain(USAGE_COLUMNS).map(str::to_owned).collect::<Vec<_>>()];
    let usages = table.by_role.iter().chain(&table.by_node);
    let usages = usages.map(|(name, usage)| (name.as_str(), usage)).chain([("all", &table.total)]);
    rows.extend(
        usages.map(|(name, usage)| {
            std::iter::once(name.to_owned()).chain(usage_row(name, usage, false).figures).collect()
        }),
    );
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..=USAGE_COLUMNS.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let (name, figures) = (format!("{:<1$}", row[0], widths[0]), row.iter().zip(&widths).skip(1));
        figures.fold(name, |line, (figure, width)| format!("{line}  {figure:>width$}"))
    };
    rows.iter().map(line).collect()
}

fn sorted<K: Ord>(usages: &BTreeMap<String, UsageTotals>, key: impl Fn(&String) -> K) -> Vec<UsageRow> {
    let mut usages: Vec<_> = usages.iter().collect();
    usages.sort_by_key(|(name, _)| key(name));
    usages.into_iter().map(|(name, usage)| usage_row(name, usage, false)).collect()
}

/// Formats the prompt tokens that the endpoint had cached, with their share: `200 (17 %)`.
fn cached(usage: &UsageTotals) -> String {
    match (usage.cached_tokens, usage.input_tokens) {
        (0, _) | (_, 0) => "0".to_owned(),
        (cached, all) => format!("{} ({} %)", count(cached), cached.saturating_mul(100) / all),
    }
}

fn usage_row(name: &str, usage: &UsageTotals, is_total: bool) -> UsageRow {
    let figures = [
        count(usage.calls),
        count(usage.input_tokens),
        cached(usage),
        count(usage.output_tokens),
        count(usage.reasoning_tokens),
        count(usage.tool_calls),
        count(usage.cache_hits),
        cost(usage.cost_usd),
    ];
    UsageRow { name: name.to_owned(), figures, is_total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_price_and_tiny_price_are_not_shown_as_zero() {
        assert_eq!(cost(None), "unknown");
        assert_eq!(cost(Some(0.0)), "$0");
        assert_eq!(cost(Some(0.000_01)), "< $0.0001");
        assert_eq!((cost(Some(0.012_34)), cost(Some(12.345_6))), ("$0.0123".to_owned(), "$12.35".to_owned()));
    }

    #[test]
    fn figures_are_set_for_reading() {
        let shown: Vec<_> = [0, 999, 1_000, 12_345_678].into_iter().map(count).collect();
        assert_eq!(shown, ["0", "999", "1,000", "12,345,678"]);
        let shown: Vec<_> = [0, 450, 9_999, 59_999, 185_000, 7_800_000].into_iter().map(duration).collect();
        assert_eq!(shown, ["0.0 s", "0.4 s", "9.9 s", "59 s", "3 min 5 s", "2 h 10 min"]);
    }

    #[test]
    fn usage_is_listed_by_role_then_by_node_in_number_order_then_in_all() {
        let names: Vec<_> = usage_rows(&super::super::sample::run()).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["planner", "worker", "writer", "n2", "n3", "n10", "plan", "all"]);
    }

    #[test]
    fn support_of_an_answer_is_strong_only_if_its_confidence_is_high() {
        let word = |outcome, confidence| support(&Report { outcome, confidence, ..super::super::sample::run() });
        assert_eq!([word(Outcome::Answered, 0.9), word(Outcome::Answered, 0.8)], ["strong", "some"]);
        assert_eq!([word(Outcome::Closest, 0.9), word(Outcome::Refused, 0.0)], ["weak", "none"]);
    }
}
