//! Executables in the probe folders that the agent does not replace: run as ever (HYPERVISOR HOSTID HOST as words,
//! the configuration on stdin), each with a deadline and an output cap in a process group of its own. What one
//! prints is checked before it is put into a message; one that fails, hangs or prints rubbish costs only itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::text::check;
use crate::node::tools::{Ask, Tools};

/// Names of OpenNebula's own probes whose work the agent does itself, by folder.
const NATIVE: [(&str, &[&str]); 7] = [
    ("host/beacon", &["date.sh", "monitord-client-shepherd.sh"]),
    ("host/monitor", &["linux_usage.rb", "numa_usage.rb"]),
    (
        "host/system",
        &[
            "architecture.sh",
            "clean_db.rb",
            "cpu.sh",
            "cpu_features.sh",
            "linux_host.rb",
            "machines_models.rb",
            "memory_encryption.rb",
            "monitor_ds.rb",
            "name.sh",
            "nfs_automounted.rb",
            "numa_host.rb",
            "pci.rb",
            "version.sh",
            "wild_vm.rb",
        ],
    ),
    ("vm/status", &["state.rb"]),
    ("vm/execution", &["exec.rb"]),
    ("vm/monitor", &["monitor_ds_vm.rb", "poll.rb"]),
    ("vm/snapshot", &["recovery.rb"]),
];

/// How probes are run.
#[derive(Clone)]
pub struct Probes {
    /// What starts them.
    pub tools: Arc<dyn Tools>,
    /// Folder that holds host/system and so on (`im/kvm-probes.d`).
    pub folder: PathBuf,
    /// Working directory (`im/kvm.d`).
    pub dir: PathBuf,
    /// Their words: hypervisor, host id, host name.
    pub words: [String; 3],
    /// Their stdin.
    pub stdin: Bytes,
    /// Time limit of one.
    pub limit: Duration,
    /// Most output of one.
    pub cap: usize,
    /// Names that are run although the agent does their work.
    pub forced: Vec<String>,
}

impl Probes {
    /// The executables of `group` (`host/system`) that are to be run, in byte order. Every executable regular file
    /// counts, as ever; links are followed. `all` includes those that the agent replaces.
    #[must_use]
    pub fn list(&self, group: &str, all: bool) -> Vec<PathBuf> {
        let native = NATIVE.iter().find(|(folder, _)| *folder == group).map_or(&[][..], |(_, names)| names);
        let Ok(entries) = std::fs::read_dir(self.folder.join(group)) else { return Vec::new() };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.retain(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            let replaced = native.contains(&name) && !self.forced.iter().any(|forced| forced == name);
            is_executable(path) && (all || !replaced)
        });
        found.sort();
        found
    }

    /// Whether the probe folder is there.
    #[must_use]
    pub fn has_folder(&self) -> bool {
        self.folder.is_dir()
    }

    /// Runs the executables of `group` one after another and joins what they print, a newline between. What becomes
    /// of a bad one goes to `complain` as (name, reason).
    pub async fn run(&self, group: &str, complain: impl FnMut(&str, String)) -> String {
        self.run_files(self.list(group, false), complain).await
    }

    /// The same for given files.
    pub async fn run_files(&self, files: Vec<PathBuf>, mut complain: impl FnMut(&str, String)) -> String {
        let mut text = String::new();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match self.one(&path, &name).await {
                Ok(out) => {
                    text.push_str(&out);
                    if !out.is_empty() && !out.ends_with('\n') {
                        text.push('\n');
                    }
                }
                Err(reason) => complain(&name, reason),
            }
        }
        text
    }

    async fn one(&self, path: &Path, name: &str) -> Result<String, String> {
        let path = path.to_str().ok_or("its name is not UTF-8")?;
        let ask = Ask {
            dir: self.dir.is_dir().then(|| self.dir.clone()),
            env: vec![("LANG".to_owned(), "C".to_owned())],
            stdin: self.stdin.clone(),
            cap: self.cap,
            ..Ask::new(path, self.words.clone(), self.limit)
        };
        let out = self.tools.ask(ask).await?.good(name, self.limit)?;
        check(&out).map_err(|error| format!("{name} printed {error}"))?;
        Ok(out)
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::Real;

    fn probes(scripts: &[(&str, &str)]) -> (tempfile::TempDir, Probes) {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in scripts {
            let path = dir.path().join("kvm-probes.d/host/system").join(name);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(&path, text).expect("written");
            let mode = if name.ends_with("-plain") { 0o644 } else { 0o755 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mode");
        }
        let probes = Probes {
            tools: Arc::new(Real::default()),
            folder: dir.path().join("kvm-probes.d"),
            dir: dir.path().join("kvm-probes.d"),
            words: ["kvm".into(), "3".into(), "node 3".into()],
            stdin: Bytes::from_static(b"<X/>"),
            limit: Duration::from_secs(2),
            cap: 1000,
            forced: Vec::new(),
        };
        (dir, probes)
    }

    #[tokio::test]
    async fn bad_probes_cost_only_themselves() {
        let (_dir, probes) = probes(&[
            ("10-good", "#!/bin/sh\nprintf 'A=\"%s %s %s %s\"' \"$1\" \"$2\" \"$3\" \"$(cat)\"\n"),
            ("20-hangs", "#!/bin/sh\nsleep 600 & wait\n"),
            ("30-endless", "#!/bin/sh\nyes X=1\n"),
            ("40-fails", "#!/bin/sh\necho B=1; echo broken >&2; exit 3\n"),
            ("50-rubbish", "#!/bin/sh\necho hello world\n"),
            ("60-good", "#!/bin/sh\necho C=1\n"),
            ("70-plain", "#!/bin/sh\necho D=1\n"),
        ]);
        let mut said = Vec::new();
        let began = std::time::Instant::now();
        let text = probes.run("host/system", |name, reason| said.push((name.to_owned(), reason))).await;
        assert_eq!(text, "A=\"kvm 3 node 3 <X/>\"\nC=1\n");
        let names: Vec<&str> = said.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["20-hangs", "30-endless", "40-fails", "50-rubbish"]);
        assert_eq!(said[2].1, "40-fails failed (exit status 3): broken");
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }

    #[test]
    fn what_the_agent_does_itself_is_not_run_unless_it_is_wanted() {
        let (_dir, mut probes) = probes(&[("pci.rb", ""), ("mine.sh", ""), (".hidden", "")]);
        let names = |probes: &Probes| {
            let all = probes.list("host/system", false);
            all.iter()
                .map(|p| p.file_name().expect("name").to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&probes), [".hidden", "mine.sh"]);
        probes.forced.push("pci.rb".into());
        assert_eq!(names(&probes), [".hidden", "mine.sh", "pci.rb"]);
        assert!(probes.list("vm/status", false).is_empty());
    }
}
