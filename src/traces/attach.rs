//! Attributes for the current span that are exported and not logged.
//!
//! Without an export these do nothing. [`super::shape`] defines the exported name of each.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::TraceId;
use serde_json::{Value, json};
use tracing::Span;
use tracing::field::display;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::identity::trace_of;
use crate::base::id::RunId;
use crate::base::money;
use crate::base::mutex::locked;

/// Maximum number of bytes of one text. Many collectors would truncate more anyway, and a batch must fit one request.
const MAX_TEXT: usize = 32_000;

/// A deviation from the default, which is to export the spans of a run without texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportRule {
    /// Nothing: the run is offline, while other runs of this process may not be.
    Nothing,
    Texts,
}

/// Rules by the trace of a run.
static RULES: Mutex<BTreeMap<[u8; 16], ExportRule>> = Mutex::new(BTreeMap::new());

/// Whether any run has texts to export, so that no text is assembled needlessly.
static HAS_TEXTS: AtomicBool = AtomicBool::new(false);

/// Sets the rule of a run, before it begins.
pub(crate) fn rule(run: &RunId, rule: ExportRule) {
    // By trace: the exporter sees the traces of spans, and not their runs.
    locked(&RULES).insert(trace_of(run).to_bytes(), rule);
    if rule == ExportRule::Texts {
        HAS_TEXTS.store(true, Ordering::Release);
    }
}

/// Returns the rule of a trace, if it has one.
pub(super) fn rule_of(trace: TraceId) -> Option<ExportRule> {
    locked(&RULES).get(&trace.to_bytes()).copied()
}

/// Attaches a name or an id.
pub(crate) fn word(key: &'static str, value: impl Into<String>) {
    Span::current().set_attribute(key, value.into());
}

/// Attaches a number. The log has it too, of spans that declare the field.
pub(crate) fn count(key: &'static str, value: impl TryInto<i64>) {
    // OTLP has no unsigned numbers.
    if let Ok(value) = value.try_into() {
        Span::current().set_attribute(key, value);
        Span::current().record(key, value);
    }
}

/// Attaches a cost in billionths of a dollar. The log has it too, as the field `dollars` of spans that declare one.
pub(crate) fn dollars(key: &'static str, nanos: u64) {
    Span::current().set_attribute(key, money::dollars(nanos));
    Span::current().record("dollars", display(money::dollars_text(nanos)));
}

/// Attaches a boolean.
pub(crate) fn flag(key: &'static str, value: bool) {
    Span::current().set_attribute(key, value);
}

/// Attaches a text. It is exported only if the rule of its run allows texts.
pub(crate) fn text(key: &'static str, text: impl FnOnce() -> String) {
    if HAS_TEXTS.load(Ordering::Acquire) {
        let text = text();
        Span::current().set_attribute(key, text[..text.floor_char_boundary(MAX_TEXT)].to_owned());
    }
}

/// Attaches the messages of a conversation in the form of the conventions; `finish` is the reason why a reply ended.
pub(crate) fn messages<'a>(
    key: &'static str,
    messages: impl IntoIterator<Item = (&'a str, &'a str)>,
    finish: Option<&str>,
) {
    if !HAS_TEXTS.load(Ordering::Acquire) {
        return;
    }
    let message = |(role, text): (&str, &str)| {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        let mut message = json!({ "role": role, "parts": [{ "type": "text", "content": text }] });
        if let Some(finish) = finish {
            message["finish_reason"] = Value::from(finish);
        }
        message
    };
    let messages: Vec<_> = messages.into_iter().map(message).collect();
    Span::current().set_attribute(key, Value::from(messages).to_string());
}
