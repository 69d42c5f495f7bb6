//! Models of the catalogue on this machine: where they are searched, and how their files are installed.
//!
//! The layout is that of the Hugging Face hub: a folder per repository, in it one per commit, and `refs/main` with the
//! commit that is used. A file is moved into place once it is complete and verified, so every file in place is
//! usable.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::model_files::{ModelFiles, TOKENIZER_FILES};
use crate::base::folder::{create_private, write_private};
use crate::base::lock::{FileLock, FileLockError};

/// Where the files of a model are at Hugging Face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelSource {
    /// `OWNER/NAME`.
    repository: String,
    /// The ONNX graph, relative to the repository.
    graph: String,
    /// Weights that the graph refers to.
    external: Vec<String>,
}

/// The files of a model could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum ModelStoreError {
    #[error("no `{file}` in `{folder}`")]
    Lacks { file: String, folder: PathBuf },
    #[error(transparent)]
    Busy(#[from] FileLockError),
    #[error("failed to write `{path}`")]
    Write { path: PathBuf, source: std::io::Error },
}

impl ModelStoreError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Lacks { .. } => Some(
                "give the folder of a download of the whole repository, or `models` of the data folder of another machine"
                    .into(),
            ),
            Self::Busy(_) => Some("wait until it is done, and try again".into()),
            Self::Write { .. } => None,
        }
    }
}

impl ModelSource {
    pub(super) fn new(repository: &str, graph: &str, external: &[String]) -> Self {
        Self { repository: repository.to_owned(), graph: graph.to_owned(), external: external.to_vec() }
    }

    /// Returns the repository, `OWNER/NAME`.
    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the files of the model, the small ones first.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let weights = [&self.graph].into_iter().chain(&self.external).map(String::as_str);
        TOKENIZER_FILES.into_iter().chain(weights)
    }

    /// Returns the graph and its weights in a folder that has the files of the repository.
    pub(super) fn in_folder(&self, folder: PathBuf) -> Option<ModelFiles> {
        let is_complete = self.files().all(|file| folder.join(file).is_file());
        let external = self.external.iter().map(|file| folder.join(file)).collect();
        is_complete.then(|| ModelFiles::new(folder.join(&self.graph), external, folder))
    }
}

/// The folders with models of the catalogue.
#[derive(Clone, Debug)]
pub struct ModelStore {
    /// `dr`'s own, the only one that is written to.
    own: PathBuf,
    /// Folders of earlier versions of `dr`, and of other programs.
    others: Vec<PathBuf>,
}

/// The folder for files that are not complete yet. One process at a time holds it.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) folder: PathBuf,
    _lock: FileLock,
}

/// A copy made by [`ModelStore::take`].
#[derive(Debug)]
pub(crate) struct Taken {
    commit: String,
    /// The commit that was used before.
    before: Option<String>,
}

impl ModelStore {
    /// Returns the store in the data folder of the user. `cache` is the folder of earlier versions.
    pub(crate) fn of_user(data: &Path, cache: PathBuf) -> Self {
        let shared = env::var_os("HF_HOME").map(PathBuf::from);
        // Programs of Hugging Face use `hub` in it, fastembed uses the folder itself.
        let shared = shared.into_iter().flat_map(|folder| [folder.join("hub"), folder]);
        Self { own: data.join("models"), others: [cache].into_iter().chain(shared).collect() }
    }

    pub fn in_folder(folder: PathBuf) -> Self {
        Self { own: folder, others: Vec::new() }
    }

    /// Returns the folder that models are downloaded to.
    pub(crate) fn folder(&self) -> &Path {
        &self.own
    }

    /// Finds the files of a model; `None` unless all are there.
    pub(crate) fn find(&self, source: &ModelSource) -> Option<ModelFiles> {
        [&self.own].into_iter().chain(&self.others).find_map(|folder| in_hub_layout(folder, source))
    }

