//! What runs, written down: one small file a helper, in a folder of our user, with a place of fixed size for each
//! command that runs at the same time. What was written stays when the helper is killed.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::host::process::Process;
use crate::wire::Open;

/// Variable in the environment of every command: the name of its record. Tells its processes from strangers
/// that got the same number.
pub(super) const COMMAND_VARIABLE: &str = "KVMAD_COMMAND";

/// Bytes of one place. A write of so few is done by the kernel in one go.
const PLACE: usize = 512;

/// Letters of the name of a program that are kept.
const PROGRAM: usize = 200;

/// One command that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The helper that started it: its process number and start time, see [`start_time`].
    pub(super) helper: (u32, u64),
    /// Its number among the helper's commands.
    pub(super) id: u32,
    /// Number of its process and of its group.
    pub(super) pid: u32,
    /// Its program, without arguments: they may hold secrets.
    pub(super) program: String,
    /// When it was started, seconds since 1970.
    pub(super) began: u64,
    /// From TERM to KILL, in milliseconds.
    pub(super) grace: u64,
}

impl Record {
    /// What [`COMMAND_VARIABLE`] is for it.
    pub(super) fn name(&self) -> String {
        name(self.helper, self.id)
    }

    /// Blanks behind it, so that it fills its place.
    fn filled(mut self) -> std::io::Result<Vec<u8>> {
        self.program = self.program.chars().take(PROGRAM).collect();
        let mut text = serde_json::to_vec(&self)?;
        if text.len() > PLACE {
            // A name that is all escapes: it is for people only.
            self.program.clear();
            text = serde_json::to_vec(&self)?;
        }
        text.resize(PLACE, b' ');
        Ok(text)
    }
}

fn name(helper: (u32, u64), id: u32) -> String {
    format!("{}-{}-{id}", helper.0, helper.1)
}

/// The records of this helper, or none when their folder can't be had: commands then run all the same.
#[derive(Debug)]
pub(super) struct Records {
    dir: Option<PathBuf>,
    helper: (u32, u64),
    places: Mutex<Places>,
}

/// The file, once something ran, and which of its places are taken.
#[derive(Debug, Default)]
struct Places {
    file: Option<File>,
    free: Vec<u64>,
    made: u64,
}

/// The record of a running command; dropping it takes it away.
pub(super) struct Written {
    records: Arc<Records>,
    place: Option<u64>,
}

impl Drop for Written {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut places = self.records.places();
        if let Some(file) = &places.file {
            let _ = file.write_all_at(&[b' '; PLACE], place * PLACE as u64);
        }
        places.free.push(place);
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if let (Some(path), Some(_)) = (self.path(), &self.places().file) {
            let _ = fs::remove_file(path);
        }
    }
}

