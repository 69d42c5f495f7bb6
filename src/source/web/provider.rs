//! Search engines behind one trait: a query in, titles and snippets of pages out.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::civil::Date;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::Value;

use super::polite::{Contact, Pace, agent};
use super::url::WebUrl;
use crate::base::breaker::{Guarded, Health, Open};
use crate::base::clock::{Clock, SystemClock};
use crate::base::http::{BaseUrl, BodyError, Exchange, HttpError, NoReply, Secret, client_for, exchange, retry_after};
use crate::base::line::{innermost, one_line, shortened};
use crate::base::outbound::Outbound;
use crate::base::retry::{Again, Failure, Policy, retry};

/// Time-out of one search.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longest answer read, in bytes.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// Longest snippet kept, in characters.
const MAX_SNIPPET_CHARS: usize = 2_000;

/// Longest title kept, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// Range of publication days, both inclusive. Pages without a date are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DateRange {
    pub(crate) since: Option<Date>,
    pub(crate) until: Option<Date>,
}

/// A query for a search engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WebQuery {
    pub(crate) text: Outbound,
    /// Maximum number of pages to return.
    pub(crate) limit: usize,
    /// When the pages were published.
    pub(crate) dates: DateRange,
}

/// One result of a search engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebHit {
    /// Address of the page, as the engine reported it.
    pub(crate) url: WebUrl,
    /// Its title, on one line.
    pub(crate) title: String,
    /// Excerpt of the page, on one line.
    pub(crate) snippet: String,
    /// Publication date, in the engine's format.
    pub(crate) published: Option<String>,
}

