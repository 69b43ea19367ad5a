//! On the test bed: `one_im_ssh` starts the agent on a real libvirt host over real ssh, as `onemonitord` has it done.

mod attributes;
mod eras;
mod faults;
mod guests;
mod receiver;
mod states;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kvmad::node::monitor::message::{Kind, pack, unpack};

use crate::harness::bed;
use crate::harness::conversation::Line;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use receiver::Receiver;

/// Everything is waited for this long; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Periods (seconds) of a test that waits for messages of every kind.
const SHORT: &str =
    "BEACON_HOST=3 SYSTEM_HOST=600 MONITOR_HOST=3 STATE_VM=3 EXEC_VM=3 MONITOR_VM=3 SYNC_STATE_VM=600";

/// A host that is monitored while this lives.
struct Monitored {
    host: &'static str,
    id: u32,
    receiver: Receiver,
    driver: Driver,
    front: FrontEnd,
    key: String,
    periods: &'static str,
}

impl Monitored {
    /// A front-end with its driver and a receiver; nothing is started yet. `settings` is section `[agent]` of kvmad.conf.
    fn new(host: &'static str, id: u32, periods: &'static str, settings: &str) -> Self {
        Self::with_key(host, id, periods, settings, None)
    }

    /// The same, with messages encrypted for a key: (private, public).
    fn with_key(
        host: &'static str,
        id: u32,
        periods: &'static str,
        settings: &str,
        key: Option<(&str, &str)>,
    ) -> Self {
        let front = FrontEnd::staged();
        if !settings.is_empty() {
            front.put("var/remotes/etc/kvmad.conf", 0o644, &format!("[agent]\n{settings}"));
        }
        let receiver = Receiver::start(key.map(|(private, _)| private));
        let driver = im_driver(&front, "-r 0 -t 15 -w 90 kvm");
        let key = key.map_or_else(String::new, |(_, public)| public.to_owned());
        Self { host, id, receiver, driver, front, key, periods }
    }

    /// The recorded request of OpenNebula 7.4, for this host, this receiver and these periods.
    fn request(&self, verb: &str) -> String {
        let document = recorded_document();
        let mut document = document
            .replacen(
                "<ID>0</ID><NAME>host1</NAME>",
                &format!("<ID>{}</ID><NAME>{}</NAME>", self.id, self.host),
                1,
            )
            .replacen("<IM_MAD><![CDATA[dummy]]>", "<IM_MAD><![CDATA[kvm]]>", 1)
            .replacen("<MONITOR_ADDRESS><![CDATA[127.0.0.1]]>", "<MONITOR_ADDRESS><![CDATA[auto]]>", 1)
            .replacen("<PORT><![CDATA[4124]]>", &format!("<PORT><![CDATA[{}]]>", self.receiver.port), 1)
            .replacen("<PUBKEY><![CDATA[]]>", &format!("<PUBKEY><![CDATA[{}]]>", self.key), 1);
        for (name, seconds) in self.periods.split(' ').filter_map(|pair| pair.split_once('=')) {
            let open = format!("<{name}><![CDATA[");
            let at = document.find(&open).expect(name) + open.len();
            let end = at + document[at..].find(']').expect("closed");
            document.replace_range(at..end, seconds);
        }
        format!("{verb} - {} 0 {}", self.id, pack(document.as_bytes()))
    }

    /// START_MONITOR and its reply.
    fn ask_start(&mut self) -> Line {
        let before = self.driver.conversation.replies("START_MONITOR", self.id);
        let request = self.request("START_MONITOR");
        self.driver.line(&request);
        self.driver.conversation.reply("START_MONITOR", self.id, before, PATIENCE)
    }

    /// START_MONITOR, which must succeed; gives the parts of its document by kind.
    fn start(&mut self) -> BTreeMap<Kind, String> {
        let line = self.ask_start();
        assert!(line.succeeded(), "{}\n{}", line.raw, self.driver.conversation.text());
        let (stamp, packed) = line.info.split_once(' ').expect("a time and a payload");
        assert!(stamp.parse::<u64>().is_ok(), "{stamp}");
        let document = String::from_utf8(unpack(packed).expect("packed")).expect("text");
        parts(&document)
    }

    fn stop(&mut self) {
        let before = self.driver.conversation.replies("STOP_MONITOR", self.id);
        let request = self.request("STOP_MONITOR");
        self.driver.line(&request);
        let line = self.driver.conversation.reply("STOP_MONITOR", self.id, before, PATIENCE);
        assert!(line.succeeded(), "{}", line.raw);
    }

