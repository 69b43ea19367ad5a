//! One agent for each host id: who holds the lock, and how it is ended. A process is told by the lock it holds and by
//! its exact words, never by a part of a command line: host 1 is not host 11.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::files::pid_file;
use super::store::Files;
use crate::node::root::Root;

/// How long an agent may take to end after TERM, and after KILL.
const TERM_WAIT: Duration = Duration::from_millis(1500);
const KILL_WAIT: Duration = Duration::from_secs(3);

/// The lock of a host id, held as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a lock is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// an agent for host {id} already runs (process {pid})
    #[error("an agent for host {id} already runs (process {pid})")]
    Held {
        /// Id of the host.
        id: i64,
        /// Its process, as far as it can be told.
        pid: String,
    },
    /// {path}: {source}
    #[error("{path}: {source}")]
    Io {
        /// The lock file, or its folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

fn open(files: &Files) -> Result<File, LockError> {
    let path = files.path("lock");
    let failed = |source| LockError::Io { path: path.display().to_string(), source };
    files.make().map_err(failed)?;
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nofollow)
        .open(&path);
    options.map_err(failed)
}

impl Lock {
    /// Takes the lock for this process.
    ///
    /// # Errors
    /// [`LockError::Held`] when another agent has it.
    pub fn take(files: &Files, id: i64) -> Result<Self, LockError> {
        let mut file = open(files)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(LockError::Held { id, pid: pid.trim().to_owned() });
        }
        // Only for people and for the end of this agent; the lock itself is what counts.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Ends every agent of host `id`: ours and one of OpenNebula. Returns how many there were.
///
/// # Errors
/// When one does not end.
pub fn end(root: &Root, files: &Files, id: i64) -> Result<usize, String> {
    let mut ended = 0;
    let own = std::process::id();
    for pid in agents(root, id).into_iter().filter(|pid| *pid != own) {
        end_process(pid)?;
        ended += 1;
    }
    // One that holds the lock but could not be told by its words.
    match Lock::take(files, id) {
        Ok(lock) => drop(lock),
        Err(LockError::Held { pid, .. }) => {
            if let Ok(pid) = pid.parse() {
                end_process(pid)?;
                ended += 1;
            }
        }
        Err(error) => return Err(error.to_string()),
    }
    let _ = std::fs::remove_file(root.path(pid_file(id)));
    Ok(ended)
}

/// Processes whose words are exactly those of an agent for host `id`: `kvmad-node monitor agent ... --host-id ID`, the same
/// with `push`, or
/// `ruby .../monitord-client.rb HYPERVISOR ID HOST`.
fn agents(root: &Root, id: i64) -> Vec<u32> {
    let id = id.to_string();
    let is_agent = |words: &[&str]| {
        let ours = words.get(1) == Some(&"monitor")
            && words.get(2).is_some_and(|word| ["agent", "push"].contains(word));
        if ours {
            return words.windows(2).any(|pair| pair == ["--host-id", id.as_str()]);
        }
        let script = words.iter().position(|word| word.rsplit('/').next() == Some("monitord-client.rb"));
        script.is_some_and(|at| at == 1 && words.get(at + 2) == Some(&id.as_str()))
    };
    let mut found = Vec::new();
    for name in root.names("/proc") {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let text = root.read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = text.split('\0').collect();
        if is_agent(&words) {
            found.push(pid);
        }
    }
    found
}

/// TERM, and KILL when that is not enough. A process that is not there any more is no error.
fn end_process(pid: u32) -> Result<(), String> {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(fd) = rustix::process::pidfd_open(number, PidfdFlags::empty()) else { return Ok(()) };
    for (signal, wait) in [(Signal::TERM, TERM_WAIT), (Signal::KILL, KILL_WAIT)] {
        if let Err(error) = rustix::process::pidfd_send_signal(&fd, signal) {
            if error == rustix::io::Errno::SRCH {
                return Ok(());
            }
            return Err(format!("the agent (process {pid}) can't be ended: {error}"));
        }
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            if matches!(rustix::event::poll(&mut polled, Some(&time)), Ok(1..)) {
                return Ok(());
            }
            if left.is_zero() {
                break;
            }
        }
    }
    Err(format!("the agent (process {pid}) does not end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_one_for_each_host() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = Root::at(dir.path());
        let files = Files::of(&root, 1);
        let lock = Lock::take(&files, 1).expect("free");
        let error = Lock::take(&files, 1).expect_err("held").to_string();
        assert_eq!(error, format!("an agent for host 1 already runs (process {})", std::process::id()));
        Lock::take(&Files::of(&root, 11), 11).expect("another host");
        drop(lock);
        Lock::take(&files, 1).expect("free again");
    }

    #[test]
    fn agents_are_told_by_their_exact_words() {
        let dir = tempfile::tempdir().expect("a folder");
        for (pid, words) in [
            (10, "/x/kvmad-node|monitor|agent|--hypervisor|kvm|--host-id|1|--host|node1"),
            (11, "/x/kvmad-node|monitor|agent|--hypervisor|kvm|--host-id|11|--host|node11"),
            (12, "ruby|/var/tmp/one/im/kvm.d/monitord-client.rb|kvm|1|node1"),
            (13, "ruby|/var/tmp/one/im/kvm.d/monitord-client.rb|kvm|11|node1"),
            (14, "vi|-|monitord-client.rb|kvm|1"),
            (15, "grep|monitor|x|--host-id|1"),
        ] {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).expect("made");
            std::fs::write(folder.join("cmdline"), words.replace('|', "\0")).expect("written");
        }
        assert_eq!(agents(&Root::at(dir.path()), 1), [10, 12]);
        assert_eq!(agents(&Root::at(dir.path()), 11), [11, 13]);
        assert!(agents(&Root::at(dir.path()), 111).is_empty());
    }
}
