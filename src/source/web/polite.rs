//! Rules of engines without a key: a contact, and one request at a time, some time apart.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::base::clock::Clock;
use crate::base::http::USER_AGENT;
use crate::base::mutex::locked;

/// Longest contact, in bytes.
const MAX_CONTACT: usize = 200;

/// Where the operators of an engine can reach the user: a mail address or a web page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contact(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contact must be an email address or a URL")]
pub struct ParseContactError;

impl FromStr for Contact {
    type Err = ParseContactError;

    fn from_str(text: &str) -> Result<Self, ParseContactError> {
        let is_sendable = text.len() <= MAX_CONTACT && text.chars().all(|letter| letter.is_ascii_graphic());
        // It stands in parentheses in the agent string, and must not close them.
        let has_marks = text.contains(['(', ')', '"', '<', '>']);
        let is_page = text.starts_with("https://") || text.starts_with("http://");
        let is_mail = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
        if is_sendable && !has_marks && (is_page || is_mail) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseContactError)
        }
    }
}

impl Contact {
    /// Returns the mail address, if it is one.
    pub(super) fn mail(&self) -> Option<&str> {
        (!self.0.starts_with("http")).then_some(&self.0)
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the agent string of a request. Wikimedia, Crossref and others ask for a contact in it.
pub(super) fn agent(contact: Option<&Contact>) -> HeaderValue {
    let contact = contact.map(|contact| match contact.mail() {
        Some(mail) => format!(" (mailto:{mail})"),
        None => format!(" (+{contact})"),
    });
    let agent = format!("{USER_AGENT}{}", contact.unwrap_or_default());
    HeaderValue::from_str(&agent).expect("a contact has graphic ASCII letters only")
}

/// One request at a time to one engine, each some time after the one before. Each engine has one as a static, so it
/// holds for all runs of a process.
#[derive(Debug)]
pub(super) struct Pace {
    apart: Duration,
    turn: Semaphore,
    last: Mutex<Option<Instant>>,
}

impl Pace {
    pub(super) const fn new(apart: Duration) -> Self {
        Self { apart, turn: Semaphore::const_new(1), last: Mutex::new(None) }
    }

    /// Waits until a request may be sent. The next one waits until the permit is dropped.
    pub(super) async fn turn(&self, clock: &dyn Clock) -> SemaphorePermit<'_> {
        let turn = self.turn.acquire().await.expect("the semaphore is never closed");
        // Copied out, since the lock must not be held while waiting.
        let last = *locked(&self.last);
        if let Some(last) = last {
            let wait = self.apart.saturating_sub(clock.instant().duration_since(last));
            if !wait.is_zero() {
                clock.sleep(wait).await;
            }
        }
        *locked(&self.last) = Some(clock.instant());
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{ManualClock, Moment};

    #[test]
    fn contact_is_a_mail_address_or_a_page_and_stands_in_the_agent_string() {
        let agent_of = |text: &str| agent(Some(&text.parse().unwrap())).to_str().unwrap().to_owned();
        assert_eq!(agent_of("ada@example.org"), format!("{USER_AGENT} (mailto:ada@example.org)"));
        assert_eq!(agent_of("https://example.org/bot"), format!("{USER_AGENT} (+https://example.org/bot)"));
        for text in ["", "ada", "ada@", "@example.org", "ada@example.org\r\nX: y", "a b@example.org", "ä@example.org"]
        {
            assert_eq!(text.parse::<Contact>(), Err(ParseContactError), "{text}");
        }
    }

    #[tokio::test]
    async fn requests_are_some_time_apart_and_one_at_a_time() {
        let pace = Pace::new(Duration::from_secs(3));
        let clock = ManualClock::at(Moment(0));
        let first = pace.turn(&clock).await;
        let mut second = std::pin::pin!(pace.turn(&clock));
        assert!(futures::poll!(&mut second).is_pending(), "the first has not ended");
        clock.advance(Duration::from_secs(1));
        drop(first);
        drop(second.await);
        assert_eq!(clock.now(), Moment(3_000));
        clock.advance(Duration::from_secs(5));
        drop(pace.turn(&clock).await);
        assert_eq!(clock.now(), Moment(8_000), "enough time has passed");
    }
}
