//! The [`Runner`] of the drivers: connections to all hosts, and the front-end.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::collect::Collector;
use super::connection::Connection;
use super::entry::{Common, Entry};
use super::helper::{self, HelperLimits};
use super::job::{Boxed, Ending, HostName, Job, Outcome, Place, Program, Purpose, Runner, Watch};
use super::local::Local;
use super::push::{self, Pushed, Source};
use super::ssh::{ControlDir, SshOptions};
use super::{agent, fallback};
use crate::settings::{Action, Host, Paths, Settings};
use crate::wire::{EndedBy, Exit, How, Open, Refusal, WhyRefused};

/// What a pool needs to know. [`PoolOptions::new`] fills it from the settings.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Settings of connections.
    pub host: Host,
    /// Settings of actions.
    pub action: Action,
    /// How ssh is started.
    pub ssh: SshOptions,
    /// The remotes on the front-end.
    pub remotes: PathBuf,
    /// The remotes on hosts (SCRIPTS_REMOTE_DIR).
    pub remote_dir: String,
    /// The helper for commands on the front-end; `None`: they are children of the driver itself.
    pub local_helper: Option<PathBuf>,
    /// Where that helper writes down what runs; `None`: its own default.
    pub local_state: Option<PathBuf>,
    /// Files from elsewhere that go to hosts with the remotes: where they are, and where below the remotes they
    /// will be. One that is not there is left out.
    pub extras: Vec<(PathBuf, String)>,
    /// Push the remotes to hosts that have others, or lack a script.
    pub push: bool,
}

impl PoolOptions {
    /// Everything as the settings and paths say; the helper of the front-end's own CPU if it is there.
    #[must_use]
    pub fn new(settings: &Settings, paths: &Paths, remote_dir: &str) -> Self {
        let remotes = paths.remotes();
        let helper = remotes.join("kvmad").join(std::env::consts::ARCH).join("kvmad-node");
        Self {
            ssh: SshOptions::new(&settings.host),
            host: settings.host.clone(),
            action: settings.action.clone(),
            remote_dir: remote_dir.to_owned(),
            local_helper: helper.is_file().then_some(helper),
            local_state: None,
            extras: vec![(paths.domain_defaults(), "etc/vmm/kvm/vmm_exec_kvm.conf".to_owned())],
            remotes,
            push: true,
        }
    }
}

/// What [`Pool::look`] saw.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Version of the host's helper and stamp of its remotes; or why there is no helper.
    pub helper: Result<(String, Option<String>), String>,
    /// The stamp that its remotes should have: that of the front-end's.
    pub wanted: Result<String, String>,
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No folder for control sockets of ssh can be used: {0}
    #[error("no folder for control sockets of ssh can be used: {0}")]
    Control(#[source] std::io::Error),
}

/// Runs jobs anywhere. Must live in a tokio runtime; dropping it ends what runs.
pub struct Pool {
    inner: Arc<Inner>,
    _closer: AbortOnDropHandle<()>,
}

pub(super) struct Inner {
    pub(super) options: PoolOptions,
    pub(super) helper_limits: HelperLimits,
    pub(super) helper_words: Option<String>,
    common: Arc<Common>,
    hosts: Mutex<HashMap<HostName, Arc<Entry>>>,
    local: Local,
    source: Source,
}

/// How a job ended at its place, before it is told as an outcome.
pub(super) enum Ran {
    Exit(Exit),
    Refused(Refusal),
    Lost(String),
}

impl From<fallback::Ended> for Ran {
    fn from(ended: fallback::Ended) -> Self {
        match ended {
            fallback::Ended::Exit(exit) => Self::Exit(exit),
            fallback::Ended::Refused(refusal) => Self::Refused(refusal),
            fallback::Ended::Lost(reason) => Self::Lost(reason),
        }
    }
}

/// Beyond its limit and grace, a helper gets this long to tell the end of a command.
const SLACK: Duration = Duration::from_secs(15);

/// Waits between two tries to connect for a roll-back.
const ROLLBACK_WAIT: Duration = Duration::from_secs(1);

/// How long a connection that is closed may take to end what runs over it.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

