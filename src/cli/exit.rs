//! The exit codes of `dr`, in one place.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// Failure, or a check found a problem: `dr doctor`, `dr links --check`.
    Failed = 1,
    /// The command line or a setting is invalid.
    Usage = 2,
    /// The sources do not support an answer: `dr` refused, or printed the closest passages.
    NoEvidence = 3,
    /// A limit ended a run, or parts of it failed; the report is written. Or a citation does not hold: `dr verify`.
    Partial = 4,
    /// Interrupted. Finished work is kept, and running the command again continues.
    // The code that shells use for a program ended by SIGINT (signal 2): 128 + 2.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
