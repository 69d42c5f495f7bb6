use std::io::Read;

use serde_json::{Value, json};

use crate::common::{World, fixtures};
use crate::model_server::Request;
use crate::outside::{QUESTION, count, greenhouse, greenhouse_at, models_at, set};
use crate::reader;
use crate::web_server::{Kind, Setup, WebServer};

/// A run of each kind, newest first, as the `dr` that wrote format 3 listed it.
const RUNS: [Kept; 6] = [
    // Killed while it polled a background job.
    kept("6b9f867377e6334f", "open", [4, 8, 9, 1, 1], "drip lines"),
    // Killed while a worker waited for a model.
    kept("65d410853371f48c", "open", [4, 8, 9, 0, 0], "drip lines"),
    // Followed up the one with a job.
    kept("bfda70adc1c5e15a", "complete", [1, 7, 5, 0, 0], "forty litres of water a day"),
    // Searched the web and opened pages.
    kept("04b14a4444bfceba", "complete", [1, 7, 6, 3, 0], "A survey of 475 teams found"),
    // Had a background job.
    kept("1a81b21ad60745dd", "complete", [4, 11, 13, 4, 1], "A survey of 302 teams found"),
    // Offline.
    kept(
        "33317e2d29c6aed8",
        "complete",
        [1, 7, 0, 0, 0],
        "The siren sounds when the boiler of the workshop is too hot.",
    ),
];

/// The run that was killed while it polled a background job.
const POLLING: &str = RUNS[0].id;

/// The run that was killed while a worker waited for a model.
const WAITING: &str = RUNS[1].id;

/// The run that had a background job.
const WITH_JOB: &str = RUNS[4].id;

/// What the journal holds of a run.
struct Kept {
    id: &'static str,
    state: &'static str,
    nodes: usize,
    events: usize,
    calls: usize,
    egress: usize,
    jobs: usize,
    /// A part of its report.
    says: &'static str,
}

const fn kept(
    id: &'static str,
    state: &'static str,
    [nodes, events, calls, egress, jobs]: [usize; 5],
    says: &'static str,
) -> Kept {
    Kept { id, state, nodes, events, calls, egress, jobs, says }
}

/// Returns the world of the runs, with the journal that `dr` wrote in format 3, and its models at `server`.
fn world_of_format_3(server: &WebServer) -> World {
    world_of_format(3, server)
}

fn world_of_format(format: u8, server: &WebServer) -> World {
    let world = models_at(greenhouse(), server).with_variable("SEARXNG_URL", server.origin());
    let packed = std::fs::File::open(fixtures().join(format!("journals/format-{format}.db.gz"))).unwrap();
    let mut journal = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut journal).unwrap();
    std::fs::write(world.path(".dr/state.db"), journal).unwrap();
    world
}

fn server() -> WebServer {
    Setup::new(reader::say).with_polls(0).start()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn journal_of_format_3_is_listed_shown_exported_and_replayed() {
    assert_is_read(&world_of_format(3, &server()));
}

#[test]
fn journal_of_format_6_is_listed_shown_exported_and_replayed() {
    let world = world_of_format(6, &server());
    assert_is_read(&world);
    let doctor = world.dr(["doctor"]).stdout;
    assert!(doctor.contains("6 stored, journal is sound"), "{doctor}");
}

#[test]
fn journal_of_format_7_is_listed_shown_exported_and_replayed_and_says_what_its_calls_did_not() {
    let world = world_of_format(7, &server());
    assert_is_read(&world);
    for run in RUNS {
        for call in of_kind(&world.export(Some(run.id)), "call") {
            let owner = call["key"].as_str().unwrap().split('/').next().unwrap();
            let node = owner.strip_prefix('n').filter(|number| number.parse::<u32>().is_ok()).map(|_| owner);
            assert_eq!((call["node"].as_str(), &call["label"]), (node, &"internal".into()), "{call}");
        }
    }
    // Its reply was lost by a repair of format 7, and is told from one that never came by its state.
    let jobs = world.dr(["show", "--json", WITH_JOB]).succeeded().json()["jobs"].clone();
    assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["outcome"]), (1, &"damaged".into()), "{jobs}");
}

