//! Checks the installation. Each problem comes with the command that fixes it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Serialize;

use super::stored::details;
use super::{Engine, EngineError};
use crate::base::bounded::caught;
use crate::base::environment::KeyError;
use crate::base::line::{counted, with_causes};
use crate::base::money::dollars_text;
use crate::config::{DEFAULT, Settings};
use crate::kb::document::Document;
use crate::kb::embed::{Embedder, EmbedderChoice, find_runtime};
use crate::kb::extract::Include;
use crate::kb::index::{DocumentRow, Index, IndexError, IndexStats, writer};
use crate::kb::walk::{read_inside, walk};
use crate::llm::roles::ModelsError;
use crate::run::journal::{JournalError, RunList, RunRow};
use crate::run::recall::Recall;
use crate::run::store::{Store, StoreError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckStatus {
    Ok,
    /// Worth knowing, though everything works.
    Note,
    /// Something does not work.
    Trouble,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) status: CheckStatus,
    /// Findings, as one line of text.
    pub(crate) detail: String,
    /// Remedy, for a problem or a note.
    pub(crate) mend: Option<String>,
}

/// A setting, its value and the origin of the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ExplainedSetting {
    pub(crate) key: String,
    pub(crate) value: String,
    /// A file, a variable, a flag, or `default`.
    pub(crate) origin: String,
    /// Its purpose and valid values; `None` for a variable that is no setting.
    pub(crate) description: Option<String>,
}

impl ExplainedSetting {
    /// Returns whether the setting is in a list of all: not the defaults of tables, which would fill most of it.
    pub(crate) fn is_listed(&self) -> bool {
        self.origin != DEFAULT || !self.key.contains('.')
    }
}

/// Everything [`Engine::checkup`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Checkup {
    pub(crate) index: String,
    /// Statistics of the index; `None` if it cannot be opened.
    pub(crate) stats: Option<IndexStats>,
    pub(crate) checks: Vec<Check>,
    pub(crate) settings: Vec<ExplainedSetting>,
    /// Repairs that were made before the checks, and their losses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repairs: Vec<String>,
}

impl Checkup {
    /// Returns whether any check found a problem.
    pub(crate) fn has_trouble(&self) -> bool {
        self.checks.iter().any(|check| check.status == CheckStatus::Trouble)
    }
}

impl Check {
    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Ok, detail: detail.into(), mend: None }
    }

    pub(super) fn note(name: &'static str, detail: impl Into<String>) -> Self {
        Self { status: CheckStatus::Note, ..Self::ok(name, detail) }
    }

    pub(super) fn trouble(name: &'static str, detail: impl Into<String>) -> Self {
        Self { status: CheckStatus::Trouble, ..Self::ok(name, detail) }
    }

    /// Returns the trouble that an error is, with its hint.
    pub(super) fn failed(name: &'static str, error: &dyn std::error::Error, hint: impl Into<Option<String>>) -> Self {
        Self { mend: hint.into(), ..Self::trouble(name, with_causes(error)) }
    }

    /// Adds a remedy.
    pub(super) fn mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }
}

/// Hint for notes in a language that the embedder does not read, or reads badly.
const MULTILINGUAL: &str = "to search by meaning as well, run `dr model use MultilingualE5Small` and `dr index`";

/// Fragments above which searches become noticeably slower.
const MANY_FRAGMENTS: usize = 200;

/// Remedy for a damaged journal.
const REPAIR: &str = "run `dr doctor --repair`";

/// Remedy for an index that is behind its folders.
const RERUN: &str = "run `dr index`";

/// Remedy for a damaged index.
const REBUILD: &str = "run `dr index --rebuild`";

/// Free space in bytes below which a note is shown, however small the index is.
const LEAST_ROOM: u64 = 100_000_000;

