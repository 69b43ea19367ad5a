//! One round of probes in the formats of OpenNebula 3.8 to 5.10, from the same collectors.

use std::path::PathBuf;
use std::time::Duration;

use super::agent::{About, Agent};
use super::collect::cpu::{self, Times};
use super::collect::{datastores, memory, net, system};
use super::config::Config;
use super::domstats::Domain;
use super::processes::{Emulators, Usage};
use super::setup::{self, Sources};
use super::state::vm_id;
use super::text::{line, number, quoted};
use super::wild::{is_wild, template_of};

/// Names of OpenNebula's own probes of these versions, which the round replaces.
const NATIVE: [&str; 9] = [
    "architecture.sh",
    "collectd-client-shepherd.sh",
    "cpu.sh",
    "kvm.rb",
    "monitor_ds.sh",
    "name.sh",
    "poll.sh",
    "version.sh",
    "linux.rb",
];

/// Version of OpenNebula, as far as formats differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

/// Where an agent of 4.4 to 5.10 sends to, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Push {
    /// Port of collectd.
    pub port: u16,
    /// Seconds between two rounds.
    pub period: u64,
}

/// What run_probes was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which host.
    pub about: About,
    /// The datastore location (4.4 and later).
    pub datastores: Option<String>,
    /// The agent to start (4.4 and later).
    pub push: Option<Push>,
    /// The word was `kvm-probes`: a round without an agent.
    pub round_only: bool,
}

impl Wanted {
    /// Reads the words of run_probes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(words: &[String], remotes: String) -> Result<Self, String> {
        let (hypervisor, datastores, push, id, name) = match words {
            [hypervisor, id, name] => (hypervisor, None, None, id, name),
            [hypervisor, datastores, port, period, id, name] => {
                let wrong = |what: &str, text: &str| format!("{text:?} is no {what}");
                let port = port.parse().map_err(|_| wrong("port", port))?;
                let period = period.parse().ok().filter(|s| *s > 0).ok_or_else(|| wrong("period", period))?;
                (hypervisor, Some(datastores.clone()), Some(Push { port, period }), id, name)
            }
            other => return Err(format!("{} words; 3 or 6 are expected", other.len())),
        };
        let id = id.parse().map_err(|_| format!("{id:?} is no id of a host"))?;
        let word = hypervisor.strip_suffix("-probes");
        let round_only = word.is_some();
        let hypervisor = word.unwrap_or(hypervisor).to_owned();
        let about = About { hypervisor, id, name: name.clone(), remotes };
        Ok(Self { about, datastores, push, round_only })
    }
}

impl Version {
    /// The version that formats follow: of the setting, else of the file VERSION of the remotes, else 4.2 for the
    /// short form of the request and 4.4 for the long one.
    #[must_use]
    pub fn of(agent: &Agent, long_form: bool) -> Self {
        let told = match agent.limits.pull_version.trim() {
            "" | "auto" => system::version(&agent.root, &agent.about.remotes),
            version => Some(version.to_owned()),
        };
        let standard = if long_form { Self(4, 4) } else { Self(4, 2) };
        told.and_then(|text| Self::read(&text)).unwrap_or(standard)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.').map(str::parse);
        Some(Self(parts.next()?.ok()?, parts.next()?.ok()?))
    }
}

/// The agent's parts that a round uses.
///
/// # Errors
/// What keeps it from working.
pub async fn agent(wanted: &Wanted, sources: Sources) -> Result<Agent, String> {
    let mut config = Config::read(b"<MONITOR_CONFIGURATION/>").map_err(|error| error.to_string())?;
    if let Some(folder) = &wanted.datastores {
        config.datastores.clone_from(folder);
    }
    if let Some(push) = wanted.push {
        config.port = push.port;
    }
    setup::agent(wanted.about.clone(), config, sources).await
}

/// One round, printed by run_probes.
///
/// # Errors
/// Why libvirt told nothing.
pub async fn once(wanted: &Wanted) -> Result<String, String> {
    let agent = agent(wanted, Sources { sends: false, ..Sources::of_this_process() }).await?;
    let version = Version::of(&agent, wanted.datastores.is_some());
    round(&agent, version, wanted.datastores.is_some()).await
}

