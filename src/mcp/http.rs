//! Serves any number of clients over HTTP: the streamable transport of the protocol, as a service that can be
//! merged with other routes.
//!
//! A page in a browser can send requests to this machine, so `Host` and `Origin` are checked with and without a token:
//! a foreign page has a foreign origin, and a name rebound to this machine is a foreign host. On an address that
//! other machines can reach, a token is required as well, and `local_only` collections are not served.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{ServeError, ToolHandler};
use crate::engine::Audience;

/// Shortest token. One of 16 random letters cannot be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Longest message of a client, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Names of this machine that a `Host` header may have.
pub(crate) const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const PATH: &str = "/mcp";

/// Longest wait for open streams after the server was stopped. Clients keep one open while they run.
const PATIENCE: Duration = Duration::from_millis(500);

/// Authenticates requests by `Host`, `Origin` and token.
#[derive(Clone, Debug)]
pub(crate) struct BearerCheck {
    address: SocketAddr,
    hosts: Vec<String>,
    /// Hash of the token. Hashes are compared in constant time and have one length.
    token: Option<blake3::Hash>,
}

impl BearerCheck {
    /// Returns the check of a server at `address` that is also known by the names `hosts`.
    ///
    /// # Errors
    ///
    /// Returns an error if other machines can reach the server and there is no token, or the token can be guessed.
    pub(crate) fn new(address: SocketAddr, hosts: Vec<String>, token: Option<&OsStr>) -> Result<Self, ServeError> {
        let token = token.map(OsStr::as_encoded_bytes);
        let gate = Self { address, hosts, token: token.map(blake3::hash) };
        match (token, gate.audience()) {
            (Some(token), _) if token.len() < SHORTEST_TOKEN => Err(ServeError::ShortToken { least: SHORTEST_TOKEN }),
            (None, Audience::Anywhere) => Err(ServeError::NoToken { address }),
            _ => Ok(gate),
        }
    }

    /// Returns who can reach the server. With its own host name, it may be behind a proxy or a tunnel on this
    /// machine.
    pub(crate) fn audience(&self) -> Audience {
        let is_local = |host: &String| LOOPBACK_NAMES.contains(&host.as_str());
        let is_loopback = self.address.ip().is_loopback() && self.hosts.iter().all(is_local);
        if is_loopback { Audience::ThisMachine } else { Audience::Anywhere }
    }

    /// Returns the names that a `Host` header may have.
    fn host_names(&self) -> Vec<String> {
        // `0.0.0.0` is an address to listen on, never the host of a request.
        let own = (!self.address.ip().is_unspecified()).then(|| self.address.ip().to_string());
        LOOPBACK_NAMES.iter().map(|name| (*name).to_owned()).chain(own).chain(self.hosts.clone()).collect()
    }

    /// Returns whether a request has the token, if one is required.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        bearer(headers).is_some_and(|sent| blake3::hash(sent) == *token)
    }
}

/// Returns the token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"Bearer ";
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    // The name of a scheme is case-insensitive (RFC 9110, 11.1).
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token.trim_ascii())
}

/// Returns the routes of the server. Every request is checked by `gate`.
pub(crate) fn routes(server: &ToolHandler, gate: BearerCheck, stop: CancellationToken) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(gate.host_names())
        // Without this, rmcp checks no `Origin`.
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        .with_cancellation_token(stop);
    let server = server.clone();
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::new(LocalSessionManager::default()), config);
    Router::new().route_service(PATH, service).layer(middleware::from_fn_with_state(Arc::new(gate), check_token))
}

async fn check_token(State(gate): State<Arc<BearerCheck>>, request: Request, next: Next) -> Response {
    if gate.admits(request.headers()) {
        return next.run(request).await;
    }
    tracing::info!("request without the token");
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "the token is missing or wrong\n")
        .into_response()
}

/// Opens a listening socket.
///
/// # Errors
///
/// Returns [`ServeError::Listen`] if the address is taken or not one of this machine.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    gate: BearerCheck,
}

impl Listening {
    /// Starts to listen on the address of a check.
    pub(crate) async fn at(gate: BearerCheck) -> Result<Self, ServeError> {
        Ok(Self { listener: bind(gate.address).await?, gate })
    }

    /// Returns the address of the service, with the actual port if none was given.
    pub(crate) fn url(&self) -> String {
        let address = self.listener.local_addr().unwrap_or(self.gate.address);
        format!("http://{address}{PATH}")
    }

    /// Serves until `stop` is cancelled. Cancelling `stop` also stops runs in progress and records them as stopped.
    pub(crate) async fn serve(self, server: &ToolHandler, stop: CancellationToken) -> Result<(), ServeError> {
        let Self { listener, gate } = self;
        let address = gate.address;
        let routes = routes(server, gate, stop.clone());
        let served = serve_until(stop, listener, routes).await;
        // Runs are stopped even if the socket has failed.
        server.close().await;
        served.map_err(|source| ServeError::Listen { address, source })
    }
}

/// Serves until `stop` is cancelled, then waits for open requests, up to [`PATIENCE`].
pub(crate) async fn serve_until(stop: CancellationToken, listener: TcpListener, routes: Router) -> std::io::Result<()> {
    let served = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        served = served.into_future() => served,
        // A client's stream does not end by itself.
        () = late => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "a-token-of-some-length";

    fn gate(address: &str, hosts: &[&str], token: Option<&str>) -> Result<BearerCheck, ServeError> {
        BearerCheck::new(
            address.parse().unwrap(),
            hosts.iter().map(|host| (*host).to_owned()).collect(),
            token.map(OsStr::new),
        )
    }

    #[test]
    fn server_that_other_machines_reach_needs_a_token() {
        for (address, hosts) in
            [("0.0.0.0:1", &[][..]), ("[::]:1", &[]), ("10.0.0.1:1", &[]), ("127.0.0.1:1", &["kb.example"])]
        {
            assert!(matches!(gate(address, hosts, None), Err(ServeError::NoToken { .. })), "{address}");
            assert!(matches!(gate(address, hosts, Some("")), Err(ServeError::ShortToken { .. })), "{address}");
            let gate = gate(address, hosts, Some(TOKEN)).unwrap();
            assert_eq!(gate.audience(), Audience::Anywhere, "{address}");
        }
        for (address, hosts) in [("127.0.0.1:1", &[][..]), ("[::1]:1", &[]), ("127.0.0.1:1", &["localhost"])] {
            assert_eq!(gate(address, hosts, None).unwrap().audience(), Audience::ThisMachine, "{address}");
        }
    }

    #[test]
    fn token_is_taken_from_a_bearer_header_alone() {
        let gate = gate("127.0.0.1:1", &[], Some(TOKEN)).unwrap();
        let admits = |value: &[u8]| {
            let value = header::HeaderValue::from_bytes(value).unwrap();
            gate.admits(&[(header::AUTHORIZATION, value)].into_iter().collect())
        };
        assert!(admits(format!("Bearer {TOKEN}").as_bytes()));
        assert!(admits(format!("bearer {TOKEN}").as_bytes()));
        for wrong in ["", "Bearer", "Bearer ", "Bearer a-token-of-some-lengt", "Basic a-token-of-some-length", TOKEN] {
            assert!(!admits(wrong.as_bytes()), "{wrong}");
        }
        assert!(!admits(b"Bearer\xff a-token-of-some-length"));
        assert!(!gate.admits(&HeaderMap::new()));
    }
}
