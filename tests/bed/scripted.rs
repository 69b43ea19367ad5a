//! Scripts as the field has them, in the place of `reboot` and `attach_nic`: whatever they print and however they end, one clean reply
//! comes. Run over the helper, on the difficult host, without any helper, and on the front-end.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::bed;
use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;

const SOON: Duration = Duration::from_secs(60);
const SCRIPT: &str = include_str!("scripts/misbehaves");
const RECORDS: &str = include_str!("scripts/records");

/// Where `reboot` runs, and with whose remotes.
#[derive(Debug, Clone, Copy)]
struct Way {
    host: &'static str,
    arguments: &'static str,
    foreign: bool,
}

const HELPER: Way = Way { host: "node1", arguments: "-t 15 -r 0 kvm -p", foreign: false };
const DIFFICULT: Way = Way { host: bed::DIFFICULT, arguments: "-t 15 -r 0 kvm -p", foreign: false };
const FALLBACK: Way = Way { host: "node2", arguments: "-t 15 -r 0 kvm -p", foreign: true };
const DIFFICULT_FALLBACK: Way = Way { host: bed::DIFFICULT, arguments: "-t 15 -r 0 kvm -p", foreign: true };
const LOCAL: Way = Way {
    host: "node1",
    arguments: "-t 15 -r 0 -l reboot,attach_nic,prereconfigure,reconfigure kvm -p",
    foreign: false,
};

impl Way {
    fn front(self, script: &str) -> FrontEnd {
        let mut front = FrontEnd::staged();
        if self.foreign {
            front = front.with_remotes(&bed::programs().join("../bed/foreign-remotes"));
        }
        front.put("var/remotes/vmm/kvm/reboot", 0o755, script);
        front
    }

    fn document(self, vm: u32) -> Document {
        Document { host: self.host.into(), deploy_id: format!("one-{vm}"), vm, ..Document::default() }
    }
}

