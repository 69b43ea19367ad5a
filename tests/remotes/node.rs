//! A host of the test bed with remotes of its own, and guests on it. See `tests/testbed/up`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Ended;

/// Where the test bed lies (`TB`, as in tests/testbed/lib.sh).
pub fn bed() -> PathBuf {
    std::env::var_os("TB").map_or_else(|| PathBuf::from("/srv/kvmad-testbed"), PathBuf::from)
}

const DISK: &[&str] = &["guest-cloud/disk.qcow2", "guest-gen/disk.qcow2"];

/// Who calls the scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Arguments as they are, as our driver does it.
    Ours,
    /// Over ssh through a remote shell, stdin in a here-document, as OpenNebula's own driver does it.
    OpenNebula,
}

pub struct Node {
    name: &'static str,
    folder: String,
    /// The right to use the bed beside others; those who stop libvirtd or cut networks wait for its end.
    _use: std::fs::File,
}

impl Node {
    /// `name` with the remotes of this repository in a folder for `id` alone.
    pub fn new(name: &'static str, id: u32) -> Self {
        let lock = std::fs::File::create(bed().join("use.lock")).expect("the test bed: tests/testbed/up");
        lock.lock_shared().expect("a lock");
        let node = Self { name, folder: format!("/var/tmp/one-remotes-{id}"), _use: lock };
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = &node.folder;
        let fresh = format!(
            "rm -rf {folder} && mkdir {folder} && tar -x -C {folder} && mkdir -p {folder}/kvmad/x86_64"
        );
        let tar =
            Command::new("tar").arg("-c").arg("-C").arg(here.join("remotes")).arg(".").output().expect("tar");
        node.oneadmin(&fresh, &tar.stdout).good();
        let helper = std::fs::read(helper()).expect("kvmad-node");
        let target = format!("{folder}/kvmad/{}/kvmad-node", std::env::consts::ARCH);
        node.oneadmin(&format!("cat >{target} && chmod 755 {target}"), &helper).good();
        node
    }

    /// Runs shell as root.
    pub fn root(&self, shell: &str) -> Ended {
        feed(Command::new(bed().join("on")).args([self.name, "bash", "-c", shell]), b"")
    }

    /// Runs shell as oneadmin.
    pub fn oneadmin(&self, shell: &str, stdin: &[u8]) -> Ended {
        feed(
            Command::new(bed().join("on"))
                .args([self.name, "sudo", "-u", "oneadmin", "-H", "bash", "-c", shell]),
            stdin,
        )
    }

    /// `virsh` with these words.
    pub fn virsh(&self, words: &str) -> Ended {
        self.oneadmin(&format!("virsh -q -c qemu:///system {words}"), b"")
    }

    pub fn has(&self, domain: &str) -> bool {
        self.virsh("list --all --name").good().lines().any(|line| line == domain)
    }

    pub fn kvmrc(&self, line: &str) {
        self.oneadmin(&format!("cat >>{}/etc/vmm/kvm/kvmrc", self.folder), format!("{line}\n").as_bytes())
            .good();
    }

    /// Calls a script of the remotes with a VM's arguments; VM and host come behind them.
    pub fn call(&self, caller: Caller, script: &str, args: &[&str], stdin: &str) -> Ended {
        let path = format!("{}/{script}", self.folder);
        match caller {
            Caller::Ours => {
                let mut command = Command::new(bed().join("on"));
                command.args([self.name, "sudo", "-u", "oneadmin", "-H", &path]).args(args);
                feed(&mut command, stdin.as_bytes())
            }
            Caller::OpenNebula => {
                let (own, last) = args.split_at(args.len().saturating_sub(2));
                let mut line = path.clone();
                for word in own {
                    line.push_str(&format!(" '{word}'"));
                }
                for word in last {
                    line.push_str(&format!(" {word}"));
                }
                let text = format!(
                    "if [ -x \"{path}\" ]; then exit_code=0; else exit 42; fi\n\
                     (cat << 'EOT' | {line}); echo \"ExitCode: $? EOF_ERR\" 1>&2; echo \"EOF_OUT\"\n{stdin}\nEOT\n"
                );
                let mut ssh = Command::new(bed().join("on"));
                ssh.args(["fe", "sudo", "-u", "oneadmin", "-H", "ssh", "-q", self.name, "bash", "-s"]);
                taken_apart(feed(&mut ssh, text.as_bytes()))
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.oneadmin(&format!("rm -rf {}", self.folder), b"");
    }
}

/// What the sentinels of OpenNebula's driver say.
fn taken_apart(ended: Ended) -> Ended {
    let stdout = ended.stdout.strip_suffix("EOF_OUT\n").expect("the end of stdout").to_owned();
    let (stderr, end) = ended.stderr.rsplit_once("ExitCode: ").expect("an exit code");
    let status = end.split(' ').next().and_then(|code| code.parse().ok());
    Ended { status, stdout, stderr: stderr.to_owned() }
}

fn feed(command: &mut Command, stdin: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test bed: tests/testbed/up");
    let mut pipe = child.stdin.take().expect("stdin");
    let bytes = stdin.to_vec();
    // A program that does not read its stdin closes it.
    let feeder = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    let output = child.wait_with_output().expect("an end");
    feeder.join().expect("a feeder");
    Ended::of(&output)
}

/// The static helper of a staged front-end, else the one cargo built for these tests.
fn helper() -> std::path::PathBuf {
    let staged = std::env::var("KVMAD_STAGE").map(|stage| {
        Path::new(&stage).join("var/remotes/kvmad").join(std::env::consts::ARCH).join("kvmad-node")
    });
    match staged {
        Ok(path) if path.exists() => path,
        _ => env!("CARGO_BIN_EXE_kvmad-node").into(),
    }
}

/// Kernel and first disk of a guest in which Debian's qemu-guest-agent runs.
pub fn guest_with_agent() -> tempfile::TempDir {
    let out = tempfile::tempdir().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guest = DISK.iter().filter_map(|disk| bed().join(disk).parent().map(Path::to_path_buf));
    let guest = guest.into_iter().find(|folder| folder.join("initrd.img").exists()).expect("a guest");
    let made = Command::new(here.join("tests/remotes/guest-with-agent")).arg(guest).arg(out.path()).output();
    let made = made.expect("guest-with-agent");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    out
}

/// A VM on a node: its folder with a disk, its domain. Gone when dropped.
pub struct Vm<'a> {
    pub node: &'a Node,
    pub caller: Caller,
    pub id: u32,
    pub name: String,
    pub folder: String,
    /// Further devices.
    pub devices: String,
}

impl<'a> Vm<'a> {
    pub fn new(node: &'a Node, caller: Caller, id: u32) -> Self {
        let vm = Self {
            node,
            caller,
            id,
            name: format!("one-{id}"),
            folder: format!("/var/lib/one/datastores/0/{id}"),
            devices: String::new(),
        };
        vm.remove();
        let disk = DISK.iter().map(|disk| bed().join(disk)).find(|path| path.exists()).expect("a guest");
        let disk = std::fs::read(disk).expect("a disk");
        node.oneadmin(&format!("mkdir -p {0} && cat >{0}/disk.0", vm.folder), &disk).good();
        vm
    }

