//! Parses response bodies of either API into a [`Reply`]; compatible servers leave many fields out.

use serde_json::Value;

use super::failure;
use super::usage::usage;
use crate::base::line::shortened;
use crate::llm::message::Reply;
use crate::llm::model::ModelError;
use crate::llm::thinking::spoken;

/// Parses the body of a response with a success status.
pub(super) fn read(body: &str) -> Result<Reply, ModelError> {
    let raw: Value = serde_json::from_str(body).map_err(|_| not_json(body))?;
    // Gateways report failures of the servers behind them with status 200.
    if let Some(error) = raw.get("error").filter(|error| !error.is_null()) {
        return Err(failure::reported(&raw, error));
    }
    let reply = if raw.get("output").is_some_and(Value::is_array) {
        from_responses(raw)?
    } else if raw.get("choices").is_some_and(Value::is_array) {
        from_chat(raw)?
    } else {
        let reason = format!("response is in the format of neither API: {}", shortened(body));
        return Err(ModelError::Permanent { reason });
    };
    // The only place that strips reasoning: everything after it, the journal included, has only the reply.
    Ok(Reply { text: spoken(&reply.text).to_owned(), ..reply })
}

fn not_json(body: &str) -> ModelError {
    if body.trim_start().starts_with('<') {
        ModelError::Permanent { reason: "response is a web page; `base_url` is not the address of an API".into() }
    } else {
        ModelError::Unknown { reason: format!("response is not JSON: {}", shortened(body)) }
    }
}

fn from_responses(raw: Value) -> Result<Reply, ModelError> {
    let items = raw["output"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = || items.iter().filter_map(|item| item["content"].as_array()).flatten();
    if let Some(refusal) = parts().find_map(|part| part["refusal"].as_str()) {
        return Err(ModelError::Refused { reason: shortened(refusal) });
    }
    let text: String =
        parts().filter(|part| part["type"] == "output_text").filter_map(|part| part["text"].as_str()).collect();
    let why = raw["incomplete_details"]["reason"].as_str().unwrap_or_default();
    match raw["status"].as_str() {
        _ if why == "content_filter" => return Err(filtered()),
        Some("failed" | "cancelled" | "queued" | "in_progress") => {
            let reason = format!("response has status `{}`", raw["status"].as_str().unwrap_or_default());
            return Err(ModelError::Unknown { reason });
        }
        _ => {}
    }
    let cut_off = raw["status"] == "incomplete" || why == "max_output_tokens";
    Ok(Reply { text, usage: usage(&raw), cut_off, raw })
}

fn from_chat(raw: Value) -> Result<Reply, ModelError> {
    let choice = &raw["choices"][0];
    let message = &choice["message"];
    if let Some(refusal) = message["refusal"].as_str().filter(|refusal| !refusal.is_empty()) {
        return Err(ModelError::Refused { reason: shortened(refusal) });
    }
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    };
    let why = choice["finish_reason"].as_str().unwrap_or_default();
    if why == "content_filter" {
        return Err(filtered());
    }
    Ok(Reply { text, usage: usage(&raw), cut_off: why == "length", raw })
}

fn filtered() -> ModelError {
    ModelError::Refused { reason: "reply stopped by the endpoint's content filter".into() }
}
