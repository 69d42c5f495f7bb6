//! Fuzzing on the stable compiler: seeds are mutated at random and fed to the readers of untrusted text.
//!
//! Every test run tries some hundred inputs with a fixed seed. `just fuzz SECONDS` continues for that long with another
//! seed, and prints the number of inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Inputs of an ordinary test run.
const INPUTS: u64 = 300;

/// Longest input, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// A single input that takes longer than this fails `just fuzz`, which is run on an idle machine. An ordinary test run
/// does not measure time.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Pieces that mean something to one reader or another.
const TOKENS: [&[u8]; 40] = [
    b"---\n", b"+++\n", b"```", b"~~~", b"|", b"|---|", b"# ", b"- ", b"> ", b"[[", b"]]", b"[^1]: ", b"](", b"<!--",
    b"-->", b"<p", b"</", b"<table>", b"<script>", b"&#x0;", b"&lt;", b"{", b"}", b"[", b"]", b"\"", b"\\u0000",
    b"\\ud800", b":", b",", b"null", b"1e999", b"-1", b"18446744073709551616", b"\xef\xbb\xbf", b"\r\n", b"\xc2\x85",
    b"\xe2\x80\xae", b"\xff", b"\0",
];

/// Feeds mutations of `seeds` to `target`, which must not panic; with `DR_FUZZ_SECONDS` it must not take long either.
pub(crate) fn fuzz(name: &str, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    assert!(!seeds.is_empty(), "{name} has seeds");
    let setting = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let time = setting("DR_FUZZ_SECONDS").map(Duration::from_secs);
    let first = setting("DR_FUZZ_SEED").unwrap_or(1);
    let started = Instant::now();
    let mut inputs = 0;
    let goes_on = |inputs: u64| time.map_or(inputs < INPUTS, |time| started.elapsed() < time);
    while goes_on(inputs) {
        // Far apart, so that neighbouring values of `DR_FUZZ_SEED` lead to different inputs.
        let seed = first.wrapping_mul(1_000_000_007).wrapping_add(inputs);
        let mut random = StdRng::seed_from_u64(seed);
        let input = mutated(&mut random, seeds);
        let began = Instant::now();
        let is_read = catch_unwind(AssertUnwindSafe(|| target(&input))).is_ok();
        let took = began.elapsed();
        if !is_read || (time.is_some() && took > MAX_TIME) {
            let file = std::env::temp_dir().join(format!("dr-fuzz-{name}-{seed}"));
            let _ = std::fs::write(&file, &input);
            panic!("{name}: seed {seed} panics or takes {took:?}; the input is in `{}`", file.display());
        }
        inputs += 1;
    }
    if time.is_some() {
        // Not `eprintln!`, whose output the test harness keeps back.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("fuzz {name}: {inputs} inputs in {:.0?}\n", started.elapsed()).as_bytes(),
        );
    }
}

