//! How another host reaches this one's libvirt for a migration, and what this host is called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::edit::Edit;
use super::host::Host;
use super::kvm::find;
use super::{Check, Finding, Group, Verdict};
use crate::node::root::Root;
use crate::node::tools::Ask;

const GROUP: Group = Group::Migration;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "libvirt-tcp",
        group: GROUP,
        what: "With QEMU_PROTOCOL=qemu+tcp in kvmrc: libvirt listens on TCP port 16509.",
        why: "The other host can't hand over a VM otherwise.",
        mend: "systemctl enable --now libvirtd-tcp.socket (modular: virtproxyd-tcp.socket); without systemd: listen_tcp = 1 in libvirtd.conf and libvirtd --listen.",
    },
    Check {
        id: "libvirt-tcp-auth",
        group: GROUP,
        what: "Where libvirt listens on TCP, it asks for a name (auth_tcp is not \"none\"), or listens on one private address only.",
        why: "Whoever reaches that port has root's rights on the host.",
        mend: "Let the firewall pass port 16509 from the other hosts only, set listen_addr to the address of the migration network, or use qemu+tls or qemu+ssh.",
    },
    Check {
        id: "libvirt-tls",
        group: GROUP,
        what: "With QEMU_PROTOCOL=qemu+tls in kvmrc: libvirt listens on TCP port 16514, and the certificates are there.",
        why: "The other host can't hand over a VM otherwise.",
        mend: "Certificates in /etc/pki/CA and /etc/pki/libvirt, then systemctl enable --now libvirtd-tls.socket.",
    },
    Check {
        id: "libvirt-ssh",
        group: GROUP,
        what: "With QEMU_PROTOCOL=qemu+ssh in kvmrc (the default): virt-ssh-helper or nc is there.",
        why: "libvirt on the other host starts one of them here to reach this host's daemon.",
        mend: "apt-get install netcat-openbsd (dnf install nmap-ncat); virt-ssh-helper comes with libvirt 6.8 and later.",
    },
    Check {
        id: "host-uuid",
        group: GROUP,
        what: "The host has a UUID of its own, not one that a mainboard's maker gave to all.",
        why: "libvirt refuses a migration between two hosts with one UUID: \"Attempt to migrate guest to the same host\".",
        mend: "host_uuid = \"a new one from uuidgen\" in libvirtd.conf, then restart libvirtd.",
    },
    Check {
        id: "host-name",
        group: GROUP,
        what: "The host's own name resolves to an address that others can reach, not to a loopback one.",
        why: "It is what the source of a migration connects to unless migration_host of qemu.conf says otherwise.",
        mend: "The host's address in /etc/hosts or DNS in place of 127.0.1.1, or migration_host in qemu.conf.",
    },
    Check {
        id: "post-copy",
        group: GROUP,
        what: "QEMU may handle page faults of the kernel (vm.unprivileged_userfaultfd), which post-copy migration needs.",
        why: "Without it libvirt says \"Postcopy is not supported\"; other migrations work.",
        mend: "sysctl -w vm.unprivileged_userfaultfd=1, and the same in /etc/sysctl.d/",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    vec![tcp(host), tcp_auth(host), tls(host), ssh(host), uuid(host), name(host).await, post_copy(host)]
}

/// Addresses on which something listens on `port`.
fn listening(root: &Root, port: u16) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in root.read(file).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&"0A")) = (words.get(1), words.get(3)) else { continue };
            let Some((address, number)) = local.split_once(':') else { continue };
            if u16::from_str_radix(number, 16) == Ok(port)
                && let Some(address) = kernel_address(address)
            {
                found.push(address);
            }
        }
    }
    found
}

/// The kernel prints addresses as words of 32 bits, each in the byte order of the machine.
fn kernel_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => word(0).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes))),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

