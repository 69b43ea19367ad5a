//! What goes wrong while a VM migrates. Whatever it is: afterwards exactly one copy of it runs, where the reply says, and
//! nothing of it is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::guest::{BOOT, Guest, Leaving, Storage};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::processes;
use crate::harness::{bed, wait_for};
use crate::stand;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// libvirtd of the source is killed, and started again a little later.
    SourceLibvirtd,
    /// The same on the target.
    TargetLibvirtd,
    /// QEMU of the target is killed.
    TargetQemu,
    /// No packet gets from one host to the other, until the reply is there.
    Network,
    /// The ssh connections of the driver to the source die.
    FrontEnd,
    /// No packet gets from the front-end to the source, until the reply is there.
    FrontEndSilent,
    /// The driver is killed: there is no reply.
    Driver,
    /// The driver is told DRIVER_CANCEL: there is no reply.
    Cancel,
    /// The target's storage becomes full.
    DiskFull,
    /// `virsh migrate` is killed. Peer to peer the hosts go on without it.
    Virsh,
    /// `kvmad-node migrate` is killed, and virsh with it.
    Node,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// As soon as libvirt has begun.
    Early,
    /// When about half is sent.
    Middle,
    /// Shortly before the end.
    Late,
}

/// Numbers that a seed makes (splitmix64), so that a run can be had again.
#[derive(Debug, Clone)]
pub struct Seeded(pub u64);

impl Seeded {
    /// A number from `first` to `last`.
    pub fn from(&mut self, first: u64, last: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        first + (z ^ (z >> 31)) % (last - first + 1)
    }
}

/// A front-end with a driver and a running guest.
#[derive(Debug)]
pub struct Trial {
    /// The front-end.
    pub front: FrontEnd,
    /// Its driver.
    pub driver: Driver,
    /// The guest.
    pub guest: Guest,
}

/// How a fault run ended.
#[derive(Debug)]
pub struct Ended {
    /// Status of the reply; `no reply` when there is none.
    pub reply: String,
    /// What it said.
    pub info: String,
    /// Host where the guest runs now.
    pub host: String,
    /// From the request to the reply.
    pub took: Duration,
    /// The migration was over before the phase was reached.
    pub missed: bool,
}

impl Trial {
    /// Ready, with a guest that ticks; `options` are words for `virsh migrate`.
    pub fn new(id: u32, storage: Storage, options: &str) -> Self {
        let front = stand::front(&[
            ("QEMU_PROTOCOL", "qemu+tcp"),
            ("MIGRATE_SETTLE_TIMEOUT", "20"),
            ("MIGRATE_STALL_TIMEOUT", "20"),
            ("VIRSH_TIMEOUT", "15"),
            ("MIGRATE_PROGRESS", "2"),
            ("MIGRATE_OPTIONS", options),
        ]);
        let mut driver = stand::driver(&front);
        let mut guest = Guest::new(&front, id, "node1", storage, false);
        guest.boot(&mut driver);
        if storage == Storage::Shared {
            guest.snapshot(&mut driver, 0);
        }
        Self { front, driver, guest }
    }

    /// One migration with one fault.
    ///
    /// # Errors
    /// What is not as it must be.
    pub fn suffer(&mut self, fault: Fault, phase: Phase, seed: &mut Seeded) -> Result<Ended, String> {
        let target = self.guest.other();
        let source = self.guest.host.clone();
        let before = self.guest.files(&source);
        let there_before = self.guest.files(target);
        self.guest.features = vec![("MIGRATE_BANDWIDTH".into(), "5".into())];
        let full = (fault == Fault::DiskFull).then(|| Small::new(&self.guest, target));
        let leaving = self.guest.leave(&mut self.driver, target);
        let reached = self.reach(phase, &source, seed);
        if let Some(full) = full.as_ref().filter(|_| reached) {
            full.fill();
        }
        let struck = reached.then(|| self.strike(fault, &source, seed));
        let ended = self.wait_for_end(fault, &leaving);
        drop(struck);
        let (reply, info, took) = ended?;
        if fault == Fault::Node {
            self.snapshots_again();
        }
        self.check(&reply, &leaving, &before)?;
        if self.guest.storage == Storage::Local && self.guest.host != target {
            self.left_nothing(target, &there_before)?;
        }
        let host = self.guest.host.clone();
        if let Some(full) = full.as_ref().filter(|_| host == target) {
            // it lives in the small file system now, which is to go
            full.make_room();
            self.guest.features.clear();
            self.guest.migrate(&mut self.driver);
        }
        drop(full);
        if matches!(fault, Fault::Driver) {
            self.driver = stand::driver(&self.front);
        }
        Ok(Ended { reply, info, host, took, missed: !reached })
    }

