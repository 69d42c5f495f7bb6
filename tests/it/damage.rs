use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Run, World, files, slashed};

/// Questions of the stored runs, oldest first.
const QUESTIONS: [&str; 3] = ["When does the siren sound?", "How are beds numbered?", "Which valve opens first?"];

/// Damages that every test run tries. `DR_DAMAGE_TRIALS` and `DR_DAMAGE_SEED` set another number and seed.
const TRIALS: u64 = 6;

/// Commands of the random trials.
static COUNTS: Counts = Counts { run: AtomicU64::new(0), failed: AtomicU64::new(0), advised: AtomicU64::new(0) };

#[derive(Debug)]
struct Counts {
    run: AtomicU64,
    /// Of the commands on damaged files, those that ended with an error.
    failed: AtomicU64,
    /// Commands that were advised, and followed.
    advised: AtomicU64,
}

/// A command that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// Returns a world with an index and three finished runs.
fn with_runs() -> World {
    let world = World::indexed();
    for question in QUESTIONS {
        let run = world.dr(["ask", "--offline", "-q", question]);
        assert!(matches!(run.exit, Some(0 | 3)), "{run}");
    }
    world
}

/// Returns the ids of the stored runs, newest first.
fn run_ids(world: &World) -> Vec<String> {
    let listed = world.dr(["runs", "--json"]);
    let listed = if listed.exit == Some(0) { listed.json() } else { return Vec::new() };
    listed["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

/// Damage to a file.
#[derive(Debug)]
enum Damage {
    Flip { at: usize, bit: u8 },
    Truncate { to: usize },
    Empty,
    Delete,
}

impl Damage {
    fn random(random: &mut StdRng, length: usize) -> Self {
        match random.random_range(0..5) {
            0 | 1 if length > 0 => Self::Flip { at: random.random_range(0..length), bit: random.random_range(0..8) },
            2 if length > 0 => Self::Truncate { to: random.random_range(0..length) },
            3 => Self::Delete,
            _ => Self::Empty,
        }
    }

    fn apply(&self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        match *self {
            Self::Flip { at, bit } => bytes[at] ^= 1 << bit,
            Self::Truncate { to } => bytes.truncate(to),
            Self::Empty => bytes.clear(),
            Self::Delete => return fs::remove_file(file).unwrap(),
        }
        fs::write(file, bytes).unwrap();
    }
}

/// Runs `dr`, which must neither hang nor crash.
fn steady(world: &World, args: &[&str]) -> Run {
    let mut child = world.spawn(args);
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (done, is_done) = channel();
    let child = std::thread::scope(|scope| {
        let readers = [scope.spawn(move || read(&mut out)), scope.spawn(move || read(&mut err))];
        let waiting = scope.spawn(move || readers.map(|reader| reader.join().unwrap()));
        let child = &mut child;
        let killer = scope.spawn(move || {
            // Its pipes close when it ends.
            if is_done.recv_timeout(PATIENCE).is_err() {
                child.kill().unwrap();
            }
            child.wait().unwrap()
        });
        let [stdout, stderr] = waiting.join().unwrap();
        let _ = done.send(());
        Output { status: killer.join().unwrap(), stdout, stderr }
    });
    COUNTS.run.fetch_add(1, Ordering::Relaxed);
    let Output { status, stdout, stderr } = child;
    let run = world.run_of(Output { status, stdout, stderr });
    assert!(run.exit.is_some(), "`dr {}` crashed: {run}", args.join(" "));
    let is_panic = run.stderr.contains("panicked") || run.stderr.contains("stopped by a bug");
    assert!(!is_panic, "`dr {}` panicked: {run}", args.join(" "));
    run
}

fn read(pipe: &mut dyn Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns the commands that a hint or the output of `dr doctor` advises.
fn advised(run: &Run) -> Vec<String> {
    let lines = run.stderr.lines().filter_map(|line| line.strip_prefix("hint: "));
    let arrows = run.stdout.lines().filter_map(|line| line.trim_start().strip_prefix("→ "));
    let commands = |line: &str| -> Vec<String> {
        line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("dr ")).map(str::to_owned).collect()
    };
    lines.chain(arrows).flat_map(commands).collect()
}

/// Returns the arguments of a command that was advised, with values in its placeholders.
fn arguments(command: &str) -> Vec<String> {
    let words = command.split(' ').skip(1);
    words.map(|word| word.replace("<FOLDER>", "kb").replace("\"<QUESTION>\"", QUESTIONS[0])).collect()
}

/// Damages one file, and checks that every command continues or says what to do, and that this helps.
fn survives(world: &World, file: &Path, damage: &Damage) {
    let runs = run_ids(world);
    damage.apply(file);
    let checkup = steady(world, &["doctor"]);
    let is_sound = checkup.exit == Some(0);
    COUNTS.failed.fetch_add(u64::from(!is_sound), Ordering::Relaxed);
    let mut advice = if is_sound { Vec::new() } else { advised(&checkup) };
    let mut said = format!("{}{}", checkup.stdout, checkup.stderr);
    let mut commands =
        vec![vec!["search", "siren"], vec!["search", "siren", "--mode", "lexical"], vec!["runs"], vec!["show"]];
    commands.extend(runs.iter().map(|run| vec!["show", run]));
    commands.push(vec!["index"]);
    // A journal without runs cannot show one.
    let is_gone = matches!(damage, Damage::Empty | Damage::Delete) && file.ends_with(".dr/state.db");
    for command in &commands {
        let run = steady(world, command);
        said.push_str(&run.stderr);
        if run.exit == Some(0) || is_gone && command[0] == "show" {
            continue;
        }
        COUNTS.failed.fetch_add(1, Ordering::Relaxed);
        assert!(!is_sound, "`dr doctor` finds no problem, and `dr {}` fails: {run}", command.join(" "));
        assert!(run.stderr.contains("hint: "), "`dr {}` gives no advice: {run}", command.join(" "));
        advice.extend(advised(&run));
    }
    assert!(is_sound || !advice.is_empty(), "no command is advised: {checkup}");
    let mut done = BTreeSet::new();
    for command in advice.into_iter().filter(|command| done.insert(command.clone())) {
        let args = arguments(&command);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        COUNTS.advised.fetch_add(1, Ordering::Relaxed);
        let run = steady(world, &args);
        assert_eq!(run.exit, Some(0), "`{command}` was advised and fails: {run}");
        said.push_str(&run.stdout);
    }
    let checkup = steady(world, &["doctor"]).succeeded();
    said.push_str(&checkup.stdout);
    let found = steady(world, &["search", "siren", "--mode", "lexical"]).succeeded();
    assert!(found.stdout.contains("siren"), "{found}");
    steady(world, &["search", "siren"]).succeeded();
    steady(world, &["index"]).succeeded();
    let left = run_ids(world);
    for run in &runs {
        if left.contains(run) {
            steady(world, &["show", run]).succeeded();
            steady(world, &["replay", run]);
        } else {
            assert!(said.contains(run.as_str()), "run {run} is lost and was not named: {said}");
        }
    }
    let is_journal = file.to_string_lossy().contains("state.db");
    assert!(is_journal || left == runs, "{left:?} is left of {runs:?}");
    let asked = steady(world, &["ask", "--offline", "-q", QUESTIONS[0]]).succeeded();
    assert!(asked.stdout.contains("siren"), "{asked}");
}

#[test]
fn random_damage_is_survived() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed: u64 = setting("DR_DAMAGE_SEED").unwrap_or(11);
    let healthy = with_runs();
    let files = files(&healthy.path(".dr"));
    let mut failed = Vec::new();
    let trials = setting("DR_DAMAGE_TRIALS").unwrap_or(TRIALS);
    for trial in 0..trials {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(trial));
        let file = &files[random.random_range(0..files.len())];
        let damage = Damage::random(&mut random, usize::try_from(file.metadata().unwrap().len()).unwrap());
        let world = World::like(&healthy);
        let name = file.strip_prefix(healthy.path("")).unwrap();
        let survived = std::panic::catch_unwind(|| survives(&world, &world.path(name.to_str().unwrap()), &damage));
        if survived.is_err() {
            failed.push(format!("trial {trial}: {damage:?} of {}", name.display()));
        }
    }
    println!("{trials} damages with seed {seed}: {COUNTS:?}; {} not survived: {failed:#?}", failed.len());
    assert!(failed.is_empty());
}

