//! Vectors are made by a server on loopback that behaves as OpenAI, Ollama, Text Embeddings Inference and llama.cpp do, or
//! fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::outside::set;

const QUERY: &str = "when are the valves closed at night";

/// Settings of the model that every test uses; its prefixes tell queries from passages.
const MODEL: &str = "dimensions = 64\nquery_prefix = \"q: \"\npassage_prefix = \"p: \"\n";

const DIMENSIONS: usize = 64;

fn texts(request: &Request) -> Vec<String> {
    let texts = request.json["input"].as_array().expect("texts are sent as a list").iter();
    texts.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A vector by the words of a text, so that texts with the same words are similar.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.01; dimensions];
    for word in text.to_lowercase().split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 2) {
        vector[usize::from(blake3::hash(word.as_bytes()).as_bytes()[0]) % dimensions] += 1.0;
    }
    vector
}

fn words(request: &Request) -> usize {
    texts(request).iter().map(|text| text.split_whitespace().count()).sum()
}

/// As OpenAI answers; the order of the vectors is not that of the texts.
fn openai(request: &Request) -> Response {
    let entry = |(index, text): (usize, &String)| json!({ "object": "embedding", "index": index, "embedding": vector(text, DIMENSIONS) });
    let mut data: Vec<_> = texts(request).iter().enumerate().map(entry).collect();
    data.reverse();
    let usage = json!({ "prompt_tokens": words(request), "total_tokens": words(request) });
    Response::json(200, &json!({ "object": "list", "data": data, "model": "m", "usage": usage }))
}

/// As Ollama answers, which has long vectors only.
fn ollama(request: &Request) -> Response {
    let entry = |(index, text): (usize, &String)| {
        let long = [vector(text, DIMENSIONS), vec![0.5; 32]].concat();
        json!({ "object": "embedding", "embedding": long, "index": index })
    };
    let data: Vec<_> = texts(request).iter().enumerate().map(entry).collect();
    let usage = json!({ "prompt_tokens": words(request), "total_tokens": words(request) });
    Response::json(200, &json!({ "object": "list", "data": data, "model": "m", "usage": usage }))
}

/// As Text Embeddings Inference answers, which takes a few texts at a time.
fn tei(request: &Request) -> Response {
    match texts(request).len() {
        count @ 5.. => {
            let error = format!("batch size {count} > maximum allowed batch size 4");
            Response::json(422, &json!({ "error": error, "error_type": "Validation" }))
        }
        _ => openai(request),
    }
}

/// As llama.cpp answers, which refuses what does not fit into its batch.
fn llama_cpp(request: &Request) -> Response {
    if texts(request).iter().any(|text| text.len() > 250) {
        let message = "input is too large to process. increase the physical batch size";
        return Response::json(500, &json!({ "error": { "code": 500, "message": message, "type": "server_error" } }));
    }
    let entry = |(index, text): (usize, &String)| json!({ "embedding": vector(text, DIMENSIONS), "index": index });
    let data: Vec<_> = texts(request).iter().enumerate().map(entry).collect();
    Response::json(200, &json!({ "data": data, "model": "m", "object": "list" }))
}

fn settings(url: &str, more: &str) -> String {
    format!("embedder = \"endpoint:mine\"\n[embedding]\nbase_url = \"{url}\"\n{MODEL}{more}")
}

/// A world with notes that a server embeds.
fn world_at(server: &ModelServer, more: &str) -> World {
    let world = World::with_kb();
    set(&world, &settings(&server.url(), more));
    world
}

/// A server, and a world with notes that it has embedded.
fn indexed(more: &str) -> (ModelServer, World) {
    let server = ModelServer::start(openai);
    let world = world_at(&server, more);
    world.dr(["index", "kb"]).succeeded();
    (server, world)
}

/// All texts that a server was sent.
fn sent(requests: &[Request]) -> Vec<String> {
    requests.iter().flat_map(texts).collect()
}

