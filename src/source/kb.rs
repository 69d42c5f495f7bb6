//! The knowledge base as a source.

use std::collections::{BTreeMap, HashSet};

use futures::future::BoxFuture;

use super::{Documents, Found, Label, Lack, Passage, Place, Source, SourceError, SourceFile, Support};
use crate::base::id::{ChunkId, ContentHash, DocumentId};
use crate::base::language::Language;
use crate::base::line::{counted, cut, with_causes};
use crate::base::word::language_of;
use crate::kb::about::About;
use crate::kb::extract::{Extractable, Part, as_extracted};
use crate::kb::index::{ChunkRow, DocumentRow, Index, IndexError};
use crate::kb::links::{LinkMap, LinkedNote, Resolved};
use crate::kb::rerank::Rerank;
use crate::kb::search::query::QUOTATION_MARKS;
use crate::kb::search::{Hit, JudgedHits, Measured, SearchOptions, Searcher, Unknown, is_capitalised};
use crate::kb::structure::Heading;
use crate::kb::walk::read_inside;

/// Limits of the outline below an opened passage: heading depth, number of headings, and linked notes. The outline is
/// part of a worker's prompt and costs about a tenth of the passage.
const OUTLINE_LEVELS: u8 = 3;
const MAX_SECTIONS: usize = 12;
const MAX_LINKED: usize = 5;

/// Longest heading or title that is shown there.
const MAX_NAME_CHARACTERS: usize = 50;

/// Prepositions before the target or the tool of a task.
const LEADING: [&str; 6] = ["with", "via", "using", "into", "through", "onto"];

/// Verbs after which "to" precedes a target, as in "forward to". After others it precedes a verb.
const SENDING: [&str; 15] = [
    "connect", "copy", "deploy", "export", "forward", "log", "migrate", "move", "publish", "push", "report", "send",
    "sync", "upload", "write",
];

/// One snapshot of an index, restricted by filters.
pub(crate) struct KbSource {
    searcher: Searcher,
    options: SearchOptions,
    scope: String,
    about: Vec<String>,
    version: String,
    /// Links between notes; `None` if there are none.
    links: Option<LinkAccess>,
}

/// The links that a worker is shown, and the documents it may open by them: those it could find by a search.
struct LinkAccess {
    map: LinkMap,
    open: HashSet<DocumentId>,
}

impl KbSource {
    /// Returns a source restricted by the filters of `options`; their limit is ignored.
    pub(crate) async fn new(searcher: Searcher, options: SearchOptions, about: &About) -> Result<Self, IndexError> {
        let index = searcher.index();
        let documents = index.documents(None).await?;
        // Results depend on the text of every file, on the vectors, and on the collections that may be searched; never
        // on just a number of commits, which another index has too.
        let contents = documents.iter().map(|row| format!("{} {}\n", row.id, row.content_hash.as_str()));
        let reranked = match &searcher.rerank {
            Rerank::By(reranker) => format!(":{reranker}"),
            Rerank::Off | Rerank::Withheld(_) => String::new(),
        };
        let withheld = if searcher.withholds_vectors() { ":by words" } else { "" };
        // Debug forms will do: if one changes, results on record are not used, and searches are made again.
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
        let is_within = |row: &&DocumentRow| {
            let is_on_path = options.paths.as_ref().is_none_or(|globs| globs.is_match(&row.path));
            names.contains(&row.collection) && is_on_path
        };
        let count = documents.iter().filter(is_within).count();
        let scope = format!("{} of {}", counted(count, "file"), names.join(", "));
        let links = LinkAccess::read(&searcher, &options, documents).await?;
        let about = about.lines(&names).collect();
        Ok(Self { searcher, options, scope, about, version, links })
    }

    async fn judged(&self, query: &str, options: &SearchOptions) -> Result<JudgedHits, SourceError> {
        // Token vectors double the time of a search, which matters to a user who waits for hits, but not in a run.
        let judged = self.searcher.search_and_judge(query, options, Measured::Tokens).await;
        judged.map_err(|error| failed(&error))
    }
}

