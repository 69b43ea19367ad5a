//! Devices that come to a running domain or leave it, and what of a domain they meet there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, domain, parse, shown};
use crate::domain::device::{self, Attach};
use crate::domain::{Refusal, RunningDomain};
use crate::template::document::VmDocument;
use crate::template::text::{self, Rules};
use crate::template::value::Vector;
use crate::template::xml::{Document, Element};
use crate::template::{Level, Template};

/// What a device is made from besides the action on stdin; `DEFAULT_ATTACH_*` comes from the environment.
#[derive(Debug, Args)]
pub struct Around {
    /// The domain, as `virsh dumpxml` prints it
    #[arg(long)]
    running: PathBuf,
    /// vmm_exec_kvm.conf; without the file there are no such defaults
    #[arg(long)]
    defaults: Option<PathBuf>,
    /// Where the kernel shows its devices
    #[arg(long, default_value = "/sys")]
    sysfs: PathBuf,
}

/// Which device of the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    /// The disk, with its data there. A link `disk.<number>` is followed as at deployment.
    Disk(&'a str),
    /// The interface or PCI device, to be attached.
    Nic,
    /// The same, to be detached.
    NicToDetach,
}

/// The XML of a device of `action`. What was left out of it is said on stderr, as lines for the log.
///
/// # Errors
/// [`Failure::Input`] when something can't be read, [`Failure::Finding`] when the device can't be had.
fn make(action: &Document, around: &Around, running: &Document, which: Which<'_>) -> Result<String, Failure> {
    let vm = VmDocument::read(action, None).map_err(|error| Failure::Input(error.to_string()))?;
    let running = RunningDomain::read(running);
    let kvmrc = device::kvmrc(
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    let defaults = around.defaults.as_deref().map(defaults).unwrap_or_default();
    let attach = Attach { vm: &vm, kvmrc: &kvmrc, defaults: &defaults, running: &running };
    let marked = device::marked_pci(&vm);
    let device = match which {
        Which::Disk(path) => {
            let resolved = domain::target_of(path);
            device::disk(&attach, resolved.as_deref().unwrap_or(path))
        }
        Which::Nic if marked.is_some() => {
            device::pci(&attach, marked.is_some_and(|pci| is_virtual_function(pci, &around.sysfs)))
        }
        Which::NicToDetach if marked.is_some() => device::pci_to_detach(&attach),
        Which::Nic | Which::NicToDetach => device::nic(&attach),
    };
    let device = device.map_err(|refusal: Refusal| Failure::Finding(refusal.to_string()))?;
    device.warnings.iter().for_each(|warning| warn(warning));
    Ok(device.to_xml())
}

/// The XML of a device of `action` that comes to the domain.
///
/// # Errors
/// As [`make`]; [`Failure::Already`] and [`Failure::Another`] when the domain has it or something else there.
pub fn to_attach(action: &Document, around: &Around, which: Which<'_>) -> Result<Vec<u8>, Failure> {
    let running = read_file(&around.running)?;
    let text = make(action, around, &running, which)?;
    let device = parse(text.clone().into_bytes(), "the device")?;
    match meet(running.root(), device.root()) {
        Meeting::There => Err(Failure::Already),
        Meeting::Another => Err(Failure::Another),
        Meeting::Absent => Ok(text.into_bytes()),
    }
}

/// The XML by which a device of `action` is detached.
///
/// # Errors
/// As [`make`].
pub fn to_detach(action: &Document, around: &Around) -> Result<Vec<u8>, Failure> {
    make(action, around, &read_file(&around.running)?, Which::NicToDetach).map(String::into_bytes)
}

fn warn(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "INFO: device: {}", text.replace('\n', "; "));
}

/// What `file` says. One that can't be read to its end fails no action on a running VM, as it fails none in oned; but it
/// is said.
fn defaults(file: &Path) -> Template {
    let name = shown(file);
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                warn(&format!("no defaults of {name} are used: {error}"));
            }
            return Template::default();
        }
    };
    let parsed = text::parse_bytes(&bytes, Level::Defaults, &name, Rules::DEFAULTS).1;
    if let Some(error) = &parsed.error {
        warn(&format!("not all defaults of {name} are used: {error}"));
    }
    parsed.template
}

/// Reads a document from a file, also one that is a pipe.
pub fn read_file(file: &Path) -> Result<Document, Failure> {
    let what = shown(file);
    let bytes = fs::read(file).map_err(|error| Failure::Input(format!("can't read {what}: {error}")))?;
    parse(bytes, &what)
}

