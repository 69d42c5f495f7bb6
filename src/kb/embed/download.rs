//! Downloads the files of a model from a hub: Hugging Face, or a mirror of it.
//!
//! The hub describes a file before it sends it: the commit is in `x-repo-commit`, the hash in `x-linked-etag` (the
//! SHA-256 of a large file, which is usually on another host) or in `etag` (the git object id of a small one). A file
//! is written under its hash as name, so an interrupted download continues where it stopped, and is moved into place
//! once the hash is verified.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, LOCATION, RANGE};
use reqwest::{Response, StatusCode, Url};
use sha2::Digest as _;
use tokio_util::sync::CancellationToken;

use super::store::{ModelSource, ModelStore, ModelStoreError, is_commit};
use crate::base::environment::{Environment, KeyError};
use crate::base::hex::hex;
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, Secret, authorized, client_for};

/// The hub, unless [`ADDRESS`] names a mirror.
const HUB: &str = "https://huggingface.co";

/// Variable with the address of a mirror. Hugging Face's own programs read it too.
const ADDRESS: &str = "HF_ENDPOINT";

/// Variable with the key of the hub or mirror, if it requires one.
const KEY: &str = "HF_TOKEN";

/// Maximum number of replies per file: redirects, and one for the remaining bytes. Bounds redirect loops.
const MAX_REPLIES: usize = 8;

/// Number of attempts per file. Each continues where the previous one stopped.
const ATTEMPTS: usize = 3;

/// Bytes read at once from a partial file.
const BLOCK: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct DownloadLimits {
    /// Maximum time without a byte from the hub.
    silence: Duration,
    /// Bytes of one file.
    bytes: u64,
}

/// The largest model of the catalogue has 2.3 GB.
const LIMITS: DownloadLimits = DownloadLimits { silence: Duration::from_secs(30), bytes: 4_000_000_000 };

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloading {
    pub(crate) model: String,
    /// The file, relative to its repository.
    pub(crate) file: String,
    /// Bytes received so far.
    pub(crate) done: u64,
    /// Bytes of the file; `None` if the hub does not say.
    pub(crate) size: Option<u64>,
}

/// Progress callback and cancellation of a download.
pub(crate) struct Fetching<'a> {
    pub(crate) listener: &'a (dyn Fn(Downloading) + Send + Sync),
    pub(crate) cancel: &'a CancellationToken,
}

/// A model could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("`{ADDRESS}` cannot be used")]
    Address(#[from] ParseBaseUrlError),
    #[error("`{KEY}` cannot be used")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Client(#[from] HttpError),
    #[error("status {status} from {address}")]
    Status { address: String, status: u16 },
    #[error("redirect from {address} has no valid target")]
    Redirects { address: String },
    #[error("no reply from {address}")]
    NoReply { address: String, source: reqwest::Error },
    #[error("no data from {address} before the timeout")]
    Silent { address: String },
    #[error("response from {address} lacks `x-repo-commit` or a hash")]
    Unidentified { address: String },
    #[error("`{file}` is larger than {max_bytes} bytes")]
    TooLarge { file: String, max_bytes: u64 },
    #[error("`{file}` broke off after {done} bytes")]
    Broken { file: String, done: u64 },
    #[error("`{file}` does not match the hub's hash: found {found}, expected {expected}")]
    Hash { file: String, expected: String, found: String },
    #[error(transparent)]
    Store(#[from] ModelStoreError),
    #[error("failed to write `{path}`")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("interrupted")]
    Cancelled,
}

impl DownloadError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Address(_) => format!("`{ADDRESS}` is the address of a mirror, for example `{HUB}`"),
            Self::Key(error) => error.hint(),
            Self::Status { status: 401 | 403, .. } => format!("the hub requires a key: export `{KEY}`"),
            Self::Status { .. } | Self::Redirects { .. } | Self::Unidentified { .. } | Self::Hash { .. } => {
                format!(
                    "`{ADDRESS}` sets another mirror, and `dr model use NAME --from FOLDER` takes files that are here"
                )
            }
            Self::NoReply { .. } | Self::Silent { .. } => {
                format!(
                    "check the connection, set `{ADDRESS}` to a mirror, or take files that are here with `dr model use NAME \
                     --from FOLDER`"
                )
            }
            Self::Broken { .. } | Self::Cancelled => "run it again: it continues where it stopped".to_owned(),
            Self::Write { .. } => "free disk space, or make the folder writable".to_owned(),
            Self::Store(error) => return error.hint(),
            Self::Client(_) | Self::TooLarge { .. } => return None,
        })
    }

    /// Returns whether another attempt may get further.
    fn may_pass(&self) -> bool {
        matches!(self, Self::NoReply { .. } | Self::Silent { .. } | Self::Broken { .. })
    }
}

