//! `dr trust`: trusts a folder that came from elsewhere, or the tools of a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::{counted, one_line};
use crate::engine::{AcceptedTool, AcceptedTools, Engine, SaidTool};
use crate::render::json::versioned;

/// Trust a folder that came from elsewhere, or the tools of a server
///
/// A `.dr` is used only if your own `dr` made it where it is, and a key in `.env` is not used. In a folder you trust,
/// both are used. What you trust is noted in your own data folder; nothing in the folder itself can change it.
///
/// With `--mcp`, accepts the current tool descriptions of a server. A tool whose description changes later is refused
/// until accepted again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr trust                               this folder
  dr trust --revoke ~/downloads/project
  dr trust --mcp tickets                 the tools of a server, as they are described now")]
pub(super) struct TrustArgs {
    /// The folder that contains `.dr` or `.env`
    #[arg(value_name = "PATH", default_value = ".")]
    folder: PathBuf,

    /// Stop trusting the folder
    #[arg(long)]
    revoke: bool,

    /// Accept the tools of this server as they are described now
    #[arg(long, value_name = "NAME", conflicts_with_all = ["folder", "revoke"], add = completions::servers())]
    pub(super) mcp: Option<String>,

    /// Print as JSON
    #[arg(long)]
    pub(super) json: bool,
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

/// Shows the tools of a server, and accepts them.
pub(super) async fn trust_server(ui: &mut Ui, engine: &Engine, name: &str, json: bool) -> Result<Exit, CliError> {
    let show = |AcceptedTools { tools, .. }: &AcceptedTools| {
        for tool in tools.iter().filter(|_| !json) {
            ui.tell(&described(tool));
        }
    };
    // Dropping the work ends the server.
    let accepted = interruptible().run_until_cancelled_owned(engine.accept_tools(name, show)).await;
    let Some(accepted) = accepted.transpose()? else { return Ok(Exit::Interrupted) };
    if json {
        ui.print(&versioned(&accepted)?)?;
        return Ok(Exit::Done);
    }
    let AcceptedTools { server, tools } = accepted;
    ui.tell(&match tools.len() {
        0 => format!("`{server}` has none of the tools that `[mcp.{server}]` allows"),
        tools => format!("trusted as described: {} of `{server}`", counted(tools, "tool")),
    });
    Ok(Exit::Done)
}

/// Returns everything that workers are shown of a tool, and what they were shown before if that has changed.
fn described(AcceptedTool { name, said, changed, before }: &AcceptedTool) -> String {
    let name = one_line(name);
    let lines = |word: &str, SaidTool { description, schema }: &SaidTool| {
        format!("\n  {word:<7} {}\n          {}", one_line(description), one_line(&schema.to_string()))
    };
    match changed {
        None => format!("`{name}`{}", lines("now:", said)),
        Some(part) => {
            let before = before.as_ref().map(|before| lines("before:", before)).unwrap_or_default();
            format!("`{name}`: its {part} has changed{before}{}", lines("now:", said))
        }
    }
}
