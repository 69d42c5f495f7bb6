//! Reads passages by name: a chunk, its section, its document, or lines of a file.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::get::GetError;
use super::request::check_scope;
use super::{Engine, EngineError};
use crate::base::id::{ChunkId, DocumentId};
use crate::kb::extract::{Extractable, lines_of_page};
use crate::kb::index::{ChunkRow, DocumentRow, Index};
use crate::kb::search::Scope;
use crate::source::{HeadingChunks, SourceFile, read_file};

/// Beginning of the addresses of documents.
pub(crate) const DOCUMENTS: &str = "dr://documents/";

/// Name of a passage: an id, a path, lines of a path, or an address that
/// [`document_address`](super::contents::document_address) made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// A chunk or document by its id.
    Id(String),
    /// A document by its path, or lines of it.
    Path {
        /// Relative to the collection's root, optionally prefixed with the name of the collection.
        path: String,
        /// First and last line, from 1, inclusive; `None` for the whole document.
        lines: Option<(u32, u32)>,
    },
    /// A page of a PDF, as citations name it.
    Page {
        /// As above.
        path: String,
        /// From 1.
        page: u32,
    },
}

/// The text is not a valid name of a passage.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a range of lines (expected `path:from-to`, from 1)")]
pub(crate) struct ParseSelectorError(String);

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.parse::<ChunkId>().is_ok() {
            return Ok(Self::Id(text.to_owned()));
        }
        if let Some(selector) = text.strip_prefix(DOCUMENTS).and_then(Self::in_address) {
            return Ok(selector);
        }
        // Only for PDF files: the name of any other file may end like this.
        let with_page = || {
            let (path, page) = text.rsplit_once(", page ")?;
            (Extractable::of(path) == Some(Extractable::Pdf)).then_some((path, page.parse().ok()?))
        };
        if let Some((path, page)) = with_page() {
            return Ok(Self::Page { path: path.to_owned(), page });
        }
        // Digits alone, so that a path with a colon stays a path.
        let is_range =
            |range: &str| !range.is_empty() && range.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let Some((path, range)) = text.rsplit_once(':').filter(|(_, range)| is_range(range)) else {
            return Ok(Self::Path { path: text.to_owned(), lines: None });
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => {
                Ok(Self::Path { path: path.to_owned(), lines: Some((first, last)) })
            }
            _ => Err(ParseSelectorError(text.to_owned())),
        }
    }
}

impl Selector {
    /// Parses the rest of an address, such as `handbook/guide/a%20b.md#L3-L9`. A fragment that names no lines is ignored.
    /// Returns `None` if the path is not text.
    pub(super) fn in_address(rest: &str) -> Option<Self> {
        let (path, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let line = |text: &str| text.strip_prefix('L')?.parse().ok().filter(|line| *line > 0);
        let (first, last) = fragment.split_once('-').unwrap_or((fragment, fragment));
        let lines = line(first).zip(line(last)).filter(|(first, last)| first <= last);
        Some(Self::Path { path: percent_decode_str(path).decode_utf8().ok()?.into_owned(), lines })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Path { path, lines: None } => f.write_str(path),
            Self::Path { path, lines: Some((first, last)) } => write!(f, "{path}:{first}-{last}"),
            Self::Page { path, page } => write!(f, "{path}, page {page}"),
        }
    }
}

/// How much text around a passage is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Extent {
    /// The passage itself.
    #[default]
    Passage,
    /// Everything under its heading.
    Section,
    /// Its document.
    Document,
}

/// A document of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentEntry {
    pub(crate) collection: String,
    /// Path relative to the collection's root.
    pub(crate) path: String,
    pub(crate) title: String,
}

/// The chunk or document that a [`Selector`] names.
pub(super) enum Located {
    Chunk(Box<ChunkRow>),
    Document(DocumentRow),
}

