//! DEPLOY against the bare `virsh create` of the same domain, and from the domain being gone to SHUTDOWN's reply.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::harness::bed;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::Vm;
use crate::plain::timed;
use crate::report::{Report, median};

const LIMIT: Duration = Duration::from_secs(180);
const ROUNDS: usize = 5;

fn bare_create(vm: &Vm, file: &str) -> Duration {
    let took = timed(|| {
        assert!(bed::virsh(&vm.host, &["create", file]).is_some(), "virsh create {file}");
    });
    bed::virsh(&vm.host, &["destroy", &vm.domain()]);
    assert!(vm.gone(LIMIT));
    took
}

/// Time of day of the last `Stopped` event that an independent `virsh event` has seen.
fn stopped_at(text: &str, domain: &str) -> Option<f64> {
    let line = text.lines().rfind(|line| line.contains(domain) && line.contains("Stopped"))?;
    let clock = line.split_whitespace().nth(1)?.trim_end_matches(':');
    let mut parts = clock.split([':', '.', '+']);
    let mut next = || parts.next()?.parse::<f64>().ok();
    let (hour, minute, second, milli) = (next()?, next()?, next()?, next()?);
    Some(hour * 3600.0 + minute * 60.0 + second + milli / 1000.0)
}

fn now_of_day() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    now % 86_400.0
}

fn shutdown(driver: &mut Driver, vm: &Vm) -> Option<Duration> {
    let mut events = bed::on(&vm.host);
    events.args([
        "timeout",
        "170",
        "virsh",
        "-c",
        "qemu:///system",
        "event",
        "--event",
        "lifecycle",
        "--loop",
    ]);
    let mut watch = events.arg("--timestamp").stdout(Stdio::piped()).spawn().expect("virsh event");
    std::thread::sleep(Duration::from_millis(500));
    let reply = driver.ask("SHUTDOWN", vm.id, &vm.document().payload(), LIMIT);
    let replied = now_of_day() - reply.at.elapsed().as_secs_f64();
    assert!(reply.succeeded(), "{}", reply.raw);
    for pid in crate::harness::processes::tree(watch.id()).iter().map(|process| process.pid) {
        crate::harness::processes::signal(pid, "TERM");
    }
    let output = watch.stdout.take().map(std::io::read_to_string);
    let _ = watch.wait();
    let text = output?.ok()?;
    let stopped = stopped_at(&text, &vm.domain())?;
    Some(Duration::from_secs_f64((replied - stopped).max(0.0)))
}

/// Adds (e).
pub fn measure(report: &mut Report) {
    let front = FrontEnd::staged();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    let mut vm = Vm::new(&front, 70_600, "node1");
    let file = vm.folder().join("bare.xml").display().to_string();
    std::fs::write(&file, vm.domain_xml()).expect("a file");
    bare_create(&vm, &file);
    driver.ask("CANCEL", vm.id, &vm.document().payload(), LIMIT);

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(bare_create(&vm, &file));
        let start = Instant::now();
        let reply = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), LIMIT);
        ours.push(start.elapsed());
        assert!(reply.succeeded(), "{}", reply.raw);
        vm.deploy_id = reply.info;
        assert!(driver.ask("CANCEL", vm.id, &vm.document().payload(), LIMIT).succeeded());
    }
    report.ratio("(e) DEPLOY's reply vs virsh create", median(&ours), median(&bare), "<= 1.3");

    let mut late = Vec::new();
    for round in 0..3 {
        let reply = driver.ask("DEPLOY", vm.id, &vm.deploy().payload(), LIMIT);
        assert!(reply.succeeded(), "{}", reply.raw);
        vm.deploy_id = reply.info;
        vm.wait_said("READY at", round + 1, LIMIT);
        late.extend(shutdown(&mut driver, &vm));
    }
    report.time("(e) domain gone to SHUTDOWN's reply", median(&late), "300 ms");
}
