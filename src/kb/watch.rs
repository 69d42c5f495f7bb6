//! Watches folders for changes, and reports when these have settled.
//!
//! ```text
//! system ─▶ may it concern an indexed file? ─▶ first and last change ─▶ settled
//! ```
//!
//! The changes themselves are not kept, because indexing compares the folders with the index anyway. However many
//! changes there are, only two points in time are kept, and changes during an indexing cause one more run.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::extract::Include;
use super::walk::{folders, is_hidden, is_listed, walk};
use crate::base::mutex::locked;

/// Time without a change after which changes have settled. Editors write a file in several steps, and git many files in
/// a row, with some milliseconds in between.
const QUIET: Duration = Duration::from_millis(500);

/// Longest wait for changes that do not settle, such as constant appends to a file.
const LONGEST: Duration = Duration::from_secs(5);

/// Interval of polling folders if the system cannot report changes.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// On Linux, each folder is watched separately, so that ignored ones, which may have more folders than the notes, do
/// not count against the system's limit. Elsewhere a folder is watched recursively, at no cost.
const WATCHES_EACH: bool = cfg!(any(target_os = "linux", target_os = "android"));

const WATCH_LIMIT: &str =
    if WATCHES_EACH { "inotify watch limit reached" } else { "watch limit of the system reached" };

/// Folders cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The system limits how many folders a user may watch.
    #[error("{WATCH_LIMIT}")]
    Limit,
    #[error("failed to watch the folders")]
    System(#[source] notify::Error),
    #[error("failed to watch the folders")]
    Task(#[from] tokio::task::JoinError),
}

impl From<notify::Error> for WatchError {
    fn from(error: notify::Error) -> Self {
        match error.kind {
            notify::ErrorKind::MaxFilesWatch => Self::Limit,
            _ => Self::System(error),
        }
    }
}

impl WatchError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Limit if WATCHES_EACH => Some("raise the limit with `sysctl fs.inotify.max_user_watches=524288`"),
            Self::Limit | Self::System(_) | Self::Task(_) => None,
        }
    }
}

/// Watches folders that may disappear and come back.
pub(crate) struct FolderWatch {
    /// Absolute, without symbolic links.
    roots: Vec<PathBuf>,
    /// Formats that are watched besides Markdown and plain text.
    include: Include,
    /// A folder inside the roots that indexing writes to.
    except: Option<PathBuf>,
    by: By,
    changes: Arc<Changes>,
}

/// How changes are noticed.
enum By {
    /// The system reports them; `None` before the first [`FolderWatch::begin`].
    System(Option<RecommendedWatcher>),
    /// The files are listed at an interval, and compared with the first listing.
    Looking { every: Duration, seen: u64 },
}

/// Changes that the system has reported.
#[derive(Default)]
struct Changes {
    pending: Mutex<Pending>,
    noted: Notify,
}

/// When the first and the last change happened, since changes were last awaited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pending(Option<(Instant, Instant)>);

impl Pending {
    fn note(&mut self, at: Instant) {
        self.0 = Some((self.0.map_or(at, |(first, _)| first), at));
    }

    /// Returns when the changes have settled, if nothing else changes; `None` if there are none.
    fn due(self) -> Option<Instant> {
        self.0.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }
}

impl Changes {
    fn note(&self) {
        locked(&self.pending).note(Instant::now());
        self.noted.notify_one();
    }
}

impl FolderWatch {
    /// Prepares to watch folders, given as absolute paths without symbolic links. Changes in the folder `except` are
    /// ignored. With `every`, the folders are polled: on a network file system, the system does not report changes that
    /// other machines make.
    pub(crate) fn new(roots: Vec<PathBuf>, include: Include, except: Option<PathBuf>, every: Option<Duration>) -> Self {
        let by = every.map_or(By::System(None), |every| By::Looking { every, seen: 0 });
        Self { roots, include, except, by, changes: Arc::default() }
    }

