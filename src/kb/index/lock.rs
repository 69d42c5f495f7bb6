//! The writer lock: one process at a time changes an index; readers never wait.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

const LOCK_FILE: &str = "writer.lock";

/// Held by the one process that may write; released when dropped, also when the process is killed.
#[derive(Debug)]
pub struct WriterLock {
    _file: File,
}

/// The lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process is writing.
    #[error("index is being written by {holder}")]
    Held {
        /// What the lock file says of its holder.
        holder: String,
    },

    /// The lock file could not be opened or written.
    #[error("failed to lock `{path}`")]
    File {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl WriterLock {
    /// Takes the lock of the index in `folder`, without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Held`] with the process id and starting time of the holder.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(LOCK_FILE);
        let failed = |source| LockError::File { path: path.clone(), source };
        // The folder may be somebody else's: a link here would have another file overwritten, a pipe would hang.
        if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(failed(std::io::Error::other("not a regular file")));
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { holder: holder(&mut file) }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let note = format!("process {} since {}", std::process::id(), jiff::Timestamp::now().strftime("%FT%TZ"));
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes())).map_err(failed)?;
        Ok(Self { _file: file })
    }

    /// Returns who holds the lock of the index in `folder` right now, if anyone does.
    pub fn current_holder(folder: &Path) -> Option<String> {
        let path = folder.join(LOCK_FILE);
        let mut file =
            path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).and_then(|_| File::open(&path).ok())?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(holder(&mut file)),
            _ => None,
        }
    }
}

fn holder(file: &mut File) -> String {
    let mut note = String::new();
    match file.take(200).read_to_string(&mut note) {
        Ok(_) if !note.is_empty() => note,
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_writer_is_told_who_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let first = WriterLock::take(folder.path()).unwrap();
        let error = WriterLock::take(folder.path()).unwrap_err();
        assert!(error.to_string().contains(&format!("process {} since", std::process::id())), "{error}");
        assert!(WriterLock::current_holder(folder.path()).is_some());
        drop(first);
        assert!(WriterLock::current_holder(folder.path()).is_none());
        WriterLock::take(folder.path()).unwrap();
    }
}
