//! What must hold for any template: no panic, well-formed XML, and no value that becomes markup.

use kvmad::domain::tree::Node;
use kvmad::domain::{Element, Inputs, Options, Refusal, Style, generate};
use kvmad::template::document::VmDocument;
use kvmad::template::xml::{self, Document};
use kvmad::template::{Attribute, Level, Member, Origin, Template, Value};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

/// Everything the generator looks at, and some that it doesn't.
const KEYS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "CPU",
            "MEMORY",
            "MEMORY_MAX",
            "MEMORY_RESIZE_MODE",
            "MEMORY_SLOTS",
            "VCPU",
            "VCPU_MAX",
            "EMULATOR",
        ],
    ),
    (
        "",
        &[
            "EVC_MODE",
            "MEMORY_TUNE_OFFSET",
            "CGROUPS_VERSION",
            "EMULATOR_CPUS",
            "Q35_ROOT_PORTS",
            "Q35_NUMA_PCIE",
        ],
    ),
    (
        "OS",
        &["ARCH", "MACHINE", "UUID", "KERNEL", "INITRD", "BOOTLOADER", "ROOT", "KERNEL_CMD", "SD_DISK_BUS"],
    ),
    ("OS", &["FIRMWARE", "FIRMWARE_FORMAT", "FIRMWARE_SECURE", "ARCH", "MACHINE"]),
    ("CPU_MODEL", &["MODEL", "FEATURES"]),
    ("TPM", &["MODEL"]),
    ("FEATURES", &["PAE", "ACPI", "APIC", "HYPERV", "LOCALTIME", "GUEST_AGENT", "RAS", "GIC", "PCIHOLE64"]),
    ("FEATURES", &["VIRTIO_SCSI_QUEUES", "VIRTIO_BLK_QUEUES", "IOTHREADS", "ACPI"]),
    ("GRAPHICS", &["TYPE", "LISTEN", "PASSWD", "KEYMAP", "RANDOM_PASSWD", "PORT"]),
    ("VIDEO", &["TYPE", "RESOLUTION", "IOMMU", "ATS", "VRAM"]),
    ("INPUT", &["TYPE", "BUS"]),
    ("IOMMU", &["MODEL", "MODE"]),
    (
        "TOPOLOGY",
        &["PIN_POLICY", "NODE_AFFINITY", "HUGEPAGE_SIZE", "MEMORY_ACCESS", "SOCKETS", "CORES", "THREADS"],
    ),
    ("NUMA_NODE", &["TOTAL_CPUS", "CPUS", "MEMORY", "MEMORY_NODE_ID", "DISTANCE"]),
    (
        "DISK",
        &[
            "TYPE",
            "DISK_TYPE",
            "DISK_ID",
            "TARGET",
            "READONLY",
            "SHAREABLE",
            "CLONE",
            "SOURCE",
            "SERIAL",
            "ORDER",
        ],
    ),
    (
        "DISK",
        &["TYPE", "DISK_ID", "TARGET", "CEPH_HOST", "CEPH_USER", "CEPH_SECRET", "POOL_NAME", "LUKS_SECRET"],
    ),
    (
        "DISK",
        &[
            "TYPE",
            "DISK_ID",
            "TARGET",
            "ISCSI_IQN",
            "ISCSI_HOST",
            "ISCSI_USER",
            "ISCSI_USAGE",
            "SHEEPDOG_HOST",
        ],
    ),
    (
        "DISK",
        &["TYPE", "DISK_ID", "TARGET", "GLUSTER_VOLUME", "GLUSTER_HOST", "CACHE", "IO", "DISCARD", "DRIVER"],
    ),
    (
        "DISK",
        &[
            "TYPE",
            "DISK_ID",
            "TARGET",
            "IOTHREAD",
            "VIRTIO_BLK_QUEUES",
            "TOTAL_BYTES_SEC",
            "READ_IOPS_SEC_MAX",
        ],
    ),
    ("DISK", &["TYPE", "DISK_ID", "MOUNT_TAG", "UID_MAP", "SIZE_IOPS_SEC", "WRITE_IOPS_SEC", "SOURCE"]),
    (
        "NIC",
        &[
            "BRIDGE",
            "BRIDGE_TYPE",
            "NETWORK_MODE",
            "MAC",
            "TARGET",
            "ORDER",
            "SCRIPT",
            "MODEL",
            "VIRTIO_QUEUES",
        ],
    ),
    (
        "NIC",
        &["IP", "FILTER", "VROUTER_IP", "INBOUND_AVG_BW", "INBOUND_PEAK_KB", "OUTBOUND_PEAK_BW", "BRIDGE"],
    ),
    (
        "PCI",
        &["DOMAIN", "BUS", "SLOT", "FUNCTION", "UUID", "MDEV_MODE", "IOMMUFD", "ACPI_NODES", "VM_BUS_INDEX"],
    ),
    (
        "PCI",
        &[
            "DOMAIN",
            "BUS",
            "SLOT",
            "FUNCTION",
            "VM_DOMAIN",
            "VM_BUS",
            "VM_SLOT",
            "VM_FUNCTION",
            "ROOT",
            "IOMMU",
        ],
    ),
    ("PCI", &["VENDOR", "DEVICE", "CLASS", "NUMA_NODE", "ROOT"]),
    ("CONTEXT", &["TARGET", "DISK_ID"]),
    ("MEMORY_ENCRYPTION", &["TYPE"]),
];

