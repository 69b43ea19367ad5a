//! Commands on the front-end: under a helper that is a child of the driver, so that they end with it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::capture::{Limits, run};
use super::channel::Writing;
use super::collect::Collector;
use super::connection::log_lines;
use super::helper::{Ended, Helper, HelperLimits};
use super::job::Watch;
use super::process::{End, Process, Start, StartError};
use super::supervise::Cause;
use crate::wire::{EndedBy, Exit, How, Open, Refusal, WhyRefused};

/// The front-end.
pub(super) struct Local {
    program: Option<PathBuf>,
    state: Option<PathBuf>,
    limits: HelperLimits,
    helper: Mutex<Option<Arc<Helper>>>,
}

impl Local {
    /// `program` is the helper; without it commands are children of the driver. `state` is where the helper
    /// writes down what runs.
    pub(super) fn new(program: Option<PathBuf>, state: Option<PathBuf>, limits: HelperLimits) -> Self {
        Self { program, state, limits, helper: Mutex::new(None) }
    }

    /// Runs a command to its end.
    pub(super) async fn run(&self, open: Open, stdin: Bytes, output: &mut Collector, watch: &Watch) -> Ended {
        match self.helper().await {
            Some(helper) => helper.run(open, stdin.into(), output, watch).await,
            None => self.directly(open, stdin, output, watch).await,
        }
    }

    async fn helper(&self) -> Option<Arc<Helper>> {
        let program = self.program.as_ref()?;
        let mut state = self.helper.lock().await;
        if let Some(helper) = &*state
            && !helper.is_lost()
        {
            return Some(helper.clone());
        }
        let mut start = Start::new(program).arg("serve");
        if let Some(state) = &self.state {
            start = start.arg("--state").arg(state);
        }
        *state = match self.start(&start).await {
            Ok(helper) => Some(Arc::new(helper)),
            Err(reason) => {
                tracing::warn!(reason, "no local helper: commands on the front-end outlive a killed driver");
                None
            }
        };
        state.clone()
    }

    async fn start(&self, start: &Start) -> Result<Helper, String> {
        let (process, pipes) = Process::start(start).await.map_err(|error| error.to_string())?;
        // It ends by itself when its pipe closes, after it has ended what runs. Killing it would leave that.
        process.detach();
        tokio::spawn(log_lines("front-end", Box::new(pipes.stderr)));
        let stdin: Writing = match pipes.stdin {
            Some(stdin) => Box::new(stdin),
            None => Box::new(tokio::io::sink()),
        };
        Helper::start(pipes.stdout, stdin, &self.limits).await.map_err(|error| error.to_string())
    }

    async fn directly(&self, open: Open, stdin: Bytes, output: &mut Collector, watch: &Watch) -> Ended {
        let mut start = Start::new(&open.argv[0]).args(&open.argv[1..]);
        for (key, value) in &open.env {
            start = start.env(key, value);
        }
        let cap = output.cap();
        let limits = Limits { limit: open.limit, grace: open.grace, cap, cancel: watch.cancel.clone() };
        let done = match run(&start, stdin, &limits, &*watch.on_stderr).await {
            Ok(done) => done,
            Err(error) => {
                let missing = matches!(error, StartError::NotFound { .. } | StartError::NotExecutable { .. });
                let why = if missing { WhyRefused::Missing } else { WhyRefused::Other };
                return Ended::Refused(Refusal { why, text: error.to_string() });
            }
        };
        output.stdout(&done.stdout);
        // Its lines were given out already.
        output.stderr(&done.stderr, &|_| {});
        output.dropped += done.dropped;
        let how = match done.end {
            End::Exited(status) => How::Exited(status),
            End::Signaled(signal) => How::Signaled(signal),
        };
        let by = match done.cause {
            Cause::Itself => EndedBy::Itself,
            Cause::Limit => EndedBy::Limit,
            Cause::Cancel => EndedBy::Request,
        };
        Ended::Exit(Exit { how, by })
    }

    /// Why the helper was lost.
    pub(super) async fn reason(&self) -> String {
        let reason = self.helper.lock().await.as_ref().and_then(|helper| helper.reason());
        reason.unwrap_or_else(|| "the local helper has ended".to_owned())
    }

    /// Ends the helper, and with it what runs.
    pub(super) async fn close(&self) {
        if let Some(helper) = self.helper.lock().await.take() {
            helper.close();
        }
    }
}
