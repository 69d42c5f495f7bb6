//! Classifies failures as a [`ModelError`]: whether the request may have been paid for, and whether to retry it.
//!
//! A response with an error status means that nothing was generated and nothing paid. Without a response that is
//! unknown, except if the connection was never established.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use crate::base::http::{BodyError, NoReply, retry_after};
use crate::base::line::shortened;
use crate::llm::model::ModelError;

/// Phrases in the errors of various servers for a prompt that is too long.
const TOO_LONG: [&str; 14] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "model's context length",
    "exceeds the context length",
    "exceeds maximum context length",
    "context length of only",
    "greater than the context length",
    "exceeds the context window",
    "available context size",
    "maximum model length",
    "exceed the configured limit",
    "prompt is too long",
    "maximum prompt length",
];

/// Phrases that precede the size of the window in those errors.
const LIMIT_COMES: [&str; 9] = [
    "context length is",
    "context length is only",
    "context length of",
    "context length of only",
    "context length (",
    "context size (",
    "configured limit of",
    "model length of",
    "context window of",
];

/// Classifies a request without a complete response.
pub(crate) fn without_answer(error: &NoReply, timeout: Duration) -> ModelError {
    let unknown = |reason| ModelError::Unknown { reason };
    match error {
        NoReply::TimedOut => unknown(format!("no response within {} s", timeout.as_secs())),
        NoReply::Failed(cause) if cause.is_builder() => ModelError::Permanent { reason: root_cause(cause) },
        NoReply::Failed(cause) if cause.is_connect() => {
            ModelError::Transient { retry_after: None, reason: format!("no connection: {}", root_cause(cause)) }
        }
        NoReply::Failed(cause) => unknown(root_cause(cause)),
        // The reply was generated, so it was paid for.
        NoReply::Body(BodyError::Broken(cause)) => unknown(format!("{error}: {}", root_cause(cause))),
        NoReply::Body(BodyError::TooLarge { .. }) => unknown(error.to_string()),
    }
}

/// Returns the innermost cause; the outer ones mostly repeat the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    shortened(&cause.to_string())
}

/// Classifies a response with an error status.
pub(crate) fn answered(status: StatusCode, headers: &HeaderMap, body: &str, has_schema: bool) -> ModelError {
    let said = Said::read(body);
    let retry_after = retry_after(headers);
    match status.as_u16() {
        401 | 403 => ModelError::Authentication,
        402 => ModelError::Quota,
        429 if said.is_quota() => ModelError::Quota,
        429 => ModelError::RateLimited { retry_after },
        _ if said.is_too_long() => said.too_long(),
        408 | 409 | 500..=599 => ModelError::Transient { retry_after, reason: said.reason(status.as_u16()) },
        300..=399 => {
            let place = headers.get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or("elsewhere");
            let reason = format!("redirect to `{}`; set `base_url` to the address of the API", shortened(place));
            ModelError::Permanent { reason }
        }
        number => {
            let reason = said.reason(number);
            let advice = said.advice(has_schema).map(|advice| format!("; {advice}")).unwrap_or_default();
            ModelError::Permanent { reason: format!("{reason}{advice}") }
        }
    }
}

/// Classifies a failure reported with a success status.
pub(crate) fn reported(error: &Value) -> ModelError {
    let said = Said::of(error);
    let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    match status.and_then(|status| StatusCode::from_u16(status).ok()).filter(|status| !status.is_success()) {
        Some(status) => answered(status, &HeaderMap::new(), &error.to_string(), false),
        None if said.is_quota() => ModelError::Quota,
        None if said.is_too_long() => said.too_long(),
        None if said.code == "rate_limit_exceeded" => ModelError::RateLimited { retry_after: None },
        None if matches!(said.code.as_str(), "server_error" | "server_is_overloaded" | "vector_store_timeout") => {
            ModelError::Transient { retry_after: None, reason: said.reason(200) }
        }
        None => ModelError::Permanent { reason: said.reason(200) },
    }
}

/// An error body, in any of the formats that servers use.
#[derive(Debug, Default)]
struct Said {
    message: String,
    code: String,
    kind: String,
    prompt_tokens: Option<u64>,
    limit_tokens: Option<u64>,
}

impl Said {
    fn read(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Self::of(value.get("error").filter(|error| !error.is_null()).unwrap_or(&value)),
            // The HTML error page of a proxy has no useful message.
            Err(_) if body.trim_start().starts_with('<') => Self::default(),
            Err(_) => Self { message: body.to_owned(), ..Self::default() },
        }
    }

    fn of(error: &Value) -> Self {
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error"].map(text).into_iter().find(|text| !text.is_empty()).unwrap_or_default(),
        };
        let message = if message.is_empty() && !error.is_null() { error.to_string() } else { message };
        Self {
            message,
            code: text("code"),
            kind: text("type"),
            prompt_tokens: error["n_prompt_tokens"].as_u64(),
            limit_tokens: error["n_ctx"].as_u64(),
        }
    }

    fn reason(&self, status: u16) -> String {
        match shortened(&self.message) {
            message if message.is_empty() => format!("status {status}"),
            message => format!("status {status}: {message}"),
        }
    }

    fn is_quota(&self) -> bool {
        let names = [self.code.as_str(), self.kind.as_str()];
        names.contains(&"insufficient_quota")
            || ["insufficient_quota", "exceeded your current quota"].iter().any(|words| self.message.contains(words))
    }

    fn is_too_long(&self) -> bool {
        let message = self.message.to_lowercase();
        TOO_LONG.iter().any(|words| message.contains(words) || self.code == *words || self.kind.starts_with(words))
    }

    fn too_long(&self) -> ModelError {
        let (prompt_tokens, limit_tokens) = numbers_of(&self.message.to_lowercase());
        ModelError::ContextTooLong {
            prompt_tokens: self.prompt_tokens.unwrap_or(prompt_tokens),
            limit_tokens: self.limit_tokens.unwrap_or(limit_tokens),
        }
    }

    /// Returns the setting that would make the endpoint accept the request.
    fn advice(&self, has_schema: bool) -> Option<&'static str> {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        if has_schema
            && says(&["response_format", "json_schema", "text.format", "schema", "grammar", "structured output"])
        {
            Some("set `schema = \"json\"` (or \"none\") for this model")
        } else if says(&["temperature"]) {
            Some("remove `temperature` from the settings of this model")
        } else if says(&["reasoning_effort", "reasoning.effort", "reasoning effort"]) {
            Some("change or remove the `effort` of this model")
        } else if says(&["requires the responses api", "use the responses api", "max_completion_tokens"]) {
            Some("set `api = \"responses\"` for this model")
        } else {
            None
        }
    }
}

