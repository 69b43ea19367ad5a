//! Migrations that nothing disturbs.

use crate::guest::{Guest, Storage};
use crate::harness::bed;
use crate::stand;

/// There and back `rounds` times, with everything that must be true after each migration.
fn there_and_back(protocol: &str, storage: Storage, id: u32, rounds: usize) {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", protocol)]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, id, "node1", storage, true);
    guest.boot(&mut driver);
    guest.snapshot(&mut driver, 0);
    guest.snapshot(&mut driver, 1);
    for round in 0..rounds {
        for target in ["node2", "node1"] {
            assert_eq!(guest.other(), target);
            guest.migrate(&mut driver);
            assert_eq!(guest.snapshots(), ["snap-0", "snap-1"], "round {round}, on {target}");
            let files = guest.files(target);
            assert!(files.contains_key("disk.0") && files.contains_key("disk.1"), "{files:?}");
        }
    }
    guest.kept_running();
    guest.reads_its_disk();
    if storage == Storage::Local {
        assert_eq!(guest.files("node2"), [].into(), "what was left behind is gone");
    }
    assert_eq!(driver.conversation.replies("MIGRATE", id), 2 * rounds, "one reply each");
    // The snapshots that went along are good for something.
    for number in [1, 0] {
        guest.revert(&mut driver, number);
        guest.ticks(crate::guest::BOOT).unwrap_or_else(|why| panic!("snap-{number}: {why}"));
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn ten_times_there_and_back_over_tcp_on_shared_storage_with_snapshots_and_cdrom() {
    there_and_back("qemu+tcp", Storage::Shared, 7100, 10);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn over_ssh_on_shared_storage() {
    there_and_back("qemu+ssh", Storage::Shared, 7101, 1);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn over_ssh_with_local_storage() {
    there_and_back("qemu+ssh", Storage::Local, 7102, 1);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn over_tcp_with_local_storage() {
    there_and_back("qemu+tcp", Storage::Local, 7103, 1);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn soak_there_and_back_every_way() {
    for (id, protocol, storage, rounds) in [
        (7104, "qemu+ssh", Storage::Shared, 10),
        (7105, "qemu+ssh", Storage::Local, 10),
        (7106, "qemu+tcp", Storage::Local, 10),
    ] {
        there_and_back(protocol, storage, id, rounds);
    }
}
