//! Builds the body of a request from a prompt.

use std::borrow::Cow;

use async_openai::types::chat::{
    ChatCompletionRequestAssistantMessage, ChatCompletionRequestMessage, ChatCompletionRequestSystemMessage,
    ChatCompletionRequestUserMessage, CreateChatCompletionRequest, ResponseFormat,
};
use async_openai::types::responses::{
    CreateResponse, EasyInputContent, EasyInputMessage, InputItem, InputParam, MessageType, Reasoning,
    ResponseFormatJsonSchema, ResponseTextParam, Role as InputRole, TextResponseFormatConfiguration,
};
use serde::Serialize;
use serde_json::Value;

use super::{Api, OpenAiSettings, SchemaSupport};
use crate::llm::message::{Message, Prompt, Speaker};
use crate::llm::schema;

/// Maximum length of a schema name, set by OpenAI.
const MAX_NAME: usize = 64;

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Body {
    Responses(Box<CreateResponse>),
    Chat(Box<CreateChatCompletionRequest>),
}

/// Returns the request body for `prompt`.
pub(super) fn body(settings: &OpenAiSettings, prompt: &Prompt) -> Body {
    match settings.api {
        Api::Responses => Body::Responses(Box::new(responses(settings, prompt))),
        Api::Chat => Body::Chat(Box::new(chat(settings, prompt))),
    }
}

/// Returns the messages to send: with the schema as text if the endpoint does not support it as a parameter.
pub(super) fn told(support: SchemaSupport, prompt: &Prompt) -> Cow<'_, [Message]> {
    let form = match (&prompt.schema, support) {
        (None, _) | (_, SchemaSupport::Strict) => return Cow::Borrowed(&prompt.messages),
        (Some(form), SchemaSupport::Json | SchemaSupport::None) => form,
    };
    let rule =
        format!("Reply with one JSON object and nothing else. It must follow this JSON Schema:\n{}", form.schema);
    let mut messages = prompt.messages.clone();
    // Chat templates of local models accept only one system message, at the beginning.
    match messages.first_mut().filter(|message| message.speaker == Speaker::System) {
        Some(system) => system.text = format!("{}\n\n{rule}", system.text),
        None => messages.insert(0, Message { speaker: Speaker::System, text: rule }),
    }
    Cow::Owned(messages)
}

/// Returns the schema parameter and whether it is strict, or `None` if the schema is sent as text.
pub(super) fn sent_schema(support: SchemaSupport, prompt: &Prompt) -> Option<(Value, bool)> {
    let form = prompt.schema.as_ref().filter(|_| support == SchemaSupport::Strict)?;
    Some(schema::strict(&form.schema).map_or_else(|| (form.schema.clone(), false), |strict| (strict, true)))
}

fn json_schema(settings: &OpenAiSettings, prompt: &Prompt) -> Option<ResponseFormatJsonSchema> {
    let (schema, is_strict) = sent_schema(settings.schema, prompt)?;
    let name = prompt.schema.as_ref()?.name.chars().take(MAX_NAME).collect();
    Some(ResponseFormatJsonSchema { description: None, name, schema, strict: Some(is_strict) })
}

fn wants_object(settings: &OpenAiSettings, prompt: &Prompt) -> bool {
    prompt.schema.is_some() && settings.schema == SchemaSupport::Json
}

fn max_tokens(settings: &OpenAiSettings, prompt: &Prompt) -> u32 {
    prompt.max_output_tokens.saturating_add(settings.reasoning_tokens)
}

fn temperature(settings: &OpenAiSettings, prompt: &Prompt) -> Option<f32> {
    settings.temperature.or(prompt.temperature.filter(|_| !settings.reasons))
}

/// Returns the key by which OpenAI routes requests that begin alike to the same cache. Other servers cache without one,
/// and strict ones refuse parameters they do not know.
fn cache_key(settings: &OpenAiSettings, prompt: &Prompt) -> Option<String> {
    prompt.cache_key.clone().filter(|_| settings.address.host().ends_with("openai.com"))
}

fn responses(settings: &OpenAiSettings, prompt: &Prompt) -> CreateResponse {
    let format = match json_schema(settings, prompt) {
        Some(schema) => Some(TextResponseFormatConfiguration::JsonSchema(schema)),
        None => wants_object(settings, prompt).then_some(TextResponseFormatConfiguration::JsonObject),
    };
    let message = |message: &Message| {
        InputItem::EasyMessage(EasyInputMessage {
            r#type: MessageType::Message,
            role: match message.speaker {
                Speaker::System => InputRole::System,
                Speaker::User => InputRole::User,
                Speaker::Assistant => InputRole::Assistant,
            },
            content: EasyInputContent::Text(message.text.clone()),
            phase: None,
        })
    };
    CreateResponse {
        model: Some(settings.model.clone()),
        input: InputParam::Items(told(settings.schema, prompt).iter().map(message).collect()),
        max_output_tokens: Some(max_tokens(settings, prompt)),
        reasoning: settings.effort.clone().map(|effort| Reasoning { effort: Some(effort), ..Reasoning::default() }),
        temperature: temperature(settings, prompt),
        text: format.map(|format| ResponseTextParam { format, verbosity: None }),
        // Prompts contain text of the user's files, which the provider must not store.
        store: Some(false),
        prompt_cache_key: cache_key(settings, prompt),
        ..CreateResponse::default()
    }
}

fn chat(settings: &OpenAiSettings, prompt: &Prompt) -> CreateChatCompletionRequest {
    let response_format = match json_schema(settings, prompt) {
        Some(json_schema) => Some(ResponseFormat::JsonSchema { json_schema }),
        None => wants_object(settings, prompt).then_some(ResponseFormat::JsonObject),
    };
    let message = |message: &Message| -> ChatCompletionRequestMessage {
        let text = message.text.clone();
        match message.speaker {
            Speaker::System => ChatCompletionRequestSystemMessage::from(text).into(),
            Speaker::User => ChatCompletionRequestUserMessage::from(text).into(),
            Speaker::Assistant => ChatCompletionRequestAssistantMessage::from(text).into(),
        }
    };
    let max_tokens = max_tokens(settings, prompt);
    let is_openai = settings.address.host().ends_with("openai.com");
    // OpenAI's reasoning models accept only the new name, many other servers only the old one.
    #[allow(deprecated, reason = "the old name is what local servers know")]
    CreateChatCompletionRequest {
        model: settings.model.clone(),
        messages: told(settings.schema, prompt).iter().map(message).collect(),
        max_completion_tokens: is_openai.then_some(max_tokens),
        max_tokens: (!is_openai).then_some(max_tokens),
        reasoning_effort: settings.effort.clone(),
        temperature: temperature(settings, prompt),
        response_format,
        prompt_cache_key: cache_key(settings, prompt),
        ..CreateChatCompletionRequest::default()
    }
}
