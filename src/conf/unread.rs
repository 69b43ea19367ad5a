//! Keys that OpenNebula knows, but that nobody reads from `vmm_exec_kvm.conf`.

/// Why a key that OpenNebula knows has no effect in `vmm_exec_kvm.conf`; `None` when it knows no such key.
/// `member` is empty for a single attribute or a whole vector.
#[must_use]
pub fn why_unread(name: &str, member: &str) -> Option<&'static str> {
    const VM_ONLY: &str = "it is read from the VM only";
    match (name, member) {
        (
            "CPU" | "MEMORY" | "MEMORY_MAX" | "MEMORY_RESIZE_MODE" | "TOPOLOGY" | "NUMA_NODE" | "PCI"
            | "CONTEXT" | "INPUT" | "IOMMU" | "MEMORY_ENCRYPTION" | "NIC_ALIAS",
            _,
        ) => Some(VM_ONLY),
        ("OS", "BOOT") => {
            Some("boot order is OS/BOOT of the VM; a default has had no effect since OpenNebula 5")
        }
        ("OS", "UUID") => Some(VM_ONLY),
        ("GRAPHICS", "PORT") => Some("the port of a display is the VM's own"),
        (
            "DISK",
            "TARGET" | "TYPE" | "SOURCE" | "READONLY" | "SHAREABLE" | "SERIAL" | "ORDER" | "DEV_PREFIX"
            | "SIZE" | "FORMAT" | "IMAGE" | "IMAGE_ID" | "IOTHREAD" | "CLONE" | "LUKS_SECRET",
        ) => Some("it is read from each DISK of the VM only"),
        ("DISK", "VIRTIO_BLK_QUEUES") => Some("the default of disks is FEATURES/VIRTIO_BLK_QUEUES"),
        (
            "NIC",
            "BRIDGE" | "MAC" | "IP" | "TARGET" | "SCRIPT" | "ORDER" | "NETWORK" | "NETWORK_ID"
            | "NETWORK_MODE" | "INBOUND_AVG_BW" | "INBOUND_PEAK_BW" | "INBOUND_PEAK_KB" | "OUTBOUND_AVG_BW"
            | "OUTBOUND_PEAK_BW" | "OUTBOUND_PEAK_KB" | "MTU" | "BRIDGE_TYPE",
        ) => Some("it is read from each NIC of the VM only"),
        ("FEATURES", "HYPERV_OPTIONS" | "HYPERV_TIMERS") => Some("it stands by itself, outside of FEATURES"),
        (
            "NAME"
            | "SUNSTONE_NAME"
            | "EXECUTABLE"
            | "ARGUMENTS"
            | "DEFAULT"
            | "TYPE"
            | "KEEP_SNAPSHOTS"
            | "LIVE_RESIZE"
            | "SUPPORT_SHAREABLE"
            | "IMPORTED_VMS_ACTIONS"
            | "COLD_NIC_ATTACH"
            | "DS_LIVE_MIGRATION",
            "",
        ) => Some("it belongs into the VM_MAD of oned.conf"),
        ("DEFAULT_ATTACH_CACHE" | "DEFAULT_ATTACH_DISCARD" | "DEFAULT_ATTACH_NIC_MODEL", "") => {
            Some("it belongs into kvmrc on the hosts")
        }
        _ => None,
    }
}
