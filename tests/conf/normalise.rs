//! VM documents made from templates, beside those that a running `oned` 7.4 made from the same ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kvmad::template::document::VmDocument;
use kvmad::template::normalise::{Surroundings, SystemDatastore, normalise};
use kvmad::template::text::{Rules, parse};
use kvmad::template::xml::Document;
use kvmad::template::{Level, Member, Origin, Template, Value};

/// Attributes that `oned` makes for its scheduler and its network drivers, or from how the VM was submitted.
const NOT_OURS: [&str; 6] = [
    "AUTOMATIC_REQUIREMENTS",
    "AUTOMATIC_DS_REQUIREMENTS",
    "AUTOMATIC_NIC_REQUIREMENTS",
    "SECURITY_GROUP_RULE",
    "SUBMIT_ON_HOLD",
    "VMID",
];

/// What images, networks, datastores and the scheduler decide, which a template does not know.
const DECIDED_ELSEWHERE: [&str; 67] = [
    "ALLOW_ORPHANS",
    "AR_ID",
    "BRIDGE",
    "BRIDGE_TYPE",
    "CEPH_HOST",
    "CEPH_SECRET",
    "CEPH_USER",
    "CLONE",
    "CLONE_TARGET",
    "CLUSTER_ID",
    "CPUS",
    "DATASTORE",
    "DATASTORE_ID",
    "DISK_SNAPSHOT_TOTAL_SIZE",
    "DISK_TYPE",
    "DNS",
    "DRIVER",
    "FILES_DS",
    "FORMAT",
    "GATEWAY",
    "GLUSTER_HOST",
    "GLUSTER_VOLUME",
    "IMAGE_ID",
    "IMAGE_STATE",
    "IP",
    "ISCSI_HOST",
    "ISCSI_IQN",
    "ISCSI_USAGE",
    "ISCSI_USER",
    "LN_TARGET",
    "MAC",
    "MEMORY_NODE_ID",
    "MOUNT_TAG",
    "NETWORK_ID",
    "NODE_ID",
    "NUMA_NODE",
    "ORIGINAL_SIZE",
    "PERSISTENT",
    "PERSISTENT_SNAPSHOTS",
    "PHYDEV",
    "POOL_NAME",
    "READONLY",
    "SAVE",
    "SECURITY_GROUPS",
    "SHAREABLE",
    "SIZE",
    "SOURCE",
    "TM_MAD",
    "UUID",
    "VLAN_ID",
    "VN_MAD",
    "FILTER",
    "INBOUND_AVG_BW",
    "OUTBOUND_PEAK_KB",
    "PASSWD",
    "MOUNT_POINT",
    "VM_BUS_INDEX",
    "INITRD_DS_CLUSTER_ID",
    "INITRD_DS_DSID",
    "INITRD_DS_ID",
    "INITRD_DS_SOURCE",
    "INITRD_DS_TM",
    "KERNEL_DS_CLUSTER_ID",
    "KERNEL_DS_DSID",
    "KERNEL_DS_ID",
    "KERNEL_DS_SOURCE",
    "KERNEL_DS_TM",
];

/// Parts of host and guest addresses of PCI devices: decided when the VM is placed.
const ADDRESSES: [&str; 14] = [
    "ADDRESS",
    "BUS",
    "DOMAIN",
    "FUNCTION",
    "SLOT",
    "SHORT_ADDRESS",
    "CLASS",
    "DEVICE",
    "VENDOR",
    "VM_ADDRESS",
    "VM_BUS",
    "VM_DOMAIN",
    "VM_FUNCTION",
    "VM_SLOT",
];

type Flat = BTreeMap<String, Vec<String>>;

/// Attributes by name; vectors as `DISK.TARGET=vda`, without what `left_out` names.
fn flat(template: &Template, left_out: &[&str]) -> Flat {
    let mut all = Flat::new();
    for attribute in template.attributes() {
        if NOT_OURS.contains(&attribute.name.as_str()) {
            continue;
        }
        let value = match &attribute.value {
            Value::Single(text) => text.clone(),
            Value::Vector(members) => {
                let kept = members
                    .iter()
                    .filter(|m| !left_out.contains(&m.name.as_str()) && !m.name.starts_with("ETH"));
                kept.map(|m| format!("{}={}", m.name, m.value)).collect::<Vec<_>>().join(" ")
            }
        };
        all.entry(attribute.name.clone()).or_default().push(value);
    }
    all
}

