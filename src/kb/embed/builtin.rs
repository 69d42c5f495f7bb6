//! all-MiniLM-L6-v2 inside the binary: no download, network or native library.
//!
//! The weights are int8, and activations are quantised at run time to the range of the whole batch. In a batch, the
//! vector of a text would depend on the other texts (cosines as low as 0.96 were measured for short ones), so every
//! text runs alone. That costs no speed: threads work on different texts, and nothing is padded.
//!
//! Vectors differ a little between processors: on x86 without AVX-512 VNNI, the int8 kernel adds products in pairs that
//! saturate at 16 bits. The cosine to the vectors of the unquantised model is 0.992 with VNNI and 0.990 without it
//! (means of 91 passages), so an index may be searched on another machine than the one that made it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView};
use rten_tensor::NdTensor;
use rten_tensor::prelude::*;
use tokio_util::sync::CancellationToken;

use super::batch;
use super::bert_tokens::BertTokens;
use super::matches::TokenVectors;
use super::word_piece::WordPiece;
use super::{EmbedError, Embedded, Embedder, Matches, Reads, reads};
use crate::base::mutex::locked;
use crate::base::token::CountTokens;

static MODEL: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8/model.onnx"));
/// The graph of [`MODEL`], which refers to the weights there in place. Weights inside the graph would be copied on
/// load.
static GRAPH: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8/graph.onnx"));
/// File name by which the graph refers to [`MODEL`].
const MODEL_NAME_IN_GRAPH: &str = "model.data";
/// The vocabulary of the model, one token per line.
pub(super) const VOCABULARY: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8/vocab.txt"));

const NAME: &str = "all-MiniLM-L6-v2-int8";
/// Hash of the recipe, computed once; a test recomputes it from the assets.
const FINGERPRINT: &str = "42ea7222ad2c0d260ebaed2fc783c17e";
pub(crate) const DIMENSION: usize = 384;
/// Window of the model in tokens, `[CLS]` and `[SEP]` included.
const MAX_LENGTH: usize = 256;
/// Tokens of text that fit into one pass.
const WINDOW: usize = MAX_LENGTH - 2;
/// Ids of the two in the vocabulary of BERT, which the model keeps.
const CLS: u32 = 101;
const SEP: u32 = 102;

/// Texts computed at the same time. Bounds the memory; with more cores, several threads share a text.
const MAX_WORKERS: usize = 16;

/// The model compiled into the binary.
pub(super) struct Builtin {
    threads: usize,
    tokens: Tokens,
    /// For the first text, which is the only one in many processes.
    in_place: Slot,
    /// For all others.
    packed: Slot,
    is_used: AtomicBool,
}

/// How the weights of the model lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightLayout {
    /// As in the binary. Every pass rearranges them for the processor.
    InPlace,
    /// Arranged for the processor once. Costs 20 ms and 13 MB, and saves 9 ms in each pass of one thread (which takes
    /// 11 ms for a question of 12 tokens, and 28 ms for a passage of 120).
    Packed,
}

/// A model that is loaded on first use.
#[derive(Default)]
struct Slot {
    model: OnceLock<MiniLm>,
    /// Held while loading, so that the model is loaded only once.
    loading: Mutex<()>,
}

impl Slot {
    fn get_or_load(&self, threads: usize, layout: WeightLayout) -> Result<&MiniLm, EmbedError> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        // `OnceLock` cannot be initialised by a function that fails, and two threads would load the model twice.
        let _loading = locked(&self.loading);
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let model = MiniLm::load(threads, layout)?;
        Ok(self.model.get_or_init(|| model))
    }
}

impl Builtin {
    /// Returns the embedder without loading anything: the tokenizer is loaded on the first count, the model on the
    /// first text.
    pub(super) fn new(threads: Option<usize>) -> Self {
        let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
        Self {
            threads,
            tokens: Tokens::default(),
            in_place: Slot::default(),
            packed: Slot::default(),
            is_used: AtomicBool::new(false),
        }
    }

