//! Structured replies: calls a model until a reply follows a schema, up to three times.
//!
//! ```text
//! reply ─▶ strip fences ─▶ strict JSON ─▶ lenient JSON ─▶ schema ─▶ check of the caller ─▶ value
//!   │ complaint
//!   ├─▶ repair: the same prompt, the invalid reply and the exact complaint
//!   └─▶ small: the same prompt, and a schema without annotations
//! ```
//!
//! Every attempt is a call with its own key, so that a resumed run repeats the same sequence.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use jsonschema::Validator;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::{CallError, CallKey, Caller};
use super::lenient;
use super::message::{Message, Prompt, Reply, Speaker};
use super::model::ModelError;
use super::schema;
use crate::base::bounded::within_async;
use crate::base::step::Step;

/// Schema violations reported to the model at once.
const MAX_COMPLAINTS: usize = 5;

/// Time to check a reply against its schema. A recursive schema can take exponential time.
const CHECK_TIME: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(5) };

/// Bytes per token above which a reply is cut before its tokens are counted. Usual text has four.
const BYTES_PER_TOKEN: usize = 8;

/// Tokens reserved in a repair for the framing of its messages.
const FRAME_TOKENS: u64 = 64;

/// No reply followed the schema.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum StructuredError {
    /// A call was not made or got no reply.
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("reply cannot be used: {complaint}")]
    Invalid { complaint: String },
    #[error("invalid schema: {reason}")]
    Schema { reason: String },
}

/// Returns a reply parsed as `T`. `name` names the schema, in letters, digits and `_`.
///
/// # Errors
///
/// Returns [`StructuredError::Call`] as soon as a call fails, other than a repair that does not fit the context, and
/// [`StructuredError::Invalid`] after the last attempt.
pub(crate) async fn structured<T: DeserializeOwned + JsonSchema>(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: &Prompt,
    name: &str,
) -> Result<T, StructuredError> {
    structured_checked(caller, key, prompt, name, |_| Ok(())).await
}

/// Like [`structured`], and the value must pass `check`, whose complaint is sent to the model.
pub(crate) async fn structured_checked<T: DeserializeOwned + JsonSchema>(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: &Prompt,
    name: &str,
    check: impl Fn(&T) -> Result<(), String> + Send + Sync,
) -> Result<T, StructuredError> {
    let form = Arc::new(CompiledSchema::new(name, schema::of::<T>())?);
    let accept = |value: Value| {
        let value: T = serde_json::from_value(value).map_err(|error| error.to_string())?;
        check(&value).map(|()| value)
    };
    climb(caller, key, prompt, &form, accept).await
}

/// Returns a reply that follows a `schema` given by the user.
///
/// # Errors
///
/// Like [`structured`]; also returns [`StructuredError::Schema`], before any call, if the schema is invalid.
pub(crate) async fn structured_value(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: &Prompt,
    name: &str,
    schema: &Value,
) -> Result<Value, StructuredError> {
    climb(caller, key, prompt, &Arc::new(CompiledSchema::new(name, schema.clone())?), Ok).await
}

/// Checks that a schema is valid and has no external references.
pub(crate) fn check_schema(schema: &Value) -> Result<(), StructuredError> {
    CompiledSchema::new("schema", schema.clone()).map(|_| ())
}

/// Makes the attempts described above, until `accept` returns a value.
async fn climb<T>(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: &Prompt,
    form: &Arc<CompiledSchema>,
    accept: impl Fn(Value) -> Result<T, String> + Send + Sync,
) -> Result<T, StructuredError> {
    let first = prompt.clone().with_schema(&form.name, form.schema.clone());
    let reply = caller.call(key, &first).await?;
    let complaint = match form.read(&reply).await.and_then(&accept) {
        Ok(value) => return Ok(value),
        Err(complaint) => complaint,
    };
    let repair = repair(caller, &first, &reply, &complaint);
    match caller.call(&key.then(Step::Repair), &repair).await {
        Ok(reply) => {
            if let Ok(value) = form.read(&reply).await.and_then(&accept) {
                return Ok(value);
            }
        }
        // The server has a smaller context than is set. The next prompt is no longer than the first, which fitted.
        Err(CallError::Model(ModelError::ContextTooLong { .. })) => {}
        Err(error) => return Err(error.into()),
    }
    let mut small = prompt.clone().with_schema(&form.name, schema::bare(&form.schema));
    if small == first {
        // Without annotations to omit, the prompt equals the first one, whose reply is on record: request another
        // sample.
        small.sample = 1;
    }
    let reply = caller.call(&key.then(Step::Small), &small).await?;
    form.read(&reply).await.and_then(&accept).map_err(|complaint| StructuredError::Invalid { complaint })
}

