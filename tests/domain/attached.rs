//! A device that comes to a running domain is the one that a deployment would have written for the same attributes.
//!
//! What may differ, because the domain runs, stands in docs/domain-mends.md ("Devices of running domains") and here
//! in [`may_differ`]; nothing else may. Disks, interfaces and PCI devices of the whole corpus, and a table.

use kvmad::domain::device::{self, Attach};
use kvmad::domain::{Refusal, RunningDomain, Style};
use kvmad::template::Template;
use kvmad::template::xml::{Document, Element};

use crate::compare::{Shape, add};
use crate::support::{Case, cases};

const DEFAULTS: &str = "OS=[ARCH=\"x86_64\", MACHINE=\"q35\"]\n\
    FEATURES=[VIRTIO_BLK_QUEUES=\"2\"]\n\
    DISK=[DRIVER=\"qcow2\", CACHE=\"none\", IO=\"native\", DISCARD=\"unmap\", TOTAL_IOPS_SEC=\"500\", SIZE_IOPS_SEC=\"4096\"]\n\
    NIC=[MODEL=\"virtio\", VIRTIO_QUEUES=\"3\", FILTER=\"clean-traffic\"]\n";

/// `element/path attribute=value` and `element/path text`, one for each.
fn lines(element: &Element) -> Vec<String> {
    let mut shapes = Vec::new();
    add(element, "", &mut shapes);
    let said = |shape: &Shape| {
        let mut said = vec![format!("{} {}", shape.path, shape.text)];
        said.extend(shape.attributes.iter().map(|(name, value)| format!("{} {name}={value}", shape.path)));
        said
    };
    shapes.iter().flat_map(said).collect()
}

/// The action with the device `NAME[index]` marked.
fn marked(action: &str, name: &str, index: usize) -> Option<String> {
    let tag = format!("<{name}>");
    let at = action.match_indices(&tag).nth(index)?.0 + tag.len();
    Some(format!("{}<ATTACH>YES</ATTACH>{}", &action[..at], &action[at..]))
}

fn deployed(case: &Case) -> Option<Document> {
    Some(Document::parse(case.generate().ok()?.to_xml()).expect("a domain"))
}

/// The device of the action, as it is attached to a domain without I/O threads.
fn attached(case: &Case, name: &str, path: &str) -> Result<Document, Refusal> {
    let attach = Attach {
        vm: &case.vm,
        kvmrc: &Template::new(),
        defaults: &case.defaults,
        running: &RunningDomain { has_pci_1: true, ..RunningDomain::default() },
    };
    let device = match name {
        "DISK" => device::disk(&attach, path)?,
        "NIC" => device::nic(&attach)?,
        _ => device::pci(&attach, false)?,
    };
    Ok(Document::parse(device.to_xml()).expect("a device"))
}

/// What the running domain makes different.
fn may_differ(line: &str, target: &str, cdrom: bool, volatile: bool) -> bool {
    let starts = |all: &[&str]| all.iter().any(|start| line.starts_with(start));
    // Threads go round at deployment; a domain without any gives none.
    starts(&["/disk/driver iothread="])
        // QEMU can't plug a CD-ROM on SATA or IDE; on sdX it is a SCSI one, with the address of its letters.
        || (cdrom && target.starts_with("sd") && starts(&["/disk/target bus=", "/disk/address"]))
        || (cdrom && target.starts_with("vd") && starts(&["/disk/target bus="]))
        // A bus that no level names is SCSI.
        || (target.starts_with("sd") && line == "/disk/target bus=scsi")
        // QEMU refuses a block device as a file: DISK_TYPE has a say.
        || (volatile && starts(&["/disk type=", "/disk/source"]))
        // Root ports and generic initiators are made at the start of a domain only.
        || starts(&["/hostdev/address", "/hostdev/acpi"])
}

