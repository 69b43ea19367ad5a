//! The agent's process: first reply, loops, signals, renewal.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::agent::{About, Agent, Shared};
use super::collect::cpu::Times;
use super::config::Config;
use super::gather::{self, SystemMemory};
use super::message::{Kind, first_reply};
use super::setup::{self, Sources};
use super::single::Lock;
use super::store::{Files, replace};
use super::vm::{self, VmMemory};
use super::watch::Watcher;
use super::{events, exec, files, groups, serving};
use crate::host::process::Start;
use crate::node::root::Root;

/// Pause before an agent starts anew because a part of it failed.
const BETWEEN_FAILURES: Duration = Duration::from_secs(5);

/// How an agent starts.
#[derive(Debug, Clone)]
pub struct Begin {
    /// Which host.
    pub about: About,
    /// It takes the place of itself after the program was replaced: no first reply.
    pub again: bool,
    /// The program file, watched for its replacement.
    pub program: Option<PathBuf>,
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// What keeps it from starting, in one line for people.
pub async fn run(begin: Begin, config: Config) -> Result<(), String> {
    // Fails only in a leader of a group, which has what it needs.
    let _ = rustix::process::setsid();
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut int = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let _hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    let usr1 = signal(SignalKind::user_defined1()).map_err(|error| error.to_string())?;
    let id = begin.about.id;
    let files = Files::of(&Root::system(), id);
    let lock = Lock::take(&files, id).map_err(|error| error.to_string())?;
    tokio::select! {
        result = live(begin, config, usr1, lock) => result,
        _ = term.recv() => Err("it was told to end".to_owned()),
        _ = int.recv() => Err("it was interrupted".to_owned()),
    }
}

async fn live(
    begin: Begin,
    config: Config,
    usr1: tokio::signal::unix::Signal,
    lock: Lock,
) -> Result<(), String> {
    // Taken before the first reply is out: who replaces the program after it must be seen.
    let program = begin.program.clone().and_then(|program| Some((identity(&program)?, program)));
    let agent = Arc::new(setup::agent(begin.about.clone(), config, Sources::of_this_process()).await?);
    let (tell, news) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(events::follow(agent.virsh.uri().to_owned(), tell));
    let mut parts = Parts::new(&agent, Watcher::new(Arc::clone(&agent), news));
    match parts.first_round(&agent).await {
        Ok(reply) if !begin.again => print_and_let_go(&reply)?,
        // What the first round found is told as any other round.
        Ok(_) => agent.system_now.notify_one(),
        // The host is watched already: it is in trouble, and says so until libvirt answers.
        Err(reason) if begin.again => agent.fault(reason),
        Err(reason) => return Err(reason),
    }
    files::write(&agent);
    save_config(&agent);
    parts.spawn(&agent, &mut tasks);
    tasks.spawn(serving::socket(Arc::clone(&agent)));
    tasks.spawn(serving::metrics(Arc::clone(&agent)));
    tasks.spawn(on_usr1(Arc::clone(&agent), usr1));
    let replaced = replaced(program);
    tokio::select! {
        ended = tasks.join_next() => {
            let what = match ended {
                Some(Err(error)) if error.is_panic() => "a part of the agent failed",
                _ => "a part of the agent ended",
            };
            let _ = agent.send(Kind::Beacon, false, what).await;
            // Whatever made it fail may still be there.
            tokio::time::sleep(BETWEEN_FAILURES).await;
            renew(&begin, tasks, lock).await
        }
        () = replaced => renew(&begin, tasks, lock).await,
    }
}

/// Starts the program again in this process. Its children are ended first.
async fn renew(begin: &Begin, mut tasks: JoinSet<()>, lock: Lock) -> Result<(), String> {
    tasks.shutdown().await;
    drop(lock);
    let program = begin.program.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let about = &begin.about;
    let error = Start::new(&program)
        .args(["monitor", "agent", "--hypervisor", &about.hypervisor, "--host-id", &about.id.to_string()])
        .args(["--host", &about.name, "--remotes", &about.remotes, "--again"])
        .exec();
    Err(error.to_string())
}

/// What the loops begin with.
struct Parts {
    watcher: Watcher,
    system: SystemMemory,
    vms: VmMemory,
    times: Times,
}

impl Parts {
    fn new(agent: &Shared, watcher: Watcher) -> Self {
        let times = Times::read(&agent.root).unwrap_or_default();
        Self { watcher, system: SystemMemory::default(), vms: VmMemory::default(), times }
    }

