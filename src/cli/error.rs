//! Maps errors to a message, a hint and an exit code.

use std::any::Any;
use std::fmt::Write;

use super::exit::Exit;
use crate::base::line::{printable, with_causes};
use crate::engine::{EngineError, ErrorKind, RequestError};
use crate::render::RenderError;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// The message, as a lowercase fragment.
        message: String,
        /// A correct command or value.
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

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Request(error) => error.into(),
            error => Self::Engine(error),
        }
    }
}

impl From<RequestError> for CliError {
    /// Names the flag behind an invalid request.
    fn from(error: RequestError) -> Self {
        let hint = error.hint();
        let message = match error {
            RequestError::Required(reason) => format!("`--cover`: {reason}"),
            RequestError::Days { since, until } => {
                format!("no day is on or after `--since {since}` and on or before `--until {until}`")
            }
            error @ (RequestError::NoWords | RequestError::Schema { .. } | RequestError::Glob { .. }) => {
                error.to_string()
            }
        };
        Self::Usage { message, hint }
    }
}

impl CliError {
    /// Returns the exit code for this error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::Usage,
            Self::Engine(error) => match error.kind() {
                ErrorKind::Usage => Exit::Usage,
                ErrorKind::Cancelled => Exit::Interrupted,
                ErrorKind::Limit => Exit::Partial,
                ErrorKind::Failed => Exit::Failed,
            },
            Self::File { .. } | Self::Output(_) | Self::Json(_) | Self::Render(_) => Exit::Failed,
        }
    }

    /// Returns whether stdout was closed by its reader, as in `dr … | head`, which is not an error.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Returns `error: …: …` and, after an empty line, `hint: …`.
    pub(crate) fn message(&self) -> String {
        let mut message = format!("error: {}", with_causes(self));
        let hint = match self {
            Self::Engine(error) => error.hint(),
            Self::Usage { hint, .. } => hint.clone(),
            Self::File { .. } | Self::Output(_) | Self::Json(_) | Self::Render(_) => None,
        };
        if let Some(hint) = hint {
            let _ = write!(message, "\n\nhint: {hint}");
        }
        // Messages contain file names and stored texts, which may hold terminal escape sequences.
        printable(&message)
    }
}

/// Returns the message for a panic: a damaged index can cause one in the storage engine, else it is a bug.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> String {
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

    #[test]
    fn message_has_the_causes_and_the_hint_apart() {
        let error = CliError::from(EngineError::NothingToIndex);
        let said = "error: no folder to index was given, and none is known yet\n\nhint: run `dr index <FOLDER>`";
        assert_eq!(error.message(), said);
        let cause = std::io::Error::other("disk full");
        let error = CliError::File { action: "write", path: "a.md".into(), source: cause };
        assert_eq!(error.message(), "error: failed to write `a.md`: disk full");
    }
}