/// Each device of `case` that is named `name`, deployed and attached; gives how many were compared.
fn compare(case: &Case, action: &str, name: &str, what: &str) -> usize {
    let Some(domain) = deployed(case) else { return 0 };
    let element = match name {
        "DISK" => "disk",
        "NIC" => "interface",
        _ => "hostdev",
    };
    let devices = domain.root().children("devices");
    let mut there = devices.flat_map(|devices| devices.children(element));
    let mut compared = 0;
    for index in 0.. {
        let Some(text) = marked(action, name, index) else { break };
        let marked = Case { vm: Case::of(&text, "", "", "").vm, ..case.clone() };
        let vector = marked.vm.template.vectors(name).nth(index).expect("the device");
        let get = |key: &str| vector.get(key).unwrap_or("").to_owned();
        let has_place = match name {
            "DISK" => get("TYPE") != "FILESYSTEM",
            "NIC" => true,
            _ => ["DOMAIN", "BUS", "SLOT", "FUNCTION"].iter().all(|part| !get(part).is_empty()),
        };
        if !has_place {
            continue;
        }
        let there = there.next().expect("a device of the domain");
        let source = there.child("source");
        let path = source.and_then(|source| source.attribute("file").or_else(|| source.attribute("dev")));
        let device = match attached(&marked, name, path.unwrap_or("/ds/disk.0")) {
            Ok(device) => device,
            Err(Refusal::NoHotplug { .. }) => continue,
            Err(refusal) => panic!("{what} {name}[{index}]: {refusal}"),
        };
        let (then, now) = (lines(there), lines(device.root()));
        let cdrom = device.root().attribute("device") == Some("cdrom")
            || ["TYPE", "DISK_TYPE"].iter().any(|kind| get(kind).ends_with("CDROM"));
        let volatile = !get("DISK_TYPE").is_empty();
        let differ: Vec<_> = then
            .iter()
            .filter(|line| !now.contains(line))
            .chain(now.iter().filter(|line| !then.contains(line)))
            .filter(|line| !may_differ(line, &get("TARGET"), cdrom, volatile))
            .collect();
        assert!(
            differ.is_empty(),
            "{what} {name}[{index}]: {differ:#?}\n deployed {then:#?}\n attached {now:#?}"
        );
        compared += 1;
    }
    compared
}

#[test]
fn devices_of_the_corpus_are_attached_as_they_are_deployed() {
    let mut compared = [0, 0, 0];
    for folder in cases() {
        let text = std::fs::read_to_string(folder.join("action.xml")).expect("an action");
        let mut case = Case::read(&folder).with(Style::Mended);
        // They have no say on a host.
        (case.host, case.cluster) = (Template::new(), Template::new());
        let what = folder.display().to_string();
        compared[0] += compare(&case, &text, "DISK", &what);
        compared[1] += compare(&case, &text, "NIC", &what);
        compared[2] += compare(&case, &text, "PCI", &what);
    }
    println!("disks, interfaces, PCI devices: {compared:?}");
    assert!(compared.iter().all(|count| *count > 20), "{compared:?}");
}

/// A VM with `device`, as the core writes it.
fn action(device: &str) -> String {
    format!(
        "<VM><ID>7</ID><UID>0</UID><GID>0</GID><NAME>n</NAME><TEMPLATE><CPU>1</CPU><VCPU>4</VCPU><MEMORY>1024</MEMORY>\
         <OS><SD_DISK_BUS>scsi</SD_DISK_BUS></OS>{device}</TEMPLATE><USER_TEMPLATE/>\
         <HISTORY_RECORDS><HISTORY><DS_ID>100</DS_ID></HISTORY></HISTORY_RECORDS></VM>"
    )
}

