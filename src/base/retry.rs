//! When a request is sent again: a table, without a clock, for whoever asks others for something.

use std::time::Duration;

/// Requests for one answer, at most.
pub const MAX_ATTEMPTS: u32 = 5;

/// The first wait, before chance shortens it; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait, whatever somebody asks for.
pub const MAX_WAIT: Duration = Duration::from_mins(1);

/// Returns how long to wait before sending again what may be sent again; nothing after [`MAX_ATTEMPTS`].
///
/// `attempts` is how many were made, from 1. `chance` is a random number from 0 to 1 that spreads out those who failed
/// together; who says when to come back (`retry_after`) is taken at their word instead.
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
