//! The manifest of an index: versions, fingerprints and collections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::schema::SCHEMA_VERSION;

/// Metadata of an index, stored in a table of its own so that it is copied and shared with the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The `N` of the current tables `chunks_N` and `documents_N`.
    pub(crate) generation: u32,
    /// Version and parameters of the chunker.
    pub(crate) chunker: String,
    /// Tokenizer settings of the text index.
    pub(crate) text_index: String,
    /// The embedder of the vectors.
    pub(crate) embedder: EmbedderRecord,
    /// Root of each collection by name: relative to the folder that the index belongs to if inside it, else absolute.
    pub collections: BTreeMap<String, String>,
}

/// The embedder that computed the vectors of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmbedderRecord {
    /// The embedder as configured, for example `builtin` or `fastembed:BGESmallENV15`.
    pub(crate) choice: String,
    /// Display name of the model.
    pub(crate) name: String,
    /// Hash of everything that affects a vector; vectors of different fingerprints are never compared.
    pub(crate) fingerprint: String,
    /// Components of a vector.
    pub(crate) dimension: usize,
}

/// A stored manifest is unusable.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Written by a newer `dr`.
    #[error("index has format {found}, but this `dr` reads up to {SCHEMA_VERSION}")]
    TooNew {
        /// The stored version.
        found: u32,
    },

    /// Written by an older `dr`.
    #[error("index has format {found}, but this `dr` reads from {SCHEMA_VERSION}")]
    TooOld {
        /// The stored version.
        found: u32,
    },

    /// An entry is missing or malformed.
    #[error("entry `{key}` of the index manifest is missing or malformed")]
    Entry {
        /// Key of the entry.
        key: &'static str,
    },
}

const COLLECTION_PREFIX: &str = "collection/";

impl Manifest {
    /// Returns the rows to store.
    pub(super) fn entries(&self) -> Vec<(String, String)> {
        let embedder = serde_json::to_string(&self.embedder).unwrap_or_default();
        let mut entries = vec![
            ("schema_version".to_owned(), SCHEMA_VERSION.to_string()),
            ("generation".to_owned(), self.generation.to_string()),
            ("chunker".to_owned(), self.chunker.clone()),
            ("text_index".to_owned(), self.text_index.clone()),
            ("embedder".to_owned(), embedder),
        ];
        let collections = self.collections.iter();
        entries.extend(collections.map(|(name, root)| (format!("{COLLECTION_PREFIX}{name}"), root.clone())));
        entries
    }

    /// Parses stored rows.
    ///
    /// # Errors
    ///
    /// Checks the version before any other entry and returns [`ManifestError::TooNew`] or [`ManifestError::TooOld`] for
    /// a different one.
    pub(super) fn from_entries(entries: Vec<(String, String)>) -> Result<Self, ManifestError> {
        let mut entries: BTreeMap<String, String> = entries.into_iter().collect();
        let mut take = |key: &'static str| entries.remove(key).ok_or(ManifestError::Entry { key });
        let found: u32 = number(&take("schema_version")?, "schema_version")?;
        if found > SCHEMA_VERSION {
            return Err(ManifestError::TooNew { found });
        }
        if found < SCHEMA_VERSION {
            return Err(ManifestError::TooOld { found });
        }
        Ok(Self {
            generation: number(&take("generation")?, "generation")?,
            chunker: take("chunker")?,
            text_index: take("text_index")?,
            embedder: serde_json::from_str(&take("embedder")?).map_err(|_| ManifestError::Entry { key: "embedder" })?,
            collections: entries
                .into_iter()
                .filter_map(|(key, root)| Some((key.strip_prefix(COLLECTION_PREFIX)?.to_owned(), root)))
                .collect(),
        })
    }

    pub(super) fn chunks_table(&self) -> String {
        format!("chunks_{}", self.generation)
    }

    pub(super) fn documents_table(&self) -> String {
        format!("documents_{}", self.generation)
    }
}

fn number(text: &str, key: &'static str) -> Result<u32, ManifestError> {
    text.parse().map_err(|_| ManifestError::Entry { key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            generation: 3,
            chunker: "1/216/254".into(),
            text_index: "1".into(),
            embedder: EmbedderRecord {
                choice: "builtin".into(),
                name: "all-MiniLM-L6-v2-int8".into(),
                fingerprint: "abc".into(),
                dimension: 384,
            },
            collections: [("kb".to_owned(), "kb".to_owned()), ("a/b".to_owned(), "/x".to_owned())].into(),
        }
    }

    #[test]
    fn manifest_survives_its_own_storage() {
        assert_eq!(Manifest::from_entries(manifest().entries()).unwrap(), manifest());
    }

    #[test]
    fn newer_format_is_refused_before_its_entries_are_read() {
        let entries = vec![("schema_version".to_owned(), (SCHEMA_VERSION + 1).to_string())];
        let error = Manifest::from_entries(entries).unwrap_err();
        assert!(matches!(error, ManifestError::TooNew { found } if found == SCHEMA_VERSION + 1));
    }

    #[test]
    fn older_format_is_refused_before_its_entries_are_read() {
        let entries = vec![("schema_version".to_owned(), (SCHEMA_VERSION - 1).to_string())];
        let error = Manifest::from_entries(entries).unwrap_err();
        assert!(matches!(error, ManifestError::TooOld { found } if found == SCHEMA_VERSION - 1));
    }

    #[test]
    fn missing_entry_is_named() {
        let entries = manifest().entries().into_iter().filter(|(key, _)| key != "chunker").collect();
        let error = Manifest::from_entries(entries).unwrap_err();
        assert_eq!(error.to_string(), "entry `chunker` of the index manifest is missing or malformed");
    }
}