/// Extracts the tokens of the prompt and of the window from an error message; 0 if not stated.
fn numbers_of(message: &str) -> (u64, u64) {
    let numbers = numbers(message);
    let limit = |before: &str| LIMIT_COMES.iter().any(|words| before.ends_with(words));
    let limit_tokens = numbers.iter().find(|(at, _)| limit(message[..*at].trim_end())).map(|(_, number)| *number);
    let largest = numbers.iter().map(|(_, number)| *number).max().unwrap_or(0);
    let below = numbers.iter().map(|(_, number)| *number).filter(|number| *number < largest).max();
    // The prompt is longer than the window, so it is the larger number.
    match (limit_tokens, below) {
        (Some(limit), _) => (if largest > limit { largest } else { 0 }, limit),
        (None, Some(below)) => (largest, below),
        (None, None) => (0, largest),
    }
}

/// Returns the whole numbers of a text with their positions; `gpt-5.4` has none, `128,000` is one.
fn numbers(text: &str) -> Vec<(usize, u64)> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | ',');
    let mut numbers = Vec::new();
    let mut at = 0;
    for word in text.split(|letter| !is_part(letter)) {
        let digits = word.trim_end_matches(['.', ',']).replace([',', '_'], "");
        if let Ok(number) = digits.parse() {
            numbers.push((at, number));
        }
        // The separator may be longer than one byte.
        at += word.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> ModelError {
        answered(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body, true)
    }

    #[test]
    fn every_known_wording_of_a_prompt_that_is_too_long_is_understood() {
        for (status, body, expected) in [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens (149000 in the messages, 1000 in the functions).","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                (150_000, 128_000),
            ),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":"context_length_exceeded"}}"#,
                (0, 0),
            ),
            (
                400,
                r#"{"error":{"message":"Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 300,000 tokens.","code":"context_length_exceeded"}}"#,
                (300_000, 272_000),
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).","code":400}"#,
                (5_000, 4_096),
            ),
            (
                400,
                r#"{"error":{"message":"You passed 4097 input tokens and requested 16 output tokens. However, the model's context length is only 4096 tokens"}}"#,
                (4_097, 4_096),
            ),
            (
                400,
                r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}"#,
                (5_000, 4_096),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}"#,
                (9_000, 8_192),
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"}}"#,
                (5_000, 4_096),
            ),
            (400, r#"{"error":"the input length exceeds the context length"}"#, (0, 0)),
            (
                400,
                r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#,
                (5_000, 4_096),
            ),
            (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens).", (5_000, 4_096)),
            (413, r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#, (210_000, 200_000)),
        ] {
            let (prompt_tokens, limit_tokens) = expected;
            assert_eq!(answer(status, body), ModelError::ContextTooLong { prompt_tokens, limit_tokens }, "{body}");
        }
    }

    #[test]
    fn empty_account_is_told_from_too_many_requests() {
        for (status, body, is_quota) in [
            (429, r#"{"error":{"message":"…","type":"insufficient_quota","code":"insufficient_quota"}}"#, true),
            (429, "You exceeded your current quota, please check your plan and billing details.", true),
            (402, "", true),
            (429, r#"{"error":{"message":"Rate limit reached for gpt-6-luna","code":"rate_limit_exceeded"}}"#, false),
            (429, "slow down", false),
            (429, "<html>429</html>", false),
            (429, "", false),
        ] {
            let expected = if is_quota { ModelError::Quota } else { ModelError::RateLimited { retry_after: None } };
            assert_eq!(answer(status, body), expected, "{body}");
        }
    }

    #[test]
    fn status_decides_where_words_do_not() {
        for status in [408, 409, 500, 502, 503, 529] {
            assert!(matches!(answer(status, "<html>"), ModelError::Transient { .. }), "{status}");
        }
        for status in [401, 403] {
            assert_eq!(answer(status, "{}"), ModelError::Authentication);
        }
        for status in [302, 400, 404, 413, 422] {
            assert!(matches!(answer(status, "no"), ModelError::Permanent { .. }), "{status}");
        }
    }

    #[test]
    fn endpoint_that_knows_no_schema_is_answered_with_the_setting_to_change() {
        let body = r#"{"error":{"message":"'response_format.type' must be 'json_object' or 'text'"}}"#;
        let error = answer(400, body).to_string();
        assert!(error.ends_with("; set `schema = \"json\"` (or \"none\") for this model"), "{error}");
    }

    #[test]
    fn what_is_said_is_shown_on_one_line_and_no_longer_than_it_helps() {
        let ModelError::Permanent { reason } = answer(400, &"bad\n\u{1b}[31m ".repeat(1_000)) else { panic!() };
        assert!(reason.chars().count() < 330 && !reason.contains(['\n', '\u{1b}']), "{reason}");
    }
}