/// Returns one of the seeds after up to sixteen changes.
fn mutated(random: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.random_range(0..seeds.len())].clone();
    for _ in 0..random.random_range(1..=16) {
        let at = random.random_range(0..=bytes.len());
        let end = random.random_range(at..=bytes.len().min(at + 256));
        match random.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                let times = random.random_range(1..40);
                bytes.splice(at..at, piece.repeat(times));
            }
            3 => {
                let other = &seeds[random.random_range(0..seeds.len())];
                let from = random.random_range(0..=other.len());
                bytes.splice(at..end, other[from..other.len().min(from + 512)].iter().copied());
            }
            4 => {
                let token = TOKENS[random.random_range(0..TOKENS.len())];
                let times = if random.random_range(0..8) == 0 { random.random_range(1..400) } else { 1 };
                bytes.splice(at..at, token.repeat(times));
            }
            5 => bytes.truncate(at),
            _ => {
                let random_bytes: Vec<u8> = (0..random.random_range(1..8)).map(|_| random.random::<u8>()).collect();
                bytes.splice(at..at, random_bytes);
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

/// Returns the bytes of the files below a folder of the repository.
pub(crate) fn seeds_in(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = ignore::WalkBuilder::new(folder).standard_filters(false).build().flatten();
    let files = files.filter(|file| file.path().is_file());
    files.filter_map(|file| std::fs::read(file.path()).ok()).filter(|bytes| bytes.len() <= MAX_BYTES).collect()
}

mod targets {
    use std::io::Read;

    use serde_json::json;

    use super::*;
    use crate::base::token::{Encoding, TokenCounter};
    use crate::kb::chunk::{ChunkOptions, chunk, embed_text};
    use crate::kb::document::Document;
    use crate::research::node::Tree;
    use crate::research::plan::{SavedPlan, TreeLimits};
    use crate::run::event::Record;
    use crate::run::journal::ProviderKind;
    use crate::run::tree::RunState;

    #[test]
    fn markdown_is_cut_into_chunks_that_are_in_the_file() {
        let counter = TokenCounter::of(Encoding::Cl100k);
        let options = ChunkOptions { max_tokens: 254, target_tokens: 222 };
        let seeds = [seeds_in("fixtures/kb-small"), seeds_in("kb/concepts")].concat();
        fuzz("markdown", &seeds, |bytes| {
            let Ok(document) = Document::parse("notes/a.md", bytes.to_vec()) else { return };
            for chunk in chunk(&document, &counter, &options) {
                assert!(chunk.bytes.start <= chunk.bytes.end && chunk.bytes.end <= bytes.len());
                assert!(chunk.line_start <= chunk.line_end);
                embed_text(Some(&document.title), &chunk.heading_path, chunk.context.as_deref(), &chunk.text);
            }
        });
    }

    #[test]
    fn front_matter_is_read_or_a_warning() {
        let yaml = "---\ntitle: Watering\ntags: [a, 'b']\naliases:\n  - c\ndate: 2026-01-02\n---\n# Text\n";
        let toml = "+++\ntitle = \"Watering\"\ntags = [\"a\"]\ndate = 2026-01-02\n+++\n# Text\n";
        fuzz("front-matter", &[yaml, toml].map(|text| text.as_bytes().to_vec()), |bytes| {
            if let Ok(document) = Document::parse("a.md", bytes.to_vec()) {
                assert!(!document.title.contains('\n') && document.body.end <= bytes.len());
            }
        });
    }

    #[test]
    fn job_report_is_read_whatever_it_holds() {
        let report = json!({
            "id": "resp_1", "status": "completed",
            "output": [
                { "type": "web_search_call", "action": { "type": "search", "query": "beds" } },
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "I look." }] },
                { "type": "message", "content": [{ "type": "output_text", "text": "Beds take water. (source)",
                  "annotations": [{ "type": "url_citation", "start_index": 0, "end_index": 16, "title": "Beds",
                  "url": "https://example.org/beds" }] }] },
            ],
            "usage": { "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 },
        });
        fuzz("job-report", &[report.to_string().into_bytes()], |bytes| {
            let report = ProviderKind::default().parse(&String::from_utf8_lossy(bytes));
            let _ = serde_json::to_string(&report.text);
        });
    }

    #[test]
    fn plan_is_checked_or_refused() {
        let plan = json!({
            "brief": { "question": "what is it?", "task": "what is it?", "mode": "deep",
                       "aspects": [{ "id": "a1", "text": "cost" }] },
            "reasoning": "two parts",
            "new_nodes": [
                { "id": "x", "question": "what of x?", "aspects": ["a1"], "source_hint": "internal" },
                { "id": "y", "question": "what of y?", "depends_on": ["x"], "parent": "x", "priority": 2,
                  "output_schema": "{\"type\":\"object\"}" },
            ],
            "updates": [{ "id": "n1", "priority": 3, "drop": false }],
        });
        fuzz("plan", &[plan.to_string().into_bytes()], |bytes| {
            let Ok(plan) = serde_json::from_slice::<SavedPlan>(bytes) else { return };
            let Some(brief) = plan.brief.filter(|brief| brief.check().is_ok()) else { return };
            let tree = Tree::of(brief.question.clone());
            let _ = plan.draft.check(&tree, &brief, TreeLimits::default(), 1, &|node| Some(node.source_hint));
        });
    }

    #[test]
    fn journal_row_is_folded_or_refused() {
        let packed =
            std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journals/format-3.db.gz")).unwrap();
        let mut database = tempfile::NamedTempFile::new().unwrap();
        std::io::copy(&mut flate2::read::GzDecoder::new(packed.as_slice()).take(1 << 30), &mut database).unwrap();
        let connection = rusqlite::Connection::open(database.path()).unwrap();
        let mut statement = connection.prepare("SELECT seq, at, body FROM events ORDER BY run, seq").unwrap();
        let rows = statement.query_map([], |row| {
            let (seq, at): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((seq.unsigned_abs(), at.unsigned_abs(), row.get(2)?))
        });
        let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
        let first: Vec<_> = rows.iter().take_while(|(seq, ..)| *seq == 1).collect();
        let record = |(seq, at, body): &(u64, u64, String)| -> Option<Record> {
            let event = serde_json::from_str(body).ok()?;
            Some(Record { seq: *seq, at: crate::base::clock::Moment(*at), event })
        };
        let first: Vec<Record> = first.into_iter().filter_map(record).collect();
        let seeds: Vec<_> = rows.iter().map(|(_, _, body)| body.clone().into_bytes()).collect();
        fuzz("journal-row", &seeds, |bytes| {
            let row = (2, 1, String::from_utf8_lossy(bytes).into_owned());
            let Some(second) = record(&row) else { return };
            let _ = RunState::of(&[first[0].clone(), second]);
        });
    }
}
