//! The knowledge base as a source.

use futures::future::BoxFuture;

use super::{Documents, Found, Label, Passage, Place, Source, SourceError, SourceFile};
use crate::base::id::{ChunkId, ContentHash};
use crate::base::line::{counted, with_causes};
use crate::kb::about::About;
use crate::kb::index::{ChunkRow, Index, IndexError};

use crate::kb::rerank::Rerank;
use crate::kb::search::{Hit, Judged, Measured, SearchOptions, Searcher};
use crate::kb::walk::read_inside;

/// One snapshot of an index, and what may be found in it.
pub(crate) struct KbSource {
    searcher: Searcher,
    options: SearchOptions,
    scope: String,
    about: Vec<String>,
    version: String,
}

impl KbSource {
    /// Returns a source restricted by the filters of `options`; their limit is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the index cannot be read.
    pub(crate) async fn new(searcher: Searcher, options: SearchOptions, about: &About) -> Result<Self, IndexError> {
        let index = searcher.index();
        let documents = index.documents(None).await?;
        // What is found depends on what every file says, on the vectors there are, and on what may be searched; never on
        // a number of commits alone, which another index has too.
        let contents = documents.iter().map(|row| format!("{} {}\n", row.id, row.content_hash.as_str()));
        let reranked = match searcher.rerank() {
            Rerank::By(reranker) => format!(":{reranker}"),
            Rerank::Off | Rerank::Withheld(_) => String::new(),
        };
        let withheld = if searcher.withholds_vectors() { ":by words" } else { "" };
        let state = format!(
            "{}{}:{}:{:?}:{:?}:{:?}:{:?}{reranked}{withheld}",
            contents.collect::<String>(),
            index.version().await?,
            index.manifest().embedder.fingerprint,
            options.mode,
            options.per_document,
            options.filter,
            options.paths
        );
        let version = ContentHash::of(state.as_bytes()).as_str()[..16].to_owned();
        let wanted = &options.filter.collections;
        let is_searched = |name: &&String| wanted.is_empty() || wanted.contains(*name);
        let names: Vec<_> = index.manifest().collections.keys().filter(is_searched).cloned().collect();
        let count = documents.iter().filter(|row| names.contains(&row.collection)).count();
        let scope = format!("{} of {}", counted(count, "file"), names.join(", "));
        let about = about.lines(&names).collect();
        Ok(Self { searcher, options, scope, about, version })
    }
}

impl Documents for KbSource {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let missing = || SourceError::NoSuchPassage { id: id.to_owned() };
            let chunk: ChunkId = id.parse().map_err(|_| missing())?;
            let index = self.searcher.index();
            let chunk = index.chunk(&chunk).await.map_err(|error| failed(&error))?.ok_or_else(missing)?;
            let rows = index.document_chunks(&chunk.document_id).await.map_err(|error| failed(&error))?;
            let section = HeadingChunks::around(&rows, &chunk);
            let file = read_file(index, &chunk.collection, &chunk.path, &chunk.content_hash).await;
            let text = section.text(&file);
            Ok(Passage {
                id: id.to_owned(),
                label: Label::Internal,
                snippet: text.clone(),
                text,
                score: 1.0,
                place: Place::Kb {
                    title: chunk.title().to_owned(),
                    collection: chunk.collection.clone(),
                    path: chunk.path.clone(),
                    heading_path: chunk.heading_path.clone(),
                    line_start: section.line_start(),
                    line_end: section.line_end(),
                    content_hash: chunk.content_hash.clone(),
                    date: chunk.date.clone(),
                },
            })
        })
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        Box::pin(async move { read_place(self.searcher.index(), place).await.unwrap_or(SourceFile::Gone) })
    }
}

