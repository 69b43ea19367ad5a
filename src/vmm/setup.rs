//! What the driver was told at its start that decides how requests become plans.

use std::collections::HashSet;

use crate::mad::options::{ActionList, VmmOptions};

/// Options and environment that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Folder of the scripts below `vmm/`: `kvm`, `lxc`.
    pub hypervisor: String,
    /// Actions that run on the front-end (`-l`).
    pub local: ActionList,
    /// Main actions whose connections forward the agent (`-d`).
    pub delegated: ActionList,
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
            local: ActionList::default(),
            delegated: ActionList::parse("migrate"),
            network_local: words(NETWORK_LOCAL),
            live_snapshots: words(LIVE_SNAPSHOTS),
            generate_domain: false,
        }
    }

    /// What holds for a driver with `options`. `variable` gives the variables of `vmm_execrc`; where it has none
    /// the lists of OpenNebula 7.4 hold.
    #[must_use]
    pub fn of_driver(options: &VmmOptions, variable: impl Fn(&str) -> Option<String>) -> Self {
        let list =
            |name: &str, default: &str| variable(name).map_or_else(|| words(default), |given| words(&given));
        Self {
            hypervisor: options.hypervisor.clone(),
            local: options.local.clone(),
            delegated: options.delegate.clone(),
            network_local: list("VNMAD_LOCAL_ACTIONS", NETWORK_LOCAL),
            live_snapshots: list("LIVE_DISK_SNAPSHOTS", LIVE_SNAPSHOTS),
            generate_domain: options.generate_domain.is_some(),
        }
    }

    /// The script to run on the front-end when the action is local: the one given with `name=script`, else
    /// `script`. Scripts and verbs write the same action with and without `_`; both name it.
    #[must_use]
    pub fn local_script(&self, script: &str) -> Option<String> {
        let joined = script.replace('_', "");
        let name = [script, &joined].into_iter().find(|name| self.local.contains(name))?;
        Some(self.local.script(name).unwrap_or(script).to_owned())
    }

    /// Whether the connections of the main action, known by any of `names`, forward the agent.
    #[must_use]
    pub fn delegates(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.delegated.contains(name))
    }
}

/// The blank-separated words of `text`.
fn words(text: &str) -> HashSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_action_is_found_by_its_script_or_its_verb_and_may_name_another_script() {
        let mut setup = Setup::new("kvm");
        setup.local = ActionList::parse("snapshotrevert,attach_disk,migrate=migrate_local,save=");
        assert_eq!(setup.local_script("snapshot_revert").as_deref(), Some("snapshot_revert"));
        assert_eq!(setup.local_script("attach_disk").as_deref(), Some("attach_disk"));
        assert_eq!(setup.local_script("migrate").as_deref(), Some("migrate_local"));
        assert_eq!(setup.local_script("save").as_deref(), Some("save"));
        assert_eq!(setup.local_script("deploy"), None);
        assert!(setup.delegates(&["migrate"]) && !setup.delegates(&["deploy", "DEPLOY"]));
    }

    #[test]
    fn the_variables_of_vmm_execrc_replace_the_lists() {
        let (options, _) = VmmOptions::parse("one_vmm_exec", ["kvm -p".to_owned()]).expect("good");
        let setup =
            Setup::of_driver(&options, |name| (name == "LIVE_DISK_SNAPSHOTS").then(|| "kvm-x".to_owned()));
        assert!(setup.live_snapshots.contains("kvm-x") && setup.live_snapshots.len() == 1);
        assert!(setup.network_local.contains("elastic-post"));
        assert!(setup.delegates(&["migrate"]));
    }
}
