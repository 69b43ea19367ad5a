//! The migration itself: one `virsh migrate`, watched while it runs, helped when it gets nowhere, aborted when it must
//! end.
//!
//! `virsh` ends with this program, also when we are killed. libvirt takes that as the wish to abort: the guest goes on at
//! the source, and the target forgets it. Not when post-copy is possible: a guest that lies on both hosts must be brought to an end.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::job::{Job, time};
use super::libvirt::Libvirt;
use super::settings::{Remedy, Settings};
use super::stall::{Sight, Watch};
use super::voice::Voice;
use crate::host::capture::{Limits, run};
use crate::host::process::{End, Start};

/// Between two looks at the job.
const LOOK: Duration = Duration::from_secs(1);
/// For one look; a busy libvirt is asked again.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// From the abort to the end of virsh; after that it is ended.
const ABORTING: Duration = Duration::from_secs(20);
/// The same when the driver waits for our end.
const ABORTING_HURRIED: Duration = Duration::from_secs(8);
/// From one remedy for a passed time limit to the next, when there is no patience for stalls that says so.
const NEXT_REMEDY: Duration = Duration::from_secs(30);

/// What it takes.
pub struct Transfer<'a> {
    /// libvirt that has the domain.
    pub source: &'a Libvirt,
    /// uuid of the domain.
    pub uuid: &'a str,
    /// How.
    pub settings: &'a Settings,
    /// Whether it was started so that post-copy is possible.
    pub postcopy: bool,
    /// Cancelled when the driver wants an end.
    pub term: &'a CancellationToken,
    /// Where it is told.
    pub voice: &'a Voice,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// What virsh said when it failed.
    pub result: Result<(), String>,
    /// Why it was aborted, when it was.
    pub given_up: Option<String>,
    /// The guest was let go on at the target before all of its memory was there.
    pub split: bool,
    /// The last look at the job.
    pub last: Option<Job>,
    /// From start to end of virsh.
    pub took: Duration,
}

#[derive(Debug, Default)]
struct State {
    given_up: Option<String>,
    split: bool,
    last: Option<Job>,
}

/// Arguments of virsh for this migration. Nothing is said twice: words of MIGRATE_OPTIONS win. `more` are further words.
#[must_use]
pub fn arguments(
    settings: &Settings,
    uuid: &str,
    target_uri: &str,
    data_uri: Option<&str>,
    postcopy: bool,
    more: &[String],
) -> Vec<String> {
    let mut args: Vec<String> =
        ["migrate", "--domain", uuid, "--desturi", target_uri].map(str::to_owned).to_vec();
    let given = |option: &str| {
        let with_value = format!("{option}=");
        settings.options.iter().any(|word| word == option || word.starts_with(&with_value))
    };
    let mut add = |option: &str, value: Option<String>| {
        if !given(option) {
            args.push(option.to_owned());
            args.extend(value);
        }
    };
    add("--live", None);
    if let Some(uri) = data_uri {
        add("--migrateuri", Some(uri.to_owned()));
    }
    if let Some(converge) = settings.converges() {
        add("--auto-converge", None);
        if let Some(percent) = converge.initial {
            add("--auto-converge-initial", Some(percent.to_string()));
        }
        if let Some(percent) = converge.increment {
            add("--auto-converge-increment", Some(percent.to_string()));
        }
    }
    if settings.compressed {
        add("--compressed", None);
    }
    if settings.parallel > 1 {
        add("--parallel", None);
        add("--parallel-connections", Some(settings.parallel.to_string()));
    }
    if settings.bandwidth > 0 {
        add("--bandwidth", Some(settings.bandwidth.to_string()));
    }
    if settings.tls {
        add("--tls", None);
    }
    if postcopy {
        add("--postcopy", None);
    }
    // A word without dashes belongs to the option before it.
    let mut wanted = true;
    for word in more {
        wanted = if word.starts_with("--") { !given(word) } else { wanted };
        args.extend(wanted.then(|| word.clone()));
    }
    args.extend(settings.options.iter().cloned());
    args
}

