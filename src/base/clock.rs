//! The clock, injected so that tests and replays control time.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use tokio::sync::watch;

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than this moment.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `duration` later, saturating at the largest.
    #[cfg(test)]
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the UTC date as `2026-11-21`, or `None` if the moment is outside the calendar's range.
    pub(crate) fn date(self) -> Option<String> {
        let moment = jiff::Timestamp::from_millisecond(i64::try_from(self.0).ok()?).ok()?;
        Some(moment.strftime("%F").to_string())
    }
}

/// A source of time and of timers.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the current time. The system's clock can be set back or ahead: measure a duration by [`Self::instant`].
    fn now(&self) -> Moment;

    /// Returns a time that never decreases, to measure durations within the process.
    fn instant(&self) -> Instant;

    /// Completes after `duration`. For callers that are idle until then, such as a retry loop.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Completes after `duration`. For a limit on other work: awaiting it does not advance the clock of a
    /// test, while [`Self::sleep`] does.
    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.sleep(duration)
    }
}

/// The system clock and the timers of Tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock for tests: only a sleep advances it, at once.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ManualClock {
    begun: (Moment, Instant),
    now: watch::Sender<Moment>,
}

#[cfg(test)]
impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Moment::default())
    }
}

#[cfg(test)]
impl ManualClock {
    pub(crate) fn at(now: Moment) -> Self {
        Self { begun: (now, Instant::now()), now: watch::Sender::new(now) }
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.now.send_modify(|now| *now = now.after(duration));
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.now.borrow()
    }

    fn instant(&self) -> Instant {
        self.begun.1 + self.now().since(self.begun.0)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.advance(duration);
        Box::pin(tokio::task::yield_now())
    }

    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (mut now, then) = (self.now.subscribe(), self.now().after(duration));
        Box::pin(async move {
            // The clock was dropped, so the deadline is never reached.
            if now.wait_for(|now| *now >= then).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