/// Returns a prompt with the invalid reply and the complaint, within the input limit of its role.
fn repair(caller: &dyn Caller, prompt: &Prompt, reply: &Reply, complaint: &str) -> Prompt {
    let mut repair = prompt.clone();
    let task = format!(
        "Your reply cannot be used: {complaint}.\nReply again, with the whole JSON of the form asked for and nothing \
         else."
    );
    let count = |text: &str| caller.count(prompt.role, text);
    let said: u64 = prompt.messages.iter().map(|message| count(&message.text)).sum();
    let form = prompt.schema.as_ref().map_or(0, |form| count(&form.schema.to_string()));
    let taken = said + form + count(&task) + FRAME_TOKENS;
    // Task and complaint are needed whole, so the reply is cut.
    let shown = head(&reply.text, caller.input_limit(prompt.role).saturating_sub(taken), count);
    // Some endpoints reject an empty message.
    if !shown.is_empty() {
        repair.messages.push(Message { speaker: Speaker::Assistant, text: shown.to_owned() });
    }
    repair.messages.push(Message { speaker: Speaker::User, text: task });
    repair
}

/// Returns a prefix of `text` of at most `max_tokens`, halving it until it fits. A text that is far too long is cut first:
/// counting the tokens of ten megabytes of one character takes a minute.
fn head(text: &str, max_tokens: u64, count: impl Fn(&str) -> u64) -> &str {
    let most = usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
    let mut text = &text[..text.floor_char_boundary(most)];
    while !text.is_empty() && count(text) > max_tokens {
        text = &text[..text.floor_char_boundary(text.len() / 2)];
    }
    text
}

/// A schema and its validator.
struct CompiledSchema {
    name: String,
    schema: Value,
    validator: Validator,
}

impl CompiledSchema {
    fn new(name: &str, schema: Value) -> Result<Self, StructuredError> {
        let validator =
            schema::compile(&schema).map_err(|error| StructuredError::Schema { reason: error.to_string() })?;
        Ok(Self { name: name.to_owned(), schema, validator })
    }

    /// Parses and checks a reply, within [`CHECK_TIME`]. The error is the complaint for the model.
    async fn read(self: &Arc<Self>, reply: &Reply) -> Result<Value, String> {
        // The thread owns what it reads: a check that takes too long is abandoned and continues.
        let (form, text) = (Arc::clone(self), reply.text.clone());
        let read = within_async(CHECK_TIME, move || {
            let mut value = lenient::read(&text)?;
            schema::drop_nulls(&mut value, &form.schema);
            form.check(&value).map(|()| value)
        });
        match read.await.unwrap_or_else(|slow| Err(slow.to_string())) {
            Err(complaint) if reply.cut_off => {
                Err(format!("the reply was cut off at its limit, so it must be shorter ({complaint})"))
            }
            read => read,
        }
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        if let Some(known) = self.strange_to(value) {
            return Err(format!("the reply has none of the members {known}"));
        }
        let mut complaints = String::new();
        for error in self.validator.iter_errors(value).take(MAX_COMPLAINTS) {
            let place = match error.instance_path().as_str() {
                "" => "the reply",
                path => path,
            };
            let separator = if complaints.is_empty() { "" } else { "; " };
            // Without the value, which may be long and is already part of the prompt.
            let _ = write!(complaints, "{separator}at {place}: {}", error.masked());
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }

    /// Returns the members of the schema if the value has members, but none of them.
    ///
    /// Without this check such a value would pass as empty if every member is optional.
    fn strange_to(&self, value: &Value) -> Option<String> {
        let known = self.schema.get("properties")?.as_object()?;
        let members = value.as_object()?;
        let is_strange = !members.is_empty() && !members.keys().any(|member| known.contains_key(member));
        let names = || known.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        (is_strange && !known.is_empty()).then(names)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::super::call::Limit;
    use super::super::message::Role;
    use super::*;
    use crate::research::scripted::{Scripted, tokens};

    /// What a judge says.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Judgement {
        /// Whether it is enough.
        enough: bool,
        #[serde(default)]
        missing: Vec<String>,
    }

    #[test]
    fn tokens_of_a_reply_that_is_far_too_long_are_not_counted() {
        let longest = std::cell::Cell::new(0);
        let count = |text: &str| {
            longest.set(longest.get().max(text.len()));
            text.len() as u64
        };
        assert_eq!(head(&"{".repeat(1_000_000), 100, count).len(), 100);
        assert_eq!(longest.get(), 100 * BYTES_PER_TOKEN);
        assert_eq!(head("so it is", 100, count), "so it is");
    }

    /// A form of which every part may be absent.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Loose {
        #[serde(default)]
        nodes: Vec<String>,
    }

