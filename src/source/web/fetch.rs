//! Pages come in through one client: only from the open web, only what their owner lets programs have, and never more
//! than anybody reads.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::MultiGzDecoder;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::redirect;
use reqwest::{Client, Response};
use tokio::sync::OnceCell;

use super::address::{AllowedHost, Closed, Gate};
use super::pages::Page;
use super::readable::{Readable, heading, plain, readable};
use super::robots::Robots;
use super::url::{ParseWebUrlError, WebUrl};
use crate::base::clock::Clock;
use crate::base::http::{BodyError, CONNECT_TIMEOUT, HttpError, USER_AGENT, read_capped, retry_after};
use crate::base::id::ContentHash;
use crate::base::line::shortened;
use crate::base::retry::{Again, Failure, Policy, retry};

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// Bytes of a `robots.txt` that are read; RFC 9309 asks for no fewer than 500 KiB.
const MAX_ROBOTS_BYTES: usize = 512 << 10;

/// What pages are wanted as.
const WANTED: &str = "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/json;q=0.8";

/// Bytes at the beginning of a page in which it may say its encoding.
const META_BYTES: usize = 1_024;

/// What a [`Fetcher`] may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// How long one page may take, redirects and `robots.txt` included.
    pub timeout: Duration,
    /// Bytes of a page that are read, after it was unpacked; a larger one is refused.
    pub max_bytes: usize,
    /// Machines that may be asked although they are not on the open web.
    pub allowed_hosts: Vec<AllowedHost>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(20), max_bytes: 5 << 20, allowed_hosts: Vec::new() }
    }
}

/// A page could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Its machine is not on the open web, or what its name leads to is not.
    #[error("`{host}` is not on the open web")]
    Closed {
        /// The machine.
        host: String,
    },
    /// It leads to something that is not a page of the web.
    #[error("page leads elsewhere: {0}")]
    BadRedirect(ParseWebUrlError),
    /// It leads from one address to the next.
    #[error("page redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    /// Its owner wants no programs there.
    #[error("`robots.txt` of `{origin}` asks programs to leave the page alone")]
    Robots {
        /// The site.
        origin: String,
    },
    /// Its owner could not be asked.
    #[error("`robots.txt` of `{origin}` cannot be read")]
    RobotsUnknown {
        /// The site.
        origin: String,
    },
    /// The server answers with an error.
    #[error("server answers with status {status}")]
    Status {
        /// The status.
        status: u16,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It takes too long.
    #[error("page did not come within {millis} ms")]
    TimedOut {
        /// The limit.
        millis: u128,
    },
    /// There is no connection, or it broke.
    #[error("no page came: {reason}")]
    Unreachable {
        /// Why.
        reason: String,
    },
    /// It is larger than anybody reads.
    #[error("page is larger than {max_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// It is no text.
    #[error("page is `{found}`, which is not read")]
    ContentType {
        /// What it is.
        found: String,
    },
    /// It is packed in a way that was not asked for, or badly.
    #[error("page is packed as `{found}` and cannot be unpacked")]
    Packed {
        /// How.
        found: String,
    },
    /// It cannot be made sense of.
    #[error("page cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// There are no words in it.
    #[error("page has no text")]
    Empty,
}

impl Failure for FetchError {
    fn again(&self) -> Again {
        match self {
            Self::Status { status: 408 | 429 | 500 | 502..=504, retry_after } => Again::Later(*retry_after),
            Self::Unreachable { .. } => Again::Later(None),
            Self::Status { .. }
            | Self::Closed { .. }
            | Self::BadRedirect(_)
            | Self::TooManyRedirects
            | Self::Robots { .. }
            | Self::RobotsUnknown { .. }
            | Self::TimedOut { .. }
            | Self::TooLarge { .. }
            | Self::ContentType { .. }
            | Self::Packed { .. }
            | Self::Unreadable { .. }
            | Self::Empty => Again::Never,
        }
    }
}

impl FetchError {
    /// Returns what the user can do about this error, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Closed { host } => Some(format!("if it is a machine of yours, add `{host}` to `allowed_hosts`")),
            Self::ContentType { found } if found == "application/pdf" => {
                Some("save its text into the knowledge base and index it".into())
            }
            _ => None,
        }
    }
}

/// Fetches pages.
///
/// It sends no cookies, no keys and no referrer, and uses no proxy: behind one nobody could say which machine a name
/// leads to. What `robots.txt` says is kept per site for as long as the fetcher lives.
pub struct Fetcher {
    client: Client,
    gate: Gate,
    options: FetchOptions,
    clock: Arc<dyn Clock>,
    robots: Mutex<HashMap<String, Arc<OnceCell<Robots>>>>,
}

