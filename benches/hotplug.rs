//! `attach_disk` against the bare `virsh attach-device` on a host, on the test bed: `make bench`.
//!
//! One loop in one process on the host does both in turn, so that neither the way there nor the machine's other work
//! counts for one side only. The disk is a SCSI one, which goes at once when it is detached. Nothing here is a verdict.
#![allow(missing_docs, dead_code, clippy::print_stdout, clippy::disallowed_methods)]

#[path = "../tests/remotes/node.rs"]
mod node;
#[path = "../tests/remotes/place.rs"]
mod place;
#[path = "driver/report.rs"]
mod report;

use std::time::Duration;

use node::{Caller, Node, Vm};
use report::{Report, median};

const ID: u32 = 6090;
const ROUNDS: usize = 25;

/// Words: rounds, uuid, folder of the VM, attach_disk. A line a round: microseconds of ours, of virsh.
const LOOP: &str = r#"set -euo pipefail
rounds=$1 uuid=$2 folder=$3 attach=$4
virsh() { command virsh --quiet --connect qemu:///system "$@"; }
gone() { virsh detach-disk "$uuid" sda --live; while [[ $(virsh domblklist "$uuid") == *sda* ]]; do sleep 0.05; done; }
printf "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s/disk.1'/><target dev='sda' bus='scsi'/></disk>" "$folder" >"$folder/bare.xml"
for ((round = 0; round < rounds; round++)); do
    a=${EPOCHREALTIME//[!0-9]/}
    "$attach" "$uuid" "$folder/disk.1" sda 0 - 6090 node1 <"$folder/action"
    b=${EPOCHREALTIME//[!0-9]/}
    gone
    c=${EPOCHREALTIME//[!0-9]/}
    virsh attach-device "$uuid" "$folder/bare.xml" --live
    d=${EPOCHREALTIME//[!0-9]/}
    gone
    echo "$((b - a)) $((d - c))"
done"#;

fn main() {
    // `cargo bench` hands over --bench; `cargo test --benches` runs us without it: nothing to do then
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let node = Node::new("node1", ID);
    let vm = Vm::new(&node, Caller::Ours, ID);
    node.oneadmin(
        &format!("cd {} && qemu-img create -q -f qcow2 disk.0 16M && truncate -s 1M disk.1", vm.folder),
        b"",
    )
    .good();
    let uuid = vm.deploy().good();
    let action = format!(
        "<VMM_DRIVER_ACTION_DATA><VM><ID>{ID}</ID><TEMPLATE><DISK><ATTACH>YES</ATTACH><DISK_ID>1</DISK_ID><TARGET>sda</TARGET>\
         <TYPE>FILE</TYPE></DISK></TEMPLATE></VM></VMM_DRIVER_ACTION_DATA>"
    );
    node.oneadmin(&format!("cat >{}/action", vm.folder), action.as_bytes()).good();
    node.oneadmin(&format!("cat >{}/loop", vm.folder), LOOP.as_bytes()).good();
    let attach = format!("/var/tmp/one-remotes-{ID}/vmm/kvm/attach_disk");
    let words = format!("bash {0}/loop {ROUNDS} {1} {0} {attach}", vm.folder, uuid.trim());
    let lines = node.oneadmin(&words, b"").good();
    let times = |column: usize| -> Vec<Duration> {
        let numbers = lines.lines().filter_map(|line| line.split(' ').nth(column)?.parse().ok());
        numbers.map(Duration::from_micros).collect()
    };
    let (ours, bare) = (times(0), times(1));
    assert_eq!((ours.len(), bare.len()), (ROUNDS, ROUNDS), "{lines}");
    let mut report = Report::default();
    report.ratio("attach_disk's script vs virsh attach-device", median(&ours), median(&bare), "<= 2.0");
    let least = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
    report.ratio("the fastest of each", least(&ours), least(&bare), "");
    println!("{report}");
}
