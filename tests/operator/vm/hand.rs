//! The operator's hand: a front-end, `kvmad vm` run on it, a folder for VMs on a host, and the guest with cloud-init.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, wait_for};

/// A front-end and a folder for VMs on `host`; both go away with it, and the VMs in it.
#[derive(Debug)]
pub struct Hand {
    pub front: FrontEnd,
    pub host: &'static str,
    /// Folder of the VMs on the host.
    pub images: String,
    settings: Vec<String>,
}

/// What a command printed.
#[derive(Debug)]
pub struct Said {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Hand {
    /// With the folder there, owned by the driver's user.
    pub fn on(host: &'static str) -> Self {
        let front = FrontEnd::staged();
        let tag = front.remotes().trim_start_matches("/var/tmp/one-bed-").to_owned();
        let images = format!("/var/lib/libvirt/images/kvmad-{tag}");
        bed::sh(host, &["install", "-d", "-o", "oneadmin", "-g", "oneadmin", &images]);
        Self { front, host, images, settings: Vec::new() }
    }

    /// Sets a setting by its variable.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.settings.push(format!("{variable}={value}"));
    }

    /// `kvmad vm ARGUMENTS --host HOST`, as oneadmin on the front-end.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.arg("env").args(self.front.environment()).args(&self.settings);
        command.arg(format!("KVMAD_CLOUD_IMAGES={}", self.images));
        command
            .arg(self.front.folder().join("bin/kvmad"))
            .arg("vm")
            .args(arguments)
            .args(["--host", self.host]);
        command
    }

    /// The same to its end.
    pub fn vm(&self, arguments: &[&str]) -> Said {
        said(bed::run(self.command(arguments)))
    }

    /// The same, which must succeed.
    pub fn good(&self, arguments: &[&str]) -> Said {
        let said = self.vm(arguments);
        assert_eq!(said.status, Some(0), "{arguments:?}: {said:?}");
        said
    }

    /// A file below the folder of the VMs, as the machine can open it.
    pub fn file(&self, path: &str) -> PathBuf {
        bed::host_path(self.host, format!("{}/{path}", self.images))
    }

    /// Puts a file into the library of the host.
    pub fn library(&self, name: &str, from: &Path) {
        let library = self.file("cloud-images");
        fs::create_dir_all(&library).expect("the library");
        fs::copy(from, library.join(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        bed::sh(self.host, &["chown", "-R", "oneadmin:oneadmin", &format!("{}/cloud-images", self.images)]);
    }

    /// What the guest of VM `name` has said on its serial console.
    pub fn console(&self, name: &str) -> String {
        let log = bed::host_path(self.host, format!("/var/log/libvirt/qemu/kvmad-{name}-serial.log"));
        fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until the guest of VM `name` has said `text`.
    pub fn wait_said(&self, name: &str, text: &str, limit: Duration) {
        let found = wait_for(limit, || self.console(name).contains(text).then_some(()));
        assert!(found.is_some(), "the guest of {name} does not say {text:?}:\n{}", self.console(name));
    }
}

/// What a command that ended printed.
pub fn said(output: Output) -> Said {
    Said {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if std::env::var_os("KVMAD_KEEP").is_some() {
            return;
        }
        let folder = self.file("");
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("kvmad-") {
                bed::virsh(self.host, &["destroy", &name]);
                let log = format!("/var/log/libvirt/qemu/{name}-serial.log");
                let _ = fs::remove_file(bed::host_path(self.host, log));
            }
        }
        let _ = fs::remove_dir_all(folder);
    }
}

/// The guest that is ready after seconds, as an image.
pub fn small_image() -> PathBuf {
    bed::folder().join("guest-cloud/disk.qcow2")
}

/// The image with a real cloud-init; built when the bed has none yet, by one of those who want it.
pub fn cloud_image() -> PathBuf {
    let folder = bed::folder().join("guest-cloudimage");
    fs::create_dir_all(&folder).expect("a folder of the bed");
    let lock = File::create(folder.join("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    let image = folder.join("cloud.qcow2");
    if !image.exists() {
        let output = bed::run({
            let mut command = Command::new(bed::programs().join("build-cloud-image"));
            command.arg(&folder);
            command
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    image
}

/// A command in the guest at `address`, by ssh from the host with the key of its oneadmin.
pub fn in_guest(host: &str, address: &str, command: &str) -> Said {
    let mut ssh = bed::as_oneadmin(host);
    ssh.args(["env", "HOME=/var/lib/one", "ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]);
    ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=30", "--"]);
    ssh.arg(format!("admin@{address}")).arg(command);
    said(bed::run(ssh))
}
