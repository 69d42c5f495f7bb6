//! Checks the citations of a saved report again: against the files as they are now and, if asked, the pages.
//!
//! ```text
//! report as JSON ─┐                         ┌─▶ file as it is ─▶ unchanged, moved, changed, gone
//! note ───────────┼─▶ citations ─▶ place ───┤
//! run ────────────┘                         └─▶ page as it is
//! ```
//!
//! A report is data, and may be forged. Its paths are read only inside the folder of their collection. Of the user's
//! files only the report itself is written, with corrected places; a check of pages writes their cache and the record
//! of the run.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::error::verify::VerifyError;
use super::setup::PAGES;
use super::{Engine, EngineError};
use crate::base::bounded::{caught, within_async};
use crate::base::clock::SystemClock;
use crate::base::file::{read_text, replace_text};
use crate::base::id::{ContentHash, NodeId, RunId};
use crate::base::line::{counted, with_causes};
use crate::base::outbound::{MayLeave, Outbound, Voucher};
use crate::kb::document::Document;
use crate::kb::extract::{Extractable, Include};
use crate::kb::index::{DocumentRow, IndexError, leads_out_of};
use crate::kb::walk::{read_inside, walk};
use crate::render::saved::{Citation, CitedPlace, MAX_SAVED_BYTES, SavedReport};
use crate::research::branch::Branch;
use crate::research::evidence::{EvidenceId, line_range};
use crate::research::folded::{FoldedText, Lines};
use crate::run::egress::{Egress, OWN_SITE, OutgoingText};
use crate::run::journal::EgressKind;
use crate::run::store::StoreError;
use crate::source::web::{DateRange, WebAccess, WebUrl};

/// Maximum number of pages that are fetched for one report.
const MAX_PAGES: usize = 200;

/// Longest time that the files of one report may take. Reports of thousands of citations take a second.
const MAX_TIME: Duration = Duration::from_mins(2);

/// A page has no lines that a citation names.
const ANYWHERE: Lines = Lines { first: 1, last: u32::MAX };

/// A request to check a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerifyRequest {
    /// A saved report or note, or the id of a run or a prefix of it.
    pub(crate) report: String,
    /// The folder that the paths of the report are relative to, instead of those of their collections.
    pub(crate) folder: Option<PathBuf>,
    /// Whether pages are fetched.
    pub(crate) online: bool,
    /// Whether moved places are written into the report.
    pub(crate) update: bool,
}

/// A report whose citations were checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VerifiedReport {
    pub(crate) report: String,
    pub(crate) run_id: Option<String>,
    /// Whether every citation that was checked holds.
    pub(crate) holds: bool,
    /// Whether corrected places were written into the report.
    pub(crate) updated: bool,
    pub(crate) counts: Counts,
    pub(crate) citations: Vec<VerifiedCitation>,
    /// Why the index was not compared, if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index_problem: Option<String>,
    /// Addresses that were fetched and not recorded, because the run of the report is not stored here. Left out of the
    /// JSON, which has every citation.
    #[serde(skip)]
    pub(crate) unrecorded: Vec<String>,
}

/// Number of citations by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) unchanged: usize,
    pub(crate) moved: usize,
    pub(crate) changed: usize,
    pub(crate) gone: usize,
    pub(crate) unreadable: usize,
    pub(crate) not_checked: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct VerifiedCitation {
    /// Id of the evidence within its report.
    pub(crate) id: String,
    pub(crate) quote: String,
    pub(crate) source: CitedPlace,
    #[serde(flatten)]
    pub(crate) state: CitationState,
    /// Whether the file is not the one that the index has; `None` for a page, without an index, and for a file that the
    /// index does not have.
    pub(crate) index_is_older: Option<bool>,
}

/// The state of a citation: whether its source still has the quote.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum CitationState {
    /// The quote is in the cited lines.
    Unchanged,
    /// The quote is in other lines, or in a file of another name with the same contents.
    Moved { now: CitedPlace },
    /// The file or page does not have the quote any more.
    Changed,
    /// The file or page does not exist any more.
    Gone,
    /// The place cannot be read, or may not: it leads out of its folder, for example.
    Unreadable { why: String },
    /// The page was not looked at, or it is a call, which is not made again.
    NotChecked { why: String },
}

