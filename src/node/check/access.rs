//! Whether a user, who need not be us, may pass folders and open files: owner, groups, mode and POSIX ACLs.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::node::root::Root;

/// A user with all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// For people.
    pub name: String,
    /// Number of the user.
    pub uid: u32,
    /// Numbers of all groups.
    pub gids: Vec<u32>,
}

/// Passing (folders) or executing.
pub const PASS: u16 = 1;
/// Reading and writing.
pub const READ_WRITE: u16 = 6;
/// Making files in a folder.
pub const FILL: u16 = 3;

/// Whether the way to a file or folder can be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Every folder lets the user pass.
    Open,
    /// The first folder that does not.
    Blocked(PathBuf),
    /// The first part that is not there.
    Missing(PathBuf),
    /// The first part that we can't look at, and why.
    Unknown(PathBuf, String),
}

/// Whether `who` may do all of `want` (bits of `rwx`) with what is at `path`, if the way to it is open.
///
/// # Errors
/// When it can't be looked at.
pub fn may(path: &Path, who: &Who, want: u16) -> io::Result<bool> {
    let meta = std::fs::metadata(path)?;
    let mode = meta.mode();
    if who.uid == 0 {
        return Ok(want & PASS == 0 || meta.is_dir() || mode & 0o111 != 0);
    }
    let rights = |shift: u32| (mode >> shift) as u16 & 7;
    let grants = |rights: u16| rights & want == want;
    if let Some(list) = acl(path) {
        return Ok(list.allows(who, meta.uid(), meta.gid(), want));
    }
    Ok(if meta.uid() == who.uid {
        grants(rights(6))
    } else if who.gids.contains(&meta.gid()) {
        grants(rights(3))
    } else {
        grants(rights(0))
    })
}

/// Walks every parent of `path`, and `path` itself when it is a folder; a link also where it leads to.
#[must_use]
pub fn way(root: &Root, path: &Path, who: &Who) -> Way {
    match walk(root, path, who) {
        Way::Open => match root.resolved(path) {
            Some(real) if real != path => walk(root, &real, who),
            _ => Way::Open,
        },
        other => other,
    }
}

fn walk(root: &Root, path: &Path, who: &Who) -> Way {
    let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    for part in parts {
        let real = root.path(part);
        let looked = std::fs::metadata(&real).and_then(|meta| Ok(!meta.is_dir() || may(&real, who, PASS)?));
        match looked {
            Ok(true) => {}
            Ok(false) => return Way::Blocked(part.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Way::Missing(part.to_owned()),
            Err(error) => return Way::Unknown(part.to_owned(), error.to_string()),
        }
    }
    Way::Open
}

/// An access control list.
#[derive(Debug, Default, PartialEq, Eq)]
struct Acl {
    entries: Vec<(u16, u16, u32)>,
}

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The list of what is at `path`; `None` when it has none beyond its mode.
fn acl(path: &Path) -> Option<Acl> {
    let mut bytes = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut bytes).ok()?;
    Acl::read(bytes.get(..length)?)
}

