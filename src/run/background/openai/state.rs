//! Parses the status of a job in the Responses API.

use serde_json::Value;

use crate::base::line::shortened;
use crate::run::background::job::JobState;

pub(super) fn state_of(raw: &Value) -> JobState {
    let status = raw["status"].as_str().unwrap_or_default();
    match status {
        "queued" => JobState::Queued,
        "in_progress" => JobState::InProgress,
        "completed" => JobState::Completed,
        "failed" => JobState::Failed { reason: failure_of(raw) },
        "expired" => JobState::Failed { reason: "it expired at the provider".into() },
        "incomplete" => JobState::Incomplete { reason: limit_of(raw) },
        "cancelled" | "canceled" => JobState::Cancelled,
        // Some servers answer synchronously and omit the status.
        "" if raw["output"].as_array().is_some_and(|items| !items.is_empty()) => JobState::Completed,
        other => JobState::Unknown(shortened(other)),
    }
}

fn failure_of(raw: &Value) -> String {
    let said = |path: &str| raw.pointer(path).and_then(Value::as_str).map(shortened).filter(|text| !text.is_empty());
    match (said("/error/code"), said("/error/message").or_else(|| said("/error"))) {
        (Some(code), Some(message)) => format!("{message} ({code})"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => "the provider does not say why".into(),
    }
}

fn limit_of(raw: &Value) -> String {
    let said = raw.pointer("/incomplete_details/reason").and_then(Value::as_str).map(shortened);
    said.filter(|text| !text.is_empty()).unwrap_or_else(|| "the provider does not say why".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_status_is_read_and_a_new_one_is_kept_as_it_is() {
        let failed = |reason: &str| JobState::Failed { reason: reason.into() };
        for (raw, expected, is_over) in [
            (json!({ "status": "queued" }), JobState::Queued, false),
            (json!({ "status": "in_progress" }), JobState::InProgress, false),
            (json!({ "status": "completed" }), JobState::Completed, true),
            (json!({ "status": "cancelled" }), JobState::Cancelled, true),
            (
                json!({ "status": "failed", "error": { "code": "server_error", "message": "oh\nno" } }),
                failed("oh no (server_error)"),
                true,
            ),
            (json!({ "status": "failed", "error": null }), failed("the provider does not say why"), true),
            (json!({ "status": "expired" }), failed("it expired at the provider"), true),
            (
                json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" } }),
                JobState::Incomplete { reason: "max_output_tokens".into() },
                true,
            ),
            (json!({ "status": "dreaming" }), JobState::Unknown("dreaming".into()), false),
            (json!({ "status": "cancelling" }), JobState::Unknown("cancelling".into()), false),
            (json!({ "output": [{ "type": "message" }] }), JobState::Completed, true),
            (json!(["odd"]), JobState::Unknown(String::new()), false),
        ] {
            let state = state_of(&raw);
            assert_eq!((&state, state.is_over()), (&expected, is_over), "{raw}");
        }
    }
}