/// Where markup is meant.
const MARKUP: &[&str] = &["HYPERV_OPTIONS", "HYPERV_TIMERS", "SPICE_OPTIONS", "RAW"];

const WORDS: &[&str] = &[
    "",
    "yes",
    "no",
    "YES",
    "auto",
    "1",
    "2",
    "4",
    "0",
    "-1",
    "1024",
    "7k",
    " 3",
    "4294967296",
    "99999999999999999999",
    "q35",
    "pc",
    "virt",
    "x86_64",
    "aarch64",
    "UEFI",
    "BIOS",
    "/x/OVMF.fd",
    "qcow2",
    "vda",
    "sda",
    "sdb",
    "hda",
    "sdaa",
    "FILE",
    "BLOCK",
    "RBD",
    "CDROM",
    "RBD_CDROM",
    "ISCSI",
    "SHEEPDOG",
    "GLUSTER",
    "FILESYSTEM",
    "fs",
    "swap",
    "virtio",
    "vnc",
    "spice",
    "none",
    "1024x768",
    "openvswitch",
    "openvswitch_dpdk",
    "br0",
    "CORE",
    "SHARED",
    "HOTPLUG",
    "SEV",
    "SEV-ES",
    "single",
    "device",
    "dedicated",
    "nvidia",
    "host-passthrough",
    "0-1:20,2:30",
    "1,2,3",
    "h1:1 h2",
    "a/b/c",
    "<i>x</i>",
    "'/><evil a='b",
    "&lt;x&gt;",
    "&amp;",
    "&",
    "]]>",
    "<!--",
    "\"'",
    "a\nb\tc\r\nd",
    "é\u{1f600}",
    "&#10;",
];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(WORDS).prop_map(str::to_owned),
        1 => "[ -~\n\t\u{e9}]{0,12}",
        1 => ".{0,8}",
    ]
}

fn attribute(level: Level) -> impl Strategy<Value = Attribute> {
    (prop::sample::select(KEYS), prop::collection::vec(value(), 10), any::<u16>()).prop_map(
        move |((vector, names), values, mask)| {
            let origin = Origin::of(level);
            let mut pairs = names.iter().zip(values).enumerate();
            if vector.is_empty() {
                let at = usize::from(mask) % names.len();
                let (name, value) = pairs.nth(at).expect("one of them").1;
                return Attribute { name: (*name).to_owned(), value: Value::Single(value), origin };
            }
            // Mostly a disk that is none is refused for that; most are to be good in this.
            let repaired = |name: &str, value: String| match name {
                "DISK_ID" if mask & 0x7000 != 0 => "3".to_owned(),
                "TARGET" if mask & 0x3000 != 0 && value.is_empty() => "vdx".to_owned(),
                _ => value,
            };
            let members = pairs
                .filter(|(at, _)| *at < 3 || mask & (1 << at) != 0)
                .map(|(_, (name, value))| Member {
                    name: (*name).to_owned(),
                    value: repaired(name, value),
                    origin: origin.clone(),
                })
                .collect();
            Attribute { name: (*vector).to_owned(), value: Value::Vector(members), origin }
        },
    )
}

fn single(level: Level, name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: Value::Single(value.to_owned()), origin: Origin::of(level) }
}

fn os(level: Level) -> Attribute {
    let member = |name: &str, value: &str| Member {
        name: name.to_owned(),
        value: value.to_owned(),
        origin: Origin::of(level),
    };
    let members = vec![member("ARCH", "x86_64"), member("MACHINE", "q35")];
    Attribute { name: "OS".to_owned(), value: Value::Vector(members), origin: Origin::of(level) }
}

/// A VM's template and a defaults file that often give a domain.
fn templates() -> impl Strategy<Value = (Vec<Attribute>, Vec<Attribute>)> {
    (
        prop::collection::vec(attribute(Level::Vm), 0..14),
        prop::collection::vec(attribute(Level::Defaults), 0..6),
    )
        .prop_map(|(mut vm, mut defaults)| {
            vm.push(single(Level::Vm, "MEMORY", "512"));
            defaults.push(os(Level::Defaults));
            (vm, defaults)
        })
}

fn make(vm: &[Attribute], defaults: &[Attribute], style: Style) -> Result<kvmad::domain::Domain, Refusal> {
    let document = VmDocument {
        id: 7,
        name: "a <name> & 'more'".to_owned(),
        ds_id: Some(100),
        template: vm.iter().cloned().collect(),
        ..VmDocument::default()
    };
    let (defaults, nothing): (Template, Template) = (defaults.iter().cloned().collect(), Template::new());
    let options =
        Options { style, check_firmware: false, random_password: "0".repeat(64), ..Options::default() };
    generate(&Inputs {
        vm: &document,
        defaults: &defaults,
        host: &nothing,
        cluster: &nothing,
        options: &options,
    })
}

