//! Errors of `dr index --pull`.

use std::path::PathBuf;
use std::time::Duration;

/// A repository could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("repositories are not pulled offline")]
    Offline,
    #[error("none of the folders is in a git repository")]
    NoRepository,
    #[error("failed to start `git`")]
    Start(#[source] std::io::Error),
    #[error("`git pull` in `{}` took longer than {} minutes", repository.display(), limit.as_secs() / 60)]
    TooLong { repository: PathBuf, limit: Duration },
    #[error("`git pull` failed in `{}`: {said}", repository.display())]
    Failed { repository: PathBuf, said: String },
}

impl PullError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Offline | Self::NoRepository => "run `dr index` without `--pull`",
            Self::Start(_) => "install git, or run `dr index` without `--pull`",
            Self::TooLong { .. } | Self::Failed { .. } => {
                "nothing was indexed; correct what git reports, or run `git pull --ff-only` there if it asks for a \
                 password, a passphrase or a host key; then run `dr index` without `--pull`"
            }
        }
    }
}
