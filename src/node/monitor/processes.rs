//! Processes of this host, read from /proc: the QEMU of each domain with its CPU time and memory, and the action
//! scripts that run now.

use std::collections::{BTreeMap, HashMap};

use super::collect::cpu;
use super::collect::memory::kib;
use crate::node::root::Root;

/// A process, told from others that had its number before by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    started: u64,
}

/// CPU time of a process and of the whole host at one moment, in ticks.
#[derive(Debug, Clone, Copy)]
struct Sample {
    own: u64,
    host: u64,
}

/// What a domain uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Percent of one CPU since the last look; `None` at the first.
    pub cpu: Option<f64>,
    /// RSS and swap, in KiB.
    pub memory: u64,
}

/// The QEMU processes, found once by their command line and then by number.
#[derive(Debug, Default)]
pub struct Emulators {
    known: HashMap<String, Process>,
    samples: HashMap<String, Sample>,
}

impl Emulators {
    /// Usage of the domains with these UUIDs; those without a process are left out.
    pub fn usage(&mut self, root: &Root, uuids: &[String]) -> BTreeMap<String, Usage> {
        self.known.retain(|uuid, process| {
            uuids.contains(uuid) && started(root, process.pid) == Some(process.started)
        });
        if uuids.iter().any(|uuid| !self.known.contains_key(uuid)) {
            self.search(root);
        }
        let host = cpu::Times::read(root).unwrap_or_default().total;
        let processors = cpu::processors(root) as f64;
        let mut all = BTreeMap::new();
        let mut samples = HashMap::new();
        for uuid in uuids {
            let Some(process) = self.known.get(uuid) else { continue };
            let Some(own) = ticks(root, process.pid) else { continue };
            let status = root.read(format!("/proc/{}/status", process.pid)).unwrap_or_default();
            let memory = kib(&status, "VmRSS").unwrap_or(0) + kib(&status, "VmSwap").unwrap_or(0);
            let cpu = self.samples.get(uuid).and_then(|before| {
                let passed = host.checked_sub(before.host).filter(|passed| *passed > 0)?;
                Some(own.saturating_sub(before.own) as f64 / passed as f64 * processors * 100.0)
            });
            samples.insert(uuid.clone(), Sample { own, host });
            all.insert(uuid.clone(), Usage { cpu, memory });
        }
        self.samples = samples;
        all
    }

    /// Looks through all processes for `-uuid UUID` in the command line.
    fn search(&mut self, root: &Root) {
        for pid in pids(root) {
            let words = command_line(root, pid);
            let Some(at) = words.iter().position(|word| word == "-uuid") else { continue };
            let Some(uuid) = words.get(at + 1) else { continue };
            if let Some(started) = started(root, pid) {
                self.known.insert(uuid.clone(), Process { pid, started });
            }
        }
    }
}

