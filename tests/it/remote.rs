//! An index in LanceDB's service: filled, searched, updated and rebuilt, and what happens when the service fails.

mod service;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use dr::kb::index::IndexLocation;
use serde_json::Value;

use crate::common::{Contents, Run, World, block_on};
use service::{Asked, DATABASE, Fault, KEY, Service};

/// Requests that change something.
const WRITES: [&str; 6] = ["create", "insert", "merge_insert", "delete", "create_index", "drop"];

/// Returns a world with a copy of the fixture, whose index is in the service.
fn world(service: &Service) -> World {
    reaching(World::with_kb(), service)
}

/// Returns a service, and a world whose index is there.
fn served() -> (Service, World) {
    let service = Service::start();
    let world = world(&service);
    (service, world)
}

fn reaching(world: World, service: &Service) -> World {
    let world = world.with_variable("DR_INDEX", format!("db://{DATABASE}"));
    let world = world.with_variable("LANCEDB_API_KEY", KEY).with_variable("LANCEDB_HOST_OVERRIDE", service.url());
    // Retries are those of LanceDB's client; only its pauses are left out.
    let world = world.with_variable("LANCE_CLIENT_RETRY_BACKOFF_FACTOR", "0");
    world.with_variable("LANCE_CLIENT_RETRY_BACKOFF_JITTER", "0")
}

/// Reads the tables of the service.
fn contents(service: &Service) -> Contents {
    let location = IndexLocation::parse(service.folder().to_str().unwrap()).unwrap();
    block_on(Contents::read(&location))
}

/// Asserts that the service has the rows of a local index.
fn assert_same(found: &Contents, local: &Contents) {
    assert_eq!(found.documents, local.documents);
    assert_eq!(found.chunks, local.chunks);
    assert_eq!((found.vectors, found.vectors_missing), (local.vectors, local.vectors_missing));
}

/// Returns the places of the hits, best first.
fn places(run: &Run) -> Vec<String> {
    let hits = run.json()["hits"].as_array().unwrap().clone();
    hits.iter().map(|hit| format!("{}:{}", hit["path"], hit["line_start"])).collect()
}

fn is_write(asked: &Asked) -> bool {
    WRITES.contains(&asked.call.as_str())
}

#[test]
fn search_finds_in_every_mode_what_a_local_index_finds() {
    let ((service, world), local) = (served(), World::indexed());
    world.dr(["index", "kb", "--quiet"]).succeeded();
    assert_same(&contents(&service), &local.contents());
    service.maintain();
    for mode in ["hybrid", "lexical", "vector"] {
        for query in ["siren", "what if the power fails", "\"water valve\" garden", "valvee"] {
            let args = ["search", query, "--mode", mode, "--json", "-k", "5"];
            let found = world.dr(args).succeeded();
            assert_eq!(places(&found), places(&local.dr(args).succeeded()), "{mode} {query}: {found}");
        }
    }
    let args = ["search", "valve", "--path", "guide/**", "--json"];
    assert_eq!(places(&world.dr(args).succeeded()), places(&local.dr(args).succeeded()));
}

#[test]
fn new_text_is_found_before_the_service_has_extended_its_index() {
    let (_service, world) = served();
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    world.write("kb/new.md", "# Tide\n\nThe zephyr gauge of the harbour is read at noon.\n");
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    for query in ["zephyr", "\"zephyr gauge\""] {
        let found = world.dr(["search", query, "--mode", "lexical", "--json"]).succeeded();
        assert_eq!(found.json()["hits"][0]["path"], "new.md", "{found}");
    }
}

#[test]
fn words_are_found_before_the_service_has_built_any_index() {
    let service = Service::late();
    let world = world(&service);
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let search = || places(&world.dr(["search", "siren", "--mode", "lexical", "--json"]).succeeded());
    let before = search();
    service.maintain();
    assert_eq!(before.first(), search().first());
}

