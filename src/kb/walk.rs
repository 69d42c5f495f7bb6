//! Lists the files of a folder to index, honouring `.gitignore` and `.drignore`.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use ignore::{DirEntry, WalkBuilder, WalkState};

use super::document::{MAX_DOCUMENT_BYTES, SkipReason};
use super::extract::{Extractable, Include};
use crate::base::mutex::locked;

/// File extensions that are always indexed, in lower case.
const EXTENSIONS: [&str; 4] = ["md", "markdown", "mdx", "txt"];

/// Files with patterns of paths to leave out.
const IGNORE_FILES: [&str; 3] = [".gitignore", ".ignore", DR_IGNORE];

/// The one for `dr` alone.
const DR_IGNORE: &str = ".drignore";

/// Files of a git repository that the walk reads: the path from a worktree to its repository, and patterns that are
/// not committed.
const GIT_FILES: [&str; 2] = [".git", ".git/info/exclude"];

/// Size of the largest file with patterns that is read; all of it is compiled in memory.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FoundFile {
    /// Path relative to the root, with `/` between components.
    pub(crate) path: String,
    pub(crate) size: u64,
    /// Modification time in nanoseconds since the Unix epoch.
    pub(crate) modified_ns: i64,
}

/// A file that is left out.
#[derive(Debug)]
pub(crate) struct Skipped {
    /// Path relative to the root; bytes that are not UTF-8 are replaced.
    pub(crate) path: String,
    pub(crate) reason: SkipReason,
}

/// The files of a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Files to index, sorted by path.
    pub(crate) files: Vec<FoundFile>,
    /// Files that look indexable but are left out, and folders that cannot be read, sorted by path.
    pub(crate) skipped: Vec<Skipped>,
}

/// Lists the files under `root` of Markdown, plain text and the formats in `include`.
///
/// Hidden and ignored files are left out silently. A symbolic link to a file inside the root is followed; one that
/// leads out of the root is skipped with a reason. Links to folders are never followed, so there are no loops. A
/// folder whose ignore files cannot be read is skipped, because their exclusions are unknown.
pub(crate) fn walk(root: &Path, include: &Include) -> Listing {
    let listing = Mutex::new(Listing::default());
    let canonical_root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let refused = RefusedFolders::default();
    let Some(mut walker) = walker(root, &refused) else {
        return Listing { skipped: refused.skipped(root), ..Listing::default() };
    };
    walker.threads(threads).build_parallel().run(|| {
        Box::new(|entry| {
            let found = match entry {
                Ok(entry) => consider(root, &canonical_root, include, &entry),
                Err(error) => Some(Err(walk_error(root, error))),
            };
            if let Some(found) = found {
                let mut listing = locked(&listing);
                match found {
                    Ok(file) => listing.files.push(file),
                    Err(skipped) => listing.skipped.push(skipped),
                }
            }
            WalkState::Continue
        })
    });
    let mut listing = listing.into_inner().unwrap_or_else(PoisonError::into_inner);
    listing.skipped.extend(refused.skipped(root));
    // Threads find the files in any order.
    listing.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    listing.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    listing
}

/// Returns a walk that records folders whose ignore files cannot be read instead of entering them; `None` if `root`
/// is one.
fn walker(root: &Path, refused: &RefusedFolders) -> Option<WalkBuilder> {
    // The walk reads the ignore files of the root and of all folders above it without consulting its filter.
    let resolved = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    if !refused.may_enter(root) || !resolved.ancestors().skip(1).all(|above| refused.may_enter(above)) {
        return None;
    }
    let mut walker = WalkBuilder::new(root);
    // Otherwise `.gitignore` would apply only in a git repository.
    walker.follow_links(false).require_git(false).add_custom_ignore_filename(DR_IGNORE);
    let refused = refused.clone();
    walker.filter_entry(move |entry| {
        !entry.file_type().is_some_and(|kind| kind.is_dir()) || refused.may_enter(entry.path())
    });
    Some(walker)
}

