//! Commands of a helper that was killed: found by their records, ended like any whose driver went away.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::records::{COMMAND_VARIABLE, Left, Record, Records, now};
use crate::host::process::group_members;
use crate::wire::Orphan;

/// How often an ending orphan is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How long after KILL an orphan is waited for before new commands start all the same.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// What was found when this helper started, and whether it is gone now.
pub(super) struct Orphans {
    found: Vec<Orphan>,
    gone: CancellationToken,
}

impl Orphans {
    /// Looks for orphans and ends them in the background; records of commands that do not run are taken away.
    pub(super) fn end_all(records: Arc<Records>) -> Self {
        let mut found = Vec::new();
        let mut live = Vec::new();
        for Left { path, records } in records.left() {
            let running: Vec<_> = records.into_iter().filter(|record| !members(record).is_empty()).collect();
            if running.is_empty() {
                let _ = fs::remove_file(path);
                continue;
            }
            for record in &running {
                let age = now().saturating_sub(record.began);
                found.push(Orphan { pid: record.pid, program: record.program.clone(), age });
            }
            live.push((path, running));
        }
        let gone = CancellationToken::new();
        if live.is_empty() {
            gone.cancel();
        } else {
            let done = gone.clone();
            tokio::spawn(async move {
                for (path, records) in live {
                    for record in records {
                        end(&record).await;
                    }
                    let _ = fs::remove_file(path);
                }
                done.cancel();
            });
        }
        Self { found, gone }
    }

    /// What was found.
    pub(super) fn found(&self) -> Vec<Orphan> {
        self.found.clone()
    }

    /// Cancelled when none is left.
    pub(super) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }
}

/// Members of the recorded group that carry the record's name in their environment. A daemon that a command
/// left on purpose has made a group of its own and is not among them.
fn members(record: &Record) -> Vec<Pid> {
    let wanted = format!("{COMMAND_VARIABLE}={}", record.name());
    let Ok(group) = i32::try_from(record.pid) else { return Vec::new() };
    let carries = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|line| line == wanted.as_bytes())
    };
    let pids = group_members(group).into_iter().filter(carries);
    pids.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).collect()
}

async fn end(record: &Record) {
    let all = |signal| {
        for pid in members(record) {
            let _ = kill_process(pid, signal);
        }
    };
    let gone_by = async |deadline: Instant| {
        while Instant::now() < deadline {
            if members(record).is_empty() {
                return true;
            }
            sleep(POLL).await;
        }
        false
    };
    all(Signal::TERM);
    all(Signal::CONT);
    if !gone_by(Instant::now() + Duration::from_millis(record.grace)).await {
        all(Signal::KILL);
        gone_by(Instant::now() + AFTER_KILL).await;
    }
}
