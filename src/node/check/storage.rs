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
        id: "images",
        group: Group::Cloud,
        what: "The folder of VMs from cloud images is there, and the user may make files in it; or the user may make it.",
        why: "`kvmad vm create` puts a folder for each VM into it.",
        mend: "install -d -o USER -g USER /var/lib/libvirt/images/kvmad",
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
    let wanted = &host.wanted;
    let mut all = vec![
        folder(host, "datastores", Group::Opennebula, &wanted.datastores),
        folder(host, "images", Group::Cloud, &wanted.images),
    ];
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

/// Whether the drivers' user may make files in `folder`.
fn folder(host: &Host, id: &'static str, group: Group, folder: &str) -> Finding {
    let path = host.root.path(folder);
    match std::fs::metadata(&path) {
        Ok(meta) if !meta.is_dir() => {
            let mend = "move it out of the way";
            Finding::bad(id, group, Verdict::Failure, format!("{folder} is no folder"), mend)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing(host, id, group, folder),
        Err(error) => {
            let mend = "run it as a user who may look there";
            Finding::unchecked(id, group, format!("{folder}: {error}"), mend)
        }
        Ok(_) => {
            let Ok(Some(account)) = &host.account else {
                let evidence = format!("{folder} is there, {} is not known", host.user);
                return Finding::unchecked(id, group, evidence, "");
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

fn missing(host: &Host, id: &'static str, group: Group, folder: &str) -> Finding {
    let edit = Edit::Folder { folder: folder.to_owned(), owner: host.user.clone() };
    let evidence = format!("{folder} is not there");
    if id == "images" {
        let parent = Path::new(folder).parent().map(|parent| host.root.path(parent));
        if let (Ok(Some(account)), Some(parent)) = (&host.account, parent)
            && may(&parent, &account.who, FILL).unwrap_or(false)
        {
            return Finding::ok(id, group, format!("{evidence} yet; {} may make it", host.user));
        }
        return Finding::bad(id, group, Verdict::Warning, evidence, edit.command()).with_edits([edit]);
    }
    let mend = format!("{} (or mount the shared file system there)", edit.command());
    Finding::bad(id, group, Verdict::Warning, evidence, mend).with_edits([edit])
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
