use std::fs;

use dr::kb::index::lock_writer;
use serde_json::json;

use crate::common::World;
#[cfg(unix)]
use crate::common::write_program;

#[test]
fn first_run_creates_the_index_and_lists_skipped_files() {
    let world = World::with_kb();
    dr_snapshot!(world.dr(["index", "kb"]));
    assert_eq!(world.read(".dr/.gitignore"), "*\n");
}

#[test]
fn unchanged_second_run_reads_no_known_file() {
    let world = World::indexed();
    fs::remove_file(world.path("kb/latin1.md")).unwrap();
    dr_snapshot!(world.dr(["index", "kb"]));
}

#[test]
fn changed_renamed_removed_and_added_files_are_counted_separately() {
    let world = World::indexed();
    let changed = world.read("kb/guide/watering.md").replace("basil | 41 %", "basil | 44 %");
    world.write("kb/guide/watering.md", &changed);
    fs::rename(world.path("kb/harvest.md"), world.path("kb/guide/harvest-2026.md")).unwrap();
    fs::remove_file(world.path("kb/field-notes.txt")).unwrap();
    world.write("kb/new.md", "# New\n\nA paragraph about marmalade.\n");
    dr_snapshot!(world.dr(["index", "kb"]));

    let found = |query: &str| {
        let json = world.dr(["search", "--mode", "lexical", "--json", query]).succeeded().json();
        json["hits"].as_array().unwrap().iter().map(|hit| hit["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("\"basil | 44 %\""), ["guide/watering.md"]);
    assert!(found("\"basil | 41 %\"").is_empty());
    assert_eq!(found("rucksack"), ["guide/harvest-2026.md"]);
    assert!(found("litres").is_empty());
    assert_eq!(found("marmalade"), ["new.md"]);
}

#[test]
fn notes_of_a_renamed_folder_keep_their_vectors() {
    let world = World::indexed();
    let before = world.contents();
    fs::rename(world.path("kb/guide"), world.path("kb/manual")).unwrap();
    let summary = world.dr(["index", "kb", "--json"]).succeeded().json();
    let counts = ["renamed", "added", "changed", "removed", "embedded"].map(|count| &summary[count]);
    assert_eq!(counts, [&json!(3), &json!(0), &json!(0), &json!(0), &json!(0)], "{summary}");
    let after = world.contents();
    assert_eq!((after.vectors, after.vectors_missing), (before.vectors, 0));
    let moved = after.documents.iter().filter(|row| row.path.starts_with("manual/")).count();
    assert_eq!((moved, after.documents.len()), (3, before.documents.len()));
}

#[test]
fn index_is_found_upward_and_known_folders_need_no_argument() {
    let world = World::indexed();
    let mut command = world.command(["index"]);
    command.current_dir(world.path("kb/guide"));
    dr_snapshot!(world.run_of(command.output().unwrap()));
}

#[test]
fn run_without_vectors_is_completed_by_the_next_one() {
    let world = World::with_kb();
    dr_snapshot!(world.dr(["index", "kb", "--no-embed"]));
    dr_snapshot!(world.dr(["search", "siren", "-k", "1"]));
    dr_snapshot!(world.dr(["search", "siren", "--mode", "vector"]));
    dr_snapshot!(world.dr(["index", "kb"]));
    assert_eq!(world.contents(), World::indexed().contents());
}

#[test]
fn json_summary_has_the_numbers_of_the_text() {
    let world = World::with_kb();
    dr_snapshot!(world.dr(["index", "kb", "--json"]));
    let again = world.dr(["index", "kb", "--format", "json", "--quiet"]).succeeded();
    assert_eq!(again.json()["unchanged"], json!(14));
    assert_eq!(again.stderr, "");
}

#[test]
fn rebuild_and_verify_end_in_the_same_rows() {
    let world = World::indexed();
    let before = world.contents();
    let verified = world.dr(["index", "--verify", "--json"]).succeeded().json();
    assert_eq!((&verified["unchanged"], &verified["chunks"]), (&json!(14), &json!(0)));
    assert_eq!(world.contents(), before);
    let rebuilt = world.dr(["index", "--rebuild", "--json"]).succeeded().json();
    assert_eq!((&rebuilt["added"], &rebuilt["embedded"]), (&json!(14), &json!(16)));
    assert_eq!(world.contents(), before);
}

#[test]
fn edit_that_keeps_size_and_time_is_found_by_verify() {
    let world = World::indexed_text();
    let edited = world.read("kb/guide/alarms.md").replace("forty minutes", "fifty minutes");
    world.write_on_day(1, "kb/guide/alarms.md", &edited);
    let unaware = world.dr(["index", "--no-embed", "--json"]).succeeded().json();
    assert_eq!(unaware["changed"], json!(0));
    let verified = world.dr(["index", "--no-embed", "--verify", "--json"]).succeeded().json();
    assert_eq!((&verified["changed"], &verified["unchanged"]), (&json!(1), &json!(13)));
}

#[test]
fn loss_of_most_files_has_to_be_confirmed() {
    let world = World::indexed_text();
    for folder in ["kb/guide", "kb/releases", "kb/reference"] {
        fs::remove_dir_all(world.path(folder)).unwrap();
    }
    let before = world.contents();
    fs::remove_file(world.path("kb/bom.md")).unwrap();
    dr_snapshot!(world.dr(["index", "kb", "--no-embed"]));
    assert_eq!(world.contents(), before, "a refused run changes nothing");
    dr_snapshot!(world.dr(["index", "kb", "--no-embed", "--prune"]));
    assert_eq!(world.contents().documents.len(), 6);
}

#[test]
fn collection_name_is_bound_to_its_folder() {
    let world = World::indexed_text();
    world.write("other/a.md", "# Other\n");
    dr_snapshot!(world.dr(["index", "other", "--collection", "kb", "--no-embed"]));
    dr_snapshot!(world.dr(["index", "other", "--collection", "second", "--no-embed"]));
    dr_snapshot!(world.dr(["search", "other", "--collection", "third", "--mode", "lexical"]));
}

#[test]
fn names_and_folders_must_pair_up() {
    let world = World::with_kb();
    world.write("more/kb/a.md", "# More\n");
    dr_snapshot!(world.dr(["index", "kb", "--collection", "one", "--collection", "two"]));
    dr_snapshot!(world.dr(["index", "kb", "more/kb"]));
    dr_snapshot!(world.dr(["index"]));
    dr_snapshot!(world.dr(["index", "nowhere"]));
    dr_snapshot!(world.dr(["index", "kb/bom.md"]));
    assert!(!world.path(".dr").exists(), "a refused run leaves nothing behind");
}

#[test]
fn two_folders_in_one_run_are_two_collections() {
    let world = World::with_kb();
    world.write("more/kb/a.md", "# More\n\nA word: tangerine.\n");
    world
        .dr(["index", "kb", "more/kb", "--collection", "kb", "--collection", "more", "--no-embed", "--quiet"])
        .succeeded();
    let found = world.dr(["search", "tangerine", "--mode", "lexical", "--jsonl"]).succeeded().json();
    assert_eq!((&found["collection"], &found["path"]), (&json!("more"), &json!("a.md")));
}

#[test]
fn second_writer_is_told_who_holds_the_lock() {
    let world = World::indexed_text();
    let lock = lock_writer(world.location().folder().unwrap()).unwrap();
    let refused = world.dr(["index", "--no-embed"]);
    assert!(refused.stderr.contains(&format!("process {} since", std::process::id())), "{refused}");
    dr_snapshot!(refused);
    world.dr(["search", "siren", "--mode", "lexical"]).succeeded();
    drop(lock);
    world.dr(["index", "--no-embed"]).succeeded();
}

#[test]
fn index_location_may_be_a_flag_or_a_variable() {
    let world = World::with_kb();
    world.dr(["index", "kb", "--index", "elsewhere", "--no-embed", "--quiet"]).succeeded();
    assert!(world.path("elsewhere").is_dir() && !world.path(".dr").exists());
    let world = world.with_variable("DR_INDEX", "elsewhere");
    world.dr(["search", "siren", "--mode", "lexical"]).succeeded();
    dr_snapshot!(world.dr(["search", "siren", "--index", "ftp://host/kb"]));
}

/// Runs git for a test; `None` where it is not installed.
fn git(world: &World, folder: &str, args: &[&str]) -> Option<()> {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]).args(args);
    command.current_dir(world.path(folder)).env("HOME", world.home("")).env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().ok()?;
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