fn shown(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

fn tcp(host: &Host) -> Finding {
    let id = "libvirt-tcp";
    let listens: Vec<IpAddr> =
        listening(&host.root, 16509).into_iter().filter(|address| !address.is_loopback()).collect();
    if !host.protocol().ends_with("+tcp") {
        let evidence = format!("QEMU_PROTOCOL is {}", host.protocol());
        return Finding::skipped(id, GROUP, evidence);
    }
    if !listens.is_empty() {
        return Finding::ok(id, GROUP, format!("libvirt listens on {}, port 16509", shown(&listens)));
    }
    let socket = if host.libvirtd_file.ends_with("libvirtd.conf") {
        "libvirtd-tcp.socket"
    } else {
        "virtproxyd-tcp.socket"
    };
    let set = host.libvirtd.known().is_ok_and(|conf| conf.number("listen_tcp") == Some(1));
    let evidence = format!(
        "nothing listens on TCP port 16509{}",
        if set { format!(", although {} has listen_tcp = 1", host.libvirtd_file) } else { String::new() }
    );
    let edit = Edit::Number { file: host.libvirtd_file.into(), key: "listen_tcp".into(), value: 1 };
    let start = format!(
        "systemctl enable --now {socket} (libvirtd must be stopped for it), or libvirtd --listen (libvirtd_opts in /etc/default/libvirtd, LIBVIRTD_ARGS in /etc/sysconfig/libvirtd)"
    );
    if set {
        return Finding::bad(id, GROUP, Verdict::Failure, evidence, start);
    }
    let mend = format!("{}; then {start}", edit.command());
    Finding::bad(id, GROUP, Verdict::Failure, evidence, mend).with_edits([edit]).after(start)
}

fn tcp_auth(host: &Host) -> Finding {
    let id = "libvirt-tcp-auth";
    let listens: Vec<IpAddr> =
        listening(&host.root, 16509).into_iter().filter(|address| !address.is_loopback()).collect();
    if listens.is_empty() {
        return Finding::skipped(id, GROUP, "libvirt does not listen on TCP");
    }
    let conf = match host.libvirtd.known() {
        Ok(conf) => conf,
        Err(reason) => {
            let (evidence, mend) = host.denied(host.libvirtd_file, &reason);
            return Finding::unchecked(id, GROUP, evidence, mend);
        }
    };
    let auth = conf.text("auth_tcp").unwrap_or_else(|| "sasl".to_owned());
    if auth != "none" {
        return Finding::ok(id, GROUP, format!("auth_tcp = {auth:?}"));
    }
    let private = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    };
    let where_ = shown(&listens);
    if listens.iter().all(private) {
        return Finding::ok(id, GROUP, format!("auth_tcp = \"none\", on {where_} only: a private network"));
    }
    let evidence = format!("auth_tcp = \"none\" in {}, and libvirt listens on {where_}", host.libvirtd_file);
    let mend = "let the firewall pass port 16509 from the other hosts only; or listen_addr = \"ADDRESS of the migration network\" \
                in libvirtd.conf; or QEMU_PROTOCOL=qemu+tls or qemu+ssh";
    Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
}

fn tls(host: &Host) -> Finding {
    let id = "libvirt-tls";
    if !host.protocol().ends_with("+tls") {
        return Finding::skipped(id, GROUP, format!("QEMU_PROTOCOL is {}", host.protocol()));
    }
    let conf = host.libvirtd.known().unwrap_or_default();
    let file = |key: &str, standard: &str| conf.text(key).unwrap_or_else(|| standard.to_owned());
    let files = [
        file("ca_file", "/etc/pki/CA/cacert.pem"),
        file("cert_file", "/etc/pki/libvirt/servercert.pem"),
        "/etc/pki/libvirt/clientcert.pem".to_owned(),
    ];
    let missing: Vec<&String> = files.iter().filter(|file| !host.root.exists(file)).collect();
    if let Some(first) = missing.first() {
        let evidence = format!("{first} is not there (or may not be looked at by {})", host.user);
        return Finding::bad(
            id,
            GROUP,
            Verdict::Failure,
            evidence,
            "make the certificates: https://libvirt.org/kbase/tlscerts.html",
        );
    }
    let listens = listening(&host.root, 16514);
    if listens.is_empty() {
        let mend = "systemctl enable --now libvirtd-tls.socket (modular: virtproxyd-tls.socket), or listen_tls = 1 and libvirtd --listen";
        return Finding::bad(id, GROUP, Verdict::Failure, "nothing listens on TCP port 16514", mend);
    }
    Finding::ok(
        id,
        GROUP,
        format!("libvirt listens on {}, port 16514; the certificates are there", shown(&listens)),
    )
}

fn ssh(host: &Host) -> Finding {
    let id = "libvirt-ssh";
    if !host.protocol().ends_with("+ssh") {
        return Finding::skipped(id, GROUP, format!("QEMU_PROTOCOL is {}", host.protocol()));
    }
    let found = ["virt-ssh-helper", "nc"].into_iter().find_map(|name| find(&host.root, name));
    match found {
        Some(path) => Finding::ok(id, GROUP, path.display().to_string()),
        None => {
            let mend = "apt-get install netcat-openbsd (dnf install nmap-ncat)";
            Finding::bad(id, GROUP, Verdict::Failure, "neither virt-ssh-helper nor nc is in PATH", mend)
        }
    }
}

/// UUIDs that makers of mainboards gave to many.
fn is_dummy(uuid: &str) -> bool {
    let digits: Vec<char> = uuid.chars().filter(|c| *c != '-').collect();
    let one_digit = digits.first().is_some_and(|first| digits.iter().all(|c| c == first));
    one_digit || uuid.eq_ignore_ascii_case("03000200-0400-0500-0006-000700080009")
}