impl CitationState {
    /// Returns the state of a citation whose quote is in these lines of a file of this collection and path.
    fn of(lines: Option<Lines>, cited: &CitedPlace, (collection, path): (&str, &str)) -> Self {
        let (Some(found), CitedPlace::File { line_start, line_end, content_hash, .. }) = (lines, cited) else {
            return Self::Changed;
        };
        let is_inside = *line_start <= found.first && found.last <= *line_end;
        let (line_start, line_end) = if is_inside { (*line_start, *line_end) } else { (found.first, found.last) };
        let (collection, path, content_hash) = (collection.to_owned(), path.to_owned(), content_hash.clone());
        let now = CitedPlace::File { collection, path, line_start, line_end, content_hash };
        if now == *cited { Self::Unchanged } else { Self::Moved { now } }
    }

    /// Returns whether the citation is as it was, as far as was checked.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Unchanged | Self::NotChecked { .. } => true,
            Self::Moved { .. } | Self::Changed | Self::Gone | Self::Unreadable { .. } => false,
        }
    }
}

impl Counts {
    fn of(citations: &[VerifiedCitation]) -> Self {
        let mut counts = Self::default();
        for citation in citations {
            *match citation.state {
                CitationState::Unchanged => &mut counts.unchanged,
                CitationState::Moved { .. } => &mut counts.moved,
                CitationState::Changed => &mut counts.changed,
                CitationState::Gone => &mut counts.gone,
                CitationState::Unreadable { .. } => &mut counts.unreadable,
                CitationState::NotChecked { .. } => &mut counts.not_checked,
            } += 1;
        }
        counts
    }
}

/// A report to check.
struct Loaded {
    run_id: Option<String>,
    citations: Vec<Citation>,
    /// Where it is saved, if corrections can be written there.
    saved: Option<SavedReport>,
}

impl Engine {
    /// Checks the citations of a report again.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such report, it cannot be read or updated, or pages are to be fetched offline.
    pub(crate) async fn verify(&self, request: &VerifyRequest) -> Result<VerifiedReport, EngineError> {
        // First, so that a request for pages offline is refused before files are read.
        let web = if request.online { Some(self.pages_now()?) } else { None };
        let Loaded { run_id, citations, saved } = self.load_report(request).await?;
        let (folders, index_problem) = self.cited_folders(request.folder.as_deref()).await?;
        let quoted = citations.clone();
        let checked = within_async(MAX_TIME, move || folders.check(&quoted)).await.map_err(VerifyError::TooSlow)?;
        let mut citations: Vec<_> = citations.into_iter().zip(checked).map(verified).collect();
        let pages = match web {
            Some(web) => {
                let record = self.record_of(run_id.as_deref()).await;
                Some(CitedPages { web, record: record.map_err(|error| with_causes(&error)) })
            }
            None => None,
        };
        let unrecorded = check_pages(&mut citations, pages.as_ref()).await;
        let counts = Counts::of(&citations);
        let updated = match saved {
            Some(saved) if request.update => self.update(&request.report, &saved, &mut citations)?,
            _ => false,
        };
        let holds = citations.iter().all(|citation| {
            let is_corrected = matches!(&citation.state, CitationState::Moved { now } if citation.source == *now);
            citation.state.holds() || is_corrected
        });
        let report = request.report.clone();
        Ok(VerifiedReport { report, run_id, holds, updated, counts, citations, index_problem, unrecorded })
    }

