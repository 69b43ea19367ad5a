//! Values that are right by themselves, but do nothing or harm together with others.

use super::finding::Checked;
use crate::template::text::Gravity;
use crate::template::value::Vector;
use crate::template::{Origin, Template};

/// Checks what the values of the file do together.
pub fn check(checked: &mut Checked, template: &Template) {
    if let Some(os) = template.vector("OS") {
        kernel(checked, &os);
        firmware(checked, &os, template);
    }
    if template.vector("OS").is_none_or(|os| os.filled("ARCH").is_none()) {
        let why = "OS/ARCH is not set: a VM that does not set it itself can't be started".to_owned();
        let mend = "write OS = [ ARCH = \"x86_64\" ]";
        checked.find("missing-arch", Gravity::Warning, "OS/ARCH".to_owned(), None, why, mend);
    }
    if let Some(disk) = template.vector("DISK") {
        native(checked, &disk);
        for unit in ["BYTES", "IOPS"] {
            throttles(checked, &disk, unit);
        }
        size_iops(checked, &disk);
    }
    if let Some(cpu) = template.vector("CPU_MODEL") {
        if cpu.filled("MODEL").is_none() {
            ineffective(checked, &cpu, "FEATURES", "CPU_MODEL/MODEL is not set");
        } else if template.single("EVC_MODE").is_some_and(|mode| !mode.value.is_empty()) {
            ineffective(checked, &cpu, "MODEL", "EVC_MODE replaces it");
        }
    }
    if let Some(video) = template.vector("VIDEO")
        && video.filled("TYPE").is_some_and(|kind| kind != "virtio")
    {
        ineffective(checked, &video, "IOMMU", "VIDEO/TYPE is not virtio");
        ineffective(checked, &video, "ATS", "VIDEO/TYPE is not virtio");
    }
}

/// A finding for a member that is set in vain.
fn ineffective(checked: &mut Checked, vector: &Vector<'_>, member: &str, because: &str) {
    let Some(found) = vector.member(member).filter(|member| !member.value.is_empty()) else { return };
    let key = format!("{}/{member}", vector.name);
    let why = format!("{key} has no effect: {because}");
    checked.find(
        "ineffective",
        Gravity::Warning,
        key,
        Some(&found.origin),
        why,
        "remove it, or set what it needs",
    );
}

fn place<'a>(vector: &Vector<'a>, member: &str) -> Option<&'a Origin> {
    vector.member(member).map(|member| &member.origin)
}

fn kernel(checked: &mut Checked, os: &Vector<'_>) {
    if os.filled("KERNEL").is_some() {
        ineffective(checked, os, "BOOTLOADER", "OS/KERNEL is set");
        return;
    }
    for member in ["INITRD", "ROOT", "KERNEL_CMD"] {
        ineffective(checked, os, member, "OS/KERNEL is not set (a VM that sets it gets this one too)");
    }
}

/// A firmware file must be one of OVMF_UEFIS, compared exactly.
fn firmware(checked: &mut Checked, os: &Vector<'_>, template: &Template) {
    let file = os.filled("FIRMWARE").filter(|name| name.starts_with('/'));
    if file.is_none() {
        ineffective(checked, os, "FIRMWARE_FORMAT", "it counts only with a firmware file in OS/FIRMWARE");
    }
    let Some(file) = file else { return };
    let listed = template.single("OVMF_UEFIS").map_or("", |list| list.value);
    if !listed.split(' ').any(|known| known == file) {
        let why = format!("{file} is not in OVMF_UEFIS, so OpenNebula refuses every VM that takes it over");
        let mend = "add it to OVMF_UEFIS, or take one that is listed";
        let at = place(os, "FIRMWARE");
        checked.find("firmware-not-listed", Gravity::Error, "OS/FIRMWARE".to_owned(), at, why, mend);
    }
}

fn native(checked: &mut Checked, disk: &Vector<'_>) {
    let cache = disk.filled("CACHE").unwrap_or("default");
    if disk.filled("IO") == Some("native") && !matches!(cache, "none" | "directsync") {
        let why = format!("libvirt refuses IO native together with CACHE {cache}");
        let mend = "set CACHE to none or directsync, or IO to threads or io_uring";
        checked.find(
            "refused-by-libvirt",
            Gravity::Error,
            "DISK/IO".to_owned(),
            place(disk, "IO"),
            why,
            mend,
        );
    }
}

/// What oned ignores among limits of the same unit.
fn throttles(checked: &mut Checked, disk: &Vector<'_>, unit: &str) {
    let set = |name: String| disk.filled(&name).is_some();
    let total = set(format!("TOTAL_{unit}_SEC")) || set(format!("TOTAL_{unit}_SEC_MAX"));
    for group in ["TOTAL", "READ", "WRITE"] {
        let base = format!("{group}_{unit}_SEC");
        let (max, length) = (format!("{base}_MAX"), format!("{base}_MAX_LENGTH"));
        if total && group != "TOTAL" {
            for name in [&base, &max, &length] {
                ineffective(checked, disk, name, &format!("DISK/TOTAL_{unit}_SEC is set"));
            }
            continue;
        }
        let number = |name: &str| disk.filled(name).and_then(|value| value.parse::<u64>().ok());
        let larger = number(&max).is_some_and(|max| max > number(&base).unwrap_or(0));
        if !larger {
            ineffective(checked, disk, &max, &format!("it is not larger than DISK/{base}"));
            ineffective(
                checked,
                disk,
                &length,
                &format!("there is no DISK/{max} that is larger than DISK/{base}"),
            );
        }
    }
}

fn size_iops(checked: &mut Checked, disk: &Vector<'_>) {
    let limits = ["TOTAL_IOPS_SEC", "READ_IOPS_SEC", "WRITE_IOPS_SEC"];
    if !limits.iter().any(|name| disk.filled(name).is_some()) {
        ineffective(checked, disk, "SIZE_IOPS_SEC", "there is no limit of operations");
    }
}