/// Consecutive lines of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Excerpt {
    /// The chunk, if one was named.
    pub id: Option<ChunkId>,
    pub(crate) document_id: DocumentId,
    pub(crate) collection: String,
    /// Path relative to the collection's root.
    pub(crate) path: String,
    pub(crate) title: String,
    pub(crate) heading_path: Vec<String>,
    /// First line, from 1.
    pub(crate) line_start: u32,
    /// Last line, inclusive.
    pub(crate) line_end: u32,
    pub text: String,
    /// Whether the file has changed or is missing since it was indexed. If so, the text is from the index.
    pub(crate) stale: bool,
}

impl Excerpt {
    /// Returns a note for the reader if the file no longer has this text.
    pub(crate) fn note(&self) -> Option<&'static str> {
        self.stale.then_some("the file has changed since it was indexed; this is the indexed text")
    }
}

#[cfg(test)]
impl Excerpt {
    /// Returns lines of `kb/a.md` from the fifth on.
    pub(crate) fn sample(text: String, line_end: u32) -> Self {
        Self {
            id: None,
            document_id: DocumentId::new("kb", "a.md"),
            collection: "kb".into(),
            path: "a.md".into(),
            title: "A".into(),
            heading_path: Vec::new(),
            line_start: 5,
            line_end,
            text,
            stale: false,
        }
    }
}

/// Letters that make a path a pattern.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// Longest list of alternatives in a hint.
const MAX_CHOICES: usize = 5;

impl Engine {
    /// Reads a passage from its file if the file is unchanged since it was indexed, else from the index.
    ///
    /// # Errors
    ///
    /// Returns [`GetError`] if the name matches nothing. Only files in the index are ever read.
    pub(crate) async fn get(&self, selector: &Selector, extent: Extent) -> Result<Excerpt, EngineError> {
        let (index, selector) = (&self.open_index().await?, &self.resolved(selector).await?);
        match (self.located(index, selector).await?, selector) {
            (Located::Chunk(chunk), _) => read_chunk(index, *chunk, extent).await,
            (Located::Document(document), Selector::Path { lines, .. }) => read_document(index, document, *lines).await,
            (Located::Document(document), Selector::Page { page, .. }) => read_page(index, document, *page).await,
            (Located::Document(document), Selector::Id(_)) => read_document(index, document, None).await,
        }
    }

    /// Lists the documents that the audience may see, by collection and path.
    pub(crate) async fn documents(&self) -> Result<Vec<DocumentEntry>, EngineError> {
        let rows = self.open_index().await?.documents(None).await?;
        let mut documents: Vec<_> = rows
            .into_iter()
            .filter(|row| self.serves(&row.collection))
            .map(|row| DocumentEntry { collection: row.collection, path: row.path, title: row.title })
            .collect();
        // In a fixed order, since a client of `mcp` reads the list in pages that are counted from its beginning.
        documents.sort_by(|a, b| (&a.collection, &a.path).cmp(&(&b.collection, &b.path)));
        Ok(documents)
    }

    /// Returns a selector for each document that a path with wildcards matches, by path; `None` for any other selector, and
    /// for the path of a document whose name has such letters.
    ///
    /// # Errors
    ///
    /// Returns [`GetError::NoMatch`] if no document matches, or an error if the wildcards are invalid.
    pub(crate) async fn matching(&self, selector: &Selector) -> Result<Option<Vec<Selector>>, EngineError> {
        let glob = match selector {
            Selector::Path { path, lines: None } if path.contains(WILDCARDS) => path,
            _ => return Ok(None),
        };
        let documents = self.documents().await?;
        let full = |document: &DocumentEntry| format!("{}/{}", document.collection, document.path);
        // The name of a file may have such letters, and is then meant as it is.
        if documents.iter().any(|document| document.path == *glob || full(document) == *glob) {
            return Ok(None);
        }
        let globs = check_scope(&Scope { paths: vec![glob.clone()], ..Scope::default() })?.paths.unwrap_or_default();
        let matches =
            documents.iter().filter(|document| globs.is_match(&document.path) || globs.is_match(full(document)));
        let found: Vec<_> = matches.map(|document| Selector::Path { path: full(document), lines: None }).collect();
        if found.is_empty() { Err(GetError::NoMatch { glob: glob.clone() }.into()) } else { Ok(Some(found)) }
    }

