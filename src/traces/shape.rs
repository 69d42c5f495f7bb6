//! The exported form of spans: names, kinds and attributes of the `GenAI` conventions, release 0.1.0
//! (`semantic-conventions-genai`), and our own, which begin with `dr.`.
//!
//! An attribute is exported only if [`SPANS`] lists it and its value has the listed form. Data recorded on a span by
//! mistake stays on this machine.

use std::collections::BTreeMap;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::base::step::KeyPart;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    /// A whole number.
    Count,
    /// US dollars.
    Dollars,
    Flag,
    /// A name or an id: one short word.
    Word,
    /// A list of one word.
    Words,
    /// The class of an error, which also marks the span as failed.
    Error,
    /// The name of a model. Local servers may use a path as the name; only its last part is exported.
    Model,
    /// The key of a call, up to the first part that is not ours: a planner chooses the names of groups.
    Key,
    /// Any text. Exported only if the run's rule allows texts.
    Text,
}

use ValueForm::{Count, Dollars, Error, Flag, Key, Model, Text, Word, Words};

#[derive(Clone, Copy, Debug)]
enum SpanName {
    Fixed(&'static str),
    /// A word, then the value of an attribute.
    With(&'static str, &'static str),
    /// The value of an attribute.
    Of(&'static str),
}

/// The exported form of a span.
struct SpanShape {
    /// Its name in this program.
    span: &'static str,
    name: SpanName,
    kind: SpanKind,
    /// Attributes that are the same for all.
    fixed: &'static [(&'static str, &'static str)],
    /// Attributes in groups, some of which are shared by several spans.
    attributes: &'static [&'static [Attribute]],
}

/// The key of an attribute in this program, its exported key, and its form.
type Attribute = (&'static str, &'static str, ValueForm);

const OPERATION: &str = "gen_ai.operation.name";
const AGENT: &str = "gen_ai.agent.name";
const REQUEST_MODEL: &str = "gen_ai.request.model";
const DATA_SOURCE: &str = "gen_ai.data_source.id";
const STEP: &str = "dr.step.name";
const TOOL: &str = "gen_ai.tool.name";
const ERROR: Attribute = ("error", "error.type", Error);

/// The provider, model and price of a paid operation.
const PAID: &[Attribute] = &[
    ("cost", "dr.cost_usd", Dollars),
    ("provider", "gen_ai.provider.name", Word),
    ("model", REQUEST_MODEL, Model),
    ("input_tokens", "gen_ai.usage.input_tokens", Count),
    ("cached_tokens", "gen_ai.usage.cache_read.input_tokens", Count),
    ("output_tokens", "gen_ai.usage.output_tokens", Count),
    ("reasoning_tokens", "gen_ai.usage.reasoning.output_tokens", Count),
    ("host", "server.address", Word),
    ("port", "server.port", Count),
    ("answered_by", "gen_ai.response.model", Model),
    ("finish", "gen_ai.response.finish_reasons", Words),
    ("output", "gen_ai.output.messages", Text),
    ERROR,
];

/// Every span that is exported.
const SPANS: [SpanShape; 9] = [
    SpanShape {
        span: "run",
        name: SpanName::Fixed("invoke_workflow dr"),
        kind: SpanKind::Internal,
        fixed: &[(OPERATION, "invoke_workflow"), ("gen_ai.workflow.name", "dr")],
        attributes: &[&[
            ("id", "dr.run.id", Word),
            ("resumed", "dr.run.resumed", Flag),
            ("by_rules", "dr.run.by_rules", Flag),
            ("stop", "dr.run.stop_reason", Word),
            ("rounds", "dr.run.rounds", Count),
            ("nodes", "dr.run.nodes", Count),
            ("tokens", "dr.run.tokens", Count),
            ("cost", "dr.run.cost_usd", Dollars),
            ("question", "dr.run.question", Text),
            ERROR,
        ]],
    },
    SpanShape {
        span: "round",
        name: SpanName::Fixed("round"),
        kind: SpanKind::Internal,
        fixed: &[],
        attributes: &[&[("number", "dr.round.number", Count)]],
    },
    SpanShape {
        span: "node",
        name: SpanName::Fixed("invoke_agent worker"),
        kind: SpanKind::Internal,
        fixed: &[(OPERATION, "invoke_agent"), (AGENT, "worker")],
        attributes: &[&[
            ("id", "dr.node.id", Word),
            ("route", "dr.node.route", Word),
            ("findings", "dr.node.findings", Count),
            ("quotes", "dr.node.quotes", Count),
            ("question", "dr.node.question", Text),
            ERROR,
        ]],
    },
    SpanShape {
        span: "step",
        name: SpanName::Of(STEP),
        kind: SpanKind::Internal,
        fixed: &[],
        attributes: &[&[("name", STEP, Word), ("number", "dr.step.number", Count)]],
    },
    SpanShape {
        span: "call",
        name: SpanName::With("chat", REQUEST_MODEL),
        kind: SpanKind::Client,
        fixed: &[(OPERATION, "chat")],
        attributes: &[
            PAID,
            &[
                ("key", "dr.call.key", Key),
                ("role", "dr.call.role", Word),
                ("on_record", "dr.call.on_record", Flag),
                ("max_tokens", "gen_ai.request.max_tokens", Count),
                ("format", "gen_ai.output.type", Word),
                ("input", "gen_ai.input.messages", Text),
            ],
        ],
    },
    SpanShape {
        span: "job",
        name: SpanName::Fixed("invoke_agent deep_research"),
        kind: SpanKind::Client,
        fixed: &[(OPERATION, "invoke_agent"), (AGENT, "deep_research")],
        attributes: &[PAID, &[("id", "gen_ai.response.id", Word), ("call", "dr.call.id", Count)]],
    },
    SpanShape {
        span: "search",
        name: SpanName::With("retrieval", DATA_SOURCE),
        kind: SpanKind::Client,
        fixed: &[(OPERATION, "retrieval")],
        attributes: &[&[
            ("source", DATA_SOURCE, Word),
            ("asked", "dr.source.asked", Flag),
            ("hits", "dr.search.hits", Count),
            ("query", "gen_ai.retrieval.query.text", Text),
            ERROR,
        ]],
    },
    SpanShape {
        span: "fetch",
        name: SpanName::Fixed("execute_tool fetch"),
        kind: SpanKind::Internal,
        fixed: &[(OPERATION, "execute_tool"), (TOOL, "fetch")],
        attributes: &[&[
            ("source", "dr.source.name", Word),
            ("asked", "dr.source.asked", Flag),
            ("host", "server.address", Word),
            ("address", "url.full", Text),
            ERROR,
        ]],
    },
    SpanShape {
        span: "tool",
        name: SpanName::With("execute_tool", TOOL),
        kind: SpanKind::Client,
        fixed: &[(OPERATION, "execute_tool"), ("mcp.method.name", "tools/call")],
        attributes: &[&[
            ("name", TOOL, Word),
            ("asked", "dr.source.asked", Flag),
            ("arguments", "gen_ai.tool.call.arguments", Text),
            ERROR,
            // For a result that is an error, which also counts as a failure of its source.
            ("tool_error", ERROR.1, Error),
        ]],
    },
];

/// Maximum number of letters in a word.
const MAX_WORD: usize = 100;

pub(super) fn knows(name: &str) -> bool {
    SPANS.iter().any(|shape| shape.span == name)
}

/// Returns the exported form of a span, or `None` if it is not exported.
pub(super) fn shaped(span: SpanData, has_texts: bool) -> Option<SpanData> {
    let shape = SPANS.iter().find(|shape| shape.span == span.name)?;
    let mut attributes = BTreeMap::new();
    for (own, exported, form) in shape.attributes.iter().copied().flatten() {
        // A later value replaces an earlier one, and so does one whose attribute is listed later.
        let mut values = span.attributes.iter().rev().filter(|known| known.key.as_str() == *own);
        if let Some(value) = values.find_map(|known| form.of(&known.value, has_texts)) {
            attributes.insert(*exported, value);
        }
    }
    let value = |key: &str| attributes.get(key).map(ToString::to_string);
    let name = match shape.name {
        SpanName::Fixed(name) => name.to_owned(),
        SpanName::Of(key) => value(key)?,
        SpanName::With(word, key) => value(key).map_or_else(|| word.to_owned(), |value| format!("{word} {value}")),
    };
    // The description of a status, events and links could carry any text.
    let status = if attributes.contains_key(ERROR.1) { Status::error("") } else { Status::Unset };
    let attributes = attributes.into_iter().chain(shape.fixed.iter().map(|(key, value)| (*key, Value::from(*value))));
    Some(SpanData {
        name: name.into(),
        span_kind: shape.kind.clone(),
        attributes: attributes.map(|(key, value)| KeyValue::new(key, value)).collect(),
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        ..span
    })
}

impl ValueForm {
    /// Returns a value in this form; `None` if it does not have it.
    fn of(self, value: &Value, has_texts: bool) -> Option<Value> {
        match (self, value) {
            (Count, Value::I64(_)) | (Dollars, Value::F64(_)) | (Flag, Value::Bool(_)) => Some(value.clone()),
            // `tracing` has no unsigned numbers for its layers.
            (Count, Value::String(digits)) => digits.as_str().parse::<i64>().ok().map(Value::I64),
            (Word | Error, Value::String(word)) => word_of(word.as_str()).map(Value::from),
            (Words, Value::String(word)) => {
                let words = vec![StringValue::from(word_of(word.as_str())?)];
                Some(Value::Array(words.into()))
            }
            (Model, Value::String(name)) => model_of(name.as_str()).map(Value::from),
            (Key, Value::String(key)) => key_of(key.as_str()).map(Value::from),
            (Text, Value::String(_)) => Some(value.clone()).filter(|_| has_texts),
            _ => None,
        }
    }
}

/// Returns the text if it is one short ASCII word, as names and ids are.
fn word_of(text: &str) -> Option<String> {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"_-.:[]@+".contains(&letter);
    (1..=MAX_WORD).contains(&text.len()).then_some(())?;
    text.bytes().all(is_letter).then(|| text.to_owned())
}

/// Returns the name of a model: `openai/gpt-5` unchanged, but only the file name of `/models/a.gguf`.
fn model_of(text: &str) -> Option<String> {
    let is_path = text.starts_with(['/', '.', '~']) || text.contains('\\') || text.matches('/').count() > 1;
    if is_path {
        return word_of(text.rsplit(['/', '\\']).next()?);
    }
    text.split('/').map(word_of).collect::<Option<Vec<_>>>().map(|parts| parts.join("/"))
}

fn key_of(text: &str) -> Option<String> {
    let is_ours = |part: &&str| !matches!(KeyPart::of(part), KeyPart::Other(_));
    let parts: Vec<_> = text.split('/').take_while(is_ours).collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use opentelemetry::trace::{SpanContext, TraceFlags, TraceState};
    use opentelemetry::{InstrumentationScope, SpanId, TraceId};

    use super::*;

    fn span(name: &'static str, attributes: Vec<KeyValue>) -> SpanData {
        let ids = (TraceId::from(7_u128), SpanId::from(7_u64));
        SpanData {
            span_context: SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::error("the words of an error"),
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    /// Returns the exported value of a call with one attribute.
    fn left(key: &'static str, value: impl Into<Value>) -> Option<String> {
        let shaped = shaped(span("call", vec![KeyValue::new(key, value)]), false).unwrap();
        let own = shaped.attributes.iter().find(|attribute| attribute.key.as_str() != OPERATION)?;
        Some(format!("{}={}", own.key, own.value))
    }

    #[test]
    fn attribute_that_is_not_listed_or_has_another_form_stays_here() {
        assert_eq!(left("path", "/home/me/notes.md"), None);
        assert_eq!(left("role", "worker"), Some("dr.call.role=worker".into()));
        assert_eq!(left("role", "who killed whom?"), None);
        assert_eq!(left("role", "a".repeat(MAX_WORD + 1)), None);
        assert_eq!(left("role", 7), None);
        assert_eq!(left("input_tokens", "12"), Some("gen_ai.usage.input_tokens=12".into()));
        assert_eq!(left("input_tokens", "twelve"), None);
        assert_eq!(left("input", "What is the plan?"), None);
        assert_eq!(left("host", "[::1]"), Some("server.address=[::1]".into()));
    }

    #[test]
    fn model_that_is_named_by_a_path_leaves_without_the_folder() {
        for (name, exported) in [
            ("gpt-5.4", Some("gpt-5.4")),
            ("openai/gpt-5", Some("openai/gpt-5")),
            ("qwen2.5:7b", Some("qwen2.5:7b")),
            ("/home/me/secret-project/model.gguf", Some("model.gguf")),
            ("C:\\models\\model.gguf", Some("model.gguf")),
            ("./model.gguf", Some("model.gguf")),
            ("home/me/secret/model.gguf", Some("model.gguf")),
            ("tell me everything", None),
        ] {
            assert_eq!(model_of(name).as_deref(), exported, "{name}");
        }
    }

    #[test]
    fn key_of_a_call_ends_where_a_planner_named_a_group() {
        for (key, exported) in [
            ("n3/step/2/repair", "n3/step/2/repair"),
            ("n2/page/0123456789ab", "n2/page/0123456789ab"),
            ("n2/rerank/0123456789ab", "n2/rerank/0123456789ab"),
            ("group/Reactor cooling/1/2", "group"),
            ("fold/1/n3/public", "fold/1/n3/public"),
            ("n2/web/step/1", "n2/web/step/1"),
        ] {
            assert_eq!(key_of(key).as_deref(), Some(exported));
        }
        assert_eq!(key_of("Reactor"), None);
    }

    #[test]
    fn later_value_replaces_an_earlier_one_and_an_error_marks_the_span_without_its_words() {
        let attributes = vec![KeyValue::new("error", "no_reply"), KeyValue::new("error", "quota")];
        let failed = shaped(span("call", attributes), false).unwrap();
        let errors: Vec<_> = failed.attributes.iter().filter(|known| known.key.as_str() == ERROR.1).collect();
        assert_eq!((errors.len(), errors[0].value.to_string(), failed.status), (1, "quota".into(), Status::error("")));
        assert_eq!(shaped(span("call", Vec::new()), false).unwrap().status, Status::Unset);
    }

    #[test]
    fn error_of_a_tool_itself_wins_over_the_failure_of_its_source() {
        let attributes = vec![KeyValue::new("tool_error", "tool_error"), KeyValue::new("error", "source_failed")];
        let failed = shaped(span("tool", attributes), false).unwrap();
        let errors = failed.attributes.iter().filter(|known| known.key.as_str() == ERROR.1);
        assert_eq!(errors.map(|known| known.value.to_string()).collect::<Vec<_>>(), ["tool_error"]);
    }

    #[test]
    fn text_leaves_if_the_texts_of_the_run_may() {
        let text = || span("run", vec![KeyValue::new("question", "What is the plan?")]);
        let has_question = |span: SpanData| span.attributes.iter().any(|known| known.key.as_str() == "dr.run.question");
        assert!(has_question(shaped(text(), true).unwrap()) && !has_question(shaped(text(), false).unwrap()));
    }

    #[test]
    fn span_that_is_not_listed_is_not_exported() {
        assert!(shaped(span("command", Vec::new()), true).is_none() && !knows("command"));
        // It has no name without its step.
        assert!(shaped(span("step", Vec::new()), true).is_none());
    }

    /// Calls `found` with the first group of each match in the source of these folders, and its location. Returns the
    /// number of matches.
    fn look_through(folders: &[&str], pattern: &str, found: impl Fn(&str, &Path)) -> usize {
        let pattern = regex::Regex::new(pattern).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders: Vec<_> = folders.iter().map(|folder| source.join(folder)).collect();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                for captures in pattern.captures_iter(&std::fs::read_to_string(&path).unwrap_or_default()) {
                    found(&captures[1], &path);
                    seen += 1;
                }
            }
        }
        seen
    }

    /// An attribute attached under a key that no span lists would be lost silently.
    #[test]
    fn every_attribute_that_is_attached_is_listed() {
        let seen = look_through(&[""], r#"attach::\w+\(\s*"(\w+)""#, |name, path| {
            let is_listed =
                |shape: &SpanShape| shape.attributes.iter().copied().flatten().any(|(key, ..)| *key == name);
            assert!(SPANS.iter().any(is_listed), "{}: {name}", path.display());
        });
        assert!(seen > 20, "{seen} were looked at");
    }
}
