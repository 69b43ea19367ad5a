//! From datastore to datastore of one host, under a guest that runs on.

use crate::node::{Caller, Node, Vm};

const NODE: &str = "node1";

fn action(from: &str, to: &str, id: u32) -> String {
    format!(
        "<A><DISK_TARGET_PATH>/var/lib/one/datastores/{to}/{id}</DISK_TARGET_PATH><VM/><DATASTORE><TM_MAD>ssh</TM_MAD>\
         <BASE_PATH>/var/lib/one//datastores/{from}</BASE_PATH><TEMPLATE><SHARED>NO</SHARED></TEMPLATE></DATASTORE></A>"
    )
}

/// Files that the domain uses.
fn sources(node: &Node, name: &str) -> Vec<String> {
    let xml = node.virsh(&format!("dumpxml {name}")).good();
    let parts = xml.split("<source file='").skip(1);
    parts.filter_map(|part| part.split('\'').next()).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_running_guest_moves_with_layers_media_and_snapshots_or_stays_as_it_was() {
    let id = 7001;
    let node = Node::new(NODE, id);
    let mut vm = Vm::new(&node, Caller::Ours, id);
    let (old, new) = (vm.folder.clone(), format!("/var/lib/one/datastores/101/{id}"));
    let layers = format!(
        "cd {old} && mkdir disk.0.snap && mv disk.0 disk.0.snap/0 && ln -s . disk.0.snap/disk.0.snap && \
         (cd disk.0.snap && qemu-img create -q -f qcow2 -b 0 -F qcow2 1) && ln -s disk.0.snap/1 disk.0 && head -c 1M /dev/urandom >disk.1"
    );
    node.oneadmin(&layers, b"").good();
    vm.devices = format!(
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{old}/disk.1'/><target dev='hda' bus='ide'/><readonly/></disk>"
    );
    let uuid = vm.deploy().good().trim().to_owned();
    vm.await_console("TICK", 1);
    vm.call("snapshot_create", &[&uuid, "0"]).good();
    let before = sources(&node, &vm.name);

    // A file in the way: nothing of it is overwritten, nothing moves.
    node.oneadmin(&format!("mkdir -p {new} && echo precious >{new}/disk.1"), b"").good();
    let why = vm.call_with("migrate", &[&uuid, NODE, NODE], &action("0", "101", id)).bad();
    assert!(why.contains("disk.1 is there already"), "{why}");
    assert_eq!(node.oneadmin(&format!("ls {new}; cat {new}/disk.1"), b"").good(), "disk.1\nprecious\n");
    assert_eq!(sources(&node, &vm.name), before);
    assert_eq!(node.virsh(&format!("snapshot-list {uuid} --name")).good().trim(), "snap-0");

    node.oneadmin(&format!("rm -r {new}"), b"").good();
    vm.call_with("migrate", &[&uuid, NODE, NODE], &action("0", "101", id)).good();
    let expected: Vec<_> =
        before.iter().map(|file| file.replace("/datastores/0/", "/datastores/101/")).collect();
    assert_eq!(sources(&node, &vm.name), expected);
    let xml = node.virsh(&format!("dumpxml {uuid}")).good();
    assert!(xml.contains(&format!("system_datastore>{new}<")), "{xml}");

    // What is left in the old place is of no use any more.
    node.oneadmin(&format!("rm -r {old}"), b"").good();
    let ticks = vm.console().matches("TICK").count();
    vm.await_console("TICK", ticks + 2);
    assert_eq!(vm.console().matches("GUEST: READY").count(), 1, "it did not boot again");
    vm.call("snapshot_revert", &[&uuid, "snap-0"]).good();
    let ticks = vm.console().matches("TICK").count();
    vm.await_console("TICK", ticks + 2);
}