impl Engine {
    /// Checks the index, the embedder, the lock, the disk, the runs and the settings. Changes nothing.
    ///
    /// Reads all that other commands read, so that none of them fails where this finds no problem.
    pub(crate) async fn checkup(&self) -> Checkup {
        let mut checks = Vec::new();
        // Damage can make the storage engine panic.
        let index = match caught(Index::open(&self.location)).await {
            Ok(Ok(index)) => Some(index),
            Ok(Err(error)) => {
                checks.push(Check::failed("index", &error, error.hint()));
                None
            }
            Err(panic) => {
                checks.push(damaged_index(panic));
                None
            }
        };
        let mut stats = None;
        if let Some(index) = &index {
            let found = undamaged(Box::pin(async {
                let (known, incomplete) = (index.stats().await?, index.verify().await?);
                // Kept even if a later check finds damage.
                self.index_checks(index, stats.insert(known), incomplete).await
            }));
            match found.await {
                Ok(found) => checks.extend(found),
                Err(problem) => checks.push(problem),
            }
        }
        checks.push(self.embedder_check(index.as_ref()).await);
        checks.push(runtime_check(&self.settings.paths.data, self.settings.values.embedder.as_ref()));
        checks.extend(self.location.folder().map(lock_check));
        checks.extend(self.location.folder().filter(|folder| folder.is_dir()).map(disk_check));
        checks.extend(self.runs_checks().await);
        checks.extend(self.memory_check().await);
        checks.extend(self.ignored_key().map(|folder| {
            let detail = format!("key in `{}` is ignored", folder.join(".env").display());
            Check::note("key", detail).mend(format!("if you trust the folder, run `dr trust {}`", folder.display()))
        }));
        checks.extend(self.outside_checks());
        checks.extend(self.servers_checks().await);
        Checkup {
            index: self.location.to_string(),
            stats,
            checks,
            settings: self.explained_settings().into_iter().filter(ExplainedSetting::is_listed).collect(),
            repairs: Vec::new(),
        }
    }

    /// Repairs files that cannot be made again from others: saves the readable part of a damaged journal. Also removes
    /// a damaged research memory, which later runs fill again.
    ///
    /// # Errors
    ///
    /// Returns an error if a process works on a run, or a file cannot be written.
    pub(crate) async fn repair(&self) -> Result<Vec<String>, EngineError> {
        let folder = self.runs_folder();
        let mut repairs = Vec::new();
        // Only damage is repaired. A journal of a newer version, for example, is trouble and must not be replaced.
        if self.runs_checks().await.iter().any(|check| check.mend.as_deref() == Some(REPAIR)) {
            let path = folder.clone();
            let salvaged = tokio::task::spawn_blocking(move || Store::repair(&path)).await??;
            let saved = match salvaged.runs {
                0 => "no run could be read, so it begins anew".to_owned(),
                runs => format!("{} saved", counted(runs, "run")),
            };
            repairs.push(format!("journal: {saved}; the damaged one is kept at `{}`", salvaged.damaged.display()));
            repairs.extend(salvaged.lost.iter().map(|lost| format!("lost: {lost}")));
        }
        if self.memory_check().await.is_some_and(|check| check.status == CheckStatus::Trouble) {
            let failed = |source| EngineError::Folder { action: "remove", path: Recall::folder(&folder), source };
            Recall::discard(&folder).map_err(failed)?;
            repairs.push("research memory: removed; later runs fill it again".to_owned());
        }
        Ok(repairs)
    }

    /// Returns whether a setting, or a table of settings, has this name.
    pub(crate) fn knows_setting(name: &str) -> bool {
        Settings::knows(name)
    }

    /// Returns every setting with its value and origin. Keys are never included.
    pub(crate) fn explained_settings(&self) -> Vec<ExplainedSetting> {
        let settings = self.settings.explained().into_iter();
        let explain = |(key, value, origin): (String, _, _)| ExplainedSetting {
            description: Settings::description_of(&key),
            key,
            value,
            origin,
        };
        settings.map(explain).collect()
    }