/// Whether `pci` is a virtual function of SR-IOV: the kernel then links it to its physical one.
fn is_virtual_function(pci: Vector<'_>, sysfs: &Path) -> bool {
    let Some(address) = pci.filled("SHORT_ADDRESS") else { return false };
    let Ok(devices) = fs::read_dir(sysfs.join("bus/pci/devices")) else { return false };
    devices.flatten().any(|entry| {
        let name = entry.file_name();
        let is_it = name.to_str().is_some_and(|name| {
            name == address || name.split_once(':').is_some_and(|(_, short)| short == address)
        });
        is_it && entry.path().join("physfn").exists()
    })
}

/// How a device and a domain stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The domain has the device.
    There,
    /// The domain has nothing in its place.
    Absent,
    /// Another device is in its place.
    Another,
}

/// Whether the domain `root` has `device`: a disk by its target and source, an interface by its MAC, a PCI
/// device by its address on the host, a mediated one by its UUID. A virtual function is the same device as an
/// interface, which it is in the domain, and as a host device, by which it is detached.
#[must_use]
pub fn meet(root: &Element, device: &Element) -> Meeting {
    let all = root.children("devices").flat_map(Element::elements);
    match all.into_iter().find(|other| same_place(device, other)) {
        None => Meeting::Absent,
        Some(other) if device.name() == "disk" && source(device) != source(other) => Meeting::Another,
        Some(other) if pci_address(device) != pci_address(other) => Meeting::Another,
        Some(_) => Meeting::There,
    }
}

fn same_place(one: &Element, other: &Element) -> bool {
    let at = |element: &Element, path: &str, attribute: &str| {
        element.at(path).and_then(|found| found.attribute(attribute)).map(str::to_ascii_lowercase)
    };
    let equal = |path: &str, attribute: &str| {
        let value = at(one, path, attribute);
        value.is_some() && value == at(other, path, attribute)
    };
    match (one.name(), other.name()) {
        ("disk", "disk") => equal("target", "dev"),
        ("interface" | "hostdev", "interface" | "hostdev") => {
            equal("mac", "address")
                || equal("source/address", "uuid")
                || (pci_address(one).is_some() && pci_address(one) == pci_address(other))
        }
        _ => false,
    }
}

