//! Kills a writer at every step: the index left behind must be searchable, and the next run must complete it.

use std::fs;

use super::*;
use crate::base::token::CountTokens;
use crate::kb::index::Index;
use crate::kb::index::STEPS_LEFT;
use crate::kb::search::{SearchMode, SearchOptions, Searcher};

/// An embedder that hashes the text: nothing to load, and identical on every machine.
pub(crate) struct HashEmbedder;

impl CountTokens for HashEmbedder {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }
}

impl Embedder for HashEmbedder {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn fingerprint(&self) -> &'static str {
        "hash/1"
    }

    fn dimension(&self) -> usize {
        8
    }

    fn max_tokens(&self) -> usize {
        32
    }

    fn tokens(&self) -> &dyn CountTokens {
        self
    }

    fn embed_passages(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        texts.iter().map(|text| self.embed_query(text)).collect()
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let hash = blake3::hash(text.as_bytes());
        let values: Vec<f32> = hash.as_bytes()[..8].iter().map(|byte| f32::from(*byte) + 1.0).collect();
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        Ok(values.into_iter().map(|value| value / length).collect())
    }
}

/// A folder of notes and its index.
struct World {
    folder: tempfile::TempDir,
    embedder: Arc<dyn Embedder>,
}

/// The fields of a chunk that do not depend on the history of the index, and whether it has a vector.
#[derive(Debug, PartialEq)]
struct ChunkState {
    row: ChunkRow,
    has_vector: bool,
}

/// Everything that must be identical however often a run was killed.
#[derive(Debug, PartialEq)]
struct State {
    documents: Vec<DocumentRow>,
    structures: Vec<Structure>,
    chunks: Vec<ChunkState>,
    collections: BTreeMap<String, String>,
    vectors_missing: usize,
    unindexed_text_rows: usize,
}