pub(crate) struct Hub {
    address: BaseUrl,
    key: Option<Secret>,
    limits: DownloadLimits,
}

impl Hub {
    /// Returns the hub named by the environment variables.
    pub(crate) fn of(environment: &Environment) -> Result<Self, DownloadError> {
        let address = environment.get(ADDRESS).unwrap_or(HUB).parse()?;
        let key = environment.get(KEY).map(|_| environment.key(KEY)).transpose()?;
        Ok(Self { address, key, limits: LIMITS })
    }

    pub(crate) fn address(&self) -> &BaseUrl {
        &self.address
    }

    /// Downloads the files of a model that are not in the store yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the hub does not send a file as it describes it. Received bytes are kept for the next
    /// attempt, except for a file with a wrong hash.
    pub(crate) async fn download(
        &self,
        store: &ModelStore,
        model: &str,
        source: &ModelSource,
        fetching: &Fetching<'_>,
    ) -> Result<(), DownloadError> {
        let incoming = store.incoming()?;
        // Two models of one repository share a commit, so that both stay usable.
        let mut commit = store.commit(source);
        for file in source.files() {
            if commit.as_ref().is_some_and(|commit| store.place(source, commit, file).is_file()) {
                continue;
            }
            let transfer = Transfer { hub: self, model, file, folder: &incoming.folder, fetching };
            let is_placed = |commit: &str| store.place(source, commit, file).is_file();
            // At the commit of the first file: the branch may move between two files.
            let (from, path) = transfer.run(&self.url(source, commit.as_deref(), file), &is_placed).await?;
            if commit.as_ref().is_some_and(|commit| *commit != from) {
                return Err(DownloadError::Unidentified { address: self.address.to_string() });
            }
            if let Some(path) = path {
                store.put(source, &from, file, &path)?;
            }
            commit = Some(from);
        }
        Ok(store.publish(source, &commit.unwrap_or_default())?)
    }

    fn url(&self, source: &ModelSource, commit: Option<&str>, file: &str) -> String {
        let repository = source.repository().split('/');
        let segments: Vec<_> = repository.chain(["resolve", commit.unwrap_or("main")]).chain(file.split('/')).collect();
        self.address.with_segments(&segments)
    }

    /// Returns whether an address is on the hub itself, whose headers are trusted.
    fn is_of(&self, url: &Url) -> bool {
        let same_host = url.host_str() == Some(self.address.host());
        same_host
            && url.port_or_known_default() == Some(self.address.port())
            && (url.scheme() == "http") == self.address.is_plain()
    }
}

/// The hash of a file as the hub names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileHash {
    Sha256([u8; 32]),
    /// The git object id: the SHA-1 of the length and the content.
    Git([u8; 20]),
}

impl FileHash {
    fn parse(etag: &str) -> Option<Self> {
        let hex = etag.trim_start_matches("W/").trim_matches('"');
        let mut bytes = Vec::new();
        for pair in hex.as_bytes().chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
        let is_even = hex.len() == 2 * bytes.len();
        match bytes.len() {
            32 if is_even => Some(Self::Sha256(bytes.try_into().ok()?)),
            20 if is_even => Some(Self::Git(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// Computes the hash of a local file, of the same kind as this one.
    fn of_same_kind(self, path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        match self {
            Self::Sha256(_) => Ok(Self::Sha256(with_file(sha2::Sha256::new(), file)?.finalize().into())),
            Self::Git(_) => {
                let hasher = sha1::Sha1::new_with_prefix(format!("blob {}\0", file.metadata()?.len()));
                Ok(Self::Git(with_file(hasher, file)?.finalize().into()))
            }
        }
    }
}

/// Adds the contents of a file to a hash.
fn with_file<D: sha2::Digest>(mut hasher: D, mut file: File) -> std::io::Result<D> {
    let mut block = vec![0; BLOCK];
    while let count @ 1.. = file.read(&mut block)? {
        hasher.update(&block[..count]);
    }
    Ok(hasher)
}

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Sha256(bytes) => hex(bytes),
            Self::Git(bytes) => hex(bytes),
        })
    }
}