    /// One round of all groups: the reply to START. The states come first, because without libvirt there is no start.
    async fn first_round(&mut self, agent: &Shared) -> Result<String, String> {
        let states = self.watcher.first_text().await;
        let states = states.map_err(|reason| format!("libvirt can't be used on this host: {reason}"))?;
        let (system, round, results) = tokio::join!(
            gather::system(agent, &mut self.system),
            vm::round(agent, &mut self.vms),
            exec::collect(&agent.root, &agent.virsh, agent.limits.guest_timeout),
        );
        // A share of CPU needs some time between two looks.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let host = gather::host(agent, &mut self.times).await;
        let blocks = match round {
            Ok(round) => round.blocks.concat(),
            Err(reason) => {
                agent.fault(format!("no statistics of VMs: {reason}"));
                String::new()
            }
        };
        let vms = format!("{blocks}{}", gather::disks(agent, false).await);
        let parts = [
            (Kind::System, system),
            (Kind::Host, host),
            (Kind::State, states),
            (Kind::Exec, results.text.clone()),
            (Kind::Vm, vms),
        ];
        let epoch = agent.epoch();
        agent.keep(|kept| kept.epoch = epoch);
        results.told();
        Ok(first_reply(&parts, epoch))
    }

    fn spawn(self, agent: &Shared, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.watcher.run());
        tasks.spawn(groups::beacon(Arc::clone(agent)));
        tasks.spawn(groups::system(Arc::clone(agent), self.system));
        tasks.spawn(groups::host(Arc::clone(agent), self.times));
        tasks.spawn(groups::vms(Arc::clone(agent), self.vms));
        tasks.spawn(groups::exec(Arc::clone(agent)));
        tasks.spawn(groups::status_probes(Arc::clone(agent)));
        tasks.spawn(groups::snapshots(Arc::clone(agent)));
    }
}

/// Prints the first reply and lets go of the pipes: whoever waits for their end goes on.
fn print_and_let_go(reply: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(reply.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| format!("the first reply was not taken: {error}"))?;
    let failed = |error: rustix::io::Errno| format!("/dev/null: {error}");
    let null =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(failed)?;
    rustix::stdio::dup2_stderr(&null).map_err(failed)?;
    Ok(())
}

/// For the agent's renewal.
fn save_config(agent: &Agent) {
    if let Err(error) = replace(&agent.files.path("config"), agent.config.document.as_bytes(), 0o600) {
        agent.fault(format!("the configuration can't be kept: {error}"));
    }
}

async fn on_usr1(agent: Shared, mut usr1: tokio::signal::unix::Signal) {
    while usr1.recv().await.is_some() {
        agent.system_now.notify_one();
    }
    std::future::pending().await
}

/// What tells one program file from another: device, file number, time of change in seconds.
type Identity = (u64, u64, i64);

fn identity(program: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(program).ok().map(|meta| (meta.dev(), meta.ino(), meta.mtime()))
}

/// Returns when the program file is no longer the one with this identity; never without one.
async fn replaced(program: Option<(Identity, PathBuf)>) {
    let Some((first, program)) = program else { return std::future::pending().await };
    let mut candidate = None;
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        // Twice the same, so that a copy in progress is not taken.
        let now = identity(&program).filter(|now| *now != first);
        if now.is_some() && now == candidate {
            return;
        }
        candidate = now;
    }
}
