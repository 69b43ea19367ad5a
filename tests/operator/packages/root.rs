//! A copy of a minimal Debian in which programs run as root.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The project's folder.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end without stdin and gives its stdout; panics with all it said when it fails.
/// A driver that ends with 255 at EOF did what it should.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let driver = command.get_program().to_string_lossy().contains("/mads/");
    assert!(
        output.status.success() || driver && output.status.code() == Some(255),
        "{command:?}: {out}{err}"
    );
    out.into_owned()
}

/// The root; removed with it.
pub struct Root {
    folder: tempfile::TempDir,
}

impl Root {
    pub fn new() -> Self {
        let pristine = project().join("target/clean-root");
        run(Command::new(project().join("tests/operator/clean-root")).arg(&pristine));
        let folder =
            tempfile::Builder::new().prefix("root-").tempdir_in(project().join("target")).expect("a folder");
        run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(pristine.join(".")).arg(folder.path()));
        Self { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A path in it, seen from outside.
    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    pub fn copy(&self, from: &Path, to: &str) {
        fs::copy(from, self.at(to)).expect("copied");
    }

    fn inside(&self, words: &[&str]) -> Command {
        // With /proc, and nothing that it starts outlives it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command.arg(format!("--mount-proc={}", self.at("proc").display()));
        command.arg("chroot").arg(self.folder.path()).args(words).env_clear();
        command.envs([
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("LC_ALL", "C.UTF-8"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("MANWIDTH", "100"),
        ]);
        command
    }

    /// Runs words in it.
    pub fn words(&self, words: &[&str]) -> String {
        run(&mut self.inside(words))
    }

    /// Runs a line of shell in it.
    pub fn sh(&self, line: &str) -> String {
        self.words(&["sh", "-ec", line])
    }

    /// Starts a driver in it, writes lines to it, the last one (FINALIZE) once it said `until`, and gives what it said.
    pub fn talk(&self, words: &[&str], lines: &[&str], until: &str) -> String {
        let mut child = self
            .inside(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let mut stdin = child.stdin.take().expect("a pipe");
        let (last, first) = lines.split_last().expect("lines");
        for line in first {
            writeln!(stdin, "{line}").expect("it reads");
        }
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            let line = line.expect("text");
            said.push_str(&line);
            said.push('\n');
            if line.starts_with(until) {
                writeln!(stdin, "{last}").expect("it reads");
            }
        }
        let status = child.wait().expect("ended");
        assert!(status.success(), "{words:?} ended with {status}: {said}");
        said
    }

    /// Every file, link and folder below `top` with mode, owner, size, but for what package managers keep for themselves.
    pub fn files(&self, top: &str) -> BTreeMap<String, String> {
        const OTHERS: [&str; 10] = [
            "proc",
            "var/lib/dpkg",
            "var/lib/rpm",
            "var/lib/apt",
            "var/cache",
            "var/log",
            "root",
            "tmp",
            "run",
            "usr/lib/sysimage",
        ];
        let mut all = BTreeMap::new();
        let mut folders = vec![self.at(top)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("readable").flatten() {
                let path = entry.path();
                let below =
                    path.strip_prefix(self.folder.path()).expect("below").to_string_lossy().into_owned();
                if OTHERS.contains(&below.as_str()) {
                    continue;
                }
                let meta = fs::symlink_metadata(&path).expect("there");
                let size = if meta.is_dir() { 0 } else { meta.size() };
                all.insert(below, format!("{:o} {} {} {size}", meta.mode(), meta.uid(), meta.gid()));
                if meta.is_dir() {
                    folders.push(path);
                }
            }
        }
        all
    }
}
