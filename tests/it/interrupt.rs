use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output};

use crate::common::{Run, World, write_notes};

/// Enough text that embedding takes much longer than the delivery of a signal.
const FILES: usize = 60;

/// Starts `dr index`, sends SIGINT when a line of its stderr ends with `line`, and waits for it.
fn interrupted_at(world: &World, line: &str) -> Run {
    crate::signals::deliver_signals();
    let mut child = world.spawn(["index", "notes"]);
    let pid = child.id().to_string();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    while !told.ends_with(&format!("{line}\n")) {
        assert_ne!(stderr.read_line(&mut told).unwrap(), 0, "no line `{line}` in: {told}");
    }
    // The shell's own `kill` is on every machine.
    assert!(Command::new("sh").args(["-c", "kill -INT \"$1\"", "sh", &pid]).status().unwrap().success());
    stderr.read_to_string(&mut told).unwrap();
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    world.run_of(Output { status, stdout, stderr: told.into_bytes() })
}

#[test]
fn interrupt_while_embedding_keeps_the_text_index() {
    let world = World::empty();
    write_notes(&world, FILES, 4);
    let run = interrupted_at(&world, "chunks to embed");
    assert_eq!(run.exit, Some(130), "{run}");
    assert!(run.stdout.contains("interrupted after"), "{run}");
    let kept = world.contents();
    assert_eq!((kept.documents.len(), kept.unindexed_text_rows), (FILES, 0));
    assert!(kept.vectors_missing > 0, "{} vectors were all made before the signal came", kept.vectors);
    let found = world.dr(["search", "mark59", "--mode", "lexical", "--jsonl"]).succeeded().json();
    assert_eq!(found["path"], "19/note-059.md");

    let finished = world.dr(["index", "notes", "--json"]).succeeded().json();
    assert_eq!((&finished["unchanged"], &finished["chunks"]), (&FILES.into(), &0.into()));
    assert_eq!(finished["embedded"], kept.vectors_missing, "what was embedded is not embedded again");
    assert_eq!(world.contents().vectors_missing, 0);
}

#[test]
fn interrupt_while_reading_keeps_committed_files() {
    let world = World::empty();
    write_notes(&world, FILES, 4);
    let run = interrupted_at(&world, "files to read");
    assert_eq!(run.exit, Some(130), "{run}");
    let kept = world.contents();
    for document in &kept.documents {
        let chunks = kept.chunks.iter().filter(|chunk| chunk.document_id == document.id).count();
        assert_eq!(chunks, document.chunks as usize, "{}", document.path);
    }
    let finished = world.dr(["index", "notes", "--no-embed", "--json"]).succeeded().json();
    assert_eq!(
        (&finished["unchanged"], &finished["added"]),
        (&kept.documents.len().into(), &(FILES - kept.documents.len()).into())
    );
    assert_eq!(world.contents().documents.len(), FILES);
}
