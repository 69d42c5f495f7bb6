//! The files of an ONNX embedding model: finding them and reading their configuration.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ::fastembed::{Pooling, TokenizerFiles};
use serde_json::{Value, json};

use super::family::Family;

/// The files of a model are missing or unusable.
#[derive(Debug, thiserror::Error)]
pub enum ModelFilesError {
    #[error("no folder `{folder}`")]
    NoFolder { folder: PathBuf },
    /// Neither the folder nor its `onnx` subfolder has an ONNX file.
    #[error("no ONNX model in `{folder}`")]
    NoModel { folder: PathBuf },
    #[error("{count} ONNX models in `{folder}` and none is `model.onnx`")]
    SeveralModels { folder: PathBuf, count: usize },
    #[error("failed to read `{path}`")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("`{path}` is malformed")]
    Malformed { path: PathBuf, source: super::Cause },
    #[error("`{path}` has no `hidden_size`")]
    NoDimension { path: PathBuf },
}

impl ModelFilesError {
    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NoFolder { .. } => Some("a model of fastembed's catalogue needs no folder, only its name".into()),
            Self::NoModel { .. } => Some("put `model.onnx` into the folder, or into `onnx/` in it".into()),
            Self::SeveralModels { .. } => Some("rename the one to use to `model.onnx`".into()),
            Self::Unreadable { .. } => {
                Some("a model's folder needs `model.onnx`, `tokenizer.json` and `config.json`".into())
            }
            Self::NoDimension { .. } => Some("add `\"hidden_size\": N`, the number of components of a vector".into()),
            Self::Malformed { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ModelFiles {
    /// The folder of the tokenizer and the configuration.
    folder: PathBuf,
    pub(super) model: PathBuf,
    /// Weights that the graph refers to by file name.
    external: Vec<PathBuf>,
}

impl ModelFiles {
    /// Finds the model in a folder: `model.onnx`, else the only `.onnx` file, else `onnx/model.onnx`.
    pub(super) fn in_folder(folder: &Path) -> Result<Self, ModelFilesError> {
        if !folder.is_dir() {
            return Err(ModelFilesError::NoFolder { folder: folder.to_owned() });
        }
        let model = Self::model_in(folder)?;
        let external = external_files(&model);
        Ok(Self { folder: folder.to_owned(), model, external })
    }

    fn model_in(folder: &Path) -> Result<PathBuf, ModelFilesError> {
        let usual = folder.join("model.onnx");
        if usual.is_file() {
            return Ok(usual);
        }
        let mut models = files_of(folder);
        models.retain(|path| path.extension() == Some(OsStr::new("onnx")));
        let nested = folder.join("onnx").join("model.onnx");
        match (models.pop(), models.len()) {
            (Some(only), 0) => Ok(only),
            (Some(_), others) => Err(ModelFilesError::SeveralModels { folder: folder.to_owned(), count: others + 1 }),
            (None, _) if nested.is_file() => Ok(nested),
            (None, _) => Err(ModelFilesError::NoModel { folder: folder.to_owned() }),
        }
    }

    /// Returns the model of these files, which exist.
    pub(super) fn new(model: PathBuf, external: Vec<PathBuf>, folder: PathBuf) -> Self {
        Self { folder, model, external }
    }

    /// Returns the folder of the tokenizer and the configuration.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the size of the files that are loaded.
    pub(crate) fn bytes(&self) -> u64 {
        let tokenizer = TOKENIZER_FILES.iter().map(|name| self.folder.join(name));
        let all = self.external.iter().cloned().chain(tokenizer).chain([self.model.clone()]);
        all.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    }

    pub(super) fn weights_hash(&self) -> Result<String, ModelFilesError> {
        let mut hasher = blake3::Hasher::new();
        for path in [&self.model].into_iter().chain(&self.external) {
            let file = File::open(path).and_then(|file| hasher.update_reader(file).map(drop));
            file.map_err(|source| ModelFilesError::Unreadable { path: path.clone(), source })?;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Reads the ONNX graph.
    pub(super) fn model_bytes(&self) -> Result<Vec<u8>, ModelFilesError> {
        read(&self.model)
    }

    /// Reads the weights stored next to the graph, with the file names by which the graph refers to them.
    pub(super) fn external_bytes(&self) -> impl Iterator<Item = Result<(String, Vec<u8>), ModelFilesError>> {
        self.external.iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, read(path)?))
        })
    }

    /// Reads `tokenizer.json`.
    pub(super) fn tokenizer_bytes(&self) -> Result<Vec<u8>, ModelFilesError> {
        read(&self.folder.join("tokenizer.json"))
    }

