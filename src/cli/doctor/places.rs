//! Where the checks run: on this machine, over the drivers' connection, or, where the remotes of a host do not have the
//! checks of this version or root's rights are wanted, out of a folder of our own that is removed at the end.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::front;
use crate::host::job::{Boxed, Outcome};
use crate::host::{HostName, Job, Place, Pool, PoolOptions, Program, Runner, Watch};
use crate::node::check::command::{applied, shown};
use crate::node::check::edit::Edit;
use crate::node::check::host::{Host, Wanted};
use crate::node::check::report::{Chosen, Report, report};
use crate::node::check::{Finding, Group, Verdict};
use crate::node::root::Root;
use crate::script::failure;
use crate::settings::{Paths, Settings};

/// Time limit of all checks of a host, and of its edits.
const LIMIT: Duration = Duration::from_secs(180);
const SCRIPT: &str = "kvmad/check";

/// A host and what was found.
#[derive(Debug)]
pub struct Seen {
    /// Which; `None`: this machine.
    pub host: Option<HostName>,
    /// Whether the checks ran out of a folder of our own.
    pub scratch: bool,
    /// What the host told; `None` when it could not be asked.
    pub report: Option<Report>,
    /// All findings: the host's and the front-end's.
    pub findings: Vec<Finding>,
}

impl Seen {
    /// Its name for programs.
    pub fn name(&self) -> String {
        self.host.as_ref().map_or_else(|| "localhost".to_owned(), HostName::to_string)
    }

    /// Its name for people.
    pub fn title(&self) -> String {
        match (&self.host, &self.report) {
            (Some(host), _) => host.to_string(),
            (None, Some(report)) => format!("{} (this machine)", report.facts.node),
            (None, None) => "this machine".to_owned(),
        }
    }

    #[cfg(test)]
    pub fn of(name: &str, findings: Vec<Finding>) -> Self {
        let host = HostName::new(name).expect("a name");
        Self { host: Some(host), scratch: false, report: None, findings }
    }
}

/// All places.
pub struct Places {
    drivers: Pool,
    own: Pool,
    /// The folder of `own` on hosts.
    folder: String,
    used: Mutex<Vec<HostName>>,
    pub wanted: Wanted,
}

/// Whether the name asks for root's rights.
pub fn is_root(host: &HostName) -> bool {
    host.as_str().starts_with("root@")
}

impl Places {
    /// With no connection yet. Must be called in a runtime.
    ///
    /// # Errors
    /// Why there can be no connections.
    pub fn new(settings: &Settings, paths: &Paths, wanted: Wanted) -> Result<Self, String> {
        // Not to be guessed: in a folder where everybody may make files nobody can be there before us. The push keeps
        // its lock beside the remotes, so they lie one level deeper.
        let folder = format!("/var/tmp/kvmad-doctor-{:016x}", rand::random::<u64>());
        let drivers = PoolOptions { push: false, ..PoolOptions::new(settings, paths, &wanted.remotes) };
        let own = PoolOptions::new(settings, paths, &format!("{folder}/one"));
        let pool = |options| Pool::new(options).map_err(|error| error.to_string());
        Ok(Self { drivers: pool(drivers)?, own: pool(own)?, folder, used: Mutex::default(), wanted })
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Vec<HostName>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self, host: &HostName, scratch: bool) -> &Pool {
        if !scratch {
            return &self.drivers;
        }
        let mut used = self.used();
        if !used.contains(host) {
            used.push(host.clone());
        }
        &self.own
    }

    /// Removes the folders of our own and ends the connections. Gives what could not be removed.
    pub async fn close(&self) -> Vec<String> {
        let mut left = Vec::new();
        let used = std::mem::take(&mut *self.used());
        for host in used {
            let args = ["-rf", "--", &self.folder].map(str::to_owned).to_vec();
            let job =
                Job { args, limit: Some(Duration::from_secs(30)), ..Job::new(Program::Path("rm".into())) };
            let place = Place::Host { name: host.clone(), agent: false };
            let outcome = self.own.run(&place, job, Watch::nothing()).await;
            if !outcome.succeeded() {
                left.push(format!("{host}: {} is left: {}", self.folder, failure(&outcome, "rm", &place)));
            }
        }
        self.drivers.close().await;
        self.own.close().await;
        left
    }

