//! Checking the attributes of a VM: values that no reader takes, names that are probably misspelt.

use super::finding::Checked;
use crate::conf::nearest::nearest;
use crate::conf::{Key, Takes, kvmrc, vmm};
use crate::node::migrate::settings::OF_THE_VM;
use crate::template::text::Gravity;
use crate::template::value::{Attribute, Member, Value};
use crate::template::{Origin, Template};

/// Shorter names are too near to each other.
const SHORTEST: usize = 4;

/// Attributes that decide a domain beside those of vmm_exec_kvm.conf.
const SINGLES: &[&str] =
    &["CPU", "MEMORY", "MEMORY_MAX", "MEMORY_RESIZE_MODE", "NAME", "CPU_COST", "MEMORY_COST", "DISK_COST"];
/// The same, vectors.
const VECTORS: &[&str] = &[
    "CONTEXT",
    "INPUT",
    "IOMMU",
    "MEMORY_ENCRYPTION",
    "NIC_ALIAS",
    "NIC_DEFAULT",
    "NUMA_NODE",
    "PCI",
    "RAW",
    "TOPOLOGY",
];
/// Vectors in which nobody but the readers of a domain keeps anything, and what they hold beside the keys of
/// vmm_exec_kvm.conf.
const CLOSED: &[(&str, &[&str])] = &[
    ("FEATURES", &OF_THE_VM),
    ("OS", &["BOOT", "UUID", "KERNEL_DS", "INITRD_DS"]),
    ("CPU_MODEL", &[]),
    ("GRAPHICS", &["PORT"]),
    ("VIDEO", &[]),
    ("TPM", &[]),
    ("RAW", &["TYPE", "DATA", "VALIDATE"]),
    (
        "TOPOLOGY",
        &["PIN_POLICY", "SOCKETS", "CORES", "THREADS", "NODE_AFFINITY", "HUGEPAGE_SIZE", "MEMORY_ACCESS"],
    ),
];

/// Network cards that QEMU's machines have; libvirt's schema takes any word.
const CARDS: &[&str] = &[
    "virtio",
    "virtio-transitional",
    "virtio-non-transitional",
    "e1000",
    "e1000e",
    "igb",
    "rtl8139",
    "vmxnet3",
    "ne2k_pci",
    "pcnet",
    "i82550",
    "i82551",
    "i82557b",
    "i82559er",
    "spapr-vlan",
    "usb-net",
];

/// Checks all attributes of `vm`.
pub fn check(checked: &mut Checked, vm: &Template) {
    for attribute in vm.attributes() {
        match &attribute.value {
            Value::Single(value) => single(checked, attribute, value),
            Value::Vector(members) => {
                if attribute.name == "RAW" {
                    raw(checked, attribute, members);
                }
                if !is_vector(&attribute.name) {
                    let known = singles().chain(vectors());
                    misspelt(checked, "", &attribute.name, known, &attribute.origin);
                }
                for member in members {
                    check_member(checked, &attribute.name, member);
                }
            }
        }
    }
}

fn singles() -> impl Iterator<Item = &'static str> {
    let keys = vmm::KEYS.iter().filter(|key| key.vector.is_empty() && key.levels.contains("VM"));
    SINGLES.iter().copied().chain(keys.map(|key| key.name))
}

fn vectors() -> impl Iterator<Item = &'static str> {
    VECTORS.iter().copied().chain(vmm::vectors())
}

fn is_vector(name: &str) -> bool {
    vectors().any(|vector| vector == name)
}

fn single(checked: &mut Checked, attribute: &Attribute, value: &str) {
    let (name, at) = (attribute.name.as_str(), &attribute.origin);
    if is_vector(name) {
        let why = format!("{name} of a VM is read as a vector; as a single value nobody sees it");
        let mend = match name {
            "RAW" => "write RAW = [ TYPE = \"kvm\", DATA = \"...\" ]".to_owned(),
            _ => format!("write {name} = [ ... ]"),
        };
        checked.find("wrong-kind", Gravity::Error, name.to_owned(), Some(at), why, mend);
    } else if let Some(key) = vmm::find("", name).filter(|key| key.levels.contains("VM")) {
        check_value(checked, key, value, at);
    } else if !singles().any(|known| known == name) {
        misspelt(checked, "", name, singles().chain(vectors()), at);
    }
}

