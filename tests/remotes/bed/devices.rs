//! Devices and snapshots that are out of the ordinary, against real libvirt. VM ids 6000 to 6099.

use super::NODE;
use super::running::{action, attach, detach, disk, names, targets};
use crate::node::{Caller, Node, Vm};
use crate::place::await_that;

/// Types a line into the guest's shell until the guest prints `text`, which is not in the line itself. QEMU notices only
/// after a while that somebody has opened the console.
#[track_caller]
fn type_until(vm: &Vm<'_>, line: &str, text: &str) {
    let shell = format!(
        "tty=$(virsh -q -c qemu:///system ttyconsole {}) && {{ sleep 2; printf '%s\\n' '{line}'; sleep 2; }} >\"$tty\"",
        vm.name
    );
    for _ in 0..20 {
        vm.node.root(&shell).good();
        if vm.console().contains(text) {
            return;
        }
    }
    panic!("the guest does not answer {line} with {text}: {}", vm.console());
}

/// No system on its disk: nothing in the guest answers, and it costs next to no CPU.
fn without_guest(vm: &Vm<'_>) {
    vm.node.oneadmin(&format!("qemu-img create -q -f qcow2 {}/disk.0 16M", vm.folder), b"").good();
}

fn deploy(vm: &Vm<'_>, domain: &str) -> crate::place::Ended {
    vm.call_with("deploy", &[&format!("{}/deployment.0", vm.folder), NODE], domain)
}

