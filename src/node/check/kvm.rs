//! What a VM needs of its host: CPU, /dev/kvm, libvirt, QEMU.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::access::{READ_WRITE, may};
use super::account_checks::{libvirt_groups, missing_group};
use super::edit::Edit;
use super::host::Host;
use super::{Check, Finding, Group, Verdict};
use crate::node::monitor::collect::cpu::has_flag;
use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;
use crate::template::Level;
use crate::template::text::{Rules, parse_bytes};

const KVM: &str = "/dev/kvm";
const VHOST_MEND: &str = "modprobe vhost_net, and a line vhost_net in /etc/modules-load.d/vhost_net.conf; or take VIRTIO_QUEUES out of \
    /etc/one/vmm_exec/vmm_exec_kvm.conf";

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "cpu-virtualization",
        group: Group::Kvm,
        what: "The CPU's virtualization is on: vmx or svm in /proc/cpuinfo, or /dev/kvm is there (other architectures have no such flag).",
        why: "Without it there is no hardware acceleration.",
        mend: "Switch VT-x or AMD-V on in the firmware set-up; in a VM: allow nested virtualization on its host.",
    },
    Check {
        id: "dev-kvm",
        group: Group::Kvm,
        what: "/dev/kvm is there and the drivers' user may open it for reading and writing.",
        why: "QEMU runs as that user; VMs of type kvm do not start otherwise. (Hosts for type qemu need none: --emulated.)",
        mend: "modprobe kvm_intel (kvm_amd); usermod -aG kvm oneadmin",
    },
    Check {
        id: "kvm-modules",
        group: Group::Kvm,
        what: "The kernel modules kvm and kvm_intel or kvm_amd are loaded, or built in.",
        why: "Without them there is no /dev/kvm.",
        mend: "modprobe kvm_intel or modprobe kvm_amd",
    },
    Check {
        id: "vhost-net",
        group: Group::Kvm,
        what: "/dev/vhost-net is there, or NIC/VIRTIO_QUEUES of vmm_exec_kvm.conf is not set.",
        why: "With VIRTIO_QUEUES the driver of virtio network cards is vhost: libvirt refuses such a VM on a host without it.",
        mend: VHOST_MEND,
    },
    Check {
        id: "virsh",
        group: Group::Kvm,
        what: "virsh is in PATH.",
        why: "Every action script and the monitoring agent call it.",
        mend: "apt-get install libvirt-clients (dnf install libvirt-client)",
    },
    Check {
        id: "libvirt",
        group: Group::Kvm,
        what: "The libvirt daemon answers the drivers' user, and is 0.4.0 or later, but not 0.8.7.",
        why: "Nothing works without it. libvirt 0.8.7 breaks connections: \"cannot close file: Bad file descriptor\".",
        mend: "systemctl start libvirtd (modular: virtqemud.socket); usermod -aG libvirt oneadmin",
    },
    Check {
        id: "libvirt-kvm",
        group: Group::Kvm,
        what: "libvirt offers domains of type kvm for the host's architecture.",
        why: "The daemon itself found no way to use KVM: no emulator, or no /dev/kvm.",
        mend: "See the checks dev-kvm and emulator; then restart libvirtd.",
    },
    Check {
        id: "emulator",
        group: Group::Kvm,
        what: "QEMU for the host's architecture is there.",
        why: "It runs the VMs.",
        mend: "apt-get install qemu-system-x86 (dnf install qemu-kvm)",
    },
    Check {
        id: "qemu-img",
        group: Group::Kvm,
        what: "qemu-img is in PATH.",
        why: "The transfer drivers and snapshots use it.",
        mend: "apt-get install qemu-utils (dnf install qemu-img)",
    },
    Check {
        id: "iso-maker",
        group: Group::Cloud,
        what: "genisoimage, mkisofs or xorriso is there.",
        why: "It makes the CD with the settings of a VM from a cloud image.",
        mend: "apt-get install genisoimage (or xorriso)",
    },
    Check {
        id: "virt-install",
        group: Group::Cloud,
        what: "virt-install is there.",
        why: "Some guides ask for it; kvmad does not use it.",
        mend: "apt-get install virtinst",
    },
];

