//! Pulls the git repositories that folders to index are in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::pull::PullError;
use super::{Engine, EngineError, IndexRequest};
use crate::base::line::one_line;

/// Time that one repository may take.
const MOST: Duration = Duration::from_mins(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulled {
    pub(crate) repository: PathBuf,
    /// Output of `git pull`, on one line.
    pub(crate) said: String,
}

impl Engine {
    /// Runs `git pull --ff-only` in every repository that has a folder of the request, or with an empty request a
    /// folder of the index. Only fast-forwards: work of the user is never merged or lost.
    ///
    /// # Errors
    ///
    /// Returns [`PullError`], or an error for folders that cannot be indexed. Repositories before the one that failed
    /// stay pulled.
    pub(crate) async fn pull(
        &self,
        request: &IndexRequest,
        cancel: &CancellationToken,
    ) -> Result<Vec<Pulled>, EngineError> {
        if self.is_offline() {
            return Err(PullError::Offline.into());
        }
        let sources = self.folders_of(request).await?;
        // A set, since several folders may be in one repository.
        let repositories: BTreeSet<_> = sources.iter().filter_map(|source| repository_of(&source.root)).collect();
        if repositories.is_empty() {
            return Err(PullError::NoRepository.into());
        }
        let mut pulled = Vec::new();
        for repository in repositories {
            let pull = pull(&repository);
            let said = cancel.run_until_cancelled(pull).await.ok_or(EngineError::Cancelled)??;
            pulled.push(Pulled { repository, said });
        }
        Ok(pulled)
    }
}

/// Returns the nearest folder above that is a work tree of git.
fn repository_of(folder: &Path) -> Option<PathBuf> {
    // `.git` is a file in a linked work tree and in a submodule.
    folder.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf)
}

async fn pull(repository: &Path) -> Result<String, PullError> {
    let git = || {
        let mut command = Command::new("git");
        command.current_dir(repository).stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let mut command = git();
    command.args(["pull", "--ff-only", "--no-stat"]);
    // Without prompts, which could not be answered and would wait until `MOST`. ssh prompts on the terminal, whatever
    // its input is. An ssh command of the user's own stays as it is: it may be a program with other options.
    command.env("GIT_TERMINAL_PROMPT", "0");
    let variables = ["GIT_SSH_COMMAND", "GIT_SSH"];
    let set = git().args(["config", "core.sshCommand"]).output().await.map_err(PullError::Start)?;
    if !set.status.success() && variables.iter().all(|name| std::env::var_os(name).is_none()) {
        command.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
    }
    let repository = || repository.to_path_buf();
    let too_long = |_| PullError::TooLong { repository: repository(), limit: MOST };
    let output = timeout(MOST, command.output()).await.map_err(too_long)?;
    let output = output.map_err(PullError::Start)?;
    let first = |bytes: &[u8]| one_line(String::from_utf8_lossy(bytes).trim().lines().next().unwrap_or_default());
    if output.status.success() {
        return Ok(first(&output.stdout));
    }
    // Hints of git come first, the error last.
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = errors.trim().lines().rev().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    Err(PullError::Failed { repository: repository(), said: said.map_or_else(|| first(&output.stderr), one_line) })
}
