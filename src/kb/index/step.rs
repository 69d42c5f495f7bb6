//! The places between two commits where a test can stop the writer as a crash would.

use super::IndexError;

#[cfg(test)]
thread_local! {
    /// Steps the writers of this thread may still take before one stops; no limit when `None`.
    pub(crate) static STEPS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Marks the place before a commit.
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
