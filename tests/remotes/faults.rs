//! What goes wrong on a host, with a stand-in for libvirt: it hangs, refuses, speaks another language, dies.

use std::time::{Duration, Instant};

use crate::place::{Place, UUID, await_that, end};

const OTHER: &str = "11111111-2222-3333-4444-555555555555";
const REFUSES: &str = "echo 'Fehler: Verbindung abgelehnt' >&2; echo 'zweite Zeile' >&2; exit 1";
const HANGS: &str = "exec sleep 300";

fn action(manager: &str) -> String {
    format!(
        "<VMM_DRIVER_ACTION_DATA><DATASTORE><TM_MAD>{manager}</TM_MAD></DATASTORE></VMM_DRIVER_ACTION_DATA>\n"
    )
}

fn domain(place: &Place, uuid: &str) -> String {
    format!(
        "<domain type='kvm'>\n<name>one-7</name>{uuid}\n<metadata><one:vm xmlns:one='u'><one:system_datastore>{}</one:system_datastore></one:vm></metadata></domain>\n",
        place.text("ds/0/7")
    )
}

fn deploy(place: &Place, document: &str) -> crate::place::Ended {
    place.run("vmm/kvm/deploy", &[&place.text("ds/0/7/deployment.0"), "h1", "7", "h1"], document)
}

fn save(place: &Place) -> crate::place::Ended {
    std::fs::create_dir_all(place.path("ds/0/7")).expect("a folder");
    place.run(
        "vmm/kvm/save",
        &["one-7", &place.text("ds/0/7/checkpoint"), "h1", "7", "h1"],
        &action("shared"),
    )
}

fn restore(place: &Place) -> crate::place::Ended {
    place.run(
        "vmm/kvm/restore",
        &[&place.text("ds/0/7/checkpoint"), "h1", "one-7", "7", "h1"],
        &action("shared"),
    )
}

fn saved(place: &Place) {
    place
        .write("ds/0/7/checkpoint", "saved\n")
        .write("saved.xml", &domain(place, &format!("<uuid>{UUID}</uuid>")));
}

#[test]
fn a_libvirt_that_refuses_is_a_failure_of_every_action_and_never_the_end_of_a_domain() {
    for (script, args) in [
        ("shutdown", &["one-7", "h1", "7", "h1"][..]),
        ("cancel", &["one-7", "h1", "7", "h1"]),
        ("reboot", &["one-7", "h1", "7", "h1"]),
        ("reset", &["one-7", "h1", "7", "h1"]),
        ("poll", &["one-7", "h1", "7", "h1"]),
        ("save", &["one-7", "/nowhere/checkpoint", "h1", "7", "h1"]),
        ("restore", &["/nowhere/checkpoint", "h1", "one-7", "7", "h1"]),
    ] {
        let place = Place::new();
        place.domain("one-7", 1).kvmrc("CANCEL_TIMEOUT=1");
        for call in
            ["list", "domstats", "dumpxml", "destroy", "reboot", "reset", "shutdown", "save", "restore"]
        {
            place.rule(call, REFUSES);
        }
        let reason = place.run(&format!("vmm/kvm/{script}"), args, &action("shared")).bad();
        assert!(reason.contains("one-7") && reason.contains("h1"), "{script}: {reason}");
        assert!(reason.contains("Verbindung abgelehnt; zweite Zeile"), "{script}: {reason}");
        assert!(!reason.contains('\n'), "{script}: {reason}");
    }
}

#[test]
fn a_libvirt_that_hangs_is_a_failure_within_the_time_limit() {
    for (script, call) in
        [("shutdown", "domstats"), ("cancel", "domstats"), ("reboot", "reboot"), ("reset", "reset")]
    {
        let place = Place::new();
        place.domain("one-7", 1).rule(call, HANGS).kvmrc("VIRSH_TIMEOUT=1\nCANCEL_TIMEOUT=1");
        let start = Instant::now();
        let reason = place.run(&format!("vmm/kvm/{script}"), &["one-7", "h1", "7", "h1"], "").bad();
        assert!(reason.contains(&format!("did not answer virsh {call} within 1 s")), "{reason}");
        assert!(start.elapsed() < Duration::from_secs(10), "{script}");
    }
}

