//! HTTP clients with limits, endpoint addresses, and secrets that are never printed.

use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use jiff::fmt::rfc2822;
use reqwest::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};

use super::id::ContentHash;
use super::line::shortened;
use super::retry::MAX_WAIT;

/// Time limit for establishing a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The `User-Agent` header of every request.
pub(crate) const USER_AGENT: &str = concat!("dr/", env!("CARGO_PKG_VERSION"));

/// Shortest secret that [`Secret::scrub`] removes, in bytes. A shorter one is a placeholder for a server that needs no
/// key, such as `x` or `ollama`; removing it would damage ordinary words.
const SHORTEST_HIDDEN: usize = 7;

/// A key or password. It can be sent but not printed: `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

/// The text is not a valid key. The error leaves the text out, since it may contain a real key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key has characters that cannot be sent")]
pub(crate) struct ParseSecretError;

impl Secret {
    /// Returns the value of an `Authorization: Bearer` header, marked sensitive.
    pub(crate) fn bearer(&self) -> HeaderValue {
        sensitive(&format!("Bearer {}", self.0))
    }

    /// Returns the bare secret as a header value, marked sensitive, for servers with their own key header.
    pub(crate) fn header(&self) -> HeaderValue {
        sensitive(&self.0)
    }

    /// Returns the secret as text. The caller parses it into another [`Secret`] and neither prints nor stores it.
    pub(crate) fn reveal(&self) -> String {
        self.0.clone()
    }

    /// Returns a hash that identifies this secret without revealing it. It depends on `salt`.
    pub(crate) fn fingerprint(&self, salt: &str) -> String {
        ContentHash::of(format!("{salt}\n{}", self.0).as_bytes()).as_str()[..16].to_owned()
    }

