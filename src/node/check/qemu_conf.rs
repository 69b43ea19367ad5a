//! qemu.conf: as whom QEMU runs, and who changes the owners of images.

use super::edit::Edit;
use super::host::{Host, Loaded, QEMU_CONF};
use super::{Check, Finding, Group, Verdict};

const GROUP: Group = Group::Opennebula;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "qemu-user",
        group: GROUP,
        what: "QEMU runs as the drivers' user: user and group in /etc/libvirt/qemu.conf.",
        why: "The datastores belong to that user; another one can't open the disks of VMs.",
        mend: "user = \"oneadmin\" and group = \"oneadmin\" in /etc/libvirt/qemu.conf, then restart libvirtd (virtqemud).",
    },
    Check {
        id: "qemu-ownership",
        group: GROUP,
        what: "libvirt leaves the owners of images alone: dynamic_ownership = 0 in /etc/libvirt/qemu.conf.",
        why: "Otherwise disks belong to root or another user after a VM has stopped, and the transfer drivers can't move or delete them.",
        mend: "dynamic_ownership = 0 in /etc/libvirt/qemu.conf, then restart libvirtd (virtqemud).",
    },
];

const RESTART: &str = "systemctl restart libvirtd (modular: virtqemud); VMs go on running";

/// All of them.
pub fn all(host: &Host) -> Vec<Finding> {
    if let Loaded::Denied(reason) = &host.qemu {
        let (evidence, mend) = host.denied(QEMU_CONF, reason);
        let told = |id| Finding::unchecked(id, GROUP, evidence.clone(), mend.clone());
        return ["qemu-user", "qemu-ownership"].map(told).into();
    }
    vec![user(host), ownership(host)]
}

fn user(host: &Host) -> Finding {
    let conf = host.qemu.known().unwrap_or_default();
    let wanted = host.user.as_str();
    let uid = match &host.account {
        Ok(Some(account)) => format!("+{}", account.who.uid),
        _ => String::new(),
    };
    let mut edits = Vec::new();
    let mut found = Vec::new();
    for key in ["user", "group"] {
        let value = conf.text(key);
        let as_wanted =
            value.as_deref().is_some_and(|value| value == wanted || (key == "user" && value == uid));
        found.push(match &value {
            Some(value) => format!("{key} = {value:?}"),
            None => format!("no {key}"),
        });
        if !as_wanted {
            edits.push(Edit::Text { file: QEMU_CONF.into(), key: key.into(), value: wanted.into() });
        }
    }
    told("qemu-user", &found.join(", "), edits)
}

fn ownership(host: &Host) -> Finding {
    let conf = host.qemu.known().unwrap_or_default();
    let key = "dynamic_ownership";
    match conf.number(key) {
        Some(0) => told("qemu-ownership", "dynamic_ownership = 0", Vec::new()),
        other => {
            let found = other
                .map_or("no dynamic_ownership (the default is 1)".to_owned(), |n| format!("{key} = {n}"));
            let edit = Edit::Number { file: QEMU_CONF.into(), key: key.into(), value: 0 };
            told("qemu-ownership", &found, vec![edit])
        }
    }
}

fn told(id: &'static str, found: &str, edits: Vec<Edit>) -> Finding {
    let evidence = format!("{QEMU_CONF}: {found}");
    if edits.is_empty() {
        return Finding::ok(id, GROUP, evidence);
    }
    let commands: Vec<String> = edits.iter().map(Edit::command).collect();
    let mend = format!("{}; then {RESTART}", commands.join("; "));
    Finding::bad(id, GROUP, Verdict::Failure, evidence, mend).with_edits(edits).after(RESTART)
}