#[test]
fn question_is_answered_and_every_read_names_its_version() {
    let (service, world) = served();
    world.dr(["index", "kb", "--quiet"]).succeeded();
    service.take_log();
    let answered = world.dr(["ask", "When does the siren sound?", "--format", "json"]).succeeded();
    assert!(!answered.json()["evidence"].as_array().unwrap().is_empty(), "{answered}");
    let queries = service.take_log().into_iter().filter(|asked| asked.call == "query" && asked.table != "manifest");
    let unpinned: Vec<Value> = queries.map(|asked| asked.body).filter(|body| !body["version"].is_u64()).collect();
    assert!(unpinned.is_empty(), "{unpinned:?}");
}

#[test]
fn second_run_writes_only_what_changed_and_another_home_reads_it() {
    let ((service, world), local) = (served(), World::with_kb());
    world.dr(["index", "kb", "--quiet"]).succeeded();
    service.take_log();
    world.dr(["index", "kb", "--quiet"]).succeeded();
    let written: Vec<_> = service.take_log().into_iter().filter(is_write).collect();
    assert!(written.is_empty(), "{written:?}");

    for changed in [&world, &local] {
        changed.write("kb/README.md", "# Orchard\n\nThe zephyr gauge is new.\n");
        std::fs::remove_file(changed.path("kb/harvest.md")).unwrap();
    }
    world.dr(["index", "kb", "--quiet"]).succeeded();
    local.dr(["index", "kb", "--quiet"]).succeeded();
    assert_same(&contents(&service), &local.contents());

    let other = reaching(World::empty(), &service);
    let found = other.dr(["search", "zephyr gauge", "--json"]).succeeded();
    assert_eq!(found.json()["hits"][0]["path"], "README.md", "{found}");
    let checked = other.dr(["doctor"]);
    assert!(!checked.stdout.contains("damage"), "{checked}");
}

#[test]
fn rebuild_replaces_the_index_and_keeps_the_old_one_for_its_readers() {
    let ((service, world), local) = (served(), World::indexed_text());
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    world.dr(["index", "kb", "--rebuild", "--no-embed", "--quiet"]).succeeded();
    assert_same(&contents(&service), &local.contents());
    for table in ["chunks_1", "documents_1", "chunks_2", "documents_2", "manifest"] {
        assert!(service.folder().join(format!("{table}.lance")).is_dir(), "{table}");
    }
    let found = world.dr(["search", "siren", "--mode", "lexical", "--json"]).succeeded();
    assert!(!places(&found).is_empty(), "{found}");
}

#[test]
fn service_that_fails_at_any_write_loses_nothing() {
    let local = World::indexed_text();
    let mut writes = 0;
    loop {
        let service = Service::start();
        let world = world(&service);
        let number = AtomicUsize::new(0);
        // For good: LanceDB's client repeats a request.
        service.set_faults(move |asked| {
            let is_due = is_write(asked) && number.fetch_add(1, Ordering::SeqCst) >= writes;
            is_due.then_some(if writes % 2 == 0 { Fault::Refused } else { Fault::Lost })
        });
        let run = world.dr(["index", "kb", "--no-embed", "--quiet"]);
        if run.exit == Some(0) {
            break;
        }
        assert!(run.stderr.contains("the service answered 50"), "{run}");
        service.set_faults(|_| None);
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        assert_same(&contents(&service), &local.contents());
        writes += 1;
    }
    assert!(writes >= 5, "{writes}");
}

#[test]
fn answer_that_is_lost_once_makes_no_row_twice() {
    let ((service, world), local) = (served(), World::indexed());
    let number = AtomicUsize::new(0);
    let is_repeated = |asked: &Asked| matches!(asked.call.as_str(), "insert" | "merge_insert" | "delete");
    service.set_faults(move |asked| {
        (is_repeated(asked) && number.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)).then_some(Fault::Lost)
    });
    world.dr(["index", "kb", "--quiet"]).succeeded();
    assert_same(&contents(&service), &local.contents());
}

