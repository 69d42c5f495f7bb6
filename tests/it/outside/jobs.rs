use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{QUESTION, count, greenhouse, greenhouse_at, models_at, nodes, quotes, set};
use crate::common::{World, kill};
use crate::model_server::Request;
use crate::reader;
use crate::run::kills::send;
use crate::web_server::{Call, Fault, Kind, Setup, WebServer};

/// A priced model, so that a job reserves its cap of three dollars.
const PRICED: &str =
    "[prices.fixture]\ninput = 0.01\noutput = 0.01\nsearch = 0.01\n[deep_research]\nmodels = [\"fixture\"]\n";

/// A new run with one node for a job and others for the knowledge base.
const ASK: [&str; 7] = ["ask", "--fresh", "--json", "--quiet", "--mode", "deep", QUESTION];

/// Starts a server on which the first call of a kind has a fault, and returns it with a greenhouse.
fn faulty(kind: Kind, fault: Fault) -> (WebServer, World) {
    let first = move |call: &Call<'_>| (call.kind == kind && call.number == 1).then(|| fault.clone());
    greenhouse_at(Setup::new(reader::say).with_polls(0).with_faults(first))
}

/// Starts a server that signals the first call of a kind and gives it `fault`, and returns it with a greenhouse.
fn telling(kind: Kind, fault: Option<Fault>, polls: usize) -> (WebServer, World, Receiver<()>) {
    let (sender, receiver) = channel();
    let setup = Setup::new(reader::say).with_polls(polls).with_faults(move |call| {
        if call.kind != kind || call.number != 1 {
            return None;
        }
        // A failed test has dropped the receiver.
        let _ = sender.send(());
        fault.clone()
    });
    let (server, world) = greenhouse_at(setup);
    (server, world, receiver)
}

/// Starts `dr ask` and returns once the signalled call has arrived.
fn started(world: &World, has_come: &Receiver<()>) -> Child {
    let child = world.spawn(ASK);
    has_come.recv_timeout(Duration::from_mins(1)).expect("the call comes");
    child
}

/// Starts a server and a run that is killed at its first call of a kind, which is not answered.
fn killed_at(kind: Kind) -> (WebServer, World) {
    let (server, world, has_come) = telling(kind, Some(Fault::TimeOut), 0);
    kill(started(&world, &has_come));
    (server, world)
}

#[test]
fn run_killed_while_polling_reattaches_to_its_job() {
    let (server, world) = killed_at(Kind::AskJob);
    let report = world.dr(["resume", "--json"]).succeeded().json();
    assert_eq!((count(&server, Kind::StartJob), server.jobs().len()), (1, 1));
    assert!(!quotes(&report, "public").is_empty(), "{report:#}");
    assert_eq!(report["usage"]["by_role"]["researcher"]["calls"], 1);
}

#[test]
fn job_in_flight_is_kept_while_the_settings_lead_to_another_server() {
    let (server, world) = killed_at(Kind::AskJob);
    let other = Setup::new(reader::say).with_polls(0).start();
    set(&world, &format!("[deep_research]\nbase_url = \"{}\"\n", other.url()));
    let elsewhere = world.dr(["resume", "--json"]);
    assert_eq!(elsewhere.exit, Some(4), "{elsewhere}");
    let said = format!("it was started at `{}`: restore that address", server.url());
    assert!(elsewhere.stdout.contains(&said), "{elsewhere}");
    assert_eq!((other.jobs().len(), count(&other, Kind::AskJob)), (0, 0), "nothing was asked there");
    set(&world, "");
    let report = world.dr(["resume", "--json", &world.run_ids()[0]]).succeeded().json();
    assert_eq!((count(&server, Kind::StartJob), server.jobs().len()), (1, 1));
    assert!(!quotes(&report, "public").is_empty() && report["degraded"] == false, "{report:#}");
}

#[test]
fn run_killed_while_starting_a_job_starts_another_only_with_retry_unknown() {
    let (server, world) = killed_at(Kind::StartJob);
    starts_again_only_when_told(&server, &world);
}

#[test]
fn job_with_unknown_start_is_started_again_only_with_retry_unknown() {
    let (server, world) = faulty(Kind::StartJob, Fault::ResetAfter);
    let run = world.dr(ASK);
    assert_eq!(run.exit, Some(4), "{run}");
    assert!(run.stdout.contains("--retry-unknown"), "{run}");
    assert_eq!(run.json()["degraded"], true);
    starts_again_only_when_told(&server, &world);
}