impl Acl {
    /// Reads the kernel's form: a version (2) of 4 bytes, then entries of tag, rights (2 bytes each) and id (4), all
    /// little-endian.
    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&2u32.to_le_bytes())?;
        let entry = |e: &[u8]| {
            let two = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
            (two(0), two(2), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
        };
        Some(Self { entries: rest.chunks_exact(8).map(entry).collect() })
    }

    fn allows(&self, who: &Who, owner: u32, group: u32, want: u16) -> bool {
        let of = |tag: u16| self.entries.iter().find(|e| e.0 == tag).map_or(0, |e| e.1);
        let mask = self.entries.iter().find(|e| e.0 == MASK).map_or(7, |e| e.1);
        let grants = |rights: u16| rights & want == want;
        if who.uid == owner {
            return grants(of(OWNER));
        }
        if let Some(entry) = self.entries.iter().find(|e| e.0 == USER && e.2 == who.uid) {
            return grants(entry.1 & mask);
        }
        let mine = |e: &&(u16, u16, u32)| match e.0 {
            OWNING_GROUP => who.gids.contains(&group),
            GROUP => who.gids.contains(&e.2),
            _ => false,
        };
        let mut groups = self.entries.iter().filter(mine).peekable();
        if groups.peek().is_some() {
            return groups.any(|e| grants(e.1 & mask));
        }
        grants(of(OTHER))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn who(uid: u32, gids: &[u32]) -> Who {
        Who { name: "u".into(), uid, gids: gids.to_vec() }
    }

    /// A tree of folders with modes, all of them owned by whoever runs the test.
    fn tree(modes: &[(&str, u32)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("mode");
        for (path, mode) in modes {
            let path = dir.path().join(path);
            fs::create_dir_all(&path).expect("made");
            fs::set_permissions(&path, Permissions::from_mode(*mode)).expect("mode");
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn the_first_parent_that_blocks_is_named() {
        let (dir, root) = tree(&[("home", 0o755), ("home/ann", 0o750), ("home/ann/one", 0o700)]);
        let own = dir.path().metadata().expect("meta");
        let stranger = who(own.uid() + 12_345, &[own.gid() + 12_345]);
        let path = Path::new("/home/ann/one");
        assert_eq!(way(&root, path, &stranger), Way::Blocked("/home/ann".into()));
        let mate = who(own.uid() + 12_345, &[own.gid()]);
        assert_eq!(way(&root, path, &mate), Way::Blocked("/home/ann/one".into()));
        assert_eq!(way(&root, path, &who(own.uid(), &[])), Way::Open);
        assert_eq!(way(&root, path, &who(0, &[])), Way::Open);
        assert_eq!(
            way(&root, Path::new("/home/bob/x"), &who(own.uid(), &[])),
            Way::Missing("/home/bob".into())
        );
    }

    #[test]
    fn a_link_is_followed_to_folders_that_block() {
        let (dir, root) = tree(&[("a", 0o755), ("b", 0o700), ("b/c", 0o755)]);
        std::os::unix::fs::symlink(dir.path().join("b/c"), dir.path().join("a/link")).expect("a link");
        let own = dir.path().metadata().expect("meta");
        let stranger = who(own.uid() + 12_345, &[own.gid() + 12_345]);
        // The system itself says so when it follows the link, unless we are root: then the walk of the target does.
        let found = way(&root, Path::new("/a/link"), &stranger);
        assert_eq!(found, Way::Blocked("/b".into()));
    }

    #[test]
    fn the_owner_has_only_the_owners_rights() {
        let (dir, root) = tree(&[("a", 0o077)]);
        let own = dir.path().metadata().expect("meta");
        let owner = who(own.uid() + u32::from(own.uid() == 0), &[]);
        // As root the owner is 0, who may do all: then a stranger is looked at.
        let wanted = if own.uid() == 0 { Way::Open } else { Way::Blocked("/a".into()) };
        assert_eq!(way(&root, Path::new("/a"), &owner), wanted);
    }

    #[test]
    fn an_acl_lets_one_user_pass() {
        let entry = |tag: u16, rights: u16, id: u32| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
        };
        let none = u32::MAX;
        let bytes = [
            2u32.to_le_bytes().to_vec(),
            entry(OWNER, 7, none),
            entry(USER, 1, 64_055),
            entry(USER, 7, 64_056),
            entry(OWNING_GROUP, 5, none),
            entry(GROUP, 0, 50),
            entry(MASK, 5, none),
            entry(OTHER, 0, none),
        ]
        .concat();
        let list = Acl::read(&bytes).expect("a list");
        let allows = |uid, gids: &[u32], want| list.allows(&who(uid, gids), 1000, 100, want);
        assert!(allows(64_055, &[], PASS));
        assert!(!allows(64_055, &[100], 4), "the user's own entry decides, not that of a group");
        assert!(allows(64_056, &[], 5) && !allows(64_056, &[], 2), "the mask bounds it");
        assert!(allows(7, &[100], 5));
        assert!(!allows(7, &[50], PASS) && !allows(7, &[], PASS));
        assert!(allows(1000, &[], 7));
        assert_eq!(Acl::read(&[1, 0, 0, 0]), None);
    }
}