/// All of them, for the drivers' user of the host.
pub async fn all(host: &Host) -> Vec<Finding> {
    let root = &host.root;
    let device = joined(host, for_user(host, device_for(host)), &["kvm".to_owned()]).await;
    let mut all = vec![cpu(root), device, modules(root), vhost(host), virsh(root)];
    all.push(joined(host, for_user(host, libvirt(&host.virsh).await), &libvirt_groups(host)).await);
    all.push(offers_kvm(host));
    all.extend(tools(root, &host.names.machine));
    all
}

/// The CPU's virtualization is switched on. The flags are evidence only: other architectures have none, and with
/// /dev/kvm there is no doubt.
pub fn cpu(root: &Root) -> Finding {
    let id = "cpu-virtualization";
    if let Some(flag) = ["vmx", "svm"].into_iter().find(|flag| has_flag(root, flag)) {
        return Finding::ok(id, Group::Kvm, format!("/proc/cpuinfo lists {flag}"));
    }
    if root.exists(KVM) {
        return Finding::ok(id, Group::Kvm, "/proc/cpuinfo lists neither vmx nor svm, but /dev/kvm is there");
    }
    let mend =
        "switch virtualization (VT-x, AMD-V) on in the firmware set-up, or allow nested virtualization";
    Finding::bad(id, Group::Kvm, Verdict::Warning, "/proc/cpuinfo lists neither vmx nor svm", mend)
}

/// /dev/kvm is there and may be opened for reading and writing.
pub fn device(root: &Root, emulated: bool) -> Finding {
    let id = "dev-kvm";
    let serious = if emulated { Verdict::Warning } else { Verdict::Failure };
    match std::fs::File::options().read(true).write(true).open(root.path(KVM)) {
        Ok(_) => Finding::ok(id, Group::Kvm, "/dev/kvm can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mend = "modprobe kvm_intel (or kvm_amd); in a VM: allow nested virtualization on its host";
            Finding::bad(id, Group::Kvm, serious, "/dev/kvm is not there", mend)
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let mend = "usermod -aG kvm oneadmin, and /dev/kvm of group kvm with mode 0660";
            Finding::bad(id, Group::Kvm, serious, "/dev/kvm may not be opened by this user", mend)
        }
        Err(error) => Finding::bad(
            id,
            Group::Kvm,
            serious,
            format!("/dev/kvm can't be opened: {error}"),
            "dmesg | grep kvm",
        ),
    }
}

/// A finding about what the drivers' user may do: its mend names that user, and nothing is well when there is no such user
/// (it was tried as whoever we are).
fn for_user(host: &Host, mut found: Finding) -> Finding {
    if found.verdict == Verdict::Ok
        && let Some(why) = host.no_account()
    {
        found.verdict = Verdict::CouldNotCheck;
        found.evidence = format!("{why}; for others: {}", found.evidence);
        found.mend = "see the check user".to_owned();
        return found;
    }
    found.mend = found.mend.replace(" oneadmin", &format!(" {}", shell_words::quote(&host.user)));
    found
}

/// The same with what makes the drivers' user a member of one of `groups`, when that may be what is missing.
async fn joined(host: &Host, found: Finding, groups: &[String]) -> Finding {
    let Ok(Some(account)) = &host.account else { return found };
    if found.verdict != Verdict::Failure || account.who.uid == 0 {
        return found;
    }
    match missing_group(&*host.tools, account, groups).await {
        Ok(Some(group)) => found.with_edits([Edit::Member { user: account.who.name.clone(), group }]),
        // The checks of the groups tell what is wrong with them.
        Ok(None) | Err(_) => found,
    }
}