    async fn load_report(&self, request: &VerifyRequest) -> Result<Loaded, EngineError> {
        let path = request.report.clone();
        // A file that exists counts first: its name may look like an id.
        if !Path::new(&path).exists() {
            // A prefix of a run's id. Any other name is taken for a file that is missing.
            let is_id = path.len() <= 16 && path.bytes().all(|byte| byte.is_ascii_hexdigit()) && !path.is_empty();
            if !is_id {
                return Err(VerifyError::NoReport { name: path }.into());
            }
            if request.update {
                return Err(VerifyError::UpdatesRun { name: path }.into());
            }
            return self.load_run(&path).await;
        }
        let text = read_text(Path::new(&path), MAX_SAVED_BYTES);
        let text = text.map_err(|source| VerifyError::File { action: "read", path: path.clone(), source })?;
        let saved = SavedReport::read(text);
        let saved = saved.map_err(|source| VerifyError::Format { action: "read", path: path.clone(), source })?;
        if let Some(citations) = saved.citations.clone() {
            return Ok(Loaded { run_id: saved.run_id.clone(), citations, saved: Some(saved) });
        }
        if request.update {
            return Err(VerifyError::NoPlaces { path }.into());
        }
        match saved.run_id.as_deref().and_then(|run| run.parse::<RunId>().ok()) {
            Some(run) => self.load_run(run.as_str()).await.map_err(|_| VerifyError::NoQuotes { path }.into()),
            None => Err(VerifyError::NoQuotes { path }.into()),
        }
    }

    async fn load_run(&self, name: &str) -> Result<Loaded, EngineError> {
        let report = self.replay(Some(name)).await?.report;
        let citations = report.evidence.iter().map(Citation::from).collect();
        Ok(Loaded { run_id: report.run_id, citations, saved: None })
    }

    /// Returns the folders to read, with what the index has of them, and why the index could not be read.
    async fn cited_folders(&self, folder: Option<&Path>) -> Result<(CitedFolders, Option<String>), EngineError> {
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(VerifyError::NotAFolder { folder: folder.to_path_buf() }.into());
        }
        let opened = async {
            let index = self.open_index().await?;
            let documents = index.documents(None).await?;
            Ok::<_, EngineError>((index, documents))
        };
        // The files can be checked without an index, and so also beside a damaged one.
        let (index, problem) = match caught(opened).await {
            Ok(Ok(index)) => (Some(index), None),
            Ok(Err(EngineError::Index(IndexError::Missing { .. }))) => (None, None),
            Ok(Err(error)) => (None, Some(with_causes(&error))),
            Err(panic) => (None, Some(panic)),
        };
        let mut folders = CitedFolders {
            folder: folder.map(Path::to_path_buf),
            project: self.project.clone(),
            roots: HashMap::new(),
            documents: Vec::new(),
        };
        if let Some((index, documents)) = index {
            let roots = index.manifest().collections.keys().filter_map(|name| Some((name.clone(), index.root(name)?)));
            folders.roots = roots.filter(|(_, root)| root.is_dir()).collect();
            folders.documents = documents;
        }
        Ok((folders, problem))
    }

    /// Returns access to pages, whose cache is created if necessary.
    fn pages_now(&self) -> Result<WebAccess, EngineError> {
        let web = self.settings.web(self.runs_folder().join(PAGES), DateRange::default())?;
        let web = web.ok_or(EngineError::NoWayOut {
            reason: "`dr` is offline",
            hint: "omit `--offline` (or unset `DR_OFFLINE`), or omit `--online`: files are checked without it",
        })?;
        if let Some(dr) = self.location.dr_folder() {
            self.settings.paths.trust().make(dr)?;
        }
        Ok(web)
    }

    /// Returns the record of what the run of a report sent; `None` if that run is not stored here.
    ///
    /// # Errors
    ///
    /// Returns an error if the run is in use or its folder is read-only: a page whose address cannot be recorded is not
    /// fetched.
    async fn record_of(&self, run: Option<&str>) -> Result<Option<RunRecord>, EngineError> {
        // Parsed, since a part of an id could be that of another run.
        let Some(run) = run.and_then(|run| run.parse::<RunId>().ok()) else { return Ok(None) };
        let Some(store) = self.runs_if_any()? else { return Ok(None) };
        let run = match store.find(Some(run.as_str())).await {
            Err(StoreError::Missing(_)) => return Ok(None),
            found => found?,
        };
        let locked = store.lock(&run)?;
        // Pages are recorded even if the events of the run are damaged.
        let branches = store.read(&run).await.map(|(_, state)| state.into_fields().branches).unwrap_or_default();
        // Open, since the user asks for these pages.
        Ok(Some(RunRecord { egress: Egress::new(locked, Arc::new(SystemClock), true), branches }))
    }

    /// Writes the places of moved citations into the report. Returns whether there were any.
    ///
    /// A file that is now in another collection is left as it is cited: only its path and lines are corrected.
    fn update(&self, path: &str, saved: &SavedReport, citations: &mut [VerifiedCitation]) -> Result<bool, EngineError> {
        let mut is_changed = false;
        for citation in citations.iter_mut() {
            if let CitationState::Moved { now } = &citation.state
                && is_same_collection(now, &citation.source)
            {
                citation.source = now.clone();
                is_changed = true;
            }
        }
        if !is_changed {
            return Ok(false);
        }
        if leads_out_of(&self.project, Path::new(path)).is_some() {
            return Err(VerifyError::LinkOutside { path: path.to_owned() }.into());
        }
        let corrected: Vec<_> = citations
            .iter()
            .map(|VerifiedCitation { id, quote, source, .. }| Citation {
                id: id.clone(),
                quote: quote.clone(),
                place: source.clone(),
            })
            .collect();
        let failed = |source| VerifyError::Format { action: "update", path: path.to_owned(), source };
        let text = saved.corrected(&corrected).map_err(failed)?;
        let failed = |source| VerifyError::File { action: "update", path: path.to_owned(), source };
        replace_text(Path::new(path), &text).map_err(failed)?;
        Ok(true)
    }
}

