//! What a child may do: compute for a while in a limited amount of memory, and write to the pipes it was given.
//!
//! On Linux and other Unix systems the child sets the limits itself, before it reads a byte of the file. They cannot be
//! raised again. On Windows its parent puts it into a job object before it sends a byte.

use std::io;

/// Limits that a child sets for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    /// Bytes of memory beside those of the program itself.
    pub(crate) memory: u64,
    /// Seconds of processor time.
    pub(crate) cpu: u64,
}

/// Applies limits to this process, for good.
///
/// Processor time and, on Linux, memory are limited. No file or socket can be opened, since every descriptor that may
/// exist does, no file can grow, and no process or thread can be started (but by root, to whom that limit does not apply).
#[cfg(unix)]
pub(crate) fn confine(limited: Limited) -> io::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};

    let set = |resource, limit| setrlimit(resource, limit, limit).map_err(io::Error::from);
    // At the first limit the reason is in the signal; the second one cannot be survived.
    setrlimit(Resource::RLIMIT_CPU, limited.cpu, limited.cpu.saturating_add(1))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set(Resource::RLIMIT_AS, mapped()?.saturating_add(limited.memory))?;
    set(Resource::RLIMIT_FSIZE, 0)?;
    set(Resource::RLIMIT_CORE, 0)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set(Resource::RLIMIT_NPROC, 0)?;
    // Last, because the others may be read from a file. Standard input, output and error are open.
    set(Resource::RLIMIT_NOFILE, 3)
}

/// Does nothing: the parent has put this process into a job object.
#[cfg(not(unix))]
pub(crate) fn confine(_: Limited) -> io::Result<()> {
    Ok(())
}

/// Returns the size of the address space so far: the program, its data and its libraries.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn mapped() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    // Larger pages only make the limit stricter.
    pages.map(|pages| pages.saturating_mul(4_096)).ok_or_else(|| io::Error::other("/proc/self/statm is malformed"))
}
