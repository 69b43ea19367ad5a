//! One-step actions on warm connections, many of them over both hosts, and a large document through a step.

use std::time::{Duration, Instant};

use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, processes};
use crate::plain::{Master, timed};
use crate::report::{Report, median};

/// The action: it takes its stdin, as every action does, and answers.
const SCRIPT: &str = "#!/bin/sh\ncat >/dev/null\necho done\n";
const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 40;
const MANY: u32 = 200;

fn document(host: &str, vm: u32, padding: usize) -> Document {
    Document {
        host: host.to_owned(),
        deploy_id: format!("one-{vm}"),
        vm,
        user_template: cdata("PADDING", &"x".repeat(padding)),
        ..Document::default()
    }
}

fn reset(driver: &mut Driver, host: &str, vm: u32, padding: usize) -> Duration {
    let payload = document(host, vm, padding).payload();
    let start = Instant::now();
    let reply = driver.ask("RESET", vm, &payload, LIMIT);
    assert!(reply.succeeded(), "{}", reply.raw);
    start.elapsed()
}

/// Ids from `first` on: replies are told apart by verb and id.
fn many(driver: &mut Driver, first: u32) -> Duration {
    let requests: Vec<_> = (0..MANY)
        .map(|n| (first + n, document(bed::NODES[n as usize % 2], first + n, 0).payload()))
        .collect();
    timed(|| {
        for (vm, payload) in &requests {
            driver.send("RESET", *vm, payload);
        }
        let mut answered = 0;
        while answered < MANY {
            let lines = driver.conversation.wait(LIMIT, |lines| (!lines.is_empty()).then_some(()));
            assert!(lines.is_some(), "no reply for {LIMIT:?}: {answered} of {MANY} answered");
            for line in driver.conversation.take().iter().filter(|line| line.kind == "RESET") {
                assert!(line.succeeded(), "{}", line.raw);
                answered += 1;
            }
        }
    })
}

/// Adds (a), (b), (c) and the memory of (d).
pub fn measure(report: &mut Report) {
    let front = FrontEnd::staged();
    front.put("var/remotes/vmm/kvm/reset", 0o755, SCRIPT);
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    let idle = processes::weigh(driver.pid());
    let masters: Vec<_> = bed::NODES.into_iter().map(Master::open).collect();
    let script = format!("/tmp/kvmad-bench-{}", std::process::id());
    for master in &masters {
        master.put(&script, SCRIPT);
    }
    for host in bed::NODES {
        reset(&mut driver, host, 70_500, 0);
    }

    let ours: Vec<_> = (0..ROUNDS).map(|_| reset(&mut driver, "node1", 70_501, 0)).collect();
    let bare = masters[0].each(&script, ROUNDS);
    report.ratio("(a) one-step action, warm, vs ssh -S", median(&ours), median(&bare), "<= 0.3");

    let ours: Vec<_> = (0..3).map(|round| many(&mut driver, 71_000 + round * MANY)).collect();
    let bare: Duration = masters.iter().flat_map(|master| master.each(&script, MANY as usize / 2)).sum();
    report.ratio("(b) 200 of them over two hosts vs ssh -S one by one", median(&ours), bare, "<= 0.1");

    let busy = processes::weigh(driver.pid());

    let small: Vec<_> = (0..10).map(|_| reset(&mut driver, "node1", 70_502, 0)).collect();
    let large: Vec<_> = (0..10).map(|_| reset(&mut driver, "node1", 70_503, 5 << 20)).collect();
    let more = median(&large).saturating_sub(median(&small));
    report.time("(c) a document of 5 MB over a small one", more, "< 100 ms");

    let large = processes::weigh(driver.pid());
    report.figure("(d) resident memory, idle", format!("{} KiB", idle.resident), "8 MB");
    report.figure("(d) resident memory after (b)", format!("{} KiB", busy.resident), "12 MB");
    report.figure("(d) resident memory after (c)", format!("{} KiB", large.resident), "");
    for host in bed::NODES {
        bed::sh(host, &["rm", "-f", &script]);
    }
}