#[test]
fn folder_is_indexed_and_searched_with_each_of_the_known_servers() {
    type Script = fn(&Request) -> Response;
    let servers: [(Script, &str); 4] =
        [(openai, ""), (ollama, "shorten = \"here\"\n"), (tei, "batch = 16\n"), (llama_cpp, "")];
    for (script, more) in servers {
        let server = ModelServer::start(script);
        let world = world_at(&server, more);
        let summary = world.dr(["index", "kb", "--json"]).succeeded().json();
        let chunks = world.contents();
        assert!(chunks.vectors > 10 && chunks.vectors_missing == 0 && summary["embedded"] == chunks.vectors, "{more}");
        assert!(sent(&server.requests()).iter().all(|text| text.starts_with("p: ") && text.len() > 3), "{more}");
        let before = server.count();
        let found = world.dr(["search", QUERY, "--mode", "vector", "--json"]).succeeded();
        let found = (found.json()["hits"].as_array().unwrap().clone(), found.stderr);
        assert!(found.0.iter().any(|hit| hit["path"] == "guide/watering.md") && found.1.is_empty(), "{more} {found:?}");
        assert_eq!(sent(&server.requests()[before..]), [format!("q: {QUERY}")]);
    }
}

#[test]
fn passages_that_a_server_does_not_take_whole_are_counted() {
    let server = ModelServer::start(llama_cpp);
    let world = world_at(&server, "");
    let run = world.dr(["index", "kb"]).succeeded();
    assert!(run.stdout.contains("longer than the model reads, embedded without their end"), "{run}");
    let json = world.dr(["index", "kb", "--rebuild", "--json"]).succeeded().json();
    assert!(json["shortened"].as_u64().unwrap() > 0, "{json}");
}

#[test]
fn run_that_a_server_ends_is_gone_on_with_and_nothing_is_embedded_twice() {
    let left = Arc::new(AtomicUsize::new(3));
    let counted = Arc::clone(&left);
    let server = ModelServer::start(move |request| {
        let answers = counted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        answers.map_or(Response::Drop, |_| openai(request))
    });
    let world = world_at(&server, "batch = 4\nconcurrency = 1\nprice = 1\n");
    let broken = world.dr(["index", "kb"]);
    assert_eq!(broken.exit, Some(1), "{broken}");
    assert!(broken.stderr.contains("the next `dr index` continues from there"), "{broken}");
    let paid = "12 chunks embedded and kept before the error, at a cost of $";
    assert!(broken.stderr.contains(paid), "{broken}");
    let kept = world.contents();
    assert_eq!((kept.vectors, kept.unindexed_text_rows), (12, 0), "text and vectors are kept");
    let first: BTreeSet<_> = sent(&server.requests()[..3]).into_iter().collect();
    let before = server.count();
    left.store(usize::MAX, Ordering::SeqCst);
    let summary = world.dr(["index", "kb", "--json"]).succeeded().json();
    assert_eq!(summary["embedded"], kept.vectors_missing);
    let second = sent(&server.requests()[before..]);
    assert_eq!(second.len(), kept.vectors_missing);
    assert!(second.iter().all(|text| !first.contains(text)), "what was paid for is not paid for again");
    let before = server.count();
    world.dr(["index", "kb"]).succeeded();
    assert_eq!(server.count(), before, "nothing is left to do");
}

#[test]
fn english_model_is_sent_no_text_in_another_script_unless_the_settings_say_that_it_reads_it() {
    let server = ModelServer::start(openai);
    let world = World::empty();
    world.write("notes/keys.md", "The keys of the gate hang in the shed behind the house.\n");
    world.write("notes/klyuchi.md", "Ключи от ворот висят в сарае за домом.\n");
    let set_languages = |languages: &str| {
        set(&world, &settings(&server.url(), languages).replace("endpoint:mine", "endpoint:all-minilm"));
    };
    set_languages("");
    let summary = world.dr(["index", "notes", "--json"]).succeeded().json();
    assert_eq!((&summary["embedded"], &summary["vectors_missing"]), (&json!(1), &json!(0)));
    assert!(sent(&server.requests()).iter().all(|text| text.is_ascii()));
    let before = server.count();
    world.dr(["search", "ключи от ворот", "--json"]).succeeded();
    assert_eq!(server.count(), before, "a query in another script is not embedded either");
    set_languages("languages = \"all\"\n");
    let summary = world.dr(["index", "notes", "--rebuild", "--json"]).succeeded().json();
    assert_eq!(summary["embedded"], 2);
}

