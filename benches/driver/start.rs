//! From the start of the program to its INIT reply, and what it weighs when idle.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::front_end::FrontEnd;
use crate::report::{Report, median};

const ROUNDS: usize = 20;

/// Starts it as a child of this program, without the way through the bed's namespaces.
fn once(front: &FrontEnd) -> Duration {
    let start = Instant::now();
    let mut child = Command::new(front.folder().join("lib/mads/one_vmm_exec"))
        .arg("-t 15 -r 0 kvm -p")
        .env("ONE_LOCATION", front.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the driver");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"INIT\n").expect("it reads");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it answers");
    let took = start.elapsed();
    assert_eq!(line, "INIT SUCCESS - -\n");
    drop(stdin);
    child.wait().expect("it ends");
    took
}

/// Adds the time to INIT.
pub fn measure(report: &mut Report) {
    let front = FrontEnd::staged();
    let times: Vec<_> = (0..ROUNDS).map(|_| once(&front)).collect();
    report.time("(d) start of one_vmm_exec to its INIT reply", median(&times), "10 ms");
}
