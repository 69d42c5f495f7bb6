//! The state of a local index on disk, read without opening it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use super::IndexLocation;

/// Folder of a table with one file per commit.
const VERSIONS: &str = "_versions";

/// The latest commits of an index, as its folders show them. Equal stamps mean that nothing was committed in between,
/// so an open [`super::Index`] is still the current one.
///
/// Reading one takes a fraction of a millisecond; opening an index takes tens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(BTreeMap<OsString, Commits>);

/// The commits of one table. Names alone would not distinguish a folder that was removed and indexed again from the
/// old one, and times alone would miss a commit within one tick of the file system's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Commits {
    count: usize,
    first: OsString,
    last: OsString,
    changed: Option<SystemTime>,
}

impl Stamp {
    /// Reads the stamp of a local index: an empty one if there is no index, and `None` for an index on the network.
    pub(crate) fn of(location: &IndexLocation) -> Option<Self> {
        let tables = std::fs::read_dir(location.folder()?).into_iter().flatten().flatten();
        let commits = tables.filter_map(|table| Some((table.file_name(), commits(&table.path().join(VERSIONS))?)));
        Some(Self(commits.collect()))
    }
}

fn commits(folder: &Path) -> Option<Commits> {
    // Before the names: a commit in between then makes the next stamp differ.
    let changed = folder.metadata().ok()?.modified().ok();
    let mut found: Option<Commits> = None;
    for name in std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name()) {
        match &mut found {
            None => found = Some(Commits { count: 1, first: name.clone(), last: name, changed }),
            Some(commits) => {
                commits.count += 1;
                if name < commits.first {
                    commits.first = name;
                } else if name > commits.last {
                    commits.last = name;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // On Windows a folder cannot be opened to set its time.
    #[cfg(unix)]
    #[test]
    fn stamp_changes_with_each_commit_and_with_a_folder_made_again() {
        let base = tempfile::tempdir().unwrap();
        let location = IndexLocation::in_folder(base.path());
        let read = || Stamp::of(&location).unwrap();
        assert_eq!(read(), Stamp::default());
        let versions = location.folder().unwrap().join("chunks_1.lance").join(VERSIONS);
        let commit = |name: &str| std::fs::write(versions.join(name), "").unwrap();
        std::fs::create_dir_all(&versions).unwrap();
        commit("9.manifest");
        let first = read();
        assert_eq!(read(), first);
        let clock = |seconds| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            std::fs::File::open(&versions).unwrap().set_modified(time).unwrap();
        };
        clock(1);
        let same_clock = read();
        for name in ["8.manifest", "99.manifest", "85.manifest"] {
            let before = read();
            commit(name);
            clock(1);
            assert_ne!(read(), before, "{name}: within one tick of the clock");
        }
        assert_ne!(same_clock, first, "the same names in a folder of another time");
    }

    #[test]
    fn index_on_the_network_has_no_stamp() {
        assert_eq!(Stamp::of(&IndexLocation::Remote { uri: "s3://bucket/index".to_owned(), local: None }), None);
    }
}