#[test]
fn domains_that_are_gone_or_off_are_shut_down_and_cancelled_already() {
    for script in ["shutdown", "cancel"] {
        for id in ["one-7", UUID, "", "-"] {
            let place = Place::new();
            place.run(&format!("vmm/kvm/{script}"), &[id, "h1", "7", "h1"], "").good();
            assert_eq!(place.count("destroy") + place.count("shutdown"), 0);
        }
        let place = Place::new();
        place.domain("one-7", 5);
        place.run(&format!("vmm/kvm/{script}"), &["one-7", "h1", "7", "h1"], "").good();
        assert_eq!(place.count("destroy") + place.count("shutdown"), 0);
    }
}

#[test]
fn a_name_that_is_part_of_another_is_another() {
    let place = Place::new();
    place.domain("one-70", 1).domain("xone-7", 1);
    place.run("vmm/kvm/cancel", &["one-7", "h1", "7", "h1"], "").good();
    assert!(place.has_domain("one-70") && place.has_domain("xone-7"));
}

#[test]
fn ids_that_virsh_would_read_as_something_else_are_refused() {
    for id in ["7", "--all", "-x", "one-7\none-8"] {
        for script in ["cancel", "shutdown", "reboot", "reset"] {
            let place = Place::new();
            place.domain("one-7", 1).domain("one-8", 1);
            let reason = place.run(&format!("vmm/kvm/{script}"), &[id, "h1", "7", "h1"], "").bad();
            assert!(reason.contains("is no id of a domain"), "{reason}");
            assert!(place.calls().is_empty());
        }
    }
}

#[test]
fn a_domain_is_found_by_its_uuid_in_any_case() {
    let place = Place::new();
    place.domain("one-7", 1).rule("domstats", REFUSES).kvmrc("CANCEL_TIMEOUT=1");
    place.run("vmm/kvm/cancel", &[&UUID.to_uppercase(), "h1", "7", "h1"], "").bad();
    assert!(place.has_domain("one-7"));
}

#[test]
fn a_destroy_that_fails_is_tried_again_until_the_domain_is_off() {
    let place = Place::new();
    let rule =
        "if mkdir \"$FAKE/tried\" 2>/dev/null; then echo busy >&2; exit 1; fi; rm \"$FAKE/domains/one-7\"";
    place.domain("one-7", 1).rule("destroy", rule);
    place.run("vmm/kvm/cancel", &["one-7", "h1", "7", "h1"], "").good();
    assert_eq!(place.count("destroy"), 2);
}

#[test]
fn a_guest_that_ignores_the_button_is_pressed_twice_and_then_destroyed() {
    let place = Place::new();
    place.domain("one-7", 1).rule("shutdown", "exit 0").kvmrc("SHUTDOWN_TIMEOUT=2\nFORCE_DESTROY=yes");
    place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").good();
    assert_eq!((place.count("shutdown"), place.count("destroy")), (2, 1));
    assert!(!place.has_domain("one-7"));
}

#[test]
fn without_force_a_guest_that_ignores_the_button_goes_on() {
    let place = Place::new();
    place.domain("one-7", 1).rule("shutdown", "exit 0").kvmrc("SHUTDOWN_TIMEOUT=2\nFORCE_DESTROY=no");
    let reason = place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").bad();
    assert!(reason.contains("Timed out shutting down domain one-7 on host h1"), "{reason}");
    assert!(place.has_domain("one-7"));
    assert_eq!(place.count("destroy"), 0);
}

