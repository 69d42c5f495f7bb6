//! Measures an index of many chunks: `just bench-scale FOLDER CHUNKS…`.
//!
//! The notes are made up from the words of `FOLDER`: each follows the one it follows there, each note keeps to a topic,
//! and now and then there is a rare word, so that the vocabulary grows with the notes as it does in real ones. Their
//! vectors are sums over their words, which cost next to nothing: notes that share words are near each other. The same
//! seed makes the same notes.

#![expect(clippy::print_stdout, reason = "the table is the point")]

mod measure;

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dr::base::token::CountTokens;
use dr::kb::embed::{self, EmbedError, Embedder, EmbedderOptions};
use dr::kb::extract::Include;
use dr::kb::index::{Index, IndexLocation};
use dr::kb::ingest::{CollectionSource, IngestOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use measure::{AnyError, row, run, searching, texts, to_f64};

/// Sections of a note, and chunks that it becomes: rare words have many tokens.
const SECTIONS: usize = 8;
const CHUNKS_OF_NOTE: f64 = 14.52;

const SECTION_WORDS: usize = 130;

/// Notes of a topic, and words that it prefers.
const TOPIC_NOTES: usize = 200;
const TOPIC_WORDS: usize = 40;

/// One word in so many is of the topic, and one in so many is rare.
const OF_TOPIC: u32 = 6;
const RARE: u32 = 50;

/// The share of rare words beyond a rank falls with this power of it, so distinct ones grow with this power of all
/// words.
const RARE_POWER: f64 = 0.7;

const FOLDER_NOTES: usize = 500;

const DIMENSION: usize = 384;

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(folder), sizes) = (arguments.next(), arguments.collect::<Vec<_>>()) else {
        println!("usage: cargo bench --bench scale -- FOLDER CHUNKS…");
        return Ok(());
    };
    let words = Words::of(Path::new(&folder))?;
    let runtime = tokio::runtime::Runtime::new()?;
    for size in sizes {
        runtime.block_on(figures(&words, size.parse()?))?;
    }
    Ok(())
}

async fn figures(words: &Words, chunks: usize) -> Result<(), AnyError> {
    let home = tempfile::tempdir()?;
    let (notes, index) = (home.path().join("notes"), home.path().join("index"));
    words.write_notes(&notes, notes_of(chunks))?;
    let location = IndexLocation::parse(index.to_str().ok_or("the temporary folder has no readable name")?)?;
    let embedder: Arc<dyn Embedder> = Arc::new(SumOfWords { builtin: embed::load(&EmbedderOptions::builtin())? });
    let options = |embed| IngestOptions {
        sources: vec![CollectionSource { name: "notes".into(), root: notes.clone(), include: Include::default() }],
        embed,
        ..IngestOptions::default()
    };
    Memory::reset();
    let text = run(&location, &embedder, &options(false)).await?;
    row("chunks", text.chunks, "");
    row("notes", format!("{:.0}", megabytes(&notes)?), "MB");
    row("text index", format!("{:.1}", text.seconds), "s");
    row("text index, peak memory", Memory::peak(), "MB");
    Memory::reset();
    let vectors = run(&location, &embedder, &options(true)).await?;
    row("vectors and their index", format!("{:.1}", vectors.seconds), "s");
    row("vectors, peak memory", Memory::peak(), "MB");
    let stats = Index::open(&location).await?.stats().await?;
    row("rows with vectors", format!("{:.0}", to_f64(stats.bytes / 1_000) / 1_000.0), "MB");
    row("all files, superseded too", format!("{:.0}", megabytes(&index)?), "MB");
    let started = Instant::now();
    run(&location, &embedder, &options(true)).await?;
    row("unchanged re-index", format!("{:.2}", started.elapsed().as_secs_f64()), "s");
    let one = notes.join("0/0.md");
    fs::write(&one, fs::read_to_string(&one)? + "\nOne more line about valves.\n")?;
    let started = Instant::now();
    run(&location, &embedder, &options(true)).await?;
    row("re-index of one note", format!("{:.2}", started.elapsed().as_secs_f64()), "s");
    let opened = Index::open(&location).await?;
    let texts = texts(&opened, 256).await?;
    drop(opened);
    Memory::reset();
    searching(Index::open(&location).await?, &embedder, &texts).await?;
    row("searches, peak memory", Memory::peak(), "MB");
    println!();
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive and whole")]
fn notes_of(chunks: usize) -> usize {
    (to_f64(chunks) / CHUNKS_OF_NOTE).ceil() as usize
}

/// The words of real notes, and which follow which.
struct Words {
    words: Vec<String>,
    following: HashMap<u32, Vec<u32>>,
}

impl Words {
    fn of(folder: &Path) -> Result<Self, AnyError> {
        let (mut words, mut known) = (Vec::new(), HashMap::new());
        let mut following: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in ignore::WalkBuilder::new(folder).build() {
            let path = entry?.into_path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
            let mut last = None;
            for word in text.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()))
            {
                if word.is_empty()
                    || word.len() > 24
                    || !word.chars().all(|letter| letter.is_alphanumeric() || letter == '-')
                {
                    last = None;
                    continue;
                }
                let next = u32::try_from(words.len())?;
                let id = *known.entry(word.to_owned()).or_insert(next);
                if id == next {
                    words.push(word.to_owned());
                }
                if let Some(last) = last.replace(id) {
                    following.entry(last).or_default().push(id);
                }
            }
        }
        if following.is_empty() {
            return Err("the folder has no Markdown".into());
        }
        Ok(Self { words, following })
    }

    fn write_notes(&self, folder: &Path, notes: usize) -> Result<(), AnyError> {
        for number in 0..notes {
            let parent = folder.join((number / FOLDER_NOTES).to_string());
            if number % FOLDER_NOTES == 0 {
                fs::create_dir_all(&parent)?;
            }
            fs::write(parent.join(format!("{}.md", number % FOLDER_NOTES)), self.note(number as u64))?;
        }
        Ok(())
    }

    fn note(&self, number: u64) -> String {
        let mut topic = StdRng::seed_from_u64(number / TOPIC_NOTES as u64);
        let preferred: Vec<_> = (0..TOPIC_WORDS).map(|_| self.any(&mut topic)).collect();
        let mut random = StdRng::seed_from_u64(!number);
        let mut text = String::new();
        for section in 0..SECTIONS {
            let mark = if section == 0 { "#" } else { "##" };
            let heading: Vec<_> =
                (0..3).map(|_| self.words[preferred[random.random_range(0..TOPIC_WORDS)] as usize].as_str()).collect();
            let _ = write!(text, "{mark} {}\n\n", heading.join(" "));
            let mut last = preferred[0];
            for place in 1..=SECTION_WORDS {
                let end = if place % 43 == 0 {
                    ".\n\n"
                } else if place % 14 == 0 {
                    ". "
                } else {
                    " "
                };
                if random.random_range(0..RARE) == 0 {
                    let _ = write!(text, "{}{end}", rare(&mut random));
                    continue;
                }
                last = match self.following.get(&last) {
                    _ if random.random_range(0..OF_TOPIC) == 0 => preferred[random.random_range(0..TOPIC_WORDS)],
                    Some(next) => next[random.random_range(0..next.len())],
                    None => self.any(&mut random),
                };
                let _ = write!(text, "{}{end}", self.words[last as usize]);
            }
            text.push_str("\n\n");
        }
        text
    }

    fn any(&self, random: &mut StdRng) -> u32 {
        u32::try_from(random.random_range(0..self.words.len())).unwrap_or(0)
    }
}