#[test]
fn failure_while_a_rebuild_is_published_keeps_the_old_index() {
    let (service, world) = served();
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    service.set_faults(|asked| (asked.table == "manifest" && is_write(asked)).then_some(Fault::Refused));
    let failed = world.dr(["index", "kb", "--rebuild", "--no-embed", "--quiet"]);
    assert_eq!(failed.exit, Some(1), "{failed}");
    service.set_faults(|_| None);
    let found = world.dr(["search", "siren", "--mode", "lexical", "--json"]).succeeded();
    assert!(!places(&found).is_empty(), "{found}");
}

#[test]
fn second_writer_of_this_machine_is_told_who_writes() {
    let (service, world) = served();
    let (reached, wait) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    service.set_faults(move |asked| {
        if asked.call == "merge_insert" && asked.table == "chunks_1" {
            // Both fail once the test has what it waits for.
            let _ = reached.send(());
            let _ = released.lock().unwrap().recv_timeout(Duration::from_mins(1));
        }
        None
    });
    let first = world.command(["index", "kb", "--no-embed", "--quiet"]).spawn().unwrap();
    wait.recv_timeout(Duration::from_mins(1)).unwrap();
    let second = world.dr(["index", "kb", "--no-embed", "--quiet"]);
    drop(release);
    assert!(first.wait_with_output().unwrap().status.success());
    assert_eq!(second.exit, Some(1), "{second}");
    assert!(second.stderr.contains("index is being written by process"), "{second}");
}

#[test]
fn many_documents_fit_into_the_address_of_a_request() {
    let service = Service::start();
    let world = reaching(World::empty(), &service);
    crate::common::write_notes(&world, 450, 1);
    world.dr(["index", "notes", "--no-embed", "--quiet"]).succeeded();
    assert_eq!(contents(&service).documents.len(), 450);
}

#[test]
fn wrong_or_missing_key_is_named() {
    let service = Service::start();
    let world = world(&service).with_variable("LANCEDB_API_KEY", "another");
    dr_snapshot!(world.dr(["search", "siren"]));
    dr_snapshot!(world.dr(["index", "kb", "--quiet"]));
    let world = world.with_variable("LANCEDB_API_KEY", "");
    dr_snapshot!(world.dr(["search", "siren"]));
}

#[test]
fn key_is_not_sent_to_another_machine_without_tls() {
    let service = Service::start();
    let world = world(&service).with_variable("LANCEDB_HOST_OVERRIDE", "http://lancedb.example.com");
    dr_snapshot!(world.dr(["search", "siren"]));
}

#[test]
fn service_that_is_down_is_named() {
    let (service, world) = served();
    let port = service.url();
    drop(service);
    let failed = world.dr(["search", "siren"]);
    assert_eq!(failed.exit, Some(1), "{failed}");
    assert!(failed.stderr.contains("the service cannot be reached") && failed.stderr.contains(&port), "{failed}");
    assert!(failed.stderr.contains("hint: check `LANCEDB_HOST_OVERRIDE`"), "{failed}");
    let failed = world.dr(["index", "kb", "--quiet"]);
    assert!(failed.stderr.contains("the service cannot be reached"), "{failed}");
}

#[test]
fn offline_opens_no_socket_to_the_service() {
    let (service, world) = served();
    dr_snapshot!(world.dr(["ask", "When does the siren sound?", "--offline"]));
    assert!(service.take_log().is_empty());
}

#[test]
fn doctor_does_not_advise_a_rebuild_when_the_service_fails() {
    let (service, world) = served();
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    service.set_faults(|asked| (asked.call == "stats").then_some(Fault::Refused));
    let checked = world.dr(["doctor"]);
    assert!(checked.stdout.contains("the service answered 503"), "{checked}");
    assert!(!checked.stdout.contains("--rebuild"), "{checked}");
}
