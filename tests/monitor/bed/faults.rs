//! What befalls a host: its libvirt daemon is stopped, started again, hangs; its disk is full.

use std::fs;
use std::time::{Duration, Instant};

use kvmad::node::monitor::message::{Kind, Message};

use super::receiver::state_of;
use super::{Monitored, PATIENCE, Paused, SHORT};
use crate::harness::{bed, processes, wait_for};

const HOST: &str = "node2";

fn libvirtd() -> u32 {
    let all = processes::of_host(HOST);
    let is_it =
        |process: &&processes::Process| process.arguments.first().is_some_and(|w| w.ends_with("libvirtd"));
    all.values().find(is_it).expect("the host has a libvirtd").pid
}

fn answers() -> bool {
    bed::virsh(HOST, &["version"]).is_some()
}

/// Starts it again as the bed did; the locks of the tests are not handed on to it.
fn start_libvirtd(words: &[String]) {
    let mut command = bed::on(HOST);
    command.args(words);
    let output = bed::run(command);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    wait_for(PATIENCE, || answers().then_some(())).expect("libvirtd answers again");
}

/// What makes the host good again after trouble: a good beacon, its whole data, and the complete list of its VMs.
fn recovered(monitored: &Monitored, from: usize, vm: u32) {
    let wanted = |kind: Kind| move |m: &Message| m.kind == kind && m.success;
    monitored.receiver.wait(from, PATIENCE, wanted(Kind::System));
    monitored.receiver.wait(from, PATIENCE, wanted(Kind::Beacon));
    let list = monitored.receiver.text(from, Kind::State, "SYNC_STATE=yes", PATIENCE);
    assert_eq!(state_of(&list.text, vm).as_deref(), Some("SUSPENDED"), "{}", list.text);
}

/// Waits until the host is told as failed; since the `from`th message there was no state that is none.
fn trouble(monitored: &Monitored, from: usize) -> Message {
    let failed = monitored.receiver.wait(from, PATIENCE, |m| m.kind == Kind::Beacon && !m.success).1;
    assert!(failed.text.contains("libvirt gave no answer for"), "{}", failed.text);
    failed
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_libvirtd_that_is_stopped_restarted_or_hangs_is_trouble_of_the_host_and_of_no_vm() {
    let _use = bed::alone();
    let mut monitored = Monitored::new(HOST, 5920, SHORT, "trouble_after = 6s\nlibvirt_timeout = 5s\n");
    let _domain = Paused::create(HOST, "one-5920");
    monitored.start();
    let states = |from: usize| monitored.receiver.states(from, 5920);
    monitored.receiver.wait(0, PATIENCE, |m| m.kind == Kind::Beacon && m.success);
    let begin = monitored.receiver.count();
    let mut words = processes::arguments(libvirtd());
    if !words.iter().any(|word| word == "-d" || word == "--daemon") {
        words.insert(1, "-d".to_owned());
    }

    // Restarted: shorter than what counts as trouble. Nothing is told but the complete list.
    processes::signal(libvirtd(), "TERM");
    wait_for(PATIENCE, || (!answers()).then_some(())).expect("it ends");
    start_libvirtd(&words);
    monitored.receiver.text(begin, Kind::State, "SYNC_STATE=yes", PATIENCE);

    // Stopped.
    let at = monitored.receiver.count();
    processes::signal(libvirtd(), "TERM");
    trouble(&monitored, at);
    assert_eq!(states(at), Vec::<String>::new());
    let back = monitored.receiver.count();
    start_libvirtd(&words);
    recovered(&monitored, back, 5920);

    // Hung for a minute.
    let at = monitored.receiver.count();
    let began = Instant::now();
    processes::signal(libvirtd(), "STOP");
    trouble(&monitored, at);
    std::thread::sleep(Duration::from_secs(60).saturating_sub(began.elapsed()));
    let good = |m: &Message| m.success && matches!(m.kind, Kind::System | Kind::State);
    assert!(
        !monitored.receiver.messages(at).iter().any(|(_, m)| good(m)),
        "nothing is told as good meanwhile"
    );
    let back = monitored.receiver.count();
    processes::signal(libvirtd(), "CONT");
    recovered(&monitored, back, 5920);
    assert!(monitored.agent().is_some());
    let wrong = |state: &String| state != "SUSPENDED";
    assert!(!states(begin).iter().any(wrong), "{:?}", states(begin));
    // No child is left hanging: the agent and one `virsh event`.
    let mine = wait_for(PATIENCE, || {
        let mine = processes::traces(HOST, monitored.front.remotes());
        (mine.len() <= 2).then_some(())
    });
    assert!(mine.is_some(), "{:#?}", processes::traces(HOST, monitored.front.remotes()));
}

/// A full file system over the folder of the agent's state, until this goes.
struct FullDisk;

impl FullDisk {
    fn mount() -> Self {
        let folder = "/var/tmp/one_db/kvmad";
        bed::sh(HOST, &["mkdir", "-p", folder]);
        bed::sh(
            HOST,
            &["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700,uid=oneadmin,gid=oneadmin", "none", folder],
        );
        Self
    }

    fn fill() {
        let _ = bed::run({
            let mut command = bed::on(HOST);
            command.args(["dd", "if=/dev/zero", "of=/var/tmp/one_db/kvmad/fill", "bs=4k"]);
            command
        });
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        bed::sh(HOST, &["umount", "-l", "/var/tmp/one_db/kvmad"]);
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_full_disk_loses_no_message_and_keeps_no_host_from_being_started() {
    let _use = bed::alone();
    let mut monitored = Monitored::new(HOST, 5921, SHORT, "");
    let disk = FullDisk::mount();
    monitored.start();
    FullDisk::fill();
    let at = monitored.receiver.count();
    let domain = Paused::create(HOST, "one-5921");
    monitored.receiver.text(at, Kind::State, &domain.uuid, PATIENCE);
    drop(domain);
    let off = |m: &Message| m.kind == Kind::State && state_of(&m.text, 5921).as_deref() == Some("POWEROFF");
    monitored.receiver.wait(at, PATIENCE, off);
    let full = wait_for(PATIENCE, || {
        let errors = monitored.status()["record"]["errors"].to_string();
        errors.contains("No space left on device").then_some(())
    });
    assert!(full.is_some(), "{}", monitored.status());
    // A new start works all the same: what it can't keep, it does without.
    let parts = monitored.start();
    assert!(parts[&Kind::System].contains("HYPERVISOR=kvm"));
    let at = monitored.receiver.count();
    monitored.receiver.wait(at, PATIENCE, |m| m.kind == Kind::Beacon && m.success);
    monitored.stop();
    let left = fs::read_dir(bed::host_path(HOST, "/var/tmp/one_db/kvmad")).expect("listed");
    let left: Vec<_> = left
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|n| n.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "half-written files: {left:?}");
    drop(disk);
}
