//! The tools of each server that the user has accepted, as hashes of their descriptions and schemas.
//!
//! A server may change the description of a tool after the user has allowed it, and so instruct a model. The first
//! use of a tool accepts its description; later changes need `dr trust --mcp NAME`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::folder::{create_private, write_private};
use crate::base::id::ContentHash;

/// Folder of the records in the user's data folder.
const FOLDER: &str = "mcp";

/// Records in the user's data folder, a file for each server.
#[derive(Clone, Debug)]
pub(crate) struct KnownTools {
    folder: PathBuf,
}

/// A record, by the name of the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ToolRecord {
    tools: BTreeMap<String, ContentHash>,
}

/// How a tool compares with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was never used.
    New,
    /// Its description is the accepted one.
    Same,
    /// Its description differs, or the record cannot be read.
    Changed,
}

/// The record of a server cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{path}`")]
pub struct KnownToolsError {
    action: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

impl KnownTools {
    /// Returns the records in the user's data folder, which is created with the first one.
    pub(crate) fn new(data: &Path) -> Self {
        Self { folder: data.join(FOLDER) }
    }

    /// Compares the descriptions of a server's tools with those on record. Returns one entry for each tool.
    pub(super) fn compare(&self, server: &str, tools: &[(&str, &ContentHash)]) -> Vec<Known> {
        let record = self.read(server);
        let known = |(name, hash): &(&str, &ContentHash)| match &record {
            // Not `New`, which the first use would accept: the user decides.
            Err(_) => Known::Changed,
            Ok(record) => match record.tools.get(*name) {
                None => Known::New,
                Some(known) if known == *hash => Known::Same,
                Some(_) => Known::Changed,
            },
        };
        tools.iter().map(known).collect()
    }

    /// Accepts the descriptions of a server's tools. A record that cannot be read is replaced.
    pub(super) fn accept(&self, server: &str, tools: &[(&str, &ContentHash)]) -> Result<(), KnownToolsError> {
        let mut record = self.read(server).unwrap_or_default();
        record.tools.extend(tools.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).clone())));
        let path = self.path(server);
        let write = || {
            create_private(&self.folder)?;
            write_private(&path, &serde_json::to_vec(&record)?)
        };
        write().map_err(|source| KnownToolsError { action: "write", path: path.clone(), source })
    }

    fn read(&self, server: &str) -> Result<ToolRecord, KnownToolsError> {
        let path = self.path(server);
        let failed = |source| KnownToolsError { action: "read", path: path.clone(), source };
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(ToolRecord::default()),
            read => serde_json::from_slice(&read.map_err(failed)?).map_err(|error| failed(error.into())),
        }
    }

    /// Returns the path of a record. Names of servers are checked: see `ServerSettings::resolve`.
    fn path(&self, server: &str) -> PathBuf {
        self.folder.join(format!("{server}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_known_as_it_was_accepted_and_changed_until_it_is_accepted_again() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownTools::new(folder.path());
        let (one, other) = (ContentHash::of(b"one"), ContentHash::of(b"other"));
        assert_eq!(known.compare("tickets", &[("read", &one)]), [Known::New]);
        known.accept("tickets", &[("read", &one)]).unwrap();
        assert_eq!(known.compare("tickets", &[("read", &one), ("find", &one)]), [Known::Same, Known::New]);
        assert_eq!(known.compare("tickets", &[("read", &other)]), [Known::Changed]);
        assert_eq!(known.compare("wiki", &[("read", &other)]), [Known::New], "each server has its own record");
        known.accept("tickets", &[("read", &other)]).unwrap();
        assert_eq!(known.compare("tickets", &[("read", &other), ("find", &one)]), [Known::Same, Known::New]);
    }

    #[test]
    fn record_that_cannot_be_read_accepts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownTools::new(folder.path());
        let hash = ContentHash::of(b"one");
        known.accept("tickets", &[("read", &hash)]).unwrap();
        std::fs::write(folder.path().join("mcp/tickets.json"), "{").unwrap();
        assert_eq!(known.compare("tickets", &[("read", &hash)]), [Known::Changed]);
    }
}
