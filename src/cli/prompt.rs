//! Questions to the user on a terminal: the question goes to stderr, the answer comes from stdin.

use std::io::{IsTerminal, Write};

/// Returns whether there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Prints a prompt and reads a line. Returns `None` without an answer.
pub(super) async fn line(prompt: &str) -> Option<String> {
    let mut err = std::io::stderr();
    write!(err, "{prompt}").and_then(|()| err.flush()).ok()?;
    // On a detached thread, so that a stopped command need not wait for a blocking read of stdin.
    let (said, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer).is_ok() {
            // The command may have been stopped meanwhile.
            let _ = said.send(answer);
        }
    });
    let answer = answer.await.ok()?.trim().to_owned();
    (!answer.is_empty()).then_some(answer)
}
