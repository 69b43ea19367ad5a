//! The folder of a driver's control sockets, below one that all drivers share.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

/// ssh binds its socket under a name that is 17 characters longer; a socket's name has at most 107.
const LONGEST_BASE: usize = 107 - 17 - "/4194304-999/99999".len();

/// A folder of this driver's own. It holds a lock as long as the driver lives; what a killed driver left is taken
/// away by the next one, as soon as its masters are gone.
#[derive(Debug)]
pub struct ControlDir {
    path: PathBuf,
    _lock: File,
    next: AtomicU32,
}

impl ControlDir {
    /// Makes it below the configured folder, else below `/run/one/kvmad` or a private folder under the run-time
    /// directory or /tmp.
    ///
    /// # Errors
    /// When none of them can be used; names the last one tried.
    pub fn open(configured: Option<&Path>) -> io::Result<Self> {
        if let Some(base) = configured {
            return Self::below(base);
        }
        let user = rustix::process::getuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("kvmad"));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let private = PathBuf::from(format!("/tmp/kvmad-{user}"));
        for base in [Some(PathBuf::from("/run/one/kvmad")), runtime, Some(private)].into_iter().flatten() {
            match Self::below(&base) {
                Ok(dir) => return Ok(dir),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn below(base: &Path) -> io::Result<Self> {
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", base.display()));
        Self::make(base).map_err(told)
    }

    fn make(base: &Path) -> io::Result<Self> {
        if base.as_os_str().as_bytes().len() > LONGEST_BASE {
            return Err(io::Error::other(format!("the name is longer than {LONGEST_BASE} bytes")));
        }
        if !base.exists() {
            fs::DirBuilder::new().mode(0o700).create(base)?;
        }
        let meta = fs::symlink_metadata(base)?;
        if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() || meta.mode() & 0o077 != 0 {
            return Err(io::Error::other(
                "it is no folder that only its owner, the user of this program, can use",
            ));
        }
        // Nobody sweeps while somebody makes.
        let all = lock_file(&base.join("lock"))?;
        flock(&all, FlockOperation::LockExclusive)?;
        sweep(base);
        for number in 0..1000 {
            let path = base.join(format!("{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            let lock = lock_file(&path.join("lock"))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            return Ok(Self { path, _lock: lock, next: AtomicU32::new(0) });
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Names for one more socket and its log.
    #[must_use]
    pub fn names(&self) -> (PathBuf, PathBuf) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (self.path.join(number.to_string()), self.path.join(format!("{number}.log")))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Takes away the folders of drivers that are gone, unless a master still answers in them.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(lock) = File::options().write(true).open(path.join("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() || a_master_answers(&path) {
            continue;
        }
        let _ = fs::remove_dir_all(&path);
    }
}

fn a_master_answers(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| UnixStream::connect(entry.path()).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn private() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        base
    }

    #[test]
    fn two_drivers_have_two_folders_and_leave_none() {
        let base = private();
        let one = ControlDir::open(Some(base.path())).unwrap();
        let two = ControlDir::open(Some(base.path())).unwrap();
        assert_ne!(one.path(), two.path());
        assert_ne!(one.names(), one.names());
        drop((one, two));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "only the lock is left");
    }

    #[test]
    fn what_a_killed_driver_left_is_swept_once_nothing_answers() {
        let base = private();
        let dead = base.path().join("77-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        let master = std::os::unix::net::UnixListener::bind(dead.join("0")).unwrap();
        let live = ControlDir::open(Some(base.path())).unwrap();
        drop(ControlDir::open(Some(base.path())).unwrap());
        assert!(dead.exists() && live.path().exists());
        drop(master);
        drop(ControlDir::open(Some(base.path())).unwrap());
        assert!(!dead.exists() && live.path().exists());
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = ControlDir::open(Some(base.path())).unwrap_err();
        assert!(error.to_string().contains(base.path().to_str().unwrap()), "{error}");
        assert!(ControlDir::open(Some(Path::new(&format!("/tmp/{}", "x".repeat(80))))).is_err());
    }
}
