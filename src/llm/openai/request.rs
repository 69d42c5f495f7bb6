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

use super::{Api, OpenAiSettings, SchemaSupport, known};
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

/// Returns the request body for `prompt`, with its schema enforced as far as `support` goes.
pub(super) fn body(settings: &OpenAiSettings, support: SchemaSupport, prompt: &Prompt) -> Body {
    match settings.api {
        Api::Responses => Body::Responses(Box::new(responses(settings, support, prompt))),
        Api::Chat => Body::Chat(Box::new(chat(settings, support, prompt))),
    }
}

/// How the reply to a prompt is made to follow its schema.
#[derive(PartialEq)]
enum Enforced {
    /// The endpoint enforces this strict form.
    Strict(Value),
    /// The endpoint enforces a JSON object; the schema is part of the prompt.
    Object,
    /// The schema is part of the prompt only.
    PromptOnly,
}

/// Returns how a schema is enforced; `None` without one.
///
/// A schema without a strict form is not sent as a parameter, because endpoints refuse it as a whole. JSON mode rules
/// out every value but an object, so a schema of another type is only part of the prompt.
fn enforced(support: SchemaSupport, prompt: &Prompt) -> Option<Enforced> {
    let form = &prompt.schema.as_ref()?.schema;
    let loose = if is_of_objects(form) { Enforced::Object } else { Enforced::PromptOnly };
    Some(match support {
        SchemaSupport::Strict => schema::strict(form).map_or(loose, Enforced::Strict),
        SchemaSupport::Json => loose,
        SchemaSupport::None => Enforced::PromptOnly,
    })
}

/// Returns the next looser support for the schema of a prompt that changes the request; `None` if nothing is enforced.
pub(super) fn looser(support: SchemaSupport, prompt: &Prompt) -> Option<SchemaSupport> {
    let now = enforced(support, prompt)?;
    let looser: &[SchemaSupport] = match support {
        SchemaSupport::Strict => &[SchemaSupport::Json, SchemaSupport::None],
        SchemaSupport::Json => &[SchemaSupport::None],
        SchemaSupport::None => &[],
    };
    looser.iter().copied().find(|support| enforced(*support, prompt).is_some_and(|then| then != now))
}

fn is_of_objects(schema: &Value) -> bool {
    schema.get("type").is_none_or(|kind| kind == "object")
}

/// Returns the messages to send: with the schema as text unless it is sent as a parameter.
pub(super) fn told(support: SchemaSupport, prompt: &Prompt) -> Cow<'_, [Message]> {
    let form = match (enforced(support, prompt), &prompt.schema) {
        (None | Some(Enforced::Strict(_)), _) | (_, None) => return Cow::Borrowed(&prompt.messages),
        (Some(Enforced::Object | Enforced::PromptOnly), Some(form)) => &form.schema,
    };
    let kind = if is_of_objects(form) { "object" } else { "value" };
    let rule = format!("Reply with one JSON {kind} and nothing else. It must follow this JSON Schema:\n{form}");
    let mut messages = prompt.messages.clone();
    // Chat templates of local models accept only one system message, at the beginning.
    match messages.first_mut().filter(|message| message.speaker == Speaker::System) {
        Some(system) => system.text = format!("{}\n\n{rule}", system.text),
        None => messages.insert(0, Message { speaker: Speaker::System, text: rule }),
    }
    Cow::Owned(messages)
}

/// Returns the schema parameter, or `None` if the schema is sent as text.
pub(super) fn sent_schema(support: SchemaSupport, prompt: &Prompt) -> Option<Value> {
    match enforced(support, prompt)? {
        Enforced::Strict(schema) => Some(schema),
        Enforced::Object | Enforced::PromptOnly => None,
    }
}

fn json_schema(prompt: &Prompt, schema: Value) -> ResponseFormatJsonSchema {
    let name = prompt.schema.iter().flat_map(|form| form.name.chars()).take(MAX_NAME).collect();
    ResponseFormatJsonSchema { description: None, name, schema, strict: Some(true) }
}

fn max_tokens(settings: &OpenAiSettings, prompt: &Prompt) -> u32 {
    // Endpoints limit the whole output, of which the reasoning comes first.
    prompt.max_output_tokens.saturating_add(settings.reasoning_tokens)
}

fn temperature(settings: &OpenAiSettings, prompt: &Prompt) -> Option<f32> {
    // Models that reason refuse one. The one that the user sets is sent as it is: the model may not be known here.
    settings.temperature.or(prompt.temperature.filter(|_| !settings.reasons))
}

/// Returns the key by which OpenAI routes requests that begin alike to the same cache. Other servers cache without one,
/// and strict ones refuse parameters they do not know.
fn cache_key(settings: &OpenAiSettings, prompt: &Prompt) -> Option<String> {
    prompt.cache_key.clone().filter(|_| settings.address.is_openai())
}

fn responses(settings: &OpenAiSettings, support: SchemaSupport, prompt: &Prompt) -> CreateResponse {
    let format = match enforced(support, prompt) {
        Some(Enforced::Strict(schema)) => {
            Some(TextResponseFormatConfiguration::JsonSchema(json_schema(prompt, schema)))
        }
        Some(Enforced::Object) => Some(TextResponseFormatConfiguration::JsonObject),
        Some(Enforced::PromptOnly) | None => None,
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
        input: InputParam::Items(told(support, prompt).iter().map(message).collect()),
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

fn chat(settings: &OpenAiSettings, support: SchemaSupport, prompt: &Prompt) -> CreateChatCompletionRequest {
    let response_format = match enforced(support, prompt) {
        Some(Enforced::Strict(schema)) => Some(ResponseFormat::JsonSchema { json_schema: json_schema(prompt, schema) }),
        Some(Enforced::Object) => Some(ResponseFormat::JsonObject),
        Some(Enforced::PromptOnly) | None => None,
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
    // OpenAI's reasoning models accept only the new name, behind a gateway too; many other servers only the old one.
    let is_openai = settings.address.is_openai() || known(&settings.model).is_some_and(|known| known.reasons);
    #[allow(deprecated, reason = "the old name is what local servers know")]
    CreateChatCompletionRequest {
        model: settings.model.clone(),
        messages: told(support, prompt).iter().map(message).collect(),
        max_completion_tokens: is_openai.then_some(max_tokens),
        max_tokens: (!is_openai).then_some(max_tokens),
        reasoning_effort: settings.effort.clone(),
        temperature: temperature(settings, prompt),
        response_format,
        prompt_cache_key: cache_key(settings, prompt),
        ..CreateChatCompletionRequest::default()
    }
}
