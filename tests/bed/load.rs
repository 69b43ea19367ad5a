//! Many requests in a row: memory, descriptors and processes stay flat.

use std::time::{Duration, Instant};

use crate::harness::bed;
use crate::harness::document::Document;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::processes::{self, Weight};
use crate::harness::soak;

const QUICK: &str = "#!/bin/bash\nexit 0\n";
/// Requests that are on the way at once.
const WINDOW: u32 = 60;

fn document(vm: u32, host: &str) -> String {
    Document { host: host.into(), deploy_id: format!("one-{vm}"), vm, ..Document::default() }.payload()
}

/// Sends `count` RESETs over `hosts` in turn, at most [`WINDOW`] unanswered; every one must succeed.
fn run(driver: &mut Driver, hosts: &[&str], count: u32) {
    let mut answered = 0;
    let mut sent = 0;
    while answered < count {
        while sent < count && sent - answered < WINDOW {
            let vm = 10_000 + sent;
            driver.send("RESET", vm, &document(vm, hosts[(sent as usize) % hosts.len()]));
            sent += 1;
        }
        let some = driver.conversation.wait(Duration::from_secs(60), |lines| {
            lines.iter().any(|line| line.kind == "RESET").then_some(())
        });
        assert!(some.is_some(), "no reply for 60 s: {answered} of {sent} answered");
        for line in driver.conversation.take().iter().filter(|line| line.kind == "RESET") {
            assert!(line.succeeded(), "{}", line.raw);
            answered += 1;
        }
    }
    std::thread::sleep(Duration::from_secs(1));
    let late = driver.conversation.take();
    assert!(late.iter().all(|line| line.kind != "RESET"), "more replies than requests: {late:?}");
}

fn flat(before: Weight, after: Weight) {
    assert_eq!(after.zombies, 0, "{after:?}");
    assert!(after.processes <= before.processes, "processes: {before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors + 2, "descriptors: {before:?} {after:?}");
    assert!(after.resident <= before.resident * 5 / 4 + 2048, "memory: {before:?} {after:?}");
}

/// A tenth first, so that pools and buffers are as large as they get; then the rest must add nothing.
fn many(name: &str, arguments: &str, hosts: &[&str], count: u32) {
    let front = FrontEnd::staged();
    front.put("var/remotes/vmm/kvm/reset", 0o755, QUICK);
    let mut driver = Driver::ready(&front, arguments);
    run(&mut driver, hosts, count / 10);
    let before = processes::weigh(driver.pid());
    let start = Instant::now();
    run(&mut driver, hosts, count - count / 10);
    let took = start.elapsed();
    let after = processes::weigh(driver.pid());
    let table = soak::Table::open(
        "10-load",
        "Load: many requests in a row",
        &["run", "requests", "a second", "resident memory", "descriptors", "processes", "zombies"],
    );
    let change = |before: u64, after: u64| format!("{before} -> {after}");
    table.row(&[
        name,
        &count.to_string(),
        &format!("{:.0}", f64::from(count - count / 10) / took.as_secs_f64()),
        &format!("{} KiB", change(before.resident, after.resident)),
        &change(before.descriptors as u64, after.descriptors as u64),
        &change(before.processes as u64, after.processes as u64),
        &after.zombies.to_string(),
    ]);
    flat(before, after);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_thousand_requests_on_the_front_end_leave_the_driver_as_it_was() {
    let _use = bed::shared();
    many("local script", "-t 15 -r 0 -l reset kvm -p", &["node1", "node2"], 1000);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_thousand_requests_over_all_hosts_leave_the_driver_as_it_was() {
    let _use = bed::shared();
    many("hosts", "-t 15 -r 0 kvm -p", &["node1", "node2", bed::DIFFICULT], 1000);
}

#[test]
#[ignore = "long: make soak"]
fn soak_ten_thousand_requests_on_the_front_end() {
    let _use = bed::shared();
    many("local script", "-t 15 -r 0 -l reset kvm -p", &["node1", "node2"], 10_000);
}

#[test]
#[ignore = "long: make soak"]
fn soak_ten_thousand_requests_over_all_hosts() {
    let _use = bed::shared();
    many("script on three hosts", "-t 15 -r 0 kvm -p", &["node1", "node2", bed::DIFFICULT], 10_000);
}