    /// Copies the files of a model from a folder: of the repository, or one in the layout of a hub's cache. If the
    /// path is a file, it is the graph, and the rest is next to it or in the folder above.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is missing, or cannot be copied. Nothing is changed in that case.
    pub(crate) fn take(&self, source: &ModelSource, given: &Path) -> Result<Taken, ModelStoreError> {
        let incoming = self.incoming()?;
        let files = files_in(source, given)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ModelStoreError::Write { path, source: error }
        };
        // Below the models, since a rename works only within a file system.
        let copy = tempfile::tempdir_in(&incoming.folder).map_err(failed(&incoming.folder))?;
        let mut hasher = blake3::Hasher::new();
        for (file, from) in &files {
            let to = copy.path().join(file);
            create_private(to.parent().unwrap_or(&to)).map_err(failed(&to))?;
            fs::copy(from, &to).map_err(failed(&to))?;
            let read = fs::File::open(&to).and_then(|copied| hasher.update_reader(copied).map(drop));
            read.map_err(failed(&to))?;
        }
        // Not in the form of a commit, so that a later download does not request it from the hub.
        let commit = format!("copied-{}", &hasher.finalize().to_hex()[..32]);
        let snapshot = self.snapshot(source, &commit);
        if !snapshot.exists() {
            create_private(snapshot.parent().unwrap_or(&snapshot)).map_err(failed(&snapshot))?;
            fs::rename(copy.path(), &snapshot).map_err(failed(&snapshot))?;
            // Moved, so there is nothing to remove.
            let _ = copy.keep();
        }
        let before = fs::read_to_string(reference_in(&self.own, source)).ok();
        self.publish(source, &commit)?;
        Ok(Taken { commit, before })
    }

    /// Removes an unusable copy, which would prevent a download, and restores the previous commit.
    pub(crate) fn undo(&self, source: &ModelSource, taken: &Taken) -> Result<(), ModelStoreError> {
        let _incoming = self.incoming()?;
        let (snapshot, reference) = (self.snapshot(source, &taken.commit), reference_in(&self.own, source));
        fs::remove_dir_all(&snapshot).map_err(|source| ModelStoreError::Write { path: snapshot, source })?;
        match &taken.before {
            Some(before) => self.publish(source, before),
            None => fs::remove_file(&reference).map_err(|source| ModelStoreError::Write { path: reference, source }),
        }
    }

    /// Takes the folder for files that are not complete.
    pub(super) fn incoming(&self) -> Result<Incoming, ModelStoreError> {
        let folder = self.own.join("incoming");
        create_private(&folder).map_err(|source| ModelStoreError::Write { path: folder.clone(), source })?;
        let lock = FileLock::take(&folder.join("lock"))?;
        Ok(Incoming { folder, _lock: lock })
    }

    /// Returns the commit of a repository that was downloaded before.
    pub(super) fn commit(&self, source: &ModelSource) -> Option<String> {
        let commit = fs::read_to_string(reference_in(&self.own, source)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    pub(super) fn place(&self, source: &ModelSource, commit: &str, file: &str) -> PathBuf {
        self.snapshot(source, commit).join(file)
    }

    /// Moves a complete file to its place.
    pub(super) fn put(
        &self,
        source: &ModelSource,
        commit: &str,
        file: &str,
        from: &Path,
    ) -> Result<(), ModelStoreError> {
        let to = self.place(source, commit, file);
        let put = create_private(to.parent().unwrap_or(&to)).and_then(|()| fs::rename(from, &to));
        put.map_err(|source| ModelStoreError::Write { path: to, source })
    }

    /// Records the commit to use from now on. All its files must be in place.
    pub(super) fn publish(&self, source: &ModelSource, commit: &str) -> Result<(), ModelStoreError> {
        let path = reference_in(&self.own, source);
        let written =
            create_private(path.parent().unwrap_or(&path)).and_then(|()| write_private(&path, commit.as_bytes()));
        written.map_err(|source| ModelStoreError::Write { path, source })
    }

    fn snapshot(&self, source: &ModelSource, commit: &str) -> PathBuf {
        repository_in(&self.own, source).join("snapshots").join(commit)
    }
}

/// Returns whether a text is the name of a commit, and therefore of a folder that cannot lead elsewhere.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn repository_in(folder: &Path, source: &ModelSource) -> PathBuf {
    folder.join(format!("models--{}", source.repository.replace('/', "--")))
}

/// Returns the path of the file that holds the commit in use.
fn reference_in(folder: &Path, source: &ModelSource) -> PathBuf {
    repository_in(folder, source).join("refs/main")
}

/// Finds a model in a folder of the layout of a hub: in the commit in use, else in any commit with all its files,
/// since two models of one repository may be of different commits.
fn in_hub_layout(folder: &Path, source: &ModelSource) -> Option<ModelFiles> {
    let repository = repository_in(folder, source);
    let snapshots = repository.join("snapshots");
    let used = fs::read_to_string(reference_in(folder, source)).ok();
    let used = used.map(|commit| snapshots.join(commit.trim()));
    let mut others: Vec<_> =
        fs::read_dir(&snapshots).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // Folders have no order, and the choice would differ between machines.
    others.sort();
    used.into_iter().chain(others).find_map(|snapshot| source.in_folder(snapshot))
}

