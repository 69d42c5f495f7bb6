//! The system's allocator, told to give large buffers back when they are freed.
//!
//! The allocator of glibc keeps freed buffers of up to 32 MB in an arena of each thread. Making an index frees many such
//! buffers on many threads: for 71,000 chunks that was 550 MB kept for nothing. Only the environment a program starts
//! with can change this without unsafe code.

/// Starts the program anew, in its own place, with an allocator that gives buffers back; returns where that is not
/// needed, or cannot be done.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn give_memory_back() {
    use std::os::unix::process::CommandExt;

    /// Buffers of this size and above are the system's again once they are freed, in bytes.
    const LARGE: &str = "1048576";
    /// What the user has set is left alone, and so is a program that was started anew already.
    const VARIABLES: [&str; 2] = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];

    let is_set =
        VARIABLES.iter().chain(&["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"]).any(|name| std::env::var_os(name).is_some());
    let Ok(program) = std::env::current_exe() else { return };
    if !is_set {
        // It comes back only where it failed, and then everything works with more memory.
        let arguments = std::env::args_os().skip(1);
        let _ = std::process::Command::new(program).args(arguments).envs(VARIABLES.map(|name| (name, LARGE))).exec();
    }
}

/// Does nothing: other systems' allocators give memory back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_memory_back() {}