    /// Returns the vectors of the texts that were begun before `stop` was cancelled.
    fn vectors(&self, texts: &[&str], stop: &CancellationToken) -> Result<Vec<Option<Vec<f32>>>, EmbedError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let (words, model) = (self.tokens.words(), self.model_for(texts.len())?);
        batch::spread(model.workers.len(), texts.len(), |worker, text| {
            if stop.is_cancelled() {
                return Ok(None);
            }
            model.vector(&model_input(words, texts[text])?, &model.workers[worker]).map(Some)
        })
    }

    /// Returns the model for embedding this number of texts.
    fn model_for(&self, texts: usize) -> Result<&MiniLm, EmbedError> {
        // Relaxed: of two texts at the same time, either may count as the first.
        let was_used = self.is_used.swap(true, Ordering::Relaxed);
        if texts == 1 && !was_used {
            self.in_place.get_or_load(self.threads, WeightLayout::InPlace)
        } else {
            self.packed.get_or_load(self.threads, WeightLayout::Packed)
        }
    }
}

impl Embedder for Builtin {
    fn name(&self) -> &str {
        NAME
    }

    fn fingerprint(&self) -> &str {
        FINGERPRINT
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn max_tokens(&self) -> usize {
        WINDOW
    }

    fn tokens(&self) -> &dyn CountTokens {
        &self.tokens
    }

    fn reads(&self) -> &Reads {
        &reads::ENGLISH
    }

    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let all = self.vectors(texts, &CancellationToken::new())?;
        Ok(all.into_iter().map(|vector| vector.expect("nothing stops it")).collect())
    }

    fn embed_until(&self, texts: &[&str], stop: &CancellationToken) -> Embedded {
        match self.vectors(texts, stop) {
            Ok(vectors) => Embedded { vectors, error: None },
            Err(error) => Embedded { vectors: vec![None; texts.len()], error: Some(error) },
        }
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let mut vectors = self.embed_passages(&[text])?;
        Ok(vectors.pop().expect("one text gives one vector"))
    }

    fn compares_tokens(&self) -> bool {
        true
    }

    fn compare(&self, question: &[&str], texts: &[Vec<&str>]) -> Result<Vec<Matches>, EmbedError> {
        let (words, model) = (self.tokens.words(), self.model_for(1 + texts.len())?);
        let vectors = |parts: &[&str], worker: usize| {
            let parts = parts.iter().map(|part| words.encode(part).map_err(run_error));
            model.token_vectors(&parts.collect::<Result<Vec<_>, _>>()?, &model.workers[worker])
        };
        let all = batch::spread(model.workers.len(), 1 + texts.len(), |worker, text| {
            vectors(text.checked_sub(1).map_or(question, |text| &texts[text]), worker)
        })?;
        let (question, texts) = all.split_first().expect("the question is the first text");
        Ok(texts.iter().map(|text| Matches::of_tokens(question, text)).collect())
    }

    fn warm_up(&self) {
        self.tokens.words();
        // The next embedding call returns the same error.
        let _ = self.in_place.get_or_load(self.threads, WeightLayout::InPlace);
    }
}

/// Tokenizer and token counter of the model, each built on first use.
#[derive(Default)]
struct Tokens {
    words: OnceLock<Arc<WordPiece>>,
    counter: OnceLock<BertTokens>,
}

impl Tokens {
    fn words(&self) -> &Arc<WordPiece> {
        self.words.get_or_init(|| Arc::new(WordPiece::new(VOCABULARY)))
    }
}

impl CountTokens for Tokens {
    fn count(&self, text: &str) -> usize {
        let counter = self.counter.get_or_init(|| {
            let words = Arc::clone(self.words());
            BertTokens::new(move |word| words.encode(word).map_or(word.len(), |ids| ids.len()))
        });
        counter.count(text)
    }
}

/// Returns the model's input for a text: its tokens, cut to the window, between `[CLS]` and `[SEP]`.
fn model_input(words: &WordPiece, text: &str) -> Result<Vec<u32>, EmbedError> {
    let mut ids = words.encode(text).map_err(run_error)?;
    ids.truncate(WINDOW);
    Ok(framed(&ids))
}