/// Returns the files of a model by their names in the repository, with their paths.
fn files_in<'a>(source: &'a ModelSource, given: &Path) -> Result<Vec<(&'a str, PathBuf)>, ModelStoreError> {
    if let Some(files) = in_hub_layout(given, source) {
        return Ok(source.files().map(|file| (file, files.folder().join(file))).collect());
    }
    let (folder, graph) = match given.parent() {
        Some(parent) if given.is_file() => {
            // Repositories have the tokenizer next to `onnx/`, the folder of the graph.
            let above = parent.parent().filter(|_| !parent.join(TOKENIZER_FILES[0]).is_file());
            (above.unwrap_or(parent), Some(given.to_owned()))
        }
        _ => (given, None),
    };
    let found = |file: &'a str| {
        let bare = Path::new(file).file_name().unwrap_or_default();
        let beside = graph.as_deref().and_then(Path::parent).unwrap_or(folder).join(bare);
        let places = [graph.clone().filter(|_| file == source.graph), Some(folder.join(file)), Some(beside)];
        let place = places.into_iter().flatten().find(|path| path.is_file());
        let lacks = || ModelStoreError::Lacks { file: file.to_owned(), folder: folder.to_owned() };
        Ok((file, place.ok_or_else(lacks)?))
    };
    source.files().map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;

    const FILES: [&str; 5] =
        ["onnx/model.onnx", "tokenizer.json", "config.json", "special_tokens_map.json", "tokenizer_config.json"];

    fn fill(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{{\"it\": \"{file}\"}}")).unwrap();
        }
    }

    fn small() -> ModelSource {
        catalogue::find("BGESmallENV15").unwrap().source()
    }

    #[test]
    fn model_is_there_only_if_all_its_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("models--Xenova--bge-small-en-v1.5/snapshots/abc");
        fill(&snapshot, &FILES[..4]);
        let store = ModelStore::in_folder(folder.path().to_owned());
        assert!(store.find(&small()).is_none());
        fill(&snapshot, &FILES[4..]);
        let found = store.find(&small()).unwrap();
        assert_eq!(found.folder(), snapshot);
        let other = folder.path().join("models--Xenova--bge-small-en-v1.5/snapshots/def");
        fill(&other, &FILES);
        fs::create_dir_all(folder.path().join("models--Xenova--bge-small-en-v1.5/refs")).unwrap();
        fs::write(folder.path().join("models--Xenova--bge-small-en-v1.5/refs/main"), "def").unwrap();
        assert_eq!(store.find(&small()).unwrap().folder(), other, "the commit that is used comes first");
    }

    #[test]
    fn files_are_taken_from_a_folder_a_graph_or_the_store_of_another_machine() {
        let given = tempfile::tempdir().unwrap();
        fill(given.path(), &FILES);
        let flat = tempfile::tempdir().unwrap();
        fill(flat.path(), &["model.onnx"]);
        fill(flat.path(), &FILES[1..]);
        let here = tempfile::tempdir().unwrap();
        let sources = [
            given.path().to_owned(),
            given.path().join("onnx/model.onnx"),
            flat.path().to_owned(),
            flat.path().join("model.onnx"),
        ];
        for path in &sources {
            let store = ModelStore::in_folder(here.path().join("models"));
            store.take(&small(), path).unwrap();
            let found = store.find(&small()).unwrap();
            assert_eq!(fs::read_dir(found.folder()).unwrap().count(), 5, "{path:?}");
            let there = tempfile::tempdir().unwrap();
            let other = ModelStore::in_folder(there.path().to_owned());
            other.take(&small(), &here.path().join("models")).unwrap();
            assert!(other.find(&small()).is_some());
            fs::remove_dir_all(here.path().join("models")).unwrap();
        }
    }

    #[test]
    fn folder_without_a_file_of_the_model_changes_nothing_and_says_which() {
        let (given, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(given.path(), &FILES[..4]);
        let store = ModelStore::in_folder(here.path().to_owned());
        let error = store.take(&small(), given.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("no `tokenizer_config.json` in `{}`", given.path().display()));
        assert!(store.find(&small()).is_none());
        assert!(!here.path().join("models--Xenova--bge-small-en-v1.5").exists());
    }

    #[test]
    fn copy_that_is_undone_leaves_the_model_that_was_there_before() {
        let (given, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(given.path(), &FILES);
        let store = ModelStore::in_folder(here.path().to_owned());
        let taken = store.take(&small(), given.path()).unwrap();
        store.undo(&small(), &taken).unwrap();
        assert!(store.find(&small()).is_none());

        let commit = "0123456789".repeat(4);
        let snapshot = store.snapshot(&small(), &commit);
        fill(&snapshot, &FILES);
        store.publish(&small(), &commit).unwrap();
        let taken = store.take(&small(), given.path()).unwrap();
        assert_ne!(store.find(&small()).unwrap().folder(), snapshot);
        store.undo(&small(), &taken).unwrap();
        assert_eq!(store.find(&small()).unwrap().folder(), snapshot);
        assert_eq!(store.commit(&small()), Some(commit));
    }

    #[test]
    fn second_process_is_told_that_a_model_is_being_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let store = ModelStore::in_folder(folder.path().to_owned());
        let _first = store.incoming().unwrap();
        assert!(matches!(store.incoming(), Err(ModelStoreError::Busy(_))));
    }
}
