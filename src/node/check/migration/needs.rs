//! What a host has of what a domain needs.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::domain::{Disk, Domain};
use super::hold::Marker;
use super::told::Told;
use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;

/// The answers, for one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// State of a domain of the same name or UUID here; `None` when there is none.
    pub same: Option<Told<Option<String>>>,
    /// Whether the hypervisor here provides its CPU: `None` when it does, else what is missing.
    pub cpu: Option<Told<Option<String>>>,
    /// What is not there of its emulator and firmware, a sentence each.
    pub missing: Vec<String>,
    /// Of each bridge, whether it is there.
    pub bridges: BTreeMap<String, bool>,
    /// Its disks that have a path, by that.
    pub disks: BTreeMap<String, Lies>,
    /// Of each folder with a marker of the other host, whether it is seen; or why that can't be told.
    pub markers: BTreeMap<String, Told<bool>>,
    /// Free bytes of each disk's folder (or the nearest one above that is there).
    pub free: BTreeMap<String, u64>,
}

/// A disk's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lies {
    /// Inode and size in bytes; `None` when there is no such file.
    pub file: Option<Told<(u64, u64)>>,
    /// Type of the file system, as mountinfo names it.
    pub filesystem: String,
}

const LIMIT: Duration = Duration::from_secs(20);

/// Looks for everything.
///
/// # Errors
/// When `xml` is no domain.
pub async fn look(virsh: &Virsh, root: &Root, xml: &str, markers: &[Marker]) -> Told<Needs> {
    let domain = Domain::read(xml)?;
    let mounts = mounts(&root.read("/proc/self/mountinfo").unwrap_or_default());
    let with_path: Vec<&Disk> = domain.disks.iter().filter(|disk| disk.path.starts_with('/')).collect();
    let lies = |disk: &&Disk| (disk.path.clone(), lies(root, &mounts, &disk.path));
    let folders = with_path.iter().filter_map(|disk| disk.folder());
    Ok(Needs {
        same: Some(same(virsh, &domain).await),
        cpu: Some(cpu(virsh, xml, &domain.kind).await),
        missing: missing(root, &domain),
        bridges: domain.bridges.iter().map(|name| (name.clone(), has_bridge(root, name))).collect(),
        disks: with_path.iter().map(lies).collect(),
        markers: markers.iter().map(|marker| (marker.folder.clone(), sees(root, marker))).collect(),
        free: folders.filter_map(|folder| Some((folder.to_owned(), free(root, folder)?))).collect(),
    })
}

/// By UUID and by name: another VM of the same name is in the way, too.
async fn same(virsh: &Virsh, domain: &Domain) -> Told<Option<String>> {
    let sights = virsh.look().await?;
    let found = sights.iter().find(|sight| sight.uuid == domain.uuid || sight.name == domain.name);
    Ok(found.map(|sight| match sight.state {
        Some((1, _)) => "running".to_owned(),
        Some((3, _)) => "paused".to_owned(),
        Some((state, _)) => format!("state {state}"),
        None => "unknown".to_owned(),
    }))
}

/// virsh says by its exit status only that the CPU does not fit or that it could not be compared; which of the two
/// stands in its message alone.
async fn cpu(virsh: &Virsh, xml: &str, kind: &str) -> Told<Option<String>> {
    let stdin = Bytes::from(xml.to_owned());
    let mut words = vec!["hypervisor-cpu-compare", "/dev/stdin", "--error"];
    if ["kvm", "qemu"].contains(&kind) {
        words.extend(["--virttype", kind]);
    }
    match virsh.run(&words, stdin, LIMIT).await {
        Ok(_) => Ok(None),
        Err(reason) if reason.contains("incompatible") => {
            Ok(Some(reason.rsplit("error: ").next().unwrap_or(&reason).to_owned()))
        }
        Err(reason) => Err(reason),
    }
}

fn missing(root: &Root, domain: &Domain) -> Vec<String> {
    let mut all = Vec::new();
    if domain.emulator.starts_with('/') {
        match std::fs::metadata(root.path(&domain.emulator)) {
            Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => {}
            Ok(_) => all.push(format!("the emulator {} is no program", domain.emulator)),
            Err(error) => all.push(format!("the emulator {} can't be used: {error}", domain.emulator)),
        }
    }
    let gone = |path: &&String| !root.exists(path);
    all.extend(domain.firmware.iter().filter(gone).map(|path| format!("the firmware {path} is not there")));
    all
}

fn has_bridge(root: &Root, name: &str) -> bool {
    // A name is one word of a path, or it is no bridge.
    !name.contains('/') && root.exists(format!("/sys/class/net/{name}"))
}