/// vhost-net is there when the defaults of domains ask for it: libvirt refuses such network cards otherwise.
fn vhost(host: &Host) -> Finding {
    let id = "vhost-net";
    if host.root.exists("/dev/vhost-net") || host.root.exists("/sys/module/vhost_net") {
        return Finding::ok(id, Group::Kvm, "vhost-net is there");
    }
    let file = format!("{}/etc/vmm/kvm/vmm_exec_kvm.conf", host.wanted.remotes);
    let bytes = match std::fs::read(host.root.path(&file)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::skipped(id, Group::Kvm, "no vhost-net; the host has no defaults of domains yet");
        }
        Err(error) => return Finding::unchecked(id, Group::Kvm, format!("{file}: {error}"), ""),
    };
    let (_, parsed) = parse_bytes(&bytes, Level::Defaults, &file, Rules::DEFAULTS);
    let nic = parsed.template.vector("NIC");
    let Some(queues) = nic.as_ref().and_then(|nic| nic.filled("VIRTIO_QUEUES")) else {
        return Finding::skipped(id, Group::Kvm, "no vhost-net; the defaults of domains do not ask for it");
    };
    let evidence = format!("no vhost-net, but NIC/VIRTIO_QUEUES = {queues:?} in {file}");
    Finding::bad(id, Group::Kvm, Verdict::Warning, evidence, VHOST_MEND)
}

/// The same for the drivers' user when that is not us.
fn device_for(host: &Host) -> Finding {
    let device = device(&host.root, host.wanted.emulated);
    let Ok(Some(account)) = &host.account else { return device };
    if !host.root_rights || account.who.uid == 0 || device.verdict != Verdict::Ok {
        return device;
    }
    match may(&host.root.path(KVM), &account.who, READ_WRITE) {
        Ok(true) => Finding::ok("dev-kvm", Group::Kvm, format!("{KVM} can be opened by {}", host.user)),
        Ok(false) => {
            closed(&host.user, if host.wanted.emulated { Verdict::Warning } else { Verdict::Failure })
        }
        Err(error) => Finding::unchecked("dev-kvm", Group::Kvm, format!("{KVM}: {error}"), ""),
    }
}

fn closed(user: &str, verdict: Verdict) -> Finding {
    let mend = "usermod -aG kvm oneadmin, and /dev/kvm of group kvm with mode 0660 (chgrp kvm /dev/kvm; chmod 660 /dev/kvm)";
    Finding::bad("dev-kvm", Group::Kvm, verdict, format!("/dev/kvm may not be opened by {user}"), mend)
}

/// libvirt's own word on it.
fn offers_kvm(host: &Host) -> Finding {
    let id = "libvirt-kvm";
    let told = match &host.capabilities {
        Ok(told) => told.root(),
        Err(reason) => return Finding::unchecked(id, Group::Kvm, reason.clone(), "see the check libvirt"),
    };
    let arch = told.text_at("host/cpu/arch").unwrap_or_default();
    let kinds: Vec<&str> = told
        .children("guest")
        .flat_map(|guest| guest.children("arch"))
        .filter(|offer| offer.attribute("name") == Some(arch.trim()))
        .flat_map(|offer| offer.children("domain"))
        .filter_map(|domain| domain.attribute("type"))
        .collect();
    let evidence = format!(
        "libvirt offers for {}: {}",
        arch.trim(),
        if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") }
    );
    let wanted = if host.wanted.emulated { "qemu" } else { "kvm" };
    if kinds.contains(&wanted) {
        return Finding::ok(id, Group::Kvm, evidence);
    }
    let mend =
        "see the checks dev-kvm and emulator; then systemctl restart libvirtd (virtqemud): it looks once";
    Finding::bad(id, Group::Kvm, Verdict::Failure, evidence, mend)
}

