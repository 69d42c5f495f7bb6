use std::io::Read;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::common::{Running, World, lines_of};
use crate::model_server::{ModelServer, Response};
use crate::outside::{greenhouse, greenhouse_at};
use crate::reader;
use crate::run::kills::send;
use crate::web_server::{Call, Fault, Kind, Setup};

/// From the signal to the end of the process.
const LIMIT: Duration = Duration::from_secs(2);

/// Longest wait for a sign, and for the end of a command that ignores its signal.
const PATIENCE: Duration = Duration::from_mins(1);

const QUESTION: &str = "How do we water the greenhouse beds, and how do others water greenhouse beds?";

/// Shows that a command is under way.
enum Sign<'a> {
    /// A line of stderr or of the log contains this text.
    Line(&'a str),
    /// The first byte of output that is more than a pipe holds. The rest is never read, so the command cannot end.
    Output,
    /// A request that is never answered.
    Request(&'a Receiver<()>),
}

/// Times from the signal to the end, by command.
#[derive(Default)]
struct Times(Vec<(String, Duration)>);

impl Times {
    /// Starts a command, sends it SIGTERM when it is under way, and waits for its end. Then the same with SIGINT.
    fn take(&mut self, world: &World, args: &[&str], sign: &Sign<'_>) {
        for signal in ["TERM", "INT"] {
            self.take_one(world, args, sign, signal);
        }
    }

    #[expect(clippy::print_stderr, reason = "the figures are wanted")]
    fn take_one(&mut self, world: &World, args: &[&str], sign: &Sign<'_>, signal: &str) {
        let took = signalled(world, args, sign, signal);
        let shown: String = args.join(" ").chars().take(60).collect();
        eprintln!("{:>6} ms  {signal:<4}  dr {shown}", took.as_millis());
        assert!(took < LIMIT, "{signal}: `dr {shown}` took {took:?}");
        self.0.push((shown, took));
    }
}

impl Drop for Times {
    #[expect(clippy::print_stderr, reason = "the figures are wanted")]
    fn drop(&mut self) {
        if let Some((command, worst)) = self.0.iter().max_by_key(|(_, took)| took) {
            eprintln!("worst of {} signals: {} ms, dr {command}", self.0.len(), worst.as_millis());
        }
    }
}

fn signalled(world: &World, args: &[&str], sign: &Sign<'_>, signal: &str) -> Duration {
    deliver_signals();
    let mut command = world.command(args);
    if let Sign::Request(has_come) = sign {
        // Those of the command before.
        while has_come.try_recv().is_ok() {}
    }
    let logs = matches!(sign, Sign::Line(STARTED | SAVING));
    let command = if logs { command.env("DR_LOG", "dr=debug") } else { &mut command };
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let lines = lines_of(running.stderr.take().unwrap());
    let stdout = running.stdout.take().unwrap();
    let stdout = match sign {
        Sign::Line(wanted) => {
            await_line(&lines, wanted);
            stdout
        }
        Sign::Output => with_first_byte(stdout),
        Sign::Request(has_come) => {
            has_come.recv_timeout(PATIENCE).expect("the request comes");
            stdout
        }
    };
    send(signal, &running);
    let started = Instant::now();
    let Some(status) = end_within(&mut running, PATIENCE) else {
        panic!("`dr {}` still runs {PATIENCE:?} after SIG{signal}", args.join(" "));
    };
    let took = started.elapsed();
    drop(stdout);
    // By the signal, or in order after it. With any other code it was done before.
    let exit = status.code();
    assert!(matches!(exit, None | Some(130)), "{signal}: `dr {}` ended with {exit:?}", args.join(" "));
    took
}

/// Makes SIGINT and SIGHUP end commands that this process starts, even if it was itself started to ignore them, as shells
/// start background jobs and `nohup` starts all: an ignored signal stays ignored in a new program, while one that is
/// handled gets its default back.
pub(crate) fn deliver_signals() {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        let (handling, is_handling) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut interrupts = signal(SignalKind::interrupt()).unwrap();
                let mut hangups = signal(SignalKind::hangup()).unwrap();
                handling.send(()).unwrap();
                tokio::select! { _ = interrupts.recv() => {} _ = hangups.recv() => {} }
                // The handlers must not keep Ctrl-C or a closed terminal from ending the tests.
                std::process::exit(130);
            });
        });
        is_handling.recv().unwrap();
    });
}

/// Waits for the end of a process; `None` if that does not come in time.
fn end_within(process: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match process.try_wait().unwrap() {
            None if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(1)),
            status => return status,
        }
    }
}

fn await_line(lines: &Receiver<String>, wanted: &str) {
    let mut told = String::new();
    while !told.contains(wanted) {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => told = told + &line + "\n",
            Err(why) => panic!("no line `{wanted}` ({why}) in: {told}"),
        }
    }
}

/// Returns a pipe when its first byte has been read.
fn with_first_byte(mut pipe: ChildStdout) -> ChildStdout {
    let (sender, has_come) = channel();
    std::thread::spawn(move || {
        pipe.read_exact(&mut [0]).unwrap();
        let _ = sender.send(pipe);
    });
    has_come.recv_timeout(PATIENCE).expect("the command prints")
}

/// The log says so when a command begins.
const STARTED: &str = "command started";

/// The log says so when the rows of a damaged journal are copied.
const SAVING: &str = "saving what can still be read";

/// Numbers from 1 to this one, as a table `n` of SQL.
fn numbers(last: u32) -> String {
    format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last})")
}