impl Pool {
    /// A pool without connections.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn new(options: PoolOptions) -> Result<Self, PoolError> {
        let control = ControlDir::open(options.host.control_dir.as_deref()).map_err(PoolError::Control)?;
        let common = Arc::new(Common {
            ssh: options.ssh.clone(),
            control: Arc::new(control),
            places: Arc::new(Semaphore::new(options.host.connections.max(1))),
            wanted: Notify::new(),
        });
        let helper_limits = HelperLimits {
            hello_wait: options.host.hello_wait,
            hello_noise: options.host.hello_noise.0,
            ping: options.host.ping,
            dead: options.host.ping_timeout,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let dir = &options.remote_dir;
        let fixed = dir.starts_with('/') && dir.chars().all(plain) && options.host.helper;
        let inner = Arc::new(Inner {
            helper_words: fixed.then(|| format!("{dir}/kvmad/serve")),
            common,
            hosts: Mutex::default(),
            local: Local::new(
                options.local_helper.clone(),
                options.local_state.clone(),
                helper_limits.clone(),
            ),
            source: Source::new(options.remotes.clone(), options.extras.clone()),
            helper_limits,
            options,
        });
        let _closer = AbortOnDropHandle::new(tokio::spawn(close_idle(Arc::downgrade(&inner))));
        Ok(Self { inner, _closer })
    }

    /// Pushes the remotes to a host, even if it has the same when `force`.
    ///
    /// # Errors
    /// Says what failed, with the host's name.
    pub async fn push(&self, host: &HostName, force: bool, watch: &Watch) -> Result<Pushed, String> {
        let entry = self.inner.entry(host);
        let _using = entry.using();
        let told = |reason: String| format!("{host}: {reason}");
        // Not updated on the way: the caller wants to know what this very push changed.
        let connection = entry.connection(watch).await.map_err(told)?;
        let pushed = self.inner.push(&entry, &connection, !force, watch).await.map_err(told)?;
        connection.updated.get_or_init(async || ()).await;
        Ok(pushed)
    }

    /// Connects to a host, without changing anything there, and says what helper and remotes it has.
    ///
    /// # Errors
    /// Why there is no connection, in ssh's own words.
    pub async fn look(&self, host: &HostName, watch: &Watch) -> Result<Seen, String> {
        let inner = &self.inner;
        let entry = inner.entry(host);
        let _using = entry.using();
        let connection = entry.connection(watch).await?;
        let helper = match &inner.helper_words {
            None => Err("helper = no in kvmad.conf, or the folder of the remotes has an odd name".to_owned()),
            Some(words) => match connection.helper(words, &inner.helper_limits, watch).await {
                Some(helper) => Ok((helper.hello.version.clone(), helper.hello.stamp.clone())),
                None => Err(connection.why_no_helper().await.unwrap_or_default()),
            },
        };
        let packed = inner.source.packed().await;
        let wanted = packed.map(|packed| packed.stamp.clone()).map_err(|error| error.to_string());
        Ok(Seen { helper, wanted })
    }

    /// Ends all connections and what runs over them; waits a little for that.
    pub async fn close(&self) {
        self.inner.local.close().await;
        let entries: Vec<_> = self.inner.hosts().drain().map(|(_, entry)| entry).collect();
        let closing: Vec<_> = entries
            .into_iter()
            .map(|entry| tokio::spawn(async move { entry.close(true, CLOSE_WAIT).await }))
            .collect();
        for one in closing {
            let _ = one.await;
        }
    }
}

impl Runner for Pool {
    fn run<'a>(&'a self, place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let began = Instant::now();
            let cap = self.inner.options.host.output_limit.0;
            let mut output = Collector::new(cap);
            let limit = job.limit;
            let ran = self.inner.run(place, job, &mut output, &watch).await;
            let ending = ending(ran, limit, place);
            let Collector { stdout, stderr, dropped, .. } = output;
            Outcome { ending, stdout, stderr, dropped, took: began.elapsed() }
        })
    }
}