#[test]
fn text_that_several_files_have_is_embedded_once() {
    const NOTE: &str = "# Marmalade\n\nA jar of it is in the cellar.\n";
    let server = ModelServer::start(openai);
    let world = World::empty();
    for path in ["notes/a.md", "notes/b/c.md", "notes/d.md", "other/a.md"] {
        world.write(path, NOTE);
    }
    world.write("notes/e.md", "# Plums\n\nA jar of them is in the kitchen.\n");
    set(&world, &settings(&server.url(), "batch = 1\n"));
    let summary = world.dr(["index", "notes", "other", "--json"]).succeeded().json();
    let mut texts = sent(&server.requests());
    texts.sort();
    let titles: Vec<_> = texts.iter().map(|text| text.contains("Marmalade")).collect();
    assert_eq!(titles, [true, false], "{texts:?}");
    let contents = world.contents();
    assert_eq!((&summary["embedded"], contents.vectors, contents.vectors_missing), (&json!(5), 5, 0));
}

#[cfg(unix)]
#[test]
fn vectors_that_were_stored_before_a_kill_are_not_made_again() {
    // Vectors are stored 512 at a time; the ninth request of 64 texts comes after that.
    let victim = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let pid = Arc::clone(&victim);
    let server = ModelServer::start(move |request| {
        if request.number != 9 {
            return openai(request);
        }
        let pid = loop {
            match pid.load(Ordering::SeqCst) {
                0 => std::thread::yield_now(),
                pid => break pid.to_string(),
            }
        };
        let killed = std::process::Command::new("sh").args(["-c", "kill -KILL \"$1\"", "sh", &pid]).status();
        assert!(killed.unwrap().success());
        Response::Hang
    });
    let world = World::empty();
    crate::common::write_notes(&world, 600, 1);
    set(&world, &settings(&server.url(), "batch = 64\nconcurrency = 1\n"));
    let mut child = world.command(["index", "notes", "--quiet"]).spawn().unwrap();
    victim.store(child.id(), Ordering::SeqCst);
    assert!(!child.wait().unwrap().success());
    let first: BTreeSet<_> = sent(&server.requests()[..8]).into_iter().collect();
    assert_eq!(first.len(), 512);
    assert_eq!(world.contents().vectors, 512);
    let before = server.count();
    world.dr(["index", "notes"]).succeeded();
    let second = sent(&server.requests()[before..]);
    assert!(!second.is_empty() && second.iter().all(|text| !first.contains(text)));
    assert_eq!(world.contents().vectors, 512 + second.len());
}

#[test]
fn index_stays_valid_if_its_model_moves_to_another_server() {
    let (one, other) = (ModelServer::start(openai), ModelServer::start(openai));
    let world = world_at(&one, "");
    world.dr(["index", "kb"]).succeeded();
    set(&world, &settings(&other.url(), ""));
    world.dr(["index", "kb"]).succeeded();
    assert_eq!(other.count(), 0);
    world.dr(["search", QUERY]).succeeded();
    assert_eq!(sent(&other.requests()), [format!("q: {QUERY}")]);
    set(&world, &settings(&other.url(), "").replace("\"q: \"", "\"question: \""));
    let mixed = world.dr(["index", "kb"]);
    assert!(mixed.exit == Some(1) && mixed.stderr.contains("dr index --rebuild"), "{mixed}");
}

