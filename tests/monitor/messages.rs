//! What leaves an agent: messages, their size, encryption and clock; its status and figures.

use std::time::Duration;

use kvmad::node::monitor::message::{Kind, Message};
use rustix::process::{Pid, Signal, kill_process};

use super::stand::{Stand, text, uuid, wait};

#[test]
fn messages_are_encrypted_when_there_is_a_key() {
    use rsa::pkcs1::DecodeRsaPrivateKey as _;
    use rsa::traits::PublicKeyParts as _;
    let private = include_str!("../../src/node/monitor/testdata/monitor.pem");
    let key = rsa::PrivateKey::from_pkcs1_pem(private).expect("a key");
    let stand = Stand::new(5106).with_key(include_str!("../../src/node/monitor/testdata/monitor.pub.pem"));
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    let open = |sealed: Vec<u8>| {
        let blocks = sealed.chunks(key.size());
        blocks
            .flat_map(|block| key.pkcs1v15_decrypt(block).expect("sealed with our key"))
            .collect::<Vec<u8>>()
    };
    let message = wait("a message of VMs", || {
        let all = stand.receiver.raw();
        let read = all.iter().map(|(_, bytes)| Message::decode_with(bytes, open).expect("a message"));
        read.into_iter().find(|m| m.kind == Kind::Vm)
    });
    assert!(message.text.contains(&uuid(7)), "{}", message.text);
}

#[test]
fn the_status_tells_what_was_sent_and_metrics_are_prometheus_text() {
    let stand = Stand::new(5112);
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    stand.receiver.wait_for(Kind::Vm, "");
    let ask = |what: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kvmad-node"));
        text(&command.args([what, "--host-id", "5112"]).output().expect("ran").stdout)
    };
    let status: serde_json::Value = serde_json::from_str(&ask("status")).expect("json");
    assert_eq!(status["host"]["id"], 5112);
    assert!(status["record"]["messages"]["MONITOR_VM"]["count"].as_u64() >= Some(1), "{status}");
    let metrics = ask("metrics");
    assert!(metrics.contains("kvmad_libvirt_up{host=\"node1\"} 1\n"), "{metrics}");
    assert!(metrics.contains("domain=\"one-7\",state=\"RUNNING\"} 1\n"), "{metrics}");
}

#[test]
fn what_does_not_fit_a_datagram_is_split_by_vm_or_goes_by_tcp() {
    const LIMIT: usize = 1000;
    let stand = Stand::new(5118).with_env("KVMAD_AGENT_DATAGRAM_LIMIT", &LIMIT.to_string());
    stand.domains(&(1..=40).map(|vm| (vm, 1, 1)).collect::<Vec<_>>());
    assert!(stand.start().status.success());
    stand.receiver.wait_for(Kind::Vm, &uuid(40));
    wait("each VM in a datagram", || {
        let all = stand.receiver.messages().into_iter().filter(|(by, m)| *by == "UDP" && m.kind == Kind::Vm);
        let text: String = all.map(|(_, message)| message.text).collect();
        (1..=40).all(|vm| text.contains(&uuid(vm))).then_some(())
    });
    let raw = stand.receiver.raw();
    assert!(
        raw.iter().all(|(by, bytes)| *by != "UDP" || bytes.len() <= LIMIT),
        "longer than a datagram may be"
    );
    let pid = Pid::from_raw(stand.agent_pid().expect("runs")).expect("a number");
    kill_process(pid, Signal::USR1).expect("signalled");
    stand.receiver.wait_for(Kind::System, "KVM_MACHINES=");
}