impl World {
    /// Creates four notes, and one in another folder, with modification times old enough to be trusted.
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap(), embedder: Arc::new(HashEmbedder) };
        fs::create_dir_all(world.notes().join("sub")).unwrap();
        for name in ["a.md", "b.md", "c.md", "sub/d.md"] {
            world.write(1, name, &note(name, "first"));
        }
        fs::create_dir(world.folder.path().join("private")).unwrap();
        world.write(1, "../private/p.md", &note("p.md", "first"));
        world
    }

    fn notes(&self) -> PathBuf {
        self.folder.path().join("notes")
    }

    fn location(&self) -> IndexLocation {
        IndexLocation::in_folder(self.folder.path())
    }

    fn write(&self, day: u32, name: &str, text: &str) {
        let path = self.notes().join(name);
        fs::write(&path, text).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_hours(24) * day;
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }

    /// Changes, renames, removes and adds a note.
    fn edit(&self) {
        self.write(2, "a.md", &note("a.md", "second"));
        fs::rename(self.notes().join("b.md"), self.notes().join("sub/e.md")).unwrap();
        fs::remove_file(self.notes().join("c.md")).unwrap();
        self.write(2, "f.md", &note("f.md", "first"));
    }

    /// Runs an ingest of the notes and `options.sources`, whose roots are relative, for at most `steps` steps; `None`
    /// for no limit.
    async fn ingest(&self, options: &IngestOptions, steps: Option<usize>) -> Result<IngestSummary, IngestError> {
        let source = CollectionSource { name: "notes".into(), root: self.notes(), include: Include::default() };
        let others = options.sources.iter();
        let others =
            others.map(|other| CollectionSource { root: self.folder.path().join(&other.root), ..other.clone() });
        let options = IngestOptions { sources: std::iter::once(source).chain(others).collect(), ..options.clone() };
        STEPS_LEFT.set(steps);
        let cancel = CancellationToken::new();
        let result = ingest(&self.location(), &self.embedder, "hash", &options, &|_| {}, &cancel).await;
        STEPS_LEFT.set(None);
        result
    }

    /// Asserts that every document in the index is complete, or that there is no index.
    async fn assert_answers(&self, at: usize) {
        let index = match Index::open(&self.location()).await {
            Ok(index) => index,
            Err(IndexError::Missing { .. }) => return,
            Err(error) => panic!("stopped after {at} steps, the index does not open: {error:?}"),
        };
        let has_chunks = index.stats().await.unwrap().chunks > 0;
        for row in index.documents(None).await.unwrap() {
            let is_named = index.manifest().collections.contains_key(&row.collection);
            assert!(is_named, "stopped after {at} steps, {} is of no collection", row.path);
        }
        let searcher = Searcher::new(index, Ok(Arc::clone(&self.embedder)));
        for mode in [SearchMode::Lexical, SearchMode::Hybrid] {
            let options = SearchOptions { mode, ..SearchOptions::default() };
            let found = searcher.search("opening first second closing", &options).await;
            let hits = found.unwrap_or_else(|error| panic!("stopped after {at} steps, {mode:?} fails: {error:?}")).hits;
            assert_eq!(!hits.is_empty(), has_chunks, "stopped after {at} steps, {mode:?} finds what is committed");
            for hit in hits {
                let chunks = searcher.index().document_chunks(&hit.document_id).await.unwrap();
                let text: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
                let is_whole = text.contains("opening") && text.contains("closing");
                assert!(is_whole, "stopped after {at} steps, half of {} is there: {text}", hit.path);
                let of_one_time = text.contains("first") != text.contains("second");
                assert!(of_one_time, "stopped after {at} steps, {} is a mixture: {text}", hit.path);
            }
        }
    }

    async fn state(&self) -> State {
        let index = Index::open(&self.location()).await.unwrap();
        let mut documents = index.documents(None).await.unwrap();
        documents.sort_by(|a, b| a.path.cmp(&b.path));
        let ids: Vec<_> = documents.iter().map(|row| row.id.clone()).collect();
        let mut structures = index.structures(None).await.unwrap().unwrap();
        let structures = ids.iter().map(|id| structures.remove(id).unwrap()).collect();
        let vectors = index.vectors_by_key(&ids).await.unwrap();
        let mut chunks = Vec::new();
        for id in &ids {
            for row in index.document_chunks(id).await.unwrap() {
                let vector = row.embed_key.as_ref().and_then(|key| vectors.get(key));
                if let Some(vector) = vector {
                    assert_eq!(*vector, self.embedder.embed_query(&text_to_embed(&row)).unwrap(), "{}", row.path);
                }
                chunks.push(ChunkState { has_vector: vector.is_some(), row });
            }
        }
        let stats = index.stats().await.unwrap();
        assert_eq!(stats.chunks, chunks.len(), "every chunk belongs to a document, once");
        State {
            documents,
            structures,
            chunks,
            collections: index.manifest().collections.clone(),
            vectors_missing: stats.vectors_missing,
            unindexed_text_rows: stats.unindexed_text_rows,
        }
    }
}

#[test]
fn file_that_introduces_its_folder_or_logs_its_changes_is_named_by_it() {
    let named = |path: &str| super::file_names(path).map(str::to_owned).collect::<Vec<_>>().join(", ");
    assert_eq!(
        ["a/pump.md", "pump/README.md", "a/pump/index.md", "README.md", "pump/CHANGELOG.md", "a/HTTP.md"].map(named),
        ["pump", "pump", "pump", "README", "pump, CHANGELOG", "HTTP"]
    );
}

fn note(name: &str, time: &str) -> String {
    let long = |part: &str| format!("This {part} of {name} was written the {time} time. ").repeat(5);
    let (beginning, end) = (long("beginning"), long("end"));
    format!("# Note {name}\n\nThe opening. {beginning}\n\n## More\n\n[[The {time} link]] {end}\n\nThe closing.\n")
}

/// Changes to the world before the killed run.
type Preparation = fn(&World);

