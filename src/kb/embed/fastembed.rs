//! Fastembed on ONNX Runtime: runs models of its catalogue, and models in the user's own folders.
//!
//! A model of the catalogue is read from the [store](super::store) like a user's folder, by code without network
//! access. Fastembed neither sorts by length nor adds prefixes, so both happen here, and
//! each `embed()` call gets one micro-batch.

use std::env;
use std::path::PathBuf;
use std::sync::Mutex;

use ::fastembed::{
    InitOptionsUserDefined, OutputKey, Pooling, QuantizationMode, TextEmbedding, UserDefinedEmbeddingModel,
};
use ort::environment::Environment;
use tokenizers::{ModelWrapper, NormalizerWrapper, PostProcessor, PreTokenizerWrapper, Tokenizer};

use super::batch;
use super::bert_tokens::BertTokens;
use super::catalogue::{self, CatalogueModel};
use super::facts::facts_of;
use super::family::Family;
use super::model_files::ModelFiles;
use super::recipe::Recipe;
use super::{Cause, EmbedError, Embedder, EmbedderOptions, Reads, onnx_runtime, reads};
use crate::base::mutex::locked;
use crate::base::token::CountTokens;

/// Tokens of the largest batch. Larger ones gain nothing, since ONNX Runtime spreads one batch over all threads, and
/// cost memory, since fastembed keeps the vectors of all tokens until it pools them.
const MAX_BATCH_TOKENS: usize = 2048;

/// Passages embedded between two checks for cancellation: about one batch.
const TEXTS_AT_ONCE: usize = 8;

/// A model that fastembed runs.
pub(super) struct Fastembed {
    name: String,
    fingerprint: String,
    /// Tokens of the window that remain for a passage, after special tokens and prefix.
    max_tokens: usize,
    tokens: Box<dyn CountTokens>,
    files: ModelFiles,
    traits: Traits,
    environment: Environment,
    threads: Option<usize>,
    /// Loaded on the first text. Running a session needs exclusive access.
    session: Mutex<Option<Session>>,
}

/// The loaded model.
struct Session {
    model: TextEmbedding,
    /// Limit of a batch in tokens; 1 runs every text by itself.
    max_batch_tokens: usize,
}

/// The properties of a model beyond its files.
struct Traits {
    dimension: usize,
    pooling: Pooling,
    quantisation: QuantizationMode,
    output_key: Option<OutputKey>,
    query_prefix: String,
    passage_prefix: String,
    /// Window in tokens, special ones included.
    max_length: usize,
    reads: Reads,
}

impl Fastembed {
    /// Finds the model and reads its configuration. Hashes the weights without loading them.
    pub(super) fn load(model: &str, options: &EmbedderOptions) -> Result<Self, EmbedError> {
        if let Some(model) = catalogue::find(model) {
            let files = options.store.find(&model.source());
            let files = files.ok_or_else(|| EmbedError::NotHere { model: model.name.clone() })?;
            let environment = onnx_runtime::environment(options.data_dir.as_deref())?;
            let traits = Traits::of_catalogue(&model, &files)?;
            return Self::new(&model.name, &model.name, files, traits, environment, options.threads);
        }
        let unknown = || EmbedError::UnknownModel { name: model.to_owned(), close: catalogue::names_like(model) };
        let folder = folder_at(model).ok_or_else(unknown)?;
        let files = ModelFiles::in_folder(&folder)?;
        let environment = onnx_runtime::environment(options.data_dir.as_deref())?;
        let traits = Traits::of_folder(&files)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        // Not the name of the folder, so that a moved or renamed model keeps its vectors.
        Self::new(&name, "folder", files, traits, environment, options.threads)
    }

    fn new(
        name: &str,
        recipe_name: &str,
        files: ModelFiles,
        mut traits: Traits,
        environment: Environment,
        threads: Option<usize>,
    ) -> Result<Self, EmbedError> {
        let name = format!("fastembed:{name}");
        let tokenizer_bytes = files.tokenizer_bytes()?;
        let fingerprint = traits.fingerprint(recipe_name, &files.weights_hash()?, &tokenizer_bytes);
        let Vocabulary { tokens, special, is_english } =
            vocabulary(&tokenizer_bytes).map_err(|source| EmbedError::Load { model: name.clone(), source })?;
        if is_english && traits.reads == Reads::All {
            traits.reads = reads::ENGLISH.clone();
        }
        let taken = special + tokens.count(&traits.passage_prefix);
        let max_tokens = traits.max_length.saturating_sub(taken).max(1);
        let session = Mutex::new(None);
        Ok(Self { name, fingerprint, max_tokens, tokens, files, traits, environment, threads, session })
    }

