//! Locks between processes, held through an open file.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::folder::open_private;

/// Name of a holder that has left no note.
const ANOTHER: &str = "another process";

/// Time between two attempts to take a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// Number of attempts to take a shared lock, since [`FileLock::holder`] shares it for a moment.
const ATTEMPTS: u32 = 5;

/// A lock on a file, exclusive or shared. Released on drop; the system releases it if the process is killed.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// The lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    /// `holder` is its process id and start time, or `another process`.
    #[error("`{path}` is held by {holder}")]
    Held { path: PathBuf, holder: String },
    #[error("failed to lock `{path}`")]
    File { path: PathBuf, source: std::io::Error },
}

impl FileLock {
    /// Acquires the lock at `path` without waiting for the process that holds it, creating the file if necessary.
    ///
    /// # Errors
    ///
    /// Returns [`FileLockError::Held`] with the process id and start time of the holder.
    pub fn take(path: &Path) -> Result<Self, FileLockError> {
        Self::take_with(path, || sleep(PAUSE))
    }

    fn take_with(path: &Path, mut pause: impl FnMut()) -> Result<Self, FileLockError> {
        let failed = |source| FileLockError::File { path: path.to_path_buf(), source };
        let held = |holder| FileLockError::Held { path: path.to_path_buf(), holder };
        let mut file = open_private(path).map_err(failed)?;
        let mut attempts = 1..ATTEMPTS;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // If it can be shared, another process may only be looking, see `holder`.
                Err(TryLockError::WouldBlock) if file.try_lock_shared().is_err() => return Err(held(note(&mut file))),
                Err(TryLockError::WouldBlock) if attempts.next().is_some() => {
                    file.unlock().map_err(failed)?;
                    pause();
                }
                // Processes that share the lock leave no note, so the note in the file is from an earlier holder.
                Err(TryLockError::WouldBlock) => return Err(held(ANOTHER.to_owned())),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        let note = this_process();
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes())).map_err(failed)?;
        Ok(Self { _file: file })
    }

    /// Acquires a shared lock at `path` without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`FileLockError::Held`] if a process holds the lock exclusively.
    pub(crate) fn share(path: &Path) -> Result<Self, FileLockError> {
        let failed = |source| FileLockError::File { path: path.to_path_buf(), source };
        let mut file = open_private(path).map_err(failed)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                Err(FileLockError::Held { path: path.to_path_buf(), holder: note(&mut file) })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Repeats an attempt to take or share a lock that is held for moments only. Blocks for up to `patience`.
    pub(crate) fn wait(
        patience: Duration,
        attempt: impl Fn() -> Result<Self, FileLockError>,
    ) -> Result<Self, FileLockError> {
        let began = Instant::now();
        loop {
            match attempt() {
                Err(FileLockError::Held { .. }) if began.elapsed() < patience => sleep(PAUSE),
                done => return done,
            }
        }
    }

    /// Returns the note of the process that holds the lock at `path`, or `None` if the lock is free.
    pub fn holder(path: &Path) -> Option<String> {
        let mut file =
            path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).and_then(|_| File::open(path).ok())?;
        // Shared, so that two processes checking at the same time do not take each other for the holder.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(note(&mut file)),
            _ => None,
        }
    }
}

fn note(file: &mut File) -> String {
    let mut note = String::new();
    match file.take(200).read_to_string(&mut note) {
        Ok(_) if !note.is_empty() => note,
        _ => ANOTHER.to_owned(),
    }
}

/// Names this process, as the holder of a lock.
pub(crate) fn this_process() -> String {
    format!("process {} since {}", std::process::id(), jiff::Timestamp::now().strftime("%FT%TZ"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_process_is_told_who_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let first = FileLock::take(&path).unwrap();
        let error = FileLock::take(&path).unwrap_err();
        let is_named = error.to_string().contains(&format!("process {} since", std::process::id()));
        // Windows lets no other process read a locked file.
        assert!(is_named || cfg!(windows) && error.to_string().ends_with(ANOTHER), "{error}");
        assert!(FileLock::holder(&path).is_some());
        drop(first);
        assert!(FileLock::holder(&path).is_none());
        FileLock::take(&path).unwrap();
    }

    #[test]
    fn lock_is_taken_although_another_process_looks_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let mut looking = Some(FileLock::share(&path).unwrap());
        FileLock::take_with(&path, || drop(looking.take())).unwrap();
    }

    #[test]
    fn shared_lock_excludes_one_that_is_held_alone_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        drop(FileLock::take(&path).unwrap());
        let shared = [FileLock::share(&path).unwrap(), FileLock::share(&path).unwrap()];
        let error = FileLock::take(&path).unwrap_err();
        assert!(error.to_string().ends_with("is held by another process"), "no earlier holder is named: {error}");
        drop(shared);
        let _alone = FileLock::take(&path).unwrap();
        assert!(matches!(FileLock::share(&path), Err(FileLockError::Held { .. })));
    }
}