/// Commit, hash and size of a file, as far as the hub has stated them.
#[derive(Clone, Debug, Default)]
struct FileFacts {
    commit: Option<String>,
    name: Option<FileHash>,
    size: Option<u64>,
}

impl FileFacts {
    fn learn(&mut self, headers: &HeaderMap, is_file: bool) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // The `etag` of a redirect is not the file's.
        let etag = || text(ETAG.as_str()).filter(|_| is_file);
        self.commit =
            self.commit.take().or_else(|| text("x-repo-commit").filter(|text| is_commit(text)).map(str::to_owned));
        self.name = self.name.or_else(|| FileHash::parse(text("x-linked-etag").or_else(etag)?));
        self.size = self.size.or_else(|| text("x-linked-size")?.parse().ok());
    }
}

/// A file being received.
struct Sending {
    commit: String,
    name: FileHash,
    size: Option<u64>,
    /// Bytes received by earlier attempts.
    start: u64,
    /// `None` if the file was already complete.
    body: Option<Response>,
}

/// Returns whether the file of a commit is in place.
type IsPlaced<'a> = dyn Fn(&str) -> bool + Sync + 'a;

/// The download of one file.
struct Transfer<'a> {
    hub: &'a Hub,
    model: &'a str,
    file: &'a str,
    /// The folder for files that are not complete.
    folder: &'a Path,
    fetching: &'a Fetching<'a>,
}

