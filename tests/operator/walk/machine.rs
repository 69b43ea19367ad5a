//! A machine with a clean Debian, in namespaces of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{bed, processes, wait_for};
use crate::packages::root::{project, run};

/// The machine; it ends with this, and what it changed goes with it.
pub struct Machine {
    holder: Child,
    first: u32,
    work: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Told {
    pub status: Option<i32>,
    /// Both streams.
    pub text: String,
}

impl Machine {
    /// Boots it from a root in which `packages` (a command) was run.
    pub fn boot(packages: &str) -> Self {
        let (scripts, root) = (project().join("tests/operator/walk"), project().join("target/walk-root"));
        run(Command::new(scripts.join("make-root")).arg(&root).arg(packages));
        let work =
            tempfile::Builder::new().prefix("walk-").tempdir_in(project().join("target")).expect("a folder");
        let log = fs::File::create(work.path().join("log")).expect("a log");
        // It ends with the test, however that ends.
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--net",
            "--fork",
            "--kill-child",
            "bash",
        ]);
        command.arg(scripts.join("machine-init")).arg(&root).arg(work.path()).arg("walk");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let mut holder = command.spawn().expect("unshare");
        let up = wait_for(Duration::from_secs(60), || {
            let first = processes::children(holder.id()).first().copied()?;
            Path::new(&format!("/proc/{first}/root/run/up")).exists().then_some(first)
        });
        let Some(first) = up else {
            let _ = holder.kill();
            panic!("{}", fs::read_to_string(work.path().join("log")).unwrap_or_default());
        };
        let machine = Self { holder, first, work };
        machine.without_acceleration();
        machine
    }

    /// Where the CPU has no virtualization of its own, domains of type kvm are run by software, as on the test bed.
    fn without_acceleration(&self) {
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if flags.contains(" vmx") || flags.contains(" svm") {
            return;
        }
        let qemu = "usr/bin/qemu-system-x86_64";
        fs::rename(self.at(qemu), self.at(&format!("{qemu}.real"))).expect("QEMU");
        fs::copy(bed::programs().join("etc/qemu-wrapper"), self.at(qemu)).expect("the wrapper");
        self.good("root", &format!("chmod 755 /{qemu}"));
    }

    /// A path in it, as the test can open it.
    pub fn at(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.first)).join(path.trim_start_matches('/'))
    }

    /// A folder of this test outside of it.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    pub fn copy(&self, from: &Path, to: &str) {
        let to = self.at(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(from, &to).unwrap_or_else(|e| panic!("{} to {}: {e}", from.display(), to.display()));
    }

    /// A command that is run in its network alone, with the files of this machine.
    pub fn network(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first.to_string(), "--net", "--"]);
        command
    }

    /// A command that is run by a user who has just logged in, in his home.
    pub fn user(&self, user: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first.to_string(), "-m", "-u", "-i", "-n", "-p", "--"]);
        command.args(["setpriv", &format!("--reuid={user}"), &format!("--regid={user}"), "--init-groups"]);
        command.args(["--reset-env", "env", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a line of shell as `user`, who says yes to every question.
    pub fn line(&self, user: &str, line: &str) -> Told {
        let mut command = self.user(user);
        command.args(["timeout", "330", "bash", "-c", &format!("cd; {line}")]);
        let (yes, told) = (self.work.path().join("yes"), self.work.path().join("told"));
        fs::write(&yes, "y\n".repeat(50)).expect("written");
        // A file, not a pipe: a daemon that is started may keep it open.
        let out = fs::File::create(&told).expect("a file");
        command.stdin(fs::File::open(yes).expect("it")).stdout(out.try_clone().expect("it")).stderr(out);
        let status = command.status().expect("nsenter");
        let text = String::from_utf8_lossy(&fs::read(told).expect("it")).into_owned();
        Told { status: status.code(), text }
    }

    /// The same; it must succeed.
    pub fn good(&self, user: &str, line: &str) -> String {
        let told = self.line(user, line);
        assert_eq!(told.status, Some(0), "{user}: {line}: {}", told.text);
        told.text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::env::var_os("KVMAD_KEEP").is_some() {
            return;
        }
        // All that runs in it ends with its first process.
        processes::signal(self.first, "KILL");
        let _ = self.holder.wait();
    }
}
