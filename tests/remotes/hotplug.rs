//! What goes wrong around a running VM, with stand-ins for libvirt and the guest's agent.

use std::time::{Duration, Instant};

use crate::place::{Ended, Place, UUID, await_that, end};

const REFUSES: &str = "echo 'Fehler: Verbindung abgelehnt' >&2; exit 1";

/// A place with a domain that has the disk vdb as long as the file `plugged` is there.
fn place() -> Place {
    let place = Place::new();
    place.domain("one-7", 1).write("plugged", "");
    let disk = |target: &str| format!("<disk><source file='/d/{target}'/><target dev='{target}'/></disk>");
    let domain = |disks: &str| {
        format!("<domain><name>one-7</name><uuid>{UUID}</uuid><devices>{disks}</devices></domain>")
    };
    place.write("with.xml", &domain(&[disk("vda"), disk("vdb")].concat()));
    place.write("without.xml", &domain(&disk("vda")));
    place.rule(
        "dumpxml",
        "if [[ -e $FAKE/plugged ]]; then cat \"$FAKE/with.xml\"; else cat \"$FAKE/without.xml\"; fi",
    );
    place
}

fn detach(place: &Place) -> Ended {
    place.run("vmm/kvm/detach_disk", &["one-7", "/d/vdb", "vdb", "1", "7", "h1"], "")
}

#[test]
fn detach_waits_for_the_guest_and_notices_by_the_event() {
    let place = place();
    // Without the event it would not look again for far longer than this test waits.
    place.kvmrc("EVENT_POLL=3600\nDETACH_TIMEOUT=7200");
    place.rule("detach-disk", "exit 0");
    place.rule(
        "event",
        "echo early; until [[ ! -e $FAKE/plugged ]]; do sleep 0.01; done; echo event; exec sleep 300",
    );
    let mut child = place.start("vmm/kvm/detach_disk", &["one-7", "/d/vdb", "vdb", "1", "7", "h1"], "");
    place.await_call("detach-disk");
    // Once before the request, once behind it, once more after the first event, which was about something else.
    await_that("a look behind the request", || place.count("dumpxml") > 2);
    std::fs::remove_file(place.path("plugged")).expect("gone");
    await_that("the end", || child.try_wait().expect("our child").is_some());
    Ended::of(&child.wait_with_output().expect("an end")).good();
    assert_eq!(place.count("detach-disk"), 1);
}

#[test]
fn the_guest_is_asked_once_more_after_half_the_time() {
    let place = place();
    place.kvmrc("DETACH_TIMEOUT=4");
    place.rule("detach-disk", "if ! mkdir \"$FAKE/asked\" 2>/dev/null; then rm \"$FAKE/plugged\"; fi");
    detach(&place).good();
    assert_eq!(place.count("detach-disk"), 2);
}

#[test]
fn a_device_that_the_guest_keeps_is_a_failure_after_the_time() {
    let place = place();
    place.kvmrc("DETACH_TIMEOUT=2").rule("detach-disk", "exit 0");
    let reason = detach(&place).bad();
    assert!(
        reason.contains("Could not detach disk vdb from domain one-7 on host h1: the guest has not let go"),
        "{reason}"
    );
    assert_eq!(place.count("detach-disk"), 2);
}

#[test]
fn a_refusal_is_given_up_soon_but_the_state_decides() {
    let place = place();
    place.rule("detach-disk", REFUSES);
    let start = Instant::now();
    assert!(detach(&place).bad().contains("abgelehnt"));
    assert!(start.elapsed() < Duration::from_secs(10));
    let place = self::place();
    place.rule(
        "detach-disk",
        &format!("(sleep 0.5; rm \"$FAKE/plugged\") </dev/null >/dev/null 2>&1 & {REFUSES}"),
    );
    detach(&place).good();
}

#[test]
fn a_libvirt_that_goes_away_meanwhile_is_no_success() {
    let place = place();
    place.kvmrc("DETACH_TIMEOUT=2").rule("detach-disk", "echo exit 1 >\"$FAKE/rules/dumpxml\"");
    detach(&place).bad();
}

#[test]
fn a_disk_that_is_not_there_is_detached_already() {
    let place = place();
    std::fs::remove_file(place.path("plugged")).expect("gone");
    detach(&place).good();
    assert_eq!(place.count("detach-disk"), 0);
}

fn attach(place: &Place, payload: &str, stdin: &str) -> Ended {
    place.run("vmm/kvm/attach_disk", &["one-7", "/d/vdb", "vdb", "1", payload, "7", "h1"], stdin)
}

