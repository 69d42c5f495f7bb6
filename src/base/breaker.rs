//! A circuit breaker: stops sending requests to a server after consecutive failures.

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::mutex::locked;

/// Number of consecutive failures after which a run stops using a source.
const MAX_FAILURES_OF_RUN: u32 = 3;

/// Number of consecutive failures after which a server used across runs gets a [`PAUSE`].
const MAX_FAILURES: u32 = 2;

/// Length of the pause: short, because a server that restarts or loads a model is soon usable again.
const PAUSE: Duration = Duration::from_mins(1);

/// The circuit is open: the request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is skipped after {failures} consecutive failures; last: {reason}")]
pub struct Open {
    pub(crate) name: Box<str>,
    pub(crate) failures: u32,
    /// Why the last of them failed.
    pub(crate) reason: Box<str>,
}

/// State of a server, judged by the outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It works. Refusing a single request counts as working.
    Up,
    /// It would fail any request.
    Down,
    /// The request did not reach it, or its reply was not awaited.
    Unknown,
}

/// The error of a request guarded by a [`Breaker`].
pub(crate) trait Guarded: Display + From<Open> {
    /// Returns the state of the server, judged by this error.
    fn health(&self) -> Health;
}

/// Guards the requests to one server.
///
/// Callers may send requests concurrently. Until one succeeds, they take turns: otherwise all of them would be sent
/// to a server that is down before the first failure is known.
pub(crate) struct Breaker {
    name: String,
    max_failures: u32,
    /// With a clock, the first request after a pause is sent, and its outcome decides about further ones.
    clock: Option<Arc<dyn Clock>>,
    turn: tokio::sync::Mutex<()>,
    record: Mutex<FailureRecord>,
}

#[derive(Clone, Debug, Default)]
struct FailureRecord {
    failures: u32,
    last_failure: Option<Instant>,
    reason: String,
    has_succeeded: bool,
}

impl Breaker {
    /// Returns a breaker that stays open for the rest of a run.
    pub(crate) fn of_run(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max_failures: MAX_FAILURES_OF_RUN,
            clock: None,
            turn: tokio::sync::Mutex::default(),
            record: Mutex::default(),
        }
    }

    /// Returns a breaker that is open for a minute at a time.
    pub(crate) fn with_pauses(name: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self { max_failures: MAX_FAILURES, clock: Some(clock), ..Self::of_run(name) }
    }

    /// Sends a request unless the circuit is open, and judges the server by its outcome.
    ///
    /// # Errors
    ///
    /// Returns the error of the request, or [`Open`] without sending it.
    pub(crate) async fn ask<T, E: Guarded>(&self, request: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let is_sound = |record: &FailureRecord| record.has_succeeded && record.failures == 0;
        let _turn = if is_sound(&locked(&self.record)) { None } else { Some(self.turn.lock().await) };
        let FailureRecord { failures, last_failure, reason, .. } = locked(&self.record).clone();
        // Without a clock, the pause does not end.
        let rested = self.clock.as_ref().zip(last_failure).map(|(clock, last)| clock.instant().duration_since(last));
        let is_resting = || rested.is_none_or(|rested| rested < PAUSE);
        // The count outlasts the pause, so that one more failure opens the circuit again.
        if failures >= self.max_failures && is_resting() {
            return Err(Open { name: self.name.as_str().into(), failures, reason: reason.into() }.into());
        }
        let answer = request.await;
        let mut record = locked(&self.record);
        match answer.as_ref().map_or_else(Guarded::health, |_| Health::Up) {
            Health::Up => *record = FailureRecord { has_succeeded: true, ..FailureRecord::default() },
            Health::Down => {
                record.failures = record.failures.saturating_add(1);
                record.last_failure = self.clock.as_ref().map(|clock| clock.instant());
                record.reason = answer.as_ref().err().map(E::to_string).unwrap_or_default();
            }
            Health::Unknown => {}
        }
        drop(record);
        answer
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::base::clock::{ManualClock, Moment};

    #[derive(Clone, Debug, PartialEq, thiserror::Error)]
    enum Failed {
        #[error("no answer")]
        Down,
        #[error("status 400")]
        Refused,
        #[error("stopped")]
        Stopped,
        #[error(transparent)]
        Open(#[from] Open),
    }

    impl Guarded for Failed {
        fn health(&self) -> Health {
            match self {
                Self::Down => Health::Down,
                Self::Refused => Health::Up,
                Self::Stopped | Self::Open(_) => Health::Unknown,
            }
        }
    }

    #[tokio::test]
    async fn server_that_fails_three_times_in_a_row_is_not_asked_again_however_many_ask_side_by_side() {
        let (breaker, asked) = (Breaker::of_run("source `web`"), Mutex::new(0));
        let fail = || async {
            *asked.lock().unwrap() += 1;
            tokio::task::yield_now().await;
            Err::<(), _>(Failed::Down)
        };
        let answers = join_all((0..8).map(|_| breaker.ask(fail()))).await;
        assert_eq!(*asked.lock().unwrap(), 3);
        assert_eq!(
            answers[7].clone().unwrap_err().to_string(),
            "source `web` is skipped after 3 consecutive failures; last: no answer"
        );
    }

    #[tokio::test]
    async fn server_that_answers_now_and_then_is_still_asked() {
        let breaker = Breaker::of_run("web");
        for round in 0..9 {
            let answer = if round % 3 == 2 { Ok(round) } else { Err(Failed::Down) };
            assert_eq!(breaker.ask(async { answer.clone() }).await, answer);
        }
    }

    #[tokio::test]
    async fn requests_that_are_refused_or_not_sent_open_no_circuit() {
        for error in [Failed::Refused, Failed::Stopped] {
            let breaker = Breaker::of_run("web");
            for _ in 0..9 {
                assert_eq!(breaker.ask(async { Err::<(), _>(error.clone()) }).await, Err(error.clone()));
            }
            assert_eq!(breaker.ask(async { Ok::<_, Failed>(7) }).await, Ok(7));
        }
    }

    #[tokio::test]
    async fn server_with_pauses_is_asked_again_after_a_minute_and_a_success_closes_the_circuit() {
        let clock = Arc::new(ManualClock::at(Moment(5)));
        let breaker = Breaker::with_pauses("it", clock.clone());
        let was_sent = async || breaker.ask(async { Err::<(), _>(Failed::Down) }).await == Err(Failed::Down);
        assert!(was_sent().await && was_sent().await && !was_sent().await);
        clock.advance(PAUSE);
        assert!(was_sent().await && !was_sent().await);
        clock.advance(PAUSE);
        assert_eq!(breaker.ask(async { Ok::<_, Failed>(7) }).await, Ok(7));
        assert!(was_sent().await && was_sent().await && !was_sent().await);
    }
}
