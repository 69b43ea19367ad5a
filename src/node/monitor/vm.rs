//! MONITOR_VM: what each VM uses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;

use super::agent::Agent;
use super::domstats::Domain;
use super::guest;
use super::journal::VmFigures;
use super::processes::{Emulators, Usage};
use super::state::{Seen, VmState, seen, vm_id};
use super::table::Sight;
use super::text::line;

/// What is remembered between two rounds.
#[derive(Default)]
pub struct VmMemory {
    emulators: Emulators,
    guests: Arc<Mutex<Guests>>,
    asking: Option<tokio::task::JoinHandle<()>>,
    keys: HashMap<String, BTreeSet<String>>,
}

/// What guest agents said last, by UUID.
#[derive(Default)]
struct Guests {
    values: HashMap<String, Vec<(String, String)>>,
    systems: HashMap<String, guest::System>,
    nvidia: HashMap<String, bool>,
}

/// One round.
#[derive(Debug, Default)]
pub struct VmRound {
    /// A block for each VM, to be sent together or apart.
    pub blocks: Vec<String>,
    /// The active domains.
    pub active: Vec<Sight>,
}

/// Looks at all active domains.
///
/// # Errors
/// Why libvirt told nothing.
pub async fn round(agent: &Arc<Agent>, memory: &mut VmMemory) -> Result<VmRound, String> {
    let domains = agent.virsh.statistics(agent.limits.libvirt_timeout / 3).await?;
    let uuids: Vec<String> = domains.iter().map(|(uuid, _)| uuid.clone()).collect();
    let usage = memory.emulators.usage(&agent.root, &uuids);
    memory.keys.retain(|uuid, _| uuids.contains(uuid));
    let told = guest_values(agent, memory, &domains);
    let mut round = VmRound::default();
    let mut figures = Vec::new();
    for (uuid, domain) in &domains {
        let mut pairs = pairs(domain, usage.get(uuid));
        figures.push(figures_of(domain, &pairs));
        pairs.extend(told.get(uuid).cloned().unwrap_or_default());
        let keys: BTreeSet<String> = pairs.iter().map(|(key, _)| key.clone()).collect();
        let before = memory.keys.insert(uuid.clone(), keys.clone()).unwrap_or_default();
        // The receiver merges over the record before: what is gone must be told as empty.
        pairs.extend(
            before.difference(&keys).filter(|key| !is_counter(key)).map(|key| (key.clone(), String::new())),
        );
        round.blocks.push(block(uuid, domain, &pairs));
        let state = domain.state.zip(domain.reason.or(Some(0)));
        round.active.push(Sight { name: domain.name.clone(), uuid: uuid.clone(), state });
    }
    agent.journal.record().vms = figures;
    Ok(round)
}

/// Figures that may be missing for a moment without being gone.
fn is_counter(key: &str) -> bool {
    key == "CPU" || key == "MEMORY" || key.starts_with("DISK") || key.starts_with("NET")
}

/// The figures of one domain as (key, value).
#[must_use]
pub fn pairs(domain: &Domain, usage: Option<&Usage>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |key: &str, value: String| all.push((key.to_owned(), value));
    if let Some(usage) = usage {
        if let Some(cpu) = usage.cpu {
            add("CPU", format!("{cpu:.2}"));
        }
        add("MEMORY", usage.memory.to_string());
    }
    // Counters of a domain that does not run are told as 0, as ever.
    let runs = matches!(domain.state, Some(1 | 2 | 4));
    let counter = |value: u64| if runs { value } else { 0 }.to_string();
    add("NETRX", counter(domain.net_rx));
    add("NETTX", counter(domain.net_tx));
    // A busy domain tells nothing about its disks: the figures before stay then.
    if domain.has_block || !runs {
        add("DISKRDBYTES", counter(domain.read_bytes));
        add("DISKWRBYTES", counter(domain.write_bytes));
        add("DISKRDIOPS", counter(domain.reads));
        add("DISKWRIOPS", counter(domain.writes));
    }
    all
}

fn block(uuid: &str, domain: &Domain, pairs: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        line(&mut text, key, value);
    }
    let id = vm_id(&domain.name).unwrap_or(-1);
    format!("VM = [ ID=\"{id}\", DEPLOY_ID=\"{uuid}\", MONITOR=\"{}\"]\n", STANDARD.encode(text))
}

fn figures_of(domain: &Domain, pairs: &[(String, String)]) -> VmFigures {
    let numbers: BTreeMap<String, f64> =
        pairs.iter().filter_map(|(key, value)| Some((key.clone(), value.parse().ok()?))).collect();
    let state = match domain.state.map(|state| seen(state, domain.reason.unwrap_or(0))) {
        Some(Seen::Active(state) | Seen::Doubtful(state)) => state.name(),
        Some(Seen::Migrating) => VmState::Running.name(),
        _ => VmState::Unknown.name(),
    };
    let id = vm_id(&domain.name).unwrap_or(-1);
    VmFigures { id, name: domain.name.clone(), state: state.to_owned(), numbers }
}

