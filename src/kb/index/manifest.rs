//! The manifest of an index: versions, fingerprints and collections.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::schema::SCHEMA_VERSION;
use crate::base::folder::write_private;
use crate::kb::extract::Include;

/// Metadata of an index, stored in a separate table so that it is copied and shared with the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The `N` of the current tables `chunks_N` and `documents_N`.
    pub(crate) generation: u32,
    /// Version and parameters of the chunker.
    pub(crate) chunker: String,
    /// Version of the terms of the text index.
    pub(crate) text_index: String,
    /// Number of documents indexed in each language, by code. Not reduced when a document is removed.
    pub(crate) languages: BTreeMap<String, u32>,
    pub(crate) embedder: EmbedderRecord,
    /// Root of each collection by name: relative to the folder that the index belongs to if inside it, else absolute.
    pub collections: BTreeMap<String, String>,
    /// Formats that collections include besides Markdown and plain text. A collection without an entry has no others.
    pub(crate) includes: BTreeMap<String, Include>,
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
    #[error("index has format {found}, but this `dr` reads up to {SCHEMA_VERSION}")]
    TooNew { found: u32 },
    #[error("index has format {found}, but this `dr` reads format {SCHEMA_VERSION} or later")]
    TooOld { found: u32 },
    #[error("entry `{key}` of the index manifest is missing or malformed")]
    Entry { key: &'static str },
}

const COLLECTION_PREFIX: &str = "collection/";

const INCLUDE_PREFIX: &str = "include/";

/// Name of the copy of the manifest in the folder of a local index.
pub(super) const MANIFEST_COPY: &str = "manifest.json";

/// Largest copy that is read, in bytes.
const MAX_COPY_BYTES: u64 = 1024 * 1024;

impl Manifest {
    /// Returns the rows to store.
    pub(super) fn entries(&self) -> Vec<(String, String)> {
        let embedder = serde_json::to_string(&self.embedder).unwrap_or_default();
        let mut entries = vec![
            ("schema_version".to_owned(), SCHEMA_VERSION.to_string()),
            ("generation".to_owned(), self.generation.to_string()),
            ("chunker".to_owned(), self.chunker.clone()),
            ("text_index".to_owned(), self.text_index.clone()),
            ("languages".to_owned(), serde_json::to_string(&self.languages).unwrap_or_default()),
            ("embedder".to_owned(), embedder),
        ];
        let collections = self.collections.iter();
        entries.extend(collections.map(|(name, root)| (format!("{COLLECTION_PREFIX}{name}"), root.clone())));
        let includes = self.includes.iter();
        entries.extend(includes.map(|(name, include)| (format!("{INCLUDE_PREFIX}{name}"), include.to_string())));
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
            // Missing in an index of an earlier version of the terms.
            languages: take("languages").ok().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default(),
            embedder: serde_json::from_str(&take("embedder")?).map_err(|_| ManifestError::Entry { key: "embedder" })?,
            includes: entries
                .iter()
                .filter_map(|(key, include)| Some((key.strip_prefix(INCLUDE_PREFIX)?.to_owned(), include)))
                .map(|(name, include)| {
                    Ok((name, include.parse().map_err(|_| ManifestError::Entry { key: "include" })?))
                })
                .collect::<Result<_, ManifestError>>()?,
            collections: entries
                .into_iter()
                .filter_map(|(key, root)| Some((key.strip_prefix(COLLECTION_PREFIX)?.to_owned(), root)))
                .collect(),
        })
    }

    /// Writes a copy that can be read without the storage engine: a rebuild finds the collections there if the tables
    /// are damaged. Does nothing if the copy is up to date.
    pub(super) fn write_copy(&self, folder: &Path) -> std::io::Result<()> {
        // Every writer gets here, even one with nothing to write.
        if Self::read_copy(folder).as_ref() == Some(self) {
            return Ok(());
        }
        let entries: BTreeMap<_, _> = self.entries().into_iter().collect();
        write_private(&folder.join(MANIFEST_COPY), &serde_json::to_vec_pretty(&entries)?)
    }

    /// Reads the copy. Returns `None` if it is missing, damaged or of another format version.
    pub(super) fn read_copy(folder: &Path) -> Option<Self> {
        let path = folder.join(MANIFEST_COPY);
        // The folder may be someone else's: a link could lead anywhere, and a pipe would block.
        let metadata = path.symlink_metadata().ok()?;
        if !metadata.is_file() || metadata.len() > MAX_COPY_BYTES {
            return None;
        }
        let entries: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Self::from_entries(entries.into_iter().collect()).ok()
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
pub(super) mod tests {
    use super::*;

    pub(in crate::kb::index) fn manifest() -> Manifest {
        Manifest {
            generation: 3,
            chunker: "1/216/254".into(),
            text_index: "1".into(),
            languages: [("de".to_owned(), 3), ("en".to_owned(), 1)].into(),
            embedder: EmbedderRecord {
                choice: "builtin".into(),
                name: "all-MiniLM-L6-v2-int8".into(),
                fingerprint: "abc".into(),
                dimension: 384,
            },
            collections: [("kb".to_owned(), "kb".to_owned()), ("a/b".to_owned(), "/x".to_owned())].into(),
            includes: [("a/b".to_owned(), Include::all())].into(),
        }
    }

    #[test]
    fn manifest_survives_its_own_storage() {
        assert_eq!(Manifest::from_entries(manifest().entries()).unwrap(), manifest());
    }

    #[test]
    fn copy_that_is_damaged_or_a_link_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read_copy(folder.path()), None);
        manifest().write_copy(folder.path()).unwrap();
        assert_eq!(Manifest::read_copy(folder.path()), Some(manifest()));
        let copy = folder.path().join(MANIFEST_COPY);
        let text = std::fs::read(&copy).unwrap();
        for damaged in [&text[..text.len() / 2], b"", b"\xff{}", b"{}"] {
            std::fs::write(&copy, damaged).unwrap();
            assert_eq!(Manifest::read_copy(folder.path()), None);
        }
        manifest().write_copy(folder.path()).unwrap();
        assert_eq!(Manifest::read_copy(folder.path()), Some(manifest()), "a damaged copy is replaced");
        #[cfg(unix)]
        {
            std::fs::rename(&copy, folder.path().join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", &copy).unwrap();
            assert_eq!(Manifest::read_copy(folder.path()), None);
        }
    }

    #[test]
    fn other_format_is_refused_before_its_entries_are_read() {
        let (newer, older) = (SCHEMA_VERSION + 1, SCHEMA_VERSION - 1);
        let error = |version: u32| Manifest::from_entries(vec![("schema_version".into(), version.to_string())]).err();
        assert!(matches!(error(newer), Some(ManifestError::TooNew { found }) if found == newer));
        assert!(matches!(error(older), Some(ManifestError::TooOld { found }) if found == older));
    }

    #[test]
    fn missing_entry_is_named() {
        let entries = manifest().entries().into_iter().filter(|(key, _)| key != "chunker").collect();
        let error = Manifest::from_entries(entries).unwrap_err();
        assert_eq!(error.to_string(), "entry `chunker` of the index manifest is missing or malformed");
    }
}
