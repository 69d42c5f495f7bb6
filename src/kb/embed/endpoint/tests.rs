//! Endpoints against a server on loopback that behaves as OpenAI, Ollama, Text Embeddings Inference and llama.cpp do,
//! or fails. The clock advances only when a task sleeps.

use std::time::Duration;

use serde_json::{Value, json};

use super::meter::OverLimit;
use super::*;
use crate::base::clock::{ManualClock, Moment};
use crate::base::environment::Environment;
use crate::model_server::{ModelServer, Request, Response};

const DIMENSIONS: usize = 4;

fn options() -> EndpointOptions {
    EndpointOptions { dimensions: Some(DIMENSIONS), ..EndpointOptions::default() }
}

fn on(server: &ModelServer, options: EndpointOptions, clock: &Arc<ManualClock>) -> Endpoint {
    let options = EndpointOptions { base_url: Some(server.url()), ..options };
    let settings = options.resolve("mine", &Environment::of([("MY_KEY", "sk-very-secret")]), None).unwrap();
    Endpoint::new(settings, false, Some(1), Arc::clone(clock) as Arc<dyn Clock>).unwrap()
}

fn endpoint(server: &ModelServer, options: EndpointOptions) -> Endpoint {
    on(server, options, &Arc::default())
}

/// A vector that depends on the text, with `dimensions` components.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let hash = blake3::hash(text.as_bytes());
    hash.as_bytes()[..dimensions].iter().map(|byte| f32::from(*byte) + 1.0).collect()
}

fn unit(text: &str) -> Vec<f32> {
    normalised(vector(text, DIMENSIONS)).unwrap()
}

