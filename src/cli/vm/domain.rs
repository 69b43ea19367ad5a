//! From what was asked for to a template, from that to the VM document as oned would make it, and to its domain.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Stop, action};
use crate::cli::input;
use crate::domain::tree::{Element, Node};
use crate::domain::{Emulator, Inputs, Options, Placed, Sourced, generate};
use crate::node::cloud::spec::{Network, PREFIX, Prepared};
use crate::template::normalise::{Normalised, Surroundings, normalise};
use crate::template::{Attribute, Level, Member, Origin, Template, Value};
use crate::vmm::execute::MakeDomain;

/// What a domain needs beyond its files.
pub struct Machine<'a> {
    /// Name of the VM.
    pub name: &'a str,
    /// Bytes.
    pub memory: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// What runs the guest.
    pub emulator: Emulator,
    /// Of its interface.
    pub mac: &'a str,
    /// Where that goes.
    pub network: &'a Network,
}

/// The VM as oned would have it, and its domain.
pub fn make(machine: &Machine<'_>, prepared: &Prepared) -> Result<(Normalised, Vec<u8>), Stop> {
    let defaults = input::defaults(None, &mut std::io::stderr()).map_err(|error| Stop::usage(error.0))?;
    let os = defaults.parsed.template.vector("OS");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let around = Surroundings {
        vm_id: action::ID,
        stime: now,
        machine: os.and_then(|os| os.filled("MACHINE")).map(str::to_owned),
        ..Surroundings::default()
    };
    let refused = |reason: String| Stop::finding(format!("no VM can be made of it: {reason}"));
    let vm = normalise(&template(machine, prepared), &around).map_err(|error| refused(error.to_string()))?;
    let options = Options {
        emulator: machine.emulator,
        placed: Some(Placed {
            name: format!("{PREFIX}{}", machine.name),
            folder: prepared.folder.to_string_lossy().into_owned(),
        }),
        now,
        ..Options::default()
    };
    let empty = Template::new();
    let inputs = Inputs {
        vm: &vm.vm,
        defaults: &defaults.parsed.template,
        host: &empty,
        cluster: &empty,
        options: &options,
    };
    let mut domain = generate(&inputs).map_err(|error| refused(error.to_string()))?;
    finish(&mut domain.root, machine);
    Ok((vm, domain.to_xml().into_bytes()))
}

/// The same domain for each that asks.
pub fn maker(domain: Vec<u8>) -> MakeDomain {
    Arc::new(move |_| Ok(domain.clone()))
}

/// The template that a user of OpenNebula would write for it.
fn template(machine: &Machine<'_>, prepared: &Prepared) -> Template {
    let memory = (machine.memory >> 20).max(1).to_string();
    let cpus = machine.cpus.to_string();
    let emulator = prepared.emulator.to_string_lossy();
    let mut all = Template::new();
    for (name, value) in [
        ("NAME", machine.name),
        ("CPU", &cpus),
        ("VCPU", &cpus),
        ("MEMORY", &memory),
        ("EMULATOR", &emulator),
    ] {
        all.push(attribute(name, Value::Single(value.to_owned())));
    }
    let disk = |name: &str, driver: &str, target: &str, readonly: &str| {
        vector(
            "DISK",
            &[
                ("IMAGE", name),
                ("TYPE", "FILE"),
                ("DRIVER", driver),
                ("TARGET", target),
                ("READONLY", readonly),
            ],
        )
    };
    all.push(disk("disk", "qcow2", "vda", "NO"));
    // As a disk, not as a CD: the kernels of cloud images lack drivers for the controllers of CDs.
    all.push(disk("seed", "raw", "vdb", "YES"));
    let mut nic = vec![("MAC", machine.mac), ("MODEL", "virtio"), ("VN_MAD", "dummy")];
    let (Network::Bridge(name) | Network::Nat(name)) = machine.network;
    nic.push(("BRIDGE", name));
    all.push(vector("NIC", &nic));
    all.push(os(&prepared.arch));
    all.push(vector("FEATURES", &[("ACPI", "YES"), ("GUEST_AGENT", "YES")]));
    all.push(vector("GRAPHICS", &[("TYPE", "vnc"), ("LISTEN", "127.0.0.1"), ("PORT", "-1")]));
    match machine.emulator {
        // Some distributions do not run on QEMU's plain model.
        Emulator::Kvm => all.push(vector("CPU_MODEL", &[("MODEL", "host-passthrough")])),
        // The plain model of this machine has 32 bits.
        Emulator::Qemu if is_arm(&prepared.arch) => {
            all.push(vector("CPU_MODEL", &[("MODEL", "cortex-a57")]));
        }
        Emulator::Qemu => {}
    }
    all
}

fn is_arm(arch: &str) -> bool {
    arch == "aarch64"
}

/// QEMU has no machine for aarch64 unless it is named, and no BIOS: cloud images boot by UEFI there, and libvirt finds
/// the firmware. Elsewhere the defaults decide.
fn os(arch: &str) -> Attribute {
    let mut members = vec![("ARCH", arch)];
    if is_arm(arch) {
        members.extend([("MACHINE", "virt"), ("FIRMWARE", "UEFI")]);
    }
    vector("OS", &members)
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.to_owned(), value, origin: Origin::of(Level::Vm) }
}

fn vector(name: &str, members: &[(&str, &str)]) -> Attribute {
    let member = |(name, value): &(&str, &str)| Member {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
        origin: Origin::of(Level::Vm),
    };
    attribute(name, Value::Vector(members.iter().map(member).collect()))
}

