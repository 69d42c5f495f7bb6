//! Retries of failed requests: one table, and the loop that applies it.
//!
//! An error classifies itself ([`Failure::again`]), a row of the table has the number and the delays of retries
//! ([`Policy`]), and [`retry`] applies both. The caller supplies clock and randomness, so tests do not wait.

use std::time::Duration;

/// Whether the same request may be sent again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Sending it again cannot help.
    Never,
    /// The request was not carried out. The peer may have said when to come back.
    Later(Option<Duration>),
    /// No answer came, so the request may have been carried out, and paid for.
    Unanswered,
}

/// An error that is classified for [`retry`]. Match every variant: a new one must be classified.
pub(crate) trait Failure {
    /// Classifies the error.
    fn again(&self) -> Again;
}

/// The longest wait that a peer may request: no server may delay a run for hours.
pub(crate) const MAX_WAIT: Duration = Duration::from_mins(1);

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Maximum number of requests for one answer.
    pub(crate) attempts: u32,
    /// Of those, the number that may go unanswered. Each of them may have been paid for.
    pub(crate) unanswered: u32,
    /// The first wait, before random jitter shortens it; each further one is twice as long.
    pub(crate) first_wait: Duration,
    /// The longest wait, whatever the peer requests.
    pub(crate) longest_wait: Duration,
}

impl Policy {
    /// A prompt: cheap enough to pay for one lost reply.
    pub(crate) const PROMPT: Self = Self::new(5, 2, 1, 60);
    /// A prompt that research can do without, so nothing is spent on a second attempt.
    pub(crate) const OPTIONAL_PROMPT: Self = Self::new(1, 1, 1, 60);
    /// The start of a background job: a lost reply may hide a running job, so it is never repeated.
    pub(crate) const JOB_START: Self = Self::new(4, 1, 2, 60);
    /// A job that is still running: polled until its own time is up. Jobs take minutes, so faster polling
    /// would gain nothing.
    pub(crate) const JOB_POLL: Self = Self::new(u32::MAX, u32::MAX, 2, 30);
    /// A poll that failed. Polling is free, and the job continues meanwhile.
    pub(crate) const JOB_STATUS: Self = Self::new(11, 11, 2, 60);
    /// A query to a search engine. Some charge for each, and the circuit of one that is down opens after three queries.
    pub(crate) const SEARCH: Self = Self::new(3, 1, 1, 60);
    /// A web page: others may have the same content, so it gets only one more attempt.
    pub(crate) const PAGE: Self = Self::new(2, 1, 1, 10);
    /// Passages to embed. Indexing has time, and a lost reply is cheap.
    pub(crate) const PASSAGES: Self = Self::new(6, 3, 1, 60);
    /// A query to embed: the user is waiting, and the text leg runs anyway.
    pub(crate) const QUERY: Self = Self::new(2, 1, 1, 5);

    const fn new(attempts: u32, unanswered: u32, first_seconds: u64, longest_seconds: u64) -> Self {
        Self {
            attempts,
            unanswered,
            first_wait: Duration::from_secs(first_seconds),
            longest_wait: Duration::from_secs(longest_seconds),
        }
    }

    /// Returns the wait after `attempts` requests, before random jitter shortens it.
    pub(crate) fn delay(&self, attempts: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        self.first_wait.saturating_mul(doubled).min(self.longest_wait)
    }

    /// Returns the wait before the next request after `attempts` of them, of which `unanswered` brought no answer.
    /// Returns `None` if there is no next one.
    ///
    /// `chance` is a random number from 0 to 1, which spreads out clients that failed together. A wait requested by
    /// the peer takes precedence.
    fn wait(&self, again: Again, attempts: u32, unanswered: u32, chance: f64) -> Option<Duration> {
        if attempts >= self.attempts {
            return None;
        }
        match again {
            Again::Never => None,
            Again::Later(Some(wanted)) => Some(wanted.min(self.longest_wait)),
            Again::Later(None) => {
                // `mul_f64` panics on NaN and on negative numbers.
                let chance = if chance.is_finite() { chance.clamp(0.0, 1.0) } else { 1.0 };
                Some(self.delay(attempts).mul_f64(chance))
            }
            // Waiting for the answer has already taken time.
            Again::Unanswered => (unanswered < self.unanswered).then_some(Duration::ZERO),
        }
    }
}

