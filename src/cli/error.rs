//! Maps errors to a message, a hint and an exit code.

use std::any::Any;
use std::fmt::Write;
use std::path::Path;

use super::exit::Exit;
use crate::base::line::{panic_text, printable, with_causes};
use crate::engine::{EngineError, ErrorKind, RequestError};
use crate::render::RenderError;
use crate::{mcp, serve};

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Engine(EngineError),
    #[error("{message}")]
    Usage { message: String, hint: Option<String> },
    #[error("failed to {action} `{path}`")]
    File { action: &'static str, path: String, source: std::io::Error },
    #[error("failed to write the output")]
    Output(#[from] std::io::Error),
    #[error("failed to write the result as JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A server could not be started, or its client does not speak the protocol.
    #[error(transparent)]
    Mcp(#[from] mcp::ServeError),
    #[error(transparent)]
    Serve(#[from] serve::PageServerError),
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
            error => error.to_string(),
        };
        Self::Usage { message, hint }
    }
}

impl CliError {
    /// Returns a function that makes the error of a failed `action` on a file.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { action, path: path.display().to_string(), source }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::Usage,
            Self::Engine(error) => match error.kind() {
                ErrorKind::Usage => Exit::Usage,
                ErrorKind::Cancelled => Exit::Interrupted,
                ErrorKind::Limit => Exit::Partial,
                ErrorKind::Failed => Exit::Failed,
            },
            Self::Mcp(error) if error.is_usage() => Exit::Usage,
            Self::Serve(error) if error.is_usage() => Exit::Usage,
            Self::File { .. } | Self::Output(_) | Self::Json(_) | Self::Render(_) | Self::Mcp(_) | Self::Serve(_) => {
                Exit::Failed
            }
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
            Self::Mcp(error) => Some(error.hint()),
            Self::Serve(error) => error.hint(),
            Self::File { .. } | Self::Output(_) | Self::Json(_) | Self::Render(_) => None,
        };
        if let Some(hint) = hint {
            let _ = write!(message, "\n\nhint: {hint}");
        }
        // Messages contain file names and stored texts, which may hold terminal escape sequences.
        printable(&message)
    }
}

/// Crates whose panics mean that a stored file is damaged.
// As in the path of the source file, which is the location of a panic.
const STORAGE: [&str; 4] = ["/lance", "/arrow", "/datafusion", "/parquet"];

/// Returns the message for a panic at `place`. A damaged index can cause one in the storage engine; any other is a
/// bug.
pub(crate) fn panicked(panic: &(dyn Any + Send), place: &str) -> String {
    let text = printable(panic_text(panic));
    if STORAGE.iter().any(|name| place.contains(name)) {
        return format!("error: index is damaged: {text}\n\nhint: run `dr index --rebuild`");
    }
    format!("error: stopped by a bug: {text} (`{place}`)\n\nhint: run again with `DR_LOG=debug` for details")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_the_storage_engine_is_a_damaged_index_and_any_other_a_bug() {
        let panic: Box<dyn Any + Send> = Box::new("range end out of range");
        let said = panicked(panic.as_ref(), "/x/lance-file-14.0.2/src/reader.rs:7");
        assert_eq!(said, "error: index is damaged: range end out of range\n\nhint: run `dr index --rebuild`");
        assert!(panicked(panic.as_ref(), "src/run/budget.rs:7").starts_with("error: stopped by a bug: range end"));
    }

    #[test]
    fn message_has_the_causes_and_the_hint_apart() {
        let error = CliError::from(EngineError::NothingToIndex { rebuild: false });
        let said = "error: no folder to index was given, and none is known yet\n\nhint: run `dr index <FOLDER>`";
        assert_eq!(error.message(), said);
        let cause = std::io::Error::other("disk full");
        let error = CliError::File { action: "write", path: "a.md".into(), source: cause };
        assert_eq!(error.message(), "error: failed to write `a.md`: disk full");
    }
}
