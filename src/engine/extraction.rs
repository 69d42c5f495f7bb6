//! The child process that reads one PDF or HTML file, see [`crate::kb::extract`].
//!
//! It limits itself before it reads a byte, reads one file from its input, writes one answer, and ends. It has no
//! engine, no settings and no threads but one, which ends the process when its input does.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::kb::extract::{
    ChildAnswer, ChildTask, Extractable, Extracted, LimitToBreak, Limited, Refusal, answers, confine, read_pdf,
};
use crate::source::web::html_text;

/// Largest input, in bytes; no format has larger files.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Declares that this binary has the hidden command that runs as the child.
pub(crate) fn answers_extraction() {
    answers();
}

/// Runs the child. `memory` is in bytes, `cpu` in seconds.
///
/// # Errors
///
/// Returns an error for an unknown task, and if the limits cannot be set or the pipes fail.
pub(crate) fn extract_document(task: &str, memory: u64, cpu: u64) -> io::Result<()> {
    let task = ChildTask::named(task).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (begin, begun) = channel();
    // Started before the limits, under which no thread starts.
    let input = receive(begun)?;
    confine(Limited { memory, cpu })?;
    // The input is read only now, under the limits.
    drop(begin);
    let bytes = input.recv().map_err(io::Error::other)??;
    let answer = match task {
        ChildTask::Read(format) => read(format, bytes),
        ChildTask::Break(limit) => break_limit(limit)?,
    };
    let answer = serde_json::to_vec(&answer)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&answer)?;
    stdout.flush()
}

/// Reads the input on a thread once `begun` is dropped. When the input ends, so does the process: its parent has.
fn receive(begun: Receiver<()>) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (send, received) = channel();
    let read = move || {
        let _ = begun.recv();
        let mut stdin = io::stdin().lock();
        let bytes = read_input(&mut stdin);
        if send.send(bytes).is_ok() {
            while matches!(stdin.read(&mut [0]), Ok(1..)) {}
        }
        std::process::exit(1);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(read)?;
    Ok(received)
}

fn read_input(from: &mut impl Read) -> io::Result<Vec<u8>> {
    // The length comes first, because the parent keeps the pipe open: its end means that the parent is gone.
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_INPUT_BYTES {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
}

fn read(format: Extractable, bytes: Vec<u8>) -> ChildAnswer {
    match format {
        Extractable::Pdf => read_pdf(bytes),
        Extractable::Html => html_text(&bytes).filter(|html| !html.text.trim().is_empty()).ok_or(Refusal::Empty),
    }
}

/// Exceeds each limit on purpose. Only tests start it: nothing else would notice a limit that is not enforced.
fn break_limit(limit: LimitToBreak) -> io::Result<ChildAnswer> {
    match limit {
        LimitToBreak::Memory => {
            let mut hoard = Vec::new();
            loop {
                // Ones: zeros need not become resident memory, which is what the parent watches on macOS.
                hoard.push(vec![1_u8; 16 << 20]);
                std::hint::black_box(&hoard);
            }
        }
        LimitToBreak::Cpu => loop {
            std::hint::spin_loop();
        },
        LimitToBreak::Time => loop {
            std::thread::sleep(Duration::from_mins(1));
        },
        LimitToBreak::Output => loop {
            io::stdout().write_all(&[b' '; 4_096])?;
        },
        LimitToBreak::Open => {
            let file = std::env::temp_dir().join(format!("dr-limits-{}", std::process::id()));
            let done = [
                ("opened a file", std::env::current_exe().and_then(std::fs::File::open).is_ok()),
                ("wrote a file", std::fs::write(file, "x").is_ok()),
                ("opened a socket", std::net::UdpSocket::bind("127.0.0.1:0").is_ok()),
                ("started a process", std::process::Command::new("true").spawn().is_ok()),
            ];
            let done: Vec<_> = done.into_iter().filter(|(_, is_done)| *is_done).map(|(what, _)| what).collect();
            Ok(Ok(Extracted { text: done.join(", "), ..Extracted::default() }))
        }
    }
}
