//! Attaches models, replies and usage to the spans of calls and jobs; see [`crate::traces`].

use serde_json::Value;

use crate::base::http::BaseUrl;
use crate::llm::endpoint::provider;
use crate::llm::message::{Reply, Speaker, Usage};
use crate::traces::attach;

/// Attaches provider, host and port of an endpoint to the current span.
pub(crate) fn attach_server(endpoint: &str) {
    // A scripted model of a test has no address.
    let Ok(address) = endpoint.parse::<BaseUrl>() else { return };
    attach::word("provider", provider(&address));
    attach::word("host", address.host());
    attach::count("port", address.port());
}

/// Attaches the reply of a model to the current span.
pub(crate) fn attach_reply(reply: &Reply) {
    // An endpoint may answer with another model than requested, such as a dated version.
    if let Some(model) = reply.raw.get("model").and_then(Value::as_str) {
        attach::word("answered_by", model);
    }
    attach::word("finish", finish(reply));
    if let Some(usage) = reply.usage {
        attach_usage(usage);
    }
    attach_output(reply);
}

/// Attaches the text of a reply to the current span.
pub(crate) fn attach_output(reply: &Reply) {
    attach::messages("output", [(Speaker::Assistant.name(), reply.text.as_str())], Some(finish(reply)));
}

/// Attaches tokens to the current span.
pub(crate) fn attach_usage(usage: Usage) {
    attach::count("input_tokens", usage.input_tokens);
    attach::count("cached_tokens", usage.cached_tokens);
    attach::count("output_tokens", usage.output_tokens);
    attach::count("reasoning_tokens", usage.reasoning_tokens);
}

fn finish(reply: &Reply) -> &'static str {
    if reply.cut_off { "length" } else { "stop" }
}
