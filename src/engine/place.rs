//! Finds the file of a passage, to open it in another program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::passage::{GetError, Selector, find_document};
use super::{Engine, EngineError};
use crate::base::id::ChunkId;
use crate::kb::index::Index;
use crate::source::{SourceFile, read_file};

/// The file of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePlace {
    /// Full path of the file.
    pub(crate) file: PathBuf,
    /// Path relative to the collection's root.
    pub(crate) path: String,
    /// First line of the passage as indexed, from 1; `None` for a whole document.
    pub(crate) line: Option<u32>,
    /// Whether the file has changed since it was indexed.
    pub(crate) stale: bool,
}

impl Engine {
    /// Finds the file of a passage, as [`Engine::get`] finds its text.
    ///
    /// # Errors
    ///
    /// Returns [`GetError`] if the name matches nothing, or the file is gone. Only files in the index are found.
    pub(crate) async fn file_place(&self, selector: &Selector) -> Result<FilePlace, EngineError> {
        let index = &self.open_index().await?;
        let chunk = match selector {
            Selector::Id(id) => match id.parse::<ChunkId>() {
                Ok(chunk) => index.chunk(&chunk).await?,
                Err(_) => None,
            },
            Selector::Path { .. } => None,
        };
        let (collection, path, indexed, line) = match (chunk, selector) {
            (Some(chunk), _) => (chunk.collection, chunk.path, chunk.content_hash, Some(chunk.line_start)),
            (None, Selector::Id(id)) => {
                let mut documents = index.documents(None).await?.into_iter();
                let document = documents.find(|row| row.id.as_str() == id);
                let document = document.ok_or_else(|| GetError::NoSuchId { id: id.clone() })?;
                (document.collection, document.path, document.content_hash, None)
            }
            (None, Selector::Path { path, lines }) => {
                let document = find_document(index.documents(None).await?, path)?;
                (document.collection, document.path, document.content_hash, lines.map(|(first, _)| first))
            }
        };
        let (stale, root) = match (read_file(index, &collection, &path, &indexed).await, index.root(&collection)) {
            (SourceFile::Gone, _) | (_, None) => return Err(GetError::Gone { path }.into()),
            (SourceFile::AsIndexed(_), Some(root)) => (false, root),
            (SourceFile::Changed, Some(root)) => (true, root),
        };
        Ok(FilePlace { file: root.join(&path), path, line, stale })
    }

    /// Returns the folder of each collection of the index, to link to its files; none if there is no index.
    pub(crate) async fn folders(&self) -> BTreeMap<String, PathBuf> {
        let Some(manifest) = Index::known(&self.location).await else { return BTreeMap::new() };
        let inside = manifest.collections.into_iter().filter(|(_, root)| self.location.leads_out(root).is_none());
        inside.map(|(name, root)| (name, self.location.open_root(&root))).collect()
    }
}
