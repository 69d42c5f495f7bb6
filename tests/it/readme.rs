//! The samples of the README are what `dr` prints.

use std::path::Path;

use regex::Regex;

use crate::common::World;

/// The section of an answer that the README leaves out.
const OMITTED: &str = "## Read further";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the blocks of a language between two texts of the README.
fn blocks(readme: &str, language: &str, from: &str, to: &str) -> Vec<String> {
    let (_, part) = readme.split_once(from).unwrap();
    let (part, _) = part.split_once(to).unwrap();
    let fence = format!("\n```{language}\n");
    let opened = part.split(fence.as_str()).skip(1);
    opened.map(|block| block.split_once("\n```").unwrap().0.to_owned()).collect()
}

/// Returns the commands of console blocks as arguments of `dr`, each with its output.
fn commands(blocks: &[String]) -> Vec<(Vec<String>, String)> {
    let of_block = |block: &String| {
        let block = format!("\n{block}");
        block.split("\n$ dr ").skip(1).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let command = |text: String| {
        let (line, output) = text.split_once('\n').unwrap();
        let quoted = Regex::new(r#""([^"]*)"|\S+"#).unwrap();
        let args = quoted.captures_iter(line).map(|found| found.get(1).or(found.get(0)).unwrap().as_str().to_owned());
        (args.collect(), output.trim().to_owned())
    };
    blocks.iter().flat_map(of_block).map(command).collect()
}

/// Returns an output as the README shows it. Times differ.
fn shown(args: &[String], output: &str) -> String {
    if args[0] == "index" {
        return Regex::new(r"done in [0-9.]+").unwrap().replace_all(output.trim(), "done in #").into_owned();
    }
    let mut is_omitted = false;
    let mut lines = Vec::new();
    for line in output.trim().lines() {
        is_omitted = line == OMITTED || is_omitted && !line.starts_with("Support: ");
        lines.extend((!is_omitted).then_some(line));
    }
    lines.join("\n").trim().to_owned()
}

#[test]
fn samples_of_the_readme_are_what_is_printed() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let world = World::with_copy_of(&root().join("kb"));
    let samples = commands(&blocks(&readme, "console", "## A worked example", "With a model,"));
    assert_eq!(samples.len(), 5);
    for (args, expected) in samples {
        let printed = shown(&args, &world.dr(&args).stdout);
        assert_eq!(printed, shown(&args, &expected), "`dr {}`", args.join(" "));
    }
    let line = readme.lines().find(|line| line.starts_with("$ cargo run -- ask ")).unwrap();
    let (_, question) = line.split_once('"').unwrap();
    let args = ["ask", "--offline", question.trim_end_matches('"')].map(ToOwned::to_owned);
    let expected = blocks(&readme, "markdown", "## Start", "## A worked example").remove(0);
    assert_eq!(shown(&args, &world.dr(&args).stdout), shown(&args, &expected));
}
