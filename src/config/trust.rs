//! The folders a user trusts.
//!
//! A folder that was cloned, unzipped or synced may contain a `.dr` and a `.env` that another person made. A `.dr` is
//! used only if this user's `dr` made it where it is, or the user trusts its folder (`dr trust`). A key in `.env` is
//! read only in a folder the user trusts.
//!
//! `dr` puts a random id into every `.dr` it makes. A note in the user's data folder, which does not travel with a
//! project, records path and id. A copy at another path has no note, and neither has a `.dr` that replaced the first.
//! On Unix, the note also records the owner and whether others can write, so that a change of either is detected. On
//! Windows, only path and id are compared.
//!
//! Owner and mode are compared with those at the time of trust, rather than required as in OpenSSH's `StrictModes`:
//! with the umask 002 of many systems, every folder of a user is group-writable. Git's `safe.directory` checks only
//! the owner. A sticky bit does not help: others could still create a `.env`.
//!
//! An index that the user names and that is in no `.dr` (`--index`) needs no note: its path did not come with a folder,
//! and its runs are in the user's data folder. Its owner and mode are still checked, see [`Trust::check_named`].

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{DOTENV_FILE, PROJECT_FILE};
use crate::base::file::unless_missing;
use crate::base::folder::{create_private, in_the_way, write_private};
use crate::base::id::ContentHash;
use crate::kb::index::DR_FOLDER;

/// Folder of the notes in the user's data folder.
const NOTES: &str = "trusted";

/// File in `.dr` with its id.
const ID_FILE: &str = "id";

/// Keeps a `.dr` out of version control.
const IGNORE_FILE: &str = ".gitignore";

/// Largest id file that is read, in bytes. An id has 32.
const MAX_ID_BYTES: u64 = 64;

/// Notes about the folders a user trusts.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    notes: PathBuf,
}

/// A folder, and its parts that are used only if it is trusted.
#[derive(Debug)]
pub(crate) struct Trustable {
    /// Its full path.
    pub(crate) folder: PathBuf,
    /// Names of files, each with the use that trust would allow.
    pub(crate) parts: Vec<(&'static str, &'static str)>,
}

/// The contents of a note. Its file name is a hash of the path, and of the id if it is about a `.dr`.
#[derive(Debug, Serialize, Deserialize)]
struct TrustNote {
    /// Path of the folder or the `.dr`, for people who read the file.
    path: String,
    /// Access to it when the note was written.
    access: FolderAccess,
}

/// Owner of a folder, and whether others can write to it; unknown on Windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FolderAccess {
    owner: Option<u32>,
    is_open: bool,
}

/// A `.dr` or an index may not be used, or trust could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It came with its folder, or an older version of `dr` made it.
    #[error("`{path}` was not created by your `dr`, so it is not used")]
    Foreign { path: PathBuf },
    #[error("owner of `{path}` has changed, so it is not used")]
    Owner { path: PathBuf },
    #[error("`{path}` belongs to another user, so it is not used")]
    Theirs { path: PathBuf },
    #[error("other users can write to `{path}`, so it is not used")]
    Open { path: PathBuf },
    #[error("failed to write `{path}`")]
    Note { path: PathBuf, source: Error },
    #[error("failed to {action} `{path}`")]
    File { action: &'static str, path: PathBuf, source: Error },
}

