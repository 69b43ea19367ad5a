//! Watches one program: its limit, its cancel, its end; TERM to the group, a grace, KILL.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::process::{End, Process};

/// Why a program's group was ended, or that it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself.
    Itself,
    /// Its limit passed.
    Limit,
    /// It was cancelled.
    Cancel,
}

/// How long after KILL a program may still be there (in an uninterruptible wait of the kernel) before we go on
/// without it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// How often the members of an ending group are looked at, once its leader is gone.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// Returns when the program has ended, by itself or because its limit passed or it was cancelled. What it left in the
/// background when it exited stays. In all other cases nothing of its group is left, also when somebody else killed it,
/// as `backup_cancel` of a datastore driver does: it had no say in what is to go on.
pub async fn supervise(
    process: &Process,
    limit: Option<Duration>,
    grace: Duration,
    cancel: &CancellationToken,
) -> Cause {
    let cause = tokio::select! {
        biased;
        ended = process.ended() => match ended {
            Ok(End::Signaled(_)) => Cause::Itself,
            Ok(End::Exited(_)) | Err(_) => return Cause::Itself,
        },
        () = passed(limit) => Cause::Limit,
        () = cancel.cancelled() => Cause::Cancel,
    };
    end_group(process, grace).await;
    cause
}

/// TERM to the group, and KILL after `grace` to what is left of it.
pub async fn end_group(process: &Process, grace: Duration) {
    let kill_at = Instant::now() + grace;
    process.signal_group(Signal::TERM);
    // One that was stopped would not see the TERM.
    process.signal_group(Signal::CONT);
    if timeout_at(kill_at, gone(process)).await.is_err() {
        process.signal_group(Signal::KILL);
        let _ = timeout(AFTER_KILL, gone(process)).await;
    }
}

/// Waits for the end of the program and then of all of its group.
async fn gone(process: &Process) {
    // A failed wait can't tell the end; then the group is looked at like after it.
    let _ = process.ended().await;
    while process.group_lives() {
        sleep(GROUP_POLL).await;
    }
}

/// Takes the status of a program that has ended. One that even KILL did not end is waited for in the background
/// and told as killed.
pub async fn collect(process: Process) -> End {
    if timeout(Duration::from_secs(1), process.ended()).await.is_err() {
        tokio::spawn(process.reap());
        return End::Signaled(Signal::KILL.as_raw());
    }
    // The only failure is that somebody else took the status.
    process.reap().await.unwrap_or(End::Exited(255))
}

async fn passed(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}
