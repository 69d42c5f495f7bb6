//! Folders and files that only their owner can read.

use std::io::{Error, ErrorKind, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a folder, and those above it that are missing, with access only for its owner. An existing folder keeps its
/// permissions.
pub(crate) fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Returns a hint if a folder could not be created because something else has its name.
pub(crate) fn in_the_way(folder: &Path, error: &Error) -> Option<String> {
    let is_taken = matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory);
    is_taken.then(|| format!("it has to be a folder: remove what has that name, `{}`", folder.display()))
}

/// Writes a file atomically, with access only for its owner. Its folder must exist.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    // Temporary files are created with mode 0600. In the same folder, because a rename is atomic within a file system.
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    put_in_place(file, path)
}

/// Opens a file for reading and writing, with access only for its owner if it is created.
pub(crate) fn open_private(path: &Path) -> std::io::Result<std::fs::File> {
    // The folder may come from an untrusted source: opening a symbolic link would overwrite its target, and opening a
    // pipe would block.
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Error::other("not a regular file"));
    }
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Moves a file written in the same folder to `path`, and syncs it to disk.
pub(super) fn put_in_place(file: NamedTempFile, path: &Path) -> std::io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path)?;
    // A power cut may undo the rename until the folder is synced too. Windows cannot open a folder as a file.
    #[cfg(unix)]
    std::fs::File::open(path.parent().unwrap_or(path))?.sync_all()?;
    Ok(())
}

/// Returns the secret in a file, which is created with a random one if `creates`.
pub(crate) fn secret_in(path: &Path, creates: bool) -> std::io::Result<[u8; 32]> {
    let secret = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && creates => {
            let folder = path.parent().unwrap_or(path);
            create_private(folder)?;
            let mut file = NamedTempFile::new_in(folder)?;
            file.write_all(&rand::random::<[u8; 32]>())?;
            // A power cut could otherwise leave an empty file, which is no secret and is never replaced.
            file.as_file().sync_all()?;
            match file.persist_noclobber(path) {
                // Another process was first: its secret is used.
                Err(error) if error.error.kind() != ErrorKind::AlreadyExists => return Err(error.error),
                _ => std::fs::read(path)?,
            }
        }
        read => read?,
    };
    secret.try_into().map_err(|_| Error::new(ErrorKind::InvalidData, "not 32 bytes"))
}
