//! Programs that the host side asks something (virsh, probes): started, bounded, and what they answered. Tests put
//! a stand-in in their place.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::host::capture::{Limits, run};
use crate::host::job::Boxed;
use crate::host::process::{End, Start};
use crate::host::supervise::Cause;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Ask {
    /// An absolute path, or a name to be found in PATH.
    pub program: String,
    /// Arguments, each handed over as it is.
    pub args: Vec<String>,
    /// Added to the environment; LC_ALL=C always is.
    pub env: Vec<(String, String)>,
    /// Its working directory; ours when there is none.
    pub dir: Option<PathBuf>,
    /// All of its stdin.
    pub stdin: Bytes,
    /// After this its group is ended.
    pub limit: Duration,
    /// Most bytes of each output that are kept.
    pub cap: usize,
}

impl Ask {
    /// `program` with `args`, nothing on stdin, 64 MiB of output.
    pub fn new<T: Into<String>>(
        program: impl Into<String>,
        args: impl IntoIterator<Item = T>,
        limit: Duration,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        let program = program.into();
        Self { program, args, env: Vec::new(), dir: None, stdin: Bytes::new(), limit, cap: 64 << 20 }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself with this status.
    Exited(i32),
    /// By a signal that was not ours.
    Signaled(i32),
    /// It was ended after its limit.
    TimedOut,
}

/// What it answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// How it ended.
    pub ended: Ended,
    /// Its stdout, made valid UTF-8.
    pub stdout: String,
    /// Its stderr, made valid UTF-8.
    pub stderr: String,
    /// Bytes beyond the cap.
    pub dropped: u64,
}

impl Answer {
    /// Its stdout when it ended with status 0 and printed no more than allowed; else why not, in one line.
    ///
    /// # Errors
    /// `NAME` and what became of it, with its stderr.
    pub fn good(self, name: &str, limit: Duration) -> Result<String, String> {
        let said =
            self.stderr.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ");
        let with = |what: String| if said.is_empty() { what } else { format!("{what}: {said}") };
        match self.ended {
            Ended::Exited(0) if self.dropped > 0 => {
                Err(format!("{name} printed {} bytes more than is allowed", self.dropped))
            }
            Ended::Exited(0) => Ok(self.stdout),
            Ended::Exited(status) => Err(with(format!("{name} failed (exit status {status})"))),
            Ended::Signaled(signal) => Err(with(format!("{name} died by signal {signal}"))),
            Ended::TimedOut => Err(with(format!("{name} gave no answer within {limit:?}"))),
        }
    }
}

/// Starts programs.
pub trait Tools: Send + Sync {
    /// Asks; `Err` when it could not be started, with the reason.
    fn ask(&self, ask: Ask) -> Boxed<'_, Result<Answer, String>>;
}

/// The real ones. Counts what it starts.
#[derive(Debug, Default)]
pub struct Real {
    started: AtomicU64,
}

impl Real {
    /// Programs started so far.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }
}

impl Tools for Real {
    fn ask(&self, ask: Ask) -> Boxed<'_, Result<Answer, String>> {
        Box::pin(async move {
            self.started.fetch_add(1, Ordering::Relaxed);
            let mut start =
                Start::new(&ask.program).args(&ask.args).env("LC_ALL", "C").env_remove("LANGUAGE");
            for (key, value) in &ask.env {
                start = start.env(key, value);
            }
            if let Some(dir) = &ask.dir {
                start = start.dir(dir);
            }
            if ask.stdin.is_empty() {
                start = start.no_stdin();
            }
            let limits = Limits {
                limit: Some(ask.limit),
                grace: Duration::from_secs(2),
                cap: ask.cap,
                ..Limits::default()
            };
            let done = run(&start, ask.stdin, &limits, &|_| {}).await.map_err(|error| error.to_string())?;
            let ended = match (done.cause, done.end) {
                (Cause::Itself, End::Exited(status)) => Ended::Exited(status),
                (Cause::Itself, End::Signaled(signal)) => Ended::Signaled(signal),
                _ => Ended::TimedOut,
            };
            Ok(Answer {
                ended,
                stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
                dropped: done.dropped,
            })
        })
    }
}

/// A stand-in for tests: answers from a function.
#[cfg(test)]
pub mod fake {
    use super::{Answer, Ask, Boxed, Ended, Tools};

    /// Answers with what the function gives: stdout, or the status and stderr of a failure.
    pub struct Fake<F>(pub F);

    impl<F: Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync> Tools for Fake<F> {
        fn ask(&self, ask: Ask) -> Boxed<'_, Result<Answer, String>> {
            let (ended, stdout, stderr) = match (self.0)(&ask) {
                Ok(stdout) => (Ended::Exited(0), stdout, String::new()),
                Err((status, stderr)) => (Ended::Exited(status), String::new(), stderr),
            };
            Box::pin(async move { Ok(Answer { ended, stdout, stderr, dropped: 0 }) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(text: &str, limit: u64) -> Result<String, String> {
        let ask = Ask { cap: 1000, ..Ask::new("/bin/sh", ["-c", text], Duration::from_millis(limit)) };
        Real::default().ask(ask).await?.good("sh", Duration::from_millis(limit))
    }

    #[tokio::test]
    async fn an_answer_or_the_reason_why_there_is_none() {
        assert_eq!(sh("echo $LC_ALL; cat", 5000).await, Ok("C\n".to_owned()));
        assert_eq!(
            sh("echo no >&2; echo way >&2; exit 3", 5000).await,
            Err("sh failed (exit status 3): no; way".into())
        );
        assert_eq!(sh("kill -11 $$", 5000).await, Err("sh died by signal 11".into()));
        assert_eq!(sh("echo a; sleep 60 | cat", 200).await, Err("sh gave no answer within 200ms".into()));
        assert_eq!(
            sh("head -c 5000 /dev/zero", 5000).await,
            Err("sh printed 4000 bytes more than is allowed".into())
        );
        let missing = Real::default().ask(Ask::new("/no/such", [""; 0], Duration::from_secs(1))).await;
        assert_eq!(missing.map(|_| ()), Err("/no/such: there is no such program".to_owned()));
    }
}