fn uuid(host: &Host) -> Finding {
    let id = "host-uuid";
    let told = match &host.capabilities {
        Ok(told) => told.root().text_at("host/uuid").unwrap_or_default(),
        Err(reason) => return Finding::unchecked(id, GROUP, reason.clone(), "see the check libvirt"),
    };
    let uuid = told.trim();
    if uuid.is_empty() || is_dummy(uuid) {
        let mend = format!(
            "host_uuid = \"$(uuidgen)\" (the number itself) in {}; then restart libvirtd",
            host.libvirtd_file
        );
        let evidence = format!("the host's UUID is {uuid:?}, which other hosts have, too");
        return Finding::bad(id, GROUP, Verdict::Failure, evidence, mend);
    }
    Finding::ok(id, GROUP, uuid)
}

async fn name(host: &Host) -> Finding {
    let id = "host-name";
    let node = host.names.node.as_str();
    if let Ok(conf) = host.qemu.known()
        && let Some(name) = conf.text("migration_host")
    {
        return Finding::ok(id, GROUP, format!("migration_host = {name:?} in qemu.conf"));
    }
    let limit = Duration::from_secs(15);
    let told = host.tools.ask(Ask::new("getent", ["--", "ahosts", node], limit)).await;
    let told = match told.map(|answer| (answer.ended, answer.stdout)) {
        Ok((crate::node::tools::Ended::Exited(0 | 2), told)) => told,
        Ok((ended, _)) => {
            return Finding::unchecked(id, GROUP, format!("getent: {ended:?}"), "getent ahosts NAME");
        }
        Err(reason) => return Finding::unchecked(id, GROUP, reason, "getent ahosts NAME"),
    };
    let addresses: Vec<IpAddr> =
        told.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let mend = format!(
        "the address of {node} in /etc/hosts (in place of 127.0.1.1) or DNS, on every host; or migration_host = \"ADDRESS\" in /etc/libvirt/qemu.conf"
    );
    if addresses.is_empty() {
        let evidence = format!("the host's own name {node} does not resolve on it");
        return Finding::bad(id, GROUP, Verdict::Warning, evidence, mend);
    }
    if addresses.iter().all(IpAddr::is_loopback) {
        let evidence = format!("the host's own name {node} resolves to {} on it", shown(&addresses[..1]));
        return Finding::bad(id, GROUP, Verdict::Warning, evidence, mend);
    }
    let first = addresses.iter().find(|address| !address.is_loopback());
    Finding::ok(id, GROUP, format!("{node} is {}", first.map_or(String::new(), IpAddr::to_string)))
}

fn post_copy(host: &Host) -> Finding {
    let id = "post-copy";
    match host.root.line("/proc/sys/vm/unprivileged_userfaultfd").as_deref() {
        Some("0") if host.root.exists("/dev/userfaultfd") => Finding::skipped(
            id,
            GROUP,
            "vm.unprivileged_userfaultfd = 0; QEMU 8.1 and later can use /dev/userfaultfd if its user may open it",
        ),
        Some("0") => Finding::skipped(
            id,
            GROUP,
            "vm.unprivileged_userfaultfd = 0: only post-copy migration needs it \
             (sysctl -w vm.unprivileged_userfaultfd=1)",
        ),
        Some(_) => Finding::ok(id, GROUP, "vm.unprivileged_userfaultfd = 1"),
        None => Finding::skipped(id, GROUP, "this kernel has no vm.unprivileged_userfaultfd"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_from_the_kernels_tables() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("proc/net")).expect("made");
        // As on a little-endian machine: 10.77.0.11:22 and 0.0.0.0:16509 listen, one connection to 16509 is open.
        let table = "  sl  local_address rem_address   st\n\
                     0: 0B004D0A:0016 00000000:0000 0A 0\n\
                     1: 00000000:407D 00000000:0000 0A 0\n\
                     2: 0B004D0A:407D 0C004D0A:9000 01 0\n";
        std::fs::write(dir.path().join("proc/net/tcp"), table).expect("written");
        let six = "  sl  local_address\n0: 00000000000000000000000001000000:407D 0:0 0A\n";
        std::fs::write(dir.path().join("proc/net/tcp6"), six).expect("written");
        let root = Root::at(dir.path());
        if cfg!(target_endian = "little") {
            assert_eq!(
                listening(&root, 16509),
                ["0.0.0.0", "::1"].map(|a| a.parse::<IpAddr>().expect("one"))
            );
            assert_eq!(listening(&root, 22), ["10.77.0.11".parse::<IpAddr>().expect("one")]);
        }
        assert!(listening(&root, 23).is_empty());
        assert_eq!(kernel_address("xx"), None);
    }

    #[test]
    fn uuids_that_many_have_are_known() {
        for dummy in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-ffff-FFFF-FFFF-FFFFFFFFFFFF".to_ascii_uppercase().as_str(),
            "03000200-0400-0500-0006-000700080009",
        ] {
            assert!(is_dummy(dummy), "{dummy}");
        }
        assert!(!is_dummy("6b071181-4406-4d06-8fd7-5629e3f1e044"));
    }
}
