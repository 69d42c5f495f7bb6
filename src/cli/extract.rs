//! `dr extract-document`: the child process that reads one file. Hidden, since only `dr` itself starts it.

use clap::Args;

use super::exit::Exit;
use crate::engine::extract_document;

/// Read the text of a file from stdin, under limits
#[derive(Args, Debug)]
pub(super) struct ExtractArgs {
    /// Format of the file
    task: String,

    /// Bytes of memory
    memory: u64,

    /// Seconds of processor time
    cpu: u64,
}

/// Runs the command, before anything else is started.
pub(super) fn extract(args: &ExtractArgs) -> Exit {
    match extract_document(&args.task, args.memory, args.cpu) {
        Ok(()) => Exit::Done,
        Err(_) => Exit::Failed,
    }
}
