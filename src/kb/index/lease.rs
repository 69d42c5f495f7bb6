//! Leases on an object store: each collection has one writer at a time, and several machines fill one index.
//!
//! A lease is an object that names its holder and the time it runs out. It is created, renewed and taken over by
//! conditional writes, so that only one of two machines wins. A killed writer leaves its lease behind: another
//! machine waits until it has expired, while the same machine, which also has a lock file, takes it over at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval_at, sleep};

use super::IndexError;
use crate::base::clock::{Clock, SystemClock};
use crate::base::folder::{create_private, secret_in};
use crate::base::hex::hex;
use crate::base::lock::{FileLock, FileLockError, this_process};

/// Folder of the leases, beside the tables.
const FOLDER: &str = "leases";

/// Name of the lease for creating or rebuilding the index. No collection has it, because names are not empty.
pub(super) const WHOLE: &str = "";

/// Lifetime of a lease. A killed writer blocks other machines from its collections until then.
const LASTS: Duration = Duration::from_mins(2);

/// Renewal interval, short enough that several renewals may fail before expiry.
const RENEWED_EVERY: Duration = Duration::from_secs(20);

/// Maximum difference between the clocks of two machines.
const CLOCKS_DIFFER: Duration = Duration::from_secs(30);

/// Number of attempts to take a lease while others write it.
const ATTEMPTS: usize = 5;

/// Where leases are kept.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The folder of the index in the store.
    pub(super) base: Path,
    /// The folder of this machine for the index, with the lock files.
    pub(super) local: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
struct LeaseRecord {
    collection: String,
    /// The process, its start time and its machine, for display.
    holder: String,
    /// Random id of the folder with the lock files.
    machine: Option<String>,
    /// Random id of this lease: if the answer to a write is lost, the next read recognises the lease by it.
    token: String,
    /// Milliseconds since 1970 by the clock of the holder; 0 once released.
    until_ms: u64,
}

/// Leases that a writer holds. A task owns and renews them until they are released or dropped.
#[derive(Debug)]
pub(super) struct Leases {
    names: Vec<String>,
    /// The task ends when this is closed.
    requests: mpsc::Sender<Request>,
    /// Released by the system if the process is killed.
    _locks: Vec<FileLock>,
}