/// The address of a page that a report cites. The user asks for these pages.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CitedAddress(String);

impl MayLeave for CitedAddress {
    const VOUCHER: Voucher<Self> = Voucher::here();

    fn into_text(self) -> String {
        self.0
    }
}

impl CitedAddress {
    fn of(place: &CitedPlace) -> Option<Self> {
        match place {
            CitedPlace::Page { url } => Some(Self(url.clone())),
            CitedPlace::File { .. } | CitedPlace::Call { .. } => None,
        }
    }
}

/// Access to the pages that a report cites.
struct CitedPages {
    web: WebAccess,
    /// The record of the run, if it is stored here; or why a page cannot be recorded, and is not fetched: the run is in
    /// use, for example.
    record: Result<Option<RunRecord>, String>,
}

/// Where the pages that are fetched for the report of a run are recorded.
struct RunRecord {
    egress: Egress,
    branches: BTreeMap<NodeId, Branch>,
}

impl CitedPages {
    /// Returns whether a page is looked up without a record. Only web addresses are looked up.
    fn is_unrecorded(&self, page: &CitedAddress) -> bool {
        matches!(self.record, Ok(None)) && page.0.parse::<WebUrl>().is_ok()
    }

    /// Returns the text of a page as it is now, or the state of its citations without it.
    async fn text(&self, page: CitedAddress, citations: &[&VerifiedCitation]) -> Result<FoldedText, CitationState> {
        let address = Outbound::of(page);
        let not_checked = |why| CitationState::NotChecked { why };
        if let Some(record) = self.record.as_ref().map_err(|why| not_checked(why.clone()))? {
            let node = node_of(citations, &record.branches);
            let recorded = record.egress.release(&node, OWN_SITE, OutgoingText::all(EgressKind::Check, &address)).await;
            recorded.map_err(|error| not_checked(with_causes(&error)))?;
        }
        match self.web.source.text_now(&address).await {
            Ok(text) => Ok(FoldedText::new(&text)),
            Err(unread) if unread.is_gone => Err(CitationState::Gone),
            Err(unread) => Err(CitationState::NotChecked { why: unread.reason }),
        }
    }
}

