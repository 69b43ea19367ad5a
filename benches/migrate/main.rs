//! A live migration through the driver against bare `virsh migrate` of the same guest, in one run, on the test bed:
//! `benches/run migrate`. Nothing here is a verdict. `KVMAD_BENCH_SHORT=yes` leaves out the long migrations.
#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods, dead_code)]

#[path = "../../tests/migrate/console.rs"]
mod console;
#[path = "../../tests/migrate/guest.rs"]
mod guest;
#[path = "../../tests/bed/harness/mod.rs"]
mod harness;
#[path = "../driver/report.rs"]
mod report;
#[path = "../../tests/migrate/stand.rs"]
mod stand;

use std::time::{Duration, Instant};

use guest::{Guest, Storage};
use harness::bed;
use harness::driver::Driver;
use report::{Report, median};

/// MiB a second that make the guest's memory last 20 s and more.
const NARROW: &str = "2";

/// As an administrator would do it on the source; time until the command ends.
fn bare(guest: &mut Guest, narrow: bool) -> Duration {
    let target = guest.other();
    let leaving = guest.leaving(target, 0);
    let mut command = bed::as_oneadmin(&guest.host);
    command.args(["virsh", "--quiet", "--connect", "qemu:///system", "migrate", "--live"]);
    if narrow {
        command.args(["--bandwidth", NARROW]);
    }
    command.arg(guest.domain()).arg(format!("qemu+tcp://{target}/system"));
    let start = Instant::now();
    let output = bed::run(command);
    let took = start.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    guest.arrived(&leaving);
    took
}

fn ours(guest: &mut Guest, driver: &mut Driver, narrow: bool) -> Duration {
    guest.features = if narrow { vec![("MIGRATE_BANDWIDTH".into(), NARROW.into())] } else { Vec::new() };
    guest.migrate(driver)
}

/// Times of both, one after the other; each goes in both directions equally often.
fn pairs(guest: &mut Guest, driver: &mut Driver, rounds: usize, narrow: bool) -> (Duration, Duration) {
    let (mut by_us, mut by_virsh) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            by_us.push(ours(guest, driver, narrow));
            by_virsh.push(bare(guest, narrow));
        } else {
            by_virsh.push(bare(guest, narrow));
            by_us.push(ours(guest, driver, narrow));
        }
    }
    (median(&by_us), median(&by_virsh))
}

fn main() {
    // `cargo bench` hands over --bench; `cargo test --benches` runs us without it: nothing to do then
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let _use = bed::alone();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp"), ("SYNC_TIME", "no")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, 7190, "node1", Storage::Shared, false);
    guest.boot(&mut driver);
    // connections are there before
    pairs(&mut guest, &mut driver, 1, false);
    let mut report = Report::default();
    if std::env::var_os("KVMAD_BENCH_SHORT").is_none() {
        let (by_us, by_virsh) = pairs(&mut guest, &mut driver, 2, true);
        report.ratio("(f) migration limited to 20 s and more vs virsh migrate", by_us, by_virsh, "<= 1.1");
    }
    let (by_us, by_virsh) = pairs(&mut guest, &mut driver, 6, false);
    report.ratio("(f) a short one vs virsh migrate", by_us, by_virsh, "");
    report.time("(f) what it takes longer", by_us.saturating_sub(by_virsh), "<= 1 s");
    guest.kept_running();
    println!("{report}");
}
