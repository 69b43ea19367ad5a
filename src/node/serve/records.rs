//! What runs, written down: one small file a command, in a folder of our user.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::host::process::Process;
use crate::wire::Open;

/// Variable in the environment of every command: the name of its record. Tells its processes from strangers
/// that got the same number.
pub(super) const COMMAND_VARIABLE: &str = "KVMAD_COMMAND";

/// One command that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The helper that started it: its process number and start time, see [`start_time`].
    pub(super) helper: (u32, u64),
    /// Number of its process and of its group.
    pub(super) pid: u32,
    /// Its program, without arguments: they may hold secrets.
    pub(super) program: String,
    /// When it was started, seconds since 1970.
    pub(super) began: u64,
    /// From TERM to KILL, in milliseconds.
    pub(super) grace: u64,
}

/// The folder of records, or none when it can't be had: commands then run all the same.
#[derive(Debug)]
pub(super) struct Records {
    dir: Option<PathBuf>,
    helper: (u32, u64),
}

/// The record of a running command; dropping it takes it away.
pub(super) struct Written(Option<PathBuf>);

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Records {
    /// Opens or makes the folder. One that belongs to somebody else, or that others may write to, is not used.
    pub(super) fn open(dir: &Path) -> Arc<Self> {
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let ours = fs::symlink_metadata(dir).is_ok_and(|meta| {
            meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw() && meta.mode() & 0o022 == 0
        });
        let own = std::process::id();
        let helper = (own, start_time(own).unwrap_or(0));
        Arc::new(Self { dir: ours.then(|| dir.to_owned()), helper })
    }

    /// The name of the record of command `id` of this helper.
    pub(super) fn name(&self, id: u32) -> String {
        format!("{}-{}-{id}", self.helper.0, self.helper.1)
    }

    /// Writes down that `process` runs.
    pub(super) fn add(&self, name: &str, process: &Process, open: &Open) -> Written {
        let Some(dir) = &self.dir else { return Written(None) };
        let record = Record {
            helper: self.helper,
            pid: process.id().unsigned_abs(),
            program: open.argv[0].clone(),
            began: now(),
            grace: u64::try_from(open.grace.as_millis()).unwrap_or(u64::MAX),
        };
        let path = dir.join(name);
        let written = serde_json::to_vec(&record).map_err(std::io::Error::from).and_then(|text| {
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| std::io::Write::write_all(&mut file, &text))
        });
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "a running command can't be written down");
        }
        Written(Some(path))
    }

    /// Records of helpers that are gone, with their paths.
    pub(super) fn left(&self) -> Vec<(PathBuf, Record)> {
        let Some(entries) = self.dir.as_ref().and_then(|dir| fs::read_dir(dir).ok()) else {
            return Vec::new();
        };
        let read = |path: PathBuf| Some((path.clone(), serde_json::from_slice(&fs::read(path).ok()?).ok()?));
        let all = entries.flatten().filter_map(|entry| read(entry.path()));
        all.filter(|(_, record): &(_, Record)| start_time(record.helper.0) != Some(record.helper.1)).collect()
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// When a process was started, in clock ticks since boot: with its number it is told from any other.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses come state (field 3) and so on; the start time is field 22.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The stamp of the remotes at `dir`, or of those that this program stands in (`REMOTES/kvmad/CPU/kvmad-node`).
pub(super) fn stamp(dir: Option<&Path>) -> Option<String> {
    let own = std::env::current_exe().ok();
    let dir = dir.map(Path::to_owned).or_else(|| Some(own?.ancestors().nth(3)?.to_owned()))?;
    let text = fs::read_to_string(dir.join(".kvmad/stamp")).ok()?;
    let word = text.split_whitespace().next()?;
    let good = !word.is_empty() && word.len() <= 128 && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    good.then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_start_time_is_steady_and_that_of_nobody_is_none() {
        let own = std::process::id();
        assert!(start_time(own).is_some());
        assert_eq!(start_time(own), start_time(own));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Records::open(dir.path()).dir.is_some());
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Records::open(dir.path()).dir.is_none());
        assert!(Records::open(Path::new("/dev/null/x")).dir.is_none());
    }

    #[test]
    fn only_records_of_helpers_that_are_gone_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        let record = |helper| Record { helper, pid: 1, program: "x".into(), began: 0, grace: 0 };
        let write = |name: &str, record: &Record| {
            fs::write(dir.path().join(name), serde_json::to_vec(record).unwrap()).unwrap();
        };
        write("live", &record(records.helper));
        write("other-start", &record((records.helper.0, records.helper.1 + 1)));
        write("gone", &record((u32::MAX, 5)));
        fs::write(dir.path().join("garbage"), "{").unwrap();
        let mut names: Vec<_> = records.left().into_iter().map(|(path, _)| path).collect();
        names.sort();
        assert_eq!(names, [dir.path().join("gone"), dir.path().join("other-start")]);
    }

    #[test]
    fn a_stamp_is_one_plain_word() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(stamp(Some(dir.path())), None);
        fs::create_dir(dir.path().join(".kvmad")).unwrap();
        let check = |text: &str| {
            fs::write(dir.path().join(".kvmad/stamp"), text).unwrap();
            stamp(Some(dir.path()))
        };
        assert_eq!(check("ab12\n"), Some("ab12".into()));
        assert_eq!(check(""), None);
        assert_eq!(check("../x"), None);
    }
}
