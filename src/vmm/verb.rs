//! The verbs of the VMM protocol.

use std::fmt;

/// What `oned` asks for. Names on the wire and names of scripts are different things: see
/// [`Verb::wire`] and [`Verb::action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the protocol's own")]
pub enum Verb {
    Deploy,
    Shutdown,
    Cancel,
    Save,
    Restore,
    Migrate,
    Reboot,
    Reset,
    Poll,
    AttachDisk,
    DetachDisk,
    AttachNic,
    DetachNic,
    SnapshotCreate,
    SnapshotRevert,
    SnapshotDelete,
    DiskSnapshotCreate,
    ResizeDisk,
    Resize,
    Cleanup,
    UpdateSg,
    UpdateNic,
    UpdateConf,
    Backup,
    BackupCancel,
    Exec,
    ExecCancel,
}

/// Wire name and name of the main action, in which lists of options name it.
const TABLE: [(Verb, &str, &str); 27] = [
    (Verb::Deploy, "DEPLOY", "deploy"),
    (Verb::Shutdown, "SHUTDOWN", "shutdown"),
    (Verb::Cancel, "CANCEL", "cancel"),
    (Verb::Save, "SAVE", "save"),
    (Verb::Restore, "RESTORE", "restore"),
    (Verb::Migrate, "MIGRATE", "migrate"),
    (Verb::Reboot, "REBOOT", "reboot"),
    (Verb::Reset, "RESET", "reset"),
    (Verb::Poll, "POLL", "poll"),
    (Verb::AttachDisk, "ATTACHDISK", "attach_disk"),
    (Verb::DetachDisk, "DETACHDISK", "detach_disk"),
    (Verb::AttachNic, "ATTACHNIC", "attach_nic"),
    (Verb::DetachNic, "DETACHNIC", "detach_nic"),
    (Verb::SnapshotCreate, "SNAPSHOTCREATE", "snapshot_create"),
    (Verb::SnapshotRevert, "SNAPSHOTREVERT", "snapshot_revert"),
    (Verb::SnapshotDelete, "SNAPSHOTDELETE", "snapshot_delete"),
    (Verb::DiskSnapshotCreate, "DISKSNAPSHOTCREATE", "disk_snapshot_create"),
    (Verb::ResizeDisk, "RESIZEDISK", "resize_disk"),
    (Verb::Resize, "RESIZE", "resize"),
    (Verb::Cleanup, "CLEANUP", "cleanup"),
    (Verb::UpdateSg, "UPDATESG", "update_sg"),
    (Verb::UpdateNic, "UPDATENIC", "update_nic"),
    (Verb::UpdateConf, "UPDATECONF", "update_conf"),
    (Verb::Backup, "BACKUP", "backup"),
    (Verb::BackupCancel, "BACKUPCANCEL", "backup_cancel"),
    (Verb::Exec, "EXEC", "exec"),
    (Verb::ExecCancel, "EXEC_CANCEL", "exec_cancel"),
];

impl Verb {
    /// All verbs.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(verb, _, _)| *verb)
    }

    /// The verb of a request line, in any case.
    #[must_use]
    pub fn from_wire(name: &str) -> Option<Self> {
        TABLE.iter().find(|(_, wire, _)| wire.eq_ignore_ascii_case(name)).map(|(verb, _, _)| *verb)
    }

    /// The name in requests and replies: `SNAPSHOTREVERT`.
    #[must_use]
    pub fn wire(self) -> &'static str {
        self.names().0
    }

    /// The name of the main action: `snapshot_revert`.
    #[must_use]
    pub fn action(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        TABLE.iter().find(|(verb, _, _)| *verb == self).map_or(("", ""), |(_, wire, action)| (*wire, *action))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_its_two_names() {
        for verb in Verb::all() {
            assert!(!verb.wire().is_empty() && !verb.action().is_empty(), "{verb:?}");
            assert_eq!(Verb::from_wire(&verb.wire().to_lowercase()), Some(verb));
        }
        assert_eq!(Verb::from_wire("SNAPSHOT_REVERT"), None);
        assert_eq!(
            (Verb::SnapshotRevert.wire(), Verb::SnapshotRevert.action()),
            ("SNAPSHOTREVERT", "snapshot_revert")
        );
    }
}
