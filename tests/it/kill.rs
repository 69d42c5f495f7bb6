use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{Contents, World, write_notes};

/// Counts the files below a folder, ignoring those removed while counting.
fn count_files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let count = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_files(&entry.path()),
        Ok(_) => 1,
        Err(_) => 0,
    };
    entries.flatten().map(count).sum()
}

/// Kills the child once its index has `files` files. Returns whether it was still running then.
fn kill_at(child: &mut Child, folder: &Path, files: usize) -> bool {
    loop {
        if count_files(folder) >= files {
            child.kill().unwrap();
            return !child.wait().unwrap().success();
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Asserts that a search either succeeds or reports that no index exists yet.
fn assert_answers(world: &World) -> bool {
    let run = world.dr(["search", "mark7", "--mode", "lexical", "--json"]);
    if run.exit == Some(0) {
        for hit in run.json()["hits"].as_array().unwrap() {
            assert!(hit["text"].as_str().unwrap().contains("mark7"), "{hit:#}");
        }
        return true;
    }
    assert_eq!(run.exit, Some(1), "{run}");
    assert!(run.stderr.starts_with("error: no index at"), "{run}");
    false
}

fn start(world: &World, args: &[&str]) -> Child {
    world.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills a fresh run at `kills` points spread over its duration. After each, the next run must produce the same rows.
fn survives(files: usize, parts: usize, kills: usize, args: &[&str]) {
    let undisturbed = World::empty();
    write_notes(&undisturbed, files, parts);
    undisturbed.dr(args).succeeded();
    let expected = undisturbed.contents();
    assert_eq!((expected.documents.len(), expected.unindexed_text_rows), (files, 0));
    let last = count_files(&undisturbed.path(".dr/index"));

    let mut killed = 0;
    for point in 0..kills {
        let world = World::empty();
        write_notes(&world, files, parts);
        let mut child = start(&world, args);
        killed += usize::from(kill_at(&mut child, &world.path(".dr/index"), 1 + point * (last - 1) / kills));
        assert_answers(&world);
        assert_finishes(&world, args, &expected);
    }
    assert_eq!(killed, kills, "every kill came before the end of its run");
}

fn assert_finishes(world: &World, args: &[&str], expected: &Contents) {
    world.dr(args).succeeded();
    let contents = world.contents();
    assert_eq!(contents.collections, expected.collections);
    assert_eq!(contents.documents, expected.documents);
    assert_eq!(contents.chunks, expected.chunks);
    assert_eq!(&contents, expected);
    assert!(assert_answers(world));
}

#[test]
fn index_killed_while_writing_text_answers_and_is_completed_later() {
    survives(100, 12, 8, &["index", "notes", "--no-embed"]);
}

#[test]
fn index_killed_while_embedding_answers_and_is_completed_later() {
    survives(12, 4, 3, &["index", "notes"]);
}

#[test]
fn index_killed_repeatedly_is_still_completed() {
    let args = ["index", "notes", "--no-embed"];
    let undisturbed = World::empty();
    write_notes(&undisturbed, 60, 4);
    undisturbed.dr(args).succeeded();
    let expected = undisturbed.contents();

    let world = World::empty();
    write_notes(&world, 60, 4);
    for _ in 0..6 {
        let folder = world.path(".dr/index");
        let files = count_files(&folder);
        kill_at(&mut start(&world, &args), &folder, files + 3);
        assert_answers(&world);
    }
    assert_finishes(&world, &args, &expected);
}