    /// Looks at the hosts, all at once; at this machine when none is named.
    ///
    /// # Errors
    /// Never because of a host: that is a finding.
    pub async fn look_at_all(&self, hosts: &[HostName], chosen: &Chosen) -> Result<Vec<Seen>, String> {
        if hosts.is_empty() {
            return Ok(vec![self.this_machine(chosen).await]);
        }
        let mut named: Vec<&HostName> = Vec::new();
        for host in hosts {
            if !named.contains(&host) {
                named.push(host);
            }
        }
        Ok(join_all(named.into_iter().map(|host| self.look_at(host, chosen))).await)
    }

    /// Looks once more.
    ///
    /// # Errors
    /// As [`Places::look_at_all`].
    pub async fn look_again(&self, seen: &Seen, chosen: &Chosen) -> Result<Seen, String> {
        Ok(match &seen.host {
            None => self.this_machine(chosen).await,
            Some(host) => self.look_at(host, chosen).await,
        })
    }

    async fn this_machine(&self, chosen: &Chosen) -> Seen {
        let told = report(&Host::this(self.wanted.clone()).await, chosen).await;
        Seen { host: None, scratch: false, findings: told.findings.clone(), report: Some(told) }
    }

    async fn look_at(&self, host: &HostName, chosen: &Chosen) -> Seen {
        let mut seen =
            Seen { host: Some(host.clone()), scratch: is_root(host), report: None, findings: Vec::new() };
        let looked = self.pool(host, seen.scratch).look(host, &Watch::nothing()).await;
        match looked {
            Err(reason) => {
                if seen.scratch {
                    self.used().retain(|used| used != host);
                }
                seen.findings.push(front::no_connection(host, &reason));
            }
            Ok(looked) => {
                seen.findings.push(front::connected(host));
                if !seen.scratch {
                    let runner: &dyn Runner = &self.drivers;
                    seen.findings.extend(front::helper(runner, host, &looked, &self.wanted.remotes).await);
                    seen.scratch = !front::is_fresh(&looked);
                }
                self.ask(host, &mut seen).await;
            }
        }
        wanted_only(&mut seen.findings, chosen, seen.report.is_some());
        seen
    }

    async fn ask(&self, host: &HostName, seen: &mut Seen) {
        let pool = self.pool(host, seen.scratch);
        match run(pool, host, self.wanted.words(), Vec::new()).await {
            Ok(text) => match serde_json::from_slice::<Report>(&text) {
                Ok(told) => {
                    seen.findings.extend(told.findings.iter().cloned());
                    seen.report = Some(told);
                }
                Err(error) => seen.findings.push(not_told(format!("{SCRIPT} printed no report: {error}"))),
            },
            Err(reason) => seen.findings.push(not_told(reason)),
        }
        seen.findings.push(front::clock(pool, host).await);
        seen.findings.push(front::names(pool, host).await);
    }

    /// What edits would change there.
    ///
    /// # Errors
    /// Why that can't be told.
    pub async fn show(
        &self,
        seen: &Seen,
        edits: &[Edit],
    ) -> Result<Vec<Result<Vec<String>, String>>, String> {
        match &seen.host {
            None => Ok(shown(&Root::system(), edits)),
            Some(host) => self.edit(host, edits, "--show".to_owned()).await,
        }
    }

    /// Makes edits there.
    ///
    /// # Errors
    /// Why it could not be tried; then it is not known what was made.
    pub async fn apply(
        &self,
        seen: &Seen,
        edits: &[Edit],
        suffix: &str,
    ) -> Result<Vec<Result<String, String>>, String> {
        match &seen.host {
            None => Ok(applied(&Root::system(), edits, suffix).await),
            Some(host) => self.edit(host, edits, format!("--apply={suffix}")).await,
        }
    }

    async fn edit<T: serde::de::DeserializeOwned>(
        &self,
        host: &HostName,
        edits: &[Edit],
        word: String,
    ) -> Result<T, String> {
        let stdin = serde_json::to_vec(edits).map_err(|error| error.to_string())?;
        let text = run(self.pool(host, true), host, vec![word], stdin).await?;
        serde_json::from_slice(&text).map_err(|error| format!("{host}: {SCRIPT} printed no answer: {error}"))
    }

    /// Runs jobs of others on the hosts, each in the place that `seen` says.
    pub fn runner<'a>(&'a self, seen: &'a [Seen]) -> impl Runner + 'a {
        Routed { places: self, seen }
    }
}

