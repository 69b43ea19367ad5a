//! Carries out plans: the steps in order, what they say to the log, roll-back, and the one answer.

mod call;
mod settle;
mod step;
pub(crate) mod text;
mod undo;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::host::job::Runner;
use crate::mad::actions::{Answer, Context, Severity};
use crate::script;

use super::plan::{Info, OnFailure, Plan, Settle, Step};
use call::FrontEnd;
use step::Failed;

pub use call::{ARGUMENT_BYTES, MakeDomain};

/// Times and counts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time of one step (`-w`). `None`: no limit.
    pub step: Option<Duration>,
    /// From TERM to KILL when a step is ended.
    pub grace: Duration,
    /// How often a failed direct call is tried again (`-r`).
    pub retries: u32,
    /// Pause before it is tried again.
    pub retry_pause: Duration,
    /// Longest time of the roll-back as a whole.
    pub roll_back: Duration,
    /// When a step was lost: how long a host that gives no answer is asked again what became of it.
    pub settle: Duration,
    /// And how long a migration that goes on by itself is waited for.
    pub settle_migration: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            step: None,
            grace: Duration::from_secs(30),
            retries: 0,
            retry_pause: Duration::from_secs(1),
            roll_back: Duration::from_secs(60),
            settle: Duration::from_secs(40),
            settle_migration: Duration::from_secs(900),
        }
    }
}

/// Something that happens while a plan is carried out, for those who want to show it.
#[derive(Debug)]
pub enum Event<'a> {
    /// A step begins, as part of the roll-back or not.
    Begins(&'a Step, bool),
    /// A step was left out, for this reason.
    LeftOut(&'a Step, &'a str),
    /// It ended after this time, with what it printed or the reason why not.
    Ended(&'a Step, Duration, Result<&'a str, &'a str>),
}

/// Who is told of [`Event`]s.
pub type Observer = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// Carries out plans.
#[derive(Clone)]
pub struct Executor {
    runner: Arc<dyn Runner>,
    front_end: FrontEnd,
    limits: Limits,
    observer: Observer,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("remotes", &self.front_end.remotes).finish_non_exhaustive()
    }
}

impl Executor {
    /// Runs steps by `runner`; finds scripts of TM and datastore drivers in `remotes`, the front-end's folder.
    #[must_use]
    pub fn new(runner: Arc<dyn Runner>, remotes: PathBuf, limits: Limits) -> Self {
        let front_end = FrontEnd { remotes, domain: None, environment: Vec::new() };
        Self { runner, front_end, limits, observer: Arc::new(|_| {}) }
    }

    /// The same, with domains made by `make`.
    #[must_use]
    pub fn with_domain(mut self, make: MakeDomain) -> Self {
        self.front_end.domain = Some(make);
        self
    }

    /// The same, with variables for what runs on the front-end.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.front_end.environment = environment;
        self
    }

    /// The same, telling `observer` what happens.
    #[must_use]
    pub fn with_observer(mut self, observer: Observer) -> Self {
        self.observer = observer;
        self
    }

    /// Carries out `plan`. A cancelled run ends what it does, rolls back and answers FAILURE; nobody may write
    /// that answer.
    pub async fn run(&self, plan: &Plan, context: &Context) -> Answer {
        let mut run = Run {
            executor: self,
            plan,
            context,
            done: Vec::new(),
            output: HashMap::new(),
            deploy_id: None,
            keep_data: None,
            committed: false,
            ran_before: false,
        };
        match run.forward().await {
            Ok(()) => run.success(),
            Err(stop) => Answer::Failure(run.roll_back(stop).await),
        }
    }
}

/// One plan on its way.
struct Run<'a> {
    executor: &'a Executor,
    plan: &'a Plan,
    context: &'a Context,
    /// Steps that are done and could be undone.
    done: Vec<&'a Step>,
    /// What steps printed, by name, trimmed.
    output: HashMap<&'a str, String>,
    deploy_id: Option<String>,
    /// Why no data may be deleted.
    keep_data: Option<String>,
    /// A step was done behind which there is no way back: what follows belongs to it, and a cancel comes too late.
    committed: bool,
    /// `deploy` found the VM running: neither it nor its network is ours to take away.
    ran_before: bool,
}

/// Why a run stopped.
struct Stop<'a> {
    /// The step that failed, if it was one.
    step: Option<&'a Step>,
    failed: Failed,
}

