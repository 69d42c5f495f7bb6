use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::base::http::client_for;
use crate::base::token::Encoding;
use crate::llm::message::{Message, Role, Speaker};
use crate::llm::probe::probe;
use crate::model_server::{ModelServer, Response, chat_reply, responses_reply};

pub(crate) fn settings(server: &str, api: Api) -> OpenAiSettings {
    OpenAiSettings {
        model: "gpt-4o".into(),
        address: server.parse().unwrap(),
        api,
        key: Some("sk-test".parse().unwrap()),
        schema: SchemaSupport::Strict,
        window_tokens: 8_000,
        reasoning_tokens: 0,
        reasons: false,
        effort: None,
        temperature: None,
        timeout: Duration::from_secs(20),
        counter: TokenCounter::of(Encoding::O200k),
        price: Some(Price::FREE),
    }
}

/// The answer of llama.cpp to a schema that its grammar cannot express.
const REFUSED: &str = r#"{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar","type":"invalid_request_error"}}"#;

fn prompt() -> Prompt {
    Prompt::new(Role::Worker, "Be brief.", "What waters the beds?", 300)
}

fn with_schema() -> Prompt {
    let schema = json!({ "type": "object", "properties": { "what": { "type": "string" } }, "required": ["what"] });
    prompt().with_schema("answer", schema)
}

fn model(settings: OpenAiSettings) -> OpenAiModel {
    let client = client_for(&settings.address).unwrap();
    OpenAiModel::new(settings, client)
}

async fn send(settings: OpenAiSettings, prompt: &Prompt) -> Result<Reply, ModelError> {
    model(settings).send(prompt).await
}

/// Sends a prompt to a server that answers with `response`, once.
async fn outcome(response: Response, api: Api) -> Result<Reply, ModelError> {
    let server = ModelServer::always(response);
    let outcome = send(settings(&server.url(), api), &prompt()).await;
    assert_eq!(server.count(), 1, "a request is sent once");
    outcome
}

#[tokio::test]
async fn responses_api_is_asked_and_read() {
    let server = ModelServer::always(responses_reply("A valve.", 20, 3));
    let reply = send(settings(&server.url(), Api::Responses), &with_schema()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.cut_off), ("A valve.", false));
    assert_eq!(reply.usage, Some(Usage { input_tokens: 20, output_tokens: 3, ..Usage::default() }));
    assert_eq!(reply.raw["id"], "resp_1");

    let requests = server.requests();
    let request = &requests[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(request.headers["authorization"], "Bearer sk-test");
    assert!(request.headers["user-agent"].starts_with("dr/"));
    let expected = json!({
        "model": "gpt-4o",
        "input": [
            { "type": "message", "role": "system", "content": "Be brief." },
            { "type": "message", "role": "user", "content": "What waters the beds?" },
        ],
        "max_output_tokens": 300,
        "store": false,
        "text": { "format": {
            "type": "json_schema",
            "name": "answer",
            "schema": {
                "type": "object",
                "properties": { "what": { "type": "string" } },
                "required": ["what"],
                "additionalProperties": false,
            },
            "strict": true,
        } },
    });
    assert_eq!(request.json, expected);
}

#[test]
fn known_model_reasons_as_its_family_does() {
    for (model, is_reasoning, max_output_tokens) in [
        ("gpt-5-chat-latest", false, Some(16_384)),
        ("openai/gpt-5.4", true, Some(128_000)),
        ("gpt-4", false, Some(8_192)),
        ("gpt-4-0613", false, Some(8_192)),
        ("gpt-4-turbo-2024-04-09", false, Some(4_096)),
        ("gpt-4-1106-preview", false, Some(4_096)),
        ("gpt-4o-mini", false, Some(16_384)),
        ("gpt-oss:20b", true, None),
        ("qwen3:8b", false, None),
    ] {
        let known = known(model);
        assert_eq!(reasons(model), is_reasoning, "{model}");
        assert!(known.is_none_or(|known| known.reasons == is_reasoning), "{model}");
        assert_eq!(known.and_then(|known| known.max_output_tokens), max_output_tokens, "{model}");
    }
}

