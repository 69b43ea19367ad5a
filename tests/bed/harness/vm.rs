//! A VM of the bed: its disk and deployment file, the documents of its actions, its domain and its guest's console.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bed;
use super::document::{Document, cdata};
use super::front_end::FrontEnd;
use super::wait_for;

/// A VM with one disk that the test guest boots from. Domain and files go away with it.
#[derive(Debug)]
pub struct Vm {
    /// Its id.
    pub id: u32,
    /// The host where it is, as oned believes.
    pub host: String,
    /// The id that DEPLOY answered.
    pub deploy_id: String,
    /// XML that its template has besides.
    pub more: String,
    /// Bridge of its network card, with the network driver that serves it.
    network: Option<(String, String)>,
    datastore: PathBuf,
    local_file: PathBuf,
    _lock: File,
}

/// A path of the shared storage with the double slash that oned puts behind the datastore location.
pub fn as_oned_writes(path: &Path) -> String {
    let shared = bed::shared_folder().display().to_string();
    path.display().to_string().replacen(&format!("{shared}/"), &format!("{shared}//"), 1)
}

impl Vm {
    /// On shared storage, with a copy of the guest's disk.
    pub fn new(front: &FrontEnd, id: u32, host: &str) -> Self {
        let location = bed::shared_folder().join(format!("bed-{}-{id}", std::process::id()));
        Self::at(front, id, host, &location, None)
    }

    /// The same with a network card on `bridge`, served by network driver `driver`.
    pub fn with_network(front: &FrontEnd, id: u32, host: &str, bridge: &str, driver: &str) -> Self {
        let location = bed::shared_folder().join(format!("bed-{}-{id}", std::process::id()));
        Self::at(front, id, host, &location, Some((bridge.to_owned(), driver.to_owned())))
    }

    fn at(front: &FrontEnd, id: u32, host: &str, location: &Path, network: Option<(String, String)>) -> Self {
        // ids are shared by all who use the bed
        let lock = File::create(bed::folder().join(format!("vm-{id}.lock"))).expect("a lock file");
        lock.lock().expect("a lock");
        let datastore = location.join("0");
        let folder = datastore.join(id.to_string());
        fs::create_dir_all(&folder).expect("a folder on the shared storage");
        let guest = bed::folder().join("guest-cloud/disk.qcow2");
        fs::copy(&guest, folder.join("disk.0")).unwrap_or_else(|e| panic!("{}: {e}", guest.display()));
        let chown = Command::new("chown").args(["-R", "oneadmin:oneadmin"]).arg(location).status();
        assert!(chown.is_ok_and(|status| status.success()), "chown {}", location.display());
        let local_file = front.folder().join(format!("var/vms/{id}/deployment.0"));
        let vm = Self {
            id,
            host: host.to_owned(),
            deploy_id: String::new(),
            more: String::new(),
            network,
            datastore,
            local_file,
            _lock: lock,
        };
        vm.remove_domain();
        let log = vm.console_file(host);
        if log.exists() {
            fs::remove_file(&log).expect("an old console log");
        }
        fs::create_dir_all(vm.local_file.parent().expect("it has one")).expect("a folder of the front-end");
        vm.set_domain(&vm.domain_xml());
        front.give_to_oneadmin();
        vm
    }

