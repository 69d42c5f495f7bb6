use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::World;
#[cfg(unix)]
use crate::common::write_program;
use crate::outside::set;

/// Returns a world with an editor that writes its arguments to a file, one a line.
#[cfg(unix)]
fn with_editor(world: World, name: &str, exit: i32) -> World {
    let (editor, log) = (world.home(name), world.home("arguments"));
    write_program(&editor, &format!("printf '%s\\n' \"$@\" > '{}'\nexit {exit}", log.display()));
    world.with_variable("EDITOR", editor.display().to_string())
}

#[cfg(unix)]
#[test]
fn open_starts_the_editor_at_the_line_of_a_hit() {
    let world = with_editor(World::indexed_text(), "nvim", 0);
    let hit = world.dr(["search", "--mode", "lexical", "--json", "siren", "-k", "1"]).json()["hits"][0].clone();
    let file = world.path("kb").join(hit["path"].as_str().unwrap());
    let opened = |args: &[&str]| {
        let run = world.dr([&["open"], args].concat()).succeeded();
        assert_eq!(run.stdout, "");
        (fs::read_to_string(world.home("arguments")).unwrap(), run.stderr)
    };
    let at_line = |line: &str| (format!("+{line}\n{}\n", file.display()), String::new());
    assert_eq!(opened(&[hit["id"].as_str().unwrap()]), at_line(&hit["line_start"].to_string()));
    let path = hit["path"].as_str().unwrap();
    assert_eq!(opened(&[&format!("{path}:3-4")]), at_line("3"));
    let whole = (format!("{}\n", file.display()), String::new());
    assert_eq!(opened(&[path]), whole);
    assert_eq!(opened(&[hit["document_id"].as_str().unwrap()]), whole);

    world.write(&format!("kb/{path}"), "# Other\n");
    let (arguments, note) = opened(&[&format!("{path}:3")]);
    assert!(arguments.starts_with("+3\n") && note.contains("has changed since it was indexed"), "{note}");
    fs::remove_file(&file).unwrap();
    let gone = world.dr(["open", path]);
    assert!(gone.exit == Some(1) && gone.stderr.contains("no longer exists; it was there"), "{gone}");
    fs::remove_file(world.home("arguments")).unwrap();
    for id in ["0123456789abcdef", "../home/nvim", "missing.md"] {
        assert_eq!(world.dr(["open", id]).exit, Some(1), "{id}");
    }
    assert!(!world.home("arguments").exists());
}

#[cfg(unix)]
#[test]
fn editor_is_the_one_of_the_user_and_its_failure_is_reported() {
    let world = World::indexed_text();
    world.write(".env", "EDITOR=/bin/false\nVISUAL=/bin/false\n");
    let none = world.dr(["open", "guide/watering.md"]);
    assert!(none.exit == Some(2) && none.stderr.contains("hint: export EDITOR="), "{none}");
    let world = with_editor(world, "code", 3);
    let failed = world.dr(["open", "guide/watering.md:2"]);
    assert!(failed.exit == Some(1) && failed.stderr.contains("error: editor `"), "{failed}");
    let arguments = fs::read_to_string(world.home("arguments")).unwrap();
    assert!(arguments.starts_with("--goto\n") && arguments.ends_with("/guide/watering.md:2\n"), "{arguments}");
    let missing = world.with_variable("VISUAL", "/no/such/editor --wait").dr(["open", "guide/watering.md"]);
    assert!(missing.exit == Some(1) && missing.stderr.contains("failed to start `/no/such/editor`"), "{missing}");
}