#[test]
fn rebuild_starts_from_the_files_whatever_part_of_the_index_is_damaged() {
    let healthy = World::indexed_text();
    let expected = healthy.contents();
    // The last 16 bytes of a version begin with an offset.
    let footer = |length: usize| Damage::Flip { at: length - 13, bit: 3 };
    let short = |_| Damage::Truncate { to: 5 };
    let damages: [(&str, &dyn Fn(usize) -> Damage); 3] =
        [("_versions", &short), ("data", &short), ("_versions", &footer)];
    for table in ["manifest.lance", "documents_1.lance", "chunks_1.lance"] {
        for (part, damage) in damages {
            let world = World::like(&healthy);
            for file in files(&world.path(&format!(".dr/index/{table}/{part}"))) {
                damage(usize::try_from(file.metadata().unwrap().len()).unwrap()).apply(&file);
            }
            let checkup = steady(&world, &["doctor"]);
            assert_eq!(checkup.exit, Some(1), "{table}/{part}: {checkup}");
            steady(&world, &["index", "--rebuild", "--no-embed", "-q"]).succeeded();
            assert_eq!(world.contents(), expected, "{table}/{part}");
            assert!(!steady(&world, &["doctor"]).stdout.contains("trouble"), "{table}/{part}");
        }
    }
}

