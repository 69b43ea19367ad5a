//! A VM's life on a real host: a guest that really boots, is saved and restored, and shuts down by ACPI.

use std::fs;
use std::time::Duration;

use crate::harness::bed;
use crate::harness::driver::{Driver, Form};
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::{Vm, as_oned_writes};

/// A guest boots in 5 s under emulation when nothing else runs.
pub const BOOT: Duration = Duration::from_secs(180);
/// Deadline of an action here; generous, because two cores do everything.
pub const ACTION: Duration = Duration::from_secs(120);

/// DEPLOY with its reply; the VM then knows its deploy id.
pub fn deploy(driver: &mut Driver, vm: &mut Vm) {
    let reply = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), ACTION);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    let uuid = bed::virsh(&vm.host, &["domuuid", &vm.domain()]);
    assert_eq!(Some(reply.info.trim()), uuid.as_deref(), "the reply holds the domain's id and nothing else");
    vm.deploy_id = reply.info.trim().to_owned();
}

/// Deploy, save, restore, reboot, shutdown; each with what must be true on the host after it.
pub fn whole_life(driver: &mut Driver, vm: &mut Vm) {
    let succeeds = |driver: &mut Driver, verb: &str, payload: &str, id: u32| {
        let reply = driver.ask(verb, id, payload, ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    };
    deploy(driver, vm);
    assert_eq!(vm.state().as_deref(), Some("running"));
    vm.wait_said("READY at", 1, BOOT);

    succeeds(driver, "SAVE", &vm.with_checkpoint().payload(), vm.id);
    assert_eq!(vm.state(), None, "a saved VM has no domain");
    assert!(
        fs::metadata(vm.checkpoint()).is_ok_and(|file| file.len() > 1 << 20),
        "the checkpoint holds its memory"
    );

    succeeds(driver, "RESTORE", &vm.with_checkpoint().payload(), vm.id);
    assert!(vm.ticks(BOOT), "the guest goes on");
    assert_eq!(vm.said("READY at"), 1, "it did not boot again");
    assert!(!vm.checkpoint().exists(), "no checkpoint is left after a good restore");

    succeeds(driver, "REBOOT", &vm.document().payload(), vm.id);
    vm.wait_said("READY at", 2, BOOT);

    let asked = vm.said("ACPI power button");
    succeeds(driver, "SHUTDOWN", &vm.document().payload(), vm.id);
    assert_eq!(vm.state(), None, "the domain is gone when the reply comes");
    assert!(vm.said("ACPI power button") > asked, "the guest was asked, not killed");
    for verb in ["DEPLOY", "SAVE", "RESTORE", "REBOOT", "SHUTDOWN"] {
        assert_eq!(driver.conversation.replies(verb, vm.id), 1, "one {verb} reply");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_vm_with_a_network_card_lives_from_deploy_to_shutdown() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let mut vm = Vm::with_network(&front, 2010, "node1", "bedbr2010", "bridge");
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    whole_life(&mut driver, &mut vm);
    let bridge = bed::host_path("node1", "/sys/class/net/bedbr2010");
    assert!(!bridge.exists(), "the bridge that pre made is gone after clean");
    driver.conversation.log(2010, "Successfully execute network driver operation: pre.", ACTION);
    driver.conversation.log(2010, "Successfully execute virtualization driver operation: deploy.", ACTION);
    assert_eq!(driver.finalize(ACTION).code(), Some(0));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn an_old_core_gets_the_same_life() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let mut vm = Vm::new(&front, 2011, "node2");
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm");
    driver.form = Form::Old;
    whole_life(&mut driver, &mut vm);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_vm_lives_on_the_difficult_host() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let mut vm = Vm::new(&front, 2012, bed::DIFFICULT);
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    whole_life(&mut driver, &mut vm);
}

fn foreign_front() -> FrontEnd {
    FrontEnd::staged().with_remotes(&bed::programs().join("../bed/foreign-remotes"))
}

/// What foreign scripts wrote down on the host: name and arguments, a call a line.
fn calls(front: &FrontEnd, host: &str) -> Vec<String> {
    let file = bed::host_path(host, format!("{}/calls", front.remotes()));
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn foreign_life(id: u32, host: &str) {
    let _use = bed::shared();
    let front = foreign_front();
    let mut vm = Vm::with_network(&front, id, host, "virbr-none", "dummy");
    vm.set_domain(&vm.domain_xml_without_network());
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    whole_life(&mut driver, &mut vm);
    assert!(
        !bed::host_path(host, format!("{}/kvmad", front.remotes())).exists(),
        "nothing of ours is on the host"
    );
    let (folder, deploy_id) = (as_oned_writes(&vm.folder()), &vm.deploy_id);
    let expected = [
        "pre ".to_owned(),
        format!("deploy {folder}/deployment.0 {host} {id} {host}"),
        format!("post {deploy_id} {host}"),
        format!("save {deploy_id} {folder}/checkpoint {host} {id} {host}"),
        format!("clean {host}"),
        "pre ".to_owned(),
        format!("restore {folder}/checkpoint {host} {deploy_id} {id} {host}"),
        format!("post {deploy_id} {host}"),
        format!("reboot {deploy_id} {host} {id} {host}"),
        format!("shutdown {deploy_id} {host} {id} {host}"),
        format!("clean {host}"),
    ];
    assert_eq!(calls(&front, host), expected);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn foreign_remotes_give_the_same_life_without_our_helper() {
    foreign_life(2013, "node2");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn foreign_remotes_work_on_the_difficult_host_too() {
    foreign_life(2014, bed::DIFFICULT);
}