fn attach_action() -> String {
    "<VMM_DRIVER_ACTION_DATA><VM><ID>7</ID><TEMPLATE><DISK><ATTACH>YES</ATTACH><DISK_ID>1</DISK_ID><TARGET>vdb</TARGET><TYPE>FILE</TYPE></DISK></TEMPLATE></VM></VMM_DRIVER_ACTION_DATA>".to_owned()
}

#[test]
fn attach_reads_stdin_and_without_it_the_payload() {
    use base64::Engine;
    let payload = base64::engine::general_purpose::STANDARD.encode(attach_action());
    for (payload, stdin) in [("-", attach_action().as_str()), (payload.as_str(), "")] {
        let place = place();
        std::fs::remove_file(place.path("plugged")).expect("gone");
        place.rule("attach-device", "cat >\"$FAKE/device\"; touch \"$FAKE/plugged\"");
        attach(&place, payload, stdin).good();
        assert!(place.read("device").contains("<source file='/d/vdb'"), "{}", place.read("device"));
        let calls: Vec<_> = place.calls().iter().map(|words| words.join(" ")).collect();
        let expected =
            ["dumpxml one-7", "echo \u{1e}", "attach-device one-7 /dev/stdin --live", "dumpxml one-7"];
        assert_eq!(calls, expected);
    }
}

#[test]
fn attach_of_what_is_attached_is_a_success_and_of_another_in_its_place_a_failure() {
    let place = place();
    place.rule("attach-device", "cat >>\"$FAKE/device\"");
    attach(&place, "-", &attach_action()).good();
    assert_eq!(place.read("device"), "", "nothing is attached");
    place.write("with.xml", &place.read("with.xml").replace("/d/vdb", "/d/other"));
    assert!(attach(&place, "-", &attach_action()).bad().contains("another disk is attached as vdb"));
}

#[test]
fn attach_is_believed_only_when_the_domain_has_it() {
    let place = place();
    std::fs::remove_file(place.path("plugged")).expect("gone");
    place.rule("attach-device", "exit 0");
    assert!(attach(&place, "-", &attach_action()).bad().contains("it is not there"));
    place.rule("attach-device", &REFUSES.replace("exit 1", "exit 0"));
    assert!(attach(&place, "-", &attach_action()).bad().contains("abgelehnt"));
    place.rule("attach-device", REFUSES);
    assert!(attach(&place, "-", &attach_action()).bad().contains("abgelehnt"));
    assert!(attach(&place, "-", "<a>").bad().contains("Could not attach /d/vdb (vdb) to domain one-7"));
}

#[test]
fn an_attach_that_its_driver_ends_is_taken_back() {
    let place = place();
    std::fs::remove_file(place.path("plugged")).expect("gone");
    place.rule("attach-device", "cat >/dev/null; touch \"$FAKE/plugged\"; exec sleep 300");
    place.rule("detach-disk", "rm \"$FAKE/plugged\"");
    let args = ["one-7", "/d/vdb", "vdb", "1", "-", "7", "h1"];
    let child = place.start("vmm/kvm/attach_disk", &args, &attach_action());
    await_that("the disk", || place.path("plugged").exists());
    assert_ne!(end(child).status, Some(0));
    assert!(!place.path("plugged").exists());
}