#[test]
fn one_bad_byte_in_a_run_leaves_the_other_runs_and_is_named() {
    let world = with_runs();
    let runs = run_ids(&world);
    let damaged = rusqlite::Connection::open(world.path(".dr/state.db"))
        .unwrap()
        .execute("UPDATE events SET body = '[' || substr(body, 2) WHERE seq = 2 AND run = ?1", [&runs[1]])
        .unwrap();
    assert_eq!(damaged, 1);

    let listed = steady(&world, &["runs", "--json"]).succeeded();
    let json = listed.json();
    let broken: Vec<_> = json["runs"].as_array().unwrap().iter().filter(|run| run["state"] == "broken").collect();
    assert_eq!((broken.len(), run_ids(&world)), (1, runs.clone()), "{listed}");
    let broken = broken[0]["id"].as_str().unwrap().to_owned();
    assert!(listed.stderr.contains(&format!("run `{broken}` cannot be read")), "{listed}");
    for run in &runs {
        let shown = steady(&world, &["show", run]);
        assert_eq!(shown.exit, Some(i32::from(*run == broken)), "{shown}");
    }
    let checkup = steady(&world, &["doctor"]);
    assert!(checkup.exit == Some(1) && checkup.stdout.contains(&broken), "{checkup}");

    let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
    let (saved, lost) =
        ("journal: 3 runs saved; the damaged one is kept at", format!("lost: run {broken}: events after"));
    assert!(repaired.stdout.contains(saved) && repaired.stdout.contains(&lost), "{repaired}");
    assert!(world.path(".dr/state.db.damaged").exists());
    for run in &runs {
        steady(&world, &["show", run]).succeeded();
    }
    assert!(
        matches!(steady(&world, &["resume", &broken, "-q"]).exit, Some(0 | 3)),
        "the run continues from the damage"
    );
}

#[test]
fn truncated_journal_is_saved_as_far_as_it_can_be_read() {
    let healthy = with_runs();
    let runs = run_ids(&healthy);
    let length = healthy.path(".dr/state.db").metadata().unwrap().len();
    for keep in [9, 7, 5, 3] {
        let world = World::like(&healthy);
        Damage::Truncate { to: usize::try_from(length * keep / 10).unwrap() }.apply(&world.path(".dr/state.db"));
        let listed = steady(&world, &["runs"]);
        let hint = format!("{}{}", listed.stderr, steady(&world, &["show"]).stderr);
        assert!(hint.contains("dr doctor --repair"), "{keep}: {listed}");
        let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
        let left = run_ids(&world);
        for run in &runs {
            if left.contains(run) {
                steady(&world, &["show", run]).succeeded();
            } else {
                let is_named = repaired.stdout.contains(run.as_str());
                assert!(is_named, "{keep}: run {run} is not named: {repaired}");
            }
        }
        steady(&world, &["doctor"]).succeeded();
    }
}

#[test]
fn half_of_a_large_journal_gives_back_the_runs_whose_pages_are_in_it() {
    let world = with_runs();
    {
        let journal = rusqlite::Connection::open(world.path(".dr/state.db")).unwrap();
        let run = &run_ids(&world)[0];
        for number in 0..60_u64 {
            // Spread over the table, as random ids are.
            let id = format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for copy in [
                "INSERT INTO runs (id, question, started_at) SELECT ?1, question, started_at FROM runs WHERE id = ?2",
                "INSERT INTO events (run, seq, at, body) SELECT ?1, seq, at, body FROM events WHERE run = ?2",
            ] {
                journal.execute(copy, [&id, run]).unwrap();
            }
        }
    }
    let runs = run_ids(&world);
    let length = usize::try_from(world.path(".dr/state.db").metadata().unwrap().len()).unwrap();
    Damage::Truncate { to: length / 2 }.apply(&world.path(".dr/state.db"));
    let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
    let left = run_ids(&world);
    assert!(left.len() >= runs.len() / 4, "{} of {} runs: {repaired}", left.len(), runs.len());
    let said = format!("journal: {} runs saved; ", left.len());
    assert!(repaired.stdout.contains(&said), "{repaired}");
    for run in runs.iter().filter(|run| !left.contains(run)) {
        assert!(repaired.stdout.contains(run.as_str()), "run {run} is not named: {repaired}");
    }
    assert!(left.iter().all(|run| runs.contains(run)));
    for run in &left {
        steady(&world, &["show", run]).succeeded();
    }
    steady(&world, &["doctor"]).succeeded();
}