    /// Finds the chunk or document with a given name among those the audience may see.
    ///
    /// # Errors
    ///
    /// Returns [`GetError`] if the name matches nothing.
    pub(super) async fn located(&self, index: &Index, selector: &Selector) -> Result<Located, EngineError> {
        let id = match selector {
            Selector::Path { path, .. } | Selector::Page { path, .. } => {
                return Ok(Located::Document(self.find_served(index.documents(None).await?, path)?));
            }
            Selector::Id(id) => id,
        };
        // Ids of chunks and documents look alike, so both are looked up.
        let chunk = match id.parse::<ChunkId>() {
            Ok(chunk) => index.chunk(&chunk).await?,
            Err(_) => None,
        };
        if let Some(chunk) = chunk {
            self.check_served(&chunk.collection)?;
            return Ok(Located::Chunk(Box::new(chunk)));
        }
        let document = index.documents(None).await?.into_iter().find(|row| row.id.as_str() == id);
        let document = document.ok_or_else(|| GetError::NoSuchId { id: id.clone() })?;
        self.check_served(&document.collection)?;
        Ok(Located::Document(document))
    }

    /// Finds the document of a path among those the audience may see. No other path is named in an error.
    fn find_served(&self, documents: Vec<DocumentRow>, path: &str) -> Result<DocumentRow, EngineError> {
        let (open, closed): (Vec<_>, Vec<_>) = documents.into_iter().partition(|row| self.serves(&row.collection));
        find_document(open, path).map_err(|error| match (&error, find_document(closed, path)) {
            // Said only if nothing else has the path: otherwise the document that may be shown is meant.
            (GetError::NoSuchPath { .. }, Ok(row)) => EngineError::LocalOnly { collection: row.collection },
            _ => error.into(),
        })
    }
}

/// Finds the document of a path, which may be prefixed with the name of its collection.
fn find_document(documents: Vec<DocumentRow>, path: &str) -> Result<DocumentRow, GetError> {
    let full = |row: &DocumentRow| format!("{}/{}", row.collection, row.path);
    // As a shell completes it.
    let trimmed = path.strip_prefix("./").unwrap_or(path);
    let (mut found, others): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|row| row.path == trimmed || full(row) == trimmed);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let close = others.iter().filter(|row| row.path.ends_with(trimmed)).map(|row| row.path.clone());
            Err(GetError::NoSuchPath { path: path.to_owned(), close: close.take(MAX_CHOICES).collect() })
        }
        _ => Err(GetError::Ambiguous { path: path.to_owned(), choices: choices(&found, full) }),
    }
}

/// Returns an unambiguous name for each document: the path with its collection, or else the id.
fn choices(found: &[DocumentRow], full: impl Fn(&DocumentRow) -> String) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = found.iter().map(&full).collect();
    // With equal names, only ids tell the documents apart.
    let by_name = names.len() == found.len();
    found.iter().map(|row| if by_name { full(row) } else { row.id.to_string() }).take(MAX_CHOICES).collect()
}

async fn read_chunk(index: &Index, chunk: ChunkRow, extent: Extent) -> Result<Excerpt, EngineError> {
    let rows = index.document_chunks(&chunk.document_id).await?;
    let file = read_file(index, &chunk.collection, &chunk.path, &chunk.content_hash).await;
    let (line_start, line_end, text) = match extent {
        Extent::Passage => (chunk.line_start, chunk.line_end, chunk.text.clone()),
        Extent::Section => {
            let section = HeadingChunks::around(&rows, &chunk);
            (section.line_start(), section.line_end(), section.text(&file))
        }
        Extent::Document => {
            let whole = HeadingChunks::whole(&rows);
            // The file has front matter, and its chunks do not.
            let text = if let SourceFile::AsIndexed(text) = &file { text.clone() } else { whole.text(&file) };
            (1, whole.line_end(), text)
        }
    };
    Ok(Excerpt {
        title: chunk.title().to_owned(),
        id: Some(chunk.id),
        document_id: chunk.document_id,
        collection: chunk.collection,
        path: chunk.path,
        heading_path: if extent == Extent::Document { Vec::new() } else { chunk.heading_path },
        line_start,
        line_end,
        text,
        stale: !matches!(file, SourceFile::AsIndexed(_)),
    })
}

