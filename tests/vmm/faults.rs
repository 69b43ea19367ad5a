//! What goes wrong in the field, through the real program: one reply each, the right one, none after a cancel.

use std::time::{Duration, Instant};

use super::corpus::{self, value};
use super::program::FrontEnd;

fn document(front_end: &FrontEnd, number: usize) -> String {
    front_end.document(&corpus::document("vmm-7.4", number).text)
}

/// Waits until `file` is there.
fn appears(file: &std::path::Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        assert!(Instant::now() < until, "{} did not appear", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A script that runs until TERM, notes that it did, and keeps its beginning and end in files.
const UNTIL_TERM: &str = "cat >/dev/null; trap 'touch \"$STAND_IN/ended\"; exit 1' TERM\n\
    touch \"$STAND_IN/began\"; while :; do sleep 0.05; done\n";

#[test]
fn requests_that_can_not_be_served_are_refused_with_the_reason() {
    let front_end = FrontEnd::new();
    let mut program = front_end.start("-p");
    let shutdown = document(&front_end, 29);
    for (line, wanted) in [
        ("NONSENSE  7 PEE+PC9BPg== ".to_owned(), "NONSENSE FAILURE 7 "),
        ("SHUTDOWN  7 ".to_owned(), "SHUTDOWN FAILURE 7 "),
        (
            "SHUTDOWN  7 !!!! ".to_owned(),
            "SHUTDOWN FAILURE 7 Cannot perform SHUTDOWN: the document is not base64",
        ),
        (
            "SHUTDOWN  7 YWJj ".to_owned(),
            "SHUTDOWN FAILURE 7 Cannot perform SHUTDOWN: the document is not XML",
        ),
        ("UPDATESG  7 YWJj ".to_owned(), "UPDATESG FAILURE 7 -1 Cannot perform UPDATESG"),
        ("UPDATENIC  7 YWJj ".to_owned(), "UPDATENIC FAILURE 7 -1 Cannot perform UPDATENIC"),
    ] {
        program.send(&line);
        let reply = program.next();
        assert!(reply.starts_with(wanted), "{line}: {reply}");
    }
    program.request("SHUTDOWN", "1", &shutdown);
    assert_eq!(program.next(), "SHUTDOWN FAILURE 1 the document is of VM 0, the request of VM 1");
    program.request("ATTACHDISK", "0", &shutdown);
    assert_eq!(program.next(), "ATTACHDISK FAILURE 0 Cannot perform ATTACHDISK, expecting TM_COMMAND");
    program.request("SHUTDOWN", "0", &shutdown);
    assert_eq!(program.next(), "SHUTDOWN SUCCESS 0 -");
    assert_eq!(program.finalize(), Some(0));
}

#[test]
fn nothing_is_answered_after_a_driver_cancel_and_the_script_has_ended() {
    let front_end = FrontEnd::new();
    front_end.answer("shutdown", UNTIL_TERM);
    let mut program = front_end.start("-p");
    let shutdown = document(&front_end, 29);
    program.request("SHUTDOWN", "0", &shutdown);
    appears(&front_end.path("began"));
    program.send("DRIVER_CANCEL  0 ");
    program.request("CANCEL", "0", &shutdown);
    assert_eq!(program.next(), "CANCEL SUCCESS 0 -");
    assert!(front_end.path("ended").exists(), "the cancel ran while the shutdown still did");
    assert_eq!(program.lines_within(Duration::from_millis(500)), Vec::<String>::new());
    assert!(
        program.log.iter().any(|line| line == "LOG I 0 Driver command for 0 cancelled"),
        "{:#?}",
        program.log
    );
}

#[test]
fn a_cancel_ends_a_shutdown_that_nobody_cancelled_and_only_it_is_answered() {
    let front_end = FrontEnd::new();
    front_end.answer("shutdown", UNTIL_TERM);
    let mut program = front_end.start("-p");
    let shutdown = document(&front_end, 29);
    program.request("SHUTDOWN", "0", &shutdown);
    appears(&front_end.path("began"));
    program.request("CANCEL", "0", &shutdown);
    assert_eq!(program.next(), "CANCEL SUCCESS 0 -");
    assert!(front_end.path("ended").exists());
    assert_eq!(program.lines_within(Duration::from_millis(300)), Vec::<String>::new());
}

#[test]
fn a_cancelled_deploy_is_rolled_back_before_the_cleanup_deletes() {
    let front_end = FrontEnd::new();
    front_end.answer("deploy", UNTIL_TERM);
    let mut program = front_end.start("-p");
    let deploy = document(&front_end, 46);
    let id = value(&deploy[deploy.find("<VM>").expect("VM")..], "ID");
    program.request("DEPLOY", &id, &deploy);
    appears(&front_end.path("began"));
    front_end.ran();
    program.send(&format!("DRIVER_CANCEL  {id} "));
    program.request("CLEANUP", &id, &document(&front_end, 50));
    assert_eq!(program.next(), format!("CLEANUP SUCCESS {id} "));
    let ran = front_end.ran();
    let at =
        |name: &str| ran.iter().position(|line| line == name).unwrap_or_else(|| panic!("{name}: {ran:?}"));
    assert_eq!(ran[0], "vmm/kvm/cancel", "the roll-back of the deploy comes first: {ran:?}");
    assert_eq!(ran[1], "vnm/dummy/clean");
    assert!(at("tm/dummy/delete") > 2, "{ran:?}");
}

#[test]
fn the_same_request_again_joins_the_one_that_runs() {
    let front_end = FrontEnd::new();
    front_end.answer(
        "save",
        "cat >/dev/null; touch \"$STAND_IN/began\"; while [ ! -e \"$STAND_IN/go\" ]; do sleep 0.02; done\n",
    );
    let mut program = front_end.start("-p");
    let save = document(&front_end, 61);
    let id = value(&save[save.find("<VM>").expect("VM")..], "ID");
    program.request("SAVE", &id, &save);
    appears(&front_end.path("began"));
    program.request("SAVE", &id, &save);
    std::fs::write(front_end.path("go"), "").expect("go");
    assert_eq!(program.next(), format!("SAVE SUCCESS {id} -"));
    assert_eq!(program.lines_within(Duration::from_millis(400)), Vec::<String>::new());
    let saves = front_end.ran().iter().filter(|line| line.ends_with("/save")).count();
    assert_eq!(saves, 1);
}

#[test]
fn a_backup_that_is_cancelled_is_answered() {
    let front_end = FrontEnd::new();
    front_end.answer("backup", UNTIL_TERM);
    let mut program = front_end.start("-p");
    program.request("BACKUP", "3", &document(&front_end, 57));
    appears(&front_end.path("began"));
    program.request("BACKUPCANCEL", "3", &document(&front_end, 58));
    let mut replies = vec![program.next(), program.next()];
    replies.sort();
    assert!(replies[0].starts_with("BACKUP FAILURE 3 "), "{replies:?}");
    assert_eq!(replies[1], "BACKUPCANCEL SUCCESS 3 -");
    assert!(front_end.path("ended").exists());
    assert!(front_end.ran().iter().any(|line| line.contains("postbackup")), "the preparation is undone");
}

#[test]
fn what_does_not_end_behind_a_finished_backup_is_ended_by_its_cancel_and_the_backup_is_good() {
    let front_end = FrontEnd::new();
    front_end.answer("backup", "echo 'abcd 1024 raw'\n");
    for script in ["postbackup", "postbackup_live"] {
        front_end.answer(script, UNTIL_TERM);
    }
    let mut program = front_end.start("-p");
    program.request("BACKUP", "3", &document(&front_end, 57));
    appears(&front_end.path("began"));
    program.request("BACKUPCANCEL", "3", &document(&front_end, 58));
    let mut replies = vec![program.next(), program.next()];
    replies.sort();
    assert_eq!(replies, ["BACKUP SUCCESS 3 abcd 1024 raw", "BACKUPCANCEL SUCCESS 3 -"]);
    assert!(front_end.path("ended").exists());
}

#[test]
fn full_pipes_odd_output_signals_and_children_left_behind_do_not_hold_a_reply_up() {
    let front_end = FrontEnd::new();
    let mut program = front_end.start("-p");
    let reboot = document(&front_end, 2);
    let flood = "head -c 300000 /dev/zero | tr '\\0' x";
    for (body, wanted) in [
        (format!("{flood} >&2; {flood} >&2\n"), "REBOOT SUCCESS 0 -"),
        ("exit 0\n".to_owned(), "REBOOT SUCCESS 0 -"),
        ("cat >/dev/null; sleep 30 & echo said\n".to_owned(), "REBOOT SUCCESS 0 said"),
        ("kill -9 $$\n".to_owned(), "REBOOT FAILURE 0 reboot on the front-end died by signal 9 (KILL)"),
        ("printf 'one\\ntwo\\n' >&2; exit 5\n".to_owned(), "REBOOT FAILURE 0 one; two (exit code 5)"),
        (
            "printf 'ERROR MESSAGE --8<------\\nold way\\nERROR MESSAGE ------>8--\\nExitCode: 7\\n' >&2; exit 7\n"
                .to_owned(),
            "REBOOT FAILURE 0 old way (exit code 7)",
        ),
        ("printf 'REBOOT SUCCESS 0 forged\\n' >&2; exit 1\n".to_owned(), "REBOOT FAILURE 0 REBOOT SUCCESS 0 forged (exit code 1)"),
        ("printf 'a\\nREBOOT FAILURE 0 b\\n'\n".to_owned(), "REBOOT SUCCESS 0 a; REBOOT FAILURE 0 b"),
        ("printf 'x\\0y\\377z'\n".to_owned(), "REBOOT SUCCESS 0 x"),
    ] {
        front_end.answer("reboot", &body);
        let begin = Instant::now();
        program.request("REBOOT", "0", &reboot);
        let reply = program.next();
        assert!(reply.starts_with(wanted), "{body}: {reply}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{body}");
    }
}

#[test]
fn a_script_that_does_not_end_is_ended_by_w() {
    let front_end = FrontEnd::new();
    front_end.answer("reboot", UNTIL_TERM);
    let mut program = front_end.start("-p -w 1");
    program.request("REBOOT", "0", &document(&front_end, 2));
    let reply = program.next();
    assert!(
        reply.starts_with("REBOOT FAILURE 0 reboot on the front-end did not end within 1 s and was stopped"),
        "{reply}"
    );
    assert!(front_end.path("ended").exists());
}

#[test]
fn documents_of_megabytes_reach_scripts_on_stdin() {
    let front_end = FrontEnd::new();
    front_end.answer("attach_disk", "cat >\"$STAND_IN/got\"; printf '%s' \"$5\" >\"$STAND_IN/fifth\"\n");
    let mut program = front_end.start("-p");
    let pad = format!("<USER_TEMPLATE><PAD>{}</PAD>", "p".repeat(3_000_000));
    let large = document(&front_end, 4).replace("<USER_TEMPLATE>", &pad);
    assert!(large.len() > 3_000_000);
    program.request("ATTACHDISK", "0", &large);
    assert_eq!(program.next(), "ATTACHDISK SUCCESS 0 -");
    let got = std::fs::read_to_string(front_end.path("got")).expect("stdin");
    assert!(got.trim_end() == large || unfolded(&got) == large);
    assert_eq!(std::fs::read_to_string(front_end.path("fifth")).expect("argument"), "-");
}

/// Scripts of OpenNebula on the front-end read base64.
fn unfolded(text: &str) -> String {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim_end()).unwrap_or_default();
    String::from_utf8(decoded).unwrap_or_default()
}

#[test]
fn a_missing_script_is_a_failure_that_names_it() {
    let front_end = FrontEnd::new();
    std::fs::remove_file(front_end.path("var/remotes/vmm/kvm/reboot")).expect("script");
    let mut program = front_end.start("-p");
    program.request("REBOOT", "0", &document(&front_end, 2));
    let reply = program.next();
    assert!(reply.starts_with("REBOOT FAILURE 0 ") && reply.contains("vmm/kvm/reboot"), "{reply}");
}

#[test]
fn a_host_that_can_not_be_reached_is_a_failure_that_names_it() {
    let front_end = FrontEnd::new();
    let mut program = front_end.start_with("kvm -p");
    let text = document(&front_end, 2).replace("<HOST>host1", "<HOST>no-such-host.invalid");
    let begin = Instant::now();
    program.request("REBOOT", "0", &text);
    let reply = program.next();
    assert!(reply.starts_with("REBOOT FAILURE 0 ") && reply.contains("no-such-host.invalid"), "{reply}");
    assert!(begin.elapsed() < Duration::from_secs(25));
}

#[test]
fn stderr_is_logged_while_the_script_runs_with_its_severities_and_once() {
    let front_end = FrontEnd::new();
    front_end.answer(
        "reboot",
        "cat >/dev/null; printf 'INFO: a\\nDEBUG: b\\nERROR: c\\nWARN: d\\nplain\\n' >&2; exit 3\n",
    );
    let mut program = front_end.start("-p");
    program.request("REBOOT", "0", &document(&front_end, 2));
    assert_eq!(program.next(), "REBOOT FAILURE 0 plain (exit code 3)");
    for line in ["LOG I 0 a", "LOG D 0 b", "LOG E 0 c", "LOG W 0 d", "LOG I 0 plain"] {
        assert_eq!(program.log.iter().filter(|l| *l == line).count(), 1, "{line}: {:#?}", program.log);
    }
    assert!(
        program
            .log
            .contains(&"LOG I 0 Failed to execute virtualization driver operation: reboot.".to_owned())
    );
}

#[test]
fn the_hypervisor_must_be_named() {
    #![allow(clippy::disallowed_methods)]
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_one_vmm_exec"))
        .arg("-t15")
        .output()
        .expect("the driver");
    assert_eq!(output.status.code(), Some(255));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("no hypervisor is named") && output.stdout.is_empty());
}