#[cfg(unix)]
#[test]
fn ssh_may_not_ask_on_the_terminal_while_a_repository_is_pulled() {
    let world = World::empty();
    let ssh = |name: &str| {
        let ssh = world.path(name);
        write_program(&ssh, "echo \"${0##*/} $*\" >> \"$SSH_LOG\"\nexit 1");
        ssh.display().to_string()
    };
    ssh("ssh");
    let own = ssh("own-ssh");
    world.write("kb/a.md", "# A\n");
    if git(&world, "kb", &["init", "-q", "-b", "main"]).is_none() {
        eprintln!("skipped: git is not installed");
        return;
    }
    let set = |name: &str, value: &str| git(&world, "kb", &["config", name, value]).unwrap();
    set("remote.origin.url", "ssh://example.invalid/kb");
    set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*");
    set("branch.main.remote", "origin");
    set("branch.main.merge", "refs/heads/main");
    let pulled_with = |variable: Option<(&str, &str)>| {
        let path = format!("{}:{}", world.path("").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = world.command(["index", "kb", "--pull", "--no-embed"]);
        command.env("PATH", path).env("GIT_CONFIG_NOSYSTEM", "1").env("SSH_LOG", world.path("log")).envs(variable);
        let run = world.run_of(command.output().unwrap());
        assert!(run.exit == Some(1) && run.stderr.contains("if it asks for a password, a passphrase"), "{run}");
        let log = world.read("log");
        std::fs::remove_file(world.path("log")).unwrap();
        log
    };
    let log = pulled_with(None);
    assert!(log.starts_with("ssh -o BatchMode=yes "), "{log}");
    for variable in ["GIT_SSH_COMMAND", "GIT_SSH"] {
        let log = pulled_with(Some((variable, &own)));
        assert!(log.starts_with("own-ssh ") && !log.contains("BatchMode"), "{log}");
    }
    set("core.sshCommand", &own);
    let log = pulled_with(None);
    assert!(log.starts_with("own-ssh ") && !log.contains("BatchMode"), "{log}");
}

#[test]
fn repositories_are_pulled_first_and_what_cannot_be_fast_forwarded_is_left_alone() {
    let path = std::env::var("PATH").unwrap_or_default();
    let world = World::empty().with_variable("PATH", path).with_variable("GIT_CONFIG_NOSYSTEM", "1");
    world.write("upstream/a.md", "# A\n\nThe kiln is cold.\n");
    if git(&world, "upstream", &["init", "-q"]).is_none() {
        eprintln!("skipped: git is not installed");
        return;
    }
    let commit = |folder: &str| {
        git(&world, folder, &["add", "."]).unwrap();
        git(&world, folder, &["commit", "-q", "-m", "notes"]).unwrap();
    };
    commit("upstream");
    git(&world, "", &["clone", "-q", "upstream", "kb"]).unwrap();
    world.dr(["index", "kb", "--no-embed", "-q"]).succeeded();
    world.write("upstream/b.md", "# B\n\nThe kiln is hot.\n");
    commit("upstream");
    let pulled = world.dr(["index", "--pull", "--no-embed"]).succeeded();
    assert!(pulled.stderr.contains("kb: Updating") && world.path("kb/b.md").exists(), "{pulled}");
    assert_eq!(world.contents().documents.len(), 2);

    world.write("upstream/c.md", "# C\n");
    commit("upstream");
    world.write("kb/own.md", "# Own\n");
    commit("kb");
    let refused = world.dr(["index", "kb", "--pull", "--no-embed"]);
    assert!(refused.exit == Some(1) && refused.stderr.contains("`git pull` failed"), "{refused}");
    assert_eq!((world.contents().documents.len(), world.path("kb/c.md").exists()), (2, false));

    let offline = world.dr(["index", "kb", "--pull", "--offline"]);
    assert!(offline.exit == Some(1) && offline.stderr.contains("not pulled offline"), "{offline}");
    world.write("plain/d.md", "# D\n");
    let plain = world.dr(["index", "plain", "--pull"]);
    assert!(plain.exit == Some(1) && plain.stderr.contains("none of the folders is in a git repository"), "{plain}");
}
