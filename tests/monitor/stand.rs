//! A host for tests: remotes in a folder of its own, a stand-in for virsh, and a receiver of messages.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvmad::node::monitor::message::{Kind, Message};

/// Everything is waited for this long; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The stand-in: answers from files in the folder FAKE, so that a test can change the host while it runs.
const VIRSH: &str = r#"#!/bin/bash
echo "$*" >> "$FAKE/calls"
[[ "$*" != *event* || ! -e $FAKE/down ]] || exit 1
case "$*" in
    *event*) exec tail -n +1 -s 0.05 -f "$FAKE/events" ;;
esac
if [[ -e $FAKE/hang ]]; then exec sleep 600; fi
if [[ -e $FAKE/down ]]; then echo "error: failed to connect to the hypervisor" >&2; exit 1; fi
case "$*" in
    *dumpxml*) printf '' ;;
    *domstats*) cat "$FAKE/domains" ;;
    *domcapabilities*) echo "<domainCapabilities><cpu><mode name='custom' supported='yes'><model usable='yes'>qemu64</model></mode></cpu></domainCapabilities>" ;;
    *capabilities*) echo "<capabilities><host><cpu><arch>x86_64</arch><model>X</model></cpu></host><guest><arch name='x86_64'><machine>pc</machine><domain type='kvm'/></arch></guest></capabilities>" ;;
    *cpu-baseline*) cat > /dev/null; echo "<cpu><feature policy='require' name='vme'/></cpu>" ;;
    *version*) echo "Using library: libvirt 9.0.0" ;;
esac
"#;

/// A host.
pub struct Stand {
    dir: tempfile::TempDir,
    pub id: i64,
    pub receiver: Receiver,
    key: String,
    env: Vec<(String, String)>,
}

/// A domain: number of the VM, libvirt's state and reason.
pub type Domain = (u32, u32, u32);

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn uuid(vm: u32) -> String {
    format!("00000000-0000-4000-8000-{vm:012}")
}

impl Stand {
    pub fn new(id: i64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let helper = dir.path().join("one/kvmad").join(std::env::consts::ARCH);
        for folder in ["fake", "bin", "one"] {
            fs::create_dir_all(dir.path().join(folder)).expect("made");
        }
        fs::create_dir_all(&helper).expect("made");
        copy(&repository.join("remotes/im"), &dir.path().join("one/im"));
        fs::copy(env!("CARGO_BIN_EXE_kvmad-node"), helper.join("kvmad-node")).expect("copied");
        executable(&dir.path().join("bin/virsh"), VIRSH);
        fs::write(dir.path().join("fake/events"), "").expect("written");
        let env = vec![
            ("FAKE".to_owned(), dir.path().join("fake").display().to_string()),
            (
                "PATH".to_owned(),
                format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", dir.path().join("bin").display()),
            ),
        ];
        let stand = Self { dir, id, receiver: Receiver::start(), key: String::new(), env };
        stand.domains(&[]);
        stand
    }

    pub fn with_key(mut self, pem: &str) -> Self {
        pem.clone_into(&mut self.key);
        self
    }

    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What libvirt shows from now on.
    pub fn domains(&self, all: &[Domain]) {
        let mut text = String::new();
        for (vm, state, reason) in all {
            text.push_str(&format!("Domain: 'one-{vm}'\n  state.state={state}\n  state.reason={reason}\n\n"));
        }
        text.push_str("=kvmad=");
        for (vm, ..) in all {
            text.push_str(&format!("{} one-{vm}\n", uuid(*vm)));
        }
        fs::write(self.path("fake/new"), text).expect("written");
        fs::rename(self.path("fake/new"), self.path("fake/domains")).expect("renamed");
    }

