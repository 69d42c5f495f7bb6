//! Fastembed's catalogue of models, looked up by short name or repository.

use std::cmp::Reverse;
use std::collections::HashSet;

use ::fastembed::{EmbeddingModel, ModelInfo, TextEmbedding, TextRerank};

use super::store::ModelSource;

/// A model that computes vectors.
#[derive(Clone, Debug)]
pub(crate) struct CatalogueModel {
    /// Short name, such as `BGESmallENV15`.
    pub(crate) name: String,
    /// Dimension, files and repository.
    pub(super) info: ModelInfo<EmbeddingModel>,
}

impl CatalogueModel {
    /// Hugging Face repository of the model, such as `Xenova/bge-small-en-v1.5`.
    pub(crate) fn repository(&self) -> &str {
        &self.info.model_code
    }

    /// Returns the number of components of a vector.
    pub(crate) fn dimension(&self) -> usize {
        self.info.dim
    }

    pub(crate) fn source(&self) -> ModelSource {
        let info = &self.info;
        ModelSource::new(&info.model_code, &info.model_file, &info.additional_files)
    }
}

/// A model that reads a query and a passage together.
#[derive(Clone, Debug)]
pub(crate) struct CatalogueReranker {
    /// Short name, such as `BGERerankerBase`.
    pub(crate) name: String,
    pub(crate) source: ModelSource,
}

/// Returns all embedding models of the catalogue, sorted by name.
pub(crate) fn catalogue() -> Vec<CatalogueModel> {
    let models = TextEmbedding::list_supported_models().into_iter();
    let mut models: Vec<_> = models.map(|info| CatalogueModel { name: format!("{:?}", info.model), info }).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

/// Returns all rerankers of the catalogue, sorted by name.
pub(crate) fn rerankers() -> Vec<CatalogueReranker> {
    let models = TextRerank::list_supported_models().into_iter().map(|info| CatalogueReranker {
        name: format!("{:?}", info.model),
        source: ModelSource::new(&info.model_code, &info.model_file, &info.additional_files),
    });
    let mut models: Vec<_> = models.collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

/// Returns the reranker with that short name or repository, ignoring case.
pub(crate) fn find_reranker(name: &str) -> Option<CatalogueReranker> {
    let is_named = |model: &CatalogueReranker| {
        model.name.eq_ignore_ascii_case(name) || model.source.repository().eq_ignore_ascii_case(name)
    };
    rerankers().into_iter().find(is_named)
}

/// Returns the model with that short name or repository, ignoring case.
///
/// If several models share the repository, returns the one with the shortest name, which is the unquantised one.
pub(crate) fn find(name: &str) -> Option<CatalogueModel> {
    let named = |model: &CatalogueModel| {
        model.name.eq_ignore_ascii_case(name) || model.info.model_code.eq_ignore_ascii_case(name)
    };
    catalogue().into_iter().filter(named).min_by_key(|model| model.name.len())
}

/// Returns up to three short names of embedders most similar to `name`, best first.
pub(crate) fn names_like(name: &str) -> Vec<String> {
    most_like(name, catalogue().into_iter().map(|model| (model.name, model.info.model_code)))
}

/// Returns up to three short names of rerankers most similar to `name`, best first.
pub(crate) fn rerankers_like(name: &str) -> Vec<String> {
    most_like(name, rerankers().into_iter().map(|model| (model.name, model.source.repository().to_owned())))
}

fn most_like(name: &str, models: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let wanted = pairs(name);
    let likeness = |name: &str, code: &str| {
        let code = code.rsplit('/').next().unwrap_or_default();
        shared_percent(&wanted, &pairs(name)).max(shared_percent(&wanted, &pairs(code)))
    };
    let mut models: Vec<_> = models.map(|(name, code)| (likeness(&name, &code), name)).collect();
    models.retain(|&(percent, _)| percent >= 50);
    // The shortest name of a family is that of the unquantised model, see [`find`].
    models.sort_by_key(|(percent, name)| (Reverse(*percent), name.len()));
    models.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns the bigrams of a name's letters and digits.
fn pairs(name: &str) -> HashSet<(char, char)> {
    let letters: Vec<char> = name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    letters.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Returns the Dice similarity of two sets in percent.
fn shared_percent(a: &HashSet<(char, char)>, b: &HashSet<(char, char)>) -> usize {
    200 * a.intersection(b).count() / (a.len() + b.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_short_name_and_repository_in_any_case() {
        for name in ["BGESmallENV15", "bgesmallenv15", "xenova/BGE-small-en-v1.5"] {
            assert_eq!(find(name).unwrap().name, "BGESmallENV15", "{name}");
        }
        assert_eq!(find("nomic-ai/nomic-embed-text-v1.5").unwrap().name, "NomicEmbedTextV15");
        assert!(find("").is_none());
        assert!(find("bge").is_none());
    }

    #[test]
    fn a_misspelt_name_is_met_with_the_likely_ones() {
        assert_eq!(names_like("BGESmalENV15")[0], "BGESmallENV15");
        assert_eq!(names_like("bge-small-en")[0], "BGESmallENV15");
        assert!(names_like("multilingual-e5")[0].starts_with("MultilingualE5"));
        assert!(names_like("zzz").is_empty());
    }
}
