//! A breaker: a server that failed several times in a row is left alone for a while, so that nobody waits for each of many
//! requests to fail.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::{Clock, Moment};

/// Failures in a row after which the server is left alone for [`PAUSE`].
const MAX_FAILURES: u32 = 2;

const PAUSE: Duration = Duration::from_mins(1);

/// The server failed before, and is not asked for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it failed before")]
pub struct Paused;

/// Counts the failures of one server.
#[derive(Debug)]
pub(crate) struct Breaker {
    clock: Arc<dyn Clock>,
    failures: Mutex<Failures>,
}

/// Failures in a row, and when the last one was.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    number: u32,
    last: Moment,
}

impl Breaker {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, failures: Mutex::default() }
    }

    /// Makes a request unless the server is left alone, and notes whether it failed. One that is made after the pause
    /// decides about the next.
    ///
    /// # Errors
    ///
    /// Returns the error of the request, or [`Paused`] without making it.
    pub(crate) async fn ask<T, E: From<Paused>>(&self, request: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let failures = *self.failures();
        if failures.number >= MAX_FAILURES && self.clock.now().since(failures.last) < PAUSE {
            return Err(Paused.into());
        }
        let answer = request.await;
        let mut failures = self.failures();
        *failures = match &answer {
            Ok(_) => Failures::default(),
            Err(_) => Failures { number: failures.number.saturating_add(1), last: self.clock.now() },
        };
        drop(failures);
        answer
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[tokio::test]
    async fn server_that_fails_twice_is_left_alone_for_a_minute_and_a_success_forgets_that() {
        #[derive(Debug, PartialEq)]
        struct Failed(bool);
        impl From<Paused> for Failed {
            fn from(_: Paused) -> Self {
                Self(false)
            }
        }
        let clock = Arc::new(ManualClock::at(Moment(5)));
        let breaker = Breaker::new(clock.clone());
        let was_made = async || breaker.ask(async { Err::<(), _>(Failed(true)) }).await == Err(Failed(true));
        assert!(was_made().await && was_made().await && !was_made().await);
        clock.advance(PAUSE);
        assert!(was_made().await && !was_made().await);
        clock.advance(PAUSE);
        assert_eq!(breaker.ask(async { Ok::<_, Failed>(7) }).await, Ok(7));
        assert!(was_made().await && was_made().await && !was_made().await);
    }
}