#[tokio::test]
async fn probe_shows_no_cost_if_a_reply_has_none() {
    let with_usage = chat_reply(r#"{"larger": 71, "numbers": [17, 71]}"#, 20, 3);
    let without = json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": "{}" }, "finish_reason": "stop" }] });
    for (second, is_known) in [(with_usage.clone(), true), (Response::json(200, &without), false)] {
        let first = with_usage.clone();
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let server = ModelServer::start(move |_| {
            if is_first.swap(false, std::sync::atomic::Ordering::SeqCst) { first.clone() } else { second.clone() }
        });
        let probe = probe(&model(settings(&server.url(), Api::Chat))).await;
        assert_eq!(probe.usage.map(|usage| usage.tokens()), is_known.then_some(46));
        assert_eq!(probe.cost_nanos, is_known.then_some(0));
    }
}

#[test]
fn only_openai_is_told_which_prompts_begin_alike() {
    let server = ModelServer::always(chat_reply("", 1, 1));
    let prompt = Prompt { cache_key: Some("k1".into()), ..prompt() };
    let addresses = [
        ("https://api.openai.com/v1", json!("k1")),
        ("https://notopenai.com/v1", Value::Null),
        (&*server.url(), Value::Null),
    ];
    for (address, key) in addresses {
        for api in [Api::Responses, Api::Chat] {
            let settings = OpenAiSettings { address: address.parse().unwrap(), ..settings(&server.url(), api) };
            let body = serde_json::to_value(request::body(&settings, settings.schema, &prompt)).unwrap();
            assert_eq!(body["prompt_cache_key"], key, "{address} {api:?}");
        }
    }
}

#[tokio::test]
async fn chat_completions_is_asked_and_read() {
    let server = ModelServer::always(chat_reply("<think>hm</think>A valve.", 20, 3));
    let mut settings = settings(&server.url(), Api::Chat);
    settings.key = None;
    let reply = send(settings, &with_schema()).await.unwrap();
    assert_eq!(reply.text, "A valve.");
    assert_eq!(reply.usage.unwrap().tokens(), 23);

    let requests = server.requests();
    let request = &requests[0];
    assert_eq!(request.path, "/v1/chat/completions");
    assert!(!request.headers.contains_key("authorization"), "no key, no header");
    assert_eq!(request.json["max_tokens"], 300);
    assert_eq!(request.json["response_format"]["json_schema"]["strict"], true);
    assert_eq!(request.json["messages"][1], json!({ "role": "user", "content": "What waters the beds?" }));
}

#[tokio::test]
async fn endpoint_without_schemas_is_told_the_schema_in_words_that_are_counted() {
    for (support, format) in
        [(SchemaSupport::Json, json!({ "type": "json_object" })), (SchemaSupport::None, Value::Null)]
    {
        let server = ModelServer::always(chat_reply("{}", 1, 1));
        let mut settings = settings(&server.url(), Api::Chat);
        settings.schema = support;
        let model = model(settings);
        model.send(&with_schema()).await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.json["response_format"], format);
        let system = request.json["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("Be brief.") && system.contains(r#""required":["what"]"#), "{system}");
        assert!(model.count_input(&with_schema()) > model.count_input(&prompt()) + 20);
    }
}

#[tokio::test]
async fn schema_without_a_strict_form_is_told_and_a_list_is_not_held_to_be_an_object() {
    let open = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let list = json!({ "type": "array", "items": { "type": "string" } });
    for (schema, format, rule) in
        [(open, json!({ "type": "json_object" }), "one JSON object"), (list, Value::Null, "one JSON value")]
    {
        let server = ModelServer::always(chat_reply("{}", 1, 1));
        let model = model(settings(&server.url(), Api::Chat));
        model.send(&prompt().with_schema("answer", schema.clone())).await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.json["response_format"], format);
        let system = request.json["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(rule) && system.contains(&schema.to_string()), "{system}");
    }
}

#[tokio::test]
async fn model_of_openai_gets_its_own_parameters_behind_a_gateway() {
    for (name, limit) in [("openai/gpt-5.4", "max_completion_tokens"), ("qwen3:8b", "max_tokens")] {
        let server = ModelServer::always(chat_reply("A valve.", 1, 1));
        let settings = OpenAiSettings { model: name.into(), ..settings(&server.url(), Api::Chat) };
        send(settings, &prompt()).await.unwrap();
        let body = server.requests().remove(0).json;
        assert_eq!(body[limit], 300, "{body}");
        let limits = ["max_completion_tokens", "max_tokens"].into_iter().filter(|key| !body[*key].is_null());
        assert_eq!(limits.count(), 1, "a strict endpoint refuses the other one: {body}");
    }
}

#[tokio::test]
async fn thinking_model_gets_room_to_think_and_no_temperature() {
    for api in [Api::Responses, Api::Chat] {
        let server = ModelServer::start(|request| request.reply("A valve.", 1, 1));
        let mut settings = settings(&server.url(), api);
        settings.reasoning_tokens = 2_000;
        settings.reasons = true;
        settings.effort = Some(Effort::Low);
        let warm = Prompt { temperature: Some(0.5), ..prompt() };
        let model = model(settings);
        assert_eq!(model.max_output(&warm), 2_300);
        model.send(&warm).await.unwrap();
        let body = server.requests().remove(0).json;
        let limit = if api == Api::Chat { &body["max_tokens"] } else { &body["max_output_tokens"] };
        assert_eq!(limit, 2_300);
        let effort = if api == Api::Chat { &body["reasoning_effort"] } else { &body["reasoning"]["effort"] };
        assert_eq!(effort, "low");
        assert_eq!(body.get("temperature"), None);
    }
}

#[tokio::test]
async fn usage_is_read_with_what_was_cached_and_thought() {
    let usage = json!({
        "prompt_tokens": 100, "completion_tokens": 40.0,
        "prompt_tokens_details": { "cached_tokens": 60 },
        "completion_tokens_details": { "reasoning_tokens": 30 },
    });
    let body =
        json!({ "choices": [{ "message": { "content": [{ "type": "text", "text": "A valve." }] } }], "usage": usage });
    let reply = outcome(Response::json(200, &body), Api::Chat).await.unwrap();
    assert_eq!(reply.text, "A valve.");
    let expected = Usage { input_tokens: 100, cached_tokens: 60, output_tokens: 40, reasoning_tokens: 30 };
    assert_eq!(reply.usage, Some(expected));

    let silent = json!({ "choices": [{ "message": { "content": "A valve." } }], "usage": { "prompt_tokens": 0, "completion_tokens": 0 } });
    assert_eq!(outcome(Response::json(200, &silent), Api::Chat).await.unwrap().usage, None);
}

#[tokio::test]
async fn reply_at_its_limit_is_cut_off() {
    let chat = json!({ "choices": [{ "message": { "content": "A" }, "finish_reason": "length" }] });
    assert!(outcome(Response::json(200, &chat), Api::Chat).await.unwrap().cut_off);
    let responses =
        json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" }, "output": [] });
    let reply = outcome(Response::json(200, &responses), Api::Responses).await.unwrap();
    assert!(reply.cut_off && reply.text.is_empty());
}

#[tokio::test]
async fn refusal_is_told_from_a_reply() {
    let part = json!({ "type": "refusal", "refusal": "I will not." });
    for (api, body) in [
        (Api::Responses, json!({ "status": "completed", "output": [{ "type": "message", "content": [part] }] })),
        (Api::Chat, json!({ "choices": [{ "message": { "content": null, "refusal": "I will not." } }] })),
    ] {
        let error = outcome(Response::json(200, &body), api).await.unwrap_err();
        assert_eq!(error, ModelError::Refused { reason: "I will not.".into() });
    }
    let filtered = json!({ "choices": [{ "message": { "content": "" }, "finish_reason": "content_filter" }] });
    assert!(matches!(outcome(Response::json(200, &filtered), Api::Chat).await, Err(ModelError::Refused { .. })));
}

#[tokio::test]
async fn refused_connection_is_transient() {
    let server = ModelServer::always(Response::Drop);
    let settings = settings(&server.url(), Api::Chat);
    drop(server);
    let error = send(settings, &prompt()).await.unwrap_err();
    assert!(matches!(error, ModelError::Transient { retry_after: None, .. }), "{error:?}");
}

#[tokio::test]
async fn request_without_an_answer_may_have_been_paid_for() {
    for response in [Response::Drop, Response::Truncated { body: "{\"choices\": [".into() }] {
        let error = outcome(response, Api::Chat).await.unwrap_err();
        assert!(matches!(error, ModelError::Unknown { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn answer_that_takes_too_long_may_have_been_paid_for() {
    let server = ModelServer::always(Response::Hang);
    let mut settings = settings(&server.url(), Api::Chat);
    settings.timeout = Duration::from_millis(300);
    let error = send(settings, &prompt()).await.unwrap_err();
    assert!(matches!(error, ModelError::Unknown { .. }), "{error:?}");
}

#[tokio::test]
async fn error_status_is_an_answer_and_its_advice_is_kept() {
    let busy = Response::text(503, "<html>busy</html>").with_header("Retry-After", "7");
    let error = outcome(busy, Api::Responses).await.unwrap_err();
    let retry_after = Some(Duration::from_secs(7));
    assert_eq!(error, ModelError::Transient { retry_after, reason: "status 503".into() });

    let busy = Response::text(429, "slow down").with_header("Retry-After", "3");
    let error = outcome(busy, Api::Responses).await.unwrap_err();
    assert_eq!(error, ModelError::RateLimited { retry_after: Some(Duration::from_secs(3)) });
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = ModelServer::always(chat_reply("A valve.", 1, 1));
    let redirect = Response::text(307, "").with_header("Location", &elsewhere.url());
    let error = outcome(redirect, Api::Chat).await.unwrap_err();
    assert!(matches!(error, ModelError::Permanent { .. }), "{error:?}");
    assert_eq!(elsewhere.received(), "", "neither key nor text went elsewhere");
}

#[tokio::test]
async fn failure_behind_a_successful_status_is_a_failure() {
    let limited = json!({ "message": "Rate limited", "code": 429 });
    let failed = |code: &str| json!({ "status": "failed", "error": { "code": code, "message": "oh" }, "output": [] });
    let paid = |mut body: Value, [input, output]: [&str; 2]| {
        body["usage"] = json!({ input: 9, output: 9 });
        body
    };
    for (body, class) in [
        (json!({ "error": limited }), "RateLimited"),
        (paid(json!({ "error": limited }), ["prompt_tokens", "completion_tokens"]), "Unknown"),
        (failed("server_error"), "Transient"),
        (paid(failed("server_error"), ["input_tokens", "output_tokens"]), "Unknown"),
        (failed("invalid_prompt"), "Permanent"),
        (json!({ "hello": "world" }), "Permanent"),
    ] {
        let error = outcome(Response::json(200, &body), Api::Responses).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(class), "{body} became {error:?}");
    }
    let page = outcome(Response::text(200, "<!doctype html>"), Api::Chat).await.unwrap_err();
    assert!(matches!(page, ModelError::Permanent { .. }), "{page:?}");
}

#[tokio::test]
async fn endless_reply_is_not_read_to_its_end() {
    let error = outcome(Response::text(200, &" ".repeat(MAX_REPLY_BYTES + 1)), Api::Chat).await.unwrap_err();
    assert!(matches!(&error, ModelError::Unknown { reason } if reason.contains("larger")), "{error:?}");
}

#[tokio::test]
async fn key_that_an_endpoint_repeats_is_taken_out() {
    let server =
        ModelServer::start(|request| Response::text(400, &format!("cannot read {}", request.headers["authorization"])));
    let error = send(settings(&server.url(), Api::Chat), &prompt()).await.unwrap_err().to_string();
    assert!(error.contains("[key]") && !error.contains("sk-test"), "{error}");
    let model = model(settings(&server.url(), Api::Chat));
    assert!(!format!("{model:?}").contains("sk-test"));
}

#[test]
fn prompt_is_counted_with_its_frames_and_schema() {
    let server = ModelServer::always(Response::Drop);
    let model = model(settings(&server.url(), Api::Responses));
    let empty = Prompt { messages: vec![], ..prompt() };
    let longer = Prompt { messages: vec![Message { speaker: Speaker::User, text: "word ".repeat(100) }], ..prompt() };
    assert!(model.count_input(&longer) >= model.count_input(&empty) + 100 + MESSAGE_TOKENS);
    assert!(model.count_input(&with_schema()) > model.count_input(&prompt()) + FRAME_TOKENS);
}

#[tokio::test]
async fn schema_that_the_endpoint_refuses_becomes_part_of_the_prompt_and_is_not_sent_again() {
    let server = ModelServer::start(|request| match request.json["response_format"]["type"].as_str() {
        Some("json_schema") => Response::text(400, REFUSED),
        _ => chat_reply(r#"{"what": "a valve"}"#, 1, 1),
    });
    let model = model(settings(&server.url(), Api::Chat));
    assert_eq!(model.refused_schema(), None);
    for _ in 0..2 {
        assert_eq!(model.send(&with_schema()).await.unwrap().text, r#"{"what": "a valve"}"#);
    }
    let formats: Vec<_> =
        server.requests().iter().map(|request| request.json["response_format"]["type"].clone()).collect();
    assert_eq!(formats, ["json_schema", "json_object", "json_object"]);
    let told = server.requests().remove(2).json["messages"].to_string();
    assert!(told.contains("It must follow this JSON Schema"), "{told}");
    assert!(model.refused_schema().unwrap().contains("failed to parse grammar"));

    let other = json!({ "type": "object", "properties": { "why": { "type": "string" } }, "required": ["why"] });
    model.send(&prompt().with_schema("answer", other)).await.unwrap();
    assert_eq!(server.count(), 5, "another schema may be enforced");
}

#[tokio::test]
async fn refusal_of_a_schema_that_counts_output_tokens_is_charged_before_the_prompt_is_sent_again() {
    let body = r#"{"error":{"code":400,"message":"failed to parse grammar"},"usage":{"prompt_tokens":9,"completion_tokens":9}}"#;
    let server = ModelServer::start(|request| match request.json["response_format"]["type"].as_str() {
        Some("json_schema") => Response::text(400, body),
        _ => chat_reply(r#"{"what": "a valve"}"#, 1, 1),
    });
    let model = model(settings(&server.url(), Api::Chat));
    let error = model.send(&with_schema()).await.unwrap_err();
    assert!(matches!(error, ModelError::Unknown { .. }), "{error:?}");
    assert_eq!(server.count(), 1, "the caller decides whether to pay for another request");
    assert_eq!(model.send(&with_schema()).await.unwrap().text, r#"{"what": "a valve"}"#);
}

#[tokio::test]
async fn endpoint_that_refuses_every_form_is_told_in_words_and_an_error_that_stays_is_returned() {
    let only_schemas = ModelServer::start(|request| match request.json["response_format"]["type"].as_str() {
        Some(_) => Response::text(400, r#"{"error":"'response_format.type' must be 'text'"}"#),
        None => chat_reply("{}", 1, 1),
    });
    send(settings(&only_schemas.url(), Api::Chat), &with_schema()).await.unwrap();
    assert_eq!(only_schemas.count(), 3);

    let stubborn = ModelServer::always(Response::text(400, r#"{"error":"no such schema"}"#));
    let error = send(settings(&stubborn.url(), Api::Chat), &with_schema()).await.unwrap_err();
    assert_eq!(error, ModelError::Permanent { reason: "status 400: no such schema".into() });
    assert_eq!(stubborn.count(), 3, "it ends once nothing is enforced");

    let other = ModelServer::always(Response::text(400, r#"{"error":"no such model"}"#));
    send(settings(&other.url(), Api::Chat), &with_schema()).await.unwrap_err();
    assert_eq!(other.count(), 1, "an error about something else is final");
}

#[test]
fn prompt_is_counted_for_the_case_that_its_schema_is_refused() {
    let server = ModelServer::always(Response::Drop);
    let counted =
        |schema| model(OpenAiSettings { schema, ..settings(&server.url(), Api::Chat) }).count_input(&with_schema());
    assert!(counted(SchemaSupport::Strict) >= counted(SchemaSupport::Json));
}

#[tokio::test]
async fn context_that_a_server_lists_is_known_before_the_first_call() {
    let meta = |tokens: u64| json!({ "n_ctx": tokens, "n_ctx_train": 131_072 });
    for (listed, window) in [
        (json!([{ "id": "gpt-4o", "meta": meta(2_048) }]), Some(2_048)),
        (json!([{ "id": "other", "meta": meta(4_096) }]), Some(4_096)),
        (json!([{ "id": "other", "meta": meta(1) }, { "id": "gpt-4o", "max_model_len": 8_192 }]), Some(8_192)),
        (json!([{ "id": "gpt-4o", "meta": null }]), None),
        (json!([]), None),
    ] {
        let server = ModelServer::always(chat_reply("ready", 1, 1)).with_models(200, json!({ "data": listed }));
        assert_eq!(model(settings(&server.url(), Api::Chat)).reach().await.unwrap(), window, "{listed}");
    }
}