#[test]
fn search_goes_on_with_text_if_the_server_does_not_answer() {
    let (_server, world) = indexed("");
    let broken = ModelServer::always(Response::Drop);
    set(&world, &settings(&broken.url(), ""));
    let run = world.dr(["search", QUERY, "--json"]).succeeded();
    let text = world.dr(["search", QUERY, "--mode", "lexical", "--json"]).succeeded();
    let paths =
        |json: &Value| json["hits"].as_array().unwrap().iter().map(|hit| hit["path"].clone()).collect::<Vec<_>>();
    assert_eq!(paths(&run.json()), paths(&text.json()));
    assert!(run.stderr.contains("query was not embedded") && run.stderr.contains("no reply"), "{run}");
    let vectors = world.dr(["search", QUERY, "--mode", "vector"]);
    assert!(vectors.exit == Some(1) && vectors.stderr.contains("query was not embedded"), "{vectors}");
    assert!(world.dr(["ask", "When are the valves closed at night?"]).exit.is_some_and(|exit| [0, 3].contains(&exit)));
}

#[test]
fn question_sends_queries_and_no_passage() {
    let (server, world) = indexed("");
    let before = server.count();
    world.dr(["ask", "When are the valves closed at night?"]).succeeded();
    world.dr(["recall", "valves at night"]).succeeded();
    let queries = sent(&server.requests()[before..]);
    assert!(!queries.is_empty() && queries.iter().all(|text| text.starts_with("q: ")), "{queries:?}");
}

#[test]
fn nothing_is_sent_offline() {
    let server = ModelServer::start(openai);
    let world = world_at(&server, "");
    let refused = world.dr(["index", "kb", "--offline"]);
    assert!(refused.exit == Some(1) && refused.stderr.contains("dr is offline"), "{refused}");
    world.dr(["index", "kb", "--offline", "--no-embed"]).succeeded();
    world.dr(["index", "kb", "--offline", "--dry-run"]).succeeded();
    assert_eq!(server.count(), 0);
    world.dr(["index", "kb"]).succeeded();
    let before = server.count();
    let search = world.dr(["search", QUERY, "--offline"]).succeeded();
    assert!(search.stderr.contains("dr is offline"), "{search}");
    world.dr(["doctor", "--offline"]);
    assert_eq!(server.count(), before);
}

#[test]
fn collection_that_is_local_only_is_not_sent_to_a_server_elsewhere() {
    const CLOSED: &str = "[collections.kb]\nlocal_only = true\n";
    // No server has this address, and no request is sent to it.
    const ELSEWHERE: &str = "https://embed.example/v1";
    let (server, world) = indexed(CLOSED);
    set(&world, &settings(ELSEWHERE, &format!("price = 0.1\n{CLOSED}")));
    world.write("kb/new.md", "# New\n\nA paragraph about marmalade.\n");
    for args in [&["index", "kb"][..], &["index"], &["index", "kb", "--dry-run"], &["index", "kb", "--rebuild"]] {
        let refused = world.dr(args);
        assert_eq!(refused.exit, Some(1), "{refused}");
        assert!(refused.stderr.contains("collection `kb` is for local models only"), "{refused}");
    }
    world.dr(["index", "kb", "--no-embed"]).succeeded();
    for args in [&["search", QUERY][..], &["search", QUERY, "--collection", "kb"]] {
        let search = world.dr(args).succeeded();
        assert!(search.stderr.contains("`kb` is for local models only"), "{search}");
    }
    let asked = world.dr(["ask", "When are the valves closed at night?"]);
    assert!(asked.exit.is_some_and(|exit| [0, 3].contains(&exit)), "{asked}");
    let doctor = world.dr(["doctor"]);
    assert!(doctor.stdout.contains("`kb` is for local models only"), "{doctor}");
    set(&world, &settings(&server.url(), CLOSED));
    world.dr(["index", "kb"]).succeeded();
}

