//! Puts an agent together: settings, configuration files of the remotes, the receiver's address.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::agent::{About, Agent, clock};
use super::collect::datastores::Asker;
use super::collect::pci;
use super::collect::system::Names;
use super::config::Config;
use super::guest::GuestConfig;
use super::journal::Journal;
use super::key::PublicKey;
use super::probes::Probes;
use super::recovery::Transfer;
use super::send::{Sender, resolve};
use super::store::Files;
use super::virsh::Virsh;
use crate::node::root::Root;
use crate::node::tools::{Ask, Real, Tools};
use crate::settings::Settings;

/// The remotes' folder that this program lies in: `REMOTES/kvmad/ARCH/kvmad-node`.
#[must_use]
pub fn remotes_of_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?.parent()?;
    (folder.file_name()? == "kvmad").then(|| folder.parent().map(Path::to_owned))?
}

/// LIBVIRT_URI of kvmrc. That file is shell, so a shell reads it; `qemu:///system` when it says nothing.
pub async fn libvirt_uri(remotes: &str, tools: &dyn Tools) -> String {
    let standard = "qemu:///system".to_owned();
    let file = format!("{remotes}/etc/vmm/kvm/kvmrc");
    if !Path::new(&file).is_file() {
        return standard;
    }
    let limit = Duration::from_secs(5);
    let script = ". \"$1\" >/dev/null 2>&1; printf %s \"${LIBVIRT_URI:-}\"";
    let answer = tools.ask(Ask::new("bash", ["-c", script, "bash", &file], limit)).await;
    let told = answer.and_then(|answer| answer.good("kvmrc", limit)).unwrap_or_default();
    let told = told.trim();
    if told.is_empty() || told.starts_with('-') { standard } else { told.to_owned() }
}

/// Where an agent gets what it needs.
pub struct Sources {
    /// Where the system is read.
    pub root: Root,
    /// What starts programs.
    pub tools: Arc<dyn Tools>,
    /// SSH_CLIENT.
    pub ssh_client: Option<String>,
    /// Whether messages are to be sent (a look that is only printed sends none).
    pub sends: bool,
}

impl Sources {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let ssh_client = std::env::var("SSH_CLIENT").ok();
        Self { root: Root::system(), tools: Arc::new(Real::default()), ssh_client, sends: true }
    }
}

/// Makes the agent.
///
/// # Errors
/// What keeps it from working, for people: settings, key, address.
pub async fn agent(about: About, config: Config, sources: Sources) -> Result<Agent, String> {
    let Sources { root, tools, ssh_client, sends } = sources;
    let file = Path::new(&about.remotes).join("etc/kvmad.conf");
    let (settings, notices) =
        Settings::read(&file, std::env::vars_os()).map_err(|error| error.to_string())?;
    let limits = settings.agent;
    let key = PublicKey::read(&config.public_key).map_err(|error| error.to_string())?;
    let sender = if sends {
        let target = resolve(&config.address, config.port, ssh_client.as_deref(), &*tools).await?;
        let sender = Sender::new(target, key, limits.datagram_limit.0.min(65_507), limits.send_timeout).await;
        Some(sender.map_err(|error| format!("no socket for messages to {target}: {error}"))?)
    } else {
        None
    };
    let uri = libvirt_uri(&about.remotes, &*tools).await;
    let files = Files::of(&root, about.id);
    let probes = probes(&about, &config, &limits, &tools);
    let transfer = Transfer {
        tools: Arc::clone(&tools),
        remotes: about.remotes.clone(),
        location: config.datastores.clone(),
        limit: limits.probe_timeout,
        cap: limits.probe_output.0,
    };
    let conf = |name: &str| {
        let path = format!("{}/etc/im/{}-probes.d/{name}", about.remotes, about.hypervisor);
        root.read(path).unwrap_or_default()
    };
    let guest = GuestConfig::read(&conf("guestagent.conf"));
    let agent = Agent {
        names: Names::of_this_host(),
        virsh: Virsh::new(tools, &uri, limits.libvirt_timeout),
        probes,
        transfer,
        pci: pci::Filter::read(&conf("pci.conf")),
        guest: guest.clone().unwrap_or_default(),
        asker: Asker::default(),
        sender,
        journal: Journal::default(),
        kept: Mutex::new(files.load()),
        files,
        trouble: watch::channel(None).0,
        system_now: Notify::new(),
        look_now: Notify::new(),
        since: clock(),
        about,
        config,
        limits,
        root,
    };
    notices.into_iter().for_each(|notice| agent.fault(notice.0));
    if let Err(fault) = guest {
        agent.fault(fault);
    }
    if !agent.probes.has_folder() {
        agent.fault(format!("there is no probe folder {}", agent.probes.folder.display()));
    }
    Ok(agent)
}

fn probes(about: &About, config: &Config, limits: &crate::settings::Agent, tools: &Arc<dyn Tools>) -> Probes {
    let im = Path::new(&about.remotes).join("im");
    let forced = limits.run_probes.split(',').map(str::trim).filter(|name| !name.is_empty());
    Probes {
        tools: Arc::clone(tools),
        folder: im.join(format!("{}-probes.d", about.hypervisor)),
        dir: im.join(format!("{}.d", about.hypervisor)),
        words: [about.hypervisor.clone(), about.id.to_string(), about.name.clone()],
        stdin: Bytes::from(config.document.clone()),
        limit: limits.probe_timeout,
        cap: limits.probe_output.0,
        forced: forced.map(str::to_owned).collect(),
    }
}
