//! Prefixes, pooling and window of families of embedding models.
//!
//! Fastembed adds no prefixes, and an ONNX folder often lacks the sentence-transformers files that record how the model
//! was trained. The strings are taken from each model's card.

use ::fastembed::Pooling;

/// Traits shared by the models of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Lower-case substrings of model names that identify the family.
    names: &'static [&'static str],
    /// Prefix of queries in training.
    pub(super) query_prefix: &'static str,
    /// Prefix of passages in training.
    pub(super) passage_prefix: &'static str,
    /// Whether the text is represented by the vector of its first token rather than the mean of all.
    first_token: bool,
    /// Window used in training, in tokens including special ones, if it is below [`Family::WINDOW`].
    window: Option<usize>,
}

impl Family {
    /// Default window in tokens, special ones included. Many models accept more, but longer passages are poor hits, and
    /// the cost of attention is quadratic.
    pub(super) const WINDOW: usize = 512;

    /// Returns the family of a model name or path. An unknown model gets mean pooling and no prefixes.
    pub(super) fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        let family = FAMILIES.iter().find(|family| family.names.iter().any(|part| name.contains(part)));
        *family.unwrap_or(&PLAIN)
    }

    /// Returns how token vectors are combined into one.
    pub(super) fn pooling(&self) -> Pooling {
        if self.first_token { Pooling::Cls } else { Pooling::Mean }
    }

    /// Returns the window in tokens, special ones included.
    pub(super) fn window(&self) -> usize {
        self.window.unwrap_or(Self::WINDOW)
    }
}

const PLAIN: Family = Family { names: &[], query_prefix: "", passage_prefix: "", first_token: false, window: None };

const REPRESENT: &str = "Represent this sentence for searching relevant passages: ";

/// The first match wins, so narrower names come first.
const FAMILIES: &[Family] = &[
    Family { names: &["all-minilm-l6"], window: Some(256), ..PLAIN },
    Family { names: &["all-minilm-l12", "paraphrase-multilingual"], window: Some(128), ..PLAIN },
    Family { names: &["all-mpnet-base"], window: Some(384), ..PLAIN },
    Family {
        names: &["e5-large-instruct"],
        query_prefix: "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
        ..PLAIN
    },
    Family {
        names: &["e5-small", "e5-base", "e5-large"],
        query_prefix: "query: ",
        passage_prefix: "passage: ",
        ..PLAIN
    },
    Family {
        names: &["nomic-embed-text", "modernbert-embed"],
        query_prefix: "search_query: ",
        passage_prefix: "search_document: ",
        ..PLAIN
    },
    Family {
        names: &["bge-small-en", "bge-base-en", "bge-large-en", "mxbai-embed-large"],
        query_prefix: REPRESENT,
        first_token: true,
        ..PLAIN
    },
    Family {
        names: &["bge-small-zh", "bge-base-zh", "bge-large-zh"],
        query_prefix: "为这个句子生成表示以用于检索相关文章：",
        first_token: true,
        ..PLAIN
    },
    Family { names: &["arctic-embed-m-v2", "arctic-embed-l-v2"], query_prefix: "query: ", first_token: true, ..PLAIN },
    Family { names: &["arctic-embed"], query_prefix: REPRESENT, first_token: true, ..PLAIN },
    Family { names: &["bge-m3", "gte-base-en", "gte-large-en"], first_token: true, ..PLAIN },
    Family {
        names: &["embeddinggemma"],
        query_prefix: "task: search result | query: ",
        passage_prefix: "title: none | text: ",
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use ::fastembed::TextEmbedding;

    use super::*;

    #[test]
    fn families_pool_as_the_catalogue_does() {
        for model in TextEmbedding::list_supported_models() {
            let family = Family::of(&model.model_code);
            let expected = TextEmbedding::get_default_pooling_method(&model.model);
            assert_eq!(Some(family.pooling()), expected, "{}", model.model_code);
        }
    }

    #[test]
    fn models_trained_with_prefixes_get_them() {
        let prefixes = |name| (Family::of(name).query_prefix, Family::of(name).passage_prefix);
        assert_eq!(prefixes("Qdrant/multilingual-e5-large-onnx"), ("query: ", "passage: "));
        assert_eq!(prefixes("nomic-ai/nomic-embed-text-v1.5"), ("search_query: ", "search_document: "));
        assert_eq!(prefixes("Snowflake/snowflake-arctic-embed-m"), (REPRESENT, ""));
        assert_eq!(prefixes("Snowflake/snowflake-arctic-embed-m-v2.0"), ("query: ", ""));
        assert_eq!(prefixes("BAAI/bge-m3"), ("", ""));
        assert_eq!(prefixes("something/else"), ("", ""));
    }

    #[test]
    fn mini_lm_is_cut_where_its_authors_cut_it() {
        assert_eq!(Family::of("Qdrant/all-MiniLM-L6-v2-onnx").window(), 256);
        assert_eq!(Family::of("Xenova/bge-small-en-v1.5").window(), Family::WINDOW);
    }
}