impl Transfer<'_> {
    /// Runs `virsh` with `args` to its end.
    pub async fn run(&self, args: &[String]) -> Ended {
        let begin = Instant::now();
        let kill = CancellationToken::new();
        let limits =
            Limits { limit: None, grace: Duration::from_secs(5), cap: 1 << 20, cancel: kill.clone() };
        let state = Mutex::new(State::default());
        let start = self.start(args);
        let done = tokio::select! {
            done = run(&start, Bytes::new(), &limits, &|_| {}) => done,
            never = self.watch(&state, &kill) => match never {},
        };
        let result = match done {
            Err(error) => Err(error.to_string()),
            Ok(done) if done.end == End::Exited(0) => Ok(()),
            Ok(done) => Err(reason(&done.stderr, done.end)),
        };
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ended {
            result,
            given_up: state.given_up,
            split: state.split,
            last: state.last,
            took: begin.elapsed(),
        }
    }

    fn start(&self, args: &[String]) -> Start {
        let virsh = ["virsh", "--quiet", "--connect", self.source.uri()].map(str::to_owned);
        let start = match std::env::current_exe() {
            Ok(own) if !self.postcopy => {
                let parent = std::process::id().to_string();
                Start::new(own).args(["tied", "--parent", &parent, "--"]).args(virsh)
            }
            _ => Start::new("virsh").args(&virsh[1..]),
        };
        start.args(args).env("LC_ALL", "C").env_remove("LANGUAGE").no_stdin()
    }

    /// Looks at the job until virsh has ended.
    async fn watch(&self, state: &Mutex<State>, kill: &CancellationToken) -> Infallible {
        let begin = Instant::now();
        let mut stall = Watch::new(self.settings.stall);
        let mut stall_remedies = self.settings.on_stall.iter().copied();
        let mut time_remedies = self.settings.on_timeout.iter().copied();
        let mut next_remedy_at = self.settings.time_limit;
        let mut told_at = Duration::ZERO;
        let source = self.source.hurried(LOOK_LIMIT);
        loop {
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.term.cancelled(), if !lock(state).split => {
                    self.give_up("the driver ended it", state, kill).await;
                }
            }
            let job = tokio::select! {
                job = source.job(self.uuid) => job.ok().flatten().filter(Job::runs),
                () = self.term.cancelled(), if !lock(state).split => continue,
            };
            let now = begin.elapsed();
            let fresh = job.is_some();
            // Where libvirt tells nothing, nothing moves: that must have an end, too.
            let job = job.or(lock(state).last).unwrap_or_default();
            if fresh {
                lock(state).last = Some(job);
            }
            if let Some(every) = self.settings.progress.filter(|_| fresh)
                && now.saturating_sub(told_at) >= every
            {
                told_at = now;
                self.voice.info(&job.progress());
            }
            if lock(state).split {
                continue;
            }
            match stall.look(now, &job) {
                Sight::Moves => {}
                Sight::Dead(still) => {
                    let why = format!("nothing was sent for {}", time(still));
                    self.give_up(&why, state, kill).await;
                }
                Sight::Busy(since) => {
                    let why =
                        format!("the guest changes its memory too fast, no progress for {}", time(since));
                    self.help(&mut stall_remedies, &why, &job, state, kill).await;
                    stall.again(now);
                }
            }
            if next_remedy_at.is_some_and(|at| now >= at) {
                let why = format!("it is not done after {}", time(now));
                self.help(&mut time_remedies, &why, &job, state, kill).await;
                next_remedy_at = Some(now + self.settings.stall.unwrap_or(NEXT_REMEDY));
                stall.again(now);
            }
        }
    }

    /// Tries the next remedies until one could be applied.
    async fn help(
        &self,
        remedies: &mut impl Iterator<Item = Remedy>,
        why: &str,
        job: &Job,
        state: &Mutex<State>,
        kill: &CancellationToken,
    ) {
        for remedy in remedies {
            match self.remedy(remedy, why, job, state, kill).await {
                Ok(()) => return,
                Err(reason) => self.voice.warning(&format!("{why}, but {reason}")),
            }
        }
    }

    async fn remedy(
        &self,
        remedy: Remedy,
        why: &str,
        job: &Job,
        state: &Mutex<State>,
        kill: &CancellationToken,
    ) -> Result<(), String> {
        match remedy {
            Remedy::Slow if self.settings.converges().is_none() => {
                return Err("QEMU can't slow the guest: it was not started with auto-converge".to_owned());
            }
            Remedy::Slow => {
                let now = job.throttle;
                self.voice.info(&format!("{why}; QEMU slows the guest more and more (now by {now} %)"));
            }
            Remedy::PostCopy if !self.postcopy => return Err("post-copy is not possible".to_owned()),
            Remedy::PostCopy if job.disk_remaining > 0 && job.iteration == 0 => {
                return Err("post-copy is not possible while disks are copied".to_owned());
            }
            Remedy::PostCopy => {
                self.source.call(["migrate-postcopy", self.uuid]).await?;
                lock(state).split = true;
                self.voice.info(&format!(
                    "{why}; the guest goes on at the target and fetches what is missing (post-copy)"
                ));
            }
            Remedy::Suspend => {
                self.source.call(["suspend", self.uuid]).await?;
                self.voice.info(&format!("{why}; the guest stands still until all of its memory is there"));
            }
            Remedy::Abort => self.give_up(why, state, kill).await,
        }
        Ok(())
    }

    /// Aborts the job and waits for the end of virsh, which ends this: so it never returns.
    async fn give_up(&self, why: &str, state: &Mutex<State>, kill: &CancellationToken) {
        lock(state).given_up.get_or_insert_with(|| why.to_owned());
        self.voice.info(&format!("the migration is aborted: {why}"));
        let begin = Instant::now();
        loop {
            let hurried = self.term.is_cancelled();
            let limit = if hurried { ABORTING_HURRIED } else { ABORTING };
            if begin.elapsed() >= limit {
                kill.cancel();
                return std::future::pending().await;
            }
            let source = self.source.hurried(if hurried { super::truth::HURRIED } else { LOOK_LIMIT });
            // It fails when there is nothing to abort any more, or not yet: then it is tried again until virsh ends.
            let _ = source.call(["domjobabort", self.uuid]).await;
            sleep(LOOK / 2).await;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What virsh said, in one line.
fn reason(stderr: &[u8], end: End) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines =
        text.lines().map(|line| line.trim().trim_start_matches("error: ")).filter(|line| !line.is_empty());
    let said = lines.collect::<Vec<_>>().join("; ");
    match end {
        _ if !said.is_empty() => said,
        End::Exited(status) => format!("virsh migrate failed with status {status}"),
        End::Signaled(signal) => format!("virsh migrate died by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "19062f04-b7aa-4e3e-8fcd-de3db72803d6";

    fn settings(all: &'static [(&str, &str)]) -> Settings {
        let look = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Settings::read(&look, &|_| None).0
    }

    fn words(all: &'static [(&str, &str)], postcopy: bool) -> String {
        let args = arguments(&settings(all), UUID, "qemu+tcp://b/system", Some("tcp://b-mig"), postcopy, &[]);
        args[5..].join(" ")
    }

    #[test]
    fn settings_become_options() {
        assert_eq!(
            words(&[], false),
            "--live --migrateuri tcp://b-mig --auto-converge",
            "slowing the guest is the first remedy by default, and must be prepared"
        );
        let all = &[
            ("MIGRATE_AUTO_CONVERGE", "30,5"),
            ("MIGRATE_COMPRESSED", "YES"),
            ("MIGRATE_PARALLEL", "4"),
            ("MIGRATE_BANDWIDTH", "100"),
            ("MIGRATE_TLS", "yes"),
        ];
        assert_eq!(
            words(all, true),
            "--live --migrateuri tcp://b-mig --auto-converge --auto-converge-initial 30 --auto-converge-increment 5 \
             --compressed --parallel --parallel-connections 4 --bandwidth 100 --tls --postcopy"
        );
    }

    #[test]
    fn nothing_that_migrate_options_says_is_said_twice() {
        let all = &[
            ("MIGRATE_OPTIONS", "--unsafe --bandwidth=7 --auto-converge --migrateuri 'tcp://x'"),
            ("MIGRATE_BANDWIDTH", "100"),
        ];
        assert_eq!(words(all, false), "--live --unsafe --bandwidth=7 --auto-converge --migrateuri tcp://x");
    }

    #[test]
    fn options_of_the_storage_are_not_said_twice_either() {
        let all = &[("MIGRATE_OPTIONS", "--persistent --copy-storage-all --xml=mine --auto-converge")];
        let more = ["--persistent", "--copy-storage-all", "--xml", "/x", "--migrate-disks", "vda"]
            .map(str::to_owned);
        let args = arguments(&settings(all), UUID, "qemu+tcp://b/system", None, false, &more);
        assert_eq!(
            args[5..].join(" "),
            "--live --migrate-disks vda --persistent --copy-storage-all --xml=mine --auto-converge"
        );
    }

    #[test]
    fn the_reason_is_what_virsh_said() {
        assert_eq!(reason(b"error: a\nerror: b\n\n", End::Exited(1)), "a; b");
        assert_eq!(reason(b"", End::Exited(1)), "virsh migrate failed with status 1");
        assert_eq!(reason(b"\n", End::Signaled(9)), "virsh migrate died by signal 9");
    }
}