/// The kernel modules. Kernels with kvm built in have none, so absence alone is no fault.
pub fn modules(root: &Root) -> Finding {
    let id = "kvm-modules";
    let there: Vec<&str> = ["kvm", "kvm_intel", "kvm_amd"]
        .into_iter()
        .filter(|name| root.exists(format!("/sys/module/{name}")))
        .collect();
    if !there.is_empty() {
        return Finding::ok(id, Group::Kvm, format!("loaded: {}", there.join(", ")));
    }
    if root.exists(KVM) {
        return Finding::ok(id, Group::Kvm, "no module kvm, but /dev/kvm is there (built in)");
    }
    Finding::bad(
        id,
        Group::Kvm,
        Verdict::Warning,
        "no module kvm is loaded",
        "modprobe kvm_intel or modprobe kvm_amd",
    )
}

/// `virsh` is in PATH.
pub fn virsh(root: &Root) -> Finding {
    match find(root, "virsh") {
        Some(path) => Finding::ok("virsh", Group::Kvm, path.display().to_string()),
        None => {
            let mend = "apt-get install libvirt-clients (dnf install libvirt-client)";
            Finding::bad("virsh", Group::Kvm, Verdict::Failure, "virsh is not in PATH", mend)
        }
    }
}

/// The libvirt daemon answers, and is not the release whose connections break.
pub async fn libvirt(virsh: &Virsh) -> Finding {
    let id = "libvirt";
    let told = match virsh.run(&["version"], Bytes::new(), Duration::from_secs(20)).await {
        Ok(told) => told,
        Err(reason) => {
            let mend = "systemctl start libvirtd (or virtqemud.socket); usermod -aG libvirt oneadmin";
            let evidence = format!("{} does not answer: {reason}", virsh.uri());
            return Finding::bad(id, Group::Kvm, Verdict::Failure, evidence, mend);
        }
    };
    // "Using library: libvirt 9.0.0" in every locale's first line: its last word is the number.
    let version = told.lines().find_map(|line| line.rsplit(' ').next().filter(|word| word.contains('.')));
    match version {
        Some("0.8.7") => Finding::bad(
            id,
            Group::Kvm,
            Verdict::Warning,
            "libvirt 0.8.7 breaks connections (cannot close file: Bad file descriptor)",
            "upgrade libvirt",
        ),
        Some(version) if older(version, [0, 4, 0]) => Finding::bad(
            id,
            Group::Kvm,
            Verdict::Failure,
            format!("libvirt {version} is older than 0.4.0"),
            "upgrade libvirt",
        ),
        Some(version) => Finding::ok(id, Group::Kvm, format!("{} answers, libvirt {version}", virsh.uri())),
        None => Finding::ok(id, Group::Kvm, format!("{} answers", virsh.uri())),
    }
}

fn older(version: &str, than: [u32; 3]) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0)) < than
}

/// QEMU for the CPU's architecture, qemu-img, and what cloud-image VMs need.
pub fn tools(root: &Root, machine: &str) -> Vec<Finding> {
    let system = match machine {
        "i686" | "i586" | "i486" => "i386",
        other => other,
    };
    let emulators =
        [format!("qemu-system-{system}"), "qemu-kvm".to_owned(), "kvm".to_owned(), "qemu-kvm-one".to_owned()];
    let emulator = emulators.iter().find_map(|name| find(root, name)).or_else(|| {
        let path = root.path("/usr/libexec/qemu-kvm");
        path.exists().then_some(path)
    });
    let isos = ["genisoimage", "mkisofs", "xorriso"];
    let failure = (Group::Kvm, Verdict::Failure);
    let warning = (Group::Cloud, Verdict::Warning);
    vec![
        tool(
            "emulator",
            failure,
            emulator,
            &format!("qemu-system-{system}"),
            "install QEMU: apt-get install qemu-system-x86 (dnf install qemu-kvm)",
        ),
        tool(
            "qemu-img",
            failure,
            find(root, "qemu-img"),
            "qemu-img",
            "apt-get install qemu-utils (dnf install qemu-img)",
        ),
        tool(
            "iso-maker",
            warning,
            isos.iter().find_map(|name| find(root, name)),
            "genisoimage, mkisofs or xorriso",
            "apt-get install genisoimage (or xorriso)",
        ),
        tool(
            "virt-install",
            warning,
            find(root, "virt-install"),
            "virt-install",
            "apt-get install virtinst (only asked for by some guides; kvmad does not use it)",
        ),
    ]
}

