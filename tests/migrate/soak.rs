//! Every fault at every phase, many times: `make soak`. The order and the moments come from a seed (`KVMAD_SOAK_SEED`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::faults::{Ended, Fault, Phase, Seeded, Trial};
use crate::guest::Storage;
use crate::harness::bed;
use crate::harness::soak::Table;

const ON_SHARED: [Fault; 8] = [
    Fault::SourceLibvirtd,
    Fault::TargetLibvirtd,
    Fault::TargetQemu,
    Fault::Network,
    Fault::FrontEnd,
    Fault::FrontEndSilent,
    Fault::Driver,
    Fault::Cancel,
];
const ON_LOCAL: [Fault; 6] = [
    Fault::DiskFull,
    Fault::SourceLibvirtd,
    Fault::TargetLibvirtd,
    Fault::TargetQemu,
    Fault::FrontEnd,
    Fault::Driver,
];
const PHASES: [Phase; 3] = [Phase::Early, Phase::Middle, Phase::Late];

fn seed() -> u64 {
    std::env::var("KVMAD_SOAK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_130)
}

/// Every fault at every phase, `rounds` times, in an order that the seed makes.
fn order(faults: &[Fault], rounds: usize, seed: &mut Seeded) -> Vec<(Fault, Phase)> {
    let mut all: Vec<_> = (0..rounds)
        .flat_map(|_| faults.iter().flat_map(|fault| PHASES.map(|phase| (*fault, phase))))
        .collect();
    for at in (1..all.len()).rev() {
        let other = usize::try_from(seed.from(0, at as u64)).expect("an index");
        all.swap(at, other);
    }
    all
}

#[derive(Debug, Default)]
struct Sum {
    runs: u32,
    arrived: u32,
    stayed: u32,
    longest: Duration,
    again: u32,
}

impl Sum {
    fn add(&mut self, ended: &Ended, moved: bool) {
        if ended.missed {
            self.again += 1;
            return;
        }
        self.runs += 1;
        self.longest = self.longest.max(ended.took);
        if moved { self.arrived += 1 } else { self.stayed += 1 }
    }
}

/// Runs them all on one guest that goes to and fro; a run that goes wrong is a row, and the next one has a new guest.
fn run(id: u32, storage: Storage, faults: &[Fault], rounds: usize) {
    let _use = bed::alone();
    let table = Table::open(
        "20-migration",
        "Migration under faults",
        &[
            "storage",
            "fault",
            "phase",
            "runs",
            "arrived, SUCCESS",
            "stayed, FAILURE or no reply",
            "longest until the end",
            "lost, doubled, wrong reply or files lost",
        ],
    );
    let mut seed = Seeded(seed() ^ u64::from(id));
    let mut trial = Trial::new(id, storage);
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (fault, phase) in order(faults, rounds, &mut seed) {
        let name = format!("{storage:?} | {fault:?} | {phase:?}");
        let source = trial.guest.host.clone();
        match trial.suffer(fault, phase, &mut seed) {
            Ok(ended) => {
                let moved = ended.host != source;
                eprintln_row(&name, &ended.reply, &ended.info);
                sums.entry(name).or_default().add(&ended, moved);
            }
            Err(why) => {
                eprintln_row(&name, "WRONG", &why);
                sums.entry(name.clone()).or_default().runs += 1;
                wrong.entry(name).or_default().push(why);
                drop(trial);
                trial = Trial::new(id, storage);
            }
        }
    }
    for (name, sum) in &sums {
        let mut cells: Vec<String> = name.split(" | ").map(str::to_owned).collect();
        let bad = wrong.get(name).map_or(0, Vec::len);
        let longest = format!("{:.0} s", sum.longest.as_secs_f64());
        cells.extend([
            sum.runs.to_string(),
            sum.arrived.to_string(),
            sum.stayed.to_string(),
            longest,
            bad.to_string(),
        ]);
        table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let runs: u32 = sums.values().map(|sum| sum.runs).sum();
    let total = format!("{runs} runs (seed {})", self::seed());
    let bad: usize = wrong.values().map(Vec::len).sum();
    table.row(&[&format!("{storage:?}"), "all", "", &total, "", "", "", &bad.to_string()]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is seen while it runs; the test's own output.
fn eprintln_row(name: &str, reply: &str, text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{name}: {reply}: {}", text.lines().next().unwrap_or_default());
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_faults_on_shared_storage() {
    run(7150, Storage::Shared, &ON_SHARED, 2);
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_faults_on_local_storage() {
    run(7151, Storage::Local, &ON_LOCAL, 1);
}
