//! The VMM driver against the bare tools, as ratios in one run, on the test bed: `make bench`.
//!
//! Machines are noisy, so nothing here is a verdict: each line gives the medians of both sides, their ratio, and
//! the goal that the project set itself. Nothing fails but a bed that is not up.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::suspicious_command_arg_space
)]

#[path = "../../tests/bed/harness/mod.rs"]
mod harness;
mod life;
mod plain;
mod report;
mod start;
mod warm;

use harness::bed;
use report::Report;

fn main() {
    // `cargo bench` hands over --bench; `cargo test --benches` runs us without it: nothing to do then
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let _use = bed::alone();
    let mut report = Report::default();
    start::measure(&mut report);
    warm::measure(&mut report);
    life::measure(&mut report);
    println!("{report}");
}