/// Kills a run at its first step, its second, and so on until one completes, which has no fewer steps than `fewest`.
///
/// With `first`, a run with those options succeeds before `prepare` changes the folder.
async fn survives(fewest: usize, first: Option<&IngestOptions>, prepare: Preparation, options: &IngestOptions) {
    let build = async || {
        let world = World::new();
        if let Some(first) = first {
            world.ingest(first, None).await.unwrap();
        }
        prepare(&world);
        world
    };
    let undisturbed = build().await;
    undisturbed.ingest(options, None).await.unwrap();
    let mut expected = undisturbed.state().await;
    assert_eq!(expected.unindexed_text_rows, 0);

    for steps in 0.. {
        let world = build().await;
        let stopped = world.ingest(options, Some(steps)).await;
        world.assert_answers(steps).await;
        match stopped {
            Ok(_) => return assert!(steps >= fewest, "{steps} steps"),
            Err(IngestError::Index(IndexError::Stopped { .. })) => {}
            Err(error) => panic!("stopped after {steps} steps, the run fails otherwise: {error:?}"),
        }
        // A killed rebuild need not be repeated: an ordinary run must be enough.
        let finish = IngestOptions { rebuild: Rebuild::No, ..options.clone() };
        let finished = world.ingest(&finish, None).await;
        finished.unwrap_or_else(|error| panic!("stopped after {steps} steps, the next run fails: {error:?}"));
        let state = world.state().await;
        // The absolute folders differ, the relative one does not.
        expected.collections.clone_from(&undisturbed.state().await.collections);
        assert_eq!(state, expected, "stopped after {steps} steps");
    }
    unreachable!("a run has fewer steps than there are numbers")
}

fn nothing(_: &World) {}

/// The options of a run that indexes the private folder, too.
fn with_private() -> IngestOptions {
    let private = CollectionSource { name: "private".into(), root: "private".into(), include: Include::default() };
    IngestOptions { sources: vec![private], ..text() }
}

fn text() -> IngestOptions {
    IngestOptions::default()
}

fn vectors() -> IngestOptions {
    IngestOptions { embed: true, ..text() }
}

#[tokio::test]
async fn fresh_index_killed_at_any_step_is_finished_by_the_next_run() {
    survives(8, None, nothing, &text()).await;
}

#[tokio::test]
async fn update_killed_at_any_step_is_finished_by_the_next_run() {
    survives(6, Some(&vectors()), World::edit, &vectors()).await;
}

#[tokio::test]
async fn pause_ends_embedding_after_a_commit_of_vectors_and_nothing_else() {
    let world = World::new();
    let section = |number: usize| format!("## Section {number}\n\n{}\n\n", format!("word{number} ").repeat(200));
    world.write(1, "long.md", &(0..VECTORS_PER_COMMIT + 100).map(section).collect::<String>());
    let paused = vectors();
    paused.pause.cancel();
    let summary = world.ingest(&paused, None).await.unwrap();
    assert_eq!((summary.added, summary.embedded, summary.interrupted), (5, VECTORS_PER_COMMIT, false));
    assert!(summary.vectors_missing >= 100, "{summary:?}");
    let rest = world.ingest(&vectors(), None).await.unwrap();
    assert_eq!((rest.embedded, rest.vectors_missing), (summary.vectors_missing, 0));
}

#[tokio::test]
async fn rebuild_killed_at_any_step_leaves_the_old_index_or_the_new_one() {
    let rebuild = IngestOptions { rebuild: Rebuild::All, ..vectors() };
    survives(8, Some(&vectors()), nothing, &rebuild).await;
}