/// A search failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    /// The engine is unreachable or failing; a retry may succeed.
    #[error("`{provider}` does not answer: {reason}")]
    Transient { provider: &'static str, retry_after: Option<Duration>, reason: String },
    #[error("rate limit of `{provider}` exceeded")]
    RateLimited { provider: &'static str, retry_after: Option<Duration> },
    #[error("`{provider}` rejected the key")]
    Authentication { provider: &'static str },
    #[error("quota of the `{provider}` account is exhausted")]
    Quota { provider: &'static str },
    #[error("answer of `{provider}` cannot be parsed: {reason}")]
    BadReply { provider: &'static str, reason: String },
    /// The engine rejected the request.
    #[error("`{provider}` rejected the search: {reason}")]
    Refused { provider: &'static str, reason: String, hint: Option<&'static str> },
    /// The engine rejected this query; it may well answer another one.
    #[error("`{provider}` rejected the query: {reason}")]
    BadQuery { provider: &'static str, reason: String },
    /// The engine failed several times in a row.
    #[error(transparent)]
    GivenUp(#[from] Open),
}

impl WebError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Authentication { .. } => Some("check the key in the environment".into()),
            Self::Quota { .. } => Some("top up the account, or search with another provider".into()),
            Self::Refused { hint, .. } => hint.map(str::to_owned),
            Self::RateLimited { .. } => Some("wait a while, or search with another provider".into()),
            Self::BadReply { .. } => Some("check that the address is that of the search engine".into()),
            Self::Transient { .. } | Self::BadQuery { .. } | Self::GivenUp(_) => None,
        }
    }
}

impl Guarded for WebError {
    fn health(&self) -> Health {
        match self {
            // It answers, and may answer the next query.
            Self::BadQuery { .. } => Health::Up,
            Self::GivenUp(_) => Health::Unknown,
            Self::Transient { .. }
            | Self::RateLimited { .. }
            | Self::Authentication { .. }
            | Self::Quota { .. }
            | Self::BadReply { .. }
            | Self::Refused { .. } => Health::Down,
        }
    }
}

impl Failure for WebError {
    fn again(&self) -> Again {
        match self {
            Self::Transient { retry_after, .. } | Self::RateLimited { retry_after, .. } => Again::Later(*retry_after),
            Self::Authentication { .. }
            | Self::Quota { .. }
            | Self::BadReply { .. }
            | Self::Refused { .. }
            | Self::BadQuery { .. }
            | Self::GivenUp(_) => Again::Never,
        }
    }
}

pub(crate) trait SearchProvider: Send + Sync {
    /// Returns the name in messages and journals, for example `searxng`.
    fn name(&self) -> &'static str;

    /// Returns the address of its API; `None` if it sends no requests.
    fn address(&self) -> Option<&BaseUrl>;

    /// Sends the query once, without retries.
    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>>;
}

/// Searches with retries, and drops pages published outside the dates of the query.
///
/// `chance` returns random numbers from 0 to 1, for the jitter of [`retry`].
pub(crate) async fn search_patiently(
    provider: &dyn SearchProvider,
    query: &WebQuery,
    clock: &dyn Clock,
    chance: impl Fn() -> f64 + Send,
) -> Result<Vec<WebHit>, WebError> {
    let pause = |wait, _| async move {
        clock.sleep(wait).await;
        Ok(())
    };
    let mut hits = retry(&Policy::SEARCH, chance, pause, || provider.search(query)).await?;
    hits.retain(|hit| query.dates.admits(hit.published.as_deref()));
    hits.truncate(query.limit);
    Ok(hits)
}

impl DateRange {
    /// Returns whether a page may have been published in this range. Pages without a readable date pass.
    pub(crate) fn admits(&self, published: Option<&str>) -> bool {
        let Some(day) = published.and_then(day) else { return true };
        self.since.is_none_or(|since| since <= day) && self.until.is_none_or(|until| day <= until)
    }
}

/// Parses the day of a date such as `2026-02-03` or `2026-02-03T10:00:00Z`.
pub(super) fn day(text: &str) -> Option<Date> {
    text.trim().get(..10)?.parse().ok()
}

/// The facts about a search engine.
pub(super) struct EngineFacts {
    /// Name in settings and journals.
    pub(super) name: &'static str,
    /// The variable that sets it up, if there is one: its key, or the address if it has no public one.
    pub(super) variable: Option<&'static str>,
    /// Its public address, if there is one.
    pub(super) address: Option<&'static str>,
    /// How often requests may be sent to that, if it answers without a key.
    pub(super) pace: Option<Pace>,
}

/// HTTP client for one engine at one address.
#[derive(Clone, Debug)]
pub(super) struct SearchClient {
    /// Name of the engine.
    provider: &'static str,
    pub(super) address: BaseUrl,
    key: Option<Secret>,
    pub(super) contact: Option<Contact>,
    client: Client,
    clock: Arc<dyn Clock>,
    /// Agent string in place of the usual one.
    agent: Option<HeaderValue>,
    /// How often requests may be sent.
    pace: Option<&'static Pace>,
    /// The remedy shown when the engine rejects a search.
    refusal_hint: Option<&'static str>,
}

impl SearchClient {
    /// Returns a client of the engine `provider` at `address`. The key is sent in the form of that engine, see
    /// [`Self::signed`].
    pub(super) fn new(
        provider: &'static str,
        refusal_hint: Option<&'static str>,
        address: BaseUrl,
        key: Option<Secret>,
    ) -> Result<Self, HttpError> {
        Ok(Self {
            provider,
            client: client_for(&address)?,
            address,
            key,
            clock: Arc::new(SystemClock),
            contact: None,
            agent: None,
            pace: None,
            refusal_hint,
        })
    }

    /// Returns a client that names itself and its user, and keeps to a pace.
    pub(super) fn politely(self, contact: Option<&Contact>, pace: Option<&'static Pace>) -> Self {
        Self { contact: contact.cloned(), agent: Some(agent(contact)), pace, ..self }
    }

    /// Adds the key to a request, if there is one.
    pub(super) fn signed(
        &self,
        request: RequestBuilder,
        header: HeaderName,
        form: fn(&Secret) -> HeaderValue,
    ) -> RequestBuilder {
        match &self.key {
            Some(key) => request.header(header, form(key)),
            None => request,
        }
    }

    /// Returns a client whose searches time out by another clock.
    #[cfg(test)]
    pub(super) fn on(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    pub(super) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.address.with_path(path))
    }

    pub(super) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(self.address.with_path(path))
    }

    /// Sends a request and parses the answer as JSON.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Value, WebError> {
        serde_json::from_str(&self.send_text(request).await?).map_err(|_| self.bad_reply("not JSON"))
    }

    /// Sends a request when it is its turn, and returns the answer.
    pub(super) async fn send_text(&self, request: RequestBuilder) -> Result<String, WebError> {
        let request = match &self.agent {
            Some(agent) => request.header(USER_AGENT, agent),
            None => request,
        };
        // Taken before the time-out begins, which is for the answer alone.
        let _turn = match self.pace {
            Some(pace) => Some(pace.turn(&*self.clock).await),
            None => None,
        };
        let sent = exchange(request, MAX_REPLY_BYTES, self.clock.deadline(TIMEOUT)).await;
        let Exchange { status, headers, body } = sent.map_err(|error| match &error {
            NoReply::TimedOut => self.transient(None, &format!("no answer within {} s", TIMEOUT.as_secs())),
            // The outer causes repeat the URL, which contains the query.
            NoReply::Failed(cause) | NoReply::Body(BodyError::Broken(cause)) => self.transient(None, &innermost(cause)),
            NoReply::Body(BodyError::TooLarge { .. }) => self.bad_reply(&error.to_string()),
        })?;
        // Answers are stored and shown, so a key that the engine repeats must not be in them.
        let text = self.scrubbed(&String::from_utf8_lossy(&body));
        if status.is_success() { Ok(text) } else { Err(self.answered(status, &headers, &text)) }
    }

    /// Returns the list at the JSON pointer `place`.
    pub(super) fn list<'a>(&self, reply: &'a Value, place: &str) -> Result<&'a Vec<Value>, WebError> {
        let list = reply.pointer(place).and_then(Value::as_array);
        list.ok_or_else(|| self.bad_reply(&format!("no list at `{place}`")))
    }

    pub(super) fn bad_reply(&self, reason: &str) -> WebError {
        WebError::BadReply { provider: self.provider, reason: reason.to_owned() }
    }

    fn refused(&self, reason: String) -> WebError {
        WebError::Refused { provider: self.provider, reason, hint: self.refusal_hint }
    }

    fn transient(&self, retry_after: Option<Duration>, reason: &str) -> WebError {
        let reason = shortened(&self.scrubbed(reason));
        WebError::Transient { provider: self.provider, retry_after, reason }
    }

    fn scrubbed(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text))
    }

    /// Classifies an answer with an error status.
    fn answered(&self, status: StatusCode, headers: &HeaderMap, body: &str) -> WebError {
        let provider = self.provider;
        let said = said(body);
        let reason = if said.is_empty() {
            format!("status {}", status.as_u16())
        } else {
            format!("status {}: {said}", status.as_u16())
        };
        // Some engines answer 429 in both cases, so that only their words tell a quota from a rate.
        let names_quota =
            ["quota", "credits", "usage limit", "plan limit"].iter().any(|word| said.to_lowercase().contains(word));
        match status.as_u16() {
            // Without a key these are refusals: SearXNG returns 403 if its JSON format is disabled.
            401 | 403 if self.key.is_some() => WebError::Authentication { provider },
            // Brave's answer to an unknown key.
            422 if body.contains("SUBSCRIPTION_TOKEN_INVALID") => WebError::Authentication { provider },
            // Tavily's own status codes for an exhausted account.
            402 | 432 | 433 => WebError::Quota { provider },
            429 if names_quota => WebError::Quota { provider },
            429 => WebError::RateLimited { provider, retry_after: retry_after(headers) },
            400 | 413 | 414 | 422 => WebError::BadQuery { provider, reason },
            408 | 409 | 500..=599 => self.transient(retry_after(headers), &reason),
            // Not followed: it would carry the query, and the key, to another host.
            300..=399 => {
                let place = headers.get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or("elsewhere");
                self.refused(format!("it redirects to `{}`", shortened(&self.scrubbed(place))))
            }
            _ => self.refused(reason),
        }
    }
}

