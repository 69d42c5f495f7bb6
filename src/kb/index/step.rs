//! The points before each commit at which a test can stop the writer as if it had crashed.

use super::IndexError;

#[cfg(test)]
thread_local! {
    /// Number of steps that writers of this thread may take before one fails; `None` for no limit.
    pub(crate) static STEPS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Fails if a test has used up its steps.
#[cfg(test)]
pub(super) fn step(step: &'static str) -> Result<(), IndexError> {
    STEPS_LEFT.with(|steps| match steps.get() {
        Some(0) => Err(IndexError::Stopped { step }),
        left => {
            steps.set(left.map(|left| left - 1));
            Ok(())
        }
    })
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "the test build stops here")]
pub(super) fn step(_step: &'static str) -> Result<(), IndexError> {
    Ok(())
}
