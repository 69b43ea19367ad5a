//! What all of `kvmad vm` stands on: settings, connections to hosts, the helper's answers, the driver's executor.

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::Stop;
use crate::cli::run::surroundings;
use crate::host::job::{HostName, Job, Place, Program, Runner as _, Watch};
use crate::host::{AlwaysMyTurn, Ending, Pool, PoolOptions};
use crate::mad::actions::{Answer, Context};
use crate::mad::options::VmmOptions;
use crate::script::failure;
use crate::start::Started;
use crate::vmm::execute::MakeDomain;
use crate::vmm::payload::Action;
use crate::vmm::plan;
use crate::vmm::setup::Setup;
use crate::vmm::start;
use crate::vmm::verb::Verb;

/// The script on a host that answers.
pub const SCRIPT: &str = "vmm/kvm/cloud";

/// Remotes of the package, for a machine that is no front-end of OpenNebula.
const OWN_REMOTES: &str = "/usr/share/kvmad/remotes";

/// Where these go on a host: not into the folder of a front-end that the host may belong to.
const OWN_PLACE: &str = "/var/tmp/kvmad";

/// This front-end and its connections.
pub struct Site {
    /// Settings, paths, environment.
    pub started: Started,
    /// Folder of the remotes on hosts.
    pub remote_dir: String,
    pool: Arc<Pool>,
    cancel: CancellationToken,
}

/// Runs `work` on a site; an interrupt ends what it does on a host.
pub fn on_site<T, F>(work: impl FnOnce(Arc<Site>) -> F) -> Result<T, Stop>
where
    F: Future<Output = Result<T, Stop>>,
{
    let started = surroundings().map_err(Stop::usage)?;
    let runtime = start::runtime().map_err(|error| Stop::unchecked(error.to_string()))?;
    runtime.block_on(async {
        let options = options(&started);
        let remote_dir = options.remote_dir.clone();
        let pool = Arc::new(Pool::new(options).map_err(|error| Stop::unchecked(error.to_string()))?);
        let cancel = CancellationToken::new();
        let site = Arc::new(Site { started, remote_dir, pool, cancel: cancel.clone() });
        let interrupt = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                cancel.cancel();
            }
        });
        let done = work(site.clone()).await;
        interrupt.abort();
        site.pool.close().await;
        done
    })
}

/// Those of the front-end; without one the remotes of the package, in a place of their own.
fn options(started: &Started) -> PoolOptions {
    let options = PoolOptions::new(&started.settings, &started.paths, started.core.scripts_remote_dir());
    if options.remotes.is_dir() || !Path::new(OWN_REMOTES).is_dir() {
        return options;
    }
    PoolOptions { remotes: OWN_REMOTES.into(), remote_dir: OWN_PLACE.to_owned(), ..options }
}

impl Site {
    /// Asks the helper of `host`; what it tells on the way goes to stderr.
    ///
    /// # Errors
    /// The reason that the host gave, or why it could not be asked.
    pub async fn ask(&self, host: &HostName, args: &[&str], stdin: impl Into<Bytes>) -> Result<String, Stop> {
        let place = Place::Host { name: host.clone(), agent: false };
        let mut job = Job::new(Program::Script(SCRIPT.to_owned()));
        job.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        job.stdin = stdin.into();
        let outcome = self.pool.run(&place, job, self.watch(host)).await;
        if outcome.succeeded() {
            return String::from_utf8(outcome.stdout)
                .map_err(|_| Stop::unchecked(format!("{host}: the helper's answer is no text")));
        }
        let reason = host.tells(&failure(&outcome, SCRIPT, &place));
        Err(match outcome.ending {
            Ending::Exited(1) => Stop::finding(reason),
            _ => Stop::unchecked(reason),
        })
    }

    /// The same for an answer in JSON.
    pub async fn ask_json<T: DeserializeOwned>(
        &self,
        host: &HostName,
        args: &[&str],
        stdin: impl Into<Bytes>,
    ) -> Result<T, Stop> {
        let text = self.ask(host, args, stdin).await?;
        serde_json::from_str(&text)
            .map_err(|error| Stop::unchecked(format!("{host}: the helper's answer can't be read: {error}")))
    }

    fn watch(&self, host: &HostName) -> Watch {
        let (told, noticed) = (host.clone(), host.clone());
        Watch {
            // What begins so is for people as it happens; the rest is the reason of a failure.
            on_stderr: Arc::new(move |line| {
                if let Some(text) = line.strip_prefix("INFO: cloud: ") {
                    tell(&told, text);
                }
            }),
            // The pool names the host itself.
            on_notice: Arc::new(move |line| {
                let named = line.strip_prefix(noticed.as_str()).and_then(|rest| rest.strip_prefix(": "));
                tell(&noticed, named.unwrap_or(line));
            }),
            turn: Arc::new(AlwaysMyTurn),
            // What is asked after an interrupt tidies up.
            cancel: if self.cancel.is_cancelled() { CancellationToken::new() } else { self.cancel.clone() },
        }
    }

    /// Carries out one action as the driver would; `domain` makes the domain of a DEPLOY. The documents of a VM are left
    /// where they are unless `stores`.
    ///
    /// # Errors
    /// The reason that oned would get.
    pub async fn act(
        &self,
        verb: Verb,
        document: String,
        domain: Option<MakeDomain>,
        stores: bool,
    ) -> Result<String, Stop> {
        let (options, _) = VmmOptions::parse("one_vmm_exec", ["kvm".to_owned()])
            .map_err(|error| Stop::usage(error.to_string()))?;
        let mut setup = Setup::of_driver(&options, |name| self.started.variable(name));
        setup.generate_domain = domain.is_some();
        let action = Action::from_xml(document).map_err(|error| Stop::usage(error.to_string()))?;
        let mut plan =
            plan::plan(verb, &action, &setup).map_err(|refusal| Stop::finding(refusal.to_string()))?;
        if !stores {
            plan.steps.retain(|step| !step.name.starts_with("store "));
        }
        let executor = start::executor(self.pool.clone(), &options, &self.started);
        let executor = match domain {
            Some(make) => executor.with_domain(make),
            None => executor,
        };
        let host = action.host().clone();
        let log = move |_, text: &str| tracing::debug!(%host, "{text}");
        let mut context = Context::alone(Arc::new(log));
        context.cancel = self.cancel.clone();
        match executor.run(&plan, &context).await {
            Answer::Success(info) => Ok(info),
            Answer::Failure(reason) => Err(Stop::finding(reason)),
        }
    }
}

/// Tells the operator what happens.
pub fn tell(host: &HostName, text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "{host}: {}", crate::cli::plain(text));
}

/// A path as the argument of a job.
pub fn shown(path: &Path) -> Result<&str, Stop> {
    path.to_str().ok_or_else(|| Stop::usage(format!("{}: the path is no text", path.display())))
}
