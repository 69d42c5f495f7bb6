//! `dr trust`: trusts a folder that came from elsewhere, or the tools of a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::prompt;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::{counted, one_line};
use crate::engine::{AcceptedTool, AcceptedTools, Engine, SaidTool, Trustable};
use crate::render::json::versioned;

/// Trust a folder that came from elsewhere, or the tools of a server
///
/// A `.dr` is used only if your own `dr` made it where it is, and a key in `.env` is not used. In a folder you trust,
/// both are used. What you trust is noted in your own data folder; nothing in the folder itself can change it.
///
/// With `--mcp`, accepts the current tool descriptions of a server. A tool whose description changes later is refused
/// until accepted again.
///
/// Shows what would be trusted and asks. Without a terminal to ask on, `--yes` is required.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr trust                               this folder
  dr trust --yes ~/downloads/project     without asking
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

    /// Trust without asking
    #[arg(short, long, conflicts_with = "revoke")]
    yes: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

impl TrustArgs {
    /// Checks that the user can be asked, or that `--yes` makes that unnecessary.
    fn check_consent(&self) -> Result<(), CliError> {
        if self.yes || prompt::can_ask() {
            return Ok(());
        }
        Err(CliError::Usage {
            message: "`dr trust` asks before it trusts, and there is no terminal to ask on".to_owned(),
            hint: Some("pass `--yes` to trust without being asked".to_owned()),
        })
    }

    /// Shows what would be trusted, and asks unless `--yes` is given.
    async fn has_consent(&self, ui: &mut Ui, shown: &str) -> bool {
        if self.yes {
            if !self.json {
                ui.tell(shown);
            }
            return true;
        }
        // Even with `--quiet`: a question needs its subject.
        ui.warn(shown);
        let answer = prompt::line("trust this? [y/N] ").await.unwrap_or_default();
        let agrees = ["y", "yes"].iter().any(|word| answer.eq_ignore_ascii_case(word));
        if !agrees {
            ui.tell("nothing was trusted");
        }
        agrees
    }
}

pub(super) async fn trust(ui: &mut Ui, args: &TrustArgs) -> Result<Exit, CliError> {
    let folder = if args.revoke {
        Engine::revoke_trust(&args.folder)?
    } else {
        args.check_consent()?;
        let Trustable { folder, parts } = Engine::trustable(&args.folder)?;
        let parts: String = parts.iter().map(|(name, what)| format!("\n  {name:<7} {what}")).collect();
        // A line break in the name of the folder could pass for one of the parts.
        let shown = format!("trusting `{}` lets dr use:{parts}", one_line(&folder.to_string_lossy()));
        if !args.has_consent(ui, &shown).await {
            return Ok(Exit::Failed);
        }
        Engine::trust(&folder)?
    };
    let shown = folder.display();
    match (args.json, args.revoke) {
        (true, _) => ui.print(&versioned(&json!({ "folder": folder, "trusted": !args.revoke }))?)?,
        (false, true) => {
            ui.tell(&format!("`{shown}` is not trusted: neither its `.dr` nor a key in its `.env` is used"));
        }
        (false, false) => ui.tell(&format!("`{shown}` is trusted")),
    }
    Ok(Exit::Done)
}

/// Shows the tools of a server, and accepts them with the user's consent.
pub(super) async fn trust_server(ui: &mut Ui, engine: &Engine, name: &str, args: &TrustArgs) -> Result<Exit, CliError> {
    args.check_consent()?;
    let consent = async |AcceptedTools { server, tools }: &AcceptedTools| {
        if tools.is_empty() {
            ui.tell(&format!("`{server}` has none of the tools that `[mcp.{server}]` allows"));
            return true;
        }
        let shown: Vec<_> = tools.iter().map(described).collect();
        args.has_consent(ui, &shown.join("\n")).await
    };
    // Dropping the work ends the server.
    let accepted = interruptible().run_until_cancelled_owned(engine.accept_tools(name, consent)).await;
    let Some(accepted) = accepted.transpose()? else { return Ok(Exit::Interrupted) };
    let Some(accepted) = accepted else { return Ok(Exit::Failed) };
    let tools = accepted.tools.len();
    if args.json {
        ui.print(&versioned(&accepted)?)?;
    } else if tools > 0 {
        ui.tell(&format!("trusted as described: {} of `{}`", counted(tools, "tool"), accepted.server));
    }
    Ok(Exit::Done)
}

/// Returns everything that workers are shown about a tool, and the previous version if it has changed.
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
