//! The script `migrate` against a stand-in for the libvirt of two hosts: what it does after every kind of trouble.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::place::{Ended, Place, await_that, end};

const SHARED: &str = "<A><DISK_TARGET_PATH>/ds/0/7</DISK_TARGET_PATH><VM/><DATASTORE><BASE_PATH>/ds/0</BASE_PATH><TEMPLATE><SHARED>YES</SHARED></TEMPLATE></DATASTORE></A>";
const ARGS: [&str; 5] = ["one-7", "node2", "node1", "7", "node1"];

/// Two hosts; the domain runs here. `rule` is what virsh migrate does.
fn hosts(rule: Option<&str>) -> Place {
    let place = Place::new();
    let virsh = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remotes/virsh-pair");
    fs::remove_file(place.path("bin/virsh")).expect("the other stand-in");
    symlink(virsh, place.path("bin/virsh")).expect("a link");
    place.write("here/state", "1 1").write("here/snapshots", "snap-0\nsnap-1\n");
    place.write("there/snapshots", "");
    place.kvmrc("MIGRATE_SETTLE_TIMEOUT=4\nVIRSH_TIMEOUT=5\nSYNC_TIME=no");
    if let Some(rule) = rule {
        place.write("rule", rule);
    }
    place
}

fn run(place: &Place) -> Ended {
    place.run("vmm/kvm/migrate", &ARGS, SHARED)
}

fn snapshots(place: &Place, side: &str) -> Vec<String> {
    place.read(&format!("{side}/snapshots")).lines().map(str::to_owned).collect()
}

fn called(place: &Place, call: &str) -> bool {
    place.read("calls").lines().any(|line| line.starts_with(call))
}

#[test]
fn what_arrives_is_a_success_and_its_snapshots_are_there() {
    let place = hosts(None);
    let ended = run(&place);
    assert!(ended.stderr.contains("domain one-7 is on host node2"), "{ended:?}");
    assert_eq!(ended.good(), "");
    assert_eq!(snapshots(&place, "there"), ["snap-0", "snap-1"]);
    assert!(snapshots(&place, "here").is_empty());
    assert!(!called(&place, "here destroy") && !called(&place, "there destroy"));
}

#[test]
fn what_fails_stays_with_its_snapshots_and_says_why() {
    let place = hosts(Some("echo 'error: no route to host' >&2; exit 1"));
    let why = run(&place).bad();
    assert!(
        why.contains("no route to host; the VM is on host node1 as before and nothing of it on host node2"),
        "{why}"
    );
    assert_eq!(snapshots(&place, "here"), ["snap-0", "snap-1"]);
}

#[test]
fn a_failure_of_virsh_is_none_when_the_domain_runs_on_the_target() {
    let place =
        hosts(Some("rm $FAKE/here/state; echo '1 2' >$FAKE/there/state; echo 'error: lost' >&2; exit 1"));
    let ended = run(&place);
    assert!(ended.stderr.contains("WARNING: migrate: virsh reported a failure"), "{ended:?}");
    ended.good();
    assert_eq!(snapshots(&place, "there").len(), 2);
}

#[test]
fn what_runs_on_both_goes_on_on_the_target_alone() {
    let place = hosts(Some("echo '1 6' >$FAKE/here/state; echo '1 2' >$FAKE/there/state; exit 1"));
    run(&place).good();
    assert!(called(&place, "here suspend") && called(&place, "here destroy"));
    assert!(place.path("there/state").exists() && !place.path("here/state").exists());
}

#[test]
fn what_never_ran_on_the_target_is_removed_and_the_source_goes_on() {
    let place = hosts(Some("echo '3 2' >$FAKE/here/state; echo '3 2' >$FAKE/there/state; exit 1"));
    let why = run(&place).bad();
    assert!(why.contains("the VM is on host node1 as before"), "{why}");
    assert!(place.read("here/state").starts_with("1 ") && !place.path("there/state").exists());
    let calls = place.read("calls");
    let at = |call: &str| calls.find(call).unwrap_or_else(|| panic!("{call}: {calls}"));
    assert!(at("there destroy") < at("here resume"), "never two that may run");
}

