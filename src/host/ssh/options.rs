//! How ssh is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::job::HostName;
use crate::host::process::Start;

/// What is the same for all connections.
#[derive(Debug, Clone)]
pub struct SshOptions {
    /// The program; found by PATH when it is no path.
    pub program: OsString,
    /// Another ssh_config than the user's and the system's.
    pub config: Option<PathBuf>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How often ssh asks a silent server for a sign of life.
    pub alive: Duration,
    /// How often such a question may go unanswered.
    pub alive_tries: u32,
    /// How long a master stays without sessions: so one whose driver was killed goes.
    pub control_persist: Duration,
}

impl SshOptions {
    /// `ssh` as `settings` say, signs of life as for the helper.
    #[must_use]
    pub fn new(settings: &crate::settings::Host) -> Self {
        let tries = settings.ping_timeout.as_secs() / settings.ping.as_secs().max(1);
        Self {
            program: "ssh".into(),
            config: None,
            connect_timeout: settings.connect_timeout,
            alive: settings.ping,
            alive_tries: u32::try_from(tries).unwrap_or(3).max(1),
            control_persist: settings.control_persist,
        }
    }

    /// A master for `host` that goes to the background once it is connected.
    pub(super) fn master(&self, host: &HostName, socket: &Path, log: &Path) -> Start {
        let persist = self.control_persist.as_secs().max(1);
        let mut path = OsString::from("ControlPath=");
        path.push(socket);
        self.common()
            .no_stdin()
            .arg("-E")
            .arg(log)
            .args(["-N", "-o", "ControlMaster=yes", "-o"])
            .arg(path)
            .args(["-o", &format!("ControlPersist={persist}"), "--", host.as_str()])
    }

    /// One command over a connection of its own that forwards the agent. `words` are fixed ones.
    #[must_use]
    pub fn with_agent(&self, host: &HostName, words: &str) -> Start {
        let own = ["-o", "ForwardAgent=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none"];
        self.common().args(own).args(["--", host.as_str(), words])
    }

    fn common(&self) -> Start {
        let mut start = Start::new(&self.program);
        if let Some(config) = &self.config {
            start = start.arg("-F").arg(config);
        }
        let seconds = |time: Duration| time.as_secs().max(1);
        start.args(["-T", "-o", "BatchMode=yes"]).args([
            "-o",
            &format!("ConnectTimeout={}", seconds(self.connect_timeout)),
            "-o",
            &format!("ServerAliveInterval={}", seconds(self.alive)),
            "-o",
            &format!("ServerAliveCountMax={}", self.alive_tries),
        ])
    }
}
