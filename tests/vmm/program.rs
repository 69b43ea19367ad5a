//! The real program as `oned` starts it, with a front-end folder of its own whose scripts are stand-ins.

#![allow(clippy::disallowed_methods, reason = "tests start their own processes")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// All that can run on the front-end does.
const LOCAL: &str = "deploy,shutdown,reboot,cancel,save,restore,migrate,poll,pre,post,clean,snapshotcreate,\
    snapshotrevert,snapshotdelete,attach_nic,detach_nic,reset,prereconfigure,reconfigure,attach_disk,\
    detach_disk,resize_disk,update_sg,resize,update_nic,exec,exec_cancel";

/// What every script is: it notes that it ran, reads its stdin, and does what `answers/NAME` says if there is one.
const STAND_IN: &str = "#!/bin/bash\nset -eu\nname=${0##*/}\necho \"${0#*/remotes/}\" >>\"$STAND_IN/ran\"\n\
    if [ -e \"$STAND_IN/answers/$name\" ]; then . \"$STAND_IN/answers/$name\"; else cat >/dev/null; fi\n";

/// A front-end folder.
pub struct FrontEnd {
    dir: tempfile::TempDir,
}

impl FrontEnd {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let front_end = Self { dir };
        for folder in ["etc", "answers", "var/vms"] {
            std::fs::create_dir_all(front_end.path(folder)).expect(folder);
        }
        let vmm = "deploy shutdown cancel save restore migrate reboot reset poll attach_disk detach_disk attach_nic \
             detach_nic resize_disk resize prereconfigure reconfigure snapshot_create snapshot_revert \
             snapshot_delete exec exec_cancel";
        let vnm = "pre post clean update_sg update_nic";
        let tm = "context clone ln mkimage mkswap mvds delete resize snap_create_live premigrate postmigrate \
             failmigrate prebackup postbackup prebackup_live postbackup_live";
        for (folder, names) in [
            ("vmm/kvm", vmm),
            ("vnm/dummy", vnm),
            ("vnm/ovswitch", vnm),
            ("tm/dummy", tm),
            ("datastore/dummy", "backup backup_cancel"),
        ] {
            for name in names.split_whitespace() {
                front_end.script(&format!("{folder}/{name}"));
            }
        }
        front_end
    }

    fn script(&self, path: &str) {
        let path = self.path("var/remotes").join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(&path, STAND_IN).expect("script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// From now on `script` runs these lines of bash.
    pub fn answer(&self, script: &str, lines: &str) {
        std::fs::write(self.path("answers").join(script), lines).expect("answer");
    }

    /// All scripts succeed and say nothing.
    pub fn no_answers(&self) {
        std::fs::remove_dir_all(self.path("answers")).expect("answers");
        std::fs::create_dir_all(self.path("answers")).expect("answers");
    }

    /// Scripts that ran since the last call, in order.
    pub fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("ran")).unwrap_or_default();
        let _ = std::fs::remove_file(self.path("ran"));
        text.lines().map(str::to_owned).collect()
    }

    /// A document with its files below this folder, and its deployment file if it names one.
    pub fn document(&self, text: &str) -> String {
        let var = format!("{}/", self.path("var").display());
        let text = text.replace("/var/lib/one/", &var);
        if let Some(file) = super::corpus::between(&text, "LOCAL_DEPLOYMENT_FILE") {
            std::fs::create_dir_all(Path::new(file).parent().expect("parent")).expect("folder");
            std::fs::write(file, "<domain/>").expect("deployment file");
        }
        text
    }

    /// The driver, with these options, everything on the front-end.
    pub fn start(&self, options: &str) -> Program {
        self.start_with(&format!("{options} -l {LOCAL} kvm"))
    }

    /// The driver, with these arguments.
    pub fn start_with(&self, arguments: &str) -> Program {
        let mut child = Command::new(env!("CARGO_BIN_EXE_one_vmm_exec"))
            .arg(arguments)
            .env("ONE_LOCATION", self.dir.path())
            .env("STAND_IN", self.dir.path())
            .env("LIVE_DISK_SNAPSHOTS", "dummy-dummy")
            .env("KVMAD_HOST_CONTROL_DIR", self.path("c"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the driver");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout");
        let (lines, read) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8(line).expect("utf-8 only");
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut program = Program { child, stdin, read, log: Vec::new() };
        program.send("INIT");
        assert_eq!(program.next(), "INIT SUCCESS - -");
        program
    }
}

/// A running driver.
pub struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    read: Receiver<String>,
    /// LOG lines so far.
    pub log: Vec<String>,
}

impl Program {
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the driver reads");
    }

    /// A request as oned 7.4 writes it.
    pub fn request(&mut self, verb: &str, id: &str, document: &str) {
        self.send(&format!("{verb}  {id} {} ", STANDARD.encode(document)));
    }

    /// The next line that is no LOG line.
    pub fn next(&mut self) -> String {
        loop {
            let line = self.read.recv_timeout(Duration::from_secs(30)).expect("a reply in time");
            if !line.starts_with("LOG ") {
                return line;
            }
            self.log.push(line);
        }
    }

    /// Lines that come within `wait`, LOG lines left out.
    pub fn lines_within(&mut self, wait: Duration) -> Vec<String> {
        let until = std::time::Instant::now() + wait;
        let mut lines = Vec::new();
        while let Ok(line) =
            self.read.recv_timeout(until.saturating_duration_since(std::time::Instant::now()))
        {
            if line.starts_with("LOG ") {
                self.log.push(line);
            } else {
                lines.push(line);
            }
        }
        lines
    }

    /// Ends it by FINALIZE; its exit status.
    pub fn finalize(mut self) -> Option<i32> {
        self.send("FINALIZE");
        let status = self.child.wait().expect("an end").code();
        self.stdin = None;
        status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}