impl LinkAccess {
    async fn read(
        searcher: &Searcher,
        options: &SearchOptions,
        documents: Vec<DocumentRow>,
    ) -> Result<Option<Self>, IndexError> {
        let index = searcher.index();
        let Some(map) = LinkMap::read(index, documents).await?.filter(LinkMap::has_links) else { return Ok(None) };
        let mut open = index.chunked_documents(&options.filter).await?;
        if let Some(globs) = &options.paths {
            for LinkedNote { row, .. } in map.notes.iter().filter(|note| !globs.is_match(&note.row.path)) {
                open.remove(&row.id);
            }
        }
        Ok(Some(Self { map, open }))
    }

    /// Returns the lines that are shown below an opened passage: its document's outline, and the notes that it links to.
    /// Both list addresses for `open`.
    fn below(&self, document: &DocumentId) -> String {
        let Some(at) = self.map.position(document) else { return String::new() };
        let LinkedNote { row, structure } = &self.map.notes[at];
        let sections: Vec<_> = structure.headings.iter().filter(|heading| heading.level <= OUTLINE_LEVELS).collect();
        let shown = |heading: &&Heading| format!("{} {}", heading.line, cut(&heading.text, MAX_NAME_CHARACTERS));
        let mut lines = Vec::new();
        if sections.len() > 1 {
            let listed = listed(sections.iter().map(shown), sections.len(), MAX_SECTIONS);
            lines.push(format!("Sections by line, opened as `{}:LINE`: {listed}", self.address(row)));
        }
        // Not the notes that link to it: a worker has no use for their titles, and a much-linked page has many.
        let notes: Vec<_> = self.map.linked(at).into_iter().filter(|note| self.open.contains(&note.row.id)).collect();
        let shown = |note: &&LinkedNote| {
            format!("`{}` ({})", self.address(&note.row), cut(&note.row.title, MAX_NAME_CHARACTERS))
        };
        if !notes.is_empty() {
            lines.push(format!("Links of this page: {}", listed(notes.iter().map(shown), notes.len(), MAX_LINKED)));
        }
        let lost = self.lost_links(at);
        if !lost.is_empty() {
            let shown = lost.iter().map(|path| format!("`{}`", cut(path, MAX_NAME_CHARACTERS)));
            let listed = listed(shown, lost.len(), MAX_LINKED);
            lines.push(format!("Links of this page to notes that are not here: {listed}"));
        }
        if lines.is_empty() { String::new() } else { format!("\n\n{}", lines.join("\n")) }
    }

    /// Returns the notes that a document links to and that are not in the index, each once.
    fn lost_links(&self, at: usize) -> Vec<&str> {
        let mut lost: Vec<&str> = Vec::new();
        for (link, resolved) in self.map.outgoing(at) {
            let name = match resolved {
                Resolved::Missing { path } => path.as_deref().unwrap_or(&link.target),
                Resolved::Note(_) | Resolved::Outside => continue,
            };
            if !lost.contains(&name) {
                lost.push(name);
            }
        }
        lost
    }

    /// Returns the address by which a document is opened: its path, with its collection if another has the same path.
    fn address(&self, row: &DocumentRow) -> String {
        match self.at(&row.path) {
            Some(found) if found.id == row.id => row.path.clone(),
            _ => format!("{}/{}", row.collection, row.path),
        }
    }

    /// Finds the only document with an address among those that may be opened.
    fn at(&self, address: &str) -> Option<&DocumentRow> {
        let is_at = |row: &DocumentRow| {
            let of_collection = || address.strip_prefix(&row.collection)?.strip_prefix('/');
            row.path == address || of_collection() == Some(&row.path)
        };
        self.only(is_at)
    }

    /// Finds the only document that a link may mean by its written path, as in `../pumps/oil.md`.
    fn meant_by(&self, link: &str) -> Option<&DocumentRow> {
        let path = link.trim_start_matches("../").trim_start_matches("./");
        let end = format!("/{path}");
        self.only(|row| row.path == path || row.path.ends_with(&end))
    }

    fn only(&self, is_meant: impl Fn(&DocumentRow) -> bool) -> Option<&DocumentRow> {
        let rows = self.map.notes.iter().map(|note| &note.row);
        let mut found = rows.filter(|row| is_meant(row) && self.open.contains(&row.id));
        found.next().filter(|_| found.next().is_none())
    }
}

/// Returns entries for one line, with the number of those that it has no room for.
fn listed(entries: impl Iterator<Item = String>, count: usize, most: usize) -> String {
    let mut shown: Vec<_> = entries.take(most).collect();
    if count > most {
        shown.push(format!("{} more", count - most));
    }
    shown.join("; ")
}

