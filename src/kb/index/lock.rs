//! The writer lock of a local index. Readers do not take it and never wait.

use std::path::Path;

use crate::base::lock::{FileLock, FileLockError};

const LOCK_FILE: &str = "writer.lock";

/// Exclusive permission to write an index. Released on drop, and by the system if the process is killed.
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
        /// Process id and start time from the lock file.
        holder: String,
    },

    /// The lock file could not be opened, locked or written.
    #[error(transparent)]
    File(FileLockError),
}

impl WriterLock {
    /// Acquires the lock of the index in `folder` without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Held`] with the process id and start time of the holder.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        match FileLock::take(&folder.join(LOCK_FILE)) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err(FileLockError::Held { holder, .. }) => Err(LockError::Held { holder }),
            Err(error) => Err(LockError::File(error)),
        }
    }

    /// Returns the process that holds the lock of the index in `folder`, or `None` if it is free.
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
