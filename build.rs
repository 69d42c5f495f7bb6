//! Links the program at a fixed address on Linux.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // Otherwise the loader relocates half a million pointers at each start and copies the pages they are in, which takes
    // 10 ms and 19 MB. The price is that the code of the program itself is not at a random address; its stack, its heap
    // and the shared libraries are, as for programs in Go.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
