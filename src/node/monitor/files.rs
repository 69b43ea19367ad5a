//! Files that other software of OpenNebula reads: the pid (the vGPU action sends SIGUSR1 to it), the configuration
//! (forecasting), and the receiver's address (the shell helper of datastore scripts greps it).

use std::io;

use super::agent::Agent;
use super::store::{SHARED_FOLDER, replace};

/// Writes them all. Trouble is written down; the agent works without them.
pub fn write(agent: &Agent) {
    let pid = format!("{}\n", std::process::id());
    let shared = |name: &str| agent.root.path(format!("{SHARED_FOLDER}/{name}"));
    // Names of network interfaces of devices that are in VMs are learnt anew by each agent.
    let _ = std::fs::remove_dir_all(shared("pci_net_names"));
    let results: [(&str, io::Result<()>); 5] = [
        ("etc", std::fs::create_dir_all(shared("etc"))),
        (".monitor_client.pid", replace(&shared(".monitor_client.pid"), pid.as_bytes(), 0o644)),
        ("config", replace(&shared("config"), agent.config.document.as_bytes(), 0o600)),
        ("etc/monitord.conf", replace(&shared("etc/monitord.conf"), network(agent).as_bytes(), 0o600)),
        ("the pid file in /tmp", replace(&agent.root.path(pid_file(agent.about.id)), pid.as_bytes(), 0o644)),
    ];
    for (name, result) in results {
        if let Err(error) = result {
            agent.fault(format!("{name} can't be written: {error}"));
        }
    }
}

/// Where agents of OpenNebula write their pid.
#[must_use]
pub fn pid_file(id: i64) -> String {
    format!("/tmp/one-monitord-{id}.pid")
}

/// One `NAME = value,` a line, the value the third word.
fn network(agent: &Agent) -> String {
    let target = agent.sender.as_ref().map_or(String::new(), |sender| sender.target().ip().to_string());
    let key = agent.config.public_key.replace(['"', '\n'], " ");
    format!(
        "NETWORK = [\n    MONITOR_ADDRESS = \"{target}\",\n    PORT = {},\n    PUBKEY = \"{}\"\n]\n",
        agent.config.port,
        key.trim()
    )
}
