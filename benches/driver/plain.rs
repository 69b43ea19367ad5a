//! The other side: OpenSSH's own multiplexing, one `ssh -S SOCKET HOST SCRIPT` per command.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{bed, wait_for};

/// A live master connection to a host, as oneadmin on the front-end.
#[derive(Debug)]
pub struct Master {
    host: &'static str,
    socket: PathBuf,
}

impl Master {
    /// Opens it and waits until it stands.
    pub fn open(host: &'static str) -> Self {
        let socket = PathBuf::from(format!("/tmp/kvmad-bench-{}-{host}", std::process::id()));
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.args(["ssh", "-M", "-N", "-f", "-o", "ControlPersist=600", "-S"]).arg(&socket).arg(host);
        let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(done.is_ok_and(|status| status.success()), "no master to {host}");
        wait_for(Duration::from_secs(10), || socket.exists().then_some(())).expect("the master's socket");
        Self { host, socket }
    }

    fn ssh(&self) -> Command {
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.args(["ssh", "-S"]).arg(&self.socket).arg(self.host);
        command
    }

    /// Runs a script `times` times, one after the other, in one process on the front-end, so that only ssh
    /// itself is counted; gives the time of each.
    pub fn each(&self, script: &str, times: usize) -> Vec<Duration> {
        let text = format!(
            "for ((i = 0; i < {times}; i++)); do a=${{EPOCHREALTIME/./}}; ssh -S {} {} {script} </dev/null >/dev/null; \
             b=${{EPOCHREALTIME/./}}; echo $((b - a)); done",
            self.socket.display(),
            self.host
        );
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.args(["bash", "-c", &text]);
        let output = bed::run(command);
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.parse().ok())
            .map(Duration::from_micros)
            .collect()
    }

    /// Writes a script on the host.
    pub fn put(&self, path: &str, content: &str) {
        let mut command = self.ssh();
        command.arg(format!("mkdir -p $(dirname {path}); cat > {path}; chmod 755 {path}"));
        let mut child = command.stdin(Stdio::piped()).spawn().expect("ssh");
        child.stdin.take().expect("piped").write_all(content.as_bytes()).expect("written");
        assert!(child.wait().is_ok_and(|status| status.success()), "{path} on {}", self.host);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.args(["ssh", "-q", "-O", "exit", "-S"]).arg(&self.socket).arg(self.host);
        let _ = command.stderr(Stdio::null()).status();
    }
}

/// How long `work` takes.
pub fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
