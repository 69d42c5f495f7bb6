//! Serves one client over stdin and stdout, which carry only the protocol.

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::io::stdio_pipes;
use tokio_util::sync::CancellationToken;

use super::lines::LineTransport;
use super::{ServeError, ToolHandler};

/// Serves until stdin ends or `stop` is cancelled. Runs are then stopped, and recorded as stopped.
///
/// `gone` stops the runs of `server`. It is cancelled at the end of stdin; otherwise the server would keep working on
/// an answer that no client reads.
pub(crate) async fn serve_stdio(
    server: &ToolHandler,
    gone: CancellationToken,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (input, output) = stdio_pipes();
    let transport = LineTransport::new(input, output, gone);
    let served = match Box::pin(server.clone().serve_with_ct(transport, stop)).await {
        Ok(service) => {
            // The reason does not matter: the client closed stdin, or the user stopped the server.
            let _ = service.waiting().await;
            Ok(())
        }
        // A client that disconnects before its first message, or a stop, is not a failure.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(ServeError::Handshake(Box::new(error))),
    };
    server.close().await;
    served
}
