//! Classifies failures as a [`ModelError`]: whether the request may have been paid for, and whether to retry it.
//!
//! A response with an error status means that nothing was generated and nothing paid, except if a gateway gave up on
//! the server behind it, or the response counts output tokens. Without a response that is unknown, except if the
//! connection was never established.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use super::usage::usage;
use crate::base::http::{BodyError, NoReply, retry_after};
use crate::base::line::{innermost, shortened};
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

/// Words in the errors of various servers for a schema that they do not enforce.
const OF_SCHEMA: [&str; 6] = ["response_format", "text.format", "schema", "grammar", "structured output", "guided"];

/// Classifies a request without a complete response.
pub(crate) fn without_answer(error: &NoReply, timeout: Duration) -> ModelError {
    let unknown = |reason| ModelError::Unknown { reason };
    match error {
        NoReply::TimedOut => unknown(format!("no response within {} s", timeout.as_secs())),
        // The request could not be built, so it was not sent.
        NoReply::Failed(cause) if cause.is_builder() => ModelError::Permanent { reason: shortened(&innermost(cause)) },
        NoReply::Failed(cause) if cause.is_connect() => ModelError::Transient {
            retry_after: None,
            reason: format!("no connection: {}", shortened(&innermost(cause))),
        },
        NoReply::Failed(cause) => unknown(shortened(&innermost(cause))),
        // The reply was generated, so it was paid for.
        NoReply::Body(BodyError::Broken(cause)) => unknown(format!("{error}: {}", shortened(&innermost(cause)))),
        NoReply::Body(BodyError::TooLarge { .. }) => unknown(error.to_string()),
    }
}

/// Classifies a response with an error status.
pub(crate) fn answered(status: StatusCode, headers: &HeaderMap, body: &str) -> ModelError {
    let error = answered_unpaid(status, headers, body);
    match serde_json::from_str(body) {
        Ok(raw) => unless_paid(error, &raw),
        Err(_) => error,
    }
}

/// Returns the error of a response. If the response counts output tokens, it was paid for, whatever its status.
fn unless_paid(error: ModelError, raw: &Value) -> ModelError {
    match usage(raw).map_or(0, |usage| usage.output_tokens) {
        0 => error,
        output => ModelError::Unknown { reason: format!("failed after {output} tokens: {error}") },
    }
}

fn answered_unpaid(status: StatusCode, headers: &HeaderMap, body: &str) -> ModelError {
    let said = ErrorBody::read(body);
    let retry_after = retry_after(headers);
    match status.as_u16() {
        401 | 403 => ModelError::Authentication,
        402 => ModelError::Quota,
        429 if said.is_quota() => ModelError::Quota,
        429 => ModelError::RateLimited { retry_after },
        // Before the status: llama.cpp reports this as an internal error, which would be retried.
        _ if said.is_too_long() => said.too_long(),
        // A gateway timed out waiting for a server that has the request and may still answer it: 504, and
        // Cloudflare's 524.
        number @ (504 | 524) => ModelError::Unknown { reason: said.advised_reason(number) },
        // The statuses, besides 429, that OpenAI's own clients retry.
        408 | 409 | 500..=599 => ModelError::Transient { retry_after, reason: said.advised_reason(status.as_u16()) },
        // Redirects are not followed: key and prompt would go to an address that the user did not set.
        300..=399 => {
            let place = headers.get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or("elsewhere");
            let reason = format!("redirect to `{}`; set `base_url` to the address of the API", shortened(place));
            ModelError::Permanent { reason }
        }
        number => ModelError::Permanent { reason: said.advised_reason(number) },
    }
}

/// Returns whether an error response is about the schema that was to be enforced, so that the request may succeed
/// without it. Servers also report this with the status of an internal error.
pub(crate) fn refuses_schema(status: StatusCode, body: &str) -> bool {
    let said = ErrorBody::read(body);
    let message = said.message.to_lowercase();
    matches!(status.as_u16(), 400 | 404 | 405 | 415 | 422 | 500 | 501)
        && !said.is_too_long()
        && OF_SCHEMA.iter().any(|word| message.contains(word))
}

/// Classifies a failure that a response with a success status reports as `error`.
pub(crate) fn reported(raw: &Value, error: &Value) -> ModelError {
    unless_paid(reported_unpaid(error), raw)
}

