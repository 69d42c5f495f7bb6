use super::{KEY, QUESTION, count, greenhouse_at, is_stored, nodes, quotes, searching, set};
use crate::common::World;
use crate::reader;
use crate::run::again::a_day_ago;
use crate::web_server::{Call, Fault, Kind, Setup};

/// API key of a search engine.
const ENGINE_KEY: &str = "tvly-never-written-down";

#[test]
fn question_about_both_is_answered_from_both_with_only_a_key_set() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    let asked = world.dr(["ask", "--quiet", "--mode", "deep", QUESTION]).succeeded();
    let origin = server.origin().to_owned();
    assert!(asked.stdout.contains(&format!("{origin}/articles/")), "{asked}");
    assert!(asked.stdout.contains("`watering.md`"), "{asked}");
    let today = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).date();
    let days = [today, today.yesterday().unwrap()].map(|day| day.to_string());
    assert!(days.iter().any(|day| asked.stdout.contains(day.as_str())), "{asked}");

    let again = world.dr(["replay", "--json"]).succeeded().json();
    for label in ["internal", "public"] {
        let quotes = quotes(&again, label);
        assert!(!quotes.is_empty() && quotes.iter().all(|quote| quote["checked"] == true), "{label}: {quotes:#?}");
    }
    let jobs = server.jobs().len();
    assert!(jobs > 0);
    assert_eq!(again["usage"]["by_role"]["researcher"]["calls"], jobs, "{:#}", again["usage"]);
    assert_eq!(again["stop_reason"], "complete");

    let did = world.dr(["show", "--jobs"]).succeeded().stdout;
    assert_eq!(did.matches("job resp_fixture").count(), jobs, "{did}");
    assert!(did.contains("  searched for: ") && did.contains("  thought: "), "{did}");
    let listed = world.dr(["show", "--json"]).succeeded().json()["jobs"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["outcome"]), (jobs, &"replied".into()), "{listed:#}");

    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert_eq!(egress.matches(" job: ").count(), jobs, "{egress}");
    assert!(egress.contains("(sent to Deep Research)"), "{egress}");
    let opened = egress.lines().filter(|line| line.contains(&format!(" address: {origin}/articles/"))).count();
    assert_eq!(opened, count(&server, Kind::Page), "{egress}");

    drop(server);
    assert_eq!(world.dr(["replay"]).succeeded().stdout, asked.stdout);
    assert!(!is_stored(&world.path(""), KEY.as_bytes()));
}

#[test]
fn web_worker_searches_opens_and_cites_without_jobs() {
    let (server, world) = searching(Setup::new(reader::say));
    let report = world.dr(["ask", "--json", "--no-deep-research", "--source", "web", "--mode", "deep", QUESTION]);
    let report = report.succeeded().json();
    assert!(count(&server, Kind::SearxNg) > 0 && count(&server, Kind::Page) > 0);
    assert!(server.jobs().is_empty() && count(&server, Kind::AskModel) == 0);
    let (internal, public) = (quotes(&report, "internal"), quotes(&report, "public"));
    assert!(internal.is_empty() && !public.is_empty(), "{report:#}");
    assert!(public.iter().all(|quote| quote["checked"] == true), "{public:#?}");
    assert!(nodes(&report).iter().all(|node| node["source_hint"] == "web"), "{report:#}");
}

#[test]
fn answer_from_the_web_serves_the_same_question_on_its_day_and_with_the_same_engine_only() {
    let (server, world) = greenhouse_at(Setup::new(reader::say));
    let paid = |world: &World, args: &[&str]| {
        let before = server.count();
        let ask = ["ask", "--json", "--no-deep-research", "--mode", "quick", QUESTION];
        let run = world.dr(ask.iter().chain(args)).succeeded();
        assert_eq!(run.stderr.contains("note: asked before"), server.count() == before, "{run}");
        server.count() > before
    };
    let from_notes = ["--path", "*.md"];
    assert_eq!([paid(&world, &from_notes), paid(&world, &from_notes)], [true, false]);
    let world = world.with_variable("SEARXNG_URL", server.origin());
    assert!(paid(&world, &from_notes), "there was no engine before");
    let on_the_web = ["--source", "web"];
    assert_eq!([paid(&world, &on_the_web), paid(&world, &on_the_web)], [true, false]);
    a_day_ago(&world);
    assert!(!paid(&world, &from_notes), "the notes say the same");
    assert_eq!([paid(&world, &on_the_web), paid(&world, &on_the_web)], [true, false], "the web may say something else");
}