fn ending(ran: Ran, limit: Option<Duration>, place: &Place) -> Ending {
    match ran {
        Ran::Exit(Exit { by: EndedBy::Request, .. }) => Ending::Cancelled,
        Ran::Exit(Exit { by: EndedBy::Limit, .. }) => Ending::TimedOut(limit.unwrap_or_default()),
        Ran::Exit(Exit { how: How::Exited(status), .. }) => Ending::Exited(status),
        Ran::Exit(Exit { how: How::Signaled(signal), .. }) => Ending::Signaled(signal),
        Ran::Refused(refusal) => Ending::NotStarted(refusal.text),
        Ran::Lost(reason) => Ending::Lost(match place {
            Place::Local => format!("front-end: {reason}"),
            Place::Host { name, .. } => format!("{name}: {reason}"),
        }),
    }
}

/// What a cancelled job is told that was never started.
const CANCELLED: Ran = Ran::Exit(Exit { how: How::Signaled(15), by: EndedBy::Request });

impl Inner {
    fn hosts(&self) -> std::sync::MutexGuard<'_, HashMap<HostName, Arc<Entry>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, name: &HostName) -> Arc<Entry> {
        let new = || Entry::new(name.clone(), self.common.clone());
        self.hosts().entry(name.clone()).or_insert_with(new).clone()
    }

    async fn run(&self, place: &Place, job: Job, output: &mut Collector, watch: &Watch) -> Ran {
        let dir = match place {
            Place::Local => self.options.remotes.to_string_lossy().into_owned(),
            Place::Host { .. } => self.options.remote_dir.clone(),
        };
        let (open, stdin) = match to_open(&job, &dir) {
            Ok(open) => (open, job.stdin.clone()),
            Err(text) => return Ran::Refused(Refusal { why: WhyRefused::Other, text }),
        };
        match place {
            Place::Local => match self.local.run(open, stdin, output, watch).await {
                helper::Ended::Exit(exit) => Ran::Exit(exit),
                helper::Ended::Refused(refusal) => Ran::Refused(refusal),
                helper::Ended::Lost => Ran::Lost(self.local.reason().await),
            },
            Place::Host { name, agent } => {
                let entry = self.entry(name);
                let _using = entry.using();
                let at = At { entry: &entry, agent: *agent, job: &job };
                self.run_on_host(at, open, stdin, output, watch).await
            }
        }
    }

    async fn run_on_host(
        &self,
        at: At<'_>,
        open: Open,
        stdin: Bytes,
        output: &mut Collector,
        watch: &Watch,
    ) -> Ran {
        let connecting = async {
            match at.job.purpose {
                Purpose::Action => self.connect(at.entry, watch).await,
                Purpose::RollBack => self.connect_for_rollback(at.entry).await,
            }
        };
        let connected = tokio::select! {
            biased;
            () = watch.cancel.cancelled() => return CANCELLED,
            connected = connecting => connected,
        };
        let connection = match connected {
            Ok(connected) => connected,
            Err(reason) => return Ran::Lost(reason),
        };
        let mut ran = self.once(&at, &connection, &open, &stdin, output, watch).await;
        if let Ran::Refused(Refusal { why: WhyRefused::Missing, text }) = &ran
            && matches!(at.job.program, Program::Script(_))
            && self.options.push
        {
            ran = match self.push_missing(&at, &connection, text, watch).await {
                Err(text) => Ran::Refused(Refusal { why: WhyRefused::Missing, text }),
                Ok(()) => self.once(&at, &connection, &open, &stdin, output, watch).await,
            };
        }
        if let Ran::Lost(_) = &ran {
            watch.turn.unreachable(&at.entry.name);
        }
        if at.job.purpose == Purpose::RollBack {
            tokio::spawn(connection.close(CLOSE_WAIT));
        }
        ran
    }

    /// A script is not there: the remotes are pushed, once.
    async fn push_missing(
        &self,
        at: &At<'_>,
        connection: &Arc<Connection>,
        text: &str,
        watch: &Watch,
    ) -> Result<(), String> {
        let Program::Script(script) = &at.job.program else { return Err(text.to_owned()) };
        (watch.on_notice)(&format!("{}: {script} is not there, updating the remotes", at.entry.name));
        let pushed = self.push(at.entry, connection, false, watch).await;
        pushed.map(drop).map_err(|reason| format!("{script}: {text}; the remotes were not updated: {reason}"))
    }

    async fn once(
        &self,
        at: &At<'_>,
        connection: &Arc<Connection>,
        open: &Open,
        stdin: &Bytes,
        output: &mut Collector,
        watch: &Watch,
    ) -> Ran {
        let bound = open.limit.map(|limit| limit + open.grace + SLACK);
        let running = async {
            if at.agent {
                return agent::run(self, at.entry, connection, open, stdin, output, watch).await;
            }
            self.over(at.entry, connection, open, stdin, output, watch).await
        };
        let bounded = async {
            match bound {
                Some(bound) => timeout(bound, running).await.ok(),
                None => Some(running.await),
            }
        };
        // A cancelled job whose end is not told is given up, too.
        let abandoned = async {
            watch.cancel.cancelled().await;
            sleep(open.grace + SLACK).await;
        };
        tokio::select! {
            ran = bounded => ran.unwrap_or(Ran::Exit(Exit { how: How::Signaled(9), by: EndedBy::Limit })),
            () = abandoned => CANCELLED,
        }
    }

    /// Runs a command over a connection: by the helper, or on a channel of its own.
    pub(super) async fn over(
        &self,
        entry: &Entry,
        connection: &Arc<Connection>,
        open: &Open,
        stdin: &Bytes,
        output: &mut Collector,
        watch: &Watch,
    ) -> Ran {
        if let Some(words) = &self.helper_words
            && let Some(helper) = connection.helper(words, &self.helper_limits, watch).await
        {
            return match helper.run(open.clone(), stdin.clone(), output, watch).await {
                helper::Ended::Exit(exit) => Ran::Exit(exit),
                helper::Ended::Refused(refusal) => Ran::Refused(refusal),
                helper::Ended::Lost => Ran::Lost(why_lost(connection, &helper).await),
            };
        }
        if let Err(text) = fallback::check(open) {
            return Ran::Refused(Refusal { why: WhyRefused::Other, text });
        }
        let channel = tokio::select! {
            channel = entry.channel(connection, watch) => channel,
            () = watch.cancel.cancelled() => return CANCELLED,
        };
        let (channel, session) = match channel {
            Ok(opened) => opened,
            Err(reason) => return Ran::Lost(reason),
        };
        let ended = fallback::run(channel, open, stdin.clone(), output, watch, self.times()).await;
        drop(session);
        ended.into()
    }

    /// Times of a channel without a helper.
    pub(super) fn times(&self) -> fallback::Times {
        let Host { hello_wait, connect_timeout, ping, ping_timeout, .. } = self.options.host;
        fallback::Times { begin: hello_wait.max(connect_timeout), ping, dead: ping_timeout }
    }

    /// The shared connection; a new one brings the host's remotes up to date first.
    async fn connect(&self, entry: &Entry, watch: &Watch) -> Result<Arc<Connection>, String> {
        let connection = entry.connection(watch).await?;
        if self.options.push && self.source.is_ours() {
            // Those who come meanwhile wait: none runs an old script.
            let update = async {
                if let Err(reason) = self.update(entry, &connection, watch).await {
                    (watch.on_notice)(&format!("{}: the remotes were not updated: {reason}", entry.name));
                }
            };
            connection.updated.get_or_init(|| update).await;
        }
        Ok(connection)
    }

    async fn connect_for_rollback(&self, entry: &Entry) -> Result<Arc<Connection>, String> {
        let tries = self.options.action.rollback_tries.max(1);
        let mut reason = String::new();
        for number in 0..tries {
            if number > 0 {
                sleep(ROLLBACK_WAIT).await;
            }
            match entry.open_one(None).await {
                Ok(connection) => return Ok(connection),
                Err(error) => reason = error,
            }
        }
        Err(format!("{reason} (tried {tries} times)"))
    }

    /// Pushes when the host's stamp is not ours.
    async fn update(&self, entry: &Entry, connection: &Arc<Connection>, watch: &Watch) -> Result<(), String> {
        let packed = self.source.packed().await.map_err(|error| error.to_string())?;
        if let Some(words) = &self.helper_words
            && let Some(helper) = connection.helper(words, &self.helper_limits, watch).await
            && helper.hello.stamp.as_ref() == Some(&packed.stamp)
        {
            return Ok(());
        }
        if let Pushed::Done { .. } = self.push(entry, connection, true, watch).await? {
            (watch.on_notice)(&format!("{}: remotes updated", entry.name));
        }
        Ok(())
    }

    async fn push(
        &self,
        entry: &Entry,
        connection: &Arc<Connection>,
        lazy: bool,
        watch: &Watch,
    ) -> Result<Pushed, String> {
        let packed = self.source.packed().await.map_err(|error| error.to_string())?;
        let open =
            push::command(&self.options.remote_dir, &packed.stamp, lazy, self.options.host.push_timeout);
        let mut output = Collector::new(8 << 20);
        let quiet = Watch { on_stderr: Arc::new(|_| {}), ..watch.clone() };
        let stdin = Bytes::from(packed.archive.clone());
        let ran = self.over(entry, connection, &open, &stdin, &mut output, &quiet).await;
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        let failed = match ran {
            Ran::Exit(Exit { how: How::Exited(0), .. }) => {
                connection.renew_helper().await;
                return Ok(push::result(&output.stdout, &packed));
            }
            Ran::Exit(Exit { by: EndedBy::Limit, .. }) => {
                format!("it took more than {} s", self.options.host.push_timeout.as_secs())
            }
            Ran::Exit(Exit { by: EndedBy::Request, .. }) => "cancelled".to_owned(),
            Ran::Exit(Exit { how: How::Exited(status), .. }) => format!("exit code {status}"),
            Ran::Exit(Exit { how: How::Signaled(signal), .. }) => format!("killed by signal {signal}"),
            Ran::Refused(refusal) => refusal.text,
            Ran::Lost(reason) => reason,
        };
        Err(if said.is_empty() { failed } else { format!("{said} ({failed})") })
    }
}