fn reported_unpaid(error: &Value) -> ModelError {
    let said = ErrorBody::of(error);
    // Gateways put the status of the server behind them into `code`.
    let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    match status.and_then(|status| StatusCode::from_u16(status).ok()).filter(|status| !status.is_success()) {
        Some(status) => answered_unpaid(status, &HeaderMap::new(), &error.to_string()),
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
struct ErrorBody {
    message: String,
    code: String,
    kind: String,
}

impl ErrorBody {
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
        Self { message, code: text("code"), kind: text("type") }
    }

    fn reason(&self, status: u16) -> String {
        match shortened(&self.message) {
            message if message.is_empty() => format!("status {status}"),
            message => format!("status {status}: {message}"),
        }
    }

    /// Returns the reason, with the setting that would help.
    fn advised_reason(&self, status: u16) -> String {
        let advice = self.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{}{advice}", self.reason(status))
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
        ModelError::ContextTooLong { reason: shortened(&self.message) }
    }

    /// Returns the setting that would make the endpoint accept the request.
    fn advice(&self) -> Option<&'static str> {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        if says(&["temperature"]) {
            Some("remove `temperature` from the settings of this model")
        } else if says(&["reasoning_effort", "reasoning.effort", "reasoning effort"]) {
            Some("change or remove the `effort` of this model")
        } else if says(&["requires the responses api", "use the responses api", "max_completion_tokens"]) {
            Some("set `api = \"responses\"` for this model")
        } else if says(&["context size has been exceeded"]) {
            // llama.cpp, whose slots share one context: each request fits, and those in flight together do not.
            Some("set `parallel = 1`, or start the server with a larger context")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> ModelError {
        answered(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body)
    }

    #[test]
    fn every_known_wording_of_a_prompt_that_is_too_long_is_understood() {
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens (149000 in the messages, 1000 in the functions).","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 300,000 tokens.","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).","code":400}"#,
            ),
            (
                400,
                r#"{"error":{"message":"You passed 4097 input tokens and requested 16 output tokens. However, the model's context length is only 4096 tokens"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}"#,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"}}"#,
            ),
            (400, r#"{"error":"the input length exceeds the context length"}"#),
            (
                400,
                r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#,
            ),
            (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
            (413, r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#),
        ] {
            assert!(matches!(answer(status, body), ModelError::ContextTooLong { .. }), "{body}");
        }
        let said = answer(400, r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#);
        assert_eq!(
            said.to_string(),
            "prompt does not fit the context window: prompt is too long: 210000 tokens > 200000 maximum"
        );
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
        for status in [504, 524] {
            assert!(matches!(answer(status, "<html>"), ModelError::Unknown { .. }), "{status}");
        }
        for status in [401, 403] {
            assert_eq!(answer(status, "{}"), ModelError::Authentication);
        }
        for status in [302, 400, 404, 413, 422] {
            assert!(matches!(answer(status, "no"), ModelError::Permanent { .. }), "{status}");
        }
    }

    #[test]
    fn error_that_counts_output_tokens_may_have_been_paid_for() {
        for (output, is_paid) in [(0, false), (9, true)] {
            let body = format!(
                r#"{{"error":{{"message":"provider disconnected"}},"usage":{{"prompt_tokens":9,"completion_tokens":{output}}}}}"#
            );
            assert_eq!(matches!(answer(502, &body), ModelError::Unknown { .. }), is_paid, "{body}");
        }
    }

    #[test]
    fn requests_that_fill_the_context_of_a_server_together_are_sent_again_with_the_setting_in_the_reason() {
        let body = r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        let ModelError::Transient { reason, .. } = answer(500, body) else { panic!() };
        assert!(
            reason.ends_with(
                "Context size has been exceeded.; set `parallel = 1`, or start the server with a larger context"
            ),
            "{reason}"
        );
    }

    #[test]
    fn refusal_of_a_schema_is_told_from_other_errors() {
        let refuses = |status, body| refuses_schema(StatusCode::from_u16(status).unwrap(), body);
        let of_400 = [
            r#"{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar","type":"invalid_request_error"}}"#,
            r#"{"error":{"code":400,"message":"Unable to generate parser for this template. Automatic parser generation failed: JSON schema error at #/properties/a/anyOf/0: unsupported $ref #, only references into the same document are supported","type":"invalid_request_error"}}"#,
            r#"{"error":"'response_format.type' must be 'json_schema' or 'text'"}"#,
            r#"{"error":{"message":"Invalid schema for response_format 'output': In context=(), 'additionalProperties' is required to be supplied and to be false.","code":"invalid_json_schema"}}"#,
            r#"{"object":"error","message":"The provided JSON schema contains features not supported by xgrammar.","code":400}"#,
        ];
        for (status, body) in
            of_400.map(|body| (400, body)).into_iter().chain([(500, r#"{"error":"failed to load grammar"}"#)])
        {
            assert!(refuses(status, body), "{body}");
        }
        for (status, body) in [
            (401, r#"{"error":{"message":"invalid key for schema"}}"#),
            (429, r#"{"error":{"message":"too many requests with response_format"}}"#),
            (503, r#"{"error":{"message":"loading grammar"}}"#),
            (
                500,
                r#"{"error":{"code":500,"message":"The model produced output that does not match the expected peg-native format","type":"server_error"}}"#,
            ),
            (400, r#"{"error":{"message":"temperature is not supported"}}"#),
            (400, r#"{"error":{"message":"the request with its schema exceeds the available context size"}}"#),
        ] {
            assert!(!refuses(status, body), "{body}");
        }
    }

    #[test]
    fn what_is_said_is_shown_on_one_line_and_no_longer_than_it_helps() {
        let ModelError::Permanent { reason } = answer(400, &"bad\n\u{1b}[31m ".repeat(1_000)) else { panic!() };
        assert!(reason.chars().count() < 330 && !reason.contains(['\n', '\u{1b}']), "{reason}");
    }
}
