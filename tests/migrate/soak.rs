//! Every fault at every phase, many times, and the time limit with every policy: `make soak`. The order and the moments
//! come from a seed (`KVMAD_SOAK_SEED`). `KVMAD_SOAK_FAULTS='TargetQemu/Late FrontEndSilent/Late'` runs these only, in this
//! order.

use std::time::Duration;

use crate::busy;
use crate::faults::{Fault, Phase, Seeded, Trial};
use crate::guest::{Guest, Storage};
use crate::harness::bed;
use crate::harness::soak::Table;
use crate::secure::Kernel;

const ON_SHARED: [Fault; 10] = [
    Fault::SourceLibvirtd,
    Fault::TargetLibvirtd,
    Fault::TargetQemu,
    Fault::Network,
    Fault::FrontEnd,
    Fault::FrontEndSilent,
    Fault::Driver,
    Fault::Cancel,
    Fault::Virsh,
    Fault::Node,
];
/// Where nobody between the hosts is needed for a migration to go on.
const PEER_TO_PEER: [Fault; 3] = [Fault::Virsh, Fault::Node, Fault::Driver];
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

/// What `KVMAD_SOAK_FAULTS` names, where that is set.
fn only() -> Option<Vec<(String, String)>> {
    let text = std::env::var("KVMAD_SOAK_FAULTS").ok().filter(|text| !text.trim().is_empty())?;
    let pair = |word: &str| {
        let (fault, phase) =
            word.split_once('/').unwrap_or_else(|| panic!("{word}: expected is FAULT/PHASE"));
        (fault.to_owned(), phase.to_owned())
    };
    Some(text.split_whitespace().map(pair).collect())
}

fn table() -> Table {
    let columns = ["storage", "fault", "phase", "reply", "runs on", "until the end", "verdict"];
    Table::open("20-migration", "Migration under faults", &columns)
}

/// Every fault at every phase, `rounds` times, in an order that the seed makes.
fn order(faults: &[Fault], rounds: usize, seed: &mut Seeded) -> Vec<(Fault, Phase)> {
    if let Some(only) = only() {
        let named = |(fault, phase): &(String, String)| {
            let fault = faults.iter().find(|one| format!("{one:?}") == *fault)?;
            let phase = PHASES.iter().find(|one| format!("{one:?}") == *phase)?;
            Some((*fault, *phase))
        };
        return only.iter().filter_map(named).collect();
    }
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
fn run(id: u32, storage: Storage, options: &str, faults: &[Fault], rounds: usize) {
    let _use = bed::alone();
    let table = table();
    let mut seed = Seeded(seed() ^ u64::from(id));
    let mut trial = Trial::new(id, storage, options);
    let way = [&format!("{storage:?}"), options].join(" ").trim().to_owned();
    let (mut runs, mut missed, mut wrong) = (0, 0, Vec::new());
    for (fault, phase) in order(faults, rounds, &mut seed) {
        let (kind, name, moment) = (way.clone(), format!("{fault:?}"), format!("{phase:?}"));
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
                trial = Trial::new(id, storage, options);
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
    table.row(&[&way, "all", "", "", "", "", &sum]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is done at a time limit, and where the guest is then.
const POLICIES: [(&str, &str); 4] =
    [("slow", "target"), ("suspend", "target"), ("postcopy", "target"), ("abort", "source")];
/// Seconds of a time limit in the first pass over the memory, which takes some 12.
const LIMITS: [(Phase, u32); 3] = [(Phase::Early, 2), (Phase::Middle, 7), (Phase::Late, 14)];

/// What a kernel says when it finds its memory spoilt. Under software emulation QEMU 7.2 does that to a guest that is slowed
/// (auto-converge) while somebody asks for the progress: [`control`] shows it with `virsh migrate` and `virsh domjobinfo`
/// alone, without anything of ours. (KVM has a dirty log of its own; there it was not tried.) Such a row of the policy
/// `slow` counts as neither good nor lost.
const BROKEN: [&str; 4] =
    ["Kernel panic", "invalid opcode", "general protection fault", "BUG: unable to handle"];
const EMULATION: &str = "the guest's kernel broke";

fn broken(guest: &Guest) -> bool {
    BROKEN.iter().any(|words| guest.console().contains(words))
}

/// The same guest, slowed, by `virsh migrate` alone, its progress asked for once a second: what becomes of it.
fn control(trial: &mut Trial) -> &'static str {
    let (host, domain) = (trial.guest.host.clone(), trial.guest.domain());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                bed::virsh(&host, &["domjobinfo", "--rawstats", &domain]);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let said = slowed(trial);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        said
    })
}

fn slowed(trial: &mut Trial) -> &'static str {
    let guest = &mut trial.guest;
    let target = guest.other();
    let leaving = guest.leaving(target, 0);
    let mut command = bed::as_oneadmin(&guest.host);
    command.args([
        "virsh",
        "--quiet",
        "--connect",
        "qemu:///system",
        "migrate",
        "--live",
        "--bandwidth",
        "8",
    ]);
    command.args(["--auto-converge", "--auto-converge-initial", "60", "--auto-converge-increment", "20"]);
    bed::virsh(&guest.host, &["snapshot-delete", "--metadata", &guest.domain(), "snap-0"]);
    command.arg(guest.domain()).arg(format!("qemu+tcp://{target}/system"));
    let output = bed::run(command);
    if !output.status.success() {
        return "virsh failed";
    }
    guest.arrived(&leaving);
    match guest.beats(Duration::from_secs(60)) {
        Ok(_) => "the guest goes on",
        Err(_) if broken(guest) => EMULATION,
        Err(_) => "the guest does not go on",
    }
}