#[test]
fn each_kind_and_each_attribute_of_a_disk_is_attached_as_it_is_deployed() {
    let kinds = [
        "<TYPE>FILE</TYPE>",
        "<TYPE>file</TYPE><DRIVER>raw</DRIVER>",
        "<TYPE>BLOCK</TYPE>",
        "<TYPE>CDROM</TYPE>",
        "<TYPE>CDROM</TYPE><DISK_TYPE>BLOCK</DISK_TYPE>",
        "<TYPE>BLOCK_CDROM</TYPE>",
        "<TYPE>swap</TYPE><DISK_TYPE>FILE</DISK_TYPE>",
        "<TYPE>fs</TYPE><DISK_TYPE>BLOCK</DISK_TYPE>",
        "<TYPE>RBD</TYPE><SOURCE>one/one-3</SOURCE><CLONE>YES</CLONE><CEPH_HOST>a:6789 b</CEPH_HOST><CEPH_USER>u</CEPH_USER><CEPH_SECRET>s-1</CEPH_SECRET>",
        "<TYPE>RBD_CDROM</TYPE><SOURCE>one/one-3</SOURCE><CLONE>NO</CLONE><CEPH_HOST>[fe80::1]:6789</CEPH_HOST>",
        "<TYPE>fs</TYPE><DISK_TYPE>RBD</DISK_TYPE><POOL_NAME>p</POOL_NAME>",
        "<TYPE>ISCSI</TYPE><SOURCE>iqn.2026/1</SOURCE><ISCSI_HOST>h</ISCSI_HOST><ISCSI_USER>u</ISCSI_USER><ISCSI_USAGE>w</ISCSI_USAGE>",
        "<TYPE>ISCSI</TYPE><ISCSI_IQN>iqn.2026/2</ISCSI_IQN><ISCSI_HOST>h:3260</ISCSI_HOST>",
        "<TYPE>SHEEPDOG</TYPE><SOURCE>s</SOURCE><CLONE>YES</CLONE><SHEEPDOG_HOST>h:7000</SHEEPDOG_HOST>",
        "<TYPE>SHEEPDOG_CDROM</TYPE><SOURCE>s</SOURCE><CLONE>NO</CLONE>",
        "<TYPE>GLUSTER</TYPE><GLUSTER_HOST>h:24007</GLUSTER_HOST><GLUSTER_VOLUME>v</GLUSTER_VOLUME><CLONE>YES</CLONE><SOURCE>x/y</SOURCE>",
        "<TYPE>GLUSTER_CDROM</TYPE><GLUSTER_HOST>h</GLUSTER_HOST><GLUSTER_VOLUME>v</GLUSTER_VOLUME><CLONE>NO</CLONE><SOURCE>x/y</SOURCE>",
    ];
    let attributes = [
        "",
        "<CACHE>writeback</CACHE><IO>threads</IO><DISCARD>ignore</DISCARD>",
        "<SERIAL>abc-1.2_3</SERIAL><ORDER>2</ORDER>",
        "<READONLY>YES</READONLY><SHAREABLE>YES</SHAREABLE>",
        "<READONLY>yes</READONLY>",
        "<LUKS_SECRET>7cef18eb-3941-4115-8b92-629a723b5abe</LUKS_SECRET>",
        "<TOTAL_BYTES_SEC>1000</TOTAL_BYTES_SEC><TOTAL_BYTES_SEC_MAX>2000</TOTAL_BYTES_SEC_MAX><TOTAL_BYTES_SEC_MAX_LENGTH>3</TOTAL_BYTES_SEC_MAX_LENGTH>",
        "<READ_IOPS_SEC>10</READ_IOPS_SEC><WRITE_IOPS_SEC>20</WRITE_IOPS_SEC><READ_BYTES_SEC>5</READ_BYTES_SEC><SIZE_IOPS_SEC>512</SIZE_IOPS_SEC>",
        "<READ_IOPS_SEC_MAX>10</READ_IOPS_SEC_MAX><READ_IOPS_SEC_MAX_LENGTH>7</READ_IOPS_SEC_MAX_LENGTH>",
        "<VIRTIO_BLK_QUEUES>3</VIRTIO_BLK_QUEUES><IOTHREAD>1</IOTHREAD>",
        "<VIRTIO_BLK_QUEUES>auto</VIRTIO_BLK_QUEUES>",
        "<SERIAL>a'&lt;b&gt;</SERIAL><CACHE>&lt;x y='z'/&gt;</CACHE>",
    ];
    let mut compared = 0;
    for (kind, more) in kinds.iter().flat_map(|kind| attributes.map(|more| (kind, more))) {
        for target in ["vdb", "vdad", "sda", "sdad"] {
            let disk = format!("<DISK><DISK_ID>3</DISK_ID><TARGET>{target}</TARGET>{kind}{more}</DISK>");
            let text = action(&disk);
            let case = Case::of(&text, DEFAULTS, "", "").with(Style::Mended);
            compared += compare(&case, &text, "DISK", &disk);
        }
    }
    assert_eq!(compared, kinds.len() * attributes.len() * 4, "each was deployed and attached");
}