#[tokio::test]
async fn reader_of_an_index_that_is_rebuilt_goes_on_with_the_old_one() {
    let world = World::new();
    world.ingest(&vectors(), None).await.unwrap();
    let searcher = Searcher::new(Index::open(&world.location()).await.unwrap(), Ok(Arc::clone(&world.embedder)));
    world.edit();
    world.ingest(&IngestOptions { rebuild: Rebuild::All, ..vectors() }, None).await.unwrap();
    world.ingest(&vectors(), None).await.unwrap();
    let found = searcher.search("opening first closing", &SearchOptions::default()).await.unwrap();
    assert!(found.hits.iter().any(|hit| hit.path == "c.md"), "it is removed since");
}

#[tokio::test]
async fn embedding_killed_at_any_step_is_finished_by_the_next_run() {
    survives(1, Some(&text()), nothing, &vectors()).await;
}

#[tokio::test]
async fn fresh_index_with_vectors_killed_at_any_step_is_finished_by_the_next_run() {
    survives(9, None, nothing, &vectors()).await;
}

#[tokio::test]
async fn forgetting_killed_at_any_step_leaves_no_text_of_an_unknown_collection() {
    let forget = IngestOptions { forget: vec!["private".into()], ..vectors() };
    survives(5, Some(&with_private()), nothing, &forget).await;
}

#[tokio::test]
async fn text_of_a_collection_that_the_manifest_does_not_name_is_removed_before_anything_is_embedded() {
    let world = World::new();
    world.ingest(&with_private(), None).await.unwrap();
    // As an earlier version left it.
    let mut writer = IndexWriter::open(&world.location(), &manifest(&world.embedder, "hash"), &[]).await.unwrap();
    let mut named = writer.index().manifest().clone();
    named.collections.remove("private").unwrap();
    writer.save_manifest(named).await.unwrap();
    drop(writer);
    let summary = world.ingest(&vectors(), None).await.unwrap();
    let State { documents, chunks, .. } = world.state().await;
    assert_eq!((documents.len(), summary.removed, summary.embedded), (4, 1, chunks.len()));
}

#[test]
fn files_below_a_folder_that_cannot_be_read_are_not_gone() {
    let unread = |folder| HashSet::from([Path::new(folder)]);
    for path in ["sub/d.md", "sub/deeper/e.md", "sub"] {
        assert!(is_unread(path, &unread("sub")) && is_unread(path, &unread("")), "{path}");
    }
    for path in ["a.md", "subway.md", "other/sub/d.md"] {
        assert!(!is_unread(path, &unread("sub")) && !is_unread(path, &HashSet::new()), "{path}");
    }
}

#[test]
fn an_earlier_version_is_upgraded_and_a_later_one_is_left_alone() {
    let embedder: Arc<dyn Embedder> = Arc::new(HashEmbedder);
    let wanted = |text_index: &str| {
        let stored = Manifest { text_index: text_index.to_owned(), ..manifest(&embedder, "hash") };
        upgrade(&stored, &embedder)
    };
    assert_eq!([wanted("icu-split/x"), wanted("terms/positions/3")], [Rebuild::Text, Rebuild::Text]);
    assert_eq!(
        [wanted(TEXT_INDEX_VERSION), wanted("terms/positions/999"), wanted("else")],
        [Rebuild::No, Rebuild::No, Rebuild::No]
    );
}

#[tokio::test]
async fn links_follow_what_happens_to_their_files() {
    let world = World::new();
    world.ingest(&text(), None).await.unwrap();
    let links = async || {
        let index = Index::open(&world.location()).await.unwrap();
        let structures = index.structures(None).await.unwrap().unwrap();
        let documents = index.documents(None).await.unwrap();
        assert_eq!(structures.len(), documents.len());
        let link = |row: &DocumentRow| format!("{} {}", row.path, structures[&row.id].links[0].target);
        let mut links: Vec<_> = documents.iter().map(link).collect();
        links.sort();
        links
    };
    let first = ["a.md The first link", "b.md The first link", "c.md The first link", "sub/d.md The first link"];
    assert_eq!(links().await, first);

    // The same content with another time: the row is rewritten, but its links are not read again.
    for name in ["a.md", "b.md"] {
        world.write(3, name, &note(name, "first"));
    }
    let summary = world.ingest(&text(), None).await.unwrap();
    assert_eq!((summary.unchanged, summary.chunks), (4, 0));
    assert_eq!(links().await, first);

    world.edit();
    world.ingest(&text(), None).await.unwrap();
    assert_eq!(
        links().await,
        ["a.md The second link", "f.md The first link", "sub/d.md The first link", "sub/e.md The first link"]
    );
    let forget = IngestOptions { forget: vec!["notes".into()], ..text() };
    let cancel = CancellationToken::new();
    ingest(&world.location(), &world.embedder, "hash", &forget, &|_| {}, &cancel).await.unwrap();
    assert_eq!(links().await, [""; 0]);
}

