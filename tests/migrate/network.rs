//! A network of its own for the data of migrations.

use std::fs;
use std::process::Command;

use crate::guest::{ACTION, Guest, Storage};
use crate::harness::bed;
use crate::stand;

const HOSTS: &str = "/etc/hosts";

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip");
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A cable between the two hosts, as mig0 on either, with addresses and with names in /etc/hosts; gone when it goes.
struct Cable(Vec<(&'static str, String)>);

impl Cable {
    fn laid() -> Self {
        let space = bed::NODES.map(bed::namespace);
        ip(&[
            "link", "add", "mig0", "netns", &space[0], "type", "veth", "peer", "name", "mig0", "netns",
            &space[1],
        ]);
        let names = "10.78.0.11 node1-migration\n10.78.0.12 node2-migration\n";
        let before = bed::NODES.map(|host| {
            let file = bed::host_path(host, HOSTS);
            let text = fs::read_to_string(&file).expect("hosts");
            fs::write(&file, format!("{text}{names}")).expect("hosts");
            (host, text)
        });
        let cable = Self(before.to_vec());
        for (space, address) in space.iter().zip(["10.78.0.11/24", "10.78.0.12/24"]) {
            ip(&["-n", space, "address", "add", address, "dev", "mig0"]);
            ip(&["-n", space, "link", "set", "mig0", "up"]);
        }
        cable
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // one end takes the other with it
        let _ = Command::new("ip").args(["-n", &bed::namespace("node1"), "link", "delete", "mig0"]).status();
        for (host, text) in &self.0 {
            let _ = fs::write(bed::host_path(host, HOSTS), text);
        }
    }
}

/// Bytes that a host has sent and received by an interface.
fn bytes(host: &str, interface: &str) -> u64 {
    let count = |which: &str| -> u64 {
        let text = bed::sh(host, &["cat", &format!("/sys/class/net/{interface}/statistics/{which}_bytes")]);
        text.trim().parse().expect("a number")
    };
    count("tx") + count("rx")
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_the_data_go_over_the_network_that_the_settings_name() {
    let _use = bed::alone();
    let _cable = Cable::laid();
    // to node2 by the pattern, to node1 by what is said for it alone
    let front = stand::front(&[
        ("QEMU_PROTOCOL", "qemu+tcp"),
        ("MIGRATE_URI", "tcp://{short}-migration"),
        ("MIGRATE_URI_node1", "tcp://10.78.0.11"),
    ]);
    stand::synchronize(&front);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, 7162, "node1", Storage::Local, false);
    guest.boot(&mut driver);
    for target in ["node2", "node1"] {
        let before = (bytes(target, "mig0"), bytes(target, "eth0"));
        guest.migrate(&mut driver);
        let (own, other) = (bytes(target, "mig0") - before.0, bytes(target, "eth0") - before.1);
        // the guest's memory that is not empty, and its disk
        assert!(own > 40 << 20, "to {target}: {own} bytes by the migration network, {other} by the other");
        assert!(other < 8 << 20, "to {target}: {own} bytes by the migration network, {other} by the other");
    }
    guest.kept_running();
    // where the network is broken the VM stays, and the reply says so
    ip(&["-n", &bed::namespace("node2"), "address", "flush", "dev", "mig0"]);
    ip(&["-n", &bed::namespace("node1"), "route", "add", "unreachable", "10.78.0.12/32"]);
    let leaving = guest.leave(&mut driver, "node2");
    let reply = guest.went(&driver, &leaving, ACTION);
    ip(&["-n", &bed::namespace("node1"), "route", "delete", "unreachable", "10.78.0.12/32"]);
    assert_eq!(reply.status, "FAILURE", "{}", reply.raw);
    assert!(reply.info.contains("the VM is on host node1 as before"), "{}", reply.raw);
    guest.runs_here_alone().expect("it stays");
    guest.kept_running();
}
