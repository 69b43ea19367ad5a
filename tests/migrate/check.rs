//! `kvmad migrate-check` on real hosts: fine where all is well, and each thing that is made wrong is found.

use std::process::Output;

use serde_json::Value;

use crate::guest::{Guest, Storage};
use crate::harness::bed;
use crate::harness::front_end::FrontEnd;
use crate::stand;

fn kvmad(front: &FrontEnd, words: &[&str]) -> Output {
    let mut command = bed::as_oneadmin(bed::FRONT_END);
    command.arg("env").args(["--chdir=/", "-i"]).args(front.environment());
    command.arg(front.folder().join("bin/kvmad")).arg("migrate-check").args(words);
    bed::run(command)
}

/// Exit status and, of every check that is not ok, `id verdict`.
fn checked(front: &FrontEnd, words: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = kvmad(front, &[words, &["--format", "json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let findings = json["findings"].as_array().expect("findings");
    let bad = findings.iter().filter(|finding| finding["verdict"] != "ok");
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    (output.status.code(), bad.map(|f| format!("{} {}", word(&f["id"]), word(&f["verdict"]))).collect())
}

/// What every guest of the bed shows: its CPU has a feature that the machine lacks (libvirt does not mind), and no bridge.
const ALWAYS: [&str; 2] = ["vm-cpu warning", "vm-bridges skipped"];

fn with_always(more: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = ALWAYS.iter().chain(more).map(|text| (*text).to_owned()).collect();
    all.sort();
    all
}

fn sorted((status, mut found): (Option<i32>, Vec<String>)) -> (Option<i32>, Vec<String>) {
    found.sort();
    (status, found)
}

fn start_paused(guest: &Guest) {
    let xml = guest.on_machine(&guest.host).join("domain.xml");
    std::fs::write(&xml, guest.domain_xml()).expect("a file");
    bed::virsh(
        &guest.host,
        &["create", "--paused", &guest.folder().join("domain.xml").display().to_string()],
    )
    .expect("it starts");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_vm_that_can_migrate_is_told_so_and_nothing_is_left_behind() {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let guest = Guest::new(&front, 7110, "node1", Storage::Shared, true);
    start_paused(&guest);
    let before = guest.files("node1");
    let told = checked(&front, &["7110", "node2", "--from", "node1"]);
    assert_eq!(sorted(told), (Some(0), with_always(&[])));
    // by document: the host and SHARED come from it
    let file = front.folder().join("var/migrate.xml");
    std::fs::write(&file, guest.migration("node2").xml()).expect("a file");
    let by_file = checked(&front, &[&file.display().to_string(), "node2"]);
    assert_eq!(sorted(by_file), (Some(0), with_always(&[])));
    let text = kvmad(&front, &["one-7110", "node2", "--from", "node1"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("It can be migrated"), "{text:?}");
    assert_eq!(guest.files("node1"), before, "no marker is left");
    for host in bed::NODES {
        let traces = crate::harness::processes::traces(host, front.remotes());
        let holds = traces.iter().any(|p| p.arguments.iter().any(|word| word == "hold"));
        assert!(!holds, "{traces:#?}");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_keeps_a_vm_from_migrating_is_found() {
    let _use = bed::shared();
    let front = stand::front(&[]);
    let guest = Guest::new(&front, 7111, "node1", Storage::Local, true);
    start_paused(&guest);
    // private folders: they would have to be copied
    let told = checked(&front, &["7111", "node2", "--from", "node1"]);
    assert_eq!(sorted(told), (Some(0), with_always(&["vm-storage warning"])));
    let shared = checked(&front, &["7111", "node2", "--from", "node1", "--storage", "shared"]);
    assert_eq!(sorted(shared), (Some(1), with_always(&["vm-storage failure"])));
    let local = checked(&front, &["7111", "node2", "--from", "node1", "--storage", "local"]);
    assert_eq!(sorted(local), (Some(0), with_always(&[])));
    // node3: its shell prints, so libvirt can't talk over ssh to it
    let noisy = checked(&front, &["7111", "node3", "--from", "node1", "--storage", "local"]);
    assert_eq!(sorted(noisy), (Some(1), with_always(&["pair-transport failure"])));
    // it is not on that host; there is no such host; it is there already; nobody knows where it is
    assert_eq!(
        checked(&front, &["7111", "node1", "--from", "node2"]),
        (Some(1), vec!["vm-source failure".to_owned()])
    );
    assert_eq!(kvmad(&front, &["7111", "no-such-host", "--from", "node1"]).status.code(), Some(3));
    let there = kvmad(&front, &["7111", "node1", "--from", "node1"]);
    assert_eq!(
        (there.status.code(), String::from_utf8_lossy(&there.stderr).as_ref()),
        (Some(1), "one-7111 is on node1 already\n")
    );
    assert_eq!(kvmad(&front, &["7111", "node2"]).status.code(), Some(2));
    assert_eq!(kvmad(&front, &["7111", "no/host", "--from", "node1"]).status.code(), Some(2));
}

/// Connections to the migration ports of a host are dropped while it lives.
struct Closed(&'static str);

impl Closed {
    fn rule(host: &str, how: &str) {
        let words = ["iptables", "-w", how, "INPUT", "-p", "tcp", "--dport", "49152:49215", "-j", "DROP"];
        bed::sh(host, &words);
    }

    fn ports(host: &'static str) -> Self {
        Self::rule(host, "-I");
        Self(host)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        Self::rule(self.0, "-D");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_firewall_a_wrong_name_and_one_uuid_for_two_are_found() {
    let _use = bed::alone();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let guest = Guest::new(&front, 7112, "node1", Storage::Shared, false);
    start_paused(&guest);
    let check = || sorted(checked(&front, &["7112", "node2", "--from", "node1"]));
    {
        let _closed = Closed::ports("node2");
        assert_eq!(check(), (Some(1), with_always(&["pair-port failure"])));
    }
    {
        let _closed = Closed::ports("node1");
        assert_eq!(check(), (Some(0), with_always(&["pair-port-back warning"])));
    }
    // as Debian's installer writes it
    let hosts = bed::host_path("node2", "/etc/hosts");
    let before = std::fs::read_to_string(&hosts).expect("hosts");
    let loopback = before.lines().map(|line| {
        if line.split_whitespace().any(|word| word == "node2") { "127.0.1.1 node2" } else { line }
    });
    std::fs::write(&hosts, loopback.collect::<Vec<_>>().join("\n") + "\n").expect("hosts");
    let told = check();
    let named = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp"), ("MIGRATE_URI", "tcp://{target}")]);
    let told_address = sorted(checked(&named, &["7112", "node2", "--from", "node1"]));
    std::fs::write(&hosts, before).expect("hosts");
    assert_eq!(told_address, (Some(0), with_always(&[])), "its own name is not needed");
    assert_eq!(told, (Some(1), with_always(&["pair-libvirt-name failure"])));
    assert_eq!(check(), (Some(0), with_always(&[])), "as before");
}
