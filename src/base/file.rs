//! Reads files from elsewhere, whose size cannot be trusted, and replaces them.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use super::folder::put_in_place;

/// Reads a text file of at most `max_bytes`. Also reads pipes, to the same limit.
///
/// # Errors
///
/// Returns an error for a longer file, before more than `max_bytes` are in memory.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Result<String> {
    let too_long = || Error::other(format!("longer than {} kB", max_bytes / 1_000));
    let file = File::open(path)?;
    if file.metadata()?.len() > max_bytes {
        return Err(too_long());
    }
    let mut text = String::new();
    // A file may grow, and the length of a pipe is not known.
    file.take(max_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes { Err(too_long()) } else { Ok(text) }
}

/// Returns the outcome of an operation on a file that need not exist.
pub(crate) fn unless_missing(done: Result<()>) -> Result<()> {
    done.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Replaces a text file atomically; for a symbolic link, its target. Its permissions stay.
///
/// # Errors
///
/// Returns an error if the file does not exist, or its folder cannot be written.
pub(crate) fn replace_text(path: &Path, text: &str) -> Result<()> {
    let path = path.canonicalize()?;
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(&path))?;
    file.write_all(text.as_bytes())?;
    // A temporary file is readable by its owner only.
    file.as_file().set_permissions(path.metadata()?.permissions())?;
    put_in_place(file, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn link_stays_when_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace_text(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "new");
    }

    #[test]
    fn file_that_is_longer_than_allowed_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read_text(&path, 4_000).unwrap_err().to_string(), "longer than 4 kB");
        std::fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path, 4).is_err());
    }
}