/// Indexes the notes of a world as a collection of an index on an object store.
async fn fill(location: &IndexLocation, name: &str, world: &World) -> Result<IngestSummary, IngestError> {
    let source = CollectionSource { name: name.into(), root: world.notes(), include: Include::default() };
    let options = IngestOptions { sources: vec![source], embed: true, ..IngestOptions::default() };
    ingest(location, &world.embedder, "hash", &options, &|_| {}, &CancellationToken::new()).await
}

#[tokio::test]
async fn writers_that_create_and_fill_one_index_on_a_store_at_once_lose_nothing() {
    let location = IndexLocation::Remote { uri: "shared-memory://at-once/index".into(), local: None };
    let names = ["ann", "bob", "cal", "dan"];
    let worlds = names.map(|_| World::new());
    let at_once = async || {
        let runs = names.iter().zip(&worlds).map(|(name, world)| fill(&location, name, world));
        for run in futures::future::join_all(runs).await {
            run.unwrap();
        }
    };
    let complete = async || {
        let index = Index::open(&location).await.unwrap();
        assert_eq!(index.manifest().collections.keys().collect::<Vec<_>>(), names);
        for name in names {
            let documents = index.documents(Some(name)).await.unwrap();
            assert_eq!(documents.len(), 4, "{name}");
            for row in documents {
                let chunks = index.document_chunks(&row.id).await.unwrap();
                assert_eq!(chunks.len(), row.chunks as usize, "{name}: {}", row.path);
            }
        }
        assert_eq!(index.stats().await.unwrap().vectors_missing, 0);
        assert_eq!(index.manifest().languages.values().sum::<u32>(), 16, "each document was counted");
    };
    at_once().await;
    complete().await;
    for (name, world) in names.iter().zip(&worlds) {
        let again = fill(&location, name, world).await.unwrap();
        assert_eq!((again.unchanged, again.has_changes()), (4, false), "{name}");
        world.edit();
    }
    at_once().await;
    let index = Index::open(&location).await.unwrap();
    assert_eq!(index.documents(None).await.unwrap().len(), 16);
    assert_eq!(index.stats().await.unwrap().vectors_missing, 0);
}

#[tokio::test]
async fn collection_on_a_store_has_one_writer_at_a_time() {
    let location = IndexLocation::Remote { uri: "shared-memory://one-writer/index".into(), local: None };
    let worlds = [World::new(), World::new()];
    let wanted = manifest(&worlds[0].embedder, "hash");
    let mut writer = IndexWriter::open(&location, &wanted, &["kb".into()]).await.unwrap();
    writer.begin().await;
    let error = fill(&location, "kb", &worlds[0]).await.unwrap_err();
    assert!(error.to_string().starts_with("collection `kb` is being written by process"), "{error}");
    fill(&location, "another", &worlds[1]).await.expect("another collection is not held");
    writer.close().await;
    fill(&location, "kb", &worlds[0]).await.expect("the lease was released");
    let other = fill(&location, "kb", &worlds[1]).await.unwrap_err();
    assert!(matches!(other, IngestError::OtherRoot { .. }), "{other}");
    fill(&location, "kb", &worlds[0]).await.expect("a run that fails releases the lease, too");
}
