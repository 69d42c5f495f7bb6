//! Parses token counts.

use serde_json::Value;

use crate::llm::message::Usage;

/// Parses token counts under the names of either API. Returns `None` if the prompt was not counted.
pub(crate) fn usage(raw: &Value) -> Option<Usage> {
    let usage = raw.get("usage")?;
    let count = |paths: [&str; 2]| paths.iter().find_map(|path| whole(usage.pointer(path)?));
    // Some servers report zeros instead of leaving the counts out.
    let input_tokens = count(["/input_tokens", "/prompt_tokens"]).filter(|tokens| *tokens > 0)?;
    let output_tokens = count(["/output_tokens", "/completion_tokens"])?;
    let cached = count(["/input_tokens_details/cached_tokens", "/prompt_tokens_details/cached_tokens"]);
    let reasoning =
        count(["/output_tokens_details/reasoning_tokens", "/completion_tokens_details/reasoning_tokens"]).unwrap_or(0);
    // Some servers do not include reasoning in the output tokens.
    let output_tokens = if reasoning > output_tokens { output_tokens + reasoning } else { output_tokens };
    Some(Usage {
        input_tokens,
        cached_tokens: cached.unwrap_or(0).min(input_tokens),
        output_tokens,
        reasoning_tokens: reasoning,
    })
}

/// Parses a count, written as `12` or `12.0`. Returns `None` for an implausible one.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    let is_sane = |count: &f64| (0.0..=1e12).contains(count);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    value.as_f64().filter(is_sane).map(|count| count as u64)
}
