//! A VM that migrates: its disk on shared storage or on its host alone, the documents of its actions, its snapshots, and
//! where it really runs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::console::{self, Heartbeat, Stay, heartbeat, stitched};
use crate::harness::conversation::Line;
use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, wait_for};

/// A guest boots in 5 s under emulation when nothing else runs.
pub const BOOT: Duration = Duration::from_secs(180);
/// Deadline of an action.
pub const ACTION: Duration = Duration::from_secs(150);

/// Where its files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One folder that both hosts see.
    Shared,
    /// A folder of each host.
    Local,
}

/// Domain and files go away with it.
#[derive(Debug)]
pub struct Guest {
    /// Its id.
    pub id: u32,
    /// Where its files are.
    pub storage: Storage,
    /// The host where it is, as oned believes.
    pub host: String,
    /// The id that DEPLOY answered.
    pub deploy_id: String,
    /// More of its FEATURES.
    pub features: Vec<(String, String)>,
    cdrom: bool,
    second_disk: bool,
    firmware: bool,
    datastore: PathBuf,
    local_file: PathBuf,
    stays: Vec<Stay>,
    _lock: File,
}

fn done(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn give(path: &Path) {
    done(Command::new("chown").args(["-R", "oneadmin:oneadmin"]).arg(path));
}

/// Names and sizes of the files in a folder; nothing when there is no folder.
fn files(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.metadata().ok()?.len())))
        .collect()
}

impl Guest {
    /// Makes it, with a copy of the test guest's disk; it does not run yet.
    pub fn new(front: &FrontEnd, id: u32, host: &str, storage: Storage, cdrom: bool) -> Self {
        // ids are shared by all who use the bed
        let lock = File::create(bed::folder().join(format!("vm-{id}.lock"))).expect("a lock file");
        lock.lock().expect("a lock");
        let base = match storage {
            Storage::Shared => bed::shared_folder(),
            Storage::Local => PathBuf::from("/var/lib/one/datastores"),
        };
        let datastore = base.join(format!("migrate-{}-{id}", std::process::id())).join("0");
        let local_file = front.folder().join(format!("var/vms/{id}/deployment.0"));
        let guest = Self {
            id,
            storage,
            host: host.to_owned(),
            deploy_id: String::new(),
            features: Vec::new(),
            cdrom,
            second_disk: false,
            firmware: false,
            datastore,
            local_file,
            stays: vec![Stay { host: host.to_owned(), from: 0 }],
            _lock: lock,
        };
        guest.remove_domain();
        for node in bed::NODES {
            let _ = fs::remove_file(console::log(&guest.domain(), node));
        }
        let folder = guest.on_machine(host);
        fs::create_dir_all(&folder).expect("a folder for the VM");
        let disk = bed::folder().join("guest-cloud/disk.qcow2");
        fs::copy(&disk, folder.join("disk.0")).unwrap_or_else(|e| panic!("{}: {e}", disk.display()));
        if cdrom {
            fs::write(folder.join("context.sh"), "ETH0_IP='10.0.0.1'\n").expect("a file");
            let mut iso = Command::new("genisoimage");
            iso.args(["-quiet", "-V", "CONTEXT", "-o"])
                .arg(folder.join("disk.1"))
                .arg(folder.join("context.sh"));
            done(&mut iso);
            fs::remove_file(folder.join("context.sh")).expect("a file");
        }
        give(folder.ancestors().nth(2).expect("it has them"));
        if storage == Storage::Local {
            // what premigrate of OpenNebula's ssh driver leaves on the target
            for node in bed::NODES {
                let above = bed::host_path(node, &guest.datastore);
                fs::create_dir_all(&above).expect("a folder of the host");
                give(&bed::host_path(node, &base));
            }
        }
        fs::create_dir_all(guest.local_file.parent().expect("it has one"))
            .expect("a folder of the front-end");
        fs::write(&guest.local_file, guest.domain_xml()).expect("the deployment file");
        front.give_to_oneadmin();
        guest
    }