#[test]
fn journal_of_which_nothing_can_be_read_is_replaced_and_this_is_said() {
    let world = with_runs();
    let length = usize::try_from(world.path(".dr/state.db").metadata().unwrap().len()).unwrap();
    fs::write(world.path(".dr/state.db"), vec![0xa5; length]).unwrap();
    let listed = steady(&world, &["show"]);
    assert!(advised(&listed).contains(&"dr doctor --repair".to_owned()), "{listed}");
    let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
    let said = "journal: no run could be read, so it begins anew; the damaged one is kept at";
    assert!(repaired.stdout.contains(said), "{repaired}");
    assert_eq!(fs::read(world.path(".dr/state.db.damaged")).unwrap(), vec![0xa5; length]);
    steady(&world, &["ask", "--offline", "-q", QUESTIONS[0]]).succeeded();
    steady(&world, &["doctor"]).succeeded();
}

#[test]
fn what_is_left_of_a_run_without_its_first_event_is_written_beside_the_damaged_journal() {
    let world = with_runs();
    let runs = run_ids(&world);
    let broken = &runs[1];
    let call = "INSERT INTO calls (run, key, role, model, request_hash, is_tight, counted_tokens, worst_tokens, sent_at, \
                outcome, cost) VALUES (?1, 'judge/1', 'judge', 'm', '', 0, 1, 2, 3, 'failed', 77)";
    {
        let journal = rusqlite::Connection::open(world.path(".dr/state.db")).unwrap();
        journal.execute(call, [broken]).unwrap();
        journal.execute("UPDATE events SET body = '[' WHERE run = ?1 AND seq = 1", [broken]).unwrap();
    }
    assert_eq!(steady(&world, &["doctor"]).exit, Some(1));
    let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
    let rest = world.path(".dr/state.db.damaged.jsonl");
    for said in [format!("lost: run {broken}: its first event"), format!("are in `{}`", rest.display())] {
        assert!(repaired.stdout.contains(&said), "{repaired}");
    }
    let lines = fs::read_to_string(rest).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = lines.iter().filter(|line| line["kind"] == "event" && line["run"] == **broken).collect();
    assert!(events.len() > 3 && events[0]["record"]["seq"] == 2, "{lines:#?}");
    assert!(events.iter().any(|line| line.to_string().contains("\"quote\"")), "the evidence is there: {events:#?}");
    let call = lines.iter().find(|line| line["kind"] == "calls").unwrap();
    assert_eq!((&call["row"]["run"], &call["row"]["cost"]), (&broken.as_str().into(), &77.into()));
    assert!(lines.iter().all(|line| line.to_string().contains(broken.as_str())), "of no other run");
    assert_eq!(run_ids(&world), [runs[0].clone(), runs[2].clone()]);
}

#[test]
fn file_in_the_place_of_a_folder_is_named_with_what_to_do() {
    for (folder, command) in [(".dr/runs", "show"), (".dr/index", "index"), (".dr", "index")] {
        let world = World::indexed_text();
        world.dr(["ask", "--offline", "-q", QUESTIONS[0]]).succeeded();
        fs::remove_dir_all(world.path(folder)).unwrap();
        fs::write(world.path(folder), "in the way").unwrap();
        let args = if command == "show" { vec!["show"] } else { vec!["index", "kb", "--no-embed"] };
        let run = steady(&world, &args);
        let hint =
            format!("hint: it has to be a folder: remove what has that name, `{}`", world.path(folder).display());
        assert!(run.exit == Some(1) && run.stderr.contains(&hint), "{run}");
        fs::remove_file(world.path(folder)).unwrap();
        steady(&world, &args).succeeded();
    }
}

