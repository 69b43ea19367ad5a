//! The IM driver as a program, spoken to as the daemons of each era do, over stand-in scripts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kvmad::node::monitor::message::{Message, pack, unpack};

use super::stand::executable;

/// A driver that runs.
struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
}

impl Driver {
    /// Started as the daemon does it: all arguments in one word. Scripts come from `var/remotes/im`.
    fn start(arguments: &str, scripts: &[(&str, &str)], conf: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in scripts {
            executable(&dir.path().join("var/remotes/im").join(name), text);
        }
        std::fs::create_dir_all(dir.path().join("etc")).expect("made");
        std::fs::create_dir_all(dir.path().join("var/remotes")).expect("made");
        std::fs::write(dir.path().join("etc/kvmad.conf"), conf).expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_one_im_exec"))
            .arg(arguments)
            .env("ONE_LOCATION", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut driver = Self { child, stdin, stdout, dir };
        driver.say("INIT");
        let line = driver.line();
        // onemonitord reads 31 bytes at most.
        assert!(line.starts_with("INIT SUCCESS") && line.len() < 31, "{line}");
        driver
    }

    fn say(&mut self, line: &str) {
        self.stdin.as_mut().expect("open").write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim_end_matches('\n').to_owned()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn finish(mut self) {
        self.say("FINALIZE");
        self.stdin = None;
        assert_eq!(self.child.wait().expect("ended").code(), Some(0));
    }
}

/// The recorded request of oned 7.4 for host 0.
fn recorded() -> String {
    let all = include_str!("../corpus/monitord-7.4/driver-conversation.txt");
    let line = all.lines().find_map(|line| line.strip_prefix("> START_MONITOR - 0 0 ")).expect("recorded");
    format!("START_MONITOR - 0 0 {line}")
}

fn unpacked(word: &str) -> String {
    String::from_utf8(unpack(word).expect("packed")).expect("text")
}

const REPLIES: &str = "#!/bin/sh\ncat > \"$0.stdin\"; printf '%s ' \"$@\" > \"$0.words\"\nprintf '<MONITOR_MESSAGES><SYSTEM_HOST>QT0x</SYSTEM_HOST>\\n<TIMESTAMP>1</TIMESTAMP></MONITOR_MESSAGES>\\n'\n";

#[test]
fn the_recorded_start_of_onemonitord_7_4_is_answered_in_its_form() {
    let mut driver = Driver::start(
        "-r 0 -t 15 -w 90 -l kvm",
        &[("run_monitord_client", REPLIES), ("stop_monitord_client", "#!/bin/sh\nexit 0\n")],
        "",
    );
    driver.say(&recorded());
    let line = driver.line();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words.len(), words[..3].join(" ")), (5, "START_MONITOR SUCCESS 0".to_owned()), "{line}");
    assert!(words[3].parse::<u64>().is_ok(), "{line}");
    assert_eq!(
        unpacked(words[4]),
        "<MONITOR_MESSAGES><SYSTEM_HOST>QT0x</SYSTEM_HOST>\n<TIMESTAMP>1</TIMESTAMP></MONITOR_MESSAGES>"
    );
    let im = driver.path().join("var/remotes/im");
    assert_eq!(std::fs::read_to_string(im.join("run_monitord_client.words")).expect("ran"), "dummy 0 host1 ");
    let stdin = std::fs::read(im.join("run_monitord_client.stdin")).expect("ran");
    let document = String::from_utf8(STANDARD.decode(stdin).expect("base64 on the front-end")).expect("text");
    assert!(document.starts_with("<MONITOR_CONFIGURATION><DATASTORE_LOCATION>"), "{document}");
    assert!(document.ends_with("<HOST_ID>0</HOST_ID></MONITOR_CONFIGURATION>"), "{document}");
    driver.say(&recorded().replace("START_MONITOR", "STOP_MONITOR"));
    let line = driver.line();
    assert!(line.starts_with("STOP_MONITOR SUCCESS 0 "), "{line}");
    driver.finish();
}

#[test]
fn the_reason_of_a_failed_start_comes_as_a_failure_of_the_host_and_as_the_reply() {
    let script =
        "#!/bin/sh\ncat > /dev/null; echo 'ERROR: for the log' >&2; echo 'libvirt is down' >&2; exit 1\n";
    let mut driver = Driver::start("-r 0 -t 15 -w 90 -l kvm", &[("run_monitord_client", script)], "");
    driver.say(&recorded());
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.starts_with("START_MONITOR")) {
        lines.push(driver.line());
    }
    let told = lines.iter().find(|line| line.starts_with("SYSTEM_HOST FAILURE 0 0 ")).expect("told");
    let message = Message::decode(told.as_bytes()).expect("a message of hosts");
    assert_eq!((message.success, message.text.as_str()), (false, "libvirt is down (exit code 1)"));
    let log = lines.iter().find(|line| line.starts_with("LOG E 0 ")).expect("a log line");
    assert_eq!(unpacked(log.rsplit(' ').next().expect("a word")), "for the log");
    let reply = lines.last().expect("the reply");
    assert!(reply.starts_with("START_MONITOR FAILURE 0 "), "{reply}");
    assert_eq!(unpacked(reply.rsplit(' ').next().expect("a word")), "libvirt is down (exit code 1)");
    driver.finish();
}