impl Fetcher {
    /// Sets up the client.
    pub fn new(options: FetchOptions, clock: Arc<dyn Clock>) -> Result<Self, HttpError> {
        // An error says that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let gate = Gate::new(options.allowed_hosts.clone());
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT.min(options.timeout))
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .dns_resolver(gate.clone())
            .build()?;
        Ok(Self { client, gate, options, clock, robots: Mutex::default() })
    }

    /// Fetches a page and makes it text. A server that is busy is asked once more, within the same time.
    pub async fn fetch(&self, url: &WebUrl) -> Result<Page, FetchError> {
        let millis = self.options.timeout.as_millis();
        let late = |_| FetchError::TimedOut { millis };
        let pause = |wait, _| async move {
            self.clock.sleep(wait).await;
            Ok(())
        };
        let fetched = retry(&Policy::PAGE, rand::random, pause, || self.fetch_page(url));
        tokio::time::timeout(self.options.timeout, fetched).await.map_err(late)?
    }

    async fn fetch_page(&self, requested: &WebUrl) -> Result<Page, FetchError> {
        let (url, response) = self.follow(requested, true).await?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = retry_after(response.headers());
            return Err(FetchError::Status { status: status.as_u16(), retry_after });
        }
        let headers = response.headers().clone();
        let kind = Kind::of(&headers)?;
        let body = self.body(response, self.options.max_bytes).await?;
        let content_type = header(&headers, &CONTENT_TYPE);
        // Reading a page takes a while, and others wait for this thread.
        let read = tokio::task::spawn_blocking(move || kind.read(&body, &content_type)).await;
        let (Readable { title, text }, kind) =
            read.map_err(|_| FetchError::Unreadable { reason: "its reader failed".into() })??;
        if text.trim().is_empty() {
            return Err(FetchError::Empty);
        }
        Ok(Page {
            title: if title.is_empty() { url.to_string() } else { title },
            url: url.canonical(),
            requested: requested.canonical(),
            content_hash: ContentHash::of(text.as_bytes()),
            text,
            fetched_at: self.clock.now(),
            content_type: kind,
        })
    }

    /// Asks for an address and for those it leads to, each of which is looked at before it is asked.
    async fn follow(&self, url: &WebUrl, asks_robots: bool) -> Result<(WebUrl, Response), FetchError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.gate.admit(&url).map_err(|Closed { host }| FetchError::Closed { host })?;
            if asks_robots {
                self.ask_robots(&url).await?;
            }
            let request = self.client.get(url.url().clone()).header(ACCEPT, WANTED).header(ACCEPT_ENCODING, "identity");
            let response = request.send().await.map_err(|error| without_answer(&error))?;
            let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
            match location {
                Some(location) => url = url.redirected(location).map_err(FetchError::BadRedirect)?,
                None => return Ok((url, response)),
            }
        }
        Err(FetchError::TooManyRedirects)
    }

    async fn ask_robots(&self, url: &WebUrl) -> Result<(), FetchError> {
        let origin = url.origin();
        let cell = {
            let mut robots = self.robots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(robots.entry(origin.clone()).or_default())
        };
        let robots = cell.get_or_try_init(|| self.robots_of(url)).await?;
        let path = url
            .url()
            .query()
            .map_or_else(|| url.url().path().to_owned(), |query| format!("{}?{query}", url.url().path()));
        match robots {
            Robots::Unknown => Err(FetchError::RobotsUnknown { origin }),
            robots if robots.allows(&path) => Ok(()),
            Robots::Rules(_) => Err(FetchError::Robots { origin }),
        }
    }

    /// Asks the owner of a site; an error where the site itself may not be asked.
    async fn robots_of(&self, url: &WebUrl) -> Result<Robots, FetchError> {
        let Ok(at) = url.join("/robots.txt") else { return Ok(Robots::Unknown) };
        // Boxed, since following a page asks for this, which follows another.
        let response = match Box::pin(self.follow(&at, false)).await {
            Ok((_, response)) => response,
            Err(FetchError::Closed { host }) if host == url.host() => return Err(FetchError::Closed { host }),
            Err(_) => return Ok(Robots::Unknown),
        };
        Ok(match response.status().as_u16() {
            200..=299 => match self.body(response, MAX_ROBOTS_BYTES).await {
                Ok(body) => Robots::read(&String::from_utf8_lossy(&body)),
                Err(_) => Robots::Unknown,
            },
            // Too many requests are no answer; everything else in their range says that there is no such file.
            429 => Robots::Unknown,
            400..=499 => Robots::silent(),
            _ => Robots::Unknown,
        })
    }

    /// Reads a body to its end and unpacks it, neither further than `max_bytes`.
    async fn body(&self, response: Response, max_bytes: usize) -> Result<Vec<u8>, FetchError> {
        let packed = header(response.headers(), &CONTENT_ENCODING).to_ascii_lowercase();
        let body = read_capped(response, max_bytes).await.map_err(|error| match error {
            BodyError::TooLarge { max_bytes } => FetchError::TooLarge { max_bytes },
            BodyError::Broken(error) => without_answer(&error),
        })?;
        match packed.as_str() {
            "" | "identity" => Ok(body),
            "gzip" | "x-gzip" => {
                let unpacked = tokio::task::spawn_blocking(move || unpack(&body, max_bytes)).await;
                unpacked.unwrap_or(Err(FetchError::Packed { found: packed }))
            }
            _ => Err(FetchError::Packed { found: shortened(&packed) }),
        }
    }
}

