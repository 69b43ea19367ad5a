//! One-step actions on warm connections, many of them over both hosts, and a large document through a step.

use std::time::{Duration, Instant};

use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, processes};
use crate::plain::{Master, timed};
use crate::report::{Report, median};

/// An action of one step: its verb, the script that stands for it, and what that costs a host without us.
struct Action {
    verb: &'static str,
    script: &'static str,
    text: &'static str,
    what: &'static str,
}

/// The one that takes its stdin, as actions do, and one that does nothing: the cheapest script that there is.
const ACTIONS: [Action; 2] = [
    Action {
        verb: "RESET",
        script: "reset",
        text: "#!/bin/sh\ncat >/dev/null\necho done\n",
        what: "a script of two processes (sh, cat)",
    },
    Action {
        verb: "REBOOT",
        script: "reboot",
        text: "#!/bin/sh\necho done\n",
        what: "a script of one process (sh)",
    },
];

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

fn once(driver: &mut Driver, verb: &str, host: &str, vm: u32, padding: usize) -> Duration {
    let payload = document(host, vm, padding).payload();
    let start = Instant::now();
    let reply = driver.ask(verb, vm, &payload, LIMIT);
    assert!(reply.succeeded(), "{}", reply.raw);
    start.elapsed()
}

/// Ids from `first` on: replies are told apart by verb and id.
fn many(driver: &mut Driver, verb: &str, first: u32) -> Duration {
    let requests: Vec<_> = (0..MANY)
        .map(|n| (first + n, document(bed::NODES[n as usize % 2], first + n, 0).payload()))
        .collect();
    timed(|| {
        for (vm, payload) in &requests {
            driver.send(verb, *vm, payload);
        }
        let mut answered = 0;
        while answered < MANY {
            let lines = driver.conversation.wait(LIMIT, |lines| (!lines.is_empty()).then_some(()));
            assert!(lines.is_some(), "no reply for {LIMIT:?}: {answered} of {MANY} answered");
            for line in driver.conversation.take().iter().filter(|line| line.kind == verb) {
                assert!(line.succeeded(), "{}", line.raw);
                answered += 1;
            }
        }
    })
}

/// (a) and (b) for one action.
fn compare(report: &mut Report, driver: &mut Driver, masters: &[Master], action: &Action) {
    let script = format!("/tmp/kvmad-bench-{}-{}", std::process::id(), action.script);
    for master in masters {
        master.put(&script, action.text);
    }
    for host in bed::NODES {
        once(driver, action.verb, host, 70_500, 0);
    }
    let ours: Vec<_> = (0..ROUNDS).map(|_| once(driver, action.verb, "node1", 70_501, 0)).collect();
    let bare = masters[0].each(&script, ROUNDS);
    let what = format!("(a) {}, warm, vs ssh -S", action.what);
    report.ratio(&what, median(&ours), median(&bare), "<= 0.3");

    let ours: Vec<_> = (0..3).map(|round| many(driver, action.verb, 71_000 + round * MANY)).collect();
    let bare: Duration = masters.iter().flat_map(|master| master.each(&script, MANY as usize / 2)).sum();
    let what = format!("(b) 200 of {} over two hosts, vs one by one", action.what);
    report.ratio(&what, median(&ours), bare, "<= 0.1");
    for host in bed::NODES {
        bed::sh(host, &["rm", "-f", &script]);
    }
}

/// Adds (a), (b), (c) and the memory of (d).
pub fn measure(report: &mut Report) {
    let front = FrontEnd::staged();
    for action in &ACTIONS {
        front.put(&format!("var/remotes/vmm/kvm/{}", action.script), 0o755, action.text);
    }
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    let idle = processes::weigh(driver.pid());
    let masters: Vec<_> = bed::NODES.into_iter().map(Master::open).collect();
    for action in &ACTIONS {
        compare(report, &mut driver, &masters, action);
    }
    let busy = processes::weigh(driver.pid());

    let mut with = |vm, padding| -> Vec<_> {
        (0..10).map(|_| once(&mut driver, "RESET", "node1", vm, padding)).collect()
    };
    let (small, large) = (with(70_502, 0), with(70_503, 5 << 20));
    let more = median(&large).saturating_sub(median(&small));
    report.time("(c) a document of 5 MB over a small one", more, "< 100 ms");

    let large = processes::weigh(driver.pid());
    report.figure("(d) resident memory, idle", format!("{} KiB", idle.resident), "8 MB");
    report.figure("(d) resident memory after (b)", format!("{} KiB", busy.resident), "12 MB");
    report.figure("(d) resident memory after (c)", format!("{} KiB", large.resident), "");
}
