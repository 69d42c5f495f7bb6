//! `dr mcp`: serves tools to other programs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::exit::Exit;
use super::limits::LimitArgs;
use super::signal::interruptible;
use super::ui::Ui;
use super::watch::beside;
use crate::engine::{Engine, Service};
use crate::mcp::{BearerCheck, Client, Listening, ServeError, TOKEN_VARIABLE, ToolHandler, serve_stdio};

/// Serve the index to an assistant, over the Model Context Protocol
///
/// Speaks the protocol on stdin and stdout until stdin ends, or over HTTP with `--http`. The tools search and read the
/// index, answer questions, and start research in the background. No client can exceed
/// the limits of your settings.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr mcp --print-config claude           the settings of an assistant
  dr mcp --http 127.0.0.1:7879")]
pub(super) struct McpArgs {
    /// Serve the project in this folder (default: the working directory, which an assistant chooses)
    #[arg(long, value_name = "FOLDER")]
    project: Option<PathBuf>,

    /// Serve over HTTP, at `/mcp` of this address, for example `127.0.0.1:7879`; addresses that other machines reach
    /// need a token in `DR_MCP_TOKEN`
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,

    /// Host name that clients use to reach the server, for example through a proxy; may be repeated
    #[arg(long = "allow-host", value_name = "NAME", requires = "http")]
    hosts: Vec<String>,

    /// Keep the index up to date beside the server, as `dr watch` does (default: all folders of the index)
    #[arg(long, value_name = "PATH", num_args = 0..)]
    watch: Option<Vec<PathBuf>>,

    /// Print the settings for an assistant to start this server with, then stop
    #[arg(long, value_enum, value_name = "ASSISTANT", conflicts_with_all = ["http", "watch"])]
    print_config: Option<Client>,

    // Last, because its help heading applies to all arguments after it.
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

impl McpArgs {
    /// Changes to the folder of the project, before its settings are read.
    pub(super) fn enter_project(&self) -> Result<(), CliError> {
        let Some(folder) = &self.project else { return Ok(()) };
        std::env::set_current_dir(folder).map_err(CliError::file("enter", folder))
    }
}

pub(super) async fn mcp(ui: &mut Ui, engine: Engine, mut args: McpArgs) -> Result<Exit, CliError> {
    if let Some(client) = args.print_config {
        return print_config(ui, &engine, client);
    }
    let stop = interruptible();
    // Cancelled by `stop` and, alone, by the end of stdin: see `serve_stdio`.
    let gone = stop.child_token();
    let watching = args.watch.take().map(|folders| beside(ui, &engine, folders, gone.clone()));
    match args.http {
        Some(address) => serve_http(ui, engine, address, args, stop).await?,
        None => {
            let server = ToolHandler::new(Service::new(engine, args.limits.max_jobs(), gone.clone()));
            serve_stdio(&server, gone.clone(), stop).await?;
        }
    }
    gone.cancel();
    if let Some(watching) = watching {
        // A batch in progress is committed. A panic has been printed.
        let _ = watching.await;
    }
    Ok(Exit::Done)
}

async fn serve_http(
    ui: &mut Ui,
    engine: Engine,
    address: SocketAddr,
    args: McpArgs,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    if engine.is_offline() {
        return Err(ServeError::Offline);
    }
    let token = std::env::var_os(TOKEN_VARIABLE);
    let gate = BearerCheck::new(address, args.hosts, token.as_deref())?;
    let engine = engine.for_audience(gate.audience());
    let server = ToolHandler::new(Service::new(engine, args.limits.max_jobs(), stop.clone()));
    let listening = Listening::at(gate).await?;
    ui.tell(&format!("listening at {}", listening.url()));
    listening.serve(&server, stop).await
}

/// Prints the settings for an assistant to start this server with.
fn print_config(ui: &mut Ui, engine: &Engine, client: Client) -> Result<Exit, CliError> {
    let program = std::env::current_exe().map_err(CliError::file("find", "dr".as_ref()))?;
    ui.tell(&format!("for {}:", client.file()));
    ui.print(&client.settings(&program, &engine.project))?;
    Ok(Exit::Done)
}