/// One migration of a guest that would never come to an end, with a time limit and what is done then.
fn limited(trial: &mut Trial, seconds: u32, policy: &str, end: &str) -> Result<(String, Duration), String> {
    let (driver, guest) = (&mut trial.driver, &mut trial.guest);
    guest.features = busy::limited(seconds, policy);
    guest
        .features
        .push(("MIGRATE_AUTO_CONVERGE".into(), if policy == "slow" { "60,20" } else { "no" }.into()));
    let (source, target) = (guest.host.clone(), guest.other());
    let before = driver.conversation.text().len();
    let leaving = guest.leave(driver, target);
    let reply = guest.went(driver, &leaving, Duration::from_secs(400));
    let said = |what: String| format!("{what}\n{}\n{}", reply.raw, driver.conversation.text());
    let wanted = if end == "target" { "SUCCESS" } else { "FAILURE" };
    if reply.status != wanted || guest.host != if end == "target" { target } else { source.as_str() } {
        return Err(said(format!("{} where {wanted} is due", reply.status)));
    }
    let told = driver.conversation.text().split_off(before);
    let told = told.contains("it is not done after");
    if !told {
        return Err(said("the time limit was not told".to_owned()));
    }
    guest.runs_here_alone().map_err(&said)?;
    guest.beats(Duration::from_secs(60)).map_err(|why| {
        let why = if broken(guest) { format!("{EMULATION}; {why}") } else { why };
        said(format!("{why}:\n{}", guest.console()))
    })?;
    Ok((reply.status.clone(), reply.at.duration_since(leaving.at)))
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_a_time_limit_with_every_policy() {
    if only().is_some() {
        return;
    }
    let _use = bed::alone();
    let _kernel = Kernel::allows_postcopy();
    let table = table();
    let fresh = || {
        let trial = Trial::new(7152, Storage::Shared, "");
        busy::dirties_its_memory(&trial.guest);
        trial
    };
    let (mut trial, mut wrong, mut emulation) = (fresh(), Vec::new(), 0);
    for (policy, end) in POLICIES {
        for (phase, seconds) in LIMITS {
            let (name, moment) = (format!("time limit: {policy}"), format!("{phase:?}, {seconds} s"));
            match limited(&mut trial, seconds, policy, end) {
                Ok((reply, took)) => {
                    let took = format!("{:.0} s", took.as_secs_f64());
                    table.row(&["Shared", &name, &moment, &reply, end, &took, "good"]);
                }
                Err(why) => {
                    let first = why.lines().next().unwrap_or_default().to_owned();
                    let emulated = policy == "slow" && why.starts_with(EMULATION);
                    let verdict = if emulated { "emulation, see control" } else { "WRONG" };
                    table.row(&["Shared", &name, &moment, "?", "?", "", &format!("{verdict}: {first}")]);
                    if emulated {
                        emulation += 1;
                    } else {
                        wrong.push(format!("{name}, {moment}: {why}"));
                    }
                    drop(trial);
                    trial = fresh();
                }
            }
        }
    }
    for number in ["1", "2", "3", "4"] {
        let said = control(&mut trial);
        table.row(&["Shared", "control: slowed by virsh alone", number, "", "", "", said]);
        if said != "the guest goes on" {
            drop(trial);
            trial = fresh();
        }
    }
    assert!(emulation < LIMITS.len(), "no slowed guest survived its migration");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_faults_on_shared_storage() {
    run(7150, Storage::Shared, "", &ON_SHARED, 1);
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_faults_peer_to_peer() {
    run(7153, Storage::Shared, "--p2p", &PEER_TO_PEER, 1);
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn alone_soak_faults_on_local_storage() {
    run(7151, Storage::Local, "", &ON_LOCAL, 1);
}
