//! Domains of the common kinds, defined and started (paused, so that no processor time is spent) by a real
//! libvirt of the test bed. Ids of VMs: 8000 and up.
#![allow(clippy::disallowed_methods)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use kvmad::domain::{Emulator, Style};

use crate::support::Case;

const NODE: &str = "node1";
const BRIDGE: &str = "kvmad8000";
const ROOT: &str = "/var/tmp/kvmad-domain-test";

fn on(words: &[&str], stdin: &str) -> Output {
    let bed = std::env::var("TB").unwrap_or_else(|_| "/srv/kvmad-testbed".to_owned());
    let mut child = Command::new(format!("{bed}/on"))
        .arg(NODE)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test bed: tests/testbed/up");
    child.stdin.take().expect("a pipe").write_all(stdin.as_bytes()).expect("read");
    child.wait_with_output().expect("an end")
}

fn fine(words: &[&str], stdin: &str) -> String {
    let output = on(words, stdin);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}\n{stdin}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A domain on the bed; gone when dropped.
struct Guest {
    name: String,
    dir: String,
}

impl Drop for Guest {
    fn drop(&mut self) {
        on(&["virsh", "destroy", &self.name], "");
        on(&["virsh", "undefine", "--nvram", &self.name], "");
        on(&["rm", "-rf", &self.dir], "");
    }
}

fn case(id: u32, template: &str) -> Case {
    let action = format!(
        "<VM><ID>{id}</ID><NAME>test {id}</NAME><TEMPLATE><CPU>0.5</CPU><MEMORY>64</MEMORY>{template}</TEMPLATE>\
         <HISTORY_RECORDS><HISTORY><DS_ID>100</DS_ID></HISTORY></HISTORY_RECORDS></VM>"
    );
    let defaults =
        std::fs::read_to_string(crate::support::corpus().join("oned-7.4/01_minimal.stock/defaults.conf"));
    let mut case = Case::of(&action, &defaults.expect("stock defaults"), "", "").with(Style::Mended);
    case.options.emulator = Emulator::Qemu;
    case.options.datastore_location = Some(ROOT.to_owned());
    case
}

/// Makes the domain, its disks (small and empty), defines it, undefines it, starts it paused, and gives what
/// libvirt made of it.
fn start(id: u32, disks: &[u32], template: &str) -> (Guest, String) {
    let domain = case(id, template).generate().expect("a domain");
    let guest = Guest { name: format!("one-{id}"), dir: format!("{ROOT}/100/{id}") };
    // What an earlier run that was killed left behind.
    on(&["virsh", "destroy", &guest.name], "");
    fine(&["mkdir", "-p", &guest.dir], "");
    for disk in disks {
        fine(&["truncate", "-s", "1M", &format!("{}/disk.{disk}", guest.dir)], "");
    }
    fine(&["chmod", "-R", "a+rwX", ROOT], "");
    let xml = domain.to_xml();
    fine(&["virsh", "define", "/dev/stdin"], &xml);
    fine(&["virsh", "undefine", "--nvram", &guest.name], "");
    fine(&["virsh", "create", "/dev/stdin", "--paused"], &xml);
    let live = fine(&["virsh", "dumpxml", &guest.name], "");
    (guest, live)
}

fn disk(id: u32, target: &str, more: &str) -> String {
    format!("<DISK><DISK_ID>{id}</DISK_ID><TARGET>{target}</TARGET><TYPE>FILE</TYPE>{more}</DISK>")
}

fn os(more: &str) -> String {
    format!("<OS>{more}</OS>")
}

const CONTEXT: &str = "<CONTEXT><DISK_ID>9</DISK_ID><TARGET>sda</TARGET></CONTEXT>";

