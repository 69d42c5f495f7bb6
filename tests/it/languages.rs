//! Folders in languages that the built-in model does not read.

use std::fs::read_to_string;
use std::path::PathBuf;

use crate::common::World;

const LANGUAGES: [&str; 6] = ["ar", "de", "el", "ru", "th", "zh"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/languages")
}

/// Returns the questions about a folder with the file that answers each.
fn questions(language: &str) -> Vec<(String, String)> {
    let lines = read_to_string(folder().join(format!("{language}.tsv"))).unwrap();
    let pair = |line: &str| line.split_once('\t').map(|(question, file)| (question.to_owned(), file.to_owned()));
    lines.lines().map(|line| pair(line).unwrap()).collect()
}

/// Returns the paths of the hits of a search, best first.
fn found(world: &World, question: &str, mode: &str) -> Vec<String> {
    let json = world.dr(["search", question, "--mode", mode, "--json"]).json();
    json["hits"].as_array().unwrap().iter().map(|hit| hit["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_note_that_answers_comes_first_in_six_languages() {
    for language in LANGUAGES {
        let world = World::with_copy_of(&folder().join(language));
        world.dr(["index", "kb", "--quiet"]).succeeded();
        for (question, file) in questions(language) {
            assert_eq!(found(&world, &question, "hybrid")[0], file, "{question}");
        }
    }
}

#[test]
fn six_languages_in_one_folder_do_not_disturb_each_other() {
    let world = World::with_copy_of(&folder());
    world.dr(["index", "kb", "--quiet"]).succeeded();
    for language in LANGUAGES {
        for (question, file) in questions(language) {
            assert_eq!(found(&world, &question, "hybrid")[0], format!("{language}/{file}"), "{question}");
        }
    }
}

#[test]
fn notes_that_the_model_does_not_read_get_no_vectors_and_are_not_reported_as_missing_them() {
    let world = World::with_copy_of(&folder().join("ru"));
    let indexed = world.dr(["index", "kb", "--json", "--quiet"]).succeeded().json();
    assert_eq!((&indexed["embedded"], &indexed["vectors_missing"]), (&0.into(), &0.into()));
    let run = world.dr(["search", "ключи от ворот"]).succeeded();
    assert!(!run.stderr.contains("vectors"), "{}", run.stderr);
    let checked = world.dr(["doctor"]).stdout;
    assert!(checked.contains("6 of 6 chunks of `kb` are in a language that"), "{checked}");
}

#[test]
fn notes_in_latin_letters_that_the_model_does_not_read_are_said_to_be_in_another_language() {
    const NOTE: &str = "Chìa khóa cổng ở trong nhà kho. Ai mượn thì phải trả lại vào buổi tối cùng ngày.\n";
    let world = World::of_notes(&[("khoa.md", NOTE), ("cong.md", NOTE)]);
    let checked = world.dr(["doctor"]).stdout;
    assert!(checked.contains("2 of 2 chunks of `kb` are in a language that"), "{checked}");
}

#[test]
fn notes_without_words_are_in_no_language_that_the_model_does_not_read() {
    let world = World::of_notes(&[("arrows.md", "→ ← ↑ ↓\n"), ("stars.md", "★ ★ ★\n")]);
    let checked = world.dr(["doctor"]).stdout;
    assert!(!checked.contains("does not read"), "{checked}");
}

#[test]
fn notes_in_a_language_that_the_model_reads_badly_are_named_by_doctor() {
    let world = World::with_copy_of(&folder().join("de"));
    world.dr(["index", "kb", "--quiet"]).succeeded();
    let checked = world.dr(["doctor"]).stdout;
    assert!(checked.contains("it reads English best, and most notes are in German"), "{checked}");
    assert!(checked.contains("dr model use MultilingualE5Small"), "{checked}");
}

#[test]
fn answers_without_a_model_quote_whole_sentences_in_any_script() {
    for (language, question, said) in [
        ("zh", "谁可以用电锯？", "只有参加过培训的人才能使用电锯。"),
        ("ru", "Сколько платит студент?", "Студенты платят половину"),
        ("th", "นักศึกษาจ่ายค่าบำรุงเท่าไร", "นักศึกษาจ่ายครึ่งเดียว"),
        ("el", "Πόσα πληρώνει ένας φοιτητής;", "Οι φοιτητές πληρώνουν τα μισά"),
    ] {
        let world = World::with_copy_of(&folder().join(language));
        world.dr(["index", "kb", "--quiet"]).succeeded();
        let answer = world.dr(["ask", "--offline", question]).succeeded().stdout;
        assert!(answer.contains(said), "{answer}");
    }
}

#[test]
fn quoted_phrase_is_found_in_a_script_without_spaces() {
    let world = World::with_copy_of(&folder().join("zh"));
    world.dr(["index", "kb", "--quiet", "--no-embed"]).succeeded();
    assert_eq!(found(&world, "\"普通垃圾桶\"", "hybrid"), ["duifei.md"]);
    assert!(found(&world, "\"垃圾普通桶\"", "hybrid").is_empty());
}

#[test]
fn front_matter_names_the_language_of_a_note() {
    let world = World::empty();
    world.write("kb/a.md", "---\nlang: tr\n---\nKitaplarımızdan\n");
    world.write("kb/b.md", "Masa\n");
    world.dr(["index", "kb", "--quiet", "--no-embed"]).succeeded();
    assert_eq!(found(&world, "kitap", "lexical"), ["a.md"]);
}

/// `fixtures/text-index-2` was written by a `dr` that left splitting and stemming to the storage engine.
#[test]
fn an_earlier_text_index_is_searched_and_then_upgraded_with_its_vectors() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/text-index-2");
    let world = World::with_copy_of(&folder);
    let hits = |mode: &str| {
        let json = world.dr(["--index", "kb/index", "search", "restore a backup", "--mode", mode, "--json"]);
        json.succeeded().json()["hits"][0]["path"].clone()
    };
    assert_eq!([hits("lexical"), hits("hybrid")], ["backup.md", "backup.md"]);
    let without = world.dr(["--index", "kb/index", "links"]);
    assert_eq!(without.exit, Some(1), "{without}");
    assert!(without.stderr.contains("before links were stored") && without.stderr.contains("run `dr index`"));
    let upgraded = world.dr(["--index", "kb/index", "index", "--json"]).succeeded();
    assert!(upgraded.stderr.contains("by an earlier version"), "{}", upgraded.stderr);
    let summary = upgraded.json();
    assert_eq!([&summary["chunks"], &summary["embedded"], &summary["vectors_missing"]], [2, 0, 0]);
    assert_eq!([hits("lexical"), hits("hybrid"), hits("vector")], ["backup.md", "backup.md", "backup.md"]);
    let again = world.dr(["--index", "kb/index", "index", "--json"]).succeeded();
    assert_eq!(again.json()["unchanged"], 2, "the upgrade is made once");
    let links = world.dr(["--index", "kb/index", "links", "--json"]).succeeded().json();
    assert_eq!(links["documents"], 2);
}

/// Returns a world of English notes and one in another language, indexed as text.
fn mostly_english(other: &str) -> World {
    let world = World::empty();
    for number in 0..12 {
        world.write(
            &format!("kb/{number}.md"),
            "# Release notes\n\nThe server is restarted after each of the updates.\n",
        );
    }
    world.write("kb/other.md", other);
    world.dr(["index", "kb", "--quiet", "--no-embed"]).succeeded();
    world
}

#[test]
fn a_word_that_stands_in_the_one_note_of_another_language_is_found() {
    let world =
        mostly_english("# Reisen\n\nDie Häuser der Verwaltung sind nicht für alle geöffnet, und das ist auch gut.\n");
    for query in ["Verwaltung", "Häuser", "\"Häuser der Verwaltung\"", "wann sind die Häuser der Verwaltung geöffnet"]
    {
        assert_eq!(found(&world, query, "lexical")[0], "other.md", "{query}");
    }
}

#[test]
fn a_short_english_note_is_not_taken_for_another_language() {
    for (note, query) in [
        ("# Los Angeles office\n\nParking, badges, meeting rooms.\n", "parking"),
        ("# Die casting\n\nDie casting: tooling, cooling, finishing.\n", "tooling"),
    ] {
        assert_eq!(found(&mostly_english(note), query, "lexical"), ["other.md"], "{query}");
    }
}

#[test]
fn letters_are_found_however_they_are_typed() {
    let world = mostly_english("# Frais\n\nLa somme payée par le client est remboursée dans les trois jours.\n");
    for query in ["payée", "PAYÉE", "paye\u{301}e", "ｐａｙｅ\u{301}ｅ", "\"somme paye\u{301}e\""] {
        assert_eq!(found(&world, query, "lexical"), ["other.md"], "{query}");
    }
}

#[test]
fn an_upgrade_does_not_forget_a_folder_that_lost_its_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/text-index-2");
    let world = World::with_copy_of(&folder);
    for file in ["kb/kb/backup.md", "kb/kb/garden.md"] {
        std::fs::remove_file(world.path(file)).unwrap();
    }
    let run = world.dr(["--index", "kb/index", "index"]);
    assert_eq!(run.exit, Some(1), "{run}");
    assert!(run.stderr.contains("2 of 2 files of collection `kb` are no longer in"), "{}", run.stderr);
    world.dr(["--index", "kb/index", "search", "backups", "--mode", "lexical"]).succeeded();
}
