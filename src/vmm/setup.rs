//! What the driver was told at its start that decides how requests become plans.

use std::collections::{HashMap, HashSet};

/// Options and environment that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Folder of the scripts below `vmm/`: `kvm`, `lxc`.
    pub hypervisor: String,
    /// Actions that run on the front-end (`-l`): upper-case name to the script that takes the place, if any.
    pub local: HashMap<String, Option<String>>,
    /// Main actions whose connections forward the agent (`-d`), upper case.
    pub delegated: HashSet<String>,
    /// `<network driver>-<action>` that run on the front-end (`VNMAD_LOCAL_ACTIONS`).
    pub network_local: HashSet<String>,
    /// `<VM_MAD>-<TM_MAD>` that may snapshot a disk of a running VM (`LIVE_DISK_SNAPSHOTS`).
    pub live_snapshots: HashSet<String>,
    /// DEPLOY makes the domain from the VM document in place of `oned`'s deployment file (`--generate-domain`).
    pub generate_domain: bool,
}

/// Where OpenNebula 7.4's own `vmm_execrc` runs network actions on the front-end.
pub const NETWORK_LOCAL: &str = "elastic-post elastic-clean";

/// The pairs that OpenNebula 7.4's own `vmm_execrc` allows for live disk snapshots.
pub const LIVE_SNAPSHOTS: &str = "kvm-qcow2 kvm-shared kvm-ceph kvm-ssh kvm-local kvm-lvm_thin kvm-lvm kvm-netapp \
     kvm-purefa qemu-qcow2 qemu-shared qemu-ceph qemu-ssh qemu-local qemu-netapp lxc-qcow2 lxc-shared lxc-ceph \
     lxc-ssh lxc-local lxc-lvm_thin lxc-lvm";

impl Setup {
    /// What holds when nothing is given: migrate is delegated, the lists are those of OpenNebula 7.4.
    #[must_use]
    pub fn new(hypervisor: impl Into<String>) -> Self {
        Self {
            hypervisor: hypervisor.into(),
            local: HashMap::new(),
            delegated: HashSet::from(["MIGRATE".to_owned()]),
            network_local: words(NETWORK_LOCAL),
            live_snapshots: words(LIVE_SNAPSHOTS),
            generate_domain: false,
        }
    }

    /// The script to run on the front-end when the action, known by any of `names`, is local: the one given
    /// with `name=script`, else `script`.
    #[must_use]
    pub fn local_script(&self, names: &[&str], script: &str) -> Option<String> {
        let found = names.iter().find_map(|name| self.local.get(&name.to_ascii_uppercase()))?;
        Some(found.clone().filter(|given| !given.is_empty()).unwrap_or_else(|| script.to_owned()))
    }

    /// Whether the connections of the main action `name` forward the agent.
    #[must_use]
    pub fn delegates(&self, name: &str) -> bool {
        self.delegated.contains(&name.to_ascii_uppercase())
    }
}

/// The blank-separated words of `text`.
#[must_use]
pub fn words(text: &str) -> HashSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_action_is_found_by_any_of_its_names_and_may_name_another_script() {
        let mut setup = Setup::new("kvm");
        setup.local.insert("SNAPSHOTREVERT".to_owned(), None);
        setup.local.insert("MIGRATE".to_owned(), Some("migrate_local".to_owned()));
        setup.local.insert("SAVE".to_owned(), Some(String::new()));
        let revert = ["snapshot_revert", "SNAPSHOTREVERT"];
        assert_eq!(setup.local_script(&revert, "snapshot_revert").as_deref(), Some("snapshot_revert"));
        assert_eq!(setup.local_script(&["migrate"], "migrate").as_deref(), Some("migrate_local"));
        assert_eq!(setup.local_script(&["save"], "save").as_deref(), Some("save"));
        assert_eq!(setup.local_script(&["deploy"], "deploy"), None);
        assert!(setup.delegates("migrate") && !setup.delegates("deploy"));
    }
}