/// Checks the cited pages, each fetched once and one after the other. Returns the addresses that were looked up without
/// a record.
async fn check_pages(citations: &mut [VerifiedCitation], pages: Option<&CitedPages>) -> Vec<String> {
    let mut unrecorded = Vec::new();
    let mut by_page: BTreeMap<CitedAddress, Vec<usize>> = BTreeMap::new();
    for (citation, at) in citations.iter().zip(0..) {
        if let Some(page) = CitedAddress::of(&citation.source) {
            by_page.entry(page).or_default().push(at);
        }
    }
    for ((page, places), number) in by_page.into_iter().zip(0..) {
        let not_checked = |why: String| Err(CitationState::NotChecked { why });
        let page = match pages {
            None => not_checked("pages are fetched with `--online` only".into()),
            Some(_) if number >= MAX_PAGES => not_checked(format!("more than {MAX_PAGES} pages are cited")),
            Some(pages) => {
                if pages.is_unrecorded(&page) {
                    unrecorded.push(page.0.clone());
                }
                let cited: Vec<_> = places.iter().map(|at| &citations[*at]).collect();
                pages.text(page, &cited).await
            }
        };
        for citation in places {
            let citation = &mut citations[citation];
            citation.state = match &page {
                Ok(page) if page.find(&citation.quote, ANYWHERE).is_some() => CitationState::Unchanged,
                Ok(_) => CitationState::Changed,
                Err(state) => state.clone(),
            };
        }
    }
    unrecorded
}

/// Returns the node of the run that found one of these quotes; the root if none did. A report may be forged, and a page
/// must not be listed under a node that has not quoted it.
fn node_of(citations: &[&VerifiedCitation], branches: &BTreeMap<NodeId, Branch>) -> NodeId {
    let found = |VerifiedCitation { id, quote, source, .. }: &&VerifiedCitation| {
        let id: EvidenceId = id.parse().ok()?;
        let known = branches.get(id.node())?.evidence.iter().find(|known| known.id == id)?;
        let is_quoted = known.quote == *quote && Citation::from(known).place == *source;
        is_quoted.then(|| id.node().clone())
    };
    citations.iter().find_map(found).unwrap_or_else(|| NodeId::numbered(1))
}

fn is_same_collection(place: &CitedPlace, other: &CitedPlace) -> bool {
    match (place, other) {
        (CitedPlace::File { collection, .. }, CitedPlace::File { collection: other, .. }) => collection == other,
        (CitedPlace::File { .. } | CitedPlace::Page { .. } | CitedPlace::Call { .. }, _) => false,
    }
}

fn verified((Citation { id, quote, place }, (state, index_is_older)): (Citation, Checked)) -> VerifiedCitation {
    VerifiedCitation { id, quote, source: place, state, index_is_older }
}

/// The state of a citation, and whether the index is older than its file.
type Checked = (CitationState, Option<bool>);

/// The folders that cited files are read from.
struct CitedFolders {
    /// Replaces the folders of all collections.
    folder: Option<PathBuf>,
    project: PathBuf,
    /// Folders of the collections in the index.
    roots: HashMap<String, PathBuf>,
    documents: Vec<DocumentRow>,
}

/// The bytes of a cited file, or why there are none.
enum CitedFile {
    Read { hash: ContentHash, text: String, folded: FoldedText },
    Gone,
    Unreadable(String),
}

impl CitedFolders {
    /// Returns the state of each citation of a file; pages and calls are left unchecked. Reads one file at a time.
    fn check(&self, citations: &[Citation]) -> Vec<Checked> {
        let mut by_file: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        let mut checked =
            vec![(CitationState::NotChecked { why: "tools are not called again".to_owned() }, None); citations.len()];
        for (citation, at) in citations.iter().zip(0..) {
            if let CitedPlace::File { collection, path, .. } = &citation.place {
                by_file.entry((collection, path)).or_default().push(at);
            }
        }
        let mut hashes = HashesOfFolders::default();
        for ((collection, path), places) in by_file {
            let file = read(&self.root(collection), path);
            for at in places {
                let citation = &citations[at];
                checked[at] = match &file {
                    CitedFile::Read { hash, text, folded } => {
                        let state = state_in(hash, text, folded, citation, (collection, path));
                        (state, self.is_older(collection, path, hash))
                    }
                    CitedFile::Gone => (self.found_elsewhere(citation, &mut hashes), None),
                    CitedFile::Unreadable(why) => (CitationState::Unreadable { why: why.clone() }, None),
                };
            }
        }
        checked
    }