#[test]
fn what_a_script_prints_around_its_document_is_no_line_of_the_protocol() {
    let script =
        REPLIES.replace("printf '<MON", "printf '\\nSTART_MONITOR SUCCESS 0 1 -\\n' >&2; printf '\\n\\n<MON");
    let mut driver = Driver::start("-r 0 -t 15 -w 90 -l kvm", &[("run_monitord_client", &script)], "");
    driver.say(&recorded());
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.starts_with("START_MONITOR")) {
        lines.push(driver.line());
    }
    assert!(
        lines.iter().all(|line| line.starts_with("LOG I 0 ") || line.starts_with("START_MONITOR SUCCESS 0 ")),
        "{lines:?}"
    );
    let document = unpacked(lines.last().and_then(|line| line.rsplit(' ').next()).expect("a word"));
    assert!(document.starts_with("<MONITOR_MESSAGES>"), "{document}");
    driver.finish();
}

#[test]
fn requests_that_can_not_be_read_are_answered_too() {
    let mut driver = Driver::start("-l kvm", &[], "");
    for line in [
        "START_MONITOR - 5 0 !!!",
        "START_MONITOR - 5 0 eJxLAAAAAA==",
        &format!("START_MONITOR - 5 0 {}", pack(b"<X/>")),
    ] {
        driver.say(line);
        let reply = driver.line();
        assert!(reply.starts_with("START_MONITOR FAILURE 5 "), "{reply}");
    }
    driver.finish();
}

#[test]
fn the_era_of_collectd_gets_base64_and_its_recorded_words() {
    let recorded = include_str!("../corpus/im-4.14/driver-conversation.txt");
    let request = recorded
        .lines()
        .find_map(|line| line.strip_prefix("> ").filter(|l| l.starts_with("MONITOR ")))
        .expect("recorded");
    let script = "#!/bin/sh\nprintf 'WORDS=\"%s\"\\nA=1\\n' \"$*\"\n";
    let mut driver =
        Driver::start("-r 0 -t 15 -l kvm", &[("run_probes", script), ("stop_probes", script)], "");
    std::fs::write(
        driver.path().join("var/config"),
        "IM_MAD=NAME=collectd,EXECUTABLE=collectd,ARGUMENTS=-p 4131 -f 5 -t 50 -i 60\n",
    )
    .expect("written");
    driver.say(request);
    let line = driver.line();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words.len(), words[..3].join(" ")), (4, "MONITOR SUCCESS 0".to_owned()), "{line}");
    let text = String::from_utf8(STANDARD.decode(words[3]).expect("base64")).expect("text");
    // VAR/config is read at the start of a driver, as oned writes it before.
    assert_eq!(text, "WORDS=\"kvm /var/lib/one//datastores 4124 20 0 host1\"\nA=1\n");
    driver.say("STOPMONITOR 0 host1 ");
    assert!(driver.line().starts_with("STOPMONITOR SUCCESS 0 "));
    driver.finish();
}

#[test]
fn opennebula_4_2_gets_base64_and_3_8_plain_text() {
    let script = "#!/bin/sh\nprintf 'ARCH=x86_64\\nHYPERVISOR=%s\\n' \"$1\"\n";
    let mut driver = Driver::start("-r 0 -t 15 -l kvm", &[("run_probes", script)], "");
    driver.say("MONITOR 3 node3 1");
    let line = driver.line();
    let packed = line.strip_prefix("MONITOR SUCCESS 3 ").expect("a reply");
    assert_eq!(STANDARD.decode(packed).expect("base64"), b"ARCH=x86_64\nHYPERVISOR=kvm\n");
    driver.finish();
    let mut driver =
        Driver::start("-r 0 -t 15 -l kvm", &[("run_probes", script)], "[im]\npull_format = 3.8\n");
    driver.say("MONITOR 3 node3 0");
    assert_eq!(driver.line(), "MONITOR SUCCESS 3 ARCH=x86_64 HYPERVISOR=kvm");
    driver.finish();
}

#[test]
fn every_recorded_message_of_hosts_is_read() {
    let all = include_str!("../corpus/monitord-7.4/datagrams.txt");
    let mut kinds = std::collections::BTreeSet::new();
    for line in all.lines().filter_map(|line| line.strip_prefix("UDP ").or_else(|| line.strip_prefix("TCP ")))
    {
        let message = Message::decode(line.as_bytes()).expect(line);
        kvmad::node::monitor::text::check(&message.text).map_or_else(
            |error| assert_eq!(message.kind.name(), "BEACON_HOST", "{error}: {}", message.text),
            drop,
        );
        kinds.insert(message.kind.name());
    }
    assert!(kinds.len() >= 4, "{kinds:?}");
}