impl<'a> Run<'a> {
    fn log(&self, severity: Severity, text: &str) {
        (self.context.log)(severity, text);
    }

    async fn forward(&mut self) -> Result<(), Stop<'a>> {
        for step in &self.plan.steps {
            if self.context.cancel.is_cancelled() && !self.committed {
                return Err(Stop { step: None, failed: Failed::cancelled() });
            }
            if let Some(why) = self.keep_data.as_ref().filter(|_| step.deletes) {
                self.leave_out(step, why);
                continue;
            }
            let failed = match self.step(step).await {
                Ok(output) => {
                    self.finished(step, output);
                    continue;
                }
                Err(failed) => failed,
            };
            if step.on_failure == OnFailure::Stop || (failed.cancelled && !self.committed) {
                return Err(Stop { step: Some(step), failed });
            }
            self.log_failed(step, &failed.text);
            if step.on_failure == OnFailure::GoOnKeepingData {
                self.keep_data = Some(failed.text);
            }
        }
        Ok(())
    }

    /// Does `step` and judges what it printed, asks what became of it when it was lost.
    async fn step(&mut self, step: &'a Step) -> Result<String, Failed> {
        self.make_ready(step).await;
        let result = match self.attempt(step).await {
            Ok(output) => {
                self.ran_before |= step.name == "deploy" && text::ran_before(&output);
                self.judge(step, output)
            }
            Err(failed) => Err(failed),
        };
        match result {
            Err(failed) if !failed.sure && step.settle.is_some() => self.settle(step, failed).await,
            result => result,
        }
    }

    /// A migration needs scripts of ours on the target, where no step before it may have run. A target that can't be
    /// reached from here is left to the source, which may reach it.
    async fn make_ready(&self, step: &Step) {
        let (Some(Settle::Ask { .. }), Some(target)) = (&step.settle, &self.plan.second) else { return };
        let watch = script::watch(self.context, self.context.cancel.clone());
        if let Err(reason) = self.executor.runner.ready(target, watch).await {
            let text = format!("host {target} was not brought up to date before {}: {reason}", step.name);
            self.log(Severity::Warning, &text);
        }
    }

    fn judge(&self, step: &Step, output: String) -> Result<String, Failed> {
        let judged = match self.plan.info {
            Info::DeployId if step.name == "deploy" => text::deploy_id(&output),
            Info::FirstWord(name) if step.name == name => text::last_line(&output, name)
                .map(|line| line.split_whitespace().next().unwrap_or_default().to_owned()),
            Info::LastLine(name) if step.name == name => text::last_line(&output, name),
            _ => return Ok(output),
        };
        let host = &self.plan.host;
        judged.map_err(|why| Failed::unsure(format!("{why} (host {host})")))
    }

    fn finished(&mut self, step: &'a Step, output: String) {
        self.log_done(step);
        if step.name == "deploy" {
            self.deploy_id = Some(output.clone());
        }
        self.output.insert(&step.name, output);
        self.committed |= step.commits;
        if step.commits || self.ran_before {
            self.done.clear();
        } else {
            self.done.push(step);
        }
    }

    fn success(&self) -> Answer {
        let printed = |name: &str| self.output.get(name).filter(|text| !text.is_empty()).cloned();
        Answer::Success(match self.plan.info {
            Info::Nothing => String::new(),
            Info::DeployId => printed("deploy").unwrap_or_default(),
            Info::Output(name) | Info::FirstWord(name) | Info::LastLine(name) => {
                printed(name).unwrap_or_else(|| "-".to_owned())
            }
        })
    }

    fn leave_out(&self, step: &Step, why: &str) {
        let what = step.calls.first().map(|call| words(&call.args)).unwrap_or_default();
        let text = format!("Left out {} {what}: the domain may still run ({why})", step.name);
        self.log(Severity::Error, &text);
        (self.executor.observer)(Event::LeftOut(step, why));
    }

    fn log_done(&self, step: &Step) {
        let text = format!("Successfully execute {} operation: {}.", step.kind.name(), step.name);
        self.log(Severity::Info, &text);
    }

    fn log_failed(&self, step: &Step, why: &str) {
        self.log(Severity::Error, why);
        let text = format!("Failed to execute {} operation: {}.", step.kind.name(), step.name);
        self.log(Severity::Info, &text);
    }
}

fn words(args: &[super::plan::Value]) -> String {
    let texts = args.iter().filter_map(|value| match value {
        super::plan::Value::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}
