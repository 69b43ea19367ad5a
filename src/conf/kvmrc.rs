//! The variables of `kvmrc`.

use super::key::Shipped::{Example, Set};
use super::key::{Key, Shipped, Takes};

/// The variable called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    VARIABLES.iter().find(|key| key.name == name)
}

/// The key of `vmm_exec_kvm.conf` that does at deployment what `variable` does when a device is attached.
#[must_use]
pub fn at_deployment(variable: &str) -> Option<(&'static str, &str)> {
    match variable.strip_prefix("DEFAULT_ATTACH_")? {
        "VIRTIO_BLK_IOTHREAD" => None,
        "VIRTIO_BLK_QUEUES" => Some(("FEATURES", "VIRTIO_BLK_QUEUES")),
        name => Some(match name.strip_prefix("NIC_") {
            Some(name) => ("NIC", name),
            None => ("DISK", name),
        }),
    }
}

const fn key(name: &'static str, takes: Takes, shipped: Shipped, text: &'static str) -> Key {
    Key { vector: "", name, takes, shipped, levels: "", text }
}

/// All variables, in the order of the shipped file.
#[rustfmt::skip]
pub const VARIABLES: &[Key] = &[
    key("LANG", Takes::Text, Set("C"),
        "Language of everything the scripts run, so that messages are the same everywhere."),
    key("LIBVIRT_URI", Takes::Text, Set("qemu:///system"),
        "The libvirt that the scripts talk to."),
    key("QEMU_PROTOCOL", Takes::Text, Set("qemu+ssh"),
        "How a host talks to the libvirt of the other one in a live migration: QEMU_PROTOCOL://HOST/system."),
    key("LIBVIRT_MD_URI", Takes::Text, Set("http://opennebula.org/xmlns/libvirt/1.0"),
        "XML name space of the metadata that OpenNebula keeps in a domain."),
    key("LIBVIRT_MD_KEY", Takes::Text, Set("one"),
        "Prefix of that name space."),
    key("SHUTDOWN_TIMEOUT", Takes::Whole(1, 86_400), Set("180"),
        "Seconds that a guest has to shut down."),
    key("FORCE_DESTROY", Takes::YesNo, Set("yes"),
        "yes: a guest that is still there after SHUTDOWN_TIMEOUT is destroyed. no: the shutdown fails."),
    key("CANCEL_NO_ACPI", Takes::YesNo, Example("yes"),
        "yes: a guest without ACPI is destroyed at once instead of being asked to shut down."),
    key("SYNC_TIME", Takes::YesNo, Set("yes"),
        "yes: the clock of a guest is set after it was restored or migrated (needs the guest agent)."),
    key("VIRSH_RETRIES", Takes::Whole(1, 100), Set("3"),
        "How often restoring a VM and detaching an interface are tried."),
    key("VIRSH_TRIES", Takes::Whole(1, 100), Example("3"),
        "How often a migration looks for the domain on the other host."),
    key("VIRSH_TIMEOUT", Takes::Whole(1, 86_400), Set("60"),
        "Seconds after which one call of virsh that only asks or sets something is given up."),
    key("VIRSH_JOB_TIMEOUT", Takes::Whole(1, 604_800), Set("21600"),
        "The same for calls that move memory or disks: starting, saving and restoring a VM, snapshots."),
    key("CANCEL_TIMEOUT", Takes::Whole(1, 86_400), Set("60"),
        "Seconds for which ending a VM by force is tried."),
    key("DETACH_TIMEOUT", Takes::Whole(1, 86_400), Set("30"),
        "Seconds that a guest has to let go of a disk or an interface; it is asked once more at half of it."),
    key("AGENT_TIMEOUT", Takes::Whole(1, 3_600), Set("10"),
        "Seconds that the agent in a guest has to answer a request."),
    key("CLEANUP_MEMORY_ON_START", Takes::YesNo, Example("yes"),
        "yes: the host's caches are dropped and its memory compacted before a VM is started."),
    key("CLEANUP_MEMORY_ON_STOP", Takes::YesNo, Set("no"),
        "yes: the same after a VM was stopped."),
    key("MIGRATE_OPTIONS", Takes::Text, Example("--unsafe"),
        "Further options of virsh migrate, as words of a shell."),
    key("VIRTIOFSD_BINARY_PATH", Takes::Paths, Set("/usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd /usr/lib/virtiofsd/virtiofsd"),
        "Where the server of shared folders may be; the first one that is there is used."),
    key("OVMF_NVRAM", Takes::Path, Set("/usr/share/OVMF/OVMF_VARS.fd"),
        "Template of the firmware's variables for a VM that starts with a firmware file for the first time."),
    key("DEFAULT_ATTACH_CACHE", Takes::Word(&["default", "none", "writethrough", "writeback", "unsafe", "directsync"]), Example("none"),
        "Cache mode of disks that are attached to a running VM and name none. Better unset: then DISK/CACHE of vmm_exec_kvm.conf counts, as at deployment."),
    key("DEFAULT_ATTACH_DISCARD", Takes::Word(&["ignore", "unmap"]), Example("unmap"),
        "The same for DISK/DISCARD."),
    key("DEFAULT_ATTACH_IO", Takes::Word(&["threads", "native", "io_uring"]), Example("native"),
        "The same for DISK/IO."),
    key("DEFAULT_ATTACH_VIRTIO_BLK_QUEUES", Takes::Queues, Example("auto"),
        "The same for FEATURES/VIRTIO_BLK_QUEUES."),
    key("DEFAULT_ATTACH_VIRTIO_BLK_IOTHREAD", Takes::Whole(1, 1024), Example("1"),
        "I/O thread of virtio disks that are attached and name none. Unset: shared out by the disk's number."),
    key("DEFAULT_ATTACH_TOTAL_BYTES_SEC", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/TOTAL_BYTES_SEC."),
    key("DEFAULT_ATTACH_TOTAL_BYTES_SEC_MAX", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/TOTAL_BYTES_SEC_MAX."),
    key("DEFAULT_ATTACH_TOTAL_BYTES_SEC_MAX_LENGTH", Takes::Digits(18_446_744_073_709_551_615), Example("10"),
        "The same for DISK/TOTAL_BYTES_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_TOTAL_IOPS_SEC", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/TOTAL_IOPS_SEC."),
    key("DEFAULT_ATTACH_TOTAL_IOPS_SEC_MAX", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/TOTAL_IOPS_SEC_MAX."),
    key("DEFAULT_ATTACH_TOTAL_IOPS_SEC_MAX_LENGTH", Takes::Digits(4_294_967_295), Example("10"),
        "The same for DISK/TOTAL_IOPS_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_READ_BYTES_SEC", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/READ_BYTES_SEC."),
    key("DEFAULT_ATTACH_READ_BYTES_SEC_MAX", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/READ_BYTES_SEC_MAX."),
    key("DEFAULT_ATTACH_READ_BYTES_SEC_MAX_LENGTH", Takes::Digits(18_446_744_073_709_551_615), Example("10"),
        "The same for DISK/READ_BYTES_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_READ_IOPS_SEC", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/READ_IOPS_SEC."),
    key("DEFAULT_ATTACH_READ_IOPS_SEC_MAX", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/READ_IOPS_SEC_MAX."),
    key("DEFAULT_ATTACH_READ_IOPS_SEC_MAX_LENGTH", Takes::Digits(4_294_967_295), Example("10"),
        "The same for DISK/READ_IOPS_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_WRITE_BYTES_SEC", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/WRITE_BYTES_SEC."),
    key("DEFAULT_ATTACH_WRITE_BYTES_SEC_MAX", Takes::Digits(18_446_744_073_709_551_615), Example("10000000"),
        "The same for DISK/WRITE_BYTES_SEC_MAX."),
    key("DEFAULT_ATTACH_WRITE_BYTES_SEC_MAX_LENGTH", Takes::Digits(18_446_744_073_709_551_615), Example("10"),
        "The same for DISK/WRITE_BYTES_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_WRITE_IOPS_SEC", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/WRITE_IOPS_SEC."),
    key("DEFAULT_ATTACH_WRITE_IOPS_SEC_MAX", Takes::Digits(4_294_967_295), Example("1000"),
        "The same for DISK/WRITE_IOPS_SEC_MAX."),
    key("DEFAULT_ATTACH_WRITE_IOPS_SEC_MAX_LENGTH", Takes::Digits(4_294_967_295), Example("10"),
        "The same for DISK/WRITE_IOPS_SEC_MAX_LENGTH."),
    key("DEFAULT_ATTACH_SIZE_IOPS_SEC", Takes::Digits(4_294_967_295), Example("4096"),
        "The same for DISK/SIZE_IOPS_SEC."),
    key("DEFAULT_ATTACH_NIC_MODEL", Takes::Text, Example("virtio"),
        "The same for NIC/MODEL."),
    key("DEFAULT_ATTACH_NIC_FILTER", Takes::Text, Example("clean-traffic"),
        "The same for NIC/FILTER."),
];