/// What a helper that is gone has left.
pub(super) struct Left {
    /// Its file.
    pub(super) path: PathBuf,
    /// The commands in it.
    pub(super) records: Vec<Record>,
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
        Arc::new(Self { dir: ours.then(|| dir.to_owned()), helper, places: Mutex::default() })
    }

    /// The name of the record of command `id` of this helper.
    pub(super) fn name(&self, id: u32) -> String {
        name(self.helper, id)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{}-{}", self.helper.0, self.helper.1)))
    }

    /// Writes down that `process` runs, as command `id`.
    pub(super) fn add(self: &Arc<Self>, id: u32, process: &Process, open: &Open) -> Written {
        let record = Record {
            helper: self.helper,
            id,
            pid: process.id().unsigned_abs(),
            program: open.argv[0].clone(),
            began: now(),
            grace: u64::try_from(open.grace.as_millis()).unwrap_or(u64::MAX),
        };
        let place = self.path().and_then(|path| match self.write(&path, record) {
            Ok(place) => Some(place),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a running command can't be written down");
                None
            }
        });
        Written { records: self.clone(), place }
    }

    fn write(&self, path: &Path, record: Record) -> std::io::Result<u64> {
        let text = record.filled()?;
        let mut places = self.places();
        if places.file.is_none() {
            // Nobody else has our number and start time.
            let file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
            places.file = Some(file);
        }
        let place = places.free.last().copied().unwrap_or(places.made);
        if let Some(file) = &places.file {
            file.write_all_at(&text, place * PLACE as u64)?;
        }
        if places.free.pop().is_none() {
            places.made += 1;
        }
        Ok(place)
    }

    /// What helpers that are gone have left.
    pub(super) fn left(&self) -> Vec<Left> {
        let Some(entries) = self.dir.as_ref().and_then(|dir| fs::read_dir(dir).ok()) else {
            return Vec::new();
        };
        let of_the_gone = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let helper = name.to_str().and_then(|name| name.split_once('-'));
            let helper = helper.and_then(|(pid, began)| Some((pid.parse().ok()?, began.parse().ok()?)));
            helper.is_some_and(|(pid, began): (u32, u64)| start_time(pid) != Some(began))
        });
        let read = |path: PathBuf| {
            let bytes = fs::read(&path).ok()?;
            let records = bytes.chunks(PLACE).filter_map(|text| serde_json::from_slice(text).ok()).collect();
            Some(Left { path, records })
        };
        of_the_gone.filter_map(|entry| read(entry.path())).collect()
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

    fn record(helper: (u32, u64), id: u32) -> Record {
        Record { helper, id, pid: 1, program: "x".into(), began: 0, grace: 0 }
    }

    fn put(records: &Arc<Records>, id: u32) -> Written {
        let path = records.path().unwrap();
        let place = Some(records.write(&path, record(records.helper, id)).unwrap());
        Written { records: records.clone(), place }
    }

    /// As the next helper would read it.
    fn ids(path: &Path) -> Vec<u32> {
        let bytes = fs::read(path).unwrap();
        bytes
            .chunks(PLACE)
            .filter_map(|text| serde_json::from_slice::<Record>(text).ok())
            .map(|r| r.id)
            .collect()
    }

    #[test]
    fn a_command_is_written_down_as_long_as_it_runs_and_its_place_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        let path = records.path().unwrap();
        assert!(!path.exists());
        let (one, two) = (put(&records, 1), put(&records, 2));
        let three = put(&records, 3);
        assert_eq!(ids(&path), [1, 2, 3]);
        drop(two);
        assert_eq!(ids(&path), [1, 3]);
        let four = put(&records, 4);
        assert_eq!(ids(&path), [1, 4, 3]);
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * PLACE as u64);
        drop((one, three, four));
        assert_eq!(ids(&path), [0u32; 0]);
        drop(records);
        assert!(!path.exists());
    }

    #[test]
    fn a_program_of_any_name_fits_into_its_place() {
        for program in ["x".repeat(5000), "\u{1}".repeat(5000), "ä".repeat(5000), String::new()] {
            let filled = Record { program, ..record((u32::MAX, u64::MAX), u32::MAX) }.filled().unwrap();
            assert_eq!(filled.len(), PLACE);
            let back: Record = serde_json::from_slice(&filled).unwrap();
            assert_eq!((back.pid, back.id), (1, u32::MAX));
        }
    }

    #[test]
    fn only_records_of_helpers_that_are_gone_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        let running = put(&records, 1);
        let other_start = (records.helper.0, records.helper.1 + 1);
        for helper in [other_start, (u32::MAX, 5)] {
            let both = [record(helper, 7).filled().unwrap(), record(helper, 8).filled().unwrap()];
            let mut text = both.concat();
            text[..PLACE].fill(b' ');
            fs::write(dir.path().join(format!("{}-{}", helper.0, helper.1)), text).unwrap();
        }
        fs::write(dir.path().join("4294967295-6"), "{").unwrap();
        fs::write(dir.path().join("garbage"), "{").unwrap();
        let mut left = records.left();
        left.sort_by_key(|left| left.records.first().map(|record| record.helper.1));
        let ids: Vec<Vec<u32>> =
            left.iter().map(|left| left.records.iter().map(|record| record.id).collect()).collect();
        assert_eq!(ids, [vec![], vec![8], vec![8]]);
        drop(running);
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