/// Numbers of all processes.
fn pids(root: &Root) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(root.path("/proc")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn command_line(root: &Root, pid: u32) -> Vec<String> {
    let text = root.read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split('\0').map(str::to_owned).collect()
}

/// The columns of /proc/PID/stat from the state on (column 3): the name before them may hold anything.
fn columns(root: &Root, pid: u32) -> Option<Vec<String>> {
    let text = root.read(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

fn column(columns: &[String], number: usize) -> Option<u64> {
    columns.get(number - 3)?.parse().ok()
}

fn started(root: &Root, pid: u32) -> Option<u64> {
    column(&columns(root, pid)?, 22)
}

/// utime, stime, cutime and cstime.
fn ticks(root: &Root, pid: u32) -> Option<u64> {
    let columns = columns(root, pid)?;
    (14..=17).map(|number| column(&columns, number)).sum()
}

/// Which VMs have an action script running on this host.
#[derive(Debug, Default, Clone)]
pub struct Actions {
    running: Vec<Vec<String>>,
}

impl Actions {
    /// Looks at all processes. An action script is one of the folder `vmm/`: OpenNebula's or ours, whoever started
    /// it; monitoring (`poll`) is none.
    #[must_use]
    pub fn running(root: &Root) -> Self {
        let scripts = pids(root).into_iter().filter_map(|pid| {
            let words = command_line(root, pid);
            let at = words.iter().take(3).position(|word| is_action(word))?;
            Some(words[at..].to_vec())
        });
        Self { running: scripts.collect() }
    }

    /// Whether an action of this VM runs: its words hold the name or the UUID of its domain, a path in its folder, or
    /// its number as OpenNebula hands it over.
    #[must_use]
    pub fn of(&self, vm: i64, uuid: &str) -> bool {
        let (name, number, folder) = (format!("one-{vm}"), vm.to_string(), format!("/{vm}/"));
        let is_its =
            |word: &String| *word == name || *word == uuid || *word == number || word.contains(&folder);
        self.running.iter().any(|words| words.iter().skip(1).any(is_its))
    }

    /// Whether a domain may be about to appear: a deploy, restore or migration runs.
    #[must_use]
    pub fn arriving(&self) -> bool {
        let starts =
            |script: &str| ["/deploy", "/restore", "/migrate"].iter().any(|end| script.ends_with(end));
        self.running.iter().any(|words| words.first().is_some_and(|script| starts(script)))
    }
}

fn is_action(word: &str) -> bool {
    let mut parts = word.rsplit('/');
    let (script, hypervisor, folder) = (parts.next(), parts.next(), parts.next());
    word.starts_with('/') && folder == Some("vmm") && hypervisor.is_some() && script != Some("poll")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = Root::at(dir.path());
        for (path, text) in files {
            write(&root, path, text);
        }
        (dir, root)
    }

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn stat(ticks: u64, started: u64) -> String {
        format!("77 (qemu) x) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 5 1 1 20 0 3 0 {started} 99 7")
    }

    #[test]
    fn cpu_is_the_share_of_the_ticks_since_the_last_look() {
        let (_dir, root) = host(&[
            ("/proc/77/cmdline", "qemu\0-name\0guest=-uuid\0-uuid\0u-1\0-x"),
            ("/proc/77/stat", &stat(100, 5)),
            ("/proc/77/status", "Name:\tqemu\nVmRSS:\t  1000 kB\nVmSwap:\t 24 kB\n"),
            ("/proc/stat", "cpu 1000 0 0 0 0 0 0 0 0 0\n"),
            ("/proc/cpuinfo", "processor: 0\n\nprocessor: 1\n"),
        ]);
        let mut emulators = Emulators::default();
        let uuids = ["u-1".to_owned(), "u-2".to_owned()];
        let first = emulators.usage(&root, &uuids);
        assert_eq!(first.len(), 1);
        assert_eq!(first["u-1"], Usage { cpu: None, memory: 1024 });
        write(&root, "/proc/77/stat", &stat(150, 5));
        write(&root, "/proc/stat", "cpu 1200 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(emulators.usage(&root, &uuids)["u-1"].cpu, Some(50.0));
        // Another process with the same number is not it.
        write(&root, "/proc/77/stat", &stat(150, 6));
        write(&root, "/proc/77/cmdline", "other");
        assert!(emulators.usage(&root, &uuids).is_empty());
    }

    #[test]
    fn actions_are_known_by_their_script_and_words() {
        let (_dir, root) = host(&[
            ("/proc/5/cmdline", "bash\0/var/tmp/one/vmm/kvm/shutdown\0one-7\0node1\x007\0node1\0"),
            (
                "/proc/6/cmdline",
                "/bin/bash\0/var/tmp/one/vmm/kvm/deploy\0/var/lib/one/datastores/0/12/deployment.0\0node1\0",
            ),
            ("/proc/7/cmdline", "grep\0vmm\0one-9\0"),
            ("/proc/8/cmdline", "/var/tmp/one/vmm/kvm/poll\0one-9\0"),
        ]);
        let actions = Actions::running(&root);
        assert!(actions.of(7, "u") && actions.of(12, "u") && !actions.of(9, "u") && !actions.of(1, "u"));
        assert!(actions.arriving());
        write(&root, "/proc/6/cmdline", "x\0");
        assert!(!Actions::running(&root).arriving());
    }
}
