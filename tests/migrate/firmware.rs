//! A guest with UEFI firmware: the file in which it keeps its variables goes along.

use std::fs;
use std::time::Duration;

use crate::guest::{ACTION, Guest, Storage};
use crate::harness::driver::Driver;
use crate::harness::{bed, wait_for};
use crate::stand;

/// The firmware has written variables of its own into its copy; the guest stands still while it goes, so that they stay
/// the same.
fn with_variables(id: u32, storage: Storage) {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, id, "node1", storage, false).with_firmware();
    guest.start(&mut driver);
    let template = fs::read("/usr/share/OVMF/OVMF_VARS.fd").expect("package ovmf (packaging/need test)");
    let read = |guest: &Guest, host: &str| fs::read(guest.on_machine(host).join(guest.variables()));
    let written = || (read(&guest, "node1").expect("the variables") != template).then_some(());
    wait_for(Duration::from_secs(120), written).expect("the firmware writes its variables");
    for target in ["node2", "node1"] {
        let source = guest.host.clone();
        bed::virsh(&source, &["suspend", &guest.domain()]).expect("it stands still");
        let before = read(&guest, &source).expect("the variables");
        assert!(before.len() == template.len() && before != template);
        let leaving = guest.leave(&mut driver, target);
        let reply = guest.went(&driver, &leaving, ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
        assert_eq!(guest.state(target).as_deref(), Some("paused"), "it stood still before");
        assert_eq!(guest.state(&source), None);
        assert!(
            read(&guest, target).expect("the variables") == before,
            "on {target} they are not those of before"
        );
        let xml = bed::virsh(target, &["dumpxml", &guest.domain()]).expect("a domain");
        let file = guest.folder().join(guest.variables()).display().to_string();
        assert!(xml.contains(&format!("{file}</nvram>")), "{xml}");
        if storage == Storage::Local {
            assert_eq!(guest.files(&source), [].into(), "what was left behind is gone");
        }
        never_ran(&mut guest, &mut driver);
        // it goes on, and its firmware starts from them
        bed::virsh(target, &["resume", &guest.domain()]).expect("it goes on");
        bed::virsh(target, &["reset", &guest.domain()]).expect("it starts again");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(guest.state(target).as_deref(), Some("running"));
    }
}

/// QEMU of the bed ends when it is to send a guest that came and never ran: so nothing is begun.
fn never_ran(guest: &mut Guest, driver: &mut Driver) {
    let leaving = guest.leave(driver, guest.other());
    let reply = guest.went(driver, &leaving, ACTION);
    assert!(reply.status == "FAILURE" && reply.info.contains("virsh resume"), "{}", reply.raw);
    assert_eq!(guest.state(&guest.host).as_deref(), Some("paused"), "it is still there");
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn soak_variables_of_the_firmware_are_kept_on_shared_storage() {
    with_variables(7160, Storage::Shared);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn variables_of_the_firmware_go_along_with_local_storage() {
    with_variables(7161, Storage::Local);
}