#[test]
fn nothing_is_touched_while_a_host_is_silent_and_the_driver_is_told_to_ask() {
    let place = hosts(Some("echo '3 2' >$FAKE/here/state; echo silent >$FAKE/there/state; exit 1"));
    let ended = run(&place);
    assert_eq!(ended.status, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("where the VM runs can't be told"), "{ended:?}");
    for call in ["here destroy", "here resume", "there destroy"] {
        assert!(!called(&place, call), "{call}");
    }
}

#[test]
fn the_only_copy_is_never_destroyed() {
    let place = hosts(Some("rm $FAKE/here/state; echo '3 2' >$FAKE/there/state; exit 1"));
    run(&place).good();
    assert!(!called(&place, "there destroy") && called(&place, "there resume"));
    let place = hosts(Some("rm $FAKE/here/state; exit 1"));
    assert!(run(&place).bad().contains("neither host node1 nor host node2 has it"));
}

#[test]
fn a_target_that_runs_such_a_domain_already_is_left_alone() {
    let place = hosts(None);
    place.write("there/state", "1 1");
    assert!(run(&place).bad().contains("was not touched"));
    assert!(!called(&place, "here migrate") && !called(&place, "there destroy"));
    assert_eq!(snapshots(&place, "here").len(), 2);
}

#[test]
fn a_target_that_does_not_answer_is_a_failure_before_anything_is_done() {
    let place = hosts(None);
    place.write("there/state", "silent");
    assert!(run(&place).bad().contains("libvirt of node2"));
    assert!(!called(&place, "here snapshot-delete"));
}

#[test]
fn the_same_call_again_is_a_success_when_the_domain_has_arrived() {
    let place = hosts(None);
    run(&place).good();
    assert!(run(&place).stderr.contains("runs on host node2 already"));
}

#[test]
fn the_end_of_the_driver_aborts_the_job_and_the_domain_stays() {
    let place = hosts(Some(
        "until [[ -e $FAKE/aborted ]]; do sleep 0.1; done; echo 'error: canceled by client' >&2; exit 1",
    ));
    let child = place.start("vmm/kvm/migrate", &ARGS, SHARED);
    await_that("the migration", || place.path("migrating").exists());
    let ended = end(child);
    assert!(ended.stderr.contains("it was aborted: the driver ended it"), "{ended:?}");
    ended.bad();
    assert!(called(&place, "here domjobabort"));
    assert_eq!(snapshots(&place, "here").len(), 2);
}

#[test]
fn virsh_ends_with_a_helper_that_is_killed() {
    let place = hosts(Some("exec sleep 60"));
    let mut child = place.start("vmm/kvm/migrate", &ARGS, SHARED);
    await_that("the migration", || !place.read("migrating").is_empty());
    child.kill().expect("killed");
    child.wait().expect("an end");
    let virsh = format!("/proc/{}", place.read("migrating").trim());
    await_that("the end of virsh", || !Path::new(&virsh).exists() || zombie(&virsh));
}

fn zombie(process: &str) -> bool {
    fs::read_to_string(format!("{process}/stat")).is_ok_and(|text| text.contains(") Z "))
}

#[test]
fn a_setting_of_the_vm_that_can_t_be_used_is_named_and_left_out() {
    let place = hosts(None);
    place.kvmrc("MIGRATE_BANDWIDTH=7\nMIGRATE_URI='tcp://{short}-mig'");
    let features = "<VM><TEMPLATE><FEATURES><MIGRATE_BANDWIDTH>a; rm -rf /</MIGRATE_BANDWIDTH></FEATURES></TEMPLATE></VM>";
    let ended = place.run("vmm/kvm/migrate", &ARGS, &SHARED.replace("<VM/>", features));
    assert!(ended.stderr.contains("WARNING: migrate: MIGRATE_BANDWIDTH in FEATURES of the VM"), "{ended:?}");
    ended.good();
    let calls = place.read("calls");
    let call = calls.lines().find(|line| line.starts_with("here migrate")).expect("a migration");
    assert!(call.contains("--bandwidth 7") && call.contains("--migrateuri tcp://node2-mig"), "{call}");
}