/// One round of all probes. CPU shares are over one second.
///
/// # Errors
/// Why libvirt told nothing: then the host counts as failed, as ever.
pub async fn round(agent: &Agent, version: Version, long_form: bool) -> Result<String, String> {
    let before = Times::read(&agent.root).unwrap_or_default();
    let domains = agent
        .virsh
        .statistics_of("--state --interface --block --balloon", agent.limits.libvirt_timeout)
        .await?;
    let uuids: Vec<String> = domains.iter().map(|(uuid, _)| uuid.clone()).collect();
    let mut emulators = Emulators::default();
    emulators.usage(&agent.root, &uuids);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let usage = emulators.usage(&agent.root, &uuids);
    let mut text = format!("ARCH={}\n", agent.names.machine);
    if let Some(model) = cpu::model(&agent.root) {
        // 3.8 takes every comma for the end of an attribute.
        line(&mut text, "MODELNAME", &if version < Version(4, 0) { model.replace(',', " ") } else { model });
    }
    host(agent, version, before, &mut text);
    if long_form {
        let (limit, location) = (agent.limits.datastore_timeout, &agent.config.datastores);
        let complain = |fault| agent.fault(fault);
        datastores::attributes(&agent.root, location, &agent.asker, limit, &mut text, complain).await;
        text.push_str(&agent.transfer.disk_sizes(&agent.root, |fault| agent.fault(fault)).await);
    }
    text.push_str(&format!("HOSTNAME={}\n", agent.names.node));
    if version >= Version(4, 0) {
        text.push_str("VM_POLL=YES\n");
        for (uuid, domain) in &domains {
            text.push_str(&vm(agent, version, uuid, domain, usage.get(uuid)).await);
        }
    }
    if let Some(told) = system::version(&agent.root, &agent.about.remotes).filter(|_| long_form) {
        line(&mut text, "VERSION", &told);
    }
    text.push_str(&own_probes(agent, long_form).await);
    Ok(if version < Version(4, 0) {
        text.split('\n').collect::<Vec<_>>().join(" ").trim().to_owned()
    } else {
        text
    })
}

fn host(agent: &Agent, version: Version, before: Times, text: &mut String) {
    let count = cpu::count(&agent.root);
    let used = memory::Memory::read(&agent.root);
    let times = Times::read(&agent.root).unwrap_or_default();
    let (free, busy) = times.usage_since(before, count);
    let (received, sent) = net::traffic(&agent.root).unwrap_or_default();
    text.push_str("HYPERVISOR=kvm\n");
    number(text, "TOTALCPU", count * 100);
    number(text, "CPUSPEED", cpu::speed(&agent.root));
    number(text, "TOTALMEMORY", used.total);
    number(text, "USEDMEMORY", used.used);
    number(text, "FREEMEMORY", used.free);
    if version < Version(4, 14) {
        text.push_str(&format!("FREECPU={free}.0\nUSEDCPU={busy}.0\n"));
    } else {
        text.push_str(&format!("FREECPU={free}\nUSEDCPU={busy}\n"));
    }
    number(text, "NETRX", received);
    number(text, "NETTX", sent);
}

async fn vm(agent: &Agent, version: Version, uuid: &str, domain: &Domain, usage: Option<&Usage>) -> String {
    let wild = is_wild(&domain.name);
    let id = vm_id(&domain.name).unwrap_or(-1);
    let mut poll = format!("STATE={}", state(version, domain));
    let (cpu_name, memory_name) =
        if version < Version(4, 14) { ("USEDCPU", "USEDMEMORY") } else { ("CPU", "MEMORY") };
    if let Some(usage) = usage {
        if let Some(cpu) = usage.cpu {
            poll.push_str(&format!(" {cpu_name}={cpu:.1}"));
        }
        let least = if version < Version(5, 10) { domain.max_memory } else { 0 };
        poll.push_str(&format!(" {memory_name}={}", usage.memory.max(least)));
    }
    if domain.has_net {
        poll.push_str(&format!(" NETRX={} NETTX={}", domain.net_rx, domain.net_tx));
    }
    if version >= Version(5, 10) {
        poll.push_str(&format!(
            " DISKRDBYTES={} DISKWRBYTES={} DISKRDIOPS={} DISKWRIOPS={}",
            domain.read_bytes, domain.write_bytes, domain.reads, domain.writes
        ));
    }
    if version < Version(4, 2) && !wild {
        poll.push_str(&format!(" NAME={}", domain.name));
    }
    let deploy = if !wild {
        domain.name.clone()
    } else if version < Version(4, 14) {
        quoted(&domain.name)
    } else {
        let xml = agent.virsh.xml(&[uuid.to_owned()]).await.unwrap_or_default();
        let template = xml.first().and_then(|(_, xml)| template_of(xml));
        let Some(template) = template else { return String::new() };
        format!("{uuid},\n  VM_NAME={},\n  IMPORT_TEMPLATE=\"{template}\"", quoted(&domain.name))
    };
    format!("VM=[\n  ID={id},\n  DEPLOY_ID={deploy},\n  POLL=\"{poll}\" ]\n")
}

