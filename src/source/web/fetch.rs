//! Fetches web pages: only from public addresses, only if `robots.txt` allows it, and only up to a size limit.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::MultiGzDecoder;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::redirect;
use reqwest::{Client, Response};
use tokio::sync::OnceCell;

use super::address::{AllowedHost, Closed, HostRules};
use super::links::links_of;
use super::pages::WebPage;
use super::readable::{Readable, plain, readable};
use super::robots::Robots;
use super::url::{ParseWebUrlError, WebUrl};
use crate::base::clock::Clock;
use crate::base::http::{BodyError, CONNECT_TIMEOUT, HttpError, USER_AGENT, read_capped, retry_after};
use crate::base::id::ContentHash;
use crate::base::line::{shortened, with_causes};
use crate::base::mutex::locked;
use crate::base::retry::{Again, Failure, Policy, retry};
use crate::kb::extract::{Extractable, Extracted, extract};

/// Maximum number of redirects followed per page.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of bytes read of a `robots.txt`. RFC 9309 requires at least 500 KiB.
const MAX_ROBOTS_BYTES: usize = 512 << 10;

/// Value of the `Accept` header.
const WANTED: &str =
    "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/json;q=0.8,application/pdf;q=0.7";

/// Bytes at the start of an HTML page that are searched for its `charset`. The HTML standard requires it there.
const META_BYTES: usize = 1_024;

/// Limits and permissions of a [`Fetcher`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchOptions {
    /// Time-out per page, including redirects and `robots.txt`.
    pub(crate) timeout: Duration,
    /// Largest page in bytes, after decompression. A larger one is refused.
    pub(crate) max_bytes: usize,
    /// Hosts that are allowed although their addresses are not public.
    pub(crate) allowed_hosts: Vec<AllowedHost>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(20), max_bytes: 5 << 20, allowed_hosts: Vec::new() }
    }
}

/// A page could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The host, or an address its name resolves to, is not public.
    #[error(transparent)]
    Closed(Closed),
    #[error("page redirects to an invalid address: {0}")]
    BadRedirect(ParseWebUrlError),
    #[error("page redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    #[error("`robots.txt` of `{origin}` disallows the page")]
    Robots { origin: String },
    /// The rules of the site are unknown, so the page is not fetched.
    #[error("`robots.txt` of `{origin}` cannot be read")]
    RobotsUnknown { origin: String },
    #[error("server returned status {status}")]
    Status { status: u16, retry_after: Option<Duration> },
    #[error("page did not arrive within {millis} ms")]
    TimedOut { millis: u128 },
    /// No connection, or it was interrupted.
    #[error("failed to fetch the page: {reason}")]
    Unreachable { reason: String },
    #[error("page is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    #[error("page has type `{found}`, which is not supported")]
    ContentType { found: String },
    /// The content encoding is not supported, or the compressed data is invalid.
    #[error("page is encoded as `{found}` and cannot be decoded")]
    Packed { found: String },
    #[error("failed to parse the page: {reason}")]
    Unreadable { reason: String },
    #[error("page has no text")]
    Empty,
}

impl Failure for FetchError {
    fn again(&self) -> Again {
        match self {
            Self::Status { status: 408 | 429 | 500 | 502..=504, retry_after } => Again::Later(*retry_after),
            Self::Unreachable { .. } => Again::Later(None),
            Self::Closed(_)
            | Self::BadRedirect(_)
            | Self::TooManyRedirects
            | Self::Robots { .. }
            | Self::RobotsUnknown { .. }
            | Self::Status { .. }
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
    /// Returns whether the site says that the page does not exist.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Status { status: 404 | 410, .. })
    }

    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Closed(Closed::Private(host)) => {
                Some(format!("if it is on your network, add `{host}` to `allowed_hosts`"))
            }
            _ => None,
        }
    }
}

/// HTTP client for web pages.
///
/// Sends no cookies, keys or referrer. Uses no proxy: a proxy resolves names itself, so the check for public addresses
/// could not be enforced. `robots.txt` files are cached per site for the lifetime of the fetcher.
pub(crate) struct Fetcher {
    client: Client,
    gate: HostRules,
    options: FetchOptions,
    clock: Arc<dyn Clock>,
    robots: Mutex<HashMap<String, Arc<OnceCell<Robots>>>>,
}

