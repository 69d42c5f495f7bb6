//! `dr completions` and `dr man`: what a shell and `man` read of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;

/// Print a completion script for a shell
///
/// Completes commands, flags and their values. Names of collections and ids of runs are not completed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr completions bash > ~/.local/share/bash-completion/completions/dr
  dr completions zsh > ~/.zfunc/_dr                  with `fpath+=~/.zfunc` before compinit
  dr completions fish > ~/.config/fish/completions/dr.fish
  dr completions powershell >> $PROFILE")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual pages of every command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Folder to write them to
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints the script.
pub(super) fn completions(ui: &mut Ui, args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dr", &mut script);
    ui.pass(&script)?;
    Ok(Exit::Done)
}

/// Writes `dr.1` and a page for each command.
pub(super) fn man(args: &ManArgs) -> Result<Exit, CliError> {
    let written =
        std::fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder));
    let path = args.folder.display().to_string();
    written.map_err(|source| CliError::File { action: "write", path, source })?;
    Ok(Exit::Done)
}
