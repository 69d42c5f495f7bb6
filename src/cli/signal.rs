//! Ctrl-C, and a polite request to end: the first stops the work, the second the program.

use tokio_util::sync::CancellationToken;

use super::exit::Exit;

/// Returns a token that the first signal triggers; a second one ends the program at once.
///
/// A terminal that goes away is left to end the program as it always does, so that `nohup` keeps its meaning: what was
/// found is in the journal, and the run can be resumed.
pub(super) fn interruptible() -> CancellationToken {
    let token = CancellationToken::new();
    let triggered = token.clone();
    // Listening begins here, so not even an early signal ends the program by itself.
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        triggered.cancel();
        signals.next().await;
        std::process::exit(Exit::Interrupted as i32);
    });
    token
}

#[cfg(unix)]
struct Signals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        Self(kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect())
    }

    async fn next(&mut self) {
        // All of them are polled, so that each wakes this task.
        std::future::poll_fn(|context| {
            let arrived = self.0.iter_mut().filter_map(|signal| match signal.poll_recv(context) {
                std::task::Poll::Ready(Some(())) => Some(()),
                _ => None,
            });
            if arrived.count() > 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
