//! Configures the system allocator to return large buffers to the system when they are freed.
//!
//! The allocator of glibc keeps freed buffers of up to 32 MB in an arena per thread. Indexing frees many such buffers
//! on many threads: for 71,000 chunks, 550 MB stayed allocated but unused. Without unsafe code, only the environment
//! of the process can change this, so `dr index` restarts itself once.

/// Restarts the program in place with the allocator configured. Returns if that is unnecessary or fails.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn give_memory_back() {
    use std::os::unix::process::CommandExt;

    /// Size in bytes above which freed buffers are returned to the system.
    const LARGE: &str = "1048576";
    /// If set, either by the user or by an earlier restart, nothing is changed.
    const VARIABLES: [&str; 2] = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];

    let is_set =
        VARIABLES.iter().chain(&["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"]).any(|name| std::env::var_os(name).is_some());
    let Ok(program) = std::env::current_exe() else { return };
    if !is_set {
        // `exec` returns only on failure; indexing then works with more memory.
        let arguments = std::env::args_os().skip(1);
        let _ = std::process::Command::new(program).args(arguments).envs(VARIABLES.map(|name| (name, LARGE))).exec();
    }
}

/// Does nothing: the allocators of other systems return memory by default.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn give_memory_back() {}
