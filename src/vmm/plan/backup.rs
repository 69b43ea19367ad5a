//! BACKUP and BACKUPCANCEL: transfer manager and datastore scripts on the front-end.

use super::build::{Builder, Planned};
use super::transfer::Command;
use super::{Form, Info, Step, UndoWhen};

/// LCM_STATE of a VM that is backed up while it runs.
const LIVE: &str = "69";

/// BACKUP. A finished backup is not lost by what fails behind it.
pub(crate) fn backup(builder: &Builder<'_>) -> Planned {
    let command = builder.command()?;
    let driver = builder.need("DATASTORE/DS_MAD")?;
    let live = builder.action.text("VM/LCM_STATE").trim() == LIVE;
    let beside = |verb: &str| beside(builder, &command, verb, live);
    let prepare = beside("PREBACKUP").undone_by(beside("POSTBACKUP")).undone(UndoWhen::Failed);
    let mut main = builder.datastore(driver.trim(), "backup", &command.words, builder.datastore_stdin())?;
    main.commits = true;
    Ok((vec![prepare, main, beside("POSTBACKUP").no_fail()], Info::LastLine("backup")))
}

fn beside(builder: &Builder<'_>, command: &Command, verb: &str, live: bool) -> Step {
    let verb = if live { format!("{verb}_LIVE") } else { verb.to_owned() };
    let name = format!("tm_{}", verb.to_lowercase());
    command.as_verb(verb).step_reading(&name, builder.vm_stdin(Form::Plain))
}

/// BACKUPCANCEL: the script finds the processes of the backup on the front-end and ends them.
pub(crate) fn cancel(builder: &Builder<'_>) -> Planned {
    let command = builder.command()?;
    let driver = builder.need("DATASTORE/DS_MAD")?;
    let stdin = builder.vm_stdin(Form::Plain);
    let step = builder.datastore(driver.trim(), "backup_cancel", &command.words, stdin)?;
    Ok((vec![step], Info::Output("backup_cancel")))
}
