//! Monitoring agents that should not be there.

use std::path::Path;

use super::host::Host;
use super::{Check, Finding, Group, Verdict};
use crate::node::root::Root;

/// What is checked here.
pub const CHECKS: &[Check] = &[Check {
    id: "stale-agents",
    group: Group::Opennebula,
    what: "At most one monitoring agent runs for each host id, and none from a program that was replaced or deleted.",
    why: "Two agents tell oned about the same VMs: states jump. An old one goes on with the old program.",
    mend: "onehost disable and enable the host (or stop and start its monitoring); else kill the process that is named.",
}];

/// A monitoring agent that runs.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    pid: u32,
    /// Host id.
    id: String,
    /// Whether it is OpenNebula's own.
    ruby: bool,
    /// Whether its program was replaced or deleted.
    old: bool,
}

/// All of them.
pub fn all(host: &Host) -> Vec<Finding> {
    vec![judge(&running(&host.root))]
}

fn running(root: &Root) -> Vec<Running> {
    let mut all = Vec::new();
    for name in root.names("/proc") {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let text = root.read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
        let program = |word: &str| {
            Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
        };
        let Some(first) = words.first() else { continue };
        if program(first).starts_with("kvmad-node")
            && words.get(1) == Some(&"monitor")
            && matches!(words.get(2), Some(&("agent" | "push")))
        {
            let at = words.iter().position(|word| *word == "--host-id");
            let id = at.and_then(|at| words.get(at + 1)).unwrap_or(&"?");
            let old = std::fs::read_link(root.path(format!("/proc/{pid}/exe")))
                .is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"));
            all.push(Running { pid, id: (*id).to_owned(), ruby: false, old });
        } else if words.get(1).is_some_and(|word| program(word) == "monitord-client.rb") {
            let id = words.get(3).unwrap_or(&"?");
            all.push(Running { pid, id: (*id).to_owned(), ruby: true, old: false });
        }
    }
    all
}

fn judge(agents: &[Running]) -> Finding {
    let (id, group) = ("stale-agents", Group::Opennebula);
    let mut ids: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut faults = Vec::new();
    for host in &ids {
        let of: Vec<&Running> = agents.iter().filter(|agent| agent.id == *host).collect();
        if of.len() > 1 {
            let pids: Vec<String> = of
                .iter()
                .map(|agent| format!("{}{}", agent.pid, if agent.ruby { " (OpenNebula's)" } else { "" }))
                .collect();
            faults.push(format!("{} agents for host id {host}: processes {}", of.len(), pids.join(", ")));
        }
    }
    faults.extend(agents.iter().filter(|agent| agent.old).map(|agent| {
        format!(
            "the agent for host id {} (process {}) runs from a program that was replaced",
            agent.id, agent.pid
        )
    }));
    if faults.is_empty() {
        let evidence = match agents.len() {
            0 => "no monitoring agent runs".to_owned(),
            _ => format!("one agent for each host id: {}", ids.join(", ")),
        };
        return Finding::ok(id, group, evidence);
    }
    let pid = agents.iter().find(|agent| agent.old).or(agents.first()).map_or(0, |agent| agent.pid);
    let mend =
        format!("onehost disable HOST, onehost enable HOST (a new agent ends the old one); else kill {pid}");
    Finding::bad(id, group, Verdict::Warning, faults.join("; "), mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_agents_for_one_host_and_an_old_program_are_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let add = |pid: u32, words: &str, exe: &str| {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).expect("made");
            std::fs::write(folder.join("cmdline"), words.replace('|', "\0") + "\0").expect("written");
            std::os::unix::fs::symlink(exe, folder.join("exe")).expect("a link");
        };
        let judged = || judge(&running(&Root::at(dir.path())));
        assert_eq!(judged().evidence, "no monitoring agent runs");
        add(7, "/var/tmp/one/kvmad/x/kvmad-node|monitor|agent|--hypervisor|kvm|--host-id|3|--host|n", "/x");
        add(8, "/var/tmp/one/kvmad/x/kvmad-node|monitor|agent|--hypervisor|kvm|--host-id|31|--host|n", "/x");
        add(9, "vi|monitord-client.rb.bak|kvm|3", "/vi");
        assert_eq!(
            (judged().verdict, judged().evidence.as_str()),
            (Verdict::Ok, "one agent for each host id: 3, 31")
        );
        add(10, "ruby|/var/tmp/one/im/kvm.d/monitord-client.rb|kvm|3|n|1", "/ruby");
        let two = judged();
        assert_eq!(two.verdict, Verdict::Warning);
        assert!(
            two.evidence.contains("2 agents for host id 3: processes 10 (OpenNebula's), 7"),
            "{}",
            two.evidence
        );
        std::fs::remove_dir_all(dir.path().join("proc/10")).expect("gone");
        add(11, "/var/tmp/one/kvmad/x/kvmad-node|monitor|agent|--host-id|4", "/old (deleted)");
        let old = judged();
        assert!(old.evidence.contains("host id 4 (process 11)") && old.mend.contains("kill 11"), "{old:?}");
    }
}