#[test]
fn a_forced_end_that_does_not_end_it_is_a_failure() {
    let place = Place::new();
    place.domain("one-7", 1).rule("shutdown", "exit 0").rule("destroy", "exit 0");
    place.kvmrc("SHUTDOWN_TIMEOUT=1\nFORCE_DESTROY=yes\nCANCEL_TIMEOUT=1");
    let start = Instant::now();
    let reason = place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").bad();
    assert!(reason.contains("could not be ended"), "{reason}");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_shutdown_is_noticed_by_its_event_and_its_listener_ends_with_the_script() {
    let place = Place::new();
    let event = "echo $$ >\"$FAKE/listener\"; until [[ -e $FAKE/go ]]; do sleep 0.01; done; echo \"event 'lifecycle'\"; exec sleep 300";
    place.domain("one-7", 1).rule("event", event).rule("shutdown", "exit 0");
    // Without the event it would not look again for far longer than this test waits.
    place.kvmrc("EVENT_POLL=3600\nSHUTDOWN_TIMEOUT=7200");
    let mut child = place.start("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "");
    place.await_call("shutdown");
    await_that("a look after the button", || place.count("domstats") > 1);
    await_that("the listener", || !place.read("listener").is_empty());
    std::fs::remove_file(place.path("domains/one-7")).expect("gone");
    place.write("go", "");
    await_that("the end", || child.try_wait().expect("our child").is_some());
    crate::place::Ended::of(&child.wait_with_output().expect("an end")).good();
    let listener = format!("/proc/{}", place.read("listener").trim());
    await_that("the end of the listener", || !std::path::Path::new(&listener).exists());
}

#[test]
fn a_shutdown_survives_a_restart_of_libvirt() {
    let place = Place::new();
    // The listener ends at once, libvirt refuses twice, then the domain is off.
    place.domain("one-7", 1).rule("event", "exit 1").rule("shutdown", "touch \"$FAKE/pressed\"");
    place.rule("list", REFUSES);
    place.rule(
        "domstats",
        "if [[ ! -e $FAKE/pressed ]]; then printf \"x\\n  state.state=1\\n\"; exit; fi
         if mkdir \"$FAKE/a\" 2>/dev/null || mkdir \"$FAKE/b\" 2>/dev/null; then exit 1; fi; printf \"x\\n  state.state=5\\n\"",
    );
    place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").good();
    assert_eq!(place.count("shutdown"), 1);
}

#[test]
fn without_a_button_the_domain_is_destroyed_when_kvmrc_says_so() {
    for (acpi, setting, destroyed) in [(true, "yes", false), (false, "yes", true), (false, "no", false)] {
        let place = Place::new();
        place.domain("one-7", 1).kvmrc(&format!("CANCEL_NO_ACPI={setting}"));
        if !acpi {
            place.write("domains/one-7.xml", "<domain><name>one-7</name><features/></domain>");
        }
        place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").good();
        assert_eq!(place.count("destroy") == 1, destroyed, "{acpi} {setting}");
    }
}

#[test]
fn deploy_prints_the_uuid_alone_and_keeps_a_file_for_its_owner_only() {
    let mut place = Place::new();
    place.kvmrc("echo noise from kvmrc");
    place.env("LC_ALL", "de_DE.UTF-8");
    let out = deploy(&place, &domain(&place, "")).good();
    assert_eq!(out.trim_end().len(), 36, "{out}");
    assert_eq!(out.lines().count(), 1);
    assert!(place.read("ds/0/7/deployment.0").contains(out.trim_end()));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(place.path("ds/0/7/deployment.0")).expect("a file").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn deploy_keeps_the_uuid_of_the_domain() {
    let place = Place::new();
    let out = deploy(&place, &domain(&place, &format!("<uuid>{UUID}</uuid>"))).good();
    assert_eq!(out, format!("{UUID}\n"));
}

#[test]
fn deploy_of_a_domain_that_runs_answers_with_its_uuid() {
    let place = Place::new();
    place.domain("one-7", 1);
    assert_eq!(deploy(&place, &domain(&place, "")).good(), format!("{UUID}\n"));
    assert_eq!(place.count("create"), 0);
}

#[test]
fn deploy_refuses_a_domain_of_that_name_with_its_files_elsewhere() {
    let place = Place::new();
    place.domain("one-7", 1);
    let other = domain(&place, "").replace("ds/0/7", "ds/1/7");
    let reason = deploy(&place, &other).bad();
    assert!(reason.contains("another one of that name"), "{reason}");
    assert!(place.has_domain("one-7"));
    assert_eq!(place.count("destroy"), 0);
}

#[test]
fn a_failed_deploy_says_why_and_leaves_nothing() {
    let place = Place::new();
    place.rule("create", REFUSES);
    let reason = deploy(&place, &domain(&place, "")).bad();
    assert!(reason.contains("Could not create domain one-7") && reason.contains("abgelehnt"), "{reason}");
    assert!(!place.path("ds/0/7").exists());
    assert_eq!(place.count("destroy"), 0);
}

#[test]
fn a_failed_deploy_leaves_a_domain_alone_that_it_did_not_start() {
    // libvirt forgets to list it, then refuses to create it again.
    let place = Place::new();
    place.domain("one-7", 1).rule("list", "exit 0").rule("create", REFUSES);
    deploy(&place, &domain(&place, &format!("<uuid>{OTHER}</uuid>"))).bad();
    assert!(place.has_domain("one-7"));
    let place = Place::new();
    place.domain("one-7", 1).rule("list", REFUSES).rule("create", REFUSES);
    deploy(&place, &domain(&place, &format!("<uuid>{UUID}</uuid>"))).bad();
    assert!(place.has_domain("one-7"));
}

#[test]
fn deploy_names_what_the_host_lacks_before_libvirt_is_asked_to_start_it() {
    let place = Place::new();
    let lacking = "<domain><name>one-7</name><os><loader>/nowhere/OVMF.fd</loader></os><devices><emulator>/nowhere/qemu</emulator></devices></domain>";
    let reason = deploy(&place, lacking).bad();
    assert!(
        reason.contains("/nowhere/OVMF.fd") && reason.contains("/nowhere/qemu") && reason.contains("h1"),
        "{reason}"
    );
    assert_eq!(place.count("create"), 0);
    assert!(!place.path("ds/0/7").exists());
}

#[test]
fn deploy_of_what_is_no_domain_fails_with_the_place_of_the_fault() {
    for (text, part) in [
        ("", "no element"),
        ("<domain>\n<name>", "ends inside"),
        ("<a/>", "no domain"),
        ("PGRvbWFpbi8+", "outside"),
    ] {
        let place = Place::new();
        let reason = deploy(&place, text).bad();
        assert!(reason.contains(part), "{reason}");
        assert!(!place.path("ds/0/7").exists());
    }
}

#[test]
fn deploy_ended_by_its_driver_takes_the_domain_back() {
    let mut place = Place::new();
    place.env("UUID", UUID);
    // libvirt has the domain while it still starts it.
    place.rule(
        "create",
        "echo $UUID >\"$FAKE/domains/one-7.uuid\"; echo 3 >\"$FAKE/domains/one-7\"; exec sleep 300",
    );
    let file = place.text("ds/0/7/deployment.0");
    let child = place.start(
        "vmm/kvm/deploy",
        &[&file, "h1", "7", "h1"],
        &domain(&place, &format!("<uuid>{UUID}</uuid>")),
    );
    await_that("the domain", || place.has_domain("one-7"));
    let ended = end(child);
    assert_ne!(ended.status, Some(0));
    assert!(!place.has_domain("one-7"), "{ended:?}");
    assert!(!place.path("ds/0/7").exists());
}

#[test]
fn values_in_a_domain_are_data() {
    let place = Place::new();
    let name = "one-7$(touch x)`touch y`';\"*&lt;%s";
    let folder = place.text("ds/0/7 '$(touch z)");
    let document = format!("<domain><name>{name}</name></domain>");
    let out =
        place.run("vmm/kvm/deploy", &[&format!("{folder}/deployment.0"), "h1", "7", "h1"], &document).good();
    assert_eq!(out.lines().count(), 1);
    assert_eq!(place.count("create"), 1);
    for (file, what) in [(format!("{folder}/deployment.0"), "the file"), (place.text("domains"), "libvirt")] {
        let found = std::process::Command::new("grep").args(["-rqF", name, &file]).status();
        assert!(found.is_ok_and(|status| status.success()), "{what} has no {name}");
    }
}

#[test]
fn a_failed_save_leaves_the_earlier_checkpoint_and_the_domain() {
    let place = Place::new();
    place.domain("one-7", 1).rule("save", &format!("echo half >\"$3\"; {REFUSES}"));
    place.write("ds/0/7/checkpoint", "earlier");
    let reason = save(&place).bad();
    assert!(reason.contains("Could not save domain one-7") && reason.contains("h1"), "{reason}");
    assert_eq!(place.read("ds/0/7/checkpoint"), "earlier");
    assert!(!place.path("ds/0/7/checkpoint.new").exists());
    assert!(place.has_domain("one-7"));
}

#[test]
fn a_good_save_replaces_the_earlier_checkpoint_and_leaves_no_other_file() {
    let place = Place::new();
    place.domain("one-7", 1).write("ds/0/7/checkpoint", "earlier");
    save(&place).good();
    assert_eq!(place.read("ds/0/7/checkpoint"), "saved\n");
    assert_eq!(std::fs::read_dir(place.path("ds/0/7")).expect("a folder").count(), 1);
}

#[test]
fn a_save_that_libvirt_finished_without_saying_so_is_a_success() {
    let place = Place::new();
    place.domain("one-7", 1).write("saved.xml", "<domain/>").kvmrc("VIRSH_JOB_TIMEOUT=1");
    place.rule("save", "echo saved >\"$3\"; rm \"$FAKE/domains/one-7\"; exec sleep 300");
    save(&place).good();
    assert_eq!(place.read("ds/0/7/checkpoint"), "saved\n");
}

#[test]
fn a_save_waits_for_a_copy_of_a_disk() {
    let place = Place::new();
    place.domain("one-7", 1);
    place.write("domains/one-7.xml", "<domain><devices><disk><target dev='vda'/></disk></devices></domain>");
    place.rule("save", "if [[ ! -e $FAKE/copied ]]; then echo 'aktiver Blockjob' >&2; exit 1; fi; echo saved >\"$3\"; rm \"$FAKE/domains/one-7\"");
    place.rule("blockjob", "if mkdir \"$FAKE/copying\" 2>/dev/null; then echo ' type=Block Copy'; else touch \"$FAKE/copied\"; fi");
    save(&place).good();
    assert_eq!(place.count("save"), 2);
}

#[test]
fn save_of_a_domain_that_does_not_run_fails() {
    let place = Place::new();
    place.write("ds/0/7/checkpoint", "earlier");
    assert!(save(&place).bad().contains("does not run"));
    assert_eq!(place.read("ds/0/7/checkpoint"), "earlier");
}

#[test]
fn a_save_ended_by_its_driver_is_aborted_and_the_domain_runs_on() {
    let place = Place::new();
    place.domain("one-7", 1).write("ds/0/7/checkpoint", "earlier");
    place.rule("save", "echo 3 >\"$FAKE/domains/one-7\"; exec sleep 300");
    place.rule("domjobabort", "exit 0").rule("resume", "echo 1 >\"$FAKE/domains/one-7\"");
    let args = ["one-7", &place.text("ds/0/7/checkpoint"), "h1", "7", "h1"];
    let child = place.start("vmm/kvm/save", &args, &action("shared"));
    await_that("the save", || place.read("domains/one-7").trim() == "3");
    assert_ne!(end(child).status, Some(0));
    assert_eq!(place.count("domjobabort"), 1);
    assert_eq!(place.read("domains/one-7").trim(), "1");
    assert_eq!(place.read("ds/0/7/checkpoint"), "earlier");
    assert!(!place.path("ds/0/7/checkpoint.new").exists());
}

#[test]
fn a_save_that_was_done_when_its_driver_went_is_taken_back() {
    let place = Place::new();
    place.domain("one-7", 1).write("ds/0/7/checkpoint", "earlier");
    place.rule("save", "echo saved >\"$3\"; rm \"$FAKE/domains/one-7\"; exec sleep 300");
    place.rule("restore", "echo 1 >\"$FAKE/domains/one-7\"; cp \"$2\" \"$FAKE/restored\"");
    let args = ["one-7", &place.text("ds/0/7/checkpoint"), "h1", "7", "h1"];
    let child = place.start("vmm/kvm/save", &args, &action("shared"));
    await_that("the save", || !place.has_domain("one-7"));
    assert_ne!(end(child).status, Some(0));
    assert!(place.has_domain("one-7"));
    assert_eq!(place.read("restored"), "saved\n");
    assert_eq!(place.read("ds/0/7/checkpoint"), "earlier");
}

#[test]
fn hooks_of_the_transfer_driver_get_the_arguments_and_the_document() {
    let place = Place::new();
    place.domain("one-7", 1);
    place.program(
        "one/vmm/kvm/save.mine",
        "printf '%s\\n' \"$@\" >\"$FAKE/args\"; cat >\"$FAKE/stdin\"; echo to stdout",
    );
    let checkpoint = place.text("ds/0/7/checkpoint");
    std::fs::create_dir_all(place.path("ds/0/7")).expect("a folder");
    let out = place.run("vmm/kvm/save", &["one-7", &checkpoint, "h1", "7", "h1"], &action("mine"));
    assert_eq!(out.good(), "");
    assert_eq!(place.read("args"), format!("one-7\n{checkpoint}\nh1\n7\nh1\n"));
    assert_eq!(place.read("stdin"), action("mine"));
}

#[test]
fn a_save_whose_hook_fails_is_taken_back() {
    let place = Place::new();
    place.domain("one-7", 1).program("one/vmm/kvm/save.mine", "exit 3");
    place.rule("restore", "echo 1 >\"$FAKE/domains/one-7\"");
    std::fs::create_dir_all(place.path("ds/0/7")).expect("a folder");
    let args = ["one-7", &place.text("ds/0/7/checkpoint"), "h1", "7", "h1"];
    let reason = place.run("vmm/kvm/save", &args, &action("mine")).bad();
    assert!(reason.contains("save.mine"), "{reason}");
    assert!(place.has_domain("one-7"));
}

#[test]
fn a_transfer_driver_with_an_odd_name_has_no_hook() {
    let place = Place::new();
    place.domain("one-7", 1).program("evil", "touch \"$FAKE/ran\"");
    std::fs::create_dir_all(place.path("ds/0/7")).expect("a folder");
    std::fs::create_dir_all(place.path("one/vmm/kvm/save.x")).expect("a folder");
    let args = ["one-7", &place.text("ds/0/7/checkpoint"), "h1", "7", "h1"];
    place.run("vmm/kvm/save", &args, &action("x/../../../../evil")).good();
    assert!(!place.path("ran").exists());
}

#[test]
fn a_good_restore_leaves_no_checkpoint_and_redefines_snapshots_parents_first() {
    let place = Place::new();
    saved(&place);
    for (name, parent) in [("snap-2", "snap-10"), ("snap-10", "")] {
        let parent =
            if parent.is_empty() { String::new() } else { format!("<parent><name>{parent}</name></parent>") };
        let text = format!(
            "<domainsnapshot><name>{name}</name>{parent}<domain><uuid>old</uuid></domain></domainsnapshot>\n"
        );
        place.write(&format!("ds/0/7/{name}.xml"), &text);
    }
    place.rule("snapshot-create", "sed 's:.*<name>\\(snap[^<]*\\)</name>.*<uuid>\\(.*\\)</uuid>.*:\\1 \\2:' \"$3\" >>\"$FAKE/snapshots\"");
    let args = [&place.text("ds/0/7/checkpoint"), "h1", UUID, "7", "h1"];
    place.run("vmm/kvm/restore", &args, &action("shared")).good();
    let redefined: Vec<_> = place.read("snapshots").lines().map(str::to_owned).collect();
    assert_eq!(redefined.len(), 2);
    assert!(
        redefined[0].starts_with("snap-10") && redefined.iter().all(|line| line.ends_with(UUID)),
        "{redefined:?}"
    );
    assert!(!place.path("ds/0/7/checkpoint").exists() && !place.path("ds/0/7/checkpoint.xml").exists());
    assert!(place.path("ds/0/7/snap-2.xml").exists());
    assert_eq!(std::fs::read_dir(place.path("tmp")).expect("a folder").count(), 0);
}

#[test]
fn a_failed_restore_is_tried_again_and_keeps_the_checkpoint() {
    let place = Place::new();
    saved(&place);
    place.rule("restore", REFUSES).kvmrc("VIRSH_RETRIES=2");
    let reason = restore(&place).bad();
    assert!(reason.contains("Could not restore domain one-7") && reason.contains("abgelehnt"), "{reason}");
    assert_eq!(place.count("restore"), 2);
    assert!(place.path("ds/0/7/checkpoint").exists());
    assert!(!place.path("ds/0/7/checkpoint.xml").exists());
}

#[test]
fn a_guest_that_is_still_being_read_is_not_restored_yet() {
    // virsh gives up; libvirt reads on for two seconds, then it drops the guest, or that comes up
    for (after, works) in [("", false), ("; touch \"$FAKE/up\"", true)] {
        let place = Place::new();
        saved(&place);
        let background = format!("(sleep 2; rm \"$FAKE/reads\"{after}) >/dev/null 2>&1 </dev/null & exit 1");
        place.rule("restore", &format!("touch \"$FAKE/reads\"; {background}")).kvmrc("VIRSH_RETRIES=1");
        place.rule(
            "domstats",
            "says() { printf \"x\\n  state.state=$1\\n  state.reason=$2\\n\"; exit 0; }
             [[ ! -e $FAKE/reads ]] || says 3 11
             [[ ! -e $FAKE/up ]] || says 1 4
             exit 1",
        );
        let ended = restore(&place);
        assert_eq!(ended.status == Some(0), works, "{ended:?}");
        assert_eq!(place.path("ds/0/7/checkpoint").exists(), !works, "{ended:?}");
    }
}

#[test]
fn restore_follows_the_vm_to_another_datastore_and_keeps_its_passwords() {
    let place = Place::new();
    let other = place.text("ds//100/7/disk.0");
    saved(&place);
    place.write(
        "saved.xml",
        &format!(
            "<domain>\n<name>one-7</name>\n<uuid>{UUID}</uuid><disk><source file='{other}'/></disk><graphics passwd='secret'/></domain>"
        ),
    );
    restore(&place).good();
    let expected = format!("<source file='{}'/>", place.text("ds/0/7/disk.0"));
    let domain = place.read("domains/one-7.xml");
    assert!(domain.contains(&expected) && domain.contains("passwd='secret'"), "{domain}");
}

#[test]
fn a_guest_that_sleeps_is_woken_up_and_one_that_runs_is_left_alone() {
    let place = Place::new();
    place.domain("one-7", 7).write("ds/0/7/checkpoint", "x");
    restore(&place).good();
    assert_eq!((place.count("dompmwakeup"), place.count("restore")), (1, 0));
    let place = Place::new();
    place.domain("one-7", 1).write("ds/0/7/checkpoint", "x");
    restore(&place).good();
    assert_eq!((place.count("dompmwakeup"), place.count("restore")), (0, 0));
    assert!(place.path("ds/0/7/checkpoint").exists());
}

#[test]
fn restore_without_a_checkpoint_says_so() {
    let place = Place::new();
    let reason = restore(&place).bad();
    assert!(reason.contains("there is no") && reason.contains("checkpoint"), "{reason}");
}

#[test]
fn a_restore_ended_by_its_driver_leaves_the_checkpoint_and_no_domain() {
    let place = Place::new();
    saved(&place);
    place.rule("restore", "echo 3 >\"$FAKE/domains/one-7\"; exec sleep 300");
    let args = [&place.text("ds/0/7/checkpoint"), "h1", "one-7", "7", "h1"];
    let child = place.start("vmm/kvm/restore", &args, &action("shared"));
    await_that("the domain", || place.has_domain("one-7"));
    assert_ne!(end(child).status, Some(0));
    assert!(!place.has_domain("one-7"));
    assert!(place.path("ds/0/7/checkpoint").exists());
}

#[test]
fn kvmrc_is_what_bash_says_it_is() {
    let place = Place::new();
    place
        .domain("one-7", 1)
        .rule("shutdown", "printf %s \"$EXTRA\" >\"$FAKE/extra\"; rm \"$FAKE/domains/one-7\"");
    place.kvmrc("A='x y'; EXTRA=\"$A-${SHUTDOWN_TIMEOUT}\" # comment\nSHUTDOWN_TIMEOUT=5 FORCE_DESTROY=no");
    place.run("vmm/kvm/shutdown", &["one-7", "h1", "7", "h1"], "").good();
    assert_eq!(place.read("extra"), "x y-180");
}

#[test]
fn a_kvmrc_that_is_no_shell_stops_the_action() {
    let place = Place::new();
    place.domain("one-7", 1).kvmrc("LIBVIRT_URI=(\n");
    let ended = place.run("vmm/kvm/cancel", &["one-7", "h1", "7", "h1"], "");
    assert_eq!(ended.status, Some(1));
    assert!(ended.stderr.contains("kvmrc: line"), "{}", ended.stderr);
    assert!(place.has_domain("one-7"));
}

#[test]
fn without_kvmrc_the_defaults_hold() {
    let place = Place::new();
    std::fs::remove_file(place.path("one/etc/vmm/kvm/kvmrc")).expect("removed");
    place.domain("one-7", 1);
    place.run("vmm/kvm/reboot", &["one-7", "h1", "7", "h1"], "").good();
}

#[test]
fn poll_answers_one_line_of_words() {
    let place = Place::new();
    assert_eq!(place.run("vmm/kvm/poll", &["one-7", "h1"], "").good(), "STATE=d\n");
    place.domain("one-7", 1).rule(
        "domstats",
        "printf \"Domain: 'one-7'\\n  state.state=1\\n  state.reason=1\\n  cpu.time=$(date +%s%N)\\n  balloon.rss=4096\\n  net.count=2\\n  net.0.rx.bytes=5\\n  net.1.rx.bytes=6\\n  net.0.tx.bytes=7\\n\"",
    );
    let line = place.run("vmm/kvm/poll", &["one-7", "h1"], "").good();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(
        (words[0], words[2], words[3], words[4]),
        ("STATE=a", "USEDMEMORY=4096", "NETRX=11", "NETTX=7")
    );
    // The clock stands in for the time of one CPU in full use.
    let used: f64 = words[1].strip_prefix("USEDCPU=").expect("a word").parse().expect("a number");
    assert!((80.0..140.0).contains(&used), "{line}");
}

#[test]
fn a_host_without_the_helper_says_which_is_missing() {
    let place = Place::new();
    std::fs::remove_file(place.path("one/kvmad").join(std::env::consts::ARCH).join("kvmad-node"))
        .expect("removed");
    let reason = deploy(&place, &domain(&place, "")).bad();
    assert!(reason.contains("kvmad-node"), "{reason}");
    place.domain("one-7", 1);
    place.run("vmm/kvm/cancel", &["one-7", "h1", "7", "h1"], "").good();
    assert!(!place.has_domain("one-7"));
    let ended = place.run("kvmad/serve", &[], "");
    assert_eq!(ended.status, Some(42));
}