/// Returns a word of which there is no end.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank has no fraction and is positive")]
fn rare(random: &mut StdRng) -> String {
    let mut rank = (1.0 - random.random::<f64>()).powf(-1.0 / RARE_POWER).min(1e15) as u64;
    let mut word = String::from("x");
    while rank > 0 {
        let (consonants, vowels) = (b"bdfgklmnprstvz", b"aeiou");
        word.push(char::from(consonants[(rank % 14) as usize]));
        word.push(char::from(vowels[(rank / 14 % 5) as usize]));
        rank /= 70;
    }
    word
}

/// Makes the vector of a text as the sum of a random vector for each word; long words count more.
struct SumOfWords {
    /// Counts the tokens.
    builtin: Arc<dyn Embedder>,
}

impl SumOfWords {
    fn vector(text: &str) -> Vec<f32> {
        let mut sum = vec![0.0_f32; DIMENSION];
        for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let mut hasher = DefaultHasher::new();
            word.hash(&mut hasher);
            let mut bits = hasher.finish() | 1;
            let weight = f32::from(u8::try_from(word.len().min(10)).unwrap_or(10)).powi(2);
            for part in sum.chunks_mut(64) {
                // xorshift64
                bits ^= bits << 13;
                bits ^= bits >> 7;
                bits ^= bits << 17;
                for (place, value) in part.iter_mut().enumerate() {
                    *value += if bits >> place & 1 == 0 { weight } else { -weight };
                }
            }
        }
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length == 0.0 {
            sum[0] = 1.0;
            return sum;
        }
        sum.iter().map(|value| value / length).collect()
    }
}

impl Embedder for SumOfWords {
    fn name(&self) -> &'static str {
        "sum-of-words"
    }

    fn fingerprint(&self) -> &'static str {
        "sum-of-words-1"
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn max_tokens(&self) -> usize {
        self.builtin.max_tokens()
    }

    fn tokens(&self) -> &dyn CountTokens {
        self.builtin.tokens()
    }

    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| Self::vector(text)).collect())
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(Self::vector(text))
    }
}

/// The largest resident memory of this process since the last reset. Linux only; elsewhere 0.
struct Memory;

impl Memory {
    fn reset() {
        let _ = fs::write("/proc/self/clear_refs", "5");
    }

    fn peak() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or_default() / 1_024
    }
}

/// Returns the bytes of all files in a folder, in millions.
fn megabytes(folder: &Path) -> Result<f64, AnyError> {
    let mut bytes = 0;
    for entry in ignore::WalkBuilder::new(folder).standard_filters(false).build() {
        let metadata = entry?.metadata()?;
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(to_f64(usize::try_from(bytes / 1_000)?) / 1_000.0)
}
