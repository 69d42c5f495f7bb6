//! Ctrl-C, a polite request to end, and a terminal that goes away: the first stops the work, the second the program.

use tokio_util::sync::CancellationToken;

use super::exit::Exit;

/// Returns a token that the first signal triggers; a second one ends the program at once.
///
/// A terminal that goes away says so more than once, by itself and through the shell, so that is never the second. Whoever
/// started `dr` so that it outlives its terminal (`nohup`) is taken at their word.
pub(super) fn interruptible() -> CancellationToken {
    let token = CancellationToken::new();
    let triggered = token.clone();
    // Listening begins here, so not even an early signal ends the program by itself.
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        triggered.cancel();
        signals.forget_hangups();
        signals.next().await;
        std::process::exit(Exit::Interrupted as i32);
    });
    token
}

#[cfg(unix)]
struct Signals {
    /// Ctrl-C, and a polite request to end.
    requests: Vec<tokio::signal::unix::Signal>,
    /// The terminal has gone.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let requests = [SignalKind::interrupt(), SignalKind::terminate()];
        // Listening would undo what `nohup` has set.
        let hangup = Some(SignalKind::hangup()).filter(|_| !ignores_hangups());
        Self {
            requests: requests.into_iter().filter_map(|kind| signal(kind).ok()).collect(),
            hangup: hangup.and_then(|kind| signal(kind).ok()),
        }
    }

    /// Takes no more notice of terminals; none ends the program by itself after this either.
    fn forget_hangups(&mut self) {
        self.hangup = None;
    }

    async fn next(&mut self) {
        // All of them are polled, so that each wakes this task.
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

/// Tells whether this process was started so that it outlives its terminal. Only Linux says; elsewhere it is taken for so,
/// and a terminal that goes away without such a wish ends the program as it always does: the run can be resumed.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").ok();
    status.and_then(|status| ignored_signals(&status)).is_none_or(|ignored| ignored & HANGUP != 0)
}

/// The bit of a hangup, signal 1, among the signals a process ignores.
#[cfg(unix)]
const HANGUP: u64 = 1;

/// Reads the signals a process ignores, a bit each, in what the system says of it.
#[cfg(unix)]
fn ignored_signals(status: &str) -> Option<u64> {
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
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
