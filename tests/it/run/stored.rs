use std::fs;
use std::path::Path;

use dr::run::store::Store;
use serde_json::{Value, json};

use super::{KEY, ONE_ROUND, QUESTION, calls, endpoint, topics, topics_at, world_at};
use crate::common::{World, block_on};

/// Returns a world with one finished run, whose endpoint is gone.
fn after_a_run() -> World {
    let (_server, world) = topics_at(endpoint(ONE_ROUND));
    world.dr(["ask", QUESTION]).succeeded();
    world
}

/// Asserts that a command fails with a message and a hint.
fn assert_refused(world: &World, args: &[&str], message: &str, hint: &str) {
    let run = world.dr(args);
    assert_eq!((run.exit, run.stdout.as_str()), (Some(1), ""), "{run}");
    assert_eq!(run.stderr, format!("error: {message}\n\nhint: {hint}\n"));
}

#[test]
fn replay_prints_the_same_output_without_index_or_endpoint() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let printed = ["markdown", "html", "json", "note"].map(|format| {
        let run = world.dr(["ask", "--fresh", "--quiet", "--format", format, QUESTION]).succeeded();
        (format, world.run_ids()[0].clone(), run.stdout)
    });
    drop(server);
    fs::remove_dir_all(world.path(".dr/index")).unwrap();
    fs::remove_dir_all(world.path("kb")).unwrap();
    for (format, run, expected) in printed {
        let replayed = world.dr(["replay", &run, "--format", format]).succeeded();
        assert!(replayed.stdout == expected, "{format}: {expected}\nis not\n{}", replayed.stdout);
        assert_eq!(replayed.stderr, "");
        let again = world.dr(["replay", &run, "--format", format, "-o", "again"]).succeeded();
        assert_eq!((again.stdout.as_str(), world.read("again")), ("", expected));
    }
}

#[test]
fn refusal_is_replayed_with_its_exit_code() {
    let world = topics();
    let asked = world.dr(["ask", "--offline", "Who won the parliamentary election in Portugal?"]);
    assert_eq!(asked.exit, Some(3), "{asked}");
    let replayed = world.dr(["replay"]);
    assert_eq!((replayed.exit, replayed.stdout), (asked.exit, asked.stdout));
}

#[test]
fn runs_are_listed_with_state_and_cost_and_compared_by_their_nodes() {
    let (_server, world) = topics_at(endpoint(ONE_ROUND));
    let none = world.dr(["runs"]).succeeded();
    assert_eq!(
        (none.stdout.as_str(), none.stderr.as_str()),
        ("", "no run is stored here; `dr ask \"<QUESTION>\"` starts one\n")
    );
    world.dr(["ask", QUESTION]).succeeded();
    world.dr(["ask", "--offline", "What is said of topic 2?"]).succeeded();
    let listed = world.dr(["runs"]).succeeded();
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert!(lines[1].ends_with("What is said of topic 2?") && lines[3].ends_with(QUESTION), "{listed}");
    assert!(lines[2].contains("complete") && lines[2].contains("5 nodes") && lines[2].ends_with("$0.0000"), "{listed}");
    let json = world.dr(["runs", "--json"]).succeeded().json();
    assert_eq!(json["runs"][1]["question"], QUESTION);
    assert_eq!((&json["runs"][1]["state"], &json["runs"][1]["nodes"]), (&"complete".into(), &5.into()));
    let nodes: Vec<_> = json["stats"].as_array().unwrap().iter().map(|group| &group["nodes"]).collect();
    assert_eq!(nodes.len(), 2, "{json:#}");
    let stats = world.dr(["runs", "--stats"]).succeeded();
    let lines: Vec<_> = stats.stdout.lines().collect();
    assert_eq!(lines[0], " nodes   runs    mean cost  mean time");
    assert!(lines[2].starts_with("     5      1      $0.0000 ") && lines.len() == 3, "{stats}");
}

#[test]
fn run_is_shown_as_tree_usage_and_events() {
    let world = after_a_run();
    let shown = |flag: &str| world.dr(["show", flag]).succeeded().stdout;
    let tree = shown("--tree");
    assert_eq!(tree.lines().count(), 5, "{tree}");
    assert!(tree.contains("What is said of topic 4?"), "{tree}");
    let usage = shown("--usage");
    assert!(usage.contains("worker") && usage.contains("tokens of `scripted` were counted"), "{usage}");
    let quotes = shown("--quotes");
    assert!(quotes.starts_with("[1] n2e1 topic-1.md:1 — topic-1\n    Topic 1 is described here in full"), "{quotes}");
    let events = shown("--events");
    assert!(events.starts_with(&format!("asked: {QUESTION}\nbrief: 2 aspects\nround 1: 4 sub-questions planned\n")));
    assert!(events.ends_with("\nended: complete\n"), "{events}");
    let all = world.dr(["show", &world.run_ids()[0][..6]]).succeeded().stdout;
    for part in [&tree, &usage, &quotes, &events] {
        assert!(all.contains(part.trim()), "no\n{part}\nin\n{all}");
    }
    let json = world.dr(["show", "--json", "--events"]).succeeded().json();
    assert_eq!(json["events"][0]["event"]["type"], "started");
    assert_eq!((&json["is_running"], &json["stop_reason"]), (&false.into(), &"complete".into()));
    assert_eq!(json["branches"].as_object().unwrap().len(), 4);
}