fn lies(root: &Root, mounts: &[(String, String)], path: &str) -> Lies {
    let file = match std::fs::metadata(root.path(path)) {
        Ok(about) => Some(Ok((about.ino(), about.len()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
    };
    let resolved = std::fs::canonicalize(root.path(path)).ok();
    let resolved = resolved.as_deref().and_then(Path::to_str).unwrap_or(path);
    let below = |folder: &str| folder == "/" || Path::new(resolved).starts_with(folder);
    let mounted =
        mounts.iter().rev().filter(|(folder, _)| below(folder)).max_by_key(|(folder, _)| folder.len());
    Lies { file, filesystem: mounted.map(|(_, kind)| kind.clone()).unwrap_or_default() }
}

/// Folder and type of every mount, in order.
fn mounts(text: &str) -> Vec<(String, String)> {
    let one = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let folder = before.split(' ').nth(4)?.replace("\\040", " ");
        Some((folder, after.split(' ').next()?.to_owned()))
    };
    text.lines().filter_map(one).collect()
}

fn sees(root: &Root, marker: &Marker) -> Told<bool> {
    let name =
        marker.name.as_ref().map_err(|why| format!("the other host could not make a file there: {why}"))?;
    let plain =
        name.strip_prefix(".kvmad-check-").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if !plain {
        return Err("the other host told a file of a strange name".to_owned());
    }
    // Network file systems remember for some seconds that a name was not there; this one was never asked for.
    match std::fs::symlink_metadata(root.path(&marker.folder).join(name)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn free(root: &Root, folder: &str) -> Option<u64> {
    let about =
        Path::new(folder).ancestors().find_map(|folder| rustix::fs::statvfs(root.path(folder)).ok())?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::Ask;
    use crate::node::tools::fake::Fake;

    const XML: &str = "<domain><name>one-7</name><uuid>9836e20d-beeb-4c38-98b6-b2dccfa000a4</uuid><os><type>hvm</type><loader>/fw.fd</loader></os>
<devices><emulator>/usr/bin/qemu</emulator><disk><source file='/ds/0/7/disk.0'/><target dev='vda'/></disk>
<interface><source bridge='br0'/></interface><interface><source bridge='../../etc'/></interface></devices></domain>";

    fn virsh(cpu: Result<String, (i32, String)>, list: &'static str) -> Virsh {
        let fake = Fake(move |ask: &Ask| match ask.args[3].as_str() {
            "hypervisor-cpu-compare" => cpu.clone(),
            _ => Ok(format!("=kvmad=\n{list}\n")),
        });
        Virsh::new(Arc::new(fake), "qemu:///system", LIMIT)
    }

    fn host() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["ds/0/7", "usr/bin", "sys/class/net/br0", "proc/self", "etc"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
        }
        std::fs::write(dir.path().join("ds/0/7/disk.0"), "1234567").expect("a disk");
        std::fs::write(dir.path().join("usr/bin/qemu"), "").expect("a file");
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[tokio::test]
    async fn what_is_there_and_what_is_not() {
        let (dir, root) = host();
        std::fs::write(dir.path().join("ds/0/7/.kvmad-check-0a"), "").expect("a marker");
        let marker = |folder: &str, name: &str| Marker { folder: folder.into(), name: Ok(name.into()) };
        let markers = [
            marker("/ds/0/7", ".kvmad-check-0a"),
            marker("/ds", ".kvmad-check-0b"),
            marker("/etc", ".kvmad-check-../passwd"),
        ];
        let needs = look(&virsh(Ok(String::new()), ""), &root, XML, &markers).await.expect("a domain");
        assert_eq!(needs.same, Some(Ok(None)));
        assert_eq!(needs.cpu, Some(Ok(None)));
        assert_eq!(
            needs.missing,
            ["the emulator /usr/bin/qemu is no program", "the firmware /fw.fd is not there"]
        );
        assert_eq!(needs.bridges, [("br0".to_owned(), true), ("../../etc".to_owned(), false)].into());
        assert_eq!(needs.markers["/ds/0/7"], Ok(true));
        assert_eq!(needs.markers["/ds"], Ok(false));
        assert!(needs.markers["/etc"].is_err());
        assert!(matches!(needs.disks["/ds/0/7/disk.0"].file, Some(Ok((_, 7)))));
        assert!(needs.free["/ds/0/7"] > 0);
    }

    #[tokio::test]
    async fn a_cpu_that_does_not_fit_is_told_apart_from_one_that_could_not_be_compared() {
        let (_dir, root) = host();
        let said = "error: Failed to compare hypervisor CPU with /dev/stdin; error: the CPU is incompatible with host CPU: Host CPU does not provide required features: svm";
        let needs = look(&virsh(Err((1, said.into())), ""), &root, XML, &[]).await.expect("a domain");
        let why = needs.cpu.expect("asked").expect("compared").expect("does not fit");
        assert_eq!(
            why,
            "the CPU is incompatible with host CPU: Host CPU does not provide required features: svm"
        );
        let needs = look(&virsh(Err((1, "error: no connection".into())), ""), &root, XML, &[])
            .await
            .expect("a domain");
        assert!(needs.cpu.expect("asked").is_err());
    }

    #[tokio::test]
    async fn a_domain_of_the_same_uuid_or_name_is_seen() {
        let (_dir, root) = host();
        for list in
            ["9836e20d-beeb-4c38-98b6-b2dccfa000a4 other", "00000000-beeb-4c38-98b6-b2dccfa000a4 one-7"]
        {
            let needs = look(&virsh(Ok(String::new()), list), &root, XML, &[]).await.expect("a domain");
            assert_eq!(needs.same, Some(Ok(Some("unknown".into()))), "{list}");
        }
    }

    #[test]
    fn the_last_mount_of_the_longest_folder_counts() {
        let text = "1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / /ds rw shared:1 - nfs4 s:/x rw\n3 1 0:3 / /ds/a\\040b rw - fuse.glusterfs x rw\n";
        let mounts = mounts(text);
        assert_eq!(mounts[2], ("/ds/a b".to_owned(), "fuse.glusterfs".to_owned()));
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(lies(&Root::at(dir.path()), &mounts, "/ds/0/7/disk.0").filesystem, "nfs4");
        assert_eq!(lies(&Root::at(dir.path()), &mounts, "/dsx").filesystem, "ext4");
    }
}
