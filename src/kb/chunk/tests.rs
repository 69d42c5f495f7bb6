use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::*;
use crate::kb::embed::{Embedder, builtin_for_tests};
use crate::kb::extract::{Extracted, Part, as_extracted};

/// Counts words; a long word counts by its length.
struct Words;

impl CountTokens for Words {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().map(|word| word.len().div_ceil(8)).sum()
    }
}

const SMALL: ChunkOptions = ChunkOptions { max_tokens: 40, target_tokens: 32 };

static BERT: LazyLock<Arc<dyn Embedder>> = LazyLock::new(builtin_for_tests);

fn document(text: &str) -> Document {
    Document::parse("notes/file.md", text.as_bytes().to_vec()).unwrap()
}

fn chunks(text: &str) -> Vec<Chunk> {
    chunk(&document(text), &Words, &SMALL)
}

fn texts(text: &str) -> Vec<String> {
    chunks(text).into_iter().map(|chunk| chunk.text).collect()
}

fn words(count: usize) -> String {
    (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
}

/// Asserts the invariants that hold for the chunks of every document.
fn check(document: &Document, counter: &dyn CountTokens, options: &ChunkOptions) {
    let chunks = chunk(document, counter, options);
    let mut end = document.body.start;
    for chunk in &chunks {
        assert_eq!(chunk.text, document.text[chunk.bytes.clone()]);
        assert!(chunk.bytes.start >= end, "chunks are in order and do not overlap");
        assert!(document.text[end..chunk.bytes.start].trim().is_empty(), "nothing but white space is left out");
        end = chunk.bytes.end;

        let lines: Vec<&str> = document.text.split_inclusive('\n').collect();
        let (first, last) = (chunk.line_start as usize - 1, chunk.line_end as usize);
        let before: usize = lines[..first].iter().map(|line| line.len()).sum();
        assert!(lines[first..last].concat().contains(&chunk.text));
        assert!((before..before + lines[first].len()).contains(&chunk.bytes.start));

        let embedded = embed_text(document.own_title(), &chunk.heading_path, chunk.context.as_deref(), &chunk.text);
        assert_eq!(chunk.tokens, counter.count(&embedded));
        assert!(chunk.tokens <= options.max_tokens, "{} tokens: {embedded:?}", chunk.tokens);
        assert_eq!(chunk.text.trim_end(), chunk.text);
        assert!(!chunk.text.lines().next().unwrap().trim().is_empty());
    }
    assert!(document.text[end..].trim().is_empty(), "nothing but white space is left at the end");
}

#[test]
fn section_is_a_chunk_that_begins_with_its_heading() {
    let text = format!("# Top\n\n{}\n\n## Inner\n\n{}\n", words(20), words(21));
    let found = chunks(&text);
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].heading_path, ["Top", "Inner"]);
    assert!(found[1].text.starts_with("## Inner\n\nw0"));
    assert_eq!((found[1].line_start, found[1].line_end), (5, 7));
}

#[test]
fn headings_without_text_go_with_what_follows() {
    let text = format!("# A\n\n{}\n\n# B\n\n## C\n\n{}\n\n## D", words(20), words(12));
    let found = chunks(&text);
    assert_eq!(found.len(), 2);
    assert!(found[1].text.starts_with("# B\n\n## C\n\nw0"));
    assert!(found[1].text.ends_with("## D"));
    assert_eq!(found[1].heading_path, ["B", "C"]);
}

#[test]
fn tiny_sections_share_a_chunk_under_the_headings_they_have_in_common() {
    let text = "# A\n\n## One\n\nx\n\n## Two\n\ny\n\n## Three\n\nz\n";
    let found = chunks(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].heading_path, ["A"]);
}

#[test]
fn tiny_section_does_not_join_what_comes_after_its_parent() {
    let text = format!("# A\n\n## B\n\n### C\n\nx\n\n## D\n\n{}\n", words(12));
    assert_eq!(chunks(&text).len(), 2);
}

#[test]
fn heading_in_a_fence_list_or_quote_begins_no_section() {
    let found = chunks("# A\n\n```sh\n# comment\n```\n\n- # item\n\n> # quote\n");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].heading_path, ["A"]);
}

#[test]
fn blocks_are_spread_evenly_and_kept_whole() {
    let paragraph = words(12);
    let found = texts(&vec![paragraph.clone(); 5].join("\n\n"));
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|text| text.split("\n\n").all(|part| part == paragraph)));
}

#[test]
fn long_fence_is_cut_at_blank_lines_and_repeats_its_opening_line() {
    let text = format!("```rust,ignore\n{}\n\n{}\n```\n", words(22), words(23));
    let found = chunks(&text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].context.as_deref(), found[1].context.as_deref()), (None, Some("```rust,ignore")));
    assert!(found[1].text.starts_with("w0"));
}

#[test]
fn fence_that_fits_is_never_cut() {
    let fence = format!("```\n{}\n\n{}\n```", words(15), words(15));
    let text = format!(
        "{}\n\n{fence}\n\n{}\n\n- item\n\n{}\n",
        words(9),
        words(9),
        fence.replace('\n', "\n  ").replace("```\n", "  ```\n")
    );
    assert!(texts(&text).iter().any(|text| text.contains(&fence)));
}

