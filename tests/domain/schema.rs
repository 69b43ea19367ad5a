//! What libvirt's schema says about the domains, and which of the corpus it can't accept.
#![allow(clippy::disallowed_methods)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvmad::domain::tree::Node;
use kvmad::domain::{Domain, Element, Style};
use kvmad::template::{Level, Member, Origin, Template, Value};

use crate::support::{Case, cases};

/// The domain with its several `devices` merged into the first, because the schema takes one.
fn merged(mut domain: Domain) -> String {
    let is_devices = |node: &Node| matches!(node, Node::Element(element) if element.name == "devices");
    let mut children: Vec<Node> = Vec::new();
    for node in std::mem::take(&mut domain.root.children) {
        let first = children.iter_mut().find(|node| is_devices(node));
        match (first, node) {
            (Some(Node::Element(first)), Node::Element(more)) if more.name == "devices" => {
                first.children.extend(more.children);
            }
            (_, node) => children.push(node),
        }
    }
    domain.root.children = children;
    domain.to_xml()
}

/// A value of the corpus that no schema can accept: where, when it is one, what stands in, and why.
struct StandIn {
    vector: &'static str,
    member: &'static str,
    bad: fn(&str) -> bool,
    good: &'static str,
    /// Also where the VM has no such member.
    always: bool,
}

const UUID: &str = "7cef18eb-3941-4115-8b92-629a723b5abe";

/// Markup that a domain can have many times.
const RANDOM: &str =
    "<devices><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>";

/// What libvirt knows only since versions after the schema of 9.0, with which the tests must also pass: an element
/// below a parent, or an attribute of an element.
const NEWER: &[(&str, &str)] = &[
    ("nvram", "@format"),
    ("filesystem", "idmap"),
    ("hostdev", "acpi"),
    ("features", "ras"),
    ("hostdev", "driver"),
];

fn strip_newer(element: &mut Element) -> bool {
    let mut stripped = false;
    for (_, what) in NEWER.iter().filter(|(parent, _)| *parent == element.name) {
        let before = (element.attributes.len(), element.children.len());
        match what.strip_prefix('@') {
            Some(name) => element.attributes.retain(|attribute| attribute.name != name),
            None => element.children.retain(|node| !matches!(node, Node::Element(e) if e.name == *what)),
        }
        stripped |= before != (element.attributes.len(), element.children.len());
    }
    for node in &mut element.children {
        if let Node::Element(child) = node {
            stripped |= strip_newer(child);
        }
    }
    stripped
}

fn no_number(text: &str) -> bool {
    text.trim().parse::<u32>().is_err()
}

fn not_positive(text: &str) -> bool {
    text.trim().parse::<u32>().unwrap_or(0) < 1
}

fn no_path(text: &str) -> bool {
    !text.starts_with('/')
}

const fn replace(
    vector: &'static str,
    member: &'static str,
    bad: fn(&str) -> bool,
    good: &'static str,
) -> StandIn {
    StandIn { vector, member, bad, good, always: false }
}

const fn need(
    vector: &'static str,
    member: &'static str,
    bad: fn(&str) -> bool,
    good: &'static str,
) -> StandIn {
    StandIn { vector, member, bad, good, always: true }
}

const STAND_INS: &[StandIn] = &[
    // Shapes of values.
    replace("NIC", "MAC", |v| v == "02:00", "02:00:00:00:00:01"),
    replace("OS", "UUID", |v| v == "u-1", UUID),
    replace("DISK", "CEPH_SECRET", |v| v == "cs", UUID),
    replace("DISK", "LUKS_SECRET", |v| v == "lk", UUID),
    replace("PCI", "UUID", |v| v == "uu", UUID),
    replace("OS", "SD_DISK_BUS", |v| v == "bogus", "scsi"),
    replace("DISK", "TARGET", |v| matches!(v, "sd" | "s" | "sdA"), "sdc"),
    // The schema takes targets of two digits; libvirt itself takes 255.
    replace("DISK", "TARGET", |v| v == "sdiv", "sdd"),
    need("NUMA_NODE", "MEMORY", no_number, "1024"),
    replace("", "VCPU", no_number, "2"),
    replace("", "VCPU_MAX", no_number, "2"),
    replace("TOPOLOGY", "SOCKETS", not_positive, "1"),
    replace("TOPOLOGY", "CORES", not_positive, "1"),
    replace("TOPOLOGY", "THREADS", not_positive, "1"),
    // Distances begin at 10.
    replace("NUMA_NODE", "DISTANCE", |_| true, "0-1:15"),
    // What the protocols need: a host, for some exactly one.
    need("DISK", "SHEEPDOG_HOST", |_| true, "s1:7"),
    need("DISK", "ISCSI_HOST", |_| true, "i1"),
    need("DISK", "GLUSTER_HOST", str::is_empty, "g1"),
    // A shared folder has a path and a tag.
    need("DISK", "SOURCE", no_path, "/a/b"),
    need("DISK", "MOUNT_TAG", str::is_empty, "tag"),
    // Markup of the corpus that libvirt does not know, or that a domain can have only once.
    replace("RAW", "DATA", |_| true, RANDOM),
    replace("", "RAW", |_| true, RANDOM),
    replace("", "HYPERV_TIMERS", |v| v.contains("'q'"), "<timer name='rtc'/>"),
    replace("IOMMU", "OPTIONS", |_| true, "intremap=on"),
    // Sound models are words that libvirt knows.
    replace("", "SPICE_OPTIONS", |v| v.contains("'s'"), "<sound model='ich6'/>"),
];