#[test]
#[ignore = "needs the test bed: make test"]
fn virtio_disks_from_the_second_to_the_thirtieth_target() {
    let node = Node::new(NODE, 6001);
    let mut vm = Vm::new(&node, Caller::Ours, 6001);
    // The first PCI bus has 32 places.
    vm.devices = "<controller type='pci' index='1' model='pci-bridge'/>".to_owned();
    vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    let names = names("vd", 'b');
    for (number, name) in (1..).zip(&names) {
        attach(&vm, &disk(&vm, number), number, name, "").good();
    }
    assert_eq!(targets(&vm).len(), 30);
    vm.await_console("HOTPLUG add disk vd", 29);
    // Names that begin alike are told apart.
    detach(&vm, "x", "vdaa").good();
    assert_eq!(targets(&vm).len(), 29);
    assert!(!targets(&vm).contains(&"vdaa".to_owned()) && targets(&vm).contains(&"vda".to_owned()));
    for name in &names {
        detach(&vm, "x", name).good();
    }
    assert_eq!(targets(&vm), ["vda"]);
    vm.await_console("HOTPLUG remove disk vd", 29);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn the_guest_reads_the_new_medium_of_its_cd() {
    let node = Node::new(NODE, 6002);
    let mut vm = Vm::new(&node, Caller::Ours, 6002);
    let iso = disk(&vm, 1);
    let burn = |text: &str| {
        node.oneadmin(&format!("printf %-65536s '{text}' >{iso}"), b"").good();
    };
    burn("first-medium");
    vm.devices = format!(
        "<disk type='file' device='cdrom'><source file='{iso}'/><target dev='hda'/><readonly/></disk>"
    );
    vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    type_until(&vm, "head -c 12 /dev/sr0; echo", "first-medium");
    vm.call("prereconfigure", &[&vm.name, "hda"]).good();
    type_until(&vm, "head -c 12 /dev/sr0 || echo no-\"disc\"", "no-disc");
    burn("other-medium");
    vm.call("reconfigure", &[&vm.name, "hda", &iso]).good();
    type_until(&vm, "head -c 12 /dev/sr0; echo", "other-medium");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_block_device_is_put_into_the_drive_as_one() {
    let node = Node::new(NODE, 6003);
    let mut vm = Vm::new(&node, Caller::Ours, 6003);
    without_guest(&vm);
    // A device of the machine that nothing uses; it is opened read-only.
    let device = format!("{}/disk.1", vm.folder);
    let made = node
        .root(&format!("mknod {device} b 7 7 && chown oneadmin: {device} && head -c 512 {device} | wc -c"));
    if made.status != Some(0) || made.stdout.trim() != "512" {
        println!("left out: no readable block device here: {made:?}");
        return;
    }
    vm.devices = "<disk type='file' device='cdrom'><target dev='hda'/><readonly/></disk>".to_owned();
    vm.deploy().good();
    vm.call("reconfigure", &[&vm.name, "hda", &device]).good();
    let xml = node.virsh(&format!("dumpxml {}", vm.name)).good();
    assert!(xml.contains(&format!("<source dev='{device}'")), "{xml}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_memory_module_that_the_guest_gives_back_is_unplugged() {
    let node = Node::new(NODE, 6004);
    let vm = Vm::new(&node, Caller::Ours, 6004);
    let bed = crate::node::bed();
    for file in ["vmlinuz", "initrd.img"] {
        let bytes = std::fs::read(bed.join("guest-cloud").join(file)).expect("a file of the guest");
        node.oneadmin(&format!("cat >{}/{file}", vm.folder), &bytes).good();
    }
    // Only memory that the kernel keeps movable can be given back.
    let boot = format!(
        "<kernel>{0}/vmlinuz</kernel><initrd>{0}/initrd.img</initrd><cmdline>console=tty0 console=ttyS0 quiet mitigations=off nokaslr no_timer_check tick memhp_default_state=online_movable</cmdline></os>",
        vm.folder
    );
    let memory = "<maxMemory slots='4' unit='KiB'>1048576</maxMemory><memory>262144</memory>\
                  <cpu><numa><cell id='0' cpus='0' memory='262144' unit='KiB'/></numa></cpu>";
    let domain =
        vm.domain().replace("<memory>131072</memory>", memory).replace("<boot dev='hd'/></os>", &boot);
    deploy(&vm, &domain).good();
    vm.await_console("GUEST: READY", 1);
    let resize = |memory: u32, old: u32| {
        let document = format!(
            "<A><VM><TEMPLATE><MEMORY>{memory}</MEMORY><MEMORY_RESIZE_MODE>HOTPLUG</MEMORY_RESIZE_MODE><RESIZE><MEMORY>{old}</MEMORY></RESIZE></TEMPLATE></VM></A>"
        );
        vm.call_with("resize", &[&vm.name], &document)
    };
    let modules =
        || node.virsh(&format!("dumpxml {}", vm.name)).good().matches("<memory model='dimm'").count();
    // What the guest's kernel keeps for itself is no part of MemTotal: 157 MB of 256, 288 of 384.
    let sees = |sign: &str| {
        let line =
            format!("awk \"/MemTotal/ && \\$2 {sign} {{print \\\"mem\\\" \\\"{sign}\\\"}}\" /proc/meminfo");
        type_until(&vm, &line, &format!("mem{sign}"));
    };
    resize(384, 256).good();
    assert_eq!(modules(), 1);
    sees(">220000");
    resize(256, 384).good();
    assert_eq!(modules(), 0);
    sees("<220000");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn queues_and_threads_fit_the_domain_and_a_nic_that_the_guest_keeps_stays() {
    let node = Node::new(NODE, 6005);
    let vm = Vm::new(&node, Caller::Ours, 6005);
    without_guest(&vm);
    let domain = vm.domain().replace("<memory>", "<iothreads>2</iothreads><memory>");
    deploy(&vm, &domain).good();
    let more = "<VIRTIO_BLK_QUEUES>auto</VIRTIO_BLK_QUEUES><IOTHREAD>9</IOTHREAD>";
    attach(&vm, &disk(&vm, 1), 1, "vdb", more).good();
    attach(&vm, &disk(&vm, 2), 2, "sdaa", more).good();
    let xml = node.virsh(&format!("dumpxml {}", vm.name)).good();
    let of = |target: &str| {
        let disks = xml.split("<disk ").find(|disk| disk.contains(&format!("<target dev='{target}'")));
        disks
            .and_then(|disk| disk.split("<driver").nth(1))
            .and_then(|d| d.split('>').next())
            .unwrap_or("")
            .to_owned()
    };
    assert!(of("vdb").contains("queues='1'") && of("vdb").contains("iothread='2'"), "{xml}");
    assert!(!of("sdaa").contains("queues") && !of("sdaa").contains("iothread"), "{xml}");

    let mac = "02:00:00:00:60:05";
    let nic = action(
        &vm,
        &format!(
            "<NIC><ATTACH>YES</ATTACH><MAC>{mac}</MAC><TARGET>one-6005-1</TARGET><MODEL>virtio</MODEL></NIC>"
        ),
    );
    let bridge = "kvm6005";
    node.root(&format!("ip link add {bridge} type bridge")).good();
    let nic = nic.replace("<MAC>", &format!("<BRIDGE>{bridge}</BRIDGE><MAC>"));
    vm.call_with("attach_nic", &[&vm.name, mac, bridge, "virtio", "bridge", "one-6005-1"], &nic).good();
    node.kvmrc("DETACH_TIMEOUT=6");
    let reason = vm.call_with("detach_nic", &[&vm.name, mac], &nic).bad();
    assert!(reason.contains("Could not detach NIC"), "{reason}");
    assert!(node.virsh(&format!("domiflist {}", vm.name)).good().contains(mac));
    node.root(&format!("ip link del {bridge}")).good();

    // A raw disk can't hold a snapshot: nothing is left of the attempt.
    let reason = vm.call("snapshot_create", &[&vm.name, "0"]).bad();
    assert!(reason.contains("Could not create snapshot snap-0"), "{reason}");
    assert!(!vm.exists("snap-0.xml") && !vm.exists("snap-0.xml.new"));
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn snapshots_with_purely_numeric_names_are_reverted_and_deleted() {
    let node = Node::new(NODE, 6006);
    let vm = Vm::new(&node, Caller::Ours, 6006);
    without_guest(&vm);
    vm.deploy().good();
    for name in ["7", "1700000000"] {
        node.virsh(&format!("snapshot-create-as {} --name {name}", vm.name)).good();
    }
    vm.call("snapshot_revert", &[&vm.name, "7"]).good();
    assert_eq!(vm.state(), "running");
    vm.call("snapshot_delete", &[&vm.name, "7"]).good();
    assert_eq!(node.virsh(&format!("snapshot-list {} --name", vm.name)).good().trim(), "1700000000");
    vm.call("snapshot_delete", &[&vm.name, "7"]).good();
    assert!(vm.call("snapshot_revert", &[&vm.name, "7"]).bad().contains('7'));
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_on_firmware_variables_is_never_lost_by_a_snapshot() {
    let node = Node::new(NODE, 6007);
    let vm = Vm::new(&node, Caller::Ours, 6007);
    without_guest(&vm);
    let firmware = format!(
        "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader><nvram>{}/nvram.fd</nvram></os>",
        vm.folder
    );
    deploy(&vm, &vm.domain().replace("<boot dev='hd'/></os>", &firmware)).good();
    assert!(vm.exists("nvram.fd"), "its own copy of the variables");
    let ended = vm.call("snapshot_create", &[&vm.name, "0"]);
    // libvirt below 10.10 refuses: the variables are no part of the snapshot. Later ones take them in.
    if ended.status == Some(0) {
        vm.call("snapshot_revert", &[&vm.name, "snap-0"]).good();
    } else {
        let reason = ended.bad();
        assert!(reason.contains("Could not create snapshot snap-0") && reason.contains("pflash"), "{reason}");
        assert!(!vm.exists("snap-0.xml"));
    }
    assert_eq!(vm.state(), "running");
    vm.call("cancel", &[&vm.name, NODE]).good();
    assert!(vm.exists("nvram.fd"), "the guest's settings stay");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_libvirt_that_is_away_is_a_failure_of_every_action_on_a_running_vm() {
    let node = Node::new(NODE, 6008);
    let vm = Vm::new(&node, Caller::Ours, 6008);
    without_guest(&vm);
    vm.deploy().good();
    let path = disk(&vm, 1);
    node.kvmrc("LIBVIRT_URI='qemu:///system?socket=/nowhere/libvirt-sock'\nDETACH_TIMEOUT=2");
    let nic = action(&vm, "<NIC><ATTACH>YES</ATTACH><MAC>02:00:00:00:60:08</MAC><BRIDGE>b</BRIDGE></NIC>");
    let resize = action(&vm, "<RESIZE><VCPU>1</VCPU><MEMORY>256</MEMORY></RESIZE>");
    let grow = action(&vm, "<DISK><DISK_ID>0</DISK_ID><TARGET>vda</TARGET></DISK>");
    let name = vm.name.as_str();
    for (ended, script) in [
        (attach(&vm, &path, 1, "vdb", ""), "attach_disk"),
        (detach(&vm, &path, "vdb"), "detach_disk"),
        (
            vm.call_with("attach_nic", &[name, "02:00:00:00:60:08", "b", "-", "bridge", "t"], &nic),
            "attach_nic",
        ),
        (vm.call_with("detach_nic", &[name, "02:00:00:00:60:08"], &nic), "detach_nic"),
        (vm.call("prereconfigure", &[name, "hda"]), "prereconfigure"),
        (vm.call("reconfigure", &[name, "hda", &path]), "reconfigure"),
        (vm.call_with("resize", &[name], &resize), "resize"),
        (vm.call_with("resize_disk", &[name, "0", "99", "-", NODE], &grow), "resize_disk"),
        (vm.call("snapshot_create", &[name, "0"]), "snapshot_create"),
        (vm.call("snapshot_revert", &[name, "snap-0"]), "snapshot_revert"),
        (vm.call("snapshot_delete", &[name, "snap-0"]), "snapshot_delete"),
    ] {
        let reason = ended.bad();
        assert!(reason.contains("/nowhere/libvirt-sock"), "{script}: {reason}");
    }
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_revert_over_a_plugged_cpu_ends_with_a_guest_that_runs_and_can_be_cancelled() {
    let node = Node::new(NODE, 6009);
    let vm = Vm::new(&node, Caller::Ours, 6009);
    without_guest(&vm);
    let domain = vm.domain().replace("<vcpu><![CDATA[1]]></vcpu>", "<vcpu current='1'>2</vcpu>");
    deploy(&vm, &domain).good();
    vm.call("snapshot_create", &[&vm.name, "0"]).good();
    node.virsh(&format!("setvcpus {} 2 --live --hotpluggable", vm.name)).good();
    let ended = vm.call("snapshot_revert", &[&vm.name, "snap-0"]);
    assert_eq!(vm.state(), "running", "{ended:?}");
    if ended.status != Some(0) {
        assert!(ended.bad().contains("Could not revert"));
    }
    vm.call("cancel", &[&vm.name, NODE]).good();
    await_that("its end", || !node.has(&vm.name));
}

/// OpenNebula's `vtpm_setup`, which is called through sudo: `backup|recover UUID FOLDER`.
const VTPM_SETUP: &str = r#"#!/bin/bash
set -eu
printf '%s\n' "$*" >>"$3/vtpm.calls"
state=/var/lib/libvirt/swtpm/$2/tpm2/tpm2-00.permall
if [ "$1" = backup ]; then mkdir -p "$3/tpm" && cp "$state" "$3/tpm/"; else mkdir -p "${state%/*}" && cp "$3/tpm/${state##*/}" "$state"; fi
"#;

#[test]
#[ignore = "needs the test bed: make test"]
fn a_vm_goes_back_to_a_snapshot_with_its_tpm_and_takes_its_state_along() {
    const UUID: &str = "6b766d61-6401-4000-8000-000000006010";
    let node = Node::new(NODE, 6010);
    let mut vm = Vm::new(&node, Caller::Ours, 6010);
    if node.root("command -v swtpm_setup && grep swtpm_user /etc/libvirt/qemu.conf").status != Some(0) {
        println!("left out: the bed is older than this test (tests/testbed/down, then up)");
        return;
    }
    without_guest(&vm);
    let remotes = format!("/var/tmp/one-remotes-{}", vm.id);
    node.oneadmin(
        &format!("cat >{remotes}/vtpm_setup && mkdir {remotes}/bin && printf '#!/bin/sh\\nshift\\nexec \"$@\"\\n' >{remotes}/bin/sudo && chmod 755 {remotes}/vtpm_setup {remotes}/bin/sudo"),
        VTPM_SETUP.as_bytes(),
    )
    .good();
    node.kvmrc(&format!("PATH={remotes}/bin:$PATH\nSHUTDOWN_TIMEOUT=4\nFORCE_DESTROY=yes"));
    vm.devices = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>".to_owned();
    let domain = vm.domain().replacen("<vcpu>", &format!("<uuid>{UUID}</uuid><vcpu>"), 1);
    // The firmware counts its starts in the TPM, so its state is another one after each reset.
    let state = || {
        let sum = format!("sha256sum </var/lib/libvirt/swtpm/{UUID}/tpm2/tpm2-00.permall");
        node.root(&sum).stdout.trim().to_owned()
    };
    let settled = |before: &str| {
        let mut last = state();
        await_that("another state of the TPM", || {
            std::thread::sleep(std::time::Duration::from_millis(700));
            let now = state();
            let same = now == last && !now.is_empty() && now != before;
            last = now;
            same
        });
        last
    };
    deploy(&vm, &domain).good();
    let first = settled("");
    vm.call("snapshot_create", &[&vm.name, "0"]).good();
    vm.call("reset", &[&vm.name, NODE]).good();
    settled(&first);
    vm.call("snapshot_revert", &[&vm.name, "snap-0"]).good();
    assert_eq!((vm.state().as_str(), state()), ("running", first.clone()));
    vm.call("reset", &[&vm.name, NODE]).good();
    let third = settled(&first);
    assert_ne!(third, first);

    // Off and on again: its state comes from the VM's folder, its snapshot still has the one of that time.
    vm.call("shutdown", &[&vm.name, NODE]).good();
    assert_eq!(state(), "", "libvirt takes it away with the domain");
    let kept =
        || node.root(&format!("sha256sum <{}/tpm/tpm2-00.permall", vm.folder)).good().trim().to_owned();
    assert_eq!(kept(), third);
    node.root(&format!("install -d -o oneadmin -g oneadmin -m 711 /var/lib/libvirt/swtpm/{UUID}")).good();
    deploy(&vm, &domain).good();
    let calls = node.root(&format!("cat {}/vtpm.calls", vm.folder)).good();
    let (backup, recover) = (format!("backup {UUID} {}", vm.folder), format!("recover {UUID} {}", vm.folder));
    assert_eq!(calls.lines().next(), Some(backup.as_str()));
    assert_eq!(calls.lines().last(), Some(recover.as_str()));
    settled(&third);
    vm.call("snapshot_revert", &[&vm.name, "snap-0"]).good();
    assert_eq!((vm.state().as_str(), state()), ("running", first.clone()));
    vm.call("cancel", &[&vm.name, NODE]).good();
    assert_eq!(kept(), first, "ended by force it keeps its state too");
    node.root(&format!("rm -rf /var/lib/libvirt/swtpm/{UUID}")).good();
}