#[test]
fn each_kind_and_each_attribute_of_an_interface_is_attached_as_it_is_deployed() {
    let kinds = [
        "<BRIDGE>br0</BRIDGE><BRIDGE_TYPE>linux</BRIDGE_TYPE>",
        "<BRIDGE>br0</BRIDGE>",
        "<BRIDGE>ovs0</BRIDGE><BRIDGE_TYPE>openvswitch</BRIDGE_TYPE>",
        "<BRIDGE>ovs0</BRIDGE><BRIDGE_TYPE>openvswitch_dpdk</BRIDGE_TYPE>",
        "<BRIDGE>br0</BRIDGE><NETWORK_MODE>dummy</NETWORK_MODE>",
        "",
    ];
    let attributes = [
        "",
        "<MODEL>e1000</MODEL><ORDER>1</ORDER>",
        "<MODEL>virtio</MODEL><VIRTIO_QUEUES>2</VIRTIO_QUEUES>",
        "<VIRTIO_QUEUES>auto</VIRTIO_QUEUES>",
        "<IP>10.0.0.1</IP>",
        "<IP>10.0.0.1</IP><VROUTER_IP>10.0.0.2</VROUTER_IP><FILTER>mine</FILTER>",
        "<INBOUND_AVG_BW>1</INBOUND_AVG_BW><INBOUND_PEAK_BW>2</INBOUND_PEAK_BW><INBOUND_PEAK_KB>3</INBOUND_PEAK_KB>",
        "<OUTBOUND_AVG_BW>1</OUTBOUND_AVG_BW><OUTBOUND_PEAK_KB>3</OUTBOUND_PEAK_KB><SCRIPT>/s</SCRIPT>",
        "<FILTER>a'&lt;b&gt;</FILTER><IP>1</IP>",
    ];
    let mut compared = 0;
    for (kind, more) in kinds.iter().flat_map(|kind| attributes.map(|more| (kind, more))) {
        let nic = format!(
            "<NIC><NIC_ID>1</NIC_ID><MAC>02:00:00:00:00:01</MAC><TARGET>one-7-1</TARGET>{kind}{more}</NIC>"
        );
        let text = action(&nic);
        let case = Case::of(&text, DEFAULTS, "", "").with(Style::Mended);
        compared += compare(&case, &text, "NIC", &nic);
    }
    assert_eq!(compared, kinds.len() * attributes.len());
}

#[test]
fn a_difference_that_is_not_listed_is_found() {
    let text = action("<DISK><DISK_ID>3</DISK_ID><TARGET>vdb</TARGET><TYPE>FILE</TYPE></DISK>");
    let case = Case::of(&text, DEFAULTS, "", "").with(Style::Mended);
    let other = text.replace("<TYPE>FILE", "<CACHE>writeback</CACHE><TYPE>FILE");
    let found = std::panic::catch_unwind(|| compare(&case, &other, "DISK", "other"));
    assert!(found.is_err());
}
