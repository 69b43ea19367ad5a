//! The texts of the groups: what SYSTEM_HOST, MONITOR_HOST, EXEC_VM and the snapshot group tell.

use std::time::Duration;

use super::agent::{Agent, Shared};
use super::collect::{cpu, datastores, memory, net, numa, pci, system};
use super::text::{line, names, number};
use super::{capabilities, wild};
use crate::node::check;

/// Attributes that may stand many times; their absence is told by the receiver's own rules.
const LISTS: [&str; 6] = ["PCI", "DS", "VM", "CORE", "HUGEPAGE", "MEMORY_NODE"];

/// What the system group remembers.
#[derive(Debug, Default)]
pub struct SystemMemory {
    capabilities: String,
}

/// Text of SYSTEM_HOST.
pub async fn system(agent: &Agent, remembered: &mut SystemMemory) -> String {
    let mut text = String::new();
    let mut faults: Vec<String> = Vec::new();
    let limits = &agent.limits;
    system::attributes(&agent.root, &agent.names, &agent.about.remotes, &mut text);
    let mut told = String::new();
    capabilities::attributes(&agent.virsh, limits.capabilities_timeout, &mut told, |f| faults.push(f)).await;
    if !told.is_empty() {
        remembered.capabilities = told;
    }
    text.push_str(&remembered.capabilities);
    let location = &agent.config.datastores;
    let sources = datastores::automounts(&agent.root, location);
    if !sources.is_empty() {
        line(&mut text, "AUTONFS_MOUNT", &sources.join(","));
    }
    let limit = limits.datastore_timeout;
    datastores::attributes(&agent.root, location, &agent.asker, limit, &mut text, |f| faults.push(f)).await;
    numa::shape(&agent.root, &mut text);
    let devices = agent.pci.as_ref().map_err(Clone::clone);
    if let Err(fault) = devices.and_then(|filter| pci::attributes(&agent.root, filter, &mut text)) {
        faults.push(fault);
    }
    wild_domains(agent, &mut text, &mut faults).await;
    let emulated = agent.about.hypervisor == "qemu";
    let findings = check::readiness(&agent.root, &agent.virsh, &agent.names.machine, emulated).await;
    check::attributes(&findings, &mut text);
    let mut bad_probes: Vec<String> = Vec::new();
    let probes =
        agent.probes.run("host/system", |name, fault| bad_probes.push(format!("{name}: {fault}"))).await;
    text.push_str(&probes);
    line(&mut text, "KVMAD_PROBE_ERRORS", &bad_probes.join("; "));
    faults.extend(bad_probes);
    let complete = faults.is_empty();
    faults.into_iter().for_each(|fault| agent.fault(fault));
    blanks(agent, &mut text, complete);
    agent.journal.host_numbers(&text);
    clean_old_databases(agent);
    text
}

async fn wild_domains(agent: &Agent, text: &mut String, faults: &mut Vec<String>) {
    match agent.virsh.look().await {
        Ok(sights) => {
            // Active: any state but "shut off".
            let active: Vec<(String, String)> = sights
                .into_iter()
                .filter(|sight| sight.state.is_none_or(|(state, _)| state != 5))
                .map(|sight| (sight.uuid, sight.name))
                .collect();
            wild::attributes(&agent.virsh, &active, text, |fault| faults.push(fault)).await;
        }
        Err(fault) => faults.push(fault),
    }
}

/// Attributes that were told before and are gone: sent empty, because the receiver merges. Only when nothing failed
/// in this round; what could not be read is not gone.
fn blanks(agent: &Agent, text: &mut String, complete: bool) {
    let now: Vec<String> = names(text).into_iter().filter(|name| !LISTS.contains(&name.as_str())).collect();
    let before = agent.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).attributes.clone();
    let gone: Vec<String> = before.into_iter().filter(|name| !now.contains(name)).collect();
    let mut kept_names = now;
    if complete {
        for name in &gone {
            line(text, name, "");
        }
    } else {
        kept_names.extend(gone);
    }
    if agent.sender.is_some() {
        agent.keep(|kept| kept.attributes = kept_names);
    }
}

/// Forecast databases that were not written for six weeks; they belong to VMs that are long gone.
fn clean_old_databases(agent: &Agent) {
    let folder = agent.root.path(super::store::SHARED_FOLDER);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_database = entry.path().extension().is_some_and(|end| end == "db");
        let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
        if is_database && age.is_some_and(|age| age > Duration::from_secs(6 * 7 * 24 * 3600)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Text of MONITOR_HOST. `before` is the last look at the CPU times; it is renewed.
pub async fn host(agent: &Agent, before: &mut cpu::Times) -> String {
    let mut text = String::from("HYPERVISOR=kvm\n");
    let used = memory::Memory::read(&agent.root);
    number(&mut text, "USEDMEMORY", used.used);
    number(&mut text, "FREEMEMORY", used.free);
    let times = cpu::Times::read(&agent.root).unwrap_or_default();
    let (free, busy) = times.usage_since(*before, cpu::count(&agent.root));
    *before = times;
    number(&mut text, "FREECPU", free);
    number(&mut text, "USEDCPU", busy);
    number(&mut text, "CPUSPEED", cpu::speed(&agent.root));
    let (received, sent) = net::traffic(&agent.root).unwrap_or_default();
    number(&mut text, "NETRX", received);
    number(&mut text, "NETTX", sent);
    numa::usage(&agent.root, &mut text);
    text.push_str(
        &agent.probes.run("host/monitor", |name, fault| agent.fault(format!("{name}: {fault}"))).await,
    );
    agent.journal.host_numbers(&text);
    text
}

/// What the executables of the beacon folder print; the time in front of it, so that it is never empty.
pub async fn beacon(agent: &Agent) -> String {
    let mut text = format!("{}\n", super::agent::clock());
    text.push_str(
        &agent.probes.run("host/beacon", |name, fault| agent.fault(format!("{name}: {fault}"))).await,
    );
    text
}

/// Blocks of the snapshot group and of the transfer drivers' disk sizes.
pub async fn disks(agent: &Shared, snapshots: bool) -> String {
    let probes = |group| agent.probes.run(group, |name, fault| agent.fault(format!("{name}: {fault}")));
    if snapshots {
        let mut text = agent.transfer.recovery(&agent.root).await;
        text.push_str(&probes("vm/snapshot").await);
        return text;
    }
    let mut text = agent.transfer.disk_sizes(&agent.root, |fault| agent.fault(fault)).await;
    text.push_str(&probes("vm/monitor").await);
    text
}
