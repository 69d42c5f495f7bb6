//! An answer as a tool returns it: the report as Markdown, and its citations for programs.

use schemars::JsonSchema;
use serde::Serialize;

use super::cut::{MAX_TEXT_TOKENS, beginning};
use super::failure::ToolError;
use crate::base::token::{CountTokens, Encoding, TokenCounter};
use crate::engine::{RunReport, Service};
use crate::render::{self, ReportFormat};

/// Tokens of all quotes in a result.
const MAX_QUOTE_TOKENS: usize = 4_000;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AnswerResult {
    /// `answered`, `closest` (only the passages nearest to the question were found), or `refused` (the sources do not
    /// support an answer).
    outcome: String,
    /// The report in Markdown. Citations in brackets name `citations`.
    report: String,
    /// Quotes that code has found verbatim in their sources.
    citations: Vec<Citation>,
    /// From 0 to 1.
    confidence: f32,
    /// Why the run ended, for example `complete`, or `budget_exceeded`.
    stop_reason: String,
    /// Whether parts of the run failed.
    degraded: bool,
    /// The run, if it was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// Whether the run was stopped before its end; `dr resume` continues it.
    resumable: bool,
    /// Model calls.
    calls: u64,
    /// Tokens, sent and received.
    tokens: u64,
    /// Cost in US dollars; null if a price is not known.
    cost_usd: Option<f64>,
    /// What happened on the way that the reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    notes: Vec<String>,
    /// What was left out, and how to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Citation {
    id: String,
    /// Verbatim.
    quote: String,
    title: String,
    url: String,
    /// `internal` for the knowledge base, `public` for the web.
    label: String,
    /// Whether the file was changed or removed after it was indexed.
    stale: bool,
}

impl AnswerResult {
    /// Makes the answer of a run, its report from line `from` on.
    pub(super) async fn of(
        service: &Service,
        RunReport { report, resumable }: RunReport,
        from: usize,
        notes: Vec<String>,
    ) -> Result<Self, ToolError> {
        let addresses = service.engine.addresses().await?;
        let whole = render::report(&report, ReportFormat::Markdown)?;
        let start = whole.split_inclusive('\n').take(from.saturating_sub(1)).map(str::len).sum::<usize>();
        let text = beginning(&whole[start..], MAX_TEXT_TOKENS).to_owned();
        let mut cut = Vec::new();
        if start + text.len() < whole.len() {
            let next = from.max(1) + text.lines().count();
            let lines = whole.lines().count();
            cut.push(match &report.run_id {
                Some(run) => format!(
                    "the report has {lines} lines; `research_result` with run_id {run} and from_line {next} has the rest"
                ),
                None => format!("the report has {lines} lines, and its run was not stored"),
            });
        }
        // The tokenizer of the client's model is not known; this one gives a measure.
        let counter = TokenCounter::of(Encoding::O200k);
        let mut left = MAX_QUOTE_TOKENS;
        let mut citations = Vec::new();
        for evidence in &report.evidence {
            let tokens = counter.count(&evidence.quote);
            if tokens > left {
                let (count, all) = (citations.len(), report.evidence.len());
                cut.push(format!("{count} of {all} citations are listed; the report has them all"));
                break;
            }
            left -= tokens;
            citations.push(Citation {
                id: evidence.id.to_string(),
                quote: evidence.quote.clone(),
                title: evidence.source.names(),
                url: addresses.of_place(&evidence.source),
                label: name(&evidence.label),
                stale: evidence.stale,
            });
        }
        let usage = report.usage.total;
        Ok(Self {
            outcome: name(&report.outcome),
            report: text,
            citations,
            confidence: report.confidence,
            stop_reason: name(&report.stop_reason),
            degraded: report.degraded,
            run_id: report.run_id,
            resumable: resumable.is_some(),
            calls: usage.calls,
            tokens: usage.input_tokens + usage.output_tokens,
            cost_usd: usage.cost_usd,
            notes,
            cut: (!cut.is_empty()).then(|| cut.join("; ")),
        })
    }
}

/// Returns the name that an enum without data has in JSON.
fn name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
