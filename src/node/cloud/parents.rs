//! Which folder on the way to a file keeps QEMU's user out. libvirt says "Permission denied" and names the file only.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use super::Ground;
use crate::node::root::Root;
use crate::node::tools::Ask;

const LIMIT: Duration = Duration::from_secs(10);

/// Users that QEMU runs as when qemu.conf names none: Debian and Ubuntu, Fedora and RHEL.
const STANDARD: [&str; 2] = ["libvirt-qemu", "qemu"];

/// What keeps QEMU's user from `path`, with the command that mends it; `None` when nothing is found.
pub async fn blocked(ground: &Ground, path: &Path) -> Option<String> {
    let named = configured(&ground.root);
    let candidates: Vec<String> = match named {
        Some(user) => vec![user],
        None => STANDARD.map(str::to_owned).to_vec(),
    };
    for user in candidates {
        let Some(ids) = ids(ground, &user).await else { continue };
        return first_blocking(path, &ids).map(|(folder, what)| {
            let shown = folder.display();
            format!(
                "{shown} {what} user {user}, as which QEMU runs; allow it to pass: setfacl -m u:{user}:--x {shown}"
            )
        });
    }
    None
}

/// `user` of qemu.conf.
fn configured(root: &Root) -> Option<String> {
    let text = root.read("/etc/libvirt/qemu.conf")?;
    let value = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "user").then(|| value.trim().trim_matches('"').trim_start_matches('+').to_owned())
    };
    text.lines().filter(|line| !line.trim_start().starts_with('#')).filter_map(value).next_back()
}

/// User and groups by their numbers.
struct Ids {
    user: u32,
    groups: Vec<u32>,
}

async fn ids(ground: &Ground, user: &str) -> Option<Ids> {
    let ask = |option: &str| Ask::new("id", [option, "--", user], LIMIT);
    let number = ground.tools().ask(ask("-u")).await.ok()?.good("id", LIMIT).ok()?;
    let groups = ground.tools().ask(ask("-G")).await.ok()?.good("id", LIMIT).ok()?;
    let groups = groups.split_whitespace().filter_map(|group| group.parse().ok()).collect();
    Some(Ids { user: number.trim().parse().ok()?, groups })
}

/// The first folder above `path` that these ids can't pass. Permissions beyond the mode (ACLs) can't be seen; a folder
/// that has some counts as passable.
fn first_blocking<'a>(path: &'a Path, ids: &Ids) -> Option<(&'a Path, &'static str)> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
    parents.reverse();
    if ids.user == 0 {
        return None;
    }
    for folder in parents {
        let Ok(meta) = fs::metadata(folder) else {
            return Some((folder, "can't be looked into, so perhaps not by"));
        };
        let mode = meta.permissions().mode();
        let bit = if meta.uid() == ids.user {
            0o100
        } else if ids.groups.contains(&meta.gid()) {
            0o010
        } else {
            0o001
        };
        if mode & bit == 0 && !has_acl(folder) {
            return Some((folder, "blocks"));
        }
    }
    None
}

fn has_acl(path: &Path) -> bool {
    let mut buffer = [0_u8; 4096];
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut buffer).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_blocks_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let inner = dir.path().join("home/me/images");
        fs::create_dir_all(&inner).expect("folders");
        let mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        mode(dir.path(), 0o755);
        mode(&dir.path().join("home"), 0o755);
        mode(&dir.path().join("home/me"), 0o750);
        mode(&inner, 0o700);
        let stranger = Ids { user: 64055, groups: vec![64055] };
        let file = inner.join("disk.0");
        let (folder, _) = first_blocking(&file, &stranger).expect("blocked");
        assert_eq!(folder, dir.path().join("home/me"));
        mode(&dir.path().join("home/me"), 0o751);
        assert_eq!(
            first_blocking(&file, &stranger).map(|(folder, _)| folder.to_owned()),
            Some(inner.clone())
        );
        mode(&inner, 0o711);
        assert!(first_blocking(&file, &stranger).is_none());
        assert!(first_blocking(&file, &Ids { user: 0, groups: vec![] }).is_none());
    }

    #[test]
    fn the_user_of_qemu_conf_is_the_last_that_is_not_a_comment() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join("etc/libvirt")).expect("a folder");
        let text = "#user = \"root\"\nuser = \"a\"\n user=\"oneadmin\"\ngroup = \"x\"\n";
        fs::write(dir.path().join("etc/libvirt/qemu.conf"), text).expect("a file");
        assert_eq!(configured(&Root::at(dir.path())).as_deref(), Some("oneadmin"));
    }
}