    /// Returns `text` with the secret replaced by `[key]`. Apply it to server replies: some servers echo the key in
    /// errors.
    pub(crate) fn scrub(&self, text: &str) -> String {
        if self.0.len() < SHORTEST_HIDDEN { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

/// Prefixes of OpenAI and Tavily keys; a word with one is treated as a key however short it is.
const KEY_STARTS: [&str; 2] = ["sk-", "tvly-"];

/// Shortest word of mixed letters and digits that is treated as a key, in bytes.
const SHORTEST_KEY: usize = 16;

/// Returns a setting's value for an error message: on one line, or `…` if it may be a key or an address with a
/// password.
pub(crate) fn shown(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let is_key = |word: &str| {
        let has = |is: fn(&u8) -> bool| word.bytes().any(|byte| is(&byte));
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        // A variable's name may be long and have digits, but is no secret.
        let is_variable = word.contains('_') && !has(u8::is_ascii_lowercase);
        let is_long = word.len() >= SHORTEST_KEY && is_mixed && !is_variable;
        is_long || KEY_STARTS.iter().any(|start| word.starts_with(start))
    };
    if text.contains('@') || text.split(|letter| !is_part(letter)).any(is_key) {
        "…".to_owned()
    } else {
        shortened(text)
    }
}

fn sensitive(text: &str) -> HeaderValue {
    let mut value = HeaderValue::from_str(text).expect("a secret has nothing but visible ASCII characters");
    value.set_sensitive(true);
    value
}

impl FromStr for Secret {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let is_sendable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_sendable { Ok(Self(text.to_owned())) } else { Err(ParseSecretError) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

pub(crate) const OPENAI_HOST: &str = "api.openai.com";

/// Base address of an endpoint, for example `https://api.openai.com/v1`; request paths are appended to it.
///
/// Has no trailing slash, and no credentials, query or fragment: addresses are printed and recorded, secrets are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseUrl(Url);

/// The text is not a valid endpoint address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBaseUrlError {
    /// Not an HTTP or HTTPS URL with a host. `url` is `…` if it may contain a password.
    #[error("`{url}` is not a valid URL (expected for example `http://localhost:11434/v1`)")]
    NotAnAddress { url: String },
    /// The URL has a user name, password, query or fragment. The error leaves the text out.
    #[error("address of an endpoint has a password or a query in it")]
    NotBare,
}

impl BaseUrl {
    /// Appends `path`, which begins with `/`.
    pub(crate) fn with_path(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// Appends path segments, percent-encoded, so that none can change the rest of the path.
    pub(crate) fn with_segments(&self, segments: &[&str]) -> String {
        let mut url = self.0.clone();
        // An HTTP address always has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url.into()
    }

    /// Returns the host name or IP address; an IPv6 address is in brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Returns the port, even if it is the default of the scheme.
    pub(crate) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Returns whether this is OpenAI's own API.
    pub(crate) fn is_openai(&self) -> bool {
        self.host() == OPENAI_HOST
    }

    /// Returns whether the endpoint is the user's own: on this machine, or `local` in its settings.
    pub(crate) fn is_own(&self, local: Option<bool>) -> bool {
        self.is_loopback() || local == Some(true)
    }

    /// Returns whether the endpoint is on this machine, judged by name or address; no DNS lookup is made.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host();
        let number = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || host.ends_with(".localhost") || number.is_ok_and(|number| number.is_loopback())
    }

    /// Returns whether requests are sent unencrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl FromStr for BaseUrl {
    type Err = ParseBaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim().trim_end_matches('/');
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        // A text that fails to parse may still contain a password or a key.
        let url = url.ok_or_else(|| ParseBaseUrlError::NotAnAddress { url: shown(text) })?;
        let has_secrets = !url.username().is_empty() || url.password().is_some();
        if has_secrets || url.query().is_some() || url.fragment().is_some() {
            return Err(ParseBaseUrlError::NotBare);
        }
        Ok(Self(url))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Url` writes an address without a path with a slash.
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("failed to set up the network client")]
pub struct HttpError(#[from] reqwest::Error);

/// Adds a key to a request, if there is one.
pub(crate) fn authorized(request: RequestBuilder, key: Option<&Secret>) -> RequestBuilder {
    match key {
        Some(key) => request.header(AUTHORIZATION, key.bearer()),
        None => request,
    }
}

/// Returns a client for one endpoint.
///
/// The client follows no redirects, since one would carry the key and the text to another host, and does not retry:
/// retries are the caller's decision, because each request may cost money. Loopback endpoints bypass any proxy.
/// [`exchange`] limits the time of a request.
pub(crate) fn client_for(address: &BaseUrl) -> Result<Client, HttpError> {
    // Fails only if a provider is installed already, which is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .retry(reqwest::retry::never());
    if address.is_loopback() {
        builder = builder.no_proxy();
    }
    if address.is_plain() {
        // Plain HTTP checks no certificate, and loading the system's fails on a machine that has none.
        builder = builder.tls_certs_only([]);
    }
    Ok(builder.build()?)
}

/// The body of a reply was not read completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("reply is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    #[error("reply broke off")]
    Broken(#[source] reqwest::Error),
}

/// Reads a whole body of at most `max_bytes`.
pub(crate) async fn read_capped(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    // The bytes are counted as they come: a server need not send a `Content-Length`.
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(BodyError::TooLarge { max_bytes });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The reply to a request.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A request has no complete reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReply {
    #[error("no reply in time")]
    TimedOut,
    /// The request was not sent, or the connection failed before a reply.
    #[error("no reply")]
    Failed(#[source] reqwest::Error),
    /// The status says success, but the body was not read.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Sends a request once and reads its reply of at most `max_bytes`. Gives up when `limit` completes.
///
/// An error status is a reply even if its body is lost: it shows the outcome of the request.
pub(crate) async fn exchange(
    request: RequestBuilder,
    max_bytes: usize,
    limit: BoxFuture<'static, ()>,
) -> Result<Exchange, NoReply> {
    let (response, limit) = match select(pin!(request.send()), limit).await {
        Either::Left((response, limit)) => (response.map_err(NoReply::Failed)?, limit),
        Either::Right(_) => return Err(NoReply::TimedOut),
    };
    let (status, headers) = (response.status(), response.headers().clone());
    // The rest of the same limit, so that a server cannot hold a request by sending its body slowly.
    let body = match select(pin!(read_capped(response, max_bytes)), limit).await {
        Either::Left((body, _)) => body.map_err(NoReply::Body),
        Either::Right(_) => Err(NoReply::TimedOut),
    };
    let body = if status.is_success() { body? } else { body.unwrap_or_default() };
    Ok(Exchange { status, headers, body })
}

/// Parses the `Retry-After` header, given in seconds or as a date, and caps it at [`MAX_WAIT`].
///
/// A date is compared with the reply's own `Date` header, so the server's clock need not agree with ours.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wanted = text(RETRY_AFTER)?;
    let seconds = match wanted.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let then = rfc2822::parse(wanted).ok()?.timestamp();
            let now = rfc2822::parse(text(DATE)?).ok()?.timestamp();
            then.duration_since(now).as_secs_f64()
        }
    };
    // An error for NaN, which `clamp` lets through.
    Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_WAIT.as_secs_f64())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_a_minute_at_most() {
        let wait = |wanted: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(wanted));
            headers.insert(DATE, HeaderValue::from_static("Sat, 21 Nov 2026 12:00:00 GMT"));
            retry_after(&headers)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(wait("86400"), Some(MAX_WAIT));
        assert_eq!(wait("Sat, 21 Nov 2026 12:00:20 GMT"), Some(Duration::from_secs(20)));
        assert_eq!(wait("Sat, 21 Nov 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("-5"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("NaN"), None);
    }

    #[test]
    fn secret_is_not_shown_and_is_taken_out_of_what_others_say() {
        let secret: Secret = " sk-very-secret\n".parse().unwrap();
        assert!(!format!("{secret:?} {:?}", secret.bearer()).contains("very"));
        assert_eq!(secret.bearer().to_str().unwrap(), "Bearer sk-very-secret");
        assert_eq!(secret.scrub("you sent sk-very-secret!"), "you sent [key]!");
        assert_eq!("x".parse::<Secret>().unwrap().scrub("an extra text"), "an extra text");
    }

    #[test]
    fn text_that_cannot_be_sent_is_no_secret() {
        for text in ["", "  ", "two\nlines", "söme", "with space"] {
            assert!(text.parse::<Secret>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn slash_at_the_end_of_an_address_makes_no_difference() {
        for text in ["http://localhost:11434/v1", "http://localhost:11434/v1/", " http://localhost:11434/v1// "] {
            let address: BaseUrl = text.parse().unwrap();
            assert_eq!(address.with_path("/responses"), "http://localhost:11434/v1/responses");
        }
        let bare: BaseUrl = "https://models.example".parse().unwrap();
        assert_eq!(bare.with_path("/responses"), "https://models.example/responses");
    }

    #[test]
    fn address_with_a_password_is_refused_without_showing_it() {
        for text in ["https://me:hunter2@models.example/v1", "https://models.example/v1?key=hunter2", "me:hunter2@host"]
        {
            let error = text.parse::<BaseUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!("ftp://models.example".parse::<BaseUrl>().is_err());
        assert!("localhost:11434".parse::<BaseUrl>().is_err());
    }

    #[test]
    fn setting_that_could_be_a_key_is_not_shown() {
        for text in ["sk-1", "my tvly-x", "0123456789abcdef", "https://me@host", "9f8d6c1e-0b2a-4d7e-8c3f-5a6b7c8d9e0f"]
        {
            assert_eq!(shown(text), "…", "{text}");
        }
        for text in ["gopher", "https://example.org/a", "10.1.0.0/16", "MY_OTHER_API_KEY_2", "a risk-free word"] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("a\nb"), "a b");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (text, is_loopback) in [
            ("http://localhost:1234/v1", true),
            ("http://127.0.0.9/v1", true),
            ("http://[::1]:8080/v1", true),
            ("http://127.0.0.1.example.com/v1", false),
            ("http://localhost.example.com/v1", false),
            ("https://api.openai.com/v1", false),
        ] {
            assert_eq!(text.parse::<BaseUrl>().unwrap().is_loopback(), is_loopback, "{text}");
        }
    }
}
