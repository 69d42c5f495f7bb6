//! The writer lock: one process at a time changes an index; readers never wait.

use std::path::Path;

use crate::base::lock::{FileLock, FileLockError};

const LOCK_FILE: &str = "writer.lock";

/// Held by the one process that may write; released when dropped, also when the process is killed.
#[derive(Debug)]
pub struct WriterLock {
    _lock: FileLock,
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
    #[error(transparent)]
    File(FileLockError),
}

impl WriterLock {
    /// Takes the lock of the index in `folder`, without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Held`] with the process id and starting time of the holder.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        match FileLock::take(&folder.join(LOCK_FILE)) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err(FileLockError::Held { holder, .. }) => Err(LockError::Held { holder }),
            Err(error) => Err(LockError::File(error)),
        }
    }

    /// Returns who holds the lock of the index in `folder` right now, if anyone does.
    pub fn current_holder(folder: &Path) -> Option<String> {
        FileLock::holder(&folder.join(LOCK_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_writer_is_told_that_the_index_is_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let first = WriterLock::take(folder.path()).unwrap();
        let error = WriterLock::take(folder.path()).unwrap_err();
        assert!(error.to_string().starts_with("index is being written by process"), "{error}");
        assert!(WriterLock::current_holder(folder.path()).is_some());
        drop(first);
        WriterLock::take(folder.path()).unwrap();
    }
}
