//! Space of the datastores on this host.
//!
//! A file system can hang (a server of NFS that is gone), so each question is asked on a thread of its own with a
//! deadline; the agent goes on and asks again next time, when the thread has come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::text::vector;
use crate::node::root::Root;

/// Space in MiB, rounded up as `df -B1M` does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Used.
    pub used: u64,
    /// All of it.
    pub total: u64,
    /// Free for users.
    pub free: u64,
}

impl Space {
    /// Space of the file system at `path`.
    ///
    /// # Errors
    /// What statvfs says.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        let told = rustix::fs::statvfs(path)?;
        let mib = |blocks: u64| {
            let bytes = u128::from(blocks) * u128::from(told.f_frsize.max(1));
            u64::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u64::MAX)
        };
        Ok(Self {
            used: mib(told.f_blocks.saturating_sub(told.f_bfree)),
            total: mib(told.f_blocks),
            free: mib(told.f_bavail),
        })
    }
}

/// A datastore on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datastore {
    /// Its number, the name of its folder.
    pub id: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Content of `.monitor`: the name of its transfer driver. `None`: it is not watched here.
    pub driver: Option<String>,
}

/// The numbered folders in the datastore location, by number.
#[must_use]
pub fn list(root: &Root, location: &str) -> Vec<Datastore> {
    let mut all: Vec<Datastore> = root
        .names(location)
        .iter()
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|name| {
            let path = Path::new(location).join(name);
            let driver = root.line(path.join(".monitor"));
            Some(Datastore { id: name.parse().ok()?, path: root.path(&path), driver })
        })
        .collect();
    all.sort_by_key(|datastore| datastore.id);
    all
}

/// Asks for space without being held up.
#[derive(Debug, Default, Clone)]
pub struct Asker {
    pending: Arc<Mutex<BTreeMap<PathBuf, ()>>>,
}

impl Asker {
    /// Space at `path`, or the reason, within `limit`. While an earlier question about the same path still hangs it is
    /// not asked again.
    ///
    /// # Errors
    /// A text for people.
    pub async fn space(&self, path: &Path, limit: Duration) -> Result<Space, String> {
        let hangs = || format!("{}: the file system does not answer", path.display());
        let pending = |all: &Mutex<BTreeMap<PathBuf, ()>>, add: bool| {
            let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if add { all.insert(path.to_owned(), ()).is_some() } else { all.remove(path).is_some() }
        };
        if pending(&self.pending, true) {
            return Err(hangs());
        }
        let (asked, all) = (path.to_owned(), Arc::clone(&self.pending));
        let (tell, told) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("statvfs".into()).stack_size(64 << 10);
        let started = thread.spawn(move || {
            let space = Space::at(&asked);
            all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&asked);
            let _ = tell.send(space);
        });
        if let Err(error) = started {
            pending(&self.pending, false);
            return Err(format!("no thread to ask for the space of {}: {error}", path.display()));
        }
        match tokio::time::timeout(limit, told).await {
            Ok(Ok(Ok(space))) => Ok(space),
            Ok(Ok(Err(error))) => Err(format!("{}: {error}", path.display())),
            Ok(Err(_)) | Err(_) => Err(hangs()),
        }
    }
}

/// DS_LOCATION_* and DS attributes for SYSTEM_HOST. The location is made when it is missing; its figures must be in
/// every message (0 when they can't be had). Trouble goes to `complain`.
pub async fn attributes(
    root: &Root,
    location: &str,
    asker: &Asker,
    limit: Duration,
    text: &mut String,
    mut complain: impl FnMut(String),
) {
    let folder = root.path(location);
    if let Err(error) = std::fs::create_dir_all(&folder) {
        complain(format!("the datastore location {location} can't be made: {error}"));
    }
    let space = asker.space(&folder, limit).await.unwrap_or_else(|reason| {
        complain(reason);
        Space::default()
    });
    for (name, value) in [("USED", space.used), ("TOTAL", space.total), ("FREE", space.free)] {
        text.push_str(&format!("DS_LOCATION_{name}_MB={value}\n"));
    }
    for datastore in list(root, location) {
        let Some(driver) = &datastore.driver else { continue };
        match asker.space(&datastore.path, limit).await {
            Ok(space) => block(text, &datastore, driver, space),
            Err(reason) => complain(reason),
        }
    }
}

fn block(text: &mut String, datastore: &Datastore, driver: &str, space: Space) {
    let mut pairs = vec![("ID", datastore.id.to_string())];
    if driver == "replica" {
        pairs.extend(replica(&datastore.path));
    }
    pairs.push(("USED_MB", space.used.to_string()));
    pairs.push(("TOTAL_MB", space.total.to_string()));
    pairs.push(("FREE_MB", space.free.to_string()));
    vector(text, "DS", &pairs);
}

