//! What happens to a running VM, against real libvirt and with the guest's own word. VM ids 1100 to 1199.

use super::NODE;
use crate::node::{Caller, Node, Vm};

/// An action on `vm` whose template holds `template`.
pub fn action(vm: &Vm<'_>, template: &str) -> String {
    format!(
        "<VMM_DRIVER_ACTION_DATA><HOST>{NODE}</HOST><VM><ID>{}</ID><TEMPLATE><VCPU><![CDATA[1]]></VCPU><MEMORY><![CDATA[128]]></MEMORY>{template}</TEMPLATE>\
         <HISTORY_RECORDS><HISTORY><DS_ID>0</DS_ID></HISTORY></HISTORY_RECORDS></VM></VMM_DRIVER_ACTION_DATA>",
        vm.id
    )
}

/// A raw disk `disk.NUMBER` of a MiB in the VM's folder.
pub fn disk(vm: &Vm<'_>, number: u32) -> String {
    let path = format!("{}/disk.{number}", vm.folder);
    vm.node.oneadmin(&format!("truncate -s 1M {path}"), b"").good();
    path
}

fn disk_action(vm: &Vm<'_>, number: u32, target: &str, more: &str) -> String {
    action(
        vm,
        &format!(
            "<DISK><ATTACH><![CDATA[YES]]></ATTACH><DISK_ID><![CDATA[{number}]]></DISK_ID><TARGET><![CDATA[{target}]]></TARGET><TYPE>FILE</TYPE>\
             <DRIVER>raw</DRIVER><SOURCE>x</SOURCE>{more}</DISK>"
        ),
    )
}

pub fn attach(vm: &Vm<'_>, path: &str, number: u32, target: &str, more: &str) -> crate::place::Ended {
    vm.call_with("attach_disk", &[&vm.name, path, target, "1", "-"], &disk_action(vm, number, target, more))
}

pub fn detach(vm: &Vm<'_>, path: &str, target: &str) -> crate::place::Ended {
    vm.call("detach_disk", &[&vm.name, path, target, "1"])
}

