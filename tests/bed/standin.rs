//! The harness itself, proved with a stand-in for the driver.

use std::time::Duration;

use crate::harness::document::Document;
use crate::harness::driver::{Driver, Form};
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::Vm;
use crate::harness::{bed, processes, wait_for};

const SOON: Duration = Duration::from_secs(10);

fn front() -> FrontEnd {
    let front = FrontEnd::bare();
    front.put("lib/mads/one_vmm_exec", 0o755, include_str!("standin-driver"));
    front
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_driver_is_started_as_oned_does_it() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    let info = driver.ask("DEPLOY", 2001, "-", SOON).info;
    assert!(info.starts_with("words=1 first=-t 15 -r 0 kvm -p blocked="), "{info}");
    let blocked =
        info.split(" blocked=").nth(1).and_then(|rest| u64::from_str_radix(rest.get(..16)?, 16).ok());
    // all but KILL (9) and STOP (19), which can't be, CHLD (17), which bash has set free, and the two of the C library (32, 33)
    let free: u64 = [9, 17, 19, 32, 33].iter().map(|signal| 1 << (signal - 1)).sum();
    assert_eq!(blocked.map(|mask| mask | free), Some(u64::MAX), "{info}");
    let folder = front.folder().display();
    let rest = format!(" fd2={folder}/lib/mads/one_vmm_exec user=oneadmin host=fe one={folder}");
    assert!(info.ends_with(&rest), "{info}");
    assert_eq!(driver.ask("AGENT", 2001, "-", SOON).info, "1");
    assert_eq!(driver.finalize(SOON).code(), Some(0));
}

#[test]
#[ignore = "needs the test bed: make test"]
fn both_forms_of_a_request_arrive_and_replies_are_told_apart_by_verb_and_id() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, "kvm");
    let document = Document { host: "node<1>".into(), vm: 7, ..Document::default() };
    for form in [Form::Old, Form::New] {
        driver.form = form;
        driver.send("CANCEL", 70, "-");
        let reply = driver.ask("SHUTDOWN", 7, &document.payload(), SOON);
        assert!(!reply.succeeded());
        assert_eq!(reply.info, document.xml());
        assert!(reply.info.contains("<HOST>node&lt;1&gt;</HOST><MIGR_HOST/>"), "{}", reply.info);
    }
    driver.conversation.log(70, "going", SOON);
    assert_eq!(driver.conversation.replies("CANCEL", 70), 2);
    assert_eq!(driver.conversation.replies("CANCEL", 7), 0);
    driver.close_stdin();
    assert_eq!(driver.exit(SOON).and_then(|status| status.code()), Some(255));
    assert!(driver.conversation.ended(SOON));
    assert_eq!(driver.conversation.partial(), None);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_a_killed_driver_leaves_is_seen() {
    let _use = bed::shared();
    let front = front();
    let mark = front.folder().display().to_string();
    let mut driver = Driver::ready(&front, "kvm");
    driver.ask("SAVE", 2002, "-", SOON);
    let before = processes::traces(bed::FRONT_END, &mark);
    assert!(before.iter().any(|process| process.arguments == ["sleep", "1000"]), "{before:?}");
    driver.kill();
    assert!(driver.exit(SOON).is_some());
    let left = wait_for(SOON, || {
        let left = processes::alive(&before);
        (left.len() == 1).then_some(left)
    });
    let left = left.expect("only the orphan is left");
    assert_eq!(left[0].arguments, ["sleep", "1000"]);
    processes::signal(left[0].pid, "KILL");
    assert!(wait_for(SOON, || processes::alive(&before).is_empty().then_some(())).is_some());
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_vm_of_the_harness_boots_and_its_console_is_read() {
    let _use = bed::shared();
    let front = front();
    let vm = Vm::new(&front, 2003, "node1");
    assert_eq!(vm.state(), None);
    let file = vm.folder().join("deployment.0");
    std::fs::write(&file, vm.domain_xml()).expect("the domain's file");
    assert!(bed::virsh("node1", &["create", file.to_str().expect("UTF-8")]).is_some());
    assert_eq!(vm.state().as_deref(), Some("running"));
    vm.wait_said("READY at", 1, Duration::from_secs(120));
    assert!(vm.ticks(Duration::from_secs(30)));
    bed::virsh("node1", &["suspend", &vm.domain()]);
    assert!(!vm.ticks(Duration::from_secs(3)));
    bed::virsh("node1", &["destroy", &vm.domain()]);
    assert!(vm.gone(SOON));
}
