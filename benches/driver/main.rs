//! The VMM driver against the bare tools, as ratios in one run, on the test bed: `make bench`.
//!
//! Machines are noisy, so nothing here is a verdict: each line gives the medians of both sides, their ratio, and
//! the goal that the project set itself. Nothing fails but a bed that is not up.
//! One part alone: `cargo bench --bench driver -- start|warm|life`, once the bed is up.
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
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return;
    }
    let parts = ["start", "warm", "life"];
    let all = !words.iter().any(|word| parts.contains(&word.as_str()));
    let wanted = |part: &str| all || words.iter().any(|word| word == part);
    let _use = bed::alone();
    let mut report = Report::default();
    if wanted("start") {
        start::measure(&mut report);
    }
    if wanted("warm") {
        warm::measure(&mut report);
    }
    if wanted("life") {
        life::measure(&mut report);
    }
    println!("{report}");
}
