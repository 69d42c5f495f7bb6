//! Where the time comes from, so that tests and replays can fix it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time from `earlier` to this moment; zero where that lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the day it lies in, in UTC, as `2026-11-21`; none for a moment beyond every calendar.
    pub fn date(self) -> Option<String> {
        let moment = jiff::Timestamp::from_millisecond(i64::try_from(self.0).ok()?).ok()?;
        Some(moment.strftime("%F").to_string())
    }
}

/// Tells the time and waits.
pub trait Clock: Send + Sync {
    /// Returns the present moment.
    fn now(&self) -> Moment;

    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that moves only when somebody sleeps, and then at once: for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Returns a clock that stands at `now`.
    pub fn at(now: Moment) -> Self {
        Self { now: AtomicU64::new(now.0) }
    }

    /// Moves the clock on.
    pub fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.now.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.advance(duration);
        Box::pin(tokio::task::yield_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn manual_clock_moves_by_what_is_slept() {
        let clock = ManualClock::at(Moment(5));
        clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(clock.now(), Moment(2_005));
        assert_eq!(clock.now().since(Moment(5)), Duration::from_secs(2));
        assert_eq!(Moment(1).since(Moment(5)), Duration::ZERO);
    }
}