impl Fetcher {
    pub(crate) fn new(options: FetchOptions, clock: Arc<dyn Clock>) -> Result<Self, HttpError> {
        // Fails if a provider is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let gate = HostRules::new(options.allowed_hosts.clone());
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT.min(options.timeout))
            // `follow` follows redirects, and checks each target before it is requested.
            .redirect(redirect::Policy::none())
            // `Policy::PAGE` decides about retries.
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .dns_resolver(gate.clone())
            .build()?;
        Ok(Self { client, gate, options, clock, robots: Mutex::default() })
    }

    /// Fetches a page and extracts its text. Retries once if the server is busy, within the same time limit.
    pub(super) async fn fetch(&self, url: &WebUrl) -> Result<WebPage, FetchError> {
        tokio::select! {
            fetched = self.retried(|| self.fetch_page(url)) => fetched,
            () = self.clock.deadline(self.options.timeout) => {
                Err(FetchError::TimedOut { millis: self.options.timeout.as_millis() })
            }
        }
    }

    async fn retried<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, FetchError>
    where
        F: Future<Output = Result<T, FetchError>>,
    {
        let pause = |wait, _| async move {
            self.clock.sleep(wait).await;
            Ok(())
        };
        retry(&Policy::PAGE, rand::random, pause, attempt).await
    }

    async fn fetch_page(&self, requested: &WebUrl) -> Result<WebPage, FetchError> {
        let (url, response) = self.follow(requested, true).await?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = retry_after(response.headers());
            return Err(FetchError::Status { status: status.as_u16(), retry_after });
        }
        let headers = response.headers().clone();
        // Before the body: one of another kind is not downloaded.
        let kind = PageFormat::of(&headers)?;
        let body = self.body(response, self.options.max_bytes).await?;
        let content_type = header(&headers, &CONTENT_TYPE);
        // CPU-bound, so it must not block the runtime's thread.
        let at = url.clone();
        let read = move || {
            let (page, kind) = kind.read(&body, &content_type)?;
            Ok((links_of(&at, &page), page, kind))
        };
        let read = tokio::task::spawn_blocking(read).await;
        let (links, Readable { title, text, published, .. }, kind) =
            read.map_err(|_| FetchError::Unreadable { reason: "text extraction panicked".into() })??;
        if text.trim().is_empty() {
            return Err(FetchError::Empty);
        }
        Ok(WebPage {
            title: if title.is_empty() { url.to_string() } else { title },
            published,
            url: url.canonical(),
            requested: requested.canonical(),
            content_hash: ContentHash::of(text.as_bytes()),
            text,
            links,
            fetched_at: self.clock.now(),
            content_type: kind,
        })
    }

    /// Requests a URL and follows redirects. Every URL is checked before it is requested.
    async fn follow(&self, url: &WebUrl, asks_robots: bool) -> Result<(WebUrl, Response), FetchError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.gate.admit(&url).map_err(FetchError::Closed)?;
            if asks_robots {
                self.ask_robots(&url).await?;
            }
            // The client does not unpack. If a server packs all the same, `body` unpacks within the limit.
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
            let mut robots = locked(&self.robots);
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

    /// Fetches the `robots.txt` of a site. Returns an error if the site itself is not allowed.
    async fn robots_of(&self, url: &WebUrl) -> Result<Robots, FetchError> {
        let Ok(at) = url.join("/robots.txt") else { return Ok(Robots::Unknown) };
        let asked = || async {
            // Boxed, because `follow` and this function call each other.
            let (_, response) = Box::pin(self.follow(&at, false)).await?;
            match response.status().as_u16() {
                // By RFC 9309, 4xx means that there are no rules. 429 is only about the rate of requests.
                status @ (429 | 500..=599) => {
                    Err(FetchError::Status { status, retry_after: retry_after(response.headers()) })
                }
                _ => Ok(response),
            }
        };
        // Retried like a page, since the outcome holds for all pages of the site.
        let response = match self.retried(asked).await {
            Ok(response) => response,
            Err(FetchError::Closed(closed)) if closed.host() == url.host() => return Err(FetchError::Closed(closed)),
            // By RFC 9309, rules that cannot be reached forbid all pages.
            Err(_) => return Ok(Robots::Unknown),
        };
        Ok(match response.status().as_u16() {
            200..=299 => match self.body(response, MAX_ROBOTS_BYTES).await {
                Ok(body) => Robots::read(&String::from_utf8_lossy(&body)),
                Err(_) => Robots::Unknown,
            },
            400..=499 => Robots::silent(),
            _ => Robots::Unknown,
        })
    }

    /// Reads and decompresses a body. Both sizes are limited to `max_bytes`.
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

