//! Devices for running domains.

use super::*;
use crate::template::Level;
use crate::template::text::{self, Rules};
use crate::template::xml::Document;

const DEFAULTS: &str = r#"
OS = [ ARCH = "x86_64", MACHINE = "q35" ]
FEATURES = [ VIRTIO_BLK_QUEUES = "auto" ]
DISK = [ DRIVER = "raw", CACHE = "none", DISCARD = "unmap", TOTAL_IOPS_SEC = "500" ]
NIC = [ MODEL = "virtio", VIRTIO_QUEUES = "auto", FILTER = "clean-traffic" ]
"#;

struct Bench {
    vm: VmDocument,
    kvmrc: Template,
    defaults: Template,
    running: RunningDomain,
}

impl Bench {
    fn of(inner: &str) -> Self {
        let xml = format!("<VM><ID>7</ID><TEMPLATE><VCPU>3</VCPU>{inner}</TEMPLATE></VM>");
        Self {
            vm: VmDocument::read(&Document::parse(xml).expect("xml"), None).expect("a VM"),
            kvmrc: Template::new(),
            defaults: text::parse(DEFAULTS, Level::Defaults, "d", Rules::DEFAULTS).template,
            running: RunningDomain::default(),
        }
    }

    fn kvmrc(mut self, variables: &[(&str, &str)]) -> Self {
        self.kvmrc = kvmrc(variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        self
    }

    fn threads(mut self, iothreads: i32) -> Self {
        self.running.iothreads = iothreads;
        self
    }

    fn attach(&self) -> Attach<'_> {
        Attach { vm: &self.vm, kvmrc: &self.kvmrc, defaults: &self.defaults, running: &self.running }
    }

    fn disk(&self) -> Device {
        disk(&self.attach(), "/ds/100/7/disk.4").expect("a disk")
    }
}

/// Value of `name` of the child `child`.
fn of<'a>(device: &'a Device, child: &str, name: &str) -> Option<&'a str> {
    device.root.elements().find(|element| element.name == child)?.attribute(name)
}

fn vd(more: &str) -> Bench {
    Bench::of(&format!(
        "<DISK><DISK_ID>1</DISK_ID><TARGET>vda</TARGET><TYPE>FILE</TYPE></DISK>\
         <DISK><ATTACH>YES</ATTACH><DISK_ID>4</DISK_ID><TARGET>vdb</TARGET><TYPE>FILE</TYPE>{more}</DISK>"
    ))
}

#[test]
fn a_file_disk_has_the_path_that_it_was_given() {
    let device = vd("").disk();
    assert_eq!(of(&device, "source", "file"), Some("/ds/100/7/disk.4"));
    assert_eq!((of(&device, "target", "dev"), of(&device, "target", "bus")), (Some("vdb"), Some("virtio")));
    assert!(
        device.to_xml().starts_with("<disk type='file' device='disk'>\n  <source file='/ds/100/7/disk.4'/>")
    );
}

#[test]
fn defaults_are_the_disks_own_then_kvmrc_then_the_defaults_file() {
    let cache = |bench: Bench| of(&bench.disk(), "driver", "cache").map(str::to_owned);
    let rc = [("DEFAULT_ATTACH_CACHE", "writethrough"), ("DEFAULT_ATTACH_IO", "")];
    assert_eq!(cache(vd("<CACHE>writeback</CACHE>").kvmrc(&rc)).as_deref(), Some("writeback"));
    assert_eq!(cache(vd("").kvmrc(&rc)).as_deref(), Some("writethrough"));
    assert_eq!(cache(vd("")).as_deref(), Some("none"));
    let device = vd("").kvmrc(&rc).disk();
    assert_eq!((of(&device, "driver", "discard"), of(&device, "driver", "io")), (Some("unmap"), None));
}

#[test]
fn limits_come_from_kvmrc_too() {
    let limits = |bench: Bench| {
        let device = bench.disk();
        let iotune = device.root.elements().find(|e| e.name == "iotune").expect("iotune").clone();
        iotune.elements().map(|e| (e.name.to_string(), e.content())).collect::<Vec<_>>()
    };
    assert_eq!(limits(vd("")), [("total_iops_sec".to_owned(), "500".to_owned())]);
    let rc = [("DEFAULT_ATTACH_TOTAL_IOPS_SEC", "9"), ("DEFAULT_ATTACH_TOTAL_IOPS_SEC_BOGUS", "1")];
    assert_eq!(limits(vd("").kvmrc(&rc)), [("total_iops_sec".to_owned(), "9".to_owned())]);
}