    /// Reads the tokenizer files for fastembed and fills in required fields that a folder may lack.
    pub(super) fn tokenizer_files(&self) -> Result<TokenizerFiles, ModelFilesError> {
        let tokenizer_file = self.tokenizer_bytes()?;
        let mut config = self.json("tokenizer_config.json")?;
        if config["model_max_length"].as_f64().is_none() {
            // Fastembed uses the smaller of this value and the window passed to it.
            config["model_max_length"] = json!(f64::MAX);
        }
        if config["pad_token"].is_null() {
            config["pad_token"] = pad_token(&tokenizer_file).into();
        }
        Ok(TokenizerFiles {
            tokenizer_file,
            config_file: self.json("config.json")?.to_string().into_bytes(),
            special_tokens_map_file: self.json("special_tokens_map.json")?.to_string().into_bytes(),
            tokenizer_config_file: config.to_string().into_bytes(),
        })
    }

    /// Returns the family of the model, judged by the name in its configuration and by the name of its folder.
    pub(super) fn family(&self) -> Result<Family, ModelFilesError> {
        let origin = self.json("config.json")?["_name_or_path"].as_str().unwrap_or_default().to_owned();
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Family::of(&format!("{origin} {folder}")))
    }

    /// Returns the number of components of a vector.
    pub(super) fn dimension(&self) -> Result<usize, ModelFilesError> {
        let (pooling, config) = (self.json(POOLING)?, self.json("config.json")?);
        // DistilBERT calls it `dim`, and T5 calls it `d_model`.
        let sizes = [&pooling["word_embedding_dimension"], &config["hidden_size"], &config["dim"], &config["d_model"]];
        let size = sizes.into_iter().find_map(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| ModelFilesError::NoDimension { path: self.folder.join("config.json") })
    }

    /// Returns how token vectors are combined, if the files record it.
    pub(super) fn pooling(&self) -> Result<Option<Pooling>, ModelFilesError> {
        let config = self.json(POOLING)?;
        let is_set = |key: &str| config[key].as_bool() == Some(true);
        Ok(if is_set("pooling_mode_cls_token") {
            Some(Pooling::Cls)
        } else {
            is_set("pooling_mode_mean_tokens").then_some(Pooling::Mean)
        })
    }

    /// Returns the prefixes of queries and of passages, if the files record either.
    pub(super) fn prefixes(&self) -> Result<Option<(String, String)>, ModelFilesError> {
        let prompts = &self.json("config_sentence_transformers.json")?["prompts"];
        let prompt = |names: &[&str]| names.iter().find_map(|&name| prompts[name].as_str()).map(str::to_owned);
        let query = prompt(&["query", "search_query"]);
        let passage = prompt(&["document", "passage", "search_document"]);
        let none = query.is_none() && passage.is_none();
        Ok((!none).then(|| (query.unwrap_or_default(), passage.unwrap_or_default())))
    }

    /// Returns the window in tokens, special ones included.
    pub(super) fn max_length(&self, family: Family) -> Result<usize, ModelFilesError> {
        let limit = |value: &Value| value.as_u64().and_then(|limit| usize::try_from(limit).ok());
        let authors = limit(&self.json("sentence_bert_config.json")?["max_seq_length"]);
        // A tokenizer without a limit records 1e30, which does not parse as an integer.
        let tokenizer = limit(&self.json("tokenizer_config.json")?["model_max_length"]);
        let window = authors.map_or(family.window(), |authors| authors.min(Family::WINDOW));
        Ok(window.min(tokenizer.unwrap_or(window)))
    }

    /// Parses a JSON file of the folder. A missing file is an empty object: all of them are optional.
    fn json(&self, name: &str) -> Result<Value, ModelFilesError> {
        let path = self.folder.join(name);
        if !path.exists() {
            return Ok(json!({}));
        }
        let value: Result<Value, _> = serde_json::from_slice(&read(&path)?);
        match value {
            Ok(object @ Value::Object(_)) => Ok(object),
            Ok(_) => Err(ModelFilesError::Malformed { path, source: "not a JSON object".into() }),
            Err(error) => Err(ModelFilesError::Malformed { path, source: error.into() }),
        }
    }
}

/// Files that every model of the catalogue has next to its graph.
pub(super) const TOKENIZER_FILES: [&str; 4] =
    ["tokenizer.json", "config.json", "special_tokens_map.json", "tokenizer_config.json"];

/// File in which sentence-transformers records the pooling.
const POOLING: &str = "1_Pooling/config.json";

fn read(path: &Path) -> Result<Vec<u8>, ModelFilesError> {
    fs::read(path).map_err(|source| ModelFilesError::Unreadable { path: path.to_owned(), source })
}

