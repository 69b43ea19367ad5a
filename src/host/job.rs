//! What to run, where, and how it ended: the contract between those who plan work and those who carry it out.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

/// Name of a host as `oned` knows it: letters, digits and `. _ : @ % -`, not beginning with `-`.
///
/// Everything else is refused before it comes near a command line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// A text that is no [`HostName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no host name: letters, digits and . _ : @ % - are allowed, a leading - is not")]
pub struct NotAHostName(pub String);

impl HostName {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`NotAHostName`] when it is empty or holds anything outside the allowed set.
    pub fn new(name: impl Into<String>) -> Result<Self, NotAHostName> {
        let name = name.into();
        let good = |c: char| c.is_ascii_alphanumeric() || "._:@%-".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(good) {
            return Err(NotAHostName(name));
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `why` with the host's name before it, unless `why` begins with it already.
    #[must_use]
    pub fn tells(&self, why: &str) -> String {
        let begins = why.strip_prefix(self.as_str()).is_some_and(|rest| rest.starts_with(':'));
        if begins { why.to_owned() } else { format!("{self}: {why}") }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// On the front-end, under the driver's local helper.
    Local,
    /// On a host.
    Host {
        /// Which.
        name: HostName,
        /// Delegated: over a connection of its own that forwards the ssh agent.
        agent: bool,
    },
}

/// Why a job runs; decides which connection and which tries it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// A step of an action.
    #[default]
    Action,
    /// Undoing one: a connection of its own, three tries to get it.
    RollBack,
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A script of the remotes, by its path below their folder (`vmm/kvm/deploy`). The place knows the folder;
    /// when the script is not there or not executable the remotes are pushed once and it is tried again.
    Script(String),
    /// An absolute path, or a name to be found in PATH.
    Path(String),
}

/// One command: a program, its arguments as a list, its stdin, its limits. Values are data, never shell text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What to start.
    pub program: Program,
    /// Its arguments, each handed over exactly as it is.
    pub args: Vec<String>,
    /// Added to the environment that the place gives.
    pub env: Vec<(String, String)>,
    /// All of its stdin; closed after it.
    pub stdin: Bytes,
    /// After this time TERM goes to its process group, also on a host that lost its driver. `None`: no limit.
    pub limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
    /// Why it runs.
    pub purpose: Purpose,
}

impl Job {
    /// A job with no arguments, an empty stdin, no limit and 30 s of grace.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self {
            program,
            args: Vec::new(),
            env: Vec::new(),
            stdin: Bytes::new(),
            limit: None,
            grace: Duration::from_secs(30),
            purpose: Purpose::Action,
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit status (0 to 255).
    Exited(i32),
    /// By this signal, which we did not send.
    Signaled(i32),
    /// We ended it because its limit passed.
    TimedOut(Duration),
    /// We ended it because the watch was cancelled.
    Cancelled,
    /// The program is not there or can't be executed (after a push, for a script); the text says which and why.
    NotStarted(String),
    /// The place could not be reached, or was lost while it ran; the text is for people and names the host.
    Lost(String),
    /// It gave no sign of life any more: it may run there a little longer, until that host notices the same.
    Silent(String),
}

/// What is left of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Its stdout, up to the cap of the settings.
    pub stdout: Vec<u8>,
    /// Its stderr, up to the cap of the settings. Lines were also given to the watch while it ran.
    pub stderr: Vec<u8>,
    /// Bytes of stdout and stderr beyond the cap, read and thrown away.
    pub dropped: u64,
    /// From the request to the end.
    pub took: Duration,
}

impl Outcome {
    /// Whether it ended by itself with status 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Exited(0)
    }
}

/// Gets one line, without its newline.
pub type LineFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Told by the runner when a job has to wait for its host, so that its caller can let others go first.
pub trait Turn: Send + Sync {
    /// The job waits for a connection to the host.
    fn waiting(&self, host: &HostName);
    /// The connection is there: resolves when the job may go on.
    fn ready<'a>(&'a self, host: &'a HostName) -> Boxed<'a, ()>;
    /// There is no connection to be had, or it was lost.
    fn unreachable(&self, host: &HostName);
}

/// A [`Turn`] of a caller that lets nobody go first.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysMyTurn;

impl Turn for AlwaysMyTurn {
    fn waiting(&self, _host: &HostName) {}

    fn ready<'a>(&'a self, _host: &'a HostName) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn unreachable(&self, _host: &HostName) {}
}

/// What the caller of a job follows while it runs.
#[derive(Clone)]
pub struct Watch {
    /// Gets every line of stderr as soon as it is complete, without its newline, made valid UTF-8.
    pub on_stderr: LineFn,
    /// Gets a line for the log when something happens around the job (remotes pushed, fallback used, retry).
    pub on_notice: LineFn,
    /// Told when the job has to wait for a connection.
    pub turn: Arc<dyn Turn>,
    /// Cancelling it ends the job: TERM to its group, the job's grace, KILL.
    pub cancel: CancellationToken,
}

impl Watch {
    /// Follows nothing and never cancels.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            on_stderr: Arc::new(|_| {}),
            on_notice: Arc::new(|_| {}),
            turn: Arc::new(AlwaysMyTurn),
            cancel: CancellationToken::new(),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cancelled", &self.cancel.is_cancelled()).finish_non_exhaustive()
    }
}

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Carries out jobs. The real one is over connections; tests give canned outcomes.
pub trait Runner: Send + Sync {
    /// Runs `job` at `place`, streaming to `watch`, and says how it ended. Never panics, never hangs beyond
    /// the job's limit and grace: what can't be done is an [`Ending`].
    fn run<'a>(&'a self, place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome>;

    /// Brings the remotes of `host` up to date, for work of another host that needs them there. Nothing to do where
    /// remotes are not pushed.
    ///
    /// # Errors
    /// Why the host can't be reached.
    fn ready<'a>(&'a self, host: &'a HostName, watch: Watch) -> Boxed<'a, Result<(), String>> {
        let _ = (host, watch);
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_once() {
        let host = HostName::new("node1").expect("a name");
        for (why, told) in [
            ("node1: ssh: no route", "node1: ssh: no route"),
            ("ssh: no route", "node1: ssh: no route"),
            ("node10: x", "node1: node10: x"),
            ("look on node1 died", "node1: look on node1 died"),
            ("", "node1: "),
        ] {
            assert_eq!(host.tells(why), told);
        }
    }
}