/// What guest agents said last; when no question is under way, the next is started. Nobody waits for it here.
fn guest_values(
    agent: &Arc<Agent>,
    memory: &mut VmMemory,
    domains: &[(String, Domain)],
) -> HashMap<String, Vec<(String, String)>> {
    if !agent.guest.enabled {
        let text = agent.guest.disabled();
        return domains.iter().map(|(uuid, _)| (uuid.clone(), text.clone())).collect();
    }
    if memory.asking.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
        let runs = |domain: &Domain| domain.state == Some(1);
        let uuids = domains.iter().filter(|(_, domain)| runs(domain)).map(|(uuid, _)| uuid.clone()).collect();
        memory.asking = Some(tokio::spawn(ask_guests(Arc::clone(agent), Arc::clone(&memory.guests), uuids)));
    }
    memory.guests.lock().unwrap_or_else(PoisonError::into_inner).values.clone()
}

async fn ask_guests(agent: Arc<Agent>, guests: Arc<Mutex<Guests>>, uuids: Vec<String>) {
    let workers = Arc::new(Semaphore::new(agent.limits.guest_workers.max(1)));
    let mut tasks = tokio::task::JoinSet::new();
    {
        let mut all = guests.lock().unwrap_or_else(PoisonError::into_inner);
        all.values.retain(|uuid, _| uuids.contains(uuid));
        all.systems.retain(|uuid, _| uuids.contains(uuid));
        all.nvidia.retain(|uuid, _| uuids.contains(uuid));
    }
    for uuid in uuids {
        let (agent, guests, workers) = (Arc::clone(&agent), Arc::clone(&guests), Arc::clone(&workers));
        tasks.spawn(async move {
            let Ok(_permit) = workers.acquire().await else { return };
            ask_guest(&agent, &guests, uuid).await;
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn ask_guest(agent: &Agent, guests: &Mutex<Guests>, uuid: String) {
    let all = || guests.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = agent.limits.guest_timeout;
    let mut system = all().systems.get(&uuid).cloned();
    let mut told = guest::ask(&agent.virsh, &agent.guest, &uuid, &mut system, limit).await;
    let known = all().nvidia.get(&uuid).copied();
    let nvidia = match known {
        Some(known) => known,
        None => {
            let xml = agent.virsh.xml(std::slice::from_ref(&uuid)).await.unwrap_or_default();
            xml.first().is_some_and(|(_, xml)| guest::has_nvidia(xml))
        }
    };
    if nvidia && system.is_some() {
        told.extend(guest::gpus(&agent.virsh, &uuid, limit).await);
    }
    let mut all = all();
    all.nvidia.insert(uuid.clone(), nvidia);
    if let Some(system) = system {
        all.systems.insert(uuid.clone(), system);
    }
    all.values.insert(uuid, told);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(domain: &Domain, usage: Option<&Usage>) -> String {
        pairs(domain, usage).into_iter().map(|(k, v)| format!("{k}={v} ")).collect()
    }

    #[test]
    fn a_running_vm_has_all_figures_and_a_paused_one_zeros() {
        let mut domain = Domain {
            name: "one-7".into(),
            state: Some(1),
            net_rx: 1,
            net_tx: 2,
            read_bytes: 3,
            write_bytes: 4,
            reads: 5,
            writes: 6,
            has_block: true,
            ..Domain::default()
        };
        let usage = Usage { cpu: Some(12.345), memory: 1024 };
        let all =
            "CPU=12.35 MEMORY=1024 NETRX=1 NETTX=2 DISKRDBYTES=3 DISKWRBYTES=4 DISKRDIOPS=5 DISKWRIOPS=6 ";
        assert_eq!(written(&domain, Some(&usage)), all);
        domain.state = Some(3);
        let none = "NETRX=0 NETTX=0 DISKRDBYTES=0 DISKWRBYTES=0 DISKRDIOPS=0 DISKWRIOPS=0 ";
        assert_eq!(written(&domain, None), none);
        // Busy: libvirt left its disks out.
        (domain.state, domain.has_block) = (Some(1), false);
        assert_eq!(written(&domain, None), "NETRX=1 NETTX=2 ");
    }

    #[test]
    fn a_block_carries_the_figures_packed() {
        let domain = Domain { name: "one-7".into(), ..Domain::default() };
        let text = block("u", &domain, &[("CPU".into(), "1.00".into()), ("OS_ID".into(), "a\"b".into())]);
        let packed = STANDARD.encode("CPU=\"1.00\"\nOS_ID=\"a\\\"b\"\n");
        assert_eq!(text, format!("VM = [ ID=\"7\", DEPLOY_ID=\"u\", MONITOR=\"{packed}\"]\n"));
    }
}
