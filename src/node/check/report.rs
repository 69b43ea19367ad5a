//! All checks of one host, and what `kvmad-node check` prints of them.

use serde::{Deserialize, Serialize};

use super::host::Host;
use super::{
    Finding, Group, account_checks, agents, kvm, network, policy, qemu_conf, session, storage, transport,
};

/// What a host tells of itself for comparisons with others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -n`.
    pub node: String,
    /// The host's UUID as libvirt knows it; migration refuses two hosts with one.
    pub uuid: Option<String>,
    /// The clock when the checks began, in seconds since 1970.
    pub clock: f64,
    /// The kernel's word for the CPU's architecture.
    pub machine: String,
}

/// What a host came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program that checked.
    pub version: String,
    /// Stamp of the remotes on the host, when they are ours.
    pub stamp: Option<String>,
    /// The drivers' user, for whom was checked.
    pub user: String,
    /// Whether it was checked with root's rights.
    pub root: bool,
    /// For comparisons.
    pub facts: Facts,
    /// What the checks found.
    pub findings: Vec<Finding>,
}

/// Which checks are wanted; nothing named: all.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Chosen {
    /// Only the checks of this group; may be given several times
    #[arg(long = "group", value_enum, value_name = "GROUP")]
    pub groups: Vec<Group>,
    /// Only this check; may be given several times
    #[arg(long, value_name = "ID")]
    pub only: Vec<String>,
}

impl Chosen {
    /// Whether a check is wanted.
    #[must_use]
    pub fn wants(&self, id: &str, group: Group) -> bool {
        (self.groups.is_empty() || self.groups.contains(&group))
            && (self.only.is_empty() || self.only.iter().any(|one| one == id))
    }
}

/// Makes all checks.
pub async fn report(host: &Host, chosen: &Chosen) -> Report {
    let mut findings = kvm::all(host).await;
    findings.extend(account_checks::all(host).await);
    findings.extend(qemu_conf::all(host));
    findings.extend(policy::all(host).await);
    findings.extend(storage::all(host).await);
    findings.extend(network::all(host).await);
    findings.extend(transport::all(host).await);
    findings.extend(session::all(host).await);
    findings.extend(agents::all(host));
    findings.retain(|finding| chosen.wants(&finding.id, finding.group));
    let uuid = host.capabilities.as_ref().ok().and_then(|told| told.root().text_at("host/uuid"));
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        stamp: host.root.line(format!("{}/.kvmad/stamp", host.wanted.remotes)),
        user: host.user.clone(),
        root: host.root_rights,
        facts: Facts {
            node: host.names.node.clone(),
            uuid: uuid.map(|text| text.trim().to_owned()),
            clock: host.began,
            machine: host.names.machine.clone(),
        },
        findings,
    }
}