    /// Waits for the phase; false when the migration is over before.
    fn reach(&self, phase: Phase, source: &str, seed: &mut Seeded) -> bool {
        let left = match phase {
            Phase::Early => 100,
            Phase::Middle => seed.from(30, 60),
            Phase::Late => seed.from(2, 7),
        };
        let domain = self.guest.domain();
        let mut began = false;
        let reached = wait_for(Duration::from_secs(90), || {
            let job = bed::virsh(source, &["domjobinfo", "--rawstats", &domain]).unwrap_or_default();
            let job = numbers(&job);
            let number = |name: &str| job.get(name).copied().unwrap_or(0);
            let runs = matches!(number("Job type"), 1 | 2);
            began |= runs;
            if began && !runs {
                return Some(false);
            }
            let total = number("memory_total") + number("disk_total");
            let remaining = number("memory_remaining") + number("disk_remaining");
            (runs && (phase == Phase::Early || (total > 0 && remaining * 100 <= total * left)))
                .then_some(true)
        });
        reached == Some(true)
    }

    fn strike(&mut self, fault: Fault, source: &str, seed: &mut Seeded) -> Option<Mend> {
        let target = self.guest.other();
        match fault {
            Fault::SourceLibvirtd => Some(Mend::libvirtd(source, seed.from(0, 4))),
            Fault::TargetLibvirtd => Some(Mend::libvirtd(target, seed.from(0, 8))),
            Fault::TargetQemu => {
                self.kill_incoming(source, target);
                None
            }
            Fault::Network => Some(Mend::Cut(Cut::between(source, &[address(target)]))),
            Fault::FrontEndSilent => Some(Mend::Cut(Cut::between(source, &[address(bed::FRONT_END)]))),
            Fault::FrontEnd => {
                for process in processes::tree(self.driver.pid()) {
                    let to_source = process.arguments.iter().any(|word| word == source);
                    if process.arguments[0].starts_with("ssh")
                        && (to_source || process.arguments[0].contains("mux"))
                    {
                        processes::signal(process.pid, "KILL");
                    }
                }
                let own = self.front.folder().display().to_string();
                for process in processes::traces(bed::FRONT_END, &own) {
                    if process.arguments[0].starts_with("ssh") && process.arguments[0] != "ssh-agent" {
                        processes::signal(process.pid, "KILL");
                    }
                }
                None
            }
            Fault::Driver => {
                self.driver.kill();
                None
            }
            Fault::Cancel => {
                self.driver.cancel(self.guest.id);
                None
            }
            Fault::DiskFull => None,
            Fault::Virsh => {
                self.kill_on(source, |words| {
                    words[0].ends_with("virsh") && words.iter().any(|w| w == "migrate")
                });
                None
            }
            Fault::Node => {
                let migrates = |words: &[String]| words.get(1).is_some_and(|word| word == "migrate");
                self.kill_on(source, |words| words[0].ends_with("kvmad-node") && migrates(words));
                None
            }
        }
    }

    /// Kills the program of a host that `is` the one, and has the guest among its arguments.
    fn kill_on(&self, host: &str, is: impl Fn(&[String]) -> bool) {
        let own = |word: &String| *word == self.guest.deploy_id || *word == self.guest.domain();
        let found = processes::of_host(host);
        let mut all: Vec<_> =
            found.values().filter(|p| p.arguments.iter().any(own) && is(&p.arguments)).collect();
        assert_eq!(all.len(), 1, "{all:#?}");
        processes::signal(all.remove(0).pid, "KILL");
    }

    /// What libvirt knew of snapshots is in the VM's folder; nobody was left to give it back.
    fn snapshots_again(&self) {
        for host in bed::NODES {
            let file = self.guest.on_machine(host).join("snap-0.xml");
            let known = bed::virsh(host, &["snapshot-list", "--name", &self.guest.domain()]);
            if known.is_some_and(|names| names.is_empty()) && file.exists() {
                let file = self.guest.folder().join("snap-0.xml").display().to_string();
                bed::virsh(host, &["snapshot-create", "--redefine", &self.guest.domain(), &file]);
            }
        }
    }