    /// Embeds texts that already have their prefixes.
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        // A session keeps no state between batches, so one that panicked may be used again.
        let mut session = locked(&self.session);
        let session = match session.as_mut() {
            Some(session) => session,
            None => session.insert(self.load_session()?),
        };
        // Fastembed truncates longer texts, so they cost no more than the window.
        let length = |text: &String| self.tokens.count(text).min(self.traits.max_length);
        let lengths: Vec<usize> = texts.iter().map(length).collect();
        let plan = batch::plan(&lengths, session.max_batch_tokens);
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in &plan {
            let batch: Vec<&str> = batch.iter().map(|&text| texts[text].as_str()).collect();
            vectors.extend(self.run(&mut session.model, &batch)?);
        }
        Ok(batch::in_input_order(&plan, vectors))
    }

    fn run(&self, model: &mut TextEmbedding, batch: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        // Not split further: the plan has bounded it.
        let vectors = model.embed(batch, Some(batch.len()));
        let vectors = vectors.map_err(|source| EmbedError::Run { model: self.name.clone(), source: source.into() })?;
        self.check_shape(&vectors, batch.len())?;
        let checked = vectors.into_iter().map(batch::normalised);
        checked.map(|vector| vector.ok_or_else(|| EmbedError::UnusableVector { model: self.name.clone() })).collect()
    }

    fn check_shape(&self, vectors: &[Vec<f32>], count: usize) -> Result<(), EmbedError> {
        let dimension = self.traits.dimension;
        match vectors.iter().find(|vector| vector.len() != dimension) {
            None if vectors.len() == count => Ok(()),
            odd => Err(EmbedError::WrongShape {
                model: self.name.clone(),
                found: vec![vectors.len(), odd.map_or(dimension, Vec::len)],
                expected: vec![count, dimension],
            }),
        }
    }

    fn load_session(&self) -> Result<Session, EmbedError> {
        let graph = self.files.model_bytes()?;
        let is_dynamic = self.traits.quantisation == QuantizationMode::Dynamic || quantises_as_it_runs(&graph);
        let max_batch_tokens = if is_dynamic { 1 } else { MAX_BATCH_TOKENS };
        let mut model = UserDefinedEmbeddingModel::new(graph, self.files.tokenizer_files()?)
            .with_pooling(self.traits.pooling.clone())
            .with_quantization(self.traits.quantisation);
        model.output_key.clone_from(&self.traits.output_key);
        for file in self.files.external_bytes() {
            let (name, bytes) = file?;
            model = model.with_external_initializer(name, bytes);
        }
        let mut options = InitOptionsUserDefined::new()
            .with_environment(self.environment.clone())
            .with_max_length(self.traits.max_length);
        options.intra_threads = self.threads;
        let model = TextEmbedding::try_new_from_user_defined(model, options)
            .map_err(|source| EmbedError::Load { model: self.name.clone(), source: source.into() })?;
        Ok(Session { model, max_batch_tokens })
    }
}

impl Embedder for Fastembed {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn dimension(&self) -> usize {
        self.traits.dimension
    }

    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    fn tokens(&self) -> &dyn CountTokens {
        &*self.tokens
    }

    fn reads(&self) -> &Reads {
        &self.traits.reads
    }

    /// Few, because models of the catalogue are slow, and a signal ends the program soon.
    fn at_once(&self) -> usize {
        TEXTS_AT_ONCE
    }

    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let prefix = &self.traits.passage_prefix;
        self.embed(&texts.iter().map(|text| format!("{prefix}{text}")).collect::<Vec<_>>())
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let mut vectors = self.embed(&[format!("{}{text}", self.traits.query_prefix)])?;
        Ok(vectors.pop().expect("one text gives one vector"))
    }
}

impl Traits {
    fn of_catalogue(model: &CatalogueModel, files: &ModelFiles) -> Result<Self, EmbedError> {
        let family = Family::of(model.repository());
        Ok(Self {
            dimension: model.info.dim,
            pooling: TextEmbedding::get_default_pooling_method(&model.info.model).unwrap_or(family.pooling()),
            quantisation: TextEmbedding::get_quantization_mode(&model.info.model),
            output_key: model.info.output_key.clone(),
            query_prefix: family.query_prefix.to_owned(),
            passage_prefix: family.passage_prefix.to_owned(),
            max_length: files.max_length(family)?,
            reads: facts_of(&model.name).map(|facts| Reads::of_codes(facts.languages.codes)).unwrap_or_default(),
        })
    }

