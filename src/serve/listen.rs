//! Listens on this machine and serves the page, the API and the tools of `mcp` on one port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::{Router, middleware};
use tokio::net::TcpListener;

use super::app::App;
use super::gate::{PageCheck, check};
use super::{api, page};
use crate::base::folder::secret_in;
use crate::base::hex::hex;
use crate::mcp;

/// The page could not be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageServerError {
    #[error("failed to store the token of the page in `{path}`")]
    Token { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Socket(#[from] mcp::ServeError),
}

impl PageServerError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Token { .. } => None,
            Self::Socket(error) => Some(error.hint()),
        }
    }

    /// Returns whether the command line or a variable is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::Socket(error) if error.is_usage())
    }
}

#[derive(Debug)]
pub(crate) struct PageServer {
    listener: TcpListener,
    gate: PageCheck,
    app: App,
}

impl PageServer {
    /// Starts to listen on a port of this machine; 0 takes a free one. The token is read from a file of the user,
    /// which is created if missing, so that open pages keep working after the server is restarted.
    pub(crate) async fn at(port: u16, token: PathBuf, app: App) -> Result<Self, PageServerError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = mcp::bind(address).await?;
        let failed = |source| mcp::ServeError::Listen { address, source };
        let port = listener.local_addr().map_err(failed)?.port();
        let secret = secret_in(&token, true).map_err(|source| PageServerError::Token { path: token, source })?;
        let token = hex(&secret);
        Ok(Self { listener, gate: PageCheck::new(port, token), app })
    }

    /// Returns the address to open in a browser. It has the token.
    pub(crate) fn url(&self) -> String {
        self.gate.address()
    }

    /// Serves until the app stops. Runs are then stopped, and recorded as stopped.
    pub(crate) async fn serve(self) -> Result<(), PageServerError> {
        let Self { listener, gate, app } = self;
        let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let stop = app.stop.clone();
        let tools = mcp::ToolHandler::new(Arc::clone(&app.service));
        // Without its own token: `check`, which wraps all routes, already requires that of the page.
        let own = mcp::BearerCheck::new(address, Vec::new(), None)?;
        let routes = Router::new()
            .merge(page::routes())
            .merge(api::routes(app.clone()))
            .merge(mcp::routes(&tools, own, stop.clone()))
            .layer(middleware::from_fn_with_state(Arc::new(gate), check));
        let served = async {
            let served = mcp::serve_until(stop.clone(), listener, routes).await;
            // Even after the socket has failed: `runs_stopped` would wait forever.
            stop.cancel();
            served
        };
        // Runs stop while replies end: the process has two seconds for both.
        let runs_stopped = async {
            stop.cancelled().await;
            app.runs.close().await;
        };
        let (served, ()) = tokio::join!(served, runs_stopped);
        Ok(served.map_err(|source| mcp::ServeError::Listen { address, source })?)
    }
}
