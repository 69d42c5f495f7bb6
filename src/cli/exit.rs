//! The exit codes of `dr`, in one place.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// It failed, or `dr doctor` found trouble.
    Failed = 1,
    /// The command line or a setting cannot be used.
    Usage = 2,
    /// The knowledge base has no answer, and `dr` refused to make one up.
    NoEvidence = 3,
    /// A limit ended a run, or parts of it were lost; the report is written.
    Partial = 4,
    /// Interrupted; what was done is kept, and running the command again goes on.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