    /// Kills the target's QEMU, but only while the source still has the guest: later it would be killing a VM. It stands
    /// still while that is found out.
    fn kill_incoming(&self, source: &str, target: &str) {
        let mark = format!("guest={},", self.guest.domain());
        let found = processes::of_host(target);
        for process in found.values().filter(|p| p.arguments.iter().any(|word| word.contains(&mark))) {
            processes::signal(process.pid, "STOP");
            let job =
                bed::virsh(source, &["domjobinfo", "--rawstats", &self.guest.domain()]).unwrap_or_default();
            let under_way = matches!(numbers(&job).get("Job type"), Some(1 | 2));
            processes::signal(process.pid, if under_way { "KILL" } else { "CONT" });
        }
    }

    /// Status, text and time of the reply.
    fn wait_for_end(
        &mut self,
        fault: Fault,
        leaving: &Leaving,
    ) -> Result<(String, String, Duration), String> {
        let limit = Duration::from_secs(240);
        if matches!(fault, Fault::Driver | Fault::Cancel) {
            // libvirt has to be done with it before anybody can tell where it is
            let one = || self.copies().ok().filter(|copies| copies.len() == 1 && copies[0].1 == "running");
            let settled = || one().filter(|_| self.no_job());
            wait_for(limit, settled).ok_or_else(|| format!("there is no one copy: {:?}", self.copies()))?;
            // whatever was on its way to the target's end has its time, too
            std::thread::sleep(Duration::from_secs(2));
            let replies = self.driver.conversation.replies("MIGRATE", self.guest.id);
            let answered = replies > leaving.replies();
            let reply = if answered { "REPLY AFTER THE END" } else { "no reply" };
            return Ok((reply.to_owned(), String::new(), leaving.at.elapsed()));
        }
        let wanted = leaving.replies();
        let line = self.driver.conversation.wait(limit, |lines| {
            let id = self.guest.id.to_string();
            lines.iter().filter(|line| line.kind == "MIGRATE" && line.id == id).nth(wanted).cloned()
        });
        let line =
            line.ok_or_else(|| format!("no reply within {limit:?}:\n{}", self.driver.conversation.text()))?;
        Ok((line.status.clone(), line.info.clone(), line.at.duration_since(leaving.at)))
    }

    fn no_job(&self) -> bool {
        let running = |host: &&str| -> bool {
            let job =
                bed::virsh(host, &["domjobinfo", "--rawstats", &self.guest.domain()]).unwrap_or_default();
            matches!(numbers(&job).get("Job type"), Some(1 | 2))
        };
        !bed::NODES.iter().any(running)
    }

    /// Hosts that have the domain, with its state.
    fn copies(&self) -> Result<Vec<(&'static str, String)>, String> {
        let mut found = Vec::new();
        for host in bed::NODES {
            let names = bed::virsh(host, &["list", "--all", "--name"])
                .ok_or(format!("libvirt of {host} is silent"))?;
            if names.lines().any(|name| name.trim() == self.guest.domain()) {
                found.push((host, self.guest.state(host).unwrap_or_else(|| "silent".to_owned())));
            }
        }
        Ok(found)
    }

    /// Everything that must be true afterwards.
    fn check(
        &mut self,
        reply: &str,
        leaving: &Leaving,
        before: &BTreeMap<String, u64>,
    ) -> Result<(), String> {
        let said = |why: String| format!("{why}\n{}", self.driver.conversation.text());
        let copies = || self.copies().ok().filter(|copies| copies.len() == 1 && copies[0].1 == "running");
        let one = wait_for(Duration::from_secs(60), copies);
        let one = one.ok_or_else(|| said(format!("there is no one running copy: {:?}", self.copies())))?;
        let at = one[0].0;
        match reply {
            "SUCCESS" if at != leaving.target => return Err(said(format!("SUCCESS, but it runs on {at}"))),
            "FAILURE" if at != self.guest.host => return Err(said(format!("FAILURE, but it runs on {at}"))),
            "SUCCESS" | "FAILURE" | "no reply" => {}
            other => return Err(said(other.to_owned())),
        }
        if at == leaving.target {
            self.guest.arrived(leaving);
        }
        self.guest.beats(BOOT).map_err(|why| format!("{why}:\n{}", self.guest.console()))?;
        let after = self.guest.files(at);
        let lost: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
        if !lost.is_empty() {
            return Err(format!("files are lost on {at}: {lost:?}"));
        }
        if self.guest.storage == Storage::Shared && reply != "no reply" {
            let known = self.guest.snapshots();
            if known != ["snap-0"] {
                return Err(format!("snapshots on {at}: {known:?}\n{}", self.driver.conversation.text()));
            }
        }
        Ok(())
    }

