//! Runs a local program to its end and keeps what it printed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::collect::Collector;
use super::process::{End, Process, Start, StartError};
use super::supervise::{Cause, collect, supervise};

/// Bounds of one run.
#[derive(Debug, Clone)]
pub struct Limits {
    /// After this time TERM goes to the group. `None`: no limit.
    pub limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
    /// Bytes of stdout and of stderr that are kept, each; the rest is read and thrown away.
    pub cap: usize,
    /// Cancelling it ends the program like the limit.
    pub cancel: CancellationToken,
}

impl Default for Limits {
    /// No time limit, 30 s of grace, 16 MiB of each output, never cancelled.
    fn default() -> Self {
        Self { limit: None, grace: Duration::from_secs(30), cap: 16 << 20, cancel: CancellationToken::new() }
    }
}

/// What is left of a program.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Whether we ended it.
    pub cause: Cause,
    /// Its stdout, up to the cap.
    pub stdout: Vec<u8>,
    /// Its stderr, up to the cap.
    pub stderr: Vec<u8>,
    /// Bytes beyond the caps.
    pub dropped: u64,
    /// From start to end.
    pub took: Duration,
}

/// Runs `start`, feeds it `stdin`, and returns at the end of the program itself, also when a child of it in the
/// background still holds its pipes. That it does not read its stdin is no error. Each line of stderr goes to
/// `on_stderr` as soon as it is there.
///
/// # Errors
/// [`StartError`] when it could not be started; how it ended is in [`Finished`].
pub async fn run(
    start: &Start,
    stdin: Bytes,
    limits: &Limits,
    on_stderr: &(dyn Fn(&str) + Send + Sync),
) -> Result<Finished, StartError> {
    let began = Instant::now();
    let (process, mut pipes) = Process::start(start).await?;
    let output = Mutex::new(Collector::new(limits.cap));
    let on_out = |bytes: &[u8]| lock(&output).stdout(bytes);
    let on_err = |bytes: &[u8]| lock(&output).stderr(bytes, on_stderr);
    let streams = async {
        tokio::join!(
            feed(pipes.stdin.take(), stdin),
            pump(&mut pipes.stdout, on_out),
            pump(&mut pipes.stderr, on_err)
        );
        std::future::pending::<()>().await
    };
    let cause = tokio::select! {
        cause = supervise(&process, limits.limit, limits.grace, &limits.cancel) => cause,
        () = streams => Cause::Itself,
    };
    drain(&pipes.stdout, on_out);
    drain(&pipes.stderr, on_err);
    let end = collect(process).await;
    let mut output = output.into_inner().unwrap_or_else(PoisonError::into_inner);
    output.finish(on_stderr);
    let Collector { stdout, stderr, dropped, .. } = output;
    Ok(Finished { end, cause, stdout, stderr, dropped, took: began.elapsed() })
}

fn lock(output: &Mutex<Collector>) -> MutexGuard<'_, Collector> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for callers without a runtime (start of a program, before there is one).
///
/// # Errors
/// As [`run`]; [`StartError::System`] when no runtime can be made.
pub fn run_blocking(start: &Start, stdin: Bytes, limits: &Limits) -> Result<Finished, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(start, stdin, limits, &|_| {})),
        Err(source) => Err(StartError::new(start, source)),
    }
}

/// Writes all of it and closes the pipe. A program that does not want it is its own business.
async fn feed(pipe: Option<pipe::Sender>, bytes: Bytes) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(&bytes).await;
    }
}

async fn pump(pipe: &mut pipe::Receiver, mut sink: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        sink(&buffer[..count]);
    }
}

/// Takes what is in the pipe now: all that the program itself has written, as it has ended. Not more, because
/// a child of it may go on writing for ever.
fn drain(pipe: &pipe::Receiver, mut sink: impl FnMut(&[u8])) {
    let Ok(mut left) = rustix::io::ioctl_fionread(pipe) else { return };
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let Ok(count @ 1..) = rustix::io::read(pipe, &mut buffer) else { return };
        sink(&buffer[..count]);
        left = left.saturating_sub(count as u64);
    }
}

#[cfg(test)]
mod tests;