    fn of_folder(files: &ModelFiles) -> Result<Self, EmbedError> {
        let family = files.family()?;
        let known = || (family.query_prefix.to_owned(), family.passage_prefix.to_owned());
        let (query_prefix, passage_prefix) = files.prefixes()?.unwrap_or_else(known);
        Ok(Self {
            dimension: files.dimension()?,
            pooling: files.pooling()?.unwrap_or(family.pooling()),
            // Fastembed uses this only to reject batches, which [`quantises_as_it_runs`] prevents.
            quantisation: QuantizationMode::None,
            output_key: None,
            query_prefix,
            passage_prefix,
            max_length: files.max_length(family)?,
            // By the name of the folder alone: the configuration of a model often names the one it was tuned from.
            reads: Reads::of_model(&files.folder().file_name().unwrap_or_default().to_string_lossy()),
        })
    }

    fn fingerprint(&self, model: &str, weights_hash: &str, tokenizer: &[u8]) -> String {
        let tokenizer_hash = blake3::hash(tokenizer).to_hex();
        let recipe = Recipe {
            model,
            weights_hash,
            tokenizer_hash: &tokenizer_hash,
            dimension: self.dimension,
            pooling: match self.pooling {
                Pooling::Cls => "cls",
                Pooling::Mean => "mean",
            },
            query_prefix: &self.query_prefix,
            passage_prefix: &self.passage_prefix,
            max_length: self.max_length,
            quantisation: match self.quantisation {
                QuantizationMode::None => "none",
                QuantizationMode::Static => "static",
                QuantizationMode::Dynamic => "dynamic",
            },
        };
        recipe.fingerprint()
    }
}

/// Returns whether an ONNX graph quantises activations at run time, to the range of the whole batch. The vector of a
/// text then depends on the rest of the batch, so texts have to run one by one.
fn quantises_as_it_runs(graph: &[u8]) -> bool {
    // The protobuf file contains operator names as plain text.
    graph.split(|&byte| byte == b'D').any(|rest| rest.starts_with(b"ynamicQuantize"))
}

/// Counts by encoding the text.
struct EncodedTokens(Tokenizer);

impl CountTokens for EncodedTokens {
    fn count(&self, text: &str) -> usize {
        // No tokenizer yields more tokens than bytes, so this is an upper bound for text it rejects.
        self.0.encode_fast(text, false).map_or(text.len(), |encoding| encoding.len())
    }
}

/// Tokens of the English BERT, whose vocabulary many English models share. It tells the language of a model without a
/// well-known name: vocabularies of other languages differ in size.
const ENGLISH_TOKENS: usize = 30_522;

/// Properties of a tokenizer.
struct Vocabulary {
    /// The fastest counter for it.
    tokens: Box<dyn CountTokens>,
    /// Special tokens that it adds to a text.
    special: usize,
    /// Whether it is that of the English BERT.
    is_english: bool,
}

fn vocabulary(tokenizer_json: &[u8]) -> Result<Vocabulary, Cause> {
    let mut tokenizer = Tokenizer::from_bytes(tokenizer_json)?;
    // The count of a padded or truncated text would not be its length.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None)?;
    let special = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
    let is_bert = is_uncased_bert(&tokenizer);
    let is_english = is_bert && tokenizer.get_vocab_size(true) == ENGLISH_TOKENS;
    let encoded = EncodedTokens(tokenizer);
    let tokens: Box<dyn CountTokens> =
        if is_bert { Box::new(BertTokens::new(move |word| encoded.count(word))) } else { Box::new(encoded) };
    Ok(Vocabulary { tokens, special, is_english })
}

/// Returns whether [`BertTokens`] is exact for this tokenizer.
fn is_uncased_bert(tokenizer: &Tokenizer) -> bool {
    let normalises = matches!(
        tokenizer.get_normalizer(),
        Some(NormalizerWrapper::BertNormalizer(bert)) if bert.lowercase && bert.clean_text && bert.handle_chinese_chars
    );
    let splits = matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)));
    let spells =
        matches!(tokenizer.get_model(), ModelWrapper::WordPiece(model) if model.max_input_chars_per_word == 100);
    normalises && splits && spells
}