#[test]
fn figures_are_served_on_loopback_only_and_written_to_the_file_of_the_node_exporter() {
    use std::io::{Read as _, Write as _};
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let file = tempfile::tempdir().expect("a folder");
    let prom = file.path().join("kvmad.prom");
    let stand = Stand::new(5116)
        .with_env("KVMAD_AGENT_METRICS_PORT", &port.to_string())
        .with_env("KVMAD_AGENT_METRICS_FILE", &prom.display().to_string());
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let answer = wait("the listener", || get("/metrics"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("kvmad_libvirt_up{host=\"node1\"} 1\n"), "{body}");
    assert!(get("/etc/passwd").expect("an answer").starts_with("HTTP/1.1 404"));
    let written = wait("the file", || std::fs::read_to_string(&prom).ok());
    assert!(written.contains("# TYPE kvmad_libvirt_up gauge\n"), "{written}");
    // Not on another address: the kernel's table has the port on 127.0.0.1 alone.
    let tables =
        ["tcp", "tcp6"].map(|t| std::fs::read_to_string(format!("/proc/net/{t}")).unwrap_or_default());
    let ours: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned))
        .filter(|local| local.ends_with(&format!(":{port:04X}")))
        .collect();
    assert!(!ours.is_empty() && ours.iter().all(|local| local.starts_with("0100007F:")), "{ours:?}");
}

#[test]
fn a_key_made_as_opennebula_documents_it_is_read() {
    use kvmad::node::monitor::key::PublicKey;
    let dir = tempfile::tempdir().expect("a folder");
    let key = dir.path().join("onemonitor");
    let run = |words: &[&str]| {
        let output = std::process::Command::new("ssh-keygen").args(words).arg("-f").arg(&key).output();
        output.expect("ssh-keygen of openssh-client").stdout
    };
    run(&["-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", "pem"]);
    let public = run(&["-e", "-m", "pem"]);
    assert!(PublicKey::read(&text(&public)).expect("readable").is_some());
    // Before that conversion it is in the form of ssh: refused, with the mend.
    let ssh = std::fs::read_to_string(key.with_extension("pub")).expect("written");
    let said = PublicKey::read(&ssh).expect_err("another form").to_string();
    assert!(said.contains("ssh-keygen -f KEY.pub -e -m pem"), "{said}");
}

#[test]
fn the_clock_of_the_messages_never_goes_back() {
    let stand = Stand::new(5113);
    // As if the clock had been an hour ahead before.
    let ahead = std::time::SystemTime::now() + Duration::from_secs(3600);
    let ahead = ahead.duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    std::fs::create_dir_all("/var/tmp/one_db/kvmad").expect("made");
    let state = "/var/tmp/one_db/kvmad/host-5113.state";
    std::fs::write(state, format!("{{\"epoch\":{ahead}}}")).expect("written");
    let reply = text(&stand.start().stdout);
    assert!(reply.contains(&format!("<TIMESTAMP>{ahead}</TIMESTAMP>")), "{reply}");
    assert!(stand.receiver.wait_for(Kind::Beacon, "").epoch >= ahead);
}

#[test]
fn a_clock_that_is_set_back_an_hour_holds_up_no_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let (library, clock) = (dir.path().join("clock.so"), dir.path().join("clock"));
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library);
    let made = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitor/clock.c")).status();
    assert!(made.expect("cc, with which Rust links").success());
    let set = |seconds: &str| std::fs::write(&clock, seconds).expect("written");
    set("3600");
    let stand = Stand::new(5121)
        .with_env("LD_PRELOAD", &library.display().to_string())
        .with_env("CLOCK_OFFSET", &clock.display().to_string());
    stand.domains(&[(7, 1, 1)]);
    let started = stand.start();
    assert!(started.status.success(), "{}", text(&started.stderr));
    let first = stand.receiver.wait_for(Kind::Vm, &uuid(7)).epoch;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    assert!(first > now + 3000, "its clock is ahead: {first}, {now}");
    set("0");
    let seen = stand.receiver.messages().len();
    stand.domains(&[(7, 3, 1)]);
    stand.event("event 'lifecycle' for domain 'one-7': Suspended Paused");
    let all = wait("messages of every kind after the clock went back", || {
        let all: Vec<_> = stand.receiver.messages().split_off(seen).into_iter().map(|(_, m)| m).collect();
        [Kind::Beacon, Kind::Vm, Kind::State]
            .iter()
            .all(|kind| all.iter().any(|m| m.kind == *kind))
            .then_some(all)
    });
    assert!(all.iter().all(|message| message.epoch >= first), "{all:?}");
}
