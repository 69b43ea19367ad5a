//! A folder of remotes beside a stand-in for virsh (see `tests/remotes/virsh`), in a temporary folder.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// uuid of the domain that [`Place::domain`] makes.
pub const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

pub struct Place {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// How a script ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: &Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.stdout
    }

    /// The reason of a failure: what is on stderr but for the lines for the log.
    #[track_caller]
    pub fn bad(self) -> String {
        assert!(self.status.is_some_and(|status| status != 0 && status != 42), "{self:?}");
        assert_eq!(self.stdout, "", "{}", self.stderr);
        let for_log = |line: &&str| ["ERROR:", "INFO:", "DEBUG:"].iter().any(|word| line.starts_with(word));
        let reason: Vec<_> = self.stderr.lines().filter(|line| !for_log(line)).collect();
        assert!(!reason.is_empty(), "a failure without a reason: {}", self.stderr);
        reason.join("; ")
    }
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        copy(&here.join("remotes"), &at("one"));
        let own = at("one/kvmad").join(std::env::consts::ARCH);
        fs::create_dir(&own).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_kvmad-node"), own.join("kvmad-node")).expect("a link");
        for name in ["bin", "domains", "rules", "tmp"] {
            fs::create_dir(at(name)).expect("a folder");
        }
        symlink(here.join("tests/remotes/virsh"), at("bin/virsh")).expect("a link");
        fs::write(at("calls"), "").expect("a file");
        Self { folder, env: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Adds a line to kvmrc.
    pub fn kvmrc(&self, line: &str) -> &Self {
        let file = self.path("one/etc/vmm/kvm/kvmrc");
        let mut file = fs::OpenOptions::new().append(true).open(file).expect("kvmrc");
        writeln!(file, "{line}").expect("written");
        self
    }

    pub fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// A domain that libvirt knows, in this state.
    pub fn domain(&self, name: &str, state: u8) -> &Self {
        let xml = format!(
            "<domain><name>{name}</name><uuid>{UUID}</uuid><features><acpi/></features><metadata><one:vm xmlns:one='u'>\
             <one:system_datastore>{}</one:system_datastore></one:vm></metadata></domain>",
            self.text("ds/0/7")
        );
        self.write(&format!("domains/{name}"), &state.to_string());
        self.write(&format!("domains/{name}.uuid"), UUID);
        self.write(&format!("domains/{name}.xml"), &xml)
    }

    pub fn has_domain(&self, name: &str) -> bool {
        self.path(&format!("domains/{name}")).exists()
    }

    pub fn write(&self, name: &str, text: &str) -> &Self {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
        fs::write(file, text).expect("a file");
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// An executable in PATH, or a hook.
    pub fn program(&self, name: &str, shell: &str) -> &Self {
        self.write(name, &format!("#!/bin/bash\n{shell}\n"));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect("a mode");
        self
    }

    /// Shell that is run instead of a call of virsh.
    pub fn rule(&self, call: &str, shell: &str) -> &Self {
        self.write(&format!("rules/{call}"), shell)
    }

    pub fn command(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("one").join(script));
        let path = format!("{}:{}", self.text("bin"), std::env::var("PATH").unwrap_or_default());
        command
            .args(args)
            .env("PATH", path)
            .env("FAKE", self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn start(&self, script: &str, args: &[&str], stdin: &str) -> Child {
        let mut child = self.command(script, args).spawn().expect("a script");
        let mut pipe = child.stdin.take().expect("stdin");
        let text = stdin.to_owned();
        // A script that does not read its stdin closes it.
        std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
        child
    }

    pub fn run(&self, script: &str, args: &[&str], stdin: &str) -> Ended {
        let child = self.start(script, args, stdin);
        Ended::of(&child.wait_with_output().expect("an end"))
    }

    /// The calls of virsh so far, all their words.
    pub fn calls(&self) -> Vec<Vec<String>> {
        let words = |line: &str| line.split_terminator('\0').map(str::to_owned).collect();
        self.read("calls").split_terminator('\n').map(words).collect()
    }

    /// How often virsh was called so.
    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|words| words[0] == call).count()
    }

    /// Waits until virsh was called so.
    pub fn await_call(&self, call: &str) {
        await_that(call, || self.count(call) > 0);
    }
}

/// Waits until `test` holds, at most 20 s.
#[track_caller]
pub fn await_that(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends TERM to the group of a script, as a driver that goes away does, and waits for its end.
pub fn end(child: Child) -> Ended {
    let group = format!("-{}", child.id());
    let sent = Command::new("/bin/kill").args(["-TERM", "--", &group]).status().expect("kill");
    assert!(sent.success());
    Ended::of(&child.wait_with_output().expect("an end"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            let leads_to = fs::read_link(entry.path()).expect("a link");
            std::os::unix::fs::symlink(leads_to, target).expect("a link");
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