/// Address on the host as numbers, however it is written.
fn pci_address(device: &Element) -> Option<[u32; 4]> {
    let address = device.at("source/address")?;
    let part = |name: &str| -> Option<u32> {
        let text = address.attribute(name)?.trim();
        match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    Some([part("domain").unwrap_or(0), part("bus")?, part("slot")?, part("function")?])
}

/// Where the data of a disk are; doubled slashes make no difference.
#[must_use]
pub fn source(disk: &Element) -> Option<String> {
    let source = disk.child("source")?;
    let place = ["file", "dev", "name", "dir", "volume"].iter().find_map(|name| source.attribute(name))?;
    let names: Vec<_> = place.split('/').filter(|name| !name.is_empty()).collect();
    Some(if place.starts_with('/') { format!("/{}", names.join("/")) } else { names.join("/") })
}

/// A memory module of `size` MiB for the domain `root`, on its first NUMA cell.
///
/// # Errors
/// [`Failure::Finding`] when it has no NUMA cell.
pub fn memory(root: &Element, size: u64) -> Result<String, Failure> {
    let cell = root.at("cpu/numa/cell").and_then(|cell| cell.attribute("id")).map(str::parse::<u32>);
    let Some(Ok(cell)) = cell else {
        return Err(Failure::Finding("the domain has no NUMA cell to plug memory into".to_owned()));
    };
    Ok(format!(
        "<memory model='dimm'><target><size unit='MiB'>{size}</size><node>{cell}</node></target></memory>\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse(text).expect("a document")
    }

    fn met(domain: &str, device: &str) -> Meeting {
        let domain = parse(&format!("<domain><devices/><devices>{domain}</devices></domain>"));
        meet(domain.root(), parse(device).root())
    }

    #[test]
    fn disks_are_told_apart_by_target_and_source() {
        let disk = |target: &str, file: &str| {
            format!("<disk><source file='{file}'/><target dev='{target}'/></disk>")
        };
        let there = disk("sdaa", "/d//1");
        assert_eq!(met(&there, &disk("sdaa", "/d/1")), Meeting::There);
        assert_eq!(met(&there, &disk("sdaa", "/d/2")), Meeting::Another);
        for other in ["sda", "sdaaa", "sdab"] {
            assert_eq!(met(&there, &disk(other, "/d/1")), Meeting::Absent);
        }
        let network = "<disk><source protocol='rbd' name='p/i'/><target dev='sda'/></disk>";
        assert_eq!(met(network, network), Meeting::There);
    }

    #[test]
    fn interfaces_are_told_apart_by_mac_in_any_case() {
        let nic = |mac: &str| format!("<interface type='bridge'><mac address='{mac}'/></interface>");
        assert_eq!(met(&nic("02:00:00:00:00:0a"), &nic("02:00:00:00:00:0A")), Meeting::There);
        assert_eq!(met(&nic("02:00:00:00:00:0a"), &nic("02:00:00:00:00:0")), Meeting::Absent);
        assert_eq!(met("<interface/>", "<interface/>"), Meeting::Absent);
    }

    #[test]
    fn host_devices_are_told_apart_by_numbers_and_uuids() {
        let pci = |bus: &str| {
            format!(
                "<hostdev><source><address domain='0x0000' bus='{bus}' slot='0x00' function='0x1'/></source></hostdev>"
            )
        };
        assert_eq!(met(&pci("0x0a"), &pci("0xa")), Meeting::There);
        assert_eq!(met(&pci("0x0a"), &pci("10")), Meeting::There);
        assert_eq!(met(&pci("0x0a"), &pci("0x0b")), Meeting::Absent);
        let mdev = |uuid: &str| format!("<hostdev><source><address uuid='{uuid}'/></source></hostdev>");
        assert_eq!(met(&mdev("ab-1"), &mdev("AB-1")), Meeting::There);
        assert_eq!(met(&mdev("ab-1"), &mdev("ab-2")), Meeting::Absent);
        assert_eq!(met(&mdev("ab-1"), &pci("1")), Meeting::Absent);
    }

    #[test]
    fn a_virtual_function_is_the_same_as_interface_and_as_host_device() {
        let address = |function: u32| {
            format!(
                "<source><address type='pci' domain='0x0000' bus='0x0a' slot='0x00' function='0x{function}'/></source>"
            )
        };
        let nic = |function: u32, mac: u32| {
            format!(
                "<interface type='hostdev'><mac address='02:00:00:00:00:0{mac}'/>{}</interface>",
                address(function)
            )
        };
        let hostdev = |function: u32| format!("<hostdev type='pci'>{}</hostdev>", address(function));
        let bridge = "<interface type='bridge'><mac address='02:00:00:00:00:01'/></interface>";
        assert_eq!(met(&nic(1, 1), &nic(1, 1)), Meeting::There);
        assert_eq!(met(&nic(1, 1), &hostdev(1)), Meeting::There);
        assert_eq!(met(&hostdev(1), &nic(1, 1)), Meeting::There);
        assert_eq!(met(&nic(1, 1), &hostdev(2)), Meeting::Absent);
        assert_eq!(met(&nic(1, 1), &nic(2, 2)), Meeting::Absent);
        for other in [nic(2, 1), bridge.to_owned()] {
            assert_eq!(met(&other, &nic(1, 1)), Meeting::Another, "the MAC is another device's");
        }
        assert_eq!(met(&nic(1, 1), bridge), Meeting::Another);
    }

    #[test]
    fn a_memory_module_goes_to_the_first_cell() {
        let domain = parse("<domain><cpu><numa><cell id='3'/><cell id='4'/></numa></cpu></domain>");
        let module = memory(domain.root(), 256).expect("a module");
        let module = parse(&module);
        assert_eq!(module.root().text_at("target/size").as_deref(), Some("256"));
        assert_eq!(module.root().text_at("target/node").as_deref(), Some("3"));
        assert!(memory(parse("<domain><cpu/></domain>").root(), 1).is_err());
    }

    #[test]
    fn a_virtual_function_is_known_by_its_physical_one() {
        let sysfs = tempfile::tempdir().expect("a folder");
        let at = |name: &str| sysfs.path().join("bus/pci/devices").join(name);
        fs::create_dir_all(at("0000:01:10.2")).expect("a folder");
        fs::create_dir_all(at("0000:01:10.0")).expect("a folder");
        std::os::unix::fs::symlink("../0000:01:10.0", at("0000:01:10.2").join("physfn")).expect("a link");
        for (address, expected) in
            [("01:10.2", true), ("0000:01:10.2", true), ("01:10.0", false), ("1:10.2", false), ("", false)]
        {
            let text = format!(
                "<VM><ID>1</ID><TEMPLATE><PCI><ATTACH>YES</ATTACH><SHORT_ADDRESS>{address}</SHORT_ADDRESS></PCI></TEMPLATE></VM>"
            );
            let vm = VmDocument::read(&parse(&text), None).expect("a VM");
            let pci = device::marked_pci(&vm).expect("a device");
            assert_eq!(is_virtual_function(pci, sysfs.path()), expected, "{address}");
        }
    }
}
