//! Whether VMs can migrate from one host to another, and whether one VM can. What runs on the hosts ([`command`]) tells
//! facts; [`hosts`] and [`vm`] make verdicts of the facts of both sides.

pub mod about;
pub mod command;
pub mod domain;
pub mod hold;
pub mod hosts;
pub mod needs;
pub mod side;
mod storage;
pub mod told;
pub mod vm;

use super::{Check, Group};

const fn check(id: &'static str, what: &'static str, why: &'static str, mend: &'static str) -> Check {
    Check { id, group: Group::Migration, what, why, mend }
}

/// Every check of this module.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    check("pair-host-uuid", "The UUIDs that libvirt gives the two hosts differ.",
        "libvirt takes two hosts of one UUID for one and refuses the migration; cheap boards and cloned machines share one.",
        "host_uuid in /etc/libvirt/libvirtd.conf (virtqemud.conf), from uuidgen, then restart the daemon"),
    check("pair-name", "Each host knows the name that OpenNebula has for the other one, and it does not lead back to itself.",
        "The source opens the connection to the target by this name.",
        "DNS or /etc/hosts on the host that is named"),
    check("pair-libvirt-name", "The name that libvirt on the target has for itself is known on the source, and leads to loopback on neither.",
        "QEMU on the source sends the memory to this name; libvirt refuses a target whose own name is localhost, as Debian's line 127.0.1.1 makes it.",
        "/etc/hosts: the host's own name at its real address; or MIGRATE_URI in kvmrc, which names the address itself"),
    check("pair-transport", "The source reaches the target's libvirt by QEMU_PROTOCOL of kvmrc, without a password.",
        "virsh migrate needs it.",
        "qemu+ssh: keys and known_hosts of oneadmin (or the forwarded agent); qemu+tcp: listen_tcp and the socket unit; qemu+tls: certificates"),
    check("pair-transport-back", "The same from the target to the source.",
        "Without it VMs come to the target but can't go back.",
        "as pair-transport, on the other host"),
    check("pair-port", "The source can connect to a port of the target out of the range of QEMU's migrations.",
        "The memory, and disks that are copied, go through such a port, not through the transport.",
        "open the range (49152-49215, or migration_port_min and migration_port_max of qemu.conf) in the target's firewall"),
    check("pair-port-back", "The same from the target to the source.",
        "Without it VMs come to the target but can't go back.",
        "as pair-port, on the other host"),
    check("pair-versions", "The target's QEMU and libvirt are not older than the source's.",
        "QEMU can read the state of older releases, not of newer ones.",
        "upgrade the target first"),
    check("pair-clocks", "The clocks of the hosts agree within 1 s.",
        "A guest's clock jumps with its host's; certificates and logs go astray.",
        "chrony or systemd-timesyncd on both"),
    check("vm-source", "The domain runs on the source.",
        "Only a running one can be migrated live.",
        "the source host as OpenNebula knows it: onevm show ID; a poweroff VM is moved by onevm migrate without --live"),
    check("vm-target", "The target has no domain of the same name or UUID.",
        "libvirt refuses a second one. It may be what an earlier attempt left, or the VM itself.",
        "look at it with virsh dominfo on the target before anything is destroyed"),
    check("vm-cpu", "The target provides the CPU that the guest sees.",
        "A guest whose CPU features vanish crashes; libvirt refuses most such migrations.",
        "CPU_MODEL with a model that all hosts of the cluster have"),
    check("vm-machine", "The target's libvirt lists the machine type that the domain runs with.",
        "Machine types are versioned with QEMU.",
        "upgrade QEMU on the target, or name an older machine in OS/MACHINE"),
    check("vm-files", "Emulator and firmware of the domain are on the target at the same path.",
        "The target starts QEMU by that path.",
        "install the same packages on the target, or a link at that path"),
    check("vm-bridges", "The bridges of the domain's interfaces are on the target.",
        "The target's QEMU joins them when it starts.",
        "make the bridge as on the source; network drivers other than dummy make theirs themselves"),
    check("vm-storage", "The disks of the domain are seen on the target at the same path, or can be copied there.",
        "On shared storage both hosts must have the same file under the same path; without it the target needs the room.",
        "mount the datastore on the target, or set SHARED=NO in the system datastore when it is each host's own"),
    check("vm-cache", "The cache modes of the disks are safe for migration on their file system.",
        "libvirt refuses others as unsafe: data that one host has in its cache the other one does not see.",
        "CACHE = none, or a cluster file system; --unsafe in MIGRATE_OPTIONS only if you know that it is"),
    check("vm-devices", "No device binds the domain to its host.",
        "Devices of the host and shared folders can't go along.",
        "detach it before, or power the VM off"),
];