impl KbSource {
    /// Finds the chunk that an id names, or an address that is shown below a passage: that at a line of a document, or
    /// its first one. Returns it with all chunks of its document.
    async fn chunk(&self, id: &str) -> Result<Option<(ChunkRow, Vec<ChunkRow>)>, IndexError> {
        let index = self.searcher.index();
        if let Ok(chunk) = id.parse::<ChunkId>() {
            let Some(chunk) = index.chunk(&chunk).await? else { return Ok(None) };
            let rows = index.document_chunks(&chunk.document_id).await?;
            return Ok(Some((chunk, rows)));
        }
        let Some(links) = &self.links else { return Ok(None) };
        let with_line = || {
            let (path, line) = id.rsplit_once(':')?;
            Some((links.at(path)?, line.parse::<u32>().ok()?))
        };
        let meant = || links.meant_by(id).map(|row| (row, 1));
        let Some((row, line)) = links.at(id).map(|row| (row, 1)).or_else(with_line).or_else(meant) else {
            return Ok(None);
        };
        let rows = index.document_chunks(&row.id).await?;
        // A line before the first chunk, such as one of the front matter, opens that chunk.
        let at = rows.iter().rposition(|chunk| chunk.line_start <= line).unwrap_or(0);
        Ok(rows.get(at).cloned().map(|chunk| (chunk, rows)))
    }
}

impl Documents for KbSource {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let missing = || SourceError::NoSuchPassage { id: id.to_owned() };
            let index = self.searcher.index();
            let (chunk, rows) = self.chunk(id).await.map_err(|error| failed(&error))?.ok_or_else(missing)?;
            let section = HeadingChunks::to_read(&rows, &chunk);
            let file = read_file(index, &chunk.collection, &chunk.path, &chunk.content_hash).await;
            let text = section.text(&file);
            let below = self.links.as_ref().map(|links| links.below(&chunk.document_id)).unwrap_or_default();
            Ok(Passage {
                id: id.to_owned(),
                label: Label::Internal,
                snippet: format!("{text}{below}"),
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

    fn has_links(&self) -> bool {
        self.links.is_some()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            // A passage that repeats a better one would take the place of another.
            let options = SearchOptions { limit, distinct: true, ..self.options.clone() };
            let mut judged = self.judged(query, &options).await?;
            let mut notes = Vec::new();
            // A message of a program that is pasted into a question may be worded a little otherwise in the files, and a
            // note on special files may say what a "special file" is.
            if query.contains(QUOTATION_MARKS) && judged.support != Support::Strong {
                let loose = self.judged(&query.replace(QUOTATION_MARKS, " "), &options).await?;
                let is_empty = judged.found.hits.is_empty();
                if is_empty {
                    let note = "no file has the quoted words in that order; they were searched for one by one";
                    notes.push(note.to_owned());
                }
                if is_empty || loose.support > judged.support {
                    judged = loose;
                }
            }
            let missing: Vec<_> = judged.unknown.iter().filter(|unknown| unknown.is_missing()).collect();
            // Other languages write other words with a capital, too.
            let is_english = language_of(query).is_none_or(Language::is_english);
            // "gp3" is one in any language, and neither "3rd" nor "404".
            let is_code = |word: &str| {
                word.starts_with(char::is_alphabetic) && word.contains(|letter: char| letter.is_ascii_digit())
            };
            let is_name =
                |unknown: &Unknown| is_code(&unknown.word) || is_english && is_capitalised(query, &unknown.word);
            let lack = |unknown: &Unknown| match () {
                () if is_name(unknown) => Lack::Name,
                () if is_target(query, &unknown.word) => Lack::Target,
                () => Lack::Word,
            };
            let lacks = missing.iter().map(|unknown| lack(unknown)).max().unwrap_or_default();
            let missing = missing.iter().map(|unknown| unknown.word.clone()).collect();
            let (unknown, doubts) = (judged.said(judged.support), judged.said(Support::Weak));
            let JudgedHits { found, support, odds, names, is_of_others, corrected, .. } = judged;
            let without_vectors = found.without_vectors.iter().map(|reason| format!("{reason}; {}", reason.hint()));
            notes.extend(without_vectors.chain(found.not_reranked));
            let is_reranked = found.hits.iter().any(|hit| hit.explain.relevance.is_some());
            let passages = found.hits.into_iter().map(Passage::from).collect();
            Ok(Found {
                passages,
                support,
                odds,
                notes,
                is_reranked,
                unknown,
                doubts,
                lacks,
                missing,
                names,
                is_of_others,
                corrected,
                addresses: BTreeMap::new(),
            })
        })
    }
}

