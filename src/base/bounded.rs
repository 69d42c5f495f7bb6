//! Computations on untrusted input, each on a thread that is abandoned when its time is up.
//!
//! A thread cannot be ended from outside. An abandoned one continues until it is done or the process ends, so the
//! input must be limited in size as well.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::line::panic_text;

/// The computation took too long, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it takes too long to process")]
pub struct TooSlow;

/// Runs `work` on a separate thread and waits for at most `limit`.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TooSlow> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected => TooSlow,
    })
}

/// Like [`within`], without blocking the thread of the caller.
pub(crate) async fn within_async<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TooSlow> {
    let (sender, receiver) = oneshot::channel();
    // Not `spawn_blocking`: a runtime that shuts down waits for its blocking threads, and this one may never be done.
    std::thread::spawn(move || sender.send(work()).is_ok());
    tokio::time::timeout(limit, receiver).await.map_err(|_| TooSlow)?.map_err(|_| TooSlow)
}

/// Runs `work`, which may panic, as the storage engine does on damaged files. The error is the message of the panic.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| panic_text(panic.as_ref()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_does_not_end_is_given_up() {
        let endless = || loop {
            std::thread::park();
        };
        let limit = Duration::from_millis(20);
        assert_eq!(within::<()>(limit, endless), Err(TooSlow));
        assert_eq!(within_async::<()>(limit, endless).await, Err(TooSlow));
        let long = Duration::from_mins(1);
        assert_eq!((within(long, || 1), within_async(long, || 2).await), (Ok(1), Ok(2)));
    }
}