#[test]
fn fence_in_a_long_list_is_not_cut() {
    let fence = format!("  ```\n  {}\n\n  {}\n  ```", words(12), words(12));
    let text = format!("- {}\n\n{fence}\n\n  {}\n- {}\n", words(15), words(15), words(15));
    assert!(texts(&text).iter().any(|text| text.contains(&fence)));
}

#[test]
fn long_table_is_cut_between_rows_and_repeats_its_header() {
    let rows: String = (0..20).map(|n| format!("| a{n} | b{n} |\n")).collect();
    let found = chunks(&format!("| x | y |\n|---|---|\n{rows}"));
    assert!(found.len() > 2);
    assert_eq!(found[0].context, None);
    for chunk in &found[1..] {
        assert_eq!(chunk.context.as_deref(), Some("| x | y |\n|---|---|"));
        assert!(chunk.text.lines().all(|row| row.starts_with("| a") && row.ends_with(" |")));
    }
}

#[test]
fn long_list_is_cut_between_items() {
    let items: String = (0..9).map(|n| format!("- item {n} {}\n", words(8))).collect();
    for text in texts(&items) {
        assert!(text.starts_with("- item") && text.ends_with("w7"), "{text}");
    }
}

#[test]
fn long_paragraph_is_cut_after_sentences() {
    let text = "One has e.g. a few words here. ".repeat(20);
    let found = texts(&text);
    assert!(found.len() > 3);
    assert!(found.iter().all(|text| text.starts_with("One") && text.ends_with("here.")), "{found:?}");
}

#[test]
fn text_without_white_space_is_cut_between_characters() {
    let text = "👩‍👩‍👧e\u{301}漢".repeat(400);
    let found = texts(&text);
    assert!(found.len() > 3);
    assert!(found.iter().all(|text| text.starts_with(['👩', 'e', '漢'])), "{found:?}");
}

#[test]
fn plain_text_is_cut_at_blank_lines_and_has_no_headings() {
    let text = format!("# {}\n\n| {}\n", words(20), words(20));
    let document = Document::parse("a.txt", text.into_bytes()).unwrap();
    let found = chunk(&document, &Words, &SMALL);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|chunk| chunk.heading_path.is_empty()));
}

#[test]
fn empty_document_has_no_chunks_and_one_of_signs_has() {
    assert!(chunks(" \n\n\t\n").is_empty());
    assert_eq!(texts("---\ntitle: x\n---\n\n***\n"), ["***"]);
}

#[test]
fn lines_are_those_of_the_file_with_front_matter_and_windows_line_ends() {
    let found = chunks("\u{feff}---\r\ntitle: x\r\n---\r\n\r\n# Top\r\n\r\nText\r\n");
    assert_eq!((found[0].line_start, found[0].line_end), (5, 7));
    assert_eq!(found[0].text, "# Top\r\n\r\nText");
}

#[test]
fn link_definitions_and_footnotes_are_in_some_chunk() {
    let text = "Text[^1] and [a].\n\n[a]: https://example.com\n\n[^1]: A note.\n";
    assert_eq!(texts(text).join("\n\n"), text.trim_end());
}

#[test]
fn embedded_text_begins_with_title_and_headings() {
    let path = ["A".to_owned(), "B".to_owned()];
    assert_eq!(embed_text(Some("T"), &path, Some("```rust"), "x"), "T › A › B\n```rust\nx");
    assert_eq!(embed_text(Some("A"), &path, None, "x"), "A › B\nx");
    assert_eq!(embed_text(None, &[], None, "x"), "x");
}

#[test]
fn absurd_header_is_cut_and_leaves_room_for_text() {
    let text = format!("# {}\n\n## {}\n\n{}\n", "한국어".repeat(60), "! ".repeat(90), words(300));
    check(&document(&text), BERT.tokens(), &ChunkOptions { max_tokens: 128, target_tokens: 108 });
    let long = "word ".repeat(40);
    let embedded = embed_text(Some(&long), &vec![long.clone(); 6], None, "x");
    assert!(embedded.len() < 300, "{embedded}");
}

#[test]
fn hostile_nesting_and_repetition_end_soon() {
    let started = std::time::Instant::now();
    for part in ["> ", "[", "[a](", "*a_ ", "- ", "# a\n", "`", "a", "漢", "<a ", "|", "a\n=\n"] {
        let text = part.repeat(200_000 / part.len());
        check_size(&document(&text));
    }
    assert!(started.elapsed().as_secs() < 30);
}

fn check_size(document: &Document) {
    let found = chunk(document, BERT.tokens(), &ChunkOptions { max_tokens: 254, target_tokens: 216 });
    assert!(found.iter().all(|chunk| chunk.tokens <= 254 && chunk.text.len() <= 254 * 16 + 64));
}

