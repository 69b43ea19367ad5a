//! What runs on the machine and on the hosts (they are namespaces of it): /proc, read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bed;

/// One process. Two of one number but another start are different ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number, as the machine sees it.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Start, in clock ticks since boot.
    pub started: u64,
    /// One letter; `Z` is a zombie.
    pub state: char,
    /// Its arguments (or, in brackets, its name when it has none).
    pub arguments: Vec<String>,
}

/// Arguments of a process; the name in brackets when it has none, nothing when it is not there.
pub fn arguments(pid: u32) -> Vec<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = words
        .split(|&b| b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|word| !word.is_empty())
        .collect();
    if !words.is_empty() {
        return words;
    }
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|name| vec![format!("[{}]", name.trim())])
        .unwrap_or_default()
}

fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name may hold anything, also blanks and parentheses
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, started, state, arguments: arguments(pid) })
}

/// All processes of the machine, those of the hosts among them, by number.
pub fn all() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, read(pid)?)))
        .collect()
}

/// Children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    all().values().filter(|process| process.parent == pid).map(|process| process.pid).collect()
}

/// A process and all below it.
pub fn tree(pid: u32) -> BTreeSet<Process> {
    let all = all();
    let mut found = BTreeSet::new();
    let mut open = vec![pid];
    while let Some(next) = open.pop() {
        if let Some(process) = all.get(&next)
            && found.insert(process.clone())
        {
            open.extend(all.values().filter(|process| process.parent == next).map(|process| process.pid));
        }
    }
    found
}

fn namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/pid")).ok()
}

/// All processes of a host of the bed.
pub fn of_host(host: &str) -> BTreeMap<u32, Process> {
    let wanted = namespace(bed::first_process(host));
    all().into_iter().filter(|(pid, _)| namespace(*pid) == wanted).collect()
}

/// Processes of a host whose arguments or environment mention `text`, and what is above them up to (not including) the
/// listening sshd and the host's first process: the traces of one front-end folder or remotes folder.
pub fn traces(host: &str, text: &str) -> BTreeSet<Process> {
    let all = of_host(host);
    let mentions = |process: &&Process| {
        process.arguments.iter().any(|word| word.contains(text))
            || fs::read(format!("/proc/{}/environ", process.pid))
                .is_ok_and(|environment| memchr::memmem::find(&environment, text.as_bytes()).is_some())
    };
    let mut found = BTreeSet::new();
    for process in all.values().filter(mentions) {
        let mut next = Some(process);
        while let Some(process) = next {
            if is_lasting(process) || !found.insert(process.clone()) {
                break;
            }
            next = all.get(&process.parent);
        }
    }
    found
}

/// What stays when nobody is connected. A virtual machine is no trace of a driver either.
fn is_lasting(process: &Process) -> bool {
    let name = process.arguments.first().map_or("", String::as_str);
    let words = process.arguments.join(" ");
    name.starts_with("init-")
        || words.contains("[listener]")
        || words.contains("qemu-system")
        || words.contains("ssh-agent -D")
}

/// Of these processes, those that still live (a zombie does not).
pub fn alive(processes: &BTreeSet<Process>) -> Vec<Process> {
    let now = all();
    let still = |process: &&Process| {
        now.get(&process.pid).is_some_and(|found| found.started == process.started && found.state != 'Z')
    };
    processes.iter().filter(still).cloned().collect()
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.is_ok(), "kill -{name} {pid}: {sent:?}");
}

/// What a process weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Resident memory, KiB.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: usize,
    /// Processes: itself and all below.
    pub processes: usize,
    /// Threads of itself.
    pub threads: u64,
    /// Zombies among those below.
    pub zombies: usize,
}

/// Weighs a process.
pub fn weigh(pid: u32) -> Weight {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let tree = tree(pid);
    Weight {
        resident: number("VmRSS"),
        threads: number("Threads"),
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
        processes: tree.len(),
        zombies: tree.iter().filter(|process| process.state == 'Z').count(),
    }
}
