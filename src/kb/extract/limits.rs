//! Limits of a child: it can only compute, for a limited time in limited memory, and write to its pipes.
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
/// Processor time is limited. No file or socket can be opened, since all permitted descriptors are in use, and no
/// file can grow. On Linux, memory is limited too, and no process or thread can be started (root is exempt from that
/// limit). On other Unix systems the parent watches the memory, and nothing prevents a new process.
#[cfg(unix)]
pub(crate) fn confine(limited: Limited) -> io::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};

    let set = |resource, limit| setrlimit(resource, limit, limit).map_err(io::Error::from);
    // At the first limit, the signal tells the reason; the second one cannot be survived.
    setrlimit(Resource::RLIMIT_CPU, limited.cpu, limited.cpu.saturating_add(1))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set(Resource::RLIMIT_AS, mapped()?.saturating_add(limited.memory))?;
    set(Resource::RLIMIT_FSIZE, 0)?;
    set(Resource::RLIMIT_CORE, 0)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    set(Resource::RLIMIT_NPROC, 0)?;
    // Last, because setting the others may need to read a file. Standard input, output and error are open.
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
    // `statm` counts pages, whose size depends on the kernel: 64 KiB on some ARM machines.
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map(|kb: u64| kb.saturating_mul(1_024)).ok_or_else(|| io::Error::other("/proc/self/status has no VmSize"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::mapped;

    #[test]
    fn address_space_is_what_the_kernel_maps() {
        let ranges = std::fs::read_to_string("/proc/self/maps").unwrap();
        let size = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)
        };
        let total: u64 = ranges.lines().filter(|line| !line.contains("[vsyscall]")).filter_map(size).sum();
        // Other tests map and unmap memory meanwhile.
        assert!(mapped().unwrap().abs_diff(total) < total / 2, "{total}");
    }
}