fn texts(request: &Request) -> Vec<String> {
    request.json["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Returns the vectors of a request in the form of OpenAI, the last one first.
fn answered(request: &Request) -> Response {
    let mut data: Vec<_> = texts(request)
        .iter()
        .enumerate()
        .map(|(index, text)| json!({ "object": "embedding", "index": index, "embedding": vector(text, DIMENSIONS) }))
        .collect();
    data.reverse();
    Response::json(200, &json!({ "data": data, "usage": { "prompt_tokens": 5 * data.len() } }))
}

fn refused(status: u16, message: &str) -> Response {
    Response::json(status, &json!({ "error": { "message": message } }))
}

fn source(error: EmbedError) -> EmbeddingServerError {
    match error {
        EmbedError::Endpoint { source, .. } => *source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn vectors_are_in_the_order_of_the_texts_whatever_the_order_of_requests_and_replies() {
    let server = ModelServer::start(answered);
    let prefixed = EndpointOptions {
        batch: Some(2),
        passage_prefix: Some("passage: ".into()),
        query_prefix: Some("query: ".into()),
        ..options()
    };
    let endpoint = endpoint(&server, prefixed);
    let given: Vec<_> = (0..7).map(|number| format!("text {number}")).collect();
    let given: Vec<_> = given.iter().map(String::as_str).collect();
    let expected: Vec<_> = given.iter().map(|text| unit(&format!("passage: {text}"))).collect();
    assert_eq!(endpoint.embed_passages(&given).unwrap(), expected);
    assert_eq!(endpoint.embed_query("text 1").unwrap(), unit("query: text 1"));
    let requests = server.requests();
    assert_eq!(requests.len(), 5);
    for request in &requests {
        assert_eq!((request.path.as_str(), request.json["model"].as_str()), ("/v1/embeddings", Some("mine")));
        assert_eq!(request.json["encoding_format"], "float");
        assert!(texts(request).len() <= 2 && request.json.get("dimensions").is_none(), "{}", request.json);
        assert!(!request.headers.contains_key("authorization"));
    }
    assert_eq!(endpoint.sent(), Sent { tokens: 40, cost_nanos: Some(0), shortened: 0 });
}

#[test]
fn reply_without_indices_is_in_the_order_of_the_texts() {
    let server = ModelServer::start(|request| {
        let data: Vec<_> = texts(request).iter().map(|text| json!({ "embedding": vector(text, DIMENSIONS) })).collect();
        Response::json(200, &json!({ "data": data }))
    });
    let endpoint = endpoint(&server, options());
    assert_eq!(endpoint.embed_passages(&["a", "b"]).unwrap(), [unit("a"), unit("b")]);
    assert!(endpoint.sent().tokens > 0, "a server that reports nothing is charged what was set aside");
}

#[test]
fn long_vectors_are_shortened_by_the_server_or_here_if_the_settings_say_so_and_else_refused() {
    let server = ModelServer::start(|request| {
        let dimensions = request.json["dimensions"].as_u64().map_or(8, |wanted| usize::try_from(wanted).unwrap());
        let data: Vec<_> = texts(request).iter().map(|text| json!({ "embedding": vector(text, dimensions) })).collect();
        Response::json(200, &json!({ "data": data }))
    });
    for shorten in [Shorten::Server, Shorten::Here] {
        let endpoint = endpoint(&server, EndpointOptions { shorten: Some(shorten), ..options() });
        let found = endpoint.embed_query("a").unwrap();
        assert_eq!(found, unit("a"), "{shorten:?}");
    }
    assert_eq!(server.requests()[0].json["dimensions"], 4);
    assert_eq!(server.requests()[1].json["dimensions"], Value::Null);
    let error = endpoint(&server, options()).embed_query("a").unwrap_err();
    assert!(error.hint().unwrap().contains("shorten = \"here\""), "{error:?}");
    assert_eq!(source(error), EmbeddingServerError::WrongDimensions { found: 8, expected: 4 });
}

#[test]
fn busy_server_is_asked_again_when_it_wants_and_a_refusal_is_not_repeated() {
    let server = ModelServer::start(|request| match request.number {
        1 => refused(429, "slow down").with_header("Retry-After", "7"),
        2 => refused(503, "loading"),
        _ => answered(request),
    });
    let clock = Arc::new(ManualClock::at(Moment(0)));
    let endpoint = on(&server, options(), &clock);
    assert_eq!(endpoint.embed_passages(&["a"]).unwrap(), [unit("a")]);
    let waited = clock.now().since(Moment(0));
    assert!((7_000..=9_000).contains(&waited.as_millis()), "{waited:?}");
    assert_eq!((server.count(), endpoint.sent().tokens), (3, 5), "a refused request costs nothing");
    for (response, expected) in [
        (refused(401, "who are you"), EmbeddingServerError::Key { status: 401 }),
        (refused(402, "no money"), EmbeddingServerError::Quota { status: 402 }),
        (refused(429, "You exceeded your current quota"), EmbeddingServerError::Quota { status: 429 }),
        (refused(404, "no such model"), EmbeddingServerError::Refused { status: 404, reason: "no such model".into() }),
        (Response::text(400, "<html>"), {
            EmbeddingServerError::Refused { status: 400, reason: "the server does not say why".into() }
        }),
    ] {
        let server = ModelServer::always(response);
        let error = self::endpoint(&server, options()).embed_passages(&["a"]).unwrap_err();
        assert_eq!((source(error), server.count()), (expected, 1));
    }
}

#[test]
fn server_that_stays_busy_is_given_up() {
    let server = ModelServer::always(refused(500, "broken"));
    let error = endpoint(&server, options()).embed_passages(&["a"]).unwrap_err();
    assert!(matches!(source(error), EmbeddingServerError::Busy { status: 500, .. }));
    assert_eq!(server.count(), 6);
}

#[test]
fn lost_reply_is_asked_for_twice_more_and_each_may_have_been_paid_for() {
    let lost: [fn() -> Response; 4] = [
        || Response::Drop,
        || Response::Reset,
        || Response::Truncated { body: "{\"data\": [".into() },
        || refused(504, "the server did not answer the gateway"),
    ];
    for lost in lost {
        let server = ModelServer::start(move |request| if request.number <= 2 { lost() } else { answered(request) });
        let once = endpoint(&server, options());
        assert_eq!(once.embed_passages(&["a few words"]).unwrap(), [unit("a few words")]);
        assert_eq!(server.count(), 3);
        assert!(once.sent().tokens > 5 + 2 * FRAME_TOKENS, "{:?}", once.sent());
        let server = ModelServer::start(move |_| lost());
        let error = source(endpoint(&server, options()).embed_passages(&["a"]).unwrap_err());
        assert!(matches!(error, EmbeddingServerError::NoReply { may_be_done: true, .. }), "{error:?}");
        assert_eq!(server.count(), 3);
    }
}

#[test]
fn server_that_does_not_answer_in_time_is_given_up() {
    let clock: Arc<ManualClock> = Arc::default();
    let late = Arc::clone(&clock);
    let server = ModelServer::start(move |_| {
        late.advance(Duration::from_secs(31));
        Response::Hang
    });
    let endpoint = on(&server, EndpointOptions { timeout_seconds: Some(30), ..options() }, &clock);
    let error = source(endpoint.embed_passages(&["a"]).unwrap_err());
    let expected = EmbeddingServerError::NoReply { reason: "no reply in time".into(), may_be_done: true };
    assert_eq!((error, server.count()), (expected, 3));
}

#[test]
fn reply_that_is_not_one_finite_vector_for_each_text_is_refused_and_not_asked_for_again() {
    let entry = |index: usize, embedding: Value| json!({ "index": index, "embedding": embedding });
    let good = json!([1.0, 2.0, 3.0, 4.0]);
    let of = |data: Vec<Value>| Response::json(200, &json!({ "data": data }));
    let cases = [
        (of(vec![entry(0, good.clone())]), "1 vectors for 2 texts"),
        (of(vec![entry(0, good.clone()), entry(0, good.clone())]), "two vectors are for the same text"),
        (of(vec![entry(0, good.clone()), entry(2, good.clone())]), "2 vectors for 2 texts"),
        (of(vec![entry(0, good.clone()), entry(1, good.clone()), entry(2, good.clone())]), "3 vectors for 2 texts"),
        (of(vec![entry(0, good.clone()), entry(1, json!([1.0, 2.0]))]), "2 dimensions, not 4"),
        (of(vec![entry(0, good.clone()), entry(1, json!([0.0, 0.0, 0.0, 0.0]))]), "zero or non-finite vector"),
        (of(vec![entry(0, good.clone()), entry(1, json!([1e39, 0.0, 0.0, 0.0]))]), "form of the API"),
        (of(vec![entry(0, good.clone()), entry(1, json!([null, 0.0, 0.0, 0.0]))]), "form of the API"),
        (of(vec![entry(0, good.clone()), entry(1, json!("AACAPwAAAEAAAEBA"))]), "form of the API"),
        (Response::text(200, "{\"data\": [{\"index\": 0, \"embedding\": [NaN, 1, 1, 1]}]}"), "form of the API"),
        (Response::text(200, "<html>"), "form of the API"),
        (Response::text(200, &" ".repeat(4_000_000)), "reply is larger than"),
    ];
    for (response, expected) in cases {
        let server = ModelServer::always(response);
        let error = source(endpoint(&server, options()).embed_passages(&["a", "b"]).unwrap_err()).to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
        assert_eq!(server.count(), 1, "{expected}");
    }
}

#[test]
fn batch_that_is_too_large_for_the_server_is_halved() {
    let server = ModelServer::start(|request| match texts(request).len() {
        3.. => refused(422, "batch size 5 > maximum allowed batch size 2"),
        _ => answered(request),
    });
    let given = ["a", "b", "c", "d", "e"];
    let found = endpoint(&server, options()).embed_passages(&given).unwrap();
    assert_eq!(found, given.map(unit));
}

#[test]
fn text_that_is_too_long_for_the_model_is_cut_and_counted() {
    let long = "word ".repeat(200);
    // The window of our settings: nothing longer is sent.
    let server = ModelServer::start(answered);
    let narrow = endpoint(&server, EndpointOptions { window_tokens: Some(64), ..options() });
    narrow.embed_passages(&["short", &long]).unwrap();
    let sent = texts(&server.requests()[0]);
    assert!(narrow.tokens().count(&sent[1]) <= 62 && sent[1].len() > 100 && long.starts_with(&sent[1]), "{sent:?}");
    assert_eq!(narrow.sent().shortened, 1);
    // The window of the server, which uses another tokenizer.
    let server = ModelServer::start(|request| match texts(request).iter().map(String::len).max() {
        Some(300..) => refused(400, "the input length exceeds the context length"),
        _ => answered(request),
    });
    let wide = endpoint(&server, options());
    assert_eq!(wide.embed_passages(&["short", &long, "other"]).unwrap().len(), 3);
    assert_eq!(wide.sent().shortened, 1);
    let server = ModelServer::always(refused(500, "input is too large to process. increase the physical batch size"));
    let error = source(endpoint(&server, options()).embed_passages(&[long.as_str()]).unwrap_err());
    assert!(matches!(error, EmbeddingServerError::TooLarge { status: 500, .. }), "{error:?}");
}

#[test]
fn empty_text_is_never_sent() {
    let server = ModelServer::start(answered);
    let endpoint = endpoint(&server, EndpointOptions { passage_prefix: Some("passage: ".into()), ..options() });
    assert_eq!(source(endpoint.embed_passages(&["a", " \n"]).unwrap_err()), EmbeddingServerError::EmptyText);
    assert_eq!(source(endpoint.embed_query("").unwrap_err()), EmbeddingServerError::EmptyText);
    assert_eq!(endpoint.embed_passages(&[]).unwrap(), Vec::<Vec<f32>>::new());
    assert_eq!(server.count(), 0);
}

#[test]
fn no_request_is_sent_that_could_pass_the_limit_and_what_was_made_before_is_returned() {
    let server = ModelServer::start(answered);
    // A thousand dollars for a million tokens: a tenth of a cent for one.
    let priced = EndpointOptions { price: Some(1_000.0), batch: Some(1), concurrency: Some(1), ..options() };
    let endpoint = endpoint(&server, priced);
    let poor = endpoint.within(Some(1_000_000)).unwrap();
    assert!(matches!(
        source(poor.embed_query("a").unwrap_err()),
        EmbeddingServerError::OverLimit(OverLimit { limit: 1_000_000, .. })
    ));
    assert_eq!(server.count(), 0);
    assert!(poor.check_cost(1).is_ok() && poor.check_cost(2).is_err());
    // The server reports five tokens for each text, and up to six are set aside.
    let limited = endpoint.within(Some(12_000_000)).unwrap();
    let Embedded { vectors, error } = limited.embed_until(&["a", "b", "c"], &CancellationToken::new());
    assert_eq!(vectors, [Some(unit("a")), Some(unit("b")), None]);
    assert!(matches!(source(error.unwrap()), EmbeddingServerError::OverLimit(_)));
    assert_eq!(limited.sent(), Sent { tokens: 10, cost_nanos: Some(10_000_000), shortened: 0 });
    assert_eq!(endpoint.sent().tokens, 0, "each copy counts for itself");
}

#[test]
fn failure_ends_the_work_and_keeps_the_vectors_that_were_made() {
    let server = ModelServer::start(|request| match texts(request)[0].as_str() {
        "c" => refused(404, "gone"),
        _ => answered(request),
    });
    let one_by_one = EndpointOptions { batch: Some(1), concurrency: Some(1), ..options() };
    let endpoint = endpoint(&server, one_by_one);
    let Embedded { vectors, error } = endpoint.embed_until(&["a", "b", "c", "d"], &CancellationToken::new());
    assert_eq!(vectors, [Some(unit("a")), Some(unit("b")), None, None]);
    assert_eq!(error.unwrap().to_string(), format!("no vectors of `mine` from {}", server.url()));
    assert_eq!(server.count(), 3);
}

#[test]
fn work_that_is_stopped_ends_without_an_error_and_waits_for_no_server() {
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let server = ModelServer::start(move |request| match texts(request)[0].as_str() {
        "b" => {
            stopping.cancel();
            Response::Hang
        }
        _ => answered(request),
    });
    let one_by_one = EndpointOptions { batch: Some(1), concurrency: Some(1), ..options() };
    let Embedded { vectors, error } = endpoint(&server, one_by_one).embed_until(&["a", "b", "c"], &stop);
    assert_eq!(vectors, [Some(unit("a")), None, None]);
    assert!(error.is_none() && server.count() == 2);
}

#[test]
fn key_is_sent_and_shown_nowhere() {
    let server = ModelServer::always(refused(400, "bad key sk-very-secret"));
    let keyed = endpoint(&server, EndpointOptions { key_env: Some("MY_KEY".into()), ..options() });
    let error = keyed.embed_query("a").unwrap_err();
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer sk-very-secret");
    let said = format!("{error:?} {}", crate::base::line::with_causes(&error));
    assert!(said.contains("[key]") && !said.contains("secret"), "{said}");
}

#[test]
fn server_that_fails_twice_is_not_asked_for_queries_for_a_while() {
    let server = ModelServer::always(refused(401, "no"));
    let endpoint = endpoint(&server, options());
    for _ in 0..4 {
        endpoint.embed_query("a").unwrap_err();
    }
    assert_eq!(server.count(), 2);
    assert!(matches!(source(endpoint.embed_query("a").unwrap_err()), EmbeddingServerError::Open(_)));
}

#[test]
fn query_that_is_refused_or_passes_the_limit_of_its_run_stops_no_other_query() {
    let server = ModelServer::start(|request| match texts(request)[0].as_str() {
        "bad" => refused(400, "no"),
        _ => answered(request),
    });
    let endpoint = endpoint(&server, EndpointOptions { price: Some(1_000.0), ..options() });
    let poor = endpoint.within(Some(1)).unwrap();
    for _ in 0..3 {
        assert!(matches!(source(poor.embed_query("a").unwrap_err()), EmbeddingServerError::OverLimit(_)));
        assert!(matches!(source(endpoint.embed_query("bad").unwrap_err()), EmbeddingServerError::Refused { .. }));
    }
    assert_eq!(endpoint.embed_query("a").unwrap(), unit("a"));
}

#[test]
fn fingerprint_changes_with_what_decides_the_vectors_and_not_with_the_server() {
    let fingerprint = |options: EndpointOptions, model: &str, address: &str| {
        let options = EndpointOptions { base_url: Some(address.to_owned()), ..options };
        let settings = options.resolve(model, &Environment::default(), None).unwrap();
        let endpoint = Endpoint::new(settings, true, None, Arc::new(ManualClock::default())).unwrap();
        endpoint.fingerprint().to_owned()
    };
    let here = "http://localhost:1/v1";
    let same = [
        fingerprint(options(), "mine", here),
        fingerprint(options(), "mine", "https://embed.example/v1"),
        fingerprint(EndpointOptions { price: Some(1.0), batch: Some(9), ..options() }, "mine", here),
        fingerprint(EndpointOptions { concurrency: Some(9), local: Some(true), ..options() }, "mine", here),
        fingerprint(EndpointOptions { languages: Some("en".parse().unwrap()), ..options() }, "mine", here),
    ];
    assert!(same.iter().all(|one| *one == same[0]), "{same:?}");
    let mut others = vec![
        same[0].clone(),
        fingerprint(options(), "other", here),
        fingerprint(EndpointOptions { dimensions: Some(8), ..options() }, "mine", here),
        fingerprint(EndpointOptions { shorten: Some(Shorten::Here), ..options() }, "mine", here),
        fingerprint(EndpointOptions { query_prefix: Some("q".into()), ..options() }, "mine", here),
        fingerprint(EndpointOptions { passage_prefix: Some("p".into()), ..options() }, "mine", here),
        fingerprint(EndpointOptions { window_tokens: Some(256), ..options() }, "mine", here),
    ];
    others.sort();
    others.dedup();
    assert_eq!(others.len(), 7);
}

#[test]
fn what_is_not_compared_with_the_index_stays_on_this_machine() {
    let server = ModelServer::start(answered);
    let endpoint = endpoint(&server, options());
    let companion = endpoint.companion().unwrap();
    assert!(companion.server().is_none() && companion.compares_tokens());
    companion.embed_query("a question").unwrap();
    assert_eq!(server.count(), 0);
}