/// A request of a writer to the task that owns its leases.
#[derive(Debug)]
enum Request {
    Check(oneshot::Sender<Result<(), IndexError>>),
    Release(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Held {
    site: Site,
    record: LeaseRecord,
    version: UpdateVersion,
    is_lost: bool,
}

impl Leases {
    /// Takes the leases of `collections`, all or none.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::CollectionBusy`] for the first one that another writer holds.
    pub(super) async fn take(site: &Site, collections: &[String]) -> Result<Self, IndexError> {
        let mut names = collections.to_vec();
        names.sort();
        names.dedup();
        let (mut held, mut locks) = (Vec::new(), Vec::new());
        for name in &names {
            match Held::take(site, name).await {
                Ok((lease, lock)) => {
                    held.push(lease);
                    locks.extend(lock);
                }
                Err(error) => {
                    for lease in &mut held {
                        lease.release().await;
                    }
                    return Err(error);
                }
            }
        }
        let (requests, received) = mpsc::channel(1);
        tokio::spawn(keep(held, received, RENEWED_EVERY));
        Ok(Self { names, requests, _locks: locks })
    }

    /// As [`Self::take`], but waits for up to `patience` for a lease that others hold for a moment.
    pub(super) async fn wait(site: &Site, collection: &str, patience: Duration) -> Result<Self, IndexError> {
        let started = Instant::now();
        loop {
            match Self::take(site, &[collection.to_owned()]).await {
                Err(IndexError::CollectionBusy { .. } | IndexError::Busy { .. }) if started.elapsed() < patience => {
                    // Random, so that writers waiting for the same lease do not try in step.
                    sleep(Duration::from_millis(300 + rand::random::<u64>() % 400)).await;
                }
                done => return done,
            }
        }
    }

    /// Checks that the leases are still valid.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::LeaseLost`] if one ran out, for example while the machine slept, and was not renewed.
    pub(super) async fn check(&self) -> Result<(), IndexError> {
        // Without the task, they are no longer renewed.
        let lost = || Err(IndexError::LeaseLost { collection: self.names.join(", ") });
        self.ask(Request::Check).await.unwrap_or_else(lost)
    }

    /// Releases the leases, so that the next writer does not wait until they run out.
    pub(super) async fn release(self) {
        self.ask(Request::Release).await;
    }

    /// Returns the answer of the task, or `None` if it has ended.
    async fn ask<T>(&self, request: fn(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.ok()?;
        answered.await.ok()
    }
}

/// Renews leases and answers requests about them, until they are released or their writer is gone.
async fn keep(mut held: Vec<Held>, mut requests: mpsc::Receiver<Request>, every: Duration) {
    let mut renewals = interval_at(Instant::now() + every, every);
    loop {
        tokio::select! {
            _ = renewals.tick() => {
                for lease in &mut held {
                    lease.renew().await;
                }
            }
            request = requests.recv() => match request {
                // A writer that no longer waits for the answer is gone; the next request shows that.
                Some(Request::Check(answer)) => drop(answer.send(check(&mut held).await)),
                Some(Request::Release(answer)) => {
                    for lease in &mut held {
                        lease.release().await;
                    }
                    let _ = answer.send(());
                    return;
                }
                None => return,
            },
        }
    }
}

async fn check(held: &mut [Held]) -> Result<(), IndexError> {
    for lease in held {
        // It may have expired while the machine slept. It can be renewed unless another writer has taken it over.
        if lease.record.until_ms <= now_ms() {
            lease.renew().await;
        }
        if lease.is_lost || lease.record.until_ms <= now_ms() {
            return Err(IndexError::LeaseLost { collection: lease.record.collection.clone() });
        }
    }
    Ok(())
}

impl Held {
    async fn take(site: &Site, collection: &str) -> Result<(Self, Option<FileLock>), IndexError> {
        let path = path_of(site, collection);
        let lock = take_lock(site, collection)?;
        let mut record = LeaseRecord {
            collection: collection.to_owned(),
            holder: format!("{} on {}", this_process(), host()),
            machine: machine(site),
            token: hex(&rand::random::<[u8; 16]>()),
            until_ms: 0,
        };
        for _ in 0..ATTEMPTS {
            let mode = match read(site, &path).await? {
                None => PutMode::Create,
                Some((found, version)) if found.token == record.token => {
                    return Ok((Self { site: site.clone(), record, version, is_lost: false }, lock));
                }
                // The holder was a process on this machine that no longer holds its lock file: it is gone.
                Some((found, version)) if found.is_over() || lock.is_some() && found.machine == record.machine => {
                    PutMode::Update(version)
                }
                Some((found, _)) => return Err(busy(collection, found.holder)),
            };
            record.until_ms = now_ms() + millis(LASTS);
            match site.store.put_opts(&path, record.bytes().into(), mode.into()).await {
                Ok(written) => {
                    let version = written.into();
                    return Ok((Self { site: site.clone(), record, version, is_lost: false }, lock));
                }
                // Another writer was first, or this write was repeated.
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(source) => return Err(failed("take the lease of a collection", source)),
            }
        }
        Err(busy(collection, "another process".to_owned()))
    }

    async fn renew(&mut self) {
        let record = LeaseRecord { until_ms: now_ms() + millis(LASTS), ..self.record.clone() };
        if self.write(&record).await {
            self.record = record;
        }
    }

    async fn release(&mut self) {
        let record = LeaseRecord { until_ms: 0, ..self.record.clone() };
        self.write(&record).await;
        self.is_lost = true;
    }

    /// Writes the lease if this writer still holds it. Other failures are ignored: the lease stays valid for a while.
    async fn write(&mut self, record: &LeaseRecord) -> bool {
        let path = path_of(&self.site, &self.record.collection);
        // Twice: the answer to an earlier write may have been lost, and with it the version that this one depends on.
        for _ in 0..2 {
            if self.is_lost {
                break;
            }
            let mode = PutMode::Update(self.version.clone());
            match self.site.store.put_opts(&path, record.bytes().into(), mode.into()).await {
                Ok(written) => {
                    self.version = written.into();
                    return true;
                }
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }) => {
                    match read(&self.site, &path).await {
                        // Its own write, whose answer was lost.
                        Ok(Some((found, version))) if found.token == record.token => self.version = version,
                        Ok(_) => self.is_lost = true,
                        Err(_) => break,
                    }
                }
                Err(_) => break,
            }
        }
        false
    }
}

impl LeaseRecord {
    fn is_over(&self) -> bool {
        self.until_ms.saturating_add(millis(CLOCKS_DIFFER)) <= now_ms() || self.until_ms == 0
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Reads a lease. A damaged one counts as expired.
async fn read(site: &Site, path: &Path) -> Result<Option<(LeaseRecord, UpdateVersion)>, IndexError> {
    let action = "read the lease of a collection";
    let found = match site.store.get(path).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(source) => return Err(failed(action, source)),
    };
    let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
    let bytes = found.bytes().await.map_err(|source| failed(action, source))?;
    // A damaged lease has no holder and counts as expired.
    Ok(Some((serde_json::from_slice(&bytes).unwrap_or_default(), version)))
}

fn path_of(site: &Site, collection: &str) -> Path {
    site.base.clone().join(FOLDER).join(format!("{}.json", key(collection)))
}

/// Returns a name that is valid for files and objects.
fn key(collection: &str) -> String {
    match collection {
        WHOLE => "index".to_owned(),
        name => blake3::hash(name.as_bytes()).to_hex()[..16].to_owned(),
    }
}

/// Takes the lock file of this machine. Returns `None` if there can be none, as in a read-only home folder.
fn take_lock(site: &Site, collection: &str) -> Result<Option<FileLock>, IndexError> {
    let Some(folder) = site.local.as_ref().filter(|folder| create_private(folder).is_ok()) else { return Ok(None) };
    match FileLock::take(&folder.join(format!("{}.lock", key(collection)))) {
        Ok(lock) => Ok(Some(lock)),
        Err(FileLockError::Held { holder, .. }) => Err(busy(collection, holder)),
        Err(FileLockError::File { .. }) => Ok(None),
    }
}

fn machine(site: &Site) -> Option<String> {
    let secret = secret_in(&site.local.as_ref()?.join("machine"), true).ok()?;
    Some(hex(&secret[..8]))
}

fn host() -> String {
    let of_variable = || ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let name = std::fs::read_to_string("/etc/hostname").ok().or_else(of_variable).unwrap_or_default();
    match name.trim() {
        "" => "another machine".to_owned(),
        name => format!("`{name}`"),
    }
}

fn busy(collection: &str, holder: String) -> IndexError {
    match collection {
        WHOLE => IndexError::Busy { holder },
        name => IndexError::CollectionBusy { collection: name.to_owned(), holder },
    }
}

fn failed(action: &'static str, source: Error) -> IndexError {
    IndexError::Store { action, source: Box::new(source) }
}

fn now_ms() -> u64 {
    SystemClock.now().0
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn site(local: Option<&tempfile::TempDir>) -> Site {
        Site {
            store: Arc::new(InMemory::new()),
            base: Path::from("team/index"),
            local: local.map(|folder| folder.path().join("store")),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Makes the lease of a collection look expired for this long.
    async fn age(site: &Site, collection: &str, ago: Duration) {
        let path = path_of(site, collection);
        let (record, _) = read(site, &path).await.unwrap().unwrap();
        let record = LeaseRecord { until_ms: now_ms() - millis(ago), ..record };
        site.store.put(&path, record.bytes().into()).await.unwrap();
    }

    #[tokio::test]
    async fn one_machine_holds_a_collection_and_another_machine_another() {
        let ours = site(None);
        let first = Leases::take(&ours, &names(&["docs", "wiki"])).await.unwrap();
        let _other = Leases::take(&ours, &names(&["handbook"])).await.unwrap();
        let error = Leases::take(&ours, &names(&["a", "wiki"])).await.unwrap_err();
        assert!(error.to_string().starts_with("collection `wiki` is being written by process"), "{error}");
        let _free = Leases::take(&ours, &names(&["a"])).await.expect("what was taken before the failure is released");
        first.check().await.unwrap();
        first.release().await;
        Leases::take(&ours, &names(&["wiki"])).await.unwrap();
    }

    #[tokio::test]
    async fn lease_of_a_killed_writer_is_taken_over_when_it_ran_out_and_the_loser_notices() {
        let ours = site(None);
        let mut killed = Held::take(&ours, "docs").await.unwrap().0;
        age(&ours, "docs", Duration::from_secs(1)).await;
        Leases::take(&ours, &names(&["docs"])).await.expect_err("clocks may differ");
        age(&ours, "docs", CLOCKS_DIFFER).await;
        let _next = Leases::take(&ours, &names(&["docs"])).await.unwrap();
        killed.record.until_ms = 1;
        let checked = check(&mut [killed]).await;
        assert!(matches!(checked, Err(IndexError::LeaseLost { collection }) if collection == "docs"));
    }

    #[tokio::test]
    async fn same_machine_takes_over_at_once_what_its_killed_process_held() {
        let folder = tempfile::tempdir().unwrap();
        let ours = site(Some(&folder));
        let killed = Leases::take(&ours, &names(&["docs"])).await.unwrap();
        Leases::take(&ours, &names(&["docs"])).await.expect_err("it is alive");
        let elsewhere = tempfile::tempdir().unwrap();
        let theirs = Site { local: Some(elsewhere.path().to_owned()), ..ours.clone() };
        drop(killed);
        Leases::take(&theirs, &names(&["docs"])).await.expect_err("another machine cannot know");
        Leases::take(&ours, &names(&["docs"])).await.unwrap();
    }

    #[tokio::test]
    async fn damaged_lease_is_taken_over() {
        let ours = site(None);
        ours.store.put(&path_of(&ours, "docs"), b"{\"half".to_vec().into()).await.unwrap();
        Leases::take(&ours, &names(&["docs"])).await.unwrap();
    }

    #[tokio::test]
    async fn renewal_finds_its_own_write_whose_answer_was_lost() {
        let ours = site(None);
        let mut held = Held::take(&ours, "docs").await.unwrap().0;
        // The same lease with a new version.
        age(&ours, "docs", Duration::ZERO).await;
        let before = held.record.until_ms;
        sleep(Duration::from_millis(2)).await;
        held.renew().await;
        assert!(!held.is_lost && held.record.until_ms > before);
    }

    #[tokio::test]
    async fn leases_are_renewed_until_their_writer_is_gone_and_then_left_to_run_out() {
        let ours = site(None);
        let until = async || read(&ours, &path_of(&ours, "docs")).await.unwrap().unwrap().0.until_ms;
        let (requests, received) = mpsc::channel(1);
        let held = Held::take(&ours, "docs").await.unwrap().0;
        let taken = until().await;
        let task = tokio::spawn(keep(vec![held], received, Duration::from_millis(2)));
        let leases = Leases { names: names(&["docs"]), requests, _locks: Vec::new() };
        while until().await <= taken {
            leases.check().await.unwrap();
        }
        drop(leases);
        task.await.unwrap();
        assert!(until().await > taken, "not released");
    }
}