    /// Starts to watch for changes. Call again before each read of the folders; only then are new folders, including
    /// the roots, watched.
    ///
    /// Returns the reason if the system cannot report changes. The folders are then polled every [`LOOK_INTERVAL`].
    pub(crate) async fn begin(&mut self) -> Option<WatchError> {
        // The read of the folders that follows covers the changes so far.
        *locked(&self.changes.pending) = Pending::default();
        let mut failed = None;
        if let By::System(watcher) = &mut self.by {
            // Each watcher uses one of the few instances allowed per user.
            drop(watcher.take());
            let (roots, include) = (self.roots.clone(), self.include.clone());
            let (except, changes) = (self.except.clone(), Arc::clone(&self.changes));
            let listening = move || listen(&roots, include, except.as_deref(), changes);
            let listening = tokio::task::spawn_blocking(listening).await;
            match listening.map_err(WatchError::from).flatten() {
                Ok(listening) => *watcher = Some(listening),
                Err(error) => {
                    failed = Some(error);
                    self.by = By::Looking { every: LOOK_INTERVAL, seen: 0 };
                }
            }
        }
        if let By::Looking { seen, .. } = &mut self.by {
            *seen = look(self.roots.clone(), self.include.clone()).await;
        }
        failed
    }

    /// Waits until something has changed that may be indexed, and until changes have settled. Nothing is lost if the
    /// future is dropped.
    pub(crate) async fn settled(&self) {
        match &self.by {
            By::System(_) => loop {
                let due = locked(&self.changes.pending).due();
                // A change since `due` was read is not missed: `notify_one` leaves a permit for the next waiter.
                let noted = self.changes.noted.notified();
                match due {
                    None => noted.await,
                    Some(due) if due <= Instant::now() => break,
                    // In either case, there is something to compare again.
                    Some(due) => drop(tokio::time::timeout_at(due.into(), noted).await),
                }
            },
            By::Looking { every, seen } => loop {
                tokio::time::sleep(*every).await;
                if look(self.roots.clone(), self.include.clone()).await != *seen {
                    break;
                }
            },
        }
    }
}

/// Returns a hash of the files that would be indexed.
async fn look(roots: Vec<PathBuf>, include: Include) -> u64 {
    let look = move || {
        let mut hasher = DefaultHasher::new();
        for root in &roots {
            (root.is_dir(), walk(root, &include).files).hash(&mut hasher);
        }
        hasher.finish()
    };
    // A panic counts as a change; indexing then reports the problem.
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

/// Makes the system report changes until the watcher is dropped.
fn listen(
    roots: &[PathBuf],
    include: Include,
    except: Option<&Path>,
    changes: Arc<Changes>,
) -> Result<RecommendedWatcher, WatchError> {
    let known = Arc::new(RwLock::new(HashSet::new()));
    let (of_callback, tops) = (Arc::clone(&known), roots.to_vec());
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let known = of_callback.read().unwrap_or_else(PoisonError::into_inner);
        // An error means that events may be lost.
        if event.map_or(true, |event| matters(&event, &known, &tops, &include)) {
            changes.note();
        }
    })?;
    let mut add = |folder: &Path, mode| match watcher.watch(folder, mode) {
        Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => Err(WatchError::Limit),
        // The folder was just removed, or may not be read: indexing finds that out too.
        Ok(()) | Err(_) => Ok(()),
    };
    for root in roots {
        // Removing or creating a folder is an event of its parent.
        if let Some(around) = root.ancestors().skip(1).find(|folder| folder.is_dir()) {
            add(around, RecursiveMode::NonRecursive)?;
        }
        if !WATCHES_EACH && root.is_dir() {
            add(root, RecursiveMode::Recursive)?;
        }
        // The walk yields a folder before it lists it, so a folder created meanwhile is either listed or reported.
        for folder in folders(root).filter(|folder| except.is_none_or(|except| !folder.starts_with(except))) {
            if WATCHES_EACH {
                add(&folder, RecursiveMode::NonRecursive)?;
            }
            known.write().unwrap_or_else(PoisonError::into_inner).insert(folder);
        }
    }
    Ok(watcher)
}

