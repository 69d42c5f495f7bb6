//! A folder of files that only this user could have written.
//!
//! The folder may have come with a project, so each file is sealed with a key in the user's data folder, which no
//! project has. A file with another seal, or with changed contents, counts as missing.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::base::folder::{create_private, secret_in, write_private};
use crate::base::id::ContentHash;

/// A folder of sealed files: `KIND/ab/<hash>.json`.
#[derive(Clone, Debug)]
pub(crate) struct SealedFolder {
    folder: PathBuf,
    /// File of the key of the seals, created with the first file.
    key: PathBuf,
}

/// A file as it is stored.
#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    #[serde(flatten)]
    contents: T,
    /// Keyed hash of the contents.
    seal: String,
}

/// A file could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("failed to store `{path}`")]
pub(crate) struct SealedFolderError {
    path: PathBuf,
    source: std::io::Error,
}

impl SealedFolder {
    /// Returns a folder, which is created with its first file, as is the file `key`.
    pub(crate) fn new(folder: PathBuf, key: PathBuf) -> Self {
        Self { folder, key }
    }

    /// Returns the path of a file, or `None` if the name is no hash: it may come from a file or a model.
    pub(crate) fn path(&self, kind: &str, name: &ContentHash) -> Option<PathBuf> {
        let name = name.as_str();
        let is_hash =
            name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        is_hash.then(|| self.folder.join(kind).join(&name[..2]).join(format!("{name}.json")))
    }

    /// Writes a file whole or not at all, readable by its owner only.
    pub(crate) fn write<T: Serialize>(
        &self,
        kind: &str,
        name: &ContentHash,
        contents: &T,
    ) -> Result<(), SealedFolderError> {
        // A name that is no hash has an empty path, which cannot be written.
        let path = self.path(kind, name).unwrap_or_default();
        let write = || {
            let secret = secret_in(&self.key, true)?;
            create_private(path.parent().unwrap_or(&self.folder))?;
            write_private(&path, &serde_json::to_vec(&Sealed { seal: seal(&secret, contents)?, contents })?)
        };
        write().map_err(|source| SealedFolderError { path: path.clone(), source })
    }

    /// Reads a file with a valid seal.
    pub(crate) fn read<T: Serialize + DeserializeOwned>(&self, kind: &str, name: &ContentHash) -> Option<T> {
        let bytes = std::fs::read(self.path(kind, name)?).ok()?;
        let Sealed { contents, seal: found } = serde_json::from_slice::<Sealed<T>>(&bytes).ok()?;
        // Makes no key: no file can have the seal of a new one.
        let expected = seal(&secret_in(&self.key, false).ok()?, &contents).ok()?;
        (found == expected).then_some(contents)
    }
}

fn seal<T: Serialize>(secret: &[u8; 32], contents: &T) -> std::io::Result<String> {
    Ok(blake3::keyed_hash(secret, &serde_json::to_vec(contents)?).to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_hash_becomes_no_path() {
        let folder = SealedFolder::new("/".into(), "/key".into());
        let long = format!("../../etc/passwd{}", "a".repeat(48));
        for text in ["", "é", "../../etc/passwd", long.as_str(), &"A".repeat(64)] {
            assert_eq!(folder.path("pages", &ContentHash::from_stored(text)), None, "{text}");
        }
    }
}
