//! A step that was lost on its way may have taken effect: each side is asked before it counts as failed.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::host::job::Purpose;
use crate::mad::actions::Severity;
use crate::vmm::plan::{Settle, Step};

use super::step::{Failed, Manner};
use super::{Run, text};

/// Longest time of one question.
const QUESTION: Duration = Duration::from_secs(20);
/// How long both sides may say that the VM is there: a migration that is being given up.
const BOTH: Duration = Duration::from_secs(15);
/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// What a side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// It runs there, not only on its way: `poll` of ours can tell that.
    Runs,
    /// It is there.
    Here,
    Gone,
    Nothing,
}

impl<'a> Run<'a> {
    /// Decides what became of `step`, of which only `failed` is known.
    pub(super) async fn settle(&mut self, step: &'a Step, failed: Failed) -> Result<String, Failed> {
        let Some(settle) = &step.settle else { return Err(failed) };
        match self.ask(settle).await {
            (Says::Runs | Says::Here, Says::Gone) => {
                let text = format!("{}; but the VM is where {} brings it", failed.text, step.name);
                self.log(Severity::Warning, &text);
                Ok(String::new())
            }
            (Says::Runs, Says::Nothing) => {
                let text = format!(
                    "{}; but the VM runs where {} brings it; host {} could not be asked whether something of it is left there",
                    failed.text, step.name, self.plan.host
                );
                self.log(Severity::Warning, &text);
                Ok(String::new())
            }
            (Says::Gone, _) => Err(Failed { sure: true, ..failed }),
            _ => {
                // Nobody knows where the VM is: what was done for either side may be in use.
                self.done.clear();
                let hosts = match &self.plan.second {
                    Some(second) => format!("{} and {second}", self.plan.host),
                    None => self.plan.host.to_string(),
                };
                let text = format!(
                    "{}; it is not known where the VM runs, look at {hosts}; nothing was undone",
                    failed.text
                );
                Err(Failed { text, sure: true, ..failed })
            }
        }
    }

    async fn ask(&self, settle: &Settle) -> (Says, Says) {
        let Settle::Ask { after: at_target, before: at_source } = settle else {
            return (Says::Nothing, Says::Nothing);
        };
        let until = Instant::now() + BOTH;
        loop {
            let after = self.question(at_target).await;
            if after == Says::Gone {
                return (after, Says::Nothing);
            }
            let before = self.question(at_source).await;
            let there = |says| matches!(says, Says::Runs | Says::Here);
            if after == Says::Here && before == Says::Nothing {
                // The silence took its time, in which the source has given up or the VM has arrived.
                return (self.question(at_target).await, before);
            }
            if !(there(after) && there(before)) || Instant::now() > until {
                return (after, before);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn question(&self, step: &Step) -> Says {
        let manner = Manner {
            purpose: Purpose::RollBack,
            limit: Some(QUESTION),
            grace: PAUSE,
            cancel: CancellationToken::new(),
            retries: 0,
            asks: true,
        };
        let Ok(output) = self.carry_out(step, &manner).await else { return Says::Nothing };
        match text::polled_state(&output) {
            Some('a') if output.split_whitespace().any(|word| word == "RUNS=yes") => Says::Runs,
            Some('a' | 'p') => Says::Here,
            Some('d') => Says::Gone,
            _ => Says::Nothing,
        }
    }
}