/// Decompresses at most `max_bytes`, so that a decompression bomb cannot exhaust memory.
fn unpack(body: &[u8], max_bytes: usize) -> Result<Vec<u8>, FetchError> {
    let mut unpacked = Vec::new();
    let mut reader = MultiGzDecoder::new(body).take(max_bytes as u64 + 1);
    reader.read_to_end(&mut unpacked).map_err(|_| FetchError::Packed { found: "gzip".into() })?;
    if unpacked.len() > max_bytes { Err(FetchError::TooLarge { max_bytes }) } else { Ok(unpacked) }
}

/// Classifies a request without a reply. A refused address is found in the chain of causes, where the resolver put it.
fn without_answer(error: &reqwest::Error) -> FetchError {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(closed) = cause.downcast_ref::<Closed>() {
            return FetchError::Closed(closed.clone());
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageFormat {
    Html,
    Text,
    /// Read by a child process.
    Pdf,
    /// No `Content-Type`: decided by the first bytes.
    Unsaid,
}

impl PageFormat {
    fn of(headers: &HeaderMap) -> Result<Self, FetchError> {
        let found = media_type(&header(headers, &CONTENT_TYPE));
        match found.as_str() {
            "text/html" | "application/xhtml+xml" => Ok(Self::Html),
            "text/markdown" | "text/x-markdown" | "text/plain" | "application/json" => Ok(Self::Text),
            PDF | "application/x-pdf" => Ok(Self::Pdf),
            json if json.ends_with("+json") => Ok(Self::Text),
            "" => Ok(Self::Unsaid),
            _ => Err(FetchError::ContentType { found: shortened(&found) }),
        }
    }

    /// Extracts the text of a body and returns it with its media type.
    fn read(self, body: &[u8], content_type: &str) -> Result<(Readable, String), FetchError> {
        if self == Self::Pdf || body.starts_with(b"%PDF-") {
            return Ok((read_pdf(body)?, PDF.to_owned()));
        }
        let kind = match self {
            Self::Unsaid if body.trim_ascii_start().starts_with(b"<") => Self::Html,
            Self::Unsaid => Self::Text,
            said => said,
        };
        let text = decode(body, content_type, kind);
        // Binary data that was sent as text.
        if text.contains('\0') {
            return Err(FetchError::ContentType { found: "application/octet-stream".into() });
        }
        let said = media_type(content_type);
        if kind == Self::Html {
            let page = readable(&text).map_err(|error| FetchError::Unreadable { reason: error.to_string() })?;
            return Ok((page, if said.is_empty() { "text/html".into() } else { said }));
        }
        Ok((plain(&text), if said.is_empty() { "text/plain".into() } else { said }))
    }
}

/// The media type of PDF files.
const PDF: &str = "application/pdf";

fn read_pdf(body: &[u8]) -> Result<Readable, FetchError> {
    let Extracted { title, text, .. } =
        extract(Extractable::Pdf, body).map_err(|error| FetchError::Unreadable { reason: with_causes(&error) })?;
    Ok(Readable { title, text: text.trim().to_owned(), ..Readable::default() })
}

/// Reads an HTML file: its charset is that of the file, or guessed.
pub(crate) fn html_text(bytes: &[u8]) -> Option<Extracted> {
    let Readable { title, published, text, .. } = readable(&decode(bytes, "", PageFormat::Html)).ok()?;
    Some(Extracted { title, published, text })
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Decodes a body with the charset from the header, else from the page, else as UTF-8 if valid, else as Windows-1252,
/// as browsers do.
fn decode(body: &[u8], content_type: &str, kind: PageFormat) -> String {
    let said = charset(content_type.as_bytes());
    let inside = || (kind == PageFormat::Html).then(|| charset(&body[..body.len().min(META_BYTES)])).flatten();
    let guessed = || if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    // A byte order mark overrides all of these.
    let encoding = said.or_else(inside).unwrap_or_else(guessed);
    encoding.decode(body).0.into_owned()
}

/// Parses the first `charset=…` in a header or a page.
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
