//! The subcommands around monitoring. Exit status: 0 fine, 1 not possible (the reason on stderr), 2 usage.

use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::agent::About;
use super::{look, pull, push, run, setup, start};

/// Arguments of `kvmad-node monitor`.
#[derive(Debug, Args)]
pub struct MonitorArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start the agent: the configuration on stdin, its first reply on stdout. One that runs is ended first
    Start(Host),
    /// End the agent
    Stop(Host),
    /// Be the agent
    #[command(hide = true)]
    Agent(AgentArgs),
    /// One round of probes for OpenNebula up to 5.10: the words of run_probes. With port and period an agent is started too
    Probes(Words),
    /// Be the agent of OpenNebula 4.4 to 5.10
    #[command(hide = true)]
    Push(PushArgs),
}

/// Words of run_probes.
#[derive(Debug, Args)]
struct Words {
    /// Folder of the remotes; found from the place of this program when it is not given
    #[arg(long)]
    remotes: Option<PathBuf>,
    /// HYPERVISOR HOSTID HOST, or HYPERVISOR DATASTORES PORT PERIOD HOSTID HOST
    #[arg(required = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

#[derive(Debug, Args)]
struct PushArgs {
    #[command(flatten)]
    host: AgentArgs,
    #[arg(long)]
    datastores: String,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    period: u64,
}

/// Words of the control script.
#[derive(Debug, Args)]
struct Host {
    /// kvm or qemu
    hypervisor: String,
    /// Id of the host
    #[arg(allow_negative_numbers = true)]
    host_id: i64,
    /// Name of the host
    #[arg(allow_hyphen_values = true)]
    host: String,
    /// Folder of the remotes; found from the place of this program when it is not given
    #[arg(long)]
    remotes: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct AgentArgs {
    #[arg(long)]
    hypervisor: String,
    #[arg(long, allow_negative_numbers = true)]
    host_id: i64,
    #[arg(long, allow_hyphen_values = true)]
    host: String,
    #[arg(long)]
    remotes: String,
    #[arg(long)]
    again: bool,
}

/// Arguments of `kvmad-node status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Only the agent of this host
    #[arg(long)]
    host_id: Option<i64>,
}

/// Arguments of `kvmad-node metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Only the agent of this host
    #[arg(long)]
    host_id: Option<i64>,
}

/// Arguments of `kvmad-node look`.
#[derive(Debug, Args)]
pub struct LookArgs {
    /// Folder of the remotes; found from the place of this program when it is not given
    #[arg(long)]
    remotes: Option<PathBuf>,
    /// Milliseconds over which the share of CPU is measured
    #[arg(long, default_value_t = 1000)]
    span: u64,
}

/// Runs `kvmad-node monitor`.
#[must_use]
pub fn monitor(args: MonitorArgs) -> ExitCode {
    match args.what {
        What::Start(host) => done(in_runtime(begin(host))),
        What::Stop(host) => done(start::stop(host.host_id)),
        What::Agent(args) => done(in_runtime(be_agent(args))),
        What::Probes(words) => done(in_runtime(probes(words))),
        What::Push(args) => done(in_runtime(be_pusher(args))),
    }
}

fn remotes(given: Option<PathBuf>) -> String {
    let folder = given.or_else(setup::remotes_of_program);
    folder.unwrap_or_else(|| PathBuf::from("/var/tmp/one")).to_string_lossy().into_owned()
}

async fn begin(host: Host) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
    if host.hypervisor.is_empty() || !host.hypervisor.bytes().all(plain) {
        return Err(format!("{:?} is no name of a hypervisor", host.hypervisor));
    }
    let program = std::env::current_exe().map_err(|error| format!("the program's own file: {error}"))?;
    let about = About {
        hypervisor: host.hypervisor,
        id: host.host_id,
        name: host.host,
        remotes: remotes(host.remotes),
    };
    start::start(&about, program).await
}

async fn be_agent(args: AgentArgs) -> Result<(), String> {
    log_to_journal();
    let config = if args.again { start::kept_config(args.host_id)? } else { start::read_config()?.0 };
    let about =
        About { hypervisor: args.hypervisor, id: args.host_id, name: args.host, remotes: args.remotes };
    run::run(run::Begin { about, again: args.again, program: std::env::current_exe().ok() }, config).await
}

async fn probes(words: Words) -> Result<(), String> {
    let wanted = pull::Wanted::read(&words.words, remotes(words.remotes))?;
    if let Some(push) = wanted.push.filter(|_| !wanted.round_only) {
        let program = std::env::current_exe().map_err(|error| format!("the program's own file: {error}"))?;
        push::start(&wanted, push, &program).await?;
    }
    let text = pull::once(&wanted).await?;
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

async fn be_pusher(args: PushArgs) -> Result<(), String> {
    log_to_journal();
    let AgentArgs { hypervisor, host_id, host, remotes, .. } = args.host;
    let about = About { hypervisor, id: host_id, name: host, remotes };
    let push = pull::Push { port: args.port, period: args.period };
    let wanted =
        pull::Wanted { about, datastores: Some(args.datastores), push: Some(push), round_only: false };
    push::run(wanted, push).await
}

/// Warnings go to the host's journal when there is one; `kvmad-node status` has them always.
fn log_to_journal() {
    use tracing_subscriber::layer::SubscriberExt as _;
    if let Ok(journal) = tracing_journald::layer() {
        let subscriber = tracing_subscriber::registry().with(journal);
        // Somebody else has set one: then it gets the warnings.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
}

fn in_runtime(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let result = runtime.block_on(work);
    // Threads that wait for a hung file system are left behind.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let line = format!("{}\n", reason.replace('\n', "; "));
            let _ = std::io::stderr().write_all(line.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Runs `kvmad-node status`.
#[must_use]
pub fn status(args: &StatusArgs) -> ExitCode {
    answers(args.host_id, "status")
}

/// Runs `kvmad-node metrics`.
#[must_use]
pub fn metrics(args: &MetricsArgs) -> ExitCode {
    answers(args.host_id, "metrics")
}

fn answers(host: Option<i64>, what: &str) -> ExitCode {
    let hosts = host.map_or_else(start::known_hosts, |id| vec![id]);
    if hosts.is_empty() {
        return done(Err("no agent has run on this machine for this user".to_owned()));
    }
    let mut result = Ok(());
    for id in hosts {
        let told = start::ask_agent(id, what)
            .and_then(|text| std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()));
        if let Err(reason) = told {
            let _ = std::io::stderr().write_all(format!("{reason}\n").as_bytes());
            result = Err(());
        }
    }
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs `kvmad-node look`.
#[must_use]
pub fn look(args: LookArgs) -> ExitCode {
    let span = Duration::from_millis(args.span.min(60_000));
    done(in_runtime(async move {
        let look = look::look(remotes(args.remotes), span).await?;
        let text = serde_json::to_string(&look).map_err(|error| error.to_string())?;
        std::io::stdout().write_all(format!("{text}\n").as_bytes()).map_err(|error| error.to_string())
    }))
}