pub fn targets(vm: &Vm<'_>) -> Vec<String> {
    let list = vm.node.virsh(&format!("domblklist {}", vm.name)).good();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn disks_come_and_go_called_by_both_drivers() {
    for (caller, id) in [(Caller::Ours, 1101), (Caller::OpenNebula, 1102)] {
        let node = Node::new(NODE, id);
        let vm = Vm::new(&node, caller, id);
        vm.deploy().good();
        vm.await_console("GUEST: READY", 1);
        let (one, two) = (disk(&vm, 1), disk(&vm, 2));
        assert_eq!(
            attach(&vm, &one, 1, "vdb", "<SERIAL>abc</SERIAL><TOTAL_IOPS_SEC>1000</TOTAL_IOPS_SEC>").good(),
            ""
        );
        vm.await_console("HOTPLUG add disk vdb sectors=2048", 1);
        attach(&vm, &one, 1, "vdb", "").good();
        assert!(attach(&vm, &two, 2, "vdb", "").bad().contains("another disk is attached as vdb"));
        attach(&vm, &two, 2, "sda", "").good();
        vm.await_console("HOTPLUG add disk sda", 1);
        let xml = node.virsh(&format!("dumpxml {}", vm.name)).good();
        assert!(
            xml.contains("<serial>abc</serial>") && xml.contains("<total_iops_sec>1000</total_iops_sec>"),
            "{xml}"
        );

        assert_eq!(detach(&vm, &one, "vdb").good(), "");
        vm.await_console("HOTPLUG remove disk vdb", 1);
        detach(&vm, &two, "sda").good();
        assert_eq!(targets(&vm), ["vda"]);
        detach(&vm, &one, "vdb").good();

        let reason = attach(&vm, "/nowhere/disk.9", 9, "vdc", "").bad();
        assert!(reason.contains("Could not attach /nowhere/disk.9 (vdc)"), "{reason}");
        let reason = attach(&vm, &one, 1, "hdb", "").bad();
        assert!(reason.contains("Could not attach"), "{reason}");
        assert_eq!(targets(&vm), ["vda"]);
    }
}

/// Names of disks from PREFIXFIRST to PREFIXad, the thirtieth.
pub fn names(prefix: &str, first: char) -> Vec<String> {
    let ends = (first..='z').map(String::from).chain(["aa", "ab", "ac", "ad"].map(str::to_owned));
    ends.map(|end| format!("{prefix}{end}")).collect()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn thirty_scsi_disks_from_sda_to_sdad() {
    let node = Node::new(NODE, 1103);
    let vm = Vm::new(&node, Caller::Ours, 1103);
    vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    let names = names("sd", 'a');
    for (number, name) in (1..).zip(&names) {
        attach(&vm, &disk(&vm, number), number, name, "").good();
    }
    assert_eq!(targets(&vm).len(), 31);
    vm.await_console("HOTPLUG add disk sd", 30);
    // Names that contain each other are told apart.
    detach(&vm, "x", "sda").good();
    assert!(targets(&vm).contains(&"sdaa".to_owned()) && !targets(&vm).contains(&"sda".to_owned()));
    for name in &names {
        detach(&vm, "x", name).good();
    }
    assert_eq!(targets(&vm), ["vda"]);
    vm.await_console("HOTPLUG remove disk sd", 30);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_that_keeps_a_disk_makes_detach_fail_within_its_time() {
    let node = Node::new(NODE, 1104);
    let vm = Vm::new(&node, Caller::Ours, 1104);
    let path = disk(&vm, 1);
    // Without a system nothing in the guest answers the request.
    node.oneadmin(&format!("qemu-img create -q -f qcow2 {}/disk.0 1M", vm.folder), b"").good();
    vm.deploy().good();
    attach(&vm, &path, 1, "vdb", "").good();
    node.kvmrc("DETACH_TIMEOUT=12");
    let start = std::time::Instant::now();
    let reason = detach(&vm, &path, "vdb").bad();
    assert!(reason.contains("Could not detach disk vdb"), "{reason}");
    assert!(start.elapsed().as_secs() < 40, "{:?}", start.elapsed());
    assert_eq!(targets(&vm), ["vda", "vdb"]);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn interfaces_come_and_go() {
    for (caller, id) in [(Caller::Ours, 1105), (Caller::OpenNebula, 1106)] {
        let node = Node::new(NODE, id);
        let vm = Vm::new(&node, caller, id);
        let bridge = format!("kvm{id}");
        node.root(&format!("ip link add {bridge} type bridge; ip link set {bridge} up")).good();
        vm.deploy().good();
        vm.await_console("GUEST: READY", 1);
        let mac = "02:00:00:00:11:05";
        let nic = |bridge: &str| {
            action(
                &vm,
                &format!(
                    "<NIC><ATTACH>YES</ATTACH><NIC_ID>1</NIC_ID><BRIDGE>{bridge}</BRIDGE><BRIDGE_TYPE>linux</BRIDGE_TYPE><VN_MAD>bridge</VN_MAD><MAC>{mac}</MAC><TARGET>one-{id}-1</TARGET><MODEL>virtio</MODEL></NIC>"
                ),
            )
        };
        let args =
            [vm.name.as_str(), mac, &bridge, "virtio", "bridge", &format!("one-{id}-1")].map(str::to_owned);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!(vm.call_with("attach_nic", &args, &nic(&bridge)).good(), "");
        vm.await_console(&format!("mac={mac}"), 1);
        vm.call_with("attach_nic", &args, &nic(&bridge)).good();
        assert_eq!(node.virsh(&format!("domiflist {}", vm.name)).good().matches(mac).count(), 1);
        assert_eq!(vm.call_with("detach_nic", &[&vm.name, mac], &nic(&bridge)).good(), "");
        assert!(!node.virsh(&format!("domiflist {}", vm.name)).good().contains(mac));
        vm.await_console("HOTPLUG remove nic", 1);
        vm.call_with("detach_nic", &[&vm.name, mac], &nic(&bridge)).good();
        let reason = vm.call_with("attach_nic", &args, &nic("nobridge")).bad();
        assert!(reason.contains("nobridge"), "{reason}");
        vm.call("cancel", &[&vm.name, NODE]).good();
        vm.call_with("detach_nic", &[&vm.name, mac], &nic(&bridge)).good();
        node.root(&format!("ip link del {bridge}")).good();
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn the_context_cd_is_changed() {
    for (caller, id) in [(Caller::Ours, 1107), (Caller::OpenNebula, 1108)] {
        let node = Node::new(NODE, id);
        let mut vm = Vm::new(&node, caller, id);
        let iso = disk(&vm, 1);
        vm.devices = format!(
            "<disk type='file' device='cdrom'><source file='{iso}'/><target dev='hda'/><readonly/></disk>"
        );
        vm.deploy().good();
        let medium = || {
            node.virsh(&format!("domblklist {}", vm.name))
                .good()
                .lines()
                .find(|line| line.contains("hda"))
                .map(|line| line.contains(&iso))
        };
        assert_eq!(vm.call("prereconfigure", &[&vm.name, "hda"]).good(), "");
        assert_eq!(medium(), Some(false));
        vm.call("prereconfigure", &[&vm.name, "hda"]).good();
        assert_eq!(vm.call("reconfigure", &[&vm.name, "hda", &iso]).good(), "");
        assert_eq!(medium(), Some(true));
        vm.call("reconfigure", &[&vm.name, "hda", &iso]).good();
        vm.call("prereconfigure", &[&vm.name, ""]).good();
        vm.call("reconfigure", &[&vm.name, "hda", ""]).good();
        vm.call("prereconfigure", &[&vm.name, "hdz"]).bad();
        assert!(vm.call("reconfigure", &[&vm.name, "hda", "/nowhere/iso"]).bad().contains("/nowhere/iso"));
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn memory_and_cpus_change_and_go_back_together() {
    let node = Node::new(NODE, 1109);
    let vm = Vm::new(&node, Caller::Ours, 1109);
    let domain = vm.domain().replace("<vcpu><![CDATA[1]]></vcpu>", "<vcpu current='1'>2</vcpu>");
    let file = format!("{}/deployment.0", vm.folder);
    vm.call_with("deploy", &[&file, NODE], &domain).good();
    vm.await_console("GUEST: READY", 1);
    let resize = |cpus: u32, memory: u32, old_cpus: u32, old_memory: u32| {
        let document = format!(
            "<VMM_DRIVER_ACTION_DATA><VM><ID>1109</ID><TEMPLATE><VCPU>{cpus}</VCPU><MEMORY>{memory}</MEMORY><RESIZE><VCPU>{old_cpus}</VCPU><MEMORY>{old_memory}</MEMORY></RESIZE></TEMPLATE></VM></VMM_DRIVER_ACTION_DATA>"
        );
        vm.call_with("resize", &[&vm.name], &document)
    };
    let balloon = || {
        node.virsh(&format!("dumpxml {}", vm.name))
            .good()
            .contains("<currentMemory unit='KiB'>114688</currentMemory>")
    };
    let cpus = || node.virsh(&format!("vcpucount {} --live --active", vm.name)).good().trim().to_owned();
    resize(1, 112, 1, 128).good();
    crate::place::await_that("the balloon", balloon);
    resize(2, 112, 1, 112).good();
    assert_eq!(cpus(), "2");
    let reason = resize(9, 128, 2, 112).bad();
    assert!(reason.contains("9 CPUs"), "{reason}");
    crate::place::await_that("the balloon as it was", balloon);
    assert_eq!(cpus(), "2");
    assert!(resize(1, 4096, 1, 112).bad().contains("memory"));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn memory_modules_are_plugged_and_unplugged() {
    let node = Node::new(NODE, 1110);
    let vm = Vm::new(&node, Caller::Ours, 1110);
    let domain = vm.domain().replace("<memory>131072</memory>", "<maxMemory slots='4' unit='KiB'>524288</maxMemory><memory>131072</memory><cpu><numa><cell id='0' cpus='0' memory='131072' unit='KiB'/></numa></cpu>");
    vm.call_with("deploy", &[&format!("{}/deployment.0", vm.folder), NODE], &domain).good();
    vm.await_console("GUEST: READY", 1);
    let resize = |memory: u32, old: u32| {
        let document = format!(
            "<A><VM><TEMPLATE><MEMORY>{memory}</MEMORY><MEMORY_RESIZE_MODE>HOTPLUG</MEMORY_RESIZE_MODE><RESIZE><MEMORY>{old}</MEMORY></RESIZE></TEMPLATE></VM></A>"
        );
        vm.call_with("resize", &[&vm.name], &document)
    };
    let modules =
        || node.virsh(&format!("dumpxml {}", vm.name)).good().matches("<memory model='dimm'").count();
    resize(256, 128).good();
    assert_eq!(modules(), 1);
    assert!(resize(192, 256).bad().contains("no memory module of just 64 MiB"));
    assert!(resize(4096, 256).bad().contains("Could not change the memory"));
    assert_eq!(modules(), 1);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_larger_disk_is_seen_by_the_guest() {
    let node = Node::new(NODE, 1111);
    let vm = Vm::new(&node, Caller::Ours, 1111);
    vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    let document = action(
        &vm,
        "<DISK><RESIZE>YES</RESIZE><DISK_ID>0</DISK_ID><SIZE>96</SIZE><TARGET>vda</TARGET></DISK>",
    );
    let resize =
        |disk: &str, size: &str| vm.call_with("resize_disk", &[&vm.name, disk, size, "-", NODE], &document);
    assert_eq!(resize("0", "96").good(), "");
    vm.await_console("HOTPLUG change disk vda sectors=196608", 1);
    resize("0", "96").good();
    resize("1", "96").bad();
    resize("0", "9x").bad();
}

#[test]
#[ignore = "needs the test bed: make test"]
fn twelve_snapshots_with_deletes_and_reverts_survive_save_and_restore() {
    let node = Node::new(NODE, 1112);
    let vm = Vm::new(&node, Caller::Ours, 1112);
    let uuid = vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    let list = || {
        let mut names: Vec<u32> = node
            .virsh(&format!("snapshot-list {} --name", vm.name))
            .good()
            .split_whitespace()
            .filter_map(|name| name.strip_prefix("snap-")?.parse().ok())
            .collect();
        names.sort_unstable();
        names
    };
    for number in 0..12 {
        assert_eq!(
            vm.call("snapshot_create", &[&vm.name, &number.to_string()]).good(),
            format!("snap-{number}\n")
        );
        assert!(vm.exists(&format!("snap-{number}.xml")));
    }
    assert!(vm.call("snapshot_create", &[&vm.name, "3"]).bad().contains("there is one of that name"));
    assert!(vm.exists("snap-3.xml"));
    vm.call("snapshot_create", &[&vm.name, "../x"]).bad();
    for name in ["snap-4", "snap-10", "snap-4"] {
        assert_eq!(vm.call("snapshot_delete", &[&vm.name, name]).good(), "");
        assert!(!vm.exists(&format!("{name}.xml")));
    }
    assert_eq!(vm.call("snapshot_revert", &[&vm.name, "snap-2"]).good(), "");
    assert_eq!(vm.call("snapshot_create", &[&vm.name, "12"]).good(), "snap-12\n");
    assert_eq!(node.virsh(&format!("snapshot-parent {} snap-12", vm.name)).good().trim(), "snap-2");

    vm.call("save", &[uuid.trim(), &format!("{}/checkpoint", vm.folder), NODE]).good();
    vm.call("restore", &[&format!("{}/checkpoint", vm.folder), NODE, uuid.trim()]).good();
    assert_eq!(list(), [0, 1, 2, 3, 5, 6, 7, 8, 9, 11, 12]);
    for (name, parent) in [("snap-12", "snap-2"), ("snap-5", "snap-3"), ("snap-11", "snap-9")] {
        assert_eq!(node.virsh(&format!("snapshot-parent {} {name}", vm.name)).good().trim(), parent);
    }
    assert_eq!(node.virsh(&format!("snapshot-current {} --name", vm.name)).good().trim(), "snap-12");
    for number in list() {
        vm.call("snapshot_revert", &[&vm.name, &format!("snap-{number}")]).good();
        assert_eq!(vm.state(), "running");
    }
    assert!(vm.call("snapshot_revert", &[&vm.name, "snap-4"]).bad().contains("snap-4"));
    assert_eq!(vm.state(), "running");
    vm.call("snapshot_delete", &[&vm.name, "snap-99"]).good();
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_revert_over_another_layer_of_a_disk_is_refused_and_one_over_a_cpu_leaves_the_guest() {
    let node = Node::new(NODE, 1113);
    let vm = Vm::new(&node, Caller::Ours, 1113);
    let domain = vm.domain().replace("<vcpu><![CDATA[1]]></vcpu>", "<vcpu current='1'>2</vcpu>");
    vm.call_with("deploy", &[&format!("{}/deployment.0", vm.folder), NODE], &domain).good();
    vm.await_console("GUEST: READY", 1);
    vm.call("snapshot_create", &[&vm.name, "0"]).good();
    node.virsh(&format!("setvcpus {} 2 --live --hotpluggable", vm.name)).good();
    let ended = vm.call("snapshot_revert", &[&vm.name, "snap-0"]);
    println!("revert over a plugged CPU: {ended:?}");
    assert_eq!(vm.state(), "running");

    node.oneadmin(
        &format!("cd {0} && qemu-img create -q -f qcow2 -b {0}/disk.0 -F qcow2 layer", vm.folder),
        b"",
    )
    .good();
    node.virsh(&format!(
        "snapshot-create-as {0} --disk-only --no-metadata --reuse-external --diskspec vda,file={1}/layer",
        vm.name, vm.folder
    ))
    .good();
    let reason = vm.call("snapshot_revert", &[&vm.name, "snap-0"]).bad();
    assert!(reason.contains("layer"), "{reason}");
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_command_for_a_guest_without_an_agent_fails() {
    for (caller, id) in [(Caller::Ours, 1114), (Caller::OpenNebula, 1115)] {
        let node = Node::new(NODE, id);
        node.root("install -d -o oneadmin -g oneadmin -m 750 /run/one").good();
        let vm = Vm::new(&node, caller, id);
        vm.deploy().good();
        let document = action(&vm, "<QEMU_GA_EXEC><COMMAND>ls</COMMAND><STDIN></STDIN></QEMU_GA_EXEC>");
        let vmid = id.to_string();
        let reason = node.call(caller, "vmm/kvm/exec", &[&vmid, NODE, "ls", ""], &document).bad();
        assert!(reason.contains("agent"), "{reason}");
        node.call(Caller::Ours, "vmm/kvm/exec_cancel", &[&vmid, NODE], "").good();
        assert_eq!(node.root(&format!("test -e /run/one/one-{id}")).status, Some(1));
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_command_runs_in_a_guest_with_a_real_agent_and_is_ended() {
    let node = Node::new(NODE, 1116);
    let vm = Vm::new(&node, Caller::Ours, 1116);
    let guest = crate::node::guest_with_agent();
    for file in ["vmlinuz", "initrd.img"] {
        let bytes = std::fs::read(guest.path().join(file)).expect("a file of the guest");
        node.oneadmin(&format!("cat >{}/{file}", vm.folder), &bytes).good();
    }
    let boot = format!(
        "<kernel>{0}/vmlinuz</kernel><initrd>{0}/initrd.img</initrd><cmdline>console=ttyS0 no_timer_check rdinit=/init-with-agent</cmdline></os>",
        vm.folder
    );
    let channel = "<channel type='unix'><source mode='bind'/><target type='virtio' name='org.qemu.guest_agent.0'/></channel><serial type='pty'>";
    let domain = vm
        .domain()
        .replace("<boot dev='hd'/></os>", &boot)
        .replace("<serial type='pty'>", channel)
        .replace("131072", "262144");
    node.kvmrc(&format!("EXEC_FOLDER={}/run", vm.folder));
    node.oneadmin(&format!("mkdir {}/run", vm.folder), b"").good();
    vm.call_with("deploy", &[&format!("{}/deployment.0", vm.folder), NODE], &domain).good();
    vm.await_console("GUEST: READY", 1);
    let ping = || {
        node.virsh(&format!("qemu-agent-command {} '{{\"execute\":\"guest-ping\"}}'", vm.name)).status
            == Some(0)
    };
    crate::place::await_that("the agent", ping);

    let exec = |command: &str, stdin: &str| {
        let ga = format!(
            "<QEMU_GA_EXEC><COMMAND><![CDATA[{command}]]></COMMAND><STDIN><![CDATA[{stdin}]]></STDIN></QEMU_GA_EXEC>"
        );
        node.call(Caller::Ours, "vmm/kvm/exec", &["1116", NODE, "x", ""], &action(&vm, &ga))
    };
    let cancel = || node.call(Caller::Ours, "vmm/kvm/exec_cancel", &["1116", NODE], "");
    // "QUdFTlQ=" is AGENT; what the shell of the host would have run is printed instead.
    exec(
        "/bin/sh -c 'read -r x; echo \"$x says $(id -u) it'\\''s; `echo here`\" >/dev/console; sleep 1000'",
        "QUdFTlQK",
    )
    .good();
    vm.await_console("AGENT says 0 it's; here", 1);
    let pid = node.root(&format!("cat {}/run/one-1116", vm.folder)).good();
    assert!(exec("ls", "").bad().contains("one runs there"));
    cancel().good();
    assert!(!vm.exists("run/one-1116"));
    let status = format!(
        "qemu-agent-command {} '{{\"execute\":\"guest-exec-status\",\"arguments\":{{\"pid\":{pid}}}}}'",
        vm.name
    );
    crate::place::await_that("the end of the command", || {
        node.virsh(&status).stdout.contains("\"signal\":9")
    });
    exec("/nowhere/program", "").bad();
    cancel().good();
}
