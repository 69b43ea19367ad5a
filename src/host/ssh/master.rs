//! One connection to a host: an ssh in the background that carries channels.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openssh::{Error, Session, Stdio};
use openssh_mux_client::Connection as Mux;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use super::control::ControlDir;
use super::options::SshOptions;
use super::own_words;
use crate::host::capture::{Limits, run};
use crate::host::channel::{Channel, ChannelEnd};
use crate::host::job::HostName;
use crate::host::process::End;
use crate::host::supervise::Cause;

/// How long a master may take to answer on its socket: it is a process on this machine.
const ANSWER: Duration = Duration::from_secs(5);

/// A live connection. [`Master::close`] ends it; dropped, it ends when its channels have.
#[derive(Debug)]
pub struct Master {
    host: HostName,
    session: Arc<Session>,
    socket: PathBuf,
    log: PathBuf,
    pid: Option<Pid>,
    /// As long as somebody is connected to its socket, a master does not end for want of sessions.
    hold: Option<Mux>,
    _control: Arc<ControlDir>,
}

/// Why a channel was not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelRefused {
    /// The server does not want one more session on this connection.
    Full,
    /// The connection is gone: why.
    Gone(String),
}

impl Master {
    /// Connects.
    ///
    /// # Errors
    /// ssh's own words, or that the time-out passed.
    pub async fn open(
        host: &HostName,
        options: &SshOptions,
        control: Arc<ControlDir>,
    ) -> Result<Self, String> {
        let (socket, log) = control.names();
        // ConnectTimeout does not cover look-ups and the log-in.
        let limit = options.connect_timeout + Duration::from_secs(2);
        let limits =
            Limits { limit: Some(limit), grace: Duration::from_secs(1), cap: 64 << 10, ..Limits::default() };
        let done = run(&options.master(host, &socket, &log), Bytes::new(), &limits, &|_| {}).await;
        let done = done.map_err(|error| error.to_string())?;
        let words = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            own_words(&format!("{log}\n{}", String::from_utf8_lossy(&done.stderr)))
        };
        let failed = match (done.cause, done.end) {
            (Cause::Itself, End::Exited(0)) => None,
            (Cause::Itself, _) if !words().is_empty() => Some(words()),
            (Cause::Itself, End::Exited(status)) => Some(format!("ssh ended with status {status}")),
            (Cause::Itself, End::Signaled(signal)) => Some(format!("ssh was killed by signal {signal}")),
            _ => Some(format!("no connection within {} s", limit.as_secs())),
        };
        if let Some(reason) = failed {
            let _ = fs::remove_file(&log);
            let _ = fs::remove_file(&socket);
            return Err(reason);
        }
        let session = Arc::new(Session::resume_mux(socket.clone().into(), None));
        let mut master =
            Self { host: host.clone(), session, socket, log, pid: None, hold: None, _control: control };
        if let Some((pid, mux)) = master.ask().await {
            (master.pid, master.hold) = (Some(pid), Some(mux));
        }
        if master.pid.is_none() {
            return Err(format!("its control socket does not answer; {}", master.reason()));
        }
        Ok(master)
    }

    async fn ask(&self) -> Option<(Pid, Mux)> {
        let ask = async {
            let mut mux = Mux::connect(&self.socket).await.ok()?;
            let pid = mux.send_alive_check().await.ok()?;
            Some((Pid::from_raw(i32::try_from(pid.get()).ok()?)?, mux))
        };
        timeout(ANSWER, ask).await.ok()?
    }

    /// Whether ssh still answers on the socket. It may not know yet that its server is gone.
    pub async fn is_alive(&self) -> bool {
        self.ask().await.is_some()
    }

    /// What ssh said last of this connection.
    #[must_use]
    pub fn reason(&self) -> String {
        let words = own_words(&fs::read_to_string(&self.log).unwrap_or_default());
        if words.is_empty() { "the connection was lost".to_owned() } else { words }
    }

    /// Opens a channel that runs `words` on the host, by its user's login shell.
    ///
    /// # Errors
    /// [`ChannelRefused`].
    pub async fn channel(&self, words: &str) -> Result<Channel, ChannelRefused> {
        let mut command = self.session.clone().arc_raw_command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let opening = timeout(Duration::from_secs(60), command.spawn()).await;
        let gone = |why: String| ChannelRefused::Gone(why);
        let mut child = match opening {
            Ok(Ok(child)) => child,
            Ok(Err(error)) if is_full(&error) => return Err(ChannelRefused::Full),
            Ok(Err(Error::Disconnected)) => return Err(gone(self.reason())),
            Ok(Err(error)) => return Err(gone(format!("{error}; {}", self.reason()))),
            Err(_) => return Err(gone("the host did not answer for 60 s".to_owned())),
        };
        let pipes = (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(gone("a pipe of the channel is missing".to_owned()));
        };
        let log = self.log.clone();
        let end = async move {
            match child.wait().await {
                Ok(status) => ChannelEnd::Status(status.code().unwrap_or(255)),
                // The crate tells status 127 as this error.
                Err(Error::Remote(_)) => ChannelEnd::Status(127),
                Err(_) => {
                    let words = own_words(&fs::read_to_string(log).unwrap_or_default());
                    ChannelEnd::Lost(if words.is_empty() { "the connection was lost".into() } else { words })
                }
            }
        };
        let (stdout, stderr) = (Box::new(stdout), Box::new(stderr));
        Ok(Channel { stdin: Box::new(stdin), stdout, stderr, end: Box::pin(end) })
    }

    /// Ends it: no new channels, and ssh goes when the open ones have ended, at the latest after `wait`.
    pub async fn close(mut self, wait: Duration) {
        self.hold = None;
        let stop = async { Mux::connect(&self.socket).await?.request_stop_listening().await };
        let _ = timeout(ANSWER, stop).await;
        let gone = async {
            while self.is_ours_still() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(wait, gone).await;
        // Drop does the rest.
    }

    /// Whether the process that answered on the socket lives, and is not another one with its number: ssh shows
    /// the socket in its name, and `[stopped mux]` when it takes no new channels.
    fn is_ours_still(&self) -> bool {
        let Some(pid) = self.pid else { return false };
        let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let shows = |text: &[u8]| memchr::memmem::find(&words, text).is_some();
        shows(self.socket.as_os_str().as_encoded_bytes()) || shows(b"[stopped mux]")
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        if let Some(pid) = self.pid
            && self.is_ours_still()
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(&self.log);
        tracing::debug!(host = %self.host, "connection closed");
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::SshMux(openssh_mux_client::Error::RequestFailure(_)))
}