/// Returns whether an event may change the index of `known`, the folders that are not ignored, or the existence of one
/// of `roots`.
fn matters(event: &notify::Event, known: &HashSet<PathBuf>, roots: &[PathBuf], include: &Include) -> bool {
    let is_entry = match event.kind {
        // Indexing itself opens files.
        EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write) => return false,
        EventKind::Access(_) => false,
        EventKind::Modify(kind) => matches!(kind, ModifyKind::Name(_)),
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Any | EventKind::Other => true,
    };
    let is_folder = |path: &Path| !is_hidden(path) && (known.contains(path) || path.is_dir());
    event.need_rescan()
        || event.paths.iter().any(|path| {
            if roots.iter().any(|root| root.starts_with(path)) {
                return is_entry;
            }
            let is_inside = path.parent().is_some_and(|folder| known.contains(folder));
            is_inside && (is_listed(path, include) || is_entry && is_folder(path))
        })
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, Flag, MetadataKind, RemoveKind, RenameMode};
    use proptest::prelude::*;

    use super::*;

    /// Returns the start times of indexing runs that take `length` each, for changes at `times`, in milliseconds
    /// since the start.
    fn indexings(times: &[u64], length: u64) -> Vec<u64> {
        let start = Instant::now();
        let at = |time: u64| start + Duration::from_millis(time);
        let (mut times, mut pending, mut starts) = (times.iter().copied().peekable(), Pending::default(), Vec::new());
        let mut now = 0;
        loop {
            // Those during an indexing, which is over now.
            while let Some(time) = times.next_if(|time| *time <= now) {
                pending.note(at(time));
            }
            let due = pending.due().map(|due| u64::try_from(due.duration_since(start).as_millis()).unwrap());
            match (due, times.peek()) {
                (Some(due), next) if next.is_none_or(|next| due <= *next) => {
                    starts.push(due.max(now));
                    now = due.max(now) + length;
                    pending = Pending::default();
                }
                (_, Some(next)) => now = *next,
                (_, None) => return starts,
            }
        }
    }

    #[test]
    fn storm_of_ten_thousand_changes_is_indexed_at_most_twice() {
        // All within three seconds, as git checks them out.
        let storm: Vec<u64> = (0..10_000).map(|number| number * 3 / 10).collect();
        assert_eq!(indexings(&storm, 100), [2_999 + 500]);
        // One was already under way for a file that was saved just before.
        let after_a_change: Vec<u64> = [0].into_iter().chain(storm.iter().map(|time| time + 501)).collect();
        assert_eq!(indexings(&after_a_change, 60_000), [500, 60_500]);
    }

    #[test]
    fn steady_changes_are_indexed_at_the_longest_wait() {
        let steady: Vec<u64> = (0..200).map(|number| number * 100).collect();
        assert_eq!(indexings(&steady, 10), [5_000, 10_000, 15_000, 20_000]);
    }

    proptest! {
        #[test]
        fn every_change_is_followed_by_an_indexing(mut times in prop::collection::vec(0..20_000_u64, 1..300), length in 0..9_000_u64) {
            times.sort_unstable();
            let starts = indexings(&times, length);
            for time in times {
                let next = starts.iter().copied().find(|start| *start >= time);
                prop_assert!(next.is_some_and(|next| next - time <= length.max(5_000)), "{time}: {starts:?}");
            }
            for pair in starts.windows(2) {
                prop_assert!(pair[1] - pair[0] >= length.max(500), "{starts:?}");
            }
        }
    }

    fn event(kind: EventKind, path: &str) -> notify::Event {
        notify::Event::new(kind).add_path(PathBuf::from(path))
    }

    #[test]
    fn only_events_that_may_change_the_index_matter() {
        let known = ["/p/kb", "/p/kb/guide"].map(PathBuf::from).into_iter().collect();
        let roots = [PathBuf::from("/p/kb"), PathBuf::from("/p/away/wiki")];
        let include = "pdf".parse().unwrap();
        let matters = |kind, path: &str| matters(&event(kind, path), &known, &roots, &include);
        let (created, removed) = (EventKind::Create(CreateKind::Any), EventKind::Remove(RemoveKind::Any));
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let touched = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::From));
        for (kind, path) in [
            (created, "/p/kb/a.md"),
            (written, "/p/kb/guide/b.TXT"),
            (written, "/p/kb/guide/b.pdf"),
            (touched, "/p/kb/guide/b.txt"),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), "/p/kb/a.md"),
            (written, "/p/kb/.drignore"),
            (removed, "/p/kb/guide/.gitignore"),
            (removed, "/p/kb/guide"),
            (renamed, "/p/kb"),
            (created, "/p/away"),
            (created, "/p/away/wiki"),
        ] {
            assert!(matters(kind, path), "{kind:?} {path}");
        }
        for (kind, path) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "/p/kb/a.md"),
            (written, "/p/kb/a.rs"),
            (written, "/p/kb/a.html"),
            (created, "/p/kb/.a.md"),
            (created, "/p/kb/.a.md.swp"),
            (created, "/p/kb/.dr/index/x.md"),
            (created, "/p/kb/ignored/x.md"),
            (created, "/p/kb/.git"),
            (touched, "/p/kb"),
            (touched, "/p"),
            (created, "/p/other"),
            (created, "/p/other.md"),
        ] {
            assert!(!matters(kind, path), "{kind:?} {path}");
        }
        let lost = notify::Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(super::matters(&lost, &known, &roots, &include), "the system has dropped events");
    }
}
