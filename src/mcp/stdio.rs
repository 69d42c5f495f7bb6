//! Serves one client over stdin and stdout, which carry only the protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::{ServeError, ToolHandler};

/// Longest message of a client, in bytes. The longest argument is a question.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

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
    let input = Noticed { input, gone };
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
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

/// An input that reports its end at once.
struct Noticed<R> {
    input: R,
    gone: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for Noticed<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.input).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.gone.cancel();
        }
        Poll::Ready(read)
    }
}