    /// On `target` the VM's folder has nothing that was not there before.
    fn left_nothing(&self, target: &str, before: &BTreeMap<String, u64>) -> Result<(), String> {
        let left = || -> Vec<String> {
            self.guest.files(target).into_keys().filter(|name| !before.contains_key(name)).collect()
        };
        match wait_for(Duration::from_secs(60), || left().is_empty().then_some(())) {
            Some(()) => Ok(()),
            None => Err(format!("left on {target}: {:?}\n{}", left(), self.driver.conversation.text())),
        }
    }
}

/// Numbers of `domjobinfo --rawstats`, by name.
fn numbers(text: &str) -> BTreeMap<&str, u64> {
    let pair = |line: &'_ str| -> Option<(usize, u64)> {
        let (name, value) = line.split_once(':')?;
        Some((name.len(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(|line| pair(line).map(|(end, value)| (line[..end].trim(), value))).collect()
}

fn address(host: &str) -> &'static str {
    match host {
        "node1" => "10.77.0.11",
        "node2" => "10.77.0.12",
        _ => "10.77.0.1",
    }
}

/// Starts libvirtd of a host again and waits until it answers.
pub fn restart_libvirtd(host: &str) {
    kill_libvirtd(host);
    start_libvirtd(host);
}

fn kill_libvirtd(host: &str) {
    let named = |process: &&processes::Process| Path::new(&process.arguments[0]).ends_with("libvirtd");
    for process in processes::of_host(host).values().filter(named) {
        processes::signal(process.pid, "KILL");
    }
}

fn start_libvirtd(host: &str) {
    // the old one must be gone before it can have its place
    let gone = || {
        let found = processes::of_host(host);
        let mut all = found.values().filter(|p| p.state != 'Z');
        (!all.any(|p| p.arguments.first().is_some_and(|name| Path::new(name).ends_with("libvirtd"))))
            .then_some(())
    };
    wait_for(Duration::from_secs(10), gone).expect("libvirtd dies");
    bed::sh(host, &["/usr/sbin/libvirtd", "-d", "--listen"]);
    let answers = || bed::virsh(host, &["list", "--name"]).map(drop);
    wait_for(Duration::from_secs(60), answers).expect("libvirtd answers again");
}

/// What puts a fault right again.
enum Mend {
    Libvirtd(Option<std::thread::JoinHandle<()>>),
    Cut(Cut),
}

impl Mend {
    /// Kills libvirtd of a host now and starts it again after so many seconds.
    fn libvirtd(host: &str, seconds: u64) -> Self {
        kill_libvirtd(host);
        let host = host.to_owned();
        Self::Libvirtd(Some(std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            start_libvirtd(&host);
        })))
    }
}

impl Drop for Mend {
    fn drop(&mut self) {
        match self {
            Self::Libvirtd(thread) => {
                thread.take().map(std::thread::JoinHandle::join);
            }
            Self::Cut(cut) => cut.mend(),
        }
    }
}

/// Packets between a host and others are dropped, both ways.
struct Cut {
    host: String,
    others: Vec<&'static str>,
}