/// Folders that are not entered because of one of their ignore files, with the path of that file in the folder.
#[derive(Clone, Debug, Default)]
struct RefusedFolders(Arc<Mutex<Vec<(PathBuf, &'static str)>>>);

impl RefusedFolders {
    /// Returns whether each ignore file of a folder is a regular file, or a link to one, that fits in memory. The
    /// walk would read a device forever, and block on a pipe.
    fn may_enter(&self, folder: &Path) -> bool {
        let is_sound = |name: &&str| {
            // A missing file has no patterns, and the walk reports one that cannot be opened.
            let found = folder.join(name).metadata();
            found.map_or(true, |found| found.is_dir() || found.is_file() && found.len() <= MAX_IGNORE_BYTES)
        };
        let unsound = IGNORE_FILES.into_iter().chain(GIT_FILES).find(|name| !is_sound(name));
        let Some(name) = unsound else { return true };
        locked(&self.0).push((folder.to_path_buf(), name));
        false
    }

    fn taken(&self) -> Vec<(PathBuf, &'static str)> {
        std::mem::take(&mut *locked(&self.0))
    }

    /// Returns the folders as skipped entries. One above the root excludes the whole root, whose path is empty.
    fn skipped(&self, root: &Path) -> Vec<Skipped> {
        let skipped = |(folder, name): (PathBuf, &str)| {
            let (path, name) = match folder.strip_prefix(root) {
                Ok(path) => (path, PathBuf::from(name)),
                Err(_) => (Path::new(""), folder.join(name)),
            };
            let path = slashed(path).unwrap_or_else(|| path.to_string_lossy().into_owned());
            let reason = SkipReason::IgnoreFile { name: name.display().to_string(), limit: MAX_IGNORE_BYTES };
            Skipped { path, reason }
        };
        self.taken().into_iter().map(skipped).collect()
    }
}

/// Returns the folders whose files [`walk`] lists, `root` included, each before it is read, and then those it
/// refuses to enter: a change of their ignore files may open them.
pub(crate) fn folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    let refused = RefusedFolders::default();
    let walk = walker(root, &refused).into_iter().flat_map(|walker| walker.build().flatten());
    let entered = walk.filter(|entry| entry.file_type().is_some_and(|kind| kind.is_dir())).map(DirEntry::into_path);
    entered.chain(std::iter::once_with(move || refused.taken()).flatten().map(|(folder, _)| folder))
}

/// Returns whether, judging by its name, a file may be listed by [`walk`] or decide which files are.
pub(crate) fn is_listed(path: &Path, include: &Include) -> bool {
    let decides = path.file_name().is_some_and(|name| IGNORE_FILES.iter().any(|known| name == *known));
    decides || is_text_or(path, include) && !is_hidden(path)
}

/// Returns whether the last part of a path begins with a dot.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Returns the file if it is to be indexed, the reason if it has an indexed extension but is left out, and `None` for
/// everything else.
fn consider(
    root: &Path,
    canonical_root: &Path,
    include: &Include,
    entry: &DirEntry,
) -> Option<Result<FoundFile, Skipped>> {
    let kind = entry.file_type()?;
    let path = entry.path();
    if kind.is_dir() || !is_text_or(path, include) {
        return None;
    }
    let shown = relative(root, path);
    let skip = |reason| Some(Err(Skipped { path: shown.to_string_lossy().replace('\\', "/"), reason }));
    // Before any other access to the file, which would follow the link.
    if kind.is_symlink() && file_inside(canonical_root, path).is_err() {
        return skip(SkipReason::LinkOutside);
    }
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(source) => return skip(SkipReason::Unreadable { source }),
    };
    if !metadata.is_file() {
        return skip(SkipReason::NotAFile);
    }
    let Some(name) = slashed(shown) else { return skip(SkipReason::PathNotUtf8) };
    let limit = max_bytes(&name);
    if metadata.len() > limit {
        return skip(SkipReason::TooLarge { bytes: metadata.len(), limit });
    }
    Some(Ok(FoundFile { path: name, size: metadata.len(), modified_ns: modified_ns(&metadata) }))
}

