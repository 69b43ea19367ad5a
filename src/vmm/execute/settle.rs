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
    /// It is there, and a migration of it to another host goes on.
    Moves,
    /// It is there.
    Here,
    Gone,
    Nothing,
}

impl<'a> Run<'a> {
    /// Decides what became of `step`, of which only `failed` is known.
    pub(super) async fn settle(&mut self, step: &'a Step, failed: Failed) -> Result<String, Failed> {
        let Some(settle) = &step.settle else { return Err(failed) };
        match self.ask(settle, &failed).await {
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
            (Says::Gone, before) if before != Says::Moves => Err(Failed { sure: true, ..failed }),
            _ if matches!(settle, Settle::Unknowable) => {
                self.done.clear();
                let text = format!("{}; nothing was undone, look at host {}", failed.text, self.plan.host);
                Err(Failed { text, sure: true, ..failed })
            }
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

    async fn ask(&self, settle: &Settle, failed: &Failed) -> (Says, Says) {
        let Settle::Ask { after: at_target, before: at_source } = settle else {
            return (Says::Nothing, Says::Nothing);
        };
        let (limits, begin) = (&self.executor.limits, Instant::now());
        loop {
            let after = self.question(at_target).await;
            // Where the connection was lost the script was ended properly, and the source would only be silent.
            if after == Says::Gone && failed.lost {
                // A silent host ends the script only when it notices the silence, too: some time after us.
                if !failed.silent || begin.elapsed() >= limits.settle || self.context.cancel.is_cancelled() {
                    return (after, Says::Nothing);
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let before = self.question(at_source).await;
            if before == Says::Moves
                && begin.elapsed() < limits.settle_migration
                && !self.context.cancel.is_cancelled()
            {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            if after == Says::Gone && before == Says::Gone {
                // It may have arrived between the two questions.
                return (self.question(at_target).await, before);
            }
            let patience = match (after, before) {
                // What runs at the target has arrived, and what it has nothing of has not.
                (Says::Runs, Says::Nothing) | (Says::Gone, _) => Duration::ZERO,
                // While a domain comes or goes libvirt may give no answer.
                (Says::Nothing, _) | (_, Says::Nothing) => limits.settle,
                (_, Says::Gone) => Duration::ZERO,
                _ => BOTH,
            };
            if begin.elapsed() >= patience || self.context.cancel.is_cancelled() {
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
        let says = |wanted| output.split_whitespace().any(|word| word == wanted);
        match text::polled_state(&output) {
            Some('a' | 'p' | 'e') if says("MOVES=yes") => Says::Moves,
            Some('a') if says("RUNS=yes") => Says::Runs,
            Some('a' | 'p') => Says::Here,
            Some('d') => Says::Gone,
            _ => Says::Nothing,
        }
    }
}
