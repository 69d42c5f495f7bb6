//! Handles SIGINT, SIGTERM and SIGHUP: the first signal stops the work, which ends the program within two seconds; the
//! second ends it at once.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use crate::engine::kill_programs;

/// How long work may continue after the first signal. Work that does not end by then is lost, as in a crash: its stored
/// results are kept, and the next run does the rest.
const GRACE: Duration = Duration::from_millis(1_500);

/// Exit code after a signal.
static EXIT: AtomicU8 = AtomicU8::new(Exit::Interrupted as u8);

/// Fixes the exit code of a command that has ended, whatever signals follow. Returns a token that the next signal
/// cancels.
pub(super) fn ended(exit: Exit) -> CancellationToken {
    EXIT.store(exit as u8, Ordering::Release);
    interruptible()
}

/// Returns a token that the first signal cancels. A second signal, or [`GRACE`] after the first, ends the program.
///
/// SIGHUP never counts as the second: when a terminal closes, both the kernel and the shell send it. Under `nohup` it
/// is ignored.
pub(super) fn interruptible() -> CancellationToken {
    let token = CancellationToken::new();
    let triggered = token.clone();
    let (listening, is_listening) = std::sync::mpsc::channel();
    // A separate thread: computations may keep every thread of the runtime busy.
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let mut signals = OsSignals::listen();
            let _ = listening.send(());
            signals.next().await;
            triggered.cancel();
            signals.forget_hangups();
            let _ = tokio::time::timeout(GRACE, signals.next()).await;
            // They are in separate process groups, which signals of the terminal do not reach.
            kill_programs();
            std::process::exit(EXIT.load(Ordering::Acquire).into());
        });
    });
    // Handlers are installed before this returns, so that an early signal also stops the work cleanly.
    let _ = is_listening.recv();
    token
}

#[cfg(unix)]
struct OsSignals {
    /// SIGINT (Ctrl-C) and SIGTERM.
    requests: Vec<tokio::signal::unix::Signal>,
    /// SIGHUP: the terminal was closed.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl OsSignals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let requests = [SignalKind::interrupt(), SignalKind::terminate()];
        // Installing a handler would undo `nohup`.
        let hangup = Some(SignalKind::hangup()).filter(|_| !ignores_hangups());
        Self {
            requests: requests.into_iter().filter_map(|kind| signal(kind).ok()).collect(),
            hangup: hangup.and_then(|kind| signal(kind).ok()),
        }
    }

    /// Ignores further SIGHUPs. The handler stays installed, so that they do not end the program.
    fn forget_hangups(&mut self) {
        self.hangup = None;
    }

    async fn next(&mut self) {
        // Each is polled without short-circuit, so that each can wake this task.
        std::future::poll_fn(|context| {
            let signals = self.requests.iter_mut().chain(&mut self.hangup);
            let arrived = signals.filter_map(|signal| match signal.poll_recv(context) {
                std::task::Poll::Ready(Some(())) => Some(()),
                _ => None,
            });
            if arrived.count() > 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// Returns whether this process was started to ignore SIGHUP. Only Linux reports that. Elsewhere this returns true, and
/// a closed terminal ends the program by default; its run can be resumed.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").ok();
    status.and_then(|status| ignored_signals(&status)).is_none_or(|ignored| ignored & HANGUP != 0)
}

/// Bit of SIGHUP, signal 1, in the mask of ignored signals.
#[cfg(unix)]
const HANGUP: u64 = 1;

/// Parses the mask of ignored signals in `/proc/self/status`.
#[cfg(unix)]
fn ignored_signals(status: &str) -> Option<u64> {
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

#[cfg(not(unix))]
struct OsSignals;

#[cfg(not(unix))]
impl OsSignals {
    fn listen() -> Self {
        Self
    }

    fn forget_hangups(&mut self) {}

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_as_the_system_writes_them() {
        let status =
            |bits: &str| format!("Name:\tdr\nSigBlk:\t0000000000000000\nSigIgn:\t{bits}\nSigCgt:\t0000000000000001\n");
        assert_eq!(ignored_signals(&status("0000000000001001")).map(|bits| bits & HANGUP), Some(1));
        assert_eq!(ignored_signals(&status("0000000000001000")).map(|bits| bits & HANGUP), Some(0));
        assert_eq!(ignored_signals("Name:\tdr\n"), None);
    }
}