/// Reads a file of a collection. The path, with links resolved, must lead to a regular file inside `root`.
///
/// # Errors
///
/// Returns an error for a path that leads out of `root`, for anything but a regular file, and for a file that is too
/// large for its format.
pub(crate) fn read_inside(root: &Path, path: &str) -> std::io::Result<Vec<u8>> {
    let refused = |why: &str| Err(std::io::Error::other(why.to_owned()));
    if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return refused("path leads out of the folder");
    }
    // Checked again, because a file may have become a link since the folder was listed.
    let file = file_inside(&root.canonicalize()?, &root.join(path))?;
    let (mut bytes, limit) = (Vec::new(), max_bytes(path));
    // Bounded here rather than by its length, since the file may grow.
    std::fs::File::open(&file)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { refused("file is too large") } else { Ok(bytes) }
}

/// Returns whether a file or folder of a collection exists. Nothing outside of `root` is accessed.
pub(crate) fn is_inside(root: &Path, path: &str) -> bool {
    let is_normal = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let resolved = || Some(root.join(path).canonicalize().ok()?.starts_with(root.canonicalize().ok()?));
    is_normal && resolved().unwrap_or(false)
}

/// Returns whether a file is a text file, or of a format in `include`.
pub(crate) fn is_text_or(path: &Path, include: &Include) -> bool {
    has_known_extension(path) || path.to_str().and_then(Extractable::of).is_some_and(|format| include.has(format))
}

/// Returns the maximum size of a file at a path.
fn max_bytes(path: &str) -> u64 {
    Extractable::of(path).map_or(MAX_DOCUMENT_BYTES, Extractable::max_bytes)
}

fn has_known_extension(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()))
}

/// Resolves a path, including links, to a regular file inside the root.
fn file_inside(canonical_root: &Path, path: &Path) -> std::io::Result<PathBuf> {
    let file = path.canonicalize()?;
    if !file.starts_with(canonical_root) {
        return Err(std::io::Error::other("link leads out of the folder"));
    }
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    Ok(file)
}

fn relative<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// Returns the path with `/` between components, or `None` if it is not UTF-8.
fn slashed(path: &Path) -> Option<String> {
    let parts: Option<Vec<_>> = path.components().map(|part| part.as_os_str().to_str()).collect();
    Some(parts?.join("/"))
}

fn modified_ns(metadata: &std::fs::Metadata) -> i64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

fn walk_error(root: &Path, error: ignore::Error) -> Skipped {
    let path = error_path(&error);
    let path = path.map(|path| relative(root, &path).to_string_lossy().replace('\\', "/")).unwrap_or_default();
    let source = std::io::Error::other(error);
    Skipped { path, reason: SkipReason::Unreadable { source } }
}

