//! A guest that changes its memory faster than it can be sent, and a time limit: each policy does what it says.

use std::time::Duration;

use crate::guest::{BOOT, Guest, Storage};
use crate::harness::{bed, wait_for};
use crate::stand;

/// The guest's shell writes 20 MiB of noise over and over again. Twice as much has room in its memory.
pub fn dirties_its_memory(guest: &Guest) {
    guest.type_line("dd if=/dev/urandom of=/noise bs=1M count=20 && echo NOISE-MADE");
    let made = || {
        guest.console().lines().any(|line| line.trim_end().ends_with("NOISE-MADE") && !line.contains("echo"))
    };
    assert!(wait_for(BOOT, || made().then_some(())).is_some(), "no noise:\n{}", guest.console());
    guest.type_line("while :; do cat /noise >/copy 2>/dev/null; done &");
}

/// FEATURES: a narrow line, a time limit in seconds and what is done then.
pub fn limited(seconds: u32, then: &str) -> Vec<(String, String)> {
    [
        ("MIGRATE_BANDWIDTH", "8"),
        ("MIGRATE_TIMEOUT", &seconds.to_string()),
        ("MIGRATE_ON_TIMEOUT", then),
        ("MIGRATE_STALL_TIMEOUT", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_time_limit_ends_a_migration_that_never_would_and_the_next_policy_brings_it_over() {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp"), ("MIGRATE_PROGRESS", "2")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, 7130, "node1", Storage::Shared, false);
    guest.boot(&mut driver);
    dirties_its_memory(&guest);

    guest.features = limited(20, "abort");
    let leaving = guest.leave(&mut driver, "node2");
    let reply = guest.went(&driver, &leaving, Duration::from_secs(120));
    assert_eq!(reply.status, "FAILURE", "{}", reply.raw);
    assert!(reply.info.contains("not done after"), "{}", reply.raw);
    let took = reply.at.duration_since(leaving.at);
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(60), "{took:?}");
    driver.conversation.log(guest.id, "% of the memory sent", Duration::from_secs(1));
    guest.runs_here_alone().expect("it stays");
    guest.kept_running();

    guest.features = limited(10, "suspend");
    let leaving = guest.leave(&mut driver, "node2");
    let reply = guest.went(&driver, &leaving, Duration::from_secs(120));
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    guest.runs_here_alone().expect("it arrived and runs");
    guest.kept_running();
}
