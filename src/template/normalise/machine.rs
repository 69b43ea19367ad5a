//! OS, FEATURES, topology and the small spellings that `oned` settles.

use super::members::{fill, filled, remove, respell, set, yes};
use super::{Refused, Work, hexadecimal};
use crate::template::value::{Attribute, Level, Member, Origin, Value};

/// Members of FEATURES that `oned` stores as YES or NO.
const SWITCHES: [&str; 7] = ["PAE", "ACPI", "APIC", "HYPERV", "LOCALTIME", "GUEST_AGENT", "RAS"];

/// Longest passwords that the two protocols take.
const VNC_PASSWORD: usize = 8;
const SPICE_PASSWORD: usize = 59;

impl Work<'_> {
    pub(super) fn machine(&mut self) -> Result<(), Refused> {
        self.os()?;
        for (_, members) in self.vectors_mut("FEATURES") {
            for name in SWITCHES {
                respell(members, name, yes_or_no);
            }
        }
        for (_, members) in self.vectors_mut("VIDEO") {
            respell(members, "TYPE", str::to_ascii_lowercase);
        }
        for (_, members) in self.vectors_mut("IOMMU") {
            respell(members, "MODEL", str::to_ascii_lowercase);
            respell(members, "MODE", str::to_ascii_lowercase);
        }
        self.graphics();
        self.topology();
        Ok(())
    }

    fn os(&mut self) -> Result<(), Refused> {
        let vectors = self.t.vectors("OS").count();
        if vectors > 1 {
            let at = self.t.vectors("OS").nth(1).map_or(Origin::of(Level::Vm), |os| os.origin.clone());
            return Err(Refused::Attribute { at, reason: "a VM has one OS only".to_owned() });
        }
        if vectors == 0 {
            self.add("OS", Value::Vector(Vec::new()));
        }
        let uuid = self.uuid();
        let machine = self.around.machine.clone();
        let folder = format!("{}/{}", self.around.datastore.base_path, self.around.vm_id);
        for (_, members) in self.vectors_mut("OS") {
            fill(members, "UUID", uuid.clone());
            if let Some(machine) = machine.as_ref().filter(|_| filled(members, "MACHINE").is_none()) {
                remove(members, &["MACHINE"]);
                let (name, value) = ("MACHINE".to_owned(), machine.clone());
                members.push(Member { name, value, origin: Origin::of(Level::Defaults) });
            }
            for (file, name, path) in [("KERNEL_DS", "KERNEL", "kernel"), ("INITRD_DS", "INITRD", "initrd")] {
                if filled(members, file).is_some() {
                    remove(members, &[name]);
                    set(members, name, format!("{folder}/{path}"));
                }
            }
        }
        Ok(())
    }

    /// The port of a display, and its password when the VM asks for a random one.
    fn graphics(&mut self) {
        let port = self.around.vm_id.clamp(0, 59_000) + 5900;
        let secret = hexadecimal(&[self.random("password"), self.random("password, more")].concat());
        for (_, members) in self.vectors_mut("GRAPHICS") {
            fill(members, "PORT", port.to_string());
            let spice = filled(members, "TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("spice"));
            let length = if spice { SPICE_PASSWORD } else { VNC_PASSWORD };
            if yes(members, "RANDOM_PASSWD") {
                fill(members, "PASSWD", secret.chars().take(length).collect::<String>());
            }
            respell(members, "PASSWD", |password| password.chars().take(length).collect());
        }
    }

    /// The machine type that counts.
    pub(super) fn is_modern(&self) -> bool {
        let machine = self.t.vector("OS").and_then(|os| os.get("MACHINE")).unwrap_or("");
        machine.contains("q35") || machine.contains("virt")
    }

    /// Fills a TOPOLOGY, turns memory of NUMA nodes into KiB, and gives a pinned VM its node.
    fn topology(&mut self) {
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
        let vcpus = self.t.single("VCPU").and_then(|v| number(v.value)).unwrap_or(1);
        let memory = self.t.single("MEMORY").and_then(|m| number(m.value)).unwrap_or(0);
        let mut wants_node = false;
        for (_, members) in self.vectors_mut("TOPOLOGY") {
            respell(members, "PIN_POLICY", str::to_ascii_uppercase);
            fill(members, "PIN_POLICY", "NONE");
            fill(members, "SOCKETS", "1");
            fill(members, "THREADS", "1");
            let count = |name: &str| filled(members, name).and_then(number).unwrap_or(1);
            let cores = (vcpus / (count("SOCKETS") * count("THREADS")).max(1)).max(1);
            fill(members, "CORES", cores.to_string());
            let set = |name: &str| filled(members, name).is_some();
            wants_node |=
                filled(members, "PIN_POLICY") != Some("NONE") || set("NODE_AFFINITY") || set("HUGEPAGE_SIZE");
        }
        let mut nodes = 0;
        for (_, members) in self.vectors_mut("NUMA_NODE") {
            nodes += 1;
            respell(members, "MEMORY", |text| {
                number(text).map_or(text.to_owned(), |n| (n * 1024).to_string())
            });
        }
        if wants_node {
            self.note(
                "TOPOLOGY: which CPUs and memory node of the host the VM gets is decided by the scheduler, \
                 so the domain is not pinned here"
                    .to_owned(),
            );
        }
        if wants_node && nodes == 0 {
            let mut members = Vec::new();
            set(&mut members, "TOTAL_CPUS", vcpus.to_string());
            set(&mut members, "MEMORY", (memory * 1024).to_string());
            let value = Value::Vector(members);
            self.t.push(Attribute { name: "NUMA_NODE".to_owned(), value, origin: Origin::of(Level::Made) });
        }
    }
}

fn yes_or_no(text: &str) -> String {
    if text.eq_ignore_ascii_case("yes") { "YES".to_owned() } else { "NO".to_owned() }
}
