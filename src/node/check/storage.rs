//! Folders of disks: there, and passable for QEMU's user from the root on.

use std::path::Path;

use super::access::{FILL, Way, Who, may, way};
use super::edit::Edit;
use super::host::Host;
use super::{Check, Finding, Group, Verdict};

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "datastores",
        group: Group::Opennebula,
        what: "The folder of the datastores is there and the drivers' user may make files in it.",
        why: "Disks, checkpoints and snapshots of VMs are put below it.",
        mend: "install -d -o oneadmin -g oneadmin /var/lib/one/datastores, or mount the shared file system.",
    },
    Check {
        id: "datastores-path",
        group: Group::Opennebula,
        what: "QEMU's user may pass every parent of the datastores' folder.",
        why: "Otherwise VMs do not start: \"Cannot access storage file ... Permission denied\".",
        mend: "setfacl -m u:QEMUUSER:--x FOLDER for the folder that blocks.",
    },
    Check {
        id: "images-path",
        group: Group::Cloud,
        what: "QEMU's user may pass every parent of the folder of VMs from cloud images.",
        why: "Otherwise these VMs do not start: \"Cannot access storage file ... Permission denied\".",
        mend: "setfacl -m u:QEMUUSER:--x FOLDER for the folder that blocks.",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    let mut all = vec![datastores(host)];
    match host.qemu_user().await {
        Err(reason) => {
            let told = |id, group| {
                Finding::unchecked(id, group, reason.clone(), "name an existing user in qemu.conf")
            };
            all.push(told("datastores-path", Group::Opennebula));
            all.push(told("images-path", Group::Cloud));
        }
        Ok((who, how)) => {
            let who = (&who, how.as_str());
            all.push(path(host, "datastores-path", Group::Opennebula, &host.wanted.datastores, who));
            all.push(path(host, "images-path", Group::Cloud, &host.wanted.images, who));
        }
    }
    all
}

fn datastores(host: &Host) -> Finding {
    let (id, group) = ("datastores", Group::Opennebula);
    let folder = host.wanted.datastores.as_str();
    let edit = Edit::Folder { folder: folder.to_owned(), owner: host.user.clone() };
    let path = host.root.path(folder);
    match std::fs::metadata(&path) {
        Ok(meta) if !meta.is_dir() => Finding::bad(
            id,
            group,
            Verdict::Failure,
            format!("{folder} is no folder"),
            "move it out of the way",
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mend = format!("{} (or mount the shared file system there)", edit.command());
            Finding::bad(id, group, Verdict::Warning, format!("{folder} is not there"), mend)
                .with_edits([edit])
        }
        Err(error) => {
            Finding::unchecked(id, group, format!("{folder}: {error}"), "run it as a user who may look there")
        }
        Ok(_) => {
            let Ok(Some(account)) = &host.account else {
                return Finding::unchecked(
                    id,
                    group,
                    format!("{folder} is there, {} is not known", host.user),
                    "",
                );
            };
            match may(&path, &account.who, FILL) {
                Ok(true) => Finding::ok(id, group, format!("{folder}: {} may make files there", host.user)),
                Ok(false) => {
                    let mend = format!("chown {user}:{user} {folder}", user = host.user);
                    let evidence = format!("{folder}: {} may not make files there", host.user);
                    Finding::bad(id, group, Verdict::Failure, evidence, mend)
                }
                Err(error) => {
                    Finding::unchecked(id, group, format!("{folder}: {error}"), "look at it as root")
                }
            }
        }
    }
}

fn path(host: &Host, id: &'static str, group: Group, folder: &str, (who, how): (&Who, &str)) -> Finding {
    let name = &who.name;
    match way(&host.root, Path::new(folder), who) {
        Way::Open => Finding::ok(id, group, format!("{name} may pass to {folder} ({how})")),
        Way::Missing(part) if part != Path::new("/") => {
            let so_far = part.parent().unwrap_or(Path::new("/")).display();
            Finding::ok(
                id,
                group,
                format!("{name} may pass to {so_far} ({how}); {} is not there yet", part.display()),
            )
        }
        Way::Missing(part) => Finding::unchecked(id, group, format!("{} is not there", part.display()), ""),
        Way::Unknown(part, error) => {
            let mend = "run `kvmad doctor` as root on the host, or `kvmad doctor root@HOST`";
            Finding::unchecked(id, group, format!("{}: {error}", part.display()), mend)
        }
        Way::Blocked(part) => {
            let edit = Edit::Pass { user: name.clone(), folder: part.display().to_string() };
            let evidence =
                format!("{} does not let {name} pass to {folder} (QEMU's user: {how})", part.display());
            let found = Finding::bad(id, group, Verdict::Failure, evidence, edit.command());
            // A guess is no ground for a change.
            if how.starts_with("taken") { found } else { found.with_edits([edit]) }
        }
    }
}