/// Returns tokens between `[CLS]` and `[SEP]`.
fn framed(ids: &[u32]) -> Vec<u32> {
    [&[CLS], ids, &[SEP]].concat()
}

/// Groups consecutive parts into passes that fit into the window, given the tokens of each part.
fn passes(counts: &[usize]) -> Vec<Range<usize>> {
    let mut passes: Vec<Range<usize>> = Vec::new();
    let mut tokens = 0;
    for (part, count) in counts.iter().enumerate() {
        match passes.last_mut() {
            Some(pass) if tokens + count <= WINDOW => pass.end = part + 1,
            _ => {
                passes.push(part..part + 1);
                tokens = 0;
            }
        }
        tokens += count;
    }
    passes
}

fn run_error(source: impl Into<super::Cause>) -> EmbedError {
    EmbedError::Run { model: NAME.to_owned(), source: source.into() }
}

fn load_error(source: impl Into<super::Cause>) -> EmbedError {
    EmbedError::Load { model: NAME.to_owned(), source: source.into() }
}

/// The loaded model and the threads it runs on.
struct MiniLm {
    model: Model,
    ids: NodeId,
    mask: NodeId,
    types: NodeId,
    output: NodeId,
    /// One thread pool per text computed at the same time.
    workers: Vec<RunOptions>,
}

impl MiniLm {
    fn load(threads: usize, layout: WeightLayout) -> Result<Self, EmbedError> {
        let mut options = ModelOptions::with_all_ops();
        options.prepack_weights(layout == WeightLayout::Packed);
        options.external_data_static(MODEL_NAME_IN_GRAPH, MODEL);
        Self::of(options.load_static_slice(GRAPH).map_err(load_error)?, threads)
    }

    fn of(model: Model, threads: usize) -> Result<Self, EmbedError> {
        let node = |name: &str| model.node_id(name).map_err(load_error);
        let (ids, mask, types) = (node("input_ids")?, node("attention_mask")?, node("token_type_ids")?);
        let output = node("last_hidden_state")?;

        let workers = threads.min(MAX_WORKERS);
        let threads_each = threads / workers;
        let options = || {
            let pool = ThreadPool::with_num_threads(threads_each);
            RunOptions::default().with_thread_pool(Some(Arc::new(pool)))
        };
        Ok(Self { ids, mask, types, output, workers: (0..workers).map(|_| options()).collect(), model })
    }

    /// Returns the vector of one text, given its tokens.
    fn vector(&self, tokens: &[u32], options: &RunOptions) -> Result<Vec<f32>, EmbedError> {
        let states = self.states(tokens, options)?;
        batch::direction(states.chunks_exact(DIMENSION)).ok_or_else(unusable)
    }

    /// Returns the token vectors of one text, given the tokens of its parts.
    fn token_vectors(&self, parts: &[Vec<u32>], options: &RunOptions) -> Result<TokenVectors, EmbedError> {
        let counts: Vec<_> = parts.iter().map(|part| part.len().min(WINDOW)).collect();
        let mut values = Vec::with_capacity(counts.iter().sum::<usize>() * DIMENSION);
        for pass in passes(&counts) {
            let ids: Vec<u32> = pass.flat_map(|part| &parts[part][..counts[part]]).copied().collect();
            let states = if ids.is_empty() { Vec::new() } else { self.states(&framed(&ids), options)? };
            // Without those of `[CLS]` and `[SEP]`, which frame the tokens.
            for state in states.chunks_exact(DIMENSION).skip(1).take(ids.len()) {
                values.extend(batch::normalised(state.to_vec()).ok_or_else(unusable)?);
            }
        }
        Ok(TokenVectors::new(DIMENSION, values, counts))
    }