/// What a cache of images holds: its images (files named by hexadecimal digits) and the space of all its files.
fn replica(folder: &Path) -> [(&'static str, String); 3] {
    use std::os::unix::fs::MetadataExt as _;
    let (mut images, mut bytes) = (0_u64, 0_u64);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        bytes += meta.blocks() * 512;
        let name = entry.file_name();
        let image = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b) || *b == b'-';
        images += u64::from(meta.is_file() && name.as_encoded_bytes().iter().all(image));
    }
    [
        ("REPLICA_CACHE", "YES".to_owned()),
        ("REPLICA_CACHE_SIZE", human(bytes)),
        ("REPLICA_IMAGES", images.to_string()),
    ]
}

/// A size as `du -h` writes it: one decimal below 10, rounded up.
fn human(bytes: u64) -> String {
    let mut size = bytes.div_ceil(1024) as f64;
    for unit in ["K", "M", "G", "T"] {
        if size < 9.95 {
            return format!("{:.1}{unit}", (size * 10.0).ceil() / 10.0);
        }
        if size < 1024.0 {
            return format!("{}{unit}", size.ceil());
        }
        size /= 1024.0;
    }
    format!("{}P", size.ceil())
}

/// AUTONFS_MOUNT: sources of what is mounted at the datastore folders that hold `.automounted`.
#[must_use]
pub fn automounts(root: &Root, location: &str) -> Vec<String> {
    let mounts = root.read("/proc/self/mounts").unwrap_or_default();
    let mut sources = Vec::new();
    for name in root.names(location) {
        let folder = Path::new(location).join(&name);
        if !root.exists(folder.join(".automounted")) {
            continue;
        }
        let wanted = normal(&folder.to_string_lossy());
        let found = mounts.lines().rev().find_map(|line| {
            let mut words = line.split(' ');
            let source = words.next()?;
            (normal(&unescape(words.next()?)) == wanted).then(|| unescape(source))
        });
        sources.extend(found);
    }
    sources
}

/// A path without doubled slashes.
fn normal(path: &str) -> PathBuf {
    Path::new(path).components().collect()
}

/// `\040` and the like in /proc/mounts.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watched_datastores_are_told_and_the_location_always() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("ds/0/.monitor", "ssh\n"),
            ("ds/101/x", ""),
            ("ds/1/.monitor", "replica"),
            ("ds/1/ab-1", "x"),
            ("ds/vms/.monitor", "ssh"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let root = Root::at(dir.path());
        let mut text = String::new();
        let limit = Duration::from_secs(5);
        attributes(&root, "/ds", &Asker::default(), limit, &mut text, |reason| panic!("{reason}")).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        let space = Space::at(dir.path()).expect("there");
        assert_eq!(lines[1], format!("DS_LOCATION_TOTAL_MB={}", space.total));
        assert!(lines[3].starts_with("DS = [ ID = \"0\", USED_MB = \""), "{text}");
        assert!(
            lines[4].starts_with("DS = [ ID = \"1\", REPLICA_CACHE = \"YES\", REPLICA_CACHE_SIZE = \""),
            "{text}"
        );
        assert!(lines[4].contains("REPLICA_IMAGES = \"1\", USED_MB"), "{text}");
        assert_eq!(super::super::super::text::check(&text), Ok(()));
    }

    #[tokio::test]
    async fn a_location_that_can_not_be_made_is_zero_and_said() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("ds"), "a file").expect("written");
        let (mut text, mut said) = (String::new(), Vec::new());
        let root = Root::at(dir.path());
        let limit = Duration::from_secs(5);
        attributes(&root, "/ds/x", &Asker::default(), limit, &mut text, |reason| said.push(reason)).await;
        assert_eq!(text, "DS_LOCATION_USED_MB=0\nDS_LOCATION_TOTAL_MB=0\nDS_LOCATION_FREE_MB=0\n");
        assert_eq!(said.len(), 2);
    }

    #[tokio::test]
    async fn a_question_that_hangs_is_not_asked_twice() {
        let asker = Asker::default();
        asker.pending.lock().expect("free").insert("/hangs".into(), ());
        let reason = asker.space(Path::new("/hangs"), Duration::from_secs(5)).await.expect_err("pending");
        assert_eq!(reason, "/hangs: the file system does not answer");
    }

    #[test]
    fn automounts_are_found_by_their_mark() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("ds/7/.automounted", ""),
            ("ds/8/x", ""),
            ("proc/self/mounts", "srv:/a\\040b /ds/7 nfs rw 0 0\nsrv:/c /ds/8 nfs rw 0 0\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        assert_eq!(automounts(&Root::at(dir.path()), "//ds"), ["srv:/a b"]);
    }

    #[test]
    fn sizes_are_written_as_du_does() {
        for (bytes, written) in [
            (0, "0.0K"),
            (4096, "4.0K"),
            (10 << 10, "10K"),
            (1 << 20, "1.0M"),
            (1536 << 20, "1.5G"),
            (100 << 30, "100G"),
        ] {
            assert_eq!(human(bytes), written);
        }
    }
}
