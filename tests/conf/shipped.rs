//! The files that are shipped, read by those who will read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use kvmad::template::Level;
use kvmad::template::text::{Rules, parse};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What bash has in `variable` after reading `path`.
fn in_bash(path: &str, variable: &str) -> String {
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", "set -eu; set -a; . \"$1\"; printf %s \"${!2-unset}\"", "bash"])
        .arg(file(path))
        .arg(variable)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn kvmrc_says_to_bash_what_opennebula_7_4_says_but_leaves_defaults_of_attached_devices_to_the_other_file() {
    for (variable, value) in [
        ("LANG", "C"),
        ("LIBVIRT_URI", "qemu:///system"),
        ("QEMU_PROTOCOL", "qemu+ssh"),
        ("LIBVIRT_MD_URI", "http://opennebula.org/xmlns/libvirt/1.0"),
        ("LIBVIRT_MD_KEY", "one"),
        ("SHUTDOWN_TIMEOUT", "180"),
        ("SYNC_TIME", "yes"),
        ("FORCE_DESTROY", "yes"),
        ("VIRSH_RETRIES", "3"),
        ("VIRSH_TIMEOUT", "60"),
        ("CLEANUP_MEMORY_ON_START", "unset"),
        ("CLEANUP_MEMORY_ON_STOP", "no"),
        ("CANCEL_NO_ACPI", "unset"),
        ("MIGRATE_OPTIONS", "unset"),
        (
            "VIRTIOFSD_BINARY_PATH",
            "/usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd /usr/lib/virtiofsd/virtiofsd",
        ),
        ("OVMF_NVRAM", "/usr/share/OVMF/OVMF_VARS.fd"),
        ("DEFAULT_ATTACH_CACHE", "unset"),
        ("DEFAULT_ATTACH_DISCARD", "unset"),
        ("DEFAULT_ATTACH_NIC_MODEL", "unset"),
    ] {
        assert_eq!(in_bash("remotes/etc/vmm/kvm/kvmrc", variable), value, "{variable}");
    }
}

#[test]
fn vmm_execrc_allows_the_snapshots_that_opennebula_7_4_allows() {
    let pairs = in_bash("etc/vmm_exec/vmm_execrc", "LIVE_DISK_SNAPSHOTS");
    for (mad, count) in [("kvm-", 9), ("qemu-", 6), ("lxc-", 7)] {
        assert_eq!(pairs.split(' ').filter(|pair| pair.starts_with(mad)).count(), count, "{mad}");
    }
    assert_eq!(in_bash("etc/vmm_exec/vmm_execrc", "VNMAD_LOCAL_ACTIONS"), "elastic-post elastic-clean");
}

#[test]
fn the_snippets_for_oned_and_monitord_are_one_entry_each() {
    for (path, vector) in [("etc/snippets/oned.conf", "VM_MAD"), ("etc/snippets/monitord.conf", "IM_MAD")] {
        let text = std::fs::read_to_string(file(path)).expect(path);
        let parsed = parse(&text, Level::Defaults, path, Rules::TEMPLATE);
        assert_eq!((parsed.error, parsed.notices), (None, vec![]), "{path}");
        assert_eq!(parsed.template.attributes().len(), 1, "{path}");
        let entry = parsed.template.vector(vector).expect(vector);
        assert_eq!(entry.get("NAME"), Some("kvm"));
        assert!(
            entry.get("ARGUMENTS").is_some_and(|arguments| arguments.split(' ').any(|word| word == "kvm"))
        );
    }
}
