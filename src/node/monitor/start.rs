//! `kvmad-node monitor start` and `stop`: what `monitord-client_control.sh` calls.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};

use super::agent::About;
use super::config::Config;
use super::single;
use super::store::Files;
use crate::host::process::{Process, Start};
use crate::node::root::Root;

/// Longest configuration that is read.
const LONGEST: u64 = 16 << 20;

/// Reads the configuration from stdin.
///
/// # Errors
/// Why there is none.
pub fn read_config() -> Result<(Config, Bytes), String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the monitoring configuration on stdin can't be read: {error}"))?;
    let config = Config::read(&bytes).map_err(|error| error.to_string())?;
    Ok((config, Bytes::from(bytes)))
}

/// Ends the agents of this host, starts a new one, and prints its first reply. Nothing is printed unless the reply is
/// complete.
///
/// # Errors
/// Why there is no agent, in one line.
pub async fn start(about: &About, program: PathBuf) -> Result<(), String> {
    let (config, stdin) = read_config()?;
    if let Some(other) = config.host_id.filter(|id| *id != about.id) {
        return Err(format!(
            "the configuration is for host {other}, but host {} is to be monitored",
            about.id
        ));
    }
    let im = PathBuf::from(&about.remotes).join("im");
    if !im.join(format!("{}-probes.d", about.hypervisor)).is_dir() {
        return Err(format!(
            "there is no folder {}/{}-probes.d: push the remotes anew",
            im.display(),
            about.hypervisor
        ));
    }
    let root = Root::system();
    single::end(&root, &Files::of(&root, about.id), about.id)?;
    let start = Start::new(&program)
        .args(["monitor", "agent", "--hypervisor", &about.hypervisor, "--host-id", &about.id.to_string()])
        .args(["--host", &about.name, "--remotes", &about.remotes])
        .makes_own_session();
    let (process, mut pipes) = Process::start(&start).await.map_err(|error| error.to_string())?;
    let stdin_pipe = pipes.stdin.take();
    let feed = async move {
        if let Some(mut pipe) = stdin_pipe {
            // An agent that does not read it says why itself.
            let _ = pipe.write_all(&stdin).await;
        }
    };
    let (mut reply, mut said) = (Vec::new(), Vec::new());
    let read = async {
        tokio::join!(feed, pipes.stdout.read_to_end(&mut reply), pipes.stderr.read_to_end(&mut said))
    };
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    // Dropping the process ends a half-started agent.
    tokio::select! {
        _ = read => {}
        _ = term.recv() => return Err("the start was ended from outside".to_owned()),
        _ = hangup.recv() => return Err("the start was ended from outside".to_owned()),
    }
    if !reply.ends_with(b"</MONITOR_MESSAGES>") {
        let said = String::from_utf8_lossy(&said);
        let reason = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        return Err(reason.unwrap_or("the agent ended before its first reply was complete").to_owned());
    }
    reply.push(b'\n');
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(&reply).and_then(|()| stdout.flush());
    written.map_err(|error| format!("the first reply was not taken: {error}"))?;
    process.detach();
    Ok(())
}

/// Ends the agents of this host. None is no error.
///
/// # Errors
/// When one does not end.
pub fn stop(id: i64) -> Result<(), String> {
    let root = Root::system();
    single::end(&root, &Files::of(&root, id), id).map(drop)
}

/// The kept configuration, for the renewal of an agent.
///
/// # Errors
/// Why it can't be used.
pub fn kept_config(id: i64) -> Result<Config, String> {
    let path = Files::of(&Root::system(), id).path("config");
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Config::read(&bytes).map_err(|error| error.to_string())
}

/// Asks the agent of host `id` for `what` (status, metrics) over its socket.
///
/// # Errors
/// Why there is no answer.
pub fn ask_agent(id: i64, what: &str) -> Result<String, String> {
    let path = Files::of(&Root::system(), id).path("socket");
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!("no agent for host {id} runs here")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{}: only its own user may ask the agent", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    let mut stream = std::os::unix::net::UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
    writeln!(stream, "{what}").map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Ids of the hosts that have had an agent here.
#[must_use]
pub fn known_hosts() -> Vec<i64> {
    let names = Root::system().names(super::store::FOLDER);
    let mut ids: Vec<i64> = names
        .iter()
        .filter_map(|name| name.strip_prefix("host-")?.strip_suffix(".lock")?.parse().ok())
        .collect();
    ids.sort_unstable();
    ids
}
