//! NIC, NIC_ALIAS, PCI.

use std::collections::HashMap;

use super::members::{fill, filled, remove, set};
use super::{Refused, Work};
use crate::template::value::{Member, Value};

/// What CONTEXT says of each interface, and the member of the NIC that it comes from.
const ADDRESSES: [(&str, &str); 22] = [
    ("IP", "IP"),
    ("MAC", "MAC"),
    ("MASK", "NETWORK_MASK"),
    ("NETWORK", "NETWORK_ADDRESS"),
    ("GATEWAY", "GATEWAY"),
    ("DNS", "DNS"),
    ("SEARCH_DOMAIN", "SEARCH_DOMAIN"),
    ("MTU", "GUEST_MTU"),
    ("METRIC", "METRIC"),
    ("METHOD", "METHOD"),
    ("VLAN_ID", "VLAN_ID"),
    ("VROUTER_IP", "VROUTER_IP"),
    ("VROUTER_MANAGEMENT", "VROUTER_MANAGEMENT"),
    ("EXTERNAL", "EXTERNAL"),
    ("ROUTES", "ROUTES"),
    ("IP6", "IP6"),
    ("IP6_ULA", "IP6_ULA"),
    ("IP6_GATEWAY", "IP6_GATEWAY"),
    ("IP6_METRIC", "IP6_METRIC"),
    ("IP6_METHOD", "IP6_METHOD"),
    ("IP6_PREFIX_LENGTH", "IP6_PREFIX_LENGTH"),
    ("VROUTER_IP6", "VROUTER_IP6"),
];

/// Host address of a PCI device: decided when the VM is placed.
const PCI_ADDRESS: [&str; 7] = ["ADDRESS", "DOMAIN", "BUS", "SLOT", "FUNCTION", "NUMA_NODE", "UUID"];

impl Work<'_> {
    pub(super) fn nics(&mut self) -> Result<(), Refused> {
        let defaults: Vec<Member> =
            self.t.vector("NIC_DEFAULT").map(|vector| vector.members.to_vec()).unwrap_or_default();
        let nics = self.interfaces("NIC", &defaults, 0, |_| true)?;
        let pci =
            self.interfaces("PCI", &defaults, nics, |members| filled(members, "TYPE") == Some("NIC"))?;
        self.interfaces("NIC_ALIAS", &defaults, nics + pci, |_| true)?;
        self.aliases();
        Ok(())
    }

    /// Ties each NIC_ALIAS to its parent: PARENT_ID and a running ALIAS_ID here, ALIAS_IDS there.
    fn aliases(&mut self) {
        let mut ids: HashMap<String, (String, Vec<String>)> = HashMap::new();
        for vector in ["NIC", "PCI"] {
            for nic in self.t.vectors(vector) {
                let named = |name| nic.filled(name).unwrap_or("").to_owned();
                ids.insert(named("NAME"), (named("NIC_ID"), Vec::new()));
            }
        }
        for (_, members) in self.vectors_mut("NIC_ALIAS") {
            let own = filled(members, "NIC_ID").unwrap_or("").to_owned();
            let parent = filled(members, "PARENT").and_then(|parent| ids.get_mut(parent));
            if let Some((id, aliases)) = parent {
                set(members, "PARENT_ID", id.clone());
                set(members, "ALIAS_ID", aliases.len().to_string());
                aliases.push(own);
            }
        }
        for vector in ["NIC", "PCI"] {
            for (_, members) in self.vectors_mut(vector) {
                let found = ids.get(filled(members, "NAME").unwrap_or(""));
                if let Some((_, aliases)) = found.filter(|(_, aliases)| !aliases.is_empty()) {
                    set(members, "ALIAS_IDS", aliases.join(","));
                }
            }
        }
    }

    /// Numbers the wanted vectors called `vector` from `first` on and fills them; gives how many there were.
    fn interfaces(
        &mut self,
        vector: &str,
        defaults: &[Member],
        first: usize,
        wanted: fn(&[Member]) -> bool,
    ) -> Result<usize, Refused> {
        let mut attributes = std::mem::take(self.t.attributes_mut());
        let mut count = 0;
        for attribute in attributes.iter_mut().filter(|attribute| attribute.name == vector) {
            let Value::Vector(members) = &mut attribute.value else { continue };
            if !wanted(members) {
                continue;
            }
            for default in defaults {
                if filled(members, &default.name).is_none() {
                    remove(members, &[&default.name]);
                    members.push(default.clone());
                }
            }
            let asked = ["IP", "IP6", "MAC"].iter().filter(|name| filled(members, name).is_some()).count();
            if asked > 1 && has_network(members) {
                let reason = format!("a {vector} may ask for one of IP, IP6 and MAC, not for several");
                return Err(Refused::Attribute { at: attribute.origin.clone(), reason });
            }
            self.interface(members, first + count, vector);
            count += 1;
        }
        *self.t.attributes_mut() = attributes;
        Ok(count)
    }

    fn interface(&mut self, members: &mut Vec<Member>, id: usize, vector: &str) {
        set(members, "NIC_ID", id.to_string());
        let name = match (vector, filled(members, "PARENT")) {
            ("NIC_ALIAS", Some(parent)) => format!("{parent}_ALIAS{id}"),
            _ => format!("NIC{id}"),
        };
        fill(members, "NAME", name);
        let dummy = filled(members, "NETWORK_MODE").is_some_and(|mode| mode.eq_ignore_ascii_case("dummy"));
        if !has_network(members) && !dummy {
            return;
        }
        fill(members, "TARGET", format!("one-{}-{id}", self.around.vm_id));
        let mac = self.mac(id, filled(members, "IP"));
        fill(members, "MAC", mac);
        if dummy {
            return;
        }
        fill(members, "SECURITY_GROUPS", "0");
        fill(members, "CLUSTER_ID", self.around.cluster.to_string());
        if filled(members, "BRIDGE").is_none() {
            let bridge = format!("onebr{}", filled(members, "NETWORK_ID").unwrap_or("0"));
            set(members, "BRIDGE", bridge.clone());
            fill(members, "VN_MAD", "bridge");
            fill(members, "BRIDGE_TYPE", "linux");
            let network = filled(members, "NETWORK").or_else(|| filled(members, "NETWORK_ID")).unwrap_or("");
            self.note(format!(
                "{vector} {id}: what the network {network:?} is, only OpenNebula knows; assumed BRIDGE={bridge} and no \
                 lease (write BRIDGE, IP and so on into the {vector} to change it)"
            ));
        }
    }

    pub(super) fn pci(&mut self) {
        let mut count = 0;
        for (id, (_, members)) in self.vectors_mut("PCI").enumerate() {
            count += 1;
            remove(members, &PCI_ADDRESS);
            set(members, "PCI_ID", id.to_string());
            super::members::respell(members, "ROOT", str::to_ascii_lowercase);
            fill(members, "VM_BUS", "0x01");
        }
        if count > 0 {
            self.note(
                "PCI: which device of the host the VM gets is decided when it is placed, so there is none in the \
                 domain here"
                    .to_owned(),
            );
        }
    }

    /// `ETH0_IP` and so on, for a CONTEXT with NETWORK=YES.
    pub(super) fn addresses(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for nic in self.t.vectors("NIC") {
            let id = nic.get("NIC_ID").unwrap_or("0");
            for (name, member) in ADDRESSES {
                all.push((format!("ETH{id}_{name}"), nic.get(member).unwrap_or("").to_owned()));
            }
        }
        all
    }
}

fn has_network(members: &[Member]) -> bool {
    filled(members, "NETWORK").is_some() || filled(members, "NETWORK_ID").is_some()
}
