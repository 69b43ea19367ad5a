//! CLEANUP: whatever is left of a VM goes.

use crate::host::job::{HostName, Place};

use super::build::{Builder, Planned, text};
use super::transfer::Command;
use super::{Call, Info, Kind, OnFailure, Refusal, Stdin, Step, What};

/// CLEANUP answers SUCCESS whatever happens, as `oned` goes on in the same way. But where a domain could not be
/// ended no disk is deleted: it may be in use.
pub(crate) fn cleanup(builder: &Builder<'_>) -> Planned {
    let mut steps = Vec::new();
    let host = builder.action.host();
    let has_id = builder.action.filled("DEPLOY_ID").is_some();
    if has_id {
        steps.push(end(builder, host)?);
    }
    steps.push(builder.network("clean", vec![builder.host()])?.no_fail());
    if let Some(second) = builder.action.migr_host().filter(|second| *second != host) {
        if has_id {
            steps.push(end(builder, second)?);
        }
        steps.push(builder.network_at(second, "clean", vec![text(second.as_str())])?.no_fail());
    }
    for line in builder.action.text("TM_COMMAND").lines().filter(|line| !line.trim().is_empty()) {
        let mut step = Command::parse(line)
            .map_or_else(|refusal| broken(line, &refusal), |command| command.step("tm_delete"))
            .no_fail();
        step.deletes = true;
        steps.push(step);
    }
    Ok((steps, Info::Nothing))
}

fn end(builder: &Builder<'_>, host: &HostName) -> Result<Step, Refusal> {
    let mut step = builder.vmm_at(host, "cancel", [builder.deploy_id()?, text(host.as_str())]);
    step.on_failure = OnFailure::GoOnKeepingData;
    Ok(step)
}

/// A line that is no command is logged like a failure of it.
fn broken(line: &str, refusal: &Refusal) -> Step {
    let program = What::Impossible(format!("{refusal}: {line}"));
    let call = Call { label: None, place: Place::Local, program, args: Vec::new(), stdin: Stdin::nothing() };
    Step::new(Kind::Transfer, "tm_delete", vec![call])
}