#[test]
fn queues_and_threads_only_where_the_bus_takes_them() {
    let device = vd("").threads(2).disk();
    assert_eq!((of(&device, "driver", "queues"), of(&device, "driver", "iothread")), (Some("3"), Some("1")));
    let sd = "<DISK><ATTACH>YES</ATTACH><DISK_ID>4</DISK_ID><TARGET>sdab</TARGET><TYPE>FILE</TYPE></DISK>";
    let device = Bench::of(sd).threads(2).disk();
    assert_eq!((of(&device, "driver", "queues"), of(&device, "driver", "iothread")), (None, None));
    assert_eq!((of(&device, "target", "bus"), of(&device, "address", "target")), (Some("scsi"), Some("27")));
}

#[test]
fn threads_are_the_disks_own_then_kvmrcs_then_by_number_and_never_beyond_the_domains() {
    let thread = |bench: Bench| of(&bench.disk(), "driver", "iothread").map(str::to_owned);
    let rc = [("DEFAULT_ATTACH_VIRTIO_BLK_IOTHREAD", "2")];
    assert_eq!(thread(vd("<IOTHREAD>3</IOTHREAD>").threads(4).kvmrc(&rc)).as_deref(), Some("3"));
    assert_eq!(thread(vd("<IOTHREAD>x</IOTHREAD>").threads(4).kvmrc(&rc)).as_deref(), Some("2"));
    assert_eq!(thread(vd("<IOTHREAD>9</IOTHREAD>").threads(4)).as_deref(), Some("4"));
    assert_eq!(thread(vd("").threads(3)).as_deref(), Some("2"));
    assert_eq!(thread(vd("")), None);
}

#[test]
fn ide_and_sata_are_refused_with_the_reason() {
    let attach = |target: &str, kind: &str, os: &str| {
        let inner = format!(
            "<OS>{os}<B/></OS><DISK><ATTACH>YES</ATTACH><DISK_ID>4</DISK_ID><TARGET>{target}</TARGET>\
             <TYPE>{kind}</TYPE></DISK>"
        );
        disk(&Bench::of(&inner).attach(), "/p").map(|d| of(&d, "target", "bus").map(str::to_owned))
    };
    let pc = "<MACHINE>pc</MACHINE>";
    let sata = "<SD_DISK_BUS>sata</SD_DISK_BUS>";
    let refused = attach("hda", "FILE", pc).expect_err("IDE").to_string();
    assert!(refused.contains("hda means the bus ide"), "{refused}");
    assert!(attach("hda", "FILE", "").expect_err("SATA").to_string().contains("bus sata"));
    assert!(attach("sdc", "FILE", sata).expect_err("SATA").to_string().contains("bus sata"));
    assert_eq!(attach("sdc", "CDROM", sata).expect("SCSI").as_deref(), Some("scsi"));
    assert_eq!(attach("sdc", "FILE", "<SD_DISK_BUS>usb</SD_DISK_BUS>").expect("USB").as_deref(), Some("usb"));
}

#[test]
fn a_folder_of_the_host_is_refused_and_never_attached_as_a_disk() {
    let inner =
        "<DISK><ATTACH>YES</ATTACH><DISK_ID>4</DISK_ID><TARGET>vdb</TARGET><TYPE>FILESYSTEM</TYPE></DISK>";
    let refused = disk(&Bench::of(inner).attach(), "/p").expect_err("a folder");
    assert!(refused.to_string().contains("FILESYSTEM"), "{refused}");
}

#[test]
fn the_kind_of_the_datastore_decides_for_volatile_disks() {
    let kind = |inner: &str| vd(inner).disk().root.attribute("type").map(str::to_owned);
    assert_eq!(kind("<DISK_TYPE>BLOCK</DISK_TYPE>").as_deref(), Some("block"));
    assert_eq!(kind("<DISK_TYPE>FILE</DISK_TYPE>").as_deref(), Some("file"));
    let rbd = "<DISK><ATTACH>YES</ATTACH><DISK_ID>4</DISK_ID><TARGET>vdb</TARGET><TYPE>fs</TYPE>\
               <DISK_TYPE>RBD</DISK_TYPE><POOL_NAME>p</POOL_NAME></DISK>";
    assert_eq!(of(&Bench::of(rbd).disk(), "source", "name"), Some("p/one-sys-7-4"));
}