    fn prompt() -> Prompt {
        Prompt::new(Role::Judge, "You judge.", "Is it enough?", 500)
    }

    async fn judge(caller: &Scripted) -> Result<Judgement, StructuredError> {
        structured(caller, &CallKey::new("verdict/1"), &prompt(), "judgement").await
    }

    #[tokio::test]
    async fn good_reply_takes_one_call() {
        let caller = Scripted::in_turn(&["```json\n{\"enough\": true, \"missing\": null}\n```"]);
        assert_eq!(judge(&caller).await.unwrap(), Judgement { enough: true, missing: vec![] });
        assert_eq!(caller.keys(), ["verdict/1"]);
        assert_eq!(caller.prompts()[0].schema.as_ref().unwrap().name, "judgement");
    }

    #[tokio::test]
    async fn repair_shows_the_reply_and_says_what_is_wrong_where() {
        let caller = Scripted::in_turn(&[r#"{"enough": "yes", "missing": [1]}"#, r#"{"enough": false}"#]);
        assert!(!judge(&caller).await.unwrap().enough);
        assert_eq!(caller.keys(), ["verdict/1", "verdict/1/repair"]);
        let repair = caller.prompts().remove(1);
        assert_eq!(repair.messages[2].text, r#"{"enough": "yes", "missing": [1]}"#);
        let task = &repair.messages[3].text;
        assert!(task.contains("at /enough: value is not of type \"boolean\""), "{task}");
        assert!(task.contains("at /missing/0: value is not of type \"string\""), "{task}");
    }

    #[tokio::test]
    async fn reply_that_takes_too_long_to_check_is_refused() {
        // Each level of the reply doubles the work: both alternatives are tried, and both fail at the innermost value.
        let level = json!({ "items": { "$ref": "#/$defs/level" }, "type": "array", "minItems": 1 });
        let schema = json!({ "$ref": "#/$defs/level", "$defs": { "level": { "anyOf": [level, level] } } });
        let reply = format!("{}{}", "[".repeat(40), "]".repeat(40));
        let caller = Scripted::in_turn(&[&reply, &reply, &reply]);
        let started = std::time::Instant::now();
        let error = structured_value(&caller, &CallKey::new("output"), &prompt(), "answer", &schema).await.unwrap_err();
        assert_eq!(error.to_string(), "reply cannot be used: it takes too long to process");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn third_rung_asks_anew_with_a_schema_without_explanations() {
        let caller = Scripted::in_turn(&["no", "no", r#"{"enough": true}"#]);
        assert!(judge(&caller).await.unwrap().enough);
        assert_eq!(caller.keys()[2], "verdict/1/small");
        let small = caller.prompts().remove(2);
        assert_eq!(small.messages, prompt().messages);
        assert!(!small.schema.unwrap().schema.to_string().contains("Whether it is enough"));
        assert!(caller.prompts()[0].schema.as_ref().unwrap().schema.to_string().contains("Whether it is enough"));
    }

    #[tokio::test]
    async fn last_complaint_is_the_error() {
        let caller = Scripted::in_turn(&["no", "", r#"{"missing": []}"#]);
        let error = judge(&caller).await.unwrap_err();
        let complaint = r#"at the reply: "enough" is a required property"#.to_owned();
        assert_eq!(error, StructuredError::Invalid { complaint });
        assert!(!caller.prompts()[1].messages[2].text.is_empty());
    }

    #[tokio::test]
    async fn reply_that_was_cut_off_is_told_to_be_shorter() {
        let replies = [r#"{"enough": true, "missing": ["a"#, r#"{"enough": true}"#];
        let caller = Scripted::in_turn(&replies).cutting_off(1);
        judge(&caller).await.unwrap();
        let task = caller.prompts()[1].messages.last().unwrap().text.clone();
        assert!(task.contains("cut off at its limit, so it must be shorter"), "{task}");
    }

    #[tokio::test]
    async fn complaint_of_the_caller_goes_the_same_way() {
        let caller = Scripted::in_turn(&[r#"{"enough": true}"#, r#"{"enough": false}"#]);
        let check = |judgement: &Judgement| {
            if judgement.enough { Err("two aspects are not covered".to_owned()) } else { Ok(()) }
        };
        let judgement = structured_checked(&caller, &CallKey::new("v"), &prompt(), "judgement", check).await.unwrap();
        assert!(!judgement.enough);
        assert!(caller.prompts()[1].messages[3].text.contains("two aspects are not covered"));
    }

    #[tokio::test]
    async fn object_of_another_form_does_not_pass_for_an_empty_one() {
        let caller = Scripted::in_turn(&[r#"{"sub_tasks": ["a"]}"#, "{brace} in prose", r#"{"nodes": ["a"]}"#]);
        let loose: Loose = structured(&caller, &CallKey::new("plan"), &prompt(), "plan").await.unwrap();
        assert_eq!(loose.nodes, ["a"]);
        assert!(caller.prompts()[1].messages[3].text.contains("none of the members `nodes`"));
    }

    #[tokio::test]
    async fn repair_stays_within_the_input_limit() {
        let long = "word ".repeat(3_000);
        let caller = Scripted::in_turn(&[&long, r#"{"enough": true}"#]).with_input_limit(200);
        judge(&caller).await.unwrap();
        let sent: u64 = caller.prompts()[1].messages.iter().map(|message| tokens(&message.text)).sum();
        assert!(sent <= 200, "{sent}");
    }

    #[tokio::test]
    async fn repair_that_does_not_fit_is_left_out() {
        let too_long = CallError::Model(ModelError::ContextTooLong { reason: "9 tokens, more than 8".into() });
        let refused = too_long.clone();
        let caller = Scripted::new(move |key, _| match key.as_str() {
            "verdict/1" => Ok("no".into()),
            "verdict/1/repair" => Err(refused.clone()),
            _ => Ok(r#"{"enough": true}"#.into()),
        });
        assert!(judge(&caller).await.unwrap().enough);
        assert_eq!(caller.keys(), ["verdict/1", "verdict/1/repair", "verdict/1/small"]);
        // The caller shortens a prompt that does not fit by itself.
        let caller = Scripted::in_turn(&["no"]).failing_at(1, too_long.clone());
        assert_eq!(judge(&caller).await.unwrap_err(), StructuredError::Call(too_long));
        assert_eq!(caller.keys().len(), 1);
    }

    #[tokio::test]
    async fn failed_call_ends_the_ladder() {
        let caller = Scripted::in_turn(&["no"]);
        assert_eq!(judge(&caller).await.unwrap_err(), StructuredError::Call(CallError::Limit(Limit::Tokens)));
        assert_eq!(caller.keys().len(), 2);
    }

    #[tokio::test]
    async fn form_of_the_user_binds_and_nonsense_is_refused_before_any_call() {
        let schema = json!({ "type": "object", "properties": { "year": { "type": "integer", "minimum": 1900 } }, "required": ["year"] });
        let caller = Scripted::in_turn(&[r#"{"year": 12}"#, r#"{"year": 1912}"#]);
        let value = structured_value(&caller, &CallKey::new("answer"), &prompt(), "answer", &schema).await.unwrap();
        assert_eq!(value, json!({ "year": 1912 }));

        for nonsense in [json!({ "type": "sentence" }), json!({ "$ref": "https://elsewhere.example/schema.json" })] {
            let caller = Scripted::in_turn(&[]);
            let outcome = structured_value(&caller, &CallKey::new("answer"), &prompt(), "answer", &nonsense).await;
            assert!(matches!(outcome, Err(StructuredError::Schema { .. })), "{nonsense}");
            assert!(caller.keys().is_empty());
        }
    }
}
