use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;

use super::{QUESTION, SCRIPT, Script, TICKET, from_tools, read_ticket, reading_ticket, reply, set, world_at};
use crate::common::{World, kill};
use crate::model_server::{ModelServer, Response};
use crate::run::kills::send;

#[test]
fn killed_run_leaves_no_server_behind_and_resumes_without_calling_again_whatever_became_of_the_server() {
    let (sender, held) = channel();
    let is_held = AtomicBool::new(true);
    let calls = read_ticket(&json!({ "number": 7 }));
    let models = ModelServer::start(move |request| {
        // The second step comes after the call.
        let is_second = request.form() == Some("step") && request.said().contains("This is step 2 of");
        if is_second && is_held.swap(false, Ordering::SeqCst) {
            let _ = sender.send(());
            return Response::Hang;
        }
        reply(request, &calls)
    });
    let world = world_at(&models);
    let script = Script::new(&world, "tickets");
    set(&world, &script, "");
    let life = script.life();
    let child = world.spawn(["ask", "--json", QUESTION]);
    held.recv_timeout(Duration::from_mins(1)).unwrap();
    assert_eq!(script.calls().len(), 1);
    kill(child);
    life.join().unwrap();

    script.write("tools.json", "[]");
    script.answers("Ticket 7 is gone.");
    let report = world.dr(["resume", "--json"]).succeeded().json();
    assert_eq!(from_tools(&report)[0]["quote"], TICKET);
    assert_eq!((script.calls().len(), script.starts()), (1, 1));
}

#[test]
fn interrupted_run_ends_its_server_and_what_that_has_started() {
    let (_models, world, script) = reading_ticket("");
    script.write("mode", "hang");
    let (life, called) = (script.life(), script.pipe("called"));
    let mut child = world.spawn(["ask", "--json", QUESTION]);
    std::fs::read(called).unwrap();
    send("INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    life.join().unwrap();
}

#[test]
fn second_signal_leaves_no_server_behind() {
    let (_models, world, script) = reading_ticket("");
    // It does not see the end of its stdin.
    script.write("mode", "busy");
    let (life, called) = (script.life(), script.pipe("called"));
    let mut child = world.spawn(["ask", "--json", QUESTION]);
    std::fs::read(called).unwrap();
    let status = loop {
        send("INT", &child);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(130));
    life.join().unwrap();
}

#[test]
fn interrupted_command_that_lists_tools_ends_its_server() {
    crate::signals::deliver_signals();
    for args in [vec!["doctor"], vec!["trust", "--yes", "--mcp", "tickets"]] {
        let world = World::indexed_text();
        let script = Script::new(&world, "tickets");
        set(&world, &script, "");
        script.write("server.sh", &SCRIPT.replace("$(cat tools.json)", "$(echo > called; sleep 1000)"));
        let (life, called) = (script.life(), script.pipe("called"));
        let mut child = world.spawn(&args);
        std::fs::read(called).unwrap();
        send("INT", &child);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{args:?}");
        life.join().unwrap();
    }
}