/// The letter of a state: `a` active, `e` failed, `d` gone, `-` nothing to tell.
fn state(version: Version, domain: &Domain) -> char {
    let late = version >= Version(5, 10);
    match (domain.state, domain.reason.unwrap_or(0)) {
        (Some(1 | 2), _) => 'a',
        (Some(4), _) if late => 'a',
        // unknown, user, storage error, watchdog, crashed, post-copy failed
        (Some(3), 0 | 1 | 5 | 6 | 10 | 13) if late => 'e',
        (Some(3), _) if version < Version(4, 10) => 'd',
        (Some(3), _) => 'a',
        (Some(6), _) => 'e',
        (Some(7), _) if late => 'e',
        _ => '-',
    }
}

/// Executables of an admin: in `kvm.d` up to 4.2, in `kvm-probes.d` itself from 4.4.
async fn own_probes(agent: &Agent, long_form: bool) -> String {
    let folder: &PathBuf = if long_form { &agent.probes.folder } else { &agent.probes.dir };
    let probes = super::probes::Probes { folder: folder.clone(), ..agent.probes.clone() };
    let mut files = probes.list("", true);
    files.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let leftover =
            [".rpmnew", ".rpmsave"].iter().any(|end| name.ends_with(end)) || name.contains(".dpkg-");
        !NATIVE.contains(&name) && !name.ends_with("_control.sh") && !leftover
    });
    probes.run_files(files, |name, fault| agent.fault(format!("{name}: {fault}"))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &str) -> Result<Wanted, String> {
        Wanted::read(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), "/r".into())
    }

    #[test]
    fn the_words_of_both_eras_are_read() {
        let short = wanted("kvm 3 node3").expect("good");
        assert_eq!((short.about.id, short.push, short.round_only), (3, None, false));
        let long = wanted("kvm /var/lib/one/datastores 4124 20 3 node3").expect("good");
        assert_eq!(
            (long.push, long.datastores.as_deref()),
            (Some(Push { port: 4124, period: 20 }), Some("/var/lib/one/datastores"))
        );
        let only = wanted("kvm-probes /d 4124 20 3 node3").expect("good");
        assert_eq!((only.about.hypervisor.as_str(), only.round_only), ("kvm", true));
        assert!(
            wanted("kvm").is_err() && wanted("kvm x y").is_err() && wanted("kvm /d 99999 20 3 n").is_err()
        );
    }

    #[test]
    fn states_are_letters_that_changed_with_the_versions() {
        let letter = |version, state, reason| {
            let domain = Domain { state: Some(state), reason: Some(reason), ..Domain::default() };
            super::state(version, &domain)
        };
        let (old, middle, late) = (Version(4, 2), Version(4, 14), Version(5, 10));
        for (numbers, expected) in [
            ((1, 1), "aaa"),
            ((3, 1), "dae"),
            ((3, 2), "daa"),
            ((3, 5), "dae"),
            ((6, 0), "eee"),
            ((7, 0), "--e"),
            ((4, 1), "--a"),
        ] {
            let told: String = [old, middle, late].iter().map(|v| letter(*v, numbers.0, numbers.1)).collect();
            assert_eq!(told, expected, "{numbers:?}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(Version::read("4.14.2\n"), Some(Version(4, 14)));
        assert_eq!(Version::read("x"), None);
        assert!(Version(3, 8) < Version(4, 0) && Version(4, 4) < Version(4, 14));
    }
}