/// Extracts the error message from an answer. Engines put it in different fields; an HTML page has none.
fn said(body: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return if body.trim_start().starts_with('<') { String::new() } else { shortened(body) };
    };
    let places = ["/error/message", "/error/detail", "/detail/error", "/detail", "/message", "/error"];
    shortened(places.iter().find_map(|place| value.pointer(place)?.as_str()).unwrap_or_default())
}

/// Parses one result. Returns `None` if it has no web address, or neither title nor snippet.
pub(super) fn hit(entry: &Value, snippet: Option<&str>, published: &str) -> Option<WebHit> {
    let text = |name: &str| entry[name].as_str();
    page(text("url")?, text("title").unwrap_or_default(), snippet.unwrap_or_default(), text(published))
}

/// Returns a result. Returns `None` if it has no web address, or neither title nor snippet.
pub(super) fn page(url: &str, title: &str, snippet: &str, published: Option<&str>) -> Option<WebHit> {
    let url: WebUrl = url.trim().parse().ok()?;
    let snippet = cut(&one_line(snippet), MAX_SNIPPET_CHARS);
    let title = cut(&one_line(title), MAX_TITLE_CHARS);
    if snippet.is_empty() && title.is_empty() {
        return None;
    }
    let published = published.map(str::trim).filter(|published| !published.is_empty()).map(shortened);
    let title = if title.is_empty() { url.host().to_owned() } else { title };
    Some(WebHit { url, title, snippet, published })
}

/// Returns the first `max_chars` characters of a text.
pub(super) fn cut(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).collect()
}

/// Removes the tags and entities that engines put into titles and snippets.
pub(super) fn without_markup(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        words.push_str(before);
        let name = tag.strip_prefix('/').unwrap_or(tag);
        rest = match tag.split_once('>') {
            Some((_, after)) if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) => after,
            _ => {
                words.push('<');
                tag
            }
        };
    }
    words.push_str(rest);
    for (entity, letter) in
        // `&amp;` last: `&amp;lt;` is the text `&lt;`, not `<`.
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#39;", "'"), ("&amp;", "&")]
    {
        words = words.replace(entity, letter);
    }
    words
}
