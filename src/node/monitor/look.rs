//! One look at a host and its VMs, for people and for `kvmad monitor`: what an agent would tell, without sending it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agent::{About, Agent, clock};
use super::collect::cpu::Times;
use super::config::Config;
use super::gather;
use super::journal::VmFigures;
use super::setup::{self, Sources};
use super::vm::{self, VmMemory};
use crate::node::check::{Finding, readiness};

/// What a look shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Look {
    /// When, in seconds since 1970.
    pub at: u64,
    /// `uname -n`.
    pub host: String,
    /// Numbers of MONITOR_HOST and totals, by attribute.
    pub figures: BTreeMap<String, f64>,
    /// The active domains.
    pub vms: Vec<VmFigures>,
    /// Why libvirt told nothing, when it did not.
    pub trouble: Option<String>,
    /// Checks of the host that are not well, as `id: evidence`.
    pub findings: Vec<String>,
}

/// Looks at this host. CPU shares are over `span`.
///
/// # Errors
/// Why that is not possible (settings).
pub async fn look(remotes: String, span: Duration) -> Result<Look, String> {
    let config = Config::read(b"<MONITOR_CONFIGURATION/>").map_err(|error| error.to_string())?;
    let about = About { hypervisor: "kvm".into(), id: -1, name: String::new(), remotes };
    let agent = setup::agent(about, config, Sources { sends: false, ..Sources::of_this_process() }).await?;
    let agent = Arc::new(agent);
    let mut times = Times::read(&agent.root).unwrap_or_default();
    let mut memory = VmMemory::default();
    let mut trouble = vm::round(&agent, &mut memory).await.err();
    tokio::time::sleep(span).await;
    if trouble.is_none() {
        trouble = vm::round(&agent, &mut memory).await.err();
    }
    agent.journal.host_numbers(&gather::host(&agent, &mut times).await);
    totals(&agent);
    let checks = readiness(&agent.root, &agent.virsh, &agent.names.machine, false).await;
    let record = agent.journal.record().clone();
    Ok(Look {
        at: clock(),
        host: agent.names.node.clone(),
        figures: record.host,
        vms: record.vms,
        trouble,
        findings: checks.iter().filter(|f| !f.mend.is_empty()).map(told).collect(),
    })
}

fn told(finding: &Finding) -> String {
    format!("{}: {}", finding.id, finding.evidence)
}

fn totals(agent: &Agent) {
    let mut text = String::new();
    super::collect::system::attributes(&agent.root, &agent.names, &agent.about.remotes, &mut text);
    agent.journal.host_numbers(&text);
}
