//! What a domain needs of the host that it goes to, read from its XML.

use serde::{Deserialize, Serialize};

use crate::template::xml::{Document, Element};

/// What counts for a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Kind of virtualization (`kvm`, `qemu`).
    pub kind: String,
    /// Architecture of the guest.
    pub arch: String,
    /// Machine type, as it runs (`pc-i440fx-7.2`).
    pub machine: String,
    /// Path of the emulator.
    pub emulator: String,
    /// Files of the firmware that must be there.
    pub firmware: Vec<String>,
    /// `mode` of its CPU; empty when libvirt told none.
    pub cpu_mode: String,
    /// Whether libvirt refuses a host that does not provide this CPU.
    pub cpu_checked: bool,
    /// Bridges of its interfaces, each once.
    pub bridges: Vec<String>,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Devices that bind it to its host.
    pub bound: Vec<String>,
}

/// One disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Name in the guest.
    pub target: String,
    /// Path of the file or block device; empty for a disk over the network and an empty drive.
    pub path: String,
    /// Whether the guest only reads it.
    pub readonly: bool,
    /// Cache mode; `default` when none is named.
    pub cache: String,
}

impl Disk {
    /// The folder that it lies in.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.path.rsplit_once('/').map(|(folder, _)| folder).filter(|folder| !folder.is_empty())
    }
}

impl Domain {
    /// Reads what `virsh dumpxml` printed.
    ///
    /// # Errors
    /// Why it is no domain.
    pub fn read(xml: &str) -> Result<Self, String> {
        let document = Document::parse(xml.trim()).map_err(|error| format!("the domain's XML: {error}"))?;
        let root = document.root();
        if root.name() != "domain" {
            return Err(format!("libvirt gave no domain but an element {}", root.name()));
        }
        let text = |path: &str| root.text_at(path).unwrap_or_default().trim().to_owned();
        let kind = root.at("os/type");
        let about = |name: &str| kind.and_then(|kind| kind.attribute(name)).unwrap_or_default().to_owned();
        let cpu = root.child("cpu");
        let told = |name: &str| cpu.and_then(|cpu| cpu.attribute(name)).unwrap_or_default();
        let devices: Vec<&Element> = root.children("devices").flat_map(Element::elements).collect();
        Ok(Self {
            name: text("name"),
            uuid: text("uuid"),
            kind: root.attribute("type").unwrap_or_default().to_owned(),
            arch: about("arch"),
            machine: about("machine"),
            emulator: text("devices/emulator"),
            firmware: [text("os/loader")].into_iter().filter(|path| path.starts_with('/')).collect(),
            cpu_mode: told("mode").to_owned(),
            cpu_checked: cpu.is_some() && told("check") != "none",
            bridges: bridges(&devices),
            disks: devices
                .iter()
                .filter(|device| device.name() == "disk")
                .map(|disk| read_disk(disk))
                .collect(),
            bound: devices.iter().filter_map(|device| binding(device)).collect(),
        })
    }
}

fn bridges(devices: &[&Element]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for interface in devices.iter().filter(|device| device.name() == "interface") {
        let source = interface.child("source");
        let bridge = source.and_then(|source| source.attribute("bridge")).unwrap_or_default();
        if !bridge.is_empty() && !all.iter().any(|known| known == bridge) {
            all.push(bridge.to_owned());
        }
    }
    all
}

fn read_disk(disk: &Element) -> Disk {
    let source = disk.child("source");
    let path = source.and_then(|source| source.attribute("file").or_else(|| source.attribute("dev")));
    let cache = disk.child("driver").and_then(|driver| driver.attribute("cache")).unwrap_or("default");
    Disk {
        target: disk.child("target").and_then(|t| t.attribute("dev")).unwrap_or_default().to_owned(),
        path: path.unwrap_or_default().to_owned(),
        readonly: disk.child("readonly").is_some() || disk.attribute("device") == Some("cdrom"),
        cache: cache.to_owned(),
    }
}

/// Why a device can't go to another host while the guest runs.
fn binding(device: &Element) -> Option<String> {
    match device.name() {
        "hostdev" => Some(format!("a {} device of the host", device.attribute("type").unwrap_or("pci"))),
        "interface" if device.attribute("type") == Some("hostdev") => {
            Some("a network card of the host".to_owned())
        }
        "filesystem" => {
            let name = device.child("target").and_then(|target| target.attribute("dir")).unwrap_or("?");
            Some(format!("the shared folder {name}"))
        }
        "shmem" if device.child("server").is_none() => Some("shared memory".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `virsh dumpxml --migratable` of libvirt 9.0 prints it, shortened.
    const XML: &str = "<domain type='kvm'><name>one-7</name><uuid>9836e20d-beeb-4c38-98b6-b2dccfa000a4</uuid>
<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type><loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader></os>
<cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/><source file='/ds/0/7/disk.0'/><target dev='vda' bus='virtio'/></disk>
<disk type='block' device='disk'><source dev='/dev/vg-one-0/lv-7-1'/><target dev='vdb'/></disk>
<disk type='network' device='disk'><source protocol='rbd' name='one/x'/><target dev='vdc'/></disk>
<disk type='file' device='cdrom'><source file='/ds/0/7/disk.1'/><target dev='hda'/><readonly/></disk>
<interface type='bridge'><source bridge='br0'/></interface><interface type='bridge'><source bridge='br0'/></interface>
<interface type='hostdev'/><hostdev mode='subsystem' type='pci'/><filesystem type='mount'><target dir='data'/></filesystem></devices></domain>";

    #[test]
    fn a_domain_tells_what_it_needs() {
        let domain = Domain::read(XML).expect("a domain");
        assert_eq!((domain.name.as_str(), domain.machine.as_str()), ("one-7", "pc-i440fx-7.2"));
        assert_eq!(domain.bridges, ["br0"]);
        assert_eq!((domain.cpu_mode.as_str(), domain.cpu_checked), ("custom", false));
        assert_eq!(domain.firmware, ["/usr/share/OVMF/OVMF_CODE.fd"]);
        let disks: Vec<_> =
            domain.disks.iter().map(|d| (d.target.as_str(), d.path.as_str(), d.readonly)).collect();
        assert_eq!(
            disks,
            [
                ("vda", "/ds/0/7/disk.0", false),
                ("vdb", "/dev/vg-one-0/lv-7-1", false),
                ("vdc", "", false),
                ("hda", "/ds/0/7/disk.1", true)
            ]
        );
        assert_eq!(domain.disks[0].folder(), Some("/ds/0/7"));
        assert_eq!(domain.disks[2].folder(), None);
        assert_eq!(
            domain.bound,
            ["a network card of the host", "a pci device of the host", "the shared folder data"]
        );
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        assert!(Domain::read("<network/>").is_err_and(|error| error.contains("network")));
        assert!(Domain::read("<domain>").is_err());
        assert_eq!(Domain::read("<domain/>").expect("poor, but one").disks, []);
    }
}
