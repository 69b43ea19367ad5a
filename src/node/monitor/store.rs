//! What the agent keeps over restarts, in `/var/tmp/one_db/kvmad/`: outside the tree that each push of the remotes
//! replaces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::table::Row;
use crate::node::root::Root;

/// Folder that other software of OpenNebula also knows.
pub const SHARED_FOLDER: &str = "/var/tmp/one_db";
/// Ours in it, of this user alone.
pub const FOLDER: &str = "/var/tmp/one_db/kvmad";

/// The kept state of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// The highest EPOCH sent: receivers drop messages with a lower one, so it never goes back with the clock.
    pub epoch: u64,
    /// The VMs.
    pub rows: BTreeMap<i64, Row>,
    /// Names of the attributes of the last SYSTEM_HOST: one that is gone is sent empty once.
    pub attributes: Vec<String>,
}

/// Files of the agent for host `id`.
#[derive(Debug, Clone)]
pub struct Files {
    folder: PathBuf,
    id: i64,
}

impl Files {
    /// Those of host `id`.
    #[must_use]
    pub fn of(root: &Root, id: i64) -> Self {
        Self { folder: root.path(FOLDER), id }
    }

    /// Makes the folders.
    ///
    /// # Errors
    /// What the system says.
    pub fn make(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        if let Some(shared) = self.folder.parent() {
            fs::create_dir_all(shared)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// A file of this agent: lock, socket, state, configuration.
    #[must_use]
    pub fn path(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("host-{}.{kind}", self.id))
    }

    /// The kept state; empty when there is none or it can't be read.
    #[must_use]
    pub fn load(&self) -> Kept {
        let text = fs::read_to_string(self.path("state")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps the state.
    ///
    /// # Errors
    /// What the system says; the old one is then still there.
    pub fn save(&self, kept: &Kept) -> io::Result<()> {
        let text = serde_json::to_vec(kept).map_err(io::Error::other)?;
        replace(&self.path("state"), &text, 0o600)
    }
}

/// Writes a file in one step: beside it, then renamed over it. Links at `path` are replaced, never followed.
///
/// # Errors
/// What the system says; the file is then as it was.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut beside = tempfile::Builder::new().prefix(".kvmad-").tempfile_in(folder)?;
    beside.write_all(content)?;
    beside.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    beside.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_rubbish_is_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = Files::of(&Root::at(dir.path()), 11);
        files.make().expect("made");
        files.make().expect("made again");
        assert_eq!(files.load(), Kept::default());
        let kept = Kept { epoch: 7, attributes: vec!["ARCH".into()], ..Kept::default() };
        files.save(&kept).expect("saved");
        assert_eq!(files.load(), kept);
        assert_eq!(Files::of(&Root::at(dir.path()), 1).load(), Kept::default());
        fs::write(files.path("state"), "{").expect("written");
        assert_eq!(files.load(), Kept::default());
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("victim"), "precious").expect("written");
        std::os::unix::fs::symlink(dir.path().join("victim"), dir.path().join("pid")).expect("linked");
        replace(&dir.path().join("pid"), b"1\n", 0o644).expect("written");
        assert_eq!(fs::read_to_string(dir.path().join("victim")).expect("there"), "precious");
        assert_eq!(fs::read_to_string(dir.path().join("pid")).expect("there"), "1\n");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