#[test]
fn signal_ends_commands_that_compute() {
    let mut times = Times::default();
    let world = World::empty();
    // In a debug build, splitting one of these files takes seconds.
    let line = "The siren of the greenhouse sounds at noon, and the valves of the beds open at six. ";
    for number in 0..16 {
        world.write_on_day(1, &format!("kb/{number}.md"), &line.repeat(40_000));
    }
    times.take(&world, &["index", "kb"], &Sign::Line("files to read"));
    times.take(&world, &["index", "--rebuild", "kb"], &Sign::Line("files to read"));
    times.take(&world, &["watch", "kb"], &Sign::Line("files to read"));
    times.take(&world, &["ask", "--offline", "--kb", "kb", "When does the siren sound?"], &Sign::Line("files to read"));

    let world = World::empty();
    let sections: String = (0..2_000).map(|number| format!("## Bed {number}\n\n{line}\n\n")).collect();
    world.write_on_day(1, "kb/beds.md", &sections);
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    times.take(&world, &["index"], &Sign::Line("chunks to embed"));
    times.take(&world, &["get", "beds.md"], &Sign::Output);
    times.take(&world, &["search", "siren", "--limit", "200", "--json"], &Sign::Output);
    times.take(&world, &["search", "siren"], &Sign::Line(STARTED));
    times.take(&world, &["doctor"], &Sign::Line(STARTED));
    let branches = |count: usize| vec![r#"{ "type": "string", "pattern": "^[a-z]{1,200}$" }"#; count].join(",");
    world.write(
        "wide.json",
        &format!(r#"{{ "type": "object", "properties": {{ "a": {{ "anyOf": [{}] }} }} }}"#, branches(2_000)),
    );
    let ask = ["ask", "--offline", "When does the siren sound?"];
    times.take(&world, &[&ask[..], &["--schema", "wide.json"]].concat(), &Sign::Line(STARTED));
    times.take(&world, &[&ask[..], &["--events", "jsonl"]].concat(), &Sign::Line("planned"));
}

#[test]
fn signal_ends_commands_on_a_large_journal() {
    let mut times = Times::default();
    let world = greenhouse();
    world.dr(["ask", "--offline", "--quiet", "When does the siren sound?"]).succeeded();
    let run = world.run_ids().remove(0);
    let of_run = format!("SELECT '{run}', 'n2', 1, 'query', 'the web', printf('gutters of house %d', i) FROM n");
    world.alter(&format!("{} INSERT INTO egress (run, node, at, kind, target, text) {of_run}", numbers(20_000)));
    for command in [&["show", "--egress"][..], &["show", "--json"], &["export"]] {
        times.take(&world, command, &Sign::Output);
    }
    let copies = format!("SELECT printf('%016x', i), seq, at, body FROM n, events WHERE run = '{run}'");
    let numbers = numbers(600);
    world.alter(&format!(
        "{numbers} INSERT INTO runs (id, question, started_at) SELECT printf('%016x', i), 'q', 1 FROM n"
    ));
    world.alter(&format!("{numbers} INSERT INTO events (run, seq, at, body) {copies}"));
    for command in [&["runs"][..], &["doctor"], &["doctor", "--repair"]] {
        times.take(&world, command, &Sign::Line(STARTED));
    }
    let ids: Vec<_> = (1..=600).map(|id| format!("{id:016x}")).collect();
    for (signal, ids) in [("TERM", &ids[..20]), ("INT", &ids[20..40])] {
        let remove: Vec<_> = ["rm"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        times.take_one(&world, &remove, &Sign::Line("removed "), signal);
    }
    world.alter(&format!("UPDATE events SET body = '[' WHERE run = '{}' AND seq = 2", ids[300]));
    times.take(&world, &["doctor", "--repair"], &Sign::Line(SAVING));
    world.dr(["doctor", "--repair"]);
    world.dr(["show", &run]).succeeded();
    let salvages = std::fs::read_dir(world.path(".dr")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = salvages.filter(|name| name.to_string_lossy().starts_with(".salvage")).collect();
    assert!(left.is_empty(), "copies of the journal are left: {left:?}");
}

#[test]
fn signal_ends_commands_that_wait_for_a_slow_server() {
    let mut times = Times::default();
    let (sender, has_come) = channel();
    let slow = ModelServer::start(move |_| {
        // A failed test has dropped the receiver.
        let _ = sender.send(());
        Response::Hang
    });
    let world = greenhouse().with_variable("OPENAI_BASE_URL", slow.url()).with_variable("OPENAI_API_KEY", "sk-none");
    let world = world.with_variable("DR_MODEL", "fixture");
    for command in [&["ask", QUESTION][..], &["plan", QUESTION], &["resume"], &["doctor", "--model"]] {
        times.take(&world, command, &Sign::Request(&has_come));
    }

    for (slow, more) in
        [(Kind::SearxNg, "--no-deep-research"), (Kind::Page, "--no-deep-research"), (Kind::AskJob, "--quiet")]
    {
        let (sender, has_come) = channel();
        let hangs = move |call: &Call<'_>| [slow, Kind::CancelJob].contains(&call.kind).then_some(Fault::TimeOut);
        let tells = move |kind: Kind| {
            if kind == slow {
                let _ = sender.send(());
            }
        };
        let (server, world) = greenhouse_at(Setup::new(reader::say).with_faults(hangs).with_hangs(tells));
        let world = if slow == Kind::AskJob { world } else { world.with_variable("SEARXNG_URL", server.origin()) };
        times.take(&world, &["ask", "--mode", "deep", more, QUESTION], &Sign::Request(&has_come));
    }
}
