//! What a host is: names, versions, totals.

use super::super::text::{line, number, quoted};
use super::{cpu, memory};
use crate::node::root::Root;

/// Machine and node name as `uname` tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// `uname -m`.
    pub machine: String,
    /// `uname -n`.
    pub node: String,
}

impl Names {
    /// Asks the kernel.
    #[must_use]
    pub fn of_this_host() -> Self {
        let told = rustix::system::uname();
        Self {
            machine: told.machine().to_string_lossy().into_owned(),
            node: told.nodename().to_string_lossy().into_owned(),
        }
    }
}

/// ARCH, MODELNAME, HOSTNAME, VERSION, HYPERVISOR, TOTALCPU, CPUSPEED, TOTALMEMORY, CGROUPS_VERSION.
///
/// `remotes` is the folder of the scripts; the last line of its file VERSION is OpenNebula's version.
pub fn attributes(root: &Root, names: &Names, remotes: &str, text: &mut String) {
    text.push_str(&format!("ARCH={}\n", bare(&names.machine)));
    if let Some(model) = cpu::model(root) {
        line(text, "MODELNAME", &model);
    }
    text.push_str(&format!("HOSTNAME={}\n", bare(&names.node)));
    if let Some(version) = version(root, remotes) {
        line(text, "VERSION", &version);
    }
    text.push_str("HYPERVISOR=kvm\n");
    number(text, "TOTALCPU", cpu::count(root) * 100);
    number(text, "CPUSPEED", cpu::speed(root));
    number(text, "TOTALMEMORY", memory::Memory::read(root).total);
    if let Some(version) = cgroups(root) {
        number(text, "CGROUPS_VERSION", version);
    }
}

/// OpenNebula's version as the remotes carry it.
#[must_use]
pub fn version(root: &Root, remotes: &str) -> Option<String> {
    let text = root.read(format!("{remotes}/VERSION"))?;
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// 1 when any hierarchy of version 1 is mounted, else 2 when that of version 2 is.
#[must_use]
pub fn cgroups(root: &Root) -> Option<u8> {
    let mounts = root.read("/proc/self/mounts")?;
    let has = |kind| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    if has("cgroup") { Some(1) } else { has("cgroup2").then_some(2) }
}

/// A value without quotes where that is safe, as these always were written.
fn bare(value: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !value.is_empty() && value.bytes().all(safe) { value.to_owned() } else { quoted(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_have_their_names_and_forms() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("proc/cpuinfo", "processor: 0\nmodel name: A \"fast\" one\ncpu MHz: 1000.4\n"),
            ("sys/devices/system/cpu/present", "0-7"),
            ("proc/meminfo", "MemTotal: 2048 kB\n"),
            ("proc/self/mounts", "a /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("rem/VERSION", "7.4.0\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let names = Names { machine: "x86_64".into(), node: "node1.example".into() };
        let mut text = String::new();
        attributes(&Root::at(dir.path()), &names, "/rem", &mut text);
        assert_eq!(
            text,
            "ARCH=x86_64\nMODELNAME=\"A \\\"fast\\\" one\"\nHOSTNAME=node1.example\nVERSION=\"7.4.0\"\nHYPERVISOR=kvm\n\
TOTALCPU=800\nCPUSPEED=1000\nTOTALMEMORY=2048\nCGROUPS_VERSION=2\n"
        );
    }

    #[test]
    fn any_hierarchy_of_version_1_makes_it_1() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("proc/self")).expect("made");
        std::fs::write(dir.path().join("proc/self/mounts"), "c /a cgroup2 rw\nc /b cgroup rw,cpu\n")
            .expect("written");
        assert_eq!(cgroups(&Root::at(dir.path())), Some(1));
        assert_eq!(cgroups(&Root::at("/nonexistent")), None);
    }
}
