//! Every fault at every phase, many times: `make soak`. The order and the moments come from a seed (`KVMAD_SOAK_SEED`).

use crate::faults::{Fault, Phase, Seeded, Trial};
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

/// Runs them all on one guest that goes to and fro; a run that goes wrong is a row, and the next one has a new guest.
fn run(id: u32, storage: Storage, faults: &[Fault], rounds: usize) {
    let _use = bed::alone();
    let columns = ["storage", "fault", "phase", "reply", "runs on", "until the end", "verdict"];
    let table = Table::open("20-migration", "Migration under faults", &columns);
    let mut seed = Seeded(seed() ^ u64::from(id));
    let mut trial = Trial::new(id, storage);
    let (mut runs, mut missed, mut wrong) = (0, 0, Vec::new());
    for (fault, phase) in order(faults, rounds, &mut seed) {
        let (kind, name, moment) = (format!("{storage:?}"), format!("{fault:?}"), format!("{phase:?}"));
        let source = trial.guest.host.clone();
        runs += 1;
        let (reply, place, took, verdict) = match trial.suffer(fault, phase, &mut seed) {
            Ok(ended) => {
                missed += u32::from(ended.missed);
                let place = if ended.host == source { "source" } else { "target" };
                let verdict = if ended.missed { "over before the moment came" } else { "good" };
                (ended.reply, place, format!("{:.0} s", ended.took.as_secs_f64()), verdict.to_owned())
            }
            Err(why) => {
                let first = why.lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{kind}, {name}, {moment}: {why}"));
                drop(trial);
                trial = Trial::new(id, storage);
                ("?".to_owned(), "?", String::new(), format!("WRONG: {first}"))
            }
        };
        table.row(&[&kind, &name, &moment, &reply, place, &took, &verdict]);
    }
    let sum = format!(
        "{} wrong, {missed} over before the moment came, of {runs} (seed {})",
        wrong.len(),
        self::seed()
    );
    table.row(&[&format!("{storage:?}"), "all", "", "", "", "", &sum]);
    assert!(wrong.is_empty(), "{wrong:#?}");
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
