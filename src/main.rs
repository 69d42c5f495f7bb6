//! The `dr` binary. Everything it does is in [`dr::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    dr::cli::run()
}