#[test]
fn a_driver_that_makes_domains_itself_needs_no_deployment_file() {
    let front_end = FrontEnd::new();
    front_end.answer("deploy", "cat >\"$STAND_IN/got\"; echo one-0\n");
    let conf = front_end.path("defaults.conf");
    std::fs::write(&conf, "OS = [ ARCH = \"x86_64\", MACHINE = \"q35\" ]\n").expect("defaults");
    let mut program = front_end.start(&format!("-p --generate-domain {}", conf.display()));
    let deploy = document(&front_end, 1);
    let file = value(&deploy, "LOCAL_DEPLOYMENT_FILE");
    std::fs::remove_file(file).expect("deployment file");
    program.request("DEPLOY", "0", &deploy);
    assert_eq!(program.next(), "DEPLOY SUCCESS 0 one-0");
    let got = unfolded(&std::fs::read_to_string(front_end.path("got")).expect("stdin"));
    assert!(got.contains("<name>one-0</name>") && got.contains("<domain type='kvm'"), "{got}");
}

#[test]
fn a_deploy_without_its_deployment_file_is_a_failure() {
    let front_end = FrontEnd::new();
    let mut program = front_end.start("-p");
    let deploy = document(&front_end, 1);
    std::fs::remove_file(value(&deploy, "LOCAL_DEPLOYMENT_FILE")).expect("deployment file");
    program.request("DEPLOY", "0", &deploy);
    let reply = program.next();
    assert!(reply.starts_with("DEPLOY FAILURE 0 Cannot open deployment file /"), "{reply}");
    assert_eq!(front_end.ran().last().map(String::as_str), Some("vnm/dummy/clean"));
}