#[test]
fn journal_of_format_8_is_read_and_its_job_in_flight_is_polled_where_the_settings_lead() {
    assert_is_read_and_polled(8);
}

#[test]
fn journal_of_format_9_is_read_and_its_job_in_flight_is_polled_and_not_started_again() {
    assert_is_read_and_polled(9);
}

/// Asserts that a journal is read, and that its job in flight is polled instead of started again.
fn assert_is_read_and_polled(format: u8) {
    let server = server();
    let world = world_of_format(format, &server);
    assert_is_read(&world);
    world.dr(["resume", "--json", POLLING]);
    assert!(server.requests().iter().any(|request| request.path.contains("resp_fixture")), "the job was not polled");
    assert_eq!(count(&server, Kind::StartJob), 0);
}

fn assert_is_read(world: &World) {
    let listed = world.dr(["runs", "--json"]).succeeded().json();
    let listed = listed["runs"].as_array().unwrap();
    assert_eq!(listed.len(), RUNS.len());
    for (run, listed) in RUNS.iter().zip(listed) {
        assert_eq!((&listed["id"], &listed["state"]), (&run.id.into(), &run.state.into()));
        assert_eq!(listed["nodes"], run.nodes, "{listed:#}");
        let shown = world.dr(["show", "--json", "--events", run.id]).succeeded().json();
        for (what, number) in [("events", run.events), ("egress", run.egress), ("jobs", run.jobs)] {
            assert_eq!(shown[what].as_array().unwrap().len(), number, "{what} of {}", run.id);
        }
        let lines = world.export(Some(run.id));
        for (kind, number) in [("run", 1), ("event", run.events), ("call", run.calls), ("egress", run.egress)] {
            assert_eq!(of_kind(&lines, kind).len(), number, "{kind} lines of {}", run.id);
        }
        let replayed = world.dr(["replay", run.id]);
        assert!(replayed.stdout.contains(run.says), "{replayed}");
    }
}

#[test]
fn run_of_format_3_goes_on_from_its_last_event_and_can_be_followed_up() {
    let server = server();
    let world = world_of_format_3(&server);
    let before = world.export(Some(WAITING));
    let report = world.dr(["resume", "--json", WAITING]).succeeded().json();
    assert_eq!((&report["stop_reason"], &report["degraded"]), (&"complete".into(), &false.into()), "{report:#}");
    let after = world.export(Some(WAITING));
    let (was, is) = (of_kind(&before, "event"), of_kind(&after, "event"));
    assert_eq!(is[..was.len()], was[..]);
    let unknown = of_kind(&after, "call").into_iter().filter(|call| call["outcome"] == "unknown").count();
    assert!(unknown <= 1, "only the call in flight may have been lost");
    world.dr(["ask", "--offline", "--follow", WITH_JOB, "When does the siren sound?"]).succeeded();
    assert_eq!(world.dr(["rm", WITH_JOB]).succeeded().exit, Some(0));
    assert_eq!(world.runs().len(), RUNS.len());
}

#[test]
fn job_of_a_run_of_format_3_is_asked_after_by_its_id_and_not_started_again() {
    let server = server();
    let world = world_of_format_3(&server);
    let job = world.dr(["show", "--json", POLLING]).succeeded().json()["jobs"][0]["job"].as_str().unwrap().to_owned();
    world.dr(["resume", "--json", POLLING]);
    let asked = server.requests().into_iter().filter(|request| request.path.contains(&job)).count();
    assert!(asked > 0, "no request names {job}");
    assert_eq!(count(&server, Kind::StartJob), 0, "a job that may be under way was started again");
    assert_eq!(world.export(Some(POLLING))[1]["event"]["question"], QUESTION);
}

/// Words of a file that an older `dr` let into what it took for public: its mixed workers saw both.
const LEAKED: &str = "CANARY 7f3a9c of the boiler room";