fn stand_in(template: &mut Template, is_vm: bool) {
    for attribute in template.attributes_mut() {
        match &mut attribute.value {
            Value::Single(value) => {
                for rule in
                    STAND_INS.iter().filter(|rule| rule.vector.is_empty() && rule.member == attribute.name)
                {
                    if !value.is_empty() && (rule.bad)(value) {
                        *value = rule.good.to_owned();
                    }
                }
            }
            Value::Vector(members) => {
                for rule in STAND_INS.iter().filter(|rule| rule.vector == attribute.name) {
                    let member = members.iter_mut().find(|member| member.name == rule.member);
                    match member {
                        Some(member) if member.value.is_empty() && !rule.always => {}
                        Some(member) if (rule.bad)(&member.value) => member.value = rule.good.to_owned(),
                        None if rule.always && is_vm => members.push(Member {
                            name: rule.member.to_owned(),
                            value: rule.good.to_owned(),
                            origin: Origin::of(Level::Vm),
                        }),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Whether libvirt's schema accepts `xml`.
fn accepts(xml: &str) -> bool {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(xml.as_bytes()).expect("written");
    let path = file.path();
    let output =
        Command::new("virt-xml-validate").arg(path).arg("domain").output().expect("virt-xml-validate");
    output.status.success()
}

/// The first thing that is wrong with the case in `folder`.
fn fault(folder: &Path) -> Option<String> {
    let read = || {
        let mut case = Case::read(folder).with(Style::Mended);
        case.options.check_firmware = false;
        case
    };
    let Ok(domain) = read().generate() else {
        return (!folder.join("refused.txt").exists()).then(|| "refused".to_owned());
    };
    let as_it_is = merged(domain);
    if accepts(&as_it_is) {
        return None;
    }
    // What the schema refused must be one of the values that nobody can accept, or newer than the schema.
    let mut case = read();
    if folder.parent().is_some_and(|parent| parent.ends_with("generated")) {
        for template in [&mut case.vm.template, &mut case.defaults, &mut case.host, &mut case.cluster] {
            let is_vm = template.attributes().first().is_some_and(|a| a.origin.level == Level::Vm);
            stand_in(template, is_vm);
        }
    }
    let mut domain = case.generate().expect("as before");
    strip_newer(&mut domain.root);
    let xml = merged(domain);
    (!accepts(&xml)).then_some(xml)
}

#[test]
#[ignore = "needs virt-xml-validate (libvirt-clients, libxml2-utils): make test"]
fn the_schema_accepts_what_it_can() {
    let cases = cases();
    let faults: Vec<String> = std::thread::scope(|scope| {
        let parts: Vec<_> = cases
            .chunks(cases.len().div_ceil(2))
            .map(|part| {
                scope.spawn(move || {
                    let wrong =
                        |folder: &PathBuf| fault(folder).map(|f| format!("{}: {f}", folder.display()));
                    part.iter().filter_map(wrong).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

#[test]
#[ignore = "needs virt-xml-validate (libvirt-clients, libxml2-utils): make test"]
fn the_schema_refuses_what_is_wrong() {
    let folder = crate::support::corpus().join("oned-7.4/01_minimal.stock");
    let mut domain = Case::read(&folder).with(Style::Mended).generate().expect("a domain");
    assert!(accepts(&merged(domain.clone())));
    domain.root.push(Element::new("bogus"));
    assert!(!accepts(&merged(domain)));
}