/// What OpenNebula's templates have no word for: a serial console, a source of randomness, a network of libvirt.
fn finish(root: &mut Element, machine: &Machine<'_>) {
    let Some(devices) = elements(root).find(|element| element.name == "devices") else { return };
    for nic in elements(devices).filter(|element| element.name == "interface") {
        interface(nic, machine.network);
    }
    let log = format!("/var/log/libvirt/qemu/{PREFIX}{}-serial.log", machine.name);
    let log = Element::new("log").attr("file", Sourced::option(log, "name of the VM")).attr("append", "off");
    let port = Element::new("target").attr("port", "0");
    devices.push(Element::new("serial").attr("type", "pty").child(log).child(port));
    let port = Element::new("target").attr("type", "serial").attr("port", "0");
    devices.push(Element::new("console").attr("type", "pty").child(port));
    let source = Element::new("backend").attr("model", "random").text("/dev/urandom");
    devices.push(Element::new("rng").attr("model", "virtio").child(source));
}

fn elements(parent: &mut Element) -> impl Iterator<Item = &mut Element> {
    parent.children.iter_mut().filter_map(|node| match node {
        Node::Element(element) => Some(element),
        Node::Text { .. } => None,
    })
}

fn interface(nic: &mut Element, network: &Network) {
    // The defaults may ask for vhost, which libvirt refuses on a host without it; unasked it takes it where it is.
    nic.children.retain(|node| !matches!(node, Node::Element(part) if part.name == "driver"));
    let Network::Nat(name) = network else { return };
    nic.attributes.retain(|attribute| attribute.name != "type");
    nic.set("type", "network");
    for source in elements(nic).filter(|part| part.name == "source") {
        *source = Element::new("source").attr("network", Sourced::option(name, "network of libvirt"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::template::xml::Document;

    fn domain(network: &Network, emulator: Emulator) -> Document {
        domain_on("x86_64", network, emulator)
    }

    fn domain_on(arch: &str, network: &Network, emulator: Emulator) -> Document {
        let machine = Machine {
            name: "web-1",
            memory: 512 << 20,
            cpus: 2,
            emulator,
            mac: "52:54:00:00:00:01",
            network,
        };
        let prepared = Prepared {
            folder: PathBuf::from("/srv/vm's/kvmad-web-1"),
            image: PathBuf::from("/srv/base/x.qcow2"),
            size: 1,
            emulator: PathBuf::from(format!("/usr/bin/qemu-system-{arch}")),
            arch: arch.to_owned(),
        };
        let (_, bytes) = make(&machine, &prepared).expect("a domain");
        Document::parse(String::from_utf8(bytes).expect("text")).expect("XML")
    }

    fn at(document: &Document, path: &str, attribute: &str) -> Option<String> {
        document.root().at(path).and_then(|element| element.attribute(attribute)).map(str::to_owned)
    }

    #[test]
    fn the_domain_bears_the_name_and_its_files_lie_in_its_folder() {
        let document = domain(&Network::Bridge("br0".to_owned()), Emulator::Kvm);
        let root = document.root();
        assert_eq!(root.text_at("name").as_deref(), Some("kvmad-web-1"));
        let files: Vec<_> = root
            .children("devices")
            .flat_map(|devices| devices.children("disk"))
            .filter_map(|disk| disk.at("source")?.attribute("file").map(str::to_owned))
            .collect();
        assert_eq!(files, ["/srv/vm's/kvmad-web-1/disk.0", "/srv/vm's/kvmad-web-1/disk.1"]);
        assert_eq!(root.attribute("type"), Some("kvm"));
        assert_eq!(at(&document, "cpu", "mode").as_deref(), Some("host-passthrough"));
        assert_eq!(root.text_at("vcpu").as_deref(), Some("2"));
        assert_eq!(root.text_at("memory").as_deref(), Some("524288"));
        assert_eq!(at(&document, "devices/interface/source", "bridge").as_deref(), Some("br0"));
        assert_eq!(at(&document, "devices/serial", "type").as_deref(), Some("pty"));
        assert!(root.at("devices/interface/driver").is_none());
    }

    #[test]
    fn on_aarch64_the_machine_is_virt_and_uefi_boots_it() {
        for (emulator, cpu) in [(Emulator::Kvm, "host-passthrough"), (Emulator::Qemu, "custom")] {
            let document = domain_on("aarch64", &Network::Nat("default".to_owned()), emulator);
            let root = document.root();
            assert_eq!(at(&document, "os", "firmware").as_deref(), Some("efi"));
            assert_eq!(at(&document, "os/type", "arch").as_deref(), Some("aarch64"));
            assert_eq!(at(&document, "os/type", "machine").as_deref(), Some("virt"));
            assert!(root.text_at("devices/emulator").is_some_and(|path| path.ends_with("aarch64")));
            assert_eq!(at(&document, "cpu", "mode").as_deref(), Some(cpu));
            let buses: Vec<_> = root
                .children("devices")
                .flat_map(|devices| devices.children("disk"))
                .filter_map(|disk| disk.at("target")?.attribute("bus").map(str::to_owned))
                .collect();
            assert_eq!(buses, ["virtio", "virtio"], "that machine has no IDE");
        }
        let document = domain(&Network::Nat("default".to_owned()), Emulator::Kvm);
        assert_eq!(at(&document, "os", "firmware"), None);
    }

    #[test]
    fn nat_is_a_network_of_libvirt() {
        let document = domain(&Network::Nat("lan".to_owned()), Emulator::Qemu);
        assert_eq!(document.root().attribute("type"), Some("qemu"));
        assert_eq!(at(&document, "devices/interface", "type").as_deref(), Some("network"));
        assert_eq!(at(&document, "devices/interface/source", "network").as_deref(), Some("lan"));
        assert_eq!(at(&document, "devices/interface/source", "bridge"), None);
        assert_eq!(at(&document, "devices/interface/mac", "address").as_deref(), Some("52:54:00:00:00:01"));
    }
}
