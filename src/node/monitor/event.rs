//! Lines of `virsh event --event lifecycle --loop`: `event 'lifecycle' for domain 'NAME': WORD DETAIL`.
//!
//! An event wakes the agent up; the state of a domain always comes from a query. Only the detail of `Stopped`
//! is needed itself, because the domain may be gone. The words are those of the C locale.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the domain.
    pub domain: String,
    /// What happened.
    pub what: What,
}

/// What happened, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It is (or will be) here by an incoming migration; no news until it is resumed.
    Arriving,
    /// It has arrived, or runs again: whatever was incoming is complete.
    Resumed,
    /// It stopped; the domain may be gone.
    Stopped(Why),
    /// Something else: have a look.
    Changed,
    /// Nothing about a state (defined, undefined).
    Other,
}

/// Why a domain stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Shut down from inside or by QEMU.
    Shutdown,
    /// Destroyed through libvirt.
    Destroyed,
    /// Crashed and gone.
    Crashed,
    /// Its process died, or its start or arrival failed.
    Failed,
    /// Migrated away: it lives elsewhere.
    Migrated,
    /// Saved to a file.
    Saved,
    /// Replaced by a snapshot.
    Snapshot,
    /// A word that is not known.
    Unknown,
}

impl Why {
    /// Whether the end of the domain is the end of the VM.
    #[must_use]
    pub fn is_off(self) -> bool {
        matches!(self, Self::Shutdown | Self::Destroyed | Self::Crashed | Self::Failed)
    }
}

impl Event {
    /// Reads a line; `None` when it is no lifecycle event.
    ///
    /// A domain's name may imitate the rest of a line. Words and details hold no quote, so the last `': ` ends the
    /// name. With `--timestamp` the line has a time in front; it is ignored.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        const HEAD: &str = "event 'lifecycle' for domain '";
        let rest = match line.strip_prefix(HEAD) {
            Some(rest) => rest,
            None => {
                let (stamp, rest) = line.split_once(": ")?;
                let is_stamp = stamp.starts_with(|c: char| c.is_ascii_digit()) && !stamp.contains('\'');
                if is_stamp { rest.strip_prefix(HEAD)? } else { return None }
            }
        };
        let (domain, told) = rest.rsplit_once("': ")?;
        let (word, detail) = told.split_once(' ').unwrap_or((told, ""));
        Some(Self { domain: domain.to_owned(), what: what(word, detail.trim()) })
    }
}

fn what(word: &str, detail: &str) -> What {
    match (word, detail) {
        ("Defined" | "Undefined", _) => What::Other,
        ("Started", "Migrated") => What::Arriving,
        ("Resumed", _) => What::Resumed,
        ("Stopped", detail) => What::Stopped(match detail {
            "Shutdown" => Why::Shutdown,
            "Destroyed" => Why::Destroyed,
            "Crashed" => Why::Crashed,
            "Failed" => Why::Failed,
            "Migrated" => Why::Migrated,
            "Saved" => Why::Saved,
            "Snapshot" => Why::Snapshot,
            _ => Why::Unknown,
        }),
        _ => What::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (String, What) {
        let event = Event::parse(line).expect(line);
        (event.domain, event.what)
    }

    #[test]
    fn events_are_told_apart() {
        for (told, expected) in [
            ("Started Booted", What::Changed),
            ("Started Migrated", What::Arriving),
            ("Resumed Migrated", What::Resumed),
            ("Stopped Failed", What::Stopped(Why::Failed)),
            ("Stopped Migrated", What::Stopped(Why::Migrated)),
            ("Stopped Saved", What::Stopped(Why::Saved)),
            ("Stopped Something new", What::Stopped(Why::Unknown)),
            ("Suspended I/O Error", What::Changed),
            ("Shutdown Finished after host request", What::Changed),
            ("Undefined Removed", What::Other),
        ] {
            assert_eq!(
                parse(&format!("event 'lifecycle' for domain 'one-7': {told}")),
                ("one-7".to_owned(), expected)
            );
        }
    }

    #[test]
    fn a_time_stamp_in_front_is_ignored() {
        let line = "2026-11-30 14:00:00.123+0000: event 'lifecycle' for domain 'one-7': Stopped Destroyed";
        assert_eq!(parse(line), ("one-7".to_owned(), What::Stopped(Why::Destroyed)));
    }

    #[test]
    fn a_name_that_imitates_an_event_is_a_name() {
        let line = "event 'lifecycle' for domain 'one-7': Stopped Destroyed': Started Booted";
        assert_eq!(parse(line), ("one-7': Stopped Destroyed".to_owned(), What::Changed));
        let line = "event 'lifecycle' for domain 'x event 'lifecycle' for domain 'one-7': Stopped Failed': Defined Added";
        assert_eq!(parse(line).1, What::Other);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "events received: 3",
            "event 'reboot' for domain 'one-7'",
            "error: Disconnected",
            "x: event 'lifecycle' for domain 'one-7': Stopped Failed",
        ] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }
}
