//! The drivers' user and its groups.

use super::account::{Account, group_exists};
use super::edit::Edit;
use super::host::Host;
use super::libvirt_conf::Conf;
use super::{Check, Finding, Group, Verdict};
use crate::node::tools::Tools;

const GROUP: Group = Group::Opennebula;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "user",
        group: GROUP,
        what: "The drivers' user (normally oneadmin) exists on the host.",
        why: "Every action and the monitoring agent run as this user.",
        mend: "Install opennebula-node-kvm, or make the user with the number that it has on the front-end.",
    },
    Check {
        id: "group-libvirt",
        group: GROUP,
        what: "The user is in the group that may use the libvirt daemon: unix_sock_group of libvirtd.conf, else libvirt (older: libvirtd).",
        why: "Without it virsh gets no connection: no VM can be started and monitoring reports an error.",
        mend: "usermod -aG libvirt oneadmin",
    },
    Check {
        id: "group-kvm",
        group: GROUP,
        what: "The user is in the group kvm.",
        why: "QEMU runs as this user and must open /dev/kvm.",
        mend: "usermod -aG kvm oneadmin",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    let account = match &host.account {
        Ok(Some(account)) => account,
        Ok(None) => return nobody(host),
        Err(reason) => {
            let told =
                |id| Finding::unchecked(id, GROUP, reason.clone(), "getent passwd, id -G: do they answer?");
            return ["user", "group-libvirt", "group-kvm"].map(told).into();
        }
    };
    let who = &account.who;
    let user = format!("{} (uid {}, groups {})", who.name, who.uid, account.groups.join(" "));
    let mut all = vec![Finding::ok("user", GROUP, user)];
    if who.uid == 0 {
        let skipped = |id| Finding::skipped(id, GROUP, "root needs no group");
        all.extend(["group-libvirt", "group-kvm"].map(skipped));
        return all;
    }
    all.push(libvirt(host, account).await);
    all.push(member("group-kvm", host, account, &["kvm".to_owned()]).await);
    all
}

fn nobody(host: &Host) -> Vec<Finding> {
    let evidence = format!("there is no user {}", host.user);
    let mend = format!(
        "install opennebula-node-kvm, or: useradd --system --user-group --create-home --home-dir /var/lib/one {} \
         (uid and gid as on the front-end)",
        shell_words::quote(&host.user)
    );
    let mut all = vec![Finding::bad("user", GROUP, Verdict::Failure, evidence.clone(), mend)];
    all.extend(["group-libvirt", "group-kvm"].map(|id| Finding::skipped(id, GROUP, evidence.clone())));
    all
}

async fn libvirt(host: &Host, account: &Account) -> Finding {
    member("group-libvirt", host, account, &libvirt_groups(host)).await
}

/// Groups of which one may use the libvirt daemon.
pub(super) fn libvirt_groups(host: &Host) -> Vec<String> {
    let conf: Option<Conf> = host.libvirtd.known().ok();
    let named = conf.and_then(|conf| conf.text("unix_sock_group")).filter(|name| name != "root");
    match named {
        Some(name) => vec![name],
        None => vec!["libvirt".to_owned(), "libvirtd".to_owned()],
    }
}

/// The first of `groups` that exists, unless the user is in one of them.
///
/// # Errors
/// Why the groups can't be looked up.
pub(super) async fn missing_group(
    tools: &dyn Tools,
    account: &Account,
    groups: &[String],
) -> Result<Option<String>, String> {
    if groups.iter().any(|group| account.groups.contains(group)) {
        return Ok(None);
    }
    for group in groups {
        if group_exists(tools, group).await? {
            return Ok(Some(group.clone()));
        }
    }
    Ok(None)
}

/// In the first of `groups` that exists.
async fn member(id: &'static str, host: &Host, account: &Account, groups: &[String]) -> Finding {
    if let Some(group) = groups.iter().find(|group| account.groups.contains(group)) {
        return Finding::ok(id, GROUP, format!("{} is in group {group}", account.who.name));
    }
    match missing_group(&*host.tools, account, groups).await {
        Ok(Some(group)) => {
            let evidence = format!(
                "{} is not in group {group} (its groups: {})",
                account.who.name,
                account.groups.join(" ")
            );
            let edit = Edit::Member { user: account.who.name.clone(), group };
            let mend = format!("{}; what runs as {} then must log in anew", edit.command(), account.who.name);
            return Finding::bad(id, GROUP, Verdict::Failure, evidence, mend).with_edits([edit]);
        }
        Ok(None) => {}
        Err(reason) => return Finding::unchecked(id, GROUP, reason, "getent group"),
    }
    let package = if id == "group-kvm" { "qemu" } else { "libvirt" };
    let evidence = format!("there is no group {}", groups.join(" or "));
    Finding::bad(id, GROUP, Verdict::Failure, evidence, format!("install the packages of {package}"))
}