fn set(members: &mut Vec<Member>, name: &str, value: &str) {
    if !members.iter().any(|member| member.name == name) {
        members.push(Member { name: name.into(), value: value.into(), origin: Origin::of(Level::Vm) });
    }
}

/// Writes into a template what images are and what their owner's datastore says: TYPE and DEV_PREFIX, which
/// decide the targets.
fn tell_images(template: &mut Template, expected: &Template) {
    let disks: Vec<_> = expected.vectors("DISK").collect();
    let written = template.attributes_mut().iter_mut().filter(|attribute| attribute.name == "DISK");
    for (attribute, disk) in written.zip(disks) {
        let Value::Vector(members) = &mut attribute.value else { continue };
        if disk.get("IMAGE").is_some() {
            set(members, "IMAGE", disk.get("IMAGE").unwrap_or(""));
            members.retain(|member| member.name != "TYPE");
            set(members, "TYPE", disk.get("TYPE").unwrap_or(""));
        }
    }
}

fn compare(case: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(case.join(name)).map_err(|e| format!("{name}: {e}"));
    let action = Document::parse(read("action.xml")?).map_err(|e| e.to_string())?;
    let expected = VmDocument::read(&action, None).map_err(|e| e.to_string())?;
    let history = action.root().at("VM/HISTORY_RECORDS/HISTORY").ok_or("a history record")?;
    let datastore = action.root().child("DATASTORE").ok_or("a datastore")?;
    let text = |path: &str| datastore.text_at(path).unwrap_or_default();
    let defaults = parse(&read("defaults.conf")?, Level::Defaults, "defaults.conf", Rules::DEFAULTS).template;
    let around = Surroundings {
        vm_id: expected.id,
        host: (history.text_at("HOSTNAME").unwrap_or_default(), 0),
        datastore: SystemDatastore {
            id: expected.ds_id.unwrap_or(0),
            name: text("NAME"),
            base_path: text("BASE_PATH"),
            tm_mad: text("TM_MAD"),
            disk_type: text("TEMPLATE/DISK_TYPE"),
            driver: None,
        },
        machine: defaults.vector("OS").and_then(|os| os.get("MACHINE")).map(str::to_owned),
        ..Surroundings::default()
    };
    let mut written = parse(&read("template.txt")?, Level::Vm, "template.txt", Rules::TEMPLATE).template;
    tell_images(&mut written, &expected.template);
    let made = normalise(&written, &around).map_err(|refused| format!("refused: {refused}"))?;
    let left_out: Vec<&str> = DECIDED_ELSEWHERE.iter().chain(&ADDRESSES).copied().collect();
    let (mut ours, mut theirs) = (flat(&made.vm.template, &left_out), flat(&expected.template, &left_out));
    ours.remove("NUMA_NODE");
    theirs.remove("NUMA_NODE");
    if case.ends_with("17_numa_thread_hugepages.stock") {
        // The scheduler gives a VM that is pinned to threads as many of them per core as the host has.
        ours.remove("TOPOLOGY");
        theirs.remove("TOPOLOGY");
    }
    if ours == theirs { Ok(()) } else { Err(format!("\n ours   {ours:?}\n theirs {theirs:?}")) }
}

#[test]
fn templates_become_the_documents_that_oned_made_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain/oned-7.4");
    let mut cases: Vec<_> = fs::read_dir(folder).expect("the corpus").filter_map(Result::ok).collect();
    cases.sort_by_key(std::fs::DirEntry::file_name);
    assert_eq!(cases.len(), 48);
    let mut wrong = Vec::new();
    for case in cases {
        if let Err(why) = compare(&case.path()) {
            wrong.push(format!("{}: {why}", case.file_name().display()));
        }
    }
    assert!(wrong.is_empty(), "{} of 48\n{}", wrong.len(), wrong.join("\n"));
}