    /// Runs the model on the tokens of one text and returns the last hidden state of each.
    fn states(&self, tokens: &[u32], options: &RunOptions) -> Result<Vec<f32>, EmbedError> {
        let count = tokens.len();
        let ids: Vec<i32> = tokens.iter().map(|token| token.cast_signed()).collect();
        let row = |values: Vec<i32>| NdTensor::from_data([1, count], values);
        let inputs: Vec<(NodeId, ValueOrView)> = vec![
            (self.ids, row(ids).into()),
            // Nothing is padded, since every text runs by itself.
            (self.mask, row(vec![1; count]).into()),
            (self.types, row(vec![0; count]).into()),
        ];
        let outputs = self.model.run(inputs, &[self.output], Some(options.clone())).map_err(run_error)?;
        let output = outputs.into_iter().next().ok_or_else(|| run_error("no output"))?;
        let states: NdTensor<f32, 3> = output.try_into().map_err(run_error)?;
        let expected = [1, count, DIMENSION];
        if states.shape() != expected {
            let (found, expected) = (states.shape().to_vec(), expected.to_vec());
            return Err(EmbedError::WrongShape { model: NAME.to_owned(), found, expected });
        }
        Ok(states.into_data())
    }
}

fn unusable() -> EmbedError {
    EmbedError::UnusableVector { model: NAME.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::cosine;
    use super::super::recipe::Recipe;
    use super::*;

    /// Texts of 1 to about 300 words.
    fn texts(count: usize) -> Vec<String> {
        let words: Vec<&str> = include_str!("mod.rs").split_whitespace().collect();
        let text = |i: usize| {
            words.iter().cycle().skip(i * 13).take(1 + (i * 37) % 300).copied().collect::<Vec<_>>().join(" ")
        };
        (0..count).map(text).collect()
    }

    #[test]
    fn token_vectors_of_parts_are_those_of_the_whole_text() {
        let embedder = Builtin::new(Some(1));
        let parts = vec!["Brass valves last.", "", "Iron rusts."];
        let found = |question: &[&str]| embedder.compare(question, std::slice::from_ref(&parts)).unwrap().remove(0);
        let whole = found(&["Brass valves last. Iron rusts."]);
        assert!((whole.max_sim(0..3) - 1.0).abs() < 1e-4 && whole.max_sim(0..1) < 0.98);
        let asked = found(&["What", "rusts"]);
        assert!(asked.max_sim(2..3) > asked.max_sim(0..1));
    }

    #[test]
    fn first_text_of_a_process_has_the_vector_that_it_has_later() {
        let embedder = Builtin::new(Some(1));
        for text in texts(6) {
            let alone = Builtin::new(Some(1));
            let first = alone.embed_query(&text).unwrap();
            assert!(alone.packed.model.get().is_none(), "a single text is not worth the memory");
            assert_eq!(first, embedder.embed_passages(&["other", &text]).unwrap()[1]);
        }
        assert!(embedder.in_place.model.get().is_none());
    }

    #[test]
    fn no_text_is_begun_after_a_stop() {
        let stop = CancellationToken::new();
        stop.cancel();
        let Embedded { vectors, error } =
            Builtin::new(Some(2)).embed_until(&["Brass valves last.", "Iron rusts."], &stop);
        assert!(vectors == [None, None] && error.is_none());
    }

    #[test]
    fn every_part_is_in_one_pass_and_passes_fit_into_the_window() {
        assert_eq!(passes(&[100, 100, 100, 254, 1, 0]), [0..2, 2..3, 3..4, 4..6]);
        assert!(passes(&[]).is_empty());
    }

    #[test]
    fn graph_gives_the_vectors_of_the_model_it_was_made_of() {
        let ours = MiniLm::load(1, WeightLayout::InPlace).unwrap();
        let whole = MiniLm::of(Model::load_static_slice(MODEL).unwrap(), 1).unwrap();
        let words = WordPiece::new(VOCABULARY);
        for text in texts(4) {
            let tokens = model_input(&words, &text).unwrap();
            let vectors = [&ours, &whole].map(|model| model.vector(&tokens, &model.workers[0]).unwrap());
            assert_eq!(vectors[0], vectors[1], "{text}");
        }
    }

    #[test]
    fn fingerprint_is_that_of_the_published_files() {
        let tokenizer = include_bytes!("../../../assets/all-MiniLM-L6-v2-int8/tokenizer.json");
        let (weights_hash, tokenizer_hash) = (blake3::hash(MODEL).to_hex(), blake3::hash(tokenizer).to_hex());
        let recipe = Recipe {
            model: NAME,
            weights_hash: &weights_hash,
            tokenizer_hash: &tokenizer_hash,
            dimension: DIMENSION,
            pooling: "mean",
            query_prefix: "",
            passage_prefix: "",
            max_length: MAX_LENGTH,
            quantisation: "dynamic",
        };
        assert_eq!(FINGERPRINT, recipe.fingerprint());
    }

    #[test]
    fn vectors_are_the_published_ones_but_for_rounding() {
        // The first components of the vectors that sentence-transformers computes from the published float weights.
        let published = [
            0.0677, 0.0635, 0.0487, 0.0793, 0.0374, 0.0027, 0.0394, -0.0071, 0.0594, 0.0315, 0.0601, -0.0529, 0.0406,
            -0.0259, 0.0298, 0.0011, 0.0735, -0.0504, -0.1224, 0.0237, 0.0297, 0.0425, 0.0256, 0.0020, -0.0569,
            -0.0272, -0.0329, 0.0660, 0.1190, -0.0459, -0.0726, -0.0326, 0.0523, 0.0451, 0.0083, 0.0367, -0.0139,
            0.0654, -0.0264, 0.0002, -0.0137, -0.0363, -0.0195, -0.0290, 0.0394, -0.0884, 0.0026, 0.0137,
        ];
        let vector = Builtin::new(Some(1)).embed_query("This is an example sentence").unwrap();
        let start = &vector[..published.len()];
        let similarity = cosine(start, &published) / (cosine(start, start) * cosine(&published, &published)).sqrt();
        // 0.986 with AVX-512 VNNI, about 0.98 without it.
        assert!(similarity > 0.96, "{similarity}: {start:?}");
        assert_eq!(vector.len(), DIMENSION);
        assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_vector_depends_on_its_text_alone() {
        let texts = texts(24);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let one = Builtin::new(Some(1));
        let alone: Vec<Vec<f32>> = texts.iter().map(|text| one.embed_query(text).unwrap()).collect();
        for threads in [1, 2, 3] {
            assert_eq!(Builtin::new(Some(threads)).embed_passages(&texts).unwrap(), alone, "{threads} threads");
        }
        let many = Builtin::new(Some(40)).embed_passages(&texts).unwrap();
        assert!(alone.iter().zip(&many).all(|(a, b)| cosine(a, b) >= 0.9999));
    }

    #[test]
    fn meaning_is_found_without_a_common_word() {
        let embedder = Builtin::new(None);
        let query = embedder.embed_query("How do I get my money back?").unwrap();
        let passages = ["Refunds are paid within 14 days of a return.", "The cat sleeps on the warm windowsill."];
        let vectors = embedder.embed_passages(&passages).unwrap();
        assert!(cosine(&query, &vectors[0]) > cosine(&query, &vectors[1]) + 0.2);
    }

    #[test]
    fn what_is_past_the_window_is_not_seen() {
        let embedder = Builtin::new(Some(1));
        let window = "word ".repeat(embedder.max_tokens());
        assert_eq!(embedder.tokens().count(&window), embedder.max_tokens());
        let longer = format!("{window} and then a cat");
        assert_eq!(embedder.embed_query(&window).unwrap(), embedder.embed_query(&longer).unwrap());
    }

    #[test]
    fn texts_without_words_and_no_texts_at_all_are_no_trouble() {
        let embedder = Builtin::new(Some(2));
        assert!(embedder.embed_passages(&[]).unwrap().is_empty());
        let vectors = embedder.embed_passages(&["", " \n", "\u{0}", "🦀 [SEP] 漢字"]).unwrap();
        assert!(vectors.iter().all(|vector| (cosine(vector, vector) - 1.0).abs() < 1e-5));
    }
}
