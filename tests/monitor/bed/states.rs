//! States of real VMs: each change told as it is, and never a POWEROFF that is none.

use std::fs;
use std::time::Duration;

use kvmad::node::monitor::message::Kind;

use super::receiver::state_of;
use super::{Monitored, PATIENCE, Paused, SHORT, emulator};
use crate::harness::vm::Vm;
use crate::harness::{bed, processes};

const HOST: &str = "node2";

fn virsh(host: &str, words: &[&str]) -> String {
    bed::virsh(host, words).unwrap_or_else(|| panic!("virsh {words:?} failed on {host}"))
}

/// Waits for the state of `vm` in a message from the `from`th on that is no complete list.
fn told(monitored: &Monitored, from: usize, vm: u32, state: &str) {
    let wanted = |text: &str| !text.contains("SYNC_STATE") && state_of(text, vm).as_deref() == Some(state);
    let (came, message) = monitored
        .receiver
        .wait(from, PATIENCE, |message| message.kind == Kind::State && wanted(&message.text));
    assert!(came.by == "TCP" && message.success, "{message:?}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn each_change_of_a_real_vm_is_told_as_it_is() {
    let _use = bed::shared();
    let mut source = Monitored::new(HOST, 5903, SHORT, "");
    let mut target = Monitored::new("node1", 5904, SHORT, "");
    let vm = Vm::new(&source.front, 5903, HOST);
    source.start();
    target.start();
    let file = vm.folder().join("deployment.0").display().to_string();
    fs::write(&file, vm.domain_xml()).expect("a file on the shared storage");
    let checkpoint = vm.folder().join("checkpoint").display().to_string();
    let name = vm.domain();

    let begin = source.receiver.count();
    virsh(HOST, &["create", &file]);
    told(&source, begin, vm.id, "RUNNING");
    vm.wait_said("READY at", 1, Duration::from_secs(180));

    let at = source.receiver.count();
    virsh(HOST, &["suspend", &name]);
    told(&source, at, vm.id, "SUSPENDED");
    let at = source.receiver.count();
    virsh(HOST, &["resume", &name]);
    told(&source, at, vm.id, "RUNNING");

    let at = source.receiver.count();
    virsh(HOST, &["save", &name, &checkpoint]);
    virsh(HOST, &["restore", &checkpoint]);
    told(&source, at, vm.id, "RUNNING");

    // Away to the other host, which tells that it runs there; this one tells nothing.
    let (at, there) = (source.receiver.count(), target.receiver.count());
    virsh(HOST, &["migrate", "--live", "--unsafe", &name, "qemu+tcp://node1/system"]);
    told(&target, there, vm.id, "RUNNING");
    let beacons = |m: &Monitored, from| {
        m.receiver.messages(from).iter().filter(|(_, m)| m.kind == Kind::Beacon).count()
    };
    crate::harness::wait_for(PATIENCE, || (beacons(&source, at) >= 2).then_some(())).expect("two beacons");
    assert_eq!(source.receiver.states(at, vm.id), Vec::<String>::new(), "it is told where it runs");
    assert!(!source.receiver.states(begin, vm.id).contains(&"POWEROFF".to_owned()));

    // Shut down from inside, by the button that the guest's own system hears.
    let at = target.receiver.count();
    virsh("node1", &["shutdown", &name]);
    told(&target, at, vm.id, "POWEROFF");

    let at = source.receiver.count();
    virsh(HOST, &["create", &file]);
    told(&source, at, vm.id, "RUNNING");
    let uuid = virsh(HOST, &["domuuid", &name]);
    let at = source.receiver.count();
    processes::signal(emulator(HOST, &uuid), "KILL");
    told(&source, at, vm.id, "POWEROFF");
    let all = source.receiver.states(begin, vm.id);
    assert_eq!(all.iter().filter(|state| *state == "POWEROFF").count(), 1, "{all:?}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_domain_whose_name_imitates_an_event_or_a_list_ends_no_other_vm() {
    let _use = bed::shared();
    let mut monitored = Monitored::new(HOST, 5905, SHORT, "");
    let victim = Paused::create(HOST, "one-5905");
    monitored.start();
    let begin = monitored.receiver.count();
    let names = [
        "event 'lifecycle' for domain 'one-5905': Stopped Failed",
        "one-5905': Stopped Destroyed",
        "one-5905 ",
        "Domain: 'one-5905'",
        "=kvmad=00000000-0000-4000-8000-000000000001 one-5905",
        "one-5905x $(touch kvmad) `id` ; %s --all \u{fc}",
    ];
    for name in names {
        drop(Paused::create(HOST, name));
    }
    let odd = Paused::create(HOST, names[5]);
    let at = monitored.receiver.count();
    let figures = monitored.receiver.text(at, Kind::Vm, &odd.uuid, PATIENCE);
    kvmad::node::monitor::text::check(&figures.text).expect("well-formed");
    assert!(figures.text.contains(&victim.uuid), "{}", figures.text);
    let told = monitored.receiver.states(begin, 5905);
    assert!(!told.contains(&"POWEROFF".to_owned()), "{told:?}");
    for (_, message) in monitored.receiver.messages(0).iter().filter(|(_, m)| m.text.contains("ID=\"5905\""))
    {
        let mut lines = message.text.lines().filter(|line| line.contains("ID=\"5905\""));
        assert!(lines.all(|line| line.contains(&victim.uuid)), "{}", message.text);
    }
    // And its real end is told.
    drop(victim);
    super::states::told(&monitored, at, 5905, "POWEROFF");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_domain_that_does_not_answer_holds_up_no_other() {
    let _use = bed::shared();
    let mut monitored = Monitored::new(HOST, 5906, SHORT, "libvirt_timeout = 6s\n");
    let (hung, other) = (Paused::create(HOST, "one-5906"), Paused::create(HOST, "one-5907"));
    monitored.start();
    // The agent outlives the driver that started it, and the ssh connection with that.
    monitored.driver.kill();
    monitored.receiver.text(0, Kind::Vm, &hung.uuid, PATIENCE);
    let process = hung.emulator();
    processes::signal(process, "STOP");
    // The round that meets it may end without figures; from then on each has those of the others.
    let at = monitored.receiver.count();
    let first =
        monitored.receiver.wait(at, PATIENCE, |m| m.kind == Kind::Vm && m.text.contains(&other.uuid)).0;
    let mut seen = vec![first.at];
    while seen.len() < 4 {
        let at = monitored.receiver.count();
        let next =
            monitored.receiver.wait(at, PATIENCE, |m| m.kind == Kind::Vm && m.text.contains(&other.uuid)).0;
        seen.push(next.at);
    }
    let longest = seen.windows(2).map(|w| w[1] - w[0]).max().expect("some");
    // States go on too.
    let at = monitored.receiver.count();
    drop(other);
    let began = std::time::Instant::now();
    told(&monitored, at, 5907, "POWEROFF");
    let state_took = began.elapsed();
    let all = monitored.receiver.states(0, 5906);
    processes::signal(process, "CONT");
    assert!(longest < Duration::from_secs(12), "the period is 3 s, the longest gap was {longest:?}");
    assert!(state_took < Duration::from_secs(15), "{state_took:?}");
    assert!(all.iter().all(|state| state == "SUSPENDED"), "{all:?}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn one_look_from_the_front_end_shows_a_host_and_its_vms() {
    let _use = bed::shared();
    let front = crate::harness::front_end::FrontEnd::staged();
    let paused = Paused::create(HOST, "one-5908");
    let look = |words: &[&str]| {
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.arg("env").args(["--chdir=/", "-i"]).args(front.environment());
        command.arg(front.folder().join("bin/kvmad")).arg("monitor").args(words);
        let output = bed::run(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, json, said) = look(&[HOST, "--format", "json"]);
    assert_eq!(status, Some(0), "{said}");
    let told: serde_json::Value = serde_json::from_str(&json).expect("one JSON object");
    assert_eq!((told["host"].as_str(), &told["trouble"]), (Some(HOST), &serde_json::Value::Null), "{json}");
    let total: f64 = bed::sh(HOST, &["getconf", "_NPROCESSORS_ONLN"]).trim().parse().expect("a number");
    assert_eq!(told["figures"]["TOTALCPU"].as_f64(), Some(total * 100.0));
    let vms = told["vms"].as_array().expect("VMs");
    let ours = vms.iter().find(|vm| vm["id"] == 5908).expect("the paused one");
    assert_eq!((ours["name"].as_str(), ours["state"].as_str()), (Some(&*paused.name), Some("SUSPENDED")));
    assert!(ours["numbers"]["MEMORY"].as_f64() > Some(1000.0), "{ours}");
    let (status, table, _) = look(&[HOST]);
    assert!(status == Some(0) && table.starts_with("node2: ") && table.contains("one-5908"), "{table}");
    let (status, _, said) = look(&["no-such-host.invalid"]);
    assert!(status == Some(3) && said.contains("no-such-host.invalid"), "{status:?} {said}");
}