#[test]
#[ignore = "needs the test bed: make test"]
fn virtio_disks_a_context_and_two_nics_on_q35() {
    on(&["ip", "link", "add", BRIDGE, "type", "bridge"], "");
    fine(&["ip", "link", "set", BRIDGE, "up"], "");
    let nics = format!(
        "<NIC><BRIDGE>{BRIDGE}</BRIDGE><MAC>02:00:00:00:1f:40</MAC><TARGET>one-8000-0</TARGET></NIC>\
         <NIC><NETWORK_MODE>dummy</NETWORK_MODE><MAC>02:00:00:00:1f:41</MAC><TARGET>one-8000-1</TARGET></NIC>"
    );
    let vm = format!(
        "<VCPU>2</VCPU><FEATURES><IOTHREADS>2</IOTHREADS><VIRTIO_BLK_QUEUES>auto</VIRTIO_BLK_QUEUES></FEATURES>\
         {}{}{CONTEXT}{nics}<GRAPHICS><TYPE>VNC</TYPE><LISTEN>127.0.0.1</LISTEN><PASSWD>a'&lt;&amp;b</PASSWD></GRAPHICS>\
         <VIDEO><TYPE>virtio</TYPE><RESOLUTION>1280x720</RESOLUTION></VIDEO><INPUT><TYPE>tablet</TYPE><BUS>usb</BUS></INPUT>",
        disk(0, "vda", "<SERIAL>8000-0</SERIAL><TOTAL_IOPS_SEC>500</TOTAL_IOPS_SEC><ORDER>1</ORDER>"),
        disk(1, "vdb", "<READONLY>YES</READONLY>")
    );
    let (guest, live) = start(8000, &[0, 1, 9], &vm);
    assert_eq!(fine(&["virsh", "domstate", &guest.name], "").trim(), "paused");
    assert_eq!(live.matches("<interface ").count(), 2, "{live}");
    assert!(live.contains("iothread='2'") && live.contains("<serial>8000-0</serial>"), "{live}");
    drop(guest);
    on(&["ip", "link", "del", BRIDGE], "");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_cd_rom_and_a_context_on_pc() {
    let vm = format!(
        "{}{}<DISK><DISK_ID>1</DISK_ID><TARGET>hdb</TARGET><TYPE>CDROM</TYPE></DISK>\
         <DISK><DISK_ID>2</DISK_ID><TARGET>sdc</TARGET><TYPE>CDROM</TYPE></DISK>\
         <CONTEXT><DISK_ID>9</DISK_ID><TARGET>hda</TARGET></CONTEXT>",
        os("<MACHINE>pc</MACHINE>"),
        disk(0, "vda", "")
    );
    let (_guest, live) = start(8001, &[0, 1, 2, 9], &vm);
    assert_eq!(live.matches("device='cdrom'").count(), 3, "{live}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn scsi_disks_beyond_z() {
    let vm = format!("{}{}{CONTEXT}", disk(0, "sdb", ""), disk(1, "sdaa", ""));
    let (_guest, live) = start(8002, &[0, 1, 9], &vm);
    assert!(live.contains("target='26'") && live.contains("bus='scsi'"), "{live}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn sata_disks_on_q35_and_pc() {
    for (id, machine) in [(8003, "q35"), (8004, "pc")] {
        let os = os(&format!("<MACHINE>{machine}</MACHINE><SD_DISK_BUS>sata</SD_DISK_BUS>"));
        let vm = format!("{os}{}{}", disk(0, "sdb", ""), disk(1, "sdc", ""));
        let (_guest, live) = start(id, &[0, 1], &vm);
        assert_eq!(live.matches("bus='sata'").count(), 2, "{live}");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn memory_and_cpus_that_can_be_plugged() {
    let vm = format!(
        "<VCPU>1</VCPU><VCPU_MAX>4</VCPU_MAX><MEMORY_MAX>256</MEMORY_MAX>\
         <MEMORY_RESIZE_MODE>HOTPLUG</MEMORY_RESIZE_MODE>{}",
        disk(0, "vda", "")
    );
    let (_guest, live) = start(8005, &[0], &vm);
    assert!(live.contains("<maxMemory slots='16' unit='KiB'>262144</maxMemory>"), "{live}");
    assert!(live.contains("current='1'>4</vcpu>"), "{live}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn uefi_where_the_firmware_is_installed() {
    const FILE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
    if !on(&["test", "-e", FILE], "").status.success() {
        return;
    }
    let automatic = format!("{}{}", os("<FIRMWARE>UEFI</FIRMWARE>"), disk(0, "vda", ""));
    let (_guest, live) = start(8006, &[0], &automatic);
    assert!(live.contains("<loader readonly='yes'"), "{live}");
    let mut file =
        case(8007, &format!("{}{}", os(&format!("<FIRMWARE>{FILE}</FIRMWARE>")), disk(0, "vda", "")));
    file.options.check_firmware = false;
    let guest = Guest { name: "one-8007".to_owned(), dir: format!("{ROOT}/100/8007") };
    fine(&["mkdir", "-p", &guest.dir], "");
    fine(&["truncate", "-s", "1M", &format!("{}/disk.0", guest.dir)], "");
    fine(&["chmod", "-R", "a+rwX", ROOT], "");
    fine(&["virsh", "create", "/dev/stdin", "--paused"], &file.generate().expect("a domain").to_xml());
    fine(&["test", "-e", &format!("{}/test 8007_VARS.fd", guest.dir)], "");
}
