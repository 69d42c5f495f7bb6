use std::fs;

use serde_json::json;

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};

fn able(request: &Request) -> Response {
    fills_in(request, r#"{"larger": 71, "numbers": [17, 71]}"#, 90)
}

/// Replies with `form` where a form is asked for, counted as so many tokens of input.
fn fills_in(request: &Request, form: &str, tokens: u64) -> Response {
    match request.form() {
        Some(_) => request.reply(form, tokens, 12),
        None => request.reply("ready", 20, 1),
    }
}

/// Returns a world with `server` as the endpoint of all models.
fn world_at(server: &ModelServer, more: &str) -> World {
    let world = World::indexed_text();
    let settings = format!("model = \"gpt-4o\"\n[models]\nbase_url = \"{}\"\n{more}", server.url());
    world.set(&settings);
    world
}

/// Returns the model checks of `dr doctor`, as `status name: detail → fix`.
fn checks(world: &World) -> Vec<String> {
    let checkup = world.dr(["doctor", "--model", "--json"]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let checks = checkup["checks"].as_array().unwrap().iter();
    let checks = checks.filter(|check| check["name"].as_str().unwrap().starts_with("model"));
    checks
        .map(|check| {
            let [status, name, detail, mend] = ["status", "name", "detail", "mend"].map(|key| text(&check[key]));
            format!("{status} {name}: {detail} → {mend}")
        })
        .collect()
}

#[test]
fn capable_endpoint_passes_with_two_requests() {
    let server = ModelServer::start(able);
    let world = world_at(&server, "");
    let checks = checks(&world);
    assert!(
        checks[0].contains("(planner, worker, summariser, judge, writer) answers; this took 123 tokens"),
        "{checks:#?}"
    );
    assert_eq!(checks[1], "ok model schema: replies keep to it → -");
    assert!(checks[2].starts_with("ok model tokens: 90 where dr counts"), "{checks:#?}");
    assert_eq!((checks.len(), server.count()), (3, 2));
}

#[test]
fn endpoint_that_refuses_schemas_is_noted_with_the_setting_that_saves_the_requests() {
    let server = ModelServer::start(|request| {
        let format = request.json["response_format"]["type"].as_str();
        match format {
            Some("json_schema") => Response::text(400, r#"{"error": {"message": "response_format is not supported"}}"#),
            Some(_) => request.reply(r#"{"larger": 71, "numbers": [17, 71]}"#, 90, 12),
            None => request.reply("ready", 20, 1),
        }
    });
    let checks = checks(&world_at(&server, "[prices.\"gpt-4o\"]\ninput = 2.5\noutput = 10.0\n"));
    assert!(checks[0].ends_with("this took 123 tokens and $0.000405 → -"), "{checks:#?}");
    assert!(checks[1].starts_with("note model schema: is not enforced and becomes part of the prompt"), "{checks:#?}");
    assert!(checks[1].contains("response_format is not supported → set `schema = \"json\"`"), "{checks:#?}");
    assert_eq!(server.count(), 3);
}

#[test]
fn server_with_a_smaller_context_than_is_set_is_named_by_doctor_and_before_each_run() {
    // As llama.cpp lists its model.
    let meta = json!({ "n_ctx": 2_048, "n_ctx_train": 131_072, "n_params": 64_000 });
    let list = json!({ "object": "list", "data": [{ "id": "gpt-4o", "owned_by": "llamacpp", "meta": meta }] });
    let server = ModelServer::start(able).with_models(200, list);
    let world = world_at(&server, "");
    let said = format!("`gpt-4o` has a context of 2048 tokens at {}, not of ", server.url());
    let checks = checks(&world);
    let window = checks.iter().find(|check| check.starts_with("trouble model window")).unwrap();
    assert!(window.contains(&said) && window.contains("→ set `window_tokens = 2048`"), "{window}");

    for _ in 0..2 {
        let run = world.dr(["ask", "--fresh", "--mode", "quick", "--max-cost", "inf", "When does the siren sound?"]);
        assert!(run.stderr.contains(&said), "{run}");
    }
    let settings = world.settings_file();
    let unset = fs::read_to_string(&settings).unwrap();
    let too_small = format!("a context of 2048 tokens leaves `gpt-4o` at {} no room for passages", server.url());
    for (set, expected) in [("window_tokens = 2048\n", &too_small), ("", &said)] {
        fs::write(&settings, format!("{unset}{set}")).unwrap();
        let run = world.dr(["ask", "--fresh", "--mode", "quick", "--max-cost", "inf", "When does the siren sound?"]);
        assert!(run.stderr.contains(expected), "{run}");
        assert_eq!(run.stderr.matches("has a context of").count(), usize::from(set.is_empty()), "{run}");
    }
}

#[test]
fn server_that_leaves_the_schema_out_of_its_count_does_not_cut_prompts() {
    // llama.cpp counts the messages, which are a fourth of the request.
    let server = ModelServer::start(|request| fills_in(request, r#"{"larger": 71, "numbers": [17, 71]}"#, 43));
    let checks = checks(&world_at(&server, ""));
    assert!(checks[2].starts_with("ok model tokens: 43 where dr counts at most "), "{checks:#?}");
}

#[test]
fn model_that_keeps_to_the_schema_and_answers_wrongly_is_noted() {
    let server = ModelServer::start(|request| fills_in(request, r#"{"larger": 17, "numbers": []}"#, 90));
    let checks = checks(&world_at(&server, ""));
    assert!(
        checks[1].starts_with("note model schema: replies match the schema, but the answer is wrong"),
        "{checks:#?}"
    );
}

#[test]
fn rejected_key_is_a_problem_and_is_not_printed() {
    let server = ModelServer::always(Response::text(401, "{}"));
    let world = world_at(&server, "key_env = \"MY_KEY\"\n").with_variable("MY_KEY", "sk-mine");
    let run = world.dr(["doctor", "--model"]);
    assert_eq!(run.exit, Some(1));
    assert!(server.received().contains("sk-mine"), "the key goes to its endpoint");
    assert!(run.stdout.contains("refused the key") && !run.to_string().contains("sk-mine"), "{run}");
}

#[test]
fn openai_key_is_not_sent_to_another_endpoint() {
    let server = ModelServer::start(able);
    let world = world_at(&server, "").with_variable("OPENAI_API_KEY", "sk-openai");
    world.dr(["doctor", "--model"]).succeeded();
    assert_eq!(server.count(), 2);
    assert!(!server.received().contains("sk-openai"));
}

#[test]
fn no_request_is_sent_offline_or_without_a_model() {
    let server = ModelServer::start(able);
    let world = world_at(&server, "").with_variable("DR_OFFLINE", "1");
    assert_eq!(checks(&world), ["note model: not asked, since dr is offline → -"]);
    assert_eq!(server.count(), 0);
    assert!(checks(&World::indexed_text())[0].starts_with("note model: none configured"));
}

#[test]
fn setting_that_the_model_does_not_take_is_refused_by_config() {
    let server = ModelServer::start(able);
    for (setting, said) in [
        ("effort = \"low\"", "`gpt-4o` (planner) does not take `effort`: it does not reason"),
        ("max_output_tokens = 20000", "its replies have at most 16384 tokens"),
        ("[models.judge]\nmodel = \"gpt-5.4\"\ntemperature = 0.2", "`gpt-5.4` (judge) does not take `temperature`"),
    ] {
        let run = world_at(&server, &format!("{setting}\n")).dr(["config"]);
        assert_eq!((run.exit, server.count()), (Some(2), 0), "{run}");
        assert!(run.stderr.contains(said) && run.stderr.contains("hint: change `"), "{run}");
    }
    world_at(&server, "temperature = 0.2\n").dr(["config"]).succeeded();
}