    fn remove(&self) {
        let console = self.console_file();
        self.node.root(&format!(
            "virsh -q -c qemu:///system destroy {} 2>/dev/null; rm -rf /var/lib/one/datastores/*/{} {console}",
            self.name, self.id
        ));
    }

    fn console_file(&self) -> String {
        format!("/var/log/libvirt/qemu/{}-serial.log", self.name)
    }

    /// The domain, disk.0 as vda, in the words that the core writes.
    pub fn domain(&self) -> String {
        format!(
            "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n<name>{0}</name>\n<cputune><shares>100</shares></cputune>\
             <vcpu><![CDATA[1]]></vcpu><memory>131072</memory><os><type arch='x86_64'>hvm</type><boot dev='hd'/></os>\
             <devices><emulator><![CDATA[/usr/bin/qemu-system-x86_64]]></emulator>\
             <disk type='file' device='disk'><source file='{1}/disk.0'/><target dev='vda'/><driver name='qemu' type='qcow2' cache='none'/></disk>\
             <controller type='scsi' index='0' model='virtio-scsi'/></devices><features><acpi/></features>\
             <devices><serial type='pty'><log file='{2}' append='on'/><target port='0'/></serial>\
             <console type='pty'><target type='serial' port='0'/></console>{3}</devices>\
             <metadata><one:vm xmlns:one=\"http://opennebula.org/xmlns/libvirt/1.0\"><one:system_datastore><![CDATA[{1}]]></one:system_datastore></one:vm></metadata></domain>\n",
            self.name,
            self.folder,
            self.console_file(),
            self.devices
        )
    }

    fn own<'b>(&'b self, args: &[&'b str], last: &'b [String; 2]) -> Vec<&'b str> {
        args.iter().copied().chain(last.iter().map(String::as_str)).collect()
    }

    /// Calls `vmm/kvm/SCRIPT` with these arguments and the action as its stdin.
    pub fn call(&self, script: &str, args: &[&str]) -> Ended {
        self.call_with(script, args, &action())
    }

    pub fn call_with(&self, script: &str, args: &[&str], stdin: &str) -> Ended {
        let last = [self.id.to_string(), self.node.name.to_owned()];
        self.node.call(self.caller, &format!("vmm/kvm/{script}"), &self.own(args, &last), stdin)
    }

    /// Starts it and gives its uuid.
    pub fn deploy(&self) -> Ended {
        let file = format!("{}/deployment.0", self.folder);
        self.call_with("deploy", &[&file, self.node.name], &self.domain())
    }

    pub fn console(&self) -> String {
        self.node.root(&format!("cat {} 2>/dev/null", self.console_file())).stdout
    }

    /// Waits until the guest has printed `text` `times` times.
    #[track_caller]
    pub fn await_console(&self, text: &str, times: usize) {
        let start = Instant::now();
        while self.console().matches(text).count() < times {
            assert!(
                start.elapsed() < Duration::from_secs(240),
                "the guest did not print {text}: {}",
                self.console()
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    pub fn state(&self) -> String {
        self.node
            .oneadmin(&format!("LC_ALL=C virsh -q -c qemu:///system domstate {} 2>/dev/null", self.name), b"")
            .stdout
            .trim()
            .to_owned()
    }

    pub fn exists(&self, file: &str) -> bool {
        self.node.root(&format!("test -e {}/{file}", self.folder)).status == Some(0)
    }
}

impl Drop for Vm<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

pub fn action() -> String {
    "<VMM_DRIVER_ACTION_DATA><DATASTORE><TM_MAD>shared</TM_MAD></DATASTORE></VMM_DRIVER_ACTION_DATA>"
        .to_owned()
}