    /// With a second disk that it writes, vdb, in the file disk.2.
    #[must_use]
    pub fn with_second_disk(mut self) -> Self {
        self.second_disk = true;
        let file = self.on_machine(&self.host).join("disk.2");
        done(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&file).arg("48M"));
        give(&file);
        fs::write(&self.local_file, self.domain_xml()).expect("the deployment file");
        self
    }

    /// With UEFI firmware, which keeps its variables in [`Guest::variables`]. It does not boot its disk then.
    #[must_use]
    pub fn with_firmware(mut self) -> Self {
        self.firmware = true;
        fs::write(&self.local_file, self.domain_xml()).expect("the deployment file");
        self
    }

    /// Name of the file in which the firmware keeps its variables.
    pub fn variables(&self) -> String {
        format!("{}_VARS.fd", self.domain())
    }

    /// Name of its domain.
    pub fn domain(&self) -> String {
        format!("one-{}", self.id)
    }

    /// Its folder, as the hosts see it.
    pub fn folder(&self) -> PathBuf {
        self.datastore.join(self.id.to_string())
    }

    /// The same of `host`, as the machine can open it.
    pub fn on_machine(&self, host: &str) -> PathBuf {
        match self.storage {
            Storage::Shared => self.folder(),
            Storage::Local => bed::host_path(host, self.folder()),
        }
    }

    /// The other host.
    pub fn other(&self) -> &'static str {
        if self.host == bed::NODES[0] { bed::NODES[1] } else { bed::NODES[0] }
    }

    /// The domain, as oned would write it.
    pub fn domain_xml(&self) -> String {
        let mut command = Command::new(bed::programs().join("mkdom"));
        command.arg(self.domain()).arg("kvm").arg(self.folder().join("disk.0"));
        command.env("SYSTEM_DATASTORE", self.folder());
        let output = bed::run(command);
        assert!(output.status.success(), "mkdom: {}", String::from_utf8_lossy(&output.stderr));
        let mut xml = String::from_utf8(output.stdout).expect("mkdom writes UTF-8");
        if self.firmware {
            let firmware = format!(
                "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader><nvram>{}</nvram><boot",
                self.folder().join(self.variables()).display()
            );
            xml = xml.replacen("<boot", &firmware, 1);
        }
        if self.second_disk {
            let disk = format!(
                "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/><source file='{}'/><target dev='vdb' bus='virtio'/></disk>\n    <controller",
                self.folder().join("disk.2").display()
            );
            xml = xml.replacen("<controller", &disk, 1);
        }
        if !self.cdrom {
            return xml;
        }
        let cdrom = format!(
            "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{}'/><target dev='hda'/><readonly/></disk>\n    <controller",
            self.folder().join("disk.1").display()
        );
        xml.replacen("<controller", &cdrom, 1)
    }

    fn template(&self) -> String {
        let disk = |id: &str, kind: &str, target: &str| {
            let fields = [
                cdata("DISK_ID", id),
                cdata("TYPE", kind),
                cdata("FORMAT", if kind == "CDROM" { "raw" } else { "qcow2" }),
                cdata("TARGET", target),
                cdata("TM_MAD", "kept"),
            ];
            format!("<DISK>{}</DISK>", fields.concat())
        };
        let features: String = self.features.iter().map(|(name, value)| cdata(name, value)).collect();
        let cdrom = if self.cdrom { disk("1", "CDROM", "hda") } else { String::new() };
        let second = if self.second_disk { disk("2", "FILE", "vdb") } else { String::new() };
        let capacity = [cdata("CPU", "0.5"), cdata("MEMORY", "128"), cdata("VCPU", "1")].concat();
        format!("{capacity}{}{cdrom}{second}<FEATURES>{features}</FEATURES>", disk("0", "FILE", "vda"))
    }

    /// The document that all actions share.
    pub fn document(&self) -> Document {
        Document {
            host: self.host.clone(),
            deploy_id: self.deploy_id.clone(),
            vm: self.id,
            template: self.template(),
            datastore: self.datastore.display().to_string(),
            local_storage: self.storage == Storage::Local,
            ..Document::default()
        }
    }

    /// MIGRATE's, to `target`.
    pub fn migration(&self, target: &str) -> Document {
        let folder = self.folder().display().to_string();
        let driver = match self.storage {
            Storage::Shared => "kept",
            Storage::Local => "moved",
        };
        Document {
            migr_host: target.to_owned(),
            tm_command: format!("MIGRATE {driver} {} {target} {folder} {} 0", self.host, self.id),
            disk_path: folder,
            ..self.document()
        }
    }

    /// Its folder in another datastore.
    pub fn folder_elsewhere(&self) -> PathBuf {
        let location = self.datastore.parent().expect("it has one");
        let other = if self.datastore.ends_with("0") { "1" } else { "0" };
        location.join(other).join(self.id.to_string())
    }

    /// MIGRATE's, to another datastore of `target`, which may be the host where it is. Nothing is removed by the transfer
    /// manager.
    pub fn migration_elsewhere(&self, target: &str) -> Document {
        let folder = self.folder_elsewhere().display().to_string();
        Document {
            migr_host: target.to_owned(),
            tm_command: format!("MIGRATE kept {} {target} {folder} {} 1", self.host, self.id),
            disk_path: folder,
            ..self.document()
        }
    }

    /// It is in the other datastore now.
    pub fn changed_datastore(&mut self) {
        self.datastore = self.folder_elsewhere().parent().expect("it has one").to_path_buf();
    }

    /// File of each disk, as libvirt tells where it is, by its name in the guest.
    pub fn disks_in_use(&self) -> BTreeMap<String, String> {
        let list = bed::virsh(&self.host, &["domblklist", &self.domain()]).expect("a list of disks");
        let pair = |line: &str| line.trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.trim().to_owned()));
        list.lines().filter_map(pair).collect()
    }

    /// DEPLOY, until the guest is ready.
    pub fn boot(&mut self, driver: &mut Driver) {
        self.start(driver);
        let ticks = || self.console().contains("TICK 2 ").then_some(());
        assert!(wait_for(BOOT, ticks).is_some(), "the guest does not come up:\n{}", self.console());
    }

    /// DEPLOY.
    pub fn start(&mut self, driver: &mut Driver) {
        let document = Document {
            deploy_id: String::new(),
            local_file: self.local_file.display().to_string(),
            remote_file: self.folder().join("deployment.0").display().to_string(),
            ..self.document()
        };
        let reply = driver.ask("DEPLOY", self.id, &document.payload(), ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
        self.deploy_id = reply.info.trim().to_owned();
    }

    /// A snapshot, by the driver's action.
    pub fn snapshot(&self, driver: &mut Driver, number: u32) {
        let snapshot =
            [cdata("SNAPSHOT_ID", &number.to_string()), cdata("ACTIVE", "YES"), cdata("NAME", "kept")];
        let template = format!("{}<SNAPSHOT>{}</SNAPSHOT>", self.template(), snapshot.concat());
        let document = Document { template, ..self.document() };
        let reply = driver.ask("SNAPSHOTCREATE", self.id, &document.payload(), ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    }

    /// Goes back to a snapshot, by the driver's action.
    pub fn revert(&self, driver: &mut Driver, number: u32) {
        let name = format!("snap-{number}");
        let snapshot = [
            cdata("SNAPSHOT_ID", &number.to_string()),
            cdata("ACTIVE", "YES"),
            cdata("HYPERVISOR_ID", &name),
        ];
        let template = format!("{}<SNAPSHOT>{}</SNAPSHOT>", self.template(), snapshot.concat());
        let document = Document { template, ..self.document() };
        let reply = driver.ask("SNAPSHOTREVERT", self.id, &document.payload(), ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    }

    /// Names of the snapshots that libvirt knows where the guest is.
    pub fn snapshots(&self) -> Vec<String> {
        let names = bed::virsh(&self.host, &["snapshot-list", "--name", "--topological", &self.domain()]);
        let names = names.unwrap_or_else(|| panic!("no snapshots of {} on {}", self.domain(), self.host));
        names.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Sends MIGRATE. [`Guest::went`] tells how it ended.
    pub fn leave(&self, driver: &mut Driver, target: &str) -> Leaving {
        self.leave_as(driver, &self.migration(target))
    }

    /// The same with a document of the test's.
    pub fn leave_as(&self, driver: &mut Driver, document: &Document) -> Leaving {
        let leaving = self.leaving(&document.migr_host, driver.conversation.replies("MIGRATE", self.id));
        driver.send("MIGRATE", self.id, &document.payload());
        leaving
    }

    /// What is to be known before it goes to `target`: where its words will begin there, and how many replies there were.
    pub fn leaving(&self, target: &str, replies: usize) -> Leaving {
        let log = console::length(&self.domain(), target);
        Leaving { target: target.to_owned(), log, replies, at: Instant::now() }
    }

    /// Waits for the reply, and knows from then on where the guest is as oned does.
    pub fn went(&mut self, driver: &Driver, leaving: &Leaving, limit: Duration) -> Line {
        let reply = driver.conversation.reply("MIGRATE", self.id, leaving.replies, limit);
        if reply.succeeded() {
            self.arrived(leaving);
        }
        reply
    }

    /// It is on the target now.
    pub fn arrived(&mut self, leaving: &Leaving) {
        self.host.clone_from(&leaving.target);
        self.stays.push(Stay { host: leaving.target.clone(), from: leaving.log });
    }

    /// To the other host; panics unless the driver says that it arrived and everything shows that it did.
    pub fn migrate(&mut self, driver: &mut Driver) -> Duration {
        let leaving = self.leave(driver, self.other());
        let reply = self.went(driver, &leaving, ACTION);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
        self.runs_here_alone().unwrap_or_else(|why| panic!("{why}\n{}", driver.conversation.text()));
        reply.at.duration_since(leaving.at)
    }

    /// libvirt's state of the domain on `host`; `None` when there is no such domain.
    pub fn state(&self, host: &str) -> Option<String> {
        bed::virsh(host, &["domstate", &self.domain()])
    }

    /// Exactly one copy, and that one where oned believes it, running.
    ///
    /// # Errors
    /// Where it is instead.
    pub fn runs_here_alone(&self) -> Result<(), String> {
        let (here, there) = (self.state(&self.host), self.state(self.other()));
        match (here.as_deref(), &there) {
            (Some("running"), None) => Ok(()),
            _ => Err(format!("on {}: {here:?}; on {}: {there:?}", self.host, self.other())),
        }
    }

    /// All that the guest has said, wherever it was.
    pub fn console(&self) -> String {
        stitched(&self.stays, |host| fs::read(console::log(&self.domain(), host)).unwrap_or_default())
    }

    /// Waits for two new ticks and reads the whole heartbeat.
    ///
    /// # Errors
    /// What shows that it is not the same guest that kept running.
    pub fn beats(&self, limit: Duration) -> Result<Heartbeat, String> {
        self.ticks(limit)?;
        heartbeat(&self.console())
    }

    /// Waits for two new ticks, whatever came before.
    ///
    /// # Errors
    /// None come.
    pub fn ticks(&self, limit: Duration) -> Result<(), String> {
        let before = self.console().matches("TICK ").count();
        let goes_on = || (self.console().matches("TICK ").count() >= before + 2).then_some(());
        wait_for(limit, goes_on).ok_or_else(|| format!("the guest does not go on on {}", self.host))
    }

    /// The same; panics with what is wrong.
    pub fn kept_running(&self) -> Heartbeat {
        self.beats(BOOT).unwrap_or_else(|why| panic!("{why}:\n{}", self.console()))
    }

    /// Has the guest's shell run a line.
    pub fn type_line(&self, line: &str) {
        let tty = bed::virsh(&self.host, &["ttyconsole", &self.domain()]).expect("a console");
        let mut command = bed::on(&self.host);
        // QEMU looks once a second whether somebody is there; nothing the guest says may be echoed to it
        let script = "exec 3<>\"$2\"; stty raw -echo <&3; printf '%s\\r' \"$1\" >&3; sleep 2";
        command.args(["sh", "-c", script, "sh", line, &tty]);
        assert!(bed::run(command).status.success(), "{tty} on {}", self.host);
    }

    /// The guest reads its disk past its caches; panics when it can't.
    pub fn reads_its_disk(&self) {
        let before = self.console().matches("records in").count();
        self.type_line("dd if=/dev/vda of=/dev/null bs=64k count=16 iflag=direct");
        let read = || (self.console().matches("16+0 records in").count() > before).then_some(());
        assert!(wait_for(BOOT, read).is_some(), "the guest can't read its disk:\n{}", self.console());
    }

    /// Its files on `host` in the other datastore: names and sizes.
    pub fn files_elsewhere(&self, host: &str) -> BTreeMap<String, u64> {
        match self.storage {
            Storage::Shared => files(&self.folder_elsewhere()),
            Storage::Local => files(&bed::host_path(host, self.folder_elsewhere())),
        }
    }

    /// Its files on `host`: names and sizes.
    pub fn files(&self, host: &str) -> BTreeMap<String, u64> {
        files(&self.on_machine(host))
    }

    fn remove_domain(&self) {
        for host in bed::NODES {
            let domain = self.domain();
            if bed::virsh(host, &["domstate", &domain]).is_some() {
                bed::virsh(host, &["destroy", &domain]);
                bed::virsh(host, &["undefine", "--snapshots-metadata", &domain]);
            }
        }
    }
}

/// A migration that was asked for.
#[derive(Debug)]
pub struct Leaving {
    /// Where to.
    pub target: String,
    /// When it was asked for.
    pub at: Instant,
    log: usize,
    replies: usize,
}

impl Leaving {
    /// How many replies there were before.
    pub const fn replies(&self) -> usize {
        self.replies
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if std::env::var_os("KVMAD_KEEP").is_some() {
            return;
        }
        self.remove_domain();
        for host in bed::NODES {
            let _ = fs::remove_file(console::log(&self.domain(), host));
            if let Some(location) = self.on_machine(host).ancestors().nth(2) {
                let _ = fs::remove_dir_all(location);
            }
        }
    }
}
