use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::common::World;

#[cfg(target_arch = "x86_64")]
const SOCKET: i64 = 41;
#[cfg(target_arch = "aarch64")]
const SOCKET: i64 = 198;

const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

/// Signal that kills a process for a forbidden system call (SIGSYS).
const SIGSYS: i32 = 31;

/// Returns a seccomp filter that kills a process when it creates an internet socket.
fn no_internet() -> BpfProgram {
    let of_family = |family| {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    let rules = BTreeMap::from([(SOCKET, vec![of_family(AF_INET), of_family(AF_INET6)])]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch).unwrap();
    filter.try_into().unwrap()
}

/// Runs a command from a thread with the filter installed, so that the command inherits it.
fn run_without_internet(mut command: Command) -> Output {
    let thread = std::thread::spawn(move || {
        apply_filter(&no_internet()).unwrap();
        command.output().unwrap()
    });
    thread.join().unwrap()
}

#[test]
fn filter_kills_a_process_that_opens_a_socket() {
    for helper in ["connects_over_ipv4", "connects_over_ipv6"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--test-threads=1", &format!("offline::{helper}")]);
        let output = run_without_internet(command);
        assert_eq!(output.status.signal(), Some(SIGSYS), "{helper}: {output:?}");
    }
}

#[test]
#[ignore = "run under the filter by `filter_kills_a_process_that_opens_a_socket`"]
fn connects_over_ipv4() {
    let _ = TcpStream::connect("127.0.0.1:9");
}

#[test]
#[ignore = "run under the filter by `filter_kills_a_process_that_opens_a_socket`"]
fn connects_over_ipv6() {
    let _ = TcpStream::connect("[::1]:9");
}

#[test]
fn no_command_opens_a_socket_even_with_a_key_and_a_server() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    let mut world = World::with_kb().with_variable("OPENAI_API_KEY", "sk-not-a-real-key");
    for name in
        ["OPENAI_BASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"]
    {
        world = world.with_variable(name, address.clone());
    }
    let commands: [&[&str]; 11] = [
        &["index", "kb"],
        &["index", "kb", "--rebuild", "--offline"],
        &["search", "siren"],
        &["search", "siren", "--offline", "--mode", "vector", "--json"],
        &["get", "guide/alarms.md"],
        &["ask", "--offline", "When does the siren sound?"],
        &["ask", "--offline", "--kb", "kb", "When does the siren sound?", "--json"],
        &["recall", "siren"],
        &["ask", "--offline", "When does the siren sound?", "--format", "note", "-o", "note.md"],
        &["verify", "note.md"],
        &["doctor", "--offline"],
    ];
    for args in commands {
        let run = world.run_of(run_without_internet(world.command(args)));
        assert_eq!(run.exit, Some(0), "{args:?}: {run}");
    }
    assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a connection was made");
}

#[test]
fn missing_model_is_not_downloaded_offline() {
    let world = World::with_kb();
    let args = ["index", "kb", "--offline", "--embedder", "fastembed:BGESmallENV15"];
    let output = run_without_internet(world.command(args));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