impl TrustError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        let folder = |path: &Path| path.parent().unwrap_or(path).display().to_string();
        match self {
            Self::Foreign { path } => Some(format!(
                "if it is yours or you trust it, run `dr trust {}`; otherwise delete it, and `dr index` makes a new one \
                 (a `.dr` that was moved, or made by an older version, has to be trusted once)",
                folder(path)
            )),
            Self::Owner { path } => Some(format!("if you trust the new owner, run `dr trust {}`", folder(path))),
            Self::Theirs { path } => Some(format!("if you trust that user, run `dr trust {}`", path.display())),
            Self::Open { path } => Some(format!("run `chmod go-w {}`", path.display())),
            Self::Note { .. } => Some(
                "what dr made and what you trust is noted there: set `XDG_DATA_HOME` or `HOME` to a folder that you can \
                 write to"
                    .to_owned(),
            ),
            Self::File { action: "create", path, source } => in_the_way(path, source),
            Self::File { .. } => None,
        }
    }

    fn file(action: &'static str, path: &Path) -> impl FnOnce(Error) -> Self {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}

impl Trustable {
    /// Finds the parts of a folder that are used only if it is trusted.
    pub(crate) fn of(folder: &Path) -> Result<Self, TrustError> {
        let (folder, _) = both(folder)?;
        let parts =
            [(DR_FOLDER, "its index and its runs"), (DOTENV_FILE, "a key in it"), (PROJECT_FILE, "models it names")];
        let mut parts: Vec<_> =
            parts.into_iter().filter(|(name, _)| folder.join(name).symlink_metadata().is_ok()).collect();
        if parts.is_empty() {
            parts.push((".", "an index here that `--index` names"));
        }
        Ok(Self { folder, parts })
    }
}

impl Trust {
    /// Returns the notes in the user's data folder, which is created with the first one.
    pub(super) fn new(data: &Path) -> Self {
        Self { notes: data.join(NOTES) }
    }

    /// Returns whether the user trusts a folder, so that a key in its `.env` is read.
    pub(super) fn is_trusted(&self, folder: &Path) -> bool {
        let Ok(folder) = folder.canonicalize() else { return false };
        let note = self.read(&[&folder.to_string_lossy()]);
        note.is_some_and(|note| {
            let is_opened = |access: FolderAccess| access.is_open && !note.access.is_open;
            FolderAccess::of(&folder).is_ok_and(|access| access.owner == note.access.owner && !is_opened(access))
        })
    }

    /// Checks that a `.dr` may be used. A missing or empty one may be used, because it contains nothing to trust.
    ///
    /// # Errors
    ///
    /// Returns an error for a `.dr` that this user's `dr` did not make, and that the user does not trust.
    pub(crate) fn check(&self, dr: &Path) -> Result<(), TrustError> {
        if is_absent(dr) {
            return Ok(());
        }
        let place = place(dr)?;
        let note = self.read(&[&place, &id_of(dr)]).ok_or_else(|| TrustError::Foreign { path: dr.to_owned() })?;
        let access = FolderAccess::of(dr).map_err(TrustError::file("find", dr))?;
        if access.owner != note.access.owner {
            return Err(TrustError::Owner { path: dr.to_owned() });
        }
        if access.is_open && !note.access.is_open { Err(TrustError::Open { path: dr.to_owned() }) } else { Ok(()) }
    }

    /// Checks that the folder of an index outside any `.dr` may be used: it belongs to the user and other users
    /// cannot write to it, or it is unchanged since the user trusted it. A missing or empty one may be used.
    ///
    /// # Errors
    ///
    /// Returns an error for a folder of another user, or one that other users can write to.
    pub(crate) fn check_named(&self, index: &Path) -> Result<(), TrustError> {
        if is_absent(index) {
            return Ok(());
        }
        let failed = || TrustError::file("find", index);
        let folder = index.canonicalize().map_err(failed())?;
        let access = FolderAccess::of(&folder).map_err(failed())?;
        let expected = match self.read(&[&folder.to_string_lossy()]) {
            Some(note) => note.access,
            None => FolderAccess::of_new_files().map_err(failed())?,
        };
        match () {
            () if access.owner != expected.owner => Err(TrustError::Theirs { path: folder }),
            () if access.is_open && !expected.is_open => Err(TrustError::Open { path: folder }),
            () => Ok(()),
        }
    }

    /// Makes a `.dr` that only the user can read, unless there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if it or its note cannot be written, or if another process concurrently makes a `.dr` that
    /// may not be used.
    pub(crate) fn make(&self, dr: &Path) -> Result<(), TrustError> {
        if !is_absent(dr) {
            return Ok(());
        }
        let base = dr.parent().unwrap_or(dr);
        let failed = || TrustError::file("create", dr);
        std::fs::create_dir_all(base).map_err(failed())?;
        // Created under a temporary name and renamed, so that another process never finds a `.dr` without its id.
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let new = builder.prefix(".dr-").tempdir_in(base).map_err(failed())?;
        let id = new_id();
        write_private(&new.path().join(ID_FILE), id.as_bytes()).map_err(failed())?;
        write_private(&new.path().join(IGNORE_FILE), b"*\n").map_err(failed())?;
        let parts = [place(dr)?, id];
        // The note first, so that a process that finds the `.dr` also finds its note.
        self.write(&[&parts[0], &parts[1]], dr, FolderAccess::of(new.path()).map_err(failed())?)?;
        // Windows does not rename a folder onto an empty one. A folder with contents is not removed.
        let _ = std::fs::remove_dir(dr);
        match std::fs::rename(new.path(), dr) {
            Ok(()) => {
                // The folder was renamed, so there is nothing left to remove under its old name.
                let _ = new.keep();
                Ok(())
            }
            Err(source) => {
                self.remove(&[&parts[0], &parts[1]])?;
                // Another process may have been faster. Its `.dr` has its own note.
                if is_absent(dr) { Err(failed()(source)) } else { self.check(dr) }
            }
        }
    }

    /// Trusts a folder: its `.dr` and the key in its `.env` are used from now on. Returns its full path.
    pub(crate) fn add(&self, folder: &Path) -> Result<PathBuf, TrustError> {
        let (folder, dr) = both(folder)?;
        if !is_absent(&dr) {
            // Before its access is noted: once noted as open to others, it could be opened again unnoticed.
            close(&dr);
            let mut id = id_of(&dr);
            if id.is_empty() {
                // A `.dr` of another user cannot be written to; its note has no id.
                let _ = write_private(&dr.join(ID_FILE), new_id().as_bytes());
                id = id_of(&dr);
            }
            let access = FolderAccess::of(&dr).map_err(TrustError::file("find", &dr))?;
            self.write(&[&place(&dr)?, &id], &dr, access)?;
        }
        // A separate note: a `.dr` made by `dr` does not make the key in the folder's `.env` trusted.
        let access = FolderAccess::of(&folder).map_err(TrustError::file("find", &folder))?;
        self.write(&[&folder.to_string_lossy()], &folder, access)?;
        Ok(folder)
    }

    /// Stops trusting a folder and its `.dr`. Returns its full path.
    pub(crate) fn revoke(&self, folder: &Path) -> Result<PathBuf, TrustError> {
        let (folder, dr) = both(folder)?;
        self.remove(&[&folder.to_string_lossy()])?;
        self.remove(&[&place(&dr)?, &id_of(&dr)])?;
        Ok(folder)
    }

    /// Returns the path of a note. The hash keeps any text from becoming part of the path.
    fn path(&self, parts: &[&str]) -> PathBuf {
        // No path contains a NUL, so a path with an id is never taken for another path.
        self.notes.join(ContentHash::of(parts.join("\0").as_bytes()).as_str())
    }

    fn read(&self, parts: &[&str]) -> Option<TrustNote> {
        serde_json::from_slice(&std::fs::read(self.path(parts)).ok()?).ok()
    }

    fn write(&self, parts: &[&str], about: &Path, access: FolderAccess) -> Result<(), TrustError> {
        let (path, note) = (self.path(parts), TrustNote { path: about.to_string_lossy().into_owned(), access });
        let write = || {
            create_private(&self.notes)?;
            write_private(&path, &serde_json::to_vec(&note)?)
        };
        write().map_err(|source| TrustError::Note { path, source })
    }

    fn remove(&self, parts: &[&str]) -> Result<(), TrustError> {
        let path = self.path(parts);
        unless_missing(std::fs::remove_file(&path)).map_err(TrustError::file("remove", &path))
    }
}

impl FolderAccess {
    #[cfg(unix)]
    fn of(folder: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;

        let of = |metadata: Metadata| Self { owner: Some(metadata.uid()), is_open: metadata.mode() & 0o022 != 0 };
        folder.metadata().map(of)
    }

    #[cfg(not(unix))]
    fn of(folder: &Path) -> std::io::Result<Self> {
        folder.metadata().map(|_: Metadata| Self::default())
    }

    /// Returns the access to files made by this process: they belong to the user, and only the user has access.
    #[cfg(unix)]
    fn of_new_files() -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;

        // The standard library does not provide the user id; the owner of a new file does.
        let owner = tempfile::tempfile()?.metadata()?.uid();
        Ok(Self { owner: Some(owner), is_open: false })
    }

    #[cfg(not(unix))]
    fn of_new_files() -> std::io::Result<Self> {
        Ok(Self::default())
    }
}

