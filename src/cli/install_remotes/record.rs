//! What was laid over a remotes folder, and where the files that stood there before are kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::named;
use crate::host::push::OWN;

/// What is at a path, as far as it matters: two that are equal need no change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thing {
    /// A file, by its permission bits and the SHA-256 of its content in hexadecimal.
    File {
        /// Permission bits.
        mode: u32,
        /// SHA-256 in hexadecimal.
        sha256: String,
    },
    /// A symbolic link.
    Link(PathBuf),
    /// A folder.
    Folder,
    /// A socket, a device: nothing of ours.
    Other,
}

impl Thing {
    /// What is at `path`; `None` when nothing is. Links are not followed.
    ///
    /// # Errors
    /// When it can't be read; names it.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(named(path, &error)),
        };
        let thing = if meta.is_symlink() {
            Self::Link(fs::read_link(path).map_err(|error| named(path, &error))?)
        } else if meta.is_dir() {
            Self::Folder
        } else if meta.is_file() {
            let sha256 = hash(path).map_err(|error| named(path, &error))?;
            Self::File { mode: meta.permissions().mode() & 0o7777, sha256 }
        } else {
            Self::Other
        };
        Ok(Some(thing))
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One file that was laid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Laid {
    /// What was laid.
    pub now: Thing,
    /// What stood there before, kept in the folder of backups; `None`: nothing.
    pub before: Option<Thing>,
}

/// All that was laid over one remotes folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the kvmad that laid it.
    pub version: String,
    /// A run was cut off in the middle: what stands as before still waits to be laid.
    pub pending: bool,
    /// Files, by path below the remotes.
    pub files: BTreeMap<String, Laid>,
    /// Folders that were made, by path below the remotes.
    pub folders: Vec<String>,
    /// The text of the stamp before, where there was one.
    pub stamp: Option<String>,
}

/// The folder of the record and the backups, below the remotes. It never goes to hosts.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// That of the remotes at `remotes`.
    #[must_use]
    pub fn of(remotes: &Path) -> Self {
        Self { folder: remotes.join(OWN).join("installed") }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self) -> PathBuf {
        self.folder.join("record.json")
    }

    /// Where what stood at `path` before is kept.
    #[must_use]
    pub fn backup(&self, path: &str) -> PathBuf {
        self.folder.join("before").join(path)
    }

    /// A free place for an older backup of `path`, which is never thrown away.
    #[must_use]
    pub fn earlier(&self, path: &str) -> PathBuf {
        let folder = self.folder.join("earlier");
        let mut number = 1;
        loop {
            let place = folder.join(format!("{path}.{number}"));
            if fs::symlink_metadata(&place).is_err() {
                return place;
            }
            number += 1;
        }
    }

    /// Reads the record; `None`: nothing was laid.
    ///
    /// # Errors
    /// When it is there but can't be read or understood; nothing may be changed then.
    pub fn read(&self) -> io::Result<Option<Record>> {
        match fs::read(self.file()) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| named(&self.file(), &error.into()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(&self.file(), &error)),
        }
    }

    /// Writes the record in one step; it is on the disk before this returns.
    ///
    /// # Errors
    /// When it can't be written; names it.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let told = |error: &io::Error| named(&self.file(), error);
        let mut text = serde_json::to_vec_pretty(record).map_err(|error| told(&error.into()))?;
        text.push(b'\n');
        fs::create_dir_all(&self.folder).map_err(|error| told(&error))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(|error| told(&error))?;
        file.write_all(&text).map_err(|error| told(&error))?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(|error| told(&error))?;
        file.as_file().sync_all().map_err(|error| told(&error))?;
        file.persist(self.file()).map_err(|error| told(&error.error))?;
        Ok(())
    }

    /// Removes the record, and every folder of the store in which nothing is left.
    ///
    /// # Errors
    /// When the record can't be removed.
    pub fn close(&self) -> io::Result<()> {
        match fs::remove_file(self.file()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(named(&self.file(), &error)),
            _ => {}
        }
        remove_empty(&self.folder);
        Ok(())
    }
}

/// Removes `folder` and the folders below it as far as they are empty.
pub fn remove_empty(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // One that is not empty stays; that is the point.
    let _ = fs::remove_dir(folder);
}
