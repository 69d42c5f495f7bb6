//! How long a run waits for a source, and when it stops asking one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Purpose};
use crate::llm::call::{CallError, Limit};
use crate::source::SourceError;

/// Consecutive failed requests after which a run no longer asks a source.
const MAX_FAILURES: u32 = 3;

/// How long answers from outside are waited for.
#[derive(Clone)]
pub(crate) struct Patience {
    /// No longer than there is time in it.
    pub(crate) budget: Budget,
    /// No longer than until this is triggered.
    pub(crate) stop: CancellationToken,
}

impl Patience {
    pub(super) async fn wait<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        tokio::select! {
            answer = answer => answer,
            () = self.stop.cancelled() => Err(SourceError::Stopped(CallError::Cancelled)),
            () = self.budget.time_up(Purpose::Research) => Err(SourceError::Stopped(CallError::Limit(Limit::Time))),
        }
    }
}

/// Stops asking a search engine or a server that has failed [`MAX_FAILURES`] times in a row, whatever it was asked.
///
/// Workers ask side by side, so until a request succeeds they take turns: otherwise all of a step would be sent to a
/// source that is down before the first failure is known.
pub(crate) struct Breaker {
    /// Name of the source.
    name: String,
    turn: tokio::sync::Mutex<()>,
    state: Mutex<Record>,
}

#[derive(Clone, Debug, Default)]
struct Record {
    failures: u32,
    /// Why the last request failed.
    reason: String,
    has_succeeded: bool,
}

impl Breaker {
    pub(crate) fn of(name: impl Into<String>) -> Self {
        Self { name: name.into(), turn: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    pub(super) async fn guard<T>(&self, ask: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        let is_sound = |record: &Record| record.has_succeeded && record.failures == 0;
        let _turn = if is_sound(&self.state()) { None } else { Some(self.turn.lock().await) };
        let Record { failures, reason, .. } = self.state().clone();
        if failures >= MAX_FAILURES {
            return Err(SourceError::GivenUp { name: self.name.clone(), failures, reason });
        }
        let answer = ask.await;
        let mut state = self.state();
        match &answer {
            // A source that refuses one request is not down.
            Ok(_) | Err(SourceError::Failed { .. }) => *state = Record { has_succeeded: true, ..Record::default() },
            Err(SourceError::Down { reason, .. }) => {
                state.failures += 1;
                state.reason.clone_from(reason);
            }
            // The source was not asked, or not waited for.
            Err(
                SourceError::NoSuchPassage { .. }
                | SourceError::Withheld { .. }
                | SourceError::Refused { .. }
                | SourceError::GivenUp { .. }
                | SourceError::Stopped(_),
            ) => {}
        }
        answer
    }

    fn state(&self) -> MutexGuard<'_, Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::future::join_all;

    use super::*;

    fn down() -> SourceError {
        SourceError::Down { name: "web".into(), reason: "`searxng` does not answer".into() }
    }

    #[tokio::test]
    async fn engine_that_fails_three_times_in_a_row_is_not_asked_again_however_many_search_side_by_side() {
        let (breaker, asked) = (Breaker::of("web"), Mutex::new(0));
        let fail = || async {
            *asked.lock().unwrap() += 1;
            tokio::task::yield_now().await;
            Err::<(), _>(down())
        };
        let answers = join_all((0..8).map(|_| breaker.guard(fail()))).await;
        assert_eq!(*asked.lock().unwrap(), 3);
        let last = answers[7].clone().unwrap_err().to_string();
        assert_eq!(
            last,
            "source `web` is not asked any more, since 3 requests in a row failed; the last one: `searxng` does not answer"
        );
        let told: BTreeSet<_> = answers.into_iter().map(|answer| answer.unwrap_err().told()).collect();
        assert_eq!(told, BTreeSet::from(["source `web` is not available".to_owned()]), "whichever comes first");
    }

    #[tokio::test]
    async fn engine_that_answers_now_and_then_goes_on_being_asked() {
        let breaker = Breaker::of("web");
        for round in 0..9 {
            let answer = if round % 3 == 2 { Ok(round) } else { Err(down()) };
            assert_eq!(breaker.guard(async { answer.clone() }).await, answer);
        }
        let withheld = SourceError::Withheld { reason: "why".into() };
        for _ in 0..4 {
            assert_eq!(breaker.guard(async { Err::<(), _>(withheld.clone()) }).await, Err(withheld.clone()));
        }
        assert_eq!(breaker.guard(async { Ok(()) }).await, Ok(()));
    }

    #[tokio::test]
    async fn engine_that_refuses_queries_goes_on_being_asked() {
        let breaker = Breaker::of("web");
        let refused = SourceError::Failed { name: "web".into(), reason: "status 400".into() };
        for _ in 0..9 {
            assert_eq!(breaker.guard(async { Err::<(), _>(refused.clone()) }).await, Err(refused.clone()));
        }
        assert_eq!(breaker.guard(async { Ok(()) }).await, Ok(()));
    }
}
