//! The agent of OpenNebula 4.4 to 5.10: a round of probes each period, as one datagram to `collectd`.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use tokio::signal::unix::{SignalKind, signal};

use super::agent::Agent;
use super::message::pack;
use super::pull::{self, Push, Version, Wanted};
use super::setup::Sources;
use super::single::{self, Lock};
use super::store::{Files, replace};
use crate::host::process::{Process, Start};
use crate::node::root::Root;

const PID_FILE: &str = "/tmp/one-collectd-client.pid";

/// Ends the agent of this host and starts a new one in the background.
///
/// # Errors
/// When the old one does not end, or no new one can be started.
pub async fn start(wanted: &Wanted, push: Push, program: &Path) -> Result<(), String> {
    let about = &wanted.about;
    let root = Root::system();
    single::end(&root, &Files::of(&root, about.id), about.id)?;
    let start = Start::new(program)
        .args(["monitor", "push", "--hypervisor", &about.hypervisor, "--host-id", &about.id.to_string()])
        .args(["--host", &about.name, "--remotes", &about.remotes])
        .args(["--datastores", wanted.datastores.as_deref().unwrap_or("/var/lib/one/datastores")])
        .args(["--port", &push.port.to_string(), "--period", &push.period.to_string()])
        .no_stdin()
        .makes_own_session();
    let (process, _pipes) = Process::start(&start).await.map_err(|error| error.to_string())?;
    process.detach();
    Ok(())
}

/// Is the agent, until it is told to end or the remotes were renewed.
///
/// # Errors
/// What keeps it from working.
pub async fn run(wanted: Wanted, push: Push) -> Result<(), String> {
    // Fails only in a leader of a group, which has what it needs.
    let _ = rustix::process::setsid();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| error.to_string())?;
    // Whoever started it must not wait for its pipes.
    rustix::stdio::dup2_stdout(&null)
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .map_err(|error| error.to_string())?;
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    let id = wanted.about.id;
    let _lock = Lock::take(&Files::of(&Root::system(), id), id).map_err(|error| error.to_string())?;
    let agent = pull::agent(&wanted, Sources::of_this_process()).await?;
    let _ = replace(&agent.root.path(PID_FILE), format!("{}\n", std::process::id()).as_bytes(), 0o644);
    let update = Path::new(&wanted.about.remotes).join(".update");
    let stamp = || std::fs::metadata(&update).and_then(|meta| meta.modified()).ok();
    let first = stamp();
    let period = Duration::from_secs(push.period);
    let mut wait = period.mul_f64(rand::rng().random_range(0.0..1.0));
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = hangup.recv() => {}
            _ = term.recv() => return Ok(()),
        }
        let began = tokio::time::Instant::now();
        if stamp() != first {
            return Ok(());
        }
        tokio::select! {
            () = tell(&agent) => {}
            _ = term.recv() => return Ok(()),
        }
        wait = period.saturating_sub(began.elapsed());
    }
}

async fn tell(agent: &Agent) {
    let version = Version::of(agent, true);
    let (status, text) = match pull::round(agent, version, true).await {
        Ok(text) => ("SUCCESS", text),
        Err(reason) => ("FAILURE", reason),
    };
    let Some(sender) = &agent.sender else { return };
    let bytes = datagram(version, status, agent.about.id, &text);
    if let Err(error) = sender.datagram_of(&bytes).await {
        agent.fault(error.to_string());
    }
}

/// `MONITOR STATUS ID PAYLOAD` and a newline; the payload is packed from 5.0.
fn datagram(version: Version, status: &str, id: i64, text: &str) -> Vec<u8> {
    let payload = if version >= Version(5, 0) { pack(text.as_bytes()) } else { STANDARD.encode(text) };
    format!("MONITOR {status} {id} {payload}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::monitor::message::unpack;

    #[test]
    fn datagrams_are_packed_from_5_0() {
        let text = "HYPERVISOR=kvm\nTOTALCPU=800\n";
        let old = String::from_utf8(datagram(Version(4, 14), "SUCCESS", 3, text)).expect("text");
        assert_eq!(old, format!("MONITOR SUCCESS 3 {}\n", STANDARD.encode(text)));
        let new = String::from_utf8(datagram(Version(5, 10), "FAILURE", 3, text)).expect("text");
        let payload = new.trim_end().strip_prefix("MONITOR FAILURE 3 ").expect("head");
        assert_eq!(unpack(payload).expect("packed"), text.as_bytes());
    }
}