impl Cut {
    fn between(host: &str, others: &[&'static str]) -> Self {
        let cut = Self { host: host.to_owned(), others: others.to_vec() };
        cut.rules("-I");
        cut
    }

    fn rules(&self, how: &str) {
        for other in &self.others {
            for (chain, side) in [("INPUT", "-s"), ("OUTPUT", "-d")] {
                let mut command = Command::new("ip");
                command.args([
                    "netns",
                    "exec",
                    &bed::namespace(&self.host),
                    "iptables",
                    "-w",
                    how,
                    chain,
                    side,
                    other,
                ]);
                let done = command.args(["-j", "DROP"]).status();
                assert!(done.is_ok_and(|status| status.success()), "iptables {how} {chain} on {}", self.host);
            }
        }
    }

    fn mend(&mut self) {
        self.rules("-D");
        self.others.clear();
    }
}

/// A small file system in the place of the VM's datastore on a host.
struct Small {
    host: String,
    path: String,
}

impl Small {
    /// With room for the VM's disk, and some more.
    fn new(guest: &Guest, host: &str) -> Self {
        let path = guest.folder().parent().expect("it has one").display().to_string();
        bed::sh(host, &["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", &path]);
        bed::sh(host, &["chown", "oneadmin:oneadmin", &path]);
        Self { host: host.to_owned(), path }
    }

    fn filler(&self) -> String {
        format!("{}/filler", self.path)
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut command = bed::on(&self.host);
        command.args(["dd", "if=/dev/zero", "bs=64k", &format!("of={}", self.filler())]);
        assert!(!bed::run(command).status.success(), "it fits");
    }

    fn make_room(&self) {
        bed::sh(&self.host, &["rm", "-f", &self.filler()]);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = || {
            let mut command = bed::on(&self.host);
            command.args(["umount", &self.path]);
            bed::run(command).status.success().then_some(())
        };
        wait_for(Duration::from_secs(20), unmounted);
    }
}

fn each(id: u32, storage: Storage, faults: &[(Fault, Phase)]) {
    let _use = bed::alone();
    suffers(Trial::new(id, storage, ""), faults);
}

fn suffers(mut trial: Trial, faults: &[(Fault, Phase)]) {
    let id = trial.guest.id;
    let mut seed = Seeded(u64::from(id));
    for (fault, phase) in faults {
        let begin = Instant::now();
        let ended = trial.suffer(*fault, *phase, &mut seed);
        let ended = ended.unwrap_or_else(|why| panic!("{fault:?}, {phase:?}: {why}"));
        assert!(!ended.missed, "{fault:?}: {phase:?} was not reached: {ended:?}");
        // what the run was, for whoever reads its output
        let line = format!(
            "{fault:?} {phase:?}: {} on {} after {:?}: {}\n",
            ended.reply,
            ended.host,
            begin.elapsed(),
            ended.info
        );
        fs::write(bed::folder().join(format!("fault-{id}.last")), line).expect("a file");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_source_libvirtd_connection_or_driver_are_killed() {
    let faults = [
        (Fault::SourceLibvirtd, Phase::Middle),
        (Fault::FrontEnd, Phase::Middle),
        (Fault::Driver, Phase::Late),
    ];
    each(7140, Storage::Shared, &faults);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_target_libvirtd_its_qemu_or_the_network_between_die() {
    let faults = [
        (Fault::TargetLibvirtd, Phase::Early),
        (Fault::TargetQemu, Phase::Late),
        (Fault::Network, Phase::Middle),
    ];
    each(7141, Storage::Shared, &faults);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_the_target_s_disk_is_full() {
    each(7142, Storage::Local, &[(Fault::DiskFull, Phase::Middle)]);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn virsh_is_killed_while_the_hosts_migrate_peer_to_peer() {
    let _use = bed::shared();
    suffers(Trial::new(7143, Storage::Shared, "--p2p"), &[(Fault::Virsh, Phase::Middle)]);
}

#[test]
fn a_seed_gives_the_same_numbers_again_within_their_bounds() {
    let (mut one, mut other) = (Seeded(7), Seeded(7));
    let numbers: Vec<u64> = (0..100).map(|_| one.from(3, 9)).collect();
    assert!(
        numbers.iter().all(|number| (3..=9).contains(number)) && numbers.contains(&3) && numbers.contains(&9)
    );
    assert_eq!(numbers, (0..100).map(|_| other.from(3, 9)).collect::<Vec<_>>());
}

#[test]
fn numbers_of_a_job_are_read_by_name() {
    let job = numbers("Job type: 2\n\noperation: 5\nmemory_total: 139010048\nword: x\n");
    assert_eq!((job["Job type"], job["memory_total"], job.len()), (2, 139_010_048, 3));
}