#[test]
fn an_attach_to_no_domain_or_a_libvirt_that_hangs_says_so_once() {
    let place = Place::new();
    let reason = attach(&place, "-", &attach_action()).bad();
    assert_eq!(reason.matches("wurde nicht gefunden").count(), 1, "{reason}");
    for call in ["dumpxml", "attach-device"] {
        let place = self::place();
        std::fs::remove_file(place.path("plugged")).expect("gone");
        place.rule(call, "exec sleep 300").rule("detach-disk", "exit 1").kvmrc("VIRSH_TIMEOUT=1");
        let start = Instant::now();
        let reason = attach(&place, "-", &attach_action()).bad();
        assert!(
            reason.contains(&format!("libvirt on host h1 did not answer virsh {call} within 1 s")),
            "{reason}"
        );
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn a_domain_with_an_odd_name_is_reached_by_its_uuid() {
    let place = place();
    std::fs::remove_file(place.path("plugged")).expect("gone");
    place
        .rule("domuuid", &format!("echo {UUID}"))
        .rule("attach-device", "cat >/dev/null; touch \"$FAKE/plugged\"");
    let args = ["web; destroy one-8", "/d/vdb", "vdb", "1", "-", "7", "h1"];
    place.run("vmm/kvm/attach_disk", &args, &attach_action()).good();
    let calls: Vec<_> = place.calls().iter().map(|words| words.join(" ")).collect();
    assert_eq!(calls[..2], ["domuuid web; destroy one-8", &format!("dumpxml {UUID}")]);
    assert_eq!(place.count("destroy"), 0);
}

#[test]
fn a_resize_that_fails_half_way_goes_back() {
    let place = Place::new();
    place.domain("one-7", 1).rule("setvcpus", REFUSES).rule("setmem", "exit 0");
    let document = "<A><VM><TEMPLATE><VCPU>4</VCPU><MEMORY>512</MEMORY><RESIZE><VCPU>2</VCPU><MEMORY>256</MEMORY></RESIZE></TEMPLATE></VM></A>";
    let reason = place.run("vmm/kvm/resize", &["one-7", "7", "h1"], document).bad();
    assert!(reason.contains("from 2 to 4 CPUs") && reason.contains("abgelehnt"), "{reason}");
    let memory: Vec<_> = place
        .calls()
        .into_iter()
        .filter(|words| words[0] == "setmem")
        .map(|words| words[2].clone())
        .collect();
    assert_eq!(memory, ["524288", "262144"]);
}

#[test]
fn a_resize_with_values_that_are_no_numbers_is_refused() {
    for (cpus, memory) in [("2;x", "512"), ("2", "-1"), ("2", "99999999999999999999"), ("$(x)", "1")] {
        let place = Place::new();
        let document = format!(
            "<A><VM><TEMPLATE><VCPU>{cpus}</VCPU><MEMORY>{memory}</MEMORY><RESIZE><VCPU>1</VCPU><MEMORY>256</MEMORY></RESIZE></TEMPLATE></VM></A>"
        );
        place.run("vmm/kvm/resize", &["one-7", "7", "h1"], &document).bad();
        assert!(place.calls().is_empty());
    }
}

/// A place whose libvirt keeps snapshots as files in `snaps`.
fn snapshots() -> Place {
    let place = Place::new();
    place.domain("one-7", 1).write("snaps/.keep", "").write("ds/0/7/vm.xml", "");
    place.rule("snapshot-list", "ls \"$FAKE/snaps\"").rule("snapshot-create-as", "touch \"$FAKE/snaps/$4\"");
    place.rule("snapshot-delete", "rm \"$FAKE/snaps/$3\"").rule("snapshot-current", "exit 1");
    place.rule(
        "snapshot-dumpxml",
        "[[ -e $FAKE/snaps/$3 ]] && echo \"<domainsnapshot><name>$3</name></domainsnapshot>\"",
    );
    place
}

#[test]
fn a_snapshot_is_reported_when_its_file_is_complete() {
    let place = snapshots();
    assert_eq!(place.run("vmm/kvm/snapshot_create", &["one-7", "3", "7", "h1"], "").good(), "snap-3\n");
    assert_eq!(place.read("ds/0/7/snap-3.xml"), "<domainsnapshot><name>snap-3</name></domainsnapshot>\n");
    assert!(
        place.calls().contains(
            &["snapshot-dumpxml", "one-7", "snap-3", "--security-info"].map(str::to_owned).to_vec()
        )
    );
}

#[test]
fn a_snapshot_whose_file_can_not_be_written_is_taken_back() {
    for rule in ["exit 1", "rmdir \"$FAKE/ds/0/7\" 2>/dev/null || rm -r \"$FAKE/ds\"; echo x"] {
        let place = snapshots();
        place.rule("snapshot-dumpxml", rule);
        assert!(
            place
                .run("vmm/kvm/snapshot_create", &["one-7", "3", "7", "h1"], "")
                .bad()
                .contains("Could not keep snapshot snap-3")
        );
        assert!(!place.path("snaps/snap-3").exists() && !place.path("ds/0/7/snap-3.xml").exists());
    }
}

#[test]
fn a_snapshot_ended_by_its_driver_is_taken_back() {
    let place = snapshots();
    place.rule("snapshot-create-as", "touch \"$FAKE/snaps/$4\"; exec sleep 300");
    let child = place.start("vmm/kvm/snapshot_create", &["one-7", "3", "7", "h1"], "");
    await_that("the snapshot", || place.path("snaps/snap-3").exists());
    assert_ne!(end(child).status, Some(0));
    assert!(!place.path("snaps/snap-3").exists());
}

#[test]
fn a_snapshot_that_is_not_deleted_keeps_its_file() {
    let place = snapshots();
    place.write("snaps/snap-3", "").write("ds/0/7/snap-3.xml", "kept").rule("snapshot-delete", REFUSES);
    assert!(
        place.run("vmm/kvm/snapshot_delete", &["one-7", "snap-3", "7", "h1"], "").bad().contains("abgelehnt")
    );
    assert_eq!(place.read("ds/0/7/snap-3.xml"), "kept");
    place.rule("snapshot-list", REFUSES);
    place.run("vmm/kvm/snapshot_delete", &["one-7", "snap-3", "7", "h1"], "").bad();
    assert_eq!(place.read("ds/0/7/snap-3.xml"), "kept");
}

#[test]
fn names_that_are_no_snapshots_are_refused() {
    for name in ["", "../snap-3", "-x", "a/b"] {
        let place = snapshots();
        place.run("vmm/kvm/snapshot_delete", &["one-7", name, "7", "h1"], "").bad();
        assert!(place.calls().is_empty());
    }
}

/// A place with an agent in the guest that notes requests; its answer to `guest-exec-status` is in `status`.
fn agent() -> Place {
    let mut place = Place::new();
    place.domain("one-7", 1).write("run/.keep", "").write("status", r#"{"return":{"exited":false}}"#);
    let folder = place.text("run");
    place.env("EXEC_FOLDER", &folder);
    place.rule(
        "qemu-agent-command",
        r#"printf '%s\n' "$3" >>"$FAKE/requests"; case $3 in *status*) cat "$FAKE/status" ;; *ping*) echo '{"return":{}}' ;; *) echo '{"return":{"pid":812}}' ;; esac"#,
    );
    place
}

fn exec(place: &Place, command: &str, stdin: &str) -> Ended {
    let document = format!(
        "<A><VM><TEMPLATE><QEMU_GA_EXEC><COMMAND><![CDATA[{command}]]></COMMAND><STDIN><![CDATA[{stdin}]]></STDIN></QEMU_GA_EXEC></TEMPLATE></VM></A>"
    );
    place.run("vmm/kvm/exec", &["7", "h1", "other", "x"], &document)
}

#[test]
fn a_command_is_data_for_the_guest_and_its_process_is_kept() {
    let place = agent();
    let command = r#"/bin/sh -c 'echo "$(touch x)"; `y`' it\'s"#;
    exec(&place, command, "QUJD").good();
    assert_eq!(place.read("run/one-7"), "812");
    let request = place.read("requests");
    assert!(
        request.contains(r#""arg":["-c","echo \"$(touch x)\"; `y`","it's"]"#)
            && request.contains(r#""input-data":"QUJD""#),
        "{request}"
    );
}

#[test]
fn without_a_document_the_arguments_count() {
    let place = agent();
    place.run("vmm/kvm/exec", &["7", "h1", "--version 'a b'", "QQ=="], "").good();
    assert!(place.read("requests").contains(r#""arg":["a b"]"#), "{}", place.read("requests"));
}

#[test]
fn a_second_command_is_refused_while_one_runs() {
    let place = agent();
    exec(&place, "sleep 9", "").good();
    assert!(exec(&place, "ls", "").bad().contains("one runs there"));
    assert_eq!(place.read("requests").lines().count(), 1);
    place.run("vmm/kvm/exec_cancel", &["7", "h1"], "").good();
    assert!(!place.path("run/one-7").exists());
    assert!(place.read("requests").contains(r#""arg":["-9","812"]"#));
    exec(&place, "ls", "").good();
}

#[test]
fn a_process_that_has_ended_is_not_killed_by_its_number() {
    let place = agent();
    place.write("run/one-7", "812").write("status", r#"{"return":{"exited":true,"exitcode":0}}"#);
    place.run("vmm/kvm/exec_cancel", &["7", "h1"], "").good();
    assert!(!place.read("requests").contains("-9") && !place.path("run/one-7").exists());
}

#[test]
fn an_agent_that_refuses_or_babbles_is_a_failure_and_nothing_is_kept() {
    let place = agent();
    for rule in [REFUSES, "echo '{\"return\":{}}'", "echo garbage", "exit 0"] {
        place.rule("qemu-agent-command", rule);
        exec(&place, "ls", "").bad();
        assert!(!place.path("run/one-7").exists());
    }
    place.rule("qemu-agent-command", REFUSES).write("run/one-7", "812");
    place.run("vmm/kvm/exec_cancel", &["7", "h1"], "").bad();
    assert_eq!(place.read("run/one-7"), "812");
    for (command, stdin) in [("", ""), ("'", ""), ("ls", "no base64!")] {
        exec(&agent(), command, stdin).bad();
    }
}

#[test]
fn a_vm_that_starts_anew_knows_no_earlier_command() {
    let mut place = Place::new();
    let folder = place.text("run");
    place.env("EXEC_FOLDER", &folder);
    place.write("run/one-7", "812").write("run/one-70", "9");
    let file = place.text("ds/0/7/deployment.0");
    place.run("vmm/kvm/deploy", &[&file, "h1", "7", "h1"], "<domain><name>one-7</name></domain>").good();
    assert!(!place.path("run/one-7").exists() && place.path("run/one-70").exists());
}