    /// Returns the folder of a collection: the one that the user names or the index has, else the folder of the project
    /// with its name, else the project.
    fn root(&self, collection: &str) -> PathBuf {
        if let Some(folder) = self.folder.as_ref().or_else(|| self.roots.get(collection)) {
            return folder.clone();
        }
        let named = self.project.join(collection);
        let mut parts = Path::new(collection).components();
        // The name comes from the report, and must not lead out of the project as a path.
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if is_name && named.is_dir() && leads_out_of(&self.project, &named).is_none() {
            named
        } else {
            self.project.clone()
        }
    }

    /// Returns whether the index has another text of a file; `None` if it does not have the file.
    fn is_older(&self, collection: &str, path: &str, hash: &ContentHash) -> Option<bool> {
        let row = self.documents.iter().find(|row| row.collection == collection && row.path == path)?;
        Some(row.content_hash != *hash)
    }

    /// Looks for a file that is gone by its contents: in the index, then in the folder of its collection.
    fn found_elsewhere(&self, citation: &Citation, hashes: &mut HashesOfFolders) -> CitationState {
        let CitedPlace::File { collection, content_hash, .. } = &citation.place else { return CitationState::Gone };
        let moved_to = |collection: &str, path: &str| match read(&self.root(collection), path) {
            // Compared as it is now: the index may be older than the file.
            CitedFile::Read { hash, text, folded } if hash == *content_hash => {
                let state = state_in(&hash, &text, &folded, citation, (collection, path));
                matches!(state, CitationState::Moved { .. }).then_some(state)
            }
            CitedFile::Read { .. } | CitedFile::Gone | CitedFile::Unreadable(_) => None,
        };
        let rows = self.documents.iter().filter(|row| row.content_hash == *content_hash);
        // The same collection first: only within it can the report be corrected.
        let (own, other): (Vec<_>, Vec<_>) = rows.partition(|row| row.collection == *collection);
        let mut indexed = own.into_iter().chain(other);
        if let Some(state) = indexed.find_map(|row| moved_to(&row.collection, &row.path)) {
            return state;
        }
        let paths = hashes.paths(&self.root(collection), content_hash);
        paths.iter().find_map(|path| moved_to(collection, path)).unwrap_or(CitationState::Gone)
    }
}

/// Paths by content of the folders in which files were missing.
#[derive(Default)]
struct HashesOfFolders(HashMap<PathBuf, HashMap<ContentHash, Vec<String>>>);

impl HashesOfFolders {
    fn paths(&mut self, root: &Path, hash: &ContentHash) -> Vec<String> {
        let known = self.0.entry(root.to_path_buf()).or_insert_with(|| {
            let mut paths: HashMap<_, Vec<_>> = HashMap::new();
            // With every format, since the collection may have included any when it was cited.
            for file in walk(root, &Include::all()).files {
                if let Ok(bytes) = read_inside(root, &file.path) {
                    paths.entry(ContentHash::of(&bytes)).or_default().push(file.path);
                }
            }
            paths
        });
        known.get(hash).cloned().unwrap_or_default()
    }
}

fn state_in(
    hash: &ContentHash,
    text: &str,
    folded: &FoldedText,
    citation: &Citation,
    at: (&str, &str),
) -> CitationState {
    let CitedPlace::File { line_start, line_end, content_hash, .. } = &citation.place else {
        return CitationState::Gone;
    };
    let cited = Lines { first: *line_start, last: *line_end };
    // A quote of the very same file may begin or end inside a word.
    let is_as_cited = hash == content_hash
        && !citation.quote.trim().is_empty()
        && text[line_range(text, cited.first, cited.last)].contains(&citation.quote);
    let lines = if is_as_cited { Some(cited) } else { folded.find(&citation.quote, cited) };
    CitationState::of(lines, &citation.place, at)
}

