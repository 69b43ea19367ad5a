//! The [`Runner`] of the drivers: connections to all hosts, and the front-end.

mod agent;
mod idle;
mod options;
mod run;
mod update;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub use options::PoolOptions;

use self::run::{At, Ran, Wanted};
use super::collect::Collector;
use super::entry::{Common, Entry};
use super::fallback;
use super::helper::HelperLimits;
use super::job::{Boxed, Ending, HostName, Job, Outcome, Place, Program, Runner, Watch};
use super::local::Local;
use super::push::{NotPushed, Pushed, Source};
use super::ssh::ControlDir;
use crate::settings::Host;
use crate::wire::{EndedBy, Exit, How, Open, Refusal, WhyRefused};

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

struct Inner {
    options: PoolOptions,
    helper_limits: HelperLimits,
    helper_words: Option<String>,
    common: Arc<Common>,
    hosts: Mutex<HashMap<HostName, Arc<Entry>>>,
    local: Local,
    source: Source,
}

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
        let _closer = AbortOnDropHandle::new(tokio::spawn(idle::close_idle(Arc::downgrade(&inner))));
        Ok(Self { inner, _closer })
    }

    /// Pushes the remotes to a host, even if it has the same when `force`.
    ///
    /// # Errors
    /// Says what failed, with the host's name.
    pub async fn push(&self, host: &HostName, force: bool, watch: &Watch) -> Result<Pushed, NotPushed> {
        let entry = self.inner.entry(host);
        let _using = entry.using();
        let told = |reason: &str| host.tells(reason);
        // Not updated on the way: the caller wants to know what this very push changed.
        let connection = entry.connection(watch).await.map_err(|why| NotPushed::Unreachable(told(&why)))?;
        let pushed = self.inner.push(&entry, &connection, !force, watch).await;
        let pushed = pushed.map_err(|why| NotPushed::Failed(told(&why)))?;
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

    fn ready<'a>(&'a self, host: &'a HostName, watch: Watch) -> Boxed<'a, Result<(), String>> {
        Box::pin(async move {
            let entry = self.inner.entry(host);
            let _using = entry.using();
            tokio::select! {
                biased;
                () = watch.cancel.cancelled() => Err("cancelled".to_owned()),
                connected = self.inner.connect(&entry, &watch) => connected.map(drop),
            }
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
        Ran::Lost(reason) => Ending::Lost(at(place, &reason)),
        Ran::Silent(reason) => Ending::Silent(at(place, &reason)),
    }
}

fn at(place: &Place, reason: &str) -> String {
    match place {
        Place::Local => format!("front-end: {reason}"),
        Place::Host { name, .. } => format!("{name}: {reason}"),
    }
}

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
            Place::Local => {
                let ended = self.local.run(open, stdin, output, watch).await;
                Ran::of_helper(ended, false, async || self.local.reason().await).await
            }
            Place::Host { name, agent } => {
                let entry = self.entry(name);
                let _using = entry.using();
                let at = At { entry: &entry, agent: *agent, job: &job };
                let wanted = Wanted { open: &open, stdin: &stdin.into(), watch };
                self.run_on_host(at, wanted, output).await
            }
        }
    }

    /// Times of a channel without a helper.
    fn times(&self) -> fallback::Times {
        let Host { hello_wait, connect_timeout, ping, ping_timeout, .. } = self.options.host;
        fallback::Times { begin: hello_wait.max(connect_timeout), ping, dead: ping_timeout }
    }
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