fn starts_again_only_when_told(server: &WebServer, world: &World) {
    assert_eq!(server.jobs().len(), 1);
    let run = world.run_ids().remove(0);
    let without = world.dr(["resume", "--json", &run]);
    assert_eq!((without.exit, server.jobs().len()), (Some(4), 1), "{without}");
    let report = without.json();
    let failed = report["failed_nodes"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{report:#}");
    let summary = nodes(&report).into_iter().find(|node| node["status"] == "failed").unwrap()["summary"].to_string();
    assert!(summary.contains("may have been started") || summary.contains("may be running"), "{summary}");
    assert!(quotes(&report, "public").is_empty() && !quotes(&report, "internal").is_empty(), "{report:#}");

    let with = world.dr(["resume", "--json", "--retry-unknown"]).succeeded().json();
    assert_eq!(server.jobs().len(), 2);
    assert!(!quotes(&with, "public").is_empty() && with["degraded"] == false, "{with:#}");
    world.dr(["resume", "--json", "--retry-unknown", &run]).succeeded();
    assert_eq!(server.jobs().len(), 2, "what is known is not tried again");
}

#[test]
fn node_that_depends_on_a_job_runs_after_the_job_is_retried() {
    let first = |call: &Call<'_>| (call.kind == Kind::StartJob && call.number == 1).then_some(Fault::ResetAfter);
    let (_server, world) = greenhouse_at(Setup::new(say_one_after_the_other).with_polls(0).with_faults(first));
    let status = |report: &Value| {
        let nodes = nodes(report);
        nodes.iter().map(|node| node["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lost = world.dr(ASK).json();
    assert_eq!(status(&lost), ["done", "failed", "blocked"], "{lost:#}");
    let found = world.dr(["resume", "--json", "--retry-unknown"]).succeeded().json();
    assert_eq!(status(&found), ["done", "done", "done"], "{found:#}");
    assert_eq!(world.dr(["replay", "--json"]).succeeded().json(), found);
}

/// Replies like the reader, but with a plan of these nodes: id, question, source hint, dependencies.
fn say_for(request: &Request, nodes: &[(&str, &str, &str, &[&str])]) -> String {
    if request.form() != Some("plan") || request.said().starts_with("You continue the plan") {
        return reader::say(request);
    }
    let node = |(id, question, hint, depends_on): &(&str, &str, &str, &[&str])| json!({ "id": id, "question": question, "aspects": ["a1"], "source_hint": hint, "depends_on": depends_on, "why": "it is asked for" });
    let new_nodes: Vec<_> = nodes.iter().map(node).collect();
    json!({ "reasoning": "one after the other", "new_nodes": new_nodes, "updates": [] }).to_string()
}

/// Plans a last node that depends on a job.
fn say_one_after_the_other(request: &Request) -> String {
    say_for(
        request,
        &[
            ("inside", "How do we water the greenhouse beds?", "internal", &[]),
            ("outside", "How do others water greenhouse beds?", "web", &[]),
            ("after", "How much water do the greenhouse beds take?", "internal", &["outside"]),
        ],
    )
}

#[test]
fn report_of_a_job_is_reused_for_the_same_question_on_the_same_day() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    let first = world.dr(ASK).succeeded().json();
    let started = server.jobs().len();
    let second = world.dr(ASK).succeeded();
    assert_eq!((started, server.jobs().len()), (1, 1), "{second}");
    let first_run = first["run_id"].as_str().unwrap();
    assert!(second.stdout.contains(&format!("answered by Deep Research before, in run {first_run}")), "{second}");
    let second = second.json();
    assert_eq!(quotes(&second, "public").len(), quotes(&first, "public").len());
    assert!(second["usage"]["by_role"].get("researcher").is_none(), "{:#}", second["usage"]);
    assert!(!world.dr(["show", "--egress"]).succeeded().stdout.contains(" job: "), "nothing was sent again");
    // Other domains make it a different question.
    set(&world, "[deep_research]\nblocked_domains = [\"example.org\"]\n");
    world.dr(ASK).succeeded();
    assert_eq!(server.jobs().len(), 2);
    // Required topics are part of the question.
    set(&world, "");
    world.dr(ASK.iter().chain(&["--cover", "the price of drip lines"])).succeeded();
    assert_eq!(server.jobs().len(), 3);
    // Removing a run removes the reports it paid for, but not the record that other runs used them.
    let replayed = || world.dr(["replay", "--json", second["run_id"].as_str().unwrap()]).succeeded().stdout;
    let before = replayed();
    world.dr(["rm", first_run]).succeeded();
    assert_eq!(replayed(), before);
    world.dr(ASK).succeeded();
    assert_eq!(server.jobs().len(), 4);
}

#[test]
fn report_of_a_job_that_an_older_dr_recorded_is_reused() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    world.dr(ASK).succeeded();
    // As formats up to 9 had it, and as a process that was running during the migration adds it.
    damage(
        &world,
        "UPDATE lookups SET version = version || ' ' || day || ' ' || iif(is_open, 'true', 'false'), day = NULL, \
         is_open = NULL, attempt = NULL, is_of_run = NULL WHERE tool = 'deep_research'",
    );
    let again = world.dr(ASK).succeeded();
    assert_eq!(server.jobs().len(), 1, "{again}");
    assert!(again.stdout.contains("answered by Deep Research before"), "{again}");
}

#[test]
fn report_of_a_job_that_a_resumed_run_polled_to_its_end_is_reused() {
    // Killed while the job is polled, and when its report is on record and the pages it cites are fetched.
    for kind in [Kind::AskJob, Kind::Page] {
        let (server, world) = killed_at(kind);
        let resumed = world.dr(["resume", "--json"]).succeeded().json();
        let run = resumed["run_id"].as_str().unwrap();
        for _ in 0..2 {
            let again = world.dr(ASK).succeeded();
            assert_eq!(server.jobs().len(), 1, "{kind:?}: {again}");
            assert!(again.stdout.contains(&format!("answered by Deep Research before, in run {run}")), "{again}");
            assert_eq!(quotes(&again.json(), "public").len(), quotes(&resumed, "public").len(), "{kind:?}");
        }
    }
}

#[test]
fn plan_that_is_carried_out_after_another_run_has_paid_for_its_job_reuses_the_report() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    let planned = world.dr(ASK.iter().chain(&["--dry-run"])).succeeded().json();
    let paid = world.dr(ASK).succeeded().json();
    assert_eq!(server.jobs().len(), 1);
    let resumed = world.dr(["resume", "--json", planned["run_id"].as_str().unwrap()]).succeeded();
    assert_eq!(server.jobs().len(), 1, "{resumed}");
    assert_eq!(quotes(&resumed.json(), "public").len(), quotes(&paid, "public").len());
}

#[test]
fn job_that_a_node_did_not_need_is_left_to_the_next() {
    let say = |request: &Request| {
        say_for(
            request,
            &[
                ("known", "When does the siren sound?", "mixed", &[]),
                ("outside", "How do others water greenhouse beds?", "web", &["known"]),
            ],
        )
    };
    let (server, world) = greenhouse_at(Setup::new(say).with_polls(0));
    let report = world.dr(ASK.iter().chain(&["--deep-research-max", "1"])).succeeded().json();
    let jobs = server.jobs();
    assert_eq!((jobs.len(), jobs[0].body["metadata"]["dr_node"].as_str()), (1, Some("n3")), "{report:#}");
    assert!(!quotes(&report, "public").is_empty() && !quotes(&report, "internal").is_empty(), "{report:#}");
}

#[test]
fn mixed_node_without_its_job_gets_it_with_retry_unknown() {
    let (server, world) = faulty(Kind::StartJob, Fault::ResetAfter);
    let ask = [
        "ask",
        "--json",
        "--quiet",
        "--mode",
        "quick",
        "--source",
        "mixed",
        "When does the siren of the copper harbour sound for polished gutters?",
    ];
    let inside = world.dr(ask);
    let report = inside.json();
    assert!(inside.stdout.contains("the web was not searched for what the files leave open"), "{inside}");
    assert!(quotes(&report, "public").is_empty() && !quotes(&report, "internal").is_empty(), "{report:#}");
    assert_eq!((world.dr(["resume", "--json", &world.run_ids()[0]]).exit, server.jobs().len()), (inside.exit, 1));
    let whole = world.dr(["resume", "--json", "--retry-unknown"]).succeeded().json();
    assert_eq!(server.jobs().len(), 2);
    assert!(!quotes(&whole, "public").is_empty() && !quotes(&whole, "internal").is_empty(), "{whole:#}");
    assert_eq!(world.dr(["replay", "--json"]).succeeded().json(), whole);
}

#[test]
fn failed_job_is_reported_with_the_rest_of_the_run() {
    for (kind, fault, why) in [
        (Kind::AskJob, Fault::LostJob, "the provider no longer has job `resp_"),
        (Kind::StartJob, Fault::FailedJob, "The job ran into an error"),
    ] {
        let (server, world) = faulty(kind, fault);
        let run = world.dr(ASK);
        assert_eq!((run.exit, server.jobs().len()), (Some(4), 1), "{run}");
        let report = run.json();
        assert!(report["degraded"] == true && report["failed_nodes"].as_array().unwrap().len() == 1, "{run}");
        let node = nodes(&report).into_iter().find(|node| node["status"] == "failed").unwrap();
        let summary = node["summary"].as_str().unwrap();
        assert!(summary.starts_with("Deep Research gave no result: ") && summary.contains(why), "{node:#}");
        assert!(!quotes(&report, "internal").is_empty(), "{run}");
        // A failed job is not started again.
        assert_eq!((world.dr(["resume", "--json", &world.run_ids()[0]]).exit, server.jobs().len()), (Some(4), 1));
    }
}

#[test]
fn pages_of_an_incomplete_job_are_used() {
    let (_server, world) = faulty(Kind::StartJob, Fault::IncompleteJob);
    let report = world.dr(ASK).json();
    assert!(quotes(&report, "public").iter().any(|quote| quote["checked"] == true), "{report:#}");
    assert_eq!(report["usage"]["by_role"]["researcher"]["calls"], 1);
}

#[test]
fn interrupted_run_cancels_its_job() {
    let (server, world, has_come) = telling(Kind::AskJob, None, usize::MAX);
    let child = started(&world, &has_come);
    send("INT", &child);
    let run = world.run_of(child.wait_with_output().unwrap());
    assert_eq!((run.exit, run.json()["stop_reason"].as_str()), (Some(130), Some("cancelled")), "{run}");
    let jobs = server.jobs();
    assert_eq!((jobs.len(), jobs[0].status, count(&server, Kind::CancelJob)), (1, "cancelled", 1));
}

#[test]
fn missing_and_retired_models_are_skipped() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    set(&world, "[deep_research]\nmodels = [\"gone-1\", \"retired-2\", \"fresh-3\", \"fresh-4\"]\n");
    world.dr(ASK).succeeded();
    assert_eq!(server.jobs()[0].body["model"], "fresh-3");
    assert_eq!(count(&server, Kind::AskModel), 3, "the last is not asked for");
    set(&world, "[deep_research]\nmodels = [\"gone-1\", \"retired-2\"]\n");
    let none = world.dr(ASK);
    assert_eq!((none.exit, server.jobs().len()), (Some(4), 1), "{none}");
    assert!(none.stdout.contains("Deep Research gave no result: none of `gone-1`, `retired-2` is available"), "{none}");
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert!(!egress.contains("Deep Research"), "no job was started: {egress}");
}

#[test]
fn job_report_is_not_reused_for_another_question_with_the_same_node() {
    let say = |request: &Request| say_for(request, &[("outside", "What are the main risks and costs?", "web", &[])]);
    let (server, world) = greenhouse_at(Setup::new(say).with_polls(0));
    let ask = |question| world.dr(["ask", "--json", "--quiet", "--mode", "deep", question]).succeeded();
    ask("What do others say of copper gutters?");
    ask("What do others say of electric buses?");
    assert_eq!(server.jobs().len(), 2);
    ask("What do others say of electric buses?");
    assert_eq!(server.jobs().len(), 2);
}

#[test]
fn resumed_run_uses_its_own_job_even_if_another_run_has_a_report() {
    let (server, world) = killed_at(Kind::AskJob);
    let killed = world.run_ids().remove(0);
    world.dr(ASK).succeeded();
    assert_eq!(server.jobs().len(), 2, "nothing was on record yet");
    let resumed = world.dr(["resume", "--json", &killed]).succeeded().json();
    assert_eq!(resumed["usage"]["by_role"]["researcher"]["calls"], 1, "{resumed:#}");
    let jobs = server.jobs();
    assert_eq!((jobs.len(), jobs[0].status), (2, "completed"), "its own job was polled");
    let events = || world.dr(["show", "--events", &killed]).succeeded().stdout;
    let before = events();
    world.dr(["resume", &killed]).succeeded();
    assert_eq!(events(), before, "it is over");
}

#[test]
fn node_whose_job_exceeds_the_budget_is_searched_or_blocked() {
    let server = Setup::new(reader::say).with_polls(0).start();
    let ask = ["ask", "--json", "--quiet", "--mode", "deep", "--max-cost", "0.50", QUESTION];

    let world = models_at(greenhouse(), &server);
    set(&world, PRICED);
    let without = world.dr(ask);
    let report = without.json();
    let blocked = nodes(&report).into_iter().find(|node| node["source_hint"] == "web").unwrap();
    assert_eq!(blocked["status"], "blocked");
    assert!(blocked["summary"].as_str().unwrap().contains("exceeds what is left of the cost limit"), "{blocked:#}");
    assert_ne!(report["stop_reason"], "budget_exceeded", "{without}");
    assert!(!quotes(&report, "internal").is_empty());

    let world = models_at(greenhouse(), &server).with_variable("SEARXNG_URL", server.origin());
    set(&world, PRICED);
    let report = world.dr(ask).succeeded().json();
    assert_eq!(report["stop_reason"], "complete", "{report:#}");
    assert!(!quotes(&report, "public").is_empty() && server.jobs().is_empty());
    let said = "the web was searched without Deep Research: the cap of a Deep Research job (`max_cost`) exceeds";
    let limitations = report["limitations"].as_array().unwrap();
    assert!(limitations.iter().any(|note| note.as_str().unwrap().starts_with(said)), "{limitations:#?}");
}

#[test]
fn time_limit_is_longer_only_if_jobs_are_allowed() {
    let (_server, world) = greenhouse_at(Setup::new(reader::say));
    let most = || world.dr(["ask", "--dry-run", QUESTION]).succeeded().stdout;
    assert!(most().contains(", 60 min\n"), "{}", most());
    set(&world, "[deep_research]\nmax_jobs = 0\n");
    // The endpoint is local: half an hour, and seven minutes and a half for each of three nodes.
    assert!(most().contains(", 53 min\n"), "{}", most());
}

#[test]
fn retried_job_that_exceeds_the_budget_fails_with_the_reason() {
    let (server, world) = faulty(Kind::StartJob, Fault::ResetAfter);
    set(&world, PRICED);
    let run = world.dr(ASK.iter().chain(&["--max-cost", "4"]));
    assert_eq!((run.exit, server.jobs().len()), (Some(4), 1), "{run}");
    let again = world.dr(["resume", "--json", "--retry-unknown"]);
    assert_eq!((again.exit, server.jobs().len()), (Some(4), 1), "{again}");
    assert!(again.stdout.contains("its cap exceeds what is left of the cost limit"), "{again}");
    assert!(!quotes(&again.json(), "internal").is_empty(), "{again}");
}

#[test]
fn job_that_could_not_be_cancelled_is_polled_by_the_resumed_run() {
    let (sender, has_come) = channel();
    let setup = Setup::new(reader::say).with_polls(0).with_faults(move |call| match (call.kind, call.number) {
        (Kind::AskJob, 1) => {
            let _ = sender.send(());
            Some(Fault::TimeOut)
        }
        (Kind::CancelJob, _) => Some(Fault::ServerError),
        _ => None,
    });
    let (server, world) = greenhouse_at(setup);
    let child = started(&world, &has_come);
    send("INT", &child);
    let run = world.run_of(child.wait_with_output().unwrap());
    assert_eq!(run.exit, Some(130), "{run}");
    assert!(server.requests().iter().any(|request| request.path.ends_with("/cancel")), "it was tried");
    let report = world.dr(["resume", "--json"]).succeeded().json();
    assert_eq!((count(&server, Kind::StartJob), server.jobs().len()), (1, 1));
    assert!(!quotes(&report, "public").is_empty(), "{report:#}");
}

/// Runs SQL on the journal of a world, and asserts that it changes something.
fn damage(world: &World, sql: &str) {
    let changed = Connection::open(world.path(".dr/state.db")).unwrap().execute(sql, []).unwrap();
    assert!(changed > 0, "{sql}");
}

/// Damages of the row of a job's call: of its reply, and of words that a journal has in every row.
const DAMAGES: [&str; 5] = [
    "UPDATE calls SET reply = substr(reply, 1, 40) WHERE role = 'researcher'",
    "UPDATE calls SET reply = CAST(x'22ff22' AS TEXT) WHERE role = 'researcher'",
    "UPDATE calls SET outcome = 'repliee' WHERE role = 'researcher'",
    "UPDATE calls SET role = 'researchew' WHERE role = 'researcher'",
    "UPDATE calls SET provider = 'openaj' WHERE role = 'researcher'",
];

#[test]
fn job_whose_record_cannot_be_read_is_polled_again_if_its_report_is_lost_and_never_bought_again() {
    for sql in DAMAGES {
        // Killed when the report is on record and the pages it cites are fetched.
        let (server, world) = killed_at(Kind::Page);
        damage(&world, sql);
        let polls = || server.worked_on().iter().filter(|(kind, _)| *kind == Kind::AskJob).count();
        let before = polls();
        let resumed = world.dr(["resume", "--json"]);
        assert_eq!(server.jobs().len(), 1, "{sql}: {resumed}");
        let resumed = if resumed.exit == Some(0) {
            resumed
        } else {
            assert!(resumed.stderr.contains("journal has an entry that cannot be read"), "{sql}: {resumed}");
            assert!(resumed.stderr.contains("hint: `dr doctor --repair`"), "{sql}: {resumed}");
            let repaired = world.dr(["doctor", "--repair"]).succeeded();
            let column = sql.split_whitespace().nth(3).unwrap();
            assert!(repaired.stdout.contains(&format!("lost: {column} ")), "{sql}: {repaired}");
            world.dr(["resume", "--json"]).succeeded()
        };
        // A repair keeps a reply that can be read.
        let again = usize::from(sql.contains("SET reply"));
        assert_eq!((server.jobs().len(), polls()), (1, before + again), "{sql}");
        let report = resumed.json();
        assert!(!quotes(&report, "public").is_empty(), "{sql}: {report:#}");
        assert_eq!(report["usage"]["by_role"]["researcher"]["calls"], 1, "{sql}");
        world.dr(["doctor"]).succeeded();
    }
}

#[test]
fn damaged_report_of_another_run_is_a_named_failure_until_its_run_gets_it_again() {
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    world.dr(ASK).succeeded();
    let paid = world.run_ids().remove(0);
    damage(&world, DAMAGES[0]);
    let said = "its report is on record and cannot be read";
    let ask = |exit: i32| {
        let asked = world.dr(ASK);
        assert_eq!((asked.exit, server.jobs().len()), (Some(exit), 1), "{asked}");
        assert_eq!(asked.stdout.contains(said), exit != 0, "{asked}");
    };
    ask(4);
    world.dr(["doctor", "--repair"]).succeeded();
    ask(4);
    world.dr(["resume", &paid]).succeeded();
    ask(0);
    // Without the run that paid for it, nothing is on record.
    world.dr(["rm", &paid]).succeeded();
    world.dr(ASK).succeeded();
    assert_eq!(server.jobs().len(), 2);
}

#[test]
fn damaged_record_of_a_job_fails_the_nodes_of_other_runs_until_it_is_repaired() {
    for broken in ["'{'", "CAST(x'31ff' AS TEXT)", "'1.5'"] {
        let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
        world.dr(ASK).succeeded();
        damage(&world, &format!("UPDATE lookups SET result = {broken} WHERE tool = 'deep_research'"));
        let asked = world.dr(ASK);
        assert_eq!((asked.exit, server.jobs().len()), (Some(4), 1), "{broken}: {asked}");
        assert!(asked.stdout.contains("its record in the journal cannot be read"), "{broken}: {asked}");
        world.dr(["doctor", "--repair"]);
        let asked = world.dr(ASK).succeeded();
        assert_eq!(server.jobs().len(), 1, "{broken}: {asked}");
        assert!(asked.stdout.contains("answered by Deep Research before"), "{broken}: {asked}");
    }
}