    /// Puts an empty disk in the place of the guest: the firmware finds nothing to boot, hears no power button, and costs
    /// next to no CPU.
    pub fn without_guest(self) -> Self {
        let disk = self.folder().join("disk.0");
        let made =
            Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&disk).arg("16M").status();
        assert!(made.is_ok_and(|status| status.success()), "qemu-img {}", disk.display());
        let chown = Command::new("chown").arg("oneadmin:oneadmin").arg(&disk).status();
        assert!(chown.is_ok_and(|status| status.success()), "chown {}", disk.display());
        self
    }

    /// The domain's name.
    pub fn domain(&self) -> String {
        format!("one-{}", self.id)
    }

    /// Its folder in the system datastore.
    pub fn folder(&self) -> PathBuf {
        self.datastore.join(self.id.to_string())
    }

    /// Where SAVE writes to.
    pub fn checkpoint(&self) -> PathBuf {
        self.folder().join("checkpoint")
    }

    fn mac(&self) -> String {
        format!("02:00:0a:4d:{:02x}:{:02x}", (self.id >> 8) & 0xff, self.id & 0xff)
    }

    /// The domain, as mkdom writes it.
    pub fn domain_xml(&self) -> String {
        self.make_domain(true)
    }

    fn make_domain(&self, with_network: bool) -> String {
        let mut command = Command::new(bed::programs().join("mkdom"));
        command.arg(self.domain()).arg("kvm").arg(self.folder().join("disk.0"));
        command.env("SYSTEM_DATASTORE", self.folder());
        if let Some((bridge, _)) = self.network.as_ref().filter(|_| with_network) {
            command.arg(bridge).arg(self.mac());
        }
        let output = bed::run(command);
        assert!(output.status.success(), "mkdom: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("mkdom writes UTF-8")
    }

    /// Replaces the deployment file on the front-end.
    pub fn set_domain(&self, xml: &str) {
        fs::write(&self.local_file, xml).expect("the deployment file");
    }

    /// The domain without its network card.
    pub fn domain_xml_without_network(&self) -> String {
        self.make_domain(false)
    }

    fn template(&self) -> String {
        let disk = [
            cdata("DISK_ID", "0"),
            cdata("TYPE", "FILE"),
            cdata("FORMAT", "qcow2"),
            cdata("TARGET", "vda"),
            cdata("TM_MAD", "shared"),
        ];
        let nic = self.network.as_ref().map_or(String::new(), |(bridge, driver)| {
            let fields = [
                cdata("BRIDGE", bridge),
                cdata("BRIDGE_TYPE", "linux"),
                cdata("MAC", &self.mac()),
                cdata("MODEL", "virtio"),
                cdata("NETWORK_ID", "0"),
                cdata("NIC_ID", "0"),
                cdata("TARGET", &format!("one-{}-0", self.id)),
                cdata("VN_MAD", driver),
            ];
            format!("<NIC>{}</NIC>", fields.concat())
        });
        let capacity = [cdata("CPU", "0.5"), cdata("MEMORY", "128"), cdata("VCPU", "1")].concat();
        format!("{capacity}<DISK>{}</DISK>{nic}{}", disk.concat(), self.more)
    }

    /// The document that all actions share.
    pub fn document(&self) -> Document {
        Document {
            host: self.host.clone(),
            deploy_id: self.deploy_id.clone(),
            vm: self.id,
            template: self.template(),
            datastore: as_oned_writes(&self.datastore),
            ..Document::default()
        }
    }

    /// DEPLOY's.
    pub fn deploy(&self) -> Document {
        Document {
            deploy_id: String::new(),
            local_file: self.local_file.display().to_string(),
            remote_file: as_oned_writes(&self.folder().join("deployment.0")),
            ..self.document()
        }
    }

    /// SAVE's and RESTORE's.
    pub fn with_checkpoint(&self) -> Document {
        Document { checkpoint: as_oned_writes(&self.checkpoint()), ..self.document() }
    }

    /// CLEANUP's.
    pub fn cleanup(&self) -> Document {
        self.document()
    }

    /// Where the guest's console goes on `host`, as the machine can open it.
    fn console_file(&self, host: &str) -> PathBuf {
        bed::host_path(host, format!("/var/log/libvirt/qemu/{}-serial.log", self.domain()))
    }

    /// All that the guest has said on its host so far.
    pub fn console(&self) -> String {
        fs::read(self.console_file(&self.host))
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// How often the guest has said `text` so far.
    pub fn said(&self, text: &str) -> usize {
        self.console().matches(text).count()
    }

    /// Waits until the guest has said `text` for the `n`th time (from 1) since its VM is there.
    pub fn wait_said(&self, text: &str, n: usize, limit: Duration) {
        let found = wait_for(limit, || (self.said(text) >= n).then_some(()));
        assert!(
            found.is_some(),
            "the guest of VM {} does not say {text:?} {n} times:\n{}",
            self.id,
            self.console()
        );
    }

    /// Types a line into the guest's shell until it has said `answer`, which is not in the line itself. QEMU notices only
    /// after a while that somebody has opened the console.
    pub fn type_until(&self, line: &str, answer: &str) {
        let shell = "tty=$(virsh -q -c qemu:///system ttyconsole \"$1\") && { sleep 2; printf '%s\\n' \"$2\"; sleep 2; } >\"$tty\"";
        let said = (0..20).any(|_| {
            bed::sh(&self.host, &["sh", "-c", shell, "sh", &self.domain(), line]);
            self.said(answer) > 0
        });
        assert!(said, "the guest does not answer {line} with {answer}:\n{}", self.console());
    }

    /// Whether the guest's clock goes on.
    pub fn ticks(&self, limit: Duration) -> bool {
        let before = self.said("TICK ");
        wait_for(limit, || (self.said("TICK ") > before).then_some(())).is_some()
    }

    /// libvirt's state of the domain; `None` when there is no such domain.
    pub fn state(&self) -> Option<String> {
        bed::virsh(&self.host, &["domstate", &self.domain()])
    }

    /// Whether the domain is gone, after at most `limit`.
    pub fn gone(&self, limit: Duration) -> bool {
        wait_for(limit, || self.state().is_none().then_some(())).is_some()
    }

    fn remove_domain(&self) {
        for host in bed::NODES.iter().chain([&bed::DIFFICULT]) {
            let domain = self.domain();
            if bed::virsh(host, &["domstate", &domain]).is_some() {
                bed::virsh(host, &["destroy", &domain]);
                bed::virsh(host, &["undefine", "--snapshots-metadata", &domain]);
            }
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::env::var_os("KVMAD_KEEP").is_some() {
            return;
        }
        self.remove_domain();
        for host in bed::NODES.iter().chain([&bed::DIFFICULT]) {
            let _ = fs::remove_file(self.console_file(host));
        }
        if let Some(location) = self.datastore.parent() {
            let _ = fs::remove_dir_all(location);
        }
    }
}