/// Retries a request until it succeeds or the policy gives up; returns the last error.
///
/// `pause` waits, and receives the error that it waits for. Its own error ends the loop, for example when a run is
/// stopped.
pub(crate) async fn retry<T, E, P, S>(
    policy: &Policy,
    chance: impl Fn() -> f64,
    pause: impl Fn(Duration, E) -> P,
    send: impl Fn() -> S,
) -> Result<T, E>
where
    E: Failure,
    // Not `AsyncFn`: the compiler cannot yet prove that the future of such a closure is `Send`.
    P: Future<Output = Result<(), E>>,
    S: Future<Output = Result<T, E>>,
{
    let (mut attempts, mut unanswered) = (0, 0);
    loop {
        let error = match send().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let again = error.again();
        attempts += 1;
        unanswered += u32::from(again == Again::Unanswered);
        match policy.wait(again, attempts, unanswered, chance()) {
            Some(wait) => pause(wait, error).await?,
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Broken(Again);

    impl Failure for Broken {
        fn again(&self) -> Again {
            self.0
        }
    }

    const POLICIES: [Policy; 8] = [
        Policy::PROMPT,
        Policy::OPTIONAL_PROMPT,
        Policy::JOB_START,
        Policy::JOB_STATUS,
        Policy::SEARCH,
        Policy::PAGE,
        Policy::PASSAGES,
        Policy::QUERY,
    ];

    /// Returns the requests made and the waits between them, in milliseconds, if each request fails like this.
    async fn waits(policy: &Policy, failures: impl Fn(usize) -> Again, chance: f64) -> (usize, Vec<u128>) {
        let (sent, waited) = (RefCell::new(0), RefCell::new(Vec::new()));
        let pause = |wait: Duration, _| {
            waited.borrow_mut().push(wait.as_millis());
            ready(Ok(()))
        };
        let send = || {
            *sent.borrow_mut() += 1;
            ready(Err::<(), _>(Broken(failures(*sent.borrow()))))
        };
        retry(policy, || chance, pause, send).await.unwrap_err();
        (sent.into_inner(), waited.into_inner())
    }

    #[tokio::test]
    async fn waits_double_and_end() {
        let later = |_| Again::Later(None);
        assert_eq!(waits(&Policy::PROMPT, later, 1.0).await, (5, vec![1_000, 2_000, 4_000, 8_000]));
        assert_eq!(waits(&Policy::PROMPT, later, 0.5).await.1[1], 1_000);
        assert_eq!(waits(&Policy::PROMPT, later, f64::NAN).await.1[1], 2_000);
        assert_eq!(waits(&Policy::JOB_STATUS, later, 1.0).await.1.last(), Some(&60_000));
    }

    #[test]
    fn polls_of_a_job_are_never_more_than_half_a_minute_apart() {
        let waits: Vec<_> = (1..=6).map(|polls| Policy::JOB_POLL.delay(polls).as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 30, 30]);
        assert_eq!(Policy::JOB_POLL.delay(u32::MAX), Duration::from_secs(30));
    }

    #[tokio::test]
    async fn peer_that_says_when_to_come_back_is_believed_up_to_the_longest_wait() {
        let asked = |number| Again::Later(Some(Duration::from_secs(if number == 1 { 7 } else { 3_600 })));
        assert_eq!(waits(&Policy::PROMPT, asked, 0.0).await.1[..2], [7_000, 60_000]);
    }

    #[tokio::test]
    async fn request_that_may_be_paid_for_is_repeated_once_for_a_prompt_and_never_for_a_job() {
        let unanswered = |_| Again::Unanswered;
        assert_eq!(waits(&Policy::PROMPT, unanswered, 1.0).await, (2, vec![0]));
        assert_eq!(waits(&Policy::JOB_START, unanswered, 1.0).await, (1, vec![]));
        let between = |number| if number == 2 { Again::Later(None) } else { Again::Unanswered };
        assert_eq!(waits(&Policy::PROMPT, between, 1.0).await, (3, vec![0, 2_000]));
    }

    #[tokio::test]
    async fn error_that_nothing_can_help_is_returned_at_once() {
        for policy in POLICIES {
            assert_eq!(waits(&policy, |_| Again::Never, 1.0).await, (1, vec![]));
        }
    }

    #[tokio::test]
    async fn pause_that_fails_ends_the_loop() {
        let stopped = Broken(Again::Never);
        let pause = |_, _| ready(Err(stopped.clone()));
        let send = || ready(Err::<(), _>(Broken(Again::Later(None))));
        assert_eq!(retry(&Policy::PROMPT, || 1.0, pause, send).await, Err(stopped.clone()));
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_the_longest(
            row in 0..POLICIES.len(), attempts in any::<u32>(), chance in any::<f64>(), asked in any::<Option<u64>>(),
        ) {
            let policy = POLICIES[row];
            let wait = policy.wait(Again::Later(asked.map(Duration::from_millis)), attempts, 0, chance);
            prop_assert!(wait.is_none_or(|wait| wait <= policy.longest_wait && attempts < policy.attempts));
        }
    }
}
