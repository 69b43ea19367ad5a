//! Roll-back: everything that was done is undone, the last first, whatever cancels the action.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::host::job::{Place, Purpose};
use crate::mad::actions::Severity;
use crate::vmm::plan::{Step, Undo, UndoWhen};

use super::step::{Failed, Manner};
use super::{Event, Run, Stop};
use crate::script;

/// From TERM to KILL for a step of the roll-back.
const GRACE: Duration = Duration::from_secs(5);

impl<'a> Run<'a> {
    /// Undoes what was done and gives the text of the FAILURE: the reason, and what could not be undone.
    pub(super) async fn roll_back(&mut self, stop: Stop<'a>) -> String {
        let mut undo: Vec<&'a Step> = Vec::new();
        if let Some(step) = stop.step.filter(|step| undoes_itself(step, &stop.failed)) {
            undo.push(step);
        }
        undo.extend(std::mem::take(&mut self.done).into_iter().rev());
        let deadline = Instant::now() + self.executor.limits.roll_back;
        let mut left = Left::default();
        for step in undo {
            self.undo_step(step, deadline, &mut left).await;
        }
        if let Some(step) = stop.step {
            let text = format!("Failed to execute {} operation: {}.", step.kind.name(), step.name);
            self.log(Severity::Info, &text);
        }
        let mut text = stop.failed.text;
        for remains in left.remains {
            text.push_str("; ");
            text.push_str(&remains);
        }
        text
    }

    async fn undo_step(&self, step: &Step, deadline: Instant, left: &mut Left) {
        let mut previous = true;
        for undo in &step.undo {
            let undo = match undo {
                Undo::Remains(what) => {
                    left.remains.push(format!("it remains that {what}"));
                    continue;
                }
                Undo::Step(undo) => undo,
            };
            if undo.needs_previous && !previous {
                (self.executor.observer)(Event::LeftOut(undo, "the step before it failed"));
                continue;
            }
            let result = self.undo_one(undo, deadline, left).await;
            previous = result.is_ok();
            match result {
                Ok(()) => self.log_done(undo),
                Err(why) => {
                    self.log_failed(undo, &why);
                    left.remains.push(format!("not undone: {} on {} ({why})", undo.name, places(undo)));
                }
            }
        }
    }

    async fn undo_one(&self, undo: &Step, deadline: Instant, left: &mut Left) -> Result<(), String> {
        if let Some(place) =
            undo.calls.iter().map(|call| &call.place).find(|place| left.lost.contains(*place))
        {
            return Err(format!("{} can't be reached", script::place(place)));
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err("no time was left".to_owned());
        }
        let manner = Manner {
            purpose: Purpose::RollBack,
            limit: Some(remaining),
            grace: GRACE,
            cancel: CancellationToken::new(),
            retries: 0,
            asks: false,
        };
        let in_time = tokio::time::timeout(remaining + GRACE * 2, self.carry_out(undo, &manner));
        match in_time.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failed)) => {
                if failed.lost {
                    left.lost.extend(undo.calls.get(failed.calls_done).map(|call| call.place.clone()));
                }
                Err(failed.text)
            }
            Err(_) => Err(format!("it did not end within {} s", remaining.as_secs())),
        }
    }
}

/// What a roll-back leaves.
#[derive(Default)]
struct Left {
    /// For people.
    remains: Vec<String>,
    /// Places that could not be reached; they are not tried again.
    lost: HashSet<Place>,
}

/// Whether the undo of the step that failed runs.
fn undoes_itself(step: &Step, failed: &Failed) -> bool {
    failed.calls_done > 0
        || match step.undo_when {
            UndoWhen::Done => false,
            UndoWhen::Unsure => !failed.sure,
            UndoWhen::Failed => true,
        }
}

fn places(step: &Step) -> String {
    let mut names: Vec<String> = step.calls.iter().map(|call| script::place(&call.place)).collect();
    names.dedup();
    names.join(", ")
}