/// The misbehaviour of `scripts/misbehaves` by VM id, and what must come of it.
fn outcomes(way: Way) {
    let _use = bed::shared();
    let front = way.front(SCRIPT);
    let mut driver = Driver::ready(&front, way.arguments);
    let ask = |driver: &mut Driver, vm: u32| driver.ask("REBOOT", vm, &way.document(vm).payload(), SOON);

    let flood = ask(&mut driver, 1);
    assert!(flood.succeeded(), "floods both pipes: {:.200}", flood.raw);

    let lines = ask(&mut driver, 2);
    assert_eq!(lines.status, "FAILURE");
    assert!(lines.info.contains("first part; second part"), "{}", lines.raw);
    assert!(
        !lines.info.contains("bashrc") && !lines.info.contains("fish") && !lines.info.contains("Authorised"),
        "{}",
        lines.raw
    );

    let forged = ask(&mut driver, 3);
    assert_eq!(forged.status, "FAILURE", "it ended with 3, whatever it printed: {}", forged.raw);
    assert_eq!(
        driver.conversation.replies("SHUTDOWN", 3),
        0,
        "its output is data:\n{}",
        driver.conversation.text()
    );

    let killed = ask(&mut driver, 4);
    assert_eq!(killed.status, "FAILURE");
    assert!(killed.info.contains("SEGV") || killed.info.contains("signal 11"), "{}", killed.raw);

    let start = Instant::now();
    assert!(ask(&mut driver, 5).succeeded(), "a background child holds its pipes");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "the reply comes at the script's end, not the child's: {:?}",
        start.elapsed()
    );

    let mut big = way.document(6);
    big.user_template = cdata("BIG", &"x".repeat(400_000));
    let unread = driver.ask("REBOOT", 6, &big.payload(), SOON);
    assert!(unread.succeeded(), "it does not read its stdin: {}", unread.raw);

    let bytes = ask(&mut driver, 7);
    assert_eq!(bytes.status, "FAILURE");
    assert!(bytes.info.contains("before") && bytes.info.contains("after"), "{}", bytes.raw);

    assert!(ask(&mut driver, 8).succeeded(), "logs with severities");
    for (severity, text) in [("E", "an error"), ("D", "a detail"), ("I", "a fact")] {
        assert_eq!(driver.conversation.log(8, text, SOON).status, severity);
    }
    for vm in 1..=8 {
        assert_eq!(driver.conversation.replies("REBOOT", vm), 1, "one reply for {vm}");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_misbehaving_script_gets_one_clean_reply_over_the_helper() {
    outcomes(HELPER);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_misbehaving_script_gets_one_clean_reply_on_the_difficult_host() {
    outcomes(DIFFICULT);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_misbehaving_script_gets_one_clean_reply_without_a_helper() {
    outcomes(FALLBACK);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_misbehaving_script_gets_one_clean_reply_without_a_helper_on_the_difficult_host() {
    outcomes(DIFFICULT_FALLBACK);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_misbehaving_script_gets_one_clean_reply_on_the_front_end() {
    outcomes(LOCAL);
}

/// Values as a template or a user may hold them.
const HOSTILE: [&str; 16] = [
    "it's",
    "a \"b\" c",
    "`touch /tmp/kvmad-bed-hostile`",
    "$(touch /tmp/kvmad-bed-hostile)",
    "; touch /tmp/kvmad-bed-hostile #",
    "a && b || c | d > e < f",
    "*",
    "EOT\ntouch /tmp/kvmad-bed-hostile\n",
    "]]>",
    "%s%n%d",
    "--option",
    "-",
    "back\\slash\\",
    " blanks  inside ",
    "t\tab",
    "\u{e4}\u{20ac}\u{1f600}",
];

/// Each value as MAC, BRIDGE, MODEL and TARGET of a network card that is plugged in: all become arguments, and the whole
/// document becomes stdin.
fn delivered_as_data(way: Way) {
    let _use = bed::shared();
    let front = way.front("#!/bin/bash\nexit 0\n");
    front.put("var/remotes/vmm/kvm/attach_nic", 0o755, RECORDS);
    for after in ["prereconfigure", "reconfigure"] {
        front.put(&format!("var/remotes/vmm/kvm/{after}"), 0o755, "#!/bin/bash\nexit 0\n");
    }
    let mut driver = Driver::ready(&front, way.arguments);
    let record = format!("/tmp/kvmad-bed-{}-{}", std::process::id(), way.host);
    let host = if way.arguments.contains("-l") { bed::FRONT_END } else { way.host };
    for value in HOSTILE {
        let mut document = way.document(9);
        let card = ["MAC", "BRIDGE", "MODEL", "TARGET"].map(|name| cdata(name, value)).concat();
        document.template = format!("<NIC>{}{card}</NIC>", cdata("ATTACH", "YES"));
        document.user_template = format!("{}{}", cdata("RECORD", &record), cdata("VALUE", value));
        let reply = driver.ask("ATTACHNIC", 9, &document.payload(), SOON);
        let file = bed::host_path(host, &record);
        let read =
            |end: &str| fs::read(file.with_extension(end)).map(|b| String::from_utf8_lossy(&b).into_owned());
        if reply.succeeded() {
            let words = read("args").unwrap_or_else(|e| panic!("{value:?}: {e}"));
            let words: Vec<&str> = words.split('\0').collect();
            assert_eq!(
                words,
                ["one-9", value, value, value, "", value, "9", way.host, ""],
                "arguments as they are"
            );
            let stdin = read("stdin").unwrap_or_default();
            assert_eq!(stdin.trim_end(), document.xml(), "{value:?}: stdin as it is");
        } else {
            assert!(reply.info.len() > 1, "refused, with a reason: {}", reply.raw);
            assert!(value.contains('\n') || value.starts_with('-'), "{value:?} is refused: {}", reply.raw);
        }
        for end in ["args", "stdin"] {
            let _ = fs::remove_file(file.with_extension(end));
        }
        for anywhere in [host, bed::FRONT_END] {
            assert!(
                !bed::host_path(anywhere, "/tmp/kvmad-bed-hostile").exists(),
                "{value:?} was run on {anywhere}"
            );
        }
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hostile_values_are_delivered_as_data_over_the_helper() {
    delivered_as_data(HELPER);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hostile_values_are_delivered_as_data_through_fish_and_noise() {
    delivered_as_data(DIFFICULT);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hostile_values_are_delivered_as_data_without_a_helper() {
    delivered_as_data(FALLBACK);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hostile_values_are_delivered_as_data_without_a_helper_on_the_difficult_host() {
    delivered_as_data(DIFFICULT_FALLBACK);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hostile_values_are_delivered_as_data_on_the_front_end() {
    delivered_as_data(LOCAL);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_deploy_that_prints_no_id_is_a_failure_with_the_reason() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    front.put("var/remotes/vmm/kvm/deploy", 0o755, "#!/bin/bash\ncat >/dev/null\n");
    front.put("var/vms/2030/deployment.0", 0o644, "<domain/>");
    let folder = format!("/var/tmp/kvmad-bed-{}", std::process::id());
    let document = Document {
        local_file: front.folder().join("var/vms/2030/deployment.0").display().to_string(),
        remote_file: format!("{folder}/2030/deployment.0"),
        deploy_id: String::new(),
        datastore: folder.clone(),
        ..HELPER.document(2030)
    };
    let mut driver = Driver::ready(&front, HELPER.arguments);
    let reply = driver.ask("DEPLOY", 2030, &document.payload(), SOON);
    let _ = fs::remove_dir_all(bed::host_path("node1", folder));
    assert_eq!(reply.status, "FAILURE", "{}", reply.raw);
    assert!(reply.info.len() > 1, "{}", reply.raw);
}
