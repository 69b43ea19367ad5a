//! PCI devices that may be handed to VMs: those that `etc/im/kvm-probes.d/pci.conf` lets through.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha1::{Digest as _, Sha1};

use super::super::text::quoted;
use crate::node::root::Root;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA_VFS: &str = "NVIDIA virtual GPU";

/// pci.conf.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// `vendor:device[:class]`, hexadecimal, empty or `*` for any; commas separate several. `0:0` lets none through.
    #[serde(rename = ":filter")]
    filter: Texts,
    /// Only devices with these short addresses, when there are any.
    #[serde(rename = ":short_address")]
    short_address: Texts,
    /// Only devices whose name matches one of these expressions, when there are any.
    #[serde(rename = ":device_name")]
    device_name: Texts,
    /// Vendors whose devices are treated as NVIDIA's.
    #[serde(rename = ":nvidia_vendors")]
    nvidia_vendors: Texts,
}

/// One text or a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
enum Texts {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl Texts {
    fn all(&self) -> Vec<&str> {
        let each: Vec<&str> = match self {
            Self::None => Vec::new(),
            Self::One(text) => vec![text],
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        };
        each.into_iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect()
    }
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Device {
    /// As sysfs names it: `0000:07:00.1`.
    name: String,
    vendor: String,
    device: String,
    class: String,
}

impl Filter {
    /// Reads pci.conf; an empty text lets nothing through.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| format!("pci.conf can't be read: {error}"))
    }

    fn matches(&self, device: &Device) -> bool {
        self.filter.all().iter().any(|filter| {
            let mut parts = filter.split(':').map(str::trim);
            let same = |wanted: Option<&str>, own: &str| match wanted {
                None | Some("" | "*") => true,
                Some(wanted) => match (u32::from_str_radix(wanted, 16), u32::from_str_radix(own, 16)) {
                    (Ok(wanted), Ok(own)) => wanted == own,
                    _ => false,
                },
            };
            same(parts.next(), &device.vendor)
                && same(parts.next(), &device.device)
                && same(parts.next(), &device.class)
        })
    }