/// Returns whether `.dr` is missing, empty, or not a directory.
fn is_absent(dr: &Path) -> bool {
    match std::fs::read_dir(dr) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Returns a folder and its `.dr`. Naming a `.dr` names its folder.
fn both(folder: &Path) -> Result<(PathBuf, PathBuf), TrustError> {
    let mut folder = folder.canonicalize().map_err(TrustError::file("find", folder))?;
    if folder.ends_with(DR_FOLDER) {
        folder.pop();
    }
    let dr = folder.join(DR_FOLDER);
    Ok((folder, dr))
}

/// Returns the path of a `.dr` as recorded in notes. If `.dr` itself is a symbolic link, it is not followed: a link
/// that came with a folder would otherwise count as the trusted `.dr` it leads to.
fn place(dr: &Path) -> Result<String, TrustError> {
    let base = dr.parent().unwrap_or(dr);
    let base = base.canonicalize().map_err(TrustError::file("find", base))?;
    Ok(base.join(DR_FOLDER).to_string_lossy().into_owned())
}

fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Returns the id in a `.dr`, empty without one.
fn id_of(dr: &Path) -> String {
    let read = || {
        let path = dr.join(ID_FILE);
        // Not a link out of the folder, and not a pipe, which could block.
        if !path.symlink_metadata()?.is_file() {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        let mut id = String::new();
        std::fs::File::open(path)?.take(MAX_ID_BYTES).read_to_string(&mut id)?;
        Ok(id.trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Takes access to a `.dr` from all but its owner. Fails for another user's `.dr`, in which case the note records the
/// existing access.
#[cfg(unix)]
fn close(dr: &Path) {
    use std::os::unix::fs::PermissionsExt;

    if let Ok(metadata) = dr.metadata() {
        let _ = std::fs::set_permissions(dr, std::fs::Permissions::from_mode(metadata.permissions().mode() & 0o700));
    }
}

#[cfg(not(unix))]
fn close(_: &Path) {}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folder_that_others_can_write_to_is_trusted_only_if_they_could_when_the_user_trusted_it() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust::new(&folder.path().join("data"));
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let mode = |mode| set_permissions(&project, Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        trust.add(&project).unwrap();
        for (later, is_trusted) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, false), (0o700, true)] {
            mode(later);
            assert_eq!(trust.is_trusted(&project), is_trusted, "{later:o}");
        }
        mode(0o775);
        trust.add(&project).unwrap();
        assert!(trust.is_trusted(&project));
    }
}