/// Returns whether a word of a question for steps is the target or the tool of the task.
fn is_target(query: &str, word: &str) -> bool {
    let words: Vec<_> = query.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_word = |other: &str| other.to_lowercase() == word.to_lowercase();
    let sends = words.iter().any(|word| SENDING.contains(&word.to_lowercase().as_str()));
    let leads = |word: &str| LEADING.contains(&word) || (word == "to" && sends);
    let is_led = |pair: &[&str]| leads(&pair[0].to_lowercase()) && is_word(pair[1]);
    words.first().is_some_and(|first| first.eq_ignore_ascii_case("how")) && words.windows(2).any(is_led)
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

/// The chunks under the heading of one.
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

    /// Returns what to open for a chunk that was shown: its section or, if the chunk is the whole section, the chunk and
    /// what follows it under the parent heading.
    fn to_read(rows: &'a [ChunkRow], chunk: &ChunkRow) -> Self {
        let section = Self::around(rows, chunk);
        let place = rows.iter().position(|row| row.id == chunk.id).unwrap_or(0);
        if section.rows.len() > 1 {
            return section;
        }
        let above = &chunk.heading_path[..chunk.heading_path.len().saturating_sub(1)];
        let after = rows[place..].iter().take_while(|row| row.heading_path.starts_with(above)).count();
        Self { rows: &rows[place..place + after] }
    }

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

/// Reads the file behind a place, if it is unchanged since it was indexed; `None` for a place that is no file.
pub(crate) async fn read_place(index: &Index, place: &Place) -> Option<SourceFile> {
    match place {
        Place::Kb { collection, path, content_hash, .. } => {
            Some(read_file(index, collection, path, content_hash).await)
        }
        Place::Web { .. } | Place::Mcp { .. } => None,
    }
}

/// Reads the file behind a passage, if it is unchanged since it was indexed.
///
/// The text of a PDF or HTML file is put together from its chunks, which have all of it: extracting it again would take
/// seconds and yield the same.
pub(crate) async fn read_file(index: &Index, collection: &str, path: &str, indexed: &ContentHash) -> SourceFile {
    let Some(root) = index.root(collection) else { return SourceFile::Gone };
    let mut extracted = None;
    if Extractable::of(path).is_some() {
        let Ok(rows) = index.document_chunks(&DocumentId::new(collection, path)).await else { return SourceFile::Gone };
        extracted = Some(text_of(&rows));
    }
    let (path, indexed) = (path.to_owned(), indexed.clone());
    let read = move || match read_inside(&root, &path) {
        Ok(bytes) if ContentHash::of(&bytes) == indexed => match extracted {
            Some(text) => SourceFile::AsIndexed(text),
            None => String::from_utf8(bytes).map_or(SourceFile::Changed, SourceFile::AsIndexed),
        },
        Ok(_) => SourceFile::Changed,
        Err(_) => SourceFile::Gone,
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(SourceFile::Gone)
}

/// Returns the extracted text of a document.
fn text_of(rows: &[ChunkRow]) -> String {
    as_extracted(rows.iter().map(|row| Part {
        byte_start: row.byte_start,
        line_start: row.line_start,
        line_end: row.line_end,
        text: &row.text,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::kb::embed::Embedder;
    use crate::kb::extract::Include;
    use crate::kb::index::IndexLocation;
    use crate::kb::ingest::tests::HashEmbedder;
    use crate::kb::ingest::{CollectionSource, IngestOptions, ingest};
    use crate::kb::search::{Scope, SearchMode};

    /// Indexes files (`collection/path` and text) and returns their folder and what a scope of them is.
    async fn source(files: &[(&str, &str)], scope: &Scope) -> (tempfile::TempDir, KbSource) {
        let folder = tempfile::tempdir().unwrap();
        let mut sources: Vec<CollectionSource> = Vec::new();
        for (path, text) in files {
            let name = path.split('/').next().unwrap().to_owned();
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
            let root = folder.path().join(&name);
            if !sources.iter().any(|source| source.name == name) {
                sources.push(CollectionSource { name, root, include: Include::default() });
            }
        }
        let location = IndexLocation::in_folder(folder.path());
        let embedder: Arc<dyn Embedder> = Arc::new(HashEmbedder);
        let options = IngestOptions { sources, ..IngestOptions::default() };
        ingest(&location, &embedder, "hash", &options, &|_| {}, &CancellationToken::new()).await.unwrap();
        let searcher = Searcher::new(Index::open(&location).await.unwrap(), Ok(embedder));
        let options = SearchOptions { mode: SearchMode::Lexical, ..scope.options().unwrap() };
        (folder, KbSource::new(searcher, options, &About::default()).await.unwrap())
    }

    fn of(collections: &[&str]) -> Scope {
        Scope { collections: collections.iter().map(|&name| name.to_owned()).collect(), ..Scope::default() }
    }

    const GARDEN: &str = "# Garden\n\nSee [[Water]], [[Secret]] and [[Nothing]].\n\n## Beds\n\nThere are nine beds.\n";
    const WATER: &str = "# Water\n\nValves open at six.\n\n## Pump\n\nThe pump is a Kestrel.\n";

    /// Returns the lines below the text of a passage.
    fn below(passage: &Passage) -> &str {
        passage.snippet.strip_prefix(&passage.text).unwrap().trim_start()
    }

    #[test]
    fn target_of_a_task_is_what_stands_after_a_preposition() {
        assert!(is_target("How do I forward errors to syslog?", "syslog"));
        assert!(!is_target("How do I get the boiler to preheat?", "preheat"));
        assert!(!is_target("How do I wipe the list?", "wipe") && !is_target("What goes to syslog?", "syslog"));
    }

    #[tokio::test]
    async fn opened_note_has_its_outline_and_links_below_which_open_in_turn() {
        let files =
            [("a/garden.md", GARDEN), ("a/sub/water.md", WATER), ("a/secret.md", "---\ntags: [x]\n---\nHush.\n")];
        let (_folder, source) = source(&files, &of(&["a"])).await;
        assert!(source.has_links());
        let hit = source.search("nine beds", 1).await.unwrap().passages.remove(0);
        let garden = source.open(&hit.id).await.unwrap();
        assert_eq!(
            below(&garden),
            "Sections by line, opened as `garden.md:LINE`: 1 Garden; 5 Beds\n\
             Links of this page: `sub/water.md` (Water); `secret.md` (secret)\n\
             Links of this page to notes that are not here: `Nothing`"
        );
        let water = source.open("sub/water.md").await.unwrap();
        assert_eq!(water.text.trim_end(), WATER.trim_end());
        assert_eq!(
            below(&water),
            "Sections by line, opened as `sub/water.md:LINE`: 1 Water; 5 Pump",
            "the notes that link to it are left out"
        );
        let pump = source.open("sub/water.md:6").await.unwrap();
        assert!(pump.text.contains("The pump is a Kestrel."), "{}", pump.text);
        assert_eq!(pump.place.for_people().split(':').next(), Some("sub/water.md"));
        for written in ["water.md", "../sub/water.md", "./water.md"] {
            assert_eq!(source.open(written).await.unwrap().text, water.text, "a link is opened as it is written");
        }
        for unknown in ["nothing.md", "sub/water.md:x", "../a/garden.md", "", ":1", "0000000000000000"] {
            let error = source.open(unknown).await.unwrap_err();
            assert_eq!(error, SourceError::NoSuchPassage { id: unknown.to_owned() });
        }
    }

    #[tokio::test]
    async fn passage_that_is_all_of_its_section_is_opened_with_what_follows_below_the_heading_above() {
        let about = |word: &str| format!("A {word} of the garden is closed at night by its old keeper.");
        let text = format!(
            "# Garden\n\n## Gates\n\n### Oak\n\n{}\n\n### Elm\n\n{}\n\n## Ponds\n\n{}\n",
            about("gate"),
            about("door"),
            about("pond")
        );
        let (_folder, source) = source(&[("a/garden.md", &text)], &of(&["a"])).await;
        let hit = source.search("gate", 1).await.unwrap().passages.remove(0);
        assert!(!hit.text.contains("door"), "{hit:?}");
        let opened = source.open(&hit.id).await.unwrap().text;
        assert!(opened.starts_with(hit.text.trim()) && opened.contains("door") && !opened.contains("pond"), "{opened}");
    }

    #[tokio::test]
    async fn note_that_the_run_may_not_search_is_neither_shown_nor_opened() {
        let files = [
            ("a/garden.md", GARDEN),
            ("a/sub/water.md", WATER),
            ("a/secret.md", "---\ntags: [x]\ndate: 2020-01-01\n---\nHush, [[Garden]].\n"),
            ("b/other.md", "Other, [[Garden]].\n"),
        ];
        let since = Some("2019-01-01".to_owned());
        for scope in [
            Scope { paths: vec!["*.md".into(), "sub/*".into()], tags: vec!["x".into()], ..of(&["a"]) },
            Scope { paths: vec!["secret.md".into()], ..Scope::default() },
            Scope { since, ..of(&["a"]) },
        ] {
            let (_folder, source) = source(&files, &scope).await;
            let secret = source.open("secret.md").await.unwrap();
            assert_eq!((secret.text.trim(), below(&secret)), ("Hush, [[Garden]].", ""), "{scope:?}");
            for closed in ["garden.md", "a/garden.md", "sub/water.md:1", "other.md", "b/other.md"] {
                assert!(source.open(closed).await.is_err(), "{closed} {scope:?}");
            }
        }
        let (_folder, source) = source(&files, &Scope { paths: vec!["secret.md".into()], ..Scope::default() }).await;
        assert_eq!(source.scope(), "1 file of a, b");
    }

    #[tokio::test]
    async fn path_of_two_collections_is_opened_by_both_names() {
        let files = [("a/x.md", "One of a, [[y]].\n"), ("b/x.md", "One of b.\n"), ("a/y.md", "Two, [[x]].\n")];
        let (_folder, source) = source(&files, &Scope::default()).await;
        assert_eq!(below(&source.open("y.md").await.unwrap()), "Links of this page: `a/x.md` (x)");
        assert_eq!(source.open("b/x.md").await.unwrap().text.trim(), "One of b.");
        assert!(source.open("x.md").await.is_err(), "it would be either");
    }

    #[tokio::test]
    async fn quoted_words_that_no_note_has_in_that_order_are_searched_one_by_one() {
        let (_folder, source) = source(&[("a/garden.md", GARDEN), ("a/water.md", WATER)], &Scope::default()).await;
        let found = source.search("Why does it say \"the Kestrel pump\"?", 1).await.unwrap();
        assert!(found.passages[0].text.contains("The pump is a Kestrel."), "{found:?}");
        assert!(found.notes[0].starts_with("no file has the quoted words in that order"), "{:?}", found.notes);
        let found = source.search("Why does it say \"a Kestrel\"?", 1).await.unwrap();
        assert!(found.passages.len() == 1 && found.notes.is_empty(), "{found:?}");
    }

    #[tokio::test]
    async fn note_that_answers_without_the_quoted_words_is_found_if_those_that_have_them_do_not() {
        let files = [
            ("a/1.md", "# Fair\n\nAnn told us of a hand pump.\n"),
            ("a/2.md", "# Rust\n\nRust keeps hand pumps from lifting the water of the well in winter.\n"),
        ];
        let (_folder, source) = source(&files, &Scope::default()).await;
        let question = "What keeps a \"hand pump\" from lifting the water of the well in winter?";
        let found = source.search(question, 1).await.unwrap();
        assert!(found.passages[0].text.contains("Rust keeps") && found.notes.is_empty(), "{found:?}");
    }

    #[tokio::test]
    async fn passage_that_repeats_another_leaves_room_for_the_next() {
        let files = [("a/1.md", WATER), ("a/2.md", WATER), ("a/3.md", "# Pumps\n\nA pump has a seal.\n")];
        let (_folder, source) = source(&files, &Scope::default()).await;
        let found = source.search("Kestrel pump", 2).await.unwrap().passages;
        let texts: Vec<_> = found.iter().map(|passage| passage.text.trim()).collect();
        assert!(texts[0].contains("Kestrel") && texts[1].contains("A pump has a seal."), "{texts:?}");
    }

    #[tokio::test]
    async fn notes_without_links_are_shown_as_they_are() {
        let (_folder, source) = source(&[("a/x.md", WATER)], &Scope::default()).await;
        let hit = source.search("Kestrel", 1).await.unwrap().passages.remove(0);
        let opened = source.open(&hit.id).await.unwrap();
        assert!(!source.has_links() && opened.snippet == opened.text);
        assert!(source.open("x.md").await.is_err());
    }
}