/// A job at a host.
struct At<'a> {
    entry: &'a Arc<Entry>,
    agent: bool,
    job: &'a Job,
}

/// ssh's own words when the connection went, else the helper's.
async fn why_lost(connection: &Connection, helper: &helper::Helper) -> String {
    // ssh writes down why it ends a moment after the channel has ended.
    for _ in 0..20 {
        if !connection.is_alive().await {
            return connection.reason();
        }
        sleep(Duration::from_millis(25)).await;
    }
    helper.reason().unwrap_or_else(|| "the helper was lost".to_owned())
}

fn to_open(job: &Job, dir: &str) -> Result<Open, String> {
    let program = match &job.program {
        Program::Path(path) => path.clone(),
        Program::Script(script) => {
            let good = |part: &str| !part.is_empty() && part != "." && part != "..";
            if script.contains('\0') || !script.split('/').all(good) {
                return Err(format!("{script:?} is no script of the remotes"));
            }
            format!("{dir}/{script}")
        }
    };
    let argv = std::iter::once(program).chain(job.args.iter().cloned()).collect();
    Ok(Open { argv, env: job.env.clone(), limit: job.limit, grace: job.grace })
}

/// Closes what nobody has used for a while, and the longest idle when a place is wanted.
async fn close_idle(pool: Weak<Inner>) {
    loop {
        let (idle, common) = match pool.upgrade() {
            Some(inner) => (inner.options.host.idle, inner.common.clone()),
            None => return,
        };
        let wanted = tokio::select! {
            () = common.wanted.notified() => true,
            () = sleep((idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(10))) => false,
        };
        let Some(inner) = pool.upgrade() else { return };
        let mut entries: Vec<_> = inner.hosts().values().cloned().collect();
        entries.iter().for_each(|entry| entry.close_idle_extras());
        entries.retain(|entry| entry.idle_since().is_some());
        entries.sort_by_key(|entry| entry.idle_since());
        let mut make_room = wanted;
        for entry in entries {
            let old = entry.idle_since().is_some_and(|since| since.elapsed() >= idle);
            if (old || make_room) && entry.is_connected().await {
                make_room = false;
                tokio::spawn(async move { entry.close(false, CLOSE_WAIT).await });
            }
        }
        inner.source.forget().await;
    }
}