/// Keeps the findings that are wanted, one of each check: what the front-end found out by itself the host may have told,
/// too. Why a host told nothing is kept whatever is wanted: its wanted checks were not made.
fn wanted_only(findings: &mut Vec<Finding>, chosen: &Chosen, told: bool) {
    let mut known: Vec<Cow<'static, str>> = Vec::new();
    findings.retain_mut(|finding| {
        if known.contains(&finding.id) {
            return false;
        }
        known.push(finding.id.clone());
        if chosen.wants(&finding.id, finding.group) {
            return true;
        }
        let barred = !told && matches!(finding.verdict, Verdict::Failure | Verdict::CouldNotCheck);
        if !barred || !["ssh", "host"].contains(&finding.id.as_ref()) {
            return false;
        }
        finding.verdict = Verdict::CouldNotCheck;
        finding.evidence = format!("not reached: {}", finding.evidence);
        true
    });
}

fn not_told(reason: String) -> Finding {
    Finding::unchecked("host", Group::Opennebula, reason, "see the findings above; kvmad sync HOST")
}

async fn run(pool: &Pool, host: &HostName, args: Vec<String>, stdin: Vec<u8>) -> Result<Vec<u8>, String> {
    let place = Place::Host { name: host.clone(), agent: false };
    let job = Job {
        args,
        stdin: stdin.into(),
        limit: Some(LIMIT),
        grace: Duration::from_secs(5),
        ..Job::new(Program::Script(SCRIPT.to_owned()))
    };
    let outcome = pool.run(&place, job, Watch::nothing()).await;
    if outcome.succeeded() { Ok(outcome.stdout) } else { Err(failure(&outcome, SCRIPT, &place)) }
}

/// Sends each job to the pool that serves its host.
struct Routed<'a> {
    places: &'a Places,
    seen: &'a [Seen],
}

impl Runner for Routed<'_> {
    fn run<'a>(&'a self, place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome> {
        let scratch = match place {
            Place::Local => false,
            Place::Host { name, .. } => {
                self.seen.iter().any(|seen| seen.host.as_ref() == Some(name) && seen.scratch)
            }
        };
        match place {
            Place::Host { name, .. } => self.places.pool(name, scratch).run(place, job, watch),
            Place::Local => self.places.drivers.run(place, job, watch),
        }
    }
}

/// All of them at once, their results in order.
async fn join_all<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut waits = false;
        for (future, result) in &mut running {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => waits = true,
                }
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(groups: &[Group], only: &[&str]) -> Chosen {
        Chosen { groups: groups.to_vec(), only: only.iter().map(|id| (*id).to_owned()).collect() }
    }

    #[test]
    fn a_host_that_was_not_reached_is_unchecked_whatever_is_wanted_of_it() {
        let host = HostName::new("node.invalid").expect("a name");
        for wanted in [
            chosen(&[Group::Migration], &[]),
            chosen(&[Group::Kvm, Group::Cloud], &[]),
            chosen(&[], &["pair-name"]),
        ] {
            let mut findings = vec![front::no_connection(&host, "no route")];
            wanted_only(&mut findings, &wanted, false);
            let [found] = &findings[..] else { panic!("{wanted:?}: {findings:?}") };
            assert_eq!(
                (found.verdict, found.evidence.as_str()),
                (Verdict::CouldNotCheck, "not reached: no route")
            );
            assert!(found.mend.contains("ssh -v node.invalid"), "{found:?}");
        }
        for wanted in [chosen(&[], &[]), chosen(&[Group::Opennebula], &[]), chosen(&[], &["ssh"])] {
            let mut findings = vec![front::no_connection(&host, "no route")];
            wanted_only(&mut findings, &wanted, false);
            assert_eq!(findings[0].verdict, Verdict::Failure, "{wanted:?}");
        }
        let mut reached = vec![front::connected(&host), not_told("it died".into())];
        wanted_only(&mut reached, &chosen(&[Group::Kvm], &[]), false);
        assert_eq!(reached.iter().map(|found| found.id.as_ref()).collect::<Vec<_>>(), ["host"]);
        let mut fine = vec![front::connected(&host)];
        wanted_only(&mut fine, &chosen(&[Group::Kvm], &[]), true);
        assert!(fine.is_empty(), "{fine:?}");
    }
}
