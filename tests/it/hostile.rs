use std::fs;

use pulldown_cmark::{Event, Parser, Tag};

use crate::common::World;

#[test]
fn index_shipped_with_a_folder_cannot_redirect_dr() {
    let world = World::empty();
    world.write("../private/diary.md", "# Diary\n\nThe password is marmalade.\n");
    world.dr(["index", "../private", "--no-embed", "-q"]).succeeded();
    world.write("../private/later.md", "# Later\n\nA second entry about rhubarb.\n");

    let refused = world.dr(["index", "--no-embed"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("outside this project")
            && refused.stderr.contains("hint: if you trust the index, run `dr index "),
        "{refused}"
    );
    assert_eq!(world.contents().documents.len(), 1);
    world.dr(["index", "../private", "--no-embed", "-q"]).succeeded();
    assert_eq!(world.contents().documents.len(), 2);
}

#[test]
fn damaged_index_is_rebuilt_from_the_folder_that_is_named() {
    let world = World::indexed_text();
    let before = world.contents();
    for table in fs::read_dir(world.path(".dr/index")).unwrap().map(Result::unwrap) {
        let versions = table.path().join("_versions");
        for version in fs::read_dir(versions).into_iter().flatten().map(Result::unwrap) {
            fs::OpenOptions::new().write(true).open(version.path()).unwrap().set_len(5).unwrap();
        }
    }
    let damaged = world.dr(["search", "siren", "--mode", "lexical"]);
    assert_eq!(damaged.exit, Some(1), "{damaged}");
    assert!(damaged.stderr.contains("hint: ") && damaged.stderr.contains("--rebuild"), "{damaged}");
    world.dr(["index", "kb", "--rebuild", "--no-embed", "-q"]).succeeded();
    assert_eq!(world.contents(), before);
}

#[test]
fn collection_of_a_missing_folder_is_removed_only_on_request() {
    let world = World::indexed_text();
    world.write("more/a.md", "# More\n\nA paragraph about rhubarb.\n");
    world.dr(["index", "more", "--no-embed", "-q"]).succeeded();
    fs::remove_dir_all(world.path("more")).unwrap();
    let refused = world.dr(["index", "--no-embed"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert!(refused.stderr.contains("--prune"), "{refused}");
    let summary = world.dr(["index", "--no-embed", "--prune", "--json"]).succeeded().json();
    assert_eq!(summary["removed"], 1);
    assert_eq!(world.contents().collections.keys().collect::<Vec<_>>(), ["kb"]);
}

#[cfg(unix)]
#[test]
fn symlinked_lock_is_refused_and_its_target_untouched() {
    let world = World::with_kb();
    world.write("precious.txt", "precious");
    fs::create_dir_all(world.path(".dr/index")).unwrap();
    std::os::unix::fs::symlink(world.path("precious.txt"), world.path(".dr/index/writer.lock")).unwrap();
    let refused = world.dr(["index", "kb", "--no-embed"]);
    assert_eq!(refused.exit, Some(1), "{refused}");
    assert_eq!(world.read("precious.txt"), "precious");
}

#[cfg(unix)]
#[test]
fn file_replaced_by_a_link_out_of_the_folder_is_not_read() {
    let world = World::indexed_text();
    world.write("../secret.md", "# Secret\n\nThe combination of the safe is marmalade.\n");
    fs::remove_file(world.path("kb/harvest.md")).unwrap();
    std::os::unix::fs::symlink(world.path("../secret.md"), world.path("kb/harvest.md")).unwrap();
    let read = world.dr(["get", "harvest.md"]).succeeded();
    assert!(!read.stdout.contains("marmalade") && read.stderr.contains("has changed"), "{read}");
    world.dr(["index", "kb", "--no-embed", "-q"]).succeeded();
    let found = world.dr(["search", "marmalade", "--mode", "lexical", "--json"]).succeeded().json();
    assert_eq!(found["hits"].as_array().map(Vec::len), Some(0));
}

#[cfg(unix)]
#[test]
fn report_is_written_through_a_symlink() {
    let world = World::indexed_text();
    world.write("real.md", "");
    std::os::unix::fs::symlink("real.md", world.path("link.md")).unwrap();
    world.dr(["ask", "--offline", "-q", "when does the siren sound", "-o", "link.md"]).succeeded();
    assert!(fs::symlink_metadata(world.path("link.md")).unwrap().is_symlink());
    assert!(world.read("real.md").starts_with("# when does the siren sound"));
}

#[test]
fn document_text_cannot_imitate_the_report() {
    let world = World::empty();
    world.write(
        "notes/a.md",
        "# ![t](http://evil/t.png)\n\nThe marmalade is proven to be good [9]. The marmalade is <b onclick=x>bold</b> and \
         [secret](javascript:alert) indeed. The warranty of marmalade covers ~~is not~~ everything in the jar.\n",
    );
    world.dr(["index", "notes", "--no-embed", "-q"]).succeeded();
    let report = world.dr(["ask", "--offline", "-q", "marmalade warranty covers proven"]).succeeded();
    for event in Parser::new(&report.stdout) {
        let is_live = matches!(
            event,
            Event::Start(Tag::Link { .. } | Tag::Image { .. } | Tag::HtmlBlock) | Event::Html(_) | Event::InlineHtml(_)
        );
        assert!(!is_live, "{event:?} in {report}");
    }
    let (answer, _) = report.stdout.split_once("## Sources").unwrap();
    assert!(answer.contains("covers everything in the jar") && !answer.contains("[9]"), "{report}");
}
