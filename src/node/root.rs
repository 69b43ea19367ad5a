//! Where /proc, /sys, /etc, /var and /run are read: the system itself, or a copy of parts of it in tests.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The folder that counts as `/`.
#[derive(Debug, Clone, Default)]
pub struct Root {
    below: Option<PathBuf>,
}

/// The most that is read from one file, in bytes.
const MOST: u64 = 32 << 20;

impl Root {
    /// The system's own `/`.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// `folder` in place of `/`.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { below: Some(folder.into()) }
    }

    /// Where the absolute `path` lies.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match &self.below {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// Content of a file, made valid UTF-8; `None` when it can't be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let file = fs::File::open(self.path(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// First line of a file, without blanks around.
    #[must_use]
    pub fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.read(path)?.lines().next().unwrap_or("").trim().to_owned())
    }

    /// A number that stands alone in a file.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// Names in a folder, in byte order; none when it is not there.
    #[must_use]
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is something at `path` (links followed).
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The absolute path, below this root, to which `path` leads when every link is followed.
    #[must_use]
    pub fn resolved(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let real = fs::canonicalize(self.path(path)).ok()?;
        match &self.below {
            Some(root) => Some(Path::new("/").join(real.strip_prefix(fs::canonicalize(root).ok()?).ok()?)),
            None => Some(real),
        }
    }

    /// Last part of the target of a link.
    #[must_use]
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }
}
