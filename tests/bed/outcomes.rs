//! Failures and repetitions of the life-cycle actions against real libvirt: the VM stays where it was.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::bed;
use crate::harness::document::Document;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::Vm;
use crate::life::{ACTION, deploy};

/// A VM that does not boot anything, and a driver that is ready.
fn bed_with(id: u32, host: &str) -> (bed::Use, FrontEnd, Vm, Driver) {
    let using = bed::shared();
    let front = FrontEnd::staged();
    let vm = Vm::new(&front, id, host).without_guest();
    let driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    (using, front, vm, driver)
}

#[test]
#[ignore = "needs the test bed: make test"]
fn cancel_destroys_and_cancel_or_shutdown_of_a_vm_that_is_gone_succeed_at_once() {
    let (_use, _front, mut vm, mut driver) = bed_with(2020, "node1");
    deploy(&mut driver, &mut vm);
    assert!(driver.ask("CANCEL", vm.id, &vm.document().payload(), ACTION).succeeded());
    assert_eq!(vm.state(), None);
    for verb in ["CANCEL", "SHUTDOWN"] {
        let start = Instant::now();
        let reply = driver.ask(verb, vm.id, &vm.document().payload(), ACTION);
        assert!(reply.succeeded(), "{}", reply.raw);
        assert!(start.elapsed() < Duration::from_secs(10), "{verb} took {:?}", start.elapsed());
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn deploy_of_a_vm_that_runs_answers_with_its_id() {
    let (_use, _front, mut vm, mut driver) = bed_with(2021, "node1");
    deploy(&mut driver, &mut vm);
    let again = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), ACTION);
    assert!(again.succeeded(), "{}", again.raw);
    assert_eq!(again.info.trim(), vm.deploy_id);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_domain_that_libvirt_refuses_is_a_failure_with_its_reason_and_leaves_nothing() {
    let (_use, _front, vm, mut driver) = bed_with(2022, "node1");
    vm.set_domain(&vm.domain_xml().replace("disk.0", "no-such-disk"));
    let reply = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), ACTION);
    assert!(!reply.succeeded(), "{}", reply.raw);
    assert!(reply.info.contains("no-such-disk"), "{}", reply.raw);
    assert_eq!(vm.state(), None);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_missing_emulator_is_named_before_libvirt_is_asked() {
    let (_use, _front, vm, mut driver) = bed_with(2023, "node1");
    vm.set_domain(&vm.domain_xml().replace("/usr/bin/qemu-system-x86_64", "/opt/none/qemu"));
    let reply = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), ACTION);
    assert!(!reply.succeeded(), "{}", reply.raw);
    assert!(reply.info.contains("/opt/none/qemu"), "{}", reply.raw);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_save_that_fails_leaves_the_vm_running_and_an_earlier_checkpoint_untouched() {
    let (_use, _front, mut vm, mut driver) = bed_with(2024, "node1");
    deploy(&mut driver, &mut vm);
    // a file system with no room for the guest's memory
    let small = format!("/var/tmp/kvmad-bed-small-{}", std::process::id());
    bed::sh("node1", &["mkdir", &small]);
    bed::sh("node1", &["mount", "-t", "tmpfs", "-o", "size=512k,mode=777", "small", &small]);
    bed::sh(
        "node1",
        &["sh", "-c", "printf earlier >\"$1/checkpoint\"; chown oneadmin: \"$1/checkpoint\"", "sh", &small],
    );
    let document = Document { checkpoint: format!("{small}/checkpoint"), ..vm.document() };
    let reply = driver.ask("SAVE", vm.id, &document.payload(), ACTION);
    let left = bed::sh("node1", &["find", &small, "-type", "f", "-printf", "%f %s\n"]);
    let content = bed::sh("node1", &["head", "-c", "16", &format!("{small}/checkpoint")]);
    bed::sh("node1", &["umount", &small]);
    bed::sh("node1", &["rmdir", &small]);
    assert!(!reply.succeeded(), "{}", reply.raw);
    assert_eq!(vm.state().as_deref(), Some("running"));
    assert_eq!(content, "earlier", "the earlier checkpoint is as it was; files there: {left}");
    assert_eq!(left, "checkpoint 7\n", "no piece of the failed one is left");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_restore_that_fails_keeps_its_checkpoint() {
    let (_use, _front, mut vm, mut driver) = bed_with(2025, "node1");
    vm.deploy_id = vm.domain();
    fs::write(vm.checkpoint(), "no checkpoint at all").expect("a file");
    let reply = driver.ask("RESTORE", vm.id, &vm.with_checkpoint().payload(), ACTION);
    assert!(!reply.succeeded(), "{}", reply.raw);
    assert_eq!(vm.state(), None);
    assert_eq!(fs::read_to_string(vm.checkpoint()).ok().as_deref(), Some("no checkpoint at all"));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn reboot_and_reset_of_a_vm_that_is_not_there_fail_with_a_reason() {
    let (_use, _front, mut vm, mut driver) = bed_with(2026, "node1");
    vm.deploy_id = vm.domain();
    for verb in ["REBOOT", "RESET"] {
        let reply = driver.ask(verb, vm.id, &vm.document().payload(), ACTION);
        assert!(!reply.succeeded(), "{}", reply.raw);
        assert!(reply.info.contains(&vm.domain()), "{}", reply.raw);
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn reset_starts_the_guest_again() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let mut vm = Vm::new(&front, 2027, "node2");
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    deploy(&mut driver, &mut vm);
    vm.wait_said("READY at", 1, crate::life::BOOT);
    assert!(driver.ask("RESET", vm.id, &vm.document().payload(), ACTION).succeeded());
    vm.wait_said("READY at", 2, crate::life::BOOT);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn shutdown_of_a_guest_that_ignores_acpi_fails_within_its_limit_and_the_vm_still_runs() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    append(&front, "var/remotes/etc/vmm/kvm/kvmrc", "\nexport SHUTDOWN_TIMEOUT=6\nunset FORCE_DESTROY\n");
    let mut vm = Vm::new(&front, 2028, "node1").without_guest();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    deploy(&mut driver, &mut vm);
    let reply = driver.ask("SHUTDOWN", vm.id, &vm.document().payload(), ACTION);
    assert!(!reply.succeeded(), "{}", reply.raw);
    assert_eq!(vm.state().as_deref(), Some("running"));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn with_force_destroy_a_guest_that_ignores_acpi_is_shut_down_all_the_same() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    append(
        &front,
        "var/remotes/etc/vmm/kvm/kvmrc",
        "\nexport SHUTDOWN_TIMEOUT=4\nexport FORCE_DESTROY=yes\n",
    );
    let mut vm = Vm::new(&front, 2029, "node1").without_guest();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    deploy(&mut driver, &mut vm);
    let reply = driver.ask("SHUTDOWN", vm.id, &vm.document().payload(), ACTION);
    assert!(reply.succeeded(), "{}", reply.raw);
    assert_eq!(vm.state(), None);
}

fn append(front: &FrontEnd, path: &str, text: &str) {
    let file = front.folder().join(path);
    let content = fs::read_to_string(&file).unwrap_or_default();
    front.put(path, 0o644, &format!("{content}{text}"));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_guest_that_was_not_up_yet_is_asked_a_second_time_and_shuts_down_by_itself() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    append(&front, "var/remotes/etc/vmm/kvm/kvmrc", "\nexport SHUTDOWN_TIMEOUT=90\nunset FORCE_DESTROY\n");
    let mut vm = Vm::new(&front, 2031, "node2");
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    deploy(&mut driver, &mut vm);
    assert_eq!(vm.said("READY at"), 0, "the first press comes while the firmware runs");
    let reply = driver.ask("SHUTDOWN", vm.id, &vm.document().payload(), ACTION);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, vm.console());
    assert_eq!(vm.state(), None);
    assert!(vm.said("ACPI power button") > 0, "it was not destroyed:\n{}", vm.console());
}