impl Transfer<'_> {
    /// Downloads the file. Returns its commit and its path; `None` if it is already in place.
    async fn run(&self, url: &str, is_placed: &IsPlaced<'_>) -> Result<(String, Option<PathBuf>), DownloadError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.attempt(url, is_placed).await {
                Err(error) if error.may_pass() && attempts < ATTEMPTS => {
                    tracing::debug!(file = self.file, %error, "another attempt");
                }
                result => return result,
            }
        }
    }

    async fn attempt(&self, url: &str, is_placed: &IsPlaced<'_>) -> Result<(String, Option<PathBuf>), DownloadError> {
        let Sending { commit, name, size, start, body } = self.open(url).await?;
        if is_placed(&commit) {
            return Ok((commit, None));
        }
        let path = self.path(name);
        let failed = |source| DownloadError::Write { path: path.clone(), source };
        let mut done = start;
        self.tell(done, size);
        if let Some(mut body) = body {
            let mut file = OpenOptions::new().create(true).append(start > 0).write(true).open(&path).map_err(failed)?;
            // A server may send the whole file even if only the rest was requested.
            if start == 0 {
                file.set_len(0).map_err(failed)?;
            }
            while let Some(bytes) = self.next(&mut body, done).await? {
                done += bytes.len() as u64;
                // The hub may send more than it announced.
                self.check_size(done)?;
                file.write_all(&bytes).map_err(failed)?;
                self.tell(done, size);
            }
            // Before it is moved into place, where it counts as complete.
            file.sync_all().map_err(failed)?;
        }
        if size.is_some_and(|size| done < size) {
            return Err(DownloadError::Broken { file: self.file.to_owned(), done });
        }
        let hashed = path.clone();
        let found = tokio::task::spawn_blocking(move || name.of_same_kind(&hashed)).await;
        let found = found.map_err(std::io::Error::other).flatten().map_err(failed)?;
        if found != name {
            // If kept, it would count as the beginning of the file on the next attempt.
            fs::remove_file(&path).map_err(failed)?;
            let (expected, found) = (name.to_string(), found.to_string());
            return Err(DownloadError::Hash { file: self.file.to_owned(), expected, found });
        }
        Ok((commit, Some(path)))
    }

    /// Requests the file, or the rest of it once its hash is known.
    async fn open(&self, url: &str) -> Result<Sending, DownloadError> {
        let nowhere = || DownloadError::Redirects { address: url.to_owned() };
        let mut at = Url::parse(url).map_err(|_| nowhere())?;
        let mut said = FileFacts::default();
        for _ in 0..MAX_REPLIES {
            let asked = said.name.map_or(0, |name| self.here(name));
            let reply = self.ask(&at, asked).await?;
            let status = reply.status();
            if self.hub.is_of(&at) {
                said.learn(reply.headers(), status.is_success());
            }
            if status.is_redirection() {
                at = self.redirected(&at, &reply).ok_or_else(nowhere)?;
                continue;
            }
            let here = said.name.map_or(0, |name| self.here(name));
            // The partial file is longer than the file.
            if status == StatusCode::RANGE_NOT_SATISFIABLE && here > 0 {
                let path = said.name.map(|name| self.path(name)).unwrap_or_default();
                fs::remove_file(&path).map_err(|source| DownloadError::Write { path, source })?;
                continue;
            }
            if !status.is_success() {
                return Err(DownloadError::Status { address: shown(&at), status: status.as_u16() });
            }
            let (Some(commit), Some(name)) = (said.commit.clone(), said.name) else {
                return Err(DownloadError::Unidentified { address: url.to_owned() });
            };
            let is_rest = status == StatusCode::PARTIAL_CONTENT && is_from(reply.headers(), asked);
            let start = if is_rest { asked } else { 0 };
            let size = said.size.or_else(|| Some(start + reply.content_length()?));
            self.check_size(size.unwrap_or(0))?;
            if Some(here) == size {
                return Ok(Sending { commit, name, size, start: here, body: None });
            }
            // The hash became known only with this reply, so the whole file was requested.
            if here > 0 && asked == 0 {
                continue;
            }
            return Ok(Sending { commit, name, size, start, body: Some(reply) });
        }
        Err(nowhere())
    }

    /// Returns the target of a redirect: never from an encrypted connection to an unencrypted one.
    fn redirected(&self, from: &Url, reply: &Response) -> Option<Url> {
        let to = from.join(reply.headers().get(LOCATION)?.to_str().ok()?).ok()?;
        (to.scheme() == "https" || (to.scheme() == "http" && self.hub.address.is_plain())).then_some(to)
    }

    async fn ask(&self, url: &Url, start: u64) -> Result<Response, DownloadError> {
        let mut request = client_for(&url.origin().ascii_serialization().parse()?)?.get(url.clone());
        if start > 0 {
            request = request.header(RANGE, format!("bytes={start}-"));
        }
        // The key is only for the hub, not for the target of a redirect.
        let request = authorized(request, self.hub.key.as_ref().filter(|_| self.hub.is_of(url)));
        let reply = self.in_time(&shown(url), request.send()).await?;
        // The target of a redirect may have a key in its query.
        reply.map_err(|source| DownloadError::NoReply { address: shown(url), source: source.without_url() })
    }

    async fn next(&self, body: &mut Response, done: u64) -> Result<Option<Vec<u8>>, DownloadError> {
        let next = self.in_time(self.file, body.chunk()).await?;
        let next = next.map_err(|_| DownloadError::Broken { file: self.file.to_owned(), done })?;
        Ok(next.map(Vec::from))
    }

    /// Waits for the hub, unless it is silent for too long or the user cancels.
    async fn in_time<T>(&self, what: &str, reply: impl Future<Output = T>) -> Result<T, DownloadError> {
        tokio::select! {
            () = self.fetching.cancel.cancelled() => Err(DownloadError::Cancelled),
            reply = tokio::time::timeout(self.hub.limits.silence, reply) => {
                reply.map_err(|_| DownloadError::Silent { address: what.to_owned() })
            }
        }
    }

    fn check_size(&self, bytes: u64) -> Result<(), DownloadError> {
        let max_bytes = self.hub.limits.bytes;
        let too_large = || DownloadError::TooLarge { file: self.file.to_owned(), max_bytes };
        if bytes > max_bytes { Err(too_large()) } else { Ok(()) }
    }

    fn path(&self, name: FileHash) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Returns how many bytes of a file have been received.
    fn here(&self, name: FileHash) -> u64 {
        self.path(name).metadata().map_or(0, |file| file.len())
    }

    fn tell(&self, done: u64, size: Option<u64>) {
        let (model, file) = (self.model.to_owned(), self.file.to_owned());
        (self.fetching.listener)(Downloading { model, file, done, size });
    }
}

/// Returns an address without its query, which may contain a temporary key.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// Returns whether a part of a file begins at `start`.
fn is_from(headers: &HeaderMap, start: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.trim_start_matches("bytes ").starts_with(&format!("{start}-")))
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