fn check_member(checked: &mut Checked, vector: &str, member: &Member) {
    if (vector, member.name.as_str()) == ("NIC", "MODEL") {
        return card(checked, member);
    }
    let of_migrations = || {
        let may = vector == "FEATURES" && OF_THE_VM.contains(&member.name.as_str());
        may.then(|| kvmrc::find(&member.name)).flatten()
    };
    if let Some(key) = vmm::find(vector, &member.name).or_else(of_migrations) {
        return check_value(checked, key, &member.value, &member.origin);
    }
    let Some((_, more)) = CLOSED.iter().find(|(name, _)| *name == vector) else { return };
    // What oned writes about the datastore of a kernel: KERNEL_DS_ID and the like.
    let of_kernel =
        vector == "OS" && ["KERNEL_DS", "INITRD_DS"].iter().any(|name| member.name.starts_with(name));
    if !of_kernel && !more.contains(&member.name.as_str()) {
        let keys = vmm::KEYS.iter().filter(|key| key.vector == vector).map(|key| key.name);
        misspelt(checked, vector, &member.name, keys.chain(more.iter().copied()), &member.origin);
    }
}

/// A model that is nearly that of a card, but is none.
fn card(checked: &mut Checked, member: &Member) {
    let value = member.value.as_str();
    if CARDS.contains(&value) {
        return;
    }
    if let Some(right) = nearest(value, CARDS.iter().copied()) {
        let why = format!("{value:?} is none of the network cards that are known here");
        let mend = format!("did you mean {right:?}?");
        let at = Some(&member.origin);
        checked.find("odd-value", Gravity::Warning, "NIC/MODEL".to_owned(), at, why, mend);
    }
}

fn check_value(checked: &mut Checked, key: &Key, value: &str, at: &Origin) {
    if matches!(key.takes, Takes::Markup(_)) {
        return;
    }
    if let Some(doubt) = key.doubt(value) {
        let (id, gravity) =
            if doubt.certain { ("bad-value", Gravity::Error) } else { ("odd-value", Gravity::Warning) };
        checked.find(id, gravity, path(key.vector, key.name), Some(at), doubt.why, doubt.mend);
    }
}

/// A VM may hold attributes of anybody, so only a name that is nearly a known one is told.
fn misspelt(
    checked: &mut Checked,
    vector: &str,
    name: &str,
    known: impl Iterator<Item = &'static str>,
    at: &Origin,
) {
    let known = known.filter(|word| word.len() >= SHORTEST);
    if let Some(right) = nearest(name, known).filter(|_| name.len() >= SHORTEST) {
        let key = path(vector, name);
        let why = format!("nothing of a domain is made of {key}");
        checked.find("unknown-key", Gravity::Warning, key, Some(at), why, format!("did you mean {right}?"));
    }
}

/// RAW counts for the hypervisor that its TYPE names.
fn raw(checked: &mut Checked, attribute: &Attribute, members: &[Member]) {
    let kind = members.iter().find(|member| member.name == "TYPE").map_or("", |member| &member.value);
    if kind.eq_ignore_ascii_case("kvm") {
        return;
    }
    let why = format!("a RAW whose TYPE is {kind:?} is left out of the domain: it is for another hypervisor");
    let at = Some(&attribute.origin);
    checked.find("ignored", Gravity::Warning, "RAW".to_owned(), at, why, "write TYPE = \"kvm\"");
}

fn path(vector: &str, name: &str) -> String {
    if vector.is_empty() { name.to_owned() } else { format!("{vector}/{name}") }
}
