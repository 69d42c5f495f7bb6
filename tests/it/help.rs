use std::process::Stdio;

use crate::common::World;

const COMMANDS: &str = "index watch search get open links ask plan resume replay recall verify runs show \
                        export rm serve mcp eval doctor config model trust completions";

#[test]
fn help_of_every_command_is_as_reviewed() {
    let world = World::empty();
    dr_snapshot!(world.dr(["--help"]), "help_long");
    for command in COMMANDS.split(' ') {
        dr_snapshot!(world.dr([command, "--help"]), format!("help_long_{command}"));
    }
    // Of the same texts, clap makes the short form: the first paragraph of each.
    dr_snapshot!(world.dr(["-h"]), "help_short");
    dr_snapshot!(world.dr(["search", "-h"]), "help_short_search");
}

#[test]
fn help_lists_every_command() {
    let world = World::empty();
    let help = world.dr(["--help"]).succeeded().stdout;
    let listed: Vec<_> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()))
        .collect();
    let mut expected = COMMANDS.split(' ').collect::<Vec<_>>();
    expected.push("help");
    assert_eq!(listed, expected, "a new command needs its help reviewed above");
}

#[test]
fn version_is_printed() {
    dr_snapshot!(World::empty().dr(["--version"]));
}

#[test]
fn misspelt_command_line_is_a_usage_error() {
    let world = World::empty();
    dr_snapshot!(world.dr::<[&str; 0]>([]));
    dr_snapshot!(world.dr(["serach", "x"]));
    dr_snapshot!(world.dr(["search"]));
    dr_snapshot!(world.dr(["search", "x", "--limit", "0"]));
    dr_snapshot!(world.dr(["search", "x", "--since", "yesterday"]));
    dr_snapshot!(world.dr(["search", "x", "--json", "--jsonl"]));
    dr_snapshot!(world.dr(["index", "kb", "--embedder", "magic"]));
    dr_snapshot!(world.dr(["ask", "x?", "--since", "2026-03-02", "--until", "2026-03-01"]));
}

#[test]
fn closed_stdout_is_not_an_error() {
    let world = World::indexed_text();
    for args in
        [vec!["search", "--mode", "lexical", "water"], vec!["get", "guide/watering.md"], vec!["doctor"], vec!["--help"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = world.command(&args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = String::new();
        std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        let exit = child.wait().unwrap();
        assert!(exit.success(), "{args:?}: {exit}, {stderr}");
        assert!(!stderr.contains("panic") && !stderr.contains("error"), "{args:?}: {stderr}");
    }
}