/// Returns the folder that a text names; `None` for a text that is a name.
pub(super) fn folder_at(name: &str) -> Option<PathBuf> {
    let folder = match (name.strip_prefix("~/"), env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(name),
    };
    let is_path = folder.is_absolute() || name.starts_with(['.', '~']);
    if folder.is_dir() || is_path {
        // The embedder is named after the folder, and `.` and `..` have no file name.
        return Some(dunce::canonicalize(&folder).unwrap_or(folder));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::cosine;
    use super::super::{EmbedderChoice, ModelFilesError, ModelStore, load};
    use super::*;

    fn options(choice: &str) -> EmbedderOptions {
        EmbedderOptions {
            choice: choice.parse().unwrap(),
            offline: true,
            store: ModelStore::in_folder("/no/store".into()),
            data_dir: None,
            threads: Some(2),
            endpoint: None,
        }
    }

    const ASSET: &str = concat!("fastembed:", env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8");

    /// Loads the built-in model's folder through fastembed. Prints a note and returns `None` if no ONNX Runtime is
    /// found.
    fn asset() -> Option<Arc<dyn Embedder>> {
        match load(&options(ASSET)) {
            Ok(embedder) => Some(embedder),
            Err(EmbedError::Runtime(error)) => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn the_same_files_mean_the_same_through_both_libraries() {
        let Some(theirs) = asset() else { return };
        let ours = load(&options("builtin")).unwrap();
        assert_eq!((theirs.dimension(), theirs.max_tokens()), (ours.dimension(), ours.max_tokens()));
        assert_eq!(theirs.name(), "fastembed:all-MiniLM-L6-v2-int8");
        assert_ne!(theirs.fingerprint(), ours.fingerprint());

        let long = "A budget is reserved before each call and settled after it. ".repeat(60);
        let texts = ["This is an example sentence", "", "Refunds are paid within 14 days.", &long, "fn main() {}"];
        let pairs = theirs.embed_passages(&texts).unwrap().into_iter().zip(ours.embed_passages(&texts).unwrap());
        for ((their, our), text) in pairs.zip(texts) {
            let agreement = cosine(&their, &our);
            assert!(agreement >= 0.99, "{agreement} for {text:.40}");
        }
        assert_eq!(theirs.tokens().count(&long), ours.tokens().count(&long));
        assert!(theirs.embed_passages(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_model_quantised_as_it_runs_gives_each_text_a_vector_of_its_own() {
        let Some(embedder) = asset() else { return };
        let texts = ["short", "a rather longer text about refunds and returns", "另一种语言"];
        let together = embedder.embed_passages(&texts).unwrap();
        for (text, vector) in texts.iter().zip(together) {
            assert_eq!(embedder.embed_query(text).unwrap(), vector);
        }
    }

    #[test]
    fn fingerprint_is_the_same_each_time_it_is_loaded() {
        let (Some(once), Some(again)) = (asset(), asset()) else { return };
        assert_eq!(once.fingerprint(), again.fingerprint());
    }

    #[test]
    fn a_model_that_is_not_on_this_machine_is_an_error_that_says_how_to_get_it() {
        let error = load(&options("fastembed:BGESmallENV15")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "embedding model `BGESmallENV15` is not on this machine");
        assert!(error.hint().unwrap().contains("`dr model use BGESmallENV15`"));
    }

    #[test]
    fn an_unknown_model_is_met_with_close_names() {
        let error = load(&options("fastembed:BGE-small-en")).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "no embedding model called `BGE-small-en`");
        assert!(error.hint().unwrap().starts_with("did you mean `BGESmallENV15`"));
    }

    #[test]
    fn a_path_that_is_no_folder_is_not_taken_for_a_misspelt_model() {
        let error = load(&options("fastembed:./no/such/folder")).map(drop).unwrap_err();
        assert!(matches!(error, EmbedError::Files(ModelFilesError::NoFolder { .. })), "{error:?}");
    }

    #[test]
    fn a_text_that_cannot_be_a_choice_is_refused() {
        for text in ["", "openai", "fastembed", "fastembed:", "builtin:x"] {
            assert!(text.parse::<EmbedderChoice>().is_err(), "{text}");
        }
        for text in ["builtin", "fastembed:BGEM3", "fastembed:C:\\models\\mine"] {
            let choice: EmbedderChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert_eq!(serde_json::to_string(&choice).unwrap(), serde_json::to_string(text).unwrap());
        }
    }
}
