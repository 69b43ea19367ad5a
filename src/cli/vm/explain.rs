//! What libvirt's errors mean for the operator, and what to do.
//!
//! These texts are read for one purpose only: to add an explanation to a failure that is told anyway.

use super::Stop;
use super::site::Site;
use crate::host::HostName;

/// Parts of messages, and what to say.
const KNOWN: [(&[&str], &str); 9] = [
    (
        &["Cannot get interface MTU on", "No such device"],
        "the bridge does not exist on the host: create it and make the NIC a port of it, or use a NAT network (--nat)",
    ),
    (&["Network not found"], "libvirt has no such network: virsh net-list --all shows what there is"),
    (&["network", "is not active"], "the network of libvirt does not run: virsh net-start NETWORK"),
    (
        &["cannot close file: Bad file descriptor"],
        "this is a fault of libvirt 0.8.7: upgrade libvirt on the host",
    ),
    (
        &["Could not access KVM kernel module"],
        "/dev/kvm can't be used by QEMU's user: load kvm_intel or kvm_amd, put the user into group kvm, or use --type qemu",
    ),
    (
        &["invalid argument: could not find capabilities for", "domaintype=kvm"],
        "the host can't run KVM: switch virtualization on in its firmware and load kvm_intel or kvm_amd, or use --type qemu",
    ),
    (&["IDE", "only", "supported"], "more than 4 IDE disks: use scsi (sd) or virtio (vd) targets"),
    (
        &["Cannot allocate memory"],
        "the host has not enough free memory for this VM: give --memory less, or another host",
    ),
    (
        &["Failed to connect socket"],
        "libvirt does not run on the host, or the driver's user may not reach it: kvmad doctor tells more",
    ),
];

/// The explanation for `reason`, when it is a known one.
fn known(reason: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(parts, _)| parts.iter().all(|part| reason.contains(part)));
    found.map(|(_, text)| *text)
}

/// The file that QEMU may not use, by libvirt's or QEMU's message.
fn denied(reason: &str) -> Option<&str> {
    let at = reason.find("Permission denied")?;
    // Cannot access storage file '/x/y' (as uid:1, gid:1): Permission denied
    // Could not open '/x/y': Permission denied
    let before = &reason[..at];
    let end = before.rfind('\'')?;
    let start = before[..end].rfind('\'')?;
    Some(&before[start + 1..end]).filter(|path| path.starts_with('/'))
}

/// `stop` with an explanation behind it, when there is one.
pub async fn explained(site: &Site, host: &HostName, stop: Stop) -> Stop {
    let mut reason = stop.reason;
    if let Some(text) = known(&reason) {
        reason.push_str(&format!("\n{text}"));
    }
    let path = denied(&reason).map(str::to_owned);
    if let Some(path) = path {
        // Without an answer the failure is told as it is.
        let blocked = site.ask(host, &["blocked", &path], "").await.unwrap_or_default();
        let blocked = match blocked.trim() {
            "" => format!(
                "QEMU's user may not use {path}: look at its owner and mode, and at AppArmor or SELinux"
            ),
            text => text.to_owned(),
        };
        reason.push_str(&format!("\n{blocked}"));
    }
    Stop { reason, ..stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_libvirt_are_explained() {
        for (reason, part) in [
            ("error: Cannot get interface MTU on 'br9': No such device", "create it and make the NIC a port"),
            ("error: network 'default' is not active", "net-start"),
            ("error: cannot close file: Bad file descriptor", "upgrade"),
            ("Could not access KVM kernel module: Permission denied", "group kvm"),
        ] {
            assert!(known(reason).is_some_and(|text| text.contains(part)), "{reason}");
        }
        assert_eq!(known("error: something else"), None);
    }

    #[test]
    fn the_file_that_is_denied_is_found() {
        for (reason, path) in [
            (
                "x: Cannot access storage file '/home/me/a b/disk.0' (as uid:64055, gid:64055): Permission denied",
                Some("/home/me/a b/disk.0"),
            ),
            ("qemu: -blockdev x: Could not open '/srv/d': Permission denied", Some("/srv/d")),
            ("Could not access KVM kernel module: Permission denied", None),
            ("no", None),
        ] {
            assert_eq!(denied(reason), path);
        }
    }
}
