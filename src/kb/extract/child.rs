//! The child process, as seen by its parent.
//!
//! The child is this program, started again with a hidden command. It receives the length of the file and the file,
//! and answers with one JSON document. Its input stays open until it has answered: the child exits when its input
//! ends, so a killed parent leaves no child behind.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{ExtractError, Extractable, Extracted, Refusal};
use crate::base::mutex::locked;

/// Maximum number of children at a time, however many threads there are. Each may need [`ChildLimits::memory`].
const MAX_CHILDREN: usize = 8;

/// Maximum number of bytes read from a child's stderr.
const MAX_STDERR_BYTES: u64 = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// Bytes of memory in addition to the program itself.
    pub memory: u64,
    /// Seconds of processor time.
    pub cpu: u64,
    /// Time until the child is killed.
    pub time: Duration,
    /// Bytes of its answer.
    pub output: u64,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self { memory: 512 << 20, cpu: 20, time: Duration::from_mins(1), output: 16 << 20 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildTask {
    Read(Extractable),
    Break(LimitToBreak),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitToBreak {
    /// Allocates without end.
    Memory,
    /// Computes without end.
    Cpu,
    /// Waits without end.
    Time,
    /// Prints without end.
    Output,
    /// Opens a file and a socket, writes a file, and starts a process; answers with a list of those that succeeded.
    Open,
}

impl ChildTask {
    const WORDS: [(&'static str, Self); 7] = [
        ("pdf", Self::Read(Extractable::Pdf)),
        ("html", Self::Read(Extractable::Html)),
        ("break-memory", Self::Break(LimitToBreak::Memory)),
        ("break-cpu", Self::Break(LimitToBreak::Cpu)),
        ("break-time", Self::Break(LimitToBreak::Time)),
        ("break-output", Self::Break(LimitToBreak::Output)),
        ("break-open", Self::Break(LimitToBreak::Open)),
    ];

    /// Returns the task that an argument of the hidden command names.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, task)| *task)
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, task)| *task == self).map_or("", |(word, _)| *word)
    }
}

/// The answer of a child: the text of the file, or the reason why it has none.
pub(crate) type ChildAnswer = Result<Extracted, Refusal>;

/// How children are started.
#[derive(Clone, Debug)]
pub struct Child {
    /// The program, which is `dr`.
    pub program: PathBuf,
    pub limits: ChildLimits,
}

struct EndedChild {
    status: ExitStatus,
    output: Vec<u8>,
    stderr: String,
}

/// Whether this program is `dr`: another program that uses the library must not be started with arguments it does not
/// know.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Records that this program has the hidden command.
pub(crate) fn answers() {
    ANSWERS.store(true, Ordering::Relaxed);
}

impl Child {
    /// Returns a [`Child`] that starts the running program.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is not `dr`, or does not know where it is.
    pub(crate) fn of_this_program() -> io::Result<Self> {
        if !ANSWERS.load(Ordering::Relaxed) {
            return Err(io::Error::other("this program is not `dr`"));
        }
        // After an update, the path would lead to another version.
        let running = PathBuf::from("/proc/self/exe");
        let program = if cfg!(target_os = "linux") && running.exists() { running } else { std::env::current_exe()? };
        Ok(Self { program, limits: ChildLimits::default() })
    }

    /// Starts a child and waits for its answer. If [`MAX_CHILDREN`] are running, waits for one to end.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no text. The child has ended in either case.
    pub fn run(&self, task: ChildTask, input: &[u8]) -> Result<Extracted, ExtractError> {
        let _turn = ChildPermit::take();
        let limits = self.limits;
        let EndedChild { status, output, stderr } = self.start(task, input)?;
        if output.len() as u64 > limits.output {
            return Err(ExtractError::Flood { bytes: limits.output });
        }
        let answer = status.success().then(|| serde_json::from_slice::<ChildAnswer>(&output).ok()).flatten();
        match answer {
            Some(answer) => answer.map_err(ExtractError::Refused),
            None if ran_out_of_time(status) => Err(ExtractError::TooSlow { seconds: limits.cpu }),
            // The message of Rust's allocator, after which the process aborts.
            None if stderr.contains("memory allocation of") => {
                Err(ExtractError::Memory { mebibytes: limits.memory >> 20 })
            }
            None => Err(ExtractError::Crashed { how: status.to_string() }),
        }
    }