#[test]
fn removed_run_leaves_no_byte_behind() {
    let world = World::indexed();
    let question = "Where is the zanzibarine siren of plot seven?";
    let kept = "When does the siren sound?";
    for question in [question, kept] {
        assert!(matches!(world.dr(["ask", "--offline", "-q", question]).exit, Some(0 | 3)));
    }
    let holders = || -> Vec<PathBuf> {
        let has = |file: &PathBuf| {
            fs::read(file).unwrap().windows(11).any(|window| window.eq_ignore_ascii_case(b"zanzibarine"))
        };
        files(&world.path(".dr")).into_iter().filter(has).collect()
    };
    assert!(!holders().is_empty());
    let run = run_ids(&world).pop().unwrap();
    let stored = world.dr(["export", &run]).succeeded();
    assert!(stored.stdout.contains("zanzibarine"), "the oldest run is the one to remove: {stored}");
    world.dr(["rm", &run]).succeeded();
    assert_eq!(holders(), Vec::<PathBuf>::new());
    world.dr(["show"]).succeeded();
    world.dr(["doctor"]).succeeded();
}

#[test]
fn run_is_removed_although_the_research_memory_is_damaged() {
    let world = with_runs();
    let runs = run_ids(&world);
    let memory = files(&world.path(".dr/memory"));
    assert!(!memory.is_empty(), "the runs left something in the memory");
    for file in memory {
        Damage::Truncate { to: 3 }.apply(&file);
    }
    assert_eq!(steady(&world, &["doctor"]).exit, Some(1));
    steady(&world, &["rm", &runs[0]]).succeeded();
    assert_eq!(run_ids(&world), runs[1..]);
    steady(&world, &["doctor"]).succeeded();
    steady(&world, &["ask", "--offline", "-q", QUESTIONS[0]]).succeeded();
}

#[test]
fn journal_that_was_deleted_is_reported_with_its_runs() {
    let world = with_runs();
    let runs = run_ids(&world);
    fs::remove_file(world.path(".dr/state.db")).unwrap();
    let shown = world.dr(["show"]);
    assert_eq!((shown.exit, advised(&shown)), (Some(1), vec!["dr doctor".to_owned()]), "{shown}");
    assert!(world.dr(["runs"]).succeeded().stderr.contains("`dr doctor`"));
    let checkup = world.dr(arguments("dr doctor")).succeeded();
    for run in &runs {
        assert!(checkup.stdout.contains(run.as_str()), "{checkup}");
    }
}

#[test]
fn command_that_is_advised_where_no_run_is_stored_can_be_run() {
    let world = World::indexed();
    let shown = world.dr(["show"]);
    let advised = advised(&shown);
    assert_eq!((shown.exit, advised.len()), (Some(1), 1), "{shown}");
    world.dr([&arguments(&advised[0])[..], &["--offline".to_owned()]].concat()).succeeded();
    world.dr(["show"]).succeeded();
}

/// Damages every file of a kind in the research memory, and checks that asking continues, says what mends it, and that this
/// does.
fn memory_is_lost(healthy: &World, part: &str, damage: &dyn Fn(usize) -> Damage) {
    let world = World::like(healthy);
    let is_of_part = |file: &PathBuf| slashed(&file.to_string_lossy()).contains(part);
    let damaged: Vec<_> = files(&world.path(".dr/memory")).into_iter().filter(is_of_part).collect();
    assert!(!damaged.is_empty());
    for file in damaged {
        damage(usize::try_from(file.metadata().unwrap().len()).unwrap()).apply(&file);
    }
    let asked = steady(&world, &["ask", "--offline", QUESTIONS[0]]).succeeded();
    assert!(asked.stdout.contains("siren"), "{asked}");
    let (checkup, mend) = (steady(&world, &["doctor"]), "dr doctor --repair".to_owned());
    assert!(checkup.exit == Some(1) && checkup.stdout.contains("trouble memory"), "{part}: {checkup}");
    assert_eq!(advised(&checkup), std::slice::from_ref(&mend), "{checkup}");
    assert_eq!(asked.stderr.matches("without its research memory").count(), 1, "{part}: {asked}");
    assert_eq!(advised(&asked), [mend], "{asked}");
    let repaired = steady(&world, &["doctor", "--repair"]).succeeded();
    assert!(repaired.stdout.contains("repair  research memory: removed"), "{repaired}");
    let asked = steady(&world, &["ask", "--offline", QUESTIONS[0]]).succeeded();
    assert_eq!(asked.stderr, "", "the memory is filled again");
    assert_eq!(run_ids(&world).len(), QUESTIONS.len() + 2, "no run is lost");
}

#[test]
fn damaged_research_memory_ends_no_question_and_is_not_taken_for_the_index() {
    let healthy = with_runs();
    // The last 16 bytes of a version begin with an offset, without which the storage engine panics.
    memory_is_lost(&healthy, "_versions/1", &|length| Damage::Flip { at: length - 13, bit: 3 });
    memory_is_lost(&healthy, "_versions/1", &|_| Damage::Truncate { to: 5 });
    memory_is_lost(&healthy, "data/", &|_| Damage::Empty);
}