    fn is_nvidia(&self, device: &Device) -> bool {
        let told = self.nvidia_vendors.all();
        if told.is_empty() { device.vendor == "10de" } else { told.contains(&device.vendor.as_str()) }
    }
}

/// PCI blocks of all devices that the filter lets through.
///
/// # Errors
/// When an expression in `:device_name` can't be read.
pub fn attributes(root: &Root, filter: &Filter, text: &mut String) -> Result<(), String> {
    let expressions = filter
        .device_name
        .all()
        .into_iter()
        .map(|source| {
            let builder = regex_lite::RegexBuilder::new(source).case_insensitive(true).build();
            builder.map_err(|error| format!("pci.conf: :device_name {source:?}: {error}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let wanted: Vec<Device> = devices(root).into_iter().filter(|device| filter.matches(device)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let ids = Ids::read(root, &wanted);
    let addresses = filter.short_address.all();
    for device in wanted {
        let short = device.short();
        let named = ids.device(&device);
        let known = expressions.is_empty() || expressions.iter().any(|e| e.is_match(&named));
        if known && (addresses.is_empty() || addresses.contains(&short.as_str())) {
            block(root, filter, &ids, &device, text);
        }
    }
    Ok(())
}

fn devices(root: &Root) -> Vec<Device> {
    let hex = |name: &str, file: &str| {
        let value = root.line(format!("{DEVICES}/{name}/{file}"))?;
        Some(value.strip_prefix("0x").unwrap_or(&value).to_ascii_lowercase())
    };
    let one = |name: String| {
        let (vendor, device, class) = (hex(&name, "vendor")?, hex(&name, "device")?, hex(&name, "class")?);
        let class = class.get(..4)?.to_owned();
        Some(Device { name, vendor, device, class })
    };
    root.names(DEVICES).into_iter().filter_map(one).collect()
}

impl Device {
    fn file(&self, file: &str) -> String {
        format!("{DEVICES}/{}/{file}", self.name)
    }

    /// Domain, bus, slot, function.
    fn parts(&self) -> [String; 4] {
        let mut words = self.name.split([':', '.']).map(str::to_owned);
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    fn short(&self) -> String {
        self.name.strip_prefix("0000:").unwrap_or(&self.name).to_owned()
    }
}

fn block(root: &Root, filter: &Filter, ids: &Ids, device: &Device, text: &mut String) {
    let nvidia = filter.is_nvidia(device);
    let numvfs: u64 = root.number(device.file("sriov_numvfs")).unwrap_or(0);
    if numvfs > 0 || (nvidia && root.exists(device.file("virtfn0"))) {
        return;
    }
    let [domain, bus, slot, function] = device.parts();
    let address = format!("{domain}:{bus}:{slot}:{function}");
    let numa = root.number::<i64>(device.file("numa_node")).filter(|node| *node >= 0);
    let is_vf = root.exists(device.file("physfn"));
    let total: Option<u64> = root.number(device.file("sriov_totalvfs"));
    let sriov = if is_vf {
        "vf"
    } else if total.is_some() {
        "pf"
    } else {
        "no"
    };
    let mut pairs = vec![
        ("TYPE", format!("{}:{}:{}", device.vendor, device.device, device.class)),
        ("VENDOR", device.vendor.clone()),
        ("VENDOR_NAME", ids.vendor(device)),
        ("DEVICE", device.device.clone()),
        ("CLASS", device.class.clone()),
        ("CLASS_NAME", ids.class(device)),
        ("ADDRESS", address.clone()),
        ("SHORT_ADDRESS", device.short()),
        ("DOMAIN", domain),
        ("BUS", bus),
        ("SLOT", slot),
        ("FUNCTION", function),
        ("NUMA_NODE", numa.map_or("-".to_owned(), |node| node.to_string())),
        ("IFNAME", interface(root, device)),
        ("SRIOV", sriov.to_owned()),
    ];
    if let (Some(total), false) = (total, is_vf) {
        pairs.push(("SRIOV_NUM", total.to_string()));
    }
    if nvidia && is_vf {
        pairs.push(("DEVICE_NAME", NVIDIA_VFS.to_owned()));
        pairs.push(("UUID", uuid_of(&address)));
        pairs.push(("PROFILES", profiles(root, device)));
        let legacy = root.exists(format!("/sys/class/mdev_bus/{}", device.name));
        pairs.push(("MDEV_MODE", if legacy { "legacy" } else { "nvidia" }.to_owned()));
    } else if nvidia {
        pairs.push(("DEVICE_NAME", format!("{} {}", ids.vendor(device), ids.device(device))));
    } else {
        pairs.push(("DEVICE_NAME", ids.device(device)));
    }
    let lines: Vec<String> =
        pairs.iter().map(|(name, value)| format!(" {name} = {}", quoted(value))).collect();
    text.push_str(&format!("PCI = [\n{}\n]\n", lines.join(" ,\n")));
}

/// Name of the network interface of a device: what a udev rule says it will be, what was seen before it went to a
/// VM, or what it has now (of several the one of the physical port); `-` when there is none.
fn interface(root: &Root, device: &Device) -> String {
    let rules = root.read("/etc/udev/rules.d/99-rename.rules").unwrap_or_default();
    let ruled = rules.lines().find_map(|line| {
        let words: Vec<&str> = line.strip_prefix('#')?.split_whitespace().collect();
        (words.len() >= 3 && words[0] == device.name && words[1] == "<-").then(|| words[2].to_owned())
    });
    if let Some(name) = ruled {
        return name;
    }
    let seen =
        root.line(format!("/var/tmp/one_db/pci_net_names/{}", device.name)).filter(|name| !name.is_empty());
    if let Some(name) = seen {
        return name;
    }
    let now = root.names(device.file("net"));
    let physical = |name: &&String| {
        let port = root.line(device.file(&format!("net/{name}/phys_port_name"))).unwrap_or_default();
        port.strip_prefix('p').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let name = if now.len() > 1 { now.iter().find(physical).or(now.first()) } else { now.first() };
    let Some(name) = name else { return "-".to_owned() };
    let folder = root.path("/var/tmp/one_db/pci_net_names");
    // A name that can't be kept is only forgotten when the device goes to a VM.
    let _ = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(&device.name), name));
    name.clone()
}

/// vGPU types that a virtual function offers.
fn profiles(root: &Root, device: &Device) -> String {
    let mdev = root.names(format!("/sys/class/mdev_bus/{}/mdev_supported_types", device.name));
    if !mdev.is_empty() {
        return mdev.join(",");
    }
    let text = root.read(device.file("nvidia/creatable_vgpu_types")).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| {
        let (id, name) = line.split_once(':')?;
        let id = id.trim();
        id.bytes().all(|b| b.is_ascii_digit()).then(|| format!("{id} ({})", name.trim()))
    });
    pairs.collect::<Vec<_>>().join(",")
}

/// UUID of version 5 of `text` in the X.500 namespace of RFC 4122.
fn uuid_of(text: &str) -> String {
    const X500: [u8; 16] =
        [0x6b, 0xa7, 0xb8, 0x14, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
    let hash = Sha1::new().chain_update(X500).chain_update(text).finalize();
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x50;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Names of vendors, devices and classes, from the host's pci.ids; without it the numbers.
#[derive(Debug, Default)]
struct Ids {
    vendors: BTreeMap<String, String>,
    devices: BTreeMap<(String, String), String>,
    classes: BTreeMap<String, String>,
}

impl Ids {
    /// Reads only what `wanted` needs.
    fn read(root: &Root, wanted: &[Device]) -> Self {
        let mut ids = Self::default();
        let places = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];
        let Some(text) = places.iter().find_map(|place| root.read(place)) else { return ids };
        let (mut vendor, mut class) = ("", "");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(rest) = line.strip_prefix('\t') {
                let (id, name) = rest.split_once("  ").unwrap_or((rest, ""));
                if wanted.iter().any(|d| d.vendor == vendor && d.device == id) {
                    ids.devices.insert((vendor.to_owned(), id.to_owned()), name.trim().to_owned());
                } else if wanted
                    .iter()
                    .any(|d| d.class.get(..2) == Some(class) && d.class.get(2..) == Some(id))
                {
                    ids.classes.insert(format!("{class}{id}"), name.trim().to_owned());
                }
            } else if let Some(rest) = line.strip_prefix("C ") {
                vendor = "";
                class = rest.get(..2).unwrap_or("");
            } else if let Some((id, name)) = line.split_once("  ") {
                (vendor, class) = (id, "");
                if wanted.iter().any(|d| d.vendor == id) {
                    ids.vendors.insert(id.to_owned(), name.trim().to_owned());
                }
            }
        }
        ids
    }

    fn vendor(&self, device: &Device) -> String {
        self.vendors.get(&device.vendor).cloned().unwrap_or_else(|| format!("Vendor {}", device.vendor))
    }

    fn device(&self, device: &Device) -> String {
        let key = (device.vendor.clone(), device.device.clone());
        self.devices.get(&key).cloned().unwrap_or_else(|| format!("Device {}", device.device))
    }

    fn class(&self, device: &Device) -> String {
        self.classes.get(&device.class).cloned().unwrap_or_else(|| format!("Class {}", device.class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        let device = |name: &str, vendor: &str, device: &str, class: &str| {
            let folder = dir.path().join("sys/bus/pci/devices").join(name);
            std::fs::create_dir_all(&folder).expect("made");
            for (file, value) in [("vendor", vendor), ("device", device), ("class", class)] {
                std::fs::write(folder.join(file), format!("0x{value}\n")).expect("written");
            }
            folder
        };
        let nic = device("0000:07:00.1", "8086", "1572", "020000");
        std::fs::write(nic.join("numa_node"), "-1\n").expect("written");
        std::fs::write(nic.join("sriov_totalvfs"), "8\n").expect("written");
        std::fs::create_dir_all(nic.join("net/ens7f1")).expect("made");
        let gpu = device("0000:08:00.0", "10de", "1eb8", "030200");
        std::fs::write(gpu.join("numa_node"), "1\n").expect("written");
        let vf = device("0000:08:00.4", "10de", "1eb8", "030200");
        std::fs::create_dir_all(vf.join("physfn")).expect("made");
        std::fs::create_dir_all(vf.join("nvidia")).expect("made");
        std::fs::write(vf.join("nvidia/creatable_vgpu_types"), "ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n")
            .expect("written");
        let ids = "# c\n8086  Intel Corporation\n\t1572  Ethernet \"X710\"\n\t\t1028 0000  sub\n10de  NVIDIA Corporation\n\t1eb8  TU104GL [Tesla T4]\nC 02  Network controller\n\t00  Ethernet controller\n";
        let misc = dir.path().join("usr/share/misc");
        std::fs::create_dir_all(&misc).expect("made");
        std::fs::write(misc.join("pci.ids"), ids).expect("written");
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn text(root: &Root, conf: &str) -> String {
        let mut text = String::new();
        attributes(root, &Filter::read(conf).expect("good"), &mut text).expect("read");
        assert_eq!(super::super::super::text::check(&text), Ok(()), "{text}");
        text
    }

    #[test]
    fn the_default_lets_none_through() {
        let (_dir, root) = host();
        for conf in
            ["", "# nothing\n", ":filter: '0:0'\n", ":filter: '0:0'\n:short_address: []\n:device_name: []\n"]
        {
            assert_eq!(text(&root, conf), "", "{conf}");
        }
    }

    #[test]
    fn a_device_is_told_in_the_order_of_the_attributes() {
        let (_dir, root) = host();
        let expected = "PCI = [\n TYPE = \"8086:1572:0200\" ,\n VENDOR = \"8086\" ,\n VENDOR_NAME = \"Intel Corporation\" ,\n DEVICE = \"1572\" ,\n CLASS = \"0200\" ,\n CLASS_NAME = \"Ethernet controller\" ,\n ADDRESS = \"0000:07:00:1\" ,\n SHORT_ADDRESS = \"07:00.1\" ,\n DOMAIN = \"0000\" ,\n BUS = \"07\" ,\n SLOT = \"00\" ,\n FUNCTION = \"1\" ,\n NUMA_NODE = \"-\" ,\n IFNAME = \"ens7f1\" ,\n SRIOV = \"pf\" ,\n SRIOV_NUM = \"8\" ,\n DEVICE_NAME = \"Ethernet \\\"X710\\\"\"\n]\n";
        assert_eq!(text(&root, ":filter: '*:*:0200'\n"), expected);
        // The name is remembered when the interface is gone (the device is in a VM).
        std::fs::remove_dir(root.path("/sys/bus/pci/devices/0000:07:00.1/net/ens7f1")).expect("removed");
        assert_eq!(text(&root, ":filter:\n  - '8086:1572'\n"), expected);
    }

    #[test]
    fn graphics_cards_and_their_virtual_functions_differ() {
        let (_dir, root) = host();
        let text = text(&root, ":filter: '10de:*'\n:nvidia_vendors: ['10de']\n");
        assert!(text.contains("DEVICE_NAME = \"NVIDIA Corporation TU104GL [Tesla T4]\""), "{text}");
        assert!(text.contains("PROFILES = \"1145 (NVIDIA L40S-1B)\" ,\n MDEV_MODE = \"nvidia\""), "{text}");
        assert!(text.contains("CLASS_NAME = \"Class 0302\""), "{text}");
    }

    #[test]
    fn further_filters_narrow_and_a_pf_in_use_is_left_out() {
        let (_dir, root) = host();
        assert_eq!(text(&root, ":filter: ':'\n:short_address: ['08:00.0']\n").matches("PCI = [").count(), 1);
        assert_eq!(
            text(&root, ":filter: ':,8086:1572'\n:device_name: ['tesla']\n").matches("PCI = [").count(),
            2
        );
        std::fs::write(root.path("/sys/bus/pci/devices/0000:07:00.1/sriov_numvfs"), "4\n").expect("written");
        assert_eq!(text(&root, ":filter: '8086:1572'\n"), "");
    }

    #[test]
    fn an_unreadable_configuration_is_an_error_with_a_reason() {
        assert!(Filter::read(":filter: [").expect_err("bad").starts_with("pci.conf can't be read"));
        let filter = Filter::read(":filter: ':'\n:device_name: '('\n").expect("good yaml");
        assert!(attributes(&host().1, &filter, &mut String::new()).is_err());
    }

    #[test]
    fn uuids_are_those_of_version_5() {
        // Checked with: python3 -c 'import uuid; print(uuid.uuid5(uuid.NAMESPACE_X500, "0000:41:00:4"))'
        assert_eq!(uuid_of("0000:41:00:4"), "e4042b96-e63d-56cf-bcc8-4e6eecccc12e");
    }
}