/// Returns the files of a folder, sorted by name; empty if it cannot be read.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    // The hash of the weights depends on their order, and folders have none.
    files.sort();
    files
}

/// Returns the external weights of a graph, which are named after it: `model.onnx_data`, `model.onnx.data`.
fn external_files(model: &Path) -> Vec<PathBuf> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let mut files = model.parent().map(files_of).unwrap_or_default();
    let is_data = |rest: &str| rest.starts_with("_data") || rest.starts_with(".data");
    files.retain(|path| {
        let other = path.file_name().unwrap_or_default().to_string_lossy();
        other.strip_prefix(&*name).is_some_and(is_data)
    });
    files
}

/// Returns the padding token, by its usual names.
fn pad_token(tokenizer_file: &[u8]) -> String {
    let tokenizer: Value = serde_json::from_slice(tokenizer_file).unwrap_or_default();
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    let contents = added.filter_map(|token| token["content"].as_str());
    let pad = contents.into_iter().find(|content| matches!(*content, "[PAD]" | "<pad>" | "<|pad|>"));
    pad.unwrap_or("[PAD]").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::walk::tests::folder;

    #[test]
    fn the_graph_is_found_by_its_usual_names() {
        for (files, expected) in [
            (vec![("model.onnx", ""), ("other.onnx", "")], "model.onnx"),
            (vec![("mine.onnx", ""), ("onnx/model.onnx", "")], "mine.onnx"),
            (vec![("onnx/model.onnx", ""), ("config.json", "")], "onnx/model.onnx"),
        ] {
            let folder = folder(&files);
            let found = ModelFiles::in_folder(folder.path()).unwrap();
            assert_eq!(found.model, folder.path().join(expected));
        }
    }

    #[test]
    fn a_folder_without_one_clear_graph_is_an_error() {
        let several = folder(&[("a.onnx", ""), ("b.onnx", "")]);
        let error = ModelFiles::in_folder(several.path()).unwrap_err();
        assert!(matches!(error, ModelFilesError::SeveralModels { count: 2, .. }));
        assert!(matches!(ModelFiles::in_folder(folder(&[]).path()), Err(ModelFilesError::NoModel { .. })));
        assert!(matches!(ModelFiles::in_folder(Path::new("/no/where")), Err(ModelFilesError::NoFolder { .. })));
    }

    #[test]
    fn weights_beside_the_graph_belong_to_the_hash() {
        let files = |data| folder(&[("model.onnx", "graph"), ("model.onnx_data", data), ("notes.txt", "x")]);
        let (one, two) = (files("1"), files("2"));
        let (one, two) = (ModelFiles::in_folder(one.path()).unwrap(), ModelFiles::in_folder(two.path()).unwrap());
        assert_eq!(one.external.len(), 1);
        assert_ne!(one.weights_hash().unwrap(), two.weights_hash().unwrap());
    }

    #[test]
    fn what_sentence_transformers_wrote_is_used() {
        let folder = folder(&[
            ("model.onnx", ""),
            ("config.json", r#"{"hidden_size": 768}"#),
            ("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#),
            ("sentence_bert_config.json", r#"{"max_seq_length": 200}"#),
            ("config_sentence_transformers.json", r#"{"prompts": {"query": "q: ", "document": "d: "}}"#),
            ("tokenizer_config.json", r#"{"model_max_length": 1e30}"#),
        ]);
        let files = ModelFiles::in_folder(folder.path()).unwrap();
        assert_eq!(files.dimension().unwrap(), 768);
        assert_eq!(files.pooling().unwrap(), Some(Pooling::Cls));
        assert_eq!(files.max_length(files.family().unwrap()).unwrap(), 200);
        assert_eq!(files.prefixes().unwrap(), Some(("q: ".into(), "d: ".into())));
    }

    #[test]
    fn a_bare_folder_says_nothing_and_lacks_a_dimension() {
        let folder = folder(&[("model.onnx", ""), ("tokenizer_config.json", r#"{"model_max_length": 77}"#)]);
        let files = ModelFiles::in_folder(folder.path()).unwrap();
        assert_eq!((files.pooling().unwrap(), files.prefixes().unwrap()), (None, None));
        assert_eq!(files.max_length(files.family().unwrap()).unwrap(), 77);
        assert!(matches!(files.dimension(), Err(ModelFilesError::NoDimension { .. })));
    }

    #[test]
    fn broken_json_names_the_file() {
        let folder = folder(&[("model.onnx", ""), ("config.json", "{")]);
        let error = ModelFiles::in_folder(folder.path()).unwrap().dimension().unwrap_err();
        assert!(error.to_string().ends_with("config.json` is malformed"), "{error}");
    }
}
