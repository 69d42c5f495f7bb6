//! Delays between retries: exponential backoff with jitter. Pure; the caller owns the clock and the loop.

use std::time::Duration;

/// Requests sent for one reply, the first included.
pub const MAX_ATTEMPTS: u32 = 5;

/// Upper bound of the first delay. The bound doubles with every attempt.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Longest delay, also if `Retry-After` asks for more: a run has a time limit of its own.
pub const MAX_WAIT: Duration = Duration::from_mins(1);

/// Returns the delay before the next attempt, or `None` after [`MAX_ATTEMPTS`].
///
/// `attempts` is the number of requests sent so far, at least 1. `chance` is a random number from 0 to 1 that spreads
/// out requests that failed at the same time. A server's `retry_after` overrides both.
pub fn wait(attempts: u32, retry_after: Option<Duration>, chance: f64) -> Option<Duration> {
    if attempts >= MAX_ATTEMPTS {
        return None;
    }
    let ceiling = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(MAX_WAIT);
    let chance = if chance.is_finite() { chance.clamp(0.0, 1.0) } else { 1.0 };
    Some(retry_after.map_or_else(|| ceiling.mul_f64(chance), |wait| wait.min(MAX_WAIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        let waits: Vec<_> = (1..=MAX_ATTEMPTS).map(|attempts| wait(attempts, None, 1.0)).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), None]);
        assert_eq!(wait(1, Some(Duration::from_hours(1)), 0.0), Some(MAX_WAIT));
        assert_eq!(wait(2, None, f64::NAN), seconds(2));
    }
}