    fn start(&self, task: ChildTask, input: &[u8]) -> Result<EndedChild, ExtractError> {
        let mut command = Command::new(&self.program);
        let ChildLimits { memory, cpu, time, output } = self.limits;
        command.arg("extract-document").arg(task.word()).args([memory.to_string(), cpu.to_string()]);
        // Without environment variables, and so without keys: the file may be hostile to the parser.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_clear();
        // Otherwise glibc's arena for each thread would take 64 MB of address space.
        command.env("MALLOC_ARENA_MAX", "1");
        // Windows cannot start a program without it.
        command.envs(std::env::var_os("SystemRoot").map(|root| ("SystemRoot", root)));
        apart(&mut command);
        let mut child = command.spawn().map_err(ExtractError::Start)?;
        let ((Some(mut stdin), Some(stdout)), Some(stderr)) =
            ((child.stdin.take(), child.stdout.take()), child.stderr.take())
        else {
            unreachable!("all three are piped")
        };
        #[cfg(windows)]
        let _job = job::confine(&child, memory).map_err(ExtractError::Start).inspect_err(|_| drop(child.kill()))?;
        let (answered, has_ended) = (channel(), channel::<()>());
        // A thread for each pipe: otherwise the child could block on a full pipe while its parent waits on another.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A child that dies does not read all of its input. Its exit status tells why.
                let sent = stdin.write_all(&(input.len() as u64).to_le_bytes()).and_then(|()| stdin.write_all(input));
                drop(sent.and_then(|()| stdin.flush()));
                let _ = has_ended.1.recv();
            });
            scope.spawn(move || {
                // One more byte, to tell an answer that is too long from one that just fits.
                let _ = answered.0.send(read_up_to(stdout, output.saturating_add(1)));
            });
            let said = scope.spawn(move || read_up_to(stderr, MAX_STDERR_BYTES));
            let received = wait(&answered.1, child.id(), self.limits);
            let is_complete = matches!(&received, Ok(bytes) if bytes.len() as u64 <= output);
            // A child with a complete answer is left to end by itself, since its exit status counts.
            if !is_complete {
                // Fails if the child has ended meanwhile.
                drop(child.kill());
            }
            // Ends the input thread, which the scope waits for.
            drop(has_ended.0);
            let status = child.wait().map_err(ExtractError::Start)?;
            let stderr = said.join().unwrap_or_default();
            let output = received.map_err(|limit| match limit {
                LimitToBreak::Memory => ExtractError::Memory { mebibytes: memory >> 20 },
                _ => ExtractError::TooSlow { seconds: time.as_secs() },
            })?;
            Ok(EndedChild { status, output, stderr: String::from_utf8_lossy(&stderr).into_owned() })
        })
    }
}

/// Waits for the output of a child. Returns the limit that it broke instead.
fn wait(output: &std::sync::mpsc::Receiver<Vec<u8>>, id: u32, limits: ChildLimits) -> Result<Vec<u8>, LimitToBreak> {
    let deadline = std::time::Instant::now() + limits.time;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let step = if WATCHES_MEMORY { left.min(Duration::from_millis(100)) } else { left };
        match output.recv_timeout(step) {
            Ok(bytes) => return Ok(bytes),
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(LimitToBreak::Time),
            Err(RecvTimeoutError::Timeout) if resident(id).is_some_and(|bytes| bytes > limits.memory) => {
                return Err(LimitToBreak::Memory);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Whether the parent has to watch the memory of a child, because the system enforces no limit.
const WATCHES_MEMORY: bool = cfg!(target_vendor = "apple");

/// Returns the resident memory of a process in bytes, if it has to be watched.
fn resident(id: u32) -> Option<u64> {
    if !WATCHES_MEMORY {
        return None;
    }
    let listed = Command::new("/bin/ps").args(["-o", "rss=", "-p", &id.to_string()]).output().ok()?;
    Some(String::from_utf8(listed.stdout).ok()?.trim().parse::<u64>().ok()?.saturating_mul(1_024))
}

fn read_up_to(from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error loses only the rest of the text; the exit status tells what happened.
    drop(from.take(most).read_to_end(&mut bytes));
    bytes
}

/// Puts a child into a separate process group: otherwise an interrupt from the terminal would end it, and its file
/// would count as damaged.
#[cfg(unix)]
fn apart(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(windows)]
fn apart(command: &mut Command) {
    /// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW`.
    const FLAGS: u32 = 0x0000_0200 | 0x0800_0000;
    std::os::windows::process::CommandExt::creation_flags(command, FLAGS);
}

/// Returns whether the system ended a child for the processor time it took.
#[cfg(unix)]
fn ran_out_of_time(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(nix::sys::signal::Signal::SIGXCPU as i32)
}

#[cfg(not(unix))]
fn ran_out_of_time(_: ExitStatus) -> bool {
    false
}

#[cfg(windows)]
mod job {
    use std::io;
    use std::os::windows::io::AsRawHandle;

    use win32job::Job;

    /// `JOB_OBJECT_LIMIT_ACTIVE_PROCESS`, `JOB_OBJECT_LIMIT_PROCESS_MEMORY` and `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`.
    const FLAGS: u32 = 0x0000_0008 | 0x0000_0100 | 0x0000_2000;

    /// Puts a process, which waits for its input, into a job: its memory is limited, it cannot start a process, and
    /// it ends when the job is dropped.
    pub(super) fn confine(child: &std::process::Child, memory: u64) -> io::Result<Job> {
        let job = Job::create().map_err(io::Error::other)?;
        let mut info = job.query_extended_limit_info().map_err(io::Error::other)?;
        info.0.BasicLimitInformation.LimitFlags |= FLAGS;
        info.0.BasicLimitInformation.ActiveProcessLimit = 1;
        info.0.ProcessMemoryLimit = usize::try_from(memory).unwrap_or(usize::MAX);
        job.set_extended_limit_info(&mut info).map_err(io::Error::other)?;
        job.assign_process(child.as_raw_handle() as _).map_err(io::Error::other)?;
        Ok(job)
    }
}

/// The right to run a child.
struct ChildPermit;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl ChildPermit {
    fn take() -> Self {
        let most = std::thread::available_parallelism().map_or(2, usize::from).min(MAX_CHILDREN);
        let (running, ended) = &RUNNING;
        let running = locked(running);
        let mut running = ended.wait_while(running, |running| *running >= most).unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self
    }
}

impl Drop for ChildPermit {
    fn drop(&mut self) {
        let (running, ended) = &RUNNING;
        *locked(running) -= 1;
        ended.notify_one();
    }
}
