//! When a failed request is sent again, and after how long: a table, without a clock.

use std::time::Duration;

use super::model::ModelError;
use crate::base::retry::wait;

/// Returns how long to wait before sending again, or nothing where that cannot help or may cost twice.
///
/// `attempts` is how many were made, from 1. `chance` is a random number from 0 to 1 that spreads out those who failed
/// together; an endpoint that says when to come back is taken at its word instead.
pub fn wait_after(error: &ModelError, attempts: u32, chance: f64) -> Option<Duration> {
    let retry_after = match error {
        ModelError::Transient { retry_after, .. } | ModelError::RateLimited { retry_after } => *retry_after,
        ModelError::Unknown { .. }
        | ModelError::ContextTooLong { .. }
        | ModelError::Refused { .. }
        | ModelError::InvalidOutput { .. }
        | ModelError::Quota
        | ModelError::Authentication
        | ModelError::Permanent { .. }
        | ModelError::NoResearch { .. } => return None,
    };
    wait(attempts, retry_after, chance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::retry::MAX_WAIT;

    fn transient(retry_after: Option<Duration>) -> ModelError {
        ModelError::Transient { retry_after, reason: "busy".into() }
    }

    #[test]
    fn waits_double_and_end_after_five_attempts() {
        let waits: Vec<_> = (1..=5).map(|attempts| wait_after(&transient(None), attempts, 1.0)).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), None]);
        assert_eq!(wait_after(&transient(None), 3, 0.5), seconds(2));
    }

    #[test]
    fn endpoint_is_taken_at_its_word_up_to_a_minute() {
        let error = ModelError::RateLimited { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(wait_after(&error, 1, 0.0), Some(Duration::from_secs(7)));
        assert_eq!(wait_after(&transient(Some(Duration::from_hours(1))), 1, 0.0), Some(MAX_WAIT));
    }

    #[test]
    fn what_may_be_paid_for_or_cannot_be_helped_is_never_sent_again() {
        let text = || "…".to_owned();
        for error in [
            ModelError::Unknown { reason: text() },
            ModelError::ContextTooLong { prompt_tokens: 2, limit_tokens: 1 },
            ModelError::Refused { reason: text() },
            ModelError::InvalidOutput { complaint: text() },
            ModelError::Quota,
            ModelError::Authentication,
            ModelError::Permanent { reason: text() },
        ] {
            assert_eq!(wait_after(&error, 1, 0.5), None, "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_a_minute(attempts in any::<u32>(), chance in any::<f64>(), asked in any::<Option<u64>>()) {
            let error = transient(asked.map(Duration::from_millis));
            prop_assert!(wait_after(&error, attempts, chance).is_none_or(|wait| wait <= MAX_WAIT));
        }
    }
}
