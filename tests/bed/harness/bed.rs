//! The test bed's hosts: run something there, read a file there, who may use it at the same time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The two plain hosts.
pub const NODES: [&str; 2] = ["node1", "node2"];
/// The host with stock sshd, MaxSessions 1, printing shells, and fish as login shell.
pub const DIFFICULT: &str = "node3";
/// The front-end.
pub const FRONT_END: &str = "fe";

/// Where the test bed lies (`TB`, as in tests/testbed/lib.sh).
pub fn folder() -> PathBuf {
    std::env::var_os("TB").map_or_else(|| PathBuf::from("/srv/kvmad-testbed"), PathBuf::from)
}

/// The first of the folders that all hosts share (`SHARED`, as in tests/testbed/lib.sh).
pub fn shared_folder() -> PathBuf {
    let all = std::env::var("SHARED").unwrap_or_default();
    PathBuf::from(all.split_whitespace().next().unwrap_or("/srv/shared"))
}

/// Name of the network namespace of `host` (`BED`, as in tests/testbed/lib.sh).
pub fn namespace(host: &str) -> String {
    format!("{}-{host}", std::env::var("BED").as_deref().unwrap_or("tb"))
}

/// The project's folder with the programs of the test bed.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testbed")
}

/// A command that runs as root on `host`.
pub fn on(host: &str) -> Command {
    let mut command = Command::new(folder().join("on"));
    command.arg(host);
    command
}

/// A command that runs as oneadmin on `host`, in a clean environment of its own.
pub fn as_oneadmin(host: &str) -> Command {
    let mut command = on(host);
    command.args(["setpriv", "--reuid=oneadmin", "--regid=oneadmin", "--init-groups", "--reset-env"]);
    // another user is another process to the kernel: it forgets whose end was to be told
    command.args(["--pdeathsig", "KILL"]);
    command
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Runs words as root on `host` and gives stdout; panics when it fails.
pub fn sh<S: AsRef<OsStr>>(host: &str, words: &[S]) -> String {
    let mut command = on(host);
    command.args(words);
    let shown = format!("{command:?}");
    let output = run(command);
    assert!(
        output.status.success(),
        "{shown}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs virsh on `host` and gives what it printed; `None` when it failed.
pub fn virsh(host: &str, words: &[&str]) -> Option<String> {
    let mut command = on(host);
    command.args(["virsh", "--quiet", "--connect", "qemu:///system"]).args(words);
    let output = run(command);
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Number of the host's first process, as the machine sees it.
pub fn first_process(host: &str) -> u32 {
    let file = folder().join("nodes").join(host).join("pid");
    let text = fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}: the test bed is not up (tests/testbed/up)", file.display()));
    text.trim().parse().expect("a process number")
}

/// `path` of `host`, as the machine itself can open it.
pub fn host_path(host: &str, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new("/proc")
        .join(first_process(host).to_string())
        .join("root")
        .join(path.strip_prefix("/").unwrap_or(path))
}

/// The right to use the bed, kept while it lives.
#[derive(Debug)]
pub struct Use(#[expect(dead_code, reason = "held, not read")] File);

fn lock_file() -> File {
    assert!(folder().join("on").exists(), "the test bed is not up: run tests/testbed/up as root");
    File::create(folder().join("use.lock")).expect("a lock file in the test bed's folder")
}

/// Beside others that use it.
pub fn shared() -> Use {
    let file = lock_file();
    file.lock_shared().expect("a lock");
    Use(file)
}

/// Alone: for tests that stop libvirtd, cut the network, or count.
pub fn alone() -> Use {
    let file = lock_file();
    file.lock().expect("a lock");
    Use(file)
}
