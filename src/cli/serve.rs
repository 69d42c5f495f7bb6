//! `dr serve`: serves a page to ask, watch, read and search in a browser.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::NamedTempFile;

use super::error::CliError;
use super::exit::Exit;
use super::limits::LimitArgs;
use super::signal::interruptible;
use super::ui::Ui;
use super::watch::beside;
use crate::engine::{Engine, Service};
use crate::mcp;
use crate::serve::{App, PageServer, PageServerError};

/// Serve a page to ask, watch, read and search in a browser
///
/// Listens only on this machine, until it is interrupted. The printed address contains a token that authenticates the
/// browser. The API that the page uses is described at `/api/openapi.json`, and `/mcp` serves the tools of `dr mcp`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr serve --open
  dr serve --watch                       keep the index up to date while serving
  dr serve --port 8080 --max-cost 2      a run from the page costs at most 2 dollars")]
pub(super) struct ServeArgs {
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7878)]
    port: u16,

    /// Open the page in the browser
    #[arg(long)]
    open: bool,

    /// Keep the index up to date while serving, as `dr watch` does (default: all folders of the index)
    #[arg(long, value_name = "PATH", num_args = 0..)]
    watch: Option<Vec<PathBuf>>,

    // Last, because its help heading applies to all arguments after it.
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

pub(super) async fn serve(ui: &mut Ui, engine: Engine, args: ServeArgs) -> Result<Exit, CliError> {
    if engine.is_offline() {
        return Err(PageServerError::from(mcp::ServeError::Offline).into());
    }
    let stop = interruptible();
    let token = engine.page_token();
    let folder = token.parent().unwrap_or(&token).to_path_buf();
    let app = App::new(Service::new(engine.clone(), args.limits.max_jobs(), stop.clone()));
    let server = PageServer::at(args.port, token, app).await?;
    let address = server.url();
    ui.tell(&format!("listening at {address}"));
    // Kept until the server ends, since a browser may be slow to start.
    let opened = args.open.then(|| open(&folder, &address));
    if let Some(Err(_)) = &opened {
        ui.tell("note: no browser was found; open the address above");
    }
    let watching = args.watch.map(|folders| beside(ui, &engine, folders, stop));
    server.serve().await?;
    if let Some(watching) = watching {
        // A batch that is being indexed is committed. A panic was printed.
        let _ = watching.await;
    }
    Ok(Exit::Done)
}

/// Opens the page in the browser by a file that leads to it, which only this user can read: other users see the
/// arguments of a process, and the address has the token. The file is removed when it is dropped.
fn open(folder: &Path, address: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("open-").suffix(".html").tempfile_in(folder)?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}\">")?;
    webbrowser::open(&file.path().to_string_lossy())?;
    Ok(file)
}