fn tool(
    id: &'static str,
    (group, verdict): (Group, Verdict),
    path: Option<PathBuf>,
    wanted: &str,
    mend: &str,
) -> Finding {
    match path {
        Some(path) => Finding::ok(id, group, path.display().to_string()),
        None => Finding::bad(id, group, verdict, format!("{wanted} is not there"), mend),
    }
}

/// The first executable of this name in PATH (and the folders that ssh sessions of a user often lack).
pub(super) fn find(root: &Root, name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]);
    folders.filter(|folder| folder.starts_with('/')).map(|folder| root.path(folder).join(name)).find(|path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::fake::Fake;

    fn host(files: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        for path in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(&path, "processor: 0\nflags: fpu vmx\n").expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_good_host_is_ok() {
        let (_dir, root) = host(&[
            "proc/cpuinfo",
            "dev/kvm",
            "sys/module/kvm/x",
            "usr/bin/virsh",
            "usr/bin/qemu-system-x86_64",
            "usr/bin/qemu-img",
            "usr/bin/xorriso",
        ]);
        let mut all = vec![cpu(&root), device(&root, false), modules(&root), virsh(&root)];
        all.extend(tools(&root, "x86_64"));
        let bad: Vec<&Finding> = all.iter().filter(|f| f.verdict != Verdict::Ok).collect();
        assert_eq!(bad.iter().map(|f| f.id.as_ref()).collect::<Vec<_>>(), ["virt-install"]);
    }

    #[test]
    fn a_bare_host_says_what_is_missing_and_how_to_mend_it() {
        let (_dir, root) = host(&[]);
        let mut all = vec![cpu(&root), device(&root, false), modules(&root), virsh(&root)];
        all.extend(tools(&root, "x86_64"));
        let failed: Vec<&str> =
            all.iter().filter(|f| f.verdict == Verdict::Failure).map(|f| f.id.as_ref()).collect();
        assert_eq!(failed, ["dev-kvm", "virsh", "emulator", "qemu-img"]);
        assert!(all.iter().filter(|f| f.verdict != Verdict::Ok).all(|f| !f.mend.is_empty()));
        assert_eq!(device(&root, true).verdict, Verdict::Warning);
    }

    #[tokio::test]
    async fn libvirt_is_told_by_its_answer() {
        let check = |answer: Result<&'static str, i32>| async move {
            let tools =
                Fake(move |_: &_| answer.map(str::to_owned).map_err(|status| (status, "down".to_owned())));
            libvirt(&Virsh::new(Arc::new(tools), "qemu:///system", Duration::from_secs(1))).await
        };
        let good = check(Ok("Compiled against library: libvirt 9.0.0\nUsing API: QEMU 9.0.0\n")).await;
        assert_eq!(
            (good.verdict, good.evidence.as_str()),
            (Verdict::Ok, "qemu:///system answers, libvirt 9.0.0")
        );
        assert_eq!(check(Ok("library: libvirt 0.8.7\n")).await.verdict, Verdict::Warning);
        assert_eq!(check(Ok("library: libvirt 0.3.9\n")).await.verdict, Verdict::Failure);
        assert_eq!(check(Ok("library: libvirt 0.4.0\n")).await.verdict, Verdict::Ok);
        let down = check(Err(1)).await;
        assert_eq!(down.verdict, Verdict::Failure);
        assert!(down.evidence.contains("down"));
    }
}