fn error_path(error: &ignore::Error) -> Option<PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path.clone()),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => error_path(err),
        ignore::Error::Partial(errors) => errors.iter().find_map(error_path),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn paths(listing: &Listing) -> Vec<&str> {
        listing.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn only_text_formats_are_listed_in_path_order() {
        let folder = folder(&[("b.MD", ""), ("a/c.markdown", ""), ("x.rs", ""), ("n.txt", ""), ("d.mdx", "")]);
        assert_eq!(paths(&walk(folder.path(), &Include::default())), ["a/c.markdown", "b.MD", "d.mdx", "n.txt"]);
    }

    #[test]
    fn other_formats_are_listed_where_they_are_included() {
        let folder = folder(&[("a.md", ""), ("b.PDF", ""), ("c/d.html", ""), ("e.htm", ""), (".f.pdf", "")]);
        let pdf = "pdf".parse().unwrap();
        assert_eq!(paths(&walk(folder.path(), &pdf)), ["a.md", "b.PDF"]);
        assert_eq!(paths(&walk(folder.path(), &Include::all())), ["a.md", "b.PDF", "c/d.html", "e.htm"]);
        assert!(is_listed(Path::new("/x/b.pdf"), &pdf) && !is_listed(Path::new("/x/b.html"), &pdf));
    }

    #[test]
    fn ignore_files_hold_without_a_git_repository() {
        let folder = folder(&[
            (".gitignore", "build/\n"),
            (".drignore", "drafts/\n"),
            ("build/a.md", ""),
            ("drafts/b.md", ""),
            (".hidden/c.md", ""),
            ("d.md", ""),
        ]);
        let listing = walk(folder.path(), &Include::default());
        assert_eq!(paths(&listing), ["d.md"]);
        assert!(listing.skipped.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn folder_is_not_entered_if_its_ignore_file_cannot_be_read_to_its_end() {
        let folder =
            folder(&[("a.md", ""), ("big/b.md", ""), ("device/c.md", ""), ("git/d.md", ""), ("git/.git/info/x", "")]);
        let root = folder.path();
        std::fs::File::create(root.join("big/.drignore")).unwrap().set_len(MAX_IGNORE_BYTES + 1).unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join("device/.gitignore")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join("git/.git/info/exclude")).unwrap();
        let listing = walk(root, &Include::default());
        assert_eq!(paths(&listing), ["a.md"]);
        let skipped: Vec<_> = listing.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
        assert_eq!(skipped, ["big", "device", "git"]);
        let mut watched: Vec<_> = folders(root).collect();
        watched.sort();
        assert_eq!(watched, ["", "big", "device", "git"].map(|folder| root.join(folder)));

        std::os::unix::fs::symlink("/dev/zero", root.join(".ignore")).unwrap();
        let listing = walk(root, &Include::default());
        assert_eq!((paths(&listing).len(), listing.skipped.len()), (0, 1));
        assert_eq!(folders(root).collect::<Vec<_>>(), [root]);
        let inside = walk(&root.join("big/.."), &Include::default());
        assert_eq!((inside.files.len(), inside.skipped[0].path.as_str()), (0, ""));

        std::fs::create_dir(root.join("notes")).unwrap();
        let below = walk(&root.join("notes"), &Include::default());
        let [Skipped { path, reason }] = below.skipped.as_slice() else { panic!("{below:?}") };
        assert!(path.is_empty() && reason.to_string().contains("/.ignore"), "{reason}");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_outside_the_root_is_read_whatever_the_path_says() {
        let outside = folder(&[("secret.md", "secret")]);
        let folder = folder(&[("a.md", "text")]);
        std::os::unix::fs::symlink(outside.path().join("secret.md"), folder.path().join("out.md")).unwrap();
        assert_eq!(read_inside(folder.path(), "a.md").unwrap(), b"text");
        let absolute = outside.path().join("secret.md");
        for path in ["out.md", "../secret.md", "./a.md/../out.md", absolute.to_str().unwrap(), "", "."] {
            assert!(read_inside(folder.path(), path).is_err(), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_root_are_named_and_loops_are_not_followed() {
        let outside = folder(&[("secret.md", "secret")]);
        let folder = folder(&[("a.md", "text")]);
        std::os::unix::fs::symlink(outside.path().join("secret.md"), folder.path().join("out.md")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a.md"), folder.path().join("inside.md")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("gone.md"), folder.path().join("dangling.md")).unwrap();
        let listing = walk(folder.path(), &Include::default());
        assert_eq!(paths(&listing), ["a.md", "inside.md"]);
        let skipped: Vec<_> = listing.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
        assert_eq!(skipped, ["dangling.md", "out.md"]);
    }
}