/// Unpacks, and stops where it gets larger than anybody wants.
fn unpack(body: &[u8], max_bytes: usize) -> Result<Vec<u8>, FetchError> {
    let mut unpacked = Vec::new();
    let mut reader = MultiGzDecoder::new(body).take(max_bytes as u64 + 1);
    reader.read_to_end(&mut unpacked).map_err(|_| FetchError::Packed { found: "gzip".into() })?;
    if unpacked.len() > max_bytes { Err(FetchError::TooLarge { max_bytes }) } else { Ok(unpacked) }
}

/// Tells what a request that brought no page means.
fn without_answer(error: &reqwest::Error) -> FetchError {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(Closed { host }) = cause.downcast_ref::<Closed>() {
            return FetchError::Closed { host: host.clone() };
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return FetchError::Unreachable { reason: shortened(&cause.to_string()) },
        }
    }
}

fn header(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim().to_owned()
}

/// How a page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
    /// As its first bytes say: the server says nothing.
    Unsaid,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Result<Self, FetchError> {
        let found = media_type(&header(headers, &CONTENT_TYPE));
        match found.as_str() {
            "text/html" | "application/xhtml+xml" => Ok(Self::Html),
            "text/markdown" | "text/x-markdown" | "text/plain" | "application/json" => Ok(Self::Text),
            json if json.ends_with("+json") => Ok(Self::Text),
            "" => Ok(Self::Unsaid),
            _ => Err(FetchError::ContentType { found: shortened(&found) }),
        }
    }

    /// Makes a body text; returns it with what it was taken for.
    fn read(self, body: &[u8], content_type: &str) -> Result<(Readable, String), FetchError> {
        if body.starts_with(b"%PDF-") {
            return Err(FetchError::ContentType { found: "application/pdf".into() });
        }
        let kind = match self {
            Self::Unsaid if body.trim_ascii_start().starts_with(b"<") => Self::Html,
            Self::Unsaid => Self::Text,
            said => said,
        };
        let text = decode(body, content_type, kind);
        if text.contains('\0') {
            return Err(FetchError::ContentType { found: "application/octet-stream".into() });
        }
        let said = media_type(content_type);
        if kind == Self::Html {
            let page = readable(&text).map_err(|error| FetchError::Unreadable { reason: error.to_string() })?;
            return Ok((page, if said.is_empty() { "text/html".into() } else { said }));
        }
        let text = plain(&text);
        let page = Readable { title: heading(&text).unwrap_or_default(), text };
        Ok((page, if said.is_empty() { "text/plain".into() } else { said }))
    }
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads bytes as the server says, else as the page says, else as UTF-8 where they are, else as the web always did.
fn decode(body: &[u8], content_type: &str, kind: Kind) -> String {
    let said = charset(content_type.as_bytes());
    let inside = || (kind == Kind::Html).then(|| charset(&body[..body.len().min(META_BYTES)])).flatten();
    let guessed = || if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    // A mark at the beginning of the bytes outweighs them all.
    let encoding = said.or_else(inside).unwrap_or_else(guessed);
    encoding.decode(body).0.into_owned()
}

/// Finds `charset=…` in a header or a page.
fn charset(bytes: &[u8]) -> Option<&'static Encoding> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let found = text.split("charset").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('='));
    let label = |rest: &str| {
        let rest = rest.trim_start().trim_start_matches(['"', '\'']);
        let is_end = |letter: char| !(letter.is_ascii_alphanumeric() || "-_:.".contains(letter));
        Encoding::for_label(rest.split(is_end).next().unwrap_or_default().as_bytes())
    };
    found.map(label).next().flatten()
}