async fn read_page(index: &Index, document: DocumentRow, page: u32) -> Result<Excerpt, EngineError> {
    let file = read_file(index, &document.collection, &document.path, &document.content_hash).await;
    let SourceFile::AsIndexed(text) = file else { return Err(GetError::Changed { path: document.path }.into()) };
    let missing = || GetError::NoSuchPage { path: document.path.clone(), page };
    let lines = lines_of_page(&text, page).ok_or_else(missing)?;
    read_document(index, document, Some(lines)).await
}

async fn read_document(
    index: &Index,
    document: DocumentRow,
    lines: Option<(u32, u32)>,
) -> Result<Excerpt, EngineError> {
    let file = read_file(index, &document.collection, &document.path, &document.content_hash).await;
    let stale = !matches!(file, SourceFile::AsIndexed(_));
    let text = match file {
        SourceFile::AsIndexed(text) => text,
        // Lines of the file as it is now, or of the indexed text, could be other ones than were asked for.
        _ if lines.is_some() => return Err(GetError::Changed { path: document.path }.into()),
        file => HeadingChunks::whole(&index.document_chunks(&document.id).await?).text(&file),
    };
    let count = text.lines().count();
    let (line_start, line_end, text) = match lines {
        None => (1, u32::try_from(count.max(1)).unwrap_or(u32::MAX), text),
        Some((first, _)) if first as usize > count => {
            return Err(GetError::BeyondEnd { path: document.path, lines: count, wanted: first }.into());
        }
        Some((first, last)) => {
            // A range that ends past the end is cut; only one that begins there is an error.
            let last = last.min(u32::try_from(count).unwrap_or(u32::MAX));
            // Inclusive, so that the text keeps the line ends of the file.
            let wanted = text.split_inclusive('\n').skip(first as usize - 1).take((last - first) as usize + 1);
            (first, last, wanted.collect())
        }
    };
    Ok(Excerpt {
        id: None,
        document_id: document.id,
        collection: document.collection,
        path: document.path,
        title: document.title,
        heading_path: Vec::new(),
        line_start,
        line_end,
        text,
        stale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::document_address;

    #[test]
    fn selector_tells_ids_paths_and_lines_apart() {
        let parse = |text: &str| text.parse::<Selector>();
        assert_eq!(parse("4f1c09a2b7de5533"), Ok(Selector::Id("4f1c09a2b7de5533".into())));
        assert_eq!(parse("a/b.md"), Ok(Selector::Path { path: "a/b.md".into(), lines: None }));
        assert_eq!(parse("a:b.md:3-9"), Ok(Selector::Path { path: "a:b.md".into(), lines: Some((3, 9)) }));
        assert_eq!(parse("b.md:7"), Ok(Selector::Path { path: "b.md".into(), lines: Some((7, 7)) }));
        assert_eq!(parse("a b.pdf, page 7"), Ok(Selector::Page { path: "a b.pdf".into(), page: 7 }));
        assert_eq!(parse("b.md, page 7"), Ok(Selector::Path { path: "b.md, page 7".into(), lines: None }));
        for text in ["b.md:0-3", "b.md:9-3", "b.md:1-2-3", "b.md:-"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn address_of_a_proper_names_it_and_its_lines() {
        for (collection, path) in [("notes", "a b/50% #1?.md"), ("a/b", "é.md"), ("notes", "%41.md")] {
            let uri = document_address(collection, path).to_string();
            let named = |lines| Ok(Selector::Path { path: format!("{collection}/{path}"), lines });
            assert_eq!(uri.parse(), named(None));
            assert_eq!(format!("{uri}#L3-L9").parse(), named(Some((3, 9))));
            assert_eq!(format!("{uri}#L3").parse(), named(Some((3, 3))));
            for odd in ["#L0", "#L9-L3", "#top", "#"] {
                assert_eq!(format!("{uri}{odd}").parse(), named(None), "{odd}");
            }
        }
        let path = "dr://documents/%ff";
        assert_eq!(path.parse(), Ok(Selector::Path { path: path.to_owned(), lines: None }));
    }
}