fn read(root: &Path, path: &str) -> CitedFile {
    match read_inside(root, path) {
        Ok(bytes) => {
            let hash = ContentHash::of(&bytes);
            match text_of(path, bytes) {
                Ok(text) => CitedFile::Read { hash, folded: FoldedText::new(&text), text },
                Err(why) => CitedFile::Unreadable(why),
            }
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => CitedFile::Gone,
        Err(error) => CitedFile::Unreadable(error.to_string()),
    }
}

/// Returns the text of a file: that of a PDF or HTML file is extracted anew.
fn text_of(path: &str, bytes: Vec<u8>) -> Result<String, String> {
    match Extractable::of(path) {
        Some(_) => Document::read(path, bytes).map(|document| document.text).map_err(|reason| with_causes(&reason)),
        None => String::from_utf8(bytes).map_err(|_| "file is not UTF-8".to_owned()),
    }
}

impl VerifiedReport {
    /// Returns the numbers of its citations in one line: `5 of 7 citations hold, 1 moved, 1 changed`. Quotes of tools,
    /// which are never checked, are not part of the total.
    pub(crate) fn summary(&self) -> String {
        let Counts { unchanged, moved, changed, gone, unreadable, not_checked } = self.counts;
        let all = self.citations.len();
        if all == 0 {
            return "no citations".to_owned();
        }
        let moved_now = if self.updated { "moved and updated" } else { "moved" };
        let kinds = [(moved, moved_now), (changed, "changed"), (gone, "gone"), (unreadable, "unreadable")];
        let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
        let kinds: String = kinds.map(|(number, kind)| format!(", {number} {kind}")).collect();
        let pages = self.unchecked_pages();
        let all = all - (not_checked - pages);
        let of = if all == 1 { "1 citation holds".to_owned() } else { format!("{all} citations hold") };
        let unchecked = [(not_checked - pages, "tool quote"), (pages, "page quote")].into_iter();
        let unchecked = unchecked.filter(|(number, _)| *number > 0);
        let unchecked: String =
            unchecked.map(|(number, what)| format!(", {} not checked", counted(number, what))).collect();
        if all == 0 {
            return unchecked.trim_start_matches(", ").to_owned();
        }
        format!("{unchanged} of {of}{kinds}{unchecked}")
    }

    /// Returns the number of quotes from pages that were not checked.
    pub(crate) fn unchecked_pages(&self) -> usize {
        let is_unchecked = |citation: &&VerifiedCitation| {
            let VerifiedCitation { source, state, .. } = citation;
            matches!((source, state), (CitedPlace::Page { .. }, CitationState::NotChecked { .. }))
        };
        self.citations.iter().filter(is_unchecked).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Label, Passage, Place};

    const TEXT: &str = "# Cells\n\nLithium cells last.\nThey do not leak.\n";

    fn cited(path: &str, first: u32, last: u32, quote: &str) -> Citation {
        let place = CitedPlace::File {
            collection: "kb".into(),
            path: path.into(),
            line_start: first,
            line_end: last,
            content_hash: ContentHash::of(TEXT.as_bytes()),
        };
        Citation { id: "n1e1".into(), quote: quote.into(), place }
    }

    fn folders(project: &Path) -> CitedFolders {
        CitedFolders { folder: None, project: project.to_path_buf(), roots: HashMap::new(), documents: Vec::new() }
    }

    /// Returns the state of a citation in a folder of files, in short.
    fn state(files: &[(&str, &str)], citation: &Citation) -> String {
        let folder = crate::kb::walk::tests::folder(files);
        match folders(folder.path()).check(std::slice::from_ref(citation)).remove(0).0 {
            CitationState::Unchanged => "unchanged".into(),
            CitationState::Moved { now } => format!("moved to {}", now.for_people()),
            CitationState::Changed => "changed".into(),
            CitationState::Gone => "gone".into(),
            CitationState::Unreadable { why } => format!("unreadable: {why}"),
            CitationState::NotChecked { .. } => "not checked".into(),
        }
    }

    #[test]
    fn state_of_a_citation_follows_from_the_file_as_it_is() {
        let quote = "Lithium cells last.\nThey do not leak.";
        let at = |path: &str| cited(path, 3, 4, quote);
        let above = format!("New.\n\n{TEXT}");
        let crlf = format!("\u{feff}{}", TEXT.replace('\n', "\r\n"));
        for (files, citation, expected) in [
            (vec![("kb/a.md", TEXT)], at("a.md"), "unchanged"),
            (vec![("a.md", TEXT)], at("a.md"), "unchanged"),
            (vec![("kb/a.md", crlf.as_str())], at("a.md"), "unchanged"),
            (vec![("kb/a.md", TEXT)], cited("a.md", 2, 9, quote), "unchanged"),
            (vec![("kb/a.md", TEXT)], cited("a.md", 3, 4, "thium cells la"), "unchanged"),
            (vec![("kb/a.md", above.as_str())], at("a.md"), "moved to a.md:5-6"),
            (vec![("kb/a.md", "Lithium cells last. They do not leak.")], at("a.md"), "moved to a.md:1"),
            (vec![("kb/a.md", "Lithium cells last.\nThey do leak.")], at("a.md"), "changed"),
            (vec![("kb/a.md", "")], at("a.md"), "changed"),
            (vec![("kb/a.md", TEXT)], cited("a.md", 3, 4, " "), "changed"),
            (vec![("kb/b/c.md", TEXT), ("kb/d.md", "Other.")], at("a.md"), "moved to b/c.md:3-4"),
            (vec![("kb/b.md", above.as_str())], at("a.md"), "gone"),
            (vec![("kb/b.md", "x")], at("b.md/a.md"), "gone"),
            (vec![], at("a.md"), "gone"),
            (vec![("kb/a.md/b.md", TEXT)], at("a.md"), "unreadable: not a regular file"),
            (vec![("kb/x", ""), ("a.md", TEXT)], at("../a.md"), "unreadable: path leads out of the folder"),
            (vec![("a.md", TEXT)], at("/etc/passwd"), "unreadable: path leads out of the folder"),
            (vec![("a.md", TEXT)], at(""), "unreadable: not a regular file"),
        ] {
            assert_eq!(state(&files, &citation), expected, "{citation:?} in {files:?}");
        }
    }

    #[test]
    fn page_is_recorded_under_the_node_that_quotes_it_and_under_the_root_for_a_forged_id() {
        let (url, quote) = ("https://example.org/", "Valves open at six.");
        let place = Place::unfetched(url.into(), "Valves".into(), None);
        let passage = Passage::whole(url.into(), Label::Public, place, quote.into());
        let node = NodeId::numbered(2);
        let mut branch = Branch::without_findings("When do valves open?");
        branch.evidence.push(passage.quote(0..quote.len(), EvidenceId::new(node.clone(), 1), 1.0));
        let branches = BTreeMap::from([(node, branch)]);
        for (id, quote, url, expected) in [
            ("n2e1", quote, url, "n2"),
            ("n2e2", quote, url, "n1"),
            ("n3e1", quote, url, "n1"),
            ("n2e1", "Valves open at seven.", url, "n1"),
            ("n2e1", quote, "https://elsewhere.example/", "n1"),
            ("not an id", quote, url, "n1"),
        ] {
            let cited = Citation { id: id.into(), quote: quote.into(), place: CitedPlace::Page { url: url.into() } };
            let cited = verified((cited, (CitationState::Unchanged, None)));
            assert_eq!(node_of(&[&cited], &branches).to_string(), expected, "{cited:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_project_are_not_followed() {
        use std::os::unix::fs::symlink;

        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("a.md"), TEXT).unwrap();
        symlink(outside.path(), folder.path().join("kb")).unwrap();
        symlink(outside.path().join("a.md"), folder.path().join("link.md")).unwrap();
        let folders = folders(folder.path());
        for (path, expected) in [
            ("a.md", CitationState::Gone),
            ("kb/a.md", CitationState::Unreadable { why: "link leads out of the folder".into() }),
            ("link.md", CitationState::Unreadable { why: "link leads out of the folder".into() }),
        ] {
            assert_eq!(folders.check(&[cited(path, 3, 3, "Lithium cells last.")])[0].0, expected, "{path}");
        }
        for collection in ["..", "/", "", "a/..", "kb"] {
            assert_eq!(folders.root(collection), folder.path(), "{collection}");
        }
    }
}
