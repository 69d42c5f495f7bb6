//! Any error becomes a message, a hint, and an exit code.

use std::any::Any;
use std::fmt::Write;

use super::exit::Exit;
use crate::base::line::{printable, with_causes};
use crate::engine::EngineError;
use crate::llm::call::CallError;
use crate::render::RenderError;
use crate::run::orchestrator::RunError;

/// A command failed, or was asked for something impossible.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Something on the command line cannot be used.
    #[error("{message}")]
    Usage {
        /// What is wrong, as a fragment.
        message: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// A file could not be read or written.
    #[error("failed to {action} `{path}`")]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Standard output could not be written.
    #[error("failed to write the output")]
    Output(#[from] std::io::Error),
    /// A result could not be written as JSON.
    #[error("failed to write the result as JSON")]
    Json(#[from] serde_json::Error),
    /// A report could not be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl CliError {
    /// Returns the exit code this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. }
            | Self::Engine(
                EngineError::Config(_)
                | EngineError::Location(_)
                | EngineError::RemoteOffline { .. }
                | EngineError::NoWayOut { .. }
                | EngineError::Run(RunError::Plan { .. })
                | EngineError::Glob(_),
            ) => Exit::Usage,
            Self::Engine(EngineError::Run(RunError::Call { source: CallError::Cancelled, .. })) => Exit::Interrupted,
            Self::Engine(EngineError::Run(RunError::Call { source: CallError::Limit(_), .. })) => Exit::Partial,
            _ => Exit::Failed,
        }
    }

    /// Tells whether the reader of our output has gone, which is no error: `dr … | head`.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Returns `error: …: …` and, after an empty line, `hint: …`.
    pub fn message(&self) -> String {
        let mut message = format!("error: {}", with_causes(self));
        let hint = match self {
            Self::Engine(error) => error.hint(),
            Self::Usage { hint, .. } => hint.clone(),
            _ => None,
        };
        if let Some(hint) = hint {
            let _ = write!(message, "\n\nhint: {hint}");
        }
        // File names and stored texts are in here, and they may be anybody's.
        printable(&message)
    }
}

/// Returns the message for a panic: a damaged index can cause one in the storage engine, else it is a bug.
pub fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!(
        "error: stopped by a bug, or by a damaged index: {}\n\nhint: `dr index --rebuild <FOLDER>` makes the index \
         again; with DR_LOG=debug the place is shown",
        printable(text.unwrap_or("no message"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::index::IndexError;

    #[test]
    fn message_has_the_causes_and_the_hint_apart() {
        let error = CliError::from(EngineError::from(IndexError::Missing { location: "/kb/.dr/index".into() }));
        assert_eq!(error.message(), "error: no index at `/kb/.dr/index`\n\nhint: run `dr index <FOLDER>` first");
        let cause = std::io::Error::other("disk full");
        let error = CliError::File { action: "write", path: "a.md".into(), source: cause };
        assert_eq!(error.message(), "error: failed to write `a.md`: disk full");
    }
}