#[test]
fn completions_of_every_shell_are_valid() {
    let world = World::empty();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = world.dr(["completions", shell]).succeeded().stdout;
        let asks = ["bash", "zsh", "fish"].contains(&shell);
        for word in ["verify", "recall", "max-cost", "doctor"] {
            assert_eq!(script.contains(word), !asks, "{shell} and `{word}`");
        }
        assert_eq!(script.contains("DR_COMPLETE=") || script.contains("DR_COMPLETE=\""), asks, "{script}");
        let path = world.path("script");
        fs::write(&path, &script).unwrap();
        // Not every machine has every shell.
        let checked = match shell {
            "bash" | "zsh" => Command::new(shell).arg("-n").arg(&path).output(),
            "fish" => Command::new(shell).arg("--no-execute").arg(&path).output(),
            _ => continue,
        };
        if let Ok(checked) = checked {
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
    assert_eq!(world.dr(["completions", "tcsh"]).exit, Some(2));
}

/// Returns what a shell offers for the last of these words: values, with their descriptions where it shows them.
fn offered(world: &World, shell: &str, words: &[&str]) -> Vec<String> {
    offered_in(&world.path(""), world, shell, words)
}

fn offered_in(folder: &Path, world: &World, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = world.command([&["--", "dr"], words].concat());
    command.current_dir(folder);
    let output = command.env("DR_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let run = world.run_of(output.output().unwrap()).succeeded();
    assert_eq!(run.stderr, "", "{words:?}");
    run.stdout
        .split([if shell == "bash" { '\u{b}' } else { '\n' }, '\n'])
        .map(str::to_owned)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn names_of_runs_collections_settings_and_servers_are_completed() {
    let world = World::indexed_text();
    let ask = |question: &str| world.dr(["ask", "--offline", "--yes", "--json", question]).json();
    let run = |report: &serde_json::Value| report["run_id"].as_str().unwrap().to_owned();
    let (first, second) = (run(&ask("What does the siren do?")), run(&ask("How are beds watered?")));
    let help = [format!("{second}:How are beds watered?"), format!("{first}:What does the siren do?")];
    for command in ["show", "resume", "replay", "export", "rm"] {
        let both = offered(&world, "zsh", &[command, ""]);
        assert_eq!(both[..2], help, "{command}");
        assert_eq!(offered(&world, "fish", &[command, &first[..8]]), [help[1].replacen(':', "\t", 1)]);
    }
    assert!(offered(&world, "zsh", &["ask", "--follow", ""]).contains(&help[0]));
    for command in ["search", "ask", "index", "eval"] {
        assert_eq!(offered(&world, "zsh", &[command, "--collection", ""]), ["kb"], "{command}");
    }
    for (words, expected) in [
        (&["search", "--mode", ""][..], &["hybrid", "lexical", "vector"][..]),
        (&["ask", "--mode", "d"], &["deep"]),
        (&["plan", "--source", ""], &["internal", "web", "mixed"]),
    ] {
        assert_eq!(offered(&world, "zsh", words), expected, "{words:?}");
    }
    set(&world, "[mcp.tickets]\ncommand = [\"no-server\"]\nlabel = \"internal\"\ntools = [\"a\"]\n");
    assert_eq!(offered(&world, "zsh", &["trust", "--mcp", ""]), ["tickets"]);
    let settings = offered(&world, "zsh", &["config", "max_"]);
    assert!(settings.iter().any(|line| line.starts_with("max_cost:cost limit of a run")), "{settings:?}");
    let keys = |args: &[&str]| -> Vec<String> {
        let printed = world.dr([&["config", "--json"], args].concat()).succeeded().json();
        let settings = printed["settings"].as_array().unwrap().iter();
        settings.map(|setting| setting["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["limit"]), ["limit"]);
    assert_eq!(keys(&["mcp", "max_cost"])[0], "max_cost");
    assert_eq!(keys(&["web.provider"]), ["web.provider"], "a default, though no value is set");
    assert!(keys(&["models"]).iter().any(|key| key == "models.effort"));
    assert_eq!(keys(&["prices"]), [""; 0], "a table of the user's names");
    assert!(keys(&[]).iter().all(|key| !key.starts_with("models.")));
    assert!(keys(&["mcp"]).iter().all(|key| key.starts_with("mcp.tickets.")), "{:?}", keys(&["mcp"]));
    let unknown = world.dr(["config", "limi"]);
    assert!(unknown.exit == Some(2) && unknown.stderr.starts_with("error: no setting `limi`"), "{unknown}");

    // Another index, as the line says.
    let (elsewhere, index) = (world.home(""), world.path(".dr/index").display().to_string());
    let offered = |words: &[&str]| offered_in(&elsewhere, &world, "zsh", words);
    assert_eq!(offered(&["search", "--collection", ""]), [""; 0]);
    assert_eq!(offered(&["--index", &index, "search", "--collection", ""]), ["kb"]);
    assert_eq!(offered(&[&format!("--index={index}"), "search", "--collection", ""]), ["kb"]);
}

#[test]
fn completion_changes_nothing_and_is_silent_on_errors() {
    let world = World::indexed_text();
    world.dr(["ask", "--offline", "--yes", "--quiet", "What does the siren do?"]).succeeded();
    let files = |world: &World| {
        let mut files = Vec::new();
        let mut folders = vec![world.path(""), world.home("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push((fs::read(&path).unwrap(), path)) }
            }
        }
        files.sort_by(|a, b| a.1.cmp(&b.1));
        files
    };
    let ask = |world: &World| {
        let before = files(world);
        let [runs, collections] = [&["show", ""][..], &["search", "--collection", ""]]
            .map(|words| offered(world, "zsh", words).into_iter().filter(|word| !word.starts_with('-')).count());
        assert!(files(world) == before, "a file was changed");
        (runs, collections)
    };
    assert_eq!(ask(&world), (1, 1));
    assert_eq!(ask(&World::empty()), (0, 0));

    // Neither of these is trusted, read or complained about.
    let foreign = World::empty();
    fs::create_dir(foreign.path(".dr")).unwrap();
    for name in ["state.db", "id"] {
        fs::write(
            foreign.path(&format!(".dr/{name}")),
            fs::read(world.path(&format!(".dr/{name}"))).unwrap_or_default(),
        )
        .unwrap();
    }
    assert_eq!(ask(&foreign), (0, 0));
    fs::write(world.path(".dr/state.db"), "no database").unwrap();
    fs::write(world.path(".dr/index/manifest.json"), "{").unwrap();
    assert_eq!(ask(&world), (0, 1));
    world.write("dr.toml", "this is no TOML");
    assert_eq!(ask(&world), (0, 0));

    let hostile = World::with_copy_of(&world.path("kb/guide"));
    hostile.dr(["index", "kb", "--collection", "a$(touch hit)", "--no-embed", "--quiet"]).succeeded();
    assert_eq!(ask(&hostile), (0, 0), "a name that a shell would run");
}

#[cfg(unix)]
#[test]
fn bash_completes_by_asking() {
    let world = World::indexed_text();
    let report = world.dr(["ask", "--offline", "--yes", "--json", "What does the siren do?"]).json();
    let bin = world.home("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dr"), bin.join("dr")).unwrap();
    let script = world.dr(["completions", "bash"]).succeeded().stdout;
    fs::write(world.path("script"), script).unwrap();
    let complete = |line: &str| {
        // As bash does on the key: the words of the line, and the last of them.
        let steps = format!(
            "source ./script; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
             _clap_complete_dr dr \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let mut bash = Command::new("bash");
        let bash = bash.args(["--norc", "-c", &steps]).current_dir(world.path("")).env_clear();
        let output = bash.env("HOME", world.home("")).env("PATH", path).output();
        output.ok().map(|output| world.run_of(output))
    };
    // Not every machine has bash.
    let Some(shown) = complete("dr show ''") else { return };
    let run = report["run_id"].as_str().unwrap();
    assert!(shown.stdout.starts_with(run) && shown.stderr.is_empty(), "{shown}");
    assert_eq!(complete("dr search --collection k").unwrap().stdout, "kb\n");
    assert_eq!(complete("dr rec").unwrap().stdout, "recall\n");
    assert_eq!(complete("dr index k").unwrap().stdout, "kb/\n");
}

#[test]
fn every_command_has_a_manual_page_and_examples() {
    let world = World::empty();
    world.dr(["man", "pages"]).succeeded();
    let help = world.dr(["--help"]).succeeded().stdout;
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names: Vec<_> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names.iter().filter(|name| !name.is_empty() && **name != "help") {
        let page = world.read(&format!("pages/dr-{name}.1"));
        assert!(page.contains(".TH") && page.contains("Examples:"), "{page}");
        let help = world.dr([name, "--help"]).succeeded().stdout;
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
        let examples = examples.lines().filter(|line| line.starts_with("  "));
        assert!(examples.clone().count() > 0 && examples.clone().all(|line| line.contains("dr ")), "{help}");
    }
    assert!(world.read("pages/dr.1").contains("dr"));
}

#[test]
fn output_that_is_piped_has_no_links_whatever_the_terminal() {
    let world = World::indexed_text().with_variable("TERM", "xterm-kitty").with_variable("KITTY_WINDOW_ID", "1");
    for color in ["auto", "always"] {
        let found = world.dr(["search", "--mode", "lexical", "siren", "--color", color]).succeeded();
        assert!(found.stdout.contains("guide/alarms.md") && !found.stdout.contains("\u{1b}]8"), "{found}");
    }
}