    pub fn event(&self, line: &str) {
        let file = fs::OpenOptions::new().append(true).open(self.path("fake/events"));
        file.expect("there").write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    /// `down` or `hang`, on or off.
    pub fn fault(&self, name: &str, on: bool) {
        let path = self.path(&format!("fake/{name}"));
        if on { fs::write(path, "").expect("written") } else { fs::remove_file(path).expect("removed") }
    }

    pub fn config(&self) -> String {
        format!(
            "<MONITOR_CONFIGURATION><DATASTORE_LOCATION>{}</DATASTORE_LOCATION><NETWORK><MONITOR_ADDRESS>127.0.0.1</MONITOR_ADDRESS><PORT>{}</PORT><PUBKEY><![CDATA[{}]]></PUBKEY></NETWORK><PROBES_PERIOD><BEACON_HOST>1</BEACON_HOST><STATE_VM>1</STATE_VM><MONITOR_VM>2</MONITOR_VM><MONITOR_HOST>2</MONITOR_HOST></PROBES_PERIOD><HOST_ID>{}</HOST_ID></MONITOR_CONFIGURATION>",
            self.path("ds").display(),
            self.receiver.port,
            self.key,
            self.id
        )
    }

    pub fn script(&self, name: &str, words: &[&str], stdin: &str) -> Output {
        self.with_stdin(Command::new(self.path("one/im").join(name)).args(words), stdin)
    }

    /// Runs a command in the environment of this host.
    pub fn with_stdin(&self, command: &mut Command, stdin: &str) -> Output {
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        // One that refuses at once does not read it.
        let _ = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
        child.wait_with_output().expect("ended")
    }

    pub fn start(&self) -> Output {
        self.script("run_monitord_client", &["kvm", &self.id.to_string(), "node1"], &self.config())
    }

    pub fn stop(&self) -> Output {
        self.script("stop_monitord_client", &["kvm", &self.id.to_string(), "node1"], &self.config())
    }

    /// Processes of the agent and its children, by their words.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let here = self.dir.path().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("listed").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(&here) {
                found.push((pid, words));
            }
        }
        found
    }

    pub fn agent_pid(&self) -> Option<i32> {
        self.processes().into_iter().find(|(_, words)| words.contains(" monitor agent ")).map(|(pid, _)| pid)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.stop();
        for kind in ["lock", "state", "config", "socket"] {
            let _ = fs::remove_file(format!("/var/tmp/one_db/kvmad/host-{}.{kind}", self.id));
        }
        // What other software reads is that of the agent that started last.
        let config = fs::read_to_string("/var/tmp/one_db/config").unwrap_or_default();
        if config.contains(&format!("<HOST_ID>{}</HOST_ID>", self.id)) {
            for file in ["config", "etc/monitord.conf", ".monitor_client.pid"] {
                let _ = fs::remove_file(format!("/var/tmp/one_db/{file}"));
            }
        }
        // Folders go only when nobody has anything there.
        for folder in ["kvmad", "etc", ""] {
            let _ = fs::remove_dir(format!("/var/tmp/one_db/{folder}"));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("known").is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from).expect("a link"), &to).expect("linked");
        } else if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied");
        }
    }
}

pub fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
}

/// Waits until `look` gives something.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Messages in the order of their arrival, each with its transport.
type Messages = Arc<Mutex<Vec<(&'static str, Vec<u8>)>>>;

/// Takes messages by UDP and TCP on one port.
pub struct Receiver {
    pub port: u16,
    got: Messages,
}

impl Receiver {
    fn start() -> Self {
        let (tcp, udp, port) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = tcp.local_addr().expect("bound").port();
            if let Ok(udp) = UdpSocket::bind(("127.0.0.1", port)) {
                break (tcp, udp, port);
            }
        };
        let got = Arc::new(Mutex::new(Vec::new()));
        let keep = got.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while let Ok(length) = udp.recv(&mut buffer) {
                keep.lock().expect("free").push(("UDP", buffer[..length].to_vec()));
            }
        });
        let keep = got.clone();
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).is_ok() {
                    keep.lock().expect("free").push(("TCP", all));
                }
            }
        });
        Self { port, got }
    }

    pub fn raw(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.got.lock().expect("free").clone()
    }

    /// All messages so far, with how each came. Every one must be readable.
    pub fn messages(&self) -> Vec<(&'static str, Message)> {
        self.raw().into_iter().map(|(by, bytes)| (by, Message::decode(&bytes).expect("a message"))).collect()
    }

    pub fn forget(&self) {
        self.got.lock().expect("free").clear();
    }

    /// Waits for a message of `kind` whose text holds `part`.
    pub fn wait_for(&self, kind: Kind, part: &str) -> Message {
        wait(&format!("{} with {part}", kind.name()), || {
            let all = self.messages();
            all.into_iter().map(|(_, m)| m).find(|m| m.kind == kind && m.text.contains(part))
        })
    }
}
