//! A prompt becomes a value of a given form: parsed, checked, and repaired once.

use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::{CallError, CallKey, Caller};
use super::message::{Message, Prompt, Speaker};

/// No value came of a prompt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StructuredError {
    /// The call was not made, or brought no reply.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The reply has not the form it must have, even after repair.
    #[error("reply cannot be used: {complaint}")]
    Invalid {
        /// What is wrong with it.
        complaint: String,
    },
}

/// Returns the reply to a prompt as a `T` that passes `check`; a reply that does not is shown its complaint, once.
pub async fn structured<T: DeserializeOwned + JsonSchema>(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: Prompt,
    name: &str,
    check: &(dyn Fn(&T) -> Result<(), String> + Sync),
) -> Result<T, StructuredError> {
    let prompt = prompt.with_schema(name, schema_for!(T).to_value());
    let parse = |text: &str| {
        let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
        check(&value).map(|()| value)
    };
    asked(caller, key, prompt, &parse).await
}

/// Returns the reply to a prompt as JSON that satisfies `schema`; a reply that does not is shown its complaint, once.
pub async fn structured_value(
    caller: &dyn Caller,
    key: &CallKey,
    prompt: Prompt,
    name: &str,
    schema: &Value,
) -> Result<Value, StructuredError> {
    let validator = jsonschema::validator_for(schema)
        .map_err(|error| StructuredError::Invalid { complaint: format!("schema cannot be used: {error}") })?;
    let parse = |text: &str| {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        validator.validate(&value).map_err(|error| error.to_string())?;
        Ok(value)
    };
    asked(caller, key, prompt.with_schema(name, schema.clone()), &parse).await
}

async fn asked<T>(
    caller: &dyn Caller,
    key: &CallKey,
    mut prompt: Prompt,
    parse: &(dyn Fn(&str) -> Result<T, String> + Sync),
) -> Result<T, StructuredError> {
    let text = caller.call(key, &prompt).await?.text;
    let complaint = match parse(&text) {
        Ok(value) => return Ok(value),
        Err(complaint) => complaint,
    };
    let repair = format!("That reply cannot be used: {complaint}. Reply again, in the form that was asked for.");
    prompt.messages.push(Message { speaker: Speaker::Assistant, text });
    prompt.messages.push(Message { speaker: Speaker::User, text: repair });
    let text = caller.call(&key.then("repair"), &prompt).await?.text;
    parse(&text).map_err(|complaint| StructuredError::Invalid { complaint })
}
