//! `dr trust`: uses what came with a folder.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;
use crate::engine::Engine;
use crate::render::json::versioned;

/// Trust a folder that came from elsewhere
///
/// A `.dr` is used only if your own `dr` made it where it is, and a key in `.env` is not used. In a folder you trust, both
/// are used. What you trust is noted in your own data folder; nothing in the folder itself can change it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr trust                               this folder
  dr trust --revoke ~/downloads/project")]
pub(super) struct TrustArgs {
    /// The folder that contains `.dr` or `.env`
    #[arg(value_name = "PATH", default_value = ".")]
    folder: PathBuf,

    /// Trust it no longer
    #[arg(long)]
    revoke: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn trust(ui: &mut Ui, args: &TrustArgs) -> Result<Exit, CliError> {
    let folder = if args.revoke { Engine::revoke_trust(&args.folder)? } else { Engine::trust(&args.folder)? };
    let shown = folder.display();
    match (args.json, args.revoke) {
        (true, _) => ui.print(&versioned(&json!({ "folder": folder, "trusted": !args.revoke }))?)?,
        (false, true) => {
            ui.tell(&format!("`{shown}` is not trusted: neither its `.dr` nor a key in its `.env` is used"));
        }
        (false, false) => ui.tell(&format!("`{shown}` is trusted: its `.dr` and a key in its `.env` are used")),
    }
    Ok(Exit::Done)
}
