//! What libvirt's state of a domain means to `oned`.
//!
//! The numbers are libvirt's virDomainState and the reasons within each state, as `virsh domstats --raw --state`
//! prints them; they are part of its stable interface, unlike the words that virsh prints for people.

/// State of a VM as STATE_VM messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum VmState {
    /// It runs.
    Running,
    /// It is held by a user, or its guest sleeps.
    Suspended,
    /// It hangs by a fault (storage error, watchdog, crash) and is still there.
    Failure,
    /// It is off.
    Poweroff,
    /// Nothing that `oned` should act on.
    Unknown,
}

impl VmState {
    /// The word in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Failure => "FAILURE",
            Self::Poweroff => "POWEROFF",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// What a look at a domain shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is there, in this state.
    Active(VmState),
    /// Paused by a user or an API error: believed only when a second look shows the same.
    Doubtful(VmState),
    /// Paused for an incoming migration (or an outgoing one that is nearly done).
    Migrating,
    /// Defined but off, for this reason.
    Off(super::event::Why),
}

/// virDomainState: paused.
pub const PAUSED: i32 = 3;
const SHUTOFF: i32 = 5;

/// Reads libvirt's numbers.
#[must_use]
pub fn seen(state: i32, reason: i32) -> Seen {
    match state {
        // running, blocked, in shutdown
        1 | 2 | 4 => Seen::Active(VmState::Running),
        PAUSED => paused(reason),
        SHUTOFF => Seen::Off(off(reason)),
        6 => Seen::Active(VmState::Failure),
        7 => Seen::Active(VmState::Suspended),
        _ => Seen::Active(VmState::Unknown),
    }
}

fn paused(reason: i32) -> Seen {
    match reason {
        // by a user
        1 => Seen::Doubtful(VmState::Suspended),
        2 => Seen::Migrating,
        // for a save, while starting up
        3 | 11 => Seen::Active(VmState::Running),
        // unknown, storage error, watchdog, crashed, post-copy failed
        0 | 5 | 6 | 10 | 13 => Seen::Active(VmState::Failure),
        // an API call failed and left it paused
        14 => Seen::Doubtful(VmState::Failure),
        // dump, from a snapshot, shutting down, taking a snapshot, post-copy: oned is told nothing
        _ => Seen::Active(VmState::Unknown),
    }
}

fn off(reason: i32) -> super::event::Why {
    use super::event::Why;
    match reason {
        1 | 8 => Why::Shutdown,
        2 => Why::Destroyed,
        3 => Why::Crashed,
        4 => Why::Migrated,
        5 => Why::Saved,
        6 => Why::Failed,
        7 => Why::Snapshot,
        _ => Why::Unknown,
    }
}

/// Number of a VM of OpenNebula by the name of its domain: `one-` and digits, nothing else.
#[must_use]
pub fn vm_id(name: &str) -> Option<i64> {
    let digits = name.strip_prefix("one-")?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::super::event::Why;
    use super::*;

    #[test]
    fn states_are_those_of_the_table() {
        use VmState::{Failure, Running, Suspended, Unknown};
        for (state, reason, expected) in [
            (1, 1, Seen::Active(Running)),
            (2, 0, Seen::Active(Running)),
            (4, 1, Seen::Active(Running)),
            (6, 0, Seen::Active(Failure)),
            (7, 0, Seen::Active(Suspended)),
            (3, 1, Seen::Doubtful(Suspended)),
            (3, 2, Seen::Migrating),
            (3, 3, Seen::Active(Running)),
            (3, 11, Seen::Active(Running)),
            (3, 5, Seen::Active(Failure)),
            (3, 6, Seen::Active(Failure)),
            (3, 13, Seen::Active(Failure)),
            (3, 0, Seen::Active(Failure)),
            (3, 14, Seen::Doubtful(Failure)),
            (3, 9, Seen::Active(Unknown)),
            (5, 5, Seen::Off(Why::Saved)),
            (5, 4, Seen::Off(Why::Migrated)),
            (5, 1, Seen::Off(Why::Shutdown)),
            (5, 0, Seen::Off(Why::Unknown)),
            (0, 0, Seen::Active(Unknown)),
            (99, 1, Seen::Active(Unknown)),
        ] {
            assert_eq!(seen(state, reason), expected, "{state} {reason}");
        }
    }

    #[test]
    fn only_whole_names_are_vms_of_opennebula() {
        assert_eq!(vm_id("one-12"), Some(12));
        for other in
            ["one-12x", "one-", "one-1 ", "xone-1", "one--1", "one-1\n", "One-1", "one-99999999999999999999"]
        {
            assert_eq!(vm_id(other), None, "{other}");
        }
    }
}