#[test]
fn mixed_node_searches_the_web_only_for_open_aspects() {
    let (server, world) = searching(Setup::new(reader::say));
    let ask = ["ask", "--json", "--no-deep-research", "--source", "mixed", "--mode", "quick"];
    let known = world.dr(ask.iter().chain(&["When does the siren sound?"])).succeeded().json();
    assert!(!quotes(&known, "internal").is_empty(), "{known:#}");
    assert_eq!((quotes(&known, "public").len(), count(&server, Kind::SearxNg)), (0, 0), "{known:#}");
    let unknown = world.dr(ask.iter().chain(&["How often are copper gutters polished?"])).succeeded().json();
    assert!(!quotes(&unknown, "public").is_empty() && count(&server, Kind::SearxNg) > 0, "{unknown:#}");
}

#[test]
fn web_node_without_an_engine_is_blocked_with_a_reason() {
    let (server, world) = greenhouse_at(Setup::new(reader::say));
    let run = world.dr(["ask", "--json", "--no-deep-research", "--mode", "deep", QUESTION]);
    let report = run.json();
    let (blocked, rest): (Vec<_>, Vec<_>) = nodes(&report).into_iter().partition(|node| node["source_hint"] == "web");
    assert!(!blocked.is_empty() && !rest.is_empty(), "{report:#}");
    for node in blocked {
        assert_eq!(node["status"], "blocked");
        assert!(
            node["summary"].as_str().unwrap().contains("no search engine is set up, and Deep Research is unavailable"),
            "{node:#}"
        );
    }
    assert!(server.requests().iter().all(|request| request.path == "/v1/chat/completions"));
    assert!(!quotes(&report, "internal").is_empty());
}

#[test]
fn key_of_an_engine_is_sent_to_it_only_and_stored_nowhere() {
    let (server, world) = greenhouse_at(Setup::new(reader::say));
    let world = world.with_variable("TAVILY_API_KEY", ENGINE_KEY);
    set(&world, &format!("[web]\nbase_url = \"{}\"\nprovider = \"tavily\"\n", server.origin()));
    let report = world.dr(["ask", "--json", "--no-deep-research", "--source", "web", "--mode", "quick", QUESTION]);
    assert!(!quotes(&report.succeeded().json(), "public").is_empty());
    let searches = server.requests().into_iter().filter(|request| request.path == "/search");
    let keys: Vec<_> = searches.map(|request| request.headers["authorization"].clone()).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| *key == format!("Bearer {ENGINE_KEY}")), "{keys:?}");
    assert_eq!(server.received().matches(ENGINE_KEY).count(), keys.len(), "the key is sent to the engine alone");
    for folder in [world.path(""), world.home("")] {
        assert!(!is_stored(&folder, ENGINE_KEY.as_bytes()) && !is_stored(&folder, KEY.as_bytes()));
    }
}

#[test]
fn page_named_in_the_question_is_read_even_if_the_engine_fails() {
    let page = "<title>Gutters</title><p>Copper gutters are polished with lemon in May and in October.</p>";
    let down = |call: &Call<'_>| (call.kind == Kind::SearxNg).then_some(Fault::ServerError);
    let (server, world) = searching(Setup::new(reader::say).with_page("/notes/gutters", page).with_faults(down));
    let url = format!("{}/notes/gutters", server.origin());
    let question = format!("When are copper gutters polished, as {url} has it?");
    let ask = ["ask", "--json", "--no-deep-research", "--source", "web", "--mode", "quick", question.as_str()];
    let report = world.dr(ask).succeeded().json();
    let quote = quotes(&report, "public").into_iter().find(|quote| quote["source"]["url"] == url.as_str());
    let quote = quote.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!((&quote["checked"], quote["quote"].as_str().unwrap().contains("lemon")), (&true.into(), true));
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert!(egress.contains(&format!(" address: {url}")), "{egress}");
}

#[test]
fn page_named_in_a_required_topic_is_read_although_no_search_finds_it() {
    let page = "<title>Gutters</title><p>Copper gutters are polished with lemon in May and in October.</p>";
    let (server, world) = searching(Setup::new(reader::say).with_page("/notes/gutters", page));
    let url = format!("{}/notes/gutters", server.origin());
    let cover = format!("when gutters are polished, as {url} has it");
    let ask = ["ask", "--json", "--no-deep-research", "--source", "web", "--mode", "quick", "--cover", &cover];
    let report = world.dr(ask.into_iter().chain(["When are copper gutters polished?"])).succeeded().json();
    let is_of_page = |quote: &&serde_json::Value| quote["source"]["url"] == url.as_str() && quote["checked"] == true;
    assert!(quotes(&report, "public").iter().any(is_of_page), "{report:#}");
}
