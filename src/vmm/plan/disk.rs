//! Disks of a running VM: ATTACHDISK, DETACHDISK, RESIZEDISK, DISKSNAPSHOTCREATE.

use super::build::{Builder, Planned, text};
use super::transfer::Command;
use super::{Info, Refusal, Step, Value};

const ATTACH_TARGET: &str = "VM/TEMPLATE/DISK[ATTACH='YES']/TARGET";

/// ATTACHDISK: the transfer manager brings the disk, the hypervisor takes it.
pub(crate) fn attach(builder: &Builder<'_>) -> Planned {
    let mut bring = builder.command()?.step("tm_attach");
    if let Some(line) = builder.action.filled("TM_COMMAND_ROLLBACK") {
        bring = bring.undone_by(Command::parse(&line)?.step("tm_attach_rollback"));
    }
    Ok((vec![bring, device(builder, "attach_disk", &[Value::Document])?], Info::Output("attach_disk")))
}

/// DETACHDISK. When the transfer manager can't take the disk away the VM gets it back: `oned` keeps it.
pub(crate) fn detach(builder: &Builder<'_>) -> Planned {
    let command = builder.command()?;
    let detach = device(builder, "detach_disk", &[])?;
    let detach = detach.undone_by(device(builder, "attach_disk", &[Value::Document])?);
    Ok((vec![detach, command.step("tm_detach")], Info::Output("detach_disk")))
}

/// `attach_disk` or `detach_disk` for the flagged disk: deploy id, path, target, index; only `attach_disk` takes the
/// document as an argument too.
fn device(builder: &Builder<'_>, script: &str, more: &[Value]) -> Result<Step, Refusal> {
    let disk = builder.action.flagged("DISK", "ATTACH").ok_or_else(|| builder.expecting(ATTACH_TARGET))?;
    let target = disk.filled("TARGET").ok_or_else(|| builder.expecting(ATTACH_TARGET))?;
    let index = index(&target, disk.filled("DEV_PREFIX").as_deref());
    let path = text(builder.action.text("DISK_TARGET_PATH"));
    let id = builder.deploy_id()?;
    let args = [id, path, text(target), text(index.to_string())];
    Ok(builder.vmm(script, args.into_iter().chain(more.iter().cloned())))
}

/// Number of a target: `vda` 0, `vdz` 25, `vdaa` 26. What stands behind the prefix of the bus counts, or, where
/// that is not all letters, the last letter.
pub(crate) fn index(target: &str, prefix: Option<&str>) -> u64 {
    const PREFIXES: [&str; 5] = ["xvd", "sd", "vd", "hd", "ubd"];
    let target = target.to_ascii_lowercase();
    let prefix = prefix.map(str::to_ascii_lowercase).unwrap_or_default();
    let letters = std::iter::once(prefix.as_str())
        .chain(PREFIXES)
        .filter(|prefix| !prefix.is_empty())
        .find_map(|prefix| target.strip_prefix(prefix))
        .filter(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase()));
    let letters = letters
        .unwrap_or_else(|| target.rfind(|c: char| c.is_ascii_lowercase()).map_or("a", |at| &target[at..=at]));
    letters
        .bytes()
        .fold(0u64, |number, byte| number.saturating_mul(26).saturating_add(u64::from(byte - b'a') + 1))
        .saturating_sub(1)
}

/// RESIZEDISK: the image grows, then the guest is told. An image can't shrink again.
pub(crate) fn resize(builder: &Builder<'_>) -> Planned {
    let command = builder.command()?;
    let wanted = |field: &str| {
        let path = format!("VM/TEMPLATE/DISK[RESIZE='YES']/{field}");
        let disk = builder.action.flagged("DISK", "RESIZE");
        disk.and_then(|disk| disk.filled(field)).ok_or_else(|| builder.expecting(&path))
    };
    let (size, disk) = (wanted("SIZE")?, wanted("DISK_ID")?);
    let grow = command.step("tm_resize").leaves(format!("the image of disk {disk} has {size} MiB already"));
    let args = [builder.deploy_id()?, text(disk), text(size), Value::Document, builder.host()];
    Ok((vec![grow, builder.vmm("resize_disk", args)], Info::Output("resize_disk")))
}

/// DISKSNAPSHOTCREATE of a running VM: the transfer manager's script talks to libvirt itself.
pub(crate) fn snapshot_create(builder: &Builder<'_>) -> Planned {
    // Cores up to 4.14 call it VMMMAD.
    let old = builder.action.filled("VM/HISTORY_RECORDS/HISTORY/VMMMAD");
    let vm_mad = old.map_or_else(|| builder.need("VM/HISTORY_RECORDS/HISTORY/VM_MAD"), Ok)?;
    let expecting = || builder.expecting("VM/TEMPLATE/DISK[DISK_SNAPSHOT_ACTIVE='YES']/TM_MAD");
    let disk = builder.action.flagged("DISK", "DISK_SNAPSHOT_ACTIVE").ok_or_else(expecting)?;
    let mut tm_mad = disk.filled("TM_MAD").ok_or_else(expecting)?;
    let thin = disk.text_at("LVM_THIN_ENABLE").unwrap_or_default();
    if tm_mad == "fs_lvm_ssh" && thin.trim().eq_ignore_ascii_case("yes") {
        "lvm_thin".clone_into(&mut tm_mad);
    }
    let command = builder.command()?;
    if !builder.setup.live_snapshots.contains(&format!("{}-{}", vm_mad.trim(), tm_mad.trim())) {
        return Err(Refusal::NotLive(builder.verb));
    }
    let live = command.as_verb(format!("{}_LIVE", command.verb));
    Ok((vec![live.step("tm_snap_create_live")], Info::Nothing))
}

#[cfg(test)]
mod tests {
    use super::index;

    #[test]
    fn targets_are_numbered_in_base_26() {
        for (target, number) in [
            ("vda", 0),
            ("vdb", 1),
            ("sdz", 25),
            ("vdaa", 26),
            ("sdad", 29),
            ("sdba", 52),
            ("hda", 0),
            ("xvdc", 2),
            ("VDC", 2),
            ("sda1", 0),
            ("", 0),
            ("7", 0),
            ("vd", 3),
            ("äö", 0),
        ] {
            assert_eq!(index(target, None), number, "{target}");
        }
        assert_eq!(index("sdb", Some("sd")), 1);
        assert_eq!(index("nvmec", Some("nvme")), 2);
    }
}
