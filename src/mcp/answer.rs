//! The answer returned by a tool: the report as Markdown, and its citations for programs.

use schemars::JsonSchema;
use serde::Serialize;

use super::cut::{Rest, cut};
use super::failure::ToolError;
use crate::base::token::{CountTokens, Encoding, TokenCounter};
use crate::engine::{Asked, Service};
use crate::render::{self, ReportFormat};

/// Maximum number of tokens of all quotes in a result. The report may have twice as many.
const MAX_QUOTE_TOKENS: usize = 4_000;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AnswerResult {
    /// `answered`, `closest` (only the passages nearest to the question were found), or `refused` (the sources do not
    /// support an answer).
    outcome: String,
    /// The report in Markdown. Citations in brackets name `citations`.
    report: String,
    /// Quotes that code has found verbatim in their sources.
    citations: Vec<CitedQuote>,
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
#[schemars(rename = "Citation")]
struct CitedQuote {
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
        Asked { report, resumable }: Asked,
        from: usize,
        notes: Vec<String>,
    ) -> Result<Self, ToolError> {
        let addresses = service.engine.addresses().await?;
        let whole = render::report(&report, ReportFormat::Markdown)?;
        let (text, cut) = lines_from(&whole, from, report.run_id.as_deref());
        let (text, mut cut): (_, Vec<_>) = (text.to_owned(), cut.into_iter().collect());
        // The tokenizer of the client's model is unknown; this one gives an estimate.
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
            citations.push(CitedQuote {
                id: evidence.id.to_string(),
                quote: evidence.quote.clone(),
                title: evidence.source.names(),
                url: addresses.of_place(&evidence.source),
                label: evidence.label.to_string(),
                stale: evidence.stale,
            });
        }
        let usage = report.usage.total;
        Ok(Self {
            outcome: report.outcome.to_string(),
            report: text,
            citations,
            confidence: report.confidence,
            stop_reason: report.stop_reason.to_string(),
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

/// Returns a report from line `from` on, cut to the length of a result, and the omitted rest. `run` is its run, if
/// stored.
pub(super) fn lines_from<'a>(report: &'a str, from: usize, run: Option<&str>) -> (&'a str, Option<String>) {
    let from = from.max(1);
    let start = report.split_inclusive('\n').take(from - 1).map(str::len).sum::<usize>();
    let (text, rest) = cut(&report[start..]);
    let lines = report.lines().count();
    let note = |Rest { after, is_line_cut }: Rest| {
        let Some(run) = run else { return format!("the report has {lines} lines, and its run was not stored") };
        let next = from + after;
        let cut = if is_line_cut {
            format!("; line {} is cut, and `dr replay {run}` prints it", next - 1)
        } else {
            String::new()
        };
        let more = format!("; `research_result` with run_id {run} and from_line {next} has the rest");
        format!("the report has {lines} lines{cut}{}", if next <= lines { &more } else { "" })
    };
    (text, rest.map(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_with_a_line_that_fits_no_result_is_read_to_its_end() {
        let report = format!("# Q\n\n{}\nlast\n", "word ".repeat(20_000));
        let from = |line| lines_from(&report, line, Some("4f1c09a2b7de5533"));
        let (text, cut) = from(1);
        assert_eq!(text, "# Q\n\n");
        let rest = "`research_result` with run_id 4f1c09a2b7de5533 and from_line 3 has the rest";
        assert_eq!(cut.unwrap(), format!("the report has 4 lines; {rest}"));
        let (text, cut) = from(3);
        assert!(text.starts_with("word word"), "{text}");
        let line = "line 3 is cut, and `dr replay 4f1c09a2b7de5533` prints it";
        assert_eq!(
            cut.unwrap(),
            format!("the report has 4 lines; {line}; {}", rest.replace("from_line 3", "from_line 4"))
        );
        assert_eq!(from(4), ("last\n", None));
        let (_, cut) = lines_from(report.trim_end_matches("\nlast\n"), 3, Some("4f1c09a2b7de5533"));
        assert_eq!(cut.unwrap(), format!("the report has 3 lines; {line}"));
    }
}