/// Whether the tree and what a reader makes of its text are the same.
fn same(made: &Element, read: &xml::Element) -> bool {
    let attributes = made.attributes.len() == read.attributes().len()
        && made
            .attributes
            .iter()
            .zip(read.attributes())
            .all(|(a, (name, value))| a.name == *name && a.value == *value);
    let elements: Vec<&Element> = made.elements().collect();
    let others: Vec<&xml::Element> = read.elements().collect();
    let has_text = made.children.iter().any(|node| matches!(node, Node::Text { .. }));
    // A reader makes one line end of CR LF; the writer keeps CR as a reference, so texts are the same.
    made.name == read.name()
        && attributes
        && (!has_text || !elements.is_empty() || made.content() == read.text())
        && elements.len() == others.len()
        && elements.iter().zip(others).all(|(made, read)| same(made, read))
}

/// Names of elements and attributes only.
fn skeleton(element: &Element, out: &mut String) {
    out.push_str(&element.name);
    for attribute in &element.attributes {
        out.push_str(" @");
        out.push_str(&attribute.name);
    }
    out.push('(');
    for child in element.elements() {
        skeleton(child, out);
    }
    out.push(')');
}

fn without_markup(attributes: &[Attribute]) -> Vec<Attribute> {
    let plain = |value: &mut String| *value = value.replace(['<', '>', '&', '\'', '"'], "Q");
    let mut attributes = attributes.to_vec();
    for attribute in &mut attributes {
        match &mut attribute.value {
            Value::Single(value) => plain(value),
            Value::Vector(members) => members.iter_mut().for_each(|member| plain(&mut member.value)),
        }
    }
    attributes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_template_gives_well_formed_xml_or_a_reason((vm, defaults) in templates(), markup in value(), which in 0..4usize) {
        let mut defaults = defaults;
        defaults.push(single(Level::Defaults, MARKUP[which], &markup));
        for style in [Style::Mended, Style::AsOpenNebula] {
            match make(&vm, &defaults, style) {
                Ok(domain) => {
                    let xml = domain.to_xml();
                    let read = Document::parse(xml.as_str()).map_err(|e| TestCaseError::fail(format!("{e}\n{xml}")))?;
                    prop_assert!(same(&domain.root, read.root()), "{}", xml);
                }
                Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn no_value_adds_an_element_or_an_attribute((vm, defaults) in templates()) {
        for style in [Style::Mended, Style::AsOpenNebula] {
            let plain = make(&without_markup(&vm), &without_markup(&defaults), style);
            let (Ok(made), Ok(plain)) = (make(&vm, &defaults, style), plain) else { continue };
            let (mut one, mut other) = (String::new(), String::new());
            skeleton(&made.root, &mut one);
            skeleton(&plain.root, &mut other);
            prop_assert_eq!(one, other);
        }
    }
}

/// The generator above must not be one that makes refusals only.
#[test]
fn most_random_templates_give_a_domain() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut made = 0;
    for _ in 0..300 {
        let (vm, defaults) = templates().new_tree(&mut runner).expect("a template").current();
        made += usize::from(make(&vm, &defaults, Style::AsOpenNebula).is_ok());
    }
    assert!(made > 100, "{made} of 300");
}

#[test]
fn markup_in_a_value_is_that_value() {
    let member = |name: &str, value: &str| Member {
        name: name.to_owned(),
        value: value.to_owned(),
        origin: Origin::of(Level::Vm),
    };
    let evil = "<i>x</i>'/><evil a='b";
    let members =
        vec![member("DISK_ID", "0"), member("TARGET", "vda"), member("SERIAL", evil), member("CACHE", evil)];
    let disk =
        Attribute { name: "DISK".to_owned(), value: Value::Vector(members), origin: Origin::of(Level::Vm) };
    let xml = make(&[disk, single(Level::Vm, "MEMORY", "1")], &[os(Level::Defaults)], Style::AsOpenNebula)
        .expect("a domain")
        .to_xml();
    assert!(!xml.contains("<i>") && !xml.contains("<evil"), "{xml}");
    let read = Document::parse(xml).expect("well-formed");
    let disk = read.root().at("devices/disk").expect("the disk");
    assert_eq!(disk.text_at("serial").as_deref(), Some(evil));
    assert_eq!(disk.child("driver").and_then(|d| d.attribute("cache")), Some(evil));
}

#[test]
fn a_character_that_xml_cant_hold_is_refused_with_its_place() {
    let name = single(Level::Vm, "EMULATOR", "/usr/bin/\u{1}");
    let refused = make(&[name, single(Level::Vm, "MEMORY", "1")], &[os(Level::Defaults)], Style::Mended);
    let text = refused.expect_err("refused").to_string();
    assert!(
        text.contains("/domain/devices/emulator") && text.contains("U+0001") && text.contains("EMULATOR"),
        "{text}"
    );
}