#[test]
fn each_line_of_a_chunk_of_several_sections_has_its_own_headings() {
    let filler = "words and words and words and more words. ".repeat(4);
    let text = format!("# Manual\n\nOpening.\n\n## Small\n\nTiny.\n\n## Large\n\n{filler}\n\n### Inner\n\nLast.\n");
    let document = document(&text);
    let chunks = chunk(&document, &Words, &ChunkOptions { max_tokens: 254, target_tokens: 216 });
    assert_eq!(chunks.len(), 1, "the sections are small enough to go together");
    let line_of = |wanted: &str| {
        (1_u32..).zip(text.lines()).find(|(_, line)| line.starts_with(wanted)).map(|(at, _)| at).unwrap()
    };
    for (line, path) in [
        ("# Manual", vec!["Manual"]),
        ("Opening", vec!["Manual"]),
        ("Tiny", vec!["Manual", "Small"]),
        ("## Large", vec!["Manual", "Large"]),
        ("words", vec!["Manual", "Large"]),
        ("Last", vec!["Manual", "Large", "Inner"]),
    ] {
        assert_eq!(headings_above(&document, line_of(line)), path, "{line}");
    }
    assert_eq!(headings_above(&document, 1000), ["Manual", "Large", "Inner"], "beyond the end");
}

/// Random concatenations of Markdown fragments.
fn markdown() -> impl Strategy<Value = String> {
    let word = "[a-zé漢🦀]{1,9}[.,!]?";
    let line = proptest::collection::vec(word, 1..30).prop_map(|words| words.join(" "));
    let block = (line, 0..16usize).prop_map(|(line, kind)| match kind {
        0 => format!("# {line}"),
        1 => format!("## {line}"),
        2 => format!("{line}\n---"),
        3 => format!("```rust\n{line}\n\n{line}\n```"),
        4 => format!("| a | {line} |\n|---|---|\n| b | {line} |\n| {line} | d |"),
        5 => format!("- {line}\n- {line}\n\n  {line}\n  1. {line}\n\n     ```\n     {line}\n     ```"),
        6 => format!("> {line}\n> > {line}\n>\n> - {line}\n{line}"),
        7 => format!("[^1]: {line}\n\n    {line}"),
        8 => format!("<div>\n{line}\n\n</div>"),
        9 => format!("    {line}\n\n\t{line}"),
        10 => format!("[x]: /{line}\n***"),
        11 => format!("~~~\n{line}"),
        12 => format!("### \n\n{line}\\\n{line}"),
        13 => line.replace(' ', ""),
        _ => line,
    });
    let gap = prop_oneof![4 => Just("\n\n"), 1 => Just("\n"), 1 => Just("\n \t\n\n")];
    let front = prop_oneof![
        Just(""),
        Just("\u{feff}"),
        Just("---\ntitle: Some title\n---\n"),
        Just("\u{feff}+++\ntitle = \"x\"\n+++\n"),
        Just("---\ntitle: [\n---\n")
    ];
    let blocks = proptest::collection::vec((block, gap), 0..12);
    (front, blocks, any::<bool>()).prop_map(|(front, blocks, windows)| {
        let text: String = front.to_owned() + &blocks.into_iter().map(|(block, gap)| block + gap).collect::<String>();
        if windows { text.replace('\n', "\r\n") } else { text }
    })
}

/// Checks that a text extracted from a file can be reassembled from its chunks.
fn check_put_together(text: &str) {
    let text = Extracted { text: text.to_owned(), ..Extracted::default() }.into_markdown();
    let chunks = chunks(&text);
    let parts = chunks.iter().map(|chunk| Part {
        byte_start: chunk.bytes.start as u64,
        line_start: chunk.line_start,
        line_end: chunk.line_end,
        text: &chunk.text,
    });
    assert_eq!(as_extracted(parts), text);
}

#[test]
fn extracted_text_is_put_together_from_its_chunks() {
    for text in ["", "---\na: b\n---\nText", "# A\n\n## Page 1\n\nOne\u{a0}two.\n\n\n    code\tof it\n\n\n\n    more\n"]
    {
        check_put_together(text);
    }
    check_put_together(include_str!("../../../README.md"));
    check_put_together(&format!("## Page 1\n\n{}\n{}", words(300), "x".repeat(3_000)));
}

proptest! {
    #[test]
    fn any_extracted_text_is_put_together_from_its_chunks(text in markdown()) {
        check_put_together(&text);
    }

    #[test]
    fn chunks_cover_the_body_and_stay_within_the_limit(text in markdown()) {
        check(&document(&text), &Words, &ChunkOptions { max_tokens: 128, target_tokens: 50 });
    }

    #[test]
    fn chunks_stay_within_the_limit_of_a_real_tokenizer(text in markdown()) {
        check(&document(&text), BERT.tokens(), &ChunkOptions { max_tokens: 254, target_tokens: 90 });
        check(&document(&text), BERT.tokens(), &ChunkOptions { max_tokens: 128, target_tokens: 110 });
    }

    #[test]
    fn chunks_cover_any_characters(text in "[-#>*`|~=\\[\\]()<!:^ \t\r\na-b0é\u{301}\u{85}]{0,300}") {
        check(&document(&text), &Words, &ChunkOptions { max_tokens: 128, target_tokens: 20 });
    }
}
