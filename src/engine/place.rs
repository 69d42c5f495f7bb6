//! Finds the file of a passage, to open it in another program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::get::GetError;
use super::passage::{Located, Selector};
use super::{Engine, EngineError};
use crate::kb::extract::{Extractable, page_at};
use crate::kb::index::Index;
use crate::source::{SourceFile, read_file};

/// The file of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePlace {
    pub(crate) file: PathBuf,
    /// Path relative to the collection's root.
    pub(crate) path: String,
    /// First line of the passage as indexed, from 1; `None` for a whole document.
    pub(crate) line: Option<u32>,
    /// Page of the passage, if the file is a PDF.
    pub(crate) page: Option<u32>,
    /// Whether the lines are those of a text that was extracted from the file, which no editor shows.
    pub(crate) is_extracted: bool,
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
        let (index, selector) = (&self.open_index().await?, &self.resolved(selector).await?);
        let (collection, path, indexed, line) = match (self.located(index, selector).await?, selector) {
            (Located::Chunk(chunk), _) => (chunk.collection, chunk.path, chunk.content_hash, Some(chunk.line_start)),
            (Located::Document(row), Selector::Path { lines: Some((first, _)), .. }) => {
                (row.collection, row.path, row.content_hash, Some(*first))
            }
            (Located::Document(row), _) => (row.collection, row.path, row.content_hash, None),
        };
        let is_extracted = Extractable::of(&path).is_some();
        let mut page = match selector {
            Selector::Page { page, .. } => Some(*page),
            Selector::Id(_) | Selector::Path { .. } => None,
        };
        let (stale, root) = match (read_file(index, &collection, &path, &indexed).await, index.root(&collection)) {
            (SourceFile::Gone, _) | (_, None) => return Err(GetError::Gone { path }.into()),
            (SourceFile::AsIndexed(text), Some(root)) => {
                page = page.or_else(|| page_at(&text, line.filter(|_| is_extracted)?));
                (false, root)
            }
            // No page is looked up: the indexed lines say nothing about the file as it is now.
            (SourceFile::Changed, Some(root)) => (true, root),
        };
        Ok(FilePlace { file: root.join(&path), path, line, page, is_extracted, stale })
    }

    /// Returns the folder of each collection of the index, to link to its files. Empty if no index can be read.
    pub(crate) async fn folders(&self) -> BTreeMap<String, PathBuf> {
        let Ok(Some(manifest)) = Index::known(&self.location).await else { return BTreeMap::new() };
        // A link out of the project may have come with it, so reports do not link there.
        let inside = manifest.collections.into_iter().filter(|(_, root)| self.location.leads_out(root).is_none());
        inside.map(|(name, root)| (name, self.location.open_root(&root))).collect()
    }
}
