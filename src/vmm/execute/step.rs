//! One step: its calls in order, again where `-r` says so.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::host::job::{Ending, Outcome, Place, Purpose};
use crate::mad::actions::Severity;
use crate::script;
use crate::vmm::plan::{Call, Step};

use super::call::command_line;
use super::{Event, Run};

/// Exit status of a script that can't tell whether it took effect, as `migrate` when it reaches one host only. The
/// front-end may reach both.
const NOT_KNOWN: i32 = 75;

/// After a cancel that comes too late (behind a step that commits) what is left gets so long, each.
const TOO_LATE: Duration = Duration::from_secs(10);

/// Why a step is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    /// For people.
    pub(super) text: String,
    /// It said so itself, or was never started; not sure when it was ended or lost on its way.
    pub(super) sure: bool,
    /// Because the run was cancelled.
    pub(super) cancelled: bool,
    /// The place was lost or can't be reached.
    pub(super) lost: bool,
    /// It was lost without a sign of life: what ran there may run a little longer.
    pub(super) silent: bool,
    /// Calls of the step that were done before.
    pub(super) calls_done: usize,
}

impl Failed {
    fn new(text: String, sure: bool) -> Self {
        Self { text, sure, cancelled: false, lost: false, silent: false, calls_done: 0 }
    }

    pub(super) fn sure(text: String) -> Self {
        Self::new(text, true)
    }

    pub(super) fn unsure(text: String) -> Self {
        Self::new(text, false)
    }

    pub(super) fn cancelled() -> Self {
        Self { cancelled: true, ..Self::sure("cancelled".to_owned()) }
    }
}

/// How a step is run.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    pub(super) purpose: Purpose,
    pub(super) limit: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) cancel: CancellationToken,
    pub(super) retries: u32,
    /// Where the VM runs is the question: `poll` and `deploy` of ours are told so.
    pub(super) asks: bool,
}

impl<'a> Run<'a> {
    /// Runs `step` as part of the action.
    pub(super) async fn attempt(&self, step: &Step) -> Result<String, Failed> {
        let limits = &self.executor.limits;
        let cancel =
            if self.committed { CancellationToken::new() } else { self.context.cancel.child_token() };
        let manner = Manner {
            purpose: Purpose::Action,
            limit: limits.step,
            grace: limits.grace,
            cancel: cancel.clone(),
            retries: if step.retried { limits.retries } else { 0 },
            asks: step.name == "deploy",
        };
        let too_late = async {
            self.context.cancel.cancelled().await;
            tokio::time::sleep(TOO_LATE).await;
            cancel.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            result = self.carry_out(step, &manner) => result,
            never = too_late => match never {},
        }
    }

    /// Runs `step`; what it printed, trimmed, or why it is not done.
    pub(super) async fn carry_out(&self, step: &Step, manner: &Manner) -> Result<String, Failed> {
        let begin = Instant::now();
        (self.executor.observer)(Event::Begins(step, manner.purpose == Purpose::RollBack));
        let mut result = self.calls(step, manner).await;
        for _ in 0..manner.retries {
            if !matches!(&result, Err(failed) if !failed.cancelled) {
                break;
            }
            let pause = tokio::time::sleep(self.executor.limits.retry_pause);
            tokio::select! {
                () = pause => {}
                () = manner.cancel.cancelled() => break,
            }
            result = self.calls(step, manner).await;
        }
        let shown = result.as_ref().map(String::as_str).map_err(|failed| failed.text.as_str());
        (self.executor.observer)(Event::Ended(step, begin.elapsed(), shown));
        result
    }

    async fn calls(&self, step: &Step, manner: &Manner) -> Result<String, Failed> {
        let mut said = Vec::new();
        for (calls_done, call) in step.calls.iter().enumerate() {
            let output = match self.call(step, call, manner).await {
                Ok(output) => output,
                Err(failed) => return Err(Failed { calls_done, ..labelled(call, failed) }),
            };
            match &call.label {
                None => said.push(output),
                Some(label) if output.is_empty() => said.push(format!("{label}: -")),
                Some(label) => said.push(format!("{label}: {output}")),
            }
        }
        Ok(said.join(" "))
    }

    async fn call(&self, step: &Step, call: &Call, manner: &Manner) -> Result<String, Failed> {
        let front_end = &self.executor.front_end;
        let made = front_end.job(self.plan, call, self.deploy_id.as_deref()).await;
        let mut job = made.map_err(Failed::sure)?;
        job.purpose = manner.purpose;
        job.limit = manner.limit;
        job.grace = manner.grace;
        if manner.asks {
            job.env.push(("KVMAD_WHERE".to_owned(), "yes".to_owned()));
        }
        let line = command_line(&job);
        let watch = script::watch(self.context, manner.cancel.clone());
        let outcome = self.executor.runner.run(&call.place, job, watch).await;
        if outcome.succeeded() {
            return Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned());
        }
        self.log_command(&outcome, &call.place, step.retried, &line);
        Err(failed(&outcome, step, call))
    }

    /// The line that operators look for in the log.
    fn log_command(&self, outcome: &Outcome, place: &Place, direct: bool, line: &str) {
        let Ending::Exited(code) = outcome.ending else { return };
        let fails = if direct || *place == Place::Local { "failed" } else { "fail" };
        self.log(Severity::Info, &format!("Command execution {fails} (exit code: {code}): {line}"));
    }
}

fn labelled(call: &Call, failed: Failed) -> Failed {
    match &call.label {
        Some(label) => Failed { text: format!("{label}: {}", failed.text), ..failed },
        None => failed,
    }
}

fn failed(outcome: &Outcome, step: &Step, call: &Call) -> Failed {
    let text = script::failure(outcome, &step.name, &call.place);
    let sure = match outcome.ending {
        Ending::Exited(NOT_KNOWN) => step.settle.is_none(),
        Ending::Exited(_) | Ending::NotStarted(_) => true,
        _ => false,
    };
    Failed {
        cancelled: outcome.ending == Ending::Cancelled,
        lost: matches!(outcome.ending, Ending::Lost(_) | Ending::Silent(_)),
        silent: matches!(outcome.ending, Ending::Silent(_)),
        ..Failed::new(text, sure)
    }
}
