//! Parse, run, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    dr::cli::run()
}