#[test]
fn a_document_without_the_mark_says_so() {
    let bench =
        Bench::of("<DISK><DISK_ID>0</DISK_ID><TARGET>vda</TARGET></DISK><NIC><ATTACH>yes</ATTACH></NIC>");
    assert_eq!(disk(&bench.attach(), "/p"), Err(Refusal::NothingToAttach("DISK")));
    assert_eq!(nic(&bench.attach()), Err(Refusal::NothingToAttach("NIC")));
    assert!(marked_pci(&bench.vm).is_none());
}

#[test]
fn an_interface_takes_its_model_and_filter_from_kvmrc_first() {
    let inner = "<NIC><NIC_ID>0</NIC_ID></NIC><NIC><ATTACH>YES</ATTACH><BRIDGE>br0</BRIDGE><IP>10.0.0.1</IP>\
                 <MAC>02:00:00:00:00:01</MAC><TARGET>one-7-1</TARGET></NIC>";
    let device = nic(&Bench::of(inner).attach()).expect("a NIC");
    assert_eq!((of(&device, "model", "type"), of(&device, "driver", "queues")), (Some("virtio"), Some("3")));
    assert_eq!(of(&device, "filterref", "filter"), Some("clean-traffic"));
    let rc = [("DEFAULT_ATTACH_NIC_MODEL", "e1000"), ("DEFAULT_ATTACH_NIC_FILTER", "mine")];
    let device = nic(&Bench::of(inner).kvmrc(&rc).attach()).expect("a NIC");
    assert_eq!((of(&device, "model", "type"), of(&device, "driver", "queues")), (Some("e1000"), None));
    assert_eq!(of(&device, "filterref", "filter"), Some("mine"));
}

const PCI: &str = "<PCI><ATTACH>YES</ATTACH><DOMAIN>0000</DOMAIN><BUS>3b</BUS><SLOT>00</SLOT>\
    <FUNCTION>1</FUNCTION><SHORT_ADDRESS>3b:00.1</SHORT_ADDRESS><MAC>02:00:00:00:00:02</MAC>\
    <VM_DOMAIN>0x0000</VM_DOMAIN><VM_BUS>0x05</VM_BUS><VM_SLOT>0x00</VM_SLOT><VM_FUNCTION>0</VM_FUNCTION></PCI>";

#[test]
fn a_pci_device_keeps_its_guest_address_only_where_it_is_free() {
    let mut bench = Bench::of(PCI);
    let bus =
        |bench: &Bench| of(&pci(&bench.attach(), false).expect("PCI"), "address", "bus").map(str::to_owned);
    assert_eq!(bus(&bench), None, "no bus beyond the first");
    bench.running.has_pci_1 = true;
    assert_eq!(bus(&bench).as_deref(), Some("0x05"));
    bench.running.pci_in_use = vec![[0, 5, 0, 0]];
    assert_eq!(bus(&bench), None, "in use");
}

#[test]
fn a_virtual_function_is_an_interface_and_is_detached_as_a_host_device() {
    let bench = Bench::of(PCI);
    let device = pci(&bench.attach(), true).expect("PCI");
    assert_eq!(device.root.name, "interface");
    assert_eq!(of(&device, "mac", "address"), Some("02:00:00:00:00:02"));
    let xml = device.to_xml();
    assert!(
        xml.contains("<address type='pci' domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/>"),
        "{xml}"
    );
    let detach = pci_to_detach(&bench.attach()).expect("PCI");
    assert_eq!((detach.root.name.as_ref(), detach.root.attribute("managed")), ("hostdev", Some("yes")));
}

#[test]
fn a_mediated_device_goes_by_its_uuid() {
    let inner = "<PCI><ATTACH>YES</ATTACH><UUID>7cef18eb-3941-4115-8b92-629a723b5abe</UUID></PCI>";
    let bench = Bench::of(inner);
    for device in [pci(&bench.attach(), true), pci_to_detach(&bench.attach())] {
        let device = device.expect("mdev");
        assert_eq!(device.root.attribute("type"), Some("mdev"));
        assert!(device.to_xml().contains("uuid='7cef18eb-3941-4115-8b92-629a723b5abe'"));
    }
    let bare = Bench::of("<PCI><ATTACH>YES</ATTACH></PCI>");
    assert!(matches!(pci(&bare.attach(), false), Err(Refusal::NoAddress(_))));
}