    /// Checks the settings that only a run uses. Sends nothing.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid setting and its file.
    pub(crate) fn check_settings(&self) -> Result<(), EngineError> {
        self.settings.check_outside()?;
        match self.settings.models() {
            // A missing value may come from the environment of the run.
            Ok(_) | Err(ModelsError::NoModel { .. } | ModelsError::Key { source: KeyError::NotSet { .. }, .. }) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn index_checks(
        &self,
        index: &Index,
        stats: &IndexStats,
        incomplete: usize,
    ) -> Result<Vec<Check>, EngineError> {
        let IndexStats { documents, chunks, vectors, vectors_missing, .. } = stats;
        // LanceDB's service maintains its tables itself, so no command is suggested.
        let upkeep = |check: Check| if self.location.is_service() { check } else { check.mend(RERUN) };
        let mut checks =
            vec![Check::ok("index", format!("version {}, {documents} files, {chunks} chunks", stats.version))];
        if incomplete > 0 {
            let detail = format!("passages of {} are missing", counted(incomplete, "file"));
            checks.push(damaged_index(detail));
        }
        // `known` adds the collections of the copy. One that only the copy has was lost with a file of the manifest.
        if let Ok(Some(copy)) = Index::known(&self.location).await
            && let Some(name) = copy.collections.keys().find(|name| !index.manifest().collections.contains_key(*name))
        {
            let detail = format!("collection `{name}` is missing in the manifest");
            checks.push(damaged_index(detail));
        }
        checks.push(match vectors_missing {
            0 => Check::ok("vectors", format!("{vectors}, none missing")),
            missing => Check::note("vectors", format!("{vectors}, {missing} missing")).mend(RERUN),
        });
        for name in index.manifest().collections.keys() {
            let (all, unread) = index.count_unread(name).await?;
            if unread * 2 > all {
                let model = &index.manifest().embedder.name;
                let detail = format!(
                    "{unread} of {} of `{name}` are in a language that `{model}` does not read, and are searched by words",
                    counted(all, "chunk")
                );
                checks.push(Check::note("vectors", detail).mend(MULTILINGUAL));
            }
        }
        checks.push(match stats.unindexed_text_rows {
            0 => Check::ok("text index", "covers every chunk"),
            rows => upkeep(Check::note("text index", format!("{rows} chunks not covered yet"))),
        });
        checks.push(match stats.unindexed_vector_rows {
            None => Check::ok("vector index", "none; every vector is compared"),
            Some(0) => Check::ok("vector index", "covers every vector"),
            Some(rows) => upkeep(Check::note("vector index", format!("{rows} chunks not covered yet"))),
        });
        checks.push(if stats.fragments <= MANY_FRAGMENTS {
            Check::ok("fragments", stats.fragments.to_string())
        } else {
            upkeep(Check::note("fragments", stats.fragments.to_string()))
        });
        let unknown = |name: &&String| !index.manifest().collections.contains_key(*name);
        let unknown = self.settings.values.collections.keys().filter(unknown);
        checks.extend(unknown.map(|name| {
            Check::note("collection", format!("`[collections.{name}]` is set, and the index has no `{name}`"))
        }));
        for (name, root) in &index.manifest().collections {
            checks.push(match self.location.leads_out(root) {
                Some(root) => outside_check(name, &root),
                None => stale_check(index, name, &self.location.open_root(root)).await?,
            });
        }
        Ok(checks)
    }

    /// Checks the integrity of the journal, and reads every run as the commands do that show it.
    async fn runs_checks(&self) -> Vec<Check> {
        let damaged = |detail: String| Check::trouble("runs", detail).mend(REPAIR);
        // A sound journal that cannot be read now must not be replaced.
        let failed = |error: &JournalError| {
            if error.may_pass() { Check::failed("runs", error, error.hint()) } else { damaged(with_causes(error)) }
        };
        let store = match self.known_runs() {
            // A journal that was deleted leaves the lock files of its runs.
            Err(EngineError::Store(StoreError::Empty { .. })) => {
                return vec![self.vanished(&[]).unwrap_or_else(|| Check::ok("runs", "none stored"))];
            }
            Err(EngineError::Store(StoreError::Journal(error))) if error.is_damage() => {
                return vec![damaged(with_causes(&error))];
            }
            Err(error) => return vec![Check::failed("runs", &error, error.hint())],
            Ok(store) => store,
        };
        let mut checks = Vec::new();
        match store.journal().check().await {
            Ok(complaints) if complaints.is_empty() => {}
            Ok(complaints) => checks.push(damaged(format!("journal is damaged: {complaints}"))),
            Err(error) => checks.push(failed(&error)),
        }
        let RunList { runs, damage } = match store.journal().runs().await {
            Ok(list) => list,
            Err(error) => {
                checks.push(Check::failed("runs", &error, error.hint()));
                return checks;
            }
        };
        checks.extend(damage.map(damaged));
        let (count, vanished) = (runs.len(), self.vanished(&runs));
        for RunRow { id, .. } in runs {
            let read = async {
                // What `dr show` and `dr export` read.
                details(&store, id.clone()).await?;
                Ok::<_, EngineError>(store.export(&id).await?)
            };
            let broken = |problem: String| Check::trouble("run", format!("`{id}`: {problem}")).mend(REPAIR);
            match caught(read).await {
                Ok(Ok(_)) => {}
                Ok(Err(EngineError::Store(StoreError::Journal(error) | StoreError::Damaged { source: error, .. })))
                    if error.may_pass() =>
                {
                    let trouble = Check::failed("run", &error, error.hint());
                    checks.push(Check { detail: format!("`{id}`: {}", trouble.detail), ..trouble });
                }
                Ok(Err(error)) => checks.push(broken(with_causes(&error))),
                Err(panic) => checks.push(broken(panic)),
            }
        }
        match store.journal().broken_jobs().await {
            Ok(0) => {}
            Ok(broken) => {
                checks.push(damaged(format!("{} on record cannot be read", counted(broken, "Deep Research job"))));
            }
            Err(error) => checks.push(failed(&error)),
        }
        match store.journal().runs_with_altered_egress().await {
            Ok(altered) if altered.is_empty() => {}
            Ok(altered) => {
                let detail = format!("record of the texts that left was changed in: {}", altered.join(", "));
                let mend = "do not rely on `dr show --egress` of these runs; `dr rm` removes them";
                checks.push(Check::trouble("runs", detail).mend(mend));
            }
            Err(error) => checks.push(failed(&error)),
        }
        if checks.is_empty() {
            checks.push(Check::ok("runs", format!("{count} stored, journal is sound")));
        }
        checks.extend(vanished);
        checks
    }

    /// Names the runs that were worked on and are not in the journal: it was deleted, or replaced by an earlier one.
    fn vanished(&self, known: &[RunRow]) -> Option<Check> {
        let folder = self.runs_folder();
        let gone = Store::worked_on(&folder).into_iter().filter(|run| !known.iter().any(|row| row.id == *run));
        let gone: Vec<_> = gone.map(|run| format!("`{run}`")).collect();
        let detail = format!("{} no longer in the journal: {}", counted(gone.len(), "run"), gone.join(", "));
        let mend = "restore `.dr/state.db` from a backup, or delete the folder `.dr/runs`";
        (!gone.is_empty()).then(|| Check::note("runs", detail).mend(mend))
    }

    /// Reads the research memory; `None` if there is none.
    async fn memory_check(&self) -> Option<Check> {
        let folder = self.runs_folder();
        Recall::folder(&folder).symlink_metadata().ok()?;
        Some(match Recall::verify(&folder).await {
            Ok(()) => Check::ok("memory", "can be read"),
            Err(error) => Check::failed("memory", &error, error.hint()),
        })
    }

    async fn embedder_check(&self, index: Option<&Index>) -> Check {
        let choice = self.embedder_choice(index.map(Index::manifest), false);
        match self.load_embedder(&choice).await {
            Ok(embedder) => match index.map(|index| &index.manifest().embedder) {
                Some(stored) if stored.fingerprint != embedder.fingerprint() => {
                    let detail =
                        format!("index has vectors of `{}`, settings ask for `{}`", stored.name, embedder.name());
                    let mend = if self.is_switched(stored, embedder.as_ref()) { RERUN } else { REBUILD };
                    Check::trouble("embedder", detail).mend(mend)
                }
                _ => self.embedder_in_use(embedder.as_ref(), index),
            },
            Err(error) => {
                let failed = Check::failed("embedder", &error, error.hint());
                Check { detail: format!("`{choice}`: {}", failed.detail), ..failed }
            }
        }
    }

    fn embedder_in_use(&self, embedder: &dyn Embedder, index: Option<&Index>) -> Check {
        let main = index.and_then(Index::language_of_most).filter(|main| !embedder.reads().includes(main));
        let in_use = |detail: String| match main.zip(embedder.reads().names()) {
            Some((main, best)) => {
                let detail = format!("{detail}; it reads {best} best, and most notes are in {}", main.name);
                Check::note("embedder", detail).mend(MULTILINGUAL)
            }
            None => Check::ok("embedder", detail),
        };
        let Some(server) = embedder.server() else { return in_use(described(embedder, "")) };
        let price = match server.price {
            Some(0) => "free".to_owned(),
            Some(price) => format!("{} for a million tokens", dollars_text(price)),
            None => "at an unknown price".to_owned(),
        };
        let detail = described(embedder, &format!(" at {}, {price}", server.address));
        let collections = index.map(|index| &index.manifest().collections);
        let closed = collections.into_iter().flat_map(BTreeMap::keys).find(|name| self.is_local_only(name));
        match closed {
            _ if self.is_offline() => Check::note("embedder", format!("{detail}; not asked, since dr is offline")),
            Some(name) if !server.is_local => {
                let mend = "set `local = true` in `[embedding]` if the server is your own, or index with `builtin`";
                Check::trouble("embedder", format!("{detail}; `{name}` is for local models only")).mend(mend)
            }
            None if server.price.is_none() && self.settings.limits().cost_nanos.is_some() => {
                let mend = "set `price` in `[embedding]`, or `--max-cost inf`";
                Check::note("embedder", format!("{detail}; not asked while the cost is limited")).mend(mend)
            }
            Some(_) | None => in_use(detail),
        }
    }
}

fn described(embedder: &dyn Embedder, place: &str) -> String {
    let (name, dimension) = (embedder.name(), embedder.dimension());
    format!("{name}{place}, {dimension} dimensions, {}", embedder.fingerprint())
}

/// Returns the result of a read, or a failed check for an error or a panic that damage has caused.
async fn undamaged<T>(read: impl Future<Output = Result<T, EngineError>>) -> Result<T, Check> {
    caught(read).await.map_err(damaged_index)?.map_err(|error| match error {
        // The index is as good as it was.
        EngineError::Index(error @ IndexError::Service { .. }) => Check::failed("index", &error, error.hint()),
        error => damaged_index(with_causes(&error)),
    })
}

fn damaged_index(problem: String) -> Check {
    Check::trouble("index", problem).mend(REBUILD)
}

fn outside_check(name: &str, root: &Path) -> Check {
    let detail = format!("`{name}`: its folder is now a link to `{}`, outside this project", root.display());
    Check::trouble("collection", detail).mend("restore the folder, or remove the collection with `dr index --prune`")
}

/// Compares a collection with its folder by size and time, as `dr index` would.
async fn stale_check(index: &Index, name: &str, root: &Path) -> Result<Check, EngineError> {
    if !root.is_dir() {
        let detail = format!("`{name}`: folder `{}` is gone", root.display());
        let mend = "restore it, or remove the collection with `dr index --prune`";
        return Ok(Check::trouble("collection", detail).mend(mend));
    }
    let known = index.documents(Some(name)).await?;
    let folder = root.to_path_buf();
    let include = index.manifest().includes.get(name).cloned().unwrap_or_default();
    let count = known.len();
    let (stale, skipped) = tokio::task::spawn_blocking(move || compare(&folder, &include, &known)).await?;
    let detail =
        format!("`{name}`: {count} files in `{}`, {stale} to bring up to date, {skipped} skipped", root.display());
    Ok(if stale == 0 { Check::ok("collection", detail) } else { Check::note("collection", detail).mend(RERUN) })
}

/// Counts the files `dr index` would add, change or remove, and those it would skip.
fn compare(folder: &Path, include: &Include, known: &[DocumentRow]) -> (usize, usize) {
    let listing = walk(folder, include);
    let mut gone: HashMap<_, _> = known.iter().map(|row| (row.path.as_str(), row)).collect();
    let (mut stale, mut skipped) = (0, listing.skipped.len());
    for file in &listing.files {
        match gone.remove(file.path.as_str()) {
            // No time is stored for a file that had just been written when it was indexed: its size alone decides.
            Some(row) if row.size == file.size && row.modified_ns.is_none_or(|known| known == file.modified_ns) => {}
            Some(_) => stale += 1,
            // A file that `dr index` skips each time, such as a binary one, would otherwise be reported for ever.
            None if is_indexable(folder, &file.path) => stale += 1,
            None => skipped += 1,
        }
    }
    (stale + gone.len(), skipped)
}

fn is_indexable(folder: &Path, path: &str) -> bool {
    read_inside(folder, path).is_ok_and(|bytes| Document::read(path, bytes).is_ok())
}

fn runtime_check(data: &Path, choice: Option<&EmbedderChoice>) -> Check {
    match find_runtime(Some(data)) {
        Ok(path) => Check::ok("onnx runtime", path.display().to_string()),
        Err(error) if matches!(choice, Some(EmbedderChoice::Fastembed(_))) => {
            Check::trouble("onnx runtime", error.to_string()).mend(error.hint())
        }
        Err(error) => {
            Check::note("onnx runtime", format!("{error}; only `fastembed:` embedders need one")).mend(error.hint())
        }
    }
}

fn lock_check(folder: &Path) -> Check {
    match writer(folder) {
        None => Check::ok("writer lock", "free"),
        Some(holder) => Check::note("writer lock", format!("held by {holder}")),
    }
}

fn disk_check(folder: &Path) -> Check {
    // An unnamed temporary file disappears with its handle, even if `dr` is killed.
    if let Err(error) = tempfile::tempfile_in(folder).map(drop) {
        let detail = format!("folder of the index is not writable: {error}");
        return Check::trouble("disk", detail).mend("free disk space, or make the folder writable");
    }
    let taken = folder_bytes(folder);
    match fs4::available_space(folder) {
        Ok(free) => room_check(taken, free),
        Err(error) => Check::note("disk", format!("index takes {}, free space unknown: {error}", size(taken))),
    }
}

/// Checks that there is room for the index twice over. `dr index` writes a second copy when it compacts or rebuilds the
/// index, and keeps the first for its readers: that took up to 1.2 times the size of the first when it was measured.
fn room_check(taken: u64, free: u64) -> Check {
    let detail = format!("index takes {}, {} free", size(taken), size(free));
    let needed = taken.saturating_mul(2).max(LEAST_ROOM);
    if free < needed {
        let mend = format!("free disk space: `dr index` may need {} for a while", size(needed));
        return Check::note("disk", detail).mend(mend);
    }
    Check::ok("disk", detail)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    // Without filters: hidden and ignored files take room, too.
    let entries = ignore::WalkBuilder::new(folder).standard_filters(false).build();
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_without_room_for_twice_the_index_is_noted() {
        assert_eq!(room_check(1_000, LEAST_ROOM).status, CheckStatus::Ok);
        assert_eq!(room_check(LEAST_ROOM, 2 * LEAST_ROOM).status, CheckStatus::Ok);
        let full = room_check(LEAST_ROOM, 2 * LEAST_ROOM - 1);
        assert_eq!(full.status, CheckStatus::Note);
        assert_eq!(full.detail, "index takes 100 MB, 199 MB free");
        assert_eq!(full.mend.as_deref(), Some("free disk space: `dr index` may need 200 MB for a while"));
        assert_eq!(room_check(0, 0).detail, "index takes 0 kB, 0 kB free");
    }
}
