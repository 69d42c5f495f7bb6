//! Files of the user that commands write: reports, plans and exports.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::CliError;
use crate::base::file::replace_text;

/// Folder of `dr`'s own files.
const OWN: &str = ".dr";

/// Checks that a file is writable, before anything is spent on its contents. Its contents stay if the command fails,
/// and no new file is left behind.
pub(super) fn check_writable(file: &Path) -> Result<(), CliError> {
    if is_own(file) {
        let message = format!("`{}` is in the folder of dr's own files", file.display());
        return Err(CliError::Usage { message, hint: Some("name a file elsewhere".into()) });
    }
    probe(file).map_err(CliError::file("write", file))
}

/// Writes a file, following links. An existing one is replaced when the new text is complete, so that a full disk does
/// not cost both.
pub(super) fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let written = match () {
        () if is_stream(file) => append(file, text),
        () if file.is_file() => replace(file, text),
        () => std::fs::write(file, text),
    };
    written.map_err(CliError::file("write", file))
}

fn is_own(file: &Path) -> bool {
    let folder = || file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = file.canonicalize().or_else(|_| folder().canonicalize());
    real.is_ok_and(|real| real.components().any(|part| part.as_os_str() == OWN))
}

/// Returns whether a file is a pipe or a device, or a name for an open file, which may be a regular one.
fn is_stream(file: &Path) -> bool {
    let is_special = file.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    is_special || file.starts_with("/dev") || file.starts_with("/proc")
}

fn probe(file: &Path) -> io::Result<()> {
    // A stream cannot be checked without side effects.
    if is_stream(file) {
        return Ok(());
    }
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(_) => std::fs::remove_file(file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let is_dangling = !file.exists();
            OpenOptions::new().append(true).create(is_dangling).open(file)?;
            if is_dangling { std::fs::remove_file(file.canonicalize()?) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

fn append(file: &Path, text: &str) -> io::Result<()> {
    // Opened anew, it would be written from its beginning, or after what this process has printed.
    if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| file == Path::new(name)) {
        return io::stdout().lock().write_all(text.as_bytes());
    }
    OpenOptions::new().append(true).open(file)?.write_all(text.as_bytes())
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    match replace_text(file, text) {
        // The file may be writable in a folder that is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => std::fs::write(file, text),
        done => done,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn check_leaves_files_as_they_are_and_no_new_one_behind_a_link_either() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "old").unwrap();
        symlink("target", at("dangling")).unwrap();
        for name in ["old", "new", "dangling"] {
            check_writable(&at(name)).unwrap();
        }
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "old");
        assert!(!at("new").exists() && !at("target").exists() && at("dangling").is_symlink());
        std::fs::create_dir(at(OWN)).unwrap();
        symlink(at(OWN).join("state.db"), at("link")).unwrap();
        for name in [".dr/state.db", ".dr/new"] {
            assert!(matches!(check_writable(&at(name)), Err(CliError::Usage { .. })), "{name}");
        }
    }

    #[test]
    fn existing_file_is_replaced_behind_its_link_with_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "a longer text").unwrap();
        std::fs::set_permissions(at("old"), std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink("old", at("link")).unwrap();
        write(&at("link"), "new").unwrap();
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "new");
        assert_eq!(at("old").metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