#[test]
fn export_is_json_lines_and_no_key_is_stored() {
    let world = after_a_run();
    let lines = world.export(None);
    assert_eq!((&lines[0]["kind"], &lines[0]["id"]), (&"run".into(), &Value::from(world.run_ids()[0].as_str())));
    let events = lines.iter().filter(|line| line["kind"] == "event").count();
    assert!(events >= 12, "{events} events");
    assert!(calls(&world).iter().all(|call| call["outcome"] == "replied" && call["reply"]["raw"].is_object()));
    world.dr(["export", "-o", "run.jsonl"]).succeeded();
    assert_eq!(world.read("run.jsonl"), world.dr(["export"]).succeeded().stdout);
    let mut read = 0;
    for folder in ["", ".dr", ".dr/runs"] {
        for entry in fs::read_dir(world.path(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                let bytes = fs::read(entry.path()).unwrap();
                assert!(!bytes.windows(KEY.len()).any(|found| found == KEY.as_bytes()), "{}", entry.path().display());
                read += 1;
            }
        }
    }
    assert!(read >= 2, "state.db and run.jsonl were looked into");
}

#[test]
fn removing_a_run_keeps_the_others() {
    let world = topics();
    for topic in 1..=2 {
        world.dr(["ask", "--offline", &format!("What is said of topic {topic}?")]).succeeded();
    }
    let [second, first] = world.run_ids().try_into().unwrap();
    assert_eq!(world.dr(["rm", &first]).succeeded().stderr, format!("removed {first}\n"));
    assert_eq!(world.run_ids(), [second]);
    assert_refused(&world, &["replay", &first], &format!("no run `{first}`"), "`dr runs` lists the runs and their ids");
}

#[test]
fn removed_runs_and_trusted_folders_are_printed_as_json() {
    let world = topics();
    for topic in 1..=2 {
        world.dr(["ask", "--offline", &format!("What is said of topic {topic}?")]).succeeded();
    }
    let ids = world.run_ids();
    let removed = world.dr(["rm", "--json", &ids[0], &ids[1]]).succeeded();
    assert_eq!((removed.json()["removed"].clone(), removed.stderr.as_str()), (json!(ids), ""));
    for (args, is_trusted) in [(&["trust", "--yes", "--json"][..], true), (&["trust", "--revoke", "--json"], false)] {
        let trusted = world.dr(args).succeeded();
        assert_eq!((&trusted.json()["trusted"], trusted.stderr.as_str()), (&json!(is_trusted), ""));
        assert!(Path::new(trusted.json()["folder"].as_str().unwrap()).is_absolute());
    }
}

#[test]
fn nothing_is_removed_if_one_name_is_wrong() {
    let world = topics();
    world.dr(["ask", "--offline", "What is said of topic 1?"]).succeeded();
    let run = world.run_ids()[0].clone();
    let hint = "`dr runs` lists the runs and their ids";
    assert_refused(&world, &["rm", &run, "zzz"], "no run `zzz`", hint);
    assert_eq!(world.run_ids(), [run]);
}

#[test]
fn ambiguous_run_prefix_is_refused() {
    let world = topics();
    world.dr(["ask", "--offline", "What is said of topic 1?"]).succeeded();
    let [run] = world.run_ids().try_into().unwrap();
    block_on(async {
        let store = Store::open(&world.path(".dr")).unwrap();
        let (records, _) = store.read(&run.parse().unwrap()).await.unwrap();
        for twin in ["fa11fa11fa11fa11", "fa11fa11fa11fa12"] {
            store.lock(&twin.parse().unwrap()).unwrap().create("What?", &records[0]).await.unwrap();
        }
    });
    let hint = "`dr runs` lists the runs and their ids";
    for command in ["rm", "show", "replay", "export", "resume"] {
        assert_refused(&world, &[command, "fa11fa11"], "`fa11fa11` matches several runs", hint);
    }
    assert_eq!(world.run_ids().len(), 3);
}

#[test]
fn plan_without_a_run_has_no_report_to_replay() {
    let (_server, world) = topics_at(endpoint(ONE_ROUND));
    let run = world.dr(["plan", "--json", QUESTION]).succeeded().json()["run_id"].as_str().unwrap().to_owned();
    let replayed = world.dr(["replay"]);
    assert_eq!((replayed.exit, replayed.stdout.as_str()), (Some(1), ""), "{replayed}");
    let said = format!(
        "error: run `{run}` was only planned: it has no report\n\nhint: `dr resume {run}` carries the plan out; `dr show \
         {run}` prints it\n"
    );
    assert_eq!(replayed.stderr, said);
}

#[test]
fn commands_without_runs_print_how_to_start_one() {
    let world = topics();
    for command in ["show", "replay", "export", "resume"] {
        assert_refused(&world, &[command], "no run is stored here", "`dr ask \"<QUESTION>\"` starts one");
    }
}

#[test]
fn log_tells_the_story_of_a_run_by_its_spans() {
    let server = endpoint(ONE_ROUND);
    let world = world_at(&server).with_variable("DR_LOG", "dr=info");
    let log = world.dr(["ask", "--quiet", QUESTION]).succeeded().stderr;
    let run = world.run_ids()[0].clone();
    let within = format!("command{{name=\"ask\"}}:run{{id={run}}}");
    let within_ended = within.trim_end_matches('}');
    for told in [
        format!("{within}: dr::run::orchestrator: planned seq=3"),
        format!("{within}: dr::run::orchestrator: node_started seq=4 node=n2 route=Internal nodes=5 tokens="),
        format!("{within}:node{{id=n2}}:call{{key=n2/step/1 role=worker tokens="),
        format!("{within}:node{{id=n2 findings="),
        format!("{within_ended} rounds=1 nodes=5 tokens="),
        "stop=\"complete\"".to_owned(),
        "command{name=\"ask\" exit=0}".to_owned(),
    ] {
        assert!(log.contains(&told), "no `{told}` in\n{log}");
    }
    assert!(!log.contains("Topic 1 is described"), "the log has ids and counts, and no text of the run");
}
