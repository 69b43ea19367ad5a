//! Text for people: the plan of `kvmad run --dry-run`, and a conversation through `kvmad decode`.

#![allow(clippy::disallowed_methods, reason = "tests start their own processes")]

use std::io::Write;
use std::process::{Command, Stdio};

use super::corpus;

#[test]
fn a_plan_can_be_read() {
    let folder = corpus::folder("vmm-7.4").join("documents");
    for name in ["001_DEPLOY", "021_RESIZEDISK", "026_MIGRATE", "050_CLEANUP", "053_UPDATESG"] {
        let output = Command::new(env!("CARGO_BIN_EXE_kvmad"))
            .args(["run", "--dry-run"])
            .arg(folder.join(format!("{name}.xml")))
            .env("ONE_LOCATION", "/nonexistent")
            .output()
            .expect("kvmad");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        insta::assert_snapshot!(name, String::from_utf8(output.stdout).expect("utf-8"));
    }
}

#[test]
fn a_recorded_conversation_becomes_readable() {
    let conversation =
        std::fs::read(corpus::folder("vmm-7.4").join("conversation.txt")).expect("conversation");
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvmad"))
        .arg("decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kvmad");
    let mut stdin = child.stdin.take().expect("stdin");
    let lines = conversation.iter().filter(|byte| **byte == b'\n').count();
    let feed = std::thread::spawn(move || stdin.write_all(&conversation));
    let output = child.wait_with_output().expect("output");
    feed.join().expect("thread").expect("it reads all");
    let text = String::from_utf8(output.stdout).expect("utf-8");
    let kept = text.lines().filter(|line| line.starts_with("> ") || line.starts_with("< ")).count();
    assert_eq!(kept, lines, "every line is still there");
    assert_eq!(text.matches("    <VMM_DRIVER_ACTION_DATA>\n").count(), 61);
    assert!(text.contains("> DEPLOY  0 (XML, 7701 bytes)") || text.contains("> DEPLOY  0 (XML, 7702 bytes)"));
    assert!(text.contains("<PASSWD>p&lt;&amp;\"w</PASSWD>"));
    assert!(text.contains("< DEPLOY SUCCESS 0 host1:lc-dummy:dummy"));
}
