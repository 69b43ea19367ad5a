//! Each script's good and bad end once against real libvirt. VM ids 1000 to 1999.

mod devices;
mod moved;
mod running;

use crate::node::{Caller, Node, Vm};

const NODE: &str = "node1";

fn life(caller: Caller, id: u32) {
    let node = Node::new(NODE, id);
    let vm = Vm::new(&node, caller, id);
    let name = vm.name.clone();
    let checkpoint = format!("{}/checkpoint", vm.folder);

    let uuid = vm.deploy().good();
    assert_eq!(uuid.trim_end().len(), 36, "{uuid}");
    assert_eq!(node.virsh(&format!("domuuid {name}")).good().trim(), uuid.trim());
    assert_eq!(vm.deploy().good(), uuid, "deploy of what runs");
    vm.await_console("GUEST: READY", 1);

    let ticks = vm.console().matches("TICK").count();
    assert_eq!(vm.call("save", &[uuid.trim(), &checkpoint, NODE]).good(), "");
    assert!(!node.has(&name) && vm.exists("checkpoint") && !vm.exists("checkpoint.new"));
    assert_eq!(vm.call("restore", &[&checkpoint, NODE, uuid.trim()]).good(), "");
    assert_eq!(vm.state(), "running");
    assert!(!vm.exists("checkpoint") && !vm.exists("checkpoint.xml"));
    vm.await_console("TICK", ticks + 2);
    assert_eq!(vm.console().matches("GUEST: READY").count(), 1, "it went on and did not boot again");

    assert_eq!(vm.call("reboot", &[&name, NODE]).good(), "");
    vm.await_console("GUEST: READY", 2);
    assert_eq!(vm.call("reset", &[&name, NODE]).good(), "");
    vm.await_console("GUEST: READY", 3);

    assert_eq!(vm.call("shutdown", &[uuid.trim(), NODE]).good(), "");
    assert!(!node.has(&name));
    assert_eq!(vm.call("shutdown", &[uuid.trim(), NODE]).good(), "", "of what is off");

    vm.deploy().good();
    assert_eq!(vm.call("cancel", &[&name, NODE]).good(), "");
    assert!(!node.has(&name));
    assert_eq!(vm.call("cancel", &[&name, NODE]).good(), "", "of what is gone");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_lives_called_by_our_driver() {
    life(Caller::Ours, 1001);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_lives_called_by_opennebulas_driver() {
    life(Caller::OpenNebula, 1002);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_libvirt_refuses_is_a_failure_with_its_reason() {
    for (caller, id) in [(Caller::Ours, 1003), (Caller::OpenNebula, 1004)] {
        let node = Node::new(NODE, id);
        let vm = Vm::new(&node, caller, id);
        let name = vm.name.clone();
        for script in ["reboot", "reset"] {
            let reason = vm.call(script, &[&name, NODE]).bad();
            assert!(reason.contains(&format!("Could not {script} domain {name} on host {NODE}")), "{reason}");
        }
        vm.call("save", &[&name, "/var/tmp/nothing", NODE]).bad();
        assert!(vm.call("restore", &["/var/tmp/nothing", NODE, &name]).bad().contains("there is no"));
        node.oneadmin(&format!("echo garbage >{}/checkpoint", vm.folder), b"").good();
        vm.call("restore", &[&format!("{}/checkpoint", vm.folder), NODE, &name]).bad();
        assert!(vm.exists("checkpoint"));

        node.oneadmin(&format!("mv {0}/disk.0 {0}/elsewhere", vm.folder), b"").good();
        let reason = vm.deploy().bad();
        assert!(reason.contains("Could not create domain") && reason.contains("disk.0"), "{reason}");
        assert!(!node.has(&name) && !vm.exists("deployment.0") && !vm.exists("deployment.0.new"));
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_libvirt_that_is_away_is_a_failure_of_every_action() {
    let node = Node::new(NODE, 1005);
    let vm = Vm::new(&node, Caller::Ours, 1005);
    vm.deploy().good();
    let (name, checkpoint) = (vm.name.clone(), format!("{}/checkpoint", vm.folder));
    node.kvmrc("LIBVIRT_URI='qemu:///system?socket=/nowhere/libvirt-sock'\nCANCEL_TIMEOUT=2");
    for script in ["shutdown", "cancel", "reboot", "reset", "poll"] {
        let reason = vm.call(script, &[&name, NODE]).bad();
        assert!(reason.contains("/nowhere/libvirt-sock"), "{script}: {reason}");
    }
    vm.call("save", &[&name, &checkpoint, NODE]).bad();
    vm.call("restore", &[&checkpoint, NODE, &name]).bad();
    vm.deploy().bad();
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_that_does_not_hear_the_button_is_ended_when_kvmrc_says_so() {
    let node = Node::new(NODE, 1006);
    let vm = Vm::new(&node, Caller::Ours, 1006);
    // Without a system on its disk the guest stays in its firmware, which has no ear for the button.
    node.oneadmin(&format!("qemu-img create -q -f qcow2 {}/disk.0 1M", vm.folder), b"").good();
    vm.deploy().good();
    node.kvmrc("SHUTDOWN_TIMEOUT=4\nFORCE_DESTROY=no");
    let reason = vm.call("shutdown", &[&vm.name, NODE]).bad();
    assert!(reason.contains("Timed out shutting down"), "{reason}");
    assert_eq!(vm.state(), "running");
    node.kvmrc("FORCE_DESTROY=yes");
    vm.call("shutdown", &[&vm.name, NODE]).good();
    assert!(!node.has(&vm.name));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_save_ended_at_any_time_leaves_the_domain_running_and_the_earlier_checkpoint() {
    let node = Node::new(NODE, 1008);
    let vm = Vm::new(&node, Caller::Ours, 1008);
    let uuid = vm.deploy().good();
    vm.await_console("GUEST: READY", 1);
    node.oneadmin(&format!("echo earlier >{}/checkpoint", vm.folder), b"").good();
    for millis in [20, 60, 100, 140, 180, 220, 260, 300, 400] {
        let shell = format!(
            "setsid /var/tmp/one-remotes-1008/vmm/kvm/save {} {}/checkpoint {NODE} 1008 {NODE} </dev/null & child=$!; sleep 0.{millis:03}; kill -TERM -- -$child; wait $child; echo $?",
            uuid.trim(),
            vm.folder
        );
        let ended = node.oneadmin(&shell, b"");
        let status = ended.stdout.trim().to_owned();
        if status == "0" {
            // It was done before it was ended.
            assert!(!node.has(&vm.name), "{millis} ms");
            vm.call("restore", &[&format!("{}/checkpoint", vm.folder), NODE, uuid.trim()]).good();
            node.oneadmin(&format!("echo earlier >{}/checkpoint", vm.folder), b"").good();
        }
        assert_eq!(vm.state(), "running", "{millis} ms: {ended:?}");
        assert!(!vm.exists("checkpoint.new"), "{millis} ms");
        assert_eq!(node.root(&format!("cat {}/checkpoint", vm.folder)).stdout, "earlier\n", "{millis} ms");
    }
    let ticks = vm.console().matches("TICK").count();
    vm.await_console("TICK", ticks + 1);
    assert_eq!(vm.console().matches("GUEST: READY").count(), 1);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_deploy_ended_at_any_time_leaves_nothing() {
    let node = Node::new(NODE, 1009);
    let vm = Vm::new(&node, Caller::Ours, 1009);
    for millis in [20, 60, 100, 150, 200, 250, 300] {
        let shell = format!(
            "cat >/var/tmp/domain-1009; setsid /var/tmp/one-remotes-1009/vmm/kvm/deploy {}/deployment.0 {NODE} 1009 {NODE} </var/tmp/domain-1009 & child=$!; sleep 0.{millis:03}; kill -TERM -- -$child; wait $child; echo $?; rm /var/tmp/domain-1009",
            vm.folder
        );
        let ended = node.oneadmin(&shell, vm.domain().as_bytes());
        if ended.stdout.trim().ends_with("\n0") {
            vm.call("cancel", &[&vm.name, NODE]).good();
        } else {
            assert!(!node.has(&vm.name) && !vm.exists("deployment.0"), "{millis} ms: {ended:?}");
        }
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_linked_disk_is_opened_where_it_lies_and_follows_to_another_datastore() {
    let node = Node::new(NODE, 1010);
    let vm = Vm::new(&node, Caller::Ours, 1010);
    node.oneadmin(
        &format!(
            "cd {} && mkdir disk.0.snap && mv disk.0 disk.0.snap/0 && ln -s disk.0.snap/0 disk.0",
            vm.folder
        ),
        b"",
    )
    .good();
    let uuid = vm.deploy().good();
    let source = |expected: &str| {
        let list = node.virsh(&format!("domblklist {}", vm.name)).good();
        assert!(list.contains(&format!("{expected}/disk.0.snap/0")), "{list}");
    };
    source(&vm.folder);
    vm.call("save", &[uuid.trim(), &format!("{}/checkpoint", vm.folder), NODE]).good();
    let other = "/var/lib/one//datastores/91/1010";
    node.oneadmin(&format!("mkdir -p /var/lib/one/datastores/91 && mv {} {other}", vm.folder), b"").good();
    vm.call("restore", &[&format!("{other}/checkpoint"), NODE, uuid.trim()]).good();
    source("/var/lib/one//datastores/91/1010");
    assert_eq!(vm.state(), "running");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn snapshots_survive_save_and_restore() {
    let node = Node::new(NODE, 1011);
    let vm = Vm::new(&node, Caller::Ours, 1011);
    let uuid = vm.deploy().good();
    for number in 0..3 {
        let name = format!("snap-{number}");
        node.virsh(&format!("snapshot-create-as {} --name {name}", vm.name)).good();
    }
    node.oneadmin(
        &format!("for s in snap-0 snap-1 snap-2; do virsh -q -c qemu:///system snapshot-dumpxml {} $s >{}/$s.xml; done", vm.name, vm.folder),
        b"",
    )
    .good();
    vm.call("save", &[uuid.trim(), &format!("{}/checkpoint", vm.folder), NODE]).good();
    vm.call("restore", &[&format!("{}/checkpoint", vm.folder), NODE, uuid.trim()]).good();
    let tree = node.virsh(&format!("snapshot-list {} --name", vm.name)).good();
    assert_eq!(tree.split_whitespace().collect::<Vec<_>>(), ["snap-0", "snap-1", "snap-2"]);
    assert_eq!(node.virsh(&format!("snapshot-parent {} snap-2", vm.name)).good().trim(), "snap-1");
    node.virsh(&format!("snapshot-revert {} snap-1", vm.name)).good();
    vm.call("cancel", &[&vm.name, NODE]).good();
    // Also after a start from nothing, with a uuid that libvirt has not seen before.
    vm.deploy().good();
    assert_eq!(node.virsh(&format!("snapshot-list {} --name", vm.name)).good().split_whitespace().count(), 3);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn poll_answers_for_a_real_domain() {
    let node = Node::new(NODE, 1012);
    let vm = Vm::new(&node, Caller::Ours, 1012);
    assert_eq!(vm.call("poll", &[&vm.name, NODE]).good(), "STATE=d\n");
    vm.deploy().good();
    let line = vm.call("poll", &[&vm.name, NODE]).good();
    assert!(line.starts_with("STATE=a USEDCPU="), "{line}");
    node.virsh(&format!("suspend {}", vm.name)).good();
    assert!(vm.call("poll", &[&vm.name, NODE]).good().starts_with("STATE=e "));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn bridges_come_with_the_vm_and_go_with_the_last_guest() {
    use base64::Engine;
    for (caller, id) in [(Caller::Ours, 1013), (Caller::OpenNebula, 1014)] {
        let node = Node::new(NODE, id);
        let mut vm = Vm::new(&node, caller, id);
        let bridge = format!("kvm{id}");
        vm.devices = format!(
            "<interface type='bridge'><source bridge='{bridge}'/><mac address='02:00:00:00:10:13'/><target dev='one-{id}-0'/><model type='virtio'/></interface>"
        );
        let document = format!(
            "<VM><ID>{id}</ID><DEPLOY_ID/><HISTORY_RECORDS><HISTORY><VM_MAD>kvm</VM_MAD></HISTORY></HISTORY_RECORDS><TEMPLATE><NIC>\
             <VN_MAD>bridge</VN_MAD><BRIDGE>{bridge}</BRIDGE><NIC_ID>0</NIC_ID><MAC>02:00:00:00:10:13</MAC></NIC></TEMPLATE></VM>"
        );
        let document = base64::engine::general_purpose::STANDARD.encode(document);
        let call =
            |script: &str, args: &[&str]| node.call(caller, &format!("vnm/bridge/{script}"), args, &document);
        let there = || node.root(&format!("ip link show {bridge}")).status == Some(0);
        assert_eq!(call("pre", &[]).good(), "");
        assert!(there());
        assert_eq!(call("pre", &[]).good(), "", "once more");
        vm.deploy().good();
        assert_eq!(call("post", &[&vm.name, NODE]).good(), "");
        assert_eq!(call("clean", &[NODE]).good(), "");
        assert!(there(), "a guest uses it");
        vm.call("cancel", &[&vm.name, NODE]).good();
        assert_eq!(call("clean", &[NODE]).good(), "");
        assert!(!there());
        assert_eq!(call("clean", &[NODE]).good(), "", "once more");
    }
}
