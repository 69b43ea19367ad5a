//! A connection with what runs over it: a helper, or a channel for each command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit};
use tokio::time::sleep;

use super::channel::{Channel, Reading};
use super::helper::{Helper, HelperLimits};
use super::job::{HostName, Watch};
use super::ssh::{ChannelRefused, ControlDir, Master, SshOptions};

/// Sessions that a server allows on one connection when nothing else is said (MaxSessions).
const SESSIONS: usize = 10;

/// A server closes a session a little later than its client sees the end: how often, and how long in between, the
/// first session is asked for again.
const REFUSED_TRIES: u32 = 20;
const REFUSED_WAIT: Duration = Duration::from_millis(100);

/// A live connection to a host.
pub(super) struct Connection {
    pub(super) host: HostName,
    /// Set once the host's remotes were compared with ours.
    pub(super) updated: OnceCell<()>,
    master: Master,
    helper: tokio::sync::Mutex<HelperState>,
    sessions: Mutex<Sessions>,
    freed: Arc<Notify>,
    _permit: Option<OwnedSemaphorePermit>,
}

enum HelperState {
    Unknown,
    Live(Arc<Helper>),
    /// There is none, and why.
    Absent(String),
}

struct Sessions {
    open: usize,
    most: usize,
}

/// A session that may be opened, or is: gives its place back when dropped.
pub(super) struct Session {
    connection: Arc<Connection>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.sessions().open -= 1;
        self.connection.freed.notify_waiters();
    }
}

impl Connection {
    /// Connects. `freed` is told when a session ends.
    pub(super) async fn open(
        host: &HostName,
        options: &SshOptions,
        control: Arc<ControlDir>,
        freed: Arc<Notify>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Arc<Self>, String> {
        let master = Master::open(host, options, control).await?;
        Ok(Arc::new(Self {
            host: host.clone(),
            updated: OnceCell::new(),
            master,
            helper: tokio::sync::Mutex::new(HelperState::Unknown),
            sessions: Mutex::new(Sessions { open: 0, most: SESSIONS }),
            freed,
            _permit: permit,
        }))
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it can still be used. Cheap with a live helper.
    pub(super) async fn is_usable(&self) -> bool {
        if let Ok(state) = self.helper.try_lock()
            && let HelperState::Live(helper) = &*state
            && (!helper.is_lost() || helper.is_silent())
        {
            // ssh may take a little longer to see that the host is gone.
            return !helper.is_lost();
        }
        self.master.is_alive().await
    }

    /// Whether its ssh still answers.
    pub(super) async fn is_alive(&self) -> bool {
        self.master.is_alive().await
    }

    pub(super) fn reason(&self) -> String {
        self.master.reason()
    }

    /// The helper of the host, started by `words` when it does not run; `None` when the host has none.
    pub(super) async fn helper(
        self: &Arc<Self>,
        words: &str,
        limits: &HelperLimits,
        watch: &Watch,
    ) -> Option<Arc<Helper>> {
        let mut state = self.helper.lock().await;
        match &*state {
            HelperState::Live(helper) if !helper.is_lost() => return Some(helper.clone()),
            HelperState::Absent(_) => return None,
            _ => {}
        }
        let started = self.start_helper(words, limits).await;
        match started {
            Ok(helper) => {
                let helper = Arc::new(helper);
                for orphan in helper.orphans(Duration::from_secs(5)).await {
                    (watch.on_notice)(&format!(
                        "{}: {} (process {}) still ran {} s after its connection was lost; it is ended",
                        self.host, orphan.program, orphan.pid, orphan.age
                    ));
                }
                *state = HelperState::Live(helper.clone());
                Some(helper)
            }
            Err(reason) => {
                tracing::info!(host = %self.host, reason, "no helper: a channel for each command");
                *state = HelperState::Absent(reason);
                None
            }
        }
    }

    async fn start_helper(self: &Arc<Self>, words: &str, limits: &HelperLimits) -> Result<Helper, String> {
        let (session, channel) = self.helper_channel(words).await?;
        let Channel { stdin, stdout, stderr, end } = channel;
        tokio::spawn(log_lines(self.host.clone(), stderr));
        let helper = Helper::start(stdout, stdin, limits).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            let _session = session;
            end.await
        });
        Ok(helper)
    }

    /// With one session a connection, an earlier helper may still be about to leave it.
    async fn helper_channel(self: &Arc<Self>, words: &str) -> Result<(Session, Channel), String> {
        for _ in 0..REFUSED_TRIES {
            if let Some(session) = self.reserve() {
                match self.channel(&session, words).await {
                    Ok(channel) => return Ok((session, channel)),
                    Err(ChannelRefused::Gone(reason)) => return Err(reason),
                    Err(ChannelRefused::Full) => {}
                }
            }
            sleep(REFUSED_WAIT).await;
        }
        Err("the server takes no session".to_owned())
    }

    /// Why the host has no helper, once one was looked for in vain.
    pub(super) async fn why_no_helper(&self) -> Option<String> {
        match &*self.helper.lock().await {
            HelperState::Absent(reason) => Some(reason.clone()),
            HelperState::Unknown | HelperState::Live(_) => None,
        }
    }

    /// Forgets the helper, for a new one of remotes that were just pushed. What runs over it goes on.
    pub(super) async fn renew_helper(&self) {
        *self.helper.lock().await = HelperState::Unknown;
    }

    /// A place for one more session, if the server is believed to have one.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<Session> {
        let mut sessions = self.sessions();
        if sessions.open >= sessions.most {
            return None;
        }
        sessions.open += 1;
        Some(Session { connection: self.clone() })
    }

    /// Opens a channel at a reserved place. `Full`: the server has fewer places than believed.
    pub(super) async fn channel(&self, _at: &Session, words: &str) -> Result<Channel, ChannelRefused> {
        for _ in 0..REFUSED_TRIES {
            match self.master.channel(words).await {
                Err(ChannelRefused::Full) => {}
                other => return other,
            }
            if self.has_fewer() {
                return Err(ChannelRefused::Full);
            }
            sleep(REFUSED_WAIT).await;
        }
        Err(ChannelRefused::Full)
    }

    /// A session was refused while others are open: believes that no more than those are allowed.
    fn has_fewer(&self) -> bool {
        let mut sessions = self.sessions();
        let fewer = sessions.open > 1;
        if fewer {
            sessions.most = sessions.open - 1;
        }
        fewer
    }

    /// Number of sessions that are open, that of an idle helper not counted.
    pub(super) fn busy(&self) -> usize {
        let open = self.sessions().open;
        match self.helper.try_lock().as_deref() {
            Ok(HelperState::Live(helper)) if !helper.is_lost() => open.saturating_sub(1) + helper.running(),
            Ok(_) => open,
            Err(_) => open + 1,
        }
    }

    /// Ends it: the helper ends what runs, then ssh goes.
    pub(super) async fn close(self: Arc<Self>, wait: Duration) {
        if let HelperState::Live(helper) = &*self.helper.lock().await {
            helper.close();
        }
        if let Some(connection) = Arc::into_inner(self) {
            connection.master.close(wait).await;
        }
    }
}

/// What a helper's shell says is for the log of the driver.
pub(super) async fn log_lines(host: impl std::fmt::Display, mut stderr: Reading) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..count]);
        tracing::debug!(%host, text = text.trim(), "helper");
    }
}
