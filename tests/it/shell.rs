use std::fs;
use std::process::Command;

use crate::common::World;

/// Returns a world with an editor that writes its arguments to a file, one a line.
#[cfg(unix)]
fn with_editor(world: World, name: &str, exit: i32) -> World {
    use std::os::unix::fs::PermissionsExt;

    let (editor, log) = (world.home(name), world.home("arguments"));
    fs::write(&editor, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\nexit {exit}\n", log.display())).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
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
    assert!(gone.exit == Some(1) && gone.stderr.contains("is gone since it was indexed"), "{gone}");
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
fn completions_of_every_shell_know_the_commands_and_are_valid() {
    let world = World::empty();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = world.dr(["completions", shell]).succeeded().stdout;
        for word in ["verify", "recall", "max-cost", "doctor"] {
            assert!(script.contains(word), "{shell} completes no `{word}`");
        }
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