    /// The agent's process, as the host numbers it.
    fn agent(&self) -> Option<u32> {
        let pid = fs::read_to_string(self.state_file("lock")).ok()?.trim().to_owned();
        let words = fs::read(bed::host_path(self.host, format!("/proc/{pid}/cmdline"))).ok()?;
        String::from_utf8_lossy(&words).contains("agent").then(|| pid.parse().ok())?
    }

    /// A file of the agent on its host.
    fn state_file(&self, kind: &str) -> PathBuf {
        bed::host_path(self.host, format!("/var/tmp/one_db/kvmad/host-{}.{kind}", self.id))
    }

    /// The agent's own status.
    fn status(&self) -> serde_json::Value {
        let helper = format!("{}/kvmad/{}/kvmad-node", self.front.remotes(), std::env::consts::ARCH);
        let mut command = bed::as_oneadmin(self.host);
        command.args([&helper, "status", "--host-id", &self.id.to_string()]);
        let output = bed::run(command);
        serde_json::from_slice(&output.stdout).unwrap_or(serde_json::Value::Null)
    }
}

impl Drop for Monitored {
    fn drop(&mut self) {
        // Also after a failure: the agent must not outlive its remotes.
        let script = format!("{}/im/stop_monitord_client", self.front.remotes());
        let mut command = bed::as_oneadmin(self.host);
        command.args([&script, "kvm", &self.id.to_string(), self.host]);
        bed::run(command);
        for kind in ["lock", "state", "config", "socket"] {
            let _ = fs::remove_file(self.state_file(kind));
        }
    }
}

/// An IM driver that has answered INIT.
fn im_driver(front: &FrontEnd, arguments: &str) -> Driver {
    let mut driver = Driver::start(front, "one_im_ssh", arguments);
    driver.line("INIT");
    let first = driver.conversation.wait(PATIENCE, |lines| lines.first().cloned()).expect("a reply to INIT");
    assert!(first.raw.starts_with("INIT SUCCESS") && first.raw.len() < 31, "{}", first.raw);
    driver
}

/// The document of the recorded START_MONITOR for host 0.
fn recorded_document() -> String {
    let all = include_str!("../../corpus/monitord-7.4/driver-conversation.txt");
    let line = all.lines().find_map(|line| line.strip_prefix("> START_MONITOR - 0 0 ")).expect("recorded");
    String::from_utf8(unpack(line).expect("packed")).expect("text")
}

/// The parts of a first reply. It must have the form that `onemonitord` 7.4 reads.
fn parts(document: &str) -> BTreeMap<Kind, String> {
    let tree = kvmad::template::xml::Document::parse(document.to_owned()).expect("well-formed");
    assert_eq!(tree.root().name(), "MONITOR_MESSAGES");
    let stamp = tree.root().filled("TIMESTAMP").expect("a time");
    assert!(stamp.parse::<u64>().is_ok(), "{stamp}");
    let text = |kind: Kind| {
        let packed = tree.root().filled(kind.name()).unwrap_or_default();
        (kind, String::from_utf8(STANDARD.decode(packed).expect("base64, not packed")).expect("text"))
    };
    [Kind::System, Kind::Host, Kind::State, Kind::Exec, Kind::Vm].into_iter().map(text).collect()
}

/// A domain of the bed that stays paused: it costs no CPU. It goes away with this.
struct Paused {
    host: &'static str,
    name: String,
    uuid: String,
}

impl Paused {
    fn create(host: &'static str, name: &str) -> Self {
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let xml = format!(
            "<domain type='qemu'><name>{escaped}</name><memory unit='KiB'>32768</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os><features><acpi/></features><devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"
        );
        let file = bed::host_path(host, format!("/tmp/kvmad-{}-{}.xml", std::process::id(), name.len()));
        fs::write(&file, xml).expect("a file on the host");
        let inside = format!("/tmp/{}", file.file_name().expect("it has one").display());
        let created = bed::virsh(host, &["create", "--paused", &inside]);
        let _ = fs::remove_file(file);
        assert!(created.is_some(), "{name:?} can't be created on {host}");
        let uuid = bed::virsh(host, &["domuuid", "--domain", name]).expect("it is there");
        Self { host, name: name.to_owned(), uuid }
    }

    /// Its QEMU, as the machine numbers it.
    fn emulator(&self) -> u32 {
        emulator(self.host, &self.uuid)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        bed::virsh(self.host, &["destroy", "--domain", &self.uuid]);
    }
}

/// The QEMU of the domain with this UUID, as the machine numbers it.
fn emulator(host: &str, uuid: &str) -> u32 {
    let all = crate::harness::processes::of_host(host);
    let its = |process: &&crate::harness::processes::Process| {
        process.arguments.windows(2).any(|pair| pair[0] == "-uuid" && pair[1] == uuid)
    };
    all.values().find(its).unwrap_or_else(|| panic!("{uuid} has no QEMU on {host}")).pid
}