impl Source for KbSource {
    fn name(&self) -> &'static str {
        "kb"
    }

    fn scope(&self) -> String {
        self.scope.clone()
    }

    fn about(&self) -> &[String] {
        &self.about
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let options = SearchOptions { limit, ..self.options.clone() };
            let judged = self
                .searcher
                .search_and_judge(query, &options, Measured::Tokens)
                .await
                .map_err(|error| failed(&error))?;
            let unknown = judged.said();
            let Judged { found, support, corrected, .. } = judged;
            let without_vectors = found.without_vectors.iter().map(|reason| format!("{reason}; {}", reason.hint()));
            let notes = without_vectors.chain(found.not_reranked).collect();
            let passages = found.hits.into_iter().map(Passage::from).collect();
            Ok(Found { passages, support, notes, unknown, corrected })
        })
    }
}

fn failed(error: &dyn std::error::Error) -> SourceError {
    SourceError::Failed { name: "kb".to_owned(), reason: with_causes(error) }
}

impl From<Hit> for Passage {
    fn from(hit: Hit) -> Self {
        Self {
            id: hit.id.to_string(),
            label: Label::Internal,
            snippet: hit.snippet.text,
            text: hit.text,
            score: hit.score,
            place: Place::Kb {
                collection: hit.collection,
                path: hit.path,
                title: hit.title,
                heading_path: hit.heading_path,
                line_start: hit.line_start,
                line_end: hit.line_end,
                content_hash: hit.content_hash,
                date: hit.date,
            },
        }
    }
}

/// The chunks around one that stand under its heading.
pub(crate) struct HeadingChunks<'a> {
    rows: &'a [ChunkRow],
}

impl<'a> HeadingChunks<'a> {
    /// Finds the section of `chunk` among all chunks of its document, in order.
    pub(crate) fn around(rows: &'a [ChunkRow], chunk: &ChunkRow) -> Self {
        let is_inside = |row: &&ChunkRow| row.heading_path.starts_with(&chunk.heading_path);
        let place = rows.iter().position(|row| row.id == chunk.id).unwrap_or(0);
        let before = rows[..place].iter().rev().take_while(is_inside).count();
        let after = rows[place..].iter().take_while(is_inside).count();
        Self { rows: &rows[place - before..place + after] }
    }

    /// Takes a whole document.
    pub(crate) fn whole(rows: &'a [ChunkRow]) -> Self {
        Self { rows }
    }

    /// Returns its first line, from 1.
    pub(crate) fn line_start(&self) -> u32 {
        self.rows.iter().map(|row| row.line_start).min().unwrap_or(1)
    }

    /// Returns its last line, inclusive.
    pub(crate) fn line_end(&self) -> u32 {
        self.rows.iter().map(|row| row.line_end).max().unwrap_or(1)
    }

    /// Returns its text from the file if it is unchanged since it was indexed, else from the index.
    pub(crate) fn text(&self, file: &SourceFile) -> String {
        let joined = || self.rows.iter().map(|row| row.text.as_str()).collect::<Vec<_>>().join("\n\n");
        match (file, self.rows.first(), self.rows.last()) {
            (SourceFile::AsIndexed(text), Some(first), Some(last)) => {
                let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
                text.get(at(first.byte_start)..at(last.byte_end)).map_or_else(joined, str::to_owned)
            }
            _ => joined(),
        }
    }
}

/// Reads the file behind a place, if it is still what was indexed; `None` for a place that is no file.
pub(crate) async fn read_place(index: &Index, place: &Place) -> Option<SourceFile> {
    match place {
        Place::Kb { collection, path, content_hash, .. } => {
            Some(read_file(index, collection, path, content_hash).await)
        }
        Place::Web { .. } | Place::Mcp { .. } => None,
    }
}

/// Reads the file behind a passage, if it is still what was indexed.
pub(crate) async fn read_file(index: &Index, collection: &str, path: &str, indexed: &ContentHash) -> SourceFile {
    let Some(root) = index.root(collection) else { return SourceFile::Gone };
    let (path, indexed) = (path.to_owned(), indexed.clone());
    let read = move || match read_inside(&root, &path) {
        Ok(bytes) if ContentHash::of(&bytes) == indexed => {
            String::from_utf8(bytes).map_or(SourceFile::Changed, SourceFile::AsIndexed)
        }
        Ok(_) => SourceFile::Changed,
        Err(_) => SourceFile::Gone,
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(SourceFile::Gone)
}