#[test]
fn server_that_costs_money_is_sent_nothing_that_could_pass_the_limit() {
    let server = ModelServer::start(openai);
    // A dollar for a thousand tokens.
    let world = world_at(&server, "price = 1000\n");
    let refused = world.dr(["index", "kb", "--max-cost", "0.01"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert!(refused.stderr.contains("and the limit is $0.0100"), "{refused}");
    assert!(refused.stderr.contains("--max-cost"), "{refused}");
    assert_eq!(server.count(), 0);
    world.dr(["search", "siren", "--mode", "lexical"]).succeeded();
    let paid = world.dr(["index", "kb", "--max-cost", "1000"]).succeeded();
    let told = paid.stderr.lines().find(|line| line.contains("tokens, up to $")).expect("the cost is told before");
    assert!(told.contains(&server.url()), "{told}");
    let cost = sent(&server.requests()).iter().map(|text| text.split_whitespace().count()).sum::<usize>();
    assert!(paid.stdout.contains(&format!("cost      ${}.{:03}0", cost / 1_000, cost % 1_000)), "{paid}, not {cost}");
}

#[test]
fn run_under_a_cost_limit_embeds_its_queries_for_a_hundredth_of_it() {
    const QUESTION: &str = "When are the valves closed at night?";
    let server = ModelServer::start(openai);
    // A dollar for a thousand tokens, and some fifteen tokens for the question.
    let world = world_at(&server, "price = 1000\n");
    world.dr(["index", "kb", "--max-cost", "1000"]).succeeded();
    let before = server.count();
    let poor = world.dr(["ask", QUESTION, "--max-cost", "1"]);
    assert!(poor.exit.is_some_and(|exit| [0, 3].contains(&exit)), "{poor}");
    assert_eq!(server.count(), before, "a cent does not pay for it");
    world.dr(["ask", QUESTION, "--max-cost", "100"]).succeeded();
    assert!(server.count() > before);
}

#[test]
fn server_without_a_known_price_is_asked_only_without_a_limit() {
    let (_server, world) = indexed("");
    set(&world, &settings("https://embed.example/v1", ""));
    let refused = world.dr(["index", "kb"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert!(refused.stderr.contains("price of the embedder `endpoint:mine` is not known"), "{refused}");
    let estimate = world.dr(["index", "kb", "--rebuild", "--dry-run"]).succeeded();
    assert!(estimate.stdout.contains("the price is not known and the limit is $10.0000"), "{estimate}");
    let asked = world.dr(["ask", "When are the valves closed at night?"]);
    assert!(asked.exit.is_some_and(|exit| [0, 3].contains(&exit)), "{asked}");
}

#[test]
fn dry_run_says_what_the_run_does_and_writes_and_sends_nothing() {
    let server = ModelServer::start(openai);
    let world = world_at(&server, "price = 0.02\nbatch = 8\nconcurrency = 2\n");
    let dry = |args: &[&str]| world.dr(["index", "--dry-run", "--json"].iter().chain(args)).succeeded().json();
    let first = dry(&["kb"]);
    assert!(!world.path(".dr").exists() && server.count() == 0);
    let text = world.dr(["index", "kb", "--dry-run"]).succeeded();
    for said in ["to read", "to embed, at most", "the limit is $10.0000", "nothing was written or sent"] {
        assert!(text.stdout.contains(said), "{text}");
    }
    let summary = world.dr(["index", "kb", "--json"]).succeeded().json();
    assert_eq!(
        [&first["files"], &first["chunks"], &first["to_embed"], &first["skipped"]],
        [
            &summary["added"],
            &summary["chunks"],
            &summary["embedded"],
            &json!(summary["skipped"].as_array().unwrap().len())
        ]
    );
    assert_eq!(first["server"]["requests"], server.count());
    assert!(summary["cost_usd"].as_f64() <= first["server"]["cost_usd"].as_f64(), "{summary} {first}");
    let counted: usize = server.requests().iter().map(words).sum();
    assert!(first["tokens"].as_u64() >= u64::try_from(counted).ok());
    assert!(first["seconds"].as_f64() > Some(0.0));

    let changed = world.read("kb/guide/watering.md").replace("basil | 41 %", "basil | 44 %");
    world.write("kb/guide/watering.md", &changed);
    std::fs::rename(world.path("kb/harvest.md"), world.path("kb/guide/harvest-2026.md")).unwrap();
    let before = server.count();
    let again = dry(&[]);
    assert_eq!(server.count(), before);
    let summary = world.dr(["index", "--json"]).succeeded().json();
    assert_eq!([&again["chunks"], &again["to_embed"]], [&summary["chunks"], &summary["embedded"]], "{again}");
    assert!(again["kept"].as_u64() > Some(0) && again["unchanged"] == summary["unchanged"], "{again}");
    assert_eq!(dry(&["--rebuild"])["to_embed"], first["to_embed"]);
}

#[test]
fn dry_run_counts_vectors_that_wait_and_works_for_an_embedder_on_this_machine() {
    let world = World::with_kb();
    let fresh = world.dr(["index", "kb", "--dry-run", "--json"]).succeeded().json();
    assert!(!world.path(".dr").exists());
    assert!(fresh["server"].is_null() && fresh["seconds"].as_f64() > Some(0.0), "{fresh}");
    world.dr(["index", "kb", "--no-embed"]).succeeded();
    let waiting = world.dr(["index", "--dry-run", "--json"]).succeeded().json();
    assert_eq!((&waiting["files"], &waiting["to_embed"]), (&json!(0), &fresh["to_embed"]));
    assert_eq!(waiting["tokens"], fresh["tokens"]);
    let verified = world.dr(["index", "--dry-run", "--verify", "--json"]).succeeded().json();
    assert_eq!(verified["to_embed"], fresh["to_embed"], "files with the same content wait as well");
    world.dr(["index"]).succeeded();
    let done = world.dr(["index", "--dry-run", "--json"]).succeeded().json();
    assert_eq!((&done["to_embed"], &done["tokens"]), (&json!(0), &json!(0)));
    let text = world.dr(["index", "--dry-run"]).succeeded();
    assert!(text.stdout.contains("this machine embeds"), "{text}");
}

#[test]
fn doctor_says_where_vectors_are_made_and_asks_the_server_only_if_told_to() {
    let (server, world) = indexed("");
    let before = server.count();
    let doctor = world.dr(["doctor"]);
    let line = doctor.stdout.lines().find(|line| line.contains("endpoint:mine")).unwrap();
    assert!(line.starts_with("ok ") && line.contains(&server.url()) && line.contains("free, 64 dimensions"), "{line}");
    assert_eq!(server.count(), before);
    let asked = world.dr(["doctor", "--model"]);
    assert!(asked.stdout.contains("answers with 64 dimensions"), "{asked}");
    assert_eq!(server.count(), before + 1);
}

#[test]
fn settings_that_cannot_be_used_are_named_with_what_is_missing() {
    let world = World::with_kb();
    let refused = |settings: &str, said: &str| {
        set(&world, settings);
        let run = world.dr(["index", "kb"]);
        assert!(matches!(run.exit, Some(1 | 2)) && run.stderr.contains(said), "{run}, not {said}");
    };
    refused("embedder = \"endpoint:mine\"\n", "no `base_url`");
    refused("embedder = \"endpoint:mine\"\n[embedding]\nbase_url = \"http://localhost:1/v1\"\n", "are not known");
    refused(
        "embedder = \"endpoint:bge-m3\"\n[embedding]\nbase_url = \"http://localhost:1/v1\"\nkey_env = \"MY_KEY\"\n",
        "export `MY_KEY`",
    );
    refused("embedder = \"endpoint:\"\n", "`endpoint:MODEL`");
}

#[test]
fn many_requests_are_in_flight_and_no_more_than_the_settings_allow() {
    let flying = Arc::new(Mutex::new((0_usize, 0_usize)));
    let counted = Arc::clone(&flying);
    let server = ModelServer::start(move |request| {
        {
            let mut flying = counted.lock().unwrap();
            flying.0 += 1;
            flying.1 = flying.1.max(flying.0);
        }
        // The first ones wait for each other.
        while request.number <= 3 && counted.lock().unwrap().1 < 3 {
            std::thread::yield_now();
        }
        counted.lock().unwrap().0 -= 1;
        openai(request)
    });
    let world = world_at(&server, "batch = 1\nconcurrency = 3\n");
    world.dr(["index", "kb"]).succeeded();
    let (_, most) = *flying.lock().unwrap();
    assert_eq!(most, 3);
}
