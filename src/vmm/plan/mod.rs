//! Plans: what one request makes happen, as plain data.
//!
//! A plan is a list of steps in order. It is printed (`kvmad run --dry-run`), compared in tests, and carried out
//! by [`crate::vmm::execute`]. Making one does no I/O. One file per family of verbs.

mod backup;
mod build;
mod cleanup;
mod disk;
mod guest;
mod migrate;
mod model;
mod network;
mod nic;
mod power;
mod show;
mod snapshot;
mod transfer;

use super::payload::Action;
use super::setup::Setup;
use super::verb::Verb;

pub(crate) use build::Builder;
pub use model::{
    Call, Form, Info, Kind, OnFailure, Plan, Settle, Source, Stdin, Step, Undo, UndoWhen, Value, What,
};

/// Why an action can't be planned; the text is the reason in the reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An element that the action needs is missing or empty
    #[error("Cannot perform {verb}, expecting {path}")]
    Expecting {
        /// The action.
        verb: Verb,
        /// Where the document should have it.
        path: String,
    },
    /// The pair of drivers can't snapshot a disk of a running VM
    #[error("Cannot perform a live {0} operation")]
    NotLive(Verb),
    /// The NIC to detach has no MAC
    #[error("Error in DETACHNIC, MAC needed in NIC")]
    NoMac,
    /// A value that names a file or driver does not fit into a path
    #[error("{what} {value:?} is no name of a driver or script: letters, digits and . _ - are allowed")]
    BadName {
        /// What the value is.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// A value does not have the form that the action needs
    #[error("{0}")]
    BadValue(String),
}

/// Plans `verb` for the document of `action`.
///
/// # Errors
/// [`Refusal`] when the document lacks what the action needs.
pub fn plan(verb: Verb, action: &Action, setup: &Setup) -> Result<Plan, Refusal> {
    let builder = Builder::new(verb, action, setup);
    let (steps, info) = match verb {
        Verb::Deploy => power::deploy(&builder),
        Verb::Shutdown => power::stop(&builder, "shutdown"),
        Verb::Cancel => power::stop(&builder, "cancel"),
        Verb::Save => power::save(&builder),
        Verb::Restore => power::restore(&builder),
        Verb::Reboot => power::press(&builder, "reboot"),
        Verb::Reset => power::press(&builder, "reset"),
        Verb::Poll => power::poll(&builder),
        Verb::Migrate => migrate::migrate(&builder),
        Verb::AttachDisk => disk::attach(&builder),
        Verb::DetachDisk => disk::detach(&builder),
        Verb::ResizeDisk => disk::resize(&builder),
        Verb::DiskSnapshotCreate => disk::snapshot_create(&builder),
        Verb::AttachNic => nic::attach(&builder),
        Verb::DetachNic => nic::detach(&builder),
        Verb::UpdateConf => nic::update_conf(&builder),
        Verb::UpdateSg => nic::update_sg(&builder),
        Verb::UpdateNic => nic::update_nic(&builder),
        Verb::SnapshotCreate => snapshot::create(&builder),
        Verb::SnapshotRevert => snapshot::revert(&builder),
        Verb::SnapshotDelete => snapshot::delete(&builder),
        Verb::Resize => guest::resize(&builder),
        Verb::Exec => guest::exec(&builder),
        Verb::ExecCancel => guest::exec_cancel(&builder),
        Verb::Backup => backup::backup(&builder),
        Verb::BackupCancel => backup::cancel(&builder),
        Verb::Cleanup => cleanup::cleanup(&builder),
    }?;
    let second = match verb {
        Verb::Migrate | Verb::Cleanup => action.migr_host().cloned(),
        _ => None,
    };
    Ok(Plan {
        verb,
        vm: action.id().to_owned(),
        host: action.host().clone(),
        second,
        document: action.bytes(),
        steps,
        info,
        prefix: prefix(verb, action),
    })
}

/// What stands in front of the reply to a request without a readable document.
#[must_use]
pub fn prefix_of_nothing(verb: Verb) -> Option<String> {
    matches!(verb, Verb::UpdateSg | Verb::UpdateNic).then(|| "-1".to_owned())
}

/// What stands in front of every reply to `verb`: UPDATESG and UPDATENIC are found by the id of the security
/// group or network; a NIC without network has -1.
#[must_use]
pub fn prefix(verb: Verb, action: &Action) -> Option<String> {
    let element = match verb {
        Verb::UpdateSg => "SECURITY_GROUP_ID",
        Verb::UpdateNic => "VIRTUAL_NETWORK_ID",
        _ => return None,
    };
    let id = action.text(element);
    let id = id.trim();
    let number = id.strip_prefix('-').unwrap_or(id);
    let good = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some(if good { id.to_owned() } else { "-1".to_owned() })
}