/// Turns the run that had a background job into one that was killed in its second round, in the middle of a mixed node
/// that builds on the web node. The branch of that node and the public summary have words of a file in them.
fn kill_in_a_mixed_node(world: &World, is_marked: bool) {
    let journal = rusqlite::Connection::open(world.path(".dr/state.db")).unwrap();
    let edit = |seq: u32, edit: &dyn Fn(&mut Value)| {
        let sql = "SELECT body FROM events WHERE run = ?1 AND seq = ?2";
        let body: Option<String> = journal.query_row(sql, rusqlite::params![WITH_JOB, seq], |row| row.get(0)).ok();
        let mut event = body.map_or(Value::Null, |body| serde_json::from_str(&body).unwrap());
        edit(&mut event);
        let sql = "INSERT OR REPLACE INTO events (run, seq, at, body) \
                   SELECT run, ?2, at, ?3 FROM events WHERE run = ?1 AND seq = 10";
        assert_eq!(journal.execute(sql, rusqlite::params![WITH_JOB, seq, event.to_string()]).unwrap(), 1);
    };
    let add = |text: &mut Value| *text = format!("{} {LEAKED}.", text.as_str().unwrap()).into();
    edit(1, &|event| {
        if is_marked {
            event["settings"]["keeps_public_apart"] = true.into();
        }
    });
    edit(9, &|event| {
        assert_eq!(event["node"], "n4");
        add(&mut event["branch"]["report"]["summary"]);
    });
    edit(10, &|event| {
        add(&mut event["memory"]["global_public"]);
        let verdict = &mut event["verdict"];
        verdict["is_complete"] = false.into();
        verdict["recommend_more_iterations"] = true.into();
        verdict["missing_aspects"] = json!(["a2"]);
    });
    edit(11, &|event| {
        let node = json!({
            "id": "n5", "parent": "n1", "question": "What do copper gutters cost?", "aspects": ["a2"],
            "status": "pending", "depends_on": ["n4"], "optional_dependencies": false, "parallelizable": true,
            "priority": 0, "depth": 1, "source_hint": "mixed", "tools": ["search", "open"], "group": null,
            "why": "it is missing", "round": 2, "confidence": 0.0, "summary": "",
        });
        *event = json!({
            "type": "planned", "round": 2, "plan": { "reasoning": "It is missing.", "nodes": [node], "updates": [] },
        });
    });
    edit(12, &|event| *event = json!({ "type": "node_started", "node": "n5", "route": "mixed", "why": "planned" }));
}

#[test]
fn run_from_before_public_texts_were_kept_apart_shows_none_of_its_own_to_the_web_worker_of_a_mixed_node() {
    for is_marked in [false, true] {
        let is_outward = |said: &str| said.contains("by searching the web (");
        let server = Setup::new(move |request: &Request| {
            let said = request.said();
            if request.form() != Some("step") || !is_outward(&said) {
                return reader::say(request);
            }
            let query = if said.contains(LEAKED) { LEAKED } else { "how greenhouse beds are watered elsewhere" };
            let actions = [json!({ "tool": "search", "query": query })];
            json!({ "thought": "", "actions": actions, "done": true }).to_string()
        });
        let server = server.with_polls(0).start();
        let world = world_of_format_3(&server);
        set(&world, "[deep_research]\nmax_jobs = 0\n");
        kill_in_a_mixed_node(&world, is_marked);
        let run = world.dr(["resume", "--json", WITH_JOB]);
        assert!(matches!(run.exit, Some(0 | 4)), "{run}");
        let said: Vec<_> = server.requests().iter().map(Request::said).collect();
        let outward: Vec<_> = said.iter().filter(|said| is_outward(said)).collect();
        assert!(!outward.is_empty(), "a worker faced outward: {run}");
        // With the mark of the present version, the same words would be taken for public: the test would see them.
        assert_eq!(outward.iter().any(|said| said.contains(LEAKED)), is_marked, "{outward:#?}");
        let searched = server.worked_on().into_iter().filter(|(kind, _)| *kind == Kind::SearxNg);
        let searched: Vec<_> = searched.map(|(_, request)| request.path.replace('+', " ")).collect();
        assert!(!searched.is_empty(), "{run}");
        assert_eq!(searched.iter().any(|path| path.contains("7f3a9c")), is_marked, "{searched:?}");
    }
}

#[test]
fn new_run_says_in_its_first_event_that_it_keeps_public_texts_apart() {
    let (_server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    world.dr(["ask", "--quiet", "--source", "internal", "When does the siren sound?"]).succeeded();
    let lines = world.export(None);
    assert_eq!(of_kind(&lines, "event")[0]["event"]["settings"]["keeps_public_apart"], true);
}
